// The decode server's side of the hand-over: fetches a request's pages from its prefill server, waits for a place in
// the engine, takes the request over, and tells the prefill server, which frees its own pages only then.
//
// All transfers belong to the loop's thread.
#include "base/memory.h"
#include "specimen/server/engine_state.h"
#include "specimen/server/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CONNECT_MS = 5000, CLOSE_MS = 5000, MOST_BYTES = 256 << 20 };

struct gv_transfer {
    gv_engine_server *server;
    gv_http_exchange *exchange;
    gv_chat_request chat; // until the request has it
    int most_tokens;
    gv_call *call; // the fetch under way
    char room_url[320];
    int status;
    bool is_json;         // the request ended with its first token
    gv_text bytes;        // pages, or what the prefill server said instead
    gv_request *request;  // once the pages are here
    uint64_t deadline_ms; // for a place in the engine; 0: the pages are not here yet
    uint64_t order;       // of arrival of the pages
    gv_transfer *next, *previous;
};

// Frees a transfer whose exchange was answered or given to the engine.
static void free_transfer(gv_transfer *transfer)
{
    gv_engine_server *server = transfer->server;
    if (transfer->call)
        gv_call_cancel(transfer->call);
    if (transfer->previous)
        transfer->previous->next = transfer->next;
    else
        server->transfers = transfer->next;
    if (transfer->next)
        transfer->next->previous = transfer->previous;
    atomic_fetch_sub(&server->transfer_count, 1);
    gv_chat_request_free(&transfer->chat);
    gv_text_free(&transfer->bytes);
    gv_free(transfer);
}

// Ends the transfer with an error. Its room is closed by the prefill server, when the router gives the request up
// there.
static void fail_transfer(gv_transfer *transfer, const gv_api_error *error)
{
    gv_engine_server *server = transfer->server;
    atomic_fetch_add(&server->cancelled, 1);
    if (transfer->request) {
        gv_request_unlist(transfer->request);
        gv_request_drop(transfer->request);
    }
    gv_leave(server);
    gv_http_reply_error(transfer->exchange, error);
    free_transfer(transfer);
}

static void fail_with(gv_transfer *transfer, int status, const char *code, const char *text)
{
    gv_api_error error;
    gv_refuse(&error, status, NULL, code, "%s", text);
    fail_transfer(transfer, &error);
}

// ---- Closing the room ---------------------------------------------------------------------------------------------

static gv_take drop_data(void *context, int status, const char *type, const void *bytes, size_t length)
{
    return GV_TAKEN;
}

static void on_closed(void *context, const gv_call_end *end)
{
    // Where the word got lost, the prefill server frees the pages when their time is over.
    if (!end->whole || end->status != 200)
        gv_log("a prefill server was not told that its pages were taken over (%s)",
               end->whole ? "it does not know them" : end->text);
}

static void close_room(gv_transfer *transfer)
{
    gv_call_request request = {
        .method = "DELETE",
        .url = transfer->room_url,
        .connect_ms = CONNECT_MS,
        .silence_ms = CLOSE_MS,
        .data = drop_data,
        .done = on_closed,
    };
    if (!gv_call_begin(transfer->server->loop, &request))
        gv_log("a prefill server was not told that its pages were taken over (out of memory)");
}

// ---- Into the engine ----------------------------------------------------------------------------------------------

// The answer was one token or none: there is nothing to decode.
static void finish_here(gv_transfer *transfer)
{
    gv_engine_server *server = transfer->server;
    json_t *root = json_loadb(transfer->bytes.data, transfer->bytes.length, 0, NULL);
    const json_t *list = json_object_get(root, "tokens");
    const json_t *prompt = json_object_get(root, "prompt_tokens");
    bool length = json_is_true(json_object_get(root, "length"));
    if (!json_is_array(list) || json_array_size(list) > 1 || !json_is_integer(prompt)) {
        json_decref(root);
        fail_with(transfer, 502, "transfer_failed", "the prefill server's answer makes no sense");
        return;
    }
    gv_request *request = transfer->request;
    int count = (int)json_array_size(list);
    int token = (int)json_integer_value(json_array_get(list, 0));
    gv_request_take_chat(request, &transfer->chat);
    gv_chat_reply_add(&request->reply, &token, (size_t)count);
    gv_request_unlist(request);
    gv_leave(server);
    atomic_fetch_add(&server->finished, 1);
    gv_chat_reply_end(&request->reply, length, (int)json_integer_value(prompt), count);
    gv_request_drop(request);
    json_decref(root);
    close_room(transfer);
    free_transfer(transfer);
}

// False when there is no place for it now.
static bool take_over(gv_transfer *transfer)
{
    gv_request *request = transfer->request;
    gv_error error = {0};
    if (!request->has_reply)
        gv_request_take_chat(request, &transfer->chat);
    gv_status status =
        gv_request_import(request, transfer->bytes.data, transfer->bytes.length, transfer->most_tokens, &error);
    if (status == GV_ERR_LIMIT)
        return false;
    if (status != GV_OK) {
        gv_log("pages could not be taken over: %s", error.text);
        fail_with(transfer, status == GV_ERR_IO ? 500 : 502, "transfer_failed", error.text);
        return true;
    }
    gv_request_drop(request); // the engine has it now
    close_room(transfer);
    free_transfer(transfer);
    return true;
}

// The transfer whose pages came first of those that wait for a place.
static gv_transfer *first_waiting(gv_engine_server *server)
{
    gv_transfer *first = NULL;
    for (gv_transfer *transfer = server->transfers; transfer; transfer = transfer->next) {
        if (transfer->deadline_ms && (!first || transfer->order < first->order))
            first = transfer;
    }
    return first;
}

static void take_over_waiting(gv_engine_server *server)
{
    gv_transfer *transfer;
    while ((transfer = first_waiting(server)) && take_over(transfer))
        ;
}

// ---- The fetch ----------------------------------------------------------------------------------------------------

static gv_take on_pages(void *context, int status, const char *type, const void *bytes, size_t length)
{
    gv_transfer *transfer = context;
    transfer->status = status;
    transfer->is_json = strncmp(type, "application/json", 16) == 0;
    if (transfer->bytes.length + length > MOST_BYTES)
        transfer->bytes.failed = true;
    gv_text_add(&transfer->bytes, bytes, length);
    return GV_TAKEN;
}

static void on_fetched(void *context, const gv_call_end *end)
{
    gv_transfer *transfer = context;
    gv_engine_server *server = transfer->server;
    transfer->call = NULL;
    if (!end->whole) {
        gv_api_error error;
        gv_refuse(&error, end->timed_out ? 504 : 502, NULL, "transfer_failed",
                  "the pages did not come from the prefill server: %s", end->text);
        fail_transfer(transfer, &error);
        return;
    }
    if (end->status != 200 || transfer->bytes.failed) {
        fail_with(transfer, 502, "transfer_failed",
                  transfer->bytes.failed ? "the pages are too large"
                                         : "the prefill server did not hand the pages over");
        return;
    }
    transfer->request = gv_request_new(server, transfer->exchange);
    if (!transfer->request) {
        fail_with(transfer, 503, "server_busy", "the server is out of memory; try again later");
        return;
    }
    if (transfer->is_json) {
        finish_here(transfer);
        return;
    }
    transfer->order = atomic_fetch_add(&server->serial, 1);
    transfer->deadline_ms = gv_now_ms() + server->settings.room_ms;
    take_over_waiting(server);
}

static void on_loop_chat(void *argument)
{
    gv_transfer *transfer = argument;
    gv_engine_server *server = transfer->server;
    transfer->next = server->transfers;
    if (transfer->next)
        transfer->next->previous = transfer;
    server->transfers = transfer;
    atomic_fetch_add(&server->transfer_count, 1);
    gv_call_request request = {
        .method = "GET",
        .url = transfer->room_url,
        .connect_ms = CONNECT_MS,
        .silence_ms = server->settings.room_ms,
        .data = on_pages,
        .done = on_fetched,
        .context = transfer,
    };
    transfer->call = gv_call_begin(server->loop, &request);
    if (!transfer->call)
        fail_with(transfer, 503, "server_busy", "the server is out of memory; try again later");
}

void gv_transfers_on_chat(gv_http_exchange *exchange, void *context)
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
    gv_transfer *transfer = good ? gv_calloc(1, sizeof *transfer) : NULL;
    if (good && !chat.bootstrap_room)
        good = gv_refuse(&refusal, 400, "bootstrap_room", "invalid_value",
                         "this server only decodes what a prefill server prepared: ask the router");
    else if (good && !transfer)
        good = gv_refuse(&refusal, 503, NULL, "server_busy", "the server is out of memory; try again later");
    if (good) {
        transfer->server = server;
        transfer->exchange = exchange;
        int length = snprintf(transfer->room_url, sizeof transfer->room_url, "http://%s:%d/rooms/%" PRIu64,
                              chat.bootstrap_host, chat.bootstrap_port, chat.bootstrap_room);
        if (length >= (int)sizeof transfer->room_url)
            good = gv_refuse(&refusal, 400, "bootstrap_host", "invalid_value", "bootstrap_host is too long");
    }
    // The prefill server makes its own; here the prompt was only checked.
    tokens_free(&prompt);
    if (good) {
        transfer->chat = chat;
        transfer->most_tokens = gv_most_tokens(server, &chat);
        if (gv_loop_post(server->loop, on_loop_chat, transfer))
            return;
        gv_refuse(&refusal, 503, NULL, "server_busy", "the server is out of memory; try again later");
    }
    gv_chat_request_free(&chat);
    gv_free(transfer);
    gv_leave(server);
    gv_http_reply_error(exchange, &refusal);
}

// ---- Time and the end ---------------------------------------------------------------------------------------------

void gv_transfers_tend(gv_engine_server *server, uint64_t now_ms)
{
    for (gv_transfer *transfer = server->transfers, *next; transfer; transfer = next) {
        next = transfer->next;
        if (gv_http_gone(transfer->exchange))
            fail_with(transfer, 502, "cancelled", "the router gave this request up");
        else if (transfer->deadline_ms && now_ms > transfer->deadline_ms)
            fail_with(transfer, 503, "server_busy", "the engine had no place for the request in time");
    }
    take_over_waiting(server);
}

size_t gv_transfers_cut(gv_engine_server *server)
{
    size_t count = 0;
    for (; server->transfers; count++)
        fail_with(server->transfers, 503, "shutting_down", "the decode server is shutting down");
    return count;
}
