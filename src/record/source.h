// Where the exact accesses of a kernel come from: one small interface, two sources (the Sanitizer's patches on a GPU,
// the software driver). Copies and sets need none: their parameters say it all.
#ifndef GV_RECORD_SOURCE_H
#define GV_RECORD_SOURCE_H

#include "base/error.h"
#include "device/access_table.h"
#include "trace/ranges.h"
#include "trace/record.h"

#include <cuda.h>
#include <stdbool.h>

// The ranges one node touched, by kind; normalised. Re-used from node to node.
typedef struct gv_node_ranges {
    gv_range *ranges[GV_ACCESS_KINDS];
    size_t count[GV_ACCESS_KINDS], capacity[GV_ACCESS_KINDS];
} gv_node_ranges;

// Appends a range that begins at or after the end of the last one of its kind, joining adjacent ones.
bool gv_node_ranges_append(gv_node_ranges *ranges, enum gv_access_kind kind, uint64_t start, uint64_t end);
void gv_node_ranges_clear(gv_node_ranges *ranges);
void gv_node_ranges_free(gv_node_ranges *ranges);

struct gv_condition_setter;

// How a kernel behind programmatic edges stands to its grid-dependency wait (rule 6 of docs/order.md). Re-used from
// node to node.
typedef struct gv_wait_observation {
    enum gv_grid_wait wait;
    enum gv_grid_trigger trigger;
    gv_node_ranges early;   // what came before the wait, with GV_GRID_WAIT_DONE
    bool unseen_come_after; // and what the source does not report, if there is any, came after it
    char reason[256];       // why the wait was not observed, with GV_GRID_WAIT_UNKNOWN
} gv_wait_observation;

// A source records the kernels that the calling thread launches between `before` and `after`.
typedef struct gv_recording_source {
    unsigned id; // enum gv_access_source in trace/record.h

    // Makes ready to record in this context (patches its modules). Called with the context current and idle. `waits`:
    // there are kernels behind programmatic edges.
    gv_status (*open)(CUcontext context, CUstream stream, bool waits, gv_error *error);

    // The next kernel launch is one to record.
    gv_status (*before)(gv_error *error);

    // The kernel has completed: hands over what it touched, and in `extents` ranges of which it touched some part that
    // is not known more exactly. What is not whole gives GV_ERR_LIMIT and a reason.
    gv_status (*after)(gv_node_ranges *ranges, gv_node_ranges *extents, gv_error *error);

    // Of a kernel behind programmatic edges: called first of all, before() next. *held is set when a kernel of the
    // source's own is in front of it now and holds it at its wait; it is to be launched with programmatic stream
    // serialization then, and release() called behind the launch, whether that succeeded or not.
    void (*expect_wait)(CUfunction function, bool *held);
    void (*release)(bool launched);

    // After a successful after(): what was observed. Sets all but the ranges' capacity.
    void (*wait_seen)(gv_wait_observation *observation);

    // Kernels are recorded that run in a graph, too, from now on; called behind `open`. What was launched between
    // `before` and `after` must then be a graph with one kernel of the program's. NULL: they always are.
    gv_status (*open_graphs)(gv_error *error);

    // Adds to a graph a node that sets its conditional handles (record/condition.h). `setter` stays valid while the
    // graph may run. NULL: this build cannot.
    gv_status (*add_setter)(CUgraph graph, const struct gv_condition_setter *setter, CUgraphNode *made,
                            gv_error *error);

    // Takes the patches off for work that is not to be recorded, and puts them on again; called with the context idle.
    // NULL: there are none.
    void (*suspend)(void);
    gv_status (*resume)(gv_error *error);

    // Leaves nothing behind: patches off, memory freed. Called with the context current and idle.
    void (*close)(void);
} gv_recording_source;

// The source that works in this process, or NULL with the reason (static text) in *why.
const gv_recording_source *gv_source(const char **why);

// One line for the process record: "soft", "sanitizer <path>", "none: reason".
void gv_source_describe(char *text, size_t size);

// enum gv_function_flag for a kernel: what there is in its machine code that a source may be blind to. 0: nothing.
unsigned gv_source_function_flags(CUfunction function, const char *name);

// Those of the flags that stand for accesses which were not reported for the kernel that the source recorded last:
// flags of tensor copies are left out where the Sanitizer reports them. For use after `after`.
unsigned gv_source_blind_flags(CUfunction function, const char *name);

// A variable in a module's global or constant memory.
typedef struct gv_variable {
    CUmodule module;
    uint64_t address, size;
} gv_variable;

// The variables of all modules of a context: what kernels reach without its being in their parameters.
typedef struct gv_variables {
    gv_variable *items;
    size_t count, capacity;
    CUmodule *unknown; // modules that have, or may have, variables that are not listed
    size_t unknown_count, unknown_capacity;
    bool heap; // some module allocates memory from the device
} gv_variables;

// Lists the variables of the modules in the current context. False when memory is out.
bool gv_source_variables(CUcontext context, gv_variables *variables);
void gv_variables_free(gv_variables *variables);

// Brackets the loading of device code of our own, which is not the program's.
void gv_source_loading_own(bool begins);

// ---- The sources ----
extern const gv_recording_source gv_source_soft;
bool gv_source_soft_ready(const char **why);

bool gv_soft_variables(gv_variables *variables);
unsigned gv_soft_function_flags(const char *name);

// Takes out of `ranges` what a kernel of GRAVEL_SOFT_BLIND is to hide of the accesses in `tensors` (ascending,
// disjoint). False when memory is out.
bool gv_soft_hide(const char *name, const gv_range *tensors, size_t count, gv_node_ranges *ranges);

extern const gv_recording_source gv_source_sanitizer;
bool gv_source_sanitizer_ready(const char **why);
unsigned gv_sanitizer_function_flags(CUfunction function, const char *name);
unsigned gv_sanitizer_blind_flags(CUfunction function, const char *name);
const char *gv_sanitizer_library(void);
bool gv_sanitizer_variables(CUcontext context, gv_variables *variables);
void gv_sanitizer_loading_own(bool begins);

#endif
