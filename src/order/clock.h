// Vector clocks that share what they have in common. A clock says for each lane (a chain of a graph, a stream, a
// thread) how many of its operations are complete. Clocks are immutable; a new one shares with its origin all blocks
// of lanes that did not change, so that ten thousand clocks over ten thousand lanes cost what their differences cost.
#ifndef GV_ORDER_CLOCK_H
#define GV_ORDER_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GV_CLOCK_BLOCK = 16 }; // lanes a block: one cache line

// A clock of a pool; 0 is the empty one, on which every lane stands at 0.
typedef uint32_t gv_clock;

typedef struct gv_clock_block {
    uint32_t lanes[GV_CLOCK_BLOCK];
} gv_clock_block;

typedef struct gv_clock_row {
    uint64_t first; // of its entries in `index`
    uint32_t count; // blocks; lanes beyond them stand at 0
} gv_clock_row;

// Zero-initialise, then gv_clocks_init. Clocks live as long as the pool.
typedef struct gv_clocks {
    gv_clock_block *blocks; // block 0 is all zero
    size_t block_count, block_capacity;
    uint32_t *index;
    size_t index_count, index_capacity;
    gv_clock_row *rows;
    size_t row_count, row_capacity;
} gv_clocks;

// All functions below that return bool fail only when memory is out; the pool stays usable.
bool gv_clocks_init(gv_clocks *clocks);
void gv_clocks_free(gv_clocks *clocks);

static inline uint32_t gv_clock_get(const gv_clocks *clocks, gv_clock clock, uint32_t lane)
{
    gv_clock_row row = clocks->rows[clock];
    uint32_t block = lane / GV_CLOCK_BLOCK;
    return block < row.count ? clocks->blocks[clocks->index[row.first + block]].lanes[lane % GV_CLOCK_BLOCK] : 0;
}

// `clock` with `lane` moved up to `value`; `clock` itself when it stands there already.
bool gv_clock_raise(gv_clocks *clocks, gv_clock clock, uint32_t lane, uint32_t value, gv_clock *result);

// What is complete in either (the maximum of each lane). One of the operands itself when it covers the other.
bool gv_clock_join(gv_clocks *clocks, gv_clock a, gv_clock b, gv_clock *result);

// What is complete in both (the minimum of each lane).
bool gv_clock_meet(gv_clocks *clocks, gv_clock a, gv_clock b, gv_clock *result);

#endif
