// gravel run: runs a program with the recorder in it, then adds source lines to what was recorded.
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/inputs.h"
#include "cli/install.h"
#include "cli/launch.h"
#include "cli/outputs.h"
#include "cli/run_fix.h"
#include "cli/symbolise.h"
#include "detect/detect.h"
#include "detect/elements.h"
#include "record/pattern.h"
#include "report/format.h"
#include "report/report.h"
#include "trace/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OPTION_SOFT = 256,
    OPTION_ARM,
    OPTION_GRAPH,
    OPTION_EXITCODE,
    OPTION_NO_STACKS,
    OPTION_PROBE,
    OPTION_PROBE_MEMORY,
    OPTION_DIFF,
    OPTION_DIFF_DTYPE,
    OPTION_DIFF_TOLERANCE,
    OPTION_FIX,
    OPTION_LEAVE_OUT,
    OPTION_PAD,
    OPTION_POISON,
    OPTION_TIMES,
    OPTION_CANARY,
    OPTION_CANARY_REGION,
    OPTION_CHECKSUMS
};

static const gv_option options[] = {
    {'o', "output", "FILE",
     "Where the trace goes. %p in FILE becomes the process id. Without %p the first process that uses CUDA writes FILE "
     "and "
     "each further one FILE.PID.gravel. The default is gravel.%p.gravel."},
    {OPTION_SOFT, "soft", NULL, "Use gravel's software driver in place of the GPU's."},
    {OPTION_ARM, "arm", "WHEN",
     "Which launches of each graph to record access by access: first (the default), N (the N-th), every=K, all, or "
     "none."},
    {OPTION_GRAPH, "graph", "NAME", "Arm only graphs with this number, or with a kernel whose name contains NAME."},
    {OPTION_DIFF, "diff", "[=WHEN]",
     "Compare launches of each graph with serial replays of its nodes on the same memory: the first, or with "
     "--diff=every=K every K-th. The program gets the graph's own result. Unless --arm is given too, no accesses are "
     "recorded."},
    {OPTION_DIFF_DTYPE, "diff-dtype", "[NAME=]TYPE",
     "Differing bytes are elements of TYPE: f64, f32, f16, bf16, f8e4m3, f8e5m2, i64, i32, i16, i8, u32 or u8. "
     "With NAME those of kernels and allocations whose name contains NAME. May be given several times."},
    {OPTION_DIFF_TOLERANCE, "diff-tolerance", "HOW",
     "Which elements count as different: bitwise (the default), ulp=N (more than N units in the last place apart), or "
     "relative=X."},
    {OPTION_EXITCODE, "error-exitcode", "N",
     "Check what was recorded at the end, print the report to standard error, and exit with N if something was "
     "found: a race, or a difference that is laid to order."},
    {OPTION_NO_STACKS, "no-stacks", NULL, "Do not record call stacks: cheaper, but reports name no source lines."},
    {OPTION_PAD, "pad", "[=WHEN]",
     "Repeat launches that have padded rows (gravel_rows of gravel.h) with other padding: the first of each graph, or "
     "with --pad=every=K every K-th. Real rows must not change. Unless --arm is given too, no accesses are recorded."},
    {OPTION_POISON, "poison", "[=WHEN]",
     "Repeat launches with memory poisoned that they have to write before they read it (gravel_scratch of gravel.h, "
     "and "
     "memory allocated during captures): the first of each graph, or with --poison=every=K every K-th. Unless --arm is "
     "given too, no accesses are recorded."},
    {OPTION_PROBE, "probe", NULL,
     "Let the program clone tensors in the graphs it captures and compare them with what it computes eagerly "
     "(gravel_probe of gravel.h)."},
    {OPTION_PROBE_MEMORY, "probe-memory", "MIB", "Most device memory for these clones; 256 if not given."},
    {OPTION_TIMES, "times", NULL,
     "Behind each armed launch, run the graph's next launch one node at a time without recording, for how long each "
     "node "
     "takes: gravel fix reckons costs with these times."},
    {OPTION_FIX, "fix", "FILE",
     "Add the edges of this fix file (gravel fix) to the program's graphs. Without --arm no launch is armed, and the "
     "traces have the graphs alone."},
    {OPTION_LEAVE_OUT, "fix-leave-out", "N",
     "With --fix: leave the N-th edge of the file out, to see whether it is needed."},
    {OPTION_CANARY, "canary", "[=HOW]",
     "Hash the pages of regions between steps and report those that changed although nothing had declared that they "
     "would (gravel.h). HOW: log (the default), abort at the first one, or record (from the first one on record all "
     "that runs, to name who writes at the next); every=K hashes after every K-th step only."},
    {OPTION_CANARY_REGION, "canary-region", "PATTERN",
     "With --canary, also watch allocations that match: size=N..M, name=TEXT, stack=TEXT, page=N, separated by commas; "
     "const: in front means that nothing may change them. May be given several times."},
    {OPTION_CHECKSUMS, "checksums", NULL, "Keep the hashes of all declared regions in the trace, for gravel diff."},
    {'v', "verbose", NULL, "Let the recorder say what it does."},
};

typedef struct run_options {
    const char *output, *arm, *graph, *diff, *tolerance, *pad, *poison;
    gv_string dtypes; // NAME=TYPE, one a line
    bool soft, stacks, verbose, light, times;
    uint64_t error_exitcode; // 0: not given
    bool probe;
    uint64_t probe_memory; // MiB; 0: not given
    gv_run_fix fix;
    const char *canary; // NULL: not asked for
    gv_string canary_regions;
    bool checksums;
    gv_install install;
    gv_outputs outputs;
    char **program;
} run_options;

// ---- Before the run -----------------------------------------------------------------------------------------------

static bool valid_arm(const char *text)
{
    static const char *const words[] = {"first", "all", "none"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(text, words[i]) == 0)
            return true;
    }
    const char *number = strncmp(text, "every=", 6) == 0 ? text + 6 : text;
    size_t length = strspn(number, "0123456789");
    return length && length < 19 && !number[length] && strtoull(number, NULL, 10) > 0;
}

// "every=K", or "first".
static bool valid_diff(const char *text)
{
    return strcmp(text, "first") == 0 || (strncmp(text, "every=", 6) == 0 && valid_arm(text));
}

static int add_dtype(run_options *run, const gv_parser *parser)
{
    const char *equals = strrchr(parser->argument, '='), *type = equals ? equals + 1 : parser->argument;
    gv_dtype known;
    if (!gv_dtype_parse(type, &known) || strchr(parser->argument, '\n'))
        return gv_usage(parser->command, "--diff-dtype takes TYPE or NAME=TYPE, and there is no type \"%s\"", type);
    gv_string_add(&run->dtypes, equals ? "%s\n" : "=%s\n", parser->argument);
    return -1;
}

static int parse_diff(run_options *run, int id, const gv_parser *parser)
{
    gv_tolerance tolerance;
    if (id == OPTION_DIFF_DTYPE)
        return add_dtype(run, parser);
    if (id == OPTION_DIFF) {
        run->diff = parser->argument ? parser->argument : "first";
        if (!valid_diff(run->diff))
            return gv_usage(parser->command, "--diff takes first or every=K, not \"%s\"", run->diff);
        return -1;
    }
    run->tolerance = parser->argument;
    if (!gv_tolerance_parse(run->tolerance, &tolerance))
        return gv_usage(parser->command, "--diff-tolerance takes bitwise, ulp=N or relative=X, not \"%s\"",
                        run->tolerance);
    return -1;
}

static bool valid_canary(const char *text)
{
    for (const char *at = text;;) {
        size_t length = strcspn(at, ",");
        bool word = (length == 3 && strncmp(at, "log", 3) == 0) || (length == 5 && strncmp(at, "abort", 5) == 0) ||
                    (length == 6 && strncmp(at, "record", 6) == 0);
        size_t digits = length > 6 && strncmp(at, "every=", 6) == 0 ? strspn(at + 6, "0123456789") : 0;
        if (!word && !(digits && digits < 19 && 6 + digits == length && strtoull(at + 6, NULL, 10) > 0))
            return false;
        if (!at[length])
            return true;
        at += length + 1;
    }
}

// Returns -1 to go on, else the exit code.
static int parse(run_options *run, gv_parser *parser)
{
    for (int id; (id = gv_parse_next(parser)) != GV_PARSE_END;) {
        switch (id) {
        case GV_PARSE_HELP: return GV_EXIT_NONE;
        case GV_PARSE_BAD: return GV_EXIT_USAGE;
        case 'o': run->output = parser->argument; break;
        case OPTION_SOFT: run->soft = true; break;
        case OPTION_ARM:
            if (!valid_arm(parser->argument))
                return gv_usage(parser->command, "--arm takes first, a number from 1, every=K, all or none, not \"%s\"",
                                parser->argument);
            run->arm = parser->argument;
            break;
        case OPTION_GRAPH: run->graph = parser->argument; break;
        case OPTION_EXITCODE:
            if (!gv_parse_number(parser, "--error-exitcode", 1, 255, &run->error_exitcode))
                return GV_EXIT_USAGE;
            break;
        case OPTION_NO_STACKS: run->stacks = false; break;
        case OPTION_PAD:
        case OPTION_POISON: {
            const char *when = parser->argument ? parser->argument : "first";
            if (!valid_diff(when))
                return gv_usage(parser->command, "--%s takes first or every=K, not \"%s\"",
                                id == OPTION_PAD ? "pad" : "poison", when);
            *(id == OPTION_PAD ? &run->pad : &run->poison) = when;
            break;
        }
        case OPTION_PROBE: run->probe = true; break;
        case OPTION_PROBE_MEMORY:
            if (!gv_parse_number(parser, "--probe-memory", 1, 1u << 24, &run->probe_memory))
                return GV_EXIT_USAGE;
            break;
        case OPTION_DIFF:
        case OPTION_DIFF_DTYPE:
        case OPTION_DIFF_TOLERANCE: {
            int code = parse_diff(run, id, parser);
            if (code >= 0)
                return code;
            break;
        }
        case OPTION_TIMES: run->times = true; break;
        case OPTION_FIX: run->fix.file = parser->argument; break;
        case OPTION_LEAVE_OUT:
            if (!gv_parse_number(parser, "--fix-leave-out", 1, UINT32_MAX, &run->fix.left_out))
                return GV_EXIT_USAGE;
            break;
        case OPTION_CANARY:
            run->canary = parser->argument ? parser->argument : "log";
            if (!valid_canary(run->canary))
                return gv_usage(parser->command, "--canary takes log, abort, record and every=K (K from 1), not \"%s\"",
                                run->canary);
            break;
        case OPTION_CANARY_REGION: {
            gv_pattern pattern;
            const char *why;
            if (!gv_pattern_parse(parser->argument, strlen(parser->argument), &pattern, &why))
                return gv_usage(parser->command, "--canary-region \"%s\": %s", parser->argument, why);
            gv_string_add(&run->canary_regions, "%s\n", parser->argument);
            break;
        }
        case OPTION_CHECKSUMS: run->checksums = true; break;
        case 'v': run->verbose = true; break;
        default: break;
        }
    }
    if (!run->diff && (run->tolerance || run->dtypes.length))
        return gv_usage(parser->command, "--diff-dtype and --diff-tolerance say how to compare: give --diff too");
    if (parser->first_operand >= parser->argc)
        return gv_usage(parser->command, "name the program to run, after --");
    if (run->canary_regions.length && !run->canary)
        return gv_usage(parser->command, "--canary-region needs --canary");
    if (run->fix.left_out && !run->fix.file)
        return gv_usage(parser->command, "--fix-leave-out needs --fix");
    // With a fix file alone nothing is to be found out, only to be put right.
    run->light = run->fix.file && !run->arm && !run->error_exitcode && !run->probe && !run->diff && !run->pad &&
                 !run->poison && !run->times && !run->canary && !run->checksums;
    // What is not asked for must not be loaded: the differential, padding checks and poison need no accesses.
    if (!run->arm)
        run->arm = run->light || run->diff || run->pad || run->poison ? "none" : "first";
    if (run->times && strcmp(run->arm, "none") == 0)
        return gv_usage(parser->command, "--times is about launches behind armed ones: give --arm with it");
    run->program = parser->argv + parser->first_operand;
    return -1;
}

static int find_libraries(run_options *run)
{
    gv_install_find(&run->install);
    const char *missing = !run->install.record[0]                  ? "libgravel-record.so"
                          : !run->install.audit[0]                 ? "libgravel-audit.so"
                          : run->soft && !run->install.soft_dir[0] ? "soft/libcuda.so.1"
                                                                   : NULL;
    if (!missing && !strpbrk(run->install.record, " :") && !strchr(run->install.audit, ':'))
        return -1;
    if (!missing) {
        gv_say(
            "gravel's libraries are in a folder whose name has a blank or a colon, %s, which LD_PRELOAD cannot carry. "
            "Move them, or set GRAVEL_LIBDIR to another folder that has them.",
            run->install.record);
        return GV_EXIT_OWN;
    }
    gv_say(
        "%s was not found (looked in: %s). Build or install gravel as a whole, or set GRAVEL_LIBDIR to the folder that "
        "has it.",
        missing, run->install.tried);
    return GV_EXIT_OWN;
}

// Puts `value` in front of a list that programs and the dynamic linker split at colons.
static void prepend(const char *name, const char *value)
{
    const char *before = getenv(name);
    if (!before || !*before) {
        setenv(name, value, 1);
        return;
    }
    size_t length = strlen(value);
    if (strncmp(before, value, length) == 0 && (before[length] == ':' || !before[length]))
        return; // a gravel run inside a gravel run
    gv_string joined = {0};
    gv_string_add(&joined, "%s:%s", value, before);
    if (!joined.failed)
        setenv(name, gv_string_text(&joined), 1);
    gv_string_free(&joined);
}

// In the child, before the program. What the recorder reads is described in gravel-run(1), under ENVIRONMENT.
static void prepare(void *user)
{
    const run_options *run = user;
    prepend("LD_AUDIT", run->install.audit);
    prepend("LD_PRELOAD", run->install.record);
    if (run->soft)
        prepend("LD_LIBRARY_PATH", run->install.soft_dir);
    else
        setenv("CUDA_INJECTION64_PATH", run->install.record, 0);
    setenv("GRAVEL_TRACE", run->outputs.pattern, 1);
    setenv("GRAVEL_ARM", run->arm, 1);
    setenv("GRAVEL_PAD", run->pad ? run->pad : "none", 1);
    setenv("GRAVEL_POISON", run->poison ? run->poison : "none", 1);
    setenv("GRAVEL_DIFF", run->diff ? run->diff : "none", 1);
    setenv("GRAVEL_DIFF_DTYPES", gv_string_text(&run->dtypes), 1);
    setenv("GRAVEL_DIFF_TOLERANCE", run->tolerance ? run->tolerance : "", 1);
    setenv("GRAVEL_GRAPH", run->graph ? run->graph : "", 1);
    setenv("GRAVEL_STACKS", run->stacks ? "1" : "0", 1);
    if (run->probe)
        setenv("GRAVEL_PROBE", "1", 1);
    if (run->probe_memory) {
        char text[32];
        snprintf(text, sizeof text, "%" PRIu64, run->probe_memory);
        setenv("GRAVEL_PROBE_MEMORY", text, 1);
    }
    setenv("GRAVEL_TIMES", run->times ? "1" : "0", 1);
    setenv("GRAVEL_FIX", run->fix.prepared, 1);
    setenv("GRAVEL_LIGHT", run->light ? "1" : "0", 1);
    if (run->canary)
        setenv("GRAVEL_CANARY", run->canary, 1);
    if (run->canary_regions.length)
        setenv("GRAVEL_CANARY_REGIONS", gv_string_text(&run->canary_regions), 1);
    if (run->checksums)
        setenv("GRAVEL_CHECKSUMS", "1", 1);
    setenv("GRAVEL_VERBOSE", run->verbose ? "1" : "0", 1);
}

static void tell_injection(const run_options *run)
{
    const char *set = getenv("CUDA_INJECTION64_PATH");
    if (!run->soft && set && *set && strcmp(set, run->install.record) != 0)
        gv_say("CUDA_INJECTION64_PATH is set to %s and was left so: that tool is loaded, and gravel cannot see what "
               "kernels "
               "access. Unset it to record them.",
               set);
}

// ---- After the run ------------------------------------------------------------------------------------------------

static int not_started(const run_options *run, const gv_launch_result *result)
{
    const char *program = run->program[0];
    if (result->fork_errno) {
        gv_say("no process could be started: %s", strerror(result->fork_errno));
        return GV_EXIT_OWN;
    }
    if (result->exec_errno == ENOENT || result->exec_errno == ENOTDIR) {
        gv_say(strchr(program, '/') ? "%s: there is no such program, or the interpreter its first line names is missing"
                                    : "%s: no such program in PATH; name a file with its folder (./%s)",
               program, program);
        return GV_EXIT_NOT_FOUND;
    }
    gv_say("%s: cannot be executed: %s%s", program, strerror(result->exec_errno),
           result->exec_errno == EACCES ? "; is it a program, and executable for you (chmod +x)?" : "");
    return GV_EXIT_NOT_EXECUTABLE;
}

// The process that wrote the trace, or 0.
static pid_t writer_of(const char *path)
{
    gv_reader *reader = NULL;
    gv_record record;
    bool more = true;
    pid_t pid = 0;
    if (gv_reader_open(path, &reader, NULL) != GV_OK)
        return 0;
    if (gv_reader_next(reader, &record, &more, NULL) == GV_OK && more && record.type == GV_RECORD_process)
        pid = (pid_t)record.process.pid;
    gv_reader_close(reader);
    return pid;
}

// Is the process there and more than a corpse that nobody has collected?
static bool still_runs(pid_t pid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = pid > 0 ? fopen(path, "re") : NULL;
    if (!file)
        return false;
    bool runs = false;
    if (fgets(line, sizeof line, file)) {
        // "812 (name) S ...": the name may hold anything, the last parenthesis ends it.
        const char *state = strrchr(line, ')');
        runs = state && state[1] == ' ' && state[2] != 'Z' && state[2] != 'X';
    }
    fclose(file);
    return runs;
}

static void add_lines(const run_options *run, const gv_output *output)
{
    pid_t writer = writer_of(output->path);
    if (still_runs(writer)) {
        gv_say(
            "%s: process %d still writes to it, so lines of compiled code were not added; the report names addresses "
            "instead",
            output->shown, (int)writer);
        return;
    }
    gv_symbolise_result result;
    gv_error error = {0};
    if (gv_symbolise(output->path, &result, &error) != GV_OK)
        gv_say("%s", error.text);
    else if (run->verbose)
        gv_say("%s: of %s, %s have a function and %s a line; %s changed since, %s gone", output->shown,
               gv_count(result.frames, "frame of compiled code", "frames of compiled code"),
               gv_number(result.functions), gv_number(result.lines),
               gv_count(result.changed, "binary was", "binaries were"), gv_count(result.unreadable, "is", "are"));
}

typedef struct totals {
    size_t graphs, recorded, refused, compared, differing, not_compared;
    size_t repeated, effects, not_repeated; // with other padding or poison
    size_t regions, hashes, outside; // hashed regions, their hashes, and those with pages that were not to change
} totals;

static void count_trace(const gv_trace *trace, totals *sum)
{
    for (size_t i = 1; i < trace->graph_count; i++)
        sum->graphs += trace->graphs[i].id && trace->graphs[i].origin != GV_GRAPH_CHILD &&
                       trace->graphs[i].origin != GV_GRAPH_BODY;
    for (size_t i = 0; i < trace->armed_count; i++) {
        sum->recorded += trace->armed[i].status == GV_ARMED_COMPLETE;
        sum->refused += trace->armed[i].status != GV_ARMED_COMPLETE;
    }
    for (size_t i = 0; i < trace->checked_count; i++) {
        bool compared = trace->checked[i].status == GV_CHECKED_COMPARED;
        sum->compared += compared;
        sum->not_compared += !compared;
        sum->differing += compared && trace->checked[i].different_bytes;
    }
    for (size_t i = 0; i < trace->perturbed_count; i++) {
        sum->repeated += trace->perturbed[i].status == GV_PERTURBED_CHECKED;
        sum->not_repeated += trace->perturbed[i].status != GV_PERTURBED_CHECKED;
    }
    sum->effects += trace->effect_count;
    for (size_t i = 1; i < trace->region_count; i++)
        sum->regions += trace->regions[i].page_bytes != 0;
    for (size_t i = 0; i < trace->region_step_count; i++) {
        sum->hashes += trace->region_steps[i].state != GV_REGION_UNHASHED;
        sum->outside += trace->region_steps[i].outside != 0;
    }
}

static void tell_traces(const run_options *run, const totals *sum)
{
    enum { NAMED = 4 };
    const gv_outputs *outputs = &run->outputs;
    gv_string names = {0};
    for (size_t i = 0; i < outputs->count && i < NAMED; i++)
        gv_string_add(&names, "%s%s", i ? " " : "", outputs->items[i].shown);
    if (outputs->count > NAMED)
        gv_string_add(&names, " and %s more", gv_number(outputs->count - NAMED));
    gv_string text = {0};
    gv_string_add(&text, "%s: %s, %s recorded", gv_string_text(&names), gv_count(sum->graphs, "graph", "graphs"),
                  gv_count(sum->recorded, "launch", "launches"));
    if (sum->refused)
        gv_string_add(&text, ", %s that could not be", gv_number(sum->refused));
    if (sum->graphs && !sum->recorded && !sum->refused && strcmp(run->arm, "none") != 0)
        gv_string_add(&text, " (no graph was launched as often as --arm %s asks%s)", run->arm,
                      run->graph ? ", or --graph names none" : "");
    if (run->diff) {
        gv_string_add(&text, "; %s compared with a serial replay, %s", gv_count(sum->compared, "launch", "launches"),
                      gv_number(sum->differing));
        gv_string_add(&text, sum->differing == 1 ? " differs" : " differ");
        if (sum->not_compared)
            gv_string_add(&text, ", %s NOT compared", gv_number(sum->not_compared));
    }
    if (run->pad || run->poison) {
        gv_string_add(&text, "; %s repeated with other %s", gv_count(sum->repeated, "launch", "launches"),
                      !run->poison ? "padding"
                      : !run->pad  ? "scratch memory"
                                   : "padding or scratch memory");
        gv_string_add(&text, ", %s", gv_count(sum->effects, "effect", "effects"));
        if (sum->not_repeated)
            gv_string_add(&text, ", %s NOT checked", gv_number(sum->not_repeated));
    }
    if (run->canary || run->checksums) {
        gv_string_add(&text, "; %s hashed ", gv_count(sum->regions, "region", "regions"));
        gv_string_add(&text, "%s", gv_count(sum->hashes, "time", "times"));
        if (run->canary)
            gv_string_add(&text, ", pages changed against what was declared in %s", gv_number(sum->outside));
        if (!sum->regions)
            gv_string_add(&text, " (the program declares none: docs/canary.md)");
    }
    gv_say("%s", gv_string_text(&text));
    if (!run->error_exitcode && !run->light) {
        gv_string_clear(&text);
        for (size_t i = 0; i < outputs->count && i < NAMED; i++)
            gv_string_add(&text, " %s", outputs->items[i].shown);
        gv_say("next: gravel check%s%s", gv_string_text(&text), outputs->count > NAMED ? " ..." : "");
    }
    gv_string_free(&text);
    gv_string_free(&names);
}

// Loads the traces for the closing lines and, with --error-exitcode, checks them. Returns whether there is a race.
static bool read_back(run_options *run, totals *sum)
{
    const gv_outputs *outputs = &run->outputs;
    gv_inputs inputs = {0};
    gv_findings findings = {0};
    gv_error error = {0};
    bool found = false;
    for (size_t i = 0; i < outputs->count; i++) {
        char *path = outputs->items[i].shown;
        if (!gv_inputs_load(&inputs, &path, 1))
            continue;
        const gv_trace *trace = inputs.traces[inputs.trace_count - 1];
        if (run->fix.file)
            gv_run_fix_count(&run->fix, trace);
        count_trace(trace, sum);
    }
    if (run->error_exitcode && inputs.trace_count) {
        gv_status status = gv_inputs_find(&inputs, &findings, &error);
        if (status == GV_OK)
            status =
                gv_report_text(stderr, inputs.traces, inputs.trace_count, &findings, &(gv_report_options){0}, &error);
        if (status != GV_OK)
            gv_say("%s", error.text);
        found = gv_findings_races(&findings) > 0;
    }
    gv_findings_free(&findings);
    gv_inputs_free(&inputs);
    return found;
}

// Everything after the program has ended. Returns whether a race was found.
static bool finish(run_options *run)
{
    gv_error error = {0};
    if (gv_outputs_collect(&run->outputs, &error) != GV_OK)
        gv_say("%s", error.text);
    if (!run->outputs.count) {
        gv_say(
            "no trace was written: the program made no CUDA call that gravel saw. If it does use CUDA, it must be "
            "dynamically linked, not set-uid, and must leave LD_PRELOAD and LD_AUDIT as they are; `gravel doctor` says "
            "what else may be missing.");
        return false;
    }
    for (size_t i = 0; i < run->outputs.count; i++)
        add_lines(run, &run->outputs.items[i]);
    totals sum = {0};
    bool found = read_back(run, &sum);
    tell_traces(run, &sum);
    if (run->fix.file)
        gv_run_fix_tell(&run->fix);
    return found;
}

static int run_program(const gv_command *command, int argc, char **argv)
{
    static run_options run; // large: paths
    run = (run_options){.stacks = true};
    gv_parser parser = gv_parser_open(command, argc, argv);
    int code = parse(&run, &parser);
    if (code < 0)
        code = find_libraries(&run);
    if (code >= 0)
        return code;
    gv_error error = {0};
    if (gv_outputs_prepare(&run.outputs, run.output, &error) != GV_OK) {
        gv_say("%s", error.text);
        return error.status == GV_ERR_USAGE ? GV_EXIT_USAGE : GV_EXIT_OWN;
    }
    if (run.fix.file && gv_run_fix_prepare(&run.fix, run.outputs.folder, &error) != GV_OK) {
        gv_say("%s", error.text);
        gv_run_fix_close(&run.fix);
        gv_outputs_free(&run.outputs);
        return error.status == GV_ERR_USAGE ? GV_EXIT_USAGE : GV_EXIT_OWN;
    }
    tell_injection(&run);
    gv_launch_result result = gv_launch(run.program, prepare, &run);
    bool found = false;
    if (result.fork_errno || result.exec_errno)
        code = not_started(&run, &result);
    else
        found = finish(&run);
    gv_run_fix_close(&run.fix);
    gv_outputs_free(&run.outputs);
    gv_string_free(&run.canary_regions);
    if (found)
        return (int)run.error_exitcode;
    return code >= 0 ? code : gv_end_alike(&result);
}

const gv_command gv_command_run = {
    .name = "run",
    .summary = "Run a program and record what its CUDA graphs do",
    .synopsis = "[OPTION...] -- PROGRAM [ARGUMENT...]",
    .about =
        "Runs PROGRAM with gravel's recorder in it. The program needs no change. Every graph it makes is recorded with "
        "its nodes, edges and call stacks; of the launches chosen by --arm also which bytes each node reads and "
        "writes. Such a launch runs its nodes one after the other and takes longer.",
    GV_OPTIONS(options),
    .closing = "Exit code: that of PROGRAM, or N with --error-exitcode; 125 when gravel itself fails, 126\n"
               "when PROGRAM cannot be executed, 127 when there is none, 2 for wrong usage. A signal that ends\n"
               "PROGRAM ends gravel too.\n\n"
               "Example:\n"
               "  gravel run -o t.gravel -- python serve.py\n",
    .stops_at_operand = true,
    .run = run_program,
};
