// Reading a graph from the driver and writing it to the trace.
#ifndef GV_RECORD_SNAPSHOT_H
#define GV_RECORD_SNAPSHOT_H

#include "record/graph.h"

// Where a node came from, as far as it was seen.
typedef struct gv_node_place {
    uint64_t stack, stream, order;
    const CUgraph *bodies; // of a conditional node, valid while the place is known
    size_t body_count;
    gv_condition condition; // of a conditional node
} gv_node_place;

// Looks a node's place up; answers zeros when it was not seen.
typedef gv_node_place (*gv_place_of)(CUgraphNode node);

// Reads `graph`, cloning it first when `clone` is asked for; a graph with conditional nodes, which the driver does not
// clone, is copied node by node. Returns NULL when memory is out.
// A graph the driver does not list gets the flag GV_GRAPH_UNREADABLE and a refusal. `remember` is called for each
// node of the program's template with its snapshot and index; it may be NULL.
gv_snapshot *gv_snapshot_take(CUgraph graph, unsigned origin, bool clone, gv_place_of place_of,
                              void (*remember)(CUgraphNode node, gv_snapshot *snapshot, uint32_t index, void *user),
                              void *user);

// Gives it a graph id and writes graph, nodes, edges, and those of its child graphs.
void gv_snapshot_write(gv_snapshot *snapshot);

void gv_snapshot_free(gv_snapshot *snapshot);

// One memcpy or memset node's parameters as the `detail` numbers of trace/record.h. Returns how many.
size_t gv_memcpy_detail(const CUDA_MEMCPY3D *copy, uint64_t detail[9]);
size_t gv_memset_detail(const CUDA_MEMSET_NODE_PARAMS *set, uint64_t detail[6]);

#endif
