// Server-sent events (WHATWG HTML, section 9.2.6 "Interpreting an event stream"), read as bytes come in: any split of
// the stream gives the same events. Only `data` matters to a chat completion; comments and other fields are passed
// over. Memory is bounded by the limit of one event, whatever the server sends.
#ifndef GV_STRESS_SSE_H
#define GV_STRESS_SSE_H

#include "report/format.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum gv_sse_status {
    GV_SSE_OK,
    GV_SSE_STOPPED,  // the handler asked to stop
    GV_SSE_TOO_LONG, // a line or an event is longer than the limit
    GV_SSE_MEMORY
} gv_sse_status;

// Gets the data of an event, `length` bytes and a NUL; returns whether to go on. The bytes are the server's: any.
typedef bool (*gv_sse_handler)(void *context, const char *data, size_t length);

// Zero-initialise it and set `limit`, `handler` and `context`.
typedef struct gv_sse {
    size_t limit; // of one event, in bytes
    gv_sse_handler handler;
    void *context;
    gv_string line;  // the part of a line that came so far
    gv_string data;  // of the event so far, each line followed by LF
    bool started;    // past a byte order mark
    bool after_cr;   // a LF that comes next belongs to the last line end
    unsigned marked; // bytes of a byte order mark seen
} gv_sse;

gv_sse_status gv_sse_feed(gv_sse *sse, const char *bytes, size_t length);

// The stream ended. The specification drops an event without its blank line; a last "data: [DONE]" is given to the
// handler all the same, since some servers end there.
gv_sse_status gv_sse_finish(gv_sse *sse);

void gv_sse_free(gv_sse *sse);

#endif
