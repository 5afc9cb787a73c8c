// What trials show: verdicts, contrasts, and the sentences on levels that act together and on cells that are missing.
#include "lab/analysis.h"
#include "lab/minimise.h"

#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static gv_plan *parse(const char *rest)
{
    char text[4096];
    gv_error error = {0};
    gv_plan *plan = NULL;
    int length =
        snprintf(text, sizeof text,
                 "version: 1\nname: t\nservice: {command: [x], ready: {url: x}}\n"
                 "trial: {command: [x], sessions: 60, counts: {format: text, sessions: '(x)', corrupt: '(x)'}}\n"
                 "%s",
                 rest);
    if (gv_plan_parse("t.yaml", text, (size_t)length, &plan, &error) != GV_OK)
        fail_msg("%s", error.text);
    return plan;
}

// A counted trial of a cell, or one without counts when `sessions` is 0.
static void add(gv_trials *trials, uint64_t block, const char *subject, uint64_t corrupt, uint64_t sessions)
{
    gv_trial trial = {.number = trials->count + 1,
                      .block = block,
                      .subject = (char *)subject,
                      .outcome = sessions ? GV_OUTCOME_COUNTED : GV_OUTCOME_INFRASTRUCTURE,
                      .sessions = sessions,
                      .corrupt = corrupt};
    assert_int_equal(gv_trials_add(trials, &trial, NULL), GV_OK);
}

static gv_analysis *analyse(const gv_plan *plan, const gv_trials *trials)
{
    gv_analysis *analysis = NULL;
    gv_error error = {0};
    if (gv_analyse(plan, trials, &analysis, &error) != GV_OK)
        fail_msg("%s", error.text);
    return analysis;
}

static void expect_sentence(const gv_analysis *a, const char *part)
{
    for (size_t i = 0; i < a->sentence_count; i++) {
        if (strstr(a->sentences[i], part))
            return;
    }
    for (size_t i = 0; i < a->sentence_count; i++)
        print_message("  %s\n", a->sentences[i]);
    fail_msg("no sentence says \"%s\"", part);
}

static void expect_no_sentence(const gv_analysis *a, const char *part)
{
    for (size_t i = 0; i < a->sentence_count; i++) {
        if (strstr(a->sentences[i], part))
            fail_msg("\"%s\" says \"%s\"", a->sentences[i], part);
    }
}

#define FACTORS "factors: {keys: {bf16: , fp8: }, capture: {graph: , eager: }, overlap: {'on': , 'off': }}\n"

// The incident as it was reported: eager was only run without overlap.
static void test_incident(void **state)
{
    gv_plan *plan =
        parse(FACTORS "design: {exclude: [{capture: eager, overlap: 'on'}]}\n"
                      "comparisons: [{name: eager is clean, from: {keys: bf16, capture: graph, overlap: 'on'},"
                      " to: {keys: bf16, capture: eager, overlap: 'off'}}]\n");
    gv_trials trials = {0};
    add(&trials, 1, "keys=bf16, capture=graph, overlap=on", 10, 60);
    add(&trials, 1, "keys=fp8, capture=graph, overlap=on", 0, 60);
    add(&trials, 1, "keys=bf16, capture=eager, overlap=off", 0, 60);
    add(&trials, 1, "keys=bf16, capture=graph, overlap=off", 0, 60);
    gv_analysis *a = analyse(plan, &trials);
    expect_sentence(a, "Corrupt where keys=bf16 and overlap=on (an interaction");
    expect_sentence(
        a, "capture and overlap were changed together: the cell keys=bf16, capture=eager, overlap=on is missing, "
           "so that it is not known whether capture=eager alone makes the difference");
    expect_sentence(a, "eager is clean: capture and overlap were changed together");
    expect_sentence(a, "With capture=eager alone, keys=bf16, capture=eager, overlap=on: this cell is missing.");
    expect_sentence(a, "With overlap=off alone, keys=bf16, capture=graph, overlap=off: 0 of 60 corrupt (clean).");
    expect_sentence(a, "(clean). So overlap=off alone is enough.");
    gv_analysis_free(a);
    gv_trials_free(&trials);
    gv_plan_free(plan);
}

static void test_whole_factorial(void **state)
{
    gv_plan *plan = parse(FACTORS);
    gv_trials trials = {0};
    for (size_t c = 0; c < plan->design.cell_count; c++) {
        char *name = gv_plan_cell_name(plan, &plan->design.cells[c]);
        add(&trials, 1, name, c == 0 ? 10 : 0, 60);
        gv_free(name);
    }
    gv_analysis *a = analyse(plan, &trials);
    expect_sentence(a,
                    "Corrupt where keys=bf16, capture=graph and overlap=on (an interaction: keys, capture and overlap");
    expect_no_sentence(a, "were changed together");
    assert_int_equal(a->contrast_count, 12);
    // 10 of 60 against 0 of 60, as Fisher has it.
    assert_float_equal(a->contrasts[0].fisher, 0.0013, 0.0001);
    assert_int_equal(a->effect_count, 6);
    assert_int_equal(a->effects[0].corrupt, 10);
    gv_analysis_free(a);
    gv_trials_free(&trials);
    gv_plan_free(plan);
}

static void test_conditions(void **state)
{
    gv_plan *plan = parse("factors: {a: {x: , y: }, b: {x: , y: , z: }}\n");
    gv_trials trials = {0};
    // Corrupt with a=x whatever b is, and besides with b=z.
    const char *corrupt[] = {"a=x, b=x", "a=x, b=y", "a=x, b=z", "a=y, b=z"}, *clean[] = {"a=y, b=x", "a=y, b=y"};
    for (size_t i = 0; i < 4; i++)
        add(&trials, 1, corrupt[i], 20, 60);
    for (size_t i = 0; i < 2; i++)
        add(&trials, 1, clean[i], 0, 60);
    gv_analysis *a = analyse(plan, &trials);
    expect_sentence(a, "Corrupt where a=x.");
    expect_sentence(a, "Corrupt where b=z.");
    expect_no_sentence(a, "interaction");
    gv_analysis_free(a);
    gv_trials_free(&trials);
    for (size_t i = 0; i < 4; i++)
        add(&trials, 1, corrupt[i], 20, 60);
    a = analyse(plan, &trials);
    expect_sentence(a, "No cell is clean");
    gv_analysis_free(a);
    gv_trials_free(&trials);
    for (size_t i = 0; i < 2; i++)
        add(&trials, 1, clean[i], 0, 60);
    a = analyse(plan, &trials);
    expect_sentence(a, "No cell was found corrupt, and some have no verdict");
    gv_analysis_free(a);
    gv_trials_free(&trials);
    gv_plan_free(plan);
}

static void test_undecided_is_named(void **state)
{
    gv_plan *plan = parse("factors: {a: {x: , y: }, b: {x: , y: }}\n");
    gv_trials trials = {0};
    add(&trials, 1, "a=x, b=x", 20, 60);
    add(&trials, 1, "a=y, b=y", 0, 60);
    add(&trials, 1, "a=x, b=y", 0, 0);
    gv_analysis *a = analyse(plan, &trials);
    expect_sentence(a, "a and b were changed together: the cell a=x, b=y has no verdict");
    assert_int_equal(a->cells[1].sessions, 0);
    assert_int_equal(a->cells[1].infrastructure, 1);
    assert_int_equal(a->cells[1].verdict, GV_UNDECIDED);
    gv_analysis_free(a);
    gv_trials_free(&trials);
    gv_plan_free(plan);
}

static void test_schedule(void **state)
{
    gv_plan *plan = parse("factors: {a: {x: , y: }}\nstop: {confidence: 0.95}\ndesign: {blocks: 4}\n");
    gv_trials trials = {0};
    gv_step step;
    gv_error error = {0};
    assert_int_equal(gv_run_next(plan, &trials, &step, &error), GV_OK);
    assert_int_equal(step.next.count, 2);
    assert_int_equal(step.next.items[0].block, 1);
    assert_int_not_equal(step.next.items[0].seed, step.next.items[1].seed);
    // While one is open nothing more is planned.
    gv_trial pending = step.next.items[0];
    assert_int_equal(gv_trials_add(&trials, &pending, NULL), GV_OK);
    gv_trials_free(&step.next);
    assert_int_equal(gv_run_next(plan, &trials, &step, &error), GV_OK);
    assert_true(step.next.count == 0 && !step.ended);
    gv_trials_free(&trials);
    // A cell with a verdict is not run again; one without counts three times is given up.
    add(&trials, 1, "a=x", 20, 60);
    add(&trials, 1, "a=y", 0, 0);
    assert_int_equal(gv_run_next(plan, &trials, &step, &error), GV_OK);
    assert_true(step.next.count == 1 && strcmp(step.next.items[0].subject, "a=y") == 0);
    gv_trials_free(&step.next);
    add(&trials, 2, "a=y", 0, 0);
    add(&trials, 3, "a=y", 0, 0);
    assert_int_equal(gv_run_next(plan, &trials, &step, &error), GV_OK);
    assert_true(step.next.count == 0 && step.ended);
    gv_analysis *a = analyse(plan, &trials);
    assert_true(a->cells[1].gave_up && a->cells[1].verdict == GV_UNDECIDED);
    gv_analysis_free(a);
    plan->most_trials = 3;
    gv_trials_free(&trials);
    add(&trials, 1, "a=x", 1, 30);
    add(&trials, 1, "a=y", 1, 30);
    assert_int_equal(gv_run_next(plan, &trials, &step, &error), GV_OK);
    assert_true(step.ended && strstr(step.why, "budget"));
    gv_trials_free(&trials);
    // A ledger of another plan.
    add(&trials, 1, "a=w", 1, 30);
    assert_int_equal(gv_run_next(plan, &trials, &step, &error), GV_ERR_FORMAT);
    gv_trials_free(&trials);
    gv_plan_free(plan);
}

// All corrupt sessions in two of twelve trials: the sessions of one start are not independent.
static void test_dispersion(void **state)
{
    gv_plan *plan = parse("factors: {a: {x: , y: }}\n");
    gv_trials trials = {0};
    for (uint64_t block = 1; block <= 12; block++) {
        add(&trials, block, "a=x", block > 10 ? 8 : 0, 10);
        add(&trials, block, "a=y", block % 2 ? 1 : 2, 10);
    }
    gv_analysis *a = analyse(plan, &trials);
    assert_true(a->cells[0].dispersion < 0.002);
    assert_true(a->cells[1].dispersion > 0.5);
    gv_analysis_free(a);
    gv_trials_free(&trials);
    gv_plan_free(plan);
}

// ---- The search with an oracle that does not err ------------------------------------------------------------------

enum { CHANGES = 8 };

// Runs the search; a set passes when it holds all of `needed`. Returns how many sets were decided.
static size_t search(unsigned needed, gv_search_end *end, unsigned *found)
{
    char text[2048];
    int used = snprintf(text, sizeof text, "factors: {a: {x: , y: }}\nminimise:\n  cell: {a: x}\n  changes:\n");
    for (int i = 0; i < CHANGES; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "    c%d: {environment: {V%d: 1}}\n", i, i);
    gv_plan *plan = parse(text);
    gv_trials trials = {0};
    gv_error error = {0};
    for (;;) {
        gv_search *s;
        assert_int_equal(gv_search_follow(plan, &trials, &s, &error), GV_OK);
        for (size_t i = 0; i < s->step.next.count; i++) {
            gv_trial trial = s->step.next.items[i];
            bool in[CHANGES];
            unsigned set = 0;
            assert_true(gv_set_read(trial.subject, in, CHANGES));
            for (int c = 0; c < CHANGES; c++)
                set |= (unsigned)in[c] << c;
            trial.outcome = GV_OUTCOME_COUNTED;
            trial.sessions = 60;
            trial.corrupt = (set & needed) == needed ? 0 : 15;
            assert_int_equal(gv_trials_add(&trials, &trial, NULL), GV_OK);
        }
        size_t decided = s->decision_count;
        *end = s->end;
        *found = 0;
        for (int c = 0; c < CHANGES; c++)
            *found |= (unsigned)s->in[c] << c;
        bool ended = s->step.ended;
        assert_true(s->error < 1 - plan->minimise.confidence);
        gv_search_free(s);
        if (ended) {
            gv_trials_free(&trials);
            gv_plan_free(plan);
            return decided;
        }
    }
}

// Of every set of needed changes exactly that set is found, within ddmin's bound on the number of tests.
static void test_search(void **state)
{
    for (unsigned needed = 1; needed < 1u << CHANGES; needed++) {
        gv_search_end end;
        unsigned found;
        size_t decided = search(needed, &end, &found);
        assert_int_equal(end, GV_SEARCH_FOUND);
        assert_int_equal(found, needed);
        assert_true(decided <= CHANGES * CHANGES + 3 * CHANGES);
    }
    gv_search_end end;
    unsigned found;
    search(0, &end, &found);
    assert_int_equal(end, GV_SEARCH_NOTHING);
    search(1u << CHANGES, &end, &found);
    assert_int_equal(end, GV_SEARCH_ALL_FAIL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_incident),   cmocka_unit_test(test_whole_factorial),
        cmocka_unit_test(test_conditions), cmocka_unit_test(test_undecided_is_named),
        cmocka_unit_test(test_schedule),   cmocka_unit_test(test_dispersion),
        cmocka_unit_test(test_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
