// Requests of the engine: from their submission to their answer.
#include "base/memory.h"
#include "specimen/server/chat_prompt.h"
#include "specimen/server/engine_state.h"
#include "specimen/server/log.h"
#include "specimen/server/models.h"

#include <string.h>

// ---- The life of a request ----------------------------------------------------------------------------------------

gv_request *gv_request_new(gv_engine_server *server, gv_http_exchange *exchange)
{
    gv_request *request = gv_calloc(1, sizeof *request);
    if (!request)
        return NULL;
    request->server = server;
    request->exchange = exchange;
    request->wanted = true;
    atomic_init(&request->references, 1);
    pthread_mutex_lock(&server->lock);
    request->next = server->requests;
    if (request->next)
        request->next->previous = request;
    server->requests = request;
    pthread_mutex_unlock(&server->lock);
    return request;
}

void gv_request_take_chat(gv_request *request, gv_chat_request *chat)
{
    request->chat = *chat;
    *chat = (gv_chat_request){0};
    request->has_reply = true;
    unsigned long long serial = atomic_fetch_add(&request->server->serial, 1);
    gv_chat_reply_begin(&request->reply, request->exchange, &request->chat, serial);
}

void gv_request_drop(gv_request *request)
{
    if (atomic_fetch_sub(&request->references, 1) != 1)
        return;
    if (request->has_reply)
        gv_chat_reply_free(&request->reply);
    gv_chat_request_free(&request->chat);
    gv_free(request);
}

void gv_request_unlist(gv_request *request)
{
    gv_engine_server *server = request->server;
    pthread_mutex_lock(&server->lock);
    if (request->previous)
        request->previous->next = request->next;
    else
        server->requests = request->next;
    if (request->next)
        request->next->previous = request->previous;
    request->next = request->previous = NULL;
    pthread_mutex_unlock(&server->lock);
}

size_t gv_requests_cancel(gv_engine_server *server, bool all)
{
    size_t count = 0;
    pthread_mutex_lock(&server->lock);
    for (gv_request *request = server->requests; request; request = request->next) {
        if (all)
            atomic_store(&request->cut, true);
        else if (!request->exchange || !gv_http_gone(request->exchange))
            continue;
        engine_handle handle = atomic_load(&request->handle);
        if (handle)
            engine_cancel(server->engine, handle);
        count++;
    }
    pthread_mutex_unlock(&server->lock);
    return count;
}

void gv_requests_tend(gv_engine_server *server, uint64_t now_ms)
{
    pthread_mutex_lock(&server->lock);
    for (gv_request *request = server->requests; request; request = request->next) {
        if (!request->health || !request->exchange || now_ms < request->deadline_ms)
            continue;
        gv_api_error error;
        gv_refuse(&error, 503, NULL, "unhealthy", "the engine generated no token within %u ms",
                  server->settings.health_ms);
        gv_http_reply_error(request->exchange, &error);
        request->exchange = NULL;
    }
    pthread_mutex_unlock(&server->lock);
}

// ---- Limits and refusals ------------------------------------------------------------------------------------------

bool gv_enter(gv_engine_server *server, gv_api_error *error)
{
    atomic_fetch_add(&server->begun, 1);
    if (atomic_load(&server->failed))
        return gv_refuse(error, 500, NULL, "engine_failed", "the engine has failed; restart the server");
    if (atomic_fetch_add(&server->taken, 1) < server->settings.most_requests)
        return true;
    gv_leave(server);
    atomic_fetch_add(&server->refused, 1);
    return gv_refuse(error, 429, NULL, "too_many_requests", "the server has %zu requests already; try again later",
                     server->settings.most_requests);
}

void gv_leave(gv_engine_server *server)
{
    atomic_fetch_sub(&server->taken, 1);
}

void gv_engine_refusal(gv_api_error *refusal, const gv_error *error)
{
    switch (error->status) {
    case GV_ERR_LIMIT: gv_refuse(refusal, 400, "messages", "context_length_exceeded", "%s", error->text); break;
    case GV_ERR_USAGE: gv_refuse(refusal, 400, NULL, "invalid_value", "%s", error->text); break;
    case GV_ERR_MEMORY: gv_refuse(refusal, 503, NULL, "server_busy", "%s", error->text); break;
    default: gv_refuse(refusal, 500, NULL, "engine_failed", "%s", error->text); break;
    }
}

int gv_most_tokens(const gv_engine_server *server, const gv_chat_request *chat)
{
    int most = engine_max_context(server->engine);
    return chat->most_tokens && chat->most_tokens < most ? chat->most_tokens : most;
}

bool gv_read_chat(gv_engine_server *server, gv_http_exchange *exchange, gv_chat_request *chat, tokens *prompt,
                  gv_api_error *error)
{
    gv_chat_limits limits = {server->settings.most_messages, server->settings.most_tools,
                             server->settings.service.model};
    size_t length = 0;
    const char *body = gv_http_body(exchange, &length);
    *prompt = (tokens){0};
    if (!gv_chat_request_read(chat, body, length, &limits, error))
        return false;
    gv_http_drop_body(exchange);
    int context = engine_max_context(server->engine);
    bool good = gv_chat_prompt(prompt, chat, error);
    if (good && prompt->count >= (size_t)context)
        good = gv_refuse(error, 400, "messages", "context_length_exceeded",
                         "the messages have %zu tokens; the context holds %d with the answer", prompt->count, context);
    if (!good) {
        tokens_free(prompt);
        gv_chat_request_free(chat);
    }
    return good;
}

// ---- Notifications, on the stepping thread ------------------------------------------------------------------------

static void answer_health(gv_request *request, enum engine_state state)
{
    if (!request->exchange)
        return;
    gv_api_error error;
    if (state == ENGINE_ENDED_STOP || state == ENGINE_ENDED_LENGTH) {
        gv_http_reply_text(request->exchange, 200, "application/json", "{\"status\":\"healthy\"}");
        return;
    }
    gv_refuse(&error, 503, NULL, "unhealthy", "the engine could not generate a token");
    gv_http_reply_error(request->exchange, &error);
}

static void answer_chat(gv_request *request, const engine_progress *progress)
{
    gv_engine_server *server = request->server;
    gv_chat_reply *reply = &request->reply;
    gv_api_error error;
    atomic_fetch_add(&server->unknown_calls, reply->answer.unknown_calls);
    if (reply->answer.unknown_calls)
        gv_log("dropped %zu calls of functions that were not offered", reply->answer.unknown_calls);
    if (progress->state == ENGINE_ENDED_STOP || progress->state == ENGINE_ENDED_LENGTH || reply->answer.stopped) {
        atomic_fetch_add(&server->finished, 1);
        gv_chat_reply_end(reply, progress->state == ENGINE_ENDED_LENGTH, progress->prompt_count, request->given);
        return;
    }
    if (progress->state == ENGINE_ENDED_FAILED) {
        atomic_fetch_add(&server->failures, 1);
        gv_refuse(&error, 500, NULL, "engine_failed", "the engine failed while it answered; restart the server");
    } else if (atomic_load(&request->cut)) {
        atomic_fetch_add(&server->cancelled, 1);
        gv_refuse(&error, 503, NULL, "shutting_down", "the server is shutting down and could not finish the answer");
    } else {
        // The client is gone, so nobody reads this.
        atomic_fetch_add(&server->cancelled, 1);
        gv_refuse(&error, 500, NULL, "cancelled", "the request was cancelled");
    }
    gv_chat_reply_fail(reply, &error);
}

// The last notification. Pages and places are free before the client hears of the end.
static void finish(gv_request *request, engine_handle handle, const engine_progress *progress)
{
    gv_engine_server *server = request->server;
    gv_request_unlist(request);
    engine_release(server->engine, handle);
    if (request->has_reply) {
        gv_leave(server);
        answer_chat(request, progress);
    } else {
        answer_health(request, progress->state);
    }
    gv_request_drop(request);
    // Pages may have become free for a transfer that waits.
    if (server->settings.role == GV_SERVER_DECODE)
        gv_loop_wake(server->loop);
}

// Brings the reply up to date.
static void give_tokens(gv_request *request, engine_handle handle, engine_progress *progress)
{
    int piece[64];
    int count;
    while ((count = engine_poll(request->server->engine, handle, request->given, piece, 64, progress)) > 0) {
        if (request->wanted && !gv_chat_reply_add(&request->reply, piece, (size_t)count))
            request->wanted = false;
        request->given += count;
    }
}

static void on_progress(void *user, engine_handle handle)
{
    gv_request *request = user;
    gv_engine_server *server = request->server;
    if (request->over)
        return;
    atomic_store(&request->handle, handle);
    engine_progress progress = {0};
    if (request->has_reply)
        give_tokens(request, handle, &progress);
    else
        engine_poll(server->engine, handle, 0, NULL, 0, &progress);
    bool over = engine_ended(progress.state);
    if (!request->has_reply && !request->health) {
        if (over || progress.state == ENGINE_PREFILLED) {
            request->over = true;
            gv_rooms_on_prefilled(request);
        }
    } else if (over) {
        request->over = true;
        finish(request, handle, &progress);
    } else if (!request->wanted) {
        engine_cancel(server->engine, handle);
    }
}

// ---- Submission ---------------------------------------------------------------------------------------------------

// The engine has its own reference from before it may notify, and gives it back by `finish` or by the room's end.
static gv_status after_submission(gv_request *request, gv_status status, engine_handle handle)
{
    if (status == GV_OK)
        atomic_store(&request->handle, handle);
    else
        atomic_fetch_sub(&request->references, 1);
    return status;
}

gv_status gv_request_submit(gv_request *request, const tokens *prompt, int most_tokens, bool prefill_only,
                            gv_error *error)
{
    engine_request submitted = {
        .prompt = prompt->items,
        .prompt_count = (int)prompt->count,
        .max_tokens = most_tokens,
        .prefill_only = prefill_only,
        .notify = on_progress,
        .user = request,
    };
    engine_handle handle = 0;
    atomic_fetch_add(&request->references, 1);
    gv_status status = engine_submit(request->server->engine, &submitted, &handle, error);
    return after_submission(request, status, handle);
}

gv_status gv_request_import(gv_request *request, const void *bytes, size_t size, int most_tokens, gv_error *error)
{
    engine_request submitted = {.max_tokens = most_tokens, .notify = on_progress, .user = request};
    engine_handle handle = 0;
    atomic_fetch_add(&request->references, 1);
    gv_status status = engine_import(request->server->engine, bytes, size, &submitted, &handle, error);
    return after_submission(request, status, handle);
}

// ---- Handlers -----------------------------------------------------------------------------------------------------

// Undoes a submission that failed and says why.
static void refuse_submission(gv_request *request, const gv_error *error)
{
    gv_api_error refusal;
    gv_engine_refusal(&refusal, error);
    gv_request_unlist(request);
    if (request->has_reply)
        gv_leave(request->server);
    gv_http_reply_error(request->exchange, &refusal);
}

void gv_on_chat(gv_http_exchange *exchange, void *context)
{
    gv_engine_server *server = context;
    gv_chat_request chat;
    tokens prompt;
    gv_api_error refusal;
    if (!gv_enter(server, &refusal)) {
        gv_http_reply_error(exchange, &refusal);
        return;
    }
    if (!gv_read_chat(server, exchange, &chat, &prompt, &refusal)) {
        gv_leave(server);
        gv_http_reply_error(exchange, &refusal);
        return;
    }
    gv_request *request = gv_request_new(server, exchange);
    if (!request) {
        gv_refuse(&refusal, 503, NULL, "server_busy", "the server is out of memory; try again later");
        gv_leave(server);
        gv_http_reply_error(exchange, &refusal);
        gv_chat_request_free(&chat);
    } else {
        int most_tokens = gv_most_tokens(server, &chat);
        gv_error error = {0};
        gv_request_take_chat(request, &chat);
        if (gv_request_submit(request, &prompt, most_tokens, false, &error) != GV_OK)
            refuse_submission(request, &error);
        gv_request_drop(request);
    }
    tokens_free(&prompt);
}

// As SGLang's /health does: a real token, so that a server whose engine hangs does not look healthy.
void gv_on_health(gv_http_exchange *exchange, void *context)
{
    gv_engine_server *server = context;
    tokens prompt = {0};
    gv_request *request = gv_request_new(server, exchange);
    bool made = request && chat_begin(&prompt) && chat_message(&prompt, CHAT_USER, "hello", 5) &&
                chat_open(&prompt, false, false);
    gv_error error = {GV_ERR_MEMORY, "out of memory"};
    if (made) {
        pthread_mutex_lock(&server->lock);
        request->health = true;
        request->deadline_ms = gv_now_ms() + server->settings.health_ms;
        pthread_mutex_unlock(&server->lock);
        if (gv_request_submit(request, &prompt, 1, false, &error) == GV_OK) {
            gv_request_drop(request);
            tokens_free(&prompt);
            return;
        }
    }
    gv_api_error refusal;
    gv_refuse(&refusal, 503, NULL, "unhealthy", "the engine takes no request: %s", error.text);
    if (request) {
        gv_request_unlist(request);
        gv_request_drop(request);
    }
    gv_http_reply_error(exchange, &refusal);
    tokens_free(&prompt);
}
