// Order through values in memory: a stream value wait follows the write that satisfies it (rule 8).
//
// Which write that was is not observed; it may even have been enqueued after the wait. What is certain is what is
// complete before every write that can have satisfied the wait. It is worked out when all operations are known: until
// then a clock says only how many waits of each stream have been passed.
#ifndef GV_ORDER_VALUE_ORDER_H
#define GV_ORDER_VALUE_ORDER_H

#include "order/clock.h"
#include "order/id_map.h"
#include "trace/trace.h"

typedef struct gv_value_write {
    uint64_t address, value, size;
    uint32_t lane, position;
    gv_clock before;   // what was complete before it
    gv_clock complete; // what it carries over to a wait
} gv_value_write;

typedef struct gv_value_wait {
    uint64_t address, value, size;
    unsigned flags;
    uint32_t lane, position;
    uint32_t wait_lane; // counts the waits of its stream
    uint32_t number;    // among them, from 1
    gv_clock before;    // what was complete before it
    gv_clock passed;    // resolved: what is complete once this and all earlier waits of its stream are passed
} gv_value_wait;

// Zero-initialise.
typedef struct gv_value_order {
    gv_value_write *writes;
    size_t write_count, write_capacity;
    gv_value_wait *waits;
    size_t wait_count, wait_capacity;
    // resolved:
    bool resolved;
    size_t *by_lane; // waits sorted by wait lane and number
    uint32_t *lanes; // the wait lanes there are
    size_t *first;   // of each in by_lane; one more at the end
    size_t lane_count;
} gv_value_order;

void gv_value_order_free(gv_value_order *order);

// Remember a write or a wait. False when memory is out.
bool gv_value_order_add_write(gv_value_order *order, const gv_value_write *write);
bool gv_value_order_add_wait(gv_value_order *order, const gv_value_wait *wait);

// Works out what each wait follows. Without memory some waits follow nothing, which claims less order than there is.
void gv_value_order_resolve(gv_value_order *order, gv_clocks *clocks);

// Is the operation at `position` of `lane` complete before what has the clock `before`, through waits it has passed?
bool gv_value_order_before(const gv_value_order *order, const gv_clocks *clocks, uint32_t lane, uint32_t position,
                           gv_clock before);

#endif
