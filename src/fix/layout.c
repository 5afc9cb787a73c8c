#include "fix/layout.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static gv_status out_of_memory(gv_error *error)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory while a graph was laid out for a fix");
}

// ---- The intended order -----------------------------------------------------------------------------------------

// The order in which the program made the nodes, if every edge agrees with it, as all edges of a capture do. Else, in
// each level, the order nearest to it that every edge agrees with and, as far as they can be had together, every pair.

// An edge of a level, between flat nodes, in lists by its tail.
typedef struct level_edge {
    uint32_t to;
    uint32_t next; // 1 + index; 0: the last
} level_edge;

typedef struct ordering {
    const gv_flat_graph *flat;
    uint32_t *first; // of each flat node 1 + its first edge
    level_edge *edges;
    size_t count, capacity;
    uint32_t *waiting;     // edges that lead to the node
    uint32_t *mark, marks; // by which search a node was met
    uint32_t *stack;
} ordering;

static bool add_edge(ordering *o, uint32_t from, uint32_t to)
{
    if (!GV_GROW(o->edges, o->capacity, o->count + 1))
        return false;
    o->edges[o->count++] = (level_edge){to, o->first[from]};
    o->first[from] = (uint32_t)o->count;
    o->waiting[to]++;
    return true;
}

static bool leads(ordering *o, uint32_t from, uint32_t to)
{
    size_t depth = 0;
    o->stack[depth++] = from;
    o->mark[from] = ++o->marks;
    while (depth) {
        uint32_t at = o->stack[--depth];
        if (at == to)
            return true;
        for (uint32_t e = o->first[at]; e; e = o->edges[e - 1].next) {
            uint32_t next = o->edges[e - 1].to;
            if (o->mark[next] != o->marks) {
                o->mark[next] = o->marks;
                o->stack[depth++] = next;
            }
        }
    }
    return false;
}

// The nodes of the level that holds both, as flat nodes.
static void project(const gv_flat_graph *flat, uint32_t a, uint32_t b, uint32_t *in_a, uint32_t *in_b)
{
    uint32_t index_a, index_b;
    uint32_t common = gv_flat_common(flat, a, b, &index_a, &index_b);
    *in_a = flat->instances[common].first + index_a;
    *in_b = flat->instances[common].first + index_b;
}

// A heap of flat nodes, the one made first on top.
typedef struct heap {
    uint32_t *items;
    size_t count;
} heap;

static void push(heap *h, const uint64_t *made, uint32_t node)
{
    size_t at = h->count++;
    for (; at && made[h->items[(at - 1) / 2]] > made[node]; at = (at - 1) / 2)
        h->items[at] = h->items[(at - 1) / 2];
    h->items[at] = node;
}

static uint32_t pop(heap *h, const uint64_t *made)
{
    uint32_t top = h->items[0], last = h->items[--h->count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < h->count; at = child) {
        if (child + 1 < h->count && made[h->items[child + 1]] < made[h->items[child]])
            child++;
        if (made[h->items[child]] >= made[last])
            break;
        h->items[at] = h->items[child];
    }
    h->items[at] = last;
    return top;
}

// Numbers the nodes of a level, each followed by what it holds. Recursion is bounded by the levels of gv_flatten.
static gv_status number_level(ordering *o, const gv_layout *l, uint32_t instance, const uint32_t *inner, uint32_t *next,
                              gv_error *error)
{
    const gv_flat_graph *flat = o->flat;
    const gv_flat_instance *self = &flat->instances[instance];
    size_t nodes = l->trace->graphs[self->graph].node_count, done = 0;
    heap ready = {gv_calloc(nodes, sizeof *ready.items), 0};
    if (!ready.items)
        return out_of_memory(error);
    for (uint32_t n = 0; n < nodes; n++)
        if (!o->waiting[self->first + n])
            push(&ready, flat->made, self->first + n);
    gv_status status = GV_OK;
    while (ready.count && !status) {
        uint32_t node = pop(&ready, flat->made);
        l->rank[node] = (*next)++;
        done++;
        for (uint32_t i = inner[node]; i && !status; i = flat->instances[i].next) {
            status = number_level(o, l, i, inner, next, error);
            l->rank[flat->instances[i].exit] = (*next)++;
        }
        for (uint32_t e = o->first[node]; e; e = o->edges[e - 1].next)
            if (!--o->waiting[o->edges[e - 1].to])
                push(&ready, flat->made, o->edges[e - 1].to);
    }
    gv_free(ready.items);
    if (!status && done < nodes)
        status = gv_fail(error, GV_ERR_FORMAT, "the edges of graph %" PRIu64 " have a cycle", self->graph);
    return status;
}

// Of each flat node the first instance that it runs, or 0. To be freed.
static uint32_t *inner_instances(const gv_flat_graph *flat)
{
    uint32_t *inner = gv_calloc(flat->node_count, sizeof *inner);
    for (uint32_t i = 1; inner && i < flat->instance_count; i++)
        if (!inner[flat->instances[i].parent_node])
            inner[flat->instances[i].parent_node] = i;
    return inner;
}

// Puts the pairs into the order, each as the program has it unless those before it, and the edges, forbid that.
static bool direct_pairs(ordering *o, gv_layout_pair *pairs, size_t count)
{
    bool agree = true, enough = true;
    for (size_t e = 0; e < o->flat->edge_count && agree; e++)
        agree = o->flat->made[o->flat->edges[e].from] < o->flat->made[o->flat->edges[e].to];
    for (size_t i = 0; i < count && enough; i++) {
        uint32_t first, second;
        project(o->flat, pairs[i].first, pairs[i].second, &first, &second);
        pairs[i].stuck = first == second;
        agree = agree && o->flat->made[first] <= o->flat->made[second];
    }
    // Along an order that all edges agree with, no pair closes a cycle.
    for (size_t i = 0; i < count && enough && !agree; i++) {
        uint32_t first, second;
        if (pairs[i].stuck)
            continue;
        project(o->flat, pairs[i].first, pairs[i].second, &first, &second);
        pairs[i].reversed = leads(o, second, first);
        if (!pairs[i].reversed)
            enough = add_edge(o, first, second);
    }
    return enough;
}

static gv_status order_nodes(gv_layout *l, gv_layout_pair *pairs, size_t pair_count, gv_error *error)
{
    const gv_flat_graph *flat = l->flat;
    ordering o = {.flat = flat,
                  .first = gv_calloc(flat->node_count, sizeof *o.first),
                  .waiting = gv_calloc(flat->node_count, sizeof *o.waiting),
                  .mark = gv_calloc(flat->node_count, sizeof *o.mark),
                  .stack = gv_calloc(flat->node_count, sizeof *o.stack)};
    uint32_t *inner = inner_instances(flat);
    bool enough = o.first && o.waiting && o.mark && o.stack && inner;
    for (size_t i = 0; enough && i < flat->instance_count; i++) {
        const gv_graph *graph = &l->trace->graphs[flat->instances[i].graph];
        for (size_t e = 0; enough && e < graph->edge_count; e++)
            enough = add_edge(&o, flat->instances[i].first + graph->edges[e].from,
                              flat->instances[i].first + graph->edges[e].to);
    }
    enough = enough && direct_pairs(&o, pairs, pair_count);
    uint32_t next = 0;
    gv_status status = enough ? number_level(&o, l, 0, inner, &next, error) : out_of_memory(error);
    gv_free(o.first);
    gv_free(o.edges);
    gv_free(o.waiting);
    gv_free(o.mark);
    gv_free(o.stack);
    gv_free(inner);
    return status;
}

// ---- Vertices ---------------------------------------------------------------------------------------------------

typedef struct placed_point {
    uint32_t rank, point;
    uint8_t stage;
} placed_point;

static int by_rank(const void *left, const void *right)
{
    const placed_point *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->stage < b->stage ? -1 : a->stage > b->stage;
}

static bool number_points(gv_layout *l)
{
    placed_point *placed = gv_calloc(l->points.count, sizeof *placed);
    l->vertex = gv_calloc(l->points.count, sizeof *l->vertex);
    bool enough = placed && l->vertex;
    for (uint32_t i = 0; enough && i < l->points.count; i++)
        placed[i] = (placed_point){l->rank[l->points.node[i]], i, l->points.stage[i]};
    if (enough)
        qsort(placed, l->points.count, sizeof *placed, by_rank);
    for (uint32_t i = 0; enough && i < l->points.count; i++)
        l->vertex[placed[i].point] = i;
    gv_free(placed);
    return enough;
}

// What rests on a kernel that was not observed is left out: the fix does not rely on it.
static bool take_arcs(gv_layout *l)
{
    l->arcs = gv_calloc(l->points.edge_count, sizeof *l->arcs);
    for (size_t e = 0; l->arcs && e < l->points.edge_count; e++)
        if (l->points.edges[e].known)
            l->arcs[l->problem.arc_count++] =
                (gv_fix_arc){l->vertex[l->points.edges[e].from], l->vertex[l->points.edges[e].to]};
    return l->arcs != NULL;
}

typedef struct ranked_node {
    uint32_t rank, node;
} ranked_node;

static int by_node_rank(const void *left, const void *right)
{
    const ranked_node *a = left, *b = right;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

// A spot for every node, in the intended order. The end of what a node runs belongs to the node.
static bool place_spots(gv_layout *l)
{
    const gv_flat_graph *flat = l->flat;
    uint32_t *inner = inner_instances(flat);
    ranked_node *ranked = gv_calloc(flat->node_count, sizeof *ranked);
    l->spots = gv_calloc(flat->node_count, sizeof *l->spots);
    l->spot_node = gv_calloc(flat->node_count, sizeof *l->spot_node);
    l->node_spot = gv_calloc(flat->node_count, sizeof *l->node_spot);
    l->spot_of = gv_calloc(l->points.count, sizeof *l->spot_of);
    bool enough = inner && ranked && l->spots && l->spot_node && l->node_spot && l->spot_of;
    size_t nodes = 0;
    for (uint32_t n = 0; enough && n < flat->node_count; n++)
        if (!flat->nodes[n].is_exit)
            ranked[nodes++] = (ranked_node){l->rank[n], n};
    if (enough)
        qsort(ranked, nodes, sizeof *ranked, by_node_rank);
    for (uint32_t i = 0; enough && i < nodes; i++) {
        uint32_t node = ranked[i].node, out = node;
        for (uint32_t k = inner[node]; k; k = flat->instances[k].next)
            out = flat->instances[k].exit;
        l->spots[i] = (gv_fix_spot){.in = l->vertex[gv_graph_points_at(&l->points, node, GV_POINT_START)],
                                    .out = l->vertex[out],
                                    .level = flat->nodes[node].instance};
        l->spot_node[i] = node;
        l->node_spot[node] = i;
    }
    for (uint32_t n = 0; enough && n < flat->node_count; n++) {
        gv_flat_node at = flat->nodes[n];
        if (at.is_exit)
            l->node_spot[n] = l->node_spot[flat->instances[at.instance].first + at.index];
    }
    for (uint32_t i = 0; enough && i < l->points.count; i++)
        l->spot_of[l->vertex[i]] = l->node_spot[l->points.node[i]];
    l->problem.spot_count = (uint32_t)nodes;
    gv_free(inner);
    gv_free(ranked);
    return enough;
}

static uint32_t side_vertex(const gv_layout *l, uint32_t node, bool early)
{
    return l->vertex[gv_graph_points_at(&l->points, node, early ? GV_POINT_EARLY : GV_POINT_MAIN)];
}

static bool take_demands(gv_layout *l, gv_layout_pair *pairs, size_t count)
{
    l->demands = gv_calloc(count, sizeof *l->demands);
    l->demand_pair = gv_calloc(count, sizeof *l->demand_pair);
    bool enough = l->demands && l->demand_pair;
    for (size_t i = 0; enough && i < count; i++) {
        if (pairs[i].stuck)
            continue;
        uint32_t first = pairs[i].reversed ? pairs[i].second : pairs[i].first;
        uint32_t second = pairs[i].reversed ? pairs[i].first : pairs[i].second, from, to;
        bool early = pairs[i].reversed ? pairs[i].first_early : pairs[i].second_early;
        project(l->flat, first, second, &from, &to);
        // Of the node in front all is waited for: an edge cannot begin in the middle of it.
        l->demand_pair[l->problem.demand_count] = i;
        l->demands[l->problem.demand_count++] = (gv_fix_demand){
            side_vertex(l, first, false), side_vertex(l, second, early), {l->node_spot[from], l->node_spot[to]}};
    }
    return enough;
}

// Does a node take time of its own?
static bool runs(const gv_node *node)
{
    switch (node->kind) {
    case GV_NODE_CHILD:
    case GV_NODE_EMPTY:
    case GV_NODE_EVENT_WAIT:
    case GV_NODE_EVENT_RECORD:
    case GV_NODE_CONDITIONAL:
    case GV_NODE_ALLOC:
    case GV_NODE_FREE: return false;
    default: return !(node->flags & GV_NODE_DISABLED);
    }
}

static bool weigh(gv_layout *l, const uint64_t *times)
{
    l->weights = gv_calloc(l->points.count, sizeof *l->weights);
    for (uint32_t n = 0; l->weights && n < l->flat->node_count; n++) {
        if (l->flat->nodes[n].is_exit || !runs(gv_flat_node_record(l->trace, l->flat, n)))
            continue;
        l->running++;
        l->timed += times[n] > 0;
        l->weights[l->vertex[n]] = times[n];
    }
    for (uint32_t n = 0; l->weights && !l->timed && n < l->flat->node_count; n++)
        l->weights[l->vertex[n]] =
            !l->flat->nodes[n].is_exit && runs(gv_flat_node_record(l->trace, l->flat, n)) ? 1 : 0;
    return l->weights != NULL;
}

gv_status gv_layout_build(const gv_trace *trace, const gv_flat_graph *flat, const gv_grid_dependency *dependencies,
                          const uint64_t *times, gv_layout_pair *pairs, size_t pair_count, gv_layout *l,
                          gv_error *error)
{
    *l = (gv_layout){.trace = trace, .flat = flat, .rank = gv_calloc(flat->node_count, sizeof *l->rank)};
    gv_status status = l->rank ? order_nodes(l, pairs, pair_count, error) : out_of_memory(error);
    if (!status)
        status =
            gv_graph_points_build(flat->node_count, flat->edges, flat->edge_count, dependencies, &l->points, error);
    if (status)
        return status;
    if (!number_points(l) || !take_arcs(l) || !place_spots(l) || !take_demands(l, pairs, pair_count) ||
        !weigh(l, times))
        return out_of_memory(error);
    l->problem.vertex_count = (uint32_t)l->points.count;
    l->problem.arcs = l->arcs;
    l->problem.spots = l->spots;
    l->problem.spot_of = l->spot_of;
    l->problem.demands = l->demands;
    l->problem.weights = l->weights;
    return GV_OK;
}

void gv_layout_free(gv_layout *l)
{
    gv_graph_points_free(&l->points);
    gv_free(l->rank);
    gv_free(l->vertex);
    gv_free(l->arcs);
    gv_free(l->spots);
    gv_free(l->spot_node);
    gv_free(l->node_spot);
    gv_free(l->spot_of);
    gv_free(l->demands);
    gv_free(l->demand_pair);
    gv_free(l->weights);
    *l = (gv_layout){0};
}
