// A side stream is to work on what the main stream made. Buggy: the fork's event is recorded before that is launched.
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
    CUevent fork = twin_event();

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(t.make_next, t.main, TWIN_COUNT, &other, &first, &count);
    if (t.buggy)
        CHECK(cuEventRecord(fork, t.main));
    twin_hold(&t, t.main, TWIN_HOLD_LONG);
    LAUNCH(t.make_left, t.main, TWIN_COUNT, &input, &first, &count);
    if (!t.buggy)
        CHECK(cuEventRecord(fork, t.main));
    CHECK(cuStreamWaitEvent(t.side, fork, 0));
    LAUNCH(t.use_left, t.side, TWIN_COUNT, &input, &out, &count);
    twin_order(t.side, t.main);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
