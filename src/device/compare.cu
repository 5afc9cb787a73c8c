// What is done with memory around a node whose accesses cannot be seen: saving it, comparing it with what was saved,
// perturbing it, and searching it for addresses and tensor maps. Compiled twice (soft/kernel.h): for the GPU, and for
// the software driver. Each thread takes one block of 32 bytes after another, so that a warp reads 1 KiB at a time.
#include "device/compare.h"
#include "device/search.cuh"
#include "device/tensor_map.h"
#include "soft/kernel.h"

// The piece that block number `block` lies in.
GRAVEL_DEVICE const gv_piece *piece_of(const gv_piece *pieces, uint32_t count, uint64_t block)
{
    uint32_t low = 0, high = count;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (pieces[middle].first_block <= block)
            low = middle;
        else
            high = middle;
    }
    return pieces + low;
}

typedef struct place {
    uint64_t address, saved; // of the block, which may begin before the piece
    uint32_t first, last;    // bytes of the block that belong to the piece: [first, last)
} place;

GRAVEL_DEVICE place place_of(const gv_piece *pieces, uint32_t count, uint64_t block)
{
    const gv_piece *piece = piece_of(pieces, count, block);
    const uint64_t size = GV_BLOCK_BYTES;
    place at;
    at.address = piece->start / size * size + (block - piece->first_block) * size;
    at.saved = piece->saved - (piece->start - at.address);
    at.first = at.address < piece->start ? (uint32_t)(piece->start - at.address) : 0;
    at.last = at.address + size > piece->end ? (uint32_t)(piece->end - at.address) : (uint32_t)size;
    return at;
}

GRAVEL_DEVICE int is_whole(const place *at)
{
    return at->first == 0 && at->last == GV_BLOCK_BYTES;
}

// The block's eight 32-bit words.
typedef struct words {
    uint32_t at[8];
} words;

// Of a whole block.
GRAVEL_DEVICE words load_words(uint64_t address)
{
    words w;
#ifdef __CUDACC__
    uint4 low = *(const uint4 *)address, high = *(const uint4 *)(address + 16);
    w.at[0] = low.x, w.at[1] = low.y, w.at[2] = low.z, w.at[3] = low.w;
    w.at[4] = high.x, w.at[5] = high.y, w.at[6] = high.z, w.at[7] = high.w;
#else
    for (int i = 0; i < 8; i++)
        w.at[i] = ((const uint32_t *)address)[i];
#endif
    return w;
}

GRAVEL_DEVICE void store_words(uint64_t address, const words *w)
{
#ifdef __CUDACC__
    *(uint4 *)address = make_uint4(w->at[0], w->at[1], w->at[2], w->at[3]);
    *(uint4 *)(address + 16) = make_uint4(w->at[4], w->at[5], w->at[6], w->at[7]);
#else
    for (int i = 0; i < 8; i++)
        ((uint32_t *)address)[i] = w->at[i];
#endif
}

GRAVEL_DEVICE uint8_t byte_at(uint64_t address)
{
    return *(const uint8_t *)address;
}

// A bit for each byte of a word that is not zero, and the other way round.
GRAVEL_DEVICE uint32_t bytes_set(uint32_t word)
{
    return (word & 0xff ? 1u : 0) | (word & 0xff00 ? 2u : 0) | (word & 0xff0000 ? 4u : 0) | (word >> 24 ? 8u : 0);
}

GRAVEL_DEVICE uint32_t spread(uint32_t bits)
{
    return (bits & 1 ? 0xffu : 0) | (bits & 2 ? 0xff00u : 0) | (bits & 4 ? 0xff0000u : 0) |
           (bits & 8 ? 0xff000000u : 0);
}

// The walk over `blocks` blocks. It is rounded up to whole warps, so that all threads of a warp go round together.
#define WALK(i, blocks) \
    for (uint64_t i = gravel_thread_index(); i < ((blocks) + 31) / 32 * 32; i += gravel_thread_count())

// Adds how many bits are set in a block's mask to its group's count. A warp's blocks are in one group.
GRAVEL_DEVICE void count_bits(unsigned *counts, uint64_t block, uint32_t mask)
{
#ifdef __CUDACC__
    unsigned sum = __reduce_add_sync(0xffffffffu, (unsigned)__popc(mask));
    if (threadIdx.x % 32 == 0 && sum)
        atomicAdd(&counts[block / GV_GROUP_BLOCKS], sum);
#else
    if (mask)
        atomicAdd(&counts[block / GV_GROUP_BLOCKS], (unsigned)__builtin_popcount(mask));
#endif
}

// Copies the pieces' blocks [first, first + blocks) to where they are saved.
GRAVEL_KERNEL(gravel_save, (const gv_piece *, pieces), (uint32_t, count), (uint64_t, first), (uint64_t, blocks))
{
    WALK(i, blocks)
    {
        if (i >= blocks)
            continue;
        place at = place_of(pieces, count, first + i);
        if (is_whole(&at)) {
            words now = load_words(at.address);
            store_words(at.saved, &now);
        } else {
            for (uint32_t b = at.first; b < at.last; b++)
                *(uint8_t *)(at.saved + b) = byte_at(at.address + b);
        }
    }
}

// Marks the bytes that differ from what was saved: a word of `changed` for each block, and how many there are in each
// group. Both begin with block `first`.
GRAVEL_KERNEL(gravel_compare, (const gv_piece *, pieces), (uint32_t, count), (uint64_t, first), (uint64_t, blocks),
              (uint32_t *, changed), (unsigned *, counts))
{
    WALK(i, blocks)
    {
        uint32_t mask = 0;
        if (i < blocks) {
            place at = place_of(pieces, count, first + i);
            if (is_whole(&at)) {
                words now = load_words(at.address), before = load_words(at.saved);
                for (int w = 0; w < 8; w++)
                    mask |= bytes_set(now.at[w] ^ before.at[w]) << 4 * w;
            } else {
                for (uint32_t b = at.first; b < at.last; b++)
                    mask |= (uint32_t)(byte_at(at.address + b) != byte_at(at.saved + b)) << b;
            }
            changed[i] = mask;
        }
        count_bits(counts, i, mask);
    }
}

// Puts back what was saved, where it differs.
GRAVEL_KERNEL(gravel_restore, (const gv_piece *, pieces), (uint32_t, count), (uint64_t, first), (uint64_t, blocks))
{
    WALK(i, blocks)
    {
        if (i >= blocks)
            continue;
        place at = place_of(pieces, count, first + i);
        if (is_whole(&at)) {
            words now = load_words(at.address), before = load_words(at.saved);
            uint32_t differ = 0;
            for (int w = 0; w < 8; w++)
                differ |= now.at[w] ^ before.at[w];
            if (differ)
                store_words(at.address, &before);
            continue;
        }
        for (uint32_t b = at.first; b < at.last; b++) {
            uint8_t before = byte_at(at.saved + b);
            if (byte_at(at.address + b) != before)
                *(uint8_t *)(at.address + b) = before;
        }
    }
}

// Sets the bytes of the pieces: each to the byte of `pattern` that its address, modulo eight, stands for.
GRAVEL_KERNEL(gravel_fill, (const gv_piece *, pieces), (uint32_t, count), (uint64_t, first), (uint64_t, blocks),
              (uint64_t, pattern))
{
    WALK(i, blocks)
    {
        if (i >= blocks)
            continue;
        place at = place_of(pieces, count, first + i);
        if (is_whole(&at)) {
            words filled;
            for (int w = 0; w < 8; w++)
                filled.at[w] = (uint32_t)(w & 1 ? pattern >> 32 : pattern);
            store_words(at.address, &filled);
        } else {
            for (uint32_t b = at.first; b < at.last; b++)
                *(uint8_t *)(at.address + b) = (uint8_t)(pattern >> b % 8 * 8);
        }
    }
}

// Makes each piece a row of copies of the `size` bytes at `unit`, which are in no piece.
GRAVEL_KERNEL(gravel_repeat, (const gv_piece *, pieces), (uint32_t, count), (uint64_t, first), (uint64_t, blocks),
              (uint64_t, unit), (uint64_t, size))
{
    WALK(i, blocks)
    {
        if (i >= blocks)
            continue;
        place at = place_of(pieces, count, first + i);
        uint64_t from = (at.address + at.first - piece_of(pieces, count, first + i)->start) % size;
        for (uint32_t b = at.first; b < at.last; b++) {
            *(uint8_t *)(at.address + b) = byte_at(unit + from);
            from = from + 1 == size ? 0 : from + 1;
        }
    }
}

// After a node has run once: makes every byte the complement of what was saved, so that a write of the node's second
// run shows whatever it writes. A byte whose first run left just that complement gets the saved value instead, and its
// bit is set in `swapped` (one word a block).
GRAVEL_KERNEL(gravel_perturb, (const gv_piece *, pieces), (uint32_t, count), (uint64_t, first), (uint64_t, blocks),
              (uint32_t *, swapped))
{
    WALK(i, blocks)
    {
        if (i >= blocks)
            continue;
        place at = place_of(pieces, count, first + i);
        uint32_t mask = 0;
        if (is_whole(&at)) {
            words now = load_words(at.address), before = load_words(at.saved);
            for (int w = 0; w < 8; w++) {
                uint32_t same = ~bytes_set(now.at[w] ^ ~before.at[w]) & 15, bytes = spread(same);
                now.at[w] = (~before.at[w] & ~bytes) | (before.at[w] & bytes);
                mask |= same << 4 * w;
            }
            store_words(at.address, &now);
        } else {
            for (uint32_t b = at.first; b < at.last; b++) {
                uint8_t before = byte_at(at.saved + b), complement = (uint8_t)~before;
                uint32_t same = byte_at(at.address + b) == complement;
                *(uint8_t *)(at.address + b) = same ? before : complement;
                mask |= same << b;
            }
        }
        swapped[first + i] = mask;
    }
}

// After the second run: marks the bytes that were written, as gravel_compare does, and puts the others back to what one
// run on the saved memory leaves: the saved value, or, where `swapped` says so, its complement.
GRAVEL_KERNEL(gravel_settle, (const gv_piece *, pieces), (uint32_t, count), (uint64_t, first), (uint64_t, blocks),
              (const uint32_t *, swapped), (uint32_t *, changed), (unsigned *, counts))
{
    WALK(i, blocks)
    {
        uint32_t mask = 0;
        if (i < blocks) {
            place at = place_of(pieces, count, first + i);
            uint32_t swap = swapped[first + i];
            if (is_whole(&at)) {
                words now = load_words(at.address), before = load_words(at.saved);
                for (int w = 0; w < 8; w++) {
                    uint32_t bytes = spread(swap >> 4 * w & 15), old = before.at[w];
                    uint32_t written = bytes_set(now.at[w] ^ ((~old & ~bytes) | (old & bytes)));
                    uint32_t left = (old & ~bytes) | (~old & bytes), kept = spread(written);
                    now.at[w] = (now.at[w] & kept) | (left & ~kept);
                    mask |= written << 4 * w;
                }
                if (mask != 0xffffffffu)
                    store_words(at.address, &now);
            } else {
                for (uint32_t b = at.first; b < at.last; b++) {
                    uint8_t before = byte_at(at.saved + b), complement = (uint8_t)~before;
                    uint32_t is_swapped = swap >> b & 1;
                    if (byte_at(at.address + b) != (is_swapped ? before : complement))
                        mask |= 1u << b;
                    else
                        *(uint8_t *)(at.address + b) = is_swapped ? complement : before;
                }
            }
            changed[i] = mask;
        }
        count_bits(counts, i, mask);
    }
}

// ---- The search --------------------------------------------------------------------------------------------------

// Index of the region that holds `value`, or region_count.
GRAVEL_DEVICE uint32_t region_of(const gv_scan_job *job, uint64_t value)
{
    uint32_t low = last_start(job->starts, job->region_count, value);
    return value >= job->starts[low] && value < job->ends[low] ? low : job->region_count;
}

GRAVEL_DEVICE void add_edge(const gv_scan_job *job, uint32_t owner, uint32_t region)
{
    unsigned long long key = ((unsigned long long)owner << 32 | region) + 1;
    uint32_t slot = (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 40) & (job->edge_slots - 1);
    for (int probe = 0; probe < GV_SCAN_PROBES; probe++) {
        unsigned long long seen = *(volatile unsigned long long *)&job->edges[slot];
        if (seen == 0) {
            seen = atomicCAS(&job->edges[slot], 0ull, key);
            if (seen == 0)
                job->edge_list[atomicAdd(&job->head->edges, 1u)] = key - 1;
        }
        if (seen == 0 || seen == key)
            return;
        slot = (slot + 1) & (job->edge_slots - 1);
    }
    job->head->edges_overflow = 1;
}

// A word that could be an address of memory nobody told us of. One is kept for each 2 MiB: the host asks the driver.
GRAVEL_DEVICE void add_stray(const gv_scan_job *job, uint64_t value)
{
    uint32_t kept = *(volatile uint32_t *)&job->head->strays;
    for (uint32_t i = 0; i < kept && i < job->stray_capacity; i++)
        if (*(volatile uint64_t *)&job->strays[i] >> 21 == value >> 21)
            return;
    uint32_t place = atomicAdd(&job->head->strays, 1u);
    if (place < job->stray_capacity)
        job->strays[place] = value;
}

SELDOM void look_at_address(const gv_scan_job *job, uint32_t owner, uint64_t value)
{
    uint32_t region = region_of(job, value);
    if (region == job->region_count)
        add_stray(job, value);
    else if (region != owner)
        add_edge(job, owner, region);
}

// A map begins at a multiple of 64 bytes and with an address.
SELDOM void look_for_map(const gv_scan_job *job, uint32_t owner, uint64_t address, uint64_t end)
{
    if (address + GV_TENSOR_MAP_BYTES > end || region_of(job, *(const uint64_t *)address) == job->region_count)
        return;
    uint64_t all[GV_TENSOR_MAP_WORDS];
    gv_tensor_map map;
    for (int i = 0; i < GV_TENSOR_MAP_WORDS; i++)
        all[i] = ((const uint64_t *)address)[i];
    if (!gv_tensor_map_decode(all, &map))
        return;
    uint32_t place = atomicAdd(&job->head->maps, 1u);
    if (place < job->map_capacity) {
        job->maps[place].address = address;
        job->maps[place].owner = owner;
    }
}

// Looks at every 8-byte word of the blocks, at multiples of four bytes: words that are addresses in a region, and maps.
GRAVEL_KERNEL(gravel_scan, (const gv_piece *, pieces), (uint32_t, count), (uint64_t, first), (uint64_t, blocks),
              (const gv_scan_job *, job))
{
    const uint64_t least = (uint64_t)1 << 32;
    uint64_t low = job->low > least ? job->low : least, high = job->high;
    WALK(i, blocks)
    {
        if (i >= blocks)
            continue;
        const gv_piece *piece = piece_of(pieces, count, first + i);
        place at = place_of(pieces, count, first + i);
        uint32_t half[9];
        if (is_whole(&at)) {
            words now = load_words(at.address);
            for (int w = 0; w < 8; w++)
                half[w] = now.at[w];
        } else {
            for (uint32_t w = 0; w < 8; w++)
                half[w] = at.first <= 4 * w && 4 * w + 4 <= at.last ? *(const uint32_t *)(at.address + 4 * w) : 0;
        }
        // The word that begins with the last four bytes goes on in the next block.
        half[8] = at.address + GV_BLOCK_BYTES + 4 <= piece->end ? *(const uint32_t *)(at.address + GV_BLOCK_BYTES) : 0;
        // Addresses are above 4 GiB: half of a word, the rest of which lies outside the piece, is none.
        for (int w = 0; w < 8; w++) {
            uint64_t value = (uint64_t)half[w + 1] << 32 | half[w];
            if (value >= low && value < high)
                look_at_address(job, piece->owner, value);
        }
        uint64_t begins = (uint64_t)half[1] << 32 | half[0];
        if (at.first == 0 && at.address % 64 == 0 && begins >= low && begins < high)
            look_for_map(job, piece->owner, at.address, piece->end);
    }
}
