// Two branches count into one array. Clean: both by atomic additions, which do not race with each other. Buggy: one of
// them stores.
#include "twins/twin.h"

static CUdeviceptr counters;

static void prepare(void *user)
{
    CHECK(cuMemsetD8(counters, 0, TWIN_BYTES));
    CHECK(cuCtxSynchronize());
}

static bool is_right(void *user)
{
    return twin_holds(counters, 3, 0);
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    counters = twin_buffer(TWIN_BYTES);
    int count = TWIN_COUNT;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    twin_order(t.main, t.side);
    LAUNCH(t.count_left, t.main, TWIN_COUNT, &counters, &count);
    twin_hold(&t, t.side, TWIN_HOLD_SHORT);
    if (t.buggy)
        LAUNCH(t.store_right, t.side, TWIN_COUNT, &counters, &count);
    else
        LAUNCH(t.count_right, t.side, TWIN_COUNT, &counters, &count);
    twin_order(t.side, t.main);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
