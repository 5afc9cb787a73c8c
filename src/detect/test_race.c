// The race detector on one graph: against an all-pairs comparison on thousands of random inputs, and by hand for
// hazards, confidence and grouping.
#include "base/memory.h"
#include "detect/detect.h"
#include "order/graph_order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state;

static unsigned draw(unsigned below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((random_state >> 33) % below);
}

static const gv_edge ORDINARY = {0}, PROGRAMMATIC = {.from_port = 1, .type = 1};

static gv_edge edge(uint32_t from, uint32_t to, gv_edge kind)
{
    return (gv_edge){.from = from, .to = to, .from_port = kind.from_port, .type = kind.type};
}

// ---- A graph under test -----------------------------------------------------------------------------------------

typedef struct scene {
    size_t nodes;
    gv_edge *edges;
    size_t edge_count, edge_capacity;
    gv_range_set *reads, *writes, *atomics;
    enum gv_access_precision *precision;
    uint64_t *made;
    gv_race_group *groups;
    size_t group_count;
    gv_race_undecided undecided;
} scene;

static scene make_scene(size_t nodes)
{
    scene s = {.nodes = nodes};
    s.reads = calloc(nodes, sizeof *s.reads);
    s.writes = calloc(nodes, sizeof *s.writes);
    s.atomics = calloc(nodes, sizeof *s.atomics);
    s.precision = calloc(nodes, sizeof *s.precision);
    return s;
}

static void connect(scene *s, uint32_t from, uint32_t to, gv_edge kind)
{
    assert_true(GV_GROW(s->edges, s->edge_capacity, s->edge_count + 1));
    s->edges[s->edge_count++] = edge(from, to, kind);
}

static void access(gv_range_set *sets, uint32_t node, uint64_t start, uint64_t end)
{
    assert_int_equal(gv_range_set_add(&sets[node], start, end, NULL), GV_OK);
}

static gv_race_input input_of(const scene *s)
{
    return (gv_race_input){.node_count = s->nodes,
                           .edges = s->edges,
                           .edge_count = s->edge_count,
                           .reads = s->reads,
                           .writes = s->writes,
                           .atomics = s->atomics,
                           .precision = s->precision,
                           .made = s->made};
}

static void find(scene *s)
{
    gv_race_input input = input_of(s);
    gv_error error = {0};
    if (gv_race_find(&input, &s->groups, &s->group_count, &s->undecided, &error) != GV_OK)
        fail_msg("%s", error.text);
}

static void free_scene(scene *s)
{
    for (size_t n = 0; n < s->nodes; n++) {
        gv_range_set_free(&s->reads[n]);
        gv_range_set_free(&s->writes[n]);
        gv_range_set_free(&s->atomics[n]);
    }
    free(s->reads);
    free(s->writes);
    free(s->atomics);
    free(s->precision);
    free(s->made);
    gv_free(s->edges);
    gv_race_groups_free(s->groups, s->group_count);
}

static size_t pair_total(const scene *s)
{
    size_t pairs = 0;
    for (size_t g = 0; g < s->group_count; g++)
        pairs += s->groups[g].pair_count;
    return pairs;
}

// ---- All pairs, byte by byte ------------------------------------------------------------------------------------

enum { SPACE = 80, READ = 1, WRITE = 2, ATOMIC = 4 };

// What a pair does on the bytes that it races on with one confidence.
typedef struct expected_bytes {
    uint64_t raw, war, waw;
    bool bytes[SPACE];
    uint8_t first_mask, second_mask;
} expected_bytes;

typedef struct expected_pair {
    bool race, undecided, overlap;
    expected_bytes by[GV_POSSIBLE + 1]; // by confidence
    enum gv_confidence confidence;      // the best of them
} expected_pair;

static uint8_t mask_at(const scene *s, uint32_t node, uint64_t byte)
{
    return (uint8_t)((gv_range_set_contains(&s->reads[node], byte) ? READ : 0) |
                     (gv_range_set_contains(&s->writes[node], byte) ? WRITE : 0) |
                     (gv_range_set_contains(&s->atomics[node], byte) ? ATOMIC : 0));
}

// Looks at every combination of one access of the first and one of the second.
static bool judge_byte(expected_bytes *e, uint64_t byte, uint8_t first, uint8_t second)
{
    bool raw = false, war = false, waw = false;
    for (uint8_t a = READ; a <= ATOMIC; a <<= 1) {
        for (uint8_t b = READ; b <= ATOMIC; b <<= 1) {
            if (!(first & a) || !(second & b) || (a == ATOMIC && b == ATOMIC))
                continue;
            bool first_writes = a != READ, first_reads = a != WRITE;
            bool second_writes = b != READ, second_reads = b != WRITE;
            raw |= first_writes && second_reads;
            waw |= first_writes && second_writes;
            war |= first_reads && second_writes;
        }
    }
    if (!raw && !war && !waw)
        return false;
    e->bytes[byte] = true;
    e->first_mask |= first;
    e->second_mask |= second;
    e->raw += raw;
    e->waw += !raw && waw;
    e->war += !raw && !waw && war;
    return true;
}

// Of a node of precision extent the reads and writes are an upper bound.
static uint8_t happened(const scene *s, uint32_t node, uint8_t mask)
{
    return s->precision[node] == GV_PRECISION_EXTENT ? mask & ATOMIC : mask;
}

static uint8_t extent(const scene *s, uint32_t node, uint8_t mask)
{
    if (s->precision[node] != GV_PRECISION_EXTENT)
        return 0;
    return mask & READ ? READ : mask & WRITE;
}

static enum gv_confidence with(const scene *s, uint32_t first, uint32_t second, bool an_extent)
{
    if (s->precision[first] == GV_PRECISION_INCOMPLETE || s->precision[second] == GV_PRECISION_INCOMPLETE)
        return GV_POSSIBLE;
    return an_extent ? GV_LIKELY : GV_CERTAIN;
}

static void judge_pair(expected_pair *e, const scene *s, uint32_t first, uint32_t second, uint64_t byte)
{
    uint8_t a = mask_at(s, first, byte), b = mask_at(s, second, byte);
    uint8_t seen_a = happened(s, first, a), seen_b = happened(s, second, b);
    if (judge_byte(&e->by[with(s, first, second, false)], byte, seen_a, seen_b))
        return;
    bool both_atomic = seen_a & seen_b & ATOMIC;
    expected_bytes *likely = &e->by[with(s, first, second, true)];
    if (!both_atomic && (seen_a & (WRITE | ATOMIC)) && judge_byte(likely, byte, seen_a, extent(s, second, b)))
        return;
    if (!both_atomic && (seen_b & (WRITE | ATOMIC)) && judge_byte(likely, byte, extent(s, first, a), seen_b))
        return;
    expected_bytes ignored = {0};
    e->overlap |= judge_byte(&ignored, byte, a, b);
}

static bool any_bytes(const expected_bytes *e)
{
    return e->raw + e->war + e->waw > 0;
}

static expected_pair expect(const scene *s, const gv_graph_order *order, uint32_t first, uint32_t second)
{
    expected_pair e = {0};
    bool conflicts = false;
    for (uint64_t byte = 0; byte < SPACE; byte++)
        judge_pair(&e, s, first, second, byte);
    for (int c = GV_POSSIBLE; c >= GV_CERTAIN; c--) {
        if (any_bytes(&e.by[c])) {
            conflicts = true;
            e.confidence = (enum gv_confidence)c;
        }
    }
    enum gv_ordering between = gv_graph_order_between(order, first, second);
    e.race = conflicts && between == GV_UNORDERED;
    e.undecided = (conflicts || e.overlap) && between == GV_ORDERED_PROGRAMMATIC;
    e.overlap = e.overlap && !conflicts && between == GV_UNORDERED;
    return e;
}

static void assert_pair(const gv_race_pair *pair, const expected_pair *expected)
{
    const expected_bytes *e = &expected->by[expected->confidence];
    assert_true(expected->race);
    enum gv_access_precision weaker =
        pair->first.precision > pair->second.precision ? pair->first.precision : pair->second.precision;
    assert_int_equal(weaker, expected->confidence == GV_CERTAIN  ? GV_PRECISION_EXACT
                             : expected->confidence == GV_LIKELY ? GV_PRECISION_EXTENT
                                                                 : GV_PRECISION_INCOMPLETE);
    assert_int_equal(pair->raw_bytes, e->raw);
    assert_int_equal(pair->war_bytes, e->war);
    assert_int_equal(pair->waw_bytes, e->waw);
    assert_int_equal(pair->bytes, e->raw + e->war + e->waw);
    assert_int_equal(gv_range_set_bytes(&pair->ranges), pair->bytes);
    assert_true(gv_range_set_is_valid(&pair->ranges));
    for (uint64_t byte = 0; byte < SPACE; byte++)
        assert_int_equal(gv_range_set_contains(&pair->ranges, byte), e->bytes[byte]);
    assert_int_equal(pair->first.reads, (e->first_mask & READ) != 0);
    assert_int_equal(pair->first.writes, (e->first_mask & WRITE) != 0);
    assert_int_equal(pair->first.atomic, (e->first_mask & ATOMIC) != 0);
    assert_int_equal(pair->second.reads, (e->second_mask & READ) != 0);
    assert_int_equal(pair->second.writes, (e->second_mask & WRITE) != 0);
    assert_int_equal(pair->second.atomic, (e->second_mask & ATOMIC) != 0);
}

static bool comes_before_or_is(const gv_graph_order *order, uint32_t a, uint32_t b)
{
    return a == b || gv_graph_order_before(order, a, b) == GV_ORDERED;
}

// Every pair of every group is explained by the group's edge, which closes no cycle; no pair stands twice.
static void assert_groups_hold(const scene *s, const gv_graph_order *order)
{
    bool *seen = calloc(s->nodes * s->nodes, sizeof *seen);
    for (size_t g = 0; g < s->group_count; g++) {
        const gv_race_group *group = &s->groups[g];
        assert_true(group->pair_count > 0);
        assert_int_not_equal(group->edge_from, group->edge_to);
        assert_int_equal(gv_graph_order_before(order, group->edge_to, group->edge_from), GV_UNORDERED);
        for (size_t p = 0; p < group->pair_count; p++) {
            const gv_race_pair *pair = &group->pairs[p];
            assert_true(comes_before_or_is(order, pair->first.node, group->edge_from));
            assert_true(comes_before_or_is(order, group->edge_to, pair->second.node));
            bool *mark = &seen[pair->first.node * s->nodes + pair->second.node];
            assert_false(*mark);
            *mark = true;
            if (p > 1)
                assert_true(group->pairs[p - 1].bytes >= pair->bytes);
        }
    }
    free(seen);
}

static const gv_race_pair *find_pair(const scene *s, uint32_t first, uint32_t second)
{
    for (size_t g = 0; g < s->group_count; g++) {
        for (size_t p = 0; p < s->groups[g].pair_count; p++) {
            const gv_race_pair *pair = &s->groups[g].pairs[p];
            if (pair->first.node == first && pair->second.node == second)
                return pair;
        }
    }
    return NULL;
}

static void random_accesses(gv_range_set *sets, uint32_t node, unsigned most)
{
    for (unsigned count = draw(most + 1); count > 0; count--) {
        unsigned start = draw(SPACE), longest = draw(3) ? 6 : SPACE;
        unsigned end = start + 1 + draw(longest < SPACE - start ? longest : SPACE - start);
        access(sets, node, start, end < SPACE ? end : SPACE);
    }
}

static void test_random_graphs_match_all_pairs(void **state)
{
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        random_state = seed;
        scene s = make_scene(2 + draw(14));
        unsigned kinds = draw(4); // how many edges there are, and whether some are programmatic
        for (size_t e = draw(3 * (unsigned)s.nodes); e > 0; e--) {
            uint32_t from = draw((unsigned)s.nodes - 1), to = from + 1 + draw((unsigned)s.nodes - 1 - from);
            connect(&s, from, to, kinds == 3 && draw(2) ? PROGRAMMATIC : ORDINARY);
        }
        bool with_atomics = draw(2);
        for (uint32_t n = 0; n < s.nodes; n++) {
            random_accesses(s.reads, n, 3);
            random_accesses(s.writes, n, 1);
            if (with_atomics)
                random_accesses(s.atomics, n, 2);
            s.precision[n] = draw(3);
        }
        if (draw(2)) {
            s.made = calloc(s.nodes, sizeof *s.made);
            for (size_t n = 0; n < s.nodes; n++)
                s.made[n] = draw(30);
        }
        find(&s);
        gv_graph_order *order;
        assert_int_equal(gv_graph_order_build(s.nodes, s.edges, s.edge_count, NULL, &order, NULL), GV_OK);
        size_t races = 0, undecided = 0, overlaps = 0;
        for (uint32_t a = 0; a < s.nodes; a++) {
            for (uint32_t b = a + 1; b < s.nodes; b++) {
                bool in_order = !s.made || s.made[a] <= s.made[b];
                uint32_t first = in_order ? a : b, second = in_order ? b : a;
                expected_pair e = expect(&s, order, first, second);
                const gv_race_pair *pair = find_pair(&s, first, second);
                assert_int_equal(pair != NULL, e.race);
                if (pair)
                    assert_pair(pair, &e);
                races += e.race;
                undecided += e.undecided;
                overlaps += e.overlap;
            }
        }
        assert_int_equal(pair_total(&s), races);
        assert_int_equal(s.undecided.pairs, undecided);
        assert_int_equal(s.undecided.overlaps, overlaps);
        if (undecided) {
            expected_pair e = expect(&s, order, s.undecided.first, s.undecided.second);
            assert_true(e.undecided);
        }
        if (overlaps) {
            expected_pair e = expect(&s, order, s.undecided.overlap_first, s.undecided.overlap_second);
            assert_true(e.overlap);
        }
        assert_groups_hold(&s, order);
        gv_graph_order_free(order);
        free_scene(&s);
    }
}

// Ranges far apart, long and short, so that the sweep goes through several slabs, cuts some and carries ranges over.
static void test_many_ranges_in_sparse_memory(void **state)
{
    enum { NODES = 6, RANGES = 120000 };
    scene s = make_scene(NODES);
    random_state = 7;
    uint64_t address = 0x7f0000000000;
    uint64_t expected = 0;
    connect(&s, 0, 1, ORDINARY);
    connect(&s, 2, 3, ORDINARY);
    connect(&s, 4, 5, ORDINARY);
    // Chain 0-1 writes and reads everywhere; chain 2-3 meets it at every 1000th place; node 4 reads one long range
    // over all of it, but only in the gaps between the others' ranges; node 5 is far away.
    uint64_t first = address;
    for (uint32_t i = 0; i < RANGES; i++) {
        unsigned length = 1 + draw(64);
        access(s.writes, 0, address, address + length);
        access(s.reads, 1, address, address + length);
        if (i % 1000 == 999) {
            access(s.writes, i % 2000 == 999 ? 2 : 3, address, address + length);
            expected += length;
        }
        access(s.reads, 4, address + length, address + length + 1);
        address += 65 + (i % 30000 == 29999 ? UINT64_C(1) << (30 + i / 30000 * 2) : draw(200));
    }
    access(s.reads, 5, 0x10, 0x20);
    access(s.writes, 3, first - 100, first - 50);
    access(s.writes, 5, first - 51, first - 49);
    find(&s);
    assert_int_equal(pair_total(&s), 5);
    const uint32_t writers[] = {2, 3};
    uint64_t found = 0;
    for (size_t w = 0; w < 2; w++) {
        const gv_race_pair *with_writer = find_pair(&s, 0, writers[w]), *with_reader = find_pair(&s, 1, writers[w]);
        assert_non_null(with_writer);
        assert_non_null(with_reader);
        assert_int_equal(with_writer->ranges.count, RANGES / 2000);
        assert_int_equal(with_writer->id, GV_FINDING_RACE_WAW);
        assert_int_equal(with_reader->id, GV_FINDING_RACE_WAR);
        assert_int_equal(with_reader->bytes, with_writer->bytes);
        found += with_writer->bytes;
    }
    assert_int_equal(found, expected);
    const gv_race_pair *edge_pair = find_pair(&s, 3, 5);
    assert_non_null(edge_pair);
    assert_int_equal(edge_pair->bytes, 1);
    assert_int_equal(edge_pair->ranges.ranges[0].start, first - 51);
    free_scene(&s);
}

static void test_all_ranges_at_one_address(void **state)
{
    // More ranges than a slab holds start at one byte: nodes of one chain, so that nothing races but the last.
    enum { NODES = 300000 };
    scene s = make_scene(NODES);
    for (uint32_t n = 0; n < NODES; n++) {
        access(s.writes, n, 1000, 1001 + n % 7);
        if (n && n < NODES - 1)
            connect(&s, n - 1, n, ORDINARY);
    }
    gv_range_set_free(&s.writes[NODES - 1]);
    access(s.writes, NODES - 1, 1006, 1007);
    find(&s);
    // Only nodes with n % 7 == 6 reach byte 1006.
    assert_int_equal(pair_total(&s), NODES / 7);
    assert_int_equal(s.group_count, 1);
    free_scene(&s);
}

// ---- Hazards ----------------------------------------------------------------------------------------------------

static gv_race_pair only_pair(const scene *s)
{
    assert_int_equal(s->group_count, 1);
    assert_int_equal(s->groups[0].pair_count, 1);
    return s->groups[0].pairs[0];
}

static void test_kinds_of_hazard(void **state)
{
    static const struct {
        int first, second;
        enum gv_finding_id id;
    } cases[] = {
        {WRITE, READ, GV_FINDING_RACE_RAW},        {READ, WRITE, GV_FINDING_RACE_WAR},
        {WRITE, WRITE, GV_FINDING_RACE_WAW},       {ATOMIC, READ, GV_FINDING_RACE_RAW},
        {READ, ATOMIC, GV_FINDING_RACE_WAR},       {ATOMIC, WRITE, GV_FINDING_RACE_WAW},
        {WRITE, ATOMIC, GV_FINDING_RACE_RAW},      {READ | WRITE, READ | WRITE, GV_FINDING_RACE_RAW},
        {READ, READ | WRITE, GV_FINDING_RACE_WAR}, {ATOMIC, ATOMIC | READ, GV_FINDING_RACE_RAW},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scene s = make_scene(2);
        const int masks[] = {cases[i].first, cases[i].second};
        for (uint32_t n = 0; n < 2; n++) {
            if (masks[n] & READ)
                access(s.reads, n, 100, 110);
            if (masks[n] & WRITE)
                access(s.writes, n, 100, 110);
            if (masks[n] & ATOMIC)
                access(s.atomics, n, 100, 110);
        }
        find(&s);
        gv_race_pair pair = only_pair(&s);
        assert_int_equal(pair.id, cases[i].id);
        assert_int_equal(pair.bytes, 10);
        free_scene(&s);
    }
}

static void test_no_race_between_reads_nor_between_atomics_nor_within_a_node(void **state)
{
    scene s = make_scene(3);
    access(s.reads, 0, 0, 10);
    access(s.reads, 1, 0, 10);
    access(s.atomics, 0, 20, 30);
    access(s.atomics, 1, 20, 30);
    access(s.reads, 2, 40, 50);
    access(s.writes, 2, 40, 50);
    access(s.atomics, 2, 40, 50);
    find(&s);
    assert_int_equal(s.group_count, 0);
    free_scene(&s);
}

static void test_an_edge_ends_the_race_and_touching_ranges_are_none(void **state)
{
    scene with = make_scene(2), without = make_scene(2), beside = make_scene(2);
    connect(&with, 0, 1, ORDINARY);
    access(with.writes, 0, 0, 10);
    access(with.reads, 1, 9, 12);
    access(without.writes, 0, 0, 10);
    access(without.reads, 1, 9, 12);
    access(beside.writes, 0, 0, 10);
    access(beside.reads, 1, 10, 12);
    find(&with);
    find(&without);
    find(&beside);
    assert_int_equal(with.group_count, 0);
    assert_int_equal(beside.group_count, 0);
    gv_race_pair pair = only_pair(&without);
    assert_int_equal(pair.bytes, 1);
    assert_int_equal(pair.ranges.ranges[0].start, 9);
    free_scene(&with);
    free_scene(&without);
    free_scene(&beside);
}

static void test_first_is_what_was_made_first(void **state)
{
    scene s = make_scene(2);
    s.made = calloc(2, sizeof *s.made);
    s.made[0] = 9;
    s.made[1] = 3;
    access(s.writes, 0, 0, 10);
    access(s.reads, 1, 0, 10);
    find(&s);
    gv_race_pair pair = only_pair(&s);
    assert_int_equal(pair.first.node, 1);
    assert_int_equal(pair.second.node, 0);
    assert_int_equal(pair.id, GV_FINDING_RACE_WAR);
    assert_int_equal(s.groups[0].edge_from, 1);
    assert_int_equal(s.groups[0].edge_to, 0);
    free_scene(&s);
}

static void test_the_hazard_with_most_bytes_names_the_pair(void **state)
{
    scene s = make_scene(2);
    access(s.writes, 0, 0, 4);
    access(s.reads, 1, 0, 4);
    access(s.reads, 0, 10, 20);
    access(s.writes, 1, 10, 20);
    find(&s);
    gv_race_pair pair = only_pair(&s);
    assert_int_equal(pair.id, GV_FINDING_RACE_WAR);
    assert_int_equal(pair.raw_bytes, 4);
    assert_int_equal(pair.war_bytes, 10);
    assert_int_equal(pair.bytes, 14);
    assert_int_equal(pair.ranges.count, 2);
    free_scene(&s);
}

static void test_programmatic_pairs_are_undecided_and_not_races(void **state)
{
    scene s = make_scene(3);
    connect(&s, 0, 1, PROGRAMMATIC);
    connect(&s, 1, 2, ORDINARY);
    access(s.writes, 0, 0, 10);
    access(s.reads, 1, 0, 10);
    access(s.writes, 2, 5, 8);
    find(&s);
    assert_int_equal(s.group_count, 0);
    // 0 and 1, 0 and 2; an ordinary edge orders 1 and 2.
    assert_int_equal(s.undecided.pairs, 2);
    assert_int_equal(s.undecided.first, 0);
    assert_int_equal(s.undecided.second, 1);
    free_scene(&s);
}

// ---- Groups -----------------------------------------------------------------------------------------------------

// A decode graph whose side branch is joined nowhere: both branches keep two blocks and use them in turn, and the
// main branch, made after the side branch, takes over the side branch's two. 560 nodes, some 70 pairs, one cause.
static scene forgotten_join(bool joined)
{
    enum { FORK = 200, SIDE = 60, NODES = 560 };
    scene s = make_scene(NODES);
    const uint64_t size = 4096, base = 1 << 20;
    for (uint32_t n = 1; n < NODES; n++)
        connect(&s, n == FORK + SIDE + 1 ? FORK : n - 1, n, ORDINARY);
    if (joined)
        connect(&s, FORK + SIDE, FORK + SIDE + 1, ORDINARY);
    for (uint32_t n = 0; n < NODES; n++) {
        // Each step reads the block of the step before and writes its own.
        bool side = n > FORK && n <= FORK + SIDE;
        uint64_t mine = base + (n % 2) * size, before = base + ((n + 1) % 2) * size;
        // From the fork on, 3 steps of the main branch come between two that touch the side branch's blocks.
        bool shared = side ? n > FORK + SIDE - 6 : n > FORK + SIDE && n < FORK + SIDE + 50 && n % 4 == 0;
        uint64_t offset = shared ? 0 : (uint64_t)(side ? 4 : 8) * size;
        access(s.writes, n, mine + offset, mine + offset + size);
        access(s.reads, n, before + offset, before + offset + size);
    }
    return s;
}

static void test_a_forgotten_join_is_one_group(void **state)
{
    scene broken = forgotten_join(false), whole = forgotten_join(true);
    find(&broken);
    find(&whole);
    assert_int_equal(whole.group_count, 0);
    assert_int_equal(broken.group_count, 1);
    const gv_race_group *group = &broken.groups[0];
    assert_in_range(group->pair_count, 60, 80);
    // The end of the side branch and the first step of the main branch that touches its blocks.
    assert_int_equal(group->edge_from, 260);
    assert_int_equal(group->edge_to, 264);
    assert_int_equal(group->pairs[0].first.node, 260);
    assert_int_equal(group->pairs[0].second.node, 264);
    free_scene(&broken);
    free_scene(&whole);
}

static void test_two_forgotten_joins_are_two_groups(void **state)
{
    // main 0 1 2 3 4 5; side 6 between 0 and 2, side 7 between 3 and 5; neither is joined.
    scene s = make_scene(8);
    for (uint32_t n = 1; n < 6; n++)
        connect(&s, n - 1, n, ORDINARY);
    connect(&s, 0, 6, ORDINARY);
    connect(&s, 3, 7, ORDINARY);
    s.made = calloc(8, sizeof *s.made);
    for (uint32_t n = 0; n < 6; n++)
        s.made[n] = 10 * (n + 1);
    s.made[6] = 15;
    s.made[7] = 45;
    access(s.writes, 6, 100, 110);
    access(s.reads, 2, 100, 110);
    access(s.reads, 3, 100, 110);
    access(s.writes, 7, 200, 210);
    access(s.reads, 5, 200, 210);
    find(&s);
    assert_int_equal(s.group_count, 2);
    assert_int_equal(s.groups[0].pair_count, 2);
    assert_int_equal(s.groups[0].edge_from, 6);
    assert_int_equal(s.groups[0].edge_to, 2);
    assert_int_equal(s.groups[1].edge_from, 7);
    assert_int_equal(s.groups[1].edge_to, 5);
    free_scene(&s);
}

static void test_confidence_leads(void **state)
{
    static const struct {
        enum gv_access_precision first, second;
        enum gv_access_precision lead;
    } cases[] = {
        {GV_PRECISION_EXTENT, GV_PRECISION_EXACT, GV_PRECISION_EXACT},
        {GV_PRECISION_EXACT, GV_PRECISION_EXACT, GV_PRECISION_EXACT},
        {GV_PRECISION_INCOMPLETE, GV_PRECISION_EXTENT, GV_PRECISION_EXTENT},
        {GV_PRECISION_EXTENT, GV_PRECISION_EXTENT, GV_PRECISION_EXTENT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        // 0 writes; 1 then 2 read, and nothing orders them with 0. The nearer reader is 1.
        scene s = make_scene(3);
        connect(&s, 1, 2, ORDINARY);
        access(s.writes, 0, 0, 10);
        access(s.reads, 1, 0, 10);
        access(s.reads, 2, 0, 10);
        s.precision[1] = cases[i].first;
        s.precision[2] = cases[i].second;
        find(&s);
        assert_int_equal(s.group_count, 1);
        assert_int_equal(s.groups[0].edge_to, 1);
        assert_int_equal(s.groups[0].pairs[0].second.precision, cases[i].lead);
        assert_int_equal(s.groups[0].pairs[0].second.node, cases[i].first <= cases[i].second ? 1 : 2);
        free_scene(&s);
    }
}

// A thousand ordered writers of one buffer beside a reader that follows them all: one set of accesses, no race. With
// the last edge gone, each writer races with the reader, and they are one group.
static void test_many_ordered_writers(void **state)
{
    enum { WRITERS = 1000 };
    for (int joined = 0; joined < 2; joined++) {
        scene s = make_scene(WRITERS + 1);
        for (uint32_t n = 0; n < WRITERS; n++) {
            access(s.writes, n, 0, 1 << 20);
            if (n || joined)
                connect(&s, n ? n - 1 : WRITERS - 1, n ? n : WRITERS, ORDINARY);
        }
        access(s.reads, WRITERS, 0, 1 << 20);
        find(&s);
        assert_int_equal(pair_total(&s), joined ? 0 : WRITERS);
        assert_int_equal(s.group_count, joined ? 0 : 1);
        free_scene(&s);
    }
}

static void test_memory_failures_are_reported(void **state)
{
    scene s = forgotten_join(false);
    gv_race_input input = input_of(&s);
    bool succeeded = false;
    for (long allowed = 0; !succeeded; allowed++) {
        gv_race_group *groups;
        size_t count;
        gv_error error = {0};
        gv_memory_fail_after(allowed);
        gv_status status = gv_race_find(&input, &groups, &count, NULL, &error);
        gv_memory_fail_after(-1);
        succeeded = status == GV_OK;
        if (!succeeded) {
            assert_int_equal(status, GV_ERR_MEMORY);
            assert_null(groups);
        }
        gv_race_groups_free(groups, count);
        assert_true(allowed < 10000);
    }
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_graphs_match_all_pairs),
        cmocka_unit_test(test_many_ranges_in_sparse_memory),
        cmocka_unit_test(test_all_ranges_at_one_address),
        cmocka_unit_test(test_kinds_of_hazard),
        cmocka_unit_test(test_no_race_between_reads_nor_between_atomics_nor_within_a_node),
        cmocka_unit_test(test_an_edge_ends_the_race_and_touching_ranges_are_none),
        cmocka_unit_test(test_first_is_what_was_made_first),
        cmocka_unit_test(test_the_hazard_with_most_bytes_names_the_pair),
        cmocka_unit_test(test_programmatic_pairs_are_undecided_and_not_races),
        cmocka_unit_test(test_a_forgotten_join_is_one_group),
        cmocka_unit_test(test_two_forgotten_joins_are_two_groups),
        cmocka_unit_test(test_confidence_leads),
        cmocka_unit_test(test_many_ordered_writers),
        cmocka_unit_test(test_memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
