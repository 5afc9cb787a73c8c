// Adds to a trace the functions and source lines of its host frames, so that it can be read on a machine without the
// program's binaries. Works from the binaries' symbol tables and DWARF line tables, through elfutils' libdw.
#ifndef GV_CLI_SYMBOLISE_H
#define GV_CLI_SYMBOLISE_H

#include "base/error.h"

#include <stddef.h>

typedef struct gv_symbolise_result {
    size_t frames;     // distinct (module, address) pairs in the trace
    size_t functions;  // of them, with a function's name now
    size_t lines;      // of them, with a source line too
    size_t changed;    // modules left out because the file on disk is another than the one that ran (build id)
    size_t unreadable; // modules left out because their file is gone
} gv_symbolise_result;

// Appends symbol records to the trace. A trace that its process left with a torn end gets a note that says so, since
// appending cuts that end off. Frames that cannot be resolved are left as they are: that is no failure.
gv_status gv_symbolise(const char *path, gv_symbolise_result *result, gv_error *error);

#endif
