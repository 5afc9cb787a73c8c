// What the driver answers to calls that make no sense: a code, never a crash and never a wait for ever.
#include "soft/testing.h"

#include <sys/wait.h>
#include <unistd.h>

static void nothing_works_before_cuInit(void **state)
{
    int count = 0;
    CUcontext context;
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuDevicePrimaryCtxRetain(&context, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    int version = 0;
    OK(cuDriverGetVersion(&version)); // needs no initialisation
    assert_int_equal(version, 13000);
}

static void work_needs_a_context(void **state)
{
    CUdeviceptr memory;
    CUstream stream;
    OK(cuInit(0));
    OK(cuInit(0));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&memory, 16));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&stream, 0));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
    CUcontext current = (CUcontext)1;
    OK(cuCtxGetCurrent(&current));
    assert_null(current);
}

static void the_device_is_one(void **state)
{
    int count = 0, value = 0;
    char name[64], short_name[7];
    CUdevice device;
    CUuuid uuid;
    size_t bytes = 0;
    OK(cuDeviceGetCount(&count));
    assert_int_equal(count, 1);
    OK(cuDeviceGet(&device, 0));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 1));
    OK(cuDeviceGetName(name, sizeof name, device));
    assert_string_equal(name, "gravel software driver");
    OK(cuDeviceGetName(short_name, sizeof short_name, device));
    assert_string_equal(short_name, "gravel");
    OK(cuDeviceTotalMem(&bytes, device));
    assert_true(bytes > 0);
    OK(cuDeviceGetUuid(&uuid, device));
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
    assert_int_equal(value, 32);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, (CUdevice_attribute)0, device));
}

static void contexts_stack_and_end(void **state)
{
    CUcontext first, second, popped, current;
    unsigned flags;
    int active;
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(active, 0);
    OK(cuDevicePrimaryCtxRetain(&first, 0));
    OK(cuCtxPushCurrent(first));
    OK(cuCtxCreate(&second, NULL, 0, 0));
    unsigned long long first_id, second_id;
    OK(cuCtxGetId(first, &first_id));
    OK(cuCtxGetId(NULL, &second_id));
    assert_true(first_id != second_id);
    OK(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, second);
    CUstream stream;
    CUdeviceptr memory;
    OK(cuStreamCreate(&stream, 0));
    OK(cuMemAlloc(&memory, 64));
    OK(cuCtxDestroy(second));
    OK(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, first);
    // What was the context's is gone with it.
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(second));
    OK(cuCtxPopCurrent(&popped));
    assert_ptr_equal(popped, first);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent(&popped));
    OK(cuCtxSetCurrent(first));
    OK(cuDevicePrimaryCtxRelease(0));
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(0));
    OK(cuCtxSetCurrent(NULL));
}

static void handles_are_checked(void **state)
{
    open_device(state);
    long junk[64] = {0};
    void *bad[] = {NULL, junk, (void *)8, (void *)-16, the.module};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CUgraph graph;
        CUgraphExec exec;
        CUgraphNode node;
        CUfunction function;
        CUgraphNodeType type;
        size_t count = 0;
        FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(bad[i], the.a));
        FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(bad[i]));
        FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(bad[i]));
        FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamWaitEvent(the.a, bad[i], 0));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(bad[i], NULL, &count));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, bad[i], 0));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphClone(&graph, bad[i]));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(bad[i]));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&node, bad[i], NULL, 0));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(bad[i], the.a));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecDestroy(bad[i]));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(bad[i], &type));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(bad[i]));
        FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent(bad[i]));
        if (bad[i] != the.module) {
            FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&function, bad[i], "fill"));
            FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(bad[i]));
        }
        if (bad[i]) {
            FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(bad[i]));
            FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(bad[i]));
        }
    }
    // A handle does not outlive its object, even if memory is used again.
    CUevent events[64];
    for (int i = 0; i < 64; i++)
        events[i] = event();
    for (int i = 0; i < 64; i++)
        OK(cuEventDestroy(events[i]));
    for (int i = 0; i < 64; i++)
        FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(events[i], the.a));
    close_device(state);
}

static void errors_have_names_and_texts(void **state)
{
    const char *name = NULL, *text = NULL;
    OK(cuGetErrorName(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, &name));
    assert_string_equal(name, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED");
    OK(cuGetErrorString(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, &text));
    assert_true(strlen(text) > 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &name));
    assert_null(name);
}

static CUresult result_in_host_function;

static void call_the_driver(void *data)
{
    result_in_host_function = cuStreamSynchronize(the.b);
}

static void host_functions_may_not_call_the_driver(void **state)
{
    open_device(state);
    OK(cuLaunchHostFunc(the.a, call_the_driver, NULL));
    OK(cuStreamSynchronize(the.a));
    assert_int_equal(result_in_host_function, CUDA_ERROR_NOT_PERMITTED);
    close_device(state);
}

// A child has its parent's memory and none of its threads: it gets an error at once, whatever the parent was doing.
static void a_forked_child_is_told_and_does_not_hang(void **state)
{
    open_device(state);
    CUdeviceptr memory = buffer(64);
    int value = 1;
    unsigned long long nanoseconds = 20000000;
    LAUNCH(kernel("late_fill"), the.a, 1, &memory, &value, &nanoseconds);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(120);
        bool told = cuStreamSynchronize(the.a) == CUDA_ERROR_NOT_INITIALIZED &&
                    cuMemAlloc(&memory, 64) == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED;
        _exit(told ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    OK(cuStreamSynchronize(the.a));
    assert_int_equal(read_int(memory), 1);
    close_device(state);
}

static void a_context_can_be_reset_under_work(void **state)
{
    open_device(state);
    CUdeviceptr memory = buffer(64);
    int value = 1;
    unsigned long long nanoseconds = 5000000;
    CUgraph graph;
    CUgraphExec exec;
    LAUNCH(kernel("late_fill"), the.a, 1, &memory, &value, &nanoseconds);
    OK(cuStreamBeginCapture(the.b, CU_STREAM_CAPTURE_MODE_RELAXED));
    LAUNCH(kernel("late_fill"), the.b, 1, &memory, &value, &nanoseconds);
    OK(cuStreamEndCapture(the.b, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, the.b));
    OK(cuDevicePrimaryCtxReset(0));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(0));
    open_device(state);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    close_device(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_works_before_cuInit), // these two must come first
        cmocka_unit_test(work_needs_a_context),
        cmocka_unit_test(the_device_is_one),
        cmocka_unit_test(contexts_stack_and_end),
        cmocka_unit_test(handles_are_checked),
        cmocka_unit_test(errors_have_names_and_texts),
        cmocka_unit_test(host_functions_may_not_call_the_driver),
        cmocka_unit_test(a_forked_child_is_told_and_does_not_hang),
        cmocka_unit_test(a_context_can_be_reset_under_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
