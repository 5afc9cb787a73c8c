#include "stress/client.h"

#include "base/memory.h"
#include "report/format.h"
#include "stress/curl.h"
#include "stress/reply.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MOST_HEADER_BYTES = 64 << 10, // of an answer; no honest server comes near
    BODY_SNIPPET = 300,           // kept of an answer that is no 200, for the message
    RECEIVE_BUFFER = 8 << 10,     // a connection's; 2,000 of the default size would be 32 MiB
    CONNECT_TIMEOUT_MS = 20000,
    EVENTS = 256,
};

// An easy handle with what belongs to the request that it is carrying. Kept and used again.
typedef struct gv_transfer {
    gv_client *client;
    CURL *easy;
    struct curl_slist *headers;
    gv_request *request; // NULL while idle
    size_t header_bytes, body_bytes;
    bool too_large, stopped;
    uint64_t started_ns, first_byte_ns;
    char snippet[BODY_SNIPPET + 1];
    size_t snippet_length;
    char message[CURL_ERROR_SIZE];
    struct gv_transfer *next; // in the list of idle or of all
    struct gv_transfer *all_next;
} gv_transfer;

struct gv_client {
    gv_client_options options;
    char *url, *authorization;
    CURLM *multi;
    struct curl_slist *resolved; // "host:port:address", so that libcurl starts no resolver
    int epoll;
    uint64_t timer_ns; // when libcurl wants to be called; UINT64_MAX: not
    gv_transfer *all, *idle;
    size_t running;
    bool cancelling;
};

// ---- Callbacks of libcurl -----------------------------------------------------------------------------------------

static int on_socket(CURL *easy, curl_socket_t socket, int what, void *context, void *known)
{
    gv_client *client = context;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(client->epoll, EPOLL_CTL_DEL, socket, NULL);
        return 0;
    }
    struct epoll_event event = {.data.fd = socket};
    event.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    if (epoll_ctl(client->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, socket, &event) != 0) {
        // A number that was closed and given out again before libcurl told of it.
        int other = errno == EEXIST ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
        if (epoll_ctl(client->epoll, other, socket, &event) != 0)
            return -1;
    }
    if (!known)
        gv_curl.multi_assign(client->multi, socket, client);
    return 0;
}

static int on_timer(CURLM *multi, long milliseconds, void *context)
{
    gv_client *client = context;
    client->timer_ns = milliseconds < 0 ? UINT64_MAX : gv_monotonic_ns() + (uint64_t)milliseconds * 1000000u;
    return 0;
}

static size_t on_header(char *bytes, size_t size, size_t count, void *context)
{
    gv_transfer *transfer = context;
    size_t length = size * count;
    transfer->header_bytes += length;
    if (transfer->header_bytes > MOST_HEADER_BYTES) {
        transfer->too_large = true;
        return 0;
    }
    return length;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *context)
{
    gv_transfer *transfer = context;
    gv_request *request = transfer->request;
    size_t length = size * count;
    if (!transfer->first_byte_ns)
        transfer->first_byte_ns = gv_monotonic_ns();
    if (length > transfer->client->options.most_bytes - transfer->body_bytes) {
        transfer->too_large = true;
        return 0;
    }
    transfer->body_bytes += length;
    size_t room = BODY_SNIPPET - transfer->snippet_length;
    size_t kept = length < room ? length : room;
    memcpy(transfer->snippet + transfer->snippet_length, bytes, kept);
    transfer->snippet_length += kept;
    long status = 0;
    gv_curl.easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200 && !transfer->client->cancelling && !request->on_data(request, bytes, length)) {
        transfer->stopped = true;
        return 0;
    }
    return length;
}

// ---- How a request ended ------------------------------------------------------------------------------------------

static void describe(gv_outcome *outcome, gv_reason reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void describe(gv_outcome *outcome, gv_reason reason, const char *format, ...)
{
    char raw[640];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    gv_string safe = {0};
    gv_string_add_safe(&safe, raw);
    outcome->reason = reason;
    snprintf(outcome->detail, sizeof outcome->detail, "%s", gv_string_text(&safe));
    gv_utf8_trim(outcome->detail);
    gv_string_free(&safe);
}

#if LIBCURL_VERSION_NUM < 0x080600
#define CURLE_TOO_LARGE ((CURLcode)100)
#endif

static void describe_error(gv_transfer *transfer, CURLcode code, gv_outcome *outcome)
{
    const char *message = transfer->message[0] ? transfer->message : gv_curl.easy_strerror(code);
    long system = 0;
    gv_curl.easy_getinfo(transfer->easy, CURLINFO_OS_ERRNO, &system);
    switch ((int)code) {
    case CURLE_COULDNT_RESOLVE_HOST: describe(outcome, GV_REASON_UNREACHABLE, "%s", message); break;
    case CURLE_COULDNT_CONNECT:
        if (system == EMFILE || system == ENFILE)
            describe(outcome, GV_REASON_OWN, "%s; raise the limit of open files (`ulimit -n`)", strerror((int)system));
        else
            describe(outcome, system == ECONNREFUSED ? GV_REASON_REFUSED : GV_REASON_UNREACHABLE, "%s", message);
        break;
    case CURLE_OPERATION_TIMEDOUT:
        describe(outcome, GV_REASON_TIMEOUT, "%s after %.1f s (--timeout)",
                 transfer->first_byte_ns ? "the answer was not whole" : "no byte of an answer",
                 (double)transfer->client->options.timeout_ms / 1000);
        break;
    case CURLE_GOT_NOTHING:
        describe(outcome, GV_REASON_RESET, "the server closed the connection without an answer");
        break;
    case CURLE_SEND_ERROR: describe(outcome, GV_REASON_RESET, "%s", message); break;
    case CURLE_PARTIAL_FILE: describe(outcome, GV_REASON_CUT, "%s", message); break;
    case CURLE_RECV_ERROR:
        describe(outcome, system == ECONNRESET || system == EPIPE ? GV_REASON_RESET : GV_REASON_HTTP_PROTOCOL, "%s",
                 message);
        break;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE: describe(outcome, GV_REASON_TLS, "%s", message); break;
    case CURLE_OUT_OF_MEMORY:
        // libcurl's word for a header line of more than 100 KiB too; later ones have a code of its own for that.
        if (transfer->first_byte_ns)
            describe(outcome, GV_REASON_OWN, "out of memory");
        else
            describe(outcome, GV_REASON_TOO_LARGE, "a line of the headers is too long");
        break;
    case CURLE_TOO_LARGE: describe(outcome, GV_REASON_TOO_LARGE, "a line of the headers is too long"); break;
    default: describe(outcome, GV_REASON_HTTP_PROTOCOL, "%s", message); break;
    }
}

static void describe_status(gv_transfer *transfer, gv_outcome *outcome)
{
    long status = outcome->http_status;
    char *target = NULL;
    if (status >= 300 && status < 400) {
        gv_curl.easy_getinfo(transfer->easy, CURLINFO_REDIRECT_URL, &target);
        describe(outcome, GV_REASON_REDIRECT, "status %ld to %.160s; give that as --base-url if it is meant", status,
                 target ? target : "nowhere");
        return;
    }
    gv_reason reason = status == 401 || status == 403 ? GV_REASON_UNAUTHORISED
                       : status == 429                ? GV_REASON_RATE_LIMITED
                                                      : GV_REASON_HTTP_STATUS;
    transfer->snippet[transfer->snippet_length] = '\0';
    describe(outcome, reason, "status %ld: %s", status,
             transfer->snippet_length ? transfer->snippet : "(without a text)");
}

static void finish(gv_transfer *transfer, CURLcode code, bool interrupted)
{
    gv_client *client = transfer->client;
    gv_request *request = transfer->request;
    gv_outcome outcome = {.reason = GV_REASON_COUNT,
                          .started_ns = transfer->started_ns,
                          .first_byte_ns = transfer->first_byte_ns,
                          .ended_ns = gv_monotonic_ns()};
    char *type = NULL;
    gv_curl.easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &outcome.http_status);
    if (gv_curl.easy_getinfo(transfer->easy, CURLINFO_CONTENT_TYPE, &type) == CURLE_OK && type)
        snprintf(outcome.content_type, sizeof outcome.content_type, "%.63s", type);

    if (interrupted)
        describe(&outcome, GV_REASON_INTERRUPTED, "the run was interrupted");
    else if (transfer->too_large)
        describe(&outcome, GV_REASON_TOO_LARGE, "the %s more than %s",
                 transfer->header_bytes > MOST_HEADER_BYTES ? "headers have" : "answer has",
                 gv_count(transfer->header_bytes > MOST_HEADER_BYTES ? MOST_HEADER_BYTES : client->options.most_bytes,
                          "byte", "bytes"));
    else if (!transfer->stopped && code != CURLE_OK)
        describe_error(transfer, code, &outcome);
    else if (outcome.http_status != 200)
        describe_status(transfer, &outcome);

    gv_curl.multi_remove_handle(client->multi, transfer->easy);
    transfer->request = NULL;
    transfer->next = client->idle;
    client->idle = transfer;
    client->running--;
    request->transfer = NULL;
    request->on_end(request, &outcome);
}

// ---- Requests -----------------------------------------------------------------------------------------------------

static gv_transfer *new_transfer(gv_client *client)
{
    gv_transfer *transfer = gv_calloc(1, sizeof *transfer);
    if (!transfer || !(transfer->easy = gv_curl.easy_init())) {
        gv_free(transfer);
        return NULL;
    }
    CURL *easy = transfer->easy;
    transfer->client = client;
    bool ok = true;
#define SET(option, value) ok &= gv_curl.easy_setopt(easy, option, value) == CURLE_OK
    SET(CURLOPT_URL, client->url);
    SET(CURLOPT_POST, 1L);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_BUFFERSIZE, (long)RECEIVE_BUFFER);
    SET(CURLOPT_TCP_NODELAY, 1L);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
    SET(CURLOPT_TIMEOUT_MS, (long)client->options.timeout_ms);
    SET(CURLOPT_RESOLVE, client->resolved);
    SET(CURLOPT_USERAGENT, "gravel/" GRAVEL_VERSION);
    SET(CURLOPT_ERRORBUFFER, transfer->message);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, transfer);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, transfer);
    SET(CURLOPT_PRIVATE, transfer);
    // As the curl command does: libcurl by itself knows only the system's certificates.
    const char *certificates = getenv("CURL_CA_BUNDLE");
    if (!certificates || !certificates[0])
        certificates = getenv("SSL_CERT_FILE");
    if (certificates && certificates[0])
        SET(CURLOPT_CAINFO, certificates);
#undef SET
    if (!ok) {
        gv_curl.easy_cleanup(easy);
        gv_free(transfer);
        return NULL;
    }
    transfer->all_next = client->all;
    client->all = transfer;
    return transfer;
}

// The headers differ from request to request by its id alone; the list is made anew, since libcurl keeps a pointer.
static bool set_headers(gv_transfer *transfer, const char *id)
{
    const gv_client *client = transfer->client;
    char line[128];
    snprintf(line, sizeof line, "X-Request-Id: %s", id);
    const char *const lines[] = {"Content-Type: application/json",
                                 client->options.stream ? "Accept: text/event-stream" : "Accept: application/json",
                                 "Expect:", line, client->authorization};
    struct curl_slist *list = NULL;
    for (size_t i = 0; i < 5 && lines[i]; i++) {
        struct curl_slist *longer = gv_curl.slist_append(list, lines[i]);
        if (!longer) {
            gv_curl.slist_free_all(list);
            return false;
        }
        list = longer;
    }
    gv_curl.slist_free_all(transfer->headers);
    transfer->headers = list;
    return gv_curl.easy_setopt(transfer->easy, CURLOPT_HTTPHEADER, list) == CURLE_OK;
}

bool gv_client_start(gv_client *client, gv_request *request, const char *body, size_t length)
{
    gv_transfer *transfer = client->idle;
    if (transfer)
        client->idle = transfer->next;
    else if (client->running < client->options.most_requests)
        transfer = new_transfer(client);
    if (!transfer)
        return false;
    transfer->request = request;
    transfer->header_bytes = transfer->body_bytes = transfer->snippet_length = 0;
    transfer->too_large = transfer->stopped = false;
    transfer->message[0] = '\0';
    transfer->started_ns = gv_monotonic_ns();
    transfer->first_byte_ns = 0;
    request->transfer = transfer;
    bool ok = set_headers(transfer, request->id) &&
              gv_curl.easy_setopt(transfer->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)length) == CURLE_OK &&
              gv_curl.easy_setopt(transfer->easy, CURLOPT_POSTFIELDS, body) == CURLE_OK &&
              gv_curl.multi_add_handle(client->multi, transfer->easy) == CURLM_OK;
    if (!ok) {
        transfer->request = NULL;
        request->transfer = NULL;
        transfer->next = client->idle;
        client->idle = transfer;
        return false;
    }
    client->running++;
    return true;
}

// ---- The loop -----------------------------------------------------------------------------------------------------

static void collect(gv_client *client)
{
    CURLMsg *message;
    for (int left; (message = gv_curl.multi_info_read(client->multi, &left));) {
        if (message->msg != CURLMSG_DONE)
            continue;
        // The message is gone once its handle is removed.
        CURLcode code = message->data.result;
        gv_transfer *transfer = NULL;
        gv_curl.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&transfer);
        finish(transfer, code, false);
    }
}

bool gv_client_poll(gv_client *client, uint64_t deadline_ns)
{
    struct epoll_event events[EVENTS];
    uint64_t until = deadline_ns < client->timer_ns ? deadline_ns : client->timer_ns;
    uint64_t now = gv_monotonic_ns();
    int wait = -1;
    if (until != UINT64_MAX) {
        // Rounded up: a wait that ends too early would spin.
        uint64_t milliseconds = until <= now ? 0 : (until - now + 999999) / 1000000;
        wait = milliseconds > 60000 ? 60000 : (int)milliseconds;
    }
    int count = epoll_wait(client->epoll, events, EVENTS, wait);
    if (count < 0 && errno != EINTR)
        return false;
    int running;
    for (int i = 0; i < count; i++) {
        unsigned had = events[i].events;
        int what = (had & EPOLLIN ? CURL_CSELECT_IN : 0) | (had & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                   (had & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        gv_curl.multi_socket_action(client->multi, events[i].data.fd, what, &running);
    }
    if (client->timer_ns <= gv_monotonic_ns()) {
        client->timer_ns = UINT64_MAX;
        gv_curl.multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    collect(client);
    return true;
}

size_t gv_client_running(const gv_client *client)
{
    return client->running;
}

void gv_client_cancel_all(gv_client *client)
{
    client->cancelling = true;
    for (gv_transfer *transfer = client->all; transfer; transfer = transfer->all_next) {
        if (transfer->request)
            finish(transfer, CURLE_OK, true);
    }
    client->cancelling = false;
}

// ---- Opening ------------------------------------------------------------------------------------------------------

// Splits off what the URL has, by libcurl's own parser.
static gv_status part_of(CURLU *url, CURLUPart part, unsigned flags, char **out, gv_error *error)
{
    char *text = NULL;
    *out = NULL;
    CURLUcode code = gv_curl.url_get(url, part, &text, flags);
    if (code != CURLUE_OK)
        return code == CURLUE_OUT_OF_MEMORY ? gv_fail(error, GV_ERR_MEMORY, "out of memory") : GV_OK;
    *out = gv_strdup(text);
    gv_curl.free(text);
    return *out ? GV_OK : gv_fail(error, GV_ERR_MEMORY, "out of memory");
}

gv_status gv_client_url(const char *base, char **url, gv_error *error)
{
    *url = NULL;
    gv_status status = gv_curl_load(error);
    if (status != GV_OK)
        return status;
    CURLU *parsed = gv_curl.url();
    char *scheme = NULL, *path = NULL, *user = NULL, *password = NULL, *query = NULL;
    if (!parsed)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory");
    // A user's name and password are refused without the URL in the message, so that they reach no log.
    if (strncasecmp(base, "http://", 7) != 0 && strncasecmp(base, "https://", 8) != 0)
        status = gv_fail(error, GV_ERR_USAGE,
                         "the base URL must begin with http:// or https://, as in "
                         "http://127.0.0.1:8000/v1");
    else if (gv_curl.url_set(parsed, CURLUPART_URL, base, 0) != CURLUE_OK)
        status = gv_fail(error, GV_ERR_USAGE, "the base URL cannot be read; it looks like http://127.0.0.1:8000/v1");
    if (status == GV_OK)
        status = part_of(parsed, CURLUPART_USER, 0, &user, error);
    if (status == GV_OK)
        status = part_of(parsed, CURLUPART_PASSWORD, 0, &password, error);
    if (status == GV_OK)
        status = part_of(parsed, CURLUPART_QUERY, 0, &query, error);
    if (status == GV_OK)
        status = part_of(parsed, CURLUPART_PATH, 0, &path, error);
    if (status == GV_OK && (user || password))
        status = gv_fail(error, GV_ERR_USAGE,
                         "the base URL holds a user or a password; put a bearer key into the "
                         "environment instead (GRAVEL_API_KEY)");
    if (status == GV_OK && query)
        status = gv_fail(error, GV_ERR_USAGE, "the base URL has a query (?...); leave it out");
    if (status == GV_OK) {
        size_t length = strcspn(base, "#");
        while (length && base[length - 1] == '/')
            length--;
        bool bare = !path || strcmp(path, "/") == 0;
        gv_string text = {0};
        gv_string_add_bytes(&text, base, length);
        gv_string_add(&text, "%s/chat/completions", bare ? "/v1" : "");
        *url = text.failed ? NULL : gv_strdup(gv_string_text(&text));
        gv_string_free(&text);
        if (!*url)
            status = gv_fail(error, GV_ERR_MEMORY, "out of memory");
    }
    gv_free(scheme);
    gv_free(path);
    gv_free(user);
    gv_free(password);
    gv_free(query);
    gv_curl.url_cleanup(parsed);
    return status;
}

gv_status gv_client_check_key(const char *key, gv_error *error)
{
    for (const char *at = key; *at; at++) {
        if (*at <= 0x20 || *at >= 0x7f || *at == '"' || *at == '\\')
            return gv_fail(error, GV_ERR_USAGE,
                           "the API key holds a blank, a quote or another character that no key "
                           "has; look at how the variable is set");
    }
    return GV_OK;
}

// Looks the host up once: with thousands of connections at the start libcurl would start as many resolvers.
static gv_status resolve(gv_client *client, gv_error *error)
{
    CURLU *parsed = gv_curl.url();
    char *host = NULL, *port = NULL;
    gv_status status = parsed ? GV_OK : gv_fail(error, GV_ERR_MEMORY, "out of memory");
    if (status == GV_OK && gv_curl.url_set(parsed, CURLUPART_URL, client->url, 0) != CURLUE_OK)
        status = gv_fail(error, GV_ERR_USAGE, "the URL cannot be read");
    if (status == GV_OK)
        status = part_of(parsed, CURLUPART_HOST, 0, &host, error);
    if (status == GV_OK)
        status = part_of(parsed, CURLUPART_PORT, CURLU_DEFAULT_PORT, &port, error);
    gv_curl.url_cleanup(parsed);
    // An address in brackets needs no look-up.
    if (status == GV_OK && host && port && host[0] != '[') {
        struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found = NULL;
        int code = getaddrinfo(host, port, &wanted, &found);
        gv_string line = {0};
        gv_string_add(&line, "%s:%s:", host, port);
        size_t addresses = 0;
        for (struct addrinfo *item = found; item; item = item->ai_next) {
            char address[NI_MAXHOST];
            if (getnameinfo(item->ai_addr, item->ai_addrlen, address, sizeof address, NULL, 0, NI_NUMERICHOST) != 0)
                continue;
            bool six = item->ai_family == AF_INET6;
            gv_string_add(&line, "%s%s%s%s", addresses++ ? "," : "", six ? "[" : "", address, six ? "]" : "");
        }
        if (code == 0)
            freeaddrinfo(found);
        if (code != 0 || addresses == 0)
            status = gv_fail(error, GV_ERR_IO, "the host %s cannot be found: %s; look at --base-url", host,
                             code ? gai_strerror(code) : "it has no address");
        else if (line.failed || !(client->resolved = gv_curl.slist_append(NULL, line.text)))
            status = gv_fail(error, GV_ERR_MEMORY, "out of memory");
        gv_string_free(&line);
    }
    gv_free(host);
    gv_free(port);
    return status;
}

// Each request may need a descriptor; some more are for files.
static gv_status raise_limit(size_t requests, gv_error *error)
{
    struct rlimit limit;
    rlim_t needed = (rlim_t)requests + 64;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
        return GV_OK;
    if (limit.rlim_max < needed)
        return gv_fail(error, GV_ERR_IO,
                       "%zu requests at a time need %llu open files, and %llu are allowed; raise the "
                       "limit (`ulimit -n`) or lower --concurrency",
                       requests, (unsigned long long)needed, (unsigned long long)limit.rlim_max);
    limit.rlim_cur = needed;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0
               ? GV_OK
               : gv_fail(error, GV_ERR_IO, "the limit of open files cannot be raised: %s", strerror(errno));
}

gv_status gv_client_open(gv_client **out, const gv_client_options *options, gv_error *error)
{
    *out = NULL;
    gv_status status = gv_curl_load(error);
    if (status == GV_OK)
        status = raise_limit(options->most_requests, error);
    if (status != GV_OK)
        return status;
    gv_client *client = gv_calloc(1, sizeof *client);
    if (!client)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory");
    client->options = *options;
    client->timer_ns = UINT64_MAX;
    client->epoll = epoll_create1(EPOLL_CLOEXEC);
    client->url = gv_strdup(options->url);
    client->multi = gv_curl.multi_init();
    if (client->epoll < 0)
        status = gv_fail(error, GV_ERR_IO, "epoll_create1: %s", strerror(errno));
    else if (!client->url || !client->multi)
        status = gv_fail(error, GV_ERR_MEMORY, "out of memory");
    if (status == GV_OK && options->key) {
        gv_string line = {0};
        gv_string_add(&line, "Authorization: Bearer %s", options->key);
        client->authorization = line.text;
        if (line.failed)
            status = gv_fail(error, GV_ERR_MEMORY, "out of memory");
    }
    client->options.key = NULL;
    client->options.url = client->url;
    if (status == GV_OK)
        status = resolve(client, error);
    if (status == GV_OK) {
        gv_curl.multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
        gv_curl.multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
        gv_curl.multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, on_timer);
        gv_curl.multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
        gv_curl.multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, (long)options->most_requests + 8);
        *out = client;
        return GV_OK;
    }
    gv_client_close(client);
    return status;
}

void gv_client_close(gv_client *client)
{
    if (!client)
        return;
    for (gv_transfer *transfer = client->all, *next; transfer; transfer = next) {
        next = transfer->all_next;
        if (transfer->request)
            gv_curl.multi_remove_handle(client->multi, transfer->easy);
        gv_curl.easy_cleanup(transfer->easy);
        gv_curl.slist_free_all(transfer->headers);
        gv_free(transfer);
    }
    if (client->multi)
        gv_curl.multi_cleanup(client->multi);
    gv_curl.slist_free_all(client->resolved);
    if (client->epoll >= 0)
        close(client->epoll);
    if (client->authorization) {
        explicit_bzero(client->authorization, strlen(client->authorization));
        gv_free(client->authorization);
    }
    gv_free(client->url);
    gv_free(client);
}
