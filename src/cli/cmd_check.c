// gravel check: reads traces, runs the detectors and reports what they find.
#include "cli/cli.h"
#include "cli/inputs.h"
#include "report/overview.h"
#include "report/report.h"

#include <stdio.h>
#include <string.h>

enum { OPTION_JSON = 256, OPTION_SUPPRESS, OPTION_ALL_PAIRS, OPTION_RANGES, OPTION_COMPLETE };

static const gv_option options[] = {
    {OPTION_JSON, "json", NULL,
     "Print the report as JSON (schema \"gravel-check\" version 1): everything, nothing cut."},
    {OPTION_SUPPRESS, "suppress", "FILE", "Leave out the findings that FILE describes. May be given several times."},
    {OPTION_ALL_PAIRS, "all-pairs", NULL,
     "List every pair of nodes of a finding, not only the one nearest the missing order."},
    {OPTION_RANGES, "ranges", "N", "Print up to N byte ranges of a pair. The default is 4."},
    {OPTION_COMPLETE, "require-complete", NULL, "Count what could not be seen as a finding: exit with 1 for it too."},
    {'v', "verbose", NULL,
     "Print whole call stacks, full kernel names, every incomplete node and the recorder's notes."},
};

typedef struct check {
    gv_report_options report;
    bool json, require_complete;
    gv_inputs inputs;
    gv_findings findings;
} check;

// Returns -1 to go on, else the exit code.
static int parse(check *state, gv_parser *parser)
{
    for (int id; (id = gv_parse_next(parser)) != GV_PARSE_END;) {
        uint64_t number = 0;
        switch (id) {
        case GV_PARSE_HELP: return GV_EXIT_NONE;
        case GV_PARSE_BAD: return GV_EXIT_USAGE;
        case OPTION_JSON: state->json = true; break;
        case OPTION_SUPPRESS:
            if (!gv_inputs_suppress(&state->inputs, parser->argument))
                return GV_EXIT_USAGE;
            break;
        case OPTION_ALL_PAIRS: state->report.all_pairs = true; break;
        case OPTION_RANGES:
            if (!gv_parse_number(parser, "--ranges", 1, UINT32_MAX, &number))
                return GV_EXIT_USAGE;
            state->report.ranges = number;
            break;
        case OPTION_COMPLETE: state->require_complete = true; break;
        case 'v': state->report.verbose = state->report.all_stacks = true; break;
        default: break;
        }
    }
    if (parser->first_operand >= parser->argc)
        return gv_usage(parser->command, "name the trace to check: the file that `gravel run -o FILE` wrote");
    return -1;
}

// Loads every trace before anything is analysed: a report over some of the files would look like one over all.
static int load(check *state, char **paths, size_t count)
{
    if (gv_inputs_load(&state->inputs, paths, count))
        return -1;
    if (count > 1 && state->inputs.trace_count)
        gv_say("nothing was checked: leave the unreadable out to check the others");
    return GV_EXIT_INPUT;
}

static int find(check *state)
{
    gv_error error = {0};
    if (gv_inputs_find(&state->inputs, &state->findings, &error) == GV_OK)
        return -1;
    gv_say("%s", error.text);
    return GV_EXIT_INPUT;
}

// What became of each suppression that did not do its work, on stderr, so that a list does not outlive its reasons.
static void tell_unused(const check *state)
{
    for (size_t i = 0; i < state->inputs.suppression_count; i++) {
        const gv_suppressions *file = &state->inputs.suppressions[i];
        for (size_t j = 0; j < file->count; j++) {
            const gv_suppression *block = &file->items[j];
            if (!block->pairs)
                gv_say("the suppression \"%s\" (%s:%zu) matched nothing; remove it if its race was repaired",
                       block->name, file->path, block->line);
            else if (!block->used)
                gv_say(
                    "the suppression \"%s\" (%s:%zu) matched %zu of a finding's pairs, but others are not matched, so "
                    "the finding is reported; `--all-pairs` lists them",
                    block->name, file->path, block->line, block->pairs);
        }
    }
}

static int report(check *state)
{
    gv_error error = {0};
    gv_status status =
        state->json ? gv_report_json(stdout, state->inputs.traces, state->inputs.trace_count, &state->findings, &error)
                    : gv_report_text(stdout, state->inputs.traces, state->inputs.trace_count, &state->findings,
                                     &state->report, &error);
    if (status != GV_OK) {
        gv_say("%s", error.text);
        return GV_EXIT_INPUT;
    }
    tell_unused(state);
    bool incomplete = false;
    for (size_t i = 0; i < state->findings.count; i++)
        incomplete |= state->findings.items[i].id == GV_FINDING_INCOMPLETE && !state->findings.items[i].suppressed;
    bool found = gv_findings_races(&state->findings) > 0 || (state->require_complete && incomplete);
    return found ? GV_EXIT_FINDINGS : GV_EXIT_NONE;
}

static int run(const gv_command *command, int argc, char **argv)
{
    check state = {0};
    gv_parser parser = gv_parser_open(command, argc, argv);
    int code = parse(&state, &parser);
    if (code < 0)
        code = load(&state, argv + parser.first_operand, (size_t)(argc - parser.first_operand));
    if (code < 0)
        code = find(&state);
    if (code < 0)
        code = report(&state);
    gv_findings_free(&state.findings);
    gv_inputs_free(&state.inputs);
    return code;
}

const gv_command gv_command_check = {
    .name = "check",
    .summary = "Report the races in recorded traces",
    .synopsis = "[OPTION...] FILE...",
    .about = "Reports every pair of nodes of a recorded graph that touch the same bytes, at least one of them writing, "
             "without an edge or a path of edges that orders them. Needs no GPU. Several files are one report: the "
             "processes of one run.",
    GV_OPTIONS(options),
    .closing = "Exit code: 0 nothing found, 1 a race or an observed fault, 2 wrong usage, 3 a file cannot be read.\n"
               "A graph of which not everything could be seen is said to be not complete; it is no race.\n\n"
               "Example:\n"
               "  gravel check t.gravel --all-pairs\n",
    .run = run,
};
