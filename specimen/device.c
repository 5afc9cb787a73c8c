// Opening the device, and keeping the first failure.
#include "specimen/device.h"

#include <string.h>

gv_status device_open(device *d, gv_error *error)
{
    *d = (device){0};
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGet(&d->handle, 0);
    if (result == CUDA_ERROR_INVALID_VALUE)
        return gv_fail(error, GV_ERR_USAGE,
                       "cuInit: the driver refused its settings; the software driver wants "
                       "GRAVEL_SOFT_SCHEDULE=free, serial or seed:N");
    if (result != CUDA_SUCCESS)
        return gv_fail(error, GV_ERR_MISSING,
                       "there is no CUDA device (error %d); without a GPU, put gravel's "
                       "software driver first: LD_LIBRARY_PATH=BUILD/soft",
                       (int)result);
    CALL(d, cuDevicePrimaryCtxRetain(&d->context, d->handle));
    CALL(d, cuCtxSetCurrent(d->context));
    char name[128] = "";
    CALL(d, cuDeviceGetName(name, sizeof name, d->handle));
    d->software = !strcmp(name, "gravel software driver");
    if (d->error.status != GV_OK && error)
        *error = d->error;
    return d->error.status;
}

void device_close(device *d)
{
    if (d->context)
        cuDevicePrimaryCtxRelease(d->handle);
    d->context = NULL;
}

bool device_check(device *d, CUresult result, const char *call, const char *file, int line)
{
    if (result == CUDA_SUCCESS)
        return true;
    const char *name = NULL;
    cuGetErrorName(result, &name);
    const char *slash = strrchr(file, '/');
    gv_fail(&d->error, GV_ERR_IO, "%s:%d: %.200s: %s (%d)", slash ? slash + 1 : file, line, call,
            name ? name : "unknown error", (int)result);
    return false;
}

cuuint64_t device_capture_of(device *d, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CALL(d, cuStreamGetCaptureInfo_v3(stream, &status, &id, NULL, NULL, NULL, NULL));
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
}

void device_order(device *d, CUstream first, CUstream waiting)
{
    CUevent event = NULL;
    if (first == waiting || !CALL(d, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)))
        return;
    CALL(d, cuEventRecord(event, first));
    CALL(d, cuStreamWaitEvent(waiting, event, 0));
    cuEventDestroy(event); // a wait keeps what it waits for
}
