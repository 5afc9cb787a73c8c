// Two branches copy two tiles side by side into one image. Buggy: the second tile starts 16 bytes too far left, so
// that each row of it overlaps the first one's.
#include "twins/twin.h"

enum { PITCH = 256, WIDTH = 96, ROWS = 16, OVERLAP = 16 };
static CUdeviceptr image;

static bool is_right(void *user)
{
    unsigned char bytes[PITCH * ROWS];
    CHECK(cuMemcpyDtoH(bytes, image, sizeof bytes));
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < WIDTH; column++)
            if (bytes[row * PITCH + column] != 1)
                return false;
    return true;
}

static CUDA_MEMCPY2D tile(CUdeviceptr from, size_t column)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .srcPitch = WIDTH,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = image,
                           .dstXInBytes = column,
                           .dstPitch = PITCH,
                           .WidthInBytes = WIDTH,
                           .Height = ROWS};
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    image = twin_buffer(PITCH * ROWS);
    CUdeviceptr left = twin_buffer(WIDTH * ROWS), right = twin_buffer(WIDTH * ROWS);
    CHECK(cuMemsetD8(left, 1, WIDTH * ROWS));
    CHECK(cuMemsetD8(right, 2, WIDTH * ROWS));
    CHECK(cuCtxSynchronize());
    CUDA_MEMCPY2D first = tile(left, 0), second = tile(right, t.buggy ? WIDTH - OVERLAP : WIDTH);

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    twin_order(t.main, t.side);
    CHECK(cuMemcpy2DAsync(&first, t.main));
    twin_hold(&t, t.side, TWIN_HOLD_SHORT);
    CHECK(cuMemcpy2DAsync(&second, t.side));
    twin_order(t.side, t.main);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, NULL, is_right, NULL);
}
