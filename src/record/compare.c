#include "record/compare_core.h"

#include "base/clock.h"
#include "base/memory.h"
#include "record/driver.h"
#include "record/embed.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

GV_EMBED(gv_compare_soft_image, ".gravel.soft", GV_COMPARE_SOFT);
#ifdef GV_DEVICE_CODE
GV_EMBED(gv_compare_image, ".gravel.fatbin", GV_COMPARE_FATBIN);
#endif

enum {
    THREADS = 256,
    SCAN_BLOCKS = 1 << 27, // blocks that one search walks: 4 GiB
    EDGE_SLOTS = 1 << 18,
    MOST_MAPS = 1 << 14,
    MOST_STRAYS = 1 << 10,
};

// ---- Memory ------------------------------------------------------------------------------------------------------

static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *own; // where buffers begin
static size_t own_count, own_capacity;

static bool note_own(uint64_t base)
{
    pthread_mutex_lock(&own_lock);
    bool enough = GV_GROW(own, own_capacity, own_count + 1);
    if (enough)
        own[own_count++] = base;
    pthread_mutex_unlock(&own_lock);
    return enough;
}

static void forget_own(uint64_t base)
{
    pthread_mutex_lock(&own_lock);
    for (size_t i = own_count; i > 0; i--)
        if (own[i - 1] == base) {
            own[i - 1] = own[--own_count];
            break;
        }
    pthread_mutex_unlock(&own_lock);
}

bool gv_compare_owns(uint64_t base)
{
    bool found = false;
    pthread_mutex_lock(&own_lock);
    for (size_t i = 0; i < own_count && !found; i++)
        found = own[i] == base;
    pthread_mutex_unlock(&own_lock);
    return found;
}

void gv_device_release(gv_device_buffer *b)
{
    if (b->memory) {
        gv_cuda.cuMemFree(b->memory);
        forget_own(b->memory);
    }
    *b = (gv_device_buffer){0};
}

void gv_device_forget(gv_device_buffer *b)
{
    if (b->memory)
        forget_own(b->memory);
    *b = (gv_device_buffer){0};
}

// Makes room; the old content is lost.
gv_status gv_device_reserve(gv_device_buffer *b, uint64_t size, gv_error *error)
{
    if (size <= b->size)
        return GV_OK;
    gv_device_release(b);
    CUresult result = gv_cuda.cuMemAlloc(&b->memory, size);
    if (result == CUDA_SUCCESS && !note_own(b->memory)) {
        gv_cuda.cuMemFree(b->memory);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        b->memory = 0;
        return gv_driver_failed(error, "device memory for comparing could not be allocated", result);
    }
    b->size = size;
    return GV_OK;
}

// A copy from pageable memory returns when that has been read (CUDA driver API, "API synchronization behavior").
static gv_status upload(gv_compare *c, CUdeviceptr to, const void *from, size_t size, gv_error *error)
{
    CUresult result = gv_cuda.cuMemcpyHtoDAsync(to, from, size, c->stream);
    return result == CUDA_SUCCESS ? GV_OK : gv_driver_failed(error, "memory for comparing could not be set up", result);
}

static gv_status download(gv_compare *c, void *to, CUdeviceptr from, size_t size, gv_error *error)
{
    CUresult result = gv_cuda.cuMemcpyDtoHAsync(to, from, size, c->stream);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuStreamSynchronize(c->stream);
    return result == CUDA_SUCCESS ? GV_OK
                                  : gv_driver_failed(error, "the result of a comparison could not be read", result);
}

gv_status gv_compare_read(gv_compare *c, uint64_t address, void *to, size_t size, gv_error *error)
{
    return download(c, to, address, size, error);
}

// ---- Opening -----------------------------------------------------------------------------------------------------

static const void *image(bool soft)
{
    if (soft)
        return gv_compare_soft_image;
#ifdef GV_DEVICE_CODE
    return gv_compare_image;
#else
    return NULL;
#endif
}

gv_status gv_compare_open(bool soft, CUstream stream, gv_compare **compare, gv_error *error)
{
    *compare = NULL;
    if (!image(soft))
        return gv_fail(error, GV_ERR_MISSING, "this gravel was built without nvcc");
    gv_compare *c = gv_calloc(1, sizeof *c);
    if (!c)
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    c->stream = stream;
    const gv_named_kernel kernels[] = {{&c->save, "gravel_save"},       {&c->compare, "gravel_compare"},
                                       {&c->restore, "gravel_restore"}, {&c->perturb, "gravel_perturb"},
                                       {&c->settle, "gravel_settle"},   {&c->fill, "gravel_fill"},
                                       {&c->repeat, "gravel_repeat"},   {&c->scan, "gravel_scan"}};
    CUresult result = gv_driver_load_kernels(&c->module, image(soft), kernels, sizeof kernels / sizeof *kernels);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuMemHostAlloc(&c->host, GV_CHANGED_BYTES + GV_COUNTS_BYTES, CU_MEMHOSTALLOC_PORTABLE);
    if (result != CUDA_SUCCESS) {
        gv_compare_close(c);
        return gv_driver_failed(error, "the kernels that compare memory could not be loaded", result);
    }
    *compare = c;
    return GV_OK;
}

static void free_walk(gv_walk *w)
{
    gv_free(w->pieces);
    gv_device_release(&w->device);
    *w = (gv_walk){0};
}

void gv_compare_trim(gv_compare *c)
{
    free_walk(&c->saved);
    free_walk(&c->perturbed);
    free_walk(&c->scanned);
    free_walk(&c->part);
    gv_device_release(&c->copies);
    gv_device_release(&c->swapped);
    gv_device_release(&c->chunk);
    gv_device_release(&c->regions);
    gv_device_release(&c->search);
    c->region_count = 0;
}

void gv_compare_use(gv_compare *c, CUstream stream)
{
    c->stream = stream;
}

void gv_compare_forget(gv_compare *c)
{
    gv_device_buffer *buffers[] = {&c->saved.device, &c->perturbed.device, &c->scanned.device,
                                   &c->part.device,  &c->copies,           &c->swapped,
                                   &c->chunk,        &c->regions,          &c->search};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) // NOLINT(bugprone-sizeof-expression): pointers
        gv_device_forget(buffers[i]);
    gv_free(c->saved.pieces);
    gv_free(c->perturbed.pieces);
    gv_free(c->scanned.pieces);
    gv_free(c->part.pieces);
    gv_free(c);
}

void gv_compare_close(gv_compare *c)
{
    if (!c)
        return;
    gv_compare_trim(c);
    if (c->host)
        gv_cuda.cuMemFreeHost(c->host);
    if (c->module)
        gv_cuda.cuModuleUnload(c->module);
    gv_free(c);
}

// ---- Pieces ------------------------------------------------------------------------------------------------------

static uint64_t block_of(uint64_t address)
{
    return address / GV_BLOCK_BYTES;
}

static uint64_t blocks_of(uint64_t start, uint64_t end)
{
    return block_of(end - 1) - block_of(start) + 1;
}

bool gv_walk_add(gv_walk *w, uint64_t start, uint64_t end, uint64_t saved, uint32_t owner)
{
    if (!GV_GROW(w->pieces, w->capacity, w->count + 1))
        return false;
    w->pieces[w->count++] =
        (gv_piece){.start = start, .end = end, .first_block = w->blocks, .saved = saved, .owner = owner};
    w->blocks += blocks_of(start, end);
    return true;
}

gv_status gv_walk_upload(gv_compare *c, gv_walk *w, gv_error *error)
{
    gv_status status = gv_device_reserve(&w->device, w->count * sizeof *w->pieces, error);
    return status ? status : upload(c, w->device.memory, w->pieces, w->count * sizeof *w->pieces, error);
}

// Launches a kernel over `blocks` blocks from `first` on. `more` are its further arguments.
static CUresult launch(gv_compare *c, CUfunction kernel, gv_walk *w, uint64_t first, uint64_t blocks, void **more,
                       size_t more_count)
{
    uint32_t count = (uint32_t)w->count;
    void *arguments[8] = {&w->device.memory, &count, &first, &blocks};
    for (size_t i = 0; i < more_count; i++)
        arguments[4 + i] = more[i];
    uint64_t grid = (blocks + THREADS - 1) / THREADS;
    return gv_cuda.cuLaunchKernel(kernel, (unsigned)(grid > 4096 ? 4096 : grid), 1, 1, THREADS, 1, 1, 0, c->stream,
                                  arguments, NULL);
}

// Enqueues it: what comes next in the stream comes behind it.
static gv_status run(gv_compare *c, CUfunction kernel, gv_walk *w, void **more, size_t more_count, gv_error *error)
{
    CUresult result = w->blocks ? launch(c, kernel, w, 0, w->blocks, more, more_count) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? GV_OK : gv_driver_failed(error, "memory could not be compared", result);
}

gv_status gv_walk_run(gv_compare *c, CUfunction kernel, gv_walk *w, gv_error *error)
{
    return run(c, kernel, w, NULL, 0, error);
}

// ---- Saving ------------------------------------------------------------------------------------------------------

// Copies lie one behind the other, each where it is aligned as its original is.
uint64_t gv_place_copy(uint64_t *used, uint64_t start, uint64_t end)
{
    uint64_t at = *used + start % GV_BLOCK_BYTES;
    *used = (at + (end - start) + GV_BLOCK_BYTES - 1) / GV_BLOCK_BYTES * GV_BLOCK_BYTES;
    return at;
}

uint64_t gv_compare_cost(const gv_range_set *ranges)
{
    uint64_t used = 0;
    gv_range_set_settle(ranges);
    for (size_t i = 0; i < ranges->count; i++)
        gv_place_copy(&used, ranges->ranges[i].start, ranges->ranges[i].end);
    // A word for each perturbed block, and the pieces, twice.
    return used + used / GV_BLOCK_BYTES * 4 + 2 * ranges->count * sizeof(gv_piece) + GV_CHANGED_BYTES + GV_COUNTS_BYTES;
}

gv_status gv_compare_save(gv_compare *c, const gv_range_set *ranges, gv_error *error)
{
    gv_walk *w = &c->saved;
    uint64_t used = 0;
    w->count = w->blocks = 0;
    gv_range_set_settle(ranges);
    if (ranges->count > GV_MOST_PIECES)
        return gv_fail(error, GV_ERR_MEMORY, "%zu ranges are more than can be compared at once", ranges->count);
    for (size_t i = 0; i < ranges->count; i++) {
        gv_range range = ranges->ranges[i];
        if (!gv_walk_add(w, range.start, range.end, gv_place_copy(&used, range.start, range.end), 0)) {
            w->count = w->blocks = 0;
            return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
        }
    }
    gv_status status = gv_device_reserve(&c->copies, used, error);
    if (!status)
        status = gv_device_reserve(&c->chunk, GV_CHANGED_BYTES + GV_COUNTS_BYTES, error);
    for (size_t i = 0; i < w->count; i++)
        w->pieces[i].saved += c->copies.memory;
    if (!status)
        status = gv_walk_upload(c, w, error);
    if (!status)
        status = run(c, c->save, w, NULL, 0, error);
    if (status)
        w->count = w->blocks = 0;
    return status;
}

gv_status gv_compare_restore(gv_compare *c, gv_error *error)
{
    return run(c, c->restore, &c->saved, NULL, 0, error);
}

// ---- Filling -----------------------------------------------------------------------------------------------------

gv_status gv_compare_fill(gv_compare *c, const gv_range_set *ranges, uint64_t pattern, gv_error *error)
{
    gv_walk *w = &c->part;
    w->count = w->blocks = 0;
    gv_range_set_settle(ranges);
    if (ranges->count > GV_MOST_PIECES)
        return gv_fail(error, GV_ERR_MEMORY, "%zu ranges are more than can be filled at once", ranges->count);
    for (size_t i = 0; i < ranges->count; i++)
        if (!gv_walk_add(w, ranges->ranges[i].start, ranges->ranges[i].end, 0, 0))
            return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    gv_status status = w->count ? gv_walk_upload(c, w, error) : GV_OK;
    return status ? status : run(c, c->fill, w, (void *[]){&pattern}, 1, error);
}

gv_status gv_compare_repeat(gv_compare *c, gv_range range, uint64_t unit, uint64_t size, gv_error *error)
{
    gv_walk *w = &c->part;
    w->count = w->blocks = 0;
    if (range.start >= range.end || !size)
        return GV_OK;
    if (!gv_walk_add(w, range.start, range.end, 0, 0))
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    gv_status status = gv_walk_upload(c, w, error);
    return status ? status : run(c, c->repeat, w, (void *[]){&unit, &size}, 2, error);
}

// ---- From masks to ranges ----------------------------------------------------------------------------------------

// Joins what it is given as long as it is adjacent.
typedef struct joiner {
    gv_range_set *set;
    gv_range open; // empty: nothing yet
    gv_error *error;
} joiner;

static gv_status join(joiner *j, uint64_t start, uint64_t end)
{
    gv_status status = GV_OK;
    if (j->open.end == start && j->open.end != j->open.start) {
        j->open.end = end;
        return GV_OK;
    }
    if (j->open.end != j->open.start)
        status = gv_range_set_add(j->set, j->open.start, j->open.end, j->error);
    j->open = (gv_range){start, end};
    return status;
}

static gv_status join_block(joiner *j, uint64_t address, uint32_t mask)
{
    gv_status status = GV_OK;
    while (mask && !status) {
        unsigned first = (unsigned)__builtin_ctz(mask), length = 32 - first;
        uint32_t rest = ~(mask >> first);
        if (rest && (unsigned)__builtin_ctz(rest) < length)
            length = (unsigned)__builtin_ctz(rest);
        status = join(j, address + first, address + first + length);
        mask = first + length == 32 ? 0 : mask >> (first + length) << (first + length);
    }
    return status;
}

// Adds the bytes of the blocks [first, first + blocks): all of them, or those that `masks` has.
static gv_status add_blocks(const gv_walk *w, size_t *piece, uint64_t first, uint64_t blocks, const uint32_t *masks,
                            joiner *j)
{
    gv_status status = GV_OK;
    for (uint64_t b = first; b < first + blocks && !status;) {
        while (*piece + 1 < w->count && w->pieces[*piece + 1].first_block <= b)
            ++*piece;
        const gv_piece *at = &w->pieces[*piece];
        uint64_t until = *piece + 1 < w->count ? at[1].first_block : w->blocks;
        uint64_t stop = until < first + blocks ? until : first + blocks;
        uint64_t base = block_of(at->start) * GV_BLOCK_BYTES;
        if (!masks) {
            uint64_t start = base + (b - at->first_block) * GV_BLOCK_BYTES;
            uint64_t end = base + (stop - at->first_block) * GV_BLOCK_BYTES;
            status = join(j, start < at->start ? at->start : start, end > at->end ? at->end : end);
            b = stop;
        }
        for (; b < stop && !status; b++)
            status = join_block(j, base + (b - at->first_block) * GV_BLOCK_BYTES, masks[b - first]);
    }
    return status;
}

// How many bytes a group of blocks has in its pieces.
static uint64_t bytes_of(const gv_walk *w, size_t piece, uint64_t first, uint64_t blocks)
{
    uint64_t bytes = 0;
    for (uint64_t b = first; b < first + blocks;) {
        while (piece + 1 < w->count && w->pieces[piece + 1].first_block <= b)
            piece++;
        const gv_piece *at = &w->pieces[piece];
        uint64_t until = piece + 1 < w->count ? at[1].first_block : w->blocks;
        uint64_t stop = until < first + blocks ? until : first + blocks;
        uint64_t base = block_of(at->start) * GV_BLOCK_BYTES;
        uint64_t start = base + (b - at->first_block) * GV_BLOCK_BYTES;
        uint64_t end = base + (stop - at->first_block) * GV_BLOCK_BYTES;
        bytes += (end > at->end ? at->end : end) - (start < at->start ? at->start : start);
        b = stop;
    }
    return bytes;
}

// Adds what a chunk's counts and masks say. The masks are fetched only where a group changed in part.
static gv_status take_chunk(gv_compare *c, const gv_walk *w, size_t *piece, uint64_t first, uint64_t blocks,
                            bool coarse, joiner *j, gv_error *error)
{
    const uint32_t *counts = (const uint32_t *)((char *)c->host + GV_CHANGED_BYTES);
    uint32_t *masks = c->host;
    bool fetched = false;
    gv_status status = download(c, (void *)counts, c->chunk.memory + GV_CHANGED_BYTES, GV_COUNTS_BYTES, error);
    for (uint64_t at = 0; at < blocks && !status; at += GV_GROUP_BLOCKS) {
        uint64_t count = counts[at / GV_GROUP_BLOCKS];
        uint64_t size = blocks - at < GV_GROUP_BLOCKS ? blocks - at : GV_GROUP_BLOCKS;
        if (!count)
            continue;
        while (*piece + 1 < w->count && w->pieces[*piece + 1].first_block <= first + at)
            ++*piece;
        bool whole = coarse || count == bytes_of(w, *piece, first + at, size);
        if (!whole && !fetched) {
            status = download(c, masks, c->chunk.memory, blocks * 4, error);
            fetched = true;
        }
        if (!status)
            status = add_blocks(w, piece, first + at, size, whole ? NULL : masks + at, j);
    }
    return status;
}

// Runs a kernel that marks what changed, chunk by chunk. `before` is an argument in front of the two buffers, or NULL.
static gv_status mark(gv_compare *c, CUfunction kernel, gv_walk *w, void *before, bool coarse, gv_range_set *set,
                      gv_error *error)
{
    joiner j = {.set = set, .error = error};
    gv_status status = GV_OK;
    size_t piece = 0;
    CUdeviceptr counts = c->chunk.memory + GV_CHANGED_BYTES;
    for (uint64_t first = 0; first < w->blocks; first += GV_CHUNK_BLOCKS) {
        uint64_t blocks = w->blocks - first < GV_CHUNK_BLOCKS ? w->blocks - first : GV_CHUNK_BLOCKS;
        void *more[3], **next = more;
        if (before)
            *next++ = before;
        *next++ = &c->chunk.memory;
        *next++ = &counts;
        CUresult result = gv_cuda.cuMemsetD8Async(counts, 0, GV_COUNTS_BYTES, c->stream);
        if (result == CUDA_SUCCESS)
            result = launch(c, kernel, w, first, blocks, more, (size_t)(next - more));
        // A settling kernel has to go over all chunks, whatever becomes of what it tells.
        if (result != CUDA_SUCCESS && !status)
            status = gv_driver_failed(error, "memory could not be compared", result);
        if (!status)
            status = take_chunk(c, w, &piece, first, blocks, coarse, &j, error);
        if (status && !before)
            break;
    }
    if (!status)
        status = join(&j, 0, 0);
    gv_range_set_settle(set);
    return status;
}

gv_status gv_compare_changed(gv_compare *c, gv_range_set *changed, gv_error *error)
{
    return mark(c, c->compare, &c->saved, NULL, false, changed, error);
}

gv_status gv_walk_changed(gv_compare *c, gv_walk *w, bool coarse, gv_range_set *changed, gv_error *error)
{
    gv_status status = gv_device_reserve(&c->chunk, GV_CHANGED_BYTES + GV_COUNTS_BYTES, error);
    return status ? status : mark(c, c->compare, w, NULL, coarse, changed, error);
}

// ---- Perturbing --------------------------------------------------------------------------------------------------

gv_status gv_compare_perturb(gv_compare *c, const gv_range_set *ranges, gv_error *error)
{
    gv_walk *w = &c->perturbed;
    size_t piece = 0;
    w->count = w->blocks = 0;
    gv_range_set_settle(ranges);
    for (size_t i = 0; i < ranges->count; i++) {
        gv_range range = ranges->ranges[i];
        while (piece < c->saved.count && c->saved.pieces[piece].end <= range.start)
            piece++;
        const gv_piece *in = &c->saved.pieces[piece];
        if (piece == c->saved.count || in->start > range.start || in->end < range.end)
            return gv_fail(error, GV_ERR_USAGE, "memory that was not saved would have been changed");
        if (!gv_walk_add(w, range.start, range.end, in->saved + (range.start - in->start), 0))
            return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    }
    gv_status status = gv_device_reserve(&c->swapped, w->blocks * 4, error);
    if (!status)
        status = gv_walk_upload(c, w, error);
    void *more[] = {&c->swapped.memory};
    if (!status)
        status = run(c, c->perturb, w, more, 1, error);
    if (status)
        w->count = w->blocks = 0;
    return status;
}

gv_status gv_compare_settle(gv_compare *c, gv_range_set *written, gv_error *error)
{
    gv_status status = mark(c, c->settle, &c->perturbed, &c->swapped.memory, false, written, error);
    CUresult result = gv_cuda.cuStreamSynchronize(c->stream);
    if (!status && result != CUDA_SUCCESS)
        status = gv_driver_failed(error, "memory could not be put back", result);
    c->perturbed.count = c->perturbed.blocks = 0;
    return status;
}

// ---- Searching ---------------------------------------------------------------------------------------------------

gv_status gv_compare_set_regions(gv_compare *c, const gv_range *regions, size_t count, gv_error *error)
{
    uint64_t *bounds = gv_calloc(count, 2 * sizeof *bounds);
    if (!bounds)
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    for (size_t i = 0; i < count; i++) {
        bounds[i] = regions[i].start;
        bounds[count + i] = regions[i].end;
    }
    gv_status status = gv_device_reserve(&c->regions, 2 * count * sizeof *bounds, error);
    if (!status)
        status = upload(c, c->regions.memory, bounds, 2 * count * sizeof *bounds, error);
    c->region_count = status ? 0 : count;
    c->bounds = (gv_range){regions[0].start, regions[count - 1].end};
    gv_free(bounds);
    return status;
}

// Where the parts of the search buffer lie.
enum {
    HEAD_AT = 256,
    EDGES_AT = HEAD_AT + 256,
    EDGE_LIST_AT = EDGES_AT + EDGE_SLOTS * 8,
    MAPS_AT = EDGE_LIST_AT + EDGE_SLOTS * 8,
    STRAYS_AT = MAPS_AT + MOST_MAPS * (int)sizeof(gv_found_map),
    SEARCH_BYTES = STRAYS_AT + MOST_STRAYS * 8,
};

static gv_status begin_search(gv_compare *c, gv_error *error)
{
    gv_status status = gv_device_reserve(&c->search, SEARCH_BYTES, error);
    if (status)
        return status;
    CUdeviceptr at = c->search.memory;
    gv_scan_job job = {.starts = (const uint64_t *)c->regions.memory,
                       .ends = (const uint64_t *)c->regions.memory + c->region_count,
                       .head = (gv_scan_head *)(at + HEAD_AT),
                       .edges = (unsigned long long *)(at + EDGES_AT),
                       .edge_list = (uint64_t *)(at + EDGE_LIST_AT),
                       .maps = (gv_found_map *)(at + MAPS_AT),
                       .strays = (uint64_t *)(at + STRAYS_AT),
                       .low = c->bounds.start,
                       .high = c->bounds.end,
                       .region_count = (uint32_t)c->region_count,
                       .edge_slots = EDGE_SLOTS,
                       .map_capacity = MOST_MAPS,
                       .stray_capacity = MOST_STRAYS};
    CUresult result = gv_cuda.cuMemsetD8Async(at, 0, EDGE_LIST_AT, c->stream);
    if (result != CUDA_SUCCESS)
        return gv_driver_failed(error, "memory could not be searched", result);
    return upload(c, at, &job, sizeof job, error);
}

// Appends an array in device memory to one of the host's.
#define APPEND(c, items, count, capacity, more, from, error) \
    (!GV_GROW(items, capacity, (count) + (more))             \
         ? gv_fail(error, GV_ERR_MEMORY, "memory ran out")   \
         : download(c, (items) + (count), from, (more) * sizeof *(items), error))

static gv_status take_search(gv_compare *c, gv_scan_found *found, gv_error *error)
{
    gv_scan_head head;
    gv_status status = download(c, &head, c->search.memory + HEAD_AT, sizeof head, error);
    if (!status && (head.edges_overflow || head.maps > MOST_MAPS || head.strays > MOST_STRAYS))
        return gv_fail(error, GV_ERR_LIMIT, "it holds more addresses than can be followed");
    if (!status && head.edges) {
        status = APPEND(c, found->edges, found->edge_count, found->edge_capacity, head.edges,
                        c->search.memory + EDGE_LIST_AT, error);
        found->edge_count += status ? 0 : head.edges;
    }
    if (!status && head.maps) {
        status =
            APPEND(c, found->maps, found->map_count, found->map_capacity, head.maps, c->search.memory + MAPS_AT, error);
        found->map_count += status ? 0 : head.maps;
    }
    if (!status && head.strays) {
        status = APPEND(c, found->strays, found->stray_count, found->stray_capacity, head.strays,
                        c->search.memory + STRAYS_AT, error);
        found->stray_count += status ? 0 : head.strays;
    }
    return status;
}

gv_status gv_compare_scan(gv_compare *c, const gv_scan_range *ranges, size_t count, uint64_t deadline,
                          gv_scan_found *found, gv_error *error)
{
    gv_walk *w = &c->scanned;
    w->count = w->blocks = 0;
    for (size_t i = 0; i < count; i++)
        if (!gv_walk_add(w, ranges[i].start, ranges[i].end, 0, ranges[i].region))
            return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    gv_status status = gv_walk_upload(c, w, error);
    if (!status)
        status = begin_search(c, error);
    void *more[] = {&c->search.memory};
    for (uint64_t first = 0; first < w->blocks && !status; first += SCAN_BLOCKS) {
        uint64_t blocks = w->blocks - first < SCAN_BLOCKS ? w->blocks - first : SCAN_BLOCKS;
        if (gv_monotonic_ns() > deadline)
            return gv_fail(error, GV_ERR_LIMIT, "the time for it has run out");
        CUresult result = launch(c, c->scan, w, first, blocks, more, 1);
        // The time is looked at between the parts of a large search.
        if (result == CUDA_SUCCESS && first + blocks < w->blocks)
            result = gv_cuda.cuStreamSynchronize(c->stream);
        if (result != CUDA_SUCCESS)
            status = gv_driver_failed(error, "memory could not be searched", result);
    }
    return status ? status : take_search(c, found, error);
}

void gv_scan_found_free(gv_scan_found *found)
{
    gv_free(found->edges);
    gv_free(found->maps);
    gv_free(found->strays);
    *found = (gv_scan_found){0};
}
