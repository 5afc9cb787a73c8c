// `gravel check --json`: schema "gravel-check", version 1. docs/findings.md explains every key; a key is never given
// another meaning within a version.
#include "base/memory.h"
#include "report/describe.h"
#include "report/messages.h"
#include "report/names.h"
#include "report/report.h"

#include <stdlib.h>

enum { SCHEMA_VERSION = 1 };

static void write_trace(gv_json *json, const gv_trace *trace)
{
    const gv_process_record *process = &trace->process;
    gv_json_open(json, NULL, '{');
    gv_json_text(json, "path", trace->path);
    gv_json_number(json, "pid", process->pid);
    gv_json_number(json, "parent_pid", process->ppid);
    gv_json_slice(json, "host", process->host);
    gv_json_slice(json, "executable", process->executable);
    gv_json_slice(json, "command_line", process->command_line);
    gv_json_slice(json, "recorded_by", process->gravel_version);
    gv_json_slice(json, "options", process->options);
    gv_json_slice(json, "driver", process->driver);
    gv_json_id(json, "driver_version", process->driver_version);
    gv_json_slice(json, "access_source", process->access_source);
    gv_json_bool(json, "ended", trace->ended);
    gv_json_text(json, "truncation", trace->truncation);
    gv_json_number(json, "undefined_references", trace->undefined);
    gv_json_open(json, "notes", '[');
    for (size_t i = 0; i < trace->note_count; i++) {
        const gv_note *note = &trace->notes[i];
        gv_json_open_flat(json, NULL, '{');
        gv_json_text(json, "severity", gv_note_severity_name(note->severity));
        gv_json_id(json, "graph", note->graph);
        if (note->node)
            gv_json_number(json, "node", note->node - 1);
        else
            gv_json_null(json, "node");
        gv_json_text(json, "text", note->text);
        gv_json_close(json);
    }
    gv_json_close(json);
    gv_json_close(json);
}

static void write_graph(gv_json *json, const gv_trace *trace, uint64_t id)
{
    const gv_graph *graph = gv_trace_graph(trace, id);
    if (!graph) {
        gv_json_null(json, "graph");
        return;
    }
    gv_place place = gv_stack_place(trace, graph->stack);
    gv_json_open(json, "graph", '{');
    gv_json_number(json, "id", id);
    gv_json_text(json, "name", graph->name && *graph->name ? graph->name : NULL);
    gv_json_text(json, "origin", gv_graph_origin_name(graph->origin));
    gv_json_number(json, "nodes", graph->node_count);
    gv_json_id(json, "parent", graph->parent);
    if (graph->parent)
        gv_json_number(json, "parent_node", graph->parent_node);
    else
        gv_json_null(json, "parent_node");
    gv_json_place(json, "place", &place);
    gv_json_close(json);
}

// A name through one of the functions that add to a string; NULL where there is none.
static void write_name(gv_json *json, const char *key, gv_string *scratch)
{
    gv_json_text(json, key, scratch->length ? gv_string_text(scratch) : NULL);
    gv_string_clear(scratch);
}

// A node that a finding names.
typedef struct named_node {
    uint64_t graph;
    uint32_t index;
} named_node;

static void write_node(gv_json *json, const gv_trace *trace, named_node which, gv_string *scratch)
{
    const gv_graph *graph = gv_trace_graph(trace, which.graph);
    uint32_t index = which.index;
    gv_json_open(json, NULL, '{');
    gv_json_number(json, "graph", which.graph);
    gv_json_number(json, "node", index);
    if (graph && index < graph->node_count) {
        const gv_node *node = &graph->nodes[index];
        const char *symbol = node->kind == GV_NODE_KERNEL && node->function < trace->function_count
                                 ? trace->functions[node->function].name
                                 : NULL;
        gv_json_text(json, "kind", gv_node_kind_name(node->kind));
        gv_node_name(scratch, trace, graph, index, GV_MESSAGE_NAME_WIDTH);
        write_name(json, "name", scratch);
        if (symbol)
            gv_name_demangle(scratch, symbol);
        write_name(json, "full_name", scratch);
        gv_json_text(json, "symbol", symbol);
        gv_json_id(json, "stream", node->stream);
        gv_place place = gv_stack_place(trace, node->stack);
        gv_json_place(json, "place", &place);
        gv_json_stack(json, "stack", trace, node->stack);
    }
    gv_json_close(json);
}

static void write_allocation(gv_json *json, const gv_finding *finding)
{
    const gv_trace *trace = finding->trace;
    if (!finding->allocation || finding->allocation >= trace->allocation_count) {
        gv_json_null(json, "allocation");
        return;
    }
    const gv_allocation *allocation = &trace->allocations[finding->allocation];
    gv_place place = gv_stack_place(trace, allocation->stack);
    gv_json_open(json, "allocation", '{');
    gv_json_number(json, "id", finding->allocation);
    gv_json_address(json, "address", allocation->address);
    gv_json_number(json, "size", allocation->size);
    gv_json_text(json, "kind", gv_allocation_kind_name(allocation->kind));
    gv_json_text(json, "name", allocation->name && *allocation->name ? allocation->name : NULL);
    gv_json_place(json, "place", &place);
    gv_json_stack(json, "stack", trace, allocation->stack);
    gv_json_close(json);
}

static void write_side(gv_json *json, const char *key, const gv_finding *finding, const gv_side *side)
{
    gv_json_open_flat(json, key, '{');
    gv_json_number(json, "graph", side->graph ? side->graph : finding->graph);
    gv_json_number(json, "node", side->node);
    gv_json_bool(json, "reads", side->reads);
    gv_json_bool(json, "writes", side->writes);
    gv_json_bool(json, "atomic", side->atomic);
    gv_json_text(json, "precision", gv_access_precision_name(side->precision));
    gv_json_text(json, "wait",
                 side->wait == GV_SIDE_BEFORE_WAIT ? "before"
                 : side->wait == GV_SIDE_NO_WAIT   ? "none"
                                                   : NULL);
    gv_json_close(json);
}

static void write_pair(gv_json *json, const gv_finding *finding, const gv_race_pair *pair)
{
    gv_json_open(json, NULL, '{');
    gv_json_text(json, "id", gv_finding_id_name(pair->id));
    write_side(json, "first", finding, &pair->first);
    write_side(json, "second", finding, &pair->second);
    gv_json_number(json, "bytes", pair->bytes);
    gv_json_number(json, "raw_bytes", pair->raw_bytes);
    gv_json_number(json, "war_bytes", pair->war_bytes);
    gv_json_number(json, "waw_bytes", pair->waw_bytes);
    gv_json_ranges(json, "ranges", pair->ranges.ranges, pair->ranges.count);
    gv_json_close(json);
}

static int compare_nodes(const void *left, const void *right)
{
    const named_node *a = left, *b = right;
    if (a->graph != b->graph)
        return a->graph < b->graph ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static named_node node_of(const gv_finding *finding, const gv_side *side)
{
    return (named_node){side->graph ? side->graph : finding->graph, side->node};
}

// Every node that a pair or the edge names, once and in ascending order: a group of pairs names few nodes many times.
static gv_status write_nodes(gv_json *json, const gv_finding *finding, gv_string *scratch, gv_error *error)
{
    size_t count = 2;
    named_node *nodes = gv_realloc_array(NULL, finding->pair_count + 1, 2 * sizeof *nodes);
    if (!nodes)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory while the report was written");
    nodes[0] = (named_node){finding->graph, finding->edge_from};
    nodes[1] = (named_node){finding->graph, finding->edge_to};
    for (size_t i = 0; i < finding->pair_count; i++) {
        nodes[count++] = node_of(finding, &finding->pairs[i].first);
        nodes[count++] = node_of(finding, &finding->pairs[i].second);
    }
    qsort(nodes, count, sizeof *nodes, compare_nodes);
    gv_json_open(json, "nodes", '[');
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || compare_nodes(&nodes[i], &nodes[i - 1]) != 0)
            write_node(json, finding->trace, nodes[i], scratch);
    }
    gv_json_close(json);
    gv_free(nodes);
    return GV_OK;
}

static gv_status write_race(gv_json *json, const gv_finding *finding, gv_string *scratch, gv_error *error)
{
    gv_json_text(json, "confidence", gv_confidence_name(finding->confidence));
    write_graph(json, finding->trace, finding->graph);
    gv_json_id(json, "launch", finding->launch);
    gv_json_number(json, "launches", finding->affected);
    gv_json_open_flat(json, "edge", '{');
    gv_json_number(json, "from", finding->edge_from);
    gv_json_number(json, "to", finding->edge_to);
    gv_json_close(json);
    write_allocation(json, finding);
    gv_status status = write_nodes(json, finding, scratch, error);
    gv_json_open(json, "pairs", '[');
    for (size_t i = 0; i < finding->pair_count; i++)
        write_pair(json, finding, &finding->pairs[i]);
    gv_json_close(json);
    return status;
}

static void write_incomplete(gv_json *json, const gv_finding *finding, gv_string *scratch)
{
    gv_json_text(json, "kind", gv_incomplete_kind_name(finding->incomplete));
    write_graph(json, finding->trace, finding->graph);
    gv_json_id(json, "launch", finding->launch);
    if (finding->node) {
        gv_json_number(json, "node", finding->node - 1);
        gv_node_name(scratch, finding->trace, gv_trace_graph(finding->trace, finding->graph), finding->node - 1,
                     GV_MESSAGE_NAME_WIDTH);
        write_name(json, "node_name", scratch);
    } else {
        gv_json_null(json, "node");
        gv_json_null(json, "node_name");
    }
    gv_json_number(json, "affected", finding->affected);
    gv_json_number(json, "alike", finding->alike);
    gv_json_text(json, "reason", finding->reason);
}

static void write_observed(gv_json *json, const gv_finding *finding, gv_string *scratch)
{
    const gv_trace *trace = finding->trace;
    gv_json_text(json, "confidence", gv_confidence_name(finding->confidence));
    write_graph(json, trace, finding->graph);
    gv_json_id(json, "launch", finding->launch);
    gv_json_number(json, "launches", finding->affected);
    gv_json_open(json, "nodes", '[');
    if (finding->node)
        write_node(json, trace, (named_node){finding->graph, (uint32_t)finding->node - 1}, scratch);
    gv_json_close(json);
    gv_json_number(json, "bytes", finding->bytes);
    gv_json_ranges(json, "ranges", finding->ranges.ranges, finding->ranges.count);
    write_allocation(json, finding);
    gv_json_text(json, "reason", finding->reason);
    gv_json_open(json, "facts", '{');
    for (size_t i = 0; i < finding->fact_count; i++) {
        if (finding->facts[i].text)
            gv_json_text(json, finding->facts[i].key, finding->facts[i].text);
        else
            gv_json_number(json, finding->facts[i].key, finding->facts[i].number);
    }
    gv_json_close(json);
}

static gv_status write_finding(gv_json *json, const gv_finding *finding, size_t trace_index, gv_string *scratch,
                               gv_error *error)
{
    gv_status status = GV_OK;
    gv_json_open(json, NULL, '{');
    gv_json_text(json, "id", gv_finding_id_name(finding->id));
    gv_json_number(json, "trace", trace_index);
    gv_json_bool(json, "suppressed", finding->suppressed);
    if (finding->id == GV_FINDING_INCOMPLETE)
        write_incomplete(json, finding, scratch);
    else if (gv_finding_is_observed(finding->id))
        write_observed(json, finding, scratch);
    else
        status = write_race(json, finding, scratch, error);
    gv_json_close(json);
    return status;
}

static void write_tried(gv_json *json, const gv_tried *tried)
{
    gv_json_open_flat(json, "tried", '{');
    gv_json_number(json, "compared", tried->compared);
    gv_json_number(json, "differing", tried->differing);
    gv_json_number(json, "padded", tried->padded);
    gv_json_number(json, "pad_effects", tried->pad_effects);
    gv_json_number(json, "pad_unchecked", tried->pad_unchecked);
    gv_json_number(json, "pad_left_out_bytes", tried->pad_left_out);
    gv_json_number(json, "poisoned", tried->poisoned);
    gv_json_number(json, "poison_effects", tried->poison_effects);
    gv_json_number(json, "poison_unchecked", tried->poison_unchecked);
    gv_json_number(json, "poison_left_out_bytes", tried->poison_left_out);
    gv_json_number(json, "hashes", tried->hashes);
    gv_json_number(json, "hashes_with_changes", tried->intruded);
    gv_json_number(json, "probe_differences", tried->probe_differences);
    gv_json_close(json);
}

gv_status gv_report_json(FILE *out, gv_trace *const *traces, size_t trace_count, const gv_findings *findings,
                         gv_error *error)
{
    gv_overview overview;
    gv_status status = gv_overview_make(traces, trace_count, findings, &overview, error);
    if (status != GV_OK)
        return status;
    gv_json json = {.out = out};
    gv_string scratch = {0};
    gv_json_open(&json, NULL, '{');
    gv_json_text(&json, "schema", "gravel-check");
    gv_json_number(&json, "version", SCHEMA_VERSION);
    gv_json_text(&json, "gravel", GRAVEL_VERSION);
    gv_json_open(&json, "traces", '[');
    for (size_t i = 0; i < trace_count; i++)
        write_trace(&json, traces[i]);
    gv_json_close(&json);
    gv_json_open(&json, "findings", '[');
    for (size_t i = 0; i < findings->count && status == GV_OK; i++) {
        size_t index = 0;
        while (index < trace_count && traces[index] != findings->items[i].trace)
            index++;
        status = write_finding(&json, &findings->items[i], index, &scratch, error);
    }
    gv_json_close(&json);
    gv_json_open_flat(&json, "summary", '{');
    gv_json_number(&json, "races", overview.races);
    gv_json_number(&json, "pairs", overview.pairs);
    gv_json_number(&json, "suppressed", overview.suppressed);
    gv_json_number(&json, "graphs", overview.graphs);
    gv_json_number(&json, "nodes", overview.nodes);
    gv_json_bool(&json, "complete", overview.complete);
    gv_json_coverage(&json, "coverage", overview.covered);
    write_tried(&json, &overview.tried);
    gv_json_close(&json);
    gv_json_close(&json);
    if (status == GV_OK && (scratch.failed || json.failed))
        status = gv_fail(error, GV_ERR_MEMORY, "out of memory while the report was written");
    gv_string_free(&scratch);
    gv_overview_free(&overview);
    if (status == GV_OK && (fflush(out) != 0 || ferror(out)))
        status = gv_fail(error, GV_ERR_IO, "the report could not be written: %m");
    return status;
}
