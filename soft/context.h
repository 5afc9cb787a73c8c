// Contexts, and which one is current to a thread.
#ifndef GRAVEL_SOFT_CONTEXT_H
#define GRAVEL_SOFT_CONTEXT_H

#include "soft/driver.h"

struct CUctx_st {
    struct object object;
    unsigned flags;
    unsigned retained; // primary: how often
    bool primary;
    CUresult error;    // sticky: what device work went wrong, or CUDA_SUCCESS
    CUstream legacy;   // the legacy default stream
    CUstream *streams; // every stream of the context, the legacy one included
    size_t stream_count, stream_capacity;
};

// The calling thread's current context, if it is alive and no device work of it has failed.
CUresult context_current(CUcontext *context);

// Is this the one device there is?
bool device_valid(CUdevice device);

// Waits for all work of a context; gives the lock back while waiting.
CUresult context_wait(CUcontext context);

// The primary context, or NULL while nobody retains it.
CUcontext context_primary(void);

#endif
