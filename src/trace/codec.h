// Records to CBOR and back, both generated from the table in record.h.
#ifndef GV_TRACE_CODEC_H
#define GV_TRACE_CODEC_H

#include "base/error.h"
#include "trace/cbor.h"
#include "trace/record.h"

// Limits of the file format, the same for writer and reader (docs/trace-format.md).
#define GV_FRAME_LIMIT  ((size_t)64 << 20)                   // bytes of a frame once decompressed
#define GV_RECORD_LIMIT (GV_FRAME_LIMIT - ((size_t)1 << 20)) // bytes of one record as CBOR

// At most this many bytes a record of this type takes as CBOR.
size_t gv_record_bound(uint64_t type, const void *record);

// Appends a record of a known type; `record` is its struct (gv_process_record for GV_RECORD_process, ...). Fields
// that are zero or empty are left out. A text that is not valid UTF-8 (a file name may be any bytes) is written as
// a byte string. On failure buffer->failed is set and a part of the record may have been appended.
void gv_record_encode(gv_buffer *buffer, uint64_t type, const void *record);

// Where decoded NUMBERS fields are kept. Zero-initialise it; reused from record to record.
typedef struct gv_number_pool {
    struct gv_number_slot {
        uint64_t *items;
        size_t capacity;
    } slots[4]; // one for each NUMBERS field a record type may have
} gv_number_pool;

void gv_number_pool_free(gv_number_pool *pool);

// Reads the record at the cursor and moves past it. Its texts and bytes point into the input, its numbers into the
// pool, until the next call. Of a type this build does not know only `type` is set. GV_ERR_FORMAT when it is not a
// record: not [unsigned, map], a field of the wrong kind, a key given twice, a number field that is not LEB128.
gv_status gv_record_decode(gv_cbor_cursor *cursor, gv_number_pool *pool, gv_record *record, gv_error *error);

// The name of a record type, for messages ("access"); "unknown" for a number this build does not know.
const char *gv_record_type_name(uint64_t type);

// Finds the version in a frame record without relying on anything else of it, so that a file of a later major
// version can be named as such. False when this is not a frame record of any version: [0, {..., 1: major, ...}].
bool gv_record_peek_version(gv_cbor_cursor cursor, uint64_t *major, uint64_t *minor);

#endif
