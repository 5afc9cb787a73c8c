// Which line of a call stack to name: the line of the program that a person can change, not the library's line that
// happens to be innermost.
#ifndef GV_REPORT_STACK_H
#define GV_REPORT_STACK_H

#include "report/format.h"
#include "trace/trace.h"

enum gv_place_kind {
    GV_PLACE_NONE,   // no stack was recorded
    GV_PLACE_PYTHON, // file, line and function of a Python frame
    GV_PLACE_HOST,   // file and line of compiled code
    GV_PLACE_MODULE  // compiled code whose source line is not known: module and address
};

// Points into the trace.
typedef struct gv_place {
    enum gv_place_kind kind;
    const char *file;     // NULL for GV_PLACE_MODULE
    const char *function; // NULL when not known
    uint64_t line;
    const char *module; // path; GV_PLACE_HOST and GV_PLACE_MODULE
    uint64_t address;   // within the module
} gv_place;

// Chooses the place of stack `id`: the innermost Python frame outside the frameworks and Python's own library; else
// the innermost line of compiled code outside CUDA's, the frameworks' and the system's libraries; else the innermost
// function of such code; else whatever is innermost.
gv_place gv_stack_place(const gv_trace *trace, uint64_t id);

// Is this file part of Python itself or of a package that launches kernels for others (PyTorch, Triton, ...)?
bool gv_python_file_is_library(const char *file);

// Is this shared object CUDA's, a framework's, gravel's or the system's? By the name of the file.
bool gv_module_is_library(const char *path);

// Is this a line that the CUDA compiler or a system header put into the program: a kernel's launch stub, the runtime
// API's inline wrappers, the C++ library's templates? Names as in the symbol table; each may be NULL.
bool gv_frame_is_generated(const char *file, const char *function);

// A kernel `k` has, on the host, a function of its own mangled name, which calls a stub whose name is "__device_stub_"
// and that mangled name (through a wrapper, where the kernel is a template). gv_stub_kernel returns what stands behind
// the mark in a stub's or wrapper's name, else NULL; gv_stub_is_of says whether `function` is that kernel's host
// function.
const char *gv_stub_kernel(const char *function);
bool gv_stub_is_of(const char *stub_kernel, const char *function);

// Adds "dir/file.py:12 in step", or "kernel_launch in engine (+0x1f40)", or "an unknown place".
void gv_place_print(gv_string *out, const gv_place *place);

// Adds "dir/file.py:12" alone, what suppressions match; nothing when no line is known.
void gv_place_line(gv_string *out, const gv_place *place);

// The last two components of a path: enough to tell model files apart, short enough for a report line.
const char *gv_short_path(const char *path);

#endif
