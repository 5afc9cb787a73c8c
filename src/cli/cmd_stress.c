// gravel stress: runs agent sessions against an OpenAI-compatible server and tells how many came back corrupt.
#include "base/folder.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "report/format.h"
#include "stress/baseline.h"
#include "stress/reply.h"
#include "stress/run.h"
#include "stress/summary.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    OPTION_BASE_URL = 256,
    OPTION_MODEL,
    OPTION_SESSIONS,
    OPTION_ROUNDS,
    OPTION_CTX,
    OPTION_MAX_TOKENS,
    OPTION_TIMEOUT,
    OPTION_TAG,
    OPTION_SCENARIO,
    OPTION_SEED,
    OPTION_CONCURRENCY,
    OPTION_NO_STREAM,
    OPTION_TEMPERATURE,
    OPTION_THINK,
    OPTION_RAMP,
    OPTION_BASELINE,
    OPTION_REFRESH,
    OPTION_EXACT,
    OPTION_CACHE,
    OPTION_TRANSCRIPTS,
    OPTION_BODY,
    OPTION_KEY_ENV,
    OPTION_UNMEASURED,
    OPTION_PRINT,
};

static const gv_option options[] = {
    {OPTION_BASE_URL, "base-url", "URL", "Where the server is, as OpenAI's clients take it: http://127.0.0.1:8000/v1."},
    {OPTION_MODEL, "model", "NAME", "The model's name, as the server has it."},
    {OPTION_SESSIONS, "sessions", "N", "How many sessions. The default is 60."},
    {OPTION_ROUNDS, "rounds", "N", "Rounds of a session: a request, a tool call, its result. The default is 4."},
    {OPTION_CTX, "ctx", "N",
     "Lines of context in which the facts stand. The default is the scenario's; the built-in one has 60."},
    {OPTION_MAX_TOKENS, "max-tokens", "N", "The most tokens of an answer. The default is 2500."},
    {OPTION_TIMEOUT, "timeout", "S", "Seconds for one answer, from the request to its end. The default is 240."},
    {OPTION_TAG, "tag", "TEXT", "Names the run, its files and its requests. The default is \"stress\"."},
    {OPTION_SCENARIO, "scenario", "FILE", "Tools, texts and rounds of your own (docs/stress.md describes the YAML)."},
    {OPTION_SEED, "seed", "N", "Another seed gives other sessions. The default is 1."},
    {OPTION_CONCURRENCY, "concurrency", "N", "Sessions at a time. The default is all of them, up to 2000 at a time."},
    {OPTION_NO_STREAM, "no-stream", NULL, "Ask for whole answers, not for streams."},
    {OPTION_TEMPERATURE, "temperature", "X", "Temperature of the load. The default is 0; the baseline's is always 0."},
    {OPTION_THINK, "think", "S[-S]", "Seconds between two rounds of a session; two numbers: drawn between them."},
    {OPTION_RAMP, "ramp", "S", "Start the sessions evenly over so many seconds. The default is 0: at once."},
    {OPTION_BASELINE, "baseline", "WHEN",
     "When sessions are run alone, to tell what load does from what the model does: \"failed\" (those that were wrong, "
     "after the load; the default), \"all\" (before the load) or \"off\"."},
    {OPTION_REFRESH, "refresh", NULL, "Take the baseline anew: the model or its settings have changed."},
    {OPTION_EXACT, "exact", NULL,
     "Call it corruption when a text differs in any way from that of the session run alone. For servers whose answers "
     "do not depend on the batch. Implies --baseline all."},
    {OPTION_CACHE, "cache", "DIR", "Where baselines are kept. The default is gravel/stress in ~/.cache."},
    {OPTION_TRANSCRIPTS, "transcripts", "N",
     "Keep the transcripts of the first N corrupt sessions. The default is 100."},
    {'o', "output", "DIR",
     "Where TAG.json and the folder TAG.transcripts are written. The default is the current folder."},
    {OPTION_BODY, "body", "NAME=JSON",
     "Set a member of each request, or remove it with null. May be given several times."},
    {OPTION_KEY_ENV, "api-key-env", "NAME",
     "The environment variable that holds the bearer key. The default is GRAVEL_API_KEY; without it no key is sent."},
    {OPTION_UNMEASURED, "most-unmeasured", "PCT",
     "Exit with 4 when a larger share of the sessions failed or is unsure. The default is 10 percent."},
    {OPTION_PRINT, "print-scenario", NULL, "Print the built-in scenario, to begin one's own from."},
    {'q', "quiet", NULL, "No progress on standard error."},
};

enum { DEFAULT_CONCURRENCY = 2000, PLAIN_SECONDS = 10 };

typedef struct stress {
    gv_stress_options run;
    const char *scenario_path, *output, *key_env, *cache;
    double most_unmeasured;
    bool lines_given, concurrency_given, quiet, terminal;
    json_t *body;
    gv_scenario *scenario;
    gv_string json_path, transcripts_path;
    char *cache_folder;
    gv_results results;
    double told_seconds; // of the last plain line
    char phase[16];
    bool ended;     // the phase's last line was printed
    bool line_open; // the terminal's progress line has no end yet
} stress;

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    // A second one ends the process as it would have without this handler.
    interrupted = 1;
    signal(signal_number, SIG_DFL);
}

// ---- Options ------------------------------------------------------------------------------------------------------

static bool read_seconds(const gv_parser *parser, const char *name, const char *text, double most, double *out,
                         const char **end)
{
    char *stop;
    errno = 0;
    double value = strtod(text, &stop);
    bool digit = (text[0] >= '0' && text[0] <= '9') || text[0] == '.';
    if (!digit || errno || !(value >= 0 && value <= most) || (*stop && !end)) {
        gv_usage(parser->command, "%s takes a number from 0 to %g, not \"%s\"", name, most, parser->argument);
        return false;
    }
    *out = value;
    if (end)
        *end = stop;
    return true;
}

// "2" or "0.5-2".
static bool read_think(const gv_parser *parser, stress *state)
{
    const char *rest;
    if (!read_seconds(parser, "--think", parser->argument, 3600, &state->run.think_low_s, &rest))
        return false;
    state->run.think_high_s = state->run.think_low_s;
    if (*rest == '-' && !read_seconds(parser, "--think", rest + 1, 3600, &state->run.think_high_s, NULL))
        return false;
    if ((*rest && *rest != '-') || state->run.think_high_s < state->run.think_low_s) {
        gv_usage(parser->command, "--think takes seconds, such as 2 or 0.5-2, not \"%s\"", parser->argument);
        return false;
    }
    return true;
}

static bool read_body(const gv_parser *parser, stress *state)
{
    const char *equals = strchr(parser->argument, '=');
    if (!equals || equals == parser->argument) {
        gv_usage(parser->command, "--body takes NAME=JSON, such as top_k=1, not \"%s\"", parser->argument);
        return false;
    }
    char name[80];
    snprintf(name, sizeof name, "%.*s", (int)(equals - parser->argument), parser->argument);
    if (gv_body_is_ours(name)) {
        gv_usage(parser->command, "--body cannot set \"%s\": the sessions decide it", name);
        return false;
    }
    json_error_t error;
    json_t *value = json_loads(equals + 1, JSON_DECODE_ANY, &error);
    if (!value) {
        gv_usage(parser->command, "--body %s: \"%s\" is no JSON (%s); text needs quotes: --body '%s=\"...\"'", name,
                 equals + 1, error.text, name);
        return false;
    }
    if ((!state->body && !(state->body = json_object())) || json_object_set_new(state->body, name, value) != 0) {
        gv_say("out of memory");
        return false;
    }
    return true;
}

static bool read_baseline(const gv_parser *parser, stress *state)
{
    static const char *const names[] = {"off", "failed", "all"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(parser->argument, names[i]) == 0) {
            state->run.baseline = (gv_baseline_mode)i;
            return true;
        }
    }
    gv_usage(parser->command, "--baseline takes off, failed or all, not \"%s\"", parser->argument);
    return false;
}

static bool read_tag(const gv_parser *parser, stress *state)
{
    const char *text = parser->argument;
    // It names files and a header.
    if (!text[0] || strlen(text) > 40 || text[0] == '.' ||
        text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")]) {
        gv_usage(parser->command, "--tag takes 1 to 40 letters, digits, '.', '_' and '-', not \"%s\"", text);
        return false;
    }
    state->run.tag = text;
    return true;
}

// Whole numbers with a default; one table instead of a case each.
static bool read_count(const gv_parser *parser, int id, stress *state)
{
    uint64_t number;
    gv_stress_options *run = &state->run;
    switch (id) {
    case OPTION_SESSIONS:
        if (!gv_parse_number(parser, "--sessions", 1, 1000000, &number))
            return false;
        run->sessions = number;
        return true;
    case OPTION_ROUNDS:
        if (!gv_parse_number(parser, "--rounds", 1, GV_MOST_ROUNDS, &number))
            return false;
        run->rounds = number;
        return true;
    case OPTION_CTX:
        if (!gv_parse_number(parser, "--ctx", 0, GV_MOST_LINES, &number))
            return false;
        run->lines = number;
        return state->lines_given = true;
    case OPTION_MAX_TOKENS: return gv_parse_number(parser, "--max-tokens", 1, 1000000, &run->most_tokens);
    case OPTION_SEED: return gv_parse_number(parser, "--seed", 0, INT64_MAX, &run->seed);
    case OPTION_CONCURRENCY:
        if (!gv_parse_number(parser, "--concurrency", 1, GV_MOST_CONCURRENCY, &number))
            return false;
        run->concurrency = number;
        return state->concurrency_given = true;
    case OPTION_TRANSCRIPTS:
        if (!gv_parse_number(parser, "--transcripts", 0, 1000000, &number))
            return false;
        run->most_transcripts = number;
        return true;
    default: return true;
    }
}

static bool read_option(const gv_parser *parser, int id, stress *state)
{
    gv_stress_options *run = &state->run;
    double seconds;
    switch (id) {
    case OPTION_BASE_URL: run->base_url = parser->argument; return true;
    case OPTION_MODEL: run->model = parser->argument; return true;
    case OPTION_SCENARIO: state->scenario_path = parser->argument; return true;
    case OPTION_CACHE: state->cache = parser->argument; return true;
    case OPTION_KEY_ENV: state->key_env = parser->argument; return true;
    case 'o': state->output = parser->argument; return true;
    case 'q': return state->quiet = true;
    case OPTION_NO_STREAM: run->stream = false; return true;
    case OPTION_REFRESH: return run->refresh = true;
    case OPTION_EXACT: return run->exact = true;
    case OPTION_TAG: return read_tag(parser, state);
    case OPTION_THINK: return read_think(parser, state);
    case OPTION_BASELINE: return read_baseline(parser, state);
    case OPTION_BODY: return read_body(parser, state);
    case OPTION_RAMP: return read_seconds(parser, "--ramp", parser->argument, 86400, &run->ramp_s, NULL);
    case OPTION_TEMPERATURE:
        return read_seconds(parser, "--temperature", parser->argument, 10, &run->temperature, NULL);
    case OPTION_UNMEASURED:
        return read_seconds(parser, "--most-unmeasured", parser->argument, 100, &state->most_unmeasured, NULL);
    case OPTION_TIMEOUT:
        if (!read_seconds(parser, "--timeout", parser->argument, 86400, &seconds, NULL))
            return false;
        run->timeout_ms = seconds < 0.001 ? 1 : (uint64_t)(seconds * 1000);
        return true;
    default: return read_count(parser, id, state);
    }
}

// Returns -1 to go on, else the exit code.
static int parse(stress *state, gv_parser *parser)
{
    for (int id; (id = gv_parse_next(parser)) != GV_PARSE_END;) {
        if (id == GV_PARSE_HELP)
            return GV_EXIT_NONE;
        if (id == GV_PARSE_BAD)
            return GV_EXIT_USAGE;
        if (id == OPTION_PRINT) {
            fputs(gv_builtin_scenario, stdout);
            return GV_EXIT_NONE;
        }
        if (!read_option(parser, id, state))
            return GV_EXIT_USAGE;
    }
    if (parser->first_operand < parser->argc)
        return gv_usage(parser->command, "\"%s\" is no option; the server is given by --base-url",
                        parser->argv[parser->first_operand]);
    if (!state->run.base_url)
        return gv_usage(parser->command, "say where the server is: --base-url http://127.0.0.1:8000/v1");
    if (!state->run.model)
        return gv_usage(parser->command, "name the model as the server has it: --model NAME");
    size_t bad;
    if (!gv_utf8_check(state->run.model, strlen(state->run.model), &bad) ||
        !gv_utf8_check(state->run.base_url, strlen(state->run.base_url), &bad))
        return gv_usage(parser->command, "--model and --base-url must be UTF-8");
    if (state->run.exact && state->run.temperature > 0)
        return gv_usage(parser->command,
                        "--exact compares with the baseline at temperature 0; leave --temperature out");
    if (state->run.exact)
        state->run.baseline = GV_BASELINE_ALL;
    return -1;
}

// ---- Before the run -----------------------------------------------------------------------------------------------

// Whether a file may be overwritten: there is none, or it is a result of this command.
static bool may_replace(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return errno == ENOENT;
    json_t *root = json_load_file(path, 0, NULL);
    const char *schema = json_string_value(json_object_get(root, "schema"));
    bool ours = status.st_size == 0 || (schema && strcmp(schema, "gravel-stress") == 0);
    json_decref(root);
    return ours;
}

static int prepare_files(stress *state)
{
    gv_string_add(&state->json_path, "%s/%s.json", state->output, state->run.tag);
    gv_string_add(&state->transcripts_path, "%s/%s.transcripts", state->output, state->run.tag);
    if (state->json_path.failed || state->transcripts_path.failed) {
        gv_say("out of memory");
        return GV_EXIT_INPUT;
    }
    gv_error error = {0};
    if (gv_make_folder(state->output, &error) != GV_OK) {
        gv_say("%s; name another folder with --output", error.text);
        return GV_EXIT_INPUT;
    }
    if (access(state->output, W_OK | X_OK) != 0) {
        gv_say("the folder %s cannot be written to: %s; name another with --output", state->output, strerror(errno));
        return GV_EXIT_INPUT;
    }
    if (!may_replace(state->json_path.text)) {
        gv_say("%s is there already and is no result of gravel stress; choose another --tag or --output",
               state->json_path.text);
        return GV_EXIT_USAGE;
    }
    if (state->run.most_transcripts)
        state->run.transcripts = state->transcripts_path.text;
    return -1;
}

static int prepare(stress *state)
{
    gv_error error = {0};
    gv_status status = state->scenario_path ? gv_scenario_load(state->scenario_path, &state->scenario, &error)
                                            : gv_scenario_parse("the built-in scenario", gv_builtin_scenario,
                                                                strlen(gv_builtin_scenario), &state->scenario, &error);
    if (status != GV_OK) {
        gv_say("%s", error.text);
        return status == GV_ERR_IO ? GV_EXIT_INPUT : GV_EXIT_USAGE;
    }
    gv_stress_options *run = &state->run;
    run->scenario = state->scenario;
    run->body = state->body;
    if (!state->lines_given)
        run->lines = state->scenario->lines;
    if (!state->concurrency_given)
        run->concurrency = run->sessions < DEFAULT_CONCURRENCY ? run->sessions : DEFAULT_CONCURRENCY;
    if (run->concurrency > run->sessions)
        run->concurrency = run->sessions;

    const char *variable = state->key_env ? state->key_env : "GRAVEL_API_KEY";
    run->key = getenv(variable);
    if (run->key && !run->key[0])
        run->key = NULL;
    if (state->key_env && !run->key) {
        gv_say("the environment variable %s, named by --api-key-env, is not set or is empty", variable);
        return GV_EXIT_USAGE;
    }
    state->cache_folder = state->cache ? gv_strdup(state->cache) : gv_baseline_folder();
    run->cache = state->cache_folder;
    return prepare_files(state);
}

// ---- Progress -----------------------------------------------------------------------------------------------------

static void progress(void *context, const gv_progress *now)
{
    stress *state = context;
    bool same = strcmp(state->phase, now->phase) == 0;
    bool ended = now->sessions_done == now->sessions;
    if (same && ended && state->ended)
        return;
    if (!state->terminal && same && !ended && now->seconds - state->told_seconds < PLAIN_SECONDS)
        return;
    state->ended = ended;
    snprintf(state->phase, sizeof state->phase, "%s", now->phase);
    state->told_seconds = now->seconds;
    fprintf(
        stderr,
        "%s%-8s %7.1f s  %zu of %zu sessions, %zu at work, %llu rounds, %.0f tokens/s; %zu corrupt, %zu failed, %zu "
        "unsure%s",
        state->terminal ? "\r\033[K" : "", now->phase, now->seconds, now->sessions_done, now->sessions, now->running,
        (unsigned long long)now->rounds, now->seconds > 0 ? (double)now->tokens / now->seconds : 0, now->corrupt,
        now->failed, now->unsure, state->terminal && !ended ? "" : "\n");
    fflush(stderr);
    state->line_open = state->terminal && !ended;
}

// ---- After the run ------------------------------------------------------------------------------------------------

static int write_json(stress *state, const gv_summary *summary, int code)
{
    char *text = gv_summary_json(&state->run, &state->results, summary, code);
    FILE *file = text ? fopen(state->json_path.text, "w") : NULL;
    bool written = file && fputs(text, file) >= 0 && fputc('\n', file) != EOF;
    written = file && fclose(file) == 0 && written;
    if (!text)
        gv_say("out of memory while %s was written", state->json_path.text);
    else if (!written)
        gv_say("%s cannot be written: %s", state->json_path.text, strerror(errno));
    gv_free(text);
    return written ? code : GV_EXIT_INPUT;
}

// What to do about a run that measured nothing: the reason that most sessions met.
static void advise(const stress *state, const gv_summary *summary)
{
    size_t most = 0;
    gv_reason reason = GV_REASON_COUNT;
    for (unsigned i = 0; i < GV_REASON_COUNT; i++) {
        gv_class class_ = gv_reason_class((gv_reason)i);
        if ((class_ == GV_CLASS_FAILURE || class_ == GV_CLASS_UNSURE) && summary->reasons[i].sessions > most) {
            most = summary->reasons[i].sessions;
            reason = (gv_reason)i;
        }
    }
    gv_say("%zu of %zu sessions could be measured: too few to call the server clean (--most-unmeasured %g)%s%s%s",
           summary->measured, state->results.sessions, state->most_unmeasured,
           reason == GV_REASON_COUNT ? "" : "; most often: ", reason == GV_REASON_COUNT ? "" : gv_reason_id(reason),
           reason == GV_REASON_ALONE_TOO ? ": the model is wrong without load too; give it an easier scenario" : "");
}

static int report(stress *state)
{
    gv_error error = {0};
    gv_summary summary;
    if (gv_summarise(&state->results, &summary, &error) != GV_OK) {
        gv_say("%s", error.text);
        return GV_EXIT_INPUT;
    }
    int code = GV_EXIT_NONE;
    if (summary.classes[GV_CLASS_CORRUPTION])
        code = GV_EXIT_FINDINGS;
    else if (gv_summary_unmeasured(&summary, &state->results, state->most_unmeasured))
        code = GV_EXIT_UNMEASURED;
    if (state->line_open)
        fputc('\n', stderr);
    int written = write_json(state, &summary, code);
    gv_summary_text(stdout, &state->run, &state->results, &summary);
    if (fflush(stdout) != 0) {
        gv_say("the report cannot be written: %s", strerror(errno));
        return GV_EXIT_INPUT;
    }
    if (code == GV_EXIT_UNMEASURED)
        advise(state, &summary);
    return written;
}

static int measure(stress *state)
{
    gv_error error = {0};
    struct sigaction action = {.sa_handler = on_interrupt};
    // A TLS connection that the server closed would end the process: libcurl leaves that signal to its caller.
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before_int, before_term, before_pipe;
    sigaction(SIGINT, &action, &before_int);
    sigaction(SIGTERM, &action, &before_term);
    sigaction(SIGPIPE, &ignore, &before_pipe);
    state->run.interrupted = &interrupted;
    state->terminal = isatty(STDERR_FILENO) != 0;
    if (!state->quiet) {
        state->run.progress = progress;
        state->run.progress_context = state;
    }
    gv_status status = gv_stress_run(&state->run, &state->results, &error);
    sigaction(SIGINT, &before_int, NULL);
    sigaction(SIGTERM, &before_term, NULL);
    sigaction(SIGPIPE, &before_pipe, NULL);
    if (status == GV_OK)
        return -1;
    if (state->line_open)
        fputc('\n', stderr);
    gv_say("%s", error.text);
    return status == GV_ERR_USAGE || status == GV_ERR_LIMIT || status == GV_ERR_FORMAT ? GV_EXIT_USAGE : GV_EXIT_INPUT;
}

static void release(stress *state)
{
    gv_results_free(&state->results);
    gv_scenario_free(state->scenario);
    json_decref(state->body);
    gv_string_free(&state->json_path);
    gv_string_free(&state->transcripts_path);
    gv_free(state->cache_folder);
}

static int run(const gv_command *command, int argc, char **argv)
{
    stress state = {.output = ".",
                    .most_unmeasured = 10,
                    .run = {.seed = 1,
                            .sessions = 60,
                            .rounds = 4,
                            .most_tokens = 2500,
                            .timeout_ms = 240000,
                            .stream = true,
                            .baseline = GV_BASELINE_FAILED,
                            .most_transcripts = 100,
                            .tag = "stress"}};
    gv_parser parser = gv_parser_open(command, argc, argv);
    int code = parse(&state, &parser);
    if (code < 0)
        code = prepare(&state);
    if (code < 0)
        code = measure(&state);
    if (code < 0)
        code = report(&state);
    release(&state);
    return code;
}

const gv_command gv_command_stress = {
    .name = "stress",
    .summary = "Run agent sessions against a server and count the corrupt ones",
    .synopsis = "--base-url URL --model NAME [OPTION...]",
    .about = "Runs many agent sessions of several rounds at a time against an OpenAI-compatible server. The right tool "
             "call of every round is known, so that an answer with HTTP 200 and a wrong call is told from a right one, "
             "and both from a failure of the server. Prints how many sessions were corrupt, with the 95 % interval.",
    GV_OPTIONS(options),
    .closing = "Exit code: 0 no corruption, 1 corruption, 2 wrong usage or scenario, 3 a file cannot be read or\n"
               "written, 4 too few sessions could be measured to tell.\n\n"
               "Example:\n"
               "  gravel stress --base-url http://127.0.0.1:30001/v1 --model deepseek --sessions 60 --rounds 4 \\\n"
               "      --ctx 300 --max-tokens 2500 --timeout 240 --tag clean60\n",
    .run = run,
};
