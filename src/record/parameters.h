// What the parameters of one kernel launch lead to: device memory by address, and tensors by tensor map. Both forms in
// which a launch hands over its parameters are read (one pointer for each, or one block).
//
// Maps are always read from the parameters of the launch at hand. So it does not matter who encoded them: a program
// through cuTensorMapEncode*, a library by itself, or a cuTensorMapReplaceAddress in between (docs/tensor-maps.md).
#ifndef GV_RECORD_PARAMETERS_H
#define GV_RECORD_PARAMETERS_H

#include "base/error.h"
#include "device/tensor_map.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gv_parameter_kind {
    GV_PARAMETER_POINTER = 0,   // an 8-byte word that is the address of live device memory
    GV_PARAMETER_TENSOR_MAP = 1 // a tensor map whose tensor begins in live device memory
};

// One such value. A tensor map is listed once as a map, and its first word is not listed as a pointer as well,
// unless the map goes beyond live memory.
typedef struct gv_parameter {
    enum gv_parameter_kind kind;
    uint64_t where;      // its byte offset in the parameters
    uint64_t address;    // the pointer, or the address of the tensor's first element
    uint64_t start, end; // the live memory that `address` is in: one allocation, or for a map several that adjoin
    gv_tensor_map map;   // of a tensor map
    bool beyond; // its tensor goes beyond that memory: a map with generous sizes, or a pointer that looks like one
} gv_parameter;

typedef struct gv_parameters {
    gv_parameter *items; // in the order of `where`
    size_t count, capacity;
} gv_parameters;

// The block that a launch hands all its parameters over in, and its size; NULL: it hands them over one by one.
const unsigned char *gv_packed_parameters(const CUDA_KERNEL_NODE_PARAMS *params, size_t *size);

// Lists what the parameters hold. `function` may be a CUkernel. A CUDA context must be current. Works for any launch:
// a program's parameters are only read, at the sizes that the driver names. GV_ERR_MEMORY: memory ran out, and the list
// is not whole.
gv_status gv_parameters_read(gv_parameters *all, CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params,
                             gv_error *error);

void gv_parameters_free(gv_parameters *all);

// Is any 8-byte word of the parameters the address of live device memory? The same as a list that is not empty, at
// less cost.
bool gv_parameters_have_pointer(CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params);

#endif
