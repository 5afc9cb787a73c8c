// How a driver function is hooked: one macro declares the exported symbol, its entry in the table of hooks and the
// body.
//
// Hooks are exported under the driver's own (versioned) names, so that a program linked to libcuda binds to them by
// ordinary symbol interposition; the auditor and cuGetProcAddress hand out the same functions to everybody else.
// The C names are hook_<symbol>, set apart from cuda.h, whose macros map names to versions.
#ifndef GV_RECORD_HOOK_H
#define GV_RECORD_HOOK_H

#include "record/driver.h"

#include <cuda.h>
#include <stdbool.h>

// cuda.h maps these names to their newest versions; here each version is hooked under its own name.
#undef cuGetProcAddress
#undef cuGetProcAddress_v2
#undef cuStreamBeginCapture
#undef cuIpcOpenMemHandle
#undef cuStreamWriteValue32
#undef cuStreamWriteValue64
#undef cuStreamWaitValue32
#undef cuStreamWaitValue64
#undef cuStreamBatchMemOp
#undef cuGraphAddKernelNode
#undef cuGraphAddNode
#undef cuGraphInstantiate
#undef cuGraphExecUpdate
#undef cuGraphExecKernelNodeSetParams

#define GV_EXPORT __attribute__((visibility("default")))

// One hooked symbol. The linker section "gv_hooks" is the table of pointers to all of them: pointers, because the
// compiler may align (and the linker would then pad) structs as it likes.
typedef struct gv_hook {
    const char *symbol; // exported name, e.g. "cuStreamSynchronize_ptsz"
    void *function;     // our replacement
    void *real;         // the driver's, found on first use
} gv_hook;

// The driver's function behind a hook, or NULL when this driver does not have it.
void *gv_hook_real(gv_hook *hook);

#define GV_UNPACK(...) __VA_ARGS__

#define GV_HOOK_ENTRY(symbol)                                               \
    static gv_hook entry_##symbol = {#symbol, (void *)hook_##symbol, NULL}; \
    static gv_hook *const listed_##symbol __attribute__((section("gv_hooks"), used)) = &entry_##symbol;

// Declares and defines the exported function for `symbol` that calls body_<body> with the real function.
#define GV_HOOK_SYMBOL(body, symbol, per_thread, parameters, arguments)   \
    GV_EXPORT CUresult hook_##symbol parameters __asm__(#symbol);         \
    GV_HOOK_ENTRY(symbol)                                                 \
    CUresult hook_##symbol parameters                                     \
    {                                                                     \
        type_##body *real = (type_##body *)gv_hook_real(&entry_##symbol); \
        if (!real)                                                        \
            return CUDA_ERROR_NOT_FOUND;                                  \
        return body_##body(real, per_thread, GV_UNPACK arguments);        \
    }

#define GV_HOOK_BODY(body, parameters)       \
    typedef CUresult type_##body parameters; \
    static CUresult body_##body(type_##body *real, bool per_thread, GV_UNPACK parameters);

// A function that exists once. Followed by the body: { ... } with `real`, `per_thread` and the parameters in scope.
#define GV_HOOK(symbol, parameters, arguments)                   \
    GV_HOOK_BODY(symbol, parameters)                             \
    GV_HOOK_SYMBOL(symbol, symbol, false, parameters, arguments) \
    static CUresult body_##symbol(type_##symbol *real, bool per_thread, GV_UNPACK parameters)

// A function with a per-thread-default-stream variant, symbol<suffix> (_ptsz or _ptds).
#define GV_HOOK_PAIR(symbol, suffix, parameters, arguments)             \
    GV_HOOK_BODY(symbol, parameters)                                    \
    GV_HOOK_SYMBOL(symbol, symbol, false, parameters, arguments)        \
    GV_HOOK_SYMBOL(symbol, symbol##suffix, true, parameters, arguments) \
    static CUresult body_##symbol(type_##symbol *real, bool per_thread, GV_UNPACK parameters)

#endif
