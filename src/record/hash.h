// The host's side of src/device/hash.cu: regions of device memory hashed in the order of a stream, without waiting for
// it. The same on a GPU and on the software driver. All calls but gv_hashed_poll need the region's context current.
#ifndef GV_RECORD_HASH_H
#define GV_RECORD_HASH_H

#include "base/error.h"
#include "device/hash.h"

#include <cuda.h>
#include <stdbool.h>

// The kernels in one context.
typedef struct gv_hasher gv_hasher;

// Loads them. `soft`: the driver is the software driver.
gv_status gv_hasher_open(bool soft, gv_hasher **hasher, gv_error *error);
void gv_hasher_close(gv_hasher *hasher);

// Hashes a scratch region, in a stream of its own, changes one byte of it (or none, with `change_nothing`, to see the
// test fail) and expects to be told of the page. GV_OK: the canary sings. The scratch memory is kept until the hasher
// is closed: freeing it would wait for all other work of the device.
gv_status gv_hasher_self_test(gv_hasher *hasher, bool change_nothing, gv_error *error);

// Most pages of a region, and most chunks of all its pages together.
#define GV_HASH_MOST_PAGES  (UINT64_C(1) << 30)
#define GV_HASH_MOST_CHUNKS (UINT64_C(1) << 31)

// Pages of a region; chunks of all its pages.
uint64_t gv_hash_pages(uint64_t bytes, uint64_t page_bytes);
uint64_t gv_hash_chunks(uint64_t bytes, uint64_t page_bytes);

// A region with its state on the device: 8 bytes for each chunk, 28 for each page, and 16 in page-locked memory.
typedef struct gv_hashed gv_hashed;
gv_status gv_hashed_open(gv_hasher *hasher, uint64_t base, uint64_t bytes, uint64_t page_bytes, CUstream stream,
                         gv_hashed **hashed, gv_error *error);

// Frees it; its hashes must have come to their end. NULL is allowed.
void gv_hashed_close(gv_hashed *hashed);

// Frees the host's part alone: the context is gone, or something of it may still be running.
void gv_hashed_forget(gv_hashed *hashed);

// For the next hash: marks the pages that `count` indices at a device address name.
gv_status gv_hashed_mark(gv_hashed *hashed, CUstream stream, uint64_t address, uint64_t count, unsigned index_bytes,
                         uint64_t slots_per_page, gv_error *error);

// For the next hash: `count` pages (ascending, each once) are compared with what they are now, and not with what they
// were at the last hash. Waits for that, `seconds` at most; where that is not enough, what is written meanwhile counts
// as having been there.
gv_status gv_hashed_anew(gv_hashed *hashed, const uint32_t *pages, uint32_t count, double seconds, gv_error *error);

// Enqueues a hash. One at a time: the one before must have been taken. The first one lists every page.
gv_status gv_hashed_enqueue(gv_hashed *hashed, CUstream stream, gv_error *error);

// Has it come to its end? CUDA_ERROR_NOT_READY: not yet.
CUresult gv_hashed_poll(gv_hashed *hashed);

// What it found, valid until the next one is enqueued. Entries are in no order.
const gv_hash_head *gv_hashed_take(gv_hashed *hashed, const gv_hash_entry **entries);

#endif
