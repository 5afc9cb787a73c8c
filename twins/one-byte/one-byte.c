// Two branches fill the two halves of a buffer. Buggy: the first half is one byte too long.
#include "twins/twin.h"

enum { HALF = 2048 };
static CUdeviceptr buffer;

static bool is_right(void *user)
{
    unsigned char bytes[2 * HALF];
    CHECK(cuMemcpyDtoH(bytes, buffer, sizeof bytes));
    for (int i = 0; i < 2 * HALF; i++)
        if (bytes[i] != (i < HALF ? 1 : 2))
            return false;
    return true;
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    buffer = twin_buffer(2 * HALF);
    CUdeviceptr high = buffer + HALF;
    int low_count = t.buggy ? HALF + 1 : HALF, high_count = HALF, one = 1, two = 2;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    twin_order(t.main, t.side);
    twin_hold(&t, t.side, TWIN_HOLD_LONG);
    LAUNCH(t.fill_low, t.side, low_count, &buffer, &one, &low_count);
    LAUNCH(t.fill_high, t.main, high_count, &high, &two, &high_count);
    twin_order(t.side, t.main);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, NULL, is_right, NULL);
}
