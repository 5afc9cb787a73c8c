#!/usr/bin/env python3
"""Writes test_statistics_reference.h: values of SciPy that src/base/statistics.c and sequential.c must agree with.

    python3 -m venv v && v/bin/pip install scipy && v/bin/python src/base/test_statistics_reference.py \
        > src/base/test_statistics_reference.h

Run by hand when cases are added; the build and the tests do not need SciPy.
"""
import random
import sys

import numpy
import scipy
from scipy import special, stats

random.seed(20261130)


def table(name, fields, rows):
    print(f"static const struct {{\n    {fields};\n}} {name}[] = {{")
    for row in rows:
        print("    {" + ", ".join(repr(float(x)) if isinstance(x, float) else str(x) for x in row) + "},")
    print("};\n")


def beta_rows():
    shapes = [(1, 1), (0.5, 0.5), (2, 3), (0.1, 7), (11, 50), (1, 60), (60, 1), (300, 700), (1, 10000), (5000, 5000),
              (12, 99989), (250000, 750000)]
    for a, b in shapes:
        mean = a / (a + b)
        for x in (mean / 1000, mean / 10, mean / 2, mean * 0.97, mean, min(mean * 1.05, 0.9999), (1 + mean) / 2):
            value = float(special.betainc(a, b, x))
            if value > 1e-290:
                yield float(a), float(b), float(x), value


def quantile_rows():
    for a, b in [(1, 1), (0.5, 0.5), (2, 3), (11, 50), (1, 60), (60, 1), (300, 701), (1, 10000), (13, 99988)]:
        for p in (1e-9, 0.0005, 0.005, 0.025, 0.5, 0.95, 0.995, 0.99995):
            yield float(a), float(b), p, float(special.betaincinv(a, b, p))


def interval_rows():
    for k, n in [(0, 1), (1, 1), (0, 60), (1, 60), (10, 60), (59, 60), (60, 60), (0, 40), (3, 200), (17, 1000),
                 (500, 1000), (12, 100000), (99999, 100000), (0, 1000000)]:
        for confidence in (0.5, 0.95, 0.99, 0.9999):
            # Not binomtest().proportion_ci(), whose root search stops at an absolute tolerance.
            tail = (1 - confidence) / 2
            low = float(special.betaincinv(k, n - k + 1, tail)) if k else 0.0
            high = float(special.betainccinv(k + 1, n - k, tail)) if k < n else 1.0
            yield k, n, confidence, low, high


def fisher_rows():
    fixed = [(10, 60, 0, 60), (0, 60, 10, 60), (0, 60, 0, 60), (3, 4, 1, 4), (10, 13, 2, 17), (60, 60, 0, 60),
             (5, 5, 5, 5), (1, 1000, 9, 1000), (150, 1000, 10, 1000), (30, 20000, 2, 10000), (0, 3, 50, 1000),
             (7, 60, 7, 61), (2, 7, 2, 7)]
    drawn = []
    for _ in range(60):
        n1, n2 = random.randint(1, 300), random.randint(1, 300)
        drawn.append((random.randint(0, n1), n1, random.randint(0, n2), n2))
    for k1, n1, k2, n2 in fixed + drawn:
        t = [[k1, n1 - k1], [k2, n2 - k2]]
        p = [float(stats.fisher_exact(t, side)[1]) for side in ("two-sided", "less", "greater")]
        yield (k1, n1, k2, n2, *p)


def binomial_rows():
    for k, n, rate in [(0, 60, 0.15), (10, 60, 0.15), (60, 60, 0.15), (3, 66, 0.01), (50, 1000, 0.05),
                       (0, 5, 0.0), (5, 5, 1.0), (1200, 100000, 0.01), (2, 1000000, 1e-6), (900, 1000, 0.15)]:
        yield k, n, rate, float(stats.binom.pmf(k, n, rate)), float(stats.binom.cdf(k, n, rate))


def rejected(n, level):
    return numpy.array([[stats.fisher_exact([[i, n - i], [j, n - j]])[1] <= level for j in range(n + 1)]
                        for i in range(n + 1)])


def power(n, rate1, rate2, level):
    i = numpy.arange(n + 1)
    return float(stats.binom.pmf(i, n, rate1) @ rejected(n, level) @ stats.binom.pmf(i, n, rate2))


def power_rows():
    for n, rate1, rate2, level in [(20, 0.5, 0.05, 0.05), (60, 0.15, 0.01, 0.05), (60, 0.15, 0.0, 0.01)]:
        yield n, rate1, rate2, level, power(n, rate1, rate2, level)


def size_rows():
    for rate1, rate2, confidence in [(0.5, 0.05, 0.95), (0.3, 0.0, 0.95), (0.9, 0.2, 0.99), (0.15, 0.01, 0.8)]:
        n = 1
        while power(n, rate1, rate2, 1 - confidence) < confidence:
            n += 1
        yield rate1, rate2, confidence, n


def classify_rows():
    for low, high, confidence in [(0.01, 0.15, 0.99), (0.01, 0.15, 0.95), (0.0, 0.15, 0.99), (0.05, 0.2, 0.99)]:
        n = 1
        while True:
            c = int(stats.binom.ppf(confidence, n, low))
            while c > 0 and stats.binom.cdf(c - 1, n, low) >= confidence:
                c -= 1
            if stats.binom.sf(c, n, high) >= confidence:
                break
            n += 1
        yield low, high, confidence, n, c


def sprt_rows():
    for low, high, error, rate, step, most in [(0.01, 0.15, 0.01, 0.0, 1, 200), (0.01, 0.15, 0.01, 0.15, 1, 200),
                                               (0.01, 0.15, 0.01, 0.05, 5, 60), (0.02, 0.2, 0.05, 0.2, 10, 35),
                                               (0.1, 0.3, 0.02, 0.1, 1, 500)]:
        open_, outcome, sessions, n = {0: 1.0}, {"low": 0.0, "high": 0.0}, 0.0, 0
        while n < most and open_:
            add = min(step, most - n)
            n += add
            sessions += sum(open_.values()) * add
            after = {}
            for k, mass in open_.items():
                for j in range(add + 1):
                    after[k + j] = after.get(k + j, 0.0) + mass * stats.binom.pmf(j, add, rate)
            open_ = {}
            for k, mass in after.items():
                evidence = k * numpy.log(high / low) + (n - k) * numpy.log((1 - high) / (1 - low))
                if evidence >= -numpy.log(error):
                    outcome["high"] += mass
                elif evidence <= numpy.log(error):
                    outcome["low"] += mass
                else:
                    open_[k] = mass
        yield (low, high, error, rate, step, most, float(outcome["low"]), float(outcome["high"]),
               float(sum(open_.values())), float(sessions))


print(f"// Written by src/base/test_statistics_reference.py with SciPy {scipy.__version__}, NumPy {numpy.__version__}, "
      f"Python {sys.version.split()[0]}.\n// clang-format off\n")
table("beta_reference", "double a, b, x, below", beta_rows())
table("quantile_reference", "double a, b, probability, x", quantile_rows())
table("binomial_reference", "uint64_t k, n; double rate, exactly, at_most", binomial_rows())
table("interval_reference", "uint64_t k, n; double confidence, low, high", interval_rows())
table("fisher_reference", "uint64_t k1, n1, k2, n2; double two_sided, less, greater", fisher_rows())
table("power_reference", "uint64_t n; double rate1, rate2, level, power", power_rows())
table("size_reference", "double rate1, rate2, confidence; uint64_t sessions", size_rows())
table("classify_reference", "double low, high, confidence; uint64_t sessions, most_fail", classify_rows())
table("sprt_reference", "double low, high, error, rate; uint64_t step, most; double called_low, called_high, undecided, "
      "sessions", sprt_rows())
