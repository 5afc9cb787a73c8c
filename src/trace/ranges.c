// Encoded byte ranges: see ranges.h.
#include "trace/ranges.h"

#include "trace/leb128.h"

size_t gv_ranges_encoded_bound(size_t count)
{
    const size_t most = (size_t)2 * GV_LEB128_MAX_BYTES; // a gap and a length
    return count > SIZE_MAX / most ? SIZE_MAX : count * most;
}

size_t gv_ranges_encode(const gv_range *ranges, size_t count, uint8_t *out)
{
    uint8_t *next = out;
    uint64_t position = 0;
    for (size_t i = 0; i < count; i++) {
        next += gv_leb128_write(ranges[i].start - position, next);
        next += gv_leb128_write(ranges[i].end - ranges[i].start, next);
        position = ranges[i].end;
    }
    return (size_t)(next - out);
}

gv_range_cursor gv_range_cursor_open(gv_bytes encoded)
{
    return (gv_range_cursor){
        .next = encoded.data, .limit = encoded.length ? encoded.data + encoded.length : encoded.data, .first = true};
}

// Reads the range at `next`, which follows `position`. NULL when it breaks a rule of ranges.h.
static inline const uint8_t *read_range(const uint8_t *next, const uint8_t *limit, uint64_t position, bool first,
                                        gv_range *range)
{
    uint64_t gap, length;
    next = gv_leb128_read(next, limit, &gap);
    if (!next)
        return NULL;
    next = gv_leb128_read(next, limit, &length);
    if (!next || length == 0 || (gap == 0 && !first))
        return NULL;
    if (gap > UINT64_MAX - position || length > UINT64_MAX - position - gap)
        return NULL;
    range->start = position + gap;
    range->end = range->start + length;
    return next;
}

bool gv_range_cursor_next(gv_range_cursor *cursor, gv_range *range)
{
    if (cursor->broken || cursor->next == cursor->limit)
        return false;
    const uint8_t *next = read_range(cursor->next, cursor->limit, cursor->position, cursor->first, range);
    if (!next) {
        cursor->broken = true;
        return false;
    }
    cursor->next = next;
    cursor->position = range->end;
    cursor->first = false;
    return true;
}

gv_status gv_ranges_check(gv_bytes encoded, size_t *count, uint64_t *bytes, gv_error *error)
{
    const uint8_t *next = encoded.data;
    const uint8_t *limit = encoded.length ? next + encoded.length : next;
    size_t ranges = 0;
    uint64_t total = 0, position = 0;
    while (next != limit) {
        gv_range range;
        const uint8_t *after = read_range(next, limit, position, ranges == 0, &range);
        if (!after)
            return gv_fail(error, GV_ERR_FORMAT, "range %zu, at byte %td of its encoding, is not valid", ranges,
                           next - encoded.data);
        total += range.end - range.start;
        position = range.end;
        next = after;
        ranges++;
    }
    if (count)
        *count = ranges;
    if (bytes)
        *bytes = total;
    return GV_OK;
}
