// The software driver's common ground: cuda.h as the driver itself must see it, the one lock, the table of live
// handles, and the pair of functions that open and close every entry point.
#ifndef GRAVEL_SOFT_DRIVER_H
#define GRAVEL_SOFT_DRIVER_H

// Shows every version of every function under its exported name, instead of the newest one behind a macro.
#define __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT
#include <cuda.h>

// What older headers lack although the driver offers it whatever it was built with.
#if CUDA_VERSION < 12050
__attribute__((visibility("default"))) CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel);
#endif
#if CUDA_VERSION < 12080
__attribute__((visibility("default"))) CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end);
#endif

#include "base/memory.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { SOFT_DRIVER_VERSION = 13000 };

enum object_kind {
    OBJECT_NONE = 0,
    OBJECT_CONTEXT,
    OBJECT_STREAM,
    OBJECT_EVENT,
    OBJECT_MODULE,
    OBJECT_FUNCTION,
    OBJECT_LIBRARY,
    OBJECT_KERNEL,
    OBJECT_GRAPH,
    OBJECT_NODE,
    OBJECT_EXEC,
    OBJECT_POOL,
    OBJECT_USER_OBJECT,
};

// What every handle points to begins with this.
struct object {
    enum object_kind kind;
    uint64_t id; // unique over all objects of the process, never reused
};

// The one lock of the driver: held by an entry point while it reads or changes anything below, never while device
// work, a host function or dlopen runs.
extern pthread_mutex_t driver_lock;

// Opens an entry point: checks that cuInit was called in this process and not only in its parent, and that the
// caller is no host function, and takes the lock. On any result but CUDA_SUCCESS the lock is not held.
CUresult driver_enter(void);

// Closes an entry point: gives the lock back and returns `result`.
CUresult driver_leave(CUresult result);

// The body of an entry point whose work is one call under the lock.
#define SOFT_API(call)                                                   \
    do {                                                                 \
        CUresult entered_ = driver_enter();                              \
        return entered_ == CUDA_SUCCESS ? driver_leave(call) : entered_; \
    } while (0)

// How many entry points were entered so far; lets the seeded schedule notice a host that stopped calling.
uint64_t driver_calls(void);

// Set while the calling thread runs a host function; the API answers CUDA_ERROR_NOT_PERMITTED then.
void driver_set_in_host_function(bool inside);

// Names the calling thread; never 0, never reused.
uint64_t driver_thread(void);

// Adds an object to the table of live handles and gives it its id. False when memory is out.
bool object_register(struct object *object, enum object_kind kind);
void object_unregister(struct object *object);

// Is `handle` a live object of this kind? Never touches what the handle points to before it is known to be live.
bool object_is(const void *handle, enum object_kind kind);

// Calls `visit` for each live object. `visit` may unregister the object it is given and others.
void object_each(enum object_kind kind, void (*visit)(struct object *object, void *user), void *user);

#endif
