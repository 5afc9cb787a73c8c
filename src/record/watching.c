// Nothing here may hang: the host waits with limits, the holding kernel ends by itself, and every way out lets the
// kernel go that is held.
#include "record/watching.h"

#include "base/clock.h"
#include "base/memory.h"
#include "record/driver.h"
#include "record/early.h"

#include <stddef.h>
#include <string.h>
#include <time.h>

const gv_hold_limits GV_HOLD_LIMITS = {
    .begin_ns = 10 * 1000 * 1000,
    .still_ns = 2 * 1000 * 1000,
    .most_ns = 50 * 1000 * 1000,
    .rounds = 200 * 1000,
    .pause_ns = 50 * 1000,
    .look_ns = 50 * 1000 * 1000,
};

// A round of the holding kernel, twice over: a microsecond, and a read of host memory.
enum { BEAT_NS = 6000 };

// What the device writes for one kernel, in one allocation.
enum {
    PCS_BYTES = GV_WATCH_PCS * (int)sizeof(gv_watched_pc),
    BLOCKS_BYTES = GV_WATCH_BLOCKS / 8,
    SIDE_BYTES = GV_WATCH_INSTRUCTIONS / 8,
    BLOCKS_AT = PCS_BYTES,
    BEFORE_AT = BLOCKS_AT + BLOCKS_BYTES,
    AFTER_AT = BEFORE_AT + SIDE_BYTES,
    MEMORY_BYTES = AFTER_AT + SIDE_BYTES
};

// Page-locked host memory: what the holding kernel reads, what is copied to the device and from it.
typedef struct shared {
    volatile uint32_t released;
    volatile uint32_t beats; // of the holding kernel: rounds of a microsecond or more
    gv_wait_watch watch, sample;
    gv_watched_pc pcs[GV_WATCH_PCS];
    uint32_t before[GV_WATCH_INSTRUCTIONS / 32], after[GV_WATCH_INSTRUCTIONS / 32];
} shared;

struct gv_watching {
    gv_hold_limits limits;
    CUmodule module;
    CUfunction hold;
    CUstream side; // goes on beside whatever is held
    shared *shared;
    CUdeviceptr shared_on_device;
    CUdeviceptr memory; // 0 until it is needed
    // The kernel at hand.
    CUdeviceptr watch;
    CUstream stream;
    gv_kernel_waits waits;
    gv_watched watched;
    bool holding; // the holding kernel was launched and not released yet
};

gv_status gv_watching_create(const void *image, const gv_hold_limits *limits, gv_watching **watching, gv_error *error)
{
    *watching = NULL;
    gv_watching *made = gv_calloc(1, sizeof *made);
    if (!made)
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    made->limits = *limits;
    void *host = NULL;
    CUresult result = gv_driver_load_kernels(&made->module, image, &(gv_named_kernel){&made->hold, "gravel_hold"}, 1);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuStreamCreate(&made->side, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result =
            gv_cuda.cuMemHostAlloc(&host, sizeof *made->shared, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
    made->shared = host;
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuMemHostGetDevicePointer(&made->shared_on_device, host, 0);
    if (result != CUDA_SUCCESS) {
        gv_watching_free(made);
        return gv_fail(error, GV_ERR_IO, "the kernel that holds others could not be loaded: %s",
                       gv_driver_error(result));
    }
    *watching = made;
    return GV_OK;
}

// ---- Setting up ----------------------------------------------------------------------------------------------

// Where the code says which side an instruction lies on, and it is one that is watched.
static void choose_sides(gv_watching *w)
{
    const gv_kernel_flow *flow = &w->waits.flow;
    size_t words = ((size_t)flow->instructions + 31) / 32;
    for (size_t i = 0; i < words; i++) {
        w->shared->before[i] = flow->before[i] & flow->watched[i];
        w->shared->after[i] = flow->after[i] & flow->watched[i];
    }
}

static CUresult copy_out(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    return size ? gv_cuda.cuMemcpyHtoDAsync(to, from, size, stream) : CUDA_SUCCESS;
}

static bool set_up(gv_watching *w, uint64_t base)
{
    CUresult result = CUDA_SUCCESS;
    if (!w->memory)
        result = gv_cuda.cuMemAlloc(&w->memory, MEMORY_BYTES);
    if (result != CUDA_SUCCESS) {
        w->memory = 0;
        return false;
    }
    w->shared->watch = (gv_wait_watch){
        .mode = w->watched.mode,
        .base = base,
        .instructions = w->waits.flow.instructions,
        .before = (uint32_t *)(w->memory + BEFORE_AT),
        .after = (uint32_t *)(w->memory + AFTER_AT),
        .pcs = (gv_watched_pc *)w->memory,
        .blocks = (uint32_t *)(w->memory + BLOCKS_AT),
    };
    if (w->watched.mode == GV_WATCH_CODE) {
        size_t size = ((size_t)w->waits.flow.instructions + 31) / 32 * 4;
        choose_sides(w);
        result = copy_out(w->memory + BEFORE_AT, w->shared->before, size, w->stream);
        if (result == CUDA_SUCCESS)
            result = copy_out(w->memory + AFTER_AT, w->shared->after, size, w->stream);
    } else {
        result = gv_cuda.cuMemsetD8Async(w->memory, 0, PCS_BYTES + BLOCKS_BYTES, w->stream);
    }
    if (result == CUDA_SUCCESS)
        result = copy_out(w->watch, &w->shared->watch, sizeof w->shared->watch, w->stream);
    return gv_cuda.cuStreamSynchronize(w->stream) == CUDA_SUCCESS && result == CUDA_SUCCESS;
}

static void turn_off(gv_watching *w)
{
    memset(&w->shared->watch, 0, sizeof w->shared->watch);
    copy_out(w->watch, &w->shared->watch, sizeof w->shared->watch, w->stream);
    gv_cuda.cuStreamSynchronize(w->stream);
}

static bool launch_hold(gv_watching *w)
{
    CUdeviceptr word = w->shared_on_device + offsetof(shared, released);
    CUdeviceptr phase = w->watch + offsetof(gv_wait_watch, phase);
    CUdeviceptr beats = w->shared_on_device + offsetof(shared, beats);
    void *arguments[] = {&word, &beats, &phase, &w->limits.rounds};
    w->shared->released = w->shared->beats = 0;
    return gv_cuda.cuLaunchKernel(w->hold, 1, 1, 1, 1, 1, 1, 0, w->stream, arguments, NULL) == CUDA_SUCCESS;
}

static void forget_kernel(gv_watching *w)
{
    gv_kernel_waits_free(&w->waits);
    memset(&w->watched, 0, sizeof w->watched);
}

void gv_watching_begin(gv_watching *w, CUdeviceptr watch, CUstream stream, CUmodule module, const char *name,
                       uint64_t base, uint64_t size, bool *held)
{
    *held = false;
    forget_kernel(w);
    w->watch = watch;
    w->stream = stream;
    if (!gv_waits_of(module, name, &w->waits))
        return;
    w->watched.mode = gv_waits_choose(&w->waits, base, size);
    if (w->watched.mode == GV_WATCH_OFF)
        return;
    if (!set_up(w, base)) {
        w->watched.mode = GV_WATCH_OFF;
        return;
    }
    w->watched.held = GV_HELD_FAILED;
    if (w->watched.mode == GV_WATCH_HELD)
        *held = w->holding = launch_hold(w);
}

// ---- Holding -------------------------------------------------------------------------------------------------

static void pause_for(uint64_t nanoseconds)
{
    struct timespec pause = {(time_t)(nanoseconds / 1000000000), (long)(nanoseconds % 1000000000)};
    nanosleep(&pause, NULL);
}

// Reads the watch while the kernel is held.
static bool sample(gv_watching *w)
{
    uint64_t deadline = gv_monotonic_ns() + w->limits.look_ns;
    CUresult result = gv_cuda.cuMemcpyDtoHAsync(&w->shared->sample, w->watch, sizeof w->shared->sample, w->side);
    while (result == CUDA_SUCCESS) {
        result = gv_cuda.cuStreamQuery(w->side);
        if (result == CUDA_SUCCESS)
            return true;
        if (result != CUDA_ERROR_NOT_READY || gv_monotonic_ns() > deadline)
            return false;
        result = CUDA_SUCCESS;
    }
    return false;
}

static enum gv_held wait_for_standstill(gv_watching *w)
{
    const gv_hold_limits *limits = &w->limits;
    const gv_wait_watch *now = &w->shared->sample;
    uint64_t start = gv_monotonic_ns(), deadline = start + limits->most_ns, began = 0, last = start, counted = 0;
    // Looks, and rounds of the holding kernel, since something happened. A machine that stood still itself, or a device
    // that was given to another process for its share of time, must not be taken for a kernel that does.
    uint64_t looks = 0, least_looks = limits->still_ns / (4 * limits->pause_ns);
    uint32_t beat = 0, least_beats = (uint32_t)(limits->still_ns / BEAT_NS);
    for (;;) {
        if (!sample(w))
            return GV_HELD_FAILED;
        uint64_t time = gv_monotonic_ns();
        uint64_t count = (uint64_t)now->activity + now->entered + now->exited;
        if (count != counted || now->phase != GV_PHASE_HELD) {
            began = began ? began : time;
            last = time;
            counted = count;
            looks = 0;
            beat = w->shared->beats;
        }
        bool awake = ++looks > least_looks && w->shared->beats - beat >= least_beats;
        if (counted && awake && time - last >= limits->still_ns + (last - began))
            return GV_HELD_STILL;
        if (!counted && time - start > limits->begin_ns)
            return GV_HELD_NOT_BEGUN;
        if (time > deadline)
            return GV_HELD_NOT_STILL;
        pause_for(limits->pause_ns);
    }
}

static void let_go(gv_watching *w)
{
    w->shared->released = 1;
    w->holding = false;
}

void gv_watching_release(gv_watching *w, bool launched)
{
    if (!w->holding)
        return;
    w->watched.held = launched ? wait_for_standstill(w) : GV_HELD_FAILED;
    let_go(w);
}

// ---- What was seen -------------------------------------------------------------------------------------------

void gv_watching_end(gv_watching *w)
{
    if (w->watched.mode == GV_WATCH_OFF)
        return;
    gv_wait_watch *seen = &w->shared->sample;
    CUresult result = gv_cuda.cuMemcpyDtoHAsync(seen, w->watch, sizeof *seen, w->stream);
    if (result == CUDA_SUCCESS && w->watched.mode == GV_WATCH_HELD)
        result = gv_cuda.cuMemcpyDtoHAsync(w->shared->pcs, w->memory, PCS_BYTES, w->stream);
    if (gv_cuda.cuStreamSynchronize(w->stream) == CUDA_SUCCESS && result == CUDA_SUCCESS) {
        w->watched.watch = *seen;
        w->watched.pcs = w->shared->pcs;
    } else {
        w->watched.mode = GV_WATCH_OFF;
    }
    turn_off(w);
}

void gv_watching_judge(const gv_watching *w, unsigned unseen, gv_wait_observation *observation)
{
    gv_waits_judge(&w->waits, &w->watched, unseen, observation);
}

// ---- Leaving -------------------------------------------------------------------------------------------------

void gv_watching_close(gv_watching *w)
{
    if (w->holding)
        let_go(w);
    if (w->memory)
        gv_cuda.cuMemFree(w->memory);
    w->memory = 0;
    forget_kernel(w);
}

void gv_watching_free(gv_watching *w)
{
    if (!w)
        return;
    gv_watching_close(w);
    if (w->side)
        gv_cuda.cuStreamDestroy(w->side);
    if (w->shared)
        gv_cuda.cuMemFreeHost(w->shared);
    if (w->module)
        gv_cuda.cuModuleUnload(w->module);
    gv_free(w);
}

void gv_watching_forget(gv_watching *w)
{
    if (!w)
        return;
    w->holding = false;
    w->memory = 0;
    gv_watching_close(w);
    gv_free(w);
}
