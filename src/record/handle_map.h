// A hash map from driver handles or addresses to numbers. Not thread-safe; the owner locks.
#ifndef GV_RECORD_HANDLE_MAP_H
#define GV_RECORD_HANDLE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gv_handle_map {
    struct gv_handle_entry *entries;
} gv_handle_map;

// Stores a value, replacing an older one. False when memory is out: nothing changed.
bool gv_handle_map_set(gv_handle_map *map, uint64_t handle, uint64_t value);

// The value, or 0.
uint64_t gv_handle_map_get(const gv_handle_map *map, uint64_t handle);

// Removes and returns the value, or 0.
uint64_t gv_handle_map_take(gv_handle_map *map, uint64_t handle);

// Calls `visit` for each entry; removes those for which it answers true.
void gv_handle_map_prune(gv_handle_map *map, bool (*visit)(uint64_t handle, uint64_t value, void *user), void *user);

void gv_handle_map_clear(gv_handle_map *map);

#endif
