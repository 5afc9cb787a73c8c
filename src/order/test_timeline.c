// The ten rules of docs/order.md. Each has a pair: operations that it orders, and the same without the ordering
// operation, which stay unordered. test_timeline_random.c compares random programs with a plain graph of operations.
#include "base/memory.h"
#include "order/test_machine.h"

// ---- Rule 1 -----------------------------------------------------------------------------------------------------

static void test_1_one_stream_is_first_in_first_out(void **state)
{
    machine *m = start();
    uint64_t a = KERNEL(m, A), b = KERNEL(m, A), c = KERNEL(m, B);
    assert_ordered(m, a, b);
    assert_unordered(m, a, c);
    assert_false(before(m, a, a));
    assert_false(before(m, a, 12345));
    finish(m);
}

static void test_1_a_captured_stream_orders_nothing(void **state)
{
    for (int captured = 0; captured < 2; captured++) {
        machine *m = start();
        if (captured)
            ADD(m, .kind = GV_OP_CAPTURE_BEGIN, .stream = A);
        uint64_t a = KERNEL(m, A);
        ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = A, .object = 7);
        // The wait draws stream B into the capture.
        ADD(m, .kind = GV_OP_EVENT_WAIT, .stream = B, .object = 7);
        uint64_t b = KERNEL(m, B);
        if (captured)
            ADD(m, .kind = GV_OP_CAPTURE_END, .stream = A, .object = 1);
        uint64_t after_a = KERNEL(m, A), after_b = KERNEL(m, B);
        if (captured) {
            assert_unordered(m, a, b);
            assert_unordered(m, a, after_a);
            assert_unordered(m, b, after_b);
        } else {
            assert_ordered(m, a, b);
            assert_ordered(m, a, after_a);
            assert_ordered(m, b, after_b);
        }
        finish(m);
    }
}

static void test_1_streams_work_again_after_a_capture(void **state)
{
    machine *m = start();
    ADD(m, .kind = GV_OP_CAPTURE_BEGIN, .stream = A);
    ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = A, .object = 7);
    ADD(m, .kind = GV_OP_CAPTURE_END, .stream = A);
    uint64_t a = KERNEL(m, A);
    // The event was recorded into a capture that is over: waiting for it says nothing and captures nothing.
    ADD(m, .kind = GV_OP_EVENT_WAIT, .stream = B, .object = 7);
    uint64_t b = KERNEL(m, B), c = KERNEL(m, B);
    assert_unordered(m, a, b);
    assert_ordered(m, b, c);
    finish(m);
}

static void test_1_a_record_outside_takes_the_event_out_of_a_capture(void **state)
{
    machine *m = start();
    ADD(m, .kind = GV_OP_CAPTURE_BEGIN, .stream = A);
    ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = A, .object = 7);
    uint64_t c = KERNEL(m, C);
    ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = C, .object = 7);
    ADD(m, .kind = GV_OP_EVENT_WAIT, .stream = B, .object = 7);
    uint64_t b = KERNEL(m, B);
    ADD(m, .kind = GV_OP_CAPTURE_END, .stream = A);
    assert_ordered(m, c, b);
    finish(m);
}

// ---- Rule 2 -----------------------------------------------------------------------------------------------------

static void test_2_a_wait_follows_the_record(void **state)
{
    for (int waits = 0; waits < 2; waits++) {
        machine *m = start();
        uint64_t a = KERNEL(m, A);
        ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = A, .object = 7);
        uint64_t behind = KERNEL(m, A), earlier = KERNEL(m, B);
        if (waits)
            ADD(m, .kind = GV_OP_EVENT_WAIT, .stream = B, .object = 7);
        uint64_t b = KERNEL(m, B);
        if (waits)
            assert_ordered(m, a, b);
        else
            assert_unordered(m, a, b);
        assert_unordered(m, behind, b);
        assert_unordered(m, a, earlier);
        finish(m);
    }
}

static void test_2_a_record_too_early_covers_nothing(void **state)
{
    machine *m = start();
    ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = A, .object = 7);
    uint64_t a = KERNEL(m, A);
    ADD(m, .kind = GV_OP_EVENT_WAIT, .stream = B, .object = 7);
    uint64_t b = KERNEL(m, B);
    assert_unordered(m, a, b);
    finish(m);
}

static void test_2_recording_again_does_not_move_earlier_waits(void **state)
{
    machine *m = start();
    uint64_t a = KERNEL(m, A);
    ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = A, .object = 7);
    ADD(m, .kind = GV_OP_EVENT_WAIT, .stream = B, .object = 7);
    uint64_t c = KERNEL(m, C);
    ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = C, .object = 7);
    uint64_t b = KERNEL(m, B);
    ADD(m, .kind = GV_OP_EVENT_WAIT, .stream = FREE, .object = 7);
    uint64_t d = KERNEL(m, FREE);
    assert_ordered(m, a, b);
    assert_unordered(m, c, b);
    // A wait made after the second record is bound to that one alone.
    assert_ordered(m, c, d);
    assert_unordered(m, a, d);
    finish(m);
}

static void test_2_an_event_never_recorded_is_no_wait(void **state)
{
    machine *m = start();
    uint64_t a = KERNEL(m, A);
    uint64_t wait = ADD(m, .kind = GV_OP_EVENT_WAIT, .stream = B, .object = 7);
    ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = A, .object = 7);
    uint64_t b = KERNEL(m, B);
    assert_unordered(m, a, b);
    assert_ordered(m, wait, b);
    finish(m);
}

// ---- Rule 3 -----------------------------------------------------------------------------------------------------

static void test_3_the_legacy_stream_orders_both_ways(void **state)
{
    machine *m = start();
    uint64_t a = KERNEL(m, A), free_before = KERNEL(m, FREE), mine = KERNEL(m, PER_THREAD);
    uint64_t elsewhere = KERNEL(m, ELSEWHERE);
    uint64_t legacy = KERNEL(m, LEGACY);
    uint64_t b = KERNEL(m, B), free_after = KERNEL(m, FREE), mine_after = KERNEL(m, PER_THREAD);
    uint64_t elsewhere_after = KERNEL(m, ELSEWHERE);
    assert_ordered(m, a, legacy);
    assert_ordered(m, legacy, b);
    assert_ordered(m, a, b);
    // A per-thread default stream is an ordinary blocking stream.
    assert_ordered(m, mine, legacy);
    assert_ordered(m, legacy, mine_after);
    // Not with non-blocking streams, nor with another context's.
    assert_unordered(m, free_before, legacy);
    assert_unordered(m, legacy, free_after);
    assert_unordered(m, elsewhere, legacy);
    assert_unordered(m, legacy, elsewhere_after);
    finish(m);
}

static void test_3_without_the_legacy_stream_between_nothing_is_ordered(void **state)
{
    machine *m = start();
    uint64_t a = KERNEL(m, A), other = KERNEL(m, LEGACY_ELSEWHERE), b = KERNEL(m, B), mine = KERNEL(m, PER_THREAD);
    assert_unordered(m, a, b);
    assert_unordered(m, a, mine);
    assert_unordered(m, a, other);
    finish(m);
}

static void test_3_recording_on_the_legacy_stream_covers_blocking_streams(void **state)
{
    for (int legacy = 0; legacy < 2; legacy++) {
        machine *m = start();
        uint64_t a = KERNEL(m, A);
        ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = legacy ? LEGACY : B, .object = 7);
        ADD(m, .kind = GV_OP_EVENT_WAIT, .stream = FREE, .object = 7);
        uint64_t b = KERNEL(m, FREE);
        assert_int_equal(before(m, a, b), legacy);
        finish(m);
    }
}

// ---- Rule 4 -----------------------------------------------------------------------------------------------------

// Does `op`, between a kernel on A and one on FREE, order the two?
static bool host_orders(gv_operation op, uint64_t second_thread, bool strict)
{
    machine *m = start();
    m->strict = strict;
    uint64_t a = KERNEL(m, A);
    ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = A, .object = 7);
    uint64_t behind = KERNEL(m, A);
    uint64_t sync = op.kind ? add(m, op) : 0;
    uint64_t b = ADD(m, .kind = GV_OP_KERNEL, .stream = FREE, .thread = second_thread);
    bool ordered = before(m, a, b);
    assert_false(before(m, b, a));
    if (sync) {
        // The call's own work begins when what it waits for is complete.
        assert_int_equal(before(m, a, sync), ordered || strict);
        bool all = op.kind != GV_OP_EVENT_SYNC && op.kind != GV_OP_EVENT_QUERY;
        assert_int_equal(before(m, behind, b), ordered && all);
    }
    finish(m);
    return ordered;
}

static void test_4_host_synchronisation(void **state)
{
    const gv_operation calls[] = {
        {.kind = GV_OP_STREAM_SYNC, .stream = A},      {.kind = GV_OP_STREAM_QUERY, .stream = A},
        {.kind = GV_OP_STREAM_SYNC, .stream = LEGACY}, {.kind = GV_OP_EVENT_SYNC, .object = 7},
        {.kind = GV_OP_EVENT_QUERY, .object = 7},      {.kind = GV_OP_CONTEXT_SYNC, .object = 1},
    };
    assert_false(host_orders((gv_operation){0}, 1, false));
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        assert_true(host_orders(calls[i], 1, false));
        // On any thread, unless threads are strict.
        assert_true(host_orders(calls[i], 2, false));
        assert_true(host_orders(calls[i], 1, true));
        assert_false(host_orders(calls[i], 2, true));
    }
}

static void test_4_synchronising_something_else_orders_nothing(void **state)
{
    const gv_operation calls[] = {
        {.kind = GV_OP_STREAM_SYNC, .stream = B},   {.kind = GV_OP_EVENT_SYNC, .object = 8},
        {.kind = GV_OP_CONTEXT_SYNC, .object = 2},  {.kind = GV_OP_STREAM_DESTROY, .stream = A},
        {.kind = GV_OP_EVENT_DESTROY, .object = 7},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        machine *m = start();
        uint64_t a = KERNEL(m, A);
        add(m, calls[i]);
        uint64_t b = KERNEL(m, FREE);
        assert_unordered(m, a, b);
        finish(m);
    }
}

static void test_4_work_enqueued_before_the_call_returned_is_not_ordered(void **state)
{
    machine *m = start();
    uint64_t a = KERNEL(m, A), b = KERNEL(m, B);
    ADD(m, .kind = GV_OP_STREAM_SYNC, .stream = A);
    uint64_t c = KERNEL(m, B);
    assert_unordered(m, a, b);
    assert_ordered(m, a, c);
    finish(m);
}

// ---- Rule 5 -----------------------------------------------------------------------------------------------------

static void test_5_graph_launches(void **state)
{
    machine *m = start();
    uint64_t a = KERNEL(m, A);
    uint64_t first = ADD(m, .kind = GV_OP_GRAPH_LAUNCH, .stream = A, .object = 1);
    uint64_t b = KERNEL(m, A);
    uint64_t again = ADD(m, .kind = GV_OP_GRAPH_LAUNCH, .stream = B, .object = 1);
    uint64_t other = ADD(m, .kind = GV_OP_GRAPH_LAUNCH, .stream = C, .object = 2);
    uint64_t behind = KERNEL(m, B);
    assert_ordered(m, a, first);
    assert_ordered(m, first, b);
    // Two launches of one exec follow each other on whatever streams; launches of two execs do not.
    assert_ordered(m, first, again);
    assert_ordered(m, a, again);
    assert_ordered(m, first, behind);
    assert_unordered(m, first, other);
    assert_unordered(m, b, again);
    finish(m);
}

// A graph with one event node of the given kind, launched on B, between a kernel on A and one on C.
static machine *launch_with_event_node(enum gv_node_kind kind)
{
    machine *m = start();
    m->events_of_nodes[0] = 7;
    m->nodes[0] = (gv_node){.kind = kind, .detail = {m->events_of_nodes, 1}};
    m->graphs[1] = (gv_graph){.id = 1, .nodes = m->nodes, .node_count = 1, .whole = true};
    m->versions[0] = (gv_exec_version){.exec = 1, .graph = 1, .operation = 0};
    m->trace.exec_version_count = 1;
    return m;
}

static void test_5_event_nodes_of_a_graph(void **state)
{
    for (int is_event = 0; is_event < 2; is_event++) {
        // A wait node: what follows the launch follows the event.
        machine *m = launch_with_event_node(is_event ? GV_NODE_EVENT_WAIT : GV_NODE_EMPTY);
        uint64_t a = KERNEL(m, A);
        ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = A, .object = 7);
        uint64_t launch = ADD(m, .kind = GV_OP_GRAPH_LAUNCH, .stream = B, .object = 1);
        uint64_t b = KERNEL(m, B);
        assert_unordered(m, a, launch);
        assert_int_equal(before(m, a, b), is_event);
        finish(m);

        // A record node: what came before the launch is complete when the event is, and the event's earlier record
        // is gone.
        m = launch_with_event_node(is_event ? GV_NODE_EVENT_RECORD : GV_NODE_EMPTY);
        a = KERNEL(m, A);
        ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = A, .object = 7);
        b = KERNEL(m, B);
        launch = ADD(m, .kind = GV_OP_GRAPH_LAUNCH, .stream = B, .object = 1);
        ADD(m, .kind = GV_OP_EVENT_WAIT, .stream = C, .object = 7);
        uint64_t c = KERNEL(m, C);
        assert_int_equal(before(m, b, c), is_event);
        assert_int_equal(before(m, a, c), !is_event);
        assert_unordered(m, launch, c);
        finish(m);
    }
}

// ---- Rule 7 -----------------------------------------------------------------------------------------------------

// Is the copy itself, and is what came before it in its stream, ordered before a later kernel on another stream?
static void copy_orders(unsigned flags, bool copy_is, bool stream_is)
{
    machine *m = start();
    uint64_t a = KERNEL(m, A);
    uint64_t copy = ADD(m, .kind = GV_OP_MEMCPY, .stream = A, .size = 64, .flags = flags);
    uint64_t b = KERNEL(m, FREE);
    assert_int_equal(before(m, copy, b), copy_is);
    assert_int_equal(before(m, a, b), stream_is);
    finish(m);
}

static void test_7_copies_with_the_host(void **state)
{
    const unsigned from = GV_COPY_FROM_HOST, to = GV_COPY_TO_HOST, pageable = GV_COPY_PAGEABLE;
    const unsigned synchronous = GV_COPY_SYNCHRONOUS;
    // A synchronous copy from page-locked memory and any synchronous copy to the host return when they are done.
    copy_orders(synchronous | from, true, true);
    copy_orders(synchronous | to, true, true);
    copy_orders(synchronous | to | pageable, true, true);
    // From pageable memory: what was in the stream is done, the copy is only staged.
    copy_orders(synchronous | from | pageable, false, true);
    // Between host and host every copy returns when it is done, asynchronous by name or not.
    copy_orders(synchronous | from | to, true, true);
    copy_orders(from | to | pageable, true, true);
    // Within the device none does.
    copy_orders(synchronous, false, false);
    copy_orders(0, false, false);
    // Asynchronous copies with host memory may return early.
    copy_orders(from, false, false);
    copy_orders(to, false, false);
    copy_orders(from | pageable, false, false);
    copy_orders(to | pageable, false, false);
    // What the recorder could not classify is not relied on.
    copy_orders(synchronous | to | GV_COPY_UNKNOWN, false, false);
}

static void test_7_sets(void **state)
{
    for (int host_memory = 0; host_memory < 2; host_memory++) {
        machine *m = start();
        uint64_t set = ADD(m, .kind = GV_OP_MEMSET, .stream = A, .size = 64,
                           .flags = GV_COPY_SYNCHRONOUS | (host_memory ? GV_COPY_TO_HOST : 0));
        uint64_t b = KERNEL(m, FREE);
        assert_int_equal(before(m, set, b), host_memory);
        finish(m);
    }
}

// ---- Rule 8 -----------------------------------------------------------------------------------------------------

static void test_8_host_functions_run_in_stream_order(void **state)
{
    machine *m = start();
    uint64_t a = KERNEL(m, A), function = ADD(m, .kind = GV_OP_HOST_FUNCTION, .stream = A), b = KERNEL(m, A);
    uint64_t other = ADD(m, .kind = GV_OP_HOST_FUNCTION, .stream = B);
    assert_ordered(m, a, function);
    assert_ordered(m, function, b);
    assert_unordered(m, function, other);
    finish(m);
}

#define WRITE(m, on, number) ADD(m, .kind = GV_OP_VALUE_WRITE, .stream = on, .address = 64, .value = number, .size = 4)
#define WAIT(m, on, number, how) \
    ADD(m, .kind = GV_OP_VALUE_WAIT, .stream = on, .address = 64, .value = number, .size = 4, .flags = how)

static void test_8_a_value_wait_follows_the_write(void **state)
{
    for (int writes = 0; writes < 2; writes++) {
        machine *m = start();
        uint64_t a = KERNEL(m, A);
        if (writes)
            WRITE(m, A, 1);
        uint64_t behind = KERNEL(m, A);
        WAIT(m, B, 1, 0);
        uint64_t b = KERNEL(m, B);
        // And so does what is ordered behind the wait by other means.
        ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = B, .object = 7);
        ADD(m, .kind = GV_OP_EVENT_WAIT, .stream = C, .object = 7);
        uint64_t c = KERNEL(m, C);
        assert_int_equal(before(m, a, b), writes);
        assert_int_equal(before(m, a, c), writes);
        assert_unordered(m, behind, b);
        finish(m);
    }
}

static void test_8_the_write_may_come_later_than_the_wait(void **state)
{
    machine *m = start();
    WAIT(m, B, 1, 0);
    uint64_t b = KERNEL(m, B), a = KERNEL(m, A);
    WRITE(m, A, 1);
    assert_ordered(m, a, b);
    finish(m);
}

static void test_8_conditions(void **state)
{
    static const struct {
        uint32_t written, waited;
        unsigned how;
        bool met;
    } cases[] = {
        {5, 5, 0, true},
        {6, 5, 0, true},
        {4, 5, 0, false},
        {2, 0xfffffffe, 0, true}, // cyclic
        {5, 5, 1, true},
        {6, 5, 1, false},
        {6, 3, 2, true},
        {4, 3, 2, false},
        {0xfffffff0, 0xf, 3, false},
        {0xffffff00, 0xf, 3, true},
        {6, 3, 1u << 30 | 2, true}, // with a flush of remote writes
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        machine *m = start();
        uint64_t a = KERNEL(m, A);
        WRITE(m, A, cases[i].written);
        WAIT(m, B, cases[i].waited, cases[i].how);
        uint64_t b = KERNEL(m, B);
        assert_int_equal(before(m, a, b), cases[i].met);
        finish(m);
    }
}

static void test_8_only_what_precedes_every_possible_write_is_certain(void **state)
{
    machine *m = start();
    uint64_t both = KERNEL(m, A);
    ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = A, .object = 7);
    uint64_t a = KERNEL(m, A);
    WRITE(m, A, 1);
    ADD(m, .kind = GV_OP_EVENT_WAIT, .stream = C, .object = 7);
    uint64_t c = KERNEL(m, C);
    WRITE(m, C, 1);
    WAIT(m, B, 1, 0);
    uint64_t b = KERNEL(m, B);
    assert_unordered(m, a, b);
    assert_unordered(m, c, b);
    assert_ordered(m, both, b);
    finish(m);
}

static void test_8_an_overwritten_value_cannot_satisfy(void **state)
{
    for (int overwritten = 0; overwritten < 2; overwritten++) {
        machine *m = start();
        WRITE(m, A, 1);
        ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = A, .object = 7);
        uint64_t c = KERNEL(m, C);
        // On C a second write satisfies too. If the first is overwritten before the wait begins, it must be this one.
        if (overwritten) {
            ADD(m, .kind = GV_OP_EVENT_WAIT, .stream = B, .object = 7);
            WRITE(m, B, 0);
        }
        WAIT(m, B, 1, 1);
        uint64_t b = KERNEL(m, B);
        WRITE(m, C, 1);
        assert_int_equal(before(m, c, b), overwritten);
        finish(m);
    }
}

static void test_8_a_write_behind_the_wait_cannot_satisfy(void **state)
{
    machine *m = start();
    uint64_t a = KERNEL(m, A);
    WRITE(m, A, 1);
    WAIT(m, B, 1, 0);
    // Behind the wait in its own stream, and by way of an event in another.
    WRITE(m, B, 1);
    ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = B, .object = 7);
    ADD(m, .kind = GV_OP_EVENT_WAIT, .stream = C, .object = 7);
    WRITE(m, C, 1);
    uint64_t b = KERNEL(m, B);
    assert_ordered(m, a, b);
    finish(m);
}

static void test_8_a_write_without_barrier_carries_nothing(void **state)
{
    machine *m = start();
    uint64_t a = KERNEL(m, A);
    ADD(m, .kind = GV_OP_VALUE_WRITE, .stream = A, .address = 64, .value = 1, .size = 4, .flags = 1);
    WAIT(m, B, 1, 0);
    uint64_t b = KERNEL(m, B);
    assert_unordered(m, a, b);
    finish(m);
}

static void test_8_waits_that_lead_back_and_forth_between_streams(void **state)
{
    // A to B to C to FREE, each step by a word of its own; the waits are enqueued in an order that lets none be
    // settled from those before it.
    machine *m = start();
    uint64_t a = KERNEL(m, A);
    ADD(m, .kind = GV_OP_VALUE_WAIT, .stream = B, .address = 64, .value = 1, .size = 8);
    ADD(m, .kind = GV_OP_VALUE_WAIT, .stream = FREE, .address = 192, .value = 1, .size = 8);
    ADD(m, .kind = GV_OP_VALUE_WAIT, .stream = C, .address = 128, .value = 1, .size = 8);
    uint64_t b = KERNEL(m, FREE);
    ADD(m, .kind = GV_OP_VALUE_WRITE, .stream = C, .address = 192, .value = 1, .size = 8);
    ADD(m, .kind = GV_OP_VALUE_WRITE, .stream = B, .address = 128, .value = 1, .size = 8);
    ADD(m, .kind = GV_OP_VALUE_WRITE, .stream = A, .address = 64, .value = 1, .size = 8);
    assert_ordered(m, a, b);
    finish(m);
}

static void test_8_waits_in_turn_and_a_thousand_of_them(void **state)
{
    // A counts up; B waits for each number and passes it on to C by a second word.
    enum { STEPS = 500 };
    machine *m = start();
    uint64_t a[STEPS], c[STEPS];
    for (uint32_t i = 0; i < STEPS; i++) {
        a[i] = KERNEL(m, A);
        WRITE(m, A, i + 1);
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        ADD(m, .kind = GV_OP_VALUE_WAIT, .stream = C, .address = 128, .value = i + 1, .size = 4);
        c[i] = KERNEL(m, C);
        WAIT(m, B, i + 1, 0);
        ADD(m, .kind = GV_OP_VALUE_WRITE, .stream = B, .address = 128, .value = i + 1, .size = 4);
    }
    for (uint32_t i = 0; i < STEPS; i += 83) {
        assert_ordered(m, a[i], c[i]);
        if (i + 1 < STEPS)
            assert_unordered(m, a[i + 1], c[i]);
    }
    finish(m);
}

// ---- Rule 9 -----------------------------------------------------------------------------------------------------

static void test_9_a_life_lies_between_allocation_and_free(void **state)
{
    machine *m = start();
    m->allocations[1] = (gv_allocation){.address = 4096, .size = 64};
    uint64_t alloc = ADD(m, .kind = GV_OP_ALLOC, .stream = A, .object = 1);
    uint64_t a = KERNEL(m, A), b = KERNEL(m, B);
    uint64_t end = ADD(m, .kind = GV_OP_FREE, .stream = A, .object = 1);
    assert_ordered(m, alloc, a);
    assert_ordered(m, a, end);
    // Another stream that waits for nothing may run before the allocation and after the free.
    assert_unordered(m, alloc, b);
    assert_unordered(m, b, end);
    finish(m);
}

static void test_9_reused_addresses_begin_a_new_life(void **state)
{
    for (int reused = 0; reused < 2; reused++) {
        machine *m = start();
        m->allocations[1] = (gv_allocation){.address = 4096, .size = 64};
        m->allocations[2] = (gv_allocation){.address = reused ? 4096 + 32 : 4096 + 64, .size = 128};
        ADD(m, .kind = GV_OP_ALLOC, .stream = A, .object = 1);
        uint64_t a = KERNEL(m, A);
        uint64_t end = ADD(m, .kind = GV_OP_FREE, .stream = A, .object = 1);
        uint64_t alloc = ADD(m, .kind = GV_OP_ALLOC, .stream = B, .object = 2);
        uint64_t b = KERNEL(m, B);
        if (reused) {
            assert_ordered(m, end, alloc);
            assert_ordered(m, a, b);
        } else {
            assert_unordered(m, end, alloc);
            assert_unordered(m, a, b);
        }
        finish(m);
    }
}

static void test_9_an_ordinary_allocation_precedes_and_an_ordinary_free_orders_nothing(void **state)
{
    machine *m = start();
    m->allocations[1] = (gv_allocation){.address = 4096, .size = 64};
    uint64_t alloc = ADD(m, .kind = GV_OP_ALLOC, .object = 1);
    uint64_t a = KERNEL(m, A);
    uint64_t end = ADD(m, .kind = GV_OP_FREE, .object = 1);
    uint64_t b = KERNEL(m, B);
    assert_ordered(m, alloc, a);
    // CUDA says of cuMemFree only that it may synchronize.
    assert_unordered(m, a, end);
    assert_unordered(m, a, b);
    assert_ordered(m, end, b);
    finish(m);
}

// ---- What the host declares -------------------------------------------------------------------------------------

static void test_declared_order_between_threads(void **state)
{
    for (int declared = 0; declared < 2; declared++) {
        machine *m = start();
        m->strict = true;
        uint64_t a = KERNEL(m, A);
        ADD(m, .kind = GV_OP_STREAM_SYNC, .stream = A, .thread = 1);
        ADD(m, .kind = GV_OP_HOST_ORDER, .object = 3, .flags = 0, .thread = 1);
        ADD(m, .kind = GV_OP_HOST_ORDER, .object = declared ? 3 : 4, .flags = 1, .thread = 2);
        uint64_t b = ADD(m, .kind = GV_OP_KERNEL, .stream = FREE, .thread = 2);
        assert_int_equal(before(m, a, b), declared);
        finish(m);
    }
}

// ---- Robustness -------------------------------------------------------------------------------------------------

static void test_operations_must_come_in_order(void **state)
{
    machine *m = start();
    gv_error error = {0};
    assert_int_equal(gv_timeline_create(&m->trace, NULL, &m->timeline, &error), GV_OK);
    gv_operation op = {.sequence = 5, .kind = GV_OP_KERNEL, .stream = A};
    assert_int_equal(gv_timeline_add(m->timeline, &op, &error), GV_OK);
    assert_int_equal(gv_timeline_add(m->timeline, &op, &error), GV_ERR_USAGE);
    finish(m);
}

static void test_unknown_streams_and_ids_order_nothing(void **state)
{
    machine *m = start();
    uint64_t a = KERNEL(m, 0), b = KERNEL(m, 12345678), c = KERNEL(m, 0);
    uint64_t none = ADD(m, .kind = GV_OP_NONE, .stream = A);
    ADD(m, .kind = GV_OP_CONTEXT_SYNC, .object = 99999);
    ADD(m, .kind = GV_OP_STREAM_SYNC, .stream = 99999);
    ADD(m, .kind = GV_OP_FREE, .object = 99999);
    ADD(m, .kind = GV_OP_CAPTURE_END, .stream = 99999);
    uint64_t launch = ADD(m, .kind = GV_OP_GRAPH_LAUNCH, .stream = A, .object = UINT64_MAX - 1);
    uint64_t d = KERNEL(m, A);
    assert_unordered(m, a, b);
    assert_unordered(m, a, c);
    assert_unordered(m, none, d);
    assert_ordered(m, launch, d);
    finish(m);
}

// Synchronising at every step keeps clocks short: memory grows with the steps, not with steps times streams.
static void test_many_steps(void **state)
{
    machine *m = start();
    gv_error error = {0};
    assert_int_equal(gv_timeline_create(&m->trace, NULL, &m->timeline, &error), GV_OK);
    gv_operation op = {.sequence = 1};
    for (unsigned step = 0; step < 100000; step++) {
        op.stream = A + step % 4;
        op.kind = GV_OP_KERNEL;
        assert_int_equal(gv_timeline_add(m->timeline, &op, &error), GV_OK);
        op.sequence++;
        op.kind = GV_OP_STREAM_SYNC;
        assert_int_equal(gv_timeline_add(m->timeline, &op, &error), GV_OK);
        op.sequence++;
    }
    assert_true(gv_timeline_before(m->timeline, 1, 199999));
    assert_true(gv_timeline_before(m->timeline, 199997, 199999));
    finish(m);
}

static void test_memory_failures_are_reported(void **state)
{
    machine *m = launch_with_event_node(GV_NODE_EVENT_RECORD);
    m->allocations[1] = (gv_allocation){.address = 4096, .size = 64};
    for (int i = 0; i < 3; i++) {
        KERNEL(m, A);
        ADD(m, .kind = GV_OP_EVENT_RECORD, .stream = A, .object = 7);
        ADD(m, .kind = GV_OP_EVENT_WAIT, .stream = B, .object = 7);
        ADD(m, .kind = GV_OP_GRAPH_LAUNCH, .stream = B, .object = 1);
        ADD(m, .kind = GV_OP_ALLOC, .stream = A, .object = 1);
        ADD(m, .kind = GV_OP_FREE, .stream = A, .object = 1);
        KERNEL(m, LEGACY);
        WRITE(m, A, 1);
        WAIT(m, B, 1, 0);
        ADD(m, .kind = GV_OP_CONTEXT_SYNC, .object = 1);
        ADD(m, .kind = GV_OP_HOST_ORDER, .object = 1);
        ADD(m, .kind = GV_OP_CAPTURE_BEGIN, .stream = C);
        ADD(m, .kind = GV_OP_CAPTURE_END, .stream = C);
    }
    bool succeeded = false;
    for (long allowed = 0; !succeeded; allowed++) {
        gv_timeline *timeline;
        gv_error error = {0};
        gv_memory_fail_after(allowed);
        gv_status status = gv_timeline_create(&m->trace, NULL, &timeline, &error);
        if (!status)
            status = gv_timeline_add_all(timeline, &error);
        succeeded = status == GV_OK;
        if (succeeded)
            // The answer to a question needs memory too; without it, less is ordered.
            gv_timeline_before(timeline, 10, 390);
        gv_memory_fail_after(-1);
        if (!succeeded)
            assert_int_equal(status, GV_ERR_MEMORY);
        gv_timeline_free(timeline);
        assert_true(allowed < 1000);
    }
    finish(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_1_one_stream_is_first_in_first_out),
        cmocka_unit_test(test_1_a_captured_stream_orders_nothing),
        cmocka_unit_test(test_1_streams_work_again_after_a_capture),
        cmocka_unit_test(test_1_a_record_outside_takes_the_event_out_of_a_capture),
        cmocka_unit_test(test_2_a_wait_follows_the_record),
        cmocka_unit_test(test_2_a_record_too_early_covers_nothing),
        cmocka_unit_test(test_2_recording_again_does_not_move_earlier_waits),
        cmocka_unit_test(test_2_an_event_never_recorded_is_no_wait),
        cmocka_unit_test(test_3_the_legacy_stream_orders_both_ways),
        cmocka_unit_test(test_3_without_the_legacy_stream_between_nothing_is_ordered),
        cmocka_unit_test(test_3_recording_on_the_legacy_stream_covers_blocking_streams),
        cmocka_unit_test(test_4_host_synchronisation),
        cmocka_unit_test(test_4_synchronising_something_else_orders_nothing),
        cmocka_unit_test(test_4_work_enqueued_before_the_call_returned_is_not_ordered),
        cmocka_unit_test(test_5_graph_launches),
        cmocka_unit_test(test_5_event_nodes_of_a_graph),
        cmocka_unit_test(test_7_copies_with_the_host),
        cmocka_unit_test(test_7_sets),
        cmocka_unit_test(test_8_host_functions_run_in_stream_order),
        cmocka_unit_test(test_8_a_value_wait_follows_the_write),
        cmocka_unit_test(test_8_the_write_may_come_later_than_the_wait),
        cmocka_unit_test(test_8_conditions),
        cmocka_unit_test(test_8_only_what_precedes_every_possible_write_is_certain),
        cmocka_unit_test(test_8_an_overwritten_value_cannot_satisfy),
        cmocka_unit_test(test_8_a_write_behind_the_wait_cannot_satisfy),
        cmocka_unit_test(test_8_a_write_without_barrier_carries_nothing),
        cmocka_unit_test(test_8_waits_that_lead_back_and_forth_between_streams),
        cmocka_unit_test(test_8_waits_in_turn_and_a_thousand_of_them),
        cmocka_unit_test(test_9_a_life_lies_between_allocation_and_free),
        cmocka_unit_test(test_9_reused_addresses_begin_a_new_life),
        cmocka_unit_test(test_9_an_ordinary_allocation_precedes_and_an_ordinary_free_orders_nothing),
        cmocka_unit_test(test_declared_order_between_threads),
        cmocka_unit_test(test_operations_must_come_in_order),
        cmocka_unit_test(test_unknown_streams_and_ids_order_nothing),
        cmocka_unit_test(test_many_steps),
        cmocka_unit_test(test_memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
