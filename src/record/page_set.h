// Sets of page numbers of a region: what a step may change, what transfers write.
#ifndef GV_RECORD_PAGE_SET_H
#define GV_RECORD_PAGE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Zero-initialised it is a set over no pages.
typedef struct gv_page_set {
    uint64_t *words; // a bit for each page
    uint64_t pages;  // numbers below this can be members
    uint64_t count;  // how many are
} gv_page_set;

// An empty set over the pages [0, pages). False when memory is out.
bool gv_page_set_open(gv_page_set *set, uint64_t pages);
void gv_page_set_free(gv_page_set *set);

void gv_page_set_clear(gv_page_set *set);
bool gv_page_set_has(const gv_page_set *set, uint64_t page);

// Adds a page. False: there is no such page.
bool gv_page_set_add(gv_page_set *set, uint64_t page);
void gv_page_set_add_all(gv_page_set *set);
void gv_page_set_remove(gv_page_set *set, uint64_t page);

// Adds the pages of `count` slots, of which `slots_per_page` (not 0) lie on a page. Negative ones stand for rows
// without a slot and are left out. Answers how many were beyond the last page, which are left out too.
size_t gv_page_set_add_slots(gv_page_set *set, const int64_t *slots, size_t count, uint64_t slots_per_page);

// Adds the members of `other`, a set over the same pages.
void gv_page_set_add_set(gv_page_set *set, const gv_page_set *other);

// The first page from `page` on that is in `set` and neither in `a` nor in `b`, sets over the same pages; set->pages
// when there is none.
uint64_t gv_page_set_next_only(const gv_page_set *set, const gv_page_set *a, const gv_page_set *b, uint64_t page);

// How many members of `set` are not in `other`, a set over the same pages.
uint64_t gv_page_set_without(const gv_page_set *set, const gv_page_set *other);

#endif
