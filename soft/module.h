// Modules, libraries, and the functions and variables in them.
#ifndef GRAVEL_SOFT_MODULE_H
#define GRAVEL_SOFT_MODULE_H

#include "soft/driver.h"
#include "soft/gravel_soft.h"
#include "soft/kernel_abi.h"

struct CUmod_st {
    struct object object;
    CUcontext context; // NULL: of a library, good in every context
    const gravel_soft_module_info *info;
    CUfunction *functions; // one for each kernel, made with the module
    size_t function_count;
    CUmodule forgotten; // the next one of those that were unloaded
};

struct CUfunc_st {
    struct object object;
    CUmodule module;
    const gravel_soft_kernel *kernel;
    struct CUkern_st *library_kernel; // of a library's function, else NULL
    int dynamic_shared_limit;
};

// The function a handle stands for: a CUfunction, or a CUkernel in its place. NULL: neither.
CUfunction function_resolve(const void *handle);

// Bytes of its parameter block.
size_t function_block_size(CUfunction function);

// gravel_soft_api.variables.
int module_list_variables(gravel_soft_variable_callback callback, void *user);

// Forgets the modules of a context.
void module_delete_context(CUcontext context);

#endif
