// The router of a disaggregated pair: takes chat requests, gives each to one prefill and one decode server, and brings
// the decode server's answer back. Watches its workers and answers for those that die.
#ifndef GV_SERVER_ROUTER_H
#define GV_SERVER_ROUTER_H

#include "specimen/server/service.h"

#include <stddef.h>

typedef struct gv_router_settings {
    gv_service_settings service;
    const char *const *prefill; // base URLs, "http://host:port"
    size_t prefill_count;
    const char *const *decode;
    size_t decode_count;
    bool open;           // workers may announce themselves with POST /workers
    unsigned check_ms;   // between two looks at a worker
    unsigned silence_ms; // a request fails when its decode server is silent for so long
} gv_router_settings;

// Starts it. Errors: those of gv_http_start and gv_loop_start; GV_ERR_USAGE for a URL that is none.
gv_status gv_router_start(gv_service *service, const gv_router_settings *settings, gv_error *error);

#endif
