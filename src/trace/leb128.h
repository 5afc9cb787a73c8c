// LEB128 numbers: seven bits a byte, lowest first, the high bit set on every byte but the last. Inline, because the
// reader passes over tens of millions of them.
#ifndef GV_TRACE_LEB128_H
#define GV_TRACE_LEB128_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { GV_LEB128_MAX_BYTES = 10 };

// Writes at most GV_LEB128_MAX_BYTES and returns how many.
static inline size_t gv_leb128_write(uint64_t value, uint8_t *out)
{
    size_t length = 0;
    while (value >= 0x80) {
        out[length++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    out[length++] = (uint8_t)value;
    return length;
}

// The general case of gv_leb128_read: near the end of the input, and for numbers of more than eight bytes.
static inline const uint8_t *gv_leb128_read_slow(const uint8_t *next, const uint8_t *limit, uint64_t *value)
{
    uint64_t sum = 0;
    for (unsigned shift = 0; next < limit && shift < 70; shift += 7) {
        uint8_t byte = *next++;
        if (shift == 63 && byte > 1)
            return NULL;
        sum |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (byte == 0 && shift != 0)
                return NULL;
            *value = sum;
            return next;
        }
    }
    return NULL;
}

// Reads one number and returns the place after it; NULL when it is cut off, does not fit into 64 bits, or is padded
// with zero groups. Padding is refused so that equal numbers have equal bytes.
static inline const uint8_t *gv_leb128_read(const uint8_t *next, const uint8_t *limit, uint64_t *value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    // Up to eight bytes at once and without a branch on the length: lengths vary from number to number, and a
    // mispredicted branch costs more than the whole of this.
    if (limit - next >= 8) {
        uint64_t word;
        memcpy(&word, next, sizeof word);
        uint64_t ends = ~word & UINT64_C(0x8080808080808080);
        if (ends) {
            uint64_t kept = word & (ends ^ (ends - 1)) & UINT64_C(0x7f7f7f7f7f7f7f7f);
            size_t length = ((size_t)__builtin_ctzll(ends) + 1) / 8;
            if (length > 1 && next[length - 1] == 0)
                return NULL;
            kept = (kept & UINT64_C(0x7f007f007f007f00)) >> 1 | (kept & UINT64_C(0x007f007f007f007f));
            kept = (kept & UINT64_C(0x3fff00003fff0000)) >> 2 | (kept & UINT64_C(0x00003fff00003fff));
            kept = (kept & UINT64_C(0x0fffffff00000000)) >> 4 | (kept & UINT64_C(0x000000000fffffff));
            *value = kept;
            return next + length;
        }
    }
#endif
    return gv_leb128_read_slow(next, limit, value);
}

#endif
