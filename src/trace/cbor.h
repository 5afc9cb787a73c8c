// A small CBOR core (RFC 8949): what a trace file needs and nothing else. It is our own because the library inside
// the traced process may need nothing but libc at run time, and because everything it reads is hostile input.
//
// Written: unsigned integers, byte strings, text strings, arrays and maps, all of definite length and in the
// shortest form. Read: the same in any form RFC 8949 calls well-formed; every other well-formed item can be skipped.
#ifndef GV_TRACE_CBOR_H
#define GV_TRACE_CBOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- Writing --------------------------------------------------------------------------------------------------

// A growing byte buffer. Zero-initialise it. After an allocation failed, `failed` is set, the contents are as they
// were before the call that failed, and every later put does nothing, so that a caller checks once at the end.
typedef struct gv_buffer {
    uint8_t *data;
    size_t size, capacity;
    bool failed;
} gv_buffer;

// Makes room for `more` further bytes. False when memory is out.
bool gv_buffer_reserve(gv_buffer *buffer, size_t more);
void gv_buffer_put(gv_buffer *buffer, const void *data, size_t size);
void gv_buffer_free(gv_buffer *buffer);

void gv_cbor_put_unsigned(gv_buffer *buffer, uint64_t value);
void gv_cbor_put_bytes(gv_buffer *buffer, const void *data, size_t size);

// The text must be valid UTF-8 (gv_utf8_valid), as RFC 8949 section 3.1 asks.
void gv_cbor_put_text(gv_buffer *buffer, const char *text, size_t length);

// Heads only: `count` items (for a map, `count` pairs of items) must follow.
void gv_cbor_put_array(gv_buffer *buffer, uint64_t count);
void gv_cbor_put_map(gv_buffer *buffer, uint64_t count);

// The head of a byte string whose `size` bytes the caller puts next with gv_buffer_put.
void gv_cbor_put_bytes_head(gv_buffer *buffer, uint64_t size);

// Is this UTF-8 as RFC 3629 defines it (no overlong forms, no surrogates, nothing above U+10FFFF)?
bool gv_utf8_valid(const void *data, size_t size);

// ---- Reading --------------------------------------------------------------------------------------------------

// Deepest nesting of arrays, maps and tags that gv_cbor_skip accepts.
enum { GV_CBOR_NESTING_LIMIT = 32 };

// Major types of RFC 8949 section 3.1.
enum gv_cbor_major {
    GV_CBOR_UNSIGNED = 0,
    GV_CBOR_NEGATIVE = 1,
    GV_CBOR_BYTES = 2,
    GV_CBOR_TEXT = 3,
    GV_CBOR_ARRAY = 4,
    GV_CBOR_MAP = 5,
    GV_CBOR_TAG = 6,
    GV_CBOR_SIMPLE = 7
};

// A place in an encoded sequence. The read functions return false on anything but what they are asked for, leave
// `next` at the head of the refused item and set `problem` to a static text that says what was wrong.
typedef struct gv_cbor_cursor {
    const uint8_t *next;
    const uint8_t *limit;
    const char *problem;
} gv_cbor_cursor;

gv_cbor_cursor gv_cbor_open(const void *data, size_t size);
bool gv_cbor_at_end(const gv_cbor_cursor *cursor);

// Major type of the item that comes next, without reading it; false at the end.
bool gv_cbor_peek(const gv_cbor_cursor *cursor, enum gv_cbor_major *major);

bool gv_cbor_read_unsigned(gv_cbor_cursor *cursor, uint64_t *value);

// Strings of definite length; the result points into the input.
bool gv_cbor_read_bytes(gv_cbor_cursor *cursor, const uint8_t **data, size_t *size);
bool gv_cbor_read_text(gv_cbor_cursor *cursor, const char **text, size_t *length);

// Heads of arrays and maps of definite length. The count is at most what can still follow in the input, at one
// byte an item, so that it is safe to loop over; it is not safe to allocate by.
bool gv_cbor_read_array(gv_cbor_cursor *cursor, size_t *count);
bool gv_cbor_read_map(gv_cbor_cursor *cursor, size_t *count);

// Passes one item of any kind, indefinite lengths, tags and floats included.
bool gv_cbor_skip(gv_cbor_cursor *cursor);

#endif
