// The main stream is to wait for two producers. Buggy: both record the same event, so that the wait sees only the
// second record.
#include "twins/twin.h"

static CUdeviceptr left, right, out;

static void prepare(void *user)
{
    CHECK(cuMemsetD8(left, 0, TWIN_BYTES));
    CHECK(cuMemsetD8(right, 0, TWIN_BYTES));
    CHECK(cuCtxSynchronize());
}

static bool is_right(void *user)
{
    return twin_holds(out, 101, 2);
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    left = twin_buffer(TWIN_BYTES);
    right = twin_buffer(TWIN_BYTES);
    out = twin_buffer(TWIN_BYTES);
    int count = TWIN_COUNT, first = 1, second = 100;
    CUevent made = twin_event();

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    twin_order(t.main, t.side);
    twin_order(t.main, t.third);
    twin_hold(&t, t.side, TWIN_HOLD_LONG);
    LAUNCH(t.make_left, t.side, TWIN_COUNT, &left, &first, &count);
    CHECK(cuEventRecord(made, t.side));
    if (!t.buggy)
        CHECK(cuStreamWaitEvent(t.main, made, 0));
    LAUNCH(t.make_right, t.third, TWIN_COUNT, &right, &second, &count);
    CHECK(cuEventRecord(made, t.third));
    CHECK(cuStreamWaitEvent(t.main, made, 0));
    LAUNCH(t.mix, t.main, TWIN_COUNT, &left, &right, &out, &count);
    twin_order(t.side, t.main);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
