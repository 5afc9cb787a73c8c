// See fix_entry.h.
#include "fix_entry.h"

#include "fix/fix_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROMISE(condition)                                                                  \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                        \
        }                                                                                   \
    } while (0)

static void check_edge(const gv_fix_edge *edge, const gv_fix_graph *graph)
{
    PROMISE(edge->from.node != edge->to.node && edge->depth <= GV_FINGERPRINT_DEPTH);
    PROMISE(edge->depth ? edge->path[0].node < graph->nodes
                        : edge->from.node < graph->nodes && edge->to.node < graph->nodes);
    PROMISE(edge->order_count <= GV_FIX_PAIRS_LISTED && edge->reading && !edge->from.depth && !edge->to.depth);
    for (size_t i = 0; i < edge->order_count; i++)
        PROMISE(edge->orders[i].id && edge->orders[i].first.depth <= GV_FINGERPRINT_DEPTH);
}

static bool same_node(const gv_fix_node *a, const gv_fix_node *b)
{
    return a->node == b->node && !a->kernel == !b->kernel && (!a->kernel || strcmp(a->kernel, b->kernel) == 0);
}

static void compare(const gv_fix_file *a, const gv_fix_file *b)
{
    PROMISE(a->graph_count == b->graph_count && strcmp(a->made_by, b->made_by) == 0);
    for (size_t g = 0; g < a->graph_count; g++) {
        const gv_fix_graph *one = &a->graphs[g], *other = &b->graphs[g];
        PROMISE(memcmp(&one->prints, &other->prints, sizeof one->prints) == 0 && one->nodes == other->nodes);
        PROMISE(strcmp(one->name, other->name) == 0 && memcmp(&one->cost, &other->cost, sizeof one->cost) == 0);
        PROMISE(one->edge_count == other->edge_count && one->complete == other->complete);
        for (size_t e = 0; e < one->edge_count; e++) {
            const gv_fix_edge *left = &one->edges[e], *right = &other->edges[e];
            PROMISE(same_node(&left->from, &right->from) && same_node(&left->to, &right->to));
            PROMISE(left->depth == right->depth && left->replaces == right->replaces &&
                    left->reversed == right->reversed && left->order_count == right->order_count);
            PROMISE(!left->depth || memcmp(left->path, right->path, left->depth * sizeof *left->path) == 0);
        }
    }
}

void gv_fuzz_fix(const uint8_t *data, size_t size)
{
    gv_fix_file file, again;
    gv_error error = {0};
    gv_status status = gv_fix_file_parse((const char *)data, size, "fix.json", &file, &error);
    PROMISE(status == GV_OK ? file.made_by != NULL : error.text[0] && !file.graphs && !file.made_by);
    if (status)
        return;
    for (size_t g = 0; g < file.graph_count; g++)
        for (size_t e = 0; e < file.graphs[g].edge_count; e++)
            check_edge(&file.graphs[g].edges[e], &file.graphs[g]);
    char path[] = "/tmp/gravel-fuzz-fix.XXXXXX";
    int handle = mkstemp(path);
    PROMISE(handle >= 0);
    close(handle);
    PROMISE(gv_fix_file_write(&file, path, &error) == GV_OK);
    PROMISE(gv_fix_file_read(path, &again, &error) == GV_OK);
    unlink(path);
    compare(&file, &again);
    gv_fix_file_free(&again);
    gv_fix_file_free(&file);
}
