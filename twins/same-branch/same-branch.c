// A temporary's buffer is used again. Clean: further down the same branch, where its order is given. Buggy: in the
// other branch.
#include "twins/twin.h"

static CUdeviceptr out_left, out_right;

static bool is_right(void *user)
{
    return twin_holds(out_left, 2, 2) && twin_holds(out_right, 200, 2);
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    CUdeviceptr temporary = twin_buffer(TWIN_BYTES), other = twin_buffer(TWIN_BYTES);
    out_left = twin_buffer(TWIN_BYTES);
    out_right = twin_buffer(TWIN_BYTES);
    int count = TWIN_COUNT, left = 1, right = 100;
    CUstream again = t.buggy ? t.main : t.side;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    twin_order(t.main, t.side);
    LAUNCH(t.make_next, t.main, TWIN_COUNT, &other, &left, &count);
    LAUNCH(t.make_left, t.side, TWIN_COUNT, &temporary, &left, &count);
    twin_hold(&t, t.side, TWIN_HOLD_LONG);
    LAUNCH(t.use_left, t.side, TWIN_COUNT, &temporary, &out_left, &count);
    twin_hold(&t, t.main, TWIN_HOLD_SHORT);
    LAUNCH(t.make_right, again, TWIN_COUNT, &temporary, &right, &count);
    LAUNCH(t.use_right, again, TWIN_COUNT, &temporary, &out_right, &count);
    twin_order(t.side, t.main);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, NULL, is_right, NULL);
}
