// Many HTTP requests at a time over one event loop: libcurl's multi interface driven by epoll, on the calling thread.
// It sends POST requests to one URL and hands on what comes, within bounds; it knows nothing of chat completions.
// Redirects are not followed, proxies are not used, nothing is retried but a request on a kept connection that the
// server had closed.
#ifndef GV_STRESS_CLIENT_H
#define GV_STRESS_CLIENT_H

#include "base/clock.h"
#include "base/error.h"
#include "stress/reason.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gv_client gv_client;

typedef struct gv_client_options {
    const char *url;      // of the requests
    const char *key;      // bearer key, or NULL; kept nowhere but in a header of the requests
    bool stream;          // asks for an event stream
    uint64_t timeout_ms;  // of a whole request
    size_t most_bytes;    // of an answer's body
    size_t most_requests; // at a time
} gv_client_options;

// How a request ended. `reason` is GV_REASON_COUNT when an answer with status 200 came whole.
typedef struct gv_outcome {
    gv_reason reason;
    long http_status;                             // 0: none came
    char content_type[64];                        // "" when none
    char detail[256];                             // of a failure, safe to print
    uint64_t started_ns, first_byte_ns, ended_ns; // CLOCK_MONOTONIC; first_byte_ns is 0 when no byte of a body came
} gv_outcome;

// A request, owned by the caller, which must stay where it is until `on_end` was called.
typedef struct gv_request {
    // Gets bytes of the body of an answer with status 200. Returns false to stop: on_end then has GV_REASON_COUNT.
    bool (*on_data)(struct gv_request *request, const char *bytes, size_t length);
    // The request is over; its memory is the caller's again, and it may start the next one.
    void (*on_end)(struct gv_request *request, const gv_outcome *outcome);
    void *context;
    char id[96]; // sent as X-Request-Id, so that the server's log can be read beside the report
    struct gv_transfer *transfer;
} gv_request;

// Finds the host's address once and prepares `most_requests`. GV_ERR_MISSING: libcurl; GV_ERR_USAGE: the URL;
// GV_ERR_IO: the host or the limit of open files, each with the remedy.
gv_status gv_client_open(gv_client **client, const gv_client_options *options, gv_error *error);
void gv_client_close(gv_client *client);

// Sends `body`, which must stay as it is until on_end. False when memory is out or too many requests are under way;
// on_end is not called then.
bool gv_client_start(gv_client *client, gv_request *request, const char *body, size_t length);

// Waits for something to happen, until `deadline_ns` (CLOCK_MONOTONIC; UINT64_MAX: none) at most, and calls the
// callbacks. False when the system refuses to wait at all.
bool gv_client_poll(gv_client *client, uint64_t deadline_ns);

size_t gv_client_running(const gv_client *client);

// Ends every request under way with GV_REASON_INTERRUPTED.
void gv_client_cancel_all(gv_client *client);

// Checks a base URL and gives the URL of its chat completions: "http://host:1/v1" gives
// "http://host:1/v1/chat/completions", and a URL without a path gets /v1. Freed with gv_free.
gv_status gv_client_url(const char *base, char **url, gv_error *error);

// Checks a bearer key: printable, without blanks. The message does not hold it.
gv_status gv_client_check_key(const char *key, gv_error *error);

#endif
