// Sequential tests: the exact operating characteristic against SciPy's, the stated errors, and what stopping early
// saves.
#include "base/sequential.h"

#include "base/statistics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// Of the reference tables only one is used here.
#pragma GCC diagnostic ignored "-Wunused-variable"
#include "base/test_statistics_reference.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void test_verdicts(void **state)
{
    gv_sprt test = {.low = 0.01, .high = 0.15, .wrong_high = 0.01, .wrong_low = 0.01};
    // ln(100) / ln(0.99 / 0.85) = 30.2 sessions without a failure; two failures in two are worth 2 ln(15) = 5.4 > 4.6.
    assert_int_equal(gv_sprt_verdict(&test, 0, 30), GV_UNDECIDED);
    assert_int_equal(gv_sprt_verdict(&test, 0, 31), GV_LOW);
    assert_int_equal(gv_sprt_verdict(&test, 1, 1), GV_UNDECIDED);
    assert_int_equal(gv_sprt_verdict(&test, 2, 2), GV_HIGH);
    assert_int_equal(gv_sprt_verdict(&test, 2, 8), GV_UNDECIDED);
    assert_int_equal(gv_sprt_verdict(&test, 3, 2), GV_UNDECIDED);
    assert_int_equal(gv_sprt_fewest(&test, GV_LOW), 31);
    assert_int_equal(gv_sprt_fewest(&test, GV_HIGH), 2);
    gv_sprt never = test;
    never.low = 0;
    assert_int_equal(gv_sprt_verdict(&never, 1, 200), GV_HIGH);
    assert_int_equal(gv_sprt_fewest(&never, GV_HIGH), 1);
    assert_int_equal(gv_sprt_verdict(&never, 0, 28), GV_UNDECIDED);
    assert_int_equal(gv_sprt_verdict(&never, 0, 29), GV_LOW);
    gv_sprt always = test;
    always.high = 1;
    assert_int_equal(gv_sprt_verdict(&always, 0, 1), GV_LOW);
    assert_int_equal(gv_sprt_verdict(&always, 1, 1), GV_HIGH);
    gv_sprt senseless = {.low = 0.2, .high = 0.1, .wrong_high = 0.01, .wrong_low = 0.01};
    assert_int_equal(gv_sprt_verdict(&senseless, 0, 1000), GV_UNDECIDED);
    assert_true(isnan(gv_sprt_operation(&senseless, 0.1, 1, 10).low));
    assert_string_equal(gv_verdict_name(GV_LOW), "low");
}

static void test_operation(void **state)
{
    for (size_t i = 0; i < COUNT(sprt_reference); i++) {
        gv_sprt test = {sprt_reference[i].low, sprt_reference[i].high, sprt_reference[i].error,
                        sprt_reference[i].error};
        gv_operation found =
            gv_sprt_operation(&test, sprt_reference[i].rate, sprt_reference[i].step, sprt_reference[i].most);
        assert_true(fabs(found.low - sprt_reference[i].called_low) < 1e-9);
        assert_true(fabs(found.high - sprt_reference[i].called_high) < 1e-9);
        assert_true(fabs(found.undecided - sprt_reference[i].undecided) < 1e-9);
        assert_true(fabs(found.sessions - sprt_reference[i].sessions) < 1e-9 * sprt_reference[i].sessions);
    }
}

// The errors stated hold for every rate on their side and every step.
static void test_errors(void **state)
{
    for (uint64_t step = 1; step <= 20; step += 3) {
        gv_sprt test = {.low = 0.02, .high = 0.15, .wrong_high = 0.02, .wrong_low = 0.03};
        for (double rate = 0; rate <= 0.02; rate += 0.002)
            assert_true(gv_sprt_operation(&test, rate, step, 2000).high <= 0.02);
        for (double rate = 0.15; rate <= 1; rate += 0.05)
            assert_true(gv_sprt_operation(&test, rate, step, 2000).low <= 0.03);
    }
}

// Against a fixed design with the same errors, at 15 % and at 0 %, less than half of the sessions.
static void test_savings(void **state)
{
    gv_sprt test = {.low = 0.01, .high = 0.15, .wrong_high = 0.01, .wrong_low = 0.01};
    double fixed = (double)gv_sessions_to_classify(0.01, 0.15, 0.99).sessions;
    double corrupt = gv_sprt_operation(&test, 0.15, 1, 1000).sessions;
    double clean = gv_sprt_operation(&test, 0, 1, 1000).sessions;
    assert_true(clean < fixed / 2 && corrupt < fixed / 2);
}

// With equal rates the p value falls below x at any time with at most probability x: summed exactly over all sequences
// of 14 pairs at the rate that makes it worst.
static double reached(double rate, double level, int left, gv_contrast contrast, double probability)
{
    if (gv_contrast_p(&contrast) <= level)
        return probability;
    if (left == 0)
        return 0;
    double sum = 0;
    for (uint64_t outcome = 0; outcome < 4; outcome++) {
        uint64_t k1 = outcome & 1, k2 = outcome >> 1;
        gv_contrast next = contrast;
        gv_contrast_add(&next, k1, 1, k2, 1);
        double own = (k1 ? rate : 1 - rate) * (k2 ? rate : 1 - rate);
        sum += own > 0 ? reached(rate, level, left - 1, next, probability * own) : 0;
    }
    return sum;
}

static void test_contrast_error(void **state)
{
    for (double rate = 0.1; rate < 1; rate += 0.2)
        assert_true(reached(rate, 0.25, 9, gv_contrast_open(0.8, 0.1), 1) <= 0.25);
}

static void test_contrast(void **state)
{
    gv_contrast contrast = gv_contrast_open(0.15, 0.01);
    assert_true(gv_contrast_p(&contrast) == 1);
    for (int i = 0; i < 9; i++)
        gv_contrast_add(&contrast, 1, 6, 0, 6);
    // By hand: each block multiplies by (0.15 / 0.08) (0.85 / 0.92)^5 (0.99 / 0.92)^6 one way; the other way dwindles.
    double factor = 0.15 / 0.08 * pow(0.85 / 0.92, 5) * pow(0.99 / 0.92, 6);
    double back = 0.01 / 0.08 * pow(0.99 / 0.92, 5) * pow(0.85 / 0.92, 6);
    assert_true(fabs(gv_contrast_p(&contrast) * (pow(factor, 9) + pow(back, 9)) / 2 - 1) < 1e-9);
    // Evidence once reached stays: what comes after does not take the p value back.
    double p = gv_contrast_p(&contrast);
    gv_contrast_add(&contrast, 0, 30, 9, 30);
    assert_true(gv_contrast_p(&contrast) == p);
    gv_contrast_add(&contrast, 0, 0, 9, 30);
    assert_true(gv_contrast_p(&contrast) == p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts), cmocka_unit_test(test_operation),      cmocka_unit_test(test_errors),
        cmocka_unit_test(test_savings),  cmocka_unit_test(test_contrast_error), cmocka_unit_test(test_contrast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
