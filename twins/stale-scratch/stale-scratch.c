// One kernel writes a workspace and the next one reads it. Buggy: the first one writes half of it, and the rest is what
// somebody has left there.
#include "gravel.h"
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
    CUdeviceptr workspace = twin_buffer(TWIN_BYTES);
    out = twin_buffer(TWIN_BYTES);
    gravel_scratch("workspace", workspace, TWIN_BYTES);
    int count = TWIN_COUNT, written = t.buggy ? TWIN_COUNT / 2 : TWIN_COUNT, first = 1;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(t.make_left, t.main, TWIN_COUNT, &workspace, &first, &written);
    LAUNCH(t.use_left, t.main, TWIN_COUNT, &workspace, &out, &count);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, NULL, is_right, NULL);
}
