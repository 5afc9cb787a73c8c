// The course of a checked launch: what it may write is saved, the graph runs, its result is kept, the memory is put
// back, the nodes run one by one, the two results are compared, and the graph's is left behind.
#include "record/differ.h"

#include "base/clock.h"
#include "base/memory.h"
#include "record/differ_core.h"
#include "record/ids.h"
#include "record/opaque.h"
#include "record/recorder.h"
#include "record/rows.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ATTEMPTS = 3, LONG_WAIT_NS = 500000000 };

// ---- Choosing ----------------------------------------------------------------------------------------------------

bool gv_check_is_due(gv_exec *exec)
{
    const gv_record_options *options = &gv_state.options;
    if (options->diff == GV_DIFF_NONE || !exec->named || exec->check_refused)
        return false;
    exec->check_owed |=
        options->diff == GV_DIFF_FIRST ? exec->launches == 1 : (exec->launches - 1) % options->diff_number == 0;
    return exec->check_owed;
}

static void write_setting(unsigned kind, const char *name, size_t length, const char *value)
{
    gv_setting_record record = {.kind = kind, .name = {name, length}, .value = {value, strlen(value)}};
    gv_write_setting(gv_state.writer, &record);
}

// GRAVEL_DIFF_DTYPES: NAME=TYPE, one a line. `gravel run` has checked what it says.
static void write_types(void)
{
    const char *types = getenv("GRAVEL_DIFF_DTYPES");
    for (const char *line = types; line && *line;) {
        size_t length = strcspn(line, "\n");
        char text[512];
        snprintf(text, sizeof text, "%.*s", (int)(length < 500 ? length : 500), line);
        char *equals = strrchr(text, '=');
        if (equals)
            write_setting(GV_SETTING_DTYPE, text, (size_t)(equals - text), equals + 1);
        line += length + (line[length] == '\n');
    }
}

void gv_differ_write_settings(void)
{
    const char *tolerance = getenv("GRAVEL_DIFF_TOLERANCE"), *diff = getenv("GRAVEL_DIFF");
    const gv_record_options *options = &gv_state.options;
    if (options->diff == GV_DIFF_NONE)
        return;
    write_setting(GV_SETTING_DIFF, options->graph, strlen(options->graph), diff);
    if (tolerance && *tolerance)
        write_setting(GV_SETTING_TOLERANCE, "", 0, tolerance);
    write_types();
}

// ---- Records -----------------------------------------------------------------------------------------------------

static void write_checked(const gv_exec *exec, gv_checked_record record, const char *reason)
{
    record.exec = exec->id;
    record.graph = exec->snapshot ? exec->snapshot->id : 0;
    record.status = *reason ? GV_CHECKED_NOT_COMPARED : GV_CHECKED_COMPARED;
    record.reason = (gv_text){reason, strlen(reason)};
    gv_write_checked(gv_state.writer, &record);
    gv_flush();
}

// Each reason once: the trace has it for every launch.
static void say_once(const gv_exec *exec, const char *why)
{
    static gv_said said = GV_SAID_INIT(32);
    if (gv_first_time(&said, why) || gv_state.options.verbose)
        gv_say("a launch of graph #%llu is NOT compared with a serial replay: %s",
               (unsigned long long)(exec->snapshot ? exec->snapshot->id : 0), why);
}

void gv_check_refused(gv_exec *exec, uint64_t sequence, const char *why)
{
    write_checked(exec, (gv_checked_record){.launch = sequence}, why);
    say_once(exec, why);
}

void gv_check_fails(gv_check *check, const char *format, ...)
{
    if (check->reason[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(check->reason, sizeof check->reason, format, arguments);
    va_end(arguments);
}

// ---- Inputs that others can change -------------------------------------------------------------------------------

// Other threads may write here at this very moment: that is what the hash is to find out.
__attribute__((no_sanitize("thread"))) static uint64_t hash_ranges(uint64_t hash, const gv_range_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        const unsigned char *at = (const unsigned char *)(uintptr_t)set->ranges[i].start;
        uint64_t size = set->ranges[i].end - set->ranges[i].start, word;
        for (; size >= 8; at += 8, size -= 8) {
            memcpy(&word, at, 8);
            hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
            hash ^= hash >> 29;
        }
        for (; size; at++, size--)
            hash = (hash ^ *at) * 0x100000001b3ull;
    }
    return hash;
}

static uint64_t hash_inputs(const gv_check *check)
{
    return hash_ranges(hash_ranges(1, &check->extent.shared), &check->extent.host);
}

bool gv_check_inputs_hold(gv_check *check)
{
    if (hash_inputs(check) == check->inputs)
        return true;
    gv_check_fails(check,
                   "inputs changed during the check: memory that the processor can write and that the graph reads");
    return false;
}

// ---- Memory ------------------------------------------------------------------------------------------------------

static gv_status wait_for(const gv_check *check, gv_error *error)
{
    CUresult result = gv_cuda.cuStreamSynchronize(check->hold.stream);
    return result == CUDA_SUCCESS ? GV_OK : gv_fail(error, GV_ERR_IO, "%s", gv_driver_error(result));
}

gv_status gv_check_rewind(gv_check *check, gv_error *error)
{
    check->disturbed = true;
    gv_status status = gv_image_restore(check->compare, check->before, &check->touched, error);
    return status ? status : wait_for(check, error);
}

gv_status gv_check_leave_graph(gv_check *check, gv_error *error)
{
    gv_range_set untouched_by_graph = {0};
    gv_status status = gv_range_set_difference(&check->touched, &check->changed, &untouched_by_graph, error);
    if (!status)
        status = gv_image_restore(check->compare, check->graph, NULL, error);
    if (!status && untouched_by_graph.count)
        status = gv_image_restore(check->compare, check->before, &untouched_by_graph, error);
    gv_range_set_free(&untouched_by_graph);
    if (!status)
        status = wait_for(check, error);
    check->disturbed &= status != GV_OK;
    return status;
}

gv_status gv_check_touch(gv_check *check, gv_range_set *to, gv_error *error)
{
    gv_range_set groups = {0}, fresh = {0}, sum = {0};
    gv_status status = gv_image_changed(check->compare, check->before, NULL, true, &groups, error);
    if (!status)
        status = gv_range_set_difference(&groups, &check->touched, &fresh, error);
    if (!status && fresh.count && to)
        status = gv_image_changed(check->compare, check->before, &fresh, false, to, error);
    if (!status && fresh.count)
        status = gv_range_set_union(&check->touched, &fresh, &sum, error);
    if (!status && fresh.count) {
        gv_range_set_free(&check->touched);
        check->touched = sum;
    }
    gv_range_set_free(&groups);
    gv_range_set_free(&fresh);
    return status;
}

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

// ---- Before the launch -------------------------------------------------------------------------------------------

// Finds out what the launch may write and saves it. Nothing of the program has run; on failure the reason is given,
// and *forever says that the next launch of the graph would fare no better.
static bool prepare(gv_check *check, bool *forever)
{
    gv_error error = {0};
    bool heap = false;
    gv_reach_options options = {.bytes = gv_state.options.search_bytes,
                                .seconds = gv_state.options.search_seconds,
                                .look_up = gv_opaque_look_up};
    check->compare = gv_opaque_take_compare(check->hold.context, check->hold.stream, &error);
    gv_status status = check->compare ? gv_reach_open(check->compare, &options, &check->reach, &error) : error.status;
    if (!status && !gv_opaque_list_memory(check->reach, check->hold.context, &heap))
        status = gv_fail(&error, GV_ERR_MEMORY, "memory ran out");
    if (!status && heap) {
        *forever = true;
        status = gv_fail(&error, GV_ERR_USAGE, "a module allocates memory from the device, which cannot be saved");
    }
    if (!status)
        status = gv_extent_of(check->reach, check->exec->snapshot, &check->extent, &error);
    if (!status && check->extent.refusal[0]) {
        *forever = true;
        status = gv_fail(&error, GV_ERR_USAGE, "%s", check->extent.refusal);
    }
    if (!status)
        status = list_ignored(check, &error);
    check->room = gv_image_room_now(gv_state.options.diff_bytes, gv_state.options.diff_host_bytes);
    if (!status)
        status = gv_image_save(check->compare, &check->extent.writable, &check->room, &check->before, &error);
    if (!status)
        status = wait_for(check, &error);
    if (status) {
        gv_check_fails(check, "%s", error.text);
        return false;
    }
    check->record.saved_bytes = gv_range_set_bytes(&check->extent.writable);
    check->inputs = hash_inputs(check);
    return true;
}

// A launch whose work had not come to an end: freeing memory would wait for it, perhaps for ever. It is freed when the
// context is found idle. Under the lock that checks are made under.
static gv_check abandoned;

static void release(gv_check *check)
{
    gv_image_free(check->serial, NULL);
    gv_image_free(check->graph, NULL);
    gv_image_free(check->before, NULL);
    gv_range_set_free(&check->changed);
    gv_range_set_free(&check->touched);
    gv_range_set_free(&check->different);
    gv_range_set_free(&check->unstable);
    gv_range_set_free(&check->ignored);
    gv_extent_free(&check->extent);
    gv_reach_close(check->reach);
    // After an error of the program's work the context is lost, and what is kept in it.
    if (check->compare && check->result == CUDA_SUCCESS)
        gv_opaque_keep_compare(check->hold.context, check->compare);
    else if (check->compare)
        gv_compare_forget(check->compare);
}

static void release_abandoned(CUcontext context)
{
    if (!abandoned.compare || abandoned.hold.context != context)
        return;
    release(&abandoned);
    abandoned = (gv_check){0};
}

// ---- The serial replay -------------------------------------------------------------------------------------------

bool gv_check_replay(gv_check *check, gv_replay_step step, void *user)
{
    gv_replay run = {.stream = check->hold.stream,
                     .context = check->hold.context,
                     .launch = check->record.launch,
                     .order = check->order};
    uint64_t start = gv_monotonic_ns();
    check->disturbed = true;
    check->record.replays++;
    gv_replay_plain(&run, check->exec->snapshot, step, user);
    if (check->record.replays == 1)
        check->record.serial_ns = gv_monotonic_ns() - start;
    if (run.left_running) {
        check->left_running = true;
        gv_check_fails(check, "%.380s", run.reason);
    } else if (run.result != CUDA_SUCCESS) {
        check->result = run.result;
        gv_check_fails(check, "a node failed when the nodes ran one by one: %s", gv_driver_error(run.result));
    } else if (run.reason[0]) {
        // It waited for another branch, which then ran out of turn.
        gv_check_fails(check, "%.380s", run.reason);
    }
    gv_replay_end(&run);
    return !check->reason[0];
}

// A node of a serial replay waits for something. Everybody else may go on, and may provide it; the program's memory can
// only be put right when it is done.
static void wait_for_left(gv_check *check)
{
    gv_say("graph #%llu: %s; this launch returns when it is done", (unsigned long long)check->exec->snapshot->id,
           check->reason);
    gv_hold_open(&check->hold);
    CUresult result;
    while ((result = gv_wait_for_stream(check->hold.stream, 10)) == CUDA_ERROR_NOT_READY)
        ;
    if (result != CUDA_SUCCESS)
        check->result = result;
}

// Adds the bytes in which memory, as the first serial replay left it, differs from what the graph left.
static gv_status find_differences(gv_check *check, gv_error *error)
{
    gv_range_set all = {0}, ignored = {0};
    gv_status status = gv_image_changed(check->compare, check->graph, NULL, false, &all, error);
    if (!status)
        status = gv_check_touch(check, &all, error);
    if (!status)
        status = gv_range_set_difference(&all, &check->ignored, &check->different, error);
    if (!status)
        status = gv_range_set_intersection(&all, &check->ignored, &ignored, error);
    check->record.different_bytes = gv_range_set_bytes(&check->different);
    check->record.ignored_bytes = gv_range_set_bytes(&ignored);
    gv_range_set_free(&all);
    gv_range_set_free(&ignored);
    return status;
}

// The nodes run one by one, in one order after another. The first launch is compared with two orders, later ones with
// one each, another one every time: the graph may have taken just the order that it is compared with.
static void compare_orders(gv_check *check)
{
    gv_error error = {0};
    gv_status status = GV_OK;
    uint64_t first = check->exec->checks ? check->exec->checks + 1 : 0, last = check->exec->checks ? first : 1;
    for (check->order = first; check->order <= last && !status; check->order++) {
        status = gv_check_rewind(check, &error);
        if (status || !gv_check_replay(check, NULL, NULL) || !gv_check_inputs_hold(check))
            break;
        status = find_differences(check, &error);
        if (status || check->different.count) {
            check->record.order = check->order + 1;
            break;
        }
        check->disturbed = check->record.ignored_bytes != 0; // else it left what the graph had left
    }
    if (!status && !check->reason[0] && check->different.count)
        gv_check_name(check);
    if (status)
        gv_check_fails(check, "%s", error.text);
    check->exec->checks += !check->reason[0];
}

// What the graph left is kept; then the nodes run one by one and the results are compared.
static void compare(gv_check *check)
{
    gv_error error = {0};
    gv_range_set sum = {0};
    gv_status status = gv_image_changed(check->compare, check->before, NULL, true, &check->changed, &error);
    if (!status)
        status = gv_range_set_union(&check->changed, &sum, &check->touched, &error);
    if (!status)
        status = gv_image_save(check->compare, &check->changed, &check->room, &check->graph, &error);
    if (!status)
        status = wait_for(check, &error);
    if (status) {
        gv_check_fails(check, "%s", error.text);
        return;
    }
    if (!gv_check_inputs_hold(check))
        return;
    compare_orders(check);
    if (check->left_running)
        wait_for_left(check);
    if (!check->disturbed || check->result != CUDA_SUCCESS)
        return;
    // What a replay that broke off has touched is not known.
    if (check->reason[0])
        gv_check_touch(check, NULL, &error);
    status = gv_check_leave_graph(check, &error);
    if (status)
        gv_note(GV_NOTE_FAILURE, check->exec->snapshot->id, 0,
                "the memory of a checked launch could not be put back to what the graph had left: %s", error.text);
}

// ---- The launch --------------------------------------------------------------------------------------------------

// Launches the graph as the program asked and waits for it. False: there is nothing to compare.
static bool launch_and_wait(gv_check *check, CUgraphExec handle, CUstream stream, bool per_thread, CUresult *result)
{
    uint64_t start = gv_monotonic_ns();
    *result = check->launch(handle, stream);
    if (*result != CUDA_SUCCESS)
        return false;
    CUresult done = gv_wait_for_stream(check->hold.stream, gv_state.options.stall_seconds);
    check->record.graph_ns = gv_monotonic_ns() - start;
    check->record.launch = gv_write_launch(check->exec, stream, per_thread, gv_stack());
    check->unfinished = done == CUDA_ERROR_NOT_READY;
    if (check->unfinished)
        gv_check_fails(check, "its work did not come to an end in %g s: it may wait for what the program does next",
                       gv_state.options.stall_seconds);
    else if (done != CUDA_SUCCESS)
        gv_check_fails(check, "its work failed: %s", gv_driver_error(done));
    if (done != CUDA_SUCCESS && !check->unfinished)
        check->result = done;
    return !check->reason[0];
}

static void say_what_came_of_it(const gv_check *check)
{
    const gv_checked_record *r = &check->record;
    gv_verbose("graph #%llu: checked launch took %.1f ms (the graph %.1f, a serial replay %.1f), %.1f MiB saved: %s%s",
               (unsigned long long)check->exec->snapshot->id, (double)r->duration_ns / 1e6, (double)r->graph_ns / 1e6,
               (double)r->serial_ns / 1e6, (double)r->saved_bytes / 1048576,
               check->reason[0]     ? "not compared, "
               : r->different_bytes ? "there are differences"
                                    : "no difference",
               check->reason);
}

// Why no launch of the exec can be checked, or NULL.
static const char *obstacle_of(const gv_exec *exec, CUstream stream, bool per_thread)
{
    CUcontext context = NULL;
    CUstream named = stream ? stream : per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    if (exec->unknown[0] || !exec->snapshot)
        return exec->unknown[0] ? exec->unknown : "it was not read";
    if (exec->snapshot->refusal[0])
        return exec->snapshot->refusal;
    if (!exec->snapshot->owned)
        return "its nodes were not kept";
    if (gv_cuda.cuStreamGetCtx(named, &context) != CUDA_SUCCESS || !context)
        gv_cuda.cuCtxGetCurrent(&context);
    if (!gv_in_context(exec->snapshot, context))
        return "its nodes belong to several contexts";
    if (exec->check_attempts >= MOST_ATTEMPTS)
        return "other work in its context did not come to an end";
    return gv_extent_obstacle(exec->snapshot);
}

bool gv_check_launch(gv_graph_launch launch, gv_exec *exec, CUstream stream, bool per_thread, CUresult *result,
                     uint64_t *sequence, const char **uncompared)
{
    static __thread char why[sizeof((gv_check *)0)->reason];
    gv_check check = {.launch = launch, .exec = exec};
    const char *busy = "", *obstacle = obstacle_of(exec, stream, per_thread);
    uint64_t start = gv_monotonic_ns();
    if (obstacle) {
        exec->check_owed = false;
        exec->check_refused = true;
        *uncompared = obstacle;
        return false;
    }
    if (!gv_hold_begin(&check.hold, stream, per_thread, &busy)) {
        // A program whose context is never idle must not lose that time at every launch.
        exec->check_attempts += gv_monotonic_ns() - start > LONG_WAIT_NS;
        gv_verbose("graph #%llu is not checked at this launch: %s", (unsigned long long)exec->snapshot->id, busy);
        return false;
    }
    exec->check_owed = false;
    exec->check_attempts = 0;
    release_abandoned(check.hold.context);
    gv_exec_refresh(exec);
    bool forever = false, launched = false;
    if (prepare(&check, &forever)) {
        launched = true;
        if (launch_and_wait(&check, exec->handle, stream, per_thread, result))
            compare(&check);
        else
            exec->check_refused = check.unfinished;
    }
    if (!check.unfinished)
        release(&check);
    else if (!abandoned.compare)
        abandoned = check;
    gv_hold_end(&check.hold);
    if (!launched) {
        // A graph that cannot be saved now may fit later; one that cannot be replayed never can.
        exec->check_refused = forever;
        memcpy(why, check.reason, sizeof why);
        *uncompared = why;
        return false;
    }
    check.record.duration_ns = gv_monotonic_ns() - start;
    *sequence = check.record.launch;
    if (check.record.launch) {
        write_checked(exec, check.record, check.reason);
        say_what_came_of_it(&check);
        if (check.reason[0])
            say_once(exec, check.reason);
    }
    return true;
}
