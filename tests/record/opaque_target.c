// Programs with kernels that the recorder does not see: opaque_target SCENARIO KERNELS. Each makes a graph, launches it
// and prints what is in its memory afterwards, so that a recorded run can be compared with a plain one.
#include "record/test_map.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    COLUMNS = 64,
    ROWS = 16,
    PITCH = 128,
    TENSOR = ROWS * PITCH, // bytes from the start of a tensor to the next one in the pool
    POOL = 32 * TENSOR,
};

static void check(CUresult result, const char *call, int line)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "opaque_target: line %d: %s: error %d\n", line, call, (int)result);
    exit(99);
}
#define CHECK(call) check((call), #call, __LINE__)

// ---- Memory ----

static struct {
    CUdeviceptr address;
    size_t size;
} memory[16];
static size_t memory_count;

static CUdeviceptr allocate(size_t size)
{
    unsigned char *bytes = malloc(size);
    CUdeviceptr address;
    CHECK(cuMemAlloc(&address, size));
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 251);
    CHECK(cuMemcpyHtoD(address, bytes, size));
    free(bytes);
    memory[memory_count].address = address;
    memory[memory_count++].size = size;
    return address;
}

// A sum of each allocation: the same in two runs only if every byte is.
static void print_memory(void)
{
    for (size_t i = 0; i < memory_count; i++) {
        unsigned char *bytes = malloc(memory[i].size);
        unsigned long long sum = 14695981039346656037ull;
        CHECK(cuMemcpyDtoH(bytes, memory[i].address, memory[i].size));
        for (size_t b = 0; b < memory[i].size; b++)
            sum = (sum ^ bytes[b]) * 1099511628211ull;
        printf("memory %zu: %016llx\n", i, sum);
        free(bytes);
    }
}

// ---- Kernels ----

typedef struct tensor {
    uint64_t words[16];
} __attribute__((aligned(64))) tensor;

static CUmodule module;
static CUstream streams[3];
static CUdeviceptr pool;

static CUfunction kernel(const char *name)
{
    CUfunction function;
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
}

// The i-th tensor of the pool: ROWS rows of COLUMNS bytes, with gaps between the rows.
static tensor tensor_at(CUdeviceptr address)
{
    tensor made;
    test_map_encode(made.words, address, COLUMNS, ROWS, PITCH);
    return made;
}

static tensor tensor_number(int i)
{
    return tensor_at(pool + (CUdeviceptr)i * TENSOR);
}

static void launch(CUstream stream, const char *name, unsigned threads, void **arguments)
{
    CHECK(cuLaunchKernel(kernel(name), (threads + 127) / 128, 1, 1, 128, 1, 1, 0, stream, arguments, NULL));
}
#define LAUNCH(stream, name, threads, ...) launch(stream, name, threads, (void *[]){__VA_ARGS__})

static unsigned columns = COLUMNS, rows = ROWS;

static void fill(CUstream stream, int to, int value)
{
    tensor map = tensor_number(to);
    LAUNCH(stream, "tensor_fill", COLUMNS * ROWS, &map, &columns, &rows, &value);
}

static void next(CUstream stream, int from, int to)
{
    tensor source = tensor_number(from), target = tensor_number(to);
    LAUNCH(stream, "tensor_next", COLUMNS * ROWS, &source, &target, &columns, &rows);
}

static void order(CUstream before, CUstream after)
{
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(event, before));
    CHECK(cuStreamWaitEvent(after, event, 0));
}

// ---- Scenarios: what is captured ----

static void one_fill(void)
{
    fill(streams[0], 1, 5);
}

// Half of the tensor has the value already.
static void kept_fill(void)
{
    CHECK(cuMemsetD8(pool + TENSOR, 5, TENSOR / 2));
    fill(streams[0], 1, 5);
}

// Every byte changes to its complement, or stays: 0x5a becomes 0x5a or 0xa5.
static void complement_fill(void)
{
    CHECK(cuMemsetD8(pool + TENSOR, 0x5a, TENSOR / 2));
    CHECK(cuMemsetD8(pool + TENSOR + TENSOR / 2, 0xa5, TENSOR / 2));
    fill(streams[0], 1, 0x5a);
}

static void one_next(void)
{
    next(streams[0], 1, 3);
}

static void in_place(void)
{
    tensor map = tensor_number(1);
    LAUNCH(streams[0], "tensor_increase", COLUMNS * ROWS, &map, &columns, &rows);
}

static void counted(void)
{
    static int value = 9;
    CUdeviceptr counter = allocate(64);
    tensor map = tensor_number(1);
    LAUNCH(streams[0], "tensor_fill_counted", COLUMNS * ROWS, &map, &columns, &rows, &value, &counter);
}

// What is read lies in the tensor's own rows.
static void reads_inside(void)
{
    CUdeviceptr value = pool + TENSOR + 4;
    tensor map = tensor_number(1);
    LAUNCH(streams[0], "tensor_fill_from", COLUMNS * ROWS, &map, &columns, &rows, &value);
}

// What is read lies between the tensor's rows.
static void reads_between(void)
{
    CUdeviceptr value = pool + TENSOR + COLUMNS;
    tensor map = tensor_number(1);
    LAUNCH(streams[0], "tensor_fill_from", COLUMNS * ROWS, &map, &columns, &rows, &value);
}

static void updates(void)
{
    int value = 3;
    tensor map = tensor_number(1);
    LAUNCH(streams[0], "tensor_add", COLUMNS * ROWS, &map, &columns, &rows, &value);
}

// Memory of its own with a map in it, at byte 1024.
static CUdeviceptr memory_with(const tensor *map)
{
    CUdeviceptr maps;
    CHECK(cuMemAlloc(&maps, 4096));
    CHECK(cuMemsetD8(maps, 0, 4096));
    CHECK(cuMemcpyHtoD(maps + 1024, map, sizeof *map));
    return maps;
}

// The map stands in memory that a pointer in memory leads to.
static void map_in_memory(void)
{
    int value = 7;
    tensor map = tensor_number(2);
    CUdeviceptr at = memory_with(&map) + 1024;
    LAUNCH(streams[0], "tensor_fill_through", COLUMNS * ROWS, &at, &columns, &rows, &value);
}

// The kernel writes a map into memory itself; an older one of the same tensor stands beside it.
static void own_map(void)
{
    int value = 7;
    tensor map = tensor_number(2);
    CUdeviceptr maps = memory_with(&map);
    CHECK(cuMemsetD8(pool + 2 * TENSOR, (unsigned char)value, TENSOR)); // so that no byte changes
    LAUNCH(streams[0], "tensor_fill_by_own", COLUMNS * ROWS, &map, &maps, &columns, &rows, &value);
}

// A map whose sizes reach far beyond its memory.
static void endless(void)
{
    int value = 7;
    tensor map;
    test_map_encode(map.words, pool + TENSOR, COLUMNS, 1 << 20, PITCH);
    LAUNCH(streams[0], "tensor_fill", COLUMNS * ROWS, &map, &columns, &rows, &value);
}

static CUdeviceptr inputs[3], table, sums, beside;

static void make_table(void)
{
    for (int i = 0; i < 3; i++)
        inputs[i] = allocate(1024);
    beside = allocate(1024); // nobody points to it
    sums = allocate(1024);
    CHECK(cuMemAlloc(&table, 256));
    CHECK(cuMemcpyHtoD(table, inputs, sizeof inputs));
}

static void pointers(void)
{
    int input_count = 3, count = 1024;
    make_table();
    LAUNCH(streams[0], "sum_all", 1024, &table, &input_count, &sums, &count);
}

// A node before it stores the address it follows.
static void variable(void)
{
    int count = 1024, value = 3;
    CUdeviceptr to = allocate(1024);
    beside = allocate(1024);
    LAUNCH(streams[0], "set_output", 1, &to);
    LAUNCH(streams[0], "fill_output", 1024, &count, &value);
}

static int launches = 2;

static void fickle(void)
{
    int value = 9;
    tensor map = tensor_number(1);
    launches = 1;
    LAUNCH(streams[0], "tensor_fill_fickle", COLUMNS * ROWS, &map, &columns, &rows, &value);
}

// ---- Two branches ----

static void split(void)
{
    order(streams[0], streams[1]);
}

static void join(void)
{
    order(streams[1], streams[0]);
}

static void race_fills(void)
{
    split();
    fill(streams[0], 1, 5);
    fill(streams[1], 1, 6);
    join();
}

static void clean_fills(void)
{
    split();
    fill(streams[0], 1, 5);
    fill(streams[1], 2, 6);
    join();
}

// Both read tensor 1; each writes one of its own.
static void clean_nexts(void)
{
    split();
    next(streams[0], 1, 3);
    next(streams[1], 1, 5);
    join();
}

// One reads what the other writes.
static void race_nexts(void)
{
    split();
    next(streams[0], 1, 3);
    next(streams[1], 3, 5);
    join();
}

// A kernel that is seen updates the input of one that is not.
static void race_input(void)
{
    int count = TENSOR, value = 1;
    CUdeviceptr to = pool + TENSOR;
    split();
    next(streams[0], 1, 3);
    LAUNCH(streams[1], "fill_plain", (unsigned)count, &to, &count, &value);
    join();
}

// It writes beside the input: another tensor of the same pool.
static void clean_input(void)
{
    int count = TENSOR, value = 1;
    CUdeviceptr to = pool + 2 * TENSOR;
    split();
    next(streams[0], 1, 3);
    LAUNCH(streams[1], "fill_plain", (unsigned)count, &to, &count, &value);
    join();
}

// It writes one row of the input, as one that adds to a cache does.
static void row_of_input(void)
{
    int count = COLUMNS, value = 1;
    CUdeviceptr to = pool + TENSOR + 3 * PITCH;
    split();
    next(streams[0], 1, 3);
    LAUNCH(streams[1], "fill_plain", (unsigned)count, &to, &count, &value);
    join();
}

// Two branches that work on blocks of one pool, given by plain pointers.
static void branches_in_pool(bool racy)
{
    int count = TENSOR;
    CUdeviceptr a = pool, b = pool + TENSOR, c = racy ? b : pool + 2 * TENSOR, d = pool + 3 * TENSOR;
    split();
    LAUNCH(streams[0], "copy_plain", (unsigned)count, &a, &b, &count);
    LAUNCH(streams[1], "copy_plain", (unsigned)count, &d, &c, &count);
    join();
}

static void race_pool(void)
{
    branches_in_pool(true);
}

static void clean_pool(void)
{
    branches_in_pool(false);
}

static const struct {
    const char *name;
    void (*capture)(void);
} scenarios[] = {
    {"one-fill", one_fill},
    {"kept-fill", kept_fill},
    {"complement-fill", complement_fill},
    {"one-next", one_next},
    {"in-place", in_place},
    {"counted", counted},
    {"reads-inside", reads_inside},
    {"reads-between", reads_between},
    {"updates", updates},
    {"map-in-memory", map_in_memory},
    {"own-map", own_map},
    {"endless", endless},
    {"pointers", pointers},
    {"variable", variable},
    {"race-fills", race_fills},
    {"clean-fills", clean_fills},
    {"clean-nexts", clean_nexts},
    {"race-nexts", race_nexts},
    {"race-input", race_input},
    {"clean-input", clean_input},
    {"row-of-input", row_of_input},
    {"race-pool", race_pool},
    {"clean-pool", clean_pool},
    {"fickle", fickle},
};

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    CUgraph graph;
    CUgraphExec exec;
    if (argc != 3)
        return 2;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoad(&module, argv[2]));
    for (int i = 0; i < 3; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    pool = allocate(POOL);
    CHECK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    size_t which = 0, count = sizeof scenarios / sizeof *scenarios;
    while (which < count && strcmp(scenarios[which].name, argv[1]) != 0)
        which++;
    if (which == count)
        return 2;
    scenarios[which].capture();
    CHECK(cuStreamEndCapture(streams[0], &graph));
    CHECK(cuCtxSynchronize());
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < launches; i++) {
        CHECK(cuGraphLaunch(exec, streams[0]));
        CHECK(cuStreamSynchronize(streams[0]));
        print_memory();
    }
    // Where things are, for the test.
    printf("pool %llu table %llu sums %llu beside %llu\n", pool, table, sums, beside);
    for (size_t m = 0; m < memory_count; m++)
        printf("at %zu: %llu\n", m, memory[m].address);
    return 0;
}
