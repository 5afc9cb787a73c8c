// A graph for four rows stores each row into the slot of a cache that the row's index names. From the second launch on
// two rows are real, and the slots of the other two belong to another request. Buggy: their indices are left as they
// were; clean: they are set to -1, which the kernel skips.
#include "gravel.h"
#include "twins/twin.h"

#include <string.h>

enum { ROWS = TWIN_ROWS, WIDTH = TWIN_WIDTH, SLOTS = 8, OTHERS = 77 };

static twin t;
static CUdeviceptr in, slots, cache;
static int step;

static void prepare(void *user)
{
    int real = step == 0 ? ROWS : 2, rows[ROWS * WIDTH], own[ROWS] = {1, 2, 3, 4};
    for (int i = 0; i < ROWS * WIDTH; i++)
        rows[i] = 1000 * (step + 1) + i;
    for (int i = real; i < ROWS && !t.buggy; i++)
        own[i] = -1;
    CHECK(cuMemcpyHtoD(in, rows, sizeof rows));
    CHECK(cuMemcpyHtoD(slots, own, sizeof own));
    if (step > 0)
        CHECK(cuMemsetD32(cache + 3 * WIDTH * 4, OTHERS, 2 * WIDTH));
    gravel_batch_rows((uint64_t)real, ROWS);
    step++;
}

// Slots 3 and 4 are the other request's from the second launch on.
static bool is_right(void *user)
{
    int values[SLOTS * WIDTH];
    CHECK(cuMemcpyDtoH(values, cache, sizeof values));
    for (int i = 3 * WIDTH; i < 5 * WIDTH && step > 1; i++)
        if (values[i] != OTHERS)
            return false;
    return values[WIDTH] == 1000 * step;
}

int main(int argc, char **argv)
{
    twin_open(&t, argc, argv);
    in = twin_buffer(ROWS * WIDTH * 4);
    slots = twin_buffer(ROWS * 4);
    cache = twin_buffer(SLOTS * WIDTH * 4);
    gravel_rows("values", in, WIDTH * 4, ROWS, GRAVEL_ROWS_IN);
    gravel_rows("slots", slots, 4, ROWS, GRAVEL_ROWS_IN | GRAVEL_ROWS_INDEX | GRAVEL_ROWS_MINUS_ONE_IS_PAD);
    int rows = ROWS, width = WIDTH;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(t.store_rows, t.main, ROWS * WIDTH, &in, &slots, &cache, &rows, &width);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
