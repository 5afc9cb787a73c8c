// The answer to a chat request as OpenAI's API words it: one JSON object, or server-sent events as the tokens come.
#ifndef GV_SERVER_CHAT_REPLY_H
#define GV_SERVER_CHAT_REPLY_H

#include "specimen/server/answer.h"
#include "specimen/server/http.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct gv_reply_call {
    char id[32];
    gv_text name, arguments;
} gv_reply_call;

// One answer in the making. Used by one thread at a time. It writes to the exchange and, once finished, has given the
// exchange away.
typedef struct gv_chat_reply {
    gv_http_exchange *exchange;
    const gv_chat_request *request;
    gv_answer answer;
    char id[48];
    long long created; // seconds since 1970
    int previous;      // the token before, for the gap between two; -1 at the start
    bool began;        // the head of a streamed answer is out
    bool gone;         // the client is, or memory: nothing more is of use
    gv_text content;   // collected when the answer is not streamed
    gv_reply_call *calls;
    size_t call_count, call_capacity;
} gv_chat_reply;

// `request` must outlive the reply. `id` makes the answer's id: any number.
void gv_chat_reply_begin(gv_chat_reply *reply, gv_http_exchange *exchange, const gv_chat_request *request,
                         unsigned long long id);

// Takes tokens of the model's answer. False once no more are wanted: a stop text, or the client is gone.
bool gv_chat_reply_add(gv_chat_reply *reply, const int *tokens, size_t count);

// Ends the answer. `length` says that the model was cut at its limit of tokens and did not end by itself.
void gv_chat_reply_end(gv_chat_reply *reply, bool length, int prompt_tokens, int completion_tokens);

// Ends it with an error: as the whole reply where none of it is out yet, else as an event instead of the end.
void gv_chat_reply_fail(gv_chat_reply *reply, const gv_api_error *error);

void gv_chat_reply_free(gv_chat_reply *reply);

#endif
