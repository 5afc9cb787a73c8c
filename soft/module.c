// Loading shared objects of kernels, and finding what is in them. Code stays mapped for the life of the process, so
// that a graph that outlives its module runs into CUDA_ERROR_INVALID_HANDLE at most, and not into nothing.
#include "soft/module.h"

#include "soft/access.h"
#include "soft/capture.h"
#include "soft/conditional.h"
#include "soft/context.h"
#include "soft/launch.h"
#include "soft/memory.h"
#include "soft/schedule.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static int set_condition(uint64_t handle, uint32_t value)
{
    return condition_set(handle, value);
}

static const gravel_soft_hooks hooks = {.access = access_hook,
                                        .spin = schedule_spin,
                                        .observed = &access_observed,
                                        .set_condition = set_condition,
                                        .grid_wait = launch_grid_wait,
                                        .grid_trigger = launch_grid_trigger};

struct CUlib_st {
    struct object object;
    CUmodule module;
    struct CUkern_st **kernels;
};

struct CUkern_st {
    struct object object;
    CUlibrary library;
    CUfunction function;
};

// ---- Loading: without the lock, since dlopen runs constructors ----

static bool write_all(int file, const unsigned char *data, size_t size)
{
    while (size) {
        ssize_t written = write(file, data, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        data += written;
        size -= (size_t)written;
    }
    return true;
}

// Opens an object from memory, as an object of its own even if the same one is loaded already.
static void *open_image(const void *image, size_t size)
{
    int file = memfd_create("gravel-kernels", MFD_CLOEXEC);
    if (file < 0)
        return NULL;
    void *handle = NULL;
    if (write_all(file, image, size)) {
        char path[40];
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    // The name must stay unique while the object is mapped, or dlopen would take the next one for this one.
    if (!handle)
        close(file);
    return handle;
}

static CUresult open_file_copy(const char *path, void **handle)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return CUDA_ERROR_FILE_NOT_FOUND;
    off_t size = lseek(file, 0, SEEK_END);
    void *data = size > 0 ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    close(file);
    if (data == MAP_FAILED)
        return CUDA_ERROR_INVALID_IMAGE;
    *handle = open_image(data, (size_t)size);
    munmap(data, (size_t)size);
    return *handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

// A second load of a path is a second module with variables of its own, where dlopen would return the first.
static CUresult open_path(const char *path, void **handle)
{
    if (access(path, R_OK))
        return CUDA_ERROR_FILE_NOT_FOUND;
    // dlopen searches the library path for a name without a slash; a module's name is a file.
    char *with_slash = NULL;
    if (!strchr(path, '/')) {
        with_slash = gv_malloc(strlen(path) + 3);
        if (!with_slash)
            return CUDA_ERROR_OUT_OF_MEMORY;
        sprintf(with_slash, "./%s", path);
        path = with_slash;
    }
    void *loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    CUresult result = CUDA_SUCCESS;
    if (loaded) {
        dlclose(loaded);
        result = open_file_copy(path, handle);
    } else {
        *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        result = *handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
    }
    gv_free(with_slash);
    return result;
}

// The size of an ELF object in memory: its section headers are last in what linkers write.
static size_t image_size(const void *image)
{
    const Elf64_Ehdr *header = image;
    if (!image || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_type != ET_DYN || header->e_machine != EM_X86_64 || !header->e_shoff)
        return 0;
    return header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
}

// ---- Modules ----

static bool add_globals(CUmodule module)
{
    for (const gravel_soft_global *const *at = module->info->globals; at != module->info->globals_end; at++) {
        uint64_t start = (uint64_t)(uintptr_t)(*at)->address;
        struct allocation *made;
        if (memory_list(start, (*at)->size, MEMORY_GLOBAL, module->context, &made) != CUDA_SUCCESS ||
            !access_add_range(start, start + (*at)->size))
            return false;
    }
    return true;
}

// Unloaded modules; graphs may still point to their functions.
static CUmodule forgotten;

// What is listed is taken off; the object itself stays mapped, and function handles stay allocated.
static void module_forget(CUmodule module)
{
    for (const gravel_soft_global *const *at = module->info->globals; at != module->info->globals_end; at++) {
        uint64_t start = (uint64_t)(uintptr_t)(*at)->address;
        struct allocation *allocation = memory_find(start);
        if (!allocation || allocation->kind != MEMORY_GLOBAL)
            continue;
        access_remove_range(start, start + (*at)->size);
        memory_delete(allocation);
    }
    for (size_t i = 0; i < module->function_count; i++)
        if (module->functions[i])
            object_unregister(&module->functions[i]->object);
    object_unregister(&module->object);
    module->forgotten = forgotten;
    forgotten = module;
}

static CUresult module_new(void *handle, CUcontext context, CUmodule *module)
{
    const gravel_soft_module_info *info = dlsym(handle, GRAVEL_SOFT_MODULE_SYMBOL);
    if (!info || info->abi != GRAVEL_SOFT_ABI)
        return CUDA_ERROR_INVALID_IMAGE;
    size_t count = (size_t)(info->kernels_end - info->kernels);
    CUmodule made = gv_calloc(1, sizeof *made);
    CUfunction *functions = gv_calloc(count + 1, sizeof *functions);
    if (!made || !functions || !object_register(&made->object, OBJECT_MODULE)) {
        gv_free(made);
        gv_free(functions);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made = (struct CUmod_st){made->object, context, info, functions, count, NULL};
    bool complete = true;
    for (size_t i = 0; i < count && complete; i++) {
        CUfunction function = gv_calloc(1, sizeof *function);
        complete = function && object_register(&function->object, OBJECT_FUNCTION);
        if (!complete) {
            gv_free(function);
            break;
        }
        function->module = made;
        function->kernel = info->kernels[i];
        function->dynamic_shared_limit = 48 * 1024;
        functions[i] = function;
    }
    if (!complete || !add_globals(made)) {
        module_forget(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    info->connect(&hooks);
    *module = made;
    return CUDA_SUCCESS;
}

static CUresult load(CUmodule *module, const char *path, const void *image)
{
    if (!module || (!path && !image))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS)
        return result;
    CUcontext context;
    result = context_current(&context);
    driver_leave(result);
    if (result != CUDA_SUCCESS)
        return result;
    void *handle = NULL;
    if (path) {
        result = open_path(path, &handle);
    } else {
        size_t size = image_size(image);
        handle = size ? open_image(image, size) : NULL;
        result = handle ? CUDA_SUCCESS : size ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (result != CUDA_SUCCESS)
        return result;
    result = driver_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return driver_leave(module_new(handle, context, module));
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    return load(module, path, NULL);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return load(module, NULL, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                            void **values)
{
    if (count && (!options || !values))
        return CUDA_ERROR_INVALID_VALUE;
    return load(module, NULL, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return load(module, NULL, image);
}

static CUresult module_unload(CUmodule module)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!object_is(module, OBJECT_MODULE) || !module->context)
        return CUDA_ERROR_INVALID_HANDLE;
    result = capture_forbid_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    result = context_wait(module->context);
    if (object_is(module, OBJECT_MODULE))
        module_forget(module);
    return result;
}

CUresult cuModuleUnload(CUmodule module)
{
    SOFT_API(module_unload(module));
}

static void forget_if_of(struct object *object, void *context)
{
    if (((CUmodule)object)->context == context)
        module_forget((CUmodule)object);
}

void module_delete_context(CUcontext context)
{
    object_each(OBJECT_MODULE, forget_if_of, context);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *loading)
{
    if (!loading)
        return CUDA_ERROR_INVALID_VALUE;
    *loading = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

static CUresult find_function(CUfunction *function, CUmodule module, const char *name)
{
    if (!object_is(module, OBJECT_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!function || !name)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < module->function_count; i++) {
        if (strcmp(module->functions[i]->kernel->name, name) == 0) {
            *function = module->functions[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    SOFT_API(find_function(function, module, name));
}

static CUresult find_global(CUdeviceptr *address, size_t *size, CUmodule module, const char *name)
{
    if (!object_is(module, OBJECT_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!name || (!address && !size))
        return CUDA_ERROR_INVALID_VALUE;
    for (const gravel_soft_global *const *at = module->info->globals; at != module->info->globals_end; at++) {
        if (strcmp((*at)->name, name) != 0)
            continue;
        if (address)
            *address = (CUdeviceptr)(uintptr_t)(*at)->address;
        if (size)
            *size = (*at)->size;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name)
{
    SOFT_API(find_global(address, size, module, name));
}

struct listing {
    gravel_soft_variable_callback callback;
    void *user;
    CUcontext context;
};

static void list_variables_of(struct object *object, void *user)
{
    const struct listing *listing = user;
    CUmodule module = (CUmodule)object;
    if (module->context && module->context != listing->context)
        return;
    for (const gravel_soft_global *const *at = module->info->globals; at != module->info->globals_end; at++)
        listing->callback(listing->user, module, (uint64_t)(uintptr_t)(*at)->address, (*at)->size);
}

int module_list_variables(gravel_soft_variable_callback callback, void *user)
{
    struct listing listing = {callback, user, NULL};
    if (driver_enter() != CUDA_SUCCESS)
        return -1;
    CUresult result = context_current(&listing.context);
    if (result == CUDA_SUCCESS)
        object_each(OBJECT_MODULE, list_variables_of, &listing);
    return driver_leave(result) == CUDA_SUCCESS ? 0 : -1;
}

static CUresult function_count(unsigned *count, CUmodule module)
{
    if (!object_is(module, OBJECT_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (unsigned)module->function_count;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
    SOFT_API(function_count(count, module));
}

static CUresult enumerate_functions(CUfunction *functions, unsigned count, CUmodule module)
{
    if (!object_is(module, OBJECT_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!functions)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        functions[i] = i < module->function_count ? module->functions[i] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule module)
{
    SOFT_API(enumerate_functions(functions, count, module));
}

// ---- Functions ----

CUfunction function_resolve(const void *handle)
{
    if (object_is(handle, OBJECT_FUNCTION))
        return (CUfunction)handle;
    if (object_is(handle, OBJECT_KERNEL))
        return ((CUkernel)handle)->function;
    return NULL;
}

size_t function_block_size(CUfunction function)
{
    const gravel_soft_kernel *kernel = function->kernel;
    if (!kernel->parameter_count)
        return 0;
    const gravel_soft_parameter *last = &kernel->parameters[kernel->parameter_count - 1];
    return last->offset + last->size;
}

static CUresult function_name(const char **name, const void *handle)
{
    CUfunction function = function_resolve(handle);
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = function->kernel->name;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction function)
{
    SOFT_API(function_name(name, function));
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    SOFT_API(function_name(name, kernel));
}

static CUresult parameter_info(const void *handle, size_t index, size_t *offset, size_t *size)
{
    CUfunction function = function_resolve(handle);
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!offset || index >= function->kernel->parameter_count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = function->kernel->parameters[index].offset;
    if (size)
        *size = function->kernel->parameters[index].size;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    SOFT_API(parameter_info(function, index, offset, size));
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
    SOFT_API(parameter_info(kernel, index, offset, size));
}

static CUresult function_attribute(int *value, CUfunction_attribute attribute, const void *handle)
{
    CUfunction function = function_resolve(handle);
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!value || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->dynamic_shared_limit; break;
    default: *value = 0; break;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    SOFT_API(function_attribute(value, attribute, function));
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)
{
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    SOFT_API(function_attribute(value, attribute, kernel));
}

static CUresult function_set_attribute(const void *handle, CUfunction_attribute attribute, int value)
{
    CUfunction function = function_resolve(handle);
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        if (value < 0 || value > 227 * 1024)
            return CUDA_ERROR_INVALID_VALUE;
        function->dynamic_shared_limit = value;
        return CUDA_SUCCESS;
    }
    // Hints about the cache and the cluster, and values that cannot be set.
    return attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    SOFT_API(function_set_attribute(function, attribute, value));
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    SOFT_API(function_set_attribute(kernel, attribute, value));
}

static CUresult function_cache(const void *handle)
{
    return function_resolve(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    SOFT_API(function_cache(function));
}

static CUresult function_module(CUmodule *module, CUfunction function)
{
    if (!object_is(function, OBJECT_FUNCTION))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    *module = function->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    SOFT_API(function_module(module, function));
}

static CUresult function_loaded(CUfunctionLoadingState *state, CUfunction function)
{
    if (!object_is(function, OBJECT_FUNCTION))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    SOFT_API(function_loaded(state, function));
}

CUresult cuFuncLoad(CUfunction function)
{
    SOFT_API(function_cache(function));
}

// ---- Libraries: modules that belong to no context ----

static void library_free(CUlibrary library)
{
    for (size_t i = 0; i < library->module->function_count; i++) {
        if (!library->kernels[i])
            continue;
        library->module->functions[i]->library_kernel = NULL;
        object_unregister(&library->kernels[i]->object);
        gv_free(library->kernels[i]);
    }
    module_forget(library->module);
    object_unregister(&library->object);
    gv_free(library->kernels);
    gv_free(library);
}

static CUresult library_new(CUlibrary *library, void *handle)
{
    CUmodule module;
    CUresult result = module_new(handle, NULL, &module);
    if (result != CUDA_SUCCESS)
        return result;
    CUlibrary made = gv_calloc(1, sizeof *made);
    struct CUkern_st **kernels = gv_calloc(module->function_count + 1, sizeof *kernels);
    if (!made || !kernels || !object_register(&made->object, OBJECT_LIBRARY)) {
        gv_free(made);
        gv_free(kernels);
        module_forget(module);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->module = module;
    made->kernels = kernels;
    for (size_t i = 0; i < module->function_count; i++) {
        CUkernel kernel = gv_calloc(1, sizeof *kernel);
        if (!kernel || !object_register(&kernel->object, OBJECT_KERNEL)) {
            gv_free(kernel);
            library_free(made);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        kernel->library = made;
        kernel->function = module->functions[i];
        kernels[i] = module->functions[i]->library_kernel = kernel;
    }
    *library = made;
    return CUDA_SUCCESS;
}

static CUresult library_load(CUlibrary *library, const char *path, const void *image)
{
    if (!library || (!path && !image))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS)
        return result;
    driver_leave(result);
    void *handle = NULL;
    if (path) {
        result = open_path(path, &handle);
    } else {
        size_t size = image_size(image);
        handle = size ? open_image(image, size) : NULL;
        result = handle ? CUDA_SUCCESS : size ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (result != CUDA_SUCCESS)
        return result;
    result = driver_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return driver_leave(library_new(library, handle));
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit, void **jit_values,
                               unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count)
{
    return library_load(library, path, NULL);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *jit, void **jit_values,
                           unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count)
{
    return library_load(library, NULL, image);
}

static CUresult library_unload(CUlibrary library)
{
    if (!object_is(library, OBJECT_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    library_free(library);
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    SOFT_API(library_unload(library));
}

static CUresult library_kernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    if (!object_is(library, OBJECT_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    CUfunction function;
    CUresult result = kernel ? find_function(&function, library->module, name) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *kernel = function->library_kernel;
    return result;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    SOFT_API(library_kernel(kernel, library, name));
}

static CUresult library_module(CUmodule *module, CUlibrary library)
{
    if (!object_is(library, OBJECT_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    *module = library->module;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    SOFT_API(library_module(module, library));
}

static CUresult library_global(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name)
{
    if (!object_is(library, OBJECT_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    return find_global(address, size, library->module, name);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name)
{
    SOFT_API(library_global(address, size, library, name));
}

static CUresult library_count(unsigned *count, CUlibrary library)
{
    if (!object_is(library, OBJECT_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    return function_count(count, library->module);
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library)
{
    SOFT_API(library_count(count, library));
}

static CUresult library_enumerate(CUkernel *kernels, unsigned count, CUlibrary library)
{
    if (!object_is(library, OBJECT_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!kernels)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        kernels[i] = i < library->module->function_count ? library->kernels[i] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary library)
{
    SOFT_API(library_enumerate(kernels, count, library));
}

static CUresult kernel_function(CUfunction *function, CUkernel kernel)
{
    if (!object_is(kernel, OBJECT_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    *function = kernel->function;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    SOFT_API(kernel_function(function, kernel));
}

static CUresult kernel_library(CUlibrary *library, CUkernel kernel)
{
    if (!object_is(kernel, OBJECT_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!library)
        return CUDA_ERROR_INVALID_VALUE;
    *library = kernel->library;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    SOFT_API(kernel_library(library, kernel));
}
