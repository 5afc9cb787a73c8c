// The solver's frame: the graph, which demands imply others, which demands a set of edges orders.
#include "fix/solve_core.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

// ---- Sets of edges ----------------------------------------------------------------------------------------------

bool gv_links_add(gv_links *links, gv_fix_link link)
{
    if (!GV_GROW(links->items, links->capacity, links->count + 1))
        return false;
    links->items[links->count++] = link;
    return true;
}

static int by_from(const void *left, const void *right)
{
    const gv_fix_link *a = left, *b = right;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return a->to < b->to ? -1 : a->to > b->to;
}

bool gv_spots_allow(const gv_fix_problem *problem, uint32_t from, uint32_t to)
{
    const gv_fix_spot *a = &problem->spots[from], *b = &problem->spots[to];
    return a->level == b->level && a->out < b->in;
}

bool gv_spots_undominated(const gv_solver *s, uint32_t from, uint32_t to)
{
    return s->next[from] >= to && (s->before[to] == UINT32_MAX || s->before[to] <= from);
}

// ---- Which demands are ordered ----------------------------------------------------------------------------------

typedef struct vertex_link {
    uint32_t from, to;
} vertex_link;

static int by_tail(const void *left, const void *right)
{
    const vertex_link *a = left, *b = right;
    return a->from < b->from ? -1 : a->from > b->from;
}

static int by_head(const void *left, const void *right)
{
    const vertex_link *a = left, *b = right;
    return a->to < b->to ? -1 : a->to > b->to;
}

// The vertices that the edges join, sorted. To be freed.
static vertex_link *vertices_of(const gv_fix_problem *problem, const gv_fix_link *links, size_t count,
                                int (*order)(const void *, const void *))
{
    vertex_link *joined = gv_calloc(count + 1, sizeof *joined);
    for (size_t i = 0; joined && i < count; i++)
        joined[i] = (vertex_link){problem->spots[links[i].from].out, problem->spots[links[i].to].in};
    if (joined)
        qsort(joined, count, sizeof *joined, order);
    return joined;
}

static void unite(uint64_t *into, const uint64_t *from, size_t words)
{
    for (size_t w = 0; w < words; w++)
        into[w] |= from[w];
}

bool gv_solver_reach(gv_solver *s, const gv_fix_link *links, size_t count)
{
    const gv_fix_problem *p = s->problem;
    vertex_link *added = vertices_of(p, links, count, by_tail);
    if (!added)
        return false;
    memset(s->reached, 0, (size_t)p->vertex_count * s->words * sizeof *s->reached);
    for (size_t i = 0; i < s->demand_count; i++)
        s->reached[(size_t)s->demands[i].from * s->words + i / 64] |= UINT64_C(1) << i % 64;
    size_t at = 0;
    for (uint32_t v = 0; v < p->vertex_count; v++) {
        const uint64_t *here = gv_solver_reached(s, v);
        for (size_t e = s->first_out[v]; e < s->first_out[v + 1]; e++)
            unite(s->reached + (size_t)s->out[e] * s->words, here, s->words);
        for (; at < count && added[at].from == v; at++)
            unite(s->reached + (size_t)added[at].to * s->words, here, s->words);
    }
    gv_free(added);
    return true;
}

bool gv_solver_reach_back(gv_solver *s, const gv_fix_link *links, size_t count)
{
    const gv_fix_problem *p = s->problem;
    vertex_link *added = vertices_of(p, links, count, by_head);
    if (!added)
        return false;
    memset(s->reaching, 0, (size_t)p->vertex_count * s->words * sizeof *s->reaching);
    for (size_t i = 0; i < s->demand_count; i++)
        s->reaching[(size_t)s->demands[i].to * s->words + i / 64] |= UINT64_C(1) << i % 64;
    size_t at = count;
    for (uint32_t v = p->vertex_count; v-- > 0;) {
        const uint64_t *here = gv_solver_reaching(s, v);
        for (size_t e = s->first_in[v]; e < s->first_in[v + 1]; e++)
            unite(s->reaching + (size_t)s->in[e] * s->words, here, s->words);
        for (; at > 0 && added[at - 1].to == v; at--)
            unite(s->reaching + (size_t)added[at - 1].from * s->words, here, s->words);
    }
    gv_free(added);
    return true;
}

bool gv_solver_ordered(const gv_solver *s, size_t demand)
{
    return gv_solver_reached(s, s->demands[demand].to)[demand / 64] >> demand % 64 & 1;
}

bool gv_solver_all_ordered(const gv_solver *s)
{
    for (size_t i = 0; i < s->demand_count; i++)
        if (!gv_solver_ordered(s, i))
            return false;
    return true;
}

bool gv_links_prune(gv_solver *s, gv_links *links)
{
    // Taking edges out only makes the others more needed: an edge that had to stay once has to stay for good.
    for (size_t i = links->count; i-- > 0;) {
        gv_fix_link taken = links->items[i];
        links->items[i] = links->items[--links->count];
        if (!gv_solver_reach(s, links->items, links->count))
            return false;
        if (gv_solver_all_ordered(s))
            continue;
        links->items[links->count++] = links->items[i];
        links->items[i] = taken;
    }
    return true;
}

// ---- Building ---------------------------------------------------------------------------------------------------

static bool index_arcs(gv_solver *s)
{
    const gv_fix_problem *p = s->problem;
    s->first_out = gv_calloc((size_t)p->vertex_count + 2, sizeof *s->first_out);
    s->first_in = gv_calloc((size_t)p->vertex_count + 2, sizeof *s->first_in);
    s->out = gv_calloc(p->arc_count, sizeof *s->out);
    s->in = gv_calloc(p->arc_count, sizeof *s->in);
    if (!s->first_out || !s->first_in || !s->out || !s->in)
        return false;
    // Counted one place further on, so that filling moves each start to where it belongs.
    for (size_t e = 0; e < p->arc_count; e++) {
        s->first_out[p->arcs[e].from + 2]++;
        s->first_in[p->arcs[e].to + 2]++;
    }
    for (size_t v = 2; v < (size_t)p->vertex_count + 2; v++) {
        s->first_out[v] += s->first_out[v - 1];
        s->first_in[v] += s->first_in[v - 1];
    }
    for (size_t e = 0; e < p->arc_count; e++) {
        s->out[s->first_out[p->arcs[e].from + 1]++] = p->arcs[e].to;
        s->in[s->first_in[p->arcs[e].to + 1]++] = p->arcs[e].from;
    }
    return true;
}

static bool find_neighbours(gv_solver *s)
{
    const gv_fix_problem *p = s->problem;
    s->next = gv_calloc(p->spot_count, sizeof *s->next);
    s->before = gv_calloc(p->spot_count, sizeof *s->before);
    if (!s->next || !s->before)
        return false;
    for (uint32_t i = 0; i < p->spot_count; i++) {
        const gv_fix_spot *spot = &p->spots[i];
        s->next[i] = p->spot_count;
        s->before[i] = UINT32_MAX;
        for (size_t e = s->first_out[spot->out]; e < s->first_out[spot->out + 1]; e++) {
            uint32_t other = p->spot_of[s->out[e]];
            if (other != UINT32_MAX && other != i && p->spots[other].level == spot->level && other < s->next[i])
                s->next[i] = other;
        }
        for (size_t e = s->first_in[spot->in]; e < s->first_in[spot->in + 1]; e++) {
            uint32_t other = p->spot_of[s->in[e]];
            if (other != UINT32_MAX && other != i && p->spots[other].level == spot->level &&
                (s->before[i] == UINT32_MAX || other > s->before[i]))
                s->before[i] = other;
        }
    }
    return true;
}

static gv_status check(const gv_fix_problem *p, gv_error *error)
{
    for (size_t e = 0; e < p->arc_count; e++)
        if (p->arcs[e].from >= p->arcs[e].to || p->arcs[e].to >= p->vertex_count)
            return gv_fail(error, GV_ERR_USAGE, "arc %zu does not lead forward", e);
    for (size_t i = 0; i < p->demand_count; i++) {
        const gv_fix_demand *demand = &p->demands[i];
        if (demand->from >= demand->to || demand->to >= p->vertex_count || demand->direct.from >= p->spot_count ||
            demand->direct.to >= p->spot_count || !gv_spots_allow(p, demand->direct.from, demand->direct.to))
            return gv_fail(error, GV_ERR_USAGE, "no edge leads forward from vertex %u to vertex %u", demand->from,
                           demand->to);
    }
    return GV_OK;
}

// ---- Essential demands ------------------------------------------------------------------------------------------

// A demand a -> b is implied by another one a' -> b' when a leads to a' and b' leads to b. For each vertex two sets of
// vertices are computed, in slices of columns so that memory stays small: what it leads to, and what it will lead to
// once the demands of the vertices behind it are ordered.
enum { SLICE_WORDS = 8, SLICE = 64 * SLICE_WORDS };

static int by_ends(const void *left, const void *right)
{
    const gv_fix_demand *a = left, *b = right;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return a->to < b->to ? -1 : a->to > b->to;
}

typedef struct slice {
    uint64_t (*leads)[SLICE_WORDS];  // to itself too
    uint64_t (*forced)[SLICE_WORDS]; // by demands of the vertex and of those it leads to
} slice;

static bool has(const uint64_t *set, uint32_t column)
{
    return set[column / 64] >> column % 64 & 1;
}

// Marks the demands of vertex v whose ends lie in the slice and that others imply; demands [first, last).
static void mark_implied(const gv_solver *s, const slice *sets, uint32_t v, uint32_t from_column, size_t first,
                         size_t last, bool *implied)
{
    uint64_t behind[SLICE_WORDS] = {0}; // what v is forced to lead to by others than the demand at hand
    for (size_t e = s->first_out[v]; e < s->first_out[v + 1]; e++)
        unite(behind, sets->forced[s->out[e]], SLICE_WORDS);
    for (size_t i = first; i < last; i++) {
        // What lies strictly behind a demand's end is forced by it; the end itself is not.
        uint32_t to = s->demands[i].to;
        for (size_t e = s->first_out[to]; e < s->first_out[to + 1]; e++)
            unite(behind, sets->leads[s->out[e]], SLICE_WORDS);
    }
    for (size_t i = first; i < last; i++) {
        uint32_t to = s->demands[i].to;
        if (to >= from_column && to < from_column + SLICE)
            implied[i] |= has(behind, to - from_column);
    }
}

static void fill_slice(gv_solver *s, slice *sets, uint32_t from_column, bool *implied)
{
    uint32_t count = s->problem->vertex_count;
    memset(sets->leads, 0, count * sizeof *sets->leads);
    memset(sets->forced, 0, count * sizeof *sets->forced);
    size_t last = s->demand_count;
    for (uint32_t v = count; v-- > 0;) {
        if (v >= from_column && v < from_column + SLICE)
            sets->leads[v][(v - from_column) / 64] |= UINT64_C(1) << (v - from_column) % 64;
        for (size_t e = s->first_out[v]; e < s->first_out[v + 1]; e++) {
            unite(sets->leads[v], sets->leads[s->out[e]], SLICE_WORDS);
            unite(sets->forced[v], sets->forced[s->out[e]], SLICE_WORDS);
        }
        size_t first = last;
        while (first > 0 && s->demands[first - 1].from == v)
            first--;
        if (first < last)
            mark_implied(s, sets, v, from_column, first, last, implied);
        for (size_t i = first; i < last; i++)
            unite(sets->forced[v], sets->leads[s->demands[i].to], SLICE_WORDS);
        last = first;
    }
}

// Of equal demands one is kept, and none that others imply.
static bool keep_essential(gv_solver *s)
{
    size_t kept = 0;
    qsort(s->demands, s->demand_count, sizeof *s->demands, by_ends);
    for (size_t i = 0; i < s->demand_count; i++)
        if (!kept || by_ends(&s->demands[kept - 1], &s->demands[i]) != 0)
            s->demands[kept++] = s->demands[i];
    s->demand_count = kept;
    uint32_t count = s->problem->vertex_count;
    slice sets = {gv_calloc(count, sizeof *sets.leads), gv_calloc(count, sizeof *sets.forced)};
    bool *implied = gv_calloc(s->demand_count, sizeof *implied);
    bool enough = sets.leads && sets.forced && implied;
    for (uint32_t column = 0; enough && column < count; column += SLICE)
        fill_slice(s, &sets, column, implied);
    kept = 0;
    for (size_t i = 0; enough && i < s->demand_count; i++)
        if (!implied[i])
            s->demands[kept++] = s->demands[i];
    s->demand_count = kept;
    gv_free(sets.leads);
    gv_free(sets.forced);
    gv_free(implied);
    return enough;
}

// ---- All of it --------------------------------------------------------------------------------------------------

static void solver_free(gv_solver *s)
{
    gv_free(s->demands);
    gv_free(s->first_out);
    gv_free(s->first_in);
    gv_free(s->out);
    gv_free(s->in);
    gv_free(s->next);
    gv_free(s->before);
    gv_free(s->reached);
    gv_free(s->reaching);
    *s = (gv_solver){0};
}

static bool solver_open(gv_solver *s, bool essential)
{
    const gv_fix_problem *p = s->problem;
    s->demands = gv_calloc(p->demand_count, sizeof *s->demands);
    if (!s->demands || !index_arcs(s) || !find_neighbours(s))
        return false;
    if (p->demand_count)
        memcpy(s->demands, p->demands, p->demand_count * sizeof *s->demands);
    s->demand_count = p->demand_count;
    if (essential && !keep_essential(s))
        return false;
    s->words = (s->demand_count + 63) / 64;
    s->reached = gv_calloc(p->vertex_count, s->words * sizeof *s->reached);
    s->reaching = gv_calloc(p->vertex_count, s->words * sizeof *s->reaching);
    return s->reached && s->reaching;
}

static int by_end(const void *left, const void *right)
{
    const gv_fix_demand *a = left, *b = right;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

// All edges of a path from a demand's beginning to its end lie between the two in the intended order, so that demands
// of which no two overlap there need an edge each. The most of them, by the order of their ends.
static size_t count_apart(gv_solver *s)
{
    size_t apart = 0;
    uint32_t end = 0;
    qsort(s->demands, s->demand_count, sizeof *s->demands, by_end);
    for (size_t i = 0; i < s->demand_count; i++) {
        if (!apart || s->demands[i].from >= end) {
            end = s->demands[i].to;
            apart++;
        }
    }
    return apart;
}

static bool solve(gv_solver *s, uint64_t budget, gv_links *links, size_t *at_least)
{
    *at_least = count_apart(s);
    return gv_solve_greedy(s, links) && gv_links_prune(s, links) && gv_solve_exact(s, budget, links, at_least) &&
           gv_solve_cheapen(s, links);
}

gv_status gv_fix_solve(const gv_fix_problem *problem, uint64_t budget, gv_fix_solution *solution, gv_error *error)
{
    *solution = (gv_fix_solution){0};
    gv_status status = check(problem, error);
    if (status)
        return status;
    gv_solver s = {.problem = problem, .error = error};
    gv_links links = {0};
    bool enough = solver_open(&s, true);
    if (enough && s.demand_count)
        enough = solve(&s, budget, &links, &solution->at_least);
    solution->essential = s.demand_count;
    solver_free(&s);
    if (!enough) {
        gv_free(links.items);
        return gv_fail(error, GV_ERR_MEMORY, "out of memory while a fix for %zu conflicts was looked for",
                       problem->demand_count);
    }
    if (links.count)
        qsort(links.items, links.count, sizeof *links.items, by_from);
    solution->links = links.items;
    solution->count = links.count;
    return GV_OK;
}

void gv_fix_solution_free(gv_fix_solution *solution)
{
    gv_free(solution->links);
    *solution = (gv_fix_solution){0};
}

// Some demands at a time, since a vertex has a bit for each.
enum { CHECKED_AT_ONCE = 4096 };

struct gv_fix_checker {
    const gv_fix_problem *whole;
    gv_fix_problem part; // what the solver at hand is about
    gv_solver solver;
    size_t first; // demand of the part; SIZE_MAX: no solver is open
};

gv_fix_checker *gv_fix_checker_open(const gv_fix_problem *problem)
{
    gv_fix_checker *checker = gv_calloc(1, sizeof *checker);
    if (checker) {
        checker->whole = problem;
        checker->first = SIZE_MAX;
    }
    return checker;
}

void gv_fix_checker_free(gv_fix_checker *checker)
{
    if (checker)
        solver_free(&checker->solver);
    gv_free(checker);
}

static bool take_part(gv_fix_checker *checker, size_t first)
{
    if (checker->first == first)
        return true;
    size_t left = checker->whole->demand_count - first;
    solver_free(&checker->solver);
    checker->part = *checker->whole;
    checker->part.demands += first;
    checker->part.demand_count = left < CHECKED_AT_ONCE ? left : CHECKED_AT_ONCE;
    checker->solver = (gv_solver){.problem = &checker->part};
    checker->first = first;
    return solver_open(&checker->solver, false);
}

bool gv_fix_checker_run(gv_fix_checker *checker, const gv_fix_link *links, size_t count, bool *ordered)
{
    for (size_t first = 0; first < checker->whole->demand_count; first += CHECKED_AT_ONCE) {
        if (!take_part(checker, first) || !gv_solver_reach(&checker->solver, links, count)) {
            checker->first = SIZE_MAX;
            return false;
        }
        for (size_t i = 0; i < checker->solver.demand_count; i++)
            ordered[first + i] = gv_solver_ordered(&checker->solver, i);
    }
    return true;
}

bool gv_fix_check(const gv_fix_problem *problem, const gv_fix_link *links, size_t count, bool *ordered)
{
    gv_fix_checker *checker = gv_fix_checker_open(problem);
    bool enough = checker && gv_fix_checker_run(checker, links, count, ordered);
    gv_fix_checker_free(checker);
    return enough;
}

uint64_t gv_fix_critical_path(const gv_fix_problem *p, const gv_fix_link *links, size_t count)
{
    gv_solver s = {.problem = p};
    vertex_link *added = vertices_of(p, links, count, by_tail);
    uint64_t *begins = gv_calloc(p->vertex_count, sizeof *begins), longest = 0;
    if (!added || !begins || !index_arcs(&s)) {
        longest = UINT64_MAX;
    } else {
        size_t at = 0;
        for (uint32_t v = 0; v < p->vertex_count; v++) {
            uint64_t end = begins[v] + p->weights[v];
            longest = end > longest ? end : longest;
            for (size_t e = s.first_out[v]; e < s.first_out[v + 1]; e++)
                begins[s.out[e]] = end > begins[s.out[e]] ? end : begins[s.out[e]];
            for (; at < count && added[at].from == v; at++)
                begins[added[at].to] = end > begins[added[at].to] ? end : begins[added[at].to];
        }
    }
    solver_free(&s);
    gv_free(added);
    gv_free(begins);
    return longest;
}
