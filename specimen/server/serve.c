// The servers' life, from start to signal.
#include "specimen/server/serve.h"

#include "specimen/server/arguments.h"
#include "specimen/server/log.h"
#include "specimen/server/loop.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_FINE, EXIT_CUT, EXIT_BAD_USAGE, EXIT_NO_START };
enum { LOOK_MS = 100, LAST_WORDS_MS = 5000 };

// Whole or not at all: who waits for the file must not read half a number.
static bool write_port_file(const char *path, unsigned port)
{
    char draft[4096];
    if (snprintf(draft, sizeof draft, "%s.%ld", path, (long)getpid()) >= (int)sizeof draft)
        return false;
    FILE *file = fopen(draft, "w");
    bool written = file && fprintf(file, "%u\n", port) > 0;
    written = file && fclose(file) == 0 && written;
    if (written && rename(draft, path) == 0)
        return true;
    int reason = errno;
    unlink(draft);
    gv_log("%s could not be written: %s", path, strerror(reason));
    return false;
}

// One signal of the set, or 0 when none came in time.
static int wait_signal(const sigset_t *set, long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    int got = sigtimedwait(set, NULL, &time);
    return got > 0 ? got : 0;
}

// True once nothing is active; false when the time is over or a signal came.
static bool wait_idle(gv_http_server *http, const sigset_t *set, uint64_t most_ms)
{
    uint64_t end = gv_now_ms() + most_ms;
    while (gv_http_active(http)) {
        uint64_t now = gv_now_ms();
        if (now >= end || wait_signal(set, end - now < LOOK_MS ? (long)(end - now) : LOOK_MS))
            return gv_http_active(http) == 0;
    }
    return true;
}

static int run(const gv_arguments *arguments, gv_service *service, const sigset_t *set)
{
    int got = 0;
    while (!got && (!service->fit || service->fit(service->state)))
        got = wait_signal(set, LOOK_MS);
    bool failed = !got;
    gv_log(failed ? "shutting down, since the engine failed" : "shutting down; %zu requests are running",
           gv_http_active(service->http));
    gv_http_drain(service->http);
    // A second signal means now.
    size_t refused = 0;
    if (!wait_idle(service->http, set, failed ? 0 : arguments->grace_seconds * UINT64_C(1000))) {
        refused = service->cut(service->state);
        wait_idle(service->http, set, LAST_WORDS_MS);
    }
    if (refused)
        gv_log("%zu requests could not be finished; their clients got an error", refused);
    if (!service->stop(service->state)) {
        gv_log("the engine hangs in a step; leaving without it");
        fflush(NULL);
        _exit(EXIT_CUT);
    }
    return failed || refused ? EXIT_CUT : EXIT_FINE;
}

static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int gv_specimen_serve_main(int argc, char **argv)
{
    gv_server_command command = GV_COMMAND_SERVE;
    while (command < GV_COMMAND_ROUTER && strcmp(gv_server_commands[command], argv[0]) != 0)
        command++;
    gv_log_name(gv_server_commands[command]);
    gv_arguments arguments;
    if (!gv_read_arguments(&arguments, command, argc, argv))
        return EXIT_BAD_USAGE;
    if (arguments.help) {
        gv_print_server_help(command);
        return EXIT_FINE;
    }
    // Before any thread: all of them inherit it, and only this one takes signals.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    raise_file_limit();
    curl_global_init(CURL_GLOBAL_DEFAULT);

    gv_service service;
    gv_error error = {0};
    gv_status status;
    if (command == GV_COMMAND_ROUTER) {
        arguments.router.service = arguments.engine.service;
        arguments.router.prefill = arguments.prefill;
        arguments.router.decode = arguments.decode;
        status = gv_router_start(&service, &arguments.router, &error);
    } else {
        status = gv_engine_server_start(&service, &arguments.engine, &error);
    }
    if (status != GV_OK) {
        gv_log("%s", error.text);
        curl_global_cleanup();
        return status == GV_ERR_USAGE ? EXIT_BAD_USAGE : EXIT_NO_START;
    }
    unsigned port = gv_http_port(service.http);
    int code = EXIT_NO_START;
    if (arguments.port_file && !write_port_file(arguments.port_file, port)) {
        service.stop(service.state);
    } else {
        const char *host = arguments.engine.service.address;
        printf(strchr(host, ':') ? "listening on http://[%s]:%u\n" : "listening on http://%s:%u\n", host, port);
        fflush(stdout);
        code = run(&arguments, &service, &set);
    }
    curl_global_cleanup();
    return code;
}
