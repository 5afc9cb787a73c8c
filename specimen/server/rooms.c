// The prefill server's side of the hand-over. A room is one prefilled request on its way to a decode server:
//
//     POST /v1/chat/completions   from the router, with bootstrap_room; answered when the pages have been taken over
//     GET /rooms/N                from the decode server; answered with the pages once they are there
//     DELETE /rooms/N             from the decode server: it has them, so they are freed here
//
// The first two may come in any order. Whichever side goes away, the room is closed and its pages are free again.
// All rooms belong to the loop's thread.
#include "base/memory.h"
#include "specimen/server/engine_state.h"
#include "specimen/server/log.h"
#include "specimen/server/models.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum room_state {
    ROOM_EARLY,   // only the decode server has come
    ROOM_FILLING, // the engine has the request
    ROOM_READY,   // pages are there
    ROOM_SENT,    // and on their way
};

struct gv_room {
    gv_engine_server *server;
    uint64_t number;
    enum room_state state;
    gv_http_exchange *chat, *fetch; // waiting for their answers; NULL: none
    gv_request *request;
    gv_chat_request parsed;
    tokens prompt;
    int prompt_count;
    uint64_t deadline_ms; // of every state but ROOM_FILLING, where the engine's queue decides
    gv_room *next, *previous;
};

static gv_room *find_room(gv_engine_server *server, uint64_t number)
{
    gv_room *room = server->rooms;
    while (room && room->number != number)
        room = room->next;
    return room;
}

static uint64_t deadline(const gv_engine_server *server)
{
    return gv_now_ms() + server->settings.room_ms;
}

static void list_room(gv_room *room)
{
    gv_engine_server *server = room->server;
    room->next = server->rooms;
    if (room->next)
        room->next->previous = room;
    server->rooms = room;
    atomic_fetch_add(&server->room_count, 1);
}

// Frees the room and answers who still waits in it: the fetch with `error`, the chat with `error` or, for NULL, with
// success. The pages are free when this returns, or after the step that is under way.
static void close_room(gv_room *room, const gv_api_error *error)
{
    gv_engine_server *server = room->server;
    gv_request *request = room->request;
    if (request) {
        engine_handle handle = atomic_load(&request->handle);
        request->room = NULL;
        if (room->state == ROOM_FILLING) {
            engine_cancel(server->engine, handle); // its last notification ends it
        } else {
            engine_release(server->engine, handle);
            gv_request_unlist(request);
            gv_request_drop(request);
        }
    }
    if (room->previous)
        room->previous->next = room->next;
    else
        server->rooms = room->next;
    if (room->next)
        room->next->previous = room->previous;
    atomic_fetch_sub(&server->room_count, 1);

    if (room->fetch)
        gv_http_reply_error(room->fetch, error);
    if (room->chat) {
        gv_leave(server);
        atomic_fetch_add(error ? &server->cancelled : &server->finished, 1);
        if (error)
            gv_http_reply_error(room->chat, error);
        else
            gv_json_reply(room->chat, 200,
                          json_pack("{s:s,s:I,s:{s:i}}", "object", "prefill", "room", (json_int_t)room->number, "usage",
                                    "prompt_tokens", room->prompt_count));
    }
    gv_chat_request_free(&room->parsed);
    tokens_free(&room->prompt);
    gv_free(room);
}

static void close_with(gv_room *room, int status, const char *code, const char *text)
{
    gv_api_error error;
    gv_refuse(&error, status, NULL, code, "%s", text);
    close_room(room, &error);
}

// ---- Pages --------------------------------------------------------------------------------------------------------

static void mark_sent(gv_room *room)
{
    room->fetch = NULL;
    room->state = ROOM_SENT;
    // The decode server may wait as long for a place; its word should come first.
    room->deadline_ms = gv_now_ms() + UINT64_C(2) * room->server->settings.room_ms;
}

// A request that ended with its first token has no pages to decode with: the decode server gets the answer itself.
static void send_end(gv_room *room, const engine_progress *progress)
{
    int token = 0;
    int count =
        engine_poll(room->server->engine, atomic_load(&room->request->handle), 0, &token, 1, &(engine_progress){0});
    json_t *list = count > 0 ? json_pack("[i]", token) : json_array();
    gv_json_reply(room->fetch, 200,
                  json_pack("{s:b,s:o,s:i}", "length", progress->state == ENGINE_ENDED_LENGTH, "tokens", list,
                            "prompt_tokens", progress->prompt_count));
    mark_sent(room);
}

// Both sides and the pages are there.
static void send_pages(gv_room *room)
{
    gv_engine_server *server = room->server;
    engine_handle handle = atomic_load(&room->request->handle);
    engine_progress progress = {0};
    engine_poll(server->engine, handle, 0, NULL, 0, &progress);
    if (progress.state == ENGINE_ENDED_STOP || progress.state == ENGINE_ENDED_LENGTH) {
        send_end(room, &progress);
        return;
    }
    size_t size = engine_export_size(server->engine, handle);
    char *bytes = size ? gv_malloc(size) : NULL;
    gv_error error = {GV_ERR_MEMORY, "no memory for a copy of the pages"};
    if (!bytes || engine_export(server->engine, handle, bytes, size, &error) != GV_OK) {
        gv_free(bytes);
        close_with(room, 500, "export_failed", error.text);
        return;
    }
    gv_http_reply(room->fetch, 200, "application/octet-stream", bytes, size);
    mark_sent(room);
}

static void on_loop_prefilled(void *argument)
{
    gv_request *request = argument;
    gv_room *room = request->room;
    gv_engine_server *server = request->server;
    engine_handle handle = atomic_load(&request->handle);
    engine_progress progress = {0};
    engine_poll(server->engine, handle, 0, NULL, 0, &progress);
    if (!room) {
        // Closed meanwhile: this was its last trace.
        engine_release(server->engine, handle);
        gv_request_unlist(request);
        gv_request_drop(request);
        return;
    }
    room->state = ROOM_READY;
    room->deadline_ms = deadline(server);
    if (progress.state == ENGINE_ENDED_FAILED) {
        atomic_fetch_add(&server->failures, 1);
        close_with(room, 500, "engine_failed", "the engine failed while it prefilled; restart the server");
    } else if (progress.state == ENGINE_ENDED_CANCELLED) {
        close_with(room, 503, "shutting_down", "the prefill was cancelled");
    } else if (room->fetch) {
        send_pages(room);
    }
}

void gv_rooms_on_prefilled(gv_request *request)
{
    if (gv_loop_post(request->server->loop, on_loop_prefilled, request))
        return;
    // Without memory for a message the room keeps its pages until a restart; it must at least be known.
    gv_log("out of memory: the pages of one prefilled request are lost until the server is restarted");
}

// ---- The router's request -----------------------------------------------------------------------------------------

static void on_loop_chat(void *argument)
{
    gv_room *room = argument;
    gv_engine_server *server = room->server;
    gv_room *known = find_room(server, room->number);
    list_room(room);
    if (known && known->chat) {
        close_with(room, 409, "room_taken", "the bootstrap_room is in use");
        return;
    }
    if (known) {
        // The decode server was faster.
        room->fetch = known->fetch;
        known->fetch = NULL;
        close_room(known, NULL);
    }
    room->request = gv_request_new(server, NULL);
    if (!room->request) {
        close_with(room, 503, "server_busy", "the server is out of memory; try again later");
        return;
    }
    gv_error error = {0};
    room->state = ROOM_FILLING;
    room->request->room = room;
    gv_status status =
        gv_request_submit(room->request, &room->prompt, gv_most_tokens(server, &room->parsed), true, &error);
    room->prompt_count = (int)room->prompt.count;
    tokens_free(&room->prompt);
    gv_chat_request_free(&room->parsed);
    if (status == GV_OK) {
        gv_request_drop(room->request); // the engine's reference is the room's from now on
        return;
    }
    gv_api_error refusal;
    gv_engine_refusal(&refusal, &error);
    gv_request_unlist(room->request);
    gv_request_drop(room->request);
    room->request = NULL;
    close_room(room, &refusal);
}

void gv_rooms_on_chat(gv_http_exchange *exchange, void *context)
{
    gv_engine_server *server = context;
    gv_api_error refusal;
    if (!gv_enter(server, &refusal)) {
        gv_http_reply_error(exchange, &refusal);
        return;
    }
    gv_chat_request chat;
    tokens prompt;
    bool good = gv_read_chat(server, exchange, &chat, &prompt, &refusal);
    gv_room *room = good ? gv_calloc(1, sizeof *room) : NULL;
    if (good && !chat.bootstrap_room)
        good = gv_refuse(&refusal, 400, "bootstrap_room", "invalid_value",
                         "this server only prefills, for a decode server: ask the router");
    else if (good && !room)
        good = gv_refuse(&refusal, 503, NULL, "server_busy", "the server is out of memory; try again later");
    if (good) {
        *room = (gv_room){
            .server = server, .number = chat.bootstrap_room, .chat = exchange, .parsed = chat, .prompt = prompt};
        if (gv_loop_post(server->loop, on_loop_chat, room))
            return;
        gv_refuse(&refusal, 503, NULL, "server_busy", "the server is out of memory; try again later");
    }
    tokens_free(&prompt);
    gv_chat_request_free(&chat);
    gv_free(room);
    gv_leave(server);
    gv_http_reply_error(exchange, &refusal);
}

// ---- The decode server's requests ---------------------------------------------------------------------------------

// A request about a room on its way to the loop.
typedef struct gv_visit {
    gv_engine_server *server;
    gv_http_exchange *exchange;
    uint64_t number;
} gv_visit;

static void reply_error(gv_http_exchange *exchange, int status, const char *code, const char *text)
{
    gv_api_error error;
    gv_refuse(&error, status, NULL, code, "%s", text);
    gv_http_reply_error(exchange, &error);
}

static void visit(gv_http_exchange *exchange, gv_engine_server *server, void (*run)(void *visit))
{
    const char *text = gv_http_path(exchange) + strlen("/rooms/");
    char *end = NULL;
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || !number) {
        reply_error(exchange, 404, "not_found", "a room has a number");
        return;
    }
    gv_visit *visit = gv_malloc(sizeof *visit);
    if (visit)
        *visit = (gv_visit){server, exchange, number};
    if (!visit || !gv_loop_post(server->loop, run, visit)) {
        gv_free(visit);
        reply_error(exchange, 503, "server_busy", "the server is out of memory; try again later");
    }
}

static void on_loop_fetch(void *argument)
{
    gv_visit visit = *(gv_visit *)argument;
    gv_free(argument);
    gv_room *room = find_room(visit.server, visit.number);
    if (!room) {
        room = gv_calloc(1, sizeof *room);
        if (!room) {
            reply_error(visit.exchange, 503, "server_busy", "the server is out of memory; try again later");
            return;
        }
        *room = (gv_room){.server = visit.server, .number = visit.number, .state = ROOM_EARLY};
        room->deadline_ms = deadline(visit.server);
        room->fetch = visit.exchange;
        list_room(room);
    } else if (room->fetch || room->state == ROOM_SENT) {
        reply_error(visit.exchange, 409, "room_taken", "the pages of this room were asked for already");
    } else {
        room->fetch = visit.exchange;
        if (room->state == ROOM_READY)
            send_pages(room);
    }
}

void gv_rooms_on_fetch(gv_http_exchange *exchange, void *context)
{
    visit(exchange, context, on_loop_fetch);
}

static void on_loop_close(void *argument)
{
    gv_visit visit = *(gv_visit *)argument;
    gv_free(argument);
    gv_room *room = find_room(visit.server, visit.number);
    if (!room || room->state != ROOM_SENT) {
        reply_error(visit.exchange, 404, "not_found", "this room has handed no pages over");
        return;
    }
    close_room(room, NULL);
    gv_http_reply_text(visit.exchange, 200, "application/json", "{\"status\":\"closed\"}");
}

void gv_rooms_on_close(gv_http_exchange *exchange, void *context)
{
    visit(exchange, context, on_loop_close);
}

// ---- Time and the end ---------------------------------------------------------------------------------------------

static bool is_gone(gv_http_exchange *exchange)
{
    return exchange && gv_http_gone(exchange);
}

void gv_rooms_tend(gv_engine_server *server, uint64_t now_ms)
{
    for (gv_room *room = server->rooms, *next; room; room = next) {
        next = room->next;
        if (is_gone(room->chat)) {
            close_with(room, 502, "router_lost", "the router gave this request up");
        } else if (is_gone(room->fetch)) {
            // Without its decode server the room waits on: the router will give it up, or time will.
            reply_error(room->fetch, 502, "cancelled", "the decode server is gone");
            room->fetch = NULL;
            if (room->state == ROOM_EARLY)
                close_room(room, NULL);
        } else if (room->state == ROOM_EARLY && now_ms > room->deadline_ms) {
            close_with(room, 404, "not_found", "no request came for this room");
        } else if (room->state != ROOM_FILLING && now_ms > room->deadline_ms) {
            close_with(room, 504, "transfer_timeout", "no decode server took the pages in time");
        }
    }
}

size_t gv_rooms_cut(gv_engine_server *server)
{
    size_t count = 0;
    for (; server->rooms; count++)
        close_with(server->rooms, 503, "shutting_down", "the prefill server is shutting down");
    return count;
}
