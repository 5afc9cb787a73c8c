// A tensor map (CUtensorMap): the 128-byte descriptor that a TMA tensor copy moves a box of a tensor by. Its format is
// undocumented; docs/tensor-maps.md says how it was read and checked. The same decoder runs in the patches on the
// device and on the host, so this header is C as well as CUDA C++ and calls nothing.
#ifndef GV_DEVICE_TENSOR_MAP_H
#define GV_DEVICE_TENSOR_MAP_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
// Loops over dimensions are unrolled on the device: arrays that are indexed by a variable would live in memory.
#define GV_SHARED_FUNCTION static __host__ __device__ __forceinline__
#define GV_UNROLL          _Pragma("unroll")
#else
#define GV_SHARED_FUNCTION static inline
#define GV_UNROLL
#endif

enum { GV_TENSOR_MAP_BYTES = 128, GV_TENSOR_MAP_WORDS = 16, GV_TENSOR_MAP_RANK = 5 };

enum gv_tensor_map_mode { GV_TENSOR_MAP_TILED = 0, GV_TENSOR_MAP_IM2COL = 1 };

// A decoded map. Dimension 0 is the innermost one. Sizes are in elements, strides in bytes.
//
// Types of 4 and 6 bits are described by bytes: element_bytes is 1 and dims[0] and box[0] count bytes, but the
// coordinates of a copy still count values of element_bits bits.
typedef struct gv_tensor_map {
    uint64_t address;                     // global address of element (0, ..., 0)
    uint32_t rank;                        // 1 to 5 (im2col: 3 to 5)
    uint32_t mode;                        // enum gv_tensor_map_mode
    uint32_t element_bytes;               // 1, 2, 4 or 8
    uint32_t interleave;                  // CUtensorMapInterleave
    uint32_t swizzle;                     // CUtensorMapSwizzle: moves bytes in shared memory only
    uint64_t dims[GV_TENSOR_MAP_RANK];    // size of the tensor; 1 from dimension `rank` on
    uint64_t strides[GV_TENSOR_MAP_RANK]; // strides[0] is element_bytes; 0 from dimension `rank` on
    uint32_t box[GV_TENSOR_MAP_RANK];     // size of the box one copy moves; 1 from dimension `rank` on
    uint32_t element_strides[GV_TENSOR_MAP_RANK];
    uint32_t element_bits; // of the type as the program named it: 4, 6, 8, 16, 32 or 64
} gv_tensor_map;

// Decodes the 16 words of a map. False when they are not a map this code understands: then nothing is known, not even
// that it is none.
GV_SHARED_FUNCTION bool gv_tensor_map_decode(const uint64_t *words, gv_tensor_map *map)
{
    uint32_t flags = (uint32_t)words[1];
    uint32_t rank = (flags >> 4 & 7) + 1, type = flags >> 7 & 15, interleave = flags >> 11 & 3;
    uint32_t stride_tops = (uint32_t)(words[3] >> 32); // bits 32 to 35 of each stride, counted in 16 bytes
    uint32_t traversal = (uint32_t)(words[6] >> 32), boxes = (uint32_t)words[7];
    // log2 of the bits of a type, a digit each. They stand in the order of PTX's tensormap.replace: u8, u16, u32, s32,
    // u64, s64, f16, f32, f32.ftz, f64, bf16, two of 4 bits, one of 6 bits (f).
    uint32_t size = (uint32_t)(0xf2246554665543ull >> 4 * type & 15);
    if (rank > GV_TENSOR_MAP_RANK || type > 13 || interleave > 2 || stride_tops >> 16 || flags >> 23 || words[0] == 0 ||
        words[0] >> 57 || words[0] & 15)
        return false;
    map->address = words[0];
    map->rank = rank;
    map->mode = GV_TENSOR_MAP_TILED;
    map->interleave = interleave;
    map->swizzle = flags >> 13 & 3;
    map->element_bits = size == 15 ? 6 : 1u << size;
    map->element_bytes = map->element_bits < 8 ? 1 : map->element_bits / 8;
    uint32_t lows[GV_TENSOR_MAP_RANK - 1] = {(uint32_t)(words[1] >> 32), (uint32_t)words[2], (uint32_t)(words[2] >> 32),
                                             (uint32_t)words[3]};
    bool possible = true;
    GV_UNROLL
    for (uint32_t i = 0; i < GV_TENSOR_MAP_RANK; i++) {
        uint32_t dim = (uint32_t)(words[4 + i / 2] >> i % 2 * 32);
        uint32_t box = i == 0 ? traversal >> 24 : boxes >> 8 * (i - 1) & 255;
        uint64_t stride = i == 0 ? 0 : (lows[i - 1] | (uint64_t)(stride_tops >> 4 * (i - 1) & 15) << 32) * 16;
        bool used = i < rank;
        // A field of a dimension that is not there is left at zero.
        possible = possible && (used || (!dim && !box && !stride));
        map->dims[i] = used ? (uint64_t)dim + 1 : 1;
        map->box[i] = used ? box + 1 : 1;
        map->strides[i] = i == 0 ? map->element_bytes : used ? stride : 0;
        map->element_strides[i] = used ? (traversal >> 3 * i & 7) + 1 : 1;
    }
    if (map->element_bits < 8) {
        possible = possible && map->dims[0] * map->element_bits % 8 == 0 && map->box[0] * map->element_bits % 8 == 0;
        map->dims[0] = map->dims[0] * map->element_bits / 8;
        map->box[0] = map->box[0] * map->element_bits / 8;
    }
    return possible;
}

#endif
