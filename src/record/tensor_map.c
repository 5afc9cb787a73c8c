#include "record/tensor_map.h"

// A dimension that leaves gaps: `count` steps of `stride` bytes.
typedef struct level {
    uint64_t count, stride;
} level;

static uint64_t add(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

// What `run` bytes become when they are repeated at each step and the gaps are closed.
static uint64_t closed(level outer, uint64_t run)
{
    return add(multiply(outer.count - 1, outer.stride), run);
}

// The dimensions of more than one element outside the innermost, by stride: a map may name them in any order.
static unsigned sort_levels(const gv_tensor_map *map, level *levels)
{
    unsigned count = 0;
    for (unsigned i = 1; i < map->rank; i++) {
        if (map->dims[i] < 2 || !map->strides[i])
            continue;
        level next = {map->dims[i], map->strides[i]};
        unsigned at = count++;
        for (; at > 0 && levels[at - 1].stride > next.stride; at--)
            levels[at] = levels[at - 1];
        levels[at] = next;
    }
    return count;
}

size_t gv_tensor_map_ranges(const gv_tensor_map *map, gv_range *ranges, size_t most)
{
    level levels[GV_TENSOR_MAP_RANK], gaps[GV_TENSOR_MAP_RANK];
    unsigned count = sort_levels(map, levels), open = 0;
    uint64_t run = multiply(map->dims[0], map->element_bytes);
    for (unsigned i = 0; i < count; i++) {
        level *last = open ? &gaps[open - 1] : NULL;
        if (!last && levels[i].stride <= run) {
            run = closed(levels[i], run);
        } else if (last && levels[i].stride % last->stride == 0 && levels[i].stride / last->stride <= last->count) {
            // The rows of this dimension fall in step with those of the last: together they are one longer row of rows.
            last->count = add(last->count, multiply(levels[i].count - 1, levels[i].stride / last->stride));
        } else {
            gaps[open++] = levels[i];
            // Rows that cross each other are closed to one range: only what is nested can be listed in order.
            for (uint64_t inner = run; open > 1;) {
                for (unsigned j = 0; j + 1 < open; j++)
                    inner = closed(gaps[j], inner);
                if (inner < gaps[open - 1].stride)
                    break;
                run = closed(gaps[open - 1], inner);
                open = 0;
            }
        }
    }
    // Too many ranges: the smallest gaps are closed first.
    for (;;) {
        uint64_t needed = 1;
        for (unsigned i = 0; i < open; i++)
            needed = multiply(needed, gaps[i].count);
        if (needed <= most)
            break;
        run = closed(gaps[0], run);
        for (unsigned i = 1; i < open; i++)
            gaps[i - 1] = gaps[i];
        open--;
    }
    uint64_t at[GV_TENSOR_MAP_RANK] = {0};
    size_t used = 0;
    for (;;) {
        uint64_t start = map->address;
        for (unsigned i = 0; i < open; i++)
            start = add(start, multiply(at[i], gaps[i].stride));
        ranges[used++] = (gv_range){start, add(start, run)};
        unsigned i = 0;
        while (i < open && ++at[i] == gaps[i].count)
            at[i++] = 0;
        if (i == open)
            return used;
    }
}
