// Which allocation held an address at some point of the process: an interval tree over addresses and time. Pools give
// the same addresses out again and again, so that searching by address alone would not do.
#include "trace/load.h"

#include "base/memory.h"

#include <stdlib.h>

struct gv_life {
    uint64_t start, end, born, died;
    uint64_t id;
};

// What the subtree below a life covers. The life in the middle of a slice of the array is the root of that slice.
struct gv_life_bounds {
    uint64_t end, born, died; // largest end, smallest born, largest died
};

static int by_address(const void *a, const void *b)
{
    const struct gv_life *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->born != y->born)
        return x->born < y->born ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void widen(struct gv_life_bounds *bounds, const struct gv_life_bounds *more)
{
    bounds->end = more->end > bounds->end ? more->end : bounds->end;
    bounds->born = more->born < bounds->born ? more->born : bounds->born;
    bounds->died = more->died > bounds->died ? more->died : bounds->died;
}

// Fills in the bounds of the slice [low, high), which is not empty, and returns them.
static const struct gv_life_bounds *bound(struct gv_life_index *index, size_t low, size_t high)
{
    size_t middle = low + (high - low) / 2;
    const struct gv_life *life = &index->lives[middle];
    struct gv_life_bounds *bounds = &index->bounds[middle];
    *bounds = (struct gv_life_bounds){life->end, life->born, life->died};
    if (low < middle)
        widen(bounds, bound(index, low, middle));
    if (middle + 1 < high)
        widen(bounds, bound(index, middle + 1, high));
    return bounds;
}

gv_status gv_life_index_build(struct gv_life_index *index, const gv_trace *trace, gv_error *error)
{
    index->lives = gv_realloc_array(NULL, trace->allocation_count, sizeof *index->lives);
    index->bounds = gv_realloc_array(NULL, trace->allocation_count, sizeof *index->bounds);
    if (!index->lives || !index->bounds)
        return gv_fail(error, GV_ERR_MEMORY, "no memory to index %zu allocations", trace->allocation_count);
    for (size_t id = 1; id < trace->allocation_count; id++) {
        const gv_allocation *row = &trace->allocations[id];
        if (row->size)
            index->lives[index->count++] =
                (struct gv_life){row->address, row->address + row->size, row->born, row->died, id};
    }
    if (index->count) {
        qsort(index->lives, index->count, sizeof *index->lives, by_address);
        bound(index, 0, index->count);
    }
    return GV_OK;
}

// The better of two that both hold the address at that time: the younger, then the smaller.
static const struct gv_life *better(const struct gv_life *a, const struct gv_life *b)
{
    if (!a || !b)
        return a ? a : b;
    if (a->born != b->born)
        return a->born > b->born ? a : b;
    return a->end - a->start <= b->end - b->start ? a : b;
}

static const struct gv_life *find(const struct gv_life_index *index, size_t low, size_t high, uint64_t address,
                                  uint64_t sequence)
{
    if (low >= high)
        return NULL;
    size_t middle = low + (high - low) / 2;
    const struct gv_life_bounds *bounds = &index->bounds[middle];
    if (bounds->end <= address || bounds->born > sequence || bounds->died < sequence)
        return NULL;
    const struct gv_life *life = &index->lives[middle], *best = NULL;
    if (life->start <= address) {
        if (address < life->end && life->born <= sequence && sequence <= life->died)
            best = life;
        best = better(best, find(index, middle + 1, high, address, sequence));
    }
    return better(best, find(index, low, middle, address, sequence));
}

uint64_t gv_trace_allocation_at(const gv_trace *trace, uint64_t address, uint64_t sequence)
{
    const struct gv_life_index *index = &trace->storage->lives;
    const struct gv_life *life = find(index, 0, index->count, address, sequence);
    return life ? life->id : 0;
}
