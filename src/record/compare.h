// The host's side of src/device/compare.cu: memory that is saved before a node and compared after it, perturbed for a
// second run, and searched for what it points to. The same on a GPU and on the software driver.
//
// All calls need the context current and run on one stream, in the order in which they are made. Memory they are given
// must be readable on the device, and writable where they write to it.
#ifndef GV_RECORD_COMPARE_H
#define GV_RECORD_COMPARE_H

#include "access/range_set.h"
#include "base/error.h"
#include "device/compare.h"

#include <cuda.h>
#include <stdbool.h>

typedef struct gv_compare gv_compare;

// Loads the kernels. `soft`: the driver is the software driver. Takes no device memory beyond that of the module.
gv_status gv_compare_open(bool soft, CUstream stream, gv_compare **compare, gv_error *error);

// Unloads them and frees all device memory. NULL is allowed.
void gv_compare_close(gv_compare *compare);

// Frees all device memory but that of the module, so that the rest can be kept; and works on another stream.
void gv_compare_trim(gv_compare *compare);
void gv_compare_use(gv_compare *compare, CUstream stream);

// Frees the host's part alone: the context, and everything in it, is gone.
void gv_compare_forget(gv_compare *compare);

// Does device memory that is used for comparing, or that a shadow keeps, begin at `base`? It is nothing to the program,
// whatever its data look like. On any thread.
bool gv_compare_owns(uint64_t base);

// ---- Saving and comparing ----

// How much device memory it takes to save these ranges and to work with them.
uint64_t gv_compare_cost(const gv_range_set *ranges);

// Saves a copy of the ranges, in place of those saved before. GV_ERR_MEMORY: the driver has no memory for it, or there
// are too many ranges; nothing is saved then.
gv_status gv_compare_save(gv_compare *compare, const gv_range_set *ranges, gv_error *error);

// Adds to `changed` the bytes of the saved ranges that differ from their copy.
gv_status gv_compare_changed(gv_compare *compare, gv_range_set *changed, gv_error *error);

// Puts the saved ranges back as they were.
gv_status gv_compare_restore(gv_compare *compare, gv_error *error);

// After the node has run once: sets every byte of `ranges`, all of which must be saved, to something other than what
// was saved there, so that its second run shows each byte it writes. gv_compare_settle must follow: it adds the bytes
// that were written to `written` and puts all others back to what one run leaves. It does the latter, as far as it can,
// also when it fails.
gv_status gv_compare_perturb(gv_compare *compare, const gv_range_set *ranges, gv_error *error);
gv_status gv_compare_settle(gv_compare *compare, gv_range_set *written, gv_error *error);

// ---- Filling ----
// By kernels: a copy or set of the driver's must lie within one allocation, and ranges that adjoin are joined whichever
// allocations they lie in.

// Sets every byte of the ranges to a byte of `pattern`: its lowest where the address is a multiple of eight, the next
// one behind that, and so on. GV_ERR_MEMORY: as above.
gv_status gv_compare_fill(gv_compare *compare, const gv_range_set *ranges, uint64_t pattern, gv_error *error);

// Makes `range` a row of copies of the `size` bytes at `unit`, which are not in it.
gv_status gv_compare_repeat(gv_compare *compare, gv_range range, uint64_t unit, uint64_t size, gv_error *error);

// ---- Searching ----

// A range to search, and the index of the region it is part of. It begins at a multiple of four bytes.
typedef struct gv_scan_range {
    uint64_t start, end;
    uint32_t region;
} gv_scan_range;

// What a search adds to. `edges` are pairs (searched region << 32 | region that a word of it is an address in), each at
// least once; `maps` places where a tensor map may stand; `strays` addresses between the regions, in none of them.
typedef struct gv_scan_found {
    uint64_t *edges;
    size_t edge_count, edge_capacity;
    gv_found_map *maps;
    size_t map_count, map_capacity;
    uint64_t *strays;
    size_t stray_count, stray_capacity;
} gv_scan_found;

// The regions that searches look for addresses in: `count` of them, ascending and disjoint, at least one.
gv_status gv_compare_set_regions(gv_compare *compare, const gv_range *regions, size_t count, gv_error *error);

// Searches the ranges, which are `count` and ascending. GV_ERR_LIMIT: there was more to find than there is room for, or
// `deadline` (CLOCK_MONOTONIC, in nanoseconds) has passed.
gv_status gv_compare_scan(gv_compare *compare, const gv_scan_range *ranges, size_t count, uint64_t deadline,
                          gv_scan_found *found, gv_error *error);
void gv_scan_found_free(gv_scan_found *found);

// Copies device memory to the host.
gv_status gv_compare_read(gv_compare *compare, uint64_t address, void *to, size_t size, gv_error *error);

#endif
