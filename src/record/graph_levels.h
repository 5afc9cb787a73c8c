// A graph of the program with the graphs inside it, as a fix file speaks of it: nodes by their numbers, and
// fingerprints. Read from the driver, nothing is kept or changed.
#ifndef GV_RECORD_GRAPH_LEVELS_H
#define GV_RECORD_GRAPH_LEVELS_H

#include "record/graph.h"
#include "trace/fingerprint.h"

// What of a node goes into fingerprints.
typedef struct gv_node_facts {
    uint64_t shape[7], detail[9];
} gv_node_facts;

// One graph: the whole, a child graph, or a body of a conditional node.
typedef struct gv_level {
    gv_snapshot *snapshot; // its nodes' handles are those of the program's graph
    gv_print_graph print;
    uint32_t *numbers;        // of the nodes, by index
    struct gv_level **bodies; // by index: the graphs in the node, snapshot->nodes[].body_count of them, or NULL
    // What `print` points to.
    gv_print_node *nodes;
    gv_node_facts *facts;
    gv_print_graph **inner;
} gv_level;

// Reads the graph. NULL: the driver does not list it, or memory is out; `why` (of `size` bytes) says which.
gv_level *gv_level_read(CUgraph graph, char *why, size_t size);
void gv_level_free(gv_level *level);

// The graph inside that the steps (pairs node number, body) lead to; NULL: there is none.
gv_level *gv_level_at(gv_level *level, const uint64_t *steps, size_t count);

// The index of the node with this number; UINT32_MAX: there is none.
uint32_t gv_level_index(const gv_level *level, uint64_t number);

// The kernel's name, "" for a node that is none or whose name is not known.
const char *gv_level_kernel(const gv_level *level, uint32_t index);

// Are there memory nodes in it, or in a graph inside? From such graphs the driver lets no edge be taken away.
bool gv_level_has_memory_nodes(const gv_level *level);

#endif
