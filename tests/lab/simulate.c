// The statistics of `gravel lab` against oracles whose rates are known: how often its conclusions are wrong, and what
// stopping early saves. Trials are not run but drawn, everything else (schedule, stop rule, search) is the program's
// own.
//     lab_simulate RUNS [SEED]
// Exits 1 when wrong conclusions are more frequent than the stated error allows, or less is saved than promised.
#include "base/memory.h"
#include "base/statistics.h"
#include "lab/analysis.h"
#include "lab/design.h"
#include "lab/minimise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gv_random state;
static int failures;

static double uniform(void)
{
    return (double)(gv_random_next(&state) >> 11) * 0x1p-53;
}

static void stop_at(const char *what, const gv_error *error)
{
    fprintf(stderr, "lab_simulate: %s: %s\n", what, error->text);
    exit(2);
}

// A trial's counts, drawn. One in fifty says nothing, as services do.
static void draw(gv_trial *trial, double rate, uint64_t sessions)
{
    if (uniform() < 0.02) {
        trial->outcome = GV_OUTCOME_INFRASTRUCTURE;
        return;
    }
    trial->outcome = GV_OUTCOME_COUNTED;
    trial->sessions = sessions;
    for (uint64_t i = 0; i < sessions; i++)
        trial->corrupt += uniform() < rate;
}

static gv_plan *parse(const char *text)
{
    gv_error error = {0};
    gv_plan *plan;
    if (gv_plan_parse("plan.yaml", text, strlen(text), &plan, &error) != GV_OK)
        stop_at("plan", &error);
    return plan;
}

#define SERVICE                                                                \
    "version: 1\nname: simulation\nservice: {command: [x], ready: {url: x}}\n" \
    "trial: {command: [x], sessions: 5, counts: {format: text, sessions: '(x)', corrupt: '(x)'}}\n"

// At most `allowed` of `runs` may be wrong; that and no more is what a count this high would be improbable under.
static void judge(const char *what, uint64_t wrong, uint64_t runs, double allowed)
{
    double beyond = wrong ? 1 - gv_binomial_at_most(wrong - 1, runs, allowed) : 1;
    gv_interval interval = gv_clopper_pearson(wrong, runs, 0.95);
    bool good = beyond > 0.001;
    printf("%-58s %llu of %llu wrong = %.2f %% (95 %% interval %.2f-%.2f %%), stated %.2f %%: %s\n", what,
           (unsigned long long)wrong, (unsigned long long)runs, 100.0 * (double)wrong / (double)runs,
           100 * interval.low, 100 * interval.high, 100 * allowed, good ? "holds" : "FAILS");
    failures += !good;
}

// ---- Runs ---------------------------------------------------------------------------------------------------------

typedef struct run_counts {
    uint64_t runs, wrong_verdict, wrong_contrast, sessions, undecided;
} run_counts;

static gv_analysis *run_once(gv_plan *plan, const double *rates)
{
    gv_error error = {0};
    gv_trials trials = {0};
    for (;;) {
        gv_step step;
        if (gv_run_next(plan, &trials, &step, &error) != GV_OK)
            stop_at("schedule", &error);
        for (size_t i = 0; i < step.next.count; i++) {
            gv_trial trial = step.next.items[i];
            size_t cell = 0;
            for (size_t c = 0; c < plan->design.cell_count; c++) {
                char *name = gv_plan_cell_name(plan, &plan->design.cells[c]);
                cell = name && strcmp(name, trial.subject) == 0 ? c : cell;
                gv_free(name);
            }
            draw(&trial, rates[cell], plan->trial.sessions);
            if (gv_trials_add(&trials, &trial, &error) != GV_OK)
                stop_at("trial", &error);
        }
        gv_trials_free(&step.next);
        if (step.ended)
            break;
    }
    gv_analysis *analysis;
    if (gv_analyse(plan, &trials, &analysis, &error) != GV_OK)
        stop_at("analysis", &error);
    gv_trials_free(&trials);
    return analysis;
}

static void count_run(const gv_analysis *a, const double *rates, run_counts *tally)
{
    const gv_stop *stop = &a->plan->stop;
    bool wrong = false, wrong_contrast = false;
    for (size_t c = 0; c < a->cell_count; c++) {
        wrong = wrong || (a->cells[c].verdict == GV_LOW && rates[c] >= stop->corrupt);
        wrong = wrong || (a->cells[c].verdict == GV_HIGH && rates[c] <= stop->clean);
        tally->undecided += a->cells[c].verdict == GV_UNDECIDED;
        tally->sessions += a->cells[c].sessions;
    }
    for (size_t i = 0; i < a->contrast_count; i++)
        wrong_contrast =
            wrong_contrast || (a->contrasts[i].shown && rates[a->contrasts[i].first] == rates[a->contrasts[i].second]);
    tally->runs++;
    tally->wrong_verdict += wrong;
    tally->wrong_contrast += wrong_contrast;
}

// Cells whose rates are drawn from 0 to 20 %, with many at the two rates that are told apart, where errors are
// likeliest.
static void study_runs(const char *rule, const char *until, double confidence, uint64_t runs)
{
    static const double likely[] = {0, 0.01, 0.01, 0.05, 0.15, 0.15, 0.2};
    char text[1024];
    snprintf(text, sizeof text,
             SERVICE "factors: {a: {x: , y: }, b: {x: , y: }}\ndesign: {kind: full, blocks: 40}\n"
                     "stop: {rule: %s, until: %s, clean: 0.01, corrupt: 0.15, confidence: %g}\n",
             rule, until, confidence);
    gv_plan *plan = parse(text);
    run_counts tally = {0};
    for (uint64_t i = 0; i < runs; i++) {
        double rates[4];
        for (int c = 0; c < 4; c++)
            rates[c] = uniform() < 0.3 ? 0.2 * uniform() : likely[gv_random_below(&state, 7)];
        if (i % 3 == 0)
            rates[1] = rates[2] = rates[3] = rates[0];
        plan->seed = i;
        gv_analysis *analysis = run_once(plan, rates);
        count_run(analysis, rates, &tally);
        gv_analysis_free(analysis);
    }
    char what[120];
    snprintf(what, sizeof what, "verdicts of 4 cells, %s, until %s", rule, until);
    judge(what, tally.wrong_verdict, tally.runs, 1 - confidence);
    snprintf(what, sizeof what, "contrasts of 4 cells, %s, until %s", rule, until);
    judge(what, tally.wrong_contrast, tally.runs, 1 - confidence);
    gv_plan_free(plan);
}

// Two cells, 15 % and 0 %: sessions against a fixed design that gives the same assurance.
static void study_savings(const char *until, double confidence, uint64_t runs)
{
    const double rates[] = {0.15, 0};
    char text[1024];
    snprintf(text, sizeof text,
             SERVICE "factors: {a: {x: , y: }}\ndesign: {kind: full, blocks: 200}\n"
                     "stop: {rule: sequential, until: %s, clean: 0.01, corrupt: 0.15, confidence: %g}\n",
             until, confidence);
    gv_plan *plan = parse(text);
    run_counts tally = {0};
    uint64_t found = 0;
    for (uint64_t i = 0; i < runs; i++) {
        plan->seed = i;
        gv_analysis *analysis = run_once(plan, rates);
        count_run(analysis, rates, &tally);
        found += plan->stop.contrasts ? analysis->contrasts[0].shown
                                      : analysis->cells[0].verdict == GV_HIGH && analysis->cells[1].verdict == GV_LOW;
        gv_analysis_free(analysis);
    }
    double each = 1 - (1 - confidence) / 2;
    double fixed = 2.0 * (double)(plan->stop.contrasts ? gv_sessions_to_tell(0.15, 0.01, confidence)
                                                       : gv_sessions_to_classify(0.01, 0.15, each))
                             .sessions;
    double mean = (double)tally.sessions / (double)runs;
    // Both verdicts are right with the stated probability; how often a contrast is shown is only told.
    uint64_t missed = runs - found;
    bool usual = plan->stop.contrasts || !missed || 1 - gv_binomial_at_most(missed - 1, runs, 1 - confidence) > 0.001;
    bool good = mean <= fixed / 2 && usual;
    printf("15 %% against 0 %%, until %-9s at %g %%: %.1f sessions on average, fixed design %.0f: saves %.0f %%, right "
           "in %.1f %%: %s\n",
           until, 100 * confidence, mean, fixed, 100 * (1 - mean / fixed), 100.0 * (double)found / (double)runs,
           good ? "holds" : "FAILS");
    failures += !good;
    gv_plan_free(plan);
}

// ---- Searches -----------------------------------------------------------------------------------------------------

enum { CHANGES = 6 };

// A set's rate: the needed changes together bring it down to `cured`; each alone may help in part.
typedef struct oracle {
    bool needed[CHANGES];
    double sick, cured, part;
} oracle;

static double rate_of(const oracle *truth, const bool *in)
{
    bool all = true, some = false;
    for (int i = 0; i < CHANGES; i++) {
        all = all && (!truth->needed[i] || in[i]);
        some = some || (truth->needed[i] && in[i]);
    }
    return all ? truth->cured : some ? truth->part : truth->sick;
}

static gv_search *search_once(gv_plan *plan, const oracle *truth)
{
    gv_error error = {0};
    gv_trials trials = {0};
    for (;;) {
        gv_search *search;
        if (gv_search_follow(plan, &trials, &search, &error) != GV_OK)
            stop_at("search", &error);
        if (search->step.ended) {
            gv_trials_free(&trials);
            return search;
        }
        for (size_t i = 0; i < search->step.next.count; i++) {
            gv_trial trial = search->step.next.items[i];
            bool in[CHANGES];
            if (!gv_set_read(trial.subject, in, CHANGES))
                stop_at("set", &error);
            draw(&trial, rate_of(truth, in), plan->trial.sessions);
            if (gv_trials_add(&trials, &trial, &error) != GV_OK)
                stop_at("trial", &error);
        }
        gv_search_free(search);
    }
}

static void study_searches(double confidence, uint64_t runs)
{
    char text[2048];
    int used = snprintf(text, sizeof text,
                        SERVICE "factors: {a: {x: , y: }}\nminimise:\n  cell: {a: x}\n"
                                "  confidence: %g\n  most_sessions: 2000\n  changes:\n",
                        confidence);
    for (int i = 0; i < CHANGES; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "    c%d: {environment: {V%d: 1}}\n", i, i);
    gv_plan *plan = parse(text);
    uint64_t wrong = 0, exact = 0, sessions = 0, decisions = 0, unresolved = 0;
    for (uint64_t run = 0; run < runs; run++) {
        oracle truth = {.sick = 0.15 + 0.05 * uniform(), .cured = uniform() < 0.5 ? 0 : 0.01};
        uint64_t needed = 1 + gv_random_below(&state, 3);
        for (uint64_t i = 0; i < needed; i++)
            truth.needed[gv_random_below(&state, CHANGES)] = true;
        truth.part = uniform() < 0.3 ? 0.2 * uniform() : truth.sick;
        plan->seed = run;
        gv_search *search = search_once(plan, &truth);
        // Wrong is any answer that the set's rate contradicts: it is what the error bound is about.
        bool bad = false;
        for (size_t i = 0; i < search->decision_count; i++) {
            const gv_decision *decision = &search->decisions[i];
            double rate = rate_of(&truth, decision->in);
            bad = bad || (decision->answer == GV_ANSWER_PASS && rate >= plan->minimise.corrupt);
            bad = bad || (decision->answer == GV_ANSWER_FAIL && rate <= plan->minimise.clean);
            unresolved += decision->answer == GV_ANSWER_UNRESOLVED;
        }
        wrong += bad;
        exact += search->end == GV_SEARCH_FOUND && memcmp(search->in, truth.needed, sizeof truth.needed) == 0;
        sessions += search->sessions;
        decisions += search->decision_count;
        gv_search_free(search);
    }
    judge("minimise, 6 changes of which 1 to 3 are needed", wrong, runs, 1 - confidence);
    printf("minimise at %g %%: exactly the needed set in %.1f %% of searches, %.1f decisions and %.0f sessions on "
           "average, "
           "%llu unresolved\n",
           100 * confidence, 100.0 * (double)exact / (double)runs, (double)decisions / (double)runs,
           (double)sessions / (double)runs, (unsigned long long)unresolved);
    gv_plan_free(plan);
}

int main(int argc, char **argv)
{
    uint64_t runs = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000;
    state = gv_random_open(argc > 2 ? strtoull(argv[2], NULL, 10) : 7, 0);
    if (runs == 0) {
        fprintf(stderr, "usage: lab_simulate RUNS [SEED]\n");
        return 2;
    }
    study_runs("sequential", "verdicts", 0.95, runs);
    study_runs("sequential", "contrasts", 0.95, runs);
    study_runs("fixed", "verdicts", 0.95, runs);
    study_savings("verdicts", 0.99, runs);
    study_savings("contrasts", 0.99, runs);
    study_savings("verdicts", 0.95, runs);
    study_savings("contrasts", 0.95, runs);
    study_searches(0.95, runs);
    printf(failures ? "lab_simulate: %d of its bounds do not hold\n" : "lab_simulate: every bound holds\n", failures);
    return failures ? 1 : 0;
}
