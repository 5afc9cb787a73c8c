// gravel-specimen: a small decode engine that has the incident (docs/specimen.md).
#include "specimen/commands.h"
#include "specimen/server/serve.h"

#include <stdio.h>
#include <string.h>

static const command commands[] = {
    {"run", "run agent sessions and count the right and the wrong ones", command_run},
    {"faults", "list the faults that can be switched on", command_faults},
    {"serve", "serve OpenAI's chat API", gv_specimen_serve_main},
    {"prefill", "the prefill server of a disaggregated pair", gv_specimen_serve_main},
    {"decode", "its decode server", gv_specimen_serve_main},
    {"router", "its router", gv_specimen_serve_main},
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(FILE *to)
{
    fprintf(to,
            "Usage: gravel-specimen COMMAND [OPTIONS]\n\n"
            "A small decode engine with sparse attention, in which the defects of such engines can be watched.\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].summary);
    fprintf(to, "\n`gravel-specimen COMMAND --help` says more. Without a GPU, run it on gravel's software driver:\n"
                "    LD_LIBRARY_PATH=build/soft build/gravel-specimen run\n");
}

int main(int argc, char **argv)
{
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        print_help(stdout);
        return 0;
    }
    for (int i = 0; i < COMMANDS && argc > 1; i++)
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].run(argc - 1, argv + 1);
    if (argc > 1)
        fprintf(stderr, "gravel-specimen: there is no command \"%s\"\n\n", argv[1]);
    print_help(stderr);
    return 2;
}
