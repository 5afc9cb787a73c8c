// How control flows through a kernel's machine code around its grid-dependency wait: which instructions a thread can
// execute before it has waited, and which after.
#ifndef GV_RECORD_FLOW_H
#define GV_RECORD_FLOW_H

#include "trace/record.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct gv_kernel_flow {
    bool waits, triggers; // it has instructions that do
    bool calls;           // and some that call functions

    // What accesses memory lies either before its thread's wait or after it, and no thread can be let past the wait of
    // another by a barrier: where an instruction lies says all.
    bool split;
    enum gv_grid_trigger trigger; // of a kernel that is followed, if some thread of it gets past its wait
    bool followed;                // all ways through it could be followed: what is below holds, split or not
    unsigned early_flags;         // enum gv_function_flag: of what can be executed before the wait
    uint32_t instructions;        // of 16 bytes
    uint32_t *before, *after;     // one bit each; NULL when it does not wait
    uint32_t *watched;            // those that access memory or end a thread
} gv_kernel_flow;

// Follows a kernel's code from its first instruction on. `tables` says where its indexed branches go on, as the
// compiler left it in the module (value of EIATTR_INDIRECT_BRANCH_TARGETS): for each its offset, a zero, the number of
// places and their offsets, words of 32 bits. NULL, or where a branch is not listed: anywhere. False when memory is
// out. Free with gv_flow_free.
bool gv_flow_analyse(const unsigned char *code, size_t size, const unsigned char *tables, size_t tables_size,
                     gv_kernel_flow *flow);
void gv_flow_free(gv_kernel_flow *flow);

static inline bool gv_flow_has(const uint32_t *bits, size_t instruction)
{
    return bits[instruction / 32] >> instruction % 32 & 1;
}

// What the functions of a module do that are not kernels.
typedef struct gv_module_flow {
    bool waits, triggers;
} gv_module_flow;

// Calls `found` for each kernel of a module that waits, triggers, or calls functions where some do; what it is given is
// its own to free. False when `image` is not a cubin this code can read, or memory is out.
bool gv_cubin_flows(const void *image, size_t size, gv_module_flow *functions,
                    void (*found)(const char *kernel, gv_kernel_flow *flow, void *user), void *user);

#endif
