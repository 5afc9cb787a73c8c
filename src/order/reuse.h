// Address ranges whose last life has ended, with the clock of what was complete when it did: a new life of the same
// addresses begins after that (rule 9).
#ifndef GV_ORDER_REUSE_H
#define GV_ORDER_REUSE_H

#include "order/clock.h"

typedef struct gv_freed_range {
    uint64_t start, end;
    gv_clock clock;
} gv_freed_range;

// Disjoint, ascending. Zero-initialise.
typedef struct gv_freed {
    gv_freed_range *ranges;
    size_t count, capacity;
} gv_freed;

void gv_freed_free(gv_freed *freed);

// A life of [start, end) ended at `clock`. False when memory is out.
bool gv_freed_add(gv_freed *freed, uint64_t start, uint64_t end, gv_clock clock);

// A life of [start, end) begins: joins the clocks of the lives before it into *clock and forgets those ranges. False
// when memory is out.
bool gv_freed_take(gv_freed *freed, gv_clocks *clocks, uint64_t start, uint64_t end, gv_clock *clock);

#endif
