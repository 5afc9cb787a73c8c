// The end of a step: a hash goes into its stream, and what the one before found is written down.
#include "record/canary_core.h"

#include "base/clock.h"
#include "base/memory.h"
#include "record/arm.h"
#include "record/driver.h"
#include "record/eager.h"
#include "record/graph.h"
#include "record/ids.h"
#include "record/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LISTED_PAGES = 4096, // pages that a record names
    SAID_PAGES = 12,     // and a line on standard error
    SAID_HITS = 4,       // lines for one region
    MOST_ARMED = 8,      // how often a hit makes the next launches armed ones
};

static uint64_t string_id(const char *text)
{
    return gv_stacks_string(gv_state.stacks, text, strlen(text));
}

// ---- What a hash found -------------------------------------------------------------------------------------------

static int by_page(const void *a, const void *b)
{
    const gv_hash_entry *x = a, *y = b;
    return x->page < y->page ? -1 : x->page > y->page;
}

// Puts the changed pages and their hashes into the record; gv_free both. False when memory is out.
static bool list_hashes(const gv_hash_entry *entries, size_t count, gv_region_step_record *record)
{
    gv_hash_entry *sorted = gv_calloc(count + 1, sizeof *sorted);
    uint64_t *pages = gv_calloc(count + 1, sizeof *pages);
    uint8_t *hashes = gv_calloc(count + 1, 8);
    bool enough = sorted && pages && hashes;
    size_t kept = 0;
    if (enough) {
        memcpy(sorted, entries, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, by_page);
    }
    for (size_t i = 0; i < count && enough; i++) {
        if (!(sorted[i].flags & (GV_HASH_CHANGED | GV_HASH_FRESH)))
            continue;
        for (int byte = 0; byte < 8; byte++)
            hashes[8 * kept + (size_t)byte] = (uint8_t)(sorted[i].hash >> (8 * byte));
        pages[kept++] = sorted[i].page;
    }
    gv_free(sorted);
    if (!enough) {
        gv_free(pages);
        gv_free(hashes);
        return false;
    }
    record->hashed = (gv_numbers){pages, kept};
    record->hashes = (gv_bytes){hashes, 8 * kept};
    return true;
}

// The launches that come next are recorded, inside of graphs and outside.
static void record_next(void)
{
    gv_arm_next();
    gv_eager_watch();
}

// A page changed that was not allowed to.
static void hit(gv_watched *r, const gv_region_step_record *record)
{
    char pages[256] = "", steps[64], *at = pages;
    for (size_t i = 0; i < record->pages.count && i < SAID_PAGES; i++)
        at += snprintf(at, sizeof pages - (size_t)(at - pages), " %llu", (unsigned long long)record->pages.items[i]);
    if (record->first == record->step)
        snprintf(steps, sizeof steps, "step %llu", (unsigned long long)record->step);
    else
        snprintf(steps, sizeof steps, "steps %llu to %llu", (unsigned long long)record->first,
                 (unsigned long long)record->step);
    if (r->hits++ < SAID_HITS)
        gv_say("canary: %s, \"%s\": expected %llu page%s to change, found %llu; not allowed:%s%s%s", steps, r->name,
               (unsigned long long)(record->allowed + record->exempt), record->allowed + record->exempt == 1 ? "" : "s",
               (unsigned long long)record->changed, pages, record->outside > SAID_PAGES ? " ..." : "",
               r->hits == SAID_HITS ? " (more of it is in the trace only)" : "");
    // The next launches show which kernel writes there.
    if (gv_the_canary.armed_for_hits < MOST_ARMED && !gv_the_canary.options.aborts) {
        gv_the_canary.armed_for_hits++;
        record_next();
    }
    if (!gv_the_canary.options.aborts)
        return;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    gv_end_record end = {.time_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
                         .operations = gv_last_operation(),
                         .reason = 2};
    gv_write_end(gv_state.writer, &end);
    gv_flush();
    gv_say("--canary=abort ends the program here; the trace is complete");
    abort();
}

// The hash has come to its end.
void gv_canary_resolve(gv_watched *r)
{
    const gv_hash_entry *entries;
    const gv_hash_head *head = gv_hashed_take(r->hashed, &entries);
    gv_watched_steps *i = &r->hashing;
    uint64_t pages[LISTED_PAGES];
    gv_region_step_record record = {.region = r->id,
                                    .step = i->step,
                                    .first = i->first,
                                    .operation = i->operation,
                                    .since = i->since,
                                    .hash = head->total};
    size_t count = head->listed < r->pages ? head->listed : (size_t)r->pages, listed = 0;
    r->pending = false;
    r->reading_count = 0;
    gv_page_set_clear(&r->changed);
    for (size_t k = 0; k < count; k++) {
        if (entries[k].flags & GV_HASH_CHANGED)
            gv_page_set_add(&r->changed, entries[k].page);
        if (entries[k].flags & GV_HASH_MARKED)
            gv_page_set_add(&i->allowed, entries[k].page);
    }
    if (head->nonsense)
        gv_canary_nonsense(r, "slots of an index tensor", head->nonsense);
    bool known = r->flags & GV_REGION_CONSTANT || (r->flags & GV_REGION_CANARY && !i->unknown);
    record.state = r->first ? GV_REGION_FIRST : known ? GV_REGION_CHECKED : GV_REGION_UNKNOWN;
    record.allowed = i->allowed.count;
    record.exempt = gv_page_set_without(&i->exempt, &i->allowed);
    record.changed = r->first ? 0 : r->changed.count;
    if (record.state == GV_REGION_CHECKED)
        for (uint64_t page = 0; (page = gv_page_set_next_only(&r->changed, &i->allowed, &i->exempt, page)) < r->pages;
             page++) {
            if (listed < LISTED_PAGES)
                pages[listed++] = page;
            record.outside++;
        }
    record.pages = (gv_numbers){pages, listed};
    record.anew = record.outside ? (gv_numbers){i->anew, i->anew_count} : (gv_numbers){0};
    bool lost = r->flags & GV_REGION_CHECKSUM && !list_hashes(entries, count, &record);
    if (lost || gv_write_region_step(gv_state.writer, &record) == GV_ERR_LIMIT) {
        gv_note_once(
            GV_NOTE_INCOMPLETE, "canary hashes",
            "the hashes of \"%s\" are not in the trace: memory ran out, or they are more than a record may hold; "
            "declare larger pages",
            r->name);
        gv_numbers hashed = record.hashed;
        gv_bytes hashes = record.hashes;
        record.hashed = (gv_numbers){0};
        record.hashes = (gv_bytes){0};
        gv_write_region_step(gv_state.writer, &record);
        record.hashed = hashed;
        record.hashes = hashes;
    }
    gv_free((void *)record.hashed.items);
    gv_free((void *)record.hashes.data);
    if (record.outside)
        hit(r, &record);
}

// Looks at the hash that is under way. True: there is none any more.
static bool settle(gv_watched *r)
{
    if (!r->pending)
        return true;
    CUresult result = gv_hashed_poll(r->hashed);
    if (result == CUDA_ERROR_NOT_READY)
        return false;
    if (result == CUDA_SUCCESS)
        gv_canary_resolve(r);
    else
        gv_canary_break(r, gv_driver_error(result));
    return true;
}

bool gv_canary_selected(const gv_watched *r, const gv_watched_selector *s)
{
    return s->by_group ? r->group == s->group : r->base < s->end && s->start < r->base + r->bytes;
}

// Waits until no hash of these regions is under way. Called without the lock, so that what a hash waits for can happen.
void gv_canary_settle_all(const gv_watched_selector *s, double seconds)
{
    uint64_t deadline = gv_monotonic_ns() + (uint64_t)(seconds * 1e9);
    for (;;) {
        bool done = true;
        pthread_mutex_lock(&gv_the_canary.lock);
        for (gv_watched *r = gv_the_canary.regions, *next; r; r = next) {
            next = r->next;
            if (gv_canary_selected(r, s) && !settle(r))
                done = false;
        }
        pthread_mutex_unlock(&gv_the_canary.lock);
        if (done || gv_monotonic_ns() > deadline)
            return;
        struct timespec pause = {0, 20000};
        nanosleep(&pause, NULL);
    }
}

// ---- The end of a step -------------------------------------------------------------------------------------------

// The kernels of the current context, loaded and tested.
static gv_hasher *hasher_of(CUcontext current, CUdevice device, gv_error *error)
{
    for (size_t i = 0; i < gv_the_canary.context_count; i++)
        if (gv_the_canary.contexts[i].context == current)
            return gv_the_canary.contexts[i].hasher;
    gv_hasher *made = NULL;
    if (!GV_GROW(gv_the_canary.contexts, gv_the_canary.context_capacity, gv_the_canary.context_count + 1)) {
        gv_fail(error, GV_ERR_MEMORY, "memory ran out");
        return NULL;
    }
    gv_source_loading_own(true);
    gv_status status = gv_hasher_open(gv_state.soft, &made, error);
    gv_source_loading_own(false);
    if (status == GV_OK)
        status = gv_hasher_self_test(made, gv_the_canary.options.self_test_fails, error);
    if (status != GV_OK) {
        gv_hasher_close(made);
        return NULL;
    }
    gv_the_canary.contexts[gv_the_canary.context_count++] = (gv_watched_context){current, device, made};
    return made;
}

// Nothing is hashed any more, for a reason that every report gives.
static void give_up(const char *why)
{
    gv_the_canary.failed = true;
    gv_note(GV_NOTE_INCOMPLETE, 0, 0, "canaries and checksums are off: %s", why);
    while (gv_the_canary.regions)
        gv_canary_end_region(gv_the_canary.regions, GV_REGION_BROKEN, true);
}

// Writes that the steps were not hashed; their interval goes on.
static void write_unhashed(const gv_watched *r, const char *why)
{
    gv_region_step_record record = {.region = r->id,
                                    .step = r->now.step,
                                    .first = r->now.first,
                                    .operation = gv_last_operation(),
                                    .since = r->now.since,
                                    .state = GV_REGION_UNHASHED,
                                    .reason = string_id(why)};
    gv_write_region_step(gv_state.writer, &record);
}

// The region's hash of the steps up to now goes into the stream.
static gv_status enqueue(gv_watched *r, CUstream stream, gv_error *error)
{
    gv_status status = GV_OK;
    r->first = !r->hashed;
    if (!r->hashed) {
        gv_hasher *hasher = hasher_of(r->context, r->device, error);
        if (!hasher)
            return error->status;
        status = gv_hashed_open(hasher, r->base, r->bytes, r->page_bytes, stream, &r->hashed, error);
    }
    if (status == GV_OK)
        status = gv_hashed_enqueue(r->hashed, stream, error);
    if (status != GV_OK)
        return status;
    r->pending = true;
    r->now.operation = gv_last_operation();
    gv_watched_steps done = r->now;
    r->now = r->hashing;
    r->hashing = done;
    gv_page_set_clear(&r->now.allowed);
    gv_page_set_clear(&r->now.exempt);
    r->now.anew_count = 0;
    r->now.first = done.step + 1;
    r->now.since = done.operation;
    r->now.unknown = false;
    for (const gv_watched_transfer *t = gv_the_canary.transfers; t; t = t->next)
        if (t->region == r->id)
            gv_page_set_add_set(&r->now.exempt, &t->pages);
    return GV_OK;
}

// Index tensors are read now, whether the step is hashed or not: their memory is the next step's.
static gv_status read_tensors(gv_watched *r, CUstream stream, gv_error *error)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < r->tensor_count && status == GV_OK; i++) {
        const gv_watched_tensor *t = &r->tensors[i];
        // Kept until the hash has come to its end, lest the tensor be freed while it is read.
        if (r->hashed && !GV_GROW(r->reading, r->reading_capacity, r->reading_count + 1))
            status = gv_fail(error, GV_ERR_MEMORY, "memory ran out");
        else if (r->hashed)
            r->reading[r->reading_count++] = *t;
        if (r->hashed && status == GV_OK)
            status = gv_hashed_mark(r->hashed, stream, t->address, t->count, t->index_bytes, t->slots_per_page, error);
    }
    r->tensor_count = 0;
    return status;
}

static void end_step(gv_watched *r, uint64_t step, CUstream stream, CUcontext current, bool capturing)
{
    gv_error error = {0};
    gv_canary_announce(r);
    r->now.step = step;
    if (!r->declared)
        r->now.unknown = true;
    bool unread = r->tensor_count && (capturing || r->context != current);
    if (unread) {
        r->tensor_count = 0;
        r->now.unknown = true;
    }
    if (r->context != current) {
        gv_note_once(GV_NOTE_INCOMPLETE, "canary context",
                     "a step ended on a stream of another context than that of \"%s\", which was not hashed", r->name);
        write_unhashed(r, "the step ended on a stream of another context");
        return;
    }
    if (capturing) {
        write_unhashed(r, "a capture was under way");
        return;
    }
    gv_status status = read_tensors(r, stream, &error);
    if (status == GV_OK && step % gv_the_canary.options.every && r->hashed)
        return; // not one to be hashed
    if (status == GV_OK && r->pending) {
        write_unhashed(r, "the hash before had not come to its end");
        return;
    }
    if (status == GV_OK)
        status = enqueue(r, stream, &error);
    if (status == GV_OK)
        return;
    if (!r->hashed && !gv_the_canary.context_count)
        give_up(error.text);
    else
        gv_canary_break(r, error.text);
}

void gv_canary_step_ends(uint64_t number, CUstream stream)
{
    static atomic_bool impatient; // a hash did not come to its end: it is not waited for again
    gv_watched_selector of_group = {.by_group = true, .group = number};
    CUcontext current = NULL, popped = NULL;
    if (!gv_the_canary.options.on || gv_the_canary.failed)
        return;
    gv_canary_settle_all(&of_group, atomic_load(&impatient) ? 0 : gv_state.options.stall_seconds);
    CUstream real = stream ? stream : CU_STREAM_LEGACY;
    if (gv_cuda.cuStreamGetCtx(real, &current) != CUDA_SUCCESS || !current)
        gv_cuda.cuCtxGetCurrent(&current);
    if (!current || gv_cuda.cuCtxPushCurrent(current) != CUDA_SUCCESS)
        return;
    // While another thread's launch is armed its context has to be idle.
    gv_gate_enter();
    pthread_mutex_lock(&gv_the_canary.lock);
    // Any capture may forbid what setting up a region takes, and one in this stream would record the hash.
    bool capturing = gv_captures_active() || gv_stream_is_capturing(stream, false), stuck = false;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    gv_cuda.cuThreadExchangeStreamCaptureMode(&mode);
    gv_watched_group *g = gv_canary_group_of(number);
    uint64_t step = g ? ++g->steps : 0;
    for (gv_watched *r = gv_the_canary.regions, *next; r && g && !gv_the_canary.failed; r = next) {
        next = r->next;
        stuck |= r->group == number && r->pending;
        if (r->group == number)
            end_step(r, step, real, current, capturing);
    }
    gv_cuda.cuThreadExchangeStreamCaptureMode(&mode);
    pthread_mutex_unlock(&gv_the_canary.lock);
    gv_gate_leave();
    gv_cuda.cuCtxPopCurrent(&popped);
    atomic_store(&impatient, stuck);
    gv_eager_step();
    if (gv_the_canary.options.records && gv_the_canary.armed_for_hits)
        record_next();
    if (gv_the_canary.options.aborts)
        gv_canary_settle_all(&of_group, 60);
}

void gv_canary_step(uint64_t number, CUstream stream)
{
    atomic_store(&gv_the_canary.steps_declared, true);
    gv_canary_step_ends(number, stream);
}
