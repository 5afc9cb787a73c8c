// A sorted vector: a process has a few thousand freed ranges at a time, as its pools put neighbours together.
#include "order/reuse.h"

#include "base/memory.h"

#include <string.h>

void gv_freed_free(gv_freed *freed)
{
    gv_free(freed->ranges);
    *freed = (gv_freed){0};
}

// Index of the first range that ends after `address`.
static size_t first_ending_after(const gv_freed *freed, uint64_t address)
{
    size_t low = 0, high = freed->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (freed->ranges[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// Cuts [start, end) out of the ranges and returns where a range that covers it would stand. Needs room for one more.
static size_t cut(gv_freed *freed, uint64_t start, uint64_t end)
{
    size_t at = first_ending_after(freed, start), behind = at;
    if (at < freed->count && freed->ranges[at].start < start && freed->ranges[at].end > end) {
        memmove(freed->ranges + at + 1, freed->ranges + at, (freed->count - at) * sizeof *freed->ranges);
        freed->count++;
        freed->ranges[at].end = start;
        freed->ranges[at + 1].start = end;
        return at + 1;
    }
    if (at < freed->count && freed->ranges[at].start < start) {
        freed->ranges[at].end = start;
        behind = ++at;
    }
    while (behind < freed->count && freed->ranges[behind].end <= end)
        behind++;
    if (behind < freed->count && freed->ranges[behind].start < end)
        freed->ranges[behind].start = end;
    memmove(freed->ranges + at, freed->ranges + behind, (freed->count - behind) * sizeof *freed->ranges);
    freed->count -= behind - at;
    return at;
}

bool gv_freed_add(gv_freed *freed, uint64_t start, uint64_t end, gv_clock clock)
{
    if (start >= end)
        return true;
    if (!GV_GROW(freed->ranges, freed->capacity, freed->count + 2))
        return false;
    size_t at = cut(freed, start, end);
    memmove(freed->ranges + at + 1, freed->ranges + at, (freed->count - at) * sizeof *freed->ranges);
    freed->ranges[at] = (gv_freed_range){start, end, clock};
    freed->count++;
    return true;
}

bool gv_freed_take(gv_freed *freed, gv_clocks *clocks, uint64_t start, uint64_t end, gv_clock *clock)
{
    size_t at = first_ending_after(freed, start);
    if (start >= end || at == freed->count || freed->ranges[at].start >= end)
        return true;
    for (; at < freed->count && freed->ranges[at].start < end; at++) {
        if (!gv_clock_join(clocks, *clock, freed->ranges[at].clock, clock))
            return false;
    }
    if (!GV_GROW(freed->ranges, freed->capacity, freed->count + 1))
        return false;
    cut(freed, start, end);
    return true;
}
