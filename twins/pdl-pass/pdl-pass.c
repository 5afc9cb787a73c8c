// A kernel in the middle has nothing to do with the kernel in front of it; the one behind it, on an ordinary edge,
// reads what that one writes. Only if the middle waits does its end come after the end of what is in front. Buggy: it
// does not.
#include "twins/twin.h"

static CUdeviceptr data, own, out;

static void prepare(void *user)
{
    CHECK(cuMemsetD8(data, 0, TWIN_BYTES));
}

static bool is_right(void *user)
{
    return twin_holds(out, 2, 2);
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    data = twin_buffer(TWIN_BYTES);
    own = twin_buffer(TWIN_BYTES);
    out = twin_buffer(TWIN_BYTES);
    int count = TWIN_COUNT, first = 1;
    unsigned long long time = TWIN_HOLD_SHORT;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(t.make_triggering, t.main, TWIN_BLOCK, &data, &first, &count, &time);
    if (t.buggy)
        LAUNCH_EARLY(t.no_wait, t.main, TWIN_COUNT, &own, &count);
    else
        LAUNCH_EARLY(t.wait_and_trigger, t.main, TWIN_COUNT, &own, &count);
    LAUNCH(t.use_right, t.main, TWIN_COUNT, &data, &out, &count);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
