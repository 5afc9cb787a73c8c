// Copies and sets: checking parameters, and moving the bytes.
#ifndef GRAVEL_SOFT_COPY_H
#define GRAVEL_SOFT_COPY_H

#include "soft/operation.h"

struct observer;

// Are the parameters of a copy or set sound: known memory types, extents inside live allocations?
CUresult copy_check(const CUDA_MEMCPY3D *parameters);
CUresult set_check(const CUDA_MEMSET_NODE_PARAMS *parameters);

void copy_run(const struct copy_operation *copy, struct observer *observer);
void set_run(const struct set_operation *set, struct observer *observer);

#endif
