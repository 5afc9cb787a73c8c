// The opcodes, and where a branch keeps its target, were found by disassembling kernels compiled for sm_90a, sm_100a
// and sm_120a, where they are the same (docs/recorder.md). What is not known here makes a kernel one that is not split.
#include "record/flow.h"

#include "base/memory.h"
#include "record/cubin.h"

#include <string.h>

enum { INSTRUCTION_BYTES = 16, MOST_BARRIERS = 16, MBARRIER_ARRIVE = 0x9a7 };

enum operation {
    TRIGGER = 0x02d, // PREEXIT
    WAIT = 0x02e,    // ACQBULK
    BARRIER = 0x11d, // BAR
    CLUSTER_BARRIER = 0x1c7,
    MBARRIER = 0x1a7, // SYNCS
    CONVERGE = 0x141, // BSYNC
    BREAK = 0x142,
    CALL_ABSOLUTE = 0x143,
    CALL = 0x144,         // CALL.REL
    SET_CONVERGE = 0x145, // BSSY
    YIELD = 0x146,
    BRANCH = 0x147, // BRA
    WARP_SYNC = 0x148,
    BRANCH_INDEXED = 0x149, // BRX
    EXIT = 0x14d,
    RETURN = 0x150,
    MOVE_CONVERGE = 0x155, // BMOV, two of them
    MOVE_CONVERGE_TOO = 0x156,
    BRANCH_INDEXED_TOO = 0x158, // BRXU
    TRAP = 0x15c,               // BPT
    SLEEP = 0x15d,              // NANOSLEEP
};

typedef struct instruction {
    uint64_t low, high;
    unsigned operation, form; // the nine low bits, and all twelve
    bool predicated;          // some threads may not execute it
} instruction;

typedef struct analysis {
    const unsigned char *code, *tables;
    size_t tables_size;
    uint32_t count;
    uint32_t *stack;
    bool unknown; // control goes where this code cannot follow
} analysis;

static instruction decode(const analysis *a, uint32_t index)
{
    instruction i;
    memcpy(&i.low, a->code + (size_t)index * INSTRUCTION_BYTES, sizeof i.low);
    memcpy(&i.high, a->code + (size_t)index * INSTRUCTION_BYTES + 8, sizeof i.high);
    i.form = i.low & 0xfff;
    i.operation = i.low & 0x1ff;
    i.predicated = (i.low >> 12 & 0xf) != 7;
    return i;
}

static void set(uint32_t *bits, uint32_t index)
{
    bits[index / 32] |= 1u << index % 32;
}

// Where a branch or a call leads, or UINT32_MAX. The offset counts from the next instruction, in units of four bytes:
// 56 bits in three pieces.
static uint32_t branch_target(const analysis *a, uint32_t index, const instruction *i)
{
    uint64_t field = (i->low >> 16 & 0xff) | (i->low >> 34) << 8 | (i->high & 0x3ffff) << 38;
    int64_t offset = (int64_t)(field << 8) >> 8;
    int64_t target = (int64_t)index + 1 + offset / 4;
    return offset % 4 == 0 && target >= 0 && target < a->count ? (uint32_t)target : UINT32_MAX;
}

// Where the threads that meet at a BSYNC go on; from the next instruction, in bytes.
static uint32_t converge_target(const analysis *a, uint32_t index, const instruction *i)
{
    int64_t offset = (int32_t)(i->low >> 32), target = (int64_t)index + 1 + offset / INSTRUCTION_BYTES;
    return offset % INSTRUCTION_BYTES == 0 && target >= 0 && target < a->count ? (uint32_t)target : UINT32_MAX;
}

// Control goes on at up to two places, UINT32_MAX is none; by an indexed branch in `listed`, or anywhere in the kernel.
typedef struct following {
    uint32_t next, target;
    const unsigned char *listed; // offsets of 32 bits
    uint32_t listed_count;
    bool anywhere;
} following;

static uint32_t word_at(const unsigned char *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

// Where an indexed branch goes on, by the compiler's list.
static void look_up(const analysis *a, uint32_t index, following *f)
{
    enum { HEAD = 12, WORD = 4 };
    f->anywhere = true;
    for (size_t at = 0; a->tables && a->tables_size - at >= HEAD;) {
        const unsigned char *entry = a->tables + at;
        uint32_t places = word_at(entry + 8);
        if (places > (a->tables_size - at - HEAD) / WORD)
            return;
        at += HEAD + (size_t)places * WORD;
        if (word_at(entry) != index * INSTRUCTION_BYTES)
            continue;
        for (uint32_t i = 0; i < places; i++) {
            uint32_t place = word_at(entry + HEAD + (size_t)i * WORD);
            if (place % INSTRUCTION_BYTES || place / INSTRUCTION_BYTES >= a->count)
                return;
        }
        f->listed = entry + HEAD;
        f->listed_count = places;
        f->anywhere = places == 0;
        return;
    }
}

static following follow(analysis *a, uint32_t index, const instruction *i, bool into_calls)
{
    following f = {.next = index + 1 < a->count ? index + 1 : UINT32_MAX, .target = UINT32_MAX};
    switch (i->operation) {
    case EXIT:
        if (!i->predicated)
            f.next = UINT32_MAX;
        break;
    case RETURN:
        // What it returns to has been followed behind the call.
        if (!i->predicated)
            f.next = UINT32_MAX;
        break;
    case BRANCH:
        f.target = branch_target(a, index, i);
        a->unknown |= f.target == UINT32_MAX;
        // The form with a second, uniform predicate has another opcode; bits 87 to 90 hold a further predicate.
        if (i->form == 0x947 && !i->predicated && (i->high >> 23 & 0xf) == 7)
            f.next = UINT32_MAX;
        break;
    case BRANCH_INDEXED:
    case BRANCH_INDEXED_TOO:
        look_up(a, index, &f);
        if (!i->predicated)
            f.next = UINT32_MAX;
        break;
    case SET_CONVERGE:
        f.target = converge_target(a, index, i);
        a->unknown |= f.target == UINT32_MAX;
        break;
    case CALL:
        if (i->form != 0x944)
            a->unknown = true; // through a register
        else if (into_calls) {
            // One that the loader is to fill in would seem to lead to the next instruction.
            f.target = branch_target(a, index, i);
            a->unknown |= f.target == UINT32_MAX || f.target == index + 1;
        }
        break;
    case CONVERGE:
    case YIELD:
    case MOVE_CONVERGE:
    case MOVE_CONVERGE_TOO:
    case BREAK:
    case TRAP:
    case SLEEP: break;
    case WARP_SYNC:
        // WARPSYNC.ALL goes on behind itself, WARPSYNC.COLLECTIVE there or at its target; other forms are not known.
        if (i->form == 0x348)
            f.target = branch_target(a, index, i);
        a->unknown |= i->form != 0x948 && f.target == UINT32_MAX;
        break;
    default:
        if (i->operation >= 0x140 && i->operation <= 0x15f)
            a->unknown = true;
        break;
    }
    return f;
}

// Marks what can be executed from `start` on. A wait ends the way of the threads that execute it, if `until_wait`;
// `without` (UINT32_MAX: none) is an instruction nobody gets past.
static void reach(analysis *a, uint32_t start, bool until_wait, bool into_calls, uint32_t without, uint32_t *bits)
{
    size_t top = 0;
    if (start < a->count && start != without && !gv_flow_has(bits, start)) {
        set(bits, start);
        a->stack[top++] = start;
    }
    while (top) {
        uint32_t index = a->stack[--top];
        instruction i = decode(a, index);
        if (until_wait && i.operation == WAIT && !i.predicated)
            continue;
        following f = follow(a, index, &i, into_calls);
        uint32_t places = f.anywhere ? a->count : f.listed_count;
        for (uint32_t p = 0; p < 2 + places; p++) {
            uint32_t place = p == 0       ? f.next
                             : p == 1     ? f.target
                             : f.anywhere ? p - 2
                                          : word_at(f.listed + (size_t)(p - 2) * 4) / INSTRUCTION_BYTES;
            if (place == UINT32_MAX || place == without || gv_flow_has(bits, place))
                continue;
            set(bits, place);
            a->stack[top++] = place;
        }
    }
}

static bool is_call(unsigned operation)
{
    return operation == CALL || operation == CALL_ABSOLUTE;
}

// Can a thread meet others here? Not by what only sets up an mbarrier or arrives at it.
static bool is_barrier(const instruction *i)
{
    return i->operation == BARRIER || i->operation == CLUSTER_BARRIER ||
           (i->operation == MBARRIER && i->form != MBARRIER_ARRIVE);
}

// May it access memory that other kernels can access too? Of the operations on memory these cannot: loads of constants,
// local and shared memory, shuffles, cache control, fences, barriers in shared memory.
static bool may_access(unsigned operation)
{
    static const uint16_t harmless[] = {0x182, 0x183, 0x184, 0x187, 0x188, 0x189, 0x18f, 0x192,
                                        0x1a7, 0x1ab, 0x1ac, 0x1af, 0x1b2, 0x1b7, 0x1b9};
    if (operation < 0x160 || operation > 0x1bf)
        return false;
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (operation == harmless[i])
            return false;
    return true;
}

// Can threads that have not waited have met one, at a barrier, that has? Not at one that every thread passes on its way
// to any wait. Marks what comes behind all others in `behind`. False when there are too many to tell, as in kernels
// whose warps have roles of their own.
static bool find_meetings(analysis *a, const gv_kernel_flow *flow, uint32_t *scratch, uint32_t *behind)
{
    size_t words = ((size_t)a->count + 31) / 32, barriers = 0;
    uint32_t found[MOST_BARRIERS];
    for (uint32_t index = 0; index < a->count; index++) {
        instruction i = decode(a, index);
        if (!gv_flow_has(flow->before, index) || !is_barrier(&i))
            continue;
        if (barriers == MOST_BARRIERS)
            return false;
        found[barriers++] = index;
    }
    for (size_t b = 0; b < barriers; b++) {
        memset(scratch, 0, words * sizeof *scratch);
        reach(a, 0, true, true, found[b], scratch);
        bool passed_by_all = !decode(a, found[b]).predicated;
        for (uint32_t index = 0; index < a->count && passed_by_all; index++)
            passed_by_all = !(gv_flow_has(scratch, index) && decode(a, index).operation == WAIT);
        if (!passed_by_all)
            reach(a, found[b] + 1, true, true, UINT32_MAX, behind);
    }
    return true;
}

// Does every thread that does not end trigger before it waits: is the trigger on the way that has no branches?
static bool triggers_at_once(const analysis *a)
{
    for (uint32_t index = 0; index < a->count; index++) {
        instruction i = decode(a, index);
        if (i.operation == TRIGGER && !i.predicated)
            return true;
        if (i.operation == WAIT || (i.operation >= 0x140 && i.operation <= 0x15f && i.operation != EXIT) ||
            (i.operation == EXIT && !i.predicated))
            return false;
    }
    return false;
}

static void judge(analysis *a, gv_kernel_flow *flow, uint32_t *scratch, uint32_t *behind)
{
    bool split = find_meetings(a, flow, scratch, behind), triggers_early = false;
    flow->followed = !a->unknown;
    // Without following calls, all waits must be met: one inside a function would be hidden from what follows the call.
    memset(scratch, 0, (a->count + 31) / 32 * sizeof *scratch);
    reach(a, 0, false, false, UINT32_MAX, scratch);
    for (uint32_t index = 0; index < a->count; index++) {
        unsigned operation = decode(a, index).operation;
        bool before = gv_flow_has(flow->before, index), after = gv_flow_has(flow->after, index);
        if (before)
            flow->early_flags |= gv_instruction_flags(a->code + (size_t)index * INSTRUCTION_BYTES);
        if (operation == WAIT && (before || after) && !gv_flow_has(scratch, index))
            flow->followed = false;
        if (may_access(operation) && before && (after || gv_flow_has(behind, index)))
            split = false;
        if (may_access(operation) || operation == EXIT)
            set(flow->watched, index);
        triggers_early |= operation == TRIGGER && before;
    }
    flow->split = split && flow->followed;
    // A block that never triggers does so by its end, which comes behind the wait of its threads.
    flow->trigger = !triggers_early       ? GV_GRID_TRIGGER_LATE
                    : triggers_at_once(a) ? GV_GRID_TRIGGER_EARLY
                                          : GV_GRID_TRIGGER_UNKNOWN;
}

bool gv_flow_analyse(const unsigned char *code, size_t size, const unsigned char *tables, size_t tables_size,
                     gv_kernel_flow *flow)
{
    analysis a = {
        .code = code, .tables = tables, .tables_size = tables_size, .count = (uint32_t)(size / INSTRUCTION_BYTES)};
    *flow = (gv_kernel_flow){.instructions = a.count};
    for (uint32_t index = 0; index < a.count; index++) {
        unsigned operation = decode(&a, index).operation;
        flow->waits |= operation == WAIT;
        flow->triggers |= operation == TRIGGER;
        flow->calls |= is_call(operation);
    }
    if (!flow->waits)
        return true;
    size_t words = ((size_t)a.count + 31) / 32;
    uint32_t *scratch = gv_calloc(words, sizeof *scratch), *behind = gv_calloc(words, sizeof *behind);
    a.stack = gv_calloc((size_t)a.count + 1, sizeof *a.stack);
    flow->before = gv_calloc(words, sizeof *flow->before);
    flow->after = gv_calloc(words, sizeof *flow->after);
    flow->watched = gv_calloc(words, sizeof *flow->watched);
    bool enough = scratch && behind && a.stack && flow->before && flow->after && flow->watched;
    if (enough) {
        reach(&a, 0, true, true, UINT32_MAX, flow->before);
        for (uint32_t index = 0; index < a.count; index++)
            if (gv_flow_has(flow->before, index) && decode(&a, index).operation == WAIT)
                reach(&a, index + 1, false, true, UINT32_MAX, flow->after);
        judge(&a, flow, scratch, behind);
    } else {
        gv_flow_free(flow);
    }
    gv_free(scratch);
    gv_free(behind);
    gv_free(a.stack);
    return enough;
}

void gv_flow_free(gv_kernel_flow *flow)
{
    gv_free(flow->before);
    gv_free(flow->after);
    gv_free(flow->watched);
    *flow = (gv_kernel_flow){0};
}
