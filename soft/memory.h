// Allocations of every kind, by address.
#ifndef GRAVEL_SOFT_MEMORY_H
#define GRAVEL_SOFT_MEMORY_H

#include "soft/driver.h"

enum memory_kind {
    MEMORY_DEVICE,
    MEMORY_MANAGED,
    MEMORY_PINNED,     // cuMemHostAlloc
    MEMORY_REGISTERED, // cuMemHostRegister: the program's own memory
    MEMORY_POOL,       // stream-ordered, live from the alloc call to the free call
    MEMORY_NODE,       // a graph's allocation node, and what its launches hand out
    MEMORY_GLOBAL,     // a module's variable
};

struct allocation {
    uint64_t address, size; // as asked for
    uint64_t reserved;      // bytes taken from the arena; 0 for memory that is not the driver's
    enum memory_kind kind;
    CUcontext context;
    unsigned flags;    // of the call that made it
    CUmemoryPool pool; // MEMORY_POOL
    void *owner;       // MEMORY_POOL: struct pool_block; MEMORY_NODE: struct graph_memory
    uint64_t id;
};

CUresult memory_initialise(void);

// Total device memory, and how much of it is taken.
uint64_t memory_total(void);
uint64_t memory_used(void);

// Takes device or pinned memory from the arena and lists it. `size` > 0. The result lives until memory_delete.
CUresult memory_new(uint64_t size, enum memory_kind kind, CUcontext context, struct allocation **made);

// Lists memory that is already there (registered, globals, blocks of a pool).
CUresult memory_list(uint64_t address, uint64_t size, enum memory_kind kind, CUcontext context,
                     struct allocation **made);

// Takes an allocation off the list and gives back what it took from the arena.
void memory_delete(struct allocation *allocation);

// Takes an allocation off the list but keeps its memory, which counts as used; and gives such memory, or a part of it,
// back. For pools, whose blocks are listed while they are live only.
void memory_hide(struct allocation *allocation);
void memory_give_hidden(uint64_t address, uint64_t size);

// The live allocation that holds `address`, or NULL.
struct allocation *memory_find(uint64_t address);

// The same for memory that the program may use now: an allocation node's memory is while a launch has handed it out.
struct allocation *memory_find_live(uint64_t address);

// Does [address, address + size) lie within one live allocation?
bool memory_covers(uint64_t address, uint64_t size);

// Is this address host memory that the driver does not know: neither in the arena nor registered?
bool memory_is_pageable(uint64_t address);

// Deletes all allocations of a context.
void memory_delete_context(CUcontext context);

#endif
