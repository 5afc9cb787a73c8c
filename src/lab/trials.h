// Trials as the ledger holds them, and the two questions asked of them again and again: what is to be run next, and
// what do they show. Both are answered from the trials alone, so that a run that was killed goes on where it stood.
#ifndef GV_LAB_TRIALS_H
#define GV_LAB_TRIALS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum gv_outcome {
    GV_OUTCOME_PENDING,        // planned, or being run
    GV_OUTCOME_COUNTED,        // it has counts: its sessions say something
    GV_OUTCOME_INFRASTRUCTURE, // the service or the trial's command did not work; says nothing
    GV_OUTCOME_TIMED_OUT,      // the trial's command did not end in time
    GV_OUTCOME_VOID,           // what was measured is not what was meant
} gv_outcome;

// "pending", "counted", "infrastructure", "timed out", "void". Never NULL.
const char *gv_outcome_name(gv_outcome outcome);
// The outcome of this name, or GV_OUTCOME_PENDING.
gv_outcome gv_outcome_named(const char *name);

// A trial with its last attempt's outcome.
typedef struct gv_trial {
    uint64_t number; // from 1, without gaps
    uint64_t block;  // of a run: from 1; of a minimisation: the decision
    char *subject;   // a cell's name, or a set of changes as gv_set_name writes it
    uint64_t seed;
    gv_outcome outcome;
    uint64_t sessions, corrupt; // judged sessions, and the corrupt ones of them
    uint64_t failed;            // sessions that said nothing
    uint64_t attempts;
    double seconds; // of all attempts
} gv_trial;

typedef struct gv_trials {
    gv_trial *items;
    size_t count, capacity;
} gv_trials;

// Adds a copy, of `subject` too.
gv_status gv_trials_add(gv_trials *trials, const gv_trial *trial, gv_error *error);
void gv_trials_free(gv_trials *trials);
// The first that is pending, or NULL.
const gv_trial *gv_trials_pending(const gv_trials *trials);

// What comes next. `next` holds trials to be planned; it is empty when the experiment has ended.
typedef struct gv_step {
    gv_trials next;
    bool ended;
    const char *why; // it ended: one sentence, static
} gv_step;

#endif
