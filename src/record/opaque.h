// What becomes known of a kernel whose accesses the source does not all report: extents from its tensor maps and from
// what its parameters lead to, and writes from comparing memory before and after it. docs/opaque-nodes.md says what of
// it is exact and why.
//
// Runs within one armed replay: the context is current, nothing else runs in it, and no memory of it is freed.
#ifndef GV_RECORD_OPAQUE_H
#define GV_RECORD_OPAQUE_H

#include "record/reach.h"
#include "record/source.h"
#include "trace/record.h"

#include <cuda.h>
#include <stdbool.h>

typedef struct gv_opaque gv_opaque;

// One record for the trace.
typedef struct gv_opaque_set {
    enum gv_access_source source;
    enum gv_access_precision precision;
    gv_node_ranges ranges;
} gv_opaque_set;

// Cheap: what costs something waits for the first kernel that needs it. NULL when memory is out.
gv_opaque *gv_opaque_open(CUcontext context, CUstream stream);

// Frees all device memory it took. The context must be idle. NULL is allowed.
void gv_opaque_close(gv_opaque *opaque);

// The context is being destroyed: what is kept for it from one replay to the next is gone with it.
void gv_opaque_forget(CUcontext context);

// A kernel is about to run. `flags` (enum gv_function_flag) is what the source may not report of it. Takes note of what
// it can reach, and saves what it may write unseen. Does nothing for a kernel that everything is reported of.
void gv_opaque_before(gv_opaque *opaque, CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params, unsigned flags);

// On the software driver: hides from what was recorded of the kernel what GRAVEL_SOFT_BLIND says. False: memory is out.
bool gv_opaque_hide(gv_opaque *opaque, const char *name, gv_node_ranges *seen);

// The kernel has run, and the source did not report everything.
typedef struct gv_opaque_case {
    CUfunction function;
    const CUDA_KERNEL_NODE_PARAMS *params;
    unsigned flags;                       // what was not reported
    bool anything;                        // or something that the flags do not name
    bool constants;                       // reads of __constant__ variables matter
    const char *reason;                   // why it was not reported
    const gv_node_ranges *seen, *extents; // what was reported

    // Runs the kernel once more and waits for it; hands over what was reported, as above. `recorded` tells whether it
    // was. NULL: it must not run again.
    CUresult (*again)(void *user, gv_node_ranges *seen, gv_node_ranges *extents, bool *recorded);
    void *user;
    CUresult result; // set to an error of the program's own work that running it again brought to light
} gv_opaque_case;

// Finds out what can be found out. NULL: everything the kernel touches lies in what was reported and in the sets of
// gv_opaque_sets. Else why not (valid until the next call).
const char *gv_opaque_after(gv_opaque *opaque, gv_opaque_case *at);

// What gv_opaque_after found, for records of the node. Valid until the next call.
const gv_opaque_set *gv_opaque_sets(const gv_opaque *opaque, size_t *count);

// Every node's writes have to be told, so that addresses that a node stores are followed: what was written plainly or
// atomically, or NULL when that is not known.
void gv_opaque_written(gv_opaque *opaque, const gv_node_ranges *ranges);

// The kernels that work on memory, loaded in the current context, and handed back for the next replay. NULL: `error`
// says why they are not to be had.
gv_compare *gv_opaque_take_compare(CUcontext context, CUstream stream, gv_error *error);
void gv_opaque_keep_compare(CUcontext context, gv_compare *compare);

// ---- opaque_memory.c ----

// Lists all live memory of the context and its modules' variables. False when memory is out.
bool gv_opaque_list_memory(gv_reach *reach, CUcontext context, bool *device_heap);

// The gv_reach_options.look_up for memory that is not listed.
bool gv_opaque_look_up(uint64_t address, gv_range *memory, unsigned *flags, void *user);

#endif
