// The race detector on graphs with programmatic edges whose kernels were observed: against an all-pairs comparison of
// what each node does before and after its grid-dependency wait on thousands of random inputs, and by hand.
#include "base/memory.h"
#include "detect/detect.h"
#include "order/graph_order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_NODES = 12, MOST_EDGES = 40, SPACE = 60, READ = 1, WRITE = 2, ATOMIC = 4 };

static uint64_t random_state;

static unsigned draw(unsigned below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((random_state >> 33) % below);
}

static const gv_edge ORDINARY = {0}, PROGRAMMATIC = {.from_port = 1, .type = 1};
static const gv_grid_dependency WAITS_FIRST = {GV_GRID_WAIT_DONE, GV_GRID_TRIGGER_LATE, false},
                                PREFETCHES = {GV_GRID_WAIT_DONE, GV_GRID_TRIGGER_LATE, true},
                                TRIGGERS_EARLY = {GV_GRID_WAIT_DONE, GV_GRID_TRIGGER_EARLY, false},
                                DOES_NOT_WAIT = {GV_GRID_WAIT_NONE, GV_GRID_TRIGGER_UNKNOWN, false};

typedef struct scene {
    uint32_t nodes;
    gv_edge edges[MOST_EDGES];
    size_t edge_count;
    gv_grid_dependency dependencies[MOST_NODES];
    uint8_t all[MOST_NODES][SPACE], early[MOST_NODES][SPACE]; // masks, byte by byte
    gv_range_set sets[2][3][MOST_NODES];
    uint64_t made[MOST_NODES];
    gv_race_group *groups;
    size_t group_count;
    gv_race_undecided undecided;
} scene;

static void connect(scene *s, uint32_t from, uint32_t to, gv_edge kind)
{
    s->edges[s->edge_count++] = (gv_edge){.from = from, .to = to, .from_port = kind.from_port, .type = kind.type};
}

// `early`: before the wait, else after it.
static void access(scene *s, uint32_t node, uint8_t mask, bool early, unsigned start, unsigned end)
{
    for (unsigned byte = start; byte < end; byte++) {
        s->all[node][byte] |= mask;
        if (early)
            s->early[node][byte] |= mask;
    }
}

static void find(scene *s)
{
    for (uint32_t n = 0; n < s->nodes; n++)
        for (unsigned byte = 0; byte < SPACE; byte++)
            for (int kind = 0; kind < 3; kind++) {
                if (s->all[n][byte] & 1 << kind)
                    assert_int_equal(gv_range_set_add(&s->sets[0][kind][n], byte, byte + 1, NULL), GV_OK);
                if (s->early[n][byte] & 1 << kind)
                    assert_int_equal(gv_range_set_add(&s->sets[1][kind][n], byte, byte + 1, NULL), GV_OK);
            }
    gv_race_input input = {.node_count = s->nodes,
                           .edges = s->edges,
                           .edge_count = s->edge_count,
                           .reads = s->sets[0][0],
                           .writes = s->sets[0][1],
                           .atomics = s->sets[0][2],
                           .early_reads = s->sets[1][0],
                           .early_writes = s->sets[1][1],
                           .early_atomics = s->sets[1][2],
                           .dependencies = s->dependencies,
                           .made = s->made};
    gv_error error = {0};
    if (gv_race_find(&input, &s->groups, &s->group_count, &s->undecided, &error) != GV_OK)
        fail_msg("%s", error.text);
}

static void free_scene(scene *s)
{
    for (int part = 0; part < 2; part++)
        for (int kind = 0; kind < 3; kind++)
            for (uint32_t n = 0; n < s->nodes; n++)
                gv_range_set_free(&s->sets[part][kind][n]);
    gv_race_groups_free(s->groups, s->group_count);
    memset(s, 0, sizeof *s);
}

static gv_graph_order *order_of(const scene *s)
{
    gv_graph_order *order;
    assert_int_equal(gv_graph_order_build(s->nodes, s->edges, s->edge_count, s->dependencies, &order, NULL), GV_OK);
    return order;
}

// ---- All pairs, byte by byte ------------------------------------------------------------------------------------

static bool conflict(uint8_t a, uint8_t b)
{
    return (a & WRITE && b) || (b & WRITE && a) || (a & ATOMIC && b & READ) || (a & READ && b & ATOMIC);
}

typedef struct expected_pair {
    bool race, undecided;
    uint64_t bytes;
    bool at[SPACE];
    bool first_main, second_main; // something that is not before the wait takes part
} expected_pair;

// A node's parts: what it does before its wait, if it is known to wait, and all it does.
static uint8_t mask_of(const scene *s, const gv_graph_order *order, uint32_t node, int part, unsigned byte)
{
    if (part == 0)
        return gv_graph_order_early(order, node) != node ? s->early[node][byte] : 0;
    return s->all[node][byte];
}

static uint32_t point_of(const gv_graph_order *order, uint32_t node, int part)
{
    return part == 0 ? gv_graph_order_early(order, node) : node;
}

static expected_pair expect(const scene *s, const gv_graph_order *order, uint32_t first, uint32_t second)
{
    expected_pair e = {0};
    for (unsigned byte = 0; byte < SPACE; byte++) {
        for (int p = 0; p < 4; p++) {
            uint8_t a = mask_of(s, order, first, p / 2, byte), b = mask_of(s, order, second, p % 2, byte);
            if (!conflict(a, b))
                continue;
            enum gv_ordering between =
                gv_graph_order_between(order, point_of(order, first, p / 2), point_of(order, second, p % 2));
            e.undecided |= between == GV_ORDERED_PROGRAMMATIC;
            if (between != GV_UNORDERED)
                continue;
            e.bytes += !e.at[byte];
            e.race = e.at[byte] = true;
            e.first_main |= p / 2;
            e.second_main |= p % 2;
        }
    }
    return e;
}

static enum gv_side_wait expected_wait(const scene *s, uint32_t node, bool main)
{
    if (s->dependencies[node].wait == GV_GRID_WAIT_NONE)
        return GV_SIDE_NO_WAIT;
    return main ? GV_SIDE_PLAIN : GV_SIDE_BEFORE_WAIT;
}

static const gv_race_pair *find_pair(const scene *s, uint32_t first, uint32_t second)
{
    for (size_t g = 0; g < s->group_count; g++)
        for (size_t p = 0; p < s->groups[g].pair_count; p++)
            if (s->groups[g].pairs[p].first.node == first && s->groups[g].pairs[p].second.node == second)
                return &s->groups[g].pairs[p];
    return NULL;
}

// With a group's edge in the graph, nothing of its pairs races any more, and the graph has no cycle.
static void assert_edges_help(scene *s)
{
    for (size_t g = 0; g < s->group_count; g++) {
        const gv_race_group *group = &s->groups[g];
        connect(s, group->edge_from, group->edge_to, ORDINARY);
        gv_graph_order *order = order_of(s);
        for (size_t p = 0; p < group->pair_count; p++)
            assert_false(expect(s, order, group->pairs[p].first.node, group->pairs[p].second.node).race);
        gv_graph_order_free(order);
        s->edge_count--;
    }
}

static void test_random_graphs_match_all_pairs(void **state)
{
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        static scene s;
        random_state = seed;
        s.nodes = 2 + draw(MOST_NODES - 1);
        for (size_t e = draw(3 * s.nodes); e > 0; e--) {
            uint32_t from = draw(s.nodes - 1), to = from + 1 + draw(s.nodes - 1 - from);
            connect(&s, from, to, draw(3) ? PROGRAMMATIC : ORDINARY);
        }
        unsigned observed = 1 + draw(4);
        bool reversed = draw(2); // made against the edges
        for (uint32_t n = 0; n < s.nodes; n++) {
            s.made[n] = reversed ? s.nodes - n : n;
            s.dependencies[n] = (gv_grid_dependency){.wait = draw(4) < observed ? (uint8_t)(1 + draw(2)) : 0,
                                                     .trigger = (uint8_t)draw(3)};
            for (unsigned i = draw(4); i > 0; i--) {
                unsigned start = draw(SPACE - 1), end = start + 1 + draw(SPACE - 1 - start);
                bool early = s.dependencies[n].wait == GV_GRID_WAIT_DONE && draw(2);
                access(&s, n, (uint8_t)(1 << draw(3)), early, start, end);
                s.dependencies[n].early |= early;
            }
        }
        find(&s);
        gv_graph_order *order = order_of(&s);
        size_t races = 0, undecided = 0, found = 0;
        for (uint32_t a = 0; a < s.nodes; a++) {
            for (uint32_t b = a + 1; b < s.nodes; b++) {
                bool swap = reversed && !gv_graph_order_leads(order, a, b);
                uint32_t first = swap ? b : a, second = swap ? a : b;
                expected_pair e = expect(&s, order, first, second);
                const gv_race_pair *pair = find_pair(&s, first, second);
                assert_int_equal(pair != NULL, e.race);
                races += e.race;
                undecided += e.undecided;
                if (!pair)
                    continue;
                assert_int_equal(pair->bytes, e.bytes);
                assert_int_equal(pair->raw_bytes + pair->war_bytes + pair->waw_bytes, e.bytes);
                for (unsigned byte = 0; byte < SPACE; byte++)
                    assert_int_equal(gv_range_set_contains(&pair->ranges, byte), e.at[byte]);
                assert_int_equal(pair->first.wait, expected_wait(&s, first, e.first_main));
                assert_int_equal(pair->second.wait, expected_wait(&s, second, e.second_main));
            }
        }
        for (size_t g = 0; g < s.group_count; g++)
            found += s.groups[g].pair_count;
        assert_int_equal(found, races);
        assert_int_equal(s.undecided.pairs, undecided);
        gv_graph_order_free(order);
        assert_edges_help(&s);
        free_scene(&s);
    }
}

// ---- By hand ----------------------------------------------------------------------------------------------------

static const gv_race_pair *only_pair(const scene *s)
{
    assert_int_equal(s->group_count, 1);
    assert_int_equal(s->groups[0].pair_count, 1);
    return &s->groups[0].pairs[0];
}

// 0 writes, 1 reads behind a programmatic edge.
static scene producer_and_consumer(gv_grid_dependency consumer)
{
    scene s = {.nodes = 2, .dependencies = {[1] = consumer}, .made = {0, 1}};
    connect(&s, 0, 1, PROGRAMMATIC);
    access(&s, 0, WRITE, false, 0, 10);
    return s;
}

static void test_a_consumer_that_waits_first_does_not_race(void **state)
{
    scene waits = producer_and_consumer(WAITS_FIRST), does_not = producer_and_consumer(DOES_NOT_WAIT);
    access(&waits, 1, READ, false, 0, 10);
    access(&does_not, 1, READ, false, 0, 10);
    find(&waits);
    find(&does_not);
    assert_int_equal(waits.group_count, 0);
    assert_int_equal(waits.undecided.pairs, 0);
    const gv_race_pair *pair = only_pair(&does_not);
    assert_int_equal(pair->id, GV_FINDING_RACE_RAW);
    assert_int_equal(pair->second.wait, GV_SIDE_NO_WAIT);
    assert_true(does_not.groups[0].path);
    free_scene(&waits);
    free_scene(&does_not);
}

static void test_only_what_is_before_the_wait_races(void **state)
{
    scene s = producer_and_consumer(PREFETCHES), weights = producer_and_consumer(PREFETCHES);
    access(&s, 1, READ, true, 2, 4);
    access(&s, 1, READ, false, 0, 10);
    access(&weights, 1, READ, true, 20, 40);
    access(&weights, 1, READ, false, 0, 10);
    find(&s);
    find(&weights);
    const gv_race_pair *pair = only_pair(&s);
    assert_int_equal(pair->bytes, 2);
    assert_int_equal(pair->second.wait, GV_SIDE_BEFORE_WAIT);
    assert_int_equal(pair->first.wait, GV_SIDE_PLAIN);
    assert_int_equal(weights.group_count, 0);
    free_scene(&s);
    free_scene(&weights);
}

// 0 -> 1 -> 2: 2 reads before its wait what 0 has written.
static void test_an_early_trigger_lets_the_next_but_one_race(void **state)
{
    const gv_grid_dependency middles[] = {WAITS_FIRST, TRIGGERS_EARLY, DOES_NOT_WAIT};
    for (size_t i = 0; i < 3; i++) {
        scene s = {.nodes = 3, .dependencies = {[1] = middles[i], [2] = PREFETCHES}, .made = {0, 1, 2}};
        connect(&s, 0, 1, PROGRAMMATIC);
        connect(&s, 1, 2, PROGRAMMATIC);
        access(&s, 0, WRITE, false, 0, 10);
        access(&s, 2, READ, true, 0, 10);
        find(&s);
        if (i == 0) {
            assert_int_equal(s.group_count, 0);
        } else {
            assert_int_equal(only_pair(&s)->first.node, 0);
            assert_int_equal(only_pair(&s)->second.node, 2);
        }
        assert_int_equal(s.undecided.pairs, 0);
        free_scene(&s);
    }
}

// 1 does not wait and touches nothing of 0; 2, behind an ordinary edge from 1, reads what 0 writes.
static void test_who_follows_a_kernel_that_does_not_wait_races(void **state)
{
    scene s = {.nodes = 3, .dependencies = {[1] = DOES_NOT_WAIT}, .made = {0, 1, 2}};
    connect(&s, 0, 1, PROGRAMMATIC);
    connect(&s, 1, 2, ORDINARY);
    access(&s, 0, WRITE, false, 0, 10);
    access(&s, 1, WRITE, false, 20, 30);
    access(&s, 2, READ, false, 0, 30);
    find(&s);
    const gv_race_pair *pair = only_pair(&s);
    assert_int_equal(pair->first.node, 0);
    assert_int_equal(pair->second.node, 2);
    assert_int_equal(pair->second.wait, GV_SIDE_PLAIN);
    assert_true(s.groups[0].path);
    free_scene(&s);
}

// A byte that races both before and after the wait is one byte.
static void test_bytes_count_once(void **state)
{
    scene s = {.nodes = 3, .dependencies = {[1] = PREFETCHES}, .made = {0, 1, 2}};
    connect(&s, 0, 1, PROGRAMMATIC);
    access(&s, 2, WRITE, false, 0, 10); // on a branch of its own
    access(&s, 1, READ, true, 0, 10);
    access(&s, 1, WRITE, false, 5, 10);
    find(&s);
    const gv_race_pair *pair = only_pair(&s);
    assert_int_equal(pair->bytes, 10);
    assert_int_equal(pair->war_bytes, 5);
    assert_int_equal(pair->waw_bytes, 5);
    assert_int_equal(pair->first.wait, GV_SIDE_PLAIN);
    assert_true(pair->first.reads && pair->first.writes);
    free_scene(&s);
}

// A chain whose kernels wait first, but for one: what comes behind that one is unordered with the kernel in front of
// it, which has let it begin behind its own wait, and so behind all others. One edge mends what the wait would.
static void test_one_missing_wait_is_one_finding(void **state)
{
    scene s = {.nodes = 6, .made = {0, 1, 2, 3, 4, 5}};
    for (uint32_t n = 0; n < 6; n++) {
        s.dependencies[n] = n == 3 ? DOES_NOT_WAIT : WAITS_FIRST;
        if (n)
            connect(&s, n - 1, n, PROGRAMMATIC);
        access(&s, n, n < 3 ? WRITE : READ, false, n < 3 ? 10 * n : 0, n < 3 ? 10 * n + 10 : 30);
    }
    find(&s);
    assert_int_equal(s.group_count, 1);
    assert_int_equal(s.groups[0].pair_count, 3);
    assert_int_equal(s.groups[0].edge_from, 2);
    assert_int_equal(s.groups[0].edge_to, 3);
    assert_edges_help(&s);
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_graphs_match_all_pairs),
        cmocka_unit_test(test_a_consumer_that_waits_first_does_not_race),
        cmocka_unit_test(test_only_what_is_before_the_wait_races),
        cmocka_unit_test(test_an_early_trigger_lets_the_next_but_one_race),
        cmocka_unit_test(test_who_follows_a_kernel_that_does_not_wait_races),
        cmocka_unit_test(test_bytes_count_once),
        cmocka_unit_test(test_one_missing_wait_is_one_finding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
