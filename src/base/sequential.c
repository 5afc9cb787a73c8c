#include "base/sequential.h"

#include "base/memory.h"
#include "base/statistics.h"

#include <math.h>
#include <stdbool.h>

const char *gv_verdict_name(gv_verdict verdict)
{
    switch (verdict) {
    case GV_UNDECIDED: return "undecided";
    case GV_LOW: return "low";
    case GV_HIGH: return "high";
    }
    return "unknown";
}

static bool makes_sense(const gv_sprt *t)
{
    return t->low >= 0 && t->low < t->high && t->high <= 1 && t->wrong_high > 0 && t->wrong_high < 1 &&
           t->wrong_low > 0 && t->wrong_low < 1;
}

// count * log(a / b), with 0 for no count however the quotient comes out.
static double weighed_log(uint64_t count, double a, double b)
{
    return count ? (double)count * (log(a) - log(b)) : 0;
}

double gv_sprt_evidence(const gv_sprt *test, uint64_t k, uint64_t n)
{
    if (!makes_sense(test) || k > n)
        return NAN;
    double failures = weighed_log(k, test->high, test->low);
    double rest = n > k ? (double)(n - k) * (log1p(-test->high) - log1p(-test->low)) : 0;
    // A failure that `low` = 0 excludes and a success that `high` = 1 excludes: no rate of the two fits, and a failure
    // was seen, which is what "above low" says.
    return isinf(failures) ? INFINITY : failures + rest;
}

gv_verdict gv_sprt_verdict(const gv_sprt *test, uint64_t k, uint64_t n)
{
    double evidence = gv_sprt_evidence(test, k, n);
    if (evidence >= -log(test->wrong_high))
        return GV_HIGH;
    if (evidence <= log(test->wrong_low))
        return GV_LOW;
    return GV_UNDECIDED;
}

uint64_t gv_sprt_fewest(const gv_sprt *test, gv_verdict verdict)
{
    if (!makes_sense(test) || verdict == GV_UNDECIDED)
        return 0;
    double one = gv_sprt_evidence(test, verdict == GV_HIGH, 1);
    double goal = verdict == GV_HIGH ? -log(test->wrong_high) : log(test->wrong_low);
    uint64_t n = isinf(one) ? 1 : (uint64_t)fmax(1, floor(goal / one));
    while (gv_sprt_verdict(test, verdict == GV_HIGH ? n : 0, n) != verdict)
        n++;
    return n;
}

gv_operation gv_sprt_operation(const gv_sprt *test, double rate, uint64_t step, uint64_t most)
{
    enum { MOST = 100000 };
    gv_operation result = {NAN, NAN, NAN, NAN};
    if (!makes_sense(test) || !(rate >= 0 && rate <= 1) || step == 0 || step > most || most > MOST)
        return result;
    double *open = gv_calloc(most + 1, sizeof *open), *after = gv_calloc(most + 1, sizeof *after);
    double *gain = gv_calloc(step + 1, sizeof *gain);
    if (open && after && gain) {
        result = (gv_operation){0};
        open[0] = 1;
        // The failures of sequences that are still undecided lie in a narrow band, from..to.
        uint64_t n = 0, from = 0, to = 0;
        while (n < most) {
            uint64_t add = most - n < step ? most - n : step;
            for (uint64_t j = 0; j <= add; j++)
                gain[j] = gv_binomial(j, add, rate);
            for (uint64_t k = from; k <= to; k++) {
                result.sessions += open[k] * (double)add;
                for (uint64_t j = 0; open[k] > 0 && j <= add; j++)
                    after[k + j] += open[k] * gain[j];
            }
            n += add;
            uint64_t last = to + add, first = from;
            from = last;
            to = first;
            for (uint64_t k = first; k <= last; k++) {
                double mass = after[k];
                after[k] = open[k] = 0;
                gv_verdict verdict = gv_sprt_verdict(test, k, n);
                if (verdict == GV_HIGH) {
                    result.high += mass;
                } else if (verdict == GV_LOW) {
                    result.low += mass;
                } else {
                    open[k] = mass;
                    from = k < from ? k : from;
                    to = k > to ? k : to;
                }
            }
            if (from > to)
                break;
        }
        for (uint64_t k = from; k <= to; k++)
            result.undecided += open[k];
    }
    gv_free(open);
    gv_free(after);
    gv_free(gain);
    return result;
}

// ---- Two rates ----------------------------------------------------------------------------------------------------

gv_contrast gv_contrast_open(double high, double low)
{
    return (gv_contrast){.high = high, .low = low};
}

// The log of the factor for a block when the first group's rate is p and the second's q.
static double block_evidence(double p, double q, uint64_t k1, uint64_t n1, uint64_t k2, uint64_t n2)
{
    double pooled = ((double)n1 * p + (double)n2 * q) / (double)(n1 + n2);
    return weighed_log(k1, p, pooled) + weighed_log(n1 - k1, 1 - p, 1 - pooled) + weighed_log(k2, q, pooled) +
           weighed_log(n2 - k2, 1 - q, 1 - pooled);
}

void gv_contrast_add(gv_contrast *contrast, uint64_t k1, uint64_t n1, uint64_t k2, uint64_t n2)
{
    if (n1 == 0 || n2 == 0 || k1 > n1 || k2 > n2)
        return;
    contrast->log_first += block_evidence(contrast->high, contrast->low, k1, n1, k2, n2);
    contrast->log_second += block_evidence(contrast->low, contrast->high, k1, n1, k2, n2);
    double larger = fmax(contrast->log_first, contrast->log_second);
    if (isinf(larger) && larger < 0)
        return; // both directions are impossible under the rates given
    double average = larger + log((exp(contrast->log_first - larger) + exp(contrast->log_second - larger)) / 2);
    contrast->best = fmax(contrast->best, average);
}

double gv_contrast_p(const gv_contrast *contrast)
{
    return fmin(1, exp(-contrast->best));
}
