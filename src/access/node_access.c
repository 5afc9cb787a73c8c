// Turns the parameters of copies and sets into byte ranges.
#include "access/node_access.h"

#include <inttypes.h>

// A box of rows in linear memory, all sizes in bytes.
typedef struct box {
    uint64_t address, width, height, depth, pitch, slice;
} box;

static uint64_t number_or(gv_numbers numbers, size_t index, uint64_t missing)
{
    return index < numbers.count ? numbers.items[index] : missing;
}

// Folds rows that touch into one, then slices that touch, so that a plain copy written as 3D costs one range.
static bool fold(box *area)
{
    if (!area->pitch)
        area->pitch = area->width;
    if (!area->slice && __builtin_mul_overflow(area->pitch, area->height, &area->slice))
        return false;
    if (area->height == 1 || area->pitch == area->width) {
        if (__builtin_mul_overflow(area->width, area->height, &area->width))
            return false;
        area->height = 1;
    }
    if (area->height == 1 && (area->depth == 1 || area->slice == area->width)) {
        if (__builtin_mul_overflow(area->width, area->depth, &area->width))
            return false;
        area->depth = 1;
    }
    return true;
}

// Does the last byte of the box still have an address?
static bool fits(const box *area)
{
    uint64_t rows, slices, last;
    return !__builtin_mul_overflow(area->pitch, area->height - 1, &rows) &&
           !__builtin_mul_overflow(area->slice, area->depth - 1, &slices) &&
           !__builtin_add_overflow(rows, slices, &last) && !__builtin_add_overflow(last, area->width, &last) &&
           !__builtin_add_overflow(last, area->address, &last);
}

static gv_status add_box(box area, const char *what, gv_range_set *set, gv_error *error)
{
    if (!area.address || !area.width || !area.height || !area.depth)
        return GV_OK;
    box given = area;
    if (!fold(&area) || !fits(&area))
        return gv_fail(error, GV_ERR_FORMAT,
                       "%s at %#" PRIx64 " of %" PRIu64 " x %" PRIu64 " x %" PRIu64
                       " bytes leaves the address space; the record is damaged",
                       what, given.address, given.width, given.height, given.depth);
    uint64_t rows;
    if (__builtin_mul_overflow(area.height, area.depth, &rows) || rows > GV_ROW_LIMIT)
        return gv_fail(error, GV_ERR_LIMIT,
                       "%s at %#" PRIx64 " has %" PRIu64 " x %" PRIu64
                       " separate rows, more than the limit of %" PRIu64,
                       what, given.address, area.height, area.depth, GV_ROW_LIMIT);
    for (uint64_t z = 0; z < area.depth; z++) {
        for (uint64_t y = 0; y < area.height; y++) {
            uint64_t start = area.address + z * area.slice + y * area.pitch;
            gv_status status = gv_range_set_add(set, start, start + area.width, error);
            if (status)
                return status;
        }
    }
    gv_range_set_settle(set);
    return GV_OK;
}

gv_status gv_memcpy_access(gv_numbers detail, gv_range_set *reads, gv_range_set *writes, gv_error *error)
{
    if (detail.count < 3)
        return gv_fail(error, GV_ERR_FORMAT, "a copy has %zu parameters instead of nine; the record is damaged",
                       detail.count);
    box to = {.address = detail.items[0],
              .width = detail.items[2],
              .height = number_or(detail, 3, 1),
              .depth = number_or(detail, 4, 1),
              .pitch = number_or(detail, 5, 0),
              .slice = number_or(detail, 7, 0)};
    box from = to;
    from.address = detail.items[1];
    from.pitch = number_or(detail, 6, 0);
    from.slice = number_or(detail, 8, 0);
    gv_status status = add_box(from, "the source of a copy", reads, error);
    return status ? status : add_box(to, "the destination of a copy", writes, error);
}

gv_status gv_memset_access(gv_numbers detail, gv_range_set *writes, gv_error *error)
{
    if (detail.count < 4)
        return gv_fail(error, GV_ERR_FORMAT, "a memset has %zu parameters instead of six; the record is damaged",
                       detail.count);
    box area = {
        .address = detail.items[0], .height = number_or(detail, 4, 1), .depth = 1, .pitch = number_or(detail, 5, 0)};
    if (__builtin_mul_overflow(detail.items[2], detail.items[3], &area.width))
        return gv_fail(error, GV_ERR_FORMAT,
                       "a memset at %#" PRIx64 " is wider than the address space; the record is damaged", area.address);
    return add_box(area, "a memset", writes, error);
}
