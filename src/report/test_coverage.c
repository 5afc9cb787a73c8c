// Unit tests of the coverage: which state each node of a launched graph gets, for which reasons, and how many bytes
// were seen. Each test writes a trace and loads it, as a recorder and a report would.
#include "report/coverage.h"

#include "base/memory.h"
#include "report/format.h"
#include "report/messages.h"
#include "trace/ranges.h"
#include "trace/test_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WRITE(name, ...) assert_int_equal(gv_write_##name(writer, &(gv_##name##_record){__VA_ARGS__}), GV_OK)

enum { REASON_TENSOR = 1, REASON_POOL };

#define REFUSED "it launches graphs itself"

static gv_writer *writer;
static gv_trace *trace;
static gv_coverage coverage;

static void string(uint64_t id, const char *text)
{
    WRITE(string, .id = id, .text = {text, strlen(text)});
}

static void begin(void)
{
    gv_error error = {0};
    assert_int_equal(gv_writer_create(scratch("coverage"), &writer, &error), GV_OK);
    string(REASON_TENSOR, "tensor copies");
    string(REASON_POOL, "a pool it may use");
    for (uint64_t id = 1; id <= 3; id++)
        WRITE(function, .id = id, .name = {(const char *[]){"a", "b", "c"}[id - 1], 1});
}

// A graph whose exec has the same id.
static void graph(uint64_t id, uint64_t nodes)
{
    WRITE(graph, .id = id, .origin = GV_GRAPH_BUILT, .nodes = nodes);
    WRITE(exec, .id = id, .graph = id);
}

static void body(uint64_t id, uint64_t nodes, uint64_t parent, uint64_t parent_node)
{
    WRITE(graph, .id = id, .origin = GV_GRAPH_BODY, .nodes = nodes, .parent = parent, .parent_node = parent_node);
}

static void node(uint64_t of, uint64_t index, uint64_t kind, uint64_t function)
{
    WRITE(node, .graph = of, .index = index, .kind = kind, .order = index + 1, .function = function);
}

static void kernel(uint64_t of, uint64_t index, uint64_t function)
{
    node(of, index, GV_NODE_KERNEL, function);
}

static void launch(uint64_t sequence, uint64_t exec)
{
    WRITE(operation, .sequence = sequence, .kind = GV_OP_GRAPH_LAUNCH, .object = exec);
}

static void recorded(uint64_t in, uint64_t of, uint64_t node_index, uint64_t execution, uint64_t precision,
                     uint64_t reason, gv_range range)
{
    uint8_t room[32];
    WRITE(access, .launch = in, .graph = of, .node = node_index, .execution = execution, .source = GV_SOURCE_SOFT,
          .precision = precision, .reason = reason,
          .writes = {room, range.end ? gv_ranges_encode(&range, 1, room) : 0});
}

static void exact(uint64_t in, uint64_t of, uint64_t node_index, uint64_t execution)
{
    recorded(in, of, node_index, execution, GV_PRECISION_EXACT, 0, (gv_range){0x1000, 0x1010});
}

static void armed(uint64_t in, uint64_t of, uint64_t status, const char *reason)
{
    WRITE(armed, .launch = in, .exec = of, .graph = of, .status = status, .reason = {reason, strlen(reason)});
}

static void end(void)
{
    gv_error error = {0};
    WRITE(end, .time_ns = 1);
    assert_int_equal(gv_writer_close(writer), GV_OK);
    if (gv_trace_load(scratch("coverage"), &trace, &error) != GV_OK ||
        gv_coverage_make(trace, true, &coverage, &error) != GV_OK)
        fail_msg("%s", error.text);
}

static int clean(void **state)
{
    gv_coverage_free(&coverage);
    gv_trace_free(trace);
    trace = NULL;
    return 0;
}

// What the line of `gravel check` says of `nodes`.
static void assert_line(const size_t nodes[GV_COVERAGE_STATES], const char *expected)
{
    gv_string line = {0};
    gv_message_coverage(&line, nodes);
    assert_string_equal(gv_string_text(&line), expected);
    gv_string_free(&line);
}

static void assert_reason(const gv_coverage_reason *reason, enum gv_coverage_state state, const char *text,
                          size_t nodes, size_t graphs)
{
    assert_int_equal(reason->state, state);
    assert_string_equal(reason->text, text);
    assert_int_equal(reason->nodes, nodes);
    assert_int_equal(reason->graphs, graphs);
}

// ---- Nodes ------------------------------------------------------------------------------------------------------

static void each_node_has_one_state(void **state)
{
    begin();
    graph(1, 9);
    for (uint64_t n = 0; n < 6; n++)
        kernel(1, n, n % 3 + 1);
    node(1, 6, GV_NODE_EMPTY, 0);
    node(1, 7, GV_NODE_HOST, 0);
    node(1, 8, GV_NODE_EVENT_RECORD, 0);
    launch(1, 1);
    exact(1, 1, 0, 0);
    recorded(1, 1, 1, 0, GV_PRECISION_EXTENT, REASON_POOL, (gv_range){0x1008, 0x2000});
    recorded(1, 1, 2, 0, GV_PRECISION_INCOMPLETE, REASON_TENSOR, (gv_range){0x1010, 0x1018});
    exact(1, 1, 3, 0); // two records of one node: the one that promises less counts
    recorded(1, 1, 3, 0, GV_PRECISION_EXTENT, REASON_POOL, (gv_range){0x1000, 0x1008});
    recorded(1, 1, 4, 0, GV_PRECISION_EXACT, 0, (gv_range){0, 0}); // it was seen to access nothing
    recorded(1, 1, 6, 0, GV_PRECISION_EXACT, 0, (gv_range){0, 0});
    armed(1, 1, GV_ARMED_COMPLETE, ""); // without a record of node 5
    end();
    assert_int_equal(coverage.graph_count, 1);
    const gv_coverage_graph *row = &coverage.graphs[0];
    assert_int_equal(row->graph, 1);
    assert_int_equal(row->recorded, 1);
    assert_line(row->nodes, "9 nodes: 2 exact, 2 extent, 3 incomplete, 2 need nothing");
    assert_line(coverage.nodes, "9 nodes: 2 exact, 2 extent, 3 incomplete, 2 need nothing");
    assert_int_equal(row->bytes, 0x18);
    assert_int_equal(row->extent_bytes, 0x2000 - 0x1018);
    assert_int_equal(row->reason_count, 4);
    assert_reason(&row->reasons[0], GV_COVERAGE_INCOMPLETE, "it is a host function, whose accesses are not recorded", 1,
                  1);
    assert_reason(&row->reasons[1], GV_COVERAGE_INCOMPLETE, "no accesses were recorded for it", 1, 1);
    assert_int_equal(row->reasons[1].examples[0].node, 5);
    assert_reason(&row->reasons[2], GV_COVERAGE_INCOMPLETE, "tensor copies", 1, 1);
    assert_reason(&row->reasons[3], GV_COVERAGE_EXTENT, "a pool it may use", 2, 1);
    // Kernels 1 and 3 run different functions, so that both are named.
    assert_int_equal(row->reasons[3].example_count, 2);
    assert_int_equal(row->reasons[3].examples[0].node, 1);
    assert_int_equal(row->reasons[3].examples[1].node, 3);
}

static void a_note_about_a_node_counts(void **state)
{
    begin();
    graph(1, 2);
    kernel(1, 0, 1);
    kernel(1, 1, 1);
    launch(1, 1);
    exact(1, 1, 0, 0);
    exact(1, 1, 1, 0);
    armed(1, 1, GV_ARMED_COMPLETE, "");
    WRITE(note, .severity = GV_NOTE_INCOMPLETE, .text = {"it was lost", 11}, .graph = 1, .node = 2);
    WRITE(note, .severity = GV_NOTE_INFO, .text = {"it was slow", 11}, .graph = 1, .node = 1);
    end();
    assert_line(coverage.nodes, "2 nodes: 1 exact, 0 extent, 1 incomplete");
    assert_int_equal(coverage.reason_count, 1);
    assert_reason(&coverage.reasons[0], GV_COVERAGE_INCOMPLETE, "it was lost", 1, 1);
}

// ---- Graphs -----------------------------------------------------------------------------------------------------

static void what_was_not_recorded_is_told_apart(void **state)
{
    begin();
    for (uint64_t id = 1; id <= 5; id++) {
        graph(id, 2);
        kernel(id, 0, 1);
        kernel(id, 1, 2);
    }
    launch(1, 1); // never armed
    launch(2, 2); // refused
    armed(2, 2, GV_ARMED_REFUSED, REFUSED);
    launch(3, 3); // broken off behind its first node
    exact(3, 3, 0, 0);
    armed(3, 3, GV_ARMED_FAILED, REFUSED);
    launch(4, 4); // once broken off, once whole
    armed(4, 4, GV_ARMED_FAILED, REFUSED);
    launch(5, 4);
    exact(5, 4, 0, 0);
    exact(5, 4, 1, 0);
    armed(5, 4, GV_ARMED_COMPLETE, "");
    end(); // graph 5 was never launched
    assert_int_equal(coverage.graph_count, 4);
    assert_line(coverage.graphs[0].nodes, "2 nodes: 0 exact, 0 extent, 0 incomplete, 2 not recorded");
    assert_reason(&coverage.graphs[0].reasons[0], GV_COVERAGE_NOT_RECORDED, "no launch of this graph was armed", 2, 1);
    assert_line(coverage.graphs[1].nodes, "2 nodes: 0 exact, 0 extent, 0 incomplete, 2 not recorded");
    assert_line(coverage.graphs[2].nodes, "2 nodes: 1 exact, 0 extent, 0 incomplete, 1 not recorded");
    assert_line(coverage.graphs[3].nodes, "2 nodes: 2 exact, 0 extent, 0 incomplete");
    assert_int_equal(coverage.graphs[3].recorded, 1);
    assert_line(coverage.nodes, "8 nodes: 3 exact, 0 extent, 0 incomplete, 5 not recorded");
    // The reasons of all graphs, each once, those of most nodes first.
    assert_int_equal(coverage.reason_count, 2);
    assert_reason(&coverage.reasons[0], GV_COVERAGE_NOT_RECORDED, REFUSED, 3, 2);
    assert_int_equal(coverage.reasons[0].example_count, 2);
    assert_reason(&coverage.reasons[1], GV_COVERAGE_NOT_RECORDED, "no launch of this graph was armed", 2, 1);
}

static void a_graph_with_a_gap_is_incomplete(void **state)
{
    begin();
    graph(1, 3); // one of its nodes is not in the trace
    kernel(1, 0, 1);
    kernel(1, 1, 1);
    launch(1, 1);
    exact(1, 1, 0, 0);
    exact(1, 1, 1, 0);
    armed(1, 1, GV_ARMED_COMPLETE, "");
    end();
    assert_int_equal(coverage.nodes[GV_COVERAGE_EXACT], 0);
    assert_int_equal(coverage.nodes[GV_COVERAGE_INCOMPLETE], trace->graphs[1].node_count);
    assert_int_equal(coverage.reason_count, 1);
    assert_non_null(strstr(coverage.reasons[0].text, "not in the trace"));
}

// ---- Bodies -----------------------------------------------------------------------------------------------------

// A kernel, then a conditional node of two bodies of one kernel each: graphs id + 1 and id + 2.
static void branch(uint64_t id)
{
    uint64_t detail[] = {0, 7000 + id, 0, 0, id + 1, id + 2};
    graph(id, 2);
    kernel(id, 0, 1);
    WRITE(node, .graph = id, .index = 1, .kind = GV_NODE_CONDITIONAL, .order = 2, .child = id + 1,
          .detail = {detail, 6});
    for (uint64_t side = 1; side <= 2; side++) {
        body(id + side, 1, id, 1);
        kernel(id + side, 0, 1 + side);
    }
}

// Launches the graph of branch(id), which executes one of its bodies.
static void launch_branch(uint64_t sequence, uint64_t id, uint64_t side)
{
    launch(sequence, id);
    WRITE(execution, .launch = sequence, .id = 1, .graph = id + side);
    exact(sequence, id, 0, 0);
    exact(sequence, id + side, 0, 1);
    armed(sequence, id, GV_ARMED_COMPLETE, "");
}

static void a_body_that_did_not_run_is_told_apart(void **state)
{
    begin();
    branch(1);
    launch_branch(1, 1, 1);
    end();
    assert_int_equal(coverage.graph_count, 1);
    assert_line(coverage.nodes, "4 nodes: 2 exact, 0 extent, 0 incomplete, 1 not executed, 1 need nothing");
    assert_int_equal(coverage.reason_count, 1);
    assert_reason(&coverage.reasons[0], GV_COVERAGE_NOT_EXECUTED,
                  "this body of a conditional node was not executed in any recorded launch", 1, 1);
    assert_int_equal(coverage.reasons[0].examples[0].graph, 3);
}

static void launches_add_up(void **state)
{
    begin();
    branch(1);
    launch_branch(1, 1, 1);
    launch_branch(2, 1, 2);
    end();
    assert_line(coverage.nodes, "4 nodes: 3 exact, 0 extent, 0 incomplete, 1 need nothing");
}

static void graphs_of_one_structure_add_up(void **state)
{
    begin();
    branch(1);
    branch(4);
    launch_branch(1, 1, 1);
    launch_branch(2, 4, 2);
    end();
    assert_int_equal(coverage.graph_count, 2);
    assert_line(coverage.nodes, "8 nodes: 6 exact, 0 extent, 0 incomplete, 2 need nothing");
}

static void every_iteration_counts(void **state)
{
    uint64_t detail[] = {1, 7000, 0, 0, 2};
    begin();
    graph(1, 1);
    WRITE(node, .graph = 1, .index = 0, .kind = GV_NODE_CONDITIONAL, .order = 1, .child = 2, .detail = {detail, 5});
    body(2, 2, 1, 0);
    kernel(2, 0, 1);
    kernel(2, 1, 2);
    launch(1, 1);
    for (uint64_t iteration = 1; iteration <= 3; iteration++) {
        WRITE(execution, .launch = 1, .id = iteration, .graph = 2);
        exact(1, 2, 0, iteration);
        if (iteration != 2) // the second kernel of this iteration was not seen
            exact(1, 2, 1, iteration);
    }
    armed(1, 1, GV_ARMED_COMPLETE, "");
    end();
    assert_line(coverage.nodes, "3 nodes: 1 exact, 0 extent, 1 incomplete, 1 need nothing");
}

// ---- Memory -----------------------------------------------------------------------------------------------------

static void each_allocation_may_fail(void **state)
{
    begin();
    branch(1);
    branch(4);
    launch_branch(1, 1, 1);
    launch_branch(2, 4, 1);
    end();
    gv_status status = GV_ERR_MEMORY;
    long allowed = 0;
    for (; status != GV_OK; allowed++) {
        gv_coverage again;
        gv_error error = {0};
        gv_memory_fail_after(allowed);
        status = gv_coverage_make(trace, true, &again, &error);
        gv_memory_fail_after(-1);
        if (status == GV_OK)
            gv_coverage_free(&again);
        else
            assert_int_equal(status, GV_ERR_MEMORY);
        assert_true(allowed < 1000);
    }
    assert_true(allowed > 10); // it does allocate
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(each_node_has_one_state, clean),
        cmocka_unit_test_teardown(a_note_about_a_node_counts, clean),
        cmocka_unit_test_teardown(what_was_not_recorded_is_told_apart, clean),
        cmocka_unit_test_teardown(a_graph_with_a_gap_is_incomplete, clean),
        cmocka_unit_test_teardown(a_body_that_did_not_run_is_told_apart, clean),
        cmocka_unit_test_teardown(launches_add_up, clean),
        cmocka_unit_test_teardown(graphs_of_one_structure_add_up, clean),
        cmocka_unit_test_teardown(every_iteration_counts, clean),
        cmocka_unit_test_teardown(each_allocation_may_fail, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
