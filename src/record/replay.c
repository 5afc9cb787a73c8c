// The serial replay itself. Nodes run one after the other in topological order, which is one of the orders the graph
// allows. Kernels are launched as plain kernels (the Sanitizer's graph callbacks slow down and hide races, see
// docs/recorder.md), everything else as a graph of one node.
#include "record/replay.h"

#include "access/node_access.h"
#include "base/memory.h"
#include "record/condition.h"
#include "record/conditional.h"
#include "record/graph_copy.h"
#include "record/ids.h"
#include "record/known.h"
#include "record/opaque.h"
#include "record/parameters.h"
#include "record/recorder.h"
#include "record/serial_order.h"
#include "record/snapshot.h"
#include "record/times.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

CUresult gv_wait_for_stream(CUstream stream, double seconds)
{
    uint64_t start = gv_monotonic_ns(), limit = (uint64_t)(seconds * 1e9);
    for (;;) {
        CUresult result = gv_cuda.cuStreamQuery(stream);
        if (result != CUDA_ERROR_NOT_READY)
            return result;
        uint64_t waited = gv_monotonic_ns() - start;
        if (waited > limit)
            return CUDA_ERROR_NOT_READY;
        if (waited > 2000000) {
            struct timespec pause = {0, 50000};
            nanosleep(&pause, NULL);
        }
    }
}

// ---- Writing down ----

void gv_replay_fail(gv_replay *run, uint32_t node, const char *format, ...)
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

static void write_access(gv_replay *run, const gv_snapshot *snapshot, uint32_t node, unsigned source,
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
        .execution = run->execution,
    };
    if (run->wait_asked) {
        gv_wait_encode(&run->wait, &record);
        record.wait_reason = record.wait == GV_GRID_WAIT_UNKNOWN ? string_id(run->wait.reason) : 0;
    }
    if (run->known && precision == GV_PRECISION_EXACT)
        gv_known_add(run->known, snapshot, node, &run->ranges);
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
        gv_wait_encoded_free(&record);
        record.wait = GV_GRID_WAIT_UNKNOWN;
        gv_write_access(gv_state.writer, &record);
        record.reads = reads;
        record.writes = writes;
        record.atomics = atomics;
    }
    gv_free((void *)record.reads.data);
    gv_free((void *)record.writes.data);
    gv_free((void *)record.atomics.data);
    gv_wait_encoded_free(&record);
    run->wait_asked = false;
}

// A further record of a node.
static void write_more(gv_replay *run, const gv_snapshot *snapshot, uint32_t node, const gv_node_ranges *ranges,
                       enum gv_access_source source, enum gv_access_precision precision, const char *reason)
{
    gv_node_ranges first = run->ranges;
    run->ranges = *ranges;
    write_access(run, snapshot, node, source, precision, reason, 0);
    run->ranges = first;
}

// A record of its own for what the source knows only the extent of.
static void write_extents(gv_replay *run, const gv_snapshot *snapshot, uint32_t node)
{
    bool any = false;
    for (int kind = 0; kind < GV_ACCESS_KINDS; kind++)
        any |= run->extents.count[kind] != 0;
    if (any)
        write_more(run, snapshot, node, &run->extents, GV_SOURCE_TENSOR_MAP, GV_PRECISION_EXTENT, NULL);
}

// Why the source did not see all of a kernel's accesses, or NULL when it did.
static const char *blind_spot(gv_replay *run, CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params,
                              unsigned flags)
{
    if (flags & GV_FUNCTION_UNSEEN)
        return "none of its accesses is reported";
    if (flags & GV_FUNCTION_TENSOR_LOAD)
        return "it moves data by TMA tensor copies, which this Sanitizer release does not report";
    if (flags & GV_FUNCTION_TENSOR_COPY)
        return "it writes by TMA tensor copies, which no Sanitizer release reports";
    if (flags & (GV_FUNCTION_TEXTURE | GV_FUNCTION_SURFACE_STORE))
        return "it reads or writes through textures or surfaces, which the Sanitizer does not report";
    if (flags & GV_FUNCTION_DEVICE_LAUNCH)
        return "it may launch work from the device, whose accesses are not recorded";
    if (flags & GV_FUNCTION_MULTIMEM)
        return "it uses multimem instructions, whose accesses are not recorded";
    // Constants that no node of the graph writes cannot race within it.
    if (flags & GV_FUNCTION_CONSTANT && run->writes_variables)
        return "it may read __constant__ variables, which the Sanitizer does not report, and a node of the graph "
               "writes "
               "to a module's variable";
    if (flags & GV_FUNCTION_UNSCANNED)
        return "its machine code could not be looked at for instructions the Sanitizer does not report";
    if (run->source->id == GV_SOURCE_SANITIZER &&
        !(run->ranges.count[GV_ACCESS_READ] || run->ranges.count[GV_ACCESS_WRITE] ||
          run->ranges.count[GV_ACCESS_ATOMIC]) &&
        gv_parameters_have_pointer(function, params))
        return "no access of it was reported although it is given device memory";
    return NULL;
}

// `held`: a kernel that waits for the host is in front of it, beside which it is to begin.
static CUresult launch_kernel(const gv_snapshot_node *node, const CUDA_KERNEL_NODE_PARAMS *params, CUfunction function,
                              CUstream stream, bool held)
{
    CUlaunchAttribute attributes[3];
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
    if (held) {
        memset(&value, 0, sizeof value);
        value.programmaticStreamSerializationAllowed = 1;
        attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[config.numAttrs++].value = value;
    }
    return gv_cuda.cuLaunchKernelEx(&config, function, params->kernelParams, params->extra);
}

// Launches a kernel that is recorded and, behind programmatic edges, observed. One that cannot be launched beside the
// kernel that is to hold it is launched behind it.
static CUresult launch_recorded(gv_replay *run, const gv_snapshot_node *node, const CUDA_KERNEL_NODE_PARAMS *params,
                                CUfunction function, gv_status *status, gv_error *error)
{
    bool held = false;
    if (run->wait_asked && !run->conditions)
        run->source->expect_wait(function, &held);
    *status = run->source->before(error);
    // A kernel that sets a condition must run in a graph that has it, and any kernel of such a graph may.
    CUresult result = run->conditions ? gv_conditions_launch(run->conditions, node->node, run->stream)
                                      : launch_kernel(node, params, function, run->stream, held);
    if (held)
        run->source->release(result == CUDA_SUCCESS);
    if (held && result != CUDA_SUCCESS)
        result = launch_kernel(node, params, function, run->stream, false);
    return result;
}

// What is known of the wait of a kernel that ran; `reason`: why not all its accesses were seen, or NULL; `unseen` (enum
// gv_function_flag): which ones.
static void note_wait(gv_replay *run, bool observed, const char *reason, unsigned unseen)
{
    if (!run->wait_asked)
        return;
    if (!observed) {
        gv_wait_unknown(&run->wait, reason);
        return;
    }
    if (run->conditions) {
        gv_wait_unknown(&run->wait, "it was recorded in a graph of its own, because its graph has conditional nodes");
        return;
    }
    gv_node_ranges_clear(&run->wait.early);
    run->source->wait_seen(&run->wait);
    if (unseen & GV_FUNCTION_CONSTANT && run->writes_variables)
        run->wait.unseen_come_after = false;
    if (reason)
        gv_wait_blind(&run->wait);
}

// Runs a copy, set, host or event node as a graph of its own.
static CUresult launch_single(const gv_replay *run, const gv_snapshot_node *node, CUstream stream)
{
    CUgraph graph = NULL;
    CUgraphNode copy = NULL;
    CUgraphExec exec = NULL;
    CUresult result = gv_cuda.cuGraphCreate(&graph, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = gv_copy_node(graph, node->node, node->type, NULL, run->context, NULL, 0, &copy);
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

static void run_unrecorded(gv_replay *run, const gv_snapshot *snapshot, uint32_t index, CUstream stream);

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

// Launches the nodes that do not depend on `index` on a stream of their own, as the graph would have: the node may
// wait for a flag that one of them sets. What comes on the replay's stream from here on waits for them too.
static void leave_branch(gv_replay *run, const gv_snapshot *snapshot, uint32_t index, bool *done)
{
    bool *follows = done ? gv_calloc(snapshot->node_count, sizeof *follows) : NULL;
    if (!follows || (!run->side && gv_cuda.cuStreamCreate(&run->side, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)) {
        gv_free(follows);
        return;
    }
    mark_followers(snapshot, index, follows);
    if (run->conditions)
        gv_conditions_split(run->conditions);
    for (size_t i = 0; i < snapshot->node_count; i++) {
        uint32_t other = snapshot->order[i];
        if (!done[other] && !follows[other]) {
            run_unrecorded(run, snapshot, other, run->side);
            done[other] = true;
        }
    }
    gv_free(follows);
    CUevent event = NULL;
    if (gv_cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
        if (gv_cuda.cuEventRecord(event, run->side) == CUDA_SUCCESS)
            gv_cuda.cuStreamWaitEvent(run->stream, event, 0);
        gv_cuda.cuEventDestroy(event);
    }
}

// The watchdog's word. The armed record says the same at the end; this is for the one who watches, or kills, a process
// that hangs.
static void name_stall(gv_replay *run, const gv_snapshot *snapshot, uint32_t index)
{
    char name[256];
    gv_replay_fail(
        run, index,
        "node #%u (%.160s) made no progress for %g s while it ran alone: it seems to wait for another branch of the "
        "graph, or for something outside of it",
        index, node_name(&snapshot->nodes[index], name, sizeof name), gv_state.options.stall_seconds);
    gv_say("graph #%llu: %s; the branches beside it are launched now, unrecorded", (unsigned long long)snapshot->id,
           run->reason);
    gv_note(GV_NOTE_INFO, snapshot->id, (uint64_t)index + 1, "%s", run->reason);
    gv_flush();
}

void gv_replay_error(gv_replay *run, const gv_snapshot *snapshot, uint32_t index, CUresult result)
{
    char name[256];
    if (run->result == CUDA_SUCCESS)
        run->result = result;
    gv_replay_fail(run, index, "node #%u (%.160s) failed while it was recorded: %s", index,
                   node_name(&snapshot->nodes[index], name, sizeof name), gv_driver_error(result));
}

// What became of a node that was launched: it ran alone to its end; it needed others beside it (its set may hold what
// they did); it is still not done; or it failed.
enum outcome { RAN_ALONE, NEEDED_OTHERS, STILL_WAITS, FAILED };

static enum outcome await(gv_replay *run, const gv_snapshot *snapshot, uint32_t index, bool *done)
{
    CUresult result = gv_wait_for_stream(run->stream, gv_state.options.stall_seconds);
    bool stalled = result == CUDA_ERROR_NOT_READY;
    if (stalled) {
        name_stall(run, snapshot, index);
        leave_branch(run, snapshot, index, done);
        double more = gv_state.options.stall_seconds < 1 ? gv_state.options.stall_seconds : 1;
        result = gv_wait_for_stream(run->stream, more);
    }
    if (result == CUDA_ERROR_NOT_READY) {
        // It waits for something that the program does after this launch, or that an enclosing graph does beside it.
        run->unrecorded = run->left_running = true;
        return STILL_WAITS;
    }
    if (result != CUDA_SUCCESS) {
        gv_replay_error(run, snapshot, index, result);
        return FAILED;
    }
    if (run->conditions)
        gv_conditions_ran(run->conditions);
    return stalled ? NEEDED_OTHERS : RAN_ALONE;
}

// A launch that was refused may be refused because of the recording: patched kernels need more registers and stack, the
// access table takes memory. The source is closed, and this node and the rest are launched as they are.
static void give_up_recording(gv_replay *run, const gv_snapshot *snapshot, uint32_t index, CUresult why)
{
    char name[256];
    gv_replay_fail(run, index, "node #%u (%.160s) could not be launched while recording: %s", index,
                   node_name(&snapshot->nodes[index], name, sizeof name), gv_driver_error(why));
    run->source->close();
    gv_opaque_close(run->opaque);
    run->opaque = NULL;
    run->source_closed = run->unrecorded = true;
    run_unrecorded(run, snapshot, index, run->stream);
}

// ---- Kernels that are not seen in full -----------------------------------------------------------------------

// A kernel that ran and may have to run again.
typedef struct kernel_at_hand {
    gv_replay *run;
    const gv_snapshot_node *node;
    const CUDA_KERNEL_NODE_PARAMS *params;
    CUfunction function;
    const char *name;
} kernel_at_hand;

static gv_status take_ranges(gv_replay *run, const char *name, unsigned flags, gv_node_ranges *seen,
                             gv_node_ranges *extents, gv_error *error)
{
    gv_status status = run->source->after(seen, extents, error);
    if (!status && gv_state.soft && flags && run->opaque && !gv_opaque_hide(run->opaque, name, seen))
        status = gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    return status;
}

static CUresult run_kernel_again(void *user, gv_node_ranges *seen, gv_node_ranges *extents, bool *recorded)
{
    const kernel_at_hand *kernel = user;
    gv_replay *run = kernel->run;
    gv_error error = {0};
    *recorded = run->source->before(&error) == GV_OK;
    CUresult result = launch_kernel(kernel->node, kernel->params, kernel->function, run->stream, false);
    // It ran to its end before, and does the same now.
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuStreamSynchronize(run->stream);
    unsigned flags = gv_source_function_flags(kernel->function, kernel->name);
    if (*recorded)
        *recorded = take_ranges(run, kernel->name, flags, seen, extents, &error) == GV_OK;
    return result;
}

// Finds out what a kernel did that was not reported. NULL: everything it touches is known, in part by extents; else why
// it is not. `reason` is why it was not reported.
static const char *resolve(kernel_at_hand *kernel, bool anything, const char *reason)
{
    gv_replay *run = kernel->run;
    if (!run->opaque)
        return reason;
    gv_opaque_case at = {
        .function = kernel->function,
        .params = kernel->params,
        .flags = gv_source_blind_flags(kernel->function, kernel->name),
        .anything = anything,
        .reason = reason,
        .seen = &run->ranges,
        .extents = &run->extents,
        // A kernel that decides for a conditional node does that once.
        .again = run->conditions ? NULL : run_kernel_again,
        .user = kernel,
    };
    at.constants = at.flags & GV_FUNCTION_CONSTANT && run->writes_variables;
    const char *why = gv_opaque_after(run->opaque, &at);
    if (at.result != CUDA_SUCCESS)
        run->result = at.result;
    return why;
}

// What was found out, as records of their own.
static void write_sets(gv_replay *run, const gv_snapshot *snapshot, uint32_t node, const char *reason)
{
    size_t count = 0;
    const gv_opaque_set *sets = gv_opaque_sets(run->opaque, &count);
    for (size_t i = 0; i < count; i++) {
        write_more(run, snapshot, node, &sets[i].ranges, sets[i].source, sets[i].precision,
                   sets[i].precision == GV_PRECISION_EXACT ? NULL : reason);
        gv_opaque_written(run->opaque, &sets[i].ranges);
    }
}

// ---- Nodes ---------------------------------------------------------------------------------------------------

static void run_kernel(gv_replay *run, const gv_snapshot *snapshot, uint32_t index, bool *done)
{
    const gv_snapshot_node *node = &snapshot->nodes[index];
    gv_error error = {0};
    CUDA_KERNEL_NODE_PARAMS params;
    memset(&params, 0, sizeof params);
    uint64_t start = gv_monotonic_ns();
    CUresult result = gv_cuda.cuGraphKernelNodeGetParams(node->node, &params);
    CUfunction function = params.func ? params.func : (CUfunction)params.kern;
    if (result != CUDA_SUCCESS) {
        gv_replay_error(run, snapshot, index, result);
        return;
    }
    gv_node_ranges_clear(&run->ranges);
    gv_node_ranges_clear(&run->extents);
    run->wait_asked = gv_is_programmatic(&run->programmatic, snapshot, index);
    kernel_at_hand kernel = {.run = run, .node = node, .params = &params, .function = function};
    gv_cuda.cuFuncGetName(&kernel.name, function);
    unsigned flags = gv_source_function_flags(function, kernel.name);
    if (run->opaque)
        gv_opaque_before(run->opaque, function, &params, flags);
    gv_status status;
    result = launch_recorded(run, node, &params, function, &status, &error);
    if (result != CUDA_SUCCESS) {
        run->wait_asked = false;
        give_up_recording(run, snapshot, index, result);
        return;
    }
    enum outcome outcome = await(run, snapshot, index, done);
    if (outcome == FAILED) {
        run->wait_asked = false;
        return;
    }
    if (status == GV_OK && outcome != STILL_WAITS)
        status = take_ranges(run, kernel.name, flags, &run->ranges, &run->extents, &error);
    const char *blind = NULL, *reason = NULL;
    unsigned unseen = 0;
    bool observed = outcome == RAN_ALONE && status == GV_OK;
    if (outcome != RAN_ALONE) {
        gv_node_ranges_clear(&run->ranges);
        gv_node_ranges_clear(&run->extents);
        blind = reason = "it did not run alone: it waited for work beside it";
    } else {
        unseen = gv_source_blind_flags(function, kernel.name);
        blind = status == GV_OK ? blind_spot(run, function, &params, unseen) : error.text;
        bool named = unseen & ~(unsigned)(GV_FUNCTION_ATOMIC | GV_FUNCTION_DEVICE_HEAP);
        reason = blind ? resolve(&kernel, status != GV_OK || !named, blind) : NULL;
    }
    note_wait(run, observed, blind, unseen);
    write_access(run, snapshot, index, run->source->id, reason ? GV_PRECISION_INCOMPLETE : GV_PRECISION_EXACT, reason,
                 gv_monotonic_ns() - start);
    write_extents(run, snapshot, index);
    gv_opaque_written(run->opaque, reason ? NULL : &run->ranges);
    if (blind && !reason)
        write_sets(run, snapshot, index, blind);
}

// Puts the bytes that a copy's or set's parameters name into run->ranges. NULL, or why they are not all of them.
static const char *parameter_ranges(gv_replay *run, const gv_snapshot_node *node)
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

static void run_single(gv_replay *run, const gv_snapshot *snapshot, uint32_t index, bool *done)
{
    const gv_snapshot_node *node = &snapshot->nodes[index];
    uint64_t start = gv_monotonic_ns();
    CUresult result = launch_single(run, node, run->stream);
    if (result != CUDA_SUCCESS) {
        give_up_recording(run, snapshot, index, result);
        return;
    }
    // Its bytes follow from its parameters, whatever ran beside it.
    if (await(run, snapshot, index, done) == FAILED)
        return;
    gv_node_ranges_clear(&run->ranges);
    uint64_t duration = gv_monotonic_ns() - start;
    if (node->type == CU_GRAPH_NODE_TYPE_HOST) {
        write_access(run, snapshot, index, GV_SOURCE_NONE, GV_PRECISION_INCOMPLETE,
                     "what a host function touches is not recorded", duration);
    } else if (node->type == CU_GRAPH_NODE_TYPE_MEMCPY || node->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        const char *reason = parameter_ranges(run, node);
        gv_opaque_written(run->opaque, reason ? NULL : &run->ranges);
        write_access(run, snapshot, index, GV_SOURCE_PARAMETERS, reason ? GV_PRECISION_INCOMPLETE : GV_PRECISION_EXACT,
                     reason, duration);
    }
}

static void run_timed(gv_replay *run, const gv_snapshot *snapshot, uint32_t index, bool *done)
{
    gv_times_before(run->times);
    run_unrecorded(run, snapshot, index, run->stream);
    gv_times_behind(run->times);
    if (run->result == CUDA_SUCCESS && await(run, snapshot, index, done) == RAN_ALONE)
        gv_times_write(run->times, run->launch, snapshot->id, index);
}

// The armed record names a node of the launched graph: where one inside of it failed, the node that runs it.
static void failed_inside(gv_replay *run, uint32_t index, bool was_whole)
{
    if (was_whole && run->reason[0])
        run->failed_node = (uint64_t)index + 1;
}

static void run_snapshot(gv_replay *run, const gv_snapshot *snapshot)
{
    bool *done = gv_calloc(snapshot->node_count, sizeof *done);
    if (!done && !run->unrecorded) {
        gv_replay_fail(run, 0, "memory ran out");
        run->unrecorded = true;
    }
    for (size_t i = 0; i < snapshot->node_count && run->result == CUDA_SUCCESS; i++) {
        uint32_t index = snapshot->order[i];
        const gv_snapshot_node *node = &snapshot->nodes[index];
        if ((done && done[index]) || node->disabled)
            continue;
        if (done)
            done[index] = true;
        bool whole = !run->reason[0];
        if (run->unrecorded) {
            run_unrecorded(run, snapshot, index, run->stream);
        } else if (run->times && node->type != CU_GRAPH_NODE_TYPE_GRAPH && node->type != CU_GRAPH_NODE_TYPE_EMPTY) {
            run_timed(run, snapshot, index, done);
        } else if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
            run_kernel(run, snapshot, index, done);
        } else if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) {
            run_snapshot(run, node->bodies[0]);
            failed_inside(run, index, whole);
            // The child waits for something, perhaps for a node beside it here.
            if (run->left_running)
                leave_branch(run, snapshot, index, done);
        } else if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
            gv_conditional_run(run, snapshot, index, run_snapshot);
            failed_inside(run, index, whole);
            if (run->left_running)
                leave_branch(run, snapshot, index, done);
        } else if (node->type != CU_GRAPH_NODE_TYPE_EMPTY) {
            run_single(run, snapshot, index, done);
        }
    }
    gv_free(done);
}

static void run_unrecorded(gv_replay *run, const gv_snapshot *snapshot, uint32_t index, CUstream stream)
{
    const gv_snapshot_node *node = &snapshot->nodes[index];
    CUresult result = CUDA_SUCCESS;
    if (node->disabled || node->type == CU_GRAPH_NODE_TYPE_EMPTY)
        return;
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        for (size_t i = 0; i < node->bodies[0]->node_count; i++)
            run_unrecorded(run, node->bodies[0], node->bodies[0]->order[i], stream);
        return;
    }
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL && run->conditions) {
        gv_error error = {0};
        result =
            gv_conditions_enqueue_kernel(run->conditions, run->source, node->node, stream, stream == run->side, &error);
        if (error.text[0])
            gv_replay_fail(run, index, "node #%u could not be launched as it is: %.200s", index, error.text);
    } else if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        CUDA_KERNEL_NODE_PARAMS params;
        memset(&params, 0, sizeof params);
        result = gv_cuda.cuGraphKernelNodeGetParams(node->node, &params);
        if (result == CUDA_SUCCESS)
            result = launch_kernel(node, &params, params.func ? params.func : (CUfunction)params.kern, stream, false);
    } else if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        result = gv_conditional_launch(run, snapshot, index, stream);
    } else {
        result = launch_single(run, node, stream);
    }
    if (result != CUDA_SUCCESS)
        gv_replay_error(run, snapshot, index, result);
}

// Does a copy or set go to device memory that no allocation holds: a variable of a module?
static bool writes_variables(const gv_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->node_count; i++) {
        const gv_snapshot_node *node = &snapshot->nodes[i];
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS set;
        uint64_t detail[9] = {0};
        CUdeviceptr base = 0;
        size_t size = 0;
        unsigned type = 0;
        memset(&copy, 0, sizeof copy);
        memset(&set, 0, sizeof set);
        for (size_t body = 0; body < node->body_count; body++)
            if (writes_variables(node->bodies[body]))
                return true;
        if (node->type == CU_GRAPH_NODE_TYPE_MEMCPY &&
            gv_cuda.cuGraphMemcpyNodeGetParams(node->node, &copy) == CUDA_SUCCESS)
            gv_memcpy_detail(&copy, detail);
        else if (node->type == CU_GRAPH_NODE_TYPE_MEMSET &&
                 gv_cuda.cuGraphMemsetNodeGetParams(node->node, &set) == CUDA_SUCCESS)
            gv_memset_detail(&set, detail);
        if (detail[0] &&
            gv_cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, detail[0]) == CUDA_SUCCESS &&
            type == CU_MEMORYTYPE_DEVICE &&
            !(gv_cuda.cuMemGetAddressRange(&base, &size, detail[0]) == CUDA_SUCCESS && gv_is_heap(base)))
            return true;
    }
    return false;
}

void gv_replay_run(gv_replay *run, const gv_snapshot *snapshot)
{
    run->writes_variables = writes_variables(snapshot);
    run->opaque = gv_opaque_open(run->context, run->stream);
    run_snapshot(run, snapshot);
}

void gv_replay_timed(gv_replay *run, const gv_snapshot *snapshot)
{
    run_snapshot(run, snapshot);
}

void gv_replay_plain(gv_replay *run, const gv_snapshot *snapshot, gv_replay_step step, void *user)
{
    bool *done = gv_calloc(snapshot->node_count, sizeof *done);
    uint32_t *order = gv_calloc(snapshot->node_count, sizeof *order);
    if (!done || !order || !gv_serial_order(snapshot, run->order, order)) {
        gv_free(done);
        gv_free(order);
        gv_replay_fail(run, 0, "memory ran out");
        return;
    }
    for (size_t i = 0; i < snapshot->node_count && run->result == CUDA_SUCCESS && !run->left_running; i++) {
        uint32_t index = order[i];
        const gv_snapshot_node *node = &snapshot->nodes[index];
        if (done[index] || node->disabled)
            continue;
        done[index] = true;
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) {
            gv_replay_plain(run, node->bodies[0], step, user);
            if (run->left_running)
                leave_branch(run, snapshot, index, done);
        } else if (node->type == CU_GRAPH_NODE_TYPE_KERNEL || node->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                   node->type == CU_GRAPH_NODE_TYPE_MEMSET) {
            run_unrecorded(run, snapshot, index, run->stream);
            if (run->result != CUDA_SUCCESS || await(run, snapshot, index, done) == FAILED || run->left_running)
                break;
            run->position++;
            if (step)
                step(user, snapshot, index, run->position);
        }
    }
    gv_free(order);
    gv_free(done);
}

void gv_replay_end(gv_replay *run)
{
    // The driver keeps a destroyed stream until its work is done.
    if (run->side)
        gv_cuda.cuStreamDestroy(run->side);
    gv_node_ranges_free(&run->ranges);
    gv_node_ranges_free(&run->extents);
    gv_node_ranges_free(&run->wait.early);
    gv_programmatic_nodes_free(&run->programmatic);
}
