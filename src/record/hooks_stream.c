// Hooks of streams, events and everything that orders: what the rules of docs/order.md are fed with.
#include "record/arm.h"
#include "record/canary.h"
#include "record/graph.h"
#include "record/hook.h"
#include "record/ids.h"
#include "record/recorder.h"

// Records an operation on a stream, unless the stream is capturing, in which case it made a node or an edge.
static void on_stream(CUstream stream, bool per_thread, gv_operation_record *operation)
{
    if (gv_captures_active() && gv_capture_note(stream, per_thread))
        return;
    operation->stream = gv_stream_id(stream, per_thread);
    gv_operation(operation);
}

// ---- Streams -------------------------------------------------------------------------------------------------

GV_HOOK(cuStreamCreate, (CUstream * stream, unsigned flags), (stream, flags))
{
    if (!gv_enter())
        return real(stream, flags);
    CUresult result = real(stream, flags);
    if (result == CUDA_SUCCESS)
        gv_stream_created(*stream);
    gv_leave();
    return result;
}

GV_HOOK(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority), (stream, flags, priority))
{
    if (!gv_enter())
        return real(stream, flags, priority);
    CUresult result = real(stream, flags, priority);
    if (result == CUDA_SUCCESS)
        gv_stream_created(*stream);
    gv_leave();
    return result;
}

GV_HOOK(cuGreenCtxStreamCreate, (CUstream * stream, CUgreenCtx context, unsigned flags, int priority),
        (stream, context, flags, priority))
{
    if (!gv_enter())
        return real(stream, context, flags, priority);
    CUresult result = real(stream, context, flags, priority);
    if (result == CUDA_SUCCESS)
        gv_stream_created(*stream);
    gv_leave();
    return result;
}

GV_HOOK(cuStreamDestroy_v2, (CUstream stream), (stream))
{
    if (!gv_enter())
        return real(stream);
    gv_stream_destroyed(stream);
    gv_capture_stream_destroyed(stream);
    CUresult result = real(stream);
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuStreamSynchronize, _ptsz, (CUstream stream), (stream))
{
    if (!gv_enter())
        return real(stream);
    CUresult result = real(stream);
    if (result == CUDA_SUCCESS) {
        gv_operation_record operation = {.kind = GV_OP_STREAM_SYNC, .stream = gv_stream_id(stream, per_thread)};
        gv_operation(&operation);
    }
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuStreamQuery, _ptsz, (CUstream stream), (stream))
{
    if (!gv_enter())
        return real(stream);
    CUresult result = real(stream);
    if (result == CUDA_SUCCESS) {
        gv_operation_record operation = {.kind = GV_OP_STREAM_QUERY, .stream = gv_stream_id(stream, per_thread)};
        gv_operation(&operation);
    }
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags))
{
    if (!gv_enter())
        return real(stream, event, flags);
    CUresult result = real(stream, event, flags);
    if (result == CUDA_SUCCESS) {
        gv_operation_record operation = {.kind = GV_OP_EVENT_WAIT, .object = gv_event_id(event), .flags = flags};
        on_stream(stream, per_thread, &operation);
    }
    gv_leave();
    return result;
}

static CUresult context_synchronized(CUresult result, CUcontext context)
{
    if (result == CUDA_SUCCESS) {
        gv_operation_record operation = {.kind = GV_OP_CONTEXT_SYNC, .object = gv_context_id(context)};
        gv_operation(&operation);
        gv_canary_synchronized();
    }
    return result;
}

// Without parameters, and therefore not in the macros' form.
GV_EXPORT CUresult hook_cuCtxSynchronize(void) __asm__("cuCtxSynchronize");
GV_HOOK_ENTRY(cuCtxSynchronize)
CUresult hook_cuCtxSynchronize(void)
{
    CUcontext context = NULL;
    CUresult (*real)(void) = (CUresult(*)(void))gv_hook_real(&entry_cuCtxSynchronize);
    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    if (!gv_enter())
        return real();
    CUresult result = real();
    gv_cuda.cuCtxGetCurrent(&context);
    context_synchronized(result, context);
    gv_leave();
    return result;
}

GV_HOOK(cuCtxSynchronize_v2, (CUcontext context), (context))
{
    if (!gv_enter())
        return real(context);
    CUresult result = context_synchronized(real(context), context);
    gv_leave();
    return result;
}

// ---- Events --------------------------------------------------------------------------------------------------

GV_HOOK(cuEventDestroy_v2, (CUevent event), (event))
{
    if (!gv_enter())
        return real(event);
    gv_event_destroyed(event);
    CUresult result = real(event);
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuEventRecord, _ptsz, (CUevent event, CUstream stream), (event, stream))
{
    if (!gv_enter())
        return real(event, stream);
    CUresult result = real(event, stream);
    if (result == CUDA_SUCCESS) {
        gv_operation_record operation = {.kind = GV_OP_EVENT_RECORD, .object = gv_event_id(event)};
        on_stream(stream, per_thread, &operation);
    }
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned flags), (event, stream, flags))
{
    if (!gv_enter())
        return real(event, stream, flags);
    CUresult result = real(event, stream, flags);
    if (result == CUDA_SUCCESS) {
        gv_operation_record operation = {.kind = GV_OP_EVENT_RECORD, .object = gv_event_id(event), .flags = flags};
        on_stream(stream, per_thread, &operation);
    }
    gv_leave();
    return result;
}

GV_HOOK(cuEventSynchronize, (CUevent event), (event))
{
    if (!gv_enter())
        return real(event);
    CUresult result = real(event);
    if (result == CUDA_SUCCESS) {
        gv_operation_record operation = {.kind = GV_OP_EVENT_SYNC, .object = gv_event_id(event)};
        gv_operation(&operation);
    }
    gv_leave();
    return result;
}

GV_HOOK(cuEventQuery, (CUevent event), (event))
{
    if (!gv_enter())
        return real(event);
    CUresult result = real(event);
    if (result == CUDA_SUCCESS) {
        gv_operation_record operation = {.kind = GV_OP_EVENT_QUERY, .object = gv_event_id(event)};
        gv_operation(&operation);
    }
    gv_leave();
    return result;
}

// ---- Host functions and values in memory -----------------------------------------------------------------------

GV_HOOK_PAIR(cuLaunchHostFunc, _ptsz, (CUstream stream, CUhostFn function, void *data), (stream, function, data))
{
    if (!gv_enter())
        return real(stream, function, data);
    CUresult result = real(stream, function, data);
    if (result == CUDA_SUCCESS) {
        gv_operation_record operation = {.kind = GV_OP_HOST_FUNCTION};
        on_stream(stream, per_thread, &operation);
    }
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuStreamAddCallback, _ptsz, (CUstream stream, CUstreamCallback function, void *data, unsigned flags),
             (stream, function, data, flags))
{
    if (!gv_enter())
        return real(stream, function, data, flags);
    CUresult result = real(stream, function, data, flags);
    if (result == CUDA_SUCCESS) {
        gv_operation_record operation = {.kind = GV_OP_HOST_FUNCTION};
        on_stream(stream, per_thread, &operation);
    }
    gv_leave();
    return result;
}

static void value_operation(CUstream stream, bool per_thread, unsigned kind, CUdeviceptr address, uint64_t value,
                            unsigned size, unsigned flags)
{
    gv_operation_record operation = {.kind = kind, .address = address, .value = value, .size = size, .flags = flags};
    on_stream(stream, per_thread, &operation);
}

// The four value calls differ in width and direction alone; their first versions have the same parameters.
#define GV_VALUE_HOOK(symbol, kind, type)                                                           \
    GV_HOOK_PAIR(symbol, _ptsz, (CUstream stream, CUdeviceptr address, type value, unsigned flags), \
                 (stream, address, value, flags))                                                   \
    {                                                                                               \
        if (!gv_enter())                                                                            \
            return real(stream, address, value, flags);                                             \
        gv_copy_gate_enter();                                                                       \
        CUresult result = real(stream, address, value, flags);                                      \
        gv_copy_gate_leave();                                                                       \
        if (result == CUDA_SUCCESS)                                                                 \
            value_operation(stream, per_thread, kind, address, value, sizeof(type), flags);         \
        gv_leave();                                                                                 \
        return result;                                                                              \
    }
GV_VALUE_HOOK(cuStreamWriteValue32, GV_OP_VALUE_WRITE, cuuint32_t)
GV_VALUE_HOOK(cuStreamWriteValue64, GV_OP_VALUE_WRITE, cuuint64_t)
GV_VALUE_HOOK(cuStreamWaitValue32, GV_OP_VALUE_WAIT, cuuint32_t)
GV_VALUE_HOOK(cuStreamWaitValue64, GV_OP_VALUE_WAIT, cuuint64_t)
GV_VALUE_HOOK(cuStreamWriteValue32_v2, GV_OP_VALUE_WRITE, cuuint32_t)
GV_VALUE_HOOK(cuStreamWriteValue64_v2, GV_OP_VALUE_WRITE, cuuint64_t)
GV_VALUE_HOOK(cuStreamWaitValue32_v2, GV_OP_VALUE_WAIT, cuuint32_t)
GV_VALUE_HOOK(cuStreamWaitValue64_v2, GV_OP_VALUE_WAIT, cuuint64_t)

static void batch_operations(CUstream stream, bool per_thread, unsigned count, const CUstreamBatchMemOpParams *items)
{
    for (const CUstreamBatchMemOpParams *item = items; item < items + count; item++) {
        switch (item->operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            value_operation(stream, per_thread, GV_OP_VALUE_WAIT, item->waitValue.address, item->waitValue.value, 4,
                            item->waitValue.flags);
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            value_operation(stream, per_thread, GV_OP_VALUE_WAIT, item->waitValue.address, item->waitValue.value64, 8,
                            item->waitValue.flags);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            value_operation(stream, per_thread, GV_OP_VALUE_WRITE, item->writeValue.address, item->writeValue.value, 4,
                            item->writeValue.flags);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            value_operation(stream, per_thread, GV_OP_VALUE_WRITE, item->writeValue.address, item->writeValue.value64,
                            8, item->writeValue.flags);
            break;
        default: break;
        }
    }
}

#define GV_BATCH_HOOK(symbol)                                                                                       \
    GV_HOOK_PAIR(symbol, _ptsz, (CUstream stream, unsigned count, CUstreamBatchMemOpParams *items, unsigned flags), \
                 (stream, count, items, flags))                                                                     \
    {                                                                                                               \
        if (!gv_enter())                                                                                            \
            return real(stream, count, items, flags);                                                               \
        gv_copy_gate_enter();                                                                                       \
        CUresult result = real(stream, count, items, flags);                                                        \
        gv_copy_gate_leave();                                                                                       \
        if (result == CUDA_SUCCESS)                                                                                 \
            batch_operations(stream, per_thread, count, items);                                                     \
        gv_leave();                                                                                                 \
        return result;                                                                                              \
    }
GV_BATCH_HOOK(cuStreamBatchMemOp)
GV_BATCH_HOOK(cuStreamBatchMemOp_v2)

// ---- Captures: they wait while a replay is armed in the context, which could invalidate them
// ------------------------------------------------------------------------------------------------

GV_HOOK_PAIR(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
{
    if (!gv_enter_graph())
        return real(stream, mode);
    gv_gate_enter();
    gv_stream_id(stream, per_thread); // what it is can be asked now, and not while it is capturing
    CUresult result = real(stream, mode);
    if (result == CUDA_SUCCESS)
        gv_capture_began(stream, per_thread, mode);
    gv_gate_leave();
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuStreamBeginCapture, _ptsz, (CUstream stream), (stream))
{
    if (!gv_enter_graph())
        return real(stream);
    gv_gate_enter();
    gv_stream_id(stream, per_thread); // what it is can be asked now, and not while it is capturing
    CUresult result = real(stream);
    if (result == CUDA_SUCCESS)
        gv_capture_began(stream, per_thread, CU_STREAM_CAPTURE_MODE_GLOBAL);
    gv_gate_leave();
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuStreamBeginCaptureToGraph, _ptsz,
             (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *data,
              size_t count, CUstreamCaptureMode mode),
             (stream, graph, dependencies, data, count, mode))
{
    if (!gv_enter_graph())
        return real(stream, graph, dependencies, data, count, mode);
    gv_gate_enter();
    gv_stream_id(stream, per_thread); // what it is can be asked now, and not while it is capturing
    CUresult result = real(stream, graph, dependencies, data, count, mode);
    if (result == CUDA_SUCCESS)
        gv_capture_began(stream, per_thread, mode);
    gv_gate_leave();
    gv_leave();
    return result;
}

GV_HOOK_PAIR(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph *graph), (stream, graph))
{
    if (!gv_enter())
        return real(stream, graph);
    CUresult result = real(stream, graph);
    gv_capture_ended(stream, per_thread, result);
    gv_leave();
    return result;
}
