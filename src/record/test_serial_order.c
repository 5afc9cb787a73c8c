// Serial orders: each is a topological order, the first two turn each other round, drawn ones repeat.
#include "record/serial_order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 64 };

static uint64_t random_state = 1;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % below);
}

// A graph whose edges lead from lower to higher numbers, so that the numbers are an order.
typedef struct graph {
    gv_snapshot snapshot;
    uint64_t edges[4 * MOST * MOST];
    uint32_t order[MOST];
} graph;

static void begin(graph *g, size_t nodes)
{
    memset(g, 0, sizeof *g);
    g->snapshot.node_count = nodes;
    g->snapshot.edges = g->edges;
    g->snapshot.order = g->order;
    for (size_t i = 0; i < nodes; i++)
        g->order[i] = (uint32_t)i;
}

static void edge(graph *g, uint32_t from, uint32_t to)
{
    uint64_t *e = g->edges + 4 * g->snapshot.edge_count++;
    e[0] = from;
    e[1] = to;
}

static void place_all(const graph *g, uint64_t which, uint32_t places[MOST])
{
    uint32_t order[MOST];
    bool seen[MOST] = {false};
    assert_true(gv_serial_order(&g->snapshot, which, order));
    for (uint32_t i = 0; i < g->snapshot.node_count; i++) {
        assert_true(order[i] < g->snapshot.node_count && !seen[order[i]]);
        seen[order[i]] = true;
        places[order[i]] = i;
    }
    for (size_t i = 0; i < g->snapshot.edge_count; i++)
        assert_true(places[g->edges[4 * i]] < places[g->edges[4 * i + 1]]);
}

static void test_every_order_is_topological(void **state)
{
    static graph g;
    for (int round = 0; round < 200; round++) {
        size_t nodes = 1 + draw(MOST);
        uint32_t places[MOST], again[MOST];
        begin(&g, nodes);
        for (unsigned edges = draw(3 * MOST); edges && nodes > 1; edges--) {
            uint32_t from = draw((uint32_t)nodes - 1);
            edge(&g, from, from + 1 + draw((uint32_t)nodes - from - 1));
        }
        for (uint64_t which = 0; which < 6; which++) {
            place_all(&g, which, places);
            place_all(&g, which, again);
            assert_memory_equal(places, again, nodes * sizeof *places);
        }
    }
}

// Two branches between a fork and a join: each pair across them is turned round.
static void test_the_second_order_turns_branches_round(void **state)
{
    static graph g;
    uint32_t first[MOST], second[MOST];
    begin(&g, 8);
    edge(&g, 0, 1), edge(&g, 1, 2), edge(&g, 2, 3), edge(&g, 3, 7);
    edge(&g, 0, 4), edge(&g, 4, 5), edge(&g, 5, 6), edge(&g, 6, 7);
    place_all(&g, 0, first);
    place_all(&g, 1, second);
    for (uint32_t left = 1; left <= 3; left++)
        for (uint32_t right = 4; right <= 6; right++) {
            assert_true(first[left] < first[right]);
            assert_true(second[left] > second[right]);
        }
}

// A fork into `begin` to `end`, of nested branches: nodes lie between their own fork and join. Answers the join.
static uint32_t add_nested(graph *g, uint32_t fork, uint32_t *next, unsigned depth)
{
    uint32_t ends[3], branches = 1 + draw(3);
    for (uint32_t b = 0; b < branches; b++) {
        uint32_t at = (*next)++;
        edge(g, fork, at);
        ends[b] = depth && *next < MOST / 2 ? add_nested(g, at, next, depth - 1) : at;
    }
    uint32_t join = (*next)++;
    for (uint32_t b = 0; b < branches; b++)
        edge(g, ends[b], join);
    return join;
}

// In series-parallel graphs two orders are enough to have every pair both ways.
static void test_two_orders_turn_every_pair_of_nested_branches_round(void **state)
{
    static graph g;
    static bool leads[MOST][MOST];
    for (int round = 0; round < 100; round++) {
        uint32_t nodes = 1, first[MOST], second[MOST];
        begin(&g, MOST);
        add_nested(&g, 0, &nodes, 2);
        assert_true(nodes <= MOST);
        g.snapshot.node_count = nodes;
        memset(leads, 0, sizeof leads);
        for (size_t i = 0; i < g.snapshot.edge_count; i++)
            leads[g.edges[4 * i]][g.edges[4 * i + 1]] = true;
        for (uint32_t k = 0; k < nodes; k++)
            for (uint32_t i = 0; i < nodes; i++)
                for (uint32_t j = 0; j < nodes && leads[i][k]; j++)
                    leads[i][j] |= leads[k][j];
        place_all(&g, 0, first);
        place_all(&g, 1, second);
        for (uint32_t i = 0; i < nodes; i++)
            for (uint32_t j = 0; j < i; j++)
                if (!leads[i][j] && !leads[j][i])
                    assert_true((first[i] < first[j]) != (second[i] < second[j]));
    }
}

static void test_drawn_orders_differ(void **state)
{
    static graph g;
    uint32_t before[MOST], now[MOST];
    size_t different = 0;
    begin(&g, 16);
    place_all(&g, 2, before);
    for (uint64_t which = 3; which < 20; which++) {
        place_all(&g, which, now);
        different += memcmp(before, now, 16 * sizeof *now) != 0;
        memcpy(before, now, sizeof before);
    }
    assert_true(different > 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_order_is_topological),
        cmocka_unit_test(test_the_second_order_turns_branches_round),
        cmocka_unit_test(test_two_orders_turn_every_pair_of_nested_branches_round),
        cmocka_unit_test(test_drawn_orders_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
