// Tells the router that this server is there: a router that was restarted, or started later, learns of its workers.
#include "specimen/server/engine_state.h"
#include "specimen/server/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AGAIN_MS = 2000, TIMEOUT_MS = 2000 };

static gv_take drop_data(void *context, int status, const char *type, const void *bytes, size_t length)
{
    return GV_TAKEN;
}

static void on_announced(void *context, const gv_call_end *end)
{
    gv_engine_server *server = context;
    server->announcing = false;
    bool known = end->whole && end->status == 200;
    // Said when it changes: the router is asked every two seconds.
    if (known != server->announced)
        gv_log(known ? "the router at %s knows this server" : "the router at %s does not answer; trying again",
               server->settings.router);
    else if (!known && end->whole)
        gv_log("the router at %s takes no workers that announce themselves; start it with --open",
               server->settings.router);
    server->announced = known;
}

void gv_announce(gv_engine_server *server, uint64_t now_ms)
{
    const gv_engine_server_settings *settings = &server->settings;
    if (!settings->router || server->announcing || now_ms < server->next_announcement_ms)
        return;
    server->next_announcement_ms = now_ms + AGAIN_MS;
    const char *host = settings->advertised ? settings->advertised : settings->service.address;
    bool bare_ipv6 = strchr(host, ':') && host[0] != '[';
    char base[256], url[300];
    snprintf(base, sizeof base, bare_ipv6 ? "http://[%s]:%u" : "http://%s:%u", host, gv_http_port(server->http));
    snprintf(url, sizeof url, "%s/workers", settings->router);
    json_t *root =
        json_pack("{s:s,s:s}", "kind", settings->role == GV_SERVER_PREFILL ? "prefill" : "decode", "url", base);
    char *body = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (body) {
        gv_call_request request = {
            .method = "POST",
            .url = url,
            .body = body,
            .length = strlen(body),
            .type = "application/json",
            .connect_ms = TIMEOUT_MS,
            .silence_ms = TIMEOUT_MS,
            .data = drop_data,
            .done = on_announced,
            .context = server,
        };
        server->announcing = gv_call_begin(server->loop, &request) != NULL;
    }
    free(body);
}
