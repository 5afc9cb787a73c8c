#include "record/ids.h"

#include "base/memory.h"
#include "record/canary.h"
#include "record/graph.h"
#include "record/handle_map.h"
#include "record/recorder.h"
#include "record/rows.h"
#include "record/source.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gv_handle_map contexts, streams, default_streams, events, functions, lives, sizes, kinds, mappings, exported,
    stream_contexts, captured, undescribed, context_numbers;
static uint64_t next_context, next_stream, next_event, next_function, next_allocation;
static atomic_ullong next_graph, next_exec;
static atomic_ullong live_bytes;

void gv_ids_forget(void)
{
    gv_handle_map empty = {0};
    contexts = streams = default_streams = events = functions = stream_contexts = empty;
    lives = sizes = kinds = mappings = exported = captured = undescribed = context_numbers = empty;
    next_context = next_stream = next_event = next_function = next_allocation = 0;
    atomic_store(&next_graph, 0);
    atomic_store(&next_exec, 0);
    atomic_store(&live_bytes, 0);
    pthread_mutex_init(&lock, NULL);
}

static uint64_t key_of(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

// ---- Contexts ------------------------------------------------------------------------------------------------

// Under the lock.
static uint64_t context_id(CUcontext context)
{
    if (!context)
        return 0;
    uint64_t id = gv_handle_map_get(&contexts, key_of(context));
    if (id)
        return id;
    CUdevice device = 0;
    char name[128] = "";
    int major = 0, minor = 0;
    CUcontext popped;
    if (gv_cuda.cuCtxPushCurrent(context) == CUDA_SUCCESS) {
        gv_cuda.cuCtxGetDevice(&device);
        gv_cuda.cuCtxPopCurrent(&popped);
    }
    gv_cuda.cuDeviceGetName(name, sizeof name, device);
    gv_cuda.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    gv_cuda.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    id = next_context + 1;
    if (!gv_handle_map_set(&contexts, key_of(context), id))
        return 0;
    next_context = id;
    unsigned long long number = 0;
    if (gv_cuda.cuCtxGetId(context, &number) == CUDA_SUCCESS)
        gv_handle_map_set(&context_numbers, key_of(context), number + 1);
    gv_context_record record = {
        .id = id,
        .device = (uint64_t)device,
        .device_name = {name, strlen(name)},
        .compute_capability = (uint64_t)(major * 10 + minor),
    };
    gv_write_context(gv_state.writer, &record);
    return id;
}

uint64_t gv_context_id(CUcontext context)
{
    pthread_mutex_lock(&lock);
    uint64_t id = context_id(context);
    pthread_mutex_unlock(&lock);
    return id;
}

// ---- Streams -------------------------------------------------------------------------------------------------

static void describe(uint64_t id, CUcontext context, unsigned kind, uint64_t priority)
{
    gv_stream_record record = {.id = id, .context = context_id(context), .kind = kind, .priority = priority};
    gv_write_stream(gv_state.writer, &record);
}

static uint64_t new_id(gv_handle_map *map, uint64_t key)
{
    uint64_t id = next_stream + 1;
    if (!gv_handle_map_set(map, key, id))
        return 0;
    return next_stream = id;
}

// Default streams have no handle of their own: they are told apart by context and, for per-thread ones, by thread.
static uint64_t default_stream_id(bool per_thread)
{
    CUcontext context = NULL;
    gv_cuda.cuCtxGetCurrent(&context);
    // Threads are counted: pthread_self() is given again to the next thread, whose default stream is another.
    static atomic_ullong threads;
    static __thread uint64_t thread __attribute__((tls_model("initial-exec")));
    if (!thread)
        thread = atomic_fetch_add(&threads, 1) + 1;
    uint64_t key = key_of(context);
    if (per_thread)
        key ^= thread * 0x9e3779b97f4a7c15ull | 1;
    uint64_t id = gv_handle_map_get(&default_streams, key);
    if (!id && (id = new_id(&default_streams, key)) != 0)
        describe(id, context, per_thread ? GV_STREAM_THREAD_DEFAULT : GV_STREAM_LEGACY_DEFAULT, 0);
    return id;
}

// Asking for the flags of a stream that is capturing ends its capture: seen on driver 580.159, and no documentation
// says so. What a stream is that is first met in a capture is read when that is over.
static bool may_be_asked(CUstream stream)
{
    return !gv_stream_is_capturing(stream, false);
}

static void describe_created(CUstream stream, uint64_t id)
{
    unsigned flags = 0;
    int priority = 0;
    gv_cuda.cuStreamGetFlags(stream, &flags);
    gv_cuda.cuStreamGetPriority(stream, &priority);
    describe(id, (CUcontext)(uintptr_t)gv_handle_map_get(&stream_contexts, key_of(stream)),
             flags & CU_STREAM_NON_BLOCKING ? GV_STREAM_NON_BLOCKING : GV_STREAM_BLOCKING,
             (uint64_t)(priority < 0 ? -priority : 0));
}

static bool describe_at_last(uint64_t handle, uint64_t id, void *user)
{
    CUstream stream = (CUstream)(uintptr_t)handle;
    bool may = may_be_asked(stream);
    if (may)
        describe_created(stream, id);
    return may;
}

void gv_describe_streams(void)
{
    pthread_mutex_lock(&lock);
    gv_handle_map_prune(&undescribed, describe_at_last, NULL);
    pthread_mutex_unlock(&lock);
}

static uint64_t created_stream_id(CUstream stream)
{
    uint64_t id = gv_handle_map_get(&streams, key_of(stream));
    if (id || !(id = new_id(&streams, key_of(stream))))
        return id;
    CUcontext context = NULL;
    gv_cuda.cuStreamGetCtx(stream, &context);
    gv_handle_map_set(&stream_contexts, key_of(stream), key_of(context));
    if (may_be_asked(stream))
        describe_created(stream, id);
    else
        gv_handle_map_set(&undescribed, key_of(stream), id);
    return id;
}

uint64_t gv_stream_id(CUstream stream, bool per_thread)
{
    pthread_mutex_lock(&lock);
    uint64_t id;
    if (stream == CU_STREAM_PER_THREAD || (!stream && per_thread))
        id = default_stream_id(true);
    else if (!stream || stream == CU_STREAM_LEGACY)
        id = default_stream_id(false);
    else
        id = created_stream_id(stream);
    pthread_mutex_unlock(&lock);
    return id;
}

void gv_stream_created(CUstream stream)
{
    gv_operation_record operation = {.kind = GV_OP_STREAM_CREATE};
    pthread_mutex_lock(&lock);
    gv_handle_map_take(&streams, key_of(stream)); // a handle of a stream whose end was not seen
    operation.stream = created_stream_id(stream);
    pthread_mutex_unlock(&lock);
    gv_operation(&operation);
}

void gv_stream_destroyed(CUstream stream)
{
    gv_operation_record operation = {.kind = GV_OP_STREAM_DESTROY};
    pthread_mutex_lock(&lock);
    operation.stream = gv_handle_map_take(&streams, key_of(stream));
    gv_handle_map_take(&undescribed, key_of(stream));
    gv_handle_map_take(&stream_contexts, key_of(stream));
    pthread_mutex_unlock(&lock);
    if (operation.stream)
        gv_operation(&operation);
}

// ---- Contexts that are gone, and their streams ----

static bool stream_of(uint64_t handle, uint64_t context, void *gone)
{
    if (context != *(const uint64_t *)gone)
        return false;
    gv_handle_map_take(&streams, handle);
    gv_handle_map_take(&undescribed, handle);
    return true;
}

static bool is_gone(uint64_t handle, uint64_t number, void *user)
{
    unsigned long long now = 0;
    if (gv_cuda.cuCtxGetId((CUcontext)(uintptr_t)handle, &now) == CUDA_SUCCESS && now + 1 == number)
        return false;
    gv_handle_map_take(&contexts, handle);
    gv_handle_map_take(&default_streams, handle);
    gv_handle_map_prune(&stream_contexts, stream_of, &handle);
    return true;
}

void gv_contexts_ended(void)
{
    pthread_mutex_lock(&lock);
    gv_handle_map_prune(&context_numbers, is_gone, NULL);
    pthread_mutex_unlock(&lock);
}

typedef struct stream_visit {
    uint64_t context;
    bool (*visit)(CUstream stream, void *user);
    void *user;
    bool all;
} stream_visit;

static bool visit_stream(uint64_t handle, uint64_t value, void *user)
{
    stream_visit *visit = user;
    if (visit->all && value == visit->context)
        visit->all = visit->visit((CUstream)(uintptr_t)handle, visit->user);
    return false;
}

bool gv_streams_of(CUcontext context, bool (*visit)(CUstream stream, void *user), void *user)
{
    stream_visit state = {key_of(context), visit, user, true};
    pthread_mutex_lock(&lock);
    gv_handle_map_prune(&stream_contexts, visit_stream, &state);
    pthread_mutex_unlock(&lock);
    return state.all;
}

// ---- Events and functions ------------------------------------------------------------------------------------

uint64_t gv_event_id(CUevent event)
{
    pthread_mutex_lock(&lock);
    uint64_t id = gv_handle_map_get(&events, key_of(event));
    if (!id && gv_handle_map_set(&events, key_of(event), next_event + 1))
        id = ++next_event;
    pthread_mutex_unlock(&lock);
    return id;
}

void gv_event_destroyed(CUevent event)
{
    gv_operation_record operation = {.kind = GV_OP_EVENT_DESTROY};
    pthread_mutex_lock(&lock);
    operation.object = gv_handle_map_take(&events, key_of(event));
    pthread_mutex_unlock(&lock);
    if (operation.object)
        gv_operation(&operation);
}

uint64_t gv_function_id(CUfunction function)
{
    pthread_mutex_lock(&lock);
    uint64_t id = gv_handle_map_get(&functions, key_of(function));
    if (!id) {
        const char *name = NULL;
        if (gv_cuda.cuFuncGetName(&name, function) != CUDA_SUCCESS || !name)
            name = "unknown kernel";
        gv_function_record record = {
            .id = next_function + 1,
            .name = {name, strlen(name)},
            .flags = gv_source_function_flags(function, name),
        };
        if (gv_handle_map_set(&functions, key_of(function), record.id)) {
            id = ++next_function;
            gv_write_function(gv_state.writer, &record);
        }
    }
    pthread_mutex_unlock(&lock);
    return id;
}

void gv_functions_unloaded(void)
{
    pthread_mutex_lock(&lock);
    gv_handle_map_clear(&functions);
    pthread_mutex_unlock(&lock);
}

uint64_t gv_next_graph_id(void)
{
    return atomic_fetch_add(&next_graph, 1) + 1;
}

uint64_t gv_next_exec_id(void)
{
    return atomic_fetch_add(&next_exec, 1) + 1;
}

// ---- Allocations ---------------------------------------------------------------------------------------------

static void define_allocation(uint64_t sequence, void *user)
{
    gv_allocation_record *record = user;
    record->operation = sequence;
    gv_write_allocation(gv_state.writer, record);
}

void gv_allocated(uint64_t address, uint64_t size, unsigned kind, uint64_t stream, const char *name)
{
    CUcontext context = NULL;
    gv_cuda.cuCtxGetCurrent(&context);
    uint64_t stack = gv_stack();
    pthread_mutex_lock(&lock);
    uint64_t id = next_allocation + 1;
    if (!gv_handle_map_set(&lives, address, id)) {
        pthread_mutex_unlock(&lock);
        return;
    }
    next_allocation = id;
    gv_handle_map_set(&sizes, address, size);
    gv_handle_map_set(&kinds, address, kind + 1);
    gv_handle_map_take(&exported, address);
    gv_handle_map_take(&captured, address);
    if (gv_captures_active())
        gv_handle_map_set(&captured, address, 1);
    uint64_t in = context_id(context);
    pthread_mutex_unlock(&lock);
    // Only a hint for how much a node may touch; page-locked memory and module variables are left out.
    if (kind != GV_ALLOCATION_PINNED && kind != GV_ALLOCATION_GLOBAL)
        atomic_fetch_add(&live_bytes, size);
    gv_operation_record operation = {
        .kind = GV_OP_ALLOC, .stream = stream, .object = id, .address = address, .size = size};
    gv_allocation_record record = {
        .id = id,
        .address = address,
        .size = size,
        .kind = kind,
        .context = in,
        .stack = stack,
        .name = {name, name ? strlen(name) : 0},
    };
    gv_operation_defining(&operation, define_allocation, &record);
    gv_canary_allocated(address, size, name);
}

gv_life gv_life_take(uint64_t address)
{
    pthread_mutex_lock(&lock);
    gv_life life = {.address = address};
    life.id = gv_handle_map_take(&lives, address);
    life.size = gv_handle_map_take(&sizes, address);
    pthread_mutex_unlock(&lock);
    gv_canary_freeing(life.address, life.size);
    return life;
}

void gv_life_put_back(gv_life life)
{
    if (!life.id)
        return;
    pthread_mutex_lock(&lock);
    if (gv_handle_map_set(&lives, life.address, life.id))
        gv_handle_map_set(&sizes, life.address, life.size);
    pthread_mutex_unlock(&lock);
}

void gv_life_end(gv_life life, uint64_t stream)
{
    if (!life.id)
        return;
    gv_rows_freed(life.id, life.address, life.size);
    unsigned long long before = atomic_load(&live_bytes);
    while (!atomic_compare_exchange_weak(&live_bytes, &before, before > life.size ? before - life.size : 0))
        ;
    gv_operation_record operation = {.kind = GV_OP_FREE, .stream = stream, .object = life.id, .address = life.address};
    gv_operation(&operation);
}

bool gv_is_allocated(uint64_t address)
{
    pthread_mutex_lock(&lock);
    bool found = gv_handle_map_get(&lives, address) != 0;
    pthread_mutex_unlock(&lock);
    return found;
}

bool gv_is_heap(uint64_t address)
{
    pthread_mutex_lock(&lock);
    bool found =
        gv_handle_map_get(&lives, address) != 0 && gv_handle_map_get(&kinds, address) != GV_ALLOCATION_GLOBAL + 1;
    pthread_mutex_unlock(&lock);
    return found;
}

typedef struct holding {
    uint64_t address, end; // of the life around `address`; 0: not found
    uint64_t id;
} holding;

static bool holds(uint64_t address, uint64_t id, void *user)
{
    holding *search = user;
    uint64_t size = gv_handle_map_get(&sizes, address);
    if (search->address >= address && search->address - address < size && address + size > search->end) {
        search->end = address + size;
        search->id = id;
    }
    return false;
}

bool gv_is_live(uint64_t address, uint64_t size, uint64_t *oldest, uint64_t *newest)
{
    uint64_t end;
    *oldest = UINT64_MAX;
    *newest = 0;
    if (!size || __builtin_add_overflow(address, size, &end))
        return false;
    bool live = true;
    pthread_mutex_lock(&lock);
    while (live && address < end) {
        holding search = {.address = address};
        gv_handle_map_prune(&lives, holds, &search);
        live = search.end > address;
        address = search.end;
        *oldest = search.id < *oldest ? search.id : *oldest;
        *newest = search.id > *newest ? search.id : *newest;
    }
    pthread_mutex_unlock(&lock);
    return live;
}

uint64_t gv_life_until(uint64_t address)
{
    holding search = {.address = address};
    pthread_mutex_lock(&lock);
    gv_handle_map_prune(&lives, holds, &search);
    pthread_mutex_unlock(&lock);
    return search.end;
}

// ---- Memory that others see ----------------------------------------------------------------------------------

void gv_mapped(uint64_t address, uint64_t handle)
{
    pthread_mutex_lock(&lock);
    gv_handle_map_set(&mappings, address, handle);
    pthread_mutex_unlock(&lock);
}

void gv_exported(uint64_t address_or_handle)
{
    pthread_mutex_lock(&lock);
    gv_handle_map_set(&exported, address_or_handle, 1);
    pthread_mutex_unlock(&lock);
}

typedef struct listing {
    gv_live *items;
    size_t count, capacity;
    bool enough;
} listing;

static bool list_life(uint64_t address, uint64_t id, void *user)
{
    listing *list = user;
    list->enough = list->enough && GV_GROW(list->items, list->capacity, list->count + 1);
    if (!list->enough)
        return false;
    uint64_t handle = gv_handle_map_get(&mappings, address), kind = gv_handle_map_get(&kinds, address);
    list->items[list->count++] = (gv_live){
        .address = address,
        .size = gv_handle_map_get(&sizes, address),
        .kind = kind ? (unsigned)kind - 1 : GV_ALLOCATION_DEVICE,
        .captured = gv_handle_map_get(&captured, address) != 0,
        .exported = gv_handle_map_get(&exported, address) || (handle && gv_handle_map_get(&exported, handle)),
    };
    return false;
}

bool gv_lives(gv_live **items, size_t *count)
{
    listing list = {.enough = true};
    pthread_mutex_lock(&lock);
    gv_handle_map_prune(&lives, list_life, &list);
    pthread_mutex_unlock(&lock);
    if (!list.enough) {
        gv_free(list.items);
        return false;
    }
    *items = list.items;
    *count = list.count;
    return true;
}

typedef struct unmapping {
    uint64_t start, end;
    uint64_t found[64];
    size_t count;
} unmapping;

static bool in_range(uint64_t address, uint64_t id, void *user)
{
    unmapping *range = user;
    if (address >= range->start && address < range->end && range->count < sizeof range->found / sizeof *range->found)
        range->found[range->count++] = address;
    return false;
}

void gv_unmapped(uint64_t address, uint64_t size)
{
    unmapping range;
    do {
        range = (unmapping){.start = address, .end = address + size};
        pthread_mutex_lock(&lock);
        gv_handle_map_prune(&lives, in_range, &range);
        pthread_mutex_unlock(&lock);
        for (size_t i = 0; i < range.count; i++)
            gv_life_end(gv_life_take(range.found[i]), 0);
    } while (range.count == sizeof range.found / sizeof *range.found);
}

uint64_t gv_live_bytes(void)
{
    return atomic_load(&live_bytes);
}
