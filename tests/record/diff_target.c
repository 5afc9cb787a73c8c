// A program for the tests of the differential. usage: diff_target SCENARIO KERNELS
//
// Prints `result N...` lines: the same whatever is compared.
#include "gravel.h"
#include "program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 256, BYTES = COUNT * 4, LAUNCHES = 5 };

static CUstream side;
static CUdeviceptr in, scratch, out, other;
static int count = COUNT;

#define LAUNCH(name, on, threads, ...) \
    CHECK(cuLaunchKernel(kernel(name), ((threads) + 31) / 32, 1, 1, 32, 1, 1, 0, on, (void *[]){__VA_ARGS__}, NULL))

static void begin(void)
{
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static void order(CUstream before, CUstream after)
{
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(event, before));
    CHECK(cuStreamWaitEvent(after, event, 0));
}

static void launch(CUgraphExec exec, int times)
{
    for (int i = 0; i < times; i++) {
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuStreamSynchronize(stream));
    }
}

static void print_floats(CUdeviceptr memory, int first, int last)
{
    float host[COUNT];
    CHECK(cuMemcpyDtoH(host, memory, BYTES));
    printf("result");
    for (int i = first; i < last; i++)
        printf(" %.9g", host[i]);
    printf("\n");
}

// ---- Scenarios ----

// Two branches fill one buffer, with values that are one unit in the last place apart. `part`: of it, the second one.
static CUgraphExec two_fills(int part)
{
    float left = 1.0f, right = 1.00000012f;
    begin();
    order(stream, side);
    LAUNCH("fill_f32", stream, COUNT, &out, &left, &count);
    CUdeviceptr at = out + (CUdeviceptr)(COUNT - part) * 4;
    LAUNCH("fill_f32", side, part, &at, &right, &part);
    order(side, stream);
    return end();
}

static void near(void)
{
    launch(two_fills(COUNT), LAUNCHES);
}

// The rows of the second fill are padding: of 8 rows of 32 elements 6 are real.
static void padded(void)
{
    gravel_rows("out", out, 128, 8, GRAVEL_ROWS_OUT);
    gravel_real_rows(6);
    launch(two_fills(64), LAUNCHES);
    print_floats(out, 0, 8);
}

static void real_rows(void)
{
    gravel_rows("out", out, 128, 8, GRAVEL_ROWS_OUT);
    gravel_real_rows(7);
    launch(two_fills(64), LAUNCHES);
}

// Everything is ordered. What is kept from launch to launch must be as after so many launches.
static void kept(void)
{
    float one = 1;
    begin();
    LAUNCH("count_up", stream, 1, &other);
    LAUNCH("add_f32", stream, COUNT, &in, &scratch, &one, &count);
    LAUNCH("add_f32", stream, COUNT, &scratch, &in, &one, &count);
    CHECK(cuMemcpyDtoDAsync(out, in, BYTES, stream));
    launch(end(), LAUNCHES);
    int counted = 0;
    CHECK(cuMemcpyDtoH(&counted, other, 4));
    printf("result %d\n", counted);
    print_floats(out, 0, 4);
}

// A kernel whose result depends on the order of its own atomics, and one that reads it.
static void noisy(void)
{
    float host[COUNT], one = 1;
    for (int i = 0; i < COUNT; i++)
        host[i] = 1.0f / (float)(i + 1);
    upload(in, host, BYTES);
    int single = 1;
    begin();
    LAUNCH("sum_f32", stream, 1, &in, &scratch, &count);
    LAUNCH("add_f32", stream, 1, &scratch, &out, &one, &single);
    launch(end(), LAUNCHES);
}

static int calls;

static void call(void *user)
{
    calls++;
}

static void host_function(void)
{
    float one = 1;
    begin();
    LAUNCH("add_f32", stream, COUNT, &in, &out, &one, &count);
    CHECK(cuLaunchHostFunc(stream, call, NULL));
    launch(end(), LAUNCHES);
    printf("result %d\n", calls);
}

static void to_host(void)
{
    static float target[COUNT];
    float one = 1;
    begin();
    LAUNCH("add_f32", stream, COUNT, &in, &out, &one, &count);
    CHECK(cuMemcpyDtoHAsync(target, out, BYTES, stream));
    launch(end(), LAUNCHES);
    printf("result %g\n", target[7]);
}

// A kernel is given page-locked memory: it might set a flag there.
static void pinned(void)
{
    void *memory;
    float one = 1;
    CHECK(cuMemHostAlloc(&memory, BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
    CUdeviceptr address;
    CHECK(cuMemHostGetDevicePointer(&address, memory, 0));
    memset(memory, 0, BYTES);
    begin();
    LAUNCH("add_f32", stream, COUNT, &address, &out, &one, &count);
    launch(end(), LAUNCHES);
    print_floats(out, 0, 2);
}

// What the graph copies from host memory changes while it is checked: by somebody whom nobody sees.
static void host_input_changes(void)
{
    static float source[COUNT];
    float one = 1;
    unsigned long long turned = ~(unsigned long long)(uintptr_t)&source[COUNT - 1];
    int first_only = 0;
    begin();
    CHECK(cuMemcpyHtoDAsync(in, source, BYTES, stream));
    LAUNCH("add_f32", stream, COUNT, &in, &out, &one, &count);
    LAUNCH("write_unseen", stream, 1, &turned, &first_only);
    launch(end(), LAUNCHES);
}

// The same with device memory, once.
static void device_input_changes(void)
{
    float one = 1;
    unsigned long long turned = ~(unsigned long long)in;
    int first_only = 1;
    begin();
    LAUNCH("write_unseen", stream, 1, &turned, &first_only);
    LAUNCH("add_f32", stream, COUNT, &in, &out, &one, &count);
    launch(end(), LAUNCHES);
    print_floats(in, 1, 3);
}

// Another thread writes the input through a stream of its own, and frees and takes memory, as fast as it can.
static atomic_int done, rounds;

static void *interfere(void *argument)
{
    CUstream own;
    static float values[COUNT];
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    while (!atomic_load(&done)) {
        CUdeviceptr memory;
        values[0] = (float)atomic_fetch_add(&rounds, 1);
        CHECK(cuMemcpyHtoDAsync(in, values, BYTES, own));
        CHECK(cuMemAlloc(&memory, BYTES));
        CHECK(cuMemsetD8Async(memory, 1, BYTES, own));
        CHECK(cuStreamSynchronize(own));
        CHECK(cuMemFree(memory));
    }
    return NULL;
}

static void threads(void)
{
    float one = 1;
    pthread_t thread;
    begin();
    LAUNCH("add_f32", stream, COUNT, &in, &out, &one, &count);
    LAUNCH("add_f32", stream, COUNT, &in, &scratch, &one, &count);
    CUgraphExec exec = end();
    if (pthread_create(&thread, NULL, interfere, NULL))
        fail("pthread_create", __LINE__, 0);
    // At least so often, and until the other thread has come between the launches.
    for (int i = 0; i < LAUNCHES || atomic_load(&rounds) < 20; i++)
        launch(exec, 1);
    atomic_store(&done, 1);
    pthread_join(thread, NULL);
}

static void killed(void)
{
    float one = 1;
    begin();
    LAUNCH("kill_at_second", stream, 1, &other);
    LAUNCH("add_f32", stream, COUNT, &in, &out, &one, &count);
    launch(end(), 2);
}

static void nothing(void)
{
    begin();
    launch(end(), 2);
}

static const struct {
    const char *name;
    void (*function)(void);
} scenarios[] = {
    {"near", near},
    {"padded", padded},
    {"real-rows", real_rows},
    {"kept", kept},
    {"noisy", noisy},
    {"host-function", host_function},
    {"to-host", to_host},
    {"pinned", pinned},
    {"host-input-changes", host_input_changes},
    {"device-input-changes", device_input_changes},
    {"threads", threads},
    {"killed", killed},
    {"nothing", nothing},
};

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: diff_target SCENARIO KERNELS\n");
        return 2;
    }
    open_device(argv[2]);
    CHECK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    in = allocate(BYTES);
    scratch = allocate(BYTES);
    out = allocate(BYTES);
    other = allocate(BYTES);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(scenarios[i].name, argv[1]) != 0)
            continue;
        scenarios[i].function();
        return 0;
    }
    fprintf(stderr, "diff_target: no scenario %s\n", argv[1]);
    return 2;
}
