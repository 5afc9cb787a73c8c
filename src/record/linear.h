// A graph whose nodes run one behind the other in a chosen serial order, instantiated once and kept: a serial replay
// that costs what the nodes themselves take. The host cannot look at memory between two nodes, nor help one that waits
// for its neighbour: that takes gv_replay_plain.
#ifndef GV_RECORD_LINEAR_H
#define GV_RECORD_LINEAR_H

#include "base/error.h"
#include "record/graph.h"

typedef struct gv_linear gv_linear;

// Makes *linear, which may be NULL, the kernels, memcpys and memsets of the snapshot in the serial order `which`
// (gv_serial_order). What is there already stays if it is the same. `version` names the state of the executable graph
// (gv_exec.version): nodes of another state are not the same. The context must be current. On an error *linear is NULL.
gv_status gv_linear_make(gv_linear **linear, const gv_snapshot *snapshot, CUcontext context, uint64_t which,
                         uint64_t version, gv_error *error);

// Was it made, or found to be the same, for this order and version last?
bool gv_linear_is(const gv_linear *linear, uint64_t which, uint64_t version);

// Enqueues it.
CUresult gv_linear_launch(const gv_linear *linear, CUstream stream);

// NULL is allowed. It must not be running. What the driver holds of it is freed if its context is current.
void gv_linear_free(gv_linear *linear);

#endif
