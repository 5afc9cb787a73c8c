// The software driver as a source: it watches every access of its kernels itself and hands over the ranges.
#include "record/recorder.h"
#include "record/source.h"
#include "soft/gravel_soft.h"

static const gravel_soft_api *api;
static bool recording;

bool gv_source_soft_ready(const char **why)
{
    if (!api) {
        gravel_soft_api_function function = (gravel_soft_api_function)gv_driver_symbol(GRAVEL_SOFT_API_SYMBOL);
        const gravel_soft_api *found = function ? function() : NULL;
        if (!found || found->version != GRAVEL_SOFT_API_VERSION) {
            *why = "the software driver is of another version than this gravel";
            return false;
        }
        api = found;
    }
    return true;
}

static gv_status soft_open(CUcontext context, CUstream stream, gv_error *error)
{
    return GV_OK;
}

static gv_status soft_before(gv_error *error)
{
    if (api->access_begin(0) != 0)
        return gv_fail(error, GV_ERR_MEMORY, "the software driver could not begin to record");
    recording = true;
    return GV_OK;
}

typedef struct collecting {
    gv_node_ranges *ranges;
    bool whole;
} collecting;

static void take_range(void *user, enum gravel_soft_access_kind kind, uint64_t start, uint64_t end)
{
    collecting *into = user;
    if (!gv_node_ranges_append(into->ranges, (enum gv_access_kind)kind, start, end))
        into->whole = false;
}

static gv_status soft_after(gv_node_ranges *ranges, gv_error *error)
{
    collecting into = {ranges, true};
    recording = false;
    int result = api->access_end(take_range, &into);
    if (result < 0)
        return gv_fail(error, GV_ERR_USAGE, "the software driver was not recording");
    if (result > 0 || !into.whole)
        return gv_fail(error, GV_ERR_LIMIT, "memory for the access set ran out");
    return GV_OK;
}

static void ignore_range(void *user, enum gravel_soft_access_kind kind, uint64_t start, uint64_t end)
{
}

// A node that failed, or was left waiting, never came to soft_after.
static void soft_close(void)
{
    if (recording)
        api->access_end(ignore_range, NULL);
    recording = false;
}

const gv_recording_source gv_source_soft = {GV_SOURCE_SOFT, soft_open, soft_before, soft_after, soft_close};
