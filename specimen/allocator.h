// A caching allocator for device memory with the rules of PyTorch's (c10/cuda/CUDACachingAllocator.cpp), since the
// incident is made of them:
//
// - Memory comes from the driver in segments and is dealt out in blocks. Sizes are rounded up to 512 bytes. Requests of
//   up to 1 MiB are served from segments of 2 MiB, those below 10 MiB from segments of 20 MiB, larger ones from
//   segments of their own, rounded up to 2 MiB.
// - A block belongs to the stream it was taken in. Free blocks are kept by stream, and a request gets the smallest free
//   block of its own stream that is large enough (the lowest address among equals), never another stream's. The rest is
//   split off: always in small segments (512 bytes or more), in large ones when it is more than 1 MiB.
// - Giving a block back is an act of the *host*. It can be taken again at once, while the device still uses it: in its
//   own stream that is safe, since later work of the stream waits. Neighbours that are free become one block.
// - A use in another stream must be announced (allocator_record_stream). Such a block comes back when an event in
//   each of those streams has passed.
// - While a capture is under way, streams that take part in it get their memory from a private pool; all other streams
//   get ordinary memory. No event can pass in a capture: a block with announced uses is set aside until all captures
//   have ended, or, if the allocator was told so, until the graph captured so far proves that everything which used it
//   comes before whatever the stream does next.
//
// What the allocator does not check, and what goes wrong when it is not kept: that uses in other streams are announced.
// Not for several threads at a time.
#ifndef SPECIMEN_ALLOCATOR_H
#define SPECIMEN_ALLOCATOR_H

#include "specimen/device.h"

#include <stddef.h>
#include <stdint.h>

enum {
    ALLOCATOR_ROUND = 512,
    ALLOCATOR_SMALL = 1 << 20,         // largest request that is served from small segments
    ALLOCATOR_SMALL_SEGMENT = 2 << 20, // bytes of such a segment
    ALLOCATOR_LARGE_SEGMENT = 20 << 20,
    ALLOCATOR_OWN_SEGMENT = 10 << 20, // from this size on a request gets a segment of its own
    ALLOCATOR_OWN_ROUND = 2 << 20,
    ALLOCATOR_MAX_USES = 8, // other streams that can be announced for a block
};

typedef struct allocator allocator;

// A block that is taken. Its owner may read these; everything else is the allocator's.
typedef struct block {
    CUdeviceptr address;
    size_t bytes;    // as rounded: the request or a little more
    CUstream stream; // that it was taken in
} block;

// Memory of its own for captured graphs, shared by all that are captured into it. Counted: one reference for the maker
// and one for each graph.
typedef struct allocator_pool allocator_pool;

// prove_reuse: reuse in captures by proof. NULL when memory is out.
allocator *allocator_create(device *d, bool prove_reuse);

// Frees all segments. Blocks that are still taken go with them; the return value says how many there were.
size_t allocator_destroy(allocator *a);

// A block of at least `bytes` (1 or more) for work in `stream`. NULL, with the device's error set, when memory is out
// (after everything cached and unused has been given back to the driver) or when something failed before.
block *allocator_take(allocator *a, size_t bytes, CUstream stream);

// Gives a block back. NULL is allowed.
void allocator_give(allocator *a, block *b);

// Announces that work in `stream`, enqueued up to the block's return, uses it. Its own stream needs no announcement.
void allocator_record_stream(allocator *a, block *b, CUstream stream);

allocator_pool *allocator_pool_create(allocator *a);
void allocator_pool_keep(allocator_pool *p);
// Gives a reference back. With the last one the pool's segments return to the driver, those with taken blocks at the
// next allocator_trim after these were given back: no graph of the pool may be launched after that.
void allocator_pool_drop(allocator *a, allocator_pool *p);

// Between these two, the streams that take part in `stream`'s capture (which has just begun) take from the pool. The
// second is called after the capture has ended.
void allocator_begin_capture(allocator *a, allocator_pool *p, CUstream stream);
void allocator_end_capture(allocator *a, allocator_pool *p);

// Gives segments without any block taken back to the driver.
void allocator_trim(allocator *a);

typedef struct allocator_counts {
    size_t blocks, bytes; // taken now
    size_t reserved;      // bytes held from the driver
    size_t set_aside;     // blocks given back that wait for other streams
} allocator_counts;

allocator_counts allocator_count(const allocator *a);

// Tells of every take and give, in order, for those who want to see how blocks are dealt out.
enum allocator_event { ALLOCATOR_TAKEN, ALLOCATOR_GIVEN, ALLOCATOR_SET_ASIDE, ALLOCATOR_RETURNED };
typedef void (*allocator_listener)(void *user, enum allocator_event event, const block *b, size_t requested);
void allocator_listen(allocator *a, allocator_listener listener, void *user);

#endif
