#include "record/canary_core.h"

#include "base/memory.h"
#include "record/driver.h"
#include "record/graph.h"
#include "record/ids.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_PAGE = 2 << 20 }; // of a region that is declared without pages

gv_canary gv_the_canary = {.lock = PTHREAD_MUTEX_INITIALIZER};

// ---- Options -----------------------------------------------------------------------------------------------------

void gv_canary_start(void)
{
    const char *canary = getenv("GRAVEL_CANARY"), *checksums = getenv("GRAVEL_CHECKSUMS"),
               *named = getenv("GRAVEL_CANARY_REGIONS"), *broken = getenv("GRAVEL_CANARY_SELF_TEST");
    gv_the_canary.options.canary = canary && *canary;
    gv_the_canary.options.checksums = checksums && *checksums && strcmp(checksums, "0") != 0;
    gv_the_canary.options.on = gv_the_canary.options.canary || gv_the_canary.options.checksums;
    gv_the_canary.options.every = 1;
    gv_the_canary.options.self_test_fails = broken && strcmp(broken, "fail") == 0;
    if (!gv_the_canary.options.on)
        return;
    for (const char *at = canary; at && *at;) {
        size_t length = strcspn(at, ",");
        char *end = NULL;
        unsigned long long every = length > 6 && strncmp(at, "every=", 6) == 0 ? strtoull(at + 6, &end, 10) : 0;
        if (length == 5 && strncmp(at, "abort", 5) == 0)
            gv_the_canary.options.aborts = true;
        else if (length == 6 && strncmp(at, "record", 6) == 0)
            gv_the_canary.options.records = true;
        else if (every && end == at + length)
            gv_the_canary.options.every = every;
        else if (!(length == 3 && strncmp(at, "log", 3) == 0))
            gv_say("GRAVEL_CANARY: \"%.*s\" is not log, abort, record or every=K; ignored", (int)length, at);
        at += length + (at[length] == ',');
    }
    gv_the_canary.options.patterns = gv_patterns_parse(named ? named : "", &gv_the_canary.options.pattern_count);
}

bool gv_canary_is_on(void)
{
    return gv_the_canary.options.on;
}

bool gv_canary_memory(gv_range_set *set)
{
    gv_status status = GV_OK;
    if (!gv_canary_is_on())
        return true;
    pthread_mutex_lock(&gv_the_canary.lock);
    for (const gv_watched *r = gv_the_canary.regions; r && !status; r = r->next)
        status = gv_range_set_add(set, r->base, r->base + r->bytes, NULL);
    pthread_mutex_unlock(&gv_the_canary.lock);
    gv_range_set_settle(set);
    return !status;
}

// ---- Regions -----------------------------------------------------------------------------------------------------
// From here on `lock` is held by whoever calls a static function, unless it says otherwise.

gv_watched *gv_canary_find(uint64_t id)
{
    for (gv_watched *r = gv_the_canary.regions; r; r = r->next)
        if (r->id == id)
            return r;
    return NULL;
}

gv_watched_group *gv_canary_group_of(uint64_t number)
{
    for (size_t i = 0; i < gv_the_canary.group_count; i++)
        if (gv_the_canary.groups[i].number == number)
            return &gv_the_canary.groups[i];
    if (!GV_GROW(gv_the_canary.groups, gv_the_canary.group_capacity, gv_the_canary.group_count + 1))
        return NULL;
    gv_the_canary.groups[gv_the_canary.group_count] = (gv_watched_group){.number = number};
    return &gv_the_canary.groups[gv_the_canary.group_count++];
}

static void interval_free(gv_watched_steps *i)
{
    gv_page_set_free(&i->allowed);
    gv_page_set_free(&i->exempt);
    gv_free(i->anew);
}

static void region_free(gv_watched *r)
{
    interval_free(&r->now);
    interval_free(&r->hashing);
    gv_page_set_free(&r->changed);
    gv_free(r->tensors);
    gv_free(r->reading);
    gv_free(r);
}

static gv_text text_of(const char *text)
{
    return (gv_text){text, strlen(text)};
}

static uint64_t string_id(const char *text)
{
    return gv_stacks_string(gv_state.stacks, text, strlen(text));
}

// Writes the region's record, before the first one that names it: its group is known by then.
void gv_canary_announce(gv_watched *r)
{
    if (r->announced)
        return;
    r->announced = true;
    gv_region_record record = {.id = r->id,
                               .name = text_of(r->name),
                               .address = r->base,
                               .size = r->bytes,
                               .page_bytes = r->page_bytes,
                               .group = r->group,
                               .flags = r->flags,
                               .stack = r->stack,
                               .operation = r->declared_at};
    gv_write_region(gv_state.writer, &record);
}

// Takes the region out of everything. `forget`: its memory on the device is gone, or still in use.
void gv_canary_end_region(gv_watched *r, enum gv_region_end_reason why, bool forget)
{
    const gv_watched_group *g = gv_canary_group_of(r->group);
    gv_region_end_record record = {
        .region = r->id, .operation = gv_last_operation(), .why = why, .step = g ? g->steps : 0};
    gv_canary_announce(r);
    gv_write_region_end(gv_state.writer, &record);
    for (gv_watched **link = &gv_the_canary.regions; *link; link = &(*link)->next)
        if (*link == r) {
            *link = r->next;
            break;
        }
    for (gv_watched_transfer **link = &gv_the_canary.transfers; *link;) {
        gv_watched_transfer *t = *link;
        if (t->region != r->id) {
            link = &t->next;
            continue;
        }
        *link = t->next;
        gv_page_set_free(&t->pages);
        gv_free(t);
    }
    gv_watched_ended *ended = forget || !r->hashed ? NULL : gv_calloc(1, sizeof *ended);
    if (ended) {
        *ended = (gv_watched_ended){gv_the_canary.ended, r->context, r->hashed};
        gv_the_canary.ended = ended;
    } else {
        gv_hashed_forget(r->hashed);
    }
    region_free(r);
    atomic_store(&gv_the_canary.any_region, gv_the_canary.regions != NULL);
}

void gv_canary_free_ended(void)
{
    pthread_mutex_lock(&gv_the_canary.lock);
    gv_watched_ended *ended = gv_the_canary.ended;
    gv_the_canary.ended = NULL;
    pthread_mutex_unlock(&gv_the_canary.lock);
    for (gv_watched_ended *next; ended; ended = next) {
        CUcontext popped = NULL;
        next = ended->next;
        gv_cuda.cuCtxPushCurrent(ended->context);
        gv_hashed_close(ended->hashed);
        gv_cuda.cuCtxPopCurrent(&popped);
        gv_free(ended);
    }
}

void gv_canary_break(gv_watched *r, const char *why)
{
    gv_note(GV_NOTE_INCOMPLETE, 0, 0, "the region \"%s\" is not watched any more: %s", r->name, why);
    // A hash may still be under way: its memory is left.
    gv_canary_end_region(r, GV_REGION_BROKEN, true);
}

static uint64_t add_region(const char *name, uint64_t base, uint64_t bytes, uint64_t page_bytes, unsigned flags)
{
    gv_watched *r = gv_calloc(1, sizeof *r);
    uint64_t pages = gv_hash_pages(bytes, page_bytes);
    if (!r || !gv_page_set_open(&r->now.allowed, pages) || !gv_page_set_open(&r->now.exempt, pages) ||
        !gv_page_set_open(&r->hashing.allowed, pages) || !gv_page_set_open(&r->hashing.exempt, pages) ||
        !gv_page_set_open(&r->changed, pages)) {
        if (r)
            region_free(r);
        gv_note_once(GV_NOTE_INCOMPLETE, "canary memory", "a region is not watched: memory ran out");
        return 0;
    }
    r->id = ++gv_the_canary.last_region;
    r->base = base;
    r->bytes = bytes;
    r->page_bytes = page_bytes;
    r->pages = pages;
    r->flags = flags;
    snprintf(r->name, sizeof r->name, "%s", name);
    gv_cuda.cuCtxGetCurrent(&r->context);
    gv_cuda.cuCtxGetDevice(&r->device);
    // In the order of their declaration, which is the order of reports.
    gv_watched **link = &gv_the_canary.regions;
    while (*link)
        link = &(*link)->next;
    *link = r;
    atomic_store(&gv_the_canary.any_region, true);
    const gv_watched_group *g = gv_canary_group_of(0);
    r->now.first = g ? g->steps + 1 : 1;
    r->now.since = r->declared_at = gv_last_operation();
    r->stack = gv_stack();
    return r->id;
}

// Why memory cannot be a region, or NULL.
static const char *refusal(uint64_t base, uint64_t bytes, uint64_t page_bytes)
{
    uint64_t oldest, newest;
    unsigned type = 0;
    if (!bytes || bytes > UINT64_MAX - base)
        return "it has no bytes, or reaches past the end of the address space";
    if (page_bytes > bytes)
        return "its pages are larger than the whole of it";
    if (gv_hash_pages(bytes, page_bytes) > GV_HASH_MOST_PAGES ||
        gv_hash_chunks(bytes, page_bytes) > GV_HASH_MOST_CHUNKS)
        return "it has more pages than can be hashed; declare larger pages";
    if (!gv_is_live(base, bytes, &oldest, &newest))
        return "no allocated memory holds all of it";
    if (gv_cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base) != CUDA_SUCCESS ||
        type != CU_MEMORYTYPE_DEVICE)
        return "it is not device memory";
    return NULL;
}

uint64_t gv_canary_region(const char *name, uint64_t base, uint64_t bytes, uint64_t page_bytes, unsigned what)
{
    unsigned flags = 0;
    if (!gv_the_canary.options.on || gv_the_canary.failed)
        return 0;
    if (what & GRAVEL_REGION_CANARY_ && gv_the_canary.options.canary)
        flags |= GV_REGION_CANARY;
    if (what & GRAVEL_REGION_CHECKSUM_ && gv_the_canary.options.checksums)
        flags |= GV_REGION_CHECKSUM;
    if (!flags)
        return 0;
    if (!name || !*name)
        name = "unnamed";
    if (!page_bytes)
        page_bytes = bytes < DEFAULT_PAGE ? (bytes ? bytes : 1) : DEFAULT_PAGE;
    const char *why = refusal(base, bytes, page_bytes);
    if (why) {
        char key[64];
        snprintf(key, sizeof key, "region %.50s", name);
        gv_note_once(GV_NOTE_INCOMPLETE, key,
                     "the region \"%.64s\" (%llu bytes at 0x%llx, in pages of %llu) is not watched: %s", name,
                     (unsigned long long)bytes, (unsigned long long)base, (unsigned long long)page_bytes, why);
        return 0;
    }
    pthread_mutex_lock(&gv_the_canary.lock);
    uint64_t id = add_region(name, base, bytes, page_bytes, flags);
    pthread_mutex_unlock(&gv_the_canary.lock);
    return id;
}

// ---- Ends --------------------------------------------------------------------------------------------------------

void gv_canary_region_end(uint64_t id)
{
    pthread_mutex_lock(&gv_the_canary.lock);
    gv_watched *r = gv_canary_find(id);
    gv_watched_selector of_region =
        r ? (gv_watched_selector){.start = r->base, .end = r->base + r->bytes} : (gv_watched_selector){0};
    pthread_mutex_unlock(&gv_the_canary.lock);
    if (!r)
        return;
    gv_canary_settle_all(&of_region, gv_state.options.stall_seconds);
    pthread_mutex_lock(&gv_the_canary.lock);
    r = gv_canary_find(id);
    if (r && r->pending)
        gv_canary_break(r, "it was ended before its last hash had come to its end");
    else if (r)
        gv_canary_end_region(r, GV_REGION_ENDED, false);
    pthread_mutex_unlock(&gv_the_canary.lock);
    gv_canary_free_ended();
}

static bool has_tensor(const gv_watched_tensor *tensors, size_t count, const gv_watched_selector *freed)
{
    for (size_t i = 0; i < count; i++)
        if (tensors[i].address < freed->end &&
            freed->start < tensors[i].address + tensors[i].count * tensors[i].index_bytes)
            return true;
    return false;
}

void gv_canary_freeing(uint64_t address, uint64_t size)
{
    gv_watched_selector freed = {.start = address, .end = address + size};
    if (!size || !atomic_load_explicit(&gv_the_canary.any_region, memory_order_relaxed))
        return;
    bool any = false, read = false;
    pthread_mutex_lock(&gv_the_canary.lock);
    for (gv_watched *r = gv_the_canary.regions; r; r = r->next) {
        any |= gv_canary_selected(r, &freed);
        if (has_tensor(r->tensors, r->tensor_count, &freed)) {
            // It cannot be read any more, and what it would have allowed is not known.
            r->tensor_count = 0;
            r->now.unknown = true;
        }
        read |= r->pending && has_tensor(r->reading, r->reading_count, &freed);
    }
    pthread_mutex_unlock(&gv_the_canary.lock);
    // Memory that a kernel of ours still reads may not go: that would be the end of the program's context.
    if (read)
        gv_canary_settle();
    if (!any)
        return;
    gv_canary_settle_all(&freed, gv_state.options.stall_seconds);
    pthread_mutex_lock(&gv_the_canary.lock);
    for (gv_watched *r = gv_the_canary.regions, *next; r; r = next) {
        next = r->next;
        if (!gv_canary_selected(r, &freed))
            continue;
        gv_note(GV_NOTE_INFO, 0, 0, "the region \"%s\" ends: its memory is freed", r->name);
        gv_canary_end_region(r, GV_REGION_FREED, r->pending);
    }
    pthread_mutex_unlock(&gv_the_canary.lock);
    gv_canary_free_ended();
}

void gv_canary_settle(void)
{
    gv_watched_selector all = {.start = 0, .end = UINT64_MAX};
    gv_canary_settle_all(&all, gv_state.options.stall_seconds);
}

void gv_canary_synchronized(void)
{
    const gv_watched_selector all = {.start = 0, .end = UINT64_MAX};
    // To ask for an event spoils the captures of other threads.
    if (gv_the_canary.options.on && !gv_captures_active())
        gv_canary_settle_all(&all, 0);
}

// Ends what is in a context (NULL: in any one) of a device (negative: of any).
static void contexts_end(CUcontext ending, int device)
{
    gv_canary_settle();
    pthread_mutex_lock(&gv_the_canary.lock);
    for (gv_watched *r = gv_the_canary.regions, *next; r; r = next) {
        next = r->next;
        if ((!ending || r->context == ending) && (device < 0 || r->device == device))
            gv_canary_end_region(r, GV_REGION_FREED, r->pending);
    }
    // The modules go with their contexts.
    for (size_t i = gv_the_canary.context_count; i--;)
        if ((!ending || gv_the_canary.contexts[i].context == ending) &&
            (device < 0 || gv_the_canary.contexts[i].device == device))
            gv_the_canary.contexts[i] = gv_the_canary.contexts[--gv_the_canary.context_count];
    pthread_mutex_unlock(&gv_the_canary.lock);
    gv_canary_free_ended();
}

void gv_canary_context_ends(CUcontext ending)
{
    if (ending)
        contexts_end(ending, -1);
}

void gv_canary_device_resets(CUdevice device)
{
    if (device >= 0)
        contexts_end(NULL, device);
}

void gv_canary_finish(void)
{
    // No waiting, and nothing that touches the device: the driver may be gone, and says so when it is asked.
    if (!gv_the_canary.options.on || pthread_mutex_trylock(&gv_the_canary.lock) != 0)
        return;
    gv_the_canary.options.aborts = false;
    for (gv_watched *r = gv_the_canary.regions, *next; r; r = next) {
        next = r->next;
        CUresult result = r->pending ? gv_hashed_poll(r->hashed) : CUDA_SUCCESS;
        if (r->pending && result == CUDA_SUCCESS)
            gv_canary_resolve(r);
        else if (r->pending) {
            gv_region_step_record record = {.region = r->id,
                                            .step = r->hashing.step,
                                            .first = r->hashing.first,
                                            .operation = r->hashing.operation,
                                            .since = r->hashing.since,
                                            .reason = string_id("the process ended before its hash")};
            gv_write_region_step(gv_state.writer, &record);
        }
    }
    pthread_mutex_unlock(&gv_the_canary.lock);
}

void gv_canary_after_fork(void)
{
    // The parent's regions and memory are not the child's. What is lost here is little, and the lock may be held.
    pthread_mutex_init(&gv_the_canary.lock, NULL);
    gv_the_canary.regions = NULL;
    gv_the_canary.transfers = NULL;
    gv_the_canary.group_count = gv_the_canary.context_count = 0;
    gv_the_canary.failed = false;
    gv_the_canary.options.on = false;
    atomic_store(&gv_the_canary.any_region, false);
    atomic_store(&gv_the_canary.any_matched, false);
    atomic_store(&gv_the_canary.steps_declared, false);
}

// ---- Patterns ----------------------------------------------------------------------------------------------------

void gv_canary_allocated(uint64_t address, uint64_t size, const char *name)
{
    const gv_pattern *pattern =
        gv_the_canary.options.pattern_count && !gv_the_canary.failed
            ? gv_pattern_find(gv_the_canary.options.patterns, gv_the_canary.options.pattern_count, size, name)
            : NULL;
    char text[GV_CANARY_NAME];
    if (!pattern)
        return;
    uint64_t page = pattern->page_bytes ? pattern->page_bytes : size < DEFAULT_PAGE ? size : DEFAULT_PAGE;
    if (page > size)
        page = size;
    if (refusal(address, size, page))
        return;
    unsigned flags = GV_REGION_MATCHED | GV_REGION_CANARY |
                     (gv_the_canary.options.checksums ? GV_REGION_CHECKSUM : 0u) |
                     (pattern->constant ? GV_REGION_CONSTANT : 0u);
    pthread_mutex_lock(&gv_the_canary.lock);
    snprintf(text, sizeof text, "%.60s #%llu", pattern->text, (unsigned long long)gv_the_canary.last_region + 1);
    if (add_region(text, address, size, page, flags))
        atomic_store(&gv_the_canary.any_matched, true);
    pthread_mutex_unlock(&gv_the_canary.lock);
}

void gv_canary_launched(CUstream stream)
{
    if (!atomic_load_explicit(&gv_the_canary.any_matched, memory_order_relaxed) ||
        atomic_load(&gv_the_canary.steps_declared))
        return;
    gv_canary_step_ends(0, stream);
}
