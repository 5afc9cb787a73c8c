// gravel lab: controlled trials of a service, their statistics, and the fewest changes that pass.
#include "cli/cli.h"

#include "base/memory.h"
#include "lab/lab_report.h"
#include "lab/patch.h"
#include "lab/tree.h"
#include "lab/worker.h"
#include "report/format.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPTION_LEDGER = 256, OPTION_OUTPUT, OPTION_FORMAT, OPTION_KIND, OPTION_EXPERIMENT, OPTION_JSON, OPTION_QUIET };

static const gv_option options[] = {
    {OPTION_LEDGER, "ledger", "WHERE",
     "The ledger: a file, or postgresql://... for several hosts. Default: ledger.sqlite in the output folder."},
    {OPTION_OUTPUT, "output", "FOLDER", "Where logs and results of trials go. Default: the plan's name with .lab."},
    {OPTION_FORMAT, "format", "FORM", "report: text (default), markdown, html or json."},
    {OPTION_JSON, "json", NULL,
     "check and report: the same as JSON (schemas \"gravel-lab-check\", \"gravel-lab\", version 1)."},
    {OPTION_KIND, "kind", "KIND",
     "resume, status and report: the run or the minimise experiment. Default: the latest."},
    {OPTION_EXPERIMENT, "experiment", "NUMBER", "worker: the experiment in the ledger."},
    {OPTION_QUIET, "quiet", NULL, "Tell nothing while trials run."},
};

static const char *const verbs[] = {"check", "run", "resume", "status", "report", "minimise", "worker"};

typedef struct request {
    const gv_command *command;
    const char *verb, *plan_path, *ledger, *output;
    gv_lab_form form;
    int kind; // of gv_kind, -1: any
    uint64_t experiment;
    bool quiet;
    char *ledger_path, *output_path; // absolute, owned
    char gravel[PATH_MAX];
} request;

static int fail(const gv_error *error)
{
    gv_say("%s", error->text);
    return error->status == GV_ERR_USAGE || error->status == GV_ERR_LIMIT ? GV_EXIT_USAGE : GV_EXIT_INPUT;
}

static int exit_code(gv_lab_result result)
{
    switch (result) {
    case GV_LAB_GOOD: return GV_EXIT_NONE;
    case GV_LAB_BAD: return GV_EXIT_FINDINGS;
    case GV_LAB_OPEN: break;
    }
    return GV_EXIT_UNMEASURED;
}

// ---- Paths --------------------------------------------------------------------------------------------------------

static char *absolute(const char *path)
{
    char folder[PATH_MAX];
    gv_string text = {0};
    if (path[0] == '/' || !getcwd(folder, sizeof folder))
        gv_string_add(&text, "%s", path);
    else
        gv_string_add(&text, "%s/%s", folder, path);
    if (text.failed)
        gv_string_free(&text);
    return text.text;
}

// "overlap.yaml" is run in "overlap.lab", here and not beside the plan, which may lie where nothing is to be written.
static char *default_output(const char *plan_path)
{
    const char *base = plan_path ? strrchr(plan_path, '/') : NULL;
    base = base ? base + 1 : plan_path ? plan_path : "gravel";
    size_t length = strlen(base);
    if (length > 5 && strcmp(base + length - 5, ".yaml") == 0)
        length -= 5;
    else if (length > 4 && strcmp(base + length - 4, ".yml") == 0)
        length -= 4;
    gv_string text = {0};
    gv_string_add(&text, "%.*s.lab", (int)length, base);
    char *path = text.failed ? NULL : absolute(text.text);
    gv_string_free(&text);
    return path;
}

static bool find_paths(request *r)
{
    r->output_path = r->output ? absolute(r->output) : default_output(r->plan_path);
    if (r->output_path && r->ledger) {
        r->ledger_path = strstr(r->ledger, "://") ? gv_strdup(r->ledger) : absolute(r->ledger);
    } else if (r->output_path) {
        gv_string text = {0};
        gv_string_add(&text, "%s/ledger.sqlite", r->output_path);
        r->ledger_path = text.text;
    }
    ssize_t length = readlink("/proc/self/exe", r->gravel, sizeof r->gravel - 1);
    snprintf(r->gravel + (length > 0 ? length : 0), sizeof r->gravel - (size_t)(length > 0 ? length : 0), "%s",
             length > 0 ? "" : "gravel");
    if (r->output_path && r->ledger_path)
        return true;
    gv_say("out of memory");
    return false;
}

// ---- Running ------------------------------------------------------------------------------------------------------

static int finish(request *r, gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan)
{
    gv_error error = {0};
    gv_experiment now;
    gv_lab_result result;
    // Read anew: it has ended meanwhile.
    gv_status status = gv_ledger_find(ledger, plan, (int)experiment->kind, &now, &error);
    if (status == GV_OK)
        status = gv_lab_report(ledger, &now, plan, r->form, stdout, &result, &error);
    gv_experiment_free(&now);
    return status == GV_OK ? exit_code(result) : fail(&error);
}

static int work(request *r, gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan)
{
    gv_error error = {0};
    gv_work_end end;
    bool worker = strcmp(r->verb, "worker") == 0;
    gv_work work = {.ledger = ledger,
                    .experiment = experiment,
                    .plan = plan,
                    .folder = r->output_path,
                    .gravel = r->gravel,
                    .once = worker,
                    .progress = r->quiet ? NULL : stderr};
    gv_status status = gv_ledger_lock(ledger, &error);
    if (status == GV_OK)
        status = plan->executor.kind == GV_EXECUTE_SLURM && !worker ? gv_work_slurm(&work, r->ledger_path, &end, &error)
                                                                    : gv_work_local(&work, &end, &error);
    if (status != GV_OK)
        return fail(&error);
    if (end == GV_WORK_INTERRUPTED) {
        gv_say("interrupted; nothing is lost: `gravel lab resume %s` goes on", r->plan_path ? r->plan_path : "");
        return 130;
    }
    return worker ? GV_EXIT_NONE : finish(r, ledger, experiment, plan);
}

static int run_plan(request *r, const gv_plan *plan, gv_kind kind)
{
    gv_error error = {0};
    gv_ledger *ledger = NULL;
    gv_experiment experiment = {0};
    bool existed = false;
    if (kind == GV_KIND_MINIMISE && !plan->minimise.line) {
        gv_say("%s has no part `minimise`; docs/lab.md shows one", r->plan_path);
        return GV_EXIT_USAGE;
    }
    if (plan->executor.kind == GV_EXECUTE_SLURM && !strstr(r->ledger_path, "://")) {
        gv_say("`executor: slurm` needs a ledger that its jobs can share; give one with --ledger postgresql://...");
        return GV_EXIT_USAGE;
    }
    gv_status status = gv_attempt_check(plan, &error);
    if (status == GV_OK)
        status = gv_make_folder(r->output_path, &error);
    if (status == GV_OK)
        status = gv_ledger_open(r->ledger_path, true, &ledger, &error);
    if (status == GV_OK)
        status = gv_ledger_begin(ledger, plan, kind, &experiment, &existed, &error);
    int code;
    if (status != GV_OK) {
        code = fail(&error);
    } else if (existed && experiment.ended && strcmp(r->verb, "resume") != 0) {
        gv_say("this plan was run already (%s); `gravel lab report %s` shows it. To run it again change its `seed`, or "
               "give "
               "another --ledger",
               experiment.begun, r->plan_path);
        code = GV_EXIT_USAGE;
    } else if (existed && !gv_ledger_shared(ledger) && strcmp(r->verb, "resume") != 0) {
        gv_say("this plan was begun %s and has not ended; `gravel lab resume %s` goes on", experiment.begun,
               r->plan_path);
        code = GV_EXIT_USAGE;
    } else {
        code = work(r, ledger, &experiment, plan);
    }
    gv_experiment_free(&experiment);
    gv_ledger_close(ledger);
    return code;
}

// For the verbs that need an experiment that is there: the plan is the one it was begun with.
typedef int (*with_experiment)(request *r, gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan);

static gv_status check_plan(const request *r, const gv_experiment *experiment, gv_error *error)
{
    char *text = NULL;
    // The plan's text in the ledger counts. When the file says something else by now, the user must know.
    if (!r->plan_path || gv_read_whole(r->plan_path, 4 << 20, &text, NULL, NULL) != GV_OK)
        return GV_OK;
    bool same = strcmp(text, experiment->text) == 0;
    gv_free(text);
    return same ? GV_OK
                : gv_fail(error, GV_ERR_USAGE,
                          "%s has changed since the experiment was begun (%s); a changed plan is a new "
                          "experiment: `gravel lab run` with another --output begins it",
                          r->plan_path, experiment->begun);
}

static int on_experiment(request *r, with_experiment what, bool strict)
{
    gv_error error = {0};
    gv_ledger *ledger = NULL;
    gv_experiment experiment = {0};
    gv_plan *plan = NULL;
    int code = GV_EXIT_NONE;
    gv_status status = gv_ledger_open(r->ledger_path, false, &ledger, &error);
    if (status == GV_OK)
        status = gv_ledger_find(ledger, NULL, r->kind, &experiment, &error);
    if (status == GV_OK && r->experiment && experiment.id != r->experiment)
        status = gv_fail(&error, GV_ERR_MISSING,
                         "the latest experiment of the ledger is %llu, not %llu; a newer one was begun",
                         (unsigned long long)experiment.id, (unsigned long long)r->experiment);
    if (status == GV_OK) {
        gv_error changed = {0};
        if (check_plan(r, &experiment, &changed) != GV_OK) {
            if (strict)
                status = gv_fail(&error, changed.status, "%s", changed.text);
            else
                gv_say("note: %s", changed.text);
        }
    }
    if (status == GV_OK)
        status = gv_plan_parse(experiment.path, experiment.text, strlen(experiment.text), &plan, &error);
    if (status == GV_OK)
        code = what(r, ledger, &experiment, plan);
    else
        code = fail(&error);
    gv_plan_free(plan);
    gv_experiment_free(&experiment);
    gv_ledger_close(ledger);
    return code;
}

static int resume(request *r, gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan)
{
    gv_error error = {0};
    if (experiment->ended)
        return finish(r, ledger, experiment, plan);
    if (gv_ledger_event(ledger, experiment->id, "resumed", "", &error) != GV_OK)
        return fail(&error);
    return work(r, ledger, experiment, plan);
}

static int status(request *r, gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan)
{
    gv_error error = {0};
    return gv_lab_status(ledger, experiment, plan, stdout, &error) == GV_OK ? GV_EXIT_NONE : fail(&error);
}

static int report(request *r, gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan)
{
    gv_error error = {0};
    gv_lab_result result;
    if (gv_lab_report(ledger, experiment, plan, r->form, stdout, &result, &error) != GV_OK)
        return fail(&error);
    return exit_code(result);
}

// ---- The command --------------------------------------------------------------------------------------------------

static bool read_form(request *r, const char *text)
{
    static const char *const forms[] = {"text", "markdown", "html", "json"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(forms[i], text) == 0) {
            r->form = (gv_lab_form)i;
            return true;
        }
    }
    gv_usage(r->command, "--format is text, markdown, html or json, not \"%s\"", text);
    return false;
}

static bool read_kind(request *r, const char *text)
{
    r->kind = strcmp(text, "run") == 0 ? GV_KIND_RUN : strcmp(text, "minimise") == 0 ? GV_KIND_MINIMISE : -1;
    if (r->kind < 0)
        gv_usage(r->command, "--kind is run or minimise, not \"%s\"", text);
    return r->kind >= 0;
}

// True when the options are good; else `*code` is the exit code.
static bool read_options(request *r, gv_parser *parser, int *code)
{
    *code = GV_EXIT_USAGE;
    for (int id; (id = gv_parse_next(parser)) != GV_PARSE_END;) {
        switch (id) {
        case GV_PARSE_HELP: *code = GV_EXIT_NONE; return false;
        case GV_PARSE_BAD: return false;
        case OPTION_LEDGER: r->ledger = parser->argument; break;
        case OPTION_OUTPUT: r->output = parser->argument; break;
        case OPTION_JSON: r->form = GV_LAB_JSON; break;
        case OPTION_QUIET: r->quiet = true; break;
        case OPTION_FORMAT:
            if (!read_form(r, parser->argument))
                return false;
            break;
        case OPTION_KIND:
            if (!read_kind(r, parser->argument))
                return false;
            break;
        case OPTION_EXPERIMENT:
            if (!gv_parse_number(parser, "--experiment", 1, UINT32_MAX, &r->experiment))
                return false;
            break;
        default: break;
        }
    }
    return true;
}

static int act(request *r)
{
    gv_error error = {0};
    gv_plan *plan = NULL;
    if (strcmp(r->verb, "resume") == 0)
        return on_experiment(r, resume, true);
    if (strcmp(r->verb, "status") == 0)
        return on_experiment(r, status, false);
    if (strcmp(r->verb, "report") == 0)
        return on_experiment(r, report, false);
    if (strcmp(r->verb, "worker") == 0)
        return on_experiment(r, work, false);
    if (gv_plan_load(r->plan_path, &plan, &error) != GV_OK) {
        gv_say("%s", error.text);
        return GV_EXIT_INPUT;
    }
    int code;
    if (strcmp(r->verb, "check") == 0)
        code = gv_lab_check(plan, r->form == GV_LAB_JSON, stdout, &error) == GV_OK ? GV_EXIT_NONE : fail(&error);
    else
        code = run_plan(r, plan, strcmp(r->verb, "run") == 0 ? GV_KIND_RUN : GV_KIND_MINIMISE);
    gv_plan_free(plan);
    return code;
}

static int run(const gv_command *command, int argc, char **argv)
{
    gv_parser parser = gv_parser_open(command, argc, argv);
    request r = {.command = command, .kind = -1};
    int code;
    if (!read_options(&r, &parser, &code))
        return code;
    char **operands = argv + parser.first_operand;
    int count = argc - parser.first_operand;
    size_t known = sizeof verbs / sizeof *verbs, chosen = 0;
    if (count < 1)
        return gv_usage(command, "say what to do: check, run, resume, status, report or minimise");
    while (chosen < known && strcmp(verbs[chosen], operands[0]) != 0)
        chosen++;
    if (chosen == known) {
        const char *nearest = gv_nearest(operands[0], verbs, known);
        return nearest ? gv_usage(command, "lab does not \"%s\"; did you mean \"%s\"?", operands[0], nearest)
                       : gv_usage(command, "lab does not \"%s\"", operands[0]);
    }
    r.verb = verbs[chosen];
    r.plan_path = count > 1 ? operands[1] : NULL;
    bool worker = strcmp(operands[0], "worker") == 0;
    // A worker on another machine gets the address where no one else can read it.
    if (worker && !r.ledger)
        r.ledger = getenv("GRAVEL_LAB_LEDGER");
    if (count > 2)
        return gv_usage(command, "one plan at a time; \"%s\" is too much", operands[2]);
    if (!r.plan_path && !(r.ledger && chosen >= 2 && strcmp(r.verb, "minimise") != 0))
        return gv_usage(command, worker ? "name the ledger (--ledger)" : "name the plan");
    if (find_paths(&r))
        code = act(&r);
    else
        code = GV_EXIT_INPUT;
    gv_sha256_forget();
    gv_free(r.ledger_path);
    gv_free(r.output_path);
    return code;
}

const gv_command gv_command_lab = {
    .name = "lab",
    .summary = "Run controlled trials of a service and find the fewest changes that pass",
    .synopsis = "[OPTION...] check|run|resume|status|report|minimise PLAN",
    .about =
        "Runs the plan's service once for each trial, with the plan's factors set one way or the other, in random "
        "order, "
        "and says with stated errors in which cells sessions are corrupt. minimise finds the fewest changes that still "
        "pass. docs/lab.md describes plans.",
    GV_OPTIONS(options),
    .closing = "  check     validate the plan; print what would run, how long, and what it can show\n"
               "  run       begin the plan and run it to its end\n"
               "  resume    go on with what was interrupted or killed\n"
               "  status    how far it is\n"
               "  report    what it shows\n"
               "  minimise  search the fewest changes of the plan's part `minimise`\n"
               "  worker    claim and run trials of a shared ledger until none is left\n\n"
               "Exit code: 0 every cell is clean (minimise: a set was found), 1 some cell is corrupt (minimise: the\n"
               "changes together do not pass), 2 wrong usage, 3 a file cannot be read or written, 4 not decided,\n"
               "130 interrupted.\n\n"
               "Examples:\n"
               "  gravel lab check overlap.yaml\n"
               "  gravel lab run overlap.yaml\n"
               "  gravel lab report overlap.yaml --format html > overlap.html\n",
    .run = run,
};
