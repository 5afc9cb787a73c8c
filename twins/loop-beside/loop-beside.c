// A loop in a conditional node fills a buffer, and a kernel outside of it reads the buffer. Buggy: the kernel's stream
// does not wait for the loop.
#include "twins/twin.h"

enum { ITERATIONS = 3 };

static CUdeviceptr left, out, remaining;

static void prepare(void *user)
{
    CHECK(cuMemsetD8(left, 0, TWIN_BYTES));
    CHECK(cuMemsetD32(remaining, ITERATIONS, 1));
}

static bool is_right(void *user)
{
    return twin_holds(out, 2, 2);
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    CUfunction count_down = twin_conditional_kernel("count_down");
    left = twin_buffer(TWIN_BYTES);
    out = twin_buffer(TWIN_BYTES);
    remaining = twin_buffer(4);
    int count = TWIN_COUNT, first = 1;

    CUgraph graph, body, same;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CUgraphConditionalHandle handle = twin_handle(t.main, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    if (t.buggy)
        twin_order(t.main, t.third);
    body = twin_conditional(t.main, handle, CU_GRAPH_COND_TYPE_WHILE);
    CHECK(cuStreamBeginCaptureToGraph(t.side, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    twin_hold(&t, t.side, TWIN_HOLD_SHORT);
    LAUNCH(t.make_left, t.side, TWIN_COUNT, &left, &first, &count);
    CHECK(cuLaunchKernel(count_down, 1, 1, 1, 1, 1, 1, 0, t.side, (void *[]){&remaining, &handle}, NULL));
    CHECK(cuStreamEndCapture(t.side, &same));
    if (!t.buggy)
        twin_order(t.main, t.third);
    LAUNCH(t.use_left, t.third, TWIN_COUNT, &left, &out, &count);
    twin_order(t.third, t.main);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, NULL);
}
