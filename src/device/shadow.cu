// A copy of memory that is kept from one checked launch to the next (shadow.h): brought up to date, compared with
// memory by hashes, and put back. Compiled twice (soft/kernel.h): for the GPU, and for the software driver.
//
// On the GPU a warp takes a group at a time, each thread of it eight units of 16 bytes: all loads are under way before
// the first value is used. What only a group needs that has changed, or that may hold an address, is in functions of
// its own that read the group again: registers that are held for the rare case would cost every group its speed.
#include "device/hash.h"
#include "device/search.cuh"
#include "device/shadow.h"
#include "device/unit.cuh"

#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif

enum { UNITS = GV_SHADOW_GROUP / GV_SHADOW_UNIT, EACH = UNITS / LANES };

// A group, and which of its bytes belong to the piece: [first, last).
typedef struct place {
    uint64_t address, copy;
    uint32_t first, last;
    uint32_t searched;
} place;

GRAVEL_DEVICE const gv_shadow_piece *piece_of(const gv_shadow_job *job, uint32_t group)
{
    uint32_t low = 0, high = job->piece_count;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (job->pieces[middle].first_group <= group)
            low = middle;
        else
            high = middle;
    }
    return job->pieces + low;
}

GRAVEL_DEVICE place place_of(const gv_shadow_job *job, uint32_t group)
{
    const gv_shadow_piece *piece = piece_of(job, group);
    const uint64_t size = GV_SHADOW_GROUP;
    place at;
    at.address = piece->start / size * size + (group - piece->first_group) * size;
    at.copy = piece->copy - (piece->start - at.address);
    at.first = at.address < piece->start ? (uint32_t)(piece->start - at.address) : 0;
    at.last = at.address + size > piece->end ? (uint32_t)(piece->end - at.address) : GV_SHADOW_GROUP;
    at.searched = piece->searched;
    return at;
}

GRAVEL_DEVICE int is_whole(const place *at)
{
    return at->first == 0 && at->last == GV_SHADOW_GROUP;
}

// ---- Units -------------------------------------------------------------------------------------------------------

GRAVEL_DEVICE void store_whole(uint64_t address, unit value)
{
#ifdef __CUDACC__
    __stcs((ulonglong2 *)address, make_ulonglong2(value.low, value.high));
#else
    ((uint64_t *)address)[0] = value.low;
    ((uint64_t *)address)[1] = value.high;
#endif
}

// The unit at byte `at` of a group that is at `address`; zeros stand in for bytes that do not belong to the piece.
GRAVEL_DEVICE unit load_unit(const place *group, uint64_t address, uint32_t at)
{
    unit loaded = {0, 0};
    if (at >= group->first && at + GV_SHADOW_UNIT <= group->last)
        return load_whole(address + at);
    for (uint32_t i = 0; i < GV_SHADOW_UNIT; i++) {
        if (at + i < group->first || at + i >= group->last)
            continue;
        uint64_t value = ((const uint8_t *)address)[at + i];
        if (i < 8)
            loaded.low |= value << (8 * i);
        else
            loaded.high |= value << (8 * (i - 8));
    }
    return loaded;
}

// Stores what of the unit belongs to the piece.
GRAVEL_DEVICE void store_unit(const place *group, uint64_t address, uint32_t at, unit value)
{
    if (at >= group->first && at + GV_SHADOW_UNIT <= group->last) {
        store_whole(address + at, value);
        return;
    }
    for (uint32_t i = 0; i < GV_SHADOW_UNIT; i++)
        if (at + i >= group->first && at + i < group->last)
            ((uint8_t *)address)[at + i] = (uint8_t)(i < 8 ? value.low >> (8 * i) : value.high >> (8 * (i - 8)));
}

// ---- Hashes ------------------------------------------------------------------------------------------------------

GRAVEL_DEVICE uint64_t hash_unit(unit value, uint32_t number)
{
    return gv_hash_word(value.low, 2 * number) + gv_hash_word(value.high, 2 * number + 1);
}

// Of this lane's units of a group that is not whole.
SELDOM uint64_t hash_part(const gv_shadow_job *job, uint32_t group, uint32_t lane)
{
    place at = place_of(job, group);
    uint64_t sum = 0;
    for (uint32_t number = lane; number < UNITS; number += LANES)
        sum += hash_unit(load_unit(&at, at.address, number * GV_SHADOW_UNIT), number);
    return sum;
}

// The upper halves of what may be an address of a region: [from, from + span]. Device memory lies far above 4 GiB.
typedef struct bounds {
    uint32_t from, span;
} bounds;

GRAVEL_DEVICE bounds bounds_of(const gv_shadow_job *job)
{
    bounds b;
    uint64_t least = (uint64_t)1 << 32, low = job->region_count ? job->starts[0] : 0;
    uint64_t high = job->region_count ? job->ends[job->region_count - 1] - 1 : 0;
    b.from = (uint32_t)((low > least ? low : least) >> 32);
    b.span = (high > least ? (uint32_t)(high >> 32) : b.from) - b.from;
    return b;
}

GRAVEL_DEVICE uint32_t may_be_upper(bounds b, uint64_t word)
{
    return (uint32_t)((uint32_t)word - b.from <= b.span) | (uint32_t)((uint32_t)(word >> 32) - b.from <= b.span);
}

// The hash of the group, the same in all lanes. *may_hold: this lane has seen what may be half of an address.
GRAVEL_DEVICE uint64_t read_group(const gv_shadow_job *job, uint32_t group, const place *at, uint32_t lane, bounds b,
                                  uint32_t *may_hold)
{
    uint64_t sum = 0;
    *may_hold = 1;
    if (is_whole(at)) {
        unit units[EACH];
        *may_hold = 0;
        UNROLL for (uint32_t i = 0; i < EACH; i++)
        {
            units[i] = load_whole(at->address + (i * LANES + lane) * GV_SHADOW_UNIT);
        }
        UNROLL for (uint32_t i = 0; i < EACH; i++)
        {
            sum += hash_unit(units[i], i * LANES + lane);
            *may_hold |= may_be_upper(b, units[i].low) | may_be_upper(b, units[i].high);
        }
    } else {
        sum = hash_part(job, group, lane);
    }
#ifdef __CUDACC__
    for (int away = 16; away; away /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, away);
#endif
    return sum;
}

// ---- The search --------------------------------------------------------------------------------------------------

GRAVEL_DEVICE void look_at_address(const gv_shadow_job *job, uint64_t value)
{
    uint32_t low = last_start(job->starts, job->region_count, value);
    gv_shadow_head *head = job->head;
    if (value >> 32 == 0 || value < job->starts[low] || value >= job->ends[job->region_count - 1])
        return;
    if (value < job->ends[low]) {
        if (!job->marked[low])
            atomicExch(&head->escaped, 1u);
        return;
    }
    // Memory that nobody told of may lie there: the host asks the driver. Two threads may tell of the same place.
    uint32_t told = *(volatile uint32_t *)&head->strays;
    for (uint32_t i = 0; i < told && i < GV_SHADOW_MOST_STRAYS; i++)
        if (*(volatile uint64_t *)&head->stray[i] >> 21 == value >> 21)
            return;
    uint32_t slot = atomicAdd(&head->strays, 1u);
    if (slot < GV_SHADOW_MOST_STRAYS)
        *(volatile uint64_t *)&head->stray[slot] = value;
}

// Looks at every 8-byte word, at multiples of four bytes, that lies in the piece and has a byte in the group, but for
// the one that ends in the next group: that has its upper half there.
SELDOM void search_group(const gv_shadow_job *job, uint32_t group, uint32_t lane)
{
    const gv_shadow_piece *piece = piece_of(job, group);
    uint64_t start =
        piece->start / GV_SHADOW_GROUP * GV_SHADOW_GROUP + (uint64_t)(group - piece->first_group) * GV_SHADOW_GROUP - 4;
    for (uint32_t i = lane; i < GV_SHADOW_GROUP / 4; i += LANES) {
        uint64_t at = start + 4 * (uint64_t)i;
        if (at < piece->start || at + 8 > piece->end)
            continue;
        look_at_address(job, (uint64_t)((const uint32_t *)at)[1] << 32 | ((const uint32_t *)at)[0]);
    }
}

// ---- Kernels -----------------------------------------------------------------------------------------------------

#define GROUPS(job, group) \
    for (uint32_t group = gravel_thread_index() / LANES; group < (job)->groups; group += gravel_thread_count() / LANES)

SELDOM void copy_group(const gv_shadow_job *job, uint32_t group, uint32_t lane)
{
    place at = place_of(job, group);
    for (uint32_t number = lane; number < UNITS; number += LANES)
        store_unit(&at, at.copy, number * GV_SHADOW_UNIT, load_unit(&at, at.address, number * GV_SHADOW_UNIT));
}

// Brings the copy up to date, as `flags` (enum gv_shadow_flag) say.
GRAVEL_KERNEL(gravel_shadow_take, (const gv_shadow_job *, job), (uint32_t, flags))
{
    uint32_t lane = gravel_thread_index() % LANES, may_hold;
    bounds b = bounds_of(job);
    GROUPS(job, group)
    {
        place at = place_of(job, group);
        uint64_t hash = read_group(job, group, &at, lane, b, &may_hold);
        if (flags & GV_SHADOW_SEARCH && at.searched) {
#ifdef __CUDACC__
            may_hold = __any_sync(0xffffffffu, may_hold);
#endif
            if (may_hold)
                search_group(job, group, lane);
        }
        if (!(flags & GV_SHADOW_TAKE_ALL) && hash == job->hashes[group])
            continue;
        copy_group(job, group, lane);
#ifdef __CUDACC__
        __syncwarp(); // all lanes have read the hash
#endif
        if (lane == 0) {
            job->hashes[group] = hash;
            atomicAdd(&job->head->copied, 1u);
        }
    }
}

// Keeps a group in the journal and puts it back to what the copy has. Where there is no room it is left as it is.
SELDOM void rewind_group(const gv_shadow_job *job, uint32_t group, uint32_t lane, uint64_t hash)
{
    uint32_t slot = 0;
    if (lane == 0)
        slot = atomicAdd(&job->head->journaled, 1u);
#ifdef __CUDACC__
    slot = __shfl_sync(0xffffffffu, slot, 0);
#endif
    int fits = slot < job->journal_slots;
    if (lane == 0) {
        job->slots[group] = fits ? slot + 1 : 0;
        if (fits) {
            job->journal_hashes[slot] = hash;
            job->journal_groups[slot] = group;
        }
    }
    if (!fits)
        return;
    place at = place_of(job, group);
    uint64_t journal = job->journal + (uint64_t)slot * GV_SHADOW_GROUP;
    for (uint32_t number = lane; number < UNITS; number += LANES) {
        uint32_t where = number * GV_SHADOW_UNIT;
        unit now = load_unit(&at, at.address, where), before = load_unit(&at, at.copy, where);
        store_whole(journal + where, now);
        if (before.low != now.low || before.high != now.high)
            store_unit(&at, at.address, where, before);
    }
}

// Puts back what has changed, and keeps what was there in the journal.
GRAVEL_KERNEL(gravel_shadow_rewind, (const gv_shadow_job *, job), (uint32_t, unused))
{
    uint32_t lane = gravel_thread_index() % LANES, may_hold;
    bounds b = bounds_of(job);
    GROUPS(job, group)
    {
        place at = place_of(job, group);
        uint64_t hash = read_group(job, group, &at, lane, b, &may_hold);
        if (hash != job->hashes[group])
            rewind_group(job, group, lane, hash);
        else if (lane == 0)
            job->slots[group] = 0;
    }
}

// Counts the groups that are not as the journal has them, or as the copy has those that are not in there.
GRAVEL_KERNEL(gravel_shadow_compare, (const gv_shadow_job *, job), (uint32_t, unused))
{
    uint32_t lane = gravel_thread_index() % LANES, may_hold;
    bounds b = bounds_of(job);
    GROUPS(job, group)
    {
        place at = place_of(job, group);
        uint64_t hash = read_group(job, group, &at, lane, b, &may_hold);
        uint32_t slot = job->slots[group];
        uint64_t expected = slot ? job->journal_hashes[slot - 1] : job->hashes[group];
        if (lane == 0 && hash != expected)
            atomicAdd(&job->head->differing, 1u);
    }
}

// Puts back what the first `count` places of the journal hold.
GRAVEL_KERNEL(gravel_shadow_undo, (const gv_shadow_job *, job), (uint32_t, count))
{
    uint32_t lane = gravel_thread_index() % LANES;
    for (uint32_t slot = gravel_thread_index() / LANES; slot < count; slot += gravel_thread_count() / LANES) {
        place at = place_of(job, job->journal_groups[slot]);
        uint64_t journal = job->journal + (uint64_t)slot * GV_SHADOW_GROUP;
        for (uint32_t number = lane; number < UNITS; number += LANES)
            store_unit(&at, at.address, number * GV_SHADOW_UNIT, load_whole(journal + number * GV_SHADOW_UNIT));
    }
}
