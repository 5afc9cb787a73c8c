// Hooks of copies and sets. Each is recorded with the bytes its parameters name.
#include "record/arm.h"
#include "record/graph.h"
#include "record/hook.h"
#include "record/ids.h"
#include "record/recorder.h"
#include "record/snapshot.h"

#include <string.h>

// While a launch is held (gv_hold) others must not change memory that is saved and put back.
static CUresult leave_gate(CUresult result)
{
    gv_copy_gate_leave();
    return result;
}
#define GATED(call) (gv_copy_gate_enter(), leave_gate(call))

// Is this address ordinary host memory, not page-locked and not the device's?
static bool is_pageable(const void *pointer)
{
    unsigned type = 0;
    return gv_cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)pointer) !=
               CUDA_SUCCESS ||
           type == 0;
}

static bool is_host(CUdeviceptr pointer)
{
    unsigned type = 0;
    return gv_cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) != CUDA_SUCCESS ||
           type == CU_MEMORYTYPE_HOST || type == 0;
}

static void record_copy(CUstream stream, bool per_thread, const CUDA_MEMCPY3D *copy, bool synchronous)
{
    if (gv_captures_active() && gv_capture_note(stream, per_thread))
        return;
    uint64_t detail[9];
    gv_operation_record operation = {.kind = GV_OP_MEMCPY, .stream = gv_stream_id(stream, per_thread)};
    operation.detail.items = detail;
    operation.detail.count = gv_memcpy_detail(copy, detail);
    operation.address = detail[0];
    operation.value = detail[1];
    operation.size = copy->WidthInBytes * detail[3] * detail[4];
    bool from_host = copy->srcMemoryType == CU_MEMORYTYPE_HOST ||
                     (copy->srcMemoryType == CU_MEMORYTYPE_UNIFIED && is_host(copy->srcDevice));
    bool to_host = copy->dstMemoryType == CU_MEMORYTYPE_HOST ||
                   (copy->dstMemoryType == CU_MEMORYTYPE_UNIFIED && is_host(copy->dstDevice));
    operation.flags =
        (from_host ? GV_COPY_FROM_HOST : 0) | (to_host ? GV_COPY_TO_HOST : 0) | (synchronous ? GV_COPY_SYNCHRONOUS : 0);
    if (copy->srcMemoryType == CU_MEMORYTYPE_ARRAY || copy->dstMemoryType == CU_MEMORYTYPE_ARRAY)
        operation.flags |= GV_COPY_UNKNOWN;
    if ((from_host && is_pageable((const void *)(uintptr_t)detail[1])) ||
        (to_host && is_pageable((const void *)(uintptr_t)detail[0])))
        operation.flags |= GV_COPY_PAGEABLE;
    if (detail[3] == 1 && detail[4] == 1)
        operation.detail.count = 0; // address, value and size say it all
    gv_operation(&operation);
}

static CUDA_MEMCPY3D linear(CUmemorytype to_type, CUmemorytype from_type, const void *to, const void *from, size_t size)
{
    CUDA_MEMCPY3D copy;
    memset(&copy, 0, sizeof copy);
    copy.dstMemoryType = to_type;
    copy.srcMemoryType = from_type;
    copy.dstHost = (void *)to;
    copy.dstDevice = (CUdeviceptr)(uintptr_t)to;
    copy.srcHost = from;
    copy.srcDevice = (CUdeviceptr)(uintptr_t)from;
    copy.WidthInBytes = size;
    copy.Height = copy.Depth = 1;
    return copy;
}

// One-dimensional copies: the call's name says which side is host memory.
#define GV_LINEAR_HOOK(symbol, suffix, to_kind, to_type, from_kind, from_type, synchronous)              \
    GV_HOOK_PAIR(symbol, suffix, (to_type to, from_type from, size_t size), (to, from, size))            \
    {                                                                                                    \
        if (!gv_enter())                                                                                 \
            return real(to, from, size);                                                                 \
        CUresult result = GATED(real(to, from, size));                                                   \
        if (result == CUDA_SUCCESS) {                                                                    \
            CUDA_MEMCPY3D copy = linear(to_kind, from_kind, (const void *)to, (const void *)from, size); \
            record_copy(NULL, per_thread, &copy, synchronous);                                           \
        }                                                                                                \
        gv_leave();                                                                                      \
        return result;                                                                                   \
    }
#define GV_LINEAR_ASYNC_HOOK(symbol, suffix, to_kind, to_type, from_kind, from_type)                                   \
    GV_HOOK_PAIR(symbol, suffix, (to_type to, from_type from, size_t size, CUstream stream), (to, from, size, stream)) \
    {                                                                                                                  \
        if (!gv_enter())                                                                                               \
            return real(to, from, size, stream);                                                                       \
        CUresult result = GATED(real(to, from, size, stream));                                                         \
        if (result == CUDA_SUCCESS) {                                                                                  \
            CUDA_MEMCPY3D copy = linear(to_kind, from_kind, (const void *)to, (const void *)from, size);               \
            record_copy(stream, per_thread, &copy, false);                                                             \
        }                                                                                                              \
        gv_leave();                                                                                                    \
        return result;                                                                                                 \
    }
#define HOST    CU_MEMORYTYPE_HOST
#define DEVICE  CU_MEMORYTYPE_DEVICE
#define UNIFIED CU_MEMORYTYPE_UNIFIED
GV_LINEAR_HOOK(cuMemcpy, _ptds, UNIFIED, CUdeviceptr, UNIFIED, CUdeviceptr, true)
GV_LINEAR_HOOK(cuMemcpyHtoD_v2, _ptds, DEVICE, CUdeviceptr, HOST, const void *, true)
GV_LINEAR_HOOK(cuMemcpyDtoH_v2, _ptds, HOST, void *, DEVICE, CUdeviceptr, true)
GV_LINEAR_HOOK(cuMemcpyDtoD_v2, _ptds, DEVICE, CUdeviceptr, DEVICE, CUdeviceptr, true)
GV_LINEAR_ASYNC_HOOK(cuMemcpyAsync, _ptsz, UNIFIED, CUdeviceptr, UNIFIED, CUdeviceptr)
GV_LINEAR_ASYNC_HOOK(cuMemcpyHtoDAsync_v2, _ptsz, DEVICE, CUdeviceptr, HOST, const void *)
GV_LINEAR_ASYNC_HOOK(cuMemcpyDtoHAsync_v2, _ptsz, HOST, void *, DEVICE, CUdeviceptr)
GV_LINEAR_ASYNC_HOOK(cuMemcpyDtoDAsync_v2, _ptsz, DEVICE, CUdeviceptr, DEVICE, CUdeviceptr)

GV_HOOK_PAIR(cuMemcpyPeer, _ptds,
             (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size),
             (to, to_context, from, from_context, size))
{
    if (!gv_enter())
        return real(to, to_context, from, from_context, size);
    CUresult result = GATED(real(to, to_context, from, from_context, size));
    if (result == CUDA_SUCCESS) {
        CUDA_MEMCPY3D copy = linear(DEVICE, DEVICE, (const void *)to, (const void *)from, size);
        record_copy(NULL, per_thread, &copy, true);
    }
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuMemcpyPeerAsync, _ptsz,
             (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size,
              CUstream stream),
             (to, to_context, from, from_context, size, stream))
{
    if (!gv_enter())
        return real(to, to_context, from, from_context, size, stream);
    CUresult result = GATED(real(to, to_context, from, from_context, size, stream));
    if (result == CUDA_SUCCESS) {
        CUDA_MEMCPY3D copy = linear(DEVICE, DEVICE, (const void *)to, (const void *)from, size);
        record_copy(stream, per_thread, &copy, false);
    }
    gv_leave();
    return result;
}

static CUDA_MEMCPY3D from_2d(const CUDA_MEMCPY2D *flat)
{
    CUDA_MEMCPY3D copy;
    memset(&copy, 0, sizeof copy);
    copy.srcXInBytes = flat->srcXInBytes;
    copy.srcY = flat->srcY;
    copy.srcMemoryType = flat->srcMemoryType;
    copy.srcHost = flat->srcHost;
    copy.srcDevice = flat->srcDevice;
    copy.srcArray = flat->srcArray;
    copy.srcPitch = flat->srcPitch;
    copy.dstXInBytes = flat->dstXInBytes;
    copy.dstY = flat->dstY;
    copy.dstMemoryType = flat->dstMemoryType;
    copy.dstHost = flat->dstHost;
    copy.dstDevice = flat->dstDevice;
    copy.dstArray = flat->dstArray;
    copy.dstPitch = flat->dstPitch;
    copy.WidthInBytes = flat->WidthInBytes;
    copy.Height = flat->Height;
    copy.Depth = 1;
    return copy;
}

#define GV_2D_HOOK(symbol)                                           \
    GV_HOOK_PAIR(symbol, _ptds, (const CUDA_MEMCPY2D *flat), (flat)) \
    {                                                                \
        if (!gv_enter())                                             \
            return real(flat);                                       \
        CUresult result = GATED(real(flat));                         \
        if (result == CUDA_SUCCESS) {                                \
            CUDA_MEMCPY3D copy = from_2d(flat);                      \
            record_copy(NULL, per_thread, &copy, true);              \
        }                                                            \
        gv_leave();                                                  \
        return result;                                               \
    }
GV_2D_HOOK(cuMemcpy2D_v2)
GV_2D_HOOK(cuMemcpy2DUnaligned_v2)

GV_HOOK_PAIR(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D *flat, CUstream stream), (flat, stream))
{
    if (!gv_enter())
        return real(flat, stream);
    CUresult result = GATED(real(flat, stream));
    if (result == CUDA_SUCCESS) {
        CUDA_MEMCPY3D copy = from_2d(flat);
        record_copy(stream, per_thread, &copy, false);
    }
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D *copy), (copy))
{
    if (!gv_enter())
        return real(copy);
    CUresult result = GATED(real(copy));
    if (result == CUDA_SUCCESS)
        record_copy(NULL, per_thread, copy, true);
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D *copy, CUstream stream), (copy, stream))
{
    if (!gv_enter())
        return real(copy, stream);
    CUresult result = GATED(real(copy, stream));
    if (result == CUDA_SUCCESS)
        record_copy(stream, per_thread, copy, false);
    gv_leave();
    return result;
}

static CUDA_MEMCPY3D from_peer(const CUDA_MEMCPY3D_PEER *peer)
{
    CUDA_MEMCPY3D copy;
    memset(&copy, 0, sizeof copy);
    copy.srcXInBytes = peer->srcXInBytes;
    copy.srcY = peer->srcY;
    copy.srcZ = peer->srcZ;
    copy.srcMemoryType = peer->srcMemoryType;
    copy.srcHost = peer->srcHost;
    copy.srcDevice = peer->srcDevice;
    copy.srcPitch = peer->srcPitch;
    copy.srcHeight = peer->srcHeight;
    copy.dstXInBytes = peer->dstXInBytes;
    copy.dstY = peer->dstY;
    copy.dstZ = peer->dstZ;
    copy.dstMemoryType = peer->dstMemoryType;
    copy.dstHost = peer->dstHost;
    copy.dstDevice = peer->dstDevice;
    copy.dstPitch = peer->dstPitch;
    copy.dstHeight = peer->dstHeight;
    copy.WidthInBytes = peer->WidthInBytes;
    copy.Height = peer->Height;
    copy.Depth = peer->Depth;
    return copy;
}

GV_HOOK_PAIR(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER *peer), (peer))
{
    if (!gv_enter())
        return real(peer);
    CUresult result = GATED(real(peer));
    if (result == CUDA_SUCCESS) {
        CUDA_MEMCPY3D copy = from_peer(peer);
        record_copy(NULL, per_thread, &copy, true);
    }
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER *peer, CUstream stream), (peer, stream))
{
    if (!gv_enter())
        return real(peer, stream);
    CUresult result = GATED(real(peer, stream));
    if (result == CUDA_SUCCESS) {
        CUDA_MEMCPY3D copy = from_peer(peer);
        record_copy(stream, per_thread, &copy, false);
    }
    gv_leave();
    return result;
}

// ---- Sets ----------------------------------------------------------------------------------------------------

static void record_set(CUstream stream, bool per_thread, CUdeviceptr to, size_t pitch, uint64_t value, unsigned element,
                       size_t width, size_t height, bool synchronous)
{
    if (gv_captures_active() && gv_capture_note(stream, per_thread))
        return;
    CUDA_MEMSET_NODE_PARAMS set = {
        .dst = to, .pitch = pitch, .value = (unsigned)value, .elementSize = element, .width = width, .height = height};
    uint64_t detail[6];
    gv_operation_record operation = {
        .kind = GV_OP_MEMSET,
        .stream = gv_stream_id(stream, per_thread),
        .address = to,
        .value = value,
        .size = width * element * height,
        .flags = synchronous ? GV_COPY_SYNCHRONOUS : 0,
    };
    operation.detail.items = detail;
    operation.detail.count = height > 1 ? gv_memset_detail(&set, detail) : 0;
    gv_operation(&operation);
}

// For each element width: 1D and 2D, synchronous and asynchronous.
#define GV_SET_HOOKS(bits, type)                                                                              \
    GV_HOOK_PAIR(cuMemsetD##bits##_v2, _ptds, (CUdeviceptr to, type value, size_t count), (to, value, count)) \
    {                                                                                                         \
        if (!gv_enter())                                                                                      \
            return real(to, value, count);                                                                    \
        CUresult result = GATED(real(to, value, count));                                                      \
        if (result == CUDA_SUCCESS)                                                                           \
            record_set(NULL, per_thread, to, 0, value, sizeof(type), count, 1, true);                         \
        gv_leave();                                                                                           \
        return result;                                                                                        \
    }                                                                                                         \
    GV_HOOK_PAIR(cuMemsetD##bits##Async, _ptsz, (CUdeviceptr to, type value, size_t count, CUstream stream),  \
                 (to, value, count, stream))                                                                  \
    {                                                                                                         \
        if (!gv_enter())                                                                                      \
            return real(to, value, count, stream);                                                            \
        CUresult result = GATED(real(to, value, count, stream));                                              \
        if (result == CUDA_SUCCESS)                                                                           \
            record_set(stream, per_thread, to, 0, value, sizeof(type), count, 1, false);                      \
        gv_leave();                                                                                           \
        return result;                                                                                        \
    }                                                                                                         \
    GV_HOOK_PAIR(cuMemsetD2D##bits##_v2, _ptds,                                                               \
                 (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height),                     \
                 (to, pitch, value, width, height))                                                           \
    {                                                                                                         \
        if (!gv_enter())                                                                                      \
            return real(to, pitch, value, width, height);                                                     \
        CUresult result = GATED(real(to, pitch, value, width, height));                                       \
        if (result == CUDA_SUCCESS)                                                                           \
            record_set(NULL, per_thread, to, pitch, value, sizeof(type), width, height, true);                \
        gv_leave();                                                                                           \
        return result;                                                                                        \
    }                                                                                                         \
    GV_HOOK_PAIR(cuMemsetD2D##bits##Async, _ptsz,                                                             \
                 (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream),    \
                 (to, pitch, value, width, height, stream))                                                   \
    {                                                                                                         \
        if (!gv_enter())                                                                                      \
            return real(to, pitch, value, width, height, stream);                                             \
        CUresult result = GATED(real(to, pitch, value, width, height, stream));                               \
        if (result == CUDA_SUCCESS)                                                                           \
            record_set(stream, per_thread, to, pitch, value, sizeof(type), width, height, false);             \
        gv_leave();                                                                                           \
        return result;                                                                                        \
    }
GV_SET_HOOKS(8, unsigned char)
GV_SET_HOOKS(16, unsigned short)
GV_SET_HOOKS(32, unsigned int)
