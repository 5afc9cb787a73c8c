// Number formats and a little arithmetic, the same on the host, in the software driver's kernels and on a GPU: bf16,
// fp8 e4m3, exp, 1/sqrt, and vectors of eight floats. Self-made, so that a kernel needs no mathematics library and
// computes nearly the same values everywhere.
#ifndef SPECIMEN_NUMERIC_H
#define SPECIMEN_NUMERIC_H

#ifdef __CUDACC__
#define NUMERIC static __host__ __device__ __forceinline__
#else
#define NUMERIC static inline __attribute__((always_inline, unused))
#endif

typedef unsigned short bf16;
typedef unsigned char fp8;

NUMERIC float float_of(unsigned bits)
{
    union {
        unsigned bits;
        float value;
    } both;
    both.bits = bits;
    return both.value;
}

NUMERIC unsigned bits_of(float value)
{
    union {
        unsigned bits;
        float value;
    } both;
    both.value = value;
    return both.bits;
}

NUMERIC float bf16_float(bf16 half)
{
    return float_of((unsigned)half << 16);
}

// To the nearest, ties to even; NaN stays one.
NUMERIC bf16 float_bf16(float value)
{
    unsigned bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (bf16)(bits >> 16 | 0x40);
    return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// e4m3: a sign, four bits of exponent (bias 7), three of fraction; no infinity, largest value 448. Shifted into a
// float's fields only the bias is wrong, by a factor of 2^120 that a multiplication sets right, subnormals included.
NUMERIC float fp8_float(fp8 value)
{
    float magnitude = float_of((unsigned)(value & 0x7f) << 20) * float_of(247u << 23);
    return float_of(bits_of(magnitude) | (unsigned)(value & 0x80) << 24);
}

// To the nearest, ties to even; beyond 448 it is 448.
NUMERIC fp8 float_fp8(float value)
{
    unsigned sign = bits_of(value) >> 24 & 0x80;
    float magnitude = float_of(bits_of(value) & 0x7fffffff);
    if (!(magnitude < 464))
        return (fp8)(sign | 0x7e);
    unsigned bits = bits_of(magnitude * float_of(7u << 23));
    return (fp8)(sign | (bits + 0x7ffff + (bits >> 20 & 1)) >> 20);
}

// e^x with a relative error below 1e-5; 0 below -87 and of NaN, and never infinite.
NUMERIC float fast_exp(float x)
{
    if (!(x > -87.0f))
        return 0;
    float scaled = (x < 88.0f ? x : 88.0f) * 1.44269504f;
    int whole = (int)(scaled + (scaled < 0 ? -0.5f : 0.5f));
    float y = (scaled - (float)whole) * 0.693147181f;
    float power = 1 + y * (1 + y * (0.5f + y * (1.0f / 6 + y * (1.0f / 24 + y * (1.0f / 120 + y / 720)))));
    return power * float_of((unsigned)(whole + 127) << 23);
}

// 1/sqrt(x) for positive x: a first guess from the bits, and Newton's steps.
NUMERIC float fast_rsqrt(float x)
{
    float y = float_of(0x5f3759df - (bits_of(x) >> 1));
    for (int i = 0; i < 3; i++)
        y = y * (1.5f - 0.5f * x * y * y);
    return y;
}

// A running product of vectors (`dot`): on a GPU one float, on the processor four lanes that are summed at the end.
//
// ---- Eight floats, loaded and stored as 16 bytes of bf16 or twice 16 bytes of fp32; addresses are aligned to that
// ----

#ifdef __CUDACC__

typedef struct __align__(16) half_line
{
    bf16 v[8];
}
half_line;
typedef struct __align__(16) quarter_line
{
    float v[4];
}
quarter_line;
typedef struct eight {
    float v[8];
} eight;

#define EIGHT(expression)                                                     \
    eight result;                                                             \
    _Pragma("unroll") for (int i = 0; i < 8; i++) result.v[i] = (expression); \
    return result
NUMERIC float eight_at(const eight *e, int i)
{
    return e->v[i];
}
NUMERIC void eight_set(eight *e, int i, float value)
{
    e->v[i] = value;
}
NUMERIC eight eight_all(float value)
{
    EIGHT(value);
}
NUMERIC eight eight_add(eight a, eight b)
{
    EIGHT(a.v[i] + b.v[i]);
}
NUMERIC eight eight_multiply(eight a, eight b)
{
    EIGHT(a.v[i] * b.v[i]);
}
typedef float dot;
NUMERIC dot dot_add(dot sum, eight a, eight b)
{
    for (int i = 0; i < 8; i++)
        sum += a.v[i] * b.v[i];
    return sum;
}
NUMERIC dot dot_none(void)
{
    return 0;
}
NUMERIC float dot_value(dot sum)
{
    return sum;
}
NUMERIC eight load_bf16(const bf16 *from)
{
    half_line line = *(const half_line *)from;
    EIGHT(bf16_float(line.v[i]));
}
NUMERIC eight load_float(const float *from)
{
    quarter_line low = *(const quarter_line *)from, high = *(const quarter_line *)(from + 4);
    EIGHT(i < 4 ? low.v[i & 3] : high.v[i & 3]);
}
NUMERIC void store_bf16(bf16 *to, eight value)
{
    half_line line;
    for (int i = 0; i < 8; i++)
        line.v[i] = float_bf16(value.v[i]);
    *(half_line *)to = line;
}
// Eight bytes, aligned to 8.
NUMERIC eight load_fp8(const fp8 *from)
{
    unsigned long long line = *(const unsigned long long *)from;
    EIGHT(fp8_float((fp8)(line >> 8 * i)));
}
NUMERIC void store_fp8(fp8 *to, eight value)
{
    unsigned long long line = 0;
    for (int i = 0; i < 8; i++)
        line |= (unsigned long long)float_fp8(value.v[i]) << 8 * i;
    *(unsigned long long *)to = line;
}
NUMERIC void store_float(float *to, eight value)
{
    quarter_line low, high;
    for (int i = 0; i < 4; i++) {
        low.v[i] = value.v[i];
        high.v[i] = value.v[i + 4];
    }
    *(quarter_line *)to = low;
    *(quarter_line *)(to + 4) = high;
}

#else // GCC's vectors: without them a kernel on the processor is three times slower

typedef float four __attribute__((vector_size(16)));
typedef unsigned four_bits __attribute__((vector_size(16)));
typedef unsigned short eight_halves __attribute__((vector_size(16)));
typedef struct eight {
    four low, high;
} eight;

NUMERIC float eight_at(const eight *e, int i)
{
    return i < 4 ? e->low[i] : e->high[i - 4];
}
NUMERIC void eight_set(eight *e, int i, float value)
{
    if (i < 4)
        e->low[i] = value;
    else
        e->high[i - 4] = value;
}
NUMERIC eight eight_all(float value)
{
    return (eight){(four){value, value, value, value}, (four){value, value, value, value}};
}
NUMERIC eight eight_add(eight a, eight b)
{
    return (eight){a.low + b.low, a.high + b.high};
}
NUMERIC eight eight_multiply(eight a, eight b)
{
    return (eight){a.low * b.low, a.high * b.high};
}
typedef four dot;
NUMERIC dot dot_add(dot sum, eight a, eight b)
{
    return sum + (a.low * b.low + a.high * b.high);
}
NUMERIC dot dot_none(void)
{
    return (four){0};
}
NUMERIC float dot_value(dot sum)
{
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}
NUMERIC eight load_bf16(const bf16 *from)
{
    eight_halves line = *(const eight_halves *)from, none = {0};
    return (eight){(four)__builtin_shuffle(none, line, (eight_halves){0, 8, 1, 9, 2, 10, 3, 11}),
                   (four)__builtin_shuffle(none, line, (eight_halves){4, 12, 5, 13, 6, 14, 7, 15})};
}
NUMERIC eight load_float(const float *from)
{
    return (eight){*(const four *)from, *(const four *)(from + 4)};
}
NUMERIC four fp8_four(four_bits bytes)
{
    four magnitude = (four)((bytes & 0x7f) << 20) * float_of(247u << 23);
    return (four)((four_bits)magnitude | (bytes & 0x80) << 24);
}
NUMERIC eight load_fp8(const fp8 *from)
{
    unsigned long long line = *(const unsigned long long *)from;
    unsigned low = (unsigned)line, high = (unsigned)(line >> 32);
    return (eight){fp8_four((four_bits){low, low >> 8, low >> 16, low >> 24} & 0xff),
                   fp8_four((four_bits){high, high >> 8, high >> 16, high >> 24} & 0xff)};
}
NUMERIC unsigned four_fp8(four value)
{
    four_bits bits = (four_bits)value, sign = bits >> 24 & 0x80;
    four magnitude = (four)(bits & 0x7fffffff);
    four_bits large = ~(four_bits)(magnitude < 464), small = (four_bits)(magnitude * float_of(7u << 23));
    small = (small + 0x7ffff + (small >> 20 & 1)) >> 20;
    four_bits bytes = sign | (large & 0x7e) | (~large & small);
    return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | bytes[3] << 24;
}
NUMERIC void store_fp8(fp8 *to, eight value)
{
    *(unsigned long long *)to = four_fp8(value.low) | (unsigned long long)four_fp8(value.high) << 32;
}
NUMERIC four_bits rounded(four value)
{
    four_bits bits = (four_bits)value;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
NUMERIC void store_bf16(bf16 *to, eight value)
{
    // Rounds as float_bf16 does, but for NaN, which may become an infinity here.
    *(eight_halves *)to = __builtin_shuffle((eight_halves)rounded(value.low), (eight_halves)rounded(value.high),
                                            (eight_halves){0, 2, 4, 6, 8, 10, 12, 14});
}
NUMERIC void store_float(float *to, eight value)
{
    *(four *)to = value.low;
    *(four *)(to + 4) = value.high;
}

#endif

NUMERIC eight eight_scale(eight a, float factor)
{
    return eight_multiply(a, eight_all(factor));
}

#endif
