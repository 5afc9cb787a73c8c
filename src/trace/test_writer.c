// The writer as a guest in someone else's process: frames as promised, and harmless under every failure that a
// process can bring about (full disk, size limit, closed descriptors, fork, kill, no memory).
#include "trace/codec.h"
#include "trace/reader.h"
#include "trace/test_sample.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include <cmocka.h>

static gv_writer *create(const char *path)
{
    gv_writer *writer;
    gv_error error = {0};
    assert_int_equal(gv_writer_create(path, &writer, &error), GV_OK);
    return writer;
}

static gv_status put_number(gv_writer *writer, uint64_t id)
{
    return gv_write_end(writer, &(gv_end_record){.operations = id + 1});
}

// Reads end records back and checks that they count up from 0. Returns how many; says whether the file was cut.
static uint64_t count_numbers(const char *path, bool *cut)
{
    gv_reader *reader;
    gv_error error = {0};
    gv_status status = gv_reader_open(path, &reader, &error);
    if (status != GV_OK)
        fail_msg("%s", error.text);
    uint64_t count = 0;
    for (;;) {
        gv_record record;
        bool more;
        assert_int_equal(gv_reader_next(reader, &record, &more, &error), GV_OK);
        if (!more)
            break;
        assert_int_equal(record.type, GV_RECORD_end);
        assert_int_equal(record.end.operations, ++count);
    }
    *cut = gv_reader_truncation(reader) != NULL;
    gv_reader_close(reader);
    return count;
}

static void assert_whole(const char *path, uint64_t expected)
{
    bool cut;
    assert_int_equal(count_numbers(path, &cut), expected);
    assert_false(cut);
}

// ---- Frames ---------------------------------------------------------------------------------------------------

static void test_frames(void **state)
{
    const char *path = scratch("frames");
    gv_writer *writer = create(path);
    struct stat kind;
    assert_int_equal(stat(path, &kind), 0); // there at once, and empty
    assert_int_equal(kind.st_size, 0);
    assert_int_equal(gv_writer_flush(writer), GV_OK);
    assert_int_equal(gv_writer_file_bytes(writer), 0);
    for (uint64_t i = 0; i < 6; i++) {
        assert_int_equal(put_number(writer, i), GV_OK);
        if (i % 2)
            assert_int_equal(gv_writer_flush(writer), GV_OK);
    }
    assert_int_equal(gv_writer_flush(writer), GV_OK); // nothing new: no frame
    uint64_t bytes = gv_writer_file_bytes(writer);
    assert_null(gv_writer_failure(writer));
    assert_int_equal(gv_writer_close(writer), GV_OK);
    file_bytes file = read_file(path);
    assert_int_equal(file.size, bytes);
    size_t frames = 0;
    for (size_t at = 0; at < file.size; frames++) {
        size_t size = ZSTD_findFrameCompressedSize(file.data + at, file.size - at);
        assert_false(ZSTD_isError(size));
        assert_true(file.data[at + 4] & 4); // the checksum flag
        unsigned long long content_size = ZSTD_getFrameContentSize(file.data + at, size);
        uint8_t content[256];
        assert_in_range(content_size, 1, sizeof content);
        assert_int_equal(ZSTD_decompress(content, sizeof content, file.data + at, size), content_size);
        gv_cbor_cursor cursor = gv_cbor_open(content, content_size);
        gv_number_pool pool = {0};
        gv_record record;
        assert_int_equal(gv_record_decode(&cursor, &pool, &record, NULL), GV_OK);
        assert_int_equal(record.type, GV_RECORD_frame);
        assert_int_equal(record.frame.major, GV_TRACE_MAJOR);
        assert_int_equal(record.frame.sequence, frames);
        assert_int_equal(record.frame.first_record, 2 * frames);
        assert_int_equal(record.frame.pid, getpid());
        assert_true(record.frame.time_ns > 0);
        at += size;
    }
    assert_int_equal(frames, 3);
    free(file.data);
    assert_whole(path, 6);
}

static void test_full_buffer_flushes(void **state)
{
    const char *path = scratch("full");
    gv_writer *writer = create(path);
    uint64_t written = 0, bytes = 0;
    while (bytes == 0) {
        assert_int_equal(put_number(writer, written++), GV_OK);
        bytes = gv_writer_file_bytes(writer);
        assert_true(written < 200000);
    }
    // [18, {2: n}] takes five to eight bytes.
    assert_in_range(written, (256 << 10) / 8, (256 << 10) / 5);
    assert_whole(path, written);
    assert_int_equal(gv_writer_close(writer), GV_OK);
    assert_whole(path, written);
}

static void test_big_records(void **state)
{
    const char *path = scratch("big");
    gv_writer *writer = create(path);
    assert_int_equal(put_number(writer, 0), GV_OK);
    size_t size = GV_RECORD_LIMIT - 100;
    uint8_t *big = calloc(1, GV_RECORD_LIMIT + 1);
    assert_non_null(big);
    gv_module_record record = {.id = 1, .build_id = {big, GV_RECORD_LIMIT + 1}};
    assert_int_equal(gv_write_module(writer, &record), GV_ERR_LIMIT); // dropped; the writer goes on
    assert_null(gv_writer_failure(writer));
    assert_int_equal(put_number(writer, 1), GV_OK);
    record.build_id.length = size;
    assert_int_equal(gv_write_module(writer, &record), GV_OK);
    assert_int_equal(gv_writer_close(writer), GV_OK);
    gv_reader *reader;
    gv_error error = {0};
    gv_record read;
    bool more;
    assert_int_equal(gv_reader_open(path, &reader, &error), GV_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gv_reader_next(reader, &read, &more, &error), GV_OK);
        assert_true(more);
    }
    assert_int_equal(read.type, GV_RECORD_module);
    assert_int_equal(read.module.build_id.length, size);
    assert_int_equal(gv_reader_next(reader, &read, &more, &error), GV_OK);
    assert_false(more);
    assert_null(gv_reader_truncation(reader));
    gv_reader_close(reader);
    free(big);
}

static void test_frame_records_are_the_writers(void **state)
{
    gv_writer *writer = create(scratch("own"));
    assert_int_equal(gv_write_frame(writer, &(gv_frame_record){.major = 1}), GV_ERR_USAGE);
    assert_int_equal(gv_writer_close(writer), GV_OK);
    assert_int_equal(gv_writer_close(NULL), GV_OK);
    gv_writer_abandon(NULL);
}

static void test_cannot_create(void **state)
{
    gv_writer *writer;
    gv_error error = {0};
    assert_int_equal(gv_writer_create("/nowhere/at/all.gravel", &writer, &error), GV_ERR_IO);
    assert_null(writer);
    assert_non_null(strstr(error.text, "/nowhere/at/all.gravel"));
    assert_non_null(strstr(error.text, "No such file"));
    assert_int_equal(gv_writer_append("/nowhere/at/all.gravel", 0, 0, 0, &writer, &error), GV_ERR_IO);
}

// ---- Appending ------------------------------------------------------------------------------------------------

// A file torn anywhere in its last frame is continued after its last whole one.
static void test_append_after_tear(void **state)
{
    const char *path = scratch("append");
    gv_writer *writer = create(path);
    for (uint64_t i = 0; i < 9; i++) {
        assert_int_equal(put_number(writer, i), GV_OK);
        if (i % 3 == 2)
            assert_int_equal(gv_writer_flush(writer), GV_OK);
    }
    assert_int_equal(gv_writer_close(writer), GV_OK);
    file_bytes file = read_file(path);
    for (size_t torn = 1; torn <= 20; torn++) {
        write_file(path, file.data, file.size - torn);
        gv_reader *reader;
        gv_error error = {0};
        gv_record record;
        bool more = true;
        assert_int_equal(gv_reader_open(path, &reader, &error), GV_OK);
        while (more)
            assert_int_equal(gv_reader_next(reader, &record, &more, &error), GV_OK);
        assert_non_null(gv_reader_truncation(reader));
        uint64_t valid, sequence, next;
        gv_reader_position(reader, &valid, &sequence, &next);
        gv_reader_close(reader);
        assert_int_equal(sequence, 2);
        assert_int_equal(next, 6);
        assert_int_equal(gv_writer_append(path, valid, sequence, next, &writer, &error), GV_OK);
        assert_int_equal(gv_writer_file_bytes(writer), valid);
        for (uint64_t i = 6; i < 8; i++) {
            assert_int_equal(put_number(writer, i), GV_OK);
            assert_int_equal(gv_writer_flush(writer), GV_OK);
        }
        assert_int_equal(gv_writer_close(writer), GV_OK);
        assert_whole(path, 8);
    }
    gv_error error = {0};
    assert_int_equal(gv_writer_append(path, 1 << 20, 1, 1, &writer, &error), GV_ERR_USAGE);
    assert_non_null(strstr(error.text, "1048576"));
    free(file.data);
}

// Two writers on one file would destroy each other's frames: the second is refused and changes nothing.
static void test_one_writer_a_file(void **state)
{
    const char *path = scratch("shared");
    gv_writer *writer = create(path), *second;
    assert_int_equal(put_number(writer, 0), GV_OK);
    assert_int_equal(gv_writer_flush(writer), GV_OK);
    uint64_t bytes = gv_writer_file_bytes(writer);
    gv_error error = {0};
    assert_int_equal(gv_writer_create(path, &second, &error), GV_ERR_USAGE);
    assert_null(second);
    assert_non_null(strstr(error.text, "%p in the name"));
    assert_int_equal(gv_writer_append(path, bytes, 1, 1, &second, &error), GV_ERR_USAGE);
    assert_whole(path, 1);
    // A child that has let go of its copy does not keep the file from others once the parent is done.
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        gv_writer_abandon(writer);
        char sign;
        _exit(read(pipes[0], &sign, 1) == 1 ? 0 : 1);
    }
    assert_int_equal(gv_writer_close(writer), GV_OK);
    gv_status status = GV_ERR_USAGE;
    for (int tries = 0; tries < 10000 && status == GV_ERR_USAGE; tries++) {
        status = gv_writer_append(path, bytes, 1, 1, &second, &error);
        if (status == GV_ERR_USAGE)
            usleep(1000); // the child has not got to its first line yet
    }
    assert_int_equal(status, GV_OK);
    assert_int_equal(put_number(second, 1), GV_OK);
    assert_int_equal(gv_writer_close(second), GV_OK);
    assert_whole(path, 2);
    assert_int_equal(write(pipes[1], "x", 1), 1);
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    close(pipes[0]);
    close(pipes[1]);
}

// ---- Failures -------------------------------------------------------------------------------------------------

static void check_broken(gv_writer *writer, gv_status expected, const char *says)
{
    for (uint64_t i = 0; i < 100000; i++)
        assert_int_equal(put_number(writer, i), expected);
    assert_int_equal(gv_writer_flush(writer), expected);
    assert_non_null(gv_writer_failure(writer));
    if (!strstr(gv_writer_failure(writer), says))
        fail_msg("it says: %s", gv_writer_failure(writer));
}

static void test_full_device(void **state)
{
    gv_writer *writer = create("/dev/full");
    assert_int_equal(put_number(writer, 0), GV_OK);
    errno = 4321;
    assert_int_equal(gv_writer_flush(writer), GV_ERR_IO);
    assert_int_equal(errno, 4321); // the program's errno is none of ours
    check_broken(writer, GV_ERR_IO, "No space left");
    assert_int_equal(gv_writer_file_bytes(writer), 0);
    assert_int_equal(gv_writer_close(writer), GV_ERR_IO);
}

// Runs `part` in a child and returns its exit code; a signal that ends it fails the test.
static int in_child(void (*part)(const char *), const char *path)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        part(path);
        _exit(99);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    if (WIFSIGNALED(how))
        fail_msg("the process was ended by signal %d", WTERMSIG(how));
    return WEXITSTATUS(how);
}

// In a child a failed expectation is an exit code, because cmocka's own checks belong to the parent.
#define EXPECT(condition)                                           \
    do {                                                            \
        if (!(condition)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            _exit(1);                                               \
        }                                                           \
    } while (0)

// A file-size limit would send SIGXFSZ, which ends a process that never asked for a trace.
static void hit_size_limit(const char *path)
{
    gv_writer *writer;
    EXPECT(gv_writer_create(path, &writer, NULL) == GV_OK);
    struct rlimit limit = {100, 100};
    EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    gv_status status = GV_OK;
    for (uint64_t i = 0; i < 1000 && status == GV_OK; i++) {
        put_number(writer, i);
        status = gv_writer_flush(writer);
    }
    EXPECT(status == GV_ERR_IO);
    EXPECT(strstr(gv_writer_failure(writer), "too large"));
    sigset_t pending;
    EXPECT(sigpending(&pending) == 0 && !sigismember(&pending, SIGXFSZ));
    EXPECT(gv_writer_close(writer) == GV_ERR_IO);
    _exit(0);
}

static void test_size_limit(void **state)
{
    const char *path = scratch("limited");
    assert_int_equal(in_child(hit_size_limit, path), 0);
    struct stat kind;
    assert_int_equal(stat(path, &kind), 0);
    assert_int_equal(kind.st_size, 100); // the frame that met the limit was torn there
    bool cut;
    assert_true(count_numbers(path, &cut) >= 1);
    assert_true(cut);
}

// The program closes every descriptor, as a daemon does, and then opens its own files under the same numbers.
static void lose_descriptor(const char *path)
{
    gv_writer *writer;
    EXPECT(gv_writer_create(path, &writer, NULL) == GV_OK);
    put_number(writer, 0);
    EXPECT(gv_writer_flush(writer) == GV_OK);
    char other[200];
    snprintf(other, sizeof other, "%s-theirs", path);
    for (int i = 3; i < 1000; i++)
        close(i);
    int theirs = open(other, O_CREAT | O_RDWR, 0600);
    for (int i = 3; i < 1000; i++)
        if (i != theirs)
            EXPECT(dup2(theirs, i) == i);
    put_number(writer, 1);
    EXPECT(gv_writer_flush(writer) == GV_ERR_IO);
    EXPECT(strstr(gv_writer_failure(writer), "closed its descriptor"));
    EXPECT(gv_writer_close(writer) == GV_ERR_IO);
    struct stat kind;
    for (int i = 3; i < 1000; i++)
        EXPECT(fstat(i, &kind) == 0 && kind.st_size == 0); // nothing written there, nothing closed
    _exit(0);
}

static void test_lost_descriptor(void **state)
{
    const char *path = scratch("lost");
    assert_int_equal(in_child(lose_descriptor, path), 0);
    assert_whole(path, 1);
}

static void look_at_descriptor(const char *path)
{
    enum { LIMIT = 1000 };
    bool inherited[LIMIT];
    for (int i = 0; i < LIMIT; i++)
        inherited[i] = fcntl(i, F_GETFD) >= 0;
    gv_writer *writer;
    EXPECT(gv_writer_create(path, &writer, NULL) == GV_OK);
    int found = 0;
    for (int i = 0; i < LIMIT; i++) {
        int flags = fcntl(i, F_GETFD);
        if (flags < 0 || inherited[i])
            continue;
        EXPECT(i >= 200); // out of the way of the numbers a program gets
        EXPECT(flags & FD_CLOEXEC);
        EXPECT(fcntl(i, F_GETFL) & O_APPEND);
        found++;
    }
    EXPECT(found == 1);
    gv_writer_close(writer);
    for (int i = 0; i < LIMIT; i++)
        EXPECT(inherited[i] == (fcntl(i, F_GETFD) >= 0));
    _exit(0);
}

static void test_descriptor(void **state)
{
    assert_int_equal(in_child(look_at_descriptor, scratch("descriptor")), 0);
}

static void test_memory_failure(void **state)
{
    const char *path = scratch("memory");
    gv_writer *writer;
    gv_error error = {0};
    long allowed = 0;
    for (gv_status status = GV_ERR_MEMORY; status != GV_OK; allowed++) {
        gv_memory_fail_after(allowed);
        status = gv_writer_create(path, &writer, &error);
        gv_memory_fail_after(-1);
        assert_true(status == GV_OK || (status == GV_ERR_MEMORY && !writer));
    }
    assert_true(allowed > 2);
    static char big[1 << 20];
    gv_memory_fail_after(0);
    for (uint64_t i = 0; i < 100000; i++) // more than one frame: the usual ones need no further memory
        assert_int_equal(put_number(writer, i), GV_OK);
    gv_status status = gv_write_note(writer, &(gv_note_record){.text = {big, sizeof big}});
    gv_status later = put_number(writer, 2);
    gv_memory_fail_after(-1);
    assert_int_equal(status, GV_ERR_MEMORY);
    assert_int_equal(later, GV_ERR_MEMORY);
    check_broken(writer, GV_ERR_MEMORY, "no memory");
    assert_int_equal(gv_writer_close(writer), GV_ERR_MEMORY);
    assert_whole(path, 100000); // what came before is all there
}

// ---- Processes and threads ------------------------------------------------------------------------------------

static void test_fork(void **state)
{
    const char *path = scratch("forked");
    gv_writer *writer = create(path);
    assert_int_equal(put_number(writer, 0), GV_OK);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        gv_writer_abandon(writer);
        _exit(0);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    assert_int_equal(put_number(writer, 1), GV_OK);
    assert_int_equal(gv_writer_close(writer), GV_OK);
    assert_whole(path, 2); // the child added nothing and took nothing away
}

static void test_kill(void **state)
{
    const char *path = scratch("killed");
    srand(11);
    for (int round = 0; round < 20; round++) {
        int pipes[2];
        assert_int_equal(pipe(pipes), 0);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            gv_writer *writer;
            if (gv_writer_create(path, &writer, NULL) != GV_OK)
                _exit(1);
            for (uint64_t i = 0;; i++) {
                if (put_number(writer, i) != GV_OK)
                    _exit(2);
                if (i % 7 == 6 && (gv_writer_flush(writer) != GV_OK || write(pipes[1], "x", 1) != 1))
                    _exit(3);
            }
        }
        close(pipes[1]);
        uint64_t flushed = 0;
        char signs[64];
        // Kill it after some flushes; those it still reported before it died count as well.
        uint64_t enough = 1 + (uint64_t)rand() % 200;
        ssize_t got;
        while ((got = read(pipes[0], signs, sizeof signs)) > 0) {
            flushed += (uint64_t)got;
            if (flushed >= enough)
                kill(child, SIGKILL);
        }
        close(pipes[0]);
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
        bool cut;
        uint64_t records = count_numbers(path, &cut);
        assert_true(records >= 7 * flushed);
        assert_int_equal(records % 7, 0); // whole frames only
    }
}

enum { THREADS = 2, EACH = 60000 };

static void *write_many(void *argument)
{
    gv_writer *writer = ((void **)argument)[0];
    uint64_t thread = (uint64_t)(uintptr_t)((void **)argument)[1];
    for (uint64_t i = 0; i < EACH; i++) {
        gv_operation_record record = {.sequence = i, .thread = thread, .detail = NUMBERS(i, i * i, i << 20)};
        if (gv_write_operation(writer, &record) != GV_OK || (i % 1000 == 0 && gv_writer_flush(writer) != GV_OK))
            return "failed";
    }
    return NULL;
}

static void test_threads(void **state)
{
    const char *path = scratch("threads");
    gv_writer *writer = create(path);
    pthread_t threads[THREADS];
    void *arguments[THREADS][2];
    for (uintptr_t i = 0; i < THREADS; i++) {
        arguments[i][0] = writer;
        arguments[i][1] = (void *)i;
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, arguments[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    assert_int_equal(gv_writer_close(writer), GV_OK);
    gv_reader *reader;
    gv_error error = {0};
    assert_int_equal(gv_reader_open(path, &reader, &error), GV_OK);
    uint64_t next[THREADS] = {0};
    for (;;) {
        gv_record record;
        bool more;
        assert_int_equal(gv_reader_next(reader, &record, &more, &error), GV_OK);
        if (!more)
            break;
        const gv_operation_record *operation = &record.operation;
        assert_true(operation->thread < THREADS);
        assert_int_equal(operation->sequence, next[operation->thread]++);
        assert_int_equal(operation->detail.items[1], operation->sequence * operation->sequence);
    }
    assert_null(gv_reader_truncation(reader));
    gv_reader_close(reader);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(next[i], EACH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_full_buffer_flushes),
        cmocka_unit_test(test_big_records),
        cmocka_unit_test(test_frame_records_are_the_writers),
        cmocka_unit_test(test_cannot_create),
        cmocka_unit_test(test_append_after_tear),
        cmocka_unit_test(test_one_writer_a_file),
        cmocka_unit_test(test_full_device),
        cmocka_unit_test(test_size_limit),
        cmocka_unit_test(test_lost_descriptor),
        cmocka_unit_test(test_descriptor),
        cmocka_unit_test(test_memory_failure),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
