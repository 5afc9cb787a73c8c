// The armed replay. Nodes run one after the other in topological order, which is one of the orders the graph allows:
// the program gets the result of a correct serial replay. Kernels are launched as plain kernels (the Sanitizer's graph
// callbacks slow down and hide races, see docs/recorder.md), everything else as a graph of one node.
#include "record/arm.h"

#include "access/node_access.h"
#include "base/memory.h"
#include "record/graph.h"
#include "record/hook.h"
#include "record/ids.h"
#include "record/recorder.h"
#include "record/snapshot.h"
#include "record/source.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// ---- The gate ------------------------------------------------------------------------------------------------
// While a context's modules are patched, no other thread may launch into it: a patched graph with programmatic edges
// faults. One thread arms at a time.

static pthread_mutex_t arm_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(CUcontext) armed_context;
static atomic_int launches_under_way;
static __thread bool arming_thread __attribute__((tls_model("initial-exec")));
static atomic_ullong arm_next_epoch;

void gv_gate_enter(void)
{
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

// Closes the gate for a context. False when other threads' launches did not end in time: one may be blocked inside
// the driver.
static bool close_gate(CUcontext context)
{
    atomic_store(&armed_context, context);
    uint64_t deadline = monotonic_ns() + 1000000000u;
    while (atomic_load(&launches_under_way) > 0) {
        if (monotonic_ns() > deadline) {
            atomic_store(&armed_context, NULL);
            return false;
        }
        sched_yield();
    }
    return true;
}

static void open_gate(void)
{
    atomic_store(&armed_context, NULL);
}

void gv_arm_after_fork(void)
{
    pthread_mutex_init(&arm_lock, NULL);
    atomic_store(&armed_context, NULL);
    atomic_store(&launches_under_way, 0);
    arming_thread = false;
    gv_graphs_forget();
}

// ---- Waiting -------------------------------------------------------------------------------------------------

// Waits until the stream has no work left, `seconds` at most (0: for ever). CUDA_ERROR_NOT_READY: time is up.
static CUresult wait_for(CUstream stream, double seconds)
{
    uint64_t start = monotonic_ns(), limit = (uint64_t)(seconds * 1e9);
    for (;;) {
        CUresult result = gv_cuda.cuStreamQuery(stream);
        if (result != CUDA_ERROR_NOT_READY)
            return result;
        uint64_t waited = monotonic_ns() - start;
        if (limit && waited > limit)
            return CUDA_ERROR_NOT_READY;
        if (waited > 2000000) {
            struct timespec pause = {0, 50000};
            nanosleep(&pause, NULL);
        }
    }
}

static bool is_idle(CUstream stream, void *user)
{
    *(CUstream *)user = stream;
    return gv_cuda.cuStreamQuery(stream) == CUDA_SUCCESS;
}

// Modules are patched only while nothing runs in the context. The context is never synchronised as a whole: work
// there may wait for something the program is about to do.
static bool context_becomes_idle(CUcontext context, double seconds)
{
    uint64_t deadline = monotonic_ns() + (uint64_t)(seconds * 1e9);
    for (;;) {
        CUstream busy = NULL;
        if (gv_cuda.cuStreamQuery(CU_STREAM_LEGACY) == CUDA_SUCCESS &&
            gv_cuda.cuStreamQuery(CU_STREAM_PER_THREAD) == CUDA_SUCCESS && gv_streams_of(context, is_idle, &busy))
            return true;
        if (monotonic_ns() > deadline)
            return false;
        struct timespec pause = {0, 20000};
        nanosleep(&pause, NULL);
    }
}

// ---- One replay ----------------------------------------------------------------------------------------------

typedef struct replay {
    const gv_recording_source *source;
    CUcontext context;
    CUstream stream;
    CUstream side; // where other branches go when a node waits for them; NULL until then
    uint64_t launch;
    uint64_t graph; // snapshot the program launched
    gv_node_ranges ranges;
    CUresult result;      // the first driver error, which the program gets
    uint64_t failed_node; // index + 1
    char reason[400];     // why the replay is not complete
} replay;

static void fail(replay *run, uint32_t node, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void fail(replay *run, uint32_t node, const char *format, ...)
{
    if (run->reason[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(run->reason, sizeof run->reason, format, arguments);
    va_end(arguments);
    run->failed_node = (uint64_t)node + 1;
}

static gv_bytes encode(const gv_node_ranges *ranges, enum gv_access_kind kind)
{
    size_t count = ranges->count[kind];
    uint8_t *bytes = count ? gv_malloc(gv_ranges_encoded_bound(count)) : NULL;
    if (!bytes)
        return (gv_bytes){0};
    return (gv_bytes){bytes, gv_ranges_encode(ranges->ranges[kind], count, bytes)};
}

static uint64_t string_id(const char *text)
{
    return gv_stacks_string(gv_state.stacks, text, strlen(text));
}

static void write_access(replay *run, const gv_snapshot *snapshot, uint32_t node, unsigned source,
                         enum gv_access_precision precision, const char *reason, uint64_t duration)
{
    gv_access_record record = {
        .launch = run->launch,
        .graph = snapshot->id,
        .node = node,
        .source = source,
        .precision = precision,
        .reads = encode(&run->ranges, GV_ACCESS_READ),
        .writes = encode(&run->ranges, GV_ACCESS_WRITE),
        .atomics = encode(&run->ranges, GV_ACCESS_ATOMIC),
        .reason = reason ? string_id(reason) : 0,
        .duration_ns = duration,
    };
    bool lost = false;
    for (int kind = 0; kind < GV_ACCESS_KINDS; kind++)
        lost |= run->ranges.count[kind] && !(kind == GV_ACCESS_READ    ? record.reads
                                             : kind == GV_ACCESS_WRITE ? record.writes
                                                                       : record.atomics)
                                                .length;
    // A set that cannot be kept whole is not kept at all, and the node is incomplete: it must not pass for a node that
    // touches nothing.
    if (lost || gv_write_access(gv_state.writer, &record) == GV_ERR_LIMIT) {
        record.precision = GV_PRECISION_INCOMPLETE;
        record.reason = string_id(lost ? "memory for its access set ran out"
                                       : "its access set is larger than a record of the trace may be");
        gv_bytes reads = record.reads, writes = record.writes, atomics = record.atomics;
        record.reads = record.writes = record.atomics = (gv_bytes){0};
        gv_write_access(gv_state.writer, &record);
        record.reads = reads;
        record.writes = writes;
        record.atomics = atomics;
    }
    gv_free((void *)record.reads.data);
    gv_free((void *)record.writes.data);
    gv_free((void *)record.atomics.data);
}

// Is any 8-byte word of the kernel's parameters the address of device memory?
static bool has_device_pointer(CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params)
{
    const unsigned char *block = NULL;
    size_t block_size = 0;
    for (size_t i = 0; params->extra && params->extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (params->extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            block = params->extra[i + 1];
        else if (params->extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            block_size = *(const size_t *)params->extra[i + 1];
    }
    for (size_t i = 0;; i++) {
        size_t offset = 0, size = 0;
        if (gv_cuda.cuFuncGetParamInfo(function, i, &offset, &size) != CUDA_SUCCESS)
            return false;
        const unsigned char *value = params->kernelParams          ? params->kernelParams[i]
                                     : offset + size <= block_size ? block + offset
                                                                   : NULL;
        for (size_t at = 0; value && at + 8 <= size; at += 8) {
            CUdeviceptr address, base = 0;
            size_t extent = 0;
            memcpy(&address, value + at, sizeof address);
            if (address > 0xffff && gv_cuda.cuMemGetAddressRange(&base, &extent, address) == CUDA_SUCCESS)
                return true;
        }
    }
}

// Why the source did not see all of a kernel's accesses, or NULL when it did.
static const char *blind_spot(replay *run, CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params, unsigned flags)
{
    if (flags & GV_FUNCTION_TENSOR_COPY)
        return "it moves data by TMA tensor copies, which this Sanitizer release does not report";
    if (flags & GV_FUNCTION_TEXTURE)
        return "it reads or writes through textures or surfaces, which the Sanitizer does not report";
    if (flags & GV_FUNCTION_DEVICE_LAUNCH)
        return "it may launch work from the device, whose accesses are not recorded";
    if (flags & GV_FUNCTION_MULTIMEM)
        return "it uses multimem instructions, whose accesses are not recorded";
    if (flags & GV_FUNCTION_UNSCANNED)
        return "its machine code could not be looked at for instructions the Sanitizer does not report";
    if (run->source->id == GV_SOURCE_SANITIZER &&
        !(run->ranges.count[GV_ACCESS_READ] || run->ranges.count[GV_ACCESS_WRITE] ||
          run->ranges.count[GV_ACCESS_ATOMIC]) &&
        has_device_pointer(function, params))
        return "no access of it was reported although it is given device memory";
    return NULL;
}

static CUresult launch_kernel(const gv_snapshot_node *node, const CUDA_KERNEL_NODE_PARAMS *params, CUfunction function,
                              CUstream stream)
{
    CUlaunchAttribute attributes[2];
    CUlaunchConfig config = {
        .gridDimX = params->gridDimX,
        .gridDimY = params->gridDimY,
        .gridDimZ = params->gridDimZ,
        .blockDimX = params->blockDimX,
        .blockDimY = params->blockDimY,
        .blockDimZ = params->blockDimZ,
        .sharedMemBytes = params->sharedMemBytes,
        .hStream = stream,
        .attrs = attributes,
    };
    // Only what changes what a kernel may do is repeated; priorities and cache hints do not, and programmatic
    // overlap is what a serial replay leaves out.
    CUlaunchAttributeValue value;
    memset(&value, 0, sizeof value);
    if (gv_cuda.cuGraphKernelNodeGetAttribute(node->node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value) == CUDA_SUCCESS &&
        value.cooperative) {
        attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attributes[config.numAttrs++].value = value;
    }
    memset(&value, 0, sizeof value);
    if (gv_cuda.cuGraphKernelNodeGetAttribute(node->node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value) ==
            CUDA_SUCCESS &&
        value.clusterDim.x) {
        attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes[config.numAttrs++].value = value;
    }
    return gv_cuda.cuLaunchKernelEx(&config, function, params->kernelParams, params->extra);
}

// Runs a copy, set, host or event node as a graph of its own.
static CUresult launch_single(const replay *run, const gv_snapshot_node *node, CUstream stream)
{
    CUgraph graph = NULL;
    CUgraphNode copy = NULL;
    CUgraphExec exec = NULL;
    CUevent event = NULL;
    CUresult result = gv_cuda.cuGraphCreate(&graph, 0);
    if (result != CUDA_SUCCESS)
        return result;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
        CUDA_MEMCPY3D params;
        result = gv_cuda.cuGraphMemcpyNodeGetParams(node->node, &params);
        if (result == CUDA_SUCCESS)
            result = gv_cuda.cuGraphAddMemcpyNode(&copy, graph, NULL, 0, &params, run->context);
        break;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS params;
        result = gv_cuda.cuGraphMemsetNodeGetParams(node->node, &params);
        if (result == CUDA_SUCCESS)
            result = gv_cuda.cuGraphAddMemsetNode(&copy, graph, NULL, 0, &params, run->context);
        break;
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        CUDA_HOST_NODE_PARAMS params;
        result = gv_cuda.cuGraphHostNodeGetParams(node->node, &params);
        if (result == CUDA_SUCCESS)
            result = gv_cuda.cuGraphAddHostNode(&copy, graph, NULL, 0, &params);
        break;
    }
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        result = gv_cuda.cuGraphEventRecordNodeGetEvent(node->node, &event);
        if (result == CUDA_SUCCESS)
            result = gv_cuda.cuGraphAddEventRecordNode(&copy, graph, NULL, 0, event);
        break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        result = gv_cuda.cuGraphEventWaitNodeGetEvent(node->node, &event);
        if (result == CUDA_SUCCESS)
            result = gv_cuda.cuGraphAddEventWaitNode(&copy, graph, NULL, 0, event);
        break;
    default: result = CUDA_ERROR_INVALID_VALUE; break;
    }
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuGraphInstantiateWithFlags(&exec, graph, 0);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuGraphLaunch(exec, stream);
    // Destroying an exec that is still running is deferred by the driver.
    if (exec)
        gv_cuda.cuGraphExecDestroy(exec);
    gv_cuda.cuGraphDestroy(graph);
    return result;
}

static const char *node_name(const gv_snapshot_node *node, char *text, size_t size)
{
    static const char *const kinds[] = {"kernel",      "memcpy", "memset",     "host function",
                                        "child graph", "empty",  "event wait", "event record"};
    const char *name = NULL;
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        CUDA_KERNEL_NODE_PARAMS params;
        memset(&params, 0, sizeof params);
        if (gv_cuda.cuGraphKernelNodeGetParams(node->node, &params) == CUDA_SUCCESS &&
            gv_cuda.cuFuncGetName(&name, params.func ? params.func : (CUfunction)params.kern) == CUDA_SUCCESS && name) {
            snprintf(text, size, "%s", name);
            return text;
        }
    }
    return (size_t)node->type < sizeof kinds / sizeof *kinds ? kinds[node->type] : "node";
}

static void run_unrecorded(replay *run, const gv_snapshot *snapshot, uint32_t index, CUstream stream);

// Marks `index` and all that follow it in the graph.
static void mark_followers(const gv_snapshot *snapshot, uint32_t index, bool *follows)
{
    follows[index] = true;
    // Topological order makes one pass over the edges of each node enough, but edges are listed in any order: repeat
    // until nothing changes. Only a stalled replay pays for this.
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < snapshot->edge_count; i++)
            if (follows[snapshot->edges[4 * i]] && !follows[snapshot->edges[4 * i + 1]])
                changed = follows[snapshot->edges[4 * i + 1]] = true;
    }
}

// The watchdog: a node made no progress. Names it, and launches the nodes that do not depend on it beside it, as the
// graph would have: it may wait for a flag that one of them sets.
static void unblock(replay *run, const gv_snapshot *snapshot, uint32_t index, bool *done)
{
    char name[256];
    const char *what = node_name(&snapshot->nodes[index], name, sizeof name);
    fail(run, index,
         "node #%u (%.160s) made no progress for %.0f s while it ran alone: it seems to wait for another branch of "
         "the graph",
         index, what, gv_state.options.stall_seconds);
    // The armed record says the same at the end; this is for the one who watches, or kills, a process that hangs.
    gv_say("graph #%llu: %s; the branches beside it are launched now, unrecorded", (unsigned long long)snapshot->id,
           run->reason);
    gv_note(GV_NOTE_INFO, snapshot->id, (uint64_t)index + 1, "%s", run->reason);
    gv_flush();
    bool *follows = gv_calloc(snapshot->node_count, sizeof *follows);
    if (!follows || (!run->side && gv_cuda.cuStreamCreate(&run->side, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)) {
        gv_free(follows);
        return;
    }
    mark_followers(snapshot, index, follows);
    for (size_t i = 0; i < snapshot->node_count; i++) {
        uint32_t other = snapshot->order[i];
        if (!done[other] && !follows[other]) {
            run_unrecorded(run, snapshot, other, run->side);
            done[other] = true;
        }
    }
    gv_free(follows);
}

static void note_error(replay *run, const gv_snapshot *snapshot, uint32_t index, CUresult result)
{
    char name[256];
    if (run->result == CUDA_SUCCESS)
        run->result = result;
    fail(run, index, "node #%u (%.160s) failed while it was recorded: %s", index,
         node_name(&snapshot->nodes[index], name, sizeof name), gv_driver_error(result));
}

// Waits for the node that was launched last; on a stall, unblocks and goes on waiting.
static bool await(replay *run, const gv_snapshot *snapshot, uint32_t index, bool *done)
{
    CUresult result = wait_for(run->stream, gv_state.options.stall_seconds);
    if (result == CUDA_ERROR_NOT_READY) {
        unblock(run, snapshot, index, done);
        result = wait_for(run->stream, 0);
        if (result == CUDA_SUCCESS && run->side)
            result = wait_for(run->side, 0);
    }
    if (result != CUDA_SUCCESS)
        note_error(run, snapshot, index, result);
    return result == CUDA_SUCCESS;
}

static void run_kernel(replay *run, const gv_snapshot *snapshot, uint32_t index, bool *done)
{
    const gv_snapshot_node *node = &snapshot->nodes[index];
    gv_error error = {0};
    CUDA_KERNEL_NODE_PARAMS params;
    memset(&params, 0, sizeof params);
    uint64_t start = monotonic_ns();
    CUresult result = gv_cuda.cuGraphKernelNodeGetParams(node->node, &params);
    CUfunction function = params.func ? params.func : (CUfunction)params.kern;
    if (result != CUDA_SUCCESS) {
        note_error(run, snapshot, index, result);
        return;
    }
    gv_node_ranges_clear(&run->ranges);
    gv_status status = run->source->before(&error);
    result = launch_kernel(node, &params, function, run->stream);
    if (result != CUDA_SUCCESS) {
        note_error(run, snapshot, index, result);
        if (status == GV_OK)
            run->source->after(&run->ranges, &error);
        return;
    }
    if (!await(run, snapshot, index, done))
        return;
    if (status == GV_OK)
        status = run->source->after(&run->ranges, &error);
    const char *name = NULL;
    gv_cuda.cuFuncGetName(&name, function);
    const char *reason =
        status == GV_OK ? blind_spot(run, function, &params, gv_source_function_flags(function, name)) : error.text;
    write_access(run, snapshot, index, run->source->id, reason ? GV_PRECISION_INCOMPLETE : GV_PRECISION_EXACT, reason,
                 monotonic_ns() - start);
}

// Puts the bytes that a copy's or set's parameters name into run->ranges. NULL, or why they are not all of them.
static const char *parameter_ranges(replay *run, const gv_snapshot_node *node)
{
    uint64_t detail[9];
    gv_range_set reads = {0}, writes = {0};
    gv_error error = {0};
    const char *reason = NULL;
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS set;
    gv_status status = GV_OK;
    memset(&copy, 0, sizeof copy);
    memset(&set, 0, sizeof set);
    if (node->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        if (gv_cuda.cuGraphMemcpyNodeGetParams(node->node, &copy) != CUDA_SUCCESS)
            return "the driver does not tell its parameters";
        gv_numbers numbers = {detail, gv_memcpy_detail(&copy, detail)};
        status = gv_memcpy_access(numbers, &reads, &writes, &error);
        if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY || copy.dstMemoryType == CU_MEMORYTYPE_ARRAY)
            reason = "one side of the copy is a CUDA array, whose bytes have no address";
    } else {
        if (gv_cuda.cuGraphMemsetNodeGetParams(node->node, &set) != CUDA_SUCCESS)
            return "the driver does not tell its parameters";
        gv_numbers numbers = {detail, gv_memset_detail(&set, detail)};
        status = gv_memset_access(numbers, &writes, &error);
    }
    if (status != GV_OK)
        reason = "its parameters name more ranges than can be kept";
    gv_range_set_settle(&reads);
    gv_range_set_settle(&writes);
    for (size_t i = 0; i < reads.count && !reason; i++)
        if (!gv_node_ranges_append(&run->ranges, GV_ACCESS_READ, reads.ranges[i].start, reads.ranges[i].end))
            reason = "memory for its access set ran out";
    for (size_t i = 0; i < writes.count && !reason; i++)
        if (!gv_node_ranges_append(&run->ranges, GV_ACCESS_WRITE, writes.ranges[i].start, writes.ranges[i].end))
            reason = "memory for its access set ran out";
    gv_range_set_free(&reads);
    gv_range_set_free(&writes);
    return reason;
}

static void run_single(replay *run, const gv_snapshot *snapshot, uint32_t index, bool *done)
{
    const gv_snapshot_node *node = &snapshot->nodes[index];
    uint64_t start = monotonic_ns();
    CUresult result = launch_single(run, node, run->stream);
    if (result != CUDA_SUCCESS) {
        note_error(run, snapshot, index, result);
        return;
    }
    if (!await(run, snapshot, index, done))
        return;
    gv_node_ranges_clear(&run->ranges);
    uint64_t duration = monotonic_ns() - start;
    if (node->type == CU_GRAPH_NODE_TYPE_HOST) {
        write_access(run, snapshot, index, GV_SOURCE_NONE, GV_PRECISION_INCOMPLETE,
                     "what a host function touches is not recorded", duration);
    } else if (node->type == CU_GRAPH_NODE_TYPE_MEMCPY || node->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        const char *reason = parameter_ranges(run, node);
        write_access(run, snapshot, index, GV_SOURCE_PARAMETERS, reason ? GV_PRECISION_INCOMPLETE : GV_PRECISION_EXACT,
                     reason, duration);
    }
}

static void run_snapshot(replay *run, const gv_snapshot *snapshot)
{
    bool *done = gv_calloc(snapshot->node_count, sizeof *done);
    if (!done) {
        fail(run, 0, "memory ran out");
        run->result = CUDA_ERROR_OUT_OF_MEMORY;
        return;
    }
    for (size_t i = 0; i < snapshot->node_count && run->result == CUDA_SUCCESS; i++) {
        uint32_t index = snapshot->order[i];
        const gv_snapshot_node *node = &snapshot->nodes[index];
        if (done[index] || node->disabled)
            continue;
        done[index] = true;
        if (node->type == CU_GRAPH_NODE_TYPE_KERNEL)
            run_kernel(run, snapshot, index, done);
        else if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            run_snapshot(run, node->child);
        else if (node->type != CU_GRAPH_NODE_TYPE_EMPTY)
            run_single(run, snapshot, index, done);
    }
    gv_free(done);
}

static void run_unrecorded(replay *run, const gv_snapshot *snapshot, uint32_t index, CUstream stream)
{
    const gv_snapshot_node *node = &snapshot->nodes[index];
    CUresult result = CUDA_SUCCESS;
    if (node->disabled || node->type == CU_GRAPH_NODE_TYPE_EMPTY)
        return;
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        for (size_t i = 0; i < node->child->node_count; i++)
            run_unrecorded(run, node->child, node->child->order[i], stream);
        return;
    }
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        CUDA_KERNEL_NODE_PARAMS params;
        memset(&params, 0, sizeof params);
        result = gv_cuda.cuGraphKernelNodeGetParams(node->node, &params);
        if (result == CUDA_SUCCESS)
            result = launch_kernel(node, &params, params.func ? params.func : (CUfunction)params.kern, stream);
    } else {
        result = launch_single(run, node, stream);
    }
    if (result != CUDA_SUCCESS)
        note_error(run, snapshot, index, result);
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
    return exec->owed && gv_graph_matches(exec, options->graph);
}

static bool in_context(const gv_snapshot *snapshot, CUcontext context)
{
    for (size_t i = 0; i < snapshot->node_count; i++) {
        const gv_snapshot_node *node = &snapshot->nodes[i];
        CUDA_KERNEL_NODE_PARAMS params;
        memset(&params, 0, sizeof params);
        if (node->child && !in_context(node->child, context))
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

static uint64_t write_launch(const gv_exec *exec, CUstream stream, bool per_thread, uint64_t stack)
{
    gv_operation_record operation = {.kind = GV_OP_GRAPH_LAUNCH,
                                     .stream = gv_stream_id(stream, per_thread),
                                     .object = exec ? exec->id : 0,
                                     .stack = stack};
    return gv_operation(&operation);
}

enum attempt { ARMED, REFUSED, NOT_NOW };

// Runs the launch armed. REFUSED: this graph cannot be; NOT_NOW: try at its next launch. Both leave everything as it
// was, with the reason in `why`.
static enum attempt run_armed(gv_exec *exec, CUstream stream, bool per_thread, CUresult *result, const char **why)
{
    replay run = {.stream = stream ? stream : per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY};
    gv_error error = {0};
    if (exec->unknown[0] || !exec->snapshot || exec->snapshot->refusal[0]) {
        *why = exec->unknown[0] ? exec->unknown : exec->snapshot ? exec->snapshot->refusal : "it was not read";
        return REFUSED;
    }
    *why = "recording was begun with --arm none, and its nodes were not kept";
    if (!exec->snapshot->owned)
        return REFUSED;
    run.source = gv_source(why);
    if (!run.source)
        return REFUSED;
    if (gv_cuda.cuStreamGetCtx(run.stream, &run.context) != CUDA_SUCCESS || !run.context)
        gv_cuda.cuCtxGetCurrent(&run.context);
    if (!in_context(exec->snapshot, run.context)) {
        *why = "its nodes belong to several contexts";
        return REFUSED;
    }
    *why = "a capture is under way";
    if (gv_captures_active())
        return NOT_NOW;
    *why = "other threads' launches did not come to an end";
    if (!close_gate(run.context))
        return NOT_NOW;
    arming_thread = true;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUcontext popped = NULL;
    gv_cuda.cuThreadExchangeStreamCaptureMode(&mode);
    gv_cuda.cuCtxPushCurrent(run.context);
    enum attempt outcome = NOT_NOW;
    *why = "earlier work in its context did not come to an end";
    uint64_t start = monotonic_ns(), ready = 0, done = 0, end = 0;
    if (wait_for(run.stream, 5) == CUDA_SUCCESS && context_becomes_idle(run.context, 5)) {
        if (run.source->open(run.context, run.stream, &error) == GV_OK) {
            ready = monotonic_ns();
            gv_exec_refresh(exec);
            run.graph = exec->snapshot->id;
            run.launch = write_launch(exec, stream, per_thread, gv_stack());
            run_snapshot(&run, exec->snapshot);
            if (run.side) {
                gv_cuda.cuStreamSynchronize(run.side);
                gv_cuda.cuStreamDestroy(run.side);
            }
            done = monotonic_ns();
            run.source->close();
            end = monotonic_ns();
            write_armed(run.launch, exec, run.reason[0] ? GV_ARMED_FAILED : GV_ARMED_COMPLETE, run.reason, end - start,
                        run.failed_node);
            *result = run.result;
            outcome = ARMED;
        } else {
            static __thread char text[sizeof error.text];
            memcpy(text, error.text, sizeof text);
            *why = text;
            outcome = REFUSED;
        }
    }
    gv_node_ranges_free(&run.ranges);
    gv_cuda.cuCtxPopCurrent(&popped);
    gv_cuda.cuThreadExchangeStreamCaptureMode(&mode);
    arming_thread = false;
    open_gate();
    if (outcome == ARMED)
        gv_verbose("graph #%llu: armed replay of %zu nodes took %.1f ms (%.1f to make ready, %.1f to undo)%s%s",
                   (unsigned long long)run.graph, exec->snapshot->node_count, (double)(end - start) / 1e6,
                   (double)(ready - start) / 1e6, (double)(end - done) / 1e6, run.reason[0] ? ": " : "", run.reason);
    return outcome;
}

CUresult gv_launch_graph(gv_graph_launch launch, CUgraphExec handle, CUstream stream, bool per_thread)
{
    if (!gv_enter())
        return launch(handle, stream);
    gv_exec *exec = gv_exec_find(handle);
    CUresult result = CUDA_SUCCESS;
    const char *why = "";
    bool refused = false;
    if (exec && !gv_stream_is_capturing(stream, per_thread) && is_due(exec) && pthread_mutex_trylock(&arm_lock) == 0) {
        enum attempt attempt = run_armed(exec, stream, per_thread, &result, &why);
        pthread_mutex_unlock(&arm_lock);
        if (attempt == ARMED) {
            exec->owed = false;
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
    gv_gate_enter();
    result = launch(handle, stream);
    gv_gate_leave();
    if (result == CUDA_SUCCESS && !(gv_captures_active() && gv_capture_note(stream, per_thread))) {
        uint64_t sequence = write_launch(exec, stream, per_thread, 0);
        if (refused) {
            write_armed(sequence, exec, GV_ARMED_REFUSED, why, 0, 0);
            gv_verbose("graph #%llu is launched as it is: %s",
                       (unsigned long long)(exec->snapshot ? exec->snapshot->id : 0), why);
        }
    }
    gv_leave();
    return result;
}
