#include "lab/lab_report.h"

#include "base/memory.h"
#include "lab/analysis.h"
#include "lab/design.h"
#include "lab/minimise.h"
#include "report/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *gv_percent(char *buffer, double rate)
{
    snprintf(buffer, 24, isnan(rate) ? "-" : "%.1f %%", 100 * rate);
    return buffer;
}

const char *gv_duration(char *buffer, double seconds)
{
    if (seconds < 100)
        snprintf(buffer, 32, "%.0f s", seconds);
    else if (seconds < 100 * 60)
        snprintf(buffer, 32, "%.0f min", seconds / 60);
    else
        snprintf(buffer, 32, "%.1f h", seconds / 3600);
    return buffer;
}

// "16.7 %" of nothing is "-".
static const char *rate_text(char *buffer, uint64_t corrupt, uint64_t sessions)
{
    return gv_percent(buffer, sessions ? (double)corrupt / (double)sessions : NAN);
}
#define RATE(corrupt, sessions) rate_text((char[24]){0}, corrupt, sessions)

static const char *p_text(char *buffer, double p)
{
    if (isnan(p))
        snprintf(buffer, 24, "-");
    else if (p >= 0.0001)
        snprintf(buffer, 24, p > 0.9995 ? "1" : "%.2g", p);
    else
        snprintf(buffer, 24, "%.0e", p);
    return buffer;
}
#define P(p) p_text((char[24]){0}, p)

static gv_tone tone_of(gv_verdict verdict)
{
    return verdict == GV_LOW ? GV_TONE_GOOD : verdict == GV_HIGH ? GV_TONE_BAD : GV_TONE_OPEN;
}

static void add_real(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, isfinite(value) ? json_real(value) : json_null());
}

static void add_count(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

// ---- Notes of both kinds ------------------------------------------------------------------------------------------

// The code that trials of one subject ran: the checksums of the first, with which the later ones are compared.
typedef struct code_reader {
    json_t *first; // subject -> {files, mapped}
    json_t *complaints;
} code_reader;

static void compare_code(code_reader *reader, const char *subject, uint64_t trial, json_t *then, const json_t *now)
{
    const char *path;
    json_t *digest;
    json_object_foreach(then, path, digest)
    {
        json_t *other = json_object_get(now, path);
        if (!other || json_equal(digest, other))
            continue;
        json_object_set_new(reader->complaints, path, json_pack("[s, I]", subject, (json_int_t)trial));
    }
}

static gv_status take_code(void *context, const char *subject, uint64_t trial, const char *text)
{
    code_reader *reader = context;
    json_t *manifest = json_loads(text, 0, NULL), *first = json_object_get(reader->first, subject);
    static const char *const parts[] = {"files", "mapped"};
    for (size_t i = 0; manifest && first && i < 2; i++)
        compare_code(reader, subject, trial, json_object_get(first, parts[i]), json_object_get(manifest, parts[i]));
    if (manifest && !first)
        json_object_set(reader->first, subject, manifest);
    json_decref(manifest);
    return GV_OK;
}

static gv_status note_code(gv_ledger *ledger, const gv_experiment *experiment, gv_document *document, json_t *json,
                           gv_error *error)
{
    code_reader reader = {.first = json_object(), .complaints = json_object()};
    gv_status status = gv_ledger_manifests(ledger, experiment->id, take_code, &reader, error);
    const char *path;
    json_t *where;
    json_t *list = json_array();
    json_object_foreach(reader.complaints, path, where)
    {
        gv_string text = {0};
        gv_string_add(&text,
                      "Not the same code throughout: %s changed between the first trial of \"%s\" and trial %lld. The "
                      "counts of that cell mix two programs.",
                      path, json_string_value(json_array_get(where, 0)),
                      (long long)json_integer_value(json_array_get(where, 1)));
        gv_document_item(document, gv_string_text(&text));
        json_array_append_new(list, json_string(gv_string_text(&text)));
        gv_string_free(&text);
    }
    json_object_set_new(json, "changed_code", list);
    json_decref(reader.first);
    json_decref(reader.complaints);
    return status;
}

static bool alike(const gv_attempt_row *a, const gv_attempt_row *b)
{
    return strcmp(a->subject, b->subject) == 0 && strcmp(a->outcome, b->outcome) == 0 &&
           strcmp(a->reason ? a->reason : "", b->reason ? b->reason : "") == 0;
}

// One entry for attempts of one subject that failed for one reason: the first with its log, the others by number.
static void write_failure(const gv_attempt_rows *rows, size_t first, const gv_experiment *experiment,
                          const gv_plan *plan, gv_document *document)
{
    const gv_attempt_row *row = &rows->items[first];
    char *set = experiment->kind == GV_KIND_MINIMISE ? gv_set_text(plan, row->subject) : NULL;
    gv_string text = {0};
    size_t more = 0;
    gv_string_add(&text, "Trial %" PRIu64 ", attempt %" PRIu64 " (%s): %s: %s", row->trial, row->attempt,
                  set ? set : row->subject, row->outcome, row->reason ? row->reason : "");
    for (size_t i = first + 1; i < rows->count; i++) {
        if (strcmp(rows->items[i].outcome, "counted") != 0 && alike(row, &rows->items[i]))
            more++;
    }
    if (more)
        gv_string_add(&text, "; and %s more", gv_count(more, "attempt", "attempts"));
    if (row->tail && row->tail[0])
        gv_document_log(document, gv_string_text(&text), row->tail);
    else
        gv_document_item(document, gv_string_text(&text));
    gv_string_free(&text);
    gv_free(set);
}

gv_status gv_report_notes(gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan,
                          gv_document *document, json_t *json, gv_error *error)
{
    gv_attempt_rows rows;
    gv_status status = note_code(ledger, experiment, document, json, error);
    if (status == GV_OK)
        status = gv_ledger_attempts(ledger, experiment->id, &rows, error);
    if (status != GV_OK)
        return status;
    json_t *list = json_array();
    size_t without = 0;
    for (size_t i = 0; i < rows.count; i++) {
        const gv_attempt_row *row = &rows.items[i];
        if (strcmp(row->outcome, "counted") == 0)
            continue;
        if (without++ == 0) {
            gv_document_heading(document, "Attempts without counts");
            gv_document_paragraph(document, "These say nothing about corruption and are in no rate.");
        }
        bool told = false;
        for (size_t k = 0; k < i && !told; k++)
            told = strcmp(rows.items[k].outcome, "counted") != 0 && alike(&rows.items[k], row);
        if (!told)
            write_failure(&rows, i, experiment, plan, document);
        json_t *object = json_object();
        add_count(object, "trial", row->trial);
        add_count(object, "attempt", row->attempt);
        json_object_set_new(object, "subject", json_string(row->subject));
        json_object_set_new(object, "outcome", json_string(row->outcome));
        json_object_set_new(object, "reason", json_string(row->reason ? row->reason : ""));
        json_object_set_new(object, "final", json_boolean(row->final));
        json_array_append_new(list, object);
    }
    json_object_set_new(json, "without_counts", list);
    gv_attempt_rows_free(&rows);
    return GV_OK;
}

// ---- The parts of a run's report ----------------------------------------------------------------------------------

static void describe_rule(const gv_plan *plan, gv_document *document)
{
    const gv_stop *stop = &plan->stop;
    gv_sprt test = gv_cell_test(plan);
    if (stop->sequential)
        gv_document_paragraph(
            document,
            "Stop rule: after each block every cell is tested by Wald's sequential probability ratio test, "
            "a rate of %s against %s. \"Corrupt\" means above %s, \"clean\" means below %s; with at least "
            "%g %% probability no verdict of the %zu cells is wrong (each may err with %.2g).%s",
            GV_PERCENT(stop->clean), GV_PERCENT(stop->corrupt), GV_PERCENT(stop->clean), GV_PERCENT(stop->corrupt),
            100 * stop->confidence, plan->design.cell_count, test.wrong_low,
            stop->contrasts ? " A cell also goes on until what it is compared with is settled." : "");
    else
        gv_document_paragraph(
            document,
            "Stop rule: fixed, every block is run. \"Corrupt\" means above %s, \"clean\" means below %s, by "
            "exact binomial tails; with at least %g %% probability no verdict of the %zu cells is wrong.",
            GV_PERCENT(stop->clean), GV_PERCENT(stop->corrupt), 100 * stop->confidence, plan->design.cell_count);
}

static void write_cells(const gv_analysis *a, gv_document *document, json_t *json)
{
    const gv_plan *plan = a->plan;
    const char *columns[GV_LAB_MOST_FACTORS + 7];
    size_t count = 0;
    json_t *list = json_array();
    for (size_t f = 0; f < plan->factor_count; f++)
        columns[count++] = plan->factors[f].name;
    const char *rest[] = {">trials", ">sessions", ">corrupt", ">rate", ">95 % interval", "verdict"};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        columns[count++] = rest[i];
    gv_document_heading(document, "Fingerprint");
    gv_document_table(document, columns, count);
    for (size_t c = 0; c < a->cell_count; c++) {
        const gv_cell_result *cell = &a->cells[c];
        json_t *object = json_object(), *levels = json_object();
        for (size_t f = 0; f < plan->factor_count; f++) {
            const char *level = plan->factors[f].levels[cell->cell.level[f]].name;
            gv_document_cell(document, "%s", level);
            json_object_set_new(levels, plan->factors[f].name, json_string(level));
        }
        gv_document_cell(document, "%" PRIu64, cell->counted);
        gv_document_cell(document, "%" PRIu64, cell->sessions);
        gv_document_cell(document, "%" PRIu64, cell->corrupt);
        gv_document_cell(document, "%s", RATE(cell->corrupt, cell->sessions));
        if (cell->sessions)
            gv_document_cell(document, "%.1f-%.1f %%", 100 * cell->interval.low, 100 * cell->interval.high);
        else
            gv_document_cell(document, "-");
        gv_document_cell(document, "%s",
                         cell->gave_up && cell->verdict == GV_UNDECIDED ? "not measured"
                                                                        : gv_cell_verdict_name(cell->verdict));
        gv_document_tone(document, tone_of(cell->verdict));
        json_object_set_new(object, "cell", levels);
        add_count(object, "trials", cell->counted);
        add_count(object, "sessions", cell->sessions);
        add_count(object, "corrupt", cell->corrupt);
        add_count(object, "failed", cell->failed);
        add_count(object, "infrastructure", cell->infrastructure);
        add_count(object, "timed_out", cell->timed_out);
        add_count(object, "void", cell->voided);
        add_real(object, "rate", cell->sessions ? (double)cell->corrupt / (double)cell->sessions : NAN);
        json_object_set_new(object, "interval_95", json_pack("[f, f]", cell->interval.low, cell->interval.high));
        json_object_set_new(object, "verdict", json_string(gv_cell_verdict_name(cell->verdict)));
        add_count(object, "verdict_at_sessions", cell->at_sessions);
        json_object_set_new(object, "given_up", json_boolean(cell->gave_up));
        add_real(object, "dispersion_p", cell->dispersion);
        json_array_append_new(list, object);
    }
    json_object_set_new(json, "cells", list);
    gv_document_chart(document,
                      "Rate of corrupt sessions with its 95 % interval; the dashed line is what counts as corrupt.",
                      plan->stop.corrupt);
    for (size_t c = 0; c < a->cell_count; c++) {
        const gv_cell_result *cell = &a->cells[c];
        char *name = gv_plan_cell_name(plan, &cell->cell);
        if (cell->sessions)
            gv_document_bar(document, name ? name : "?", cell->interval.low,
                            (double)cell->corrupt / (double)cell->sessions, cell->interval.high,
                            tone_of(cell->verdict));
        gv_free(name);
    }
}

// "overlap: on against off (keys=bf16, capture=graph)"
static void add_contrast_name(gv_string *out, const gv_plan *plan, const gv_cell *first, const gv_cell *second,
                              uint32_t factors)
{
    size_t changed = 0, same = 0;
    for (size_t f = 0; f < plan->factor_count; f++) {
        if (factors >> f & 1)
            gv_string_add(out, "%s%s %s / %s", changed++ ? ", " : "", plan->factors[f].name,
                          plan->factors[f].levels[first->level[f]].name,
                          plan->factors[f].levels[second->level[f]].name);
    }
    for (size_t f = 0; f < plan->factor_count; f++) {
        if (!(factors >> f & 1))
            gv_string_add(out, "%s%s=%s", same++ ? ", " : " (", plan->factors[f].name,
                          plan->factors[f].levels[first->level[f]].name);
    }
    gv_string_add(out, "%s", same ? ")" : "");
}

static void write_contrasts(const gv_analysis *a, gv_document *document, json_t *json)
{
    const gv_plan *plan = a->plan;
    bool sequential = plan->stop.sequential;
    json_t *list = json_array();
    json_object_set_new(json, "contrasts", list);
    if (!a->contrast_count)
        return;
    const char *columns[] = {"what differs", ">corrupt",  ">against",  ">Fisher p",
                             ">any-time p",  ">adjusted", "difference"};
    gv_document_heading(document, "Contrasts");
    gv_document_table(document, columns, 7);
    for (size_t i = 0; i < a->contrast_count; i++) {
        const gv_contrast_result *contrast = &a->contrasts[i];
        const gv_cell_result *first = &a->cells[contrast->first], *second = &a->cells[contrast->second];
        gv_string name = {0};
        if (contrast->name)
            gv_string_add(&name, "%s: ", contrast->name);
        add_contrast_name(&name, plan, &first->cell, &second->cell, contrast->factors);
        gv_document_cell(document, "%s", gv_string_text(&name));
        gv_document_cell(document, "%" PRIu64 "/%" PRIu64, first->corrupt, first->sessions);
        gv_document_cell(document, "%" PRIu64 "/%" PRIu64, second->corrupt, second->sessions);
        gv_document_cell(document, "%s", P(contrast->fisher));
        gv_document_cell(document, "%s", P(contrast->anytime));
        gv_document_cell(document, "%s", P(contrast->adjusted));
        bool apart =
            first->verdict != GV_UNDECIDED && second->verdict != GV_UNDECIDED && first->verdict != second->verdict;
        gv_document_cell(document, "%s", contrast->shown ? "shown" : apart ? "verdicts differ" : "not shown");
        gv_document_tone(document, contrast->shown ? GV_TONE_BAD : apart ? GV_TONE_OPEN : GV_TONE_PLAIN);
        json_t *object = json_object();
        char *one = gv_plan_cell_name(plan, &first->cell), *other = gv_plan_cell_name(plan, &second->cell);
        json_object_set_new(object, "name", json_string(gv_string_text(&name)));
        json_object_set_new(object, "first", json_string(one ? one : ""));
        json_object_set_new(object, "second", json_string(other ? other : ""));
        add_real(object, "fisher_p", contrast->fisher);
        add_real(object, "anytime_p", contrast->anytime);
        add_real(object, "adjusted_p", contrast->adjusted);
        json_object_set_new(object, "shown", json_boolean(contrast->shown));
        json_array_append_new(list, object);
        gv_free(one);
        gv_free(other);
        gv_string_free(&name);
    }
    gv_document_paragraph(document,
                          "Fisher p is Fisher's exact two-sided test of the counts%s. Any-time p holds whenever one "
                          "stops (an e-process of "
                          "Turner, Ly and Gruenwald); only blocks in which both cells ran count for it. Adjusted is %s "
                          "for the %zu contrasts "
                          "(Holm); a difference is shown at %g or less.%s",
                          sequential ? "; the stop rule looked at the same counts, so it only describes them" : "",
                          sequential ? "any-time p" : "Fisher p", a->contrast_count, 1 - plan->stop.confidence,
                          sequential && !plan->stop.contrasts
                              ? " The plan stops at verdicts, which takes fewer sessions than showing that two rates "
                                "differ; `until: contrasts` "
                                "goes on until that is shown too."
                              : "");
}

static void write_effects(const gv_analysis *a, gv_document *document, json_t *json)
{
    const gv_plan *plan = a->plan;
    const char *columns[] = {"level", ">sessions", ">corrupt", ">rate", ">Fisher p against the others"};
    json_t *list = json_array();
    gv_document_heading(document, "Levels, everything else pooled");
    gv_document_table(document, columns, 5);
    for (size_t i = 0; i < a->effect_count; i++) {
        const gv_effect *effect = &a->effects[i];
        const char *factor = plan->factors[effect->factor].name;
        const char *level = plan->factors[effect->factor].levels[effect->level].name;
        gv_document_cell(document, "%s=%s", factor, level);
        gv_document_cell(document, "%" PRIu64, effect->sessions);
        gv_document_cell(document, "%" PRIu64, effect->corrupt);
        gv_document_cell(document, "%s", RATE(effect->corrupt, effect->sessions));
        gv_document_cell(document, "%s", P(effect->fisher));
        json_t *object = json_object();
        json_object_set_new(object, "factor", json_string(factor));
        json_object_set_new(object, "level", json_string(level));
        add_count(object, "sessions", effect->sessions);
        add_count(object, "corrupt", effect->corrupt);
        add_real(object, "fisher_p", effect->fisher);
        json_array_append_new(list, object);
    }
    json_object_set_new(json, "levels", list);
    if (plan->stop.sequential)
        gv_document_paragraph(document,
                              "The stop rule gives cells different numbers of sessions, so these p values only "
                              "describe the counts.");
}

// The intervals and tests take sessions for independent. Where the trials of a cell differ too much, they are not.
static void note_dispersion(const gv_analysis *a, gv_document *document, json_t *json)
{
    json_t *list = json_array();
    size_t tested = 0;
    for (size_t c = 0; c < a->cell_count; c++)
        tested += !isnan(a->cells[c].dispersion);
    for (size_t c = 0; c < a->cell_count; c++) {
        const gv_cell_result *cell = &a->cells[c];
        if (isnan(cell->dispersion) || cell->dispersion * (double)tested > 0.05)
            continue;
        char *name = gv_plan_cell_name(a->plan, &cell->cell);
        gv_string text = {0};
        gv_string_add(
            &text,
            "The trials of %s differ more than chance allows (p = %s): what makes its sessions corrupt may be "
            "settled when the service starts. Intervals and verdicts take sessions for independent; trust "
            "them less here, and run more trials of fewer sessions.",
            name ? name : "?", P(cell->dispersion));
        gv_document_item(document, gv_string_text(&text));
        json_array_append_new(list, json_string(gv_string_text(&text)));
        gv_string_free(&text);
        gv_free(name);
    }
    json_object_set_new(json, "overdispersed", list);
}

static gv_status report_run(gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan,
                            const gv_trials *trials, gv_document *document, json_t *json, gv_lab_result *result,
                            gv_error *error)
{
    gv_analysis *a;
    gv_status status = gv_analyse(plan, trials, &a, error);
    if (status != GV_OK)
        return status;
    describe_rule(plan, document);
    write_cells(a, document, json);
    gv_document_heading(document, "What it shows");
    json_t *sentences = json_array();
    for (size_t i = 0; i < a->sentence_count; i++) {
        gv_document_item(document, a->sentences[i]);
        json_array_append_new(sentences, json_string(a->sentences[i]));
    }
    json_object_set_new(json, "conclusions", sentences);
    note_dispersion(a, document, json);
    *result = GV_LAB_GOOD;
    for (size_t c = 0; c < a->cell_count; c++) {
        if (a->cells[c].verdict == GV_HIGH)
            *result = GV_LAB_BAD;
        else if (a->cells[c].verdict == GV_UNDECIDED && *result == GV_LAB_GOOD)
            *result = GV_LAB_OPEN;
    }
    write_contrasts(a, document, json);
    write_effects(a, document, json);
    gv_analysis_free(a);
    return GV_OK;
}

// ---- Either kind --------------------------------------------------------------------------------------------------

static void describe_state(const gv_experiment *experiment, const gv_plan *plan, const gv_trials *trials,
                           gv_document *document, json_t *json)
{
    uint64_t pending = 0, sessions = 0, attempts = 0;
    double seconds = 0;
    for (size_t i = 0; i < trials->count; i++) {
        pending += trials->items[i].outcome == GV_OUTCOME_PENDING;
        sessions += trials->items[i].sessions;
        attempts += trials->items[i].attempts;
        seconds += trials->items[i].seconds;
    }
    if (experiment->ended)
        gv_document_paragraph(document, "Ended: %s. %zu trials, %s sessions that count, %s.", experiment->ended,
                              trials->count, gv_number(sessions), GV_DURATION(seconds));
    else
        gv_document_paragraph(document,
                              "Not ended: this is what is known so far. %zu trials planned, %" PRIu64 " of them open, "
                              "%s sessions that count, %s.",
                              trials->count, pending, gv_number(sessions), GV_DURATION(seconds));
    json_object_set_new(json, "name", json_string(plan->name));
    json_object_set_new(json, "kind", json_string(gv_kind_name(experiment->kind)));
    json_object_set_new(json, "ended", experiment->ended ? json_string(experiment->ended) : json_null());
    add_count(json, "trials", trials->count);
    add_count(json, "sessions", sessions);
    json_object_set_new(json, "stop",
                        json_pack("{s:s, s:f, s:f, s:f}", "rule", plan->stop.sequential ? "sequential" : "fixed",
                                  "clean", plan->stop.clean, "corrupt", plan->stop.corrupt, "confidence",
                                  plan->stop.confidence));
    // What depends on the clock stands apart, so that two runs of one plan and seed can be compared.
    json_t *timing = json_object();
    json_object_set_new(timing, "begun", json_string(experiment->begun));
    add_count(timing, "attempts", attempts);
    add_real(timing, "seconds", seconds);
    json_object_set_new(json, "timing", timing);
}

gv_status gv_lab_report(gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan, gv_lab_form form,
                        FILE *out, gv_lab_result *result, gv_error *error)
{
    *result = GV_LAB_OPEN;
    gv_trials trials;
    gv_status status = gv_ledger_trials(ledger, experiment->id, &trials, error);
    if (status != GV_OK)
        return status;
    gv_string title = {0};
    gv_string_add(&title, "%s: %s", plan->name, experiment->kind == GV_KIND_RUN ? "fingerprint" : "fewest changes");
    gv_document *document = gv_document_new(gv_string_text(&title));
    gv_string_free(&title);
    json_t *json = json_pack("{s:s, s:i}", "schema", "gravel-lab", "version", 1);
    describe_state(experiment, plan, &trials, document, json);
    status = experiment->kind == GV_KIND_RUN
                 ? report_run(ledger, experiment, plan, &trials, document, json, result, error)
                 : gv_report_search(ledger, experiment, plan, &trials, document, json, result, error);
    if (status == GV_OK)
        status = gv_report_notes(ledger, experiment, plan, document, json, error);
    if (status == GV_OK && form == GV_LAB_JSON) {
        if (json_dumpf(json, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) != 0)
            status = gv_fail(error, GV_ERR_IO, "the report cannot be written");
        fputc('\n', out);
    } else if (status == GV_OK) {
        gv_document_form forms[] = {GV_FORM_TEXT, GV_FORM_MARKDOWN, GV_FORM_HTML};
        status = gv_document_write(document, forms[form], out, error);
    }
    json_decref(json);
    gv_document_free(document);
    gv_trials_free(&trials);
    return status;
}

gv_status gv_lab_status(gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan, FILE *out,
                        gv_error *error)
{
    gv_trials trials;
    gv_status status = gv_ledger_trials(ledger, experiment->id, &trials, error);
    if (status != GV_OK)
        return status;
    uint64_t counts[GV_OUTCOME_VOID + 1] = {0}, sessions = 0, corrupt = 0;
    double seconds = 0;
    for (size_t i = 0; i < trials.count; i++) {
        counts[trials.items[i].outcome]++;
        sessions += trials.items[i].sessions;
        corrupt += trials.items[i].corrupt;
        seconds += trials.items[i].seconds;
    }
    fprintf(out, "%s (%s), begun %s: %s\n", plan->name, gv_kind_name(experiment->kind), experiment->begun,
            experiment->ended ? experiment->ended : "not ended");
    fprintf(out, "%zu trials:", trials.count);
    for (int i = 0; i <= GV_OUTCOME_VOID; i++) {
        if (counts[i])
            fprintf(out, " %" PRIu64 " %s", counts[i], gv_outcome_name((gv_outcome)i));
    }
    fprintf(out, "; %s sessions, %s corrupt; %s\n", gv_number(sessions), gv_number(corrupt), GV_DURATION(seconds));
    if (!experiment->ended)
        fprintf(out, "`gravel lab resume` goes on where it stopped; `gravel lab report` shows what is known so far.\n");
    gv_trials_free(&trials);
    return GV_OK;
}
