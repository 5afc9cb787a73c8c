// Three kernels in a chain; the last one reads, before its own grid-dependency wait, what the first one writes. That is
// right as long as the one in the middle lets it begin only after it has waited itself. Buggy: it does so before.
#include "twins/twin.h"

static CUdeviceptr data, own, out;

static void prepare(void *user)
{
    CHECK(cuMemsetD8(data, 0, TWIN_BYTES));
}

static bool is_right(void *user)
{
    return twin_holds(out, 1, 1);
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    data = twin_buffer(TWIN_BYTES);
    own = twin_buffer(TWIN_BYTES);
    out = twin_buffer(TWIN_BYTES);
    CUdeviceptr nothing = twin_buffer(TWIN_BYTES);
    int count = TWIN_COUNT, few = TWIN_BLOCK, first = 1;
    unsigned long long time = TWIN_HOLD_LONG;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(t.make_triggering, t.main, TWIN_BLOCK, &data, &first, &count, &time);
    if (t.buggy)
        LAUNCH_EARLY(t.trigger_and_wait, t.main, TWIN_BLOCK, &own, &few);
    else
        LAUNCH_EARLY(t.wait_and_trigger, t.main, TWIN_BLOCK, &own, &few);
    LAUNCH_EARLY(t.prefetch, t.main, TWIN_COUNT, &data, &nothing, &out, &count);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
