// How much of what launched graphs access was seen: for each graph, how many of its nodes are known exactly, as an
// upper bound, in part or not at all, and why. docs/findings.md explains the states to users.
#ifndef GV_REPORT_COVERAGE_H
#define GV_REPORT_COVERAGE_H

#include "base/error.h"
#include "trace/trace.h"

// What is known of one node. Of several executions, launches and records of a node the state that stands last here
// counts: a node that was seen in part once is not known exactly because it was seen in full another time.
enum gv_coverage_state {
    GV_COVERAGE_NOTHING,      // it accesses no memory that could race, so that nothing had to be recorded
    GV_COVERAGE_NOT_RECORDED, // no launch of its graph was recorded, or none as far as this node
    GV_COVERAGE_NOT_EXECUTED, // it lies in a body of a conditional node that no recorded launch executed
    GV_COVERAGE_EXACT,        // every byte it accessed
    GV_COVERAGE_EXTENT,       // an upper bound of what it accessed
    GV_COVERAGE_INCOMPLETE,   // it may have accessed more than was seen
    GV_COVERAGE_STATES,
};

// Nodes that are in one state for one reason.
enum { GV_COVERAGE_EXAMPLES = 3 };
typedef struct gv_coverage_reason {
    enum gv_coverage_state state;
    const char *text;
    size_t nodes, graphs;
    struct {
        uint64_t graph;
        uint32_t node;
    } examples[GV_COVERAGE_EXAMPLES]; // the first nodes that differ in kind or function
    size_t example_count;
} gv_coverage_reason;

// One launched graph with its child graphs and bodies.
typedef struct gv_coverage_graph {
    uint64_t graph;
    size_t recorded;                  // launches that were recorded to their ends
    size_t nodes[GV_COVERAGE_STATES]; // how many are in each state
    uint64_t bytes, extent_bytes;     // bytes seen to be accessed; further ones that are in upper bounds only
    gv_coverage_reason *reasons;      // of nodes that are neither exact nor in need of nothing: worst state first,
    size_t reason_count;              // then by number of nodes, falling
    char *problem;                    // why the graph could not be laid out; owned, reasons may point to it
} gv_coverage_graph;

typedef struct gv_coverage {
    gv_coverage_graph *graphs; // by id
    size_t graph_count;
    size_t nodes[GV_COVERAGE_STATES]; // of all graphs
    gv_coverage_reason *reasons;      // of all graphs, each once
    size_t reason_count;
} gv_coverage;

// `detailed`: with bytes and reasons too. A body that a graph's own launches did not
// execute counts as in another graph of the same structure that did, as the incomplete detector has it. Texts point
// into the trace or the coverage. Fails only when memory is out, with nothing to release; else release with
// gv_coverage_free.
gv_status gv_coverage_make(const gv_trace *trace, bool detailed, gv_coverage *coverage, gv_error *error);
void gv_coverage_free(gv_coverage *coverage);

// The nodes of all states together.
size_t gv_coverage_total(const size_t nodes[GV_COVERAGE_STATES]);

#endif
