// A tensor map (CUtensorMap): the 128-byte descriptor that a TMA tensor copy moves a box of a tensor by. Its format is
// undocumented; docs/tensor-maps.md says how it was read and checked. The same decoder runs in the patches on the
// device and on the host.
#ifndef GV_DEVICE_TENSOR_MAP_H
#define GV_DEVICE_TENSOR_MAP_H

#include <stdbool.h>
#include <stdint.h>

enum { GV_TENSOR_MAP_BYTES = 128, GV_TENSOR_MAP_RANK = 5 };

enum gv_tensor_map_mode { GV_TENSOR_MAP_TILED = 0, GV_TENSOR_MAP_IM2COL = 1 };

// A decoded map. Dimension 0 is the innermost one. Sizes are in elements, strides in bytes.
typedef struct gv_tensor_map {
    uint64_t address;                        // global address of element (0, ..., 0)
    uint32_t rank;                           // 1 to 5 (im2col: 3 to 5)
    uint32_t mode;                           // enum gv_tensor_map_mode
    uint32_t element_bytes;                  // 1, 2, 4 or 8
    uint32_t interleave;                     // CUtensorMapInterleave
    uint32_t swizzle;                        // CUtensorMapSwizzle: moves bytes in shared memory only
    uint64_t dims[GV_TENSOR_MAP_RANK];       // size of the tensor
    uint64_t strides[GV_TENSOR_MAP_RANK];    // strides[0] is element_bytes
    uint32_t box[GV_TENSOR_MAP_RANK];        // size of the box one copy moves
    uint32_t element_strides[GV_TENSOR_MAP_RANK];
} gv_tensor_map;

#endif
