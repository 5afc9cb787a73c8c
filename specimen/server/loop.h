// One thread that makes HTTP requests to other servers, many at a time, over libcurl, and runs what others post to it.
// The router's whole state lives on such a thread, and so do the page transfers of a decode server: no locks in either.
#ifndef GV_SERVER_LOOP_H
#define GV_SERVER_LOOP_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gv_loop gv_loop;
typedef struct gv_call gv_call;

// How a call ended.
typedef struct gv_call_end {
    bool reached;     // a connection was made and at least the head of an answer came
    bool whole;       // the answer is complete as far as HTTP can tell
    bool timed_out;   // nothing was heard for the call's silence_ms, or the connection took too long
    int status;       // HTTP status, 0 when none came
    const char *text; // the reason when not whole
} gv_call_end;

typedef enum gv_take { GV_TAKEN, GV_TAKE_LATER } gv_take;

typedef struct gv_call_request {
    const char *method;
    const char *url;
    const char *body; // copied; NULL for none
    size_t length;
    const char *type; // of the body
    unsigned connect_ms;
    unsigned silence_ms; // the call fails when nothing is heard for so long; paused time does not count
    // Bytes of the answer, in order. GV_TAKE_LATER keeps them, and gv_call_resume brings them again.
    gv_take (*data)(void *context, int status, const char *type, const void *bytes, size_t length);
    // Last word of the call, which is gone afterwards. Not called after gv_call_cancel.
    void (*done)(void *context, const gv_call_end *end);
    void *context;
} gv_call_request;

// Starts the thread. `tick` runs on it every `tick_ms` milliseconds or more often.
// Errors: GV_ERR_MEMORY; GV_ERR_IO when no thread could be started.
gv_status gv_loop_start(gv_loop **loop, void (*tick)(void *context, uint64_t now_ms), unsigned tick_ms, void *context,
                        gv_error *error);

// Runs `task(argument)` on the thread soon; from any thread, in the order of the calls. False when memory is out.
bool gv_loop_post(gv_loop *loop, void (*task)(void *argument), void *argument);

// Makes the thread run its tick now; from any thread.
void gv_loop_wake(gv_loop *loop);

// ---- Only on the loop's own thread (tasks, ticks and callbacks) ----
// Begins a call; NULL when memory is out.
gv_call *gv_call_begin(gv_loop *loop, const gv_call_request *request);
// Ends it without a `done`; its connection is closed, which tells the other side.
void gv_call_cancel(gv_call *call);
void gv_call_resume(gv_call *call);

// Runs what was posted, cancels all calls and ends the thread.
void gv_loop_stop(gv_loop *loop);

// Milliseconds on the clock that the ticks are told.
uint64_t gv_now_ms(void);

#endif
