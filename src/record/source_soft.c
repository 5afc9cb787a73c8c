// The software driver as a source: it watches every access of its kernels itself and hands over the ranges.
#include "base/memory.h"
#include "device/condition.h"
#include "record/condition.h"
#include "record/early.h"
#include "record/recorder.h"
#include "record/source.h"
#include "soft/gravel_soft.h"

static const gravel_soft_api *api;
static bool recording;
static bool early; // what comes before the next kernel's grid-dependency wait is wanted too
static gv_wait_observation seen;

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

static gv_status soft_open(CUcontext context, CUstream stream, bool waits, gv_error *error)
{
    return GV_OK;
}

static gv_status soft_before(gv_error *error)
{
    if (api->access_begin(early) != 0) {
        early = false;
        return gv_fail(error, GV_ERR_MEMORY, "the software driver could not begin to record");
    }
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

static void take_variable(void *user, void *module, uint64_t address, uint64_t size)
{
    gv_variables *variables = user;
    // A callback cannot fail: `heap`, which means nothing here, says that memory ran out.
    if (GV_GROW(variables->items, variables->capacity, variables->count + 1))
        variables->items[variables->count++] = (gv_variable){module, address, size};
    else
        variables->heap = true;
}

bool gv_soft_variables(gv_variables *variables)
{
    bool listed = api->variables(take_variable, variables) == 0 && !variables->heap;
    variables->heap = false;
    return listed;
}

// The software driver tells for each thread on its own what came before its wait: nothing need be held.
static void soft_expect_wait(CUfunction function, bool *held)
{
    early = true;
}

static void soft_release(bool launched)
{
}

static void take_early(void)
{
    unsigned grid = 0;
    collecting into = {&seen.early, true};
    gv_node_ranges_clear(&seen.early);
    seen.reason[0] = '\0';
    if (api->access_early(take_range, &into, &grid) != 0 || !into.whole) {
        gv_wait_unknown(&seen, "memory for what it accesses before its grid-dependency wait ran out");
        return;
    }
    seen.wait = grid & GRAVEL_SOFT_GRID_WAITED ? GV_GRID_WAIT_DONE : GV_GRID_WAIT_NONE;
    seen.trigger = grid & GRAVEL_SOFT_GRID_TRIGGERED_LATE ? GV_GRID_TRIGGER_LATE : GV_GRID_TRIGGER_EARLY;
}

static void soft_wait_seen(gv_wait_observation *observation)
{
    gv_node_ranges kept = observation->early;
    *observation = seen;
    seen.early = kept;
}

static gv_status soft_after(gv_node_ranges *ranges, gv_node_ranges *extents, gv_error *error)
{
    collecting into = {ranges, true};
    recording = false;
    if (early)
        take_early();
    early = false;
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
    recording = early = false;
}

static void set_now(void *user)
{
    const gv_condition_setter *setter = user;
    for (uint32_t i = 0; i < setter->count; i++) {
        uint32_t value =
            gv_condition_word(setter->host.seen, setter->merge ? setter->host.side : NULL, setter->host.base, i) -
            setter->host.less[i];
        api->set_condition(i + 1, value);
        if (i == setter->extra)
            api->set_condition(setter->count + 1, value);
    }
}

static gv_status soft_add_setter(CUgraph graph, const gv_condition_setter *setter, CUgraphNode *made, gv_error *error)
{
    const CUDA_HOST_NODE_PARAMS host = {.fn = set_now, .userData = (void *)setter};
    CUresult result = gv_cuda.cuGraphAddHostNode(made, graph, NULL, 0, &host);
    return result == CUDA_SUCCESS
               ? GV_OK
               : gv_fail(error, GV_ERR_IO, "a node that sets conditions cannot be made: %s", gv_driver_error(result));
}

const gv_recording_source gv_source_soft = {.id = GV_SOURCE_SOFT,
                                            .open = soft_open,
                                            .expect_wait = soft_expect_wait,
                                            .before = soft_before,
                                            .release = soft_release,
                                            .after = soft_after,
                                            .wait_seen = soft_wait_seen,
                                            .add_setter = soft_add_setter,
                                            .close = soft_close};
