// The patches the Sanitizer inserts at each memory instruction of an armed kernel. Compiled as a tools patch
// (nvcc --compile-as-tools-patch); the callback signatures are those of sanitizer_patching.h.
//
// A launch that is not being recorded has null user data, and its patches return at once.
#include "device/access_table.h"

#include <sanitizer_patching.h>

// Finds the page's slot, claiming a free one. Returns null when the neighbourhood is full. Slots are claimed with one
// compare-and-swap and never move, so threads need not wait for one another.
static __device__ __forceinline__ uint32_t *page_bits(gv_page_table *table, uint64_t page)
{
    uint64_t slots = table->slots;
    uint64_t slot = __umul64hi(GV_PAGE_HASH(page), slots);
    uint64_t wanted = page + 1;
    for (int probe = 0; probe < GV_TABLE_PROBES; probe++) {
        uint64_t key = *(volatile uint64_t *)&table->keys[slot];
        if (key == 0)
            key = atomicCAS((unsigned long long *)&table->keys[slot], 0ull, (unsigned long long)wanted);
        if (key == 0 || key == wanted)
            return table->bits + slot * (GV_ACCESS_KINDS * GV_PAGE_WORDS);
        if (++slot == slots)
            slot = 0;
    }
    table->overflow = 1;
    return nullptr;
}

// Marks the units [first, last] of one table.
static __device__ __forceinline__ void mark_units(gv_page_table *table, uint64_t first, uint64_t last, int kind)
{
    while (first <= last) {
        uint64_t page = first / GV_PAGE_UNITS;
        uint64_t page_last = page * GV_PAGE_UNITS + (GV_PAGE_UNITS - 1);
        uint64_t stop = last < page_last ? last : page_last;
        uint32_t *bits = page_bits(table, page);
        if (!bits)
            return;
        bits += kind * GV_PAGE_WORDS;
        while (first <= stop) {
            uint32_t word = (uint32_t)(first % GV_PAGE_UNITS) / 32;
            uint32_t low = (uint32_t)first % 32;
            uint32_t count = (uint32_t)(stop - first) < 31 - low ? (uint32_t)(stop - first) + 1 : 32 - low;
            uint32_t mask = (count == 32 ? 0xffffffffu : (1u << count) - 1u) << low;
            // Most accesses repeat: a plain load that sees the bits saves the atomic. A stale one only costs it.
            if ((bits[word] & mask) != mask)
                atomicOr(&bits[word], mask);
            first += count;
        }
    }
}

static __device__ __forceinline__ void mark(void *user_data, uint64_t address, uint64_t size, int kind)
{
    gv_access_table *access = (gv_access_table *)user_data;
    if (!access || !size)
        return;
    if (((address | size) & 3) == 0)
        mark_units(&access->tables[GV_TABLE_WORDS], address >> 2, (address + size - 1) >> 2, kind);
    else
        mark_units(&access->tables[GV_TABLE_BYTES], address, address + size - 1, kind);
}

// Loads, stores and atomics on global memory. An atomic arrives with both the read and the write flag.
extern "C" __device__ __noinline__ SanitizerPatchResult gravel_global(void *user_data, uint64_t pc, void *pointer,
                                                                      uint32_t size, uint32_t flags, const void *data)
{
    const uint32_t both = SANITIZER_MEMORY_DEVICE_FLAG_READ | SANITIZER_MEMORY_DEVICE_FLAG_WRITE;
    if (flags & SANITIZER_MEMORY_DEVICE_FLAG_PREFETCH)
        return SANITIZER_PATCH_SUCCESS;
    int kind = (flags & both) == both                          ? GV_ACCESS_ATOMIC
               : (flags & SANITIZER_MEMORY_DEVICE_FLAG_WRITE) ? GV_ACCESS_WRITE
                                                              : GV_ACCESS_READ;
    mark(user_data, (uint64_t)pointer, size, kind);
    return SANITIZER_PATCH_SUCCESS;
}

// cp.async: global to shared, 4 to 16 bytes. A null source means that only zeros are stored.
extern "C" __device__ __noinline__ SanitizerPatchResult gravel_copy_async(void *user_data, uint64_t pc, void *source,
                                                                          uint32_t destination, uint32_t size)
{
    if (source)
        mark(user_data, (uint64_t)source, size, GV_ACCESS_READ);
    return SANITIZER_PATCH_SUCCESS;
}

// cp.async.bulk, counted in blocks of 16 bytes.
extern "C" __device__ __noinline__ SanitizerPatchResult gravel_bulk_read(void *user_data, uint64_t pc, uint64_t source,
                                                                         uint32_t destination, uint32_t barrier,
                                                                         uint32_t data, uint32_t is_multicast)
{
    mark(user_data, source, (uint64_t)(data & 0xffff) * 16, GV_ACCESS_READ);
    return SANITIZER_PATCH_SUCCESS;
}

extern "C" __device__ __noinline__ SanitizerPatchResult gravel_bulk_write(void *user_data, uint64_t pc,
                                                                          uint64_t destination, uint32_t source,
                                                                          uint32_t blocks)
{
    mark(user_data, destination, (uint64_t)blocks * 16, GV_ACCESS_WRITE);
    return SANITIZER_PATCH_SUCCESS;
}

extern "C" __device__ __noinline__ SanitizerPatchResult gravel_bulk_reduce(void *user_data, uint64_t pc,
                                                                           uint64_t destination, uint32_t source,
                                                                           uint32_t blocks)
{
    mark(user_data, destination, (uint64_t)blocks * 16, GV_ACCESS_ATOMIC);
    return SANITIZER_PATCH_SUCCESS;
}
