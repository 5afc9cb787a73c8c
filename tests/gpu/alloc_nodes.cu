// A graph that allocates and frees its scratch memory with nodes of its own (cudaMallocAsync in a capture). Nodes of
// that kind cannot be run one at a time, so such a graph is recognised, said to be incomplete, and launched as it is.
// In the buggy program two branches share the scratch memory; the clean one gives each its own.
#include "common.cuh"

enum { COUNT = 1 << 16, BLOCK = 256, REPLAYS = 50 };

__global__ void fill(float *buffer, float value)
{
    spin(1000);
    buffer[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void copy(const float *from, float *to)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    spin(1000);
    to[i] = from[i];
}

int main(int argc, char **argv)
{
    bool buggy = is_buggy(argc, argv);
    float *left = make_buffer<float>(COUNT), *right = make_buffer<float>(COUNT);
    cudaStream_t stream = make_stream(), side = make_stream();
    float *scratch[2];

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 2; i++)
        CHECK(cudaMallocAsync(&scratch[i], COUNT * sizeof(float), stream)); // LAUNCH:alloc
    wait_stream(side, stream);
    fill<<<COUNT / BLOCK, BLOCK, 0, side>>>(scratch[0], 1.0f);
    copy<<<COUNT / BLOCK, BLOCK, 0, side>>>(scratch[0], left);
    float *other = scratch[buggy ? 0 : 1];
    fill<<<COUNT / BLOCK, BLOCK, 0, stream>>>(other, 5.0f);
    copy<<<COUNT / BLOCK, BLOCK, 0, stream>>>(other, right);
    wait_stream(stream, side);
    for (int i = 0; i < 2; i++)
        CHECK(cudaFreeAsync(scratch[i], stream));
    cudaGraphExec_t exec = end_capture(stream);

    int wrong = 0;
    for (int replay = 0; replay < REPLAYS; replay++) {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        wrong += count_other(left, COUNT, 1.0f) + count_other(right, COUNT, 5.0f) != 0;
    }
    return report(wrong, REPLAYS);
}
