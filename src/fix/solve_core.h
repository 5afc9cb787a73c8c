// What the files of the solver share: the graph with its demands (solve.c), the heuristic (solve_greedy.c), the search
// for the minimum (solve_exact.c) and the choice of the cheapest among equally few (solve_cost.c).
#ifndef GV_FIX_SOLVE_CORE_H
#define GV_FIX_SOLVE_CORE_H

#include "fix/solve.h"

typedef struct gv_solver {
    const gv_fix_problem *problem;
    gv_fix_demand *demands;       // the essential ones
    size_t demand_count, words;   // words: 64-bit words of a set of them
    size_t *first_out, *first_in; // arcs of vertex v: [first[v], first[v + 1])
    uint32_t *out, *in;           // their other ends
    uint32_t *next, *before;      // of each spot: the nearest spot of its level that an arc leads to, and from; else
                                  // spot_count, and UINT32_MAX
    uint64_t *reached, *reaching; // for each vertex a set of demands: whose `from` leads to it; whose `to` it leads to
    gv_error *error;
} gv_solver;

// A set of edges that grows and shrinks.
typedef struct gv_links {
    gv_fix_link *items;
    size_t count, capacity;
} gv_links;

bool gv_links_add(gv_links *links, gv_fix_link link);

// Fills `reached` for the graph with `links`; the same backwards for `reaching`.
bool gv_solver_reach(gv_solver *s, const gv_fix_link *links, size_t count);
bool gv_solver_reach_back(gv_solver *s, const gv_fix_link *links, size_t count);

// Is demand i ordered, by what gv_solver_reach computed last?
bool gv_solver_ordered(const gv_solver *s, size_t demand);
bool gv_solver_all_ordered(const gv_solver *s);

static inline const uint64_t *gv_solver_reached(const gv_solver *s, uint32_t vertex)
{
    return s->reached + (size_t)vertex * s->words;
}

static inline const uint64_t *gv_solver_reaching(const gv_solver *s, uint32_t vertex)
{
    return s->reaching + (size_t)vertex * s->words;
}

// Can an edge lead from one spot to another?
bool gv_spots_allow(const gv_fix_problem *problem, uint32_t from, uint32_t to);

// Is no other edge at least as good: may no arc's end lie between the two? (docs/fix.md, "Candidates")
bool gv_spots_undominated(const gv_solver *s, uint32_t from, uint32_t to);

// Takes out, one after the other, every edge without which all demands are still ordered.
bool gv_links_prune(gv_solver *s, gv_links *links);

// ---- The steps ----
bool gv_solve_greedy(gv_solver *s, gv_links *links);

// Looks for fewer edges than *links, which is feasible. Sets *at_least to what was proved. False when memory is out.
bool gv_solve_exact(gv_solver *s, uint64_t budget, gv_links *links, size_t *at_least);

// Exchanges edges for such as lengthen the critical path less, or order less, as long as that helps.
bool gv_solve_cheapen(gv_solver *s, gv_links *links);

#endif
