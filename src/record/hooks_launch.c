// Hooks of kernel launches.
#include "record/arm.h"
#include "record/eager.h"
#include "record/graph.h"
#include "record/hook.h"
#include "record/ids.h"
#include "record/recorder.h"

// What follows a launch the driver accepted: a captured one is a node and gets its place, any other an operation.
static void launched(CUfunction function, CUstream stream, bool per_thread)
{
    if (gv_captures_active() && gv_capture_note(stream, per_thread))
        return;
    gv_operation_record operation = {
        .kind = GV_OP_KERNEL, .stream = gv_stream_id(stream, per_thread), .object = gv_function_id(function)};
    gv_operation(&operation);
}

// Makes the launch by `launch(call)`, between gv_enter and gv_leave.
static CUresult launch_kernel(CUfunction function, CUstream stream, bool per_thread, CUresult (*launch)(void *call),
                              void *call)
{
    CUresult result;
    if (gv_eager_is_on() && gv_eager_launch(function, stream, per_thread, launch, call, &result))
        return result;
    gv_gate_enter();
    result = launch(call);
    gv_gate_leave();
    if (result == CUDA_SUCCESS)
        launched(function, stream, per_thread);
    return result;
}

// ---- The arguments of each way to launch, and the call they make ----

typedef struct plain_call {
    CUresult (*real)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                     void **, void **);
    CUfunction function;
    unsigned grid[3], block[3], shared;
    CUstream stream;
    void **parameters, **extra;
} plain_call;

static CUresult launch_plain(void *call)
{
    const plain_call *c = call;
    return c->real(c->function, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared,
                   c->stream, c->parameters, c->extra);
}

typedef struct configured_call {
    CUresult (*real)(const CUlaunchConfig *, CUfunction, void **, void **);
    const CUlaunchConfig *config;
    CUfunction function;
    void **parameters, **extra;
} configured_call;

static CUresult launch_configured(void *call)
{
    const configured_call *c = call;
    return c->real(c->config, c->function, c->parameters, c->extra);
}

typedef struct cooperative_call {
    CUresult (*real)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                     void **);
    CUfunction function;
    unsigned grid[3], block[3], shared;
    CUstream stream;
    void **parameters;
} cooperative_call;

static CUresult launch_cooperative(void *call)
{
    const cooperative_call *c = call;
    return c->real(c->function, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared,
                   c->stream, c->parameters);
}

// ---- The hooks ----

GV_HOOK_PAIR(cuLaunchKernel, _ptsz,
             (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
              unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters, void **extra),
             (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra))
{
    if (!gv_enter())
        return real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra);
    plain_call call = {.real = real,
                       .function = function,
                       .grid = {grid_x, grid_y, grid_z},
                       .block = {block_x, block_y, block_z},
                       .shared = shared,
                       .stream = stream,
                       .parameters = parameters,
                       .extra = extra};
    CUresult result = launch_kernel(function, stream, per_thread, launch_plain, &call);
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuLaunchKernelEx, _ptsz,
             (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra),
             (config, function, parameters, extra))
{
    if (!config || !gv_enter())
        return real(config, function, parameters, extra);
    configured_call call = {real, config, function, parameters, extra};
    CUresult result = launch_kernel(function, config->hStream, per_thread, launch_configured, &call);
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuLaunchCooperativeKernel, _ptsz,
             (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
              unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters),
             (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters))
{
    if (!gv_enter())
        return real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters);
    cooperative_call call = {.real = real,
                             .function = function,
                             .grid = {grid_x, grid_y, grid_z},
                             .block = {block_x, block_y, block_z},
                             .shared = shared,
                             .stream = stream,
                             .parameters = parameters};
    CUresult result = launch_kernel(function, stream, per_thread, launch_cooperative, &call);
    gv_leave();
    return result;
}
