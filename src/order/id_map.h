// A hash map from ids, addresses or pairs packed into 64 bits to indices.
#ifndef GV_ORDER_ID_MAP_H
#define GV_ORDER_ID_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Zero-initialise. UINT64_MAX cannot be a key.
typedef struct gv_id_map {
    uint64_t *keys; // plus 1; 0: free
    uint32_t *values;
    size_t count, size; // size is a power of two, or 0
} gv_id_map;

// The place of the value of `key`, or NULL.
uint32_t *gv_id_map_find(const gv_id_map *map, uint64_t key);

// As above, added with the value `fresh` when it is not there yet (*added tells). NULL when memory is out.
uint32_t *gv_id_map_add(gv_id_map *map, uint64_t key, uint32_t fresh, bool *added);

void gv_id_map_free(gv_id_map *map);

#endif
