// A program for the tests of the differential. usage: diff_target SCENARIO KERNELS
//
// Prints `result N...` lines: the same whatever is compared.
#include "gravel.h"
#include "program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 256, BYTES = COUNT * 4, LAUNCHES = 5 };

static const char *kernels_path;
static CUstream side;
static CUdeviceptr in, scratch, out, other;
static int count = COUNT;

#define LAUNCH(name, on, threads, ...) \
    CHECK(cuLaunchKernel(kernel(name), ((threads) + 31) / 32, 1, 1, 32, 1, 1, 0, on, (void *[]){__VA_ARGS__}, NULL))

static void begin(void)
{
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static void order(CUstream before, CUstream after)
{
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(event, before));
    CHECK(cuStreamWaitEvent(after, event, 0));
}

static void launch(CUgraphExec exec, int times)
{
    for (int i = 0; i < times; i++) {
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuStreamSynchronize(stream));
    }
}

static void print_floats(CUdeviceptr memory, int first, int last)
{
    float host[COUNT];
    CHECK(cuMemcpyDtoH(host, memory, BYTES));
    printf("result");
    for (int i = first; i < last; i++)
        printf(" %.9g", host[i]);
    printf("\n");
}

// ---- Scenarios ----

// Two branches fill one buffer, with values that are one unit in the last place apart. `part`: of it, the second one.
static CUgraphExec two_fills(int part)
{
    float left = 1.0f, right = 1.00000012f;
    begin();
    order(stream, side);
    LAUNCH("fill_f32", stream, COUNT, &out, &left, &count);
    CUdeviceptr at = out + (CUdeviceptr)(COUNT - part) * 4;
    LAUNCH("fill_f32", side, part, &at, &right, &part);
    order(side, stream);
    return end();
}

static void near(void)
{
    launch(two_fills(COUNT), LAUNCHES);
}

// The rows of the second fill are padding: of 8 rows of 32 elements 6 are real.
static void padded(void)
{
    gravel_rows("out", out, 128, 8, GRAVEL_ROWS_OUT);
    gravel_real_rows(6);
    launch(two_fills(64), LAUNCHES);
    print_floats(out, 0, 8);
}

static void real_rows(void)
{
    gravel_rows("out", out, 128, 8, GRAVEL_ROWS_OUT);
    gravel_real_rows(7);
    launch(two_fills(64), LAUNCHES);
}

// Everything is ordered. What is kept from launch to launch must be as after so many launches.
static void kept(void)
{
    float one = 1;
    begin();
    LAUNCH("count_up", stream, 1, &other);
    LAUNCH("add_f32", stream, COUNT, &in, &scratch, &one, &count);
    LAUNCH("add_f32", stream, COUNT, &scratch, &in, &one, &count);
    CHECK(cuMemcpyDtoDAsync(out, in, BYTES, stream));
    launch(end(), LAUNCHES);
    int counted = 0;
    CHECK(cuMemcpyDtoH(&counted, other, 4));
    printf("result %d\n", counted);
    print_floats(out, 0, 4);
}

// A kernel whose result depends on the order of its own atomics, and one that reads it.
static void noisy(void)
{
    float host[COUNT], one = 1;
    for (int i = 0; i < COUNT; i++)
        host[i] = 1.0f / (float)(i + 1);
    upload(in, host, BYTES);
    int single = 1;
    begin();
    LAUNCH("sum_f32", stream, 1, &in, &scratch, &count);
    LAUNCH("add_f32", stream, 1, &scratch, &out, &one, &single);
    launch(end(), LAUNCHES);
}

static int calls;

static void call(void *user)
{
    calls++;
}

static void host_function(void)
{
    float one = 1;
    begin();
    LAUNCH("add_f32", stream, COUNT, &in, &out, &one, &count);
    CHECK(cuLaunchHostFunc(stream, call, NULL));
    launch(end(), LAUNCHES);
    printf("result %d\n", calls);
}

static void to_host(void)
{
    static float target[COUNT];
    float one = 1;
    begin();
    LAUNCH("add_f32", stream, COUNT, &in, &out, &one, &count);
    CHECK(cuMemcpyDtoHAsync(target, out, BYTES, stream));
    launch(end(), LAUNCHES);
    printf("result %g\n", target[7]);
}

// A kernel is given page-locked memory: it might set a flag there.
static void pinned(void)
{
    void *memory;
    float one = 1;
    CHECK(cuMemHostAlloc(&memory, BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
    CUdeviceptr address;
    CHECK(cuMemHostGetDevicePointer(&address, memory, 0));
    memset(memory, 0, BYTES);
    begin();
    LAUNCH("add_f32", stream, COUNT, &address, &out, &one, &count);
    launch(end(), LAUNCHES);
    print_floats(out, 0, 2);
}

// What the graph copies from host memory changes while it is checked: by somebody whom nobody sees.
static void host_input_changes(void)
{
    static float source[COUNT];
    float one = 1;
    unsigned long long turned = ~(unsigned long long)(uintptr_t)&source[COUNT - 1];
    int first_only = 0;
    begin();
    CHECK(cuMemcpyHtoDAsync(in, source, BYTES, stream));
    LAUNCH("add_f32", stream, COUNT, &in, &out, &one, &count);
    LAUNCH("write_unseen", stream, 1, &turned, &first_only);
    launch(end(), LAUNCHES);
}

// The same with device memory, once.
static void device_input_changes(void)
{
    float one = 1;
    unsigned long long turned = ~(unsigned long long)in;
    int first_only = 1;
    begin();
    LAUNCH("write_unseen", stream, 1, &turned, &first_only);
    LAUNCH("add_f32", stream, COUNT, &in, &out, &one, &count);
    launch(end(), LAUNCHES);
    print_floats(in, 1, 3);
}

// Another thread writes the input through a stream of its own, and frees and takes memory, as fast as it can.
static atomic_int done, rounds;

static void *interfere(void *argument)
{
    CUstream own;
    static float values[COUNT];
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    while (!atomic_load(&done)) {
        CUdeviceptr memory;
        values[0] = (float)atomic_fetch_add(&rounds, 1);
        CHECK(cuMemcpyHtoDAsync(in, values, BYTES, own));
        CHECK(cuMemAlloc(&memory, BYTES));
        CHECK(cuMemsetD8Async(memory, 1, BYTES, own));
        CHECK(cuStreamSynchronize(own));
        CHECK(cuMemFree(memory));
    }
    return NULL;
}

static void threads(void)
{
    float one = 1;
    pthread_t thread;
    begin();
    LAUNCH("add_f32", stream, COUNT, &in, &out, &one, &count);
    LAUNCH("add_f32", stream, COUNT, &in, &scratch, &one, &count);
    CUgraphExec exec = end();
    if (pthread_create(&thread, NULL, interfere, NULL))
        fail("pthread_create", __LINE__, 0);
    // At least so often, and until the other thread has come between the launches.
    for (int i = 0; i < LAUNCHES || atomic_load(&rounds) < 20; i++)
        launch(exec, 1);
    atomic_store(&done, 1);
    pthread_join(thread, NULL);
}

static void killed(void)
{
    float one = 1;
    begin();
    LAUNCH("kill_at_second", stream, 1, &other);
    LAUNCH("add_f32", stream, COUNT, &in, &out, &one, &count);
    launch(end(), 2);
}

static void nothing(void)
{
    begin();
    launch(end(), 2);
}

// ---- What is kept from one checked launch to the next ----

static int word_at(CUdeviceptr memory)
{
    int value = 0;
    CHECK(cuMemcpyDtoH(&value, memory, 4));
    return value;
}

// An address that stands in memory changes: the graph then writes elsewhere.
static void table(void)
{
    CUdeviceptr addresses = allocate(BYTES), elsewhere = allocate(BYTES);
    upload(addresses, &other, 8);
    begin();
    LAUNCH("count_through", stream, 1, &addresses);
    CUgraphExec exec = end();
    launch(exec, 3);
    upload(addresses, &elsewhere, 8);
    launch(exec, 3);
    upload(addresses + 4, (char *)&other + 4, 4);
    upload(addresses, &other, 4);
    launch(exec, 2);
    printf("result %d %d\n", word_at(other), word_at(elsewhere));
}

// A node is given other parameters, is left out, and the whole graph is replaced.
static void changes(void)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    CUDA_KERNEL_NODE_PARAMS params;
    size_t nodes = 1;
    begin();
    LAUNCH("count_up", stream, 1, &other);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphGetNodes(graph, &node, &nodes));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    launch(exec, 3);
    CHECK(cuGraphKernelNodeGetParams(node, &params));
    params.kernelParams = (void *[]){&out};
    CHECK(cuGraphExecKernelNodeSetParams(exec, node, &params));
    launch(exec, 3);
    CHECK(cuGraphNodeSetEnabled(exec, node, 0));
    launch(exec, 2);
    CHECK(cuGraphNodeSetEnabled(exec, node, 1));
    CHECK(cuGraphDestroy(graph));
    begin();
    LAUNCH("count_up", stream, 1, &scratch);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphExecUpdate(exec, graph, &info));
    CHECK(cuGraphDestroy(graph));
    launch(exec, 3);
    CHECK(cuGraphExecDestroy(exec));
    printf("result %d %d %d\n", word_at(other), word_at(out), word_at(scratch));
}

// Two graphs take turns. One of them reaches what the other one does, and more.
static void turns(void)
{
    CUdeviceptr addresses = allocate(BYTES);
    upload(addresses, &other, 8);
    begin();
    LAUNCH("count_through", stream, 1, &addresses);
    CUgraphExec first = end();
    begin();
    LAUNCH("count_through", stream, 1, &addresses);
    LAUNCH("count_up", stream, 1, &out);
    CUgraphExec second = end();
    for (int i = 0; i < 3; i++) {
        launch(first, 2);
        launch(second, 2);
    }
    // What the first one has now come to reach, the second one reached all along.
    upload(addresses, &out, 8);
    launch(first, 2);
    launch(second, 2);
    launch(first, 2);
    CHECK(cuGraphExecDestroy(first));
    launch(second, 2);
    printf("result %d %d\n", word_at(other), word_at(out));
}

// Nodes of all kinds that can be run again, some of them in a child graph, and an event, which cannot.
static void kinds(void)
{
    CUgraph graph, child;
    CUgraphNode child_node;
    CUgraphExec exec;
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    begin();
    LAUNCH("count_up", stream, 1, &out);
    order(stream, side);
    LAUNCH("count_up", stream, 1, &in);
    LAUNCH("count_up", side, 1, &scratch);
    order(side, stream);
    LAUNCH("count_up", stream, 1, &out);
    CHECK(cuStreamEndCapture(stream, &child));
    begin();
    CHECK(cuMemsetD32Async(out, 5, COUNT, stream));
    LAUNCH("count_up", stream, 1, &other);
    CHECK(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
    CHECK(cuMemcpyDtoDAsync(out + 64, other, 4, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphAddChildGraphNode(&child_node, graph, NULL, 0, child));
    CUgraphNode nodes[8];
    size_t count_of_nodes = 8;
    CHECK(cuGraphGetNodes(graph, nodes, &count_of_nodes));
    for (size_t i = 0; i < count_of_nodes; i++)
        if (nodes[i] != child_node)
            CHECK(cuGraphAddDependencies(graph, &nodes[i], &child_node, NULL, 1));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    launch(exec, LAUNCHES);
    printf("result %d %d %d %d %d\n", word_at(out), word_at(out + 4), word_at(out + 64), word_at(in), word_at(scratch));
}

// Two branches copy to one place. What they copy differs from the fourth launch on.
static void late(void)
{
    float zero = 0, one = 1;
    begin();
    order(stream, side);
    LAUNCH("add_f32", stream, COUNT, &in, &out, &zero, &count);
    LAUNCH("add_f32", side, COUNT, &other, &out, &zero, &count);
    order(side, stream);
    CUgraphExec exec = end();
    launch(exec, 3);
    upload(other, &one, 4);
    launch(exec, 9);
}

enum { GROUPS = 5000, LARGE = GROUPS * 4096 };

static CUgraphExec counting(CUdeviceptr *large)
{
    int groups = GROUPS;
    *large = allocate(LARGE);
    begin();
    LAUNCH("count_groups", stream, GROUPS, large, &groups);
    return end();
}

static void print_counts(CUdeviceptr large)
{
    int *host = malloc(LARGE), least = LARGE, most = 0;
    if (!host)
        fail("malloc", __LINE__, 0);
    CHECK(cuMemcpyDtoH(host, large, LARGE));
    for (int i = 0; i < GROUPS; i++) {
        least = host[i * 1024] < least ? host[i * 1024] : least;
        most = host[i * 1024] > most ? host[i * 1024] : most;
    }
    free(host);
    printf("result %d %d\n", least, most);
}

// Changes more than there is room to keep at first.
static void large(void)
{
    CUdeviceptr memory;
    launch(counting(&memory), 3);
    print_counts(memory);
}

static size_t free_mebibytes(void)
{
    size_t available, total;
    CHECK(cuMemGetInfo(&available, &total));
    return available >> 20;
}

// Takes the memory that is said to be free, in one way and another, and launches meanwhile.
static void grows(void)
{
    CUdeviceptr memory, more;
    CUgraphExec exec = counting(&memory);
    for (int way = 0; way < 2; way++) {
        launch(exec, 2);
        // All but what it takes to look at memory.
        size_t available = free_mebibytes(), size = (available - 16) << 20;
        printf("result %zu MiB are free\n", available);
        if (way == 0) {
            CHECK(cuMemAlloc(&more, size));
            launch(exec, 1);
            CHECK(cuMemFree(more));
        } else {
            CHECK(cuMemAllocAsync(&more, size, stream));
            launch(exec, 1);
            CHECK(cuMemFreeAsync(more, stream));
            CHECK(cuStreamSynchronize(stream));
        }
    }
    print_counts(memory);
}

// A context ends, with a stream that nobody destroys, and the next one begins with checked launches of its own.
static void contexts(void)
{
    for (int i = 0; i < 2; i++) {
        CUcontext own;
        CUstream left;
        CUdeviceptr memory;
        CUdevice device;
        CHECK(cuCtxGetDevice(&device));
        CHECK(cuCtxCreate(&own, NULL, 0, device));
        CUmodule other_module = module;
        CUstream other_stream = stream;
        CHECK(cuModuleLoad(&module, kernels_path));
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuStreamCreate(&left, CU_STREAM_NON_BLOCKING));
        CUgraphExec exec = counting(&memory);
        launch(exec, 2);
        print_counts(memory);
        CHECK(cuGraphExecDestroy(exec));
        CHECK(cuStreamDestroy(stream));
        CHECK(cuCtxDestroy(own));
        module = other_module;
        stream = other_stream;
        CHECK(cuCtxSetCurrent(context));
    }
}

// From the third launch on one branch waits for the other.
static void waits_late(void)
{
    int from = 2;
    begin();
    CHECK(cuMemsetD32Async(scratch, 0, 1, stream));
    order(stream, side);
    LAUNCH("wait_late", stream, 1, &scratch, &other, &from);
    LAUNCH("set_flag", side, 1, &scratch);
    order(side, stream);
    LAUNCH("count_up", stream, 1, &other);
    launch(end(), 5);
    printf("result %d\n", word_at(other));
}

// The second launch waits for what the program does after it. Another graph is checked meanwhile, and later.
static void unfinished(void)
{
    int from = 1;
    begin();
    LAUNCH("wait_late", stream, 1, &scratch, &other, &from);
    LAUNCH("count_up", stream, 1, &other);
    CUgraphExec first = end();
    begin();
    LAUNCH("count_up", stream, 1, &out);
    CUgraphExec second = end();
    launch(first, 1);
    CHECK(cuGraphLaunch(first, stream));
    CHECK(cuGraphLaunch(second, side));
    CHECK(cuMemsetD32Async(scratch, 1, 1, side));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamSynchronize(side));
    launch(second, 3);
    launch(first, 2);
    printf("result %d %d\n", word_at(other), word_at(out));
}

static const struct {
    const char *name;
    void (*function)(void);
} scenarios[] = {
    {"near", near},
    {"padded", padded},
    {"real-rows", real_rows},
    {"kept", kept},
    {"noisy", noisy},
    {"host-function", host_function},
    {"to-host", to_host},
    {"pinned", pinned},
    {"host-input-changes", host_input_changes},
    {"device-input-changes", device_input_changes},
    {"threads", threads},
    {"killed", killed},
    {"nothing", nothing},
    {"table", table},
    {"changes", changes},
    {"turns", turns},
    {"kinds", kinds},
    {"late", late},
    {"large", large},
    {"grows", grows},
    {"contexts", contexts},
    {"waits-late", waits_late},
    {"unfinished", unfinished},
};

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: diff_target SCENARIO KERNELS\n");
        return 2;
    }
    kernels_path = argv[2];
    open_device(kernels_path);
    CHECK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    in = allocate(BYTES);
    scratch = allocate(BYTES);
    out = allocate(BYTES);
    other = allocate(BYTES);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(scenarios[i].name, argv[1]) != 0)
            continue;
        scenarios[i].function();
        return 0;
    }
    fprintf(stderr, "diff_target: no scenario %s\n", argv[1]);
    return 2;
}
