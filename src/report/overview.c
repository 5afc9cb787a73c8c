#include "report/overview.h"

#include "base/memory.h"
#include "detect/race_core.h"

#include <stdlib.h>
#include <string.h>

const gv_graph *gv_trace_graph(const gv_trace *trace, uint64_t id)
{
    return id && id < trace->graph_count && trace->graphs[id].id == id ? &trace->graphs[id] : NULL;
}

const gv_graph *gv_side_graph(const gv_finding *finding, const gv_side *side)
{
    return gv_trace_graph(finding->trace, side->graph ? side->graph : finding->graph);
}

gv_status gv_exec_cursor_open(gv_exec_cursor *cursor, const gv_trace *trace, gv_error *error)
{
    // Exec ids count up from 1 and every exec has a version, so that a whole trace has no id past the number of
    // versions. A damaged one may; such an exec is not known here, and its id sizes nothing.
    *cursor = (gv_exec_cursor){.trace = trace, .count = trace->exec_version_count + 1};
    cursor->current = gv_calloc(cursor->count, sizeof *cursor->current);
    return cursor->current ? GV_OK : gv_fail(error, GV_ERR_MEMORY, "out of memory while the report was gathered");
}

uint64_t gv_exec_cursor_graph(gv_exec_cursor *cursor, uint64_t exec, uint64_t sequence)
{
    const gv_trace *trace = cursor->trace;
    while (cursor->next < trace->exec_version_count && trace->exec_versions[cursor->next].operation <= sequence) {
        const gv_exec_version *version = &trace->exec_versions[cursor->next++];
        if (version->exec < cursor->count)
            cursor->current[version->exec] = version->graph;
    }
    return exec < cursor->count ? cursor->current[exec] : 0;
}

void gv_exec_cursor_close(gv_exec_cursor *cursor)
{
    gv_free(cursor->current);
    *cursor = (gv_exec_cursor){0};
}

// ---- Incompletenesses by reason ---------------------------------------------------------------------------------

// A sortable row: everything two findings must share to be one group, then what orders them within it.
typedef struct row {
    size_t trace_index, finding;
    const gv_finding *item;
} row;

static int compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

// Does the reason tell the graphs of such findings apart, and not why they are incomplete?
static bool reason_is_of_graph(const gv_finding *item)
{
    return gv_incomplete_is_about_pairs(item->incomplete) ||
           (item->incomplete == GV_INCOMPLETE_NEVER_ARMED && item->graph);
}

static const char *reason_of(const gv_finding *item)
{
    return item->reason ? item->reason : "";
}

static int compare_keys(const row *a, const row *b)
{
    int order = compare_numbers(a->trace_index, b->trace_index);
    if (!order)
        order = compare_numbers(a->item->incomplete, b->item->incomplete);
    if (!order)
        order = compare_numbers(a->item->suppressed, b->item->suppressed);
    if (!order)
        order = compare_numbers(reason_is_of_graph(a->item), reason_is_of_graph(b->item));
    if (!order && !reason_is_of_graph(a->item))
        order = strcmp(reason_of(a->item), reason_of(b->item));
    return order;
}

static int compare_rows(const void *left, const void *right)
{
    const row *a = left, *b = right;
    int order = compare_keys(a, b);
    if (!order)
        order = compare_numbers(a->item->graph, b->item->graph);
    if (!order)
        order = compare_numbers(a->item->node, b->item->node);
    return order ? order : compare_numbers(a->finding, b->finding);
}

// Groups of one kind stand in the order of their first graphs, as the rest of the report does.
static int compare_groups(const void *left, const void *right)
{
    const gv_incomplete_group *a = left, *b = right;
    int order = compare_numbers(a->trace_index, b->trace_index);
    if (!order)
        order = compare_numbers(a->kind, b->kind);
    if (!order)
        order = compare_numbers(a->graph, b->graph);
    return order ? order : compare_numbers(a->first, b->first);
}

static size_t index_of(gv_trace *const *traces, size_t count, const gv_trace *trace)
{
    size_t i = 0;
    while (i < count && traces[i] != trace)
        i++;
    return i;
}

static int compare_places(const void *left, const void *right)
{
    const row *a = left, *b = right;
    int order = compare_numbers(a->trace_index, b->trace_index);
    if (!order)
        order = compare_numbers(a->item->graph, b->item->graph);
    return order ? order : compare_numbers(a->item->node, b->item->node);
}

// Puts the rows of one kind first, by graph and node, and returns how many they are.
static size_t select_kind(row *rows, size_t count, enum gv_incomplete_kind kind)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].item->incomplete == kind) {
            row found = rows[i];
            rows[i] = rows[kept];
            rows[kept++] = found;
        }
    }
    if (kept)
        qsort(rows, kept, sizeof *rows, compare_places);
    return kept;
}

static bool same_graph(const row *a, const row *b)
{
    return a->trace_index == b->trace_index && a->item->graph == b->item->graph;
}

// Counts the nodes and graphs that could not be seen, each once though several reasons may name it. Sorts `rows` anew.
static void count_unseen(row *rows, size_t count, gv_overview *overview)
{
    size_t kept = select_kind(rows, count, GV_INCOMPLETE_GRAPH);
    for (size_t i = 0; i < kept; i++)
        overview->broken_graphs += i == 0 || !same_graph(&rows[i - 1], &rows[i]);
    kept = select_kind(rows, count, GV_INCOMPLETE_NODE);
    bool one_reason = true;
    for (size_t i = 0; i < kept; i++) {
        const gv_finding *item = rows[i].item;
        overview->unseen_nodes += i == 0 || compare_places(&rows[i - 1], &rows[i]) != 0;
        one_reason = one_reason && strcmp(reason_of(item), reason_of(rows[0].item)) == 0;
        if (i && same_graph(&rows[i - 1], &rows[i]))
            continue;
        const gv_graph *graph = gv_trace_graph(item->trace, item->graph);
        overview->unseen_graphs++;
        overview->unseen_graph_nodes += graph ? graph->node_count : 0;
    }
    if (kept && overview->unseen_graphs == 1)
        overview->unseen_graph = rows[0].item->graph;
    overview->unseen_reason = kept && one_reason ? rows[0].item->reason : NULL;
}

// Adds a finding to its group; `before` is the one that was added last, or NULL for the first of the group.
static void add_to_group(gv_incomplete_group *group, const gv_finding *finding, const gv_finding *before)
{
    group->count++;
    group->affected += finding->affected ? finding->affected : 1;
    group->graphs += finding->alike;
    group->at_least |=
        gv_incomplete_is_about_pairs(finding->incomplete) && finding->affected >= GV_RACE_UNDECIDED_LIMIT;
    if (before && group->reason && strcmp(group->reason, reason_of(finding)) != 0)
        group->reason = NULL;
    if (!finding->graph || (before && before->graph == finding->graph))
        return;
    const gv_graph *graph = gv_trace_graph(finding->trace, finding->graph);
    group->graphs++;
    group->listed++;
    group->graph_nodes += graph ? graph->node_count : 0;
}

static gv_status gather_groups(gv_trace *const *traces, size_t trace_count, const gv_findings *findings,
                               gv_overview *overview, gv_error *error)
{
    size_t count = 0;
    for (size_t i = 0; i < findings->count; i++)
        count += findings->items[i].id == GV_FINDING_INCOMPLETE;
    row *rows = gv_calloc(count, sizeof *rows);
    overview->order = gv_calloc(count, sizeof *overview->order);
    overview->groups = gv_calloc(count, sizeof *overview->groups);
    if (!rows || !overview->order || !overview->groups) {
        gv_free(rows);
        return gv_fail(error, GV_ERR_MEMORY, "out of memory while the report was gathered");
    }
    size_t used = 0;
    for (size_t i = 0; i < findings->count; i++) {
        const gv_finding *finding = &findings->items[i];
        if (finding->id == GV_FINDING_INCOMPLETE)
            rows[used++] = (row){index_of(traces, trace_count, finding->trace), i, finding};
    }
    qsort(rows, count, sizeof *rows, compare_rows);
    for (size_t i = 0; i < count; i++) {
        const gv_finding *finding = rows[i].item;
        bool opens = i == 0 || compare_keys(&rows[i - 1], &rows[i]) != 0;
        if (opens) {
            overview->groups[overview->group_count++] = (gv_incomplete_group){
                .trace = finding->trace,
                .trace_index = rows[i].trace_index,
                .graph = finding->graph,
                .kind = finding->incomplete,
                .reason = reason_of(finding),
                .suppressed = finding->suppressed,
                .first = i,
            };
        }
        add_to_group(&overview->groups[overview->group_count - 1], finding, opens ? NULL : rows[i - 1].item);
        overview->order[i] = rows[i].finding;
    }
    overview->order_count = count;
    if (overview->group_count)
        qsort(overview->groups, overview->group_count, sizeof *overview->groups, compare_groups);
    count_unseen(rows, count, overview);
    gv_free(rows);
    return GV_OK;
}

// ---- What was checked -------------------------------------------------------------------------------------------

// Marks `id` and the child graphs and bodies below it, and counts their nodes. A snapshot is marked once, so that a
// damaged trace whose graphs contain each other ends; `pending` has room for every snapshot, so that none nests too
// deep.
static void mark_checked(const gv_trace *trace, uint64_t id, bool *seen, uint64_t *pending, gv_overview *overview)
{
    size_t waiting = 0;
    seen[id] = true;
    pending[waiting++] = id;
    while (waiting) {
        const gv_graph *graph = &trace->graphs[pending[--waiting]];
        overview->nodes += graph->node_count;
        for (size_t i = 0; i < graph->node_count; i++) {
            const gv_node *node = &graph->nodes[i];
            size_t count;
            const uint64_t *inner = gv_node_bodies(node, &count);
            if (node->kind == GV_NODE_CHILD) {
                inner = &node->child;
                count = 1;
            }
            for (size_t k = 0; k < count; k++) {
                if (!gv_trace_graph(trace, inner[k]) || seen[inner[k]])
                    continue;
                seen[inner[k]] = true;
                pending[waiting++] = inner[k];
            }
        }
    }
}

static gv_status count_graphs(const gv_trace *trace, gv_overview *overview, gv_error *error)
{
    bool *seen = gv_calloc(trace->graph_count, sizeof *seen);
    uint64_t *pending = gv_calloc(trace->graph_count, sizeof *pending);
    gv_status status = GV_OK;
    if (!seen || !pending)
        status = gv_fail(error, GV_ERR_MEMORY, "out of memory while the report was gathered");
    for (size_t i = 0; seen && pending && i < trace->armed_count; i++) {
        const gv_armed *armed = &trace->armed[i];
        if (armed->status == GV_ARMED_COMPLETE && gv_trace_graph(trace, armed->graph) && !seen[armed->graph]) {
            overview->graphs++;
            mark_checked(trace, armed->graph, seen, pending, overview);
        }
    }
    gv_free(seen);
    gv_free(pending);
    return status;
}

static gv_status add_coverage(const gv_trace *trace, gv_overview *overview, gv_error *error)
{
    gv_coverage coverage;
    gv_status status = gv_coverage_make(trace, false, &coverage, error);
    for (size_t i = 0; status == GV_OK && i < GV_COVERAGE_STATES; i++)
        overview->covered[i] += coverage.nodes[i];
    if (status == GV_OK)
        gv_coverage_free(&coverage);
    return status;
}

// Effects stand before the launch they were seen in, so that one walk over both finds those of each.
static size_t launches_with_effects(const gv_trace *trace, enum gv_perturbed_what what, size_t *checked,
                                    size_t *unchecked, uint64_t *left_out)
{
    size_t found = 0, next = 0;
    for (size_t i = 0; i < trace->perturbed_count; i++) {
        const gv_perturbed *launch = &trace->perturbed[i];
        size_t first = next;
        while (next < trace->effect_count && trace->effects[next].launch == launch->launch)
            next++;
        if (launch->what != what)
            continue;
        // What was seen of a launch that could not be checked in full was seen all the same.
        if (launch->status != GV_PERTURBED_CHECKED && next == first) {
            ++*unchecked;
            continue;
        }
        if (launch->left_out_bytes > *left_out)
            *left_out = launch->left_out_bytes;
        ++*checked;
        found += next > first;
    }
    return found;
}

static void count_tried(const gv_trace *trace, gv_tried *tried)
{
    for (size_t i = 0; i < trace->checked_count; i++) {
        bool compared = trace->checked[i].status == GV_CHECKED_COMPARED;
        tried->compared += compared;
        tried->differing += compared && trace->checked[i].different_bytes;
    }
    tried->pad_effects +=
        launches_with_effects(trace, GV_PERTURBED_PADDING, &tried->padded, &tried->pad_unchecked, &tried->pad_left_out);
    tried->poison_effects += launches_with_effects(trace, GV_PERTURBED_POISON, &tried->poisoned,
                                                   &tried->poison_unchecked, &tried->poison_left_out);
    for (size_t i = 0; i < trace->region_step_count; i++) {
        tried->hashes += trace->region_steps[i].state == GV_REGION_CHECKED;
        tried->intruded += trace->region_steps[i].outside > 0;
    }
    for (size_t i = 0; i < trace->probe_count; i++) {
        tried->probes += !*trace->probes[i].reason;
        tried->probe_differences += trace->probes[i].differing > 0;
    }
}

gv_status gv_overview_make(gv_trace *const *traces, size_t trace_count, const gv_findings *findings,
                           gv_overview *overview, gv_error *error)
{
    *overview = (gv_overview){.complete = true};
    for (size_t i = 0; i < findings->count; i++) {
        const gv_finding *finding = &findings->items[i];
        overview->suppressed += finding->suppressed;
        if (finding->id == GV_FINDING_INCOMPLETE) {
            overview->complete = false;
            overview->incomplete_shown |= !finding->suppressed;
        } else if (gv_finding_is_observed(finding->id)) {
            overview->observed += gv_finding_counts(finding) && !finding->suppressed;
        } else if (!finding->suppressed) {
            overview->races++;
            overview->pairs += finding->pair_count;
        }
    }
    for (size_t i = 0; i < trace_count; i++)
        count_tried(traces[i], &overview->tried);
    gv_status status = gather_groups(traces, trace_count, findings, overview, error);
    for (size_t i = 0; i < trace_count && status == GV_OK; i++)
        status = count_graphs(traces[i], overview, error);
    for (size_t i = 0; i < trace_count && status == GV_OK; i++)
        status = add_coverage(traces[i], overview, error);
    if (status != GV_OK)
        gv_overview_free(overview);
    return status;
}

void gv_overview_free(gv_overview *overview)
{
    gv_free(overview->groups);
    gv_free(overview->order);
    *overview = (gv_overview){0};
}
