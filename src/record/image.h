// Copies of memory that are kept beside it for a while: several at a time, each of any ranges, in device memory as far
// as a limit allows and in page-locked host memory beyond it. Memory is compared with a copy, and put back from it, in
// whole or in part, by the kernels of src/device/compare.cu.
//
// As with src/record/compare.h the context must be current, all calls run on the stream of the gv_compare, and memory
// they are given must be readable on the device, and writable where it is put back.
#ifndef GV_RECORD_IMAGE_H
#define GV_RECORD_IMAGE_H

#include "record/compare.h"

typedef struct gv_image gv_image;

// Most memory, in bytes, that one copy may take. What is left of them is up to the caller.
typedef struct gv_image_room {
    uint64_t device, host;
} gv_image_room;

// What copies may take now: half of what is free of device memory and a quarter of the host's, so that the program does
// not run out, and no more than these limits in bytes. `kept` bytes of device memory are held already, and count as
// free.
gv_image_room gv_image_room_now(uint64_t most_device, uint64_t most_host, uint64_t kept);

// How much memory a copy of these ranges takes, wherever it lies.
uint64_t gv_image_cost(const gv_range_set *ranges);

// Copies the ranges as they are now. Takes from `room` what it used. GV_ERR_MEMORY: there is not enough room, the
// driver has no memory, or there are too many ranges; *image is NULL then.
gv_status gv_image_save(gv_compare *compare, const gv_range_set *ranges, gv_image_room *room, gv_image **image,
                        gv_error *error);

// An image whose copies lie in memory that somebody else keeps. Parts are added in ascending order; the copy of `start`
// is at `copy`, equal to it modulo 32. Freeing it does not free the copies.
gv_status gv_image_borrow(gv_image **image, gv_error *error);
gv_status gv_image_borrow_part(gv_image *image, uint64_t start, uint64_t end, uint64_t copy, gv_error *error);

// Copies the same ranges again, as they are now, over what the image held.
gv_status gv_image_renew(gv_compare *compare, gv_image *image, gv_error *error);

// Adds to `changed` the bytes that differ between memory and the image, of all it has or of `within` alone (which may
// reach beyond it). With `coarse` whole groups of 4 KiB that have such a byte, as far as the image has them.
gv_status gv_image_changed(gv_compare *compare, const gv_image *image, const gv_range_set *within, bool coarse,
                           gv_range_set *changed, gv_error *error);

// Puts memory back, all that the image has or what of it lies in `within`. Bytes that do not differ are not written.
gv_status gv_image_restore(gv_compare *compare, const gv_image *image, const gv_range_set *within, gv_error *error);

// Reads the image's bytes of [start, end), which must all be in it, to `to`. Waits for the stream.
gv_status gv_image_read(gv_compare *compare, const gv_image *image, uint64_t start, uint64_t end, void *to,
                        gv_error *error);

// Frees it and gives its memory back to `room`. The stream must be done with it. NULL is allowed.
void gv_image_free(gv_image *image, gv_image_room *room);

#endif
