// The heuristic: again and again the edge that orders the most demands not yet ordered, alone or together with the
// edges chosen before it.
#include "fix/solve_core.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

// Most candidates that are weighed; a graph with more has its demands ordered one by one where these do not serve.
enum { MOST_CANDIDATES = 1 << 22 };

typedef struct candidate {
    gv_fix_link link;
    uint32_t gain; // when it was last counted
} candidate;

// A heap, the best first.
typedef struct heap {
    candidate *items;
    size_t count, capacity;
} heap;

static uint32_t span(const candidate *c)
{
    return c->link.to - c->link.from;
}

// More demands first; of equally many the edge that reaches less far, so that it orders little else.
static bool is_better(const candidate *a, const candidate *b)
{
    if (a->gain != b->gain)
        return a->gain > b->gain;
    if (span(a) != span(b))
        return span(a) < span(b);
    return a->link.from < b->link.from;
}

static void sink(heap *h, size_t at)
{
    for (;;) {
        size_t best = at;
        for (size_t child = 2 * at + 1; child < h->count && child <= 2 * at + 2; child++)
            best = is_better(&h->items[child], &h->items[best]) ? child : best;
        if (best == at)
            return;
        candidate moved = h->items[at];
        h->items[at] = h->items[best];
        h->items[best] = moved;
        at = best;
    }
}

static bool is_empty(const uint64_t *set, size_t words)
{
    for (size_t w = 0; w < words; w++)
        if (set[w])
            return false;
    return true;
}

static uint32_t gain_of(const gv_solver *s, gv_fix_link link, const uint64_t *open)
{
    const uint64_t *reached = gv_solver_reached(s, s->problem->spots[link.from].out);
    const uint64_t *reaching = gv_solver_reaching(s, s->problem->spots[link.to].in);
    uint32_t gain = 0;
    for (size_t w = 0; w < s->words; w++)
        gain += (uint32_t)__builtin_popcountll(reached[w] & reaching[w] & open[w]);
    return gain;
}

// Every edge that no other one dominates and that orders some demand.
static bool gather(const gv_solver *s, const uint64_t *open, heap *h)
{
    const gv_fix_problem *p = s->problem;
    for (uint32_t i = 0; i < p->spot_count; i++) {
        if (is_empty(gv_solver_reached(s, p->spots[i].out), s->words))
            continue;
        for (uint32_t j = i + 1; j < p->spot_count && j <= s->next[i]; j++) {
            if (!gv_spots_allow(p, i, j) || !gv_spots_undominated(s, i, j))
                continue;
            candidate c = {.link = {i, j}};
            c.gain = gain_of(s, c.link, open);
            if (!c.gain)
                continue;
            if (h->count == MOST_CANDIDATES)
                return true;
            if (!GV_GROW(h->items, h->capacity, h->count + 1))
                return false;
            h->items[h->count++] = c;
        }
    }
    return true;
}

// Takes the best candidate off the heap. Gains were counted earlier and have mostly fallen since, so that the top is
// counted again until it stays there.
static bool take_best(const gv_solver *s, heap *h, const uint64_t *open, gv_fix_link *best)
{
    while (h->count) {
        candidate *top = &h->items[0];
        uint32_t gain = gain_of(s, top->link, open);
        if (gain >= top->gain) {
            *best = top->link;
            h->items[0] = h->items[--h->count];
            sink(h, 0);
            return true;
        }
        top->gain = gain;
        if (!gain)
            h->items[0] = h->items[--h->count];
        sink(h, 0);
    }
    return false;
}

static bool choose(gv_solver *s, const heap *from, gv_links *links, uint64_t *open)
{
    heap h = *from;
    size_t left = s->demand_count;
    while (left) {
        gv_fix_link best;
        if (!take_best(s, &h, open, &best)) {
            // Candidates that gained by edges chosen later have been dropped: what is left gets its own edge.
            for (size_t i = 0; i < s->demand_count; i++) {
                if (open[i / 64] >> i % 64 & 1) {
                    best = s->demands[i].direct;
                    break;
                }
            }
        }
        if (!gv_links_add(links, best))
            return false;
        if (!gv_solver_reach(s, links->items, links->count) || !gv_solver_reach_back(s, links->items, links->count))
            return false;
        left = 0;
        for (size_t i = 0; i < s->demand_count; i++) {
            if (gv_solver_ordered(s, i))
                open[i / 64] &= ~(UINT64_C(1) << i % 64);
            else
                left++;
        }
    }
    return true;
}

bool gv_solve_greedy(gv_solver *s, gv_links *links)
{
    heap h = {0};
    uint64_t *open = gv_calloc(s->words, sizeof *open);
    bool enough = open && gv_solver_reach(s, NULL, 0) && gv_solver_reach_back(s, NULL, 0);
    for (size_t i = 0; enough && i < s->demand_count; i++)
        open[i / 64] |= UINT64_C(1) << i % 64;
    enough = enough && gather(s, open, &h);
    for (size_t at = h.count / 2; enough && at-- > 0;)
        sink(&h, at);
    enough = enough && choose(s, &h, links, open);
    gv_free(h.items);
    gv_free(open);
    return enough;
}
