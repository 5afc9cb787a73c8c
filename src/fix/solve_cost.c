// Which of equally few edges: an edge is exchanged for another that orders the same demands and lengthens the critical
// path less, or orders less beside them.
#include "fix/solve_core.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

// Ends that are tried on each side, the best by time; and how often an exchange is looked for, at least once an edge.
enum { MOST_ENDS = 512, MOST_TRIALS = 1024 };

// The longest path that ends with each vertex, and the longest that begins with it.
typedef struct times {
    uint64_t *ending, *beginning, longest;
} times;

static bool measure(const gv_solver *s, const gv_links *links, times *t)
{
    const gv_fix_problem *p = s->problem;
    memset(t->ending, 0, p->vertex_count * sizeof *t->ending);
    memset(t->beginning, 0, p->vertex_count * sizeof *t->beginning);
    t->longest = 0;
    // Few edges are added: they are looked for where their ends are.
    uint32_t *at = gv_calloc(p->vertex_count, sizeof *at); // 1 + the last edge that begins there
    uint32_t *other = gv_calloc(links->count + 1, sizeof *other);
    if (!at || !other) {
        gv_free(at);
        gv_free(other);
        return false;
    }
    for (uint32_t i = 0; i < links->count; i++) {
        uint32_t tail = p->spots[links->items[i].from].out;
        other[i] = at[tail];
        at[tail] = i + 1;
    }
    for (uint32_t v = 0; v < p->vertex_count; v++) {
        uint64_t end = t->ending[v] += p->weights[v];
        t->longest = end > t->longest ? end : t->longest;
        for (size_t e = s->first_out[v]; e < s->first_out[v + 1]; e++)
            t->ending[s->out[e]] = end > t->ending[s->out[e]] ? end : t->ending[s->out[e]];
        for (uint32_t i = at[v]; i; i = other[i - 1]) {
            uint32_t head = p->spots[links->items[i - 1].to].in;
            t->ending[head] = end > t->ending[head] ? end : t->ending[head];
        }
    }
    for (uint32_t v = p->vertex_count; v-- > 0;) {
        uint64_t behind = 0;
        for (size_t e = s->first_out[v]; e < s->first_out[v + 1]; e++)
            behind = t->beginning[s->out[e]] > behind ? t->beginning[s->out[e]] : behind;
        for (uint32_t i = at[v]; i; i = other[i - 1]) {
            uint32_t head = p->spots[links->items[i - 1].to].in;
            behind = t->beginning[head] > behind ? t->beginning[head] : behind;
        }
        t->beginning[v] = behind + p->weights[v];
    }
    gv_free(at);
    gv_free(other);
    return true;
}

// A spot that may be an end of the edge, with the time of the path that it ends or begins.
typedef struct end {
    uint64_t time;
    uint32_t spot;
} end;

static int early_first(const void *left, const void *right)
{
    const end *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return a->spot < b->spot ? -1 : a->spot > b->spot;
}

static int late_first(const void *left, const void *right)
{
    const end *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return a->spot > b->spot ? -1 : a->spot < b->spot;
}

static bool contains(const uint64_t *set, const uint64_t *wanted, size_t words)
{
    for (size_t w = 0; w < words; w++)
        if (wanted[w] & ~set[w])
            return false;
    return true;
}

// How good an edge is: first what it makes of the critical path, then the longest path through it, then how far apart
// its ends stand: the closer, the more it orders.
typedef struct merit {
    uint64_t critical, through;
    uint32_t tail, head;
} merit;

static bool is_better(const merit *a, const merit *b)
{
    if (a->critical != b->critical)
        return a->critical < b->critical;
    if (a->through != b->through)
        return a->through < b->through;
    if (a->head - a->tail != b->head - b->tail)
        return a->head - a->tail > b->head - b->tail;
    return a->tail < b->tail;
}

static merit merit_of(const gv_solver *s, const times *without, uint32_t from, uint32_t to)
{
    uint64_t through = without->ending[s->problem->spots[from].out] + without->beginning[s->problem->spots[to].in];
    return (merit){through > without->longest ? through : without->longest, through, from, to};
}

// What is needed to exchange edges.
typedef struct exchange {
    times without;
    uint64_t *wanted; // demands that only the edge at hand orders
    end *tails, *heads;
} exchange;

// Puts the best edge into the place of edge i; `links` has it at the end, not counted.
static bool exchange_last(gv_solver *s, exchange *x, const gv_links *others, gv_fix_link *edge, bool *changed)
{
    const gv_fix_problem *p = s->problem;
    if (!gv_solver_reach(s, others->items, others->count) || !gv_solver_reach_back(s, others->items, others->count) ||
        !measure(s, others, &x->without))
        return false;
    memset(x->wanted, 0, s->words * sizeof *x->wanted);
    // The edge lies between the last beginning and the first end of these, since all paths lead forward.
    uint32_t lowest = 0, highest = UINT32_MAX;
    for (size_t i = 0; i < s->demand_count; i++) {
        if (gv_solver_ordered(s, i))
            continue;
        x->wanted[i / 64] |= UINT64_C(1) << i % 64;
        lowest = s->demands[i].from > lowest ? s->demands[i].from : lowest;
        highest = s->demands[i].to < highest ? s->demands[i].to : highest;
    }
    size_t tails = 0, heads = 0;
    for (uint32_t i = 0; i < p->spot_count; i++) {
        if (p->spots[i].out < lowest || p->spots[i].in > highest)
            continue;
        if (contains(gv_solver_reached(s, p->spots[i].out), x->wanted, s->words))
            x->tails[tails++] = (end){x->without.ending[p->spots[i].out], i};
        if (contains(gv_solver_reaching(s, p->spots[i].in), x->wanted, s->words))
            x->heads[heads++] = (end){x->without.beginning[p->spots[i].in], i};
    }
    qsort(x->tails, tails, sizeof *x->tails, early_first);
    qsort(x->heads, heads, sizeof *x->heads, late_first);
    merit best = merit_of(s, &x->without, edge->from, edge->to);
    for (size_t t = 0; t < tails && t < MOST_ENDS; t++) {
        for (size_t h = 0; h < heads && h < MOST_ENDS; h++) {
            merit now = merit_of(s, &x->without, x->tails[t].spot, x->heads[h].spot);
            // Both sides come by their times: what follows is longer still.
            if (now.through > best.through && now.critical >= best.critical)
                break;
            if (gv_spots_allow(p, now.tail, now.head) && is_better(&now, &best)) {
                best = now;
                *edge = (gv_fix_link){now.tail, now.head};
                *changed = true;
            }
        }
    }
    return true;
}

bool gv_solve_cheapen(gv_solver *s, gv_links *links)
{
    const gv_fix_problem *p = s->problem;
    exchange x = {
        .without = {gv_calloc(p->vertex_count, sizeof(uint64_t)), gv_calloc(p->vertex_count, sizeof(uint64_t)), 0},
        .wanted = gv_calloc(s->words, sizeof *x.wanted),
        .tails = gv_calloc(p->spot_count, sizeof *x.tails),
        .heads = gv_calloc(p->spot_count, sizeof *x.heads)};
    bool enough = x.without.ending && x.without.beginning && x.wanted && x.tails && x.heads, changed = true;
    for (size_t trials = 0; enough && changed && trials < MOST_TRIALS;) {
        changed = false;
        for (size_t i = 0; enough && i < links->count; i++, trials++) {
            // The others, with the edge at hand behind them.
            gv_fix_link edge = links->items[i];
            links->items[i] = links->items[links->count - 1];
            gv_links others = {links->items, links->count - 1, links->capacity};
            enough = exchange_last(s, &x, &others, &edge, &changed);
            links->items[links->count - 1] = links->items[i];
            links->items[i] = edge;
        }
    }
    gv_free(x.without.ending);
    gv_free(x.without.beginning);
    gv_free(x.wanted);
    gv_free(x.tails);
    gv_free(x.heads);
    return enough;
}
