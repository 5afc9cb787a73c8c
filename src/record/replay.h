// One serial replay: the nodes of a graph, run one after the other, each with its access set.
#ifndef GV_RECORD_REPLAY_H
#define GV_RECORD_REPLAY_H

#include "base/clock.h"
#include "record/early.h"
#include "record/graph.h"
#include "record/source.h"

typedef struct gv_replay {
    // Given.
    const gv_recording_source *source; // open
    CUcontext context;
    CUstream stream;
    uint64_t launch; // sequence number of the launch

    // What came of it.
    CUresult result;      // an error of the program's own work, which the program gets
    uint64_t failed_node; // index + 1
    char reason[400];     // why the replay is not complete; empty: it is
    bool source_closed;   // the source had to be closed on the way
    bool left_running;    // a node still waits for something outside: the rest is enqueued behind it

    // Of a graph with conditional nodes, else NULL and 0.
    gv_conditions *conditions;
    uint64_t execution;  // of the body that is running
    uint64_t executions; // how many there have been

    // Kept for kernels that are not seen in full; to be closed when the context is idle. May be NULL.
    struct gv_opaque *opaque;

    struct gv_times *times; // of a launch that is timed and not recorded; else NULL

    struct gv_known *known; // where to note what each node writes; may be NULL
    uint64_t order;         // of a plain replay: which one (gv_serial_order)
    uint64_t position;      // and how many nodes have run

    // Its own.
    bool writes_variables; // a copy or set of the graph goes to a module's variable, perhaps a __constant__ one
    CUstream side;         // where other branches go when a node waits for them; NULL until then
    bool unrecorded;       // what is left is only launched
    gv_node_ranges ranges;
    gv_node_ranges extents; // what the source knows no more of than that it lies in there
    gv_programmatic_nodes programmatic;
    gv_wait_observation wait; // of the kernel at hand
    bool wait_asked;          // it stands behind programmatic edges: the next access record says what was observed
} gv_replay;

// Runs the snapshot. Whatever happens, every node has been launched in an order the graph allows when this returns,
// unless the program's own work failed.
void gv_replay_run(gv_replay *run, const gv_snapshot *snapshot);

// Runs the snapshot without recording anything, each kernel, memcpy and memset to its end before the next one begins;
// `step`, unless NULL, is called behind each of them. Needs no source. Nodes that record events are left out: it is for
// graphs that have been launched. There must be no nodes of other kinds (gv_extent_obstacle). With `left_running`, or
// an error in `result`, it ended early.
typedef void (*gv_replay_step)(void *user, const gv_snapshot *snapshot, uint32_t node, uint64_t position);
void gv_replay_plain(gv_replay *run, const gv_snapshot *snapshot, gv_replay_step step, void *user);

// Runs the snapshot with each node between the events of run->times, unrecorded. Needs no source. There must be no
// conditional nodes.
void gv_replay_timed(gv_replay *run, const gv_snapshot *snapshot);

// Frees what the replay used; its side stream goes when its work is done.
void gv_replay_end(gv_replay *run);

// What conditional.c has to say: the reason why the replay is not complete (the first one stays), and an error of the
// program's own work at a node.
void gv_replay_fail(gv_replay *run, uint32_t node, const char *format, ...) __attribute__((format(printf, 3, 4)));
void gv_replay_error(gv_replay *run, const gv_snapshot *snapshot, uint32_t index, CUresult result);

// Waits until the stream has no work left, `seconds` at most. CUDA_ERROR_NOT_READY: time is up.
CUresult gv_wait_for_stream(CUstream stream, double seconds);

#endif
