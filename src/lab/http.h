// One HTTP request at a time, for health checks and the readiness request.
#ifndef GV_LAB_HTTP_H
#define GV_LAB_HTTP_H

#include "base/error.h"
#include "lab/plan.h"

#include <stdbool.h>

typedef struct gv_request {
    const char *url;
    const char *body;           // JSON for a POST; NULL: a GET
    const gv_settings *headers; // may be NULL
    double seconds;             // for all of it
    // Asked every moment; true gives the request up. May be NULL.
    bool (*give_up)(void *context);
    void *context;
} gv_request;

typedef struct gv_answer_text {
    long code; // HTTP status
    char *text;
    size_t length, capacity;
} gv_answer_text;

// Sends it. GV_OK for any HTTP answer, whatever its status; GV_ERR_IO, saying why, for none. The answer is the caller's
// to free; it may have 4 MiB.
gv_status gv_http(const gv_request *request, gv_answer_text *answer, gv_error *error);

#endif
