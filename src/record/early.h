// What a kernel behind programmatic edges does before its grid-dependency wait, on its way from the source to the
// trace.
#ifndef GV_RECORD_EARLY_H
#define GV_RECORD_EARLY_H

#include "record/graph.h"
#include "record/source.h"
#include "trace/record.h"

// Which nodes of a snapshot stand behind programmatic edges, looked up once for a snapshot and kept.
typedef struct gv_programmatic_nodes {
    const gv_snapshot *of;
    bool *behind;
} gv_programmatic_nodes;

// Does the node? When memory is out, it counts as one that does not: its wait is then not observed.
bool gv_is_programmatic(gv_programmatic_nodes *nodes, const gv_snapshot *snapshot, uint32_t index);
void gv_programmatic_nodes_free(gv_programmatic_nodes *nodes);

// Has a snapshot, or a graph inside it, programmatic edges?
bool gv_has_programmatic(const gv_snapshot *snapshot);

// The wait was not observed, and why (cut to its room).
void gv_wait_unknown(gv_wait_observation *observation, const char *reason);

// Some accesses of the kernel are not reported by the source: unless it is known that they come after the wait, nothing
// is known of what comes before it.
void gv_wait_blind(gv_wait_observation *observation);

// Of a set where accesses before the wait stand at their address plus GV_EARLY_ADDRESS: adds those to `early`, at their
// own addresses, and makes `ranges` all of them, early or not. False when memory is out; neither is whole then.
bool gv_split_early(gv_node_ranges *ranges, gv_node_ranges *early);

// Puts the observation into an access record, whose `wait_reason` the caller gives an id; gv_wait_encoded_free frees
// what was allocated for it.
void gv_wait_encode(gv_wait_observation *observation, gv_access_record *record);
void gv_wait_encoded_free(gv_access_record *record);

#endif
