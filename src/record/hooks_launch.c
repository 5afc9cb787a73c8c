// Hooks of kernel launches.
#include "record/arm.h"
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

GV_HOOK_PAIR(cuLaunchKernel, _ptsz,
             (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
              unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters, void **extra),
             (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra))
{
    if (!gv_enter())
        return real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra);
    gv_gate_enter();
    CUresult result =
        real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra);
    gv_gate_leave();
    if (result == CUDA_SUCCESS)
        launched(function, stream, per_thread);
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuLaunchKernelEx, _ptsz,
             (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra),
             (config, function, parameters, extra))
{
    if (!gv_enter())
        return real(config, function, parameters, extra);
    gv_gate_enter();
    CUresult result = real(config, function, parameters, extra);
    gv_gate_leave();
    if (result == CUDA_SUCCESS)
        launched(function, config->hStream, per_thread);
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
    gv_gate_enter();
    CUresult result = real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters);
    gv_gate_leave();
    if (result == CUDA_SUCCESS)
        launched(function, stream, per_thread);
    gv_leave();
    return result;
}
