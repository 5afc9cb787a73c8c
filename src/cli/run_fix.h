// `gravel run --fix`: a fix file is checked here and handed to the recorder as a trace file of `fix` records, beside
// the traces; at the end, what the traces say became of it.
#ifndef GV_CLI_RUN_FIX_H
#define GV_CLI_RUN_FIX_H

#include "base/error.h"
#include "trace/trace.h"

#include <limits.h>

typedef struct gv_run_fix {
    const char *file;        // NULL: no fix file was given
    uint64_t left_out;       // number of the edge to leave out, from 1; 0: none
    char prepared[PATH_MAX]; // absolute; empty: nothing was prepared
    size_t graphs, edges;    // of the file, what is left out included
    size_t left_out_graph;   // the graph whose only edge is left out, from 1; 0: there is none
    // By graph of the fix file, from 0: graphs of the program that run with its edges, and that do not.
    struct gv_run_fix_graph {
        size_t applied, there, refused, edges;
        char reason[400]; // of a refusal, or how the nearest graph differs
    } * outcome;
    size_t without; // processes that could not read it
} gv_run_fix;

// Reads and checks the file and prepares it in `folder`.
gv_status gv_run_fix_prepare(gv_run_fix *fix, const char *folder, gv_error *error);

// After the run: adds what one trace tells.
void gv_run_fix_count(gv_run_fix *fix, const gv_trace *trace);

// The summary on standard error. Returns whether every graph of the file got all its edges.
bool gv_run_fix_tell(const gv_run_fix *fix);

// Removes the prepared file, and frees.
void gv_run_fix_close(gv_run_fix *fix);

#endif
