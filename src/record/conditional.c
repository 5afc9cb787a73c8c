#include "record/conditional.h"

#include "base/memory.h"
#include "record/condition.h"
#include "record/graph_copy.h"
#include "record/recorder.h"

#include <string.h>

// ---- Who sets what -------------------------------------------------------------------------------------------
// A condition is followed through the kernels that are given its handle. Where that cannot tell all, the graph is
// refused before anything of it has run.

enum { MOST_LEVELS = 32 };

// Where a node stands: from the launched graph down, the node that each level goes on in.
typedef struct place {
    struct {
        const gv_snapshot *snapshot;
        uint32_t node;
    } steps[MOST_LEVELS];
    unsigned depth;
} place;

// A kernel that is given a handle, or a conditional node.
typedef struct party {
    place at;
    size_t value; // index in the conditions
} party;

typedef struct parties {
    const gv_conditions *conditions;
    party *setters, *deciders;
    size_t setter_count, setter_capacity, decider_count, decider_capacity;
    bool *given;
    const char *problem;
} parties;

static void add_party(parties *all, party **list, size_t *count, size_t *capacity, const place *at, size_t value)
{
    if (GV_GROW(*list, *capacity, *count + 1))
        (*list)[(*count)++] = (party){*at, value};
    else
        all->problem = "memory ran out";
}

static void gather(parties *all, const gv_snapshot *snapshot, place *at)
{
    if (at->depth == MOST_LEVELS) {
        all->problem = "its graphs nest too deep";
        return;
    }
    unsigned level = at->depth++;
    for (uint32_t i = 0; i < snapshot->node_count && !all->problem; i++) {
        const gv_snapshot_node *node = &snapshot->nodes[i];
        CUDA_KERNEL_NODE_PARAMS params;
        memset(&params, 0, sizeof params);
        at->steps[level].snapshot = snapshot;
        at->steps[level].node = i;
        if (node->disabled)
            continue;
        if (node->type == CU_GRAPH_NODE_TYPE_KERNEL &&
            gv_cuda.cuGraphKernelNodeGetParams(node->node, &params) == CUDA_SUCCESS &&
            gv_conditions_given(all->conditions, params.func ? params.func : (CUfunction)params.kern, &params,
                                all->given)) {
            for (size_t v = 0; v < all->conditions->count; v++)
                if (all->given[v])
                    add_party(all, &all->setters, &all->setter_count, &all->setter_capacity, at, v);
        }
        for (size_t v = 0; node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && v < all->conditions->count; v++)
            if (all->conditions->nodes[v] == node)
                add_party(all, &all->deciders, &all->decider_count, &all->decider_capacity, at, v);
        for (size_t body = 0; body < node->body_count; body++)
            gather(all, node->bodies[body], at);
    }
    at->depth = level;
}

// Does a path of ordinary edges lead from one node to the other?
static bool leads(const gv_snapshot *snapshot, uint32_t from, uint32_t to)
{
    bool *reached = gv_calloc(snapshot->node_count, sizeof *reached);
    bool found = false;
    if (!reached)
        return false;
    reached[from] = true;
    for (bool changed = true; changed && !found;) {
        changed = false;
        for (size_t i = 0; i < snapshot->edge_count; i++) {
            const uint64_t *edge = snapshot->edges + 4 * i;
            if (!edge[2] && !edge[3] && reached[edge[0]] && !reached[edge[1]])
                changed = reached[edge[1]] = true;
        }
        found = reached[to];
    }
    gv_free(reached);
    return found;
}

enum relation { BEFORE, BEHIND, INSIDE, APART, UNORDERED };

// How `a` stands to `b`. *level: at which level their ways part.
static enum relation relate(const place *a, const place *b, unsigned *level)
{
    unsigned i = 0;
    while (i < a->depth && i < b->depth && a->steps[i].snapshot == b->steps[i].snapshot &&
           a->steps[i].node == b->steps[i].node)
        i++;
    *level = i;
    if (i == b->depth)
        return INSIDE; // or the same, which a setter and a decider never are
    if (i == a->depth || a->steps[i].snapshot != b->steps[i].snapshot)
        return APART; // two bodies of one node
    if (leads(a->steps[i].snapshot, a->steps[i].node, b->steps[i].node))
        return BEFORE;
    return leads(a->steps[i].snapshot, b->steps[i].node, a->steps[i].node) ? BEHIND : UNORDERED;
}

// Does a node that lies below `level` of its place run whenever that level's node does?
static bool always_runs(const place *at, unsigned level)
{
    for (unsigned i = level; i + 1 < at->depth; i++)
        if (at->steps[i].snapshot->nodes[at->steps[i].node].type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            return false;
    return true;
}

// The innermost loop that a place lies in: its level, or -1.
static int loop_around(const place *at)
{
    for (int i = (int)at->depth - 2; i >= 0; i--) {
        const gv_snapshot_node *node = &at->steps[i].snapshot->nodes[at->steps[i].node];
        if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && node->condition.type == CU_GRAPH_COND_TYPE_WHILE)
            return i;
    }
    return -1;
}

static uint32_t node_of(const party *p)
{
    return p->at.steps[p->at.depth - 1].node;
}

// The level of the innermost conditional node around a place, or -1.
static int conditional_around(const place *at)
{
    for (int i = (int)at->depth - 2; i >= 0; i--)
        if (at->steps[i].snapshot->nodes[at->steps[i].node].type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            return i;
    return -1;
}

static gv_status check_decider(const parties *all, const party *decider, gv_error *error)
{
    const gv_condition *condition = &all->conditions->nodes[decider->value]->condition;
    int around = conditional_around(&decider->at);
    bool before = false, before_in_body = false;
    for (size_t i = 0; i < all->setter_count; i++) {
        const party *setter = &all->setters[i];
        unsigned level;
        if (setter->value != decider->value)
            continue;
        bool certain = relate(&setter->at, &decider->at, &level) == BEFORE && always_runs(&setter->at, level);
        before |= certain;
        before_in_body |= certain && (int)level > around;
    }
    if (!condition->assigned && !before)
        return gv_fail(error, GV_ERR_MISSING,
                       "conditional node #%u has no default, and no kernel in front of it is given its handle: it may "
                       "decide by what an earlier launch has set",
                       node_of(decider));
    // When a replay cannot go on node by node, the node around this one is handed over whole, and the value of this
    // one's handle is lost behind it.
    place outer = decider->at;
    outer.depth = (unsigned)(around + 1);
    if (around >= 0 && loop_around(&outer) >= 0 && !before_in_body)
        return gv_fail(
            error, GV_ERR_MISSING,
            "conditional node #%u lies in another one that lies in a loop, and in there no kernel in front of "
            "it is given its handle: it may decide by what an earlier iteration has set",
            node_of(decider));
    return GV_OK;
}

// Setting that nothing orders with deciding, or with other setting, makes what runs depend on timing. This replay shows
// one way it can go.
static void note_doubts(const parties *all)
{
    for (size_t i = 0; i < all->setter_count; i++) {
        const party *setter = &all->setters[i];
        const gv_snapshot *in = setter->at.steps[setter->at.depth - 1].snapshot;
        unsigned level;
        for (size_t k = 0; k < all->decider_count; k++)
            if (all->deciders[k].value == setter->value &&
                relate(&setter->at, &all->deciders[k].at, &level) == UNORDERED)
                gv_note(
                    GV_NOTE_INCOMPLETE, in->id, 0,
                    "kernel node #%u of graph #%llu is given the handle of conditional node #%u, and nothing orders "
                    "the two: which body runs may depend on timing",
                    node_of(setter), (unsigned long long)in->id, node_of(&all->deciders[k]));
        for (size_t k = i + 1; k < all->setter_count; k++)
            if (all->setters[k].value == setter->value && relate(&setter->at, &all->setters[k].at, &level) == UNORDERED)
                gv_note(GV_NOTE_INCOMPLETE, in->id, 0,
                        "kernel nodes #%u and #%u of graph #%llu are given one conditional handle, and nothing orders "
                        "the two: if both set it, which body runs depends on timing",
                        node_of(setter), node_of(&all->setters[k]), (unsigned long long)in->id);
    }
}

static gv_status check_parties(const gv_snapshot *snapshot, gv_conditions *conditions, gv_error *error)
{
    parties all = {.conditions = conditions, .given = gv_calloc(conditions->count, sizeof *all.given)};
    place at = {.depth = 0};
    if (!all.given)
        all.problem = "memory ran out";
    else
        gather(&all, snapshot, &at);
    gv_status status = all.problem ? gv_fail(error, GV_ERR_LIMIT, "%s", all.problem) : GV_OK;
    for (size_t i = 0; i < all.decider_count && status == GV_OK; i++)
        status = check_decider(&all, &all.deciders[i], error);
    if (status == GV_OK && !conditions->noted) {
        conditions->noted = true;
        note_doubts(&all);
    }
    gv_free(all.given);
    gv_free(all.setters);
    gv_free(all.deciders);
    return status;
}

// ---- Making ready --------------------------------------------------------------------------------------------

static bool has_conditionals(const gv_snapshot *snapshot, bool *in_child)
{
    bool any = false;
    for (size_t i = 0; i < snapshot->node_count; i++) {
        const gv_snapshot_node *node = &snapshot->nodes[i];
        bool inside = false;
        for (size_t body = 0; body < node->body_count; body++)
            inside |= has_conditionals(node->bodies[body], in_child);
        *in_child |= inside && node->type == CU_GRAPH_NODE_TYPE_GRAPH;
        any |= inside || node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
    }
    return any;
}

gv_status gv_conditionals_open(gv_replay *run, gv_snapshot *snapshot, gv_error *error)
{
    bool in_child = false;
    gv_status status = GV_OK;
    if (!has_conditionals(snapshot, &in_child))
        return GV_OK;
    if (in_child)
        return gv_fail(error, GV_ERR_MISSING, "a child graph of it has conditional nodes");
    if (!run->source->add_setter)
        return gv_fail(error, GV_ERR_MISSING, "this gravel was built without the device code that sets conditions");
    if (run->source->open_graphs)
        status = run->source->open_graphs(error);
    if (status == GV_OK && !snapshot->conditions)
        status = gv_conditions_create(snapshot, run->source, run->context, run->stream, &snapshot->conditions, error);
    if (status == GV_OK)
        status = check_parties(snapshot, snapshot->conditions, error);
    if (status == GV_OK) {
        gv_conditions_begin(snapshot->conditions);
        run->conditions = snapshot->conditions;
    }
    return status;
}

// ---- Running -------------------------------------------------------------------------------------------------

// A graph whose conditional nodes the driver runs itself runs without patches: nothing of it is to be recorded.
static void suspend(gv_replay *run)
{
    if (run->source->suspend && !run->source_closed && !run->left_running)
        run->source->suspend();
}

static void resume(gv_replay *run, uint32_t index)
{
    gv_error error = {0};
    if (!run->source->resume || run->source_closed || run->left_running || run->source->resume(&error) == GV_OK)
        return;
    gv_replay_fail(run, index, "recording could not be resumed behind conditional node #%u: %s", index, error.text);
    run->source->close();
    run->source_closed = run->unrecorded = true;
}

static void begin_execution(gv_replay *run, const gv_snapshot *body)
{
    gv_execution_record record = {
        .launch = run->launch, .id = ++run->executions, .parent = run->execution, .graph = body->id};
    gv_write_execution(gv_state.writer, &record);
    run->execution = record.id;
}

// What is left of the node, as it is: a loop goes on, and the rest of the replay comes behind it.
static void launch_rest(gv_replay *run, const gv_snapshot *snapshot, uint32_t index)
{
    suspend(run);
    CUresult result = gv_conditional_launch(run, snapshot, index, run->stream);
    if (result == CUDA_SUCCESS && !run->left_running)
        result = gv_wait_for_stream(run->stream, gv_state.options.stall_seconds);
    if (result == CUDA_ERROR_NOT_READY)
        run->unrecorded = run->left_running = true; // the patches are off: what is still running has none
    else if (result != CUDA_SUCCESS)
        gv_replay_error(run, snapshot, index, result);
    else if (!run->left_running)
        gv_conditions_ran(run->conditions);
    resume(run, index);
}

void gv_conditional_run(gv_replay *run, const gv_snapshot *snapshot, uint32_t index,
                        void (*run_body)(gv_replay *run, const gv_snapshot *body))
{
    const gv_snapshot_node *node = &snapshot->nodes[index];
    bool loop = node->condition.type == CU_GRAPH_COND_TYPE_WHILE;
    uint64_t outer = run->execution;
    for (uint64_t iteration = 0;; iteration++) {
        if (iteration && (run->unrecorded || run->result != CUDA_SUCCESS)) {
            // The last body could not be recorded to its end; it has been enqueued, and the loop goes on behind it.
            CUresult result =
                run->result == CUDA_SUCCESS ? gv_conditional_launch(run, snapshot, index, run->stream) : CUDA_SUCCESS;
            if (result != CUDA_SUCCESS)
                gv_replay_error(run, snapshot, index, result);
            return;
        }
        size_t body = gv_conditions_choice(run->conditions, node);
        if (body >= node->body_count)
            return;
        if (loop && iteration >= gv_state.options.loop_iterations) {
            gv_replay_fail(run, index,
                           "the loop of conditional node #%u went on unrecorded after %llu iterations "
                           "(GRAVEL_LOOP_ITERATIONS)",
                           index, (unsigned long long)iteration);
            launch_rest(run, snapshot, index);
            return;
        }
        begin_execution(run, node->bodies[body]);
        run_body(run, node->bodies[body]);
        run->execution = outer;
        if (!loop)
            return;
    }
}

// ---- As a graph ----------------------------------------------------------------------------------------------

typedef struct building {
    CUcontext context;
    const gv_snapshot_node *node;
} building;

static void mark_inside(const gv_snapshot_node *node, bool *inside)
{
    inside[node->condition.handle - 1] = true;
    for (size_t body = 0; body < node->body_count; body++)
        for (size_t i = 0; i < node->bodies[body]->node_count; i++)
            if (node->bodies[body]->nodes[i].type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
                mark_inside(&node->bodies[body]->nodes[i], inside);
}

static CUresult add_nodes(const building *b, CUgraph to, const gv_snapshot *from);

static CUresult add_conditional(const building *b, CUgraph to, const gv_snapshot_node *node,
                                CUgraphConditionalHandle handle, const CUgraphNode *after, size_t count,
                                CUgraphNode *made)
{
    CUgraphNodeParams params;
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = node->condition.type;
    params.conditional.size = node->condition.size;
    params.conditional.ctx = b->context;
    CUresult result = gv_cuda.cuGraphAddNode(made, to, after, NULL, count, &params);
    for (size_t body = 0; body < node->body_count && result == CUDA_SUCCESS; body++)
        result = add_nodes(b, params.conditional.phGraph_out[body], node->bodies[body]);
    return result;
}

// A child graph is made anew: a node of it may be switched off.
static CUresult add_child(const building *b, CUgraph to, const gv_snapshot_node *node, const CUgraphNode *after,
                          size_t count, CUgraphNode *made)
{
    CUgraph child = NULL;
    CUresult result = gv_cuda.cuGraphCreate(&child, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = add_nodes(b, child, node->bodies[0]);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuGraphAddChildGraphNode(made, to, after, count, child);
    gv_cuda.cuGraphDestroy(child);
    return result;
}

// Adds all nodes of a snapshot, ordered by all its edges: programmatic overlap is left out, which no patched graph
// bears.
static CUresult add_nodes(const building *b, CUgraph to, const gv_snapshot *from)
{
    CUgraphNode *made = gv_calloc(from->node_count, sizeof(CUgraphNode));
    CUgraphNode *after = gv_calloc(from->node_count, sizeof(CUgraphNode));
    CUresult result = made && after ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < from->node_count && result == CUDA_SUCCESS; i++) {
        uint32_t index = from->order[i];
        const gv_snapshot_node *node = &from->nodes[index];
        size_t count = 0;
        for (size_t e = 0; e < from->edge_count; e++)
            if (from->edges[4 * e + 1] == index)
                after[count++] = made[from->edges[4 * e]];
        if (node->disabled)
            result = gv_cuda.cuGraphAddEmptyNode(&made[index], to, after, count);
        else if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            result = add_conditional(b, to, node, node->condition.handle, after, count, &made[index]);
        else if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            result = add_child(b, to, node, after, count, &made[index]);
        else
            result = gv_copy_node(to, node->node, node->type, NULL, b->context, after, count, &made[index]);
    }
    gv_free(made);
    gv_free(after);
    return result;
}

static CUresult build_conditional(CUgraph graph, CUgraphConditionalHandle extra, const CUgraphNode *after, size_t count,
                                  CUgraphNode *made, void *user)
{
    const building *b = user;
    return add_conditional(b, graph, b->node, extra ? extra : b->node->condition.handle, after, count, made);
}

CUresult gv_conditional_launch(gv_replay *run, const gv_snapshot *snapshot, uint32_t index, CUstream stream)
{
    const gv_snapshot_node *node = &snapshot->nodes[index];
    building b = {run->context, node};
    gv_error error = {0};
    bool *inside = gv_calloc(run->conditions->count, sizeof *inside);
    if (!inside)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mark_inside(node, inside);
    CUresult result = gv_conditions_enqueue(run->conditions, run->source, inside, node, build_conditional, &b, stream,
                                            stream == run->side, &error);
    if (error.text[0])
        gv_replay_fail(run, index, "conditional node #%u could not be launched as it is: %.200s", index, error.text);
    gv_free(inside);
    return result;
}
