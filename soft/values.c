// Stream memory operations.
#include "soft/values.h"

#include "soft/memory.h"
#include "soft/stream.h"

static size_t item_size(const CUstreamBatchMemOpParams *item)
{
    switch (item->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_32: return 4;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64: return 8;
    default: return 0;
    }
}

static CUresult check_item(const CUstreamBatchMemOpParams *item)
{
    size_t size = item_size(item);
    if (!size) {
        bool known =
            item->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES || item->operation == CU_STREAM_MEM_OP_BARRIER;
        return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    // Address and flags are at the same place in the wait's and the write's parameters.
    uint64_t address = item->waitValue.address;
    if (address % size || !memory_covers(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    bool wait = item->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || item->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    unsigned flags = wait ? item->waitValue.flags & ~CU_STREAM_WAIT_VALUE_FLUSH : item->writeValue.flags;
    if (wait ? flags > CU_STREAM_WAIT_VALUE_NOR : flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult values_make(struct operation *operation, CUcontext context, const CUstreamBatchMemOpParams *items,
                     unsigned count, unsigned flags)
{
    if (!items || count > 256 || flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        CUresult result = check_item(&items[i]);
        if (result != CUDA_SUCCESS)
            return result;
    }
    struct values_operation given = {(CUstreamBatchMemOpParams *)items, count, flags, context};
    *operation = (struct operation){.kind = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    return values_copy(&operation->values, &given);
}

CUresult values_copy(struct values_operation *copy, const struct values_operation *original)
{
    *copy = *original;
    copy->items = gv_calloc(original->count, sizeof *copy->items);
    if (!copy->items)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy->items, original->items, original->count * sizeof *copy->items);
    return CUDA_SUCCESS;
}

static bool satisfied(const CUstreamBatchMemOpParams *item)
{
    void *address = (void *)(uintptr_t)item->waitValue.address;
    bool wide = item->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    uint64_t seen = wide ? __atomic_load_n((uint64_t *)address, __ATOMIC_ACQUIRE)
                         : __atomic_load_n((uint32_t *)address, __ATOMIC_ACQUIRE);
    uint64_t value = wide ? item->waitValue.value64 : item->waitValue.value;
    uint64_t mask = wide ? UINT64_MAX : UINT32_MAX;
    switch (item->waitValue.flags & ~CU_STREAM_WAIT_VALUE_FLUSH) {
    case CU_STREAM_WAIT_VALUE_EQ: return seen == value;
    case CU_STREAM_WAIT_VALUE_AND: return (seen & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR: return (~(seen | value) & mask) != 0;
    default: // GEQ is cyclic: the difference counts as signed
        return wide ? (int64_t)(seen - value) >= 0 : (int32_t)(uint32_t)(seen - value) >= 0;
    }
}

bool values_run(const struct values_operation *values, size_t *progress)
{
    for (; *progress < values->count; ++*progress) {
        const CUstreamBatchMemOpParams *item = &values->items[*progress];
        void *address = (void *)(uintptr_t)item->writeValue.address;
        switch (item->operation) {
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            __atomic_store_n((uint32_t *)address, item->writeValue.value, __ATOMIC_RELEASE);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            __atomic_store_n((uint64_t *)address, item->writeValue.value64, __ATOMIC_RELEASE);
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            if (!satisfied(item))
                return false;
            break;
        default: break; // barriers and flushes: all memory is coherent here
        }
    }
    return true;
}

bool values_can_resume(const struct values_operation *values, size_t progress)
{
    return satisfied(&values->items[progress]);
}

// ---- The driver API ----

static CUresult enqueue_values(CUstream handle, const CUstreamBatchMemOpParams *items, unsigned count, unsigned flags)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    struct operation operation;
    result = values_make(&operation, stream->context, items, count, flags);
    if (result != CUDA_SUCCESS)
        return result;
    return stream_enqueue(stream, &operation, NULL, NULL);
}

static CUresult enqueue_value(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address, uint64_t value,
                              unsigned flags)
{
    CUstreamBatchMemOpParams item = {0};
    item.waitValue.operation = type;
    item.waitValue.address = address;
    item.waitValue.flags = flags;
    if (type == CU_STREAM_MEM_OP_WAIT_VALUE_64 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64)
        item.waitValue.value64 = value;
    else
        item.waitValue.value = (cuuint32_t)value;
    return enqueue_values(stream, &item, 1, 0);
}

// The first version of these functions and the _v2 version have the same arguments.
#define VALUE_FUNCTION(name, type, value_type, suffix, handle)                                         \
    CUresult name##suffix(CUstream stream, CUdeviceptr address, value_type value, unsigned int flags); \
    CUresult name##suffix(CUstream stream, CUdeviceptr address, value_type value, unsigned int flags)  \
    {                                                                                                  \
        SOFT_API(enqueue_value(handle, type, address, value, flags));                                  \
    }
#define VALUE_FUNCTIONS(name, type, value_type)                       \
    VALUE_FUNCTION(name, type, value_type, , stream)                  \
    VALUE_FUNCTION(name, type, value_type, _ptsz, PER_THREAD(stream)) \
    VALUE_FUNCTION(name, type, value_type, _v2, stream)               \
    VALUE_FUNCTION(name, type, value_type, _v2_ptsz, PER_THREAD(stream))
VALUE_FUNCTIONS(cuStreamWriteValue32, CU_STREAM_MEM_OP_WRITE_VALUE_32, cuuint32_t)
VALUE_FUNCTIONS(cuStreamWriteValue64, CU_STREAM_MEM_OP_WRITE_VALUE_64, cuuint64_t)
VALUE_FUNCTIONS(cuStreamWaitValue32, CU_STREAM_MEM_OP_WAIT_VALUE_32, cuuint32_t)
VALUE_FUNCTIONS(cuStreamWaitValue64, CU_STREAM_MEM_OP_WAIT_VALUE_64, cuuint64_t)

#define BATCH_FUNCTION(suffix, handle)                                                                        \
    CUresult cuStreamBatchMemOp##suffix(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *items, \
                                        unsigned int flags);                                                  \
    CUresult cuStreamBatchMemOp##suffix(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *items, \
                                        unsigned int flags)                                                   \
    {                                                                                                         \
        SOFT_API(enqueue_values(handle, items, count, flags));                                                \
    }
BATCH_FUNCTION(, stream)
BATCH_FUNCTION(_ptsz, PER_THREAD(stream))
BATCH_FUNCTION(_v2, stream)
BATCH_FUNCTION(_v2_ptsz, PER_THREAD(stream))
