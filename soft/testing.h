// For the software driver's tests: a context with the test kernels loaded. The tests of the API's semantics
// (test_capture, test_graph, test_exec, test_stream) hold for a real driver as well; GV_TEST_KERNELS in the environment
// names the kernels' file there.
#ifndef GRAVEL_SOFT_TESTING_H
#define GRAVEL_SOFT_TESTING_H

#include <cuda.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OK(call)           assert_int_equal((call), CUDA_SUCCESS)
#define FAILS(error, call) assert_int_equal((call), (error))

// Launches one block of `threads` threads.
#define LAUNCH(function, stream, threads, ...) \
    OK(cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream, (void *[]){__VA_ARGS__}, NULL))

enum { COUNT = 64, BYTES = COUNT * 4 };

typedef struct fixture {
    CUcontext context;
    CUmodule module;
    CUstream a, b, c; // non-blocking
} fixture;

static fixture the;

static inline const char *test_kernels(void)
{
    const char *path = getenv("GV_TEST_KERNELS");
    return path ? path : GV_TEST_KERNELS_PATH;
}

static inline CUfunction kernel(const char *name)
{
    CUfunction function;
    OK(cuModuleGetFunction(&function, the.module, name));
    return function;
}

static inline int open_device(void **state)
{
    CUdevice device;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&the.context, device));
    OK(cuCtxSetCurrent(the.context));
    OK(cuModuleLoad(&the.module, test_kernels()));
    OK(cuStreamCreate(&the.a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&the.b, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&the.c, CU_STREAM_NON_BLOCKING));
    return 0;
}

static inline int close_device(void **state)
{
    OK(cuDevicePrimaryCtxRelease(0));
    return 0;
}

// A device buffer of `size` zeroes.
static inline CUdeviceptr buffer(size_t size)
{
    CUdeviceptr address;
    OK(cuMemAlloc(&address, size));
    OK(cuMemsetD8(address, 0, size));
    OK(cuCtxSynchronize());
    return address;
}

static inline CUevent event(void)
{
    CUevent made;
    OK(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
    return made;
}

// Holds a stream at this point until gate_open: what is put behind it is certain not to have run before. How long a
// kernel takes says nothing of that, as the host may be busy elsewhere for longer.
typedef struct gate {
    uint32_t *word;
} gate;

static inline gate gate_close(CUstream stream)
{
    gate made;
    CUdeviceptr address;
    OK(cuMemHostAlloc((void **)&made.word, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    __atomic_store_n(made.word, 0, __ATOMIC_RELEASE);
    OK(cuMemHostGetDevicePointer(&address, made.word, 0));
    OK(cuStreamWaitValue32(stream, address, 1, CU_STREAM_WAIT_VALUE_EQ));
    return made;
}

// Lets the stream go and waits for it.
static inline void gate_open(gate closed, CUstream stream)
{
    __atomic_store_n(closed.word, 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(stream));
    OK(cuMemFreeHost(closed.word));
}

static inline int read_int(CUdeviceptr address)
{
    int value;
    OK(cuMemcpyDtoH(&value, address, sizeof value));
    return value;
}

// The nodes of a graph; returns how many.
static inline size_t nodes_of(CUgraph graph, CUgraphNode *nodes, size_t capacity)
{
    size_t count = 0;
    OK(cuGraphGetNodes(graph, NULL, &count));
    assert_true(count <= capacity);
    if (count)
        OK(cuGraphGetNodes(graph, nodes, &count));
    return count;
}

static inline bool has_edge(CUgraph graph, CUgraphNode from, CUgraphNode to)
{
    CUgraphNode froms[256], tos[256];
    CUgraphEdgeData data[256];
    size_t count = 256;
    OK(cuGraphGetEdges(graph, froms, tos, data, &count));
    for (size_t i = 0; i < count; i++)
        if (froms[i] == from && tos[i] == to)
            return true;
    return false;
}

static inline size_t edge_count(CUgraph graph)
{
    size_t count = 0;
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    return count;
}

#endif
