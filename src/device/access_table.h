// The device-side record of what a kernel touched: layout shared by the patches that fill it, the kernel that drains
// it and the host that reads the result.
//
// Touched bytes are marked in bitmaps, one page of 4,096 units each, found through an open-addressing hash of the page
// number, so that memory follows what a node touches and not how large the address space is. There are two tables:
// `words` with units of 4 bytes for the common aligned accesses, and `bytes` with units of 1 byte for all others.
#ifndef GV_DEVICE_ACCESS_TABLE_H
#define GV_DEVICE_ACCESS_TABLE_H

#include "device/tensor_map.h"

#include <stdint.h>

enum {
    GV_PAGE_UNITS = 4096,
    GV_PAGE_WORDS = GV_PAGE_UNITS / 32, // 32-bit bitmap words a page and kind
    GV_ACCESS_KINDS = 3,                // read, write, atomic
    GV_TABLE_PROBES = 256               // slots tried before the table counts as full
};

enum gv_access_kind { GV_ACCESS_READ = 0, GV_ACCESS_WRITE = 1, GV_ACCESS_ATOMIC = 2 };

// One hash table. `slots` is a multiple of 32. A page's search begins at the high half of hash x slots.
typedef struct gv_page_table {
    uint64_t *keys; // page number + 1; 0: free
    uint32_t *bits; // [slot][kind][GV_PAGE_WORDS]
    uint64_t slots;
    uint32_t unit_shift; // a unit is 1 << unit_shift bytes
    uint32_t overflow;   // set by a patch that found no slot: the set is not whole
} gv_page_table;

#define GV_PAGE_HASH(page) ((page)*0x9e3779b97f4a7c15ull)

enum { GV_TABLE_WORDS = 0, GV_TABLE_BYTES = 1, GV_TABLES = 2 };

// What the patches of tensor copies have to say beside the marked bytes.
enum gv_table_flag {
    GV_TABLE_TENSOR_SEEN = 1u << 0,   // a tensor copy was reported
    GV_TABLE_MAP_UNKNOWN = 1u << 1,   // one went by a tensor map that was not decoded: its bytes are not marked
    GV_TABLE_MAPS_OVERFLOW = 1u << 2, // one more map than `maps` has room for
    GV_TABLE_EARLY_MAP = 1u << 3      // a map was kept of a copy before the kernel's grid-dependency wait
};

// A tensor map some copies went by whose exact bytes are not known: they are somewhere in the tensor.
typedef struct gv_logged_map {
    uint64_t words[GV_TENSOR_MAP_WORDS];
    uint32_t state; // 0: free, 1: being written, 2: whole
    uint32_t kind;  // enum gv_access_kind
} gv_logged_map;

enum { GV_LOGGED_MAPS = 32 };

// ---- Before and after the grid-dependency wait (watch.h) ----

// Accesses before the wait are marked at their address plus this, which no address reaches: they come out of the table
// behind all others.
#define GV_EARLY_ADDRESS (1ull << 60)

enum gv_watch_mode { GV_WATCH_OFF = 0, GV_WATCH_CODE = 1, GV_WATCH_HELD = 2 };
enum gv_watch_phase { GV_PHASE_HELD = 0, GV_PHASE_RELEASED = 1, GV_PHASE_TIMED_OUT = 2 };

enum gv_watch_seen {
    GV_WATCH_AFTER = 1u << 0,      // by code: a thread got past the wait
    GV_WATCH_ASTRAY = 1u << 1,     // by code: something where the kernel has no such instruction, or on both sides
    GV_WATCH_FULL = 1u << 2,       // held: more program counters than there is room for
    GV_WATCH_RESUMED = 1u << 3,    // held: something after the release in a block that had begun before
    GV_WATCH_BEGAN_LATER = 1u << 4 // held: something in another block
};

// How an instruction was executed while its kernel was watched.
enum gv_watched_how {
    GV_PC_HELD = 1u << 0,       // before the release
    GV_PC_RELEASED = 1u << 1,   // after it, by a block that had begun before
    GV_PC_BEGAN_LATER = 1u << 2 // after it, by another block
};

typedef struct gv_watched_pc {
    uint64_t pc; // plus 1; 0: free
    uint32_t how;
    uint32_t unused;
} gv_watched_pc;

enum {
    GV_WATCH_PCS = 8192,            // program counters that are told apart
    GV_WATCH_BLOCKS = 1 << 20,      // blocks of which it is known whether they began while held; later ones did not
    GV_WATCH_INSTRUCTIONS = 1 << 17 // of the longest kernel that is watched by its code
};

typedef struct gv_wait_watch {
    uint32_t mode; // enum gv_watch_mode
    uint32_t seen; // enum gv_watch_seen
    // By code: the kernel's first program counter, how many instructions of 16 bytes it has, and a bit for each of them
    // that accesses memory or ends a thread.
    uint64_t base;
    uint32_t instructions;
    uint32_t *before, *after;
    // Held.
    uint32_t phase;           // enum gv_watch_phase, written by the holding kernel
    uint32_t activity;        // accesses before the release
    uint32_t entered, exited; // threads before the release
    gv_watched_pc *pcs;
    uint32_t *blocks; // a bit each: began before the release
} gv_wait_watch;

// The user data of every patched launch that is recorded.
typedef struct gv_access_table {
    gv_page_table tables[GV_TABLES];
    uint32_t flags; // enum gv_table_flag
    gv_wait_watch watch;
    gv_logged_map maps[GV_LOGGED_MAPS];
} gv_access_table;

// What a page holds of one kind.
enum gv_page_state { GV_PAGE_EMPTY = 0, GV_PAGE_FULL = 1, GV_PAGE_MIXED = 2 };

// A drained page. Its mixed bitmaps stand in the drain buffer's `bitmaps`, in order of kind from `bitmap` on.
typedef struct gv_drained_page {
    uint64_t page;   // page number: address >> (unit_shift + 12)
    uint32_t bitmap; // index of its first bitmap
    uint8_t table;   // GV_TABLE_WORDS or GV_TABLE_BYTES
    uint8_t states[GV_ACCESS_KINDS];
} gv_drained_page;

// Head of the host-visible drain buffer. Pages beyond the capacity stay in the table; `left` says that the drain has
// to run again.
typedef struct gv_drain_head {
    uint32_t pages, bitmaps; // how many the drain wanted to store; those above the capacities were left
    uint32_t left;           // pages left in the table
    uint32_t overflow;       // some accesses found no slot
    uint32_t flags;          // enum gv_table_flag
    uint32_t maps;           // how many of `map` are filled
    gv_logged_map map[GV_LOGGED_MAPS];
} gv_drain_head;

#endif
