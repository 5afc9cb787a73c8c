// What compare.c, image.c and shadow.c share: device memory, the kernels of src/device/compare.cu and how they are run
// over ranges. Private to the three.
#ifndef GV_RECORD_COMPARE_CORE_H
#define GV_RECORD_COMPARE_CORE_H

#include "record/compare.h"

enum {
    GV_CHUNK_BLOCKS = 1 << 20, // blocks whose changes are handed over at once: 32 MiB
    GV_MOST_PIECES = 1 << 20,  // ranges that are saved at once
    GV_CHANGED_BYTES = GV_CHUNK_BLOCKS * 4,
    GV_COUNTS_BYTES = GV_CHUNK_BLOCKS / GV_GROUP_BLOCKS * 4,
};

// Device memory that grows as it is needed and is kept.
typedef struct gv_device_buffer {
    CUdeviceptr memory;
    uint64_t size;
} gv_device_buffer;

// Ranges as the kernels walk them.
typedef struct gv_walk {
    gv_piece *pieces; // the host's copy
    size_t count, capacity;
    uint64_t blocks;
    gv_device_buffer device;
} gv_walk;

struct gv_compare {
    CUmodule module;
    CUfunction save, compare, restore, perturb, settle, fill, repeat, scan;
    CUstream stream;
    gv_walk saved, perturbed, scanned, part;
    gv_device_buffer copies;  // what is saved
    gv_device_buffer swapped; // a word for each perturbed block
    gv_device_buffer chunk;   // what changed in a chunk: a word for each block, then the counts
    void *host;               // the same, page-locked
    gv_device_buffer regions; // starts, then ends
    gv_range bounds;
    size_t region_count;
    gv_device_buffer search; // the job, head, edges, maps and strays
};

// Makes room; the old content is lost.
gv_status gv_device_reserve(gv_device_buffer *buffer, uint64_t size, gv_error *error);
void gv_device_release(gv_device_buffer *buffer);

// It is gone with its context.
void gv_device_forget(gv_device_buffer *buffer);

bool gv_walk_add(gv_walk *walk, uint64_t start, uint64_t end, uint64_t saved, uint32_t owner);
gv_status gv_walk_upload(gv_compare *compare, gv_walk *walk, gv_error *error);

// Enqueues a kernel over the walk: what comes next in the stream comes behind it.
gv_status gv_walk_run(gv_compare *compare, CUfunction kernel, gv_walk *walk, gv_error *error);

// Adds to `changed` the bytes of the walk that differ from their copies; with `coarse` every group of blocks
// (GV_GROUP_BLOCKS) that has such a byte, as far as it belongs to the walk, which takes less time where much differs.
gv_status gv_walk_changed(gv_compare *compare, gv_walk *walk, bool coarse, gv_range_set *changed, gv_error *error);

// Where a copy of [start, end) goes in a buffer of which *used bytes are taken: aligned as its original is.
uint64_t gv_place_copy(uint64_t *used, uint64_t start, uint64_t end);

#endif
