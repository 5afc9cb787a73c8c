// The search for the fewest changes that still pass: delta debugging (Zeller and Hildebrandt, "Simplifying and
// isolating failure-inducing input", IEEE Transactions on Software Engineering 28, 2002) with the roles of passing and
// failing swapped, and with an oracle that errs. Whether a set passes is decided by a sequential test of its trials;
// the errors of the i-th decision are at most (1 - confidence) / (i (i + 1)), so that those of a search of any length
// add up to less than 1 - confidence.
#ifndef GV_LAB_MINIMISE_H
#define GV_LAB_MINIMISE_H

#include "base/sequential.h"
#include "lab/plan.h"
#include "lab/trials.h"

typedef enum gv_answer {
    GV_ANSWER_PASS,       // its rate is below `corrupt`
    GV_ANSWER_FAIL,       // its rate is above `clean`
    GV_ANSWER_UNRESOLVED, // its trials had no counts, or `most_sessions` did not tell
} gv_answer;

// "passes", "fails", "unresolved". Never NULL.
const char *gv_answer_name(gv_answer answer);

typedef struct gv_decision {
    uint64_t number; // from 1; the trials that belong to it have it as their block
    bool *in;        // which changes are in the set
    size_t size;
    char *name; // of the set, as gv_set_name writes it
    gv_answer answer;
    uint64_t trials, sessions, corrupt;
    uint64_t infrastructure, timed_out, voided; // trials without counts
    double error;                               // the largest probability that this answer is wrong
} gv_decision;

typedef enum gv_search_end {
    GV_SEARCH_OPEN,       // more trials are needed
    GV_SEARCH_FOUND,      // `in` passes and no change can be left out of it
    GV_SEARCH_FOUND_SOME, // `in` passes; for some changes it is not known whether they can be left out
    GV_SEARCH_NOTHING,    // the cell passes without any change
    GV_SEARCH_ALL_FAIL,   // the changes together do not pass
    GV_SEARCH_UNRESOLVED, // it could not be decided whether none passes or all do
} gv_search_end;

typedef struct gv_search {
    gv_search_end end;
    bool *in; // the smallest set known to pass; all while none is known
    size_t size, change_count;
    gv_decision *decisions;
    size_t decision_count, decision_capacity;
    double error; // the largest probability that any decision is wrong
    uint64_t sessions;
    gv_step step; // the trials to plan next
} gv_search;

// The set as the ledger names it: "none", or the numbers of its changes from 1, "1 3".
char *gv_set_name(const bool *in, size_t count);
// The reverse; false for a text that is no set of `count` changes.
bool gv_set_read(const char *name, bool *in, size_t count);

// The set of that name as people read it: "overlap off, batch cap", "no change". Owned by the caller; NULL when memory
// is out.
char *gv_set_text(const gv_plan *plan, const char *name);

// Follows the search as far as the trials reach. Deterministic: the same trials give the same search.
gv_status gv_search_follow(const gv_plan *plan, const gv_trials *trials, gv_search **search, gv_error *error);
void gv_search_free(gv_search *search);

// The error that decision `number` may have, for a search with this confidence.
double gv_decision_error(double confidence, uint64_t number);

#endif
