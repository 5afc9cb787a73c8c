// A little machine whose calls the timeline's tests make up: streams of every kind in two contexts, and a list of
// operations that grows call by call.
#ifndef GV_ORDER_TEST_MACHINE_H
#define GV_ORDER_TEST_MACHINE_H

#include "order/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Streams of the little machine under test, all of context 1 but the last two.
enum { A = 1, B, C, FREE, LEGACY, PER_THREAD, ELSEWHERE, LEGACY_ELSEWHERE, STREAMS };
enum { MOST_OPERATIONS = 4096 };

typedef struct machine {
    gv_trace trace;
    gv_stream streams[STREAMS];
    gv_context contexts[3];
    gv_allocation allocations[8];
    gv_graph graphs[4];
    gv_node nodes[4];
    uint64_t events_of_nodes[4];
    gv_exec_version versions[8];
    gv_operation operations[MOST_OPERATIONS];
    gv_timeline *timeline;
    bool strict;
} machine;

static inline machine *start(void)
{
    machine *m = calloc(1, sizeof *m);
    for (int s = A; s < STREAMS; s++)
        m->streams[s] = (gv_stream){.context = s < ELSEWHERE ? 1 : 2, .kind = GV_STREAM_BLOCKING};
    m->streams[FREE].kind = GV_STREAM_NON_BLOCKING;
    m->streams[LEGACY].kind = m->streams[LEGACY_ELSEWHERE].kind = GV_STREAM_LEGACY_DEFAULT;
    m->streams[PER_THREAD].kind = GV_STREAM_THREAD_DEFAULT;
    m->trace = (gv_trace){.streams = m->streams,
                          .stream_count = STREAMS,
                          .contexts = m->contexts,
                          .context_count = 3,
                          .allocations = m->allocations,
                          .allocation_count = 8,
                          .graphs = m->graphs,
                          .graph_count = 4,
                          .exec_versions = m->versions,
                          .operations = m->operations};
    return m;
}

// Adds an operation of thread 1 unless it says otherwise; returns its sequence number.
static inline uint64_t add(machine *m, gv_operation op)
{
    assert_true(m->trace.operation_count < MOST_OPERATIONS);
    op.sequence = 10 * (m->trace.operation_count + 1);
    op.thread = op.thread ? op.thread : 1;
    m->operations[m->trace.operation_count++] = op;
    gv_timeline_free(m->timeline);
    m->timeline = NULL;
    return op.sequence;
}

#define ADD(m, ...)   add(m, (gv_operation){__VA_ARGS__})
#define KERNEL(m, on) ADD(m, .kind = GV_OP_KERNEL, .stream = on)

static inline bool before(machine *m, uint64_t a, uint64_t b)
{
    gv_error error = {0};
    if (!m->timeline) {
        gv_timeline_options options = {.strict_threads = m->strict};
        if (gv_timeline_create(&m->trace, &options, &m->timeline, &error) || gv_timeline_add_all(m->timeline, &error))
            fail_msg("%s", error.text);
    }
    return gv_timeline_before(m->timeline, a, b);
}

static inline void assert_ordered(machine *m, uint64_t a, uint64_t b)
{
    assert_true(before(m, a, b));
    assert_false(before(m, b, a));
}

static inline void assert_unordered(machine *m, uint64_t a, uint64_t b)
{
    assert_false(before(m, a, b));
    assert_false(before(m, b, a));
}

static inline void finish(machine *m)
{
    gv_timeline_free(m->timeline);
    free(m);
}

#endif
