// From the nodes and edges of a graph to points and plain edges between points. A kernel behind a programmatic edge may
// begin before the kernel in front of it is complete, and only what it does after its grid-dependency wait is ordered
// behind it: such a node is more than one place in the order (rule 6 of docs/order.md).
#ifndef GV_ORDER_GRAPH_POINTS_H
#define GV_ORDER_GRAPH_POINTS_H

#include "order/graph_order.h"

// The points of a node. Where two of them are the same for all questions, they are one.
enum gv_point_stage {
    GV_POINT_START, // its first block may begin
    GV_POINT_EARLY, // what it accesses before its grid-dependency wait
    GV_POINT_WAIT,  // its grid-dependency wait returned
    GV_POINT_MAIN,  // all else it accesses, and its completion
    GV_POINT_STAGES
};

// An edge between points: `to` begins when `from` is complete. Not `known`: only if kernels that were not observed wait
// before they do anything else.
typedef struct gv_point_edge {
    uint32_t from, to;
    bool known;
} gv_point_edge;

typedef struct gv_graph_points {
    size_t node_count, count;
    uint32_t *at[GV_POINT_STAGES]; // of each node; at[GV_POINT_MAIN] is NULL: it has the node's own number
    uint32_t *node;                // of each point
    uint8_t *stage;                // of each point, enum gv_point_stage: the last of those it stands for
    gv_point_edge *edges;
    size_t edge_count, edge_capacity;
    bool assumed; // some edges are not known
} gv_graph_points;

// Fails with GV_ERR_FORMAT on an edge to a node that is not there, GV_ERR_LIMIT when there are too many nodes. Free
// with gv_graph_points_free, also after a failure.
gv_status gv_graph_points_build(size_t node_count, const gv_edge *edges, size_t edge_count,
                                const gv_grid_dependency *dependencies, gv_graph_points *points, gv_error *error);
void gv_graph_points_free(gv_graph_points *points);

static inline uint32_t gv_graph_points_at(const gv_graph_points *points, uint32_t node, enum gv_point_stage stage)
{
    return stage == GV_POINT_MAIN ? node : points->at[stage][node];
}

#endif
