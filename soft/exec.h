// Executable graphs.
#ifndef GRAVEL_SOFT_EXEC_H
#define GRAVEL_SOFT_EXEC_H

#include "soft/graph.h"
#include "soft/schedule.h"

struct plan_node {
    struct operation operation; // of a child graph: an empty one, see child
    struct plan *child;         // owned
    struct plan **bodies;       // of a conditional node: owned, operation.conditional.size of them
    uint64_t source;            // id of the template's node
    bool disabled;
    uint32_t *dependencies; // indices of earlier nodes of the plan
    CUgraphEdgeData *edges;
    size_t dependency_count;
    bool is_sink;
    bool is_awaited; // some node follows its completion, and not only that it has begun or triggered
};

// What a launch runs: an image of the template in topological order. Launches under way hold references; a change
// of parameters while there are any is made on a copy.
struct plan {
    unsigned references;
    struct plan_node *nodes;
    size_t count;
    bool conditional; // it has conditional nodes
};

struct CUgraphExec_st {
    struct object object;
    CUcontext context;
    struct plan *plan;
    cuuint64_t flags;
    struct task *last; // end of the latest launch, counted
};

// Makes a plan of a graph. CUDA_ERROR_INVALID_VALUE when it has a cycle.
CUresult plan_new(CUgraph graph, struct plan **plan);
CUresult plan_copy(const struct plan *original, struct plan **copy);
void plan_drop(struct plan *plan);

// The plan, with references to nobody else: what a change may be made on.
CUresult exec_own_plan(CUgraphExec exec, struct plan **plan);

// The node of the exec that was made from a template's node (NULL: none, in children and bodies neither).
struct plan_node *exec_find(struct plan *plan, CUgraphNode node);

// A launch begins: conditions with a default get it.
void exec_assign_defaults(struct plan *plan);

// Runs the task of a conditional node: what it decides on comes after it and before its continuation.
void exec_run_conditional(struct task *task);

#endif
