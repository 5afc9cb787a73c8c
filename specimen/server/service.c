// Settings that all servers share.
#include "specimen/server/service.h"

enum { BODIES = 64 }; // of the longest kind that may be held at a time

gv_http_settings gv_service_http(const gv_service_settings *settings, const gv_http_route *routes, size_t count,
                                 void *context, void (*poke)(void *context))
{
    return (gv_http_settings){
        .address = settings->address,
        .port = settings->port,
        .routes = routes,
        .route_count = count,
        .context = context,
        .poke = poke,
        .most_connections = settings->most_connections,
        .idle_seconds = settings->idle_seconds,
        .receive_seconds = settings->receive_seconds,
        .most_body = settings->most_body,
        .most_bytes_of_bodies = settings->most_body * BODIES,
    };
}
