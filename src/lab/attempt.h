// One attempt at a trial: a tree with the changes, the service started and ready, the trial's command, the counts, and
// everything stopped again.
#ifndef GV_LAB_ATTEMPT_H
#define GV_LAB_ATTEMPT_H

#include "lab/counts.h"
#include "lab/manifest.h"
#include "lab/plan.h"
#include "lab/process.h"
#include "lab/trials.h"

typedef struct gv_job {
    const gv_plan *plan;
    gv_change *const *changes; // of the cell or set
    size_t change_count;
    const gv_cell *cell;
    const char *subject;
    uint64_t trial, attempt, block, seed;
    const char *folder; // of this attempt, absolute; made anew
    const char *gravel; // path of this program, ${gravel}
    int wake;           // a descriptor that can be read once the attempt is to be given up; -1 for none
    // Called with each keeper that is started, before its program does anything of note.
    void (*started)(void *context, pid_t keeper, uint64_t keeper_start);
    void (*say)(void *context, const char *what); // progress, one short line; may be NULL
    void *context;
} gv_job;

typedef struct gv_attempt {
    gv_outcome outcome; // never GV_OUTCOME_PENDING unless `interrupted`
    bool interrupted;
    bool permanent; // another attempt would come to the same
    char reason[512];
    char *tail; // of the log that belongs to the reason; may be NULL
    gv_counted counted;
    uint64_t judged; // sessions that say something
    char *manifests[GV_STAGE_COUNT];
    double seconds, start_seconds;
} gv_attempt;

// Runs it. GV_OK whatever the outcome; a failure is gravel's own (memory, a folder that cannot be made).
gv_status gv_attempt_run(const gv_job *job, gv_attempt *attempt, gv_error *error);
void gv_attempt_free(gv_attempt *attempt);

// The placeholders of a job with stand-ins for what only an attempt knows (ports, folders): for `check`, which expands
// every text of the plan and says which one is wrong.
gv_status gv_attempt_check(const gv_plan *plan, gv_error *error);

#endif
