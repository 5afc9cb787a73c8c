// What the programs that the proofs are tested with share: the driver's calls checked, memory, one stream and captures
// of it. Included once, by the program itself.
#ifndef GV_TESTS_RECORD_PROGRAM_H
#define GV_TESTS_RECORD_PROGRAM_H

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

static CUcontext context;
static CUmodule module;
static CUstream stream; // waits for no other stream, the default ones included

static void fail(const char *what, int line, long code)
{
    fprintf(stderr, "line %d: %s: error %ld\n", line, what, code);
    exit(99);
}

#define CHECK(call)                         \
    do {                                    \
        CUresult result_ = (call);          \
        if (result_ != CUDA_SUCCESS)        \
            fail(#call, __LINE__, result_); \
    } while (0)

static CUfunction kernel(const char *name)
{
    CUfunction function;
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
}

// Sets and copies without a stream are enqueued in the default one, and those from pageable memory may still be under
// way on the device when the call returns: both are waited for, since `stream` does not.
static CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, bytes));
    CHECK(cuMemsetD8(memory, 0, bytes));
    CHECK(cuCtxSynchronize());
    return memory;
}

static void upload(CUdeviceptr to, const void *from, size_t bytes)
{
    CHECK(cuMemcpyHtoD(to, from, bytes));
    CHECK(cuCtxSynchronize());
}

// Ends the capture of `stream`.
static CUgraphExec end(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return exec;
}

static void open_device(const char *kernels)
{
    CUdevice device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoad(&module, kernels));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

#endif
