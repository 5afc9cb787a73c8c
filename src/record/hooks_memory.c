// Hooks of allocation and free: each begins or ends a life of an address range. What takes memory away waits at the
// gate while a launch is armed in this context: the recorder may be about to read that memory (src/record/opaque.c).
#include "record/arm.h"
#include "record/differ.h"
#include "record/graph.h"
#include "record/hook.h"
#include "record/ids.h"
#include "record/recorder.h"

// An allocation that fails for want of memory is made once more when there was some to give back.
#define GV_ALLOCATE(result, call)                                         \
    do {                                                                  \
        (result) = (call);                                                \
        if ((result) == CUDA_ERROR_OUT_OF_MEMORY && gv_check_give_back()) \
            (result) = (call);                                            \
    } while (0)

static void end_or_keep(gv_life life, uint64_t stream, CUresult result)
{
    if (result == CUDA_SUCCESS)
        gv_life_end(life, stream);
    else
        gv_life_put_back(life);
}

// The calls that free at once differ in their name and in what they call a pointer.
#define GV_FREE_HOOK(symbol, type)                                 \
    GV_HOOK(symbol, (type pointer), (pointer))                     \
    {                                                              \
        if (!gv_enter())                                           \
            return real(pointer);                                  \
        gv_gate_enter();                                           \
        gv_life life = gv_life_take((uint64_t)(uintptr_t)pointer); \
        CUresult result = real(pointer);                           \
        end_or_keep(life, 0, result);                              \
        gv_gate_leave();                                           \
        gv_leave();                                                \
        return result;                                             \
    }

// ---- Device memory -------------------------------------------------------------------------------------------

GV_HOOK(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t size), (pointer, size))
{
    CUresult result;
    if (!gv_enter())
        return real(pointer, size);
    GV_ALLOCATE(result, real(pointer, size));
    if (result == CUDA_SUCCESS)
        gv_allocated(*pointer, size, GV_ALLOCATION_DEVICE, 0, NULL);
    gv_leave();
    return result;
}

GV_HOOK(cuMemAllocPitch_v2, (CUdeviceptr * pointer, size_t *pitch, size_t width, size_t height, unsigned element),
        (pointer, pitch, width, height, element))
{
    if (!gv_enter())
        return real(pointer, pitch, width, height, element);
    CUresult result;
    GV_ALLOCATE(result, real(pointer, pitch, width, height, element));
    if (result == CUDA_SUCCESS)
        gv_allocated(*pointer, *pitch * height, GV_ALLOCATION_DEVICE, 0, NULL);
    gv_leave();
    return result;
}

GV_HOOK(cuMemAllocManaged, (CUdeviceptr * pointer, size_t size, unsigned flags), (pointer, size, flags))
{
    if (!gv_enter())
        return real(pointer, size, flags);
    CUresult result;
    GV_ALLOCATE(result, real(pointer, size, flags));
    if (result == CUDA_SUCCESS)
        gv_allocated(*pointer, size, GV_ALLOCATION_MANAGED, 0, NULL);
    gv_leave();
    return result;
}

GV_FREE_HOOK(cuMemFree_v2, CUdeviceptr)

// ---- Stream-ordered memory -----------------------------------------------------------------------------------

GV_HOOK_PAIR(cuMemAllocAsync, _ptsz, (CUdeviceptr * pointer, size_t size, CUstream stream), (pointer, size, stream))
{
    if (!gv_enter())
        return real(pointer, size, stream);
    CUresult result;
    GV_ALLOCATE(result, real(pointer, size, stream));
    if (result == CUDA_SUCCESS && !(gv_captures_active() && gv_capture_note(stream, per_thread)))
        gv_allocated(*pointer, size, GV_ALLOCATION_ASYNC, gv_stream_id(stream, per_thread), NULL);
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuMemAllocFromPoolAsync, _ptsz, (CUdeviceptr * pointer, size_t size, CUmemoryPool pool, CUstream stream),
             (pointer, size, pool, stream))
{
    if (!gv_enter())
        return real(pointer, size, pool, stream);
    CUresult result;
    GV_ALLOCATE(result, real(pointer, size, pool, stream));
    if (result == CUDA_SUCCESS && !(gv_captures_active() && gv_capture_note(stream, per_thread)))
        gv_allocated(*pointer, size, GV_ALLOCATION_ASYNC, gv_stream_id(stream, per_thread), NULL);
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuMemFreeAsync, _ptsz, (CUdeviceptr pointer, CUstream stream), (pointer, stream))
{
    if (!gv_enter())
        return real(pointer, stream);
    // In a capture the free is a node, and the life goes on until the graph runs.
    bool captured = gv_stream_is_capturing(stream, per_thread);
    if (!captured)
        gv_gate_enter();
    gv_life life = captured ? (gv_life){0} : gv_life_take(pointer);
    CUresult result = real(pointer, stream);
    if (captured) {
        gv_capture_note(stream, per_thread);
    } else {
        end_or_keep(life, gv_stream_id(stream, per_thread), result);
        gv_gate_leave();
    }
    gv_leave();
    return result;
}

// ---- What is free ---

GV_HOOK(cuMemGetInfo_v2, (size_t * available, size_t *total), (available, total))
{
    size_t all = 0;
    if (!gv_enter())
        return real(available, total);
    CUresult result = real(available, &all);
    // What is kept is given back when it is asked for: a program that plans by this plans as it would without gravel.
    uint64_t kept = result == CUDA_SUCCESS ? gv_check_kept_bytes() : 0;
    if (result == CUDA_SUCCESS && available)
        *available += kept < all - *available ? kept : all - *available;
    if (result == CUDA_SUCCESS && total)
        *total = all;
    gv_leave();
    return result;
}

// ---- Virtual memory ------------------------------------------------------------------------------------------

GV_HOOK(cuMemCreate,
        (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *properties,
         unsigned long long flags),
        (handle, size, properties, flags))
{
    CUresult result;
    if (!gv_enter())
        return real(handle, size, properties, flags);
    GV_ALLOCATE(result, real(handle, size, properties, flags));
    gv_leave();
    return result;
}

GV_HOOK(cuMemMap,
        (CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
         unsigned long long flags),
        (pointer, size, offset, handle, flags))
{
    if (!gv_enter())
        return real(pointer, size, offset, handle, flags);
    CUresult result = real(pointer, size, offset, handle, flags);
    if (result == CUDA_SUCCESS)
        gv_allocated(pointer, size, GV_ALLOCATION_MAPPED, 0, NULL);
    if (result == CUDA_SUCCESS)
        gv_mapped(pointer, handle);
    gv_leave();
    return result;
}

GV_HOOK(cuMemUnmap, (CUdeviceptr pointer, size_t size), (pointer, size))
{
    if (!gv_enter())
        return real(pointer, size);
    gv_gate_enter();
    gv_unmapped(pointer, size);
    CUresult result = real(pointer, size);
    gv_gate_leave();
    gv_leave();
    return result;
}

// ---- Host memory the device can reach ------------------------------------------------------------------------

GV_HOOK(cuMemHostAlloc, (void **pointer, size_t size, unsigned flags), (pointer, size, flags))
{
    if (!gv_enter())
        return real(pointer, size, flags);
    CUresult result = real(pointer, size, flags);
    if (result == CUDA_SUCCESS)
        gv_allocated((uint64_t)(uintptr_t)*pointer, size, GV_ALLOCATION_PINNED, 0, NULL);
    gv_leave();
    return result;
}

GV_HOOK(cuMemAllocHost_v2, (void **pointer, size_t size), (pointer, size))
{
    if (!gv_enter())
        return real(pointer, size);
    CUresult result = real(pointer, size);
    if (result == CUDA_SUCCESS)
        gv_allocated((uint64_t)(uintptr_t)*pointer, size, GV_ALLOCATION_PINNED, 0, NULL);
    gv_leave();
    return result;
}

GV_FREE_HOOK(cuMemFreeHost, void *)

GV_HOOK(cuMemHostRegister_v2, (void *pointer, size_t size, unsigned flags), (pointer, size, flags))
{
    if (!gv_enter())
        return real(pointer, size, flags);
    CUresult result = real(pointer, size, flags);
    if (result == CUDA_SUCCESS)
        gv_allocated((uint64_t)(uintptr_t)pointer, size, GV_ALLOCATION_PINNED, 0, NULL);
    gv_leave();
    return result;
}

GV_FREE_HOOK(cuMemHostUnregister, void *)

// ---- Memory of other processes, and module variables ---------------------------------------------------------

#define GV_IPC_OPEN_HOOK(symbol)                                                                              \
    GV_HOOK(symbol, (CUdeviceptr * pointer, CUipcMemHandle handle, unsigned flags), (pointer, handle, flags)) \
    {                                                                                                         \
        if (!gv_enter())                                                                                      \
            return real(pointer, handle, flags);                                                              \
        CUresult result = real(pointer, handle, flags);                                                       \
        CUdeviceptr base = 0;                                                                                 \
        size_t size = 0;                                                                                      \
        if (result == CUDA_SUCCESS && gv_cuda.cuMemGetAddressRange(&base, &size, *pointer) == CUDA_SUCCESS)   \
            gv_allocated(*pointer, size - (size_t)(*pointer - base), GV_ALLOCATION_IMPORTED, 0, NULL);        \
        gv_leave();                                                                                           \
        return result;                                                                                        \
    }
GV_IPC_OPEN_HOOK(cuIpcOpenMemHandle)
GV_IPC_OPEN_HOOK(cuIpcOpenMemHandle_v2)

GV_FREE_HOOK(cuIpcCloseMemHandle, CUdeviceptr)

GV_HOOK(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr pointer), (handle, pointer))
{
    if (!gv_enter())
        return real(handle, pointer);
    CUdeviceptr base = pointer;
    size_t size = 0;
    CUresult result = real(handle, pointer);
    if (result == CUDA_SUCCESS) {
        gv_cuda.cuMemGetAddressRange(&base, &size, pointer);
        gv_exported(base);
    }
    gv_leave();
    return result;
}

GV_HOOK(cuMemExportToShareableHandle,
        (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
         unsigned long long flags),
        (shareable, handle, type, flags))
{
    if (!gv_enter())
        return real(shareable, handle, type, flags);
    CUresult result = real(shareable, handle, type, flags);
    if (result == CUDA_SUCCESS)
        gv_exported(handle);
    gv_leave();
    return result;
}

GV_HOOK(cuModuleGetGlobal_v2, (CUdeviceptr * pointer, size_t *size, CUmodule module, const char *name),
        (pointer, size, module, name))
{
    if (!gv_enter())
        return real(pointer, size, module, name);
    CUdeviceptr found = 0;
    size_t bytes = 0;
    CUresult result = real(&found, &bytes, module, name);
    if (result == CUDA_SUCCESS) {
        if (!gv_is_allocated(found))
            gv_allocated(found, bytes, GV_ALLOCATION_GLOBAL, 0, name);
        if (pointer)
            *pointer = found;
        if (size)
            *size = bytes;
    }
    gv_leave();
    return result;
}

// ---- Modules: unloading one frees its function handles for others ---------------------------------------------

#define GV_UNLOAD_HOOK(symbol, type)             \
    GV_HOOK(symbol, (type unloaded), (unloaded)) \
    {                                            \
        if (!gv_enter())                         \
            return real(unloaded);               \
        gv_gate_enter();                         \
        CUresult result = real(unloaded);        \
        gv_functions_unloaded();                 \
        gv_gate_leave();                         \
        gv_leave();                              \
        return result;                           \
    }
GV_UNLOAD_HOOK(cuModuleUnload, CUmodule)

GV_UNLOAD_HOOK(cuLibraryUnload, CUlibrary)
