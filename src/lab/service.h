// A running service: a program gravel started, or a systemd unit it asked for. A unit gets its variables by a drop-in
// file in the run-time folder, which is taken away when the unit is stopped.
#ifndef GV_LAB_SERVICE_H
#define GV_LAB_SERVICE_H

#include "lab/process.h"

typedef struct gv_start {
    gv_spawn spawn;   // of a program
    const char *unit; // or the unit
    bool user_unit;
    char *const *variables; // of a unit: KEY=VALUE to set and KEY to unset, NULL-terminated
    const char *scratch;    // a folder for what systemctl says
} gv_start;

typedef struct gv_running {
    gv_child child;
    pid_t root, main; // processes to look at; root == main for a unit
    char *unit, *drop_in, *scratch;
    bool user_unit;
} gv_running;

gv_status gv_running_start(const gv_start *start, gv_running *running, gv_error *error);

// Waits up to `seconds` for the service to end; `how` then says how it did ("exit code 1"). False when it runs on, or
// `wake` became readable.
bool gv_running_ended(gv_running *running, double seconds, int wake, const char **how);

// Stops it and everything that came from it. False when something could not be killed.
bool gv_running_stop(gv_running *running, int signal, double seconds);

// Stops a unit that an earlier gravel left with its drop-in.
gv_status gv_unit_clear(const char *unit, bool user_unit, const char *scratch, gv_error *error);

#endif
