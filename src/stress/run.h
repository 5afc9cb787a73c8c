// A run of `gravel stress`: sessions against a server, judged round by round, settled against the baseline.
#ifndef GV_STRESS_RUN_H
#define GV_STRESS_RUN_H

#include "base/error.h"
#include "stress/reason.h"
#include "stress/scenario.h"

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum gv_baseline_mode {
    GV_BASELINE_OFF,    // nothing is compared
    GV_BASELINE_FAILED, // sessions that were wrong, or of which nothing is expected, are run alone after the load
    GV_BASELINE_ALL,    // every session is run alone before the load
} gv_baseline_mode;

// What is going on, for a progress line.
typedef struct gv_progress {
    const char *phase; // "baseline", "load", "settling"
    double seconds;
    size_t sessions, sessions_done, running;
    uint64_t rounds, tokens;
    size_t corrupt, failed, unsure; // sessions so far, before they are settled
} gv_progress;

// Everything borrowed; must outlive the run.
typedef struct gv_stress_options {
    const char *base_url;
    const char *model;
    const char *key; // or NULL
    const gv_scenario *scenario;
    uint64_t seed;
    size_t sessions, rounds, lines, concurrency;
    uint64_t most_tokens, timeout_ms;
    double temperature;
    double ramp_s, think_low_s, think_high_s;
    bool stream;
    const json_t *body; // members that are set in each request; null removes one; or NULL
    gv_baseline_mode baseline;
    bool refresh; // the baseline is taken anew
    bool exact;
    const char *cache;       // folder of baselines, or NULL
    const char *transcripts; // folder, or NULL
    size_t most_transcripts;
    const char *tag;
    const volatile sig_atomic_t *interrupted;                     // or NULL
    void (*progress)(void *context, const gv_progress *progress); // at most five times a second; or NULL
    void *progress_context;
} gv_stress_options;

typedef struct gv_round_result {
    gv_reasons reasons;            // after settling
    gv_reasons found;              // what was found at first, where settling changed it
    uint64_t history, calls, text; // hashes: of what was sent, of the calls, of the text
    float first_ms, whole_ms;      // to the first token; to the end. first_ms is negative where it was not seen
    float token_ms;                // from the first token to the last, for each token after the first; negative: none
    uint32_t prompt_tokens, tokens;
    bool asked, counted; // `counted`: the token counts are the server's
    bool drifted;        // right, and not the text or calls of the session run alone
} gv_round_result;

// A sentence about a round that is not clean.
typedef struct gv_note {
    uint32_t session, round;
    gv_reason reason;
    char *detail;
} gv_note;

typedef struct gv_results {
    size_t sessions, rounds;
    gv_round_result *items; // [session * rounds + round]
    gv_note *notes;
    size_t note_count, note_capacity;
    char url[256];
    char started[32]; // UTC, ISO 8601
    double load_seconds, baseline_seconds;
    uint64_t requests;                                        // of the load
    size_t baseline_taken, baseline_cached, baseline_missing; // sessions
    char baseline_oldest[32]; // when the oldest baseline that was used was taken; "" when none was
    size_t transcripts, transcripts_left_out;
    char warning[256]; // about the cache or the transcripts; "" when all is well
    bool interrupted;
} gv_results;

enum { GV_MOST_ROUND_RESULTS = 4000000, GV_MOST_NOTES = 10000, GV_MOST_CONCURRENCY = 20000 };

// Runs everything. Failures of the server are results; GV_ERR_USAGE, GV_ERR_IO, GV_ERR_MISSING, GV_ERR_LIMIT and
// GV_ERR_MEMORY are the client's own. `results` is valid on GV_OK; release it with gv_results_free.
gv_status gv_stress_run(const gv_stress_options *options, gv_results *results, gv_error *error);
void gv_results_free(gv_results *results);

gv_round_result *gv_results_at(const gv_results *results, size_t session, size_t round);

// The class of a session: the highest of its rounds'. A session of which not every round was asked is a failure at
// least.
gv_class gv_results_session_class(const gv_results *results, size_t session);

// Members of a request that --body must not set, since they are what the run is about.
bool gv_body_is_ours(const char *member);

// Adds a note, bounded by GV_MOST_NOTES. The key is taken out of it.
void gv_results_note(gv_results *results, size_t session, size_t round, gv_reason reason, const char *detail,
                     const char *key);

#endif
