// Which memory a kernel can reach. A kernel gets at memory through its parameters, through the variables of its module,
// and through addresses that stand in memory it can get at. So everything that these lead to, searched word by word
// for addresses of live memory (src/record/compare.h), is an upper bound of what it touches. Data that happens to look
// like an address only makes it larger.
#ifndef GV_RECORD_REACH_H
#define GV_RECORD_REACH_H

#include "access/range_set.h"
#include "device/tensor_map.h"
#include "record/compare.h"

#include <stdbool.h>

typedef struct gv_reach gv_reach;

enum gv_region_flag {
    GV_REGION_SHARED = 1u << 0,     // the processor can change it at any time (page-locked and managed memory)
    GV_REGION_UNREADABLE = 1u << 1, // kernels may reach it, but it cannot be searched
    // A part of a reservation (cuMemMap): what begins in it may go on in the next part, and nobody could tell. So parts
    // that adjoin and have the same flags are one region.
    GV_REGION_PART = 1u << 2
};

typedef struct gv_reach_options {
    uint64_t bytes; // most bytes that are searched in all
    double seconds; // most time that is spent searching in all

    // Is there live memory at `address` that was not listed? Asked for addresses that lead between the regions.
    bool (*look_up)(uint64_t address, gv_range *memory, unsigned *flags, void *user);
    void *user;
} gv_reach_options;

// `compare` must stay open as long.
gv_status gv_reach_open(gv_compare *compare, const gv_reach_options *options, gv_reach **reach, gv_error *error);
void gv_reach_close(gv_reach *reach);

// Lists live memory: [start, end), flags of enum gv_region_flag; for a module's variable the module, else NULL. Where
// regions overlap, the one that begins first has the bytes. False when memory is out.
bool gv_reach_add(gv_reach *reach, uint64_t start, uint64_t end, unsigned flags, const void *module);

// The module has variables whose addresses are not known.
bool gv_reach_add_unknown(gv_reach *reach, const void *module);

// Memory that was written, or all of it, since regions were searched last: what addresses it holds is not known any
// more. Never fails: what cannot be remembered in detail is remembered as more.
void gv_reach_written(gv_reach *reach, const gv_range *ranges, size_t count);
void gv_reach_all_written(gv_reach *reach);

// A tensor map that stands in memory, and where the live memory that its tensor begins in ends.
typedef struct gv_reached_map {
    gv_tensor_map map;
    uint64_t where; // its address
    uint64_t end;
} gv_reached_map;

typedef struct gv_reached {
    gv_range_set memory; // all that can be reached
    gv_range_set shared; // the part of it that the processor can change
    gv_reached_map *maps;
    size_t map_count, map_capacity;
    char incomplete[256]; // why more may be reached than that; empty: nothing else can be
} gv_reached;

// What the addresses `roots` and the variables of `module` lead to. `reached` must be empty. An error leaves it with a
// reason in `incomplete`, too.
gv_status gv_reach_from(gv_reach *reach, const uint64_t *roots, size_t root_count, const void *module,
                        gv_reached *reached, gv_error *error);
void gv_reached_free(gv_reached *reached);

// The variables of one module.
gv_status gv_reach_variables(gv_reach *reach, const void *module, gv_reached *reached, gv_error *error);

// The end of the live memory around `address`: of its region and those that adjoin it. 0 when it lies in none.
uint64_t gv_reach_end(gv_reach *reach, uint64_t address);

// Was the same memory listed in both, in the same order, and did no search in `a` come upon memory that was not listed?
bool gv_reach_lists_same(const gv_reach *a, const gv_reach *b);

// The regions as they were searched last, ascending and disjoint; *marked has a 1 for each that lies in `memory` and a
// 0 for the others. Both arrays are to be freed with gv_free.
gv_status gv_reach_regions(const gv_reach *reach, const gv_range_set *memory, gv_range **ranges, uint8_t **marked,
                           size_t *count, gv_error *error);

#endif
