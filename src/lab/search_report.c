// The report of a minimisation.
#include "base/memory.h"
#include "lab/lab_report.h"
#include "lab/minimise.h"
#include "report/format.h"

#include <inttypes.h>
#include <string.h>

static void add_names(gv_string *out, const gv_plan *plan, const bool *in)
{
    char *name = gv_set_name(in, plan->minimise.count), *text = name ? gv_set_text(plan, name) : NULL;
    gv_string_add(out, "%s", text ? text : "?");
    gv_free(name);
    gv_free(text);
}

static json_t *name_list(const gv_plan *plan, const bool *in)
{
    json_t *list = json_array();
    for (size_t i = 0; i < plan->minimise.count; i++) {
        if (in[i])
            json_array_append_new(list, json_string(plan->minimise.changes[i].name));
    }
    return list;
}

static const char *end_name(gv_search_end end)
{
    static const char *const names[] = {
        "open",      "found", "found, not shown minimal", "no change needed", "all changes together do not pass",
        "unresolved"};
    return names[end];
}

static void describe_end(const gv_plan *plan, const gv_search *search, const char *cell, gv_document *document,
                         json_t *json)
{
    gv_string text = {0};
    switch (search->end) {
    case GV_SEARCH_OPEN:
        gv_string_add(&text, "The search has not ended. The smallest set known to pass so far: ");
        add_names(&text, plan, search->in);
        break;
    case GV_SEARCH_FOUND:
    case GV_SEARCH_FOUND_SOME:
        add_names(&text, plan, search->in);
        gv_string_add(&text, search->size == 1 ? " alone is enough" : " together are enough");
        gv_string_add(&text, " for %s to pass", cell);
        if (search->end == GV_SEARCH_FOUND)
            gv_string_add(&text, search->size == 1 ? ", and without it the cell fails"
                                                   : ", and leaving out any one of them fails");
        else
            gv_string_add(&text, "; for some of them it could not be decided whether they can be left out");
        break;
    case GV_SEARCH_NOTHING: gv_string_add(&text, "The cell %s passes without any change", cell); break;
    case GV_SEARCH_ALL_FAIL: gv_string_add(&text, "The cell %s fails with all changes together", cell); break;
    case GV_SEARCH_UNRESOLVED:
        gv_string_add(&text,
                      "It could not be decided whether the cell %s fails without changes and passes with all of them",
                      cell);
        break;
    }
    gv_string_add(&text, ".");
    gv_document_heading(document, "Result");
    gv_document_paragraph(document, "%s", gv_string_text(&text));
    json_object_set_new(json, "sentence", json_string(gv_string_text(&text)));
    json_object_set_new(json, "result", json_string(end_name(search->end)));
    json_object_set_new(json, "changes", name_list(plan, search->in));
    gv_string_free(&text);
}

static void write_decisions(const gv_plan *plan, const gv_search *search, gv_document *document, json_t *json)
{
    const char *columns[] = {">decision", "set", ">trials", ">sessions", ">corrupt", ">may err", "answer"};
    json_t *list = json_array();
    gv_document_heading(document, "Decisions");
    gv_document_table(document, columns, 7);
    for (size_t i = 0; i < search->decision_count; i++) {
        const gv_decision *decision = &search->decisions[i];
        bool open = search->end == GV_SEARCH_OPEN && i + 1 == search->decision_count;
        gv_string name = {0};
        add_names(&name, plan, decision->in);
        gv_document_cell(document, "%" PRIu64, decision->number);
        gv_document_cell(document, "%s", gv_string_text(&name));
        gv_document_cell(document, "%" PRIu64, decision->trials);
        gv_document_cell(document, "%" PRIu64, decision->sessions);
        gv_document_cell(document, "%" PRIu64, decision->corrupt);
        gv_document_cell(document, "%.2g", decision->error);
        gv_document_cell(document, "%s", open ? "open" : gv_answer_name(decision->answer));
        gv_document_tone(document, open                                 ? GV_TONE_OPEN
                                   : decision->answer == GV_ANSWER_PASS ? GV_TONE_GOOD
                                   : decision->answer == GV_ANSWER_FAIL ? GV_TONE_BAD
                                                                        : GV_TONE_OPEN);
        gv_string_free(&name);
        json_t *object =
            json_pack("{s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s}", "number", (json_int_t)decision->number,
                      "changes", name_list(plan, decision->in), "trials", (json_int_t)decision->trials, "sessions",
                      (json_int_t)decision->sessions, "corrupt", (json_int_t)decision->corrupt, "infrastructure",
                      (json_int_t)decision->infrastructure, "timed_out", (json_int_t)decision->timed_out, "void",
                      (json_int_t)decision->voided, "error", decision->error, "answer",
                      open ? "open" : gv_answer_name(decision->answer));
        json_array_append_new(list, object);
    }
    json_object_set_new(json, "decisions", list);
}

gv_status gv_report_search(gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan,
                           const gv_trials *trials, gv_document *document, json_t *json, gv_lab_result *result,
                           gv_error *error)
{
    gv_search *search;
    const gv_minimise *m = &plan->minimise;
    gv_status status = gv_search_follow(plan, trials, &search, error);
    if (status != GV_OK)
        return status;
    char *cell = gv_plan_cell_name(plan, &m->cell);
    describe_end(plan, search, cell ? cell : "?", document, json);
    gv_document_paragraph(
        document,
        "\"Passes\" means a rate below %s, \"fails\" one above %s (Wald's sequential test; decision i may err "
        "with %.2g / (i (i + 1))). With at least %.4g %% probability none of the %zu decisions is wrong. Method: "
        "delta debugging (ddmin, Zeller and Hildebrandt 2002) over %zu changes.",
        GV_PERCENT(m->corrupt), GV_PERCENT(m->clean), 1 - m->confidence, 100 * (1 - search->error),
        search->decision_count, m->count);
    json_object_set_new(json, "cell", json_string(cell ? cell : ""));
    json_object_set_new(json, "error_bound", json_real(search->error));
    write_decisions(plan, search, document, json);
    *result = search->end == GV_SEARCH_FOUND || search->end == GV_SEARCH_NOTHING ? GV_LAB_GOOD
              : search->end == GV_SEARCH_ALL_FAIL                                ? GV_LAB_BAD
                                                                                 : GV_LAB_OPEN;
    gv_free(cell);
    gv_search_free(search);
    return GV_OK;
}
