// The search for the minimum, by implicit hitting sets (E. Moreno-Centeno and R. M. Karp, "The implicit hitting set
// approach to solve combinatorial optimization problems with an application to multigenome alignment", Operations
// Research 61(2), 2013). A set of edges orders a demand exactly if it has an edge in every cut of it: every set of
// vertices that holds the demand's beginning and not its end, and that no arc leaves. The fewest edges that meet some
// of the cuts are found; if they order everything, they are the minimum; else cuts that they miss are added.
// docs/fix.md has the proofs.
#include "fix/solve_core.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CANDIDATES = 1 << 16, CUT_WORDS = 16, MOST_CUTS = 64 * CUT_WORDS };

typedef uint64_t cut_set[CUT_WORDS];

typedef struct candidate {
    gv_fix_link link;
    cut_set meets;
} candidate;

typedef struct search {
    gv_solver *s;
    candidate *items;
    size_t count, capacity;
    size_t cuts;
    uint64_t budget; // steps left
    // of the hitting set at hand
    uint32_t *chosen, *best; // candidates
    size_t best_count;
} search;

// ---- Candidates -------------------------------------------------------------------------------------------------

// False when memory is out; *enough is false when there are too many.
static bool gather(search *h, bool *few)
{
    const gv_solver *s = h->s;
    const gv_fix_problem *p = s->problem;
    // A path from a demand's beginning to its end leads forward, and so stays between the two.
    uint32_t lowest = UINT32_MAX, highest = 0;
    for (size_t i = 0; i < s->demand_count; i++) {
        lowest = s->demands[i].from < lowest ? s->demands[i].from : lowest;
        highest = s->demands[i].to > highest ? s->demands[i].to : highest;
    }
    for (uint32_t i = 0; i < p->spot_count; i++) {
        if (p->spots[i].out < lowest)
            continue;
        for (uint32_t j = i + 1; j < p->spot_count && j <= s->next[i] && p->spots[j].in <= highest; j++) {
            if (!gv_spots_allow(p, i, j) || !gv_spots_undominated(s, i, j))
                continue;
            if (h->count == MOST_CANDIDATES) {
                *few = false;
                return true;
            }
            if (!GV_GROW(h->items, h->capacity, h->count + 1))
                return false;
            h->items[h->count++] = (candidate){.link = {i, j}};
        }
    }
    return true;
}

static bool meets(const candidate *c, size_t cut)
{
    return c->meets[cut / 64] >> cut % 64 & 1;
}

static bool has_demand(const uint64_t *set, size_t demand)
{
    return set[demand / 64] >> demand % 64 & 1;
}

// Adds a cut that the edges at hand miss: what they and the arcs lead to from the demand's beginning or, backwards, all
// but what they lead to its end from. Returns the first candidate in it.
static uint32_t add_cut(search *h, size_t demand, bool backwards)
{
    const gv_solver *s = h->s;
    const gv_fix_problem *p = s->problem;
    const gv_fix_demand *d = &s->demands[demand];
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < h->count; i++) {
        uint32_t tail = p->spots[h->items[i].link.from].out, head = p->spots[h->items[i].link.to].in;
        if (tail < d->from || head > d->to)
            continue;
        bool tail_inside = backwards ? !has_demand(gv_solver_reaching(s, tail), demand)
                                     : has_demand(gv_solver_reached(s, tail), demand);
        bool head_inside = backwards ? !has_demand(gv_solver_reaching(s, head), demand)
                                     : has_demand(gv_solver_reached(s, head), demand);
        if (!tail_inside || head_inside)
            continue;
        h->items[i].meets[h->cuts / 64] |= UINT64_C(1) << h->cuts % 64;
        first = first == UINT32_MAX ? i : first;
    }
    h->cuts++;
    h->budget -= h->count / 64 < h->budget ? h->count / 64 : h->budget;
    return first;
}

// ---- The fewest candidates that meet all cuts -------------------------------------------------------------------

static size_t open_cuts(const search *h, const cut_set met, const candidate *c)
{
    size_t count = 0;
    for (size_t w = 0; w <= (h->cuts - 1) / 64; w++)
        count += (size_t)__builtin_popcountll(c->meets[w] & ~met[w]);
    return count;
}

// A candidate with how many cuts it would meet.
typedef struct choice {
    size_t gain;
    uint32_t item;
} choice;

static int most_first(const void *left, const void *right)
{
    const choice *a = left, *b = right;
    if (a->gain != b->gain)
        return a->gain > b->gain ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item;
}

// Are the open cuts that `a` meets all met by `b` too?
static bool is_covered(const search *h, const cut_set met, const candidate *a, const candidate *b)
{
    for (size_t w = 0; w <= (h->cuts - 1) / 64; w++)
        if (a->meets[w] & ~met[w] & ~b->meets[w])
            return false;
    return true;
}

// The candidates that meet `cut`, without those that others of them make needless. To be freed.
static choice *choices_for(search *h, const cut_set met, size_t cut, size_t *count)
{
    choice *all = gv_calloc(h->count, sizeof *all);
    size_t found = 0, kept = 0;
    for (uint32_t i = 0; all && i < h->count; i++)
        if (meets(&h->items[i], cut))
            all[found++] = (choice){open_cuts(h, met, &h->items[i]), i};
    if (all)
        qsort(all, found, sizeof *all, most_first);
    for (size_t i = 0; i < found; i++) {
        bool needless = false;
        for (size_t k = 0; k < kept && !needless; k++)
            needless = is_covered(h, met, &h->items[all[i].item], &h->items[all[k].item]);
        if (!needless)
            all[kept++] = all[i];
    }
    uint64_t steps = h->count / 16 + found * (kept + 1) / 16 + 1;
    h->budget -= steps < h->budget ? steps : h->budget;
    *count = kept;
    return all;
}

// The open cut that the fewest candidates meet; SIZE_MAX when all are met. *most becomes the most open cuts that one
// candidate meets, *left how many are open.
static size_t hardest_cut(search *h, const cut_set met, size_t *most, size_t *left)
{
    size_t hardest = SIZE_MAX, fewest = SIZE_MAX;
    *most = *left = 0;
    for (uint32_t i = 0; i < h->count; i++) {
        size_t gain = open_cuts(h, met, &h->items[i]);
        *most = gain > *most ? gain : *most;
    }
    for (size_t cut = 0; cut < h->cuts; cut++) {
        if (met[cut / 64] >> cut % 64 & 1)
            continue;
        ++*left;
        size_t members = 0;
        for (uint32_t i = 0; i < h->count && members < fewest; i++)
            members += meets(&h->items[i], cut);
        if (members < fewest) {
            fewest = members;
            hardest = cut;
        }
    }
    uint64_t steps = (*left + 1) * h->count / 64 + 1;
    h->budget -= steps < h->budget ? steps : h->budget;
    return hardest;
}

// Branches over the candidates that meet the hardest cut. Keeps what has fewer than best_count. False when memory is
// out; a search that ran out of budget has proved nothing.
static bool branch(search *h, const cut_set met, size_t depth)
{
    size_t most, left, count;
    size_t cut = hardest_cut(h, met, &most, &left);
    if (cut == SIZE_MAX) {
        h->best_count = depth;
        memcpy(h->best, h->chosen, depth * sizeof *h->best);
        return true;
    }
    // No edge meets more than `most` of those left.
    if (!most || !h->budget || depth + (left + most - 1) / most >= h->best_count)
        return true;
    choice *choices = choices_for(h, met, cut, &count);
    bool enough = choices != NULL;
    for (size_t i = 0; enough && i < count && h->budget; i++) {
        cut_set now;
        for (size_t w = 0; w < CUT_WORDS; w++)
            now[w] = met[w] | h->items[choices[i].item].meets[w];
        h->chosen[depth] = choices[i].item;
        enough = branch(h, now, depth + 1);
    }
    gv_free(choices);
    return enough;
}

// ---- Cuts that are missed ---------------------------------------------------------------------------------------

// Adds the missed cuts of the demands that `trial` does not order, and for each an edge that meets it, until everything
// is ordered or there are too many cuts. *missed: was any?
static bool add_missed_cuts(search *h, gv_links *trial, bool *missed)
{
    gv_solver *s = h->s;
    *missed = false;
    for (;;) {
        if (!gv_solver_reach(s, trial->items, trial->count) || !gv_solver_reach_back(s, trial->items, trial->count))
            return false;
        size_t before = trial->count;
        for (size_t i = 0; i < s->demand_count && h->cuts + 2 <= MOST_CUTS; i++) {
            if (gv_solver_ordered(s, i))
                continue;
            *missed = true;
            uint32_t edge = add_cut(h, i, false);
            uint32_t other = add_cut(h, i, true);
            if ((edge != UINT32_MAX && !gv_links_add(trial, h->items[edge].link)) ||
                (other != UINT32_MAX && !gv_links_add(trial, h->items[other].link)))
                return false;
        }
        uint64_t steps = (uint64_t)s->problem->vertex_count * s->words / 64 + 1;
        h->budget -= steps < h->budget ? steps : h->budget;
        if (trial->count == before || !h->budget)
            return true;
    }
}

// A cut with how many candidates meet it.
static int fewest_first(const void *left, const void *right)
{
    const choice *a = left, *b = right;
    if (a->gain != b->gain)
        return a->gain < b->gain ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item;
}

// Cuts of which no two have a candidate in common need an edge each. Takes them one by one, the smallest first.
static bool count_disjoint(const search *h, size_t *at_least)
{
    choice *cuts = gv_calloc(h->cuts, sizeof *cuts);
    bool *used = gv_calloc(h->count, sizeof *used);
    bool enough = cuts && used;
    for (uint32_t cut = 0; enough && cut < h->cuts; cut++) {
        cuts[cut].item = cut;
        for (size_t i = 0; i < h->count; i++)
            cuts[cut].gain += meets(&h->items[i], cut);
    }
    if (enough)
        qsort(cuts, h->cuts, sizeof *cuts, fewest_first);
    size_t disjoint = 0;
    for (size_t c = 0; enough && c < h->cuts; c++) {
        bool shares = false;
        for (size_t i = 0; i < h->count && !shares; i++)
            shares = used[i] && meets(&h->items[i], cuts[c].item);
        for (size_t i = 0; i < h->count && !shares; i++)
            used[i] |= meets(&h->items[i], cuts[c].item);
        disjoint += !shares;
    }
    *at_least = disjoint > *at_least ? disjoint : *at_least;
    gv_free(cuts);
    gv_free(used);
    return enough;
}

static bool iterate(search *h, gv_links *links, size_t *at_least)
{
    gv_links trial = {0};
    bool missed = true;
    bool enough = add_missed_cuts(h, &trial, &missed) && count_disjoint(h, at_least);
    trial.count = 0;
    while (enough && *at_least < links->count) {
        enough = add_missed_cuts(h, &trial, &missed);
        if (!enough || !h->budget || h->cuts + 2 > MOST_CUTS)
            break;
        // Fewer than the edges at hand, or a proof that there are no fewer.
        h->best_count = links->count;
        enough = branch(h, (cut_set){0}, 0);
        if (!enough || !h->budget)
            break;
        *at_least = h->best_count;
        trial.count = 0;
        if (*at_least == links->count)
            break;
        for (size_t i = 0; enough && i < h->best_count; i++)
            enough = gv_links_add(&trial, h->items[h->best[i]].link);
        enough = enough && gv_solver_reach(h->s, trial.items, trial.count);
        if (enough && gv_solver_all_ordered(h->s)) {
            memcpy(links->items, trial.items, trial.count * sizeof *links->items);
            links->count = trial.count;
        }
    }
    gv_free(trial.items);
    return enough;
}

bool gv_solve_exact(gv_solver *s, uint64_t budget, gv_links *links, size_t *at_least)
{
    // The first demand alone needs an edge, so that a single one is the minimum.
    if (links->count <= 1 || !budget)
        return true;
    search h = {.s = s,
                .budget = budget,
                .chosen = gv_calloc(links->count + 1, sizeof *h.chosen),
                .best = gv_calloc(links->count + 1, sizeof *h.best)};
    bool few = true;
    bool enough = h.chosen && h.best && gather(&h, &few);
    if (enough && few)
        enough = iterate(&h, links, at_least);
    gv_free(h.items);
    gv_free(h.chosen);
    gv_free(h.best);
    return enough;
}
