#include "record/perturb.h"

#include "base/clock.h"
#include "base/memory.h"
#include "record/ids.h"
#include "record/opaque.h"
#include "record/recorder.h"
#include "trace/ranges.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// How often, and for how long, a check waits for other work in its context.
enum { MOST_ATTEMPTS = 3, LONG_WAIT_NS = 1000000000 };

void gv_perturb_fails(gv_perturb *p, const char *format, ...)
{
    if (p->reason[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(p->reason, sizeof p->reason, format, arguments);
    va_end(arguments);
}

// Takes a status for an answer.
static bool good(gv_perturb *p, gv_status status, const gv_error *error)
{
    if (status)
        gv_perturb_fails(p, "%.400s", error->text);
    return !status;
}

// ---- Sets --------------------------------------------------------------------------------------------------------

bool gv_perturb_minus(gv_perturb *p, const gv_range_set *a, const gv_range_set *b, gv_range_set *out)
{
    gv_error error = {0};
    return good(p, gv_range_set_difference(a, b, out, &error), &error);
}

bool gv_perturb_both(gv_perturb *p, const gv_range_set *a, const gv_range_set *b, gv_range_set *out)
{
    gv_error error = {0};
    return good(p, gv_range_set_intersection(a, b, out, &error), &error);
}

bool gv_perturb_add(gv_perturb *p, gv_range_set *set, const gv_range_set *more)
{
    gv_error error = {0};
    gv_status status = GV_OK;
    gv_range_set_settle(more);
    for (size_t i = 0; i < more->count && !status; i++)
        status = gv_range_set_add(set, more->ranges[i].start, more->ranges[i].end, &error);
    gv_range_set_settle(set);
    return good(p, status, &error);
}

bool gv_perturb_words(gv_perturb *p, gv_range_set *set)
{
    gv_range_set wide = {0};
    gv_error error = {0};
    gv_status status = GV_OK;
    for (size_t i = 0; i < set->count && !status; i++)
        status = gv_range_set_add(&wide, set->ranges[i].start & ~UINT64_C(7), (set->ranges[i].end + 7) & ~UINT64_C(7),
                                  &error);
    gv_range_set_settle(&wide);
    gv_range_set_free(set);
    *set = wide;
    return good(p, status, &error);
}

// ---- Rows --------------------------------------------------------------------------------------------------------

gv_status gv_perturb_list_rows(gv_perturb *p, gv_error *error)
{
    CUdevice device = 0;
    size_t kept = 0;
    if (!gv_rows_list(&p->rows, &p->row_count))
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    bool known = gv_cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS;
    for (size_t i = 0; i < p->row_count; i++) {
        int ordinal = -1;
        if (gv_cuda.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p->rows[i].address) ==
                CUDA_SUCCESS &&
            known && ordinal == (int)device)
            p->rows[kept++] = p->rows[i];
    }
    p->row_count = kept;
    return GV_OK;
}

gv_range gv_perturb_real(const gv_perturb *p, const gv_rows *rows)
{
    uint64_t end = gv_rows_end(rows, p->captured), real = gv_rows_real_end(rows, p->real);
    return (gv_range){rows->address, real < end ? real : end};
}

gv_range gv_perturb_padding(const gv_perturb *p, const gv_rows *rows)
{
    return (gv_range){gv_perturb_real(p, rows).end, gv_rows_end(rows, p->captured)};
}

bool gv_perturb_own_memory(gv_perturb *p, gv_range_set *own)
{
    gv_live *lives = NULL;
    size_t count = 0;
    gv_error error = {0};
    gv_status status = gv_lives(&lives, &count) ? GV_OK : gv_fail(&error, GV_ERR_MEMORY, "memory ran out");
    for (size_t i = 0; i < count && !status; i++)
        if (lives[i].captured)
            status = gv_range_set_add(own, lives[i].address, lives[i].address + lives[i].size, &error);
    gv_free(lives);
    gv_range_set_settle(own);
    return good(p, status, &error);
}

// ---- Memory ------------------------------------------------------------------------------------------------------

bool gv_perturb_differences(gv_perturb *p, const gv_image *image, const gv_range_set *within, gv_range_set *found)
{
    gv_error error = {0};
    bool compared = good(p, gv_image_changed(p->compare, image, within, false, found, &error), &error);
    gv_range_set_settle(found);
    return compared;
}

gv_image *gv_perturb_keep(gv_perturb *p, const gv_range_set *ranges)
{
    gv_image *image = NULL;
    gv_error error = {0};
    good(p, gv_image_save(p->compare, ranges, &p->room, &image, &error), &error);
    return image;
}

void gv_perturb_drop(gv_perturb *p, gv_image *image)
{
    if (!image)
        return;
    gv_cuda.cuStreamSynchronize(p->hold.stream);
    gv_image_free(image, &p->room);
}

static bool wait_for_it(gv_perturb *p)
{
    CUresult done = gv_wait_for_stream(p->hold.stream, gv_state.options.stall_seconds);
    if (done == CUDA_ERROR_NOT_READY) {
        gv_perturb_fails(p,
                         "a further launch of it made no progress in %g s, though the program's own had come to an end",
                         gv_state.options.stall_seconds);
        gv_say("graph #%llu: %s; this launch returns when it is done", (unsigned long long)p->exec->snapshot->id,
               p->reason);
        // Everybody else may go on, and may provide what it waits for.
        gv_hold_open(&p->hold);
        while ((done = gv_wait_for_stream(p->hold.stream, 10)) == CUDA_ERROR_NOT_READY)
            ;
    }
    if (done != CUDA_SUCCESS) {
        p->result = done;
        gv_perturb_fails(p, "a further launch of it failed: %s", gv_driver_error(done));
    }
    return !p->reason[0];
}

// Memory becomes what it was before the launch, and then what `image` and `change` make of it.
bool gv_perturb_rewind(gv_perturb *p, const gv_image *image, gv_perturb_change change, void *user)
{
    gv_error error = {0};
    p->disturbed = true;
    gv_status status = gv_image_restore(p->compare, p->before, NULL, &error);
    if (!status && image)
        status = gv_image_restore(p->compare, image, NULL, &error);
    if (!status && change)
        status = change(p, user, &error);
    return good(p, status, &error);
}

bool gv_perturb_again(gv_perturb *p, const gv_image *image, gv_perturb_change change, void *user)
{
    if (!gv_perturb_rewind(p, image, change, user))
        return false;
    p->record.replays++;
    CUresult result = p->launch(p->exec->handle, p->stream);
    if (result != CUDA_SUCCESS)
        gv_perturb_fails(p, "a further launch of it was refused: %s", gv_driver_error(result));
    return result == CUDA_SUCCESS && wait_for_it(p);
}

// ---- Nodes -------------------------------------------------------------------------------------------------------

typedef struct searching {
    gv_perturb *p;
    const gv_image *start;
    const gv_range_set *bytes;
    uint64_t graph, node;
} searching;

static void look(void *user, const gv_snapshot *snapshot, uint32_t node, uint64_t position)
{
    searching *search = user;
    gv_range_set found = {0};
    if (search->node)
        return;
    if (gv_perturb_differences(search->p, search->start, search->bytes, &found) && found.count) {
        search->graph = snapshot->id;
        search->node = (uint64_t)node + 1;
    }
    gv_range_set_free(&found);
}

bool gv_perturb_nodes(gv_perturb *p, gv_replay_step step, void *user)
{
    gv_replay run = {.stream = p->hold.stream, .context = p->hold.context, .launch = p->record.launch};
    p->record.replays++;
    p->disturbed = true;
    gv_replay_plain(&run, p->exec->snapshot, step, user);
    if (run.result != CUDA_SUCCESS) {
        p->result = run.result;
        gv_perturb_fails(p, "a node failed when the nodes ran one by one: %s", gv_driver_error(run.result));
    } else if (run.left_running) {
        gv_perturb_fails(p, "%.400s", run.reason);
        wait_for_it(p);
    }
    gv_replay_end(&run);
    return !p->reason[0];
}

void gv_perturb_find_node(gv_perturb *p, gv_perturb_change change, void *user, const gv_range_set *bytes,
                          uint64_t *graph, uint64_t *node)
{
    searching search = {.p = p, .bytes = bytes};
    *graph = *node = 0;
    if (!p->exec->snapshot->owned || !gv_perturb_rewind(p, NULL, change, user))
        return;
    gv_image *start = gv_perturb_keep(p, bytes);
    search.start = start;
    if (start && gv_perturb_nodes(p, look, &search)) {
        *graph = search.graph;
        *node = search.node;
    }
    gv_perturb_drop(p, start);
}

void gv_perturb_write_effect(gv_perturb *p, gv_effect_record *effect, const gv_range_set *ranges)
{
    enum { MOST_RANGES = 4096 };
    gv_range_set_settle(ranges);
    size_t count = ranges->count < MOST_RANGES ? ranges->count : MOST_RANGES;
    uint8_t *bytes = count ? gv_malloc(gv_ranges_encoded_bound(count)) : NULL;
    effect->launch = p->record.launch;
    effect->bytes = gv_range_set_bytes(ranges);
    effect->real_rows = p->real == UINT64_MAX ? 0 : p->real;
    if (!effect->graph)
        effect->graph = p->exec->snapshot->id;
    if (bytes)
        effect->ranges = (gv_bytes){bytes, gv_ranges_encode(ranges->ranges, count, bytes)};
    gv_write_effect(gv_state.writer, effect);
    gv_free(bytes);
}

// ---- The launch --------------------------------------------------------------------------------------------------

static bool prepare(gv_perturb *p, gv_status (*more)(gv_perturb *p, gv_range_set *saved, gv_error *error))
{
    gv_error error = {0};
    bool heap = false;
    gv_reach_options options = {.bytes = gv_state.options.search_bytes,
                                .seconds = gv_state.options.search_seconds,
                                .look_up = gv_opaque_look_up};
    p->compare = gv_opaque_take_compare(p->hold.context, p->hold.stream, &error);
    gv_status status = p->compare ? gv_reach_open(p->compare, &options, &p->reach, &error) : error.status;
    if (!status && !gv_opaque_list_memory(p->reach, p->hold.context, &heap))
        status = gv_fail(&error, GV_ERR_MEMORY, "memory ran out");
    if (!status && heap) {
        p->forever = true;
        status = gv_fail(&error, GV_ERR_USAGE, "a module allocates memory from the device, which cannot be saved");
    }
    if (!status)
        status = gv_extent_of(p->reach, p->exec->snapshot, &p->extent, &error);
    if (!status && p->extent.refusal[0]) {
        p->forever = true;
        status = gv_fail(&error, GV_ERR_USAGE, "%s", p->extent.refusal);
    }
    if (!good(p, status, &error) || !gv_perturb_add(p, &p->saved, &p->extent.writable) ||
        !good(p, more(p, &p->saved, &error), &error))
        return false;
    gv_range_set_settle(&p->saved);
    p->room = gv_image_room_now(gv_state.options.compare_bytes, UINT64_MAX, 0);
    p->before = gv_perturb_keep(p, &p->saved);
    p->record.saved_bytes = gv_range_set_bytes(&p->saved);
    return p->before && good(p,
                             gv_cuda.cuStreamSynchronize(p->hold.stream) == CUDA_SUCCESS
                                 ? GV_OK
                                 : gv_fail(&error, GV_ERR_IO, "memory could not be saved"),
                             &error);
}

static void release(gv_perturb *p)
{
    gv_image_free(p->after, NULL);
    gv_image_free(p->before, NULL);
    gv_range_set_free(&p->saved);
    gv_range_set_free(&p->changed);
    gv_range_set_free(&p->needed);
    gv_range_set_free(&p->ignored);
    gv_range_set_free(&p->unstable);
    gv_range_set_free(&p->left_out);
    gv_extent_free(&p->extent);
    gv_reach_close(p->reach);
    gv_free(p->rows);
    // After an error of the program's work the context is lost, and what is kept in it.
    if (p->compare && p->result == CUDA_SUCCESS)
        gv_opaque_keep_compare(p->hold.context, p->compare);
    else if (p->compare)
        gv_compare_forget(p->compare);
}

// The program's own launch. Its result is kept.
static bool launch_own(gv_perturb *p, CUresult *result)
{
    gv_error error = {0};
    *result = p->launch(p->exec->handle, p->stream);
    if (*result != CUDA_SUCCESS)
        return false;
    CUresult done = gv_wait_for_stream(p->hold.stream, gv_state.options.stall_seconds);
    p->record.launch = gv_write_launch(p->exec, p->stream, p->per_thread, gv_stack());
    if (done == CUDA_ERROR_NOT_READY) {
        p->unfinished = true;
        gv_perturb_fails(p, "its work did not come to an end in %g s: it may wait for what the program does next",
                         gv_state.options.stall_seconds);
    } else if (done != CUDA_SUCCESS) {
        p->result = done;
        gv_perturb_fails(p, "its work failed: %s", gv_driver_error(done));
    }
    if (p->reason[0])
        return false;
    p->after = gv_perturb_keep(p, &p->saved);
    return p->after && gv_perturb_differences(p, p->before, NULL, &p->changed) && gv_perturb_words(p, &p->changed) &&
           good(p, gv_cuda.cuStreamSynchronize(p->hold.stream) == CUDA_SUCCESS ? GV_OK : GV_ERR_IO, &error);
}

// Memory becomes what the program's own launch left.
static void put_right(gv_perturb *p)
{
    gv_error error = {0};
    if (!p->disturbed || !p->after || p->result != CUDA_SUCCESS)
        return;
    gv_status status = gv_image_restore(p->compare, p->after, NULL, &error);
    CUresult done = gv_cuda.cuStreamSynchronize(p->hold.stream);
    if (status || done != CUDA_SUCCESS)
        gv_note(GV_NOTE_FAILURE, p->exec->snapshot->id, 0,
                "the memory of a repeated launch could not be put back to what the program's own had left: %s",
                status ? error.text : gv_driver_error(done));
}

static void write_down(gv_perturb *p)
{
    if (p->reason[0] && p->record.status == GV_PERTURBED_CHECKED)
        p->record.status = GV_PERTURBED_REFUSED;
    p->record.exec = p->exec->id;
    p->record.graph = p->exec->snapshot ? p->exec->snapshot->id : 0;
    p->record.patterns = (gv_text){p->patterns, strlen(p->patterns)};
    p->record.reason = (gv_text){p->reason, strlen(p->reason)};
    p->record.real_rows = p->real == UINT64_MAX ? 0 : p->real;
    gv_write_perturbed(gv_state.writer, &p->record);
    gv_flush();
}

void gv_perturb_refused(gv_perturb *p, const char *why, bool *owed, bool *refused)
{
    if (!p->forever && !p->unfit)
        return;
    *owed = false;
    *refused = p->forever;
    p->record.status = GV_PERTURBED_REFUSED;
    if (!p->reason[0])
        snprintf(p->reason, sizeof p->reason, "%.400s", why);
    write_down(p);
    gv_note_once(GV_NOTE_INFO, p->reason, "%s of graph #%llu is not checked: %s",
                 p->record.what == GV_PERTURBED_PADDING ? "the padding" : "the scratch memory",
                 (unsigned long long)(p->exec->snapshot ? p->exec->snapshot->id : 0), p->reason);
}

// Why no launch of this graph can ever be checked, or NULL.
static const char *obstacle_of(const gv_perturb *p)
{
    const gv_exec *exec = p->exec;
    CUstream named = p->stream ? p->stream : p->per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    CUcontext context = NULL;
    if (exec->unknown[0])
        return exec->unknown;
    if (!exec->snapshot)
        return "it was not read";
    if (exec->snapshot->refusal[0])
        return exec->snapshot->refusal;
    if (gv_cuda.cuStreamGetCtx(named, &context) != CUDA_SUCCESS || !context)
        gv_cuda.cuCtxGetCurrent(&context);
    if (!gv_in_context(exec->snapshot, context))
        return "its nodes belong to several contexts";
    if (exec->perturb_attempts >= MOST_ATTEMPTS)
        return "other work in its context did not come to an end";
    return gv_extent_obstacle(exec->snapshot);
}

bool gv_perturb_launch(gv_perturb *p, gv_status (*more)(gv_perturb *p, gv_range_set *saved, gv_error *error),
                       gv_perturb_check check, CUresult *result, const char **why)
{
    static __thread char text[sizeof p->reason];
    const char *obstacle = obstacle_of(p);
    uint64_t start = gv_monotonic_ns();
    if (obstacle) {
        *why = obstacle;
        p->forever = true;
        return false;
    }
    if (!gv_hold_begin(&p->hold, p->stream, p->per_thread, why)) {
        // A program whose context is never idle must not lose that time at every launch.
        p->exec->perturb_attempts += gv_monotonic_ns() - start > LONG_WAIT_NS;
        gv_verbose("graph #%llu is not checked at this launch: %s", (unsigned long long)p->exec->snapshot->id, *why);
        return false;
    }
    p->exec->perturb_attempts = 0;
    gv_exec_refresh(p->exec);
    bool ready = prepare(p, more), launched = false;
    if (ready) {
        launched = launch_own(p, result);
        if (launched) {
            check(p);
            gv_perturb_account(p);
        }
        put_right(p);
        p->record.duration_ns = gv_monotonic_ns() - start;
        if (*result == CUDA_SUCCESS)
            write_down(p);
        gv_verbose("graph #%llu: launched %llu more times in %.1f ms, %.1f MiB saved%s%s",
                   (unsigned long long)p->exec->snapshot->id, (unsigned long long)p->record.replays,
                   (double)p->record.duration_ns / 1e6, (double)p->record.saved_bytes / 1048576,
                   p->reason[0] ? ": shows nothing, " : "", p->reason);
        if (p->result != CUDA_SUCCESS && *result == CUDA_SUCCESS)
            *result = p->result;
    } else {
        memcpy(text, p->reason, sizeof text);
        *why = text;
        p->unfit = true;
    }
    // What it waits for must not be waited for by freeing memory: that is left behind.
    if (!p->unfinished)
        release(p);
    gv_hold_end(&p->hold);
    return ready;
}
