// What a run comes to: counts by class, reason and round, the interval of the rate, latency and throughput; as text and
// as JSON.
#ifndef GV_STRESS_SUMMARY_H
#define GV_STRESS_SUMMARY_H

#include "base/statistics.h"
#include "stress/run.h"

#include <stdio.h>

// Percentiles of what was measured, in milliseconds. All zero where `count` is.
typedef struct gv_percentiles {
    size_t count;
    double p50, p90, p99, most;
} gv_percentiles;

typedef struct gv_reason_count {
    size_t rounds, sessions;
    size_t first_session, first_round; // the first place in the order of sessions
} gv_reason_count;

typedef struct gv_summary {
    size_t classes[GV_CLASS_COUNT];           // sessions that were begun, by class
    size_t not_run;                           // sessions that an interruption left out
    size_t measured;                          // corrupt and clean ones: what the rate is a share of
    double rate;                              // corrupt / measured; 0 when none was measured
    gv_interval interval;                     // 95 %, Clopper-Pearson
    gv_reason_count reasons[GV_REASON_COUNT]; // a round counts once for each reason that it has
    size_t rounds_asked, drifted;
    uint64_t tokens, prompt_tokens; // of the load
    bool counted;                   // every count of tokens is the server's
    gv_percentiles first, token, whole;
} gv_summary;

// One round number over all sessions.
typedef struct gv_round_summary {
    size_t asked, classes[GV_CLASS_COUNT];
} gv_round_summary;

gv_status gv_summarise(const gv_results *results, gv_summary *summary, gv_error *error);
gv_round_summary gv_summarise_round(const gv_results *results, size_t round);

// Too few sessions could be measured to call the server clean: more than `most_unmeasured` percent of them.
bool gv_summary_unmeasured(const gv_summary *summary, const gv_results *results, double most_unmeasured);

// The report. Its last line is "CORRUPTION sessions: 10/60 = 16.7 % (95 % interval 8.3-28.5 %)".
void gv_summary_text(FILE *out, const gv_stress_options *options, const gv_results *results, const gv_summary *summary);

// The same as JSON (schema "gravel-stress", version 1). Freed with gv_free; NULL when memory is out. The key is taken
// out of it. `exit_code` is what the command will end with.
char *gv_summary_json(const gv_stress_options *options, const gv_results *results, const gv_summary *summary,
                      int exit_code);

#endif
