// For tests: writes a tensor map of a matrix of bytes, as NVIDIA's tools encode it (docs/tensor-maps.md).
#ifndef GV_RECORD_TEST_MAP_H
#define GV_RECORD_TEST_MAP_H

#include <stdint.h>
#include <string.h>

// `columns` bytes in each of `rows` rows that lie `pitch` bytes apart. The address and the pitch are multiples of 16.
// `words` has room for a whole CUtensorMap.
static inline void test_map_encode(uint64_t words[16], uint64_t address, uint32_t columns, uint32_t rows,
                                   uint64_t pitch)
{
    const uint64_t made_by_tool = 2, rank = 2, type_u8 = 0, box_columns = 16, box_rows = 1;
    memset(words, 0, 16 * sizeof *words);
    words[0] = address;
    words[1] = made_by_tool | (rank - 1) << 4 | type_u8 << 7 | (pitch / 16) << 32;
    words[4] = (uint64_t)(rows - 1) << 32 | (columns - 1);
    words[6] = (box_columns - 1) << 56;
    words[7] = box_rows - 1;
}

#endif
