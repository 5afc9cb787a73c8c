// Byte ranges as they stand in an access record: LEB128 numbers, alternately the gap from the end of the previous
// range (from 0 for the first) and the length. Ranges are half-open, ascending, disjoint and not adjacent.
#ifndef GV_TRACE_RANGES_H
#define GV_TRACE_RANGES_H

#include "base/error.h"
#include "trace/record.h"

#include <stdbool.h>

typedef struct gv_range {
    uint64_t start; // first byte
    uint64_t end;   // one past the last byte
} gv_range;

// Most bytes that `count` ranges can need when encoded.
size_t gv_ranges_encoded_bound(size_t count);

// Encodes normalised ranges into `out` (at least gv_ranges_encoded_bound bytes) and returns the length.
size_t gv_ranges_encode(const gv_range *ranges, size_t count, uint8_t *out);

// Reads encoded ranges one at a time. Hostile input is refused: a number past 64 bits, a zero length, a range past
// the end of the address space, a cut number, adjacent ranges.
typedef struct gv_range_cursor {
    const uint8_t *next;
    const uint8_t *limit;
    uint64_t position; // end of the range read last
    bool first;
    bool broken; // set when the bytes were not a valid encoding
} gv_range_cursor;

gv_range_cursor gv_range_cursor_open(gv_bytes encoded);

// Stores the next range and returns true; false at the end or when broken.
bool gv_range_cursor_next(gv_range_cursor *cursor, gv_range *range);

// Checks an encoding and counts its ranges and bytes (either pointer may be NULL).
gv_status gv_ranges_check(gv_bytes encoded, size_t *count, uint64_t *bytes, gv_error *error);

#endif
