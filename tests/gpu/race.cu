// Two captured branches use one scratch buffer and no edge orders them: each may read what the other wrote. In the
// clean program each has a buffer of its own.
#include "common.cuh"

enum { COUNT = 1 << 16, BLOCK = 256, REPLAYS = 200, CYCLES = 1000 };

// Four kernels with names of their own, so that a report can be checked by name.
static __device__ void fill(float *buffer, float value)
{
    spin(CYCLES);
    buffer[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

static __device__ void add_one(const float *buffer, float *sums)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    spin(CYCLES);
    sums[i] = buffer[i] + 1.0f;
}

__global__ void fill_left(float *buffer)
{
    fill(buffer, 1.0f);
}

__global__ void sum_left(const float *buffer, float *sums)
{
    add_one(buffer, sums);
}

__global__ void fill_right(float *buffer)
{
    fill(buffer, 5.0f);
}

__global__ void sum_right(const float *buffer, float *sums)
{
    add_one(buffer, sums);
}

int main(int argc, char **argv)
{
    bool buggy = is_buggy(argc, argv);
    float *scratch = make_buffer<float>(COUNT);
    float *right_scratch = buggy ? scratch : make_buffer<float>(COUNT);
    float *left = make_buffer<float>(COUNT), *right = make_buffer<float>(COUNT);
    cudaStream_t stream = make_stream(), side = make_stream();

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    wait_stream(side, stream);
    fill_left<<<COUNT / BLOCK, BLOCK, 0, side>>>(scratch);                // LAUNCH:fill_left
    sum_left<<<COUNT / BLOCK, BLOCK, 0, side>>>(scratch, left);           // LAUNCH:sum_left
    fill_right<<<COUNT / BLOCK, BLOCK, 0, stream>>>(right_scratch);       // LAUNCH:fill_right
    sum_right<<<COUNT / BLOCK, BLOCK, 0, stream>>>(right_scratch, right); // LAUNCH:sum_right
    wait_stream(stream, side);
    cudaGraphExec_t exec = end_capture(stream);

    int wrong = 0;
    for (int replay = 0; replay < REPLAYS; replay++) {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        wrong += count_other(left, COUNT, 2.0f) + count_other(right, COUNT, 6.0f) != 0;
    }
    return report(wrong, REPLAYS);
}
