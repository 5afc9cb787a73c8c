// Conditional nodes: what runs by which value, defaults, nesting, capture into bodies, changes, and what is refused.
#include "soft/testing.h"

static CUdeviceptr memory; // words: what the tests' kernels read and write

static int set_up(void **state)
{
    open_device(state);
    memory = buffer(4096);
    return 0;
}

static int clear(void **state)
{
    OK(cuMemsetD8(memory, 0, 4096));
    OK(cuCtxSynchronize());
    return 0;
}

static CUdeviceptr word(int index)
{
    return memory + (CUdeviceptr)index * 4;
}

static void write_word(int index, int value)
{
    CUdeviceptr at = word(index);
    OK(cuMemcpyHtoD(at, &value, sizeof value));
    OK(cuCtxSynchronize()); // the copy of pageable memory may go on, and the.a does not wait for it
}

static CUgraph new_graph(void)
{
    CUgraph graph;
    OK(cuGraphCreate(&graph, 0));
    return graph;
}

static CUgraphConditionalHandle handle_of(CUgraph graph, unsigned initial, unsigned flags)
{
    CUgraphConditionalHandle handle;
    OK(cuGraphConditionalHandleCreate(&handle, graph, the.context, initial, flags));
    return handle;
}

static CUresult try_conditional(CUgraph graph, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                                unsigned size, const CUgraphNode *after, CUgraphNode *node, CUgraph **bodies)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = the.context;
    CUresult result = cuGraphAddNode(node, graph, after, NULL, after ? 1 : 0, &params);
    if (result == CUDA_SUCCESS)
        *bodies = params.conditional.phGraph_out;
    return result;
}

static CUgraph *conditional(CUgraph graph, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                            unsigned size, const CUgraphNode *after, CUgraphNode *node)
{
    CUgraph *bodies = NULL;
    CUgraphNode made;
    OK(try_conditional(graph, handle, type, size, after, &made, &bodies));
    if (node)
        *node = made;
    return bodies;
}

static CUgraphNode kernel_node(CUgraph graph, const char *name, const CUgraphNode *after, void **arguments)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS params = {kernel(name), 1, 1, 1, 1, 1, 1, 0, arguments, NULL, NULL, NULL};
    OK(cuGraphAddKernelNode(&node, graph, after, after ? 1 : 0, &params));
    return node;
}

// A node that writes a value to a word.
static CUgraphNode write_node(CUgraph graph, int index, int value, const CUgraphNode *after)
{
    CUdeviceptr address = word(index);
    int one = 1;
    return kernel_node(graph, "fill", after, (void *[]){&address, &value, &one});
}

static CUgraphNode add_node(CUgraph graph, int index, const CUgraphNode *after)
{
    CUdeviceptr address = word(index);
    int one = 1;
    return kernel_node(graph, "increment", after, (void *[]){&address, &one});
}

// A node that sets the condition to what a word holds.
static CUgraphNode set_node(CUgraph graph, int index, CUgraphConditionalHandle handle, const CUgraphNode *after)
{
    CUdeviceptr address = word(index);
    return kernel_node(graph, "set_condition", after, (void *[]){&address, &handle});
}

static CUgraphNode count_node(CUgraph graph, int index, CUgraphConditionalHandle handle, const CUgraphNode *after)
{
    CUdeviceptr address = word(index);
    return kernel_node(graph, "count_down", after, (void *[]){&address, &handle});
}

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

static void run(CUgraphExec exec)
{
    OK(cuGraphLaunch(exec, the.a));
    OK(cuStreamSynchronize(the.a));
}

// ---- What runs ----

static void if_runs_its_body_when_not_zero(void **state)
{
    CUgraph graph = new_graph();
    CUgraphConditionalHandle handle = handle_of(graph, 0, 0);
    CUgraphNode set = set_node(graph, 0, handle, NULL), choose;
    CUgraph *bodies = conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, &set, &choose);
    add_node(bodies[0], 1, NULL);
    add_node(graph, 2, &choose);
    CUgraphExec exec = instantiate(graph);
    run(exec);
    assert_int_equal(read_int(word(1)), 0);
    assert_int_equal(read_int(word(2)), 1);
    write_word(0, 7);
    run(exec);
    assert_int_equal(read_int(word(1)), 1);
    assert_int_equal(read_int(word(2)), 2);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void if_with_else_runs_one_of_two(void **state)
{
    CUgraph graph = new_graph();
    CUgraphConditionalHandle handle = handle_of(graph, 0, 0);
    CUgraphNode set = set_node(graph, 0, handle, NULL);
    CUgraph *bodies = conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 2, &set, NULL);
    add_node(bodies[0], 1, NULL);
    add_node(bodies[1], 2, NULL);
    CUgraphExec exec = instantiate(graph);
    run(exec);
    write_word(0, 1);
    run(exec);
    run(exec);
    assert_int_equal(read_int(word(1)), 2);
    assert_int_equal(read_int(word(2)), 1);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void switch_runs_the_body_of_its_value_or_none(void **state)
{
    CUgraph graph = new_graph();
    CUgraphConditionalHandle handle = handle_of(graph, 0, 0);
    CUgraphNode set = set_node(graph, 0, handle, NULL);
    CUgraph *bodies = conditional(graph, handle, CU_GRAPH_COND_TYPE_SWITCH, 3, &set, NULL);
    for (int i = 0; i < 3; i++)
        add_node(bodies[i], 1 + i, NULL);
    CUgraphExec exec = instantiate(graph);
    const int values[] = {2, 0, 2, 3, -1};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        write_word(0, values[i]);
        run(exec);
    }
    assert_int_equal(read_int(word(1)), 1);
    assert_int_equal(read_int(word(2)), 0);
    assert_int_equal(read_int(word(3)), 2);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

// The default makes a loop possible without a kernel in front of it, and is assigned anew at each launch.
static void while_runs_until_its_body_says_no(void **state)
{
    CUgraph graph = new_graph();
    CUgraphConditionalHandle handle = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode loop;
    CUgraph *bodies = conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, &loop);
    CUgraphNode work = add_node(bodies[0], 1, NULL);
    count_node(bodies[0], 0, handle, &work);
    CUdeviceptr from = word(1), to = word(2);
    int one = 1;
    kernel_node(graph, "copy", &loop, (void *[]){&from, &to, &one});
    CUgraphExec exec = instantiate(graph);
    write_word(0, 5);
    run(exec);
    assert_int_equal(read_int(word(1)), 5);
    assert_int_equal(read_int(word(2)), 5); // what follows the node follows its last iteration
    write_word(0, 3);
    run(exec);
    assert_int_equal(read_int(word(1)), 8);
    assert_int_equal(read_int(word(2)), 8);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

// A default is assigned when the graph is launched, and not when a body is run again.
static void conditionals_nest(void **state)
{
    CUgraph graph = new_graph();
    CUgraphConditionalHandle outer = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraph *loop = conditional(graph, outer, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, NULL);
    CUgraphConditionalHandle inner = handle_of(loop[0], 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode choose;
    CUgraph *choice = conditional(loop[0], inner, CU_GRAPH_COND_TYPE_IF, 2, NULL, &choose);
    CUgraphNode once = add_node(choice[0], 1, NULL);
    set_node(choice[0], 9, inner, &once); // word 9 is zero
    add_node(choice[1], 2, NULL);
    count_node(loop[0], 0, outer, &choose);
    CUgraphExec exec = instantiate(graph);
    for (int launch = 1; launch <= 2; launch++) {
        write_word(0, 4);
        run(exec);
        assert_int_equal(read_int(word(1)), launch);
        assert_int_equal(read_int(word(2)), 3 * launch);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void bodies_hold_copies_sets_and_child_graphs(void **state)
{
    CUgraph graph = new_graph(), child = new_graph();
    add_node(child, 3, NULL);
    CUgraphConditionalHandle handle = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraph *bodies = conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, NULL);
    CUgraphNode set, copy, inside;
    CUDA_MEMSET_NODE_PARAMS nines = {.dst = word(1), .value = 9, .elementSize = 4, .width = 1, .height = 1};
    OK(cuGraphAddMemsetNode(&set, bodies[0], NULL, 0, &nines, the.context));
    CUDA_MEMCPY3D words = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = word(1),
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = word(2),
                           .WidthInBytes = 4,
                           .Height = 1,
                           .Depth = 1};
    OK(cuGraphAddMemcpyNode(&copy, bodies[0], &set, 1, &words, the.context));
    OK(cuGraphAddChildGraphNode(&inside, bodies[0], &copy, 1, child));
    CUgraphExec exec = instantiate(graph);
    OK(cuGraphDestroy(child));
    OK(cuGraphDestroy(graph)); // the exec goes on without it
    run(exec);
    run(exec);
    assert_int_equal(read_int(word(2)), 9);
    assert_int_equal(read_int(word(3)), 2);
    OK(cuGraphExecDestroy(exec));
}

static void a_body_can_be_captured(void **state)
{
    CUgraph graph = new_graph(), same;
    CUgraphConditionalHandle handle = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraph *bodies = conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, NULL);
    CUdeviceptr counter = word(1), left = word(0);
    int one = 1;
    OK(cuStreamBeginCaptureToGraph(the.a, bodies[0], NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(kernel("increment"), the.a, 1, &counter, &one);
    LAUNCH(kernel("count_down"), the.a, 1, &left, &handle);
    OK(cuStreamEndCapture(the.a, &same));
    assert_ptr_equal(same, bodies[0]);
    assert_int_equal(edge_count(bodies[0]), 1);
    CUgraphExec exec = instantiate(graph);
    write_word(0, 6);
    run(exec);
    assert_int_equal(read_int(word(1)), 6);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

// A conditional node is put into a graph that is being captured, and the stream goes on behind it.
static void a_conditional_node_can_be_part_of_a_capture(void **state)
{
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph, ended;
    const CUgraphNode *after;
    const CUgraphEdgeData *edges;
    size_t count;
    CUdeviceptr left = word(0), counter = word(1), copy = word(2);
    int one = 1, three = 3;
    OK(cuStreamBeginCapture(the.a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(kernel("fill"), the.a, 1, &left, &three, &one);
    OK(cuStreamGetCaptureInfo(the.a, &status, &id, &graph, &after, &edges, &count));
    CUgraphConditionalHandle handle = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode loop;
    CUgraph *bodies = conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1, after, &loop);
    CUgraphNode work = add_node(bodies[0], 1, NULL);
    count_node(bodies[0], 0, handle, &work);
    OK(cuStreamUpdateCaptureDependencies(the.a, &loop, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    LAUNCH(kernel("copy"), the.a, 1, &counter, &copy, &one);
    OK(cuStreamEndCapture(the.a, &ended));
    CUgraphExec exec = instantiate(ended);
    run(exec);
    assert_int_equal(read_int(word(2)), 3);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(ended));
}

// ---- Values ----

// A value without a default stays in the executable graph, and a new one begins with zero.
static void a_value_stays_until_it_is_set(void **state)
{
    CUgraph graph = new_graph();
    CUgraphConditionalHandle handle = handle_of(graph, 1, 0);
    CUgraphNode choose;
    CUgraph *bodies = conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &choose);
    add_node(bodies[0], 1, NULL);
    set_node(graph, 0, handle, &choose);
    CUgraphExec exec = instantiate(graph);
    const int values[] = {1, 1, 0, 1}, ran[] = {0, 1, 2, 2};
    for (int i = 0; i < 4; i++) {
        write_word(0, values[i]);
        run(exec);
        assert_int_equal(read_int(word(1)), ran[i]);
    }
    OK(cuGraphExecDestroy(exec));
    exec = instantiate(graph);
    run(exec);
    assert_int_equal(read_int(word(1)), 2);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void a_default_is_assigned_once_a_launch(void **state)
{
    CUgraph graph = new_graph();
    CUgraphConditionalHandle again = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraph *loop = conditional(graph, again, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, NULL);
    CUgraphConditionalHandle first = handle_of(loop[0], 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode choose;
    CUgraph *bodies = conditional(loop[0], first, CU_GRAPH_COND_TYPE_IF, 1, NULL, &choose);
    CUgraphNode once = add_node(bodies[0], 1, NULL);
    set_node(bodies[0], 2, first, &once);
    count_node(loop[0], 0, again, &choose);
    CUgraphExec exec = instantiate(graph);
    for (int launch = 1; launch <= 2; launch++) {
        write_word(0, 4);
        run(exec);
        assert_int_equal(read_int(word(0)), 0);
        assert_int_equal(read_int(word(1)), launch);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

// A graph and its bodies number their handles together.
static void handles_are_numbers_of_their_graph(void **state)
{
    for (int i = 0; i < 2; i++) {
        CUgraph graph = new_graph();
        CUgraphConditionalHandle handle = handle_of(graph, 0, 0);
        assert_int_equal(handle, 1);
        assert_int_equal(handle_of(graph, 0, 0), 2);
        CUgraph *bodies = conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, NULL);
        assert_int_equal(handle_of(bodies[0], 0, 0), 3);
        assert_int_equal(handle_of(graph, 0, 0), 4);
        OK(cuGraphDestroy(graph));
    }
}

// What is set is a handle of the graph that runs, and of no other.
static void graphs_do_not_set_each_others_handles(void **state)
{
    CUgraphExec execs[2];
    CUgraph graphs[2];
    for (int i = 0; i < 2; i++) {
        graphs[i] = new_graph();
        CUgraphConditionalHandle handle = handle_of(graphs[i], 0, 0);
        CUgraphNode choose;
        CUgraph *bodies = conditional(graphs[i], handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &choose);
        add_node(bodies[0], 2 + i, NULL);
        set_node(graphs[i], i, handle, &choose);
        execs[i] = instantiate(graphs[i]);
    }
    write_word(0, 1); // and word 1, which the second graph sets its handle to, is 0
    for (int launch = 0; launch < 2; launch++)
        for (int i = 0; i < 2; i++)
            run(execs[i]);
    assert_int_equal(read_int(word(2)), 1);
    assert_int_equal(read_int(word(3)), 0);
    for (int i = 0; i < 2; i++) {
        OK(cuGraphExecDestroy(execs[i]));
        OK(cuGraphDestroy(graphs[i]));
    }
}

// Numbers that are no handles of the graph change nothing.
static void other_numbers_change_nothing(void **state)
{
    const CUgraphConditionalHandle numbers[] = {0, 2, 1000};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        CUgraph graph = new_graph();
        CUgraphConditionalHandle handle = handle_of(graph, 0, CU_GRAPH_COND_ASSIGN_DEFAULT);
        CUgraphNode set = set_node(graph, 0, numbers[i], NULL);
        CUgraph *bodies = conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, &set, NULL);
        add_node(bodies[0], 1, NULL);
        CUgraphExec exec = instantiate(graph);
        write_word(0, 1);
        run(exec);
        assert_int_equal(read_int(word(1)), 0);
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
    }
}

// Where a kernel sets a condition without a graph that has any, or an address far from all, the context is lost.
enum lost { PLAIN_LAUNCH, GRAPH_WITHOUT_CONDITIONS, FAR_NUMBER };

static void lose_a_context(enum lost how)
{
    CUcontext context;
    CUmodule module;
    CUstream stream;
    CUfunction set;
    CUdeviceptr value;
    OK(cuCtxCreate(&context, NULL, 0, 0));
    OK(cuModuleLoad(&module, test_kernels()));
    OK(cuModuleGetFunction(&set, module, "set_condition"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&value, 4));
    CUgraph graph = new_graph(), *bodies = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode node;
    CUgraphConditionalHandle handle = 1;
    if (how == FAR_NUMBER) {
        OK(cuGraphConditionalHandleCreate(&handle, graph, context, 0, 0));
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
        params.conditional.handle = handle;
        params.conditional.type = CU_GRAPH_COND_TYPE_IF;
        params.conditional.size = 1;
        OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
        bodies = params.conditional.phGraph_out;
        handle = 0xdeadbeef12345678;
    }
    void *arguments[] = {&value, &handle};
    CUDA_KERNEL_NODE_PARAMS params = {set, 1, 1, 1, 1, 1, 1, 0, arguments, NULL, NULL, NULL};
    OK(cuGraphAddKernelNode(&node, bodies ? bodies[0] : graph, NULL, 0, &params));
    if (bodies) // at the root, where it runs
        OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    if (how == PLAIN_LAUNCH) {
        OK(cuLaunchKernel(set, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    } else {
        OK(cuGraphInstantiate(&exec, graph, 0));
        OK(cuGraphLaunch(exec, stream));
    }
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    cuGraphExecDestroy(exec);
    cuGraphDestroy(graph);
    cuCtxDestroy(context);
    OK(cuCtxSetCurrent(the.context));
}

static void setting_outside_of_such_a_graph_is_an_illegal_address(void **state)
{
    lose_a_context(PLAIN_LAUNCH);
    lose_a_context(GRAPH_WITHOUT_CONDITIONS);
    lose_a_context(FAR_NUMBER);
}

// ---- Changes ----

static void an_update_takes_defaults_and_bodies(void **state)
{
    CUgraph graphs[2];
    CUgraphExec exec = NULL;
    for (int i = 0; i < 2; i++) {
        graphs[i] = new_graph();
        CUgraphConditionalHandle handle = handle_of(graphs[i], (unsigned)i, CU_GRAPH_COND_ASSIGN_DEFAULT);
        CUgraph *bodies = conditional(graphs[i], handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, NULL);
        write_node(bodies[0], 1, 10 + i, NULL);
        if (i == 0)
            exec = instantiate(graphs[0]);
    }
    run(exec);
    assert_int_equal(read_int(word(1)), 0);
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphExecUpdate(exec, graphs[1], &info));
    run(exec);
    assert_int_equal(read_int(word(1)), 11);

    CUgraph other = new_graph();
    CUgraphConditionalHandle handle = handle_of(other, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode node;
    CUgraph *bodies = conditional(other, handle, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, &node);
    write_node(bodies[0], 1, 12, NULL);
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, other, &info));
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
    assert_ptr_equal(info.errorNode, node);
    write_node(bodies[0], 2, 12, NULL);
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, other, &info));
    OK(cuGraphExecDestroy(exec));
    for (int i = 0; i < 2; i++)
        OK(cuGraphDestroy(graphs[i]));
    OK(cuGraphDestroy(other));
}

static void nodes_in_bodies_can_be_changed(void **state)
{
    CUgraph graph = new_graph();
    CUgraphConditionalHandle handle = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode node;
    CUgraph *bodies = conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &node);
    CUgraphNode inside = write_node(bodies[0], 1, 1, NULL);
    CUgraphExec exec = instantiate(graph);
    CUdeviceptr address = word(1);
    int value = 2, one = 1;
    CUDA_KERNEL_NODE_PARAMS params = {kernel("fill"), 1,    1,   1, 1, 1, 1, 0, (void *[]){&address, &value, &one},
                                      NULL,           NULL, NULL};
    OK(cuGraphExecKernelNodeSetParams(exec, inside, &params));
    run(exec);
    assert_int_equal(read_int(word(1)), 2);
    OK(cuGraphNodeSetEnabled(exec, inside, 0));
    OK(cuMemsetD32(memory, 0, 4));
    run(exec);
    assert_int_equal(read_int(word(1)), 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(exec, node, 0));
    CUgraphNodeParams whole = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    whole.conditional.handle = handle;
    whole.conditional.size = 1;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphExecNodeSetParams(exec, node, &whole));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphNodeSetParams(node, &whole));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

// ---- What is refused ----

static void handles_and_nodes_are_checked(void **state)
{
    CUgraph graph = new_graph(), other = new_graph();
    CUgraphConditionalHandle handle;
    CUgraphNode node;
    CUgraph *bodies;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate(NULL, graph, the.context, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate(&handle, NULL, the.context, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate(&handle, graph, the.context, 0, 2));
    handle = handle_of(graph, 0, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, try_conditional(graph, handle + 1, CU_GRAPH_COND_TYPE_IF, 1, NULL, &node, &bodies));
    FAILS(CUDA_ERROR_INVALID_VALUE, try_conditional(other, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &node, &bodies));
    FAILS(CUDA_ERROR_INVALID_VALUE, try_conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 3, NULL, &node, &bodies));
    FAILS(CUDA_ERROR_INVALID_VALUE, try_conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 0, NULL, &node, &bodies));
    FAILS(CUDA_ERROR_INVALID_VALUE, try_conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 2, NULL, &node, &bodies));
    FAILS(CUDA_ERROR_INVALID_VALUE, try_conditional(graph, handle, CU_GRAPH_COND_TYPE_SWITCH, 0, NULL, &node, &bodies));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          try_conditional(graph, handle, (CUgraphConditionalNodeType)7, 1, NULL, &node, &bodies));
    OK(try_conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &node, &bodies));
    FAILS(CUDA_ERROR_INVALID_VALUE, try_conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &node, &bodies));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(other));
}

static void graphs_with_conditionals_are_no_templates_for_copies(void **state)
{
    CUgraph graph = new_graph(), outer = new_graph(), copy;
    CUgraphNode node;
    CUgraphConditionalHandle handle = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraph *bodies = conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, NULL);
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&copy, graph));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddChildGraphNode(&node, outer, NULL, 0, graph));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(bodies[0]));
    CUgraphExec exec, second;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, bodies[0], 0));
    // One instantiation at a time; the next when the first is gone.
    OK(cuGraphInstantiate(&exec, graph, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&second, graph, 0));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiate(&second, graph, 0));
    OK(cuGraphExecDestroy(second));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(outer));
}

static void instantiation_checks_handles_and_bodies(void **state)
{
    CUgraph graph = new_graph();
    CUgraphExec exec;
    CUgraphNode node;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    CUgraphConditionalHandle handle = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams(&exec, graph, &params));
    assert_int_equal(params.result_out, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
    CUgraph *bodies = conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, NULL);
    CUevent record = event();
    OK(cuGraphAddEventRecordNode(&node, bodies[0], NULL, 0, record));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroyNode(node));
    int pageable = 0;
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = &pageable,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = word(1),
                          .WidthInBytes = 4,
                          .Height = 1,
                          .Depth = 1};
    OK(cuGraphAddMemcpyNode(&node, bodies[0], NULL, 0, &copy, the.context));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroyNode(node));
    OK(cuGraphAddEventRecordNode(&node, graph, NULL, 0, record)); // beside the conditional node everything is allowed
    OK(cuGraphInstantiate(&exec, graph, 0));
    run(exec);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuEventDestroy(record));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(if_runs_its_body_when_not_zero, clear),
        cmocka_unit_test_setup(if_with_else_runs_one_of_two, clear),
        cmocka_unit_test_setup(switch_runs_the_body_of_its_value_or_none, clear),
        cmocka_unit_test_setup(while_runs_until_its_body_says_no, clear),
        cmocka_unit_test_setup(conditionals_nest, clear),
        cmocka_unit_test_setup(bodies_hold_copies_sets_and_child_graphs, clear),
        cmocka_unit_test_setup(a_body_can_be_captured, clear),
        cmocka_unit_test_setup(a_conditional_node_can_be_part_of_a_capture, clear),
        cmocka_unit_test_setup(a_value_stays_until_it_is_set, clear),
        cmocka_unit_test_setup(a_default_is_assigned_once_a_launch, clear),
        cmocka_unit_test_setup(handles_are_numbers_of_their_graph, clear),
        cmocka_unit_test_setup(graphs_do_not_set_each_others_handles, clear),
        cmocka_unit_test_setup(other_numbers_change_nothing, clear),
        cmocka_unit_test_setup(setting_outside_of_such_a_graph_is_an_illegal_address, clear),
        cmocka_unit_test_setup(an_update_takes_defaults_and_bodies, clear),
        cmocka_unit_test_setup(nodes_in_bodies_can_be_changed, clear),
        cmocka_unit_test_setup(handles_and_nodes_are_checked, clear),
        cmocka_unit_test_setup(graphs_with_conditionals_are_no_templates_for_copies, clear),
        cmocka_unit_test_setup(instantiation_checks_handles_and_bodies, clear),
    };
    return cmocka_run_group_tests(tests, set_up, close_device);
}
