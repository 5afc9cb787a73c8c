// Layout shared by shadow.cu and the host: a copy of memory that is kept beside it, with a hash of each group of 4 KiB,
// so that telling what has changed takes one reading of the memory and none of the copy.
//
// A piece is a range of addresses. It is divided where addresses are multiples of 4,096; the first and the last group
// of a piece may be partial. The groups of all pieces together are numbered through. A group is hashed as hash.h says,
// with zeros for bytes that do not belong to the piece.
#ifndef GV_DEVICE_SHADOW_H
#define GV_DEVICE_SHADOW_H

#include <stdint.h>

enum {
    GV_SHADOW_GROUP = 4096,
    GV_SHADOW_UNIT = 16,       // bytes that a thread takes at once
    GV_SHADOW_MOST_STRAYS = 64 // that are told of
};

// How gravel_shadow_take goes about it.
enum gv_shadow_flag {
    GV_SHADOW_TAKE_ALL = 1u << 0, // the copy holds nothing so far
    GV_SHADOW_SEARCH = 1u << 1    // addresses are looked for
};

typedef struct gv_shadow_piece {
    uint64_t start, end;
    uint64_t copy;        // address of the copy of `start`, equal to it modulo 32
    uint32_t first_group; // groups of all earlier pieces
    uint32_t searched;    // addresses are looked for in it
} gv_shadow_piece;

// What the kernels count. The host sets it to zeros before each of them.
typedef struct gv_shadow_head {
    uint32_t copied;    // groups that were copied because they had changed
    uint32_t journaled; // groups that had changed, also those that found no room in the journal
    uint32_t differing; // groups that are not as is expected
    uint32_t escaped;   // a searched word is an address in a region that is not marked
    uint32_t strays;    // searched words between the regions and in none of them, one for each 2 MiB; all are counted
    uint32_t unused;
    uint64_t stray[GV_SHADOW_MOST_STRAYS];
} gv_shadow_head;

// All that the kernels need to know; in device memory.
typedef struct gv_shadow_job {
    const gv_shadow_piece *pieces; // ascending
    uint32_t piece_count, groups;
    uint64_t *hashes; // of the copy, one for each group
    uint32_t *slots;  // place in the journal plus 1, one for each group; 0: it is not in there
    gv_shadow_head *head;

    // The journal: groups as the graph left them, aligned as they are in memory.
    uint64_t journal; // address
    uint64_t *journal_hashes;
    uint32_t *journal_groups;
    uint32_t journal_slots;

    // The regions that addresses are looked for in.
    uint32_t region_count;
    const uint64_t *starts, *ends; // ascending
    const uint8_t *marked;         // one for each region
} gv_shadow_job;

#endif
