#include "record/probe.h"

#include "base/memory.h"
#include "gravel.h"
#include "record/hook.h"
#include "record/ids.h"
#include "record/recorder.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

// How many clones there can be, and how many differing comparisons of one key are recorded.
enum { MOST_CLONES = 1 << 16, MOST_RECORDS = 256 };

typedef struct probe_clone {
    char name[64];
    uint64_t layer, bucket;
    uint64_t address, row_bytes, rows;
    uint64_t room; // bytes at `address`
    bool own;      // gravel's memory
    uint64_t exec; // whose launches refresh it; 0: none yet
    uint64_t launches;
    uint64_t launched; // when it was refreshed last: a count of all launches that refresh clones
    uint64_t compared, recorded;
} probe_clone;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static probe_clone *clones;
static size_t clone_count, clone_capacity;
static uint64_t used, launch_count;
static atomic_bool any;

GV_EXPORT int gravel_record_probe(const char *name, uint64_t layer, uint64_t bucket, uint64_t address,
                                  uint64_t row_bytes, uint64_t rows, uint64_t into, void *stream);
GV_EXPORT int gravel_record_probe_find(const char *name, uint64_t layer, uint64_t bucket, gravel_clone *found);
GV_EXPORT int64_t gravel_record_probe_compare(const char *name, uint64_t layer, uint64_t bucket, uint64_t real_rows,
                                              uint64_t eager, unsigned dtype, double tolerance, void *stream);

void gv_probe_forget(void)
{
    pthread_mutex_init(&lock, NULL);
    clones = NULL;
    clone_count = clone_capacity = 0;
    used = launch_count = 0;
    atomic_store(&any, false);
}

// Names longer than a clone keeps are the same if they begin alike.
static bool has_name(const probe_clone *c, const char *name, uint64_t layer)
{
    return c->layer == layer && strncmp(c->name, name, sizeof c->name - 1) == 0;
}

// The clone with this key, or NULL. Under the lock.
static probe_clone *find_key(const char *name, uint64_t layer, uint64_t bucket)
{
    for (size_t i = 0; i < clone_count; i++)
        if (clones[i].bucket == bucket && has_name(&clones[i], name, layer))
            return &clones[i];
    return NULL;
}

// The one whose graph was launched last, or NULL. Under the lock.
static probe_clone *find_last(const char *name, uint64_t layer)
{
    probe_clone *last = NULL;
    for (size_t i = 0; i < clone_count; i++)
        if (has_name(&clones[i], name, layer) && clones[i].launched > (last ? last->launched : 0))
            last = &clones[i];
    return last;
}

static void refuse(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void refuse(const char *name, const char *format, ...)
{
    char text[320], key[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(key, sizeof key, "probe %.40s %.12s", name, text);
    gv_note_once(GV_NOTE_FAILURE, key, "the probe of \"%.60s\" is left out: %s", name, text);
}

// ---- Clones ------------------------------------------------------------------------------------------------------

// Gives the key a clone of the right size. Under the lock. Memory that an earlier capture copies into stays, since that
// graph may still be launched.
static probe_clone *make_clone(const char *name, uint64_t layer, uint64_t bucket, uint64_t row_bytes, uint64_t rows,
                               uint64_t into)
{
    uint64_t bytes = row_bytes * rows;
    probe_clone *c = find_key(name, layer, bucket);
    if (!c) {
        if (clone_count >= MOST_CLONES || !GV_GROW(clones, clone_capacity, clone_count + 1)) {
            refuse(name, "there are %zu clones already, or memory ran out", clone_count);
            return NULL;
        }
        c = &clones[clone_count];
        *c = (probe_clone){.layer = layer, .bucket = bucket};
        snprintf(c->name, sizeof c->name, "%s", name);
    }
    if (into) {
        c->address = into;
        c->room = bytes;
        c->own = false;
    } else if (!c->own || c->room < bytes) {
        CUdeviceptr memory = 0;
        uint64_t budget = gv_state.options.probe_bytes;
        if (bytes > budget || used > budget - bytes) {
            refuse(name,
                   "its clone of %llu bytes (layer %llu, bucket %llu) would go beyond the budget of %llu MiB, of which "
                   "%llu are used; --probe-memory MIB sets it",
                   (unsigned long long)bytes, (unsigned long long)layer, (unsigned long long)bucket,
                   (unsigned long long)(budget >> 20), (unsigned long long)(used >> 20));
            return NULL;
        }
        CUresult result = gv_cuda.cuMemAlloc(&memory, bytes);
        if (result != CUDA_SUCCESS) {
            refuse(name, "device memory for its clone could not be allocated: %s", gv_driver_error(result));
            return NULL;
        }
        char label[96];
        snprintf(label, sizeof label, "probe %.60s, layer %llu", name, (unsigned long long)layer);
        gv_allocated(memory, bytes, GV_ALLOCATION_DEVICE, 0, label);
        used += bytes;
        c->address = memory;
        c->room = bytes;
        c->own = true;
    }
    c->row_bytes = row_bytes;
    c->rows = rows;
    if (c == &clones[clone_count])
        clone_count++;
    atomic_store(&any, true);
    return c;
}

// How many of the `bytes` at `address` lie in the allocation that they begin in: the driver copies within one.
static uint64_t in_one_piece(uint64_t address, uint64_t bytes)
{
    uint64_t end = gv_life_until(address);
    return end > address && end - address < bytes ? end - address : bytes;
}

// The copy becomes a node of what the stream captures; several, where allocations that adjoin hold it together.
static bool add_copy(const char *name, const probe_clone *c, uint64_t address, CUstream stream)
{
    uint64_t size = c->row_bytes * c->rows;
    for (uint64_t done = 0, part; done < size; done += part) {
        part = in_one_piece(c->address + done, in_one_piece(address + done, size - done));
        CUresult result = gv_cuda.cuMemcpyDtoDAsync(c->address + done, address + done, part, stream);
        if (result != CUDA_SUCCESS) {
            refuse(name, "it could not be copied: %s", gv_driver_error(result));
            return false;
        }
        gv_capture_note(stream, false);
    }
    return true;
}

int gravel_record_probe(const char *name, uint64_t layer, uint64_t bucket, uint64_t address, uint64_t row_bytes,
                        uint64_t rows, uint64_t into, void *stream)
{
    uint64_t bytes = 0, oldest, newest;
    int there = 0;
    if (!name || !gv_enter())
        return 0;
    if (!gv_state.options.probe || !gv_captures_active() || !gv_stream_is_capturing(stream, false)) {
        gv_leave();
        return 0;
    }
    if (__builtin_mul_overflow(row_bytes, rows, &bytes) || !bytes) {
        refuse(name, "it has no bytes, or more than there can be");
    } else if (!gv_is_live(address, bytes, &oldest, &newest) || (into && !gv_is_live(into, bytes, &oldest, &newest))) {
        refuse(name, "its %llu bytes at 0x%llx, or the clone's, are in no memory that is allocated",
               (unsigned long long)bytes, (unsigned long long)address);
    } else {
        // Allocating is not allowed to a thread whose captures are global or its own; this allocation concerns none.
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        gv_cuda.cuThreadExchangeStreamCaptureMode(&mode);
        probe_clone made;
        pthread_mutex_lock(&lock);
        const probe_clone *c = make_clone(name, layer, bucket, row_bytes, rows, into);
        if (c)
            made = *c;
        pthread_mutex_unlock(&lock);
        // Not under the lock: what is known of graphs is under another, which is taken first where both are.
        there = c && add_copy(name, &made, address, stream);
        gv_cuda.cuThreadExchangeStreamCaptureMode(&mode);
    }
    gv_leave();
    return there;
}

// ---- Which launch refreshes which clone --------------------------------------------------------------------------

// Under the lock.
static void claim(uint64_t exec, const gv_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->node_count; i++) {
        const gv_snapshot_node *node = &snapshot->nodes[i];
        CUDA_MEMCPY3D copy;
        memset(&copy, 0, sizeof copy);
        for (size_t body = 0; body < node->body_count; body++)
            claim(exec, node->bodies[body]);
        if (node->type != CU_GRAPH_NODE_TYPE_MEMCPY ||
            gv_cuda.cuGraphMemcpyNodeGetParams(node->node, &copy) != CUDA_SUCCESS)
            continue;
        for (size_t k = 0; k < clone_count; k++)
            if (clones[k].address == copy.dstDevice)
                clones[k].exec = exec;
    }
}

void gv_probe_exec(uint64_t exec, const gv_snapshot *snapshot)
{
    if (!atomic_load_explicit(&any, memory_order_relaxed) || !snapshot)
        return;
    pthread_mutex_lock(&lock);
    claim(exec, snapshot);
    pthread_mutex_unlock(&lock);
}

void gv_probe_launched(uint64_t exec)
{
    if (!atomic_load_explicit(&any, memory_order_relaxed) || !exec)
        return;
    pthread_mutex_lock(&lock);
    launch_count++;
    for (size_t i = 0; i < clone_count; i++)
        if (clones[i].exec == exec) {
            clones[i].launches++;
            clones[i].launched = launch_count;
        }
    pthread_mutex_unlock(&lock);
}

// ---- Handing out -------------------------------------------------------------------------------------------------

// A copy of what is to be used for a key. Under the lock.
static bool choose(const char *name, uint64_t layer, uint64_t bucket, probe_clone *chosen, bool *fallback)
{
    probe_clone *c = find_key(name, layer, bucket);
    *fallback = !c || !c->launches;
    if (*fallback)
        c = find_last(name, layer);
    if (c)
        *chosen = *c;
    return c != NULL;
}

int gravel_record_probe_find(const char *name, uint64_t layer, uint64_t bucket, gravel_clone *found)
{
    probe_clone chosen;
    bool fallback = false, there = false;
    if (!name || !found || !gv_enter())
        return 0;
    pthread_mutex_lock(&lock);
    there = choose(name, layer, bucket, &chosen, &fallback);
    pthread_mutex_unlock(&lock);
    if (there)
        *found = (gravel_clone){.address = chosen.address,
                                .row_bytes = chosen.row_bytes,
                                .rows = chosen.rows,
                                .bucket = chosen.bucket,
                                .launches = chosen.launches,
                                .fallback = fallback};
    gv_leave();
    return there;
}

// ---- Comparing ---------------------------------------------------------------------------------------------------

static gv_text text_of(const char *text)
{
    return (gv_text){text, strlen(text)};
}

static void write_probe(const probe_clone *c, bool fallback, uint64_t rows, unsigned dtype, double tolerance,
                        const gv_value_differences *found)
{
    char within[48], largest[32];
    if (tolerance > 0)
        snprintf(within, sizeof within, "relative %g", tolerance);
    else
        snprintf(within, sizeof within, "bitwise");
    snprintf(largest, sizeof largest, "%.9g", found->largest);
    gv_probe_record record = {
        .operation = gv_last_operation(),
        .name = text_of(c->name),
        .layer = c->layer,
        .bucket = c->bucket,
        .fallback = fallback,
        .dtype = text_of(gv_dtype_name(dtype)),
        .tolerance = text_of(within),
        .real_rows = rows,
        .elements = found->elements,
        .differing = found->differing,
        .rows = found->rows,
        .first_row = found->first_row,
        .first_element = found->first_element,
        .graph_value = text_of(found->graph_value),
        .eager_value = text_of(found->eager_value),
        .largest = text_of(found->differing ? largest : ""),
    };
    gv_write_probe(gv_state.writer, &record);
}

static CUresult fetch(char *to, uint64_t address, uint64_t bytes, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0, part; done < bytes && result == CUDA_SUCCESS; done += part) {
        part = in_one_piece(address + done, bytes - done);
        result = gv_cuda.cuMemcpyDtoHAsync(to + done, address + done, part, stream);
    }
    return result;
}

// Fetches both sides and compares them. False: it could not be done, with the reason said.
static bool compare(const probe_clone *c, uint64_t rows, uint64_t eager, unsigned dtype, double tolerance,
                    CUstream stream, gv_value_differences *found)
{
    uint64_t bytes = rows * c->row_bytes, oldest, newest;
    if (!gv_is_live(eager, bytes, &oldest, &newest)) {
        refuse(c->name, "the eager result, %llu bytes at 0x%llx, is in no memory that is allocated",
               (unsigned long long)bytes, (unsigned long long)eager);
        return false;
    }
    char *both = gv_malloc(2 * bytes);
    if (!both) {
        refuse(c->name, "memory for comparing %llu bytes ran out", (unsigned long long)bytes);
        return false;
    }
    CUresult result = fetch(both, c->address, bytes, stream);
    if (result == CUDA_SUCCESS)
        result = fetch(both + bytes, eager, bytes, stream);
    CUresult done = gv_cuda.cuStreamSynchronize(stream);
    if (result == CUDA_SUCCESS)
        result = done;
    if (result == CUDA_SUCCESS)
        gv_values_compare(both, both + bytes, rows, c->row_bytes, dtype, tolerance, found);
    else
        refuse(c->name, "the values could not be read: %s", gv_driver_error(result));
    gv_free(both);
    return result == CUDA_SUCCESS;
}

int64_t gravel_record_probe_compare(const char *name, uint64_t layer, uint64_t bucket, uint64_t real_rows,
                                    uint64_t eager, unsigned dtype, double tolerance, void *stream)
{
    probe_clone chosen;
    gv_value_differences found;
    bool fallback = false, there = false;
    int64_t answer = -1;
    if (!name || !gv_enter())
        return -1;
    pthread_mutex_lock(&lock);
    there = choose(name, layer, bucket, &chosen, &fallback);
    pthread_mutex_unlock(&lock);
    if (!there || !gv_state.options.probe || gv_stream_is_capturing(stream, false)) {
        gv_leave();
        return -1;
    }
    uint64_t rows = real_rows < chosen.rows ? real_rows : chosen.rows;
    if (!(tolerance >= 0) || !isfinite(tolerance)) {
        refuse(name, "a tolerance is 0 or a positive number");
    } else if (!rows) {
        answer = 0; // an idle step
    } else if (compare(&chosen, rows, eager, dtype, tolerance, stream, &found)) {
        answer = (int64_t)found.differing;
        pthread_mutex_lock(&lock);
        probe_clone *c = find_key(chosen.name, chosen.layer, chosen.bucket);
        // Equal ones are recorded once for each key, so that the trace shows what was compared.
        bool record = c && (found.differing ? c->recorded++ < MOST_RECORDS : c->compared == 0);
        if (c)
            c->compared++;
        pthread_mutex_unlock(&lock);
        if (record)
            write_probe(&chosen, fallback, rows, dtype, tolerance, &found);
    }
    gv_leave();
    return answer;
}
