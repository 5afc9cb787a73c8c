// Conditional nodes: the values behind conditional handles, and the nodes whose bodies run by them.
#ifndef GRAVEL_SOFT_CONDITIONAL_H
#define GRAVEL_SOFT_CONDITIONAL_H

#include "soft/graph.h"

// What a conditional handle names. It lives as long as its graph and every node and exec that has it.
struct condition {
    struct condition *next;          // of all
    CUgraphConditionalHandle handle; // a number within the outermost graph: 1, 2, ...
    unsigned references;
    CUcontext context;
    unsigned initial; // assigned at each launch, if `assigned`
    bool assigned;
    unsigned value; // under the driver's lock
    uint64_t graph; // id of the graph it was made for
    uint64_t root;  // and of the one that this one is inside of, or is
    bool has_node;  // a handle belongs to one node
    uint64_t exec;  // id of the exec that has it; a graph with conditional nodes is instantiated once at a time
};

struct condition *condition_keep(struct condition *condition);
void condition_drop(struct condition *condition);

// The calling thread runs a node of this graph from now on (NULL: of none with conditional nodes).
struct plan;
void condition_running(const struct plan *plan);

// Sets the value behind a handle of the running graph, as a kernel does; a number that is none of its handles changes
// nothing. False: the access would fault, because no graph with conditional nodes is running, or the number is far from
// any handle.
bool condition_set(uint64_t handle, uint32_t value);

// The operation of a new conditional node; `bodies` and the parameters' phGraph_out receive its graphs, which the
// operation owns. `graph` is where the node is to be.
CUresult conditional_operation_of(struct operation *operation, CUgraph graph, CUDA_CONDITIONAL_NODE_PARAMS *parameters);
void conditional_operation_clear(struct conditional_operation *conditional);

// Does the graph have conditional nodes, in child graphs too?
bool graph_has_conditionals(CUgraph graph);

// Is it a body of a conditional node, or in one?
bool graph_is_body(CUgraph graph);

// Checks what instantiation checks: every handle has its node, bodies hold only what they may, all their kernels are of
// one context, and no other exec than `exec` (id; 0: none) has the graph.
CUresult conditional_check(CUgraph graph, uint64_t exec, CUgraphInstantiateResult *why);

// The exec has the graph's handles from now on; and gives back all it has.
void conditional_adopt(CUgraph graph, uint64_t exec);
void conditional_release(uint64_t exec);

// Which body a conditional node runs now, SIZE_MAX: none.
size_t conditional_choice(const struct conditional_operation *conditional);

#endif
