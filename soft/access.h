// Which bytes of the driver's memory kernels touched: recordings as gravel_soft.h offers them, and what a running
// kernel thread is watched by.
#ifndef GRAVEL_SOFT_ACCESS_H
#define GRAVEL_SOFT_ACCESS_H

#include "soft/kernel_abi.h"

#include <stdbool.h>
#include <stdint.h>

struct recording;
struct task;

// Watches one running task. Lives on the worker's stack; kernel code holds it as an opaque pointer.
struct observer {
    struct recording *recording; // NULL: not recorded
    struct task *task;           // of a schedule that switches at accesses, else NULL
    uint64_t budget;             // accesses until the next switch
    bool early;                  // the running thread has not come to its grid-dependency wait
    struct {
        uint64_t last_page; // cache of the recording's directory
        uint64_t *last_bits;
    } cache[2]; // of all accesses, and of the early ones
};

// The recording that the calling thread has begun, with a reference for a task that it launches; NULL when none.
struct recording *recording_for_launch(void);
struct recording *recording_keep(struct recording *recording);
void recording_release(struct recording *recording);

// What a kernel of the recording did: enum gravel_soft_grid.
void recording_note_grid(struct recording *recording, unsigned grid);

// The hook that kernels call.
void access_hook(void *observer, uint64_t address, uint64_t size, enum gravel_soft_touch touch);

// Not 0 while any observer may exist; kernels read it without a lock.
extern int access_observed;

// Adds to access_observed: one for each recording and one for a schedule that switches at accesses.
void access_observe(int change);

// Ranges outside the arena that belong to the driver: registered host memory and module variables. The driver's lock
// is held.
bool access_add_range(uint64_t start, uint64_t end);
void access_remove_range(uint64_t start, uint64_t end);

#endif
