// Elements of memory: types, values, tolerances, and what is guessed from names of kernels.
#include "detect/elements.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void check_value(gv_dtype type, uint64_t bits, double value)
{
    double found = gv_element_value(type, &bits);
    if (isnan(value))
        assert_true(isnan(found));
    else if (found != value || signbit(found) != signbit(value))
        fail_msg("%s 0x%llx is %g, not %g", gv_dtype_name(type), (unsigned long long)bits, found, value);
}

static void test_values(void **state)
{
    check_value(GV_DTYPE_F32, 0x3f800000, 1);
    check_value(GV_DTYPE_F32, 0x00000001, ldexp(1, -149));
    check_value(GV_DTYPE_F64, 0xc000000000000000, -2);
    check_value(GV_DTYPE_F16, 0x7bff, 65504);
    check_value(GV_DTYPE_F16, 0x0001, ldexp(1, -24));
    check_value(GV_DTYPE_F16, 0xfc00, -INFINITY);
    check_value(GV_DTYPE_BF16, 0x4049, 3.140625);
    check_value(GV_DTYPE_BF16, 0x7fc0, NAN);
    check_value(GV_DTYPE_F8E4M3, 0x7e, 448);
    check_value(GV_DTYPE_F8E4M3, 0x7f, NAN);
    check_value(GV_DTYPE_F8E4M3, 0x01, ldexp(1, -9));
    check_value(GV_DTYPE_F8E5M2, 0x7b, 57344);
    check_value(GV_DTYPE_F8E5M2, 0x7c, INFINITY);
    check_value(GV_DTYPE_I32, 0xffffffff, -1);
    check_value(GV_DTYPE_U32, 0xffffffff, 4294967295.0);
    check_value(GV_DTYPE_I8, 0x80, -128);
}

// Every half-precision value, against the compiler's own conversion of the float with the same value.
static void test_all_halves_are_told_apart(void **state)
{
    double last = -INFINITY;
    for (uint32_t bits = 0; bits < 0x7c00; bits++) {
        uint64_t element = bits;
        double value = gv_element_value(GV_DTYPE_F16, &element);
        assert_true(value > last || bits == 0);
        assert_true(value == (double)(float)value);
        last = value;
    }
}

static bool equal(gv_dtype type, const char *tolerance, uint64_t a, uint64_t b)
{
    gv_tolerance how;
    assert_true(gv_tolerance_parse(tolerance, &how));
    bool one = gv_elements_equal(type, &how, &a, &b), other = gv_elements_equal(type, &how, &b, &a);
    assert_int_equal(one, other);
    return one;
}

static void test_tolerances(void **state)
{
    assert_true(equal(GV_DTYPE_F32, "bitwise", 0x3f800000, 0x3f800000));
    assert_false(equal(GV_DTYPE_F32, "bitwise", 0x3f800000, 0x3f800001));
    assert_false(equal(GV_DTYPE_F32, "bitwise", 0, 0x80000000)); // 0 and -0
    assert_true(equal(GV_DTYPE_F32, "ulp=0", 0, 0x80000000));
    assert_true(equal(GV_DTYPE_F32, "ulp=1", 0x3f800000, 0x3f800001));
    assert_false(equal(GV_DTYPE_F32, "ulp=1", 0x3f800000, 0x3f800002));
    assert_true(equal(GV_DTYPE_F32, "ulp=2", 0x00000001, 0x80000001)); // across 0
    assert_false(equal(GV_DTYPE_F32, "ulp=1", 0x00000001, 0x80000001));
    assert_true(equal(GV_DTYPE_BF16, "relative=0.01", 0x3f80, 0x3f81));
    assert_false(equal(GV_DTYPE_BF16, "relative=0.001", 0x3f80, 0x3f81));
    assert_true(equal(GV_DTYPE_F32, "ulp=5", 0x7fc00000, 0x7fc00001)); // NaNs
    assert_false(equal(GV_DTYPE_F32, "relative=1", 0x7fc00000, 0x3f800000));
    assert_false(equal(GV_DTYPE_F32, "ulp=100000000", 0x7f800000, 0x7f7fffff)); // infinity and the largest number
    assert_false(equal(GV_DTYPE_I32, "ulp=5", 1, 2));                           // integers are equal or not
    assert_false(equal(GV_DTYPE_NONE, "relative=1", 1, 2));

    gv_tolerance how;
    const char *const bad[] = {"",          "ulp",         "ulp=",         "ulp=x",       "ulp=-1", "ulp=1.5",
                               "relative=", "relative=-1", "relative=inf", "relative=1x", "near"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (gv_tolerance_parse(bad[i], &how))
            fail_msg("\"%s\" was taken", bad[i]);
}

static void test_types_have_names(void **state)
{
    for (int type = GV_DTYPE_F64; type <= GV_DTYPE_U8; type++) {
        gv_dtype found;
        assert_true(gv_dtype_parse(gv_dtype_name((gv_dtype)type), &found));
        assert_int_equal(found, type);
    }
    gv_dtype found;
    assert_true(gv_dtype_parse("bfloat16", &found) && found == GV_DTYPE_BF16);
    assert_false(gv_dtype_parse("none", &found));
    assert_false(gv_dtype_parse("", &found));
}

static void test_guesses(void **state)
{
    const struct {
        const char *kernel;
        gv_dtype type;
    } cases[] = {
        {"index_logits_bf16", GV_DTYPE_BF16},
        {"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEE", GV_DTYPE_NONE},
        {"void at::native::kernel<8, at::native::FillFunctor<c10::BFloat16>>", GV_DTYPE_BF16},
        {"sm90_gemm_f16f16", GV_DTYPE_F16},
        {"cast_float_to_half", GV_DTYPE_NONE}, // two types: none of them is a guess
        {"use_left", GV_DTYPE_NONE},
        {"reduce_double", GV_DTYPE_F64},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (gv_dtype_guess(cases[i].kernel) != cases[i].type)
            fail_msg("%s: %s", cases[i].kernel, gv_dtype_name(gv_dtype_guess(cases[i].kernel)));
}

static void test_printing(void **state)
{
    char text[40];
    uint64_t bits = 0x3dcccccd;
    gv_element_print(GV_DTYPE_F32, &bits, text, sizeof text);
    assert_string_equal(text, "0.100000001");
    bits = 0xdeadbeef;
    gv_element_print(GV_DTYPE_NONE, &bits, text, sizeof text);
    assert_string_equal(text, "0xdeadbeef");
    bits = UINT64_MAX;
    gv_element_print(GV_DTYPE_I64, &bits, text, sizeof text);
    assert_string_equal(text, "-1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),     cmocka_unit_test(test_all_halves_are_told_apart),
        cmocka_unit_test(test_tolerances), cmocka_unit_test(test_types_have_names),
        cmocka_unit_test(test_guesses),    cmocka_unit_test(test_printing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
