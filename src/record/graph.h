// What the recorder knows of graphs: where each node was launched, the snapshot each executable graph runs, and, when
// arming is on, a clone of it whose nodes can be run one at a time after the program has destroyed its template.
#ifndef GV_RECORD_GRAPH_H
#define GV_RECORD_GRAPH_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gv_snapshot gv_snapshot;
typedef struct gv_fixing gv_fixing; // record/fix.h
typedef struct gv_fixed gv_fixed;
typedef struct gv_conditions gv_conditions;

// What a conditional node decides by, as the program made it. `size` 0: the making of the node or of its handle was not
// seen.
typedef struct gv_condition {
    CUgraphConditionalHandle handle;
    CUgraphConditionalNodeType type;
    unsigned size;    // bodies
    unsigned initial; // what the handle is assigned at each launch, if `assigned`
    bool assigned;
    CUcontext context;
} gv_condition;

typedef struct gv_snapshot_node {
    CUgraphNode node; // in the clone when there is one, else in the program's template
    CUgraphNodeType type;
    uint64_t stack, stream, order; // where it came from
    uint64_t event;                // id, for event nodes
    bool disabled;                 // cuGraphNodeSetEnabled(..., 0)
    gv_snapshot **bodies;          // child graph nodes have one, conditional nodes one a branch
    size_t body_count;
    gv_condition condition; // of conditional nodes
} gv_snapshot_node;

// One graph as the driver listed it. Child graphs are snapshots of their own.
struct gv_snapshot {
    uint64_t id; // graph id of the records written for it
    unsigned origin;
    uint64_t stack, parent, parent_node;
    CUgraph graph; // what `nodes[].node` belong to
    bool owned;    // `graph` is a clone to be destroyed with the snapshot
    gv_snapshot_node *nodes;
    size_t node_count;
    uint32_t *order; // topological
    uint64_t *edges; // quadruples, as in the edges record
    size_t edge_count;
    gv_conditions *conditions; // of a whole graph that was armed and has conditional nodes
    unsigned flags;            // enum gv_graph_flag
    char refusal[256];         // why it cannot be run one node at a time; empty: it can
};

typedef struct gv_exec {
    CUgraphExec handle;
    gv_fixed *fixed; // the edges of a fix file that it runs with, for its updates; NULL: none
    uint64_t id;
    bool time_next; // its next launch is to tell how long its nodes run
    bool fix_asked; // a fix file was looked into at one of its updates
    unsigned long long flags;
    uint64_t launches; // launches seen so far
    uint64_t epoch;    // of gv_arm_next, as last seen
    bool owed;         // its next launch is to be armed
    bool named;        // --graph names it, or names none
    unsigned attempts; // how often arming it has had to wait in vain
    gv_snapshot *snapshot;
    bool changed;      // a set-params call came after the snapshot was written
    char unknown[256]; // why the snapshot no longer says what the exec runs; empty: it does
    uint64_t version;  // of what it runs: another one after each change
    bool refused;      // its refusal has been written

    // Of the differential (src/record/differ.h).
    bool check_owed;            // its next launch that is not armed is to be checked
    struct gv_known *known;     // what each node wrote in its last armed launch; NULL: not known
    bool check_refused;         // none of its launches will be, and that was written
    uint64_t checks;            // launches that were compared
    unsigned check_attempts;    // how often checking it has had to wait in vain
    unsigned values_written;    // difference records that have values
    struct gv_check_plan *plan; // what it may write, as found at its last checked launch; NULL: not known
    struct gv_linear *linear;   // its nodes one behind the other, for serial replays; NULL: not made
    bool ends_alone;            // its nodes came to their ends one by one, in the orders that were tried
    bool linear_refused;        // a graph of them cannot be made, or does not come to its end

    // Of padding checks and poison (src/record/perturb.h).
    uint64_t padded_launches;         // launches with padded rows
    bool pad_owed, pad_refused;       // the next one is to be checked; none ever is, and that was written
    bool poison_owed, poison_refused; // the same of launches with poisoned memory
    unsigned perturb_attempts;        // how often checking has had to wait in vain
} gv_exec;

// ---- Captures: which node came from which call ----

// Is any capture under way in this process? Cheap; called at every enqueue.
bool gv_captures_active(void);
void gv_capture_began(CUstream stream, bool per_thread, unsigned mode);
void gv_capture_ended(CUstream stream, bool per_thread, CUresult result);

// Destroying the stream that began a capture ends it.
void gv_capture_stream_destroyed(CUstream stream);

// Is this stream capturing?
bool gv_stream_is_capturing(CUstream stream, bool per_thread);

// After an enqueue: if the stream is capturing, remembers stack, stream and order of the node or nodes it made and
// answers true.
bool gv_capture_note(CUstream stream, bool per_thread);

// A node was added through the graph API.
void gv_node_added(CUgraph graph, CUgraphNode node);

// A child graph node was added; the child was copied into it.
void gv_child_added(CUgraph graph, CUgraphNode node, CUgraph child);

// A conditional handle was made for a graph.
void gv_handle_created(CUgraph graph, CUgraphConditionalHandle handle, CUcontext context, unsigned initial,
                       unsigned flags);

// A conditional node was added; the driver made graphs for its branches, which go with it.
void gv_conditional_added(CUgraph graph, CUgraphNode node, const CUDA_CONDITIONAL_NODE_PARAMS *params);

// cuGraphClone and child graph nodes copy nodes: what is known of the original's is known of the copy's.
void gv_graph_copied(CUgraph original, CUgraph copy);
void gv_graph_destroyed(CUgraph graph);

// ---- Executable graphs ----
// All take a lock of their own and may call the driver.

// Reads the graph as it is, without keeping or cloning it. NULL when memory is out.
gv_snapshot *gv_graph_read(CUgraph graph);

// `fixing` (record/fix.h) is what a fix file did to the graph, which still has the added edges; NULL: nothing.
void gv_exec_created(CUgraphExec handle, CUgraph graph, unsigned long long flags, gv_fixing *fixing);
void gv_exec_updated(CUgraphExec handle, CUgraph graph, gv_fixing *fixing);

// Destroying takes three steps, because the driver may refuse it (during a capture it does) and may give the handle to
// another exec as soon as it does not: the row is taken out, and then freed or put back. NULL is allowed.
gv_exec *gv_exec_take(CUgraphExec handle);
void gv_exec_put_back(gv_exec *exec);
void gv_exec_destroyed(gv_exec *exec);

// The node's parameters in the exec were replaced: `apply` repeats it on the clone's node.
typedef CUresult (*gv_apply_params)(CUgraphNode node, const void *params);
void gv_exec_node_changed(CUgraphExec handle, CUgraphNode node, gv_apply_params apply, const void *params);
void gv_exec_node_enabled(CUgraphExec handle, CUgraphNode node, bool enabled);
void gv_exec_child_changed(CUgraphExec handle, CUgraphNode node, CUgraph child);

// Something changed the exec in a way that cannot be repeated.
void gv_exec_now_unknown(CUgraphExec handle, const char *why);

// The index of the program's node in the graph that the exec was made or last updated with; UINT32_MAX: it is not known
// there, or lies in a child graph.
uint32_t gv_exec_index_of(gv_exec *exec, CUgraphNode node);

// The exec's row, or NULL. It stays valid until the exec is destroyed, which the program may not do while it is being
// launched.
gv_exec *gv_exec_find(CUgraphExec handle);

// Writes the snapshot anew (and an exec record) when set-params calls changed it since.
void gv_exec_refresh(gv_exec *exec);

// Hands over what an armed launch has found its nodes to write, in place of what was known; NULL: nothing.
void gv_exec_take_known(gv_exec *exec, struct gv_known *known);

// For a forked child.
void gv_graphs_forget(void);

#endif
