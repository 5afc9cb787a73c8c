// The kernel of gravel's own that sets conditions on a GPU (src/device/condition.cu), as a node of a graph.
#ifndef GV_RECORD_CONDITION_SETTER_H
#define GV_RECORD_CONDITION_SETTER_H

#include "base/error.h"

#include <cuda.h>

struct gv_condition_setter;

// Adds the node to `graph`, in front of whatever follows; *made is the node. The kernel is loaded into the current
// context when it is needed first, and stays there. GV_ERR_MISSING: gravel was built without it. This is
// gv_recording_source's add_setter.
gv_status gv_condition_setter_add(CUgraph graph, const struct gv_condition_setter *setter, CUgraphNode *made,
                                  gv_error *error);

// The context is gone, and the kernel with it.
void gv_condition_setter_forget(CUcontext context);

#endif
