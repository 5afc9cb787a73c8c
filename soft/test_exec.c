// Executable graphs: instantiation, order at run time, changes and what is refused.
#include "soft/testing.h"

static CUdeviceptr memory;

static int set_up(void **state)
{
    open_device(state);
    memory = buffer(4096);
    return 0;
}

static CUgraph new_graph(void)
{
    CUgraph graph;
    OK(cuGraphCreate(&graph, 0));
    return graph;
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

// A node that writes one word.
static CUgraphNode write_node(CUgraph graph, CUdeviceptr address, int value, const CUgraphNode *after, size_t count)
{
    CUgraphNode node;
    int one = 1;
    CUDA_KERNEL_NODE_PARAMS params = {kernel("fill"), 1,    1,   1, 1, 1, 1, 0, (void *[]){&address, &value, &one},
                                      NULL,           NULL, NULL};
    OK(cuGraphAddKernelNode(&node, graph, after, count, &params));
    return node;
}

static CUresult set_word(CUgraphExec exec, CUgraphNode node, CUdeviceptr address, int value)
{
    int one = 1;
    CUDA_KERNEL_NODE_PARAMS params = {kernel("fill"), 1,    1,   1, 1, 1, 1, 0, (void *[]){&address, &value, &one},
                                      NULL,           NULL, NULL};
    return cuGraphExecKernelNodeSetParams(exec, node, &params);
}

static void all_ways_to_instantiate(void **state)
{
    CUgraph graph = new_graph();
    write_node(graph, memory, 1, NULL, 0);
    CUgraphExec exec;
    cuuint64_t flags = 0;
    OK(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    OK(cuGraphExecGetFlags(exec, &flags));
    assert_int_equal(flags, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    OK(cuGraphExecDestroy(exec));
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, .hUploadStream = the.a};
    OK(cuGraphInstantiateWithParams(&exec, graph, &params));
    assert_int_equal(params.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
    run(exec);
    OK(cuGraphExecDestroy(exec));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, graph, 1u << 20));
    OK(cuGraphDestroy(graph));
}

static void the_template_may_go_and_change(void **state)
{
    CUgraph graph = new_graph();
    CUgraphNode node = write_node(graph, memory, 11, NULL, 0);
    CUgraphExec exec = instantiate(graph);
    write_node(graph, memory, 12, &node, 1);
    run(exec);
    assert_int_equal(read_int(memory), 11);
    OK(cuGraphDestroy(graph));
    OK(cuMemsetD32(memory, 0, 1));
    OK(cuCtxSynchronize());
    run(exec);
    assert_int_equal(read_int(memory), 11);
    OK(cuGraphExecDestroy(exec));
}

static void edges_order_and_launches_of_one_exec_do_not_overlap(void **state)
{
    // increment depends on fill; twenty launches in two streams leave 1, never more, since each begins anew.
    CUgraph graph = new_graph();
    CUgraphNode first = write_node(graph, memory, 0, NULL, 0), second;
    int one = 1;
    CUDA_KERNEL_NODE_PARAMS params = {kernel("increment"),       1,    1,    1,   1, 1, 1, 0,
                                      (void *[]){&memory, &one}, NULL, NULL, NULL};
    OK(cuGraphAddKernelNode(&second, graph, &first, 1, &params));
    CUgraphExec exec = instantiate(graph);
    for (int i = 0; i < 20; i++)
        OK(cuGraphLaunch(exec, i % 2 ? the.a : the.b));
    OK(cuStreamSynchronize(the.a));
    OK(cuStreamSynchronize(the.b));
    assert_int_equal(read_int(memory), 1);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void cycles_are_refused(void **state)
{
    CUgraph graph = new_graph();
    CUgraphNode n[2];
    CUgraphExec exec;
    OK(cuGraphAddEmptyNode(&n[0], graph, NULL, 0));
    OK(cuGraphAddEmptyNode(&n[1], graph, &n[0], 1));
    CUresult added = cuGraphAddDependencies(graph, &n[1], &n[0], NULL, 1);
    if (added == CUDA_SUCCESS)
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
}

static void single_nodes_can_be_changed(void **state)
{
    CUgraph graph = new_graph();
    CUgraphNode word = write_node(graph, memory, 1, NULL, 0), set, copied;
    CUDA_MEMSET_NODE_PARAMS set_params = {memory + 16, 0, 2, 4, 1, 1};
    OK(cuGraphAddMemsetNode(&set, graph, &word, 1, &set_params, the.context));
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = memory,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory + 32,
                          .WidthInBytes = 4,
                          .Height = 1,
                          .Depth = 1};
    OK(cuGraphAddMemcpyNode(&copied, graph, &set, 1, &copy, the.context));
    CUgraphExec exec = instantiate(graph);
    OK(set_word(exec, word, memory, 21));
    set_params.value = 22;
    OK(cuGraphExecMemsetNodeSetParams(exec, set, &set_params, the.context));
    copy.srcDevice = memory + 16;
    OK(cuGraphExecMemcpyNodeSetParams(exec, copied, &copy, the.context));
    run(exec);
    assert_int_equal(read_int(memory), 21);
    assert_int_equal(read_int(memory + 16), 22);
    assert_int_equal(read_int(memory + 32), 22);
    // The template keeps its own.
    CUDA_KERNEL_NODE_PARAMS back;
    OK(cuGraphKernelNodeGetParams(word, &back));
    assert_int_equal(*(int *)back.kernelParams[1], 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, set_word(exec, set, memory, 1));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void a_change_does_not_reach_a_launch_under_way(void **state)
{
    CUgraph graph = new_graph();
    int value = 1;
    unsigned long long nanoseconds = 2000000;
    CUDA_KERNEL_NODE_PARAMS params = {
        kernel("late_fill"), 1, 1, 1, 1, 1, 1, 0, (void *[]){&memory, &value, &nanoseconds}, NULL, NULL, NULL};
    CUgraphNode node;
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    CUgraphExec exec = instantiate(graph);
    CUdeviceptr elsewhere = memory + 64;
    OK(cuMemsetD32(memory, 0, 64));
    OK(cuCtxSynchronize());
    OK(cuGraphLaunch(exec, the.a));
    OK(set_word(exec, node, elsewhere, 2));
    OK(cuGraphLaunch(exec, the.a));
    OK(cuGraphExecDestroy(exec));
    OK(cuStreamSynchronize(the.a));
    assert_int_equal(read_int(memory), 1);
    assert_int_equal(read_int(elsewhere), 2);
    OK(cuGraphDestroy(graph));
}

static void nodes_can_be_switched_off(void **state)
{
    CUgraph graph = new_graph();
    CUgraphNode first = write_node(graph, memory, 31, NULL, 0), second = write_node(graph, memory, 32, &first, 1),
                empty;
    OK(cuGraphAddEmptyNode(&empty, graph, &second, 1));
    CUgraphExec exec = instantiate(graph);
    unsigned enabled = 9;
    OK(cuGraphNodeGetEnabled(exec, second, &enabled));
    assert_int_equal(enabled, 1);
    OK(cuGraphNodeSetEnabled(exec, second, 0));
    run(exec);
    assert_int_equal(read_int(memory), 31);
    OK(cuGraphNodeSetEnabled(exec, second, 1));
    run(exec);
    assert_int_equal(read_int(memory), 32);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(exec, empty, 0));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void an_update_takes_new_parameters(void **state)
{
    CUgraph graph = new_graph(), other = new_graph();
    CUgraphNode first = write_node(graph, memory, 1, NULL, 0), n;
    write_node(graph, memory + 4, 2, &first, 1);
    n = write_node(other, memory, 41, NULL, 0);
    write_node(other, memory + 4, 42, &n, 1);
    CUgraphExec exec = instantiate(graph);
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphExecUpdate(exec, other, &info));
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    run(exec);
    assert_int_equal(read_int(memory), 41);
    assert_int_equal(read_int(memory + 4), 42);
    // Its nodes are still named by the first template.
    OK(set_word(exec, first, memory, 43));
    run(exec);
    assert_int_equal(read_int(memory), 43);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(other));
}

static void an_update_says_why_it_fails(void **state)
{
    CUgraph graph = new_graph();
    CUgraphNode a = write_node(graph, memory, 1, NULL, 0), b = write_node(graph, memory + 4, 2, &a, 1);
    CUgraphExec exec = instantiate(graph);
    CUgraphExecUpdateResultInfo info;

    CUgraph fewer = new_graph();
    write_node(fewer, memory, 1, NULL, 0);
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, fewer, &info));
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    assert_null(info.errorNode);

    CUgraph loose = new_graph();
    write_node(loose, memory, 1, NULL, 0);
    write_node(loose, memory, 1, NULL, 0);
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, loose, &info));
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);

    CUgraph other_type = new_graph();
    CUDA_MEMSET_NODE_PARAMS set = {memory, 0, 0, 4, 1, 1};
    CUgraphNode n, m;
    OK(cuGraphAddMemsetNode(&n, other_type, NULL, 0, &set, the.context));
    m = write_node(other_type, memory + 4, 2, &n, 1);
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, other_type, &info));
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    assert_ptr_equal(info.errorNode, n);
    assert_ptr_not_equal(info.errorNode, m);

    // After all these the exec runs as before.
    run(exec);
    assert_int_equal(read_int(memory + 4), 2);
    assert_non_null(b);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(fewer));
    OK(cuGraphDestroy(loose));
    OK(cuGraphDestroy(other_type));
}

static void child_graphs_run_in_their_place_and_change(void **state)
{
    CUgraph graph = new_graph(), inner = new_graph(), changed = new_graph();
    CUgraphNode before, child, after;
    write_node(inner, memory, 51, NULL, 0);
    write_node(changed, memory, 61, NULL, 0);
    before = write_node(graph, memory, 50, NULL, 0);
    OK(cuGraphAddChildGraphNode(&child, graph, &before, 1, inner));
    CUdeviceptr target = memory + 4;
    int one = 1;
    CUDA_KERNEL_NODE_PARAMS params = {kernel("copy"), 1,    1,   1, 1, 1, 1, 0, (void *[]){&memory, &target, &one},
                                      NULL,           NULL, NULL};
    OK(cuGraphAddKernelNode(&after, graph, &child, 1, &params));
    CUgraphExec exec = instantiate(graph);
    run(exec);
    assert_int_equal(read_int(memory + 4), 51);
    OK(cuGraphExecChildGraphNodeSetParams(exec, child, changed));
    run(exec);
    assert_int_equal(read_int(memory + 4), 61);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(inner));
    OK(cuGraphDestroy(changed));
}

static void add_to(void *data)
{
    *(int *)data += 1;
}

static void add_ten(void *data)
{
    *(int *)data += 10;
}

static void host_nodes_run_and_change(void **state)
{
    int sum = 0;
    CUgraph graph = new_graph();
    CUgraphNode node;
    CUDA_HOST_NODE_PARAMS params = {add_to, &sum};
    OK(cuGraphAddHostNode(&node, graph, NULL, 0, &params));
    CUgraphExec exec = instantiate(graph);
    run(exec);
    assert_int_equal(sum, 1);
    params.fn = add_ten;
    OK(cuGraphExecHostNodeSetParams(exec, node, &params));
    run(exec);
    assert_int_equal(sum, 11);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void event_nodes_record_and_wait(void **state)
{
    CUgraph graph = new_graph();
    CUgraphNode late, record;
    CUevent mark = event();
    int value = 71;
    unsigned long long nanoseconds = 2000000;
    CUDA_KERNEL_NODE_PARAMS params = {
        kernel("late_fill"), 1, 1, 1, 1, 1, 1, 0, (void *[]){&memory, &value, &nanoseconds}, NULL, NULL, NULL};
    OK(cuGraphAddKernelNode(&late, graph, NULL, 0, &params));
    OK(cuGraphAddEventRecordNode(&record, graph, &late, 1, mark));
    CUgraphExec exec = instantiate(graph);
    OK(cuGraphLaunch(exec, the.a));
    // Another stream waits for the node's record.
    OK(cuStreamWaitEvent(the.b, mark, 0));
    OK(cuMemcpyDtoDAsync(memory + 8, memory, 4, the.b));
    OK(cuStreamSynchronize(the.b));
    assert_int_equal(read_int(memory + 8), 71);
    OK(cuStreamSynchronize(the.a));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuEventDestroy(mark));
}

static void memory_nodes_are_handed_out_once(void **state)
{
    CUgraph graph = new_graph();
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
        .bytesize = 256};
    CUgraphNode node;
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    write_node(graph, params.dptr, 81, &node, 1);
    CUgraphExec exec = instantiate(graph);
    run(exec);
    assert_int_equal(read_int(params.dptr), 81);
    // Not freed: a second launch would hand it out twice.
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, the.a));
    OK(cuMemFreeAsync(params.dptr, the.a));
    run(exec);
    OK(cuMemFree(params.dptr));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    run(exec);
    run(exec);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void an_empty_graph_and_streams_keep_order(void **state)
{
    CUgraph graph = new_graph();
    CUgraphExec exec = instantiate(graph);
    int value = 91;
    unsigned long long nanoseconds = 1000000;
    CUdeviceptr target = memory + 4;
    OK(cuGraphUpload(exec, the.a));
    LAUNCH(kernel("late_fill"), the.a, 1, &memory, &value, &nanoseconds);
    OK(cuGraphLaunch(exec, the.a));
    OK(cuMemcpyDtoDAsync(target, memory, 4, the.a));
    OK(cuStreamSynchronize(the.a));
    assert_int_equal(read_int(target), 91);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ways_to_instantiate),
        cmocka_unit_test(the_template_may_go_and_change),
        cmocka_unit_test(edges_order_and_launches_of_one_exec_do_not_overlap),
        cmocka_unit_test(cycles_are_refused),
        cmocka_unit_test(single_nodes_can_be_changed),
        cmocka_unit_test(a_change_does_not_reach_a_launch_under_way),
        cmocka_unit_test(nodes_can_be_switched_off),
        cmocka_unit_test(an_update_takes_new_parameters),
        cmocka_unit_test(an_update_says_why_it_fails),
        cmocka_unit_test(child_graphs_run_in_their_place_and_change),
        cmocka_unit_test(host_nodes_run_and_change),
        cmocka_unit_test(event_nodes_record_and_wait),
        cmocka_unit_test(memory_nodes_are_handed_out_once),
        cmocka_unit_test(an_empty_graph_and_streams_keep_order),
    };
    return cmocka_run_group_tests(tests, set_up, close_device);
}
