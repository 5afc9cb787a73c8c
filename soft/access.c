// Recording of kernel accesses: a sparse directory of 4 KiB pages with three bits a byte, filled by any number of
// workers without a lock.
#include "soft/access.h"

#include "soft/arena.h"
#include "soft/conditional.h"
#include "soft/driver.h"
#include "soft/gravel_soft.h"
#include "soft/module.h"
#include "soft/schedule.h"

#include <stdatomic.h>

enum {
    PAGE_BITS = 12,
    PAGE_BYTES = 1 << PAGE_BITS,
    PAGE_WORDS = PAGE_BYTES / 64,
    KINDS = 3,
    // 47 address bits: 12 in the page, then three levels.
    LEAF_BITS = 12,
    MIDDLE_BITS = 12,
    ROOT_BITS = 47 - PAGE_BITS - LEAF_BITS - MIDDLE_BITS,
    MAX_PAGES = 1 << 20, // 4 GiB of touched memory: 1.5 GiB of bits
};

typedef _Atomic(uint64_t) page_word;
struct leaf {
    _Atomic(page_word *) pages[1 << LEAF_BITS]; // each KINDS * PAGE_WORDS words
};
struct middle {
    _Atomic(struct leaf *) leaves[1 << MIDDLE_BITS];
};

struct directory {
    _Atomic(struct middle *) root[1 << ROOT_BITS];
};

enum { DIRECTORY_ALL, DIRECTORY_EARLY, DIRECTORIES };

struct recording {
    atomic_uint references; // the recording thread's one, and one for each task under way
    atomic_uint pages;
    atomic_uint grid; // enum gravel_soft_grid
    atomic_bool incomplete;
    bool early; // what comes before grid-dependency waits is wanted too
    struct directory directories[DIRECTORIES];
};

static _Thread_local struct recording *current;
int access_observed;

void access_observe(int change)
{
    __atomic_add_fetch(&access_observed, change, __ATOMIC_SEQ_CST);
}

// ---- Ranges outside the arena: a sorted array that is replaced as a whole, so that readers need no lock ----

struct ranges {
    struct ranges *older; // superseded arrays are kept: a reader may still hold one, and there are few
    size_t count;
    struct {
        uint64_t start, end;
    } items[];
};
static _Atomic(struct ranges *) other_ranges;

static struct ranges *ranges_new(size_t count)
{
    struct ranges *fresh = gv_malloc(sizeof *fresh + count * sizeof fresh->items[0]);
    if (fresh) {
        fresh->older = atomic_load(&other_ranges);
        fresh->count = count;
    }
    return fresh;
}

bool access_add_range(uint64_t start, uint64_t end)
{
    struct ranges *old = atomic_load(&other_ranges);
    size_t count = old ? old->count : 0, at = 0;
    struct ranges *fresh = ranges_new(count + 1);
    if (!fresh)
        return false;
    while (at < count && old->items[at].start < start)
        at++;
    if (count) {
        memcpy(fresh->items, old->items, at * sizeof old->items[0]);
        memcpy(fresh->items + at + 1, old->items + at, (count - at) * sizeof old->items[0]);
    }
    fresh->items[at].start = start;
    fresh->items[at].end = end;
    atomic_store(&other_ranges, fresh);
    return true;
}

void access_remove_range(uint64_t start, uint64_t end)
{
    struct ranges *old = atomic_load(&other_ranges);
    for (size_t i = 0; old && i < old->count; i++) {
        if (old->items[i].start != start || old->items[i].end != end)
            continue;
        struct ranges *fresh = ranges_new(old->count - 1);
        if (!fresh)
            return; // a range too many records accesses that concern nobody: harmless
        memcpy(fresh->items, old->items, i * sizeof old->items[0]);
        memcpy(fresh->items + i, old->items + i + 1, (old->count - i - 1) * sizeof old->items[0]);
        atomic_store(&other_ranges, fresh);
        return;
    }
}

// ---- The directory ----

// Each level is made by whoever needs it first; a loser of the race frees his.
#define DIRECTORY_STEP(slot, type, bytes)                                         \
    ({                                                                            \
        type *found_ = atomic_load_explicit(&(slot), memory_order_acquire);       \
        if (!found_) {                                                            \
            type *made_ = gv_calloc(1, (bytes));                                  \
            if (made_ && atomic_compare_exchange_strong(&(slot), &found_, made_)) \
                found_ = made_;                                                   \
            else                                                                  \
                gv_free(made_);                                                   \
        }                                                                         \
        found_;                                                                   \
    })

static page_word *page_bits(struct recording *recording, int directory, uint64_t page)
{
    _Atomic(struct middle *) *root = recording->directories[directory].root;
    struct middle *middle =
        DIRECTORY_STEP(root[page >> (LEAF_BITS + MIDDLE_BITS)], struct middle, sizeof(struct middle));
    if (!middle)
        return NULL;
    struct leaf *leaf =
        DIRECTORY_STEP(middle->leaves[page >> LEAF_BITS & ((1 << MIDDLE_BITS) - 1)], struct leaf, sizeof(struct leaf));
    if (!leaf)
        return NULL;
    _Atomic(page_word *) *slot = &leaf->pages[page & ((1 << LEAF_BITS) - 1)];
    page_word *bits = atomic_load_explicit(slot, memory_order_acquire);
    if (bits)
        return bits;
    if (atomic_fetch_add(&recording->pages, 1) >= MAX_PAGES)
        return NULL;
    return DIRECTORY_STEP(*slot, page_word, sizeof(page_word) * KINDS * PAGE_WORDS);
}

static void record_in(struct observer *observer, int directory, uint64_t start, uint64_t end,
                      enum gravel_soft_touch touch)
{
    uint64_t *last_page = &observer->cache[directory].last_page, **last_bits = &observer->cache[directory].last_bits;
    while (start < end) {
        uint64_t page = start >> PAGE_BITS, page_end = (page + 1) << PAGE_BITS;
        uint64_t stop = end < page_end ? end : page_end;
        if (page != *last_page || !*last_bits) {
            page_word *found = page >> (47 - PAGE_BITS) ? NULL : page_bits(observer->recording, directory, page);
            if (!found) {
                atomic_store(&observer->recording->incomplete, true);
                return;
            }
            *last_page = page;
            *last_bits = (uint64_t *)found;
        }
        page_word *words = (page_word *)*last_bits + (size_t)touch * PAGE_WORDS;
        for (uint64_t at = start & (PAGE_BYTES - 1), left = stop - start; left;) {
            unsigned bit = at & 63, run = 64 - bit;
            if (run > left)
                run = (unsigned)left;
            uint64_t mask = (run == 64 ? ~UINT64_C(0) : (UINT64_C(1) << run) - 1) << bit;
            // A byte touched before costs a load and no locked instruction.
            if ((atomic_load_explicit(&words[at / 64], memory_order_relaxed) & mask) != mask)
                atomic_fetch_or_explicit(&words[at / 64], mask, memory_order_relaxed);
            at += run;
            left -= run;
        }
        start = stop;
    }
}

static void record_range(struct observer *observer, uint64_t start, uint64_t end, enum gravel_soft_touch touch)
{
    record_in(observer, DIRECTORY_ALL, start, end, touch);
    if (observer->early && observer->recording->early)
        record_in(observer, DIRECTORY_EARLY, start, end, touch);
}

void access_hook(void *user, uint64_t address, uint64_t size, enum gravel_soft_touch touch)
{
    struct observer *observer = user;
    uint64_t end = address + size;
    bool ours = false;
    if (arena_contains(address)) {
        ours = true;
        if (observer->recording)
            record_range(observer, address, end, touch);
    } else {
        // An access can straddle the edge of registered memory: only the bytes inside count.
        struct ranges *ranges = atomic_load_explicit(&other_ranges, memory_order_acquire);
        for (size_t i = 0; ranges && i < ranges->count; i++) {
            uint64_t from = address > ranges->items[i].start ? address : ranges->items[i].start;
            uint64_t to = end < ranges->items[i].end ? end : ranges->items[i].end;
            if (from >= to)
                continue;
            ours = true;
            if (observer->recording)
                record_range(observer, from, to, touch);
        }
    }
    if (ours && observer->task)
        schedule_access(observer);
}

// ---- The interface of gravel_soft.h ----

static void directory_free(struct directory *directory)
{
    for (size_t i = 0; i < 1 << ROOT_BITS; i++) {
        struct middle *middle = atomic_load(&directory->root[i]);
        for (size_t j = 0; middle && j < 1 << MIDDLE_BITS; j++) {
            struct leaf *leaf = atomic_load(&middle->leaves[j]);
            for (size_t k = 0; leaf && k < 1 << LEAF_BITS; k++)
                gv_free(atomic_load(&leaf->pages[k]));
            gv_free(leaf);
        }
        gv_free(middle);
    }
}

static void recording_free(struct recording *recording)
{
    for (int i = 0; i < DIRECTORIES; i++)
        directory_free(&recording->directories[i]);
    gv_free(recording);
}

void recording_note_grid(struct recording *recording, unsigned grid)
{
    atomic_fetch_or(&recording->grid, grid);
}

struct recording *recording_for_launch(void)
{
    return recording_keep(current);
}

struct recording *recording_keep(struct recording *recording)
{
    if (recording)
        atomic_fetch_add(&recording->references, 1);
    return recording;
}

void recording_release(struct recording *recording)
{
    if (recording && atomic_fetch_sub(&recording->references, 1) == 1)
        recording_free(recording);
}

static int access_begin(int early)
{
    if (current)
        return -1;
    struct recording *recording = gv_calloc(1, sizeof *recording);
    if (!recording)
        return -1;
    atomic_store(&recording->references, 1);
    recording->early = early != 0;
    current = recording;
    access_observe(1);
    return 0;
}

// Joins what it is given into maximal ranges across words, pages and levels.
struct joiner {
    gravel_soft_range_callback callback;
    void *user;
    enum gravel_soft_access_kind kind;
    uint64_t start, end; // equal: nothing yet
};

static void joiner_flush(struct joiner *joiner)
{
    if (joiner->start != joiner->end)
        joiner->callback(joiner->user, joiner->kind, joiner->start, joiner->end);
    joiner->start = joiner->end = 0;
}

static void joiner_add(struct joiner *joiner, uint64_t start, uint64_t end)
{
    if (joiner->start != joiner->end && joiner->end == start) {
        joiner->end = end;
        return;
    }
    joiner_flush(joiner);
    joiner->start = start;
    joiner->end = end;
}

static void report_word(struct joiner *joiner, uint64_t base, uint64_t word)
{
    while (word) {
        unsigned first = (unsigned)__builtin_ctzll(word);
        uint64_t rest = ~(word >> first);
        unsigned run = rest ? (unsigned)__builtin_ctzll(rest) : 64;
        if (run > 64 - first)
            run = 64 - first;
        joiner_add(joiner, base + first, base + first + run);
        if (first + run == 64)
            return;
        word &= ~UINT64_C(0) << (first + run);
    }
}

static void report_kind(struct directory *directory, struct joiner *joiner)
{
    for (uint64_t i = 0; i < 1 << ROOT_BITS; i++) {
        struct middle *middle = atomic_load(&directory->root[i]);
        for (uint64_t j = 0; middle && j < 1 << MIDDLE_BITS; j++) {
            struct leaf *leaf = atomic_load(&middle->leaves[j]);
            for (uint64_t k = 0; leaf && k < 1 << LEAF_BITS; k++) {
                page_word *bits = atomic_load(&leaf->pages[k]);
                uint64_t base = ((i << MIDDLE_BITS | j) << LEAF_BITS | k) << PAGE_BITS;
                for (uint64_t word = 0; bits && word < PAGE_WORDS; word++)
                    report_word(joiner, base + word * 64, atomic_load(&bits[(size_t)joiner->kind * PAGE_WORDS + word]));
            }
        }
    }
    joiner_flush(joiner);
}

static void report(struct directory *directory, gravel_soft_range_callback callback, void *user)
{
    for (int kind = 0; callback && kind < KINDS; kind++) {
        struct joiner joiner = {callback, user, (enum gravel_soft_access_kind)kind, 0, 0};
        report_kind(directory, &joiner);
    }
}

static int access_so_far(gravel_soft_range_callback callback, void *user)
{
    if (!current)
        return -1;
    report(&current->directories[DIRECTORY_ALL], callback, user);
    return atomic_load(&current->incomplete) ? 1 : 0;
}

static int access_early(gravel_soft_range_callback callback, void *user, unsigned *grid)
{
    if (!current || !current->early)
        return -1;
    *grid = atomic_load(&current->grid);
    report(&current->directories[DIRECTORY_EARLY], callback, user);
    return atomic_load(&current->incomplete) ? 1 : 0;
}

static int access_end(gravel_soft_range_callback callback, void *user)
{
    struct recording *recording = current;
    if (!recording)
        return -1;
    current = NULL;
    access_observe(-1);
    // A task still under way keeps the recording alive and goes on writing into it: then the set is not whole.
    bool whole = atomic_load(&recording->references) == 1 && !atomic_load(&recording->incomplete);
    report(&recording->directories[DIRECTORY_ALL], callback, user);
    recording_release(recording);
    return whole ? 0 : 1;
}

static int set_condition(uint64_t handle, uint32_t value)
{
    return condition_set(handle, value) ? 0 : -1;
}

__attribute__((visibility("default"))) const gravel_soft_api *gravelSoftApi(void);
const gravel_soft_api *gravelSoftApi(void)
{
    static const gravel_soft_api api = {.version = GRAVEL_SOFT_API_VERSION,
                                        .access_begin = access_begin,
                                        .access_end = access_end,
                                        .access_so_far = access_so_far,
                                        .access_early = access_early,
                                        .variables = module_list_variables,
                                        .set_condition = set_condition};
    return &api;
}
