// Changing executable graphs: single nodes, and whole graphs of the same structure.
#include "soft/conditional.h"
#include "soft/exec.h"
#include "soft/memory.h"
#include "soft/node.h"

// ---- What may change ----

static bool is_linear(const CUDA_MEMCPY3D *copy)
{
    return copy->Height == 1 && copy->Depth == 1;
}

static bool on_host(CUmemorytype type, uint64_t address)
{
    if (type != CU_MEMORYTYPE_UNIFIED)
        return type == CU_MEMORYTYPE_HOST;
    return memory_is_pageable(address);
}

static bool same_copy(const CUDA_MEMCPY3D *a, const CUDA_MEMCPY3D *b)
{
    return a->srcXInBytes == b->srcXInBytes && a->srcY == b->srcY && a->srcZ == b->srcZ &&
           a->srcMemoryType == b->srcMemoryType && a->srcHost == b->srcHost && a->srcDevice == b->srcDevice &&
           a->srcPitch == b->srcPitch && a->srcHeight == b->srcHeight && a->dstXInBytes == b->dstXInBytes &&
           a->dstY == b->dstY && a->dstZ == b->dstZ && a->dstMemoryType == b->dstMemoryType &&
           a->dstHost == b->dstHost && a->dstDevice == b->dstDevice && a->dstPitch == b->dstPitch &&
           a->dstHeight == b->dstHeight && a->WidthInBytes == b->WidthInBytes && a->Height == b->Height &&
           a->Depth == b->Depth;
}

// A copy's two sides stay where they are, and only linear copies change shape.
static bool copy_may_become(const CUDA_MEMCPY3D *now, const CUDA_MEMCPY3D *then)
{
    if (same_copy(now, then))
        return true;
    return is_linear(now) && is_linear(then) && then->WidthInBytes &&
           on_host(now->srcMemoryType, now->srcDevice) == on_host(then->srcMemoryType, then->srcDevice) &&
           on_host(now->dstMemoryType, now->dstDevice) == on_host(then->dstMemoryType, then->dstDevice);
}

static bool set_may_become(const CUDA_MEMSET_NODE_PARAMS *now, const CUDA_MEMSET_NODE_PARAMS *then)
{
    bool same_shape = now->width == then->width && now->height == then->height && now->pitch == then->pitch &&
                      now->elementSize == then->elementSize;
    return same_shape || (now->height == 1 && then->height == 1 && then->width);
}

// Which update result says why `then` cannot replace `now`; both are of one kind.
static CUgraphExecUpdateResult change_of(const struct operation *now, const struct operation *then)
{
    switch (now->kind) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return now->kernel.context == then->kernel.context ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                           : CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return copy_may_become(&now->copy.parameters, &then->copy.parameters)
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return set_may_become(&now->set.parameters, &then->set.parameters)
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return now->memory.memory == then->memory.memory ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                         : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return now->conditional.type == then->conditional.type && now->conditional.size == then->conditional.size
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    default: return CU_GRAPH_EXEC_UPDATE_SUCCESS;
    }
}

// ---- Whole graphs ----

// Pairs one end of a plan with one of a graph, and what comes before both along the dependencies in their order.
// `pair` has, for each node of the plan, the graph's node; `pending` has room for each once.
static bool pair_from_end(const struct plan *plan, uint32_t end, CUgraphNode other_end, CUgraphNode *pair,
                          uint32_t *pending, CUgraphExecUpdateResultInfo *info)
{
    size_t top = 0;
    pair[end] = other_end;
    pending[top++] = end;
    while (top) {
        const struct plan_node *node = &plan->nodes[pending[--top]];
        CUgraphNode other = pair[pending[top]];
        info->errorNode = other;
        if (node->dependency_count != other->dependencies.count)
            return false;
        for (size_t i = 0; i < node->dependency_count; i++) {
            uint32_t earlier = node->dependencies[i];
            CUgraphNode other_earlier = other->dependencies.items[i].node;
            if (pair[earlier] == other_earlier)
                continue;
            if (pair[earlier]) {
                info->errorFromNode = other_earlier;
                return false;
            }
            pair[earlier] = other_earlier;
            pending[top++] = earlier;
        }
    }
    return true;
}

// Pairs the nodes of a plan with those of a graph from the ends backwards, the way the driver documents it.
static bool pair_nodes(const struct plan *plan, CUgraph graph, CUgraphNode *order, CUgraphNode *pair, uint32_t *pending,
                       CUgraphExecUpdateResultInfo *info)
{
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    info->errorNode = info->errorFromNode = NULL;
    if (plan->count != graph->count)
        return false;
    size_t at = 0;
    for (size_t i = 0; i < graph->count; i++) {
        if (order[i]->dependents.count)
            continue;
        while (at < plan->count && !plan->nodes[at].is_sink)
            at++;
        if (at == plan->count) {
            info->errorNode = order[i]; // an end too many
            return false;
        }
        if (!pair_from_end(plan, (uint32_t)at++, order[i], pair, pending, info))
            return false;
    }
    for (size_t i = 0; i < plan->count; i++) {
        CUgraphNodeType kind = plan->nodes[i].child ? CU_GRAPH_NODE_TYPE_GRAPH : plan->nodes[i].operation.kind;
        info->errorNode = pair[i];
        // Two of the plan's nodes paired with one of the graph leave another one without a partner.
        if (!pair[i])
            return false;
        if (pair[i]->operation.kind != kind) {
            info->result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
            return false;
        }
    }
    return true;
}

static CUresult updated_plan(const struct plan *plan, CUgraph graph, struct plan **updated,
                             CUgraphExecUpdateResultInfo *info);

// The new plan is an image of the new graph that keeps the old one's names and switches.
static CUresult carry_over(const struct plan *plan, struct plan *fresh, CUgraphNode *order, const CUgraphNode *pair,
                           CUgraphExecUpdateResultInfo *info)
{
    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_node *old = &plan->nodes[i];
        size_t at = 0;
        while (order[at] != pair[i])
            at++;
        struct plan_node *node = &fresh->nodes[at];
        info->errorNode = pair[i];
        info->errorFromNode = NULL;
        if (old->child) {
            struct plan *child;
            CUresult result = updated_plan(old->child, pair[i]->operation.child, &child, info);
            if (result != CUDA_SUCCESS)
                return result;
            plan_drop(node->child);
            node->child = child;
        } else {
            info->result = change_of(&old->operation, &node->operation);
            if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
                return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        }
        for (unsigned body = 0; old->bodies && body < old->operation.conditional.size; body++) {
            struct plan *inside;
            CUresult result =
                updated_plan(old->bodies[body], pair[i]->operation.conditional.bodies[body], &inside, info);
            if (result != CUDA_SUCCESS)
                return result;
            plan_drop(node->bodies[body]);
            node->bodies[body] = inside;
        }
        node->source = old->source;
        node->disabled = old->disabled;
    }
    return CUDA_SUCCESS;
}

static CUresult updated_plan(const struct plan *plan, CUgraph graph, struct plan **updated,
                             CUgraphExecUpdateResultInfo *info)
{
    CUgraphNode *order = gv_calloc(graph->count + 1, sizeof *order);
    CUgraphNode *pair = gv_calloc(plan->count + 1, sizeof *pair);
    uint32_t *pending = gv_calloc(plan->count + graph->count + 1, sizeof *pending);
    struct plan *fresh = NULL;
    CUresult result = order && pair && pending ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && !graph_topological(graph, order))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && !pair_nodes(plan, graph, order, pair, pending, info))
        result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    if (result == CUDA_SUCCESS)
        result = plan_new(graph, &fresh);
    if (result == CUDA_SUCCESS)
        result = carry_over(plan, fresh, order, pair, info);
    gv_free(order);
    gv_free(pair);
    gv_free(pending);
    if (result != CUDA_SUCCESS)
        plan_drop(fresh);
    else
        *updated = fresh;
    return result;
}

static CUresult update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    if (!object_is(exec, OBJECT_EXEC) || !object_is(graph, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    if (!info || graph_is_body(graph))
        return CUDA_ERROR_INVALID_VALUE;
    struct plan *updated;
    CUgraphInstantiateResult why;
    CUresult result = conditional_check(graph, exec->object.id, &why);
    if (result == CUDA_SUCCESS)
        result = updated_plan(exec->plan, graph, &updated, info);
    if (result == CUDA_SUCCESS) {
        conditional_adopt(graph, exec->object.id);
        plan_drop(exec->plan);
        exec->plan = updated;
        *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
    } else if (result != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) {
        *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    }
    return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    SOFT_API(update(exec, graph, info));
}

static CUresult update_v1(CUgraphExec exec, CUgraph graph, CUgraphNode *error, CUgraphExecUpdateResult *updated)
{
    if (!updated)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    CUresult result = update(exec, graph, &info);
    *updated = info.result;
    if (error)
        *error = info.errorNode;
    return result;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error, CUgraphExecUpdateResult *updated)
{
    SOFT_API(update_v1(exec, graph, error, updated));
}

// ---- Single nodes ----

// The exec's node of that kind, in a plan that may be changed.
static CUresult find_node(CUgraphExec exec, CUgraphNode node, struct plan_node **found)
{
    if (!object_is(exec, OBJECT_EXEC) || !object_is(node, OBJECT_NODE))
        return CUDA_ERROR_INVALID_VALUE;
    if (!exec_find(exec->plan, node))
        return CUDA_ERROR_INVALID_VALUE;
    struct plan *plan;
    CUresult result = exec_own_plan(exec, &plan);
    if (result == CUDA_SUCCESS)
        *found = exec_find(plan, node);
    return result;
}

static CUresult set_params(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *parameters)
{
    struct plan_node *found;
    CUresult result = find_node(exec, node, &found);
    if (result != CUDA_SUCCESS)
        return result;
    if (!parameters || found->child || parameters->type != found->operation.kind)
        return CUDA_ERROR_INVALID_VALUE;
    if (parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || parameters->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
        parameters->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct operation fresh;
    result = node_operation(&fresh, NULL, parameters);
    if (result != CUDA_SUCCESS)
        return result;
    if (change_of(&found->operation, &fresh) != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        operation_clear(&fresh);
        return CUDA_ERROR_INVALID_VALUE;
    }
    operation_replace(&found->operation, &fresh);
    return CUDA_SUCCESS;
}

static CUresult set_child(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    struct plan_node *found;
    CUresult result = find_node(exec, node, &found);
    if (result != CUDA_SUCCESS)
        return result;
    if (!object_is(child, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    if (!found->child)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphExecUpdateResultInfo info;
    struct plan *updated;
    result = updated_plan(found->child, child, &updated, &info);
    if (result != CUDA_SUCCESS)
        return result;
    plan_drop(found->child);
    found->child = updated;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    SOFT_API(set_child(exec, node, child));
}

static CUresult set_any(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *parameters)
{
    if (parameters && parameters->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return set_child(exec, node, parameters->graph.graph);
    return set_params(exec, node, parameters);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *parameters)
{
    SOFT_API(set_any(exec, node, parameters));
}

#define SET(convert, ...)                           \
    do {                                            \
        if (!parameters)                            \
            return CUDA_ERROR_INVALID_VALUE;        \
        CUgraphNodeParams general;                  \
        convert(&general, __VA_ARGS__);             \
        SOFT_API(set_params(exec, node, &general)); \
    } while (0)

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *parameters)
{
    SET(node_params_kernel_v1, parameters);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    SET(node_params_kernel_v2, parameters);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *parameters,
                                        CUcontext context)
{
    SET(node_params_memcpy, parameters, context);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *parameters,
                                        CUcontext context)
{
    SET(node_params_memset, parameters, context);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *parameters)
{
    SET(node_params_host, parameters);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS *parameters)
{
    SET(node_params_values, parameters);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    CUgraphNodeParams general = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    general.eventRecord.event = event;
    SOFT_API(set_params(exec, node, &general));
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    CUgraphNodeParams general = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT};
    general.eventWait.event = event;
    SOFT_API(set_params(exec, node, &general));
}

static bool can_be_disabled(const struct plan_node *node)
{
    return !node->child &&
           (node->operation.kind == CU_GRAPH_NODE_TYPE_KERNEL || node->operation.kind == CU_GRAPH_NODE_TYPE_MEMCPY ||
            node->operation.kind == CU_GRAPH_NODE_TYPE_MEMSET);
}

static CUresult set_enabled(CUgraphExec exec, CUgraphNode node, unsigned enabled)
{
    struct plan_node *found;
    CUresult result = find_node(exec, node, &found);
    if (result != CUDA_SUCCESS)
        return result;
    if (!can_be_disabled(found) || enabled > 1)
        return CUDA_ERROR_INVALID_VALUE;
    found->disabled = !enabled;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
    SOFT_API(set_enabled(exec, node, enabled));
}

static CUresult get_enabled(CUgraphExec exec, CUgraphNode node, unsigned *enabled)
{
    if (!object_is(exec, OBJECT_EXEC) || !object_is(node, OBJECT_NODE))
        return CUDA_ERROR_INVALID_VALUE;
    const struct plan_node *found = exec_find(exec->plan, node);
    if (!found || !enabled || !can_be_disabled(found))
        return CUDA_ERROR_INVALID_VALUE;
    *enabled = !found->disabled;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled)
{
    SOFT_API(get_enabled(exec, node, enabled));
}
