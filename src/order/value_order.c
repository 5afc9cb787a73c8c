// Matches stream value waits with the writes that can have satisfied them.
#include "order/value_order.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    SCAN_LIMIT = 4096, // writes of one stream looked at for one wait; beyond, the wait is taken to follow nothing
    ROUND_LIMIT = 64,  // rounds in which waits that depend on each other are settled
};

// CUstreamWaitValue_flags without the flush bit.
enum { WAIT_GEQ = 0, WAIT_EQ = 1, WAIT_AND = 2, WAIT_NOR = 3, WAIT_CONDITION = 3 };

bool gv_value_order_add_write(gv_value_order *order, const gv_value_write *write)
{
    order->resolved = false;
    if (!GV_GROW(order->writes, order->write_capacity, order->write_count + 1))
        return false;
    order->writes[order->write_count++] = *write;
    return true;
}

bool gv_value_order_add_wait(gv_value_order *order, const gv_value_wait *wait)
{
    order->resolved = false;
    if (!GV_GROW(order->waits, order->wait_capacity, order->wait_count + 1))
        return false;
    order->waits[order->wait_count++] = *wait;
    return true;
}

static void forget_resolution(gv_value_order *order)
{
    gv_free(order->by_lane);
    gv_free(order->lanes);
    gv_free(order->first);
    order->by_lane = NULL;
    order->lanes = NULL;
    order->first = NULL;
    order->lane_count = 0;
}

void gv_value_order_free(gv_value_order *order)
{
    forget_resolution(order);
    gv_free(order->writes);
    gv_free(order->waits);
    *order = (gv_value_order){0};
}

static bool satisfies(const gv_value_wait *wait, uint64_t written)
{
    uint64_t mask = wait->size == 4 ? UINT32_MAX : UINT64_MAX;
    uint64_t in_memory = written & mask, value = wait->value & mask;
    switch (wait->flags & WAIT_CONDITION) {
    case WAIT_GEQ: {
        // Cyclic: the sign bit of the difference decides.
        uint64_t sign = wait->size == 4 ? UINT64_C(1) << 31 : UINT64_C(1) << 63;
        return !((in_memory - value) & sign);
    }
    case WAIT_EQ: return in_memory == value;
    case WAIT_AND: return (in_memory & value) != 0;
    default: return (~(in_memory | value) & mask) != 0;
    }
}

// ---- One wait ---------------------------------------------------------------------------------------------------

// The writes of one stream to one address, ascending.
typedef struct write_lane {
    const gv_value_write *writes;
    size_t count;
    const gv_value_write *last_before; // the wait at hand; NULL: none
} write_lane;

static uint32_t reach(const gv_clocks *clocks, const gv_value_wait *wait, uint32_t lane)
{
    return lane == wait->lane ? wait->position - 1 : gv_clock_get(clocks, wait->before, lane);
}

// Number of writes with a position up to `position`.
static size_t count_up_to(const write_lane *lane, uint32_t position)
{
    size_t low = 0, high = lane->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (lane->writes[middle].position <= position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Does the write come after the wait, so that it cannot have satisfied it?
static bool follows(const gv_clocks *clocks, const gv_value_wait *wait, const gv_value_write *write)
{
    if (write->lane == wait->lane)
        return write->position > wait->position;
    return gv_clock_get(clocks, write->before, wait->wait_lane) >= wait->number;
}

// The first write of a stream that can have satisfied the wait; *unknown when there were too many to look at. A write
// that another one overwrites before the wait begins cannot.
static const gv_value_write *first_candidate(const gv_clocks *clocks, const gv_value_wait *wait,
                                             const write_lane *lanes, size_t lane_count, size_t at, bool *unknown)
{
    const write_lane *lane = &lanes[at];
    uint32_t overwritten = lane->last_before ? lane->last_before->position - 1 : 0;
    for (size_t k = 0; k < lane_count; k++) {
        if (k == at || !lanes[k].last_before)
            continue;
        uint32_t before = gv_clock_get(clocks, lanes[k].last_before->before, lane->writes[0].lane);
        overwritten = before > overwritten ? before : overwritten;
    }
    size_t first = count_up_to(lane, overwritten), scanned = 0;
    for (size_t i = first; i < lane->count && !follows(clocks, wait, &lane->writes[i]); i++) {
        if (satisfies(wait, lane->writes[i].value))
            return &lane->writes[i];
        if (++scanned == SCAN_LIMIT) {
            *unknown = true;
            return NULL;
        }
    }
    return NULL;
}

// What is complete before the wait is satisfied, whichever write does it. Of one stream's writes the first that can
// decides, as it comes before the others.
static gv_clock certain_before(gv_clocks *clocks, const gv_value_wait *wait, write_lane *lanes, size_t lane_count)
{
    for (size_t i = 0; i < lane_count; i++) {
        size_t before = count_up_to(&lanes[i], reach(clocks, wait, lanes[i].writes[0].lane));
        lanes[i].last_before = before ? &lanes[i].writes[before - 1] : NULL;
    }
    bool found = false, unknown = false;
    gv_clock certain = 0;
    for (size_t i = 0; i < lane_count && !unknown; i++) {
        const gv_value_write *write = first_candidate(clocks, wait, lanes, lane_count, i, &unknown);
        if (!write)
            continue;
        if (!found)
            certain = write->complete;
        else if (!gv_clock_meet(clocks, certain, write->complete, &certain))
            return 0;
        found = true;
    }
    return unknown ? 0 : certain;
}

// ---- All waits --------------------------------------------------------------------------------------------------

static int by_address(const void *left, const void *right)
{
    const gv_value_write *a = left, *b = right;
    if (a->address != b->address)
        return a->address < b->address ? -1 : 1;
    if (a->lane != b->lane)
        return a->lane < b->lane ? -1 : 1;
    return a->position < b->position ? -1 : a->position > b->position;
}

// Collects the lanes of one address; `writes` are sorted. Returns how many.
static size_t lanes_of(const gv_value_order *order, uint64_t address, write_lane *lanes)
{
    size_t low = 0, high = order->write_count, count = 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (order->writes[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = low; i < order->write_count && order->writes[i].address == address;) {
        size_t first = i;
        while (i < order->write_count && order->writes[i].address == address &&
               order->writes[i].lane == order->writes[first].lane)
            i++;
        lanes[count++] = (write_lane){.writes = &order->writes[first], .count = i - first};
    }
    return count;
}

static int by_wait_lane(const void *left, const void *right)
{
    const gv_value_wait *a = *(const gv_value_wait *const *)left, *b = *(const gv_value_wait *const *)right;
    if (a->wait_lane != b->wait_lane)
        return a->wait_lane < b->wait_lane ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

// Sorts the waits by stream and lists the streams.
static bool index_waits(gv_value_order *order)
{
    size_t count = order->wait_count;
    const gv_value_wait **sorted = gv_calloc(count, sizeof *sorted);
    order->by_lane = gv_calloc(count, sizeof *order->by_lane);
    order->lanes = gv_calloc(count, sizeof *order->lanes);
    order->first = gv_calloc(count + 1, sizeof *order->first);
    if (!sorted || !order->by_lane || !order->lanes || !order->first) {
        gv_free(sorted);
        return false;
    }
    for (size_t i = 0; i < count; i++)
        sorted[i] = &order->waits[i];
    qsort(sorted, count, sizeof *sorted, by_wait_lane);
    for (size_t i = 0; i < count; i++) {
        order->by_lane[i] = (size_t)(sorted[i] - order->waits);
        if (i == 0 || sorted[i]->wait_lane != sorted[i - 1]->wait_lane) {
            order->lanes[order->lane_count] = sorted[i]->wait_lane;
            order->first[order->lane_count++] = i;
        }
    }
    order->first[order->lane_count] = count;
    gv_free(sorted);
    return true;
}

// What the first `number` waits of a stream, given by its place in `lanes`, have seen.
static gv_clock passed(const gv_value_order *order, size_t lane, uint32_t number)
{
    size_t count = order->first[lane + 1] - order->first[lane];
    size_t last = number < count ? number : count;
    return last ? order->waits[order->by_lane[order->first[lane] + last - 1]].passed : 0;
}

// Adds to a wait's clock what the waits behind its writes have passed. Returns whether anything was added.
static bool widen(gv_value_order *order, gv_clocks *clocks, gv_value_wait *wait, gv_clock earlier)
{
    gv_clock wider = wait->passed;
    if (!gv_clock_join(clocks, wider, earlier, &wider))
        return false;
    for (size_t i = 0; i < order->lane_count; i++) {
        uint32_t number = gv_clock_get(clocks, wider, order->lanes[i]);
        if (number && !gv_clock_join(clocks, wider, passed(order, i, number), &wider))
            return false;
    }
    bool changed = wider != wait->passed;
    wait->passed = wider;
    return changed;
}

void gv_value_order_resolve(gv_value_order *order, gv_clocks *clocks)
{
    forget_resolution(order);
    order->resolved = true;
    if (!order->wait_count)
        return;
    write_lane *lanes = gv_calloc(order->write_count, sizeof *lanes);
    if (!lanes || !index_waits(order)) {
        gv_free(lanes);
        forget_resolution(order);
        return;
    }
    if (order->write_count)
        qsort(order->writes, order->write_count, sizeof *order->writes, by_address);
    for (size_t i = 0; i < order->wait_count; i++) {
        gv_value_wait *wait = &order->waits[i];
        wait->passed = certain_before(clocks, wait, lanes, lanes_of(order, wait->address, lanes));
    }
    gv_free(lanes);
    // Most waits only depend on waits before them, so that one round settles them and a second one finds no change.
    bool changed = true;
    for (int round = 0; changed && round < ROUND_LIMIT; round++) {
        changed = false;
        for (size_t l = 0; l < order->lane_count; l++) {
            gv_clock earlier = 0;
            for (size_t i = order->first[l]; i < order->first[l + 1]; i++) {
                gv_value_wait *wait = &order->waits[order->by_lane[i]];
                changed |= widen(order, clocks, wait, earlier);
                earlier = wait->passed;
            }
        }
    }
}

bool gv_value_order_before(const gv_value_order *order, const gv_clocks *clocks, uint32_t lane, uint32_t position,
                           gv_clock before)
{
    for (size_t i = 0; i < order->lane_count; i++) {
        uint32_t number = gv_clock_get(clocks, before, order->lanes[i]);
        if (number && gv_clock_get(clocks, passed(order, i, number), lane) >= position)
            return true;
    }
    return false;
}
