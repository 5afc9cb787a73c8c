// Command line of the servers.
#ifndef GV_SERVER_ARGUMENTS_H
#define GV_SERVER_ARGUMENTS_H

#include "specimen/server/engine_server.h"
#include "specimen/server/router.h"

#include <stdbool.h>

typedef enum gv_server_command {
    GV_COMMAND_SERVE,
    GV_COMMAND_PREFILL,
    GV_COMMAND_DECODE,
    GV_COMMAND_ROUTER,
    GV_COMMANDS
} gv_server_command;

enum { GV_MOST_URLS = 64 };

typedef struct gv_arguments {
    gv_server_command command;
    gv_engine_server_settings engine; // for serve, prefill and decode; its service settings for all
    gv_router_settings router;        // points into this structure
    const char *port_file;            // NULL: none
    unsigned grace_seconds;
    const char *prefill[GV_MOST_URLS], *decode[GV_MOST_URLS];
    bool help; // only the help was asked for
} gv_arguments;

extern const char *const gv_server_commands[GV_COMMANDS];

// Reads the options behind argv[0], the command. Strings of argv are kept. False after a message.
bool gv_read_arguments(gv_arguments *arguments, gv_server_command command, int argc, char **argv);

void gv_print_server_help(gv_server_command command);

#endif
