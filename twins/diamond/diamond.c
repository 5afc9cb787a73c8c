// Two diamonds one after the other: fork, join, fork, join. Buggy: the join in the middle is left out.
#include "twins/twin.h"

static CUdeviceptr left, right, mixed, out_left, out_right;

static void prepare(void *user)
{
    CHECK(cuMemsetD8(right, 0, TWIN_BYTES));
    CHECK(cuCtxSynchronize());
}

static bool is_right(void *user)
{
    return twin_holds(mixed, 101, 2) && twin_holds(out_left, 202, 4) && twin_holds(out_right, 10, 1);
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    left = twin_buffer(TWIN_BYTES);
    right = twin_buffer(TWIN_BYTES);
    mixed = twin_buffer(TWIN_BYTES);
    out_left = twin_buffer(TWIN_BYTES);
    out_right = right; // the second diamond writes over the first one's input, which the fork orders
    int count = TWIN_COUNT, first = 1, second = 100, third = 10;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    twin_order(t.main, t.side);
    LAUNCH(t.make_left, t.main, TWIN_COUNT, &left, &first, &count);
    twin_hold(&t, t.side, TWIN_HOLD_LONG);
    LAUNCH(t.make_right, t.side, TWIN_COUNT, &right, &second, &count);
    if (!t.buggy)
        twin_order(t.side, t.main);
    LAUNCH(t.mix, t.main, TWIN_COUNT, &left, &right, &mixed, &count);
    twin_order(t.main, t.side);
    LAUNCH(t.use_next, t.main, TWIN_COUNT, &mixed, &out_left, &count);
    LAUNCH(t.make_next, t.side, TWIN_COUNT, &out_right, &third, &count);
    twin_order(t.side, t.main);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
