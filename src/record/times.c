// Both events and the node wait behind a host function until all three are enqueued: the time between the events is
// then the node's on the device, and not the host's to launch it. What two events without a node are apart is
// subtracted.
#include "record/times.h"

#include "base/clock.h"
#include "base/memory.h"
#include "record/arm.h"
#include "record/recorder.h"
#include "record/replay.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

// A launch may wait for the stream inside the driver, which would then wait for ever: the hold ends by itself after
// this part of the time after which a node counts as stuck (20 ms, where nothing else was asked for), and the node has
// no time.
enum { HOLD_PART = 500, EMPTY_PAIRS = 8 };

struct gv_times {
    CUstream stream;
    CUevent before, behind;
    atomic_bool released, late;
    uint64_t empty_ns;
};

static void hold(void *user)
{
    gv_times *times = user;
    uint64_t deadline = gv_monotonic_ns() + (uint64_t)(gv_state.options.stall_seconds * 1e9 / HOLD_PART);
    while (!atomic_load(&times->released)) {
        if (gv_monotonic_ns() > deadline) {
            atomic_store(&times->late, true);
            return;
        }
        struct timespec pause = {0, 1000};
        nanosleep(&pause, NULL);
    }
}

void gv_times_before(gv_times *times)
{
    atomic_store(&times->released, false);
    atomic_store(&times->late, gv_cuda.cuLaunchHostFunc(times->stream, hold, times) != CUDA_SUCCESS);
    if (gv_cuda.cuEventRecord(times->before, times->stream) != CUDA_SUCCESS)
        atomic_store(&times->late, true);
}

void gv_times_behind(gv_times *times)
{
    if (gv_cuda.cuEventRecord(times->behind, times->stream) != CUDA_SUCCESS)
        atomic_store(&times->late, true);
    atomic_store(&times->released, true);
}

// Nanoseconds between the events of the last pair; false where they say nothing.
static bool elapsed(gv_times *times, uint64_t *ns)
{
    float milliseconds = 0;
    if (atomic_load(&times->late) ||
        gv_cuda.cuEventElapsedTime(&milliseconds, times->before, times->behind) != CUDA_SUCCESS || milliseconds < 0)
        return false;
    *ns = (uint64_t)((double)milliseconds * 1e6);
    return true;
}

void gv_times_write(gv_times *times, uint64_t launch, uint64_t graph, uint32_t node)
{
    uint64_t ns;
    if (!elapsed(times, &ns))
        return;
    gv_node_time_record record = {
        .launch = launch,
        .graph = graph,
        .node = node,
        .duration_ns = ns > times->empty_ns ? ns - times->empty_ns : 0,
        .runs = 1,
    };
    gv_write_node_time(gv_state.writer, &record);
}

static void close_times(gv_times *times)
{
    if (times->before)
        gv_cuda.cuEventDestroy(times->before);
    if (times->behind)
        gv_cuda.cuEventDestroy(times->behind);
    gv_free(times);
}

static gv_times *open_times(CUstream stream)
{
    gv_times *times = gv_calloc(1, sizeof *times);
    if (!times)
        return NULL;
    times->stream = stream;
    times->empty_ns = UINT64_MAX;
    if (gv_cuda.cuEventCreate(&times->before, CU_EVENT_DEFAULT) != CUDA_SUCCESS ||
        gv_cuda.cuEventCreate(&times->behind, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        close_times(times);
        return NULL;
    }
    for (int i = 0; i < EMPTY_PAIRS; i++) {
        uint64_t ns;
        gv_times_before(times);
        gv_times_behind(times);
        CUresult result = gv_wait_for_stream(stream, 1);
        if (result == CUDA_ERROR_NOT_READY)
            return NULL; // its memory is still in use
        if (result == CUDA_SUCCESS && elapsed(times, &ns) && ns < times->empty_ns)
            times->empty_ns = ns;
    }
    if (times->empty_ns == UINT64_MAX) {
        close_times(times);
        return NULL;
    }
    return times;
}

static bool has_conditionals(const gv_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->node_count; i++) {
        const gv_snapshot_node *node = &snapshot->nodes[i];
        if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            return true;
        for (size_t body = 0; body < node->body_count; body++)
            if (has_conditionals(node->bodies[body]))
                return true;
    }
    return false;
}

bool gv_times_launch(gv_exec *exec, CUstream stream, bool per_thread, CUresult *result)
{
    const char *why =
        exec->unknown[0] ? exec->unknown : "it has conditional nodes, whose bodies are not known beforehand";
    gv_hold held;
    if (exec->unknown[0] || !exec->snapshot || !exec->snapshot->owned || has_conditionals(exec->snapshot)) {
        gv_verbose("graph #%llu: no times of its nodes: %s",
                   (unsigned long long)(exec->snapshot ? exec->snapshot->id : 0), why);
        return false;
    }
    if (!gv_hold_begin(&held, stream, per_thread, &why)) {
        gv_verbose("graph #%llu: no times of its nodes at this launch: %s", (unsigned long long)exec->snapshot->id,
                   why);
        exec->time_next = true;
        return false;
    }
    gv_times *times = gv_in_context(exec->snapshot, held.context) ? open_times(held.stream) : NULL;
    if (times) {
        gv_replay run = {.context = held.context, .stream = held.stream, .times = times};
        gv_exec_refresh(exec);
        run.launch = gv_write_launch(exec, stream, per_thread, gv_stack());
        gv_replay_timed(&run, exec->snapshot);
        *result = run.result;
        gv_replay_end(&run);
        // With a node that still waits, the hold's memory may be looked at later: it stays.
        if (!run.left_running)
            close_times(times);
        gv_flush();
    }
    gv_hold_end(&held);
    return times != NULL;
}
