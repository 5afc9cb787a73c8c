// The memory of a checked launch: what it may write, found anew or known from the last one, and the copy of it, which
// is kept from one checked launch to the next as long as the program does not need the memory.
//
// What an executable graph may write follows from the parameters of its nodes, from which memory is live, and from the
// addresses that stand in the memory that its kernels can reach (extent.h). The first two are compared with what they
// were; the third is searched while the copy is brought up to date, and counts only if it leads out of what is known.
#include "base/memory.h"
#include "record/differ.h"
#include "record/differ_core.h"
#include "record/driver.h"
#include "record/opaque.h"
#include "record/recorder.h"
#include "record/rows.h"
#include "record/source.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

// ---- Kept from one checked launch to the next --------------------------------------------------------------------

// A context is known by its id, which no later one gets: its handle may be given again, and nobody need tell of its
// end.
typedef struct kept {
    CUcontext context;
    unsigned long long id;
    CUdevice device;
    gv_shadow *shadow;
    uint64_t laid_out; // id of the plan that it is laid out for; 0: none
} kept;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kept *idle;
static size_t idle_count, idle_capacity;
static atomic_ullong idle_bytes; // device memory of all of them
static atomic_int in_use;        // shadows that a checked launch has

// Is the context still the one that this was made in?
static bool is_there(const kept *k)
{
    unsigned long long id = 0;
    return gv_cuda.cuCtxGetId(k->context, &id) == CUDA_SUCCESS && id == k->id;
}

static void take_kept(gv_check *check)
{
    kept found = {0};
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < idle_count && !found.shadow; i++)
        if (idle[i].context == check->hold.context) {
            found = idle[i];
            idle[i] = idle[--idle_count];
            atomic_fetch_sub(&idle_bytes, gv_shadow_bytes(found.shadow));
            atomic_fetch_add(&in_use, 1);
        }
    pthread_mutex_unlock(&lock);
    if (found.shadow && !is_there(&found)) {
        gv_shadow_forget(found.shadow);
        atomic_fetch_sub(&in_use, 1);
        return;
    }
    check->shadow = found.shadow;
    check->laid_out = found.laid_out;
}

static void keep(gv_check *check)
{
    kept k = {.context = check->hold.context, .shadow = check->shadow, .laid_out = check->laid_out};
    bool enough =
        gv_cuda.cuCtxGetId(k.context, &k.id) == CUDA_SUCCESS && gv_cuda.cuCtxGetDevice(&k.device) == CUDA_SUCCESS;
    // Nothing is checked a second time.
    if (gv_state.options.diff != GV_DIFF_EVERY)
        gv_shadow_trim(k.shadow);
    if (!gv_shadow_bytes(k.shadow))
        k.laid_out = 0;
    pthread_mutex_lock(&lock);
    // A launch that had not come to its end held one while a later launch made another.
    for (size_t i = 0; i < idle_count && enough; i++)
        enough = idle[i].context != k.context || idle[i].id != k.id;
    enough = enough && GV_GROW(idle, idle_capacity, idle_count + 1);
    if (enough) {
        idle[idle_count++] = k;
        atomic_fetch_add(&idle_bytes, gv_shadow_bytes(k.shadow));
    }
    atomic_fetch_sub(&in_use, 1);
    pthread_mutex_unlock(&lock);
    if (!enough)
        gv_shadow_close(k.shadow);
}

bool gv_check_give_back(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool any = false;
    // What a checked launch of another thread has is kept when it is over.
    if (atomic_load(&in_use)) {
        gv_gate_enter();
        gv_gate_leave();
    }
    if (!atomic_load(&idle_bytes))
        return false;
    gv_cuda.cuThreadExchangeStreamCaptureMode(&mode);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < idle_count; i++) {
        kept *k = &idle[i];
        uint64_t bytes = gv_shadow_bytes(k->shadow);
        CUcontext popped = NULL;
        if (!bytes || !is_there(k) || gv_cuda.cuCtxPushCurrent(k->context) != CUDA_SUCCESS)
            continue;
        gv_shadow_trim(k->shadow);
        gv_cuda.cuCtxPopCurrent(&popped);
        k->laid_out = 0;
        atomic_fetch_sub(&idle_bytes, bytes);
        any = true;
    }
    pthread_mutex_unlock(&lock);
    gv_cuda.cuThreadExchangeStreamCaptureMode(&mode);
    if (any)
        gv_verbose("the memory that was kept for the next checked launch is given back");
    return any;
}

uint64_t gv_check_kept_bytes(void)
{
    CUdevice device = 0;
    uint64_t bytes = 0;
    if (!atomic_load(&idle_bytes) || gv_cuda.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < idle_count; i++)
        if (idle[i].device == device)
            bytes += gv_shadow_bytes(idle[i].shadow);
    pthread_mutex_unlock(&lock);
    return bytes;
}

void gv_check_after_fork(void)
{
    // The child has no contexts: what the parent keeps is nothing to it.
    pthread_mutex_init(&lock, NULL);
    idle = NULL;
    idle_count = idle_capacity = 0;
    atomic_store(&idle_bytes, 0);
    atomic_store(&in_use, 0);
}

// ---- The plan ----------------------------------------------------------------------------------------------------

// Rows behind the real ones, and memory that holds nothing between launches, as the program has declared.
static gv_status list_ignored(gv_check *check, gv_error *error)
{
    gv_rows *rows = NULL;
    size_t count = 0;
    uint64_t real = UINT64_MAX;
    gv_rows_real(&real);
    gv_status status = gv_rows_list(&rows, &count) ? GV_OK : gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    for (size_t i = 0; i < count && !status; i++) {
        uint64_t end = rows[i].address + rows[i].row_bytes * rows[i].rows;
        uint64_t start = rows[i].flags & GV_ROWS_SCRATCH ? rows[i].address : gv_rows_real_end(&rows[i], real);
        if (start < end)
            status = gv_range_set_add(&check->ignored, start, end, error);
    }
    gv_range_set_settle(&check->ignored);
    gv_free(rows);
    return status;
}

// Lists the live memory of the context.
static gv_status list_memory(gv_check *check, gv_reach **reach, bool *heap, gv_error *error)
{
    gv_reach_options options = {.bytes = gv_state.options.search_bytes,
                                .seconds = gv_state.options.search_seconds,
                                .look_up = gv_opaque_look_up};
    gv_status status = gv_reach_open(check->compare, &options, reach, error);
    if (!status && !gv_opaque_list_memory(*reach, check->hold.context, heap))
        status = gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    return status;
}

void gv_check_plan_free(gv_check_plan *plan)
{
    if (!plan)
        return;
    gv_reach_close(plan->reach);
    gv_extent_free(&plan->extent);
    gv_free(plan);
}

// Finds out what the launch may write, in place of what was known. Takes `reach` over.
static gv_status plan_anew(gv_check *check, gv_reach *reach, bool *forever, gv_error *error)
{
    static uint64_t plans; // one thread at a time checks
    gv_exec *exec = check->exec;
    gv_check_plan_free(exec->plan);
    check->plan = exec->plan = gv_calloc(1, sizeof *exec->plan);
    if (!check->plan) {
        gv_reach_close(reach);
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    }
    *check->plan =
        (gv_check_plan){.id = ++plans, .version = exec->version, .context = check->hold.context, .reach = reach};
    gv_extent *extent = &check->plan->extent;
    gv_status status = gv_extent_of(reach, check->exec->snapshot, extent, error);
    if (!status && extent->refusal[0]) {
        *forever = true;
        status = gv_fail(error, GV_ERR_USAGE, "%s", extent->refusal);
    }
    if (status) {
        gv_check_plan_free(exec->plan);
        check->plan = exec->plan = NULL;
    }
    return status;
}

// Does what is known hold, as far as the host can tell?
static bool holds(const gv_check *check, const gv_reach *now)
{
    const gv_check_plan *plan = check->exec->plan;
    return plan && plan->version == check->exec->version && plan->context == check->hold.context &&
           gv_reach_lists_same(plan->reach, now);
}

// ---- Copies ------------------------------------------------------------------------------------------------------

gv_image_room *gv_check_room(gv_check *check)
{
    // Asking for it takes the driver longer than most of what a checked launch without differences does.
    if (!check->room_known) {
        uint64_t held = check->shadow ? gv_shadow_bytes(check->shadow) : 0;
        check->room = gv_image_room_now(gv_state.options.diff_bytes, gv_state.options.diff_host_bytes, held);
        check->room.device -= held < check->room.device ? held : check->room.device;
        check->room_known = true;
    }
    return &check->room;
}

// Lays the shadow out for the plan, if that fits into the device memory that may be used.
static gv_status lay_out(gv_check *check, bool *fits, gv_error *error)
{
    const gv_extent *extent = &check->plan->extent;
    gv_range *ranges = NULL;
    uint8_t *marked = NULL;
    size_t count = 0;
    gv_status status = GV_OK;
    *fits = true;
    if (check->laid_out == check->plan->id)
        return GV_OK;
    check->laid_out = 0;
    if (!check->shadow) {
        gv_source_loading_own(true);
        status = gv_shadow_open(gv_state.soft, &check->shadow, error);
        gv_source_loading_own(false);
        atomic_fetch_add(&in_use, check->shadow != NULL);
    }
    *fits = !status && gv_shadow_cost(check->shadow, &extent->writable) <= gv_check_room(check)->device;
    if (!status && !*fits && gv_shadow_bytes(check->shadow)) {
        // What it holds was for other memory.
        gv_shadow_trim(check->shadow);
        check->room_known = false;
        *fits = gv_shadow_cost(check->shadow, &extent->writable) <= gv_check_room(check)->device;
    }
    if (status || !*fits)
        return status;
    status = gv_reach_regions(check->plan->reach, &extent->reached, &ranges, &marked, &count, error);
    if (!status) {
        const gv_shadow_regions regions = {ranges, marked, count};
        status = gv_shadow_lay_out(check->shadow, &extent->writable, &regions, check->hold.stream, error);
        gv_free(ranges);
        gv_free(marked);
    }
    check->room_known = false;
    if (!status)
        check->laid_out = check->plan->id;
    // There may be room for it in host memory.
    *fits = status != GV_ERR_MEMORY;
    return *fits ? status : GV_OK;
}

// Do the addresses that were found lead out of the plan?
static bool leads_out(const gv_shadow_news *news)
{
    bool out = news->escaped || news->too_many;
    for (size_t i = 0; i < news->stray_count && !out; i++) {
        gv_range memory;
        unsigned flags = 0;
        out = gv_opaque_look_up(news->strays[i], &memory, &flags, NULL);
    }
    return out;
}

// Copies the memory into the shadow, or brings that up to date. With `search` the addresses in it are looked at; *done
// is false if they lead out of the plan, or if there is no room in device memory.
static gv_status save_in_shadow(gv_check *check, bool search, void (*meanwhile)(gv_check *check), bool *done,
                                gv_error *error)
{
    gv_shadow_news news;
    gv_status status = lay_out(check, done, error);
    if (status || !*done)
        return status;
    status = gv_shadow_take(check->shadow, search, check->hold.stream, error);
    if (!status)
        meanwhile(check);
    if (!status)
        status = gv_shadow_taken(check->shadow, &news, check->hold.stream, error);
    *done = !status && (!search || !leads_out(&news));
    if (*done) {
        check->shadowed = true;
        status = gv_shadow_before(check->shadow, &check->before, error);
    }
    return status;
}

static gv_status save(gv_check *check, void (*meanwhile)(gv_check *check), gv_error *error)
{
    bool done = false;
    gv_status status = save_in_shadow(check, false, meanwhile, &done, error);
    if (status || done)
        return status;
    const gv_range_set *writable = &check->plan->extent.writable;
    status = gv_image_save(check->compare, writable, gv_check_room(check), &check->before, error);
    if (!status)
        meanwhile(check);
    CUresult result = status ? CUDA_SUCCESS : gv_cuda.cuStreamSynchronize(check->hold.stream);
    return result == CUDA_SUCCESS ? status : gv_driver_failed(error, "memory could not be saved", result);
}

bool gv_check_prepare(gv_check *check, void (*meanwhile)(gv_check *check), bool *forever)
{
    gv_error error = {0};
    gv_reach *reach = NULL;
    bool heap = false, saved = false;
    gv_check_enter(check, GV_CHECK_PLAN);
    take_kept(check);
    check->compare = gv_opaque_take_compare(check->hold.context, check->hold.stream, &error);
    gv_status status = check->compare ? list_memory(check, &reach, &heap, &error) : error.status;
    if (!status && heap) {
        *forever = true;
        status = gv_fail(&error, GV_ERR_USAGE, "a module allocates memory from the device, which cannot be saved");
    }
    if (!status)
        status = list_ignored(check, &error);
    if (!status && holds(check, reach)) {
        check->plan = check->exec->plan;
        gv_check_enter(check, GV_CHECK_SAVE);
        status = save_in_shadow(check, true, meanwhile, &saved, &error);
        gv_check_enter(check, GV_CHECK_PLAN);
    }
    if (status || saved)
        gv_reach_close(reach);
    else
        status = plan_anew(check, reach, forever, &error);
    gv_check_enter(check, GV_CHECK_SAVE);
    if (!status && !saved)
        status = save(check, meanwhile, &error);
    if (status) {
        gv_check_fails(check, "%s", error.text);
        return false;
    }
    check->record.saved_bytes = gv_range_set_bytes(&check->plan->extent.writable);
    return true;
}

gv_status gv_check_keep_result(gv_check *check, gv_error *error)
{
    gv_status status;
    if (check->shadowed) {
        status = gv_shadow_rewind(check->shadow, check->hold.stream, &check->changed, error);
        if (status == GV_ERR_LIMIT) {
            status = gv_shadow_grow(check->shadow, gv_check_room(check)->device, check->hold.stream, error);
            check->room_known = false;
            if (!status)
                status = gv_shadow_rewind(check->shadow, check->hold.stream, &check->changed, error);
        }
        if (status)
            return status;
        status = gv_shadow_after(check->shadow, &check->graph, error);
        check->rewound = check->disturbed = !status;
        if (status) {
            gv_error undoing = {0};
            gv_status undone = gv_shadow_undo(check->shadow, check->hold.stream, &undoing);
            if (undone)
                gv_note(GV_NOTE_FAILURE, check->exec->snapshot->id, 0,
                        "the memory of a checked launch could not be put back to what the graph had left: %s",
                        undoing.text);
        }
        return status;
    }
    status = gv_image_changed(check->compare, check->before, NULL, true, &check->changed, error);
    if (!status)
        status = gv_image_save(check->compare, &check->changed, gv_check_room(check), &check->graph, error);
    CUresult result = status ? CUDA_SUCCESS : gv_cuda.cuStreamSynchronize(check->hold.stream);
    return result == CUDA_SUCCESS ? status : gv_driver_failed(error, "the graph's result could not be saved", result);
}

void gv_check_release(gv_check *check)
{
    gv_image_free(check->serial, NULL);
    gv_image_free(check->graph, NULL);
    gv_image_free(check->before, NULL);
    gv_range_set_free(&check->changed);
    gv_range_set_free(&check->touched);
    gv_range_set_free(&check->different);
    gv_range_set_free(&check->unstable);
    gv_range_set_free(&check->ignored);
    // After an error of the program's work the context is lost, and what is kept in it.
    bool lost = check->result != CUDA_SUCCESS;
    if (check->compare && !lost)
        gv_opaque_keep_compare(check->hold.context, check->compare);
    else if (check->compare)
        gv_compare_forget(check->compare);
    if (check->shadow && !lost) {
        keep(check);
    } else if (check->shadow) {
        gv_shadow_forget(check->shadow);
        atomic_fetch_sub(&in_use, 1);
    }
}
