#include "lab/analysis.h"

#include "base/memory.h"
#include "lab/design.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *gv_cell_verdict_name(gv_verdict verdict)
{
    return verdict == GV_LOW ? "clean" : verdict == GV_HIGH ? "corrupt" : "undecided";
}

gv_sprt gv_cell_test(const gv_plan *plan)
{
    double error = (1 - plan->stop.confidence) / (double)plan->design.cell_count;
    return (gv_sprt){.low = plan->stop.clean, .high = plan->stop.corrupt, .wrong_high = error, .wrong_low = error};
}

// ---- Counting -----------------------------------------------------------------------------------------------------

// The counts of one cell in one block.
typedef struct tally {
    uint64_t corrupt, sessions;
} tally;

typedef struct counted {
    gv_analysis *analysis;
    tally *pairs;    // blocks x cells
    size_t *cell_of; // of each trial
} counted;

static const tally *pair_at(const counted *c, uint64_t block, size_t cell)
{
    return &c->pairs[(block - 1) * c->analysis->cell_count + cell];
}

static gv_status find_cells(const gv_plan *plan, const gv_trials *trials, size_t *cell_of, gv_error *error)
{
    char **names = gv_calloc(plan->design.cell_count, sizeof *names);
    gv_status status = names ? GV_OK : gv_fail(error, GV_ERR_MEMORY, "out of memory for the cells");
    for (size_t c = 0; status == GV_OK && c < plan->design.cell_count; c++) {
        names[c] = gv_plan_cell_name(plan, &plan->design.cells[c]);
        if (!names[c])
            status = gv_fail(error, GV_ERR_MEMORY, "out of memory for the cells");
    }
    for (size_t i = 0; status == GV_OK && i < trials->count; i++) {
        size_t c = 0;
        while (c < plan->design.cell_count && strcmp(names[c], trials->items[i].subject) != 0)
            c++;
        if (c == plan->design.cell_count)
            status = gv_fail(error, GV_ERR_FORMAT,
                             "trial %llu is of the cell \"%s\", which the plan does not have; the "
                             "ledger belongs to another plan",
                             (unsigned long long)trials->items[i].number, trials->items[i].subject);
        cell_of[i] = c;
    }
    for (size_t c = 0; names && c < plan->design.cell_count; c++)
        gv_free(names[c]);
    gv_free(names);
    return status;
}

// Whether the trials of a cell differ more than chance allows: the sessions of one start of a service may share what
// makes them corrupt. The distribution of the chi-squared statistic, given the sums, by 2,000 draws with a fixed seed.
static double dispersion(const counted *c, size_t cell, uint64_t blocks)
{
    enum { DRAWS = 2000, MOST = 100000 };
    uint64_t sessions = 0, corrupt = 0, groups = 0;
    for (uint64_t b = 1; b <= blocks; b++) {
        sessions += pair_at(c, b, cell)->sessions;
        corrupt += pair_at(c, b, cell)->corrupt;
        groups += pair_at(c, b, cell)->sessions > 0;
    }
    if (groups < 2 || sessions > MOST)
        return NAN;
    if (corrupt == 0 || corrupt == sessions)
        return 1;
    uint64_t *left = gv_calloc(blocks, sizeof *left), *got = gv_calloc(blocks, sizeof *got);
    double own = 0;
    uint64_t further = 0;
    gv_random random = gv_random_open(20261130, 0);
    double rate = (double)corrupt / (double)sessions;
    for (int draw = 0; left && got && draw <= DRAWS; draw++) {
        double sum = 0;
        for (uint64_t b = 0; b < blocks; b++) {
            left[b] = pair_at(c, b + 1, cell)->sessions;
            got[b] = draw == 0 ? pair_at(c, b + 1, cell)->corrupt : 0;
        }
        // The corrupt sessions fall on the sessions without replacement.
        for (uint64_t k = 0, rest = sessions; draw > 0 && k < corrupt; k++, rest--) {
            uint64_t hit = gv_random_below(&random, rest), b = 0;
            while (hit >= left[b])
                hit -= left[b++];
            left[b]--;
            got[b]++;
        }
        for (uint64_t b = 0; b < blocks; b++) {
            double n = (double)pair_at(c, b + 1, cell)->sessions, off = (double)got[b] - n * rate;
            sum += n > 0 ? off * off / n : 0;
        }
        if (draw == 0)
            own = sum;
        else
            further += sum >= own - 1e-9;
    }
    double p = left && got ? (double)(further + 1) / (DRAWS + 1) : NAN;
    gv_free(left);
    gv_free(got);
    return p;
}

// The verdict under the fixed rule: the same claims as the sequential test's, each by the exact binomial tail.
static gv_verdict fixed_verdict(const gv_sprt *test, uint64_t k, uint64_t n)
{
    if (n == 0)
        return GV_UNDECIDED;
    double at_least = k ? 1 - gv_binomial_at_most(k - 1, n, test->low) : 1;
    if (at_least <= test->wrong_high)
        return GV_HIGH;
    return gv_binomial_at_most(k, n, test->high) <= test->wrong_low ? GV_LOW : GV_UNDECIDED;
}

static void count_cell(const counted *c, size_t cell, uint64_t blocks, bool full)
{
    gv_cell_result *result = &c->analysis->cells[cell];
    const gv_plan *plan = c->analysis->plan;
    gv_sprt test = gv_cell_test(plan);
    for (uint64_t b = 1; b <= blocks; b++) {
        const tally *own = pair_at(c, b, cell);
        result->sessions += own->sessions;
        result->corrupt += own->corrupt;
        if (plan->stop.sequential && result->verdict == GV_UNDECIDED)
            result->verdict = gv_sprt_verdict(&test, result->corrupt, result->sessions);
        if (plan->stop.sequential && result->verdict != GV_UNDECIDED && !result->at_sessions) {
            result->at_sessions = result->sessions;
            result->at_corrupt = result->corrupt;
        }
    }
    if (!plan->stop.sequential) {
        result->verdict = fixed_verdict(&test, result->corrupt, result->sessions);
        result->at_sessions = result->sessions;
        result->at_corrupt = result->corrupt;
    }
    result->interval = gv_clopper_pearson(result->corrupt, result->sessions, 0.95);
    result->dispersion = full ? dispersion(c, cell, blocks) : NAN;
    result->gave_up = result->in_a_row >= GV_LAB_GIVE_UP;
}

// ---- Contrasts ----------------------------------------------------------------------------------------------------

static gv_status list_contrasts(gv_analysis *a, gv_error *error)
{
    size_t capacity = 0;
    const gv_plan *plan = a->plan;
    for (size_t i = 0; i < a->cell_count; i++) {
        for (size_t j = i + 1; j < a->cell_count; j++) {
            uint32_t factors;
            if (gv_cell_difference(plan, &a->cells[i].cell, &a->cells[j].cell, &factors) != 1)
                continue;
            if (!GV_GROW(a->contrasts, capacity, a->contrast_count + 1))
                return gv_fail(error, GV_ERR_MEMORY, "out of memory for the contrasts");
            a->contrasts[a->contrast_count++] = (gv_contrast_result){.first = i, .second = j, .factors = factors};
        }
    }
    for (size_t i = 0; i < plan->comparison_count; i++) {
        const gv_comparison *wanted = &plan->comparisons[i];
        long from = gv_design_find(plan, &wanted->from), to = gv_design_find(plan, &wanted->to);
        uint32_t factors;
        // One whose cells are not run, or that is there already as a contrast of one factor, is only described.
        if (from < 0 || to < 0 || gv_cell_difference(plan, &wanted->from, &wanted->to, &factors) < 2)
            continue;
        if (!GV_GROW(a->contrasts, capacity, a->contrast_count + 1))
            return gv_fail(error, GV_ERR_MEMORY, "out of memory for the contrasts");
        a->contrasts[a->contrast_count++] =
            (gv_contrast_result){.first = (size_t)from, .second = (size_t)to, .factors = factors, .name = wanted->name};
    }
    return GV_OK;
}

static int by_p(const void *a, const void *b)
{
    double x = (*(gv_contrast_result *const *)a)->adjusted, y = (*(gv_contrast_result *const *)b)->adjusted;
    return (x > y) - (x < y);
}

// Holm's step-down adjustment (Scandinavian Journal of Statistics 6, 1979).
static gv_status adjust(gv_analysis *a, gv_error *error)
{
    gv_contrast_result **order = gv_calloc(a->contrast_count, sizeof *order);
    if (!order)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory for the contrasts");
    for (size_t i = 0; i < a->contrast_count; i++)
        order[i] = &a->contrasts[i];
    qsort(order, a->contrast_count, sizeof *order, by_p);
    double largest = 0;
    for (size_t i = 0; i < a->contrast_count; i++) {
        largest = fmax(largest, fmin(1, order[i]->adjusted * (double)(a->contrast_count - i)));
        order[i]->adjusted = largest;
        order[i]->shown = largest <= 1 - a->plan->stop.confidence;
    }
    gv_free(order);
    return GV_OK;
}

static void compute_contrasts(const counted *c, uint64_t blocks)
{
    gv_analysis *a = c->analysis;
    for (size_t i = 0; i < a->contrast_count; i++) {
        gv_contrast_result *contrast = &a->contrasts[i];
        const gv_cell_result *first = &a->cells[contrast->first], *second = &a->cells[contrast->second];
        contrast->fisher =
            gv_fisher_exact(first->corrupt, first->sessions, second->corrupt, second->sessions, GV_TWO_SIDED);
        gv_contrast evidence = gv_contrast_open(a->plan->stop.corrupt, a->plan->stop.clean);
        for (uint64_t b = 1; b <= blocks; b++) {
            const tally *one = pair_at(c, b, contrast->first), *other = pair_at(c, b, contrast->second);
            gv_contrast_add(&evidence, one->corrupt, one->sessions, other->corrupt, other->sessions);
        }
        contrast->anytime = gv_contrast_p(&evidence);
        contrast->adjusted = a->plan->stop.sequential ? contrast->anytime : contrast->fisher;
    }
}

// ---- When a cell stops --------------------------------------------------------------------------------------------

// A contrast needs no more sessions: it is shown, or both cells have the same verdict, or one cannot be measured.
static bool settled(const gv_analysis *a, const gv_contrast_result *contrast)
{
    const gv_cell_result *first = &a->cells[contrast->first], *second = &a->cells[contrast->second];
    bool alike = first->verdict != GV_UNDECIDED && first->verdict == second->verdict;
    double level = (1 - a->plan->stop.confidence) / (double)a->contrast_count;
    return contrast->anytime <= level || alike || first->gave_up || second->gave_up;
}

static void decide_running(gv_analysis *a)
{
    for (size_t i = 0; i < a->cell_count; i++) {
        gv_cell_result *cell = &a->cells[i];
        cell->running = !cell->gave_up && (!a->plan->stop.sequential || cell->verdict == GV_UNDECIDED);
    }
    for (size_t i = 0; a->plan->stop.sequential && a->plan->stop.contrasts && i < a->contrast_count; i++) {
        if (settled(a, &a->contrasts[i]))
            continue;
        // settled() is true where one was given up.
        a->cells[a->contrasts[i].first].running = true;
        a->cells[a->contrasts[i].second].running = true;
    }
}

static gv_status pool_effects(gv_analysis *a, gv_error *error)
{
    const gv_plan *plan = a->plan;
    size_t count = 0;
    for (size_t f = 0; f < plan->factor_count; f++)
        count += plan->factors[f].count;
    a->effects = gv_calloc(count, sizeof *a->effects);
    if (!a->effects)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory for the effects");
    for (size_t f = 0; f < plan->factor_count; f++) {
        for (size_t l = 0; l < plan->factors[f].count; l++) {
            gv_effect *effect = &a->effects[a->effect_count++];
            uint64_t other_sessions = 0, other_corrupt = 0;
            *effect = (gv_effect){.factor = f, .level = l};
            for (size_t c = 0; c < a->cell_count; c++) {
                bool own = a->cells[c].cell.level[f] == l;
                *(own ? &effect->sessions : &other_sessions) += a->cells[c].sessions;
                *(own ? &effect->corrupt : &other_corrupt) += a->cells[c].corrupt;
            }
            effect->fisher =
                effect->sessions && other_sessions
                    ? gv_fisher_exact(effect->corrupt, effect->sessions, other_corrupt, other_sessions, GV_TWO_SIDED)
                    : NAN;
        }
    }
    return GV_OK;
}

// ---- All of it ----------------------------------------------------------------------------------------------------

static void count_trials(counted *c, const gv_trials *trials)
{
    gv_analysis *a = c->analysis;
    for (size_t i = 0; i < trials->count; i++) {
        const gv_trial *trial = &trials->items[i];
        gv_cell_result *cell = &a->cells[c->cell_of[i]];
        a->seconds += trial->seconds;
        if (trial->outcome == GV_OUTCOME_PENDING)
            continue;
        cell->trials++;
        cell->counted += trial->outcome == GV_OUTCOME_COUNTED;
        cell->infrastructure += trial->outcome == GV_OUTCOME_INFRASTRUCTURE;
        cell->timed_out += trial->outcome == GV_OUTCOME_TIMED_OUT;
        cell->voided += trial->outcome == GV_OUTCOME_VOID;
        cell->in_a_row = trial->outcome == GV_OUTCOME_COUNTED ? 0 : cell->in_a_row + 1;
        if (trial->outcome != GV_OUTCOME_COUNTED)
            continue;
        tally *own = &c->pairs[(trial->block - 1) * a->cell_count + c->cell_of[i]];
        own->corrupt += trial->corrupt;
        own->sessions += trial->sessions;
        cell->failed += trial->failed;
        a->sessions += trial->sessions;
    }
}

// The schedule is asked after every trial and needs the verdicts alone: `full` adds what only a report shows.
static gv_status analyse(const gv_plan *plan, const gv_trials *trials, bool full, gv_analysis **result, gv_error *error)
{
    *result = NULL;
    gv_analysis *a = gv_calloc(1, sizeof *a);
    counted c = {.analysis = a, .cell_of = gv_calloc(trials->count, sizeof *c.cell_of)};
    gv_status status = a && c.cell_of ? GV_OK : gv_fail(error, GV_ERR_MEMORY, "out of memory for the analysis");
    if (status == GV_OK) {
        a->plan = plan;
        a->cell_count = plan->design.cell_count;
        for (size_t i = 0; i < trials->count; i++)
            a->blocks = trials->items[i].block > a->blocks ? trials->items[i].block : a->blocks;
        a->cells = gv_calloc(a->cell_count, sizeof *a->cells);
        c.pairs = a->blocks > 1000000 ? NULL : gv_calloc(a->blocks * a->cell_count, sizeof *c.pairs);
        if (!a->cells || !c.pairs)
            status = gv_fail(error, GV_ERR_MEMORY, "out of memory for %llu blocks", (unsigned long long)a->blocks);
    }
    if (status == GV_OK)
        status = find_cells(plan, trials, c.cell_of, error);
    if (status == GV_OK) {
        for (size_t i = 0; i < a->cell_count; i++)
            a->cells[i].cell = plan->design.cells[i];
        count_trials(&c, trials);
        for (size_t i = 0; i < a->cell_count; i++)
            count_cell(&c, i, a->blocks, full);
        status = list_contrasts(a, error);
    }
    if (status == GV_OK) {
        compute_contrasts(&c, a->blocks);
        decide_running(a);
        status = adjust(a, error);
    }
    if (status == GV_OK && full)
        status = pool_effects(a, error);
    if (status == GV_OK && full)
        status = gv_conditions(a, error);
    gv_free(c.pairs);
    gv_free(c.cell_of);
    if (status != GV_OK) {
        gv_analysis_free(a);
        return status;
    }
    *result = a;
    return GV_OK;
}

gv_status gv_analyse(const gv_plan *plan, const gv_trials *trials, gv_analysis **analysis, gv_error *error)
{
    return analyse(plan, trials, true, analysis, error);
}

void gv_analysis_free(gv_analysis *analysis)
{
    if (!analysis)
        return;
    for (size_t i = 0; i < analysis->sentence_count; i++)
        gv_free(analysis->sentences[i]);
    gv_free(analysis->sentences);
    gv_free(analysis->cells);
    gv_free(analysis->contrasts);
    gv_free(analysis->effects);
    gv_free(analysis);
}

// ---- The schedule -------------------------------------------------------------------------------------------------

static gv_status plan_block(const gv_plan *plan, const gv_trials *trials, const gv_analysis *a, gv_trials *next,
                            gv_error *error)
{
    size_t *order = gv_calloc(a->cell_count, sizeof *order);
    if (!order)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory for a block");
    gv_block_order(plan->seed, a->blocks + 1, order, a->cell_count);
    gv_status status = GV_OK;
    for (size_t i = 0; status == GV_OK && i < a->cell_count; i++) {
        const gv_cell_result *cell = &a->cells[order[i]];
        if (!cell->running)
            continue;
        gv_trial trial = {.number = trials->count + next->count + 1, .block = a->blocks + 1};
        trial.seed = gv_trial_seed(plan->seed, trial.number);
        trial.subject = gv_plan_cell_name(plan, &cell->cell);
        status = trial.subject ? gv_trials_add(next, &trial, error) : gv_fail(error, GV_ERR_MEMORY, "out of memory");
        gv_free(trial.subject);
    }
    gv_free(order);
    return status;
}

gv_status gv_run_next(const gv_plan *plan, const gv_trials *trials, gv_step *step, gv_error *error)
{
    *step = (gv_step){0};
    if (gv_trials_pending(trials))
        return GV_OK;
    gv_analysis *a;
    gv_status status = analyse(plan, trials, false, &a, error);
    if (status != GV_OK)
        return status;
    uint64_t running = 0;
    for (size_t i = 0; i < a->cell_count; i++)
        running += a->cells[i].running;
    step->ended = true;
    if (running == 0)
        step->why = plan->stop.sequential ? "the stop rule needs no more sessions" : "no cell can be measured";
    else if (a->blocks >= plan->design.blocks)
        step->why = plan->stop.sequential ? "the plan's last block was run; not every question is settled"
                                          : "every block of the plan was run";
    else if (plan->most_trials && trials->count + running > plan->most_trials)
        step->why = "the budget of trials does not reach for another block";
    else if (plan->most_seconds > 0 && a->seconds >= plan->most_seconds)
        step->why = "the budget of time is used up";
    else
        step->ended = false;
    if (!step->ended)
        status = plan_block(plan, trials, a, &step->next, error);
    gv_analysis_free(a);
    if (status != GV_OK)
        gv_trials_free(&step->next);
    return status;
}
