// Hooks of the ends of contexts: what is being hashed in one has to be looked at before. They do nothing else.
#include "record/canary.h"
#include "record/hook.h"
#include "record/recorder.h"

GV_HOOK(cuCtxDestroy_v2, (CUcontext context), (context))
{
    if (gv_canary_is_on() && gv_enter()) {
        gv_canary_context_ends(context);
        gv_leave();
    }
    return real(context);
}

GV_HOOK(cuDevicePrimaryCtxReset_v2, (CUdevice device), (device))
{
    if (gv_canary_is_on() && gv_enter()) {
        gv_canary_device_resets(device);
        gv_leave();
    }
    return real(device);
}

// Whether this is the last release, and ends the context, only the driver knows.
GV_HOOK(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device))
{
    if (gv_canary_is_on() && gv_enter()) {
        gv_canary_settle();
        gv_leave();
    }
    return real(device);
}
