// Heap allocation with one seam for tests: every allocation of the reading side goes through these functions, and
// gv_memory_fail_after makes the n-th one fail. The recorder, inside someone else's process, uses them too.
#ifndef GV_BASE_MEMORY_H
#define GV_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

// As malloc, calloc, realloc and free; each returns NULL on failure. Sizes that overflow fail.
void *gv_malloc(size_t size);
void *gv_calloc(size_t count, size_t size);
void *gv_realloc_array(void *pointer, size_t count, size_t size);
char *gv_strdup(const char *text);
char *gv_strndup(const char *text, size_t length);
void gv_free(void *pointer);

// Test seam: after `successes` further allocations every later one fails; a negative number switches it off.
void gv_memory_fail_after(long successes);

// Makes room for `needed` elements of `element_size` bytes in the array `*items` whose capacity is `*capacity`,
// growing by doubling. Returns false, with everything unchanged, when memory is out.
bool gv_grow(void **items, size_t *capacity, size_t needed, size_t element_size);

// gv_grow for a typed array: GV_GROW(v->items, v->capacity, v->count + 1)
#define GV_GROW(items, capacity, needed) \
    ((needed) <= (capacity) || gv_grow((void **)&(items), &(capacity), (needed), sizeof *(items)))

#endif
