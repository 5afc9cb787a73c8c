// Conditional nodes in an armed replay: running the bodies that the graph would have run, and launching them as they
// are where they cannot be recorded.
#ifndef GV_RECORD_CONDITIONAL_H
#define GV_RECORD_CONDITIONAL_H

#include "record/replay.h"

// Makes the replay ready for the conditional nodes of a snapshot, if it has any: run->conditions. The source is open
// and the context current and idle. A failure has the reason why the graph is not run one node at a time.
gv_status gv_conditionals_open(gv_replay *run, gv_snapshot *snapshot, gv_error *error);

// Runs a conditional node: decides, runs a body with `run_body`, and so on for a loop. Afterwards run->left_running may
// be set, as after a body's node.
void gv_conditional_run(gv_replay *run, const gv_snapshot *snapshot, uint32_t index,
                        void (*run_body)(gv_replay *run, const gv_snapshot *body));

// Enqueues a conditional node with its bodies as a graph, without waiting for anything: it will decide by what its
// condition is when the stream gets there.
CUresult gv_conditional_launch(gv_replay *run, const gv_snapshot *snapshot, uint32_t index, CUstream stream);

#endif
