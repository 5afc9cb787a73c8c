// The sweep over the address space. A graph's nodes bring tens of thousands of ascending lists of ranges, tens of
// millions of ranges together. They are never all in memory as numbers: the address space is cut into slabs of about
// SLAB_TARGET range starts, each slab is decoded, sorted and swept, and what reaches beyond its end stays active.
#include "detect/race_core.h"

#include "base/memory.h"
#include "trace/leb128.h"

#include <string.h>

enum {
    SLAB_TARGET = 1 << 16, // range starts that are sorted at once: a few cache-sized arrays
    SLAB_MOST = 4 * SLAB_TARGET,
    RADIX_BITS = 11,
    RADIX_SIZE = 1 << RADIX_BITS,
};
static const uint64_t WIDEST_SLAB = UINT64_C(1) << 32; // offsets in a slab are 32-bit

// A range whose start lies in the slab.
typedef struct entry {
    uint32_t offset; // of its start in the slab
    uint32_t stream;
    uint64_t end;
} entry;

// A range that was decoded for a slab which then turned out too full.
typedef struct spilled {
    uint64_t start, end;
    uint32_t stream;
} spilled;

// A range that the sweep is inside of, by its end.
typedef struct open_range {
    uint64_t end;
    uint32_t stream;
} open_range;

// What the inner loop needs of a stream.
typedef struct lane {
    gv_race_signature key;
    uint32_t point;
    uint32_t chain;
    uint8_t kind;
} lane;

// Where the decoding of a stream stands.
typedef struct cursor {
    const uint8_t *next, *limit; // encoded
    const gv_range *ranges;      // or an array
    size_t left;
    uint64_t end; // of the next range, whose start is in `next_start`
} cursor;

typedef struct sweep {
    const gv_race_stream *streams;
    size_t stream_count;
    const gv_graph_order *order;
    gv_race_table *table;
    gv_error *error;

    cursor *cursors;
    uint64_t *next_start; // of each stream
    uint32_t *unread;     // streams that have a next range
    size_t unread_count;
    uint64_t lowest; // next start of all of them; UINT64_MAX when there is none

    entry *entries, *sorted;
    size_t entry_count, entry_capacity, sorted_capacity;
    spilled *spill;
    size_t spill_count, spill_capacity;

    lane *lanes;
    open_range *open; // a heap, nearest end first
    size_t open_count, open_capacity;

    gv_race_access *active; // points at which the current byte is accessed
    size_t active_count;
    uint32_t *place;    // of each point in `active`, plus 1; 0: not active
    uint32_t *on_chain; // active points of each chain
    size_t chains;      // with an active point
    size_t reads, writes, atomics;
    gv_race_signature signature;
    uint64_t position;
} sweep;

static gv_status out_of_memory(sweep *s)
{
    return gv_fail(s->error, GV_ERR_MEMORY, "out of memory while looking for races among %zu lists of ranges",
                   s->stream_count);
}

// ---- Decoding ---------------------------------------------------------------------------------------------------

// Moves a stream to its next range. Returns false at its end; *status tells damage.
static inline bool advance(sweep *s, uint32_t stream, uint64_t position, bool first, gv_status *status)
{
    cursor *c = &s->cursors[stream];
    if (c->ranges) {
        if (!c->left)
            return false;
        c->left--;
        s->next_start[stream] = c->ranges->start;
        c->end = c->ranges->end;
        c->ranges++;
        return true;
    }
    if (c->next == c->limit)
        return false;
    uint64_t gap, length;
    const uint8_t *next = gv_leb128_read(c->next, c->limit, &gap);
    next = next ? gv_leb128_read(next, c->limit, &length) : NULL;
    // The loader has checked all encodings; a caller that did not must not take the sweep out of its bounds.
    if (!next || length == 0 || (gap == 0 && !first) || gap > UINT64_MAX - position ||
        length > UINT64_MAX - position - gap) {
        *status = gv_fail(s->error, GV_ERR_FORMAT, "the ranges of node %u are not validly encoded",
                          gv_graph_order_node(s->order, s->streams[stream].point));
        return false;
    }
    c->next = next;
    s->next_start[stream] = position + gap;
    c->end = position + gap + length;
    return true;
}

static uint64_t mix(uint64_t value)
{
    value += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

static gv_status open_streams(sweep *s, const gv_race_subject *subject)
{
    s->cursors = gv_calloc(s->stream_count, sizeof *s->cursors);
    s->next_start = gv_calloc(s->stream_count, sizeof *s->next_start);
    s->unread = gv_calloc(s->stream_count, sizeof *s->unread);
    s->lanes = gv_calloc(s->stream_count, sizeof *s->lanes);
    s->active = gv_calloc(gv_graph_order_point_count(subject->order), sizeof *s->active);
    s->place = gv_calloc(gv_graph_order_point_count(subject->order), sizeof *s->place);
    s->on_chain = gv_calloc(gv_graph_order_chain_count(subject->order), sizeof *s->on_chain);
    if (!s->cursors || !s->next_start || !s->unread || !s->lanes || !s->active || !s->place || !s->on_chain)
        return out_of_memory(s);
    gv_status status = GV_OK;
    s->lowest = UINT64_MAX;
    for (uint32_t i = 0; i < s->stream_count; i++) {
        const gv_race_stream *from = &s->streams[i];
        if (from->ranges)
            s->cursors[i] = (cursor){.ranges = from->ranges, .left = from->count};
        else if (from->encoded.length)
            s->cursors[i] = (cursor){.next = from->encoded.data, .limit = from->encoded.data + from->encoded.length};
        s->lanes[i] = (lane){.key = {mix(2 * (uint64_t)i), mix(2 * (uint64_t)i + 1)},
                             .point = from->point,
                             .chain = gv_graph_order_chain(subject->order, from->point),
                             .kind = from->kind};
        if (advance(s, i, 0, true, &status)) {
            s->unread[s->unread_count++] = i;
            s->lowest = s->next_start[i] < s->lowest ? s->next_start[i] : s->lowest;
        }
        if (status)
            return status;
    }
    return GV_OK;
}

// ---- Slabs ------------------------------------------------------------------------------------------------------

// Moves the entries at or past `limit` to the spill, where the next slab finds them.
static gv_status cut_slab(sweep *s, uint64_t base, uint64_t limit)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->entry_count; i++) {
        entry e = s->entries[i];
        if (e.offset < limit - base) {
            s->entries[kept++] = e;
            continue;
        }
        if (!GV_GROW(s->spill, s->spill_capacity, s->spill_count + 1))
            return out_of_memory(s);
        s->spill[s->spill_count++] = (spilled){.start = base + e.offset, .end = e.end, .stream = e.stream};
    }
    s->entry_count = kept;
    return GV_OK;
}

static inline gv_status add_entry(sweep *s, uint64_t base, uint64_t start, uint64_t end, uint32_t stream,
                                  uint64_t *limit)
{
    if (!GV_GROW(s->entries, s->entry_capacity, s->entry_count + 1))
        return out_of_memory(s);
    s->entries[s->entry_count++] = (entry){.offset = (uint32_t)(start - base), .stream = stream, .end = end};
    // A slab of one byte cannot be cut, and holds one start of each stream at most.
    while (s->entry_count > SLAB_MOST && *limit - base > 1) {
        *limit = base + (*limit - base) / 2;
        gv_status status = cut_slab(s, base, *limit);
        if (status)
            return status;
    }
    return GV_OK;
}

static gv_status take_spilled(sweep *s, uint64_t base, uint64_t *limit)
{
    size_t kept = 0, count = s->spill_count;
    for (size_t i = 0; i < count; i++) {
        spilled r = s->spill[i];
        if (r.start >= *limit) {
            s->spill[kept++] = r;
            continue;
        }
        // Not add_entry: a cut would append to the spill that is being walked. The next addition cuts.
        if (!GV_GROW(s->entries, s->entry_capacity, s->entry_count + 1))
            return out_of_memory(s);
        s->entries[s->entry_count++] = (entry){.offset = (uint32_t)(r.start - base), .stream = r.stream, .end = r.end};
    }
    s->spill_count = kept;
    return GV_OK;
}

// Decodes all ranges that start below *limit, which is lowered when there are too many.
static gv_status fill_slab(sweep *s, uint64_t base, uint64_t *limit)
{
    gv_status status = take_spilled(s, base, limit);
    size_t kept = 0;
    s->lowest = UINT64_MAX;
    for (size_t i = 0; i < s->unread_count && !status; i++) {
        uint32_t stream = s->unread[i];
        bool more = true;
        while (more && s->next_start[stream] < *limit && !status) {
            uint64_t start = s->next_start[stream], end = s->cursors[stream].end;
            more = advance(s, stream, end, false, &status);
            if (!status)
                status = add_entry(s, base, start, end, stream, limit);
        }
        if (!more)
            continue;
        s->unread[kept++] = stream;
        s->lowest = s->next_start[stream] < s->lowest ? s->next_start[stream] : s->lowest;
    }
    s->unread_count = kept;
    return status;
}

// Where the next range starts. False when there is none.
static bool next_base(const sweep *s, uint64_t *base)
{
    uint64_t lowest = s->lowest;
    for (size_t i = 0; i < s->spill_count; i++)
        lowest = s->spill[i].start < lowest ? s->spill[i].start : lowest;
    *base = lowest;
    return s->unread_count + s->spill_count > 0;
}

// Sorts the slab's entries by offset: least significant digit first, only as many digits as the slab is wide.
static gv_status sort_slab(sweep *s, uint64_t width)
{
    if (!GV_GROW(s->sorted, s->sorted_capacity, s->entry_count))
        return out_of_memory(s);
    for (unsigned shift = 0; shift < 32 && (width - 1) >> shift; shift += RADIX_BITS) {
        uint32_t begin[RADIX_SIZE] = {0};
        for (size_t i = 0; i < s->entry_count; i++)
            begin[s->entries[i].offset >> shift & (RADIX_SIZE - 1)]++;
        uint32_t sum = 0;
        for (size_t digit = 0; digit < RADIX_SIZE; digit++) {
            uint32_t count = begin[digit];
            begin[digit] = sum;
            sum += count;
        }
        for (size_t i = 0; i < s->entry_count; i++)
            s->sorted[begin[s->entries[i].offset >> shift & (RADIX_SIZE - 1)]++] = s->entries[i];
        entry *swap = s->entries;
        s->entries = s->sorted;
        s->sorted = swap;
        size_t capacity = s->entry_capacity;
        s->entry_capacity = s->sorted_capacity;
        s->sorted_capacity = capacity;
    }
    return GV_OK;
}

// ---- The active set ---------------------------------------------------------------------------------------------

static bool push_open(sweep *s, uint64_t end, uint32_t stream)
{
    if (!GV_GROW(s->open, s->open_capacity, s->open_count + 1))
        return false;
    size_t i = s->open_count++;
    for (; i > 0 && s->open[(i - 1) / 2].end > end; i = (i - 1) / 2)
        s->open[i] = s->open[(i - 1) / 2];
    s->open[i] = (open_range){end, stream};
    return true;
}

static uint32_t pop_open(sweep *s)
{
    uint32_t stream = s->open[0].stream;
    open_range moved = s->open[--s->open_count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < s->open_count; i = child) {
        if (child + 1 < s->open_count && s->open[child + 1].end < s->open[child].end)
            child++;
        if (s->open[child].end >= moved.end)
            break;
        s->open[i] = s->open[child];
    }
    s->open[i] = moved;
    return stream;
}

static inline void count_kind(sweep *s, uint8_t kind, size_t change)
{
    s->reads += kind & GV_RACE_ANY_READ ? change : 0;
    s->writes += kind & GV_RACE_ANY_WRITE ? change : 0;
    s->atomics += kind == GV_RACE_ATOMIC ? change : 0;
}

static inline void enter(sweep *s, uint32_t stream)
{
    const lane *l = &s->lanes[stream];
    s->signature.low ^= l->key.low;
    s->signature.high ^= l->key.high;
    count_kind(s, l->kind, 1);
    if (!s->place[l->point]) {
        s->active[s->active_count++] = (gv_race_access){.point = l->point, .mask = l->kind};
        s->place[l->point] = (uint32_t)s->active_count;
        s->chains += s->on_chain[l->chain]++ == 0;
    } else {
        s->active[s->place[l->point] - 1].mask |= l->kind;
    }
}

static inline void leave(sweep *s, uint32_t stream)
{
    const lane *l = &s->lanes[stream];
    s->signature.low ^= l->key.low;
    s->signature.high ^= l->key.high;
    count_kind(s, l->kind, (size_t)-1);
    uint32_t place = s->place[l->point] - 1;
    s->active[place].mask &= (uint8_t)~l->kind;
    if (s->active[place].mask)
        return;
    gv_race_access last = s->active[--s->active_count];
    s->active[place] = last;
    s->place[last.point] = place + 1;
    s->place[l->point] = 0;
    s->chains -= --s->on_chain[l->chain] == 0;
}

// Points of one chain are ordered; reads do not conflict with reads, nor atomics with atomics.
static inline bool may_conflict(const sweep *s)
{
    return s->chains >= 2 && (s->writes || (s->atomics && s->reads));
}

static inline gv_status move_to(sweep *s, uint64_t position)
{
    gv_status status = GV_OK;
    if (position > s->position && may_conflict(s))
        status =
            gv_race_table_segment(s->table, s->signature, s->active, s->active_count, s->position, position, s->error);
    s->position = position;
    return status;
}

// Leaves all ranges that end at or before `limit`.
static inline gv_status close_until(sweep *s, uint64_t limit)
{
    while (s->open_count && s->open[0].end <= limit) {
        gv_status status = move_to(s, s->open[0].end);
        if (status)
            return status;
        leave(s, pop_open(s));
    }
    return GV_OK;
}

static gv_status sweep_slab(sweep *s, uint64_t base)
{
    for (size_t i = 0; i < s->entry_count; i++) {
        uint64_t start = base + s->entries[i].offset;
        gv_status status = close_until(s, start);
        if (!status)
            status = move_to(s, start);
        if (status)
            return status;
        if (!push_open(s, s->entries[i].end, s->entries[i].stream))
            return out_of_memory(s);
        enter(s, s->entries[i].stream);
    }
    return GV_OK;
}

static gv_status sweep_all(sweep *s)
{
    uint64_t width = 1 << 20, base;
    while (next_base(s, &base)) {
        s->entry_count = 0;
        gv_status status = GV_OK;
        uint64_t limit = base;
        // A width that gave too few starts grows within the slab, so that a sparse stretch costs few passes over the
        // streams; one that gave too many has been cut by fill_slab.
        for (;;) {
            uint64_t wanted = width > UINT64_MAX - base ? UINT64_MAX : base + width;
            limit = wanted;
            status = fill_slab(s, base, &limit);
            if (status)
                return status;
            if (limit < wanted)
                width = limit - base;
            if (limit < wanted || s->entry_count >= SLAB_TARGET / 2 || width == WIDEST_SLAB || !s->unread_count)
                break;
            width *= 2;
        }
        uint64_t swept = width;
        if (s->entry_count > SLAB_TARGET && width > 1)
            width /= 2;
        status = sort_slab(s, swept);
        if (!status)
            status = sweep_slab(s, base);
        if (status)
            return status;
    }
    return close_until(s, UINT64_MAX);
}

gv_status gv_race_sweep(const gv_race_subject *subject, const gv_race_stream *streams, size_t stream_count,
                        gv_race_pair_list *pairs, gv_race_undecided *undecided, gv_error *error)
{
    *pairs = (gv_race_pair_list){0};
    *undecided = (gv_race_undecided){0};
    if (stream_count >= UINT32_MAX)
        return gv_fail(error, GV_ERR_LIMIT, "%zu lists of ranges are more than the limit of %u", stream_count,
                       UINT32_MAX - 1);
    sweep s = {.streams = streams, .stream_count = stream_count, .order = subject->order, .error = error};
    gv_status status = gv_race_table_create(subject, &s.table, error);
    if (!status)
        status = open_streams(&s, subject);
    if (!status)
        status = sweep_all(&s);
    if (!status)
        status = gv_race_table_finish(s.table, pairs, undecided, error);
    gv_race_table_free(s.table);
    gv_free(s.cursors);
    gv_free(s.next_start);
    gv_free(s.unread);
    gv_free(s.entries);
    gv_free(s.sorted);
    gv_free(s.spill);
    gv_free(s.lanes);
    gv_free(s.open);
    gv_free(s.active);
    gv_free(s.place);
    gv_free(s.on_chain);
    return status;
}
