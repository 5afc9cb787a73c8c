// Streams and events: order within a stream, between streams and with the host.
#include "soft/testing.h"

#include <pthread.h>
#include <unistd.h>

enum { LATE = 3000000 }; // nanoseconds that late work takes

static CUdeviceptr memory;
static CUfunction late_fill;

static int set_up(void **state)
{
    open_device(state);
    memory = buffer(4096);
    late_fill = kernel("late_fill");
    return 0;
}

static void write_late(CUstream stream, CUdeviceptr address, int value)
{
    unsigned long long nanoseconds = LATE;
    LAUNCH(late_fill, stream, 1, &address, &value, &nanoseconds);
}

static void clear(void)
{
    OK(cuMemsetD8(memory, 0, 4096));
    OK(cuCtxSynchronize());
}

static void a_stream_is_first_in_first_out(void **state)
{
    clear();
    write_late(the.a, memory, 1);
    OK(cuMemcpyDtoDAsync(memory + 4, memory, 4, the.a));
    OK(cuStreamSynchronize(the.a));
    assert_int_equal(read_int(memory + 4), 1);
}

static void an_event_orders_two_streams(void **state)
{
    CUevent done = event();
    clear();
    write_late(the.a, memory, 2);
    OK(cuEventRecord(done, the.a));
    OK(cuStreamWaitEvent(the.b, done, 0));
    OK(cuMemcpyDtoDAsync(memory + 4, memory, 4, the.b));
    OK(cuStreamSynchronize(the.b));
    assert_int_equal(read_int(memory + 4), 2);
    OK(cuEventDestroy(done));
}

static void a_wait_takes_the_record_at_its_call(void **state)
{
    CUevent done = event();
    clear();
    OK(cuStreamWaitEvent(the.b, done, 0)); // never recorded: no wait
    write_late(the.a, memory, 3);
    OK(cuEventRecord(done, the.a));
    OK(cuStreamWaitEvent(the.b, done, 0));
    OK(cuEventRecord(done, the.c)); // does not move the wait
    OK(cuMemcpyDtoDAsync(memory + 4, memory, 4, the.b));
    OK(cuStreamSynchronize(the.b));
    assert_int_equal(read_int(memory + 4), 3);
    OK(cuEventDestroy(done));
}

static void queries_tell_whether_work_is_done(void **state)
{
    CUevent done = event();
    OK(cuStreamQuery(the.a));
    gate held = gate_close(the.a);
    write_late(the.a, memory, 4);
    OK(cuEventRecord(done, the.a));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(the.a));
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(done));
    __atomic_store_n(held.word, 1, __ATOMIC_RELEASE);
    CUresult result;
    while ((result = cuEventQuery(done)) == CUDA_ERROR_NOT_READY)
        usleep(1000);
    OK(result);
    OK(cuStreamQuery(the.a));
    gate_open(held, the.a);
    assert_int_equal(read_int(memory), 4);
    OK(cuEventDestroy(done));
}

static void events_measure_time(void **state)
{
    CUevent start, end;
    float milliseconds = 0;
    OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, start, end));
    OK(cuEventRecord(start, the.a));
    write_late(the.a, memory, 5);
    OK(cuEventRecord(end, the.a));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&milliseconds, start, end));
    assert_true(milliseconds >= LATE / 1e6 * 0.9);
    OK(cuEventDestroy(start));
    OK(cuEventDestroy(end));
}

static void the_legacy_stream_orders_blocking_streams(void **state)
{
    CUstream blocking, other;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    clear();
    write_late(blocking, memory, 6);
    OK(cuMemcpyDtoDAsync(memory + 4, memory, 4, NULL));
    OK(cuMemcpyDtoDAsync(memory + 8, memory + 4, 4, other));
    OK(cuStreamSynchronize(other));
    assert_int_equal(read_int(memory + 8), 6);
    OK(cuStreamDestroy(blocking));
    OK(cuStreamDestroy(other));
}

static void the_per_thread_stream_is_a_blocking_stream(void **state)
{
    clear();
    write_late(CU_STREAM_PER_THREAD, memory, 7);
    OK(cuMemcpyDtoDAsync(memory + 4, memory, 4, CU_STREAM_LEGACY));
    OK(cuStreamSynchronize(CU_STREAM_LEGACY));
    assert_int_equal(read_int(memory + 4), 7);
    unsigned long long per_thread, legacy;
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, &per_thread));
    OK(cuStreamGetId(CU_STREAM_LEGACY, &legacy));
    assert_true(per_thread != legacy);
}

static void *thread_stream_id(void *id)
{
    cuCtxSetCurrent(the.context);
    cuStreamGetId(CU_STREAM_PER_THREAD, id);
    return NULL;
}

static void each_thread_has_its_own_default_stream(void **state)
{
    unsigned long long mine = 0, theirs = 0;
    pthread_t thread;
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
    pthread_create(&thread, NULL, thread_stream_id, &theirs);
    pthread_join(thread, NULL);
    assert_true(theirs && mine != theirs);
}

static void properties(void **state)
{
    CUstream stream;
    int priority = 9, least, greatest;
    unsigned flags = 9;
    CUcontext context;
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 5));
    OK(cuStreamGetPriority(stream, &priority));
    assert_int_equal(priority, greatest);
    OK(cuStreamGetFlags(stream, &flags));
    assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
    OK(cuStreamGetCtx(stream, &context));
    assert_ptr_equal(context, the.context);
    OK(cuStreamDestroy(stream));
}

static void store_to_host(void *data)
{
    ++*(volatile int *)data;
}

static void host_functions_run_in_order(void **state)
{
    volatile int calls = 0;
    clear();
    gate held = gate_close(the.a);
    write_late(the.a, memory, 8);
    OK(cuLaunchHostFunc(the.a, store_to_host, (void *)&calls));
    assert_int_equal(calls, 0);
    gate_open(held, the.a);
    assert_int_equal(calls, 1);
}

static void value_waits_hold_a_stream_until_the_write(void **state)
{
    clear();
    OK(cuStreamWaitValue32(the.a, memory, 5, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemsetD32Async(memory + 4, 9, 1, the.a));
    usleep(5000);
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(the.a));
    OK(cuStreamWriteValue32(the.b, memory, 4, 0));
    OK(cuStreamSynchronize(the.b));
    usleep(5000);
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(the.a));
    OK(cuStreamWriteValue32(the.b, memory, 6, 0));
    OK(cuStreamSynchronize(the.a));
    assert_int_equal(read_int(memory + 4), 9);
}

static void a_value_wait_sees_the_hosts_store(void **state)
{
    unsigned long long *flag;
    CUdeviceptr address;
    OK(cuMemHostAlloc((void **)&flag, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    *flag = 0;
    OK(cuMemHostGetDevicePointer(&address, flag, 0));
    OK(cuStreamWaitValue64(the.a, address, 1ull << 40, CU_STREAM_WAIT_VALUE_EQ));
    usleep(2000);
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(the.a));
    // Atomic, as the device may look at any moment.
    __atomic_store_n(flag, 1ull << 40, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(the.a));
    OK(cuMemFreeHost(flag));
}

static void value_waits_know_all_conditions(void **state)
{
    CUstreamBatchMemOpParams items[5];
    memset(items, 0, sizeof items);
    const struct {
        unsigned seen, wanted, flags;
    } cases[] = {{0x10, 0x30, CU_STREAM_WAIT_VALUE_AND},
                 {7, 7, CU_STREAM_WAIT_VALUE_EQ},
                 {0xffffffff - 1, 0xffffffff - 3, CU_STREAM_WAIT_VALUE_GEQ},
                 {1, 0xffffffff, CU_STREAM_WAIT_VALUE_GEQ}, // cyclic: 1 is after -1
                 {0x0f, 0xf0, CU_STREAM_WAIT_VALUE_NOR}};
    for (unsigned i = 0; i < 5; i++) {
        OK(cuMemsetD32(memory + 4 * i, cases[i].seen, 1));
        OK(cuCtxSynchronize());
        items[i].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
        items[i].waitValue.address = memory + 4 * i;
        items[i].waitValue.value = cases[i].wanted;
        items[i].waitValue.flags = cases[i].flags;
    }
    OK(cuCtxSynchronize());
    OK(cuStreamBatchMemOp(the.a, 5, items, 0));
    OK(cuStreamSynchronize(the.a));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(the.a, memory + 2, 0, 0));
}

static void pageable_sources_are_taken_at_the_call(void **state)
{
    int source = 10;
    clear();
    write_late(the.a, memory, 1);
    OK(cuMemcpyHtoDAsync(memory, &source, 4, the.a));
    source = 11;
    OK(cuStreamSynchronize(the.a));
    assert_int_equal(read_int(memory), 10);
}

static void pinned_sources_are_read_when_the_copy_runs(void **state)
{
    int *source;
    OK(cuMemHostAlloc((void **)&source, 64, 0));
    *source = 12;
    clear();
    write_late(the.a, memory, 1);
    OK(cuMemcpyHtoDAsync(memory, source, 4, the.a));
    *source = 13;
    OK(cuStreamSynchronize(the.a));
    assert_int_equal(read_int(memory), 13);
    OK(cuMemFreeHost(source));
}

static void copies_to_pageable_memory_return_when_done(void **state)
{
    int result = 0;
    write_late(the.a, memory, 14);
    OK(cuMemcpyDtoHAsync(&result, memory, 4, the.a));
    assert_int_equal(result, 14);
}

static void destroyed_streams_finish_their_work(void **state)
{
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUevent done = event();
    clear();
    write_late(stream, memory, 15);
    OK(cuEventRecord(done, stream));
    OK(cuStreamDestroy(stream));
    OK(cuEventSynchronize(done));
    assert_int_equal(read_int(memory), 15);
    OK(cuEventDestroy(done));
}

static void *launch_many(void *user)
{
    CUstream stream;
    CUdeviceptr address = memory + 256 * (size_t)(uintptr_t)user;
    int count = 1;
    CUfunction increment;
    cuCtxSetCurrent(the.context);
    cuModuleGetFunction(&increment, the.module, "increment");
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 500; i++) {
        cuLaunchKernel(increment, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&address, &count}, NULL);
        if (i % 100 == 0)
            cuStreamSynchronize(stream);
    }
    cuStreamSynchronize(stream);
    cuStreamDestroy(stream);
    return NULL;
}

static void threads_use_the_driver_at_once(void **state)
{
    pthread_t threads[4];
    clear();
    for (size_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, launch_many, (void *)(uintptr_t)i);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(read_int(memory + 256 * i), 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_first_in_first_out),
        cmocka_unit_test(an_event_orders_two_streams),
        cmocka_unit_test(a_wait_takes_the_record_at_its_call),
        cmocka_unit_test(queries_tell_whether_work_is_done),
        cmocka_unit_test(events_measure_time),
        cmocka_unit_test(the_legacy_stream_orders_blocking_streams),
        cmocka_unit_test(the_per_thread_stream_is_a_blocking_stream),
        cmocka_unit_test(each_thread_has_its_own_default_stream),
        cmocka_unit_test(properties),
        cmocka_unit_test(host_functions_run_in_order),
        cmocka_unit_test(value_waits_hold_a_stream_until_the_write),
        cmocka_unit_test(a_value_wait_sees_the_hosts_store),
        cmocka_unit_test(value_waits_know_all_conditions),
        cmocka_unit_test(pageable_sources_are_taken_at_the_call),
        cmocka_unit_test(pinned_sources_are_read_when_the_copy_runs),
        cmocka_unit_test(copies_to_pageable_memory_return_when_done),
        cmocka_unit_test(destroyed_streams_finish_their_work),
        cmocka_unit_test(threads_use_the_driver_at_once),
    };
    return cmocka_run_group_tests(tests, set_up, close_device);
}
