// Elements of tensors, as numbers.
#include "gravel.h"
#include "record/probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
    int exponent_bits, mantissa_bits; // of the small floating-point formats
} dtypes[] = {
    [GRAVEL_BYTES] = {"bytes", 1, 0, 0},     [GRAVEL_F64] = {"f64", 8, 0, 0},   [GRAVEL_F32] = {"f32", 4, 0, 0},
    [GRAVEL_F16] = {"f16", 2, 5, 10},        [GRAVEL_BF16] = {"bf16", 2, 8, 7}, [GRAVEL_F8_E4M3] = {"f8_e4m3", 1, 4, 3},
    [GRAVEL_F8_E5M2] = {"f8_e5m2", 1, 5, 2}, [GRAVEL_I64] = {"i64", 8, 0, 0},   [GRAVEL_I32] = {"i32", 4, 0, 0},
    [GRAVEL_I8] = {"i8", 1, 0, 0},
};

static unsigned known(unsigned dtype)
{
    return dtype < sizeof dtypes / sizeof *dtypes ? dtype : GRAVEL_BYTES;
}

size_t gv_dtype_size(unsigned dtype)
{
    return dtypes[known(dtype)].size;
}

const char *gv_dtype_name(unsigned dtype)
{
    return dtypes[known(dtype)].name;
}

// IEEE 754's scheme; E4M3 (OCP 8-bit Floating Point Specification) has no infinities and one NaN, all bits set.
static double small_float(uint64_t bits, unsigned dtype)
{
    int e = dtypes[dtype].exponent_bits, m = dtypes[dtype].mantissa_bits;
    uint64_t mantissa = bits & ((1u << m) - 1), exponent = bits >> m & ((1u << e) - 1);
    double sign = bits >> (e + m) & 1 ? -1 : 1;
    int bias = (1 << (e - 1)) - 1;
    bool special = exponent == (1u << e) - 1;
    if (dtype == GRAVEL_F8_E4M3)
        special = special && mantissa == (1u << m) - 1;
    if (special)
        return mantissa ? NAN : sign * INFINITY;
    if (!exponent)
        return sign * ldexp((double)mantissa, 1 - bias - m);
    return sign * ldexp((double)(mantissa | 1u << m), (int)exponent - bias - m);
}

static double number(const unsigned char *at, unsigned dtype)
{
    uint64_t bits = 0;
    double wide;
    float narrow;
    memcpy(&bits, at, dtypes[dtype].size); // little-endian, as CUDA's hosts are
    switch (dtype) {
    case GRAVEL_F64: memcpy(&wide, at, sizeof wide); return wide;
    case GRAVEL_F32: memcpy(&narrow, at, sizeof narrow); return narrow;
    case GRAVEL_I64: return (double)(int64_t)bits;
    case GRAVEL_I32: return (double)(int32_t)bits;
    case GRAVEL_I8: return (double)(int8_t)bits;
    case GRAVEL_BYTES: return (double)bits;
    default: return small_float(bits, dtype);
    }
}

static void print(char *text, size_t size, const unsigned char *at, unsigned dtype)
{
    if (dtype == GRAVEL_I64) {
        int64_t whole;
        memcpy(&whole, at, sizeof whole);
        snprintf(text, size, "%lld", (long long)whole);
    } else if (dtype == GRAVEL_BYTES) {
        snprintf(text, size, "0x%02x", *at);
    } else {
        snprintf(text, size, "%.9g", number(at, dtype));
    }
}

void gv_values_compare(const void *graph, const void *eager, uint64_t rows, uint64_t row_bytes, unsigned dtype,
                       double tolerance, gv_value_differences *found)
{
    dtype = known(dtype);
    if (row_bytes % dtypes[dtype].size)
        dtype = GRAVEL_BYTES;
    if (dtype == GRAVEL_BYTES)
        tolerance = 0; // what they stand for is not known
    size_t size = dtypes[dtype].size;
    uint64_t in_row = row_bytes / size;
    *found = (gv_value_differences){.elements = rows * in_row};
    for (uint64_t row = 0; row < rows; row++) {
        const unsigned char *a = (const unsigned char *)graph + row * row_bytes;
        const unsigned char *b = (const unsigned char *)eager + row * row_bytes;
        uint64_t before = found->differing;
        if (memcmp(a, b, row_bytes) == 0)
            continue;
        for (uint64_t i = 0; i < in_row; i++, a += size, b += size) {
            if (memcmp(a, b, size) == 0)
                continue;
            double x = number(a, dtype), y = number(b, dtype), difference = fabs(x - y);
            double larger = fabs(x) > fabs(y) ? fabs(x) : fabs(y);
            // Equal infinities are equal bit by bit; an infinity is near no other number.
            if (tolerance > 0 && !isinf(larger) && difference <= tolerance * larger)
                continue;
            if (!found->differing++) {
                found->first_row = row;
                found->first_element = i;
                print(found->graph_value, sizeof found->graph_value, a, dtype);
                print(found->eager_value, sizeof found->eager_value, b, dtype);
            }
            // A NaN is larger than every number.
            if (isnan(difference) || difference > found->largest)
                found->largest = difference;
        }
        found->rows += found->differing > before;
    }
}
