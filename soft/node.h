// Node parameters in the shapes that the driver API gives them, to operations and back.
#ifndef GRAVEL_SOFT_NODE_H
#define GRAVEL_SOFT_NODE_H

#include "soft/graph.h"

// An operation from the parameters of cuGraphAddNode and its like. For a memory allocation the address is written
// back into `parameters`. On failure nothing is made. `graph` is where the node is to be (NULL: an exec's node).
CUresult node_operation(struct operation *operation, CUgraph graph, CUgraphNodeParams *parameters);

// The operation of a node that frees an allocation node's memory. CUDA_ERROR_INVALID_VALUE for other memory, and when
// `graph` (may be NULL) has such a node already.
CUresult node_free_operation(struct operation *operation, CUgraph graph, CUdeviceptr address);

// The older calls' parameters as the general ones.
void node_params_kernel_v1(CUgraphNodeParams *general, const CUDA_KERNEL_NODE_PARAMS_v1 *parameters);
void node_params_kernel_v2(CUgraphNodeParams *general, const CUDA_KERNEL_NODE_PARAMS_v2 *parameters);
void node_params_memcpy(CUgraphNodeParams *general, const CUDA_MEMCPY3D *parameters, CUcontext context);
void node_params_memset(CUgraphNodeParams *general, const CUDA_MEMSET_NODE_PARAMS *parameters, CUcontext context);
void node_params_host(CUgraphNodeParams *general, const CUDA_HOST_NODE_PARAMS *parameters);
void node_params_values(CUgraphNodeParams *general, const CUDA_BATCH_MEM_OP_NODE_PARAMS *parameters);

// Puts an operation of the same kind (taken over) in the place of another, keeping a kernel's launch attributes.
void operation_replace(struct operation *operation, struct operation *fresh);

#endif
