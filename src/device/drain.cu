// Empties an access table into a buffer the host can read, compactly: a page that was touched throughout is one entry,
// only partly touched ones carry their bitmap. Leaves the table ready for the next node.
#include "device/access_table.h"

// Launched as blocks of 256 threads; each warp takes 32 slots at a time.
extern "C" __global__ void gravel_drain(gv_access_table *access, uint32_t which, gv_drained_page *pages,
                                        uint32_t page_capacity, uint32_t *bitmaps, uint32_t bitmap_capacity,
                                        gv_drain_head *counters)
{
    gv_page_table *table = &access->tables[which];
    uint32_t lane = threadIdx.x % 32;
    uint64_t warp = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / 32;
    uint64_t warps = gridDim.x * (uint64_t)blockDim.x / 32;

    for (uint64_t base = warp * 32; base < table->slots; base += warps * 32) {
        uint64_t key = table->keys[base + lane];
        uint32_t used = __ballot_sync(0xffffffffu, key != 0);
        while (used) {
            int owner = __ffs(used) - 1;
            used &= used - 1;
            uint64_t page = __shfl_sync(0xffffffffu, key, owner) - 1;
            uint4 *bits = (uint4 *)(table->bits + (base + owner) * (GV_ACCESS_KINDS * GV_PAGE_WORDS));
            uint4 word[GV_ACCESS_KINDS];
            uint32_t mixed = 0;
            uint8_t states[GV_ACCESS_KINDS];
            for (int kind = 0; kind < GV_ACCESS_KINDS; kind++) {
                word[kind] = bits[kind * 32 + lane];
                uint32_t any = word[kind].x | word[kind].y | word[kind].z | word[kind].w;
                uint32_t all = word[kind].x & word[kind].y & word[kind].z & word[kind].w;
                bool some = __any_sync(0xffffffffu, any != 0);
                bool full = __all_sync(0xffffffffu, all == 0xffffffffu);
                states[kind] = full ? GV_PAGE_FULL : some ? GV_PAGE_MIXED : GV_PAGE_EMPTY;
                mixed += states[kind] == GV_PAGE_MIXED;
            }
            uint32_t at = 0, bitmap = 0;
            if (lane == 0) {
                at = atomicAdd(&counters->pages, 1u);
                bitmap = mixed ? atomicAdd(&counters->bitmaps, mixed) : 0;
            }
            at = __shfl_sync(0xffffffffu, at, 0);
            bitmap = __shfl_sync(0xffffffffu, bitmap, 0);
            if (at >= page_capacity || bitmap + mixed > bitmap_capacity) {
                // No room: the page stays for the next run. A page slot that was taken is marked as holding nothing.
                if (lane == 0) {
                    atomicAdd(&counters->left, 1u);
                    if (at < page_capacity) {
                        gv_drained_page nothing = {};
                        pages[at] = nothing;
                    }
                }
                continue;
            }
            uint32_t next = bitmap;
            for (int kind = 0; kind < GV_ACCESS_KINDS; kind++) {
                if (states[kind] == GV_PAGE_MIXED)
                    ((uint4 *)(bitmaps + (uint64_t)next++ * GV_PAGE_WORDS))[lane] = word[kind];
                if (states[kind] != GV_PAGE_EMPTY)
                    bits[kind * 32 + lane] = make_uint4(0, 0, 0, 0);
            }
            if (lane == 0) {
                gv_drained_page drained;
                drained.page = page;
                drained.bitmap = bitmap;
                drained.table = (uint8_t)which;
                for (int kind = 0; kind < GV_ACCESS_KINDS; kind++)
                    drained.states[kind] = states[kind];
                pages[at] = drained;
                table->keys[base + owner] = 0;
            }
        }
    }
}

// One thread, after the drains of both tables: hands the counts to the host and resets them. What is not a count stays
// until the tables are empty.
extern "C" __global__ void gravel_drain_finish(gv_access_table *access, gv_drain_head *head, gv_drain_head *counters)
{
    uint32_t left = counters->left, overflow = 0, maps = 0;
    for (int which = 0; which < GV_TABLES; which++) {
        overflow |= access->tables[which].overflow;
        if (!left)
            access->tables[which].overflow = 0;
    }
    for (int i = 0; i < GV_LOGGED_MAPS && access->maps[i].state; i++) {
        head->map[maps++] = access->maps[i];
        if (!left)
            access->maps[i].state = 0;
    }
    head->pages = counters->pages;
    head->bitmaps = counters->bitmaps;
    head->left = left;
    head->overflow = overflow;
    head->flags = access->flags;
    head->maps = maps;
    if (!left)
        access->flags = 0;
    counters->pages = counters->bitmaps = counters->left = 0;
}
