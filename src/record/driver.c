#include "record/driver.h"

#include <dlfcn.h>
#include <stddef.h>

gv_driver gv_cuda;

bool gv_driver_load(const char **missing)
{
    *missing = NULL;
    if (!gv_cuda.library) {
        gv_cuda.library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        if (!gv_cuda.library)
            gv_cuda.library = dlopen("libcuda.so.1", RTLD_LAZY);
        if (!gv_cuda.library) {
            *missing = "libcuda.so.1";
            return false;
        }
    }
#define GV_DRIVER_FIND(field, symbol)                                    \
    gv_cuda.field = (__typeof__(field) *)dlsym(gv_cuda.library, symbol); \
    if (!gv_cuda.field) {                                                \
        *missing = symbol;                                               \
        return false;                                                    \
    }
    GV_DRIVER_FUNCTIONS(GV_DRIVER_FIND)
    return true;
}

void *gv_driver_symbol(const char *symbol)
{
    if (!gv_cuda.library)
        gv_cuda.library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!gv_cuda.library)
        gv_cuda.library = dlopen("libcuda.so.1", RTLD_LAZY);
    if (!gv_cuda.library)
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
