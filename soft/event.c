// Events: the driver API's functions.
#include "soft/event.h"

#include "soft/stream.h"

CUevent event_keep(CUevent event)
{
    if (event)
        event->references++;
    return event;
}

void event_drop(CUevent event)
{
    if (!event || --event->references)
        return;
    task_drop(event->task);
    captured_event_clear(&event->captured);
    gv_free(event);
}

void event_set_task(CUevent event, struct task *task)
{
    task_keep(task);
    task_drop(event->task);
    event->task = task;
    captured_event_clear(&event->captured);
}

static CUresult event_create(CUevent *event, unsigned flags)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (!event || flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_EVENT_INTERPROCESS)
        return flags & CU_EVENT_DISABLE_TIMING ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    CUevent made = gv_calloc(1, sizeof *made);
    if (!made || !object_register(&made->object, OBJECT_EVENT)) {
        gv_free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->references = 1;
    made->context = context;
    made->flags = flags;
    *event = made;
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    SOFT_API(event_create(event, flags));
}

static CUresult event_destroy(CUevent event)
{
    if (!object_is(event, OBJECT_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    object_unregister(&event->object);
    event_drop(event);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    SOFT_API(event_destroy(event));
}

CUresult cuEventDestroy(CUevent event)
{
    SOFT_API(event_destroy(event));
}

static CUresult event_record(CUevent event, CUstream handle, unsigned flags)
{
    if (!object_is(event, OBJECT_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags & ~CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = stream_check(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture && !(flags & CU_EVENT_RECORD_EXTERNAL))
        return capture_record_event(stream, &event->captured);
    if (flags & CU_EVENT_RECORD_EXTERNAL && !stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE; // external nodes exist in captures only
    struct operation operation = {.kind = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .event = event_keep(event)};
    struct task *task = NULL;
    result = stream_enqueue(stream, &operation, &task, NULL);
    if (result == CUDA_SUCCESS && task)
        event_set_task(event, task);
    return result;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    SOFT_API(event_record(event, stream, 0));
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    SOFT_API(event_record(event, PER_THREAD(stream), 0));
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    SOFT_API(event_record(event, stream, flags));
}

CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags)
{
    SOFT_API(event_record(event, PER_THREAD(stream), flags));
}

static CUresult stream_wait_event(CUstream handle, CUevent event, unsigned flags)
{
    if (!object_is(event, OBJECT_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags & ~CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->capture && flags & CU_EVENT_WAIT_EXTERNAL) {
        struct operation operation = {.kind = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .event = event_keep(event)};
        return stream_enqueue(stream, &operation, NULL, NULL);
    }
    if (flags & CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (stream->capture || event->captured.capture)
        return capture_wait_event(stream, &event->captured);
    result = stream_check(stream);
    if (result != CUDA_SUCCESS)
        return result;
    // The record that is the latest one now: a later record does not move this wait.
    struct task *task = task_new(stream->context);
    if (!task || !task_after(task, event->task)) {
        task_drop(task);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return stream_append(stream, task);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    SOFT_API(stream_wait_event(stream, event, flags));
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags)
{
    SOFT_API(stream_wait_event(PER_THREAD(stream), event, flags));
}

// What a query, a synchronize and an elapsed time have to refuse.
static CUresult event_askable(CUevent event)
{
    if (!object_is(event, OBJECT_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!event->captured.capture)
        return CUDA_SUCCESS;
    if (!captured_event_active(&event->captured))
        return CUDA_ERROR_INVALID_VALUE;
    captured_event_invalidate(&event->captured);
    return CUDA_ERROR_CAPTURED_EVENT;
}

static CUresult event_query(CUevent event)
{
    CUresult result = event_askable(event);
    if (result == CUDA_SUCCESS)
        result = capture_forbid_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!task_done(event->task))
        return CUDA_ERROR_NOT_READY;
    return event->context->error;
}

CUresult cuEventQuery(CUevent event)
{
    SOFT_API(event_query(event));
}

static CUresult event_synchronize(CUevent event)
{
    CUresult result = event_askable(event);
    if (result == CUDA_SUCCESS)
        result = capture_forbid_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    CUcontext context = event->context;
    task_wait(event->task);
    return object_is(context, OBJECT_CONTEXT) ? context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult cuEventSynchronize(CUevent event)
{
    SOFT_API(event_synchronize(event));
}

static CUresult event_elapsed(float *milliseconds, CUevent start, CUevent end)
{
    CUresult result = event_askable(start);
    if (result == CUDA_SUCCESS)
        result = event_askable(end);
    if (result != CUDA_SUCCESS)
        return result;
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    if (!start->task || !end->task || start->flags & CU_EVENT_DISABLE_TIMING || end->flags & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!task_done(start->task) || !task_done(end->task))
        return CUDA_ERROR_NOT_READY;
    double nanoseconds = (double)end->task->finished_ns - (double)start->task->finished_ns;
    *milliseconds = (float)(nanoseconds / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    SOFT_API(event_elapsed(milliseconds, start, end));
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    SOFT_API(event_elapsed(milliseconds, start, end));
}
