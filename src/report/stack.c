#include "report/stack.h"

#include "report/names.h"

#include <inttypes.h>
#include <string.h>

// Packages whose frames stand between a program and its kernels. An engine that is itself an installed package
// (sglang, vllm) is the program, so that a folder of packages alone makes no library.
static const char *const python_packages[] = {
    "torch",   "triton",     "torchvision", "jax",      "jaxlib",
    "cupy",    "numba",      "numpy",       "nvidia",   "cuda",
    "cutlass", "flashinfer", "flash_attn",  "xformers", "transformer_engine",
    "apex",    "deep_gemm",  "tilelang",    "tvm",      "warp",
};

// Beginnings of shared objects' names. libnv* are CUDA's compiler and math libraries.
static const char *const library_prefixes[] = {
    "libcuda.",
    "libcudart",
    "libcublas",
    "libcudnn",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcupti",
    "libcutensor",
    "libnccl",
    "libnv",
    "libnpp",
    "libgravel-",
    "libtorch",
    "libc10",
    "libshm.",
    "libtriton",
    "__triton_launcher",
    "cuda_utils.",
    "libjax",
    "libxla",
    "xla_extension",
    "pjrt_c_api",
    "libpython",
    "libc.",
    "libc-",
    "libm.",
    "libm-",
    "libpthread",
    "libdl.",
    "libdl-",
    "librt.",
    "ld-linux",
    "libstdc++",
    "libgcc_s",
    "libgomp",
    "libffi",
    "libasan",
    "libtsan",
    "libubsan",
    "linux-vdso",
};

bool gv_module_is_library(const char *path)
{
    if (!path)
        return true;
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof library_prefixes / sizeof *library_prefixes; i++) {
        if (strncmp(name, library_prefixes[i], strlen(library_prefixes[i])) == 0)
            return true;
    }
    // The interpreter ("python3", "python3.12"): its own frames say nothing about the script it runs.
    if (strncmp(name, "python", 6) == 0 && name[6 + strspn(name + 6, "0123456789.")] == '\0')
        return true;
    return *name == '\0' || *name == '[';
}

bool gv_python_file_is_library(const char *file)
{
    if (!file || strncmp(file, "<frozen ", 8) == 0)
        return true;
    const char *package = strstr(file, "-packages/");
    if (!package) {
        // Python's own library: ".../lib/python3.12/contextlib.py".
        const char *library = strstr(file, "/lib/python");
        return library && library[11] >= '0' && library[11] <= '9';
    }
    // The last "-packages/" counts: an environment may itself lie inside another's folder.
    for (const char *next = package; next; next = strstr(next + 1, "-packages/"))
        package = next;
    package += strlen("-packages/");
    size_t length = strcspn(package, "/.");
    for (size_t i = 0; i < sizeof python_packages / sizeof *python_packages; i++) {
        if (strlen(python_packages[i]) == length && strncmp(package, python_packages[i], length) == 0)
            return true;
    }
    return false;
}

bool gv_frame_is_generated(const char *file, const char *function)
{
    static const char *const files[] = {
        "cuda_runtime.h", "cuda_runtime_api.h", "host_runtime.h", "/include/crt/", ".stub.c",
        "tmpxft_",        "/include/c++/"};
    for (size_t i = 0; file && i < sizeof files / sizeof *files; i++) {
        if (strstr(file, files[i]))
            return true;
    }
    if (file && strncmp(file, "/usr/include/", 13) == 0)
        return true;
    return function && (strstr(function, "__device_stub_") || strstr(function, "udaLaunchKernel"));
}

const char *gv_stub_kernel(const char *function)
{
    static const char mark[] = "__device_stub_";
    const char *found = function ? strstr(function, mark) : NULL;
    return found ? found + sizeof mark - 1 : NULL;
}

bool gv_stub_is_of(const char *stub_kernel, const char *function)
{
    if (!stub_kernel || !function)
        return false;
    // Behind a mangled kernel name stand the mangled parameters of the stub itself.
    if (strncmp(function, "_Z", 2) == 0)
        return strncmp(stub_kernel, function, strlen(function)) == 0;
    return strcmp(stub_kernel, function) == 0;
}

static gv_place python_place(const gv_python_frame *frame)
{
    return (gv_place){.kind = GV_PLACE_PYTHON, .file = frame->file, .function = frame->function, .line = frame->line};
}

static gv_place host_place(const gv_trace *trace, const gv_host_frame *frame)
{
    return (gv_place){
        .kind = frame->file ? GV_PLACE_HOST : GV_PLACE_MODULE,
        .file = frame->file,
        .function = frame->function,
        .line = frame->line,
        .module = frame->module < trace->module_count ? trace->modules[frame->module].path : NULL,
        .address = frame->address,
    };
}

gv_place gv_stack_place(const gv_trace *trace, uint64_t id)
{
    if (id == 0 || id >= trace->stack_count)
        return (gv_place){.kind = GV_PLACE_NONE};
    const gv_stack *stack = &trace->stacks[id];
    for (size_t i = 0; i < stack->python_count; i++) {
        if (!gv_python_file_is_library(stack->python[i].file))
            return python_place(&stack->python[i]);
    }
    const gv_host_frame *named = NULL, *own = NULL;
    const char *stub = NULL; // the kernel whose launch stub was the innermost one seen
    for (size_t i = 0; i < stack->host_count; i++) {
        const gv_host_frame *frame = &stack->host[i];
        const char *module = frame->module < trace->module_count ? trace->modules[frame->module].path : NULL;
        const char *launched = gv_stub_kernel(frame->function);
        // A template's stub has a wrapper around it, which names the kernel in a way of its own.
        stub = launched && strncmp(launched, "_Z", 2) == 0 ? launched : stub;
        // The host function that bears the kernel's name only calls the stub: its line is the kernel's definition.
        if (gv_module_is_library(module) || gv_frame_is_generated(frame->file, frame->function) ||
            gv_stub_is_of(stub, frame->function))
            continue;
        if (frame->file)
            return host_place(trace, frame);
        if (!named && frame->function)
            named = frame;
        if (!own)
            own = frame;
    }
    if (named || own)
        return host_place(trace, named ? named : own);
    if (stack->python_count)
        return python_place(&stack->python[0]);
    if (stack->host_count)
        return host_place(trace, &stack->host[0]);
    return (gv_place){.kind = GV_PLACE_NONE};
}

const char *gv_short_path(const char *path)
{
    const char *last = NULL, *before = NULL;
    for (const char *next = path; *next; next++) {
        if (*next == '/') {
            before = last;
            last = next;
        }
    }
    return before ? before + 1 : path[0] == '/' && last == path ? path + 1 : path;
}

void gv_place_line(gv_string *out, const gv_place *place)
{
    if (!place->file)
        return;
    gv_string_add_safe(out, gv_short_path(place->file));
    gv_string_add(out, ":%" PRIu64, place->line);
}

void gv_place_print(gv_string *out, const gv_place *place)
{
    switch (place->kind) {
    case GV_PLACE_NONE: gv_string_add(out, "an unknown place (no call stack was recorded)"); return;
    case GV_PLACE_PYTHON:
    case GV_PLACE_HOST:
        gv_place_line(out, place);
        if (place->function && *place->function) {
            gv_string_add(out, " in ");
            gv_name_shorten(out, place->function, 60);
        }
        return;
    case GV_PLACE_MODULE:
        if (place->function && *place->function) {
            gv_name_shorten(out, place->function, 60);
            gv_string_add(out, " in ");
        }
        gv_string_add_safe(out, place->module ? gv_short_path(place->module) : "an unknown module");
        gv_string_add(out, " (+0x%" PRIx64 ")", place->address);
        return;
    }
}
