#include "cli/fix_verify.h"

#include "base/memory.h"
#include "cli/cli.h"
#include "cli/inputs.h"
#include "cli/launch.h"
#include "cli/run_fix.h"
#include "fix/fix_file.h"
#include "report/format.h"
#include "report/json_writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum result { HOLDS, FAILS, UNKNOWN, NOT_ASKED };

// One row of the table.
typedef struct check {
    char name[80];
    uint64_t edge; // that is left out, from 1; 0: none
    enum result result;
    gv_string detail;
} check;

// What one run left behind.
typedef struct outcome {
    gv_launch_result end;
    gv_trace **traces;
    size_t trace_count, trace_capacity;
    gv_findings findings;
    size_t races, observed, incomplete; // that are not suppressed
    const char *first;                  // id of the first race or observed finding
    const char *gap;                    // reason of the first incompleteness
    gv_run_fix fix;                     // which graphs of the file were met
} outcome;

typedef struct verify {
    const gv_fix_verify *asked;
    gv_fix_file file;
    uint64_t edges;
    char folder[PATH_MAX];
    char log[PATH_MAX];
    check *checks;
    size_t check_count, check_capacity;
    size_t runs;
    bool failed; // memory ran out
} verify;

// ---- Runs ---------------------------------------------------------------------------------------------------------

static void write_to_log(void *user)
{
    const verify *v = user;
    int log = open(v->log, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    if (log >= 0) {
        dup2(log, STDOUT_FILENO);
        dup2(log, STDERR_FILENO);
    }
}

static void forget(outcome *o)
{
    gv_findings_free(&o->findings);
    for (size_t i = 0; i < o->trace_count; i++)
        gv_trace_free(o->traces[i]);
    gv_free(o->traces);
    gv_free(o->fix.outcome);
    *o = (outcome){0};
}

// Loads the traces of the run and detects. A trace that cannot be read counts as an incompleteness.
static void look(verify *v, outcome *o)
{
    char prefix[32];
    gv_error error = {0};
    snprintf(prefix, sizeof prefix, "run%zu.", v->runs);
    DIR *folder = opendir(v->folder);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[PATH_MAX + NAME_MAX + 2];
        size_t length = strlen(entry->d_name);
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || length < 7 ||
            strcmp(entry->d_name + length - 7, ".gravel") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", v->folder, entry->d_name);
        if (!GV_GROW(o->traces, o->trace_capacity, o->trace_count + 1)) {
            v->failed = true;
        } else if (gv_trace_load(path, &o->traces[o->trace_count], &error) == GV_OK) {
            gv_run_fix_count(&o->fix, o->traces[o->trace_count++]);
        } else {
            o->incomplete++;
            o->gap = "a trace could not be read";
        }
    }
    if (folder)
        closedir(folder);
    const gv_inputs inputs = {.suppressions = v->asked->suppressions,
                              .suppression_count = v->asked->suppression_count,
                              .traces = o->traces,
                              .trace_count = o->trace_count};
    v->failed |= gv_inputs_find(&inputs, &o->findings, &error) != GV_OK;
    for (size_t i = 0; i < o->findings.count; i++) {
        const gv_finding *finding = &o->findings.items[i];
        if (finding->suppressed)
            continue;
        bool incomplete = finding->id == GV_FINDING_INCOMPLETE;
        o->incomplete += incomplete;
        o->observed += gv_finding_is_observed(finding->id) && gv_finding_counts(finding);
        o->races += !incomplete && !gv_finding_is_observed(finding->id);
        if (incomplete && !o->gap)
            o->gap = finding->reason ? finding->reason : "not everything was seen";
        if (gv_finding_counts(finding) && !o->first)
            o->first = gv_finding_id_name(finding->id);
    }
}

// Runs the program, or `program` in its place, under gravel run with the fix and `how` (ended by NULL).
static void run(verify *v, const char *const *how, char **program, uint64_t left_out, outcome *o)
{
    char pattern[PATH_MAX + 32], number[24];
    char *argv[64];
    size_t count = 0, arguments = 0;
    *o = (outcome){.fix = {.graphs = v->file.graph_count, .edges = v->edges, .left_out = left_out}};
    o->fix.outcome = gv_calloc(o->fix.graphs, sizeof *o->fix.outcome);
    v->runs++;
    snprintf(pattern, sizeof pattern, "%s/run%zu.%%p.gravel", v->folder, v->runs);
    snprintf(v->log, sizeof v->log, "%.4000s/run%zu.log", v->folder, v->runs);
    snprintf(number, sizeof number, "%" PRIu64, left_out);
    while (program[arguments])
        arguments++;
    char **all = gv_calloc(arguments + sizeof argv / sizeof *argv, sizeof *all);
    if (!all || !o->fix.outcome) {
        v->failed = true;
        gv_free(all);
        return;
    }
    all[count++] = "/proc/self/exe";
    all[count++] = "run";
    if (v->asked->soft)
        all[count++] = "--soft";
    all[count++] = "--fix";
    all[count++] = (char *)v->asked->file;
    if (left_out) {
        all[count++] = "--fix-leave-out";
        all[count++] = number;
    }
    while (*how)
        all[count++] = (char *)*how++;
    all[count++] = "-o";
    all[count++] = pattern;
    all[count++] = "--";
    memcpy(all + count, program, arguments * sizeof *all);
    o->end = gv_launch(all, write_to_log, v);
    gv_free(all);
    look(v, o);
}

// Could the run say anything? Otherwise the row has the reason.
static bool ended_well(const verify *v, const outcome *o, check *row)
{
    if (o->end.fork_errno || o->end.exec_errno)
        gv_string_add(&row->detail, "gravel could not be started again: %s",
                      strerror(o->end.fork_errno ? o->end.fork_errno : o->end.exec_errno));
    else if (o->end.signal)
        gv_string_add(&row->detail, "the program was ended by signal %d; %s has its last words", o->end.signal, v->log);
    else if (o->end.exit_code)
        gv_string_add(&row->detail, "the program ended with code %d; %s has its last words", o->end.exit_code, v->log);
    else
        return true;
    row->result = FAILS;
    return false;
}

// ---- Rows ---------------------------------------------------------------------------------------------------------

static check *row_of(verify *v, uint64_t edge, const char *name)
{
    static check spare;
    if (!GV_GROW(v->checks, v->check_capacity, v->check_count + 1)) {
        v->failed = true;
        spare = (check){0};
        return &spare;
    }
    check *row = &v->checks[v->check_count++];
    *row = (check){.edge = edge, .result = UNKNOWN};
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

// Did every graph of the file get its edges? Otherwise the row has the reason; `row` keeps its result then if it is
// worse.
static bool all_in_use(const verify *v, const outcome *o, check *row)
{
    for (size_t i = 0; i < o->fix.graphs; i++) {
        const struct gv_run_fix_graph *graph = &o->fix.outcome[i];
        if (!v->file.graphs[i].edge_count || ((graph->applied || graph->there) && !graph->refused))
            continue;
        gv_string_add(&row->detail, "graph %zu of the file %s", i + 1,
                      graph->refused ? "did not get its edges" : "was never made by the program");
        if (graph->reason[0]) {
            gv_string_add(&row->detail, ": ");
            gv_string_add_safe(&row->detail, graph->reason);
        }
        row->result = graph->refused ? FAILS : UNKNOWN;
        return false;
    }
    return true;
}

static void add_findings(check *row, const outcome *o)
{
    gv_string_add(&row->detail, "%s (%s)",
                  o->races ? gv_count(o->races, "race", "races") : gv_count(o->observed, "finding", "findings"),
                  o->first ? o->first : "");
}

static void check_recorded(verify *v)
{
    static const char *const how[] = {"--arm", "first", NULL};
    check *row = row_of(v, 0, "recorded with the fix: no findings");
    outcome o;
    run(v, how, v->asked->program, 0, &o);
    if (ended_well(v, &o, row)) {
        if (o.races || o.observed) {
            row->result = FAILS;
            add_findings(row, &o);
        } else if (!o.trace_count) {
            gv_string_add(&row->detail, "the program made no graph that gravel saw");
        } else if (all_in_use(v, &o, row) && o.incomplete) {
            gv_string_add(&row->detail, "no findings, but not everything was seen: ");
            gv_string_add_safe(&row->detail, o.gap);
        } else if (!row->detail.length) {
            row->result = HOLDS;
            gv_string_add(&row->detail, "no findings, and every access was seen");
        }
    }
    forget(&o);
}

static void check_differential(verify *v)
{
    static const char *const how[] = {"--diff", NULL};
    check *row = row_of(v, 0, "graphs against serial replays: no difference");
    outcome o;
    size_t compared = 0, differing = 0, refused = 0;
    const char *reason = "";
    run(v, how, v->asked->program, 0, &o);
    for (size_t i = 0; i < o.trace_count; i++)
        for (size_t c = 0; c < o.traces[i]->checked_count; c++) {
            const gv_checked *checked = &o.traces[i]->checked[c];
            bool done = checked->status == GV_CHECKED_COMPARED;
            compared += done;
            differing += done && checked->different_bytes;
            refused += !done;
            if (!done)
                reason = checked->reason;
        }
    if (ended_well(v, &o, row)) {
        if (differing) {
            row->result = FAILS;
            gv_string_add(&row->detail, "%s of %s that were compared differ", gv_number(differing),
                          gv_count(compared, "launch", "launches"));
        } else if (refused) {
            gv_string_add(&row->detail, "%s compared, %s could not be: ", gv_count(compared, "launch", "launches"),
                          gv_number(refused));
            gv_string_add_safe(&row->detail, reason);
        } else if (!compared) {
            gv_string_add(&row->detail, "no launch was compared");
        } else if (all_in_use(v, &o, row)) {
            row->result = HOLDS;
            gv_string_add(&row->detail, "%s compared, 0 differ", gv_count(compared, "launch", "launches"));
        }
    }
    forget(&o);
}

static void check_test(verify *v)
{
    static const char *const how[] = {NULL};
    check *row = row_of(v, 0, "the program's own test, with the fix");
    if (!v->asked->test) {
        row->result = NOT_ASKED;
        gv_string_add(&row->detail, "none was given (--test)");
        return;
    }
    char *program[] = {"sh", "-c", (char *)v->asked->test, NULL};
    outcome o;
    run(v, how, program, 0, &o);
    if (ended_well(v, &o, row) && all_in_use(v, &o, row)) {
        row->result = HOLDS;
        gv_string_add(&row->detail, "it ended with code 0");
    }
    forget(&o);
}

static void check_edge(verify *v, uint64_t edge)
{
    static const char *const how[] = {"--arm", "first", NULL};
    char name[80];
    snprintf(name, sizeof name, "without edge %" PRIu64 ": a finding comes back", edge);
    check *row = row_of(v, edge, name);
    outcome o;
    run(v, how, v->asked->program, edge, &o);
    // The program may fail for the very fault: what counts is what was recorded until then.
    if (o.races) {
        row->result = HOLDS;
        add_findings(row, &o);
    } else if (ended_well(v, &o, row)) {
        row->result = o.incomplete || !o.trace_count ? UNKNOWN : FAILS;
        gv_string_add(&row->detail, row->result == FAILS ? "none does: this edge is not needed"
                                                         : "none does, but not everything was seen: ");
        if (row->result == UNKNOWN)
            gv_string_add_safe(&row->detail, o.gap ? o.gap : "no graph was recorded");
    } else {
        row->result = UNKNOWN;
    }
    forget(&o);
}

// ---- The table ----------------------------------------------------------------------------------------------------

static const char *const words[] = {"holds", "FAILS", "not known", "not asked"};
static const char *const keys[] = {"holds", "fails", "not_known", "not_asked"};

static int exit_code(const verify *v)
{
    int code = GV_EXIT_NONE;
    for (size_t i = 0; i < v->check_count; i++) {
        if (v->checks[i].result == FAILS)
            return GV_EXIT_FINDINGS;
        if (v->checks[i].result == UNKNOWN)
            code = GV_EXIT_UNMEASURED;
    }
    return code;
}

static void print(const verify *v)
{
    enum { NAME = 46, RESULT = 11 };
    for (size_t i = 0; i < v->check_count; i++) {
        char first[128];
        snprintf(first, sizeof first, "%-*s%-*s", NAME, v->checks[i].name, RESULT, words[v->checks[i].result]);
        gv_print_wrapped(stdout, first, NAME + RESULT, GV_REPORT_WIDTH, gv_string_text(&v->checks[i].detail));
    }
    int code = exit_code(v);
    printf("\n%s: %s\n", v->asked->file,
           code == GV_EXIT_NONE       ? "all of it holds"
           : code == GV_EXIT_FINDINGS ? "it does NOT hold"
                                      : "not all of it could be found out");
}

static bool write_json(const verify *v)
{
    FILE *out = fopen(v->asked->output, "we");
    if (!out) {
        gv_say("%s: %s", v->asked->output, strerror(errno));
        return false;
    }
    gv_json json = {.out = out};
    gv_json_open(&json, NULL, '{');
    gv_json_text(&json, "schema", "gravel-fix-verify");
    gv_json_number(&json, "version", 1);
    gv_json_text(&json, "fix", v->asked->file);
    gv_json_bool(&json, "holds", exit_code(v) == GV_EXIT_NONE);
    gv_json_open(&json, "checks", '[');
    for (size_t i = 0; i < v->check_count; i++) {
        const check *row = &v->checks[i];
        gv_json_open_flat(&json, NULL, '{');
        gv_json_text(&json, "check", row->name);
        if (row->edge)
            gv_json_number(&json, "edge", row->edge);
        else
            gv_json_null(&json, "edge");
        gv_json_text(&json, "result", keys[row->result]);
        gv_json_text(&json, "detail", gv_string_text(&row->detail));
        gv_json_close(&json);
    }
    gv_json_close(&json);
    gv_json_close(&json);
    bool written = !json.failed && fflush(out) == 0 && !ferror(out);
    if (fclose(out) != 0 || !written) {
        gv_say("%s could not be written", v->asked->output);
        return false;
    }
    return true;
}

// ---- Before and behind --------------------------------------------------------------------------------------------

static bool make_folder(verify *v)
{
    const char *base = getenv("TMPDIR");
    snprintf(v->folder, sizeof v->folder, "%.2000s/gravel-verify-XXXXXX", base && *base ? base : "/tmp");
    if (mkdtemp(v->folder))
        return true;
    gv_say("%s: %s; set TMPDIR to a folder that can be written to", v->folder, strerror(errno));
    return false;
}

static void remove_folder(const verify *v)
{
    DIR *folder = opendir(v->folder);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    rmdir(v->folder);
}

int gv_fix_verify_run(const gv_fix_verify *asked)
{
    verify v = {.asked = asked};
    gv_error error = {0};
    if (gv_fix_file_read(asked->file, &v.file, &error) != GV_OK) {
        gv_say("%s", error.text);
        return GV_EXIT_INPUT;
    }
    for (size_t i = 0; i < v.file.graph_count; i++)
        v.edges += v.file.graphs[i].edge_count;
    int code = GV_EXIT_INPUT;
    if (make_folder(&v)) {
        check_recorded(&v);
        check_differential(&v);
        check_test(&v);
        for (uint64_t edge = 1; edge <= v.edges && !v.failed; edge++)
            check_edge(&v, edge);
        for (size_t i = 0; i < v.check_count; i++)
            v.failed |= v.checks[i].detail.failed;
        if (v.failed) {
            gv_say("out of memory");
        } else {
            code = exit_code(&v);
            print(&v);
            if (asked->output && !write_json(&v))
                code = GV_EXIT_INPUT;
        }
        if (code == GV_EXIT_NONE)
            remove_folder(&v);
        else
            gv_say("traces and logs of the runs are in %s", v.folder);
    }
    for (size_t i = 0; i < v.check_count; i++)
        gv_string_free(&v.checks[i].detail);
    gv_free(v.checks);
    gv_fix_file_free(&v.file);
    return code;
}
