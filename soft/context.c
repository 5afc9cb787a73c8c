// Contexts: the primary one and others, and each thread's stack of current contexts.
#include "soft/context.h"

#include "soft/capture.h"
#include "soft/event.h"
#include "soft/graph.h"
#include "soft/memory.h"
#include "soft/module.h"
#include "soft/pool.h"
#include "soft/stream.h"

enum { STACK_DEPTH = 64 };

static _Thread_local struct {
    CUcontext contexts[STACK_DEPTH];
    int depth;
} stack;

static CUcontext primary;
static unsigned primary_flags;

bool device_valid(CUdevice device)
{
    return device == 0;
}

CUcontext context_primary(void)
{
    return primary;
}

CUresult context_current(CUcontext *context)
{
    if (!stack.depth || !stack.contexts[stack.depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    CUcontext top = stack.contexts[stack.depth - 1];
    if (!object_is(top, OBJECT_CONTEXT))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *context = top;
    return top->error;
}

static CUresult context_new(unsigned flags, CUcontext *context)
{
    CUcontext made = gv_calloc(1, sizeof *made);
    if (!made || !object_register(&made->object, OBJECT_CONTEXT)) {
        gv_free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->flags = flags;
    CUresult result = stream_new(made, CU_STREAM_DEFAULT, 0, 0, &made->legacy);
    if (result != CUDA_SUCCESS) {
        object_unregister(&made->object);
        gv_free(made);
        return result;
    }
    *context = made;
    return CUDA_SUCCESS;
}

CUresult context_wait(CUcontext context)
{
    struct task *join = context_join(context);
    if (!join)
        return CUDA_ERROR_OUT_OF_MEMORY;
    task_wait(join);
    task_drop(join);
    return object_is(context, OBJECT_CONTEXT) ? context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static void delete_event_of(struct object *object, void *context)
{
    CUevent event = (CUevent)object;
    if (event->context != context)
        return;
    object_unregister(object);
    event_drop(event);
}

// Waits for the context's work, then takes everything of it away.
static void context_delete(CUcontext context)
{
    context_wait(context);
    CUstream legacy = context->legacy;
    while (context->stream_count > 1)
        stream_delete(context->streams[context->streams[0] == legacy ? 1 : 0]);
    stream_delete(legacy);
    object_each(OBJECT_EVENT, delete_event_of, context);
    module_delete_context(context);
    memory_delete_context(context);
    object_unregister(&context->object);
    gv_free(context->streams);
    gv_free(context);
}

// ---- The primary context ----

static CUresult primary_retain(CUcontext *context, CUdevice device)
{
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    if (!primary) {
        CUresult result = context_new(primary_flags, &primary);
        if (result != CUDA_SUCCESS)
            return result;
        primary->primary = true;
    }
    primary->retained++;
    *context = primary;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    SOFT_API(primary_retain(context, device));
}

static CUresult primary_release(CUdevice device, bool reset)
{
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!primary)
        return reset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (!reset && --primary->retained)
        return CUDA_SUCCESS;
    CUcontext context = primary;
    primary = NULL;
    context_delete(context);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    SOFT_API(primary_release(device, false));
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    SOFT_API(primary_release(device, false));
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    SOFT_API(primary_release(device, true));
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    SOFT_API(primary_release(device, true));
}

static CUresult primary_state(CUdevice device, unsigned *flags, int *active)
{
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = primary ? primary->flags : primary_flags;
    *active = primary != NULL;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    SOFT_API(primary_state(device, flags, active));
}

static CUresult primary_set_flags(CUdevice device, unsigned flags)
{
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags & ~CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    primary_flags = flags;
    if (primary)
        primary->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    SOFT_API(primary_set_flags(device, flags));
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    SOFT_API(primary_set_flags(device, flags));
}

// ---- Other contexts ----

static CUresult create(CUcontext *context, unsigned flags, CUdevice device)
{
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!context || flags & ~CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    if (stack.depth == STACK_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = context_new(flags, context);
    if (result == CUDA_SUCCESS)
        stack.contexts[stack.depth++] = *context;
    return result;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    SOFT_API(create(context, flags, device));
}

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    SOFT_API(create(context, flags, device));
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned int flags,
                        CUdevice device);
CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned int flags,
                        CUdevice device)
{
    if (affinity || count)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    SOFT_API(create(context, flags, device));
}

#if CUDA_VERSION >= 12050
CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned int flags, CUdevice device)
{
    if (parameters && (parameters->execAffinityParams || parameters->cigParams))
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    SOFT_API(create(context, flags, device));
}
#endif

static CUresult destroy(CUcontext context)
{
    if (!object_is(context, OBJECT_CONTEXT) || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    // Destroying the calling thread's current context pops it; other threads find it destroyed.
    if (stack.depth && stack.contexts[stack.depth - 1] == context)
        stack.depth--;
    context_delete(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    SOFT_API(destroy(context));
}

CUresult cuCtxDestroy(CUcontext context)
{
    SOFT_API(destroy(context));
}

// ---- Which one is current ----

static CUresult push(CUcontext context)
{
    if (!object_is(context, OBJECT_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (stack.depth == STACK_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack.contexts[stack.depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    SOFT_API(push(context));
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    SOFT_API(push(context));
}

static CUresult pop(CUcontext *context)
{
    if (!stack.depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUcontext top = stack.contexts[--stack.depth];
    if (context)
        *context = top;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    SOFT_API(pop(context));
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    SOFT_API(pop(context));
}

static CUresult set_current(CUcontext context)
{
    if (!context) {
        if (stack.depth)
            stack.depth--;
        return CUDA_SUCCESS;
    }
    if (!object_is(context, OBJECT_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!stack.depth)
        stack.depth = 1;
    stack.contexts[stack.depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    SOFT_API(set_current(context));
}

static CUresult get_current(CUcontext *context)
{
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    *context = stack.depth ? stack.contexts[stack.depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    SOFT_API(get_current(context));
}

// The context named, or the current one for NULL.
static CUresult given_or_current(CUcontext given, CUcontext *context)
{
    if (!given)
        return context_current(context);
    if (!object_is(given, OBJECT_CONTEXT))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *context = given;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUcontext given, CUdevice *device)
{
    CUcontext context;
    CUresult result = given_or_current(given, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    SOFT_API(get_device(NULL, device));
}

static CUresult get_id(CUcontext given, unsigned long long *id)
{
    CUcontext context;
    CUresult result = given_or_current(given, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = context->object.id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    SOFT_API(get_id(context, id));
}

static CUresult get_api_version(CUcontext given, unsigned *version)
{
    CUcontext context;
    CUresult result = given_or_current(given, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 3020; // the value that every context of a current driver answers
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
    SOFT_API(get_api_version(context, version));
}

static CUresult flags(unsigned *get, const unsigned *set)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (set && *set & ~CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    if (set)
        context->flags = *set;
    if (get)
        *get = context->flags;
    return get || set ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxGetFlags(unsigned int *value)
{
    SOFT_API(flags(value, NULL));
}

CUresult cuCtxSetFlags(unsigned int value)
{
    SOFT_API(flags(NULL, &value));
}

static CUresult priority_range(int *least, int *greatest)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    SOFT_API(priority_range(least, greatest));
}

static CUresult synchronize(CUcontext given)
{
    CUcontext context;
    CUresult result = given_or_current(given, &context);
    if (result != CUDA_SUCCESS)
        return result;
    // Waiting for a context in which a stream captures would wait for work that is never enqueued.
    bool capturing = false;
    for (size_t i = 0; i < context->stream_count; i++) {
        if (context->streams[i]->capture) {
            capture_invalidate(context->streams[i]->capture);
            capturing = true;
        }
    }
    if (capturing)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    result = capture_forbid_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    result = context_wait(context);
    pool_release_unused();
    return result;
}

CUresult cuCtxSynchronize(void)
{
    SOFT_API(synchronize(NULL));
}

#if CUDA_VERSION >= 13000
CUresult cuCtxSynchronize_v2(CUcontext context)
{
    SOFT_API(synchronize(context));
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    SOFT_API(get_device(context, device));
}
#endif
