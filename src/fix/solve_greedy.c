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

// What is needed to carry a new edge's effect on: the edges by the vertices they join, and which vertices changed.
typedef struct effects {
    uint32_t *leaving, *entering; // of each vertex 1 + the last edge
    gv_links links;               // with their ends as vertices
    uint32_t *next_leaving, *next_entering;
    size_t leaving_capacity, entering_capacity;
    bool *changed;
} effects;

static bool effects_open(effects *f, uint32_t vertices)
{
    f->leaving = gv_calloc(vertices, sizeof *f->leaving);
    f->entering = gv_calloc(vertices, sizeof *f->entering);
    f->changed = gv_calloc(vertices, sizeof *f->changed);
    return f->leaving && f->entering && f->changed;
}

static void effects_free(effects *f)
{
    gv_free(f->leaving);
    gv_free(f->entering);
    gv_free(f->changed);
    gv_free(f->links.items);
    gv_free(f->next_leaving);
    gv_free(f->next_entering);
}

// Adds one set to another; true when that changed it.
static bool unite(uint64_t *into, const uint64_t *from, size_t words)
{
    uint64_t added = 0;
    for (size_t w = 0; w < words; w++) {
        added |= from[w] & ~into[w];
        into[w] |= from[w];
    }
    return added != 0;
}

static void spread_on(gv_solver *s, effects *f, uint32_t from, uint32_t to)
{
    if (unite(s->reached + (size_t)to * s->words, gv_solver_reached(s, from), s->words))
        f->changed[to] = true;
}

static void spread_back(gv_solver *s, effects *f, uint32_t from, uint32_t to)
{
    if (unite(s->reaching + (size_t)from * s->words, gv_solver_reaching(s, to), s->words))
        f->changed[from] = true;
}

// Adds an edge and all that follows from it to the sets of the vertices behind and in front of it.
static bool spread(gv_solver *s, effects *f, gv_fix_link link)
{
    const gv_fix_problem *p = s->problem;
    uint32_t tail = p->spots[link.from].out, head = p->spots[link.to].in;
    size_t at = f->links.count;
    if (!GV_GROW(f->next_leaving, f->leaving_capacity, at + 1) ||
        !GV_GROW(f->next_entering, f->entering_capacity, at + 1) || !gv_links_add(&f->links, (gv_fix_link){tail, head}))
        return false;
    f->next_leaving[at] = f->leaving[tail];
    f->next_entering[at] = f->entering[head];
    f->leaving[tail] = f->entering[head] = (uint32_t)at + 1;
    spread_on(s, f, tail, head);
    for (uint32_t v = head; v < p->vertex_count; v++) {
        if (!f->changed[v])
            continue;
        f->changed[v] = false;
        for (size_t e = s->first_out[v]; e < s->first_out[v + 1]; e++)
            spread_on(s, f, v, s->out[e]);
        for (uint32_t e = f->leaving[v]; e; e = f->next_leaving[e - 1])
            spread_on(s, f, v, f->links.items[e - 1].to);
    }
    spread_back(s, f, tail, head);
    for (uint32_t v = tail + 1; v-- > 0;) {
        if (!f->changed[v])
            continue;
        f->changed[v] = false;
        for (size_t e = s->first_in[v]; e < s->first_in[v + 1]; e++)
            spread_back(s, f, s->in[e], v);
        for (uint32_t e = f->entering[v]; e; e = f->next_entering[e - 1])
            spread_back(s, f, f->links.items[e - 1].from, v);
    }
    return true;
}

static bool choose(gv_solver *s, const heap *from, effects *f, gv_links *links, uint64_t *open)
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
        if (!gv_links_add(links, best) || !spread(s, f, best))
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
    effects f = {0};
    uint64_t *open = gv_calloc(s->words, sizeof *open);
    bool enough = open && gv_solver_reach(s, NULL, 0) && gv_solver_reach_back(s, NULL, 0);
    for (size_t i = 0; enough && i < s->demand_count; i++)
        open[i / 64] |= UINT64_C(1) << i % 64;
    enough = enough && gather(s, open, &h);
    for (size_t at = h.count / 2; enough && at-- > 0;)
        sink(&h, at);
    enough = enough && effects_open(&f, s->problem->vertex_count) && choose(s, &h, &f, links, open);
    effects_free(&f);
    gv_free(h.items);
    gv_free(open);
    return enough;
}
