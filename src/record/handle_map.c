#include "record/handle_map.h"

#include "base/memory.h"

// uthash must neither exit nor abort the target when memory is out: an addition that fails clears `added`.
#define HASH_NONFATAL_OOM          1
#define uthash_malloc(size)        gv_malloc(size)
#define uthash_free(pointer, size) gv_free(pointer)
#define uthash_nonfatal_oom(entry) ((entry)->added = false)
#include <uthash.h>

typedef struct gv_handle_entry {
    uint64_t handle, value;
    bool added;
    UT_hash_handle hh;
} gv_handle_entry;

static gv_handle_entry *find(const gv_handle_map *map, uint64_t handle)
{
    gv_handle_entry *entry = NULL;
    HASH_FIND(hh, map->entries, &handle, sizeof handle, entry);
    return entry;
}

bool gv_handle_map_set(gv_handle_map *map, uint64_t handle, uint64_t value)
{
    gv_handle_entry *entry = find(map, handle);
    if (entry) {
        entry->value = value;
        return true;
    }
    entry = gv_malloc(sizeof *entry);
    if (!entry)
        return false;
    entry->handle = handle;
    entry->value = value;
    entry->added = true;
    HASH_ADD(hh, map->entries, handle, sizeof entry->handle, entry);
    if (!entry->added) {
        gv_free(entry);
        return false;
    }
    return true;
}

uint64_t gv_handle_map_get(const gv_handle_map *map, uint64_t handle)
{
    const gv_handle_entry *entry = find(map, handle);
    return entry ? entry->value : 0;
}

uint64_t gv_handle_map_take(gv_handle_map *map, uint64_t handle)
{
    gv_handle_entry *entry = find(map, handle);
    if (!entry)
        return 0;
    uint64_t value = entry->value;
    HASH_DEL(map->entries, entry);
    gv_free(entry);
    return value;
}

void gv_handle_map_prune(gv_handle_map *map, bool (*visit)(uint64_t handle, uint64_t value, void *user), void *user)
{
    gv_handle_entry *entry, *next;
    HASH_ITER(hh, map->entries, entry, next)
    {
        if (!visit(entry->handle, entry->value, user))
            continue;
        HASH_DEL(map->entries, entry);
        gv_free(entry);
    }
}

static bool every(uint64_t handle, uint64_t value, void *user)
{
    return true;
}

void gv_handle_map_clear(gv_handle_map *map)
{
    gv_handle_map_prune(map, every, NULL);
}
