// The address range that all of the driver's memory lies in: device, managed and pinned. One reservation at
// initialisation, so that "does this address belong to the driver" is two comparisons.
#ifndef GRAVEL_SOFT_ARENA_H
#define GRAVEL_SOFT_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern uint64_t arena_start, arena_end;

// Reserves the range. False when the system gives no address space.
bool arena_initialise(void);

static inline bool arena_contains(uint64_t address)
{
    return address - arena_start < arena_end - arena_start;
}

// Takes `size` bytes (a multiple of 256), at the lowest place where they fit; 0 when none does. The memory is
// readable and writable and keeps what an earlier owner left in it, as on a GPU.
uint64_t arena_take(uint64_t size);

// Gives a block back. The pages stay accessible: a kernel that uses a dead address goes on, as it mostly does on a
// GPU, and the detector has something to find.
void arena_give(uint64_t address, uint64_t size);

#endif
