// 16 bytes of memory at a time, and the threads that go over memory together. For kernels that are compiled twice
// (soft/kernel.h): for the GPU, and for the software driver.
#ifndef GV_DEVICE_UNIT_CUH
#define GV_DEVICE_UNIT_CUH

#include "soft/kernel.h"

#include <stdint.h>

#ifdef __CUDACC__
enum { LANES = 32 };
#else
enum { LANES = 1 };
#endif

typedef struct unit {
    uint64_t low, high;
} unit;

// At a multiple of 16. Not read again for a while: it need not stay in the cache, where the program's data are.
GRAVEL_DEVICE unit load_whole(uint64_t address)
{
    unit loaded;
#ifdef __CUDACC__
    ulonglong2 words = __ldcs((const ulonglong2 *)address);
    loaded.low = words.x;
    loaded.high = words.y;
#else
    loaded.low = ((const uint64_t *)address)[0];
    loaded.high = ((const uint64_t *)address)[1];
#endif
    return loaded;
}

#endif
