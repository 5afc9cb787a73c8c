// Sequential tests: looking at the counts after each trial and stopping as soon as they say enough, with errors that
// hold whenever one stops. Two are here: whether one rate is low or high, and whether two rates differ.
#ifndef GV_BASE_SEQUENTIAL_H
#define GV_BASE_SEQUENTIAL_H

#include <stdint.h>

// ---- One rate: low or high? ---------------------------------------------------------------------------------------
// Wald's sequential probability ratio test (Annals of Mathematical Statistics 16, 1945) of a rate `low` against a rate
// `high`. After k failures in n sessions the log likelihood ratio is
//     k log(high / low) + (n - k) log((1 - high) / (1 - low))
// The verdict is HIGH once it reaches log(1 / wrong_high), LOW once it is at or below log(wrong_low). These limits, a
// little wider than Wald's own, make the stated errors hold exactly and at every pattern of looks (Ville's inequality):
//     a rate of `low` or less is called HIGH with at most probability wrong_high;
//     a rate of `high` or more is called LOW with at most probability wrong_low.
// A rate in between may be called either, and both calls are then true as they are meant: HIGH says "above low", LOW
// says "below high". `low` may be 0 (then the first failure says HIGH), `high` may be 1.
typedef struct gv_sprt {
    double low, high;
    double wrong_high, wrong_low;
} gv_sprt;

typedef enum gv_verdict { GV_UNDECIDED, GV_LOW, GV_HIGH } gv_verdict;

// "undecided", "low" or "high". Never NULL.
const char *gv_verdict_name(gv_verdict verdict);

// The log likelihood ratio after k failures in n; infinite when `low` is 0 and k is not. NaN when the test makes no
// sense (low >= high, an error outside (0, 1), k > n).
double gv_sprt_evidence(const gv_sprt *test, uint64_t k, uint64_t n);

// The verdict for these counts. The caller stops at the first that is not GV_UNDECIDED and keeps it.
gv_verdict gv_sprt_verdict(const gv_sprt *test, uint64_t k, uint64_t n);

// The fewest sessions after which this test can say LOW (without a failure) and HIGH (all failed).
uint64_t gv_sprt_fewest(const gv_sprt *test, gv_verdict verdict);

typedef struct gv_operation {
    double low, high, undecided; // probabilities of the three verdicts
    double sessions;             // expected number
} gv_operation;

// What the test does at `rate` when it looks after every `step` sessions and gives up at `most`: exact, by summing over
// all sequences. All NaN when memory is out or an argument makes no sense (most above 100,000, step 0).
gv_operation gv_sprt_operation(const gv_sprt *test, double rate, uint64_t step, uint64_t most);

// ---- Two rates: do they differ? -----------------------------------------------------------------------------------
// An e-process of Turner, Ly and Gruenwald ("Generic e-variables for exact sequential k-sample tests that allow for
// optional stopping", 2021). Each block of m sessions of group A and n of group B multiplies the evidence for "A has
// the rate p, B has q" by its likelihood under (p, q) over its likelihood with both at the pooled (m p + n q) / (m +
// n). With equal rates each factor has expectation at most 1, so that the evidence ever exceeds 1 / x with at most
// probability x. The two directions are averaged.
typedef struct gv_contrast {
    double high, low;                   // the rates to tell apart
    double log_first, log_second, best; // evidence for "the first is high", "the second is", best average so far
} gv_contrast;

// Needs 0 <= low < high <= 1.
gv_contrast gv_contrast_open(double high, double low);

// Adds a block whose sizes n1 and n2 were settled before its outcomes were known. A block with an empty side adds
// nothing.
void gv_contrast_add(gv_contrast *contrast, uint64_t k1, uint64_t n1, uint64_t k2, uint64_t n2);

// The p value so far, valid whenever one stops: 1 / (largest evidence), at most 1.
double gv_contrast_p(const gv_contrast *contrast);

#endif
