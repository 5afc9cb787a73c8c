// A graph with its child graphs and the bodies of its conditional nodes spread out: one list of nodes and edges that
// the race detector can order.
#ifndef GV_DETECT_FLATTEN_H
#define GV_DETECT_FLATTEN_H

#include "base/error.h"
#include "trace/trace.h"

#include <stdbool.h>

// One use of a snapshot: the graph itself, a child graph at the node that runs it, or an execution of a body.
typedef struct gv_flat_instance {
    uint64_t graph;
    uint64_t execution;   // of the innermost body it is or lies in; 0: none, or not told apart
    uint32_t parent;      // instance that holds the node that runs it; of the top graph, itself
    uint32_t parent_node; // flat index of that node
    uint32_t depth;       // 0: the top graph
    uint32_t first;       // flat index of its node 0
    uint32_t entry;       // flat index of what it comes after: the node that runs it, or the end of the body before it
    uint32_t exit;        // flat index of the node that stands for its end; the top graph has none
    uint32_t next;        // instance that the same node runs next; 0: none
} gv_flat_instance;

// Where a flat node comes from. The end of a child graph or body has the place of the node that runs it.
typedef struct gv_flat_node {
    uint32_t instance;
    uint32_t index; // in the instance's snapshot
    bool is_exit;
} gv_flat_node;

typedef struct gv_flat_graph {
    gv_flat_node *nodes;
    uint64_t
        *made; // order in which the nodes were made; those of child graphs and bodies count at the node that runs them
    size_t node_count;
    gv_edge *edges;
    size_t edge_count, edge_capacity;
    gv_flat_instance *instances; // instance 0 is the top graph
    size_t instance_count, instance_capacity;
    uint32_t *by_graph; // instances sorted by snapshot and execution
    bool has_bodies;
} gv_flat_graph;

// Everything before the node of a child graph is before all of the child's nodes, and everything behind it behind them
// all. The bodies of a conditional node are laid out once each, one after the other in the order of the driver: no two
// of them run at the same time. GV_ERR_MISSING: some nodes or edges of a snapshot are not in the trace; GV_ERR_LIMIT:
// more than 2^22 nodes or 32 levels; GV_ERR_FORMAT: a graph that contains itself. Free with gv_flat_graph_free.
gv_status gv_flatten(const gv_trace *trace, uint64_t graph, gv_flat_graph *flat, gv_error *error);

// The same for one armed launch: the bodies as it executed them, each execution with nodes of its own behind those of
// the execution before it. GV_ERR_MISSING also for an execution whose place is not in the graph.
gv_status gv_flatten_launch(const gv_trace *trace, const gv_armed *armed, gv_flat_graph *flat, gv_error *error);
void gv_flat_graph_free(gv_flat_graph *flat);

// The instances of one snapshot: *count of them, or NULL. The second form: only those of one execution.
const uint32_t *gv_flat_instances_of(const gv_flat_graph *flat, uint64_t graph, size_t *count);
const uint32_t *gv_flat_instances_in(const gv_flat_graph *flat, uint64_t graph, uint64_t execution, size_t *count);

// For each node of a launch's layout the node of the graph's own (gv_flatten) that it is an execution of. To be freed;
// NULL when memory is out.
uint32_t *gv_flat_fold(const gv_flat_graph *launch, const gv_flat_graph *graph);

// The node record of a flat node.
const gv_node *gv_flat_node_record(const gv_trace *trace, const gv_flat_graph *flat, uint32_t node);

// The deepest instance that holds both nodes or the child graphs they lie in, and the nodes of it that do.
uint32_t gv_flat_common(const gv_flat_graph *flat, uint32_t a, uint32_t b, uint32_t *index_a, uint32_t *index_b);

// Do both come from graphs of the same structure: nodes of the same kinds, functions, shapes and order of making,
// edges and child graphs at the same places? Addresses and stacks may differ.
bool gv_flat_same_structure(const gv_trace *trace, const gv_flat_graph *a, const gv_flat_graph *b);

// Equal for graphs of the same structure.
uint64_t gv_flat_fingerprint(const gv_trace *trace, const gv_flat_graph *flat);

#endif
