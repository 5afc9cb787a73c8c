// What a program tells the recorder itself, through include/gravel.h.
#include "gravel.h"
#include "record/arm.h"
#include "record/canary.h"
#include "record/hook.h"
#include "record/ids.h"
#include "record/recorder.h"
#include "record/rows.h"

#include <stdio.h>
#include <string.h>

_Static_assert((int)GV_ROWS_IN == GRAVEL_ROWS_IN && (int)GV_ROWS_OUT == GRAVEL_ROWS_OUT &&
                   (int)GV_ROWS_INDEX == GRAVEL_ROWS_INDEX && (int)GV_ROWS_ZERO_IS_PAD == GRAVEL_ROWS_ZERO_IS_PAD &&
                   (int)GV_ROWS_MINUS_ONE_IS_PAD == GRAVEL_ROWS_MINUS_ONE_IS_PAD &&
                   (int)GV_ROWS_ONE_IS_PAD == GRAVEL_ROWS_ONE_IS_PAD,
               "rows.h has the flags of gravel.h");

GV_EXPORT void gravel_record_arm_next(void);
GV_EXPORT void gravel_record_order(uint64_t token, int acquire);
GV_EXPORT void gravel_record_rows(const char *name, uint64_t address, uint64_t row_bytes, uint64_t rows,
                                  unsigned flags);
GV_EXPORT void gravel_record_batch_rows(uint64_t real, uint64_t captured);
GV_EXPORT void gravel_record_scratch(const char *name, uint64_t address, uint64_t bytes);

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

// Rows or scratch memory. Nonsense is said once for each name.
static void declare(const char *name, uint64_t address, uint64_t row_bytes, uint64_t rows, unsigned flags)
{
    gv_rows declared;
    bool fresh = false;
    if (!gv_enter())
        return;
    memset(&declared, 0, sizeof declared);
    declared.address = address;
    declared.row_bytes = row_bytes;
    declared.rows = rows;
    declared.flags = flags;
    snprintf(declared.name, sizeof declared.name, "%s", name ? name : "");
    const char *what = flags == GV_ROWS_SCRATCH ? "scratch memory" : "rows";
    const char *why = gv_rows_check(&declared);
    if (!why && !gv_is_live(address, row_bytes * rows, &declared.oldest, &declared.newest))
        why = "no allocated memory holds all of it";
    if (!why)
        why = gv_rows_declare(&declared, &fresh);
    if (fresh) {
        gv_declared_record record = {.name = {declared.name, strlen(declared.name)},
                                     .address = address,
                                     .row_bytes = row_bytes,
                                     .rows = rows,
                                     .flags = flags,
                                     .operation = gv_last_operation()};
        gv_write_declared(gv_state.writer, &record);
    }
    if (why) {
        char key[64];
        snprintf(key, sizeof key, "%c %.60s", what[0], declared.name);
        gv_note_once(GV_NOTE_FAILURE, key,
                     "the %s declared as \"%s\" (%llu times %llu bytes at 0x%llx) are ignored: %s", what, declared.name,
                     (unsigned long long)rows, (unsigned long long)row_bytes, (unsigned long long)address, why);
    }
    gv_leave();
}

void gravel_record_rows(const char *name, uint64_t address, uint64_t row_bytes, uint64_t rows, unsigned flags)
{
    // The flag of scratch memory is none of gravel.h's.
    declare(name, address, row_bytes, rows, flags & GV_ROWS_SCRATCH ? UINT32_MAX : flags);
}

void gravel_record_batch_rows(uint64_t real, uint64_t captured)
{
    gv_rows_set_real(real, captured);
}

void gravel_record_scratch(const char *name, uint64_t address, uint64_t bytes)
{
    declare(name, address, bytes, 1, GV_ROWS_SCRATCH);
}

// ---- Regions (record/canary.h) -----------------------------------------------------------------------------------

GV_EXPORT uint64_t gravel_record_region_begin(const char *name, uint64_t base, uint64_t bytes, uint64_t page_bytes,
                                              unsigned what);
GV_EXPORT void gravel_record_region_end(uint64_t region);
GV_EXPORT void gravel_record_region_group(uint64_t region, uint64_t group);
GV_EXPORT void gravel_record_step(uint64_t group, void *stream);
GV_EXPORT void gravel_record_allow_slots(uint64_t region, const int64_t *slots, size_t count, uint64_t slots_per_page);
GV_EXPORT void gravel_record_allow_index(uint64_t region, uint64_t address, size_t count, unsigned index_bytes,
                                         uint64_t slots_per_page);
GV_EXPORT void gravel_record_allow_callback(uint64_t region, gravel_allow_function *function, void *user);
GV_EXPORT void gravel_record_allow_all(uint64_t region);
GV_EXPORT uint64_t gravel_record_transfer_begin(uint64_t region, const int64_t *pages, size_t count);
GV_EXPORT void gravel_record_transfer_end(uint64_t transfer);

uint64_t gravel_record_region_begin(const char *name, uint64_t base, uint64_t bytes, uint64_t page_bytes, unsigned what)
{
    if (!gv_enter())
        return 0;
    uint64_t region = gv_canary_region(name, base, bytes, page_bytes, what);
    gv_leave();
    return region;
}

// A declaration that answers nothing.
#define DECLARATION(name, parameters, arguments) \
    void gravel_record_##name parameters         \
    {                                            \
        if (!gv_canary_is_on() || !gv_enter())   \
            return;                              \
        gv_canary_##name arguments;              \
        gv_leave();                              \
    }
DECLARATION(region_end, (uint64_t region), (region))
DECLARATION(allow_slots, (uint64_t region, const int64_t *slots, size_t count, uint64_t slots_per_page),
            (region, slots, count, slots_per_page))
DECLARATION(allow_index,
            (uint64_t region, uint64_t address, size_t count, unsigned index_bytes, uint64_t slots_per_page),
            (region, address, count, index_bytes, slots_per_page))
DECLARATION(allow_callback, (uint64_t region, gravel_allow_function *function, void *user), (region, function, user))
DECLARATION(allow_all, (uint64_t region), (region))
DECLARATION(transfer_end, (uint64_t transfer), (transfer))

void gravel_record_region_group(uint64_t region, uint64_t group)
{
    if (!gv_canary_is_on() || !gv_enter())
        return;
    gv_canary_group(region, group);
    gv_leave();
}

uint64_t gravel_record_transfer_begin(uint64_t region, const int64_t *pages, size_t count)
{
    if (!gv_canary_is_on() || !gv_enter())
        return 0;
    uint64_t transfer = gv_canary_transfer_begin(region, pages, count);
    gv_leave();
    return transfer;
}

void gravel_record_step(uint64_t group, void *stream)
{
    if (!gv_canary_is_on() || gv_inside())
        return;
    gv_canary_ask(group);
    if (!gv_enter())
        return;
    gv_canary_step(group, stream);
    gv_leave();
}
