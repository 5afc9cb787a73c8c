// Which graphs get which edges, and what is said of it. The edges themselves are in graph_edges.c.
#include "record/fix.h"

#include "base/memory.h"
#include "record/fix_entries.h"
#include "record/graph_edges.h"
#include "record/graph_pairing.h"
#include "record/recorder.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Read once, by the first thread that records; never changed while other threads see it.
static gv_fix_entries entries;
static bool is_open;

// The edges for one level of a graph.
typedef struct level_plan {
    gv_level *level;
    uint32_t *steps; // from the top: pairs (index, body)
    size_t step_count;
    uint32_t *pairs; // to be added: indices
    bool *around;    // those with an empty node between
    size_t pair_count, pair_capacity, around_capacity;
    uint64_t *there; // numbers of edges that the graph has already
    size_t there_count, there_capacity;
} level_plan;

struct gv_fixing {
    const gv_fix_entry *entry; // that fits, or is nearest; NULL: there is none
    enum gv_fix_status status;
    enum gv_fix_match match;
    char reason[400];
    gv_level *level;
    level_plan *plans;
    size_t plan_count, plan_capacity;
    gv_added_edges added;
    gv_fixed *base;     // of an instantiation: what its exec is to remember; NULL of an update
    bool update, keeps; // the exec keeps what it remembers
};

// One level of the graph that an exec was made of, with what was added to it.
typedef struct fixed_level {
    gv_structure structure;
    uint32_t *steps;
    size_t step_count;
    uint32_t *pairs;
    bool *around;
    size_t pair_count;
} fixed_level;

struct gv_fixed {
    const gv_fix_entry *entry;
    // Every level on the way to one with added edges, the top first: a level's steps lead through levels before it.
    fixed_level *levels;
    size_t count, capacity;
};

// ---- Opening -------------------------------------------------------------------------------------------------

void gv_fix_open(void)
{
    const char *path = getenv("GRAVEL_FIX");
    gv_error error = {0};
    if (!path || !*path)
        return;
    // A forked child that records anew has its parent's entries.
    if (!is_open && gv_fix_entries_read(path, &entries, &error) != GV_OK) {
        gv_note_once(GV_NOTE_FAILURE, "fix",
                     "the fix file, as gravel run prepared it, cannot be read: %s. No edge is added", error.text);
        return;
    }
    is_open = true;
    for (size_t i = 0; i < entries.count; i++)
        gv_write_fix(gv_state.writer, &entries.items[i].record);
}

// ---- Deciding ------------------------------------------------------------------------------------------------

static void refuse(gv_fixing *fixing, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void refuse(gv_fixing *fixing, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fixing->reason, sizeof fixing->reason, format, arguments);
    va_end(arguments);
    fixing->status = GV_FIX_REFUSED;
}

static void free_plans(gv_fixing *fixing)
{
    for (size_t i = 0; i < fixing->plan_count; i++) {
        gv_free(fixing->plans[i].steps);
        gv_free(fixing->plans[i].pairs);
        gv_free(fixing->plans[i].around);
        gv_free(fixing->plans[i].there);
    }
    gv_free(fixing->plans);
    fixing->plans = NULL;
    fixing->plan_count = fixing->plan_capacity = 0;
}

// The plan for the level that lies behind these steps; a new one if there is none yet. NULL when memory is out.
static level_plan *plan_for(gv_fixing *fixing, gv_level *level, const uint32_t *steps, size_t step_count)
{
    for (size_t i = 0; i < fixing->plan_count; i++)
        if (fixing->plans[i].level == level)
            return &fixing->plans[i];
    uint32_t *copy = gv_calloc(2 * step_count, sizeof *copy);
    if (!copy || !GV_GROW(fixing->plans, fixing->plan_capacity, fixing->plan_count + 1)) {
        gv_free(copy);
        return NULL;
    }
    if (step_count)
        memcpy(copy, steps, 2 * step_count * sizeof *copy);
    level_plan *made = &fixing->plans[fixing->plan_count++];
    *made = (level_plan){.level = level, .steps = copy, .step_count = step_count};
    return made;
}

enum joined { NOT_JOINED, JOINED, JOINED_EARLY };

// How the graph joins two nodes itself: JOINED_EARLY by a programmatic or launch-order edge.
static enum joined how_joined(const gv_snapshot *snapshot, uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < snapshot->edge_count; i++) {
        const uint64_t *edge = snapshot->edges + 4 * i;
        if (edge[0] == from && edge[1] == to)
            return edge[2] || edge[3] ? JOINED_EARLY : JOINED;
    }
    return NOT_JOINED;
}

// False when memory is out.
static bool plan_pair(level_plan *plan, uint32_t from, uint32_t to, bool around)
{
    for (size_t i = 0; i < plan->pair_count; i++)
        if (plan->pairs[2 * i] == from && plan->pairs[2 * i + 1] == to)
            return true;
    if (!GV_GROW(plan->pairs, plan->pair_capacity, 2 * (plan->pair_count + 1)) ||
        !GV_GROW(plan->around, plan->around_capacity, plan->pair_count + 1))
        return false;
    plan->pairs[2 * plan->pair_count] = from;
    plan->pairs[2 * plan->pair_count + 1] = to;
    plan->around[plan->pair_count++] = around;
    return true;
}

enum { MOST_STEPS = 64 }; // gv_fingerprint_graph refuses graphs that nest deeper

// Takes one edge of the entry into the plans. False: the entry is refused.
static bool plan_edge(gv_fixing *fixing, const gv_fix_entry_edge *edge)
{
    uint32_t steps[2 * MOST_STEPS];
    gv_level *level = fixing->level;
    if (edge->step_count > MOST_STEPS)
        return refuse(fixing, "edge %" PRIu64 " lies too deep", edge->number), false;
    for (size_t i = 0; i < edge->step_count; i++) {
        steps[2 * i] = gv_level_index(level, edge->steps[2 * i]);
        steps[2 * i + 1] = (uint32_t)edge->steps[2 * i + 1];
        level = gv_level_at(level, edge->steps + 2 * i, 1);
        if (!level)
            return refuse(fixing, "edge %" PRIu64 " lies in a graph inside of this one that is not there",
                          edge->number),
                   false;
    }
    uint32_t from = gv_level_index(level, edge->from), to = gv_level_index(level, edge->to);
    if (from == UINT32_MAX || to == UINT32_MAX || from == to)
        return refuse(fixing, "edge %" PRIu64 " joins nodes that are not there", edge->number), false;
    level_plan *plan = plan_for(fixing, level, steps, edge->step_count);
    enum joined joined = how_joined(level->snapshot, from, to);
    bool planned = plan != NULL;
    if (planned && joined == JOINED) {
        planned = GV_GROW(plan->there, plan->there_capacity, plan->there_count + 1);
        if (planned)
            plan->there[plan->there_count++] = edge->number;
    } else if (planned) {
        planned = plan_pair(plan, from, to, joined == JOINED_EARLY);
    }
    if (!planned)
        refuse(fixing, "memory ran out");
    return planned;
}

static bool any_around(const gv_fixing *fixing)
{
    for (size_t i = 0; i < fixing->plan_count; i++)
        for (size_t j = 0; j < fixing->plans[i].pair_count; j++)
            if (fixing->plans[i].around[j])
                return true;
    return false;
}

// Makes the plans for an entry that fits. Where one of its edges cannot be added, none is: a part of a fix is none.
static void make_plans(gv_fixing *fixing, const gv_fix_entry *entry, unsigned long long flags)
{
    char what[300];
    if (gv_fix_entry_differs(entry, fixing->level, what, sizeof what)) {
        refuse(fixing, "%s", what);
        return;
    }
    if (gv_level_has_memory_nodes(fixing->level)) {
        refuse(fixing,
               "it allocates or frees memory in its nodes, and from such a graph CUDA lets no edge be taken away "
               "again: the program's own graph would be changed");
        return;
    }
    for (size_t i = 0; i < entry->edge_count; i++)
        if (!plan_edge(fixing, &entry->edges[i]))
            return;
    for (size_t i = 0; i < fixing->plan_count; i++) {
        const level_plan *plan = &fixing->plans[i];
        const gv_snapshot *snapshot = plan->level->snapshot;
        if (gv_edges_cyclic(snapshot->node_count, snapshot->edges, snapshot->edge_count, plan->pairs,
                            plan->pair_count)) {
            refuse(fixing, "its edges and those of the graph would make a cycle");
            return;
        }
    }
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH && any_around(fixing)) {
        refuse(fixing, "an edge would need an empty node, which a graph that is launched from the device may not have");
        return;
    }
    fixing->status = GV_FIX_APPLIED;
}

// ---- What an exec remembers ----------------------------------------------------------------------------------

void gv_fixed_free(gv_fixed *fixed)
{
    if (!fixed)
        return;
    for (size_t i = 0; i < fixed->count; i++) {
        gv_structure_free(&fixed->levels[i].structure);
        gv_free(fixed->levels[i].steps);
        gv_free(fixed->levels[i].pairs);
        gv_free(fixed->levels[i].around);
    }
    gv_free(fixed->levels);
    gv_free(fixed);
}

static fixed_level *fixed_at(const gv_fixed *fixed, const uint32_t *steps, size_t step_count)
{
    for (size_t i = 0; i < fixed->count; i++) {
        fixed_level *level = &fixed->levels[i];
        if (level->step_count == step_count &&
            (!step_count || memcmp(level->steps, steps, 2 * step_count * sizeof *steps) == 0))
            return level;
    }
    return NULL;
}

static bool remember_level(gv_fixed *fixed, gv_level *level, const uint32_t *steps, size_t step_count)
{
    if (fixed_at(fixed, steps, step_count))
        return true;
    if (!GV_GROW(fixed->levels, fixed->capacity, fixed->count + 1))
        return false;
    fixed_level *made = &fixed->levels[fixed->count];
    *made = (fixed_level){.step_count = step_count, .steps = gv_calloc(2 * step_count, sizeof *made->steps)};
    if (!made->steps || !gv_structure_read(level, &made->structure)) {
        gv_free(made->steps);
        return false;
    }
    if (step_count)
        memcpy(made->steps, steps, 2 * step_count * sizeof *steps);
    fixed->count++;
    return true;
}

// Before any edge is added. NULL when the driver does not tell the structure, or memory is out.
static gv_fixed *remember(const gv_fixing *fixing)
{
    gv_fixed *fixed = gv_calloc(1, sizeof *fixed);
    bool whole = fixed != NULL;
    for (size_t i = 0; i < fixing->plan_count && whole; i++) {
        const level_plan *plan = &fixing->plans[i];
        gv_level *level = fixing->level;
        whole = remember_level(fixed, level, NULL, 0);
        for (size_t step = 0; step < plan->step_count && whole; step++) {
            level = &level->bodies[plan->steps[2 * step]][plan->steps[2 * step + 1]];
            whole = remember_level(fixed, level, plan->steps, step + 1);
        }
        fixed_level *made = whole ? fixed_at(fixed, plan->steps, plan->step_count) : NULL;
        if (!made)
            break;
        made->pairs = gv_calloc(2 * plan->pair_count, sizeof *made->pairs);
        made->around = gv_calloc(plan->pair_count, sizeof *made->around);
        whole = made->pairs && made->around;
        if (whole && plan->pair_count) {
            memcpy(made->pairs, plan->pairs, 2 * plan->pair_count * sizeof *made->pairs);
            memcpy(made->around, plan->around, plan->pair_count * sizeof *made->around);
            made->pair_count = plan->pair_count;
        }
    }
    if (!whole) {
        gv_fixed_free(fixed);
        return NULL;
    }
    fixed->entry = fixing->entry;
    return fixed;
}

// ---- Applying ------------------------------------------------------------------------------------------------

static void take_away(gv_fixing *fixing)
{
    CUresult result;
    size_t kept = gv_edges_take_away(&fixing->added, &result);
    if (kept)
        gv_note(
            GV_NOTE_FAILURE, 0, 0,
            "%zu added edge%s could not be taken away from the program's graph again (%s): what the program makes of "
            "it later has them too",
            kept, kept == 1 ? "" : "s", gv_driver_error(result));
}

// Adds what the plans say, all or nothing.
static void apply(gv_fixing *fixing)
{
    for (size_t i = 0; i < fixing->plan_count && fixing->status == GV_FIX_APPLIED; i++) {
        const level_plan *plan = &fixing->plans[i];
        const gv_snapshot *snapshot = plan->level->snapshot;
        for (size_t j = 0; j < plan->pair_count; j++) {
            uint32_t from = plan->pairs[2 * j], to = plan->pairs[2 * j + 1];
            CUresult result = gv_edge_add(&fixing->added, snapshot->graph, snapshot->nodes[from].node,
                                          snapshot->nodes[to].node, plan->around[j]);
            if (result == CUDA_SUCCESS)
                continue;
            take_away(fixing);
            refuse(fixing, "the driver did not add the edge from node #%u to node #%u: %s", from, to,
                   gv_driver_error(result));
            fixing->status = GV_FIX_FAILED;
            return;
        }
    }
}

static bool has_pairs(const gv_fixing *fixing)
{
    for (size_t i = 0; i < fixing->plan_count; i++)
        if (fixing->plans[i].pair_count)
            return true;
    return false;
}

// Reads the graph. NULL when memory is out: the program's call goes on without us.
static gv_fixing *read_graph(CUgraph graph)
{
    char why[300];
    gv_fixing *fixing = gv_calloc(1, sizeof *fixing);
    if (!fixing)
        return NULL;
    fixing->level = gv_level_read(graph, why, sizeof why);
    if (!fixing->level)
        refuse(fixing, "%s", why);
    return fixing;
}

// Reads the graph and looks for an entry.
static gv_fixing *look_up(CUgraph graph)
{
    gv_fingerprints prints;
    gv_error error = {0};
    gv_fixing *fixing = read_graph(graph);
    if (!fixing || !fixing->level)
        return fixing;
    if (gv_fingerprint_graph(&fixing->level->print, &prints, &error) != GV_OK) {
        refuse(fixing, "%.300s", error.text);
        return fixing;
    }
    const gv_fix_entry *nearest;
    fixing->entry = gv_fix_entries_find(&entries, fixing->level, &prints, &fixing->match, &nearest, fixing->reason,
                                        sizeof fixing->reason);
    fixing->status = fixing->entry                        ? GV_FIX_APPLIED
                     : fixing->match == GV_FIX_MATCH_NONE ? GV_FIX_NOT_NAMED
                                                          : GV_FIX_REFUSED;
    if (!fixing->entry)
        fixing->entry = nearest;
    return fixing;
}

gv_fixing *gv_fix_instantiate(CUgraph graph, unsigned long long flags)
{
    gv_fixing *fixing = is_open ? look_up(graph) : NULL;
    if (!fixing || fixing->status != GV_FIX_APPLIED)
        return fixing;
    make_plans(fixing, fixing->entry, flags);
    if (fixing->status == GV_FIX_APPLIED && has_pairs(fixing)) {
        fixing->base = remember(fixing);
        if (fixing->base)
            apply(fixing);
        else
            refuse(fixing, "the driver does not tell its structure, without which later updates would fail");
    }
    return fixing;
}

// ---- Updates -------------------------------------------------------------------------------------------------

// Does the level lie in the graph that these steps lead to, or is it that graph?
static bool lies_in(const fixed_level *level, const uint32_t *steps, size_t step_count)
{
    return level->step_count >= step_count &&
           (!step_count || memcmp(level->steps, steps, 2 * step_count * sizeof *steps) == 0);
}

// Carries what was added to the levels at and behind `root` over to the new graph that takes the place of `root`.
static bool carry_over(gv_fixing *fixing, const gv_fixed *fixed, const uint32_t *root, size_t root_count)
{
    // By the levels of `fixed`: which nodes of the new graph stand for those of the level.
    uint32_t **pairs = gv_calloc(fixed->count, sizeof(uint32_t *));
    uint32_t *steps = gv_calloc(2 * MOST_STEPS, sizeof *steps);
    bool carried = pairs && steps;
    for (size_t i = 0; i < fixed->count && carried; i++) {
        const fixed_level *from = &fixed->levels[i];
        gv_level *level = fixing->level;
        gv_structure structure;
        size_t depth = 0;
        if (!lies_in(from, root, root_count))
            continue;
        // The steps lead through levels that were paired before this one.
        for (size_t step = root_count; step < from->step_count && level; step++, depth++) {
            size_t above = (size_t)(fixed_at(fixed, from->steps, step) - fixed->levels);
            uint32_t index = pairs[above][from->steps[2 * step]], body = from->steps[2 * step + 1];
            steps[2 * depth] = index;
            steps[2 * depth + 1] = body;
            level = body < level->snapshot->nodes[index].body_count ? &level->bodies[index][body] : NULL;
        }
        pairs[i] = gv_calloc(from->structure.count, sizeof *pairs[i]);
        carried = level && pairs[i] && gv_structure_read(level, &structure);
        if (!carried)
            break;
        carried = gv_structure_pair(&from->structure, &structure, pairs[i]);
        gv_structure_free(&structure);
        level_plan *plan = carried && from->pair_count ? plan_for(fixing, level, steps, depth) : NULL;
        for (size_t j = 0; plan && j < from->pair_count && carried; j++)
            carried = plan_pair(plan, pairs[i][from->pairs[2 * j]], pairs[i][from->pairs[2 * j + 1]], from->around[j]);
        carried = carried && (plan || !from->pair_count);
    }
    for (size_t i = 0; pairs && i < fixed->count; i++)
        gv_free(pairs[i]);
    gv_free(pairs);
    gv_free(steps);
    return carried;
}

// Gives the new graph the edges that the executable graph has at `root` and behind it.
static void carry(gv_fixing *fixing, const gv_fixed *fixed, const uint32_t *root, size_t root_count)
{
    fixing->entry = fixed->entry;
    fixing->match = GV_FIX_MATCH_EXEC;
    fixing->status = GV_FIX_APPLIED;
    fixing->reason[0] = '\0';
    fixing->keeps = carry_over(fixing, fixed, root, root_count);
    if (fixing->keeps) {
        apply(fixing);
    } else {
        free_plans(fixing);
        refuse(fixing, "its structure is not that of the graph which the executable graph was made of");
    }
}

gv_fixing *gv_fix_update(CUgraphExec handle, CUgraph graph)
{
    gv_exec *exec = is_open ? gv_exec_find(handle) : NULL;
    if (!exec)
        return NULL;
    const gv_fixed *fixed = exec->fixed;
    // An exec without added edges cannot get any. That is worth a look at its first update, and not at each.
    if (!fixed && exec->fix_asked)
        return NULL;
    exec->fix_asked = true;
    gv_fixing *fixing = fixed ? read_graph(graph) : look_up(graph);
    if (!fixing)
        return NULL;
    fixing->update = true;
    if (!fixed) {
        if (fixing->status == GV_FIX_APPLIED)
            refuse(fixing,
                   "the executable graph that it updates was made without the edges, and an update cannot add any");
        return fixing;
    }
    if (fixing->level)
        carry(fixing, fixed, NULL, 0);
    return fixing;
}

gv_fixing *gv_fix_child(CUgraphExec handle, CUgraphNode node, CUgraph child)
{
    gv_exec *exec = is_open ? gv_exec_find(handle) : NULL;
    uint32_t root[2] = {exec && exec->fixed ? gv_exec_index_of(exec, node) : UINT32_MAX, 0};
    bool inside = false;
    if (root[0] == UINT32_MAX)
        return NULL;
    for (size_t i = 0; i < exec->fixed->count && !inside; i++)
        inside = lies_in(&exec->fixed->levels[i], root, 1);
    gv_fixing *fixing = inside ? read_graph(child) : NULL;
    if (!fixing)
        return NULL;
    fixing->update = true;
    if (fixing->level)
        carry(fixing, exec->fixed, root, 1);
    return fixing;
}

// ---- Behind the call -----------------------------------------------------------------------------------------

bool gv_fix_retry(gv_fixing *fixing, CUresult result)
{
    if (!fixing || fixing->update || !fixing->added.count)
        return false;
    take_away(fixing);
    refuse(fixing, "the driver did not take the graph with the added edges: %s", gv_driver_error(result));
    fixing->status = GV_FIX_FAILED;
    return true;
}

void gv_fix_end(gv_fixing *fixing, CUgraphNode *node)
{
    if (!fixing)
        return;
    for (size_t i = 0; node && *node && i < fixing->added.count; i++)
        if (fixing->added.items[i].via == *node)
            *node = NULL;
    take_away(fixing);
    free_plans(fixing);
    gv_level_free(fixing->level);
    gv_fixed_free(fixing->base);
    gv_free(fixing);
}

bool gv_fix_tells(const gv_fixing *fixing)
{
    return fixing && !fixing->keeps && fixing->entry;
}

gv_fixed *gv_fix_keep(gv_fixing *fixing, gv_fixed *before)
{
    if (!fixing || fixing->keeps)
        return before;
    gv_fixed_free(before);
    gv_fixed *kept = fixing->status == GV_FIX_APPLIED ? fixing->base : NULL;
    if (kept)
        fixing->base = NULL;
    return kept;
}

// ---- Telling -------------------------------------------------------------------------------------------------

// Each decision is said once: the same bucket may be made thousands of times.
static bool is_news(const gv_fixing *fixing)
{
    enum { MOST = 4096 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t said[MOST];
    static size_t count;
    uint64_t key = fixing->entry ? fixing->entry->record.id : 0;
    key = key * 31 + (uint64_t)fixing->status;
    for (const char *c = fixing->reason; *c; c++)
        key = (key ^ (unsigned char)*c) * 0x100000001b3ull;
    bool news = true;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count && news; i++)
        news = said[i] != key;
    news = news && count < MOST;
    if (news)
        said[count++] = key;
    pthread_mutex_unlock(&lock);
    return news;
}

static void tell(const gv_fixing *fixing, const gv_snapshot *snapshot, size_t added, size_t there)
{
    const gv_fix_entry *entry = fixing->entry;
    unsigned long long graph = snapshot->id, number = entry ? entry->record.id : 0;
    if (!is_news(fixing))
        return;
    switch (fixing->status) {
    case GV_FIX_APPLIED:
        if (added || !there)
            gv_say("fix: graph #%llu runs with %zu added edge%s (graph %llu of the fix file%s)", graph, added,
                   added == 1 ? "" : "s", number,
                   fixing->match == GV_FIX_MATCH_WITHOUT_SHAPES ? ", in another size" : "");
        else
            gv_say("fix: graph #%llu has the edges of graph %llu of the fix file already", graph, number);
        break;
    case GV_FIX_REFUSED:
    case GV_FIX_FAILED:
        gv_say("fix: graph #%llu runs without the edges of graph %llu of the fix file: %s", graph, number,
               fixing->reason);
        break;
    case GV_FIX_NOT_NAMED:
        // A program has many graphs that need no fix; only one that looks like a graph of the file is worth a line.
        if (entry)
            gv_say("fix: graph #%llu is not in the fix file: %s", graph, fixing->reason);
        else
            gv_verbose("fix: graph #%llu is not in the fix file: %s", graph, fixing->reason);
        break;
    }
}

// The edges of the snapshot that stand for a pair, as indices: one, or two by way of the empty node.
static size_t written_edges(const gv_snapshot *snapshot, size_t before, uint32_t from, uint32_t to, bool around,
                            uint64_t *pairs)
{
    if (!around) {
        pairs[0] = from;
        pairs[1] = to;
        return 2;
    }
    for (size_t i = 0; i < snapshot->edge_count; i++) {
        const uint64_t *edge = snapshot->edges + 4 * i;
        if (edge[0] != from || edge[1] < before)
            continue;
        for (size_t j = 0; j < snapshot->edge_count; j++) {
            const uint64_t *next = snapshot->edges + 4 * j;
            if (next[0] == edge[1] && next[1] == to) {
                pairs[0] = from;
                pairs[1] = pairs[2] = edge[1];
                pairs[3] = to;
                return 4;
            }
        }
    }
    return 0;
}

// Writes the record of one level; returns how many edges were added there.
static void write_plan(const gv_fixing *fixing, const gv_snapshot *snapshot, const level_plan *plan)
{
    for (size_t i = 0; i < plan->step_count; i++) {
        uint32_t index = plan->steps[2 * i], body = plan->steps[2 * i + 1];
        if (index >= snapshot->node_count || body >= snapshot->nodes[index].body_count)
            return;
        snapshot = snapshot->nodes[index].bodies[body];
    }
    uint64_t *pairs = gv_calloc(4 * plan->pair_count, sizeof *pairs);
    size_t count = 0;
    for (size_t i = 0; pairs && i < plan->pair_count; i++)
        count += written_edges(snapshot, plan->level->snapshot->node_count, plan->pairs[2 * i], plan->pairs[2 * i + 1],
                               plan->around[i], pairs + count);
    gv_fix_applied_record record = {
        .graph = snapshot->id,
        .fix = fixing->entry->record.id,
        .status = GV_FIX_APPLIED,
        .match = fixing->match,
        .edges = {pairs, count},
        .there = {plan->there, plan->there_count},
    };
    gv_write_fix_applied(gv_state.writer, &record);
    gv_free(pairs);
}

void gv_fix_write(const gv_fixing *fixing, const gv_snapshot *snapshot)
{
    size_t added = 0, there = 0;
    if (!fixing)
        return;
    if (fixing->status == GV_FIX_APPLIED) {
        for (size_t i = 0; i < fixing->plan_count; i++) {
            write_plan(fixing, snapshot, &fixing->plans[i]);
            added += fixing->plans[i].pair_count;
            there += fixing->plans[i].there_count;
        }
    }
    if (fixing->status != GV_FIX_APPLIED || !fixing->plan_count) {
        gv_fix_applied_record record = {
            .graph = snapshot->id,
            .fix = fixing->entry ? fixing->entry->record.id : 0,
            .status = fixing->status,
            .match = fixing->match,
            .reason = {fixing->reason, strlen(fixing->reason)},
        };
        gv_write_fix_applied(gv_state.writer, &record);
    }
    tell(fixing, snapshot, added, there);
}
