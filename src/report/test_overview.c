// Unit tests of what findings amount to: which incompletenesses are one block, and what the summary counts.
#include "report/overview.h"

#include "report/messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static gv_node nodes[4];
static gv_graph graphs[] = {{0},
                            {.id = 1, .nodes = nodes, .node_count = 4},
                            {.id = 2, .nodes = nodes, .node_count = 4},
                            {.id = 3, .nodes = nodes, .node_count = 3}};
static gv_trace one = {.process = {.pid = 1}, .graphs = graphs, .graph_count = 4};
static gv_trace other = {.process = {.pid = 2}, .graphs = graphs, .graph_count = 4};
static gv_trace *traces[] = {&one, &other};

static gv_finding incomplete(gv_trace *trace, enum gv_incomplete_kind kind, uint64_t graph, uint64_t node, char *reason)
{
    return (gv_finding){.id = GV_FINDING_INCOMPLETE,
                        .trace = trace,
                        .incomplete = kind,
                        .graph = graph,
                        .node = node,
                        .affected = 1,
                        .reason = reason};
}

static gv_overview overview_of(gv_finding *items, size_t count)
{
    gv_findings findings = {.items = items, .count = count};
    gv_overview overview;
    assert_int_equal(gv_overview_make(traces, 2, &findings, &overview, NULL), GV_OK);
    return overview;
}

static void assert_group(const gv_incomplete_group *group, uint64_t graph, size_t affected, size_t of, size_t number)
{
    assert_int_equal(group->graph, graph);
    assert_int_equal(group->affected, affected);
    assert_int_equal(group->graph_nodes, of);
    assert_int_equal(group->graphs, number);
}

static void one_reason_is_one_group(void **state)
{
    gv_finding items[] = {
        incomplete(&one, GV_INCOMPLETE_NODE, 3, 1, "copies"),   incomplete(&one, GV_INCOMPLETE_NODE, 1, 2, "copies"),
        incomplete(&one, GV_INCOMPLETE_NODE, 1, 1, "copies"),   incomplete(&one, GV_INCOMPLETE_NODE, 2, 1, "host"),
        incomplete(&other, GV_INCOMPLETE_NODE, 1, 1, "copies"),
    };
    gv_overview overview = overview_of(items, 5);
    assert_int_equal(overview.group_count, 3);
    assert_group(&overview.groups[0], 1, 3, 7, 2); // in the order of their first graphs
    assert_group(&overview.groups[1], 2, 1, 4, 1);
    assert_group(&overview.groups[2], 1, 1, 4, 1); // another process is another block
    gv_overview_free(&overview);
    // What is suppressed is no part of what is shown.
    items[2].suppressed = true;
    overview = overview_of(items, 3);
    assert_int_equal(overview.group_count, 2);
    bool second = overview.groups[0].suppressed;
    assert_group(&overview.groups[second], 1, 2, 7, 2);
    assert_group(&overview.groups[!second], 1, 1, 4, 1);
    assert_true(overview.groups[!second].suppressed);
    gv_overview_free(&overview);
}

static void reasons_with_numbers_are_one_group(void **state)
{
    gv_finding items[] = {
        incomplete(&one, GV_INCOMPLETE_PROGRAMMATIC, 1, 1, "3 pairs"),
        incomplete(&one, GV_INCOMPLETE_PROGRAMMATIC, 2, 1, "4 pairs"),
        incomplete(&one, GV_INCOMPLETE_NEVER_ARMED, 2, 0, "no launch of this graph or of 5 others was armed"),
        incomplete(&one, GV_INCOMPLETE_NEVER_ARMED, 3, 0, "no launch of this graph was armed"),
        incomplete(&one, GV_INCOMPLETE_NEVER_ARMED, 0, 0, "not in the trace"),
    };
    items[0].affected = 3;
    items[1].affected = 4;
    items[2].alike = 5;
    gv_overview overview = overview_of(items, 5);
    assert_int_equal(overview.group_count, 3);
    assert_group(&overview.groups[0], 1, 7, 8, 2);
    assert_false(overview.groups[0].at_least);
    assert_null(overview.groups[0].reason);
    assert_group(&overview.groups[1], 0, 1, 0, 0);
    assert_group(&overview.groups[2], 2, 2, 7, 7);
    assert_int_equal(overview.groups[2].listed, 2);
    gv_overview_free(&overview);
    // The detector stops counting pairs at 2^14 (detect.h).
    items[1].affected = 1 << 14;
    overview = overview_of(items, 2);
    assert_true(overview.groups[0].at_least);
    gv_string text = {0};
    gv_message_incomplete_title(&text, &overview.groups[0], false);
    assert_string_equal(gv_string_text(&text), "incomplete in 2 graphs: at least 16,387 pairs of nodes touch the same "
                                               "bytes, and only programmatic edges order them.");
    gv_string_clear(&text);
    gv_message_summary(&text, &overview);
    assert_non_null(strstr(gv_string_text(&text), "at least 16,387 pairs hang"));
    gv_string_free(&text);
    gv_overview_free(&overview);
}

static void the_summary_counts_once(void **state)
{
    gv_finding items[] = {
        incomplete(&one, GV_INCOMPLETE_NODE, 1, 1, "copies"),   incomplete(&one, GV_INCOMPLETE_NODE, 1, 1, "host"),
        incomplete(&one, GV_INCOMPLETE_NODE, 3, 1, "copies"),   incomplete(&one, GV_INCOMPLETE_GRAPH, 2, 0, "refused"),
        incomplete(&one, GV_INCOMPLETE_GRAPH, 2, 0, "stopped"), incomplete(&one, GV_INCOMPLETE_GRAPH, 3, 0, "refused"),
    };
    gv_overview overview = overview_of(items, 6);
    assert_int_equal(overview.unseen_nodes, 2);
    assert_int_equal(overview.unseen_graphs, 2);
    assert_int_equal(overview.unseen_graph_nodes, 7);
    assert_null(overview.unseen_reason);
    assert_int_equal(overview.broken_graphs, 2);
    gv_string text = {0};
    gv_message_summary(&text, &overview);
    assert_string_equal(gv_string_text(&text), "0 races in 0 recorded graphs; NOT complete: 2 of 7 nodes of 2 graphs "
                                               "could not be seen, 2 graphs could not be recorded in full: see above.");
    gv_string_free(&text);
    gv_overview_free(&overview);
}

static void an_upper_bound_is_not_called_seen(void **state)
{
    gv_overview overview = {.complete = true, .graphs = 1, .nodes = 3, .covered = {[GV_COVERAGE_EXACT] = 3}};
    gv_string text = {0};
    gv_message_summary(&text, &overview);
    assert_string_equal(gv_string_text(&text),
                        "0 races in 1 recorded graph; complete: every access of 3 nodes was seen.");
    gv_string_clear(&text);
    overview.covered[GV_COVERAGE_EXACT] = 1;
    overview.covered[GV_COVERAGE_EXTENT] = 2;
    gv_message_summary(&text, &overview);
    assert_string_equal(gv_string_text(&text),
                        "0 races in 1 recorded graph; complete: the accesses of 3 nodes are known, "
                        "of 2 of them as an upper bound.");
    gv_string_free(&text);
}

static void what_was_tried_is_told_even_where_nothing_came_of_it(void **state)
{
    gv_checked checked[] = {{.launch = 1, .status = GV_CHECKED_COMPARED, .reason = "", .different_bytes = 4},
                            {.launch = 2, .status = GV_CHECKED_COMPARED, .reason = ""},
                            {.launch = 3, .status = GV_CHECKED_NOT_COMPARED, .reason = "host", .different_bytes = 4}};
    gv_effect effects[] = {{.launch = 4}, {.launch = 4}};
    gv_perturbed perturbed[] = {
        {.launch = 4, .what = GV_PERTURBED_PADDING, .status = GV_PERTURBED_CHECKED},
        {.launch = 5,
         .what = GV_PERTURBED_PADDING,
         .status = GV_PERTURBED_CHECKED,
         .unstable_bytes = 1500,
         .left_out_bytes = 1234},
        {.launch = 6, .what = GV_PERTURBED_PADDING, .status = GV_PERTURBED_REFUSED},
        {.launch = 8, .what = GV_PERTURBED_PADDING, .status = GV_PERTURBED_UNSTABLE, .left_out_bytes = 5000},
        {.launch = 7, .what = GV_PERTURBED_POISON, .status = GV_PERTURBED_CHECKED}};
    gv_region_step steps[] = {{.state = GV_REGION_FIRST, .reason = ""},
                              {.state = GV_REGION_CHECKED, .reason = ""},
                              {.state = GV_REGION_UNHASHED, .reason = "captured"}};
    gv_probe probes[] = {{.reason = ""}};
    gv_trace proved = {.graphs = graphs,
                       .graph_count = 4,
                       .checked = checked,
                       .checked_count = 3,
                       .effects = effects,
                       .effect_count = 2,
                       .perturbed = perturbed,
                       .perturbed_count = 5,
                       .region_steps = steps,
                       .region_step_count = 3,
                       .probes = probes,
                       .probe_count = 1};
    gv_trace *all[] = {&one, &proved};
    gv_findings none = {0};
    gv_overview overview;
    assert_int_equal(gv_overview_make(all, 2, &none, &overview, NULL), GV_OK);
    gv_string text = {0};
    gv_message_tried(&text, &overview.tried);
    assert_string_equal(gv_string_text(&text),
                        "2 launches compared with serial replays: 1 differs; 2 launches repeated with other padding: "
                        "1 with an effect (1,234 unstable bytes left out), 2 more NOT checked; 1 launch repeated with "
                        "poisoned memory: no "
                        "effect; 1 hash of a region: no "
                        "page changed that was not allowed to; probes: no comparison differs");
    gv_overview_free(&overview);
    gv_string_clear(&text);
    gv_message_tried(&text, &(gv_tried){.compared = 9, .differing = 2, .probes = 2, .probe_differences = 2});
    assert_string_equal(gv_string_text(&text),
                        "9 launches compared with serial replays: 2 differ; probes: 2 comparisons "
                        "differ");
    gv_string_clear(&text);
    gv_message_tried(&text, &(gv_tried){0});
    assert_string_equal(gv_string_text(&text), "");
    gv_string_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_reason_is_one_group),
        cmocka_unit_test(reasons_with_numbers_are_one_group),
        cmocka_unit_test(the_summary_counts_once),
        cmocka_unit_test(an_upper_bound_is_not_called_seen),
        cmocka_unit_test(what_was_tried_is_told_even_where_nothing_came_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
