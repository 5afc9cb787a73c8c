#include "record/image.h"

#include "base/memory.h"
#include "record/compare_core.h"
#include "record/driver.h"

#include <string.h>
#include <unistd.h>

// Where the original of a copied range is, and where the copy is: a device address, in host memory too.
typedef struct part {
    uint64_t start, end, copy;
} part;

struct gv_image {
    part *parts; // ascending, disjoint
    size_t count, capacity;
    CUdeviceptr device;
    void *host;
    uint64_t host_address; // of the same on the device
    uint64_t device_bytes, host_bytes;
};

gv_image_room gv_image_room_now(uint64_t most_device, uint64_t most_host, uint64_t kept)
{
    size_t available = 0, total = 0;
    gv_image_room room = {0};
    if (gv_cuda.cuMemGetInfo(&available, &total) == CUDA_SUCCESS)
        room.device = (available + kept) / 2;
    if (room.device > most_device)
        room.device = most_device;
    long pages = sysconf(_SC_AVPHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    if (pages > 0 && size > 0)
        room.host = (uint64_t)pages * (uint64_t)size / 4;
    if (room.host > most_host)
        room.host = most_host;
    return room;
}

uint64_t gv_image_cost(const gv_range_set *ranges)
{
    uint64_t used = 0;
    gv_range_set_settle(ranges);
    for (size_t i = 0; i < ranges->count; i++)
        gv_place_copy(&used, ranges->ranges[i].start, ranges->ranges[i].end);
    return used;
}

void gv_image_free(gv_image *image, gv_image_room *room)
{
    if (!image)
        return;
    if (image->device)
        gv_cuda.cuMemFree(image->device);
    if (image->host)
        gv_cuda.cuMemFreeHost(image->host);
    if (room) {
        room->device += image->device_bytes;
        room->host += image->host_bytes;
    }
    gv_free(image->parts);
    gv_free(image);
}

// ---- Where the copies lie ----------------------------------------------------------------------------------------

static bool add_part(gv_image *image, uint64_t start, uint64_t end, uint64_t copy)
{
    if (!GV_GROW(image->parts, image->capacity, image->count + 1))
        return false;
    image->parts[image->count++] = (part){start, end, copy};
    return true;
}

gv_status gv_image_borrow(gv_image **image, gv_error *error)
{
    *image = gv_calloc(1, sizeof **image);
    return *image ? GV_OK : gv_fail(error, GV_ERR_MEMORY, "memory ran out");
}

gv_status gv_image_borrow_part(gv_image *image, uint64_t start, uint64_t end, uint64_t copy, gv_error *error)
{
    return add_part(image, start, end, copy) ? GV_OK : gv_fail(error, GV_ERR_MEMORY, "memory ran out");
}

// Lays the copies out: the first `device` bytes in device memory, the rest in host memory. Parts are given offsets,
// host ones with `beyond` added. A range is divided where device memory ends.
static bool lay_out(gv_image *image, const gv_range_set *ranges, uint64_t device, uint64_t beyond)
{
    uint64_t used = 0, host = 0;
    for (size_t i = 0; i < ranges->count; i++) {
        gv_range range = ranges->ranges[i];
        uint64_t first = range.start % GV_BLOCK_BYTES;
        uint64_t fits = used + first < device ? device - used - first : 0;
        uint64_t split = range.start + fits;
        if (split < range.end) // at the edge of a block, so that both parts keep whole blocks whole
            split = split / GV_BLOCK_BYTES * GV_BLOCK_BYTES;
        if (split <= range.start)
            split = range.start;
        if (split > range.end)
            split = range.end;
        if (split > range.start && !add_part(image, range.start, split, gv_place_copy(&used, range.start, split)))
            return false;
        if (split < range.end) {
            // Later ranges follow into host memory, small as they may be: a part of the walk is then of one kind.
            device = used;
            if (!add_part(image, split, range.end, beyond + gv_place_copy(&host, split, range.end)))
                return false;
        }
    }
    image->device_bytes = used;
    image->host_bytes = host;
    return true;
}

static gv_status take_memory(gv_image *image, gv_error *error)
{
    CUresult result = CUDA_SUCCESS;
    if (image->device_bytes)
        result = gv_cuda.cuMemAlloc(&image->device, image->device_bytes);
    if (result != CUDA_SUCCESS) {
        image->device = 0;
        return gv_driver_failed(error, "device memory for a copy could not be allocated", result);
    }
    CUdeviceptr seen = 0;
    if (image->host_bytes)
        result = gv_cuda.cuMemHostAlloc(&image->host, image->host_bytes,
                                        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result == CUDA_SUCCESS && image->host_bytes)
        result = gv_cuda.cuMemHostGetDevicePointer(&seen, image->host, 0);
    image->host_address = seen;
    return result == CUDA_SUCCESS
               ? GV_OK
               : gv_driver_failed(error, "page-locked host memory for a copy could not be allocated", result);
}

// ---- Walks -------------------------------------------------------------------------------------------------------

// The walk over what the image has of `within` (NULL: all of it). Ranges of `within` are ascending, and so are parts.
static gv_status walk_over(gv_compare *c, const gv_image *image, const gv_range_set *within, gv_error *error)
{
    gv_walk *w = &c->part;
    w->count = w->blocks = 0;
    if (within)
        gv_range_set_settle(within);
    size_t next = 0;
    for (size_t i = 0; i < image->count; i++) {
        const part *p = &image->parts[i];
        if (!within) {
            if (!gv_walk_add(w, p->start, p->end, p->copy, 0))
                return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
            continue;
        }
        while (next < within->count && within->ranges[next].end <= p->start)
            next++;
        for (size_t k = next; k < within->count && within->ranges[k].start < p->end; k++) {
            gv_range range = within->ranges[k];
            uint64_t start = range.start > p->start ? range.start : p->start;
            uint64_t end = range.end < p->end ? range.end : p->end;
            if (!gv_walk_add(w, start, end, p->copy + (start - p->start), 0))
                return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
        }
    }
    if (w->count > GV_MOST_PIECES)
        return gv_fail(error, GV_ERR_MEMORY, "%zu ranges are more than can be compared at once", w->count);
    return w->count ? gv_walk_upload(c, w, error) : GV_OK;
}

gv_status gv_image_save(gv_compare *c, const gv_range_set *ranges, gv_image_room *room, gv_image **image,
                        gv_error *error)
{
    *image = NULL;
    gv_range_set_settle(ranges);
    uint64_t cost = gv_image_cost(ranges);
    // What is left over at the split takes a block on either side.
    if (cost > room->device &&
        (room->host < 2 * GV_BLOCK_BYTES || cost - room->device > room->host - 2 * GV_BLOCK_BYTES))
        return gv_fail(error, GV_ERR_MEMORY,
                       "a copy of %.1f MiB does not fit: %.1f MiB of device memory and %.1f MiB of page-locked host "
                       "memory may be used (GRAVEL_DIFF_MEMORY, GRAVEL_DIFF_HOST_MEMORY)",
                       (double)cost / 1048576, (double)room->device / 1048576, (double)room->host / 1048576);
    gv_image *made = gv_calloc(1, sizeof *made);
    const uint64_t beyond = (uint64_t)1 << 63; // marks offsets in host memory until the addresses are known
    if (!made || !lay_out(made, ranges, cost > room->device ? room->device : cost, beyond)) {
        gv_image_free(made, NULL);
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    }
    gv_status status = take_memory(made, error);
    for (size_t i = 0; i < made->count && !status; i++) {
        part *p = &made->parts[i];
        p->copy = p->copy & beyond ? made->host_address + (p->copy & ~beyond) : made->device + p->copy;
    }
    if (!status)
        status = gv_image_renew(c, made, error);
    if (status) {
        gv_image_free(made, NULL);
        return status;
    }
    room->device -= made->device_bytes;
    room->host -= made->host_bytes < room->host ? made->host_bytes : room->host;
    *image = made;
    return GV_OK;
}

gv_status gv_image_renew(gv_compare *c, gv_image *image, gv_error *error)
{
    gv_status status = walk_over(c, image, NULL, error);
    return status ? status : gv_walk_run(c, c->save, &c->part, error);
}

gv_status gv_image_changed(gv_compare *c, const gv_image *image, const gv_range_set *within, bool coarse,
                           gv_range_set *changed, gv_error *error)
{
    gv_status status = walk_over(c, image, within, error);
    return status ? status : gv_walk_changed(c, &c->part, coarse, changed, error);
}

gv_status gv_image_restore(gv_compare *c, const gv_image *image, const gv_range_set *within, gv_error *error)
{
    gv_status status = walk_over(c, image, within, error);
    return status ? status : gv_walk_run(c, c->restore, &c->part, error);
}

gv_status gv_image_read(gv_compare *c, const gv_image *image, uint64_t start, uint64_t end, void *to, gv_error *error)
{
    for (size_t i = 0; i < image->count && start < end; i++) {
        const part *p = &image->parts[i];
        if (p->end <= start)
            continue;
        if (p->start > start)
            break;
        uint64_t stop = end < p->end ? end : p->end, from = p->copy + (start - p->start);
        bool in_host = image->host && from - image->host_address < image->host_bytes;
        gv_status status = GV_OK;
        if (in_host) {
            CUresult result = gv_cuda.cuStreamSynchronize(c->stream);
            if (result != CUDA_SUCCESS)
                return gv_driver_failed(error, "a copy could not be read", result);
            memcpy(to, (const char *)image->host + (from - image->host_address), stop - start);
        } else {
            status = gv_compare_read(c, from, to, stop - start, error);
        }
        if (status)
            return status;
        to = (char *)to + (stop - start);
        start = stop;
    }
    return start < end ? gv_fail(error, GV_ERR_USAGE, "memory that was not copied was asked for") : GV_OK;
}
