// A kernel reads one of its inputs before its grid-dependency wait: weights, which no kernel writes. Buggy: the data
// that the kernel in front of it writes. It is the same kernel both times; its parameters make the difference.
#include "twins/twin.h"

static CUdeviceptr data, weights, out;

static void prepare(void *user)
{
    CHECK(cuMemsetD8(data, 0, TWIN_BYTES));
}

static bool is_right(void *user)
{
    return twin_holds(out, 1001, 1);
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    data = twin_buffer(TWIN_BYTES);
    weights = twin_buffer(TWIN_BYTES);
    out = twin_buffer(TWIN_BYTES);
    CHECK(cuMemsetD32(weights, 1000, TWIN_COUNT));
    int count = TWIN_COUNT, first = 1;
    unsigned long long time = TWIN_HOLD_SHORT;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(t.make_triggering, t.main, TWIN_BLOCK, &data, &first, &count, &time);
    if (t.buggy)
        LAUNCH_EARLY(t.prefetch, t.main, TWIN_COUNT, &data, &weights, &out, &count);
    else
        LAUNCH_EARLY(t.prefetch, t.main, TWIN_COUNT, &weights, &data, &out, &count);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
