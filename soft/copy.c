// Copies and sets, with what CUDA documents about when the host waits for them.
#include "soft/copy.h"

#include "soft/memory.h"
#include "soft/schedule.h"
#include "soft/stream.h"

// ---- Parameters ----

// One side of a copy: where it starts and how rows and slices follow.
struct side {
    uint64_t start;
    size_t pitch, slice;
};

static struct side source_of(const CUDA_MEMCPY3D *copy)
{
    uint64_t base = copy->srcMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)copy->srcHost : copy->srcDevice;
    size_t slice = copy->srcPitch * (copy->srcHeight ? copy->srcHeight : copy->Height);
    return (struct side){base + copy->srcXInBytes + copy->srcY * copy->srcPitch + copy->srcZ * slice, copy->srcPitch,
                         slice};
}

static struct side destination_of(const CUDA_MEMCPY3D *copy)
{
    uint64_t base = copy->dstMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)copy->dstHost : copy->dstDevice;
    size_t slice = copy->dstPitch * (copy->dstHeight ? copy->dstHeight : copy->Height);
    return (struct side){base + copy->dstXInBytes + copy->dstY * copy->dstPitch + copy->dstZ * slice, copy->dstPitch,
                         slice};
}

// From the first byte to the end of the last row.
static uint64_t side_extent(const struct side *side, const CUDA_MEMCPY3D *copy)
{
    return (copy->Depth - 1) * side->slice + (copy->Height - 1) * side->pitch + copy->WidthInBytes;
}

static CUresult check_side(CUmemorytype type, const struct side *side, const CUDA_MEMCPY3D *copy)
{
    if (type == CU_MEMORYTYPE_ARRAY)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
        return CUDA_ERROR_INVALID_VALUE;
    if (!side->start || (copy->Height > 1 && side->pitch < copy->WidthInBytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEMORYTYPE_HOST || (type == CU_MEMORYTYPE_UNIFIED && memory_is_pageable(side->start)))
        return CUDA_SUCCESS;
    return memory_covers(side->start, side_extent(side, copy)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool copies_nothing(const CUDA_MEMCPY3D *copy)
{
    return !copy->WidthInBytes || !copy->Height || !copy->Depth;
}

CUresult copy_check(const CUDA_MEMCPY3D *copy)
{
    if (copies_nothing(copy))
        return CUDA_SUCCESS;
    struct side source = source_of(copy), destination = destination_of(copy);
    CUresult result = check_side(copy->srcMemoryType, &source, copy);
    return result != CUDA_SUCCESS ? result : check_side(copy->dstMemoryType, &destination, copy);
}

CUresult set_check(const CUDA_MEMSET_NODE_PARAMS *set)
{
    if (set->elementSize != 1 && set->elementSize != 2 && set->elementSize != 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (!set->width || !set->height)
        return CUDA_SUCCESS;
    if (set->dst % set->elementSize || set->width > SIZE_MAX / set->elementSize ||
        (set->height > 1 && set->pitch < set->width * set->elementSize))
        return CUDA_ERROR_INVALID_VALUE;
    return memory_covers(set->dst, (set->height - 1) * set->pitch + set->width * set->elementSize)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

// ---- Moving bytes ----

enum { CHUNK = 4096 };

// Two operations that nothing orders are the program's race: it is what gravel looks for, and no fault of this driver.
// ThreadSanitizer would report it all the same, since its memmove and memset look at every call; kernels are built
// without it for the same reason.
#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#endif

static void of_the_program_begin(void)
{
#ifdef __SANITIZE_THREAD__
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
}

static void of_the_program_end(void)
{
#ifdef __SANITIZE_THREAD__
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
}

// Rows are done in pieces, so that a schedule that switches at accesses can switch within a large one.
static void step(struct observer *observer)
{
    if (observer && observer->task)
        schedule_access(observer);
}

void copy_run(const struct copy_operation *operation, struct observer *observer)
{
    const CUDA_MEMCPY3D *copy = &operation->parameters;
    if (copies_nothing(copy))
        return;
    struct side source = source_of(copy), destination = destination_of(copy);
    for (size_t z = 0; z < copy->Depth; z++) {
        for (size_t y = 0; y < copy->Height; y++) {
            const char *from = (const char *)(uintptr_t)(source.start + z * source.slice + y * source.pitch);
            char *to = (char *)(uintptr_t)(destination.start + z * destination.slice + y * destination.pitch);
            for (size_t at = 0; at < copy->WidthInBytes; at += CHUNK) {
                size_t left = copy->WidthInBytes - at;
                of_the_program_begin();
                memmove(to + at, from + at, left < CHUNK ? left : CHUNK);
                of_the_program_end();
                step(observer);
            }
        }
    }
}

void set_run(const struct set_operation *operation, struct observer *observer)
{
    const CUDA_MEMSET_NODE_PARAMS *set = &operation->parameters;
    for (size_t y = 0; y < set->height; y++) {
        char *row = (char *)(uintptr_t)(set->dst + y * set->pitch);
        for (size_t x = 0; x < set->width;) {
            size_t end = set->width - x < CHUNK ? set->width : x + CHUNK;
            of_the_program_begin();
            for (; x < end; x++)
                memcpy(row + x * set->elementSize, &set->value, set->elementSize); // little-endian: low bytes first
            of_the_program_end();
            step(observer);
        }
    }
}

// ---- Enqueueing ----

static bool is_host(CUmemorytype type, uint64_t address)
{
    if (type != CU_MEMORYTYPE_UNIFIED)
        return type == CU_MEMORYTYPE_HOST;
    struct allocation *allocation = memory_find(address);
    return !allocation || allocation->kind == MEMORY_PINNED || allocation->kind == MEMORY_REGISTERED;
}

// Memory of a graph that no launch has handed out: a node may name it, a call may not.
static bool is_dead(uint64_t address)
{
    return memory_find(address) && !memory_find_live(address);
}

// A pageable source is read before the call returns: into a staging buffer that the copy then reads instead.
static CUresult stage(struct copy_operation *operation)
{
    CUDA_MEMCPY3D *copy = &operation->parameters;
    struct side source = source_of(copy);
    size_t row = copy->WidthInBytes;
    char *staged = row > SIZE_MAX / copy->Height / copy->Depth ? NULL : gv_malloc(row * copy->Height * copy->Depth);
    if (!staged)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t z = 0; z < copy->Depth; z++)
        for (size_t y = 0; y < copy->Height; y++)
            memcpy(staged + (z * copy->Height + y) * row,
                   (const char *)(uintptr_t)(source.start + z * source.slice + y * source.pitch), row);
    operation->staged = staged;
    copy->srcMemoryType = CU_MEMORYTYPE_HOST;
    copy->srcHost = staged;
    copy->srcXInBytes = copy->srcY = copy->srcZ = 0;
    copy->srcPitch = row;
    copy->srcHeight = copy->Height;
    return CUDA_SUCCESS;
}

// One copy, as the API synchronisation rules have it: what a pageable source holds is taken at the call; a copy to
// pageable memory returns when it is done; a synchronous copy returns when it is done unless both sides are device
// memory or the source is pageable.
static CUresult enqueue_copy(const CUDA_MEMCPY3D *parameters, CUstream handle, bool synchronous)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result == CUDA_SUCCESS && synchronous)
        result = stream->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = stream_check(stream);
    if (result == CUDA_SUCCESS)
        result = copy_check(parameters);
    if (result != CUDA_SUCCESS || copies_nothing(parameters))
        return result;
    struct operation operation = {.kind = CU_GRAPH_NODE_TYPE_MEMCPY,
                                  .copy = {.parameters = *parameters, .context = stream->context}};
    if (stream->capture)
        return stream_enqueue(stream, &operation, NULL, NULL);
    uint64_t from = source_of(parameters).start, to = destination_of(parameters).start;
    if (is_dead(from) || is_dead(to))
        return CUDA_ERROR_INVALID_VALUE;
    bool from_host = is_host(parameters->srcMemoryType, from), to_host = is_host(parameters->dstMemoryType, to);
    bool wait = synchronous ? from_host || to_host : to_host && memory_is_pageable(to);
    if (from_host && memory_is_pageable(from)) {
        if (synchronous)
            task_wait(stream->tail);
        result = stage(&operation.copy);
        if (result != CUDA_SUCCESS)
            return result;
        wait = to_host && wait;
    }
    CUcontext context = stream->context;
    struct task *task = NULL;
    result = stream_enqueue(stream, &operation, &task, NULL);
    if (result != CUDA_SUCCESS || !wait)
        return result;
    task_wait(stream->tail);
    return object_is(context, OBJECT_CONTEXT) ? context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUDA_MEMCPY3D linear(CUmemorytype to_type, uint64_t to, CUmemorytype from_type, uint64_t from, size_t size)
{
    // Pitch and height are 0, as the driver has them in the node that becomes of a linear copy.
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = from_type, .dstMemoryType = to_type, .WidthInBytes = size, .Height = 1, .Depth = 1};
    if (from_type == CU_MEMORYTYPE_HOST)
        copy.srcHost = (const void *)(uintptr_t)from;
    else
        copy.srcDevice = from;
    if (to_type == CU_MEMORYTYPE_HOST)
        copy.dstHost = (void *)(uintptr_t)to;
    else
        copy.dstDevice = to;
    return copy;
}

static CUresult copy_linear(CUmemorytype to_type, uint64_t to, CUmemorytype from_type, uint64_t from, size_t size,
                            CUstream stream, bool synchronous)
{
    CUDA_MEMCPY3D copy = linear(to_type, to, from_type, from, size);
    return enqueue_copy(&copy, stream, synchronous);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *flat, CUstream stream, bool synchronous)
{
    if (!flat)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D copy = {
        .srcXInBytes = flat->srcXInBytes,
        .srcY = flat->srcY,
        .srcMemoryType = flat->srcMemoryType,
        .srcHost = flat->srcHost,
        .srcDevice = flat->srcDevice,
        .srcPitch = flat->srcPitch ? flat->srcPitch : flat->WidthInBytes,
        .dstXInBytes = flat->dstXInBytes,
        .dstY = flat->dstY,
        .dstMemoryType = flat->dstMemoryType,
        .dstHost = flat->dstHost,
        .dstDevice = flat->dstDevice,
        .dstPitch = flat->dstPitch ? flat->dstPitch : flat->WidthInBytes,
        .WidthInBytes = flat->WidthInBytes,
        .Height = flat->Height,
        .Depth = 1,
    };
    return enqueue_copy(&copy, stream, synchronous);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, bool synchronous)
{
    return copy ? enqueue_copy(copy, stream, synchronous) : CUDA_ERROR_INVALID_VALUE;
}

#define DEVICE      CU_MEMORYTYPE_DEVICE
#define HOST        CU_MEMORYTYPE_HOST
#define UNIFIED     CU_MEMORYTYPE_UNIFIED
#define POINTER(at) ((uint64_t)(uintptr_t)(at))

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    SOFT_API(copy_linear(UNIFIED, to, UNIFIED, from, size, NULL, true));
}

CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    SOFT_API(copy_linear(UNIFIED, to, UNIFIED, from, size, CU_STREAM_PER_THREAD, true));
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    SOFT_API(copy_linear(UNIFIED, to, UNIFIED, from, size, stream, false));
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    SOFT_API(copy_linear(UNIFIED, to, UNIFIED, from, size, PER_THREAD(stream), false));
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
    SOFT_API(copy_linear(DEVICE, to, HOST, POINTER(from), size, NULL, true));
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void *from, size_t size)
{
    SOFT_API(copy_linear(DEVICE, to, HOST, POINTER(from), size, CU_STREAM_PER_THREAD, true));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    SOFT_API(copy_linear(DEVICE, to, HOST, POINTER(from), size, stream, false));
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    SOFT_API(copy_linear(DEVICE, to, HOST, POINTER(from), size, PER_THREAD(stream), false));
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
    SOFT_API(copy_linear(HOST, POINTER(to), DEVICE, from, size, NULL, true));
}

CUresult cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t size)
{
    SOFT_API(copy_linear(HOST, POINTER(to), DEVICE, from, size, CU_STREAM_PER_THREAD, true));
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    SOFT_API(copy_linear(HOST, POINTER(to), DEVICE, from, size, stream, false));
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    SOFT_API(copy_linear(HOST, POINTER(to), DEVICE, from, size, PER_THREAD(stream), false));
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    SOFT_API(copy_linear(DEVICE, to, DEVICE, from, size, NULL, true));
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    SOFT_API(copy_linear(DEVICE, to, DEVICE, from, size, CU_STREAM_PER_THREAD, true));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    SOFT_API(copy_linear(DEVICE, to, DEVICE, from, size, stream, false));
}

CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    SOFT_API(copy_linear(DEVICE, to, DEVICE, from, size, PER_THREAD(stream), false));
}

#define COPY_STRUCT(name, type, function, handle, synchronous) \
    CUresult name(const type *copy)                            \
    {                                                          \
        SOFT_API(function(copy, handle, synchronous));         \
    }
COPY_STRUCT(cuMemcpy2D_v2, CUDA_MEMCPY2D, copy_2d, NULL, true)
COPY_STRUCT(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, copy_2d, CU_STREAM_PER_THREAD, true)
COPY_STRUCT(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, copy_2d, NULL, true)
COPY_STRUCT(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, copy_2d, CU_STREAM_PER_THREAD, true)
COPY_STRUCT(cuMemcpy3D_v2, CUDA_MEMCPY3D, copy_3d, NULL, true)
COPY_STRUCT(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, copy_3d, CU_STREAM_PER_THREAD, true)

#define COPY_STRUCT_ASYNC(name, type, function, handle) \
    CUresult name(const type *copy, CUstream stream)    \
    {                                                   \
        SOFT_API(function(copy, handle, false));        \
    }
COPY_STRUCT_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, copy_2d, stream)
COPY_STRUCT_ASYNC(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, copy_2d, PER_THREAD(stream))
COPY_STRUCT_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, copy_3d, stream)
COPY_STRUCT_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, copy_3d, PER_THREAD(stream))

// ---- Sets ----

// A synchronous set returns before it is done, except on memory that the host could look at.
static CUresult enqueue_set(uint64_t address, size_t pitch, unsigned value, unsigned element, size_t width,
                            size_t height, CUstream handle, bool synchronous)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result == CUDA_SUCCESS && synchronous)
        result = stream->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = stream_check(stream);
    if (result != CUDA_SUCCESS)
        return result;
    CUDA_MEMSET_NODE_PARAMS set = {address, pitch, value, element, width, height};
    result = set_check(&set);
    if (result != CUDA_SUCCESS || !width || !height)
        return result;
    struct operation operation = {.kind = CU_GRAPH_NODE_TYPE_MEMSET,
                                  .set = {.parameters = set, .context = stream->context}};
    if (!stream->capture && is_dead(address))
        return CUDA_ERROR_INVALID_VALUE;
    struct allocation *allocation = memory_find(address);
    bool wait = synchronous && (allocation->kind == MEMORY_PINNED || allocation->kind == MEMORY_REGISTERED ||
                                allocation->kind == MEMORY_MANAGED);
    result = stream_enqueue(stream, &operation, NULL, NULL);
    if (result == CUDA_SUCCESS && wait)
        task_wait(stream->tail);
    return result;
}

#define SET_FUNCTIONS(bits, type, bytes)                                                                          \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count)                                       \
    {                                                                                                             \
        SOFT_API(enqueue_set(to, 0, value, bytes, count, 1, NULL, true));                                         \
    }                                                                                                             \
    CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type value, size_t count)                                  \
    {                                                                                                             \
        SOFT_API(enqueue_set(to, 0, value, bytes, count, 1, CU_STREAM_PER_THREAD, true));                         \
    }                                                                                                             \
    CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, CUstream stream)                    \
    {                                                                                                             \
        SOFT_API(enqueue_set(to, 0, value, bytes, count, 1, stream, false));                                      \
    }                                                                                                             \
    CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr to, type value, size_t count, CUstream stream)               \
    {                                                                                                             \
        SOFT_API(enqueue_set(to, 0, value, bytes, count, 1, PER_THREAD(stream), false));                          \
    }                                                                                                             \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height)        \
    {                                                                                                             \
        SOFT_API(enqueue_set(to, pitch, value, bytes, width, height, NULL, true));                                \
    }                                                                                                             \
    CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height)   \
    {                                                                                                             \
        SOFT_API(enqueue_set(to, pitch, value, bytes, width, height, CU_STREAM_PER_THREAD, true));                \
    }                                                                                                             \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height,      \
                                      CUstream stream)                                                            \
    {                                                                                                             \
        SOFT_API(enqueue_set(to, pitch, value, bytes, width, height, stream, false));                             \
    }                                                                                                             \
    CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, \
                                           CUstream stream)                                                       \
    {                                                                                                             \
        SOFT_API(enqueue_set(to, pitch, value, bytes, width, height, PER_THREAD(stream), false));                 \
    }
SET_FUNCTIONS(8, unsigned char, 1)
SET_FUNCTIONS(16, unsigned short, 2)
SET_FUNCTIONS(32, unsigned int, 4)
