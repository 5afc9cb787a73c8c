// Which memory a launch of a graph may write, and what it reads that others may change meanwhile: an upper bound from
// the parameters of its nodes alone. Nothing of the program has to run for it, and no access has to be recorded.
//
// What is known from an earlier recorded launch of the same graph is not taken for it: a kernel that stores where an
// index table says stores elsewhere the next time.
#ifndef GV_RECORD_EXTENT_H
#define GV_RECORD_EXTENT_H

#include "access/range_set.h"
#include "record/graph.h"
#include "record/reach.h"

typedef struct gv_extent {
    gv_range_set writable; // all device memory that a node may write
    gv_range_set reached;  // the part of it that kernels can reach: whole regions of the search
    gv_range_set shared;   // memory the processor or others can change that a node may read
    gv_range_set host;     // pageable host memory that memcpy nodes read; no device can
    char refusal[320];     // why the graph cannot be run again on the same memory; empty: it can
} gv_extent;

// Fills `extent`, which must be zeroed. `reach` must have the live memory listed. GV_ERR_MEMORY: memory ran out.
// Everything else that stands in the way is a refusal.
gv_status gv_extent_of(gv_reach *reach, const gv_snapshot *snapshot, gv_extent *extent, gv_error *error);
void gv_extent_free(gv_extent *extent);

// Why a graph of these nodes can never be checked, or NULL: looks at the kinds of its nodes alone, which costs nothing.
// The text is static.
const char *gv_extent_obstacle(const gv_snapshot *snapshot);

#endif
