// A program for the tests of padding, poison and probes. usage: proof_target SCENARIO KERNELS
//
// Prints `result N...` lines: the same whatever records it.
#include "gravel.h"
#include "program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 4, WIDTH = 8, ROW = WIDTH * 4, BYTES = ROWS * ROW };

#define EXPECT(condition)                  \
    do {                                   \
        if (!(condition))                  \
            fail(#condition, __LINE__, 0); \
    } while (0)

#define LAUNCH(name, count, ...) \
    CHECK(cuLaunchKernel(kernel(name), ((count) + 31) / 32, 1, 1, 32, 1, 1, 0, stream, (void *[]){__VA_ARGS__}, NULL))

// Rows of numbers: 1, 2, ... from the first on.
static CUdeviceptr numbers(int rows)
{
    float host[ROWS * WIDTH];
    CUdeviceptr memory = allocate(BYTES);
    for (int i = 0; i < rows * WIDTH; i++)
        host[i] = (float)(i + 1);
    upload(memory, host, (size_t)rows * ROW);
    return memory;
}

static void begin(void)
{
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static void launch(CUgraphExec exec)
{
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
}

static void print(CUdeviceptr memory, size_t bytes)
{
    unsigned char *host = malloc(bytes);
    for (size_t done = 0, part; done < bytes; done += part) {
        CUdeviceptr start;
        size_t size;
        CHECK(cuMemGetAddressRange(&start, &size, memory + done));
        part = start + size - memory - done < bytes - done ? start + size - memory - done : bytes - done;
        CHECK(cuMemcpyDtoH(host + done, memory + done, part));
    }
    printf("result");
    for (size_t i = 0; i < bytes; i += 4) {
        float value;
        memcpy(&value, host + i, 4);
        printf(" %g", value);
    }
    printf("\n");
    free(host);
}

// Memory in two allocations that adjoin, `bytes` in each, as a driver hands out small ones.
static CUdeviceptr adjoining(size_t bytes)
{
    CUdeviceptr last = allocate(bytes);
    for (int i = 0; i < 1000; i++) {
        CUdeviceptr next = allocate(bytes), low = next < last ? next : last;
        if (next + last == 2 * low + bytes) {
            EXPECT(cuMemsetD8(low, 0, 2 * bytes) == CUDA_ERROR_INVALID_VALUE);
            return low;
        }
        last = next;
    }
    fail("no two allocations adjoin", __LINE__, 0);
    return 0;
}

// ---- Probes ----

static CUdeviceptr in, out;
static int width = WIDTH, rows = ROWS;

// A graph for `count` rows, with the input and the output probed as layer 3; `wrong`: something changes the output.
static CUgraphExec probed(int count, bool wrong, int *made)
{
    int at = 5;
    float value = 0.5f;
    uint64_t bucket = (uint64_t)count;
    begin();
    *made = gravel_probe("in", 3, bucket, in, ROW, bucket, stream);
    LAUNCH("double_rows", count * WIDTH, &in, &out, &count, &width);
    if (wrong)
        LAUNCH("disturb", 1, &out, &at, &value);
    *made += gravel_probe("out", 3, bucket, out, ROW, bucket, stream);
    return end();
}

// The eager computation, from the clone of the input.
static int64_t recompute(uint64_t bucket, uint64_t real, int fallback)
{
    gravel_clone clone;
    CUdeviceptr eager = allocate(BYTES);
    if (!gravel_probe_find("in", 3, bucket, &clone))
        return -1;
    EXPECT(clone.fallback == fallback && clone.row_bytes == ROW && clone.launches > 0);
    EXPECT(clone.bucket == (fallback ? 4 : bucket));
    int cloned = (int)clone.rows;
    CUdeviceptr from = clone.address;
    LAUNCH("double_rows", cloned * WIDTH, &from, &eager, &cloned, &width);
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

// What is probed, and what it is compared with, lie in two allocations each.
static void probe_adjoining(void)
{
    enum { HALF = 1 << 12 };
    CUdeviceptr values = adjoining(HALF), eager = adjoining(HALF);
    int count = 2 * HALF / 4, one = 1, last = count - 1;
    float value = 7;
    LAUNCH("double_rows", count, &values, &values, &one, &count);
    LAUNCH("double_rows", count, &eager, &eager, &one, &count);
    CHECK(cuStreamSynchronize(stream));
    begin();
    int made = gravel_probe("values", 0, 1, values, 2 * HALF, 1, stream);
    LAUNCH("disturb", 1, &values, &last, &value);
    CUgraphExec exec = end();
    launch(exec);
    print(values + HALF - 16, 32);
    printf("made %d\n", made);
    printf("equal %lld\n", (long long)gravel_probe_compare("values", 0, 1, 1, eager, GRAVEL_F32, 0, stream));
    LAUNCH("disturb", 1, &eager, &last, &value);
    printf("other %lld\n", (long long)gravel_probe_compare("values", 0, 1, 1, eager, GRAVEL_F32, 0, stream));
}

// A clone of 2 MiB and one of 16.
static void probe_budget(void)
{
    CUdeviceptr large = allocate(16u << 20);
    in = numbers(4);
    out = allocate(BYTES);
    begin();
    int small_made = gravel_probe("small", 0, 4, large, 2u << 20, 1, stream);
    int large_made = gravel_probe("large", 0, 4, large, 16u << 20, 1, stream);
    int again_made = gravel_probe("small", 1, 4, large, 2u << 20, 1, stream);
    LAUNCH("double_rows", rows * WIDTH, &in, &out, &rows, &width);
    launch(end());
    print(out, BYTES);
    printf("made %d %d %d\n", small_made, large_made, again_made);
}

// ---- Padding ----

enum { SLOTS = 8 };
static CUdeviceptr slots, cache, amax, counter, state;

static void set_slots(const int *host)
{
    upload(slots, host, ROWS * sizeof *host);
}

// `marks`: what the program declares of the slots.
static void set_up(unsigned marks)
{
    static const int own[ROWS] = {1, 2, 3, 4};
    in = numbers(ROWS);
    out = allocate(BYTES);
    slots = allocate(ROWS * 4);
    cache = allocate(SLOTS * ROW);
    amax = allocate(4);
    counter = allocate(4);
    state = allocate(BYTES);
    set_slots(own);
    gravel_rows("in", in, ROW, ROWS, GRAVEL_ROWS_IN);
    gravel_rows("slots", slots, 4, ROWS, GRAVEL_ROWS_IN | GRAVEL_ROWS_INDEX | marks);
    gravel_rows("out", out, ROW, ROWS, GRAVEL_ROWS_OUT);
}

// Launches twice, with 4 real rows and with 2, and prints everything that the graph may have changed.
static void launch_rows(CUgraphExec exec, const int *padded)
{
    gravel_real_rows(4);
    launch(exec);
    set_slots(padded);
    // Slots 3 and 4 have gone to another request.
    CHECK(cuMemsetD8(cache + 3 * ROW, 0x41, 2 * ROW));
    CHECK(cuCtxSynchronize());
    gravel_real_rows(2);
    launch(exec);
    print(out, 2 * ROW);
    print(cache, SLOTS * ROW);
    print(counter, 4);
    print(state, BYTES);
    print(in, BYTES);
}

static CUgraphExec store_graph(void)
{
    begin();
    LAUNCH("double_rows", ROWS * WIDTH, &in, &out, &rows, &width);
    LAUNCH("store_rows", ROWS * WIDTH, &out, &slots, &cache, &rows, &width);
    LAUNCH("count_launches", 1, &counter);
    return end();
}

static CUgraphExec divide_graph(void)
{
    begin();
    LAUNCH("largest", 1, &in, &amax, &rows, &width);
    LAUNCH("divide_rows", ROWS * WIDTH, &in, &amax, &out, &rows, &width);
    LAUNCH("count_launches", 1, &counter);
    return end();
}

static void pad_skipped(void)
{
    set_up(GRAVEL_ROWS_MINUS_ONE_IS_PAD);
    launch_rows(store_graph(), (int[]){1, 2, -1, -1});
}

// Rows 2 and 3 keep the slots they had.
static void pad_stale(void)
{
    set_up(GRAVEL_ROWS_MINUS_ONE_IS_PAD);
    launch_rows(store_graph(), (int[]){1, 2, 3, 4});
}

// Slot 0 is nobody's.
static void pad_reserved(void)
{
    set_up(GRAVEL_ROWS_ZERO_IS_PAD);
    gravel_scratch("slot 0", cache, ROW);
    launch_rows(store_graph(), (int[]){1, 2, 0, 0});
}

// Inputs lie in two allocations each, with the padding of one real row in both, as parts of one reservation may hold
// them (cuMemMap); and so do the two workspaces together, which are poisoned.
static void pad_adjoining(void)
{
    enum { WIDE = 256 };
    CUdeviceptr left = adjoining(ROWS * WIDE), right = left + ROWS * WIDE;
    set_up(GRAVEL_ROWS_ONE_IS_PAD);
    width = WIDE / 4;
    in = adjoining(2 * WIDE);
    out = allocate(ROWS * WIDE);
    slots = adjoining(256) + 256 - 2 * 4;
    cache = allocate(SLOTS * WIDE);
    upload(slots, (int[]){1, 2}, 8);
    upload(slots + 8, (int[]){3, 4}, 8);
    gravel_rows("in", in, WIDE, ROWS, GRAVEL_ROWS_IN);
    gravel_rows("slots", slots, 4, ROWS, GRAVEL_ROWS_IN | GRAVEL_ROWS_INDEX | GRAVEL_ROWS_ONE_IS_PAD);
    gravel_rows("out", out, WIDE, ROWS, GRAVEL_ROWS_OUT);
    gravel_scratch("cache", cache, SLOTS * WIDE);
    gravel_scratch("left", left, ROWS * WIDE);
    gravel_scratch("right", right, ROWS * WIDE);
    begin();
    LAUNCH("double_rows", ROWS * width, &in, &left, &rows, &width);
    LAUNCH("double_rows", ROWS * width, &left, &right, &rows, &width);
    LAUNCH("double_rows", ROWS * width, &right, &out, &rows, &width);
    LAUNCH("store_rows", ROWS * width, &out, &slots, &cache, &rows, &width);
    LAUNCH("count_launches", 1, &counter);
    CUgraphExec exec = end();
    gravel_real_rows(1);
    launch(exec);
    launch(exec);
    print(cache, SLOTS * WIDE);
    print(counter, 4);
}

// The same, and the padded rows store in every step what they stored in the step before: nothing changes.
static void pad_same(void)
{
    set_up(GRAVEL_ROWS_MINUS_ONE_IS_PAD);
    CUgraphExec exec = store_graph();
    gravel_real_rows(4);
    launch(exec);
    gravel_real_rows(2);
    launch(exec);
    print(cache, SLOTS * ROW);
}

// ---- Unstable bytes ----

static CUdeviceptr workspace; // no scratch memory: nobody has declared it

// Beside what is checked, a workspace is left in another state by every launch.
static CUgraphExec unstable_graph(const char *store)
{
    int count = ROWS * WIDTH;
    workspace = allocate(BYTES);
    begin();
    LAUNCH("keep_partial", 1, &in, &workspace, &count);
    LAUNCH("double_rows", count, &in, &out, &rows, &width);
    LAUNCH(store, count, &out, &slots, &cache, &rows, &width);
    return end();
}

static void launch_unstable(CUgraphExec exec, const int *padded)
{
    gravel_real_rows(4);
    launch(exec);
    set_slots(padded);
    gravel_real_rows(2);
    for (int i = 0; i < 4; i++)
        launch(exec);
    print(out, 2 * ROW);
    print(cache + ROW, (SLOTS - 1) * ROW); // not the slot that padded rows race for
}

static void pad_unstable(void)
{
    set_up(GRAVEL_ROWS_ZERO_IS_PAD);
    gravel_scratch("slot 0", cache, ROW);
    launch_unstable(unstable_graph("store_in_any_order"), (int[]){1, 2, 0, 0});
}

static void pad_unstable_stale(void)
{
    set_up(GRAVEL_ROWS_ZERO_IS_PAD);
    gravel_scratch("slot 0", cache, ROW);
    launch_unstable(unstable_graph("store_in_any_order"), (int[]){1, 2, 3, 4});
}

// The slot that padded rows race for is nobody's, and not said to be.
static void pad_unstable_slot(void)
{
    set_up(GRAVEL_ROWS_ZERO_IS_PAD);
    launch_unstable(unstable_graph("store_in_any_order"), (int[]){1, 2, 0, 0});
}

// One of many bytes varies at a time. A stale slot is written all the same.
static void unstable_anywhere(int count)
{
    set_up(GRAVEL_ROWS_MINUS_ONE_IS_PAD);
    workspace = allocate((size_t)count * 4);
    begin();
    LAUNCH("count_anywhere", 1, &workspace, &count);
    LAUNCH("double_rows", ROWS * WIDTH, &in, &out, &rows, &width);
    LAUNCH("store_rows", ROWS * WIDTH, &out, &slots, &cache, &rows, &width);
    CUgraphExec exec = end();
    gravel_real_rows(2);
    launch(exec);
    print(out, 2 * ROW);
    print(cache, SLOTS * ROW);
}

static void pad_unstable_anywhere(void)
{
    unstable_anywhere(4096); // 4 groups of 4 KiB
}

static void pad_unstable_everywhere(void)
{
    unstable_anywhere(1 << 16);
}

// `divide`: real rows depend on padding; `last_bit`: and their last bit on nothing.
static void unstable_rows(bool divide, bool last_bit)
{
    int count = ROWS * WIDTH;
    set_up(GRAVEL_ROWS_MINUS_ONE_IS_PAD);
    workspace = allocate(BYTES);
    begin();
    LAUNCH("keep_partial", 1, &in, &workspace, &count);
    LAUNCH("largest", 1, &in, &amax, &rows, &width);
    if (divide)
        LAUNCH("divide_rows", count, &in, &amax, &out, &rows, &width);
    else
        LAUNCH("double_rows", count, &in, &out, &rows, &width);
    if (last_bit)
        LAUNCH("disturb_last_bit", count, &out, &count);
    CUgraphExec exec = end();
    gravel_real_rows(2);
    for (int i = 0; i < 3; i++)
        launch(exec);
    print(in, BYTES);
}

static void pad_unstable_rows(void)
{
    unstable_rows(true, false);
}

static void pad_unstable_output(void)
{
    unstable_rows(false, true);
}

static void pad_unstable_both(void)
{
    unstable_rows(true, true);
}

static void pad_largest(void)
{
    set_up(GRAVEL_ROWS_MINUS_ONE_IS_PAD);
    launch_rows(divide_graph(), (int[]){1, 2, -1, -1});
}

// Only the indices are declared as inputs, without a mark.
static void pad_unmarked(void)
{
    set_up(0);
    gravel_rows("in", in, ROW, ROWS, GRAVEL_ROWS_OUT);
    launch_rows(store_graph(), (int[]){1, 2, 3, 4});
}

static void add_one(void *user)
{
    ++*(int *)user;
}

// A host function must not run more often than the program asks.
static void pad_host(void)
{
    int calls = 0;
    set_up(GRAVEL_ROWS_MINUS_ONE_IS_PAD);
    begin();
    LAUNCH("double_rows", ROWS * WIDTH, &in, &out, &rows, &width);
    CHECK(cuLaunchHostFunc(stream, add_one, &calls));
    launch_rows(end(), (int[]){1, 2, -1, -1});
    EXPECT(calls == 2);
}

// Data of earlier launches is added to: the same launch gives another result each time, but not in a check.
static void pad_state(void)
{
    set_up(GRAVEL_ROWS_MINUS_ONE_IS_PAD);
    begin();
    LAUNCH("accumulate", ROWS * WIDTH, &in, &state, &out, &rows, &width);
    LAUNCH("count_launches", 1, &counter);
    launch_rows(end(), (int[]){1, 2, -1, -1});
}

static void pad_nonsense(void)
{
    CUdeviceptr freed = allocate(BYTES);
    gravel_rows("null", 0, ROW, ROWS, GRAVEL_ROWS_IN);
    gravel_rows("nowhere", 4096, ROW, ROWS, GRAVEL_ROWS_IN);
    gravel_rows("longer than it is", freed, ROW, 1 << 20, GRAVEL_ROWS_IN);
    gravel_rows("neither", freed, ROW, ROWS, 0);
    gravel_rows("neither", freed, ROW, ROWS, 0);
    gravel_rows("flags", freed, ROW, ROWS, 1u << 20);
    gravel_scratch("outside", 1u << 20, ROW);
    gravel_rows("freed", freed, ROW, ROWS, GRAVEL_ROWS_IN);
    CHECK(cuMemFree(freed));
    pad_skipped();
}

static atomic_bool writing = true, has_written;
static CUdeviceptr other;

// Writes into memory that the graph may write, while it is launched and checked.
static void *write_beside(void *user)
{
    CUstream mine;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&mine, CU_STREAM_NON_BLOCKING));
    int value = 0;
    do {
        CHECK(cuMemcpyHtoDAsync(other, &value, sizeof value, mine));
        CHECK(cuMemsetD32Async(other + 4, (unsigned)value, 1, mine));
        CHECK(cuStreamSynchronize(mine));
        value++;
        has_written = true;
    } while (writing);
    int last[2];
    CHECK(cuMemcpyDtoH(last, other, sizeof last));
    EXPECT(last[0] == value - 1 && last[1] == value - 1);
    return NULL;
}

static void pad_beside(void)
{
    pthread_t thread;
    set_up(GRAVEL_ROWS_MINUS_ONE_IS_PAD);
    other = cache + (SLOTS - 1) * ROW;
    CUgraphExec exec = store_graph();
    set_slots((int[]){1, 2, -1, -1});
    gravel_real_rows(2);
    if (pthread_create(&thread, NULL, write_beside, NULL))
        fail("pthread_create", __LINE__, 0);
    while (!has_written)
        usleep(1000);
    for (int i = 0; i < 10; i++)
        launch(exec);
    writing = false;
    pthread_join(thread, NULL);
    print(out, 2 * ROW);
    print(cache, 3 * ROW);
    print(counter, 4);
}

// ---- Poison ----

// `between`: what the output is computed from, written by the graph but for `skipped` rows at the end.
static void poisoned(int skipped)
{
    CUdeviceptr between = numbers(ROWS);
    int written = ROWS - skipped;
    in = numbers(ROWS);
    out = allocate(BYTES);
    counter = allocate(4);
    gravel_scratch("between", between, BYTES);
    begin();
    LAUNCH("double_rows", ROWS * WIDTH, &in, &between, &written, &width);
    LAUNCH("double_rows", ROWS * WIDTH, &between, &out, &rows, &width);
    LAUNCH("count_launches", 1, &counter);
    CUgraphExec exec = end();
    for (int i = 0; i < 3; i++)
        launch(exec);
    print(out, BYTES);
    print(between, BYTES);
    print(counter, 4);
}

static void poison_written(void)
{
    poisoned(0);
}

// Scratch memory is left in another state by every launch; what is made of it is not. `skipped` is as above.
static void poisoned_unstable(int skipped)
{
    CUdeviceptr between = numbers(ROWS), partial = allocate(BYTES);
    int written = ROWS - skipped, count = ROWS * WIDTH;
    in = numbers(ROWS);
    out = allocate(BYTES);
    gravel_scratch("between", between, BYTES);
    gravel_scratch("partial", partial, BYTES);
    gravel_rows("out", out, ROW, ROWS, GRAVEL_ROWS_OUT);
    workspace = allocate(BYTES);
    begin();
    LAUNCH("keep_partial", 1, &in, &partial, &count);
    LAUNCH("keep_partial", 1, &in, &workspace, &count);
    LAUNCH("double_rows", count, &in, &between, &written, &width);
    LAUNCH("double_rows", count, &between, &out, &rows, &width);
    CUgraphExec exec = end();
    for (int i = 0; i < 3; i++)
        launch(exec);
    print(out, BYTES);
}

static void poison_unstable(void)
{
    poisoned_unstable(0);
}

static void poison_unstable_stale(void)
{
    poisoned_unstable(1);
}

// No output is declared: what is unstable may be one.
static void poison_undeclared(void)
{
    CUdeviceptr between = allocate(BYTES);
    int count = ROWS * WIDTH;
    in = numbers(ROWS);
    out = allocate(BYTES);
    gravel_scratch("between", between, BYTES);
    begin();
    LAUNCH("double_rows", count, &in, &between, &rows, &width);
    LAUNCH("keep_partial", 1, &between, &out, &count);
    CUgraphExec exec = end();
    launch(exec);
    print(in, BYTES);
}

static void poison_stale(void)
{
    poisoned(1);
}

// The program keeps state where it says that it keeps none.
static void poison_state(void)
{
    in = numbers(ROWS);
    out = allocate(BYTES);
    state = allocate(BYTES);
    gravel_scratch("state", state, BYTES);
    begin();
    LAUNCH("accumulate", ROWS * WIDTH, &in, &state, &out, &rows, &width);
    CUgraphExec exec = end();
    for (int i = 0; i < 3; i++) {
        launch(exec);
        print(out, BYTES);
    }
}

// Memory that is allocated during the capture is the graph's own.
static void poison_own(void)
{
    CUdeviceptr own;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    int written = ROWS - 1;
    in = numbers(ROWS);
    out = allocate(BYTES);
    begin();
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(cuMemAlloc(&own, BYTES));
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    LAUNCH("double_rows", ROWS * WIDTH, &in, &own, &written, &width);
    LAUNCH("double_rows", ROWS * WIDTH, &own, &out, &rows, &width);
    CUgraphExec exec = end();
    CHECK(cuMemsetD8(own, 0, BYTES));
    CHECK(cuCtxSynchronize());
    launch(exec);
    launch(exec);
    print(out, BYTES);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"pad-skipped", pad_skipped},
    {"pad-stale", pad_stale},
    {"pad-reserved", pad_reserved},
    {"pad-largest", pad_largest},
    {"pad-unmarked", pad_unmarked},
    {"pad-host", pad_host},
    {"pad-adjoining", pad_adjoining},
    {"probe-adjoining", probe_adjoining},
    {"pad-same", pad_same},
    {"pad-unstable", pad_unstable},
    {"pad-unstable-stale", pad_unstable_stale},
    {"pad-unstable-slot", pad_unstable_slot},
    {"pad-unstable-rows", pad_unstable_rows},
    {"pad-unstable-anywhere", pad_unstable_anywhere},
    {"pad-unstable-everywhere", pad_unstable_everywhere},
    {"pad-unstable-output", pad_unstable_output},
    {"pad-unstable-both", pad_unstable_both},
    {"poison-unstable", poison_unstable},
    {"poison-unstable-stale", poison_unstable_stale},
    {"poison-undeclared", poison_undeclared},
    {"pad-state", pad_state},
    {"pad-nonsense", pad_nonsense},
    {"pad-beside", pad_beside},
    {"poison-written", poison_written},
    {"poison-stale", poison_stale},
    {"poison-state", poison_state},
    {"poison-own", poison_own},
    {"probe-right", probe_right},
    {"probe-wrong", probe_wrong},
    {"probe-nonsense", probe_nonsense},
    {"probe-into", probe_into},
    {"probe-budget", probe_budget},
};

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    open_device(argv[2]);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            return 0;
        }
    return 2;
}
