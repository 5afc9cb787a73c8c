// Programmatic dependent launches: kernels that begin before those in front of them end, in streams and in graphs,
// under every schedule; the edges that capture makes of launch attributes; and what is recorded before the wait.
#include "soft/gravel_soft.h"
#include "soft/testing_schedules.h"

#include <dlfcn.h>

static const char *const SCHEDULES[] = {"free", "seed:3", "seed:11", "serial"};
enum { SCHEDULE_COUNT = 4 };

// Launches one block of a kernel with launch attributes.
static void launch_with(CUfunction function, CUstream stream, unsigned threads, CUlaunchAttribute *attributes,
                        unsigned count, void **parameters)
{
    CUlaunchConfig config = {1, 1, 1, threads, 1, 1, 0, stream, attributes, count};
    OK(cuLaunchKernelEx(&config, function, parameters, NULL));
}

static void launch_early(CUfunction function, CUstream stream, unsigned threads, void **parameters)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    launch_with(function, stream, threads, &attribute, 1, parameters);
}

// Runs what is enqueued by `enqueue` in stream a, directly or as a graph.
static void run(bool as_graph, void (*enqueue)(CUdeviceptr memory), CUdeviceptr memory)
{
    CUgraph graph;
    CUgraphExec exec;
    if (as_graph)
        OK(cuStreamBeginCapture(the.a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    enqueue(memory);
    if (as_graph) {
        OK(cuStreamEndCapture(the.a, &graph));
        OK(cuGraphInstantiate(&exec, graph, 0));
        OK(cuGraphLaunch(exec, the.a));
    }
    OK(cuStreamSynchronize(the.a));
}

// Ints in the memory of a scenario.
enum { PRODUCER_HERE, CONSUMER_HERE, PRODUCER_MET, CONSUMER_MET, DATA, OUT, OTHER, INTS };

// The parameters of both kernels.
typedef struct places {
    CUdeviceptr producer_here, consumer_here, producer_met, consumer_met, data, out, other;
    int rounds; // of 0.1 ms, for which the producer waits for its consumer
    int most;   // for which the consumer waits for the producer
    void *produce[5], *consume[6];
} places;

enum { AS_LONG_AS_IT_TAKES, A_MOMENT = 300 };

static void place(places *p, CUdeviceptr memory, int rounds)
{
    *p = (places){.producer_here = memory + 4 * PRODUCER_HERE,
                  .consumer_here = memory + 4 * CONSUMER_HERE,
                  .producer_met = memory + 4 * PRODUCER_MET,
                  .consumer_met = memory + 4 * CONSUMER_MET,
                  .data = memory + 4 * DATA,
                  .out = memory + 4 * OUT,
                  .other = memory + 4 * OTHER,
                  .rounds = rounds == AS_LONG_AS_IT_TAKES ? rounds_to_meet() : rounds,
                  .most = rounds_to_meet(),
                  .produce = {&p->producer_here, &p->consumer_here, &p->producer_met, &p->data, &p->rounds},
                  .consume = {&p->consumer_here, &p->producer_here, &p->consumer_met, &p->data, &p->out, &p->most}};
}

static void launch_producer(places *p)
{
    OK(cuLaunchKernel(kernel("trigger_and_write"), 1, 1, 1, 1, 1, 1, 0, the.a, p->produce, NULL));
}

static void read_back(CUdeviceptr memory, int *results)
{
    OK(cuMemcpyDtoH(results, memory, 4 * INTS));
}

// ---- Two kernels ----

static void enqueue_overlap(CUdeviceptr memory)
{
    places p;
    place(&p, memory, AS_LONG_AS_IT_TAKES);
    launch_producer(&p);
    launch_early(kernel("meet_and_wait"), the.a, 1, p.consume);
}

static void overlap_in_a_stream(int *results)
{
    CUdeviceptr memory = buffer(4 * INTS);
    run(false, enqueue_overlap, memory);
    read_back(memory, results);
}

static void overlap_in_a_graph(int *results)
{
    CUdeviceptr memory = buffer(4 * INTS);
    run(true, enqueue_overlap, memory);
    read_back(memory, results);
}

static void a_consumer_begins_early_and_its_wait_waits(void **state)
{
    void (*const scenarios[])(int *) = {overlap_in_a_stream, overlap_in_a_graph};
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < SCHEDULE_COUNT; i++) {
            int results[RESULTS];
            bool serial = strcmp(SCHEDULES[i], "serial") == 0;
            expect_under(SCHEDULES[i], scenarios[s], results);
            assert_int_equal(results[PRODUCER_MET], !serial);
            assert_int_equal(results[CONSUMER_MET], 1);
            assert_int_equal(results[OUT], 5);
        }
    }
}

static void enqueue_without_wait(CUdeviceptr memory)
{
    places p;
    place(&p, memory, AS_LONG_AS_IT_TAKES);
    launch_producer(&p);
    launch_early(kernel("read_without_wait"), the.a, 1, p.consume);
}

static void no_wait_in_a_graph(int *results)
{
    CUdeviceptr memory = buffer(4 * INTS);
    run(true, enqueue_without_wait, memory);
    read_back(memory, results);
}

static void without_the_wait_it_reads_too_soon(void **state)
{
    int results[RESULTS];
    expect_under("free", no_wait_in_a_graph, results);
    assert_int_equal(results[OUT], 0);
    assert_int_equal(results[DATA], 5);
    expect_under("serial", no_wait_in_a_graph, results);
    assert_int_equal(results[OUT], 5);
}

// Without the attribute the same kernels do not overlap.
static void enqueue_plainly(CUdeviceptr memory)
{
    places p;
    place(&p, memory, A_MOMENT);
    launch_producer(&p);
    OK(cuLaunchKernel(kernel("read_without_wait"), 1, 1, 1, 1, 1, 1, 0, the.a, p.consume, NULL));
}

static void plain_in_a_stream(int *results)
{
    CUdeviceptr memory = buffer(4 * INTS);
    run(false, enqueue_plainly, memory);
    read_back(memory, results);
}

static void ordinary_launches_do_not_overlap(void **state)
{
    int results[RESULTS];
    expect_under("free", plain_in_a_stream, results);
    assert_int_equal(results[PRODUCER_MET], 0);
    assert_int_equal(results[OUT], 5);
}

// ---- What comes behind ----

// A kernel that does not wait; then a copy, in the same stream.
static void enqueue_copy_behind(CUdeviceptr memory)
{
    places p;
    place(&p, memory, A_MOMENT);
    launch_producer(&p);
    launch_early(kernel("do_nothing"), the.a, 1, (void *[]){&p.other});
    OK(cuMemcpyDtoDAsync(p.out, p.data, 4, the.a));
}

static void copy_behind_in_a_stream(int *results)
{
    CUdeviceptr memory = buffer(4 * INTS);
    run(false, enqueue_copy_behind, memory);
    read_back(memory, results);
}

static void enqueue_no_wait_at_the_end(CUdeviceptr memory)
{
    places p;
    place(&p, memory, A_MOMENT);
    launch_producer(&p);
    launch_early(kernel("do_nothing"), the.a, 1, (void *[]){&p.other});
}

static void end_of_a_graph(int *results)
{
    CUdeviceptr memory = buffer(4 * INTS);
    run(true, enqueue_no_wait_at_the_end, memory);
    read_back(memory, results);
}

static void work_behind_in_the_stream_follows_all(void **state)
{
    for (int i = 0; i < SCHEDULE_COUNT; i++) {
        int results[RESULTS];
        expect_under(SCHEDULES[i], copy_behind_in_a_stream, results);
        assert_int_equal(results[OUT], 5);
        expect_under(SCHEDULES[i], end_of_a_graph, results);
        assert_int_equal(results[DATA], 5);
    }
}

// ---- Three kernels ----

static const char *middle;

static void enqueue_chain(CUdeviceptr memory)
{
    places p;
    place(&p, memory, strcmp(middle, "wait_then_trigger") == 0 ? A_MOMENT : AS_LONG_AS_IT_TAKES);
    launch_producer(&p);
    launch_early(kernel(middle), the.a, 1, (void *[]){&p.other});
    launch_early(kernel("meet_and_wait"), the.a, 1, p.consume);
}

static void chain_that_triggers_first(int *results)
{
    CUdeviceptr memory = buffer(4 * INTS);
    middle = "trigger_then_wait";
    run(true, enqueue_chain, memory);
    read_back(memory, results);
}

static void chain_that_waits_first(int *results)
{
    CUdeviceptr memory = buffer(4 * INTS);
    middle = "wait_then_trigger";
    run(true, enqueue_chain, memory);
    read_back(memory, results);
}

static void a_trigger_before_the_wait_lets_three_overlap(void **state)
{
    int results[RESULTS];
    expect_under("free", chain_that_triggers_first, results);
    assert_int_equal(results[PRODUCER_MET], 1);
    assert_int_equal(results[OUT], 5);
    expect_under("free", chain_that_waits_first, results);
    assert_int_equal(results[PRODUCER_MET], 0);
    assert_int_equal(results[OUT], 5);
    for (int i = 1; i < SCHEDULE_COUNT; i++) {
        expect_under(SCHEDULES[i], chain_that_triggers_first, results);
        assert_int_equal(results[OUT], 5);
        expect_under(SCHEDULES[i], chain_that_waits_first, results);
        assert_int_equal(results[OUT], 5);
    }
}

static void many_in_a_chain(int *results)
{
    enum { KERNELS = 700 }; // more than there may be workers
    CUdeviceptr memory = buffer(4 * KERNELS);
    CUfunction trigger = kernel("trigger_then_wait");
    for (int i = 0; i < KERNELS; i++) {
        CUdeviceptr out = memory + 4 * (size_t)i;
        launch_early(trigger, the.a, 1, (void *[]){&out});
    }
    OK(cuStreamSynchronize(the.a));
    static int done[KERNELS];
    OK(cuMemcpyDtoH(done, memory, sizeof done));
    for (int i = 0; i < KERNELS; i++)
        results[0] += done[i];
}

static void long_chains_do_not_hang(void **state)
{
    for (int i = 0; i < SCHEDULE_COUNT; i++) {
        int results[RESULTS];
        expect_under(SCHEDULES[i], many_in_a_chain, results);
        assert_int_equal(results[0], 700);
    }
}

static void seeds_repeat_overlaps(void **state)
{
    for (int seed = 0; seed < 4; seed++) {
        static int first[RESULTS], again[RESULTS];
        char name[16];
        snprintf(name, sizeof name, "seed:%d", seed);
        expect_under(name, no_wait_in_a_graph, first);
        expect_under(name, no_wait_in_a_graph, again);
        assert_memory_equal(first, again, sizeof again);
    }
}

// ---- Edges of a capture ----

// The data of the edge into the node that was captured last.
static CUgraphEdgeData last_edge(CUgraph graph, size_t expected)
{
    CUgraphNode from[8], to[8], nodes[8];
    CUgraphEdgeData data[8];
    size_t count = 8;
    OK(cuGraphGetEdges(graph, from, to, data, &count));
    assert_int_equal(count, expected);
    size_t last = nodes_of(graph, nodes, 8) - 1;
    for (size_t i = 0; i < count; i++)
        if (to[i] == nodes[last])
            return data[i];
    fail_msg("no edge leads to the last node");
    return data[0];
}

// A kernel with an event attribute on stream a; stream b waits for the event, and then does something.
static CUgraphEdgeData edge_behind(CUlaunchAttribute attribute, CUevent recorded, bool kernel_behind, bool waits_twice)
{
    CUdeviceptr memory = buffer(4 * INTS);
    CUevent fork_event = event(), join = event();
    CUgraph graph;
    OK(cuStreamBeginCapture(the.a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuEventRecord(fork_event, the.a));
    OK(cuStreamWaitEvent(the.b, fork_event, 0));
    launch_with(kernel("trigger_then_wait"), the.a, 1, &attribute, 1, (void *[]){&memory});
    if (waits_twice) {
        CUevent whole = event();
        OK(cuEventRecord(whole, the.a));
        OK(cuStreamWaitEvent(the.b, whole, 0));
    }
    OK(cuStreamWaitEvent(the.b, recorded, 0));
    if (kernel_behind)
        LAUNCH(kernel("do_nothing"), the.b, 1, &memory);
    else
        OK(cuMemsetD32Async(memory + 4, 0, 1, the.b));
    OK(cuEventRecord(join, the.b));
    OK(cuStreamWaitEvent(the.a, join, 0));
    OK(cuStreamEndCapture(the.a, &graph));
    CUgraphEdgeData edge = last_edge(graph, 1);
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(memory));
    return edge;
}

static void event_attributes_make_edges(void **state)
{
    CUevent recorded = event();
    CUlaunchAttribute programmatic = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT};
    programmatic.value.programmaticEvent.event = recorded;
    CUgraphEdgeData edge = edge_behind(programmatic, recorded, true, false);
    assert_int_equal(edge.from_port, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
    assert_int_equal(edge.type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
    programmatic.value.programmaticEvent.triggerAtBlockStart = 1;
    edge = edge_behind(programmatic, recorded, true, false);
    assert_int_equal(edge.from_port, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
    assert_int_equal(edge.type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
    CUlaunchAttribute completion = {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};
    completion.value.launchCompletionEvent.event = recorded;
    edge = edge_behind(completion, recorded, true, false);
    assert_int_equal(edge.from_port, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
    assert_int_equal(edge.type, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
    // What is no kernel cannot wait for the rest, and who waits for the end too has an ordinary edge.
    edge = edge_behind(programmatic, recorded, false, false);
    assert_int_equal(edge.type, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
    assert_int_equal(edge.from_port, 0);
    edge = edge_behind(programmatic, recorded, true, true);
    assert_int_equal(edge.type, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
}

// Outside of a capture the event is complete when the kernel is; and it must be one without timing.
static void event_attributes_record_events(void **state)
{
    CUdeviceptr memory = buffer(4 * INTS), out = memory;
    CUevent recorded = event(), timed;
    OK(cuEventCreate(&timed, 0));
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT};
    attribute.value.programmaticEvent.event = recorded;
    launch_with(kernel("trigger_then_wait"), the.a, 1, &attribute, 1, (void *[]){&out});
    OK(cuStreamWaitEvent(the.b, recorded, 0));
    OK(cuEventSynchronize(recorded));
    OK(cuStreamSynchronize(the.b));
    assert_int_equal(read_int(out), 1);
    attribute.value.programmaticEvent.event = timed;
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, the.a, &attribute, 1};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(&config, kernel("do_nothing"), (void *[]){&out}, NULL));
    OK(cuEventDestroy(timed));
    OK(cuMemFree(memory));
}

// ---- What is recorded ----

typedef struct seen {
    uint64_t start[8], end[8];
    int kind[8];
    size_t count;
} seen;

static void take(void *user, enum gravel_soft_access_kind kind, uint64_t start, uint64_t end)
{
    seen *into = user;
    assert_true(into->count < 8);
    into->kind[into->count] = kind;
    into->start[into->count] = start;
    into->end[into->count++] = end;
}

// Records one launch of two blocks of 32 threads over three arrays; returns what it did before its wait.
static seen record(const char *name, CUdeviceptr weights, CUdeviceptr data, CUdeviceptr sums, unsigned *grid)
{
    const gravel_soft_api *api = ((gravel_soft_api_function)dlsym(RTLD_DEFAULT, GRAVEL_SOFT_API_SYMBOL))();
    seen early = {0}, all = {0};
    assert_int_equal(api->access_begin(1), 0);
    void *three[] = {&weights, &data, &sums};
    OK(cuLaunchKernel(kernel(name), 2, 1, 1, 32, 1, 1, 0, the.a, three, NULL));
    OK(cuStreamSynchronize(the.a));
    assert_int_equal(api->access_early(take, &early, grid), 0);
    assert_int_equal(api->access_end(take, &all), 0);
    assert_int_equal(all.count, 3);
    return early;
}

static void what_comes_before_the_wait_is_recorded(void **state)
{
    CUdeviceptr weights = buffer(2 * BYTES), data = buffer(2 * BYTES), sums = buffer(2 * BYTES);
    const char *const kernels[] = {"prefetch", "wait_for_the_block"};
    for (int k = 0; k < 2; k++) {
        unsigned grid = 0;
        seen early = record(kernels[k], weights, data, sums, &grid);
        assert_int_equal(early.count, 1);
        assert_int_equal(early.kind[0], GRAVEL_SOFT_READ);
        assert_int_equal(early.start[0], weights);
        assert_int_equal(early.end[0], weights + BYTES);
        // Neither triggers before its end.
        assert_int_equal(grid, GRAVEL_SOFT_GRID_WAITED | GRAVEL_SOFT_GRID_TRIGGERED_LATE);
    }
    OK(cuMemFree(weights));
    OK(cuMemFree(data));
    OK(cuMemFree(sums));
}

static unsigned grid_of(const char *name)
{
    const gravel_soft_api *api = ((gravel_soft_api_function)dlsym(RTLD_DEFAULT, GRAVEL_SOFT_API_SYMBOL))();
    CUdeviceptr out = buffer(64);
    unsigned grid = 0;
    assert_int_equal(api->access_begin(1), 0);
    LAUNCH(kernel(name), the.a, 1, &out);
    OK(cuStreamSynchronize(the.a));
    assert_int_equal(api->access_early(NULL, NULL, &grid), 0);
    assert_int_equal(api->access_end(NULL, NULL), 0);
    OK(cuMemFree(out));
    return grid;
}

static void waits_and_triggers_are_recorded(void **state)
{
    assert_int_equal(grid_of("do_nothing"), 0);
    assert_int_equal(grid_of("trigger_then_wait"), GRAVEL_SOFT_GRID_WAITED);
    assert_int_equal(grid_of("wait_then_trigger"), GRAVEL_SOFT_GRID_WAITED | GRAVEL_SOFT_GRID_TRIGGERED_LATE);
    const gravel_soft_api *api = ((gravel_soft_api_function)dlsym(RTLD_DEFAULT, GRAVEL_SOFT_API_SYMBOL))();
    unsigned grid;
    assert_int_equal(api->access_early(NULL, NULL, &grid), -1);
    assert_int_equal(api->access_begin(0), 0);
    assert_int_equal(api->access_early(NULL, NULL, &grid), -1);
    assert_int_equal(api->access_end(NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest schedules[] = {
        cmocka_unit_test(a_consumer_begins_early_and_its_wait_waits),
        cmocka_unit_test(without_the_wait_it_reads_too_soon),
        cmocka_unit_test(ordinary_launches_do_not_overlap),
        cmocka_unit_test(work_behind_in_the_stream_follows_all),
        cmocka_unit_test(a_trigger_before_the_wait_lets_three_overlap),
        cmocka_unit_test(long_chains_do_not_hang),
        cmocka_unit_test(seeds_repeat_overlaps),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(event_attributes_make_edges),
        cmocka_unit_test(event_attributes_record_events),
        cmocka_unit_test(what_comes_before_the_wait_is_recorded),
        cmocka_unit_test(waits_and_triggers_are_recorded),
    };
    // The children of the first group must be forked before this process has a driver.
    int failed = cmocka_run_group_tests(schedules, NULL, NULL);
    return failed + cmocka_run_group_tests(tests, open_device, close_device);
}
