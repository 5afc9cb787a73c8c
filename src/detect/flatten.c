// Spreads child graphs and bodies out. Each gets one node more than it has, for its end; the node that runs it, or the
// end of the body before it, stands for its beginning.
#include "detect/flatten.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NODES = 1 << 22, MOST_LEVELS = 32 };

static gv_status out_of_memory(gv_error *error, uint64_t graph)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory while laying out graph %" PRIu64, graph);
}

static const gv_graph *graph_of(const gv_trace *trace, uint64_t id)
{
    return id && id < trace->graph_count && trace->graphs[id].id == id ? &trace->graphs[id] : NULL;
}

// A child graph whose snapshot the trace names.
static bool has_child(const gv_node *node)
{
    return node->kind == GV_NODE_CHILD && node->child != 0;
}

static gv_status check_instance(const gv_trace *trace, const gv_flat_graph *flat, const gv_flat_instance *added,
                                gv_error *error)
{
    const gv_graph *graph = graph_of(trace, added->graph);
    if (!graph || !graph->whole || (graph->flags & GV_GRAPH_UNREADABLE))
        return gv_fail(error, GV_ERR_MISSING,
                       "some nodes or edges of graph %" PRIu64 " are not in the trace, so that its order is not known",
                       added->graph);
    if (added->depth > MOST_LEVELS)
        return gv_fail(error, GV_ERR_LIMIT, "child graphs nest deeper than the limit of %d levels", MOST_LEVELS);
    if (flat->node_count + graph->node_count + 1 > MOST_NODES)
        return gv_fail(
            error, GV_ERR_LIMIT,
            "with its child graphs and all executions of bodies, the graph has more nodes than the limit of %d",
            MOST_NODES);
    for (uint32_t i = added->parent; added->depth; i = flat->instances[i].parent) {
        if (flat->instances[i].graph == added->graph)
            return gv_fail(error, GV_ERR_FORMAT, "graph %" PRIu64 " contains itself; the trace is damaged",
                           added->graph);
        if (flat->instances[i].depth == 0)
            break;
    }
    return GV_OK;
}

// What is laid out. `executions` has those of one launch by parent and node; NULL: each body once.
typedef struct layout {
    const gv_trace *trace;
    gv_flat_graph *flat;
    const gv_execution *executions;
    size_t execution_count, placed;
    gv_error *error;
} layout;

static gv_status add_instance(const gv_trace *trace, gv_flat_graph *flat, gv_flat_instance added, gv_error *error)
{
    gv_status status = check_instance(trace, flat, &added, error);
    if (status)
        return status;
    if (!GV_GROW(flat->instances, flat->instance_capacity, flat->instance_count + 1))
        return out_of_memory(error, added.graph);
    size_t nodes = trace->graphs[added.graph].node_count;
    added.first = (uint32_t)flat->node_count;
    flat->node_count += nodes;
    if (added.depth)
        added.exit = (uint32_t)flat->node_count++;
    flat->instances[flat->instance_count++] = added;
    return GV_OK;
}

// Adds what a node of an instance runs, behind what it ran before (`last`, 0: nothing).
static gv_status add_inner(layout *l, uint32_t instance, uint32_t node, uint64_t graph, uint64_t execution,
                           uint32_t *last)
{
    gv_flat_graph *flat = l->flat;
    uint32_t parent_node = flat->instances[instance].first + node;
    gv_flat_instance inner = {.graph = graph,
                              .execution = execution,
                              .parent = instance,
                              .parent_node = parent_node,
                              .depth = flat->instances[instance].depth + 1,
                              .entry = *last ? flat->instances[*last].exit : parent_node};
    gv_status status = add_instance(l->trace, flat, inner, l->error);
    if (status)
        return status;
    uint32_t added = (uint32_t)flat->instance_count - 1;
    if (*last)
        flat->instances[*last].next = added;
    *last = added;
    return GV_OK;
}

// By the execution they are part of, the node that they are executions of a body of, and their own order.
static int by_place(const gv_trace *trace, const gv_execution *a, const gv_execution *b)
{
    const gv_graph *in_a = &trace->graphs[a->graph], *in_b = &trace->graphs[b->graph];
    if (a->parent != b->parent)
        return a->parent < b->parent ? -1 : 1;
    if (in_a->parent != in_b->parent)
        return in_a->parent < in_b->parent ? -1 : 1;
    if (in_a->parent_node != in_b->parent_node)
        return in_a->parent_node < in_b->parent_node ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static int by_place_of(const void *left, const void *right, void *trace)
{
    return by_place(trace, left, right);
}

// The first of the executions that a conditional node had as part of execution `parent`.
static size_t first_execution(const layout *l, uint64_t parent, uint64_t graph, uint32_t node)
{
    size_t low = 0, high = l->execution_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const gv_execution *at = &l->executions[middle];
        const gv_graph *body = &l->trace->graphs[at->graph];
        bool before = at->parent != parent    ? at->parent < parent
                      : body->parent != graph ? body->parent < graph
                                              : body->parent_node < node;
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_among(const uint64_t *bodies, size_t count, uint64_t graph)
{
    for (size_t i = 0; i < count; i++)
        if (bodies[i] == graph)
            return true;
    return false;
}

static gv_status add_bodies(layout *l, uint32_t instance, uint32_t node)
{
    const gv_trace *trace = l->trace;
    uint64_t graph = l->flat->instances[instance].graph, parent = l->flat->instances[instance].execution;
    uint32_t last = 0;
    size_t count;
    const uint64_t *bodies = gv_node_bodies(&trace->graphs[graph].nodes[node], &count);
    gv_status status = GV_OK;
    l->flat->has_bodies |= count > 0;
    for (size_t i = 0; !l->executions && i < count && !status; i++)
        if (bodies[i])
            status = add_inner(l, instance, node, bodies[i], 0, &last);
    for (size_t i = l->executions ? first_execution(l, parent, graph, node) : 0;
         i < l->execution_count && !status && count; i++) {
        const gv_execution *at = &l->executions[i];
        if (at->parent != parent || trace->graphs[at->graph].parent != graph ||
            trace->graphs[at->graph].parent_node != node)
            break;
        // One that the node does not name has no place: the launch cannot be laid out then.
        if (!is_among(bodies, count, at->graph))
            continue;
        status = add_inner(l, instance, node, at->graph, at->id, &last);
        l->placed++;
    }
    return status;
}

// Lists all instances, breadth first, and so gives every node its place.
static gv_status list_instances(layout *l, uint64_t graph)
{
    gv_flat_graph *flat = l->flat;
    gv_status status = add_instance(l->trace, flat, (gv_flat_instance){.graph = graph}, l->error);
    for (uint32_t i = 0; !status && i < flat->instance_count; i++) {
        const gv_graph *snapshot = &l->trace->graphs[flat->instances[i].graph];
        for (uint32_t n = 0; !status && n < snapshot->node_count; n++) {
            uint32_t last = 0;
            if (has_child(&snapshot->nodes[n]))
                status = add_inner(l, i, n, snapshot->nodes[n].child, flat->instances[i].execution, &last);
            else if (snapshot->nodes[n].kind == GV_NODE_CONDITIONAL)
                status = add_bodies(l, i, n);
        }
    }
    if (!status && l->placed < l->execution_count)
        status = gv_fail(l->error, GV_ERR_MISSING,
                         "%zu executions of bodies are recorded whose places in graph %" PRIu64 " are not",
                         l->execution_count - l->placed, graph);
    return status;
}

// An instance with its key, for sorting.
typedef struct keyed_instance {
    uint64_t graph, execution;
    uint32_t instance;
} keyed_instance;

static int by_graph(const void *left, const void *right)
{
    const keyed_instance *a = left, *b = right;
    if (a->graph != b->graph)
        return a->graph < b->graph ? -1 : 1;
    if (a->execution != b->execution)
        return a->execution < b->execution ? -1 : 1;
    return a->instance < b->instance ? -1 : a->instance > b->instance;
}

static gv_status index_instances(gv_flat_graph *flat, gv_error *error)
{
    keyed_instance *keyed = gv_calloc(flat->instance_count, sizeof *keyed);
    flat->by_graph = gv_calloc(flat->instance_count, sizeof *flat->by_graph);
    if (!keyed || !flat->by_graph) {
        gv_free(keyed);
        return out_of_memory(error, flat->instances[0].graph);
    }
    for (uint32_t i = 0; i < flat->instance_count; i++)
        keyed[i] = (keyed_instance){
            .graph = flat->instances[i].graph, .execution = flat->instances[i].execution, .instance = i};
    qsort(keyed, flat->instance_count, sizeof *keyed, by_graph);
    for (size_t i = 0; i < flat->instance_count; i++)
        flat->by_graph[i] = keyed[i].instance;
    gv_free(keyed);
    return GV_OK;
}

// The first of the instances, by snapshot and execution, that is not before these.
static size_t first_instance(const gv_flat_graph *flat, uint64_t graph, uint64_t execution)
{
    size_t low = 0, high = flat->instance_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const gv_flat_instance *at = &flat->instances[flat->by_graph[middle]];
        if (at->graph != graph ? at->graph < graph : at->execution < execution)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const uint32_t *gv_flat_instances_of(const gv_flat_graph *flat, uint64_t graph, size_t *count)
{
    size_t first = first_instance(flat, graph, 0);
    *count = 0;
    while (first + *count < flat->instance_count && flat->instances[flat->by_graph[first + *count]].graph == graph)
        ++*count;
    return *count ? flat->by_graph + first : NULL;
}

const uint32_t *gv_flat_instances_in(const gv_flat_graph *flat, uint64_t graph, uint64_t execution, size_t *count)
{
    size_t first = first_instance(flat, graph, execution);
    *count = 0;
    for (size_t i = first; i < flat->instance_count; i++) {
        const gv_flat_instance *at = &flat->instances[flat->by_graph[i]];
        if (at->graph != graph || at->execution != execution)
            break;
        ++*count;
    }
    return *count ? flat->by_graph + first : NULL;
}

static gv_status add_edge(gv_flat_graph *flat, gv_edge edge, gv_error *error)
{
    if (!GV_GROW(flat->edges, flat->edge_capacity, flat->edge_count + 1))
        return out_of_memory(error, flat->instances[0].graph);
    flat->edges[flat->edge_count++] = edge;
    return GV_OK;
}

// What each node runs.
typedef struct runs {
    uint32_t *first, *last; // instances; 0: it runs none
} runs;

// Adds an instance's own edges and ties it to what it comes after. A node with no ordinary edge into it may start with
// its instance, and one with no ordinary edge out of it may be the last to end.
static gv_status add_edges(const gv_trace *trace, gv_flat_graph *flat, const gv_flat_instance *instance, const runs *at,
                           uint8_t *touched, gv_error *error)
{
    enum { ENTERED = 1, LEFT = 2 };
    const gv_graph *graph = &trace->graphs[instance->graph];
    memset(touched, 0, graph->node_count);
    for (size_t e = 0; e < graph->edge_count; e++) {
        gv_edge edge = graph->edges[e];
        if (edge.from_port == 0 && edge.type == 0) {
            touched[edge.to] |= ENTERED;
            touched[edge.from] |= LEFT;
        }
        edge.from += instance->first;
        edge.to += instance->first;
        uint32_t child = at->last[edge.from];
        if (child)
            edge.from = flat->instances[child].exit;
        gv_status status = add_edge(flat, edge, error);
        if (status)
            return status;
    }
    if (!instance->depth)
        return GV_OK;
    gv_status status = add_edge(flat, (gv_edge){.from = instance->entry, .to = instance->exit}, error);
    for (uint32_t n = 0; n < graph->node_count && !status; n++) {
        uint32_t node = instance->first + n, child = at->last[node];
        if (!(touched[n] & ENTERED))
            status = add_edge(flat, (gv_edge){.from = instance->entry, .to = node}, error);
        if (!status && !(touched[n] & LEFT))
            status = add_edge(flat, (gv_edge){.from = child ? flat->instances[child].exit : node, .to = instance->exit},
                              error);
    }
    return status;
}

// ---- The order of making ----------------------------------------------------------------------------------------

typedef struct making {
    uint64_t order;
    uint32_t index;
} making;

static int by_order(const void *left, const void *right)
{
    const making *a = left, *b = right;
    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

// Numbers an instance's nodes, those of child graphs and bodies right after the node that runs them. Recursion is
// bounded by MOST_LEVELS. Where the order of one node is not known, indices decide for the whole snapshot.
static bool number_nodes(const gv_trace *trace, gv_flat_graph *flat, uint32_t instance, const runs *at, uint64_t *next)
{
    const gv_flat_instance *self = &flat->instances[instance];
    const gv_graph *graph = &trace->graphs[self->graph];
    making *nodes = gv_calloc(graph->node_count, sizeof *nodes);
    if (!nodes)
        return false;
    bool known = true;
    for (size_t n = 0; n < graph->node_count; n++)
        known = known && graph->nodes[n].order;
    for (uint32_t n = 0; n < graph->node_count; n++)
        nodes[n] = (making){.order = known ? graph->nodes[n].order : n, .index = n};
    qsort(nodes, graph->node_count, sizeof *nodes, by_order);
    bool ok = true;
    for (size_t n = 0; ok && n < graph->node_count; n++) {
        uint32_t node = self->first + nodes[n].index;
        flat->made[node] = (*next)++;
        for (uint32_t inner = at->first[node]; ok && inner; inner = flat->instances[inner].next)
            ok = number_nodes(trace, flat, inner, at, next);
    }
    if (self->depth)
        flat->made[self->exit] = (*next)++;
    gv_free(nodes);
    return ok;
}

static gv_status fill(layout *l, uint64_t graph)
{
    const gv_trace *trace = l->trace;
    gv_flat_graph *flat = l->flat;
    gv_error *error = l->error;
    gv_status status = list_instances(l, graph);
    if (status)
        return status;
    flat->nodes = gv_calloc(flat->node_count, sizeof *flat->nodes);
    flat->made = gv_calloc(flat->node_count, sizeof *flat->made);
    runs at = {gv_calloc(flat->node_count, sizeof *at.first), gv_calloc(flat->node_count, sizeof *at.last)};
    uint8_t *touched = gv_calloc(flat->node_count, sizeof *touched);
    if (!flat->nodes || !flat->made || !at.first || !at.last || !touched)
        status = out_of_memory(error, graph);
    for (uint32_t i = 0; !status && i < flat->instance_count; i++) {
        const gv_flat_instance *instance = &flat->instances[i];
        size_t nodes = trace->graphs[instance->graph].node_count;
        for (uint32_t n = 0; n < nodes; n++)
            flat->nodes[instance->first + n] = (gv_flat_node){.instance = i, .index = n};
        if (instance->depth) {
            const gv_flat_instance *parent = &flat->instances[instance->parent];
            if (!at.first[instance->parent_node])
                at.first[instance->parent_node] = i;
            at.last[instance->parent_node] = i;
            flat->nodes[instance->exit] = (gv_flat_node){
                .instance = instance->parent, .index = instance->parent_node - parent->first, .is_exit = true};
        }
    }
    for (size_t i = 0; !status && i < flat->instance_count; i++)
        status = add_edges(trace, flat, &flat->instances[i], &at, touched, error);
    if (!status)
        status = index_instances(flat, error);
    uint64_t next = 0;
    if (!status && !number_nodes(trace, flat, 0, &at, &next))
        status = out_of_memory(error, graph);
    gv_free(at.first);
    gv_free(at.last);
    gv_free(touched);
    return status;
}

gv_status gv_flatten(const gv_trace *trace, uint64_t graph, gv_flat_graph *flat, gv_error *error)
{
    layout l = {.trace = trace, .flat = flat, .error = error};
    *flat = (gv_flat_graph){0};
    gv_status status = fill(&l, graph);
    if (status)
        gv_flat_graph_free(flat);
    return status;
}

gv_status gv_flatten_launch(const gv_trace *trace, const gv_armed *armed, gv_flat_graph *flat, gv_error *error)
{
    *flat = (gv_flat_graph){0};
    gv_execution *executions = gv_calloc(armed->execution_count + 1, sizeof *executions);
    if (!executions)
        return out_of_memory(error, armed->graph);
    if (armed->execution_count) {
        memcpy(executions, trace->executions + armed->first_execution, armed->execution_count * sizeof *executions);
        qsort_r(executions, armed->execution_count, sizeof *executions, by_place_of, (void *)trace);
    }
    layout l = {.trace = trace,
                .flat = flat,
                .executions = executions,
                .execution_count = armed->execution_count,
                .error = error};
    gv_status status = fill(&l, armed->graph);
    gv_free(executions);
    if (status)
        gv_flat_graph_free(flat);
    return status;
}

uint32_t *gv_flat_fold(const gv_flat_graph *launch, const gv_flat_graph *graph)
{
    uint32_t *instance_of = gv_calloc(launch->instance_count, sizeof *instance_of);
    uint32_t *folded = gv_calloc(launch->node_count, sizeof *folded);
    for (size_t i = 1; instance_of && folded && i < launch->instance_count; i++) {
        const gv_flat_instance *inner = &launch->instances[i];
        uint32_t parent = instance_of[inner->parent]; // parents come first
        uint32_t node = graph->instances[parent].first + inner->parent_node - launch->instances[inner->parent].first;
        size_t count;
        const uint32_t *same = gv_flat_instances_of(graph, inner->graph, &count);
        for (size_t k = 0; k < count; k++)
            if (graph->instances[same[k]].parent_node == node)
                instance_of[i] = same[k];
    }
    for (uint32_t n = 0; instance_of && folded && n < launch->node_count; n++) {
        const gv_flat_node *at = &launch->nodes[n];
        folded[n] = graph->instances[instance_of[at->instance]].first + at->index;
    }
    if (!instance_of) {
        gv_free(folded);
        folded = NULL;
    }
    gv_free(instance_of);
    return folded;
}

void gv_flat_graph_free(gv_flat_graph *flat)
{
    gv_free(flat->nodes);
    gv_free(flat->made);
    gv_free(flat->edges);
    gv_free(flat->instances);
    gv_free(flat->by_graph);
    *flat = (gv_flat_graph){0};
}

const gv_node *gv_flat_node_record(const gv_trace *trace, const gv_flat_graph *flat, uint32_t node)
{
    gv_flat_node at = flat->nodes[node];
    return &trace->graphs[flat->instances[at.instance].graph].nodes[at.index];
}

uint32_t gv_flat_common(const gv_flat_graph *flat, uint32_t a, uint32_t b, uint32_t *index_a, uint32_t *index_b)
{
    for (;;) {
        uint32_t in_a = flat->nodes[a].instance, in_b = flat->nodes[b].instance;
        if (in_a == in_b) {
            *index_a = flat->nodes[a].index;
            *index_b = flat->nodes[b].index;
            return in_a;
        }
        if (flat->instances[in_a].depth >= flat->instances[in_b].depth)
            a = flat->instances[in_a].parent_node;
        else
            b = flat->instances[in_b].parent_node;
    }
}

// ---- Structure --------------------------------------------------------------------------------------------------

static bool same_node(const gv_node *a, const gv_node *b)
{
    return a->kind == b->kind && a->function == b->function && a->order == b->order && a->flags == b->flags &&
           a->shape.count == b->shape.count &&
           (a->shape.count == 0 || memcmp(a->shape.items, b->shape.items, a->shape.count * sizeof(uint64_t)) == 0);
}

static bool same_edge(const gv_edge *a, const gv_edge *b)
{
    return a->from == b->from && a->to == b->to && a->from_port == b->from_port && a->type == b->type;
}

bool gv_flat_same_structure(const gv_trace *trace, const gv_flat_graph *a, const gv_flat_graph *b)
{
    if (a->node_count != b->node_count || a->edge_count != b->edge_count || a->instance_count != b->instance_count)
        return false;
    for (size_t i = 1; i < a->instance_count; i++) {
        if (a->instances[i].parent_node != b->instances[i].parent_node || a->instances[i].exit != b->instances[i].exit)
            return false;
    }
    for (size_t e = 0; e < a->edge_count; e++) {
        if (!same_edge(&a->edges[e], &b->edges[e]))
            return false;
    }
    for (uint32_t n = 0; n < a->node_count; n++) {
        if (!same_node(gv_flat_node_record(trace, a, n), gv_flat_node_record(trace, b, n)))
            return false;
    }
    return true;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

uint64_t gv_flat_fingerprint(const gv_trace *trace, const gv_flat_graph *flat)
{
    uint64_t hash = mix(flat->node_count, flat->edge_count);
    for (uint32_t n = 0; n < flat->node_count; n++) {
        const gv_node *node = gv_flat_node_record(trace, flat, n);
        hash = mix(mix(mix(hash, node->kind), node->function), node->order);
    }
    for (size_t e = 0; e < flat->edge_count; e++)
        hash = mix(hash, (uint64_t)flat->edges[e].from << 32 | flat->edges[e].to);
    return hash;
}
