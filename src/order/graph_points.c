#include "order/graph_points.h"

#include "base/memory.h"

#include <string.h>

// What an edge does: when the node behind it may begin, and whether a grid-dependency wait there waits for the node in
// front. CUgraphEdgeData has a port and a type for these two.
typedef enum begins { WHEN_COMPLETE, WHEN_TRIGGERED, WHEN_BEGUN } begins;

static begins when(const gv_edge *edge)
{
    if (edge->from_port == 2)
        return WHEN_BEGUN;
    return edge->from_port == 0 && edge->type == 0 ? WHEN_COMPLETE : WHEN_TRIGGERED;
}

static bool is_waited_for(const gv_edge *edge)
{
    return edge->type != 0 || when(edge) == WHEN_TRIGGERED;
}

static gv_status out_of_memory(gv_error *error, size_t nodes)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory for the order of a graph of %zu nodes", nodes);
}

static bool add_edge(gv_graph_points *p, uint32_t from, uint32_t to, bool known)
{
    if (!GV_GROW(p->edges, p->edge_capacity, p->edge_count + 1))
        return false;
    p->edges[p->edge_count++] = (gv_point_edge){from, to, known};
    p->assumed |= !known;
    return true;
}

// A further point of a node.
static uint32_t add_point(gv_graph_points *p, uint32_t node, enum gv_point_stage stage)
{
    p->node[p->count] = node;
    p->stage[p->count] = (uint8_t)stage;
    return (uint32_t)p->count++;
}

// Which edges, other than ordinary ones, a node has.
enum { IS_WAITED_FOR_BY = 1, WAITS_FOR = 2 };

// Gives a node its points and ties them together.
static bool place_node(gv_graph_points *p, uint32_t n, uint8_t edges, gv_grid_dependency dependency)
{
    uint32_t start = n, early = n, wait = n;
    bool waits = edges & WAITS_FOR && dependency.wait != GV_GRID_WAIT_NONE;
    if (waits && dependency.wait == GV_GRID_WAIT_DONE && dependency.early)
        early = add_point(p, n, GV_POINT_EARLY);
    // Who follows over such an edge follows the beginning of this node, or its wait, and not its end.
    if (edges & IS_WAITED_FOR_BY) {
        start = add_point(p, n, GV_POINT_START);
        wait = waits ? add_point(p, n, GV_POINT_WAIT) : start;
    } else {
        start = early;
    }
    p->at[GV_POINT_START][n] = start;
    p->at[GV_POINT_EARLY][n] = early;
    p->at[GV_POINT_WAIT][n] = wait;
    bool ok = true;
    if (start != early)
        ok = add_edge(p, start, early, true);
    if (ok && waits && wait != n)
        ok = add_edge(p, start, wait, true) && add_edge(p, wait, n, true);
    // Whatever follows the node follows both parts of it, so that putting one part before the other says nothing wrong.
    return ok && (early == n || add_edge(p, early, n, true));
}

// What a node over an edge of kind WHEN_TRIGGERED follows: all blocks of `from` have begun, and some of its blocks
// trigger only behind its wait, or none does, or that is not known.
static bool follow_trigger(gv_graph_points *p, uint32_t from, uint32_t to, gv_grid_dependency dependency)
{
    uint32_t start = p->at[GV_POINT_START][from], wait = p->at[GV_POINT_WAIT][from];
    bool observed = dependency.wait == GV_GRID_WAIT_DONE;
    if (wait == start || (observed && dependency.trigger == GV_GRID_TRIGGER_EARLY))
        return add_edge(p, start, to, true);
    if (observed && dependency.trigger == GV_GRID_TRIGGER_LATE)
        return add_edge(p, wait, to, true);
    return add_edge(p, start, to, true) && add_edge(p, wait, to, false);
}

static bool place_edge(gv_graph_points *p, const gv_edge *edge, const gv_grid_dependency *dependencies)
{
    uint32_t start = p->at[GV_POINT_START][edge->to];
    gv_grid_dependency from = dependencies ? dependencies[edge->from] : (gv_grid_dependency){0};
    bool ok = true;
    switch (when(edge)) {
    case WHEN_COMPLETE: ok = add_edge(p, edge->from, start, true); break;
    case WHEN_BEGUN: ok = add_edge(p, p->at[GV_POINT_START][edge->from], start, true); break;
    case WHEN_TRIGGERED: ok = follow_trigger(p, edge->from, start, from); break;
    }
    enum gv_grid_wait wait = dependencies ? dependencies[edge->to].wait : GV_GRID_WAIT_UNKNOWN;
    if (ok && is_waited_for(edge) && wait != GV_GRID_WAIT_NONE)
        ok = add_edge(p, edge->from, p->at[GV_POINT_WAIT][edge->to], wait == GV_GRID_WAIT_DONE);
    return ok;
}

gv_status gv_graph_points_build(size_t node_count, const gv_edge *edges, size_t edge_count,
                                const gv_grid_dependency *dependencies, gv_graph_points *p, gv_error *error)
{
    *p = (gv_graph_points){.node_count = node_count, .count = node_count};
    if (node_count >= UINT32_MAX / GV_POINT_STAGES)
        return gv_fail(error, GV_ERR_LIMIT, "a graph of %zu nodes is larger than the limit of %u", node_count,
                       UINT32_MAX / GV_POINT_STAGES - 1);
    uint8_t *kinds = gv_calloc(node_count, sizeof *kinds);
    size_t most = node_count;
    for (size_t i = 0; kinds && i < edge_count; i++) {
        if (edges[i].from >= node_count || edges[i].to >= node_count) {
            gv_free(kinds);
            return gv_fail(error, GV_ERR_FORMAT, "edge %zu joins nodes %u and %u of a graph of %zu nodes", i,
                           edges[i].from, edges[i].to, node_count);
        }
        if (when(&edges[i]) != WHEN_COMPLETE)
            kinds[edges[i].from] |= IS_WAITED_FOR_BY;
        if (is_waited_for(&edges[i]))
            kinds[edges[i].to] |= WAITS_FOR;
    }
    for (size_t n = 0; kinds && n < node_count; n++)
        most += kinds[n] ? GV_POINT_STAGES - 1 : 0;
    bool ok = kinds != NULL;
    for (int stage = GV_POINT_START; stage < GV_POINT_MAIN; stage++) {
        p->at[stage] = gv_calloc(node_count, sizeof *p->at[stage]);
        ok = ok && p->at[stage];
    }
    p->node = gv_calloc(most, sizeof *p->node);
    p->stage = gv_calloc(most, sizeof *p->stage);
    ok = ok && p->node && p->stage;
    for (uint32_t n = 0; ok && n < node_count; n++) {
        p->node[n] = n;
        p->stage[n] = GV_POINT_MAIN;
        ok = place_node(p, n, kinds[n], dependencies ? dependencies[n] : (gv_grid_dependency){0});
    }
    for (size_t i = 0; ok && i < edge_count; i++)
        ok = place_edge(p, &edges[i], dependencies);
    gv_free(kinds);
    return ok ? GV_OK : out_of_memory(error, node_count);
}

void gv_graph_points_free(gv_graph_points *p)
{
    for (int stage = GV_POINT_START; stage < GV_POINT_MAIN; stage++)
        gv_free(p->at[stage]);
    gv_free(p->node);
    gv_free(p->stage);
    gv_free(p->edges);
    *p = (gv_graph_points){0};
}
