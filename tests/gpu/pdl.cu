// Programmatic dependent launches: a consumer may begin while its producer still runs, and must execute
// griddepcontrol.wait before it reads what the producer writes. One consumer waits first; one reads its weights, which
// no producer writes, and then waits; of one a single thread waits for its block; in the buggy program a fourth does
// not wait.
#include "common.cuh"

enum { COUNT = 1 << 14, BLOCK = 256, REPLAYS = 50 };

__global__ void next_round(float *round)
{
    *round += 1.0f;
}

// Lets its consumer begin at once, and writes only later.
__global__ void produce(const float *round, float *data)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
    spin(20000);
    data[i] = *round;
}

__global__ void waits_first(const float *weights, const float *data, float *sums)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    asm volatile("griddepcontrol.wait;" ::: "memory");
    sums[i] = weights[i] + data[i];
}

__global__ void prefetches(const float *weights, const float *data, float *sums)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float weight = *(const volatile float *)&weights[i];
    asm volatile("griddepcontrol.wait;" ::: "memory");
    sums[i] = weight + data[i];
}

// Where in its code an access lies does not tell whether it comes before the wait.
__global__ void one_thread_waits(const float *weights, const float *data, float *sums)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float weight = *(const volatile float *)&weights[i];
    if (threadIdx.x == 0)
        asm volatile("griddepcontrol.wait;" ::: "memory");
    __syncthreads();
    sums[i] = weight + *(const volatile float *)&data[i];
}

__global__ void does_not_wait(const float *weights, const float *data, float *sums)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    sums[i] = weights[i] + *(const volatile float *)&data[i];
}

// A launch that may overlap the one before it in the stream.
template <class Kernel, class... Arguments>
static void launch_early(Kernel kernel, cudaStream_t stream, Arguments... arguments)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = COUNT / BLOCK;
    config.blockDim = BLOCK;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, kernel, arguments...)); // LAUNCH:early
}

int main(int argc, char **argv)
{
    bool buggy = is_buggy(argc, argv);
    float *round = make_buffer<float>(1), *weights = make_buffer<float>(COUNT);
    float *data[4], *sums[4];
    for (int i = 0; i < 4; i++) {
        data[i] = make_buffer<float>(COUNT);
        sums[i] = make_buffer<float>(COUNT);
    }
    cudaStream_t stream = make_stream();

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    next_round<<<1, 1, 0, stream>>>(round);
    launch_early(produce, stream, (const float *)round, data[0]);
    launch_early(waits_first, stream, (const float *)weights, (const float *)data[0], sums[0]);
    launch_early(produce, stream, (const float *)round, data[1]);
    launch_early(prefetches, stream, (const float *)weights, (const float *)data[1], sums[1]);
    launch_early(produce, stream, (const float *)round, data[2]);
    launch_early(one_thread_waits, stream, (const float *)weights, (const float *)data[2], sums[2]);
    if (buggy) {
        launch_early(produce, stream, (const float *)round, data[3]);                                 // LAUNCH:early
        launch_early(does_not_wait, stream, (const float *)weights, (const float *)data[3], sums[3]); // LAUNCH:early
    }
    cudaGraphExec_t exec = end_capture(stream);

    int wrong = 0;
    for (int replay = 0; replay < REPLAYS; replay++) {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        size_t other = 0;
        for (int i = 0; i < (buggy ? 4 : 3); i++)
            other += count_other(sums[i], COUNT, (float)(replay + 1));
        wrong += other != 0;
    }
    return report(wrong, REPLAYS);
}
