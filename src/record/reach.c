#include "record/reach.h"

#include "base/clock.h"
#include "base/memory.h"
#include "record/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// How often the table of regions may turn out to have been too small.
enum { MOST_NEW_TABLES = 8 };

// Written parts of a region that are told apart; more of them count as the whole region.
enum { MOST_WRITTEN = 32 };

// Addresses between the regions that the driver has been asked about, by 2 MiB.
enum { STRAY_SHIFT = 21 };

typedef struct region {
    uint64_t first, last; // as it was listed: [first, last)
    uint64_t start, end;  // what others leave of it, and with what it was joined to
    unsigned flags;
    const void *module;
    uint32_t place; // in the table that is searched with
    bool searched;  // but for what is in `written`
    gv_range_set written;
    uint32_t *leads_to; // indices of regions
    size_t lead_count, lead_capacity;
    uint64_t *maps; // addresses of what looks like maps
    size_t map_count, map_capacity;
    uint64_t stamp; // of the closure that reached it last
} region;

struct gv_reach {
    gv_compare *compare;
    gv_reach_options options;
    region *regions; // never moved within the array: edges name them by index
    size_t count, capacity;
    uint32_t *sorted; // by address
    size_t sorted_count, sorted_capacity;
    bool table_is_old;
    const void **unknown; // modules
    size_t unknown_count, unknown_capacity;
    uint64_t *strays; // asked about
    size_t stray_count, stray_capacity;
    unsigned new_tables;
    uint64_t bytes_left, time_left;
    uint64_t stamp;
};

gv_status gv_reach_open(gv_compare *compare, const gv_reach_options *options, gv_reach **reach, gv_error *error)
{
    *reach = gv_calloc(1, sizeof **reach);
    if (!*reach)
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    (*reach)->compare = compare;
    (*reach)->options = *options;
    (*reach)->bytes_left = options->bytes;
    (*reach)->time_left = (uint64_t)(options->seconds * 1e9);
    return GV_OK;
}

void gv_reach_close(gv_reach *reach)
{
    if (!reach)
        return;
    for (size_t i = 0; i < reach->count; i++) {
        gv_range_set_free(&reach->regions[i].written);
        gv_free(reach->regions[i].leads_to);
        gv_free(reach->regions[i].maps);
    }
    gv_free(reach->regions);
    gv_free(reach->sorted);
    gv_free(reach->unknown);
    gv_free(reach->strays);
    gv_free(reach);
}

void gv_reached_free(gv_reached *reached)
{
    gv_range_set_free(&reached->memory);
    gv_range_set_free(&reached->shared);
    gv_free(reached->maps);
    *reached = (gv_reached){0};
}

// ---- The table of regions ----------------------------------------------------------------------------------------

bool gv_reach_add(gv_reach *reach, uint64_t start, uint64_t end, unsigned flags, const void *module)
{
    if (start >= end)
        return true;
    if (!GV_GROW(reach->regions, reach->capacity, reach->count + 1))
        return false;
    reach->regions[reach->count++] =
        (region){.first = start, .last = end, .start = start, .end = end, .flags = flags, .module = module};
    reach->table_is_old = true;
    return true;
}

bool gv_reach_add_unknown(gv_reach *reach, const void *module)
{
    if (!GV_GROW(reach->unknown, reach->unknown_capacity, reach->unknown_count + 1))
        return false;
    reach->unknown[reach->unknown_count++] = module;
    return true;
}

static const region *sorting; // qsort hands no context to its comparison; one thread arms at a time

static int by_start(const void *a, const void *b)
{
    const region *x = &sorting[*(const uint32_t *)a], *y = &sorting[*(const uint32_t *)b];
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    // The longer of two that begin together has the bytes.
    if (x->last != y->last)
        return x->last > y->last ? -1 : 1;
    return (x->module == NULL) - (y->module == NULL);
}

// Sorts the regions and cuts off what overlaps. Regions with nothing left stay out of the table. What was found in them
// so far was found without the new ones.
static gv_status renew_table(gv_reach *reach, gv_error *error)
{
    if (!reach->table_is_old)
        return GV_OK;
    gv_range *ranges = gv_calloc(reach->count, sizeof *ranges);
    if (!ranges || !GV_GROW(reach->sorted, reach->sorted_capacity, reach->count)) {
        gv_free(ranges);
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    }
    for (size_t i = 0; i < reach->count; i++)
        reach->sorted[i] = (uint32_t)i;
    sorting = reach->regions;
    if (reach->count)
        qsort(reach->sorted, reach->count, sizeof *reach->sorted, by_start);
    reach->sorted_count = 0;
    for (size_t i = 0; i < reach->count; i++) {
        region *r = &reach->regions[reach->sorted[i]];
        uint64_t before = reach->sorted_count ? ranges[reach->sorted_count - 1].end : 0;
        r->start = r->first < before ? before : r->first;
        r->end = r->last;
        r->searched = false;
        r->lead_count = r->map_count = 0;
        region *next_to = reach->sorted_count ? &reach->regions[reach->sorted[reach->sorted_count - 1]] : NULL;
        bool joins = r->start < r->end && next_to && next_to->end == r->start && r->flags & GV_REGION_PART &&
                     r->flags == next_to->flags;
        if (joins)
            next_to->end = ranges[reach->sorted_count - 1].end = r->end;
        if (joins || r->start >= r->end) {
            r->start = r->end;
            continue;
        }
        r->place = (uint32_t)reach->sorted_count;
        ranges[reach->sorted_count] = (gv_range){r->start, r->end};
        reach->sorted[reach->sorted_count++] = reach->sorted[i];
    }
    gv_status status = GV_OK;
    if (reach->sorted_count)
        status = gv_compare_set_regions(reach->compare, ranges, reach->sorted_count, error);
    gv_free(ranges);
    reach->table_is_old = status != GV_OK;
    return status;
}

// The place in the table of the region that holds `address`, or of the first one behind it.
static size_t place_of(const gv_reach *reach, uint64_t address)
{
    size_t low = 0, high = reach->sorted_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (reach->regions[reach->sorted[middle]].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static region *region_at(const gv_reach *reach, uint64_t address)
{
    size_t place = place_of(reach, address);
    region *r = place < reach->sorted_count ? &reach->regions[reach->sorted[place]] : NULL;
    return r && r->start <= address ? r : NULL;
}

uint64_t gv_reach_end(gv_reach *reach, uint64_t address)
{
    if (renew_table(reach, NULL))
        return 0;
    region *r = region_at(reach, address);
    if (!r)
        return 0;
    uint64_t end = r->end;
    for (size_t i = r->place + 1; i < reach->sorted_count && reach->regions[reach->sorted[i]].start == end; i++)
        end = reach->regions[reach->sorted[i]].end;
    return end;
}

bool gv_reach_lists_same(const gv_reach *a, const gv_reach *b)
{
    // Searches add what they come upon behind what was listed.
    bool same = a->count == b->count && a->unknown_count == b->unknown_count;
    for (size_t i = 0; i < a->unknown_count && same; i++)
        same = a->unknown[i] == b->unknown[i];
    for (size_t i = 0; i < a->count && same; i++) {
        const region *x = &a->regions[i], *y = &b->regions[i];
        same = x->first == y->first && x->last == y->last && x->flags == y->flags && x->module == y->module;
    }
    return same;
}

gv_status gv_reach_regions(const gv_reach *reach, const gv_range_set *memory, gv_range **ranges, uint8_t **marked,
                           size_t *count, gv_error *error)
{
    *count = reach->sorted_count;
    *ranges = gv_calloc(*count, sizeof **ranges);
    *marked = gv_calloc(*count, sizeof **marked);
    if (!*ranges || !*marked) {
        gv_free(*ranges);
        gv_free(*marked);
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    }
    for (size_t i = 0; i < *count; i++) {
        const region *r = &reach->regions[reach->sorted[i]];
        (*ranges)[i] = (gv_range){r->start, r->end};
        // What is reached is whole regions.
        (*marked)[i] = gv_range_set_contains(memory, r->start);
    }
    return GV_OK;
}

// ---- What was written --------------------------------------------------------------------------------------------

static void written_in(region *r, uint64_t start, uint64_t end)
{
    if (!r->searched)
        return;
    // Part of an address or of a map may have been there before.
    start = start - r->start > 64 ? start - 64 : r->start;
    end = r->end - end > 64 ? end + 64 : r->end;
    if (gv_range_set_add(&r->written, start & ~(uint64_t)63, end, NULL) != GV_OK)
        r->searched = false;
    gv_range_set_settle(&r->written);
    if (r->written.count > MOST_WRITTEN)
        r->searched = false;
}

void gv_reach_written(gv_reach *reach, const gv_range *ranges, size_t count)
{
    size_t place = count ? place_of(reach, ranges[0].start) : 0;
    for (size_t i = 0; i < count; i++) {
        for (; place < reach->sorted_count; place++) {
            region *r = &reach->regions[reach->sorted[place]];
            if (r->start >= ranges[i].end)
                break;
            uint64_t start = ranges[i].start > r->start ? ranges[i].start : r->start;
            uint64_t end = ranges[i].end < r->end ? ranges[i].end : r->end;
            if (start < end)
                written_in(r, start, end);
            // The next range may begin in this region too.
            if (r->end > ranges[i].end)
                break;
        }
    }
}

void gv_reach_all_written(gv_reach *reach)
{
    for (size_t i = 0; i < reach->count; i++)
        reach->regions[i].searched = false;
}

// ---- Searching ---------------------------------------------------------------------------------------------------

static uint64_t up_to_word(uint64_t address)
{
    return (address + 3) & ~(uint64_t)3;
}

// What is to be searched of the reached regions. Sets *bytes.
static gv_status list_work(gv_reach *reach, gv_scan_range **work, size_t *count, uint64_t *bytes, gv_error *error)
{
    size_t capacity = 0;
    *work = NULL;
    *count = 0;
    *bytes = 0;
    for (size_t i = 0; i < reach->sorted_count; i++) {
        region *r = &reach->regions[reach->sorted[i]];
        gv_range whole = {r->start, r->end};
        const gv_range *parts = r->searched ? r->written.ranges : &whole;
        size_t part_count = r->searched ? r->written.count : 1;
        if (r->stamp != reach->stamp || r->flags & GV_REGION_UNREADABLE)
            continue;
        for (size_t p = 0; p < part_count; p++) {
            uint64_t start = up_to_word(parts[p].start > r->start ? parts[p].start : r->start);
            if (start >= parts[p].end)
                continue;
            if (!GV_GROW(*work, capacity, *count + 1))
                return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
            (*work)[(*count)++] = (gv_scan_range){start, parts[p].end, r->place};
            *bytes += parts[p].end - start;
        }
    }
    return GV_OK;
}

static gv_status add_lead(region *from, uint32_t to, gv_error *error)
{
    for (size_t i = 0; i < from->lead_count; i++)
        if (from->leads_to[i] == to)
            return GV_OK;
    if (!GV_GROW(from->leads_to, from->lead_capacity, from->lead_count + 1))
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    from->leads_to[from->lead_count++] = to;
    return GV_OK;
}

static gv_status take_found(gv_reach *reach, const gv_scan_found *found, gv_error *error)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < found->edge_count && !status; i++)
        status = add_lead(&reach->regions[reach->sorted[found->edges[i] >> 32]],
                          reach->sorted[(uint32_t)found->edges[i]], error);
    for (size_t i = 0; i < found->map_count && !status; i++) {
        region *r = &reach->regions[reach->sorted[found->maps[i].owner]];
        bool known = false;
        for (size_t m = 0; m < r->map_count && !known; m++)
            known = r->maps[m] == found->maps[i].address;
        if (known)
            continue;
        if (!GV_GROW(r->maps, r->map_capacity, r->map_count + 1))
            return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
        r->maps[r->map_count++] = found->maps[i].address;
    }
    return status;
}

static bool was_asked_about(const gv_reach *reach, uint64_t address)
{
    for (size_t i = 0; i < reach->stray_count; i++)
        if (reach->strays[i] >> STRAY_SHIFT == address >> STRAY_SHIFT)
            return true;
    return false;
}

// Asks the driver about addresses that lead between the regions. Memory that it knows becomes a region.
static gv_status look_up_strays(gv_reach *reach, const gv_scan_found *found, gv_error *error)
{
    for (size_t i = 0; i < found->stray_count; i++) {
        gv_range memory;
        unsigned flags = 0;
        if (was_asked_about(reach, found->strays[i]))
            continue;
        if (!GV_GROW(reach->strays, reach->stray_capacity, reach->stray_count + 1))
            return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
        if (!reach->options.look_up(found->strays[i], &memory, &flags, reach->options.user)) {
            reach->strays[reach->stray_count++] = found->strays[i];
        } else if (!gv_reach_add(reach, memory.start, memory.end, flags, NULL)) {
            return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
        }
    }
    return GV_OK;
}

// Searches what is reached and was not searched yet.
static gv_status search(gv_reach *reach, gv_error *error)
{
    gv_scan_range *work = NULL;
    gv_scan_found found = {0};
    size_t count = 0;
    uint64_t bytes = 0, begin = gv_monotonic_ns();
    gv_status status = list_work(reach, &work, &count, &bytes, error);
    if (!status && bytes > reach->bytes_left)
        status = gv_fail(error, GV_ERR_LIMIT, "there is more of it than may be searched (GRAVEL_SEARCH_MEMORY)");
    if (!status && count)
        status = gv_compare_scan(reach->compare, work, count, begin + reach->time_left, &found, error);
    uint64_t took = gv_monotonic_ns() - begin;
    reach->time_left -= took < reach->time_left ? took : reach->time_left;
    if (!status) {
        reach->bytes_left -= bytes;
        status = take_found(reach, &found, error);
    }
    if (!status) {
        for (size_t i = 0; i < count; i++) {
            region *r = &reach->regions[reach->sorted[work[i].region]];
            r->searched = true;
            gv_range_set_free(&r->written);
        }
        status = look_up_strays(reach, &found, error);
    }
    gv_scan_found_free(&found);
    gv_free(work);
    return status;
}

// ---- The closure -------------------------------------------------------------------------------------------------

static void reach_region(gv_reach *reach, region *r, bool *grown)
{
    *grown |= r->stamp != reach->stamp;
    r->stamp = reach->stamp;
}

// Marks everything that reached regions lead to. *grown: there was something new.
static void follow(gv_reach *reach, bool *grown)
{
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < reach->count; i++) {
            region *r = &reach->regions[i];
            for (size_t l = 0; r->stamp == reach->stamp && l < r->lead_count; l++)
                reach_region(reach, &reach->regions[r->leads_to[l]], &more);
        }
        *grown |= more;
    }
}

static gv_status reach_roots(gv_reach *reach, const uint64_t *roots, size_t count, const void *module, gv_error *error)
{
    bool grown = false;
    gv_status renewed = renew_table(reach, error);
    if (renewed)
        return renewed;
    for (size_t i = 0; i < count; i++) {
        gv_range memory;
        unsigned flags = 0;
        if (!region_at(reach, roots[i]) && reach->options.look_up(roots[i], &memory, &flags, reach->options.user) &&
            !gv_reach_add(reach, memory.start, memory.end, flags, NULL))
            return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
        gv_status status = renew_table(reach, error);
        if (status)
            return status;
        region *r = region_at(reach, roots[i]);
        if (r)
            reach_region(reach, r, &grown);
    }
    for (size_t i = 0; i < reach->count && module; i++) {
        // What is left of it, or the region that has its bytes.
        region *r = reach->regions[i].module == module ? region_at(reach, reach->regions[i].first) : NULL;
        if (r)
            reach_region(reach, r, &grown);
    }
    return GV_OK;
}

static void give_reason(gv_reached *reached, const char *format, const char *what)
{
    if (!reached->incomplete[0])
        snprintf(reached->incomplete, sizeof reached->incomplete, format, what);
}

// The maps that stand in a region, as they are now.
static gv_status read_maps(gv_reach *reach, region *r, gv_reached *reached, gv_error *error)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->map_count; i++) {
        uint64_t words[GV_TENSOR_MAP_WORDS];
        gv_reached_map found = {.where = r->maps[i]};
        gv_status status = gv_compare_read(reach->compare, r->maps[i], words, sizeof words, error);
        if (status)
            return status;
        // It may have been overwritten since.
        found.end = gv_tensor_map_decode(words, &found.map) ? gv_reach_end(reach, found.map.address) : 0;
        if (!found.end)
            continue;
        r->maps[kept++] = r->maps[i];
        if (!GV_GROW(reached->maps, reached->map_capacity, reached->map_count + 1))
            return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
        reached->maps[reached->map_count++] = found;
    }
    r->map_count = kept;
    return GV_OK;
}

static gv_status gather(gv_reach *reach, gv_reached *reached, bool with_maps, gv_error *error)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < reach->sorted_count && !status; i++) {
        region *r = &reach->regions[reach->sorted[i]];
        if (r->stamp != reach->stamp)
            continue;
        if (r->flags & GV_REGION_UNREADABLE)
            give_reason(reached, "%s", "it can reach memory that cannot be searched from this device");
        status = gv_range_set_add(&reached->memory, r->start, r->end, error);
        if (!status && r->flags & GV_REGION_SHARED)
            status = gv_range_set_add(&reached->shared, r->start, r->end, error);
        if (!status && with_maps)
            status = read_maps(reach, r, reached, error);
    }
    return status;
}

static bool is_unknown(const gv_reach *reach, const void *module)
{
    for (size_t i = 0; i < reach->unknown_count; i++)
        if (module && reach->unknown[i] == module)
            return true;
    return false;
}

// What the processor can change has to be searched each time anew.
static void forget_shared(gv_reach *reach)
{
    for (size_t i = 0; i < reach->count; i++)
        if (reach->regions[i].flags & GV_REGION_SHARED)
            reach->regions[i].searched = false;
}

gv_status gv_reach_from(gv_reach *reach, const uint64_t *roots, size_t root_count, const void *module,
                        gv_reached *reached, gv_error *error)
{
    gv_error why = {0};
    reach->stamp++;
    if (is_unknown(reach, module))
        give_reason(reached, "%s", "its module has variables whose addresses the driver does not tell");
    forget_shared(reach);
    gv_status status = reach_roots(reach, roots, root_count, module, &why);
    for (bool more = true; more && !status;) {
        bool grown = false;
        status = search(reach, &why);
        if (!status && reach->table_is_old) {
            // Memory turned up that was not listed: everything is searched again, for addresses in it too.
            if (++reach->new_tables > MOST_NEW_TABLES)
                status = gv_fail(&why, GV_ERR_LIMIT, "memory that nobody told of kept turning up");
            else
                status = renew_table(reach, &why);
            more = true;
            continue;
        }
        // Also what was searched for an earlier node leads to something.
        follow(reach, &grown);
        more = grown;
    }
    if (!status)
        status = gather(reach, reached, true, &why);
    if (status) {
        give_reason(reached, "the memory that its parameters lead to could not be searched: %.150s", why.text);
        if (error)
            *error = why;
    }
    return status;
}

gv_status gv_reach_variables(gv_reach *reach, const void *module, gv_reached *reached, gv_error *error)
{
    reach->stamp++;
    if (is_unknown(reach, module))
        give_reason(reached, "%s", "its module has variables whose addresses the driver does not tell");
    gv_status status = renew_table(reach, error);
    if (!status)
        status = reach_roots(reach, NULL, 0, module, error);
    if (!status)
        status = gather(reach, reached, false, error);
    if (status)
        give_reason(reached, "%s", "memory ran out while the variables of its module were listed");
    return status;
}
