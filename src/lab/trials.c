#include "lab/trials.h"

#include "base/memory.h"

#include <string.h>

static const char *const names[] = {"pending", "counted", "infrastructure", "timed out", "void"};

const char *gv_outcome_name(gv_outcome outcome)
{
    return (unsigned)outcome < sizeof names / sizeof *names ? names[outcome] : "unknown";
}

gv_outcome gv_outcome_named(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0)
            return (gv_outcome)i;
    }
    return GV_OUTCOME_PENDING;
}

gv_status gv_trials_add(gv_trials *trials, const gv_trial *trial, gv_error *error)
{
    char *subject = gv_strdup(trial->subject);
    if (!subject || !GV_GROW(trials->items, trials->capacity, trials->count + 1)) {
        gv_free(subject);
        return gv_fail(error, GV_ERR_MEMORY, "out of memory for the trials");
    }
    trials->items[trials->count] = *trial;
    trials->items[trials->count++].subject = subject;
    return GV_OK;
}

void gv_trials_free(gv_trials *trials)
{
    for (size_t i = 0; i < trials->count; i++)
        gv_free(trials->items[i].subject);
    gv_free(trials->items);
    *trials = (gv_trials){0};
}

const gv_trial *gv_trials_pending(const gv_trials *trials)
{
    for (size_t i = 0; i < trials->count; i++) {
        if (trials->items[i].outcome == GV_OUTCOME_PENDING)
            return &trials->items[i];
    }
    return NULL;
}
