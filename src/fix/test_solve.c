// The solver against every possible set of edges on small random graphs, and what must hold of any solution on large
// ones. `test_solve GRAPHS` runs that many small graphs (`make fix-brute-force`: 1,000 and more of each kind).
#include "base/memory.h"
#include "fix/solve.h"
#include "fix/test_draw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_VERTICES = 32, MOST_LINKS = 400, MOST_DEMANDS = 12 };

static unsigned long graphs = 60;

// A problem with room for all it points to.
typedef struct sample {
    gv_fix_problem problem;
    gv_fix_arc *arcs;
    gv_fix_spot *spots;
    uint32_t *spot_of;
    gv_fix_demand *demands;
    uint64_t *weights;
} sample;

static void sample_free(sample *s)
{
    free(s->arcs);
    free(s->spots);
    free(s->spot_of);
    free(s->demands);
    free(s->weights);
}

// What each vertex leads to, itself included, by the arcs and `links`: by nothing that the solver has.
static void close_over(const gv_fix_problem *p, const gv_fix_link *links, size_t count, uint32_t leads[MOST_VERTICES])
{
    for (uint32_t v = p->vertex_count; v-- > 0;) {
        leads[v] = 1u << v;
        for (size_t e = 0; e < p->arc_count; e++)
            if (p->arcs[e].from == v)
                leads[v] |= leads[p->arcs[e].to];
        for (size_t i = 0; i < count; i++)
            if (p->spots[links[i].from].out == v)
                leads[v] |= leads[p->spots[links[i].to].in];
    }
}

static bool orders_all(const gv_fix_problem *p, const gv_fix_link *links, size_t count)
{
    uint32_t leads[MOST_VERTICES];
    close_over(p, links, count, leads);
    for (size_t i = 0; i < p->demand_count; i++)
        if (!(leads[p->demands[i].from] >> p->demands[i].to & 1))
            return false;
    return true;
}

// Is there a set of `left` of the edges from `first` on that, with those chosen, orders all?
static bool any_set(const gv_fix_problem *p, const gv_fix_link *all, size_t count, gv_fix_link *chosen, size_t depth,
                    size_t first, size_t left, uint64_t *best)
{
    if (!left) {
        if (!orders_all(p, chosen, depth))
            return false;
        uint64_t path = gv_fix_critical_path(p, chosen, depth);
        *best = path < *best ? path : *best;
        return true;
    }
    bool any = false;
    for (size_t i = first; i + left <= count && (!any || depth + left == 1); i++) {
        chosen[depth] = all[i];
        any |= any_set(p, all, count, chosen, depth + 1, i + 1, left - 1, best);
    }
    return any;
}

// The fewest edges by trying all sets; *best is the shortest critical path if one edge is enough.
static size_t brute_force(const gv_fix_problem *p, uint64_t *best)
{
    gv_fix_link all[MOST_LINKS], chosen[MOST_DEMANDS + 1];
    uint32_t leads[MOST_VERTICES];
    size_t count = 0;
    close_over(p, NULL, 0, leads);
    for (uint32_t i = 0; i < p->spot_count; i++)
        for (uint32_t j = 0; j < p->spot_count; j++)
            if (p->spots[i].level == p->spots[j].level && p->spots[i].out < p->spots[j].in &&
                !(leads[p->spots[i].out] >> p->spots[j].in & 1))
                all[count++] = (gv_fix_link){i, j};
    for (size_t size = 0; size <= p->demand_count; size++) {
        *best = UINT64_MAX;
        if (any_set(p, all, count, chosen, 0, 0, size, best))
            return size;
    }
    return SIZE_MAX;
}

// Random nodes of one to three vertices, in one level or with a group of them inside another node.
static void random_sample(sample *s, uint32_t nodes, bool points, bool inside)
{
    *s = (sample){.arcs = calloc(400, sizeof *s->arcs),
                  .spots = calloc(nodes + 2, sizeof *s->spots),
                  .spot_of = calloc(MOST_VERTICES, sizeof *s->spot_of),
                  .demands = calloc(MOST_DEMANDS, sizeof *s->demands),
                  .weights = calloc(MOST_VERTICES, sizeof *s->weights)};
    gv_fix_problem *p = &s->problem;
    uint32_t inner_first = inside ? draw(nodes - 3) + 1 : nodes, inner_last = inside ? inner_first + 1 + draw(2) : 0;
    uint32_t outer = UINT32_MAX, node_of[MOST_VERTICES];
    memset(s->spot_of, 0xff, MOST_VERTICES * sizeof *s->spot_of);
    for (uint32_t i = 0; i < nodes; i++) {
        bool is_inner = i >= inner_first && i <= inner_last;
        if (i == inner_first) { // the node that holds the next ones begins
            outer = p->spot_count++;
            s->spots[outer] = (gv_fix_spot){p->vertex_count, 0, 0};
            s->spot_of[p->vertex_count++] = outer;
        }
        uint32_t stages = points ? 1 + draw(3) : 1, first = p->vertex_count;
        s->spots[p->spot_count] = (gv_fix_spot){first, first + stages - 1, is_inner};
        for (uint32_t k = 0; k < stages; k++) {
            s->spot_of[p->vertex_count] = p->spot_count;
            if (k)
                s->arcs[p->arc_count++] = (gv_fix_arc){p->vertex_count - 1, p->vertex_count};
            p->vertex_count++;
        }
        s->weights[p->vertex_count - 1] = draw(20);
        if (is_inner)
            s->arcs[p->arc_count++] = (gv_fix_arc){s->spots[outer].in, first};
        p->spot_count++;
        if (inside && i == inner_last) {
            s->spots[outer].out = p->vertex_count;
            s->spot_of[p->vertex_count] = outer;
            for (uint32_t k = outer + 1; k < p->spot_count; k++)
                s->arcs[p->arc_count++] = (gv_fix_arc){s->spots[k].out, p->vertex_count};
            p->vertex_count++;
        }
    }
    // Edges within a level, with points also such as begin early or end late.
    uint32_t density = 1 + draw(4);
    for (uint32_t i = 0; i < p->spot_count; i++) {
        for (uint32_t j = i + 1; j < p->spot_count; j++) {
            const gv_fix_spot *a = &s->spots[i], *b = &s->spots[j];
            if (a->level != b->level || draw(10) >= density)
                continue;
            bool late = points && draw(4) == 0, early = points && draw(4) == 0;
            s->arcs[p->arc_count++] = (gv_fix_arc){early ? a->in : a->out, late ? b->out : b->in};
        }
    }
    uint32_t leads[MOST_VERTICES];
    p->arcs = s->arcs;
    p->spots = s->spots;
    p->spot_of = s->spot_of;
    p->weights = s->weights;
    close_over(p, NULL, 0, leads);
    for (uint32_t v = 0; v < p->vertex_count; v++)
        node_of[v] = s->spot_of[v];
    uint32_t wanted = 1 + draw(MOST_DEMANDS);
    for (uint32_t tries = 0; tries < 60 && p->demand_count < wanted; tries++) {
        uint32_t a = draw(p->vertex_count), b = draw(p->vertex_count);
        if (a >= b || leads[a] >> b & 1 || node_of[a] == node_of[b])
            continue;
        uint32_t from = node_of[a], to = node_of[b];
        if (s->spots[from].level != s->spots[to].level) {
            from = s->spots[from].level ? outer : from;
            to = s->spots[to].level ? outer : to;
        }
        // The outer node itself is ordered against what it holds only in part.
        if (from != to && s->spots[from].out < s->spots[to].in)
            s->demands[p->demand_count++] = (gv_fix_demand){a, b, {from, to}};
    }
    p->demands = s->demands;
}

static void check_solution(const gv_fix_problem *p, const gv_fix_solution *solution)
{
    bool *ordered = calloc(p->demand_count + 1, sizeof *ordered);
    assert_true(gv_fix_check(p, solution->links, solution->count, ordered));
    for (size_t i = 0; i < p->demand_count; i++)
        assert_true(ordered[i]);
    assert_true(solution->at_least <= solution->count);
    free(ordered);
}

static void test_against_all_sets(void **state)
{
    size_t sizes[MOST_DEMANDS + 1] = {0}, total = 0;
    for (unsigned long kind = 0; kind < 3; kind++) {
        for (unsigned long i = 0; i < graphs; i++) {
            seed = 0x9e3779b97f4a7c15ull * (kind * 1000003 + i + 1);
            sample s;
            uint64_t best;
            random_sample(&s, 5 + draw(kind == 1 ? 3 : 5), kind == 1, kind == 2);
            gv_fix_solution solution;
            gv_error error = {0};
            if (gv_fix_solve(&s.problem, GV_FIX_BUDGET, &solution, &error) != GV_OK)
                fail_msg("kind %lu graph %lu: %s", kind, i, error.text);
            size_t fewest = brute_force(&s.problem, &best);
            if (solution.count != fewest || solution.at_least != fewest ||
                !orders_all(&s.problem, solution.links, solution.count))
                fail_msg("kind %lu graph %lu: %zu edges, at least %zu, and %zu are enough", kind, i, solution.count,
                         solution.at_least, fewest);
            if (fewest == 1)
                assert_int_equal(gv_fix_critical_path(&s.problem, solution.links, 1), best);
            sizes[fewest]++;
            total++;
            // Without the search for a proof: as good as can be said.
            gv_fix_solution quick;
            assert_int_equal(gv_fix_solve(&s.problem, 0, &quick, &error), GV_OK);
            assert_true(quick.count >= fewest && quick.at_least <= fewest);
            assert_true(orders_all(&s.problem, quick.links, quick.count));
            for (size_t k = 0; k < quick.count; k++) {
                gv_fix_link left[MOST_DEMANDS];
                memcpy(left, quick.links, quick.count * sizeof *left);
                left[k] = left[quick.count - 1];
                assert_false(orders_all(&s.problem, left, quick.count - 1));
            }
            gv_fix_solution_free(&quick);
            gv_fix_solution_free(&solution);
            sample_free(&s);
        }
    }
    print_message("%zu graphs, by the fewest edges:", total);
    for (size_t k = 0; k <= MOST_DEMANDS; k++)
        print_message(" %zu", sizes[k]);
    print_message("\n");
    assert_true(sizes[2] && sizes[3]);
}

// Streams of nodes with joins now and then, and conflicts between streams.
static void streams_sample(sample *s, uint32_t nodes, uint32_t streams, uint32_t demands)
{
    *s = (sample){.arcs = calloc(2 * (size_t)nodes, sizeof *s->arcs),
                  .spots = calloc(nodes, sizeof *s->spots),
                  .spot_of = calloc(nodes, sizeof *s->spot_of),
                  .demands = calloc(demands, sizeof *s->demands),
                  .weights = calloc(nodes, sizeof *s->weights)};
    gv_fix_problem *p = &s->problem;
    p->vertex_count = p->spot_count = nodes;
    uint32_t *last = calloc(streams, sizeof *last), *stream = calloc(nodes, sizeof *stream);
    memset(last, 0xff, streams * sizeof *last);
    for (uint32_t i = 0; i < nodes; i++) {
        stream[i] = draw(streams);
        s->spots[i] = (gv_fix_spot){i, i, 0};
        s->spot_of[i] = i;
        s->weights[i] = 1 + draw(100);
        if (last[stream[i]] != UINT32_MAX)
            s->arcs[p->arc_count++] = (gv_fix_arc){last[stream[i]], i};
        uint32_t other = last[draw(streams)];
        if (draw(20) == 0 && other != UINT32_MAX && other != last[stream[i]])
            s->arcs[p->arc_count++] = (gv_fix_arc){other, i};
        last[stream[i]] = i;
    }
    p->arcs = s->arcs;
    p->spots = s->spots;
    p->spot_of = s->spot_of;
    p->weights = s->weights;
    p->demands = s->demands;
    // All are drawn, and those that the arcs order already are left out.
    for (uint32_t i = 0; i < demands; i++) {
        uint32_t a = draw(nodes), b = a + 1 + draw(200);
        if (b < nodes && stream[a] != stream[b])
            s->demands[p->demand_count++] = (gv_fix_demand){a, b, {a, b}};
    }
    bool *ordered = calloc(p->demand_count + 1, sizeof *ordered);
    assert_true(gv_fix_check(p, NULL, 0, ordered));
    size_t kept = 0;
    for (size_t i = 0; i < p->demand_count; i++)
        if (!ordered[i])
            s->demands[kept++] = s->demands[i];
    p->demand_count = kept;
    free(ordered);
    free(last);
    free(stream);
}

static void test_large(void **state)
{
    sample s;
    gv_error error = {0};
    seed = 5;
    streams_sample(&s, 1000, 8, 300);
    gv_fix_solution solution, again;
    assert_int_equal(gv_fix_solve(&s.problem, 200000, &solution, &error), GV_OK);
    check_solution(&s.problem, &solution);
    assert_true(solution.count > 5 && solution.count < solution.essential);
    print_message("%zu conflicts, %zu essential: %zu edges, at least %zu\n", s.problem.demand_count, solution.essential,
                  solution.count, solution.at_least);
    // Minimal: without any one edge some demand is not ordered.
    bool *ordered = calloc(s.problem.demand_count, sizeof *ordered);
    gv_fix_link *left = calloc(solution.count, sizeof *left);
    for (size_t k = 0; k < solution.count; k++) {
        memcpy(left, solution.links, solution.count * sizeof *left);
        left[k] = left[solution.count - 1];
        assert_true(gv_fix_check(&s.problem, left, solution.count - 1, ordered));
        bool all = true;
        for (size_t i = 0; i < s.problem.demand_count; i++)
            all = all && ordered[i];
        assert_false(all);
    }
    // The same input gives the same output.
    assert_int_equal(gv_fix_solve(&s.problem, 200000, &again, &error), GV_OK);
    assert_int_equal(again.count, solution.count);
    assert_memory_equal(again.links, solution.links, solution.count * sizeof *solution.links);
    gv_fix_solution_free(&again);
    gv_fix_solution_free(&solution);
    free(ordered);
    free(left);
    sample_free(&s);
}

// Two streams of three nodes, conflicts between all of one and all of the other: one edge does.
static void test_one_edge_for_many(void **state)
{
    gv_fix_arc arcs[] = {{0, 1}, {1, 2}, {3, 4}, {4, 5}};
    gv_fix_spot spots[6];
    uint32_t spot_of[6];
    gv_fix_demand demands[9];
    for (uint32_t i = 0; i < 6; i++) {
        spots[i] = (gv_fix_spot){i, i, 0};
        spot_of[i] = i;
    }
    for (uint32_t i = 0; i < 9; i++)
        demands[i] = (gv_fix_demand){i / 3, 3 + i % 3, {i / 3, 3 + i % 3}};
    gv_fix_problem p = {6, arcs, 4, spots, 6, spot_of, demands, 9, (uint64_t[]){5, 6, 7, 8, 9, 10}};
    gv_fix_solution solution;
    assert_int_equal(gv_fix_solve(&p, GV_FIX_BUDGET, &solution, NULL), GV_OK);
    assert_int_equal(solution.count, 1);
    assert_int_equal(solution.essential, 1);
    assert_int_equal(solution.links[0].from, 2);
    assert_int_equal(solution.links[0].to, 3);
    assert_int_equal(gv_fix_critical_path(&p, NULL, 0), 27);
    assert_int_equal(gv_fix_critical_path(&p, solution.links, 1), 45);
    gv_fix_solution_free(&solution);
    // Of one pair: from the node itself to the node itself, and nothing wider.
    gv_fix_demand one = {0, 5, {0, 5}};
    p.demands = &one;
    p.demand_count = 1;
    assert_int_equal(gv_fix_solve(&p, GV_FIX_BUDGET, &solution, NULL), GV_OK);
    assert_int_equal(solution.count, 1);
    assert_int_equal(solution.links[0].from, 0);
    assert_int_equal(solution.links[0].to, 5);
    gv_fix_solution_free(&solution);
    // A demand that the graph cannot have.
    one = (gv_fix_demand){5, 0, {5, 0}};
    assert_int_equal(gv_fix_solve(&p, GV_FIX_BUDGET, &solution, NULL), GV_ERR_USAGE);
    p.demand_count = 0;
    assert_int_equal(gv_fix_solve(&p, GV_FIX_BUDGET, &solution, NULL), GV_OK);
    assert_int_equal(solution.count, 0);
    assert_int_equal(solution.at_least, 0);
    gv_fix_solution_free(&solution);
}

// Three pairs, of which two edges order the third together: no two edges that each order whole pairs would do.
static void test_edges_that_work_together(void **state)
{
    // a b b' c, with b before b': (a, b) and (b', c) imply (a, c).
    gv_fix_arc arcs[] = {{1, 2}};
    gv_fix_spot spots[4] = {{0, 0, 0}, {1, 1, 0}, {2, 2, 0}, {3, 3, 0}};
    gv_fix_demand demands[] = {{0, 1, {0, 1}}, {2, 3, {2, 3}}, {0, 3, {0, 3}}};
    gv_fix_problem p = {4, arcs, 1, spots, 4, (uint32_t[]){0, 1, 2, 3}, demands, 3, (uint64_t[]){1, 1, 1, 1}};
    gv_fix_solution solution;
    assert_int_equal(gv_fix_solve(&p, GV_FIX_BUDGET, &solution, NULL), GV_OK);
    assert_int_equal(solution.count, 2);
    assert_int_equal(solution.at_least, 2);
    gv_fix_solution_free(&solution);
}

static void test_memory(void **state)
{
    sample s;
    seed = 77;
    streams_sample(&s, 120, 4, 40);
    for (long n = 0;; n++) {
        gv_fix_solution solution;
        gv_error error = {0};
        gv_memory_fail_after(n);
        gv_status status = gv_fix_solve(&s.problem, 20000, &solution, &error);
        gv_memory_fail_after(-1);
        if (status == GV_OK) {
            check_solution(&s.problem, &solution);
            gv_fix_solution_free(&solution);
            break;
        }
        assert_int_equal(status, GV_ERR_MEMORY);
        assert_null(solution.links);
    }
    sample_free(&s);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        graphs = strtoul(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_all_sets),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_one_edge_for_many),
        cmocka_unit_test(test_edges_that_work_together),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
