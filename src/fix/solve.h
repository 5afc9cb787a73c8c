// The fewest edges that order a set of conflicts in a graph. docs/fix.md states the problem, the method and its proofs;
// this part knows nothing of traces.
#ifndef GV_FIX_SOLVE_H
#define GV_FIX_SOLVE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The graph: vertices 0 .. count - 1 in the intended order, in which every arc leads forward. A node of a CUDA graph is
// one vertex or several (order/graph_points.h).
typedef struct gv_fix_arc {
    uint32_t from, to;
} gv_fix_arc;

// A node that edges can be added between, in the intended order: an edge leads from the `out` of one to the `in` of
// another of the same level, and forward. `in` <= `out`.
typedef struct gv_fix_spot {
    uint32_t in, out, level;
} gv_fix_spot;

// An edge between spots.
typedef struct gv_fix_link {
    uint32_t from, to;
} gv_fix_link;

// `from` is to be complete before `to` begins; no path of arcs does so. The link is one edge that would, for when
// nothing better is found.
typedef struct gv_fix_demand {
    uint32_t from, to;
    gv_fix_link direct;
} gv_fix_demand;

typedef struct gv_fix_problem {
    uint32_t vertex_count;
    const gv_fix_arc *arcs;
    size_t arc_count;
    const gv_fix_spot *spots;
    uint32_t spot_count;
    const uint32_t *spot_of; // of each vertex; UINT32_MAX: none
    const gv_fix_demand *demands;
    size_t demand_count;
    const uint64_t *weights; // of each vertex: how long it takes
} gv_fix_problem;

// How hard the search for a proof tries, in steps of about a microsecond. 0: the heuristic alone.
enum { GV_FIX_BUDGET = 2000000 };

// `links` orders every demand, and without any one of them some demand is not ordered. No solution has fewer than
// `at_least`: when that is `count`, it is the minimum.
typedef struct gv_fix_solution {
    gv_fix_link *links; // by `from`, then `to`
    size_t count, at_least;
    size_t essential; // demands that are left when those that others imply are taken out
} gv_fix_solution;

// GV_ERR_USAGE when an arc or a direct link does not lead forward. Free with gv_fix_solution_free.
gv_status gv_fix_solve(const gv_fix_problem *problem, uint64_t budget, gv_fix_solution *solution, gv_error *error);
void gv_fix_solution_free(gv_fix_solution *solution);

// The heaviest path, with `links` added. UINT64_MAX when memory is out.
uint64_t gv_fix_critical_path(const gv_fix_problem *problem, const gv_fix_link *links, size_t count);

// Answers which demands some edges order, again and again. Free with gv_fix_checker_free; NULL when memory is out.
typedef struct gv_fix_checker gv_fix_checker;
gv_fix_checker *gv_fix_checker_open(const gv_fix_problem *problem);
void gv_fix_checker_free(gv_fix_checker *checker);

// ordered[i]: do the arcs and `links` order demand i? False when memory is out.
bool gv_fix_checker_run(gv_fix_checker *checker, const gv_fix_link *links, size_t count, bool *ordered);

// The same for once.
bool gv_fix_check(const gv_fix_problem *problem, const gv_fix_link *links, size_t count, bool *ordered);

#endif
