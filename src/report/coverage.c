// Every node of a launched graph gets a state from the records of its recorded launches; what was not recorded gets one
// from the same rule as the incomplete detector's, so that the two never disagree.
#include "report/coverage.h"

#include "access/range_set.h"
#include "base/memory.h"
#include "detect/detect.h"
#include "detect/flatten.h"
#include "order/exec_index.h"
#include "report/messages.h"
#include "report/overview.h"

#include <stdlib.h>
#include <string.h>

// A graph while its nodes are being judged: one state and one reason for each flat node.
typedef struct judged {
    gv_flat_graph flat;
    uint8_t *states;
    const char **reasons;
    uint64_t fingerprint;
    size_t row; // in gv_coverage.graphs
} judged;

typedef struct survey {
    const gv_trace *trace;
    bool detailed;
    gv_coverage *coverage;
    gv_error *error;
    struct armed_of {
        uint64_t graph;
        size_t armed;
    } * armed; // by graph and place in the trace
    size_t armed_count;
    judged *kept; // graphs with bodies, which wait for what others of their structure executed
    size_t kept_count, kept_capacity;
    gv_range_set seen, bounded; // bytes of the graph at hand
} survey;

static gv_status out_of_memory(const survey *in)
{
    return gv_fail(in->error, GV_ERR_MEMORY, "out of memory while the coverage was gathered");
}

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static void judged_free(judged *at)
{
    gv_flat_graph_free(&at->flat);
    gv_free(at->states);
    gv_free(at->reasons);
    *at = (judged){0};
}

static void worsen(judged *at, uint32_t node, enum gv_coverage_state state, const char *reason)
{
    if (state < at->states[node])
        return;
    if (state > at->states[node] || !at->reasons[node])
        at->reasons[node] = reason;
    at->states[node] = (uint8_t)state;
}

// ---- Records ----------------------------------------------------------------------------------------------------

static bool is_empty(const gv_access *row)
{
    return !row->reads.length && !row->writes.length && !row->atomics.length;
}

static enum gv_coverage_state state_of(const gv_access *row, const gv_node *node)
{
    switch (row->precision) {
    case GV_PRECISION_EXACT:
        return is_empty(row) && !gv_unrecorded_reason(node) ? GV_COVERAGE_NOTHING : GV_COVERAGE_EXACT;
    case GV_PRECISION_EXTENT: return GV_COVERAGE_EXTENT;
    case GV_PRECISION_INCOMPLETE: break;
    }
    return GV_COVERAGE_INCOMPLETE;
}

static gv_status add_bytes(survey *in, const gv_access *row)
{
    gv_range_set *to = row->precision == GV_PRECISION_EXTENT ? &in->bounded : &in->seen;
    const gv_bytes sets[] = {row->reads, row->writes, row->atomics};
    gv_status status = GV_OK;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        gv_range range;
        gv_range_cursor cursor = gv_range_cursor_open(sets[i]);
        while (status == GV_OK && gv_range_cursor_next(&cursor, &range))
            status = gv_range_set_add(to, range.start, range.end, in->error);
    }
    return status == GV_OK ? GV_OK : out_of_memory(in);
}

// What the records of one launch say. `layout` is the launch's own, `folded` the flat node of the graph for each of
// its nodes; NULL when the two layouts are one.
static gv_status judge_records(survey *in, judged *at, const gv_armed *armed, const gv_flat_graph *layout,
                               const uint32_t *folded)
{
    const gv_trace *trace = in->trace;
    bool *recorded = gv_calloc(layout->node_count, sizeof *recorded);
    if (!recorded)
        return out_of_memory(in);
    gv_status status = GV_OK;
    for (size_t r = 0; r < armed->access_count && status == GV_OK; r++) {
        const gv_access *row = &trace->accesses[armed->first_access + r];
        size_t uses;
        const uint32_t *instances = gv_flat_instances_in(layout, row->graph, row->execution, &uses);
        for (size_t i = 0; i < uses && row->node < trace->graphs[row->graph].node_count; i++) {
            uint32_t node = layout->instances[instances[i]].first + row->node;
            enum gv_coverage_state state = state_of(row, gv_flat_node_record(trace, layout, node));
            recorded[node] = true;
            worsen(at, folded ? folded[node] : node, state,
                   row->reason && *row->reason ? row->reason : gv_message_coverage_reason(state));
        }
        if (uses && in->detailed)
            status = add_bytes(in, row);
    }
    // Behind the break of a launch that was not recorded to its end, a missing record means nothing.
    for (uint32_t n = 0; n < layout->node_count && status == GV_OK && armed->status == GV_ARMED_COMPLETE; n++) {
        if (recorded[n] || layout->nodes[n].is_exit)
            continue;
        const char *why = gv_unrecorded_reason(gv_flat_node_record(trace, layout, n));
        worsen(at, folded ? folded[n] : n, why ? GV_COVERAGE_INCOMPLETE : GV_COVERAGE_NOTHING, why);
    }
    gv_free(recorded);
    return status;
}

// Nothing is certain of a launch that cannot be laid out, and so of no node of its graph.
static gv_status give_up(survey *in, gv_coverage_graph *row, judged *at, const char *why)
{
    gv_free(row->problem);
    row->problem = gv_strdup(why);
    if (!row->problem)
        return out_of_memory(in);
    for (uint32_t n = 0; n < at->flat.node_count; n++)
        if (at->states[n] != GV_COVERAGE_NOTHING)
            worsen(at, n, GV_COVERAGE_INCOMPLETE, row->problem);
    return GV_OK;
}

static gv_status judge_launch(survey *in, gv_coverage_graph *row, judged *at, const gv_armed *armed)
{
    if (!at->flat.has_bodies)
        return judge_records(in, at, armed, &at->flat, NULL);
    gv_flat_graph layout;
    gv_error why = {0};
    gv_status status = gv_flatten_launch(in->trace, armed, &layout, &why);
    if (status == GV_ERR_MEMORY)
        return out_of_memory(in);
    if (status)
        return give_up(in, row, at, why.text);
    uint32_t *folded = gv_flat_fold(&layout, &at->flat);
    status = folded ? judge_records(in, at, armed, &layout, folded) : out_of_memory(in);
    gv_free(folded);
    gv_flat_graph_free(&layout);
    return status;
}

// ---- Graphs -----------------------------------------------------------------------------------------------------

// The records of armed launches of `graph`: *count of them.
static const struct armed_of *armed_of(const survey *in, uint64_t graph, size_t *count)
{
    size_t low = 0, high = in->armed_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (in->armed[middle].graph < graph)
            low = middle + 1;
        else
            high = middle;
    }
    for (*count = 0; low + *count < in->armed_count && in->armed[low + *count].graph == graph;)
        ++*count;
    return in->armed + low;
}

// Counts the launches that were recorded to their ends. When there is none, *reason says why.
static void count_recorded(const survey *in, gv_coverage_graph *row, const char **reason)
{
    size_t count;
    const struct armed_of *own = armed_of(in, row->graph, &count);
    *reason = gv_message_coverage_reason(GV_COVERAGE_NOT_RECORDED);
    for (size_t i = 0; i < count; i++) {
        const gv_armed *armed = &in->trace->armed[own[i].armed];
        row->recorded += armed->status == GV_ARMED_COMPLETE;
        if (armed->reason && *armed->reason)
            *reason = armed->reason;
    }
}

// What the nodes are as long as no record says more of them: in a body that did not run when some launch was recorded
// to its end, else not recorded.
static void begin_states(const survey *in, judged *at, enum gv_coverage_state state, const char *reason)
{
    for (uint32_t n = 0; n < at->flat.node_count; n++) {
        bool needs = gv_unrecorded_reason(gv_flat_node_record(in->trace, &at->flat, n));
        at->states[n] = (uint8_t)(needs ? state : GV_COVERAGE_NOTHING);
        at->reasons[n] = needs ? reason : NULL;
    }
}

// Judges every node by the launches that show most: those recorded to their ends, else those that broke off.
static gv_status judge(survey *in, gv_coverage_graph *row, judged *at, const char *unrecorded)
{
    const gv_trace *trace = in->trace;
    size_t count;
    const struct armed_of *own = armed_of(in, row->graph, &count);
    if (row->recorded)
        begin_states(in, at, GV_COVERAGE_NOT_EXECUTED, gv_message_coverage_reason(GV_COVERAGE_NOT_EXECUTED));
    else
        begin_states(in, at, GV_COVERAGE_NOT_RECORDED, unrecorded);
    gv_status status = GV_OK;
    for (size_t i = 0; i < count && status == GV_OK && !row->problem; i++) {
        const gv_armed *armed = &trace->armed[own[i].armed];
        if (armed->status == (row->recorded ? GV_ARMED_COMPLETE : GV_ARMED_FAILED))
            status = judge_launch(in, row, at, armed);
    }
    for (size_t i = 0; i < trace->note_count && status == GV_OK; i++) {
        const gv_note *note = &trace->notes[i];
        if (!note->graph || !note->node || (note->severity != GV_NOTE_INCOMPLETE && note->severity != GV_NOTE_FAILURE))
            continue;
        size_t uses;
        const uint32_t *instances = gv_flat_instances_of(&at->flat, note->graph, &uses);
        for (size_t k = 0; k < uses && note->node <= trace->graphs[note->graph].node_count; k++)
            worsen(at, at->flat.instances[instances[k]].first + (uint32_t)note->node - 1, GV_COVERAGE_INCOMPLETE,
                   note->text ? note->text : gv_message_coverage_reason(GV_COVERAGE_INCOMPLETE));
    }
    return status;
}

// ---- Reasons ----------------------------------------------------------------------------------------------------

// Worst state first, then by text.
static int by_subject(const void *left, const void *right)
{
    const gv_coverage_reason *a = left, *b = right;
    int order = compare(b->state, a->state);
    if (!order)
        order = strcmp(a->text, b->text);
    if (!order)
        order = compare(a->examples[0].graph, b->examples[0].graph);
    return order ? order : compare(a->examples[0].node, b->examples[0].node);
}

static int by_nodes(const void *left, const void *right)
{
    const gv_coverage_reason *a = left, *b = right;
    int order = compare(b->state, a->state);
    if (!order)
        order = compare(b->nodes, a->nodes);
    return order ? order : strcmp(a->text, b->text);
}

// Do the two examples run the same kernel, or are they nodes of one kind?
static bool alike(const gv_trace *trace, const gv_coverage_reason *a, size_t i, const gv_coverage_reason *b, size_t k)
{
    const gv_node *left = &trace->graphs[a->examples[i].graph].nodes[a->examples[i].node];
    const gv_node *right = &trace->graphs[b->examples[k].graph].nodes[b->examples[k].node];
    return left->kind == right->kind && (left->kind != GV_NODE_KERNEL || left->function == right->function);
}

static void merge_into(const gv_trace *trace, gv_coverage_reason *into, const gv_coverage_reason *from)
{
    into->nodes += from->nodes;
    into->graphs += from->graphs;
    for (size_t i = 0; i < from->example_count; i++) {
        bool known = into->example_count == GV_COVERAGE_EXAMPLES;
        for (size_t k = 0; k < into->example_count && !known; k++)
            known = alike(trace, from, i, into, k);
        if (!known)
            into->examples[into->example_count++] = from->examples[i];
    }
}

// Makes one reason of equal ones and puts them in their order. Returns how many are left.
static size_t merge(const gv_trace *trace, gv_coverage_reason *reasons, size_t count)
{
    size_t kept = 0;
    if (count)
        qsort(reasons, count, sizeof *reasons, by_subject);
    for (size_t i = 0; i < count; i++) {
        gv_coverage_reason *last = kept ? &reasons[kept - 1] : NULL;
        if (last && last->state == reasons[i].state && strcmp(last->text, reasons[i].text) == 0)
            merge_into(trace, last, &reasons[i]);
        else
            reasons[kept++] = reasons[i];
    }
    if (kept)
        qsort(reasons, kept, sizeof *reasons, by_nodes);
    return kept;
}

// One reason for each node first: sorting them is what finds the equal ones, however many there are.
static gv_status gather_reasons(survey *in, gv_coverage_graph *row, const judged *at)
{
    size_t count = row->nodes[GV_COVERAGE_NOT_RECORDED] + row->nodes[GV_COVERAGE_NOT_EXECUTED] +
                   row->nodes[GV_COVERAGE_EXTENT] + row->nodes[GV_COVERAGE_INCOMPLETE];
    if (!count)
        return GV_OK;
    row->reasons = gv_calloc(count, sizeof *row->reasons);
    if (!row->reasons)
        return out_of_memory(in);
    for (uint32_t n = 0; n < at->flat.node_count; n++) {
        const gv_flat_node *node = &at->flat.nodes[n];
        if (node->is_exit || at->states[n] == GV_COVERAGE_NOTHING || at->states[n] == GV_COVERAGE_EXACT)
            continue;
        row->reasons[row->reason_count++] = (gv_coverage_reason){
            .state = at->states[n],
            .text = at->reasons[n],
            .nodes = 1,
            .examples = {{at->flat.instances[node->instance].graph, node->index}},
            .example_count = 1,
        };
    }
    row->reason_count = merge(in->trace, row->reasons, row->reason_count);
    for (size_t i = 0; i < row->reason_count; i++)
        row->reasons[i].graphs = 1;
    return GV_OK;
}

static gv_status finish(survey *in, const judged *at)
{
    gv_coverage_graph *row = &in->coverage->graphs[at->row];
    for (uint32_t n = 0; n < at->flat.node_count; n++)
        row->nodes[at->states[n]] += !at->flat.nodes[n].is_exit;
    return in->detailed ? gather_reasons(in, row, at) : GV_OK;
}

static gv_status gather_all_reasons(survey *in)
{
    gv_coverage *coverage = in->coverage;
    size_t count = 0;
    for (size_t i = 0; i < coverage->graph_count; i++)
        count += coverage->graphs[i].reason_count;
    if (!count)
        return GV_OK;
    coverage->reasons = gv_calloc(count, sizeof *coverage->reasons);
    if (!coverage->reasons)
        return out_of_memory(in);
    for (size_t i = 0; i < coverage->graph_count; i++) {
        const gv_coverage_graph *row = &coverage->graphs[i];
        for (size_t k = 0; k < row->reason_count; k++)
            coverage->reasons[coverage->reason_count++] = row->reasons[k];
    }
    coverage->reason_count = merge(in->trace, coverage->reasons, coverage->reason_count);
    return GV_OK;
}

// ---- All graphs -------------------------------------------------------------------------------------------------

static gv_status measure_bytes(survey *in, gv_coverage_graph *row)
{
    gv_range_set bounded_only = {0};
    gv_range_set_settle(&in->seen);
    gv_range_set_settle(&in->bounded);
    gv_status status = gv_range_set_difference(&in->bounded, &in->seen, &bounded_only, in->error);
    row->bytes = gv_range_set_bytes(&in->seen);
    row->extent_bytes = gv_range_set_bytes(&bounded_only);
    gv_range_set_free(&bounded_only);
    gv_range_set_free(&in->seen);
    gv_range_set_free(&in->bounded);
    return status == GV_OK ? GV_OK : out_of_memory(in);
}

// Keeps a graph with bodies until all are judged; others are counted at once.
static gv_status settle(survey *in, judged *at)
{
    if (!at->flat.has_bodies)
        return finish(in, at);
    if (!GV_GROW(in->kept, in->kept_capacity, in->kept_count + 1))
        return out_of_memory(in);
    at->fingerprint = gv_flat_fingerprint(in->trace, &at->flat);
    in->kept[in->kept_count++] = *at;
    *at = (judged){0};
    return GV_OK;
}

// The nodes of a graph that cannot be laid out cannot be told from those of its child graphs and bodies: the ones that
// it has itself stand for all.
static gv_status give_up_whole(survey *in, gv_coverage_graph *row, const char *why)
{
    size_t nodes = in->trace->graphs[row->graph].node_count;
    enum gv_coverage_state state = row->recorded ? GV_COVERAGE_INCOMPLETE : GV_COVERAGE_NOT_RECORDED;
    row->nodes[state] = nodes;
    if (!in->detailed || !nodes)
        return GV_OK;
    row->problem = gv_strdup(why);
    row->reasons = gv_calloc(1, sizeof *row->reasons);
    if (!row->problem || !row->reasons)
        return out_of_memory(in);
    row->reasons[row->reason_count++] = (gv_coverage_reason){
        .state = state,
        .text = row->problem,
        .nodes = nodes,
        .graphs = 1,
        .examples = {{row->graph, 0}},
        .example_count = 1,
    };
    return GV_OK;
}

static gv_status survey_graph(survey *in, size_t index)
{
    gv_coverage_graph *row = &in->coverage->graphs[index];
    judged at = {.row = index};
    const char *reason;
    count_recorded(in, row, &reason);
    gv_error why = {0};
    gv_status status = gv_flatten(in->trace, row->graph, &at.flat, &why);
    if (status == GV_ERR_MEMORY)
        return out_of_memory(in);
    if (status)
        return give_up_whole(in, row, row->recorded ? why.text : reason);
    at.states = gv_calloc(at.flat.node_count + 1, sizeof *at.states);
    at.reasons = gv_calloc(at.flat.node_count + 1, sizeof *at.reasons);
    status = at.states && at.reasons ? judge(in, row, &at, reason) : out_of_memory(in);
    if (status == GV_OK && in->detailed)
        status = measure_bytes(in, row);
    if (status == GV_OK)
        status = settle(in, &at);
    judged_free(&at);
    return status;
}

static int by_structure(const void *left, const void *right)
{
    const judged *a = left, *b = right;
    int order = compare(a->fingerprint, b->fingerprint);
    return order ? order : compare(a->row, b->row);
}

// Graphs of one structure have the same nodes at the same places: what one of them executed, all of them have.
static void share_executions(judged *graphs, size_t count)
{
    for (uint32_t n = 0; count > 1 && n < graphs[0].flat.node_count; n++) {
        const judged *best = &graphs[0];
        for (size_t i = 1; i < count; i++)
            if (graphs[i].flat.node_count > n && graphs[i].states[n] > best->states[n])
                best = &graphs[i];
        for (size_t i = 0; i < count; i++)
            if (graphs[i].flat.node_count > n && graphs[i].states[n] == GV_COVERAGE_NOT_EXECUTED)
                worsen(&graphs[i], n, best->states[n], best->reasons[n]);
    }
}

static gv_status finish_kept(survey *in)
{
    gv_status status = GV_OK;
    if (in->kept_count)
        qsort(in->kept, in->kept_count, sizeof *in->kept, by_structure);
    for (size_t i = 0, next; i < in->kept_count; i = next) {
        for (next = i + 1; next < in->kept_count && in->kept[next].fingerprint == in->kept[i].fingerprint;)
            next++;
        share_executions(in->kept + i, next - i);
    }
    for (size_t i = 0; i < in->kept_count && status == GV_OK; i++)
        status = finish(in, &in->kept[i]);
    return status;
}

static int by_graph(const void *left, const void *right)
{
    const struct armed_of *a = left, *b = right;
    int order = compare(a->graph, b->graph);
    return order ? order : compare(a->armed, b->armed);
}

// Gives every graph that was launched its row.
static gv_status find_graphs(survey *in)
{
    const gv_trace *trace = in->trace;
    bool *launched = gv_calloc(trace->graph_count + 1, sizeof *launched);
    in->armed = gv_calloc(trace->armed_count + 1, sizeof *in->armed);
    gv_exec_index execs = {0};
    gv_status status = launched && in->armed ? gv_exec_index_build(&execs, trace, in->error) : out_of_memory(in);
    for (size_t i = 0; status == GV_OK && i < trace->operation_count; i++) {
        const gv_operation *operation = &trace->operations[i];
        if (operation->kind != GV_OP_GRAPH_LAUNCH)
            continue;
        uint64_t graph = gv_exec_index_graph(&execs, operation->object, operation->sequence);
        if (gv_trace_graph(trace, graph))
            launched[graph] = true;
    }
    gv_exec_index_free(&execs);
    for (size_t i = 0; status == GV_OK && i < trace->armed_count; i++) {
        uint64_t graph = trace->armed[i].graph;
        if (!gv_trace_graph(trace, graph))
            continue;
        launched[graph] = true;
        in->armed[in->armed_count++] = (struct armed_of){graph, i};
    }
    if (status == GV_OK && in->armed_count)
        qsort(in->armed, in->armed_count, sizeof *in->armed, by_graph);
    size_t count = 0;
    for (uint64_t g = 1; status == GV_OK && g < trace->graph_count; g++)
        count += launched[g];
    if (status == GV_OK) {
        in->coverage->graphs = gv_calloc(count + 1, sizeof *in->coverage->graphs);
        status = in->coverage->graphs ? GV_OK : out_of_memory(in);
    }
    for (uint64_t g = 1; status == GV_OK && g < trace->graph_count; g++)
        if (launched[g])
            in->coverage->graphs[in->coverage->graph_count++].graph = g;
    gv_free(launched);
    return status;
}

gv_status gv_coverage_make(const gv_trace *trace, bool detailed, gv_coverage *coverage, gv_error *error)
{
    *coverage = (gv_coverage){0};
    survey in = {.trace = trace, .detailed = detailed, .coverage = coverage, .error = error};
    gv_status status = find_graphs(&in);
    for (size_t i = 0; i < coverage->graph_count && status == GV_OK; i++)
        status = survey_graph(&in, i);
    if (status == GV_OK)
        status = finish_kept(&in);
    for (size_t i = 0; i < coverage->graph_count; i++)
        for (size_t state = 0; state < GV_COVERAGE_STATES; state++)
            coverage->nodes[state] += coverage->graphs[i].nodes[state];
    if (status == GV_OK && detailed)
        status = gather_all_reasons(&in);
    for (size_t i = 0; i < in.kept_count; i++)
        judged_free(&in.kept[i]);
    gv_free(in.kept);
    gv_free(in.armed);
    gv_range_set_free(&in.seen);
    gv_range_set_free(&in.bounded);
    if (status != GV_OK)
        gv_coverage_free(coverage);
    return status;
}

void gv_coverage_free(gv_coverage *coverage)
{
    for (size_t i = 0; i < coverage->graph_count; i++) {
        gv_free(coverage->graphs[i].reasons);
        gv_free(coverage->graphs[i].problem);
    }
    gv_free(coverage->graphs);
    gv_free(coverage->reasons);
    *coverage = (gv_coverage){0};
}

size_t gv_coverage_total(const size_t nodes[GV_COVERAGE_STATES])
{
    size_t total = 0;
    for (size_t state = 0; state < GV_COVERAGE_STATES; state++)
        total += nodes[state];
    return total;
}
