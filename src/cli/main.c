// gravel: finds silent corruption in programs that run on CUDA graphs. This file picks the subcommand.
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static const gv_command *const commands[] = {
    &gv_command_run,    &gv_command_check, &gv_command_fix,
    &gv_command_diff,   &gv_command_show,  &gv_command_doctor,
    &gv_command_stress, &gv_command_lab,   NULL,
};

// The command of this name, or NULL.
static const gv_command *command_named(const char *name)
{
    for (size_t i = 0; commands[i]; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    }
    return NULL;
}

static void print_overview(FILE *out)
{
    fprintf(out, "gravel " GRAVEL_VERSION " finds races between the kernels and copies of a CUDA graph.\n\n"
                 "Usage: gravel COMMAND [OPTION...]\n\nCommands:\n");
    for (size_t i = 0; commands[i]; i++)
        fprintf(out, "  %-8s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "  %-8s %s\n\n", "help", "Explain a command: gravel help COMMAND");
    fprintf(out, "Where to begin:\n"
                 "  gravel run -o t.gravel -- python serve.py    record a run; the program needs no change\n"
                 "  gravel check t.gravel                        report the races in what was recorded\n\n"
                 "gravel --version prints the version. Each command has a manual page: man gravel-run, and so on.\n");
}

static int unknown_command(const char *name)
{
    const char *names[16] = {"help"};
    size_t count = 1;
    for (; commands[count - 1] && count < 16; count++)
        names[count] = commands[count - 1]->name;
    const char *nearest = gv_nearest(name, names, count);
    if (nearest)
        gv_say("there is no command \"%s\"; did you mean \"%s\"? `gravel --help` lists the commands", name, nearest);
    else
        gv_say("there is no command \"%s\"; `gravel --help` lists the commands", name);
    return GV_EXIT_USAGE;
}

static int help(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stdout);
        return GV_EXIT_NONE;
    }
    const gv_command *command = command_named(argv[1]);
    if (!command)
        return unknown_command(argv[1]);
    gv_print_help(command);
    return GV_EXIT_NONE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return GV_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        puts("gravel " GRAVEL_VERSION);
        return GV_EXIT_NONE;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_overview(stdout);
        return GV_EXIT_NONE;
    }
    if (strcmp(name, "help") == 0)
        return help(argc - 1, argv + 1);
    if (name[0] == '-') {
        gv_say("there is no option \"%s\" before the command; `gravel --help` lists the commands", name);
        return GV_EXIT_USAGE;
    }
    const gv_command *command = command_named(name);
    return command ? command->run(command, argc - 1, argv + 1) : unknown_command(name);
}
