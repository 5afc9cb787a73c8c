// The pool behind clock.h: rows of indices into a store of 16-lane blocks.
#include "order/clock.h"

#include "base/memory.h"

#include <string.h>

bool gv_clocks_init(gv_clocks *clocks)
{
    if (!GV_GROW(clocks->blocks, clocks->block_capacity, 1) || !GV_GROW(clocks->rows, clocks->row_capacity, 1))
        return false;
    clocks->blocks[0] = (gv_clock_block){0};
    clocks->rows[0] = (gv_clock_row){0};
    clocks->block_count = clocks->row_count = 1;
    return true;
}

void gv_clocks_free(gv_clocks *clocks)
{
    gv_free(clocks->blocks);
    gv_free(clocks->index);
    gv_free(clocks->rows);
    *clocks = (gv_clocks){0};
}

// Room for one more row of `count` blocks, all of them new in the worst case.
static bool reserve(gv_clocks *clocks, size_t count)
{
    return clocks->row_count < UINT32_MAX && clocks->block_count + count < UINT32_MAX &&
           GV_GROW(clocks->rows, clocks->row_capacity, clocks->row_count + 1) &&
           GV_GROW(clocks->index, clocks->index_capacity, clocks->index_count + count) &&
           GV_GROW(clocks->blocks, clocks->block_capacity, clocks->block_count + count);
}

static gv_clock commit(gv_clocks *clocks, size_t count)
{
    clocks->rows[clocks->row_count] = (gv_clock_row){.first = clocks->index_count, .count = (uint32_t)count};
    clocks->index_count += count;
    return (gv_clock)clocks->row_count++;
}

bool gv_clock_raise(gv_clocks *clocks, gv_clock clock, uint32_t lane, uint32_t value, gv_clock *result)
{
    *result = clock;
    if (gv_clock_get(clocks, clock, lane) >= value)
        return true;
    size_t block = lane / GV_CLOCK_BLOCK;
    size_t count = clocks->rows[clock].count > block ? clocks->rows[clock].count : block + 1;
    // Growing by only the one block that changes: the others are shared.
    if (clocks->row_count >= UINT32_MAX || clocks->block_count >= UINT32_MAX ||
        !GV_GROW(clocks->rows, clocks->row_capacity, clocks->row_count + 1) ||
        !GV_GROW(clocks->index, clocks->index_capacity, clocks->index_count + count) ||
        !GV_GROW(clocks->blocks, clocks->block_capacity, clocks->block_count + 1))
        return false;
    gv_clock_row row = clocks->rows[clock];
    uint32_t *index = clocks->index + clocks->index_count;
    if (row.count)
        memcpy(index, clocks->index + row.first, row.count * sizeof *index);
    memset(index + row.count, 0, (count - row.count) * sizeof *index);
    gv_clock_block *fresh = &clocks->blocks[clocks->block_count];
    *fresh = clocks->blocks[index[block]];
    fresh->lanes[lane % GV_CLOCK_BLOCK] = value;
    index[block] = (uint32_t)clocks->block_count++;
    *result = commit(clocks, count);
    return true;
}

// Combines two clocks block by block. `all_of_longer`: blocks that only the longer clock has are kept (join), else
// dropped (meet). Blocks equal to one of the operands' are shared with it; a result all of whose blocks are one
// operand's is that operand.
static bool combine(gv_clocks *clocks, gv_clock a, gv_clock b, bool maximum, gv_clock *result)
{
    size_t a_count = clocks->rows[a].count, b_count = clocks->rows[b].count;
    size_t common = a_count < b_count ? a_count : b_count;
    size_t count = maximum ? (a_count > b_count ? a_count : b_count) : common;
    if (!reserve(clocks, count))
        return false;
    const uint32_t *in_a = clocks->index + clocks->rows[a].first, *in_b = clocks->index + clocks->rows[b].first;
    uint32_t *index = clocks->index + clocks->index_count;
    bool is_a = a_count == count, is_b = b_count == count;
    size_t blocks = clocks->block_count;
    for (size_t i = 0; i < common; i++) {
        if (in_a[i] == in_b[i]) {
            index[i] = in_a[i];
            continue;
        }
        const gv_clock_block *left = &clocks->blocks[in_a[i]], *right = &clocks->blocks[in_b[i]];
        gv_clock_block *fresh = &clocks->blocks[blocks];
        uint32_t not_a = 0, not_b = 0;
        for (size_t lane = 0; lane < GV_CLOCK_BLOCK; lane++) {
            uint32_t l = left->lanes[lane], r = right->lanes[lane];
            uint32_t chosen = (l > r) == maximum ? l : r;
            fresh->lanes[lane] = chosen;
            not_a |= chosen ^ l;
            not_b |= chosen ^ r;
        }
        index[i] = !not_a ? in_a[i] : !not_b ? in_b[i] : (uint32_t)blocks++;
        is_a &= !not_a;
        is_b &= !not_b;
    }
    if (count > common)
        memcpy(index + common, (a_count > common ? in_a : in_b) + common, (count - common) * sizeof *index);
    if (is_a) {
        *result = a;
    } else if (is_b) {
        *result = b;
    } else {
        clocks->block_count = blocks;
        *result = commit(clocks, count);
    }
    return true;
}

bool gv_clock_join(gv_clocks *clocks, gv_clock a, gv_clock b, gv_clock *result)
{
    if (a == b || b == 0 || a == 0) {
        *result = a ? a : b;
        return true;
    }
    return combine(clocks, a, b, true, result);
}

bool gv_clock_meet(gv_clocks *clocks, gv_clock a, gv_clock b, gv_clock *result)
{
    if (a == b || a == 0 || b == 0) {
        *result = a == b ? a : 0;
        return true;
    }
    return combine(clocks, a, b, false, result);
}
