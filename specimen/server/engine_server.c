// Start, routes and end of the servers that have an engine.
#include "specimen/server/engine_server.h"

#include "base/memory.h"
#include "specimen/server/engine_state.h"
#include "specimen/server/log.h"
#include "specimen/server/models.h"

#include <inttypes.h>
#include <time.h>
#include <unistd.h>

enum {
    TICK_MS = 100,
    WAIT_MS = 500,  // the stepping thread looks at `stopping` so often
    LAST_MS = 5000, // for the last requests to end when all were cancelled
    PAUSE_MS = 10,
    HEALTH_QUEUED = 8, // places in the engine's queue beyond the limit of requests, for /health
};

// ---- Threads ------------------------------------------------------------------------------------------------------

// Holds the engine between two steps for as long as somebody wants to look at it there, but not when it has to end.
static bool is_paused(gv_engine_server *server)
{
    const char *file = server->settings.pause_file;
    return file && !atomic_load(&server->leaving) && access(file, F_OK) == 0;
}

static void *keep_stepping(void *argument)
{
    gv_engine_server *server = argument;
    while (!atomic_load(&server->stopping)) {
        gv_error error = {0};
        if (!engine_wait_for_work(server->engine, WAIT_MS))
            continue;
        if (is_paused(server)) {
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000}, NULL);
            continue;
        }
        if (engine_step(server->engine, NULL, &error) == GV_OK)
            continue;
        pthread_mutex_lock(&server->lock);
        server->failure = error;
        pthread_mutex_unlock(&server->lock);
        atomic_store(&server->failed, true);
        gv_log("the engine failed: %s", error.text);
        break;
    }
    return NULL;
}

// A step that takes too long means that the device hangs: nothing in the process can end it, but /ping can say so.
static void look_for_hang(gv_engine_server *server, uint64_t now_ms)
{
    engine_counts counts;
    engine_counts_now(server->engine, &counts);
    uint64_t work = counts.steps + counts.prefills + counts.tokens;
    // Requests that wait for pages which others hold back are not the engine's fault.
    bool has_work = counts.running || (counts.waiting && !counts.prefilled);
    if (work != server->work_seen || !has_work || is_paused(server))
        server->work_since_ms = now_ms;
    server->work_seen = work;
    atomic_store(&server->hanging, now_ms - server->work_since_ms > server->settings.health_ms);
}

static void on_tick(void *context, uint64_t now_ms)
{
    gv_engine_server *server = context;
    gv_requests_cancel(server, false);
    gv_requests_tend(server, now_ms);
    gv_rooms_tend(server, now_ms);
    gv_transfers_tend(server, now_ms);
    look_for_hang(server, now_ms);
    if (atomic_load(&server->serving) && !atomic_load(&server->leaving))
        gv_announce(server, now_ms);
}

static void on_poke(void *context)
{
    gv_engine_server *server = context;
    gv_loop_wake(server->loop);
}

// ---- Routes -------------------------------------------------------------------------------------------------------

static void on_ping(gv_http_exchange *exchange, void *context)
{
    gv_engine_server *server = context;
    gv_api_error error;
    if (atomic_load(&server->failed))
        gv_refuse(&error, 503, NULL, "engine_failed", "the engine has failed; restart the server");
    else if (atomic_load(&server->hanging))
        gv_refuse(&error, 503, NULL, "engine_hangs", "the engine has made no progress for more than %u ms",
                  server->settings.health_ms);
    else {
        gv_http_reply_text(exchange, 200, "application/json", "{\"status\":\"alive\"}");
        return;
    }
    gv_http_reply_error(exchange, &error);
}

static void on_models(gv_http_exchange *exchange, void *context)
{
    gv_engine_server *server = context;
    gv_models_reply(exchange, server->settings.service.model);
}

static void on_pages(gv_http_exchange *exchange, void *context)
{
    gv_engine_server *server = context;
    engine_counts counts;
    engine_counts_now(server->engine, &counts);
    gv_json_reply(exchange, 200,
                  json_pack("{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:I,s:I,s:I,s:I,s:I}", "pages", counts.pages, "free_pages",
                            counts.free_pages, "rows", counts.rows, "free_rows", counts.free_rows, "waiting",
                            counts.waiting, "running", counts.running, "prefilled", counts.prefilled, "requests",
                            (json_int_t)counts.requests, "taken", (json_int_t)atomic_load(&server->taken), "rooms",
                            (json_int_t)atomic_load(&server->room_count), "transfers",
                            (json_int_t)atomic_load(&server->transfer_count), "transient_bytes",
                            (json_int_t)counts.transient_bytes));
}

static void on_metrics(gv_http_exchange *exchange, void *context)
{
    gv_engine_server *server = context;
    engine_counts counts;
    engine_counts_now(server->engine, &counts);
    gv_http_counts http = gv_http_count(server->http);
    const struct {
        const char *name, *kind;
        uint64_t value;
    } lines[] = {
        {"chat_requests_total", "counter", atomic_load(&server->begun)},
        {"chat_finished_total", "counter", atomic_load(&server->finished)},
        {"chat_refused_total", "counter", atomic_load(&server->refused)},
        {"chat_cancelled_total", "counter", atomic_load(&server->cancelled)},
        {"chat_failed_total", "counter", atomic_load(&server->failures)},
        {"unknown_calls_total", "counter", atomic_load(&server->unknown_calls)},
        {"chat_requests", "gauge", atomic_load(&server->taken)},
        {"engine_steps_total", "counter", counts.steps},
        {"engine_prefills_total", "counter", counts.prefills},
        {"engine_replays_total", "counter", counts.replays},
        {"engine_eager_steps_total", "counter", counts.eager_steps},
        {"engine_tokens_total", "counter", counts.tokens},
        {"engine_waiting", "gauge", (uint64_t)counts.waiting},
        {"engine_running", "gauge", (uint64_t)counts.running},
        {"engine_pages", "gauge", (uint64_t)counts.pages},
        {"engine_free_pages", "gauge", (uint64_t)counts.free_pages},
        {"http_requests_total", "counter", http.requests},
        {"http_refused_total", "counter", http.refused},
        {"http_clients_gone_total", "counter", http.clients_gone},
        {"http_slow_clients_total", "counter", http.slow_clients},
        {"http_connections", "gauge", http.connections},
    };
    gv_text text = {0};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        gv_text_format(&text, "# TYPE gravel_specimen_%s %s\ngravel_specimen_%s %" PRIu64 "\n", lines[i].name,
                       lines[i].kind, lines[i].name, lines[i].value);
    size_t length = 0;
    char *body = gv_text_take(&text, &length);
    gv_http_reply(exchange, 200, "text/plain; version=0.0.4", body, body ? length : 1);
}

#define COMMON_ROUTES                                                                       \
    {.method = "GET", .path = "/health", .handle = gv_on_health},                           \
        {.method = "GET", .path = "/health_generate", .handle = gv_on_health},              \
        {.method = "GET", .path = "/ping", .handle = on_ping},                              \
        {.method = "GET", .path = "/v1/models", .handle = on_models},                       \
        {.method = "GET", .path = "/metrics", .handle = on_metrics},                        \
    {                                                                                       \
        .method = "GET", .path = "/debug/pages", .handle = on_pages, .while_draining = true \
    }

static const gv_http_route single_routes[] = {
    COMMON_ROUTES,
    {.method = "POST", .path = "/v1/chat/completions", .handle = gv_on_chat},
};
static const gv_http_route prefill_routes[] = {
    COMMON_ROUTES,
    {.method = "POST", .path = "/v1/chat/completions", .handle = gv_rooms_on_chat},
    // What runs here is of use only if its pages can still be fetched.
    {.method = "GET", .path = "/rooms/*", .handle = gv_rooms_on_fetch, .while_draining = true},
    {.method = "DELETE", .path = "/rooms/*", .handle = gv_rooms_on_close, .while_draining = true},
};
static const gv_http_route decode_routes[] = {
    COMMON_ROUTES,
    {.method = "POST", .path = "/v1/chat/completions", .handle = gv_transfers_on_chat},
};

static const struct {
    const gv_http_route *routes;
    size_t count;
} tables[] = {
    [GV_SERVER_SINGLE] = {single_routes, sizeof single_routes / sizeof *single_routes},
    [GV_SERVER_PREFILL] = {prefill_routes, sizeof prefill_routes / sizeof *prefill_routes},
    [GV_SERVER_DECODE] = {decode_routes, sizeof decode_routes / sizeof *decode_routes},
};

// ---- Start and stop -----------------------------------------------------------------------------------------------

static void cut_loop_side(void *argument)
{
    gv_engine_server *server = argument;
    gv_rooms_cut(server);
    gv_transfers_cut(server);
}

static size_t cut(void *state)
{
    gv_engine_server *server = state;
    atomic_store(&server->leaving, true);
    size_t count = atomic_load(&server->taken);
    gv_requests_cancel(server, true);
    if (!gv_loop_post(server->loop, cut_loop_side, server))
        gv_log("out of memory: some requests end without a word");
    return count;
}

static bool fit(void *state)
{
    gv_engine_server *server = state;
    return !atomic_load(&server->failed);
}

static void free_state(gv_engine_server *server)
{
    pthread_mutex_destroy(&server->lock);
    gv_free(server);
}

// The stepping thread and the loop end the last requests together, so both must still run.
static bool wait_for_requests(gv_engine_server *server)
{
    for (int turn = 0; turn < LAST_MS / 10; turn++) {
        pthread_mutex_lock(&server->lock);
        bool empty = !server->requests;
        pthread_mutex_unlock(&server->lock);
        if (empty)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return false;
}

static bool stop(void *state)
{
    gv_engine_server *server = state;
    gv_http_close(server->http);
    cut(server);
    if (!wait_for_requests(server))
        return false;
    atomic_store(&server->stopping, true);
    engine_wake(server->engine);
    pthread_join(server->stepper, NULL);
    gv_loop_stop(server->loop);
    engine_destroy(server->engine);
    gv_http_free(server->http);
    free_state(server);
    return true;
}

gv_status gv_engine_server_start(gv_service *service, const gv_engine_server_settings *settings, gv_error *error)
{
    gv_engine_server *server = gv_calloc(1, sizeof *server);
    if (!server)
        return gv_fail(error, GV_ERR_MEMORY, "the server cannot be set up: out of memory");
    server->settings = *settings;
    // The server's own limit comes first, so that a refusal by the engine is about the request and not about the load.
    server->settings.engine.queue_limit = (int)settings->most_requests + HEALTH_QUEUED;
    pthread_mutex_init(&server->lock, NULL);
    gv_status status = engine_create(&server->engine, &server->settings.engine, error);
    if (status != GV_OK) {
        free_state(server);
        return status;
    }
    status = gv_loop_start(&server->loop, on_tick, TICK_MS, server, error);
    if (status == GV_OK) {
        gv_http_settings http = gv_service_http(&settings->service, tables[settings->role].routes,
                                                tables[settings->role].count, server, on_poke);
        status = gv_http_start(&server->http, &http, error);
        if (status == GV_OK && pthread_create(&server->stepper, NULL, keep_stepping, server) != 0) {
            status = gv_fail(error, GV_ERR_MEMORY, "the engine's thread could not be started");
            gv_http_close(server->http);
            gv_http_free(server->http);
        }
        if (status != GV_OK)
            gv_loop_stop(server->loop);
    }
    if (status != GV_OK) {
        engine_destroy(server->engine);
        free_state(server);
        return status;
    }
    atomic_store(&server->serving, true);
    *service = (gv_service){.http = server->http, .state = server, .cut = cut, .stop = stop, .fit = fit};
    return GV_OK;
}
