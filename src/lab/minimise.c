#include "lab/minimise.h"

#include "base/memory.h"
#include "lab/analysis.h"
#include "lab/design.h"
#include "report/format.h"

#include <stdlib.h>
#include <string.h>

const char *gv_answer_name(gv_answer answer)
{
    switch (answer) {
    case GV_ANSWER_PASS: return "passes";
    case GV_ANSWER_FAIL: return "fails";
    case GV_ANSWER_UNRESOLVED: return "unresolved";
    }
    return "unknown";
}

double gv_decision_error(double confidence, uint64_t number)
{
    double i = (double)number;
    return (1 - confidence) / (i * (i + 1));
}

char *gv_set_name(const bool *in, size_t count)
{
    gv_string name = {0};
    for (size_t i = 0; i < count; i++) {
        if (in[i])
            gv_string_add(&name, "%s%zu", name.length ? " " : "", i + 1);
    }
    if (!name.length)
        gv_string_add(&name, "none");
    if (name.failed)
        gv_string_free(&name);
    return name.text;
}

bool gv_set_read(const char *name, bool *in, size_t count)
{
    memset(in, 0, count * sizeof *in);
    if (strcmp(name, "none") == 0)
        return true;
    while (*name) {
        char *end;
        unsigned long long number = strtoull(name, &end, 10);
        if (end == name || number < 1 || number > count || (*end && *end != ' '))
            return false;
        in[number - 1] = true;
        name = *end ? end + 1 : end;
    }
    return true;
}

char *gv_set_text(const gv_plan *plan, const char *name)
{
    bool *in = gv_calloc(plan->minimise.count, sizeof *in);
    gv_string text = {0};
    if (in && gv_set_read(name, in, plan->minimise.count)) {
        for (size_t i = 0; i < plan->minimise.count; i++) {
            if (in[i])
                gv_string_add(&text, "%s%s", text.length ? ", " : "", plan->minimise.changes[i].name);
        }
        if (!text.length)
            gv_string_add(&text, "no change");
    } else if (in) {
        gv_string_add(&text, "%s", name);
    }
    gv_free(in);
    if (text.failed)
        gv_string_free(&text);
    return text.text;
}

// ---- The oracle ---------------------------------------------------------------------------------------------------

// What asking about a set came to.
typedef enum reply { ASKED_ANSWERED, ASKED_OPEN, ASKED_FAILED } reply;

typedef struct follower {
    const gv_plan *plan;
    const gv_trials *trials;
    gv_search *search;
    gv_status status;
    gv_error *error;
} follower;

static reply no_memory(follower *f)
{
    f->status = gv_fail(f->error, GV_ERR_MEMORY, "out of memory for the search");
    return ASKED_FAILED;
}

// Counts the trials of a decision in their order. Sets the answer where there is one.
static bool weigh(const follower *f, gv_decision *decision)
{
    const gv_minimise *m = &f->plan->minimise;
    gv_sprt test = {.low = m->clean, .high = m->corrupt, .wrong_high = decision->error, .wrong_low = decision->error};
    uint64_t in_a_row = 0;
    for (size_t i = 0; i < f->trials->count; i++) {
        const gv_trial *trial = &f->trials->items[i];
        if (trial->block != decision->number || trial->outcome == GV_OUTCOME_PENDING)
            continue;
        decision->trials++;
        decision->infrastructure += trial->outcome == GV_OUTCOME_INFRASTRUCTURE;
        decision->timed_out += trial->outcome == GV_OUTCOME_TIMED_OUT;
        decision->voided += trial->outcome == GV_OUTCOME_VOID;
        in_a_row = trial->outcome == GV_OUTCOME_COUNTED ? 0 : in_a_row + 1;
        if (trial->outcome == GV_OUTCOME_COUNTED) {
            decision->sessions += trial->sessions;
            decision->corrupt += trial->corrupt;
        }
        gv_verdict verdict = gv_sprt_verdict(&test, decision->corrupt, decision->sessions);
        if (verdict != GV_UNDECIDED) {
            decision->answer = verdict == GV_LOW ? GV_ANSWER_PASS : GV_ANSWER_FAIL;
            return true;
        }
        if (in_a_row >= GV_LAB_GIVE_UP || decision->sessions >= m->most_sessions) {
            decision->answer = GV_ANSWER_UNRESOLVED;
            return true;
        }
    }
    return false;
}

static bool plan_trials(follower *f, const gv_decision *decision)
{
    gv_step *step = &f->search->step;
    for (uint64_t i = 0; i < f->plan->minimise.together; i++) {
        gv_trial trial = {
            .number = f->trials->count + step->next.count + 1, .block = decision->number, .subject = decision->name};
        trial.seed = gv_trial_seed(f->plan->seed, trial.number);
        if (gv_trials_add(&step->next, &trial, f->error) != GV_OK)
            return false;
    }
    return true;
}

// Asks whether a set passes; `*answer` is set for ASKED_ANSWERED. A set that was decided once is not asked again.
static reply ask(follower *f, const bool *in, gv_answer *answer)
{
    gv_search *search = f->search;
    size_t count = search->change_count;
    for (size_t i = 0; i < search->decision_count; i++) {
        if (memcmp(search->decisions[i].in, in, count * sizeof *in) == 0) {
            *answer = search->decisions[i].answer;
            return ASKED_ANSWERED;
        }
    }
    if (!GV_GROW(search->decisions, search->decision_capacity, search->decision_count + 1))
        return no_memory(f);
    gv_decision *decision = &search->decisions[search->decision_count];
    *decision = (gv_decision){.number = search->decision_count + 1, .in = gv_calloc(count, sizeof *in)};
    decision->name = gv_set_name(in, count);
    decision->error = gv_decision_error(f->plan->minimise.confidence, decision->number);
    search->decision_count++;
    if (!decision->in || !decision->name)
        return no_memory(f);
    memcpy(decision->in, in, count * sizeof *in);
    for (size_t i = 0; i < count; i++)
        decision->size += in[i];
    bool answered = weigh(f, decision);
    search->sessions += decision->sessions;
    search->error += decision->error;
    if (answered) {
        *answer = decision->answer;
        return ASKED_ANSWERED;
    }
    // The decision that is being worked on stays in the list for `status`, as unresolved.
    decision->answer = GV_ANSWER_UNRESOLVED;
    if (!gv_trials_pending(f->trials) && !plan_trials(f, decision)) {
        f->status = GV_ERR_MEMORY;
        return ASKED_FAILED;
    }
    return ASKED_OPEN;
}

// ---- ddmin --------------------------------------------------------------------------------------------------------

// Part `i` of `n` of the current set: its members from size * i / n on. `rest` gets the others.
static void split(const gv_search *search, size_t i, size_t n, bool *part, bool *rest)
{
    size_t from = search->size * i / n, to = search->size * (i + 1) / n, seen = 0;
    for (size_t c = 0; c < search->change_count; c++) {
        part[c] = search->in[c] && seen >= from && seen < to;
        rest[c] = search->in[c] && !part[c];
        seen += search->in[c];
    }
}

static void take(gv_search *search, const bool *in)
{
    memcpy(search->in, in, search->change_count * sizeof *in);
    search->size = 0;
    for (size_t c = 0; c < search->change_count; c++)
        search->size += in[c];
}

// The reduction from a set that passes. Ends with ASKED_ANSWERED when nothing can be left out any more.
static reply reduce(follower *f, bool *part, bool *rest)
{
    gv_search *search = f->search;
    size_t n = 2;
    while (search->size > 1) {
        bool smaller = false;
        n = n > search->size ? search->size : n;
        // The parts alone, then what is left without each of them. With two parts both are the same sets.
        for (size_t i = 0; i < (n == 2 ? n : 2 * n) && !smaller; i++) {
            gv_answer answer;
            split(search, i % n, n, part, rest);
            const bool *set = i < n ? part : rest;
            reply asked = ask(f, set, &answer);
            if (asked != ASKED_ANSWERED)
                return asked;
            if (answer != GV_ANSWER_PASS)
                continue;
            take(search, set);
            n = i < n || n == 2 ? 2 : n - 1;
            smaller = true;
        }
        if (smaller)
            continue;
        if (n == search->size)
            break;
        n = 2 * n;
    }
    return ASKED_ANSWERED;
}

// Whether leaving out each single change was seen to fail.
static gv_search_end how_minimal(follower *f, bool *set)
{
    const gv_search *search = f->search;
    for (size_t c = 0; c < search->change_count; c++) {
        if (!search->in[c])
            continue;
        memcpy(set, search->in, search->change_count * sizeof *set);
        set[c] = false;
        gv_answer answer = GV_ANSWER_UNRESOLVED;
        for (size_t i = 0; i < search->decision_count; i++) {
            if (memcmp(search->decisions[i].in, set, search->change_count * sizeof *set) == 0)
                answer = search->decisions[i].answer;
        }
        if (answer != GV_ANSWER_FAIL)
            return GV_SEARCH_FOUND_SOME;
    }
    return GV_SEARCH_FOUND;
}

static reply follow(follower *f, bool *part, bool *rest)
{
    gv_search *search = f->search;
    gv_answer none, all;
    reply asked = ask(f, part, &none);
    if (asked != ASKED_ANSWERED)
        return asked;
    if (none == GV_ANSWER_PASS) {
        take(search, part);
        search->end = GV_SEARCH_NOTHING;
        return ASKED_ANSWERED;
    }
    asked = ask(f, search->in, &all);
    if (asked != ASKED_ANSWERED)
        return asked;
    if (all != GV_ANSWER_PASS || none == GV_ANSWER_UNRESOLVED) {
        search->end = all == GV_ANSWER_FAIL ? GV_SEARCH_ALL_FAIL : GV_SEARCH_UNRESOLVED;
        return ASKED_ANSWERED;
    }
    asked = reduce(f, part, rest);
    if (asked == ASKED_ANSWERED)
        search->end = how_minimal(f, part);
    return asked;
}

static double spent_seconds(const gv_trials *trials)
{
    double seconds = 0;
    for (size_t i = 0; i < trials->count; i++)
        seconds += trials->items[i].seconds;
    return seconds;
}

// Ends a search that is open and whose budget does not reach for the trials it wants.
static void apply_budget(follower *f)
{
    gv_step *step = &f->search->step;
    const gv_plan *plan = f->plan;
    const char *why = NULL;
    if (plan->most_trials && f->trials->count + step->next.count > plan->most_trials)
        why = "the budget of trials is used up; the search has not ended";
    else if (plan->most_seconds > 0 && spent_seconds(f->trials) >= plan->most_seconds)
        why = "the budget of time is used up; the search has not ended";
    if (!why || step->next.count == 0)
        return;
    gv_trials_free(&step->next);
    step->ended = true;
    step->why = why;
}

static const char *reason(gv_search_end end)
{
    switch (end) {
    case GV_SEARCH_OPEN: return "more trials are needed";
    case GV_SEARCH_FOUND: return "a set was found of which no change can be left out";
    case GV_SEARCH_FOUND_SOME:
        return "a set was found; for some of its changes it is not known whether they are needed";
    case GV_SEARCH_NOTHING: return "the cell passes without any change";
    case GV_SEARCH_ALL_FAIL: return "all changes together do not pass";
    case GV_SEARCH_UNRESOLVED:
        return "it could not be decided whether the cell fails without changes and passes with all";
    }
    return "?";
}

gv_status gv_search_follow(const gv_plan *plan, const gv_trials *trials, gv_search **result, gv_error *error)
{
    *result = NULL;
    size_t count = plan->minimise.count;
    gv_search *search = gv_calloc(1, sizeof *search);
    bool *part = gv_calloc(count, sizeof *part), *rest = gv_calloc(count, sizeof *rest);
    follower f = {.plan = plan, .trials = trials, .search = search, .error = error};
    if (search)
        search->in = gv_calloc(count, sizeof *search->in);
    if (!search || !part || !rest || !search->in) {
        no_memory(&f);
    } else {
        search->change_count = search->size = count;
        memset(search->in, true, count * sizeof *search->in);
        if (follow(&f, part, rest) == ASKED_ANSWERED)
            search->step.ended = true;
        search->step.why = reason(search->end);
        apply_budget(&f);
    }
    gv_free(part);
    gv_free(rest);
    if (f.status != GV_OK) {
        gv_search_free(search);
        return f.status;
    }
    *result = search;
    return GV_OK;
}

void gv_search_free(gv_search *search)
{
    if (!search)
        return;
    for (size_t i = 0; i < search->decision_count; i++) {
        gv_free(search->decisions[i].in);
        gv_free(search->decisions[i].name);
    }
    gv_free(search->decisions);
    gv_free(search->in);
    gv_trials_free(&search->step.next);
    gv_free(search);
}
