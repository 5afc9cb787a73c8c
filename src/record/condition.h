// The values behind a graph's conditional handles in an armed replay.
//
// A handle is a number within the graph that runs: what a kernel sets can be seen only in a graph that has a handle of
// that number, with a conditional node of its own. So each kernel of a replay runs in a graph of gravel's own, with as
// many handles as the program's, each assigned the value that it has by then, and behind the kernel one conditional
// node a handle, the observer, whose bodies only store a number in host memory. docs/recorder.md has the reasons.
#ifndef GV_RECORD_CONDITION_H
#define GV_RECORD_CONDITION_H

#include "record/graph.h"
#include "record/source.h"

// Words of page-locked memory, one for each handle (device/condition.h), by host address or device address.
#define GV_CONDITION_WORDS(type)                                                      \
    struct {                                                                          \
        type seen; /* what the observers of the replay's stream store */              \
        type side; /* those of a branch that runs beside it */                        \
        type base; /* what of `side` has been taken over into `seen` */               \
        type less; /* 1: the handle is of a SWITCH, whose value is its word less 1 */ \
    }

// One node that sets all handles of its graph from words. Stays until the graph has run.
typedef struct gv_condition_setter {
    GV_CONDITION_WORDS(volatile uint32_t *) host;
    GV_CONDITION_WORDS(CUdeviceptr) device;
    bool merge;     // `side` and `base` count
    uint32_t count; // handles 1 .. count
    uint32_t extra; // handle count + 1 gets the value of handle extra + 1; `count`: there is none
} gv_condition_setter;

struct gv_conditions {
    const gv_snapshot_node **nodes; // by handle - 1; NULL where no node has it
    uint32_t count;
    CUcontext context;
    void *block; // of all words
    gv_condition_setter words;
    uint32_t *values; // the words as they stand, while the host knows them
    enum {
        GV_CONDITIONS_KNOWN,   // in `values`
        GV_CONDITIONS_RUNNING, // a kernel whose observers store to `seen` is running
        GV_CONDITIONS_DEVICE   // in `seen`, when the stream gets there
    } state;
    bool split; // a branch keeps its own in `side`
    bool noted; // what is doubtful about the order of setting and deciding has been written down

    // Graphs that were launched and may still run, with what they read.
    struct gv_condition_launch {
        CUgraph graph;
        CUgraphExec exec;
        gv_condition_setter *setter;
    } * launched;
    size_t launched_count, launched_capacity;
};

// Makes ready for all conditional nodes of a snapshot, and tries out on handles of gravel's own what is relied on. The
// source is open. A failure has the reason why this graph cannot be run node by node.
gv_status gv_conditions_create(const gv_snapshot *snapshot, const gv_recording_source *source, CUcontext context,
                               CUstream stream, gv_conditions **conditions, gv_error *error);
void gv_conditions_free(gv_conditions *conditions);

// A launch begins in an idle context: handles with a default get it.
void gv_conditions_begin(gv_conditions *conditions);

// The index of the body that a conditional node would run now, or SIZE_MAX. The host knows the values.
size_t gv_conditions_choice(const gv_conditions *conditions, const gv_snapshot_node *node);

// Enqueues a kernel node in a graph of its own with observers, and does not wait. The host knows the values; afterwards
// it does again when the stream is idle and gv_conditions_ran was called.
CUresult gv_conditions_launch(gv_conditions *conditions, CUgraphNode kernel, CUstream stream);
void gv_conditions_ran(gv_conditions *conditions);

// From now on a branch that begins here goes on beside what the replay's stream does.
void gv_conditions_split(gv_conditions *conditions);

// What a graph is made of that is enqueued without waiting: called with the graph and what has to come in front.
// `extra`, unless 0, is a handle that has the value of `node`'s by then.
typedef CUresult (*gv_condition_build)(CUgraph graph, CUgraphConditionalHandle extra, const CUgraphNode *after,
                                       size_t count, CUgraphNode *made, void *user);

// Enqueues, without waiting: a graph whose handles have the values that they have when the stream gets there, and in it
// what `build` makes. `inside`, unless NULL, says which handles (by number - 1) have a conditional node in there, made
// by `build`; for all others there is an observer behind it. `node`, unless NULL, is the conditional node that is
// handed over; `side`: the stream is that of the branch beside.
CUresult gv_conditions_enqueue(gv_conditions *conditions, const gv_recording_source *source, const bool *inside,
                               const gv_snapshot_node *node, gv_condition_build build, void *user, CUstream stream,
                               bool side, gv_error *error);

// The same of a kernel node.
CUresult gv_conditions_enqueue_kernel(gv_conditions *conditions, const gv_recording_source *source, CUgraphNode kernel,
                                      CUstream stream, bool side, gv_error *error);

// Which handles (by number - 1) occur among a kernel's parameters: sets given[i]. False when none does. A number that
// is equal by chance counts too.
bool gv_conditions_given(const gv_conditions *conditions, CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params,
                         bool *given);

#endif
