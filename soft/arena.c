// The arena: one mapping and a sorted list of its holes.
#include "soft/arena.h"

#include "base/memory.h"

#include <string.h>
#include <sys/mman.h>

uint64_t arena_start, arena_end;

struct hole {
    uint64_t start, end;
};
static struct hole *holes; // ascending, disjoint, not adjacent
static size_t hole_count, hole_capacity;

bool arena_initialise(void)
{
    // Address limits (ulimit -v, strict overcommit) may allow less than is asked for first.
    for (uint64_t size = UINT64_C(64) << 30; size >= UINT64_C(256) << 20; size /= 2) {
        void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED)
            continue;
        madvise(base, size, MADV_DONTDUMP);
        if (!GV_GROW(holes, hole_capacity, 1)) {
            munmap(base, size);
            return false;
        }
        arena_start = (uint64_t)(uintptr_t)base;
        arena_end = arena_start + size;
        // The first bytes stay unused, so that no allocation starts where the reservation does.
        holes[0] = (struct hole){(arena_start + (UINT64_C(2) << 20)) & ~((UINT64_C(2) << 20) - 1), arena_end};
        hole_count = 1;
        return true;
    }
    return false;
}

uint64_t arena_take(uint64_t size)
{
    for (size_t i = 0; i < hole_count; i++) {
        if (holes[i].end - holes[i].start < size)
            continue;
        uint64_t address = holes[i].start;
        holes[i].start += size;
        if (holes[i].start == holes[i].end) {
            memmove(&holes[i], &holes[i + 1], (hole_count - i - 1) * sizeof *holes);
            hole_count--;
        }
        return address;
    }
    return 0;
}

void arena_give(uint64_t address, uint64_t size)
{
    size_t at = 0, high = hole_count;
    while (at < high) {
        size_t middle = (at + high) / 2;
        if (holes[middle].start < address)
            at = middle + 1;
        else
            high = middle;
    }
    bool joins_before = at > 0 && holes[at - 1].end == address;
    bool joins_after = at < hole_count && holes[at].start == address + size;
    if (joins_before && joins_after) {
        holes[at - 1].end = holes[at].end;
        memmove(&holes[at], &holes[at + 1], (hole_count - at - 1) * sizeof *holes);
        hole_count--;
    } else if (joins_before) {
        holes[at - 1].end = address + size;
    } else if (joins_after) {
        holes[at].start = address;
    } else {
        if (!GV_GROW(holes, hole_capacity, hole_count + 1))
            return; // the addresses are lost, the memory is not wrong
        memmove(&holes[at + 1], &holes[at], (hole_count - at) * sizeof *holes);
        holes[at] = (struct hole){address, address + size};
        hole_count++;
    }
}
