#include "record/known.h"

#include "base/memory.h"
#include "trace/ranges.h"

enum { MOST_BYTES = 16 << 20 };

static void add_kind(gv_known *known, const gv_snapshot *snapshot, uint32_t node, const gv_range *ranges, size_t count)
{
    if (!count || known->bytes > MOST_BYTES || !GV_GROW(known->items, known->capacity, known->count + 1))
        return;
    uint8_t *bytes = gv_malloc(gv_ranges_encoded_bound(count));
    if (!bytes)
        return;
    size_t length = gv_ranges_encode(ranges, count, bytes);
    uint8_t *fitting = gv_realloc_array(bytes, length, 1);
    known->items[known->count++] = (gv_known_writes){snapshot, node, {fitting ? fitting : bytes, length}};
    known->bytes += length;
}

void gv_known_add(gv_known *known, const gv_snapshot *snapshot, uint32_t node, const gv_node_ranges *ranges)
{
    add_kind(known, snapshot, node, ranges->ranges[GV_ACCESS_WRITE], ranges->count[GV_ACCESS_WRITE]);
    add_kind(known, snapshot, node, ranges->ranges[GV_ACCESS_ATOMIC], ranges->count[GV_ACCESS_ATOMIC]);
}

gv_status gv_known_get(const gv_known *known, const gv_snapshot *snapshot, uint32_t node, gv_range_set *writes,
                       gv_error *error)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < known->count && !status; i++) {
        const gv_known_writes *w = &known->items[i];
        gv_range_cursor cursor = gv_range_cursor_open(w->encoded);
        gv_range range;
        if (w->snapshot != snapshot || w->node != node)
            continue;
        while (!status && gv_range_cursor_next(&cursor, &range))
            status = gv_range_set_add(writes, range.start, range.end, error);
    }
    gv_range_set_settle(writes);
    return status;
}

void gv_known_free(gv_known *known)
{
    for (size_t i = 0; i < known->count; i++)
        gv_free((void *)known->items[i].encoded.data);
    gv_free(known->items);
    *known = (gv_known){0};
}
