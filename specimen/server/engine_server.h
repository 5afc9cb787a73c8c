// The servers that have an engine: the single one, and the prefill and the decode server of a disaggregated pair.
#ifndef GV_SERVER_ENGINE_SERVER_H
#define GV_SERVER_ENGINE_SERVER_H

#include "specimen/engine.h"
#include "specimen/server/service.h"

#include <stddef.h>

typedef enum gv_server_role {
    GV_SERVER_SINGLE,  // prefills and decodes
    GV_SERVER_PREFILL, // prefills and hands the pages over
    GV_SERVER_DECODE,  // fetches the pages of a prefilled request and decodes
} gv_server_role;

typedef struct gv_engine_server_settings {
    gv_service_settings service;
    gv_server_role role;
    engine_config engine;
    size_t most_requests; // taken and not yet answered; more get 429
    size_t most_messages, most_tools;
    unsigned health_ms; // deadline of /health, and how long a step may take before /ping says that the engine hangs
    unsigned room_ms;   // how long prefilled pages wait for their decode server, and a decode server for pages or room
    const char *pause_file; // no step begins while this file exists; NULL: none
    const char *router;     // base URL of the router to announce to; NULL: none
    const char *advertised; // host under which the router reaches this server; NULL: the address it listens on
} gv_engine_server_settings;

// Makes the engine and starts to serve. Strings must outlive the service. Errors: those of engine_create, gv_http_start
// and gv_loop_start.
gv_status gv_engine_server_start(gv_service *service, const gv_engine_server_settings *settings, gv_error *error);

#endif
