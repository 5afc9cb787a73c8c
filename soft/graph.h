// Graphs, nodes and edges.
#ifndef GRAVEL_SOFT_GRAPH_H
#define GRAVEL_SOFT_GRAPH_H

#include "soft/operation.h"

struct edge_end {
    CUgraphNode node;
    CUgraphEdgeData data;
};

struct edge_list {
    struct edge_end *items;
    size_t count, capacity;
};

struct CUgraphNode_st {
    struct object object;
    CUgraph graph;
    size_t index; // in graph->nodes
    struct operation operation;
    struct edge_list dependencies, dependents; // in the order in which the edges were made
    uint64_t original;                         // id of the node this one was cloned from, else 0
};

struct retained_object {
    CUuserObject object;
    unsigned count;
};

struct CUgraph_st {
    struct object object;
    CUgraphNode *nodes; // in the order in which they were made
    size_t count, capacity;
    CUgraphNode owner;                // of a child graph or of a body of a conditional node: its node
    uint64_t original;                // id of the graph this one was cloned from, else 0
    unsigned captures;                // captures into it that are under way
    struct retained_object *retained; // references to user objects
    size_t retained_count, retained_capacity;
    struct condition **conditions; // made for this graph, a reference each
    size_t condition_count, condition_capacity;
    uint64_t handles; // how many conditional handles were made for it and for graphs inside of it
};

// Memory of an allocation node: one address for the life of the node, every clone and every exec of it.
struct graph_memory {
    unsigned references;
    struct allocation *allocation;
    bool live; // handed out by a launch and not freed
};
CUresult graph_memory_new(uint64_t size, struct graph_memory **memory);
struct graph_memory *graph_memory_keep(struct graph_memory *memory);
void graph_memory_drop(struct graph_memory *memory);

CUresult graph_new(CUgraph *graph);
void graph_delete(CUgraph graph);

// Every node's `original` and the clone's are set. A graph with conditional nodes is never cloned.
CUresult graph_clone(CUgraph original, CUgraph *clone);

// Adds references to a user object, and gives them back; the last one given back calls the program's function.
void user_object_keep(CUuserObject object, unsigned count);
void user_object_drop(CUuserObject object, unsigned count);

// Adds a node with its operation (taken over, also on failure). `data` may be NULL: ordinary edges.
CUresult graph_add_node(CUgraph graph, struct operation *operation, const CUgraphNode *dependencies,
                        const CUgraphEdgeData *data, size_t count, CUgraphNode *node);

// Is this edge data that an edge from a node of that kind may have?
bool edge_data_valid(const CUgraphEdgeData *data, CUgraphNodeType from);
bool edge_data_is_default(const CUgraphEdgeData *data);

// Adds one edge. CUDA_ERROR_INVALID_VALUE for an edge that is already there, or that joins a node to itself.
CUresult graph_add_edge(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data);

// Topological order, ties by the order of making; `order` has graph->count elements. False when there is a cycle or
// memory is out.
bool graph_topological(CUgraph graph, CUgraphNode *order);

#endif
