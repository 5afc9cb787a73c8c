// Byte-range sets as one sorted vector: the accesses of a node come out of the recorder in ascending order, and the
// detectors only walk them from front to back, so that a vector beats any tree.
#include "access/range_set.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

// Fewer pending ranges than this are not worth a merge of their own.
enum { PENDING_MINIMUM = 64 };

void gv_range_set_free(gv_range_set *set)
{
    gv_free(set->ranges);
    *set = (gv_range_set){0};
}

static gv_status out_of_memory(gv_error *error, size_t ranges)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory for a set of %zu byte ranges", ranges);
}

static int by_start(const void *left, const void *right)
{
    const gv_range *a = left, *b = right;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

// Puts adjacent and overlapping neighbours of a vector sorted by start together and returns how many are left.
static size_t coalesce(gv_range *ranges, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept && ranges[i].start <= ranges[kept - 1].end) {
            if (ranges[i].end > ranges[kept - 1].end)
                ranges[kept - 1].end = ranges[i].end;
        } else {
            ranges[kept++] = ranges[i];
        }
    }
    return kept;
}

// The pending ranges stand in ranges[count, count + pending); add() has left as much room again behind them, so that
// the merge below can run backwards over a moved copy of them without allocating.
void gv_range_set_settle(const gv_range_set *set)
{
    if (!set->pending)
        return;
    gv_range_set *self = (gv_range_set *)set;
    gv_range *ranges = self->ranges;
    size_t settled = self->count, pending = self->pending, total = settled + pending;
    gv_range *tail = ranges + total;
    qsort(ranges + settled, pending, sizeof *ranges, by_start);
    memcpy(tail, ranges + settled, pending * sizeof *ranges);
    size_t a = settled, b = pending;
    for (size_t out = total; b > 0; out--) {
        if (a > 0 && by_start(&ranges[a - 1], &tail[b - 1]) > 0)
            ranges[out - 1] = ranges[--a];
        else
            ranges[out - 1] = tail[--b];
    }
    self->count = coalesce(ranges, total);
    self->pending = 0;
}

gv_status gv_range_set_decode(gv_range_set *set, gv_bytes encoded, gv_error *error)
{
    size_t count;
    gv_status status = gv_ranges_check(encoded, &count, NULL, error);
    if (status)
        return status;
    set->count = set->pending = 0;
    if (!GV_GROW(set->ranges, set->capacity, count))
        return out_of_memory(error, count);
    gv_range_cursor cursor = gv_range_cursor_open(encoded);
    while (set->count < count && gv_range_cursor_next(&cursor, &set->ranges[set->count]))
        set->count++;
    return GV_OK;
}

// Index of the first range of the settled part that ends after `address`.
static size_t first_ending_after(const gv_range_set *set, uint64_t address)
{
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (set->ranges[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

gv_status gv_range_set_add(gv_range_set *set, uint64_t start, uint64_t end, gv_error *error)
{
    if (start >= end)
        return GV_OK;
    gv_range *last = set->count ? &set->ranges[set->count - 1] : NULL;
    if (!set->pending && (!last || start > last->end)) {
        if (!GV_GROW(set->ranges, set->capacity, set->count + 1))
            return out_of_memory(error, set->count + 1);
        set->ranges[set->count++] = (gv_range){start, end};
        return GV_OK;
    }
    // Growing the last range upwards, also while others are pending: it stays sorted whatever is merged later.
    if (last && start >= last->start && start <= last->end) {
        if (end > last->end)
            last->end = end;
        return GV_OK;
    }
    // A range that is already covered changes nothing; programs touch the same bytes again and again.
    size_t index = first_ending_after(set, start);
    if (index < set->count && set->ranges[index].start <= start && set->ranges[index].end >= end)
        return GV_OK;
    size_t limit = set->count / 4 > PENDING_MINIMUM ? set->count / 4 : PENDING_MINIMUM;
    if (set->pending >= limit)
        gv_range_set_settle(set);
    size_t needed = set->count + 2 * (set->pending + 1);
    if (!GV_GROW(set->ranges, set->capacity, needed))
        return out_of_memory(error, needed);
    set->ranges[set->count + set->pending++] = (gv_range){start, end};
    return GV_OK;
}

// Makes `out` an empty set with room for `count` ranges.
static gv_status prepare(gv_range_set *out, size_t count, gv_error *error)
{
    out->count = out->pending = 0;
    return GV_GROW(out->ranges, out->capacity, count) ? GV_OK : out_of_memory(error, count);
}

gv_status gv_range_set_union(const gv_range_set *a, const gv_range_set *b, gv_range_set *out, gv_error *error)
{
    gv_range_set_settle(a);
    gv_range_set_settle(b);
    gv_status status = prepare(out, a->count + b->count, error);
    if (status)
        return status;
    size_t i = 0, j = 0, count = 0;
    while (i < a->count || j < b->count) {
        bool from_a = j == b->count || (i < a->count && a->ranges[i].start <= b->ranges[j].start);
        gv_range next = from_a ? a->ranges[i++] : b->ranges[j++];
        if (count && next.start <= out->ranges[count - 1].end) {
            if (next.end > out->ranges[count - 1].end)
                out->ranges[count - 1].end = next.end;
        } else {
            out->ranges[count++] = next;
        }
    }
    out->count = count;
    return GV_OK;
}

gv_status gv_range_set_intersection(const gv_range_set *a, const gv_range_set *b, gv_range_set *out, gv_error *error)
{
    gv_range_set_settle(a);
    gv_range_set_settle(b);
    // Each step below leaves one range behind and yields at most one common range.
    gv_status status = prepare(out, a->count + b->count, error);
    if (status)
        return status;
    for (size_t i = 0, j = 0; i < a->count && j < b->count;) {
        gv_range left = a->ranges[i], right = b->ranges[j];
        uint64_t start = left.start > right.start ? left.start : right.start;
        uint64_t end = left.end < right.end ? left.end : right.end;
        if (start < end)
            out->ranges[out->count++] = (gv_range){start, end};
        if (left.end <= right.end)
            i++;
        else
            j++;
    }
    return GV_OK;
}

gv_status gv_range_set_difference(const gv_range_set *a, const gv_range_set *b, gv_range_set *out, gv_error *error)
{
    gv_range_set_settle(a);
    gv_range_set_settle(b);
    // A range of b cuts one range of a into at most one more piece.
    gv_status status = prepare(out, a->count + b->count, error);
    if (status)
        return status;
    size_t j = 0;
    for (size_t i = 0; i < a->count; i++) {
        uint64_t start = a->ranges[i].start, end = a->ranges[i].end;
        while (j < b->count && b->ranges[j].end <= start)
            j++;
        for (size_t k = j; k < b->count && b->ranges[k].start < end; k++) {
            if (b->ranges[k].start > start)
                out->ranges[out->count++] = (gv_range){start, b->ranges[k].start};
            start = b->ranges[k].end;
            if (start >= end)
                break;
            j = k;
        }
        if (start < end)
            out->ranges[out->count++] = (gv_range){start, end};
    }
    return GV_OK;
}

bool gv_range_set_overlaps(const gv_range_set *a, const gv_range_set *b)
{
    gv_range_set_settle(a);
    gv_range_set_settle(b);
    for (size_t i = 0, j = 0; i < a->count && j < b->count;) {
        if (a->ranges[i].end <= b->ranges[j].start)
            i++;
        else if (b->ranges[j].end <= a->ranges[i].start)
            j++;
        else
            return true;
    }
    return false;
}

bool gv_range_set_contains(const gv_range_set *set, uint64_t address)
{
    gv_range_set_settle(set);
    size_t index = first_ending_after(set, address);
    return index < set->count && set->ranges[index].start <= address;
}

uint64_t gv_range_set_bytes(const gv_range_set *set)
{
    gv_range_set_settle(set);
    uint64_t bytes = 0;
    for (size_t i = 0; i < set->count; i++)
        bytes += set->ranges[i].end - set->ranges[i].start;
    return bytes;
}

bool gv_range_set_is_valid(const gv_range_set *set)
{
    if (set->pending || set->count > set->capacity)
        return false;
    for (size_t i = 0; i < set->count; i++) {
        if (set->ranges[i].start >= set->ranges[i].end)
            return false;
        if (i && set->ranges[i].start <= set->ranges[i - 1].end)
            return false;
    }
    return true;
}
