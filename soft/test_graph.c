// Graphs as data: building, reading, cloning, changing.
#include "soft/testing.h"

static CUdeviceptr memory;
static int value = 5, count = COUNT;

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

static CUDA_KERNEL_NODE_PARAMS fill_params(void **arguments)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = kernel("fill"),
                                     .gridDimX = 2,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 32,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = arguments};
}

static void host_function(void *data)
{
    ++*(int *)data;
}

static void nodes_return_their_parameters(void **state)
{
    CUgraph graph = new_graph();
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS kernel_params = fill_params((void *[]){&memory, &value, &count}), kernel_back;
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &kernel_params));
    OK(cuGraphKernelNodeGetParams(node, &kernel_back));
    assert_ptr_equal(kernel_back.func, kernel_params.func);
    assert_int_equal(kernel_back.gridDimX, 2);
    assert_int_equal(kernel_back.blockDimX, 32);
    assert_null(kernel_back.extra);
    assert_int_equal(*(CUdeviceptr *)kernel_back.kernelParams[0], memory);
    assert_int_equal(*(int *)kernel_back.kernelParams[1], 5);
    assert_int_equal(*(int *)kernel_back.kernelParams[2], COUNT);

    CUDA_MEMSET_NODE_PARAMS set = {memory, 256, 7, 4, 8, 2}, set_back;
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, the.context));
    OK(cuGraphMemsetNodeGetParams(node, &set_back));
    assert_int_equal(set_back.dst, memory);
    assert_int_equal(set_back.value, 7);
    assert_int_equal(set_back.elementSize, 4);
    assert_int_equal(set_back.width, 8);
    assert_int_equal(set_back.height, 2);

    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = memory,
                          .srcPitch = 64,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory + 2048,
                          .dstPitch = 128,
                          .WidthInBytes = 16,
                          .Height = 3,
                          .Depth = 1},
                  copy_back;
    OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, the.context));
    OK(cuGraphMemcpyNodeGetParams(node, &copy_back));
    assert_int_equal(copy_back.srcDevice, memory);
    assert_int_equal(copy_back.dstPitch, 128);
    assert_int_equal(copy_back.Height, 3);

    int calls = 0;
    CUDA_HOST_NODE_PARAMS host = {host_function, &calls}, host_back;
    OK(cuGraphAddHostNode(&node, graph, NULL, 0, &host));
    OK(cuGraphHostNodeGetParams(node, &host_back));
    assert_ptr_equal(host_back.userData, &calls);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphMemsetNodeGetParams(node, &set_back));

    CUevent mark = event(), mark_back;
    OK(cuGraphAddEventRecordNode(&node, graph, NULL, 0, mark));
    OK(cuGraphEventRecordNodeGetEvent(node, &mark_back));
    assert_ptr_equal(mark, mark_back);
    OK(cuGraphAddEventWaitNode(&node, graph, NULL, 0, mark));
    OK(cuGraphEventWaitNodeGetEvent(node, &mark_back));
    assert_ptr_equal(mark, mark_back);
    OK(cuGraphDestroy(graph));
    OK(cuEventDestroy(mark));
}

static void a_packed_parameter_block_comes_back_packed(void **state)
{
    CUgraph graph = new_graph();
    struct {
        CUdeviceptr out;
        int value, count;
    } block = {memory, 3, COUNT};
    size_t size = sizeof block;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    CUDA_KERNEL_NODE_PARAMS params = fill_params(NULL), back;
    params.extra = extra;
    CUgraphNode node;
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    OK(cuGraphKernelNodeGetParams(node, &back));
    assert_null(back.kernelParams);
    assert_non_null(back.extra);
    bool seen = false;
    for (void **item = back.extra; *item != CU_LAUNCH_PARAM_END; item += 2)
        if (*item == CU_LAUNCH_PARAM_BUFFER_POINTER)
            seen = !memcmp(item[1], &block, sizeof block);
    assert_true(seen);
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, the.a));
    OK(cuStreamSynchronize(the.a));
    assert_int_equal(read_int(memory), 3);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void parameters_can_be_changed(void **state)
{
    CUgraph graph = new_graph();
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS params = fill_params((void *[]){&memory, &value, &count}), back;
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    CUkernelNodeAttrValue priority = {.priority = -1}, priority_back;
    OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &priority));
    int other = 9;
    params.kernelParams = (void *[]){&memory, &other, &count};
    params.gridDimX = 1;
    OK(cuGraphKernelNodeSetParams(node, &params));
    OK(cuGraphKernelNodeGetParams(node, &back));
    assert_int_equal(back.gridDimX, 1);
    assert_int_equal(*(int *)back.kernelParams[1], 9);
    OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &priority_back));
    assert_int_equal(priority_back.priority, -1);

    CUgraphNode second;
    OK(cuGraphAddKernelNode(&second, graph, NULL, 0, &params));
    OK(cuGraphKernelNodeCopyAttributes(second, node));
    OK(cuGraphKernelNodeGetAttribute(second, CU_LAUNCH_ATTRIBUTE_PRIORITY, &priority_back));
    assert_int_equal(priority_back.priority, -1);
    OK(cuGraphDestroy(graph));
}

static void edges_are_added_listed_and_removed(void **state)
{
    CUgraph graph = new_graph();
    CUgraphNode n[4];
    for (int i = 0; i < 4; i++)
        OK(cuGraphAddEmptyNode(&n[i], graph, i ? &n[0] : NULL, i ? 1 : 0));
    CUgraphNode from[] = {n[1], n[2]}, to[] = {n[3], n[3]};
    OK(cuGraphAddDependencies(graph, from, to, NULL, 2));
    assert_int_equal(edge_count(graph), 5);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, from, to, NULL, 1)); // there already
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, from, from, NULL, 1));

    CUgraphNode listed[4] = {0};
    size_t number = 4;
    OK(cuGraphNodeGetDependencies(n[3], listed, NULL, &number));
    assert_int_equal(number, 3);
    number = 4;
    OK(cuGraphNodeGetDependentNodes(n[0], listed, NULL, &number));
    assert_int_equal(number, 3);
    number = 4;
    OK(cuGraphGetRootNodes(graph, listed, &number));
    assert_int_equal(number, 1);
    assert_ptr_equal(listed[0], n[0]);

    OK(cuGraphRemoveDependencies(graph, from, to, NULL, 1));
    assert_false(has_edge(graph, n[1], n[3]));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, from, to, NULL, 1));
    OK(cuGraphDestroyNode(n[0]));
    assert_int_equal(edge_count(graph), 1);
    OK(cuGraphDestroy(graph));
}

static void edge_data_is_kept_and_checked(void **state)
{
    CUgraph graph = new_graph();
    CUDA_KERNEL_NODE_PARAMS params = fill_params((void *[]){&memory, &value, &count});
    CUgraphNode n[3];
    for (int i = 0; i < 2; i++)
        OK(cuGraphAddKernelNode(&n[i], graph, NULL, 0, &params));
    OK(cuGraphAddEmptyNode(&n[2], graph, NULL, 0));
    CUgraphEdgeData programmatic = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                    .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &n[2], &n[1], &programmatic, 1));
    OK(cuGraphAddDependencies(graph, &n[0], &n[1], &programmatic, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &n[0], &n[1], NULL, 1));
    // An ordinary edge beside it goes by way of an empty node, which takes its edges along.
    CUgraphNode between;
    OK(cuGraphAddEmptyNode(&between, graph, &n[0], 1));
    OK(cuGraphAddDependencies(graph, &between, &n[1], NULL, 1));
    assert_int_equal(edge_count(graph), 3);
    OK(cuGraphDestroyNode(between));
    assert_int_equal(edge_count(graph), 1);
    // It is taken away as what it is, or not at all.
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &n[0], &n[1], NULL, 1));
    CUgraphNode from, to;
    CUgraphEdgeData data;
    size_t number = 1;
    OK(cuGraphGetEdges(graph, &from, &to, &data, &number));
    assert_int_equal(data.type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
    // A query without room for the data says that it would lose some.
    number = 1;
    FAILS(CUDA_ERROR_LOSSY_QUERY, cuGraphGetEdges(graph, &from, &to, NULL, &number));
    OK(cuGraphDestroy(graph));
}

static void the_general_call_makes_every_kind(void **state)
{
    CUgraph graph = new_graph(), inner = new_graph();
    CUgraphNode node;
    CUevent mark = event();
    int calls = 0;
    CUstreamBatchMemOpParams write = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32};
    write.writeValue.address = memory;
    write.writeValue.value = 1;
    CUgraphNodeParams params[9];
    memset(params, 0, sizeof params);
    void *arguments[] = {&memory, &value, &count};
    params[0].type = CU_GRAPH_NODE_TYPE_KERNEL;
    params[0].kernel.func = kernel("fill");
    params[0].kernel.gridDimX = params[0].kernel.gridDimY = params[0].kernel.gridDimZ = 1;
    params[0].kernel.blockDimX = params[0].kernel.blockDimY = params[0].kernel.blockDimZ = 1;
    params[0].kernel.kernelParams = arguments;
    params[1].type = CU_GRAPH_NODE_TYPE_MEMSET;
    params[1].memset = (CUDA_MEMSET_NODE_PARAMS_v2){memory, 0, 1, 1, 16, 1, the.context};
    params[2].type = CU_GRAPH_NODE_TYPE_HOST;
    params[2].host.fn = host_function;
    params[2].host.userData = &calls;
    params[3].type = CU_GRAPH_NODE_TYPE_GRAPH;
    params[3].graph.graph = inner;
    params[4].type = CU_GRAPH_NODE_TYPE_EMPTY;
    params[5].type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    params[5].eventRecord.event = mark;
    params[6].type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    params[6].eventWait.event = mark;
    params[7].type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    params[7].memOp.ctx = the.context;
    params[7].memOp.count = 1;
    params[7].memOp.paramArray = &write;
    params[8].type = CU_GRAPH_NODE_TYPE_MEMCPY;
    params[8].memcpy.copyCtx = the.context;
    params[8].memcpy.copyParams = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                                  .srcDevice = memory,
                                                  .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                                  .dstDevice = memory + 512,
                                                  .WidthInBytes = 16,
                                                  .Height = 1,
                                                  .Depth = 1};
    for (int i = 0; i < 9; i++) {
        CUgraphNodeType type;
        OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params[i]));
        OK(cuGraphNodeGetType(node, &type));
        assert_int_equal(type, params[i].type);
    }
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(inner));
    OK(cuEventDestroy(mark));
}

static void clones_are_found_node_by_node(void **state)
{
    CUgraph graph = new_graph(), clone, stranger = new_graph();
    CUgraphNode n[2], found;
    OK(cuGraphAddEmptyNode(&n[0], graph, NULL, 0));
    OK(cuGraphAddEmptyNode(&n[1], graph, &n[0], 1));
    OK(cuGraphClone(&clone, graph));
    CUgraphNode cloned[2];
    assert_int_equal(nodes_of(clone, cloned, 2), 2);
    assert_int_equal(edge_count(clone), 1);
    OK(cuGraphNodeFindInClone(&found, n[1], clone));
    assert_ptr_equal(found, cloned[1]);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&found, n[1], stranger));
    // A clone is a graph of its own.
    OK(cuGraphDestroyNode(n[0]));
    assert_int_equal(nodes_of(clone, cloned, 2), 2);
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(clone));
    OK(cuGraphDestroy(stranger));
}

static void a_child_graph_is_a_copy_inside_its_node(void **state)
{
    CUgraph graph = new_graph(), inner = new_graph(), seen;
    CUgraphNode node, empty, nodes[3];
    OK(cuGraphAddEmptyNode(&empty, inner, NULL, 0));
    OK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, inner));
    OK(cuGraphAddEmptyNode(&empty, inner, NULL, 0));
    OK(cuGraphChildGraphNodeGetGraph(node, &seen));
    assert_ptr_not_equal(seen, inner);
    assert_int_equal(nodes_of(seen, nodes, 3), 1);
    OK(cuGraphDestroy(inner));
    OK(cuGraphDestroy(graph));
}

static void allocation_nodes_have_an_address_at_once(void **state)
{
    CUgraph graph = new_graph(), clone;
    CUgraphNode allocated, freed;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
        .bytesize = 1000};
    OK(cuGraphAddMemAllocNode(&allocated, graph, NULL, 0, &params));
    assert_int_not_equal(params.dptr, 0);
    OK(cuGraphAddMemFreeNode(&freed, graph, &allocated, 1, params.dptr));
    CUgraphNode twice;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&twice, graph, &allocated, 1, params.dptr));
    // It is the graph's until a launch hands it out.
    CUmemorytype type;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, params.dptr));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(params.dptr, 0, 4, the.a));
    CUdeviceptr back = 0;
    OK(cuGraphMemFreeNodeGetParams(freed, &back));
    assert_int_equal(back, params.dptr);
    CUDA_MEM_ALLOC_NODE_PARAMS params_back;
    OK(cuGraphMemAllocNodeGetParams(allocated, &params_back));
    assert_int_equal(params_back.dptr, params.dptr);
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&clone, graph));
    OK(cuGraphDestroy(graph));
}

static void released(void *data)
{
    ++*(int *)data;
}

static void a_graph_with_memory_nodes_only_grows(void **state)
{
    CUgraph graph = new_graph();
    CUgraphNode allocated, freed, n[2];
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
        .bytesize = 1000};
    OK(cuGraphAddMemAllocNode(&allocated, graph, NULL, 0, &params));
    OK(cuGraphAddMemFreeNode(&freed, graph, &allocated, 1, params.dptr));
    OK(cuGraphAddEmptyNode(&n[0], graph, NULL, 0));
    OK(cuGraphAddEmptyNode(&n[1], graph, NULL, 0));
    OK(cuGraphAddDependencies(graph, &n[0], &n[1], NULL, 1));
    // Which error it is, the documentation does not say.
    assert_int_not_equal(cuGraphRemoveDependencies(graph, &n[0], &n[1], NULL, 1), CUDA_SUCCESS);
    assert_int_not_equal(cuGraphDestroyNode(n[0]), CUDA_SUCCESS);
    assert_true(has_edge(graph, n[0], n[1]));
    OK(cuGraphDestroy(graph));
}

static void a_graph_keeps_user_objects(void **state)
{
    int ended = 0;
    CUuserObject object;
    CUgraph graph = new_graph();
    OK(cuUserObjectCreate(&object, &ended, released, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    assert_int_equal(ended, 0);
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < 1000 && !ended; i++) // a real driver calls it from a thread of its own
        OK(cuCtxSynchronize());
    assert_int_equal(ended, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_return_their_parameters),
        cmocka_unit_test(a_packed_parameter_block_comes_back_packed),
        cmocka_unit_test(parameters_can_be_changed),
        cmocka_unit_test(edges_are_added_listed_and_removed),
        cmocka_unit_test(edge_data_is_kept_and_checked),
        cmocka_unit_test(the_general_call_makes_every_kind),
        cmocka_unit_test(clones_are_found_node_by_node),
        cmocka_unit_test(a_child_graph_is_a_copy_inside_its_node),
        cmocka_unit_test(allocation_nodes_have_an_address_at_once),
        cmocka_unit_test(a_graph_with_memory_nodes_only_grows),
        cmocka_unit_test(a_graph_keeps_user_objects),
    };
    return cmocka_run_group_tests(tests, set_up, close_device);
}
