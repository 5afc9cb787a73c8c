// The values behind a graph's conditional handles in an armed replay.
//
// A program's handle can neither be read nor be given to a node of another graph. So each has a handle of gravel's own
// in its place: the kernels of the replay get that one in their parameters and set it, and a small graph of gravel's
// own, a conditional node whose bodies only write to a word of host memory, tells what it is. docs/recorder.md has the
// reasons.
#ifndef GV_RECORD_CONDITION_H
#define GV_RECORD_CONDITION_H

#include "record/graph.h"
#include "record/source.h"

// Page-locked host memory as both sides see it.
typedef struct gv_host_word {
    volatile uint32_t *host;
    CUdeviceptr device;
} gv_host_word;

// One conditional node with what stands in its handle's place.
typedef struct gv_condition_value {
    const gv_snapshot_node *node;
    CUgraphConditionalHandle own;
    CUgraph graph; // what the observer is made from
    CUgraphExec observer;
    gv_host_word word; // the observer's: 0 no body, else the body's index + 1
} gv_condition_value;

struct gv_conditions {
    gv_condition_value *values; // one for each conditional node, an outer one before those in its bodies
    size_t count, capacity;
    bool noted; // what is doubtful about the order of setting and deciding has been written down

    // Graphs of a replay's own that were launched and may still run: kept until the next replay, when all is idle.
    struct {
        CUgraph graph;
        CUgraphExec exec;
    } * launched;
    size_t launched_count, launched_capacity;
};

// Makes the values of all conditional nodes of a snapshot, and tries each: that a kernel's setting reaches the
// observer, and stays. The source is open. GV_ERR_MISSING and the like: the reason why this graph cannot be run node by
// node.
gv_status gv_conditions_create(const gv_snapshot *snapshot, const gv_recording_source *source, CUcontext context,
                               CUstream stream, gv_conditions **conditions, gv_error *error);
void gv_conditions_free(gv_conditions *conditions);

// A launch begins in an idle context: handles with a default get it.
gv_status gv_conditions_begin(gv_conditions *conditions, const gv_recording_source *source, CUstream stream,
                              gv_error *error);

// Takes a graph over that was launched. False when memory is out.
bool gv_conditions_keep(gv_conditions *conditions, CUgraph graph, CUgraphExec exec);

gv_condition_value *gv_condition_of(const gv_conditions *conditions, const gv_snapshot_node *node);

// What the node would run now: an index of a body, or SIZE_MAX. Waits for the stream; CUDA_ERROR_NOT_READY after a
// while.
CUresult gv_condition_observe(const gv_condition_value *value, CUstream stream, size_t *body);

// Enqueues, without waiting: the value behind `handle` becomes one that decides as `value` does at that point of the
// stream.
gv_status gv_condition_pass_on(const gv_condition_value *value, CUgraphConditionalHandle handle,
                               const gv_recording_source *source, CUstream stream, gv_error *error);

// ---- Kernel parameters ----

// A kernel's parameters with other handles in place of the program's. Points into itself: not to be moved.
typedef struct gv_own_parameters {
    CUDA_KERNEL_NODE_PARAMS params;
    void *extra[5];
    size_t block_size;
    unsigned char *block; // owned
    void **pointers;      // owned
} gv_own_parameters;

// Which of the handles a kernel is given: sets given[i] for values[i]. False when none is.
bool gv_conditions_given(const gv_conditions *conditions, CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params,
                         bool *given);

// Puts `handles` (one for each value; NULL: the own ones) in the place of the program's. When the kernel is given none,
// own->params are the program's. False when memory is out.
bool gv_conditions_substitute(const gv_conditions *conditions, const CUgraphConditionalHandle *handles,
                              CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params, gv_own_parameters *own);
void gv_own_parameters_free(gv_own_parameters *own);

#endif
