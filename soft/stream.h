// Streams: resolving handles, and enqueueing work in order.
#ifndef GRAVEL_SOFT_STREAM_H
#define GRAVEL_SOFT_STREAM_H

#include "soft/capture.h"
#include "soft/context.h"
#include "soft/schedule.h"

struct CUstream_st {
    struct object object;
    CUcontext context;
    unsigned flags;
    int priority;
    uint64_t thread;                    // of a per-thread default stream, else 0
    struct task *tail;                  // the latest work, counted; NULL: none
    struct task *kernel;                // the kernel that the latest work is, counted; NULL: it is something else
    struct capture *capture;            // NULL: not capturing
    struct dependency_set dependencies; // while capturing: what the next node comes after
};

// A _ptsz entry point's idea of a null stream.
#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

// The stream a handle stands for in the calling thread.
CUresult stream_resolve(CUstream handle, CUstream *stream);

// A new stream of a context.
CUresult stream_new(CUcontext context, unsigned flags, int priority, uint64_t thread, CUstream *stream);
void stream_delete(CUstream stream);

// Appends a task whose operation is set to the stream's work, submits it and drops the caller's reference. The stream
// is not capturing.
CUresult stream_append(CUstream stream, struct task *task);

// Puts a task (counted, taken over) at the end of the stream's work, which the caller has linked behind all before.
void stream_set_tail(CUstream stream, struct task *tail);

// Enqueues an operation (taken over, also on failure) on a stream: as a node where it captures, else as a task.
// `task` and `node` may be NULL; what they receive is not counted.
CUresult stream_enqueue(CUstream stream, struct operation *operation, struct task **task, CUgraphNode *node);

// Checks before work may enter a stream, capturing or not: the legacy stream may not be used beside a capture.
CUresult stream_check(CUstream stream);

// A task that comes after everything enqueued in a context so far; the caller owns a reference. NULL: memory is out.
struct task *context_join(CUcontext context);

// Frees a stream-ordered or graph allocation by an ordinary free.
struct allocation;
CUresult stream_free_now(struct allocation *allocation);

#endif
