// Graphs as data: nodes, edges, clones, order; and the driver API's functions on structure. Node parameters are in
// node.c, executable graphs in exec.c.
#include "soft/graph.h"

#include "soft/capture.h"
#include "soft/conditional.h"
#include "soft/context.h"
#include "soft/memory.h"

// ---- Memory of allocation nodes ----

CUresult graph_memory_new(uint64_t size, struct graph_memory **memory)
{
    struct graph_memory *made = gv_calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = memory_new(size, MEMORY_NODE, NULL, &made->allocation);
    if (result != CUDA_SUCCESS) {
        gv_free(made);
        return result;
    }
    made->references = 1;
    made->allocation->owner = made;
    *memory = made;
    return CUDA_SUCCESS;
}

struct graph_memory *graph_memory_keep(struct graph_memory *memory)
{
    if (memory)
        memory->references++;
    return memory;
}

void graph_memory_drop(struct graph_memory *memory)
{
    if (!memory || --memory->references)
        return;
    memory_delete(memory->allocation);
    gv_free(memory);
}

// ---- Edges ----

bool edge_data_is_default(const CUgraphEdgeData *data)
{
    return !data->from_port && !data->to_port && !data->type;
}

bool edge_data_valid(const CUgraphEdgeData *data, CUgraphNodeType from)
{
    for (size_t i = 0; i < sizeof data->reserved; i++)
        if (data->reserved[i])
            return false;
    if (edge_data_is_default(data))
        return true;
    if (from != CU_GRAPH_NODE_TYPE_KERNEL || data->to_port || data->type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
        return false;
    // The driver takes the launch-order port with either type.
    return data->from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER ||
           (data->from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC &&
            data->type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
}

static struct edge_end *edge_find(struct edge_list *list, CUgraphNode node)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].node == node)
            return &list->items[i];
    return NULL;
}

static void edge_delete(struct edge_list *list, CUgraphNode node)
{
    struct edge_end *end = edge_find(list, node);
    if (!end)
        return;
    size_t at = (size_t)(end - list->items);
    memmove(end, end + 1, (list->count - at - 1) * sizeof *end);
    list->count--;
}

CUresult graph_add_edge(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data)
{
    CUgraphEdgeData plain = {0};
    if (!data)
        data = &plain;
    if (from == to || from->graph != to->graph || !edge_data_valid(data, from->operation.kind))
        return CUDA_ERROR_INVALID_VALUE;
    if (edge_find(&to->dependencies, from))
        return CUDA_ERROR_INVALID_VALUE;
    if (!GV_GROW(to->dependencies.items, to->dependencies.capacity, to->dependencies.count + 1) ||
        !GV_GROW(from->dependents.items, from->dependents.capacity, from->dependents.count + 1))
        return CUDA_ERROR_OUT_OF_MEMORY;
    to->dependencies.items[to->dependencies.count++] = (struct edge_end){from, *data};
    from->dependents.items[from->dependents.count++] = (struct edge_end){to, *data};
    return CUDA_SUCCESS;
}

// ---- Nodes and graphs ----

static void node_delete(CUgraphNode node)
{
    CUgraph graph = node->graph;
    capture_node_gone(node);
    for (size_t i = 0; i < node->dependencies.count; i++)
        edge_delete(&node->dependencies.items[i].node->dependents, node);
    for (size_t i = 0; i < node->dependents.count; i++)
        edge_delete(&node->dependents.items[i].node->dependencies, node);
    memmove(&graph->nodes[node->index], &graph->nodes[node->index + 1],
            (graph->count - node->index - 1) * sizeof(CUgraphNode));
    graph->count--;
    for (size_t i = node->index; i < graph->count; i++)
        graph->nodes[i]->index = i;
    object_unregister(&node->object);
    operation_clear(&node->operation);
    gv_free(node->dependencies.items);
    gv_free(node->dependents.items);
    gv_free(node);
}

CUresult graph_add_node(CUgraph graph, struct operation *operation, const CUgraphNode *dependencies,
                        const CUgraphEdgeData *data, size_t count, CUgraphNode *node)
{
    CUgraphNode made = gv_calloc(1, sizeof *made);
    if (!made || !GV_GROW(graph->nodes, graph->capacity, graph->count + 1) ||
        !object_register(&made->object, OBJECT_NODE)) {
        gv_free(made);
        operation_clear(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->graph = graph;
    made->index = graph->count;
    made->operation = *operation;
    *operation = (struct operation){.kind = CU_GRAPH_NODE_TYPE_EMPTY};
    if (made->operation.kind == CU_GRAPH_NODE_TYPE_GRAPH)
        made->operation.child->owner = made;
    if (made->operation.kind == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        for (unsigned i = 0; i < made->operation.conditional.size; i++)
            made->operation.conditional.bodies[i]->owner = made;
    graph->nodes[graph->count++] = made;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = object_is(dependencies[i], OBJECT_NODE) ? graph_add_edge(dependencies[i], made, data ? &data[i] : NULL)
                                                         : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        node_delete(made);
    else
        *node = made;
    return result;
}

CUresult graph_new(CUgraph *graph)
{
    CUgraph made = gv_calloc(1, sizeof *made);
    if (!made || !object_register(&made->object, OBJECT_GRAPH)) {
        gv_free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *graph = made;
    return CUDA_SUCCESS;
}

void graph_delete(CUgraph graph)
{
    while (graph->count)
        node_delete(graph->nodes[graph->count - 1]);
    for (size_t i = 0; i < graph->retained_count; i++)
        if (graph->retained[i].count)
            user_object_drop(graph->retained[i].object, graph->retained[i].count);
    for (size_t i = 0; i < graph->condition_count; i++)
        condition_drop(graph->conditions[i]);
    object_unregister(&graph->object);
    gv_free(graph->conditions);
    gv_free(graph->retained);
    gv_free(graph->nodes);
    gv_free(graph);
}

CUresult graph_clone(CUgraph original, CUgraph *clone)
{
    CUgraph made;
    CUresult result = graph_new(&made);
    if (result != CUDA_SUCCESS)
        return result;
    made->original = original->object.id;
    for (size_t i = 0; i < original->retained_count && result == CUDA_SUCCESS; i++) {
        if (!GV_GROW(made->retained, made->retained_capacity, made->retained_count + 1)) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
            break;
        }
        made->retained[made->retained_count++] = original->retained[i];
        user_object_keep(original->retained[i].object, original->retained[i].count);
    }
    for (size_t i = 0; i < original->count && result == CUDA_SUCCESS; i++) {
        struct operation operation;
        result = operation_copy(&operation, &original->nodes[i]->operation);
        CUgraphNode node;
        if (result == CUDA_SUCCESS)
            result = graph_add_node(made, &operation, NULL, NULL, 0, &node);
        if (result == CUDA_SUCCESS)
            node->original = original->nodes[i]->object.id;
    }
    for (size_t i = 0; i < original->count && result == CUDA_SUCCESS; i++) {
        const struct edge_list *list = &original->nodes[i]->dependencies;
        for (size_t j = 0; j < list->count && result == CUDA_SUCCESS; j++)
            result = graph_add_edge(made->nodes[list->items[j].node->index], made->nodes[i], &list->items[j].data);
    }
    if (result != CUDA_SUCCESS)
        graph_delete(made);
    else
        *clone = made;
    return result;
}

bool graph_topological(CUgraph graph, CUgraphNode *order)
{
    size_t *missing = gv_calloc(graph->count + 1, sizeof *missing);
    if (!missing)
        return false;
    for (size_t i = 0; i < graph->count; i++)
        missing[i] = graph->nodes[i]->dependencies.count;
    // Nodes are nearly always made after what they depend on: a scan that starts over only where an edge points
    // backwards is linear for those, and right for the rest.
    size_t done = 0, scan = 0;
    while (done < graph->count && scan < graph->count) {
        if (missing[scan]) {
            scan++;
            continue;
        }
        CUgraphNode node = graph->nodes[scan];
        missing[scan] = SIZE_MAX;
        order[done++] = node;
        size_t again = scan + 1;
        for (size_t i = 0; i < node->dependents.count; i++) {
            size_t later = node->dependents.items[i].node->index;
            if (!--missing[later] && later < again)
                again = later;
        }
        scan = again;
    }
    gv_free(missing);
    return done == graph->count;
}

// ---- The driver API ----

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    if (!graph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    SOFT_API(graph_new(graph));
}

static CUresult destroy(CUgraph graph)
{
    if (!object_is(graph, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->owner || graph->captures)
        return CUDA_ERROR_INVALID_VALUE; // a child graph or body belongs to its node, a captured one to its capture
    graph_delete(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    SOFT_API(destroy(graph));
}

static bool has_memory_nodes(CUgraph graph)
{
    for (size_t i = 0; i < graph->count; i++) {
        const struct operation *operation = &graph->nodes[i]->operation;
        if (operation->kind == CU_GRAPH_NODE_TYPE_MEM_ALLOC || operation->kind == CU_GRAPH_NODE_TYPE_MEM_FREE ||
            (operation->kind == CU_GRAPH_NODE_TYPE_GRAPH && has_memory_nodes(operation->child)))
            return true;
    }
    return false;
}

static CUresult destroy_node(CUgraphNode node)
{
    if (!object_is(node, OBJECT_NODE))
        return CUDA_ERROR_INVALID_VALUE;
    // Documented of the whole graph: what has allocation or free nodes loses neither nodes nor edges.
    if (has_memory_nodes(node->graph))
        return CUDA_ERROR_NOT_SUPPORTED;
    node_delete(node);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode node)
{
    SOFT_API(destroy_node(node));
}

static CUresult clone_graph(CUgraph *clone_out, CUgraph original)
{
    if (!object_is(original, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    if (!clone_out)
        return CUDA_ERROR_INVALID_VALUE;
    if (has_memory_nodes(original) || graph_has_conditionals(original))
        return CUDA_ERROR_NOT_SUPPORTED;
    return graph_clone(original, clone_out);
}

CUresult cuGraphClone(CUgraph *clone_out, CUgraph original)
{
    SOFT_API(clone_graph(clone_out, original));
}

static CUresult find_in_clone(CUgraphNode *found, CUgraphNode original, CUgraph in)
{
    if (!object_is(original, OBJECT_NODE) || !object_is(in, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    if (!found || in->original != original->graph->object.id)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < in->count; i++) {
        if (in->nodes[i]->original == original->object.id) {
            *found = in->nodes[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *found, CUgraphNode original, CUgraph in)
{
    SOFT_API(find_in_clone(found, original, in));
}

// Fills the program's arrays of *count elements as CUDA does: no arrays asks how many there are; larger arrays are
// filled up with null; smaller ones take what fits.
struct listing {
    CUgraphNode *first, *second;
    CUgraphEdgeData *edges;
    size_t capacity, count;
    bool lossy; // edge data that was not asked for
};

static void listing_add(struct listing *listing, CUgraphNode first, CUgraphNode second, const CUgraphEdgeData *data)
{
    if (listing->count < listing->capacity) {
        if (listing->first)
            listing->first[listing->count] = first;
        if (listing->second)
            listing->second[listing->count] = second;
        if (listing->edges)
            listing->edges[listing->count] = *data;
        else if (data && !edge_data_is_default(data))
            listing->lossy = true;
    }
    listing->count++;
}

static CUresult listing_finish(struct listing *listing, size_t *count)
{
    size_t filled = listing->count;
    if (listing->lossy)
        return CUDA_ERROR_LOSSY_QUERY;
    if (listing->first || listing->second) {
        for (size_t i = listing->count; i < listing->capacity; i++) {
            if (listing->first)
                listing->first[i] = NULL;
            if (listing->second)
                listing->second[i] = NULL;
        }
        if (filled > listing->capacity)
            filled = listing->capacity;
    }
    *count = filled;
    return CUDA_SUCCESS;
}

static CUresult get_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count, bool roots)
{
    if (!object_is(graph, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    // An array of no nodes is refused: seen on driver 580.159, where it met the recorder with an empty graph.
    if (!count || (nodes && !*count))
        return CUDA_ERROR_INVALID_VALUE;
    struct listing listing = {.first = nodes, .capacity = nodes ? *count : 0};
    for (size_t i = 0; i < graph->count; i++)
        if (!roots || !graph->nodes[i]->dependencies.count)
            listing_add(&listing, graph->nodes[i], NULL, NULL);
    return listing_finish(&listing, count);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SOFT_API(get_nodes(graph, nodes, count, false));
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SOFT_API(get_nodes(graph, nodes, count, true));
}

static CUresult get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count)
{
    if (!object_is(graph, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    if (!count || !from != !to || (data && !from))
        return CUDA_ERROR_INVALID_VALUE;
    struct listing listing = {from, to, data, from ? *count : 0, 0, false};
    for (size_t i = 0; i < graph->count; i++) {
        const struct edge_list *list = &graph->nodes[i]->dependents;
        for (size_t j = 0; j < list->count; j++)
            listing_add(&listing, graph->nodes[i], list->items[j].node, &list->items[j].data);
    }
    return listing_finish(&listing, count);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    SOFT_API(get_edges(graph, from, to, NULL, count));
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count)
{
    SOFT_API(get_edges(graph, from, to, data, count));
}

static CUresult get_neighbours(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count,
                               bool dependents)
{
    if (!object_is(node, OBJECT_NODE))
        return CUDA_ERROR_INVALID_VALUE;
    if (!count || (data && !nodes))
        return CUDA_ERROR_INVALID_VALUE;
    struct listing listing = {nodes, NULL, data, nodes ? *count : 0, 0, false};
    const struct edge_list *list = dependents ? &node->dependents : &node->dependencies;
    for (size_t i = 0; i < list->count; i++)
        listing_add(&listing, list->items[i].node, NULL, &list->items[i].data);
    return listing_finish(&listing, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    SOFT_API(get_neighbours(node, nodes, NULL, count, false));
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count)
{
    SOFT_API(get_neighbours(node, nodes, data, count, false));
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    SOFT_API(get_neighbours(node, nodes, NULL, count, true));
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count)
{
    SOFT_API(get_neighbours(node, nodes, data, count, true));
}

static CUresult change_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
                             size_t count, bool add)
{
    if (!object_is(graph, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    if (count && (!from || !to))
        return CUDA_ERROR_INVALID_VALUE;
    if (count && !add && has_memory_nodes(graph))
        return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < count; i++) {
        if (!object_is(from[i], OBJECT_NODE) || !object_is(to[i], OBJECT_NODE) || from[i]->graph != graph ||
            to[i]->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
        if (add) {
            CUresult result = graph_add_edge(from[i], to[i], data ? &data[i] : NULL);
            if (result != CUDA_SUCCESS)
                return result;
            continue;
        }
        // Without data an ordinary edge is meant: it must be the one that is there.
        const struct edge_end *end = edge_find(&to[i]->dependencies, from[i]);
        const CUgraphEdgeData plain = {0};
        if (!end || memcmp(&end->data, data ? &data[i] : &plain, sizeof plain) != 0)
            return CUDA_ERROR_INVALID_VALUE;
        edge_delete(&to[i]->dependencies, from[i]);
        edge_delete(&from[i]->dependents, to[i]);
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    SOFT_API(change_edges(graph, from, to, NULL, count, true));
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *data, size_t count)
{
    SOFT_API(change_edges(graph, from, to, data, count, true));
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    SOFT_API(change_edges(graph, from, to, NULL, count, false));
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *data, size_t count)
{
    SOFT_API(change_edges(graph, from, to, data, count, false));
}
