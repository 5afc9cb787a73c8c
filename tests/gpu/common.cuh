// What the GPU test programs share: error checks, their one argument, and the line they end with.
#ifndef GRAVEL_TESTS_GPU_COMMON_CUH
#define GRAVEL_TESTS_GPU_COMMON_CUH

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

// Every CUDA call is checked: a test that goes on after a failed call says nothing.
#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        cudaError_t check_result = (call);                                                                   \
        if (check_result != cudaSuccess) {                                                                   \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(check_result)); \
            exit(2);                                                                                         \
        }                                                                                                    \
    } while (0)

// Whether the program is to be the wrong one. Its argument is `buggy` or `clean`.
static inline bool is_buggy(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "buggy") == 0)
        return true;
    if (argc >= 2 && strcmp(argv[1], "clean") == 0)
        return false;
    fprintf(stderr, "usage: %s buggy|clean\n", argv[0]);
    exit(2);
}

static inline int report(int wrong, int replays)
{
    printf("wrong %d of %d replays\n", wrong, replays);
    return 0;
}

static inline cudaStream_t make_stream()
{
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static inline cudaEvent_t make_event()
{
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

// Lets `later` wait for all that `earlier` holds now.
static inline void wait_stream(cudaStream_t later, cudaStream_t earlier)
{
    cudaEvent_t event = make_event();
    CHECK(cudaEventRecord(event, earlier));
    CHECK(cudaStreamWaitEvent(later, event, 0));
    CHECK(cudaEventDestroy(event));
}

static inline cudaGraphExec_t end_capture(cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

template <class T> static inline T *make_buffer(size_t count)
{
    T *buffer;
    CHECK(cudaMalloc(&buffer, count * sizeof(T)));
    CHECK(cudaMemset(buffer, 0, count * sizeof(T)));
    return buffer;
}

// How many of the `count` elements of a device buffer differ from `expected`.
template <class T> static inline size_t count_other(const T *buffer, size_t count, T expected)
{
    T *host = (T *)malloc(count * sizeof(T));
    CHECK(cudaMemcpy(host, buffer, count * sizeof(T), cudaMemcpyDeviceToHost));
    size_t other = 0;
    for (size_t i = 0; i < count; i++)
        other += host[i] != expected;
    free(host);
    return other;
}

// Keeps a thread busy for about this many clock cycles: windows in which branches overlap.
static __device__ inline void spin(long long cycles)
{
    long long start = clock64();
    while (clock64() - start < cycles) {
    }
}

#endif
