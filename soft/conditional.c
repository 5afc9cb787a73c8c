// Conditional handles and the parameters of conditional nodes. When a node decides and what it then starts is in
// exec.c.
#include "soft/conditional.h"

#include "soft/context.h"
#include "soft/exec.h"
#include "soft/memory.h"

static struct condition *conditions;

// The graph that the calling thread runs a node of, if it has conditional nodes.
static __thread const struct plan *running;

// What a kernel sets is found through a table of the running graph: numbers behind its end are left alone, those far
// behind it are addresses that are not mapped.
static const uint64_t FAR_HANDLE = UINT64_C(1) << 20;

// A graph's handles and those of its bodies are numbered together.
static CUgraph outermost(CUgraph graph)
{
    while (graph->owner)
        graph = graph->owner->graph;
    return graph;
}

static struct condition *condition_find(CUgraphConditionalHandle handle, CUgraph graph)
{
    uint64_t root = outermost(graph)->object.id;
    for (struct condition *condition = conditions; condition; condition = condition->next)
        if (condition->handle == handle && condition->root == root)
            return condition;
    return NULL;
}

struct condition *condition_keep(struct condition *condition)
{
    if (condition)
        condition->references++;
    return condition;
}

void condition_drop(struct condition *condition)
{
    if (!condition || --condition->references)
        return;
    struct condition **link = &conditions;
    while (*link != condition)
        link = &(*link)->next;
    *link = condition->next;
    gv_free(condition);
}

void condition_running(const struct plan *plan)
{
    running = plan;
}

static struct condition *condition_in(const struct plan *plan, uint64_t handle)
{
    struct condition *found = NULL;
    for (size_t i = 0; i < plan->count && !found; i++) {
        const struct plan_node *node = &plan->nodes[i];
        if (!node->bodies)
            continue;
        if (node->operation.conditional.condition->handle == handle)
            found = node->operation.conditional.condition;
        for (unsigned body = 0; body < node->operation.conditional.size && !found; body++)
            found = condition_in(node->bodies[body], handle);
    }
    return found;
}

bool condition_set(uint64_t handle, uint32_t value)
{
    if (!running || handle >= FAR_HANDLE)
        return false;
    pthread_mutex_lock(&driver_lock);
    struct condition *condition = condition_in(running, handle);
    if (condition)
        condition->value = value;
    pthread_mutex_unlock(&driver_lock);
    return true;
}

static CUresult handle_create(CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context, unsigned initial,
                              unsigned flags)
{
    CUcontext found = context;
    CUresult result = context ? CUDA_SUCCESS : context_current(&found);
    if (result != CUDA_SUCCESS)
        return result;
    if (!object_is(found, OBJECT_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!handle || !object_is(graph, OBJECT_GRAPH) || flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT)
        return CUDA_ERROR_INVALID_VALUE;
    struct condition *made = gv_calloc(1, sizeof *made);
    if (!made || !GV_GROW(graph->conditions, graph->condition_capacity, graph->condition_count + 1)) {
        gv_free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made = (struct condition){.next = conditions,
                               .handle = ++outermost(graph)->handles,
                               .references = 1,
                               .context = found,
                               .initial = initial,
                               .assigned = flags & CU_GRAPH_COND_ASSIGN_DEFAULT,
                               .graph = graph->object.id,
                               .root = outermost(graph)->object.id};
    conditions = made;
    graph->conditions[graph->condition_count++] = made;
    *handle = made->handle;
    return CUDA_SUCCESS;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context,
                                        unsigned int initial, unsigned int flags)
{
    SOFT_API(handle_create(handle, graph, context, initial, flags));
}

// ---- Nodes ----

// Was the handle made for this graph, or for one that this one is inside of?
static bool handle_reaches(const struct condition *condition, CUgraph graph)
{
    for (; graph; graph = graph->owner ? graph->owner->graph : NULL)
        if (graph->object.id == condition->graph)
            return true;
    return false;
}

static bool size_allowed(CUgraphConditionalNodeType type, unsigned size)
{
    switch (type) {
    case CU_GRAPH_COND_TYPE_IF: return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE: return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH: return size > 0;
    default: return false;
    }
}

CUresult conditional_operation_of(struct operation *operation, CUgraph graph, CUDA_CONDITIONAL_NODE_PARAMS *parameters)
{
    struct condition *condition = graph ? condition_find(parameters->handle, graph) : NULL;
    if (!condition || condition->has_node || !handle_reaches(condition, graph) ||
        !size_allowed(parameters->type, parameters->size))
        return CUDA_ERROR_INVALID_VALUE;
    if (parameters->ctx && parameters->ctx != condition->context)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph *bodies = gv_calloc(parameters->size, sizeof *bodies);
    if (!bodies)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CUDA_SUCCESS;
    *operation = (struct operation){.kind = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    operation->conditional = (struct conditional_operation){
        .condition = condition_keep(condition), .type = parameters->type, .bodies = bodies};
    condition->has_node = true;
    for (unsigned i = 0; i < parameters->size && result == CUDA_SUCCESS; i++) {
        result = graph_new(&bodies[i]);
        operation->conditional.size += result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS)
        parameters->phGraph_out = bodies;
    else
        operation_clear(operation);
    return result;
}

void conditional_operation_clear(struct conditional_operation *conditional)
{
    // The node's own operation has the bodies; that of an exec has only the value.
    if (conditional->bodies) {
        for (unsigned i = 0; i < conditional->size; i++)
            graph_delete(conditional->bodies[i]);
        gv_free(conditional->bodies);
        conditional->condition->has_node = false;
    }
    condition_drop(conditional->condition);
}

bool graph_has_conditionals(CUgraph graph)
{
    for (size_t i = 0; i < graph->count; i++) {
        const struct operation *operation = &graph->nodes[i]->operation;
        if (operation->kind == CU_GRAPH_NODE_TYPE_CONDITIONAL ||
            (operation->kind == CU_GRAPH_NODE_TYPE_GRAPH && graph_has_conditionals(operation->child)))
            return true;
    }
    return false;
}

bool graph_is_body(CUgraph graph)
{
    for (; graph->owner; graph = graph->owner->graph)
        if (graph->owner->operation.kind == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            return true;
    return false;
}

// ---- What instantiation checks ----

static bool memory_allowed(CUmemorytype type, const void *host, CUdeviceptr device)
{
    if (type == CU_MEMORYTYPE_HOST)
        return !memory_is_pageable((uint64_t)(uintptr_t)host);
    return type != CU_MEMORYTYPE_ARRAY && !memory_is_pageable(device);
}

// May a body have this node? `context` is that of all its kernels, NULL until there is one.
static bool body_node_allowed(const struct operation *operation, CUcontext *context)
{
    switch (operation->kind) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (!*context)
            *context = operation->kernel.context;
        return *context == operation->kernel.context;
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
        const CUDA_MEMCPY3D *copy = &operation->copy.parameters;
        return memory_allowed(copy->srcMemoryType, copy->srcHost, copy->srcDevice) &&
               memory_allowed(copy->dstMemoryType, copy->dstHost, copy->dstDevice);
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return true;
    default: return false;
    }
}

static CUresult check(CUgraph graph, bool in_body, uint64_t exec, CUcontext *context, CUgraphInstantiateResult *why)
{
    for (size_t i = 0; i < graph->condition_count; i++) {
        if (!graph->conditions[i]->has_node) {
            *why = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < graph->count && result == CUDA_SUCCESS; i++) {
        const struct operation *operation = &graph->nodes[i]->operation;
        if (in_body && !body_node_allowed(operation, context))
            return CUDA_ERROR_INVALID_VALUE;
        if (operation->kind == CU_GRAPH_NODE_TYPE_GRAPH)
            result = check(operation->child, in_body, exec, context, why);
        if (operation->kind != CU_GRAPH_NODE_TYPE_CONDITIONAL)
            continue;
        const struct conditional_operation *conditional = &operation->conditional;
        if (conditional->condition->exec && conditional->condition->exec != exec)
            return CUDA_ERROR_INVALID_VALUE;
        CUcontext of_bodies = conditional->condition->context;
        for (unsigned body = 0; body < conditional->size && result == CUDA_SUCCESS; body++)
            result = check(conditional->bodies[body], true, exec, &of_bodies, why);
    }
    return result;
}

CUresult conditional_check(CUgraph graph, uint64_t exec, CUgraphInstantiateResult *why)
{
    CUcontext none = NULL;
    return check(graph, false, exec, &none, why);
}

void conditional_adopt(CUgraph graph, uint64_t exec)
{
    for (size_t i = 0; i < graph->count; i++) {
        const struct operation *operation = &graph->nodes[i]->operation;
        if (operation->kind != CU_GRAPH_NODE_TYPE_CONDITIONAL)
            continue;
        if (operation->conditional.condition->exec != exec)
            operation->conditional.condition->value = 0; // values belong to an exec
        operation->conditional.condition->exec = exec;
        for (unsigned body = 0; body < operation->conditional.size; body++)
            conditional_adopt(operation->conditional.bodies[body], exec);
    }
}

void conditional_release(uint64_t exec)
{
    for (struct condition *condition = conditions; condition; condition = condition->next)
        if (condition->exec == exec)
            condition->exec = 0;
}

size_t conditional_choice(const struct conditional_operation *conditional)
{
    unsigned value = conditional->condition->value;
    switch (conditional->type) {
    case CU_GRAPH_COND_TYPE_SWITCH: return value < conditional->size ? value : SIZE_MAX;
    case CU_GRAPH_COND_TYPE_IF:
        if (!value)
            return conditional->size == 2 ? 1 : SIZE_MAX;
        return 0;
    default: return value ? 0 : SIZE_MAX;
    }
}
