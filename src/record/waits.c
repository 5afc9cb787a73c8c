#include "record/waits.h"

#include "base/memory.h"
#include "record/early.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// ---- What the machine code says ------------------------------------------------------------------------------

typedef struct kernel_row {
    char *name;
    gv_kernel_flow flow;
} kernel_row;

typedef struct module_row {
    CUcontext context;
    CUmodule module;
    bool known;
    gv_module_flow functions;
    kernel_row *kernels; // sorted by name
    size_t count, capacity;
} module_row;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static module_row *modules;
static size_t module_count, module_capacity;

static void take(const char *name, gv_kernel_flow *flow, void *user)
{
    module_row *row = user;
    char *copy = gv_strdup(name);
    if (copy && GV_GROW(row->kernels, row->capacity, row->count + 1)) {
        row->kernels[row->count++] = (kernel_row){copy, *flow};
        return;
    }
    gv_free(copy);
    gv_flow_free(flow);
    row->known = false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const kernel_row *)a)->name, ((const kernel_row *)b)->name);
}

static void free_row(module_row *row)
{
    for (size_t i = 0; i < row->count; i++) {
        gv_free(row->kernels[i].name);
        gv_flow_free(&row->kernels[i].flow);
    }
    gv_free(row->kernels);
}

void gv_waits_add(CUcontext context, CUmodule module, const void *image, size_t size)
{
    module_row row = {.context = context, .module = module, .known = true};
    if (!image || !gv_cubin_flows(image, size, &row.functions, take, &row))
        row.known = false;
    if (row.count)
        qsort(row.kernels, row.count, sizeof *row.kernels, by_name);
    pthread_mutex_lock(&lock);
    bool kept = GV_GROW(modules, module_capacity, module_count + 1);
    if (kept)
        modules[module_count++] = row;
    pthread_mutex_unlock(&lock);
    if (!kept) // its kernels are then of a module that was not looked at
        free_row(&row);
}

void gv_waits_drop(CUmodule module, CUcontext context)
{
    pthread_mutex_lock(&lock);
    for (size_t i = module_count; i-- > 0;) {
        if (modules[i].module != module && modules[i].context != context)
            continue;
        free_row(&modules[i]);
        modules[i] = modules[--module_count];
    }
    pthread_mutex_unlock(&lock);
}

static bool copy_bits(uint32_t **bits, uint32_t instructions)
{
    size_t size = ((size_t)instructions + 31) / 32 * sizeof **bits;
    const uint32_t *from = *bits;
    if (!from)
        return true;
    *bits = gv_malloc(size);
    if (*bits)
        memcpy(*bits, from, size);
    return *bits != NULL;
}

// Makes the bits a flow's own.
static bool copy_flow(gv_kernel_flow *flow)
{
    gv_kernel_flow copy = *flow;
    bool enough = copy_bits(&copy.before, flow->instructions);
    if (!enough)
        copy.after = copy.watched = NULL;
    enough = enough && copy_bits(&copy.after, flow->instructions);
    if (!enough)
        copy.watched = NULL;
    enough = enough && copy_bits(&copy.watched, flow->instructions);
    if (!enough)
        gv_flow_free(&copy);
    *flow = copy;
    return enough;
}

bool gv_waits_of(CUmodule module, const char *name, gv_kernel_waits *waits)
{
    bool enough = true;
    *waits = (gv_kernel_waits){0};
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < module_count && name; i++) {
        const module_row *row = &modules[i];
        if (row->module != module)
            continue;
        const kernel_row key = {(char *)name, {0}};
        const kernel_row *found = row->count ? bsearch(&key, row->kernels, row->count, sizeof key, by_name) : NULL;
        waits->known = row->known;
        if (found) {
            waits->flow = found->flow;
            // Where all ways could be followed, the functions it calls are part of them.
            bool elsewhere = found->flow.calls && !found->flow.followed;
            waits->functions_wait = elsewhere && row->functions.waits;
            waits->functions_trigger = elsewhere && row->functions.triggers;
            waits->waits = found->flow.waits || waits->functions_wait;
            enough = copy_flow(&waits->flow);
        }
        break;
    }
    pthread_mutex_unlock(&lock);
    return enough;
}

void gv_kernel_waits_free(gv_kernel_waits *waits)
{
    gv_flow_free(&waits->flow);
    *waits = (gv_kernel_waits){0};
}

// ---- Watching ------------------------------------------------------------------------------------------------

enum gv_watch_mode gv_waits_choose(const gv_kernel_waits *waits, uint64_t base, uint64_t size)
{
    const gv_kernel_flow *flow = &waits->flow;
    if (!waits->known || !waits->waits)
        return GV_WATCH_OFF;
    bool code = flow->split && base != 0 && size != 0 && size <= (uint64_t)flow->instructions * 16 &&
                flow->instructions <= GV_WATCH_INSTRUCTIONS;
    return code ? GV_WATCH_CODE : GV_WATCH_HELD;
}

static enum gv_grid_trigger trigger_of(const gv_kernel_waits *waits)
{
    if (waits->flow.followed)
        return waits->flow.trigger;
    return waits->flow.triggers || waits->functions_trigger ? GV_GRID_TRIGGER_UNKNOWN : GV_GRID_TRIGGER_LATE;
}

static const char *judge_by_code(const gv_watched *watched)
{
    if (watched->watch.seen & GV_WATCH_ASTRAY)
        return "what it did could not be placed in its machine code before or after its grid-dependency wait";
    if (!(watched->watch.seen & GV_WATCH_AFTER))
        return "nothing shows whether any of its threads got as far as its grid-dependency wait";
    return NULL;
}

// Do the instructions it was seen to execute, and when, fit what the machine code says? Blocks that began after the
// release are known only by the instructions that others have executed before it: what else they did must be such that
// it cannot come before a wait.
static const char *judge_pcs(const gv_kernel_waits *waits, const gv_watched *watched)
{
    const gv_kernel_flow *flow = &waits->flow;
    bool placed = flow->followed && watched->watch.base != 0;
    for (size_t i = 0; i < GV_WATCH_PCS; i++) {
        const gv_watched_pc *pc = &watched->pcs[i];
        if (!pc->pc)
            continue;
        uint64_t at = (pc->pc - 1 - watched->watch.base) / 16;
        bool inside = at < flow->instructions;
        bool may_be_early = !placed || (inside && gv_flow_has(flow->before, at));
        bool is_one = !placed || (inside && gv_flow_has(flow->watched, at));
        if (!is_one || (pc->how & GV_PC_HELD && !may_be_early))
            return "what it did while it was held at its grid-dependency wait does not fit its machine code";
        if (pc->how & GV_PC_BEGAN_LATER && !(pc->how & GV_PC_HELD) && may_be_early)
            return "not all its blocks have room on the device at once, and those that began later may have done "
                   "something else before their grid-dependency wait than the first ones";
    }
    return NULL;
}

static const char *judge_held(const gv_kernel_waits *waits, const gv_watched *watched)
{
    uint32_t seen = watched->watch.seen;
    if (watched->held == GV_HELD_FAILED)
        return "it could not be held at its grid-dependency wait";
    if (watched->held == GV_HELD_NOT_BEGUN || !watched->watch.entered)
        return "it did not begin beside the kernel that was to hold it at its grid-dependency wait";
    if (watched->held == GV_HELD_NOT_STILL || watched->watch.phase != GV_PHASE_RELEASED)
        return "it was still at work when the time to hold it at its grid-dependency wait was over";
    if (seen & GV_WATCH_FULL)
        return "more instructions of it access memory than can be told apart";
    return judge_pcs(waits, watched);
}

void gv_waits_judge(const gv_kernel_waits *waits, const gv_watched *watched, unsigned unseen,
                    gv_wait_observation *observation)
{
    const char *why = NULL;
    *observation = (gv_wait_observation){.early = observation->early, .wait = GV_GRID_WAIT_NONE};
    observation->trigger = GV_GRID_TRIGGER_EARLY;
    if (!waits->known)
        why = "its machine code could not be looked at for a grid-dependency wait";
    else if (!waits->waits)
        return;
    else if (watched->mode == GV_WATCH_CODE)
        why = judge_by_code(watched);
    else if (watched->mode == GV_WATCH_HELD)
        why = judge_held(waits, watched);
    else
        why = "it could not be watched at its grid-dependency wait";
    if (why) {
        gv_wait_unknown(observation, why);
        return;
    }
    if (watched->mode == GV_WATCH_HELD && !(watched->watch.seen & GV_WATCH_RESUMED)) {
        // It has run to its end while it was held: nothing in it waited.
        if (watched->watch.seen & GV_WATCH_BEGAN_LATER || !watched->watch.exited)
            gv_wait_unknown(observation, "nothing shows whether it got as far as its grid-dependency wait");
        return;
    }
    observation->wait = GV_GRID_WAIT_DONE;
    observation->trigger = trigger_of(waits);
    // The constants of a module may be read anywhere: whether that matters is known to who asks.
    unsigned elsewhere = GV_FUNCTION_UNSCANNED | GV_FUNCTION_DEVICE_LAUNCH | GV_FUNCTION_UNSEEN;
    observation->unseen_come_after = waits->flow.followed && !(unseen & (waits->flow.early_flags | elsewhere));
}
