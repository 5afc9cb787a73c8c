// What `gravel lab check` says of a plan: what it would run, for how long, and what that can show.
#include "base/memory.h"
#include "lab/analysis.h"
#include "lab/design.h"
#include "lab/lab_report.h"
#include "lab/minimise.h"
#include "report/format.h"

#include <inttypes.h>
#include <string.h>

static void describe_command(gv_document *document, const char *what, const gv_command_line *command)
{
    gv_string text = {0};
    if (command->shell)
        gv_string_add(&text, "%s", command->shell);
    for (size_t i = 0; i < command->words.count; i++)
        gv_string_add(&text, "%s%s", i ? " " : "", command->words.items[i]);
    gv_document_paragraph(document, "%s: %s", what, gv_string_text(&text));
    gv_string_free(&text);
}

static void describe_cells(const gv_plan *plan, gv_document *document, json_t *json)
{
    static const char *const kinds[] = {"full factorial", "one factor at a time", "fractional factorial",
                                        "cells as listed"};
    json_t *list = json_array();
    gv_document_heading(document, "Cells");
    gv_document_paragraph(document,
                          "%s: %zu cells of %zu factors, each once in a block, the order drawn anew for each block "
                          "(seed %" PRIu64 "); at most %" PRIu64 " blocks of %" PRIu64 " sessions a cell.",
                          kinds[plan->design.kind], plan->design.cell_count, plan->factor_count, plan->seed,
                          plan->design.blocks, plan->trial.sessions);
    for (size_t c = 0; c < plan->design.cell_count; c++) {
        char *name = gv_plan_cell_name(plan, &plan->design.cells[c]);
        gv_document_item(document, name ? name : "?");
        json_array_append_new(list, json_string(name ? name : "?"));
        gv_free(name);
    }
    json_object_set_new(json, "cells", list);
    for (size_t f = 0; plan->design.kind == GV_DESIGN_FRACTION && f < plan->factor_count; f++) {
        uint32_t aliases[16];
        size_t count = gv_design_aliases(plan, 1u << f, aliases, 16);
        for (size_t i = 0; i < count; i++) {
            gv_string text = {0};
            gv_string_add(&text, "%s is aliased with ", plan->factors[f].name);
            for (size_t k = 0, done = 0; k < plan->factor_count; k++) {
                if (aliases[i] >> k & 1)
                    gv_string_add(&text, "%s%s", done++ ? " x " : "", plan->factors[k].name);
            }
            gv_document_paragraph(document, "%s: this fraction cannot tell the two apart.", gv_string_text(&text));
            gv_string_free(&text);
        }
    }
}

// The comparisons that change several factors, and whether the design runs what would tell those apart.
static void describe_comparisons(const gv_plan *plan, gv_document *document)
{
    for (size_t i = 0; i < plan->comparison_count; i++) {
        const gv_comparison *wanted = &plan->comparisons[i];
        uint32_t factors;
        if (gv_cell_difference(plan, &wanted->from, &wanted->to, &factors) < 2)
            continue;
        for (size_t f = 0; f < plan->factor_count; f++) {
            gv_cell middle = wanted->from;
            middle.level[f] = wanted->to.level[f];
            if (!(factors >> f & 1) || gv_design_find(plan, &middle) >= 0)
                continue;
            char *name = gv_plan_cell_name(plan, &middle);
            gv_document_paragraph(document,
                                  "\"%s\" changes several factors together, and the cell %s, which would show what %s "
                                  "does alone, is missing from the design.",
                                  wanted->name, name ? name : "?", plan->factors[f].name);
            gv_free(name);
        }
    }
}

static void describe_time(const gv_plan *plan, gv_document *document, json_t *json, double sessions_low,
                          double sessions_high)
{
    double per_trial = (double)plan->trial.sessions, cells = (double)plan->design.cell_count;
    double most = cells * (double)plan->design.blocks;
    double low = sessions_low / per_trial, high = sessions_high / per_trial;
    double bound = plan->service.start_timeout + plan->trial.timeout + plan->service.stop_timeout;
    gv_document_heading(document, "How long");
    if (plan->estimate_start > 0 || plan->estimate_trial > 0) {
        double each = plan->estimate_start + plan->estimate_trial;
        gv_document_paragraph(document,
                              "By the plan's `estimate` a trial takes %s: %s when every cell is clean, %s when every "
                              "cell is at the corrupt rate, %s for every block.",
                              GV_DURATION(each), GV_DURATION(low * each), GV_DURATION(high * each),
                              GV_DURATION(most * each));
        json_object_set_new(json, "estimated_seconds", json_real(most * each));
    } else {
        gv_document_paragraph(
            document,
            "The plan has no `estimate` (start, trial), so only its time-outs are known: a trial takes "
            "at most %s, and every block together %s.",
            GV_DURATION(bound), GV_DURATION(most * bound));
    }
    if (plan->most_seconds > 0 || plan->most_trials)
        gv_document_paragraph(
            document,
            "Budget: %s%s%s. It ends the run before the next block; cells that are undecided then stay "
            "so.",
            plan->most_trials ? gv_count(plan->most_trials, "trial", "trials") : "",
            plan->most_trials && plan->most_seconds > 0 ? ", " : "",
            plan->most_seconds > 0 ? GV_DURATION(plan->most_seconds) : "");
    json_object_set_new(json, "most_trials", json_integer((json_int_t)most));
    json_object_set_new(json, "most_seconds_by_timeouts", json_real(most * bound));
}

static void describe_power(const gv_plan *plan, gv_document *document, json_t *json, double *low, double *high)
{
    const gv_stop *stop = &plan->stop;
    gv_sprt test = gv_cell_test(plan);
    uint64_t most = plan->design.blocks * plan->trial.sessions, step = plan->trial.sessions;
    double cells = (double)plan->design.cell_count;
    gv_sample_size tell = gv_sessions_to_tell(stop->corrupt, stop->clean, stop->confidence);
    gv_sample_size classify = gv_sessions_to_classify(stop->clean, stop->corrupt, 1 - test.wrong_low);
    gv_document_heading(document, "What it can show");
    gv_document_paragraph(
        document,
        "To tell %s from %s at %g %% takes %s sessions a cell with Fisher's test of two cells, and %s "
        "sessions to call one cell clean or corrupt in a fixed design (%" PRIu64 " may be corrupt in a "
        "clean one). The sequential rule calls a cell clean after %" PRIu64 " sessions without a corrupt "
        "one at the earliest.",
        GV_PERCENT(stop->corrupt), GV_PERCENT(stop->clean), 100 * stop->confidence,
        tell.sessions ? gv_number(tell.sessions) : "too many",
        classify.sessions ? gv_number(classify.sessions) : "too many", classify.most_fail,
        gv_sprt_fewest(&test, GV_LOW));
    json_object_set_new(json, "sessions_to_tell", json_integer((json_int_t)tell.sessions));
    json_object_set_new(json, "sessions_to_classify", json_integer((json_int_t)classify.sessions));
    *low = *high = cells * (double)most;
    if (!stop->sequential || most > 100000) {
        if (most < classify.sessions)
            gv_document_paragraph(document, "The plan has %s sessions a cell: too few, raise `blocks` or `sessions`.",
                                  gv_number(most));
        return;
    }
    const char *columns[] = {">true rate", ">called clean", ">called corrupt", ">undecided", ">sessions on average"};
    double rates[] = {0, stop->clean, (stop->clean + stop->corrupt) / 2, stop->corrupt, stop->corrupt * 1.5};
    json_t *list = json_array();
    gv_document_paragraph(document,
                          "A cell by its true rate, with at most %s sessions, looked at after every %s (exact):",
                          gv_number(most), gv_number(step));
    gv_document_table(document, columns, 5);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        double rate = rates[i] < 1 ? rates[i] : 1;
        gv_operation operation = gv_sprt_operation(&test, rate, step, most);
        gv_document_cell(document, "%s", GV_PERCENT(rate));
        gv_document_cell(document, "%s", GV_PERCENT(operation.low));
        gv_document_cell(document, "%s", GV_PERCENT(operation.high));
        gv_document_cell(document, "%s", GV_PERCENT(operation.undecided));
        gv_document_cell(document, "%.1f", operation.sessions);
        json_array_append_new(list, json_pack("{s:f, s:f, s:f, s:f, s:f}", "rate", rate, "clean", operation.low,
                                              "corrupt", operation.high, "undecided", operation.undecided, "sessions",
                                              operation.sessions));
        if (i == 0)
            *low = cells * operation.sessions;
        if (rates[i] == stop->corrupt)
            *high = cells * operation.sessions;
        if (i == 0 && operation.undecided > 0.5)
            gv_document_paragraph(document,
                                  "The blocks do not suffice: a cell without any corruption would stay undecided. "
                                  "Raise `blocks` or `sessions`.");
    }
    json_object_set_new(json, "operation", list);
}

static void describe_search(const gv_plan *plan, gv_document *document, json_t *json)
{
    const gv_minimise *m = &plan->minimise;
    if (!m->line)
        return;
    char *cell = gv_plan_cell_name(plan, &m->cell);
    gv_document_heading(document, "Minimisation");
    gv_document_paragraph(document,
                          "`gravel lab minimise` would search %zu changes in the cell %s, %" PRIu64
                          " sessions a trial, at "
                          "most %" PRIu64 " a decision:",
                          m->count, cell ? cell : "?", plan->trial.sessions, m->most_sessions);
    json_t *list = json_array();
    for (size_t i = 0; i < m->count; i++) {
        gv_document_item(document, m->changes[i].name);
        json_array_append_new(list, json_string(m->changes[i].name));
    }
    gv_sprt first = {.low = m->clean,
                     .high = m->corrupt,
                     .wrong_high = gv_decision_error(m->confidence, 1),
                     .wrong_low = gv_decision_error(m->confidence, 1)};
    gv_sprt tenth = first;
    tenth.wrong_high = tenth.wrong_low = gv_decision_error(m->confidence, 10);
    gv_document_paragraph(
        document,
        "A decision that a set passes takes at least %" PRIu64 " sessions at first and %" PRIu64 " by the "
        "tenth decision. The usual search takes about twice the changes that are needed times the "
        "logarithm of their number; the worst %zu decisions.",
        gv_sprt_fewest(&first, GV_LOW), gv_sprt_fewest(&tenth, GV_LOW), m->count * m->count + 3 * m->count);
    json_object_set_new(json, "changes", list);
    gv_free(cell);
}

gv_status gv_lab_check(const gv_plan *plan, bool as_json, FILE *out, gv_error *error)
{
    gv_status status = gv_attempt_check(plan, error);
    if (status != GV_OK)
        return status;
    json_t *json = json_pack("{s:s, s:i, s:s}", "schema", "gravel-lab-check", "version", 1, "name", plan->name);
    gv_document *document = gv_document_new(plan->name);
    const gv_service *service = &plan->service;
    if (service->unit)
        gv_document_paragraph(document, "Service: the systemd unit %s", service->unit);
    else
        describe_command(document, "Service", &service->command);
    gv_document_paragraph(document, "Ready when: %s answers%s%s, within %s of the start", service->ready_url,
                          service->ready_expect ? " with something at " : "",
                          service->ready_expect ? service->ready_expect : "", GV_DURATION(service->start_timeout));
    describe_command(document, "Trial", &plan->trial.command);
    describe_cells(plan, document, json);
    describe_comparisons(plan, document);
    // The time depends on how many sessions the rule needs, which comes with what it can show; the reader wants the
    // time first.
    gv_document *power = gv_document_new("");
    double low, high;
    describe_power(plan, power, json, &low, &high);
    gv_document_free(power);
    describe_time(plan, document, json, low, high);
    describe_power(plan, document, json, &low, &high);
    describe_search(plan, document, json);
    if (as_json) {
        if (json_dumpf(json, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) != 0)
            status = gv_fail(error, GV_ERR_IO, "the answer cannot be written");
        fputc('\n', out);
    } else {
        status = gv_document_write(document, GV_FORM_TEXT, out, error);
    }
    json_decref(json);
    gv_document_free(document);
    return status;
}
