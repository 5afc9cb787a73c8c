// Gives the conditional handles of the graph that it is a node of their values.
#include "device/condition.h"

// One thread: handle i + 1 gets what words[i] stands for; handle count + 1, unless `extra` is `count`, the same as
// handle extra + 1. less[i] is what a word is above the value: 1 for a SWITCH, whose value is the index, else 0.
extern "C" __global__ void gravel_set_conditions(volatile uint32_t *words, const volatile uint32_t *side,
                                                 volatile uint32_t *base, const volatile uint32_t *less, uint32_t count,
                                                 uint32_t extra)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t value = gv_condition_word(words, side, base, i) - less[i];
        cudaGraphSetConditional(i + 1, value);
        if (i == extra)
            cudaGraphSetConditional(count + 1, value);
    }
}
