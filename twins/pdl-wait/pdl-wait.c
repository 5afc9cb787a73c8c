// A kernel begins before the one in front of it ends, and reads what that one writes. Buggy: without a grid-dependency
// wait. A second pair of kernels does the same and waits in both variants.
#include "twins/twin.h"

static CUdeviceptr data, out, other_out;

static void prepare(void *user)
{
    CHECK(cuMemsetD8(data, 0, TWIN_BYTES));
}

static bool is_right(void *user)
{
    return twin_holds(out, 2, 2) && twin_holds(other_out, 200, 2);
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    data = twin_buffer(TWIN_BYTES);
    out = twin_buffer(TWIN_BYTES);
    other_out = twin_buffer(TWIN_BYTES);
    CUdeviceptr other = twin_buffer(TWIN_BYTES);
    int count = TWIN_COUNT, first = 1, second = 100;
    unsigned long long time = TWIN_HOLD_SHORT;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(t.make_triggering, t.main, TWIN_BLOCK, &data, &first, &count, &time);
    if (t.buggy)
        LAUNCH_EARLY(t.use_without_wait, t.main, TWIN_COUNT, &data, &out, &count);
    else
        LAUNCH_EARLY(t.use_after_wait, t.main, TWIN_COUNT, &data, &out, &count);
    LAUNCH(t.make_triggering, t.main, TWIN_BLOCK, &other, &second, &count, &time);
    LAUNCH_EARLY(t.use_after_wait, t.main, TWIN_COUNT, &other, &other_out, &count);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
