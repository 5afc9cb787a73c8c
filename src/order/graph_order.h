// Happens-before among the nodes of one graph: vector clocks over a chain decomposition (rule 6 of docs/order.md).
//
// What is ordered are *points*. A node is one point, of the node's number, unless it stands behind a programmatic edge:
// what such a kernel does before its grid-dependency wait is a point of its own.
#ifndef GV_ORDER_GRAPH_ORDER_H
#define GV_ORDER_GRAPH_ORDER_H

#include "base/error.h"
#include "trace/trace.h"

#include <stdbool.h>

typedef struct gv_graph_order gv_graph_order;

// How a point stands to another.
enum gv_ordering {
    GV_UNORDERED = 0,
    GV_ORDERED = 1,
    GV_ORDERED_PROGRAMMATIC = 2, // only if kernels that were not observed wait before all they do
};

// What was observed of a kernel behind programmatic edges.
typedef struct gv_grid_dependency {
    uint8_t wait;    // enum gv_grid_wait
    uint8_t trigger; // enum gv_grid_trigger; means something with GV_GRID_WAIT_DONE alone
    bool early;      // it accesses memory before it waits; with GV_GRID_WAIT_DONE alone
} gv_grid_dependency;

// Builds the order of `node_count` nodes. `dependencies` has one element a node (NULL: nothing was observed); only
// those of nodes behind programmatic edges count. Ports and types of edges mean what they do in CUgraphEdgeData. Fails
// with GV_ERR_FORMAT on a cycle or an edge to a node that is not there. Free with gv_graph_order_free; *order is NULL
// on failure.
gv_status gv_graph_order_build(size_t node_count, const gv_edge *edges, size_t edge_count,
                               const gv_grid_dependency *dependencies, gv_graph_order **order, gv_error *error);
void gv_graph_order_free(gv_graph_order *order);

// Is all that happens at `a` complete before anything at `b` begins? a == b: GV_UNORDERED. Constant time. The point of
// a node's number stands for its completion and for all accesses but those before its wait.
enum gv_ordering gv_graph_order_before(const gv_graph_order *order, uint32_t a, uint32_t b);

// The stronger of before(a, b) and before(b, a).
enum gv_ordering gv_graph_order_between(const gv_graph_order *order, uint32_t a, uint32_t b);

// How many points there are; those of the nodes are the first. The point of what a node accesses before its wait (the
// node itself unless it was built with `early`), and the node a point belongs to.
size_t gv_graph_order_point_count(const gv_graph_order *order);
uint32_t gv_graph_order_early(const gv_graph_order *order, uint32_t node);
uint32_t gv_graph_order_node(const gv_graph_order *order, uint32_t point);

// Is there a path of edges, of whatever kind, from one node to another?
bool gv_graph_order_leads(const gv_graph_order *order, uint32_t from, uint32_t to);

// Topological order of the points (ties by node index) and the rank of a point in it.
const uint32_t *gv_graph_order_topological(const gv_graph_order *order);
uint32_t gv_graph_order_rank(const gv_graph_order *order, uint32_t point);

// The chain a point lies on and its place in it, from 0. Points of one chain are totally ordered, in the known order.
size_t gv_graph_order_chain_count(const gv_graph_order *order);
uint32_t gv_graph_order_chain(const gv_graph_order *order, uint32_t point);
uint32_t gv_graph_order_position(const gv_graph_order *order, uint32_t point);

// The two relations between points, for callers that walk chains themselves.
enum gv_relation {
    GV_BY_KNOWN_ORDER,   // GV_ORDERED
    GV_BY_ASSUMED_ORDER, // GV_ORDERED or GV_ORDERED_PROGRAMMATIC; has chains of its own, fewer and longer
};

// Are the two different, that is, does any order rest on a kernel that was not observed?
bool gv_graph_order_has_assumptions(const gv_graph_order *order);

// As gv_graph_order_chain and gv_graph_order_position, which mean GV_BY_KNOWN_ORDER.
uint32_t gv_graph_order_chain_by(const gv_graph_order *order, enum gv_relation relation, uint32_t point);
uint32_t gv_graph_order_position_by(const gv_graph_order *order, enum gv_relation relation, uint32_t point);

// How many points of `chain`, counted from its start, come before `point` in the relation. On the point's own chain
// that is its position.
uint32_t gv_graph_order_reach(const gv_graph_order *order, enum gv_relation relation, uint32_t point, uint32_t chain);

#endif
