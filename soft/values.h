// Stream memory operations: writing and waiting for 32 and 64 bit values.
#ifndef GRAVEL_SOFT_VALUES_H
#define GRAVEL_SOFT_VALUES_H

#include "soft/operation.h"

// Checks a batch and copies it into an operation.
CUresult values_make(struct operation *operation, CUcontext context, const CUstreamBatchMemOpParams *items,
                     unsigned count, unsigned flags);
CUresult values_copy(struct values_operation *copy, const struct values_operation *original);

// Does the items from *progress on. False when it stopped at a wait that is not satisfied.
bool values_run(const struct values_operation *values, size_t *progress);
bool values_can_resume(const struct values_operation *values, size_t progress);

#endif
