// Stream capture: what becomes of work, forks and joins, and how captures go wrong.
#include "soft/testing.h"

#include <pthread.h>

static CUfunction fill;
static CUdeviceptr memory;
static int one = 1, count = COUNT;

static int set_up(void **state)
{
    open_device(state);
    fill = kernel("fill");
    memory = buffer(BYTES);
    return 0;
}

static void begin(CUstream stream)
{
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static void launch(CUstream stream)
{
    LAUNCH(fill, stream, COUNT, &memory, &one, &count);
}

static CUgraph end(CUstream stream)
{
    CUgraph graph;
    OK(cuStreamEndCapture(stream, &graph));
    assert_non_null(graph);
    return graph;
}

static void end_fails(CUstream stream, CUresult error)
{
    CUgraph graph = (CUgraph)1;
    FAILS(error, cuStreamEndCapture(stream, &graph));
    assert_null(graph);
}

// Everything that takes part in a failed capture is free again afterwards.
static void assert_not_capturing(CUstream stream)
{
    CUstreamCaptureStatus status;
    OK(cuStreamIsCapturing(stream, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

static void order(CUstream before, CUstream after)
{
    CUevent fork = event();
    OK(cuEventRecord(fork, before));
    OK(cuStreamWaitEvent(after, fork, 0));
    OK(cuEventDestroy(fork));
}

static void work_becomes_nodes_and_does_not_run(void **state)
{
    OK(cuMemsetD8(memory, 0, BYTES));
    OK(cuCtxSynchronize());
    begin(the.a);
    launch(the.a);
    OK(cuMemsetD32Async(memory, 5, 4, the.a));
    OK(cuMemcpyDtoDAsync(memory + 128, memory, 16, the.a));
    CUgraph graph = end(the.a);
    assert_int_equal(read_int(memory), 0);
    CUgraphNode nodes[4];
    assert_int_equal(nodes_of(graph, nodes, 4), 3);
    CUgraphNodeType type;
    OK(cuGraphNodeGetType(nodes[0], &type));
    assert_int_equal(type, CU_GRAPH_NODE_TYPE_KERNEL);
    OK(cuGraphNodeGetType(nodes[1], &type));
    assert_int_equal(type, CU_GRAPH_NODE_TYPE_MEMSET);
    OK(cuGraphNodeGetType(nodes[2], &type));
    assert_int_equal(type, CU_GRAPH_NODE_TYPE_MEMCPY);
    assert_true(has_edge(graph, nodes[0], nodes[1]));
    assert_true(has_edge(graph, nodes[1], nodes[2]));
    assert_int_equal(edge_count(graph), 2);
    OK(cuGraphDestroy(graph));
}

static void fork_and_join_make_edges(void **state)
{
    begin(the.a);
    launch(the.a);
    order(the.a, the.b);
    launch(the.b);
    launch(the.a);
    order(the.b, the.a);
    launch(the.a);
    CUgraph graph = end(the.a);
    CUgraphNode nodes[4];
    assert_int_equal(nodes_of(graph, nodes, 4), 4);
    assert_int_equal(edge_count(graph), 4);
    assert_true(has_edge(graph, nodes[0], nodes[1]));
    assert_true(has_edge(graph, nodes[0], nodes[2]));
    assert_true(has_edge(graph, nodes[1], nodes[3]));
    assert_true(has_edge(graph, nodes[2], nodes[3]));
    assert_not_capturing(the.b);
    OK(cuGraphDestroy(graph));
}

static void a_wait_takes_the_latest_record_before_it(void **state)
{
    CUevent mark = event();
    begin(the.a);
    launch(the.a);
    OK(cuEventRecord(mark, the.a));
    OK(cuStreamWaitEvent(the.b, mark, 0));
    launch(the.a);
    OK(cuEventRecord(mark, the.a)); // too late for the wait above
    launch(the.b);
    order(the.b, the.a);
    CUgraph graph = end(the.a);
    CUgraphNode nodes[3];
    assert_int_equal(nodes_of(graph, nodes, 3), 3);
    assert_true(has_edge(graph, nodes[0], nodes[2]));
    assert_false(has_edge(graph, nodes[1], nodes[2]));
    OK(cuEventDestroy(mark));
    OK(cuGraphDestroy(graph));
}

static void status_and_info_tell_the_next_nodes_dependencies(void **state)
{
    CUstreamCaptureStatus status;
    cuuint64_t id = 0, id_b = 0;
    CUgraph graph = NULL;
    const CUgraphNode *after = NULL;
    const CUgraphEdgeData *edges = NULL;
    size_t number = 99;
    begin(the.a);
    OK(cuStreamGetCaptureInfo(the.a, &status, &id, &graph, &after, &edges, &number));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_int_equal(number, 0);
    launch(the.a);
    OK(cuStreamGetCaptureInfo(the.a, &status, &id, &graph, &after, &edges, &number));
    assert_int_equal(number, 1);
    CUgraphNode nodes[1];
    assert_int_equal(nodes_of(graph, nodes, 1), 1);
    assert_ptr_equal(after[0], nodes[0]);
    order(the.a, the.b);
    OK(cuStreamGetCaptureInfo(the.b, &status, &id_b, NULL, NULL, NULL, NULL));
    assert_int_equal(id, id_b);
    OK(cuStreamGetCaptureInfo(the.c, &status, &id_b, NULL, NULL, NULL, NULL));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuGraphDestroy(end(the.a)));
}

static void a_fork_without_a_join_is_unjoined(void **state)
{
    begin(the.a);
    launch(the.a);
    order(the.a, the.b);
    launch(the.b);
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    assert_not_capturing(the.a);
    assert_not_capturing(the.b);
    // A fork without work of its own needs no join.
    begin(the.a);
    launch(the.a);
    order(the.a, the.b);
    OK(cuGraphDestroy(end(the.a)));
}

static void work_outside_may_not_be_waited_for(void **state)
{
    CUevent outside = event();
    OK(cuEventRecord(outside, the.b));
    begin(the.a);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(the.a, outside, 0));
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuEventDestroy(outside));
}

static void two_captures_may_not_be_merged(void **state)
{
    begin(the.a);
    begin(the.b);
    CUevent mark = event();
    OK(cuEventRecord(mark, the.b));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(the.a, mark, 0));
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    end_fails(the.b, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuEventDestroy(mark));
}

static void only_the_origin_ends_a_capture(void **state)
{
    begin(the.a);
    order(the.a, the.b);
    end_fails(the.b, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_not_capturing(the.b);
    end_fails(the.a, CUDA_ERROR_ILLEGAL_STATE);
}

static void a_stream_captures_once_at_a_time(void **state)
{
    begin(the.a);
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(the.a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuGraphDestroy(end(the.a)));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamBeginCapture(the.a, (CUstreamCaptureMode)7));
}

static void waiting_for_a_capturing_stream_invalidates_it(void **state)
{
    begin(the.a);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(the.a));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
          cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, the.a, (void *[]){&memory, &one, &count}, NULL));
    CUstreamCaptureStatus status;
    OK(cuStreamIsCapturing(the.a, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(the.a);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(the.a));
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(the.a);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void asking_what_a_capturing_stream_is(void **state)
{
    unsigned flags;
    unsigned long long id;
    int priority;
    CUcontext context;
    CUdevice device;
    begin(the.a);
    OK(cuStreamGetPriority(the.a, &priority));
    OK(cuStreamGetCtx(the.a, &context));
    OK(cuGraphDestroy(end(the.a)));
    begin(the.a);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamGetFlags(the.a, &flags));
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(the.a);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamGetId(the.a, &id));
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(the.a);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamGetDevice(the.a, &device));
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void a_captured_event_cannot_be_asked(void **state)
{
    CUevent mark = event();
    begin(the.a);
    OK(cuEventRecord(mark, the.a));
    FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(mark));
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(the.a);
    OK(cuEventRecord(mark, the.a));
    FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(mark));
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // An ordinary record makes it an ordinary event again.
    OK(cuEventRecord(mark, the.a));
    OK(cuEventSynchronize(mark));
    OK(cuEventDestroy(mark));
}

static void an_event_of_an_ended_capture_is_nothing_to_wait_for(void **state)
{
    CUevent mark = event();
    begin(the.a);
    launch(the.a);
    OK(cuEventRecord(mark, the.a));
    OK(cuGraphDestroy(end(the.a)));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(the.b, mark, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuEventQuery(mark));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuEventSynchronize(mark));
    begin(the.a);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(the.a, mark, 0));
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuEventDestroy(mark));
}

static void the_legacy_stream_may_not_be_used_beside_a_blocking_capture(void **state)
{
    CUstream blocking;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    begin(blocking);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
          cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&memory, &one, &count}, NULL));
    end_fails(blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // Asking whether it captures fails too, but harms nobody.
    CUstreamCaptureStatus status;
    begin(blocking);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
    OK(cuGraphDestroy(end(blocking)));
    OK(cuStreamDestroy(blocking));
    // A non-blocking stream has nothing to do with it.
    begin(the.a);
    launch(NULL);
    OK(cuMemcpyDtoD(memory + 128, memory, 16));
    OK(cuMemsetD8(memory, 0, 16));
    OK(cuGraphDestroy(end(the.a)));
    OK(cuCtxSynchronize());
}

static void unsafe_calls_follow_the_mode(void **state)
{
    CUdeviceptr extra;
    CUgraph empty;
    CUgraphExec exec, other;
    begin(the.a);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&extra, 256));
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuGraphCreate(&empty, 0));
    OK(cuGraphInstantiate(&exec, empty, 0));
    begin(the.a);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuGraphInstantiate(&other, empty, 0));
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(the.a);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuGraphExecDestroy(exec));
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(the.a);
    OK(cuGraphLaunch(exec, the.b)); // other streams go on
    OK(cuGraphDestroy(end(the.a)));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(empty));

    OK(cuStreamBeginCapture(the.a, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAlloc(&extra, 256));
    OK(cuMemFree(extra));
    OK(cuGraphDestroy(end(the.a)));

    // A thread may declare that it knows what it does.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    begin(the.a);
    OK(cuMemAlloc(&extra, 256));
    OK(cuMemFree(extra));
    OK(cuGraphDestroy(end(the.a)));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void *allocate_in_thread(void *result)
{
    CUdeviceptr extra;
    cuCtxSetCurrent(the.context);
    *(CUresult *)result = cuMemAlloc(&extra, 256);
    return NULL;
}

static CUresult allocation_in_another_thread(void)
{
    pthread_t thread;
    CUresult result = CUDA_ERROR_UNKNOWN;
    assert_int_equal(pthread_create(&thread, NULL, allocate_in_thread, &result), 0);
    pthread_join(thread, NULL);
    return result;
}

static void a_global_capture_forbids_unsafe_calls_to_all_threads(void **state)
{
    begin(the.a);
    assert_int_equal(allocation_in_another_thread(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture(the.a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    assert_int_equal(allocation_in_another_thread(), CUDA_SUCCESS);
    OK(cuGraphDestroy(end(the.a)));
}

static void *end_in_thread(void *result)
{
    CUgraph graph = NULL;
    cuCtxSetCurrent(the.context);
    *(CUresult *)result = cuStreamEndCapture(the.a, &graph);
    if (graph)
        cuGraphDestroy(graph);
    return NULL;
}

static void the_thread_that_began_ends(void **state)
{
    pthread_t thread;
    CUresult result = CUDA_SUCCESS;
    begin(the.a);
    pthread_create(&thread, NULL, end_in_thread, &result);
    pthread_join(thread, NULL);
    assert_int_equal(result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    end_fails(the.a, CUDA_ERROR_ILLEGAL_STATE); // it is over all the same
    OK(cuStreamBeginCapture(the.a, CU_STREAM_CAPTURE_MODE_RELAXED));
    pthread_create(&thread, NULL, end_in_thread, &result);
    pthread_join(thread, NULL);
    assert_int_equal(result, CUDA_SUCCESS);
}

static void dependencies_can_be_added_and_replaced(void **state)
{
    begin(the.a);
    launch(the.a);
    order(the.a, the.b);
    launch(the.b);
    CUstreamCaptureStatus status;
    const CUgraphNode *after;
    const CUgraphEdgeData *edges;
    CUgraph graph;
    size_t number;
    OK(cuStreamGetCaptureInfo(the.b, &status, NULL, &graph, &after, &edges, &number));
    CUgraphNode other = after[0];
    OK(cuStreamUpdateCaptureDependencies(the.a, &other, NULL, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    OK(cuStreamGetCaptureInfo(the.a, &status, NULL, &graph, &after, &edges, &number));
    assert_int_equal(number, 2);
    launch(the.a);
    OK(cuStreamUpdateCaptureDependencies(the.a, NULL, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    // What was dropped by hand counts as the caller's business at the end.
    OK(cuStreamUpdateCaptureDependencies(the.b, NULL, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    launch(the.a);
    graph = end(the.a);
    CUgraphNode nodes[4];
    assert_int_equal(nodes_of(graph, nodes, 4), 4);
    assert_int_equal(edge_count(graph), 3);
    assert_true(has_edge(graph, nodes[0], nodes[2]));
    assert_true(has_edge(graph, nodes[1], nodes[2]));
    FAILS(CUDA_ERROR_ILLEGAL_STATE,
          cuStreamUpdateCaptureDependencies(the.a, NULL, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(cuGraphDestroy(graph));
}

static void a_capture_can_go_into_an_existing_graph(void **state)
{
    CUgraph graph, same;
    CUgraphNode first;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&first, graph, NULL, 0));
    OK(cuStreamBeginCaptureToGraph(the.a, graph, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(the.a);
    OK(cuStreamEndCapture(the.a, &same));
    assert_ptr_equal(graph, same);
    CUgraphNode nodes[2];
    assert_int_equal(nodes_of(graph, nodes, 2), 2);
    assert_true(has_edge(graph, first, nodes[1]));
    OK(cuGraphDestroy(graph));
}

static void programmatic_launches_make_programmatic_edges(void **state)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, the.a, &attribute, 1};
    begin(the.a);
    launch(the.a);
    OK(cuLaunchKernelEx(&config, fill, (void *[]){&memory, &one, &count}, NULL));
    launch(the.a);
    CUgraph graph = end(the.a);
    CUgraphNode from[2], to[2];
    CUgraphEdgeData data[2];
    size_t number = 2;
    OK(cuGraphGetEdges(graph, from, to, data, &number));
    assert_int_equal(number, 2);
    CUgraphNode nodes[3];
    nodes_of(graph, nodes, 3);
    for (int i = 0; i < 2; i++) {
        bool programmatic = to[i] == nodes[1];
        assert_int_equal(data[i].type,
                         programmatic ? CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC : CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
        assert_int_equal(data[i].from_port, programmatic ? CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC : 0);
    }
    OK(cuGraphDestroy(graph));
}

static void host_function(void *data)
{
    ++*(int *)data;
}

static void other_work_has_its_node_types(void **state)
{
    int calls = 0;
    CUevent external = event();
    CUdeviceptr pooled;
    begin(the.a);
    OK(cuLaunchHostFunc(the.a, host_function, &calls));
    OK(cuEventRecordWithFlags(external, the.a, CU_EVENT_RECORD_EXTERNAL));
    OK(cuStreamWaitEvent(the.a, external, CU_EVENT_WAIT_EXTERNAL));
    OK(cuStreamWriteValue32(the.a, memory, 3, 0));
    OK(cuMemAllocAsync(&pooled, 1024, the.a));
    OK(cuMemFreeAsync(pooled, the.a));
    CUgraph graph = end(the.a);
    static const CUgraphNodeType expected[] = {CU_GRAPH_NODE_TYPE_HOST,       CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                                               CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                                               CU_GRAPH_NODE_TYPE_MEM_ALLOC,  CU_GRAPH_NODE_TYPE_MEM_FREE};
    CUgraphNode nodes[6];
    assert_int_equal(nodes_of(graph, nodes, 6), 6);
    for (int i = 0; i < 6; i++) {
        CUgraphNodeType type;
        OK(cuGraphNodeGetType(nodes[i], &type));
        assert_int_equal(type, expected[i]);
    }
    assert_int_equal(calls, 0);
    OK(cuGraphDestroy(graph));
    OK(cuEventDestroy(external));
}

static void graphs_cannot_be_launched_into_a_capture(void **state)
{
    CUgraph graph;
    CUgraphExec exec;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphInstantiate(&exec, graph, 0));
    begin(the.a);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuGraphLaunch(exec, the.a));
    end_fails(the.a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void destroying_a_fork_leaves_its_work_to_be_joined(void **state)
{
    CUstream forked;
    OK(cuStreamCreate(&forked, CU_STREAM_NON_BLOCKING));
    begin(the.a);
    launch(the.a);
    order(the.a, forked);
    OK(cuStreamDestroy(forked));
    OK(cuGraphDestroy(end(the.a)));
}

static void destroying_the_origin_ends_its_capture(void **state)
{
    CUstream origin;
    OK(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
    begin(origin);
    order(origin, the.b);
    cuStreamDestroy(origin);
    // The other streams are left in a capture that nobody can end, or free; either way they can be used again once
    // it is known.
    CUstreamCaptureStatus status;
    OK(cuStreamIsCapturing(the.b, &status));
    assert_int_not_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_becomes_nodes_and_does_not_run),
        cmocka_unit_test(fork_and_join_make_edges),
        cmocka_unit_test(a_wait_takes_the_latest_record_before_it),
        cmocka_unit_test(status_and_info_tell_the_next_nodes_dependencies),
        cmocka_unit_test(a_fork_without_a_join_is_unjoined),
        cmocka_unit_test(work_outside_may_not_be_waited_for),
        cmocka_unit_test(two_captures_may_not_be_merged),
        cmocka_unit_test(only_the_origin_ends_a_capture),
        cmocka_unit_test(a_stream_captures_once_at_a_time),
        cmocka_unit_test(waiting_for_a_capturing_stream_invalidates_it),
        cmocka_unit_test(asking_what_a_capturing_stream_is),
        cmocka_unit_test(a_captured_event_cannot_be_asked),
        cmocka_unit_test(an_event_of_an_ended_capture_is_nothing_to_wait_for),
        cmocka_unit_test(the_legacy_stream_may_not_be_used_beside_a_blocking_capture),
        cmocka_unit_test(unsafe_calls_follow_the_mode),
        cmocka_unit_test(a_global_capture_forbids_unsafe_calls_to_all_threads),
        cmocka_unit_test(the_thread_that_began_ends),
        cmocka_unit_test(dependencies_can_be_added_and_replaced),
        cmocka_unit_test(a_capture_can_go_into_an_existing_graph),
        cmocka_unit_test(programmatic_launches_make_programmatic_edges),
        cmocka_unit_test(other_work_has_its_node_types),
        cmocka_unit_test(graphs_cannot_be_launched_into_a_capture),
        cmocka_unit_test(destroying_a_fork_leaves_its_work_to_be_joined),
        cmocka_unit_test(destroying_the_origin_ends_its_capture),
    };
    return cmocka_run_group_tests(tests, set_up, close_device);
}
