// The HTTP side of the specimen's servers, over libmicrohttpd: routes, whole request bodies within limits, replies that
// may be given later and from any thread, streamed replies, and notice of clients that went away.
//
// One thread of the library serves all connections. A handler answers at once or keeps the exchange; until it answers,
// the connection is suspended and costs nothing.
#ifndef GV_SERVER_HTTP_H
#define GV_SERVER_HTTP_H

#include "base/error.h"
#include "specimen/server/api_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gv_http_server gv_http_server;

// One request and its reply. A handler owns it until it called gv_http_reply, gv_http_reply_error or
// gv_http_stream_end, exactly one of them, once; after that the exchange must not be touched.
typedef struct gv_http_exchange gv_http_exchange;

typedef struct gv_http_route {
    const char *method; // GET answers HEAD too
    const char *path;   // exact; a last '*' matches any rest
    void (*handle)(gv_http_exchange *exchange, void *context);
    size_t most_body;    // longer request bodies are refused with 413; 0: as the settings say
    bool while_draining; // is served to the end, as what runs may depend on it
} gv_http_route;

typedef struct gv_http_settings {
    const char *address;         // numeric, IPv4 or IPv6
    uint16_t port;               // 0: the system picks one; see gv_http_port
    const gv_http_route *routes; // must outlive the server
    size_t route_count;
    void *context;               // given to handlers and to `poke`
    void (*poke)(void *context); // a client went, or took what filled its stream; any thread; may be NULL
    unsigned most_connections;   // more are refused
    unsigned idle_seconds;       // without a byte in or out, while it is the client's turn
    unsigned receive_seconds;    // for a whole request, however slowly its bytes come
    size_t most_body;            // of one request
    size_t most_bytes_of_bodies; // of all requests being received or handled together; 503 beyond
} gv_http_settings;

// Starts to listen and to serve. Errors: GV_ERR_IO with the address, port and reason; GV_ERR_USAGE for an address
// that is not numeric; GV_ERR_MEMORY.
gv_status gv_http_start(gv_http_server **server, const gv_http_settings *settings, gv_error *error);

uint16_t gv_http_port(const gv_http_server *server);

// Refuses new requests with 503, and new connections unless a route is served while draining; requests that are being
// handled go on.
void gv_http_drain(gv_http_server *server);

// Requests that were handed to a handler and are not yet answered to the last byte.
size_t gv_http_active(gv_http_server *server);

typedef struct gv_http_counts {
    uint64_t requests;        // handed to a handler or refused
    uint64_t refused;         // answered by the HTTP side itself: 404, 405, 413, 503
    uint64_t clients_gone;    // clients that went before their answer was complete
    uint64_t slow_clients;    // connections closed because a request took too long to arrive
    uint64_t connections;     // open now
    uint64_t bytes_of_bodies; // held now
} gv_http_counts;
gv_http_counts gv_http_count(gv_http_server *server);

// Ends all connections; no handler is called any more. What clients have not yet taken of their answers is lost, so
// wait for gv_http_active to reach 0 first, within a deadline. Exchanges may still be answered, to no one.
void gv_http_close(gv_http_server *server);

// Frees the server after gv_http_close; every exchange must have been answered by now.
void gv_http_free(gv_http_server *server);

// ---- In handlers: what was asked. Valid while the handler owns the exchange. ----
const char *gv_http_path(const gv_http_exchange *exchange);
// The request body; a zero byte follows it. Never NULL.
const char *gv_http_body(const gv_http_exchange *exchange, size_t *length);
// A query parameter's or header's value, or NULL. Only inside the handler call itself, on its thread.
const char *gv_http_query(gv_http_exchange *exchange, const char *name);
const char *gv_http_header(gv_http_exchange *exchange, const char *name);

// True once the client closed its side or the connection broke: an answer would reach no one.
bool gv_http_gone(gv_http_exchange *exchange);

// Frees the request body early; for exchanges that are kept long. Only while the handler owns the exchange.
void gv_http_drop_body(gv_http_exchange *exchange);

// ---- Answers, from any thread ----

// Answers whole. `body` is taken over and freed with gv_free; NULL with length 0 for none, else NULL means that memory
// ran out while it was made, and the client gets a 500. `type` is a static string.
void gv_http_reply(gv_http_exchange *exchange, int status, const char *type, char *body, size_t length);
void gv_http_reply_text(gv_http_exchange *exchange, int status, const char *type, const char *text);
void gv_http_reply_error(gv_http_exchange *exchange, const gv_api_error *error);

// Answers piece by piece. `begin` sends the status and headers.
void gv_http_stream_begin(gv_http_exchange *exchange, int status, const char *type);
// Copies bytes to what is pending. False when the client is gone or memory ran out: nothing more is of use then.
bool gv_http_stream_write(gv_http_exchange *exchange, const void *bytes, size_t length);
// True while the client has not taken more than `most` bytes yet; then `poke` tells when it has.
bool gv_http_stream_full(gv_http_exchange *exchange, size_t most);
// `whole` false breaks the connection instead of ending the body properly, so that no client takes a part for all.
void gv_http_stream_end(gv_http_exchange *exchange, bool whole);

#endif
