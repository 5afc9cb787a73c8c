// The patch the Sanitizer inserts at TMA tensor loads (docs/sanitizer.md), in an image of its own: releases that do not
// report these loads never get to see it, and where it should not load, the other patches work all the same.
#include "device/block.cuh"
#include "device/watch.h"

#include <sanitizer_patching.h>
#include <type_traits>

// cp.async.bulk.tensor, global to shared (SanitizerCallbackTensorMemoryLoad, from 13.3 on).
//
// The map is read by generic loads, as it may lie in any space a map can lie in: the windows of constants and of kernel
// parameters are part of the generic address space (PTX ISA, "Generic Addressing"). It is read anew each time, because
// a kernel may rewrite its maps in global memory as it goes. A map there is itself read by the copy.
extern "C" __device__ __noinline__ SanitizerPatchResult gravel_tensor_load(
    void *user_data, uint64_t pc, uint64_t map, uint32_t destination, uint32_t barrier, int32_t c0, int32_t c1,
    int32_t c2, int32_t c3, int32_t c4, uint32_t dimensions, uint32_t is_multicast, uint32_t data, uint32_t mode)
{
    gv_access_table *access = (gv_access_table *)user_data;
    if (!access)
        return SANITIZER_PATCH_SUCCESS;
    // The instruction is executed once for a warp: were several of its threads active, they would have the same
    // arguments, and one of them marks.
    uint32_t before;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(before));
    if (__activemask() & before)
        return SANITIZER_PATCH_SUCCESS;
    uint64_t early = gv_watch_access(access, pc, gv_block());
    const volatile uint64_t *source = (const volatile uint64_t *)map;
    uint64_t words[GV_TENSOR_MAP_WORDS];
    GV_UNROLL
    for (int i = 0; i < GV_TENSOR_MAP_WORDS; i++)
        words[i] = source[i];
    if (__isGlobal((const void *)map) && !__isGridConstant((const void *)map))
        gv_mark(access, map + early, GV_TENSOR_MAP_BYTES, GV_ACCESS_READ);
    const int32_t coordinates[GV_TENSOR_MAP_RANK] = {c0, c1, c2, c3, c4};
    const uint32_t tiled = 0; // SANITIZER_LOAD_TILED
    gv_mark_tensor(access, words, coordinates, mode == tiled, GV_ACCESS_READ, early);
    return SANITIZER_PATCH_SUCCESS;
}

#ifdef GV_SANITIZER_TENSOR_COPIES
static_assert(std::is_same<SanitizerCallbackTensorMemoryLoad, decltype(&gravel_tensor_load)>::value, "tensor loads");
static_assert(SANITIZER_LOAD_TILED == 0, "tiled loads");
#endif
