// A server with every bad manner: hostile_server [OPTION...] PORT-FILE. The modes are below, each a way of not
// answering a chat completion as HTTP, server-sent events or OpenAI's API have it. A request names its mode by its tag,
// up to the first dot. One thread a connection; ends when its standard input does.
#include "answers.h"

#include "base/memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct connection {
    int socket;
    bool stream;    // what the request asks for
    const char *id; // of the request
    char head[16384];
    size_t requests; // answered on this connection
} connection;

static answers all;

// ---- Sending ------------------------------------------------------------------------------------------------------

static bool send_bytes(int socket, const char *bytes, size_t length)
{
    while (length) {
        ssize_t sent = send(socket, bytes, length, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        bytes += sent;
        length -= (size_t)sent;
    }
    return true;
}

static bool say(int socket, const char *text)
{
    return send_bytes(socket, text, strlen(text));
}

static void nap(long milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static const char stream_head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                                  "Connection: close\r\n\r\n";
static const char event[] =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":null}]}\n\n";

// Says the same again until the client has enough of it, many times at once.
static void flood(int socket, const char *first, const char *again)
{
    static const size_t block = 64 << 10;
    size_t length = strlen(again), filled = 0;
    char *text = malloc(block);
    for (; text && filled + length <= block; filled += length)
        memcpy(text + filled, again, length);
    say(socket, first);
    while (text && send_bytes(socket, text, filled))
        ;
    free(text);
}

static void status(int socket, const char *line, const char *more, const char *body)
{
    char text[1024];
    snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n%s",
             line, strlen(body), more, body);
    say(socket, text);
}

// A whole stream of this text and a clean end.
static void stream(int socket, const char *text)
{
    say(socket, stream_head);
    say(socket, text);
}

// ---- Right answers, served badly ----------------------------------------------------------------------------------

// The right answer's body, without its last `cut` bytes.
static char *right(const connection *c, size_t cut, size_t *length)
{
    answers_place place;
    if (!answers_find(&all, c->id, &place))
        return NULL;
    char *body = answers_body(&all, &place, c->stream, length);
    *length = *length > cut ? *length - cut : 0;
    body[*length] = '\0';
    return body;
}

static void right_stream(const connection *c, size_t cut, size_t piece, long pause)
{
    size_t length;
    char *body = right(c, cut, &length);
    if (!body)
        return;
    say(c->socket, stream_head);
    for (size_t at = 0; at < length; at += piece) {
        size_t now = piece < length - at ? piece : length - at;
        if (!send_bytes(c->socket, body + at, now))
            break;
        if (pause)
            nap(pause);
    }
    gv_free(body);
}

// In chunks of one size, ended by `end`.
static void right_chunks(const connection *c, size_t cut, size_t piece, const char *end)
{
    size_t length;
    char line[64], *body = right(c, cut, &length);
    if (!body)
        return;
    snprintf(line, sizeof line, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\n",
             c->stream ? "text/event-stream" : "application/json");
    say(c->socket, line);
    say(c->socket, "Transfer-Encoding: chunked\r\n\r\n");
    for (size_t at = 0; at < length; at += piece) {
        size_t now = piece < length - at ? piece : length - at;
        snprintf(line, sizeof line, "%zx\r\n", now);
        if (!say(c->socket, line) || !send_bytes(c->socket, body + at, now) || !say(c->socket, "\r\n"))
            break;
    }
    say(c->socket, end);
    gv_free(body);
}

// Resets the connection: the peer gets ECONNRESET.
static void reset(int socket)
{
    struct linger now = {.l_onoff = 1};
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

static size_t tail_length(const connection *c, const char *from)
{
    size_t length;
    char *body = right(c, 0, &length);
    const char *found = body ? strstr(body, from) : NULL;
    size_t tail = found ? length - (size_t)(found - body) : 0;
    gv_free(body);
    return tail;
}

// ---- Modes --------------------------------------------------------------------------------------------------------

static void m_right(connection *c)
{
    right_chunks(c, 0, 1000, "0\r\n\r\n");
}
static void m_right_bytes(connection *c)
{
    right_chunks(c, 0, 1, "0\r\n\r\n");
}
// One answer a connection, with a promise of more.
static void m_close_kept(connection *c)
{
    right_chunks(c, 0, 1000, "0\r\n\r\n");
}
static void m_never(connection *c)
{
    char byte;
    while (recv(c->socket, &byte, 1, 0) > 0)
        ;
}
static void m_never_after_head(connection *c)
{
    say(c->socket, stream_head);
    m_never(c);
}
static void m_endless(connection *c)
{
    flood(c->socket, stream_head, event);
}
static void m_endless_comments(connection *c)
{
    flood(c->socket, stream_head, ": still there\n\n");
}
static void m_endless_line(connection *c)
{
    flood(c->socket, stream_head, "data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
}
static void m_endless_event(connection *c)
{
    flood(c->socket, stream_head, "data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n");
}
static void m_endless_headers(connection *c)
{
    flood(c->socket, "HTTP/1.1 200 OK\r\n", "X-More: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n");
}
static void m_endless_header(connection *c)
{
    flood(c->socket, "HTTP/1.1 200 OK\r\nX-More: ", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
}
static void m_endless_continue(connection *c)
{
    flood(c->socket, "", "HTTP/1.1 100 Continue\r\n\r\n");
}
static void m_endless_error(connection *c)
{
    flood(c->socket, "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\n\r\n", "all is lost. ");
}
static void m_invalid_utf8(connection *c)
{
    stream(c->socket, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\xff\xfe\"}}]}\n\n");
}
static void m_bad_chunk(connection *c)
{
    right_chunks(c, 300, 100, "zz\r\nnothing\r\n");
}
static void m_bad_last_chunk(connection *c)
{
    right_chunks(c, 0, 100, "zz\r\nnothing\r\n");
}
static void m_bad_chunk_early(connection *c)
{
    say(c->socket, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "fffffffffffffffffffff\r\n");
}
static void m_wrong_schema(connection *c)
{
    stream(c->socket, "data: {\"answer\":42}\n\ndata: [DONE]\n\n");
}
static void m_wrong_schema_list(connection *c)
{
    stream(c->socket, "data: [1,2,3]\n\n");
}
static void m_wrong_schema_calls(connection *c)
{
    stream(c->socket, "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":{\"name\":\"x\"}}}]}\n\n");
}
static void m_many_calls(connection *c)
{
    stream(c->socket, "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1000000000}]}}]}\n\n");
}
static void m_hole_in_calls(connection *c)
{
    stream(c->socket, "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":3,\"function\":{\"name\":"
                      "\"open_gate\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n");
}
static void m_not_json(connection *c)
{
    stream(c->socket, "data: <html>Bad Gateway</html>\n\n");
}
static void m_deep_json(connection *c)
{
    say(c->socket, stream_head);
    say(c->socket, "data: {\"choices\":");
    for (int i = 0; i < 200000; i++)
        say(c->socket, "[[[[");
    say(c->socket, "\n\n");
}
static void m_error_event(connection *c)
{
    stream(c->socket, "event: error\ndata: {\"error\":{\"message\":\"CUDA out of memory\",\"code\":500}}\n\n");
}
static void m_whole_for_stream(connection *c)
{
    c->stream = false;
    right_chunks(c, 0, 1000, "0\r\n\r\n");
}
static void m_html(connection *c)
{
    say(c->socket, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\n\r\n<html>Hello</html>\r\n");
}
static void m_empty(connection *c)
{
    say(c->socket, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\n\r\n");
}
static void m_redirect(connection *c)
{
    status(c->socket, "307 Temporary Redirect", "Location: http://127.0.0.1:9/v1/chat/completions\r\n", "");
}
static void m_drip(connection *c)
{
    right_stream(c, 0, 1, 50);
}
static void m_reset(connection *c)
{
    right_stream(c, tail_length(c, "tool_calls") + 20, 4096, 0);
    nap(100);
    reset(c->socket);
}
static void m_reset_at_once(connection *c)
{
    reset(c->socket);
}
static void m_close(connection *c)
{
}
static void m_no_done(connection *c)
{
    right_stream(c, tail_length(c, "data: [DONE]"), 4096, 0);
}
static void m_done_unended(connection *c)
{
    right_stream(c, 2, 4096, 0);
}
static void m_no_finish(connection *c)
{
    right_stream(c,
                 tail_length(c, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,"
                                "\"delta\":{},"),
                 4096, 0);
}
static void m_cut_event(connection *c)
{
    right_stream(c, tail_length(c, "{\"tool_calls\"") - 9, 4096, 0);
}
static void m_short_body(connection *c)
{
    say(c->socket, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100000\r\n\r\n");
    say(c->socket, event);
}
static void m_cut_chunks(connection *c)
{
    say(c->socket, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n");
    say(c->socket, event);
}
static void m_not_http(connection *c)
{
    say(c->socket, "SSH-2.0-OpenSSH_9.2p1\r\n");
}
static void m_binary(connection *c)
{
    char bytes[4096];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 37 + 11);
    send_bytes(c->socket, bytes, sizeof bytes);
}
static void m_status_401(connection *c)
{
    char body[600];
    const char *key = strcasestr(c->head, "\nAuthorization: Bearer ");
    int length = key ? (int)strcspn(key + 23, "\r\n") : 0;
    snprintf(body, sizeof body, "{\"error\":{\"message\":\"Incorrect API key provided: %.*s\"}}", length,
             key ? key + 23 : "");
    status(c->socket, "401 Unauthorized", "", body);
}
static void m_status_404(connection *c)
{
    status(c->socket, "404 Not Found", "", "{\"error\":{\"message\":\"The model `m` does not exist.\"}}");
}
static void m_status_429(connection *c)
{
    status(c->socket, "429 Too Many Requests", "Retry-After: 1\r\n", "{\"error\":{\"message\":\"slow down\"}}");
}
static void m_status_503(connection *c)
{
    status(c->socket, "503 Service Unavailable", "Connection: close\r\n", "starting\033[2J up");
}
// The model repeats the key in its answer.
static void m_leak_key(connection *c)
{
    char text[600];
    const char *key = strcasestr(c->head, "\nAuthorization: Bearer ");
    int length = key ? (int)strcspn(key + 23, "\r\n") : 0;
    snprintf(text, sizeof text,
             "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"my key is %.*s\"},"
             "\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
             length, key ? key + 23 : "");
    stream(c->socket, text);
}

static const struct {
    const char *name;
    void (*serve)(connection *);
    bool kept; // the connection is used again
} modes[] = {
    {"right", m_right, true},
    {"right-bytes", m_right_bytes, true},
    {"close-kept", m_close_kept, false},
    {"drip", m_drip, false},
    {"never", m_never, false},
    {"never-after-head", m_never_after_head, false},
    {"endless", m_endless, false},
    {"endless-comments", m_endless_comments, false},
    {"endless-line", m_endless_line, false},
    {"endless-event", m_endless_event, false},
    {"endless-headers", m_endless_headers, false},
    {"endless-header", m_endless_header, false},
    {"endless-continue", m_endless_continue, false},
    {"endless-error", m_endless_error, false},
    {"invalid-utf8", m_invalid_utf8, false},
    {"bad-chunk", m_bad_chunk, false},
    {"bad-last-chunk", m_bad_last_chunk, false},
    {"bad-chunk-early", m_bad_chunk_early, false},
    {"wrong-schema", m_wrong_schema, false},
    {"wrong-schema-list", m_wrong_schema_list, false},
    {"wrong-schema-calls", m_wrong_schema_calls, false},
    {"many-calls", m_many_calls, false},
    {"hole-in-calls", m_hole_in_calls, false},
    {"not-json", m_not_json, false},
    {"deep-json", m_deep_json, false},
    {"error-event", m_error_event, false},
    {"whole-for-stream", m_whole_for_stream, true},
    {"html", m_html, true},
    {"empty", m_empty, true},
    {"redirect", m_redirect, true},
    {"reset", m_reset, false},
    {"reset-at-once", m_reset_at_once, false},
    {"close", m_close, false},
    {"no-done", m_no_done, false},
    {"done-unended", m_done_unended, false},
    {"no-finish", m_no_finish, false},
    {"cut-event", m_cut_event, false},
    {"short-body", m_short_body, false},
    {"cut-chunks", m_cut_chunks, false},
    {"not-http", m_not_http, false},
    {"binary", m_binary, false},
    {"status-401", m_status_401, true},
    {"status-404", m_status_404, true},
    {"status-429", m_status_429, true},
    {"status-503", m_status_503, false},
    {"leak-key", m_leak_key, false},
};

// ---- Serving ------------------------------------------------------------------------------------------------------

// Reads one request; its body is dropped. False when the client is gone or the request too long.
static bool read_request(connection *c)
{
    size_t length = 0;
    char *end = NULL;
    while (!end) {
        ssize_t got = recv(c->socket, c->head + length, sizeof c->head - 1 - length, 0);
        if (got <= 0 || length + (size_t)got >= sizeof c->head - 1)
            return false;
        length += (size_t)got;
        c->head[length] = '\0';
        end = strstr(c->head, "\r\n\r\n");
    }
    const char *size = strcasestr(c->head, "\nContent-Length:");
    size_t left = size ? strtoul(size + 16, NULL, 10) : 0;
    size_t had = length - (size_t)(end + 4 - c->head);
    left = left > had ? left - had : 0;
    end[2] = '\0';
    for (char dropped[4096]; left;) {
        ssize_t got = recv(c->socket, dropped, left < sizeof dropped ? left : sizeof dropped, 0);
        if (got <= 0)
            return false;
        left -= (size_t)got;
    }
    c->stream = strcasestr(c->head, "\nAccept: text/event-stream") != NULL;
    char *id = strcasestr(c->head, "\nX-Request-Id: ");
    c->id = "";
    if (id) {
        c->id = id + 15;
        // The mode for keys looks at the head before the id is ended; both are lines of their own.
        id[15 + strcspn(id + 15, "\r\n")] = '\0';
        memmove(c->head + sizeof c->head / 2, c->id, strlen(c->id) + 1);
        c->id = c->head + sizeof c->head / 2;
        id[15 + strlen(c->id)] = '\r';
    }
    return true;
}

// The mode that a request's tag names; the number of modes when there is none.
static size_t mode_of(const char *id)
{
    size_t count = sizeof modes / sizeof *modes, length = strcspn(id, ".");
    for (size_t i = 0; i < count; i++) {
        if (strlen(modes[i].name) == length && memcmp(modes[i].name, id, length) == 0)
            return i;
    }
    return count;
}

static void *serve(void *argument)
{
    connection *c = argument;
    while (read_request(c)) {
        size_t mode = mode_of(c->id);
        if (mode == sizeof modes / sizeof *modes)
            break;
        modes[mode].serve(c);
        if (!modes[mode].kept)
            break;
    }
    close(c->socket);
    free(c);
    return NULL;
}

static void *listen_for_ever(void *argument)
{
    int listener = *(int *)argument;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (;;) {
        connection *c = calloc(1, sizeof *c);
        c->socket = accept(listener, NULL, NULL);
        pthread_t thread;
        if (c->socket < 0 || pthread_create(&thread, &attributes, serve, c) != 0) {
            if (c->socket >= 0)
                close(c->socket);
            free(c);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int at = answers_open(&all, argc, argv);
    if (at + 1 != argc) {
        fprintf(stderr, "usage: hostile_server [OPTION...] PORT-FILE, or hostile_server list\n");
        return 2;
    }
    // Prints the modes, so that the test can see that it runs each of them.
    if (strcmp(argv[at], "list") == 0) {
        for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
            puts(modes[i].name);
        answers_close(&all);
        return 0;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t thread;
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 1024) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0 ||
        !answers_write_port(argv[at], ntohs(address.sin_port)) ||
        pthread_create(&thread, NULL, listen_for_ever, &listener) != 0) {
        perror("hostile_server");
        return 1;
    }
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    // Connections may still be served: their memory goes with the process.
    _exit(0);
}
