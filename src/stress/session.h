// One session, made from a scenario and a seed: the texts that are sent and what must come back. The same scenario,
// seed, number and sizes always give the same session, so that a session can be made again instead of being kept.
#ifndef GV_STRESS_SESSION_H
#define GV_STRESS_SESSION_H

#include "report/format.h"
#include "stress/scenario.h"

// A round as it is sent and judged. Owned by the session; `expected` points into it.
typedef struct gv_turn {
    char *user;
    gv_expectation expected;
    json_t *arguments;
    char *text;
    char *result; // what the expected tool answers, as JSON text; NULL when no call is expected
} gv_turn;

typedef struct gv_session {
    const gv_scenario *scenario;
    uint64_t seed;
    size_t index;
    char *system; // NULL: none
    gv_turn *turns;
    size_t turn_count;
} gv_session;

// Makes session `index` (from 0) with `rounds` rounds and a context of `lines` lines (more when there are more facts).
// GV_ERR_LIMIT when a rule for values cannot give as many different ones as are needed; GV_ERR_USAGE when the scenario
// has fewer rounds; GV_ERR_MEMORY.
gv_status gv_session_make(const gv_scenario *scenario, uint64_t seed, size_t index, size_t rounds, size_t lines,
                          gv_session *session, gv_error *error);
void gv_session_free(gv_session *session);

// The result of a tool that was called without being expected: what its description has under `result`, or "{}".
// Freed with gv_free; NULL when memory is out.
char *gv_session_other_result(const gv_session *session, const char *tool);

// Adds text as a JSON string with its quotes. The text must be UTF-8.
void gv_add_json_string(gv_string *out, const char *text, size_t length);

// A reproducible sequence of numbers (splitmix64).
typedef struct gv_random {
    uint64_t state;
} gv_random;

gv_random gv_random_open(uint64_t seed, uint64_t stream);
uint64_t gv_random_next(gv_random *random);
// Uniform in [0, below); 0 for 0.
uint64_t gv_random_below(gv_random *random, uint64_t below);

#endif
