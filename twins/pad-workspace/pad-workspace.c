// The graph of pad-store, and beside it two branches that draw places of a queue: which of their numbers stands where
// is another thing each time, and nobody is told that the queue is scratch memory. What is made of it is the same
// always. Buggy: padded rows keep the slots they had, and store there what is there already, so that no byte changes;
// clean: their indices are set to -1, which the kernel skips.
#include "gravel.h"
#include "twins/twin.h"

enum { ROWS = TWIN_ROWS, WIDTH = TWIN_WIDTH, SLOTS = 8, OTHERS = 77, HALF = 512, QUEUE = 2 * HALF };

static twin t;
static CUdeviceptr in, slots, cache, taken, queue, total;
static int step;

// The padded rows hold what they held in the first step.
static void prepare(void *user)
{
    int real = step == 0 ? ROWS : 2, rows[ROWS * WIDTH], own[ROWS] = {1, 2, 3, 4};
    for (int i = 0; i < ROWS * WIDTH; i++)
        rows[i] = 1000 * (i < real * WIDTH ? step + 1 : 1) + i;
    for (int i = real; i < ROWS && !t.buggy; i++)
        own[i] = -1;
    CHECK(cuMemcpyHtoD(in, rows, sizeof rows));
    CHECK(cuMemcpyHtoD(slots, own, sizeof own));
    // Slots 3 and 4 are another request's from the third launch on.
    if (step > 1)
        CHECK(cuMemsetD32(cache + 3 * WIDTH * 4, OTHERS, 2 * WIDTH));
    gravel_batch_rows((uint64_t)real, ROWS);
    step++;
}

static bool is_right(void *user)
{
    int values[SLOTS * WIDTH], sum;
    CHECK(cuMemcpyDtoH(values, cache, sizeof values));
    CHECK(cuMemcpyDtoH(&sum, total, sizeof sum));
    for (int i = 3 * WIDTH; i < 5 * WIDTH && step > 2; i++)
        if (values[i] != OTHERS)
            return false;
    return values[WIDTH] == 1000 * step && sum == QUEUE * (QUEUE - 1) / 2;
}

int main(int argc, char **argv)
{
    twin_open(&t, argc, argv);
    in = twin_buffer(ROWS * WIDTH * 4);
    slots = twin_buffer(ROWS * 4);
    cache = twin_buffer(SLOTS * WIDTH * 4);
    taken = twin_buffer(4);
    queue = twin_buffer(QUEUE * 4);
    total = twin_buffer(4);
    gravel_rows("values", in, WIDTH * 4, ROWS, GRAVEL_ROWS_IN);
    gravel_rows("slots", slots, 4, ROWS, GRAVEL_ROWS_IN | GRAVEL_ROWS_INDEX | GRAVEL_ROWS_MINUS_ONE_IS_PAD);
    int rows = ROWS, width = WIDTH, left = 0, right = HALF, half = HALF, all = QUEUE;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemsetD32Async(taken, 0, 1, t.main));
    twin_order(t.main, t.side);
    LAUNCH(t.take_places, t.main, HALF, &taken, &queue, &left, &half);
    LAUNCH(t.take_places, t.side, HALF, &taken, &queue, &right, &half);
    twin_order(t.side, t.main);
    LAUNCH(t.count_tokens, t.main, 1, &queue, &total, &all);
    LAUNCH(t.store_rows, t.main, ROWS * WIDTH, &in, &slots, &cache, &rows, &width);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
