// gravel show: what a trace holds, as tables.
#include "cli/cli.h"
#include "report/report.h"

#include <stdio.h>
#include <string.h>

enum { OPTION_JSON = 256, OPTION_GRAPH };

static const gv_option options[] = {
    {OPTION_GRAPH, "graph", "ID", "Only what belongs to the graph with this number."},
    {OPTION_JSON, "json", NULL, "Print the rows as JSON (schema \"gravel-show\" version 1)."},
};

static const char *const tables[] = {"graphs",      "nodes",    "edges", "fixes",     "access", "coverage",
                                     "allocations", "launches", "diffs", "perturbed", "canary"};

static int run(const gv_command *command, int argc, char **argv)
{
    gv_parser parser = gv_parser_open(command, argc, argv);
    bool json = false;
    uint64_t graph = 0;
    for (int id; (id = gv_parse_next(&parser)) != GV_PARSE_END;) {
        switch (id) {
        case GV_PARSE_HELP: return GV_EXIT_NONE;
        case GV_PARSE_BAD: return GV_EXIT_USAGE;
        case OPTION_JSON: json = true; break;
        case OPTION_GRAPH:
            if (!gv_parse_number(&parser, "--graph", 1, UINT32_MAX, &graph))
                return GV_EXIT_USAGE;
            break;
        default: break;
        }
    }
    char **operands = argv + parser.first_operand;
    int count = argc - parser.first_operand;
    if (count < 1)
        return gv_usage(command, "name the trace and the table to show");
    if (count < 2)
        return gv_usage(command, "name the table: graphs, nodes, edges, fixes, access, coverage, allocations, "
                                 "launches, diffs, perturbed or canary");
    if (count > 2)
        return gv_usage(command, "one file and one table at a time; \"%s\" is too much", operands[2]);
    const char *table = operands[1];
    size_t known = sizeof tables / sizeof *tables, chosen = 0;
    while (chosen < known && strcmp(tables[chosen], table) != 0)
        chosen++;
    if (chosen == known) {
        const char *nearest = gv_nearest(table, tables, known);
        return nearest ? gv_usage(command, "there is no table \"%s\"; did you mean \"%s\"?", table, nearest)
                       : gv_usage(command, "there is no table \"%s\"", table);
    }

    gv_error error = {0};
    gv_trace *trace = NULL;
    if (gv_trace_load(operands[0], &trace, &error) != GV_OK) {
        gv_say("%s", error.text);
        return GV_EXIT_INPUT;
    }
    gv_status status = gv_report_show(stdout, trace, table, graph, json, &error);
    if (status != GV_OK)
        gv_say("%s", error.text);
    else if (trace->truncation)
        gv_say("%s is cut or damaged: %s", operands[0], trace->truncation);
    gv_trace_free(trace);
    if (status == GV_ERR_USAGE || status == GV_ERR_MISSING)
        return GV_EXIT_USAGE;
    return status == GV_OK ? GV_EXIT_NONE : GV_EXIT_INPUT;
}

const gv_command gv_command_show = {
    .name = "show",
    .summary = "Print what a trace holds as tables",
    .synopsis = "[OPTION...] FILE TABLE",
    .about =
        "Prints one table of a trace. graphs, nodes, edges: its graphs. access: which bytes each node of a recorded "
        "launch accessed; coverage: how much of that was seen and why not more. allocations. launches: of graphs; "
        "diffs: those that were compared with serial replays; perturbed: those that were repeated with other padding "
        "or "
        "poison; canary: what hashing regions between steps showed.",
    GV_OPTIONS(options),
    .closing = "Exit code: 0 shown, 2 wrong usage, 3 the file cannot be read.\n\n"
               "Example:\n"
               "  gravel show t.gravel access --graph 1\n",
    .run = run,
};
