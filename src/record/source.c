#include "record/source.h"

#include "base/memory.h"
#include "record/recorder.h"

#include <stdio.h>

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

const gv_recording_source *gv_source(const char **why)
{
    if (gv_state.soft)
        return gv_source_soft_ready(why) ? &gv_source_soft : NULL;
    return gv_source_sanitizer_ready(why) ? &gv_source_sanitizer : NULL;
}

void gv_source_describe(char *text, size_t size)
{
    const char *why = "";
    const gv_recording_source *source = gv_source(&why);
    if (source == &gv_source_soft)
        snprintf(text, size, "soft");
    else if (source)
        snprintf(text, size, "sanitizer %s", gv_sanitizer_library());
    else
        snprintf(text, size, "none: %s", why);
}

unsigned gv_source_function_flags(CUfunction function, const char *name)
{
    return gv_state.soft ? 0 : gv_sanitizer_function_flags(function, name);
}
