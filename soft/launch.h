// Kernel launches: turning launch arguments into an operation, and running it.
#ifndef GRAVEL_SOFT_LAUNCH_H
#define GRAVEL_SOFT_LAUNCH_H

#include "soft/operation.h"

struct observer;
struct task;

// Fills `operation` from a launch's arguments, copying the parameters. `function` may be a CUkernel.
CUresult kernel_operation_make(struct operation *operation, CUcontext context, const void *function,
                               const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                               void **parameters, void **extra);

// Keeps the value of one launch attribute; for those that mean nothing here it is kept to be returned.
CUresult kernel_operation_set_attribute(struct kernel_operation *kernel, CUlaunchAttributeID id,
                                        const CUlaunchAttributeValue *value);

CUresult kernel_operation_copy(struct kernel_operation *copy, const struct kernel_operation *original);
void kernel_operation_clear(struct kernel_operation *kernel);

// Runs all blocks. Returns CUDA_ERROR_LAUNCH_FAILED when the kernel used a barrier it had not declared.
CUresult kernel_operation_run(struct task *task, struct observer *observer);

// May it begin before the kernel in front of it in its stream is complete?
bool kernel_operation_is_programmatic(const struct kernel_operation *kernel);

// The hooks behind gravel_grid_wait and gravel_grid_trigger.
void launch_grid_wait(void);
void launch_grid_trigger(void);

#endif
