// Initialisation, the lock, fork handling, and the table of live handles.
#include "soft/driver.h"

#include "soft/context.h"
#include "soft/memory.h"
#include "soft/schedule.h"

#include <stdatomic.h>
#include <stdlib.h>

pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;

static atomic_bool initialised;
static atomic_bool forked; // this process is a child whose parent had called cuInit
static atomic_ullong calls;
static atomic_ullong thread_count;
static _Thread_local bool in_host_function;
static _Thread_local uint64_t thread_token;

// A child has the parent's state but none of its threads, and perhaps a lock nobody will give back: it may only be
// told that the driver is not there.
static void after_fork_in_child(void)
{
    atomic_store(&forked, true);
}

CUresult driver_enter(void)
{
    if (!atomic_load_explicit(&initialised, memory_order_acquire) ||
        atomic_load_explicit(&forked, memory_order_relaxed))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (in_host_function)
        return CUDA_ERROR_NOT_PERMITTED;
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    pthread_mutex_lock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult driver_leave(CUresult result)
{
    pthread_mutex_unlock(&driver_lock);
    return result;
}

uint64_t driver_calls(void)
{
    return atomic_load_explicit(&calls, memory_order_relaxed);
}

void driver_set_in_host_function(bool inside)
{
    in_host_function = inside;
}

uint64_t driver_thread(void)
{
    if (!thread_token)
        thread_token = atomic_fetch_add(&thread_count, 1) + 1;
    return thread_token;
}

CUresult cuInit(unsigned int flags)
{
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load(&forked))
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&driver_lock);
    if (!atomic_load(&initialised)) {
        result = memory_initialise();
        if (result == CUDA_SUCCESS)
            result = schedule_initialise(getenv("GRAVEL_SOFT_SCHEDULE"));
        if (result == CUDA_SUCCESS && pthread_atfork(NULL, NULL, after_fork_in_child))
            result = CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS)
            atomic_store_explicit(&initialised, true, memory_order_release);
    }
    pthread_mutex_unlock(&driver_lock);
    return result;
}

CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = SOFT_DRIVER_VERSION;
    return CUDA_SUCCESS;
}

// ---- Live handles: an open-addressing hash table of pointers ----

static struct object **slots;
static size_t slot_count; // a power of two, or 0
static size_t slots_used; // live ones and tombstones
static uint64_t last_id;
static struct object tombstone;

static size_t slot_of(const void *handle)
{
    uint64_t hash = (uint64_t)(uintptr_t)handle * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(hash >> 32) & (slot_count - 1);
}

static void slot_insert(struct object *object)
{
    size_t at = slot_of(object);
    while (slots[at])
        at = (at + 1) & (slot_count - 1);
    slots[at] = object;
    slots_used++;
}

// Rebuilds the table at a size that keeps it at most half full, dropping tombstones.
static bool slots_grow(void)
{
    size_t live = 0;
    for (size_t i = 0; i < slot_count; i++)
        live += slots[i] && slots[i] != &tombstone;
    size_t target = 256;
    while (target < (live + 1) * 4)
        target *= 2;
    struct object **old = slots;
    size_t old_count = slot_count;
    struct object **fresh = gv_calloc(target, sizeof *fresh);
    if (!fresh)
        return false;
    slots = fresh;
    slot_count = target;
    slots_used = 0;
    for (size_t i = 0; i < old_count; i++)
        if (old[i] && old[i] != &tombstone)
            slot_insert(old[i]);
    gv_free(old);
    return true;
}

bool object_register(struct object *object, enum object_kind kind)
{
    if ((slots_used + 1) * 2 > slot_count && !slots_grow())
        return false;
    object->kind = kind;
    object->id = ++last_id;
    slot_insert(object);
    return true;
}

static struct object **slot_find(const void *handle)
{
    if (!slot_count || !handle)
        return NULL;
    for (size_t at = slot_of(handle); slots[at]; at = (at + 1) & (slot_count - 1))
        if (slots[at] == handle)
            return &slots[at];
    return NULL;
}

void object_unregister(struct object *object)
{
    struct object **slot = slot_find(object);
    if (slot)
        *slot = &tombstone;
}

bool object_is(const void *handle, enum object_kind kind)
{
    struct object **slot = slot_find(handle);
    return slot && (*slot)->kind == kind;
}

void object_each(enum object_kind kind, void (*visit)(struct object *object, void *user), void *user)
{
    // Unregistering leaves tombstones and never moves a slot, so the walk survives it.
    for (size_t i = 0; i < slot_count; i++)
        if (slots[i] && slots[i] != &tombstone && slots[i]->kind == kind)
            visit(slots[i], user);
}
