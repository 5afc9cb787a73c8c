// Byte-range sets against a bitmap: every operation on thousands of small random sets, and the edges of the number
// range by hand.
#include "access/range_set.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SPACE = 96 };

typedef struct bitmap {
    bool bytes[SPACE];
} bitmap;

static uint64_t random_state;

static unsigned draw(unsigned below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((random_state >> 33) % below);
}

static void add_both(gv_range_set *set, bitmap *map, unsigned start, unsigned end)
{
    assert_int_equal(gv_range_set_add(set, start, end, NULL), GV_OK);
    for (unsigned i = start; i < end; i++)
        map->bytes[i] = true;
}

static void assert_equals_bitmap(const gv_range_set *set, const bitmap *map)
{
    gv_range_set_settle(set);
    assert_true(gv_range_set_is_valid(set));
    uint64_t bytes = 0;
    for (unsigned i = 0; i < SPACE; i++) {
        assert_int_equal(gv_range_set_contains(set, i), map->bytes[i]);
        bytes += map->bytes[i];
    }
    assert_int_equal(gv_range_set_bytes(set), bytes);
}

// Random order, a few ranges or many, so that appending, growing, pending and settling all happen.
static void random_set(gv_range_set *set, bitmap *map)
{
    memset(map, 0, sizeof *map);
    unsigned additions = draw(4) ? draw(12) : draw(200);
    bool ascending = draw(4) == 0;
    unsigned floor = 0;
    for (unsigned i = 0; i < additions; i++) {
        unsigned start = ascending ? floor + draw(SPACE - floor) : draw(SPACE);
        unsigned longest = draw(3) ? 4 : SPACE - start;
        unsigned end = start + draw((longest < SPACE - start ? longest : SPACE - start) + 1);
        add_both(set, map, start, end);
        if (ascending)
            floor = start;
    }
}

static void test_random_sets_match_a_bitmap(void **state)
{
    for (random_state = 1; random_state < 4000; random_state++) {
        uint64_t seed = random_state;
        gv_range_set a = {0}, b = {0}, out = {0};
        bitmap in_a, in_b, expected;
        random_set(&a, &in_a);
        random_set(&b, &in_b);
        bool overlap = false;
        for (unsigned i = 0; i < SPACE; i++)
            overlap |= in_a.bytes[i] && in_b.bytes[i];
        assert_int_equal(gv_range_set_overlaps(&a, &b), overlap);

        assert_int_equal(gv_range_set_union(&a, &b, &out, NULL), GV_OK);
        for (unsigned i = 0; i < SPACE; i++)
            expected.bytes[i] = in_a.bytes[i] || in_b.bytes[i];
        assert_equals_bitmap(&out, &expected);

        assert_int_equal(gv_range_set_intersection(&a, &b, &out, NULL), GV_OK);
        for (unsigned i = 0; i < SPACE; i++)
            expected.bytes[i] = in_a.bytes[i] && in_b.bytes[i];
        assert_equals_bitmap(&out, &expected);

        assert_int_equal(gv_range_set_difference(&a, &b, &out, NULL), GV_OK);
        for (unsigned i = 0; i < SPACE; i++)
            expected.bytes[i] = in_a.bytes[i] && !in_b.bytes[i];
        assert_equals_bitmap(&out, &expected);

        assert_equals_bitmap(&a, &in_a);
        assert_equals_bitmap(&b, &in_b);
        gv_range_set_free(&a);
        gv_range_set_free(&b);
        gv_range_set_free(&out);
        random_state = seed;
    }
}

static void test_encoding_round_trip(void **state)
{
    for (random_state = 5000; random_state < 5500; random_state++) {
        uint64_t seed = random_state;
        gv_range_set set = {0}, back = {0};
        bitmap map;
        random_set(&set, &map);
        gv_range_set_settle(&set);
        uint8_t *bytes = malloc(gv_ranges_encoded_bound(set.count) + 1);
        size_t length = gv_ranges_encode(set.ranges, set.count, bytes);
        assert_int_equal(gv_range_set_decode(&back, (gv_bytes){bytes, length}, NULL), GV_OK);
        assert_equals_bitmap(&back, &map);
        free(bytes);
        gv_range_set_free(&set);
        gv_range_set_free(&back);
        random_state = seed;
    }
}

static void test_decode_refuses_damage(void **state)
{
    static const uint8_t zero_length[] = {5, 0};
    gv_range_set set = {0};
    gv_error error = {0};
    assert_int_equal(gv_range_set_decode(&set, (gv_bytes){zero_length, 2}, &error), GV_ERR_FORMAT);
    assert_int_equal(set.count, 0);
    gv_range_set_free(&set);
}

static void test_descending_additions_are_not_quadratic_in_moves(void **state)
{
    // 300,000 descending additions; inserting each in front by moving the rest would move 720 GB.
    gv_range_set set = {0};
    for (uint64_t i = 300000; i > 0; i--)
        assert_int_equal(gv_range_set_add(&set, i * 10, i * 10 + 5, NULL), GV_OK);
    gv_range_set_settle(&set);
    assert_true(gv_range_set_is_valid(&set));
    assert_int_equal(set.count, 300000);
    assert_int_equal(gv_range_set_bytes(&set), 1500000);
    gv_range_set_free(&set);
}

static void test_ends_of_the_address_space(void **state)
{
    gv_range_set set = {0};
    assert_int_equal(gv_range_set_add(&set, UINT64_MAX - 4, UINT64_MAX, NULL), GV_OK);
    assert_int_equal(gv_range_set_add(&set, 0, 1, NULL), GV_OK);
    assert_int_equal(gv_range_set_add(&set, 7, 7, NULL), GV_OK);
    assert_int_equal(gv_range_set_add(&set, 9, 7, NULL), GV_OK);
    assert_true(gv_range_set_contains(&set, 0));
    assert_true(gv_range_set_contains(&set, UINT64_MAX - 1));
    assert_false(gv_range_set_contains(&set, UINT64_MAX));
    assert_false(gv_range_set_contains(&set, 7));
    assert_int_equal(gv_range_set_bytes(&set), 5);
    gv_range_set_free(&set);
}

static void test_adjacent_ranges_become_one(void **state)
{
    gv_range_set set = {0};
    gv_range_set_add(&set, 10, 20, NULL);
    gv_range_set_add(&set, 20, 30, NULL);
    gv_range_set_add(&set, 0, 10, NULL);
    gv_range_set_settle(&set);
    assert_int_equal(set.count, 1);
    assert_int_equal(set.ranges[0].start, 0);
    assert_int_equal(set.ranges[0].end, 30);
    gv_range_set_free(&set);
}

static void test_out_of_memory_leaves_the_set_whole(void **state)
{
    gv_range_set set = {0};
    gv_error error = {0};
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(gv_range_set_add(&set, i * 10, i * 10 + 5, NULL), GV_OK);
    gv_memory_fail_after(0);
    assert_int_equal(gv_range_set_add(&set, 1000, 1001, &error), GV_ERR_MEMORY);
    assert_int_equal(gv_range_set_add(&set, 7, 8, &error), GV_ERR_MEMORY);
    gv_memory_fail_after(-1);
    assert_true(gv_range_set_is_valid(&set));
    assert_int_equal(gv_range_set_bytes(&set), 40);
    gv_range_set_free(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_sets_match_a_bitmap),
        cmocka_unit_test(test_encoding_round_trip),
        cmocka_unit_test(test_decode_refuses_damage),
        cmocka_unit_test(test_descending_additions_are_not_quadratic_in_moves),
        cmocka_unit_test(test_ends_of_the_address_space),
        cmocka_unit_test(test_adjacent_ranges_become_one),
        cmocka_unit_test(test_out_of_memory_leaves_the_set_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
