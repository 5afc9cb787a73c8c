#include "record/condition.h"

#include "base/memory.h"
#include "device/condition.h"
#include "record/graph_copy.h"
#include "record/parameters.h"
#include "record/recorder.h"
#include "record/replay.h"

#include <string.h>

enum {
    OBSERVE_SECONDS = 10, // how long a graph may take that has nothing to wait for
    MOST_HANDLES = 256    // each costs a node in every graph that a kernel runs in
};

static bool is_switch(const gv_snapshot_node *node)
{
    return node && node->condition.type == CU_GRAPH_COND_TYPE_SWITCH;
}

// A loop is observed as an IF is: zero or not. So is a handle that no node has.
static unsigned bodies_of(const gv_snapshot_node *node)
{
    return is_switch(node) ? node->condition.size : 1;
}

// ---- Graphs of our own ---------------------------------------------------------------------------------------

static CUresult add_store(CUgraph graph, CUdeviceptr word, unsigned value, CUcontext context, const CUgraphNode *after,
                          size_t count, CUgraphNode *node)
{
    CUDA_MEMSET_NODE_PARAMS set = {.dst = word, .value = value, .elementSize = 4, .width = 1, .height = 1};
    return gv_cuda.cuGraphAddMemsetNode(node, graph, after, count, &set, context);
}

// A graph with `count` handles, numbered as the program's are. `values`: what they are assigned at a launch, as words;
// NULL: nothing.
static CUresult make_graph(const gv_conditions *conditions, uint32_t count, const uint32_t *values, CUgraph *graph)
{
    CUresult result = gv_cuda.cuGraphCreate(graph, 0);
    for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        CUgraphConditionalHandle handle = 0;
        unsigned value = values ? values[i] - conditions->words.host.less[i] : 0;
        result = gv_cuda.cuGraphConditionalHandleCreate(&handle, *graph, conditions->context, value,
                                                        values ? CU_GRAPH_COND_ASSIGN_DEFAULT : 0);
        if (result == CUDA_SUCCESS && handle != i + 1)
            result = CUDA_ERROR_NOT_SUPPORTED;
    }
    return result;
}

// A conditional node of which body i stores i + 1.
static CUresult add_observer(const gv_conditions *conditions, CUgraph graph, uint32_t index, CUdeviceptr words,
                             const CUgraphNode *after, size_t count)
{
    CUgraphNode node = NULL, store = NULL;
    CUgraphNodeParams params;
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = index + 1;
    params.conditional.type = is_switch(conditions->nodes[index]) ? CU_GRAPH_COND_TYPE_SWITCH : CU_GRAPH_COND_TYPE_IF;
    params.conditional.size = bodies_of(conditions->nodes[index]);
    params.conditional.ctx = conditions->context;
    CUresult result = gv_cuda.cuGraphAddNode(&node, graph, after, NULL, count, &params);
    for (unsigned i = 0; i < params.conditional.size && result == CUDA_SUCCESS; i++)
        result = add_store(params.conditional.phGraph_out[i], words + index * sizeof(uint32_t), i + 1,
                           conditions->context, NULL, 0, &store);
    return result;
}

static void free_launch(const struct gv_condition_launch *launch)
{
    if (launch->exec)
        gv_cuda.cuGraphExecDestroy(launch->exec);
    if (launch->graph)
        gv_cuda.cuGraphDestroy(launch->graph);
    gv_free(launch->setter);
}

static void free_launched(gv_conditions *conditions)
{
    for (size_t i = 0; i < conditions->launched_count; i++)
        free_launch(&conditions->launched[i]);
    conditions->launched_count = 0;
}

// Makes an executable graph of it and launches that; what was made stays until nothing runs any more.
static CUresult start(gv_conditions *conditions, struct gv_condition_launch *launch, CUresult result, CUstream stream)
{
    if (result == CUDA_SUCCESS &&
        !GV_GROW(conditions->launched, conditions->launched_capacity, conditions->launched_count + 1))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuGraphInstantiateWithFlags(&launch->exec, launch->graph, 0);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuGraphLaunch(launch->exec, stream);
    if (result == CUDA_SUCCESS)
        conditions->launched[conditions->launched_count++] = *launch;
    else
        free_launch(launch);
    return result;
}

// ---- One kernel, and the host that waits for it --------------------------------------------------------------

CUresult gv_conditions_launch(gv_conditions *conditions, CUgraphNode kernel, CUstream stream)
{
    struct gv_condition_launch launch = {0};
    CUgraphNode made = NULL;
    CUresult result = make_graph(conditions, conditions->count, conditions->values, &launch.graph);
    if (result == CUDA_SUCCESS)
        result =
            gv_copy_node(launch.graph, kernel, CU_GRAPH_NODE_TYPE_KERNEL, NULL, conditions->context, NULL, 0, &made);
    for (uint32_t i = 0; i < conditions->count && result == CUDA_SUCCESS; i++) {
        conditions->words.host.seen[i] = 0;
        result = add_observer(conditions, launch.graph, i, conditions->words.device.seen, &made, 1);
    }
    result = start(conditions, &launch, result, stream);
    if (result == CUDA_SUCCESS)
        conditions->state = GV_CONDITIONS_RUNNING;
    return result;
}

void gv_conditions_ran(gv_conditions *conditions)
{
    const gv_condition_setter *words = &conditions->words;
    for (uint32_t i = 0; i < conditions->count; i++) {
        if (conditions->state != GV_CONDITIONS_KNOWN)
            conditions->values[i] = words->host.seen[i];
        if (conditions->split && words->host.side[i] != words->host.base[i])
            conditions->values[i] = words->host.side[i];
    }
    conditions->state = GV_CONDITIONS_KNOWN;
    conditions->split = false;
    free_launched(conditions);
}

void gv_conditions_begin(gv_conditions *conditions)
{
    free_launched(conditions);
    conditions->state = GV_CONDITIONS_KNOWN;
    conditions->split = false;
    for (uint32_t i = 0; i < conditions->count; i++) {
        const gv_snapshot_node *node = conditions->nodes[i];
        // Without a default CUDA leaves the value undefined; zero is what a new executable graph has.
        unsigned value = node && node->condition.assigned ? node->condition.initial : 0;
        if (is_switch(node))
            conditions->values[i] = value < node->condition.size ? value + 1 : 0;
        else
            conditions->values[i] = value != 0;
    }
}

size_t gv_conditions_choice(const gv_conditions *conditions, const gv_snapshot_node *node)
{
    uint32_t word = conditions->values[node->condition.handle - 1];
    // An IF with an else runs its second body where its observer runs none.
    if (!word && node->condition.type == CU_GRAPH_COND_TYPE_IF && node->condition.size == 2)
        return 1;
    return word ? word - 1 : SIZE_MAX;
}

// ---- Graphs that nobody waits for ----------------------------------------------------------------------------

void gv_conditions_split(gv_conditions *conditions)
{
    // A branch that has begun goes on from where it is.
    if (conditions->split)
        return;
    conditions->split = true;
    for (uint32_t i = 0; i < conditions->count; i++)
        conditions->words.host.side[i] = conditions->words.host.base[i] = conditions->values[i];
}

// The setter that a graph on this stream begins with.
static gv_condition_setter *make_setter(const gv_conditions *conditions, const gv_snapshot_node *node, bool side)
{
    gv_condition_setter *setter = gv_calloc(1, sizeof *setter);
    if (!setter)
        return NULL;
    *setter = conditions->words;
    setter->count = conditions->count;
    setter->extra = node ? (uint32_t)node->condition.handle - 1 : conditions->count;
    setter->merge = !side && conditions->split;
    if (side) {
        setter->host.seen = setter->host.side;
        setter->device.seen = setter->device.side;
    }
    return setter;
}

CUresult gv_conditions_enqueue(gv_conditions *conditions, const gv_recording_source *source, const bool *inside,
                               const gv_snapshot_node *node, gv_condition_build build, void *user, CUstream stream,
                               bool side, gv_error *error)
{
    struct gv_condition_launch launch = {0};
    bool loop = node && node->condition.type == CU_GRAPH_COND_TYPE_WHILE;
    // A loop has ended when its own handle is zero. Another node decides by a handle of our own, so that its handle can
    // be observed: kernels of its bodies may set it.
    const gv_snapshot_node *stand_in = loop ? NULL : node;
    uint32_t count = conditions->count, own = node ? (uint32_t)node->condition.handle - 1 : count, afters = 0;
    if (!side && conditions->state == GV_CONDITIONS_KNOWN) {
        for (uint32_t i = 0; i < count; i++)
            conditions->words.host.seen[i] = conditions->values[i];
        conditions->state = GV_CONDITIONS_DEVICE;
    } else if (!side) {
        conditions->state = GV_CONDITIONS_DEVICE;
    }
    CUgraphNode made = NULL, *after = gv_calloc(count + 1, sizeof *after);
    launch.setter = make_setter(conditions, stand_in, side);
    CUresult result = after && launch.setter ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = make_graph(conditions, count + (stand_in ? 1 : 0), NULL, &launch.graph);
    if (result == CUDA_SUCCESS && source->add_setter(launch.graph, launch.setter, &after[afters++], error) != GV_OK)
        result = CUDA_ERROR_UNKNOWN;
    CUdeviceptr words = side ? conditions->words.device.side : conditions->words.device.seen;
    for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        if (!inside || !inside[i] || i == own)
            result = add_store(launch.graph, words + i * sizeof(uint32_t), 0, conditions->context, &after[0], 1,
                               &after[afters++]);
    if (result == CUDA_SUCCESS)
        result = build(launch.graph, stand_in ? count + 1 : 0, after, afters, &made, user);
    for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        if (!inside || !inside[i] || (i == own && !loop))
            result = add_observer(conditions, launch.graph, i, words, &made, made ? 1 : 0);
    gv_free(after);
    return start(conditions, &launch, result, stream);
}

static CUresult build_kernel(CUgraph graph, CUgraphConditionalHandle extra, const CUgraphNode *after, size_t count,
                             CUgraphNode *made, void *user)
{
    return gv_copy_node(graph, user, CU_GRAPH_NODE_TYPE_KERNEL, NULL, NULL, after, count, made);
}

CUresult gv_conditions_enqueue_kernel(gv_conditions *conditions, const gv_recording_source *source, CUgraphNode kernel,
                                      CUstream stream, bool side, gv_error *error)
{
    return gv_conditions_enqueue(conditions, source, NULL, NULL, build_kernel, kernel, stream, side, error);
}

// ---- Trying out ----------------------------------------------------------------------------------------------

static CUresult build_nothing(CUgraph graph, CUgraphConditionalHandle extra, const CUgraphNode *after, size_t count,
                              CUgraphNode *made, void *user)
{
    return gv_cuda.cuGraphAddEmptyNode(made, graph, after, count);
}

// All that is relied on, without anything of the program's: handles are numbers in their graph, a kernel sets them, and
// observers see it. Every handle is given each of its bodies in turn, and none.
static gv_status try_out(gv_conditions *conditions, const gv_recording_source *source, CUstream stream, gv_error *error)
{
    static const uint32_t rounds[] = {1, 0, 2};
    for (size_t round = 0; round < sizeof rounds / sizeof *rounds; round++) {
        for (uint32_t i = 0; i < conditions->count; i++) {
            // Neighbours get different ones, where they can.
            uint32_t word = rounds[(round + i) % (sizeof rounds / sizeof *rounds)];
            conditions->values[i] = word <= bodies_of(conditions->nodes[i]) ? word : 0;
        }
        uint32_t *expected = gv_calloc(conditions->count, sizeof *expected);
        if (!expected)
            return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
        memcpy(expected, conditions->values, conditions->count * sizeof *expected);
        conditions->state = GV_CONDITIONS_KNOWN;
        CUresult result =
            gv_conditions_enqueue(conditions, source, NULL, NULL, build_nothing, NULL, stream, false, error);
        if (result == CUDA_SUCCESS)
            result = gv_wait_for_stream(stream, OBSERVE_SECONDS);
        if (result == CUDA_SUCCESS)
            gv_conditions_ran(conditions);
        bool same = memcmp(expected, conditions->values, conditions->count * sizeof *expected) == 0;
        gv_free(expected);
        if (result != CUDA_SUCCESS)
            return error->text[0]
                       ? GV_ERR_IO
                       : gv_fail(error, GV_ERR_IO,
                                 "a graph of gravel's own with conditional nodes does not run on this driver "
                                 "as it was expected: %s",
                                 gv_driver_error(result));
        if (!same)
            return gv_fail(error, GV_ERR_MISSING,
                           "conditional nodes of gravel's own do not follow what a kernel of their graph sets, so that "
                           "conditions cannot be followed on this driver");
    }
    return GV_OK;
}

// ---- All handles of a graph ----------------------------------------------------------------------------------

static gv_status find_handles(gv_conditions *conditions, const gv_snapshot *snapshot, gv_error *error)
{
    for (uint32_t i = 0; i < snapshot->node_count; i++) {
        const gv_snapshot_node *node = &snapshot->nodes[i];
        if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
            uint64_t handle = node->condition.handle;
            if (!handle || handle > MOST_HANDLES)
                return gv_fail(error, GV_ERR_LIMIT,
                               "the handle of conditional node #%u is %llu: gravel follows those numbered from 1 to %d",
                               i, (unsigned long long)handle, (int)MOST_HANDLES);
            if (conditions->nodes[handle - 1])
                return gv_fail(error, GV_ERR_MISSING, "two of its conditional nodes have the same handle");
            if (node->condition.context != conditions->context)
                return gv_fail(error, GV_ERR_MISSING, "its conditional nodes belong to another context");
            conditions->nodes[handle - 1] = node;
            conditions->count = handle > conditions->count ? (uint32_t)handle : conditions->count;
        }
        for (size_t body = 0; body < node->body_count; body++) {
            gv_status status = find_handles(conditions, node->bodies[body], error);
            if (status != GV_OK)
                return status;
        }
    }
    return GV_OK;
}

static CUresult make_words(gv_conditions *conditions)
{
    size_t count = conditions->count;
    CUdeviceptr device = 0;
    CUresult result = gv_cuda.cuMemHostAlloc(&conditions->block, 4 * count * sizeof(uint32_t),
                                             CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuMemHostGetDevicePointer(&device, conditions->block, 0);
    if (result != CUDA_SUCCESS)
        return result;
    gv_condition_setter *words = &conditions->words;
    volatile uint32_t *host = conditions->block;
    words->host.seen = host;
    words->host.side = host + count;
    words->host.base = host + 2 * count;
    words->host.less = host + 3 * count;
    words->device.seen = device;
    words->device.side = device + count * sizeof(uint32_t);
    words->device.base = device + 2 * count * sizeof(uint32_t);
    words->device.less = device + 3 * count * sizeof(uint32_t);
    for (size_t i = 0; i < count; i++)
        words->host.less[i] = is_switch(conditions->nodes[i]);
    return CUDA_SUCCESS;
}

gv_status gv_conditions_create(const gv_snapshot *snapshot, const gv_recording_source *source, CUcontext context,
                               CUstream stream, gv_conditions **conditions, gv_error *error)
{
    *conditions = NULL;
    gv_conditions *made = gv_calloc(1, sizeof *made);
    if (made)
        *made = (gv_conditions){.context = context,
                                .nodes = gv_calloc(MOST_HANDLES, sizeof *made->nodes),
                                .values = gv_calloc(MOST_HANDLES, sizeof *made->values)};
    gv_status status = made && made->nodes && made->values ? GV_OK : gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    if (status == GV_OK)
        status = find_handles(made, snapshot, error);
    CUresult result = status == GV_OK ? make_words(made) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        status = gv_fail(error, GV_ERR_IO, "page-locked memory for its conditions cannot be had: %s",
                         gv_driver_error(result));
    if (status == GV_OK)
        status = try_out(made, source, stream, error);
    if (status == GV_OK)
        *conditions = made;
    else
        gv_conditions_free(made);
    return status;
}

void gv_conditions_free(gv_conditions *conditions)
{
    // What was left to run may still read and write all this: then it stays.
    if (!conditions || conditions->state != GV_CONDITIONS_KNOWN)
        return;
    free_launched(conditions);
    if (conditions->block)
        gv_cuda.cuMemFreeHost(conditions->block);
    gv_free(conditions->launched);
    gv_free(conditions->values);
    gv_free(conditions->nodes);
    gv_free(conditions);
}

// ---- Kernel parameters ---------------------------------------------------------------------------------------

bool gv_conditions_given(const gv_conditions *conditions, CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params,
                         bool *given)
{
    bool any = false;
    size_t block_size, offset = 0, size = 0;
    const unsigned char *block = gv_packed_parameters(params, &block_size);
    memset(given, 0, conditions->count * sizeof *given);
    for (size_t i = 0; gv_cuda.cuFuncGetParamInfo(function, i, &offset, &size) == CUDA_SUCCESS; i++) {
        const unsigned char *bytes = params->kernelParams                   ? params->kernelParams[i]
                                     : block && offset + size <= block_size ? block + offset
                                                                            : NULL;
        for (size_t at = 0; bytes && at + sizeof(uint64_t) <= size; at += sizeof(uint64_t)) {
            uint64_t word;
            memcpy(&word, bytes + at, sizeof word);
            if (word && word <= conditions->count && conditions->nodes[word - 1])
                any = given[word - 1] = true;
        }
    }
    return any;
}
