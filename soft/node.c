// Graph nodes: the driver API's functions that make them and that read and change their parameters.
#include "soft/node.h"

#include "soft/conditional.h"
#include "soft/context.h"
#include "soft/copy.h"
#include "soft/event.h"
#include "soft/launch.h"
#include "soft/memory.h"
#include "soft/module.h"
#include "soft/values.h"

// ---- From parameters to operations ----

// A context named in parameters, or the current one.
static CUresult context_or_current(CUcontext given, CUcontext *context)
{
    if (!given)
        return context_current(context);
    if (!object_is(given, OBJECT_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = given;
    return CUDA_SUCCESS;
}

static CUresult kernel_operation_of(struct operation *operation, const CUDA_KERNEL_NODE_PARAMS_v3 *parameters)
{
    CUcontext context;
    CUresult result = context_or_current(parameters->ctx, &context);
    if (result != CUDA_SUCCESS)
        return result;
    const unsigned grid[3] = {parameters->gridDimX, parameters->gridDimY, parameters->gridDimZ};
    const unsigned block[3] = {parameters->blockDimX, parameters->blockDimY, parameters->blockDimZ};
    const void *function = parameters->func ? (const void *)parameters->func : (const void *)parameters->kern;
    return kernel_operation_make(operation, context, function, grid, block, parameters->sharedMemBytes,
                                 parameters->kernelParams, parameters->extra);
}

static CUresult copy_operation_of(struct operation *operation, const CUDA_MEMCPY3D *copy, CUcontext given)
{
    CUcontext context;
    CUresult result = context_or_current(given, &context);
    if (result == CUDA_SUCCESS)
        result = copy_check(copy);
    if (result != CUDA_SUCCESS)
        return result;
    operation->kind = CU_GRAPH_NODE_TYPE_MEMCPY;
    operation->copy = (struct copy_operation){.parameters = *copy, .context = context};
    return CUDA_SUCCESS;
}

static CUresult set_operation_of(struct operation *operation, const CUDA_MEMSET_NODE_PARAMS_v2 *set)
{
    CUcontext context;
    CUresult result = context_or_current(set->ctx, &context);
    if (result != CUDA_SUCCESS)
        return result;
    CUDA_MEMSET_NODE_PARAMS plain = {set->dst, set->pitch, set->value, set->elementSize, set->width, set->height};
    result = set_check(&plain);
    if (result != CUDA_SUCCESS)
        return result;
    operation->kind = CU_GRAPH_NODE_TYPE_MEMSET;
    operation->set = (struct set_operation){plain, context};
    return CUDA_SUCCESS;
}

static bool graph_is_inside(CUgraph graph, CUgraph outer)
{
    for (; graph; graph = graph->owner ? graph->owner->graph : NULL)
        if (graph == outer)
            return true;
    return false;
}

static CUresult child_operation_of(struct operation *operation, CUgraph graph, CUgraph child)
{
    if (!object_is(child, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    // The node gets a clone, so even a graph in itself would end; the driver refuses it all the same.
    if (graph && graph_is_inside(graph, child))
        return CUDA_ERROR_INVALID_VALUE;
    if (graph_has_conditionals(child))
        return CUDA_ERROR_NOT_SUPPORTED;
    operation->kind = CU_GRAPH_NODE_TYPE_GRAPH;
    return graph_clone(child, &operation->child);
}

static CUresult event_operation_of(struct operation *operation, CUgraphNodeType kind, CUevent event)
{
    if (!object_is(event, OBJECT_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    operation->kind = kind;
    operation->event = event_keep(event);
    return CUDA_SUCCESS;
}

static CUresult alloc_operation_of(struct operation *operation, CUDA_MEM_ALLOC_NODE_PARAMS_v2 *parameters)
{
    if (parameters->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        parameters->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !device_valid(parameters->poolProps.location.id) || !parameters->bytesize)
        return CUDA_ERROR_INVALID_VALUE;
    if (parameters->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct graph_memory *memory;
    CUresult result = graph_memory_new(parameters->bytesize, &memory);
    if (result != CUDA_SUCCESS)
        return result;
    parameters->dptr = memory->allocation->address;
    operation->kind = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    operation->memory = (struct memory_operation){.memory = memory, .address = parameters->dptr};
    CUDA_MEM_ALLOC_NODE_PARAMS *kept = &operation->memory.parameters;
    kept->poolProps = parameters->poolProps;
    kept->bytesize = parameters->bytesize;
    kept->dptr = parameters->dptr;
    return CUDA_SUCCESS;
}

CUresult node_free_operation(struct operation *operation, CUgraph graph, CUdeviceptr address)
{
    *operation = (struct operation){.kind = CU_GRAPH_NODE_TYPE_EMPTY};
    struct allocation *allocation = memory_find(address);
    if (!allocation || allocation->address != address || allocation->kind != MEMORY_NODE)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; graph && i < graph->count; i++) {
        const struct operation *other = &graph->nodes[i]->operation;
        if (other->kind == CU_GRAPH_NODE_TYPE_MEM_FREE && other->memory.address == address)
            return CUDA_ERROR_INVALID_VALUE; // once is enough
    }
    operation->kind = CU_GRAPH_NODE_TYPE_MEM_FREE;
    operation->memory = (struct memory_operation){.memory = graph_memory_keep(allocation->owner), .address = address};
    return CUDA_SUCCESS;
}

static CUresult values_operation_of(struct operation *operation, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *parameters)
{
    CUcontext context;
    CUresult result = context_or_current(parameters->ctx, &context);
    if (result != CUDA_SUCCESS)
        return result;
    return values_make(operation, context, parameters->paramArray, parameters->count, parameters->flags);
}

CUresult node_operation(struct operation *operation, CUgraph graph, CUgraphNodeParams *parameters)
{
    *operation = (struct operation){.kind = CU_GRAPH_NODE_TYPE_EMPTY};
    switch (parameters->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return kernel_operation_of(operation, &parameters->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return copy_operation_of(operation, &parameters->memcpy.copyParams, parameters->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: return set_operation_of(operation, &parameters->memset);
    case CU_GRAPH_NODE_TYPE_HOST:
        if (!parameters->host.fn)
            return CUDA_ERROR_INVALID_VALUE;
        operation->kind = CU_GRAPH_NODE_TYPE_HOST;
        operation->host = (struct host_operation){.function = parameters->host.fn, .data = parameters->host.userData};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH: return child_operation_of(operation, graph, parameters->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY: return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return event_operation_of(operation, parameters->type, parameters->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return event_operation_of(operation, parameters->type, parameters->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return alloc_operation_of(operation, &parameters->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return node_free_operation(operation, graph, parameters->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return values_operation_of(operation, &parameters->memOp);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return conditional_operation_of(operation, graph, &parameters->conditional);
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

void node_params_kernel_v1(CUgraphNodeParams *general, const CUDA_KERNEL_NODE_PARAMS_v1 *from)
{
    *general = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_KERNEL};
    general->kernel = (CUDA_KERNEL_NODE_PARAMS_v3){.func = from->func,
                                                   .gridDimX = from->gridDimX,
                                                   .gridDimY = from->gridDimY,
                                                   .gridDimZ = from->gridDimZ,
                                                   .blockDimX = from->blockDimX,
                                                   .blockDimY = from->blockDimY,
                                                   .blockDimZ = from->blockDimZ,
                                                   .sharedMemBytes = from->sharedMemBytes,
                                                   .kernelParams = from->kernelParams,
                                                   .extra = from->extra};
}

void node_params_kernel_v2(CUgraphNodeParams *general, const CUDA_KERNEL_NODE_PARAMS_v2 *from)
{
    CUDA_KERNEL_NODE_PARAMS_v1 first = {from->func,         from->gridDimX,  from->gridDimY,  from->gridDimZ,
                                        from->blockDimX,    from->blockDimY, from->blockDimZ, from->sharedMemBytes,
                                        from->kernelParams, from->extra};
    node_params_kernel_v1(general, &first);
    general->kernel.kern = from->kern;
    general->kernel.ctx = from->ctx;
}

void node_params_memcpy(CUgraphNodeParams *general, const CUDA_MEMCPY3D *from, CUcontext context)
{
    *general = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    general->memcpy.copyParams = *from;
    general->memcpy.copyCtx = context;
}

void node_params_memset(CUgraphNodeParams *general, const CUDA_MEMSET_NODE_PARAMS *from, CUcontext context)
{
    *general = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMSET};
    general->memset = (CUDA_MEMSET_NODE_PARAMS_v2){from->dst,   from->pitch,  from->value, from->elementSize,
                                                   from->width, from->height, context};
}

void node_params_host(CUgraphNodeParams *general, const CUDA_HOST_NODE_PARAMS *from)
{
    *general = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_HOST};
    general->host.fn = from->fn;
    general->host.userData = from->userData;
}

void node_params_values(CUgraphNodeParams *general, const CUDA_BATCH_MEM_OP_NODE_PARAMS *from)
{
    *general = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    general->memOp.ctx = from->ctx;
    general->memOp.count = from->count;
    general->memOp.paramArray = from->paramArray;
    general->memOp.flags = from->flags;
}

void operation_replace(struct operation *operation, struct operation *fresh)
{
    if (operation->kind == CU_GRAPH_NODE_TYPE_KERNEL) {
        fresh->kernel.attributes = operation->kernel.attributes;
        fresh->kernel.attributes_set = operation->kernel.attributes_set;
        operation->kernel.attributes = NULL;
    }
    operation_clear(operation);
    *operation = *fresh;
}

// ---- Adding nodes ----

static CUresult add_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *data,
                         size_t count, CUgraphNodeParams *parameters)
{
    if (!object_is(graph, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    if (!node || !parameters || (count && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!object_is(dependencies[i], OBJECT_NODE) || dependencies[i]->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
    struct operation operation;
    CUresult result = node_operation(&operation, graph, parameters);
    if (result != CUDA_SUCCESS)
        return result;
    return graph_add_node(graph, &operation, dependencies, data, count, node);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *parameters)
{
    SOFT_API(add_node(node, graph, dependencies, data, count, parameters));
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                        CUgraphNodeParams *parameters)
{
    SOFT_API(add_node(node, graph, dependencies, NULL, count, parameters));
}

// The body of the older calls: one parameter structure each, turned into the general one.
#define ADD(convert, ...)                                                     \
    do {                                                                      \
        if (!parameters)                                                      \
            return CUDA_ERROR_INVALID_VALUE;                                  \
        CUgraphNodeParams general;                                            \
        convert(&general, __VA_ARGS__);                                       \
        SOFT_API(add_node(node, graph, dependencies, NULL, count, &general)); \
    } while (0)

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *parameters)
{
    ADD(node_params_kernel_v1, parameters);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    ADD(node_params_kernel_v2, parameters);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_MEMCPY3D *parameters, CUcontext context)
{
    ADD(node_params_memcpy, parameters, context);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *parameters, CUcontext context)
{
    ADD(node_params_memset, parameters, context);
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            const CUDA_HOST_NODE_PARAMS *parameters)
{
    ADD(node_params_host, parameters);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS *parameters)
{
    ADD(node_params_values, parameters);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                  CUgraph child)
{
    CUgraphNodeParams general = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    general.graph.graph = child;
    SOFT_API(add_node(node, graph, dependencies, NULL, count, &general));
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count)
{
    CUgraphNodeParams general = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    SOFT_API(add_node(node, graph, dependencies, NULL, count, &general));
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                   CUevent event)
{
    CUgraphNodeParams general = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    general.eventRecord.event = event;
    SOFT_API(add_node(node, graph, dependencies, NULL, count, &general));
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                 CUevent event)
{
    CUgraphNodeParams general = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT};
    general.eventWait.event = event;
    SOFT_API(add_node(node, graph, dependencies, NULL, count, &general));
}

static CUresult add_alloc_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                               CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    CUgraphNodeParams general = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    general.alloc.poolProps = parameters->poolProps;
    general.alloc.accessDescs = parameters->accessDescs;
    general.alloc.accessDescCount = parameters->accessDescCount;
    general.alloc.bytesize = parameters->bytesize;
    CUresult result = add_node(node, graph, dependencies, NULL, count, &general);
    if (result == CUDA_SUCCESS)
        parameters->dptr = general.alloc.dptr;
    return result;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    if (!parameters)
        return CUDA_ERROR_INVALID_VALUE;
    SOFT_API(add_alloc_node(node, graph, dependencies, count, parameters));
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                               CUdeviceptr address)
{
    CUgraphNodeParams general = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE};
    general.free.dptr = address;
    SOFT_API(add_node(node, graph, dependencies, NULL, count, &general));
}

// ---- Reading parameters ----

static CUresult node_of_kind(CUgraphNode node, CUgraphNodeType kind, const void *output)
{
    if (!object_is(node, OBJECT_NODE))
        return CUDA_ERROR_INVALID_VALUE;
    return output && node->operation.kind == kind ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult get_type(CUgraphNode node, CUgraphNodeType *type)
{
    if (!object_is(node, OBJECT_NODE))
        return CUDA_ERROR_INVALID_VALUE;
    if (!type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->operation.kind;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    SOFT_API(get_type(node, type));
}

// The arrays returned are the node's own: they live until it is destroyed or changed.
static CUresult get_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *parameters)
{
    CUresult result = node_of_kind(node, CU_GRAPH_NODE_TYPE_KERNEL, parameters);
    if (result != CUDA_SUCCESS)
        return result;
    struct kernel_operation *kernel = &node->operation.kernel;
    kernel->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    kernel->extra[1] = kernel->values;
    kernel->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    kernel->extra[3] = &kernel->values_size;
    kernel->extra[4] = CU_LAUNCH_PARAM_END;
    *parameters = (CUDA_KERNEL_NODE_PARAMS_v2){
        .func = kernel->function,
        .gridDimX = kernel->grid[0],
        .gridDimY = kernel->grid[1],
        .gridDimZ = kernel->grid[2],
        .blockDimX = kernel->block[0],
        .blockDimY = kernel->block[1],
        .blockDimZ = kernel->block[2],
        .sharedMemBytes = kernel->shared_bytes,
        .kernelParams = kernel->packed ? NULL : kernel->parameters,
        .extra = kernel->packed ? kernel->extra : NULL,
        .kern = kernel->kernel,
        .ctx = kernel->context,
    };
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *parameters)
{
    SOFT_API(get_kernel(node, parameters));
}

static CUresult get_kernel_v1(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *parameters)
{
    CUDA_KERNEL_NODE_PARAMS_v2 second;
    CUresult result = parameters ? get_kernel(node, &second) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *parameters = (CUDA_KERNEL_NODE_PARAMS_v1){
            second.func,      second.gridDimX,  second.gridDimY,       second.gridDimZ,     second.blockDimX,
            second.blockDimY, second.blockDimZ, second.sharedMemBytes, second.kernelParams, second.extra};
    return result;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *parameters)
{
    SOFT_API(get_kernel_v1(node, parameters));
}

// A getter of one structure that the operation holds as it is.
#define NODE_GETTER(name, type, kind_of_node, value)             \
    static CUresult name##_locked(CUgraphNode node, type *out)   \
    {                                                            \
        CUresult result = node_of_kind(node, kind_of_node, out); \
        if (result == CUDA_SUCCESS)                              \
            *out = value;                                        \
        return result;                                           \
    }                                                            \
    CUresult name(CUgraphNode node, type *out)                   \
    {                                                            \
        SOFT_API(name##_locked(node, out));                      \
    }
NODE_GETTER(cuGraphMemcpyNodeGetParams, CUDA_MEMCPY3D, CU_GRAPH_NODE_TYPE_MEMCPY, node->operation.copy.parameters)
NODE_GETTER(cuGraphMemsetNodeGetParams, CUDA_MEMSET_NODE_PARAMS, CU_GRAPH_NODE_TYPE_MEMSET,
            node->operation.set.parameters)
NODE_GETTER(cuGraphHostNodeGetParams, CUDA_HOST_NODE_PARAMS, CU_GRAPH_NODE_TYPE_HOST,
            ((CUDA_HOST_NODE_PARAMS){node->operation.host.function, node->operation.host.data}))
NODE_GETTER(cuGraphChildGraphNodeGetGraph, CUgraph, CU_GRAPH_NODE_TYPE_GRAPH, node->operation.child)
NODE_GETTER(cuGraphEventRecordNodeGetEvent, CUevent, CU_GRAPH_NODE_TYPE_EVENT_RECORD, node->operation.event)
NODE_GETTER(cuGraphEventWaitNodeGetEvent, CUevent, CU_GRAPH_NODE_TYPE_WAIT_EVENT, node->operation.event)
NODE_GETTER(cuGraphMemAllocNodeGetParams, CUDA_MEM_ALLOC_NODE_PARAMS, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            node->operation.memory.parameters)
NODE_GETTER(cuGraphBatchMemOpNodeGetParams, CUDA_BATCH_MEM_OP_NODE_PARAMS, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
            ((CUDA_BATCH_MEM_OP_NODE_PARAMS){node->operation.values.context, node->operation.values.count,
                                             node->operation.values.items, node->operation.values.flags}))
NODE_GETTER(cuGraphMemFreeNodeGetParams, CUdeviceptr, CU_GRAPH_NODE_TYPE_MEM_FREE, node->operation.memory.address)

// ---- Changing parameters ----

static CUresult set_params(CUgraphNode node, CUgraphNodeParams *parameters)
{
    if (!object_is(node, OBJECT_NODE))
        return CUDA_ERROR_INVALID_VALUE;
    if (!parameters || parameters->type != node->operation.kind)
        return CUDA_ERROR_INVALID_VALUE;
    if (parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || parameters->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
        parameters->type == CU_GRAPH_NODE_TYPE_GRAPH || parameters->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct operation fresh;
    CUresult result = node_operation(&fresh, node->graph, parameters);
    if (result == CUDA_SUCCESS)
        operation_replace(&node->operation, &fresh);
    return result;
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *parameters)
{
    SOFT_API(set_params(node, parameters));
}

#define SET(convert, ...)                     \
    do {                                      \
        if (!parameters)                      \
            return CUDA_ERROR_INVALID_VALUE;  \
        CUgraphNodeParams general;            \
        convert(&general, __VA_ARGS__);       \
        SOFT_API(set_params(node, &general)); \
    } while (0)

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *parameters)
{
    SET(node_params_kernel_v1, parameters);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    SET(node_params_kernel_v2, parameters);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *parameters)
{
    SET(node_params_memcpy, parameters, NULL);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *parameters)
{
    SET(node_params_memset, parameters, NULL);
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *parameters)
{
    SET(node_params_host, parameters);
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *parameters)
{
    SET(node_params_values, parameters);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    CUgraphNodeParams general = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    general.eventRecord.event = event;
    SOFT_API(set_params(node, &general));
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    CUgraphNodeParams general = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT};
    general.eventWait.event = event;
    SOFT_API(set_params(node, &general));
}

// ---- Launch attributes of kernel nodes ----

// Attributes that say how one launch relates to others become edges, or mean nothing in a graph.
static bool is_node_attribute(CUkernelNodeAttrID id)
{
    switch ((int)id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case 13: // device-updatable node
    case 14: // preferred shared memory carveout
        return true;
    default: return false;
    }
}

static CUresult get_attribute(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue *value)
{
    CUresult result = node_of_kind(node, CU_GRAPH_NODE_TYPE_KERNEL, value);
    if (result != CUDA_SUCCESS)
        return result;
    const struct kernel_operation *kernel = &node->operation.kernel;
    if (!is_node_attribute(id))
        return CUDA_ERROR_INVALID_VALUE;
    if (kernel->attributes_set & 1u << id)
        *value = kernel->attributes[id];
    else
        memset(value, 0, sizeof *value);
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue *value)
{
    SOFT_API(get_attribute(node, id, value));
}

static CUresult set_attribute(CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue *value)
{
    CUresult result = node_of_kind(node, CU_GRAPH_NODE_TYPE_KERNEL, value);
    if (result == CUDA_SUCCESS && !is_node_attribute(id))
        result = CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_SUCCESS ? kernel_operation_set_attribute(&node->operation.kernel, id, value) : result;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue *value)
{
    SOFT_API(set_attribute(node, id, value));
}

static CUresult copy_attributes(CUgraphNode to, CUgraphNode from)
{
    CUresult result = node_of_kind(from, CU_GRAPH_NODE_TYPE_KERNEL, from);
    if (result == CUDA_SUCCESS)
        result = node_of_kind(to, CU_GRAPH_NODE_TYPE_KERNEL, to);
    const struct kernel_operation *kernel = result == CUDA_SUCCESS ? &from->operation.kernel : NULL;
    for (int id = 1; id < LAUNCH_ATTRIBUTES && result == CUDA_SUCCESS; id++)
        if (kernel->attributes_set & 1u << id && is_node_attribute((CUkernelNodeAttrID)id))
            result =
                kernel_operation_set_attribute(&to->operation.kernel, (CUlaunchAttributeID)id, &kernel->attributes[id]);
    return result;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
    SOFT_API(copy_attributes(to, from));
}
