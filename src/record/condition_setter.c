#include "record/condition_setter.h"

#include "base/memory.h"
#include "record/condition.h"
#include "record/driver.h"
#include "record/embed.h"

#include <pthread.h>
#include <string.h>

#ifdef GV_CONDITION_FATBIN

GV_EMBED(gv_condition_image, ".gravel.fatbin", GV_CONDITION_FATBIN);

typedef struct loaded {
    CUcontext context;
    CUfunction function;
} loaded;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static loaded *kept;
static size_t kept_count, kept_capacity;

static CUfunction find(CUcontext context)
{
    CUfunction found = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < kept_count && !found; i++)
        if (kept[i].context == context)
            found = kept[i].function;
    pthread_mutex_unlock(&lock);
    return found;
}

static gv_status load(CUcontext context, CUfunction *function, gv_error *error)
{
    CUmodule module = NULL;
    *function = find(context);
    if (*function)
        return GV_OK;
    gv_source_loading_own(true);
    CUresult result =
        gv_driver_load_kernels(&module, gv_condition_image, &(gv_named_kernel){function, "gravel_set_conditions"}, 1);
    gv_source_loading_own(false);
    if (result != CUDA_SUCCESS)
        return gv_driver_failed(error, "the kernel that sets conditions cannot be loaded", result);
    pthread_mutex_lock(&lock);
    // Where this is not remembered, it is loaded again.
    if (GV_GROW(kept, kept_capacity, kept_count + 1))
        kept[kept_count++] = (loaded){context, *function};
    pthread_mutex_unlock(&lock);
    return GV_OK;
}

gv_status gv_condition_setter_add(CUgraph graph, const gv_condition_setter *setter, CUgraphNode *made, gv_error *error)
{
    CUcontext context = NULL;
    CUDA_KERNEL_NODE_PARAMS params;
    memset(&params, 0, sizeof params);
    gv_cuda.cuCtxGetCurrent(&context);
    gv_status status = load(context, &params.func, error);
    if (status != GV_OK)
        return status;
    CUdeviceptr words = setter->device.seen, side = setter->merge ? setter->device.side : 0, base = setter->device.base,
                less = setter->device.less;
    uint32_t count = setter->count, extra = setter->extra;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = (void *[]){&words, &side, &base, &less, &count, &extra};
    CUresult result = gv_cuda.cuGraphAddKernelNode(made, graph, NULL, 0, &params);
    return result == CUDA_SUCCESS ? GV_OK
                                  : gv_driver_failed(error, "a node that sets conditions cannot be made", result);
}

void gv_condition_setter_forget(CUcontext context)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < kept_count; i++)
        if (kept[i].context == context)
            kept[i--] = kept[--kept_count];
    pthread_mutex_unlock(&lock);
}

#else // built without nvcc

gv_status gv_condition_setter_add(CUgraph graph, const gv_condition_setter *setter, CUgraphNode *made, gv_error *error)
{
    return gv_fail(error, GV_ERR_MISSING, "built without device code");
}

void gv_condition_setter_forget(CUcontext context)
{
}

#endif
