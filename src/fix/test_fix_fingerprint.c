// Fingerprints of graphs in a trace, with child graphs; graphs of which nodes are missing have none.
#include "base/memory.h"
#include "fix/fingerprint.h"
#include "trace/test_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WRITE(name, ...) assert_int_equal(gv_write_##name(writer, &(gv_##name##_record){__VA_ARGS__}), GV_OK)

static gv_writer *writer;

static void node(uint64_t graph, uint64_t index, uint64_t kind, uint64_t function, uint64_t order, uint64_t child)
{
    WRITE(node, .graph = graph, .index = index, .kind = kind, .function = function, .order = order, .child = child,
          .shape = kind == GV_NODE_KERNEL ? NUMBERS(4, 1, 1, 32, 1, 1, 0) : (gv_numbers){0});
}

// Graph `id` of kernel -> child graph (id + 1) of one kernel, the node that comes first listed second.
static void write_graph(uint64_t id, uint64_t inner_function, uint64_t nodes)
{
    WRITE(graph, .id = id, .origin = GV_GRAPH_CAPTURED, .nodes = nodes, .edges = 1);
    WRITE(graph, .id = id + 1, .origin = GV_GRAPH_CHILD, .nodes = 1, .parent = id, .parent_node = 0);
    node(id, 0, GV_NODE_CHILD, 0, 8 + id, id + 1);
    node(id, 1, GV_NODE_KERNEL, 1, 4 + id, 0);
    node(id + 1, 0, GV_NODE_KERNEL, inner_function, 1, 0);
    WRITE(edges, .graph = id, .items = NUMBERS(1, 0, 0, 0));
}

static void test_graphs_of_a_trace(void **state)
{
    gv_error error = {0};
    gv_trace *trace;
    assert_int_equal(gv_writer_create(scratch("prints"), &writer, &error), GV_OK);
    WRITE(function, .id = 1, .name = TEXT("a"));
    WRITE(function, .id = 2, .name = TEXT("b"));
    write_graph(1, 1, 2);
    write_graph(3, 1, 2); // the same again
    write_graph(5, 2, 2); // another kernel in the child
    write_graph(7, 1, 3); // a node is missing
    assert_int_equal(gv_writer_close(writer), GV_OK);
    assert_int_equal(gv_trace_load(scratch("prints"), &trace, &error), GV_OK);

    gv_fingerprints first, same, other, inner;
    assert_int_equal(gv_fingerprint_trace_graph(trace, 1, &first, &error), GV_OK);
    assert_int_equal(gv_fingerprint_trace_graph(trace, 3, &same, &error), GV_OK);
    assert_int_equal(gv_fingerprint_trace_graph(trace, 5, &other, &error), GV_OK);
    assert_int_equal(gv_fingerprint_trace_graph(trace, 2, &inner, &error), GV_OK);
    assert_true(gv_fingerprint_equal(&first.exact, &same.exact));
    assert_true(gv_fingerprint_equal(&first.without_shapes, &same.without_shapes));
    assert_false(gv_fingerprint_equal(&first.exact, &other.exact));
    assert_false(gv_fingerprint_equal(&first.without_shapes, &other.without_shapes));
    assert_false(gv_fingerprint_equal(&first.exact, &inner.exact));
    assert_int_equal(gv_fingerprint_trace_graph(trace, 7, &other, &error), GV_ERR_MISSING);
    assert_int_equal(gv_fingerprint_trace_graph(trace, 99, &other, &error), GV_ERR_MISSING);

    uint32_t *numbers = gv_fingerprint_trace_numbers(trace, 1);
    assert_non_null(numbers);
    assert_int_equal(numbers[0], 1);
    assert_int_equal(numbers[1], 0);
    gv_free(numbers);

    for (long n = 0;; n++) {
        gv_memory_fail_after(n);
        gv_status status = gv_fingerprint_trace_graph(trace, 1, &same, &error);
        gv_memory_fail_after(-1);
        if (status == GV_OK)
            break;
        assert_int_equal(status, GV_ERR_MEMORY);
    }
    assert_true(gv_fingerprint_equal(&first.exact, &same.exact));
    gv_trace_free(trace);
    remove_scratch();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_graphs_of_a_trace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
