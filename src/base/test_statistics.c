// Statistics: values of SciPy to a relative 1e-9 (test_statistics_reference.py), published tables, and the properties
// that define each function.
#include "base/statistics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/test_statistics_reference.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void check_close(double found, double wanted, double relative, const char *what, size_t row)
{
    if (!(fabs(found - wanted) <= relative * fabs(wanted)))
        fail_msg("%s, row %zu: %.17g, not %.17g", what, row, found, wanted);
}

static void test_beta(void **state)
{
    for (size_t i = 0; i < COUNT(beta_reference); i++)
        check_close(gv_beta_regularised(beta_reference[i].a, beta_reference[i].b, beta_reference[i].x),
                    beta_reference[i].below, 1e-9, "beta", i);
    assert_true(gv_beta_regularised(2, 3, 0) == 0 && gv_beta_regularised(2, 3, 1) == 1);
    assert_true(isnan(gv_beta_regularised(0, 3, 0.5)) && isnan(gv_beta_regularised(2, 3, 1.5)));
}

static void test_beta_quantile(void **state)
{
    for (size_t i = 0; i < COUNT(quantile_reference); i++)
        check_close(
            gv_beta_quantile(quantile_reference[i].a, quantile_reference[i].b, quantile_reference[i].probability),
            quantile_reference[i].x, 1e-9, "quantile", i);
    assert_true(gv_beta_quantile(2, 3, 0) == 0 && gv_beta_quantile(2, 3, 1) == 1);
    assert_true(isnan(gv_beta_quantile(2, -1, 0.5)) && isnan(gv_beta_quantile(2, 3, -0.5)));
}

static void test_binomial(void **state)
{
    for (size_t i = 0; i < COUNT(binomial_reference); i++) {
        uint64_t k = binomial_reference[i].k, n = binomial_reference[i].n;
        check_close(gv_binomial(k, n, binomial_reference[i].rate), binomial_reference[i].exactly, 1e-9, "binomial", i);
        check_close(gv_binomial_at_most(k, n, binomial_reference[i].rate), binomial_reference[i].at_most, 1e-9,
                    "at most", i);
    }
    assert_true(gv_binomial(3, 2, 0.5) == 0 && isnan(gv_binomial(1, 2, 1.5)));
    // Published tables of the cumulative binomial distribution (four places).
    assert_float_equal(gv_binomial_at_most(5, 20, 0.25), 0.6172, 5e-5);
    assert_float_equal(gv_binomial_at_most(3, 10, 0.3), 0.6496, 5e-5);
    assert_float_equal(gv_binomial_at_most(7, 15, 0.5), 0.5000, 5e-5);
}

static void test_interval(void **state)
{
    for (size_t i = 0; i < COUNT(interval_reference); i++) {
        gv_interval found =
            gv_clopper_pearson(interval_reference[i].k, interval_reference[i].n, interval_reference[i].confidence);
        check_close(found.low, interval_reference[i].low, 1e-9, "low", i);
        check_close(found.high, interval_reference[i].high, 1e-9, "high", i);
    }
    // Pearson and Hartley's table for n = 10, 95 %.
    const double table[][3] = {{0, 0, 0.3085}, {1, 0.0025, 0.4450}, {2, 0.0252, 0.5561}, {5, 0.1871, 0.8129}};
    for (size_t i = 0; i < COUNT(table); i++) {
        gv_interval found = gv_clopper_pearson((uint64_t)table[i][0], 10, 0.95);
        assert_float_equal(found.low, table[i][1], 5.1e-5);
        assert_float_equal(found.high, table[i][2], 5.1e-5);
    }
    gv_interval nothing = gv_clopper_pearson(0, 0, 0.95);
    assert_true(nothing.low == 0 && nothing.high == 1);
    assert_true(isnan(gv_clopper_pearson(3, 2, 0.95).low) && isnan(gv_clopper_pearson(1, 2, 1).low));
}

// The definition: the ends are the rates at which the count seen is just as improbable as the tails allow, so that the
// interval covers every rate at least as often as promised.
static void test_interval_covers(void **state)
{
    for (double rate = 0.005; rate < 1; rate += 0.0173) {
        double covered = 0;
        for (uint64_t k = 0; k <= 40; k++) {
            gv_interval found = gv_clopper_pearson(k, 40, 0.9);
            if (found.low <= rate && rate <= found.high)
                covered += gv_binomial(k, 40, rate);
        }
        assert_true(covered >= 0.9);
    }
}

static void test_fisher(void **state)
{
    for (size_t i = 0; i < COUNT(fisher_reference); i++) {
        uint64_t k1 = fisher_reference[i].k1, n1 = fisher_reference[i].n1;
        uint64_t k2 = fisher_reference[i].k2, n2 = fisher_reference[i].n2;
        check_close(gv_fisher_exact(k1, n1, k2, n2, GV_TWO_SIDED), fisher_reference[i].two_sided, 1e-9, "two", i);
        check_close(gv_fisher_exact(k1, n1, k2, n2, GV_FIRST_LESS), fisher_reference[i].less, 1e-9, "less", i);
        check_close(gv_fisher_exact(k1, n1, k2, n2, GV_FIRST_GREATER), fisher_reference[i].greater, 1e-9, "more", i);
        // Which group is called the first does not matter.
        check_close(gv_fisher_exact(k2, n2, k1, n1, GV_TWO_SIDED), fisher_reference[i].two_sided, 1e-9, "swapped", i);
    }
    // Fisher's own examples: the lady tasting tea (1935), 17 / 70 for three of four right, and the convictions of
    // twins.
    check_close(gv_fisher_exact(3, 4, 1, 4, GV_FIRST_GREATER), 17.0 / 70, 1e-12, "tea", 0);
    check_close(gv_fisher_exact(2, 17, 10, 13, GV_FIRST_LESS), 619.0 / 1330665, 1e-12, "twins", 0);
    assert_true(gv_fisher_exact(0, 0, 3, 4, GV_TWO_SIDED) == 1 && isnan(gv_fisher_exact(5, 4, 0, 4, GV_TWO_SIDED)));
    // Far from the mode, where the own probability is below what a double holds.
    assert_true(gv_fisher_exact(5000, 5000, 0, 5000, GV_FIRST_LESS) == 1);
    assert_true(gv_fisher_exact(5000, 5000, 0, 5000, GV_TWO_SIDED) < 1e-300);
}

static void test_sizes(void **state)
{
    for (size_t i = 0; i < COUNT(power_reference); i++)
        check_close(gv_fisher_power(power_reference[i].n, power_reference[i].rate1, power_reference[i].rate2,
                                    power_reference[i].level, GV_TWO_SIDED),
                    power_reference[i].power, 1e-9, "power", i);
    for (size_t i = 0; i < COUNT(size_reference); i++) {
        double rate1 = size_reference[i].rate1, rate2 = size_reference[i].rate2;
        gv_sample_size found = gv_sessions_to_tell(rate1, rate2, size_reference[i].confidence);
        assert_int_equal(found.sessions, size_reference[i].sessions);
        assert_true(found.power >= size_reference[i].confidence);
        assert_int_equal(gv_sessions_to_tell(rate2, rate1, size_reference[i].confidence).sessions, found.sessions);
    }
    for (size_t i = 0; i < COUNT(classify_reference); i++) {
        gv_sample_size found = gv_sessions_to_classify(classify_reference[i].low, classify_reference[i].high,
                                                       classify_reference[i].confidence);
        assert_int_equal(found.sessions, classify_reference[i].sessions);
        assert_int_equal(found.most_fail, classify_reference[i].most_fail);
    }
    // The question of the documentation: 15 % from 1 % at 99 %. One session fewer is not enough.
    gv_sample_size asked = gv_sessions_to_tell(0.15, 0.01, 0.99);
    assert_true(asked.sessions > 100 && asked.sessions < 200);
    assert_true(gv_fisher_power(asked.sessions - 1, 0.15, 0.01, 0.01, GV_TWO_SIDED) < 0.99);
    assert_int_equal(gv_sessions_to_tell(0.1, 0.1, 0.99).sessions, 0);
    assert_int_equal(gv_sessions_to_classify(0.2, 0.1, 0.99).sessions, 0);
}

static void test_without_failure(void **state)
{
    assert_int_equal(gv_sessions_without_failure(0.15, 0.99), 29);
    assert_int_equal(gv_sessions_without_failure(0.5, 0.75), 2); // 0.5 * 0.5 = 0.25 exactly
    assert_int_equal(gv_sessions_without_failure(0.5, 0.7500001), 3);
    assert_int_equal(gv_sessions_without_failure(0.05, 0.95), 59);
    assert_int_equal(gv_sessions_without_failure(0, 0.95), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beta),     cmocka_unit_test(test_beta_quantile),   cmocka_unit_test(test_binomial),
        cmocka_unit_test(test_interval), cmocka_unit_test(test_interval_covers), cmocka_unit_test(test_fisher),
        cmocka_unit_test(test_sizes),    cmocka_unit_test(test_without_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
