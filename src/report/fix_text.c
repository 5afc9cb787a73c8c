// Lays out the report of `gravel fix` and the readings of its file; the wording is in messages_fix.c.
#include "report/fix_text.h"

#include "base/memory.h"
#include "report/layout.h"
#include "report/messages.h"
#include "report/messages_fix.h"

#include <inttypes.h>

enum { PAIRS_SHOWN = 3 };

static void print_end(gv_layout *report, const gv_fix_group *group, const gv_fix_planned *edge, uint32_t node,
                      const char *what)
{
    gv_string label = {0};
    gv_string_add(&label, "#%" PRIu32 " %s", node, what);
    gv_message_fix_end(&report->text, group, edge, node);
    gv_layout_row(report, gv_string_text(&label));
    report->text.failed |= label.failed;
    gv_string_free(&label);
    const gv_trace *trace = group->members[0].trace;
    if (report->options->all_stacks)
        gv_layout_stack(report, trace, trace->graphs[edge->graph].nodes[node].stack, "  call stack");
}

static void print_pairs(gv_layout *report, const gv_fix_group *group, const gv_fix_planned *edge)
{
    // The one to show first, then the others as they come.
    gv_message_fix_pair(&report->text, group, edge, edge->lead);
    gv_layout_row(report, "  orders");
    size_t shown = 1;
    for (size_t i = 0; i < edge->conflict_count; i++) {
        if (edge->conflicts[i] == edge->lead)
            continue;
        if (shown == PAIRS_SHOWN && !report->options->all_pairs && edge->conflict_count > PAIRS_SHOWN + 1) {
            gv_string_add(&report->text, "and %s more (--all-pairs lists them)",
                          gv_number(edge->conflict_count - shown));
            gv_layout_row(report, "");
            return;
        }
        gv_message_fix_pair(&report->text, group, edge, edge->conflicts[i]);
        gv_layout_row(report, "");
        shown++;
    }
}

static void print_edge(gv_layout *report, const gv_fix_group *group, const gv_fix_planned *edge, size_t number)
{
    gv_string label = {0};
    gv_string_add(&label, "edge %zu", number);
    gv_message_fix_edge(&report->text, group, edge);
    gv_layout_row(report, gv_string_text(&label));
    report->text.failed |= label.failed;
    gv_string_free(&label);
    print_end(report, group, edge, edge->from, "first");
    print_end(report, group, edge, edge->to, "then");
    if (edge->conflict_count)
        print_pairs(report, group, edge);
    gv_message_fix_reversed(&report->text, group, edge);
    gv_layout_row(report, "  beware");
    gv_message_fix_wait(&report->text, group, edge);
    gv_layout_row(report, "  write");
    gv_message_fix_instead(&report->text, group, edge);
    gv_layout_row(report, "  or");
    gv_message_fix_edge_properties(&report->text, group, edge);
    gv_layout_properties(report);
}

static void print_group(gv_layout *report, const gv_fix_group *group)
{
    gv_message_fix_title(&report->text, group, report->name_process);
    gv_layout_paragraph(report, "");
    gv_message_graph(&report->text, group->members[0].trace, group->members[0].graph);
    gv_layout_row(report, "graph");
    gv_message_fix_members(&report->text, group, report->name_process);
    gv_layout_row(report, "also of");
    if (group->refusal) {
        gv_string_add_safe(&report->text, group->refusal);
        gv_layout_row(report, "reason");
        fputc('\n', report->out);
        return;
    }
    for (size_t e = 0; e < group->edge_count; e++)
        print_edge(report, group, &group->edges[e], e + 1);
    gv_message_fix_proof(&report->text, group);
    gv_layout_row(report, "fewest");
    gv_message_fix_coverage(&report->text, group);
    gv_layout_row(report, "covers");
    gv_message_fix_cost(&report->text, &group->cost);
    gv_layout_row(report, "cost");
    gv_message_fix_side_streams(&report->text, &group->cost);
    gv_layout_row(report, "");
    gv_message_fix_serial(&report->text, &group->cost);
    gv_layout_row(report, "");
    gv_message_fix_times(&report->text, &group->cost, group->alone);
    gv_layout_row(report, "");
    gv_message_fix_properties(&report->text, group);
    gv_layout_properties(report);
    fputc('\n', report->out);
}

gv_status gv_report_fix(FILE *out, gv_trace *const *traces, size_t trace_count, const gv_fix_plan *plan,
                        const gv_fix_outcome *outcome, const gv_report_options *options, gv_error *error)
{
    gv_layout report = {.out = out, .options = options, .name_process = trace_count > 1};
    for (size_t i = 0; i < trace_count; i++) {
        gv_message_trace(&report.text, traces[i]);
        gv_layout_paragraph(&report, "");
    }
    fputc('\n', out);
    for (size_t g = 0; g < plan->group_count; g++)
        print_group(&report, &plan->groups[g]);
    gv_message_fix_summary(&report.text, plan, outcome);
    gv_layout_paragraph(&report, "");
    bool failed = report.text.failed || report.label.failed;
    gv_string_free(&report.text);
    gv_string_free(&report.label);
    if (failed)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory while the report was written");
    if (fflush(out) != 0 || ferror(out))
        return gv_fail(error, GV_ERR_IO, "the report could not be written: %m");
    return GV_OK;
}

// ---- The file ---------------------------------------------------------------------------------------------------

// The group whose edges a graph of the file has.
static const gv_fix_group *group_of(const gv_fix_plan *plan, const gv_fix_graph *graph)
{
    for (size_t g = 0; g < plan->group_count; g++)
        if (gv_fingerprint_equal(&plan->groups[g].members[0].prints.without_shapes, &graph->prints.without_shapes))
            return &plan->groups[g];
    return NULL;
}

gv_status gv_report_fix_readings(const gv_fix_plan *plan, gv_fix_file *file, gv_error *error)
{
    gv_string text = {0};
    bool enough = true;
    for (size_t g = 0; g < file->graph_count; g++) {
        gv_fix_graph *graph = &file->graphs[g];
        const gv_fix_group *group = group_of(plan, graph);
        for (size_t e = 0; group && e < graph->edge_count && e < group->edge_count && enough; e++) {
            gv_string_clear(&text);
            gv_message_fix_reversed(&text, group, &group->edges[e]);
            gv_string_add(&text, text.length ? " " : "");
            gv_message_fix_wait(&text, group, &group->edges[e]);
            size_t wait = text.length;
            gv_string_add(&text, " Or: ");
            size_t instead = text.length;
            gv_message_fix_instead(&text, group, &group->edges[e]);
            if (text.length == instead)
                text.text[text.length = wait] = '\0';
            graph->edges[e].reading = gv_strdup(gv_string_text(&text));
            enough = graph->edges[e].reading && !text.failed;
        }
    }
    gv_string_free(&text);
    return enough ? GV_OK : gv_fail(error, GV_ERR_MEMORY, "out of memory while a fix was described");
}
