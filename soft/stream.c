// Streams: creation and destruction, order within and between them, waiting and asking.
#include "soft/stream.h"

#include "soft/event.h"
#include "soft/launch.h"
#include "soft/pool.h"

// The calling thread's own default stream of a context, made on first use.
static CUresult thread_stream(CUcontext context, CUstream *stream)
{
    uint64_t thread = driver_thread();
    for (size_t i = 0; i < context->stream_count; i++) {
        if (context->streams[i]->thread == thread) {
            *stream = context->streams[i];
            return CUDA_SUCCESS;
        }
    }
    return stream_new(context, CU_STREAM_DEFAULT, 0, thread, stream);
}

CUresult stream_resolve(CUstream handle, CUstream *stream)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || handle == CU_STREAM_LEGACY) {
        *stream = context->legacy;
        return CUDA_SUCCESS;
    }
    if (handle == CU_STREAM_PER_THREAD)
        return thread_stream(context, stream);
    if (!object_is(handle, OBJECT_STREAM))
        return CUDA_ERROR_INVALID_HANDLE;
    *stream = handle;
    return handle->context->error;
}

CUresult stream_new(CUcontext context, unsigned flags, int priority, uint64_t thread, CUstream *stream)
{
    CUstream made = gv_calloc(1, sizeof *made);
    if (!made || !GV_GROW(context->streams, context->stream_capacity, context->stream_count + 1) ||
        !object_register(&made->object, OBJECT_STREAM)) {
        gv_free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->context = context;
    made->flags = flags;
    made->priority = priority;
    made->thread = thread;
    context->streams[context->stream_count++] = made;
    *stream = made;
    return CUDA_SUCCESS;
}

// Work that is still under way goes on: its tasks do not need the stream.
void stream_delete(CUstream stream)
{
    CUcontext context = stream->context;
    capture_stream_gone(stream);
    for (size_t i = 0; i < context->stream_count; i++) {
        if (context->streams[i] != stream)
            continue;
        memmove(&context->streams[i], &context->streams[i + 1],
                (context->stream_count - i - 1) * sizeof *context->streams);
        context->stream_count--;
        break;
    }
    // What was enqueued stays ordered before later work of the legacy stream.
    if (stream->tail && stream->tail->state != TASK_DONE && !(stream->flags & CU_STREAM_NON_BLOCKING) &&
        context->legacy && context->legacy != stream) {
        struct task *join = task_new(context);
        if (join && task_after(join, stream->tail))
            stream_append(context->legacy, join);
        else
            task_drop(join);
    }
    object_unregister(&stream->object);
    dependency_set_clear(&stream->dependencies);
    stream_set_tail(stream, NULL);
    gv_free(stream);
}

void stream_set_tail(CUstream stream, struct task *tail)
{
    task_drop(stream->tail);
    task_drop(stream->kernel);
    stream->tail = tail;
    stream->kernel = NULL;
}

static bool is_blocking(CUstream stream)
{
    return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

// Links a task behind what other streams have that it must follow.
static bool link_behind_others(CUstream stream, struct task *task)
{
    CUcontext context = stream->context;
    bool linked = true;
    if (stream == context->legacy) {
        // The legacy stream waits for all blocking streams ...
        for (size_t i = 0; i < context->stream_count && linked; i++)
            if (context->streams[i] != stream && is_blocking(context->streams[i]))
                linked = task_after(task, context->streams[i]->tail);
    } else if (is_blocking(stream)) {
        // ... and they wait for it.
        linked = task_after(task, context->legacy->tail);
    }
    return linked;
}

// Submits a task that was linked, or failed to be, and drops the caller's reference.
static CUresult submit_linked(struct task *task, bool linked)
{
    if (!linked) {
        // Tasks it was already linked behind hold references and must see it run.
        operation_clear(&task->own);
        task->own.kind = CU_GRAPH_NODE_TYPE_EMPTY;
        task->operation = &task->own;
    }
    task_submit(task);
    task_drop(task);
    return linked ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult stream_append(CUstream stream, struct task *task)
{
    bool linked = task_after(task, stream->tail) && link_behind_others(stream, task);
    stream_set_tail(stream, task_keep(task));
    return submit_linked(task, linked);
}

// Appends a kernel that may begin before the kernel in front of it ends. What comes after both in the stream follows
// both, whether the second has waited for the first or not.
static CUresult append_programmatic(CUstream stream, struct task *task)
{
    struct task *join = task_new(stream->context);
    bool linked =
        join && task_after_early(task, stream->kernel, PROGRESS_TRIGGERED, true) && link_behind_others(stream, task);
    if (join)
        linked = task_after(join, stream->tail) && task_after(join, task) && linked;
    stream_set_tail(stream, task_keep(join ? join : task));
    stream->kernel = task_keep(task);
    if (join)
        linked = submit_linked(join, linked) == CUDA_SUCCESS;
    return submit_linked(task, linked);
}

CUresult stream_check(CUstream stream)
{
    if (stream->capture)
        return capture_usable(stream);
    if (stream == stream->context->legacy)
        return capture_check_implicit(stream->context);
    return CUDA_SUCCESS;
}

CUresult stream_enqueue(CUstream stream, struct operation *operation, struct task **task_out, CUgraphNode *node)
{
    CUresult result = stream_check(stream);
    if (result != CUDA_SUCCESS) {
        operation_clear(operation);
        return result;
    }
    if (stream->capture)
        return capture_operation(stream, operation, node);
    struct task *task = task_new(stream->context);
    if (!task) {
        operation_clear(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    task->own = *operation;
    if (operation->kind == CU_GRAPH_NODE_TYPE_KERNEL)
        task->recording = recording_for_launch();
    if (task_out)
        *task_out = task;
    if (operation->kind != CU_GRAPH_NODE_TYPE_KERNEL)
        return stream_append(stream, task);
    if (stream->kernel && kernel_operation_is_programmatic(&operation->kernel))
        return append_programmatic(stream, task);
    result = stream_append(stream, task);
    stream->kernel = task_keep(task);
    return result;
}

struct task *context_join(CUcontext context)
{
    struct task *join = task_new(context);
    bool linked = join != NULL;
    for (size_t i = 0; i < context->stream_count && linked; i++)
        linked = task_after(join, context->streams[i]->tail);
    if (join)
        task_submit(join);
    return join;
}

// ---- Creation ----

static CUresult stream_create(CUstream *stream, unsigned flags, int priority)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!stream || flags & ~CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    // Priorities outside the device's range are clamped into it.
    priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
    return stream_new(context, flags, priority, 0, stream);
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    SOFT_API(stream_create(stream, flags, 0));
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    SOFT_API(stream_create(stream, flags, priority));
}

static CUresult stream_destroy(CUstream stream)
{
    if (!object_is(stream, OBJECT_STREAM) || stream == stream->context->legacy || stream->thread)
        return CUDA_ERROR_INVALID_HANDLE;
    stream_delete(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    SOFT_API(stream_destroy(stream));
}

CUresult cuStreamDestroy(CUstream stream)
{
    SOFT_API(stream_destroy(stream));
}

// ---- Waiting and asking ----

// Waiting for a stream that captures, or for any stream while the thread's capture mode forbids it, ends the capture.
static CUresult stream_askable(CUstream handle, CUstream *stream)
{
    CUresult result = stream_resolve(handle, stream);
    if (result != CUDA_SUCCESS)
        return result;
    if ((*stream)->capture) {
        capture_invalidate((*stream)->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (*stream == (*stream)->context->legacy) {
        result = capture_check_implicit((*stream)->context);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return capture_forbid_unsafe();
}

static CUresult stream_synchronize(CUstream handle)
{
    CUstream stream;
    CUresult result = stream_askable(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    CUcontext context = stream->context;
    if (stream == context->legacy) {
        // The legacy stream's work includes what it would wait for.
        struct task *task = task_new(context);
        if (!task)
            return CUDA_ERROR_OUT_OF_MEMORY;
        task_keep(task);
        stream_append(stream, task);
        task_wait(task);
        task_drop(task);
    } else {
        task_wait(stream->tail);
    }
    if (!object_is(context, OBJECT_CONTEXT))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    pool_release_unused();
    return context->error;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    SOFT_API(stream_synchronize(stream));
}

CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    SOFT_API(stream_synchronize(PER_THREAD(stream)));
}

static CUresult stream_query(CUstream handle)
{
    CUstream stream;
    CUresult result = stream_askable(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    CUcontext context = stream->context;
    // The legacy stream has work left as long as a blocking stream has: what is enqueued in it waits for them. Nothing
    // is enqueued to find out, so that an idle context answers at once.
    if (stream == context->legacy)
        for (size_t i = 0; i < context->stream_count; i++)
            if (is_blocking(context->streams[i]) && !task_done(context->streams[i]->tail))
                return CUDA_ERROR_NOT_READY;
    return task_done(stream->tail) ? context->error : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamQuery(CUstream stream)
{
    SOFT_API(stream_query(stream));
}

CUresult cuStreamQuery_ptsz(CUstream stream)
{
    SOFT_API(stream_query(PER_THREAD(stream)));
}

// ---- Properties ----

enum stream_property { STREAM_PRIORITY, STREAM_FLAGS, STREAM_ID, STREAM_CONTEXT, STREAM_DEVICE };

static CUresult stream_get(CUstream handle, enum stream_property property, void *value)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    // As seen on driver 580.159: some properties can be asked for during a capture, and some end it.
    if (stream->capture && (property == STREAM_FLAGS || property == STREAM_ID || property == STREAM_DEVICE)) {
        capture_invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    switch (property) {
    case STREAM_PRIORITY: *(int *)value = stream->priority; break;
    case STREAM_FLAGS: *(unsigned *)value = stream->flags; break;
    case STREAM_ID: *(unsigned long long *)value = stream->object.id; break;
    case STREAM_CONTEXT: *(CUcontext *)value = stream->context; break;
    case STREAM_DEVICE: *(CUdevice *)value = 0; break;
    }
    return CUDA_SUCCESS;
}

#define STREAM_GETTER(name, type, property)                        \
    CUresult name(CUstream stream, type *value)                    \
    {                                                              \
        SOFT_API(stream_get(stream, property, value));             \
    }                                                              \
    CUresult name##_ptsz(CUstream stream, type *value)             \
    {                                                              \
        SOFT_API(stream_get(PER_THREAD(stream), property, value)); \
    }
STREAM_GETTER(cuStreamGetPriority, int, STREAM_PRIORITY)
STREAM_GETTER(cuStreamGetFlags, unsigned int, STREAM_FLAGS)
STREAM_GETTER(cuStreamGetId, unsigned long long, STREAM_ID)
STREAM_GETTER(cuStreamGetCtx, CUcontext, STREAM_CONTEXT)
#if CUDA_VERSION >= 12080
STREAM_GETTER(cuStreamGetDevice, CUdevice, STREAM_DEVICE)
#endif

// ---- Host functions ----

static CUresult launch_host(CUstream handle, CUhostFn function, CUstreamCallback callback, void *data)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!function && !callback)
        return CUDA_ERROR_INVALID_VALUE;
    if (callback && stream->capture) {
        capture_invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    struct operation operation = {.kind = CU_GRAPH_NODE_TYPE_HOST, .host = {function, callback, handle, data}};
    return stream_enqueue(stream, &operation, NULL, NULL);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    SOFT_API(launch_host(stream, function, NULL, data));
}

CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *data)
{
    SOFT_API(launch_host(PER_THREAD(stream), function, NULL, data));
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)
{
    if (flags || !callback)
        return CUDA_ERROR_INVALID_VALUE;
    SOFT_API(launch_host(stream, NULL, callback, data));
}

CUresult cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)
{
    if (flags || !callback)
        return CUDA_ERROR_INVALID_VALUE;
    SOFT_API(launch_host(PER_THREAD(stream), NULL, callback, data));
}
