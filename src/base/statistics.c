#include "base/statistics.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

// ---- Logarithms of factorials without cancellation ----------------------------------------------------------------
// A binomial probability is a product of numbers far outside a double's range whose logarithms nearly cancel. Loader
// ("Fast and accurate computation of binomial probabilities", 2000) splits off what cancels: Stirling's formula, its
// error, and the deviance, each of which is small and computed to full precision.

// log(Gamma(z)) minus Stirling's (z - 1/2) log z - z + log(2 pi) / 2, for z > 0 (DLMF 5.11.1).
static double stirling_error(double z)
{
    static const double half_log_two_pi = 0.91893853320467274178;
    if (z < 10) {
        // lgamma itself writes a global of libc; the _r form does not.
        int sign;
        return lgamma_r(z, &sign) - ((z - 0.5) * log(z) - z + half_log_two_pi);
    }
    double s = 1 / (z * z);
    return (1.0 / 12 - s * (1.0 / 360 - s * (1.0 / 1260 - s * (1.0 / 1680 - s * (1.0 / 1188 - s * 691.0 / 360360))))) /
           z;
}

// x log(x / mean) + mean - x: what x contributes to the deviance. Never negative.
static double deviance(double x, double mean)
{
    if (x == 0)
        return mean;
    double u = (x - mean) / mean;
    return mean * ((1 + u) * log1p(u) - u);
}

// x^a y^b / B(a, b) for y = 1 - x.
static double beta_kernel(double a, double b, double x, double y)
{
    static const double two_pi = 6.28318530717958647693;
    double sum = a + b;
    double exponent =
        stirling_error(sum) - stirling_error(a) - stirling_error(b) - deviance(a, sum * x) - deviance(b, sum * y);
    return sqrt(a / sum * b / two_pi) * exp(exponent);
}

// ---- The incomplete beta function ---------------------------------------------------------------------------------

// I_x(a, b) by the continued fraction DLMF 8.17.22, for x below (a + 1) / (a + b + 2), where it converges fast. It is
// evaluated from the front by the modified method of Lentz (Thompson and Barnett, 1986).
static double beta_fraction(double a, double b, double x, double y)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double value = d;
    for (double m = 1; m < 1e6; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 + even * d;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = 1 + even / c;
        c = fabs(c) < tiny ? tiny : c;
        value *= c * d;
        d = 1 + odd * d;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = 1 + odd / c;
        c = fabs(c) < tiny ? tiny : c;
        value *= c * d;
        if (fabs(c * d - 1) < 2 * DBL_EPSILON)
            break;
    }
    return beta_kernel(a, b, x, y) / a * value;
}

// Both tails at once: the small one keeps its precision, which 1 - (the other) would lose.
static void beta_tails(double a, double b, double x, double *below, double *above)
{
    double y = 1 - x;
    if (x <= 0 || y <= 0) {
        *below = x <= 0 ? 0 : 1;
        *above = 1 - *below;
    } else if (x < (a + 1) / (a + b + 2)) {
        *below = fmin(1, beta_fraction(a, b, x, y));
        *above = 1 - *below;
    } else {
        *above = fmin(1, beta_fraction(b, a, y, x));
        *below = 1 - *above;
    }
}

double gv_beta_regularised(double a, double b, double x)
{
    if (!(a > 0 && b > 0 && x >= 0 && x <= 1))
        return NAN;
    double below, above;
    beta_tails(a, b, x, &below, &above);
    return below;
}

// The x whose lower tail (or upper one) is `probability`. Newton's step where it stays inside the bracket, else the
// bracket is halved: geometrically while its ends are orders of magnitude apart, for quantiles near 0.
static double beta_solve(double a, double b, double probability, bool upper)
{
    double low = 0, high = 1, x = a / (a + b);
    for (int i = 0; i < 2000; i++) {
        double below, above;
        beta_tails(a, b, x, &below, &above);
        double off = upper ? probability - above : below - probability;
        if (off == 0)
            break;
        *(off > 0 ? &high : &low) = x;
        double density = beta_kernel(a, b, x, 1 - x) / (x * (1 - x));
        double next = x - off / density;
        if (!(next > low && next < high))
            next = high > 4 * low && high > DBL_MIN ? sqrt(fmax(low, DBL_MIN) * high) : low + (high - low) / 2;
        if (next == x || high - low <= high * DBL_EPSILON || fabs(next - x) <= x * DBL_EPSILON / 2)
            return next;
        x = next;
    }
    return x;
}

double gv_beta_quantile(double a, double b, double probability)
{
    if (!(a > 0 && b > 0 && probability >= 0 && probability <= 1))
        return NAN;
    if (probability == 0 || probability == 1)
        return probability;
    return beta_solve(a, b, probability, false);
}

// ---- Counts -------------------------------------------------------------------------------------------------------

double gv_binomial(uint64_t k, uint64_t n, double rate)
{
    if (!(rate >= 0 && rate <= 1))
        return NAN;
    if (k > n)
        return 0;
    if (rate == 0 || rate == 1)
        return k == (rate == 0 ? 0 : n);
    double x = (double)k, all = (double)n;
    if (k == 0)
        return exp(all * log1p(-rate));
    if (k == n)
        return exp(all * log(rate));
    // C(n, k) = (n / (k (n - k))) / B(k, n - k)
    return beta_kernel(x, all - x, rate, 1 - rate) * all / (x * (all - x));
}

double gv_binomial_at_most(uint64_t k, uint64_t n, double rate)
{
    if (!(rate >= 0 && rate <= 1))
        return NAN;
    if (k >= n)
        return 1;
    double below, above;
    beta_tails((double)k + 1, (double)(n - k), rate, &below, &above); // DLMF 8.17.5
    return above;
}

gv_interval gv_clopper_pearson(uint64_t k, uint64_t n, double confidence)
{
    gv_interval interval = {0, 1};
    if (k > n || !(confidence > 0 && confidence < 1))
        return (gv_interval){NAN, NAN};
    double tail = (1 - confidence) / 2, x = (double)k, rest = (double)(n - k);
    if (k > 0)
        interval.low = beta_solve(x, rest + 1, tail, false);
    if (k < n)
        interval.high = beta_solve(x + 1, rest, tail, true);
    return interval;
}

// ---- Fisher's exact test ------------------------------------------------------------------------------------------

// Tables with the same sums: the first group has n1 of the n1 + n2, and k of the `failed` ones.
typedef struct table_sums {
    double n1, n2, failed;
    double least, most; // what k can be
} table_sums;

// Probability of k + 1 over that of k.
static double step_up(const table_sums *t, double k)
{
    return (t->n1 - k) * (t->failed - k) / ((k + 1) * (t->n2 - t->failed + k + 1));
}

static double table_probability(const table_sums *t, double k)
{
    // The hypergeometric probability as a quotient of three binomial ones at the pooled rate, which all are moderate.
    double rate = t->failed / (t->n1 + t->n2);
    if (rate <= 0 || rate >= 1)
        return 1;
    return gv_binomial((uint64_t)k, (uint64_t)t->n1, rate) /
           gv_binomial((uint64_t)t->failed, (uint64_t)(t->n1 + t->n2), rate) *
           gv_binomial((uint64_t)(t->failed - k), (uint64_t)t->n2, rate);
}

// The sum of probabilities from k on in direction `up`, `k` included, of those tables that are no more probable than
// `limit`. Beyond the mode they only fall, so that the sum ends where it no longer grows.
static double tail_sum(const table_sums *t, double k, double probability, bool up, double limit)
{
    double sum = 0, correction = 0;
    while (k >= t->least && k <= t->most) {
        if (probability <= limit) {
            double term = probability - correction, next = sum + term;
            correction = next - sum - term;
            sum = next;
        }
        double ratio = up ? step_up(t, k) : k > t->least ? 1 / step_up(t, k - 1) : 0;
        if (ratio < 1 && probability < sum * DBL_EPSILON * (1 - ratio) / 8)
            break;
        probability *= ratio;
        k += up ? 1 : -1;
    }
    return sum;
}

double gv_fisher_exact(uint64_t k1, uint64_t n1, uint64_t k2, uint64_t n2, gv_side side)
{
    if (k1 > n1 || k2 > n2)
        return NAN;
    if (n1 == 0 || n2 == 0)
        return 1;
    table_sums t = {.n1 = (double)n1, .n2 = (double)n2, .failed = (double)(k1 + k2)};
    t.least = fmax(0, t.failed - t.n2);
    t.most = fmin(t.n1, t.failed);
    double k = (double)k1, mode = floor((t.n1 + 1) * (t.failed + 1) / (t.n1 + t.n2 + 2));
    mode = fmin(fmax(mode, t.least), t.most);
    double own = table_probability(&t, k);
    if (side != GV_TWO_SIDED) {
        // Away from the mode; a side that holds the mode is what the other side leaves.
        bool up = side == GV_FIRST_GREATER;
        if (up ? k >= mode : k <= mode)
            return fmin(1, tail_sum(&t, k, own, up, INFINITY));
        double next = up ? k - 1 : k + 1;
        double other = next >= t.least && next <= t.most ? table_probability(&t, next) : 0;
        return 1 - tail_sum(&t, next, other, !up, INFINITY);
    }
    // From the mode outwards in both directions. The own probability as reached from the mode is compared with the
    // others, so that rounding is the same on both sides of a tie.
    double peak = table_probability(&t, mode), limit = own * (1 + 1e-7);
    double sum = tail_sum(&t, mode, peak, true, limit);
    if (mode > t.least)
        sum += tail_sum(&t, mode - 1, peak / step_up(&t, mode - 1), false, limit);
    return fmin(1, sum);
}

// ---- Sample sizes -------------------------------------------------------------------------------------------------

// The counts outside [from, to] have less than 1e-13 together: they change no digit that is printed.
static void likely_counts(uint64_t n, double rate, uint64_t *from, uint64_t *to)
{
    double mean = (double)n * rate, reach = 8 * sqrt(mean * (1 - rate)) + 40;
    *from = mean > reach ? (uint64_t)(mean - reach) : 0;
    *to = mean + reach < (double)n ? (uint64_t)(mean + reach) : n;
}

double gv_fisher_power(uint64_t n, double rate1, double rate2, double level, gv_side side)
{
    if (!(rate1 >= 0 && rate1 <= 1 && rate2 >= 0 && rate2 <= 1 && level > 0 && level < 1))
        return NAN;
    uint64_t from1, to1, from2, to2;
    likely_counts(n, rate1, &from1, &to1);
    likely_counts(n, rate2, &from2, &to2);
    double power = 0;
    for (uint64_t k1 = from1; k1 <= to1; k1++) {
        double first = gv_binomial(k1, n, rate1);
        if (first < 1e-16)
            continue;
        double given = 0;
        for (uint64_t k2 = from2; k2 <= to2; k2++) {
            double second = gv_binomial(k2, n, rate2);
            if (second > 1e-16 && gv_fisher_exact(k1, n, k2, n, side) <= level)
                given += second;
        }
        power += first * given;
    }
    return fmin(1, power);
}

static bool in_open_unit(double x)
{
    return x > 0 && x < 1;
}

gv_sample_size gv_sessions_to_tell(double rate1, double rate2, double confidence)
{
    gv_sample_size size = {0};
    double apart = fabs(rate1 - rate2), level = 1 - confidence;
    if (!(rate1 >= 0 && rate1 <= 1 && rate2 >= 0 && rate2 <= 1 && in_open_unit(confidence)) || apart == 0)
        return size;
    // Power is a saw-tooth in n, so that only a walk finds the fewest. It begins below every n that could do: the two
    // rates must differ by more than the spread of their difference.
    double spread = rate1 * (1 - rate1) + rate2 * (1 - rate2);
    uint64_t n = (uint64_t)fmax(1, spread / (apart * apart));
    while (n <= GV_MOST_SESSIONS) {
        double power = gv_fisher_power(n, rate1, rate2, level, GV_TWO_SIDED);
        if (power >= confidence)
            return (gv_sample_size){.sessions = n, .power = power};
        // A tooth loses a few percent; far below the goal whole percents of n can be passed over, and in large groups
        // half a percent of n always.
        n += power < confidence - 0.3 * (1 + level) ? n / 16 + 1 : n / 200 + (n < 200);
    }
    return size;
}

gv_sample_size gv_sessions_to_classify(double low, double high, double confidence)
{
    gv_sample_size size = {0};
    if (!(low >= 0 && low < high && high <= 1 && in_open_unit(confidence)))
        return size;
    uint64_t most_fail = 0;
    for (uint64_t n = 1; n <= GV_MOST_SESSIONS; n++) {
        // The fewest failures to allow so that a low rate passes; more sessions never need fewer.
        while (gv_binomial_at_most(most_fail, n, low) < confidence)
            most_fail++;
        double caught = 1 - gv_binomial_at_most(most_fail, n, high);
        if (caught >= confidence)
            return (gv_sample_size){n, most_fail, fmin(caught, gv_binomial_at_most(most_fail, n, low))};
    }
    return size;
}

uint64_t gv_sessions_without_failure(double rate, double confidence)
{
    if (!in_open_unit(rate) || !in_open_unit(confidence))
        return 0;
    double n = log1p(-confidence) / log1p(-rate);
    // The quotient may come out a hair above the whole number that it is.
    double whole = round(n);
    return (uint64_t)(fabs(n - whole) < 1e-9 * whole ? whole : ceil(n));
}
