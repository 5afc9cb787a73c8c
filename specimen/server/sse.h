// Server-sent events (WHATWG HTML, "Server-sent events"): writing them, and cutting a stream at whole events.
#ifndef GV_SERVER_SSE_H
#define GV_SERVER_SSE_H

#include "specimen/server/text.h"

#include <stdbool.h>
#include <stddef.h>

// Appends one event whose data is `length` bytes without a line end. False when memory ran out.
bool gv_sse_add(gv_text *out, const char *data, size_t length);
// Appends the event that ends a stream of OpenAI's API: "data: [DONE]".
bool gv_sse_add_done(gv_text *out);

typedef enum gv_sse_kind {
    GV_SSE_NONE,  // no whole event yet
    GV_SSE_DATA,  // anything, a comment included
    GV_SSE_DONE,  // [DONE]
    GV_SSE_ERROR, // its data is a JSON object with the member "error"
} gv_sse_kind;

// Looks at the first event in `length` bytes; `*size` is what it takes, with its empty line. Lines may end in LF or
// CRLF.
gv_sse_kind gv_sse_first(const char *bytes, size_t length, size_t *size);

#endif
