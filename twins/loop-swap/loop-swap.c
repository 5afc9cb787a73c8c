// A loop writes one of two buffers in each iteration, by turns, and beside that adds up one of them. Clean: the one
// that the iteration before has written. Buggy: the one that is being written.
#include "twins/twin.h"

enum { ITERATIONS = 4 };

static CUdeviceptr even, odd, sums, remaining;

static void prepare(void *user)
{
    CHECK(cuMemsetD8(even, 0, TWIN_BYTES));
    CHECK(cuMemsetD8(odd, 0, TWIN_BYTES));
    CHECK(cuMemsetD8(sums, 0, TWIN_BYTES));
    CHECK(cuMemsetD32(remaining, ITERATIONS, 1));
}

static bool is_right(void *user)
{
    const twin *t = user;
    return twin_holds(sums, t->buggy ? 4 + 3 + 2 + 1 : 4 + 3 + 2, 0);
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    CUfunction count_down = twin_conditional_kernel("count_down"), write_turn = twin_conditional_kernel("write_turn"),
               add_turn = twin_conditional_kernel("add_turn");
    even = twin_buffer(TWIN_BYTES);
    odd = twin_buffer(TWIN_BYTES);
    sums = twin_buffer(TWIN_BYTES);
    remaining = twin_buffer(4);
    int count = TWIN_COUNT, ahead = t.buggy ? 0 : 1;

    CUgraph graph, body, same;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CUgraphConditionalHandle handle = twin_handle(t.main, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    body = twin_conditional(t.main, handle, CU_GRAPH_COND_TYPE_WHILE);
    CHECK(cuStreamBeginCaptureToGraph(t.side, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    twin_order(t.side, t.third);
    twin_hold(&t, t.side, TWIN_HOLD_SHORT);
    LAUNCH(write_turn, t.side, TWIN_COUNT, &even, &odd, &remaining, &count);
    LAUNCH(add_turn, t.third, TWIN_COUNT, &even, &odd, &remaining, &ahead, &sums, &count);
    twin_order(t.third, t.side);
    CHECK(cuLaunchKernel(count_down, 1, 1, 1, 1, 1, 1, 0, t.side, (void *[]){&remaining, &handle}, NULL));
    CHECK(cuStreamEndCapture(t.side, &same));
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, prepare, is_right, &t);
}
