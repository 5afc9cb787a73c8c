// Searching sorted tables and, seldom, what they lead to. For kernels that are compiled twice (soft/kernel.h): for the
// GPU, and for the software driver.
#ifndef GV_DEVICE_SEARCH_CUH
#define GV_DEVICE_SEARCH_CUH

#include "soft/kernel.h"

#include <stdint.h>

// What is done with the few values that matter is kept out of the loop over all of them.
#ifdef __CUDACC__
#define SELDOM static __device__ __noinline__
#else
#define SELDOM static __attribute__((noinline))
#endif

// Index of the last of `count` ascending starts that is not above `value`; 0 if all are.
GRAVEL_DEVICE uint32_t last_start(const uint64_t *starts, uint32_t count, uint64_t value)
{
    uint32_t low = 0, high = count;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (starts[middle] <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

#endif
