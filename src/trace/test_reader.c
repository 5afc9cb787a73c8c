// The reader against files that are cut, damaged, of another version, or no traces at all.
#include "trace/codec.h"
#include "trace/reader.h"
#include "trace/test_sample.h"
#include "trace/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include <cmocka.h>

// ---- Files put together by hand -------------------------------------------------------------------------------

static file_bytes sample(void)
{
    gv_writer *writer;
    const char *path = scratch("sample");
    assert_int_equal(gv_writer_create(path, &writer, NULL), GV_OK);
    write_sample(writer);
    assert_int_equal(gv_writer_close(writer), GV_OK);
    return read_file(path);
}

static void append(file_bytes *file, const void *data, size_t size)
{
    file->data = realloc(file->data, file->size + size + 1);
    assert_non_null(file->data);
    memcpy(file->data + file->size, data, size);
    file->size += size;
}

// Appends a zstd frame with this content.
static void append_frame(file_bytes *file, const void *content, size_t size, int checksum, int content_size)
{
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    size_t room = ZSTD_compressBound(size);
    void *frame = malloc(room);
    assert_true(zstd && frame);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, checksum);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_contentSizeFlag, content_size);
    size_t compressed = ZSTD_compress2(zstd, frame, room, content, size);
    assert_false(ZSTD_isError(compressed));
    append(file, frame, compressed);
    free(frame);
    ZSTD_freeCCtx(zstd);
}

// Appends a frame that begins with the frame record `head` and goes on with `rest`.
static void append_trace_frame(file_bytes *file, gv_frame_record head, const void *rest, size_t size)
{
    gv_buffer content = {0};
    gv_record_encode(&content, GV_RECORD_frame, &head);
    gv_buffer_put(&content, rest, size);
    assert_false(content.failed);
    append_frame(file, content.data, content.size, 1, 1);
    gv_buffer_free(&content);
}

static size_t frame_size(file_bytes file, size_t at)
{
    size_t size = ZSTD_findFrameCompressedSize(file.data + at, file.size - at);
    assert_false(ZSTD_isError(size));
    return size;
}

// Encodes every record of a file, so that two readings can be compared. Adds the counts at each record's end.
struct reading {
    gv_buffer records;
    size_t ends[200];
    size_t count;
    char truncation[512];
    gv_status opened;
    char error[512];
};

static struct reading read_bytes(const void *data, size_t size)
{
    struct reading reading = {0};
    gv_reader *reader;
    gv_error error = {0};
    reading.opened = gv_reader_open_memory(data, size, &reader, &error);
    if (reading.opened != GV_OK) {
        assert_null(reader);
        assert_true(error.text[0]);
        strcpy(reading.error, error.text);
        return reading;
    }
    for (;;) {
        gv_record record;
        bool more;
        assert_int_equal(gv_reader_next(reader, &record, &more, &error), GV_OK);
        if (!more)
            break;
        if (record.type < GV_RECORD_TYPE_COUNT)
            gv_record_encode(&reading.records, record.type, &record.frame);
        assert_true(reading.count < sizeof reading.ends / sizeof *reading.ends);
        reading.ends[reading.count++] = reading.records.size;
    }
    if (gv_reader_truncation(reader))
        strcpy(reading.truncation, gv_reader_truncation(reader));
    // Once at the end, always at the end.
    gv_record record;
    bool more = true;
    assert_int_equal(gv_reader_next(reader, &record, &more, &error), GV_OK);
    assert_false(more);
    gv_reader_close(reader);
    return reading;
}

static void free_reading(struct reading *reading)
{
    gv_buffer_free(&reading->records);
}

// Is what `part` read the beginning of what `whole` read?
static void assert_prefix(const struct reading *part, const struct reading *whole)
{
    assert_true(part->count <= whole->count);
    assert_true(part->records.size <= whole->records.size);
    assert_int_equal(part->records.size, part->count ? whole->ends[part->count - 1] : 0);
    if (part->records.size)
        assert_memory_equal(part->records.data, whole->records.data, part->records.size);
}

// ---- Cut and damaged files ------------------------------------------------------------------------------------

static void test_cut_at_every_byte(void **state)
{
    file_bytes file = sample();
    struct reading whole = read_bytes(file.data, file.size);
    assert_string_equal(whole.truncation, "");
    size_t ends[4] = {0}, records[4] = {0}; // of the frames
    for (size_t i = 1; i < 4; i++) {
        ends[i] = ends[i - 1] + frame_size(file, ends[i - 1]);
        struct reading part = read_bytes(file.data, ends[i]);
        records[i] = part.count;
        free_reading(&part);
    }
    assert_int_equal(ends[3], file.size);
    assert_true(records[1] > 10 && records[2] > records[1] + 5 && records[3] > records[2] + 5);
    const char *path = scratch("cut");
    for (size_t cut = 1; cut < file.size; cut++) {
        size_t frames = cut >= ends[2] ? 2 : cut >= ends[1] ? 1 : 0;
        bool torn = cut != ends[frames];
        // Copied, so that the address sanitizer sees a read past the cut.
        uint8_t *copy = malloc(cut);
        assert_non_null(copy);
        memcpy(copy, file.data, cut);
        struct reading part = read_bytes(copy, cut);
        if (frames == 0) {
            assert_int_equal(part.opened, GV_ERR_FORMAT);
            assert_non_null(strstr(part.error, "ends inside the frame that begins at byte 0"));
        } else {
            assert_int_equal(part.opened, GV_OK);
            assert_int_equal(part.count, records[frames]);
            assert_prefix(&part, &whole);
            char place[64];
            snprintf(place, sizeof place, "begins at byte %zu,", ends[frames]);
            assert_int_equal(part.truncation[0] != '\0', torn);
            assert_true(!torn || strstr(part.truncation, place));
            // The loader says the same, from a file.
            gv_trace *trace;
            gv_error error = {0};
            write_file(path, copy, cut);
            assert_int_equal(gv_trace_load(path, &trace, &error), GV_OK);
            assert_int_equal(trace->truncation != NULL, torn);
            assert_int_equal(trace->ended, false);
            assert_int_equal(trace->graphs[frames == 2 ? 1 : 0].node_count, frames == 2 ? 5 : 0);
            assert_int_equal(trace->process.pid, 4242);
            gv_trace_free(trace);
        }
        free_reading(&part);
        free(copy);
    }
    free_reading(&whole);
    free(file.data);
}

// One wrong byte anywhere: the records of the frames before it are read, and nothing else that the file did not say.
static void test_every_byte_flipped(void **state)
{
    file_bytes file = sample();
    struct reading whole = read_bytes(file.data, file.size);
    size_t damaged = 0, harmless = 0;
    for (size_t at = 0; at < file.size; at++) {
        for (int bits = 0; bits < 9; bits++) {
            uint8_t flip = bits < 8 ? (uint8_t)(1 << bits) : 0xff;
            file.data[at] ^= flip;
            struct reading part = read_bytes(file.data, file.size);
            if (part.opened == GV_OK) {
                assert_prefix(&part, &whole);
                // A flip that changes nothing (an unused header bit) is no damage.
                assert_int_equal(part.truncation[0] == '\0', part.count == whole.count);
                harmless += part.truncation[0] == '\0';
            }
            damaged += part.opened != GV_OK || part.truncation[0];
            free_reading(&part);
            file.data[at] ^= flip;
        }
    }
    assert_true(damaged > 100 * harmless);
    free_reading(&whole);
    free(file.data);
}

static void test_missing_and_repeated_frames(void **state)
{
    file_bytes file = sample();
    size_t first = frame_size(file, 0), second = frame_size(file, first);
    struct reading whole = read_bytes(file.data, file.size);

    file_bytes hole = {0};
    append(&hole, file.data, first);
    append(&hole, file.data + first + second, file.size - first - second);
    struct reading part = read_bytes(hole.data, hole.size);
    assert_prefix(&part, &whole);
    assert_non_null(strstr(part.truncation, "has number 2 where 1 should follow"));
    free_reading(&part);

    file_bytes twice = {0};
    append(&twice, file.data, first);
    append(&twice, file.data, file.size);
    part = read_bytes(twice.data, twice.size);
    assert_prefix(&part, &whole);
    assert_non_null(strstr(part.truncation, "has number 0 where 1 should follow"));
    free_reading(&part);

    file_bytes late = {0};
    append(&late, file.data + first, file.size - first);
    part = read_bytes(late.data, late.size);
    assert_int_equal(part.opened, GV_ERR_FORMAT);
    assert_non_null(strstr(part.error, "frames are missing"));
    free_reading(&part);

    file_bytes records = {0};
    append(&records, file.data, first);
    append_trace_frame(&records, (gv_frame_record){.major = 1, .sequence = 1, .first_record = 3}, NULL, 0);
    part = read_bytes(records.data, records.size);
    assert_prefix(&part, &whole);
    assert_non_null(strstr(part.truncation, "records are missing"));
    free_reading(&part);

    file_bytes trailing = {0};
    append(&trailing, file.data, file.size);
    append(&trailing, "trailing text", 13);
    part = read_bytes(trailing.data, trailing.size);
    assert_int_equal(part.count, whole.count);
    assert_non_null(strstr(part.truncation, "not a zstd frame"));
    free_reading(&part);

    free(hole.data);
    free(twice.data);
    free(late.data);
    free(records.data);
    free(trailing.data);
    free(file.data);
    free_reading(&whole);
}

static void test_skippable_frames(void **state)
{
    file_bytes file = sample(), padded = {0};
    size_t first = frame_size(file, 0);
    struct reading whole = read_bytes(file.data, file.size);
    append(&padded, "\x50\x2a\x4d\x18\x05\x00\x00\x00hello", 13);
    append(&padded, file.data, first);
    append(&padded, "\x5f\x2a\x4d\x18\x00\x00\x00\x00", 8);
    append(&padded, file.data + first, file.size - first);
    append(&padded, "\x51\x2a\x4d\x18\x02\x00\x00\x00hi", 10);
    struct reading part = read_bytes(padded.data, padded.size);
    assert_int_equal(part.count, whole.count);
    assert_prefix(&part, &whole);
    assert_string_equal(part.truncation, "");
    free_reading(&part);
    part = read_bytes(padded.data, padded.size - 1);
    assert_int_equal(part.count, whole.count);
    assert_non_null(strstr(part.truncation, "ends inside the frame"));
    free_reading(&part);
    // The end of a valid part may be a skippable frame.
    gv_reader *reader;
    uint64_t valid, sequence, next;
    gv_record record;
    bool more = true;
    assert_int_equal(gv_reader_open_memory(padded.data, padded.size, &reader, NULL), GV_OK);
    while (more)
        assert_int_equal(gv_reader_next(reader, &record, &more, NULL), GV_OK);
    gv_reader_position(reader, &valid, &sequence, &next);
    assert_int_equal(valid, padded.size);
    assert_int_equal(sequence, 3);
    assert_int_equal(next, whole.count);
    gv_reader_close(reader);
    // A length of 4 GiB costs nothing.
    part = read_bytes("\x50\x2a\x4d\x18\xff\xff\xff\xffhello", 13);
    assert_int_equal(part.opened, GV_ERR_FORMAT);
    free_reading(&part);
    free_reading(&whole);
    free(padded.data);
    free(file.data);
}

// ---- Versions -------------------------------------------------------------------------------------------------

static void test_later_major_version(void **state)
{
    file_bytes file = {0};
    append_trace_frame(&file, (gv_frame_record){.major = 7, .minor = 3}, "\xff\xff", 2);
    struct reading part = read_bytes(file.data, file.size);
    assert_int_equal(part.opened, GV_ERR_VERSION);
    assert_non_null(strstr(part.error, "format 7.3"));
    assert_non_null(strstr(part.error, "reads format 1 only"));
    assert_non_null(strstr(part.error, "use a gravel at least as new"));
    free_reading(&part);
    free(file.data);
    // As a file, the name stands in front.
    const char *path = scratch("later");
    gv_trace *trace;
    gv_error error = {0};
    file = (file_bytes){0};
    append_trace_frame(&file, (gv_frame_record){.major = 2}, NULL, 0);
    write_file(path, file.data, file.size);
    assert_int_equal(gv_trace_load(path, &trace, &error), GV_ERR_VERSION);
    assert_ptr_equal(strstr(error.text, path), error.text);
    free(file.data);
    // In the middle of a file it ends the reading.
    file = sample();
    append_trace_frame(&file, (gv_frame_record){.major = 2, .sequence = 3}, NULL, 0);
    part = read_bytes(file.data, file.size);
    assert_int_equal(part.opened, GV_OK);
    assert_non_null(strstr(part.truncation, "format 2.0"));
    free_reading(&part);
    free(file.data);
    // There never was a version 0.
    file = (file_bytes){0};
    append_frame(&file, "\x82\x00\xa1\x01\x00", 5, 1, 1);
    part = read_bytes(file.data, file.size);
    assert_int_equal(part.opened, GV_ERR_VERSION);
    assert_non_null(strstr(part.error, "format 0.0"));
    free_reading(&part);
    free(file.data);
}

static void test_later_minor_version(void **state)
{
    static const char rest[] = "\x82\x18\x63\xa2\x01\x9f\x01\xff\x61x\xf5"      // an unknown type
                               "\x82\x02\xa3\x01\x01\x18\x63\xbf\xff\x02\x62hi" // an unknown key in a string record
                               "\x82\x19\x01\x00\xf6";                          // another unknown type
    file_bytes file = {0};
    append_trace_frame(&file, (gv_frame_record){.major = 1, .minor = 9}, rest, sizeof rest - 1);
    append_trace_frame(&file, (gv_frame_record){.major = 1, .minor = 9, .sequence = 1, .first_record = 3},
                       "\x82\x12\xa0", 3);
    struct reading part = read_bytes(file.data, file.size);
    assert_int_equal(part.opened, GV_OK);
    assert_int_equal(part.count, 4);
    assert_string_equal(part.truncation, "");
    free_reading(&part);
    gv_trace *trace;
    assert_int_equal(gv_trace_load_memory(file.data, file.size, "minor", &trace, NULL), GV_OK);
    assert_string_equal(trace->strings[1], "hi");
    assert_true(trace->ended);
    assert_null(trace->truncation);
    gv_trace_free(trace);
    free(file.data);
}

// ---- No traces at all -----------------------------------------------------------------------------------------

static void refuse(const char *path, gv_status expected, const char *says)
{
    gv_trace *trace;
    gv_error error = {0};
    gv_status status = gv_trace_load(path, &trace, &error);
    assert_null(trace);
    if (status != expected || !strstr(error.text, says) || strstr(error.text, path) != error.text)
        fail_msg("%s: %s: %s", path, gv_status_name(status), error.text);
}

static void refuse_bytes(const void *data, size_t size, gv_status expected, const char *says)
{
    const char *path = scratch("alien");
    write_file(path, data, size);
    refuse(path, expected, says);
    gv_trace *trace;
    gv_error error = {0};
    assert_int_equal(gv_trace_load_memory(data, size, "alien", &trace, &error), expected);
    assert_non_null(strstr(error.text, says));
}

static void test_aliens(void **state)
{
    refuse("/nowhere/at/all.gravel", GV_ERR_IO, "No such file");
    refuse("/tmp", GV_ERR_FORMAT, "is a directory");
    refuse("/proc/self/mem", GV_ERR_IO, "reading failed at byte 0: Input/output error");
    refuse("/dev/null", GV_ERR_FORMAT, "is empty");
    refuse_bytes("", 0, GV_ERR_FORMAT, "is empty");
    refuse_bytes("#!/bin/sh\necho this is a text file\n", 35, GV_ERR_FORMAT, "not a gravel trace");
    refuse_bytes("hi\n", 3, GV_ERR_FORMAT, "not a gravel trace");
    refuse_bytes("\x28\xb5", 2, GV_ERR_FORMAT, "ends inside the frame");
    uint8_t *noise = malloc(1 << 20);
    assert_non_null(noise);
    srand(5);
    for (size_t i = 0; i < 1 << 20; i++)
        noise[i] = (uint8_t)(rand() >> 8);
    refuse_bytes(noise, 1 << 20, GV_ERR_FORMAT, "not a gravel trace");
    // Noise that begins as a frame does.
    memcpy(noise, "\x28\xb5\x2f\xfd", 4);
    gv_trace *trace;
    gv_error error = {0};
    gv_status status = gv_trace_load_memory(noise, 1 << 20, "noise", &trace, &error);
    assert_true(status == GV_ERR_FORMAT || status == GV_ERR_LIMIT);
    free(noise);
    refuse_bytes("\x50\x2a\x4d\x18\x05\x00\x00\x00hello", 13, GV_ERR_FORMAT, "nothing but skippable");
    // zstd frames that are not ours.
    file_bytes file = {0};
    append_frame(&file, "hello, this is not a trace", 26, 1, 1);
    refuse_bytes(file.data, file.size, GV_ERR_FORMAT, "not one of a trace");
    file.size = 0;
    append_frame(&file, "", 0, 1, 1);
    refuse_bytes(file.data, file.size, GV_ERR_FORMAT, "not one of a trace");
    file.size = 0;
    append_frame(&file, "\x82\x00\xa1\x01\x01", 5, 0, 1);
    refuse_bytes(file.data, file.size, GV_ERR_FORMAT, "no checksum");
    file.size = 0;
    append_frame(&file, "\x82\x00\xa1\x01\x01", 5, 1, 0);
    refuse_bytes(file.data, file.size, GV_ERR_FORMAT, "does not say how long");
    file.size = 0;
    append_frame(&file, "\x82\x00\xa2\x01\x01\x04\x61x", 8, 1, 1);
    refuse_bytes(file.data, file.size, GV_ERR_FORMAT, "frame record: key 4");
    free(file.data);
}

static void test_hostile_sizes(void **state)
{
    // A header with checksum and a content size of eight bytes; one last raw block of nothing; a checksum.
    uint8_t frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0xe4, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x01, 0, 0, 0, 0, 0, 0};
    refuse_bytes(frame, sizeof frame, GV_ERR_LIMIT, "claims 1152921504606846976 bytes");
    frame[12] = 0;
    frame[8] = 4; // 64 MiB, the limit: not refused for the claim, but it does not hold it
    refuse_bytes(frame, sizeof frame, GV_ERR_FORMAT, "damaged");
    frame[5] = 1;
    refuse_bytes(frame, sizeof frame, GV_ERR_LIMIT, "claims 67108865 bytes");
    // A frame that really holds 64 MiB in a few kilobytes: one long string of a later version's record.
    size_t size = ((size_t)64 << 20) - 40;
    gv_buffer content = {0};
    gv_record_encode(&content, GV_RECORD_frame, &(gv_frame_record){.major = 1});
    gv_buffer_put(&content, "\x82\x18\x63", 3);
    gv_cbor_put_bytes_head(&content, size);
    assert_true(gv_buffer_reserve(&content, size));
    memset(content.data + content.size, 0, size);
    content.size += size;
    file_bytes file = {0};
    append_frame(&file, content.data, content.size, 1, 1);
    gv_buffer_free(&content);
    assert_true(file.size < 10000);
    struct reading part = read_bytes(file.data, file.size);
    assert_int_equal(part.count, 1);
    assert_string_equal(part.truncation, "");
    free_reading(&part);
    free(file.data);
}

#define NESTED "\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81"

// The kept files of tests/data/bad, which the tests of the command line use as well. Runs in the repository's root.
static void test_kept_bad_files(void **state)
{
    refuse("tests/data/bad/empty.gravel", GV_ERR_FORMAT, "is empty");
    refuse("tests/data/bad/text.gravel", GV_ERR_FORMAT, "not a gravel trace");
    refuse("tests/data/bad/random.gravel", GV_ERR_FORMAT, "not a gravel trace");
    refuse("tests/data/bad/not-a-trace.zst", GV_ERR_FORMAT, "not one of a trace");
    refuse("tests/data/bad/no-checksum.gravel", GV_ERR_FORMAT, "no checksum");
    refuse("tests/data/bad/torn-first-frame.gravel", GV_ERR_FORMAT, "ends inside the frame");
    refuse("tests/data/bad/missing-frames.gravel", GV_ERR_FORMAT, "frames are missing");
    refuse("tests/data/bad/huge-claim.gravel", GV_ERR_LIMIT, "1152921504606846976");
    refuse("tests/data/bad/later-major.gravel", GV_ERR_VERSION, "format 2.1");
    const struct {
        const char *path, *says;
    } cut[] = {
        {"tests/data/bad/truncated.gravel", "ends inside the frame that begins at byte 608"},
        {"tests/data/bad/flipped.gravel", "the frame at byte 608 is damaged"},
        {"tests/data/bad/bad-range.gravel", "record 2, in the frame at byte 0, is not valid: range 0"},
        {"tests/data/bad/nested.gravel", "nested too deeply"},
    };
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        gv_trace *trace;
        gv_error error = {0};
        assert_int_equal(gv_trace_load(cut[i].path, &trace, &error), GV_OK);
        assert_non_null(trace->truncation);
        assert_non_null(strstr(trace->truncation, cut[i].says));
        gv_trace_free(trace);
    }
}

// Content that is not a sequence of records ends the reading at the first record that is none.
static void test_malformed_content(void **state)
{
    struct {
        const char *says, *bytes;
        size_t size;
    } cases[] = {
#define CASE(says, literal) {says, literal, sizeof(literal) - 1}
        CASE("does not begin", "\xff"),
        CASE("does not begin", "text"),
        CASE("no map", "\x82\x02\xa2\x01\x01"),
        CASE("a string is longer", "\x82\x02\xa1\x02\x7b\x00\x00\x00\x00\x40\x00\x00\x00"),
        CASE("more items", "\x82\x18\x63\x9b\x10\x00\x00\x00\x00\x00\x00\x00\x00"),
        CASE("nested too deeply", "\x82\x02\xa1\x18\x63" NESTED NESTED "\x00"),
        CASE("nested too deeply", "\x82\x18\x63" NESTED NESTED "\x00"),
        CASE("a frame record stands inside", "\x82\x00\xa1\x01\x01"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_bytes file = sample();
        struct reading whole = read_bytes(file.data, file.size);
        size_t offset = file.size;
        gv_buffer rest = {0};
        gv_record_encode(&rest, GV_RECORD_end, &(gv_end_record){.time_ns = 3});
        gv_buffer_put(&rest, cases[i].bytes, cases[i].size);
        append_trace_frame(&file, (gv_frame_record){.major = 1, .sequence = 3, .first_record = whole.count}, rest.data,
                           rest.size);
        struct reading part = read_bytes(file.data, file.size);
        assert_int_equal(part.count, whole.count + 1);
        char place[100];
        snprintf(place, sizeof place, "record %zu, in the frame at byte %zu, is not valid", whole.count + 1, offset);
        if (!strstr(part.truncation, place) || !strstr(part.truncation, cases[i].says))
            fail_msg("case %zu: %s", i, part.truncation);
        gv_reader *reader;
        gv_record record;
        bool more = true;
        uint64_t valid, sequence, next;
        assert_int_equal(gv_reader_open_memory(file.data, file.size, &reader, NULL), GV_OK);
        while (more)
            assert_int_equal(gv_reader_next(reader, &record, &more, NULL), GV_OK);
        gv_reader_position(reader, &valid, &sequence, &next);
        assert_int_equal(valid, offset); // the frame is not whole, so a writer would cut it off
        assert_int_equal(sequence, 3);
        assert_int_equal(next, whole.count);
        gv_reader_close(reader);
        free_reading(&part);
        free_reading(&whole);
        gv_buffer_free(&rest);
        free(file.data);
    }
}

// A file that is read in many pieces gives what it gives from memory.
static void test_long_file(void **state)
{
    const char *path = scratch("long");
    gv_writer *writer;
    assert_int_equal(gv_writer_create(path, &writer, NULL), GV_OK);
    assert_int_equal(gv_write_graph(writer, &(gv_graph_record){.id = 1, .nodes = 1}), GV_OK);
    assert_int_equal(gv_write_node(writer, &(gv_node_record){.graph = 1}), GV_OK);
    srand(9);
    static uint8_t noise[1500000];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)(rand() >> 8);
    for (uint64_t i = 1; i <= 40; i++) {
        // Noise does not compress: frames of 100 kB to 1.5 MB, some longer than one read.
        size_t size = i % 8 == 0 ? sizeof noise : 100000 + 1000 * (size_t)i;
        assert_int_equal(gv_write_module(writer, &(gv_module_record){.id = i, .build_id = {noise, size}}), GV_OK);
        write_ranges(writer, 5, 1, 0, i << 32, 1000);
    }
    assert_int_equal(gv_writer_close(writer), GV_OK);
    file_bytes file = read_file(path);
    assert_true(file.size > 8000000);
    gv_trace *trace[2];
    assert_int_equal(gv_trace_load(path, &trace[0], NULL), GV_OK);
    assert_int_equal(gv_trace_load_memory(file.data, file.size, path, &trace[1], NULL), GV_OK);
    for (int i = 0; i < 2; i++) {
        assert_null(trace[i]->truncation);
        assert_int_equal(trace[i]->module_count, 41);
        assert_int_equal(trace[i]->modules[8].build_id.length, sizeof noise);
        assert_memory_equal(trace[i]->modules[8].build_id.data, noise, sizeof noise);
        assert_int_equal(trace[i]->access_count, 40);
        size_t count;
        assert_int_equal(gv_ranges_check(trace[i]->accesses[39].reads, &count, NULL, NULL), GV_OK);
        assert_int_equal(count, 1000);
        gv_trace_free(trace[i]);
    }
    free(file.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_at_every_byte),
        cmocka_unit_test(test_every_byte_flipped),
        cmocka_unit_test(test_missing_and_repeated_frames),
        cmocka_unit_test(test_skippable_frames),
        cmocka_unit_test(test_later_major_version),
        cmocka_unit_test(test_later_minor_version),
        cmocka_unit_test(test_aliens),
        cmocka_unit_test(test_hostile_sizes),
        cmocka_unit_test(test_kept_bad_files),
        cmocka_unit_test(test_malformed_content),
        cmocka_unit_test(test_long_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
