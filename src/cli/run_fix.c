#include "cli/run_fix.h"

#include "base/memory.h"
#include "cli/cli.h"
#include "fix/fix_file.h"
#include "report/format.h"
#include "trace/writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// ---- Before the run -----------------------------------------------------------------------------------------------

typedef struct numbers {
    uint64_t *items;
    size_t count, capacity;
} numbers;

static bool put(numbers *list, uint64_t number)
{
    if (!GV_GROW(list->items, list->capacity, list->count + 1))
        return false;
    list->items[list->count++] = number;
    return true;
}

static bool put_edge(numbers *list, uint64_t number, const gv_fix_edge *edge)
{
    bool all = put(list, number) && put(list, edge->depth);
    for (size_t i = 0; i < edge->depth && all; i++)
        all = put(list, edge->path[i].node) && put(list, edge->path[i].body);
    return all && put(list, edge->from.node) && put(list, edge->to.node);
}

// A name that a line cannot hold is left out: the recorder then does not compare it.
static const char *line_of(const char *kernel)
{
    return kernel && !strchr(kernel, '\n') ? kernel : "";
}

// Writes one graph of the file as a record; `number` counts the edges of the whole file.
static gv_status write_graph(gv_run_fix *fix, gv_writer *writer, const gv_fix_graph *graph, uint64_t id,
                             uint64_t *number, gv_error *error)
{
    numbers edges = {0};
    gv_string kernels = {0};
    bool all = true;
    size_t kept = 0;
    for (size_t i = 0; i < graph->edge_count && all; i++) {
        const gv_fix_edge *edge = &graph->edges[i];
        if (++*number == fix->left_out)
            continue;
        kept++;
        all = put_edge(&edges, *number, edge);
        gv_string_add(&kernels, "%s\n%s\n", line_of(edge->from.kernel), line_of(edge->to.kernel));
    }
    const char *text = gv_string_text(&kernels);
    gv_fix_record record = {
        .id = id,
        .name = {graph->name ? graph->name : "", graph->name ? strlen(graph->name) : 0},
        .exact = {graph->prints.exact.bytes, sizeof graph->prints.exact.bytes},
        .without_shapes = {graph->prints.without_shapes.bytes, sizeof graph->prints.without_shapes.bytes},
        .nodes = graph->nodes,
        .edges = {edges.items, edges.count},
        .kernels = {text, strlen(text)},
    };
    gv_status status = GV_OK;
    if (!all || kernels.failed)
        status = gv_fail(error, GV_ERR_MEMORY, "out of memory");
    else if (kept)
        status = gv_write_fix(writer, &record);
    else if (graph->edge_count)
        fix->left_out_graph = id;
    if (status != GV_OK && error && !error->text[0])
        gv_fail(error, status, "graph %" PRIu64 " of the fix file could not be prepared", id);
    gv_free(edges.items);
    gv_string_free(&kernels);
    return status;
}

static gv_status prepare(gv_run_fix *fix, const gv_fix_file *file, const char *folder, gv_error *error)
{
    // Beside the traces: each process that can write its trace can read it there.
    int length = snprintf(fix->prepared, sizeof fix->prepared, "%s/.gravel-fix.%d", strcmp(folder, "/") ? folder : "",
                          (int)getpid());
    gv_writer *writer = NULL;
    if (length < 0 || (size_t)length >= sizeof fix->prepared) {
        fix->prepared[0] = '\0';
        return gv_fail(error, GV_ERR_LIMIT, "%s: the name of this folder is too long", folder);
    }
    gv_status status = gv_writer_create(fix->prepared, &writer, error);
    uint64_t number = 0;
    for (size_t i = 0; i < file->graph_count && status == GV_OK; i++)
        status = write_graph(fix, writer, &file->graphs[i], i + 1, &number, error);
    if (status == GV_OK)
        status = gv_write_end(writer, &(gv_end_record){.operations = file->graph_count});
    if (writer) {
        gv_status closed = gv_writer_flush(writer);
        if (status == GV_OK && closed != GV_OK)
            status = gv_fail(error, closed, "%s", gv_writer_failure(writer));
        gv_writer_close(writer);
    }
    return status;
}

gv_status gv_run_fix_prepare(gv_run_fix *fix, const char *folder, gv_error *error)
{
    gv_fix_file file = {0};
    gv_status status = gv_fix_file_read(fix->file, &file, error);
    if (status != GV_OK)
        return status;
    fix->graphs = file.graph_count;
    for (size_t i = 0; i < file.graph_count; i++)
        fix->edges += file.graphs[i].edge_count;
    fix->outcome = gv_calloc(fix->graphs, sizeof *fix->outcome);
    if (!fix->outcome)
        status = gv_fail(error, GV_ERR_MEMORY, "out of memory");
    else if (fix->left_out > fix->edges)
        status = gv_fail(error, GV_ERR_USAGE, "%s has %s, so edge %" PRIu64 " cannot be left out", fix->file,
                         gv_count(fix->edges, "edge", "edges"), fix->left_out);
    else
        status = prepare(fix, &file, folder, error);
    for (size_t i = 0; i < file.graph_count && status == GV_OK; i++)
        fix->outcome[i].edges = file.graphs[i].edge_count;
    gv_fix_file_free(&file);
    return status;
}

// ---- After the run ------------------------------------------------------------------------------------------------

void gv_run_fix_count(gv_run_fix *fix, const gv_trace *trace)
{
    // An entry is written for each graph of the file that has edges left.
    size_t known = 0;
    for (size_t i = 1; i < trace->fix_count; i++)
        known += trace->fixes[i].name != NULL;
    if (!known && fix->edges > (fix->left_out ? 1u : 0u))
        fix->without++;
    for (size_t i = 0; i < trace->fix_applied_count; i++) {
        const gv_fix_applied *applied = &trace->fixes_applied[i];
        if (!applied->fix || applied->fix > fix->graphs)
            continue;
        struct gv_run_fix_graph *graph = &fix->outcome[applied->fix - 1];
        if (applied->status == GV_FIX_APPLIED) {
            graph->applied += applied->edges.count != 0;
            graph->there += !applied->edges.count;
            continue;
        }
        graph->refused += applied->status != GV_FIX_NOT_NAMED;
        // A refusal says more than a graph that only looks like the one that is meant.
        if (!graph->reason[0] || applied->status != GV_FIX_NOT_NAMED)
            snprintf(graph->reason, sizeof graph->reason, "%s", applied->reason);
    }
}

bool gv_run_fix_tell(const gv_run_fix *fix)
{
    size_t named = 0, applied = 0, there = 0, refused = 0, missing = 0;
    for (size_t i = 0; i < fix->graphs; i++) {
        const struct gv_run_fix_graph *graph = &fix->outcome[i];
        if (!graph->edges || i + 1 == fix->left_out_graph)
            continue;
        named++;
        applied += graph->applied;
        there += graph->there;
        refused += graph->refused;
        if (graph->applied || graph->there)
            continue;
        missing++;
        gv_string line = {0};
        gv_string_add(&line, "fix: graph %zu of %s %s%s", i + 1, fix->file,
                      graph->refused ? "was refused" : "was never made by the program", graph->reason[0] ? ": " : "");
        gv_string_add_safe(&line, graph->reason);
        gv_say("%s", gv_string_text(&line));
        gv_string_free(&line);
    }
    if (fix->without)
        gv_say("fix: %s could not read what was prepared of %s and ran without it; their traces have the reason",
               gv_count(fix->without, "process", "processes"), fix->file);
    gv_string text = {0};
    gv_string_add(&text, "fix: %s of %s: %s of the program ran with its edges", fix->file,
                  gv_count(named, "graph", "graphs"), gv_count(applied, "graph", "graphs"));
    if (there)
        gv_string_add(&text, ", %s had them already", gv_number(there));
    if (refused)
        gv_string_add(&text, ", %s could not get them", gv_number(refused));
    if (missing)
        gv_string_add(&text, "; %s of the file found no use", gv_count(missing, "graph", "graphs"));
    if (!named) {
        gv_string_clear(&text);
        gv_string_add(&text, "fix: %s adds no edge", fix->file);
    }
    gv_say("%s", gv_string_text(&text));
    gv_string_free(&text);
    return !missing && !refused && !fix->without;
}

void gv_run_fix_close(gv_run_fix *fix)
{
    if (fix->prepared[0])
        unlink(fix->prepared);
    fix->prepared[0] = '\0';
    gv_free(fix->outcome);
    fix->outcome = NULL;
}
