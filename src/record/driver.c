#include "record/driver.h"

#include <dlfcn.h>
#include <stddef.h>

gv_driver gv_cuda;

// The copy the process has loaded, else the one it would load.
static bool open_library(void)
{
    if (!gv_cuda.library)
        gv_cuda.library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!gv_cuda.library)
        gv_cuda.library = dlopen("libcuda.so.1", RTLD_LAZY);
    return gv_cuda.library != NULL;
}

bool gv_driver_load(const char **missing)
{
    static bool loaded; // asked at every call until the program has a context
    *missing = NULL;
    if (loaded)
        return true;
    if (!open_library()) {
        *missing = "libcuda.so.1";
        return false;
    }
#define GV_DRIVER_FIND(field, symbol)                                    \
    gv_cuda.field = (__typeof__(field) *)dlsym(gv_cuda.library, symbol); \
    if (!gv_cuda.field) {                                                \
        *missing = symbol;                                               \
        return false;                                                    \
    }
    GV_DRIVER_FUNCTIONS(GV_DRIVER_FIND)
    loaded = true;
    return true;
}

void *gv_driver_symbol(const char *symbol)
{
    if (!open_library())
        return NULL;
    // Kept in a volatile: as a tail call, dlsym would take our caller for the one who asks.
    void *volatile found = dlsym(gv_cuda.library, symbol);
    return found;
}

const char *gv_driver_error(CUresult result)
{
    const char *text = NULL;
    if (gv_cuda.cuGetErrorString && gv_cuda.cuGetErrorString(result, &text) == CUDA_SUCCESS && text)
        return text;
    return "unknown error";
}

CUresult gv_driver_load_kernels(CUmodule *module, const void *image, const gv_named_kernel *kernels, size_t count)
{
    CUresult result = gv_cuda.cuModuleLoadData(module, image);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = gv_cuda.cuModuleGetFunction(kernels[i].function, *module, kernels[i].name);
    return result;
}

gv_status gv_driver_failed(gv_error *error, const char *what, CUresult result)
{
    return gv_fail(error, result == CUDA_ERROR_OUT_OF_MEMORY ? GV_ERR_MEMORY : GV_ERR_IO, "%s: %s", what,
                   gv_driver_error(result));
}
