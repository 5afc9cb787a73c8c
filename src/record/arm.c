// Which launches are watched, and what has to hold while one is: no other work in the context, no capture anywhere, and
// the patches gone before the program's next launch.
#include "record/arm.h"

#include "base/memory.h"
#include "record/canary.h"
#include "record/conditional.h"
#include "record/differ.h"
#include "record/early.h"
#include "record/graph.h"
#include "record/hook.h"
#include "record/ids.h"
#include "record/known.h"
#include "record/opaque.h"
#include "record/perturb.h"
#include "record/probe.h"
#include "record/recorder.h"
#include "record/replay.h"
#include "record/source.h"
#include "record/times.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

// ---- The gate ------------------------------------------------------------------------------------------------
// While a context's modules are patched, no other thread may launch into it: a patched graph with programmatic edges
// faults. One thread arms at a time.

static pthread_mutex_t arm_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(CUcontext) armed_context;
static atomic_int launches_under_way;
static atomic_bool held; // the gate is closed for copies too
static atomic_int copies_under_way;
static __thread bool arming_thread __attribute__((tls_model("initial-exec")));
static atomic_ullong arm_next_epoch;

// A replay in which a node still waits for something outside was left running: its source can only be closed, and the
// patches taken off, once that work is done. Under arm_lock, but for the flag.
static struct {
    const gv_recording_source *source;
    CUcontext context;
    CUstream stream;
    gv_opaque *opaque;
} left;
static atomic_bool is_left;

// Closes it when its work is done. With `patience`, waits for that: a graph must not be launched into patched modules.
static void settle_left(double patience)
{
    CUcontext current = NULL;
    if (!atomic_load_explicit(&is_left, memory_order_relaxed) || arming_thread ||
        gv_cuda.cuCtxGetCurrent(&current) != CUDA_SUCCESS || pthread_mutex_trylock(&arm_lock) != 0)
        return;
    if (atomic_load(&is_left) && current == left.context &&
        gv_wait_for_stream(left.stream, patience) != CUDA_ERROR_NOT_READY) {
        left.source->close();
        gv_opaque_close(left.opaque);
        atomic_store(&is_left, false);
    }
    pthread_mutex_unlock(&arm_lock);
}

void gv_gate_enter(void)
{
    settle_left(0);
    for (;;) {
        atomic_fetch_add(&launches_under_way, 1);
        CUcontext armed = atomic_load(&armed_context), current = NULL;
        if (!armed || arming_thread)
            return;
        if (gv_cuda.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != armed)
            return;
        atomic_fetch_sub(&launches_under_way, 1);
        struct timespec pause = {0, 50000};
        nanosleep(&pause, NULL);
    }
}

void gv_gate_leave(void)
{
    atomic_fetch_sub(&launches_under_way, 1);
}

void gv_copy_gate_enter(void)
{
    for (;;) {
        atomic_fetch_add(&copies_under_way, 1);
        CUcontext armed = atomic_load(&held) ? atomic_load(&armed_context) : NULL, current = NULL;
        if (!armed || arming_thread || gv_cuda.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != armed)
            return;
        atomic_fetch_sub(&copies_under_way, 1);
        struct timespec pause = {0, 50000};
        nanosleep(&pause, NULL);
    }
}

void gv_copy_gate_leave(void)
{
    atomic_fetch_sub(&copies_under_way, 1);
}

static void open_gate(void)
{
    atomic_store(&armed_context, NULL);
    atomic_store(&held, false);
}

// Closes the gate for a context. False when other threads' launches did not end in time: one may be blocked inside
// the driver.
static bool close_gate(CUcontext context)
{
    atomic_store(&armed_context, context);
    uint64_t deadline = gv_monotonic_ns() + 1000000000u;
    while (atomic_load(&launches_under_way) > 0 || (atomic_load(&held) && atomic_load(&copies_under_way) > 0)) {
        if (gv_monotonic_ns() > deadline) {
            open_gate();
            return false;
        }
        sched_yield();
    }
    return true;
}

void gv_arm_after_fork(void)
{
    pthread_mutex_init(&arm_lock, NULL);
    atomic_store(&armed_context, NULL);
    atomic_store(&launches_under_way, 0);
    atomic_store(&copies_under_way, 0);
    atomic_store(&held, false);
    atomic_store(&is_left, false);
    arming_thread = false;
    gv_graphs_forget();
}

// ---- Waiting for an idle context ------------------------------------------------------------------------------

static bool is_idle(CUstream stream, void *user)
{
    *(CUstream *)user = stream;
    return gv_cuda.cuStreamQuery(stream) == CUDA_SUCCESS;
}

// Modules are patched only while nothing runs in the context. The context is never synchronised as a whole: work
// there may wait for something the program is about to do.
static bool context_becomes_idle(CUcontext context, double seconds)
{
    uint64_t deadline = gv_monotonic_ns() + (uint64_t)(seconds * 1e9);
    for (;;) {
        CUstream busy = NULL;
        if (gv_cuda.cuStreamQuery(CU_STREAM_LEGACY) == CUDA_SUCCESS &&
            gv_cuda.cuStreamQuery(CU_STREAM_PER_THREAD) == CUDA_SUCCESS && gv_streams_of(context, is_idle, &busy))
            return true;
        if (gv_monotonic_ns() > deadline)
            return false;
        struct timespec pause = {0, 20000};
        nanosleep(&pause, NULL);
    }
}

// ---- Deciding ------------------------------------------------------------------------------------------------

void gv_arm_next(void)
{
    atomic_fetch_add(&arm_next_epoch, 1);
}

// Is this launch of the exec one to arm? One that could not be armed when it was due is made up for at the next.
static bool is_due(gv_exec *exec)
{
    const gv_record_options *options = &gv_state.options;
    exec->launches++;
    if (!exec->named)
        return false;
    unsigned long long epoch = atomic_load(&arm_next_epoch);
    if (exec->epoch != epoch) {
        exec->epoch = epoch;
        exec->owed = true;
    }
    switch (options->arm) {
    case GV_ARM_NONE: break;
    case GV_ARM_NTH: exec->owed |= exec->launches == options->arm_number; break;
    case GV_ARM_EVERY: exec->owed |= (exec->launches - 1) % options->arm_number == 0; break;
    case GV_ARM_ALL: exec->owed = true; break;
    }
    return exec->owed;
}

bool gv_in_context(const gv_snapshot *snapshot, CUcontext context)
{
    for (size_t i = 0; i < snapshot->node_count; i++) {
        const gv_snapshot_node *node = &snapshot->nodes[i];
        CUDA_KERNEL_NODE_PARAMS params;
        memset(&params, 0, sizeof params);
        for (size_t body = 0; body < node->body_count; body++)
            if (!gv_in_context(node->bodies[body], context))
                return false;
        if (node->type == CU_GRAPH_NODE_TYPE_KERNEL &&
            gv_cuda.cuGraphKernelNodeGetParams(node->node, &params) == CUDA_SUCCESS && params.ctx &&
            params.ctx != context)
            return false;
    }
    return true;
}

static void write_armed(uint64_t launch, const gv_exec *exec, enum gv_armed_status status, const char *reason,
                        uint64_t duration, uint64_t node)
{
    gv_armed_record record = {
        .launch = launch,
        .exec = exec->id,
        .graph = exec->snapshot ? exec->snapshot->id : 0,
        .status = status,
        .reason = {reason, strlen(reason)},
        .duration_ns = duration,
        .node = node,
    };
    gv_write_armed(gv_state.writer, &record);
    gv_flush();
}

uint64_t gv_write_launch(const gv_exec *exec, CUstream stream, bool per_thread, uint64_t stack)
{
    if (exec)
        gv_probe_launched(exec->id);
    gv_operation_record operation = {.kind = GV_OP_GRAPH_LAUNCH,
                                     .stream = gv_stream_id(stream, per_thread),
                                     .object = exec ? exec->id : 0,
                                     .stack = stack};
    return gv_operation(&operation);
}

enum attempt { ARMED, REFUSED, NOT_NOW };

// How long an armed launch waits for other work, and how often it is tried: a program whose context is never idle must
// not lose that time at every launch.
enum { IDLE_SECONDS = 2, MOST_ATTEMPTS = 3 };

// Runs the launch armed. REFUSED: this graph cannot be; NOT_NOW: try at its next launch. Both leave everything as it
// was, with the reason in `why`.
static enum attempt run_armed(gv_exec *exec, CUstream stream, bool per_thread, CUresult *result, const char **why)
{
    gv_replay run = {.stream = stream ? stream : per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY};
    gv_error error = {0};
    if (exec->unknown[0] || !exec->snapshot || exec->snapshot->refusal[0]) {
        *why = exec->unknown[0] ? exec->unknown : exec->snapshot ? exec->snapshot->refusal : "it was not read";
        return REFUSED;
    }
    *why = "recording was begun with --arm none, and its nodes were not kept";
    if (!exec->snapshot->owned || gv_state.options.arm == GV_ARM_NONE)
        return REFUSED;
    run.source = gv_source(why);
    if (!run.source)
        return REFUSED;
    if (gv_cuda.cuStreamGetCtx(run.stream, &run.context) != CUDA_SUCCESS || !run.context)
        gv_cuda.cuCtxGetCurrent(&run.context);
    if (!gv_in_context(exec->snapshot, run.context)) {
        *why = "its nodes belong to several contexts";
        return REFUSED;
    }
    *why = "earlier work in its context did not come to an end";
    if (exec->attempts >= MOST_ATTEMPTS)
        return REFUSED;
    *why = "a replay of another graph was left running, and its recording is not closed yet";
    if (atomic_load(&is_left))
        return NOT_NOW;
    *why = "a capture is under way";
    if (gv_captures_active())
        return NOT_NOW;
    *why = "other threads' launches did not come to an end";
    if (!close_gate(run.context))
        return ++exec->attempts < MOST_ATTEMPTS ? NOT_NOW : REFUSED;
    // Captures begin behind the gate: from here on there is none in this context.
    *why = "a capture is under way";
    if (gv_captures_active()) {
        open_gate();
        return NOT_NOW;
    }
    arming_thread = true;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUcontext popped = NULL;
    gv_cuda.cuThreadExchangeStreamCaptureMode(&mode);
    gv_cuda.cuCtxPushCurrent(run.context);
    enum attempt outcome = ++exec->attempts < MOST_ATTEMPTS ? NOT_NOW : REFUSED;
    *why = "earlier work in its context did not come to an end";
    uint64_t start = gv_monotonic_ns(), ready = 0, done = 0, end = 0;
    if (gv_wait_for_stream(run.stream, IDLE_SECONDS) == CUDA_SUCCESS &&
        context_becomes_idle(run.context, IDLE_SECONDS)) {
        bool waits = gv_has_programmatic(exec->snapshot);
        bool opened = run.source->open(run.context, run.stream, waits, &error) == GV_OK;
        if (opened)
            gv_exec_refresh(exec);
        if (opened && gv_conditionals_open(&run, exec->snapshot, &error) == GV_OK) {
            ready = gv_monotonic_ns();
            run.launch = gv_write_launch(exec, stream, per_thread, gv_stack());
            run.known = gv_state.options.diff ? gv_calloc(1, sizeof *run.known) : NULL;
            gv_replay_run(&run, exec->snapshot);
            gv_exec_take_known(exec, run.known);
            done = gv_monotonic_ns();
            if (run.left_running) {
                left.source = run.source;
                left.context = run.context;
                left.stream = run.stream;
                left.opaque = run.opaque;
                atomic_store(&is_left, true);
            } else {
                if (!run.source_closed)
                    run.source->close();
                gv_opaque_close(run.opaque);
            }
            end = gv_monotonic_ns();
            write_armed(run.launch, exec, run.reason[0] ? GV_ARMED_FAILED : GV_ARMED_COMPLETE, run.reason, end - start,
                        run.failed_node);
            *result = run.result;
            // A graph whose nodes all ran alone to their ends does so again.
            exec->time_next = gv_state.options.times && !run.reason[0];
            outcome = ARMED;
            exec->attempts = 0;
        } else {
            if (opened && !run.source_closed)
                run.source->close();
            static __thread char text[sizeof error.text];
            memcpy(text, error.text, sizeof text);
            *why = text;
            outcome = REFUSED;
        }
    }
    gv_replay_end(&run);
    gv_cuda.cuCtxPopCurrent(&popped);
    gv_cuda.cuThreadExchangeStreamCaptureMode(&mode);
    arming_thread = false;
    open_gate();
    if (outcome == ARMED)
        gv_verbose("graph #%llu: armed replay of %zu nodes took %.1f ms (%.1f to make ready, %.1f to undo)%s%s",
                   (unsigned long long)exec->snapshot->id, exec->snapshot->node_count, (double)(end - start) / 1e6,
                   (double)(ready - start) / 1e6, (double)(end - done) / 1e6, run.reason[0] ? ": " : "", run.reason);
    return outcome;
}

// One thread arms at a time. Another armed replay in this context is waited for, as every launch does at the gate; one
// in another context hardly at all: its nodes may wait for this very launch (a collective over several GPUs).
static bool take_arm_lock(void)
{
    if (pthread_mutex_trylock(&arm_lock) == 0)
        return true;
    gv_gate_enter();
    gv_gate_leave();
    for (int i = 0; i < 20; i++) {
        if (pthread_mutex_trylock(&arm_lock) == 0)
            return true;
        struct timespec pause = {0, 100000};
        nanosleep(&pause, NULL);
    }
    return false;
}

bool gv_hold_begin(gv_hold *hold, CUstream stream, bool per_thread, const char **why)
{
    *hold = (gv_hold){.stream = stream       ? stream
                                : per_thread ? CU_STREAM_PER_THREAD
                                             : CU_STREAM_LEGACY,
                      .mode = CU_STREAM_CAPTURE_MODE_RELAXED};
    if (gv_cuda.cuStreamGetCtx(hold->stream, &hold->context) != CUDA_SUCCESS || !hold->context)
        gv_cuda.cuCtxGetCurrent(&hold->context);
    *why = "another launch is being recorded";
    if (!take_arm_lock())
        return false;
    *why = "a replay of another graph was left running, and its recording is not closed yet";
    bool free = !atomic_load(&is_left);
    if (free) {
        *why = "other threads' calls did not come to an end";
        atomic_store(&held, true);
        free = close_gate(hold->context);
    }
    if (!free) {
        open_gate();
        pthread_mutex_unlock(&arm_lock);
        return false;
    }
    // Captures begin behind the gate: from here on there is none in this context.
    *why = "a capture is under way";
    if (gv_captures_active()) {
        open_gate();
        pthread_mutex_unlock(&arm_lock);
        return false;
    }
    arming_thread = true;
    gv_cuda.cuThreadExchangeStreamCaptureMode(&hold->mode);
    gv_cuda.cuCtxPushCurrent(hold->context);
    *why = "earlier work in its context did not come to an end";
    if (gv_wait_for_stream(hold->stream, IDLE_SECONDS) == CUDA_SUCCESS &&
        context_becomes_idle(hold->context, IDLE_SECONDS))
        return true;
    gv_hold_end(hold);
    return false;
}

void gv_hold_open(gv_hold *hold)
{
    open_gate();
}

void gv_hold_end(gv_hold *hold)
{
    CUcontext popped = NULL;
    gv_cuda.cuCtxPopCurrent(&popped);
    gv_cuda.cuThreadExchangeStreamCaptureMode(&hold->mode);
    arming_thread = false;
    open_gate();
    pthread_mutex_unlock(&arm_lock);
}

void gv_hold_leave(gv_hold *hold, const gv_recording_source *source)
{
    left.source = source;
    left.context = hold->context;
    left.stream = hold->stream;
    left.opaque = NULL;
    atomic_store(&is_left, true);
    gv_hold_end(hold);
}

// A launch that the driver accepted, and that is no node of a capture, is the end of a step where nothing else is.
static void launched(CUstream stream, bool per_thread)
{
    gv_canary_launched(stream ? stream : per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY);
}

CUresult gv_launch_graph(gv_graph_launch launch, CUgraphExec handle, CUstream stream, bool per_thread)
{
    if (!gv_enter())
        return launch(handle, stream);
    gv_exec *exec = gv_exec_find(handle);
    CUresult result = CUDA_SUCCESS;
    const char *why = "", *uncompared = NULL;
    uint64_t sequence = 0;
    bool refused = false;
    bool chosen = exec && !gv_stream_is_capturing(stream, per_thread);
    bool armed = chosen && is_due(exec), checked = chosen && gv_check_is_due(exec);
    bool padded = chosen && gv_pad_is_due(exec), poisoned = chosen && gv_poison_is_due(exec);
    if (armed && take_arm_lock()) {
        enum attempt attempt = run_armed(exec, stream, per_thread, &result, &why);
        pthread_mutex_unlock(&arm_lock);
        if (attempt == ARMED) {
            exec->owed = false;
            launched(stream, per_thread);
            gv_leave();
            return result;
        }
        if (attempt == REFUSED) {
            exec->owed = false;
            refused = !exec->refused;
            exec->refused = true;
        } else {
            gv_verbose("graph #%llu is not armed at this launch: %s",
                       (unsigned long long)(exec->snapshot ? exec->snapshot->id : 0), why);
        }
    }
    if (chosen && !armed && !checked && exec->time_next) {
        exec->time_next = false;
        if (gv_times_launch(exec, stream, per_thread, &result)) {
            gv_leave();
            return result;
        }
    }
    // Of a launch that is due for both, the check is made up for at the next one.
    if (checked && gv_check_launch(launch, exec, stream, per_thread, &result, &sequence, &uncompared)) {
        if (refused && sequence)
            write_armed(sequence, exec, GV_ARMED_REFUSED, why, 0, 0);
        if (result == CUDA_SUCCESS)
            launched(stream, per_thread);
        gv_leave();
        return result;
    }
    if ((padded && gv_pad_launch(launch, exec, stream, per_thread, &result, &sequence)) ||
        (poisoned && gv_poison_launch(launch, exec, stream, per_thread, &result, &sequence))) {
        if (uncompared && sequence)
            gv_check_refused(exec, sequence, uncompared);
        if (refused && sequence)
            write_armed(sequence, exec, GV_ARMED_REFUSED, why, 0, 0);
        gv_leave();
        return result;
    }
    settle_left(5);
    gv_gate_enter();
    result = launch(handle, stream);
    gv_gate_leave();
    if (result == CUDA_SUCCESS && !(gv_captures_active() && gv_capture_note(stream, per_thread))) {
        sequence = gv_write_launch(exec, stream, per_thread, 0);
        if (uncompared)
            gv_check_refused(exec, sequence, uncompared);
        if (refused) {
            write_armed(sequence, exec, GV_ARMED_REFUSED, why, 0, 0);
            gv_verbose("graph #%llu is launched as it is: %s",
                       (unsigned long long)(exec->snapshot ? exec->snapshot->id : 0), why);
        }
        launched(stream, per_thread);
    }
    gv_leave();
    return result;
}
