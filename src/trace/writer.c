// The trace writer: see writer.h. It runs inside other people's processes, so it prints nothing, ends nothing, leaves
// errno and signals as they were, and writes to no file but its own.
#define ZSTD_STATIC_LINKING_ONLY // ZSTD_initStaticCCtx: all of zstd's memory is taken once, at the beginning
#include "trace/writer.h"

#include "base/memory.h"
#include "trace/codec.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

enum {
    FLUSH_BYTES = 256 << 10,
    // Room at the front of the buffer for the frame record, which is made at the flush: it is a head of three bytes
    // and six fields of at most ten.
    FRAME_ROOM = 64,
    KEPT_CAPACITY = 1 << 20, // a buffer that one huge record has blown up beyond this is given back
    COMPRESSION_LEVEL = 3,
    // Programs that give out low descriptors by number (shells, daemons) do not meet ours up here.
    LOWEST_DESCRIPTOR = 200
};

struct gv_writer {
    pthread_mutex_t lock;
    int file;
    dev_t device; // together with inode: is `file` still ours?
    ino_t inode;
    gv_buffer records;     // FRAME_ROOM bytes, then the records of the frame to come
    gv_buffer frame;       // the frame once compressed
    void *workspace;       // zstd's memory
    ZSTD_CCtx *zstd;       // in the workspace
    uint64_t buffered;     // records in the buffer
    uint64_t sequence;     // of the frame to come
    uint64_t first_record; // of the frame to come
    uint64_t file_bytes;
    gv_error failure; // status GV_OK as long as the writer works
};

// ---- Being a guest --------------------------------------------------------------------------------------------

// What a call into the writer must put back when it returns.
struct visit {
    int saved_errno;
    int cancel_state;
};

// Locks. A cancelled thread must not die in write(2) with the lock held.
static struct visit enter(gv_writer *writer)
{
    struct visit visit = {.saved_errno = errno};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &visit.cancel_state);
    pthread_mutex_lock(&writer->lock);
    return visit;
}

static void leave(gv_writer *writer, struct visit visit)
{
    pthread_mutex_unlock(&writer->lock);
    pthread_setcancelstate(visit.cancel_state, NULL);
    errno = visit.saved_errno;
}

// The program may have closed our descriptor (daemons close all) and got the number back for a file of its own.
static bool file_is_ours(const gv_writer *writer)
{
    struct stat now;
    return writer->file >= 0 && fstat(writer->file, &now) == 0 && now.st_dev == writer->device &&
           now.st_ino == writer->inode;
}

// write(2), without the signal that a file-size limit or a closed pipe would send to the program.
static ssize_t write_quietly(int file, const void *data, size_t size)
{
    sigset_t quiet, before, pending;
    sigemptyset(&quiet);
    sigaddset(&quiet, SIGXFSZ);
    sigaddset(&quiet, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &quiet, &before);
    sigpending(&pending);
    ssize_t written = write(file, data, size);
    int cause = errno;
    if (written < 0 && (cause == EFBIG || cause == EPIPE)) {
        // Takes back the signal we caused, and leaves one that was there before us.
        int number = cause == EFBIG ? SIGXFSZ : SIGPIPE;
        if (!sigismember(&pending, number)) {
            sigset_t caused;
            sigemptyset(&caused);
            sigaddset(&caused, number);
            while (sigtimedwait(&caused, NULL, &(struct timespec){0}) < 0 && errno == EINTR)
                ;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = cause;
    return written;
}

// ---- Frames ---------------------------------------------------------------------------------------------------

// The first failure stays; everything that was gathered is dropped.
static gv_status break_writer(gv_writer *writer, gv_status status, const char *what, const char *detail)
{
    if (writer->failure.status == GV_OK)
        gv_fail(&writer->failure, status, "the trace file ends here: %s%s%s", what, detail ? ": " : "",
                detail ? detail : "");
    writer->records.size = FRAME_ROOM;
    writer->buffered = 0;
    return writer->failure.status;
}

// The frame record goes right in front of the first record. Returns where the frame's content starts.
static const uint8_t *put_frame_record(gv_writer *writer)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    gv_frame_record record = {
        .major = GV_TRACE_MAJOR,
        .minor = GV_TRACE_MINOR,
        .pid = (uint64_t)getpid(),
        .sequence = writer->sequence,
        .first_record = writer->first_record,
        .time_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
    };
    uint8_t room[FRAME_ROOM];
    // A buffer over fixed memory: it has room for the longest frame record, so that it never grows.
    gv_buffer head = {.data = room, .capacity = sizeof room};
    gv_record_encode(&head, GV_RECORD_frame, &record);
    uint8_t *start = writer->records.data + FRAME_ROOM - head.size;
    memcpy(start, room, head.size);
    return start;
}

static gv_status compress(gv_writer *writer, const uint8_t *content, size_t size)
{
    writer->frame.size = 0;
    if (!gv_buffer_reserve(&writer->frame, ZSTD_compressBound(size))) {
        writer->frame.failed = false;
        return break_writer(writer, GV_ERR_MEMORY, "no memory to compress a frame", NULL);
    }
    size_t compressed = ZSTD_compress2(writer->zstd, writer->frame.data, writer->frame.capacity, content, size);
    if (ZSTD_isError(compressed))
        return break_writer(writer, GV_ERR_LIMIT, "zstd could not compress a frame", ZSTD_getErrorName(compressed));
    writer->frame.size = compressed;
    return GV_OK;
}

static gv_status write_frame(gv_writer *writer)
{
    if (!file_is_ours(writer))
        return break_writer(writer, GV_ERR_IO, "the program closed its descriptor", NULL);
    for (size_t done = 0; done < writer->frame.size;) {
        ssize_t written = write_quietly(writer->file, writer->frame.data + done, writer->frame.size - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            char text[128];
            const char *cause = written < 0 ? strerror_r(errno, text, sizeof text) : "nothing was written";
            return break_writer(writer, GV_ERR_IO, "writing failed", cause);
        }
        done += (size_t)written;
        writer->file_bytes += (size_t)written;
    }
    return GV_OK;
}

static void shrink(gv_buffer *buffer, size_t kept)
{
    if (buffer->capacity <= KEPT_CAPACITY)
        return;
    uint8_t *smaller = gv_realloc_array(buffer->data, KEPT_CAPACITY, 1);
    if (smaller) {
        buffer->data = smaller;
        buffer->capacity = KEPT_CAPACITY;
    }
    buffer->size = kept;
}

static gv_status flush(gv_writer *writer)
{
    if (writer->failure.status != GV_OK || writer->buffered == 0)
        return writer->failure.status;
    const uint8_t *content = put_frame_record(writer);
    gv_status status = compress(writer, content, (size_t)(writer->records.data + writer->records.size - content));
    if (status == GV_OK)
        status = write_frame(writer);
    if (status != GV_OK)
        return status;
    writer->sequence++;
    writer->first_record += writer->buffered;
    writer->buffered = 0;
    writer->records.size = FRAME_ROOM;
    shrink(&writer->records, FRAME_ROOM);
    shrink(&writer->frame, 0);
    return GV_OK;
}

// ---- Records --------------------------------------------------------------------------------------------------

static gv_status put_record(gv_writer *writer, uint64_t type, const void *record)
{
    if (writer->failure.status != GV_OK)
        return writer->failure.status;
    size_t before = writer->records.size;
    if (gv_buffer_reserve(&writer->records, gv_record_bound(type, record)))
        gv_record_encode(&writer->records, type, record);
    if (writer->records.failed) {
        // What was gathered so far is good; it still goes into the file if it can.
        writer->records.failed = false;
        writer->records.size = before;
        flush(writer);
        return break_writer(writer, GV_ERR_MEMORY, "no memory for a record", NULL);
    }
    if (writer->records.size - before > GV_RECORD_LIMIT) {
        writer->records.size = before;
        shrink(&writer->records, before);
        return GV_ERR_LIMIT;
    }
    writer->buffered++;
    return writer->records.size - FRAME_ROOM >= FLUSH_BYTES ? flush(writer) : GV_OK;
}

static gv_status write_record(gv_writer *writer, uint64_t type, const void *record)
{
    if (type == GV_RECORD_frame) // these are the writer's own
        return GV_ERR_USAGE;
    struct visit visit = enter(writer);
    gv_status status = put_record(writer, type, record);
    leave(writer, visit);
    return status;
}

#define DEFINE_WRITE(number, name, FIELDS)                                         \
    gv_status gv_write_##name(gv_writer *writer, const gv_##name##_record *record) \
    {                                                                              \
        return write_record(writer, number, record);                               \
    }
GV_RECORDS(DEFINE_WRITE)

// ---- Life -----------------------------------------------------------------------------------------------------

static void free_writer(gv_writer *writer)
{
    gv_buffer_free(&writer->records);
    gv_buffer_free(&writer->frame);
    gv_free(writer->workspace);
    gv_free(writer);
}

// Everything but the file. NULL when memory is out.
static gv_writer *new_writer(void)
{
    gv_writer *writer = gv_calloc(1, sizeof *writer);
    if (!writer)
        return NULL;
    writer->file = -1;
    // Taken now, so that the usual frame needs no memory later, when the program may be short of it.
    size_t zstd_bytes = ZSTD_estimateCCtxSize(COMPRESSION_LEVEL);
    writer->workspace = gv_malloc(zstd_bytes);
    writer->zstd = writer->workspace ? ZSTD_initStaticCCtx(writer->workspace, zstd_bytes) : NULL;
    size_t usual = FRAME_ROOM + FLUSH_BYTES + (FLUSH_BYTES >> 2);
    if (!writer->zstd || !gv_buffer_reserve(&writer->records, usual) ||
        !gv_buffer_reserve(&writer->frame, ZSTD_compressBound(usual))) {
        free_writer(writer);
        return NULL;
    }
    writer->records.size = FRAME_ROOM;
    ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_compressionLevel, COMPRESSION_LEVEL);
    ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_checksumFlag, 1);
    ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_contentSizeFlag, 1);
    pthread_mutex_init(&writer->lock, NULL);
    return writer;
}

// Takes over an open descriptor, moved out of the way of the program's own.
static void adopt_file(gv_writer *writer, int file, const struct stat *identity)
{
    int moved = fcntl(file, F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR);
    if (moved >= 0)
        close(file);
    writer->file = moved >= 0 ? moved : file;
    writer->device = identity->st_dev;
    writer->inode = identity->st_ino;
}

// Opens and puts a new writer on the file, cut to `valid_bytes`.
static gv_status open_writer(const char *path, int flags, uint64_t valid_bytes, gv_writer **writer, gv_error *error)
{
    *writer = NULL;
    gv_writer *made = new_writer();
    if (!made) {
        gv_fail(error, GV_ERR_MEMORY, "%s: no memory to write a trace", path);
        return GV_ERR_MEMORY;
    }
    int file = open(path, flags | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
    struct stat identity;
    gv_status status = GV_OK;
    if (file < 0 || fstat(file, &identity) != 0) {
        status = GV_ERR_IO;
        gv_fail(error, status, "%s: the trace file cannot be opened for writing: %s", path, strerror(errno));
    } else if (S_ISREG(identity.st_mode) && flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        // Only this answer counts: a file system without locks is no reason not to record.
        status = GV_ERR_USAGE;
        gv_fail(
            error, status,
            "%s: another process is writing to this trace; give each process a file of its own, with %%p in the name",
            path);
    } else if (valid_bytes && (!S_ISREG(identity.st_mode) || (uint64_t)identity.st_size < valid_bytes)) {
        status = GV_ERR_USAGE;
        gv_fail(error, status, "%s: cannot append after byte %llu: the file has %llu", path,
                (unsigned long long)valid_bytes, (unsigned long long)identity.st_size);
    } else if (S_ISREG(identity.st_mode) && ftruncate(file, (off_t)valid_bytes) != 0) {
        status = GV_ERR_IO;
        gv_fail(error, status, "%s: what the file held before cannot be cut off: %s", path, strerror(errno));
    }
    if (status != GV_OK) {
        if (file >= 0)
            close(file);
        free_writer(made);
        return status;
    }
    adopt_file(made, file, &identity);
    made->file_bytes = valid_bytes;
    *writer = made;
    return GV_OK;
}

gv_status gv_writer_create(const char *path, gv_writer **writer, gv_error *error)
{
    int saved_errno = errno;
    gv_status status = open_writer(path, O_CREAT, 0, writer, error);
    errno = saved_errno;
    return status;
}

gv_status gv_writer_append(const char *path, uint64_t valid_bytes, uint64_t next_sequence, uint64_t next_record,
                           gv_writer **writer, gv_error *error)
{
    int saved_errno = errno;
    gv_status status = open_writer(path, 0, valid_bytes, writer, error);
    errno = saved_errno;
    if (status == GV_OK) {
        (*writer)->sequence = next_sequence;
        (*writer)->first_record = next_record;
    }
    return status;
}

gv_status gv_writer_flush(gv_writer *writer)
{
    struct visit visit = enter(writer);
    gv_status status = flush(writer);
    leave(writer, visit);
    return status;
}

const char *gv_writer_failure(gv_writer *writer)
{
    struct visit visit = enter(writer);
    const char *text = writer->failure.status == GV_OK ? NULL : writer->failure.text;
    leave(writer, visit);
    return text;
}

uint64_t gv_writer_file_bytes(gv_writer *writer)
{
    struct visit visit = enter(writer);
    uint64_t bytes = writer->file_bytes;
    leave(writer, visit);
    return bytes;
}

gv_status gv_writer_close(gv_writer *writer)
{
    if (!writer)
        return GV_OK;
    struct visit visit = enter(writer);
    gv_status status = flush(writer);
    if (file_is_ours(writer))
        close(writer->file);
    leave(writer, visit);
    pthread_mutex_destroy(&writer->lock);
    free_writer(writer);
    return status;
}

void gv_writer_abandon(gv_writer *writer)
{
    // No locking: the thread that may have held the lock at the fork does not exist in the child. For the same
    // reason the mutex is not destroyed.
    if (!writer)
        return;
    int saved_errno = errno;
    if (file_is_ours(writer))
        close(writer->file);
    free_writer(writer);
    errno = saved_errno;
}
