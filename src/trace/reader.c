// The trace reader: see reader.h. Frames come out of the file one at a time, are checked and decompressed whole, and
// are then taken apart record by record.
#define ZSTD_STATIC_LINKING_ONLY // ZSTD_getFrameHeader, and ZSTD_customMem so that tests can make zstd's memory fail
#include "trace/reader.h"

#include "base/memory.h"
#include "trace/codec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

enum {
    READ_BYTES = 1 << 20,    // how much of the file is asked for at a time, at least
    TRUSTED_BYTES = 1 << 20, // a content size up to here is believed; beyond, the buffer grows with what comes out
    WINDOW_LIMIT = 8 << 20,  // zstd's window: memory it asks for on the word of a header
    SKIPPABLE_HEADER = 8
};

// No frame whose content keeps GV_FRAME_LIMIT is longer than this when compressed.
#define COMPRESSED_LIMIT (ZSTD_COMPRESSBOUND(GV_FRAME_LIMIT) + ZSTD_FRAMEHEADERSIZE_MAX + 4)

struct gv_reader {
    // The input. `data` + `begin` is the first byte not yet consumed, at file offset `offset`.
    int file;        // -1: all is in memory
    uint8_t *window; // what was read of the file and not yet consumed; `data` points to it
    size_t window_capacity;
    const uint8_t *data;
    size_t begin, end;
    uint64_t offset;
    bool input_ended;

    // The frame at hand.
    ZSTD_DCtx *zstd;
    uint8_t *content;
    size_t content_capacity;
    gv_cbor_cursor cursor;
    uint64_t frame_offset; // where the frame at hand begins in the file
    gv_number_pool numbers;

    uint64_t sequence, record;                        // of the frame and the record to come
    uint64_t valid_bytes, next_sequence, next_record; // after the last frame that was read to its end

    gv_error stop; // why reading ended early; status GV_OK as long as it did not
};

// ---- Input ----------------------------------------------------------------------------------------------------

static const uint8_t *input(const gv_reader *reader)
{
    return reader->data + reader->begin;
}

static size_t available(const gv_reader *reader)
{
    return reader->end - reader->begin;
}

static void consume(gv_reader *reader, size_t bytes)
{
    reader->begin += bytes;
    reader->offset += bytes;
}

// Ends the reading for good. The text becomes the truncation sentence.
#define STOP(reader, status, ...) ((void)gv_fail(&(reader)->stop, status, __VA_ARGS__))

// Makes at least `wanted` bytes available unless the input ends before. Reading ahead is bounded by what the file
// really holds, never by what a field claims.
static gv_status fill(gv_reader *reader, size_t wanted, gv_error *error)
{
    while (available(reader) < wanted && !reader->input_ended) {
        if (reader->begin) {
            memmove(reader->window, input(reader), available(reader));
            reader->end -= reader->begin;
            reader->begin = 0;
        }
        if (!GV_GROW(reader->window, reader->window_capacity, reader->end + READ_BYTES))
            return gv_fail(error, GV_ERR_MEMORY, "no memory to read the trace");
        reader->data = reader->window;
        ssize_t got = read(reader->file, reader->window + reader->end, reader->window_capacity - reader->end);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            STOP(reader, GV_ERR_IO, "reading failed at byte %llu: %s",
                 (unsigned long long)(reader->offset + available(reader)), strerror(errno));
            reader->input_ended = true;
        } else if (got == 0) {
            reader->input_ended = true;
        } else {
            reader->end += (size_t)got;
        }
    }
    return GV_OK;
}

static uint32_t little_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static bool stopped(const gv_reader *reader)
{
    return reader->stop.status != GV_OK;
}

static void stop_torn(gv_reader *reader)
{
    if (!stopped(reader))
        STOP(reader, GV_ERR_FORMAT,
             "the file ends inside the frame that begins at byte %llu, as after a kill or a full disk%s",
             (unsigned long long)reader->offset, reader->sequence ? "; everything before that was read" : "");
}

// Passes the skippable frame at hand (RFC 8878 section 3.1.2), whatever its length.
static gv_status pass_skippable(gv_reader *reader, gv_error *error)
{
    uint64_t left = SKIPPABLE_HEADER + (uint64_t)little_endian(input(reader) + 4);
    uint64_t start = reader->offset;
    while (left) {
        gv_status status = fill(reader, 1, error);
        if (status != GV_OK)
            return status;
        size_t step = available(reader) < left ? available(reader) : (size_t)left;
        if (step == 0) {
            reader->offset = start;
            stop_torn(reader);
            return GV_OK;
        }
        consume(reader, step);
        left -= step;
    }
    return GV_OK;
}

// ---- Frames ---------------------------------------------------------------------------------------------------

// Makes one whole compressed frame available and stores its length; 0 when there is none (end of the input, or
// stopped).
static gv_status find_frame(gv_reader *reader, size_t *size, gv_error *error)
{
    *size = 0;
    for (;;) {
        gv_status status = fill(reader, SKIPPABLE_HEADER, error);
        if (status != GV_OK || stopped(reader) || available(reader) == 0)
            return status;
        if (available(reader) < SKIPPABLE_HEADER) {
            stop_torn(reader);
            return GV_OK;
        }
        if ((little_endian(input(reader)) & ZSTD_MAGIC_SKIPPABLE_MASK) != ZSTD_MAGIC_SKIPPABLE_START)
            break;
        status = pass_skippable(reader, error);
        if (status != GV_OK || stopped(reader))
            return status;
    }
    // Compared here because zstd would also take the magic numbers of its formats before 1.0.
    if (little_endian(input(reader)) != ZSTD_MAGICNUMBER) {
        STOP(reader, GV_ERR_FORMAT, "at byte %llu stands something that is not a zstd frame",
             (unsigned long long)reader->offset);
        return GV_OK;
    }
    for (;;) {
        size_t length = ZSTD_findFrameCompressedSize(input(reader), available(reader));
        if (!ZSTD_isError(length)) {
            *size = length;
            return GV_OK;
        }
        if (ZSTD_getErrorCode(length) != ZSTD_error_srcSize_wrong) {
            STOP(reader, GV_ERR_FORMAT, "the frame at byte %llu is damaged: %s", (unsigned long long)reader->offset,
                 ZSTD_getErrorName(length));
            return GV_OK;
        }
        if (available(reader) > COMPRESSED_LIMIT) {
            STOP(reader, GV_ERR_LIMIT, "the frame at byte %llu is longer than a trace's frames may be",
                 (unsigned long long)reader->offset);
            return GV_OK;
        }
        if (reader->input_ended) {
            stop_torn(reader);
            return GV_OK;
        }
        gv_status status = fill(reader, available(reader) + READ_BYTES, error);
        if (status != GV_OK)
            return status;
    }
}

// Checks what the header says before anything is decompressed.
static bool accept_header(gv_reader *reader, size_t size, size_t *content_size)
{
    ZSTD_frameHeader header;
    unsigned long long offset = reader->offset;
    size_t result = ZSTD_getFrameHeader(&header, input(reader), size);
    if (result != 0)
        STOP(reader, GV_ERR_FORMAT, "the frame at byte %llu has a damaged header", offset);
    else if (!header.checksumFlag)
        STOP(reader, GV_ERR_FORMAT, "the frame at byte %llu has no checksum", offset);
    else if (header.frameContentSize == ZSTD_CONTENTSIZE_UNKNOWN)
        STOP(reader, GV_ERR_FORMAT, "the frame at byte %llu does not say how long its content is", offset);
    else if (header.frameContentSize > GV_FRAME_LIMIT)
        STOP(reader, GV_ERR_LIMIT, "the frame at byte %llu claims %llu bytes of content; the limit is %zu", offset,
             header.frameContentSize, GV_FRAME_LIMIT);
    else
        *content_size = (size_t)header.frameContentSize;
    return !stopped(reader);
}

// Decompresses the frame into reader->content and checks its checksum.
static gv_status decompress(gv_reader *reader, size_t size, size_t content_size, gv_error *error)
{
    ZSTD_inBuffer in = {input(reader), size, 0};
    size_t produced = 0, wanted = content_size < TRUSTED_BYTES ? content_size : TRUSTED_BYTES;
    ZSTD_DCtx_reset(reader->zstd, ZSTD_reset_session_only);
    for (;;) {
        if (!GV_GROW(reader->content, reader->content_capacity, wanted))
            return gv_fail(error, GV_ERR_MEMORY, "no memory to decompress the trace");
        ZSTD_outBuffer out = {reader->content, reader->content_capacity, produced};
        size_t result = ZSTD_decompressStream(reader->zstd, &out, &in);
        produced = out.pos;
        if (ZSTD_isError(result) && ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation)
            return gv_fail(error, GV_ERR_MEMORY, "no memory to decompress the trace");
        bool finished = !ZSTD_isError(result) && result == 0;
        if (ZSTD_isError(result) || (finished && produced != content_size) || (!finished && produced > content_size)) {
            STOP(reader, GV_ERR_FORMAT, "the frame at byte %llu is damaged: %s", (unsigned long long)reader->offset,
                 ZSTD_isError(result) ? ZSTD_getErrorName(result) : "its content is not as long as it says");
            return GV_OK;
        }
        if (finished) {
            reader->cursor = gv_cbor_open(reader->content, produced);
            return GV_OK;
        }
        // Only a full buffer is a reason to go on: the whole frame is there. zstd itself ends a loop without progress.
        if (produced == reader->content_capacity && produced < content_size)
            wanted = produced + 1;
    }
}

static void stop_version(gv_reader *reader, uint64_t major, uint64_t minor)
{
    unsigned long long theirs = major, theirs_minor = minor;
    if (major > GV_TRACE_MAJOR)
        STOP(reader, GV_ERR_VERSION,
             "it is a trace of format %llu.%llu, and this gravel (%s) reads format %d only; use a gravel at least as "
             "new as "
             "the one that recorded it",
             theirs, theirs_minor, GRAVEL_VERSION, GV_TRACE_MAJOR);
    else
        STOP(reader, GV_ERR_VERSION,
             "it is a trace of format %llu.%llu, and this gravel (%s) reads format %d only; record it again", theirs,
             theirs_minor, GRAVEL_VERSION, GV_TRACE_MAJOR);
}

// Reads the frame record that opens the content.
static gv_status read_frame_record(gv_reader *reader, gv_error *error)
{
    unsigned long long offset = reader->frame_offset;
    uint64_t major, minor;
    if (!gv_record_peek_version(reader->cursor, &major, &minor)) {
        STOP(reader, GV_ERR_FORMAT,
             "the zstd frame at byte %llu is not one of a trace: it does not begin with a frame record", offset);
        return GV_OK;
    }
    if (major != GV_TRACE_MAJOR) {
        stop_version(reader, major, minor);
        return GV_OK;
    }
    gv_record record;
    gv_error problem = {0};
    gv_status status = gv_record_decode(&reader->cursor, &reader->numbers, &record, &problem);
    if (status == GV_ERR_MEMORY)
        return gv_fail(error, status, "%s", problem.text);
    if (status != GV_OK)
        STOP(reader, GV_ERR_FORMAT, "the frame at byte %llu: %s", offset, problem.text);
    else if (record.frame.sequence != reader->sequence)
        STOP(reader, GV_ERR_FORMAT,
             "the frame at byte %llu has number %llu where %llu should follow: frames are missing", offset,
             (unsigned long long)record.frame.sequence, (unsigned long long)reader->sequence);
    else if (record.frame.first_record != reader->record)
        STOP(reader, GV_ERR_FORMAT,
             "the frame at byte %llu begins with record %llu where %llu should follow: records are missing", offset,
             (unsigned long long)record.frame.first_record, (unsigned long long)reader->record);
    return GV_OK;
}

// The frame at hand has been read to its end: what stands up to here is valid.
static void finish_frame(gv_reader *reader)
{
    reader->valid_bytes = reader->offset;
    reader->next_sequence = reader->sequence;
    reader->next_record = reader->record;
}

// Opens the next frame. *more is false at the end of the input or when reading stopped.
static gv_status next_frame(gv_reader *reader, bool *more, gv_error *error)
{
    *more = false;
    size_t size, content_size = 0;
    gv_status status = find_frame(reader, &size, error);
    if (status != GV_OK || stopped(reader))
        return status;
    if (size == 0) {
        reader->valid_bytes = reader->offset; // skippable frames at the end are valid too
        return GV_OK;
    }
    if (!accept_header(reader, size, &content_size))
        return GV_OK;
    status = decompress(reader, size, content_size, error);
    if (status != GV_OK || stopped(reader))
        return status;
    reader->frame_offset = reader->offset;
    status = read_frame_record(reader, error);
    if (status != GV_OK || stopped(reader))
        return status;
    consume(reader, size);
    reader->sequence++;
    if (gv_cbor_at_end(&reader->cursor))
        finish_frame(reader);
    *more = true;
    return GV_OK;
}

// ---- The interface --------------------------------------------------------------------------------------------

static void *allocate(void *opaque, size_t size)
{
    return gv_malloc(size);
}

static void release(void *opaque, void *memory)
{
    gv_free(memory);
}

static gv_reader *new_reader(void)
{
    gv_reader *reader = gv_calloc(1, sizeof *reader);
    if (!reader)
        return NULL;
    reader->file = -1;
    reader->cursor = gv_cbor_open(NULL, 0);
    reader->zstd = ZSTD_createDCtx_advanced((ZSTD_customMem){allocate, release, NULL});
    if (!reader->zstd) {
        gv_reader_close(reader);
        return NULL;
    }
    ZSTD_DCtx_setMaxWindowSize(reader->zstd, WINDOW_LIMIT);
    return reader;
}

// Does what is left of the input begin with a zstd frame, a skippable one, or a piece of their magic number?
static bool begins_as_zstd(const gv_reader *reader)
{
    static const uint8_t magics[2][4] = {{0x28, 0xb5, 0x2f, 0xfd}, {0x50, 0x2a, 0x4d, 0x18}};
    uint8_t first[4] = {0};
    size_t size = available(reader) < sizeof first ? available(reader) : sizeof first;
    memcpy(first, input(reader), size);
    if (memcmp(first, magics[0], size) == 0)
        return true;
    first[0] &= 0xf0; // sixteen magic numbers are skippable
    return memcmp(first, magics[1], size) == 0;
}

// Reads the first frame: only with it is this a trace at all.
static gv_status open_first_frame(gv_reader **reader, gv_error *error)
{
    gv_reader *opened = *reader;
    bool more;
    gv_status status = next_frame(opened, &more, error);
    if (status == GV_OK && stopped(opened)) {
        if (opened->stop.status == GV_ERR_FORMAT && !begins_as_zstd(opened))
            status = gv_fail(error, GV_ERR_FORMAT,
                             "not a gravel trace: it does not begin with a zstd frame; `gravel run -o FILE -- COMMAND` "
                             "records one");
        else if (opened->stop.status == GV_ERR_VERSION || opened->stop.status == GV_ERR_IO)
            status = gv_fail(error, opened->stop.status, "%s", opened->stop.text);
        else
            status = gv_fail(error, opened->stop.status, "nothing can be read of it as a trace: %s; record it again",
                             opened->stop.text);
    } else if (status == GV_OK && !more) {
        status = gv_fail(error, GV_ERR_FORMAT, "%s",
                         opened->offset
                             ? "not a gravel trace: it holds nothing but skippable zstd frames"
                             : "the file is empty: the recorder opened it and wrote nothing, as when the process was "
                               "killed early or made no CUDA call");
    }
    if (status != GV_OK) {
        gv_reader_close(opened);
        *reader = NULL;
    }
    return status;
}

gv_status gv_reader_open(const char *path, gv_reader **reader, gv_error *error)
{
    *reader = NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat kind;
    if (file < 0 || fstat(file, &kind) != 0) {
        gv_status status = gv_fail(error, GV_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
        if (file >= 0)
            close(file);
        return status;
    }
    if (S_ISDIR(kind.st_mode)) {
        close(file);
        return gv_fail(error, GV_ERR_FORMAT, "%s: is a directory; name the trace files in it", path);
    }
    gv_reader *opened = new_reader();
    if (!opened) {
        close(file);
        return gv_fail(error, GV_ERR_MEMORY, "%s: no memory to read the trace", path);
    }
    opened->file = file;
    gv_status status = open_first_frame(&opened, error);
    if (status != GV_OK)
        gv_error_prefix(error, "%s", path);
    *reader = opened;
    return status;
}

gv_status gv_reader_open_memory(const void *data, size_t size, gv_reader **reader, gv_error *error)
{
    gv_reader *opened = new_reader();
    *reader = NULL;
    if (!opened)
        return gv_fail(error, GV_ERR_MEMORY, "no memory to read the trace");
    opened->data = data;
    opened->end = size;
    opened->input_ended = true;
    gv_status status = open_first_frame(&opened, error);
    *reader = opened;
    return status;
}

void gv_reader_reject(gv_reader *reader, const char *why)
{
    STOP(reader, GV_ERR_FORMAT, "record %llu, in the frame at byte %llu, is not valid: %s",
         (unsigned long long)(reader->record ? reader->record - 1 : 0), (unsigned long long)reader->frame_offset, why);
}

gv_status gv_reader_next(gv_reader *reader, gv_record *record, bool *more, gv_error *error)
{
    *more = false;
    while (!stopped(reader) && gv_cbor_at_end(&reader->cursor)) {
        bool found;
        gv_status status = next_frame(reader, &found, error);
        if (status != GV_OK || !found)
            return status;
    }
    if (stopped(reader))
        return GV_OK;
    gv_error problem = {0};
    gv_status status = gv_record_decode(&reader->cursor, &reader->numbers, record, &problem);
    if (status == GV_ERR_MEMORY)
        return gv_fail(error, status, "%s", problem.text);
    reader->record++;
    if (status != GV_OK)
        gv_reader_reject(reader, problem.text);
    else if (record->type == GV_RECORD_frame)
        gv_reader_reject(reader, "a frame record stands inside a frame");
    if (stopped(reader))
        return GV_OK;
    if (gv_cbor_at_end(&reader->cursor))
        finish_frame(reader);
    *more = true;
    return GV_OK;
}

const char *gv_reader_truncation(const gv_reader *reader)
{
    return stopped(reader) ? reader->stop.text : NULL;
}

void gv_reader_position(const gv_reader *reader, uint64_t *valid_bytes, uint64_t *next_sequence, uint64_t *next_record)
{
    *valid_bytes = reader->valid_bytes;
    *next_sequence = reader->next_sequence;
    *next_record = reader->next_record;
}

void gv_reader_close(gv_reader *reader)
{
    if (!reader)
        return;
    if (reader->file >= 0)
        close(reader->file);
    ZSTD_freeDCtx(reader->zstd);
    gv_number_pool_free(&reader->numbers);
    gv_free(reader->window);
    gv_free(reader->content);
    gv_free(reader);
}
