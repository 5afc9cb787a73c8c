// Where the corrupt cells agree, in sentences: the fewest levels that tell the corrupt cells from the clean ones, and
// what the cells that were run leave open because two factors were changed together.
#include "base/memory.h"
#include "lab/analysis.h"
#include "lab/design.h"
#include "report/format.h"

#include <string.h>

enum { ANY = 255, MOST_CONDITIONS = 1 << 20 };

// A condition is a cell with ANY for the levels that do not matter.
static bool holds(const gv_plan *plan, const gv_cell *condition, const gv_cell *cell)
{
    for (size_t f = 0; f < plan->factor_count; f++) {
        if (condition->level[f] != ANY && condition->level[f] != cell->level[f])
            return false;
    }
    return true;
}

// True for a condition that some corrupt cell meets and no clean one.
static bool separates(const gv_analysis *a, const gv_cell *condition)
{
    bool corrupt = false;
    for (size_t c = 0; c < a->cell_count; c++) {
        if (!holds(a->plan, condition, &a->cells[c].cell))
            continue;
        if (a->cells[c].verdict == GV_LOW)
            return false;
        corrupt = corrupt || a->cells[c].verdict == GV_HIGH;
    }
    return corrupt;
}

// Nothing can be left out of it.
static bool is_prime(const gv_analysis *a, const gv_cell *condition)
{
    if (!separates(a, condition))
        return false;
    for (size_t f = 0; f < a->plan->factor_count; f++) {
        gv_cell wider = *condition;
        wider.level[f] = ANY;
        if (condition->level[f] != ANY && separates(a, &wider))
            return false;
    }
    return true;
}

static bool add_sentence(gv_analysis *a, gv_string *text)
{
    if (text->failed || !text->text || !GV_GROW(a->sentences, a->sentence_capacity, a->sentence_count + 1)) {
        gv_string_free(text);
        return false;
    }
    for (size_t i = 0; i < a->sentence_count; i++) {
        if (strcmp(a->sentences[i], text->text) == 0) {
            gv_string_free(text);
            return true;
        }
    }
    a->sentences[a->sentence_count++] = text->text;
    *text = (gv_string){0};
    return true;
}

static bool say(gv_analysis *a, const char *sentence)
{
    gv_string text = {0};
    gv_string_add(&text, "%s", sentence);
    return add_sentence(a, &text);
}

// "keys=bf16 and overlap=on"
static void add_condition(gv_string *out, const gv_plan *plan, const gv_cell *condition)
{
    size_t left = 0;
    for (size_t f = 0; f < plan->factor_count; f++)
        left += condition->level[f] != ANY;
    for (size_t f = 0, done = 0; f < plan->factor_count; f++) {
        if (condition->level[f] == ANY)
            continue;
        gv_string_add(out, "%s%s=%s",
                      done == 0          ? ""
                      : done + 1 == left ? " and "
                                         : ", ",
                      plan->factors[f].name, plan->factors[f].levels[condition->level[f]].name);
        done++;
    }
}

// "capture and overlap"
static void add_factors(gv_string *out, const gv_plan *plan, uint32_t factors)
{
    unsigned left = (unsigned)__builtin_popcount(factors), done = 0;
    for (size_t f = 0; f < plan->factor_count; f++) {
        if (!(factors >> f & 1))
            continue;
        gv_string_add(out, "%s%s", done == 0 ? "" : done + 1 == left ? " and " : ", ", plan->factors[f].name);
        done++;
    }
}

static void add_cell(gv_string *out, const gv_plan *plan, const gv_cell *cell)
{
    char *name = gv_plan_cell_name(plan, cell);
    gv_string_add(out, "%s", name ? name : "?");
    out->failed = out->failed || !name;
    gv_free(name);
}

static void add_counts(gv_string *out, const gv_cell_result *cell)
{
    gv_string_add(out, "%s of %s corrupt (%s)", gv_number(cell->corrupt), gv_number(cell->sessions),
                  gv_cell_verdict_name(cell->verdict));
}

// ---- Conditions ---------------------------------------------------------------------------------------------------

static bool next_condition(const gv_plan *plan, gv_cell *condition)
{
    for (size_t f = 0; f < plan->factor_count; f++) {
        if (condition->level[f] == ANY) {
            condition->level[f] = 0;
            return true;
        }
        if (++condition->level[f] < plan->factors[f].count)
            return true;
        condition->level[f] = ANY;
    }
    return false;
}

// How many corrupt cells that are not yet `covered` a condition explains.
static size_t explains(const gv_analysis *a, const gv_cell *condition, const bool *covered)
{
    size_t count = 0;
    for (size_t c = 0; c < a->cell_count; c++)
        count += a->cells[c].verdict == GV_HIGH && !covered[c] && holds(a->plan, condition, &a->cells[c].cell);
    return count;
}

static size_t literals(const gv_plan *plan, const gv_cell *condition)
{
    size_t count = 0;
    for (size_t f = 0; f < plan->factor_count; f++)
        count += condition->level[f] != ANY;
    return count;
}

// The best condition not used yet: explains most, then needs fewest levels. False when nothing is left to explain.
static bool best_condition(const gv_analysis *a, const bool *covered, gv_cell *best)
{
    size_t most = 0, fewest = 0;
    gv_cell condition;
    memset(condition.level, ANY, sizeof condition.level);
    do {
        size_t count = explains(a, &condition, covered), needs = literals(a->plan, &condition);
        if (count < most || count == 0 || (count == most && needs >= fewest) || !is_prime(a, &condition))
            continue;
        most = count;
        fewest = needs;
        *best = condition;
    } while (next_condition(a->plan, &condition));
    return most > 0;
}

static bool describe_condition(gv_analysis *a, const gv_cell *condition)
{
    const gv_plan *plan = a->plan;
    gv_string text = {0};
    size_t needs = literals(plan, condition);
    if (needs == 0) {
        gv_string_add(&text, "No cell is clean: no level of any factor prevents the corruption.");
        return add_sentence(a, &text);
    }
    gv_string_add(&text, "Corrupt where ");
    add_condition(&text, plan, condition);
    if (needs > 1) {
        uint32_t factors = 0;
        for (size_t f = 0; f < plan->factor_count && f < GV_LAB_MOST_FACTORS; f++)
            factors |= (uint32_t)(condition->level[f] != ANY) << f;
        gv_string_add(&text, " (an interaction: ");
        add_factors(&text, plan, factors);
        gv_string_add(&text, " matter together)");
    }
    // Cells the condition speaks about without their having been measured.
    size_t open = 0;
    for (size_t c = 0; c < a->cell_count; c++) {
        if (a->cells[c].verdict != GV_UNDECIDED || !holds(plan, condition, &a->cells[c].cell))
            continue;
        gv_string_add(&text, "%s", open++ ? "; " : ". Undecided among these: ");
        add_cell(&text, plan, &a->cells[c].cell);
    }
    gv_string_add(&text, ".");
    return add_sentence(a, &text);
}

static bool describe_conditions(gv_analysis *a)
{
    size_t corrupt = 0, clean = 0, open = 0;
    double conditions = 1;
    for (size_t c = 0; c < a->cell_count; c++) {
        corrupt += a->cells[c].verdict == GV_HIGH;
        clean += a->cells[c].verdict == GV_LOW;
        open += a->cells[c].verdict == GV_UNDECIDED;
    }
    if (corrupt == 0)
        return clean == 0 ? say(a, "No cell has a verdict yet.")
               : open     ? say(a, "No cell was found corrupt, and some have no verdict.")
                          : say(a, "Every cell is clean.");
    for (size_t f = 0; f < a->plan->factor_count; f++)
        conditions *= (double)(a->plan->factors[f].count + 1);
    if (conditions > MOST_CONDITIONS)
        return say(a, "There are too many factors and levels to name the conditions; read the table.");
    bool *covered = gv_calloc(a->cell_count, sizeof *covered);
    gv_cell condition;
    bool good = covered != NULL;
    while (good && best_condition(a, covered, &condition)) {
        good = describe_condition(a, &condition);
        for (size_t c = 0; c < a->cell_count; c++)
            covered[c] = covered[c] || holds(a->plan, &condition, &a->cells[c].cell);
    }
    gv_free(covered);
    return good;
}

// ---- Factors that were changed together ---------------------------------------------------------------------------

// The cell `from` with the factors in `changed` as in `to`, and the index of it in the design or -1.
static long between(const gv_analysis *a, const gv_cell *from, const gv_cell *to, uint32_t changed, gv_cell *cell)
{
    *cell = *from;
    for (size_t f = 0; f < a->plan->factor_count; f++) {
        if (changed >> f & 1)
            cell->level[f] = to->level[f];
    }
    return gv_design_find(a->plan, cell);
}

// A corrupt cell and a clean one that differ in two factors, and what is not known because of it.
static bool describe_pair(gv_analysis *a, const gv_cell_result *corrupt, const gv_cell_result *clean, uint32_t factors)
{
    const gv_plan *plan = a->plan;
    for (size_t f = 0; f < plan->factor_count; f++) {
        if (!(factors >> f & 1))
            continue;
        gv_cell middle;
        long at = between(a, &corrupt->cell, &clean->cell, 1u << f, &middle);
        if (at >= 0 && a->cells[at].verdict != GV_UNDECIDED)
            continue;
        gv_string text = {0};
        add_factors(&text, plan, factors);
        gv_string_add(&text, " were changed together: the cell ");
        add_cell(&text, plan, &middle);
        gv_string_add(&text, at < 0 ? " is missing" : " has no verdict");
        gv_string_add(&text, ", so that it is not known whether %s=%s alone makes the difference.",
                      plan->factors[f].name, plan->factors[f].levels[middle.level[f]].name);
        if (!add_sentence(a, &text))
            return false;
    }
    return true;
}

// Whether a cell with a verdict lies between two others: it has the level of one of them in every factor.
static bool any_between(const gv_analysis *a, const gv_cell *x, const gv_cell *y)
{
    for (size_t c = 0; c < a->cell_count; c++) {
        const gv_cell *cell = &a->cells[c].cell;
        bool inside =
            a->cells[c].verdict != GV_UNDECIDED && !gv_cell_equal(a->plan, cell, x) && !gv_cell_equal(a->plan, cell, y);
        for (size_t f = 0; inside && f < a->plan->factor_count; f++)
            inside = cell->level[f] == x->level[f] || cell->level[f] == y->level[f];
        if (inside)
            return true;
    }
    return false;
}

static bool describe_confounding(gv_analysis *a)
{
    for (size_t d = 0; d < a->cell_count; d++) {
        if (a->cells[d].verdict != GV_LOW)
            continue;
        unsigned nearest = UINT32_MAX;
        uint32_t nearest_factors = 0;
        bool between_some = false;
        for (size_t c = 0; c < a->cell_count; c++) {
            uint32_t factors;
            if (a->cells[c].verdict != GV_HIGH)
                continue;
            unsigned apart = gv_cell_difference(a->plan, &a->cells[c].cell, &a->cells[d].cell, &factors);
            if (apart == 2 && !describe_pair(a, &a->cells[c], &a->cells[d], factors))
                return false;
            nearest_factors = apart < nearest ? factors : nearest_factors;
            nearest = apart < nearest ? apart : nearest;
            between_some = between_some || any_between(a, &a->cells[c].cell, &a->cells[d].cell);
        }
        if (nearest == UINT32_MAX || nearest <= 2 || between_some)
            continue;
        gv_string text = {0};
        add_factors(&text, a->plan, nearest_factors);
        gv_string_add(&text, " were changed together: the clean cell ");
        add_cell(&text, a->plan, &a->cells[d].cell);
        gv_string_add(&text, " differs in all of them from every corrupt cell, and no cell in between has a verdict.");
        if (!add_sentence(a, &text))
            return false;
    }
    return true;
}

static void add_end(gv_string *out, const gv_analysis *a, const gv_cell *cell)
{
    long at = gv_design_find(a->plan, cell);
    add_cell(out, a->plan, cell);
    if (at < 0)
        gv_string_add(out, " (not run)");
    else
        gv_string_add(out, " (%s of %s: %s)", gv_number(a->cells[at].corrupt), gv_number(a->cells[at].sessions),
                      gv_cell_verdict_name(a->cells[at].verdict));
}

// Which of the factors that a comparison changes together is enough for its other verdict, where all verdicts are
// there.
static void add_conclusion(gv_string *out, const gv_analysis *a, const gv_comparison *wanted, uint32_t factors)
{
    const gv_plan *plan = a->plan;
    long from = gv_design_find(plan, &wanted->from), to = gv_design_find(plan, &wanted->to);
    bool apart = from >= 0 && to >= 0 && a->cells[from].verdict != GV_UNDECIDED &&
                 a->cells[to].verdict != GV_UNDECIDED && a->cells[from].verdict != a->cells[to].verdict;
    size_t said = 0;
    for (size_t f = 0; apart && __builtin_popcount(factors) > 1 && f < plan->factor_count; f++) {
        gv_cell middle;
        long at = factors >> f & 1 ? between(a, &wanted->from, &wanted->to, 1u << f, &middle) : -1;
        if (at < 0 || a->cells[at].verdict == GV_UNDECIDED)
            continue;
        gv_string_add(out, "%s%s=%s alone %s", said++ ? ", " : " So ", plan->factors[f].name,
                      plan->factors[f].levels[middle.level[f]].name,
                      a->cells[at].verdict == a->cells[to].verdict ? "is enough" : "is not enough");
    }
    gv_string_add(out, "%s", said ? "." : "");
}

// A comparison the plan asks for, with the cells in which only one of its factors is changed.
static bool describe_comparison(gv_analysis *a, const gv_comparison *wanted)
{
    const gv_plan *plan = a->plan;
    uint32_t factors;
    unsigned apart = gv_cell_difference(plan, &wanted->from, &wanted->to, &factors);
    gv_string text = {0};
    gv_string_add(&text, "%s: ", wanted->name);
    add_factors(&text, plan, factors);
    gv_string_add(&text, apart > 1 ? " were changed together, from " : " was changed alone, from ");
    add_end(&text, a, &wanted->from);
    gv_string_add(&text, " to ");
    add_end(&text, a, &wanted->to);
    gv_string_add(&text, ".");
    for (size_t f = 0; apart > 1 && f < plan->factor_count; f++) {
        if (!(factors >> f & 1))
            continue;
        gv_cell middle;
        long at = between(a, &wanted->from, &wanted->to, 1u << f, &middle);
        gv_string_add(&text, " With %s=%s alone, ", plan->factors[f].name,
                      plan->factors[f].levels[middle.level[f]].name);
        add_cell(&text, plan, &middle);
        if (at < 0) {
            gv_string_add(&text, ": this cell is missing.");
        } else {
            gv_string_add(&text, ": ");
            add_counts(&text, &a->cells[at]);
            gv_string_add(&text, ".");
        }
    }
    add_conclusion(&text, a, wanted, factors);
    return add_sentence(a, &text);
}

// ---- Fractional designs -------------------------------------------------------------------------------------------

static bool describe_aliases(gv_analysis *a)
{
    const gv_plan *plan = a->plan;
    for (size_t f = 0; plan->design.kind == GV_DESIGN_FRACTION && f < plan->factor_count; f++) {
        uint32_t aliases[32];
        size_t count = gv_design_aliases(plan, 1u << f, aliases, 32);
        for (size_t i = 0; i < count; i++) {
            gv_string text = {0};
            gv_string_add(&text, "This fraction cannot tell the effect of %s from that of ", plan->factors[f].name);
            if (__builtin_popcount(aliases[i]) > 1)
                gv_string_add(&text, "the interaction of ");
            add_factors(&text, plan, aliases[i]);
            gv_string_add(&text, ".");
            if (!add_sentence(a, &text))
                return false;
        }
    }
    return true;
}

gv_status gv_conditions(gv_analysis *a, gv_error *error)
{
    bool good = describe_conditions(a) && describe_confounding(a);
    for (size_t i = 0; good && i < a->plan->comparison_count; i++)
        good = describe_comparison(a, &a->plan->comparisons[i]);
    good = good && describe_aliases(a);
    return good ? GV_OK : gv_fail(error, GV_ERR_MEMORY, "out of memory for the conclusions");
}
