// What the driver knows about an address.
#include "soft/context.h"
#include "soft/memory.h"

static bool on_host(const struct allocation *allocation)
{
    return allocation->kind == MEMORY_PINNED || allocation->kind == MEMORY_REGISTERED;
}

// The value of one attribute of a known address.
static CUresult attribute_of(const struct allocation *allocation, uint64_t address, CUpointer_attribute attribute,
                             void *value)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)value = allocation->context; break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(CUmemorytype *)value = on_host(allocation) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)value = address; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!on_host(allocation) && allocation->kind != MEMORY_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)value = (void *)(uintptr_t)address;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: *(unsigned *)value = 0; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)value = allocation->id; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)value = allocation->kind == MEMORY_MANAGED; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = 0; break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *(int *)value = 0; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)value = allocation->address; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = allocation->size; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(int *)value = 1; break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: *(unsigned long long *)value = 0; break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)value = allocation->kind == MEMORY_POOL ? allocation->pool : NULL;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: *(CUmemAccess_flags *)value = CU_MEM_ACCESS_FLAGS_PROT_READWRITE; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

static CUresult get_attribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    const struct allocation *allocation = memory_find_live(address);
    if (!value || !allocation)
        return CUDA_ERROR_INVALID_VALUE;
    return attribute_of(allocation, address, attribute, value);
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    SOFT_API(get_attribute(value, attribute, address));
}

static size_t attribute_size(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return 4;
    default: return 8;
    }
}

// Several at once: what does not apply to the address is null, and no error.
static CUresult get_attributes(unsigned count, const CUpointer_attribute *attributes, void **values,
                               CUdeviceptr address)
{
    if (!count || !attributes || !values)
        return CUDA_ERROR_INVALID_VALUE;
    const struct allocation *allocation = memory_find_live(address);
    for (unsigned i = 0; i < count; i++) {
        if (!values[i])
            return CUDA_ERROR_INVALID_VALUE;
        memset(values[i], 0, attribute_size(attributes[i]));
        if (!allocation && attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)values[i] = CU_DEVICE_INVALID;
        if (allocation && attribute_of(allocation, address, attributes[i], values[i]) == CUDA_ERROR_NOT_SUPPORTED)
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **values, CUdeviceptr address)
{
    SOFT_API(get_attributes(count, attributes, values, address));
}

static CUresult address_range(CUdeviceptr *start, size_t *size, CUdeviceptr address)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    const struct allocation *allocation = memory_find(address);
    if (!allocation)
        return CUDA_ERROR_NOT_FOUND;
    if (start)
        *start = allocation->address;
    if (size)
        *size = allocation->size;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr address)
{
    SOFT_API(address_range(start, size, address));
}

static CUresult host_device_pointer(CUdeviceptr *device, uint64_t host)
{
    const struct allocation *allocation = memory_find(host);
    if (!device || !allocation || (!on_host(allocation) && allocation->kind != MEMORY_MANAGED))
        return CUDA_ERROR_INVALID_VALUE;
    *device = host;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned int flags)
{
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    SOFT_API(host_device_pointer(device, (uint64_t)(uintptr_t)host));
}

static CUresult host_flags(unsigned *flags, uint64_t host)
{
    const struct allocation *allocation = memory_find(host);
    if (!flags || !allocation || allocation->kind != MEMORY_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = allocation->flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *host)
{
    SOFT_API(host_flags(flags, (uint64_t)(uintptr_t)host));
}
