// The loop over libcurl's multi interface.
//
// libcurl must not be called back from inside its own callbacks, so beginning, resuming and cancelling only mark a
// call, and the loop acts on the marks between two turns.
#include "specimen/server/loop.h"

#include "base/clock.h"
#include "base/memory.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef struct task {
    void (*run)(void *argument);
    void *argument;
    struct task *next;
} task;

struct gv_call {
    gv_loop *loop;
    CURL *easy;
    struct curl_slist *headers;
    char *body;
    gv_call_request request; // its strings are not kept
    uint64_t heard_ms;
    char reason[CURL_ERROR_SIZE];
    bool added, paused, resume, cancelled;
    gv_call *next, *previous;
};

struct gv_loop {
    CURLM *multi;
    pthread_t thread;
    pthread_mutex_t lock; // of the tasks
    task *first, *last;
    atomic_bool stopping, woken;
    void (*tick)(void *context, uint64_t now_ms);
    unsigned tick_ms;
    void *context;
    gv_call *calls, *last_call; // in the order of their beginnings, which is that of their requests
};

uint64_t gv_now_ms(void)
{
    return gv_monotonic_ns() / 1000000;
}

// ---- Calls --------------------------------------------------------------------------------------------------------

static size_t on_data(char *bytes, size_t size, size_t count, void *context)
{
    gv_call *call = context;
    if (call->cancelled)
        return CURL_WRITEFUNC_ERROR;
    if (size * count == 0)
        return 0; // the library says so of an empty answer, which is no data
    long status = 0;
    char *type = NULL;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(call->easy, CURLINFO_CONTENT_TYPE, &type);
    call->heard_ms = gv_now_ms();
    if (call->request.data(call->request.context, (int)status, type ? type : "", bytes, size * count) == GV_TAKEN)
        return size * count;
    call->paused = true;
    return CURL_WRITEFUNC_PAUSE;
}

static void free_call(gv_call *call)
{
    if (call->easy)
        curl_easy_cleanup(call->easy);
    curl_slist_free_all(call->headers);
    gv_free(call->body);
    gv_free(call);
}

static bool add_header(gv_call *call, const char *header)
{
    struct curl_slist *longer = curl_slist_append(call->headers, header);
    if (longer)
        call->headers = longer;
    return longer != NULL;
}

static bool set_up(gv_call *call, const gv_call_request *request)
{
    char type[128];
    snprintf(type, sizeof type, "Content-Type: %s", request->type ? request->type : "application/octet-stream");
    // Without a question before a long body: the other side is known, and a turn is lost otherwise.
    if (!add_header(call, "Expect:") || (request->body && !add_header(call, type)))
        return false;
    CURL *easy = call->easy;
    // An empty proxy keeps the environment's proxy away from servers that stand side by side.
    bool good = curl_easy_setopt(easy, CURLOPT_URL, request->url) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http") == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->headers) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->reason) == CURLE_OK;
    if (good && request->body)
        good = curl_easy_setopt(easy, CURLOPT_POST, 1L) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->length) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body) == CURLE_OK;
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)request->connect_ms);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
    return good;
}

gv_call *gv_call_begin(gv_loop *loop, const gv_call_request *request)
{
    gv_call *call = gv_calloc(1, sizeof *call);
    if (!call)
        return NULL;
    call->loop = loop;
    call->request = *request;
    call->heard_ms = gv_now_ms();
    call->easy = curl_easy_init();
    if (request->body) {
        call->body = gv_malloc(request->length + 1);
        if (call->body)
            memcpy(call->body, request->body, request->length);
    }
    if (!call->easy || (request->body && !call->body) || !set_up(call, request)) {
        free_call(call);
        return NULL;
    }
    call->previous = loop->last_call;
    if (call->previous)
        call->previous->next = call;
    else
        loop->calls = call;
    loop->last_call = call;
    curl_multi_wakeup(loop->multi);
    return call;
}

void gv_call_cancel(gv_call *call)
{
    call->cancelled = true;
    curl_multi_wakeup(call->loop->multi);
}

void gv_call_resume(gv_call *call)
{
    if (!call->paused)
        return;
    call->resume = true;
    curl_multi_wakeup(call->loop->multi);
}

static void unlink_call(gv_call *call)
{
    gv_loop *loop = call->loop;
    if (call->added)
        curl_multi_remove_handle(loop->multi, call->easy);
    if (call->previous)
        call->previous->next = call->next;
    else
        loop->calls = call->next;
    if (call->next)
        call->next->previous = call->previous;
    else
        loop->last_call = call->previous;
}

// Takes the call out and gives its last word. The word may begin and cancel other calls.
static void finish(gv_call *call, CURLcode code, bool timed_out)
{
    long status = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    unlink_call(call);
    gv_call_end end = {
        .reached = status != 0,
        .whole = code == CURLE_OK,
        .timed_out = timed_out || code == CURLE_OPERATION_TIMEDOUT,
        .status = (int)status,
        .text = timed_out         ? "nothing was heard for too long"
                : call->reason[0] ? call->reason
                                  : curl_easy_strerror(code),
    };
    call->request.done(call->request.context, &end);
    free_call(call);
}

// Acts on the marks, and on silence. A last word only marks other calls, so the walk stays on the list.
static void tend_calls(gv_loop *loop, uint64_t now)
{
    for (gv_call *call = loop->calls, *next; call; call = next) {
        next = call->next;
        if (call->cancelled) {
            unlink_call(call);
            free_call(call);
        } else if (!call->added) {
            call->added = true;
            if (curl_multi_add_handle(loop->multi, call->easy) != CURLM_OK) {
                call->added = false;
                finish(call, CURLE_OUT_OF_MEMORY, false);
            }
        } else if (call->resume) {
            call->resume = call->paused = false;
            call->heard_ms = now;
            curl_easy_pause(call->easy, CURLPAUSE_CONT);
        } else if (call->request.silence_ms && !call->paused && now > call->heard_ms &&
                   now - call->heard_ms > call->request.silence_ms) {
            finish(call, CURLE_OPERATION_TIMEDOUT, true);
        }
    }
}

// ---- The thread ---------------------------------------------------------------------------------------------------

static void run_tasks(gv_loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    task *tasks = loop->first;
    loop->first = loop->last = NULL;
    pthread_mutex_unlock(&loop->lock);
    while (tasks) {
        task *next = tasks->next;
        tasks->run(tasks->argument);
        gv_free(tasks);
        tasks = next;
    }
}

static void *turn(void *argument)
{
    gv_loop *loop = argument;
    uint64_t last_tick = 0;
    while (!atomic_load(&loop->stopping)) {
        run_tasks(loop);
        uint64_t now = gv_now_ms();
        if (atomic_exchange(&loop->woken, false) || now - last_tick >= loop->tick_ms) {
            last_tick = now;
            loop->tick(loop->context, now);
        }
        tend_calls(loop, now);
        int running = 0;
        curl_multi_perform(loop->multi, &running);
        int left = 0;
        CURLMsg *message;
        while ((message = curl_multi_info_read(loop->multi, &left))) {
            gv_call *call = NULL;
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
            // A cancelled call has no last word; the next turn frees it.
            if (message->msg == CURLMSG_DONE && !call->cancelled)
                finish(call, message->data.result, false);
        }
        curl_multi_poll(loop->multi, NULL, 0, (int)loop->tick_ms, NULL);
    }
    run_tasks(loop);
    while (loop->calls) {
        gv_call *call = loop->calls;
        unlink_call(call);
        free_call(call);
    }
    return NULL;
}

gv_status gv_loop_start(gv_loop **result, void (*tick)(void *context, uint64_t now_ms), unsigned tick_ms, void *context,
                        gv_error *error)
{
    gv_loop *loop = gv_calloc(1, sizeof *loop);
    if (!loop)
        return gv_fail(error, GV_ERR_MEMORY,
                       "the thread for requests to other servers cannot be set up: out of memory");
    loop->tick = tick;
    loop->tick_ms = tick_ms;
    loop->context = context;
    pthread_mutex_init(&loop->lock, NULL);
    loop->multi = curl_multi_init();
    *result = loop; // the thread's ticks may look for it
    if (!loop->multi || pthread_create(&loop->thread, NULL, turn, loop) != 0) {
        if (loop->multi)
            curl_multi_cleanup(loop->multi);
        pthread_mutex_destroy(&loop->lock);
        gv_free(loop);
        *result = NULL;
        return gv_fail(error, GV_ERR_IO, "the thread for requests to other servers could not be started");
    }
    return GV_OK;
}

bool gv_loop_post(gv_loop *loop, void (*run)(void *argument), void *argument)
{
    task *posted = gv_calloc(1, sizeof *posted);
    if (!posted)
        return false;
    posted->run = run;
    posted->argument = argument;
    pthread_mutex_lock(&loop->lock);
    if (loop->last)
        loop->last->next = posted;
    else
        loop->first = posted;
    loop->last = posted;
    pthread_mutex_unlock(&loop->lock);
    curl_multi_wakeup(loop->multi);
    return true;
}

void gv_loop_wake(gv_loop *loop)
{
    atomic_store(&loop->woken, true);
    curl_multi_wakeup(loop->multi);
}

void gv_loop_stop(gv_loop *loop)
{
    atomic_store(&loop->stopping, true);
    curl_multi_wakeup(loop->multi);
    pthread_join(loop->thread, NULL);
    curl_multi_cleanup(loop->multi);
    pthread_mutex_destroy(&loop->lock);
    gv_free(loop);
}
