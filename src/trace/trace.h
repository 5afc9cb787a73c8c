// A whole trace in memory, with ids resolved: what detectors and reports work on.
#ifndef GV_TRACE_TRACE_H
#define GV_TRACE_TRACE_H

#include "base/error.h"
#include "trace/ranges.h"
#include "trace/record.h"

#include <stdbool.h>

typedef struct gv_python_frame {
    const char *file; // "" when not known
    const char *function;
    uint64_t line;
} gv_python_frame;

typedef struct gv_host_frame {
    uint64_t module;      // module id
    uint64_t address;     // within the module; a return address
    const char *function; // NULL: not resolved
    const char *file;     // NULL: not known
    uint64_t line;
} gv_host_frame;

typedef struct gv_stack {
    gv_host_frame *host; // innermost first
    size_t host_count;
    gv_python_frame *python; // innermost first
    size_t python_count;
} gv_stack;

typedef struct gv_module {
    const char *path;
    gv_bytes build_id;
} gv_module;

typedef struct gv_context {
    uint64_t device;
    const char *device_name;
    unsigned compute_capability;
} gv_context;

typedef struct gv_stream {
    uint64_t context;
    enum gv_stream_kind kind;
} gv_stream;

typedef struct gv_function {
    const char *name;
    unsigned flags; // enum gv_function_flag
} gv_function;

typedef struct gv_allocation {
    uint64_t address, size;
    enum gv_allocation_kind kind;
    uint64_t context, stack;
    uint64_t born;    // sequence number of the operation that made it
    uint64_t died;    // of the one that freed it; UINT64_MAX: still alive at the end
    const char *name; // may be NULL
} gv_allocation;

typedef struct gv_operation {
    uint64_t sequence, thread, stream, object, address, size, value, stack;
    enum gv_operation_kind kind;
    unsigned flags;
    gv_numbers detail;
} gv_operation;

typedef struct gv_node {
    enum gv_node_kind kind;
    uint64_t function, stack, stream, order, child, context;
    unsigned flags; // enum gv_node_flag
    gv_numbers shape, detail;
} gv_node;

typedef struct gv_edge {
    uint32_t from, to;       // node indices
    uint8_t from_port, type; // as CUgraphEdgeData: 0 0 ordinary, 1 1 programmatic, 2 1 launch order
} gv_edge;

typedef struct gv_graph {
    uint64_t id;
    enum gv_graph_origin origin;
    uint64_t stack, parent;
    uint64_t parent_node;
    const char *name; // "" when it has none
    unsigned flags;
    gv_node *nodes;
    size_t node_count;
    gv_edge *edges;
    size_t edge_count;
    bool whole; // all announced nodes and edges were there
} gv_graph;

// One row for each exec record: from that operation on, the exec runs that snapshot.
typedef struct gv_exec_version {
    uint64_t exec, graph, operation;
    unsigned flags;
} gv_exec_version;

typedef struct gv_access {
    uint64_t launch, graph;
    uint32_t node;
    enum gv_access_source source;
    enum gv_access_precision precision;
    gv_bytes reads, writes, atomics; // checked encodings
    const char *reason;              // NULL when exact
    uint64_t duration_ns;
    enum gv_grid_wait wait;
    enum gv_grid_trigger trigger;
    gv_bytes early_reads, early_writes, early_atomics; // checked encodings
    const char *wait_reason;                           // why the wait was not observed; NULL when there is none
    uint64_t execution;                                // of the body the node lies in; 0: in none
} gv_access;

// One execution of a body of a conditional node.
typedef struct gv_execution {
    uint64_t launch;
    uint64_t id, parent; // parent: an id of the same launch below `id`, or 0
    uint64_t graph;      // a body
} gv_execution;

typedef struct gv_armed {
    uint64_t launch, exec, graph;
    enum gv_armed_status status;
    const char *reason; // "" when complete
    uint64_t duration_ns;
    uint64_t node;                           // index + 1; 0: none
    size_t first_access, access_count;       // its rows in gv_trace.accesses, which are kept together
    size_t first_execution, execution_count; // its rows in gv_trace.executions, by id
} gv_armed;

// The bytes of one node that a checked launch and its serial replay left differently (record.h, difference).
typedef struct gv_difference {
    uint64_t launch, graph;
    uint64_t node; // index + 1; 0: none, or one that is not in the trace
    uint64_t position, bytes, unstable, range_count;
    gv_bytes ranges, value_ranges;        // checked encodings
    gv_bytes graph_values, serial_values; // each as long as value_ranges has bytes
} gv_difference;

// A launch that was chosen to be compared with serial replays.
typedef struct gv_checked {
    uint64_t launch, exec, graph;
    enum gv_checked_status status;
    const char *reason; // "" when it was compared
    uint64_t duration_ns, graph_ns, serial_ns, replays, saved_bytes, different_bytes, unstable_bytes, ignored_bytes;
    uint64_t order;                            // which serial order there are differences with, from 1
    size_t first_difference, difference_count; // its rows in gv_trace.differences, in the order of the serial replay
} gv_checked;

typedef struct gv_setting {
    uint64_t kind; // enum gv_setting_kind, or a number this build does not know
    const char *name, *value;
} gv_setting;

// A region that was hashed between steps.
typedef struct gv_region {
    const char *name;
    uint64_t address, size, page_bytes; // page_bytes is not 0
    uint64_t group, stack, operation;
    unsigned flags; // enum gv_watched_flag
    bool ended;
    enum gv_region_end_reason end_reason;
    uint64_t end_step, end_operation;
} gv_region;

// One hash of a region.
typedef struct gv_region_step {
    uint64_t region; // id
    uint64_t step, first, operation, since;
    enum gv_region_state state;
    uint64_t allowed, exempt, changed, outside;
    gv_numbers pages, anew; // anew: pairs
    uint64_t hash;
    gv_numbers hashed;
    gv_bytes hashes;    // 8 bytes for each of `hashed`
    const char *reason; // "" when it was hashed
} gv_region_step;

// What a kernel that was launched outside of graphs accessed.
typedef struct gv_kernel_access {
    uint64_t operation, function, stack;
    enum gv_access_source source;
    enum gv_access_precision precision;
    gv_bytes reads, writes, atomics; // checked encodings
    const char *reason;              // "" when exact
} gv_kernel_access;

// A launch that was repeated with other padding or poisoned memory.
typedef struct gv_perturbed {
    uint64_t launch, exec, graph;
    enum gv_perturbed_what what;
    enum gv_perturbed_status status;
    const char *reason, *patterns;
    uint64_t real_rows, duration_ns, replays, saved_bytes, perturbed_bytes, unstable_bytes, left_out_bytes;
} gv_perturbed;

// What came of it.
typedef struct gv_effect {
    uint64_t launch, graph;
    uint64_t node; // index + 1; 0: not known
    unsigned kind; // enum gv_effect_kind; others: of a later minor version
    const char *name, *patterns;
    uint64_t real_rows, rows, first_row, last_row, bytes;
    gv_bytes ranges; // checked encoding
} gv_effect;

// A graph's clone compared with an eager computation.
typedef struct gv_probe {
    uint64_t operation, layer, bucket, real_rows, elements, differing, rows, first_row, first_element;
    bool fallback;
    const char *name, *dtype, *tolerance, *graph_value, *eager_value, *largest;
    const char *reason; // "" when it was compared
} gv_probe;

// Declared rows or scratch memory.
typedef struct gv_declared {
    const char *name;
    uint64_t address, row_bytes, rows; // inside the address space
    unsigned flags;                    // enum gv_declared_flag
    uint64_t operation;
} gv_declared;

// An entry of the fix file that the process was run with.
typedef struct gv_fix {
    const char *name;
    gv_bytes exact, without_shapes; // 16 bytes each
    uint64_t nodes;
    gv_numbers edges; // as in the record; gv_fix_edge_count has checked it
} gv_fix;

// What the fix file did to a graph.
typedef struct gv_fix_applied {
    uint64_t graph, fix; // fix: 0 when there was no entry to compare with
    enum gv_fix_status status;
    enum gv_fix_match match;
    gv_numbers edges;   // pairs of node indices
    gv_numbers there;   // numbers of edges in the fix file
    const char *reason; // "" when applied
} gv_fix_applied;

// How long a node runs by itself, unrecorded.
typedef struct gv_node_time {
    uint64_t launch, graph;
    uint32_t node;
    uint64_t duration_ns, runs; // duration: the sum of all runs; runs: at least 1
} gv_node_time;

typedef struct gv_note {
    enum gv_note_severity severity;
    const char *text;
    uint64_t graph, node, operation;
} gv_note;

// Tables indexed by id have an unused element 0 and `..._count` elements including it; an id that was never defined
// has an all-zero row. The loader has checked every reference: ids are below the counts or have been set to 0, node
// indices are below their graph's node_count, range encodings are valid, child graphs form trees. What has no table
// (exec, event and thread ids, sequence numbers) may be any number: look it up, never index by it.
//
// Enumerators of a later minor version: an unknown operation kind reads as GV_OP_NONE, an unknown node kind as INT_MAX
// (nothing is known of its accesses), every other one as the known one that promises least.
typedef struct gv_trace {
    const char *path;
    gv_process_record process; // texts point into the trace's own memory
    const char **strings;
    size_t string_count;
    gv_module *modules;
    size_t module_count;
    gv_stack *stacks;
    size_t stack_count;
    gv_context *contexts;
    size_t context_count;
    gv_stream *streams;
    size_t stream_count;
    gv_function *functions;
    size_t function_count;
    gv_allocation *allocations;
    size_t allocation_count;
    gv_operation *operations; // in sequence order; not indexed by id
    size_t operation_count;
    gv_graph *graphs;
    size_t graph_count;
    gv_exec_version *exec_versions; // in file order
    size_t exec_version_count;
    gv_access *accesses;
    size_t access_count;
    gv_execution *executions; // by launch and id
    size_t execution_count;
    gv_armed *armed; // in file order
    size_t armed_count;
    gv_checked *checked; // in file order
    size_t checked_count;
    gv_difference *differences; // by launch, then position
    size_t difference_count;
    gv_setting *settings; // in file order
    size_t setting_count;
    gv_fix *fixes;
    size_t fix_count;
    gv_fix_applied *fixes_applied; // in file order
    size_t fix_applied_count;
    gv_node_time *node_times; // in file order
    size_t node_time_count;
    gv_note *notes;
    size_t note_count;
    gv_region *regions;
    size_t region_count;
    gv_region_step *region_steps; // in file order
    size_t region_step_count;
    gv_kernel_access *kernel_accesses; // in file order
    size_t kernel_access_count;
    gv_perturbed *perturbed; // these four in file order
    size_t perturbed_count;
    gv_effect *effects;
    size_t effect_count;
    gv_probe *probes;
    size_t probe_count;
    gv_declared *declared;
    size_t declared_count;
    bool ended;             // the process ended in an orderly way
    const char *truncation; // NULL, or where and why reading stopped
    size_t undefined;       // references to ids that were never defined (a damaged or cut trace)
    struct gv_trace_storage *storage;
} gv_trace;

// Loads a trace. An armed launch whose `armed` record is missing (the process died in it) gets a row with status
// GV_ARMED_FAILED and a reason. Free with gv_trace_free. On failure *trace is NULL.
gv_status gv_trace_load(const char *path, gv_trace **trace, gv_error *error);
gv_status gv_trace_load_memory(const void *data, size_t size, const char *name, gv_trace **trace, gv_error *error);
void gv_trace_free(gv_trace *trace);

// The bodies of a conditional node: graph ids in the driver's order, 0 where one is not in the trace. *count is 0 for
// any other node, and for one whose bodies were not recorded.
const uint64_t *gv_node_bodies(const gv_node *node, size_t *count);

// How many edges an entry of a fix file has. GV_ERR_FORMAT: it has a part of one.
gv_status gv_fix_edge_count(gv_numbers edges, size_t *count, gv_error *error);

// The operation with this sequence number, or NULL.
const gv_operation *gv_trace_operation(const gv_trace *trace, uint64_t sequence);

// The allocation that held `address` when operation `sequence` was enqueued, or 0. (An id in `allocations`.)
uint64_t gv_trace_allocation_at(const gv_trace *trace, uint64_t address, uint64_t sequence);

#endif
