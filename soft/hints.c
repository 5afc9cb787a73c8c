// Calls that ask for speed or set limits, which change nothing here beyond what can be read back; and user objects.
#include "soft/graph.h"
#include "soft/memory.h"
#include "soft/module.h"
#include "soft/stream.h"

// ---- Limits and caches of a context ----

static size_t limits[CU_LIMIT_MAX] = {
    [CU_LIMIT_STACK_SIZE] = (size_t)64 << 10,
    [CU_LIMIT_PRINTF_FIFO_SIZE] = (size_t)1 << 20,
    [CU_LIMIT_MALLOC_HEAP_SIZE] = (size_t)8 << 20,
};

static CUresult limit(CUlimit which, size_t *get, const size_t *set)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (which < 0 || which >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (set)
        limits[which] = *set;
    else if (get)
        *get = limits[which];
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit which)
{
    SOFT_API(limit(which, value, NULL));
}

CUresult cuCtxSetLimit(CUlimit which, size_t value)
{
    SOFT_API(limit(which, NULL, &value));
}

static CUresult cache_config(CUfunc_cache *get)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result == CUDA_SUCCESS && get)
        *get = CU_FUNC_CACHE_PREFER_NONE;
    return result;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    SOFT_API(cache_config(config));
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    SOFT_API(cache_config(NULL));
}

// ---- Occupancy: a multiprocessor holds 2048 threads and 32 blocks ----

static CUresult occupancy(int *blocks, const void *function, int block_size)
{
    if (!function_resolve(function))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!blocks || block_size < 1)
        return CUDA_ERROR_INVALID_VALUE;
    int fitting = block_size > 1024 ? 0 : 2048 / block_size;
    *blocks = fitting > 32 ? 32 : fitting;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size,
                                                     size_t shared_bytes)
{
    SOFT_API(occupancy(blocks, function, block_size));
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int block_size,
                                                              size_t shared_bytes, unsigned int flags)
{
    if (flags & ~CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
        return CUDA_ERROR_INVALID_VALUE;
    SOFT_API(occupancy(blocks, function, block_size));
}

// ---- Advice about memory ----

static CUresult advice(uint64_t address, size_t size, CUstream handle)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = stream_check(stream);
    if (result != CUDA_SUCCESS)
        return result;
    struct allocation *allocation = memory_find(address);
    bool managed = allocation && allocation->kind == MEMORY_MANAGED && memory_covers(address, size);
    return managed && size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise kind, CUdevice device)
{
    SOFT_API(advice(address, size, NULL));
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUdevice device, CUstream stream)
{
    SOFT_API(advice(address, size, stream));
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t size, CUdevice device, CUstream stream)
{
    SOFT_API(advice(address, size, PER_THREAD(stream)));
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise kind, CUmemLocation location)
{
    SOFT_API(advice(address, size, NULL));
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags,
                               CUstream stream)
{
    SOFT_API(advice(address, size, stream));
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags,
                                    CUstream stream)
{
    SOFT_API(advice(address, size, PER_THREAD(stream)));
}

// The whole allocation's visibility is all there is; an attachment to one stream is accepted.
CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t size, unsigned int flags)
{
    SOFT_API(advice(address, size ? size : 1, stream));
}

CUresult cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr address, size_t size, unsigned int flags)
{
    SOFT_API(advice(address, size ? size : 1, PER_THREAD(stream)));
}

static CUresult set_pointer_attribute(CUdeviceptr address, CUpointer_attribute attribute)
{
    if (!memory_find(address))
        return CUDA_ERROR_INVALID_VALUE;
    // Synchronous memory operations on a pointer are what it asks for; waiting longer is always right.
    return attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    SOFT_API(set_pointer_attribute(address, attribute));
}

// ---- Attributes of streams: of those that are kept, priority means something ----

static CUresult stream_attribute(CUstream handle, CUstreamAttrID id, CUstreamAttrValue *get,
                                 const CUstreamAttrValue *set)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!get && !set)
        return CUDA_ERROR_INVALID_VALUE;
    switch (id) {
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        if (set)
            stream->priority = set->priority;
        break;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN: break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    if (get) {
        memset(get, 0, sizeof *get);
        if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
            get->priority = stream->priority;
    }
    return CUDA_SUCCESS;
}

static CUresult copy_stream_attributes(CUstream to_handle, CUstream from_handle)
{
    CUstream to, from;
    CUresult result = stream_resolve(to_handle, &to);
    if (result == CUDA_SUCCESS)
        result = stream_resolve(from_handle, &from);
    return result;
}

#define STREAM_ATTRIBUTES(suffix, wrap)                                                                       \
    CUresult cuStreamGetAttribute##suffix(CUstream stream, CUstreamAttrID id, CUstreamAttrValue *value)       \
    {                                                                                                         \
        SOFT_API(stream_attribute(wrap(stream), id, value, NULL));                                            \
    }                                                                                                         \
    CUresult cuStreamSetAttribute##suffix(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value) \
    {                                                                                                         \
        SOFT_API(stream_attribute(wrap(stream), id, NULL, value));                                            \
    }                                                                                                         \
    CUresult cuStreamCopyAttributes##suffix(CUstream to, CUstream from)                                       \
    {                                                                                                         \
        SOFT_API(copy_stream_attributes(wrap(to), wrap(from)));                                               \
    }
STREAM_ATTRIBUTES(, )
STREAM_ATTRIBUTES(_ptsz, PER_THREAD)

// ---- Memory of graphs: an allocation node's memory is its own from its making to its end ----

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    SOFT_API(device_valid(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

static void add_memory(struct object *object, void *user)
{
    CUgraphNode node = (CUgraphNode)object;
    if (node->operation.kind == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        *(cuuint64_t *)user += node->operation.memory.memory->allocation->reserved;
}

static CUresult graph_memory_attribute(CUdevice device, CUgraphMem_attribute attribute, cuuint64_t *value)
{
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || attribute < CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT || attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    *value = 0;
    object_each(OBJECT_NODE, add_memory, value);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    SOFT_API(graph_memory_attribute(device, attribute, value));
}

// ---- User objects: counted references of graphs to something of the program's ----

struct CUuserObject_st {
    struct object object;
    CUhostFn destroy;
    void *data;
    unsigned references;
};

static CUresult user_object_create(CUuserObject *object, void *data, CUhostFn destroy, unsigned references,
                                   unsigned flags)
{
    if (!object || !destroy || !references || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    CUuserObject made = gv_calloc(1, sizeof *made);
    if (!made || !object_register(&made->object, OBJECT_USER_OBJECT)) {
        gv_free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->destroy = destroy;
    made->data = data;
    made->references = references;
    *object = made;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectCreate(CUuserObject *object, void *data, CUhostFn destroy, unsigned int references,
                            unsigned int flags)
{
    SOFT_API(user_object_create(object, data, destroy, references, flags));
}

void user_object_keep(CUuserObject object, unsigned count)
{
    object->references += count;
}

void user_object_drop(CUuserObject object, unsigned count)
{
    object->references -= count;
    if (object->references)
        return;
    object_unregister(&object->object);
    // The program's function runs as a host function does: it may not call the driver, whose lock is held.
    driver_set_in_host_function(true);
    object->destroy(object->data);
    driver_set_in_host_function(false);
    gv_free(object);
}

static CUresult user_object_change(CUuserObject object, unsigned count, bool retain)
{
    if (!object_is(object, OBJECT_USER_OBJECT))
        return CUDA_ERROR_INVALID_VALUE;
    if (!count || count > INT32_MAX || (!retain && count > object->references))
        return CUDA_ERROR_INVALID_VALUE;
    if (retain)
        object->references += count;
    else
        user_object_drop(object, count);
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    SOFT_API(user_object_change(object, count, true));
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    SOFT_API(user_object_change(object, count, false));
}

static CUresult graph_retain(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
    if (!object_is(graph, OBJECT_GRAPH) || !object_is(object, OBJECT_USER_OBJECT))
        return CUDA_ERROR_INVALID_VALUE;
    if (!count || count > INT32_MAX || flags & ~CU_GRAPH_USER_OBJECT_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!GV_GROW(graph->retained, graph->retained_capacity, graph->retained_count + 1))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
        object->references += count;
    graph->retained[graph->retained_count++] = (struct retained_object){object, count};
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
    SOFT_API(graph_retain(graph, object, count, flags));
}

static CUresult graph_release(CUgraph graph, CUuserObject object, unsigned count)
{
    if (!object_is(graph, OBJECT_GRAPH) || !object_is(object, OBJECT_USER_OBJECT))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < graph->retained_count && count; i++) {
        struct retained_object *retained = &graph->retained[i];
        if (retained->object != object || !retained->count)
            continue;
        unsigned given = retained->count < count ? retained->count : count;
        retained->count -= given;
        count -= given;
        user_object_drop(object, given);
    }
    return count ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    SOFT_API(graph_release(graph, object, count));
}
