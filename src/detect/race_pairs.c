// Which accesses race, decided once for each distinct set of accesses, and the pairs of nodes that come of it.
//
// Programs touch memory in buffers: millions of ranges have a few thousand distinct sets of accessing nodes. A set is
// known by its signature; a set without a race costs one look-up in a cache after its first sight, and a racing one
// gathers the segments it is met on, which are handed to its pairs at the end.
#include "detect/race_core.h"

#include "base/memory.h"
#include "order/id_map.h"

#include <stdlib.h>
#include <string.h>

// The relation of two nodes on one byte, strongest first.
enum hazard { HAZARD_RAW, HAZARD_WAW, HAZARD_WAR };

// A pair that races on the bytes of a racing set, and how.
typedef struct race_link {
    uint32_t pair;
    uint8_t hazard;
    uint8_t first_mask, second_mask;
    uint8_t first_precision, second_precision; // enum gv_access_precision, on these bytes
} race_link;

// The latest link of a pair, plus 1. The points of two nodes can race in several ways on one byte, which counts once.
typedef size_t latest_link;

// A set of accesses that holds at least one race.
typedef struct racing_set {
    gv_race_signature signature;
    size_t first_link, link_count;
    gv_range *segments;
    size_t segment_count, segment_capacity;
} racing_set;

// A remembered verdict. `set`: index + 1 of the racing set, 0 when there is no race.
typedef struct verdict {
    gv_race_signature signature;
    uint32_t set;
    bool used;
} verdict;

// An active point in the order of chains.
typedef struct member {
    uint32_t chain, position, point, node;
    uint8_t mask;
} member;

// The members of one chain.
typedef struct span {
    uint32_t chain;
    size_t begin, end;
} span;

struct gv_race_table {
    const gv_race_subject *subject;
    bool assumptions; // some order rests on kernels that were not observed

    verdict *cache; // direct-mapped
    size_t cache_size, cache_misses;

    racing_set *sets;
    size_t set_count, set_capacity;
    uint32_t *set_slots; // open addressing by signature; index + 1
    size_t slot_count;   // power of two, or 0
    race_link *links;
    size_t link_count, link_capacity;
    size_t set_first_link; // of the set that is being judged

    gv_race_pair_list pairs;
    latest_link *latest; // beside the pairs
    size_t latest_capacity;
    gv_id_map pair_index; // first node << 32 | second node
    gv_id_map undecided_index;
    gv_race_undecided undecided;
    gv_id_map overlap_index;
    uint64_t *overlaps; // the same pairs, as a list
    size_t overlap_count, overlap_capacity;

    member *members; // scratch
    size_t member_capacity;
    span *spans;
    size_t span_capacity;
};

enum { SMALLEST_CACHE = 1 << 10, LARGEST_CACHE = 1 << 20 };

static gv_status out_of_memory(gv_error *error)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory for the racing pairs of a graph");
}

// ---- One pair ---------------------------------------------------------------------------------------------------

static uint64_t made_at(const gv_race_subject *subject, uint32_t node)
{
    return subject->made ? subject->made[node] : node;
}

// Was `a` made before `b`?
static bool made_before(const gv_race_subject *subject, uint32_t a, uint32_t b)
{
    uint64_t when_a = made_at(subject, a), when_b = made_at(subject, b);
    return when_a != when_b ? when_a < when_b : a < b;
}

// Is `a` the first of a racing pair? Where edges lead from the one to the other all the same, that is what was meant.
static bool goes_first(const gv_race_subject *subject, uint32_t a, uint32_t b)
{
    if (gv_graph_order_leads(subject->order, a, b))
        return true;
    return !gv_graph_order_leads(subject->order, b, a) && made_before(subject, a, b);
}

// Do two masks of reads, writes and atomics conflict? Plain writes with everything, atomics with plain accesses only.
static bool conflict(uint8_t a, uint8_t b)
{
    return (a & GV_RACE_WRITE) || (b & GV_RACE_WRITE) || ((a & GV_RACE_ATOMIC) && (b & GV_RACE_READ)) ||
           ((a & GV_RACE_READ) && (b & GV_RACE_ATOMIC));
}

// Do two masks of accesses that happened conflict, whatever the changes among them were?
static bool certainly_conflict(uint8_t a, uint8_t b)
{
    const uint8_t change = GV_RACE_CHANGE;
    uint8_t atomic_a = a & change ? (uint8_t)((a & ~change) | GV_RACE_ATOMIC) : a;
    uint8_t atomic_b = b & change ? (uint8_t)((b & ~change) | GV_RACE_ATOMIC) : b;
    return a && b && conflict(atomic_a, atomic_b);
}

// A mask of accesses that happened as a report gives it: what changed bytes wrote them.
static uint8_t plain(uint8_t mask)
{
    return (uint8_t)((mask & (GV_RACE_READ | GV_RACE_WRITE | GV_RACE_ATOMIC)) |
                     (mask & GV_RACE_CHANGE ? GV_RACE_WRITE : 0));
}

// The tight extents of a mask as the accesses they stand for. What may be read and written counts as read: a map that
// the node writes through shows so by its bytes.
static uint8_t tight(uint8_t mask)
{
    return mask & GV_RACE_TIGHT_READ ? GV_RACE_READ : mask & GV_RACE_TIGHT_WRITE ? GV_RACE_WRITE : 0;
}

// All that a mask allows, as if it happened.
static uint8_t possible(uint8_t mask)
{
    return (uint8_t)((mask & GV_RACE_ANY_READ ? GV_RACE_READ : 0) | (mask & GV_RACE_ANY_WRITE ? GV_RACE_WRITE : 0) |
                     (mask & GV_RACE_ATOMIC));
}

enum meeting { MEET_NOTHING, MEET_RACE, MEET_OVERLAP };

// What two unordered masks on one byte amount to. Two accesses that happened are a race if they conflict. A write that
// happened inside a tensor the other node has a map of is a race of lower confidence. Everything else is an overlap:
// two kernels that read one tensor, or write different parts of one pool, must not be called a race because what they
// do inside their extents is not known. `a` and `b` become what each side is reported to do.
static enum meeting meet(uint8_t *a, uint8_t *b, bool *a_extent, bool *b_extent)
{
    uint8_t all_a = *a, all_b = *b, seen_a = all_a & GV_RACE_HAPPENED, seen_b = all_b & GV_RACE_HAPPENED;
    const uint8_t writes = GV_RACE_WRITE | GV_RACE_ATOMIC | GV_RACE_CHANGE, atomics = GV_RACE_ATOMIC | GV_RACE_CHANGE;
    *a_extent = *b_extent = false;
    if (certainly_conflict(seen_a, seen_b)) {
        *a = plain(seen_a);
        *b = plain(seen_b);
        return MEET_RACE;
    }
    // Two atomic updates of a byte that both nodes also have maps of: the maps are most likely what the updates went
    // through.
    bool both_atomic = (seen_a & atomics) && (seen_b & atomics);
    if ((seen_a & writes) && tight(all_b) && !both_atomic) {
        *a = plain(seen_a);
        *b = tight(all_b);
        *b_extent = true;
        return MEET_RACE;
    }
    if ((seen_b & writes) && tight(all_a) && !both_atomic) {
        *a = tight(all_a);
        *b = plain(seen_b);
        *a_extent = true;
        return MEET_RACE;
    }
    return conflict(possible(all_a), possible(all_b)) ? MEET_OVERLAP : MEET_NOTHING;
}

// Which hazard a byte counts under, for conflicting masks; docs/detectors.md defines it. An atomic access both reads
// and writes, but two atomics do not conflict. Read after write if an access of the first writes and a conflicting
// one of the second reads; else write after write if conflicting accesses of both write; else write after read.
static enum hazard hazard_of(uint8_t first, uint8_t second)
{
    enum { R = GV_RACE_READ, W = GV_RACE_WRITE, A = GV_RACE_ATOMIC };
    if (((first & W) && (second & (R | A))) || ((first & A) && (second & R)))
        return HAZARD_RAW;
    if ((first & (W | A)) && (second & W))
        return HAZARD_WAW;
    return HAZARD_WAR;
}

// Precision of a side of a race: of what it is reported to do on these bytes, unless accesses of its are missing.
static enum gv_access_precision side_precision(const gv_race_subject *subject, uint32_t node, bool extent)
{
    if (subject->precision && subject->precision[node] == GV_PRECISION_INCOMPLETE)
        return GV_PRECISION_INCOMPLETE;
    return extent ? GV_PRECISION_EXTENT : GV_PRECISION_EXACT;
}

// How what happens at a point stands to the node's grid-dependency wait.
static enum gv_side_wait wait_of(const gv_race_subject *subject, const member *at)
{
    if (at->point != at->node)
        return GV_SIDE_BEFORE_WAIT;
    bool waits = !subject->dependencies || subject->dependencies[at->node].wait != GV_GRID_WAIT_NONE;
    return waits ? GV_SIDE_PLAIN : GV_SIDE_NO_WAIT;
}

// With the weakest precision there is, until a link says better.
static gv_side side_of(const gv_race_subject *subject, const member *at)
{
    return (gv_side){
        .node = at->node, .precision = GV_PRECISION_INCOMPLETE, .wait = wait_of(subject, at), .point = at->point};
}

// The index of the pair, made on first sight. *known is false when the limit forbids another pair.
static gv_status pair_of(gv_race_table *table, const member *first, const member *second, uint32_t *index, bool *known,
                         gv_error *error)
{
    uint64_t key = (uint64_t)first->node << 32 | second->node;
    const uint32_t *seen = gv_id_map_find(&table->pair_index, key);
    *known = seen || table->pairs.count < GV_RACE_PAIR_LIMIT;
    if (seen || !*known) {
        *index = seen ? *seen : 0;
        table->pairs.limited |= !*known;
        return GV_OK;
    }
    bool added;
    *index = (uint32_t)table->pairs.count;
    if (!GV_GROW(table->pairs.items, table->pairs.capacity, table->pairs.count + 1) ||
        !GV_GROW(table->latest, table->latest_capacity, table->pairs.count + 1) ||
        !gv_id_map_add(&table->pair_index, key, *index, &added))
        return out_of_memory(error);
    table->latest[table->pairs.count] = 0;
    // An edge orders a pair when it starts behind what the first node does and ends before what the second does. What a
    // node does before its wait is before the node's own point.
    gv_race_pair *pair = &table->pairs.items[table->pairs.count++];
    *pair = (gv_race_pair){.first = side_of(table->subject, first), .second = side_of(table->subject, second)};
    pair->first.point = first->node;
    return GV_OK;
}

// Takes note of another meeting of a pair that is known.
static void widen(gv_race_pair *pair, const member *first, const member *second)
{
    if (first->point == first->node && pair->first.wait == GV_SIDE_BEFORE_WAIT)
        pair->first.wait = GV_SIDE_PLAIN;
    if (second->point == second->node && pair->second.wait == GV_SIDE_BEFORE_WAIT)
        pair->second.wait = GV_SIDE_PLAIN;
    if (second->point != second->node)
        pair->second.point = second->point;
}

static enum gv_confidence confidence_of(const race_link *link)
{
    gv_race_pair sides = {.first = {.precision = link->first_precision},
                          .second = {.precision = link->second_precision}};
    return gv_race_confidence(&sides);
}

// Counts a pair that conflicts only as far as extents go.
static gv_status add_overlap(gv_race_table *table, uint32_t first, uint32_t second, gv_error *error)
{
    bool added;
    uint64_t key = (uint64_t)first << 32 | second;
    if (table->overlap_count >= GV_RACE_UNDECIDED_LIMIT)
        return GV_OK;
    if (!gv_id_map_add(&table->overlap_index, key, 0, &added))
        return out_of_memory(error);
    if (!added)
        return GV_OK;
    if (!GV_GROW(table->overlaps, table->overlap_capacity, table->overlap_count + 1))
        return out_of_memory(error);
    table->overlaps[table->overlap_count++] = key;
    return GV_OK;
}

// Adds a link of the set that is being judged, or joins it with the one that its pair has there.
static gv_status add_link(gv_race_table *table, const race_link *link, gv_error *error)
{
    size_t *latest = &table->latest[link->pair];
    if (*latest > table->set_first_link) {
        race_link *known = &table->links[*latest - 1];
        known->first_mask |= link->first_mask;
        known->second_mask |= link->second_mask;
        known->hazard = (uint8_t)hazard_of(known->first_mask, known->second_mask);
        return GV_OK;
    }
    if (!GV_GROW(table->links, table->link_capacity, table->link_count + 1))
        return out_of_memory(error);
    table->links[table->link_count++] = *link;
    *latest = table->link_count;
    return GV_OK;
}

// Adds an unordered pair, as a race or as an overlap.
static gv_status add_race(gv_race_table *table, const member *a, const member *b, gv_error *error)
{
    bool in_order = goes_first(table->subject, a->node, b->node), known, first_extent, second_extent;
    const member *first = in_order ? a : b, *second = in_order ? b : a;
    uint8_t first_mask = first->mask, second_mask = second->mask;
    enum meeting meeting = meet(&first_mask, &second_mask, &first_extent, &second_extent);
    if (meeting == MEET_NOTHING)
        return GV_OK;
    if (meeting == MEET_OVERLAP)
        return add_overlap(table, first->node, second->node, error);
    uint32_t pair = 0;
    gv_status status = pair_of(table, first, second, &pair, &known, error);
    if (status || !known)
        return status;
    widen(&table->pairs.items[pair], first, second);
    race_link link = {.pair = pair,
                      .hazard = (uint8_t)hazard_of(first_mask, second_mask),
                      .first_mask = first_mask,
                      .second_mask = second_mask,
                      .first_precision = (uint8_t)side_precision(table->subject, first->node, first_extent),
                      .second_precision = (uint8_t)side_precision(table->subject, second->node, second_extent)};
    status = add_link(table, &link, error);
    gv_race_pair *of = &table->pairs.items[pair];
    if (confidence_of(&link) <= gv_race_confidence(of)) {
        of->first.precision = link.first_precision;
        of->second.precision = link.second_precision;
    }
    return status;
}

// Counts a pair that only waits order that were not observed. At the limit the count stands still.
static gv_status add_undecided(gv_race_table *table, const member *a, const member *b, gv_error *error)
{
    if (table->undecided.pairs >= GV_RACE_UNDECIDED_LIMIT)
        return GV_OK;
    bool in_order = made_before(table->subject, a->node, b->node), added;
    uint32_t first = in_order ? a->node : b->node, second = in_order ? b->node : a->node;
    if (!gv_id_map_add(&table->undecided_index, (uint64_t)first << 32 | second, 0, &added))
        return out_of_memory(error);
    if (!added)
        return GV_OK;
    // The example is the first pair by the order of making, so that it does not depend on addresses.
    gv_race_undecided *u = &table->undecided;
    bool earlier = u->pairs == 0 || made_before(table->subject, first, u->first) ||
                   (first == u->first && made_before(table->subject, second, u->second));
    if (earlier) {
        u->first = first;
        u->second = second;
    }
    u->pairs++;
    return GV_OK;
}

// ---- One set of accesses ----------------------------------------------------------------------------------------

static int by_chain(const void *left, const void *right)
{
    const member *a = left, *b = right;
    if (a->chain != b->chain)
        return a->chain < b->chain ? -1 : 1;
    return a->position < b->position ? -1 : a->position > b->position;
}

// Fills members and spans, by chain and place on it.
static gv_status arrange(gv_race_table *table, enum gv_relation relation, const gv_race_access *accesses, size_t count,
                         size_t *span_count, gv_error *error)
{
    const gv_graph_order *order = table->subject->order;
    if (!GV_GROW(table->members, table->member_capacity, count) || !GV_GROW(table->spans, table->span_capacity, count))
        return out_of_memory(error);
    for (size_t i = 0; i < count; i++) {
        uint32_t point = accesses[i].point;
        table->members[i] = (member){.chain = gv_graph_order_chain_by(order, relation, point),
                                     .position = gv_graph_order_position_by(order, relation, point),
                                     .point = point,
                                     .node = gv_graph_order_node(order, point),
                                     .mask = accesses[i].mask};
    }
    qsort(table->members, count, sizeof *table->members, by_chain);
    *span_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || table->members[i].chain != table->members[i - 1].chain)
            table->spans[(*span_count)++] = (span){.chain = table->members[i].chain, .begin = i};
        table->spans[*span_count - 1].end = i + 1;
    }
    return GV_OK;
}

// The members of a chain that are not ordered with `writer`: those between the last that comes before it and the
// first that comes after it. Both ends are found by binary search, so that a thousand ordered writers of one buffer do
// not cost a million comparisons.
static span unordered_with(const gv_race_table *table, enum gv_relation relation, const member *writer, span chain)
{
    const gv_graph_order *order = table->subject->order;
    uint32_t reach = gv_graph_order_reach(order, relation, writer->point, chain.chain);
    size_t low = chain.begin, high = chain.end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->members[middle].position < reach)
            low = middle + 1;
        else
            high = middle;
    }
    chain.begin = low;
    high = chain.end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (gv_graph_order_reach(order, relation, table->members[middle].point, writer->chain) > writer->position)
            high = middle;
        else
            low = middle + 1;
    }
    chain.end = low;
    return chain;
}

// Meets one writer with one chain. If all kernels that were not observed wait, what is unordered and conflicts is a
// race; by what is known, it is undecided if such a wait would order it.
static gv_status meet_chain(gv_race_table *table, enum gv_relation relation, size_t writer_index, span chain,
                            gv_error *error)
{
    const member *writer = &table->members[writer_index];
    span open = unordered_with(table, relation, writer, chain);
    for (size_t i = open.begin; i < open.end; i++) {
        const member *other = &table->members[i];
        // Of two writers each meets the other; one meeting is enough.
        if (i < writer_index && (other->mask & (GV_RACE_ANY_WRITE | GV_RACE_ATOMIC)))
            continue;
        if (!conflict(possible(writer->mask), possible(other->mask)))
            continue;
        gv_status status = GV_OK;
        if (relation == GV_BY_ASSUMED_ORDER)
            status = add_race(table, writer, other, error);
        else if (gv_graph_order_between(table->subject->order, writer->point, other->point) == GV_ORDERED_PROGRAMMATIC)
            status = add_undecided(table, writer, other, error);
        if (status)
            return status;
    }
    return GV_OK;
}

static gv_status meet_all(gv_race_table *table, enum gv_relation relation, const gv_race_access *accesses, size_t count,
                          gv_error *error)
{
    size_t spans = 0;
    gv_status status = arrange(table, relation, accesses, count, &spans, error);
    for (size_t w = 0; w < count && !status; w++) {
        if (!(table->members[w].mask & (GV_RACE_ANY_WRITE | GV_RACE_ATOMIC)))
            continue;
        for (size_t s = 0; s < spans && !status; s++) {
            if (table->spans[s].chain != table->members[w].chain)
                status = meet_chain(table, relation, w, table->spans[s], error);
        }
    }
    return status;
}

// Finds all races of a set that was not seen before; its links are appended to table->links. Undecided pairs are
// looked for only until there are enough of them: in a graph held together by waits that were not observed nearly all
// pairs are.
static gv_status classify(gv_race_table *table, const gv_race_access *accesses, size_t count, gv_error *error)
{
    table->set_first_link = table->link_count;
    gv_status status = meet_all(table, GV_BY_ASSUMED_ORDER, accesses, count, error);
    if (!status && table->assumptions && table->undecided.pairs < GV_RACE_UNDECIDED_LIMIT)
        status = meet_all(table, GV_BY_KNOWN_ORDER, accesses, count, error);
    return status;
}

// ---- Sets by signature ------------------------------------------------------------------------------------------

static bool same(gv_race_signature a, gv_race_signature b)
{
    return a.low == b.low && a.high == b.high;
}

// Finds the slot of a racing set or the free one where it belongs.
static size_t set_slot(const gv_race_table *table, gv_race_signature signature)
{
    size_t slot = (size_t)signature.high & (table->slot_count - 1);
    while (table->set_slots[slot] && !same(table->sets[table->set_slots[slot] - 1].signature, signature))
        slot = (slot + 1) & (table->slot_count - 1);
    return slot;
}

static bool reserve_set(gv_race_table *table)
{
    if (!GV_GROW(table->sets, table->set_capacity, table->set_count + 1))
        return false;
    if (table->slot_count && table->set_count < table->slot_count / 2)
        return true;
    size_t size = table->slot_count ? 2 * table->slot_count : 64;
    uint32_t *slots = gv_calloc(size, sizeof *slots);
    if (!slots)
        return false;
    gv_free(table->set_slots);
    table->set_slots = slots;
    table->slot_count = size;
    for (size_t i = 0; i < table->set_count; i++)
        slots[set_slot(table, table->sets[i].signature)] = (uint32_t)i + 1;
    return true;
}

// The cache only saves work, so that a growth simply forgets.
static gv_status grow_cache(gv_race_table *table, gv_error *error)
{
    size_t size = table->cache_size * 8 < LARGEST_CACHE ? table->cache_size * 8 : LARGEST_CACHE;
    verdict *cache = gv_calloc(size, sizeof *cache);
    if (!cache)
        return out_of_memory(error);
    gv_free(table->cache);
    table->cache = cache;
    table->cache_size = size;
    table->cache_misses = 0;
    return GV_OK;
}

// Judges a set that is not in the cache. *set: index + 1 of the racing set, or 0.
static gv_status judge(gv_race_table *table, gv_race_signature signature, const gv_race_access *accesses, size_t count,
                       uint32_t *set, gv_error *error)
{
    *set = 0;
    if (!reserve_set(table))
        return out_of_memory(error);
    size_t slot = set_slot(table, signature);
    if (table->set_slots[slot]) {
        *set = table->set_slots[slot];
        return GV_OK;
    }
    size_t first = table->link_count;
    gv_status status = classify(table, accesses, count, error);
    if (status || table->link_count == first)
        return status;
    table->sets[table->set_count++] =
        (racing_set){.signature = signature, .first_link = first, .link_count = table->link_count - first};
    *set = table->set_slots[slot] = (uint32_t)table->set_count;
    return GV_OK;
}

static gv_status add_segment(racing_set *set, uint64_t start, uint64_t end, gv_error *error)
{
    if (set->segment_count && set->segments[set->segment_count - 1].end == start) {
        set->segments[set->segment_count - 1].end = end;
        return GV_OK;
    }
    if (!GV_GROW(set->segments, set->segment_capacity, set->segment_count + 1))
        return out_of_memory(error);
    set->segments[set->segment_count++] = (gv_range){start, end};
    return GV_OK;
}

gv_status gv_race_table_create(const gv_race_subject *subject, gv_race_table **out, gv_error *error)
{
    *out = NULL;
    gv_race_table *table = gv_calloc(1, sizeof *table);
    if (!table)
        return out_of_memory(error);
    table->subject = subject;
    table->assumptions = gv_graph_order_has_assumptions(subject->order);
    table->cache_size = SMALLEST_CACHE;
    table->cache = gv_calloc(table->cache_size, sizeof *table->cache);
    if (!table->cache) {
        gv_race_table_free(table);
        return out_of_memory(error);
    }
    *out = table;
    return GV_OK;
}

gv_status gv_race_table_segment(gv_race_table *table, gv_race_signature signature, const gv_race_access *accesses,
                                size_t count, uint64_t start, uint64_t end, gv_error *error)
{
    verdict *v = &table->cache[signature.low & (table->cache_size - 1)];
    if (!v->used || !same(v->signature, signature)) {
        if (++table->cache_misses > table->cache_size && table->cache_size < LARGEST_CACHE) {
            gv_status status = grow_cache(table, error);
            if (status)
                return status;
            v = &table->cache[signature.low & (table->cache_size - 1)];
        }
        uint32_t set;
        gv_status status = judge(table, signature, accesses, count, &set, error);
        if (status)
            return status;
        *v = (verdict){.signature = signature, .set = set, .used = true};
    }
    return v->set ? add_segment(&table->sets[v->set - 1], start, end, error) : GV_OK;
}

// ---- The result -------------------------------------------------------------------------------------------------

static void note_masks(gv_side *side, uint8_t mask)
{
    side->reads |= (mask & GV_RACE_READ) != 0;
    side->writes |= (mask & GV_RACE_WRITE) != 0;
    side->atomic |= (mask & GV_RACE_ATOMIC) != 0;
}

// Hands the segments of a racing set to its pairs. Sets do not overlap, so that bytes add up.
static gv_status distribute(gv_race_table *table, const racing_set *set, gv_error *error)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < set->segment_count; i++)
        bytes += set->segments[i].end - set->segments[i].start;
    for (size_t l = set->first_link; l < set->first_link + set->link_count; l++) {
        const race_link *link = &table->links[l];
        gv_race_pair *pair = &table->pairs.items[link->pair];
        // A pair that races for certain is reported by the bytes it does so on.
        if (confidence_of(link) > gv_race_confidence(pair))
            continue;
        note_masks(&pair->first, link->first_mask);
        note_masks(&pair->second, link->second_mask);
        pair->bytes += bytes;
        pair->raw_bytes += link->hazard == HAZARD_RAW ? bytes : 0;
        pair->waw_bytes += link->hazard == HAZARD_WAW ? bytes : 0;
        pair->war_bytes += link->hazard == HAZARD_WAR ? bytes : 0;
        for (size_t i = 0; i < set->segment_count; i++) {
            gv_status status = gv_range_set_add(&pair->ranges, set->segments[i].start, set->segments[i].end, error);
            if (status)
                return status;
        }
    }
    return GV_OK;
}

static enum gv_finding_id id_of(const gv_race_pair *pair)
{
    if (pair->raw_bytes >= pair->waw_bytes && pair->raw_bytes >= pair->war_bytes)
        return GV_FINDING_RACE_RAW;
    return pair->waw_bytes >= pair->war_bytes ? GV_FINDING_RACE_WAW : GV_FINDING_RACE_WAR;
}

// qsort hands no context to its comparison; pairs are compared through their places in the order of making.
typedef struct ranked_pair {
    uint64_t first_made, second_made;
    gv_race_pair pair;
} ranked_pair;

static int by_making(const void *left, const void *right)
{
    const ranked_pair *a = left, *b = right;
    if (a->first_made != b->first_made)
        return a->first_made < b->first_made ? -1 : 1;
    if (a->pair.first.node != b->pair.first.node)
        return a->pair.first.node < b->pair.first.node ? -1 : 1;
    if (a->second_made != b->second_made)
        return a->second_made < b->second_made ? -1 : 1;
    return a->pair.second.node < b->pair.second.node ? -1 : a->pair.second.node > b->pair.second.node;
}

static gv_status sort_pairs(gv_race_table *table, gv_error *error)
{
    gv_race_pair_list *pairs = &table->pairs;
    ranked_pair *ranked = gv_calloc(pairs->count, sizeof *ranked);
    if (!ranked)
        return out_of_memory(error);
    for (size_t i = 0; i < pairs->count; i++)
        ranked[i] = (ranked_pair){.first_made = made_at(table->subject, pairs->items[i].first.node),
                                  .second_made = made_at(table->subject, pairs->items[i].second.node),
                                  .pair = pairs->items[i]};
    qsort(ranked, pairs->count, sizeof *ranked, by_making);
    for (size_t i = 0; i < pairs->count; i++)
        pairs->items[i] = ranked[i].pair;
    gv_free(ranked);
    return GV_OK;
}

// What overlaps and is not a race elsewhere.
static void settle_overlaps(gv_race_table *table)
{
    gv_race_undecided *u = &table->undecided;
    for (size_t i = 0; i < table->overlap_count; i++) {
        uint64_t key = table->overlaps[i];
        if (gv_id_map_find(&table->pair_index, key))
            continue;
        uint32_t first = (uint32_t)(key >> 32), second = (uint32_t)key;
        bool earlier = u->overlaps == 0 || made_before(table->subject, first, u->overlap_first) ||
                       (first == u->overlap_first && made_before(table->subject, second, u->overlap_second));
        if (earlier) {
            u->overlap_first = first;
            u->overlap_second = second;
        }
        u->overlaps++;
    }
}

gv_status gv_race_table_finish(gv_race_table *table, gv_race_pair_list *pairs, gv_race_undecided *undecided,
                               gv_error *error)
{
    for (size_t i = 0; i < table->set_count; i++) {
        gv_status status = distribute(table, &table->sets[i], error);
        if (status)
            return status;
    }
    for (size_t i = 0; i < table->pairs.count; i++) {
        gv_range_set_settle(&table->pairs.items[i].ranges);
        table->pairs.items[i].id = id_of(&table->pairs.items[i]);
    }
    gv_status status = sort_pairs(table, error);
    if (status)
        return status;
    settle_overlaps(table);
    *pairs = table->pairs;
    *undecided = table->undecided;
    table->pairs = (gv_race_pair_list){0};
    return GV_OK;
}

void gv_race_pair_list_free(gv_race_pair_list *pairs)
{
    for (size_t i = 0; i < pairs->count; i++)
        gv_range_set_free(&pairs->items[i].ranges);
    gv_free(pairs->items);
    *pairs = (gv_race_pair_list){0};
}

void gv_race_table_free(gv_race_table *table)
{
    if (!table)
        return;
    gv_race_pair_list_free(&table->pairs);
    for (size_t i = 0; i < table->set_count; i++)
        gv_free(table->sets[i].segments);
    gv_free(table->sets);
    gv_free(table->set_slots);
    gv_free(table->links);
    gv_free(table->latest);
    gv_free(table->cache);
    gv_id_map_free(&table->pair_index);
    gv_id_map_free(&table->undecided_index);
    gv_id_map_free(&table->overlap_index);
    gv_free(table->overlaps);
    gv_free(table->members);
    gv_free(table->spans);
    gv_free(table);
}
