// Elements as numbers, and what counts as different.
#include "gravel.h"
#include "record/probe.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

// What the first element of a format prints as.
static const char *shown(const void *value, unsigned dtype)
{
    static gv_value_differences found;
    unsigned char other[8];
    memcpy(other, value, gv_dtype_size(dtype));
    other[0] ^= 0xff;
    gv_values_compare(value, other, 1, gv_dtype_size(dtype), dtype, 0, &found);
    assert_int_equal(found.differing, 1);
    return found.graph_value;
}

static void formats_are_read_as_they_are_defined(void **state)
{
    const struct {
        unsigned dtype;
        uint64_t bits;
        const char *text;
    } cases[] = {
        {GRAVEL_F64, 0x3ff8000000000000, "1.5"},
        {GRAVEL_F32, 0xc0490fdb, "-3.14159274"},
        {GRAVEL_F16, 0x3c00, "1"},
        {GRAVEL_F16, 0x7bff, "65504"},
        {GRAVEL_F16, 0x0001, "5.96046448e-08"}, // the smallest subnormal
        {GRAVEL_F16, 0xfc00, "-inf"},
        {GRAVEL_BF16, 0x3f80, "1"},
        {GRAVEL_BF16, 0xc2c8, "-100"},
        {GRAVEL_F8_E4M3, 0x7e, "448"}, // the largest: there are no infinities
        {GRAVEL_F8_E4M3, 0x01, "0.001953125"},
        {GRAVEL_F8_E5M2, 0x7b, "57344"},
        {GRAVEL_F8_E5M2, 0x7c, "inf"},
        {GRAVEL_I64, (uint64_t)INT64_MIN, "-9223372036854775808"},
        {GRAVEL_I32, 0xffffffff, "-1"},
        {GRAVEL_I8, 0x80, "-128"},
        {GRAVEL_BYTES, 0xa5, "0xa5"},
        {99, 0xa5, "0xa5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(shown(&cases[i].bits, cases[i].dtype), cases[i].text);
    const uint64_t nan = 0x7f;
    assert_non_null(strstr(shown(&nan, GRAVEL_F8_E4M3), "nan"));
}

static void rows_and_places_are_counted(void **state)
{
    float graph[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}}, eager[3][4];
    gv_value_differences found;
    memcpy(eager, graph, sizeof eager);
    gv_values_compare(graph, eager, 3, 16, GRAVEL_F32, 0, &found);
    assert_int_equal(found.elements, 12);
    assert_int_equal(found.differing, 0);
    eager[1][2] = 7.5f;
    eager[2][0] = 8;
    eager[2][3] = 12.25f;
    gv_values_compare(graph, eager, 3, 16, GRAVEL_F32, 0, &found);
    assert_int_equal(found.differing, 3);
    assert_int_equal(found.rows, 2);
    assert_int_equal(found.first_row, 1);
    assert_int_equal(found.first_element, 2);
    assert_string_equal(found.graph_value, "7");
    assert_string_equal(found.eager_value, "7.5");
    assert_true(found.largest == 1);
    // Padded rows are left out by the count.
    gv_values_compare(graph, eager, 1, 16, GRAVEL_F32, 0, &found);
    assert_int_equal(found.differing, 0);
}

static void a_tolerance_is_relative(void **state)
{
    float graph[4] = {100, 1, NAN, INFINITY}, eager[4] = {101, 1.5f, NAN, -INFINITY};
    uint32_t other = 0x7fc12345; // another NaN
    gv_value_differences found;
    memcpy(&eager[2], &graph[2], 4);
    gv_values_compare(graph, eager, 1, 16, GRAVEL_F32, 0.02, &found);
    assert_int_equal(found.differing, 2); // 1 and the infinity; equal NaNs are equal
    memcpy(&eager[2], &other, 4);
    gv_values_compare(graph, eager, 1, 16, GRAVEL_F32, 0.02, &found);
    assert_int_equal(found.differing, 3);
    assert_true(isnan(found.largest) || isinf(found.largest));
}

static void what_is_no_whole_number_of_elements_is_bytes(void **state)
{
    unsigned char graph[6] = {1, 2, 3, 4, 5, 6}, eager[6] = {1, 2, 3, 4, 5, 7};
    gv_value_differences found;
    gv_values_compare(graph, eager, 2, 3, GRAVEL_F32, 0.5, &found);
    assert_int_equal(found.elements, 6);
    assert_int_equal(found.first_row, 1);
    assert_int_equal(found.first_element, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_are_read_as_they_are_defined),
        cmocka_unit_test(rows_and_places_are_counted),
        cmocka_unit_test(a_tolerance_is_relative),
        cmocka_unit_test(what_is_no_whole_number_of_elements_is_bytes),
    };
    return cmocka_run_group_tests_name("record/probe_values", tests, NULL, NULL);
}
