// The router's table of workers: which there are, which are up, and which one takes the next request. Only for the
// router's loop thread.
#ifndef GV_SERVER_WORKERS_H
#define GV_SERVER_WORKERS_H

#include "base/error.h"
#include "specimen/server/loop.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum gv_worker_kind { GV_WORKER_PREFILL, GV_WORKER_DECODE, GV_WORKER_KINDS } gv_worker_kind;

typedef enum gv_worker_state {
    GV_WORKER_NEW,  // not looked at yet
    GV_WORKER_UP,   // its /health generated a token, and nothing spoke against it since
    GV_WORKER_DOWN, // lost, refusing or draining
} gv_worker_state;

typedef struct gv_worker {
    gv_worker_kind kind;
    gv_worker_state state;
    char url[256], host[128];
    int port;
    bool announced;   // came by POST /workers, so it is forgotten once it is down for long
    size_t in_flight; // requests it has now
    uint64_t requests, losses;
    uint64_t last_pick; // order of picks, for taking turns
    uint64_t next_check_ms, down_since_ms;
    unsigned missed; // looks in a row without an answer
    gv_call *check;
    bool check_generates; // the look under way is at /health, not at /ping
    struct gv_workers *table;
    struct gv_worker *next;
} gv_worker;

typedef struct gv_workers {
    gv_loop *loop;
    unsigned check_ms;
    uint64_t picks;
    gv_worker *first;
} gv_workers;

// Adds a worker by its base URL, or finds the one that has it. Errors: GV_ERR_USAGE when it is no
// "http://host:port" or the worker is known as the other kind; GV_ERR_LIMIT; GV_ERR_MEMORY.
gv_status gv_workers_add(gv_workers *workers, gv_worker_kind kind, const char *url, bool announced, gv_error *error);

// Of the workers of a kind that are up the one with the fewest requests; NULL when none is up.
gv_worker *gv_workers_pick(gv_workers *workers, gv_worker_kind kind);

size_t gv_workers_up(const gv_workers *workers, gv_worker_kind kind);

// A request found the worker dead or refusing: it gets no more until its /health answers again.
void gv_worker_lost(gv_worker *worker);

// Looks at the workers whose time has come, and forgets announced ones that stay away.
void gv_workers_tend(gv_workers *workers, uint64_t now_ms);

// The table as JSON: a list of {kind, url, state, in_flight, requests, losses}. NULL when memory is out.
json_t *gv_workers_json(const gv_workers *workers);

const char *gv_worker_kind_name(gv_worker_kind kind);

// Frees the table; the loop has ended.
void gv_workers_free(gv_workers *workers);

#endif
