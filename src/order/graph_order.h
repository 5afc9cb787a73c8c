// Happens-before among the nodes of one graph: vector clocks over a chain decomposition (rule 6 of docs/order.md).
#ifndef GV_ORDER_GRAPH_ORDER_H
#define GV_ORDER_GRAPH_ORDER_H

#include "base/error.h"
#include "trace/trace.h"

#include <stdbool.h>

typedef struct gv_graph_order gv_graph_order;

// How a node stands to another.
enum gv_ordering {
    GV_UNORDERED = 0,
    GV_ORDERED = 1,              // a path of ordinary edges
    GV_ORDERED_PROGRAMMATIC = 2, // every path has a programmatic edge: ordered only if the consumers on it wait
};

// Builds the order of `node_count` nodes. An edge with from_port 0 and type 0 is ordinary; one with from_port 2
// (launch order) orders nothing; any other counts as programmatic. Fails with GV_ERR_FORMAT on a cycle or an edge to
// a node that is not there. Free with gv_graph_order_free; *order is NULL on failure.
gv_status gv_graph_order_build(size_t node_count, const gv_edge *edges, size_t edge_count, gv_graph_order **order,
                               gv_error *error);
void gv_graph_order_free(gv_graph_order *order);

// Does `a` come before `b`? a == b: GV_UNORDERED. Constant time.
enum gv_ordering gv_graph_order_before(const gv_graph_order *order, uint32_t a, uint32_t b);

// The stronger of before(a, b) and before(b, a).
enum gv_ordering gv_graph_order_between(const gv_graph_order *order, uint32_t a, uint32_t b);

// Topological order (ties by node index) and the rank of a node in it.
const uint32_t *gv_graph_order_topological(const gv_graph_order *order);
uint32_t gv_graph_order_rank(const gv_graph_order *order, uint32_t node);

// The chain a node lies on and its place in it, from 0. Nodes of one chain are totally ordered by ordinary edges.
size_t gv_graph_order_chain_count(const gv_graph_order *order);
uint32_t gv_graph_order_chain(const gv_graph_order *order, uint32_t node);
uint32_t gv_graph_order_position(const gv_graph_order *order, uint32_t node);

// The two relations between nodes, for callers that walk chains themselves.
enum gv_relation {
    GV_BY_ORDINARY_EDGES, // GV_ORDERED
    GV_BY_ALL_EDGES,      // GV_ORDERED or GV_ORDERED_PROGRAMMATIC; has chains of its own, fewer and longer
};

// Are the two different, that is, has the graph programmatic edges?
bool gv_graph_order_has_programmatic(const gv_graph_order *order);

// As gv_graph_order_chain and gv_graph_order_position, which mean GV_BY_ORDINARY_EDGES.
uint32_t gv_graph_order_chain_by(const gv_graph_order *order, enum gv_relation relation, uint32_t node);
uint32_t gv_graph_order_position_by(const gv_graph_order *order, enum gv_relation relation, uint32_t node);

// How many nodes of `chain`, counted from its start, come before `node` in the relation. On the node's own chain that
// is its position.
uint32_t gv_graph_order_reach(const gv_graph_order *order, enum gv_relation relation, uint32_t node, uint32_t chain);

#endif
