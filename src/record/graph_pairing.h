// Which node of one graph stands for which node of another, as the driver pairs them when it updates an executable
// graph (Driver API, cuGraphExecUpdate): from the ends of both graphs backwards, in the order in which the edges of
// each node were made.
#ifndef GV_RECORD_GRAPH_PAIRING_H
#define GV_RECORD_GRAPH_PAIRING_H

#include "record/graph_levels.h"

// The nodes of one graph by index, with the nodes in front of each in the order of its edges. No handles: it outlives
// the graph.
typedef struct gv_structure {
    size_t count;
    CUgraphNodeType *types;
    uint32_t *first; // dependencies[first[i]] .. dependencies[first[i + 1]] are those of node i
    uint32_t *dependencies;
    bool *is_end; // nothing depends on it
} gv_structure;

// False when the driver does not tell, or memory is out.
bool gv_structure_read(const gv_level *level, gv_structure *structure);
void gv_structure_free(gv_structure *structure);

// For each node of `a` its counterpart in `b`, in `pair` (of a->count). False when the driver would not pair them.
bool gv_structure_pair(const gv_structure *a, const gv_structure *b, uint32_t *pair);

#endif
