// Kernel names arrive mangled. They are demangled with __cxa_demangle of libstdc++: its licence has the GCC runtime
// library exception, so it may be linked into this program, and linked statically it brings in one object file of C
// and no C++ run time. (The demanglers of libiberty and of elfutils' programs are under the GPL without exception.)
#include "report/names.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// The Itanium C++ ABI's demangler (section 3.4 of the ABI); declared here because <cxxabi.h> is a C++ header.
extern char *__cxa_demangle(const char *mangled, char *buffer, size_t *length, int *status);

void gv_name_demangle(gv_string *out, const char *name)
{
    if (strncmp(name, "_Z", 2) == 0 && strnlen(name, GV_NAME_DEMANGLE_MAX + 1) <= GV_NAME_DEMANGLE_MAX) {
        int status = -1;
        char *plain = __cxa_demangle(name, NULL, NULL, &status);
        if (status == 0 && plain) {
            gv_string_add_safe(out, plain);
            free(plain); // NOLINT: comes from malloc inside libstdc++
            return;
        }
    }
    gv_string_add_safe(out, name);
}

// The end of the name proper: the '(' that opens the parameter list, or the end. "(anonymous namespace)" and
// parentheses within template arguments belong to the name.
static size_t parameters_start(const char *name)
{
    size_t depth = 0;
    for (size_t i = 0; name[i]; i++) {
        if (strncmp(name + i, "(anonymous namespace)", 21) == 0)
            i += 20;
        else if (strncmp(name + i, "operator", 8) == 0)
            i += 7 + strspn(name + i + 8, "<>=()-");
        else if (name[i] == '<')
            depth++;
        else if (name[i] == '>' && depth)
            depth--;
        else if (name[i] == '(' && !depth)
            return i;
    }
    return strlen(name);
}

// Where the name begins after a return type, which the demangler gives for templates: "void ns::kernel<int>".
static size_t name_start(const char *name, size_t end)
{
    size_t depth = 0, start = 0;
    for (size_t i = 0; i < end; i++) {
        if (strncmp(name + i, "(anonymous namespace)", 21) == 0)
            i += 20;
        else if (strncmp(name + i, "operator", 8) == 0)
            break;
        else if (name[i] == '<' || name[i] == '(')
            depth++;
        else if ((name[i] == '>' || name[i] == ')') && depth)
            depth--;
        else if (name[i] == ' ' && !depth)
            start = i + 1;
    }
    return start;
}

static bool is_identifier(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
           c == '~';
}

// Adds the name without namespaces and enclosing classes, in the template arguments too: what is left is the part that
// tells one kernel of a library from another.
static void add_unqualified(gv_string *out, const char *name, size_t length)
{
    static const char unnamed[] = "(anonymous namespace)::";
    for (size_t i = 0; i < length;) {
        if (length - i >= sizeof unnamed - 1 && strncmp(name + i, unnamed, sizeof unnamed - 1) == 0) {
            i += sizeof unnamed - 1;
            continue;
        }
        size_t end = i;
        while (end < length && is_identifier(name[end]))
            end++;
        bool qualifier = end > i && end + 2 < length && name[end] == ':' && name[end + 1] == ':';
        if (end == i)
            end++;
        if (!qualifier)
            gv_string_add_bytes(out, name + i, end - i);
        i = qualifier ? end + 2 : end;
    }
}

// Keeps whole template arguments of the outermost list as long as they fit and ends with "...>".
static void add_cut_arguments(gv_string *out, const char *name, size_t length, size_t width)
{
    const char *open = memchr(name, '<', length);
    if (!open) {
        // Nothing sensible to leave out: a Triton kernel's name is one long word. Its beginning says most.
        size_t keep = width > 3 ? width - 3 : width;
        while (keep && ((unsigned char)name[keep] & 0xc0) == 0x80)
            keep--;
        gv_string_add_bytes(out, name, keep);
        gv_string_add(out, "...");
        return;
    }
    size_t kept = (size_t)(open - name) + 1, depth = 0;
    for (size_t i = kept; i < length; i++) {
        if (name[i] == '<' || name[i] == '(') {
            depth++;
        } else if ((name[i] == '>' || name[i] == ')') && depth) {
            depth--;
        } else if (name[i] == ',' && !depth) {
            if (i + 6 > width)
                break;
            kept = i + 1;
        }
    }
    gv_string_add_bytes(out, name, kept);
    gv_string_add(out, "%s...>", name[kept - 1] == ',' ? " " : "");
}

void gv_name_shorten(gv_string *out, const char *name, size_t width)
{
    gv_string plain = {0};
    gv_name_demangle(&plain, name);
    const char *text = gv_string_text(&plain);
    // Only a demangled name has a return type and parameters to take off; others are names of C or Triton kernels.
    size_t end = strncmp(name, "_Z", 2) == 0 ? parameters_start(text) : strlen(text);
    size_t start = strncmp(name, "_Z", 2) == 0 ? name_start(text, end) : 0;
    size_t length = end - start;
    text += start;
    gv_string unqualified = {0};
    if (length > width) {
        add_unqualified(&unqualified, text, length);
        text = gv_string_text(&unqualified);
        length = unqualified.length;
    }
    if (length > width)
        add_cut_arguments(out, text, length, width);
    else
        gv_string_add_bytes(out, text, length);
    out->failed |= plain.failed || unqualified.failed;
    gv_string_free(&unqualified);
    gv_string_free(&plain);
}

const char *gv_node_kind_name(enum gv_node_kind kind)
{
    switch (kind) {
    case GV_NODE_KERNEL: return "kernel";
    case GV_NODE_MEMCPY: return "memcpy";
    case GV_NODE_MEMSET: return "memset";
    case GV_NODE_HOST: return "host function";
    case GV_NODE_CHILD: return "child graph";
    case GV_NODE_EMPTY: return "empty";
    case GV_NODE_EVENT_WAIT: return "event wait";
    case GV_NODE_EVENT_RECORD: return "event record";
    case GV_NODE_SEMAPHORE_SIGNAL: return "semaphore signal";
    case GV_NODE_SEMAPHORE_WAIT: return "semaphore wait";
    case GV_NODE_ALLOC: return "memory allocation";
    case GV_NODE_FREE: return "memory free";
    case GV_NODE_BATCH_MEMOP: return "batch memory operation";
    case GV_NODE_CONDITIONAL: return "conditional";
    }
    return "node";
}

void gv_node_name(gv_string *out, const gv_trace *trace, const gv_graph *graph, uint64_t node, size_t width)
{
    if (!graph || node >= graph->node_count) {
        gv_string_add(out, "node");
        return;
    }
    const gv_node *row = &graph->nodes[node];
    const char *name = row->kind == GV_NODE_KERNEL && row->function < trace->function_count
                           ? trace->functions[row->function].name
                           : NULL;
    if (name && *name)
        gv_name_shorten(out, name, width);
    else if (row->kind == GV_NODE_CHILD && row->child)
        gv_string_add(out, "child graph #%" PRIu64, row->child);
    else
        gv_string_add(out, "%s", gv_node_kind_name(row->kind));
}
