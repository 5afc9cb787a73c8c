#include "record/drain.h"

#include "base/memory.h"
#include "record/driver.h"
#include "record/tensor_map.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- From pages to ranges ------------------------------------------------------------------------------------

static int by_page(const void *a, const void *b)
{
    const gv_drained_page *x = a, *y = b;
    return x->page < y->page ? -1 : x->page > y->page;
}

// Appends the runs of set bits, in units of 1 << shift bytes from `base` on.
static bool append_bitmap(gv_node_ranges *ranges, enum gv_access_kind kind, uint64_t base, unsigned shift,
                          const uint32_t *words)
{
    for (unsigned at = 0; at < GV_PAGE_UNITS;) {
        uint32_t word = words[at / 32] >> at % 32;
        if (!word) {
            at = (at / 32 + 1) * 32;
            continue;
        }
        at += (unsigned)__builtin_ctz(word);
        unsigned end = at;
        while (end < GV_PAGE_UNITS) {
            uint32_t gaps = ~words[end / 32] >> end % 32;
            if (gaps) {
                end += (unsigned)__builtin_ctz(gaps);
                break;
            }
            end = (end / 32 + 1) * 32;
        }
        if (!gv_node_ranges_append(ranges, kind, base + ((uint64_t)at << shift), base + ((uint64_t)end << shift)))
            return false;
        at = end;
    }
    return true;
}

static bool append_pages(gv_node_ranges *ranges, const gv_drained_page *pages, size_t count, unsigned shift,
                         const uint32_t *bitmaps)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t base = pages[i].page * GV_PAGE_UNITS << shift;
        uint32_t bitmap = pages[i].bitmap;
        for (int kind = 0; kind < GV_ACCESS_KINDS; kind++) {
            bool enough = true;
            if (pages[i].states[kind] == GV_PAGE_FULL)
                enough = gv_node_ranges_append(ranges, (enum gv_access_kind)kind, base,
                                               base + ((uint64_t)GV_PAGE_UNITS << shift));
            else if (pages[i].states[kind] == GV_PAGE_MIXED)
                enough = append_bitmap(ranges, (enum gv_access_kind)kind, base, shift,
                                       bitmaps + (size_t)bitmap++ * GV_PAGE_WORDS);
            if (!enough)
                return false;
        }
    }
    return true;
}

static bool merge(const gv_range *a, size_t a_count, const gv_range *b, size_t b_count, enum gv_access_kind kind,
                  gv_node_ranges *out)
{
    size_t i = 0, j = 0;
    while (i < a_count || j < b_count) {
        const gv_range *next = j == b_count || (i < a_count && a[i].start <= b[j].start) ? &a[i++] : &b[j++];
        if (!gv_node_ranges_append(out, kind, next->start, next->end))
            return false;
    }
    return true;
}

bool gv_pages_to_ranges(gv_drained_page *pages, size_t page_count, const uint32_t *bitmaps, gv_node_ranges *ranges)
{
    // Word pages first, byte pages behind them.
    size_t words = 0;
    for (size_t i = 0; i < page_count; i++)
        if (pages[i].table == GV_TABLE_WORDS) {
            gv_drained_page swapped = pages[words];
            pages[words++] = pages[i];
            pages[i] = swapped;
        }
    qsort(pages, words, sizeof *pages, by_page);
    qsort(pages + words, page_count - words, sizeof *pages, by_page);
    if (words == page_count)
        return append_pages(ranges, pages, words, 2, bitmaps);
    gv_node_ranges by_word = {0}, by_byte = {0};
    bool enough = append_pages(&by_word, pages, words, 2, bitmaps) &&
                  append_pages(&by_byte, pages + words, page_count - words, 0, bitmaps);
    for (int kind = 0; enough && kind < GV_ACCESS_KINDS; kind++)
        enough = merge(by_word.ranges[kind], by_word.count[kind], by_byte.ranges[kind], by_byte.count[kind],
                       (enum gv_access_kind)kind, ranges);
    gv_node_ranges_free(&by_word);
    gv_node_ranges_free(&by_byte);
    return enough;
}

// Ranges of one tensor that are kept apart, at most.
enum { MOST_TENSOR_RANGES = 1024 };

bool gv_maps_to_ranges(const gv_logged_map *maps, size_t count, gv_node_ranges *extents)
{
    gv_range *ranges = gv_calloc(MOST_TENSOR_RANGES, sizeof *ranges);
    bool enough = ranges != NULL;
    for (size_t i = 0; i < count && enough; i++) {
        gv_tensor_map map;
        if (!gv_tensor_map_decode(maps[i].words, &map))
            continue;
        size_t found = gv_tensor_map_ranges(&map, ranges, MOST_TENSOR_RANGES);
        enum gv_access_kind kind = (enum gv_access_kind)maps[i].kind;
        gv_node_ranges before = *extents;
        extents->ranges[kind] = NULL;
        extents->count[kind] = extents->capacity[kind] = 0;
        enough = merge(before.ranges[kind], before.count[kind], ranges, found, kind, extents);
        gv_free(before.ranges[kind]);
    }
    gv_free(ranges);
    return enough;
}

// ---- The table on the device ---------------------------------------------------------------------------------

// What one run of the drain can hand over; a node that touched more takes several runs.
enum { DRAIN_PAGES = 16384, DRAIN_BITMAPS = 3584, SLOT_BYTES = GV_ACCESS_KINDS * GV_PAGE_WORDS * 4 };

struct gv_drain {
    CUmodule module;
    CUfunction drain, finish;
    CUdeviceptr memory; // the table's structs, counters, keys and bitmaps: one allocation
    CUdeviceptr counters;
    uint64_t slots[GV_TABLES];
    void *host; // what the drain writes: head, pages, bitmaps
    CUdeviceptr host_on_device;
    // Pages and bitmaps of a node whose drain took several runs.
    gv_drained_page *pages;
    size_t page_count, page_capacity;
    uint32_t *bitmaps;
    size_t bitmap_words, bitmap_capacity;
};

enum {
    HEAD_BYTES = 4096,
    PAGES_BYTES = DRAIN_PAGES * (int)sizeof(gv_drained_page),
    BITMAPS_BYTES = DRAIN_BITMAPS * GV_PAGE_WORDS * 4
};

_Static_assert(sizeof(gv_drain_head) <= HEAD_BYTES, "the drained pages begin behind the head");

// Slots for nodes that touch `bytes`: every 16 KiB of them as words, and a part as single bytes.
static void choose_slots(uint64_t bytes, uint64_t available, uint64_t slots[GV_TABLES])
{
    double words = (double)bytes / (4.0 * GV_PAGE_UNITS) * 1.3 + 8192;
    double singles = (double)bytes / GV_PAGE_UNITS * 0.15 + 8192;
    double wanted = (words + singles) * (SLOT_BYTES + 8);
    double scale = wanted > (double)available ? (double)available / wanted : 1;
    slots[GV_TABLE_WORDS] = ((uint64_t)(words * scale) / 32 + 1) * 32;
    slots[GV_TABLE_BYTES] = ((uint64_t)(singles * scale) / 32 + 1) * 32;
}

static uint64_t aligned(uint64_t size)
{
    return (size + 255) / 256 * 256;
}

static gv_status lay_out(gv_drain *drain, CUstream stream, gv_error *error)
{
    gv_access_table table;
    memset(&table, 0, sizeof table);
    uint64_t at = aligned(sizeof table);
    uint64_t counters = at;
    at += aligned(sizeof(gv_drain_head));
    uint64_t keys[GV_TABLES], bits[GV_TABLES];
    for (int i = 0; i < GV_TABLES; i++) {
        keys[i] = at;
        at += aligned(drain->slots[i] * 8);
        bits[i] = at;
        at += aligned(drain->slots[i] * SLOT_BYTES);
    }
    CUresult result = gv_cuda.cuMemAlloc(&drain->memory, at);
    if (result != CUDA_SUCCESS)
        return gv_fail(error, GV_ERR_MEMORY, "%llu MiB of device memory for access sets could not be allocated: %s",
                       (unsigned long long)(at >> 20), gv_driver_error(result));
    drain->counters = drain->memory + counters;
    for (int i = 0; i < GV_TABLES; i++) {
        table.tables[i].keys = (uint64_t *)(drain->memory + keys[i]);
        table.tables[i].bits = (uint32_t *)(drain->memory + bits[i]);
        table.tables[i].slots = drain->slots[i];
        table.tables[i].unit_shift = i == GV_TABLE_WORDS ? 2 : 0;
    }
    result = gv_cuda.cuMemsetD8Async(drain->memory, 0, at, stream);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuMemcpyHtoDAsync(drain->memory, &table, sizeof table, stream);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuStreamSynchronize(stream);
    if (result != CUDA_SUCCESS)
        return gv_fail(error, GV_ERR_IO, "the access table could not be set up: %s", gv_driver_error(result));
    return GV_OK;
}

gv_status gv_drain_create(const void *image, gv_drain **drain, gv_error *error)
{
    *drain = NULL;
    gv_drain *made = gv_calloc(1, sizeof *made);
    if (!made)
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    const gv_named_kernel kernels[] = {{&made->drain, "gravel_drain"}, {&made->finish, "gravel_drain_finish"}};
    CUresult result = gv_driver_load_kernels(&made->module, image, kernels, sizeof kernels / sizeof *kernels);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuMemHostAlloc(&made->host, HEAD_BYTES + PAGES_BYTES + BITMAPS_BYTES,
                                        CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuMemHostGetDevicePointer(&made->host_on_device, made->host, 0);
    if (result != CUDA_SUCCESS) {
        gv_drain_free(made);
        return gv_fail(error, GV_ERR_IO, "the drain kernels could not be loaded: %s", gv_driver_error(result));
    }
    *drain = made;
    return GV_OK;
}

gv_status gv_drain_open(gv_drain *drain, uint64_t touched_bytes, CUstream stream, gv_error *error)
{
    size_t available = 0, total = 0;
    CUresult result = gv_cuda.cuMemGetInfo(&available, &total);
    if (result != CUDA_SUCCESS)
        return gv_fail(error, GV_ERR_IO, "the driver does not tell how much memory is free: %s",
                       gv_driver_error(result));
    choose_slots(touched_bytes, available / 2, drain->slots);
    gv_status status = lay_out(drain, stream, error);
    if (status != GV_OK)
        gv_drain_close(drain);
    return status;
}

void gv_drain_close(gv_drain *drain)
{
    if (drain->memory)
        gv_cuda.cuMemFree(drain->memory);
    drain->memory = 0;
    gv_free(drain->pages);
    gv_free(drain->bitmaps);
    drain->pages = NULL;
    drain->bitmaps = NULL;
    drain->page_count = drain->page_capacity = drain->bitmap_words = drain->bitmap_capacity = 0;
}

CUdeviceptr gv_drain_table(const gv_drain *drain)
{
    return drain->memory;
}

static CUresult launch_drain(gv_drain *drain, CUstream stream)
{
    uint32_t page_capacity = DRAIN_PAGES, bitmap_capacity = DRAIN_BITMAPS;
    CUdeviceptr pages = drain->host_on_device + HEAD_BYTES, bitmaps = pages + PAGES_BYTES;
    for (uint32_t which = 0; which < GV_TABLES; which++) {
        void *arguments[] = {&drain->memory, &which,           &pages,          &page_capacity,
                             &bitmaps,       &bitmap_capacity, &drain->counters};
        uint64_t blocks = (drain->slots[which] + 255) / 256;
        CUresult result = gv_cuda.cuLaunchKernel(drain->drain, (unsigned)(blocks > 2048 ? 2048 : blocks), 1, 1, 256, 1,
                                                 1, 0, stream, arguments, NULL);
        if (result != CUDA_SUCCESS)
            return result;
    }
    void *arguments[] = {&drain->memory, &drain->host_on_device, &drain->counters};
    CUresult result = gv_cuda.cuLaunchKernel(drain->finish, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
    return result == CUDA_SUCCESS ? gv_cuda.cuStreamSynchronize(stream) : result;
}

// Keeps what one run handed over, for a node that takes several.
static bool keep(gv_drain *drain, const gv_drained_page *pages, size_t page_count, const uint32_t *bitmaps,
                 size_t bitmap_count)
{
    size_t words = bitmap_count * GV_PAGE_WORDS;
    uint32_t first = (uint32_t)(drain->bitmap_words / GV_PAGE_WORDS);
    if (!GV_GROW(drain->pages, drain->page_capacity, drain->page_count + page_count) ||
        !GV_GROW(drain->bitmaps, drain->bitmap_capacity, drain->bitmap_words + words))
        return false;
    memcpy(drain->bitmaps + drain->bitmap_words, bitmaps, words * sizeof *bitmaps);
    for (size_t i = 0; i < page_count; i++) {
        drain->pages[drain->page_count + i] = pages[i];
        drain->pages[drain->page_count + i].bitmap += first;
    }
    drain->page_count += page_count;
    drain->bitmap_words += words;
    return true;
}

gv_status gv_drain_run(gv_drain *drain, CUstream stream, gv_node_ranges *ranges, gv_node_ranges *extents,
                       unsigned *flags, gv_error *error)
{
    const gv_drain_head *head = drain->host;
    gv_drained_page *pages = (gv_drained_page *)((char *)drain->host + HEAD_BYTES);
    uint32_t *bitmaps = (uint32_t *)((char *)drain->host + HEAD_BYTES + PAGES_BYTES);
    bool overflow = false, enough = true;
    *flags = 0;
    drain->page_count = drain->bitmap_words = 0;
    for (;;) {
        CUresult result = launch_drain(drain, stream);
        if (result != CUDA_SUCCESS)
            return gv_fail(error, GV_ERR_IO, "its access set could not be read: %s", gv_driver_error(result));
        size_t page_count = head->pages < DRAIN_PAGES ? head->pages : DRAIN_PAGES;
        size_t bitmap_count = head->bitmaps < DRAIN_BITMAPS ? head->bitmaps : DRAIN_BITMAPS;
        overflow |= head->overflow != 0;
        if (!head->left && !drain->page_count) {
            enough = gv_pages_to_ranges(pages, page_count, bitmaps, ranges);
            break;
        }
        enough = enough && keep(drain, pages, page_count, bitmaps, bitmap_count);
        if (!head->left) {
            enough = enough && gv_pages_to_ranges(drain->pages, drain->page_count, drain->bitmaps, ranges);
            break;
        }
    }
    *flags = head->flags;
    enough = enough && gv_maps_to_ranges(head->map, head->maps, extents);
    if (overflow)
        return gv_fail(error, GV_ERR_LIMIT,
                       "it touched more memory than the access table had room for; leave more "
                       "device memory free while recording");
    return enough ? GV_OK : gv_fail(error, GV_ERR_MEMORY, "memory for its access set ran out");
}

const gv_logged_map *gv_drain_unknown(const gv_drain *drain)
{
    const gv_drain_head *head = drain->host;
    gv_tensor_map map;
    for (uint32_t i = 0; i < head->maps; i++)
        if (!gv_tensor_map_decode(head->map[i].words, &map))
            return &head->map[i];
    return NULL;
}

void gv_drain_free(gv_drain *drain)
{
    if (!drain)
        return;
    gv_drain_close(drain);
    if (drain->host)
        gv_cuda.cuMemFreeHost(drain->host);
    if (drain->module)
        gv_cuda.cuModuleUnload(drain->module);
    gv_free(drain);
}

void gv_drain_forget(gv_drain *drain)
{
    if (!drain)
        return;
    drain->memory = 0;
    gv_drain_close(drain);
    gv_free(drain);
}
