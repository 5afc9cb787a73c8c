// Memory as elements: two copies of it compared under a type and a tolerance.
#ifndef GV_DETECT_ELEMENTS_H
#define GV_DETECT_ELEMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum gv_dtype {
    GV_DTYPE_NONE, // not known: four bytes, printed as they are
    GV_DTYPE_F64,
    GV_DTYPE_F32,
    GV_DTYPE_F16,
    GV_DTYPE_BF16,
    GV_DTYPE_F8E4M3, // OCP 8-bit floating point: no infinity
    GV_DTYPE_F8E5M2,
    GV_DTYPE_I64,
    GV_DTYPE_I32,
    GV_DTYPE_I16,
    GV_DTYPE_I8,
    GV_DTYPE_U32,
    GV_DTYPE_U8,
} gv_dtype;

// Its name in options, traces and reports ("bf16"; "none").
const char *gv_dtype_name(gv_dtype type);

// False when no type has this name; names that PyTorch and CUDA use are known too ("float32", "bfloat16", "half").
bool gv_dtype_parse(const char *name, gv_dtype *type);

// Bytes of an element.
size_t gv_dtype_size(gv_dtype type);

// A guess from a kernel's name, as the driver gives it: the type that it names, GV_DTYPE_NONE when it names none or
// several.
gv_dtype gv_dtype_guess(const char *kernel);

enum gv_tolerance_kind { GV_TOLERANCE_BITWISE, GV_TOLERANCE_ULP, GV_TOLERANCE_RELATIVE };

// Elements count as equal that are at most so many units in the last place apart, or so much of the larger of their
// magnitudes. NaN is equal to NaN unless the tolerance is bitwise, and to nothing else.
typedef struct gv_tolerance {
    enum gv_tolerance_kind kind;
    uint64_t ulps;
    double relative;
} gv_tolerance;

// "bitwise", "ulp=N", "relative=X". False: it is none of them.
bool gv_tolerance_parse(const char *text, gv_tolerance *tolerance);

// The element at `bytes` as a number; of integers beyond 2^53 the nearest.
double gv_element_value(gv_dtype type, const void *bytes);

// The same in text, with as many digits as tell it from its neighbours.
void gv_element_print(gv_dtype type, const void *bytes, char *text, size_t size);

// Are the two elements equal under the tolerance? Bits that are equal always are.
bool gv_elements_equal(gv_dtype type, const gv_tolerance *tolerance, const void *a, const void *b);

#endif
