// How the values behind conditional handles are handed from one graph to the next, in words of page-locked host memory.
// C as well as CUDA C++: on a GPU a kernel does it, in the software driver a host function.
#ifndef GV_DEVICE_CONDITION_H
#define GV_DEVICE_CONDITION_H

#include <stdint.h>

#ifdef __CUDACC__
#define GV_CONDITION_FUNCTION static __device__ __forceinline__
#else
#define GV_CONDITION_FUNCTION static inline
#endif

// A word is 0 where no body runs (of an IF: not the first one), else the index of the body + 1. A second set of words
// is kept by a branch that runs beside the first; what has changed there since `base` was taken over is taken over now.
// `side` may be null.
GV_CONDITION_FUNCTION uint32_t gv_condition_word(volatile uint32_t *words, const volatile uint32_t *side,
                                                 volatile uint32_t *base, uint32_t i)
{
    if (side && side[i] != base[i])
        words[i] = base[i] = side[i];
    return words[i];
}

#endif
