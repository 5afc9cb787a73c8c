// What was not seen. A report without races means something only where this detector is silent too.
#include "base/memory.h"
#include "detect/detect.h"
#include "detect/flatten.h"
#include "order/exec_index.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// One thing that was not seen. Equal ones are reported once.
typedef struct unseen {
    enum gv_incomplete_kind kind;
    uint64_t graph;
    uint64_t node; // index + 1; 0: the graph as a whole
    uint64_t launch;
    size_t affected;
    size_t alike;       // further graphs of the same structure
    const char *reason; // in the trace, or owned
    bool owned;
} unseen;

typedef struct inspection {
    const gv_trace *trace;
    gv_error *error;
    unseen *items;
    size_t count, capacity;
} inspection;

static gv_status out_of_memory(inspection *in)
{
    return gv_fail(in->error, GV_ERR_MEMORY, "out of memory while gathering what was not seen");
}

static gv_status add(inspection *in, unseen item)
{
    if (!GV_GROW(in->items, in->capacity, in->count + 1))
        return out_of_memory(in);
    in->items[in->count++] = item;
    return GV_OK;
}

// As add, with a reason that is put together here.
static gv_status add_formatted(inspection *in, unseen item, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static gv_status add_formatted(inspection *in, unseen item, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    char *copy = gv_strdup(text);
    if (!copy)
        return out_of_memory(in);
    item.reason = copy;
    item.owned = true;
    gv_status status = add(in, item);
    if (status)
        gv_free(copy);
    return status;
}

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static bool is_graph(const gv_trace *trace, uint64_t id)
{
    return id && id < trace->graph_count && trace->graphs[id].id == id;
}

// ---- The trace --------------------------------------------------------------------------------------------------

static gv_status inspect_trace(inspection *in)
{
    const gv_trace *trace = in->trace;
    gv_status status = GV_OK;
    if (trace->truncation)
        status = add(in, (unseen){.kind = GV_INCOMPLETE_TRACE, .affected = 1, .reason = trace->truncation});
    else if (!trace->ended)
        status = add(in, (unseen){.kind = GV_INCOMPLETE_TRACE,
                                  .affected = 1,
                                  .reason = "the process ended without closing the trace (it was killed or is still "
                                            "running): what it did last is missing"});
    if (!status && trace->undefined)
        status = add_formatted(in, (unseen){.kind = GV_INCOMPLETE_TRACE, .affected = 1},
                               "%zu references lead to records that are not in the trace", trace->undefined);
    // Making an executable graph is an operation too, so a trace has graphs and no operation at all only by choice.
    if (!status && trace->fix_count && trace->exec_version_count && !trace->operation_count)
        status =
            add(in, (unseen){.kind = GV_INCOMPLETE_TRACE,
                             .affected = 1,
                             .reason = "with --fix alone no launch is recorded: `gravel run --fix FILE --arm first` "
                                       "shows whether the graphs have races with the added edges"});
    for (size_t i = 0; i < trace->note_count && !status; i++) {
        const gv_note *note = &trace->notes[i];
        if (note->severity != GV_NOTE_INCOMPLETE && note->severity != GV_NOTE_FAILURE)
            continue;
        bool about_graph = is_graph(trace, note->graph);
        status = add(in, (unseen){.kind = !about_graph ? GV_INCOMPLETE_TRACE
                                          : note->node ? GV_INCOMPLETE_NODE
                                                       : GV_INCOMPLETE_GRAPH,
                                  .graph = about_graph ? note->graph : 0,
                                  .node = about_graph ? note->node : 0,
                                  .affected = 1,
                                  .reason = note->text});
    }
    return status;
}

// ---- Armed launches ---------------------------------------------------------------------------------------------

const char *gv_unrecorded_reason(const gv_node *node)
{
    if (node->flags & GV_NODE_DISABLED)
        return NULL;
    switch ((int)node->kind) {
    case GV_NODE_EMPTY:
    case GV_NODE_CHILD:
    case GV_NODE_EVENT_WAIT:
    case GV_NODE_EVENT_RECORD:
    case GV_NODE_SEMAPHORE_SIGNAL:
    case GV_NODE_SEMAPHORE_WAIT:
    case GV_NODE_ALLOC:
    case GV_NODE_FREE: return NULL;
    case GV_NODE_HOST: return "it is a host function, whose accesses are not recorded";
    case GV_NODE_CONDITIONAL: {
        // What ran of it is in the nodes of its bodies.
        size_t bodies;
        return gv_node_bodies(node, &bodies) ? NULL : "it is a conditional node, whose bodies are not recorded";
    }
    default: return "no accesses were recorded for it";
    }
}

static gv_status inspect_records(inspection *in, const gv_armed *armed)
{
    const gv_trace *trace = in->trace;
    gv_status status = GV_OK;
    for (size_t r = 0; r < armed->access_count && !status; r++) {
        const gv_access *row = &trace->accesses[armed->first_access + r];
        if (row->precision != GV_PRECISION_INCOMPLETE)
            continue;
        status = add(in, (unseen){.kind = GV_INCOMPLETE_NODE,
                                  .graph = row->graph,
                                  .node = (uint64_t)row->node + 1,
                                  .launch = armed->launch,
                                  .affected = 1,
                                  .reason = row->reason && *row->reason ? row->reason
                                                                        : "not all of its accesses could be seen"});
    }
    return status;
}

// Looks for nodes of a recorded launch that have no access record, in each execution of a body that they are part of,
// and for records of nodes the graph does not have. `flat` is the launch's layout.
static gv_status inspect_nodes(inspection *in, const gv_armed *armed, const gv_flat_graph *flat)
{
    const gv_trace *trace = in->trace;
    bool *recorded = gv_calloc(flat->node_count, sizeof *recorded);
    if (!recorded)
        return out_of_memory(in);
    size_t strangers = 0;
    for (size_t r = 0; r < armed->access_count; r++) {
        const gv_access *row = &trace->accesses[armed->first_access + r];
        size_t uses;
        const uint32_t *instances = gv_flat_instances_in(flat, row->graph, row->execution, &uses);
        strangers += uses == 0;
        for (size_t i = 0; i < uses && row->node < trace->graphs[row->graph].node_count; i++)
            recorded[flat->instances[instances[i]].first + row->node] = true;
    }
    gv_status status = GV_OK;
    for (uint32_t n = 0; n < flat->node_count && !status; n++) {
        const gv_flat_node *at = &flat->nodes[n];
        const char *why = recorded[n] || at->is_exit ? NULL : gv_unrecorded_reason(gv_flat_node_record(trace, flat, n));
        if (why)
            status = add(in, (unseen){.kind = GV_INCOMPLETE_NODE,
                                      .graph = flat->instances[at->instance].graph,
                                      .node = (uint64_t)at->index + 1,
                                      .launch = armed->launch,
                                      .affected = 1,
                                      .reason = why});
    }
    if (strangers && !status)
        status = add_formatted(
            in, (unseen){.kind = GV_INCOMPLETE_GRAPH, .graph = armed->graph, .launch = armed->launch, .affected = 1},
            "%zu access records are of graphs or executions that are not part of the launched one and were not checked",
            strangers);
    gv_free(recorded);
    return status;
}

static gv_status inspect_armed(inspection *in, const gv_armed *armed)
{
    unseen whole = {.kind = GV_INCOMPLETE_GRAPH,
                    .graph = armed->graph,
                    .node = armed->node,
                    .launch = armed->launch,
                    .affected = 1};
    if (armed->status != GV_ARMED_COMPLETE) {
        whole.reason = armed->reason && *armed->reason ? armed->reason : "no reason was given";
        gv_status status = add(in, whole);
        if (status || armed->status == GV_ARMED_REFUSED)
            return status;
    }
    if (!is_graph(in->trace, armed->graph)) {
        whole.graph = 0;
        whole.reason = "the graph of a recorded launch is not in the trace";
        return add(in, whole);
    }
    gv_status status = inspect_records(in, armed);
    if (status)
        return status;
    gv_flat_graph flat;
    gv_error why = {0};
    gv_status laid_out = gv_flatten_launch(in->trace, armed, &flat, &why);
    if (laid_out == GV_ERR_MEMORY)
        return out_of_memory(in);
    whole.node = 0;
    if (laid_out)
        return add_formatted(in, whole, "%s; it was not checked for races", why.text);
    // Of a launch that broke off, what is missing behind the break has been said as a whole.
    if (armed->status == GV_ARMED_COMPLETE)
        status = inspect_nodes(in, armed, &flat);
    gv_flat_graph_free(&flat);
    return status;
}

// ---- Bodies that did not run ------------------------------------------------------------------------------------

// A body in a graph that was recorded to its end. Graphs with one fingerprint are of one structure, and the same
// instance of them is the same body.
typedef struct body {
    uint64_t fingerprint;
    uint32_t instance, parent;
    uint64_t top, graph;
    size_t nodes; // those of child graphs and bodies in it too
    bool ran;
} body;

typedef struct bodies {
    body *items;
    size_t count, capacity;
} bodies;

static int by_instance(const void *left, const void *right)
{
    const body *a = left, *b = right;
    int order = compare(a->fingerprint, b->fingerprint);
    if (!order)
        order = compare(a->instance, b->instance);
    return order ? order : compare(a->top, b->top);
}

// The bodies of one graph, and which of them ran in any of its launches that were recorded to their ends.
static gv_status gather_bodies(inspection *in, uint64_t graph, const bool *ran, bodies *found)
{
    const gv_trace *trace = in->trace;
    gv_flat_graph flat;
    gv_status status = gv_flatten(trace, graph, &flat, NULL);
    if (status)
        return status == GV_ERR_MEMORY ? out_of_memory(in) : GV_OK; // such a graph has been reported
    uint64_t fingerprint = flat.has_bodies ? gv_flat_fingerprint(trace, &flat) : 0;
    size_t *nodes = gv_calloc(flat.instance_count, sizeof *nodes);
    if (!nodes)
        status = out_of_memory(in);
    for (size_t i = flat.instance_count; flat.has_bodies && !status && i-- > 1;) {
        nodes[i] += trace->graphs[flat.instances[i].graph].node_count;
        nodes[flat.instances[i].parent] += nodes[i];
    }
    for (uint32_t i = 1; flat.has_bodies && !status && i < flat.instance_count; i++) {
        const gv_flat_instance *at = &flat.instances[i];
        if (!GV_GROW(found->items, found->capacity, found->count + 1)) {
            status = out_of_memory(in);
            break;
        }
        bool is_body = trace->graphs[at->graph].origin == GV_GRAPH_BODY;
        // A child graph runs whenever what it lies in does, which `report_bodies` finds out.
        found->items[found->count++] =
            (body){fingerprint, i, at->parent, graph, at->graph, is_body ? nodes[i] : 0, is_body && ran[at->graph]};
    }
    gv_free(nodes);
    gv_flat_graph_free(&flat);
    return status;
}

// Reports the outermost bodies that did not run.
static gv_status report_bodies(inspection *in, bodies *found)
{
    gv_status status = GV_OK;
    bool *ran = gv_calloc(found->count + 1, sizeof *ran); // by instance, of the structure at hand
    if (!ran)
        return out_of_memory(in);
    if (found->count)
        qsort(found->items, found->count, sizeof *found->items, by_instance);
    for (size_t i = 0, next; i < found->count && !status; i = next) {
        const body *at = &found->items[i];
        bool any = false, is_body = in->trace->graphs[at->graph].origin == GV_GRAPH_BODY;
        for (next = i; next < found->count && found->items[next].fingerprint == at->fingerprint &&
                       found->items[next].instance == at->instance;
             next++)
            any |= found->items[next].ran;
        // Instances of a structure come one after the other from 1 on, so that the array has room for each.
        bool outer = at->parent == 0 || ran[at->parent];
        ran[at->instance] = is_body ? any : outer;
        if (is_body && !any && outer && at->nodes)
            status =
                add(in, (unseen){.kind = GV_INCOMPLETE_NOT_EXECUTED,
                                 .graph = at->graph,
                                 .affected = at->nodes,
                                 .alike = next - i - 1,
                                 .reason = "this body of a conditional node was not executed in any recorded launch"});
    }
    gv_free(ran);
    return status;
}

static gv_status inspect_bodies(inspection *in)
{
    const gv_trace *trace = in->trace;
    bodies found = {0};
    bool *ran = gv_calloc(trace->graph_count, sizeof *ran), *recorded = gv_calloc(trace->graph_count, sizeof *recorded);
    gv_status status = ran && recorded ? GV_OK : out_of_memory(in);
    for (size_t i = 0; i < trace->armed_count && !status; i++) {
        const gv_armed *armed = &trace->armed[i];
        if (armed->status != GV_ARMED_COMPLETE || !is_graph(trace, armed->graph))
            continue;
        recorded[armed->graph] = true;
        for (size_t e = 0; e < armed->execution_count; e++)
            ran[trace->executions[armed->first_execution + e].graph] = true;
    }
    for (uint64_t g = 1; g < trace->graph_count && !status; g++)
        if (recorded[g])
            status = gather_bodies(in, g, ran, &found);
    if (!status)
        status = report_bodies(in, &found);
    gv_free(found.items);
    gv_free(ran);
    gv_free(recorded);
    return status;
}

// ---- Launches that were not armed -------------------------------------------------------------------------------

// Counts the launches of each snapshot; index 0 counts those of unknown graphs.
static gv_status count_launches(inspection *in, size_t *launches)
{
    const gv_trace *trace = in->trace;
    gv_exec_index execs;
    gv_status status = gv_exec_index_build(&execs, trace, in->error);
    if (status)
        return status;
    for (size_t i = 0; i < trace->operation_count; i++) {
        const gv_operation *operation = &trace->operations[i];
        if (operation->kind != GV_OP_GRAPH_LAUNCH)
            continue;
        uint64_t graph = gv_exec_index_graph(&execs, operation->object, operation->sequence);
        launches[is_graph(trace, graph) ? graph : 0]++;
    }
    gv_exec_index_free(&execs);
    return GV_OK;
}

// A snapshot that was launched and never armed. Snapshots with one fingerprint are of one structure: a program that
// captures anew at every step has thousands of them.
typedef struct unarmed {
    uint64_t fingerprint, graph;
    size_t launches;
} unarmed;

static int by_fingerprint(const void *left, const void *right)
{
    const unarmed *a = left, *b = right;
    int order = compare(a->fingerprint, b->fingerprint);
    return order ? order : compare(a->graph, b->graph);
}

static gv_status report_unarmed(inspection *in, unarmed *graphs, size_t count)
{
    gv_status status = GV_OK;
    qsort(graphs, count, sizeof *graphs, by_fingerprint);
    for (size_t i = 0, next; i < count && !status; i = next) {
        size_t launches = 0;
        for (next = i; next < count && graphs[next].fingerprint == graphs[i].fingerprint; next++)
            launches += graphs[next].launches;
        unseen item = {
            .kind = GV_INCOMPLETE_NEVER_ARMED, .graph = graphs[i].graph, .affected = launches, .alike = next - i - 1};
        if (next == i + 1)
            status = add_formatted(in, item, "no launch of this graph was armed");
        else
            status = add_formatted(in, item, "no launch of this graph or of %zu %s of its structure was armed",
                                   next - i - 1, next - i == 2 ? "other" : "others");
    }
    return status;
}

static gv_status inspect_unarmed(inspection *in)
{
    const gv_trace *trace = in->trace;
    size_t *launches = gv_calloc(trace->graph_count + 1, sizeof *launches);
    bool *armed = gv_calloc(trace->graph_count + 1, sizeof *armed);
    unarmed *graphs = gv_calloc(trace->graph_count + 1, sizeof *graphs);
    gv_status status = launches && armed && graphs ? count_launches(in, launches) : out_of_memory(in);
    for (size_t i = 0; i < trace->armed_count && !status; i++) {
        if (is_graph(trace, trace->armed[i].graph))
            armed[trace->armed[i].graph] = true;
    }
    size_t count = 0;
    for (uint64_t g = 1; g < trace->graph_count && !status; g++) {
        if (!launches[g] || armed[g])
            continue;
        gv_flat_graph flat;
        gv_status laid_out = gv_flatten(trace, g, &flat, NULL);
        if (laid_out == GV_ERR_MEMORY)
            status = out_of_memory(in);
        // What cannot be laid out is like nothing else: its id stands for it.
        graphs[count++] = (unarmed){
            .fingerprint = laid_out ? g : gv_flat_fingerprint(trace, &flat), .graph = g, .launches = launches[g]};
        if (!laid_out)
            gv_flat_graph_free(&flat);
    }
    if (!status)
        status = report_unarmed(in, graphs, count);
    if (!status && launches[0])
        status = add(in, (unseen){.kind = GV_INCOMPLETE_NEVER_ARMED,
                                  .affected = launches[0],
                                  .reason = "executable graphs were launched whose graphs are not in the trace"});
    gv_free(launches);
    gv_free(armed);
    gv_free(graphs);
    return status;
}

// ---- Findings ---------------------------------------------------------------------------------------------------

static int by_subject(const void *left, const void *right)
{
    const unseen *a = left, *b = right;
    int order = compare(a->graph, b->graph);
    if (!order)
        order = compare(a->kind, b->kind);
    if (!order)
        order = compare(a->node, b->node);
    if (!order)
        order = strcmp(a->reason, b->reason);
    return order ? order : compare(a->launch, b->launch);
}

static bool same_subject(const unseen *a, const unseen *b)
{
    return a->graph == b->graph && a->kind == b->kind && a->node == b->node && strcmp(a->reason, b->reason) == 0;
}

static gv_status report(inspection *in, gv_findings *findings)
{
    qsort(in->items, in->count, sizeof *in->items, by_subject);
    for (size_t i = 0, next; i < in->count; i = next) {
        const unseen *item = &in->items[i];
        size_t launches = 0, affected = item->affected;
        for (next = i; next < in->count && same_subject(&in->items[next], item); next++)
            launches += in->items[next].launch != 0;
        // A graph's own finding counts the launches it happened to; a note about one of them adds none.
        if (item->kind == GV_INCOMPLETE_GRAPH && launches)
            affected = launches;
        gv_finding finding = {.trace = in->trace,
                              .graph = item->graph,
                              .launch = in->items[next - 1].launch,
                              .incomplete = item->kind,
                              .node = item->node,
                              .affected = affected,
                              .alike = item->alike};
        if (!gv_findings_add_incomplete(findings, finding, item->reason))
            return out_of_memory(in);
    }
    return GV_OK;
}

gv_status gv_detect_incomplete(const gv_trace *trace, gv_findings *findings, gv_error *error)
{
    inspection in = {.trace = trace, .error = error};
    gv_status status = inspect_trace(&in);
    for (size_t i = 0; i < trace->armed_count && !status; i++)
        status = inspect_armed(&in, &trace->armed[i]);
    if (!status)
        status = inspect_bodies(&in);
    if (!status)
        status = inspect_unarmed(&in);
    if (!status && in.count)
        status = report(&in, findings);
    for (size_t i = 0; i < in.count; i++) {
        if (in.items[i].owned)
            gv_free((char *)in.items[i].reason);
    }
    gv_free(in.items);
    return status;
}
