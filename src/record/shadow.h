// A copy of memory that is kept beside it from one checked launch to the next, with a hash of each group of 4 KiB
// (src/device/shadow.cu). Bringing it up to date, telling what a launch has changed, putting that back and telling
// whether another run leaves the same each read the memory once, and write what has changed.
//
// A change goes unseen if the hash of its group stays the same: one in 2^64 does (src/device/hash.h).
//
// As with src/record/compare.h the context must be current, and memory it is given must be readable and writable on the
// device. The copy lies in device memory alone.
#ifndef GV_RECORD_SHADOW_H
#define GV_RECORD_SHADOW_H

#include "record/image.h"

typedef struct gv_shadow gv_shadow;

// The regions that addresses are looked for in, ascending and disjoint. Those that are `marked` are all in the copy.
typedef struct gv_shadow_regions {
    const gv_range *ranges;
    const uint8_t *marked;
    size_t count;
} gv_shadow_regions;

// What bringing the copy up to date has found.
typedef struct gv_shadow_news {
    uint64_t copied_bytes; // at most: whole groups
    bool escaped;          // marked memory holds an address in a region that is not marked
    bool too_many;         // there were more strays than are told of
    uint64_t strays[64];   // addresses between the regions that it holds, one for each 2 MiB, some perhaps twice
    size_t stray_count;
} gv_shadow_news;

// Loads the kernels. `soft`: the driver is the software driver.
gv_status gv_shadow_open(bool soft, gv_shadow **shadow, gv_error *error);

// Unloads them and frees all memory. NULL is allowed.
void gv_shadow_close(gv_shadow *shadow);

// Frees the host's part alone: the context, and everything in it, is gone.
void gv_shadow_forget(gv_shadow *shadow);

// Device memory that it holds, and that laying it out for these ranges takes beyond that, in bytes.
uint64_t gv_shadow_bytes(const gv_shadow *shadow);
uint64_t gv_shadow_cost(const gv_shadow *shadow, const gv_range_set *ranges);

// Frees its device memory but keeps the kernels.
void gv_shadow_trim(gv_shadow *shadow);

// It is to be a copy of `ranges` from here on. Where it is that already, what it holds is kept. GV_ERR_MEMORY: the
// driver has no memory for it, or it is too large; it holds nothing then.
gv_status gv_shadow_lay_out(gv_shadow *shadow, const gv_range_set *ranges, const gv_shadow_regions *regions,
                            CUstream stream, gv_error *error);

// Brings the copy up to date. Between the two calls the kernel runs, and the host is free to do something else. With
// `search` marked memory is searched for addresses on the way.
gv_status gv_shadow_take(gv_shadow *shadow, bool search, CUstream stream, gv_error *error);
gv_status gv_shadow_taken(gv_shadow *shadow, gv_shadow_news *news, CUstream stream, gv_error *error);

// Puts memory back to what the copy has, keeps what was there in a journal, and adds to `changed` the groups that were
// not the same, as far as they belong to the ranges. GV_ERR_LIMIT: the journal is too small for that, and memory is as
// it was: gv_shadow_grow makes it large enough, with at most `room` more bytes of device memory.
gv_status gv_shadow_rewind(gv_shadow *shadow, CUstream stream, gv_range_set *changed, gv_error *error);
gv_status gv_shadow_grow(gv_shadow *shadow, uint64_t room, CUstream stream, gv_error *error);

// Memory becomes what it was when gv_shadow_rewind found it, if it has not been written since.
gv_status gv_shadow_undo(gv_shadow *shadow, CUstream stream, gv_error *error);

// Is memory what it was when gv_shadow_rewind found it?
gv_status gv_shadow_compare(gv_shadow *shadow, CUstream stream, bool *same, gv_error *error);

// The copy, and the journal, as images. They are valid until the shadow is brought up to date or laid out anew, and are
// freed with gv_image_free before that.
gv_status gv_shadow_before(const gv_shadow *shadow, gv_image **image, gv_error *error);
gv_status gv_shadow_after(const gv_shadow *shadow, gv_image **image, gv_error *error);

#endif
