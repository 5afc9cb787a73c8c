// Exact statistics of counts: how sure k corrupt sessions of n make one, whether two counts differ, and how many
// sessions a claim needs. Nothing here approximates by a normal distribution. Sequential tests are in sequential.h.
#ifndef GV_BASE_STATISTICS_H
#define GV_BASE_STATISTICS_H

#include <stdint.h>

typedef struct gv_interval {
    double low, high;
} gv_interval;

// The regularised incomplete beta function I_x(a, b) for a, b > 0 and x in [0, 1] (NIST Digital Library of Mathematical
// Functions, 8.17). NaN outside. Relative error below 1e-11 for a + b up to 10 million.
double gv_beta_regularised(double a, double b, double x);

// The x with I_x(a, b) = probability. NaN outside the domain.
double gv_beta_quantile(double a, double b, double probability);

// Of `n` independent trials that each fail with probability `rate`: the probability of exactly k failures, and of at
// most k.
double gv_binomial(uint64_t k, uint64_t n, double rate);
double gv_binomial_at_most(uint64_t k, uint64_t n, double rate);

// The interval of Clopper and Pearson (Biometrika 26, 1934) for a rate of which `k` in `n` were seen: whatever the rate
// is, the interval holds it with at least probability `confidence` (0 to 1, both excluded). It is (0, 1) for n = 0.
gv_interval gv_clopper_pearson(uint64_t k, uint64_t n, double confidence);

typedef enum gv_side {
    GV_TWO_SIDED,
    GV_FIRST_LESS,    // the alternative is that the first group's rate is lower
    GV_FIRST_GREATER, // ... higher
} gv_side;

// Fisher's exact test for `k1` of `n1` against `k2` of `n2`: the probability, both rates being equal and the sums as
// they are, of a table this far out or further. Two-sided: of every table that is no more probable than this one
// (probabilities that agree to 1 part in 10 million count as equal). 1 where a group is empty. k > n is NaN.
double gv_fisher_exact(uint64_t k1, uint64_t n1, uint64_t k2, uint64_t n2, gv_side side);

// The probability that Fisher's test of `n` against `n` sessions with rates `rate1` and `rate2` has p <= `level`.
double gv_fisher_power(uint64_t n, double rate1, double rate2, double level, gv_side side);

typedef struct gv_sample_size {
    uint64_t sessions;  // a group; 0: more than GV_MOST_SESSIONS
    uint64_t most_fail; // gv_sessions_to_classify: how many may fail in a group called good
    double power;       // the probability that the difference is seen
} gv_sample_size;

enum { GV_MOST_SESSIONS = 20000 };

// The fewest sessions a group so that Fisher's two-sided test at level 1 - `confidence` tells `rate1` from `rate2` with
// at least probability `confidence`. "15 % from 1 % at 99 %" is (0.15, 0.01, 0.99).
gv_sample_size gv_sessions_to_tell(double rate1, double rate2, double confidence);

// The fewest sessions of one group, with the most failures allowed, that calls a rate of `low` good and a rate of
// `high` bad, each with at least probability `confidence` (a single sampling plan). `power` is the smaller of the two.
gv_sample_size gv_sessions_to_classify(double low, double high, double confidence);

// How many sessions in a row without a failure show, with this confidence, that the rate is below `rate`; 0 when the
// arguments are not inside (0, 1).
uint64_t gv_sessions_without_failure(double rate, double confidence);

#endif
