// The ledger: every experiment, trial, attempt, session, decision and event, in a SQLite file or a PostgreSQL database.
// Rows are only ever added (triggers refuse anything else), each step in one transaction, so that a gravel that is
// killed at any instant leaves a ledger from which the next one goes on. What is to be done next is computed from the
// rows alone.
#ifndef GV_LAB_LEDGER_H
#define GV_LAB_LEDGER_H

#include "lab/attempt.h"
#include "lab/plan.h"
#include "lab/trials.h"

typedef struct gv_ledger gv_ledger;

typedef enum gv_kind { GV_KIND_RUN, GV_KIND_MINIMISE } gv_kind;
// "run", "minimise"
const char *gv_kind_name(gv_kind kind);

typedef struct gv_experiment {
    uint64_t id;
    gv_kind kind;
    char *name, *path, *text; // of the plan
    char *begun;
    char *ended; // why it ended; NULL while it has not
} gv_experiment;

// An attempt as reports show it.
typedef struct gv_attempt_row {
    uint64_t trial, attempt;
    char *subject, *outcome, *reason, *tail, *folder, *host;
    uint64_t sessions, corrupt, failed;
    double seconds, start_seconds;
    bool final;
} gv_attempt_row;

typedef struct gv_attempt_rows {
    gv_attempt_row *items;
    size_t count, capacity;
} gv_attempt_rows;

// Opens the ledger; with `create` a SQLite file and the tables are made where they are missing.
gv_status gv_ledger_open(const char *where, bool create, gv_ledger **ledger, gv_error *error);
void gv_ledger_close(gv_ledger *ledger);

// True when several workers may use it at once.
bool gv_ledger_shared(const gv_ledger *ledger);

// Makes this process the only one that runs trials of a SQLite ledger, until it closes it or ends. GV_ERR_LIMIT when
// another one is. Does nothing for a shared ledger.
gv_status gv_ledger_lock(gv_ledger *ledger, gv_error *error);

// The experiment of this plan and kind, begun now when it was not there (`*existed` says which).
gv_status gv_ledger_begin(gv_ledger *ledger, const gv_plan *plan, gv_kind kind, gv_experiment *experiment,
                          bool *existed, gv_error *error);

// The latest experiment, of this plan where `plan` is given, of this kind where `kind` is (as int, -1 for any).
// GV_ERR_MISSING when there is none.
gv_status gv_ledger_find(gv_ledger *ledger, const gv_plan *plan, int kind, gv_experiment *experiment, gv_error *error);
void gv_experiment_free(gv_experiment *experiment);

// Appends a note: who started, resumed, was interrupted.
gv_status gv_ledger_event(gv_ledger *ledger, uint64_t experiment, const char *what, const char *text, gv_error *error);

// The texts of all events `what`, oldest first, handed to `each`.
gv_status gv_ledger_events(gv_ledger *ledger, uint64_t experiment, const char *what,
                           void (*each)(void *context, const char *text), void *context, gv_error *error);

gv_status gv_ledger_trials(gv_ledger *ledger, uint64_t experiment, gv_trials *trials, gv_error *error);

// Plans the next trials where none is pending, and records decisions and the end. Several workers may call it at once:
// one of them plans. `*ended` when the experiment has ended.
gv_status gv_ledger_advance(gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan, bool *ended,
                            gv_error *error);

// Takes a pending trial that no other worker has. `*claimed` is false when there is none. The claim lasts until
// gv_ledger_release, or until this process or its connection ends. `trial->subject` is the caller's to free.
gv_status gv_ledger_claim(gv_ledger *ledger, uint64_t experiment, gv_trial *trial, bool *claimed, gv_error *error);
void gv_ledger_release(gv_ledger *ledger);

// Records an attempt with all that belongs to it. `final` ends the trial. `*kept` is false, with nothing written, when
// that attempt was recorded by someone else meanwhile.
gv_status gv_ledger_record(gv_ledger *ledger, uint64_t experiment, const gv_job *job, const gv_attempt *attempt,
                           bool final, bool *kept, gv_error *error);

// How many attempts were counted and how many were not.
gv_status gv_ledger_totals(gv_ledger *ledger, uint64_t experiment, uint64_t *counted, uint64_t *uncounted,
                           gv_error *error);

gv_status gv_ledger_attempts(gv_ledger *ledger, uint64_t experiment, gv_attempt_rows *rows, gv_error *error);
void gv_attempt_rows_free(gv_attempt_rows *rows);

// The manifest that the counted attempt of a trial took once its service was ready, handed to `each` with the trial's
// subject.
gv_status gv_ledger_manifests(gv_ledger *ledger, uint64_t experiment,
                              gv_status (*each)(void *context, const char *subject, uint64_t trial,
                                                const char *manifest),
                              void *context, gv_error *error);

#endif
