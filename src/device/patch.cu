// The patches the Sanitizer inserts at each memory instruction of an armed kernel. Compiled as a tools patch
// (nvcc --compile-as-tools-patch); the callback signatures are those of sanitizer_patching.h.
//
// A launch that is not being recorded has null user data, and its patches return at once.
//
// Built with the headers of any release from 13.0 on. Where a later release passes more arguments, a function here
// takes those it can do without in no other way (see each); the kinds of instruction that only later headers name are
// given by number in source_sanitizer.c.
#include "device/block.cuh"
#include "device/watch.h"

#include <sanitizer_patching.h>
#include <type_traits>

// SANITIZER_MEMORY_DEVICE_FLAG_ATOMIC_WRITE_ONLY, from 13.4 on; earlier releases have no such bit.
#define ATOMIC_WRITE_ONLY (1u << 8)

// What is added to the address of an access before a grid-dependency wait. The block is not looked up without need:
// every access comes by here.
static __device__ __forceinline__ uint64_t early(gv_access_table *access, uint64_t pc)
{
    return access->watch.mode == GV_WATCH_OFF ? 0 : gv_watch_access(access, pc, gv_block());
}

static __device__ __forceinline__ void mark(void *user_data, uint64_t pc, uint64_t address, uint64_t size, int kind)
{
    gv_access_table *access = (gv_access_table *)user_data;
    if (access)
        gv_mark(access, address + early(access, pc), size, kind);
}

// Loads, stores and atomics on global memory. An atomic arrives with both the read and the write flag, or, where it
// returns nothing, with a flag of its own.
extern "C" __device__ __noinline__ SanitizerPatchResult gravel_global(void *user_data, uint64_t pc, void *pointer,
                                                                      uint32_t size, uint32_t flags, const void *data)
{
    const uint32_t both = SANITIZER_MEMORY_DEVICE_FLAG_READ | SANITIZER_MEMORY_DEVICE_FLAG_WRITE;
    if (flags & SANITIZER_MEMORY_DEVICE_FLAG_PREFETCH)
        return SANITIZER_PATCH_SUCCESS;
    int kind = (flags & both) == both || flags & ATOMIC_WRITE_ONLY ? GV_ACCESS_ATOMIC
               : (flags & SANITIZER_MEMORY_DEVICE_FLAG_WRITE)      ? GV_ACCESS_WRITE
                                                                   : GV_ACCESS_READ;
    mark(user_data, pc, (uint64_t)pointer, size, kind);
    return SANITIZER_PATCH_SUCCESS;
}

// cp.async: global to shared, 4 to 16 bytes. A null source means that only zeros are stored. From 13.5 on a further
// argument tells how many of the bytes at the end are zeros instead of being read; no release tells which it is, so the
// argument is left alone and these bytes count as read.
extern "C" __device__ __noinline__ SanitizerPatchResult gravel_copy_async(void *user_data, uint64_t pc, void *source,
                                                                          uint32_t destination, uint32_t size)
{
    if (source)
        mark(user_data, pc, (uint64_t)source, size, GV_ACCESS_READ);
    return SANITIZER_PATCH_SUCCESS;
}

// cp.async.bulk, counted in blocks of 16 bytes in the low half of a word.
extern "C" __device__ __noinline__ SanitizerPatchResult gravel_bulk_read(void *user_data, uint64_t pc, uint64_t source,
                                                                         uint32_t destination, uint32_t barrier,
                                                                         uint32_t data, uint32_t is_multicast)
{
    mark(user_data, pc, source, (uint64_t)(data & 0xffff) * 16, GV_ACCESS_READ);
    return SANITIZER_PATCH_SUCCESS;
}

// From 13.3 on the high half of `data` is a mask of the bytes of each block that are written, and `has_mask` says
// whether there is one. Earlier releases pass no `has_mask` and leave the high half zero, as no copy is that large.
extern "C" __device__ __noinline__ SanitizerPatchResult gravel_bulk_write(void *user_data, uint64_t pc,
                                                                          uint64_t destination, uint32_t source,
                                                                          uint32_t data, uint32_t has_mask)
{
    uint32_t blocks = data & 0xffff, mask = data >> 16;
    gv_access_table *access = (gv_access_table *)user_data;
    if (!access)
        return SANITIZER_PATCH_SUCCESS;
    destination += early(access, pc);
    if (!mask || !has_mask) {
        gv_mark(access, destination, (uint64_t)blocks * 16, GV_ACCESS_WRITE);
        return SANITIZER_PATCH_SUCCESS;
    }
    for (uint32_t block = 0; block < blocks; block++)
        for (uint32_t i = 0; i < 16; i++)
            if (mask >> i & 1)
                gv_mark(access, destination + block * 16 + i, 1, GV_ACCESS_WRITE);
    return SANITIZER_PATCH_SUCCESS;
}

extern "C" __device__ __noinline__ SanitizerPatchResult gravel_bulk_reduce(void *user_data, uint64_t pc,
                                                                           uint64_t destination, uint32_t source,
                                                                           uint32_t blocks)
{
    mark(user_data, pc, destination, (uint64_t)blocks * 16, GV_ACCESS_ATOMIC);
    return SANITIZER_PATCH_SUCCESS;
}

// A block begins, and its threads end. Patched only while kernels behind programmatic edges are recorded.
extern "C" __device__ __noinline__ SanitizerPatchResult gravel_enter(void *user_data, uint64_t pc)
{
    if (user_data)
        gv_watch_enter((gv_access_table *)user_data, gv_block());
    return SANITIZER_PATCH_SUCCESS;
}

extern "C" __device__ __noinline__ SanitizerPatchResult gravel_exit(void *user_data, uint64_t pc)
{
    if (user_data)
        gv_watch_exit((gv_access_table *)user_data, pc, gv_block());
    return SANITIZER_PATCH_SUCCESS;
}

#ifdef GV_SANITIZER_TENSOR_COPIES
// What the headers at hand say of the callbacks whose types have changed between releases, and of the numbers above.
static_assert(std::is_same<SanitizerCallbackBulkCopySharedToGlobal, decltype(&gravel_bulk_write)>::value,
              "bulk writes");
static_assert(std::is_same<SanitizerCallbackBulkCopyGlobalToShared, decltype(&gravel_bulk_read)>::value, "bulk reads");
static_assert(std::is_same<SanitizerCallbackMemoryAccess, decltype(&gravel_global)>::value, "global accesses");
#endif
