// The text report of `gravel check`: for each finding one line of prose, labelled rows, and one line of properties
// that keeps its form when the prose changes. The summary comes last, where a terminal shows it.
#include "report/layout.h"
#include "report/messages.h"
#include "report/names.h"
#include "report/report.h"

#include <inttypes.h>
#include <string.h>

enum { NODES_SHOWN = 4, DEFAULT_RANGES = 4 };

static void print_side(gv_layout *report, const gv_finding *finding, const gv_side *side)
{
    gv_string label = {0};
    gv_message_side_label(&label, side);
    gv_message_side(&report->text, finding, side);
    gv_layout_row(report, gv_string_text(&label));
    report->text.failed |= label.failed;
    gv_string_free(&label);
    const gv_graph *graph = gv_side_graph(finding, side);
    if (!graph || side->node >= graph->node_count)
        return;
    const gv_node *node = &graph->nodes[side->node];
    if (report->options->verbose && node->kind == GV_NODE_KERNEL && node->function < finding->trace->function_count &&
        finding->trace->functions[node->function].name) {
        gv_name_demangle(&report->text, finding->trace->functions[node->function].name);
        gv_layout_row(report, "  in full");
    }
    if (report->options->all_stacks)
        gv_layout_stack(report, finding->trace, node->stack, "  call stack");
}

static void print_race(gv_layout *report, const gv_finding *finding)
{
    const gv_race_pair *pair = &finding->pairs[0];
    size_t ranges = report->options->ranges ? report->options->ranges : DEFAULT_RANGES;
    gv_message_race_title(&report->text, finding, report->name_process);
    gv_layout_paragraph(report, "");
    print_side(report, finding, &pair->first);
    print_side(report, finding, &pair->second);
    gv_message_bytes(&report->text, pair, ranges);
    gv_layout_row(report, "bytes");
    gv_message_memory(&report->text, finding);
    gv_layout_row(report, "memory");
    if (report->options->all_stacks && finding->allocation && finding->allocation < finding->trace->allocation_count)
        gv_layout_stack(report, finding->trace, finding->trace->allocations[finding->allocation].stack, "  call stack");
    gv_message_graph(&report->text, finding->trace, finding->graph);
    gv_layout_row(report, "graph");
    gv_message_order(&report->text, finding);
    gv_layout_row(report, "order");
    gv_message_order_on_streams(&report->text, finding);
    gv_layout_row(report, "");
    if (finding->pair_count > 1 && !report->options->all_pairs) {
        gv_message_more_pairs(&report->text, finding);
        gv_layout_row(report, "also");
    }
    for (size_t i = 1; i < finding->pair_count && report->options->all_pairs; i++) {
        gv_message_pair(&report->text, finding, &finding->pairs[i]);
        gv_layout_row(report, i == 1 ? "also" : "");
    }
    gv_message_confidence(&report->text, finding);
    gv_layout_row(report, "confidence");
    gv_message_race_properties(&report->text, finding);
    gv_layout_properties(report);
    fputc('\n', report->out);
}

static void print_observed(gv_layout *report, const gv_finding *finding)
{
    size_t ranges = report->options->ranges ? report->options->ranges : DEFAULT_RANGES;
    const char *label = NULL;
    gv_message_observed_title(&report->text, finding, report->name_process);
    gv_layout_paragraph(report, "");
    const gv_graph *graph = gv_trace_graph(finding->trace, finding->graph);
    if (finding->node && graph) {
        gv_message_side(&report->text, finding,
                        &(gv_side){.graph = finding->graph, .node = (uint32_t)finding->node - 1});
        gv_layout_row(report, "node");
        if (report->options->all_stacks && finding->node <= graph->node_count)
            gv_layout_stack(report, finding->trace, graph->nodes[finding->node - 1].stack, "  call stack");
    }
    for (size_t row = 0;; row++) {
        gv_message_observed_row(&report->text, finding, row, &label);
        if (!report->text.length)
            break;
        gv_layout_row(report, label);
    }
    if (finding->bytes) {
        gv_message_ranges(&report->text, &finding->ranges, finding->bytes, ranges);
        gv_layout_row(report, "bytes");
        gv_message_memory(&report->text, finding);
        gv_layout_row(report, "memory");
    }
    if (graph) {
        gv_message_graph(&report->text, finding->trace, finding->graph);
        gv_layout_row(report, "graph");
    }
    gv_string_add_safe(&report->text, finding->reason);
    gv_layout_row(report, "reason");
    gv_message_observed_properties(&report->text, finding);
    gv_layout_properties(report);
    fputc('\n', report->out);
}

// Every graph of the group with its nodes, and with its own reason where the block gives none.
static void list_incomplete(gv_layout *report, const gv_incomplete_group *group, const gv_findings *findings,
                            const gv_overview *overview)
{
    size_t end = group->first + group->count;
    for (size_t i = group->first, next; i < end; i = next) {
        const gv_finding *finding = &findings->items[overview->order[i]];
        for (next = i + 1; next < end && findings->items[overview->order[next]].graph == finding->graph;)
            next++;
        if (!finding->graph)
            continue;
        gv_incomplete_group part = *group;
        part.graph = finding->graph;
        part.listed = 1;
        part.graphs = 1 + finding->alike;
        part.first = i;
        part.count = next - i;
        gv_message_incomplete_graphs(&report->text, &part, findings, overview);
        gv_layout_row(report, "graph");
        gv_message_incomplete_nodes(&report->text, &part, findings, overview, SIZE_MAX);
        gv_layout_row(report, "  nodes");
        if (!group->reason || gv_incomplete_is_about_pairs(group->kind)) {
            gv_string_add_safe(&report->text, finding->reason);
            gv_layout_row(report, "  reason");
        }
    }
}

static void print_incomplete(gv_layout *report, const gv_incomplete_group *group, const gv_findings *findings,
                             const gv_overview *overview)
{
    gv_message_incomplete_title(&report->text, group, report->name_process);
    gv_layout_paragraph(report, "");
    // What the reason of undecided pairs says, the title and the nodes say too, but for why a wait was not observed.
    const char *reason = group->reason;
    if (gv_incomplete_is_about_pairs(group->kind)) {
        reason = reason ? strstr(reason, ": ") : NULL;
        reason = reason ? reason + 2 : NULL;
    }
    gv_string_add_safe(&report->text, reason);
    gv_layout_row(report, "reason");
    if (report->options->verbose) {
        list_incomplete(report, group, findings, overview);
    } else {
        gv_message_incomplete_nodes(&report->text, group, findings, overview, NODES_SHOWN);
        gv_layout_row(report, "nodes");
        gv_message_incomplete_graphs(&report->text, group, findings, overview);
        gv_layout_row(report, group->listed > 1 ? "graphs" : "graph");
    }
    gv_message_incomplete_remedy(&report->text, group);
    gv_layout_row(report, "what to do");
    gv_message_incomplete_properties(&report->text, group);
    gv_layout_properties(report);
    fputc('\n', report->out);
}

// Notes of incompletenesses and failures have become findings; what is left is of use to who debugs the recorder.
static void print_trace(gv_layout *report, const gv_trace *trace)
{
    gv_message_trace(&report->text, trace);
    gv_layout_paragraph(report, "");
    for (size_t i = 0; i < trace->note_count; i++) {
        if (trace->notes[i].severity != GV_NOTE_INFO || !report->options->verbose)
            continue;
        gv_message_note(&report->text, trace, &trace->notes[i]);
        gv_layout_paragraph(report, "  note: ");
    }
}

gv_status gv_report_text(FILE *out, gv_trace *const *traces, size_t trace_count, const gv_findings *findings,
                         const gv_report_options *options, gv_error *error)
{
    gv_overview overview;
    gv_status status = gv_overview_make(traces, trace_count, findings, &overview, error);
    if (status != GV_OK)
        return status;
    gv_layout report = {.out = out, .options = options, .name_process = trace_count > 1};
    for (size_t i = 0; i < trace_count; i++)
        print_trace(&report, traces[i]);
    fputc('\n', out);
    for (size_t i = 0; i < findings->count; i++) {
        const gv_finding *finding = &findings->items[i];
        if (finding->suppressed || finding->id == GV_FINDING_INCOMPLETE)
            continue;
        if (gv_finding_is_observed(finding->id))
            print_observed(&report, finding);
        else
            print_race(&report, finding);
    }
    for (size_t i = 0; i < overview.group_count; i++) {
        if (!overview.groups[i].suppressed)
            print_incomplete(&report, &overview.groups[i], findings, &overview);
    }
    if (gv_coverage_total(overview.covered)) {
        gv_message_coverage(&report.text, overview.covered);
        gv_layout_paragraph(&report, "coverage  ");
    }
    gv_message_tried(&report.text, &overview.tried);
    if (*gv_string_text(&report.text))
        gv_layout_paragraph(&report, "tried     ");
    gv_message_summary(&report.text, &overview);
    gv_layout_paragraph(&report, "");
    bool failed = report.text.failed || report.label.failed;
    gv_string_free(&report.text);
    gv_string_free(&report.label);
    gv_overview_free(&overview);
    if (failed)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory while the report was written");
    if (fflush(out) != 0 || ferror(out))
        return gv_fail(error, GV_ERR_IO, "the report could not be written: %m");
    return GV_OK;
}
