// The clock for waiting and measuring: it never jumps, whatever is done to the time of day.
#ifndef GV_BASE_CLOCK_H
#define GV_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

// CLOCK_MONOTONIC in nanoseconds.
static inline uint64_t gv_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
