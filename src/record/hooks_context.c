// Hooks of the ends of contexts: what is being hashed in one has to be looked at before, and memory that is kept in one
// is given back, so that it is never looked for where it is gone; afterwards its streams are forgotten.
#include "record/canary.h"
#include "record/differ.h"
#include "record/hook.h"
#include "record/ids.h"
#include "record/recorder.h"

static CUresult ended(CUresult result)
{
    if (gv_enter()) {
        gv_contexts_ended();
        gv_leave();
    }
    return result;
}

GV_HOOK(cuCtxDestroy_v2, (CUcontext context), (context))
{
    if (gv_enter()) {
        if (gv_canary_is_on())
            gv_canary_context_ends(context);
        gv_check_give_back();
        gv_leave();
    }
    return ended(real(context));
}

GV_HOOK(cuDevicePrimaryCtxReset_v2, (CUdevice device), (device))
{
    if (gv_enter()) {
        if (gv_canary_is_on())
            gv_canary_device_resets(device);
        gv_check_give_back();
        gv_leave();
    }
    return ended(real(device));
}

// Whether this is the last release, and ends the context, only the driver knows.
GV_HOOK(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device))
{
    if (gv_enter()) {
        if (gv_canary_is_on())
            gv_canary_settle();
        gv_check_give_back();
        gv_leave();
    }
    return ended(real(device));
}
