// A server that answers at once with what it is told beforehand (answers.h), as fast as libmicrohttpd can: what `gravel
// stress` is measured against. null_server [OPTION...] PORT-FILE; ends when its standard input does.
#include "answers.h"

#include "base/memory.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct server {
    answers all;
    // [session][round][stream], and apart from them what the session gets alone.
    struct MHD_Response **ready;
    struct MHD_Response *health, *unknown, *refused;
    char *authorization;
    size_t requests, bytes; // answered; of their bodies
} server;

static struct MHD_Response *text_response(const char *text, size_t length, const char *type)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(length, (void *)text, MHD_RESPMEM_MUST_COPY);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    return response;
}

static struct MHD_Response *new_answer(server *s, const answers_place *place, bool stream)
{
    size_t length;
    char *body = answers_body(&s->all, place, stream, &length);
    struct MHD_Response *made = text_response(body, length, stream ? "text/event-stream" : "application/json");
    gv_free(body);
    return made;
}

static struct MHD_Response *answer_for(server *s, const answers_place *place, bool stream)
{
    size_t slot = ((place->session * s->all.rounds + place->round) * 2 + stream) * 2 + place->alone;
    if (!s->ready[slot])
        s->ready[slot] = new_answer(s, place, stream);
    return s->ready[slot];
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *data, size_t *size, void **state)
{
    static int begun;
    server *s = context;
    if (!*state) {
        *state = &begun;
        return MHD_YES;
    }
    // The body is read and dropped.
    if (*size) {
        s->bytes += *size;
        *size = 0;
        return MHD_YES;
    }
    s->requests++;
    const char *id = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "X-Request-Id");
    const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    const char *key = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    if (strcmp(url, "/health") == 0)
        return MHD_queue_response(connection, MHD_HTTP_OK, s->health);
    if (s->authorization && (!key || strcmp(key, s->authorization) != 0))
        return MHD_queue_response(connection, MHD_HTTP_UNAUTHORIZED, s->refused);
    answers_place place;
    if (strcmp(method, "POST") != 0 || strcmp(url, "/v1/chat/completions") != 0 || !id ||
        !answers_find(&s->all, id, &place))
        return MHD_queue_response(connection, MHD_HTTP_NOT_FOUND, s->unknown);
    bool stream = accept && strstr(accept, "event-stream");
    if (!place.kind)
        return MHD_queue_response(connection, MHD_HTTP_OK, answer_for(s, &place, stream));
    struct MHD_Response *once = new_answer(s, &place, stream);
    enum MHD_Result queued = MHD_queue_response(connection, MHD_HTTP_OK, once);
    MHD_destroy_response(once);
    return queued;
}

int main(int argc, char **argv)
{
    server s = {0};
    int at = answers_open(&s.all, argc, argv);
    if (at + 1 != argc) {
        fprintf(stderr, "usage: null_server [OPTION...] PORT-FILE\n");
        return 2;
    }
    s.ready = gv_calloc(s.all.count * s.all.rounds * 4, sizeof(struct MHD_Response *));
    s.health = text_response("{}", 2, "application/json");
    s.unknown = text_response("{\"error\":{\"message\":\"no such thing\"}}", 37, "application/json");
    if (s.all.key) {
        s.authorization = gv_malloc(strlen(s.all.key) + 16);
        sprintf(s.authorization, "Bearer %s", s.all.key);
    }
    // Some servers repeat the key that they refuse.
    s.refused =
        text_response("{\"error\":{\"message\":\"Incorrect API key: wrong-key-12345\"}}", 57, "application/json");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_TURBO, 0, NULL, NULL, handle, &s, MHD_OPTION_SOCK_ADDR,
        (struct sockaddr *)&address, MHD_OPTION_CONNECTION_LIMIT, 20000u, MHD_OPTION_LISTEN_BACKLOG_SIZE, 4096u,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)8192, MHD_OPTION_END);
    if (!daemon) {
        fprintf(stderr, "null_server: the server cannot be started\n");
        return 1;
    }
    unsigned port = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
    if (!answers_write_port(argv[at], port))
        return 1;
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    MHD_stop_daemon(daemon);
    printf("%zu requests, %zu bytes of bodies\n", s.requests, s.bytes);
    for (size_t i = 0; i < s.all.count * s.all.rounds * 4; i++) {
        if (s.ready[i])
            MHD_destroy_response(s.ready[i]);
    }
    MHD_destroy_response(s.health);
    MHD_destroy_response(s.unknown);
    MHD_destroy_response(s.refused);
    gv_free(s.authorization);
    gv_free(s.ready);
    answers_close(&s.all);
    return 0;
}
