#include "report/messages_fix.h"

#include "report/messages.h"
#include "report/names.h"
#include "report/overview.h"
#include "report/stack.h"

#include <inttypes.h>
#include <string.h>

static const gv_trace *trace_of(const gv_fix_group *group)
{
    return group->members[0].trace;
}

static const gv_node *record_of(const gv_fix_group *group, const gv_fix_planned *edge, uint32_t node)
{
    return &trace_of(group)->graphs[edge->graph].nodes[node];
}

// "#4 gather"
static void add_node(gv_string *out, const gv_trace *trace, uint64_t graph, uint32_t node)
{
    gv_string_add(out, "#%" PRIu32 " ", node);
    gv_node_name(out, trace, gv_trace_graph(trace, graph), node, GV_MESSAGE_NAME_WIDTH);
}

// ---- A group of graphs ------------------------------------------------------------------------------------------

void gv_message_fix_title(gv_string *out, const gv_fix_group *group, bool name_process)
{
    gv_string_add(out, "fix of graph #%" PRIu64, group->members[0].graph);
    if (name_process)
        gv_string_add(out, " of process %" PRIu64, trace_of(group)->process.pid);
    if (group->refusal) {
        gv_string_add(out, ": %s cannot be ordered.",
                      gv_count(group->conflict_count, "conflicting pair of nodes", "conflicting pairs of nodes"));
        return;
    }
    gv_string_add(out, ": %s", gv_count(group->edge_count, "added edge orders ", "added edges order "));
    if (group->conflict_count == 1)
        gv_string_add(out, "the pair of nodes that conflicts.");
    else if (group->conflict_count == 2)
        gv_string_add(out, "both pairs of nodes that conflict.");
    else
        gv_string_add(out, "all %s pairs of nodes that conflict.", gv_number(group->conflict_count));
}

void gv_message_fix_members(gv_string *out, const gv_fix_group *group, bool name_process)
{
    enum { SHOWN = 5 };
    if (group->member_count < 2)
        return;
    for (size_t m = 1; m < group->member_count && m <= SHOWN; m++) {
        gv_string_add(out, "%s#%" PRIu64, m > 1 ? ", " : "", group->members[m].graph);
        if (name_process)
            gv_string_add(out, " of process %" PRIu64, group->members[m].trace->process.pid);
    }
    if (group->member_count > SHOWN + 1)
        gv_string_add(out, " and %s more", gv_number(group->member_count - 1 - SHOWN));
    gv_string_add(
        out, ", which %s the same kernels and edges%s", group->member_count > 2 ? "have" : "has",
        gv_fingerprint_equal(&group->members[0].prints.exact, &group->members[group->member_count - 1].prints.exact)
            ? ""
            : " with other shapes");
}

void gv_message_fix_proof(gv_string *out, const gv_fix_group *group)
{
    bool reversed = false;
    for (size_t i = 0; i < group->conflict_count; i++)
        reversed |= group->conflicts[i].reversed;
    if (group->at_least >= group->edge_count)
        gv_string_add(out, "No smaller number of edges orders %s%s.",
                      group->conflict_count > 1 ? "them all" : "the two",
                      reversed ? "" : " in the order in which the program made its nodes");
    else
        gv_string_add(out,
                      "None of the %s can be left out. Whether fewer others would do is not known; fewer than %s would "
                      "not.",
                      gv_number(group->edge_count), gv_number(group->at_least));
}

void gv_message_fix_coverage(gv_string *out, const gv_fix_group *group)
{
    if (!group->complete)
        gv_string_add(out, "It covers the conflicts that were seen. Not everything was: what `gravel check` says to be "
                           "incomplete may hide more.");
}

// ---- An edge ----------------------------------------------------------------------------------------------------

void gv_message_fix_edge(gv_string *out, const gv_fix_group *group, const gv_fix_planned *edge)
{
    gv_string_add(out, "from ");
    add_node(out, trace_of(group), edge->graph, edge->from);
    gv_string_add(out, " to ");
    add_node(out, trace_of(group), edge->graph, edge->to);
    if (edge->graph != group->members[0].graph)
        gv_string_add(out, ", in graph #%" PRIu64 ", %s of #%" PRIu64, edge->graph,
                      trace_of(group)->graphs[edge->graph].origin == GV_GRAPH_BODY ? "a body" : "a child graph",
                      group->members[0].graph);
    if (edge->replaces)
        gv_string_add(out, ". It takes the place of the programmatic edge between the two");
}

void gv_message_fix_end(gv_string *out, const gv_fix_group *group, const gv_fix_planned *edge, uint32_t node)
{
    const gv_trace *trace = trace_of(group);
    gv_node_name(out, trace, gv_trace_graph(trace, edge->graph), node, GV_MESSAGE_NAME_WIDTH);
    gv_place place = gv_stack_place(trace, record_of(group, edge, node)->stack);
    gv_string_add(out, ", launched at ");
    gv_place_print(out, &place);
}

// Of a node inside a child graph of the edge's level the graph is named too.
static void add_side(gv_string *out, const gv_fix_conflict *conflict, const gv_side *side, uint64_t level)
{
    add_node(out, conflict->finding->trace, side->graph, side->node);
    if (side->graph != level)
        gv_string_add(out, " of graph #%" PRIu64, side->graph);
}

void gv_message_fix_pair(gv_string *out, const gv_fix_group *group, const gv_fix_planned *edge, size_t number)
{
    const gv_fix_conflict *conflict = &group->conflicts[number];
    const gv_race_pair *pair = conflict->pair;
    uint64_t level = conflict->finding->trace == trace_of(group) ? edge->graph : conflict->finding->graph;
    gv_string_add(out, "%s: ", gv_finding_id_name(pair->id));
    switch (pair->id) {
    case GV_FINDING_RACE_RAW:
        add_side(out, conflict, &pair->second, level);
        gv_string_add(out, " may read %s before ", gv_count(pair->raw_bytes, "byte", "bytes"));
        add_side(out, conflict, &pair->first, level);
        gv_string_add(out, " has written %s", pair->raw_bytes == 1 ? "it" : "them");
        break;
    case GV_FINDING_RACE_WAR:
        add_side(out, conflict, &pair->second, level);
        gv_string_add(out, " may overwrite %s before ", gv_count(pair->war_bytes, "byte", "bytes"));
        add_side(out, conflict, &pair->first, level);
        gv_string_add(out, " has read %s", pair->war_bytes == 1 ? "it" : "them");
        break;
    default:
        add_side(out, conflict, &pair->first, level);
        gv_string_add(out, " and ");
        add_side(out, conflict, &pair->second, level);
        gv_string_add(out, " write the same %s", gv_count(pair->waw_bytes, "byte", "bytes"));
        break;
    }
}

void gv_message_fix_wait(gv_string *out, const gv_fix_group *group, const gv_fix_planned *edge)
{
    const gv_node *from = record_of(group, edge, edge->from), *to = record_of(group, edge, edge->to);
    if (edge->replaces)
        gv_string_add(out,
                      "Let #%" PRIu32
                      " wait (cudaGridDependencySynchronize) before it touches these bytes, or launch it "
                      "without programmatic stream serialization.",
                      edge->to);
    else if (from->stream && to->stream && from->stream != to->stream)
        gv_string_add(out,
                      "Make stream %" PRIu64 " wait, before #%" PRIu32 " is launched, for an event recorded on stream "
                      "%" PRIu64 " after #%" PRIu32 " (cudaEventRecord and cudaStreamWaitEvent; in PyTorch "
                      "stream.wait_event or wait_stream).",
                      to->stream, edge->to, from->stream, edge->from);
    else if (from->stream && to->stream)
        // Two nodes of one stream are unordered only across kernels that may begin early.
        gv_string_add(out,
                      "Let the kernels launched between #%" PRIu32 " and #%" PRIu32
                      " wait (cudaGridDependencySynchronize) before they let others begin, or launch #%" PRIu32
                      " without programmatic stream serialization.",
                      edge->from, edge->to, edge->to);
    else
        gv_string_add(out,
                      "Where the graph is built, make #%" PRIu32 " depend on #%" PRIu32
                      " (cudaGraphAddDependencies, or the dependencies given when #%" PRIu32 " is added).",
                      edge->to, edge->from, edge->to);
    switch (edge->cause) {
    case GV_FIX_CAUSE_DATA:
        gv_string_add(out, " This removes the cause: the second needs what the first writes.");
        return;
    case GV_FIX_CAUSE_UPDATE:
        gv_string_add(out, " This removes the cause: the second updates in place what the first uses.");
        return;
    case GV_FIX_CAUSE_REUSE:
    case GV_FIX_CAUSE_SHARED:
        gv_string_add(out, " This orders the two and leaves the cause, that they use the same memory.");
        return;
    }
}

void gv_message_fix_instead(gv_string *out, const gv_fix_group *group, const gv_fix_planned *edge)
{
    const gv_node *from = record_of(group, edge, edge->from), *to = record_of(group, edge, edge->to);
    bool streams = from->stream && to->stream && from->stream != to->stream;
    switch (edge->cause) {
    case GV_FIX_CAUSE_DATA:
    case GV_FIX_CAUSE_UPDATE: return;
    case GV_FIX_CAUSE_REUSE:
        gv_string_add(
            out, "If the allocator gave the block of a tensor that was dropped to another one: keep the first tensor "
                 "alive until the streams have joined, or record its use on ");
        if (streams)
            gv_string_add(out, "stream %" PRIu64, from->stream);
        else
            gv_string_add(out, "the stream that still uses it");
        gv_string_add(out,
                      " before it is dropped (in PyTorch tensor.record_stream). If it is one buffer: give the branch "
                      "its own. Each of these removes the cause, and costs memory instead of time.");
        return;
    case GV_FIX_CAUSE_SHARED:
        gv_string_add(out,
                      "Give the branch its own buffer; if an allocator of the program gave the memory out again, keep "
                      "its first use alive until the branches have joined. This removes the cause, and costs memory "
                      "instead of time.");
        return;
    }
}

void gv_message_fix_reversed(gv_string *out, const gv_fix_group *group, const gv_fix_planned *edge)
{
    if (!edge->reversed)
        return;
    gv_string_add(out, "CAUTION: this is against the program. ");
    for (size_t i = 0; i < edge->conflict_count; i++) {
        const gv_fix_conflict *conflict = &group->conflicts[edge->conflicts[i]];
        if (!conflict->reversed)
            continue;
        add_side(out, conflict, &conflict->pair->second, edge->graph);
        gv_string_add(out, " comes to stand before ");
        add_side(out, conflict, &conflict->pair->first, edge->graph);
        gv_string_add(out, ", which the program made first. ");
        break;
    }
    gv_string_add(out,
                  "The graph's edges, with the other pairs, leave no way to keep the order in which the nodes were "
                  "made, so that the program may compute something else than was meant. Look at it before you use "
                  "this fix.");
}

void gv_message_fix_edge_properties(gv_string *out, const gv_fix_group *group, const gv_fix_planned *edge)
{
    static const char *const causes[] = {"data", "update", "reuse", "shared"};
    gv_string_add(out,
                  "[edge] pid=%" PRIu64 " graph=%" PRIu64 " from=%" PRIu32 " to=%" PRIu32
                  " pairs=%zu cause=%s replaces=%d reversed=%d added=%" PRIu64,
                  trace_of(group)->process.pid, edge->graph, edge->from, edge->to, edge->conflict_count,
                  causes[edge->cause], edge->replaces, edge->reversed, edge->after - group->cost.before);
}

// ---- Costs ------------------------------------------------------------------------------------------------------

// "1.203 ms", or "12 nodes" where there are no times.
static void add_length(gv_string *out, const gv_fix_cost *cost, uint64_t length)
{
    if (cost->timed)
        gv_string_add(out, "%.3f ms", (double)length / 1e6);
    else
        gv_string_add(out, "%s", gv_count(length, "node", "nodes"));
}

// " (+0.004 ms, 0.3 %)"
static void add_difference(gv_string *out, const gv_fix_cost *cost, uint64_t length)
{
    uint64_t more = length - cost->before;
    gv_string_add(out, " (+");
    add_length(out, cost, more);
    if (cost->before)
        gv_string_add(out, ", %.1f %%", 100.0 * (double)more / (double)cost->before);
    gv_string_add(out, ")");
}

void gv_message_fix_cost(gv_string *out, const gv_fix_cost *cost)
{
    gv_string_add(out, "longest chain of nodes ");
    add_length(out, cost, cost->before);
    gv_string_add(out, ", with the fix ");
    add_length(out, cost, cost->after);
    add_difference(out, cost, cost->after);
}

void gv_message_fix_side_streams(gv_string *out, const gv_fix_cost *cost)
{
    gv_string_add(out, "with the branches at fault on one stream instead ");
    add_length(out, cost, cost->side_streams);
    add_difference(out, cost, cost->side_streams);
}

void gv_message_fix_serial(gv_string *out, const gv_fix_cost *cost)
{
    gv_string_add(out, "with all nodes one after the other ");
    add_length(out, cost, cost->serial);
    add_difference(out, cost, cost->serial);
}

void gv_message_fix_times(gv_string *out, const gv_fix_cost *cost, bool alone)
{
    if (!cost->timed)
        gv_string_add(out, "The trace has no node times, so that nodes are counted.");
    else if (cost->timed < cost->nodes)
        gv_string_add(out, "Of %s %s a time in the trace; the others count nothing.",
                      gv_count(cost->nodes, "node", "nodes"),
                      cost->timed == 1 ? "1 has" : gv_count(cost->timed, "has", "have"));
    if (cost->timed)
        gv_string_add(out, "%s%s", cost->timed < cost->nodes ? " " : "",
                      alone
                          ? "The times are those of nodes run alone, and unrecorded: beside others a node may take "
                            "longer."
                          : "The times are those of nodes run alone while they were recorded: they compare fixes, and "
                            "are longer than in the program (gravel run --times has better ones).");
}

void gv_message_fix_properties(gv_string *out, const gv_fix_group *group)
{
    char exact[GV_FINGERPRINT_TEXT];
    gv_fingerprint_text(&group->members[0].prints.exact, exact);
    gv_string_add(out,
                  "[fix] pid=%" PRIu64 " graph=%" PRIu64 " fingerprint=%s graphs=%zu pairs=%zu edges=%zu at_least=%zu "
                  "complete=%d unit=%s before=%" PRIu64 " after=%" PRIu64 " side_streams=%" PRIu64 " serial=%" PRIu64,
                  trace_of(group)->process.pid, group->members[0].graph, exact, group->member_count,
                  group->conflict_count, group->edge_count, group->at_least, group->complete,
                  group->cost.timed ? "ns" : "nodes", group->cost.before, group->cost.after, group->cost.side_streams,
                  group->cost.serial);
}

// ---- The end ----------------------------------------------------------------------------------------------------

void gv_message_fix_summary(gv_string *out, const gv_fix_plan *plan, const gv_fix_outcome *outcome)
{
    size_t edges = 0, refused = 0;
    for (size_t g = 0; g < plan->group_count; g++) {
        edges += plan->groups[g].edge_count;
        refused += plan->groups[g].refusal != NULL;
    }
    if (!outcome->races && outcome->suppressed)
        gv_string_add(out, "Nothing to fix: %s suppressed, and there is no other.",
                      gv_count(outcome->suppressed, "race is", "races are"));
    else if (!outcome->races)
        gv_string_add(out, "Nothing to fix: there is no race in %s.",
                      outcome->complete ? "what was recorded"
                                        : "what was seen. Not everything was; `gravel check` says "
                                          "what is incomplete");
    else if (refused)
        gv_string_add(out, "No fix: the pairs of %s cannot be ordered.", gv_count(refused, "graph", "graphs"));
    else if (outcome->left)
        gv_string_add(out, "No fix: with the edges, %s left in the traces.",
                      gv_count(outcome->left, "race is", "races are"));
    else
        gv_string_add(out, "%s. Checked again with %s, the traces have no race%s.", gv_count(edges, "edge", "edges"),
                      edges == 1 ? "it" : "them", outcome->suppressed ? " but those that are suppressed" : "");
    if (outcome->output && !refused && !outcome->left) {
        gv_string_add(out, " Written to ");
        gv_string_add_safe(out, outcome->output);
        gv_string_add(out, outcome->races ? ": `gravel run --fix FILE -- COMMAND` adds them to the running program."
                                          : ", without an edge.");
    } else if (outcome->races && !refused && !outcome->left) {
        gv_string_add(out, " `-o FILE` writes a file for `gravel run --fix`.");
    }
}
