// Kernel and function names as a person reads them.
#ifndef GV_REPORT_NAMES_H
#define GV_REPORT_NAMES_H

#include "report/format.h"
#include "trace/trace.h"

// Longest name that is demangled. Names come from the traced program and a crafted one can make a demangler slow.
enum { GV_NAME_DEMANGLE_MAX = 8192 };

// Adds the demangled form of `name` (Itanium C++ ABI), or the name itself where it is not mangled.
void gv_name_demangle(gv_string *out, const char *name);

// Adds a short form of at most `width` columns where that can be had: without return type and parameter list; if that
// is too long, without namespaces; and if need be with the last template arguments cut: "kernel<4, FillFunctor<float>,
// ...>".
void gv_name_shorten(gv_string *out, const char *name, size_t width);

// Adds what a node is called in reports: a kernel's short name, else what the node does ("memcpy", "memset").
void gv_node_name(gv_string *out, const gv_trace *trace, const gv_graph *graph, uint64_t node, size_t width);

// One word for a node's kind: "kernel", "memcpy", ... "node" for a kind of a later CUDA.
const char *gv_node_kind_name(enum gv_node_kind kind);

#endif
