// A side stream clears a buffer that the main stream then uses. Buggy: the main stream does not wait for the clearing.
#include "twins/twin.h"

static CUdeviceptr out;

static bool is_right(void *user)
{
    return twin_holds(out, 0, 0);
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    CUdeviceptr buffer = twin_buffer(TWIN_BYTES);
    out = twin_buffer(TWIN_BYTES);
    int count = TWIN_COUNT, old = 7;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(t.make_left, t.main, TWIN_COUNT, &buffer, &old, &count);
    twin_order(t.main, t.side);
    twin_hold(&t, t.side, TWIN_HOLD_LONG);
    CHECK(cuMemsetD32Async(buffer, 0, TWIN_COUNT, t.side));
    if (!t.buggy)
        twin_order(t.side, t.main);
    LAUNCH(t.use_left, t.main, TWIN_COUNT, &buffer, &out, &count);
    twin_order(t.side, t.main);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, NULL, is_right, NULL);
}
