// Memory that is given out in pieces and freed all at once: what a loaded trace points into.
#ifndef GV_TRACE_ARENA_H
#define GV_TRACE_ARENA_H

#include <stddef.h>

// Zero-initialise it.
typedef struct gv_arena {
    struct gv_arena_block *blocks; // newest first; pieces come from the first one
    unsigned char *next, *limit;   // the free part of it
} gv_arena;

// Aligned for any of the trace's types; not cleared. NULL when memory is out.
void *gv_arena_alloc(gv_arena *arena, size_t size);

// An array of `count` elements. NULL when memory is out or the size overflows.
void *gv_arena_array(gv_arena *arena, size_t count, size_t element_size);

// A copy of `size` bytes, aligned to one byte. NULL when memory is out.
void *gv_arena_copy(gv_arena *arena, const void *data, size_t size);

// A NUL-terminated copy of a text; the C string ends at the first NUL in it.
char *gv_arena_string(gv_arena *arena, const char *text, size_t length);

void gv_arena_free(gv_arena *arena);

#endif
