// Copies of graphs made node by node, for graphs that the driver does not clone.
#ifndef GV_RECORD_GRAPH_COPY_H
#define GV_RECORD_GRAPH_COPY_H

#include <cuda.h>
#include <stddef.h>

// Adds a copy of a kernel, memcpy, memset, host, empty, event or child graph node to `graph`, behind `after`. `params`,
// when given, replaces a kernel's parameters. `context` is where copies and sets run. A node of another kind gives
// CUDA_ERROR_NOT_SUPPORTED.
CUresult gv_copy_node(CUgraph graph, CUgraphNode from, CUgraphNodeType type, const CUDA_KERNEL_NODE_PARAMS *params,
                      CUcontext context, const CUgraphNode *after, size_t after_count, CUgraphNode *copy);

// Makes a graph whose nodes are copies of the original's in the order in which the driver lists them, without edges: a
// store of parameters, which outlives the original. Nodes that cannot be copied have an empty one in their place.
CUresult gv_copy_nodes(CUgraph original, CUcontext context, CUgraph *copy);

#endif
