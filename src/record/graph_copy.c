#include "record/graph_copy.h"

#include "base/memory.h"
#include "record/driver.h"

#include <string.h>

static CUresult copy_kernel(CUgraph graph, CUgraphNode from, const CUDA_KERNEL_NODE_PARAMS *given,
                            const CUgraphNode *after, size_t count, CUgraphNode *copy)
{
    CUDA_KERNEL_NODE_PARAMS params;
    memset(&params, 0, sizeof params);
    CUresult result = given ? CUDA_SUCCESS : gv_cuda.cuGraphKernelNodeGetParams(from, &params);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuGraphAddKernelNode(copy, graph, after, count, given ? given : &params);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuGraphKernelNodeCopyAttributes(*copy, from);
    return result;
}

CUresult gv_copy_node(CUgraph graph, CUgraphNode from, CUgraphNodeType type, const CUDA_KERNEL_NODE_PARAMS *params,
                      CUcontext context, const CUgraphNode *after, size_t count, CUgraphNode *copy)
{
    union {
        CUDA_MEMCPY3D memcpy;
        CUDA_MEMSET_NODE_PARAMS memset;
        CUDA_HOST_NODE_PARAMS host;
        CUevent event;
        CUgraph child;
    } p;
    memset(&p, 0, sizeof p);
    CUresult result;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return copy_kernel(graph, from, params, after, count, copy);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        result = gv_cuda.cuGraphMemcpyNodeGetParams(from, &p.memcpy);
        return result == CUDA_SUCCESS ? gv_cuda.cuGraphAddMemcpyNode(copy, graph, after, count, &p.memcpy, context)
                                      : result;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        result = gv_cuda.cuGraphMemsetNodeGetParams(from, &p.memset);
        return result == CUDA_SUCCESS ? gv_cuda.cuGraphAddMemsetNode(copy, graph, after, count, &p.memset, context)
                                      : result;
    case CU_GRAPH_NODE_TYPE_HOST:
        result = gv_cuda.cuGraphHostNodeGetParams(from, &p.host);
        return result == CUDA_SUCCESS ? gv_cuda.cuGraphAddHostNode(copy, graph, after, count, &p.host) : result;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        result = gv_cuda.cuGraphEventRecordNodeGetEvent(from, &p.event);
        return result == CUDA_SUCCESS ? gv_cuda.cuGraphAddEventRecordNode(copy, graph, after, count, p.event) : result;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        result = gv_cuda.cuGraphEventWaitNodeGetEvent(from, &p.event);
        return result == CUDA_SUCCESS ? gv_cuda.cuGraphAddEventWaitNode(copy, graph, after, count, p.event) : result;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        result = gv_cuda.cuGraphChildGraphNodeGetGraph(from, &p.child);
        return result == CUDA_SUCCESS ? gv_cuda.cuGraphAddChildGraphNode(copy, graph, after, count, p.child) : result;
    case CU_GRAPH_NODE_TYPE_EMPTY: return gv_cuda.cuGraphAddEmptyNode(copy, graph, after, count);
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult gv_copy_nodes(CUgraph original, CUcontext context, CUgraph *copy)
{
    size_t count = 0;
    CUgraphNode *nodes = NULL, made;
    *copy = NULL;
    CUresult result = gv_cuda.cuGraphGetNodes(original, NULL, &count);
    if (result == CUDA_SUCCESS && count) {
        nodes = gv_calloc(count, sizeof *nodes);
        result = nodes ? gv_cuda.cuGraphGetNodes(original, nodes, &count) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuGraphCreate(copy, 0);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        CUgraphNodeType type;
        result = gv_cuda.cuGraphNodeGetType(nodes[i], &type);
        if (result == CUDA_SUCCESS &&
            gv_copy_node(*copy, nodes[i], type, NULL, context, NULL, 0, &made) != CUDA_SUCCESS)
            result = gv_cuda.cuGraphAddEmptyNode(&made, *copy, NULL, 0);
    }
    gv_free(nodes);
    if (result != CUDA_SUCCESS && *copy) {
        gv_cuda.cuGraphDestroy(*copy);
        *copy = NULL;
    }
    return result;
}
