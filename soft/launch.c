// Kernel launches. Blocks run one after another on the launch's worker; the threads of a block too, or, for kernels
// with a barrier, as fibers that take turns at it.
#include "soft/launch.h"

#include "soft/context.h"
#include "soft/event.h"
#include "soft/gravel_soft.h"
#include "soft/module.h"
#include "soft/schedule.h"
#include "soft/stream.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { FIBER_STACK = 64 * 1024 };

// ---- Arguments ----

// Points the parameter array into the block.
static bool point_parameters(struct kernel_operation *kernel)
{
    const gravel_soft_kernel *description = kernel->function->kernel;
    kernel->parameters = gv_calloc(description->parameter_count + 1, sizeof *kernel->parameters);
    if (!kernel->parameters)
        return false;
    for (size_t i = 0; i < description->parameter_count; i++)
        kernel->parameters[i] = kernel->values + description->parameters[i].offset;
    return true;
}

// The packed block in `extra`, or NULL when the list is not one.
static const void *extra_block(void **extra, size_t *size)
{
    const void *block = NULL;
    *size = 0;
    for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            block = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            *size = *(const size_t *)extra[i + 1];
        else
            return NULL;
    }
    return block;
}

static CUresult copy_parameters(struct kernel_operation *kernel, void **parameters, void **extra)
{
    const gravel_soft_kernel *description = kernel->function->kernel;
    size_t size = function_block_size(kernel->function), given = 0;
    if (parameters && extra)
        return CUDA_ERROR_INVALID_VALUE;
    const void *block = extra ? extra_block(extra, &given) : NULL;
    if ((extra && (!block || given < size)) || (!extra && size && !parameters))
        return CUDA_ERROR_INVALID_VALUE;
    kernel->values_size = extra ? given : size;
    kernel->values = gv_calloc(1, kernel->values_size + 1);
    if (!kernel->values)
        return CUDA_ERROR_OUT_OF_MEMORY;
    kernel->packed = extra != NULL;
    if (extra)
        memcpy(kernel->values, block, given);
    for (size_t i = 0; !extra && i < description->parameter_count; i++) {
        if (!parameters || !parameters[i])
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(kernel->values + description->parameters[i].offset, parameters[i], description->parameters[i].size);
    }
    return point_parameters(kernel) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult kernel_operation_make(struct operation *operation, CUcontext context, const void *handle,
                               const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                               void **parameters, void **extra)
{
    CUfunction function = function_resolve(handle);
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (function->module->context && function->module->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < 3; i++)
        if (!grid[i] || !block[i])
            return CUDA_ERROR_INVALID_VALUE;
    if (grid[0] > INT32_MAX || grid[1] > 65535 || grid[2] > 65535 || block[2] > 64 ||
        (uint64_t)block[0] * block[1] * block[2] > 1024 || shared_bytes > (unsigned)function->dynamic_shared_limit)
        return CUDA_ERROR_INVALID_VALUE;
    *operation = (struct operation){.kind = CU_GRAPH_NODE_TYPE_KERNEL};
    struct kernel_operation *kernel = &operation->kernel;
    kernel->function = function;
    kernel->kernel = function->library_kernel;
    kernel->context = context;
    memcpy(kernel->grid, grid, sizeof kernel->grid);
    memcpy(kernel->block, block, sizeof kernel->block);
    kernel->shared_bytes = shared_bytes;
    CUresult result = copy_parameters(kernel, parameters, extra);
    if (result != CUDA_SUCCESS)
        operation_clear(operation);
    return result;
}

CUresult kernel_operation_set_attribute(struct kernel_operation *kernel, CUlaunchAttributeID id,
                                        const CUlaunchAttributeValue *value)
{
    if (id == CU_LAUNCH_ATTRIBUTE_IGNORE)
        return CUDA_SUCCESS;
    if ((unsigned)id >= LAUNCH_ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    if (!kernel->attributes) {
        kernel->attributes = gv_calloc(LAUNCH_ATTRIBUTES, sizeof *kernel->attributes);
        if (!kernel->attributes)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    kernel->attributes[id] = *value;
    kernel->attributes_set |= 1u << id;
    return CUDA_SUCCESS;
}

CUresult kernel_operation_copy(struct kernel_operation *copy, const struct kernel_operation *original)
{
    *copy = *original;
    copy->parameters = NULL;
    copy->attributes = NULL;
    copy->values = gv_malloc(original->values_size + 1);
    if (!copy->values)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy->values, original->values, original->values_size);
    if (!point_parameters(copy))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (original->attributes) {
        copy->attributes = gv_malloc(LAUNCH_ATTRIBUTES * sizeof *copy->attributes);
        if (!copy->attributes)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(copy->attributes, original->attributes, LAUNCH_ATTRIBUTES * sizeof *copy->attributes);
    }
    return CUDA_SUCCESS;
}

void kernel_operation_clear(struct kernel_operation *kernel)
{
    gv_free(kernel->values);
    gv_free(kernel->parameters);
    gv_free(kernel->attributes);
}

bool kernel_operation_is_programmatic(const struct kernel_operation *kernel)
{
    unsigned id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    return kernel->attributes_set & 1u << id && kernel->attributes[id].programmaticStreamSerializationAllowed;
}

// ---- Grid dependencies of the running kernel ----

// What this worker's kernel has done about them.
struct grid_run {
    struct task *task;
    struct observer *observer;
    bool last_block;
    bool waited;                        // the running thread has, or has met one that has
    bool block_waited, block_triggered; // some thread of the block has
    unsigned grid;                      // enum gravel_soft_grid
};
static _Thread_local struct grid_run *running_grid;

static void set_waited(struct grid_run *run, bool waited)
{
    run->waited = waited;
    if (run->observer)
        run->observer->early = !waited;
}

void launch_grid_wait(void)
{
    struct grid_run *run = running_grid;
    if (!run)
        return;
    task_await(run->task, run->observer);
    set_waited(run, true);
    run->block_waited = true;
    run->grid |= GRAVEL_SOFT_GRID_WAITED;
}

// A block triggers with the first of its threads.
void launch_grid_trigger(void)
{
    struct grid_run *run = running_grid;
    if (!run || run->block_triggered)
        return;
    run->block_triggered = true;
    if (run->waited)
        run->grid |= GRAVEL_SOFT_GRID_TRIGGERED_LATE;
    if (run->last_block)
        task_reach(run->task, PROGRESS_TRIGGERED);
}

static void block_begins(struct grid_run *run, bool last)
{
    run->last_block = last;
    run->block_waited = run->block_triggered = false;
    if (last)
        task_reach(run->task, PROGRESS_BEGUN);
}

// A block that never triggered does so by its end.
static void block_ends(struct grid_run *run)
{
    if (!run->block_triggered && run->block_waited)
        run->grid |= GRAVEL_SOFT_GRID_TRIGGERED_LATE;
}

// ---- Running ----

// A block of threads that meet at barriers. One fiber a thread; each runs until it arrives at a barrier or ends, and
// the next round begins when all have.
struct block_run {
    const struct kernel_operation *kernel;
    gravel_soft_thread *thread;
    struct grid_run *grid;
    ucontext_t scheduler;
    struct fiber *fibers;
    size_t current;
};

struct fiber {
    ucontext_t context;
    gravel_soft_dim3 index;
    bool waited; // as in the grid's run
    bool ended;
};

static _Thread_local struct block_run *running_block;

static void fiber_main(void)
{
    struct block_run *block = running_block;
    block->kernel->function->kernel->call(block->kernel->parameters);
    block->fibers[block->current].ended = true;
    swapcontext(&block->fibers[block->current].context, &block->scheduler);
}

static void fiber_barrier(gravel_soft_thread *thread)
{
    struct block_run *block = running_block;
    swapcontext(&block->fibers[block->current].context, &block->scheduler);
}

// Makes a fiber ready to start. Not inlined: getcontext returns twice as far as the compiler knows.
static __attribute__((noinline)) void fiber_prepare(struct fiber *fiber, unsigned char *stack)
{
    fiber->ended = fiber->waited = false;
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = stack;
    fiber->context.uc_stack.ss_size = FIBER_STACK;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, fiber_main, 0);
}

// All threads that are not at their end have met at a barrier: what one of them waited for, they all have.
static void share_wait(struct block_run *block, size_t count)
{
    bool waited = false;
    for (size_t i = 0; i < count; i++)
        waited |= !block->fibers[i].ended && block->fibers[i].waited;
    for (size_t i = 0; i < count; i++)
        block->fibers[i].waited |= waited;
}

// Runs one block of a kernel with barriers; `stacks` has FIBER_STACK bytes for each thread.
static void run_fibers(struct block_run *block, size_t count, unsigned char *stacks)
{
    const unsigned *size = block->kernel->block;
    for (size_t i = 0; i < count; i++) {
        block->fibers[i].index = (gravel_soft_dim3){(unsigned)(i % size[0]), (unsigned)(i / size[0] % size[1]),
                                                    (unsigned)(i / size[0] / size[1])};
        fiber_prepare(&block->fibers[i], stacks + i * FIBER_STACK);
    }
    running_block = block;
    for (size_t left = count; left;) {
        for (block->current = 0; block->current < count; block->current++) {
            struct fiber *fiber = &block->fibers[block->current];
            if (fiber->ended)
                continue;
            block->thread->thread_index = fiber->index;
            set_waited(block->grid, fiber->waited);
            swapcontext(&block->scheduler, &fiber->context);
            fiber->waited = block->grid->waited;
            left -= fiber->ended;
        }
        share_wait(block, count);
    }
    running_block = NULL;
}

static void run_threads(const struct kernel_operation *kernel, gravel_soft_thread *thread, struct grid_run *grid)
{
    gravel_soft_dim3 *index = &thread->thread_index;
    for (index->z = 0; index->z < kernel->block[2]; index->z++)
        for (index->y = 0; index->y < kernel->block[1]; index->y++)
            for (index->x = 0; index->x < kernel->block[0]; index->x++) {
                set_waited(grid, false);
                kernel->function->kernel->call(kernel->parameters);
            }
}

static bool is_last(const struct kernel_operation *kernel, const gravel_soft_dim3 *index)
{
    return index->x + 1 == kernel->grid[0] && index->y + 1 == kernel->grid[1] && index->z + 1 == kernel->grid[2];
}

CUresult kernel_operation_run(struct task *task, struct observer *observer)
{
    const struct kernel_operation *kernel = &task->operation->kernel;
    gravel_soft_thread *thread = kernel->function->module->info->thread();
    size_t count = (size_t)kernel->block[0] * kernel->block[1] * kernel->block[2];
    bool fibers = count > 1 && kernel->function->kernel->flags & GRAVEL_SOFT_BARRIER;
    struct grid_run grid = {.task = task, .observer = observer};
    struct block_run block = {.kernel = kernel, .thread = thread, .grid = &grid};
    unsigned char *stacks = NULL;
    void *shared = calloc(1, kernel->shared_bytes + 16);
    CUresult result = shared ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (fibers && result == CUDA_SUCCESS) {
        block.fibers = gv_calloc(count, sizeof *block.fibers);
        stacks =
            mmap(NULL, count * FIBER_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (!block.fibers || stacks == MAP_FAILED)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        *thread = (gravel_soft_thread){
            .block_size = {kernel->block[0], kernel->block[1], kernel->block[2]},
            .grid_size = {kernel->grid[0], kernel->grid[1], kernel->grid[2]},
            .dynamic_shared = shared,
            .observer = observer,
            .barrier = fibers ? fiber_barrier : NULL,
        };
        running_grid = &grid;
        gravel_soft_dim3 *index = &thread->block_index;
        for (index->z = 0; index->z < kernel->grid[2]; index->z++) {
            for (index->y = 0; index->y < kernel->grid[1]; index->y++) {
                for (index->x = 0; index->x < kernel->grid[0]; index->x++) {
                    block_begins(&grid, is_last(kernel, index));
                    if (fibers)
                        run_fibers(&block, count, stacks);
                    else
                        run_threads(kernel, thread, &grid);
                    block_ends(&grid);
                }
            }
        }
        running_grid = NULL;
        thread->observer = NULL;
        if (observer && observer->recording)
            recording_note_grid(observer->recording, grid.grid);
        if (thread->barrier_missing)
            result = CUDA_ERROR_LAUNCH_FAILED;
        if (thread->handle_unknown)
            result = CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    if (stacks && stacks != MAP_FAILED)
        munmap(stacks, count * FIBER_STACK);
    gv_free(block.fibers);
    free(shared);
    return result;
}

// ---- The driver API ----

// An event that a launch attribute asks to be recorded, and the edge to who waits for it in a capture.
struct launch_event {
    CUevent event;
    int flags;
    CUgraphEdgeData edge;
};

static size_t launch_events(const struct kernel_operation *kernel, struct launch_event events[2])
{
    size_t count = 0;
    unsigned programmatic = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
    unsigned completion = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
    if (kernel->attributes_set & 1u << programmatic) {
        const CUlaunchAttributeValue *value = &kernel->attributes[programmatic];
        unsigned char port = value->programmaticEvent.triggerAtBlockStart ? CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER
                                                                          : CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
        events[count++] = (struct launch_event){value->programmaticEvent.event,
                                                value->programmaticEvent.flags,
                                                {.from_port = port, .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC}};
    }
    if (kernel->attributes_set & 1u << completion) {
        const CUlaunchAttributeValue *value = &kernel->attributes[completion];
        events[count++] = (struct launch_event){value->launchCompletionEvent.event,
                                                value->launchCompletionEvent.flags,
                                                {.from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER}};
    }
    return count;
}

// Outside of captures such an event is recorded when the kernel is complete: it may come late.
static CUresult enqueue_with_events(CUstream stream, struct operation *operation)
{
    struct launch_event events[2];
    size_t count = launch_events(&operation->kernel, events);
    for (size_t i = 0; i < count; i++) {
        CUevent event = events[i].event;
        if (object_is(event, OBJECT_EVENT) && event->context == stream->context &&
            event->flags & CU_EVENT_DISABLE_TIMING && !events[i].flags)
            continue;
        operation_clear(operation);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct task *task = NULL;
    CUgraphNode node = NULL;
    CUresult result = stream_enqueue(stream, operation, &task, &node);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (node)
            result = capture_record_launch(stream, &events[i].event->captured, node, &events[i].edge);
        else
            event_set_task(events[i].event, task);
    }
    return result;
}

static CUresult launch(const void *function, const CUlaunchConfig *config, CUstream handle, void **parameters,
                       void **extra)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    const unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
    const unsigned block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
    struct operation operation;
    result = kernel_operation_make(&operation, stream->context, function, grid, block, config->sharedMemBytes,
                                   parameters, extra);
    if (result != CUDA_SUCCESS)
        return result;
    for (unsigned i = 0; i < config->numAttrs && result == CUDA_SUCCESS; i++)
        result = kernel_operation_set_attribute(&operation.kernel, config->attrs[i].id, &config->attrs[i].value);
    if (result != CUDA_SUCCESS) {
        operation_clear(&operation);
        return result;
    }
    return enqueue_with_events(stream, &operation);
}

static CUresult launch_plain(const void *function, const unsigned sizes[6], unsigned shared_bytes, CUstream stream,
                             void **parameters, void **extra)
{
    CUlaunchConfig config = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], shared_bytes, stream, NULL, 0};
    return launch(function, &config, stream, parameters, extra);
}

#define SIZES ((unsigned[6]){grid_x, grid_y, grid_z, block_x, block_y, block_z})

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                        CUstream stream, void **parameters, void **extra)
{
    SOFT_API(launch_plain(function, SIZES, shared_bytes, stream, parameters, extra));
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                             unsigned int block_x, unsigned int block_y, unsigned int block_z,
                             unsigned int shared_bytes, CUstream stream, void **parameters, void **extra)
{
    SOFT_API(launch_plain(function, SIZES, shared_bytes, PER_THREAD(stream), parameters, extra));
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                   unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                   unsigned int shared_bytes, CUstream stream, void **parameters)
{
    SOFT_API(launch_plain(function, SIZES, shared_bytes, stream, parameters, NULL));
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                        void **parameters)
{
    SOFT_API(launch_plain(function, SIZES, shared_bytes, PER_THREAD(stream), parameters, NULL));
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    SOFT_API(launch(function, config, config->hStream, parameters, extra));
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    SOFT_API(launch(function, config, PER_THREAD(config->hStream), parameters, extra));
}
