// Turns findings and traces into text and JSON. All wording is in report/messages.c.
#ifndef GV_REPORT_REPORT_H
#define GV_REPORT_REPORT_H

#include "base/error.h"
#include "detect/finding.h"

#include <stdio.h>

typedef struct gv_report_options {
    bool all_pairs;  // list every pair of a group, not only the leading one
    size_t ranges;   // how many ranges of a pair to print (default 4); the rest is counted
    bool all_stacks; // every frame of a stack, not only the program's own
    bool verbose;    // list every incomplete node, not one line a reason
} gv_report_options;

// The text report of `gravel check` for one or several traces and their findings.
gv_status gv_report_text(FILE *out, gv_trace *const *traces, size_t trace_count, const gv_findings *findings,
                         const gv_report_options *options, gv_error *error);

// The same as JSON (schema "gravel-check", version 1, docs/findings.md): complete, nothing cut.
gv_status gv_report_json(FILE *out, gv_trace *const *traces, size_t trace_count, const gv_findings *findings,
                         gv_error *error);

// `gravel show`: one of the tables "graphs", "nodes", "edges", "access", "coverage", "allocations",
// "launches", "diffs", "perturbed", "canary".
gv_status gv_report_show(FILE *out, const gv_trace *trace, const char *table, uint64_t graph_filter, bool json,
                         gv_error *error);

#endif
