// Judges one answer: is it the call, or the text, that the round must have? An oracle says what is wrong, and never
// why: whether a wrong answer is the server's fault or the model's is decided with the baseline (baseline.h).
#ifndef GV_STRESS_ORACLE_H
#define GV_STRESS_ORACLE_H

#include "stress/reason.h"
#include "stress/reply.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

// A tool as the request describes it.
typedef struct gv_tool {
    const char *name;
    const json_t *parameters; // its schema; NULL: none
} gv_tool;

typedef struct gv_tools {
    const gv_tool *items;
    size_t count;
    const char *const *fragments; // forbidden in answers besides the built-in ones; ends with NULL; NULL: none
} gv_tools;

// What a round must bring. All NULL: nothing is known, and the baseline decides.
typedef struct gv_expectation {
    const char *tool;        // a call of this tool, ...
    const json_t *arguments; // ... with exactly these
    const char *text;        // text that must occur in the content
} gv_expectation;

typedef struct gv_judgement {
    gv_reasons reasons;
    char detail[256]; // about the leading reason, safe to print; "" when clean
    uint64_t calls;   // hash of the calls: names and arguments, whatever their order of keys and their blanks
    uint64_t text;    // hash of the content
} gv_judgement;

// Judges a reply after gv_reply_end.
void gv_judge(const gv_tools *tools, const gv_expectation *expected, const gv_reply *reply, gv_judgement *judgement);

// Adds a reason; the detail is kept when the reason leads. Control characters are made safe.
void gv_judge_add(gv_judgement *judgement, gv_reason reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// A hash that goes on from `seed` (FNV-1a, 64 bits). Start with GV_HASH_START.
#define GV_HASH_START 14695981039346656037ull
uint64_t gv_hash_bytes(uint64_t seed, const void *bytes, size_t length);

#endif
