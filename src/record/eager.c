#include "record/eager.h"

#include "base/memory.h"
#include "record/arm.h"
#include "record/graph.h"
#include "record/ids.h"
#include "record/recorder.h"
#include "record/replay.h"
#include "record/source.h"

#include <stdatomic.h>
#include <string.h>

static atomic_int steps_left;

void gv_eager_watch(void)
{
    // The step that is ending now counts as one.
    atomic_store(&steps_left, 3);
}

void gv_eager_step(void)
{
    int left = atomic_load(&steps_left);
    while (left > 0 && !atomic_compare_exchange_weak(&steps_left, &left, left - 1))
        ;
}

bool gv_eager_is_on(void)
{
    return atomic_load_explicit(&steps_left, memory_order_relaxed) > 0;
}

// ---- One launch --------------------------------------------------------------------------------------------------

static gv_bytes encode(const gv_node_ranges *ranges, enum gv_access_kind kind, bool *lost)
{
    size_t count = ranges->count[kind];
    uint8_t *bytes = count ? gv_malloc(gv_ranges_encoded_bound(count)) : NULL;
    *lost |= count && !bytes;
    return bytes ? (gv_bytes){bytes, gv_ranges_encode(ranges->ranges[kind], count, bytes)} : (gv_bytes){0};
}

static uint64_t string_id(const char *text)
{
    return gv_stacks_string(gv_state.stacks, text, strlen(text));
}

// `why`: what is not known of it, or NULL.
static void write_down(CUfunction function, CUstream stream, bool per_thread, const gv_node_ranges *ranges,
                       const char *why)
{
    gv_operation_record operation = {.kind = GV_OP_KERNEL,
                                     .stream = gv_stream_id(stream, per_thread),
                                     .object = gv_function_id(function),
                                     .stack = gv_stack()};
    bool lost = false;
    gv_kernel_access_record record = {
        .operation = gv_operation(&operation),
        .function = operation.object,
        .stack = operation.stack,
        .source = gv_state.soft ? GV_SOURCE_SOFT : GV_SOURCE_SANITIZER,
        .reads = encode(ranges, GV_ACCESS_READ, &lost),
        .writes = encode(ranges, GV_ACCESS_WRITE, &lost),
        .atomics = encode(ranges, GV_ACCESS_ATOMIC, &lost),
    };
    const gv_bytes reads = record.reads, writes = record.writes, atomics = record.atomics;
    if (lost)
        why = "memory for its access set ran out";
    record.precision = why ? GV_PRECISION_INCOMPLETE : GV_PRECISION_EXACT;
    record.reason = why ? string_id(why) : 0;
    if (gv_write_kernel_access(gv_state.writer, &record) == GV_ERR_LIMIT) {
        record.reads = record.writes = record.atomics = (gv_bytes){0};
        record.precision = GV_PRECISION_INCOMPLETE;
        record.reason = string_id("its access set is larger than a record of the trace may be");
        gv_write_kernel_access(gv_state.writer, &record);
    }
    gv_free((void *)reads.data);
    gv_free((void *)writes.data);
    gv_free((void *)atomics.data);
}

bool gv_eager_launch(CUfunction function, CUstream stream, bool per_thread, CUresult (*launch)(void *user), void *user,
                     CUresult *result)
{
    gv_hold hold;
    gv_error error = {0};
    const char *why = NULL, *name = NULL;
    const gv_recording_source *source = gv_source(&why);
    if (!source || gv_captures_active() || !gv_hold_begin(&hold, stream, per_thread, &why))
        return false;
    if (source->open(hold.context, hold.stream, false, &error) != GV_OK) {
        gv_hold_end(&hold);
        return false;
    }
    gv_node_ranges ranges = {0}, extents = {0};
    gv_status status = source->before(&error);
    *result = launch(user);
    bool running = *result == CUDA_SUCCESS &&
                   gv_wait_for_stream(hold.stream, gv_state.options.stall_seconds) == CUDA_ERROR_NOT_READY;
    if (!running && status == GV_OK)
        status = source->after(&ranges, &extents, &error);
    why = status == GV_OK ? NULL : error.text;
    gv_cuda.cuFuncGetName(&name, function);
    // What other instructions of it may have touched is not followed here, as it is for nodes of graphs.
    const unsigned harmless = GV_FUNCTION_ATOMIC | GV_FUNCTION_DEVICE_HEAP | GV_FUNCTION_CONSTANT | GV_FUNCTION_TEXTURE;
    if (!why && name && (gv_source_blind_flags(function, name) & ~harmless))
        why = "it has instructions whose accesses are not reported";
    if (running) {
        // It waits for something, perhaps for another thread: the source is closed when it has ended.
        why = "it did not end alone";
        gv_hold_leave(&hold, source);
    } else {
        source->close();
        gv_hold_end(&hold);
    }
    if (*result == CUDA_SUCCESS)
        write_down(function, stream, per_thread, &ranges, why);
    gv_node_ranges_free(&ranges);
    gv_node_ranges_free(&extents);
    return true;
}
