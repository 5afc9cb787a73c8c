// The detectors, one file each, listed in one table in detect.c.
#ifndef GV_DETECT_DETECT_H
#define GV_DETECT_DETECT_H

#include "base/error.h"
#include "detect/finding.h"
#include "order/graph_order.h"

typedef gv_status (*gv_detector_run)(const gv_trace *trace, gv_findings *findings, gv_error *error);

typedef struct gv_detector {
    const char *name;    // "race"
    const char *summary; // one line for --help and docs
    gv_detector_run run;
} gv_detector;

// The table and its length.
const gv_detector *gv_detectors(size_t *count);

// Runs every detector over one trace, appending to `findings`. Order of what it appends: observed findings first, by id
// and graph; then by graph id, races before incompletenesses, races by bytes falling (all pairs together),
// incompletenesses by kind, node and reason; the same trace always gives the same order. Fails only when memory is out:
// what a damaged trace makes undecidable becomes an incomplete finding.
gv_status gv_detect(const gv_trace *trace, gv_findings *findings, gv_error *error);

// ---- The detectors ----
gv_status gv_detect_race(const gv_trace *trace, gv_findings *findings, gv_error *error);
gv_status gv_detect_diff(const gv_trace *trace, gv_findings *findings, gv_error *error);
gv_status gv_detect_perturbed(const gv_trace *trace, gv_findings *findings, gv_error *error);
gv_status gv_detect_stale(const gv_trace *trace, gv_findings *findings, gv_error *error);
gv_status gv_detect_probe(const gv_trace *trace, gv_findings *findings, gv_error *error);
gv_status gv_detect_canary(const gv_trace *trace, gv_findings *findings, gv_error *error);
gv_status gv_detect_incomplete(const gv_trace *trace, gv_findings *findings, gv_error *error);

// Why it is a gap when a node of a recorded launch has no access record, or NULL when it accesses no memory that could
// race.
const char *gv_unrecorded_reason(const gv_node *node);

// The race detector on one graph, for benchmarks and tests that build their own input. `reads`, `writes` and
// `atomics` have one set a node; any may be NULL. The reads and writes of a node of precision extent are taken to be
// tensors that it has maps of. The early sets are what is accessed before the grid-dependency wait; they count for
// nodes whose dependency says so. `undecided` receives the pairs that are neither races nor none (how many and one
// example, the first by the order of making); it may be NULL. At most 2^20 racing pairs are kept, and the counts of
// undecided ones stand still at 2^14. Free the groups with gv_race_groups_free; they come by bytes, falling.
typedef struct gv_race_input {
    size_t node_count;
    const gv_edge *edges;
    size_t edge_count;
    const gv_range_set *reads, *writes, *atomics;
    const gv_range_set *early_reads, *early_writes, *early_atomics;
    const gv_grid_dependency *dependencies;    // NULL: nothing was observed
    const enum gv_access_precision *precision; // NULL: all exact
    const uint64_t *made;                      // order in which the nodes were made; NULL: by index
} gv_race_input;

typedef struct gv_race_undecided {
    size_t pairs;           // ordered by programmatic edges only
    uint32_t first, second; // an example
    size_t overlaps;        // not ordered, and conflicting only if a node touches more of its extent than was seen
    uint32_t overlap_first, overlap_second;
} gv_race_undecided;

typedef struct gv_race_group {
    gv_race_pair *pairs;
    size_t pair_count;
    uint32_t edge_from, edge_to;
    bool path; // as in a finding
} gv_race_group;

gv_status gv_race_find(const gv_race_input *input, gv_race_group **groups, size_t *group_count,
                       gv_race_undecided *undecided, gv_error *error);
void gv_race_groups_free(gv_race_group *groups, size_t group_count);

#endif
