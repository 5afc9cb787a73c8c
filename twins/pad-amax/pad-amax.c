// A graph for four rows scales by the largest magnitude. From the second launch on two rows are real, and the others
// hold the larger values of an earlier step. Buggy: the largest magnitude is that of all rows; clean: that of the real
// ones.
#include "gravel.h"
#include "twins/twin.h"

enum { ROWS = TWIN_ROWS, WIDTH = TWIN_WIDTH };

static twin t;
static CUdeviceptr in, counted, largest, out;
static int step;

static float input(int i)
{
    return (float)(i + 1);
}

// Only real rows are filled.
static void prepare(void *user)
{
    int real = step == 0 ? ROWS : 2, rows = t.buggy ? ROWS : real;
    float values[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++)
        values[i] = input(i);
    CHECK(cuMemcpyHtoD(in, values, (size_t)real * WIDTH * 4));
    CHECK(cuMemcpyHtoD(counted, &rows, sizeof rows));
    gravel_batch_rows((uint64_t)real, ROWS);
    step++;
}

static bool is_right(void *user)
{
    float values[ROWS * WIDTH], scale = input((step == 1 ? ROWS : 2) * WIDTH - 1);
    CHECK(cuMemcpyDtoH(values, out, sizeof values));
    for (int i = 0; i < 2 * WIDTH; i++) {
        float difference = values[i] - input(i) * 127 / scale;
        if (!(difference < 0.01f && difference > -0.01f))
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    twin_open(&t, argc, argv);
    in = twin_buffer(ROWS * WIDTH * 4);
    counted = twin_buffer(4);
    largest = twin_buffer(4);
    out = twin_buffer(ROWS * WIDTH * 4);
    gravel_rows("values", in, WIDTH * 4, ROWS, GRAVEL_ROWS_IN);
    gravel_rows("scaled", out, WIDTH * 4, ROWS, GRAVEL_ROWS_OUT);
    int rows = ROWS, width = WIDTH;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(t.find_largest, t.main, 1, &in, &counted, &largest, &rows, &width);
    LAUNCH(t.scale_rows, t.main, ROWS * WIDTH, &in, &largest, &out, &rows, &width);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
