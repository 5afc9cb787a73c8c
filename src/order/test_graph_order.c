// The order within a graph against a transitive closure on thousands of random graphs, and by hand where a shape
// matters: programmatic and launch-order edges, chains of forks and joins, graphs wider than they are deep.
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

static const gv_edge ORDINARY = {0}, PROGRAMMATIC = {.from_port = 1, .type = 1}, LAUNCH = {.from_port = 2, .type = 1};

static gv_edge edge(uint32_t from, uint32_t to, gv_edge kind)
{
    return (gv_edge){.from = from, .to = to, .from_port = kind.from_port, .type = kind.type};
}

static gv_graph_order *build(size_t nodes, const gv_edge *edges, size_t count)
{
    gv_graph_order *order;
    gv_error error = {0};
    if (gv_graph_order_build(nodes, edges, count, &order, &error) != GV_OK)
        fail_msg("%s", error.text);
    return order;
}

static void close_transitively(bool reach[MOST_NODES][MOST_NODES], size_t nodes)
{
    for (size_t k = 0; k < nodes; k++)
        for (size_t i = 0; i < nodes; i++)
            for (size_t j = 0; j < nodes && reach[i][k]; j++)
                reach[i][j] |= reach[k][j];
}

static void check_against_closure(size_t nodes, const gv_edge *edges, size_t count)
{
    static bool strict[MOST_NODES][MOST_NODES], loose[MOST_NODES][MOST_NODES];
    memset(strict, 0, sizeof strict);
    memset(loose, 0, sizeof loose);
    for (size_t i = 0; i < count; i++) {
        strict[edges[i].from][edges[i].to] |= edges[i].from_port == 0;
        loose[edges[i].from][edges[i].to] |= edges[i].from_port != 2;
    }
    close_transitively(strict, nodes);
    close_transitively(loose, nodes);
    gv_graph_order *order = build(nodes, edges, count);
    for (uint32_t a = 0; a < nodes; a++) {
        for (uint32_t b = 0; b < nodes; b++) {
            enum gv_ordering expected = strict[a][b]  ? GV_ORDERED
                                        : loose[a][b] ? GV_ORDERED_PROGRAMMATIC
                                                      : GV_UNORDERED;
            assert_int_equal(gv_graph_order_before(order, a, b), expected);
            enum gv_ordering between = strict[a][b] || strict[b][a] ? GV_ORDERED
                                       : loose[a][b] || loose[b][a] ? GV_ORDERED_PROGRAMMATIC
                                                                    : GV_UNORDERED;
            assert_int_equal(gv_graph_order_between(order, a, b), between);
            if (a != b && gv_graph_order_chain(order, a) == gv_graph_order_chain(order, b)) {
                uint32_t place = gv_graph_order_position(order, a), other = gv_graph_order_position(order, b);
                assert_int_not_equal(place, other);
                assert_true(place < other ? strict[a][b] : strict[b][a]);
            }
            if (loose[a][b])
                assert_true(gv_graph_order_rank(order, a) < gv_graph_order_rank(order, b));
        }
    }
    // reach() counts the nodes of a chain that come before, in both relations.
    for (int which = GV_BY_ORDINARY_EDGES; which <= GV_BY_ALL_EDGES; which++) {
        bool(*reach)[MOST_NODES] = which == GV_BY_ORDINARY_EDGES ? strict : loose;
        for (uint32_t node = 0; node < nodes; node++) {
            for (uint32_t chain = 0; chain < nodes; chain++) {
                uint32_t before = 0;
                for (uint32_t a = 0; a < nodes; a++)
                    before += gv_graph_order_chain_by(order, which, a) == chain && reach[a][node];
                assert_int_equal(gv_graph_order_reach(order, which, node, chain), before);
            }
        }
    }
    for (uint32_t r = 0; r < nodes; r++)
        assert_int_equal(gv_graph_order_rank(order, gv_graph_order_topological(order)[r]), r);
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
            gv_edge kind = draw(6) >= 2 * others ? ORDINARY : draw(4) ? PROGRAMMATIC : LAUNCH;
            edges[count++] = edge(place[from], place[to], kind);
        }
        check_against_closure(nodes, edges, count);
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

static void test_programmatic_edge_weakens_every_path_through_it(void **state)
{
    gv_edge edges[] = {edge(0, 1, PROGRAMMATIC), edge(1, 2, ORDINARY), edge(0, 3, ORDINARY), edge(3, 2, ORDINARY)};
    gv_graph_order *without = build(4, edges, 2), *with = build(4, edges, 4);
    assert_true(gv_graph_order_has_programmatic(without));
    assert_int_equal(gv_graph_order_before(without, 0, 1), GV_ORDERED_PROGRAMMATIC);
    assert_int_equal(gv_graph_order_before(without, 0, 2), GV_ORDERED_PROGRAMMATIC);
    assert_int_equal(gv_graph_order_before(without, 1, 2), GV_ORDERED);
    // A second path of ordinary edges makes the order certain.
    assert_int_equal(gv_graph_order_before(with, 0, 2), GV_ORDERED);
    assert_int_equal(gv_graph_order_before(with, 0, 1), GV_ORDERED_PROGRAMMATIC);
    gv_graph_order_free(without);
    gv_graph_order_free(with);
}

static void test_launch_order_edge_orders_nothing(void **state)
{
    gv_edge edges[] = {edge(0, 1, LAUNCH)};
    gv_graph_order *order = build(2, edges, 1);
    assert_int_equal(gv_graph_order_between(order, 0, 1), GV_UNORDERED);
    assert_false(gv_graph_order_has_programmatic(order));
    gv_graph_order_free(order);
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
    assert_int_equal(gv_graph_order_build(3, cycle, 3, &order, &error), GV_ERR_FORMAT);
    assert_non_null(strstr(error.text, "cycle"));
    gv_edge loop[] = {edge(1, 1, ORDINARY)};
    assert_int_equal(gv_graph_order_build(2, loop, 1, &order, &error), GV_ERR_FORMAT);
    gv_edge outside[] = {edge(0, 2, ORDINARY)};
    assert_int_equal(gv_graph_order_build(2, outside, 1, &order, &error), GV_ERR_FORMAT);
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
    bool succeeded = false;
    for (long allowed = 0; !succeeded; allowed++) {
        gv_graph_order *order;
        gv_error error = {0};
        gv_memory_fail_after(allowed);
        gv_status status = gv_graph_order_build(6, edges, 7, &order, &error);
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
        cmocka_unit_test(test_programmatic_edge_weakens_every_path_through_it),
        cmocka_unit_test(test_launch_order_edge_orders_nothing),
        cmocka_unit_test(test_repeated_forks_and_joins_need_two_chains),
        cmocka_unit_test(test_wide_graphs_stay_small),
        cmocka_unit_test(test_damage_is_refused),
        cmocka_unit_test(test_empty_graph),
        cmocka_unit_test(test_memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
