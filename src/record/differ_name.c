// Which nodes the differing bytes of a checked launch come from, and whether serial replays agree among each other.
//
// Several replays, each on the memory as it was before the launch:
// 1. Controls, node after node as the first one: bytes that come out otherwise are not stable.
// 2. A tracked one: behind each node the bytes in question are compared with what they were before it. A byte belongs
// to
//    the node that changed it last.
//    If the graph has been armed in this process, what each node wrote then counts too: a node may store the value that
//    was there before.
// 3. Bytes that no node changed, as when a graph is launched twice on the same input, are tracked once more, from what
//    the graph left in them: the serial replay
//    leaves something else there, so whichever node writes them changes them.
// Bytes that no node writes even then were changed by the graph alone, or by somebody who wrote to the memory
// meanwhile. The graph itself is launched once more to tell the two apart.
#include "record/differ_core.h"

#include "base/clock.h"
#include "base/memory.h"
#include "record/known.h"
#include "record/recorder.h"
#include "record/snapshot.h"
#include "trace/ranges.h"

#include <string.h>
#include <time.h>

enum {
    MOST_CONTROLS = 3,      // as long as they show nothing unstable
    MOST_TRACKED = 1 << 16, // ranges that are tracked byte by byte; more of them by groups of 4 KiB
    MOST_RANGES = 1 << 12,  // ranges of a difference record
    MOST_VALUES = 1 << 16,  // bytes of values in one
    MOST_WITH_VALUES = 64,  // difference records of an executable graph that have values
    GROUP = GV_GROUP_BLOCKS * GV_BLOCK_BYTES,
    STILL_MS = 20, // how long memory is watched for somebody who writes to it
};

// What one node changed of the tracked bytes, in the order in which nodes ran.
typedef struct step {
    const gv_snapshot *snapshot;
    uint32_t node;
    uint64_t position;
    gv_range_set changed;             // in one tracked replay
    gv_range_set different, unstable; // the bytes that come from it
} step;

typedef struct tracking {
    gv_check *check;
    gv_range_set *what;
    gv_image *last; // the tracked bytes as the node before left them
    step *steps;
    size_t count, capacity;
    size_t next; // in a second tracked replay: the step the next node should be
    gv_status status;
    gv_error error;
} tracking;

static void free_steps(tracking *t)
{
    for (size_t i = 0; i < t->count; i++) {
        gv_range_set_free(&t->steps[i].changed);
        gv_range_set_free(&t->steps[i].different);
        gv_range_set_free(&t->steps[i].unstable);
    }
    gv_free(t->steps);
}

// a = a united with b, and a = a without b.
static gv_status unite(gv_range_set *a, const gv_range_set *b, gv_error *error)
{
    gv_range_set sum = {0};
    gv_status status = b->count || b->pending ? gv_range_set_union(a, b, &sum, error) : GV_OK;
    if (status || !(b->count || b->pending))
        return status;
    gv_range_set_free(a);
    *a = sum;
    return GV_OK;
}

static gv_status subtract(gv_range_set *a, const gv_range_set *b, gv_error *error)
{
    gv_range_set rest = {0};
    gv_status status = gv_range_set_difference(a, b, &rest, error);
    if (!status) {
        gv_range_set_free(a);
        *a = rest;
    }
    return status;
}

// ---- Controls ----------------------------------------------------------------------------------------------------

// Adds to `unstable` the bytes in which memory differs from what the first serial replay left.
static gv_status note_unstable(gv_check *check, gv_error *error)
{
    gv_range_set differ = {0}, counted = {0};
    gv_status status = gv_image_changed(check->compare, check->serial, NULL, false, &differ, error);
    // What the first replay left alone, this one may have changed.
    if (!status)
        status = gv_check_touch(check, &differ, error);
    if (!status)
        status = gv_range_set_difference(&differ, &check->ignored, &counted, error);
    if (!status)
        status = unite(&check->unstable, &counted, error);
    gv_range_set_free(&differ);
    gv_range_set_free(&counted);
    return status;
}

static gv_status run_controls(gv_check *check, gv_error *error)
{
    gv_status status = GV_OK;
    for (int i = 0; i < MOST_CONTROLS && !status && !check->unstable.count; i++) {
        status = gv_check_rewind(check, error);
        if (status || !gv_check_replay(check, NULL, NULL) || !gv_check_inputs_hold(check))
            break;
        status = note_unstable(check, error);
    }
    return status;
}

// ---- Tracking ----------------------------------------------------------------------------------------------------

static void after_node(void *user, const gv_snapshot *snapshot, uint32_t node, uint64_t position)
{
    tracking *t = user;
    if (t->status)
        return;
    gv_range_set changed = {0};
    t->status = gv_image_changed(t->check->compare, t->last, NULL, false, &changed, &t->error);
    if (!t->status && changed.count)
        t->status = gv_image_renew(t->check->compare, t->last, &t->error);
    while (t->next < t->count && t->steps[t->next].position < position)
        t->next++;
    if (t->next == t->count || t->steps[t->next].position != position) {
        if (t->status || !GV_GROW(t->steps, t->capacity, t->count + 1)) {
            gv_range_set_free(&changed);
            if (!t->status)
                t->status = gv_fail(&t->error, GV_ERR_MEMORY, "memory ran out");
            return;
        }
        memmove(t->steps + t->next + 1, t->steps + t->next, (t->count - t->next) * sizeof *t->steps);
        t->steps[t->next] = (step){.snapshot = snapshot, .node = node, .position = position};
        t->count++;
    }
    t->steps[t->next].changed = changed;
}

// Whole groups of the touched memory that hold one of the bytes.
static gv_status by_groups(const gv_check *check, const gv_range_set *bytes, gv_range_set *groups, gv_error *error)
{
    gv_range_set wide = {0};
    gv_status status = GV_OK;
    for (size_t i = 0; i < bytes->count && !status; i++)
        status = gv_range_set_add(&wide, bytes->ranges[i].start / GROUP * GROUP,
                                  (bytes->ranges[i].end + GROUP - 1) / GROUP * GROUP, error);
    gv_range_set_settle(&wide);
    if (!status)
        status = gv_range_set_intersection(&wide, &check->touched, groups, error);
    gv_range_set_free(&wide);
    return status;
}

// Runs the nodes on memory as it is and notes what each of them changes of `bytes`.
static gv_status run_tracked(tracking *t, const gv_range_set *bytes, gv_error *error)
{
    gv_check *check = t->check;
    gv_range_set groups = {0};
    gv_status status = GV_OK;
    for (size_t i = 0; i < t->count; i++)
        gv_range_set_free(&t->steps[i].changed);
    t->next = 0;
    gv_range_set_settle(bytes);
    if (bytes->count > MOST_TRACKED)
        status = by_groups(check, bytes, &groups, error);
    if (!status)
        status = gv_image_save(check->compare, groups.count ? &groups : bytes, gv_check_room(check), &t->last, error);
    if (!status && gv_check_replay(check, after_node, t)) {
        status = t->status;
        if (status)
            *error = t->error;
    }
    gv_image_free(t->last, gv_check_room(check));
    t->last = NULL;
    gv_range_set_free(&groups);
    return status;
}

// Gives each byte of `left` to the node that changed it last, or that is known to write it and came later, and takes it
// out of `left`.
static gv_status give_out(tracking *t, gv_range_set *left, size_t place, gv_error *error)
{
    gv_status status = GV_OK;
    for (size_t i = t->count; i > 0 && !status && left->count; i--) {
        step *s = &t->steps[i - 1];
        gv_range_set wrote = {0}, taken = {0};
        if (t->check->exec->known)
            status = gv_known_get(t->check->exec->known, s->snapshot, s->node, &wrote, error);
        if (!status)
            status = unite(&wrote, &s->changed, error);
        if (!status)
            status = gv_range_set_intersection(&wrote, left, &taken, error);
        if (!status && taken.count)
            status = unite((gv_range_set *)((char *)s + place), &taken, error);
        if (!status && taken.count)
            status = subtract(left, &taken, error);
        gv_range_set_free(&wrote);
        gv_range_set_free(&taken);
    }
    return status;
}

static gv_status copy_of(const gv_range_set *set, gv_range_set *copy, gv_error *error)
{
    const gv_range_set nothing = {0};
    return gv_range_set_union(set, &nothing, copy, error);
}

// ---- What no node writes -----------------------------------------------------------------------------------------

// Is the memory at rest, and does the graph change all of `bytes` when it is launched once more from the same memory?
static gv_status graph_changes(gv_check *check, const gv_range_set *bytes, bool *it_does, gv_error *error)
{
    gv_range_set restless = {0}, changed = {0}, missing = {0};
    struct timespec pause = {0, STILL_MS * 1000000};
    *it_does = false;
    gv_status status = gv_check_rewind(check, error);
    if (!status)
        nanosleep(&pause, NULL);
    if (!status)
        status = gv_image_changed(check->compare, check->before, bytes, false, &restless, error);
    if (!status && !restless.count) {
        CUresult result = check->launch(check->exec->handle, check->hold.stream);
        check->disturbed = true;
        if (result == CUDA_SUCCESS)
            result = gv_cuda.cuStreamSynchronize(check->hold.stream);
        if (result != CUDA_SUCCESS) {
            check->result = result;
            status = gv_fail(error, GV_ERR_IO, "a second launch of the graph failed: %s", gv_driver_error(result));
        }
        if (!status)
            status = gv_check_touch(check, NULL, error);
        if (!status)
            status = gv_image_changed(check->compare, check->before, bytes, false, &changed, error);
        if (!status)
            status = gv_range_set_difference(bytes, &changed, &missing, error);
        *it_does = !status && !missing.count;
    }
    gv_range_set_free(&restless);
    gv_range_set_free(&changed);
    gv_range_set_free(&missing);
    return status;
}

// ---- Records -----------------------------------------------------------------------------------------------------

// Encodes at most `most` ranges.
static gv_bytes encode(const gv_range_set *set, size_t most)
{
    size_t count = set->count < most ? set->count : most;
    uint8_t *bytes = count ? gv_malloc(gv_ranges_encoded_bound(count)) : NULL;
    return bytes ? (gv_bytes){bytes, gv_ranges_encode(set->ranges, count, bytes)} : (gv_bytes){0};
}

// The 8-byte words that hold the first differing bytes, MOST_VALUES bytes in all, as far as they were saved.
static gv_status value_ranges(const gv_check *check, const gv_range_set *bytes, gv_range_set *words, gv_error *error)
{
    gv_range_set wide = {0}, cut = {0};
    gv_status status = GV_OK;
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes->count && !status && sum < MOST_VALUES; i++) {
        uint64_t start = bytes->ranges[i].start / 8 * 8, end = (bytes->ranges[i].end + 7) / 8 * 8;
        if (end - start > MOST_VALUES - sum)
            end = start + (MOST_VALUES - sum);
        status = gv_range_set_add(&wide, start, end, error);
        sum += end - start;
    }
    gv_range_set_settle(&wide);
    if (!status)
        status = gv_range_set_intersection(&wide, &check->touched, &cut, error);
    gv_range_set_free(&wide);
    if (!status)
        *words = cut;
    return status;
}

// What the graph or the first serial replay left in the words. The images that have it do not cover all that later
// replays touched: there both left what was there before.
static gv_status read_values(gv_check *check, const gv_image *image, const gv_range_set *covers,
                             const gv_range_set *words, uint8_t *to, gv_error *error)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < words->count && !status; i++) {
        gv_range_set one = {&words->ranges[i], 1, 1, 0}, here = {0};
        uint64_t start = words->ranges[i].start, size = words->ranges[i].end - start;
        status = gv_image_read(check->compare, check->before, start, start + size, to, error);
        if (!status)
            status = gv_range_set_intersection(&one, covers, &here, error);
        for (size_t k = 0; k < here.count && !status; k++)
            status = gv_image_read(check->compare, image, here.ranges[k].start, here.ranges[k].end,
                                   to + (here.ranges[k].start - start), error);
        gv_range_set_free(&here);
        to += size;
    }
    return status;
}

static void write_difference(gv_check *check, const step *s, const gv_range_set *serial_covers)
{
    gv_range_set words = {0};
    gv_error error = {0};
    uint8_t *values = NULL;
    gv_difference_record record = {
        .launch = check->record.launch,
        .graph = s->snapshot ? s->snapshot->id : check->exec->snapshot->id,
        .node = s->snapshot ? (uint64_t)s->node + 1 : 0,
        .position = s->position,
        .bytes = gv_range_set_bytes(&s->different),
        .unstable = gv_range_set_bytes(&s->unstable),
        .range_count = s->different.count,
        .ranges = encode(&s->different, MOST_RANGES),
    };
    if (s->different.count && check->exec->values_written < MOST_WITH_VALUES &&
        value_ranges(check, &s->different, &words, &error) == GV_OK && words.count) {
        uint64_t size = gv_range_set_bytes(&words);
        values = gv_malloc(2 * size);
        if (values && read_values(check, check->graph, &check->changed, &words, values, &error) == GV_OK &&
            read_values(check, check->serial, serial_covers, &words, values + size, &error) == GV_OK) {
            record.value_ranges = encode(&words, SIZE_MAX);
            if (record.value_ranges.length) {
                record.graph_values = (gv_bytes){values, size};
                record.serial_values = (gv_bytes){values + size, size};
                check->exec->values_written++;
            }
        }
    }
    gv_write_difference(gv_state.writer, &record);
    check->record.nodes++;
    gv_free((void *)record.ranges.data);
    gv_free((void *)record.value_ranges.data);
    gv_free(values);
    gv_range_set_free(&words);
}

// ---- The whole of it ---------------------------------------------------------------------------------------------

// Attributes all bytes. What is left in `left` and `left_unstable` no node writes.
static gv_status attribute(tracking *t, gv_range_set *left, gv_range_set *left_unstable, gv_error *error)
{
    gv_check *check = t->check;
    gv_range_set both = {0};
    gv_status status = gv_range_set_union(&check->different, &check->unstable, &both, error);
    if (!status)
        status = gv_check_rewind(check, error);
    if (!status)
        status = run_tracked(t, &both, error);
    if (!status && !check->reason[0])
        status = note_unstable(check, error);
    if (!status)
        status = copy_of(&check->different, left, error);
    if (!status)
        status = copy_of(&check->unstable, left_unstable, error);
    if (!status)
        status = give_out(t, left, offsetof(step, different), error);
    if (!status)
        status = give_out(t, left_unstable, offsetof(step, unstable), error);
    gv_range_set_free(&both);
    if (status || check->reason[0] || !left->count)
        return status;
    // From what the graph left in the bytes that no node changed.
    status = gv_check_rewind(check, error);
    if (!status)
        status = gv_image_restore(check->compare, check->graph, left, error);
    if (!status)
        status = run_tracked(t, left, error);
    if (!status)
        status = give_out(t, left, offsetof(step, different), error);
    return status;
}

void gv_check_name(gv_check *check)
{
    tracking t = {.check = check};
    gv_range_set left = {0}, left_unstable = {0}, serial_covers = {0};
    gv_error error = {0};
    bool by_graph = true;
    gv_status status = copy_of(&check->touched, &serial_covers, &error);
    if (!status)
        status = gv_image_save(check->compare, &check->touched, gv_check_room(check), &check->serial, &error);
    if (!status)
        status = run_controls(check, &error);
    if (!status && !check->reason[0])
        status = attribute(&t, &left, &left_unstable, &error);
    if (!status && !check->reason[0] && (left.count || left_unstable.count)) {
        if (left_unstable.count)
            by_graph = false;
        else
            status = graph_changes(check, &left, &by_graph, &error);
        if (!status && !by_graph)
            gv_check_fails(check, "inputs changed during the check: memory changed that no node of the graph writes");
    }
    check->record.unstable_bytes = gv_range_set_bytes(&check->unstable);
    if (status)
        gv_check_fails(check, "%llu bytes differ from a serial replay, but it could not be found out why: %.250s",
                       (unsigned long long)check->record.different_bytes, error.text);
    if (!check->reason[0]) {
        step rest = {.position = UINT64_MAX, .different = left};
        for (size_t i = 0; i < t.count; i++)
            if (t.steps[i].different.count || t.steps[i].unstable.count)
                write_difference(check, &t.steps[i], &serial_covers);
        if (left.count)
            write_difference(check, &rest, &serial_covers);
    }
    free_steps(&t);
    gv_range_set_free(&left);
    gv_range_set_free(&left_unstable);
    gv_range_set_free(&serial_covers);
}
