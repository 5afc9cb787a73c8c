// A kernel on a side stream waits for an event that the kernel on the main stream records as soon as its dependents may
// begin, and reads what that one writes. Buggy: without a grid-dependency wait.
#include "twins/twin.h"

static CUdeviceptr data, out;

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
    out = twin_buffer(TWIN_BYTES);
    int count = TWIN_COUNT, first = 1;
    unsigned long long time = TWIN_HOLD_SHORT;
    CUevent begun = twin_event();

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH_WITH_EVENT(t.make_triggering, t.main, TWIN_BLOCK, begun, &data, &first, &count, &time);
    CHECK(cuStreamWaitEvent(t.side, begun, 0));
    if (t.buggy)
        LAUNCH(t.use_without_wait, t.side, TWIN_COUNT, &data, &out, &count);
    else
        LAUNCH(t.use_after_wait, t.side, TWIN_COUNT, &data, &out, &count);
    twin_order(t.side, t.main);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
