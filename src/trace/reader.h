// Reads a trace file record by record. The file is hostile input: sizes, counts and nesting are bounded, nothing is
// allocated on the word of a length field alone, and the worst a bad file can do is to end the reading with a
// message.
#ifndef GV_TRACE_READER_H
#define GV_TRACE_READER_H

#include "base/error.h"
#include "trace/record.h"

#include <stdbool.h>

typedef struct gv_reader gv_reader;

// Opens `path`. Refuses, each with its own clear message: what cannot be opened, a directory, an empty file, a file
// that does not begin with a zstd frame holding a gravel frame record, a later major version (GV_ERR_VERSION).
gv_status gv_reader_open(const char *path, gv_reader **reader, gv_error *error);

// The same for bytes in memory, which must outlive the reader (fuzzing, tests).
gv_status gv_reader_open_memory(const void *data, size_t size, gv_reader **reader, gv_error *error);

// Hands out the next record. Its pointers are valid until the next call. Sets *more to false at the end. Frame
// records are consumed and checked by the reader itself. Damage after the first whole frame is no error: reading
// ends there and gv_reader_truncation says so. GV_ERR_MEMORY is the only failure.
gv_status gv_reader_next(gv_reader *reader, gv_record *record, bool *more, gv_error *error);

// NULL when the file was read to its end without damage, else a sentence on where and why reading stopped.
const char *gv_reader_truncation(const gv_reader *reader);

// For a caller that finds the record handed out last to break a rule of the format: ends the reading there, as damage;
// gv_reader_truncation then names the record and says `why`.
void gv_reader_reject(gv_reader *reader, const char *why);

// Where the valid part ends, and the numbering a writer must go on with.
void gv_reader_position(const gv_reader *reader, uint64_t *valid_bytes, uint64_t *next_sequence, uint64_t *next_record);

void gv_reader_close(gv_reader *reader);

#endif
