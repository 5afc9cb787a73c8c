// Options, help and messages, from the tables in cli.h.
#include "cli/cli.h"

#include "report/format.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPTIONS = 40, HELP_ID = 1000, OPTION_COLUMN = 26 };

// ---- Messages -----------------------------------------------------------------------------------------------------

static void say(const char *format, va_list arguments)
{
    // One line whatever its length: who searches a log for "gravel:" finds the whole message.
    fputs("gravel: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

void gv_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
}

int gv_usage(const gv_command *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
    fprintf(stderr, "Usage: gravel %s %s\n`gravel %s --help` explains the options.\n", command->name, command->synopsis,
            command->name);
    return GV_EXIT_USAGE;
}

static size_t distance(const char *a, const char *b)
{
    enum { LONGEST = 32 };
    size_t columns = strlen(b);
    if (strlen(a) > LONGEST || columns > LONGEST)
        return SIZE_MAX;
    size_t row[LONGEST + 1];
    for (size_t j = 0; j <= columns; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t above = row[j];
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            best = above + 1 < best ? above + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[columns];
}

const char *gv_nearest(const char *word, const char *const *names, size_t count)
{
    const char *nearest = NULL;
    // Half of the word may be wrong; beyond that a suggestion is a guess.
    size_t best = strlen(word) / 2 + 1;
    for (size_t i = 0; i < count; i++) {
        size_t away = distance(word, names[i]);
        if (away < best) {
            best = away;
            nearest = names[i];
        }
    }
    return nearest;
}

// ---- Help ---------------------------------------------------------------------------------------------------------

static bool may_be_left_out(const gv_option *option)
{
    return option->argument && strncmp(option->argument, "[=", 2) == 0;
}

static void print_option(const gv_option *option)
{
    char head[96];
    int length = option->id < 256 ? snprintf(head, sizeof head, "  -%c, --%s", option->id, option->name)
                                  : snprintf(head, sizeof head, "      --%s", option->name);
    if (option->argument)
        length += snprintf(head + length, sizeof head - (size_t)length, "%s%s", may_be_left_out(option) ? "" : " ",
                           option->argument);
    if (length < OPTION_COLUMN - 1) {
        snprintf(head + length, sizeof head - (size_t)length, "%*s", OPTION_COLUMN - length, "");
    } else {
        printf("%s\n", head);
        snprintf(head, sizeof head, "%*s", OPTION_COLUMN, "");
    }
    gv_print_wrapped(stdout, head, OPTION_COLUMN, GV_REPORT_WIDTH, option->help);
}

void gv_print_help(const gv_command *command)
{
    printf("Usage: gravel %s %s\n\n", command->name, command->synopsis);
    gv_print_wrapped(stdout, "", 0, GV_REPORT_WIDTH, command->about);
    printf("\nOptions:\n");
    for (size_t i = 0; i < command->option_count; i++)
        print_option(&command->options[i]);
    print_option(&(gv_option){'h', "help", NULL, "Print this text."});
    printf("\n%s", command->closing);
}

// ---- Parsing ------------------------------------------------------------------------------------------------------

gv_parser gv_parser_open(const gv_command *command, int argc, char **argv)
{
    optind = 0; // tells the GNU getopt to begin anew, with the first character of the short options looked at again
    opterr = 0;
    return (gv_parser){.command = command, .argc = argc, .argv = argv};
}

static int complain(const gv_parser *parser, const struct option *known, size_t count, int before)
{
    // getopt leaves the letter in optopt for a short option; for a long one the word it stopped at.
    const char *word = before > 0 && before < parser->argc ? parser->argv[before] : "";
    const char *names[MOST_OPTIONS + 2];
    for (size_t i = 0; i < count; i++)
        names[i] = known[i].name;
    if (strncmp(word, "--", 2) != 0) {
        gv_usage(parser->command, "there is no option -%c", optopt);
        return GV_PARSE_BAD;
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0 && !known[i].has_arg) {
            gv_usage(parser->command, "--%s takes no argument", name);
            return GV_PARSE_BAD;
        }
    }
    const char *nearest = gv_nearest(name, names, count);
    if (nearest)
        gv_usage(parser->command, "there is no option --%s; did you mean --%s?", name, nearest);
    else
        gv_usage(parser->command, "there is no option --%s", name);
    return GV_PARSE_BAD;
}

int gv_parse_next(gv_parser *parser)
{
    const gv_command *command = parser->command;
    struct option known[MOST_OPTIONS + 2] = {{0}};
    char letters[2 * MOST_OPTIONS + 8] = "";
    size_t used = 0;
    // '+' ends the options at the first operand; ':' tells a missing argument from an unknown option.
    if (command->stops_at_operand)
        letters[used++] = '+';
    letters[used++] = ':';
    letters[used++] = 'h';
    for (size_t i = 0; i < command->option_count && i < MOST_OPTIONS; i++) {
        const gv_option *option = &command->options[i];
        known[i] = (struct option){option->name,
                                   !option->argument         ? no_argument
                                   : may_be_left_out(option) ? optional_argument
                                                             : required_argument,
                                   NULL, option->id};
        if (option->id < 256) {
            letters[used++] = (char)option->id;
            if (option->argument)
                letters[used++] = ':';
        }
    }
    known[command->option_count] = (struct option){"help", no_argument, NULL, HELP_ID};

    int before = optind ? optind : 1;
    int id = getopt_long(parser->argc, parser->argv, letters, known, NULL);
    parser->argument = optarg;
    switch (id) {
    case -1: parser->first_operand = optind; return GV_PARSE_END;
    case 'h':
    case HELP_ID: gv_print_help(command); return GV_PARSE_HELP;
    case ':': gv_usage(command, "%s needs an argument", parser->argv[optind - 1]); return GV_PARSE_BAD;
    case '?':
        // Operands before a bad option have been passed over: the word itself is the one before optind.
        return complain(parser, known, command->option_count + 1, optind > before ? optind - 1 : before);
    default: return id;
    }
}

bool gv_parse_number(const gv_parser *parser, const char *option, uint64_t least, uint64_t most, uint64_t *number)
{
    const char *text = parser->argument;
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < least || value > most) {
        gv_usage(parser->command, "%s takes a number from %s to %s, not \"%s\"", option, gv_number(least),
                 gv_number(most), text);
        return false;
    }
    *number = value;
    return true;
}
