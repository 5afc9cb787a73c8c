// Access sets: exactly the bytes that kernels touched, by kind, and nothing else.
#include "soft/gravel_soft.h"
#include "soft/testing.h"

#include <dlfcn.h>
#include <pthread.h>

typedef struct range {
    enum gravel_soft_access_kind kind;
    uint64_t start, end;
} range;

static const gravel_soft_api *api;
static range ranges[4096];
static size_t range_count;
static CUdeviceptr memory;

static int set_up(void **state)
{
    open_device(state);
    gravel_soft_api_function function;
    void *symbol = dlsym(RTLD_DEFAULT, GRAVEL_SOFT_API_SYMBOL);
    assert_non_null(symbol);
    memcpy(&function, &symbol, sizeof function);
    api = function();
    assert_int_equal(api->version, GRAVEL_SOFT_API_VERSION);
    memory = buffer(1 << 20);
    return 0;
}

static void add_range(void *user, enum gravel_soft_access_kind kind, uint64_t start, uint64_t end)
{
    assert_true(range_count < sizeof ranges / sizeof ranges[0]);
    ranges[range_count++] = (range){kind, start, end};
}

static void begin(void)
{
    range_count = 0;
    assert_int_equal(api->access_begin(0), 0);
}

// Ends after the work is done and checks that the record is whole.
static void end(void)
{
    OK(cuStreamSynchronize(the.a));
    assert_int_equal(api->access_end(add_range, NULL), 0);
}

static void expect(const range *expected, size_t count)
{
    for (size_t i = 0; i < count && i < range_count; i++) {
        assert_int_equal(ranges[i].kind, expected[i].kind);
        assert_int_equal(ranges[i].start, expected[i].start);
        assert_int_equal(ranges[i].end, expected[i].end);
    }
    assert_int_equal(range_count, count);
}

#define EXPECT(...)                                                \
    do {                                                           \
        const range expected_[] = {__VA_ARGS__};                   \
        expect(expected_, sizeof expected_ / sizeof expected_[0]); \
    } while (0)
#define READ   GRAVEL_SOFT_READ
#define WRITE  GRAVEL_SOFT_WRITE
#define ATOMIC GRAVEL_SOFT_ATOMIC

static void reads_and_writes_to_the_byte(void **state)
{
    CUdeviceptr out = memory + 4096;
    int from = 3, to = 70, count = COUNT;
    begin();
    LAUNCH(kernel("touch_bytes"), the.a, 1, &memory, &from, &to);
    end();
    EXPECT({WRITE, memory + 3, memory + 70});
    begin();
    LAUNCH(kernel("read_bytes"), the.a, 1, &memory, &from, &to, &out);
    end();
    EXPECT({READ, memory + 3, memory + 70}, {WRITE, out, out + 4});
    begin();
    LAUNCH(kernel("copy"), the.a, COUNT, &memory, &out, &count);
    end();
    EXPECT({READ, memory, memory + BYTES}, {WRITE, out, out + BYTES});
}

static void ranges_join_across_pages_and_part_at_gaps(void **state)
{
    int from = 10, to = 20000;
    begin();
    LAUNCH(kernel("touch_bytes"), the.a, 1, &memory, &from, &to);
    end();
    EXPECT({WRITE, memory + 10, memory + 20000});
    CUdeviceptr far = memory + 65536;
    int first = 0, second = 1;
    begin();
    LAUNCH(kernel("touch_bytes"), the.a, 1, &memory, &first, &second);
    int third = 2, fourth = 3;
    LAUNCH(kernel("touch_bytes"), the.a, 1, &memory, &third, &fourth);
    LAUNCH(kernel("touch_bytes"), the.a, 1, &far, &first, &fourth);
    end();
    EXPECT({WRITE, memory, memory + 1}, {WRITE, memory + 2, memory + 3}, {WRITE, far, far + 3});
}

static void accesses_of_all_widths(void **state)
{
    CUdeviceptr out = memory + 512, odd = memory + 1021; // the store lies across a word of the bitmap
    begin();
    LAUNCH(kernel("wide"), the.a, 1, &memory, &out);
    LAUNCH(kernel("unaligned"), the.a, 1, &odd);
    end();
    EXPECT({READ, memory, memory + 8}, {WRITE, out, out + 2}, {WRITE, odd + 1, odd + 5});
    begin();
    LAUNCH(kernel("copy_record"), the.a, 1, &memory, &out);
    end();
    EXPECT({READ, memory, memory + 20}, {WRITE, out, out + 20});
}

static void an_update_is_a_read_and_a_write(void **state)
{
    int count = 3;
    begin();
    LAUNCH(kernel("increment"), the.a, 3, &memory, &count);
    end();
    EXPECT({READ, memory, memory + 12}, {WRITE, memory, memory + 12});
}

static void atomics_are_atomic_and_nothing_else(void **state)
{
    CUdeviceptr bits = memory + 64, largest = memory + 128, sum = memory + 192;
    OK(cuMemsetD8(memory, 0, 256));
    OK(cuCtxSynchronize());
    begin();
    LAUNCH(kernel("count_all"), the.a, 2, &memory, &bits, &largest, &sum);
    end();
    EXPECT({ATOMIC, memory, memory + 12}, {ATOMIC, bits, bits + 4}, {ATOMIC, largest, largest + 8},
           {ATOMIC, sum, sum + 4});
    assert_int_equal(read_int(memory), 2);
    assert_int_equal(read_int(memory + 4), 7);
    assert_int_equal(read_int(memory + 8), 9);
    assert_int_equal(read_int(bits), 4);
    assert_int_equal(read_int(largest), 10);
    float total;
    OK(cuMemcpyDtoH(&total, sum, 4));
    assert_true(total == 1.0f);
}

static void stacks_and_shared_memory_do_not_count(void **state)
{
    begin();
    LAUNCH(kernel("stack_only"), the.a, 1, &memory);
    end();
    EXPECT({WRITE, memory, memory + 4});
    CUdeviceptr out = memory + 4096;
    begin();
    OK(cuLaunchKernel(kernel("block_sum"), 1, 1, 1, 64, 1, 1, 0, the.a, (void *[]){&memory, &out}, NULL));
    end();
    EXPECT({READ, memory, memory + 256}, {WRITE, out, out + 4});
}

static void variables_and_host_memory_count(void **state)
{
    CUdeviceptr counter, table;
    size_t size;
    int value = 1, count = 4;
    OK(cuModuleGetGlobal(&counter, &size, the.module, "counter"));
    OK(cuModuleGetGlobal(&table, &size, the.module, "table"));
    begin();
    LAUNCH(kernel("use_globals"), the.a, 1, &value);
    end();
    EXPECT({WRITE, table + 12, table + 16}, {ATOMIC, counter, counter + 4});

    int *plain = aligned_alloc(4096, 4096), *pinned;
    OK(cuMemHostAlloc((void **)&pinned, 64, 0));
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pinned;
    begin();
    LAUNCH(kernel("fill"), the.a, 4, &address, &value, &count);
    end();
    EXPECT({WRITE, address, address + 16});
    // Registered memory counts while it is registered, and to the byte.
    address = (CUdeviceptr)(uintptr_t)plain;
    OK(cuMemHostRegister(plain, 10, 0));
    begin();
    LAUNCH(kernel("fill"), the.a, 4, &address, &value, &count);
    end();
    EXPECT({WRITE, address, address + 10});
    OK(cuMemHostUnregister(plain));
    begin();
    LAUNCH(kernel("fill"), the.a, 4, &address, &value, &count);
    end();
    assert_int_equal(range_count, 0);
    free(plain);
    OK(cuMemFreeHost(pinned));
}

static void graph_launches_are_recorded(void **state)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr out = memory + 4096;
    int value = 1, count = COUNT;
    OK(cuStreamBeginCapture(the.a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(kernel("fill"), the.a, COUNT, &memory, &value, &count);
    LAUNCH(kernel("copy"), the.a, COUNT, &memory, &out, &count);
    OK(cuStreamEndCapture(the.a, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    begin();
    OK(cuGraphLaunch(exec, the.a));
    end();
    EXPECT({READ, memory, memory + BYTES}, {WRITE, memory, memory + BYTES}, {WRITE, out, out + BYTES});
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void copies_and_sets_are_left_to_their_parameters(void **state)
{
    begin();
    OK(cuMemsetD8Async(memory, 1, 64, the.a));
    OK(cuMemcpyDtoDAsync(memory + 128, memory, 64, the.a));
    end();
    assert_int_equal(range_count, 0);
}

static void *launch_elsewhere(void *unused)
{
    int from = 100, to = 200;
    cuCtxSetCurrent(the.context);
    CUfunction touch;
    cuModuleGetFunction(&touch, the.module, "touch_bytes");
    cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, the.a, (void *[]){&memory, &from, &to}, NULL);
    cuStreamSynchronize(the.a);
    return NULL;
}

static void other_threads_launches_are_not_recorded(void **state)
{
    pthread_t thread;
    int from = 0, to = 8;
    begin();
    LAUNCH(kernel("touch_bytes"), the.a, 1, &memory, &from, &to);
    pthread_create(&thread, NULL, launch_elsewhere, NULL);
    pthread_join(thread, NULL);
    end();
    EXPECT({WRITE, memory, memory + 8});
}

static void work_before_and_after_is_not_recorded(void **state)
{
    int from = 0, to = 8, later = 16;
    LAUNCH(kernel("touch_bytes"), the.a, 1, &memory, &from, &to);
    begin();
    LAUNCH(kernel("touch_bytes"), the.a, 1, &memory, &to, &later);
    end();
    EXPECT({WRITE, memory + 8, memory + 16});
    LAUNCH(kernel("touch_bytes"), the.a, 1, &memory, &from, &to);
    OK(cuStreamSynchronize(the.a));
    assert_int_equal(api->access_end(add_range, NULL), -1);
    begin();
    end();
    assert_int_equal(range_count, 0);
}

static void beginning_twice_and_ending_early_are_told(void **state)
{
    int value = 1, count = 1;
    gate held = gate_close(the.a);
    begin();
    assert_int_equal(api->access_begin(0), -1);
    LAUNCH(kernel("fill"), the.a, 1, &memory, &value, &count);
    // The kernel has yet to run: what it will touch is not in the set.
    assert_int_equal(api->access_end(add_range, NULL), 1);
    gate_open(held, the.a);
}

static void concurrent_branches_fill_one_record(void **state)
{
    CUstream streams[] = {the.b, the.c};
    int from = 0, to = 4096;
    CUdeviceptr halves[] = {memory, memory + 4096};
    begin();
    for (int i = 0; i < 2; i++)
        LAUNCH(kernel("touch_bytes"), streams[i], 1, &halves[i], &from, &to);
    OK(cuCtxSynchronize());
    end();
    EXPECT({WRITE, memory, memory + 8192});
}

typedef struct variables {
    CUmodule module;
    uint64_t address[8], size[8];
    size_t count;
} variables;

static void take_variable(void *user, void *module, uint64_t address, uint64_t size)
{
    variables *all = user;
    if (module != all->module || all->count == 8)
        return;
    all->address[all->count] = address;
    all->size[all->count++] = size;
}

static void variables_of_a_module_are_listed(void **state)
{
    variables all = {.module = the.module};
    assert_int_equal(api->variables(take_variable, &all), 0);
    assert_int_equal(all.count, 2);
    for (size_t i = 0; i < 2; i++) {
        CUdeviceptr address;
        size_t size;
        OK(cuModuleGetGlobal(&address, &size, the.module, all.size[i] == 4 ? "counter" : "table"));
        assert_int_equal(all.address[i], address);
        assert_int_equal(all.size[i], size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_and_writes_to_the_byte),
        cmocka_unit_test(ranges_join_across_pages_and_part_at_gaps),
        cmocka_unit_test(accesses_of_all_widths),
        cmocka_unit_test(an_update_is_a_read_and_a_write),
        cmocka_unit_test(atomics_are_atomic_and_nothing_else),
        cmocka_unit_test(stacks_and_shared_memory_do_not_count),
        cmocka_unit_test(variables_and_host_memory_count),
        cmocka_unit_test(graph_launches_are_recorded),
        cmocka_unit_test(copies_and_sets_are_left_to_their_parameters),
        cmocka_unit_test(other_threads_launches_are_not_recorded),
        cmocka_unit_test(work_before_and_after_is_not_recorded),
        cmocka_unit_test(beginning_twice_and_ending_early_are_told),
        cmocka_unit_test(concurrent_branches_fill_one_record),
        cmocka_unit_test(variables_of_a_module_are_listed),
    };
    return cmocka_run_group_tests(tests, set_up, close_device);
}
