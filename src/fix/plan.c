// Findings are gathered by graph, graphs by their fingerprint without shapes, and each such group is solved once.
#include "fix/plan.h"

#include "base/memory.h"
#include "fix/fingerprint.h"
#include "fix/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gv_status out_of_memory(gv_error *error)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory while a fix was planned");
}

static void free_group(gv_fix_group *group)
{
    for (size_t e = 0; e < group->edge_count; e++)
        gv_free(group->edges[e].conflicts);
    gv_free(group->edges);
    gv_free(group->members);
    gv_free(group->conflicts);
    gv_free(group->refusal);
}

void gv_fix_plan_free(gv_fix_plan *plan)
{
    for (size_t g = 0; g < plan->group_count; g++)
        free_group(&plan->groups[g]);
    gv_free(plan->groups);
    *plan = (gv_fix_plan){0};
}

static gv_status refuse(gv_fix_group *group, const char *why, gv_error *error)
{
    if (!group->refusal)
        group->refusal = gv_strdup(why);
    return group->refusal ? GV_OK : out_of_memory(error);
}

// ---- Groups -----------------------------------------------------------------------------------------------------

// The graph that a child graph or body belongs to, at any depth. The loader has made sure that these form trees.
static uint64_t top_of(const gv_trace *trace, uint64_t graph)
{
    for (size_t steps = 0; steps < trace->graph_count && graph < trace->graph_count; steps++) {
        if (!trace->graphs[graph].parent)
            break;
        graph = trace->graphs[graph].parent;
    }
    return graph;
}

// Every top graph of the traces with its fingerprints; those that have none are left out.
typedef struct catalogue {
    gv_fix_member *items;
    size_t count, capacity;
} catalogue;

static gv_status list_graphs(gv_trace *const *traces, size_t count, catalogue *all, gv_error *error)
{
    for (size_t t = 0; t < count; t++) {
        for (uint64_t id = 1; id < traces[t]->graph_count; id++) {
            if (traces[t]->graphs[id].id != id || traces[t]->graphs[id].parent)
                continue;
            gv_fix_member member = {.trace = traces[t], .graph = id};
            gv_error why;
            gv_status status = gv_fingerprint_trace_graph(traces[t], id, &member.prints, &why);
            if (status == GV_ERR_MEMORY || (!status && !GV_GROW(all->items, all->capacity, all->count + 1)))
                return out_of_memory(error);
            if (!status)
                all->items[all->count++] = member;
        }
    }
    return GV_OK;
}

static const gv_fix_member *find_graph(const catalogue *all, const gv_trace *trace, uint64_t graph)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i].trace == trace && all->items[i].graph == graph)
            return &all->items[i];
    return NULL;
}

// The group of a graph, made with all its members when it is new. The graph itself comes first.
static gv_fix_group *group_of(gv_fix_plan *plan, const catalogue *all, const gv_fix_member *graph)
{
    for (size_t g = 0; g < plan->group_count; g++)
        if (!plan->groups[g].refusal &&
            gv_fingerprint_equal(&plan->groups[g].members[0].prints.without_shapes, &graph->prints.without_shapes))
            return &plan->groups[g];
    if (!GV_GROW(plan->groups, plan->group_capacity, plan->group_count + 1))
        return NULL;
    gv_fix_group *group = &plan->groups[plan->group_count];
    *group = (gv_fix_group){.complete = true};
    for (size_t i = 0; i <= all->count; i++) {
        const gv_fix_member *member = i ? &all->items[i - 1] : graph;
        if (i &&
            (member == graph || !gv_fingerprint_equal(&member->prints.without_shapes, &graph->prints.without_shapes)))
            continue;
        if (!GV_GROW(group->members, group->member_capacity, group->member_count + 1)) {
            free_group(group);
            return NULL;
        }
        group->members[group->member_count++] = *member;
    }
    plan->group_count++;
    return group;
}

// Was this graph recorded with edges of a fix file in it, or in a graph inside?
static bool was_fixed(const gv_trace *trace, uint64_t graph)
{
    for (size_t i = 0; i < trace->fix_applied_count; i++)
        if (trace->fixes_applied[i].edges.count && top_of(trace, trace->fixes_applied[i].graph) == graph)
            return true;
    return false;
}

// A group of its own for a graph that has no fingerprint: what it is part of is not whole in the trace.
static gv_fix_group *nameless_group(gv_fix_plan *plan, const gv_finding *finding)
{
    for (size_t g = 0; g < plan->group_count; g++)
        if (plan->groups[g].refusal && plan->groups[g].members[0].trace == finding->trace &&
            plan->groups[g].members[0].graph == finding->graph)
            return &plan->groups[g];
    if (!GV_GROW(plan->groups, plan->group_capacity, plan->group_count + 1))
        return NULL;
    gv_fix_group *group = &plan->groups[plan->group_count];
    *group = (gv_fix_group){.member_count = 1, .members = gv_calloc(1, sizeof *group->members)};
    group->refusal = gv_strdup("the graph could not be recognised in another run: the graph that it is part of is not "
                               "whole in the trace");
    if (!group->members || !group->refusal) {
        free_group(group);
        return NULL;
    }
    group->members[0] = (gv_fix_member){.trace = (gv_trace *)finding->trace, .graph = finding->graph};
    plan->group_count++;
    return group;
}

static gv_status gather(const gv_findings *findings, const catalogue *all, gv_fix_plan *plan, gv_error *error)
{
    for (size_t i = 0; i < findings->count; i++) {
        const gv_finding *finding = &findings->items[i];
        if (!finding->pair_count || finding->suppressed)
            continue;
        const gv_fix_member *graph = find_graph(all, finding->trace, top_of(finding->trace, finding->graph));
        if (was_fixed(finding->trace, top_of(finding->trace, finding->graph)))
            return gv_fail(error, GV_ERR_USAGE,
                           "graph %" PRIu64
                           " of %s was recorded with edges of a fix file in it: record it without --fix, "
                           "so that one file gets all the edges",
                           finding->graph, finding->trace->path ? finding->trace->path : "the trace");
        gv_fix_group *group = graph ? group_of(plan, all, graph) : nameless_group(plan, finding);
        if (!group || !GV_GROW(group->conflicts, group->conflict_capacity, group->conflict_count + finding->pair_count))
            return out_of_memory(error);
        for (size_t k = 0; k < finding->pair_count; k++)
            group->conflicts[group->conflict_count++] =
                (gv_fix_conflict){.finding = finding, .pair = &finding->pairs[k]};
        plan->conflict_count += finding->pair_count;
    }
    return GV_OK;
}

static void note_incomplete(const gv_findings *findings, gv_fix_plan *plan)
{
    for (size_t i = 0; i < findings->count; i++) {
        const gv_finding *finding = &findings->items[i];
        if (finding->id != GV_FINDING_INCOMPLETE)
            continue;
        uint64_t top = finding->graph ? top_of(finding->trace, finding->graph) : 0;
        for (size_t g = 0; g < plan->group_count; g++)
            for (size_t m = 0; m < plan->groups[g].member_count; m++)
                if (plan->groups[g].members[m].trace == finding->trace &&
                    (!top || plan->groups[g].members[m].graph == top))
                    plan->groups[g].complete = false;
    }
}

// ---- What the launches of a group tell --------------------------------------------------------------------------

// The members' flat graphs have their nodes at the same places in the order of making, wherever the driver lists them.
typedef struct group_input {
    gv_flat_graph flat;   // of the first member
    uint32_t *at;         // of each place in the order of making its flat node
    uint64_t *times;      // by flat node
    uint64_t *alone;      // the same, of runs that nothing recorded: a sum,
    uint64_t *alone_runs; // of so many
    gv_grid_dependency *dependencies;
    bool *spoken; // by flat node: some launch has told of its wait
} group_input;

static void input_free(group_input *input)
{
    gv_flat_graph_free(&input->flat);
    gv_free(input->at);
    gv_free(input->times);
    gv_free(input->alone);
    gv_free(input->alone_runs);
    gv_free(input->dependencies);
    gv_free(input->spoken);
}

static gv_status input_open(const gv_fix_member *first, group_input *input, gv_error *error)
{
    *input = (group_input){0};
    gv_status status = gv_flatten(first->trace, first->graph, &input->flat, error);
    if (status)
        return status;
    size_t count = input->flat.node_count;
    input->at = gv_calloc(count, sizeof *input->at);
    input->times = gv_calloc(count, sizeof *input->times);
    input->alone = gv_calloc(count, sizeof *input->alone);
    input->alone_runs = gv_calloc(count, sizeof *input->alone_runs);
    input->dependencies = gv_calloc(count, sizeof *input->dependencies);
    input->spoken = gv_calloc(count, sizeof *input->spoken);
    if (!input->at || !input->times || !input->alone || !input->alone_runs || !input->dependencies || !input->spoken)
        return out_of_memory(error);
    for (uint32_t n = 0; n < count; n++)
        input->at[input->flat.made[n]] = n;
    return GV_OK;
}

// The flat node of a node of some snapshot of a member; UINT32_MAX: none.
static uint32_t flat_node(const gv_trace *trace, const gv_flat_graph *flat, uint64_t graph, uint64_t node)
{
    size_t count;
    const uint32_t *instances = gv_flat_instances_of(flat, graph, &count);
    if (!count || node >= trace->graphs[graph].node_count)
        return UINT32_MAX;
    return flat->instances[instances[0]].first + (uint32_t)node;
}

// Node times of one launch, added up over the executions of a body; of several records of a node the longest counts.
typedef struct launch_time {
    uint64_t sum, execution, longest;
} launch_time;

static void read_time(launch_time *time, const gv_access *row)
{
    if (row->execution != time->execution) {
        time->sum += time->longest;
        time->longest = 0;
        time->execution = row->execution;
    }
    time->longest = row->duration_ns > time->longest ? row->duration_ns : time->longest;
}

// Where launches differ, nothing is known of a wait.
static void read_wait(group_input *input, uint32_t node, const gv_access *row)
{
    if (row->wait == GV_GRID_WAIT_UNKNOWN)
        return;
    gv_grid_dependency now = {.wait = (uint8_t)row->wait,
                              .trigger = (uint8_t)row->trigger,
                              .early =
                                  row->early_reads.length || row->early_writes.length || row->early_atomics.length};
    gv_grid_dependency *known = &input->dependencies[node];
    if (!input->spoken[node]) {
        *known = now;
    } else {
        known->wait = known->wait == now.wait ? now.wait : GV_GRID_WAIT_UNKNOWN;
        known->trigger = known->trigger == now.trigger ? now.trigger : GV_GRID_TRIGGER_UNKNOWN;
        known->early |= now.early;
    }
    input->spoken[node] = true;
}

static gv_status read_member(group_input *input, const gv_fix_member *member, const gv_flat_graph *flat,
                             uint64_t *launches, gv_error *error)
{
    const gv_trace *trace = member->trace;
    launch_time *times = gv_calloc(flat->node_count, sizeof *times);
    if (!times)
        return out_of_memory(error);
    for (size_t a = 0; a < trace->armed_count; a++) {
        const gv_armed *armed = &trace->armed[a];
        if (armed->graph != member->graph || armed->status == GV_ARMED_REFUSED || !armed->access_count)
            continue;
        memset(times, 0, flat->node_count * sizeof *times);
        for (size_t r = 0; r < armed->access_count; r++) {
            const gv_access *row = &trace->accesses[armed->first_access + r];
            uint32_t node =
                row->graph < trace->graph_count ? flat_node(trace, flat, row->graph, row->node) : UINT32_MAX;
            if (node == UINT32_MAX)
                continue;
            read_time(&times[node], row);
            read_wait(input, input->at[flat->made[node]], row);
        }
        ++*launches;
        for (uint32_t n = 0; n < flat->node_count; n++)
            input->times[input->at[flat->made[n]]] += times[n].sum + times[n].longest;
    }
    gv_free(times);
    return GV_OK;
}

// Times of runs that nothing recorded (gravel run --times).
static void read_alone(group_input *input, const gv_fix_member *member, const gv_flat_graph *flat)
{
    const gv_trace *trace = member->trace;
    for (size_t i = 0; i < trace->node_time_count; i++) {
        const gv_node_time *row = &trace->node_times[i];
        uint32_t node = flat_node(trace, flat, row->graph, row->node);
        if (node == UINT32_MAX)
            continue;
        input->alone[input->at[flat->made[node]]] += row->duration_ns;
        input->alone_runs[input->at[flat->made[node]]]++;
    }
}

// Where all nodes have such times, they are used: recording a kernel makes it slower, and not each by as much. One that
// takes no time that could be measured counts with a nanosecond.
static bool prefer_alone(group_input *input)
{
    for (size_t n = 0; n < input->flat.node_count; n++)
        if (input->times[n] && !input->alone_runs[n])
            return false;
    bool any = false;
    for (size_t n = 0; n < input->flat.node_count; n++) {
        any |= input->alone_runs[n] != 0;
        uint64_t mean = input->alone_runs[n] ? input->alone[n] / input->alone_runs[n] : 0;
        input->times[n] = input->times[n] && !mean ? 1 : mean;
    }
    return any;
}

// ---- One group --------------------------------------------------------------------------------------------------

static gv_layout_pair pair_of(const gv_fix_conflict *conflict, const group_input *input, const gv_flat_graph *flat)
{
    const gv_trace *trace = conflict->finding->trace;
    const gv_side *first = &conflict->pair->first, *second = &conflict->pair->second;
    uint32_t a = flat_node(trace, flat, first->graph, first->node);
    uint32_t b = flat_node(trace, flat, second->graph, second->node);
    if (a == UINT32_MAX || b == UINT32_MAX)
        return (gv_layout_pair){.stuck = true};
    return (gv_layout_pair){.first = input->at[flat->made[a]],
                            .second = input->at[flat->made[b]],
                            .first_early = first->wait == GV_SIDE_BEFORE_WAIT,
                            .second_early = second->wait == GV_SIDE_BEFORE_WAIT};
}

// Reads all members: the conflicts as pairs of the first one's nodes, times and waits.
static gv_status read_members(gv_fix_group *group, group_input *input, gv_layout_pair *pairs, gv_error *error)
{
    uint64_t launches = 0;
    gv_status status = GV_OK;
    for (size_t m = 0; m < group->member_count && !status; m++) {
        const gv_fix_member *member = &group->members[m];
        gv_flat_graph flat;
        status = gv_flatten(member->trace, member->graph, &flat, error);
        if (status)
            return status;
        if (flat.node_count == input->flat.node_count) {
            status = read_member(input, member, &flat, &launches, error);
            read_alone(input, member, &flat);
            for (size_t i = 0; i < group->conflict_count; i++) {
                const gv_finding *finding = group->conflicts[i].finding;
                if (finding->trace == member->trace && top_of(finding->trace, finding->graph) == member->graph)
                    pairs[i] = pair_of(&group->conflicts[i], input, &flat);
            }
        }
        gv_flat_graph_free(&flat);
    }
    for (size_t n = 0; n < input->flat.node_count && launches; n++)
        input->times[n] /= launches;
    group->alone = prefer_alone(input);
    return status;
}

// Joins the nodes that `wanted` names into one line, in the intended order, level by level.
static uint64_t path_in_line(const gv_layout *l, const bool *wanted)
{
    gv_fix_link *links = gv_calloc(l->problem.spot_count, sizeof *links);
    uint32_t *last = gv_calloc(l->flat->instance_count, sizeof *last); // 1 + spot
    size_t count = 0;
    uint64_t path = UINT64_MAX;
    for (uint32_t i = 0; links && last && i < l->problem.spot_count; i++) {
        uint32_t level = l->spots[i].level;
        if (!wanted[i])
            continue;
        if (last[level])
            links[count++] = (gv_fix_link){last[level] - 1, i};
        last[level] = i + 1;
    }
    if (links && last)
        path = gv_fix_critical_path(&l->problem, links, count);
    gv_free(links);
    gv_free(last);
    return path;
}

// A stream of a level.
typedef struct level_stream {
    uint32_t level;
    uint64_t stream;
} level_stream;

// The cure that turns the overlap of the branches at fault off: the streams that conflicting nodes were captured on
// become one. Where they are not known, all nodes of the level do.
static gv_status price_side_streams(const gv_layout *l, gv_fix_cost *cost, gv_error *error)
{
    level_stream *streams = gv_calloc(l->problem.demand_count, 2 * sizeof *streams);
    bool *wanted = gv_calloc(l->problem.spot_count, sizeof *wanted);
    size_t count = 0;
    bool enough = streams && wanted;
    for (size_t i = 0; enough && i < l->problem.demand_count; i++) {
        const gv_fix_demand *demand = &l->demands[i];
        const uint32_t ends[] = {demand->direct.from, demand->direct.to};
        for (size_t k = 0; k < 2; k++) {
            level_stream one = {l->spots[ends[k]].level,
                                gv_flat_node_record(l->trace, l->flat, l->spot_node[ends[k]])->stream};
            bool known = false;
            for (size_t s = 0; s < count && !known; s++)
                known = streams[s].level == one.level && streams[s].stream == one.stream;
            if (!known)
                streams[count++] = one;
        }
    }
    for (uint32_t i = 0; enough && i < l->problem.spot_count; i++) {
        uint64_t stream = gv_flat_node_record(l->trace, l->flat, l->spot_node[i])->stream;
        for (size_t s = 0; s < count && !wanted[i]; s++)
            wanted[i] = streams[s].level == l->spots[i].level && (streams[s].stream == stream || !streams[s].stream);
    }
    cost->side_streams = enough ? path_in_line(l, wanted) : UINT64_MAX;
    gv_free(streams);
    gv_free(wanted);
    return cost->side_streams == UINT64_MAX ? out_of_memory(error) : GV_OK;
}

static gv_status price(const gv_layout *l, const gv_fix_solution *solution, gv_fix_cost *cost, gv_error *error)
{
    cost->before = gv_fix_critical_path(&l->problem, NULL, 0);
    cost->after = gv_fix_critical_path(&l->problem, solution->links, solution->count);
    cost->serial = 0;
    for (uint32_t v = 0; v < l->problem.vertex_count; v++)
        cost->serial += l->weights[v];
    cost->timed = l->timed;
    cost->nodes = l->running;
    if (cost->before == UINT64_MAX || cost->after == UINT64_MAX)
        return out_of_memory(error);
    return price_side_streams(l, cost, error);
}

static bool has_edge(const gv_graph *graph, uint32_t from, uint32_t to)
{
    for (size_t e = 0; e < graph->edge_count; e++)
        if (graph->edges[e].from == from && graph->edges[e].to == to)
            return true;
    return false;
}

// Fills one edge: where it lies, what it costs, which conflicts are its.
static gv_status fill_edge(const gv_layout *l, gv_fix_checker *checker, const gv_fix_solution *solution, size_t e,
                           const gv_layout_pair *pairs, gv_fix_planned *edge, gv_error *error)
{
    gv_fix_link link = solution->links[e];
    uint32_t from = l->spot_node[link.from], to = l->spot_node[link.to];
    const gv_flat_instance *instance = &l->flat->instances[l->spots[link.from].level];
    size_t demands = l->problem.demand_count;
    gv_fix_link *others = gv_calloc(solution->count, sizeof *others);
    bool *alone = gv_calloc(demands, sizeof *alone), *without = gv_calloc(demands, sizeof *without);
    edge->conflicts = gv_calloc(demands, sizeof *edge->conflicts);
    bool enough = others && alone && without && edge->conflicts;
    for (size_t i = 0, k = 0; enough && i < solution->count; i++)
        if (i != e)
            others[k++] = solution->links[i];
    enough = enough && gv_fix_checker_run(checker, &link, 1, alone) &&
             gv_fix_checker_run(checker, others, solution->count - 1, without);
    for (size_t i = 0; enough && i < demands; i++)
        if (alone[i] || !without[i])
            edge->conflicts[edge->conflict_count++] = l->demand_pair[i];
    edge->reversed = l->flat->made[from] > l->flat->made[to];
    for (size_t i = 0; i < edge->conflict_count; i++)
        edge->reversed |= pairs[edge->conflicts[i]].reversed;
    edge->graph = instance->graph;
    edge->from = from - instance->first;
    edge->to = to - instance->first;
    edge->replaces = has_edge(&l->trace->graphs[instance->graph], edge->from, edge->to);
    edge->after = enough ? gv_fix_critical_path(&l->problem, &link, 1) : UINT64_MAX;
    gv_free(others);
    gv_free(alone);
    gv_free(without);
    return edge->after == UINT64_MAX ? out_of_memory(error) : GV_OK;
}

static gv_status solve_layout(gv_fix_group *group, const gv_layout *l, const gv_layout_pair *pairs, uint64_t budget,
                              gv_error *error)
{
    for (size_t i = 0; i < group->conflict_count; i++) {
        group->conflicts[i].reversed = pairs[i].reversed;
        if (pairs[i].stuck)
            return refuse(group, "of two conflicting nodes one holds the other, or cannot be found in the graph",
                          error);
    }
    gv_fix_solution solution;
    gv_error why = {0};
    gv_status status = gv_fix_solve(&l->problem, budget, &solution, &why);
    if (status)
        return status == GV_ERR_MEMORY ? out_of_memory(error) : refuse(group, why.text, error);
    group->at_least = solution.at_least;
    group->edges = gv_calloc(solution.count, sizeof *group->edges);
    status = group->edges ? price(l, &solution, &group->cost, error) : out_of_memory(error);
    gv_fix_checker *checker = gv_fix_checker_open(&l->problem);
    if (!status && !checker)
        status = out_of_memory(error);
    for (size_t e = 0; e < solution.count && !status; e++) {
        group->edge_count++;
        status = fill_edge(l, checker, &solution, e, pairs, &group->edges[e], error);
        if (!status)
            gv_fix_find_cause(group, &group->edges[e]);
    }
    gv_fix_checker_free(checker);
    gv_fix_solution_free(&solution);
    return status;
}

static gv_status solve_group(gv_fix_group *group, uint64_t budget, gv_error *error)
{
    group_input input;
    gv_layout layout = {0};
    gv_error why = {0};
    gv_layout_pair *pairs = gv_calloc(group->conflict_count, sizeof *pairs);
    gv_status status = pairs ? input_open(&group->members[0], &input, &why) : out_of_memory(&why);
    if (!status)
        status = read_members(group, &input, pairs, &why);
    if (!status)
        status = gv_layout_build(group->members[0].trace, &input.flat, input.dependencies, input.times, pairs,
                                 group->conflict_count, &layout, &why);
    if (!status)
        status = solve_layout(group, &layout, pairs, budget, &why);
    gv_layout_free(&layout);
    if (pairs)
        input_free(&input);
    gv_free(pairs);
    if (status && status != GV_ERR_MEMORY)
        return refuse(group, why.text, error);
    return status ? out_of_memory(error) : GV_OK;
}

gv_status gv_fix_plan_make(gv_trace *const *traces, size_t trace_count, const gv_findings *findings, uint64_t budget,
                           gv_fix_plan *plan, gv_error *error)
{
    *plan = (gv_fix_plan){0};
    catalogue all = {0};
    gv_status status = GV_OK;
    // Most traces have no race: then no graph needs to be recognised.
    bool races = false;
    for (size_t i = 0; i < findings->count; i++)
        races |= findings->items[i].pair_count && !findings->items[i].suppressed;
    if (races)
        status = list_graphs(traces, trace_count, &all, error);
    if (!status)
        status = gather(findings, &all, plan, error);
    for (size_t g = 0; g < plan->group_count && !status; g++)
        status = plan->groups[g].refusal ? GV_OK : solve_group(&plan->groups[g], budget, error);
    gv_free(all.items);
    if (status)
        gv_fix_plan_free(plan);
    else
        note_incomplete(findings, plan);
    return status;
}
