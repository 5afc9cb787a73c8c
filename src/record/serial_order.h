// The orders in which the nodes of a graph can run one by one. A race shows in a serial replay only if the replay does
// not happen to take the order that the graph took; so there is more than one.
#ifndef GV_RECORD_SERIAL_ORDER_H
#define GV_RECORD_SERIAL_ORDER_H

#include "record/graph.h"

// Fills `order` (one element a node) with a topological order of the snapshot. `which`: 0 one branch to its end before
// the next, the branch made first first; 1 the same with the branch made last first; others are drawn at random from
// that number, the same each time. Where branches fork and join in a nested way (series-parallel graphs), the first two
// turn round every pair of nodes that edges do not order. False when memory is out.
bool gv_serial_order(const gv_snapshot *snapshot, uint64_t which, uint32_t *order);

#endif
