// A program with conditional nodes, in the ways the recorder has to follow. usage: conditional SCENARIO KERNELS
//
// Each scenario checks its results: a replay that ran other bodies than the graph would have run ends with code 99.
#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1024, BYTES = COUNT * 4 };

static void fail(const char *what, long code, int line)
{
    fprintf(stderr, "conditional.c:%d: %s: %ld\n", line, what, code);
    exit(99);
}

#define CHECK(call)                         \
    do {                                    \
        CUresult result_ = (call);          \
        if (result_ != CUDA_SUCCESS)        \
            fail(#call, result_, __LINE__); \
    } while (0)
#define EXPECT(what, expected)            \
    do {                                  \
        long seen_ = (what);              \
        if (seen_ != (expected))          \
            fail(#what, seen_, __LINE__); \
    } while (0)

static CUcontext context;
static CUmodule module;
static CUstream stream;

static CUfunction kernel(const char *name)
{
    CUfunction function;
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
}

static CUdeviceptr buffer(size_t bytes)
{
    CUdeviceptr address;
    CHECK(cuMemAlloc(&address, bytes));
    CHECK(cuMemsetD8(address, 0, bytes));
    CHECK(cuCtxSynchronize());
    return address;
}

static void store(CUdeviceptr address, int value)
{
    CHECK(cuMemcpyHtoD(address, &value, sizeof value));
    CHECK(cuCtxSynchronize());
}

static int load(CUdeviceptr address)
{
    int value;
    CHECK(cuMemcpyDtoH(&value, address, sizeof value));
    return value;
}

static CUgraph graph_new(void)
{
    CUgraph graph;
    CHECK(cuGraphCreate(&graph, 0));
    return graph;
}

static CUgraphConditionalHandle handle_new(CUgraph graph, unsigned initial, unsigned flags)
{
    CUgraphConditionalHandle handle;
    CHECK(cuGraphConditionalHandleCreate(&handle, graph, context, initial, flags));
    return handle;
}

static CUgraphNode conditional(CUgraph graph, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                               unsigned size, const CUgraphNode *after, CUgraph **bodies)
{
    CUgraphNode node;
    CUgraphNodeParams params;
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = context;
    CHECK(cuGraphAddNode(&node, graph, after, NULL, after ? 1 : 0, &params));
    *bodies = params.conditional.phGraph_out;
    return node;
}

static CUgraphNode add_kernel(CUgraph graph, const char *name, int threads, const CUgraphNode *after, void **arguments)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS params = {
        kernel(name), (unsigned)(threads + 127) / 128, 1, 1, 128, 1, 1, 0, arguments, NULL, NULL, NULL};
    if (threads == 1)
        params.blockDimX = 1;
    CHECK(cuGraphAddKernelNode(&node, graph, after, after ? 1 : 0, &params));
    return node;
}

static CUgraphNode fill(CUgraph graph, CUdeviceptr to, int value, const CUgraphNode *after)
{
    int count = COUNT;
    return add_kernel(graph, "fill", COUNT, after, (void *[]){&to, &count, &value});
}

static CUgraphNode add_one(CUgraph graph, CUdeviceptr from, CUdeviceptr to, const CUgraphNode *after)
{
    int count = COUNT;
    return add_kernel(graph, "add_one", COUNT, after, (void *[]){&from, &to, &count});
}

static CUgraphNode set_to(CUgraph graph, CUdeviceptr value, CUgraphConditionalHandle handle, const CUgraphNode *after)
{
    return add_kernel(graph, "set_condition", 1, after, (void *[]){&value, &handle});
}

static CUgraphNode count_down(CUgraph graph, CUdeviceptr left, CUgraphConditionalHandle handle,
                              const CUgraphNode *after)
{
    return add_kernel(graph, "count_down", 1, after, (void *[]){&left, &handle});
}

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

static void run(CUgraphExec exec)
{
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
}

// ---- IF ----

// value -> set -> IF { fill a; add_one a -> b }, where `racing` leaves the two of the body in no order.
static void an_if(bool racing)
{
    CUdeviceptr value = buffer(4), a = buffer(BYTES), b = buffer(BYTES);
    CUgraph graph = graph_new(), *bodies;
    CUgraphConditionalHandle handle = handle_new(graph, 0, 0);
    CUgraphNode set = set_to(graph, value, handle, NULL);
    conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, &set, &bodies);
    CUgraphNode first = fill(bodies[0], a, 7, NULL);
    add_one(bodies[0], a, b, racing ? NULL : &first);
    CUgraphExec exec = instantiate(graph);
    CHECK(cuGraphDestroy(graph)); // as frameworks do
    store(value, 3);
    run(exec);
    EXPECT(load(a), 7);
    if (!racing)
        EXPECT(load(b), 8);
    store(value, 0);
    CHECK(cuMemsetD8(a, 0, BYTES));
    CHECK(cuCtxSynchronize());
    run(exec);
    EXPECT(load(a), 0);
}

static void if_race(void)
{
    an_if(true);
}

static void if_clean(void)
{
    an_if(false);
}

// Four launches that choose one body and the other by turns.
static void if_else(void)
{
    CUdeviceptr value = buffer(4), a = buffer(BYTES);
    CUgraph graph = graph_new(), *bodies;
    CUgraphConditionalHandle handle = handle_new(graph, 0, 0);
    CUgraphNode set = set_to(graph, value, handle, NULL);
    CUgraphNode choose = conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 2, &set, &bodies);
    fill(bodies[0], a, 1, NULL);
    fill(bodies[1], a, 2, NULL);
    CUdeviceptr b = buffer(BYTES);
    add_one(graph, a, b, &choose);
    CUgraphExec exec = instantiate(graph);
    for (int i = 0; i < 4; i++) {
        store(value, i % 2);
        run(exec);
        EXPECT(load(b), i % 2 ? 2 : 3);
    }
}

// ---- WHILE ----

// Five iterations over two buffers that change places: nothing races, though the two kernels of the body have no order.
static void while_clean(void)
{
    CUdeviceptr left = buffer(4), even = buffer(BYTES), odd = buffer(BYTES), sums = buffer(BYTES);
    CUgraph graph = graph_new(), *bodies;
    CUgraphConditionalHandle handle = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, &bodies);
    int count = COUNT;
    CUgraphNode both[2];
    both[0] = add_kernel(bodies[0], "write_turn", COUNT, NULL, (void *[]){&even, &odd, &left, &count});
    both[1] = add_kernel(bodies[0], "read_turn", COUNT, NULL, (void *[]){&even, &odd, &left, &sums, &count});
    CUgraphNode last = count_down(bodies[0], left, handle, &both[0]);
    CHECK(cuGraphAddDependencies(bodies[0], &both[1], &last, NULL, 1));
    CUgraphExec exec = instantiate(graph);
    for (int launch = 1; launch <= 2; launch++) {
        store(left, 5);
        run(exec);
        EXPECT(load(left), 0);
        EXPECT(load(even) + load(odd), 5 * launch);
    }
}

// A loop, and a node beside it that reads what the loop writes.
static void while_beside(bool ordered)
{
    CUdeviceptr left = buffer(4), a = buffer(BYTES), b = buffer(BYTES);
    CUgraph graph = graph_new(), *bodies;
    CUgraphConditionalHandle handle = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode loop = conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, &bodies);
    CUgraphNode work = fill(bodies[0], a, 5, NULL);
    count_down(bodies[0], left, handle, &work);
    add_one(graph, a, b, ordered ? &loop : NULL);
    CUgraphExec exec = instantiate(graph);
    store(left, 3);
    run(exec);
    EXPECT(load(a), 5);
    if (ordered)
        EXPECT(load(b), 6);
}

static void while_race(void)
{
    while_beside(false);
}

static void while_ordered(void)
{
    while_beside(true);
}

// Twelve iterations and a node behind them.
static void long_loop(void)
{
    CUdeviceptr left = buffer(4), counter = buffer(BYTES), copy = buffer(BYTES);
    CUgraph graph = graph_new(), *bodies;
    CUgraphConditionalHandle handle = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode loop = conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, &bodies);
    CUgraphNode work = add_one(bodies[0], counter, counter, NULL);
    count_down(bodies[0], left, handle, &work);
    add_one(graph, counter, copy, &loop);
    CUgraphExec exec = instantiate(graph);
    for (int launch = 1; launch <= 2; launch++) {
        store(left, 12);
        run(exec);
        EXPECT(load(copy), 12 * launch + 1);
    }
}

// A loop that is never entered.
static void while_zero(void)
{
    CUdeviceptr left = buffer(4), value = buffer(4), a = buffer(BYTES);
    CUgraph graph = graph_new(), *bodies;
    CUgraphConditionalHandle handle = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode set = set_to(graph, value, handle, NULL);
    conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &set, &bodies);
    CUgraphNode work = fill(bodies[0], a, 5, NULL);
    count_down(bodies[0], left, handle, &work);
    run(instantiate(graph));
    EXPECT(load(a), 0);
}

// ---- SWITCH, nesting, capture ----

static void switch_(void)
{
    CUdeviceptr value = buffer(4), a = buffer(BYTES);
    CUgraph graph = graph_new(), *bodies;
    CUgraphConditionalHandle handle = handle_new(graph, 0, 0);
    CUgraphNode set = set_to(graph, value, handle, NULL);
    conditional(graph, handle, CU_GRAPH_COND_TYPE_SWITCH, 4, &set, &bodies);
    for (int i = 0; i < 4; i++)
        fill(bodies[i], a, 10 + i, NULL);
    CUgraphExec exec = instantiate(graph);
    const int values[] = {2, 3, 0, 9, 1};
    int expected = 0;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        store(value, values[i]);
        run(exec);
        expected = values[i] < 4 ? 10 + values[i] : expected;
        EXPECT(load(a), expected);
    }
}

// A loop of six iterations; each sets an inner condition to what is left, and chooses by it; a child graph in a body.
static void nested(void)
{
    CUdeviceptr left = buffer(4), a = buffer(BYTES), b = buffer(BYTES), c = buffer(BYTES);
    CUgraph graph = graph_new(), child = graph_new(), *loop, *choice;
    CUgraphConditionalHandle outer = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    conditional(graph, outer, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, &loop);
    CUgraphConditionalHandle inner = handle_new(loop[0], 0, 0);
    CUgraphNode set = set_to(loop[0], left, inner, NULL);
    CUgraphNode choose = conditional(loop[0], inner, CU_GRAPH_COND_TYPE_SWITCH, 4, &set, &choice);
    add_one(child, a, a, NULL);
    CUgraphNode node;
    for (int i = 0; i < 3; i++) // what is left is 6, 5, 4: no body; 3: the last; 2 and 1
        CHECK(cuGraphAddChildGraphNode(&node, choice[i], NULL, 0, child));
    add_one(choice[3], b, b, NULL);
    CUgraphNode work = add_one(loop[0], c, c, &choose);
    count_down(loop[0], left, outer, &work);
    CUgraphExec exec = instantiate(graph);
    CHECK(cuGraphDestroy(child));
    CHECK(cuGraphDestroy(graph));
    for (int launch = 1; launch <= 2; launch++) {
        store(left, 6);
        run(exec);
        EXPECT(load(a), 2 * launch);
        EXPECT(load(b), launch);
        EXPECT(load(c), 6 * launch);
    }
}

// The way frameworks make them: the node is put into a graph that a stream captures, and its body is captured by
// another.
static void captured(void)
{
    CUdeviceptr left = buffer(4), a = buffer(BYTES), b = buffer(BYTES);
    CUstream inside;
    CHECK(cuStreamCreate(&inside, CU_STREAM_NON_BLOCKING));
    int count = COUNT, value = 4, one = 1, three = 3;
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph, *bodies, same;
    const CUgraphNode *after;
    const CUgraphEdgeData *edges;
    size_t after_count;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuLaunchKernel(kernel("fill"), 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&left, &one, &three}, NULL));
    CHECK(cuStreamGetCaptureInfo(stream, &status, &id, &graph, &after, &edges, &after_count));
    EXPECT(after_count, 1);
    CUgraphConditionalHandle handle = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode loop = conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1, after, &bodies);
    CHECK(cuStreamBeginCaptureToGraph(inside, bodies[0], NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuLaunchKernel(kernel("fill"), 8, 1, 1, 128, 1, 1, 0, inside, (void *[]){&a, &count, &value}, NULL));
    // A packed block, as some launchers make it.
    struct {
        CUdeviceptr left;
        CUgraphConditionalHandle handle;
    } packed = {left, handle};
    size_t size = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    CHECK(cuLaunchKernel(kernel("count_down"), 1, 1, 1, 1, 1, 1, 0, inside, NULL, extra)); // LAUNCH:packed
    CHECK(cuStreamEndCapture(inside, &same));
    CHECK(cuStreamUpdateCaptureDependencies(stream, &loop, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    CHECK(cuLaunchKernel(kernel("add_one"), 8, 1, 1, 128, 1, 1, 0, stream, (void *[]){&a, &b, &count}, NULL));
    CHECK(cuStreamEndCapture(stream, &graph));
    CUgraphExec exec = instantiate(graph);
    CHECK(cuGraphDestroy(graph));
    run(exec);
    EXPECT(load(b), 5);
    EXPECT(load(left), 0);
}

// ---- Changes ----

static void changed(void)
{
    CUdeviceptr value = buffer(4), a = buffer(BYTES), b = buffer(BYTES);
    CUgraph graph = graph_new(), *bodies;
    CUgraphConditionalHandle handle = handle_new(graph, 0, 0);
    CUgraphNode set = set_to(graph, value, handle, NULL);
    conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, &set, &bodies);
    CUgraphNode first = fill(bodies[0], a, 1, NULL);
    CUgraphNode second = fill(bodies[0], b, 1, NULL);
    CUgraphExec exec = instantiate(graph);
    // The second node writes where the first does from now on.
    int count = COUNT, two = 2;
    CUDA_KERNEL_NODE_PARAMS params = {kernel("fill"), 8,    1,   1, 128, 1, 1, 0, (void *[]){&a, &count, &two},
                                      NULL,           NULL, NULL};
    CHECK(cuGraphExecKernelNodeSetParams(exec, second, &params));
    (void)first;
    store(value, 1);
    run(exec);
    EXPECT(load(b), 0);
}

static void updated(void)
{
    CUdeviceptr value = buffer(4), a = buffer(BYTES);
    CUgraphExec exec = NULL;
    for (int i = 0; i < 2; i++) {
        CUgraph graph = graph_new(), *bodies;
        CUgraphConditionalHandle handle = handle_new(graph, 0, 0);
        CUgraphNode set = set_to(graph, value, handle, NULL);
        conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, &set, &bodies);
        fill(bodies[0], a, 20 + i, NULL);
        CUgraphExecUpdateResultInfo info;
        if (i == 0)
            exec = instantiate(graph);
        else
            CHECK(cuGraphExecUpdate(exec, graph, &info));
    }
    store(value, 1);
    run(exec);
    EXPECT(load(a), 21);
    run(exec);
}

// ---- Where values come from ----

// The handle stands in device memory: nothing tells beforehand that the kernel sets it.
static void from_memory_with(unsigned flags)
{
    CUdeviceptr value = buffer(4), place = buffer(8), a = buffer(BYTES);
    CUgraph graph = graph_new(), *bodies;
    CUgraphConditionalHandle handle = handle_new(graph, 0, flags);
    CHECK(cuMemcpyHtoD(place, &handle, sizeof handle));
    CUgraphNode set = add_kernel(graph, "set_from_memory", 1, NULL, (void *[]){&value, &place});
    conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, &set, &bodies);
    fill(bodies[0], a, 1, NULL);
    store(value, 1);
    run(instantiate(graph));
    EXPECT(load(a), 1);
}

static void from_memory(void)
{
    from_memory_with(CU_GRAPH_COND_ASSIGN_DEFAULT);
}

static void from_memory_alone(void)
{
    from_memory_with(0);
}

// What decides was set by the launch before.
static void from_before(void)
{
    CUdeviceptr value = buffer(4), a = buffer(BYTES);
    CUgraph graph = graph_new(), *bodies;
    CUgraphConditionalHandle handle = handle_new(graph, 0, 0);
    CUgraphNode choose = conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &bodies);
    add_one(bodies[0], a, a, NULL);
    set_to(graph, value, handle, &choose);
    CUgraphExec exec = instantiate(graph);
    for (int launch = 0; launch < 3; launch++) {
        store(value, 1);
        run(exec);
        EXPECT(load(a), launch);
    }
}

// A default is assigned at the launch, and not in each iteration: the body runs once, for it sets its own handle.
static void default_in_loop(void)
{
    CUdeviceptr left = buffer(4), zero = buffer(4), a = buffer(BYTES), b = buffer(BYTES);
    CUgraph graph = graph_new(), *loop, *choice;
    CUgraphConditionalHandle outer = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    conditional(graph, outer, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, &loop);
    CUgraphConditionalHandle inner = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode choose = conditional(loop[0], inner, CU_GRAPH_COND_TYPE_IF, 1, NULL, &choice);
    CUgraphNode once = add_one(choice[0], a, a, NULL);
    set_to(choice[0], zero, inner, &once);
    CUgraphNode work = add_one(loop[0], b, b, &choose);
    count_down(loop[0], left, outer, &work);
    CUgraphExec exec = instantiate(graph);
    for (int launch = 1; launch <= 2; launch++) {
        store(left, 3);
        run(exec);
        EXPECT(load(a), launch);
        EXPECT(load(b), 3 * launch);
    }
}

// Two graphs with handles of the same numbers, launched by turns.
static void same_numbers(void)
{
    CUdeviceptr values[2] = {buffer(4), buffer(4)}, a[2] = {buffer(BYTES), buffer(BYTES)};
    CUgraphExec execs[2];
    for (int i = 0; i < 2; i++) {
        CUgraph graph = graph_new(), *bodies;
        CUgraphConditionalHandle handle = handle_new(graph, 0, 0);
        EXPECT((long)handle, 1);
        CUgraphNode set = set_to(graph, values[i], handle, NULL);
        conditional(graph, handle, i ? CU_GRAPH_COND_TYPE_SWITCH : CU_GRAPH_COND_TYPE_IF, 1, &set, &bodies);
        add_one(bodies[0], a[i], a[i], NULL);
        execs[i] = instantiate(graph);
    }
    for (int launch = 1; launch <= 3; launch++)
        for (int i = 0; i < 2; i++) {
            store(values[i], i ? 0 : 7); // the first body of each
            run(execs[i]);
            EXPECT(load(a[i]), launch);
        }
}

// In a loop an IF whose body has another one, which decides by what the iteration before has set.
static void from_iteration_before(void)
{
    CUdeviceptr left = buffer(4), a = buffer(BYTES);
    CUgraph graph = graph_new(), *loop, *choice, *inner;
    CUgraphConditionalHandle again = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    conditional(graph, again, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, &loop);
    CUgraphConditionalHandle outer = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode choose = conditional(loop[0], outer, CU_GRAPH_COND_TYPE_IF, 1, NULL, &choice);
    CUgraphConditionalHandle last = handle_new(graph, 0, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode decide = conditional(choice[0], last, CU_GRAPH_COND_TYPE_IF, 1, NULL, &inner);
    add_one(inner[0], a, a, NULL);
    set_to(choice[0], left, last, &decide);
    count_down(loop[0], left, again, &choose);
    store(left, 3);
    run(instantiate(graph));
    EXPECT(load(a), 2);
}

// Setting and deciding have no order: what runs depends on timing.
static void unordered(void)
{
    CUdeviceptr value = buffer(4), a = buffer(BYTES);
    CUgraph graph = graph_new(), *bodies;
    CUgraphConditionalHandle handle = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    set_to(graph, value, handle, NULL);
    conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &bodies);
    fill(bodies[0], a, 1, NULL);
    store(value, 1);
    run(instantiate(graph));
    EXPECT(load(a), 1);
}

// ---- Waiting for the program ----

// The second iteration waits for a flag that the program sets after the launch. What follows, the rest of the loop and
// the node behind it, has to come in order.
static void waits(void)
{
    CUdeviceptr left = buffer(4), seen = buffer(4), counter = buffer(BYTES), copy = buffer(BYTES);
    CUstream other;
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CUdeviceptr flag = buffer(4);
    int limit_ms = 60000, one = 1;
    CUgraph graph = graph_new(), *bodies, *inner;
    CUgraphConditionalHandle handle = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode loop = conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, &bodies);
    CUgraphConditionalHandle chosen = handle_new(graph, 0, 0);
    CUgraphNode work = add_one(bodies[0], counter, counter, NULL);
    CUgraphNode wait = add_kernel(bodies[0], "wait_for_flag", 1, &work, (void *[]){&flag, &seen, &limit_ms});
    CUgraphNode set = set_to(bodies[0], left, chosen, &wait);
    CUgraphNode choose = conditional(bodies[0], chosen, CU_GRAPH_COND_TYPE_SWITCH, 3, &set, &inner);
    for (int i = 0; i < 3; i++)
        add_one(inner[i], counter, counter, NULL);
    count_down(bodies[0], left, handle, &choose);
    add_one(graph, counter, copy, &loop);
    CUgraphExec exec = instantiate(graph);
    store(left, 4); // 4 and 3 choose none, 2 and 1 a body each
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuLaunchKernel(kernel("set_flag"), 1, 1, 1, 1, 1, 1, 0, other, (void *[]){&flag, &one}, NULL));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(load(seen), 1);
    EXPECT(load(counter), 6);
    EXPECT(load(copy), 7);
    store(left, 4);
    run(exec);
    EXPECT(load(counter), 12);
    EXPECT(load(copy), 13);
}

// Two branches, each of which sets a handle to VALUE or the opposite, and behind both a node for each. One branch waits
// first: for a flag of the other one, or for the program.
static void waits_for(bool program)
{
    const char *wish = getenv("VALUE");
    int one = 1, limit_ms = 60000, first = wish && *wish == '1', second = !first;
    CUdeviceptr flag = buffer(4), seen = buffer(4), values[2] = {buffer(4), buffer(4)};
    CUdeviceptr a[2] = {buffer(BYTES), buffer(BYTES)};
    CUstream other;
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CUgraph graph = graph_new(), *bodies;
    CUgraphConditionalHandle handles[2];
    CUgraphNode sets[2], node;
    // Set before anything of the graph, to what neither branch sets them to.
    CUdeviceptr opposites[2] = {buffer(4), buffer(4)};
    for (int i = 0; i < 2; i++)
        handles[i] = handle_new(graph, 0, 0);
    CUgraphNode begin = set_to(graph, opposites[0], handles[0], NULL);
    begin = set_to(graph, opposites[1], handles[1], &begin);
    CUgraphNode wait = add_kernel(graph, "wait_for_flag", 1, &begin, (void *[]){&flag, &seen, &limit_ms});
    sets[0] = set_to(graph, values[0], handles[0], &wait);
    CUdeviceptr where = program ? seen : flag;
    CUgraphNode beside = add_kernel(graph, "set_flag", 1, &begin, (void *[]){&where, &one});
    sets[1] = set_to(graph, values[1], handles[1], &beside);
    for (int i = 0; i < 2; i++) {
        node = conditional(graph, handles[i], i ? CU_GRAPH_COND_TYPE_SWITCH : CU_GRAPH_COND_TYPE_IF, 1 + (unsigned)i,
                           &sets[0], &bodies);
        CHECK(cuGraphAddDependencies(graph, &sets[1], &node, NULL, 1));
        add_one(bodies[i], a[i], a[i], NULL);
    }
    CUgraphExec exec = instantiate(graph);
    for (int launch = 1; launch <= 2; launch++) {
        store(flag, 0);
        store(values[0], first);
        store(values[1], second);
        store(opposites[0], !first);
        store(opposites[1], !second);
        CHECK(cuGraphLaunch(exec, stream));
        if (program)
            CHECK(cuLaunchKernel(kernel("set_flag"), 1, 1, 1, 1, 1, 1, 0, other, (void *[]){&flag, &one}, NULL));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuStreamSynchronize(other));
        EXPECT(load(a[0]), first * launch);
        EXPECT(load(a[1]), second * launch);
    }
}

static void waits_beside(void)
{
    waits_for(false);
}

static void waits_outside(void)
{
    waits_for(true);
}

static const struct {
    const char *name;
    void (*function)(void);
} scenarios[] = {
    {"if-race", if_race},
    {"if-clean", if_clean},
    {"if-else", if_else},
    {"while-clean", while_clean},
    {"while-race", while_race},
    {"while-ordered", while_ordered},
    {"while-zero", while_zero},
    {"long-loop", long_loop},
    {"switch", switch_},
    {"nested", nested},
    {"captured", captured},
    {"changed", changed},
    {"updated", updated},
    {"from-memory", from_memory},
    {"from-memory-alone", from_memory_alone},
    {"from-before", from_before},
    {"default-in-loop", default_in_loop},
    {"same-numbers", same_numbers},
    {"from-iteration-before", from_iteration_before},
    {"unordered", unordered},
    {"waits", waits},
    {"waits-beside", waits_beside},
    {"waits-outside", waits_outside},
};

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: conditional SCENARIO KERNELS\n");
        return 2;
    }
    CUdevice device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoad(&module, argv[2]));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(scenarios[i].name, argv[1]) != 0)
            continue;
        scenarios[i].function();
        return 0;
    }
    fprintf(stderr, "conditional: no scenario %s\n", argv[1]);
    return 2;
}
