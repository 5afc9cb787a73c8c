// One answer to a chat completion request, put together from the events of a stream or from one JSON body. What a
// hostile server sends is bounded in every dimension; what is wrong with it is told by a reason of reason.h.
#ifndef GV_STRESS_REPLY_H
#define GV_STRESS_REPLY_H

#include "report/format.h"
#include "stress/reason.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GV_REPLY_CALLS = 32 };

// A tool call as it came.
typedef struct gv_call {
    gv_string id, name, arguments;
    bool seen;
} gv_call;

// Zero-initialise it and set `limit`; release it with gv_reply_free.
typedef struct gv_reply {
    size_t limit; // bytes of all texts together
    gv_string content, reasoning, refusal;
    gv_call *calls; // GV_REPLY_CALLS of them once the first call came, else NULL
    size_t call_count;
    char finish[32]; // finish_reason; "" while there was none
    bool done;       // the stream ended with [DONE]
    bool has_usage;  // the two counts below came from the server
    uint64_t prompt_tokens, completion_tokens;
    uint64_t pieces; // events that carried text or a part of a call
    size_t bytes;    // of all texts
    bool failed;     // `reason` and `detail` say why
    gv_reason reason;
    char detail[256]; // safe to print
} gv_reply;

// Takes the data of one event of a stream, "[DONE]" included. Returns false when the reply has failed.
bool gv_reply_event(gv_reply *reply, const char *data, size_t length);

// Takes the body of an answer that is not streamed.
bool gv_reply_body(gv_reply *reply, const char *data, size_t length);

// The connection ended as HTTP has it. A reply that is not whole fails here: `stream` says whether [DONE] is wanted.
void gv_reply_end(gv_reply *reply, bool stream);

// Marks the reply as failed, unless it is already. Control characters of the message are made safe.
void gv_reply_fail(gv_reply *reply, gv_reason reason, const char *format, ...) __attribute__((format(printf, 3, 4)));

// Whether the server gave anything that an oracle can look at.
bool gv_reply_has_answer(const gv_reply *reply);

void gv_reply_free(gv_reply *reply);

// Whether `length` bytes are UTF-8. `*bad` is the offset of the first that is not.
bool gv_utf8_check(const char *text, size_t length, size_t *bad);

// Drops a character that the end of a buffer has cut.
void gv_utf8_trim(char *text);

#endif
