// From the model's text to what a client gets: content and tool calls, cut at the first stop text. Works on pieces as
// they come and holds back only what may turn out to be markup or a stop text.
//
// What is not a well-formed call is treated as SGLang's DeepSeek detector treats it, because that is how corruption
// reaches an agent, with status 200: without an opening tag everything is content; text between the parts of a call is
// dropped; a value that claims to be JSON and is not becomes a string; a call of a function that was not offered is
// dropped; without the closing tag the calls do not count.
#ifndef GV_SERVER_ANSWER_H
#define GV_SERVER_ANSWER_H

#include "specimen/server/chat_request.h"
#include "specimen/server/text.h"

#include <stdbool.h>
#include <stddef.h>

// Who gets the parts, in order. Texts are not terminated. A call's arguments come in pieces that together are JSON.
typedef struct gv_answer_sink {
    void (*content)(void *context, const char *text, size_t length);
    void (*call)(void *context, const char *name, size_t length);
    void (*arguments)(void *context, const char *json, size_t length);
    void *context;
} gv_answer_sink;

typedef struct gv_answer {
    const gv_chat_request *request; // its tools and stop texts
    gv_answer_sink sink;
    gv_text early; // may be the beginning of a stop text
    gv_text held;  // may be the beginning of markup, or is inside a call
    int state;
    bool stopped;           // a stop text was found
    bool dropping;          // inside a call of an unknown function
    bool is_text;           // the value being read is a string
    size_t parameters;      // of the call being read
    gv_text parameter_name; // of the value being read
    size_t calls, unknown_calls;
    bool failed; // memory ran out: the answer is not to be used
} gv_answer;

// `request` must outlive the answer.
void gv_answer_begin(gv_answer *answer, const gv_chat_request *request, const gv_answer_sink *sink);

// Takes the next piece of text. False once nothing more is wanted: a stop text was found, or memory ran out.
bool gv_answer_add(gv_answer *answer, const char *text, size_t length);

// No more text comes: what was held back and is content goes out.
void gv_answer_end(gv_answer *answer);

// True when there were calls and their closing tag came.
bool gv_answer_has_calls(const gv_answer *answer);

void gv_answer_free(gv_answer *answer);

#endif
