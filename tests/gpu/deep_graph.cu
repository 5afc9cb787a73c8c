// A forgotten join in a deep graph. A side chain works on two blocks in turn, as an allocator with a free list would
// hand them out; the main chain later takes the same two blocks for itself. The clean program joins the chains before
// it does. 560 kernel nodes; 70 racing pairs (each of the two kernels that take a block, with the 35 side kernels that
// use that block), which one missing edge explains.
#include "common.cuh"

enum { COUNT = 4096, BLOCK = 256, REPLAYS = 50, SIDE_STEPS = 36, MAIN_STEPS = 560 - SIDE_STEPS - 2, MAIN_BEFORE = 3 };

__global__ void side_step(const float *from, float *to)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    spin(2000);
    to[i] = from[i] + 1.0f;
}

__global__ void main_step(const float *from, float *to)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = from[i] + 1.0f;
}

__global__ void take_block(float *block, float value)
{
    block[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

int main(int argc, char **argv)
{
    bool buggy = is_buggy(argc, argv);
    float *side_blocks[2] = {make_buffer<float>(COUNT), make_buffer<float>(COUNT)};
    float *main_blocks[2] = {make_buffer<float>(COUNT), make_buffer<float>(COUNT)};
    float *zero = make_buffer<float>(COUNT), *result = make_buffer<float>(COUNT);
    cudaStream_t stream = make_stream(), side = make_stream();

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    wait_stream(side, stream);
    for (int i = 0; i < SIDE_STEPS; i++) {
        const float *from = i ? side_blocks[(i + 1) % 2] : zero;
        float *to = i == SIDE_STEPS - 1 ? result : side_blocks[i % 2];
        side_step<<<COUNT / BLOCK, BLOCK, 0, side>>>(from, to); // LAUNCH:side
    }
    int taken = 0;
    for (int i = 0; i < MAIN_STEPS; i++) {
        if (i == MAIN_BEFORE && !buggy)
            wait_stream(stream, side);
        for (; i >= MAIN_BEFORE && taken < 2; taken++)
            take_block<<<COUNT / BLOCK, BLOCK, 0, stream>>>(side_blocks[taken], -1000.0f); // LAUNCH:take
        const float *from = i ? main_blocks[(i + 1) % 2] : zero;
        main_step<<<COUNT / BLOCK, BLOCK, 0, stream>>>(from, main_blocks[i % 2]);
    }
    if (buggy)
        wait_stream(stream, side);
    cudaGraphExec_t exec = end_capture(stream);

    int wrong = 0;
    for (int replay = 0; replay < REPLAYS; replay++) {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        wrong += count_other(result, COUNT, (float)SIDE_STEPS) != 0;
    }
    return report(wrong, REPLAYS);
}
