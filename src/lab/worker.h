// The loop that runs trials: plan, claim, attempt, record, until the experiment has ended or someone wants it to stop.
#ifndef GV_LAB_WORKER_H
#define GV_LAB_WORKER_H

#include "lab/ledger.h"

#include <stdio.h>

typedef struct gv_work {
    gv_ledger *ledger;
    const gv_experiment *experiment;
    const gv_plan *plan;
    const char *folder; // where attempts keep their files; absolute
    const char *gravel; // this program
    bool once;          // a worker that ends when there is nothing to claim
    FILE *progress;     // NULL: nothing is told
} gv_work;

typedef enum gv_work_end {
    GV_WORK_ENDED,       // the experiment has
    GV_WORK_INTERRUPTED, // by a signal
    GV_WORK_IDLE,        // `once`: nothing to claim
} gv_work_end;

// Runs trials on this machine. SIGINT, SIGTERM and SIGHUP stop it: what runs is stopped and forgotten, and the ledger
// stands where it stood before that attempt.
gv_status gv_work_local(const gv_work *work, gv_work_end *end, gv_error *error);

// Has trials run as Slurm jobs, each of which is `gravel lab worker`. The ledger must be a shared one.
gv_status gv_work_slurm(const gv_work *work, const char *ledger_url, gv_work_end *end, gv_error *error);

// A descriptor that can be read from the first of those signals on. A second one ends the process at once; its keepers
// then kill what it ran. Installs the handlers; call it once.
int gv_work_signals(gv_error *error);

// The set of changes of a subject: the cell's levels, and for a minimisation the set's changes. `changes` has room for
// GV_LAB_MOST_FACTORS + GV_LAB_MOST_CHANGES. GV_ERR_FORMAT when the plan knows no such subject.
gv_status gv_subject_changes(const gv_plan *plan, gv_kind kind, const char *subject, gv_cell *cell, gv_change **changes,
                             size_t *count, gv_error *error);

#endif
