// Canaries and checksums: regions that are hashed between steps, and what a step changed compared with what it was
// declared to change (docs/canary.md).
//
// A hash is enqueued behind the work of its step and looked at when the next step ends, so that the program does not
// wait for it; with --canary=abort it is waited for at once. One lock guards everything; while it is held nothing is
// waited for. Every function may be called by any thread, and does nothing when neither --canary nor --checksums was
// given.
#ifndef GV_RECORD_CANARY_H
#define GV_RECORD_CANARY_H

#include "access/range_set.h"
#include "gravel.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Reads GRAVEL_CANARY, GRAVEL_CHECKSUMS and GRAVEL_CANARY_REGIONS. Called once, when recording begins.
void gv_canary_start(void);

// Was either asked for?
bool gv_canary_is_on(void);

// ---- What the program declares (gravel.h); called between gv_enter and gv_leave ----

// Checks and keeps a region; `what` is GRAVEL_REGION_CANARY_ and GRAVEL_REGION_CHECKSUM_. 0: refused, with a line on
// standard error.
uint64_t gv_canary_region(const char *name, uint64_t base, uint64_t bytes, uint64_t page_bytes, unsigned what);
void gv_canary_region_end(uint64_t region);
void gv_canary_group(uint64_t region, uint64_t group);
void gv_canary_allow_slots(uint64_t region, const int64_t *slots, size_t count, uint64_t slots_per_page);
void gv_canary_allow_index(uint64_t region, uint64_t address, size_t count, unsigned index_bytes,
                           uint64_t slots_per_page);
void gv_canary_allow_callback(uint64_t region, gravel_allow_function *function, void *user);
void gv_canary_allow_all(uint64_t region);
uint64_t gv_canary_transfer_begin(uint64_t region, const int64_t *pages, size_t count);
void gv_canary_transfer_end(uint64_t transfer);

// Asks the callbacks of a group's regions. Called without gv_enter: they are the program's code.
void gv_canary_ask(uint64_t group);

// A step of the group ends on this stream.
void gv_canary_step(uint64_t group, CUstream stream);

// Adds the memory of all regions to `set`. False: memory is out.
bool gv_canary_memory(gv_range_set *set);

// ---- What the hooks tell ----

// An allocation, for the patterns of --canary-region.
void gv_canary_allocated(uint64_t address, uint64_t size, const char *name);

// Memory is about to be freed, a context to be destroyed, or a device to be reset: what is hashed there ends before.
void gv_canary_freeing(uint64_t address, uint64_t size);
void gv_canary_context_ends(CUcontext context);
void gv_canary_device_resets(CUdevice device);

// Looks at every hash that is under way, waiting for it a little.
void gv_canary_settle(void);

// The same without waiting: a context was synchronized, so that all hashes in it have come to their end. A program's
// last step is looked at in this way: at its end the driver may be gone.
void gv_canary_synchronized(void);

// A graph was launched: the end of a step for regions of patterns, where the program declares no steps.
void gv_canary_launched(CUstream stream);

// The process ends: what has been hashed is looked at.
void gv_canary_finish(void);

void gv_canary_after_fork(void);

#endif
