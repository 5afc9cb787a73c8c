#include "record/page_set.h"

#include "base/memory.h"

#include <string.h>

static size_t words_of(uint64_t pages)
{
    return (size_t)((pages + 63) / 64);
}

bool gv_page_set_open(gv_page_set *set, uint64_t pages)
{
    *set = (gv_page_set){.words = gv_calloc(words_of(pages), sizeof *set->words), .pages = pages};
    if (!set->words)
        set->pages = 0;
    return set->words != NULL;
}

void gv_page_set_free(gv_page_set *set)
{
    gv_free(set->words);
    *set = (gv_page_set){0};
}

void gv_page_set_clear(gv_page_set *set)
{
    if (set->count)
        memset(set->words, 0, words_of(set->pages) * sizeof *set->words);
    set->count = 0;
}

bool gv_page_set_has(const gv_page_set *set, uint64_t page)
{
    return page < set->pages && set->words[page / 64] >> page % 64 & 1;
}

bool gv_page_set_add(gv_page_set *set, uint64_t page)
{
    if (page >= set->pages)
        return false;
    uint64_t bit = UINT64_C(1) << page % 64, *word = &set->words[page / 64];
    set->count += !(*word & bit);
    *word |= bit;
    return true;
}

void gv_page_set_add_all(gv_page_set *set)
{
    for (uint64_t page = 0; set->count < set->pages && page < set->pages; page++)
        gv_page_set_add(set, page);
}

void gv_page_set_remove(gv_page_set *set, uint64_t page)
{
    if (!gv_page_set_has(set, page))
        return;
    set->words[page / 64] &= ~(UINT64_C(1) << page % 64);
    set->count--;
}

size_t gv_page_set_add_slots(gv_page_set *set, const int64_t *slots, size_t count, uint64_t slots_per_page)
{
    size_t beyond = 0;
    for (size_t i = 0; i < count; i++)
        beyond += slots[i] >= 0 && !gv_page_set_add(set, (uint64_t)slots[i] / slots_per_page);
    return beyond;
}

void gv_page_set_add_set(gv_page_set *set, const gv_page_set *other)
{
    if (!other->count)
        return;
    set->count = 0;
    for (size_t i = 0; i < words_of(set->pages); i++) {
        set->words[i] |= other->words[i];
        set->count += (uint64_t)__builtin_popcountll(set->words[i]);
    }
}

uint64_t gv_page_set_next_only(const gv_page_set *set, const gv_page_set *a, const gv_page_set *b, uint64_t page)
{
    for (size_t i = (size_t)(page / 64); page < set->pages && i < words_of(set->pages); i++) {
        uint64_t found = set->words[i] & ~a->words[i] & ~b->words[i];
        if (i == page / 64)
            found &= ~UINT64_C(0) << page % 64;
        if (found)
            return 64 * (uint64_t)i + (uint64_t)__builtin_ctzll(found);
    }
    return set->pages;
}

uint64_t gv_page_set_without(const gv_page_set *set, const gv_page_set *other)
{
    uint64_t count = 0;
    for (size_t i = 0; i < words_of(set->pages); i++)
        count += (uint64_t)__builtin_popcountll(set->words[i] & ~other->words[i]);
    return count;
}
