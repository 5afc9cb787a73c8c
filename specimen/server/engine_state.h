// What the files of the engine servers share. Three threads work on it: the library's HTTP thread (handlers), the
// stepping thread (engine_step and its notifications) and the loop (transfers, deadlines, announcements).
//
// Nobody calls engine_import or engine_export with the server's lock held: they may wait for a step, whose
// notifications take that lock.
#ifndef GV_SERVER_ENGINE_STATE_H
#define GV_SERVER_ENGINE_STATE_H

#include "specimen/chat.h"
#include "specimen/server/chat_reply.h"
#include "specimen/server/chat_request.h"
#include "specimen/server/engine_server.h"
#include "specimen/server/loop.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct gv_engine_server gv_engine_server;
typedef struct gv_request gv_request;
typedef struct gv_room gv_room;
typedef struct gv_transfer gv_transfer;

// One request that the engine has, or is about to have.
struct gv_request {
    gv_engine_server *server;
    atomic_int references;        // the engine's (until its last notification) and the submitter's
    _Atomic engine_handle handle; // 0 until it is known
    gv_http_exchange *exchange;   // to answer; NULL where a room answers, or after a health request was answered
    atomic_bool cut;              // ended by a shutdown
    bool health;                  // one token for /health
    uint64_t deadline_ms;         // of a health request
    bool has_reply;               // a chat request: `chat` and `reply` are in use
    gv_chat_request chat;
    // Once submitted only the stepping thread's:
    gv_chat_reply reply;
    int given;     // tokens that the reply has
    bool wanted;   // false once a stop text was found or the client is gone
    bool over;     // the last notification came
    gv_room *room; // of a prefill server; only the loop's
    gv_request *next, *previous;
};

struct gv_engine_server {
    gv_engine_server_settings settings;
    engine *engine;
    gv_http_server *http;
    gv_loop *loop;
    pthread_t stepper;
    atomic_bool stopping, failed;
    atomic_bool serving;  // `http` may be asked for its port
    atomic_bool leaving;  // shutting down: no more announcements
    atomic_bool hanging;  // a step takes longer than health_ms
    pthread_mutex_t lock; // of the list of requests, with their exchanges, and of `failure`
    gv_request *requests;
    gv_error failure;
    atomic_size_t taken; // chat requests in all their stages, for the limit
    atomic_size_t room_count, transfer_count;
    atomic_uint_least64_t serial;
    atomic_uint_least64_t begun, finished, refused, cancelled, failures, unknown_calls;
    // Only the loop's:
    uint64_t work_seen, work_since_ms;
    uint64_t next_announcement_ms;
    bool announcing, announced;
    gv_room *rooms;         // of a prefill server
    gv_transfer *transfers; // of a decode server
};

// ---- requests.c: requests of the engine ----

// A new request with the submitter's reference, listed. NULL when memory is out.
gv_request *gv_request_new(gv_engine_server *server, gv_http_exchange *exchange);

// Moves the chat request in and gets ready to answer it.
void gv_request_take_chat(gv_request *request, gv_chat_request *chat);

// Gives the request to the engine. On failure the request is still the submitter's alone.
gv_status gv_request_submit(gv_request *request, const tokens *prompt, int most_tokens, bool prefill_only,
                            gv_error *error);
// The same for exported pages.
gv_status gv_request_import(gv_request *request, const void *bytes, size_t size, int most_tokens, gv_error *error);

// Gives back a reference; the request may be gone afterwards.
void gv_request_drop(gv_request *request);

// Takes a request off the list, so that nobody else comes across it.
void gv_request_unlist(gv_request *request);

// Asks the engine to end the requests whose client is gone; with `all`, every request, as cut. Returns how many.
size_t gv_requests_cancel(gv_engine_server *server, bool all);

// Answers /health requests whose deadline has passed.
void gv_requests_tend(gv_engine_server *server, uint64_t now_ms);

// Words an engine's refusal of a request as an API error.
void gv_engine_refusal(gv_api_error *refusal, const gv_error *error);

// How many tokens a chat request may get at most.
int gv_most_tokens(const gv_engine_server *server, const gv_chat_request *chat);

// Counts a chat request in; false, with 429 in `error`, when there are too many. gv_leave counts it out.
bool gv_enter(gv_engine_server *server, gv_api_error *error);
void gv_leave(gv_engine_server *server);

// Reads a chat request and makes its prompt. False with the refusal in `error` and nothing to free.
bool gv_read_chat(gv_engine_server *server, gv_http_exchange *exchange, gv_chat_request *chat, tokens *prompt,
                  gv_api_error *error);

void gv_on_chat(gv_http_exchange *exchange, void *context);   // of a single server
void gv_on_health(gv_http_exchange *exchange, void *context); // of every one

// ---- rooms.c: the prefill server's side of the hand-over ----
void gv_rooms_on_chat(gv_http_exchange *exchange, void *context);
void gv_rooms_on_fetch(gv_http_exchange *exchange, void *context);
void gv_rooms_on_close(gv_http_exchange *exchange, void *context);
void gv_rooms_on_prefilled(gv_request *request); // on the stepping thread, with the engine's reference
void gv_rooms_tend(gv_engine_server *server, uint64_t now_ms);
size_t gv_rooms_cut(gv_engine_server *server);

// ---- transfers.c: the decode server's side ----
void gv_transfers_on_chat(gv_http_exchange *exchange, void *context);
void gv_transfers_tend(gv_engine_server *server, uint64_t now_ms);
size_t gv_transfers_cut(gv_engine_server *server);

// ---- announce.c ----
// Tells the router, from time to time, that this server is there.
void gv_announce(gv_engine_server *server, uint64_t now_ms);

#endif
