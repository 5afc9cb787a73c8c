#include "record/condition.h"

#include "base/memory.h"
#include "record/recorder.h"
#include "record/replay.h"

#include <string.h>

// How long an observer may take that has nothing to wait for.
enum { OBSERVE_SECONDS = 10 };

// A handle below this could be a number that a program passes to a kernel; one below the second only in a parameter of
// its own, for words of structures are often two numbers of 32 bits.
static const uint64_t SMALLEST_HANDLE = UINT64_C(1) << 16, SMALLEST_WORD = UINT64_C(1) << 32;

// ---- Observers -----------------------------------------------------------------------------------------------

// A loop is observed as an IF is: zero or not.
static bool is_switch(const gv_condition_value *value)
{
    return value->node->condition.type == CU_GRAPH_COND_TYPE_SWITCH;
}

static CUresult add_store(CUgraph graph, const gv_host_word *word, unsigned what, CUcontext context, CUgraphNode *node)
{
    CUDA_MEMSET_NODE_PARAMS set = {.dst = word->device, .value = what, .elementSize = 4, .width = 1, .height = 1};
    return gv_cuda.cuGraphAddMemsetNode(node, graph, NULL, 0, &set, context);
}

// The observer: word = 0, then a conditional node of which body i stores i + 1.
static CUresult build_observer(gv_condition_value *value, CUcontext context)
{
    CUgraphNode clear = NULL, node = NULL;
    unsigned bodies = is_switch(value) ? value->node->condition.size : 1;
    CUresult result = gv_cuda.cuGraphCreate(&value->graph, 0);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuGraphConditionalHandleCreate(&value->own, value->graph, context, 0, 0);
    if (result == CUDA_SUCCESS)
        result = add_store(value->graph, &value->word, 0, context, &clear);
    CUgraphNodeParams params;
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = value->own;
    params.conditional.type = is_switch(value) ? CU_GRAPH_COND_TYPE_SWITCH : CU_GRAPH_COND_TYPE_IF;
    params.conditional.size = bodies;
    params.conditional.ctx = context;
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuGraphAddNode(&node, value->graph, &clear, NULL, 1, &params);
    for (unsigned i = 0; i < bodies && result == CUDA_SUCCESS; i++)
        result = add_store(params.conditional.phGraph_out[i], &value->word, i + 1, context, &node);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuGraphInstantiateWithFlags(&value->observer, value->graph, 0);
    return result;
}

static CUresult make_word(gv_host_word *word)
{
    void *host = NULL;
    CUresult result =
        gv_cuda.cuMemHostAlloc(&host, sizeof *word->host, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
    word->host = host;
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuMemHostGetDevicePointer(&word->device, host, 0);
    return result;
}

static void free_value(gv_condition_value *value)
{
    if (value->observer)
        gv_cuda.cuGraphExecDestroy(value->observer);
    if (value->graph)
        gv_cuda.cuGraphDestroy(value->graph);
    if (value->word.host)
        gv_cuda.cuMemFreeHost((void *)value->word.host);
}

CUresult gv_condition_observe(const gv_condition_value *value, CUstream stream, size_t *body)
{
    CUresult result = gv_cuda.cuGraphLaunch(value->observer, stream);
    if (result == CUDA_SUCCESS)
        result = gv_wait_for_stream(stream, OBSERVE_SECONDS);
    if (result != CUDA_SUCCESS)
        return result;
    uint32_t seen = *value->word.host;
    *body = seen ? seen - 1 : SIZE_MAX;
    // An IF with an else runs its second body where its observer runs none.
    if (!seen && value->node->condition.type == CU_GRAPH_COND_TYPE_IF && value->node->condition.size == 2)
        *body = 1;
    return CUDA_SUCCESS;
}

gv_status gv_condition_pass_on(const gv_condition_value *value, CUgraphConditionalHandle handle,
                               const gv_recording_source *source, CUstream stream, gv_error *error)
{
    CUresult result = gv_cuda.cuGraphLaunch(value->observer, stream);
    if (result != CUDA_SUCCESS)
        return gv_fail(error, GV_ERR_IO, "the observer of a condition could not be launched: %s",
                       gv_driver_error(result));
    // The word is one above the number of the body; no body is then a number that no SWITCH has.
    return source->set_condition(stream, handle, &value->word, is_switch(value) ? 1 : 0, error);
}

// ---- Trying out ----------------------------------------------------------------------------------------------

static gv_status try_value(const gv_condition_value *value, const gv_recording_source *source, CUstream stream,
                           uint32_t set, size_t expected, gv_error *error)
{
    gv_status status = source->set_condition(stream, value->own, NULL, set, error);
    // Twice: the value must be there, and must stay.
    for (int i = 0; i < 2 && status == GV_OK; i++) {
        size_t body = SIZE_MAX;
        CUresult result = gv_condition_observe(value, stream, &body);
        if (result != CUDA_SUCCESS)
            return gv_fail(error, GV_ERR_IO, "the driver does not run a conditional node of gravel's own: %s",
                           gv_driver_error(result));
        if (body != expected)
            return gv_fail(
                error, GV_ERR_MISSING,
                "a conditional node of gravel's own does not follow what a kernel outside of its graph sets, so "
                "that conditions cannot be followed on this driver");
    }
    return status;
}

static gv_status try_out(const gv_condition_value *value, const gv_recording_source *source, CUstream stream,
                         gv_error *error)
{
    unsigned size = value->node->condition.size;
    size_t none = value->node->condition.type == CU_GRAPH_COND_TYPE_IF && size == 2 ? 1 : SIZE_MAX;
    gv_status status = GV_OK;
    if (is_switch(value)) {
        const uint32_t sets[] = {size - 1, 0, size, size / 2};
        for (size_t i = 0; i < sizeof sets / sizeof *sets && status == GV_OK; i++)
            status = try_value(value, source, stream, sets[i], sets[i] < size ? sets[i] : SIZE_MAX, error);
        return status;
    }
    const uint32_t sets[] = {1, 0, 0x80000000u, 0};
    for (size_t i = 0; i < sizeof sets / sizeof *sets && status == GV_OK; i++)
        status = try_value(value, source, stream, sets[i], sets[i] ? 0 : none, error);
    return status;
}

// ---- All values of a graph -----------------------------------------------------------------------------------

static gv_status add_values(gv_conditions *conditions, const gv_snapshot *snapshot, CUcontext context, gv_error *error)
{
    for (size_t i = 0; i < snapshot->node_count; i++) {
        const gv_snapshot_node *node = &snapshot->nodes[i];
        if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
            if (node->condition.handle < SMALLEST_HANDLE)
                return gv_fail(
                    error, GV_ERR_MISSING,
                    "the handle of a conditional node is too small a number to be told from other parameters");
            if (node->condition.context != context)
                return gv_fail(error, GV_ERR_MISSING, "its conditional nodes belong to another context");
            if (!GV_GROW(conditions->values, conditions->capacity, conditions->count + 1))
                return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
            gv_condition_value *value = &conditions->values[conditions->count++];
            *value = (gv_condition_value){.node = node};
            CUresult result = make_word(&value->word);
            if (result == CUDA_SUCCESS)
                result = build_observer(value, context);
            if (result != CUDA_SUCCESS)
                return gv_fail(error, GV_ERR_IO, "the driver does not make a conditional node of gravel's own: %s",
                               gv_driver_error(result));
        }
        for (size_t body = 0; body < node->body_count; body++) {
            gv_status status = add_values(conditions, node->bodies[body], context, error);
            if (status != GV_OK)
                return status;
        }
    }
    return GV_OK;
}

gv_status gv_conditions_create(const gv_snapshot *snapshot, const gv_recording_source *source, CUcontext context,
                               CUstream stream, gv_conditions **conditions, gv_error *error)
{
    *conditions = NULL;
    gv_conditions *made = gv_calloc(1, sizeof *made);
    if (!made)
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    gv_status status = add_values(made, snapshot, context, error);
    for (size_t i = 0; i < made->count && status == GV_OK; i++)
        status = try_out(&made->values[i], source, stream, error);
    if (status == GV_OK)
        *conditions = made;
    else
        gv_conditions_free(made);
    return status;
}

static void free_launched(gv_conditions *conditions)
{
    for (size_t i = 0; i < conditions->launched_count; i++) {
        gv_cuda.cuGraphExecDestroy(conditions->launched[i].exec);
        gv_cuda.cuGraphDestroy(conditions->launched[i].graph);
    }
    conditions->launched_count = 0;
}

bool gv_conditions_keep(gv_conditions *conditions, CUgraph graph, CUgraphExec exec)
{
    size_t at = conditions->launched_count;
    if (!GV_GROW(conditions->launched, conditions->launched_capacity, at + 1))
        return false;
    conditions->launched[at].graph = graph;
    conditions->launched[at].exec = exec;
    conditions->launched_count++;
    return true;
}

void gv_conditions_free(gv_conditions *conditions)
{
    if (!conditions)
        return;
    for (size_t i = 0; i < conditions->count; i++)
        free_value(&conditions->values[i]);
    free_launched(conditions);
    gv_free(conditions->launched);
    gv_free(conditions->values);
    gv_free(conditions);
}

gv_status gv_conditions_begin(gv_conditions *conditions, const gv_recording_source *source, CUstream stream,
                              gv_error *error)
{
    gv_status status = GV_OK;
    free_launched(conditions);
    // Without a default CUDA leaves the value undefined; zero is then as good as any, and the same each time.
    for (size_t i = 0; i < conditions->count && status == GV_OK; i++) {
        const gv_condition *condition = &conditions->values[i].node->condition;
        status = source->set_condition(stream, conditions->values[i].own, NULL,
                                       condition->assigned ? condition->initial : 0, error);
    }
    return status;
}

gv_condition_value *gv_condition_of(const gv_conditions *conditions, const gv_snapshot_node *node)
{
    for (size_t i = 0; conditions && i < conditions->count; i++)
        if (conditions->values[i].node == node)
            return &conditions->values[i];
    return NULL;
}

// ---- Kernel parameters ---------------------------------------------------------------------------------------

// The packed block of a launch, or NULL.
static const unsigned char *packed_block(const CUDA_KERNEL_NODE_PARAMS *params, size_t *size)
{
    const unsigned char *block = NULL;
    *size = 0;
    for (size_t i = 0; params->extra && params->extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (params->extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            block = params->extra[i + 1];
        else if (params->extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            *size = *(const size_t *)params->extra[i + 1];
    }
    return block;
}

// Calls `visit` for each word of the parameters that is one of the handles: its place in the block, and which it is.
static void find_handles(const gv_conditions *conditions, CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params,
                         void (*visit)(size_t offset, size_t index, void *user), void *user)
{
    size_t block_size, offset = 0, size = 0;
    const unsigned char *block = packed_block(params, &block_size);
    for (size_t i = 0; gv_cuda.cuFuncGetParamInfo(function, i, &offset, &size) == CUDA_SUCCESS; i++) {
        const unsigned char *bytes = params->kernelParams                   ? params->kernelParams[i]
                                     : block && offset + size <= block_size ? block + offset
                                                                            : NULL;
        for (size_t at = 0; bytes && at + sizeof(uint64_t) <= size; at += sizeof(uint64_t)) {
            uint64_t word;
            memcpy(&word, bytes + at, sizeof word);
            for (size_t k = 0; k < conditions->count; k++)
                if (word == conditions->values[k].node->condition.handle &&
                    (word >= SMALLEST_WORD || size == sizeof word))
                    visit(offset + at, k, user);
        }
    }
}

static void note_given(size_t offset, size_t index, void *given)
{
    ((bool *)given)[index] = true;
}

bool gv_conditions_given(const gv_conditions *conditions, CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params,
                         bool *given)
{
    bool any = false;
    memset(given, 0, conditions->count * sizeof *given);
    find_handles(conditions, function, params, note_given, given);
    for (size_t i = 0; i < conditions->count; i++)
        any |= given[i];
    return any;
}

// What a place in the block gets.
typedef struct substitution {
    const gv_conditions *conditions;
    const CUgraphConditionalHandle *handles;
    unsigned char *block;
    size_t found;
} substitution;

static void substitute(size_t offset, size_t index, void *user)
{
    substitution *s = user;
    uint64_t handle = s->handles ? s->handles[index] : s->conditions->values[index].own;
    if (s->block)
        memcpy(s->block + offset, &handle, sizeof handle);
    s->found++;
}

// Copies the parameters into own->block, in whichever form they come.
static bool copy_parameters(CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params, gv_own_parameters *own)
{
    size_t packed_size, offset = 0, size = 0, count = 0, end = 0;
    const unsigned char *packed = packed_block(params, &packed_size);
    while (gv_cuda.cuFuncGetParamInfo(function, count, &offset, &size) == CUDA_SUCCESS) {
        end = offset + size > end ? offset + size : end;
        count++;
    }
    own->block_size = params->kernelParams ? end : packed_size;
    own->block = gv_calloc(1, own->block_size + sizeof(uint64_t));
    own->pointers = gv_calloc(count + 1, sizeof *own->pointers);
    if (!own->block || !own->pointers)
        return false;
    if (!params->kernelParams) {
        memcpy(own->block, packed, packed_size);
        own->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
        own->extra[1] = own->block;
        own->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
        own->extra[3] = &own->block_size;
        own->extra[4] = CU_LAUNCH_PARAM_END;
        own->params.extra = own->extra;
        return true;
    }
    for (size_t i = 0; i < count && gv_cuda.cuFuncGetParamInfo(function, i, &offset, &size) == CUDA_SUCCESS; i++) {
        memcpy(own->block + offset, params->kernelParams[i], size);
        own->pointers[i] = own->block + offset;
    }
    own->params.kernelParams = own->pointers;
    return true;
}

bool gv_conditions_substitute(const gv_conditions *conditions, const CUgraphConditionalHandle *handles,
                              CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params, gv_own_parameters *own)
{
    memset(own, 0, sizeof *own);
    own->params = *params;
    if (!conditions)
        return true;
    substitution s = {conditions, handles, NULL, 0};
    find_handles(conditions, function, params, substitute, &s);
    if (!s.found)
        return true;
    if (!copy_parameters(function, params, own)) {
        gv_own_parameters_free(own);
        return false;
    }
    s.block = own->block;
    find_handles(conditions, function, params, substitute, &s);
    return true;
}

void gv_own_parameters_free(gv_own_parameters *own)
{
    gv_free(own->block);
    gv_free(own->pointers);
    own->block = NULL;
    own->pointers = NULL;
}
