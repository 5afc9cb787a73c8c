// A conditional node's body is captured and has two branches. Buggy: the fork stands before the kernel whose result the
// forked branch reads.
#include "twins/twin.h"

static CUdeviceptr left, out;

static void prepare(void *user)
{
    CHECK(cuMemsetD8(left, 0, TWIN_BYTES));
}

static bool is_right(void *user)
{
    return twin_holds(out, 2, 2);
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    CUfunction set_condition = twin_conditional_kernel("set_condition");
    left = twin_buffer(TWIN_BYTES);
    out = twin_buffer(TWIN_BYTES);
    CUdeviceptr value = twin_buffer(4);
    CHECK(cuMemsetD32(value, 1, 1));
    int count = TWIN_COUNT, first = 1;

    CUgraph graph, body, same;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CUgraphConditionalHandle handle = twin_handle(t.main, 0, 0);
    LAUNCH(set_condition, t.main, 1, &value, &handle);
    body = twin_conditional(t.main, handle, CU_GRAPH_COND_TYPE_IF);
    CHECK(cuStreamBeginCaptureToGraph(t.side, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    if (t.buggy)
        twin_order(t.side, t.third);
    twin_hold(&t, t.side, TWIN_HOLD_LONG);
    LAUNCH(t.make_left, t.side, TWIN_COUNT, &left, &first, &count);
    if (!t.buggy)
        twin_order(t.side, t.third);
    LAUNCH(t.use_left, t.third, TWIN_COUNT, &left, &out, &count);
    twin_order(t.third, t.side);
    CHECK(cuStreamEndCapture(t.side, &same));
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
