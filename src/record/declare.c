// What a program tells the recorder itself, through include/gravel.h.
#include "record/arm.h"
#include "record/hook.h"
#include "record/recorder.h"

GV_EXPORT void gravel_record_arm_next(void);
GV_EXPORT void gravel_record_order(uint64_t token, int acquire);

void gravel_record_arm_next(void)
{
    gv_arm_next();
}

void gravel_record_order(uint64_t token, int acquire)
{
    if (!gv_enter())
        return;
    gv_operation_record operation = {.kind = GV_OP_HOST_ORDER, .object = token, .flags = acquire ? 1 : 0};
    gv_operation(&operation);
    gv_leave();
}
