#include "base/memory.h"
#include "record/source.h"

bool gv_node_ranges_append(gv_node_ranges *ranges, enum gv_access_kind kind, uint64_t start, uint64_t end)
{
    size_t count = ranges->count[kind];
    if (count && ranges->ranges[kind][count - 1].end >= start) {
        if (ranges->ranges[kind][count - 1].end < end)
            ranges->ranges[kind][count - 1].end = end;
        return true;
    }
    if (!GV_GROW(ranges->ranges[kind], ranges->capacity[kind], count + 1))
        return false;
    ranges->ranges[kind][count] = (gv_range){start, end};
    ranges->count[kind] = count + 1;
    return true;
}

void gv_node_ranges_clear(gv_node_ranges *ranges)
{
    for (int kind = 0; kind < GV_ACCESS_KINDS; kind++)
        ranges->count[kind] = 0;
}

void gv_node_ranges_free(gv_node_ranges *ranges)
{
    for (int kind = 0; kind < GV_ACCESS_KINDS; kind++)
        gv_free(ranges->ranges[kind]);
    *ranges = (gv_node_ranges){0};
}
