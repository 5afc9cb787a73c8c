// What becomes of a plan: a fix file, and traces with the edges in them.
#include "base/memory.h"
#include "detect/flatten.h"
#include "fix/fingerprint.h"
#include "fix/plan.h"

#include <inttypes.h>
#include <string.h>

static gv_status out_of_memory(gv_error *error)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory while a fix was put together");
}

// ---- The file ---------------------------------------------------------------------------------------------------

// The numbers of a graph's nodes are asked for node by node, and cost a sort.
typedef struct numbering {
    const gv_trace *trace;
    uint64_t graph;
    uint32_t *numbers;
} numbering;

typedef struct making {
    numbering *known;
    size_t count, capacity;
    gv_error *error;
} making;

static void making_free(making *m)
{
    for (size_t i = 0; i < m->count; i++)
        gv_free(m->known[i].numbers);
    gv_free(m->known);
}

// NULL when memory is out. The one asked for last is looked at first: most nodes of an edge are of one graph.
static const uint32_t *numbers_of(making *m, const gv_trace *trace, uint64_t graph)
{
    for (size_t i = m->count; i-- > 0;) {
        if (m->known[i].trace == trace && m->known[i].graph == graph) {
            numbering found = m->known[i];
            m->known[i] = m->known[m->count - 1];
            m->known[m->count - 1] = found;
            return found.numbers;
        }
    }
    uint32_t *numbers = gv_fingerprint_trace_numbers(trace, graph);
    if (!numbers || !GV_GROW(m->known, m->capacity, m->count + 1)) {
        gv_free(numbers);
        return NULL;
    }
    m->known[m->count++] = (numbering){trace, graph, numbers};
    return numbers;
}

static uint32_t body_number(const gv_trace *trace, uint64_t parent, uint64_t node, uint64_t graph)
{
    size_t count;
    const uint64_t *bodies = gv_node_bodies(&trace->graphs[parent].nodes[node], &count);
    for (uint32_t i = 0; i < count; i++)
        if (bodies[i] == graph)
            return i;
    return 0;
}

// The steps from the top graph down to `graph`. The caller frees *path.
static gv_status make_path(making *m, const gv_trace *trace, uint64_t graph, gv_fix_step **path, size_t *depth)
{
    size_t steps = 0;
    for (uint64_t at = graph; trace->graphs[at].parent; at = trace->graphs[at].parent)
        steps++;
    *path = NULL;
    *depth = 0;
    if (!steps)
        return GV_OK;
    *path = gv_calloc(steps, sizeof **path);
    if (!*path)
        return out_of_memory(m->error);
    for (uint64_t at = graph; steps; at = trace->graphs[at].parent) {
        uint64_t parent = trace->graphs[at].parent, node = trace->graphs[at].parent_node;
        const uint32_t *numbers = numbers_of(m, trace, parent);
        if (!numbers)
            return out_of_memory(m->error);
        (*path)[--steps] = (gv_fix_step){numbers[node], body_number(trace, parent, node, at)};
        ++*depth;
    }
    return GV_OK;
}

static gv_status make_node(making *m, const gv_trace *trace, uint64_t graph, uint64_t index, gv_fix_node *node)
{
    const uint32_t *numbers = numbers_of(m, trace, graph);
    if (!numbers)
        return out_of_memory(m->error);
    node->node = numbers[index];
    const gv_node *record = &trace->graphs[graph].nodes[index];
    if (record->kind != GV_NODE_KERNEL || record->function >= trace->function_count ||
        !trace->functions[record->function].name)
        return GV_OK;
    node->kernel = gv_strdup(trace->functions[record->function].name);
    return node->kernel ? GV_OK : out_of_memory(m->error);
}

static gv_status make_side(making *m, const gv_trace *trace, const gv_side *side, gv_fix_node *node)
{
    gv_status status = make_path(m, trace, side->graph, &node->path, &node->depth);
    return status ? status : make_node(m, trace, side->graph, side->node, node);
}

static gv_status make_pair(making *m, const gv_fix_conflict *conflict, gv_fix_pair *pair)
{
    const gv_trace *trace = conflict->finding->trace;
    pair->id = gv_strdup(gv_finding_id_name(conflict->pair->id));
    pair->bytes = conflict->pair->bytes;
    if (!pair->id)
        return out_of_memory(m->error);
    gv_status status = make_side(m, trace, &conflict->pair->first, &pair->first);
    return status ? status : make_side(m, trace, &conflict->pair->second, &pair->second);
}

static gv_status make_edge(making *m, const gv_fix_group *group, const gv_fix_planned *from, gv_fix_edge *edge)
{
    const gv_trace *trace = group->members[0].trace;
    gv_status status = make_path(m, trace, from->graph, &edge->path, &edge->depth);
    if (!status)
        status = make_node(m, trace, from->graph, from->from, &edge->from);
    if (!status)
        status = make_node(m, trace, from->graph, from->to, &edge->to);
    edge->replaces = from->replaces;
    edge->reversed = from->reversed;
    edge->added_ns = group->cost.timed ? from->after - group->cost.before : 0;
    edge->pairs = from->conflict_count;
    edge->orders = gv_calloc(GV_FIX_PAIRS_LISTED, sizeof *edge->orders);
    if (!status && !edge->orders)
        status = out_of_memory(m->error);
    for (size_t i = 0; i < from->conflict_count && i < GV_FIX_PAIRS_LISTED && !status; i++)
        status = make_pair(m, &group->conflicts[from->conflicts[i]], &edge->orders[edge->order_count++]);
    return status;
}

static gv_status make_graph(making *m, const gv_fix_group *group, const gv_fix_member *member, gv_fix_graph *graph)
{
    graph->prints = member->prints;
    graph->nodes = member->trace->graphs[member->graph].node_count;
    graph->complete = group->complete;
    graph->cost = group->cost;
    graph->name = gv_strdup(member->trace->graphs[member->graph].name ? member->trace->graphs[member->graph].name : "");
    graph->edges = gv_calloc(group->edge_count, sizeof *graph->edges);
    gv_status status = graph->name && graph->edges ? GV_OK : out_of_memory(m->error);
    for (size_t e = 0; e < group->edge_count && !status; e++) {
        graph->edge_count++;
        status = make_edge(m, group, &group->edges[e], &graph->edges[e]);
    }
    return status;
}

// A graph that was captured several times is one graph of the file.
static bool is_listed(const gv_fix_file *file, const gv_fix_member *member)
{
    for (size_t g = 0; g < file->graph_count; g++)
        if (gv_fingerprint_equal(&file->graphs[g].prints.exact, &member->prints.exact))
            return true;
    return false;
}

gv_status gv_fix_plan_file(const gv_fix_plan *plan, gv_fix_file *file, gv_error *error)
{
    making m = {.error = error};
    size_t capacity = 0;
    *file = (gv_fix_file){.made_by = gv_strdup(GRAVEL_VERSION)};
    gv_status status = file->made_by ? GV_OK : out_of_memory(error);
    for (size_t g = 0; g < plan->group_count && !status; g++) {
        const gv_fix_group *group = &plan->groups[g];
        for (size_t k = 0; k < group->member_count && !group->refusal && !status; k++) {
            if (is_listed(file, &group->members[k]))
                continue;
            if (!GV_GROW(file->graphs, capacity, file->graph_count + 1)) {
                status = out_of_memory(error);
                break;
            }
            file->graphs[file->graph_count] = (gv_fix_graph){0};
            status = make_graph(&m, group, &group->members[k], &file->graphs[file->graph_count++]);
        }
    }
    making_free(&m);
    if (status)
        gv_fix_file_free(file);
    return status;
}

// ---- Traces with the edges in them ------------------------------------------------------------------------------

// A graph whose edges were replaced.
typedef struct changed_graph {
    gv_graph *graph;
    gv_edge *edges; // the graph's own
    size_t edge_count;
} changed_graph;

struct gv_fix_trial {
    changed_graph *items;
    size_t count, capacity;
};

// The graph's edges with one more, or, where a programmatic one joins the two nodes, with that as an ordinary one.
static gv_status add_edge(gv_fix_trial *applied, gv_graph *graph, uint32_t from, uint32_t to, gv_error *error)
{
    gv_edge *edges = gv_calloc(graph->edge_count + 1, sizeof *edges);
    if (!edges || !GV_GROW(applied->items, applied->capacity, applied->count + 1)) {
        gv_free(edges);
        return out_of_memory(error);
    }
    applied->items[applied->count++] = (changed_graph){graph, graph->edges, graph->edge_count};
    size_t kept = 0;
    for (size_t e = 0; e < graph->edge_count; e++)
        if (graph->edges[e].from != from || graph->edges[e].to != to)
            edges[kept++] = graph->edges[e];
    edges[kept++] = (gv_edge){.from = from, .to = to};
    graph->edges = edges;
    graph->edge_count = kept;
    return GV_OK;
}

// The node of a member that stands where a node of the first member does.
static gv_flat_node counterpart(const gv_flat_graph *first, const gv_flat_graph *member, const uint32_t *at,
                                uint64_t graph, uint32_t node)
{
    size_t count;
    const uint32_t *instances = gv_flat_instances_of(first, graph, &count);
    uint32_t flat = first->instances[instances[0]].first + node;
    return member->nodes[at[first->made[flat]]];
}

static gv_status apply_to(gv_fix_trial *applied, const gv_fix_group *group, const gv_fix_member *member, size_t skip,
                          gv_error *error)
{
    gv_flat_graph first = {0}, flat = {0};
    gv_status status = gv_flatten(group->members[0].trace, group->members[0].graph, &first, error);
    if (!status)
        status = gv_flatten(member->trace, member->graph, &flat, error);
    uint32_t *at = gv_calloc(flat.node_count, sizeof *at);
    if (!status && !at)
        status = out_of_memory(error);
    for (uint32_t n = 0; !status && n < flat.node_count; n++)
        at[flat.made[n]] = n;
    for (size_t e = 0; e < group->edge_count && !status && first.node_count == flat.node_count; e++) {
        if (e == skip)
            continue;
        gv_flat_node from = counterpart(&first, &flat, at, group->edges[e].graph, group->edges[e].from);
        gv_flat_node to = counterpart(&first, &flat, at, group->edges[e].graph, group->edges[e].to);
        status =
            add_edge(applied, &member->trace->graphs[flat.instances[from.instance].graph], from.index, to.index, error);
    }
    gv_free(at);
    gv_flat_graph_free(&first);
    gv_flat_graph_free(&flat);
    return status;
}

gv_status gv_fix_apply(const gv_fix_plan *plan, size_t skip, gv_fix_trial **applied, gv_error *error)
{
    size_t number = 0;
    gv_status status = GV_OK;
    *applied = gv_calloc(1, sizeof **applied);
    if (!*applied)
        return out_of_memory(error);
    for (size_t g = 0; g < plan->group_count && !status; g++) {
        const gv_fix_group *group = &plan->groups[g];
        size_t left_out = skip >= number && skip - number < group->edge_count ? skip - number : SIZE_MAX;
        // From the last on: the first member's own layout is what the others are compared with.
        for (size_t m = group->edge_count ? group->member_count : 0; m-- > 0 && !status;)
            status = apply_to(*applied, group, &group->members[m], left_out, error);
        number += group->edge_count;
    }
    if (status) {
        gv_fix_undo(*applied);
        *applied = NULL;
    }
    return status;
}

void gv_fix_undo(gv_fix_trial *applied)
{
    if (!applied)
        return;
    // A graph may have been changed more than once: the last change first.
    while (applied->count) {
        changed_graph *last = &applied->items[--applied->count];
        gv_free(last->graph->edges);
        last->graph->edges = last->edges;
        last->graph->edge_count = last->edge_count;
    }
    gv_free(applied->items);
    gv_free(applied);
}
