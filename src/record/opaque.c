#include "record/opaque.h"

#include "access/range_set.h"
#include "base/memory.h"
#include "record/compare.h"
#include "record/parameters.h"
#include "record/reach.h"
#include "record/recorder.h"
#include "record/tensor_map.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TENSOR_KINDS = GV_FUNCTION_TENSOR_LOAD | GV_FUNCTION_TENSOR_STORE | GV_FUNCTION_TENSOR_REDUCE,
    TENSOR_WRITES = GV_FUNCTION_TENSOR_STORE | GV_FUNCTION_TENSOR_REDUCE,
    MOST_ROWS = 1 << 14, // ranges that one tensor is made of; a tensor with more is taken without its gaps
    WHOLE_MAP_BYTES = sizeof(CUtensorMap),
    MOST_CHANGES = 1 << 14, // ranges of a record of changed bytes
};

// A tensor that the kernel has a map of.
typedef struct tensor {
    gv_range_set bytes;
    uint32_t element; // bytes of an element
} tensor;

struct gv_opaque {
    CUcontext context;
    CUstream stream;
    gv_compare *compare; // NULL until it is needed
    gv_reach *reach;
    bool device_heap;
    char broken[256]; // why neither can be had
    uint64_t memory;  // most device memory for saved copies

    // The kernel at hand.
    bool planned;
    CUmodule module;
    gv_reached reached;
    tensor *tensors;
    size_t tensor_count, tensor_capacity;
    gv_range_set vague;    // of maps that go beyond live memory
    gv_range_set own_maps; // maps that the kernel wrote itself
    gv_range_set saved;
    char plan_failed[256];
    char reason[700];
    gv_opaque_set *sets;
    size_t set_count, set_capacity;
};

// ---- Kept from one replay to the next ----------------------------------------------------------------------------

// Loading the kernels takes longer than a small graph. A context is known by its id, which no later one gets: its
// handle may be given again, and nobody need tell of its end.
typedef struct kept_kernels {
    CUcontext context;
    unsigned long long id;
    gv_compare *compare;
} kept_kernels;

static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static kept_kernels *idle;
static size_t idle_count, idle_capacity;

static gv_compare *take_kept(CUcontext context)
{
    kept_kernels found = {0};
    unsigned long long id = 0;
    pthread_mutex_lock(&idle_lock);
    for (size_t i = 0; i < idle_count && !found.compare; i++)
        if (idle[i].context == context) {
            found = idle[i];
            idle[i] = idle[--idle_count];
        }
    pthread_mutex_unlock(&idle_lock);
    if (found.compare && (gv_cuda.cuCtxGetId(context, &id) != CUDA_SUCCESS || id != found.id)) {
        gv_compare_forget(found.compare);
        return NULL;
    }
    return found.compare;
}

void gv_opaque_keep_compare(CUcontext context, gv_compare *compare)
{
    unsigned long long id = 0;
    gv_compare_trim(compare);
    bool known = gv_cuda.cuCtxGetId(context, &id) == CUDA_SUCCESS;
    pthread_mutex_lock(&idle_lock);
    bool enough = known && GV_GROW(idle, idle_capacity, idle_count + 1);
    if (enough)
        idle[idle_count++] = (kept_kernels){context, id, compare};
    pthread_mutex_unlock(&idle_lock);
    if (!enough)
        gv_compare_close(compare);
}

gv_compare *gv_opaque_take_compare(CUcontext context, CUstream stream, gv_error *error)
{
    gv_compare *compare = take_kept(context);
    if (compare) {
        gv_compare_use(compare, stream);
        return compare;
    }
    gv_source_loading_own(true);
    gv_compare_open(gv_state.soft, stream, &compare, error);
    gv_source_loading_own(false);
    return compare;
}

void gv_opaque_forget(CUcontext context)
{
    gv_compare *compare = NULL;
    pthread_mutex_lock(&idle_lock);
    for (size_t i = 0; i < idle_count && !compare; i++)
        if (idle[i].context == context) {
            compare = idle[i].compare;
            idle[i] = idle[--idle_count];
        }
    pthread_mutex_unlock(&idle_lock);
    if (compare)
        gv_compare_forget(compare);
}

// ---- Opening and closing -----------------------------------------------------------------------------------------

gv_opaque *gv_opaque_open(CUcontext context, CUstream stream)
{
    gv_opaque *o = gv_calloc(1, sizeof *o);
    if (o) {
        o->context = context;
        o->stream = stream;
    }
    return o;
}

static void drop_sets(gv_opaque *o)
{
    for (size_t i = 0; i < o->set_count; i++)
        gv_node_ranges_free(&o->sets[i].ranges);
    o->set_count = 0;
}

static void drop_tensors(gv_opaque *o)
{
    for (size_t i = 0; i < o->tensor_count; i++)
        gv_range_set_free(&o->tensors[i].bytes);
    o->tensor_count = 0;
    gv_range_set_free(&o->vague);
}

static void drop_plan(gv_opaque *o)
{
    drop_tensors(o);
    gv_range_set_free(&o->own_maps);
    gv_range_set_free(&o->saved);
    gv_reached_free(&o->reached);
    o->planned = false;
    o->plan_failed[0] = '\0';
}

void gv_opaque_close(gv_opaque *o)
{
    if (!o)
        return;
    drop_sets(o);
    drop_plan(o);
    gv_reach_close(o->reach);
    if (o->compare)
        gv_opaque_keep_compare(o->context, o->compare);
    gv_free(o->tensors);
    gv_free(o->sets);
    gv_free(o);
}

// Most device memory that copies may take: what the option says, and never more than half of what is free.
static uint64_t memory_for_copies(void)
{
    size_t available = 0, total = 0;
    if (gv_cuda.cuMemGetInfo(&available, &total) != CUDA_SUCCESS)
        return 0;
    return available / 2 < gv_state.options.compare_bytes ? available / 2 : gv_state.options.compare_bytes;
}

// Loads the kernels and lists the memory, once.
static bool get_ready(gv_opaque *o)
{
    gv_error error = {0};
    if (o->reach || o->broken[0])
        return o->reach != NULL;
    o->compare = gv_opaque_take_compare(o->context, o->stream, &error);
    gv_status status = o->compare ? GV_OK : error.status;
    gv_reach_options options = {.bytes = gv_state.options.search_bytes,
                                .seconds = gv_state.options.search_seconds,
                                .look_up = gv_opaque_look_up};
    gv_reach *reach = NULL;
    if (!status)
        status = gv_reach_open(o->compare, &options, &reach, &error);
    if (!status && !gv_opaque_list_memory(reach, o->context, &o->device_heap))
        status = gv_fail(&error, GV_ERR_MEMORY, "memory ran out");
    if (status) {
        snprintf(o->broken, sizeof o->broken, "%.250s", error.text);
        gv_reach_close(reach);
        return false;
    }
    o->reach = reach;
    o->memory = memory_for_copies();
    return true;
}

// ---- The plan: what a kernel can reach, and what to save ---------------------------------------------------------

static void plan_fails(gv_opaque *o, const char *why)
{
    if (!o->plan_failed[0])
        snprintf(o->plan_failed, sizeof o->plan_failed, "%.250s", why);
}

// Adds the bytes of a map's tensor, cut off where the live memory ends.
static bool add_map(gv_opaque *o, const gv_tensor_map *map, uint64_t live_end, bool vague)
{
    gv_range *rows = gv_calloc(MOST_ROWS, sizeof *rows);
    size_t count = rows ? gv_tensor_map_ranges(map, rows, MOST_ROWS) : 0;
    tensor made = {.element = map->element_bytes};
    gv_range_set *into = vague ? &o->vague : &made.bytes;
    bool enough = rows != NULL;
    for (size_t i = 0; i < count && enough && rows[i].start < live_end; i++)
        enough = gv_range_set_add(into, rows[i].start, rows[i].end < live_end ? rows[i].end : live_end, NULL) == GV_OK;
    gv_free(rows);
    gv_range_set_settle(into);
    // Several maps of one tensor are common: boxes of several sizes, one map for each of several parts.
    for (size_t i = 0; i < o->tensor_count && enough && !vague; i++) {
        tensor *other = &o->tensors[i];
        if (other->bytes.count == made.bytes.count &&
            !memcmp(other->bytes.ranges, made.bytes.ranges, made.bytes.count * sizeof *made.bytes.ranges)) {
            other->element = made.element < other->element ? made.element : other->element;
            gv_range_set_free(&made.bytes);
            return true;
        }
    }
    enough = enough && GV_GROW(o->tensors, o->tensor_capacity, o->tensor_count + 1);
    if (enough && !vague && made.bytes.count)
        o->tensors[o->tensor_count++] = made;
    else
        gv_range_set_free(&made.bytes);
    return enough;
}

static bool add_maps(gv_opaque *o, const gv_parameters *parameters)
{
    bool enough = true;
    for (size_t i = 0; i < parameters->count && enough; i++) {
        const gv_parameter *item = &parameters->items[i];
        if (item->kind != GV_PARAMETER_TENSOR_MAP)
            continue;
        // The program's memory, where that is known: others' may adjoin it, our own among them.
        uint64_t end = gv_reach_end(o->reach, item->address);
        enough = add_map(o, &item->map, end ? end : item->end, item->beyond);
    }
    for (size_t i = 0; i < o->reached.map_count && enough; i++) {
        const gv_reached_map *found = &o->reached.maps[i];
        gv_range whole;
        gv_tensor_map_ranges(&found->map, &whole, 1);
        enough = add_map(o, &found->map, found->end, whole.end > found->end);
    }
    return enough;
}

// Fills `reached` and the tensors.
static void look_around(gv_opaque *o, CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params)
{
    gv_parameters parameters = {0};
    gv_error error = {0};
    gv_status status = gv_parameters_read(&parameters, function, params, &error);
    uint64_t *roots = gv_calloc(parameters.count, sizeof *roots);
    if (!status && !roots)
        status = gv_fail(&error, GV_ERR_MEMORY, "memory ran out");
    for (size_t i = 0; i < parameters.count && !status; i++)
        roots[i] = parameters.items[i].address;
    o->module = NULL;
    if (!status && gv_cuda.cuFuncGetModule(&o->module, function) != CUDA_SUCCESS)
        status = gv_fail(&error, GV_ERR_MISSING, "the driver does not tell the module it is in");
    if (!status)
        status = gv_reach_from(o->reach, roots, parameters.count, o->module, &o->reached, &error);
    if (!status && !add_maps(o, &parameters))
        status = gv_fail(&error, GV_ERR_MEMORY, "memory ran out");
    if (status)
        plan_fails(o, o->reached.incomplete[0] ? o->reached.incomplete : error.text);
    else if (o->reached.incomplete[0])
        plan_fails(o, o->reached.incomplete);
    gv_free(roots);
    gv_parameters_free(&parameters);
}

static int smaller_first(const void *a, const void *b)
{
    uint64_t x = gv_range_set_bytes(*(gv_range_set *const *)a), y = gv_range_set_bytes(*(gv_range_set *const *)b);
    return x < y ? -1 : x > y;
}

// Saves as many of the candidates as there is memory for, the smallest first: what a kernel writes is mostly smaller
// than what it reads. Memory that others may change is left alone. Without memory nothing is saved, which costs
// knowledge only.
static void save(gv_opaque *o, gv_range_set **candidates, size_t count)
{
    gv_error error = {0};
    if (count)
        qsort(candidates, count, sizeof *candidates, smaller_first);
    for (size_t i = 0; i < count; i++) {
        gv_range_set own = {0}, more = {0};
        bool fits = gv_range_set_difference(candidates[i], &o->reached.shared, &own, &error) == GV_OK &&
                    gv_range_set_union(&o->saved, &own, &more, &error) == GV_OK && gv_compare_cost(&more) <= o->memory;
        gv_range_set_free(&own);
        if (fits) {
            gv_range_set_free(&o->saved);
            o->saved = more;
        } else {
            gv_range_set_free(&more);
            break;
        }
    }
    if (o->saved.count && gv_compare_save(o->compare, &o->saved, &error) != GV_OK)
        gv_range_set_free(&o->saved);
}

static void save_what_may_be_written(gv_opaque *o, unsigned flags)
{
    size_t most = o->tensor_count + o->reached.memory.count, count = 0;
    gv_range_set **candidates = gv_calloc(most, sizeof *candidates);
    gv_range_set *regions = gv_calloc(o->reached.memory.count, sizeof *regions);
    bool enough = candidates && regions;
    // A tensor whose map the kernel makes itself may be anywhere.
    if (enough && flags & (GV_FUNCTION_UNSEEN | GV_FUNCTION_TENSOR_REPLACE)) {
        for (size_t i = 0; i < o->reached.memory.count && enough; i++) {
            gv_range range = o->reached.memory.ranges[i];
            enough = gv_range_set_add(&regions[i], range.start, range.end, NULL) == GV_OK;
            candidates[count++] = &regions[i];
        }
    } else if (enough && flags & TENSOR_WRITES) {
        for (size_t i = 0; i < o->tensor_count; i++)
            candidates[count++] = &o->tensors[i].bytes;
    }
    if (enough)
        save(o, candidates, count);
    for (size_t i = 0; regions && i < o->reached.memory.count; i++)
        gv_range_set_free(&regions[i]);
    gv_free(regions);
    gv_free(candidates);
}

void gv_opaque_before(gv_opaque *o, CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params, unsigned flags)
{
    drop_sets(o);
    drop_plan(o);
    if (!(flags & (TENSOR_KINDS | GV_FUNCTION_UNSEEN)))
        return;
    o->planned = true;
    if (!get_ready(o)) {
        plan_fails(o, o->broken);
        return;
    }
    look_around(o, function, params);
    if (!o->plan_failed[0])
        save_what_may_be_written(o, flags);
}

// ---- Ranges of one form and the other ----------------------------------------------------------------------------

static bool append_set(gv_node_ranges *to, enum gv_access_kind kind, const gv_range_set *from)
{
    bool enough = true;
    gv_range_set_settle(from);
    for (size_t i = 0; i < from->count && enough; i++)
        enough = gv_node_ranges_append(to, kind, from->ranges[i].start, from->ranges[i].end);
    return enough;
}

static bool add_ranges(gv_range_set *to, const gv_node_ranges *from, enum gv_access_kind kind)
{
    bool enough = true;
    for (size_t i = 0; i < from->count[kind] && enough; i++)
        enough = gv_range_set_add(to, from->ranges[kind][i].start, from->ranges[kind][i].end, NULL) == GV_OK;
    gv_range_set_settle(to);
    return enough;
}

// A new set with these ranges of a kind, unless there are none. NULL means none.
static bool add_set(gv_opaque *o, enum gv_access_source source, enum gv_access_precision precision,
                    const gv_range_set *reads, const gv_range_set *writes, const gv_range_set *atomics)
{
    const gv_range_set *all[GV_ACCESS_KINDS] = {
        [GV_ACCESS_READ] = reads, [GV_ACCESS_WRITE] = writes, [GV_ACCESS_ATOMIC] = atomics};
    gv_opaque_set made = {.source = source, .precision = precision};
    bool any = false, enough = GV_GROW(o->sets, o->set_capacity, o->set_count + 1);
    for (int kind = 0; kind < GV_ACCESS_KINDS && enough; kind++) {
        any |= all[kind] && all[kind]->count;
        enough = !all[kind] || append_set(&made.ranges, (enum gv_access_kind)kind, all[kind]);
    }
    if (any && enough)
        o->sets[o->set_count++] = made;
    else
        gv_node_ranges_free(&made.ranges);
    return enough;
}

// The bytes of all tensors.
static gv_status all_tensors(const gv_opaque *o, gv_range_set *all, gv_error *error)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < o->tensor_count && !status; i++)
        for (size_t r = 0; r < o->tensors[i].bytes.count && !status; r++)
            status =
                gv_range_set_add(all, o->tensors[i].bytes.ranges[r].start, o->tensors[i].bytes.ranges[r].end, error);
    gv_range_set_settle(all);
    return status;
}

bool gv_opaque_hide(gv_opaque *o, const char *name, gv_node_ranges *seen)
{
    gv_range_set all = {0};
    bool enough = all_tensors(o, &all, NULL) == GV_OK && gv_soft_hide(name, all.ranges, all.count, seen);
    gv_range_set_free(&all);
    return enough;
}

// ---- Changed bytes -----------------------------------------------------------------------------------------------

static bool overlap(const tensor *a, const tensor *b)
{
    return gv_range_set_overlaps(&a->bytes, &b->bytes);
}

// A tensor is written by whole elements: a byte that changed stands for its element, so that numbers that keep some of
// their bytes do not fall to pieces. Where tensors of several types overlap, the smallest element counts.
static gv_status round_to_elements(const gv_opaque *o, gv_range_set *changed, gv_error *error)
{
    gv_range_set all = {0};
    gv_status status = GV_OK;
    for (size_t i = 0; i < o->tensor_count && !status; i++) {
        const tensor *t = &o->tensors[i];
        uint64_t element = t->element;
        for (size_t k = 0; k < o->tensor_count; k++)
            if (o->tensors[k].element < element && overlap(t, &o->tensors[k]))
                element = o->tensors[k].element;
        gv_range_set inside = {0}, rounded = {0}, kept = {0}, sum = {0};
        status = gv_range_set_intersection(changed, &t->bytes, &inside, error);
        for (size_t r = 0; r < inside.count && !status; r++)
            status = gv_range_set_add(&rounded, inside.ranges[r].start / element * element,
                                      (inside.ranges[r].end + element - 1) / element * element, error);
        gv_range_set_settle(&rounded);
        if (!status)
            status = gv_range_set_intersection(&rounded, &t->bytes, &kept, error);
        if (!status)
            status = gv_range_set_union(&all, &kept, &sum, error);
        gv_range_set_free(&all);
        all = sum;
        gv_range_set_free(&inside);
        gv_range_set_free(&rounded);
        gv_range_set_free(&kept);
    }
    // What lies in no tensor that is known stays as it is.
    gv_range_set sum = {0};
    if (!status)
        status = gv_range_set_union(changed, &all, &sum, error);
    gv_range_set_free(&all);
    if (status)
        return status;
    gv_range_set_free(changed);
    *changed = sum;
    return GV_OK;
}

// Changes in more ranges than a record is to have: the short ones are left out. They stay in the extent.
static void thin_out(gv_range_set *changed)
{
    gv_range_set_settle(changed);
    for (uint64_t least = 2; changed->count > MOST_CHANGES; least *= 2) {
        size_t kept = 0;
        for (size_t i = 0; i < changed->count; i++)
            if (changed->ranges[i].end - changed->ranges[i].start >= least)
                changed->ranges[kept++] = changed->ranges[i];
        // All of one length: some of them are as good as others.
        changed->count = kept ? kept : MOST_CHANGES;
    }
}

// ---- A second run ------------------------------------------------------------------------------------------------

// Everything the kernel reads is known: its reads, plain and by extent.
static bool gather_reads(const gv_node_ranges *seen, const gv_node_ranges *extents, gv_range_set *reads)
{
    return add_ranges(reads, seen, GV_ACCESS_READ) && add_ranges(reads, seen, GV_ACCESS_ATOMIC) &&
           add_ranges(reads, extents, GV_ACCESS_READ) && add_ranges(reads, extents, GV_ACCESS_ATOMIC);
}

// May the kernel run again on memory that it does not read and that was changed? It must do the same then, to the
// instruction: a kernel that computes an address or a count from what it finds there could fault, and take the program
// with it. So all of its reads have to be known, and nothing it reads may be written by itself (in place, by a
// counter, or by one block for another): then each of its threads sees in the second run what it saw in the first.
//
// Maps that the kernel makes itself (`own_maps`) are written and then read, by the thread that wrote them: each run
// writes the same ones before it goes by them.
static bool may_run_again(const gv_opaque *o, const gv_opaque_case *at, const gv_range_set *changed,
                          const gv_range_set *all_reads)
{
    gv_range_set writes = {0}, reads = {0}, atomics = {0}, counters = {0};
    const unsigned others =
        GV_FUNCTION_TENSOR_LOAD | GV_FUNCTION_TENSOR_REDUCE | GV_FUNCTION_UNSEEN | GV_FUNCTION_TEXTURE;
    if (!at->again || at->anything || at->constants || at->flags & others || !(at->flags & GV_FUNCTION_TENSOR_STORE) ||
        !o->saved.count)
        return false;
    bool enough = add_ranges(&writes, at->seen, GV_ACCESS_WRITE) && add_ranges(&writes, at->extents, GV_ACCESS_WRITE) &&
                  add_ranges(&atomics, at->seen, GV_ACCESS_ATOMIC) &&
                  gv_range_set_difference(&atomics, &o->own_maps, &counters, NULL) == GV_OK &&
                  gv_range_set_difference(all_reads, &o->own_maps, &reads, NULL) == GV_OK;
    bool may = enough && !counters.count && !gv_range_set_overlaps(&reads, &writes) &&
               !gv_range_set_overlaps(&reads, changed) &&
               // What others wait for must not be written twice.
               !gv_range_set_overlaps(&writes, &o->reached.shared) &&
               !gv_range_set_overlaps(&reads, &o->reached.shared);
    for (size_t i = 0; i < writes.count && may; i++) {
        gv_range_set one = {&writes.ranges[i], 1, 1, 0}, outside = {0};
        may = gv_range_set_difference(&one, &o->reached.memory, &outside, NULL) == GV_OK && !outside.count;
        gv_range_set_free(&outside);
    }
    gv_range_set_free(&counters);
    gv_range_set_free(&atomics);
    gv_range_set_free(&reads);
    gv_range_set_free(&writes);
    return may;
}

// The saved bytes of tensors that the kernel does not read: those that may be made different.
static gv_status unread_tensors(const gv_opaque *o, const gv_range_set *reads, gv_range_set *out, gv_error *error)
{
    gv_range_set all = {0}, inside = {0};
    gv_status status = all_tensors(o, &all, error);
    if (!status)
        status = gv_range_set_intersection(&o->saved, &all, &inside, error);
    if (!status)
        status = gv_range_set_difference(&inside, reads, out, error);
    gv_range_set_free(&all);
    gv_range_set_free(&inside);
    return status;
}

// Runs the kernel again on saved memory whose unread bytes were made different, so that each byte it writes shows.
// `perturbed` are the bytes of which it is known then whether it writes them; those it does are added to `changed`.
static void run_again(gv_opaque *o, gv_opaque_case *at, gv_range_set *changed, gv_range_set *perturbed)
{
    gv_error error = {0};
    gv_range_set reads = {0}, second_reads = {0}, written = {0}, sum = {0};
    gv_node_ranges seen = {0}, extents = {0};
    bool recorded = false, enough = gather_reads(at->seen, at->extents, &reads);
    if (!enough || !may_run_again(o, at, changed, &reads) || unread_tensors(o, &reads, perturbed, &error) != GV_OK ||
        !perturbed->count || gv_compare_perturb(o->compare, perturbed, &error) != GV_OK) {
        gv_range_set_free(perturbed);
        gv_range_set_free(&reads);
        return;
    }
    CUresult result = at->again(at->user, &seen, &extents, &recorded);
    gv_status status = result == CUDA_SUCCESS ? gv_compare_settle(o->compare, &written, &error) : GV_ERR_IO;
    // The second run must not have read what was changed. It cannot, as may_run_again argues; if it did all the same,
    // its result is not the program's: the memory is put back and the kernel runs a third time.
    bool clean = !status && recorded && gather_reads(&seen, &extents, &second_reads) &&
                 !gv_range_set_overlaps(&second_reads, perturbed);
    if (clean && gv_range_set_union(changed, &written, &sum, &error) == GV_OK) {
        gv_range_set_free(changed);
        *changed = sum;
    } else {
        gv_range_set_free(perturbed);
        if (!clean && result == CUDA_SUCCESS) {
            gv_compare_restore(o->compare, &error);
            gv_node_ranges_clear(&seen);
            gv_node_ranges_clear(&extents);
            result = at->again(at->user, &seen, &extents, &recorded);
        }
    }
    at->result = result;
    gv_node_ranges_free(&seen);
    gv_node_ranges_free(&extents);
    gv_range_set_free(&reads);
    gv_range_set_free(&second_reads);
    gv_range_set_free(&written);
}

// After a second run the bytes that the kernel reads are left, which were not made different. Of a tensor of which no
// byte was written, while others' bytes were, these count as not written either: what is taken on trust here is that a
// kernel does not store into a tensor just what it has loaded from it, everywhere, beside storing into another one.
static gv_status trust_what_is_only_read(gv_opaque *o, const gv_range_set *written, gv_range_set *proved,
                                         gv_error *error)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < o->tensor_count && !status; i++) {
        const gv_range_set *bytes = &o->tensors[i].bytes;
        gv_range_set elsewhere = {0}, unsaved = {0}, sum = {0};
        if (gv_range_set_overlaps(bytes, written))
            continue;
        status = gv_range_set_difference(written, bytes, &elsewhere, error);
        if (!status)
            status = gv_range_set_difference(bytes, &o->saved, &unsaved, error);
        if (!status && elsewhere.count && !unsaved.count) {
            status = gv_range_set_union(proved, bytes, &sum, error);
            if (!status) {
                gv_range_set_free(proved);
                *proved = sum;
            }
        }
        gv_range_set_free(&elsewhere);
        gv_range_set_free(&unsaved);
    }
    return status;
}

// ---- After the kernel --------------------------------------------------------------------------------------------

// The bytes that were changed, in a record that says how.
static bool add_changes(gv_opaque *o, const gv_opaque_case *at, gv_range_set *changed)
{
    thin_out(changed);
    bool stores = at->flags & GV_FUNCTION_TENSOR_STORE, updates = at->flags & GV_FUNCTION_TENSOR_REDUCE;
    if (at->anything || at->flags & GV_FUNCTION_UNSEEN) {
        enum gv_access_source source = at->flags & GV_FUNCTION_ATOMIC ? GV_SOURCE_CHANGED : GV_SOURCE_COMPARED;
        return add_set(o, source, GV_PRECISION_EXACT, NULL, changed, NULL);
    }
    if (stores && updates)
        return add_set(o, GV_SOURCE_CHANGED, GV_PRECISION_EXACT, NULL, changed, NULL);
    return add_set(o, GV_SOURCE_COMPARED, GV_PRECISION_EXACT, NULL, stores ? changed : NULL, updates ? changed : NULL);
}

// What is only known to lie in tensors: reads where loads are not seen, and writes where it was not proved that there
// are none. `proved` are bytes of which all writes are known.
static bool add_tensors(gv_opaque *o, const gv_opaque_case *at, const gv_range_set *proved)
{
    bool enough = true;
    for (size_t i = 0; i < o->tensor_count && enough; i++) {
        gv_range_set unproved = {0};
        enough = gv_range_set_difference(&o->tensors[i].bytes, proved, &unproved, NULL) == GV_OK &&
                 add_set(o, GV_SOURCE_TENSOR_MAP, GV_PRECISION_EXTENT,
                         at->flags & GV_FUNCTION_TENSOR_LOAD ? &o->tensors[i].bytes : NULL,
                         at->flags & TENSOR_WRITES ? &unproved : NULL, NULL);
        gv_range_set_free(&unproved);
    }
    // Where a map is replaced by the kernel itself, its tensor may be any memory.
    const gv_range_set *loose = at->flags & GV_FUNCTION_TENSOR_REPLACE ? &o->reached.memory : &o->vague;
    return enough &&
           add_set(o, GV_SOURCE_REACHED, GV_PRECISION_EXTENT, at->flags & GV_FUNCTION_TENSOR_LOAD ? loose : NULL,
                   at->flags & TENSOR_WRITES ? loose : NULL, NULL);
}

// The module's variables, one of which it may have read as a constant. NULL, or why they are not known.
static const char *add_constants(gv_opaque *o, const gv_opaque_case *at)
{
    static char why[256]; // one thread arms at a time
    CUmodule module = NULL;
    gv_reached variables = {0};
    gv_error error = {0};
    if (!get_ready(o))
        return o->broken;
    if (gv_cuda.cuFuncGetModule(&module, at->function) != CUDA_SUCCESS)
        return "the driver does not tell the module it is in";
    bool listed = gv_reach_variables(o->reach, module, &variables, &error) == GV_OK && !variables.incomplete[0] &&
                  add_set(o, GV_SOURCE_REACHED, GV_PRECISION_EXTENT, &variables.memory, NULL, NULL);
    snprintf(why, sizeof why, "%s", variables.incomplete[0] ? variables.incomplete : "memory ran out");
    gv_reached_free(&variables);
    return listed ? NULL : why;
}

static const char *unresolved(gv_opaque *o, const gv_opaque_case *at, const char *why)
{
    drop_sets(o);
    if (why)
        snprintf(o->reason, sizeof o->reason, "%.300s; %.300s", at->reason, why);
    else
        snprintf(o->reason, sizeof o->reason, "%.600s", at->reason);
    return o->reason;
}

// Maps that the kernel itself wrote into memory stand there now, each with the last of what it held. So the memory is
// searched once more.
static void look_again(gv_opaque *o, const gv_opaque_case *at)
{
    gv_range_set writes = {0};
    // A map goes to global memory in one piece, which the Sanitizer reports as atomic updates.
    bool enough = add_ranges(&writes, at->seen, GV_ACCESS_WRITE) && add_ranges(&writes, at->seen, GV_ACCESS_ATOMIC);
    gv_reach_written(o->reach, at->seen->ranges[GV_ACCESS_ATOMIC], at->seen->count[GV_ACCESS_ATOMIC]);
    gv_reach_written(o->reach, at->seen->ranges[GV_ACCESS_WRITE], at->seen->count[GV_ACCESS_WRITE]);
    drop_tensors(o);
    gv_reached_free(&o->reached);
    look_around(o, at->function, at->params);
    for (size_t i = 0; i < o->reached.map_count && enough; i++) {
        uint64_t start = o->reached.maps[i].where;
        gv_range range = {start, start + WHOLE_MAP_BYTES};
        gv_range_set map = {&range, 1, 1, 0};
        if (gv_range_set_overlaps(&map, &writes))
            enough = gv_range_set_add(&o->own_maps, range.start, range.end, NULL) == GV_OK;
    }
    gv_range_set_settle(&o->own_maps);
    gv_range_set_free(&writes);
    if (!enough)
        plan_fails(o, "memory ran out");
}

// Does a kind of access remain that nothing is known about?
static bool is_hopeless(unsigned flags)
{
    return flags & (GV_FUNCTION_MULTIMEM | GV_FUNCTION_DEVICE_LAUNCH | GV_FUNCTION_UNSCANNED |
                    GV_FUNCTION_SURFACE_STORE | GV_FUNCTION_TEXTURE);
}

const char *gv_opaque_after(gv_opaque *o, gv_opaque_case *at)
{
    gv_error error = {0};
    gv_range_set changed = {0}, proved = {0};
    bool anything = at->anything || at->flags & GV_FUNCTION_UNSEEN, tensors = at->flags & TENSOR_KINDS;
    at->result = CUDA_SUCCESS;
    drop_sets(o);
    if (is_hopeless(at->flags))
        return unresolved(o, at, NULL);
    // That something was not seen may show only afterwards: then there is nothing to compare with.
    bool surprise = !o->planned && (anything || tensors);
    if (surprise) {
        drop_plan(o);
        if (get_ready(o))
            look_around(o, at->function, at->params);
        else
            plan_fails(o, o->broken);
    }
    if (!surprise && tensors && at->flags & GV_FUNCTION_TENSOR_REPLACE && !o->plan_failed[0])
        look_again(o, at);
    if (o->plan_failed[0])
        return unresolved(o, at, o->plan_failed);
    if ((anything || at->flags & GV_FUNCTION_TENSOR_REPLACE) && o->device_heap)
        return unresolved(o, at, "a module allocates memory from the device, which cannot be searched");
    if (tensors && !anything && !o->tensor_count && !o->vague.count && !(at->flags & GV_FUNCTION_TENSOR_REPLACE))
        return unresolved(o, at, "no tensor map of it was found");
    gv_status status = o->saved.count ? gv_compare_changed(o->compare, &changed, &error) : GV_OK;
    if (!status && tensors && !anything)
        status = round_to_elements(o, &changed, &error);
    if (!status && o->saved.count)
        run_again(o, at, &changed, &proved);
    if (!status && proved.count)
        status = trust_what_is_only_read(o, &changed, &proved, &error);
    bool enough = !status && add_changes(o, at, &changed);
    if (enough && anything)
        enough = add_set(o, GV_SOURCE_REACHED, GV_PRECISION_EXTENT, &o->reached.memory, &o->reached.memory, NULL);
    else if (enough && tensors)
        enough = add_tensors(o, at, &proved);
    if (enough && at->constants) {
        const char *why = add_constants(o, at);
        if (why) {
            gv_range_set_free(&changed);
            gv_range_set_free(&proved);
            return unresolved(o, at, why);
        }
    }
    gv_range_set_free(&changed);
    gv_range_set_free(&proved);
    if (!enough)
        return unresolved(o, at, status ? error.text : "memory ran out");
    return NULL;
}

const gv_opaque_set *gv_opaque_sets(const gv_opaque *o, size_t *count)
{
    *count = o->set_count;
    return o->sets;
}

void gv_opaque_written(gv_opaque *o, const gv_node_ranges *ranges)
{
    if (!o || !o->reach)
        return;
    if (!ranges) {
        gv_reach_all_written(o->reach);
        return;
    }
    gv_reach_written(o->reach, ranges->ranges[GV_ACCESS_WRITE], ranges->count[GV_ACCESS_WRITE]);
    gv_reach_written(o->reach, ranges->ranges[GV_ACCESS_ATOMIC], ranges->count[GV_ACCESS_ATOMIC]);
}
