// Options of the servers: one table for parsing and for --help.
#include "specimen/server/arguments.h"

#include "specimen/commands.h"
#include "specimen/server/log.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const gv_server_commands[GV_COMMANDS] = {"serve", "prefill", "decode", "router"};

// Which commands take an option.
enum { FOR_ENGINE = 1, FOR_PAIR = 2, FOR_ROUTER = 4, FOR_ALL = 7 };
static const unsigned command_kinds[GV_COMMANDS] = {FOR_ENGINE, FOR_ENGINE | FOR_PAIR, FOR_ENGINE | FOR_PAIR,
                                                    FOR_ROUTER};

// ---- Options ------------------------------------------------------------------------------------------------------

typedef struct option_row {
    const char *name;
    unsigned kinds;
    const char *argument; // NULL: takes none
    const char *help;
} option_row;

enum option_id {
    HOST,
    PORT,
    PORT_FILE,
    MODEL,
    MOST_CONNECTIONS,
    MOST_BODY,
    IDLE,
    RECEIVE,
    GRACE,
    ROWS,
    MOST_REQUESTS,
    MOST_MESSAGES,
    HEALTH,
    ROOM,
    ROUTER_URL,
    ADVERTISE,
    PAUSE_FILE,
    PREFILL_URL,
    DECODE_URL,
    OPEN,
    CHECK,
    SILENCE,
    HELP,
    OPTIONS
};

static const option_row rows[OPTIONS] = {
    [HOST] = {"host", FOR_ALL, "ADDRESS", "numeric address to listen on (127.0.0.1)"},
    [PORT] = {"port", FOR_ALL, "N", "port; 0 lets the system pick one (30000; decode 30001, router 8000)"},
    [PORT_FILE] = {"port-file", FOR_ALL, "FILE", "write the port here once the server listens"},
    [MODEL] = {"model", FOR_ALL, "NAME", "name of the model (gravel-specimen)"},
    [MOST_CONNECTIONS] = {"max-connections", FOR_ALL, "N", "connections at a time (4096)"},
    [MOST_BODY] = {"max-body", FOR_ALL, "BYTES", "longest request body (1048576)"},
    [IDLE] = {"idle-timeout", FOR_ALL, "S", "seconds without a byte before a connection is closed (60)"},
    [RECEIVE] = {"request-timeout", FOR_ALL, "S", "seconds in which a whole request must have come (120)"},
    [GRACE] = {"grace", FOR_ALL, "S", "seconds that running requests get after SIGTERM (30)"},
    [ROWS] = {"rows", FOR_ENGINE, "N", "requests that hold pages at a time (twice the batch)"},
    [MOST_REQUESTS] = {"max-requests", FOR_ENGINE, "N", "requests taken at a time; more get 429 (2048)"},
    [MOST_MESSAGES] = {"max-messages", FOR_ENGINE, "N", "messages in a request (1024)"},
    [HEALTH] = {"health-timeout", FOR_ENGINE, "MS", "deadline of /health, and of a step (20000)"},
    [ROOM] = {"room-timeout", FOR_PAIR, "MS", "how long prefilled pages wait for the other side (120000)"},
    [ROUTER_URL] = {"router", FOR_PAIR, "URL", "announce this server to the router there"},
    [ADVERTISE] = {"advertise", FOR_PAIR, "HOST", "host under which the router reaches this server (--host)"},
    [PAUSE_FILE] = {"pause-file", FOR_ENGINE, "FILE", "begin no step of the engine while FILE exists"},
    [PREFILL_URL] = {"prefill", FOR_ROUTER, "URL", "a prefill server; may be repeated"},
    [DECODE_URL] = {"decode", FOR_ROUTER, "URL", "a decode server; may be repeated"},
    [OPEN] = {"open", FOR_ROUTER, NULL, "let workers announce themselves"},
    [CHECK] = {"check-interval", FOR_ROUTER, "MS", "time between two looks at a worker (1000)"},
    [SILENCE] = {"silence-timeout", FOR_ROUTER, "MS", "how long a worker may be silent in a request (120000)"},
    [HELP] = {"help", FOR_ALL, NULL, "print this text"},
};

void gv_print_server_help(gv_server_command kind)
{
    static const char *const abouts[GV_COMMANDS] = {
        "One server that prefills and decodes.",
        "The prefill server of a disaggregated pair: hands prefilled pages to a decode server.",
        "The decode server of a disaggregated pair: fetches pages from a prefill server and decodes.",
        "The router of a disaggregated pair: gives each request to a prefill and a decode server.",
    };
    printf(
        "Usage: gravel-specimen %s [OPTION...]\n\n%s\nOpenAI's API is at /v1; SIGTERM ends the server.\n\nOptions:\n",
        gv_server_commands[kind], abouts[kind]);
    for (int id = 0; id < OPTIONS; id++) {
        char head[64];
        if (!(rows[id].kinds & command_kinds[kind]))
            continue;
        snprintf(head, sizeof head, "--%s %s", rows[id].name, rows[id].argument ? rows[id].argument : "");
        printf("  %-34s %s\n", head, rows[id].help);
    }
    if (command_kinds[kind] & FOR_ENGINE)
        printf("\nThe engine's options:\n%s", engine_options_help);
}

static bool complain(const gv_arguments *arguments, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool complain(const gv_arguments *arguments, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    gv_log("%s; `gravel-specimen %s --help` explains the options", text, gv_server_commands[arguments->command]);
    return false;
}

static bool number(const gv_arguments *arguments, int id, uint64_t least, uint64_t most, uint64_t *value)
{
    char *end = NULL;
    errno = 0;
    *value = strtoull(optarg, &end, 10);
    if (optarg[0] >= '0' && optarg[0] <= '9' && !*end && !errno && *value >= least && *value <= most)
        return true;
    return complain(arguments, "--%s takes a number from %" PRIu64 " to %" PRIu64 ", not \"%s\"", rows[id].name, least,
                    most, optarg);
}

static bool set_unsigned(const gv_arguments *arguments, int id, unsigned most, unsigned *out)
{
    uint64_t value = 0;
    bool good = number(arguments, id, 1, most, &value);
    *out = (unsigned)value;
    return good;
}

static bool set_int(const gv_arguments *arguments, int id, int most, int *out)
{
    uint64_t value = 0;
    bool good = number(arguments, id, 1, (uint64_t)most, &value);
    *out = (int)value;
    return good;
}

static bool set_size(const gv_arguments *arguments, int id, size_t most, size_t *out)
{
    uint64_t value = 0;
    bool good = number(arguments, id, 1, most, &value);
    *out = (size_t)value;
    return good;
}

static bool set_engine_option(gv_arguments *arguments, int id)
{
    switch (id) {
    case ROWS: return set_int(arguments, id, 1 << 16, &arguments->engine.engine.rows);
    case MOST_REQUESTS: return set_size(arguments, id, 1 << 16, &arguments->engine.most_requests);
    case MOST_MESSAGES: return set_size(arguments, id, 1 << 16, &arguments->engine.most_messages);
    case HEALTH: return set_unsigned(arguments, id, 3600000, &arguments->engine.health_ms);
    case ROOM: return set_unsigned(arguments, id, 3600000, &arguments->engine.room_ms);
    case PAUSE_FILE: arguments->engine.pause_file = optarg; return true;
    case ROUTER_URL: arguments->engine.router = optarg; return true;
    default: arguments->engine.advertised = optarg; return true;
    }
}

static bool add_url(const gv_arguments *arguments, int id, const char **urls, size_t *count)
{
    if (*count == GV_MOST_URLS)
        return complain(arguments, "--%s may be given %d times", rows[id].name, GV_MOST_URLS);
    urls[(*count)++] = optarg;
    return true;
}

static bool set_option(gv_arguments *arguments, int id)
{
    gv_service_settings *service = &arguments->engine.service;
    gv_router_settings *router = &arguments->router;
    uint64_t value = 0;
    switch (id) {
    case HOST: service->address = optarg; return true;
    case PORT:
        if (!number(arguments, id, 0, UINT16_MAX, &value))
            return false;
        service->port = (uint16_t)value;
        return true;
    case PORT_FILE: arguments->port_file = optarg; return true;
    case MODEL: service->model = optarg; return true;
    case MOST_CONNECTIONS: return set_unsigned(arguments, id, 1 << 20, &service->most_connections);
    case MOST_BODY: return set_size(arguments, id, 1 << 30, &service->most_body);
    case IDLE: return set_unsigned(arguments, id, 86400, &service->idle_seconds);
    case RECEIVE: return set_unsigned(arguments, id, 86400, &service->receive_seconds);
    case GRACE:
        if (!number(arguments, id, 0, 86400, &value))
            return false;
        arguments->grace_seconds = (unsigned)value;
        return true;
    case PREFILL_URL: return add_url(arguments, id, arguments->prefill, &router->prefill_count);
    case DECODE_URL: return add_url(arguments, id, arguments->decode, &router->decode_count);
    case OPEN: router->open = true; return true;
    case CHECK: return set_unsigned(arguments, id, 3600000, &router->check_ms);
    case SILENCE: return set_unsigned(arguments, id, 3600000, &router->silence_ms);
    case HELP: arguments->help = true; return true;
    default: return set_engine_option(arguments, id);
    }
}

static void set_defaults(gv_arguments *arguments, gv_server_command kind)
{
    static const uint16_t ports[GV_COMMANDS] = {30000, 30000, 30001, 8000};
    static const gv_server_role roles[GV_COMMANDS] = {GV_SERVER_SINGLE, GV_SERVER_PREFILL, GV_SERVER_DECODE, 0};
    *arguments = (gv_arguments){
        .command = kind,
        .grace_seconds = 30,
        .engine =
            {
                .service = {"127.0.0.1", ports[kind], "gravel-specimen", 4096, 60, 120, 1 << 20},
                .role = roles[kind],
                .most_requests = 2048,
                .most_messages = 1024,
                .most_tools = 128,
                .health_ms = 20000,
                .room_ms = 120000,
            },
        .router = {.check_ms = 1000, .silence_ms = 120000},
    };
    engine_config_default(&arguments->engine.engine);
}

bool gv_read_arguments(gv_arguments *arguments, gv_server_command kind, int argc, char **argv)
{
    set_defaults(arguments, kind);
    static const struct option engine_known[] = {ENGINE_OPTIONS};
    enum { ENGINE_KNOWN = sizeof engine_known / sizeof *engine_known };
    struct option known[OPTIONS + ENGINE_KNOWN + 1] = {{0}};
    size_t count = 0;
    for (int id = 0; id < OPTIONS; id++) {
        if (rows[id].kinds & command_kinds[arguments->command])
            known[count++] =
                (struct option){rows[id].name, rows[id].argument ? required_argument : no_argument, NULL, id};
    }
    if (command_kinds[arguments->command] & FOR_ENGINE)
        memcpy(&known[count], engine_known, sizeof engine_known);
    optind = 0; // tells the GNU getopt to begin anew
    opterr = 0;
    int id;
    while ((id = getopt_long(argc, argv, ":", known, NULL)) != -1) {
        if (id == ':')
            return complain(arguments, "%s needs an argument", argv[optind - 1]);
        if (id == '?')
            return complain(arguments, "there is no option %s", argv[optind - 1]);
        bool good =
            id < ENGINE_OPTION_FIRST ? set_option(arguments, id) : engine_option(&arguments->engine.engine, id, optarg);
        if (!good)
            return false;
        if (arguments->help)
            return true;
    }
    if (optind < argc)
        return complain(arguments, "\"%s\" is not an option", argv[optind]);
    if (arguments->command == GV_COMMAND_ROUTER && !arguments->router.open &&
        (!arguments->router.prefill_count || !arguments->router.decode_count))
        return complain(arguments,
                        "name a --prefill and a --decode server, or let them announce themselves with --open");
    return true;
}
