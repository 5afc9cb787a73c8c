// What commands that look for findings have in common: the traces they are given, and the suppression files.
#ifndef GV_CLI_INPUTS_H
#define GV_CLI_INPUTS_H

#include "cli/suppress.h"
#include "trace/trace.h"

typedef struct gv_inputs {
    gv_suppressions *suppressions; // one for each file
    size_t suppression_count, suppression_capacity;
    gv_trace **traces;
    size_t trace_count, trace_capacity;
} gv_inputs;

// Reads a suppression file. What is wrong with it is said on stderr; false then.
bool gv_inputs_suppress(gv_inputs *inputs, const char *path);

// Loads the traces, and goes on behind one that cannot be read, which is said on stderr. Answers whether all were read.
bool gv_inputs_load(gv_inputs *inputs, char **paths, size_t count);

// Runs the detectors over the traces and adds what they find to `findings`; then applies the suppressions, file by
// file.
gv_status gv_inputs_find(const gv_inputs *inputs, gv_findings *findings, gv_error *error);

void gv_inputs_free(gv_inputs *inputs);

#endif
