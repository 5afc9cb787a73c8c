// Open addressing with linear probing, at most half full.
#include "order/id_map.h"

#include "base/memory.h"

static size_t hash(uint64_t key, size_t size)
{
    key *= UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(key ^ key >> 32) & (size - 1);
}

// The place of `key` or the free one where it belongs.
static size_t find_slot(const gv_id_map *map, uint64_t key)
{
    size_t slot = hash(key, map->size);
    while (map->keys[slot] && map->keys[slot] != key + 1)
        slot = (slot + 1) & (map->size - 1);
    return slot;
}

uint32_t *gv_id_map_find(const gv_id_map *map, uint64_t key)
{
    if (!map->size || key == UINT64_MAX)
        return NULL;
    size_t slot = find_slot(map, key);
    return map->keys[slot] ? &map->values[slot] : NULL;
}

static bool grow(gv_id_map *map)
{
    gv_id_map larger = {.count = map->count, .size = map->size ? 2 * map->size : 64};
    larger.keys = gv_calloc(larger.size, sizeof *larger.keys);
    larger.values = gv_calloc(larger.size, sizeof *larger.values);
    if (!larger.keys || !larger.values) {
        gv_id_map_free(&larger);
        return false;
    }
    for (size_t i = 0; i < map->size; i++) {
        if (map->keys[i]) {
            size_t slot = find_slot(&larger, map->keys[i] - 1);
            larger.keys[slot] = map->keys[i];
            larger.values[slot] = map->values[i];
        }
    }
    gv_id_map_free(map);
    *map = larger;
    return true;
}

uint32_t *gv_id_map_add(gv_id_map *map, uint64_t key, uint32_t fresh, bool *added)
{
    if (map->count >= map->size / 2 && !grow(map))
        return NULL;
    size_t slot = find_slot(map, key);
    *added = !map->keys[slot];
    if (*added) {
        map->keys[slot] = key + 1;
        map->values[slot] = fresh;
        map->count++;
    }
    return &map->values[slot];
}

void gv_id_map_free(gv_id_map *map)
{
    gv_free(map->keys);
    gv_free(map->values);
    *map = (gv_id_map){0};
}
