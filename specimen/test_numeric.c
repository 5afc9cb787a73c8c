// Number formats and arithmetic of the kernels, on the host.
#include "specimen/numeric.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

// e4m3 by its definition.
static float fp8_defined(unsigned value)
{
    unsigned exponent = value >> 3 & 15, fraction = value & 7;
    float magnitude = exponent ? ldexpf(1 + (float)fraction / 8, (int)exponent - 7) : ldexpf((float)fraction / 8, -6);
    return value & 0x80 ? -magnitude : magnitude;
}

static void fp8_is_e4m3(void **state)
{
    for (unsigned value = 0; value < 256; value++) {
        if ((value & 0x7f) == 0x7f)
            continue; // NaN, which is never stored
        assert_true(fp8_float((fp8)value) == fp8_defined(value));
        if (value != 0x80)
            assert_int_equal(float_fp8(fp8_defined(value)), value);
    }
    assert_int_equal(float_fp8(1e9f), 0x7e);
    assert_int_equal(float_fp8(-1e9f), 0xfe);
    assert_int_equal(float_fp8(1e-9f), 0);
}

static void fp8_rounds_to_the_nearest(void **state)
{
    for (unsigned value = 0; value < 0x7e; value++) {
        float low = fp8_defined(value), high = fp8_defined(value + 1), middle = (low + high) / 2;
        assert_int_equal(float_fp8(middle), value & 1 ? value + 1 : value); // a tie goes to the even one
        assert_int_equal(float_fp8(middle * 0.9999f), value);
        assert_int_equal(float_fp8(middle * 1.0001f), value + 1);
    }
}

static void bf16_rounds_to_the_nearest(void **state)
{
    assert_int_equal(float_bf16(1.0f), 0x3f80);
    assert_int_equal(float_bf16(1.00390625f), 0x3f80); // halfway, to the even one below
    assert_int_equal(float_bf16(1.01171875f), 0x3f82); // halfway, to the even one above
    assert_int_equal(float_bf16(nextafterf(1.00390625f, 2)), 0x3f81);
    assert_int_equal(float_bf16(-2.0f), 0xc000);
    assert_true(isnan(bf16_float(float_bf16(NAN))));
    for (unsigned bits = 0; bits < 0x7f80; bits += 7)
        assert_int_equal(float_bf16(bf16_float((bf16)bits)), bits);
}

static void vectors_do_what_their_elements_would(void **state)
{
    _Alignas(16) bf16 halves[8], stored_halves[8];
    _Alignas(16) float floats[8] = {1, -2, 3.3f, 1e-3f, 448, 500, -0.01f, 17}, stored[8];
    _Alignas(8) fp8 bytes[8];
    for (int i = 0; i < 8; i++)
        halves[i] = float_bf16(floats[i]);
    eight a = load_bf16(halves), b = load_float(floats);
    dot sum = dot_add(dot_none(), a, b);
    float expected = 0;
    for (int i = 0; i < 8; i++) {
        assert_true(eight_at(&a, i) == bf16_float(halves[i]));
        assert_true(eight_at(&b, i) == floats[i]);
        expected += bf16_float(halves[i]) * floats[i];
    }
    assert_true(fabsf(dot_value(sum) - expected) < 1e-3f * expected);
    store_bf16(stored_halves, b);
    assert_memory_equal(stored_halves, halves, sizeof halves);
    store_fp8(bytes, b);
    eight back = load_fp8(bytes);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(bytes[i], float_fp8(floats[i]));
        assert_true(eight_at(&back, i) == fp8_float(bytes[i]));
    }
    eight c = eight_add(eight_scale(b, 2), eight_multiply(b, eight_all(-1)));
    eight_set(&c, 3, 5);
    store_float(stored, c);
    for (int i = 0; i < 8; i++)
        assert_true(stored[i] == (i == 3 ? 5 : floats[i]));
}

static void functions_are_accurate(void **state)
{
    for (float x = -86; x < 88; x += 0.013f)
        assert_true(fabs(fast_exp(x) / exp(x) - 1) < 1e-5);
    assert_true(fast_exp(-1000) == 0);
    assert_true(isfinite(fast_exp(1000)));
    assert_true(fast_exp(NAN) == 0); // a garbage score has no weight
    for (float x = 1e-6f; x < 1e9f; x *= 1.07f)
        assert_true(fabs(fast_rsqrt(x) * sqrt(x) - 1) < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp8_is_e4m3),
        cmocka_unit_test(fp8_rounds_to_the_nearest),
        cmocka_unit_test(bf16_rounds_to_the_nearest),
        cmocka_unit_test(vectors_do_what_their_elements_would),
        cmocka_unit_test(functions_are_accurate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
