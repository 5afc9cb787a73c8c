// A program for the tests of padding, poison and probes. usage: proof_target SCENARIO KERNELS
//
// Prints `result N...` lines: the same whatever records it.
#include "gravel.h"

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, WIDTH = 8, ROW = WIDTH * 4, BYTES = ROWS * ROW };

static CUmodule module;
static CUstream stream;

static void fail(const char *what, int line, long code)
{
    fprintf(stderr, "proof_target: line %d: %s: error %ld\n", line, what, code);
    exit(99);
}

#define CHECK(call)                         \
    do {                                    \
        CUresult result_ = (call);          \
        if (result_ != CUDA_SUCCESS)        \
            fail(#call, __LINE__, result_); \
    } while (0)

#define EXPECT(condition)                  \
    do {                                   \
        if (!(condition))                  \
            fail(#condition, __LINE__, 0); \
    } while (0)

static CUfunction kernel(const char *name)
{
    CUfunction function;
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
}

#define LAUNCH(name, count, ...) \
    CHECK(cuLaunchKernel(kernel(name), ((count) + 31) / 32, 1, 1, 32, 1, 1, 0, stream, (void *[]){__VA_ARGS__}, NULL))

static CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, bytes));
    CHECK(cuMemsetD8(memory, 0, bytes));
    CHECK(cuCtxSynchronize()); // it was enqueued in a stream that `stream` does not wait for
    return memory;
}

// Rows of numbers: 1, 2, ... from the first on.
static CUdeviceptr numbers(int rows)
{
    float host[ROWS * WIDTH];
    CUdeviceptr memory = allocate(BYTES);
    for (int i = 0; i < rows * WIDTH; i++)
        host[i] = (float)(i + 1);
    CHECK(cuMemcpyHtoD(memory, host, (size_t)rows * ROW));
    return memory;
}

static void begin(void)
{
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static CUgraphExec end(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return exec;
}

static void launch(CUgraphExec exec)
{
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
}

static void print(CUdeviceptr memory, size_t bytes)
{
    unsigned char *host = malloc(bytes);
    CHECK(cuMemcpyDtoH(host, memory, bytes));
    printf("result");
    for (size_t i = 0; i < bytes; i += 4) {
        float value;
        memcpy(&value, host + i, 4);
        printf(" %g", value);
    }
    printf("\n");
    free(host);
}

// ---- Probes ----

static CUdeviceptr in, out;

// A graph for `rows` rows, with the input and the output probed as layer 3; `wrong`: something changes the output.
static CUgraphExec probed(int rows, bool wrong, int *made)
{
    int width = WIDTH, at = 5;
    float value = 0.5f;
    uint64_t bucket = (uint64_t)rows;
    begin();
    *made = gravel_probe("in", 3, bucket, in, ROW, bucket, stream);
    LAUNCH("double_rows", rows * WIDTH, &in, &out, &rows, &width);
    if (wrong)
        LAUNCH("disturb", 1, &out, &at, &value);
    *made += gravel_probe("out", 3, bucket, out, ROW, bucket, stream);
    return end();
}

// The eager computation, from the clone of the input.
static int64_t recompute(uint64_t bucket, uint64_t real, int fallback)
{
    gravel_clone clone;
    int width = WIDTH;
    CUdeviceptr eager = allocate(BYTES);
    if (!gravel_probe_find("in", 3, bucket, &clone))
        return -1;
    EXPECT(clone.fallback == fallback && clone.row_bytes == ROW && clone.launches > 0);
    EXPECT(clone.bucket == (fallback ? 4 : bucket));
    int rows = (int)clone.rows;
    CUdeviceptr from = clone.address;
    LAUNCH("double_rows", rows * WIDTH, &from, &eager, &rows, &width);
    int64_t found = gravel_probe_compare("out", 3, bucket, real, eager, GRAVEL_F32, 0, stream);
    int64_t loosely = gravel_probe_compare("out", 3, bucket, real, eager, GRAVEL_F32, 0.5, stream);
    EXPECT(loosely == (found < 0 ? -1 : 0));
    CHECK(cuMemFree(eager));
    return found;
}

static void probes(bool wrong)
{
    int made_four, made_two;
    in = numbers(4);
    out = allocate(BYTES);
    gravel_clone clone;
    EXPECT(!gravel_probe("in", 3, 4, in, ROW, 4, stream)); // nothing is being captured
    CUgraphExec four = probed(4, wrong, &made_four), two = probed(2, wrong, &made_two);
    EXPECT(!gravel_probe_find("in", 3, 4, &clone)); // nothing was launched
    launch(two);
    print(out, BYTES);
    launch(four);
    print(out, BYTES);
    printf("made %d %d\n", made_four, made_two);
    printf("four %lld\n", (long long)recompute(4, 3, 0));
    printf("two %lld\n", (long long)recompute(2, 2, 0));
    printf("eight %lld\n", (long long)recompute(8, 4, 1)); // no such bucket: the last one launched
    printf("row0 %lld\n", (long long)recompute(4, 0, 0));
    // A new input reaches the clone at the next launch.
    CHECK(cuMemsetD8(in, 0, ROW));
    CHECK(cuCtxSynchronize());
    launch(four);
    printf("again %lld\n", (long long)recompute(4, 4, 0));
}

static void probe_right(void)
{
    probes(false);
}

static void probe_wrong(void)
{
    probes(true);
}

static void probe_nonsense(void)
{
    in = numbers(4);
    gravel_clone clone;
    begin();
    int width = WIDTH, rows = 4;
    LAUNCH("double_rows", rows * WIDTH, &in, &in, &rows, &width);
    EXPECT(!gravel_probe(NULL, 0, 4, in, ROW, 4, stream));
    EXPECT(!gravel_probe("empty", 0, 4, in, 0, 4, stream));
    EXPECT(!gravel_probe("nowhere", 0, 4, 4096, ROW, 4, stream));
    EXPECT(!gravel_probe("longer than it is", 0, 4, in, BYTES, 4, stream));
    EXPECT(!gravel_probe("huge", 0, 4, in, UINT64_MAX / 2, 4, stream));
    EXPECT(!gravel_probe_into("into nothing", 0, 4, in, ROW, 4, 4096, stream));
    CUgraphExec exec = end();
    launch(exec);
    print(in, BYTES);
    EXPECT(!gravel_probe_find("nowhere", 0, 4, &clone));
    EXPECT(gravel_probe_compare("nowhere", 0, 4, 4, in, GRAVEL_F32, 0, stream) == -1);
}

// The clones lie where the program says.
static void probe_into(void)
{
    CUdeviceptr mine = allocate(BYTES);
    gravel_clone clone = {0};
    in = numbers(4);
    out = allocate(BYTES);
    int width = WIDTH, rows = 4;
    begin();
    int made = gravel_probe_into("in", 0, 4, in, ROW, 4, mine, stream);
    LAUNCH("double_rows", rows * WIDTH, &in, &out, &rows, &width);
    CUgraphExec exec = end();
    launch(exec);
    EXPECT(gravel_probe_find("in", 0, 4, &clone) == made);
    EXPECT(!made || clone.address == mine);
    print(out, BYTES);
    printf("made %d equal %lld\n", made, (long long)gravel_probe_compare("in", 0, 4, 4, in, GRAVEL_F32, 0, stream));
}

// A clone of 2 MiB and one of 16.
static void probe_budget(void)
{
    CUdeviceptr large = allocate(16u << 20);
    in = numbers(4);
    out = allocate(BYTES);
    int width = WIDTH, rows = 4;
    begin();
    int small_made = gravel_probe("small", 0, 4, large, 2u << 20, 1, stream);
    int large_made = gravel_probe("large", 0, 4, large, 16u << 20, 1, stream);
    int again_made = gravel_probe("small", 1, 4, large, 2u << 20, 1, stream);
    LAUNCH("double_rows", rows * WIDTH, &in, &out, &rows, &width);
    launch(end());
    print(out, BYTES);
    printf("made %d %d %d\n", small_made, large_made, again_made);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"probe-right", probe_right}, {"probe-wrong", probe_wrong},   {"probe-nonsense", probe_nonsense},
    {"probe-into", probe_into},   {"probe-budget", probe_budget},
};

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    if (argc != 3)
        return 2;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoad(&module, argv[2]));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            return 0;
        }
    return 2;
}
