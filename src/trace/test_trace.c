// The loader: a whole trace and what its tables hold; dangling references, hostile ids and counts; order of rows;
// allocation lookup; failing memory.
#include "trace/test_sample.h"
#include "trace/trace.h"

#include "base/memory.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static gv_writer *create(const char *name)
{
    gv_writer *writer;
    gv_error error = {0};
    assert_int_equal(gv_writer_create(scratch(name), &writer, &error), GV_OK);
    return writer;
}

static gv_trace *load(const char *name)
{
    gv_trace *trace;
    gv_error error = {0};
    gv_status status = gv_trace_load(scratch(name), &trace, &error);
    if (status != GV_OK)
        print_error("%s\n", error.text);
    assert_int_equal(status, GV_OK);
    return trace;
}

#define WRITE(name, ...) assert_int_equal(gv_write_##name(writer, &(gv_##name##_record){__VA_ARGS__}), GV_OK)

static void test_sample(void **state)
{
    gv_writer *writer = create("sample");
    write_sample(writer);
    assert_int_equal(gv_writer_close(writer), GV_OK);
    gv_trace *trace = load("sample");

    assert_null(trace->truncation);
    assert_int_equal(trace->undefined, 0);
    assert_true(trace->ended);
    assert_int_equal(trace->process.pid, 4242);
    assert_string_equal(trace->process.command_line.data, "python3 serve.py");
    assert_int_equal(trace->string_count, 6);
    assert_string_equal(trace->strings[3], "TMA copies cannot be seen");
    assert_string_equal(trace->modules[1].path, "/opt/engine.so");
    assert_int_equal(trace->modules[1].build_id.length, 3);

    const gv_stack *stack = &trace->stacks[1];
    assert_int_equal(stack->host_count, 2);
    assert_string_equal(stack->host[0].function, "launch_decode");
    assert_string_equal(stack->host[0].file, "engine.c");
    assert_int_equal(stack->host[0].line, 321);
    assert_null(stack->host[1].function);
    assert_int_equal(stack->host[1].address, 0x99);
    assert_int_equal(stack->python_count, 1);
    assert_string_equal(stack->python[0].file, "model.py");
    assert_string_equal(stack->python[0].function, "forward");
    assert_int_equal(stack->python[0].line, 77);

    assert_int_equal(trace->contexts[1].compute_capability, 90);
    assert_int_equal(trace->streams[2].kind, GV_STREAM_NON_BLOCKING);
    assert_int_equal(trace->functions[2].flags, GV_FUNCTION_TENSOR_COPY);
    assert_string_equal(trace->allocations[1].name, "scratch");
    assert_null(trace->allocations[2].name);
    assert_int_equal(trace->allocations[2].born, 2);
    assert_int_equal(trace->allocations[2].died, 3);
    assert_true(trace->allocations[3].died == UINT64_MAX);

    assert_int_equal(trace->operation_count, 7);
    assert_int_equal(gv_trace_operation(trace, 7)->kind, GV_OP_GRAPH_LAUNCH);
    assert_null(gv_trace_operation(trace, 8));
    assert_null(gv_trace_operation(trace, 0));

    const gv_graph *graph = &trace->graphs[1];
    assert_int_equal(trace->graph_count, 3);
    assert_true(graph->whole);
    assert_string_equal(graph->name, "decode");
    assert_int_equal(graph->node_count, 5);
    assert_int_equal(graph->edge_count, 4);
    assert_int_equal(graph->nodes[1].shape.items[6], 1 << 16);
    assert_int_equal(graph->nodes[2].detail.count, 6);
    assert_int_equal(graph->nodes[3].child, 2);
    assert_int_equal(graph->nodes[4].flags, GV_NODE_DISABLED);
    assert_int_equal(graph->edges[1].from_port, 1);
    assert_int_equal(graph->edges[3].from, 3);
    assert_int_equal(trace->graphs[2].parent, 1);
    assert_int_equal(trace->graphs[2].parent_node, 3);
    assert_int_equal(trace->exec_version_count, 1);
    assert_int_equal(trace->exec_versions[0].graph, 1);

    assert_int_equal(trace->armed_count, 1);
    assert_int_equal(trace->armed[0].access_count, 4);
    assert_int_equal(trace->armed[0].status, GV_ARMED_COMPLETE);
    assert_string_equal(trace->armed[0].reason, "");
    const gv_access *access = &trace->accesses[trace->armed[0].first_access];
    size_t count;
    uint64_t bytes;
    assert_int_equal(gv_ranges_check(access[0].reads, &count, &bytes, NULL), GV_OK);
    assert_int_equal(count, 2);
    assert_int_equal(bytes, 260);
    assert_null(access[0].reason);
    assert_string_equal(access[1].reason, "TMA copies cannot be seen");
    assert_int_equal(access[0].wait, GV_GRID_WAIT_DONE);
    assert_int_equal(access[0].trigger, GV_GRID_TRIGGER_LATE);
    assert_int_equal(gv_ranges_check(access[0].early_reads, &count, &bytes, NULL), GV_OK);
    assert_int_equal(bytes, 256);
    assert_int_equal(access[0].early_writes.length, 0);
    assert_null(access[0].wait_reason);
    assert_int_equal(access[1].wait, GV_GRID_WAIT_UNKNOWN);
    assert_non_null(access[1].wait_reason);
    assert_int_equal(trace->note_count, 1);
    assert_int_equal(trace->notes[0].node, 2);
    gv_trace_free(trace);
}

static void test_allocation_at(void **state)
{
    gv_writer *writer = create("sample");
    write_sample(writer);
    gv_writer_close(writer);
    gv_trace *trace = load("sample");
    assert_int_equal(gv_trace_allocation_at(trace, 0x10000, 7), 1);
    assert_int_equal(gv_trace_allocation_at(trace, 0x10fff, 7), 1);
    assert_int_equal(gv_trace_allocation_at(trace, 0x11000, 7), 0);
    assert_int_equal(gv_trace_allocation_at(trace, 0xffff, 7), 0);
    assert_int_equal(gv_trace_allocation_at(trace, 0x20000, 1), 0); // not born yet
    assert_int_equal(gv_trace_allocation_at(trace, 0x20000, 2), 2);
    assert_int_equal(gv_trace_allocation_at(trace, 0x20000, 3), 2);
    assert_int_equal(gv_trace_allocation_at(trace, 0x20000, 4), 3); // the next life of the same address
    assert_int_equal(gv_trace_allocation_at(trace, 0x207ff, 100), 3);
    assert_int_equal(gv_trace_allocation_at(trace, 0x20800, 100), 0); // the new life is shorter
    assert_int_equal(gv_trace_allocation_at(trace, 0x7f0000, 0), 4);
    gv_trace_free(trace);
}

// The tree against the obvious loop, on many random lives over few addresses.
static void test_allocation_at_random(void **state)
{
    enum { LIVES = 500 };
    gv_writer *writer = create("lives");
    srand(7);
    for (uint64_t i = 0; i < LIVES; i++) {
        uint64_t address = 0x1000 * (uint64_t)(rand() % 40), size = 0x1000 * (uint64_t)(rand() % 5);
        WRITE(allocation, .id = i + 1, .address = address, .size = size, .operation = 2 * i + 1);
        WRITE(operation, .sequence = 2 * i + 1, .kind = GV_OP_ALLOC, .object = i + 1);
        if (rand() % 4)
            WRITE(operation, .sequence = 2 * i + 2, .kind = GV_OP_FREE, .object = 1 + (uint64_t)rand() % (i + 1));
    }
    gv_writer_close(writer);
    gv_trace *trace = load("lives");
    size_t held = 0;
    for (int i = 0; i < 4000; i++) {
        uint64_t address = (uint64_t)(rand() % (45 * 0x1000)), sequence = (uint64_t)(rand() % (2 * LIVES + 2));
        uint64_t id = gv_trace_allocation_at(trace, address, sequence), best = 0;
        for (size_t j = 1; j < trace->allocation_count; j++) {
            const gv_allocation *row = &trace->allocations[j];
            if (row->address <= address && address - row->address < row->size && row->born <= sequence &&
                sequence <= row->died && (best == 0 || row->born > trace->allocations[best].born))
                best = j;
        }
        assert_int_equal(id, best);
        held += best != 0;
    }
    assert_true(held > 1000);
    gv_trace_free(trace);
}

static void test_dangling_references(void **state)
{
    gv_writer *writer = create("dangling");
    WRITE(stream, .id = 1, .context = 9);                                                        // 1
    WRITE(stack, .id = 1, .host = NUMBERS(5, 0x10), .python = NUMBERS(7, 8, 3));                 // 2, 3, 4
    WRITE(allocation, .id = 1, .address = 1, .size = 1, .stack = 2);                             // 5
    WRITE(operation, .sequence = 1, .kind = GV_OP_KERNEL, .stream = 2, .object = 3, .stack = 4); // 6, 7, 8
    WRITE(operation, .sequence = 2, .kind = GV_OP_FREE, .object = 2);                            // 9
    WRITE(operation, .sequence = 3, .kind = GV_OP_GRAPH_LAUNCH, .stream = 1, .object = 6);       // 10
    WRITE(operation, .sequence = 4, .kind = GV_OP_EVENT_RECORD, .stream = 1,
          .object = 1ull << 60);                                              // events: any number
    WRITE(operation, .sequence = 5, .kind = GV_OP_CONTEXT_SYNC, .object = 2); // 11
    WRITE(operation, .sequence = 6, .kind = GV_OP_CAPTURE_END, .object = 2);  // 12
    WRITE(graph, .id = 1, .nodes = 2, .edges = 2, .stack = 3, .parent = 8);   // 13, 14
    WRITE(node, .graph = 1, .index = 0, .function = 1, .stack = 5, .stream = 6, .child = 3, .context = 1); // 15 - 19
    WRITE(node, .graph = 1, .index = 1);
    WRITE(node, .graph = 3, .index = 0);                                // 20
    WRITE(edges, .graph = 1, .items = NUMBERS(0, 1, 0, 0, 1, 2, 0, 0)); // 21
    WRITE(exec, .id = 1, .graph = 4);                                   // 22
    WRITE(armed, .launch = 3, .exec = 2, .graph = 1, .node = 3);        // 23, 24
    WRITE(access, .launch = 3, .graph = 1, .node = 1, .reason = 9);     // 25
    WRITE(access, .launch = 3, .graph = 1, .node = 2);                  // 26
    WRITE(access, .launch = 3, .graph = 2, .node = 0);                  // 27
    WRITE(note, .text = TEXT("x"), .graph = 1, .node = 4);              // 28
    WRITE(symbol, .module = 2, .address = 1, .function = 3, .file = 4); // 29 - 31
    WRITE(armed, .launch = 50, .exec = 1, .graph = 1);                  // 32
    gv_writer_close(writer);
    gv_trace *trace = load("dangling");
    assert_null(trace->truncation);
    assert_int_equal(trace->undefined, 32);
    assert_int_equal(trace->streams[1].context, 0);
    assert_int_equal(trace->stacks[1].host[0].module, 0);
    assert_string_equal(trace->stacks[1].python[0].file, "");
    assert_string_equal(trace->stacks[1].python[0].function, "");
    assert_int_equal(trace->allocations[1].stack, 0);
    for (size_t i = 0; i < trace->operation_count; i++)
        assert_true(trace->operations[i].object == 0 || trace->operations[i].kind == GV_OP_EVENT_RECORD);
    assert_int_equal(trace->operations[0].stream, 0);
    assert_int_equal(trace->graphs[1].node_count, 2);
    assert_int_equal(trace->graphs[1].edge_count, 1);
    assert_false(trace->graphs[1].whole);
    assert_int_equal(trace->graphs[1].nodes[0].child, 0);
    assert_int_equal(trace->graphs[1].nodes[0].stream, 0);
    assert_int_equal(trace->exec_versions[0].graph, 0);
    assert_int_equal(trace->armed[0].exec, 0);
    assert_int_equal(trace->armed[0].node, 0);
    assert_int_equal(trace->access_count, 1);
    assert_int_equal(trace->armed[0].access_count, 1);
    assert_null(trace->accesses[0].reason);
    assert_int_equal(trace->notes[0].node, 0);
    gv_trace_free(trace);
}

// A string may come after its first use (two threads), and so may everything else that is looked up at the end.
static void test_late_definitions(void **state)
{
    gv_writer *writer = create("late");
    WRITE(stack, .id = 1, .python = NUMBERS(2, 1, 3));
    WRITE(operation, .sequence = 1, .kind = GV_OP_KERNEL, .stream = 1, .object = 1, .stack = 1);
    WRITE(string, .id = 2, .text = TEXT("b.py"));
    WRITE(string, .id = 1, .text = TEXT("f"));
    WRITE(stream, .id = 1, .context = 1);
    WRITE(context, .id = 1);
    WRITE(function, .id = 1, .name = TEXT("k"));
    gv_writer_close(writer);
    gv_trace *trace = load("late");
    assert_int_equal(trace->undefined, 0);
    assert_string_equal(trace->stacks[1].python[0].file, "b.py");
    assert_string_equal(trace->stacks[1].python[0].function, "f");
    assert_int_equal(trace->operations[0].object, 1);
    gv_trace_free(trace);
}

// No allocation on the word of an id or of a count.
static void test_huge_ids_and_counts(void **state)
{
    gv_writer *writer = create("huge");
    WRITE(string, .id = UINT64_MAX, .text = TEXT("x"));
    WRITE(stream, .id = 1ull << 40);
    WRITE(allocation, .id = 1ull << 32, .address = 1, .size = 1);
    WRITE(graph, .id = 1ull << 33, .nodes = 3);
    WRITE(exec, .id = 1ull << 50, .graph = 1);
    WRITE(graph, .id = 1, .nodes = UINT64_MAX, .edges = UINT64_MAX);
    WRITE(node, .graph = 1, .index = 0);
    WRITE(graph, .id = 1, .nodes = 1); // a second life of an id
    gv_writer_close(writer);
    gv_trace *trace = load("huge");
    assert_int_equal(trace->undefined, 6);
    assert_int_equal(trace->string_count, 1);
    assert_int_equal(trace->stream_count, 1);
    assert_int_equal(trace->graph_count, 2);
    assert_int_equal(trace->graphs[1].node_count, 1);
    assert_false(trace->graphs[1].whole);
    assert_int_equal(trace->exec_version_count, 0);
    gv_trace_free(trace);
}

static void test_operations_out_of_order(void **state)
{
    gv_writer *writer = create("order");
    for (uint64_t i = 0; i < 100; i++)
        WRITE(operation, .sequence = 1 + (i * 37) % 100, .kind = GV_OP_HOST_FUNCTION, .value = i);
    WRITE(operation, .sequence = 50, .kind = GV_OP_HOST_FUNCTION);
    gv_writer_close(writer);
    gv_trace *trace = load("order");
    assert_int_equal(trace->operation_count, 100);
    for (uint64_t i = 1; i <= 100; i++) {
        assert_int_equal(trace->operations[i - 1].sequence, i);
        assert_ptr_equal(gv_trace_operation(trace, i), &trace->operations[i - 1]);
    }
    assert_int_equal(trace->undefined, 1); // the number that stood twice
    gv_trace_free(trace);
}

static void write_small_graph(gv_writer *writer, uint64_t id, uint64_t nodes)
{
    WRITE(graph, .id = id, .origin = GV_GRAPH_BUILT, .nodes = nodes);
    for (uint64_t i = 0; i < nodes; i++)
        WRITE(node, .graph = id, .index = i, .kind = GV_NODE_EMPTY);
}

// Two armed launches at once, whose access records alternate, and a third without its armed record.
static void test_armed_launches(void **state)
{
    gv_writer *writer = create("armed");
    write_small_graph(writer, 1, 3);
    write_small_graph(writer, 2, 3);
    WRITE(exec, .id = 1, .graph = 1);
    for (uint64_t i = 1; i <= 4; i++)
        WRITE(operation, .sequence = i, .kind = GV_OP_GRAPH_LAUNCH, .object = 1);
    for (uint64_t node = 0; node < 3; node++) {
        write_ranges(writer, 3, 1, node, 0x1000, 3);
        write_ranges(writer, 2, 2, node, 0x2000, 2);
    }
    WRITE(armed, .launch = 2, .exec = 1, .graph = 2);
    write_ranges(writer, 4, 1, 0, 0x1000, 1);
    WRITE(armed, .launch = 1, .exec = 1, .graph = 1, .status = GV_ARMED_REFUSED, .reason = TEXT("alloc nodes"));
    WRITE(armed, .launch = 3, .exec = 1, .graph = 1);
    WRITE(armed, .launch = 3, .exec = 1, .graph = 2); // a second row for a launch
    gv_writer_close(writer);
    gv_trace *trace = load("armed");
    assert_int_equal(trace->undefined, 1);
    assert_int_equal(trace->armed_count, 4);
    assert_int_equal(trace->access_count, 7);
    uint64_t launches[] = {2, 1, 3, 4};
    size_t counts[] = {3, 0, 3, 1}, total = 0;
    for (size_t i = 0; i < 4; i++) {
        const gv_armed *armed = &trace->armed[i];
        assert_int_equal(armed->launch, launches[i]);
        assert_int_equal(armed->access_count, counts[i]);
        for (size_t j = 0; j < armed->access_count; j++) {
            assert_int_equal(trace->accesses[armed->first_access + j].launch, armed->launch);
            assert_int_equal(trace->accesses[armed->first_access + j].node, j);
        }
        total += armed->access_count;
    }
    assert_int_equal(total, trace->access_count);
    assert_string_equal(trace->armed[1].reason, "alloc nodes");
    assert_int_equal(trace->armed[3].status, GV_ARMED_FAILED);
    assert_int_equal(trace->armed[3].exec, 1);
    assert_int_equal(trace->armed[3].graph, 1);
    assert_non_null(strstr(trace->armed[3].reason, "killed"));
    gv_trace_free(trace);
}

// Parents that go round in a circle, nesting without end, one child named by two nodes.
static void write_conditional(gv_writer *writer)
{
    WRITE(exec, .id = 1, .graph = 1);
    WRITE(graph, .id = 1, .origin = GV_GRAPH_BUILT, .nodes = 2);
    WRITE(graph, .id = 2, .origin = GV_GRAPH_BODY, .parent = 1, .parent_node = 1, .nodes = 1);
    WRITE(node, .graph = 2, .index = 0, .kind = GV_NODE_CONDITIONAL, .child = 4, .detail = NUMBERS(1, 70, 0, 1, 4));
    WRITE(graph, .id = 3, .origin = GV_GRAPH_BODY, .parent = 1, .parent_node = 1);
    WRITE(graph, .id = 4, .origin = GV_GRAPH_BODY, .parent = 2, .parent_node = 0);
    WRITE(node, .graph = 1, .index = 0, .kind = GV_NODE_CHILD);
    WRITE(node, .graph = 1, .index = 1, .kind = GV_NODE_CONDITIONAL, .child = 2, .detail = NUMBERS(0, 71, 1, 0, 2, 3));
}

static void test_conditional_nodes(void **state)
{
    gv_writer *writer = create("conditional");
    write_conditional(writer);
    for (uint64_t launch = 2; launch >= 1; launch--) {
        WRITE(operation, .sequence = launch, .kind = GV_OP_GRAPH_LAUNCH, .object = 1);
        WRITE(execution, .launch = launch, .id = 1, .graph = 2);
        WRITE(execution, .launch = launch, .id = 2, .parent = 1, .graph = 4);
        WRITE(execution, .launch = launch, .id = 3, .parent = 1, .graph = 4);
        WRITE(access, .launch = launch, .graph = 2, .node = 0, .execution = 1);
        WRITE(armed, .launch = launch, .exec = 1, .graph = 1);
    }
    gv_writer_close(writer);
    gv_trace *trace = load("conditional");
    assert_int_equal(trace->undefined, 0);
    size_t count;
    const uint64_t *bodies = gv_node_bodies(&trace->graphs[1].nodes[1], &count);
    assert_int_equal(count, 2);
    assert_int_equal(bodies[0], 2);
    assert_int_equal(bodies[1], 3);
    assert_null(gv_node_bodies(&trace->graphs[1].nodes[0], &count));
    assert_int_equal(count, 0);
    assert_int_equal(trace->execution_count, 6);
    assert_int_equal(trace->armed[0].launch, 2);
    assert_int_equal(trace->armed[0].execution_count, 3);
    assert_int_equal(trace->executions[trace->armed[0].first_execution].launch, 2);
    assert_int_equal(trace->executions[2].parent, 1);
    assert_int_equal(trace->executions[2].graph, 4);
    assert_int_equal(trace->accesses[0].execution, 1);
    gv_trace_free(trace);
}

// Bodies of other nodes, named twice or backwards, and executions without a parent, of no body or given twice.
static void test_hostile_conditional_nodes(void **state)
{
    gv_writer *writer = create("conditional-hostile");
    write_conditional(writer);
    WRITE(graph, .id = 5, .origin = GV_GRAPH_BUILT, .nodes = 1);
    WRITE(node, .graph = 5, .index = 0, .kind = GV_NODE_CONDITIONAL,
          .detail = NUMBERS(2, 1, 0, 0, 2, 9, 6, 6, 7, 1)); // 1 - 5
    WRITE(graph, .id = 6, .origin = GV_GRAPH_BODY, .parent = 5, .parent_node = 0);
    WRITE(graph, .id = 7, .origin = GV_GRAPH_CHILD, .parent = 5, .parent_node = 0);
    WRITE(operation, .sequence = 1, .kind = GV_OP_GRAPH_LAUNCH, .object = 1);
    WRITE(execution, .launch = 1, .id = 1, .graph = 2);
    WRITE(execution, .launch = 1, .id = 1, .graph = 3);              // 6
    WRITE(execution, .launch = 1, .id = 2, .parent = 2, .graph = 4); // 7
    WRITE(execution, .launch = 1, .id = 4, .parent = 3, .graph = 4); // 8
    WRITE(execution, .launch = 1, .id = 5, .graph = 1);              // 9
    WRITE(execution, .launch = 1, .id = 6, .graph = 99);             // 10
    WRITE(execution, .launch = 1, .id = 0, .graph = 2);              // 11
    WRITE(armed, .launch = 1, .exec = 1, .graph = 1);
    gv_writer_close(writer);
    gv_trace *trace = load("conditional-hostile");
    assert_int_equal(trace->undefined, 11);
    size_t count;
    const uint64_t *bodies = gv_node_bodies(&trace->graphs[5].nodes[0], &count);
    const uint64_t expected[] = {0, 0, 6, 0, 0, 0};
    assert_int_equal(count, 6);
    assert_memory_equal(bodies, expected, sizeof expected);
    assert_int_equal(trace->execution_count, 1);
    assert_int_equal(trace->armed[0].execution_count, 1);
    gv_trace_free(trace);
}

static void test_hostile_nesting(void **state)
{
    gv_writer *writer = create("nesting");
    WRITE(graph, .id = 1, .nodes = 1, .parent = 2);
    WRITE(node, .graph = 1, .index = 0, .kind = GV_NODE_CHILD, .child = 2);
    WRITE(graph, .id = 2, .nodes = 1, .parent = 1);
    WRITE(node, .graph = 2, .index = 0, .kind = GV_NODE_CHILD, .child = 1);
    for (uint64_t id = 3; id < 203; id++) {
        WRITE(graph, .id = id, .nodes = 2, .parent = id > 3 ? id - 1 : 0);
        WRITE(node, .graph = id, .index = 0, .kind = GV_NODE_CHILD, .child = id + 1);
        WRITE(node, .graph = id, .index = 1, .kind = GV_NODE_CHILD, .child = id + 1);
    }
    gv_writer_close(writer);
    gv_trace *trace = load("nesting");
    assert_true(trace->undefined > 0);
    size_t deepest = 0;
    for (size_t id = 1; id < trace->graph_count; id++) {
        size_t depth = 0;
        for (uint64_t above = trace->graphs[id].parent; above; above = trace->graphs[above].parent)
            assert_true(++depth < 100);
        deepest = depth > deepest ? depth : deepest;
        size_t named = 0;
        for (size_t other = 1; other < trace->graph_count; other++)
            for (size_t i = 0; i < trace->graphs[other].node_count; i++)
                named += trace->graphs[other].nodes[i].child == id;
        assert_true(named <= 1);
    }
    assert_in_range(deepest, 8, 64);
    gv_trace_free(trace);
}

// Enumerators of a later minor version read as what promises least.
static void test_unknown_enumerators(void **state)
{
    gv_writer *writer = create("enumerators");
    WRITE(stream, .id = 1, .kind = 77);
    WRITE(operation, .sequence = 1, .kind = 1000);
    WRITE(graph, .id = 1, .nodes = 1, .origin = 9);
    WRITE(node, .graph = 1, .index = 0, .kind = UINT64_MAX);
    WRITE(access, .launch = 1, .graph = 1, .node = 0, .precision = 12, .source = 99, .wait = 8, .trigger = 9);
    WRITE(armed, .launch = 1, .graph = 1, .status = 5);
    WRITE(note, .severity = 6, .text = TEXT("?"));
    WRITE(allocation, .id = 1, .kind = 1ull << 32);
    gv_writer_close(writer);
    gv_trace *trace = load("enumerators");
    assert_null(trace->truncation);
    assert_int_equal(trace->streams[1].kind, GV_STREAM_NON_BLOCKING);
    assert_int_equal(trace->operations[0].kind, GV_OP_NONE);
    assert_int_equal(trace->graphs[1].nodes[0].kind, INT_MAX);
    assert_int_equal(trace->accesses[0].precision, GV_PRECISION_INCOMPLETE);
    assert_int_equal(trace->accesses[0].source, GV_SOURCE_NONE);
    assert_int_equal(trace->accesses[0].wait, GV_GRID_WAIT_UNKNOWN);
    assert_int_equal(trace->accesses[0].trigger, GV_GRID_TRIGGER_UNKNOWN);
    assert_int_equal(trace->armed[0].status, GV_ARMED_FAILED);
    assert_int_equal(trace->notes[0].severity, GV_NOTE_INCOMPLETE);
    assert_int_equal(trace->allocations[1].kind, GV_ALLOCATION_DEVICE);
    gv_trace_free(trace);
}

// Records that decode but break a rule end the reading there, and the trace says which and why.
static void test_rule_breakers(void **state)
{
    struct {
        const char *why;
        gv_status (*write)(gv_writer *, const void *);
        const void *record;
    } cases[] = {
#define CASE(why, name, ...)                                                                 \
    {                                                                                        \
        why, (gv_status(*)(gv_writer *, const void *))gv_write_##name, &(gv_##name##_record) \
        {                                                                                    \
            __VA_ARGS__                                                                      \
        }                                                                                    \
    }
        CASE("past the end", allocation, .id = 1, .address = UINT64_MAX, .size = 2),
        CASE("part of a frame", stack, .id = 1, .host = NUMBERS(1, 2, 3)),
        CASE("part of a frame", stack, .id = 1, .python = NUMBERS(1, 2, 3, 4)),
        CASE("no graph", node, .index = 0),
        CASE("next of its graph", node, .graph = 1, .index = 1),
        CASE("more edges", edges, .graph = 1, .items = NUMBERS(0, 1, 0)),
        CASE("more edges", edges, .graph = 1, .items = NUMBERS(0, 0, 0, 0, 0, 0, 0, 0)),
        CASE("out of range", edges, .graph = 1, .items = NUMBERS(0, 1ull << 32, 0, 0)),
        CASE("out of range", edges, .graph = 1, .items = NUMBERS(0, 1, 256, 0)),
        CASE("range 0", access, .launch = 1, .graph = 1, .reads = {(const uint8_t *)"\x01\x00", 2}),
        CASE("range 1", access, .launch = 1, .graph = 1, .atomics = {(const uint8_t *)"\x01\x01\x00\x01", 4}),
        CASE("range 0", access, .launch = 1, .graph = 1, .early_atomics = {(const uint8_t *)"\x01\x00", 2}),
        CASE("no graph can have", access, .launch = 1, .graph = 1, .node = 1ull << 32),
        CASE("described twice", process, .pid = 3),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gv_writer *writer = create("rules");
        WRITE(process, .pid = 2);
        WRITE(graph, .id = 1, .nodes = 1, .edges = 1);
        assert_int_equal(cases[i].write(writer, cases[i].record), GV_OK);
        WRITE(end, .time_ns = 1);
        gv_writer_close(writer);
        gv_trace *trace = load("rules");
        assert_non_null(trace->truncation);
        if (!strstr(trace->truncation, cases[i].why))
            fail_msg("case %zu says: %s", i, trace->truncation);
        assert_non_null(strstr(trace->truncation, "record 2"));
        assert_false(trace->ended);
        assert_int_equal(trace->process.pid, 2);
        gv_trace_free(trace);
    }
}

// Every allocation of a load fails in turn: the load reports memory, leaks nothing (the address sanitizer looks) and
// succeeds when the last one is allowed.
static void test_memory_failure(void **state)
{
    gv_writer *writer = create("memory");
    write_sample(writer);
    write_small_graph(writer, 3, 2);
    write_ranges(writer, 8, 1, 0, 0x1000, 3); // runs apart, an unfinished launch: every path of armed.c
    write_ranges(writer, 9, 1, 0, 0x1000, 3);
    write_ranges(writer, 8, 1, 1, 0x1000, 3);
    WRITE(stack, .id = 3, .python = NUMBERS(9, 9, 1));
    gv_writer_close(writer);
    file_bytes file = read_file(scratch("memory"));
    gv_status status = GV_ERR_MEMORY;
    long allowed = 0;
    for (; status != GV_OK; allowed++) {
        assert_true(allowed < 10000);
        for (int from_file = 0; from_file < 2; from_file++) {
            gv_trace *trace;
            gv_error error = {0};
            const char *path = scratch("memory");
            gv_memory_fail_after(allowed);
            status = from_file ? gv_trace_load(path, &trace, &error)
                               : gv_trace_load_memory(file.data, file.size, "memory", &trace, &error);
            gv_memory_fail_after(-1);
            if (status == GV_OK) {
                gv_trace_free(trace);
            } else {
                assert_int_equal(status, GV_ERR_MEMORY);
                assert_int_equal(error.status, GV_ERR_MEMORY);
                assert_true(error.text[0]);
                assert_null(trace);
            }
        }
    }
    assert_true(allowed > 40);
    free(file.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sample),
        cmocka_unit_test(test_allocation_at),
        cmocka_unit_test(test_allocation_at_random),
        cmocka_unit_test(test_dangling_references),
        cmocka_unit_test(test_late_definitions),
        cmocka_unit_test(test_huge_ids_and_counts),
        cmocka_unit_test(test_operations_out_of_order),
        cmocka_unit_test(test_armed_launches),
        cmocka_unit_test(test_conditional_nodes),
        cmocka_unit_test(test_hostile_conditional_nodes),
        cmocka_unit_test(test_hostile_nesting),
        cmocka_unit_test(test_unknown_enumerators),
        cmocka_unit_test(test_rule_breakers),
        cmocka_unit_test(test_memory_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
