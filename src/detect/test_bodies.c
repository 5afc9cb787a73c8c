// Conditional nodes: which executions of bodies race with what, and what is said of bodies that were not executed. Each
// test writes a trace and loads it, as a recorder and a report would.
#include "base/memory.h"
#include "detect/detect.h"
#include "detect/flatten.h"
#include "trace/test_sample.h"
#include "trace/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { IF = 0, WHILE = 1, SWITCH = 2 };
enum { TOP = 1, FIRST = 2, SECOND = 3, INNER = 4 }; // graph ids

#define WRITE(name, ...) assert_int_equal(gv_write_##name(writer, &(gv_##name##_record){__VA_ARGS__}), GV_OK)

static gv_writer *writer;
static gv_trace *trace;
static gv_findings findings;

static void begin(void)
{
    gv_error error = {0};
    assert_int_equal(gv_writer_create(scratch("bodies"), &writer, &error), GV_OK);
    WRITE(exec, .id = 1, .graph = TOP);
}

static void graph(uint64_t id, uint64_t nodes, uint64_t edges, uint64_t parent, uint64_t parent_node)
{
    WRITE(graph, .id = id, .origin = parent ? GV_GRAPH_BODY : GV_GRAPH_BUILT, .nodes = nodes, .edges = edges,
          .parent = parent, .parent_node = parent_node);
}

static void kernels(uint64_t of, uint64_t first, uint64_t count)
{
    for (uint64_t n = first; n < first + count; n++)
        WRITE(node, .graph = of, .index = n, .kind = GV_NODE_KERNEL, .order = n + 1);
}

static void conditional(uint64_t of, uint64_t index, uint64_t type, uint64_t first, uint64_t second)
{
    uint64_t detail[] = {type, 7000 + of, 0, 0, first, second};
    WRITE(node, .graph = of, .index = index, .kind = GV_NODE_CONDITIONAL, .order = index + 1, .child = first,
          .detail = {detail, second ? 6 : 5});
}

// Begins launch number `sequence`.
static void launch(uint64_t sequence)
{
    WRITE(operation, .sequence = sequence, .kind = GV_OP_GRAPH_LAUNCH, .object = 1);
}

static void execution(uint64_t in, uint64_t id, uint64_t parent, uint64_t body)
{
    WRITE(execution, .launch = in, .id = id, .parent = parent, .graph = body);
}

// A read and a write of 16 bytes each; 0: none.
static void access_of(uint64_t in, uint64_t of, uint64_t node, uint64_t execution, uint64_t read, uint64_t written)
{
    uint8_t room[2][32];
    gv_range ranges[] = {{read, read + 16}, {written, written + 16}};
    gv_access_record record = {
        .launch = in, .graph = of, .node = node, .source = GV_SOURCE_SOFT, .execution = execution};
    if (read)
        record.reads = (gv_bytes){room[0], gv_ranges_encode(&ranges[0], 1, room[0])};
    if (written)
        record.writes = (gv_bytes){room[1], gv_ranges_encode(&ranges[1], 1, room[1])};
    assert_int_equal(gv_write_access(writer, &record), GV_OK);
}

static void armed(uint64_t in)
{
    WRITE(armed, .launch = in, .exec = 1, .graph = TOP);
}

// Ends the trace and answers how many findings it has.
static size_t detect(void)
{
    gv_error error = {0};
    WRITE(end, .time_ns = 1);
    assert_int_equal(gv_writer_close(writer), GV_OK);
    if (gv_trace_load(scratch("bodies"), &trace, &error) != GV_OK || gv_detect(trace, &findings, &error) != GV_OK)
        fail_msg("%s", error.text);
    assert_int_equal(trace->undefined, 0);
    return findings.count;
}

static int finish(void **state)
{
    gv_findings_free(&findings);
    gv_trace_free(trace);
    trace = NULL;
    return 0;
}

// ---- Bodies among other nodes -----------------------------------------------------------------------------------

// Graph 1: kernel 0 -> IF 1 -> kernel 2, kernel 3 beside them. Its body: kernels 0 and 1, in no order.
static void an_if(bool executed)
{
    begin();
    graph(TOP, 4, 2, 0, 0);
    graph(FIRST, 2, 0, TOP, 1);
    kernels(FIRST, 0, 2);
    kernels(TOP, 0, 1);
    conditional(TOP, 1, IF, FIRST, 0);
    kernels(TOP, 2, 2);
    WRITE(edges, .graph = TOP, .items = NUMBERS(0, 1, 0, 0, 1, 2, 0, 0));
    launch(1);
    access_of(1, TOP, 0, 0, 0, 0x1000);
    if (executed)
        execution(1, 1, 0, FIRST);
}

static void test_a_body_is_ordered_with_what_its_node_is_ordered_with(void **state)
{
    an_if(true);
    access_of(1, FIRST, 0, 1, 0x1000, 0x2000);
    access_of(1, FIRST, 1, 1, 0x1000, 0x3000);
    access_of(1, TOP, 2, 0, 0x2000, 0x1000);
    access_of(1, TOP, 3, 0, 0, 0x4000);
    armed(1);
    assert_int_equal(detect(), 0);
}

static void test_two_nodes_of_one_execution_race(void **state)
{
    an_if(true);
    access_of(1, FIRST, 0, 1, 0, 0x2000);
    access_of(1, FIRST, 1, 1, 0x2000, 0);
    access_of(1, TOP, 2, 0, 0, 0);
    access_of(1, TOP, 3, 0, 0, 0);
    armed(1);
    assert_int_equal(detect(), 1);
    const gv_finding *finding = &findings.items[0];
    assert_int_equal(finding->id, GV_FINDING_RACE_RAW);
    assert_int_equal(finding->graph, FIRST);
    assert_int_equal(finding->edge_from, 0);
    assert_int_equal(finding->edge_to, 1);
    assert_int_equal(finding->pairs[0].bytes, 16);
}

static void test_a_body_races_with_what_stands_beside_its_node(void **state)
{
    an_if(true);
    access_of(1, FIRST, 0, 1, 0, 0x2000);
    access_of(1, FIRST, 1, 1, 0, 0);
    access_of(1, TOP, 2, 0, 0, 0);
    access_of(1, TOP, 3, 0, 0x2000, 0);
    armed(1);
    assert_int_equal(detect(), 1);
    const gv_finding *finding = &findings.items[0];
    assert_int_equal(finding->graph, TOP);
    assert_int_equal(finding->edge_from, 1); // the conditional node stands for its body
    assert_int_equal(finding->edge_to, 3);
    assert_int_equal(finding->pairs[0].first.graph, FIRST);
    assert_int_equal(finding->pairs[0].second.graph, TOP);
}

static void test_a_body_that_was_not_executed_is_said_to_be_unknown(void **state)
{
    an_if(false);
    access_of(1, TOP, 2, 0, 0, 0);
    access_of(1, TOP, 3, 0, 0, 0);
    armed(1);
    assert_int_equal(detect(), 1);
    assert_int_equal(findings.items[0].incomplete, GV_INCOMPLETE_NOT_EXECUTED);
    assert_int_equal(findings.items[0].graph, FIRST);
    assert_int_equal(findings.items[0].affected, 2);
}

// One recorded launch in which a body runs is enough.
static void test_launches_add_up_to_what_was_executed(void **state)
{
    an_if(false);
    access_of(1, TOP, 2, 0, 0, 0);
    access_of(1, TOP, 3, 0, 0, 0);
    armed(1);
    launch(2);
    access_of(2, TOP, 0, 0, 0, 0x1000);
    execution(2, 1, 0, FIRST);
    for (uint64_t n = 0; n < 2; n++) {
        access_of(2, FIRST, n, 1, 0, 0);
        access_of(2, TOP, 2 + n, 0, 0, 0);
    }
    armed(2);
    assert_int_equal(detect(), 0);
}

static void test_a_node_of_an_execution_without_a_record_is_a_gap(void **state)
{
    an_if(true);
    access_of(1, FIRST, 1, 1, 0, 0);
    access_of(1, TOP, 2, 0, 0, 0);
    access_of(1, TOP, 3, 0, 0, 0);
    armed(1);
    assert_int_equal(detect(), 1);
    assert_int_equal(findings.items[0].incomplete, GV_INCOMPLETE_NODE);
    assert_int_equal(findings.items[0].graph, FIRST);
    assert_int_equal(findings.items[0].node, 1);
}

static void test_a_record_of_no_execution_is_not_taken_for_one(void **state)
{
    an_if(true);
    for (uint64_t n = 0; n < 2; n++) {
        access_of(1, FIRST, n, 1, 0, 0);
        access_of(1, TOP, 2 + n, 0, 0, 0);
    }
    access_of(1, FIRST, 0, 9, 0, 0x2000);
    armed(1);
    assert_int_equal(detect(), 1);
    assert_int_equal(findings.items[0].incomplete, GV_INCOMPLETE_GRAPH);
    assert_non_null(strstr(findings.items[0].reason, "1 access records are of graphs or executions"));
}

// ---- Loops ------------------------------------------------------------------------------------------------------

// Graph 1: a loop, and kernel 1 beside it. The body: kernels 0 and 1, in no order.
static void a_loop(uint64_t iterations)
{
    begin();
    graph(TOP, 2, 0, 0, 0);
    graph(FIRST, 2, 0, TOP, 0);
    kernels(FIRST, 0, 2);
    conditional(TOP, 0, WHILE, FIRST, 0);
    kernels(TOP, 1, 1);
    launch(1);
    for (uint64_t i = 1; i <= iterations; i++)
        execution(1, i, 0, FIRST);
}

// Two buffers that change places: an iteration reads what the one before has written.
static void test_iterations_come_one_after_the_other(void **state)
{
    a_loop(4);
    for (uint64_t i = 1; i <= 4; i++) {
        access_of(1, FIRST, 0, i, 0, 0x1000 * (1 + i % 2));
        access_of(1, FIRST, 1, i, 0x1000 * (1 + (i + 1) % 2), 0);
    }
    access_of(1, TOP, 1, 0, 0, 0x9000);
    armed(1);
    assert_int_equal(detect(), 0);
}

// Each iteration meets on bytes of its own: one pair with all of them.
static void test_a_pair_of_many_iterations_is_one(void **state)
{
    a_loop(3);
    for (uint64_t i = 1; i <= 3; i++) {
        access_of(1, FIRST, 0, i, 0, 0x1000 * (i < 3 ? 1 : 2)); // the first two on the same bytes
        access_of(1, FIRST, 1, i, 0x1000 * (i < 3 ? 1 : 2), 0);
    }
    access_of(1, TOP, 1, 0, 0, 0x9000);
    armed(1);
    assert_int_equal(detect(), 1);
    const gv_finding *finding = &findings.items[0];
    assert_int_equal(finding->pair_count, 1);
    assert_int_equal(finding->affected, 1); // one launch
    assert_int_equal(finding->pairs[0].bytes, 32);
    assert_int_equal(finding->pairs[0].raw_bytes, 32);
    assert_int_equal(finding->pairs[0].ranges.count, 2);
    assert_int_equal(finding->graph, FIRST);
}

static void test_one_iteration_of_many_races_with_a_node_beside_the_loop(void **state)
{
    a_loop(5);
    for (uint64_t i = 1; i <= 5; i++) {
        access_of(1, FIRST, 0, i, 0, i == 4 ? 0x9000 : 0x1000 * i);
        access_of(1, FIRST, 1, i, 0, 0);
    }
    access_of(1, TOP, 1, 0, 0x9000, 0);
    armed(1);
    assert_int_equal(detect(), 1);
    assert_int_equal(findings.items[0].graph, TOP);
    assert_int_equal(findings.items[0].pairs[0].first.graph, FIRST);
    assert_int_equal(findings.items[0].pairs[0].first.node, 0);
}

// ---- Bodies that exclude each other, and nesting ----------------------------------------------------------------

// Graph 1: a loop over a SWITCH whose two bodies are one kernel each.
static void a_switch_in_a_loop(const uint64_t *chosen, uint64_t iterations)
{
    begin();
    graph(TOP, 2, 0, 0, 0);
    graph(FIRST, 1, 0, TOP, 0);
    graph(SECOND, 1, 0, FIRST, 0);
    graph(INNER, 1, 0, FIRST, 0);
    kernels(SECOND, 0, 1);
    kernels(INNER, 0, 1);
    conditional(FIRST, 0, SWITCH, SECOND, INNER);
    conditional(TOP, 0, WHILE, FIRST, 0);
    kernels(TOP, 1, 1);
    launch(1);
    for (uint64_t i = 0; i < iterations; i++) {
        execution(1, 2 * i + 1, 0, FIRST);
        execution(1, 2 * i + 2, 2 * i + 1, chosen[i]);
        access_of(1, chosen[i], 0, 2 * i + 2, 0, 0x1000);
    }
}

static void test_two_bodies_of_a_node_do_not_race(void **state)
{
    a_switch_in_a_loop((uint64_t[]){SECOND, INNER, SECOND}, 3);
    access_of(1, TOP, 1, 0, 0, 0x9000);
    armed(1);
    assert_int_equal(detect(), 0);
}

static void test_nested_bodies_race_with_what_stands_beside_the_outermost_node(void **state)
{
    a_switch_in_a_loop((uint64_t[]){SECOND, INNER}, 2);
    access_of(1, TOP, 1, 0, 0x1000, 0);
    armed(1);
    assert_int_equal(detect(), 1);
    const gv_finding *finding = &findings.items[0];
    assert_int_equal(finding->graph, TOP);
    assert_int_equal(finding->edge_from, 0);
    assert_int_equal(finding->edge_to, 1);
    assert_int_equal(finding->pair_count, 2); // one with each body, explained by one missing edge
}

static void test_only_the_outermost_body_that_was_not_executed_is_named(void **state)
{
    a_switch_in_a_loop(NULL, 0);
    access_of(1, TOP, 1, 0, 0, 0);
    armed(1);
    assert_int_equal(detect(), 1);
    assert_int_equal(findings.items[0].graph, FIRST);
    assert_int_equal(findings.items[0].affected, 3);
    finish(NULL);
    a_switch_in_a_loop((uint64_t[]){INNER}, 1);
    access_of(1, TOP, 1, 0, 0, 0);
    armed(1);
    assert_int_equal(detect(), 1);
    assert_int_equal(findings.items[0].graph, SECOND);
    assert_int_equal(findings.items[0].affected, 1);
}

// ---- Layouts ----------------------------------------------------------------------------------------------------

static void test_an_execution_without_a_place_is_no_layout(void **state)
{
    a_switch_in_a_loop((uint64_t[]){SECOND}, 1);
    execution(1, 9, 2, SECOND); // SECOND runs in FIRST and not in itself
    access_of(1, TOP, 1, 0, 0, 0);
    armed(1);
    assert_true(detect() > 0);
    gv_flat_graph flat;
    gv_error error = {0};
    assert_int_equal(gv_flatten_launch(trace, &trace->armed[0], &flat, &error), GV_ERR_MISSING);
    bool said = false;
    for (size_t i = 0; i < findings.count; i++)
        said |= findings.items[i].incomplete == GV_INCOMPLETE_GRAPH &&
                strstr(findings.items[i].reason, "it was not checked for races");
    assert_true(said);
}

static void test_a_launch_folds_into_its_graph(void **state)
{
    a_switch_in_a_loop((uint64_t[]){SECOND, INNER, SECOND}, 3);
    access_of(1, TOP, 1, 0, 0, 0);
    armed(1);
    detect();
    gv_flat_graph whole, unrolled;
    assert_int_equal(gv_flatten(trace, TOP, &whole, NULL), GV_OK);
    assert_int_equal(gv_flatten_launch(trace, &trace->armed[0], &unrolled, NULL), GV_OK);
    // Nodes, and an end for each body: 2 + (1 + 1) + 2 * (1 + 1) of the graph; three times (1 + 1) + (1 + 1) unrolled.
    assert_int_equal(whole.node_count, 8);
    assert_int_equal(unrolled.node_count, 14);
    uint32_t *folded = gv_flat_fold(&unrolled, &whole);
    assert_non_null(folded);
    for (uint32_t n = 0; n < unrolled.node_count; n++) {
        const gv_flat_node *at = &unrolled.nodes[n], *of = &whole.nodes[folded[n]];
        assert_int_equal(at->index, of->index);
        assert_int_equal(unrolled.instances[at->instance].graph, whole.instances[of->instance].graph);
    }
    gv_free(folded);
    gv_flat_graph_free(&whole);
    gv_flat_graph_free(&unrolled);
}

static int remove_files(void **state)
{
    remove_scratch();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_body_is_ordered_with_what_its_node_is_ordered_with, finish),
        cmocka_unit_test_teardown(test_two_nodes_of_one_execution_race, finish),
        cmocka_unit_test_teardown(test_a_body_races_with_what_stands_beside_its_node, finish),
        cmocka_unit_test_teardown(test_a_body_that_was_not_executed_is_said_to_be_unknown, finish),
        cmocka_unit_test_teardown(test_launches_add_up_to_what_was_executed, finish),
        cmocka_unit_test_teardown(test_a_node_of_an_execution_without_a_record_is_a_gap, finish),
        cmocka_unit_test_teardown(test_a_record_of_no_execution_is_not_taken_for_one, finish),
        cmocka_unit_test_teardown(test_iterations_come_one_after_the_other, finish),
        cmocka_unit_test_teardown(test_a_pair_of_many_iterations_is_one, finish),
        cmocka_unit_test_teardown(test_one_iteration_of_many_races_with_a_node_beside_the_loop, finish),
        cmocka_unit_test_teardown(test_two_bodies_of_a_node_do_not_race, finish),
        cmocka_unit_test_teardown(test_nested_bodies_race_with_what_stands_beside_the_outermost_node, finish),
        cmocka_unit_test_teardown(test_only_the_outermost_body_that_was_not_executed_is_named, finish),
        cmocka_unit_test_teardown(test_an_execution_without_a_place_is_no_layout, finish),
        cmocka_unit_test_teardown(test_a_launch_folds_into_its_graph, finish),
    };
    return cmocka_run_group_tests(tests, NULL, remove_files);
}
