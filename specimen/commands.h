// The commands of gravel-specimen: one file each, listed in main.c.
#ifndef SPECIMEN_COMMANDS_H
#define SPECIMEN_COMMANDS_H

#include "specimen/engine.h"

#include <stdbool.h>

typedef struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv); // argv[0] is the command's name; returns the exit code
} command;

int command_run(int argc, char **argv);
int command_faults(int argc, char **argv);

// ---- Options that all commands with an engine share ----

// For getopt_long: the engine's options, their codes from ENGINE_OPTION_FIRST on.
enum { ENGINE_OPTION_FIRST = 1000 };
#define ENGINE_OPTIONS                                                                                               \
    {"keys", required_argument, NULL, 1000}, {"eager", no_argument, NULL, 1001}, {"graph", no_argument, NULL, 1002}, \
        {"breakable", no_argument, NULL, 1003}, {"overlap", required_argument, NULL, 1004},                          \
        {"batch", required_argument, NULL, 1005}, {"buckets", required_argument, NULL, 1006},                        \
        {"fault", required_argument, NULL, 1007}, {"repair", optional_argument, NULL, 1008},                         \
        {"prove-reuse", no_argument, NULL, 1009}, {"pages", required_argument, NULL, 1010},                          \
        {"hold", required_argument, NULL, 1011}, {"probe", no_argument, NULL, 1020},                                 \
    {                                                                                                                \
        "kernels", required_argument, NULL, 1012                                                                     \
    }

// Applies one of them. False, with a message on standard error, when its argument makes no sense.
bool engine_option(engine_config *config, int code, const char *argument);

// What they mean, for --help.
extern const char engine_options_help[];

// Reads a whole number from `least` to `most`; false, with a message naming the option, when it is none.
bool option_number(const char *option, const char *argument, long long least, long long most, long long *value);

#endif
