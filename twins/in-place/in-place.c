// One branch reads an input that another one updates in place. Buggy: the update does not wait for the reader.
#include "twins/twin.h"

static CUdeviceptr out;

static bool is_right(void *user)
{
    return twin_holds(out, 2, 2);
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    CUdeviceptr input = twin_buffer(TWIN_BYTES);
    out = twin_buffer(TWIN_BYTES);
    int count = TWIN_COUNT, first = 1;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(t.make_left, t.main, TWIN_COUNT, &input, &first, &count);
    twin_order(t.main, t.side);
    twin_hold(&t, t.side, TWIN_HOLD_LONG);
    LAUNCH(t.use_left, t.side, TWIN_COUNT, &input, &out, &count);
    if (!t.buggy)
        twin_order(t.side, t.main);
    LAUNCH(t.update_in_place, t.main, TWIN_COUNT, &input, &count);
    twin_order(t.side, t.main);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, NULL, is_right, NULL);
}
