// The ranges of copies and sets in one, two and three dimensions, and the refusal of parameters no driver would take.
#include "access/node_access.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define NUMBERS(...)                                                                                \
    (gv_numbers)                                                                                    \
    {                                                                                               \
        (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t) \
    }

static void assert_ranges(const gv_range_set *set, size_t count, const gv_range *expected)
{
    assert_true(gv_range_set_is_valid(set));
    assert_int_equal(set->count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(set->ranges[i].start, expected[i].start);
        assert_int_equal(set->ranges[i].end, expected[i].end);
    }
}

static void test_linear_copy(void **state)
{
    gv_range_set reads = {0}, writes = {0};
    assert_int_equal(gv_memcpy_access(NUMBERS(0x1000, 0x8000, 256), &reads, &writes, NULL), GV_OK);
    assert_ranges(&writes, 1, (gv_range[]){{0x1000, 0x1100}});
    assert_ranges(&reads, 1, (gv_range[]){{0x8000, 0x8100}});
    gv_range_set_free(&reads);
    gv_range_set_free(&writes);
}

static void test_rows_of_a_pitched_copy(void **state)
{
    gv_range_set reads = {0}, writes = {0};
    assert_int_equal(gv_memcpy_access(NUMBERS(0x1000, 0x8000, 16, 3, 1, 64, 16), &reads, &writes, NULL), GV_OK);
    assert_ranges(&writes, 3, (gv_range[]){{0x1000, 0x1010}, {0x1040, 0x1050}, {0x1080, 0x1090}});
    // The source has no padding between its rows: one range.
    assert_ranges(&reads, 1, (gv_range[]){{0x8000, 0x8030}});
    gv_range_set_free(&reads);
    gv_range_set_free(&writes);
}

static void test_two_copies_that_overlap_in_one_column(void **state)
{
    gv_range_set reads = {0}, left = {0}, right = {0}, both = {0};
    assert_int_equal(gv_memcpy_access(NUMBERS(0x1000, 0, 16, 2, 1, 64, 0), &reads, &left, NULL), GV_OK);
    assert_int_equal(gv_memcpy_access(NUMBERS(0x100f, 0, 16, 2, 1, 64, 0), &reads, &right, NULL), GV_OK);
    assert_int_equal(reads.count, 0);
    assert_int_equal(gv_range_set_intersection(&left, &right, &both, NULL), GV_OK);
    assert_ranges(&both, 2, (gv_range[]){{0x100f, 0x1010}, {0x104f, 0x1050}});
    gv_range_set_free(&left);
    gv_range_set_free(&right);
    gv_range_set_free(&both);
}

static void test_slices_of_a_3d_copy(void **state)
{
    gv_range_set reads = {0}, writes = {0};
    assert_int_equal(gv_memcpy_access(NUMBERS(0x1000, 0x8000, 8, 2, 2, 16, 8, 64, 16), &reads, &writes, NULL), GV_OK);
    assert_ranges(&writes, 4, (gv_range[]){{0x1000, 0x1008}, {0x1010, 0x1018}, {0x1040, 0x1048}, {0x1050, 0x1058}});
    assert_ranges(&reads, 1, (gv_range[]){{0x8000, 0x8020}});
    gv_range_set_free(&reads);
    gv_range_set_free(&writes);
}

static void test_overlapping_rows_are_one_range(void **state)
{
    gv_range_set writes = {0};
    assert_int_equal(gv_memset_access(NUMBERS(0x1000, 0, 4, 8, 4, 16), &writes, NULL), GV_OK);
    assert_ranges(&writes, 1, (gv_range[]){{0x1000, 0x1050}});
    gv_range_set_free(&writes);
}

static void test_sets(void **state)
{
    gv_range_set writes = {0};
    assert_int_equal(gv_memset_access(NUMBERS(0x1000, 7, 4, 8), &writes, NULL), GV_OK);
    assert_int_equal(gv_memset_access(NUMBERS(0x2000, 7, 2, 8, 2, 32), &writes, NULL), GV_OK);
    assert_ranges(&writes, 3, (gv_range[]){{0x1000, 0x1020}, {0x2000, 0x2010}, {0x2020, 0x2030}});
    gv_range_set_free(&writes);
}

static void test_nothing_copied(void **state)
{
    gv_range_set reads = {0}, writes = {0};
    assert_int_equal(gv_memcpy_access(NUMBERS(0x1000, 0x8000, 0, 1, 1), &reads, &writes, NULL), GV_OK);
    assert_int_equal(gv_memcpy_access(NUMBERS(0x1000, 0x8000, 8, 0, 1), &reads, &writes, NULL), GV_OK);
    assert_int_equal(reads.count + writes.count, 0);
}

static void test_absurd_parameters(void **state)
{
    gv_range_set reads = {0}, writes = {0};
    gv_error error = {0};
    // 2^40 separate rows.
    assert_int_equal(gv_memcpy_access(NUMBERS(0x1000, 0x8000, 1, UINT64_C(1) << 40, 1, 2, 2), &reads, &writes, &error),
                     GV_ERR_LIMIT);
    // The same number of rows back to back is one plain range.
    assert_int_equal(gv_memcpy_access(NUMBERS(0x1000, 0x8000, 1, UINT64_C(1) << 40, 1, 1, 1), &reads, &writes, &error),
                     GV_OK);
    assert_int_equal(writes.count, 1);
    assert_int_equal(gv_memcpy_access(NUMBERS(UINT64_MAX - 3, 0x8000, 8), &reads, &writes, &error), GV_ERR_FORMAT);
    assert_int_equal(gv_memcpy_access(NUMBERS(0x1000, 0x8000, 8, 3, 1, UINT64_MAX / 2, 8), &reads, &writes, &error),
                     GV_ERR_FORMAT);
    assert_int_equal(gv_memset_access(NUMBERS(0x1000, 0, UINT64_MAX, 3, 1, 0), &writes, &error), GV_ERR_FORMAT);
    assert_int_equal(gv_memset_access(NUMBERS(0x1000, 0, 4), &writes, &error), GV_ERR_FORMAT);
    assert_int_equal(gv_memcpy_access(NUMBERS(0x1000, 0), &reads, &writes, &error), GV_ERR_FORMAT);
    gv_range_set_free(&reads);
    gv_range_set_free(&writes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_copy),
        cmocka_unit_test(test_rows_of_a_pitched_copy),
        cmocka_unit_test(test_two_copies_that_overlap_in_one_column),
        cmocka_unit_test(test_slices_of_a_3d_copy),
        cmocka_unit_test(test_overlapping_rows_are_one_range),
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_nothing_copied),
        cmocka_unit_test(test_absurd_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
