// Writes fix files that `gravel fix` would not: with edges nobody needs, edges that make cycles, or other graphs'
// edges.
//     make_fix TRACE OUT [GRAPH[/NODE.BODY...] FROM TO]...
// GRAPH is a graph id of the trace; FROM and TO are kernel names (the first node of that name), node kinds written as
// "memset", "memcpy" and "empty", or node numbers. NODE.BODY leads into a child graph or body.
#include "base/memory.h"
#include "fix/fingerprint.h"
#include "fix/fix_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what, const char *about)
{
    fprintf(stderr, "make_fix: %s: %s\n", what, about);
    exit(2);
}

static const char *name_of(const gv_trace *trace, const gv_node *node)
{
    switch (node->kind) {
    case GV_NODE_KERNEL: return node->function ? trace->functions[node->function].name : "";
    case GV_NODE_MEMCPY: return "memcpy";
    case GV_NODE_MEMSET: return "memset";
    case GV_NODE_EMPTY: return "empty";
    default: return "";
    }
}

static gv_fix_node find_node(const gv_trace *trace, uint64_t graph, const char *which)
{
    const gv_graph *in = &trace->graphs[graph];
    uint32_t *numbers = gv_fingerprint_trace_numbers(trace, graph);
    char *end;
    unsigned long number = strtoul(which, &end, 10);
    bool counted = *which && !*end;
    gv_fix_node node = {.node = counted ? (uint32_t)number : UINT32_MAX};
    if (!numbers)
        fail("no numbers of the nodes of graph", "out of memory");
    for (uint32_t i = 0; i < in->node_count; i++) {
        const char *name = name_of(trace, &in->nodes[i]);
        if (counted ? numbers[i] != number : strcmp(name, which) != 0)
            continue;
        // The first in the order of making.
        if (!counted && node.node != UINT32_MAX && node.node < numbers[i])
            continue;
        node.node = numbers[i];
        node.kernel = in->nodes[i].kind == GV_NODE_KERNEL ? strdup(name) : NULL;
    }
    if (node.node == UINT32_MAX)
        fail("the graph has no such node", which);
    gv_free(numbers);
    return node;
}

// Follows "/NODE.BODY..." from a graph to the one inside.
static uint64_t descend(const gv_trace *trace, uint64_t graph, const char *at, gv_fix_edge *edge)
{
    while (*at == '/') {
        char *end;
        unsigned long number = strtoul(at + 1, &end, 10), body = strtoul(end + 1, &end, 10);
        uint32_t *numbers = gv_fingerprint_trace_numbers(trace, graph);
        uint64_t inner = 0;
        for (uint32_t i = 0; numbers && i < trace->graphs[graph].node_count; i++) {
            const gv_node *node = &trace->graphs[graph].nodes[i];
            size_t count;
            const uint64_t *bodies = gv_node_bodies(node, &count);
            if (numbers[i] == number)
                inner = body < count ? bodies[body] : node->child;
        }
        gv_free(numbers);
        if (!inner)
            fail("there is no graph behind", at);
        edge->path = realloc(edge->path, (edge->depth + 1) * sizeof *edge->path);
        edge->path[edge->depth++] = (gv_fix_step){(uint32_t)number, (uint32_t)body};
        graph = inner;
        at = end;
    }
    return graph;
}

static gv_fix_graph *graph_for(const gv_trace *trace, gv_fix_file *file, uint64_t id)
{
    gv_error error = {0};
    gv_fingerprints prints;
    if (!id || id >= trace->graph_count)
        fail("no such graph in", trace->path);
    if (gv_fingerprint_trace_graph(trace, id, &prints, &error) != GV_OK)
        fail("no fingerprint", error.text);
    for (size_t i = 0; i < file->graph_count; i++)
        if (gv_fingerprint_equal(&file->graphs[i].prints.exact, &prints.exact))
            return &file->graphs[i];
    file->graphs = realloc(file->graphs, (file->graph_count + 1) * sizeof *file->graphs);
    gv_fix_graph *graph = &file->graphs[file->graph_count++];
    *graph =
        (gv_fix_graph){.prints = prints, .name = strdup(""), .nodes = trace->graphs[id].node_count, .complete = true};
    return graph;
}

int main(int argc, char **argv)
{
    gv_trace *trace = NULL;
    gv_error error = {0};
    gv_fix_file file = {.made_by = "make_fix"};
    if (argc < 3 || argc % 3)
        fail("usage", "make_fix TRACE OUT [GRAPH FROM TO]...");
    if (gv_trace_load(argv[1], &trace, &error) != GV_OK)
        fail("cannot load", error.text);
    for (int i = 3; i + 2 < argc; i += 3) {
        char *steps;
        uint64_t id = strtoull(argv[i], &steps, 10);
        gv_fix_graph *graph = graph_for(trace, &file, id);
        gv_fix_edge edge = {.reading = strdup("")};
        uint64_t inner = descend(trace, id, steps, &edge);
        edge.from = find_node(trace, inner, argv[i + 1]);
        edge.to = find_node(trace, inner, argv[i + 2]);
        graph->edges = realloc(graph->edges, (graph->edge_count + 1) * sizeof *graph->edges);
        graph->edges[graph->edge_count++] = edge;
    }
    if (gv_fix_file_write(&file, argv[2], &error) != GV_OK)
        fail("cannot write", error.text);
    // What was allocated lives as long as this short program.
    gv_trace_free(trace);
    return 0;
}
