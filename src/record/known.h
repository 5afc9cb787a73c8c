// Which bytes each node of a graph wrote in its last recorded launch. The differential lays bytes to nodes by it where
// a node stores the value that was there already; it is no bound of what later launches write.
#ifndef GV_RECORD_KNOWN_H
#define GV_RECORD_KNOWN_H

#include "record/graph.h"
#include "record/source.h"

#include "access/range_set.h"

typedef struct gv_known_writes {
    const gv_snapshot *snapshot;
    uint32_t node;
    gv_bytes encoded; // owned, as in an access record
} gv_known_writes;

typedef struct gv_known {
    gv_known_writes *items; // in the order in which they were recorded
    size_t count, capacity;
    uint64_t bytes;
} gv_known;

// Adds what a node wrote, plainly or atomically. What there is no memory for, or no room (16 MiB for a graph), is not
// known then.
void gv_known_add(gv_known *known, const gv_snapshot *snapshot, uint32_t node, const gv_node_ranges *ranges);

// Adds to `writes` what is known of the node.
gv_status gv_known_get(const gv_known *known, const gv_snapshot *snapshot, uint32_t node, gv_range_set *writes,
                       gv_error *error);

void gv_known_free(gv_known *known);

#endif
