// Poison: memory that a launch has to write before it reads it holds a pattern that no computation leaves, in a further
// launch. What comes out otherwise has been computed from it: from what an earlier launch, or nobody, had left there.
#include "base/memory.h"
#include "record/ids.h"
#include "record/perturb.h"
#include "record/recorder.h"

#include <stdio.h>
#include <string.h>

// A NaN in every floating-point format; -1 as an integer.
#define POISON UINT64_MAX

enum { MOST_REGIONS = 64 };

// One piece of memory that is named on its own.
typedef struct region {
    char name[64];
    gv_range_set memory;
} region;

typedef struct checking {
    gv_perturb *p;
    region *regions;
    size_t count, capacity;
    gv_range_set poisoned; // by the launch at hand
    gv_range_set real;     // real rows of outputs
} checking;

bool gv_poison_is_due(gv_exec *exec)
{
    const gv_record_options *options = &gv_state.options;
    if (options->poison == GV_PERTURB_NONE || !exec->named || exec->poison_refused)
        return false;
    exec->poison_owed |=
        options->poison == GV_PERTURB_FIRST ? exec->launches == 1 : (exec->launches - 1) % options->poison_number == 0;
    return exec->poison_owed;
}

// ---- Which memory ------------------------------------------------------------------------------------------------

static gv_status list_rows(gv_perturb *p, gv_range_set *saved, gv_error *error)
{
    return gv_perturb_list_rows(p, error);
}

static bool set_of(gv_perturb *p, gv_range_set *set, uint64_t start, uint64_t end)
{
    gv_error error = {0};
    if (start >= end || gv_range_set_add(set, start, end, &error) == GV_OK)
        return true;
    gv_perturb_fails(p, "%s", error.text);
    return false;
}

// Adds a region: what of [start, end) the launch may write and no input is.
static bool add_region(checking *c, const char *name, uint64_t start, uint64_t end, const gv_range_set *inputs)
{
    gv_perturb *p = c->p;
    gv_range_set whole = {0}, writable = {0};
    if (!GV_GROW(c->regions, c->capacity, c->count + 1)) {
        gv_perturb_fails(p, "memory ran out");
        return false;
    }
    region *r = &c->regions[c->count];
    *r = (region){0};
    snprintf(r->name, sizeof r->name, "%s", name);
    bool enough = set_of(p, &whole, start, end) && gv_perturb_both(p, &whole, &p->saved, &writable) &&
                  gv_perturb_minus(p, &writable, inputs, &r->memory);
    if (enough && r->memory.count)
        c->count++;
    else
        gv_range_set_free(&r->memory);
    gv_range_set_free(&whole);
    gv_range_set_free(&writable);
    return enough;
}

static bool list_regions(checking *c)
{
    gv_perturb *p = c->p;
    gv_range_set inputs = {0};
    gv_live *lives = NULL;
    size_t lives_count = 0;
    bool enough = true;
    for (size_t i = 0; i < p->row_count && enough; i++) {
        const gv_rows *rows = &p->rows[i];
        gv_range real = gv_perturb_real(p, rows);
        if (rows->flags & GV_ROWS_IN)
            enough = set_of(p, &inputs, rows->address, rows->address + rows->row_bytes * rows->rows);
        if (enough && rows->flags & GV_ROWS_OUT)
            enough = set_of(p, &c->real, real.start, real.end);
    }
    gv_range_set_settle(&inputs);
    gv_range_set_settle(&c->real);
    for (size_t i = 0; i < p->row_count && enough; i++)
        if (p->rows[i].flags & GV_ROWS_SCRATCH)
            enough =
                add_region(c, p->rows[i].name, p->rows[i].address, p->rows[i].address + p->rows[i].row_bytes, &inputs);
    if (enough && !gv_lives(&lives, &lives_count)) {
        gv_perturb_fails(p, "memory ran out");
        enough = false;
    }
    for (size_t i = 0; i < lives_count && enough; i++) {
        char name[64];
        if (!lives[i].captured)
            continue;
        snprintf(name, sizeof name, "memory allocated during a capture, at 0x%llx",
                 (unsigned long long)lives[i].address);
        enough = add_region(c, name, lives[i].address, lives[i].address + lives[i].size, &inputs);
    }
    gv_free(lives);
    gv_range_set_free(&inputs);
    return enough;
}

static gv_status fill(gv_perturb *p, void *user, gv_error *error)
{
    const checking *c = user;
    return gv_compare_fill(p->compare, &c->poisoned, POISON, error);
}

// ---- What comes of it --------------------------------------------------------------------------------------------

// `different` is how memory differs from what it should be; takes out what of it is poison still: that was not written.
// Real rows of outputs have to be written. To see what is poison, memory is poisoned once more, and put back.
static bool without_poison(checking *c, const gv_range_set *different, gv_range_set *effect)
{
    gv_perturb *p = c->p;
    gv_error error = {0};
    gv_range_set inside = {0}, outside = {0}, outputs = {0}, written = {0};
    gv_image *values = NULL;
    bool going_on = gv_perturb_minus(p, different, &c->poisoned, &outside) &&
                    gv_perturb_both(p, different, &c->poisoned, &inside) &&
                    gv_perturb_both(p, different, &c->real, &outputs) && gv_perturb_add(p, effect, &outside) &&
                    gv_perturb_add(p, effect, &outputs);
    if (going_on && inside.count) {
        values = gv_perturb_keep(p, &c->poisoned);
        going_on = values != NULL;
        p->disturbed = true;
        gv_status status = going_on ? fill(p, c, &error) : GV_OK;
        going_on = going_on && !status && gv_perturb_differences(p, values, &inside, &written) &&
                   gv_perturb_add(p, effect, &written);
        // The nodes that follow must not meet poison in place of what has been computed.
        if (values && !status)
            status = gv_image_restore(p->compare, values, NULL, &error);
        if (status) {
            gv_perturb_fails(p, "%.400s", error.text);
            going_on = false;
        }
        gv_perturb_drop(p, values);
    }
    gv_range_set_free(&inside);
    gv_range_set_free(&outside);
    gv_range_set_free(&outputs);
    gv_range_set_free(&written);
    return going_on;
}

// Launches the graph with c->poisoned poisoned, and again until it is certain what comes out otherwise then. `effect`:
// what of it was computed from poison.
static bool launch_poisoned(checking *c, gv_range_set *effect)
{
    gv_perturb *p = c->p;
    gv_range_set different = {0}, confirmed = {0};
    bool going_on = gv_perturb_again(p, NULL, fill, c) && gv_perturb_outcome(p, &different) &&
                    without_poison(c, &different, &confirmed);
    if (going_on && confirmed.count)
        going_on = gv_perturb_confirm(p, fill, c, &different) && without_poison(c, &different, effect);
    gv_range_set_free(&different);
    gv_range_set_free(&confirmed);
    return going_on;
}

// ---- The node that reads it ----------------------------------------------------------------------------------------

// Behind the node at `position` memory is kept, or compared with what was kept.
typedef struct looking {
    checking *c;
    uint64_t position, graph, node; // the node's snapshot and index + 1, once it has run
    gv_image *kept;
    bool compares;
    bool differs;
} looking;

static void look(void *user, const gv_snapshot *snapshot, uint32_t node, uint64_t position)
{
    looking *l = user;
    gv_range_set all = {0}, different = {0}, effect = {0};
    if (position != l->position)
        return;
    l->graph = snapshot->id;
    l->node = (uint64_t)node + 1;
    if (!l->compares) {
        l->kept = gv_perturb_keep(l->c->p, &l->c->p->saved);
        return;
    }
    if (gv_perturb_differences(l->c->p, l->kept, NULL, &all) &&
        gv_perturb_minus(l->c->p, &all, &l->c->p->left_out, &different) && without_poison(l->c, &different, &effect))
        l->differs = effect.count != 0;
    gv_range_set_free(&all);
    gv_range_set_free(&different);
    gv_range_set_free(&effect);
}

static void count(void *user, const gv_snapshot *snapshot, uint32_t node, uint64_t position)
{
    *(uint64_t *)user = position;
}

// Has a node up to `position` computed from poison? *l has that node.
static bool is_infected(checking *c, uint64_t position, looking *l)
{
    gv_perturb *p = c->p;
    gv_range_set none = {0}, real = c->real;
    *l = (looking){.c = c, .position = position};
    // On the way, outputs need not be written yet.
    c->real = none;
    if (gv_perturb_rewind(p, NULL, NULL, NULL) && gv_perturb_nodes(p, look, l) && l->kept &&
        gv_perturb_rewind(p, NULL, fill, c)) {
        l->compares = true;
        gv_perturb_nodes(p, look, l);
    }
    gv_perturb_drop(p, l->kept);
    c->real = real;
    return l->differs;
}

// The first node behind which something differs that is not poison: it, or what it wrote, has read poison.
static void find_reader(checking *c, uint64_t *graph, uint64_t *node)
{
    gv_perturb *p = c->p;
    uint64_t nodes = 0, low = 1;
    looking l = {0}, found = {0};
    *graph = *node = 0;
    if (!p->exec->snapshot->owned || !gv_perturb_rewind(p, NULL, NULL, NULL) || !gv_perturb_nodes(p, count, &nodes))
        return;
    for (uint64_t high = nodes; low <= high && !p->reason[0];) {
        uint64_t middle = low + (high - low) / 2;
        if (is_infected(c, middle, &l)) {
            found = l;
            high = middle - 1;
        } else {
            low = middle + 1;
        }
    }
    // Bytes that are stable in the end may have been unstable on the way: the search must come to the same again.
    if (p->unstable.count && found.node &&
        (!is_infected(c, found.position, &l) || (found.position > 1 && is_infected(c, found.position - 1, &l))))
        return;
    *graph = found.graph;
    *node = found.node;
}

// ---- The check -----------------------------------------------------------------------------------------------------

// One region alone: is it the one?
static bool try_region(checking *c, const region *r)
{
    gv_perturb *p = c->p;
    gv_range_set effect = {0};
    gv_range_set_free(&c->poisoned);
    bool going_on = gv_perturb_add(p, &c->poisoned, &r->memory) && launch_poisoned(c, &effect);
    if (going_on && effect.count) {
        gv_effect_record record = {.kind = GV_EFFECT_STALE_READ, .name = {r->name, strlen(r->name)}};
        find_reader(c, &record.graph, &record.node);
        gv_perturb_write_effect(p, &record, &effect);
        going_on = !p->reason[0];
    }
    gv_range_set_free(&effect);
    return going_on;
}

// The verdict is about real rows of outputs and about regions; where no output is declared, about everything outside of
// the poisoned memory.
static bool list_needed(checking *c)
{
    gv_perturb *p = c->p;
    gv_range_set rest = {0};
    bool enough = gv_perturb_minus(p, &p->saved, &c->poisoned, &rest) &&
                  gv_perturb_add(p, &p->needed, c->real.count ? &c->real : &rest) &&
                  gv_perturb_need_regions(p, &c->poisoned);
    gv_range_set_free(&rest);
    return enough;
}

static void check(gv_perturb *p)
{
    checking c = {.p = p};
    gv_range_set effect = {0};
    bool going_on = list_regions(&c);
    if (going_on && !c.count) {
        gv_perturb_fails(p,
                         "it writes no memory that is declared as scratch (gravel_scratch) or was allocated during a "
                         "capture: there is nothing to poison");
        going_on = false;
    }
    for (size_t i = 0; i < c.count && going_on; i++)
        going_on = gv_perturb_add(p, &c.poisoned, &c.regions[i].memory);
    p->record.perturbed_bytes = gv_range_set_bytes(&c.poisoned);
    going_on = going_on && list_needed(&c) && gv_perturb_control(p) && launch_poisoned(&c, &effect);
    snprintf(p->patterns, sizeof p->patterns, "0xff");
    if (going_on && effect.count) {
        if (c.count > MOST_REGIONS) {
            gv_effect_record record = {.kind = GV_EFFECT_STALE_READ, .name = {"one of many regions", 19}};
            find_reader(&c, &record.graph, &record.node);
            gv_perturb_write_effect(p, &record, &effect);
        }
        for (size_t i = 0; i < c.count && c.count <= MOST_REGIONS && going_on; i++)
            going_on = try_region(&c, &c.regions[i]);
    }
    for (size_t i = 0; i < c.count; i++)
        gv_range_set_free(&c.regions[i].memory);
    gv_free(c.regions);
    gv_range_set_free(&c.poisoned);
    gv_range_set_free(&c.real);
    gv_range_set_free(&effect);
}

bool gv_poison_launch(gv_graph_launch launch, gv_exec *exec, CUstream stream, bool per_thread, CUresult *result,
                      uint64_t *sequence)
{
    gv_perturb p = {.launch = launch, .exec = exec, .stream = stream, .per_thread = per_thread};
    const char *why = "";
    p.record.what = GV_PERTURBED_POISON;
    p.real = p.captured = UINT64_MAX;
    gv_rows_batch(&p.real, &p.captured);
    bool launched = gv_perturb_launch(&p, list_rows, check, result, &why);
    exec->poison_refused |= p.unfinished; // as in pad.c
    if (launched)
        exec->poison_owed = false;
    else
        gv_perturb_refused(&p, why, &exec->poison_owed, &exec->poison_refused);
    *sequence = p.record.launch;
    return launched;
}
