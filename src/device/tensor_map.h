// A tensor map (CUtensorMap): the descriptor that a TMA tensor copy moves a box of a tensor by. Its format is
// undocumented; docs/tensor-maps.md says how it was read and checked. The same code runs in the patches on the device
// and on the host, so this header is C as well as CUDA C++ and calls nothing.
#ifndef GV_DEVICE_TENSOR_MAP_H
#define GV_DEVICE_TENSOR_MAP_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define GV_SHARED_FUNCTION static __host__ __device__ __forceinline__
#else
#define GV_SHARED_FUNCTION static inline
#endif
// Loops over dimensions are unrolled on the device: arrays indexed by a variable would live in local memory.
#ifdef __CUDA_ARCH__
#define GV_UNROLL _Pragma("unroll")
#else
#define GV_UNROLL
#endif

enum {
    GV_TENSOR_MAP_BYTES = 64, // of the 128 of a CUtensorMap; what follows is not part of the descriptor
    GV_TENSOR_MAP_WORDS = GV_TENSOR_MAP_BYTES / 8,
    GV_TENSOR_MAP_RANK = 5
};

enum gv_tensor_map_mode { GV_TENSOR_MAP_TILED = 0, GV_TENSOR_MAP_IM2COL = 1 };

// A decoded map. Dimension 0 is the innermost one. Sizes are in elements, strides in bytes.
//
// Types of 4 and 6 bits are described by bytes: element_bytes is 1, and dims[0] and box[0] count bytes; the coordinates
// of a copy still count values of element_bits.
typedef struct gv_tensor_map {
    uint64_t address;                     // global address of element (0, ..., 0)
    uint32_t rank;                        // 1 to 5 (im2col: 3 to 5)
    uint32_t mode;                        // enum gv_tensor_map_mode
    uint32_t element_bytes;               // 1, 2, 4 or 8
    uint32_t interleave;                  // CUtensorMapInterleave: none, as interleaved maps are not decoded
    uint32_t swizzle;                     // 0 to 3, no swizzle to 128 bytes: moves bytes in shared memory only
    uint64_t dims[GV_TENSOR_MAP_RANK];    // size of the tensor; 1 from dimension `rank` on
    uint64_t strides[GV_TENSOR_MAP_RANK]; // strides[0] is element_bytes; 0 from dimension `rank` on
    uint32_t box[GV_TENSOR_MAP_RANK];     // size of the box one copy moves; im2col: box[0] is the channels, the rest 1
    uint32_t element_strides[GV_TENSOR_MAP_RANK];
    uint32_t element_bits; // of the type as the program named it: 4, 6, 8, 16, 32 or 64
} gv_tensor_map;

// Decodes the words of a map (GV_TENSOR_MAP_WORDS of them). False when they are not a map this code understands: then
// nothing is known, not even that it is none.
GV_SHARED_FUNCTION bool gv_tensor_map_decode(const uint64_t *words, gv_tensor_map *map)
{
    uint32_t flags = (uint32_t)words[1];
    uint32_t rank = (flags >> 4 & 7) + 1, type = flags >> 7 & 15, interleave = flags >> 11 & 3;
    uint32_t stride_tops = (uint32_t)(words[3] >> 32); // bits 32 to 35 of each stride, which counts 16 bytes
    uint32_t traversal = (uint32_t)(words[6] >> 32), boxes = (uint32_t)words[7], pixels = (uint32_t)(words[7] >> 32);
    bool tiled = !(flags & 1);
    bool possible = true, strides_set = true;
    // log2 of the bits of a type, one hexadecimal digit each, in the order u8, u16, u32, s32, u64, s64, f16, f32,
    // f32.ftz, f64, bf16, two of 4 bits, one of 6 bits (f).
    uint32_t size = (uint32_t)(0xf2246554665543ull >> 4 * type & 15);
    // How an interleaved tensor lies in memory has not been checked on any. Bit 1 is set by some encoders and not by
    // others.
    if (flags & 0xff80000cu || rank > GV_TENSOR_MAP_RANK || type > 13 || interleave || stride_tops >> 16 ||
        traversal & 0x00ff8000u || words[0] == 0 || words[0] >> 57 || words[0] & 15 ||
        (tiled ? pixels != 0 : pixels > 1023 || rank < 3))
        return false;
    map->address = words[0];
    map->rank = rank;
    map->mode = tiled ? GV_TENSOR_MAP_TILED : GV_TENSOR_MAP_IM2COL;
    map->interleave = interleave;
    map->swizzle = flags >> 13 & 3;
    map->element_bits = size == 15 ? 6 : 1u << size;
    map->element_bytes = map->element_bits < 8 ? 1 : map->element_bits / 8;
    const uint32_t strides[GV_TENSOR_MAP_RANK] = {0, (uint32_t)(words[1] >> 32), (uint32_t)words[2],
                                                  (uint32_t)(words[2] >> 32), (uint32_t)words[3]};
    GV_UNROLL
    for (uint32_t i = 0; i < GV_TENSOR_MAP_RANK; i++) {
        uint32_t dim = (uint32_t)(words[4 + i / 2] >> i % 2 * 32);
        uint32_t box = i == 0 ? traversal >> 24 : tiled ? boxes >> 8 * (i - 1) & 255 : 0;
        uint64_t top = i == 0 ? 0 : stride_tops >> 4 * (i - 1) & 15;
        bool used = i < rank;
        uint64_t stride = used ? (strides[i] | top << 32) * 16 : 0;
        uint32_t step = traversal >> 3 * i & 7;
        // The sizes of a dimension that is not there are zero. Its stride need not be: cuBLAS writes 2^32 there.
        possible = possible && (used || (!dim && !box && !step));
        strides_set = strides_set && (!used || i == 0 || dim == 0 || stride);
        map->dims[i] = (uint64_t)dim + 1;
        map->box[i] = box + 1;
        map->strides[i] = i == 0 ? map->element_bytes : stride;
        map->element_strides[i] = step + 1;
    }
    if (map->element_bits < 8) {
        possible = possible && map->dims[0] * map->element_bits % 8 == 0 && map->box[0] * map->element_bits % 8 == 0;
        map->dims[0] = map->dims[0] * map->element_bits / 8;
        map->box[0] = map->box[0] * map->element_bits / 8;
    }
    // Rules of cuTensorMapEncodeTiled: a stride is at least the size, and what is moved of a row is blocks of 16 bytes.
    return possible && strides_set && map->box[0] * map->element_bytes % 16 == 0;
}

// The bytes of global memory that one copy touches: runs of `row_bytes` bytes, `count` of them `stride` bytes apart,
// and that `outer` times over in up to three more dimensions (gv_tensor_outer). `outer` is 0 when the whole box lies
// outside the tensor.
typedef struct gv_tensor_rows {
    uint64_t address;
    uint32_t row_bytes;
    uint32_t count;
    uint64_t stride;
    uint32_t outer;
    uint32_t outer_count[GV_TENSOR_MAP_RANK - 2];
    uint64_t outer_stride[GV_TENSOR_MAP_RANK - 2];
} gv_tensor_rows;

// Which positions start, start + step, ... (`count` of them, at most 256; step at most 8) are in [0, size)? Stores the
// first and how many. All divisions are of small numbers.
GV_SHARED_FUNCTION void gv_tensor_clip(int32_t start, uint32_t step, uint32_t count, uint64_t size, uint32_t *first,
                                       uint32_t *inside)
{
    uint32_t skip = 0, reach = count * step;
    if (start < 0) {
        uint32_t below = 0u - (uint32_t)start;
        skip = below >= reach ? count : (below + step - 1) / step;
    }
    // The position of the first element that is inside, if any is.
    int64_t at = start + (int64_t)(skip * step);
    uint32_t room = at < 0 || (uint64_t)at >= size ? 0
                    : size - (uint64_t)at > reach  ? reach
                                                   : (uint32_t)(size - (uint64_t)at);
    uint32_t most = (room + step - 1) / step;
    *first = (uint32_t)at;
    *inside = most < count - skip ? most : count - skip;
}

// The rows of the box at `coordinates` (PTX ISA, tensor copies in tiled mode; coordinates may be negative or beyond the
// tensor, and what lies outside it is not touched). False when they are not known exactly (im2col, interleaved
// layouts): the copy touches nothing outside the tensor.
GV_SHARED_FUNCTION bool gv_tensor_map_rows(const gv_tensor_map *map, const int32_t *coordinates, gv_tensor_rows *rows)
{
    if (map->mode != GV_TENSOR_MAP_TILED)
        return false;
    uint32_t first, inside;
    // Values of less than a byte: the box is whole bytes, and so is where it may start.
    int32_t start = coordinates[0];
    if (map->element_bits < 8)
        start = start / 8 * (int32_t)map->element_bits + start % 8 * (int32_t)map->element_bits / 8;
    // There is no traversal stride in dimension 0.
    gv_tensor_clip(start, 1, map->box[0], map->dims[0], &first, &inside);
    rows->row_bytes = inside * map->element_bytes;
    rows->address = map->address + (uint64_t)first * map->element_bytes;
    rows->count = rows->outer = inside ? 1 : 0;
    rows->stride = 0;
    // Rows that adjoin are one row. A shared memory's worth of bytes is moved at most.
    bool adjoin = true;
    GV_UNROLL
    for (uint32_t i = 1; i < GV_TENSOR_MAP_RANK; i++) {
        uint32_t step = map->element_strides[i];
        uint64_t stride = map->strides[i] * step;
        inside = 1;
        if (i < map->rank) {
            gv_tensor_clip(coordinates[i], step, (map->box[i] + step - 1) / step, map->dims[i], &first, &inside);
            rows->address += (uint64_t)first * map->strides[i];
        }
        adjoin = adjoin && (inside == 1 || stride == rows->row_bytes);
        if (adjoin) {
            rows->row_bytes *= inside;
            rows->outer = inside ? rows->outer : 0;
            inside = 1;
        }
        if (i == 1) {
            rows->count = inside;
            rows->stride = stride;
        } else {
            rows->outer_count[i - 2] = inside;
            rows->outer_stride[i - 2] = stride;
        }
        rows->outer *= i == 1 && inside ? 1 : inside;
    }
    return true;
}

// Address of the first of the rows number `outer`, which is less than rows->outer.
GV_SHARED_FUNCTION uint64_t gv_tensor_outer(const gv_tensor_rows *rows, uint32_t outer)
{
    uint64_t address = rows->address;
    GV_UNROLL
    for (uint32_t i = 0; i < GV_TENSOR_MAP_RANK - 2; i++) {
        if (rows->outer_count[i] > 1) {
            address += outer % rows->outer_count[i] * rows->outer_stride[i];
            outer /= rows->outer_count[i];
        }
    }
    return address;
}

#endif
