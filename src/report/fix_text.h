// The report of `gravel fix`.
#ifndef GV_REPORT_FIX_TEXT_H
#define GV_REPORT_FIX_TEXT_H

#include "fix/plan.h"
#include "report/report.h"

// What happened when the traces were looked at again with the edges in them.
typedef struct gv_fix_outcome {
    size_t races;       // found in the traces, not suppressed
    size_t suppressed;  // races that were left as they are
    size_t left;        // races that are there with the edges too
    bool complete;      // everything of the traces was seen
    const char *output; // the fix file that was written; NULL: none was asked for
} gv_fix_outcome;

// For each group of graphs its edges, what they mean in the program, and what they cost.
gv_status gv_report_fix(FILE *out, gv_trace *const *traces, size_t trace_count, const gv_fix_plan *plan,
                        const gv_fix_outcome *outcome, const gv_report_options *options, gv_error *error);

// Fills `reading` of the edges of a file that gv_fix_plan_file made of the plan.
gv_status gv_report_fix_readings(const gv_fix_plan *plan, gv_fix_file *file, gv_error *error);

#endif
