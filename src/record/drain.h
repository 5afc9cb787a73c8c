// The host's side of the device access table: its memory, the kernels that empty it, and the way from pages of bitmaps
// to byte ranges.
#ifndef GV_RECORD_DRAIN_H
#define GV_RECORD_DRAIN_H

#include "record/source.h"

// Turns drained pages, in any order, into ranges: the union of what both tables hold. False when memory is out.
bool gv_pages_to_ranges(gv_drained_page *pages, size_t page_count, const uint32_t *bitmaps, gv_node_ranges *ranges);

// Adds the tensors of maps that were kept, each under its kind, to `extents`. False when memory is out.
bool gv_maps_to_ranges(const gv_logged_map *maps, size_t count, gv_node_ranges *extents);

typedef struct gv_drain gv_drain;

// Loads the drain kernels into the current context and allocates what they write to: page-locked host memory only, so
// that it can be kept from one armed replay to the next without taking device memory from the program.
gv_status gv_drain_create(const void *image, gv_drain **drain, gv_error *error);

// Allocates a table fit for nodes that touch up to `touched_bytes`, or less where device memory is short; and frees it.
gv_status gv_drain_open(gv_drain *drain, uint64_t touched_bytes, CUstream stream, gv_error *error);
void gv_drain_close(gv_drain *drain);

// Device address of the table: the user data of a recorded launch.
CUdeviceptr gv_drain_table(const gv_drain *drain);

// After the node: empties the table into `ranges`, and the tensors of the maps it kept into `extents`. `flags` (enum
// gv_table_flag) is what the patches noted. GV_ERR_LIMIT: the table was full and the set is not whole.
gv_status gv_drain_run(gv_drain *drain, CUstream stream, gv_node_ranges *ranges, gv_node_ranges *extents,
                       unsigned *flags, gv_error *error);

// The first of the maps that the last run handed over and that is of an unknown form; NULL if none is. It lasts until
// the next run.
const gv_logged_map *gv_drain_unknown(const gv_drain *drain);

void gv_drain_free(gv_drain *drain);

// Frees the host's part alone: the context, and everything in it, is gone.
void gv_drain_forget(gv_drain *drain);

#endif
