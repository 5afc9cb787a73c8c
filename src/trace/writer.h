// Writes a trace file. Used inside the traced process and by `gravel run`, which appends symbols.
//
// Records are gathered in memory; a flush compresses them into one checksummed zstd frame and appends it with one
// write(2), so that a killed process leaves whole frames and at most one torn one. Thread-safe: one lock.
#ifndef GV_TRACE_WRITER_H
#define GV_TRACE_WRITER_H

#include "base/error.h"
#include "trace/record.h"

typedef struct gv_writer gv_writer;

// Creates (and truncates) `path`. The file appears at once, empty; frame 0 is written by the first flush.
// On failure *writer is NULL and error names path and cause. A file that another writer has open is left alone
// (GV_ERR_USAGE): the writer holds an flock(2) on it.
gv_status gv_writer_create(const char *path, gv_writer **writer, gv_error *error);

// Opens an existing trace to append frames after its last whole one (a torn tail is cut off). `next_sequence` and
// `next_record` continue its numbering; gv_reader tells them.
gv_status gv_writer_append(const char *path, uint64_t valid_bytes, uint64_t next_sequence, uint64_t next_record,
                           gv_writer **writer, gv_error *error);

// One function a record type: gv_write_process(writer, &record), gv_write_string(...), ... Copies what the record
// points to. A full buffer (256 KiB) flushes. After a failed write to the file, or when memory ran out, the writer is
// broken: it drops everything and every later call returns the first error's status; the target process must not
// notice. A record of more than 63 MiB is refused with GV_ERR_LIMIT and the writer goes on without it; a frame record
// with GV_ERR_USAGE, because the writer makes those itself.
#define GV_DECLARE_WRITE(number, name, FIELDS) \
    gv_status gv_write_##name(gv_writer *writer, const gv_##name##_record *record);
GV_RECORDS(GV_DECLARE_WRITE)

// Writes what is buffered as one frame. Does nothing when the buffer is empty.
gv_status gv_writer_flush(gv_writer *writer);

// Why the writer is broken, or NULL. The text lives as long as the writer.
const char *gv_writer_failure(gv_writer *writer);

// Bytes written to the file so far.
uint64_t gv_writer_file_bytes(gv_writer *writer);

// Flushes and closes. NULL is allowed.
gv_status gv_writer_close(gv_writer *writer);

// Forgets the file without flushing: for the child of a fork, whose copy of the buffer belongs to the parent.
void gv_writer_abandon(gv_writer *writer);

#endif
