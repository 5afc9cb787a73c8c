// What the four kinds of server have in common, as the command line drives them: start, drain, cut, stop.
#ifndef GV_SERVER_SERVICE_H
#define GV_SERVER_SERVICE_H

#include "specimen/server/http.h"

#include <stdbool.h>
#include <stdint.h>

// Limits that every server has; defaults in serve.c.
typedef struct gv_service_settings {
    const char *address;
    uint16_t port;
    const char *model;
    unsigned most_connections, idle_seconds, receive_seconds;
    size_t most_body; // bytes of one request
} gv_service_settings;

// A running server.
typedef struct gv_service {
    gv_http_server *http;
    void *state;
    // Ends every request that still runs with an error its client can tell from an answer. Returns how many.
    size_t (*cut)(void *state);
    // Ends what still runs, closes `http` and frees everything. False when the engine hangs: then nothing more can be
    // done in this process than to leave it.
    bool (*stop)(void *state);
    // False once the server can do its work no more and should end; NULL: always fit.
    bool (*fit)(void *state);
} gv_service;

// The settings of the HTTP side for a server with these limits.
gv_http_settings gv_service_http(const gv_service_settings *settings, const gv_http_route *routes, size_t count,
                                 void *context, void (*poke)(void *context));

#endif
