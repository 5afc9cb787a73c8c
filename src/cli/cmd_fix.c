// gravel fix: the fewest edges that order every race of recorded traces, what they mean, and a file for `gravel run`.
#include "cli/cli.h"
#include "cli/fix_verify.h"
#include "cli/inputs.h"
#include "report/fix_text.h"

#include <stdio.h>
#include <string.h>

enum { OPTION_SUPPRESS = 256, OPTION_ALL_PAIRS, OPTION_VERIFY, OPTION_TEST, OPTION_SOFT };

static const gv_option options[] = {
    {'o', "output", "FILE", "Write the edges to FILE, for `gravel run --fix FILE`; with --verify its table, as JSON."},
    {OPTION_SUPPRESS, "suppress", "FILE", "Leave the races alone that FILE describes. May be given several times."},
    {OPTION_ALL_PAIRS, "all-pairs", NULL, "List every pair of nodes that an edge orders."},
    {OPTION_VERIFY, "verify", "FILE",
     "Run the program behind -- with this fix file: there must be no findings with it, its graphs must compute what "
     "serial replays compute, and without any one of its edges a finding must come back."},
    {OPTION_TEST, "test", "COMMAND", "With --verify: COMMAND, run by sh with the fix, must end with code 0."},
    {OPTION_SOFT, "soft", NULL, "With --verify: use gravel's software driver in place of the GPU's."},
    {'v', "verbose", NULL, "Print whole call stacks."},
};

typedef struct fix {
    gv_report_options report;
    const char *output;
    const char *verify, *test;
    bool soft;
    gv_inputs inputs;
    gv_findings findings;
    gv_fix_plan plan;
    gv_fix_outcome outcome;
} fix;

// Returns -1 to go on, else the exit code.
static int parse(fix *state, gv_parser *parser)
{
    for (int id; (id = gv_parse_next(parser)) != GV_PARSE_END;) {
        switch (id) {
        case GV_PARSE_HELP: return GV_EXIT_NONE;
        case GV_PARSE_BAD: return GV_EXIT_USAGE;
        case 'o': state->output = parser->argument; break;
        case OPTION_SUPPRESS:
            if (!gv_inputs_suppress(&state->inputs, parser->argument))
                return GV_EXIT_USAGE;
            break;
        case OPTION_VERIFY: state->verify = parser->argument; break;
        case OPTION_TEST: state->test = parser->argument; break;
        case OPTION_SOFT: state->soft = true; break;
        case OPTION_ALL_PAIRS: state->report.all_pairs = true; break;
        case 'v': state->report.all_stacks = true; break;
        default: break;
        }
    }
    if ((state->test || state->soft) && !state->verify)
        return gv_usage(parser->command, "--test and --soft are about runs of the program: they need --verify");
    if (parser->first_operand >= parser->argc && state->verify)
        return gv_usage(parser->command, "name the program to run, after --");
    if (parser->first_operand >= parser->argc)
        return gv_usage(parser->command, "name the trace to fix: the file that `gravel run -o FILE` wrote");
    return -1;
}

static size_t count_races(const gv_findings *findings, bool suppressed)
{
    size_t count = 0;
    for (size_t i = 0; i < findings->count; i++)
        count += findings->items[i].pair_count && findings->items[i].suppressed == suppressed;
    return count;
}

// Looks at the traces again with the edges in them: a fix that leaves a race is none.
static gv_status check_again(fix *state, gv_error *error)
{
    gv_fix_trial *applied = NULL;
    gv_findings left = {0};
    gv_status status = gv_fix_apply(&state->plan, SIZE_MAX, &applied, error);
    if (status == GV_OK)
        status = gv_inputs_find(&state->inputs, &left, error);
    state->outcome.left = count_races(&left, false);
    gv_findings_free(&left);
    gv_fix_undo(applied);
    return status;
}

static gv_status write_file(fix *state, gv_error *error)
{
    gv_fix_file file;
    gv_status status = gv_fix_plan_file(&state->plan, &file, error);
    if (status == GV_OK)
        status = gv_report_fix_readings(&state->plan, &file, error);
    if (status == GV_OK)
        status = gv_fix_file_write(&file, state->output, error);
    gv_fix_file_free(&file);
    return status;
}

static int make(fix *state)
{
    gv_error error = {0};
    bool refused = false;
    gv_status status = gv_inputs_find(&state->inputs, &state->findings, &error);
    state->outcome.races = count_races(&state->findings, false);
    state->outcome.suppressed = count_races(&state->findings, true);
    state->outcome.complete = true;
    for (size_t i = 0; i < state->findings.count; i++)
        state->outcome.complete &= state->findings.items[i].id != GV_FINDING_INCOMPLETE;
    if (status == GV_OK)
        status = gv_fix_plan_make(state->inputs.traces, state->inputs.trace_count, &state->findings, GV_FIX_BUDGET,
                                  &state->plan, &error);
    for (size_t g = 0; g < state->plan.group_count; g++)
        refused |= state->plan.groups[g].refusal != NULL;
    if (status == GV_OK && state->outcome.races && !refused)
        status = check_again(state, &error);
    bool made = status == GV_OK && !refused && !state->outcome.left;
    if (made && state->output) {
        state->outcome.output = state->output;
        status = write_file(state, &error);
    }
    if (status == GV_OK)
        status = gv_report_fix(stdout, state->inputs.traces, state->inputs.trace_count, &state->plan, &state->outcome,
                               &state->report, &error);
    if (status == GV_OK)
        return made ? GV_EXIT_NONE : GV_EXIT_FINDINGS;
    gv_say("%s", error.text);
    return GV_EXIT_INPUT;
}

static int run(const gv_command *command, int argc, char **argv)
{
    fix state = {0};
    gv_parser parser = gv_parser_open(command, argc, argv);
    int code = parse(&state, &parser);
    if (code < 0 && state.verify) {
        const gv_fix_verify asked = {.file = state.verify,
                                     .test = state.test,
                                     .output = state.output,
                                     .soft = state.soft,
                                     .program = argv + parser.first_operand,
                                     .suppressions = state.inputs.suppressions,
                                     .suppression_count = state.inputs.suppression_count};
        code = gv_fix_verify_run(&asked);
    }
    if (code < 0 && !gv_inputs_load(&state.inputs, argv + parser.first_operand, (size_t)(argc - parser.first_operand)))
        code = GV_EXIT_INPUT;
    if (code < 0)
        code = make(&state);
    gv_fix_plan_free(&state.plan);
    gv_findings_free(&state.findings);
    gv_inputs_free(&state.inputs);
    return code;
}

const gv_command gv_command_fix = {
    .name = "fix",
    .summary = "Find the fewest edges that order every race",
    .synopsis = "[OPTION...] FILE... | --verify FILE [OPTION...] -- PROGRAM [ARGUMENT...]",
    .about =
        "Finds the fewest edges that, added to the recorded graphs, order every pair of nodes that races; says what "
        "a person would write instead, and what the edges cost. Needs no GPU. Graphs that differ in shapes alone, "
        "as those of batch sizes and ranks do, get the same edges.",
    GV_OPTIONS(options),
    .closing = "Exit code: 0 a fix was made or there is nothing to fix, 1 a race cannot be ordered, 2 wrong usage,\n"
               "3 a file cannot be read or written. With --verify: 0 all of it holds, 1 something does not, 4\n"
               "something could not be found out.\n\n"
               "Example:\n"
               "  gravel fix t.gravel -o fix.json\n"
               "  gravel run --fix fix.json -- python serve.py\n"
               "  gravel fix --verify fix.json --test './test.sh' -- python serve.py --once\n",
    .run = run,
};
