// The device, and the one way in which driver calls of the engine fail: the first failure is kept, with its place, and
// every later call through CALL is skipped. So code that enqueues work needs no test after each line; who has to answer
// for it asks once, at the end.
#ifndef SPECIMEN_DEVICE_H
#define SPECIMEN_DEVICE_H

#include "base/error.h"

#include <cuda.h>
#include <stdbool.h>

typedef struct device {
    CUdevice handle;
    CUcontext context; // device 0's primary context
    bool software;     // gravel's software driver
    gv_error error;    // the first failure; status GV_OK: none so far
} device;

// Opens device 0, makes its primary context current and keeps it until device_close. GV_ERR_MISSING without a device.
gv_status device_open(device *d, gv_error *error);
void device_close(device *d);

// Keeps a failure unless there is one already. Returns whether the call succeeded.
bool device_check(device *d, CUresult result, const char *call, const char *file, int line);

// Makes a driver call unless something has failed before; true when it succeeded.
#define CALL(d, call)                                                                                  \
    ({                                                                                                 \
        bool ok_ = (d)->error.status == GV_OK && device_check((d), (call), #call, __FILE__, __LINE__); \
        ok_;                                                                                           \
    })

// Is a stream capturing, and into which capture? 0: it is not (or it cannot be asked).
cuuint64_t device_capture_of(device *d, CUstream stream);

// Makes `waiting` wait for what `first` has to do now: one event, recorded and waited for. In a capture this forks and
// joins.
void device_order(device *d, CUstream first, CUstream waiting);

#endif
