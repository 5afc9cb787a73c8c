// A graph of a trace as the solver wants it: its nodes, those of child graphs and bodies included, in the intended
// order, and the places where an edge can be added.
#ifndef GV_FIX_LAYOUT_H
#define GV_FIX_LAYOUT_H

#include "detect/flatten.h"
#include "fix/solve.h"
#include "order/graph_points.h"

// Two flat nodes that are to be ordered, the first in front. `early`: what the second does before its grid-dependency
// wait is meant.
typedef struct gv_layout_pair {
    uint32_t first, second;
    bool first_early, second_early;
    bool reversed; // filled: the second has to come first
    bool stuck;    // filled: no edge can order them: one holds the other
} gv_layout_pair;

typedef struct gv_layout {
    const gv_trace *trace;
    const gv_flat_graph *flat;
    uint32_t *rank; // of each flat node in the intended order
    gv_graph_points points;
    uint32_t *vertex; // of each point
    gv_fix_arc *arcs;
    gv_fix_spot *spots;
    uint32_t *spot_node; // of each spot its flat node
    uint32_t *node_spot; // of each flat node its spot; of an end that of the node that it ends
    uint32_t *spot_of;
    gv_fix_demand *demands;
    size_t *demand_pair; // which pair each demand is
    uint64_t *weights;
    gv_fix_problem problem;
    uint64_t timed, running; // nodes with a time, and nodes that take any
} gv_layout;

// Builds the problem. `times` has the nanoseconds of each flat node, 0 where none was measured; where no node has any,
// each counts 1. `dependencies` as for gv_graph_order_build. Fails with GV_ERR_FORMAT when the graph has a cycle. Free
// with gv_layout_free, also after a failure; `flat` must outlive it.
gv_status gv_layout_build(const gv_trace *trace, const gv_flat_graph *flat, const gv_grid_dependency *dependencies,
                          const uint64_t *times, gv_layout_pair *pairs, size_t pair_count, gv_layout *layout,
                          gv_error *error);
void gv_layout_free(gv_layout *layout);

#endif
