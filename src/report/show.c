// The tables of `gravel show`. Each table is a list of columns and a function that fills its rows; the same rows come
// out as JSON (schema "gravel-show", version 1).
#include "access/range_set.h"
#include "base/memory.h"
#include "report/coverage.h"
#include "report/describe.h"
#include "report/messages.h"
#include "report/names.h"
#include "report/overview.h"
#include "report/report.h"
#include "report/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA_VERSION = 1, NAME_WIDTH = 48, RANGES_SHOWN = 2 };

// What a table's function gets: the trace, the graph asked for (0: all), and where its rows go.
typedef struct show_context {
    const gv_trace *trace;
    uint64_t graph;
    gv_table table;
    gv_string text;
    gv_coverage coverage; // of the coverage table, whose second part is printed behind the first
    gv_error *error;
} show_context;

static bool wanted(const show_context *show, uint64_t graph)
{
    return !show->graph || show->graph == graph;
}

static void put_place(show_context *show, uint64_t stack)
{
    gv_place place = gv_stack_place(show->trace, stack);
    gv_table_place(&show->table, &place);
}

static void put_scratch(show_context *show)
{
    gv_table_text(&show->table, gv_string_text(&show->text));
    show->table.failed |= show->text.failed;
    gv_string_clear(&show->text);
}

static void put_node_name(show_context *show, const gv_graph *graph, uint64_t node)
{
    gv_node_name(&show->text, show->trace, graph, node, NAME_WIDTH);
    put_scratch(show);
}

// ---- graphs -----------------------------------------------------------------------------------------------------

static const gv_column graph_columns[] = {
    {"graph", "graph", true},       {"name", "name", false},        {"origin", "origin", false},
    {"parent", "parent", true},     {"nodes", "nodes", true},       {"edges", "edges", true},
    {"launches", "launches", true}, {"recorded", "recorded", true}, {"not_seen", "not seen", true},
    {"place", "made at", false},
};

// How often each snapshot was launched, how many of these launches were recorded, and for how many of its nodes not
// everything was seen in any one of them.
typedef struct graph_counts {
    size_t launches, recorded, not_seen;
    uint64_t launch; // the recorded launch that `nodes` counts for
    size_t nodes;
} graph_counts;

static gv_status count_launches(show_context *show, graph_counts *counts)
{
    const gv_trace *trace = show->trace;
    gv_exec_cursor cursor;
    gv_status status = gv_exec_cursor_open(&cursor, trace, show->error);
    for (size_t i = 0; status == GV_OK && i < trace->operation_count; i++) {
        const gv_operation *operation = &trace->operations[i];
        if (operation->kind != GV_OP_GRAPH_LAUNCH)
            continue;
        uint64_t graph = gv_exec_cursor_graph(&cursor, operation->object, operation->sequence);
        if (gv_trace_graph(trace, graph))
            counts[graph].launches++;
    }
    gv_exec_cursor_close(&cursor);
    for (size_t i = 0; i < trace->armed_count; i++) {
        if (trace->armed[i].status == GV_ARMED_COMPLETE && gv_trace_graph(trace, trace->armed[i].graph))
            counts[trace->armed[i].graph].recorded++;
    }
    for (size_t i = 0; i < trace->access_count; i++) {
        const gv_access *access = &trace->accesses[i];
        if (access->precision != GV_PRECISION_INCOMPLETE || !gv_trace_graph(trace, access->graph))
            continue;
        graph_counts *row = &counts[access->graph];
        if (row->launch != access->launch)
            row->nodes = 0;
        row->launch = access->launch;
        row->nodes++;
        row->not_seen = row->nodes > row->not_seen ? row->nodes : row->not_seen;
    }
    return status;
}

static gv_status show_graphs(show_context *show)
{
    const gv_trace *trace = show->trace;
    graph_counts *counts = gv_calloc(trace->graph_count, sizeof *counts);
    if (!counts)
        return gv_fail(show->error, GV_ERR_MEMORY, "out of memory while the table was made");
    gv_status status = count_launches(show, counts);
    for (size_t id = 1; id < trace->graph_count && status == GV_OK; id++) {
        const gv_graph *graph = gv_trace_graph(trace, id);
        if (!graph || !wanted(show, id))
            continue;
        gv_table_index(&show->table, id);
        gv_table_text(&show->table, graph->name);
        gv_table_text(&show->table, gv_graph_origin_name(graph->origin));
        gv_table_id(&show->table, graph->parent);
        gv_table_amount(&show->table, graph->node_count);
        gv_table_amount(&show->table, graph->edge_count);
        gv_table_amount(&show->table, counts[id].launches);
        gv_table_amount(&show->table, counts[id].recorded);
        gv_table_amount(&show->table, counts[id].not_seen);
        put_place(show, graph->stack);
    }
    gv_free(counts);
    return status;
}

// ---- nodes ------------------------------------------------------------------------------------------------------

static const gv_column node_columns[] = {
    {"graph", "graph", true},     {"node", "node", true},        {"kind", "kind", false},
    {"name", "name", false},      {"symbol", NULL, false},       {"child", NULL, true},
    {"stream", "stream", true},   {"order", NULL, true},         {"shape", "size", false},
    {"disabled", "state", false}, {"time_ns", "ns alone", true}, {"place", "launched at", false},
};

// Grid and block of a kernel, bytes of a copy or set: what tells two nodes of one name apart.
static void add_shape(gv_string *out, const gv_node *node)
{
    const uint64_t *n = node->shape.items;
    if (node->kind == GV_NODE_KERNEL && node->shape.count >= 6)
        gv_string_add(out, "%" PRIu64 "x%" PRIu64 "x%" PRIu64 " blocks of %" PRIu64 "x%" PRIu64 "x%" PRIu64, n[0], n[1],
                      n[2], n[3], n[4], n[5]);
    n = node->detail.items;
    if (node->kind == GV_NODE_MEMCPY && node->detail.count >= 5)
        gv_string_add(out, n[3] > 1 || n[4] > 1 ? "%s x %s x %s" : "%s", gv_count(n[2], "byte", "bytes"),
                      gv_number(n[3]), gv_number(n[4]));
    else if (node->kind == GV_NODE_MEMSET && node->detail.count >= 5)
        gv_string_add(out, n[4] > 1 ? "%s x %s" : "%s", gv_count(n[2] * n[3], "byte", "bytes"), gv_number(n[4]));
}

// Of each node the mean time of its timed runs, graph after graph; first[id] is where a graph begins. False when memory
// is out.
static bool mean_times(const gv_trace *trace, uint64_t **times, size_t **first)
{
    size_t total = 0;
    *first = gv_calloc(trace->graph_count + 1, sizeof **first);
    for (size_t id = 0; *first && id < trace->graph_count; id++) {
        (*first)[id] = total;
        total += trace->graphs[id].node_count;
    }
    *times = gv_calloc(total, sizeof **times);
    uint64_t *runs = gv_calloc(total, sizeof *runs);
    bool enough = *first && *times && runs;
    for (size_t i = 0; enough && i < trace->node_time_count; i++) {
        const gv_node_time *row = &trace->node_times[i];
        (*times)[(*first)[row->graph] + row->node] += row->duration_ns;
        runs[(*first)[row->graph] + row->node]++;
    }
    for (size_t i = 0; enough && i < total; i++)
        (*times)[i] /= runs[i] ? runs[i] : 1;
    gv_free(runs);
    return enough;
}

static gv_status show_nodes(show_context *show)
{
    const gv_trace *trace = show->trace;
    uint64_t *times;
    size_t *first;
    if (!mean_times(trace, &times, &first)) {
        gv_free(times);
        gv_free(first);
        return gv_fail(show->error, GV_ERR_MEMORY, "out of memory while the nodes were listed");
    }
    for (size_t id = 1; id < trace->graph_count; id++) {
        const gv_graph *graph = gv_trace_graph(trace, id);
        for (size_t i = 0; graph && wanted(show, id) && i < graph->node_count; i++) {
            const gv_node *node = &graph->nodes[i];
            bool kernel = node->kind == GV_NODE_KERNEL && node->function < trace->function_count;
            gv_table_index(&show->table, id);
            gv_table_index(&show->table, i);
            gv_table_text(&show->table, gv_node_kind_name(node->kind));
            put_node_name(show, graph, i);
            gv_table_text(&show->table, kernel ? trace->functions[node->function].name : NULL);
            gv_table_id(&show->table, node->child);
            gv_table_id(&show->table, node->stream);
            gv_table_id(&show->table, node->order);
            add_shape(&show->text, node);
            put_scratch(show);
            gv_table_bool(&show->table, node->flags & GV_NODE_DISABLED, "disabled");
            gv_table_some(&show->table, times[first[id] + i]);
            put_place(show, node->stack);
        }
    }
    gv_free(times);
    gv_free(first);
    return GV_OK;
}

// ---- edges ------------------------------------------------------------------------------------------------------

static const gv_column edge_columns[] = {
    {"graph", "graph", true},   {"from", "from", true},  {"from_name", "name", false}, {"to", "to", true},
    {"to_name", "name", false}, {"kind", "kind", false}, {"added", "added", false},
};

typedef struct added_pair {
    uint64_t graph, from, to;
} added_pair;

static int by_pair(const void *left, const void *right)
{
    const added_pair *a = left, *b = right;
    if (a->graph != b->graph)
        return a->graph < b->graph ? -1 : 1;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return a->to < b->to ? -1 : a->to > b->to;
}

// The edges that came from a fix file, in order. NULL when memory is out.
static added_pair *added_pairs(const gv_trace *trace, size_t *count)
{
    size_t total = 0;
    for (size_t i = 0; i < trace->fix_applied_count; i++)
        total += trace->fixes_applied[i].edges.count / 2;
    added_pair *pairs = gv_calloc(total, sizeof *pairs);
    *count = 0;
    for (size_t i = 0; pairs && i < trace->fix_applied_count; i++) {
        const gv_fix_applied *applied = &trace->fixes_applied[i];
        for (size_t e = 0; e + 1 < applied->edges.count; e += 2)
            pairs[(*count)++] = (added_pair){applied->graph, applied->edges.items[e], applied->edges.items[e + 1]};
    }
    if (pairs)
        qsort(pairs, *count, sizeof *pairs, by_pair);
    return pairs;
}

static gv_status show_edges(show_context *show)
{
    const gv_trace *trace = show->trace;
    size_t added_count;
    added_pair *added = added_pairs(trace, &added_count);
    if (!added)
        return gv_fail(show->error, GV_ERR_MEMORY, "out of memory while the edges were listed");
    for (size_t id = 1; id < trace->graph_count; id++) {
        const gv_graph *graph = gv_trace_graph(trace, id);
        for (size_t i = 0; graph && wanted(show, id) && i < graph->edge_count; i++) {
            const gv_edge *edge = &graph->edges[i];
            const added_pair pair = {id, edge->from, edge->to};
            gv_table_index(&show->table, id);
            gv_table_index(&show->table, edge->from);
            put_node_name(show, graph, edge->from);
            gv_table_index(&show->table, edge->to);
            put_node_name(show, graph, edge->to);
            gv_table_text(&show->table, edge->from_port == 2   ? "launch order"
                                        : edge->from_port == 1 ? "programmatic"
                                                               : "ordinary");
            gv_table_bool(&show->table, bsearch(&pair, added, added_count, sizeof pair, by_pair) != NULL,
                          "by the fix file");
        }
    }
    gv_free(added);
    return GV_OK;
}

// ---- fixes ------------------------------------------------------------------------------------------------------

static const gv_column fix_columns[] = {
    {"graph", "graph", true},     {"fix", "fix", true},  {"name", "name", false},  {"status", "did", false},
    {"match", "found by", false}, {"edges", NULL, true}, {"added", "added", true}, {"there", "there already", true},
    {"reason", "reason", false},
};

// What the fix file that the program was run with did to each graph.
static gv_status show_fixes(show_context *show)
{
    static const char *const statuses[] = {"refused", "applied", "no entry", "failed"};
    static const char *const matches[] = {NULL, "exact", "without shapes", "exec"};
    const gv_trace *trace = show->trace;
    for (size_t i = 0; i < trace->fix_applied_count; i++) {
        const gv_fix_applied *applied = &trace->fixes_applied[i];
        if (!wanted(show, applied->graph))
            continue;
        gv_table_index(&show->table, applied->graph);
        gv_table_id(&show->table, applied->fix);
        gv_table_text(&show->table, applied->fix ? trace->fixes[applied->fix].name : NULL);
        gv_table_text(&show->table, statuses[applied->status]);
        gv_table_text(&show->table, matches[applied->match]);
        gv_json *json = gv_table_array(&show->table);
        for (size_t e = 0; json && e + 1 < applied->edges.count; e += 2) {
            gv_json_open(json, NULL, '[');
            gv_json_number(json, NULL, applied->edges.items[e]);
            gv_json_number(json, NULL, applied->edges.items[e + 1]);
            gv_json_close(json);
        }
        gv_table_array_end(&show->table);
        gv_table_some(&show->table, applied->edges.count / 2);
        gv_table_some(&show->table, applied->there.count);
        gv_table_text(&show->table, applied->reason);
    }
    return GV_OK;
}

// ---- access -----------------------------------------------------------------------------------------------------

static const gv_column access_columns[] = {
    {"launch", "launch", true},
    {"graph", "graph", true},
    {"node", "node", true},
    {"execution", "execution", true},
    {"name", "name", false},
    {"access", "access", false},
    {"bytes", "bytes", true},
    {"range_count", "ranges", true},
    {"precision", "precision", false},
    {"source", NULL, false},
    {"ranges", "where", false},
    {"reason", "why not exact", false},
    {"wait", "grid-dependency wait", false},
};

// What was observed of the wait of a kernel behind programmatic edges; NULL for all others.
static const char *wait_of(const gv_access *access)
{
    switch (access->wait) {
    case GV_GRID_WAIT_NONE: return "none";
    case GV_GRID_WAIT_DONE:
        return access->trigger == GV_GRID_TRIGGER_EARLY ? "waits, lets others begin before" : "waits";
    case GV_GRID_WAIT_UNKNOWN: break;
    }
    return access->wait_reason;
}

static gv_status show_access_row(show_context *show, const gv_access *access, const char *what, gv_bytes encoded)
{
    gv_range_set set = {0};
    gv_status status = gv_range_set_decode(&set, encoded, show->error);
    if (status != GV_OK)
        return status;
    gv_table_index(&show->table, access->launch);
    gv_table_index(&show->table, access->graph);
    gv_table_index(&show->table, access->node);
    gv_table_id(&show->table, access->execution);
    put_node_name(show, gv_trace_graph(show->trace, access->graph), access->node);
    gv_table_text(&show->table, what);
    gv_table_amount(&show->table, gv_range_set_bytes(&set));
    gv_table_amount(&show->table, set.count);
    gv_table_text(&show->table, gv_access_precision_name(access->precision));
    gv_table_text(&show->table, gv_access_source_name(access->source));
    gv_table_ranges(&show->table, set.ranges, set.count, RANGES_SHOWN);
    gv_table_text(&show->table, access->reason);
    gv_table_text(&show->table, wait_of(access));
    gv_range_set_free(&set);
    return GV_OK;
}

static gv_status show_access(show_context *show)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < show->trace->access_count && status == GV_OK; i++) {
        const gv_access *access = &show->trace->accesses[i];
        if (!wanted(show, access->graph))
            continue;
        const struct {
            const char *name;
            gv_bytes encoded;
        } kinds[] = {{"reads", access->reads},
                     {"writes", access->writes},
                     {"atomics", access->atomics},
                     {"reads before the wait", access->early_reads},
                     {"writes before the wait", access->early_writes},
                     {"atomics before the wait", access->early_atomics}};
        bool any = false;
        for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds && status == GV_OK; kind++) {
            if (kinds[kind].encoded.length) {
                status = show_access_row(show, access, kinds[kind].name, kinds[kind].encoded);
                any = true;
            }
        }
        // A node that touched nothing, or nothing that was seen, has its row too.
        if (!any && status == GV_OK)
            status = show_access_row(show, access, "nothing", (gv_bytes){0});
    }
    return status;
}

// ---- allocations ------------------------------------------------------------------------------------------------

static const gv_column allocation_columns[] = {
    {"allocation", "allocation", true},
    {"address", "address", true},
    {"size", "bytes", true},
    {"kind", "kind", false},
    {"born", "made by", true},
    {"died", "freed by", true},
    {"name", "name", false},
    {"place", "allocated at", false},
};

static gv_status show_allocations(show_context *show)
{
    for (size_t id = 1; id < show->trace->allocation_count; id++) {
        const gv_allocation *allocation = &show->trace->allocations[id];
        if (!allocation->address && !allocation->size)
            continue;
        gv_table_index(&show->table, id);
        gv_table_address(&show->table, allocation->address);
        gv_table_amount(&show->table, allocation->size);
        gv_table_text(&show->table, gv_allocation_kind_name(allocation->kind));
        gv_table_id(&show->table, allocation->born);
        gv_table_id(&show->table, allocation->died == UINT64_MAX ? 0 : allocation->died);
        gv_table_text(&show->table, allocation->name);
        put_place(show, allocation->stack);
    }
    return GV_OK;
}

// ---- launches ---------------------------------------------------------------------------------------------------

static const gv_column launch_columns[] = {
    {"launch", "launch", true}, {"exec", "exec", true},          {"graph", "graph", true},
    {"stream", "stream", true}, {"thread", "thread", true},      {"recorded", "recorded", false},
    {"reason", "why", false},   {"place", "launched at", false},
};

static gv_status show_launches(show_context *show)
{
    const gv_trace *trace = show->trace;
    gv_exec_cursor cursor;
    gv_status status = gv_exec_cursor_open(&cursor, trace, show->error);
    // Launches and what was recorded of them stand in the same order, so that one pass over both finds the partners.
    size_t next_armed = 0;
    for (size_t i = 0; status == GV_OK && i < trace->operation_count; i++) {
        const gv_operation *operation = &trace->operations[i];
        if (operation->kind != GV_OP_GRAPH_LAUNCH)
            continue;
        uint64_t graph = gv_exec_cursor_graph(&cursor, operation->object, operation->sequence);
        while (next_armed < trace->armed_count && trace->armed[next_armed].launch < operation->sequence)
            next_armed++;
        const gv_armed *armed =
            next_armed < trace->armed_count && trace->armed[next_armed].launch == operation->sequence
                ? &trace->armed[next_armed]
                : NULL;
        if (!wanted(show, graph))
            continue;
        gv_table_index(&show->table, operation->sequence);
        gv_table_id(&show->table, operation->object);
        gv_table_id(&show->table, graph);
        gv_table_id(&show->table, operation->stream);
        gv_table_id(&show->table, operation->thread);
        gv_table_text(&show->table, armed ? gv_armed_status_name(armed->status) : "no");
        gv_table_text(&show->table, armed ? armed->reason : NULL);
        put_place(show, operation->stack);
    }
    gv_exec_cursor_close(&cursor);
    return status;
}

// ---- coverage ---------------------------------------------------------------------------------------------------

static const gv_column coverage_columns[] = {
    {"graph", "graph", true},
    {"name", "name", false},
    {"recorded", "recorded", true},
    {"nodes", "nodes", true},
    {"exact", "exact", true},
    {"extent", "extent", true},
    {"incomplete", "incomplete", true},
    {"not_executed", "not executed", true},
    {"not_recorded", "not recorded", true},
    {"nothing", "need nothing", true},
    {"bytes", "bytes seen", true},
    {"extent_bytes", "more in extents", true},
    {"reasons", NULL, false},
    {"place", "made at", false},
};

static const gv_column reason_columns[] = {
    {"state", "state", false},      {"nodes", "nodes", true}, {"graphs", "graphs", true},
    {"examples", "such as", false}, {"reason", "why", false},
};

static void put_reasons(show_context *show, const gv_coverage_graph *row)
{
    gv_json *json = gv_table_array(&show->table);
    for (size_t i = 0; json && i < row->reason_count; i++) {
        const gv_coverage_reason *reason = &row->reasons[i];
        gv_json_open(json, NULL, '{');
        gv_json_text(json, "state", gv_coverage_state_key(reason->state));
        gv_json_number(json, "nodes", reason->nodes);
        gv_json_text(json, "reason", reason->text);
        gv_json_open(json, "examples", '[');
        for (size_t k = 0; k < reason->example_count; k++) {
            const gv_graph *graph = gv_trace_graph(show->trace, reason->examples[k].graph);
            gv_json_open(json, NULL, '{');
            gv_json_number(json, "graph", reason->examples[k].graph);
            gv_json_number(json, "node", reason->examples[k].node);
            gv_node_name(&show->text, show->trace, graph, reason->examples[k].node, NAME_WIDTH);
            gv_json_text(json, "name", gv_string_text(&show->text));
            gv_string_clear(&show->text);
            gv_json_close(json);
        }
        gv_json_close(json);
        gv_json_close(json);
    }
    gv_table_array_end(&show->table);
}

static gv_status show_coverage(show_context *show)
{
    gv_status status = gv_coverage_make(show->trace, true, &show->coverage, show->error);
    for (size_t i = 0; i < show->coverage.graph_count && status == GV_OK; i++) {
        const gv_coverage_graph *row = &show->coverage.graphs[i];
        const gv_graph *graph = gv_trace_graph(show->trace, row->graph);
        if (!wanted(show, row->graph))
            continue;
        gv_table_index(&show->table, row->graph);
        gv_table_text(&show->table, graph->name);
        gv_table_amount(&show->table, row->recorded);
        gv_table_amount(&show->table, gv_coverage_total(row->nodes));
        gv_table_amount(&show->table, row->nodes[GV_COVERAGE_EXACT]);
        gv_table_amount(&show->table, row->nodes[GV_COVERAGE_EXTENT]);
        gv_table_amount(&show->table, row->nodes[GV_COVERAGE_INCOMPLETE]);
        gv_table_some(&show->table, row->nodes[GV_COVERAGE_NOT_EXECUTED]);
        gv_table_some(&show->table, row->nodes[GV_COVERAGE_NOT_RECORDED]);
        gv_table_some(&show->table, row->nodes[GV_COVERAGE_NOTHING]);
        gv_table_amount(&show->table, row->bytes);
        gv_table_some(&show->table, row->extent_bytes);
        put_reasons(show, row);
        put_place(show, graph->stack);
    }
    return status;
}

// The reasons of all graphs together, since fifty batch sizes have the same ones, or of the one asked for.
static void show_coverage_reasons(show_context *show)
{
    const gv_coverage_reason *reasons = show->coverage.reasons;
    size_t count = show->graph ? 0 : show->coverage.reason_count;
    for (size_t i = 0; show->graph && i < show->coverage.graph_count; i++) {
        if (show->coverage.graphs[i].graph == show->graph) {
            reasons = show->coverage.graphs[i].reasons;
            count = show->coverage.graphs[i].reason_count;
        }
    }
    for (size_t i = 0; i < count; i++) {
        const gv_coverage_reason *reason = &reasons[i];
        gv_table_text(&show->table, gv_coverage_state_name(reason->state));
        gv_table_amount(&show->table, reason->nodes);
        gv_table_amount(&show->table, reason->graphs);
        for (size_t k = 0; k < reason->example_count; k++) {
            uint64_t graph = reason->examples[k].graph;
            uint32_t node = reason->examples[k].node;
            gv_string_add(&show->text, "%s#%" PRIu32 " ", k ? ", " : "", node);
            gv_node_name(&show->text, show->trace, gv_trace_graph(show->trace, graph), node, NAME_WIDTH);
            gv_string_add(&show->text, " of graph #%" PRIu64, graph);
        }
        put_scratch(show);
        gv_table_text(&show->table, reason->text);
    }
}

// ---- canary ------------------------------------------------------------------------------------------------------

static const gv_column canary_columns[] = {
    {"region", "region", false},  {"step", "step", true},       {"first", "from", true},
    {"state", "state", false},    {"allowed", "allowed", true}, {"exempt", "exempt", true},
    {"changed", "changed", true}, {"outside", "outside", true}, {"pages", "pages outside", false},
    {"reason", "why not", false},
};

static const char *region_state(enum gv_region_state state)
{
    switch (state) {
    case GV_REGION_UNHASHED: return "not hashed";
    case GV_REGION_FIRST: return "first";
    case GV_REGION_UNKNOWN: return "not declared";
    case GV_REGION_CHECKED: return "checked";
    }
    return "unknown";
}

static gv_status show_canary(show_context *show)
{
    enum { PAGES_SHOWN = 12 };
    for (size_t i = 0; i < show->trace->region_step_count; i++) {
        const gv_region_step *step = &show->trace->region_steps[i];
        gv_table_text(&show->table, show->trace->regions[step->region].name);
        gv_table_amount(&show->table, step->step);
        gv_table_amount(&show->table, step->first);
        gv_table_text(&show->table, region_state(step->state));
        gv_table_amount(&show->table, step->allowed);
        gv_table_amount(&show->table, step->exempt);
        gv_table_amount(&show->table, step->changed);
        gv_table_amount(&show->table, step->outside);
        for (size_t k = 0; k < step->pages.count && k < PAGES_SHOWN; k++)
            gv_string_add(&show->text, "%s%" PRIu64, k ? " " : "", step->pages.items[k]);
        if (step->outside > PAGES_SHOWN)
            gv_string_add(&show->text, " ...");
        put_scratch(show);
        gv_table_text(&show->table, step->reason);
    }
    return GV_OK;
}

// ---- diffs ------------------------------------------------------------------------------------------------------

static const gv_column diff_columns[] = {
    {"launch", "launch", true},
    {"graph", "graph", true},
    {"status", "status", false},
    {"different_bytes", "differing bytes", true},
    {"unstable_bytes", "unstable", true},
    {"ignored_bytes", "in padding", true},
    {"first_node", "first node", true},
    {"first_name", "name", false},
    {"nodes", "nodes", true},
    {"replays", "serial replays", true},
    {"milliseconds", "ms", true},
    {"native_replays", "in native replays", true},
    {"graph_milliseconds", NULL, true},
    {"serial_milliseconds", NULL, true},
    {"saved_bytes", "saved bytes", true},
    {"reason", "why not compared", false},
};

static void put_ratio(show_context *show, double value)
{
    if (!(value > 0)) {
        gv_table_none(&show->table);
        return;
    }
    gv_string_add(&show->text, value < 10 ? "%.2f" : "%.1f", value);
    put_scratch(show);
}

static gv_status show_diffs(show_context *show)
{
    const gv_trace *trace = show->trace;
    for (size_t i = 0; i < trace->checked_count; i++) {
        const gv_checked *c = &trace->checked[i];
        const gv_difference *first = NULL;
        if (!wanted(show, c->graph))
            continue;
        for (size_t k = 0; k < c->difference_count && !first; k++)
            if (trace->differences[c->first_difference + k].bytes)
                first = &trace->differences[c->first_difference + k];
        bool compared = c->status == GV_CHECKED_COMPARED;
        gv_table_index(&show->table, c->launch);
        gv_table_id(&show->table, c->graph);
        gv_table_text(&show->table, !compared ? "not compared" : c->different_bytes ? "differs" : "equal");
        gv_table_amount(&show->table, c->different_bytes);
        gv_table_some(&show->table, c->unstable_bytes);
        gv_table_some(&show->table, c->ignored_bytes);
        if (first && first->node && compared) {
            gv_table_index(&show->table, first->node - 1);
            put_node_name(show, gv_trace_graph(trace, first->graph), first->node - 1);
        } else {
            gv_table_none(&show->table);
            gv_table_none(&show->table);
        }
        gv_table_some(&show->table, compared ? c->difference_count : 0);
        gv_table_some(&show->table, c->replays);
        put_ratio(show, (double)c->duration_ns / 1e6);
        put_ratio(show, c->graph_ns ? (double)c->duration_ns / (double)c->graph_ns : 0);
        put_ratio(show, (double)c->graph_ns / 1e6);
        put_ratio(show, (double)c->serial_ns / 1e6);
        gv_table_some(&show->table, c->saved_bytes);
        gv_table_text(&show->table, c->reason);
    }
    return GV_OK;
}

// ---- perturbed --------------------------------------------------------------------------------------------------

static const gv_column perturbed_columns[] = {
    {"launch", "launch", true},
    {"graph", "graph", true},
    {"what", "what", false},
    {"result", "result", false},
    {"effects", "effects", true},
    {"real_rows", "real rows", true},
    {"patterns", "patterns", false},
    {"bytes", "bytes changed", true},
    {"replays", "replays", true},
    {"milliseconds", "ms", true},
    {"saved_bytes", "saved bytes", true},
    {"unstable_bytes", "unstable", true},
    {"left_out_bytes", "left out", true},
    {"reason", "why it shows nothing", false},
};

static gv_status show_perturbed(show_context *show)
{
    static const char *const results[] = {"checked", "unstable", "refused"};
    const gv_trace *trace = show->trace;
    for (size_t i = 0; i < trace->perturbed_count; i++) {
        const gv_perturbed *row = &trace->perturbed[i];
        size_t effects = 0;
        if (!wanted(show, row->graph))
            continue;
        for (size_t k = 0; k < trace->effect_count; k++)
            effects += trace->effects[k].launch == row->launch && row->launch &&
                       (trace->effects[k].kind == GV_EFFECT_STALE_READ) == (row->what == GV_PERTURBED_POISON);
        gv_table_id(&show->table, row->launch);
        gv_table_id(&show->table, row->graph);
        gv_table_text(&show->table, row->what == GV_PERTURBED_PADDING ? "padding" : "poison");
        gv_table_text(&show->table, results[row->status]);
        gv_table_amount(&show->table, effects);
        gv_table_some(&show->table, row->real_rows);
        gv_table_text(&show->table, row->patterns);
        gv_table_some(&show->table, row->perturbed_bytes);
        gv_table_some(&show->table, row->replays);
        put_ratio(show, (double)row->duration_ns / 1e6);
        gv_table_some(&show->table, row->saved_bytes);
        gv_table_some(&show->table, row->unstable_bytes);
        gv_table_some(&show->table, row->left_out_bytes);
        gv_table_text(&show->table, row->reason);
    }
    return GV_OK;
}

// ---- The list of tables -----------------------------------------------------------------------------------------

#define COLUMNS(array) array, sizeof(array) / sizeof *(array)

static const struct {
    const char *name;
    const gv_column *columns;
    size_t column_count;
    gv_status (*fill)(show_context *show);
    const char *nothing;
    // What stands behind the table when it is text and has rows; JSON has it in the rows.
    const gv_column *more_columns;
    size_t more_column_count;
    void (*fill_more)(show_context *show);
} tables[] = {
    {"graphs", COLUMNS(graph_columns), show_graphs, "No graph was captured or built.", NULL, 0, NULL},
    {"nodes", COLUMNS(node_columns), show_nodes, "There are no nodes.", NULL, 0, NULL},
    {"edges", COLUMNS(edge_columns), show_edges, "There are no edges.", NULL, 0, NULL},
    {"fixes", COLUMNS(fix_columns), show_fixes, "No fix file was given (gravel run --fix), or it had no edges.", NULL,
     0, NULL},
    {"access", COLUMNS(access_columns), show_access, "No launch was recorded with its accesses.", NULL, 0, NULL},
    {"coverage", COLUMNS(coverage_columns), show_coverage,
     "No graph was launched. (Child graphs and bodies count with the graph that they lie in.)", COLUMNS(reason_columns),
     show_coverage_reasons},
    {"allocations", COLUMNS(allocation_columns), show_allocations, "No allocation was recorded.", NULL, 0, NULL},
    {"launches", COLUMNS(launch_columns), show_launches, "No graph was launched.", NULL, 0, NULL},
    {"diffs", COLUMNS(diff_columns), show_diffs, "No launch was compared with a serial replay (`gravel run --diff`).",
     NULL, 0, NULL},
    {"perturbed", COLUMNS(perturbed_columns), show_perturbed,
     "No launch was repeated with other padding or poison (`gravel run --pad`, `--poison`).", NULL, 0, NULL},
    {"canary", COLUMNS(canary_columns), show_canary,
     "No region was hashed: run with --canary or --checksums, and declare regions (docs/canary.md).", NULL, 0, NULL},
};

gv_status gv_report_show(FILE *out, const gv_trace *trace, const char *table, uint64_t graph_filter, bool json,
                         gv_error *error)
{
    size_t chosen = 0;
    while (chosen < sizeof tables / sizeof *tables && strcmp(tables[chosen].name, table) != 0)
        chosen++;
    if (chosen == sizeof tables / sizeof *tables)
        return gv_fail(
            error, GV_ERR_USAGE,
            "there is no table \"%s\"; there are graphs, nodes, edges, fixes, access, coverage, allocations, "
            "launches, diffs, perturbed and canary",
            table);
    if (graph_filter && (tables[chosen].columns == allocation_columns || tables[chosen].columns == canary_columns))
        return gv_fail(error, GV_ERR_USAGE, "%s belong to no graph: leave out --graph",
                       tables[chosen].columns == canary_columns ? "regions" : "allocations");
    if (graph_filter && !gv_trace_graph(trace, graph_filter))
        return gv_fail(error, GV_ERR_MISSING,
                       "there is no graph #%" PRIu64 " in %s; `gravel show %s graphs` lists them", graph_filter,
                       trace->path, trace->path);

    gv_json writer = {.out = out};
    show_context show = {.trace = trace, .graph = graph_filter, .error = error};
    if (json) {
        gv_json_open(&writer, NULL, '{');
        gv_json_text(&writer, "schema", "gravel-show");
        gv_json_number(&writer, "version", SCHEMA_VERSION);
        gv_json_text(&writer, "trace", trace->path);
        gv_json_text(&writer, "truncation", trace->truncation);
        gv_json_text(&writer, "table", table);
        gv_json_open(&writer, "rows", '[');
    }
    gv_table_open(&show.table, tables[chosen].columns, tables[chosen].column_count, json ? &writer : NULL);
    gv_status status = tables[chosen].fill(&show);
    // The table is closed on every path, since it owns its cells; its own failure counts only when there is no other.
    gv_status closed = gv_table_close(&show.table, out, tables[chosen].nothing, status == GV_OK ? error : NULL);
    if (status == GV_OK)
        status = closed;
    if (status == GV_OK && !json && tables[chosen].fill_more) {
        gv_table_open(&show.table, tables[chosen].more_columns, tables[chosen].more_column_count, NULL);
        tables[chosen].fill_more(&show);
        if (show.table.cell_count)
            fputc('\n', out);
        status = gv_table_close(&show.table, out, NULL, error);
    }
    if (status == GV_OK && show.text.failed)
        status = gv_fail(error, GV_ERR_MEMORY, "out of memory while the table was written");
    gv_string_free(&show.text);
    gv_coverage_free(&show.coverage);
    if (json) {
        gv_json_close(&writer);
        gv_json_close(&writer);
    }
    if (status == GV_OK && (fflush(out) != 0 || ferror(out)))
        status = gv_fail(error, GV_ERR_IO, "the table could not be written: %m");
    return status;
}
