// What a shared object of kernels and the software driver say to each other. Included by soft/kernel.h under GCC, by
// soft/kernel_runtime.c, and by the driver; plain C, no CUDA header.
#ifndef GRAVEL_SOFT_KERNEL_ABI_H
#define GRAVEL_SOFT_KERNEL_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { GRAVEL_SOFT_ABI = 3 };

#define GRAVEL_SOFT_MODULE_SYMBOL "gravel_soft_module"

typedef struct gravel_soft_dim3 {
    unsigned x, y, z;
} gravel_soft_dim3;

// One kernel parameter's place in the parameter block, laid out as the CUDA ABI does: natural alignment, in order.
typedef struct gravel_soft_parameter {
    size_t offset, size;
} gravel_soft_parameter;

enum gravel_soft_kernel_flag {
    GRAVEL_SOFT_BARRIER = 1u << 0, // calls __syncthreads: its blocks run as fibers
};

// One kernel. `call` unpacks the parameters from pointers to them and runs one thread.
typedef struct gravel_soft_kernel {
    const char *name;
    void (*call)(void *const *parameters);
    const gravel_soft_parameter *parameters;
    size_t parameter_count;
    unsigned flags; // enum gravel_soft_kernel_flag
} gravel_soft_kernel;

// A variable in device memory.
typedef struct gravel_soft_global {
    const char *name;
    void *address;
    size_t size;
} gravel_soft_global;

// What a running kernel thread sees; one for each operating-system thread. The driver fills it before each call.
typedef struct gravel_soft_thread {
    gravel_soft_dim3 thread_index, block_index, block_size, grid_size;
    void *dynamic_shared;
    void *observer;                               // not NULL: the driver wants to hear of this thread's accesses
    void (*barrier)(struct gravel_soft_thread *); // NULL: the block's threads run one after another
    int barrier_missing; // set when __syncthreads was called in a kernel that did not declare it
    int handle_unknown;  // set when a condition was set where that faults
} gravel_soft_thread;

enum gravel_soft_touch { GRAVEL_SOFT_TOUCH_READ = 0, GRAVEL_SOFT_TOUCH_WRITE = 1, GRAVEL_SOFT_TOUCH_ATOMIC = 2 };

// What the driver gives to a module when it loads it.
typedef struct gravel_soft_hooks {
    // Called before the access happens, when the thread has an observer.
    void (*access)(void *observer, uint64_t address, uint64_t size, enum gravel_soft_touch touch);
    // Lets other device work run for about so many nanoseconds.
    void (*spin)(void *observer, uint64_t nanoseconds);
    // Not 0 while any thread has an observer: the only thing an access looks at otherwise.
    const int *observed;
    // Sets the value behind a conditional handle of the running graph. 0: that faults.
    int (*set_condition)(uint64_t handle, uint32_t value);
    // What the calling thread does about grid dependencies: waits for the kernels in front; lets those behind begin.
    void (*grid_wait)(void);
    void (*grid_trigger)(void);
} gravel_soft_hooks;

// Exported by each shared object of kernels as `gravel_soft_module`.
typedef struct gravel_soft_module_info {
    unsigned abi; // GRAVEL_SOFT_ABI
    const gravel_soft_kernel *const *kernels, *const *kernels_end;
    const gravel_soft_global *const *globals, *const *globals_end;
    gravel_soft_thread *(*thread)(void);
    void (*connect)(const gravel_soft_hooks *hooks);
} gravel_soft_module_info;

#endif
