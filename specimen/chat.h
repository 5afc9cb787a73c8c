// The chat template: messages as tokens. The offline runner and the servers use the same one.
//
//     <｜begin｜><｜System｜> ... <｜end｜><｜User｜> ... <｜end｜><｜Assistant｜> ... <｜end｜><｜Tool｜> ...
//     <｜end｜>
//
// and, for the model to go on, <｜Assistant｜> (a tool call is wanted), <｜Assistant｜><｜result｜> (behind a tool's
// answer) or <｜Assistant｜><｜plain｜> (no tools). A tool call of the model is, in text,
//
//     <｜DSML｜tool_calls>
//     <｜DSML｜invoke name="unlock">
//     <｜DSML｜parameter name="who" string="true">Mira</｜DSML｜parameter>
//     <｜DSML｜parameter name="code" string="true">red-otter</｜DSML｜parameter>
//     <｜DSML｜parameter name="pin" string="false">42</｜DSML｜parameter>
//     </｜DSML｜invoke>
//     </｜DSML｜tool_calls>
//
// Every verb is the name of a tool with these three parameters (pin is a number).
#ifndef SPECIMEN_CHAT_H
#define SPECIMEN_CHAT_H

#include "specimen/vocabulary.h"

#include <stdbool.h>

// A growing list of tokens. Zero-initialise it; free with tokens_free.
typedef struct tokens {
    int *items;
    size_t count, capacity;
} tokens;

// Each of these appends and returns false when memory is out (the list is then as it was).
bool tokens_add(tokens *list, int token);
bool tokens_add_text(tokens *list, const char *text, size_t length);
void tokens_free(tokens *list);

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL };

// Puts TOKEN_BEGIN in front; for the first message.
bool chat_begin(tokens *list);

// A message of text. A tool's answer is text too (its JSON).
bool chat_message(tokens *list, enum chat_role role, const char *text, size_t length);

// A message of the assistant that called a tool before; each argument in its text form.
bool chat_call(tokens *list, const char *tool, const char *who, const char *code, const char *pin);

// What the model continues. after_tool: the last message is a tool's answer; with_tools: tools were offered.
bool chat_open(tokens *list, bool with_tools, bool after_tool);

#endif
