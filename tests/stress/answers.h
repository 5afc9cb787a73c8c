// What the test servers answer: for each session and round of a scenario the right answer, or a wrong one of a kind.
// The request's X-Request-Id says which session and round it is, so that a server need not read the conversation.
#ifndef GV_TESTS_STRESS_ANSWERS_H
#define GV_TESTS_STRESS_ANSWERS_H

#include "stress/session.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct answers {
    gv_scenario *scenario;
    gv_session *sessions;
    size_t count, rounds;
    const char *wrong;  // kind of the wrong answers, "by-tag", or NULL
    size_t wrong_count; // sessions that get one, the first ones
    bool wrong_alone;   // the session run alone gets it too
    const char *key;    // the bearer key that is wanted, or NULL
    size_t piece;       // bytes of arguments in an event
} answers;

typedef struct answers_place {
    size_t session, round;
    bool alone;
    const char *kind; // with "by-tag": the kind that the request's tag names up to its first dot; else NULL
} answers_place;

// Reads the options that both servers have; exits with a message when one is wrong. Returns the index of the first
// argument that is not an option of these, which is then the caller's.
//   --scenario FILE --seed N --sessions N --rounds N --ctx N --wrong KIND --wrong-count N --wrong-alone --key KEY
//   --piece N
int answers_open(answers *all, int argc, char **argv);
void answers_close(answers *all);

// The kinds of wrong answers; ends with NULL.
extern const char *const answers_kinds[];

// Where a request stands, by its id: "TAG-s12-r3" or "TAG-s12-r3-alone". False when the id says nothing.
bool answers_find(const answers *all, const char *id, answers_place *place);

// The body of the answer: a stream of events or a JSON text. Freed with gv_free.
char *answers_body(const answers *all, const answers_place *place, bool stream, size_t *length);

// Writes the port number into a file, whole or not at all.
bool answers_write_port(const char *path, unsigned port);

#endif
