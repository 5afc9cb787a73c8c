// Marking bytes in an access table: what the patches do with each access they are told of. C as well as CUDA C++, so
// that it can be tested on the host.
#ifndef GV_DEVICE_MARK_H
#define GV_DEVICE_MARK_H

#include "device/access_table.h"

#ifdef __CUDACC__
#define GV_MARK_FUNCTION static __device__ __forceinline__
#define GV_ATOMIC_CAS64(address, expected, wanted) \
    atomicCAS((unsigned long long *)(address), (unsigned long long)(expected), (unsigned long long)(wanted))
#define GV_ATOMIC_CAS32(address, expected, wanted) atomicCAS((unsigned int *)(address), expected, wanted)
#define GV_ATOMIC_OR(address, bits)                atomicOr((unsigned int *)(address), bits)
#define GV_FENCE()                                 __threadfence()
#define GV_HIGH_PRODUCT(a, b)                      __umul64hi(a, b)
#else
#define GV_MARK_FUNCTION                           static inline
static inline uint64_t gv_cas64(uint64_t *address, uint64_t expected, uint64_t wanted)
{
    __atomic_compare_exchange_n(address, &expected, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
static inline uint32_t gv_cas32(uint32_t *address, uint32_t expected, uint32_t wanted)
{
    __atomic_compare_exchange_n(address, &expected, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
#define GV_ATOMIC_CAS64(address, expected, wanted) gv_cas64(address, expected, wanted)
#define GV_ATOMIC_CAS32(address, expected, wanted) gv_cas32(address, expected, wanted)
#define GV_ATOMIC_OR(address, bits)                __atomic_fetch_or(address, bits, __ATOMIC_RELAXED)
#define GV_FENCE()                                 __sync_synchronize() // GCC refuses an atomic fence under -fsanitize=thread
#define GV_HIGH_PRODUCT(a, b)                      ((uint64_t)((unsigned __int128)(a) * (b) >> 64))
#endif

// ---- Bytes ---------------------------------------------------------------------------------------------------

GV_MARK_FUNCTION uint64_t gv_page_slot(const gv_page_table *table, uint64_t page)
{
    return GV_HIGH_PRODUCT(GV_PAGE_HASH(page), table->slots);
}

// Finds the page's slot, claiming a free one. Returns null when the neighbourhood is full. Slots are claimed with one
// compare-and-swap and never move, so threads need not wait for one another.
GV_MARK_FUNCTION uint32_t *gv_page_bits(gv_page_table *table, uint64_t page)
{
    uint64_t slots = table->slots;
    uint64_t slot = gv_page_slot(table, page);
    uint64_t wanted = page + 1;
    for (int probe = 0; probe < GV_TABLE_PROBES; probe++) {
        uint64_t key = *(volatile uint64_t *)&table->keys[slot];
        if (key == 0)
            key = GV_ATOMIC_CAS64(&table->keys[slot], 0, wanted);
        if (key == 0 || key == wanted)
            return table->bits + slot * (GV_ACCESS_KINDS * GV_PAGE_WORDS);
        if (++slot == slots)
            slot = 0;
    }
    table->overflow = 1;
    return 0;
}

// Bits for the units from `unit` to `stop` that share a bitmap word with `unit`, and how many they are.
GV_MARK_FUNCTION uint32_t gv_unit_mask(uint32_t unit, uint32_t stop, uint32_t *count)
{
    uint32_t low = unit % 32;
    *count = stop - unit < 31 - low ? stop - unit + 1 : 32 - low;
    return (*count == 32 ? 0xffffffffu : (1u << *count) - 1u) << low;
}

// Marks the units [first, last] of one table.
GV_MARK_FUNCTION void gv_mark_units(gv_page_table *table, uint64_t first, uint64_t last, int kind)
{
    while (first <= last) {
        uint64_t page = first / GV_PAGE_UNITS;
        uint64_t page_last = page * GV_PAGE_UNITS + (GV_PAGE_UNITS - 1);
        uint64_t stop = last < page_last ? last : page_last;
        uint32_t *bits = gv_page_bits(table, page);
        if (!bits)
            return;
        bits += kind * GV_PAGE_WORDS;
        // From here on numbers of units in the page.
        uint32_t unit = (uint32_t)first % GV_PAGE_UNITS, end = (uint32_t)stop % GV_PAGE_UNITS;
        while (unit <= end) {
            uint32_t count, mask = gv_unit_mask(unit, end, &count);
            // Most accesses repeat: a plain load that sees the bits saves the atomic. A stale one only costs it.
            if ((bits[unit / 32] & mask) != mask)
                GV_ATOMIC_OR(&bits[unit / 32], mask);
            unit += count;
        }
        first = stop + 1;
    }
}

// Marks `size` bytes at `address` as accessed in the way of `kind` (enum gv_access_kind).
GV_MARK_FUNCTION void gv_mark(gv_access_table *access, uint64_t address, uint64_t size, int kind)
{
    if (!size)
        return;
    if (((address | size) & 3) == 0)
        gv_mark_units(&access->tables[GV_TABLE_WORDS], address >> 2, (address + size - 1) >> 2, kind);
    else
        gv_mark_units(&access->tables[GV_TABLE_BYTES], address, address + size - 1, kind);
}

// ---- Tensor copies -------------------------------------------------------------------------------------------

enum { GV_ROWS_AT_ONCE = 4 };

// Marks the rows of a box. One thread issues a copy and marks all of its rows, so what counts is that it seldom waits:
// the look-ups of several rows are under way at once, and the bits are set without looking whether they are set already
// (nothing waits for an atomic whose result is not used).
GV_MARK_FUNCTION void gv_mark_rows(gv_access_table *access, const gv_tensor_rows *rows, int kind)
{
    gv_page_table *table = &access->tables[GV_TABLE_WORDS];
    const uint64_t page_bytes = 4 * GV_PAGE_UNITS;
    uint32_t bytes = rows->row_bytes;
    for (uint32_t outer = 0; outer < rows->outer; outer++) {
        uint64_t address = gv_tensor_outer(rows, outer);
        for (uint32_t row = 0; row < rows->count; row += GV_ROWS_AT_ONCE) {
            uint32_t slot[GV_ROWS_AT_ONCE]; // a table has less than 2^32
            uint64_t key[GV_ROWS_AT_ONCE];
            uint32_t left = rows->count - row;
            GV_UNROLL
            for (uint32_t i = 0; i < GV_ROWS_AT_ONCE; i++) {
                slot[i] = (uint32_t)gv_page_slot(table, (address + i * rows->stride) / page_bytes);
                key[i] = *(volatile uint64_t *)&table->keys[slot[i]];
            }
            uint32_t others = 0; // those that are not an aligned run in the first slot of their page
            GV_UNROLL
            for (uint32_t i = 0; i < GV_ROWS_AT_ONCE; i++) {
                uint64_t start = address + i * rows->stride, page = start / page_bytes;
                uint32_t unit = (uint32_t)(start / 4) % GV_PAGE_UNITS, stop = unit + (bytes - 1) / 4;
                if (i >= left)
                    continue;
                if (key[i] != page + 1 || ((uint32_t)start | bytes) & 3 || stop >= GV_PAGE_UNITS) {
                    others |= 1u << i;
                    continue;
                }
                uint32_t *bits = table->bits + ((uint64_t)slot[i] * GV_ACCESS_KINDS + kind) * GV_PAGE_WORDS;
                while (unit <= stop) {
                    uint32_t count, mask = gv_unit_mask(unit, stop, &count);
                    GV_ATOMIC_OR(&bits[unit / 32], mask);
                    unit += count;
                }
            }
            for (uint32_t i = 0; others >> i; i++)
                if (others >> i & 1)
                    gv_mark(access, address + i * rows->stride, bytes, kind);
            address += GV_ROWS_AT_ONCE * rows->stride;
        }
    }
}

GV_MARK_FUNCTION void gv_table_flag_set(gv_access_table *access, uint32_t flag)
{
    if (!(*(volatile uint32_t *)&access->flags & flag))
        GV_ATOMIC_OR(&access->flags, flag);
}

// Keeps a map, once for each kind, for the host to list the tensor's bytes. Threads that come at the same time may keep
// it twice.
GV_MARK_FUNCTION void gv_log_map(gv_access_table *access, const uint64_t *words, int kind)
{
    for (int i = 0; i < GV_LOGGED_MAPS; i++) {
        gv_logged_map *place = &access->maps[i];
        uint32_t state = *(volatile uint32_t *)&place->state;
        if (state == 0)
            state = GV_ATOMIC_CAS32(&place->state, 0, 1);
        if (state == 0) {
            GV_UNROLL
            for (int j = 0; j < GV_TENSOR_MAP_WORDS; j++)
                place->words[j] = words[j];
            place->kind = (uint32_t)kind;
            GV_FENCE();
            *(volatile uint32_t *)&place->state = 2;
            return;
        }
        // Another thread is writing: it may be the same map, and there it is in a moment.
        for (int wait = 0; state == 1 && wait < 1000; wait++)
            state = *(volatile uint32_t *)&place->state;
        bool same = state == 2 && *(volatile uint32_t *)&place->kind == (uint32_t)kind;
        GV_UNROLL
        for (int j = 0; j < GV_TENSOR_MAP_WORDS; j++)
            same = same && *(volatile uint64_t *)&place->words[j] == words[j];
        if (same)
            return;
    }
    gv_table_flag_set(access, GV_TABLE_MAPS_OVERFLOW);
}

// Marks what one tensor copy by the map with these words touches. `tiled`: the instruction is of the tiled mode.
// `early` is what an early access adds to its address (watch.h), or 0.
GV_MARK_FUNCTION void gv_mark_tensor(gv_access_table *access, const uint64_t *words, const int32_t *coordinates,
                                     bool tiled, int kind, uint64_t early)
{
    gv_tensor_map map;
    gv_tensor_rows rows;
    gv_table_flag_set(access, GV_TABLE_TENSOR_SEEN);
    if (!gv_tensor_map_decode(words, &map)) {
        gv_log_map(access, words, kind); // the host shows it
        gv_table_flag_set(access, GV_TABLE_MAP_UNKNOWN);
    } else if (tiled && gv_tensor_map_rows(&map, coordinates, &rows)) {
        rows.address += early;
        gv_mark_rows(access, &rows, kind);
    } else {
        gv_log_map(access, words, kind);
        if (early)
            gv_table_flag_set(access, GV_TABLE_EARLY_MAP);
    }
}

#endif
