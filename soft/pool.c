// Stream-ordered allocation. A freed block can be taken again at once in the stream that freed it, and in any other
// stream when the free has completed: so an address may be live for the host and dead for the device, or the reverse.
#include "soft/pool.h"

#include "soft/arena.h"
#include "soft/graph.h"
#include "soft/node.h"

enum { GRANULE = 512 };

struct pool_block {
    struct pool_block *next;
    uint64_t address, size; // of the block, a multiple of GRANULE
    bool taken;
    uint64_t stream;    // id of the stream that freed it
    struct task *freed; // the free's place in that stream, counted
};

struct CUmemPoolHandle_st {
    struct object object;
    struct pool_block *blocks;
    uint64_t release_threshold;
    uint64_t reserved, reserved_high, taken, taken_high;
    bool is_default;
    int reuse_follow, reuse_opportunistic, reuse_internal;
};

static CUmemoryPool default_pool, current_pool;

static CUresult pool_new(CUmemoryPool *pool)
{
    CUmemoryPool made = gv_calloc(1, sizeof *made);
    if (!made || !object_register(&made->object, OBJECT_POOL)) {
        gv_free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->reuse_follow = made->reuse_opportunistic = made->reuse_internal = 1;
    *pool = made;
    return CUDA_SUCCESS;
}

static CUresult default_pool_get(CUmemoryPool *pool)
{
    if (!default_pool) {
        CUresult result = pool_new(&default_pool);
        if (result != CUDA_SUCCESS)
            return result;
        default_pool->is_default = true;
    }
    *pool = default_pool;
    return CUDA_SUCCESS;
}

static CUresult current_pool_get(CUmemoryPool *pool)
{
    if (!current_pool)
        return default_pool_get(pool);
    *pool = current_pool;
    return CUDA_SUCCESS;
}

static bool block_is_idle(const struct pool_block *block)
{
    return !block->taken && (!block->freed || block->freed->state == TASK_DONE);
}

static bool block_usable(CUmemoryPool pool, const struct pool_block *block, uint64_t stream)
{
    if (block->taken)
        return false;
    return block->stream == stream || (pool->reuse_opportunistic && block_is_idle(block));
}

static struct pool_block *block_add(CUmemoryPool pool, uint64_t address, uint64_t size)
{
    struct pool_block *block = gv_calloc(1, sizeof *block);
    if (!block)
        return NULL;
    block->address = address;
    block->size = size;
    block->next = pool->blocks;
    pool->blocks = block;
    return block;
}

// The smallest usable block, cut to size where at least a granule is left over.
static CUresult block_take(CUmemoryPool pool, uint64_t size, uint64_t stream, struct pool_block **taken)
{
    struct pool_block *best = NULL;
    for (struct pool_block *block = pool->blocks; block; block = block->next)
        if (block->size >= size && (!best || block->size < best->size) && block_usable(pool, block, stream))
            best = block;
    if (best && best->size > size) {
        struct pool_block *rest = block_add(pool, best->address + size, best->size - size);
        if (rest) {
            rest->stream = best->stream;
            rest->freed = task_keep(best->freed);
            best->size = size;
        }
    }
    if (!best) {
        // Blocks come from the arena as they are needed; the device's size limits pools and allocations together.
        struct allocation *memory;
        CUresult result = memory_new(size, MEMORY_DEVICE, NULL, &memory);
        if (result != CUDA_SUCCESS)
            return result;
        best = block_add(pool, memory->address, size);
        if (!best) {
            memory_delete(memory);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        // Between a free and the next use a block is nobody's: only its live uses are listed.
        memory_hide(memory);
        pool->reserved += size;
        if (pool->reserved > pool->reserved_high)
            pool->reserved_high = pool->reserved;
    }
    task_drop(best->freed);
    best->freed = NULL;
    best->taken = true;
    pool->taken += best->size;
    if (pool->taken > pool->taken_high)
        pool->taken_high = pool->taken;
    *taken = best;
    return CUDA_SUCCESS;
}

static void pool_release_above(CUmemoryPool pool, uint64_t keep)
{
    for (struct pool_block **link = &pool->blocks; *link && pool->reserved > keep;) {
        struct pool_block *block = *link;
        if (!block_is_idle(block)) {
            link = &block->next;
            continue;
        }
        *link = block->next;
        pool->reserved -= block->size;
        memory_give_hidden(block->address, block->size);
        task_drop(block->freed);
        gv_free(block);
    }
}

static void release_one(struct object *object, void *user)
{
    CUmemoryPool pool = (CUmemoryPool)object;
    pool_release_above(pool, pool->release_threshold);
}

void pool_release_unused(void)
{
    object_each(OBJECT_POOL, release_one, NULL);
}

static CUresult capture_alloc(CUstream stream, CUdeviceptr *address, size_t size)
{
    struct graph_memory *memory;
    CUresult result = graph_memory_new(size, &memory);
    if (result != CUDA_SUCCESS)
        return result;
    struct operation operation = {.kind = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    operation.memory.memory = memory;
    operation.memory.address = memory->allocation->address;
    operation.memory.parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    operation.memory.parameters.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    operation.memory.parameters.bytesize = size;
    operation.memory.parameters.dptr = operation.memory.address;
    CUdeviceptr made = operation.memory.address;
    result = stream_enqueue(stream, &operation, NULL, NULL);
    if (result == CUDA_SUCCESS)
        *address = made;
    return result;
}

// Outside of captures, stream-ordered calls are as unsafe beside one as the ordinary ones.
static CUresult ordered_call_allowed(CUstream stream)
{
    CUresult result = stream_check(stream);
    if (result == CUDA_SUCCESS && !stream->capture)
        result = capture_forbid_unsafe();
    return result;
}

static CUresult alloc_async(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream handle)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = ordered_call_allowed(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!address || !size)
        return CUDA_ERROR_INVALID_VALUE;
    if (!pool)
        result = current_pool_get(&pool);
    else if (!object_is(pool, OBJECT_POOL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->capture)
        return capture_alloc(stream, address, size);
    if (size > memory_total())
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t rounded = (size + GRANULE - 1) & ~(uint64_t)(GRANULE - 1);
    struct pool_block *block;
    result = block_take(pool, rounded, stream->object.id, &block);
    if (result != CUDA_SUCCESS)
        return result;
    struct allocation *made;
    result = memory_list(block->address, size, MEMORY_POOL, stream->context, &made);
    if (result != CUDA_SUCCESS) {
        block->taken = false;
        pool->taken -= block->size;
        return result;
    }
    made->pool = pool;
    made->owner = block;
    *address = block->address;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream)
{
    SOFT_API(alloc_async(address, size, NULL, stream));
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t size, CUstream stream)
{
    SOFT_API(alloc_async(address, size, NULL, PER_THREAD(stream)));
}

static CUresult alloc_from_pool(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream)
{
    return pool ? alloc_async(address, size, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream)
{
    SOFT_API(alloc_from_pool(address, size, pool, stream));
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream)
{
    SOFT_API(alloc_from_pool(address, size, pool, PER_THREAD(stream)));
}

CUresult pool_free(struct allocation *allocation, CUstream stream)
{
    struct pool_block *block = allocation->owner;
    CUmemoryPool pool = allocation->pool;
    CUcontext context = allocation->context;
    if (stream) {
        struct task *task = task_new(stream->context);
        if (!task)
            return CUDA_ERROR_OUT_OF_MEMORY;
        block->freed = task_keep(task);
        block->stream = stream->object.id;
        CUresult result = stream_append(stream, task);
        if (result != CUDA_SUCCESS)
            return result;
    } else {
        uint64_t address = allocation->address;
        CUresult result = context_wait(context);
        // The lock was given back: somebody else may have freed it meanwhile.
        if (memory_find(address) != allocation)
            return result;
        block->stream = 0;
    }
    block->taken = false;
    pool->taken -= block->size;
    memory_delete(allocation);
    return CUDA_SUCCESS;
}

CUresult stream_free_now(struct allocation *allocation)
{
    if (allocation->kind == MEMORY_POOL)
        return pool_free(allocation, NULL);
    struct graph_memory *memory = allocation->owner;
    if (!memory->live)
        return CUDA_ERROR_INVALID_VALUE;
    CUcontext context;
    CUresult result = context_current(&context);
    if (result == CUDA_SUCCESS)
        result = context_wait(context);
    memory->live = false;
    return result;
}

// Ordinary device memory that is freed in stream order: dead to the host at once, its bytes free when it is its turn.
struct late_free {
    uint64_t address, reserved;
};

static void late_free_completed(void *user)
{
    struct late_free *late = user;
    memory_give_hidden(late->address, late->reserved);
    gv_free(late);
}

static CUresult free_in_order(struct allocation *allocation, CUstream stream)
{
    struct task *task = task_new(stream->context);
    struct late_free *late = gv_malloc(sizeof *late);
    if (!task || !late) {
        task_drop(task);
        gv_free(late);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *late = (struct late_free){allocation->address, allocation->reserved};
    memory_hide(allocation);
    task->completed = late_free_completed;
    task->completed_user = late;
    return stream_append(stream, task);
}

static CUresult free_async(CUdeviceptr address, CUstream handle)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = ordered_call_allowed(stream);
    if (result != CUDA_SUCCESS)
        return result;
    struct allocation *allocation = memory_find(address);
    if (!allocation || allocation->address != address)
        return CUDA_ERROR_INVALID_VALUE;
    if (allocation->kind == MEMORY_NODE) {
        struct graph_memory *memory = allocation->owner;
        if (!stream->capture) {
            // What a launch left allocated is freed in stream order.
            if (!memory->live)
                return CUDA_ERROR_INVALID_VALUE;
            memory->live = false;
            return CUDA_SUCCESS;
        }
        struct operation operation;
        result = node_free_operation(&operation, stream->capture->graph, address);
        return result == CUDA_SUCCESS ? stream_enqueue(stream, &operation, NULL, NULL) : result;
    }
    if (stream->capture)
        return CUDA_ERROR_INVALID_VALUE;
    if (allocation->kind == MEMORY_DEVICE)
        return free_in_order(allocation, stream);
    return allocation->kind == MEMORY_POOL ? pool_free(allocation, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    SOFT_API(free_async(address, stream));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    SOFT_API(free_async(address, PER_THREAD(stream)));
}

// ---- Pools ----

static CUresult pool_create(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    if (!pool || !properties || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device_valid(properties->location.id))
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    return pool_new(pool);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    SOFT_API(pool_create(pool, properties));
}

static CUresult pool_destroy(CUmemoryPool pool)
{
    if (!object_is(pool, OBJECT_POOL) || pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    if (current_pool == pool)
        current_pool = NULL;
    // Blocks that are still taken keep the pool's record alive; without a handle nobody can allocate from it.
    pool_release_above(pool, 0);
    object_unregister(&pool->object);
    if (!pool->blocks)
        gv_free(pool);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    SOFT_API(pool_destroy(pool));
}

static CUresult pool_trim(CUmemoryPool pool, size_t keep)
{
    if (!object_is(pool, OBJECT_POOL))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = capture_forbid_unsafe();
    if (result == CUDA_SUCCESS)
        pool_release_above(pool, keep);
    return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    SOFT_API(pool_trim(pool, keep));
}

static CUresult pool_get(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    if (!object_is(pool, OBJECT_POOL) || !value)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: *(int *)value = pool->reuse_follow; break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: *(int *)value = pool->reuse_opportunistic; break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: *(int *)value = pool->reuse_internal; break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: *(cuuint64_t *)value = pool->release_threshold; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: *(cuuint64_t *)value = pool->reserved; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: *(cuuint64_t *)value = pool->reserved_high; break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *(cuuint64_t *)value = pool->taken; break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *(cuuint64_t *)value = pool->taken_high; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    SOFT_API(pool_get(pool, attribute, value));
}

static CUresult pool_set(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value)
{
    if (!object_is(pool, OBJECT_POOL) || !value)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: pool->reuse_follow = *(const int *)value; break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: pool->reuse_opportunistic = *(const int *)value; break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: pool->reuse_internal = *(const int *)value; break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: pool->release_threshold = *(const cuuint64_t *)value; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(const cuuint64_t *)value)
            return CUDA_ERROR_INVALID_VALUE; // a high mark can only be reset
        if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
            pool->reserved_high = pool->reserved;
        else
            pool->taken_high = pool->taken;
        break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    SOFT_API(pool_set(pool, attribute, value));
}

static CUresult device_pool(CUmemoryPool *pool, CUdevice device, bool current)
{
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    return current ? current_pool_get(pool) : default_pool_get(pool);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    SOFT_API(device_pool(pool, device, false));
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    SOFT_API(device_pool(pool, device, true));
}

static CUresult set_device_pool(CUdevice device, CUmemoryPool pool)
{
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!object_is(pool, OBJECT_POOL))
        return CUDA_ERROR_INVALID_VALUE;
    current_pool = pool;
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    SOFT_API(set_device_pool(device, pool));
}
