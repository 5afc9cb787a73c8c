// A program that uses graphs in the ways the recorder has to follow. usage: target WAY SCENARIO KERNELS
//
// WAY is how it finds the driver: linked (symbols of libcuda), dlsym, proc (cuGetProcAddress) or proc-ptsz (the same,
// asking for the per-thread-stream variants). SCENARIO is one of the functions in the table at the end.
#include "gravel.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 1024, BYTES = COUNT * 4 };

#define FUNCTIONS(F)                                                       \
    F(cuInit, "cuInit")                                                    \
    F(cuDeviceGet, "cuDeviceGet")                                          \
    F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")                \
    F(cuCtxSetCurrent, "cuCtxSetCurrent")                                  \
    F(cuCtxSynchronize, "cuCtxSynchronize")                                \
    F(cuModuleLoad, "cuModuleLoad")                                        \
    F(cuModuleGetFunction, "cuModuleGetFunction")                          \
    F(cuMemAlloc, "cuMemAlloc_v2")                                         \
    F(cuMemFree, "cuMemFree_v2")                                           \
    F(cuMemAllocAsync, "cuMemAllocAsync")                                  \
    F(cuMemFreeAsync, "cuMemFreeAsync")                                    \
    F(cuMemsetD32Async, "cuMemsetD32Async")                                \
    F(cuMemcpyDtoH, "cuMemcpyDtoH_v2")                                     \
    F(cuMemcpyHtoD, "cuMemcpyHtoD_v2")                                     \
    F(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2")                           \
    F(cuStreamCreate, "cuStreamCreate")                                    \
    F(cuStreamDestroy, "cuStreamDestroy_v2")                               \
    F(cuStreamSynchronize, "cuStreamSynchronize")                          \
    F(cuStreamQuery, "cuStreamQuery")                                      \
    F(cuStreamWaitEvent, "cuStreamWaitEvent")                              \
    F(cuStreamWaitValue32, "cuStreamWaitValue32_v2")                       \
    F(cuStreamWriteValue32, "cuStreamWriteValue32_v2")                     \
    F(cuStreamBeginCapture, "cuStreamBeginCapture_v2")                     \
    F(cuStreamEndCapture, "cuStreamEndCapture")                            \
    F(cuEventCreate, "cuEventCreate")                                      \
    F(cuEventDestroy, "cuEventDestroy_v2")                                 \
    F(cuEventRecord, "cuEventRecord")                                      \
    F(cuEventSynchronize, "cuEventSynchronize")                            \
    F(cuEventQuery, "cuEventQuery")                                        \
    F(cuLaunchKernel, "cuLaunchKernel")                                    \
    F(cuLaunchHostFunc, "cuLaunchHostFunc")                                \
    F(cuGraphCreate, "cuGraphCreate")                                      \
    F(cuGraphDestroy, "cuGraphDestroy")                                    \
    F(cuGraphGetNodes, "cuGraphGetNodes")                                  \
    F(cuGraphAddKernelNode, "cuGraphAddKernelNode_v2")                     \
    F(cuGraphAddChildGraphNode, "cuGraphAddChildGraphNode")                \
    F(cuGraphInstantiate, "cuGraphInstantiateWithFlags")                   \
    F(cuGraphExecUpdate, "cuGraphExecUpdate_v2")                           \
    F(cuGraphExecKernelNodeSetParams, "cuGraphExecKernelNodeSetParams_v2") \
    F(cuGraphNodeSetEnabled, "cuGraphNodeSetEnabled")                      \
    F(cuGraphLaunch, "cuGraphLaunch")                                      \
    F(cuGraphExecDestroy, "cuGraphExecDestroy")

static struct {
#define FIELD(name, symbol) __typeof__(name) *name;
    FUNCTIONS(FIELD)
} cu;

static void fail(const char *what, long code)
{
    fprintf(stderr, "target: %s: error %ld\n", what, code);
    exit(99);
}

#define CHECK(call)                  \
    do {                             \
        CUresult result_ = cu.call;  \
        if (result_ != CUDA_SUCCESS) \
            fail(#call, result_);    \
    } while (0)

static void find_driver(const char *way)
{
    if (strcmp(way, "linked") == 0) {
#define LINKED(name, symbol) cu.name = name;
        FUNCTIONS(LINKED)
        return;
    }
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        fail(dlerror(), 0);
    if (strcmp(way, "dlsym") == 0) {
#define FOUND(name, symbol)                      \
    *(void **)&cu.name = dlsym(library, symbol); \
    if (!cu.name)                                \
        fail(symbol, 0);
        FUNCTIONS(FOUND)
        return;
    }
    // As cudart does: one dlsym, the look-up function asked for itself, and everything else through the answer.
    CUresult (*look_up)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) = NULL;
    CUdriverProcAddressQueryResult status;
    *(void **)&look_up = dlsym(library, "cuGetProcAddress_v2");
    if (!look_up || look_up("cuGetProcAddress", (void **)&look_up, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status))
        fail("cuGetProcAddress", 0);
    cuuint64_t flags = strcmp(way, "proc-ptsz") == 0 ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                                     : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    // The base name, without the version that the exported symbol carries; 12.8, because cuCtxSynchronize of 13.0 is
    // another function.
#define ASKED(name, symbol)                                                      \
    {                                                                            \
        char base[64] = symbol;                                                  \
        char *version = strstr(base, "_v");                                      \
        if (version)                                                             \
            *version = '\0';                                                     \
        if (look_up(base, (void **)&cu.name, 12080, flags, &status) || !cu.name) \
            fail(symbol, status);                                                \
    }
    FUNCTIONS(ASKED)
}

static const char *kernels, *program, *the_way;
static CUcontext context;
static CUfunction fill, add_one, wait_for_flag, set_flag;

static void start_driver(void)
{
    CUdevice device;
    CUmodule module;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoad(&module, kernels));
    CHECK(cuModuleGetFunction(&fill, module, "fill"));
    CHECK(cuModuleGetFunction(&add_one, module, "add_one"));
    CHECK(cuModuleGetFunction(&wait_for_flag, module, "wait_for_flag"));
    CHECK(cuModuleGetFunction(&set_flag, module, "set_flag"));
}

static CUdeviceptr buffer(void)
{
    CUdeviceptr pointer;
    CHECK(cuMemAlloc(&pointer, BYTES));
    return pointer;
}

static CUstream stream(void)
{
    CUstream made;
    CHECK(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
}

static void launch_fill(CUstream on, CUdeviceptr to, int value)
{
    int count = COUNT;
    void *arguments[] = {&to, &count, &value};
    CHECK(cuLaunchKernel(fill, COUNT / 256, 1, 1, 256, 1, 1, 0, on, arguments, NULL)); // LAUNCH:fill
}

static void launch_add(CUstream on, CUdeviceptr from, CUdeviceptr to)
{
    int count = COUNT;
    void *arguments[] = {&from, &to, &count};
    CHECK(cuLaunchKernel(add_one, COUNT / 256, 1, 1, 256, 1, 1, 0, on, arguments, NULL)); // LAUNCH:add
}

static void join(CUstream waiting, CUstream behind)
{
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(event, behind));
    CHECK(cuStreamWaitEvent(waiting, event, 0));
}

// Two branches: each fills a buffer and adds to it. With one scratch buffer they race.
typedef struct branches {
    CUstream main, side;
    CUdeviceptr scratch[2], sums[2];
} branches;

static branches make_branches(bool racy)
{
    branches b = {.main = stream(), .side = stream(), .sums = {buffer(), buffer()}};
    b.scratch[0] = buffer();
    b.scratch[1] = racy ? b.scratch[0] : buffer();
    return b;
}

static CUgraph capture(const branches *b, CUstreamCaptureMode mode)
{
    CUgraph graph;
    CHECK(cuStreamBeginCapture(b->main, mode));
    join(b->side, b->main);
    launch_fill(b->side, b->scratch[0], 1);
    launch_add(b->side, b->scratch[0], b->sums[0]);
    launch_fill(b->main, b->scratch[1], 5);
    launch_add(b->main, b->scratch[1], b->sums[1]);
    join(b->main, b->side);
    CHECK(cuStreamEndCapture(b->main, &graph));
    return graph;
}

static void run(CUgraphExec exec, CUstream on, int launches)
{
    for (int i = 0; i < launches; i++)
        CHECK(cuGraphLaunch(exec, on));
    CHECK(cuStreamSynchronize(on));
}

// The template is destroyed at once, as PyTorch does.
static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return exec;
}

static void expect_sum(CUdeviceptr sums, int expected)
{
    static int host[COUNT];
    CHECK(cuMemcpyDtoH(host, sums, BYTES));
    for (int i = 0; i < COUNT; i++)
        if (host[i] != expected) {
            fprintf(stderr, "target: sum %d is %d, not %d\n", i, host[i], expected);
            exit(98);
        }
}

// ---- Scenarios -----------------------------------------------------------------------------------------------

static void race(void)
{
    branches b = make_branches(true);
    run(instantiate(capture(&b, CU_STREAM_CAPTURE_MODE_GLOBAL)), b.main, 1);
}

static void clean(void)
{
    branches b = make_branches(false);
    CUgraphExec exec = instantiate(capture(&b, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < 3; i++) {
        CHECK(cuMemsetD32Async(b.sums[0], 0, COUNT, b.main));
        run(exec, b.main, 1);
        expect_sum(b.sums[0], 2);
        expect_sum(b.sums[1], 6);
    }
    CHECK(cuGraphExecDestroy(exec));
}

static void six(void)
{
    branches b = make_branches(false);
    run(instantiate(capture(&b, CU_STREAM_CAPTURE_MODE_GLOBAL)), b.main, 6);
}

// Instantiated clean, updated to the racy graph before its first launch.
static void update(void)
{
    branches clean_ones = make_branches(false), racy_ones = make_branches(true);
    CUgraphExec exec = instantiate(capture(&clean_ones, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUgraph racy = capture(&racy_ones, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUgraphExecUpdateResultInfo info;
    CHECK(cuGraphExecUpdate(exec, racy, &info));
    run(exec, clean_ones.main, 1);
}

// One kernel node's buffer is replaced by the other branch's.
static CUgraphExec with_params(branches *b, bool to_shared)
{
    CUgraph graph = capture(b, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUgraphNode nodes[4];
    size_t count = 4;
    CUgraphExec exec;
    CHECK(cuGraphGetNodes(graph, nodes, &count));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    int elements = COUNT, value = 5;
    CUdeviceptr to = to_shared ? b->scratch[0] : b->sums[1];
    void *arguments[] = {&to, &elements, &value};
    CUDA_KERNEL_NODE_PARAMS params = {.func = fill,
                                      .gridDimX = COUNT / 256,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 256,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = arguments};
    CHECK(cuGraphExecKernelNodeSetParams(exec, nodes[2], &params));
    return exec;
}

static void set_params(void)
{
    branches b = make_branches(false);
    run(with_params(&b, true), b.main, 1);
}

static void disable_nodes(bool updates)
{
    branches b = make_branches(true);
    CUgraph graph = capture(&b, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUgraphNode nodes[4];
    size_t count = 4;
    CUgraphExec exec;
    CHECK(cuGraphGetNodes(graph, nodes, &count));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    // Without the main branch's two nodes nothing is left to race with.
    CHECK(cuGraphNodeSetEnabled(exec, nodes[2], 0));
    CHECK(cuGraphNodeSetEnabled(exec, nodes[3], 0));
    CHECK(cuMemsetD32Async(b.sums[1], 77, COUNT, b.main));
    // They stay disabled when the executable graph is updated.
    CUgraphExecUpdateResultInfo info;
    if (updates)
        CHECK(cuGraphExecUpdate(exec, graph, &info));
    run(exec, b.main, 1);
    expect_sum(b.sums[0], 2);
    expect_sum(b.sums[1], 77);
}

static void disabled(void)
{
    disable_nodes(false);
}

static void disabled_and_updated(void)
{
    disable_nodes(true);
}

static void add_fill_node(CUgraph graph, CUgraphNode *node, const CUgraphNode *after, CUdeviceptr to, int value)
{
    int count = COUNT;
    void *arguments[] = {&to, &count, &value};
    CUDA_KERNEL_NODE_PARAMS params = {.func = fill,
                                      .gridDimX = COUNT / 256,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 256,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = arguments};
    CHECK(cuGraphAddKernelNode(node, graph, after, after ? 1 : 0, &params)); // LAUNCH:node
}

// A child graph writes what a node beside it writes too.
static void child(void)
{
    CUstream on = stream();
    CUdeviceptr shared = buffer();
    CUgraph inner, outer;
    CUgraphNode nodes[3];
    CHECK(cuGraphCreate(&inner, 0));
    CHECK(cuGraphCreate(&outer, 0));
    add_fill_node(inner, &nodes[0], NULL, shared, 1);
    add_fill_node(inner, &nodes[1], &nodes[0], shared, 2);
    CHECK(cuGraphAddChildGraphNode(&nodes[0], outer, NULL, 0, inner));
    CHECK(cuGraphDestroy(inner));
    add_fill_node(outer, &nodes[2], NULL, shared, 3);
    run(instantiate(outer), on, 1);
}

static void host_function(void *seen)
{
    *(int *)seen = 1;
}

// Copies, sets and a host function between two kernels; the copy's source is set on another branch.
static void copies(void)
{
    static int seen;
    CUstream main_stream = stream(), side = stream();
    CUdeviceptr from = buffer(), to = buffer();
    CUgraph graph;
    CHECK(cuStreamBeginCapture(main_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch_fill(main_stream, to, 1);
    join(side, main_stream);
    CHECK(cuMemsetD32Async(from, 3, COUNT, side));          // LAUNCH:set
    CHECK(cuMemcpyDtoDAsync(to, from, BYTES, main_stream)); // LAUNCH:copy
    CHECK(cuLaunchHostFunc(main_stream, host_function, &seen));
    join(main_stream, side);
    CHECK(cuStreamEndCapture(main_stream, &graph));
    run(instantiate(graph), main_stream, 1);
    if (!seen)
        fail("host function", 0);
}

static void alloc_nodes(void)
{
    CUstream on = stream();
    CUdeviceptr block, sums = buffer();
    CUgraph graph;
    CHECK(cuStreamBeginCapture(on, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemAllocAsync(&block, BYTES, on));
    launch_fill(on, block, 6);
    launch_add(on, block, sums);
    CHECK(cuMemFreeAsync(block, on));
    CHECK(cuStreamEndCapture(on, &graph));
    run(instantiate(graph), on, 2);
    expect_sum(sums, 7);
}

static void stall(void)
{
    CUstream main_stream = stream(), side = stream();
    CUdeviceptr flag = buffer(), seen = buffer();
    CUgraph graph;
    int limit = 20000, one = 1;
    void *waiting[] = {&flag, &seen, &limit}, *setting[] = {&flag, &one};
    CHECK(cuMemsetD32Async(flag, 0, COUNT, main_stream));
    CHECK(cuStreamBeginCapture(main_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    join(side, main_stream);
    CHECK(cuLaunchKernel(wait_for_flag, 1, 1, 1, 1, 1, 1, 0, main_stream, waiting, NULL));
    CHECK(cuLaunchKernel(set_flag, 1, 1, 1, 1, 1, 1, 0, side, setting, NULL));
    join(main_stream, side);
    CHECK(cuStreamEndCapture(main_stream, &graph));
    run(instantiate(graph), main_stream, 1);
    int result = 0;
    CHECK(cuMemcpyDtoH(&result, seen, 4));
    if (result != 1)
        fail("the flag was not seen", result);
}

static void wait_for_caller(void *flag)
{
    for (int i = 0; i < 20000 && !__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE); i++)
        usleep(1000);
    if (!__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE))
        _exit(97);
}

// A node waits for what the program does after the launch has returned.
static void host_wait(void)
{
    static int flag;
    CUstream on = stream();
    CUdeviceptr to = buffer(), sums = buffer();
    CUgraph graph;
    CHECK(cuStreamBeginCapture(on, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch_fill(on, to, 1);
    CHECK(cuLaunchHostFunc(on, wait_for_caller, &flag));
    launch_add(on, to, sums);
    CHECK(cuStreamEndCapture(on, &graph));
    CUgraphExec exec = instantiate(graph);
    CHECK(cuGraphLaunch(exec, on));
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    CHECK(cuStreamSynchronize(on));
    expect_sum(sums, 2);
    // The next launch finds everything as it was.
    run(exec, on, 2);
    expect_sum(sums, 2);
}

// A node of a child graph waits for a flag that a node beside the child sets.
static void child_stall(void)
{
    CUstream on = stream();
    CUdeviceptr flag = buffer(), seen = buffer();
    CUgraph inner, outer;
    CUgraphNode nodes[2];
    int limit = 20000, one = 1;
    void *waiting[] = {&flag, &seen, &limit}, *setting[] = {&flag, &one};
    CUDA_KERNEL_NODE_PARAMS params = {.func = wait_for_flag,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = waiting};
    CHECK(cuMemsetD32Async(flag, 0, COUNT, on));
    CHECK(cuGraphCreate(&inner, 0));
    CHECK(cuGraphCreate(&outer, 0));
    CHECK(cuGraphAddKernelNode(&nodes[0], inner, NULL, 0, &params));
    CHECK(cuGraphAddChildGraphNode(&nodes[0], outer, NULL, 0, inner));
    params.func = set_flag;
    params.kernelParams = setting;
    CHECK(cuGraphAddKernelNode(&nodes[1], outer, NULL, 0, &params));
    run(instantiate(outer), on, 1);
    int result = 0;
    CHECK(cuMemcpyDtoH(&result, seen, 4));
    if (result != 1)
        fail("the flag was not seen", result);
}

// Another stream of the context is busy for as long as the program runs.
static void busy(void)
{
    branches b = make_branches(false);
    CUstream other = stream();
    CUdeviceptr flag = buffer(), seen = buffer();
    int limit = 20000, one = 1;
    void *waiting[] = {&flag, &seen, &limit}, *setting[] = {&flag, &one};
    CHECK(cuMemsetD32Async(flag, 0, COUNT, b.main));
    CHECK(cuStreamSynchronize(b.main));
    CUgraphExec exec = instantiate(capture(&b, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuLaunchKernel(wait_for_flag, 1, 1, 1, 1, 1, 1, 0, other, waiting, NULL));
    run(exec, b.main, 30);
    CHECK(cuLaunchKernel(set_flag, 1, 1, 1, 1, 1, 1, 0, b.main, setting, NULL));
    CHECK(cuCtxSynchronize());
    expect_sum(b.sums[0], 2);
}

// The driver refuses to free memory while a capture of this mode is under way.
static void free_refused(void)
{
    CUdeviceptr memory = buffer();
    CUstream on = stream();
    CUgraph graph;
    CHECK(cuStreamBeginCapture(on, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (cu.cuMemFree(memory) == CUDA_SUCCESS)
        fail("cuMemFree in a capture", 0);
    cu.cuStreamEndCapture(on, &graph);
    CHECK(cuMemsetD32Async(memory, 0, COUNT, on));
    CHECK(cuStreamSynchronize(on));
    CHECK(cuMemFree(memory));
}

// A capture is never ended: its stream is destroyed.
static void capture_gone(void)
{
    CUstream gone = stream();
    CHECK(cuStreamBeginCapture(gone, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuStreamDestroy(gone));
    race();
}

static pthread_barrier_t both_captured;

// No launch is armed while any capture is under way, so both captures end before the first launch.
static void *capture_and_run(void *racy)
{
    CHECK(cuCtxSetCurrent(context));
    branches b = make_branches(*(const bool *)racy);
    CUgraphExec exec = instantiate(capture(&b, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    pthread_barrier_wait(&both_captured);
    for (int i = 0; i < 20; i++)
        run(exec, b.main, 1);
    return NULL;
}

static void threads(void)
{
    static bool racy[] = {true, false};
    pthread_t one, two;
    pthread_barrier_init(&both_captured, NULL, 2);
    pthread_create(&one, NULL, capture_and_run, &racy[0]);
    pthread_create(&two, NULL, capture_and_run, &racy[1]);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
}

static void killed(void)
{
    race();
    raise(SIGKILL);
}

static void quick_exit_(void)
{
    race();
    _exit(0);
}

static void exec_again(void)
{
    clean();
    execl(program, "record_target", the_way, "race", kernels, (char *)NULL);
    fail("execl", 0);
}

// Everything that orders, outside of a graph; run.py knows the list.
static void operations(void)
{
    CUstream one = stream(), two = stream();
    CUevent event;
    CUdeviceptr memory = buffer(), block;
    int value = 7, seen = 0;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemcpyHtoD(memory, &value, 4));
    CHECK(cuCtxSynchronize()); // a copy from pageable memory may still be under way on the device
    CHECK(cuMemsetD32Async(memory, 0, COUNT, one));
    launch_fill(one, memory, 3);
    CHECK(cuEventRecord(event, one));
    CHECK(cuStreamWaitEvent(two, event, 0));
    CHECK(cuLaunchHostFunc(two, host_function, &seen));
    CHECK(cuEventSynchronize(event));
    CHECK(cuEventQuery(event));
    CHECK(cuStreamWriteValue32(one, memory, 9, 0));
    CHECK(cuStreamWaitValue32(two, memory, 9, CU_STREAM_WAIT_VALUE_EQ));
    CHECK(cuMemAllocAsync(&block, BYTES, two));
    CHECK(cuMemcpyDtoDAsync(block, memory, BYTES, two));
    CHECK(cuMemFreeAsync(block, two));
    CHECK(cuStreamSynchronize(two));
    CHECK(cuStreamQuery(two));
    CHECK(cuMemcpyDtoH(&value, memory, 4));
    gravel_order_release(5);
    gravel_order_acquire(5);
    CHECK(cuCtxSynchronize());
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(two));
    CHECK(cuMemFree(memory));
}

// Asks for the third of five launches itself.
static void arm_next(void)
{
    branches b = make_branches(false);
    CUgraphExec exec = instantiate(capture(&b, CU_STREAM_CAPTURE_MODE_GLOBAL));
    run(exec, b.main, 2);
    if (!gravel_present())
        fail("gravel_present", 0);
    gravel_arm_next();
    run(exec, b.main, 3);
}

static void empty(void)
{
    CUgraph graph;
    CHECK(cuGraphCreate(&graph, 0));
    run(instantiate(graph), stream(), 2);
}

// What the parent of worker processes does.
static void init_only(void)
{
    CUdevice device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
}

// Forked once the driver is in use: the child may not use it, ends by exit(), and must leave the parent's file alone.
static void fork_after(void)
{
    branches b = make_branches(true);
    pid_t pid = fork();
    if (pid == 0)
        exit(3);
    int status = 0;
    waitpid(pid, &status, 0);
    if (WEXITSTATUS(status) != 3)
        fail("child", status);
    run(instantiate(capture(&b, CU_STREAM_CAPTURE_MODE_GLOBAL)), b.main, 1);
}

// Forked before the driver is used: both use it, each with a trace of its own.
static void fork_before(void)
{
    pid_t pid = fork();
    start_driver();
    if (pid == 0) {
        race();
        exit(0);
    }
    clean();
    int status = 0;
    waitpid(pid, &status, 0);
    if (status)
        fail("child", status);
}

static const struct {
    const char *name;
    void (*function)(void);
    bool starts_driver;
} scenarios[] = {
    {"race", race, false},
    {"clean", clean, false},
    {"six", six, false},
    {"update", update, false},
    {"set-params", set_params, false},
    {"disabled", disabled, false},
    {"disabled-update", disabled_and_updated, false},
    {"child", child, false},
    {"copies", copies, false},
    {"alloc-nodes", alloc_nodes, false},
    {"stall", stall, false},
    {"threads", threads, false},
    {"killed", killed, false},
    {"quick-exit", quick_exit_, false},
    {"exec", exec_again, false},
    {"fork-after", fork_after, false},
    {"fork-before", fork_before, true},
    {"empty", empty, false},
    {"init-only", init_only, true},
    {"operations", operations, false},
    {"arm-next", arm_next, false},
    {"host-wait", host_wait, false},
    {"child-stall", child_stall, false},
    {"busy", busy, false},
    {"capture-gone", capture_gone, false},
    {"free-refused", free_refused, false},
};

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: target linked|dlsym|proc|proc-ptsz SCENARIO KERNELS\n");
        return 2;
    }
    program = argv[0];
    the_way = argv[1];
    kernels = argv[3];
    find_driver(argv[1]);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(scenarios[i].name, argv[2]) != 0)
            continue;
        if (!scenarios[i].starts_driver)
            start_driver();
        scenarios[i].function();
        return 0;
    }
    fprintf(stderr, "target: no scenario %s\n", argv[2]);
    return 2;
}
