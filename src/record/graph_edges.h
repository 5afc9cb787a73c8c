// Edges that are added to a graph of the program for the length of one call, and taken away again.
//
// A graph is not synchronised by CUDA: calls on one graph must be serialised by the program (Driver API, "Graph object
// thread safety"). So nobody looks at it, or changes it, between the two.
#ifndef GV_RECORD_GRAPH_EDGES_H
#define GV_RECORD_GRAPH_EDGES_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gv_added_edge {
    CUgraph graph;
    CUgraphNode from, to;
    CUgraphNode via; // an empty node between the two; NULL: one edge
} gv_added_edge;

typedef struct gv_added_edges {
    gv_added_edge *items;
    size_t count, capacity;
} gv_added_edges;

// Adds an ordinary edge, or, with `around`, an empty node and two edges: CUDA takes no ordinary edge beside a
// programmatic one between the same nodes, and taking that away would change the order of the program's edges, by which
// updates pair nodes. On failure what was added before is still there.
CUresult gv_edge_add(gv_added_edges *added, CUgraph graph, CUgraphNode from, CUgraphNode to, bool around);

// Takes all of them away, the last one first, and empties the list. Returns how many the driver kept; *result is then
// its first error.
size_t gv_edges_take_away(gv_added_edges *added, CUresult *result);

// The same without the driver: frees the list.
void gv_edges_forget(gv_added_edges *added);

// Do `edges` (quadruples from, to, port, type) and `pairs` (from, to) together have a cycle? Also true when memory is
// out: then nothing is known, and nothing may be added.
bool gv_edges_cyclic(size_t nodes, const uint64_t *edges, size_t edge_count, const uint32_t *pairs, size_t pair_count);

#endif
