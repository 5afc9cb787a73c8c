#include "record/shadow.h"

#include "base/memory.h"
#include "device/shadow.h"
#include "record/compare_core.h"
#include "record/driver.h"
#include "record/embed.h"

#include <stdlib.h>
#include <string.h>

GV_EMBED(gv_shadow_soft_image, ".gravel.soft", GV_SHADOW_SOFT);
#ifdef GV_DEVICE_CODE
GV_EMBED(gv_shadow_image, ".gravel.fatbin", GV_SHADOW_FATBIN);
#endif

enum {
    THREADS = 256,
    MOST_BLOCKS = 4096,
    FIRST_SLOTS = 4096, // of the journal: 16 MiB
    SLOT_BYTES = GV_SHADOW_GROUP + sizeof(uint64_t) + sizeof(uint32_t),
    GROUP_BYTES = sizeof(uint64_t) + sizeof(uint32_t), // a hash and a place in the journal
};

// A group in the journal.
typedef struct journaled {
    uint32_t group, slot;
} journaled;

struct gv_shadow {
    bool soft;
    CUmodule module;
    CUfunction take, rewind, compare, undo;
    gv_shadow_head *head; // page-locked: where the counts are copied to

    gv_range_set ranges; // what it is a copy of
    bool empty;          // it holds nothing so far
    gv_shadow_piece *pieces;
    size_t piece_count, piece_capacity;
    uint32_t groups;
    gv_device_buffer memory;  // the copies, hashes, places
    gv_device_buffer tables;  // the job, the head, the pieces, the regions
    gv_device_buffer journal; // the groups, their hashes, their numbers
    gv_shadow_job job;        // as it is on the device
    uint32_t missing;         // places that the journal had too few

    journaled *listed; // ascending
    size_t listed_count, listed_capacity;
};

// ---- The kernels -------------------------------------------------------------------------------------------------

static const void *image(bool soft)
{
    if (soft)
        return gv_shadow_soft_image;
#ifdef GV_DEVICE_CODE
    return gv_shadow_image;
#else
    return NULL;
#endif
}

gv_status gv_shadow_open(bool soft, gv_shadow **shadow, gv_error *error)
{
    *shadow = NULL;
    if (!image(soft))
        return gv_fail(error, GV_ERR_MISSING, "this gravel was built without nvcc");
    gv_shadow *s = gv_calloc(1, sizeof *s);
    if (!s)
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    s->soft = soft;
    const gv_named_kernel kernels[] = {{&s->take, "gravel_shadow_take"},
                                       {&s->rewind, "gravel_shadow_rewind"},
                                       {&s->compare, "gravel_shadow_compare"},
                                       {&s->undo, "gravel_shadow_undo"}};
    CUresult result = gv_driver_load_kernels(&s->module, image(soft), kernels, sizeof kernels / sizeof *kernels);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuMemHostAlloc((void **)&s->head, sizeof *s->head, CU_MEMHOSTALLOC_PORTABLE);
    if (result != CUDA_SUCCESS) {
        gv_shadow_close(s);
        return gv_driver_failed(error, "the kernels that keep a copy of memory could not be loaded", result);
    }
    *shadow = s;
    return GV_OK;
}

void gv_shadow_trim(gv_shadow *s)
{
    gv_device_release(&s->memory);
    gv_device_release(&s->tables);
    gv_device_release(&s->journal);
    gv_range_set_free(&s->ranges);
    s->piece_count = s->groups = 0;
    s->listed_count = 0;
    s->job = (gv_shadow_job){0};
}

void gv_shadow_forget(gv_shadow *s)
{
    gv_device_forget(&s->memory);
    gv_device_forget(&s->tables);
    gv_device_forget(&s->journal);
    gv_range_set_free(&s->ranges);
    gv_free(s->pieces);
    gv_free(s->listed);
    gv_free(s);
}

void gv_shadow_close(gv_shadow *s)
{
    if (!s)
        return;
    gv_shadow_trim(s);
    if (s->head)
        gv_cuda.cuMemFreeHost(s->head);
    if (s->module)
        gv_cuda.cuModuleUnload(s->module);
    gv_shadow_forget(s);
}

static gv_status could_not(gv_error *error, CUresult result)
{
    return gv_driver_failed(error, "a copy of memory could not be kept", result);
}

// Enqueues a kernel, with the counts at zero before it.
static CUresult enqueue(gv_shadow *s, CUfunction kernel, uint32_t groups, uint32_t argument, CUstream stream)
{
    CUdeviceptr job = s->tables.memory;
    void *arguments[] = {&job, &argument};
    uint64_t threads = (uint64_t)groups * (s->soft ? 1 : 32), blocks = (threads + THREADS - 1) / THREADS;
    CUresult result = gv_cuda.cuMemsetD8Async((CUdeviceptr)s->job.head, 0, sizeof *s->head, stream);
    if (result == CUDA_SUCCESS && blocks)
        result = gv_cuda.cuLaunchKernel(kernel, (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), 1, 1, THREADS,
                                        1, 1, 0, stream, arguments, NULL);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuMemcpyDtoHAsync(s->head, (CUdeviceptr)s->job.head, sizeof *s->head, stream);
    return result;
}

static gv_status run(gv_shadow *s, CUfunction kernel, uint32_t groups, uint32_t argument, CUstream stream,
                     gv_error *error)
{
    CUresult result = enqueue(s, kernel, groups, argument, stream);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuStreamSynchronize(stream);
    return result == CUDA_SUCCESS ? GV_OK : could_not(error, result);
}

// ---- The layout --------------------------------------------------------------------------------------------------

static uint64_t aligned(uint64_t size)
{
    return (size + 255) / 256 * 256;
}

static uint64_t groups_of(gv_range range)
{
    return (range.end - 1) / GV_SHADOW_GROUP - range.start / GV_SHADOW_GROUP + 1;
}

// What the copies of `ranges` and what goes with each group take.
static uint64_t memory_for(const gv_range_set *ranges, uint64_t *groups)
{
    uint64_t copies = gv_image_cost(ranges);
    *groups = 0;
    for (size_t i = 0; i < ranges->count; i++)
        *groups += groups_of(ranges->ranges[i]);
    return aligned(copies) + *groups * GROUP_BYTES;
}

static uint32_t first_slots(uint64_t groups)
{
    return (uint32_t)(groups < FIRST_SLOTS ? groups : FIRST_SLOTS);
}

uint64_t gv_shadow_bytes(const gv_shadow *s)
{
    return s->memory.size + s->tables.size + s->journal.size;
}

uint64_t gv_shadow_cost(const gv_shadow *s, const gv_range_set *ranges)
{
    uint64_t groups, memory = memory_for(ranges, &groups), journal = (uint64_t)first_slots(groups) * SLOT_BYTES;
    // The tables are small: a piece for each range and region.
    return (memory > s->memory.size ? memory : 0) + (journal > s->journal.size ? journal : 0);
}

static bool is_copy_of(const gv_shadow *s, const gv_range_set *ranges)
{
    return s->memory.memory && s->ranges.count == ranges->count &&
           memcmp(s->ranges.ranges, ranges->ranges, ranges->count * sizeof *ranges->ranges) == 0;
}

// The pieces: the ranges, each where its copy lies, divided where regions begin and end that are searched.
static bool add_piece(gv_shadow *s, uint64_t start, uint64_t end, uint64_t copy, bool searched)
{
    if (!GV_GROW(s->pieces, s->piece_capacity, s->piece_count + 1))
        return false;
    s->pieces[s->piece_count++] =
        (gv_shadow_piece){.start = start, .end = end, .copy = copy, .first_group = s->groups, .searched = searched};
    s->groups += (uint32_t)groups_of((gv_range){start, end});
    return true;
}

// Ranges are searched or not as a whole: memory that kernels reach and memory that only copies name may adjoin, and the
// latter is then searched too, which finds no less.
static bool is_searched(gv_range range, const gv_shadow_regions *regions)
{
    size_t low = 0, high = regions->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (regions->ranges[middle].end <= range.start)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < regions->count && regions->ranges[low].start < range.end; low++)
        if (regions->marked[low])
            return true;
    return false;
}

static gv_status make_pieces(gv_shadow *s, const gv_range_set *ranges, const gv_shadow_regions *regions,
                             gv_error *error)
{
    uint64_t used = 0;
    s->piece_count = 0;
    s->groups = 0;
    for (size_t i = 0; i < ranges->count; i++) {
        gv_range range = ranges->ranges[i];
        uint64_t copy = s->memory.memory + gv_place_copy(&used, range.start, range.end);
        if (!add_piece(s, range.start, range.end, copy, is_searched(range, regions)))
            return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    }
    return GV_OK;
}

static void set_journal(gv_shadow *s, uint32_t slots)
{
    CUdeviceptr at = s->journal.memory;
    s->job.journal = at;
    s->job.journal_hashes = (uint64_t *)(at + (uint64_t)slots * GV_SHADOW_GROUP);
    s->job.journal_groups = (uint32_t *)(at + (uint64_t)slots * (GV_SHADOW_GROUP + sizeof(uint64_t)));
    s->job.journal_slots = slots;
}

static gv_status upload(CUdeviceptr to, const void *from, size_t size, CUstream stream, gv_error *error)
{
    CUresult result = size ? gv_cuda.cuMemcpyHtoDAsync(to, from, size, stream) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? GV_OK : could_not(error, result);
}

// Writes the job, the pieces and the regions to the device.
static gv_status set_up(gv_shadow *s, const gv_shadow_regions *regions, CUstream stream, gv_error *error)
{
    size_t bounds = regions->count * sizeof(uint64_t);
    uint64_t *both = gv_calloc(regions->count, 2 * sizeof *both);
    uint64_t head = aligned(sizeof s->job), pieces = head + aligned(sizeof *s->head),
             starts = pieces + aligned(s->piece_count * sizeof *s->pieces), marked = starts + aligned(2 * bounds);
    gv_status status = both ? gv_device_reserve(&s->tables, marked + aligned(regions->count), error)
                            : gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    CUdeviceptr at = s->tables.memory;
    s->job.head = (gv_shadow_head *)(at + head);
    s->job.pieces = (const gv_shadow_piece *)(at + pieces);
    s->job.piece_count = (uint32_t)s->piece_count;
    s->job.groups = s->groups;
    s->job.starts = (const uint64_t *)(at + starts);
    s->job.ends = (const uint64_t *)(at + starts + bounds);
    s->job.marked = (const uint8_t *)(at + marked);
    s->job.region_count = (uint32_t)regions->count;
    for (size_t i = 0; i < regions->count && both; i++) {
        both[i] = regions->ranges[i].start;
        both[regions->count + i] = regions->ranges[i].end;
    }
    if (!status)
        status = upload(at, &s->job, sizeof s->job, stream, error);
    if (!status)
        status = upload(at + pieces, s->pieces, s->piece_count * sizeof *s->pieces, stream, error);
    if (!status)
        status = upload(at + starts, both, 2 * bounds, stream, error);
    if (!status)
        status = upload(at + marked, regions->marked, regions->count, stream, error);
    gv_free(both);
    return status;
}

gv_status gv_shadow_lay_out(gv_shadow *s, const gv_range_set *ranges, const gv_shadow_regions *regions, CUstream stream,
                            gv_error *error)
{
    gv_status status = GV_OK;
    const gv_range_set nothing = {0};
    uint64_t groups, memory;
    gv_range_set_settle(ranges);
    memory = memory_for(ranges, &groups);
    if (groups > UINT32_MAX / 2 || ranges->count > GV_MOST_PIECES)
        return gv_fail(error, GV_ERR_MEMORY, "%.1f GiB in %zu ranges are more than can be kept a copy of",
                       (double)gv_range_set_bytes(ranges) / 1073741824, ranges->count);
    if (!is_copy_of(s, ranges)) {
        s->empty = true;
        gv_range_set_free(&s->ranges);
        status = gv_range_set_union(ranges, &nothing, &s->ranges, error);
        if (!status)
            status = gv_device_reserve(&s->memory, memory ? memory : 1, error);
        if (!status && s->job.journal_slots < first_slots(groups)) {
            status = gv_device_reserve(&s->journal, (uint64_t)first_slots(groups) * SLOT_BYTES, error);
            set_journal(s, status ? 0 : first_slots(groups));
        }
    }
    if (!status)
        status = make_pieces(s, ranges, regions, error);
    s->job.hashes = (uint64_t *)(s->memory.memory + aligned(gv_image_cost(ranges)));
    s->job.slots = (uint32_t *)(s->job.hashes + groups);
    if (!status)
        status = set_up(s, regions, stream, error);
    if (status)
        gv_shadow_trim(s);
    return status;
}

// ---- Bringing it up to date --------------------------------------------------------------------------------------

gv_status gv_shadow_take(gv_shadow *s, bool search, CUstream stream, gv_error *error)
{
    uint32_t flags = (s->empty ? GV_SHADOW_TAKE_ALL : 0) | (search ? GV_SHADOW_SEARCH : 0);
    CUresult result = enqueue(s, s->take, s->groups, flags, stream);
    s->listed_count = 0;
    return result == CUDA_SUCCESS ? GV_OK : could_not(error, result);
}

gv_status gv_shadow_taken(gv_shadow *s, gv_shadow_news *news, CUstream stream, gv_error *error)
{
    CUresult result = gv_cuda.cuStreamSynchronize(stream);
    *news = (gv_shadow_news){0};
    if (result != CUDA_SUCCESS)
        return could_not(error, result);
    s->empty = false;
    news->copied_bytes = (uint64_t)s->head->copied * GV_SHADOW_GROUP;
    news->escaped = s->head->escaped != 0;
    news->too_many = s->head->strays > GV_SHADOW_MOST_STRAYS;
    news->stray_count = news->too_many ? GV_SHADOW_MOST_STRAYS : s->head->strays;
    memcpy(news->strays, s->head->stray, sizeof news->strays);
    return GV_OK;
}

// ---- The journal -------------------------------------------------------------------------------------------------

static int by_group(const void *a, const void *b)
{
    const journaled *x = a, *y = b;
    return x->group < y->group ? -1 : x->group > y->group;
}

// The bytes of a group that belong to its piece. Groups are asked for in ascending order.
static gv_range range_of(const gv_shadow *s, uint32_t group, size_t *piece, uint64_t *base)
{
    while (*piece + 1 < s->piece_count && s->pieces[*piece + 1].first_group <= group)
        ++*piece;
    const gv_shadow_piece *p = &s->pieces[*piece];
    *base = (p->start / GV_SHADOW_GROUP + (group - p->first_group)) * GV_SHADOW_GROUP;
    uint64_t end = *base + GV_SHADOW_GROUP;
    return (gv_range){*base > p->start ? *base : p->start, end < p->end ? end : p->end};
}

// Learns which groups the first `count` places of the journal hold.
static gv_status list_journal(gv_shadow *s, uint32_t count, CUstream stream, gv_error *error)
{
    uint32_t *groups = gv_calloc(count, sizeof *groups);
    if (!groups || !GV_GROW(s->listed, s->listed_capacity, count)) {
        gv_free(groups);
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    }
    CUresult result = CUDA_SUCCESS;
    if (count)
        result = gv_cuda.cuMemcpyDtoHAsync(groups, (CUdeviceptr)s->job.journal_groups, count * sizeof *groups, stream);
    if (count && result == CUDA_SUCCESS)
        result = gv_cuda.cuStreamSynchronize(stream);
    for (uint32_t i = 0; i < count; i++)
        s->listed[i] = (journaled){groups[i], i};
    if (count)
        qsort(s->listed, count, sizeof *s->listed, by_group);
    s->listed_count = result == CUDA_SUCCESS ? count : 0;
    gv_free(groups);
    return result == CUDA_SUCCESS ? GV_OK : could_not(error, result);
}

gv_status gv_shadow_rewind(gv_shadow *s, CUstream stream, gv_range_set *changed, gv_error *error)
{
    gv_error ignored = {0};
    gv_status status = run(s, s->rewind, s->groups, 0, stream, error);
    uint32_t count = status ? 0 : s->head->journaled, slots = s->job.journal_slots;
    bool fits = count <= slots;
    if (!status && fits)
        status = list_journal(s, count, stream, error);
    if (!status && fits) {
        size_t piece = 0;
        uint64_t base;
        for (size_t i = 0; i < s->listed_count && !status; i++) {
            gv_range range = range_of(s, s->listed[i].group, &piece, &base);
            status = gv_range_set_add(changed, range.start, range.end, error);
        }
        gv_range_set_settle(changed);
    }
    if (!status && fits)
        return GV_OK;
    // Memory is as it was found.
    s->missing = fits ? 0 : count - slots;
    gv_status undone = run(s, s->undo, fits ? count : slots, fits ? count : slots, stream, &ignored);
    if (undone)
        return gv_fail(error, undone, "%s", ignored.text);
    return status ? status
                  : gv_fail(error, GV_ERR_LIMIT, "%.1f MiB changed, and there is room to keep %.1f MiB of it",
                            (double)count * GV_SHADOW_GROUP / 1048576, (double)slots * GV_SHADOW_GROUP / 1048576);
}

gv_status gv_shadow_grow(gv_shadow *s, uint64_t room, CUstream stream, gv_error *error)
{
    // A quarter more than was needed, so that the next launch's changes fit too.
    uint64_t least = (uint64_t)s->job.journal_slots + s->missing, slots = least + least / 4;
    slots = slots < s->groups ? slots : s->groups;
    if (least * SLOT_BYTES > room + s->journal.size)
        return gv_fail(error, GV_ERR_MEMORY,
                       "%.1f MiB that the graph changed do not fit: %.1f MiB more device memory may be used "
                       "(GRAVEL_DIFF_MEMORY)",
                       (double)least * GV_SHADOW_GROUP / 1048576, (double)room / 1048576);
    if (slots * SLOT_BYTES > room + s->journal.size)
        slots = least;
    gv_status status = gv_device_reserve(&s->journal, slots * SLOT_BYTES, error);
    set_journal(s, status ? 0 : (uint32_t)slots);
    return status ? status : upload(s->tables.memory, &s->job, sizeof s->job, stream, error);
}

gv_status gv_shadow_undo(gv_shadow *s, CUstream stream, gv_error *error)
{
    return run(s, s->undo, (uint32_t)s->listed_count, (uint32_t)s->listed_count, stream, error);
}

gv_status gv_shadow_compare(gv_shadow *s, CUstream stream, bool *same, gv_error *error)
{
    gv_status status = run(s, s->compare, s->groups, 0, stream, error);
    *same = !status && s->head->differing == 0;
    return status;
}

// ---- Images ------------------------------------------------------------------------------------------------------

gv_status gv_shadow_before(const gv_shadow *s, gv_image **image, gv_error *error)
{
    gv_status status = gv_image_borrow(image, error);
    for (size_t i = 0; i < s->piece_count && !status; i++)
        status = gv_image_borrow_part(*image, s->pieces[i].start, s->pieces[i].end, s->pieces[i].copy, error);
    return status;
}

gv_status gv_shadow_after(const gv_shadow *s, gv_image **image, gv_error *error)
{
    size_t piece = 0;
    uint64_t base;
    gv_status status = gv_image_borrow(image, error);
    for (size_t i = 0; i < s->listed_count && !status; i++) {
        gv_range range = range_of(s, s->listed[i].group, &piece, &base);
        uint64_t copy = s->job.journal + (uint64_t)s->listed[i].slot * GV_SHADOW_GROUP + (range.start - base);
        status = gv_image_borrow_part(*image, range.start, range.end, copy, error);
    }
    return status;
}
