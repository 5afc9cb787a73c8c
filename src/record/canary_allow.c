// What a step may change, as the program declares it, and transfers, whose pages no step is asked about.
#include "record/canary_core.h"

#include "base/memory.h"
#include "record/arm.h"
#include "record/driver.h"
#include "record/graph.h"
#include "record/ids.h"

#include <stdio.h>

// For pages that are hashed anew, which takes microseconds unless the device is full of other work: 50 ms, unless the
// user says that everything is slow here.
static double anew_seconds(void)
{
    return gv_state.options.stall_seconds / 200;
}

// ---- What a step may do ------------------------------------------------------------------------------------------

void gv_canary_nonsense(gv_watched *r, const char *what, uint64_t how_many)
{
    char text[256];
    if (r->nonsense_said)
        return;
    r->nonsense_said = true;
    if (how_many)
        snprintf(text, sizeof text, "%llu of the %s declared for \"%s\" are beyond its last page, %llu; ignored",
                 (unsigned long long)how_many, what, r->name, (unsigned long long)r->pages - 1);
    else
        snprintf(text, sizeof text, "what is declared as allowed in \"%s\" is ignored: %s", r->name, what);
    gv_note(GV_NOTE_INFO, 0, 0, "%s", text);
    if (!gv_state.options.verbose)
        gv_say("%s", text);
}

void gv_canary_allow_slots(uint64_t id, const int64_t *slots, size_t count, uint64_t slots_per_page)
{
    pthread_mutex_lock(&gv_the_canary.lock);
    gv_watched *r = gv_canary_find(id);
    if (r && (!slots_per_page || (!slots && count))) {
        gv_canary_nonsense(r, "there are no slots, or none on a page", 0);
    } else if (r) {
        r->declared = true;
        size_t beyond = gv_page_set_add_slots(&r->now.allowed, slots, count, slots_per_page);
        if (beyond)
            gv_canary_nonsense(r, "slots", beyond);
    }
    pthread_mutex_unlock(&gv_the_canary.lock);
}

void gv_canary_allow_index(uint64_t id, uint64_t address, size_t count, unsigned index_bytes, uint64_t slots_per_page)
{
    uint64_t oldest, newest;
    const char *why = NULL;
    if (!slots_per_page || (index_bytes != 4 && index_bytes != 8))
        why = "an index tensor has numbers of 4 or 8 bytes, and some slots lie on a page";
    else if (count > UINT32_MAX || address % index_bytes ||
             (count && !gv_is_live(address, count * index_bytes, &oldest, &newest)))
        why = "no allocated memory holds its index tensor, or that is not aligned";
    pthread_mutex_lock(&gv_the_canary.lock);
    gv_watched *r = gv_canary_find(id);
    if (r && !why && !GV_GROW(r->tensors, r->tensor_capacity, r->tensor_count + 1))
        why = "memory ran out";
    if (r && why) {
        // What it would have allowed is not known: nothing that the step does is reported.
        r->now.unknown = true;
        gv_canary_nonsense(r, why, 0);
    } else if (r) {
        r->declared = true;
        r->tensors[r->tensor_count++] = (gv_watched_tensor){address, count, slots_per_page, index_bytes};
    }
    pthread_mutex_unlock(&gv_the_canary.lock);
}

void gv_canary_allow_callback(uint64_t id, gravel_allow_function *function, void *user)
{
    pthread_mutex_lock(&gv_the_canary.lock);
    gv_watched *r = gv_canary_find(id);
    if (r) {
        r->callback = function;
        r->user = user;
    }
    pthread_mutex_unlock(&gv_the_canary.lock);
}

void gv_canary_allow_all(uint64_t id)
{
    pthread_mutex_lock(&gv_the_canary.lock);
    gv_watched *r = gv_canary_find(id);
    if (r) {
        r->declared = true;
        gv_page_set_add_all(&r->now.allowed);
    }
    pthread_mutex_unlock(&gv_the_canary.lock);
}

void gv_canary_group(uint64_t id, uint64_t number)
{
    pthread_mutex_lock(&gv_the_canary.lock);
    gv_watched *r = gv_canary_find(id);
    if (r && !r->hashed) {
        r->group = number;
        const gv_watched_group *g = gv_canary_group_of(number);
        r->now.first = g ? g->steps + 1 : 1;
    }
    pthread_mutex_unlock(&gv_the_canary.lock);
}

// One callback, with as much room as it asks for.
static void ask(uint64_t id, gravel_allow_function *function, void *user, uint64_t step)
{
    int64_t few[256], *pages = few;
    size_t capacity = sizeof few / sizeof *few, count = function(user, step, pages, capacity);
    if (count > capacity) {
        pages = count < SIZE_MAX / sizeof *pages ? gv_calloc(count, sizeof *pages) : NULL;
        capacity = pages ? count : 0;
        count = pages ? function(user, step, pages, capacity) : 0;
    }
    if (!pages || count > capacity)
        gv_canary_allow_all(id); // it cannot be asked: nothing that the step does is reported
    else
        gv_canary_allow_slots(id, pages, count, 1);
    if (pages != few)
        gv_free(pages);
}

void gv_canary_ask(uint64_t number)
{
    uint64_t last = 0;
    for (;;) {
        pthread_mutex_lock(&gv_the_canary.lock);
        gv_watched *r = gv_the_canary.regions;
        while (r && (r->id <= last || r->group != number || !r->callback))
            r = r->next;
        gravel_allow_function *function = r ? r->callback : NULL;
        void *user = r ? r->user : NULL;
        const gv_watched_group *g = gv_canary_group_of(number);
        uint64_t step = g ? g->steps + 1 : 0;
        last = r ? r->id : 0;
        pthread_mutex_unlock(&gv_the_canary.lock);
        if (!function)
            return;
        ask(last, function, user, step);
    }
}

// ---- Transfers ---------------------------------------------------------------------------------------------------

uint64_t gv_canary_transfer_begin(uint64_t id, const int64_t *pages, size_t count)
{
    uint64_t made = 0;
    pthread_mutex_lock(&gv_the_canary.lock);
    gv_watched *r = gv_canary_find(id);
    gv_watched_selector whole =
        r ? (gv_watched_selector){.start = r->base, .end = r->base + r->bytes} : (gv_watched_selector){0};
    pthread_mutex_unlock(&gv_the_canary.lock);
    // A hash that is under way mostly ends at once, and then sees nothing of the transfer. It is not waited for in
    // earnest: the step it stands behind may wait for this transfer.
    if (r)
        gv_canary_settle_all(&whole, anew_seconds() / 5);
    pthread_mutex_lock(&gv_the_canary.lock);
    r = gv_canary_find(id);
    gv_watched_transfer *t = r ? gv_calloc(1, sizeof *t) : NULL;
    if (t && gv_page_set_open(&t->pages, r->pages)) {
        size_t beyond = 0;
        if (pages)
            beyond = gv_page_set_add_slots(&t->pages, pages, count, 1);
        else
            gv_page_set_add_all(&t->pages);
        if (beyond)
            gv_canary_nonsense(r, "pages of a transfer", beyond);
        t->id = made = ++gv_the_canary.last_transfer;
        t->region = id;
        t->next = gv_the_canary.transfers;
        gv_the_canary.transfers = t;
        gv_page_set_add_set(&r->now.exempt, &t->pages);
        // A hash that is still under way may see what the transfer writes.
        if (r->pending && gv_hashed_poll(r->hashed) != CUDA_SUCCESS)
            gv_page_set_add_set(&r->hashing.exempt, &t->pages);
    } else if (r) {
        gv_free(t);
        r->now.unknown = true;
        gv_page_set_add_all(&r->now.exempt);
    }
    pthread_mutex_unlock(&gv_the_canary.lock);
    return made;
}

// The pages are what the transfer has made of them: from here on they are watched again. Where they cannot be hashed
// now they stay exempt until the next hash.
static void watch_again(gv_watched *r, const gv_watched_transfer *t)
{
    CUcontext popped = NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    gv_error error = {0};
    uint32_t count = 0,
             *pages = r->hashed && !gv_captures_active() ? gv_calloc(t->pages.count + 1, sizeof *pages) : NULL;
    if (!pages)
        return;
    const gv_page_set none = r->changed; // scratch, and empty here
    gv_page_set_clear(&r->changed);
    for (uint64_t page = 0; (page = gv_page_set_next_only(&t->pages, &none, &none, page)) < r->pages; page++) {
        bool others = false;
        for (const gv_watched_transfer *other = gv_the_canary.transfers; other && !others; other = other->next)
            others = other->region == r->id && gv_page_set_has(&other->pages, page);
        if (!others)
            pages[count++] = (uint32_t)page;
    }
    gv_cuda.cuCtxPushCurrent(r->context);
    gv_cuda.cuThreadExchangeStreamCaptureMode(&mode);
    gv_status status = count ? gv_hashed_anew(r->hashed, pages, count, anew_seconds(), &error) : GV_OK;
    gv_cuda.cuThreadExchangeStreamCaptureMode(&mode);
    gv_cuda.cuCtxPopCurrent(&popped);
    gv_watched_steps *now = &r->now;
    if (count && status == GV_OK && !GV_GROW(now->anew, now->anew_capacity, now->anew_count + 2 * (size_t)count))
        status = gv_fail(&error, GV_ERR_MEMORY, "memory ran out");
    for (uint32_t i = 0; i < count && status == GV_OK; i++) {
        gv_page_set_remove(&now->exempt, pages[i]);
        now->anew[now->anew_count++] = pages[i];
        now->anew[now->anew_count++] = gv_last_operation();
    }
    gv_free(pages);
    if (status != GV_OK)
        gv_canary_break(r, error.text);
}

void gv_canary_transfer_end(uint64_t id)
{
    gv_gate_enter();
    pthread_mutex_lock(&gv_the_canary.lock);
    for (gv_watched_transfer **link = &gv_the_canary.transfers; *link; link = &(*link)->next) {
        gv_watched_transfer *t = *link;
        if (t->id != id)
            continue;
        *link = t->next;
        gv_watched *r = gv_canary_find(t->region);
        if (r)
            watch_again(r, t);
        gv_page_set_free(&t->pages);
        gv_free(t);
        break;
    }
    pthread_mutex_unlock(&gv_the_canary.lock);
    gv_gate_leave();
}
