// The router: one relay a request, all on the loop's thread.
//
// A relay never lets a client take a part for the whole: an answer that is not streamed is passed on only when it is
// complete, and a stream that ends without [DONE] gets an error event instead of an end.
#include "specimen/server/router.h"

#include "base/memory.h"
#include "specimen/server/loop.h"
#include "specimen/server/models.h"
#include "specimen/server/sse.h"
#include "specimen/server/workers.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    TICK_MS = 100,
    CONNECT_MS = 5000,
    MOST_ATTEMPTS = 2,        // a request that kills servers must not be carried through all of them
    MOST_PENDING = 256 << 10, // of a stream that its client does not take; then the decode server waits
    MOST_EVENT = 1 << 20,
    MOST_ANSWER = 32 << 20,
};

static const char event_stream[] = "text/event-stream; charset=utf-8";

typedef struct gv_relay gv_relay;

typedef struct gv_router {
    gv_router_settings settings;
    gv_http_server *http;
    gv_workers workers;
    gv_relay *relays;
    size_t relay_count;
    uint64_t begun, finished, failed, clients_gone, retried;
} gv_router;

struct gv_relay {
    gv_router *router;
    gv_http_exchange *exchange;
    json_t *body;
    gv_worker *worker[GV_WORKER_KINDS]; // those whose in_flight counts this relay
    gv_call *call[GV_WORKER_KINDS];
    unsigned attempts;
    bool heard;         // the decode server's answer has a body
    bool streamed;      // of events
    bool began;         // the client has the head of the answer
    bool paused;        // the client does not take what is pending
    bool done, failure; // events seen: [DONE], an error
    bool too_long;
    bool prefill_lost;
    gv_text rest;    // of a stream: the event that is not whole yet; else the decode server's answer
    gv_text refusal; // the prefill server's answer, of interest when it is an error
    gv_relay *next, *previous;
};

// ---- Ends of a relay ----------------------------------------------------------------------------------------------

static void leave_worker(gv_relay *relay, gv_worker_kind kind)
{
    if (relay->call[kind])
        gv_call_cancel(relay->call[kind]);
    relay->call[kind] = NULL;
    if (relay->worker[kind])
        relay->worker[kind]->in_flight--;
    relay->worker[kind] = NULL;
}

// The exchange has been answered.
static void end_relay(gv_relay *relay)
{
    gv_router *router = relay->router;
    leave_worker(relay, GV_WORKER_PREFILL);
    leave_worker(relay, GV_WORKER_DECODE);
    if (relay->previous)
        relay->previous->next = relay->next;
    else
        router->relays = relay->next;
    if (relay->next)
        relay->next->previous = relay->previous;
    router->relay_count--;
    json_decref(relay->body);
    gv_text_free(&relay->rest);
    gv_text_free(&relay->refusal);
    gv_free(relay);
}

static void fail_relay(gv_relay *relay, const gv_api_error *error)
{
    relay->router->failed++;
    if (relay->began) {
        size_t length = 0;
        char *json = gv_api_error_json(error, &length);
        gv_text event = {0};
        bool said =
            json && gv_sse_add(&event, json, length) && gv_http_stream_write(relay->exchange, event.data, event.length);
        gv_text_free(&event);
        gv_free(json);
        gv_http_stream_end(relay->exchange, said);
    } else {
        gv_http_reply_error(relay->exchange, error);
    }
    end_relay(relay);
}

static void pass_on(gv_relay *relay, int status, gv_text *answer)
{
    size_t length = 0;
    char *body = gv_text_take(answer, &length);
    relay->router->finished++;
    gv_http_reply(relay->exchange, status, "application/json", body, body ? length : 1);
    end_relay(relay);
}

// ---- Attempts -----------------------------------------------------------------------------------------------------

static void attempt(gv_relay *relay);

// Tries once more on other workers where nothing has reached the client yet; else says the error.
static void attempt_again(gv_relay *relay, const gv_api_error *error)
{
    leave_worker(relay, GV_WORKER_PREFILL);
    leave_worker(relay, GV_WORKER_DECODE);
    bool others = gv_workers_up(&relay->router->workers, GV_WORKER_PREFILL) &&
                  gv_workers_up(&relay->router->workers, GV_WORKER_DECODE);
    if (relay->began || relay->attempts >= MOST_ATTEMPTS || !others) {
        fail_relay(relay, error);
        return;
    }
    relay->heard = relay->streamed = relay->paused = relay->done = relay->failure = relay->too_long =
        relay->prefill_lost = false;
    gv_text_free(&relay->rest);
    gv_text_free(&relay->refusal);
    relay->router->retried++;
    attempt(relay);
}

static void say_lost(gv_api_error *error, gv_worker_kind kind, const gv_call_end *end)
{
    const char *name = gv_worker_kind_name(kind);
    if (end->timed_out)
        gv_refuse(error, 504, NULL, "worker_timeout", "the %s server did not answer in time", name);
    else
        gv_refuse(error, 502, NULL, "worker_lost", "the %s server was lost before the answer was complete", name);
}

static gv_take forward_events(gv_relay *relay, const void *bytes, size_t length)
{
    if (relay->began && gv_http_stream_full(relay->exchange, MOST_PENDING)) {
        relay->paused = true;
        return GV_TAKE_LATER;
    }
    if (relay->done || relay->failure || relay->too_long)
        return GV_TAKEN;
    gv_text_add(&relay->rest, bytes, length);
    size_t whole = 0;
    while (!relay->done && !relay->failure) {
        size_t size = 0;
        gv_sse_kind kind = gv_sse_first(relay->rest.data + whole, relay->rest.length - whole, &size);
        if (kind == GV_SSE_NONE)
            break;
        relay->done = kind == GV_SSE_DONE;
        relay->failure = kind == GV_SSE_ERROR;
        whole += size;
    }
    if (whole) {
        if (!relay->began)
            gv_http_stream_begin(relay->exchange, 200, event_stream);
        relay->began = true;
        gv_http_stream_write(relay->exchange, relay->rest.data, whole);
        gv_text_drop(&relay->rest, whole);
    }
    relay->too_long = relay->rest.failed || relay->rest.length > MOST_EVENT;
    return GV_TAKEN;
}

static gv_take on_decode_data(void *context, int status, const char *type, const void *bytes, size_t length)
{
    gv_relay *relay = context;
    relay->heard = true;
    relay->streamed = status == 200 && strncmp(type, "text/event-stream", 17) == 0;
    if (relay->streamed)
        return forward_events(relay, bytes, length);
    if (!relay->too_long && relay->rest.length + length <= MOST_ANSWER)
        gv_text_add(&relay->rest, bytes, length);
    else
        relay->too_long = true;
    return GV_TAKEN;
}

static void on_decode_done(void *context, const gv_call_end *end)
{
    gv_relay *relay = context;
    gv_worker *worker = relay->worker[GV_WORKER_DECODE];
    relay->call[GV_WORKER_DECODE] = NULL;
    gv_api_error error;
    say_lost(&error, GV_WORKER_DECODE, end);
    // An answer that the client may get half of is no answer.
    bool complete = end->whole && relay->heard && !relay->too_long && !relay->rest.failed &&
                    (!relay->streamed || relay->done || relay->failure);
    if (!complete) {
        if (!end->timed_out)
            gv_worker_lost(worker);
        if (end->reached)
            fail_relay(relay, &error);
        else
            attempt_again(relay, &error);
    } else if (relay->streamed) {
        relay->router->finished++;
        gv_http_stream_end(relay->exchange, true);
        end_relay(relay);
    } else if (end->status == 503) {
        gv_worker_lost(worker);
        gv_refuse(&error, 503, NULL, "worker_busy", "the decode server takes no requests now; try again later");
        attempt_again(relay, &error);
    } else if (end->status == 502 && relay->prefill_lost) {
        attempt_again(relay, &error);
    } else {
        pass_on(relay, end->status, &relay->rest);
    }
}

static gv_take on_prefill_data(void *context, int status, const char *type, const void *bytes, size_t length)
{
    gv_relay *relay = context;
    if (relay->refusal.length + length <= MOST_EVENT)
        gv_text_add(&relay->refusal, bytes, length);
    return GV_TAKEN;
}

static void on_prefill_done(void *context, const gv_call_end *end)
{
    gv_relay *relay = context;
    gv_worker *worker = relay->worker[GV_WORKER_PREFILL];
    relay->call[GV_WORKER_PREFILL] = NULL;
    leave_worker(relay, GV_WORKER_PREFILL);
    if (end->whole && end->status == 200)
        return;
    gv_api_error error;
    say_lost(&error, GV_WORKER_PREFILL, end);
    if (!end->whole && !end->timed_out)
        gv_worker_lost(worker);
    if (relay->began)
        return; // the decode server has all pages already
    if (!end->whole && end->reached) {
        relay->prefill_lost = true; // whether the pages had arrived, the decode server will say
    } else if (!end->whole) {
        attempt_again(relay, &error);
    } else if (end->status == 503) {
        gv_worker_lost(worker);
        gv_refuse(&error, 503, NULL, "worker_busy", "the prefill server takes no requests now; try again later");
        attempt_again(relay, &error);
    } else {
        pass_on(relay, end->status, &relay->refusal);
    }
}

// A room number nobody can guess: whoever knows it can fetch the request's pages.
static json_int_t new_room(void)
{
    uint64_t room = 0;
    while (getrandom(&room, sizeof room, 0) != sizeof room || (room & INT64_MAX) == 0)
        ;
    return (json_int_t)(room & INT64_MAX);
}

static gv_call *call_worker(gv_relay *relay, gv_worker_kind kind, const char *body)
{
    char url[320];
    snprintf(url, sizeof url, "%s/v1/chat/completions", relay->worker[kind]->url);
    gv_call_request request = {
        .method = "POST",
        .url = url,
        .body = body,
        .length = strlen(body),
        .type = "application/json",
        .connect_ms = CONNECT_MS,
        .silence_ms = relay->router->settings.silence_ms,
        .data = kind == GV_WORKER_DECODE ? on_decode_data : on_prefill_data,
        .done = kind == GV_WORKER_DECODE ? on_decode_done : on_prefill_done,
        .context = relay,
    };
    return gv_call_begin(relay->router->workers.loop, &request);
}

static void attempt(gv_relay *relay)
{
    gv_router *router = relay->router;
    gv_api_error error;
    relay->attempts++;
    for (gv_worker_kind kind = 0; kind < GV_WORKER_KINDS; kind++) {
        gv_worker *worker = gv_workers_pick(&router->workers, kind);
        if (!worker) {
            gv_refuse(&error, 503, NULL, "no_worker", "no %s server is up; try again later", gv_worker_kind_name(kind));
            fail_relay(relay, &error);
            return;
        }
        relay->worker[kind] = worker;
        worker->in_flight++;
        worker->requests++;
    }
    const gv_worker *prefill = relay->worker[GV_WORKER_PREFILL];
    char *body = NULL;
    if (json_object_set_new(relay->body, "bootstrap_host", json_string(prefill->host)) == 0 &&
        json_object_set_new(relay->body, "bootstrap_port", json_integer(prefill->port)) == 0 &&
        json_object_set_new(relay->body, "bootstrap_room", json_integer(new_room())) == 0)
        body = json_dumps(relay->body, JSON_COMPACT);
    if (body) {
        relay->call[GV_WORKER_PREFILL] = call_worker(relay, GV_WORKER_PREFILL, body);
        relay->call[GV_WORKER_DECODE] = call_worker(relay, GV_WORKER_DECODE, body);
    }
    free(body);
    if (!relay->call[GV_WORKER_PREFILL] || !relay->call[GV_WORKER_DECODE]) {
        gv_refuse(&error, 503, NULL, "server_busy", "the router is out of memory; try again later");
        fail_relay(relay, &error);
    }
}

static void start_relay(void *argument)
{
    gv_relay *relay = argument;
    gv_router *router = relay->router;
    relay->next = router->relays;
    if (relay->next)
        relay->next->previous = relay;
    router->relays = relay;
    router->relay_count++;
    router->begun++;
    attempt(relay);
}

// ---- The loop's tick ----------------------------------------------------------------------------------------------

static void on_tick(void *context, uint64_t now_ms)
{
    gv_router *router = context;
    for (gv_relay *each = router->relays, *next; each; each = next) {
        next = each->next;
        if (gv_http_gone(each->exchange)) {
            // Closing the calls' connections tells the workers, which free what the request holds.
            router->clients_gone++;
            if (each->began)
                gv_http_stream_end(each->exchange, false);
            else
                gv_http_reply(each->exchange, 500, NULL, NULL, 0);
            end_relay(each);
        } else if (each->paused && !gv_http_stream_full(each->exchange, MOST_PENDING)) {
            each->paused = false;
            if (each->call[GV_WORKER_DECODE])
                gv_call_resume(each->call[GV_WORKER_DECODE]);
        }
    }
    gv_workers_tend(&router->workers, now_ms);
}

static void on_poke(void *context)
{
    gv_router *router = context;
    gv_loop_wake(router->workers.loop);
}

// ---- Routes -------------------------------------------------------------------------------------------------------

static void refuse_for_memory(gv_http_exchange *exchange)
{
    gv_api_error error;
    gv_refuse(&error, 503, NULL, "server_busy", "the router is out of memory; try again later");
    gv_http_reply_error(exchange, &error);
}

static void on_chat(gv_http_exchange *exchange, void *context)
{
    size_t length = 0;
    const char *body = gv_http_body(exchange, &length);
    json_error_t where;
    json_t *root = json_loadb(body, length, JSON_REJECT_DUPLICATES, &where);
    gv_api_error error;
    if (!json_is_object(root)) {
        if (root)
            gv_refuse(&error, 400, NULL, "invalid_json", "the request body must be a JSON object");
        else
            gv_refuse(&error, 400, NULL, "invalid_json", "the request body is not valid JSON: line %d, column %d: %s",
                      where.line, where.column, where.text);
        json_decref(root);
        gv_http_reply_error(exchange, &error);
        return;
    }
    gv_relay *relay = gv_calloc(1, sizeof *relay);
    if (relay) {
        relay->router = context;
        relay->exchange = exchange;
        relay->body = root;
        gv_http_drop_body(exchange);
    }
    if (!relay || !gv_loop_post(relay->router->workers.loop, start_relay, relay)) {
        gv_free(relay);
        json_decref(root);
        refuse_for_memory(exchange);
    }
}

// A question about the router's state, answered on the thread that owns it.
typedef struct gv_question {
    gv_router *router;
    gv_http_exchange *exchange;
    void (*answer)(struct gv_question *question);
} gv_question;

static void run_question(void *argument)
{
    gv_question *question = argument;
    question->answer(question);
    gv_free(question);
}

static void ask(gv_http_exchange *exchange, gv_router *router, void (*answer)(gv_question *question))
{
    gv_question *asked = gv_malloc(sizeof *asked);
    if (asked)
        *asked = (gv_question){router, exchange, answer};
    if (!asked || !gv_loop_post(router->workers.loop, run_question, asked)) {
        gv_free(asked);
        refuse_for_memory(exchange);
    }
}

static void answer_readiness(gv_question *question)
{
    gv_workers *workers = &question->router->workers;
    size_t prefill = gv_workers_up(workers, GV_WORKER_PREFILL);
    size_t decode = gv_workers_up(workers, GV_WORKER_DECODE);
    bool ready = prefill && decode;
    gv_json_reply(
        question->exchange, ready ? 200 : 503,
        json_pack("{s:b,s:I,s:I}", "ready", ready, "prefill_up", (json_int_t)prefill, "decode_up", (json_int_t)decode));
}

static void answer_workers(gv_question *question)
{
    gv_json_reply(question->exchange, 200, json_pack("{s:o}", "workers", gv_workers_json(&question->router->workers)));
}

static void answer_state(gv_question *question)
{
    gv_router *router = question->router;
    gv_http_counts http = gv_http_count(router->http);
    gv_json_reply(question->exchange, 200,
                  json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "relays", (json_int_t)router->relay_count, "begun",
                            (json_int_t)router->begun, "finished", (json_int_t)router->finished, "failed",
                            (json_int_t)router->failed, "clients_gone", (json_int_t)router->clients_gone, "retried",
                            (json_int_t)router->retried, "connections", (json_int_t)http.connections, "bytes_of_bodies",
                            (json_int_t)http.bytes_of_bodies));
}

static void answer_metrics(gv_question *question)
{
    gv_router *router = question->router;
    gv_text text = {0};
    gv_text_format(&text,
                   "# TYPE gravel_router_requests_total counter\n"
                   "gravel_router_requests_total %" PRIu64 "\n"
                   "# TYPE gravel_router_failed_total counter\n"
                   "gravel_router_failed_total %" PRIu64 "\n"
                   "# TYPE gravel_router_retried_total counter\n"
                   "gravel_router_retried_total %" PRIu64 "\n"
                   "# TYPE gravel_router_running gauge\n"
                   "gravel_router_running %zu\n"
                   "# TYPE gravel_router_worker_up gauge\n",
                   router->begun, router->failed, router->retried, router->relay_count);
    for (const gv_worker *worker = router->workers.first; worker; worker = worker->next)
        gv_text_format(&text, "gravel_router_worker_up{kind=\"%s\",url=\"%s\"} %d\n", gv_worker_kind_name(worker->kind),
                       worker->url, worker->state == GV_WORKER_UP);
    size_t length = 0;
    char *body = gv_text_take(&text, &length);
    gv_http_reply(question->exchange, 200, "text/plain; version=0.0.4", body, body ? length : 1);
}

static void on_health(gv_http_exchange *exchange, void *context)
{
    gv_http_reply_text(exchange, 200, "application/json", "{\"status\":\"alive\"}");
}

static void on_readiness(gv_http_exchange *exchange, void *context)
{
    ask(exchange, context, answer_readiness);
}

static void on_list_workers(gv_http_exchange *exchange, void *context)
{
    ask(exchange, context, answer_workers);
}

static void on_state(gv_http_exchange *exchange, void *context)
{
    ask(exchange, context, answer_state);
}

static void on_metrics(gv_http_exchange *exchange, void *context)
{
    ask(exchange, context, answer_metrics);
}

static void on_models(gv_http_exchange *exchange, void *context)
{
    gv_router *router = context;
    gv_models_reply(exchange, router->settings.service.model);
}

// A worker says that it is there.
static void announce(gv_question *question)
{
    size_t length = 0;
    const char *body = gv_http_body(question->exchange, &length);
    json_t *root = json_loadb(body, length, JSON_REJECT_DUPLICATES, NULL);
    const char *kind = json_string_value(json_object_get(root, "kind"));
    const char *url = json_string_value(json_object_get(root, "url"));
    bool prefill = kind && strcmp(kind, "prefill") == 0;
    gv_api_error refusal = {0};
    gv_error error = {0};
    if (!url || !kind || (!prefill && strcmp(kind, "decode") != 0))
        gv_refuse(&refusal, 400, NULL, "invalid_value", "a worker announces its kind (prefill or decode) and its url");
    else if (gv_workers_add(&question->router->workers, prefill ? GV_WORKER_PREFILL : GV_WORKER_DECODE, url, true,
                            &error) != GV_OK)
        gv_refuse(&refusal, error.status == GV_ERR_USAGE ? 400 : 503, NULL, "invalid_value", "%s", error.text);
    json_decref(root);
    if (refusal.status)
        gv_http_reply_error(question->exchange, &refusal);
    else
        gv_http_reply_text(question->exchange, 200, "application/json", "{\"status\":\"known\"}");
}

static void on_announce(gv_http_exchange *exchange, void *context)
{
    gv_router *router = context;
    if (router->settings.open) {
        ask(exchange, router, announce);
        return;
    }
    gv_api_error error;
    gv_refuse(&error, 403, NULL, "closed", "this router takes no workers but its own; start it with --open");
    gv_http_reply_error(exchange, &error);
}

// ---- Start and stop -----------------------------------------------------------------------------------------------

typedef struct gv_cutting {
    gv_router *router;
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool finished;
    size_t count;
} gv_cutting;

static void cut_relays(void *argument)
{
    gv_cutting *cutting = argument;
    gv_api_error error;
    gv_refuse(&error, 503, NULL, "shutting_down", "the router is shutting down and could not wait for the answer");
    size_t count = 0;
    for (; cutting->router->relays; count++)
        fail_relay(cutting->router->relays, &error);
    pthread_mutex_lock(&cutting->lock);
    cutting->count = count;
    cutting->finished = true;
    pthread_cond_signal(&cutting->over);
    pthread_mutex_unlock(&cutting->lock);
}

static size_t cut(void *state)
{
    gv_router *router = state;
    gv_cutting cutting = {.router = router};
    pthread_mutex_init(&cutting.lock, NULL);
    pthread_cond_init(&cutting.over, NULL);
    if (gv_loop_post(router->workers.loop, cut_relays, &cutting)) {
        pthread_mutex_lock(&cutting.lock);
        while (!cutting.finished)
            pthread_cond_wait(&cutting.over, &cutting.lock);
        pthread_mutex_unlock(&cutting.lock);
    }
    pthread_cond_destroy(&cutting.over);
    pthread_mutex_destroy(&cutting.lock);
    return cutting.count;
}

static void free_router(gv_router *router)
{
    gv_workers_free(&router->workers);
    gv_free(router);
}

static bool stop(void *state)
{
    gv_router *router = state;
    gv_http_close(router->http);
    cut(router);
    gv_loop_stop(router->workers.loop);
    gv_http_free(router->http);
    free_router(router);
    return true;
}

static gv_status add_workers(gv_router *router, const gv_router_settings *settings, gv_error *error)
{
    gv_status status = GV_OK;
    for (size_t i = 0; status == GV_OK && i < settings->prefill_count; i++)
        status = gv_workers_add(&router->workers, GV_WORKER_PREFILL, settings->prefill[i], false, error);
    for (size_t i = 0; status == GV_OK && i < settings->decode_count; i++)
        status = gv_workers_add(&router->workers, GV_WORKER_DECODE, settings->decode[i], false, error);
    return status;
}

gv_status gv_router_start(gv_service *service, const gv_router_settings *settings, gv_error *error)
{
    static const gv_http_route routes[] = {
        {.method = "GET", .path = "/health", .handle = on_health},
        {.method = "GET", .path = "/ping", .handle = on_health},
        {.method = "GET", .path = "/readiness", .handle = on_readiness},
        {.method = "GET", .path = "/v1/models", .handle = on_models},
        {.method = "GET", .path = "/workers", .handle = on_list_workers},
        {.method = "POST", .path = "/workers", .handle = on_announce, .most_body = 4096},
        {.method = "GET", .path = "/debug/state", .handle = on_state},
        {.method = "GET", .path = "/metrics", .handle = on_metrics},
        {.method = "POST", .path = "/v1/chat/completions", .handle = on_chat},
    };
    gv_router *router = gv_calloc(1, sizeof *router);
    if (!router)
        return gv_fail(error, GV_ERR_MEMORY, "the router cannot be set up: out of memory");
    router->settings = *settings;
    router->workers.check_ms = settings->check_ms;
    gv_status status = add_workers(router, settings, error);
    if (status == GV_OK)
        status = gv_loop_start(&router->workers.loop, on_tick, TICK_MS, router, error);
    if (status != GV_OK) {
        free_router(router);
        return status;
    }
    gv_http_settings http =
        gv_service_http(&settings->service, routes, sizeof routes / sizeof *routes, router, on_poke);
    status = gv_http_start(&router->http, &http, error);
    if (status != GV_OK) {
        gv_loop_stop(router->workers.loop);
        free_router(router);
        return status;
    }
    *service = (gv_service){.http = router->http, .state = router, .cut = cut, .stop = stop};
    return GV_OK;
}
