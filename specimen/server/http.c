// The HTTP side over libmicrohttpd.
//
// Locks, in the order in which they are taken: the server's list of clients, then one exchange's, then the library's
// own (inside suspend and resume). Handlers and `poke` are called without any.
#include "specimen/server/http.h"

#include "base/clock.h"
#include "base/memory.h"
#include "specimen/server/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    WATCH_MS = 100,          // how often clients are looked at for having gone
    DISCARD_TIMES = 32,      // a body too long is read and dropped up to so many times its limit, then cut off
    STREAM_BLOCK = 16 << 10, // what one turn of the library copies of a stream
    MOST_HANGUPS = 2,
    BACKLOG = 1024,
};

// One connection. Listed from its start to its end, so that the watching thread may use its socket under the lock.
typedef struct peer {
    int socket;
    uint64_t receiving_since_ms; // 0 while it is the server's turn
    unsigned hangups;            // looks in a row that found it half closed while it should send
    bool cut;
    gv_http_exchange *exchange;
    struct peer *next, *previous;
} peer;

struct gv_http_server {
    gv_http_settings settings;
    struct MHD_Daemon *daemon;
    uint16_t port;
    pthread_t watcher;
    pthread_mutex_t lock; // of the list of clients, of `watching`, `listening` and `listener`
    pthread_cond_t woken;
    bool watching, listening;
    MHD_socket listener; // once the library has given it back
    peer *clients;
    atomic_bool draining, stopping;
    atomic_size_t active, bytes_of_bodies, connections;
    atomic_uint_least64_t requests, refused, clients_gone, slow_clients;
};

typedef enum answer { NO_ANSWER, WHOLE_ANSWER, STREAMED_ANSWER } answer;

struct gv_http_exchange {
    gv_http_server *server;
    atomic_int references; // the library's and the handler's
    pthread_mutex_t lock;  // of everything below that changes once the handler was called
    struct MHD_Connection *connection;
    const gv_http_route *route;
    char *path;
    gv_text body;
    size_t counted, discarded; // bytes counted in bytes_of_bodies; bytes of a refused body
    gv_api_error refusal;      // status 0: none
    char allowed[32];          // for 405
    bool handled, suspended, gone;
    answer answer;
    int status;
    const char *type;
    char *reply;
    size_t reply_length;
    gv_text pending; // of a stream; its first `taken` bytes are with the client
    size_t taken;
    bool full; // the handler waits for the client to take what is pending
    bool ended, whole;
};

static uint64_t now_ms(void)
{
    return gv_monotonic_ns() / 1000000;
}

// ---- Exchanges ----------------------------------------------------------------------------------------------------

static void drop_body(gv_http_exchange *exchange)
{
    gv_text_free(&exchange->body);
    atomic_fetch_sub(&exchange->server->bytes_of_bodies, exchange->counted);
    exchange->counted = 0;
}

static void release(gv_http_exchange *exchange)
{
    if (atomic_fetch_sub(&exchange->references, 1) != 1)
        return;
    drop_body(exchange);
    gv_text_free(&exchange->pending);
    gv_free(exchange->reply);
    gv_free(exchange->path);
    pthread_mutex_destroy(&exchange->lock);
    gv_free(exchange);
}

// With the exchange's lock held: lets the library look at the exchange again.
static void wake(gv_http_exchange *exchange)
{
    if (exchange->suspended) {
        exchange->suspended = false;
        MHD_resume_connection(exchange->connection);
    }
}

const char *gv_http_path(const gv_http_exchange *exchange)
{
    return exchange->path;
}

const char *gv_http_body(const gv_http_exchange *exchange, size_t *length)
{
    *length = exchange->body.length;
    return exchange->body.data ? exchange->body.data : "";
}

const char *gv_http_query(gv_http_exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *gv_http_header(gv_http_exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
}

bool gv_http_gone(gv_http_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    bool gone = exchange->gone;
    pthread_mutex_unlock(&exchange->lock);
    return gone;
}

void gv_http_drop_body(gv_http_exchange *exchange)
{
    drop_body(exchange);
}

// ---- Answers ------------------------------------------------------------------------------------------------------

void gv_http_reply(gv_http_exchange *exchange, int status, const char *type, char *body, size_t length)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->answer = WHOLE_ANSWER;
    if (!body && length) {
        // Without memory for the answer, a constant one: the client must not take silence for success.
        static const char text[] = "{\"error\":{\"message\":\"the server is out of memory\",\"type\":\"server_error\","
                                   "\"param\":null,\"code\":null}}";
        body = gv_strdup(text);
        length = body ? sizeof text - 1 : 0;
        status = 500;
        type = "application/json";
    }
    exchange->status = status;
    exchange->type = type;
    exchange->reply = body;
    exchange->reply_length = length;
    wake(exchange);
    pthread_mutex_unlock(&exchange->lock);
    release(exchange);
}

void gv_http_reply_text(gv_http_exchange *exchange, int status, const char *type, const char *text)
{
    size_t length = strlen(text);
    gv_http_reply(exchange, status, type, length ? gv_strdup(text) : NULL, length);
}

void gv_http_reply_error(gv_http_exchange *exchange, const gv_api_error *error)
{
    size_t length = 1;
    char *body = gv_api_error_json(error, &length);
    gv_http_reply(exchange, error->status, "application/json", body, length);
}

void gv_http_stream_begin(gv_http_exchange *exchange, int status, const char *type)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->answer = STREAMED_ANSWER;
    exchange->status = status;
    exchange->type = type;
    wake(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

bool gv_http_stream_write(gv_http_exchange *exchange, const void *bytes, size_t length)
{
    pthread_mutex_lock(&exchange->lock);
    bool useful = !exchange->gone && gv_text_add(&exchange->pending, bytes, length);
    if (useful)
        wake(exchange);
    pthread_mutex_unlock(&exchange->lock);
    return useful;
}

bool gv_http_stream_full(gv_http_exchange *exchange, size_t most)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->full = !exchange->gone && exchange->pending.length - exchange->taken > most;
    bool full = exchange->full;
    pthread_mutex_unlock(&exchange->lock);
    return full;
}

void gv_http_stream_end(gv_http_exchange *exchange, bool whole)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->ended = true;
    exchange->whole = whole && !exchange->pending.failed;
    wake(exchange);
    pthread_mutex_unlock(&exchange->lock);
    release(exchange);
}

// ---- The library's callbacks, on its thread -----------------------------------------------------------------------

static enum MHD_Result add_headers(const gv_http_exchange *exchange, struct MHD_Response *response)
{
    if (exchange->type && MHD_add_response_header(response, "Content-Type", exchange->type) != MHD_YES)
        return MHD_NO;
    if (exchange->answer == STREAMED_ANSWER &&
        MHD_add_response_header(response, "Cache-Control", "no-cache") != MHD_YES)
        return MHD_NO;
    if (exchange->allowed[0] && MHD_add_response_header(response, "Allow", exchange->allowed) != MHD_YES)
        return MHD_NO;
    if (exchange->status == 429 || exchange->status == 503)
        return MHD_add_response_header(response, "Retry-After", "1");
    return MHD_YES;
}

static enum MHD_Result queue(gv_http_exchange *exchange, struct MHD_Response *response)
{
    if (!response)
        return MHD_NO;
    enum MHD_Result result = add_headers(exchange, response);
    // While draining, a kept connection would only bring requests that are refused.
    if (result == MHD_YES && atomic_load(&exchange->server->draining))
        result = MHD_add_response_header(response, "Connection", "close");
    if (result == MHD_YES)
        result = MHD_queue_response(exchange->connection, (unsigned)exchange->status, response);
    MHD_destroy_response(response);
    return result;
}

// The next bytes of a stream; 0 with the connection suspended when there are none yet.
static ssize_t read_stream(void *context, uint64_t position, char *buffer, size_t most)
{
    gv_http_exchange *exchange = context;
    gv_http_server *server = exchange->server;
    ssize_t result = 0;
    bool drained = false;
    pthread_mutex_lock(&exchange->lock);
    if (exchange->gone || exchange->pending.failed) {
        result = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (exchange->pending.length > exchange->taken) {
        size_t left = exchange->pending.length - exchange->taken;
        size_t count = left < most ? left : most;
        memcpy(buffer, exchange->pending.data + exchange->taken, count);
        exchange->taken += count;
        drained = exchange->full && count == left;
        exchange->full = exchange->full && !drained;
        // Moving the rest to the front each time would make a long stream quadratic.
        if (exchange->taken > exchange->pending.length / 2) {
            gv_text_drop(&exchange->pending, exchange->taken);
            exchange->taken = 0;
        }
        result = (ssize_t)count;
    } else if (exchange->ended) {
        result = exchange->whole ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (atomic_load(&server->stopping)) {
        result = MHD_CONTENT_READER_END_WITH_ERROR;
    } else {
        exchange->suspended = true;
        MHD_suspend_connection(exchange->connection);
    }
    pthread_mutex_unlock(&exchange->lock);
    if (drained && server->settings.poke)
        server->settings.poke(server->settings.context);
    return result;
}

// Without the exchange's lock: the library has a lock for each response, which it holds while it calls `read_stream`.
// What an answer begins with does not change any more.
static enum MHD_Result queue_answer(gv_http_exchange *exchange)
{
    if (exchange->answer == STREAMED_ANSWER)
        return queue(exchange,
                     MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, exchange, NULL));
    char *reply = exchange->reply;
    exchange->reply = NULL;
    if (!reply)
        return queue(exchange, MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT));
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback(exchange->reply_length, reply, gv_free);
    if (!response)
        gv_free(reply);
    return queue(exchange, response);
}

static enum MHD_Result queue_refusal(gv_http_exchange *exchange)
{
    atomic_fetch_add(&exchange->server->refused, 1);
    pthread_mutex_lock(&exchange->lock);
    exchange->answer = WHOLE_ANSWER;
    exchange->status = exchange->refusal.status;
    exchange->type = "application/json";
    exchange->reply = gv_api_error_json(&exchange->refusal, &exchange->reply_length);
    pthread_mutex_unlock(&exchange->lock);
    return queue_answer(exchange);
}

static bool path_matches(const gv_http_route *route, const char *path)
{
    size_t length = strlen(route->path);
    return length && route->path[length - 1] == '*' ? strncmp(route->path, path, length - 1) == 0
                                                    : strcmp(route->path, path) == 0;
}

// Finds the route, or says why there is none.
static void route(gv_http_exchange *exchange, const char *method)
{
    gv_http_server *server = exchange->server;
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    for (size_t i = 0; i < server->settings.route_count; i++) {
        const gv_http_route *candidate = &server->settings.routes[i];
        if (!path_matches(candidate, exchange->path))
            continue;
        if (strcmp(candidate->method, wanted) == 0) {
            exchange->route = candidate;
            return;
        }
        size_t used = strlen(exchange->allowed);
        snprintf(exchange->allowed + used, sizeof exchange->allowed - used, "%s%s", used ? ", " : "",
                 candidate->method);
    }
    if (exchange->allowed[0])
        gv_refuse(&exchange->refusal, 405, NULL, "method_not_allowed", "%s takes %s, not %.20s", exchange->path,
                  exchange->allowed, method);
    else
        gv_refuse(&exchange->refusal, 404, NULL, "not_found", "there is nothing at %.200s", exchange->path);
}

static size_t most_body(const gv_http_exchange *exchange)
{
    bool own = exchange->route && exchange->route->most_body;
    return own ? exchange->route->most_body : exchange->server->settings.most_body;
}

static void refuse_length(gv_http_exchange *exchange)
{
    gv_refuse(&exchange->refusal, 413, NULL, "request_too_large", "the request body is longer than %zu bytes",
              most_body(exchange));
}

static gv_http_exchange *new_exchange(gv_http_server *server, struct MHD_Connection *connection, const char *path)
{
    gv_http_exchange *exchange = gv_calloc(1, sizeof *exchange);
    if (!exchange)
        return NULL;
    exchange->path = gv_strdup(path);
    if (!exchange->path) {
        gv_free(exchange);
        return NULL;
    }
    exchange->server = server;
    exchange->connection = connection;
    atomic_init(&exchange->references, 1);
    pthread_mutex_init(&exchange->lock, NULL);
    return exchange;
}

static peer *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

// The headers have arrived.
static enum MHD_Result begin(gv_http_server *server, struct MHD_Connection *connection, const char *path,
                             const char *method, void **context)
{
    peer *client = client_of(connection);
    gv_http_exchange *exchange = client ? new_exchange(server, connection, path) : NULL;
    if (!exchange)
        return MHD_NO;
    *context = exchange;
    atomic_fetch_add(&server->requests, 1);
    pthread_mutex_lock(&server->lock);
    client->exchange = exchange;
    pthread_mutex_unlock(&server->lock);

    route(exchange, method);
    if (!exchange->route)
        return MHD_YES;
    if (atomic_load(&server->draining) && !exchange->route->while_draining) {
        gv_refuse(&exchange->refusal, 503, NULL, "shutting_down", "the server is shutting down");
        return MHD_YES;
    }
    const char *length = gv_http_header(exchange, "Content-Length");
    // A length that the library could not read as a number never comes here.
    if (length && (strlen(length) > 18 || strtoull(length, NULL, 10) > most_body(exchange))) {
        refuse_length(exchange);
        // Dropping a body as it comes lets the client read the answer; one that is far too long is not worth it.
        if (strlen(length) > 18 || strtoull(length, NULL, 10) / DISCARD_TIMES > most_body(exchange))
            return queue_refusal(exchange);
    }
    return MHD_YES;
}

static enum MHD_Result take_body(gv_http_exchange *exchange, const char *data, size_t length)
{
    gv_http_server *server = exchange->server;
    if (!exchange->refusal.status && exchange->body.length + length > most_body(exchange))
        refuse_length(exchange);
    if (!exchange->refusal.status) {
        size_t held = atomic_fetch_add(&server->bytes_of_bodies, length) + length;
        exchange->counted += length;
        if (held > server->settings.most_bytes_of_bodies)
            gv_refuse(&exchange->refusal, 503, NULL, "server_busy",
                      "the requests being received are too large together; try again later");
        else if (!gv_text_add(&exchange->body, data, length))
            gv_refuse(&exchange->refusal, 503, NULL, "server_busy", "the server is out of memory; try again later");
    }
    if (exchange->refusal.status) {
        drop_body(exchange);
        exchange->discarded += length;
        return exchange->discarded / DISCARD_TIMES > most_body(exchange) ? MHD_NO : MHD_YES;
    }
    return MHD_YES;
}

// The whole request has arrived: it is the handler's now.
static enum MHD_Result handle(gv_http_exchange *exchange)
{
    gv_http_server *server = exchange->server;
    if (!exchange->refusal.status && atomic_load(&server->draining) && !exchange->route->while_draining)
        gv_refuse(&exchange->refusal, 503, NULL, "shutting_down", "the server is shutting down");
    // A zero byte behind the body, for what reads it as a string.
    if (!exchange->refusal.status) {
        if (gv_text_add(&exchange->body, "", 1))
            exchange->body.length--;
        else
            gv_refuse(&exchange->refusal, 503, NULL, "server_busy", "the server is out of memory; try again later");
    }
    pthread_mutex_lock(&server->lock);
    peer *client = client_of(exchange->connection);
    client->receiving_since_ms = 0;
    pthread_mutex_unlock(&server->lock);
    if (exchange->refusal.status)
        return queue_refusal(exchange);
    if (atomic_load(&server->stopping))
        return MHD_NO;
    exchange->handled = true;
    atomic_fetch_add(&server->active, 1);
    atomic_fetch_add(&exchange->references, 1);
    exchange->route->handle(exchange, server->settings.context);
    return MHD_YES;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data, size_t *length,
                                  void **request)
{
    gv_http_exchange *exchange = *request;
    if (!exchange)
        return begin(context, connection, path, method, request);
    if (*length) {
        enum MHD_Result result = take_body(exchange, data, *length);
        *length = 0;
        return result;
    }
    if (!exchange->handled) {
        enum MHD_Result result = handle(exchange);
        if (result != MHD_YES || !exchange->handled)
            return result;
    }
    pthread_mutex_lock(&exchange->lock);
    bool answered = exchange->answer != NO_ANSWER;
    bool useless = exchange->gone || (!answered && atomic_load(&exchange->server->stopping));
    if (!answered && !useless) {
        exchange->suspended = true;
        MHD_suspend_connection(connection);
    }
    pthread_mutex_unlock(&exchange->lock);
    if (useless)
        return MHD_NO;
    return answered ? queue_answer(exchange) : MHD_YES;
}

static void on_completed(void *context, struct MHD_Connection *connection, void **request,
                         enum MHD_RequestTerminationCode code)
{
    gv_http_server *server = context;
    gv_http_exchange *exchange = *request;
    peer *client = client_of(connection);
    if (client) {
        pthread_mutex_lock(&server->lock);
        client->exchange = NULL;
        client->receiving_since_ms = now_ms();
        pthread_mutex_unlock(&server->lock);
    }
    if (!exchange)
        return;
    *request = NULL;
    pthread_mutex_lock(&exchange->lock);
    bool handled = exchange->handled;
    bool unanswered = handled && exchange->answer != WHOLE_ANSWER && !exchange->ended;
    if (handled && code != MHD_REQUEST_TERMINATED_COMPLETED_OK && !exchange->gone)
        atomic_fetch_add(&server->clients_gone, 1);
    exchange->gone = true;
    exchange->connection = NULL;
    pthread_mutex_unlock(&exchange->lock);
    release(exchange);
    if (handled)
        atomic_fetch_sub(&server->active, 1);
    if (unanswered && server->settings.poke)
        server->settings.poke(server->settings.context);
}

static void on_connection(void *context, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    gv_http_server *server = context;
    peer *one = *socket_context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        one = info ? gv_calloc(1, sizeof *one) : NULL;
        if (!one)
            return;
        // Events are small and wanted at once.
        setsockopt(info->connect_fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        one->socket = info->connect_fd;
        one->receiving_since_ms = now_ms();
        pthread_mutex_lock(&server->lock);
        one->next = server->clients;
        if (one->next)
            one->next->previous = one;
        server->clients = one;
        pthread_mutex_unlock(&server->lock);
        atomic_fetch_add(&server->connections, 1);
        *socket_context = one;
    } else if (one) {
        pthread_mutex_lock(&server->lock);
        if (one->previous)
            one->previous->next = one->next;
        else
            server->clients = one->next;
        if (one->next)
            one->next->previous = one->previous;
        pthread_mutex_unlock(&server->lock);
        atomic_fetch_sub(&server->connections, 1);
        *socket_context = NULL;
        gv_free(one);
    }
}

// ---- The watching thread ------------------------------------------------------------------------------------------

static bool is_closed(int socket)
{
    struct pollfd ask = {.fd = socket, .events = POLLRDHUP};
    return poll(&ask, 1, 0) == 1 && (ask.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

// A suspended connection is not read, so nobody notices when its client goes: ask its socket. True: someone went.
static bool look_for_gone(gv_http_server *server, peer *client)
{
    gv_http_exchange *exchange = client->exchange;
    if (!exchange || !is_closed(client->socket))
        return false;
    pthread_mutex_lock(&exchange->lock);
    bool went = exchange->suspended;
    if (went) {
        exchange->gone = true;
        atomic_fetch_add(&server->clients_gone, 1);
        wake(exchange);
    }
    pthread_mutex_unlock(&exchange->lock);
    return went;
}

// A client whose turn it is has to send its request in time, and cannot any more once it closed its side. The library
// alone would wait for such a one as long as for any other.
static void look_for_stuck(gv_http_server *server, peer *client, uint64_t now)
{
    int unread = 0;
    bool half_closed = is_closed(client->socket) && ioctl(client->socket, FIONREAD, &unread) == 0 && !unread;
    client->hangups = half_closed ? client->hangups + 1 : 0;
    bool slow = now - client->receiving_since_ms > server->settings.receive_seconds * UINT64_C(1000);
    if (!slow && client->hangups < MOST_HANGUPS)
        return;
    client->cut = true;
    if (slow)
        atomic_fetch_add(&server->slow_clients, 1);
    shutdown(client->socket, SHUT_RDWR);
}

static void *watch(void *argument)
{
    gv_http_server *server = argument;
    pthread_mutex_lock(&server->lock);
    while (server->watching) {
        uint64_t now = now_ms();
        bool went = false;
        for (peer *client = server->clients; client; client = client->next) {
            if (!client->receiving_since_ms)
                went |= look_for_gone(server, client);
            else if (!client->cut)
                look_for_stuck(server, client, now);
        }
        if (went && server->settings.poke) {
            pthread_mutex_unlock(&server->lock);
            server->settings.poke(server->settings.context);
            pthread_mutex_lock(&server->lock);
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += WATCH_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (server->watching)
            pthread_cond_timedwait(&server->woken, &server->lock, &until);
    }
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

// ---- Start and stop -----------------------------------------------------------------------------------------------

static gv_status open_socket(const gv_http_settings *settings, int *listener, uint16_t *port, gv_error *error)
{
    char service[8];
    snprintf(service, sizeof service, "%u", settings->port);
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *address = NULL;
    if (getaddrinfo(settings->address, service, &hints, &address) != 0)
        return gv_fail(error, GV_ERR_USAGE, "\"%s\" is not a numeric address such as 127.0.0.1 or ::1",
                       settings->address);
    int made = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    // A restarted server must get its port back though connections of its former life still linger.
    if (made < 0 || setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) != 0 ||
        bind(made, address->ai_addr, address->ai_addrlen) != 0 || listen(made, BACKLOG) != 0 ||
        getsockname(made, (struct sockaddr *)&bound, &size) != 0) {
        gv_fail(error, GV_ERR_IO,
                "%s port %u cannot be listened on: %s; give another with --port, or 0 for any free one",
                settings->address, settings->port, strerror(errno));
        if (made >= 0)
            close(made);
        freeaddrinfo(address);
        return GV_ERR_IO;
    }
    freeaddrinfo(address);
    *port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                              : ((struct sockaddr_in *)&bound)->sin_port);
    *listener = made;
    return GV_OK;
}

static void free_server(gv_http_server *server)
{
    pthread_cond_destroy(&server->woken);
    pthread_mutex_destroy(&server->lock);
    gv_free(server);
}

gv_status gv_http_start(gv_http_server **result, const gv_http_settings *settings, gv_error *error)
{
    gv_http_server *server = gv_calloc(1, sizeof *server);
    if (!server)
        return gv_fail(error, GV_ERR_MEMORY, "the HTTP server cannot be set up: out of memory");
    server->settings = *settings;
    pthread_mutex_init(&server->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&server->woken, &monotonic);
    pthread_condattr_destroy(&monotonic);

    int listener = -1;
    gv_status status = open_socket(settings, &listener, &server->port, error);
    if (status != GV_OK) {
        free_server(server);
        return status;
    }
    server->watching = server->listening = true;
    server->listener = MHD_INVALID_SOCKET;
    *result = server; // handlers may look for it as soon as the library runs
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC;
    server->daemon = MHD_start_daemon(
        flags, server->port, NULL, NULL, on_request, server, MHD_OPTION_LISTEN_SOCKET, listener,
        MHD_OPTION_CONNECTION_LIMIT, settings->most_connections, MHD_OPTION_CONNECTION_TIMEOUT, settings->idle_seconds,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, server, MHD_OPTION_NOTIFY_CONNECTION, on_connection, server,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(48 << 10), MHD_OPTION_END);
    if (!server->daemon) {
        close(listener);
        free_server(server);
        *result = NULL;
        return gv_fail(error, GV_ERR_IO,
                       "the HTTP library did not start on port %u; is the limit on open files too low "
                       "for %u connections?",
                       settings->port, settings->most_connections);
    }
    if (pthread_create(&server->watcher, NULL, watch, server) != 0) {
        MHD_stop_daemon(server->daemon);
        free_server(server);
        *result = NULL;
        return gv_fail(error, GV_ERR_MEMORY, "the HTTP server's watching thread could not be started");
    }
    return GV_OK;
}

uint16_t gv_http_port(const gv_http_server *server)
{
    return server->port;
}

// The library's thread may still look at the socket, so that it is only closed when that has ended; until then it is
// made to refuse.
static void stop_listening(gv_http_server *server)
{
    pthread_mutex_lock(&server->lock);
    bool first = server->listening;
    server->listening = false;
    pthread_mutex_unlock(&server->lock);
    if (!first)
        return;
    MHD_socket listener = MHD_quiesce_daemon(server->daemon);
    if (listener == MHD_INVALID_SOCKET)
        return;
    shutdown(listener, SHUT_RDWR);
    pthread_mutex_lock(&server->lock);
    server->listener = listener;
    pthread_mutex_unlock(&server->lock);
}

void gv_http_drain(gv_http_server *server)
{
    atomic_store(&server->draining, true);
    for (size_t i = 0; i < server->settings.route_count; i++) {
        if (server->settings.routes[i].while_draining)
            return;
    }
    stop_listening(server);
}

size_t gv_http_active(gv_http_server *server)
{
    return atomic_load(&server->active);
}

gv_http_counts gv_http_count(gv_http_server *server)
{
    return (gv_http_counts){
        .requests = atomic_load(&server->requests),
        .refused = atomic_load(&server->refused),
        .clients_gone = atomic_load(&server->clients_gone),
        .slow_clients = atomic_load(&server->slow_clients),
        .connections = atomic_load(&server->connections),
        .bytes_of_bodies = atomic_load(&server->bytes_of_bodies),
    };
}

void gv_http_close(gv_http_server *server)
{
    atomic_store(&server->draining, true);
    atomic_store(&server->stopping, true);
    stop_listening(server);
    pthread_mutex_lock(&server->lock);
    server->watching = false;
    pthread_cond_signal(&server->woken);
    // The library must not be stopped with a connection suspended, and after `stopping` none is suspended anew.
    for (peer *client = server->clients; client; client = client->next) {
        if (!client->exchange)
            continue;
        pthread_mutex_lock(&client->exchange->lock);
        wake(client->exchange);
        pthread_mutex_unlock(&client->exchange->lock);
    }
    pthread_mutex_unlock(&server->lock);
    pthread_join(server->watcher, NULL);
    MHD_stop_daemon(server->daemon);
    if (server->listener != MHD_INVALID_SOCKET)
        close(server->listener);
}

void gv_http_free(gv_http_server *server)
{
    free_server(server);
}
