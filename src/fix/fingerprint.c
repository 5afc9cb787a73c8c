#include "fix/fingerprint.h"

#include "base/memory.h"

#include <inttypes.h>

typedef struct building {
    const gv_trace *trace;
    gv_error *error;
} building;

static gv_status out_of_memory(gv_error *error, uint64_t graph)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory while the fingerprint of graph %" PRIu64 " was computed",
                   graph);
}

static void free_graph(gv_print_graph *graph)
{
    for (size_t i = 0; graph->nodes && i < graph->node_count; i++) {
        for (size_t k = 0; k < graph->nodes[i].inner_count; k++)
            free_graph((gv_print_graph *)&graph->nodes[i].inner[k]);
        gv_free((void *)graph->nodes[i].inner);
    }
    gv_free((void *)graph->nodes);
    gv_free((void *)graph->edges);
    *graph = (gv_print_graph){0};
}

static gv_status build_graph(const building *b, uint64_t id, unsigned depth, gv_print_graph *graph);

// The graphs inside a node, in the driver's order. One that is not in the trace makes the whole not known.
static gv_status build_inner(const building *b, const gv_node *record, unsigned depth, gv_print_node *node)
{
    size_t count = 0;
    const uint64_t *ids = gv_node_bodies(record, &count);
    if (record->kind == GV_NODE_CHILD && record->child) {
        ids = &record->child;
        count = 1;
    }
    if (!count)
        return GV_OK;
    gv_print_graph *inner = gv_calloc(count, sizeof *inner);
    if (!inner)
        return out_of_memory(b->error, ids[0]);
    node->inner = inner;
    node->inner_count = count;
    gv_status status = GV_OK;
    for (size_t i = 0; i < count && !status; i++)
        status = build_graph(b, ids[i], depth + 1, &inner[i]);
    return status;
}

static void fill_node(const gv_trace *trace, const gv_node *record, gv_print_node *node)
{
    *node = (gv_print_node){
        .kind = (uint64_t)record->kind, .order = record->order, .shape = record->shape, .detail = record->detail};
    if (record->kind == GV_NODE_KERNEL && record->function < trace->function_count)
        node->kernel = trace->functions[record->function].name;
}

// The caller frees `graph` also after a failure.
static gv_status build_graph(const building *b, uint64_t id, unsigned depth, gv_print_graph *graph)
{
    const gv_trace *trace = b->trace;
    if (!id || id >= trace->graph_count || trace->graphs[id].id != id || !trace->graphs[id].whole ||
        (trace->graphs[id].flags & GV_GRAPH_UNREADABLE))
        return gv_fail(
            b->error, GV_ERR_MISSING,
            "some nodes or edges of graph %" PRIu64 " are not in the trace, so that it could not be recognised", id);
    if (depth > GV_FINGERPRINT_DEPTH)
        return gv_fail(b->error, GV_ERR_LIMIT, "child graphs nest deeper than the limit of %d levels",
                       GV_FINGERPRINT_DEPTH);
    const gv_graph *from = &trace->graphs[id];
    gv_print_node *nodes = gv_calloc(from->node_count, sizeof *nodes);
    uint64_t *edges = gv_calloc(from->edge_count, 4 * sizeof *edges);
    *graph = (gv_print_graph){nodes, nodes ? from->node_count : 0, edges, from->edge_count};
    if (!nodes || !edges)
        return out_of_memory(b->error, id);
    for (size_t e = 0; e < from->edge_count; e++) {
        uint64_t edge[4] = {from->edges[e].from, from->edges[e].to, from->edges[e].from_port, from->edges[e].type};
        for (size_t k = 0; k < 4; k++)
            edges[4 * e + k] = edge[k];
    }
    gv_status status = GV_OK;
    for (size_t i = 0; i < from->node_count && !status; i++) {
        fill_node(trace, &from->nodes[i], &nodes[i]);
        status = build_inner(b, &from->nodes[i], depth, &nodes[i]);
    }
    return status;
}

gv_status gv_fingerprint_trace_graph(const gv_trace *trace, uint64_t graph, gv_fingerprints *prints, gv_error *error)
{
    building b = {.trace = trace, .error = error};
    gv_print_graph built = {0};
    *prints = (gv_fingerprints){0};
    gv_status status = build_graph(&b, graph, 0, &built);
    if (!status)
        status = gv_fingerprint_graph(&built, prints, error);
    free_graph(&built);
    return status;
}

uint32_t *gv_fingerprint_trace_numbers(const gv_trace *trace, uint64_t graph)
{
    const gv_graph *from = &trace->graphs[graph];
    gv_print_node *nodes = gv_calloc(from->node_count, sizeof *nodes);
    uint32_t *numbers = gv_calloc(from->node_count, sizeof *numbers);
    gv_print_graph level = {.nodes = nodes, .node_count = from->node_count};
    bool enough = nodes && numbers;
    for (size_t i = 0; enough && i < from->node_count; i++)
        fill_node(trace, &from->nodes[i], &nodes[i]);
    enough = enough && gv_fingerprint_numbers(&level, numbers);
    gv_free(nodes);
    if (!enough) {
        gv_free(numbers);
        return NULL;
    }
    return numbers;
}
