// The HTTP side with clients that behave and clients that do not.
#include "specimen/server/http.h"
#include "specimen/server/loop.h"

#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "specimen/server/test_client.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { MOST_BODY = 1000, MOST_KEPT = 512 };

#define GET(path)  "GET " path " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
#define POST(path) "POST " path " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"

// What the handlers keep, for the test to answer when it likes.
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    gv_http_exchange *kept[MOST_KEPT];
    size_t count;
    atomic_int pokes;
} board = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void on_echo(gv_http_exchange *exchange, void *context)
{
    size_t length = 0;
    const char *body = gv_http_body(exchange, &length);
    const char *word = gv_http_query(exchange, "word");
    char text[MOST_BODY + 200];
    snprintf(text, sizeof text, "path=%s word=%s body=%s", gv_http_path(exchange), word ? word : "-", body);
    assert_int_equal(strlen(body), length);
    gv_http_reply_text(exchange, 200, "text/plain", text);
}

static void on_keep(gv_http_exchange *exchange, void *context)
{
    pthread_mutex_lock(&board.lock);
    board.kept[board.count++] = exchange;
    pthread_cond_broadcast(&board.changed);
    pthread_mutex_unlock(&board.lock);
}

// Waits for the n-th kept exchange.
static gv_http_exchange *kept(size_t n)
{
    pthread_mutex_lock(&board.lock);
    while (board.count <= n)
        pthread_cond_wait(&board.changed, &board.lock);
    gv_http_exchange *exchange = board.kept[n];
    pthread_mutex_unlock(&board.lock);
    return exchange;
}

static bool is_kept(size_t n)
{
    pthread_mutex_lock(&board.lock);
    bool is = board.count > n;
    pthread_mutex_unlock(&board.lock);
    return is;
}

static void on_poke(void *context)
{
    atomic_fetch_add(&board.pokes, 1);
}

static void on_fail(gv_http_exchange *exchange, void *context)
{
    gv_http_reply(exchange, 200, "text/plain", NULL, 5);
}

static const gv_http_route routes[] = {
    {.method = "GET", .path = "/echo", .handle = on_echo},    {.method = "POST", .path = "/echo", .handle = on_echo},
    {.method = "GET", .path = "/rooms/*", .handle = on_echo}, {.method = "GET", .path = "/keep", .handle = on_keep},
    {.method = "GET", .path = "/fail", .handle = on_fail},
};

static gv_http_settings settings(void)
{
    return (gv_http_settings){
        .address = "127.0.0.1",
        .routes = routes,
        .route_count = sizeof routes / sizeof *routes,
        .poke = on_poke,
        .most_connections = 600,
        .idle_seconds = 60,
        .receive_seconds = 60,
        .most_body = MOST_BODY,
        .most_bytes_of_bodies = 4 * MOST_BODY,
    };
}

static gv_http_server *server;
static unsigned port;

static void start_with(const gv_http_settings *wanted)
{
    gv_error error = {0};
    if (gv_http_start(&server, wanted, &error) != GV_OK)
        fail_msg("%s", error.text);
    port = gv_http_port(server);
    board.count = 0;
    atomic_store(&board.pokes, 0);
}

static int start(void **state)
{
    gv_http_settings plain = settings();
    start_with(&plain);
    return 0;
}

static int stop(void **state)
{
    gv_http_close(server);
    gv_http_free(server);
    return 0;
}

// For loops that wait for something to happen: a pause, and an end where it does not.
static void keep_waiting(int turn)
{
    assert_in_range(turn, 0, 12000);
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static void wait_until_idle(void)
{
    for (int turn = 0; gv_http_active(server); turn++)
        keep_waiting(turn);
}

static void expect(const char *request, int status, const char *words)
{
    char *answer = client_ask(port, request);
    if (client_status(answer) != status || !strstr(answer, words))
        fail_msg("wanted %d with \"%s\", got: %s", status, words, answer);
    gv_free(answer);
}

// ---- Requests -----------------------------------------------------------------------------------------------------

static void routes_are_found(void **state)
{
    expect(GET("/echo?word=mill"), 200, "path=/echo word=mill body=");
    expect(GET("/rooms/17"), 200, "path=/rooms/17");
    expect(POST("/echo") "Content-Length: 5\r\n\r\nhello", 200, "body=hello");
    expect(POST("/echo") "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", 200, "body=hello");
    expect(GET("/nowhere"), 404, "\"code\":\"not_found\"");
    expect(POST("/keep") "Content-Length: 0\r\n\r\n", 405, "Allow: GET");
    expect("DELETE /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405, "Allow: GET, POST");
    expect("HEAD /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200, "Content-Length");
    expect(GET("/fail"), 500, "out of memory");
    assert_int_equal(gv_http_count(server).refused, 3);
}

static void one_connection_serves_many_requests(void **state)
{
    int client = client_connect(port);
    for (int i = 0; i < 50; i++) {
        client_send(client, "GET /echo?word=again HTTP/1.1\r\nHost: x\r\n\r\n");
        char *answer = client_read(client, "body=");
        assert_int_equal(client_status(answer), 200);
        gv_free(answer);
    }
    close(client);
}

static void long_bodies_are_refused(void **state)
{
    static char request[100000];
    int head = snprintf(request, sizeof request, POST("/echo") "Content-Length: %d\r\n\r\n", MOST_BODY);
    memset(request + head, 'a', MOST_BODY);
    request[head + MOST_BODY] = 0;
    expect(request, 200, "body=aaa");
    // One byte more; then so much more that it is not even read; then without a length.
    head = snprintf(request, sizeof request, POST("/echo") "Content-Length: %d\r\n\r\n", MOST_BODY + 1);
    memset(request + head, 'a', MOST_BODY + 1);
    request[head + MOST_BODY + 1] = 0;
    expect(request, 413, "request_too_large");
    expect(POST("/echo") "Content-Length: 99999999999\r\n\r\n", 413, "longer than 1000 bytes");
    head = snprintf(request, sizeof request, POST("/echo") "Transfer-Encoding: chunked\r\n\r\n%x\r\n", 2 * MOST_BODY);
    memset(request + head, 'a', 2 * MOST_BODY);
    strcpy(request + head + 2 * MOST_BODY, "\r\n0\r\n\r\n");
    expect(request, 413, "request_too_large");
    // A body without end is cut off.
    int client = client_connect(port);
    client_send(client, POST("/echo") "Transfer-Encoding: chunked\r\n\r\nfffffff\r\n");
    memset(request, 'a', sizeof request - 1);
    request[sizeof request - 1] = 0;
    for (int i = 0; i < 3; i++)
        client_send(client, request);
    gv_free(client_read(client, NULL));
    close(client);
    assert_int_equal(gv_http_count(server).bytes_of_bodies, 0);
}

// All bodies together have a limit too: many clients that never finish cannot take all memory.
static void bodies_together_are_limited(void **state)
{
    enum { FULL = 4 };
    int clients[FULL + 1];
    char half[MOST_BODY];
    memset(half, 'a', sizeof half - 1);
    half[sizeof half - 1] = 0;
    for (int i = 0; i <= FULL; i++) {
        char head[200];
        snprintf(head, sizeof head, POST("/echo") "Content-Length: %d\r\n\r\n", MOST_BODY);
        clients[i] = client_connect(port);
        client_send(clients[i], head);
        client_send(clients[i], half);
        // The first ones are held to the last byte, and leave no place for the one after them.
        for (int turn = 0; i < FULL && gv_http_count(server).bytes_of_bodies < (size_t)(i + 1) * (MOST_BODY - 1);
             turn++)
            keep_waiting(turn);
    }
    for (int i = FULL; i >= 0; i--) {
        client_send(clients[i], "a");
        char *answer = client_read(clients[i], NULL);
        assert_int_equal(client_status(answer), i == FULL ? 503 : 200);
        assert_int_equal(strstr(answer, "server_busy") != NULL, i == FULL);
        gv_free(answer);
        close(clients[i]);
    }
    wait_until_idle();
    assert_int_equal(gv_http_count(server).bytes_of_bodies, 0);
}

// Whatever comes, the server answers with an error or hangs up, and serves the next client.
static void malformed_requests_are_survived(void **state)
{
    static const char *const requests[] = {
        "\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "GET /echo\r\n\r\n",
        "GET /echo HTTP/9.9\r\n\r\n",
        "GET /echo HTTP/1.1\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS client hello\r\n\r\n",
        "GET /echo HTTP/1.1\r\nHost x\r\n\r\n",
        "GET /echo HTTP/1.1\r\n: x\r\n\r\n",
        POST("/echo") "Content-Length: -1\r\n\r\n",
        POST("/echo") "Content-Length: abc\r\n\r\n",
        POST("/echo") "Content-Length: 99999999999999999999999999\r\n\r\n",
        POST("/echo") "Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        POST("/echo") "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nabc",
        "GET /%00%ff%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET /echo?word=%00 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        int client = client_connect(port);
        client_send(client, requests[i]);
        shutdown(client, SHUT_WR);
        gv_free(client_read(client, NULL));
        close(client);
    }
    // Headers without end.
    int client = client_connect(port);
    client_send(client, "GET /echo HTTP/1.1\r\nHost: x\r\n");
    char line[1200];
    memset(line, 'h', sizeof line);
    memcpy(line, "A: ", 3);
    strcpy(line + sizeof line - 3, "\r\n");
    for (int i = 0; i < 200; i++)
        client_send(client, line);
    gv_free(client_read(client, NULL));
    close(client);
    expect(GET("/echo"), 200, "path=/echo");
}

// ---- Late answers -------------------------------------------------------------------------------------------------

static void an_answer_may_come_later(void **state)
{
    int client = client_connect(port);
    client_send(client, GET("/keep"));
    gv_http_exchange *exchange = kept(0);
    assert_int_equal(gv_http_active(server), 1);
    // Others are served meanwhile.
    expect(GET("/echo"), 200, "path=/echo");
    gv_http_reply_text(exchange, 200, "text/plain", "at last");
    char *answer = client_read(client, NULL);
    assert_non_null(strstr(answer, "at last"));
    gv_free(answer);
    close(client);
    wait_until_idle();
}

static void streams_come_piece_by_piece(void **state)
{
    int client = client_connect(port);
    client_send(client, GET("/keep"));
    gv_http_exchange *exchange = kept(0);
    gv_http_stream_begin(exchange, 200, "text/event-stream");
    char *answer = client_read(client, "\r\n\r\n");
    assert_non_null(strstr(answer, "Transfer-Encoding: chunked"));
    assert_non_null(strstr(answer, "Cache-Control: no-cache"));
    gv_free(answer);
    for (int i = 0; i < 20; i++) {
        char piece[32];
        snprintf(piece, sizeof piece, "piece %d.", i);
        assert_true(gv_http_stream_write(exchange, piece, strlen(piece)));
        gv_free(client_read(client, piece));
    }
    gv_http_stream_end(exchange, true);
    answer = client_read(client, NULL);
    assert_string_equal(answer, "\r\n0\r\n\r\n" + (answer[0] == '\r' ? 0 : 2));
    gv_free(answer);
    close(client);
}

// A stream that could not be finished has no proper end, so that no client takes it for whole.
static void a_broken_stream_looks_broken(void **state)
{
    int client = client_connect(port);
    client_send(client, GET("/keep"));
    gv_http_exchange *exchange = kept(0);
    gv_http_stream_begin(exchange, 200, "text/plain");
    assert_true(gv_http_stream_write(exchange, "half", 4));
    gv_free(client_read(client, "half"));
    gv_http_stream_end(exchange, false);
    char *answer = client_read(client, NULL);
    assert_null(strstr(answer, "0\r\n\r\n"));
    gv_free(answer);
    close(client);
}

static void a_full_stream_tells_when_it_is_empty(void **state)
{
    int client = client_connect(port);
    client_send(client, GET("/keep"));
    gv_http_exchange *exchange = kept(0);
    gv_http_stream_begin(exchange, 200, "text/plain");
    static char block[1 << 20];
    memset(block, 'b', sizeof block);
    size_t sent = 0;
    while (!gv_http_stream_full(exchange, 4 << 20)) {
        assert_true(gv_http_stream_write(exchange, block, sizeof block));
        sent += sizeof block;
        assert_in_range(sent, 0, 64 << 20);
    }
    int before = atomic_load(&board.pokes);
    gv_http_stream_end(exchange, true);
    char *answer = client_read(client, NULL);
    size_t count = 0;
    for (const char *at = answer; (at = strchr(at, 'b')); at++)
        count++;
    assert_in_range(count, sent, sent + 100); // the rest is of the headers and chunk sizes
    gv_free(answer);
    close(client);
    wait_until_idle();
    assert_true(atomic_load(&board.pokes) > before);
}

static void a_client_that_goes_is_noticed(void **state)
{
    int clients[2] = {client_connect(port), client_connect(port)};
    client_send(clients[0], GET("/keep"));
    gv_http_exchange *waiting = kept(0);
    client_send(clients[1], GET("/keep"));
    gv_http_exchange *streaming = kept(1);
    gv_http_stream_begin(streaming, 200, "text/plain");
    assert_true(gv_http_stream_write(streaming, "x", 1));
    assert_false(gv_http_gone(waiting) || gv_http_gone(streaming));
    close(clients[0]);
    close(clients[1]);
    for (int turn = 0; !gv_http_gone(waiting) || !gv_http_gone(streaming); turn++)
        keep_waiting(turn);
    wait_until_idle();
    // The server's threads say so a moment later.
    for (int turn = 0; !atomic_load(&board.pokes); turn++)
        keep_waiting(turn);
    // Answers to no one are harmless.
    assert_false(gv_http_stream_write(streaming, "y", 1));
    gv_http_stream_end(streaming, true);
    gv_http_reply_text(waiting, 200, "text/plain", "nobody hears this");
    assert_int_equal(gv_http_count(server).clients_gone, 2);
}

static void slow_requests_are_cut_off(void **state)
{
    stop(NULL);
    gv_http_settings impatient = settings();
    impatient.receive_seconds = 1;
    start_with(&impatient);
    // A byte now and then keeps the connection busy and never makes a request.
    int client = client_connect(port);
    client_send(client, "GET /ec");
    for (int turns = 0;; turns++) {
        struct pollfd ask = {.fd = client, .events = POLLIN};
        if (poll(&ask, 1, 100) == 1)
            break;
        client_send(client, "h");
        assert_in_range(turns, 0, 1200);
    }
    gv_free(client_read(client, NULL));
    close(client);
    assert_int_equal(gv_http_count(server).slow_clients, 1);
    // A handler may take longer than that. Where even this program was too busy to send its request in time, again.
    int turn = 0;
    do {
        client = client_connect(port);
        client_send(client, GET("/keep"));
        struct pollfd ask = {.fd = client, .events = POLLIN};
        while (!is_kept(0) && poll(&ask, 1, 10) == 0)
            ;
        if (!is_kept(0))
            close(client);
        assert_in_range(++turn, 0, 20);
    } while (!is_kept(0));
    gv_http_exchange *exchange = kept(0);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
    gv_http_reply_text(exchange, 200, "text/plain", "slow but fine");
    char *answer = client_read(client, NULL);
    assert_non_null(strstr(answer, "slow but fine"));
    gv_free(answer);
    close(client);
}

static void many_connections_wait_at_once(void **state)
{
    enum { MANY = 300 }; // with both ends in one process, well below the usual limit of 1,024 open files
    static int clients[MANY];
    for (int i = 0; i < MANY; i++) {
        clients[i] = client_connect(port);
        assert_true(clients[i] >= 0);
        client_send(clients[i], GET("/keep"));
    }
    for (int i = 0; i < MANY; i++)
        gv_http_reply_text(kept((size_t)i), 200, "text/plain", "one of many");
    for (int i = 0; i < MANY; i++) {
        char *answer = client_read(clients[i], NULL);
        assert_non_null(strstr(answer, "one of many"));
        gv_free(answer);
        close(clients[i]);
    }
    wait_until_idle();
}

// ---- Draining and closing -----------------------------------------------------------------------------------------

static void draining_finishes_what_runs(void **state)
{
    int open = client_connect(port);
    client_send(open, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    gv_free(client_read(open, "body="));
    int client = client_connect(port);
    client_send(client, GET("/keep"));
    gv_http_exchange *exchange = kept(0);
    gv_http_drain(server);
    client_send(open, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    char *answer = client_read(open, NULL);
    assert_int_equal(client_status(answer), 503);
    assert_non_null(strstr(answer, "shutting_down"));
    gv_free(answer);
    close(open);
    int late = client_connect(port);
    assert_int_equal(late, -1);
    gv_http_reply_text(exchange, 200, "text/plain", "finished");
    answer = client_read(client, NULL);
    assert_non_null(strstr(answer, "finished"));
    gv_free(answer);
    close(client);
    wait_until_idle();
}

static void closing_ends_what_is_left(void **state)
{
    int clients[3];
    for (int i = 0; i < 3; i++) {
        clients[i] = client_connect(port);
        client_send(clients[i], GET("/keep"));
        kept((size_t)i);
    }
    gv_http_stream_begin(kept(1), 200, "text/plain");
    gv_http_close(server);
    for (int i = 0; i < 3; i++) {
        char *answer = client_read(clients[i], NULL);
        assert_null(strstr(answer, "0\r\n\r\n"));
        gv_free(answer);
        close(clients[i]);
    }
    gv_http_reply_text(kept(0), 200, "text/plain", "too late");
    gv_http_stream_end(kept(1), true);
    gv_http_reply_text(kept(2), 200, "text/plain", "too late");
    gv_http_free(server);
    start(NULL);
}

static void addresses_that_cannot_be_had(void **state)
{
    gv_http_settings wrong = settings();
    gv_http_server *other = NULL;
    gv_error error = {0};
    wrong.address = "localhost.example";
    assert_int_equal(gv_http_start(&other, &wrong, &error), GV_ERR_USAGE);
    assert_non_null(strstr(error.text, "numeric"));
    wrong.address = "127.0.0.1";
    wrong.port = (uint16_t)port;
    assert_int_equal(gv_http_start(&other, &wrong, &error), GV_ERR_IO);
    assert_non_null(strstr(error.text, "--port"));
    assert_null(other);
}

// ---- The loop, against this server --------------------------------------------------------------------------------

typedef struct call_record {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    gv_loop *loop;
    gv_call *call;
    const char *method, *path, *body;
    unsigned silence_ms;
    unsigned port;
    bool later;   // the next data is not taken
    bool waiting; // for a resume
    bool begun, done;
    gv_call_end end;
    gv_text data;
} call_record;

static gv_take record_data(void *context, int status, const char *type, const void *bytes, size_t length)
{
    call_record *record = context;
    pthread_mutex_lock(&record->lock);
    gv_take take = record->later ? GV_TAKE_LATER : GV_TAKEN;
    record->waiting = record->later;
    if (take == GV_TAKEN)
        gv_text_add(&record->data, bytes, length);
    pthread_cond_broadcast(&record->changed);
    pthread_mutex_unlock(&record->lock);
    return take;
}

static void record_done(void *context, const gv_call_end *end)
{
    call_record *record = context;
    pthread_mutex_lock(&record->lock);
    record->end = *end;
    record->end.text = NULL;
    record->done = true;
    pthread_cond_broadcast(&record->changed);
    pthread_mutex_unlock(&record->lock);
}

static void begin_call(void *argument)
{
    call_record *record = argument;
    char url[100];
    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", record->port, record->path);
    gv_call_request request = {
        .method = record->method,
        .url = url,
        .body = record->body,
        .length = record->body ? strlen(record->body) : 0,
        .type = "text/plain",
        .connect_ms = 5000,
        .silence_ms = record->silence_ms,
        .data = record_data,
        .done = record_done,
        .context = record,
    };
    record->call = gv_call_begin(record->loop, &request);
    assert_non_null(record->call);
}

static void cancel_call(void *argument)
{
    call_record *record = argument;
    gv_call_cancel(record->call);
    pthread_mutex_lock(&record->lock);
    record->done = true;
    pthread_cond_broadcast(&record->changed);
    pthread_mutex_unlock(&record->lock);
}

static void resume_call(void *argument)
{
    gv_call_resume(((call_record *)argument)->call);
}

static void no_tick(void *context, uint64_t now_ms)
{
}

static call_record start_call(gv_loop *loop, const char *method, const char *path)
{
    return (call_record){.lock = PTHREAD_MUTEX_INITIALIZER,
                         .changed = PTHREAD_COND_INITIALIZER,
                         .loop = loop,
                         .method = method,
                         .path = path,
                         .port = port};
}

static void wait_done(call_record *record)
{
    pthread_mutex_lock(&record->lock);
    while (!record->done)
        pthread_cond_wait(&record->changed, &record->lock);
    pthread_mutex_unlock(&record->lock);
}

static void the_loop_makes_calls(void **state)
{
    gv_loop *loop = NULL;
    gv_error error = {0};
    assert_int_equal(gv_loop_start(&loop, no_tick, 50, NULL, &error), GV_OK);

    call_record echo = start_call(loop, "POST", "/echo?word=mill");
    echo.body = "hello";
    assert_true(gv_loop_post(loop, begin_call, &echo));
    wait_done(&echo);
    assert_true(echo.end.whole && echo.end.reached);
    assert_int_equal(echo.end.status, 200);
    gv_text_add(&echo.data, "", 1);
    assert_string_equal(echo.data.data, "path=/echo word=mill body=hello");
    gv_text_free(&echo.data);

    call_record missing = start_call(loop, "GET", "/nowhere");
    assert_true(gv_loop_post(loop, begin_call, &missing));
    wait_done(&missing);
    assert_true(missing.end.whole);
    assert_int_equal(missing.end.status, 404);
    gv_text_free(&missing.data);

    call_record silent = start_call(loop, "GET", "/keep");
    silent.silence_ms = 2000; // in which its request must have been sent
    assert_true(gv_loop_post(loop, begin_call, &silent));
    wait_done(&silent);
    assert_true(silent.end.timed_out && !silent.end.whole && !silent.end.reached);
    gv_http_reply_text(kept(0), 200, "text/plain", "too late");

    // A stream that is taken, then not, then taken again; then it breaks.
    call_record stream = start_call(loop, "GET", "/keep");
    assert_true(gv_loop_post(loop, begin_call, &stream));
    gv_http_exchange *exchange = kept(1);
    gv_http_stream_begin(exchange, 200, "text/plain");
    pthread_mutex_lock(&stream.lock);
    stream.later = true;
    pthread_mutex_unlock(&stream.lock);
    assert_true(gv_http_stream_write(exchange, "first", 5));
    pthread_mutex_lock(&stream.lock);
    while (!stream.waiting)
        pthread_cond_wait(&stream.changed, &stream.lock);
    assert_int_equal(stream.data.length, 0);
    stream.later = false;
    pthread_mutex_unlock(&stream.lock);
    assert_true(gv_loop_post(loop, resume_call, &stream));
    pthread_mutex_lock(&stream.lock);
    while (stream.data.length < 5)
        pthread_cond_wait(&stream.changed, &stream.lock);
    pthread_mutex_unlock(&stream.lock);
    gv_http_stream_end(exchange, false);
    wait_done(&stream);
    assert_true(stream.end.reached && !stream.end.whole);
    gv_text_free(&stream.data);

    // Cancelling tells the other side.
    call_record cancelled = start_call(loop, "GET", "/keep");
    assert_true(gv_loop_post(loop, begin_call, &cancelled));
    exchange = kept(2);
    assert_true(gv_loop_post(loop, cancel_call, &cancelled));
    for (int turn = 0; !gv_http_gone(exchange); turn++)
        keep_waiting(turn);
    gv_http_reply_text(exchange, 200, "text/plain", "nobody hears this");

    // Nobody listens.
    gv_http_drain(server);
    call_record refused = start_call(loop, "GET", "/echo");
    assert_true(gv_loop_post(loop, begin_call, &refused));
    wait_done(&refused);
    assert_true(!refused.end.reached && !refused.end.whole && !refused.end.timed_out);

    // Calls that are under way end with the loop.
    gv_loop_stop(loop);
}

int main(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(routes_are_found, start, stop),
        cmocka_unit_test_setup_teardown(one_connection_serves_many_requests, start, stop),
        cmocka_unit_test_setup_teardown(long_bodies_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(bodies_together_are_limited, start, stop),
        cmocka_unit_test_setup_teardown(malformed_requests_are_survived, start, stop),
        cmocka_unit_test_setup_teardown(an_answer_may_come_later, start, stop),
        cmocka_unit_test_setup_teardown(streams_come_piece_by_piece, start, stop),
        cmocka_unit_test_setup_teardown(a_broken_stream_looks_broken, start, stop),
        cmocka_unit_test_setup_teardown(a_full_stream_tells_when_it_is_empty, start, stop),
        cmocka_unit_test_setup_teardown(a_client_that_goes_is_noticed, start, stop),
        cmocka_unit_test_setup_teardown(slow_requests_are_cut_off, start, stop),
        cmocka_unit_test_setup_teardown(many_connections_wait_at_once, start, stop),
        cmocka_unit_test_setup_teardown(draining_finishes_what_runs, start, stop),
        cmocka_unit_test_setup_teardown(closing_ends_what_is_left, start, stop),
        cmocka_unit_test_setup_teardown(addresses_that_cannot_be_had, start, stop),
        cmocka_unit_test_setup_teardown(the_loop_makes_calls, start, stop),
    };
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    curl_global_cleanup();
    return result;
}
