// Telling accesses before a kernel's grid-dependency wait from those after it: what the patches do with each access of
// a kernel that stands behind a programmatic edge, beside marking it (mark.h). C as well as CUDA C++, so that it can be
// tested on the host.
//
// Two ways. By code: the host has followed the kernel's control flow and says of each instruction on which side of the
// wait it lies. Or held: a kernel of gravel's own stands in front and lets the wait return only when the host says so;
// whatever is accessed until then comes before the wait. Blocks that begin only later have nothing to wait for any
// more: their accesses count as early where an instruction makes them that has made early ones, and of other
// instructions the host has to know (src/record/waits.c) that they come after the wait.
#ifndef GV_DEVICE_WATCH_H
#define GV_DEVICE_WATCH_H

#include "device/mark.h"

#ifdef __CUDACC__
#define GV_ATOMIC_ADD(address, number) atomicAdd((unsigned int *)(address), number)
#define GV_KEEP_LOOP                   _Pragma("unroll 1") // short code matters more here than speed
#else
#define GV_KEEP_LOOP
#define GV_ATOMIC_ADD(address, number) __atomic_fetch_add(address, number, __ATOMIC_RELAXED)
#endif

enum { GV_WATCH_PROBES = 64 };

GV_MARK_FUNCTION void gv_watch_note(gv_wait_watch *watch, uint32_t seen)
{
    if (!(*(volatile uint32_t *)&watch->seen & seen))
        GV_ATOMIC_OR(&watch->seen, seen);
}

GV_MARK_FUNCTION bool gv_watch_bit(const uint32_t *bits, uint64_t index)
{
    return bits[index / 32] >> index % 32 & 1;
}

// The slot of a program counter, or of a free place for it; null when there is none.
GV_MARK_FUNCTION gv_watched_pc *gv_watch_slot(gv_wait_watch *watch, uint64_t pc, bool claim)
{
    uint64_t slot = GV_HIGH_PRODUCT(GV_PAGE_HASH(pc), (uint64_t)GV_WATCH_PCS);
    GV_KEEP_LOOP
    for (int probe = 0; probe < GV_WATCH_PROBES; probe++) {
        gv_watched_pc *place = &watch->pcs[(slot + (uint64_t)probe) % GV_WATCH_PCS];
        uint64_t key = *(volatile uint64_t *)&place->pc;
        if (key == 0 && !claim)
            return 0;
        if (key == 0)
            key = GV_ATOMIC_CAS64(&place->pc, 0, pc + 1);
        if (key == 0 || key == pc + 1)
            return place;
    }
    gv_watch_note(watch, GV_WATCH_FULL);
    return 0;
}

GV_MARK_FUNCTION void gv_watch_pc(gv_wait_watch *watch, uint64_t pc, uint32_t how)
{
    gv_watched_pc *place = gv_watch_slot(watch, pc, true);
    if (place && !(*(volatile uint32_t *)&place->how & how))
        GV_ATOMIC_OR(&place->how, how);
}

// On which side of the wait does an instruction lie? What the kernel calls is part of its code.
GV_MARK_FUNCTION bool gv_watch_code(gv_wait_watch *watch, uint64_t pc, bool is_exit)
{
    uint64_t at = (pc - watch->base) / 16;
    bool inside = at < watch->instructions;
    bool before = inside && gv_watch_bit(watch->before, at), after = inside && gv_watch_bit(watch->after, at);
    // Ends may be shared by threads that have waited and others.
    if (before == after && !(before && is_exit))
        gv_watch_note(watch, GV_WATCH_ASTRAY);
    else if (after && !before)
        gv_watch_note(watch, GV_WATCH_AFTER);
    return before;
}

GV_MARK_FUNCTION bool gv_watch_is_held(const gv_wait_watch *watch)
{
    return *(const volatile uint32_t *)&watch->phase == GV_PHASE_HELD;
}

// After the release: did this block begin before it?
GV_MARK_FUNCTION bool gv_watch_began_held(gv_wait_watch *watch, uint64_t block)
{
    bool held = block < GV_WATCH_BLOCKS && gv_watch_bit(watch->blocks, block);
    gv_watch_note(watch, held ? GV_WATCH_RESUMED : GV_WATCH_BEGAN_LATER);
    return held;
}

GV_MARK_FUNCTION bool gv_watch_held(gv_wait_watch *watch, uint64_t pc, uint64_t block)
{
    if (gv_watch_is_held(watch)) {
        gv_watch_pc(watch, pc, GV_PC_HELD);
        GV_ATOMIC_ADD(&watch->activity, 1);
        return true;
    }
    bool began_held = gv_watch_began_held(watch, block);
    const gv_watched_pc *known = gv_watch_slot(watch, pc, false);
    if (known && *(const volatile uint32_t *)&known->how & GV_PC_HELD)
        return true;
    gv_watch_pc(watch, pc, began_held ? GV_PC_RELEASED : GV_PC_BEGAN_LATER);
    return false;
}

// What to add to the address of an access made by the instruction at `pc` in a block: 0, or GV_EARLY_ADDRESS.
GV_MARK_FUNCTION uint64_t gv_watch_access(gv_access_table *access, uint64_t pc, uint64_t block)
{
    gv_wait_watch *watch = &access->watch;
    uint32_t mode = watch->mode;
    if (mode == GV_WATCH_OFF)
        return 0;
    bool early = mode == GV_WATCH_CODE ? gv_watch_code(watch, pc, false) : gv_watch_held(watch, pc, block);
    return early ? GV_EARLY_ADDRESS : 0;
}

// A thread begins, and ends at the instruction at `pc`.
GV_MARK_FUNCTION void gv_watch_enter(gv_access_table *access, uint64_t block)
{
    gv_wait_watch *watch = &access->watch;
    if (watch->mode != GV_WATCH_HELD || !gv_watch_is_held(watch))
        return;
    GV_ATOMIC_ADD(&watch->entered, 1);
    if (block < GV_WATCH_BLOCKS && !gv_watch_bit(watch->blocks, block))
        GV_ATOMIC_OR(&watch->blocks[block / 32], 1u << block % 32);
}

GV_MARK_FUNCTION void gv_watch_exit(gv_access_table *access, uint64_t pc, uint64_t block)
{
    gv_wait_watch *watch = &access->watch;
    if (watch->mode == GV_WATCH_CODE)
        gv_watch_code(watch, pc, true);
    else if (watch->mode == GV_WATCH_HELD && gv_watch_is_held(watch))
        GV_ATOMIC_ADD(&watch->exited, 1);
    else if (watch->mode == GV_WATCH_HELD)
        gv_watch_began_held(watch, block);
}

#endif
