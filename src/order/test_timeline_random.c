// Random programs of streams, events, graph launches, copies and host calls, their order compared with a plain graph of
// operations.
#include "order/test_machine.h"

// The same rules, said once more in the plainest way: each operation lists the operations it directly follows, and
// a matrix holds what follows from that.
enum { RANDOM_OPERATIONS = 60, THREADS = 2, EVENTS = 3, EXECS = 2 };

typedef struct plain {
    bool reach[RANDOM_OPERATIONS][RANDOM_OPERATIONS];
    int last_on[STREAMS], recorded[EVENTS + 1], launched[EXECS + 1];
    bool known[THREADS][RANDOM_OPERATIONS]; // complete, as the thread knows
} plain;

static uint64_t random_state;

static unsigned draw(unsigned below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((random_state >> 33) % below);
}

static void follow(plain *p, int op, int earlier)
{
    if (earlier < 0)
        return;
    p->reach[earlier][op] = true;
    for (int k = 0; k < RANDOM_OPERATIONS; k++)
        p->reach[k][op] |= p->reach[k][earlier];
}

static void learn(plain *p, unsigned thread, int op)
{
    if (op < 0)
        return;
    p->known[thread][op] = true;
    for (int k = 0; k < RANDOM_OPERATIONS; k++)
        p->known[thread][k] |= p->reach[k][op];
}

static bool blocks(const machine *m, unsigned stream)
{
    return m->streams[stream].kind == GV_STREAM_BLOCKING || m->streams[stream].kind == GV_STREAM_THREAD_DEFAULT;
}

static void put_on_stream(plain *p, const machine *m, int op, unsigned stream, unsigned thread)
{
    for (int k = 0; k < op; k++) {
        if (p->known[thread][k])
            follow(p, op, k);
    }
    follow(p, op, p->last_on[stream]);
    for (unsigned s = A; s < STREAMS; s++) {
        bool same_context = m->streams[s].context == m->streams[stream].context;
        bool to_legacy = m->streams[stream].kind == GV_STREAM_LEGACY_DEFAULT && blocks(m, s);
        bool from_legacy = m->streams[s].kind == GV_STREAM_LEGACY_DEFAULT && blocks(m, stream);
        if (same_context && (to_legacy || from_legacy))
            follow(p, op, p->last_on[s]);
    }
    p->last_on[stream] = op;
}

static void put_on_host(plain *p, int op, unsigned thread)
{
    for (int k = 0; k < op; k++) {
        if (p->known[thread][k])
            follow(p, op, k);
    }
    p->known[thread][op] = true;
}

static gv_operation random_operation(plain *p, const machine *m, int op, unsigned thread)
{
    unsigned stream = A + draw(STREAMS - A), event = 1 + draw(EVENTS), exec = 1 + draw(EXECS);
    gv_operation made = {.stream = stream, .object = event};
    switch (draw(12)) {
    case 0:
        made.kind = GV_OP_EVENT_RECORD;
        put_on_stream(p, m, op, stream, thread);
        p->recorded[event] = op;
        return made;
    case 1:
    case 2:
        made.kind = GV_OP_EVENT_WAIT;
        follow(p, op, p->recorded[event]);
        put_on_stream(p, m, op, stream, thread);
        return made;
    case 3:
        made.kind = GV_OP_GRAPH_LAUNCH;
        made.object = exec;
        follow(p, op, p->launched[exec]);
        put_on_stream(p, m, op, stream, thread);
        p->launched[exec] = op;
        return made;
    case 4:
        made.kind = draw(2) ? GV_OP_STREAM_SYNC : GV_OP_STREAM_QUERY;
        learn(p, thread, p->last_on[stream]);
        for (unsigned s = A; s < STREAMS; s++) {
            if (m->streams[stream].kind == GV_STREAM_LEGACY_DEFAULT && blocks(m, s) &&
                m->streams[s].context == m->streams[stream].context)
                learn(p, thread, p->last_on[s]);
        }
        put_on_host(p, op, thread);
        return made;
    case 5:
        made.kind = draw(2) ? GV_OP_EVENT_SYNC : GV_OP_EVENT_QUERY;
        made.stream = 0;
        learn(p, thread, p->recorded[event]);
        put_on_host(p, op, thread);
        return made;
    case 6:
        made.kind = draw(3) ? GV_OP_INSTANTIATE : GV_OP_CONTEXT_SYNC;
        made.stream = 0;
        made.object = 1 + draw(2);
        for (unsigned s = A; made.kind == GV_OP_CONTEXT_SYNC && s < STREAMS; s++) {
            if (m->streams[s].context == made.object)
                learn(p, thread, p->last_on[s]);
        }
        put_on_host(p, op, thread);
        return made;
    case 7:
        made.kind = GV_OP_MEMCPY;
        made.flags = GV_COPY_SYNCHRONOUS | (draw(2) ? GV_COPY_TO_HOST : GV_COPY_FROM_HOST | GV_COPY_PAGEABLE);
        put_on_stream(p, m, op, stream, thread);
        if (made.flags & GV_COPY_TO_HOST)
            learn(p, thread, op);
        for (int k = 0; k < op; k++)
            p->known[thread][k] |= p->reach[k][op];
        return made;
    default:
        made.kind = GV_OP_KERNEL;
        put_on_stream(p, m, op, stream, thread);
        return made;
    }
}

static void test_random_programs_match_a_plain_graph(void **state)
{
    for (uint64_t seed = 1; seed <= 600; seed++) {
        random_state = seed;
        machine *m = start();
        plain *p = calloc(1, sizeof *p);
        memset(p->last_on, -1, sizeof p->last_on);
        memset(p->recorded, -1, sizeof p->recorded);
        memset(p->launched, -1, sizeof p->launched);
        m->strict = seed % 2;
        uint64_t sequence[RANDOM_OPERATIONS];
        for (int op = 0; op < RANDOM_OPERATIONS; op++) {
            unsigned thread = draw(THREADS);
            gv_operation made = random_operation(p, m, op, m->strict ? thread : 0);
            made.thread = 100 + thread;
            sequence[op] = add(m, made);
        }
        for (int a = 0; a < RANDOM_OPERATIONS; a++) {
            for (int b = 0; b < RANDOM_OPERATIONS; b++)
                assert_int_equal(before(m, sequence[a], sequence[b]), p->reach[a][b]);
        }
        free(p);
        finish(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs_match_a_plain_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
