// Layout shared by compare.cu and the host: memory that is saved, compared, perturbed and searched in pieces.
//
// A piece is a range of addresses. It is walked in blocks of 32 bytes that are aligned in the address space; the first
// and the last block of a piece may be partial. The blocks of all pieces together are numbered through.
#ifndef GV_DEVICE_COMPARE_H
#define GV_DEVICE_COMPARE_H

#include <stdint.h>

enum {
    GV_BLOCK_BYTES = 32,
    GV_GROUP_BLOCKS = 128, // blocks that are counted together: 4,096 bytes where they are whole
    GV_SCAN_PROBES = 64,   // slots tried in the table of edges before it counts as full
};

typedef struct gv_piece {
    uint64_t start, end;
    uint64_t first_block; // blocks of all earlier pieces
    uint64_t saved;       // address of the saved copy of `start`, equal to it modulo the size of a block
    uint32_t owner;       // index of the region it is part of, for the search
    uint32_t unused;
} gv_piece;

// What a search has found. The arrays lie in device memory of their own.
typedef struct gv_scan_head {
    uint32_t maps;           // how many were found, also those that found no room
    uint32_t strays;         // the same
    uint32_t edges;          // how many there are
    uint32_t edges_overflow; // the table of them was full
} gv_scan_head;

// A 64-byte aligned place that looks like a tensor map of memory in a region.
typedef struct gv_found_map {
    uint64_t address;
    uint32_t owner;
    uint32_t unused;
} gv_found_map;

// What a search needs to know.
typedef struct gv_scan_job {
    const uint64_t *starts, *ends; // of the regions, ascending
    unsigned long long *edges;     // open addressing: owner << 32 | region, plus 1; 0: free
    uint64_t *edge_list;           // the same, one behind the other, with as much room
    gv_found_map *maps;
    uint64_t *strays; // words between the first and the last region that lie in none, one for each 2 MiB
    gv_scan_head *head;
    uint64_t low, high; // all regions lie in [low, high)
    uint32_t region_count;
    uint32_t edge_slots; // a power of two
    uint32_t map_capacity, stray_capacity;
} gv_scan_job;

#endif
