// A program with a pool of pages, for canaries. usage: canary SCENARIO KERNELS
//
// SCENARIO is KIND-clean or KIND-buggy: the same steps, of which the buggy one stores to a page more than is declared
// in its steps 5 and 7. Kinds: graph, eager, copy (what does the work), index, callback, all (how it is declared),
// transfer (a copy of another stream, declared; the buggy one repeats it after its end), threads (transfers of another
// thread), host (managed memory, written by the host), unended (step 5 is the last one). Others: freed, nonsense,
// undeclared, matched-clean, matched-buggy, quiet (regions without steps), captured.
#include "gravel.h"

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGES = 12, WORDS = 100, PAGE = 4 * WORDS, STEPS = 8, BATCH = 2, TRANSFERRED = 9 };

#define CHECK(call)                                                         \
    do {                                                                    \
        CUresult result_ = (call);                                          \
        if (result_ != CUDA_SUCCESS) {                                      \
            fprintf(stderr, "canary: %s: error %d\n", #call, (int)result_); \
            exit(99);                                                       \
        }                                                                   \
    } while (0)

static struct {
    const char *kind;
    bool buggy;
    CUcontext context;
    CUstream stream, other;
    CUfunction store;
    CUdeviceptr pool, slots, value; // slots: BATCH + 1 numbers
    CUgraphExec exec[2];            // of BATCH slots, and of one more
    int expected[PAGES];            // sum of what was stored to each page
} the;

static bool is(const char *kind)
{
    return strcmp(the.kind, kind) == 0;
}

static void launch_store(int count)
{
    int words = WORDS;
    void *parameters[] = {&the.pool, &the.slots, &count, &words, &the.value};
    CHECK(cuLaunchKernel(the.store, (unsigned)(count * words + 63) / 64, 1, 1, 64, 1, 1, 0, the.stream, parameters,
                         NULL));
}

static CUgraphExec capture(int count)
{
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamBeginCapture(the.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch_store(count);
    CHECK(cuStreamEndCapture(the.stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return exec;
}

static void set_up(const char *kernels)
{
    CUdevice device;
    CUmodule module;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&the.context, device));
    CHECK(cuCtxSetCurrent(the.context));
    CHECK(cuModuleLoad(&module, kernels));
    CHECK(cuModuleGetFunction(&the.store, module, "store_slots"));
    CHECK(cuStreamCreate(&the.stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&the.other, CU_STREAM_NON_BLOCKING));
    if (is("host"))
        CHECK(cuMemAllocManaged(&the.pool, PAGES * PAGE, CU_MEM_ATTACH_GLOBAL));
    else
        CHECK(cuMemAlloc(&the.pool, PAGES * PAGE));
    CHECK(cuMemsetD8Async(the.pool, 0, PAGES * PAGE, the.stream));
    CHECK(cuMemAlloc(&the.slots, (BATCH + 1) * sizeof(long long)));
    CHECK(cuMemAlloc(&the.value, 4));
    CHECK(cuMemsetD8Async(the.slots, 0, (BATCH + 1) * sizeof(long long), the.stream));
    CHECK(cuMemsetD8Async(the.value, 0, 4, the.stream));
    for (int extra = 0; extra < 2; extra++)
        the.exec[extra] = capture(BATCH + extra);
    CHECK(cuStreamSynchronize(the.stream));
}

// The page that the buggy ones store to in this step, or -1.
static int stray_page(int step)
{
    return the.buggy && (step == 5 || step == 7) ? 11 : -1;
}

static size_t allowed_now(void *user, uint64_t step, int64_t *pages, size_t capacity)
{
    const long long *slots = user;
    for (size_t i = 0; i < BATCH && i < capacity; i++)
        pages[i] = slots[i];
    return BATCH;
}

static void declare_step(gravel_region region, const long long *slots)
{
    int64_t numbers[BATCH];
    for (int i = 0; i < BATCH; i++)
        numbers[i] = slots[i];
    if (is("index"))
        gravel_allow_index(region, the.slots, BATCH, 8, 1);
    else if (is("all"))
        gravel_allow_all(region);
    else if (!is("callback") && !is("undeclared"))
        gravel_allow_slots(region, numbers, BATCH, 1);
}

static void copy_page(int page, int value, CUstream stream)
{
    int words[WORDS];
    for (int i = 0; i < WORDS; i++)
        words[i] = value;
    CHECK(cuMemcpyHtoDAsync(the.pool + (CUdeviceptr)page * PAGE, words, PAGE, stream));
    CHECK(cuStreamSynchronize(stream));
    the.expected[page] = value;
}

// Transfers of another thread, beside the steps.
static void *transfer_beside(void *user)
{
    int64_t page = TRANSFERRED;
    CHECK(cuCtxSetCurrent(the.context));
    for (int i = 1; i <= 4 * STEPS; i++) {
        gravel_transfer transfer = gravel_transfer_begin(*(gravel_region *)user, &page, 1);
        copy_page(TRANSFERRED, 1000 + i, the.other);
        gravel_transfer_end(transfer);
    }
    return NULL;
}

static void do_step(gravel_region region, int step)
{
    long long slots[BATCH + 1] = {1 + step % 4, 5 + step % 3, stray_page(step)};
    bool stray = stray_page(step) >= 0;
    int count = BATCH + (stray && !is("copy") && !is("transfer") && !is("host"));
    CHECK(cuMemcpyHtoDAsync(the.slots, slots, (BATCH + 1) * sizeof *slots, the.stream));
    CHECK(cuMemcpyHtoDAsync(the.value, &step, 4, the.stream));
    if (is("callback"))
        gravel_allow_callback(region, allowed_now, slots);
    declare_step(region, slots);
    if (is("eager"))
        launch_store(count);
    else
        CHECK(cuGraphLaunch(the.exec[count - BATCH], the.stream));
    for (int i = 0; i < count; i++)
        the.expected[slots[i]] += step;
    if (stray && is("copy"))
        copy_page(11, 100 + step, the.stream);
    if (is("transfer")) {
        int64_t page = TRANSFERRED;
        // The hash of the step before has come to its end: what it saw is not this transfer's doing.
        CHECK(cuStreamSynchronize(the.stream));
        gravel_transfer transfer = gravel_transfer_begin(region, &page, 1);
        copy_page(TRANSFERRED, 1000 + step, the.other);
        gravel_transfer_end(transfer);
        if (stray)
            copy_page(TRANSFERRED, 2000 + step, the.other);
    }
    if (is("host")) {
        CHECK(cuStreamSynchronize(the.stream));
        if (stray)
            ((int *)(uintptr_t)the.pool)[11 * WORDS] += 1;
    }
    gravel_step(the.stream);
    if (is("callback")) {
        // `slots` ends here.
        gravel_allow_callback(region, NULL, NULL);
    }
}

// What gravel does may not change what the program computes.
static void check_results(void)
{
    int words[PAGES * WORDS];
    CHECK(cuMemcpyDtoH(words, the.pool, sizeof words));
    for (int page = 0; page < PAGES; page++)
        for (int i = 0; i < WORDS; i++) {
            int wanted = the.expected[page] + (is("host") && the.buggy && page == 11 && i == 0 ? 2 : 0);
            if (words[page * WORDS + i] != wanted) {
                fprintf(stderr, "canary: word %d of page %d is %d, not %d\n", i, page, words[page * WORDS + i], wanted);
                exit(98);
            }
        }
}

static void say_nonsense(gravel_region region)
{
    int64_t beyond[] = {PAGES, -1, INT64_MAX, INT64_MIN};
    gravel_region_begin("null", 0, 100, 10);
    gravel_region_begin("huge", the.pool, UINT64_MAX, 1);
    gravel_region_begin("too long", the.pool, PAGES * PAGE + 1, PAGE);
    gravel_region_begin("page", the.pool, PAGE, 2 * PAGE);
    gravel_region_begin(NULL, the.pool, 0, 0);
    gravel_region_end(77);
    gravel_region_group(78, 1);
    gravel_allow_slots(region, beyond, 4, 1);
    gravel_allow_slots(region, NULL, 4, 1);
    gravel_allow_slots(region, beyond, 4, 0);
    gravel_allow_index(region, 1, 4, 8, 1);
    gravel_allow_index(region, the.slots, 1u << 30, 8, 1);
    gravel_allow_index(region, the.slots, 1, 3, 1);
    gravel_allow_slots(79, beyond, 4, 1);
    gravel_transfer_end(80);
    gravel_transfer_begin(81, beyond, 4);
    gravel_transfer_end(gravel_transfer_begin(region, beyond, 4));
}

int main(int argc, char **argv)
{
    static char kind[32];
    if (argc != 3)
        return 97;
    const char *dash = strchr(argv[1], '-');
    size_t length = dash ? (size_t)(dash - argv[1]) : strlen(argv[1]);
    memcpy(kind, argv[1], length < sizeof kind ? length : 0);
    the.kind = kind;
    the.buggy = dash && strcmp(dash, "-buggy") == 0;
    set_up(argv[2]);
    gravel_region region = is("matched") ? 0 : gravel_region_begin("pool", the.pool, PAGES * PAGE, PAGE);
    if (is("nonsense"))
        say_nonsense(region);
    if (is("captured")) {
        // A step that ends in a capture: ignored, and the capture is what it would be.
        CHECK(cuStreamBeginCapture(the.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        gravel_step(the.stream);
        CUgraph graph;
        size_t nodes = 0;
        CHECK(cuStreamEndCapture(the.stream, &graph));
        CHECK(cuGraphGetNodes(graph, NULL, &nodes));
        CHECK(cuGraphDestroy(graph));
        if (nodes)
            return 96;
    }
    pthread_t beside;
    bool has_thread = is("threads") && pthread_create(&beside, NULL, transfer_beside, &region) == 0;
    for (int step = 1; step <= (is("unended") ? 5 : STEPS); step++) {
        if (is("matched"))
            CHECK(cuGraphLaunch(the.exec[0], the.stream)); // slots 0 and 0, value 0: changes nothing
        if (is("matched") && the.buggy && step == 5)
            copy_page(3, 7, the.stream);
        if (!is("matched") && !is("quiet"))
            do_step(region, step);
    }
    if (is("unended")) {
        CHECK(cuCtxSynchronize());
        fprintf(stderr, "after the last step\n");
    }
    if (has_thread)
        pthread_join(beside, NULL);
    if (!is("freed"))
        CHECK(cuStreamSynchronize(the.stream));
    if (is("freed")) {
        // Without ending the region, and while its hash may be under way.
        CHECK(cuMemFree(the.pool));
        gravel_allow_all(region);
        gravel_step(the.stream);
    } else {
        check_results();
        if (!is("quiet"))
            gravel_region_end(region);
        CHECK(cuMemFree(the.pool));
    }
    puts("done");
    return 0;
}
