// The list of live allocations and the allocation functions of the driver API. Stream-ordered allocation is in
// pool.c, pointer attributes are in pointer.c.
#include "soft/memory.h"

#include "soft/access.h"
#include "soft/arena.h"
#include "soft/capture.h"
#include "soft/context.h"
#include "soft/graph.h"
#include "soft/stream.h"

#include <stdlib.h>

enum { ALIGNMENT = 256, PITCH_ALIGNMENT = 512 };

static struct allocation **list; // ascending by address
static size_t list_count, list_capacity;
static uint64_t total, used, last_id;

CUresult memory_initialise(void)
{
    if (!arena_initialise())
        return CUDA_ERROR_OUT_OF_MEMORY;
    // Half of the range at most, so that pinned memory has room beside a full device.
    total = UINT64_C(16) << 30;
    const char *asked = getenv("GRAVEL_SOFT_MEMORY");
    if (asked && strtoull(asked, NULL, 0))
        total = strtoull(asked, NULL, 0);
    if (total > (arena_end - arena_start) / 2)
        total = (arena_end - arena_start) / 2;
    return CUDA_SUCCESS;
}

uint64_t memory_total(void)
{
    return total;
}

uint64_t memory_used(void)
{
    return used;
}

// Index of the first allocation that starts above `address`.
static size_t list_above(uint64_t address)
{
    size_t low = 0, high = list_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (list[middle]->address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool on_device(enum memory_kind kind)
{
    return kind == MEMORY_DEVICE || kind == MEMORY_MANAGED || kind == MEMORY_NODE;
}

CUresult memory_list(uint64_t address, uint64_t size, enum memory_kind kind, CUcontext context,
                     struct allocation **made)
{
    struct allocation *allocation = gv_calloc(1, sizeof *allocation);
    if (!allocation || !GV_GROW(list, list_capacity, list_count + 1)) {
        gv_free(allocation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *allocation =
        (struct allocation){.address = address, .size = size, .kind = kind, .context = context, .id = ++last_id};
    size_t at = list_above(address);
    memmove(&list[at + 1], &list[at], (list_count - at) * sizeof *list);
    list[at] = allocation;
    list_count++;
    *made = allocation;
    return CUDA_SUCCESS;
}

CUresult memory_new(uint64_t size, enum memory_kind kind, CUcontext context, struct allocation **made)
{
    if (size > UINT64_MAX - ALIGNMENT)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t reserved = (size + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
    if (on_device(kind) && reserved > total - used)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t address = arena_take(reserved);
    if (!address)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = memory_list(address, size, kind, context, made);
    if (result != CUDA_SUCCESS) {
        arena_give(address, reserved);
        return result;
    }
    (*made)->reserved = reserved;
    if (on_device(kind))
        used += reserved;
    return CUDA_SUCCESS;
}

static void list_take_off(struct allocation *allocation)
{
    size_t at = list_above(allocation->address);
    while (at > 0 && list[at - 1] != allocation)
        at--;
    if (at > 0) {
        memmove(&list[at - 1], &list[at], (list_count - at) * sizeof *list);
        list_count--;
    }
}

void memory_hide(struct allocation *allocation)
{
    list_take_off(allocation);
    gv_free(allocation);
}

void memory_give_hidden(uint64_t address, uint64_t size)
{
    arena_give(address, size);
    used -= size;
}

void memory_delete(struct allocation *allocation)
{
    list_take_off(allocation);
    if (allocation->reserved) {
        arena_give(allocation->address, allocation->reserved);
        if (on_device(allocation->kind))
            used -= allocation->reserved;
    }
    gv_free(allocation);
}

struct allocation *memory_find(uint64_t address)
{
    size_t at = list_above(address);
    if (!at || address - list[at - 1]->address >= list[at - 1]->size)
        return NULL;
    return list[at - 1];
}

struct allocation *memory_find_live(uint64_t address)
{
    struct allocation *allocation = memory_find(address);
    if (allocation && allocation->kind == MEMORY_NODE && !((const struct graph_memory *)allocation->owner)->live)
        return NULL;
    return allocation;
}

bool memory_covers(uint64_t address, uint64_t size)
{
    struct allocation *allocation = memory_find(address);
    return allocation && size <= allocation->size - (address - allocation->address);
}

bool memory_is_pageable(uint64_t address)
{
    return !arena_contains(address) && !memory_find(address);
}

void memory_delete_context(CUcontext context)
{
    for (size_t i = list_count; i-- > 0;) {
        struct allocation *allocation = list[i];
        if (allocation->context != context || allocation->kind == MEMORY_POOL || allocation->kind == MEMORY_NODE)
            continue; // those belong to the device's pools and to graphs
        if (allocation->kind == MEMORY_REGISTERED)
            access_remove_range(allocation->address, allocation->address + allocation->size);
        memory_delete(allocation);
    }
}

// ---- The driver API ----

static CUresult allocate(CUdeviceptr *address, size_t size, enum memory_kind kind, unsigned flags)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!address || !size)
        return CUDA_ERROR_INVALID_VALUE;
    result = capture_forbid_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    struct allocation *made;
    result = memory_new(size, kind, context, &made);
    if (result == CUDA_SUCCESS) {
        made->flags = flags;
        *address = made->address;
    }
    return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
    SOFT_API(allocate(address, size, MEMORY_DEVICE, 0));
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned int flags)
{
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    SOFT_API(allocate(address, size, MEMORY_MANAGED, flags));
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element)
{
    if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    if (width > SIZE_MAX - PITCH_ALIGNMENT)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t row = (width + PITCH_ALIGNMENT - 1) & ~(size_t)(PITCH_ALIGNMENT - 1);
    if (height > SIZE_MAX / row)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pitch = row;
    SOFT_API(allocate(address, row * height, MEMORY_DEVICE, 0));
}

static CUresult host_allocate(void **pointer, size_t size, unsigned flags)
{
    CUdeviceptr address = 0;
    CUresult result = pointer ? allocate(&address, size, MEMORY_PINNED, flags) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *pointer = (void *)(uintptr_t)address;
    return result;
}

CUresult cuMemHostAlloc(void **pointer, size_t size, unsigned int flags)
{
    if (flags & ~(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED))
        return CUDA_ERROR_INVALID_VALUE;
    SOFT_API(host_allocate(pointer, size, flags));
}

CUresult cuMemAllocHost_v2(void **pointer, size_t size)
{
    SOFT_API(host_allocate(pointer, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
}

// Freeing waits for the device: work under way may use the memory.
static CUresult free_allocation(uint64_t address, bool host)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result == CUDA_SUCCESS)
        result = capture_forbid_unsafe();
    if (result != CUDA_SUCCESS || !address)
        return result;
    struct allocation *allocation = memory_find(address);
    if (!allocation || allocation->address != address)
        return CUDA_ERROR_INVALID_VALUE;
    enum memory_kind kind = allocation->kind;
    bool right_kind =
        host ? kind == MEMORY_PINNED
             : kind == MEMORY_DEVICE || kind == MEMORY_MANAGED || kind == MEMORY_POOL || kind == MEMORY_NODE;
    if (!right_kind)
        return CUDA_ERROR_INVALID_VALUE;
    if (kind == MEMORY_POOL || kind == MEMORY_NODE)
        return stream_free_now(allocation);
    result = context_wait(allocation->context);
    // The lock was given back while waiting: another thread may have freed it meanwhile.
    if (memory_find(address) == allocation)
        memory_delete(allocation);
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    SOFT_API(free_allocation(address, false));
}

CUresult cuMemFreeHost(void *pointer)
{
    SOFT_API(free_allocation((uint64_t)(uintptr_t)pointer, true));
}

static CUresult host_register(void *pointer, size_t size, unsigned flags)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result == CUDA_SUCCESS)
        result = capture_forbid_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t start = (uint64_t)(uintptr_t)pointer;
    if (!pointer || !size || start + size < start || arena_contains(start))
        return CUDA_ERROR_INVALID_VALUE;
    size_t after = list_above(start);
    if (memory_find(start) || (after < list_count && list[after]->address < start + size))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    struct allocation *made;
    result = memory_list(start, size, MEMORY_REGISTERED, context, &made);
    if (result != CUDA_SUCCESS)
        return result;
    made->flags = flags;
    if (!access_add_range(start, start + size)) {
        memory_delete(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *pointer, size_t size, unsigned int flags)
{
    unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                     CU_MEMHOSTREGISTER_READ_ONLY;
    if (flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    SOFT_API(host_register(pointer, size, flags));
}

CUresult cuMemHostRegister(void *pointer, size_t size, unsigned int flags)
{
    return cuMemHostRegister_v2(pointer, size, flags);
}

static CUresult host_unregister(uint64_t address)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result == CUDA_SUCCESS)
        result = capture_forbid_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    struct allocation *allocation = memory_find(address);
    if (!allocation || allocation->kind != MEMORY_REGISTERED || allocation->address != address)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    result = context_wait(allocation->context);
    if (memory_find(address) == allocation) {
        access_remove_range(address, address + allocation->size);
        memory_delete(allocation);
    }
    return result;
}

CUresult cuMemHostUnregister(void *pointer)
{
    SOFT_API(host_unregister((uint64_t)(uintptr_t)pointer));
}

static CUresult memory_info(size_t *free_bytes, size_t *total_bytes)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (free_bytes)
        *free_bytes = total - used;
    if (total_bytes)
        *total_bytes = total;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    SOFT_API(memory_info(free_bytes, total_bytes));
}
