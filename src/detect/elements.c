#include "detect/elements.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Floating-point formats by their widths; `mantissa` without the hidden bit.
typedef struct format {
    const char *name;
    size_t size;
    bool floating;
    unsigned exponent, mantissa; // bits
    int digits;                  // decimal digits that tell any two values apart
} format;

static const format FORMATS[] = {
    [GV_DTYPE_NONE] = {"none", 4, false, 0, 0, 0},    [GV_DTYPE_F64] = {"f64", 8, true, 11, 52, 17},
    [GV_DTYPE_F32] = {"f32", 4, true, 8, 23, 9},      [GV_DTYPE_F16] = {"f16", 2, true, 5, 10, 5},
    [GV_DTYPE_BF16] = {"bf16", 2, true, 8, 7, 4},     [GV_DTYPE_F8E4M3] = {"f8e4m3", 1, true, 4, 3, 3},
    [GV_DTYPE_F8E5M2] = {"f8e5m2", 1, true, 5, 2, 3}, [GV_DTYPE_I64] = {"i64", 8, false, 0, 0, 0},
    [GV_DTYPE_I32] = {"i32", 4, false, 0, 0, 0},      [GV_DTYPE_I16] = {"i16", 2, false, 0, 0, 0},
    [GV_DTYPE_I8] = {"i8", 1, false, 0, 0, 0},        [GV_DTYPE_U32] = {"u32", 4, false, 0, 0, 0},
    [GV_DTYPE_U8] = {"u8", 1, false, 0, 0, 0},
};
enum { FORMAT_COUNT = sizeof FORMATS / sizeof *FORMATS };

static const struct {
    const char *name;
    gv_dtype type;
} ALIASES[] = {
    {"float64", GV_DTYPE_F64}, {"double", GV_DTYPE_F64}, {"float32", GV_DTYPE_F32}, {"float", GV_DTYPE_F32},
    {"float16", GV_DTYPE_F16}, {"half", GV_DTYPE_F16},   {"fp16", GV_DTYPE_F16},    {"bfloat16", GV_DTYPE_BF16},
    {"e4m3", GV_DTYPE_F8E4M3}, {"fp8", GV_DTYPE_F8E4M3}, {"e5m2", GV_DTYPE_F8E5M2}, {"int64", GV_DTYPE_I64},
    {"long", GV_DTYPE_I64},    {"int32", GV_DTYPE_I32},  {"int", GV_DTYPE_I32},     {"int16", GV_DTYPE_I16},
    {"int8", GV_DTYPE_I8},     {"uint32", GV_DTYPE_U32}, {"uint8", GV_DTYPE_U8},    {"bytes", GV_DTYPE_U8},
};

const char *gv_dtype_name(gv_dtype type)
{
    return FORMATS[type].name;
}

size_t gv_dtype_size(gv_dtype type)
{
    return FORMATS[type].size;
}

bool gv_dtype_parse(const char *name, gv_dtype *type)
{
    for (size_t i = 1; i < FORMAT_COUNT; i++)
        if (strcmp(FORMATS[i].name, name) == 0) {
            *type = (gv_dtype)i;
            return true;
        }
    for (size_t i = 0; i < sizeof ALIASES / sizeof *ALIASES; i++)
        if (strcmp(ALIASES[i].name, name) == 0) {
            *type = ALIASES[i].type;
            return true;
        }
    return false;
}

// ---- Guessing ----------------------------------------------------------------------------------------------------

// What names of kernels call the types. Longer words come first, and what they cover is not looked at again: "bf16"
// must not count as "f16".
static const struct {
    const char *word;
    gv_dtype type;
} WORDS[] = {
    {"bfloat16", GV_DTYPE_BF16}, {"bf16", GV_DTYPE_BF16}, {"e4m3", GV_DTYPE_F8E4M3}, {"e5m2", GV_DTYPE_F8E5M2},
    {"float16", GV_DTYPE_F16},   {"fp16", GV_DTYPE_F16},  {"half", GV_DTYPE_F16},    {"f16", GV_DTYPE_F16},
    {"float32", GV_DTYPE_F32},   {"fp32", GV_DTYPE_F32},  {"f32", GV_DTYPE_F32},     {"float", GV_DTYPE_F32},
    {"double", GV_DTYPE_F64},    {"fp64", GV_DTYPE_F64},  {"f64", GV_DTYPE_F64},     {"int64", GV_DTYPE_I64},
    {"i64", GV_DTYPE_I64},       {"int32", GV_DTYPE_I32}, {"i32", GV_DTYPE_I32},
};

gv_dtype gv_dtype_guess(const char *kernel)
{
    char name[1024];
    size_t length = strlen(kernel);
    gv_dtype found = GV_DTYPE_NONE;
    if (length >= sizeof name)
        length = sizeof name - 1;
    for (size_t i = 0; i < length; i++)
        name[i] = (char)tolower((unsigned char)kernel[i]);
    name[length] = '\0';
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++) {
        size_t size = strlen(WORDS[i].word);
        for (char *at = name; (at = strstr(at, WORDS[i].word)); at += size) {
            if (found != GV_DTYPE_NONE && found != WORDS[i].type)
                return GV_DTYPE_NONE;
            found = WORDS[i].type;
            memset(at, '_', size);
        }
    }
    return found;
}

// ---- Tolerances --------------------------------------------------------------------------------------------------

bool gv_tolerance_parse(const char *text, gv_tolerance *tolerance)
{
    char *end = NULL;
    *tolerance = (gv_tolerance){0};
    errno = 0;
    if (strcmp(text, "bitwise") == 0)
        return true;
    if (strncmp(text, "ulp=", 4) == 0) {
        tolerance->kind = GV_TOLERANCE_ULP;
        tolerance->ulps = strtoull(text + 4, &end, 10);
        return isdigit((unsigned char)text[4]) && !*end && !errno;
    }
    if (strncmp(text, "relative=", 9) == 0) {
        tolerance->kind = GV_TOLERANCE_RELATIVE;
        tolerance->relative = strtod(text + 9, &end);
        return text[9] && !*end && tolerance->relative >= 0 && isfinite(tolerance->relative);
    }
    return false;
}

// ---- Values ------------------------------------------------------------------------------------------------------

static uint64_t bits_of(gv_dtype type, const void *bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, bytes, FORMATS[type].size); // little-endian, as every machine with such a GPU is
    return bits;
}

double gv_element_value(gv_dtype type, const void *bytes)
{
    const format *f = &FORMATS[type];
    uint64_t bits = bits_of(type, bytes);
    switch (type) {
    case GV_DTYPE_I64: return (double)(int64_t)bits;
    case GV_DTYPE_I32: return (double)(int32_t)bits;
    case GV_DTYPE_I16: return (double)(int16_t)bits;
    case GV_DTYPE_I8: return (double)(int8_t)bits;
    default: break;
    }
    if (!f->floating)
        return (double)bits;
    uint64_t mantissa = bits & (((uint64_t)1 << f->mantissa) - 1);
    unsigned top = (1u << f->exponent) - 1, exponent = (unsigned)(bits >> f->mantissa) & top;
    bool negative = bits >> (f->mantissa + f->exponent) & 1;
    int bias = (int)(top >> 1);
    double value;
    if (type == GV_DTYPE_F8E4M3 && exponent == top)
        value = mantissa == 7 ? NAN : ldexp(1 + (double)mantissa / 8, (int)exponent - bias);
    else if (exponent == top)
        value = mantissa ? NAN : INFINITY;
    else if (exponent)
        value = ldexp((double)(mantissa | (uint64_t)1 << f->mantissa), (int)exponent - bias - (int)f->mantissa);
    else
        value = ldexp((double)mantissa, 1 - bias - (int)f->mantissa);
    return negative ? -value : value;
}

void gv_element_print(gv_dtype type, const void *bytes, char *text, size_t size)
{
    const format *f = &FORMATS[type];
    uint64_t bits = bits_of(type, bytes);
    if (f->floating)
        snprintf(text, size, "%.*g", f->digits, gv_element_value(type, bytes));
    else if (type == GV_DTYPE_NONE)
        snprintf(text, size, "0x%08" PRIx64, bits);
    else if (type == GV_DTYPE_I64)
        snprintf(text, size, "%" PRId64, (int64_t)bits);
    else
        snprintf(text, size, "%.0f", gv_element_value(type, bytes));
}

// How many values the format has between the two, for finite ones: their bits, as numbers with a sign, count them.
static uint64_t ulps_between(gv_dtype type, const void *a, const void *b)
{
    unsigned shift = (unsigned)FORMATS[type].size * 8 - 1;
    uint64_t x = bits_of(type, a), y = bits_of(type, b), magnitude = ((uint64_t)1 << shift) - 1;
    bool x_negative = x >> shift & 1, y_negative = y >> shift & 1;
    x &= magnitude;
    y &= magnitude;
    if (x_negative != y_negative)
        return x + y;
    return x > y ? x - y : y - x;
}

bool gv_elements_equal(gv_dtype type, const gv_tolerance *tolerance, const void *a, const void *b)
{
    if (memcmp(a, b, FORMATS[type].size) == 0)
        return true;
    // Of integers, and of bytes whose type is not known, near is not equal.
    if (tolerance->kind == GV_TOLERANCE_BITWISE || !FORMATS[type].floating)
        return false;
    double x = gv_element_value(type, a), y = gv_element_value(type, b);
    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y);
    if (isinf(x) || isinf(y))
        return x == y;
    if (tolerance->kind == GV_TOLERANCE_ULP)
        return ulps_between(type, a, b) <= tolerance->ulps;
    double larger = fabs(x) > fabs(y) ? fabs(x) : fabs(y);
    return fabs(x - y) <= tolerance->relative * larger;
}
