// A graph for four rows divides by the number of tokens that all rows have. From the second launch on two rows are
// real. Buggy: the lengths of the other two are left as they were, and count; clean: they are set to 0.
#include "gravel.h"
#include "twins/twin.h"

enum { ROWS = TWIN_ROWS, WIDTH = TWIN_WIDTH };

static twin t;
static CUdeviceptr in, lengths, total, out;
static int step;

static void prepare(void *user)
{
    int real = step == 0 ? ROWS : 2, rows[ROWS * WIDTH], own[ROWS] = {10, 20, 30, 40};
    for (int i = 0; i < ROWS * WIDTH; i++)
        rows[i] = 100 + i;
    for (int i = real; i < ROWS && !t.buggy; i++)
        own[i] = 0;
    CHECK(cuMemcpyHtoD(in, rows, sizeof rows));
    CHECK(cuMemcpyHtoD(lengths, own, sizeof own));
    gravel_batch_rows((uint64_t)real, ROWS);
    step++;
}

static bool is_right(void *user)
{
    int values[ROWS * WIDTH], tokens = step == 1 ? 100 : 30;
    CHECK(cuMemcpyDtoH(values, out, sizeof values));
    for (int i = 0; i < 2 * WIDTH; i++)
        if (values[i] != (100 + i) * 1000 / tokens)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    twin_open(&t, argc, argv);
    in = twin_buffer(ROWS * WIDTH * 4);
    lengths = twin_buffer(ROWS * 4);
    total = twin_buffer(4);
    out = twin_buffer(ROWS * WIDTH * 4);
    gravel_rows("values", in, WIDTH * 4, ROWS, GRAVEL_ROWS_IN);
    gravel_rows("lengths", lengths, 4, ROWS, GRAVEL_ROWS_IN | GRAVEL_ROWS_INDEX | GRAVEL_ROWS_ZERO_IS_PAD);
    gravel_rows("shares", out, WIDTH * 4, ROWS, GRAVEL_ROWS_OUT);
    int rows = ROWS, width = WIDTH;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(t.count_tokens, t.main, 1, &lengths, &total, &rows);
    LAUNCH(t.share_rows, t.main, ROWS * WIDTH, &in, &total, &out, &rows, &width);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
