// The order within a graph against a transitive closure on thousands of random graphs, and by hand where a shape
// matters: programmatic and launch-order edges with kernels that wait, do not, or were not observed, chains of forks
// and joins, graphs wider than they are deep.
#include "base/memory.h"
#include "order/graph_order.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_NODES = 40, MOST_EDGES = 400 };

static uint64_t random_state;

static unsigned draw(unsigned below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((random_state >> 33) % below);
}

static const gv_edge ORDINARY = {0}, PROGRAMMATIC = {.from_port = 1, .type = 1};
// Of the event that a launch-completion attribute names, and of one whose trigger is at the beginning of blocks.
static const gv_edge BEGUN = {.from_port = 2, .type = 0}, BEGUN_WAITED_FOR = {.from_port = 2, .type = 1};

static gv_edge edge(uint32_t from, uint32_t to, gv_edge kind)
{
    return (gv_edge){.from = from, .to = to, .from_port = kind.from_port, .type = kind.type};
}

static gv_graph_order *build_observed(size_t nodes, const gv_edge *edges, size_t count,
                                      const gv_grid_dependency *dependencies)
{
    gv_graph_order *order;
    gv_error error = {0};
    if (gv_graph_order_build(nodes, edges, count, dependencies, &order, &error) != GV_OK)
        fail_msg("%s", error.text);
    return order;
}

static gv_graph_order *build(size_t nodes, const gv_edge *edges, size_t count)
{
    return build_observed(nodes, edges, count, NULL);
}

// The reference: four places a node whatever it is, and the closure of the edges between them, a row of bits each.
enum { START, EARLY, WAITED, MAIN, PLACES, MOST_PLACES = PLACES * MOST_NODES, ROW = (MOST_PLACES + 63) / 64 };
typedef uint64_t closure[MOST_PLACES][ROW];

static void put_before(closure reach, size_t a, size_t b)
{
    reach[a][b / 64] |= UINT64_C(1) << b % 64;
}

static bool is_before(closure reach, size_t a, size_t b)
{
    return reach[a][b / 64] >> b % 64 & 1;
}

static void close_transitively(closure reach, size_t places)
{
    for (size_t k = 0; k < places; k++)
        for (size_t i = 0; i < places; i++)
            for (size_t w = 0; w < ROW && is_before(reach, i, k); w++)
                reach[i][w] |= reach[k][w];
}

// Fills one relation. `assuming`: a kernel that was not observed waits before all else.
static void fill_reference(closure reach, size_t nodes, const gv_edge *edges, size_t count,
                           const gv_grid_dependency *dependencies, bool assuming)
{
    memset(reach, 0, sizeof(closure));
    for (size_t n = 0; n < nodes; n++) {
        size_t at = PLACES * n;
        put_before(reach, at + START, at + EARLY);
        put_before(reach, at + START, at + WAITED);
        put_before(reach, at + WAITED, at + MAIN);
        put_before(reach, at + EARLY, at + MAIN);
    }
    for (size_t i = 0; i < count; i++) {
        const gv_edge *e = &edges[i];
        size_t from = PLACES * e->from, to = PLACES * e->to;
        gv_grid_dependency front = dependencies[e->from], back = dependencies[e->to];
        if (e->from_port == 0) {
            put_before(reach, from + MAIN, to + START);
            continue;
        }
        put_before(reach, from + START, to + START);
        if (e->from_port == 1) {
            bool late = front.wait == GV_GRID_WAIT_DONE && front.trigger == GV_GRID_TRIGGER_LATE;
            bool perhaps = front.wait == GV_GRID_WAIT_UNKNOWN ||
                           (front.wait == GV_GRID_WAIT_DONE && front.trigger == GV_GRID_TRIGGER_UNKNOWN);
            if (late || (perhaps && assuming))
                put_before(reach, from + WAITED, to + START);
        }
        bool waits = back.wait == GV_GRID_WAIT_DONE || (back.wait == GV_GRID_WAIT_UNKNOWN && assuming);
        if (e->type && waits)
            put_before(reach, from + MAIN, to + WAITED);
    }
    close_transitively(reach, PLACES * nodes);
}

static enum gv_ordering expected_order(closure known, closure assumed, size_t a, size_t b)
{
    return is_before(known, a, b) ? GV_ORDERED : is_before(assumed, a, b) ? GV_ORDERED_PROGRAMMATIC : GV_UNORDERED;
}

// All pairs of places at which nodes access memory, and paths between nodes.
static void check_nodes(const gv_graph_order *order, size_t nodes, closure known, closure assumed)
{
    for (uint32_t a = 0; a < 2 * nodes; a++) {
        for (uint32_t b = 0; b < 2 * nodes; b++) {
            uint32_t node_a = a / 2, node_b = b / 2;
            bool early_a = a % 2 == 0, early_b = b % 2 == 0;
            uint32_t point_a = early_a ? gv_graph_order_early(order, node_a) : node_a;
            uint32_t point_b = early_b ? gv_graph_order_early(order, node_b) : node_b;
            // A node that accesses nothing before its wait has no place for it.
            if ((early_a && point_a == node_a) || (early_b && point_b == node_b) || point_a == point_b)
                continue;
            assert_int_equal(gv_graph_order_node(order, point_a), node_a);
            size_t in_a = PLACES * node_a + (early_a ? EARLY : MAIN), in_b = PLACES * node_b + (early_b ? EARLY : MAIN);
            enum gv_ordering forwards = expected_order(known, assumed, in_a, in_b);
            enum gv_ordering backwards = expected_order(known, assumed, in_b, in_a);
            assert_int_equal(gv_graph_order_before(order, point_a, point_b), forwards);
            enum gv_ordering between = forwards == GV_ORDERED || backwards == GV_ORDERED ? GV_ORDERED
                                       : forwards                                        ? forwards
                                                                                         : backwards;
            assert_int_equal(gv_graph_order_between(order, point_a, point_b), between);
            if (!early_a && !early_b)
                assert_int_equal(gv_graph_order_leads(order, node_a, node_b),
                                 is_before(known, PLACES * node_a + START, PLACES * node_b + START));
        }
    }
}

// Chains are totally ordered, ranks follow the order, and reach() counts what comes before, in both relations.
static void check_chains(const gv_graph_order *order)
{
    uint32_t points = (uint32_t)gv_graph_order_point_count(order);
    for (uint32_t a = 0; a < points; a++) {
        for (uint32_t b = 0; b < points; b++) {
            enum gv_ordering before = gv_graph_order_before(order, a, b);
            if (before)
                assert_true(gv_graph_order_rank(order, a) < gv_graph_order_rank(order, b));
            if (a != b && gv_graph_order_chain(order, a) == gv_graph_order_chain(order, b))
                assert_int_equal(before == GV_ORDERED,
                                 gv_graph_order_position(order, a) < gv_graph_order_position(order, b));
        }
    }
    for (int which = GV_BY_KNOWN_ORDER; which <= GV_BY_ASSUMED_ORDER; which++) {
        for (uint32_t point = 0; point < points; point++) {
            for (uint32_t chain = 0; chain < points; chain++) {
                uint32_t before = 0;
                for (uint32_t a = 0; a < points; a++) {
                    enum gv_ordering ordering = gv_graph_order_before(order, a, point);
                    before += gv_graph_order_chain_by(order, which, a) == chain &&
                              (which == GV_BY_KNOWN_ORDER ? ordering == GV_ORDERED : ordering != GV_UNORDERED);
                }
                assert_int_equal(gv_graph_order_reach(order, which, point, chain), before);
            }
        }
    }
    for (uint32_t r = 0; r < points; r++)
        assert_int_equal(gv_graph_order_rank(order, gv_graph_order_topological(order)[r]), r);
}

static void check_against_closure(size_t nodes, const gv_edge *edges, size_t count,
                                  const gv_grid_dependency *dependencies)
{
    static closure known, assumed;
    fill_reference(known, nodes, edges, count, dependencies, false);
    fill_reference(assumed, nodes, edges, count, dependencies, true);
    gv_graph_order *order = build_observed(nodes, edges, count, dependencies);
    check_nodes(order, nodes, known, assumed);
    if (gv_graph_order_point_count(order) <= MOST_NODES)
        check_chains(order);
    gv_graph_order_free(order);
}

// Edges run from a lower to a higher place of a random permutation, so that node indices say nothing about order.
static void test_random_graphs_match_the_transitive_closure(void **state)
{
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        random_state = seed;
        uint32_t place[MOST_NODES];
        gv_edge edges[MOST_EDGES];
        size_t nodes = 1 + draw(MOST_NODES), count = 0, wanted = draw(3) ? draw(2 * (unsigned)nodes) : draw(MOST_EDGES);
        for (uint32_t i = 0; i < nodes; i++) {
            uint32_t j = draw(i + 1);
            place[i] = place[j];
            place[j] = i;
        }
        unsigned others = draw(3); // no, a few, or many edges that are not ordinary
        unsigned window = draw(2) ? 4 : MOST_NODES;
        while (nodes > 1 && count < wanted) {
            uint32_t from = draw((unsigned)nodes - 1), to = from + 1 + draw((unsigned)nodes - 1 - from);
            if (to - from > window)
                to = from + 1;
            gv_edge kind = draw(6) >= 2 * others ? ORDINARY
                           : draw(4)             ? PROGRAMMATIC
                           : draw(2)             ? BEGUN
                                                 : BEGUN_WAITED_FOR;
            edges[count++] = edge(place[from], place[to], kind);
        }
        gv_grid_dependency dependencies[MOST_NODES];
        unsigned observed = draw(3); // none, some, or all
        for (size_t n = 0; n < nodes; n++)
            dependencies[n] =
                (gv_grid_dependency){.wait = observed == 0 || (observed == 1 && draw(2)) ? 0 : (uint8_t)(1 + draw(2)),
                                     .trigger = (uint8_t)draw(3),
                                     .early = draw(2)};
        check_against_closure(nodes, edges, count, dependencies);
    }
}

static void test_ordinary_edge_orders_and_its_absence_does_not(void **state)
{
    gv_edge edges[] = {edge(0, 1, ORDINARY)};
    gv_graph_order *with = build(2, edges, 1), *without = build(2, edges, 0);
    assert_int_equal(gv_graph_order_before(with, 0, 1), GV_ORDERED);
    assert_int_equal(gv_graph_order_before(with, 1, 0), GV_UNORDERED);
    assert_int_equal(gv_graph_order_before(with, 0, 0), GV_UNORDERED);
    assert_int_equal(gv_graph_order_before(without, 0, 1), GV_UNORDERED);
    gv_graph_order_free(with);
    gv_graph_order_free(without);
}

static void test_unobserved_kernel_weakens_every_path_through_its_wait(void **state)
{
    gv_edge edges[] = {edge(0, 1, PROGRAMMATIC), edge(1, 2, ORDINARY), edge(0, 3, ORDINARY), edge(3, 2, ORDINARY)};
    gv_graph_order *without = build(4, edges, 2), *with = build(4, edges, 4);
    assert_true(gv_graph_order_has_assumptions(without));
    assert_int_equal(gv_graph_order_before(without, 0, 1), GV_ORDERED_PROGRAMMATIC);
    assert_int_equal(gv_graph_order_before(without, 0, 2), GV_ORDERED_PROGRAMMATIC);
    assert_int_equal(gv_graph_order_before(without, 1, 2), GV_ORDERED);
    // A second path of ordinary edges makes the order certain.
    assert_int_equal(gv_graph_order_before(with, 0, 2), GV_ORDERED);
    assert_int_equal(gv_graph_order_before(with, 0, 1), GV_ORDERED_PROGRAMMATIC);
    gv_graph_order_free(without);
    gv_graph_order_free(with);
}

static void test_observed_wait_splits_a_node(void **state)
{
    gv_edge edges[] = {edge(0, 1, PROGRAMMATIC), edge(1, 2, ORDINARY)};
    gv_grid_dependency waits[3] = {[1] = {.wait = GV_GRID_WAIT_DONE, .early = true}};
    gv_graph_order *order = build_observed(3, edges, 2, waits);
    uint32_t early = gv_graph_order_early(order, 1);
    assert_false(gv_graph_order_has_assumptions(order));
    assert_int_not_equal(early, 1);
    assert_int_equal(gv_graph_order_between(order, 0, early), GV_UNORDERED);
    assert_int_equal(gv_graph_order_before(order, 0, 1), GV_ORDERED);
    assert_int_equal(gv_graph_order_before(order, early, 2), GV_ORDERED);
    gv_graph_order_free(order);
}

// Of a kernel that does not wait neither its accesses nor its end are ordered, and so nothing behind it is.
static void test_kernel_without_wait_passes_no_order_on(void **state)
{
    gv_edge edges[] = {edge(0, 1, PROGRAMMATIC), edge(1, 2, ORDINARY)};
    gv_grid_dependency does_not[3] = {[1] = {.wait = GV_GRID_WAIT_NONE}};
    gv_graph_order *order = build_observed(3, edges, 2, does_not);
    assert_int_equal(gv_graph_order_between(order, 0, 1), GV_UNORDERED);
    assert_int_equal(gv_graph_order_between(order, 0, 2), GV_UNORDERED);
    assert_int_equal(gv_graph_order_before(order, 1, 2), GV_ORDERED);
    assert_true(gv_graph_order_leads(order, 0, 2));
    gv_graph_order_free(order);
}

// 0 -> 1 -> 2, and 2 accesses memory before it waits: is that behind 0? Only if 1 triggers behind its own wait.
static void test_trigger_before_the_wait_lets_two_kernels_overlap(void **state)
{
    gv_edge edges[] = {edge(0, 1, PROGRAMMATIC), edge(1, 2, PROGRAMMATIC)};
    static const enum gv_ordering expected[] = {
        [GV_GRID_TRIGGER_UNKNOWN] = GV_ORDERED_PROGRAMMATIC,
        [GV_GRID_TRIGGER_EARLY] = GV_UNORDERED,
        [GV_GRID_TRIGGER_LATE] = GV_ORDERED,
    };
    for (uint8_t trigger = GV_GRID_TRIGGER_UNKNOWN; trigger <= GV_GRID_TRIGGER_LATE; trigger++) {
        gv_grid_dependency both[3] = {
            [1] = {.wait = GV_GRID_WAIT_DONE, .trigger = trigger}, [2] = {.wait = GV_GRID_WAIT_DONE, .early = true}};
        gv_graph_order *order = build_observed(3, edges, 2, both);
        assert_int_equal(gv_graph_order_before(order, 0, gv_graph_order_early(order, 2)), expected[trigger]);
        assert_int_equal(gv_graph_order_between(order, 1, gv_graph_order_early(order, 2)), GV_UNORDERED);
        assert_int_equal(gv_graph_order_before(order, 0, 2), GV_ORDERED);
        gv_graph_order_free(order);
    }
}

// The node in front has begun, and so what is in front of it by an ordinary edge is complete.
static void test_all_edges_put_the_beginning_behind_what_was_complete_before(void **state)
{
    const gv_edge kinds[] = {PROGRAMMATIC, BEGUN, BEGUN_WAITED_FOR};
    for (size_t k = 0; k < 3; k++) {
        gv_edge edges[] = {edge(0, 1, ORDINARY), edge(1, 2, kinds[k])};
        gv_grid_dependency does_not[3] = {[2] = {.wait = GV_GRID_WAIT_NONE}};
        gv_graph_order *order = build_observed(3, edges, 2, does_not);
        assert_int_equal(gv_graph_order_before(order, 0, 2), GV_ORDERED);
        assert_int_equal(gv_graph_order_between(order, 1, 2), GV_UNORDERED);
        gv_graph_order_free(order);
    }
}

// Both leave the launch-order port; only that of a programmatic type is one the kernel can wait for.
static void test_launch_order_edge_is_waited_for_by_its_type(void **state)
{
    gv_edge begun[] = {edge(0, 1, BEGUN)}, waited_for[] = {edge(0, 1, BEGUN_WAITED_FOR)};
    gv_grid_dependency waits[2] = {[1] = {.wait = GV_GRID_WAIT_DONE}};
    gv_graph_order *not_at_all = build_observed(2, begun, 1, waits),
                   *at_its_wait = build_observed(2, waited_for, 1, waits);
    assert_int_equal(gv_graph_order_between(not_at_all, 0, 1), GV_UNORDERED);
    assert_int_equal(gv_graph_order_before(at_its_wait, 0, 1), GV_ORDERED);
    gv_graph_order_free(not_at_all);
    gv_graph_order_free(at_its_wait);
    not_at_all = build(2, begun, 1);
    at_its_wait = build(2, waited_for, 1);
    assert_int_equal(gv_graph_order_between(not_at_all, 0, 1), GV_UNORDERED);
    assert_false(gv_graph_order_has_assumptions(not_at_all));
    assert_int_equal(gv_graph_order_before(at_its_wait, 0, 1), GV_ORDERED_PROGRAMMATIC);
    gv_graph_order_free(not_at_all);
    gv_graph_order_free(at_its_wait);
}

// A chain of kernels that trigger behind their waits and access memory before them: three points a node, few chains.
static void test_long_programmatic_chains_need_few_chains(void **state)
{
    enum { LENGTH = 2000 };
    gv_edge *edges = calloc(LENGTH, sizeof *edges);
    gv_grid_dependency *waits = calloc(LENGTH + 1, sizeof *waits);
    for (uint32_t i = 0; i <= LENGTH; i++) {
        waits[i] = (gv_grid_dependency){GV_GRID_WAIT_DONE, GV_GRID_TRIGGER_LATE, true};
        if (i < LENGTH)
            edges[i] = edge(i, i + 1, PROGRAMMATIC);
    }
    gv_graph_order *order = build_observed(LENGTH + 1, edges, LENGTH, waits);
    assert_true(gv_graph_order_chain_count(order) <= 4);
    assert_int_equal(gv_graph_order_before(order, 7, gv_graph_order_early(order, 9)), GV_ORDERED);
    assert_int_equal(gv_graph_order_between(order, 7, gv_graph_order_early(order, 8)), GV_UNORDERED);
    gv_graph_order_free(order);
    free(edges);
    free(waits);
}

// Each step forks a side branch and joins it: two nodes wide, so two chains, however many steps.
static void test_repeated_forks_and_joins_need_two_chains(void **state)
{
    enum { STEPS = 500 };
    gv_edge *edges = calloc(4 * STEPS, sizeof *edges);
    size_t count = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t fork = 3 * step, main = fork + 1, side = fork + 2, join = fork + 3;
        edges[count++] = edge(fork, main, ORDINARY);
        edges[count++] = edge(fork, side, ORDINARY);
        edges[count++] = edge(main, join, ORDINARY);
        edges[count++] = edge(side, join, ORDINARY);
    }
    gv_graph_order *order = build(3 * STEPS + 1, edges, count);
    assert_int_equal(gv_graph_order_chain_count(order), 2);
    assert_int_equal(gv_graph_order_between(order, 1, 2), GV_UNORDERED);
    assert_int_equal(gv_graph_order_before(order, 2, 4), GV_ORDERED);
    gv_graph_order_free(order);
    free(edges);
}

static size_t heap_in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

// Ten thousand chains, with and without a node that joins them all and forks them again.
static void test_wide_graphs_stay_small(void **state)
{
    enum { WIDTH = 10000 };
    size_t before = heap_in_use();
    gv_graph_order *order = build(WIDTH, NULL, 0);
    assert_int_equal(gv_graph_order_chain_count(order), WIDTH);
    assert_int_equal(gv_graph_order_between(order, 5, WIDTH - 1), GV_UNORDERED);
    assert_true(heap_in_use() - before < 4 << 20);
    gv_graph_order_free(order);

    gv_edge *edges = calloc(2 * WIDTH, sizeof *edges);
    for (uint32_t i = 0; i < WIDTH; i++) {
        edges[i] = edge(i, WIDTH, ORDINARY);
        edges[WIDTH + i] = edge(WIDTH, WIDTH + 1 + i, ORDINARY);
    }
    before = heap_in_use();
    order = build(2 * WIDTH + 1, edges, 2 * (size_t)WIDTH);
    assert_true(heap_in_use() - before < 64 << 20);
    assert_int_equal(gv_graph_order_chain_count(order), WIDTH);
    assert_int_equal(gv_graph_order_before(order, 7, 2 * WIDTH), GV_ORDERED);
    assert_int_equal(gv_graph_order_between(order, WIDTH + 3, 2 * WIDTH), GV_UNORDERED);
    gv_graph_order_free(order);
    free(edges);
}

static void test_damage_is_refused(void **state)
{
    gv_graph_order *order;
    gv_error error = {0};
    gv_edge cycle[] = {edge(0, 1, ORDINARY), edge(1, 2, PROGRAMMATIC), edge(2, 0, ORDINARY)};
    assert_int_equal(gv_graph_order_build(3, cycle, 3, NULL, &order, &error), GV_ERR_FORMAT);
    assert_non_null(strstr(error.text, "cycle"));
    gv_edge loop[] = {edge(1, 1, ORDINARY)};
    assert_int_equal(gv_graph_order_build(2, loop, 1, NULL, &order, &error), GV_ERR_FORMAT);
    gv_edge outside[] = {edge(0, 2, ORDINARY)};
    assert_int_equal(gv_graph_order_build(2, outside, 1, NULL, &order, &error), GV_ERR_FORMAT);
    assert_null(order);
}

static void test_empty_graph(void **state)
{
    gv_graph_order *order = build(0, NULL, 0);
    assert_int_equal(gv_graph_order_chain_count(order), 0);
    gv_graph_order_free(order);
}

static void test_memory_failures_are_reported(void **state)
{
    gv_edge edges[] = {edge(0, 1, ORDINARY),     edge(0, 2, ORDINARY), edge(1, 3, ORDINARY), edge(2, 3, ORDINARY),
                       edge(3, 4, PROGRAMMATIC), edge(0, 5, ORDINARY), edge(5, 4, ORDINARY)};
    gv_grid_dependency waits[6] = {[4] = {.wait = GV_GRID_WAIT_DONE, .early = true}};
    bool succeeded = false;
    for (long allowed = 0; !succeeded; allowed++) {
        gv_graph_order *order;
        gv_error error = {0};
        gv_memory_fail_after(allowed);
        gv_status status = gv_graph_order_build(6, edges, 7, waits, &order, &error);
        gv_memory_fail_after(-1);
        succeeded = status == GV_OK;
        if (!succeeded)
            assert_int_equal(status, GV_ERR_MEMORY);
        gv_graph_order_free(order);
        assert_true(allowed < 200);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_graphs_match_the_transitive_closure),
        cmocka_unit_test(test_ordinary_edge_orders_and_its_absence_does_not),
        cmocka_unit_test(test_unobserved_kernel_weakens_every_path_through_its_wait),
        cmocka_unit_test(test_observed_wait_splits_a_node),
        cmocka_unit_test(test_kernel_without_wait_passes_no_order_on),
        cmocka_unit_test(test_trigger_before_the_wait_lets_two_kernels_overlap),
        cmocka_unit_test(test_all_edges_put_the_beginning_behind_what_was_complete_before),
        cmocka_unit_test(test_launch_order_edge_is_waited_for_by_its_type),
        cmocka_unit_test(test_long_programmatic_chains_need_few_chains),
        cmocka_unit_test(test_repeated_forks_and_joins_need_two_chains),
        cmocka_unit_test(test_wide_graphs_stay_small),
        cmocka_unit_test(test_damage_is_refused),
        cmocka_unit_test(test_empty_graph),
        cmocka_unit_test(test_memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
