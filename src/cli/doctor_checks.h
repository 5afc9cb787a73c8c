// The single checks of `gravel doctor`. Each looks at one thing that recording needs and says what it found.
#ifndef GV_CLI_DOCTOR_CHECKS_H
#define GV_CLI_DOCTOR_CHECKS_H

#include "cli/install.h"

#include <stdbool.h>

enum gv_check_state {
    GV_CHECK_OK,
    GV_CHECK_LIMITED, // works in part
    GV_CHECK_MISSING  // does not work
};

typedef struct gv_check {
    const char *id;    // stable, for JSON
    const char *title; // for people
    enum gv_check_state state;
    char found[1536]; // what was found
    char remedy[512]; // what to do; "" when there is nothing to do
} gv_check;

// In the order in which they are printed. Later checks may use what earlier ones found.
enum gv_check_index {
    GV_CHECK_LIBRARIES, // gravel's own libraries
    GV_CHECK_LINKER,    // glibc's dynamic linker takes an auditor and a preloaded library
    GV_CHECK_SOFT,      // the software driver
    GV_CHECK_DRIVER,    // the GPU's driver, and GPUs
    GV_CHECK_SANITIZER, // NVIDIA's Sanitizer library
    GV_CHECK_PATCHES,   // gravel's device code, inside its recorder
    GV_CHECK_PYTHON,    // Python frames
    GV_CHECK_OUTPUT,    // where traces go
    GV_CHECK_RIGHTS,    // what needs no rights
    GV_CHECK_COUNT
};

// Runs all checks. Each that runs foreign code does so in a child process with a time limit.
void gv_doctor_examine(const gv_install *install, gv_check checks[GV_CHECK_COUNT]);

#endif
