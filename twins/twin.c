// What the twins share.
#include "twins/twin.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void twin_check(CUresult result, const char *call, const char *file, int line)
{
    if (result == CUDA_SUCCESS)
        return;
    const char *name = NULL;
    cuGetErrorName(result, &name);
    fprintf(stderr, "%s:%d: %s: %s (%d)\n", file, line, call, name ? name : "unknown error", (int)result);
    exit(1);
}

// Loads STEM.fatbin or STEM.so.
static CUmodule load_kernels(const char *stem)
{
    char device[128], path[PATH_MAX];
    CHECK(cuDeviceGetName(device, sizeof device, 0));
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0) {
        perror("/proc/self/exe");
        exit(1);
    }
    path[length] = '\0';
    char *name = strrchr(path, '/') + 1;
    const char *suffix = strcmp(device, "gravel software driver") ? "fatbin" : "so";
    snprintf(name, sizeof path - (size_t)(name - path), "%s.%s", stem, suffix);
    CUmodule module;
    CUresult result = cuModuleLoad(&module, path);
    if (result != CUDA_SUCCESS)
        fprintf(stderr, "the kernels could not be loaded from %s\n", path);
    CHECK(result);
    return module;
}

void twin_open(twin *t, int argc, char **argv)
{
    bool buggy = argc > 1 && !strcmp(argv[1], "buggy"), clean = argc > 1 && !strcmp(argv[1], "clean");
    int launches = argc > 2 ? atoi(argv[2]) : 3;
    if ((!buggy && !clean) || argc > 3 || launches < 1) {
        fprintf(stderr, "usage: %s buggy|clean [LAUNCHES]\n", argv[0]);
        exit(2);
    }
    *t = (twin){.buggy = buggy, .launches = launches};
    CHECK(cuInit(0));
    CUdevice device;
    CHECK(cuDeviceGet(&device, 0));
    CUcontext context;
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CUmodule module = load_kernels("kernels");
    const struct {
        CUfunction *function;
        const char *name;
    } functions[] = {
        {&t->make_left, "make_left"},
        {&t->make_right, "make_right"},
        {&t->make_next, "make_next"},
        {&t->use_left, "use_left"},
        {&t->use_right, "use_right"},
        {&t->use_next, "use_next"},
        {&t->hold, "hold"},
        {&t->update_in_place, "update_in_place"},
        {&t->fill_low, "fill_low"},
        {&t->fill_high, "fill_high"},
        {&t->count_left, "count_left"},
        {&t->count_right, "count_right"},
        {&t->store_right, "store_right"},
        {&t->mix, "mix"},
        {&t->store_rows, "store_rows"},
        {&t->count_tokens, "count_tokens"},
        {&t->share_rows, "share_rows"},
        {&t->find_largest, "find_largest"},
        {&t->scale_rows, "scale_rows"},
        {&t->take_places, "take_places"},
        {&t->make_triggering, "make_triggering"},
        {&t->use_after_wait, "use_after_wait"},
        {&t->use_without_wait, "use_without_wait"},
        {&t->prefetch, "prefetch"},
        {&t->wait_and_trigger, "wait_and_trigger"},
        {&t->trigger_and_wait, "trigger_and_wait"},
        {&t->no_wait, "no_wait"},
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        CHECK(cuModuleGetFunction(functions[i].function, module, functions[i].name));
    CHECK(cuStreamCreate(&t->main, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&t->side, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&t->third, CU_STREAM_NON_BLOCKING));
}

CUdeviceptr twin_buffer(size_t bytes)
{
    CUdeviceptr buffer;
    CHECK(cuMemAlloc(&buffer, bytes));
    CHECK(cuMemsetD8(buffer, 0, bytes));
    CHECK(cuCtxSynchronize());
    return buffer;
}

CUevent twin_event(void)
{
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

void twin_order(CUstream before, CUstream after)
{
    CUevent event = twin_event();
    CHECK(cuEventRecord(event, before));
    CHECK(cuStreamWaitEvent(after, event, 0));
}

void twin_hold(twin *t, CUstream stream, unsigned long long nanoseconds)
{
    LAUNCH(t->hold, stream, 1, &nanoseconds);
}

CUresult twin_launch_early(CUfunction function, CUstream stream, int count, CUevent event, void **parameters)
{
    CUlaunchAttribute attribute;
    memset(&attribute, 0, sizeof attribute);
    if (event) {
        attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
        attribute.value.programmaticEvent.event = event;
    } else {
        attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute.value.programmaticStreamSerializationAllowed = 1;
    }
    CUlaunchConfig config = {.gridDimX = ((unsigned)count + 127) / 128,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 128,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &attribute,
                             .numAttrs = 1};
    return cuLaunchKernelEx(&config, function, parameters, NULL);
}

CUfunction twin_conditional_kernel(const char *name)
{
    static CUmodule module;
    CUfunction function;
    if (!module)
        module = load_kernels("conditional");
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
}

// The graph that a stream captures, and the one node that the next one comes after; NULL: there is none yet.
static CUgraph capturing(CUstream stream, CUgraphNode *last)
{
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph;
    const CUgraphNode *nodes;
    const CUgraphEdgeData *edges;
    size_t count;
    CHECK(cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count));
    *last = count ? nodes[0] : NULL;
    return graph;
}

CUgraphConditionalHandle twin_handle(CUstream stream, unsigned initial, unsigned flags)
{
    CUgraphConditionalHandle handle;
    CUgraphNode last;
    CUcontext context;
    CHECK(cuCtxGetCurrent(&context));
    CHECK(cuGraphConditionalHandleCreate(&handle, capturing(stream, &last), context, initial, flags));
    return handle;
}

CUgraph twin_conditional(CUstream stream, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type)
{
    CUgraphNode last, node;
    CUgraph graph = capturing(stream, &last);
    CUgraphNodeParams params;
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = 1;
    CHECK(cuCtxGetCurrent(&params.conditional.ctx));
    CHECK(cuGraphAddNode(&node, graph, last ? &last : NULL, NULL, last ? 1 : 0, &params));
    CHECK(cuStreamUpdateCaptureDependencies(stream, &node, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    return params.conditional.phGraph_out[0];
}

int twin_run(twin *t, CUgraph graph, void (*prepare)(void *user), bool (*is_right)(void *user), void *user)
{
    CUgraphExec exec;
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    int wrong = 0;
    for (int i = 0; i < t->launches; i++) {
        if (prepare)
            prepare(user);
        CHECK(cuCtxSynchronize()); // what was set up in the default stream, which t->main does not wait for
        CHECK(cuGraphLaunch(exec, t->main));
        CHECK(cuStreamSynchronize(t->main));
        wrong += !is_right(user);
    }
    printf("wrong %d of %d\n", wrong, t->launches);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    return 0;
}

bool twin_holds(CUdeviceptr buffer, int first, int step)
{
    int values[TWIN_COUNT];
    CHECK(cuMemcpyDtoH(values, buffer, sizeof values));
    for (int i = 0; i < TWIN_COUNT; i++)
        if (values[i] != first + i * step)
            return false;
    return true;
}
