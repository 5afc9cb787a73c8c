// What the subcommands of `gravel` share: the table of commands, options described once for parsing and for --help,
// messages, and exit codes.
#ifndef GV_CLI_CLI_H
#define GV_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Exit codes (docs/findings.md). `gravel run` has those of the program it ran, and those of env(1) for its own
// failures.
enum gv_exit_code {
    GV_EXIT_NONE = 0,     // nothing found
    GV_EXIT_FINDINGS = 1, // something found; for doctor: recording does not work here
    GV_EXIT_USAGE = 2,
    GV_EXIT_INPUT = 3,      // input that cannot be read, or output that cannot be written
    GV_EXIT_UNMEASURED = 4, // stress: too few sessions could be measured
    GV_EXIT_OWN = 125,      // run: gravel's own failure
    GV_EXIT_NOT_EXECUTABLE = 126,
    GV_EXIT_NOT_FOUND = 127
};

typedef struct gv_option {
    int id;               // a letter when the option has a short form, else any number above 255
    const char *name;     // long name
    const char *argument; // what --help calls its argument; NULL when it takes none; "[=WHEN]": may be left out
    const char *help;
} gv_option;

typedef struct gv_command {
    const char *name;
    const char *summary;  // one line for `gravel --help`
    const char *synopsis; // without "gravel NAME"
    const char *about;    // one or two sentences
    const gv_option *options;
    size_t option_count;
    const char *closing;   // examples and exit codes, printed as it is
    bool stops_at_operand; // what follows the first operand belongs to someone else
    int (*run)(const struct gv_command *command, int argc, char **argv);
} gv_command;

extern const gv_command gv_command_run, gv_command_check, gv_command_fix, gv_command_diff, gv_command_show,
    gv_command_doctor, gv_command_stress, gv_command_lab;

#define GV_OPTIONS(array) .options = (array), .option_count = sizeof(array) / sizeof *(array)

// ---- Parsing ----
typedef struct gv_parser {
    const gv_command *command;
    int argc;
    char **argv;
    const char *argument; // of the option returned last; NULL: none was given
    int first_operand;    // valid once gv_parse_next returned GV_PARSE_END
} gv_parser;

enum { GV_PARSE_END = 0, GV_PARSE_HELP = -1, GV_PARSE_BAD = -2 };

// Begins with argv[0] being the subcommand's name.
gv_parser gv_parser_open(const gv_command *command, int argc, char **argv);

// The id of the next option; GV_PARSE_END when only operands are left, which have been moved behind the options;
// GV_PARSE_HELP after --help was printed (exit 0); GV_PARSE_BAD after a message (exit GV_EXIT_USAGE).
int gv_parse_next(gv_parser *parser);

// Reads a decimal number between `least` and `most`. On failure a message names the option.
bool gv_parse_number(const gv_parser *parser, const char *option, uint64_t least, uint64_t most, uint64_t *number);

// ---- Messages ----
void gv_print_help(const gv_command *command);

// "gravel: ..." on stderr, as one line.
void gv_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The same for a mistake in how a command was called, followed by where to read on. Returns GV_EXIT_USAGE.
int gv_usage(const gv_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Of `count` names the one nearest to `word` (by edit distance), or NULL when none is near.
const char *gv_nearest(const char *word, const char *const *names, size_t count);

#endif
