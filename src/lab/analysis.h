// What the trials of a run show: a verdict for each cell, contrasts, and in which levels the corrupt cells agree. Also
// the schedule, because when to stop is asked of the same numbers.
#ifndef GV_LAB_ANALYSIS_H
#define GV_LAB_ANALYSIS_H

#include "base/sequential.h"
#include "base/statistics.h"
#include "lab/plan.h"
#include "lab/trials.h"

// A cell that had this many trials in a row without counts is given up.
enum { GV_LAB_GIVE_UP = 3 };

typedef struct gv_cell_result {
    gv_cell cell;
    uint64_t trials;                                     // that ended
    uint64_t counted, infrastructure, timed_out, voided; // of them
    uint64_t sessions, corrupt, failed;
    gv_interval interval;             // Clopper and Pearson, 95 %
    gv_verdict verdict;               // GV_LOW is clean, GV_HIGH is corrupt
    uint64_t at_sessions, at_corrupt; // the counts when the verdict was reached
    uint64_t in_a_row;                // latest trials without counts
    bool gave_up, running;            // running: the stop rule wants more of it
    double dispersion; // p of the hypothesis that its trials have one rate; NaN where fewer than two were counted
} gv_cell_result;

typedef struct gv_contrast_result {
    size_t first, second; // cells
    uint32_t factors;     // in which they differ
    const char *name;     // of a wanted comparison, else NULL
    double fisher;        // Fisher's exact p of the counts, two-sided
    double anytime;       // valid whenever one stops (sequential.h)
    double adjusted; // for the number of contrasts, by Holm; of `anytime` when the rule is sequential, else `fisher`
    bool shown;      // adjusted <= 1 - confidence
} gv_contrast_result;

// A factor's levels with everything else pooled.
typedef struct gv_effect {
    size_t factor, level;
    uint64_t sessions, corrupt;
    double fisher; // against the other levels together; NaN where one side is empty
} gv_effect;

typedef struct gv_analysis {
    const gv_plan *plan;
    gv_cell_result *cells; // of plan->design, in its order
    size_t cell_count;
    gv_contrast_result *contrasts; // of one factor first, then the plan's comparisons
    size_t contrast_count;
    gv_effect *effects;
    size_t effect_count;
    char **sentences; // what the verdicts say together
    size_t sentence_count, sentence_capacity;
    uint64_t sessions, blocks;
    double seconds;
} gv_analysis;

// Errors a verdict of one cell may have, so that those of all cells together stay below 1 - confidence.
gv_sprt gv_cell_test(const gv_plan *plan);

// Looks at the trials of a run. Pending ones count for nothing.
gv_status gv_analyse(const gv_plan *plan, const gv_trials *trials, gv_analysis **analysis, gv_error *error);
void gv_analysis_free(gv_analysis *analysis);

// The trials of the next block. With trials still pending nothing is planned, and the experiment has not ended.
gv_status gv_run_next(const gv_plan *plan, const gv_trials *trials, gv_step *step, gv_error *error);

// "clean", "corrupt", "undecided".
const char *gv_cell_verdict_name(gv_verdict verdict);

// Fills analysis->sentences (conditions.c).
gv_status gv_conditions(gv_analysis *analysis, gv_error *error);

#endif
