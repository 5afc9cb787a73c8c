// What the sources of the canaries share: regions, the steps since they were hashed, and the lock that guards it all.
//
//     canary.c         options, regions from their declaration to their end, what the hooks tell
//     canary_allow.c   what a step may change, transfers
//     canary_step.c    the end of a step: enqueueing a hash, and what it found
#ifndef GV_RECORD_CANARY_CORE_H
#define GV_RECORD_CANARY_CORE_H

#include "record/canary.h"
#include "record/hash.h"
#include "record/page_set.h"
#include "record/pattern.h"
#include "record/recorder.h"

#include <pthread.h>
#include <stdatomic.h>

enum { GV_CANARY_NAME = 96 };

// The steps since a region was hashed.
typedef struct gv_watched_steps {
    uint64_t first, step;      // numbers in the group
    uint64_t since, operation; // all their work is among the operations (since, operation]
    bool unknown;              // what they were allowed to change is not known
    gv_page_set allowed, exempt;
    uint64_t *anew; // pairs: a page that was hashed anew in between, and the last operation before
    size_t anew_count, anew_capacity;
} gv_watched_steps;

// A tensor of slots that is read when the step ends.
typedef struct gv_watched_tensor {
    uint64_t address, count, slots_per_page;
    unsigned index_bytes;
} gv_watched_tensor;

typedef struct gv_watched {
    struct gv_watched *next;
    uint64_t id, group;
    uint64_t base, bytes, page_bytes, pages;
    unsigned flags; // enum gv_watched_flag
    char name[GV_CANARY_NAME];
    CUcontext context;
    CUdevice device;
    uint64_t stack, declared_at; // of the declaration: the stack, the operation before it
    bool announced;              // its record is written
    bool declared;               // something was declared as allowed, at some time
    bool nonsense_said;
    gv_hashed *hashed;   // NULL until its first step ends
    bool pending, first; // a hash is under way; and it is the first one
    gv_watched_steps now, hashing;
    gv_page_set changed;                  // scratch
    gv_watched_tensor *tensors, *reading; // to be read when the step ends; perhaps being read now
    size_t tensor_count, tensor_capacity, reading_count, reading_capacity;
    gravel_allow_function *callback;
    void *user;
    uint64_t hits;
} gv_watched;

typedef struct gv_watched_transfer {
    struct gv_watched_transfer *next;
    uint64_t id, region;
    gv_page_set pages;
} gv_watched_transfer;

typedef struct gv_watched_group {
    uint64_t number, steps;
} gv_watched_group;

// What a region that has ended had on the device: freeing it may wait for the device.
typedef struct gv_watched_ended {
    struct gv_watched_ended *next;
    CUcontext context;
    gv_hashed *hashed;
} gv_watched_ended;

// The kernels of a context; tested before they are used.
typedef struct gv_watched_context {
    CUcontext context;
    CUdevice device;
    gv_hasher *hasher;
} gv_watched_context;

// All of it. `lock` guards what is not atomic and not an option; while it is held nothing is waited for.
typedef struct gv_canary {
    struct {
        atomic_bool on, aborts; // the others are written once, before anything else is
        bool canary, records, checksums, self_test_fails;
        uint64_t every;
        gv_pattern *patterns;
        size_t pattern_count;
    } options;
    pthread_mutex_t lock;
    gv_watched *regions; // in the order of their declaration
    gv_watched_transfer *transfers;
    gv_watched_group *groups;
    size_t group_count, group_capacity;
    gv_watched_context *contexts;
    size_t context_count, context_capacity;
    gv_watched_ended *ended;
    uint64_t last_region, last_transfer;
    atomic_uint armed_for_hits;
    atomic_bool failed; // for good: the self-test, or a driver that refuses
    atomic_bool steps_declared, any_matched, any_region;
} gv_canary;

extern gv_canary gv_the_canary;

// Which regions something is about.
typedef struct gv_watched_selector {
    bool by_group;
    uint64_t group;
    uint64_t start, end; // or those that overlap this
} gv_watched_selector;

// ---- With the lock held ----
gv_watched *gv_canary_find(uint64_t id);
gv_watched_group *gv_canary_group_of(uint64_t number); // NULL: memory is out

// Writes the region's record, before the first one that names it: its group is known by then.
void gv_canary_announce(gv_watched *r);

// Takes the region out of everything; gv_canary_free_ended is to be called without the lock. `forget`: its memory on
// the device is gone, or still in use.
void gv_canary_end_region(gv_watched *r, enum gv_region_end_reason why, bool forget);

// The same, because of a failure.
void gv_canary_break(gv_watched *r, const char *why);

// Says once for a region that a declaration makes no sense.
void gv_canary_nonsense(gv_watched *r, const char *what, uint64_t how_many);

bool gv_canary_selected(const gv_watched *r, const gv_watched_selector *s);

// Writes down what a hash found that has come to its end.
void gv_canary_resolve(gv_watched *r);

// ---- Without it ----
// Frees what ended regions had on the device.
void gv_canary_free_ended(void);

// Waits until no hash of these regions is under way.
void gv_canary_settle_all(const gv_watched_selector *s, double seconds);

// A step of the group ends.
void gv_canary_step_ends(uint64_t number, CUstream stream);

#endif
