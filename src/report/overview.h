// What all findings together amount to: the numbers of the summary line, and incompletenesses gathered by reason over
// all graphs of a trace, so that fifty captured batch sizes with sixty tensor copies each read as one point.
#ifndef GV_REPORT_OVERVIEW_H
#define GV_REPORT_OVERVIEW_H

#include "base/error.h"
#include "detect/finding.h"
#include "report/coverage.h"

// Incomplete findings of one trace, kind and reason: `order[first]` to `order[first + count - 1]`. Reasons that hold
// numbers of their graph (programmatic pairs, launches never armed) do not part groups.
typedef struct gv_incomplete_group {
    const gv_trace *trace;
    size_t trace_index;
    uint64_t graph; // the first one; 0: no graph of the trace
    enum gv_incomplete_kind kind;
    const char *reason; // NULL when the findings give different ones
    bool suppressed;
    size_t first, count;
    size_t affected;    // nodes, pairs or launches, by kind
    bool at_least;      // there are more pairs than `affected`, which were not counted
    size_t graphs;      // how many it is about, with those of the same structure that findings stand for
    size_t listed;      // of these, how many the findings name; the others are alike
    size_t graph_nodes; // nodes of the named ones
} gv_incomplete_group;

// What was tried on live launches beside recording accesses, and how often something came of it.
typedef struct gv_tried {
    size_t compared, differing;                        // launches compared with serial replays
    size_t padded, pad_effects, pad_unchecked;         // launches repeated with other padding, or that were to be
    size_t poisoned, poison_effects, poison_unchecked; // launches repeated with poisoned memory
    uint64_t pad_left_out, poison_left_out;            // unstable bytes not compared, of the launch that has most
    size_t hashes, intruded;                           // of regions; those with a page changed that was not allowed to
    size_t probes, probe_differences;                  // recorded comparisons of probes
} gv_tried;

typedef struct gv_overview {
    gv_tried tried;
    size_t races, pairs;   // not suppressed
    size_t observed;       // observed findings, not suppressed
    size_t suppressed;     // findings of any kind
    size_t graphs, nodes;  // recorded to their end and so checked; distinct snapshots, child graphs with their nodes
    bool complete;         // nothing is left that could not be seen; suppressed incompletenesses count as left
    bool incomplete_shown; // some of it is not suppressed
    // Distinct nodes that could not be seen, and the graphs they lie in with all their nodes. The graph and the reason
    // are given when there is only one.
    size_t unseen_nodes, unseen_graphs, unseen_graph_nodes;
    uint64_t unseen_graph;
    const char *unseen_reason;
    size_t broken_graphs;               // distinct graphs that could not be recorded in full
    size_t covered[GV_COVERAGE_STATES]; // nodes of all launched graphs by what is known of them
    gv_incomplete_group *groups;
    size_t group_count;
    size_t *order; // indices of incomplete findings, group by group, graphs and nodes ascending
    size_t order_count;
} gv_overview;

// Fails only when memory is out. Release with gv_overview_free.
gv_status gv_overview_make(gv_trace *const *traces, size_t trace_count, const gv_findings *findings,
                           gv_overview *overview, gv_error *error);
void gv_overview_free(gv_overview *overview);

// The snapshot with this id, or NULL.
const gv_graph *gv_trace_graph(const gv_trace *trace, uint64_t id);

// The snapshot that a side's node lies in: the finding's, or a child graph's.
const gv_graph *gv_side_graph(const gv_finding *finding, const gv_side *side);

// Answers which snapshot an exec runs, for operations asked about in ascending order. Zero-initialise, open, close.
typedef struct gv_exec_cursor {
    const gv_trace *trace;
    uint64_t *current; // by exec id
    size_t count, next;
} gv_exec_cursor;

gv_status gv_exec_cursor_open(gv_exec_cursor *cursor, const gv_trace *trace, gv_error *error);

// The snapshot that `exec` runs at operation `sequence`, or 0.
uint64_t gv_exec_cursor_graph(gv_exec_cursor *cursor, uint64_t exec, uint64_t sequence);
void gv_exec_cursor_close(gv_exec_cursor *cursor);

#endif
