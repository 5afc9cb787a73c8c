// One branch of the graph waits, inside a kernel, for a flag that a kernel of another branch sets. It works when the
// branches run side by side; run one node at a time, the waiting kernel makes no progress. The wait is bounded, so that
// the program ends: the kernel gives up and says so. In the clean program an edge orders the setter first.
#include "common.cuh"

enum { REPLAYS = 20 };

__global__ void wait_for_flag(int *flag, int *seen, unsigned long long limit_ns)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        if (atomicAdd(flag, 0) != 0) {
            *seen = 1;
            return;
        }
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - start < limit_ns);
    *seen = -1;
}

__global__ void set_flag(int *flag)
{
    atomicExch(flag, 1);
}

int main(int argc, char **argv)
{
    bool buggy = is_buggy(argc, argv);
    unsigned long long seconds = argc > 2 ? strtoull(argv[2], nullptr, 10) : 20;
    int *flag = make_buffer<int>(1), *seen = make_buffer<int>(1);
    cudaStream_t stream = make_stream(), side = make_stream();

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemsetAsync(flag, 0, sizeof *flag, stream));
    wait_stream(side, stream);
    if (!buggy) {
        set_flag<<<1, 1, 0, stream>>>(flag);
        wait_stream(side, stream);
    }
    wait_for_flag<<<1, 1, 0, side>>>(flag, seen, seconds * 1000000000ull); // LAUNCH:wait
    if (buggy)
        set_flag<<<1, 1, 0, stream>>>(flag);
    wait_stream(stream, side);
    cudaGraphExec_t exec = end_capture(stream);

    int wrong = 0;
    for (int replay = 0; replay < REPLAYS; replay++) {
        CHECK(cudaMemset(seen, 0, sizeof *seen));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        wrong += count_other(seen, 1, 1) != 0;
    }
    return report(wrong, REPLAYS);
}
