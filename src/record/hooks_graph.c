// Hooks of the graph API: nodes that are added, graphs that are copied, executable graphs that are made, changed and
// launched.
#include "record/arm.h"
#include "record/fix.h"
#include "record/graph.h"
#include "record/hook.h"
#include "record/ids.h"
#include "record/recorder.h"

// ---- Adding nodes --------------------------------------------------------------------------------------------

// Every call that adds a node has the new node first and the graph second.
#define GV_ADD_HOOK(symbol, parameters, arguments) \
    GV_HOOK(symbol, parameters, arguments)         \
    {                                              \
        if (!gv_enter_graph())                     \
            return real arguments;                 \
        CUresult result = real arguments;          \
        if (result == CUDA_SUCCESS)                \
            gv_node_added(graph, *node);           \
        gv_leave();                                \
        return result;                             \
    }
#define HEAD CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count

GV_ADD_HOOK(cuGraphAddKernelNode, (HEAD, const CUDA_KERNEL_NODE_PARAMS_v1 *params), (node, graph, from, count, params))
GV_ADD_HOOK(cuGraphAddKernelNode_v2, (HEAD, const CUDA_KERNEL_NODE_PARAMS *params), (node, graph, from, count, params))
GV_ADD_HOOK(cuGraphAddMemcpyNode, (HEAD, const CUDA_MEMCPY3D *params, CUcontext context),
            (node, graph, from, count, params, context))
GV_ADD_HOOK(cuGraphAddMemsetNode, (HEAD, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context),
            (node, graph, from, count, params, context))
GV_ADD_HOOK(cuGraphAddHostNode, (HEAD, const CUDA_HOST_NODE_PARAMS *params), (node, graph, from, count, params))
GV_ADD_HOOK(cuGraphAddEmptyNode, (HEAD), (node, graph, from, count))
GV_ADD_HOOK(cuGraphAddEventRecordNode, (HEAD, CUevent event), (node, graph, from, count, event))
GV_ADD_HOOK(cuGraphAddEventWaitNode, (HEAD, CUevent event), (node, graph, from, count, event))
GV_ADD_HOOK(cuGraphAddExternalSemaphoresSignalNode, (HEAD, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params),
            (node, graph, from, count, params))
GV_ADD_HOOK(cuGraphAddExternalSemaphoresWaitNode, (HEAD, const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params),
            (node, graph, from, count, params))
GV_ADD_HOOK(cuGraphAddBatchMemOpNode, (HEAD, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params),
            (node, graph, from, count, params))
GV_ADD_HOOK(cuGraphAddMemAllocNode, (HEAD, CUDA_MEM_ALLOC_NODE_PARAMS *params), (node, graph, from, count, params))
GV_ADD_HOOK(cuGraphAddMemFreeNode, (HEAD, CUdeviceptr pointer), (node, graph, from, count, pointer))

GV_HOOK(cuGraphAddChildGraphNode, (HEAD, CUgraph child), (node, graph, from, count, child))
{
    if (!gv_enter_graph())
        return real(node, graph, from, count, child);
    CUresult result = real(node, graph, from, count, child);
    if (result == CUDA_SUCCESS)
        gv_child_added(graph, *node, child);
    gv_leave();
    return result;
}

static void any_added(CUgraph graph, CUgraphNode node, const CUgraphNodeParams *params)
{
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        gv_child_added(graph, node, params->graph.graph);
    else if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        gv_conditional_added(graph, node, &params->conditional);
    else
        gv_node_added(graph, node);
}

GV_HOOK(cuGraphAddNode, (HEAD, CUgraphNodeParams *params), (node, graph, from, count, params))
{
    if (!gv_enter_graph())
        return real(node, graph, from, count, params);
    CUresult result = real(node, graph, from, count, params);
    if (result == CUDA_SUCCESS)
        any_added(graph, *node, params);
    gv_leave();
    return result;
}

GV_HOOK(cuGraphAddNode_v2,
        (CUgraphNode * node, CUgraph graph, const CUgraphNode *from, const CUgraphEdgeData *data, size_t count,
         CUgraphNodeParams *params),
        (node, graph, from, data, count, params))
{
    if (!gv_enter_graph())
        return real(node, graph, from, data, count, params);
    CUresult result = real(node, graph, from, data, count, params);
    if (result == CUDA_SUCCESS)
        any_added(graph, *node, params);
    gv_leave();
    return result;
}

GV_HOOK(cuGraphConditionalHandleCreate,
        (CUgraphConditionalHandle * handle, CUgraph graph, CUcontext context, unsigned initial, unsigned flags),
        (handle, graph, context, initial, flags))
{
    if (!gv_enter_graph())
        return real(handle, graph, context, initial, flags);
    CUresult result = real(handle, graph, context, initial, flags);
    if (result == CUDA_SUCCESS)
        gv_handle_created(graph, *handle, context, initial, flags);
    gv_leave();
    return result;
}

GV_HOOK(cuGraphClone, (CUgraph * copy, CUgraph original), (copy, original))
{
    if (!gv_enter_graph())
        return real(copy, original);
    CUresult result = real(copy, original);
    if (result == CUDA_SUCCESS)
        gv_graph_copied(original, *copy);
    gv_leave();
    return result;
}

GV_HOOK(cuGraphDestroy, (CUgraph graph), (graph))
{
    if (!gv_enter_graph())
        return real(graph);
    gv_graph_destroyed(graph);
    CUresult result = real(graph);
    gv_leave();
    return result;
}

// ---- Instantiate, update, destroy ----------------------------------------------------------------------------

#define GV_INSTANTIATE_LOG_HOOK(symbol)                                                              \
    GV_HOOK(symbol, (CUgraphExec * exec, CUgraph graph, CUgraphNode * node, char *log, size_t size), \
            (exec, graph, node, log, size))                                                          \
    {                                                                                                \
        if (!gv_enter_graph())                                                                       \
            return real(exec, graph, node, log, size);                                               \
        gv_fixing *fixing = gv_fix_instantiate(graph, 0);                                            \
        CUresult result = real(exec, graph, node, log, size);                                        \
        if (result != CUDA_SUCCESS && gv_fix_retry(fixing, result))                                  \
            result = real(exec, graph, node, log, size);                                             \
        if (result == CUDA_SUCCESS)                                                                  \
            gv_exec_created(*exec, graph, 0, fixing);                                                \
        gv_fix_end(fixing, NULL);                                                                    \
        gv_leave();                                                                                  \
        return result;                                                                               \
    }
GV_INSTANTIATE_LOG_HOOK(cuGraphInstantiate)
GV_INSTANTIATE_LOG_HOOK(cuGraphInstantiate_v2)

GV_HOOK(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
        (exec, graph, flags))
{
    if (!gv_enter_graph())
        return real(exec, graph, flags);
    gv_fixing *fixing = gv_fix_instantiate(graph, flags);
    CUresult result = real(exec, graph, flags);
    if (result != CUDA_SUCCESS && gv_fix_retry(fixing, result))
        result = real(exec, graph, flags);
    if (result == CUDA_SUCCESS)
        gv_exec_created(*exec, graph, flags, fixing);
    gv_fix_end(fixing, NULL);
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuGraphInstantiateWithParams, _ptsz,
             (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), (exec, graph, params))
{
    if (!gv_enter_graph())
        return real(exec, graph, params);
    gv_fixing *fixing = gv_fix_instantiate(graph, params ? params->flags : 0);
    CUresult result = real(exec, graph, params);
    if (result != CUDA_SUCCESS && gv_fix_retry(fixing, result))
        result = real(exec, graph, params);
    if (result == CUDA_SUCCESS)
        gv_exec_created(*exec, graph, params->flags, fixing);
    gv_fix_end(fixing, NULL);
    gv_leave();
    return result;
}

GV_HOOK(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *outcome),
        (exec, graph, error_node, outcome))
{
    if (!gv_enter_graph())
        return real(exec, graph, error_node, outcome);
    gv_fixing *fixing = gv_fix_update(exec, graph);
    CUresult result = real(exec, graph, error_node, outcome);
    if (result == CUDA_SUCCESS)
        gv_exec_updated(exec, graph, fixing);
    gv_fix_end(fixing, result == CUDA_SUCCESS ? NULL : error_node);
    gv_leave();
    return result;
}

GV_HOOK(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info), (exec, graph, info))
{
    if (!gv_enter_graph())
        return real(exec, graph, info);
    gv_fixing *fixing = gv_fix_update(exec, graph);
    CUresult result = real(exec, graph, info);
    if (result == CUDA_SUCCESS)
        gv_exec_updated(exec, graph, fixing);
    gv_fix_end(fixing, result == CUDA_SUCCESS || !info ? NULL : &info->errorNode);
    gv_leave();
    return result;
}

GV_HOOK(cuGraphExecDestroy, (CUgraphExec exec), (exec))
{
    if (!gv_enter_graph())
        return real(exec);
    gv_exec *row = gv_exec_take(exec);
    CUresult result = real(exec);
    if (result == CUDA_SUCCESS)
        gv_exec_destroyed(row);
    else
        gv_exec_put_back(row);
    gv_leave();
    return result;
}

// ---- Changing the nodes of an executable graph ---------------------------------------------------------------

static CUresult apply_kernel(CUgraphNode node, const void *params)
{
    return gv_cuda.cuGraphKernelNodeSetParams(node, params);
}

static CUresult apply_memcpy(CUgraphNode node, const void *params)
{
    return gv_cuda.cuGraphMemcpyNodeSetParams(node, params);
}

static CUresult apply_memset(CUgraphNode node, const void *params)
{
    return gv_cuda.cuGraphMemsetNodeSetParams(node, params);
}

static CUresult apply_host(CUgraphNode node, const void *params)
{
    return gv_cuda.cuGraphHostNodeSetParams(node, params);
}

static CUresult apply_event_record(CUgraphNode node, const void *params)
{
    return gv_cuda.cuGraphEventRecordNodeSetEvent(node, (CUevent)params);
}

static CUresult apply_event_wait(CUgraphNode node, const void *params)
{
    return gv_cuda.cuGraphEventWaitNodeSetEvent(node, (CUevent)params);
}

#define GV_SET_HOOK(symbol, parameters, arguments, apply, params) \
    GV_HOOK(symbol, parameters, arguments)                        \
    {                                                             \
        if (!gv_enter())                                          \
            return real arguments;                                \
        CUresult result = real arguments;                         \
        if (result == CUDA_SUCCESS)                               \
            gv_exec_node_changed(exec, node, apply, params);      \
        gv_leave();                                               \
        return result;                                            \
    }
GV_SET_HOOK(cuGraphExecKernelNodeSetParams_v2,
            (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params), (exec, node, params),
            apply_kernel, params)
GV_SET_HOOK(cuGraphExecMemcpyNodeSetParams,
            (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext context),
            (exec, node, params, context), apply_memcpy, params)
GV_SET_HOOK(cuGraphExecMemsetNodeSetParams,
            (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context),
            (exec, node, params, context), apply_memset, params)
GV_SET_HOOK(cuGraphExecHostNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params),
            (exec, node, params), apply_host, params)
GV_SET_HOOK(cuGraphExecEventRecordNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event),
            (exec, node, event), apply_event_record, event)
GV_SET_HOOK(cuGraphExecEventWaitNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event), (exec, node, event),
            apply_event_wait, event)

// The first version of the parameters has no kernel handle and no context: cleared, they mean the same.
GV_HOOK(cuGraphExecKernelNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
        (exec, node, params))
{
    if (!gv_enter())
        return real(exec, node, params);
    CUresult result = real(exec, node, params);
    if (result == CUDA_SUCCESS) {
        CUDA_KERNEL_NODE_PARAMS full = {
            .func = params->func,
            .gridDimX = params->gridDimX,
            .gridDimY = params->gridDimY,
            .gridDimZ = params->gridDimZ,
            .blockDimX = params->blockDimX,
            .blockDimY = params->blockDimY,
            .blockDimZ = params->blockDimZ,
            .sharedMemBytes = params->sharedMemBytes,
            .kernelParams = params->kernelParams,
            .extra = params->extra,
        };
        gv_exec_node_changed(exec, node, apply_kernel, &full);
    }
    gv_leave();
    return result;
}

GV_HOOK(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph child), (exec, node, child))
{
    if (!gv_enter_graph())
        return real(exec, node, child);
    gv_fixing *fixing = gv_fix_child(exec, node, child);
    CUresult result = real(exec, node, child);
    if (result == CUDA_SUCCESS)
        gv_exec_child_changed(exec, node, child);
    gv_fix_end(fixing, NULL);
    gv_leave();
    return result;
}

typedef CUresult set_any(CUgraphNode node, CUgraphNodeParams *params);

static CUresult apply_any(CUgraphNode node, const void *params)
{
    set_any *set = (set_any *)gv_driver_symbol("cuGraphNodeSetParams");
    return set ? set(node, (CUgraphNodeParams *)params) : CUDA_ERROR_NOT_SUPPORTED;
}

GV_HOOK(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params), (exec, node, params))
{
    bool child = params && params->type == CU_GRAPH_NODE_TYPE_GRAPH;
    if (!(child ? gv_enter_graph() : gv_enter()))
        return real(exec, node, params);
    gv_fixing *fixing = child ? gv_fix_child(exec, node, params->graph.graph) : NULL;
    CUresult result = real(exec, node, params);
    if (result == CUDA_SUCCESS) {
        if (child)
            gv_exec_child_changed(exec, node, params->graph.graph);
        else
            gv_exec_node_changed(exec, node, apply_any, params);
    }
    gv_fix_end(fixing, NULL);
    gv_leave();
    return result;
}

GV_HOOK(cuGraphExecBatchMemOpNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params), (exec, node, params))
{
    if (!gv_enter())
        return real(exec, node, params);
    CUresult result = real(exec, node, params);
    if (result == CUDA_SUCCESS)
        gv_exec_now_unknown(exec, "the parameters of a batch memory operation were replaced");
    gv_leave();
    return result;
}

GV_HOOK(cuGraphNodeSetEnabled, (CUgraphExec exec, CUgraphNode node, unsigned enabled), (exec, node, enabled))
{
    if (!gv_enter())
        return real(exec, node, enabled);
    CUresult result = real(exec, node, enabled);
    if (result == CUDA_SUCCESS)
        gv_exec_node_enabled(exec, node, enabled != 0);
    gv_leave();
    return result;
}

// ---- Launch --------------------------------------------------------------------------------------------------

GV_HOOK_PAIR(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream stream), (exec, stream))
{
    return gv_launch_graph(real, exec, stream, per_thread);
}
