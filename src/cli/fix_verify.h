// `gravel fix --verify`: runs a program with a fix file and says whether the fix is one: no findings with it, graphs
// that compute what a serial replay computes, the user's own test passed, and each edge needed.
#ifndef GV_CLI_FIX_VERIFY_H
#define GV_CLI_FIX_VERIFY_H

#include "cli/suppress.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct gv_fix_verify {
    const char *file;   // the fix file
    const char *test;   // a command for sh, or NULL
    const char *output; // where JSON goes, or NULL
    bool soft;
    char **program; // with its arguments, ended by NULL
    gv_suppressions *suppressions;
    size_t suppression_count;
} gv_fix_verify;

// Prints the table and returns the exit code: GV_EXIT_NONE when everything holds, GV_EXIT_FINDINGS when something does
// not, GV_EXIT_UNMEASURED when something could not be found out, GV_EXIT_INPUT when a file cannot be read or written.
int gv_fix_verify_run(const gv_fix_verify *verify);

#endif
