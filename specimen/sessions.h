// Agent sessions whose right course is known: a system message with planted facts, and in each round a question that
// only a tool call answers, the call's arguments being in the facts. Made from a seed, and checked token by token.
#ifndef SPECIMEN_SESSIONS_H
#define SPECIMEN_SESSIONS_H

#include "specimen/chat.h"

#include <stdint.h>

enum { SESSION_FACTS = 8 };

// What a round should end in: the tool call's parts, as tokens.
typedef struct session_call {
    int verb, name, colour, animal, pin;
} session_call;

typedef struct session {
    uint64_t random; // its own sequence
    tokens history;  // what the model sees next
    int rounds;      // asked so far
    struct {
        int name, place, colour, animal, pin;
    } facts[SESSION_FACTS];
    session_call wanted; // of the current round
} session;

// Starts session `number` of a run with the given seed. False when memory is out; session_end frees it in any case.
bool session_begin(session *s, uint64_t seed, int number);
void session_end(session *s);

// Appends the next round: the tool's answer to the last one, and a question. The history is then a prompt.
bool session_ask(session *s);

// The right answer to the current round, without TOKEN_END: returns how many tokens (at most SESSION_ANSWER).
enum { SESSION_ANSWER = 16 };
int session_answer(const session *s, int *answer);

// How an answer of the model is wrong.
enum session_verdict {
    SESSION_RIGHT,
    SESSION_ARGUMENT, // a well-formed call with a wrong name, code or pin (or the wrong tool)
    SESSION_FORM,     // anything else that came to its end
    SESSION_ENDLESS,  // it did not end by itself
    SESSION_VERDICTS,
};
enum session_verdict session_judge(const session *s, const int *answer, int count, bool ended);

// Appends the model's answer, whatever it was.
bool session_hear(session *s, const int *answer, int count);

#endif
