// The main stream is to wait for what a side stream makes. Buggy: the wait is put into a third stream; the main
// stream joins both at the end, so that the capture is whole, but too late for its consumer.
#include "twins/twin.h"

static CUdeviceptr input, out;

static void prepare(void *user)
{
    CHECK(cuMemsetD8(input, 0, TWIN_BYTES));
    CHECK(cuCtxSynchronize());
}

static bool is_right(void *user)
{
    return twin_holds(out, 2, 2);
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    CUdeviceptr other = twin_buffer(TWIN_BYTES);
    input = twin_buffer(TWIN_BYTES);
    out = twin_buffer(TWIN_BYTES);
    int count = TWIN_COUNT, first = 1;
    CUevent made = twin_event();

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    twin_order(t.main, t.side);
    twin_order(t.main, t.third);
    twin_hold(&t, t.side, TWIN_HOLD_LONG);
    LAUNCH(t.make_left, t.side, TWIN_COUNT, &input, &first, &count);
    CHECK(cuEventRecord(made, t.side));
    LAUNCH(t.make_next, t.third, TWIN_COUNT, &other, &first, &count);
    CHECK(cuStreamWaitEvent(t.buggy ? t.third : t.main, made, 0));
    LAUNCH(t.use_left, t.main, TWIN_COUNT, &input, &out, &count);
    twin_order(t.third, t.main);
    twin_order(t.side, t.main);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
