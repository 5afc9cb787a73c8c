// What the program declared of its memory (gravel_rows, gravel_real_rows and gravel_scratch of include/gravel.h): which
// of the static inputs and outputs of its graphs are made of rows, and how many of these hold real requests; what lies
// behind the real rows of a launch is padding. And which memory holds nothing between launches.
//
// Any thread may call any function. Nothing here calls the driver.
#ifndef GV_RECORD_ROWS_H
#define GV_RECORD_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Flags, as in gravel.h (declare.c checks that they agree).
enum gv_rows_flag {
    GV_ROWS_IN = 1u << 0,
    GV_ROWS_OUT = 1u << 1,
    GV_ROWS_INDEX = 1u << 2,
    GV_ROWS_ZERO_IS_PAD = 1u << 3,
    GV_ROWS_MINUS_ONE_IS_PAD = 1u << 4,
    GV_ROWS_SCRATCH = 1u << 5, // not rows, but scratch memory: one row
    GV_ROWS_ONE_IS_PAD = 1u << 6,
    GV_ROWS_MARKS = GV_ROWS_ZERO_IS_PAD | GV_ROWS_MINUS_ONE_IS_PAD | GV_ROWS_ONE_IS_PAD
};

typedef struct gv_rows {
    char name[64]; // shortened if need be
    uint64_t address, row_bytes, rows;
    unsigned flags;
    // Ids of the oldest and of the newest of the allocations that hold them.
    uint64_t oldest, newest;
} gv_rows;

// What is wrong with them; NULL: nothing. That the memory is allocated is for the caller to make sure of.
const char *gv_rows_check(const gv_rows *rows);

// Adds rows that gv_rows_check has nothing against, or replaces those of the same address (scratch memory: other
// scratch memory). NULL, or why they were not taken. *fresh: they were not declared before as they are.
const char *gv_rows_declare(const gv_rows *rows, bool *fresh);

// The first declared rows (no scratch memory) that hold `address`. False: none do.
bool gv_rows_find(uint64_t address, gv_rows *rows);

// A copy of all of them, scratch memory too, ascending by address, to be freed with gv_free. False when memory is out.
bool gv_rows_list(gv_rows **items, size_t *count);

// Allocation `id`, [address, address + size), was freed: the rows in it are gone.
void gv_rows_freed(uint64_t id, uint64_t address, uint64_t size);

// How many rows of the calling thread's graph launches are real, from here on (UINT64_MAX: all), and how many the
// graphs were captured for.
void gv_rows_set_real(uint64_t real, uint64_t captured);

// What the calling thread has set, or, if it has set nothing, what was set last. False: nothing was, and all rows count
// as real.
bool gv_rows_real(uint64_t *count);

// The same with the rows that the graph was captured for.
bool gv_rows_batch(uint64_t *real, uint64_t *captured);

// Are there inputs with padded rows in such a batch?
bool gv_rows_padded(uint64_t real, uint64_t captured);

// The bytes of `rows` that belong to real rows, when `real` are: [rows->address, the result). The rest is padding.
uint64_t gv_rows_real_end(const gv_rows *rows, uint64_t real);

// The end of those that a graph for `captured` rows has.
uint64_t gv_rows_end(const gv_rows *rows, uint64_t captured);

// For a forked child.
void gv_rows_forget(void);

#endif
