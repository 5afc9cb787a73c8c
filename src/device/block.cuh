// Which block a patch runs in.
#ifndef GV_DEVICE_BLOCK_CUH
#define GV_DEVICE_BLOCK_CUH

#include <stdint.h>

static __device__ __forceinline__ uint64_t gv_block()
{
    return blockIdx.x + (uint64_t)gridDim.x * (blockIdx.y + (uint64_t)gridDim.y * blockIdx.z);
}

#endif
