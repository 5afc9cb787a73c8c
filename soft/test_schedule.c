// The three schedules, each in a child process, since a process has one.
#include "soft/testing_schedules.h"

enum { TIMES = 60 };

// ---- Scenarios ----

static void two_branches_append(int *results)
{
    CUdeviceptr list = buffer(1024);
    CUfunction append = kernel("append");
    int first = 1, second = 2, times = TIMES;
    CUevent fork_event = event(), join = event();
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamBeginCapture(the.a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuEventRecord(fork_event, the.a));
    OK(cuStreamWaitEvent(the.b, fork_event, 0));
    LAUNCH(append, the.a, 1, &list, &first, &times);
    LAUNCH(append, the.b, 1, &list, &second, &times);
    OK(cuEventRecord(join, the.b));
    OK(cuStreamWaitEvent(the.a, join, 0));
    OK(cuStreamEndCapture(the.a, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, the.a));
    OK(cuMemcpyDtoHAsync(results, list, 1024, the.a));
}

static void two_streams_add(int *results)
{
    CUdeviceptr sum = buffer(64);
    CUfunction add = kernel("add_slowly");
    int times = 200;
    LAUNCH(add, the.a, 1, &sum, &times);
    LAUNCH(add, the.b, 1, &sum, &times);
    OK(cuCtxSynchronize());
    results[0] = read_int(sum);
}

static void two_branches_meet(int *results)
{
    CUdeviceptr flags = buffer(64);
    CUdeviceptr first = flags, second = flags + 4, first_met = flags + 8, second_met = flags + 12;
    CUfunction meet = kernel("meet");
    int rounds = rounds_to_meet();
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    OK(cuGraphCreate(&graph, 0));
    CUDA_KERNEL_NODE_PARAMS params = {meet, 1,    1,   1, 1, 1, 1, 0, (void *[]){&first, &second, &first_met, &rounds},
                                      NULL, NULL, NULL};
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    params.kernelParams = (void *[]){&second, &first, &second_met, &rounds};
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, the.a));
    OK(cuStreamSynchronize(the.a));
    results[0] = read_int(first_met);
    results[1] = read_int(second_met);
}

static void many_kernels_meet(int *results)
{
    // As many at once as there are streams: each waits for the next one.
    enum { STREAMS = 24 };
    CUdeviceptr flags = buffer(1024);
    CUfunction meet = kernel("meet");
    int rounds = rounds_to_meet();
    for (int i = 0; i < STREAMS; i++) {
        CUstream stream;
        CUdeviceptr mine = flags + 4 * (size_t)i, theirs = flags + 4 * (size_t)((i + 1) % STREAMS),
                    met = flags + 512 + 4 * (size_t)i;
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        LAUNCH(meet, stream, 1, &mine, &theirs, &met, &rounds);
    }
    OK(cuCtxSynchronize());
    results[0] = 1;
    for (int i = 0; i < STREAMS; i++)
        results[0] &= read_int(flags + 512 + 4 * (size_t)i);
}

static void a_kernel_waits_for_a_later_one(int *results)
{
    CUdeviceptr flag = buffer(64), out = flag + 4;
    int one = 1, count = 1;
    LAUNCH(kernel("wait_for_flag"), the.a, 1, &flag, &out);
    LAUNCH(kernel("fill"), the.b, 1, &flag, &one, &count);
    OK(cuCtxSynchronize());
    results[0] = read_int(out);
}

static void a_stream_waits_for_a_value(int *results)
{
    CUdeviceptr flag = buffer(64);
    OK(cuStreamWaitValue32(the.a, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD32Async(flag + 4, 3, 1, the.a));
    OK(cuStreamWriteValue32(the.b, flag, 1, 0));
    OK(cuCtxSynchronize());
    results[0] = read_int(flag + 4);
}

static void the_host_polls(int *results)
{
    CUdeviceptr out = buffer(64);
    int one = 1, count = 1;
    LAUNCH(kernel("fill"), the.a, 1, &out, &one, &count);
    while (cuStreamQuery(the.a) == CUDA_ERROR_NOT_READY)
        results[1]++;
    results[0] = read_int(out);
}

static void the_host_reads_pinned_memory(int *results)
{
    volatile int *flag;
    int one = 1, count = 1;
    OK(cuMemHostAlloc((void **)&flag, 64, 0));
    *flag = 0;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)flag;
    LAUNCH(kernel("fill"), the.a, 1, &address, &one, &count);
    while (!*flag)
        usleep(1000);
    results[0] = *flag;
}

static void barriers_and_branches(int *results)
{
    CUdeviceptr in = buffer(256), out = buffer(64), other = buffer(64);
    int value = 2, count = COUNT, times = 100;
    LAUNCH(kernel("fill"), the.a, COUNT, &in, &value, &count);
    OK(cuLaunchKernel(kernel("block_sum"), 1, 1, 1, 64, 1, 1, 0, the.a, (void *[]){&in, &out}, NULL));
    LAUNCH(kernel("add_slowly"), the.b, 1, &other, &times);
    OK(cuCtxSynchronize());
    results[0] = read_int(out);
    results[1] = read_int(other);
}

// ---- Tests ----

static void the_same_seed_gives_the_same_result(void **state)
{
    static int first[8][RESULTS], again[RESULTS];
    char name[16];
    int different = 0;
    for (int seed = 0; seed < 8; seed++) {
        snprintf(name, sizeof name, "seed:%d", seed);
        expect_under(name, two_branches_append, first[seed]);
        for (int round = 0; round < 2; round++) {
            expect_under(name, two_branches_append, again);
            assert_memory_equal(first[seed], again, sizeof again);
        }
        different += seed && memcmp(first[seed], first[0], sizeof again) != 0;
    }
    assert_true(different >= 5);
}

static void seeds_find_lost_updates(void **state)
{
    int results[RESULTS], lost = 0;
    char name[16];
    for (int seed = 0; seed < 8; seed++) {
        snprintf(name, sizeof name, "seed:%d", seed);
        expect_under(name, two_streams_add, results);
        assert_true(results[0] >= 2 && results[0] <= 400);
        lost += results[0] < 400;
    }
    assert_true(lost >= 4);
}

static void serial_runs_in_order_of_submission(void **state)
{
    int results[RESULTS];
    expect_under("serial", two_branches_append, results);
    assert_int_equal(results[0], 2 * TIMES);
    for (int i = 0; i < 2 * TIMES; i++)
        assert_int_equal(results[1 + i], i < TIMES ? 1 : 2);
    expect_under("serial", two_streams_add, results);
    assert_int_equal(results[0], 400);
}

static void free_branches_overlap(void **state)
{
    int results[RESULTS];
    expect_under("free", two_branches_meet, results);
    assert_int_equal(results[0], 1);
    assert_int_equal(results[1], 1);
    expect_under("free", many_kernels_meet, results);
    assert_int_equal(results[0], 1);
}

static void serial_branches_do_not_overlap(void **state)
{
    int results[RESULTS];
    expect_under("serial", two_branches_meet, results);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], 1);
}

static void no_schedule_hangs_where_a_gpu_would_not(void **state)
{
    int results[RESULTS];
    static const char *const names[] = {"free", "seed:3", "serial"};
    for (int i = 0; i < 3; i++) {
        expect_under(names[i], a_stream_waits_for_a_value, results);
        assert_int_equal(results[0], 3);
        expect_under(names[i], the_host_polls, results);
        assert_int_equal(results[0], 1);
        expect_under(names[i], the_host_reads_pinned_memory, results);
        assert_int_equal(results[0], 1);
        expect_under(names[i], barriers_and_branches, results);
        assert_int_equal(results[0], 128);
        assert_int_equal(results[1], 100);
    }
    // One at a time in order cannot serve a kernel that waits for a later one; the others can.
    for (int i = 0; i < 2; i++) {
        expect_under(names[i], a_kernel_waits_for_a_later_one, results);
        assert_int_equal(results[0], 1);
    }
}

static void init_only(int *results)
{
    results[0] = 1;
}

static void unknown_schedules_are_refused(void **state)
{
    static const char *const names[] = {"random", "seed:", "seed:x", "seed:-1", "seed:99999999999999999999"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            setenv("GRAVEL_SOFT_SCHEDULE", names[i], 1);
            _exit(cuInit(0) == CUDA_ERROR_INVALID_VALUE ? 0 : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        assert_int_equal(status, 0);
    }
    int results[RESULTS];
    expect_under("", init_only, results);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_gives_the_same_result),
        cmocka_unit_test(seeds_find_lost_updates),
        cmocka_unit_test(serial_runs_in_order_of_submission),
        cmocka_unit_test(free_branches_overlap),
        cmocka_unit_test(serial_branches_do_not_overlap),
        cmocka_unit_test(no_schedule_hangs_where_a_gpu_would_not),
        cmocka_unit_test(unknown_schedules_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
