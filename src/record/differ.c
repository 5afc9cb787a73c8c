// The course of a checked launch: what it may write is saved, the graph runs, its result is kept, the memory is put
// back, the nodes run one by one, the two results are compared, and the graph's is left behind.
#include "record/differ.h"

#include "base/clock.h"
#include "base/memory.h"
#include "record/differ_core.h"
#include "record/linear.h"
#include "record/recorder.h"

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

void gv_check_enter(gv_check *check, enum gv_check_phase phase)
{
    uint64_t now = gv_monotonic_ns();
    check->spent[check->phase] += now - check->since;
    check->since = now;
    check->phase = phase;
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
    return hash_ranges(hash_ranges(1, &check->plan->extent.shared), &check->plan->extent.host);
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
    if (check->rewound)
        return GV_OK;
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

// ---- Launches that have not come to their end --------------------------------------------------------------------

// Freeing memory would wait for its work, perhaps for ever. It is freed when the context is found idle. Under the lock
// that checks are made under.
static gv_check abandoned;

static void release_abandoned(CUcontext context)
{
    if (!abandoned.compare || abandoned.hold.context != context)
        return;
    gv_check_release(&abandoned);
    abandoned = (gv_check){0};
}

// ---- The serial replay -------------------------------------------------------------------------------------------

// Makes a graph of the nodes, for the order that the next launch is compared with. Whether they all come to their ends
// alone is known when they have been run one by one.
static void make_linear(gv_check *check)
{
    gv_exec *exec = check->exec;
    gv_error error = {0};
    if (!exec->ends_alone || exec->linear_refused ||
        gv_linear_make(&exec->linear, exec->snapshot, check->hold.context, exec->checks + 1, exec->version, &error) ==
            GV_OK)
        return;
    exec->linear_refused = true;
    gv_verbose("graph #%llu: its nodes are launched one by one: %s", (unsigned long long)exec->snapshot->id,
               error.text);
}

// A node of the linear graph waits for another one that comes behind it, though none did so far. Launched once more
// beside it, the program's graph does what is waited for.
static void help_linear(gv_check *check)
{
    CUstream side = NULL;
    CUevent event = NULL;
    check->exec->linear_refused = true;
    gv_check_fails(check,
                   "its nodes, run one behind the other, made no progress for %g s: one seems to wait for another "
                   "branch of the graph, or for something outside of it",
                   gv_state.options.stall_seconds);
    gv_say("graph #%llu: %s; the graph is launched beside them", (unsigned long long)check->exec->snapshot->id,
           check->reason);
    if (gv_cuda.cuStreamCreate(&side, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return;
    // What comes next on the stream waits for both.
    if (check->launch(check->exec->handle, side) == CUDA_SUCCESS &&
        gv_cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
        if (gv_cuda.cuEventRecord(event, side) == CUDA_SUCCESS)
            gv_cuda.cuStreamWaitEvent(check->hold.stream, event, 0);
        gv_cuda.cuEventDestroy(event);
    }
    // The driver keeps a destroyed stream until its work is done.
    gv_cuda.cuStreamDestroy(side);
}

static bool replay_linear(gv_check *check)
{
    // A branch behind another takes longer than beside it.
    double stall = gv_state.options.stall_seconds, limit = stall + 64e-9 * (double)check->record.graph_ns;
    uint64_t start = gv_monotonic_ns();
    CUresult result = gv_linear_launch(check->exec->linear, check->hold.stream);
    if (result == CUDA_SUCCESS)
        result = gv_wait_for_stream(check->hold.stream, limit);
    if (result == CUDA_ERROR_NOT_READY) {
        help_linear(check);
        result = gv_wait_for_stream(check->hold.stream, stall < 1 ? stall : 1);
        check->left_running = result == CUDA_ERROR_NOT_READY;
    }
    if (check->record.replays == 1)
        check->record.serial_ns = gv_monotonic_ns() - start;
    if (result != CUDA_SUCCESS && !check->left_running) {
        check->result = result;
        gv_check_fails(check, "a node failed when the nodes ran one behind the other: %s", gv_driver_error(result));
    }
    return !check->reason[0];
}

static bool replay_nodes(gv_check *check, gv_replay_step step, void *user)
{
    gv_replay run = {.stream = check->hold.stream,
                     .context = check->hold.context,
                     .launch = check->record.launch,
                     .order = check->order};
    uint64_t start = gv_monotonic_ns();
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

bool gv_check_replay(gv_check *check, gv_replay_step step, void *user)
{
    const gv_exec *exec = check->exec;
    enum gv_check_phase phase = check->phase;
    gv_check_enter(check, GV_CHECK_SERIAL);
    check->disturbed = true;
    check->rewound = false;
    check->record.replays++;
    bool linear = !step && exec->linear && !exec->linear_refused && exec->ends_alone &&
                  gv_linear_is(exec->linear, check->order, exec->version);
    bool ended = linear ? replay_linear(check) : replay_nodes(check, step, user);
    gv_check_enter(check, phase);
    return ended;
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
    bool same = false;
    gv_status status = GV_OK;
    check->record.ignored_bytes = 0;
    if (check->shadowed)
        status = gv_shadow_compare(check->shadow, check->hold.stream, &same, error);
    if (status || same)
        return status;
    status = gv_image_changed(check->compare, check->graph, NULL, false, &all, error);
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
    check->exec->ends_alone |= !status && !check->reason[0] && !check->different.count;
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
    const gv_range_set nothing = {0};
    gv_check_enter(check, GV_CHECK_REWIND);
    gv_status status = gv_check_keep_result(check, &error);
    if (!status)
        status = gv_range_set_union(&check->changed, &nothing, &check->touched, &error);
    gv_check_enter(check, GV_CHECK_COMPARE);
    if (status)
        gv_check_fails(check, "%s", error.text);
    else if (gv_check_inputs_hold(check))
        compare_orders(check);
    gv_check_enter(check, GV_CHECK_END);
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
    gv_check_enter(check, GV_CHECK_GRAPH);
    uint64_t start = check->since;
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
    static const char *const names[GV_CHECK_PHASES] = {
        [GV_CHECK_HOLD] = "hold",       [GV_CHECK_PLAN] = "plan",     [GV_CHECK_SAVE] = "save",
        [GV_CHECK_GRAPH] = "graph",     [GV_CHECK_REWIND] = "rewind", [GV_CHECK_SERIAL] = "serial",
        [GV_CHECK_COMPARE] = "compare", [GV_CHECK_END] = "end",       [GV_CHECK_WRITE] = "write",
    };
    const gv_checked_record *r = &check->record;
    char phases[320] = "";
    if (!gv_state.options.verbose)
        return;
    for (int i = 0; i < GV_CHECK_PHASES; i++)
        snprintf(phases + strlen(phases), sizeof phases - strlen(phases), "%s%s %.3f", i ? ", " : "", names[i],
                 (double)check->spent[i] / 1e6);
    gv_verbose("graph #%llu: checked launch took %.3f ms (%s), %.1f MiB saved, %llu serial replays: %s%s",
               (unsigned long long)check->exec->snapshot->id, (double)r->duration_ns / 1e6, phases,
               (double)r->saved_bytes / 1048576, (unsigned long long)r->replays,
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
    uint64_t start = gv_monotonic_ns();
    const char *busy = "", *obstacle = obstacle_of(exec, stream, per_thread);
    check.since = start;
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
    if (gv_check_prepare(&check, make_linear, &forever)) {
        launched = true;
        check.inputs = hash_inputs(&check);
        if (launch_and_wait(&check, exec->handle, stream, per_thread, result))
            compare(&check);
        else
            exec->check_refused = check.unfinished;
    }
    gv_check_enter(&check, GV_CHECK_END);
    if (!check.unfinished)
        gv_check_release(&check);
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
        gv_check_enter(&check, GV_CHECK_WRITE);
        write_checked(exec, check.record, check.reason);
        gv_check_enter(&check, GV_CHECK_WRITE);
        say_what_came_of_it(&check);
        if (check.reason[0])
            say_once(exec, check.reason);
    }
    return true;
}
