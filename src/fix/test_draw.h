// Random numbers that are the same on every machine, for the tests of this folder.
#ifndef GV_FIX_TEST_DRAW_H
#define GV_FIX_TEST_DRAW_H

#include <stdint.h>

static uint64_t seed; // not 0

// A number below `below` (Marsaglia, "Xorshift RNGs", 2003).
static inline uint32_t draw(uint32_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 20) % below;
}

#endif
