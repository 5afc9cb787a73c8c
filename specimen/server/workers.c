// The router's table of workers.
#include "specimen/server/workers.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_WORKERS = 256,
    PING_MS = 5000,    // a worker answers /ping at once, unless its machine is busy
    HEALTH_MS = 25000, // /health generates a token, within its own deadline of 20 s
    MISSES = 3,        // and then it may miss a look
    FORGET_MS = 60000, // an announced worker that is down for so long was replaced
};

const char *gv_worker_kind_name(gv_worker_kind kind)
{
    return kind == GV_WORKER_PREFILL ? "prefill" : "decode";
}

// Splits "http://host:port" (with an optional last '/'); IPv6 hosts stand in brackets and keep them.
static bool split_url(gv_worker *worker, const char *url)
{
    static const char scheme[] = "http://";
    if (strncmp(url, scheme, sizeof scheme - 1) != 0)
        return false;
    const char *host = url + sizeof scheme - 1;
    const char *colon = *host == '[' ? strstr(host, "]:") : strchr(host, ':');
    if (colon && *host == '[')
        colon++;
    if (!colon || colon == host || (size_t)(colon - host) >= sizeof worker->host)
        return false;
    char *end = NULL;
    long port = strtol(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || port < 1 || port > UINT16_MAX || (*end && strcmp(end, "/") != 0))
        return false;
    if (strcspn(host, "/?#@ \t\r\n") < (size_t)(colon - host))
        return false;
    snprintf(worker->host, sizeof worker->host, "%.*s", (int)(colon - host), host);
    worker->port = (int)port;
    snprintf(worker->url, sizeof worker->url, "%s%s:%d", scheme, worker->host, worker->port);
    return true;
}

gv_status gv_workers_add(gv_workers *workers, gv_worker_kind kind, const char *url, bool announced, gv_error *error)
{
    gv_worker parsed = {.kind = kind, .announced = announced, .table = workers};
    if (!split_url(&parsed, url))
        return gv_fail(error, GV_ERR_USAGE,
                       "\"%.200s\" is not the base URL of a worker, such as http://127.0.0.1:30000", url);
    size_t count = 0;
    for (gv_worker *known = workers->first; known; known = known->next, count++) {
        if (strcmp(known->url, parsed.url) != 0)
            continue;
        if (known->kind == kind)
            return GV_OK;
        return gv_fail(error, GV_ERR_USAGE, "%s is already known as a %s server", known->url,
                       gv_worker_kind_name(known->kind));
    }
    if (count == MOST_WORKERS)
        return gv_fail(error, GV_ERR_LIMIT, "the router has %d workers already, which is the most it takes",
                       MOST_WORKERS);
    gv_worker *worker = gv_malloc(sizeof *worker);
    if (!worker)
        return gv_fail(error, GV_ERR_MEMORY, "%s could not be added: out of memory", parsed.url);
    *worker = parsed;
    worker->next = workers->first;
    workers->first = worker;
    return GV_OK;
}

gv_worker *gv_workers_pick(gv_workers *workers, gv_worker_kind kind)
{
    gv_worker *best = NULL;
    for (gv_worker *worker = workers->first; worker; worker = worker->next) {
        if (worker->kind != kind || worker->state != GV_WORKER_UP)
            continue;
        if (!best || worker->in_flight < best->in_flight ||
            (worker->in_flight == best->in_flight && worker->last_pick < best->last_pick))
            best = worker;
    }
    if (best)
        best->last_pick = ++workers->picks;
    return best;
}

size_t gv_workers_up(const gv_workers *workers, gv_worker_kind kind)
{
    size_t count = 0;
    for (const gv_worker *worker = workers->first; worker; worker = worker->next)
        count += worker->kind == kind && worker->state == GV_WORKER_UP;
    return count;
}

static void go_down(gv_worker *worker)
{
    uint64_t now = gv_now_ms();
    if (worker->state != GV_WORKER_DOWN)
        worker->down_since_ms = now;
    worker->state = GV_WORKER_DOWN;
    worker->missed = 0;
    worker->next_check_ms = now + worker->table->check_ms;
}

void gv_worker_lost(gv_worker *worker)
{
    worker->losses++;
    go_down(worker);
}

// ---- Looking at workers -------------------------------------------------------------------------------------------

static gv_take drop_data(void *context, int status, const char *type, const void *bytes, size_t length)
{
    return GV_TAKEN;
}

static void on_checked(void *context, const gv_call_end *end)
{
    gv_worker *worker = context;
    worker->check = NULL;
    worker->next_check_ms = gv_now_ms() + worker->table->check_ms;
    if (end->whole && end->status == 200) {
        worker->missed = 0;
        // A look that began before the worker was lost says nothing about it now.
        if (worker->check_generates)
            worker->state = GV_WORKER_UP;
    } else if (worker->state != GV_WORKER_UP || !end->timed_out || ++worker->missed >= MISSES) {
        // Silence can mean that the worker is busy; a refusal or a lost connection cannot.
        go_down(worker);
    }
}

static void begin_check(gv_worker *worker)
{
    // A worker that is up is not asked to generate: that would add rows to its batches for ever.
    bool up = worker->state == GV_WORKER_UP;
    char url[300];
    snprintf(url, sizeof url, "%s/%s", worker->url, up ? "ping" : "health");
    gv_call_request request = {
        .method = "GET",
        .url = url,
        .connect_ms = PING_MS,
        .silence_ms = up ? PING_MS : HEALTH_MS,
        .data = drop_data,
        .done = on_checked,
        .context = worker,
    };
    worker->check_generates = !up;
    worker->check = gv_call_begin(worker->table->loop, &request);
    if (!worker->check)
        worker->next_check_ms = gv_now_ms() + worker->table->check_ms;
}

void gv_workers_tend(gv_workers *workers, uint64_t now_ms)
{
    for (gv_worker **link = &workers->first; *link;) {
        gv_worker *worker = *link;
        if (worker->announced && worker->state == GV_WORKER_DOWN && !worker->in_flight && !worker->check &&
            now_ms - worker->down_since_ms > FORGET_MS) {
            *link = worker->next;
            gv_free(worker);
            continue;
        }
        if (!worker->check && now_ms >= worker->next_check_ms)
            begin_check(worker);
        link = &worker->next;
    }
}

json_t *gv_workers_json(const gv_workers *workers)
{
    static const char *const states[] = {"new", "up", "down"};
    json_t *list = json_array();
    for (const gv_worker *worker = workers->first; list && worker; worker = worker->next) {
        json_t *one = json_pack("{s:s,s:s,s:s,s:I,s:I,s:I}", "kind", gv_worker_kind_name(worker->kind), "url",
                                worker->url, "state", states[worker->state], "in_flight", (json_int_t)worker->in_flight,
                                "requests", (json_int_t)worker->requests, "losses", (json_int_t)worker->losses);
        if (!one || json_array_append_new(list, one) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

void gv_workers_free(gv_workers *workers)
{
    while (workers->first) {
        gv_worker *next = workers->first->next;
        gv_free(workers->first);
        workers->first = next;
    }
}
