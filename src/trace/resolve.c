// Second step of loading: every reference between the tables is checked. One that leads nowhere becomes 0 and is
// counted, so that what works on the trace can follow references without looking.
#include "trace/load.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

uint64_t gv_load_known(gv_loader *loader, const struct id_table *table, uint64_t id)
{
    if (id < table->count && table->defined[id])
        return id;
    if (id)
        loader->trace->undefined++;
    return 0;
}

// `place` is a uint64_t lvalue that holds an id of loader->table.
#define CHECK(table, place) ((place) = gv_load_known(loader, &loader->table, place))

// The string, or NULL.
static const char *string_of(gv_loader *loader, uint64_t id)
{
    id = gv_load_known(loader, &loader->strings, id);
    return id ? loader->trace->strings[id] : NULL;
}

// ---- Stacks ---------------------------------------------------------------------------------------------------

static int by_place(const void *a, const void *b)
{
    const gv_symbol_record *x = a, *y = b;
    if (x->module != y->module)
        return x->module < y->module ? -1 : 1;
    return x->address < y->address ? -1 : x->address > y->address;
}

static void apply_symbols(gv_loader *loader, gv_stack *stack)
{
    for (size_t i = 0; i < stack->host_count; i++) {
        gv_host_frame *frame = &stack->host[i];
        if (!CHECK(modules, frame->module) || loader->symbol_count == 0)
            continue;
        gv_symbol_record key = {.module = frame->module, .address = frame->address};
        const gv_symbol_record *symbol =
            bsearch(&key, loader->symbols, loader->symbol_count, sizeof *loader->symbols, by_place);
        if (!symbol)
            continue;
        // Checked when the symbols were: see resolve_stacks.
        frame->function = symbol->function ? loader->trace->strings[symbol->function] : NULL;
        frame->file = symbol->file ? loader->trace->strings[symbol->file] : NULL;
        frame->line = symbol->line;
    }
}

static void resolve_stacks(gv_loader *loader)
{
    for (size_t i = 0; i < loader->late_count; i++) {
        const char *text = string_of(loader, loader->late[i].id);
        if (text)
            *loader->late[i].place = text;
    }
    for (size_t i = 0; i < loader->symbol_count; i++) {
        CHECK(modules, loader->symbols[i].module);
        CHECK(strings, loader->symbols[i].function);
        CHECK(strings, loader->symbols[i].file);
    }
    if (loader->symbol_count)
        qsort(loader->symbols, loader->symbol_count, sizeof *loader->symbols, by_place);
    for (size_t i = 0; i < loader->stacks.count; i++)
        apply_symbols(loader, &loader->trace->stacks[i]);
}

// ---- Operations -----------------------------------------------------------------------------------------------

static int by_sequence(const void *a, const void *b)
{
    const gv_operation *x = a, *y = b;
    return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

// Threads write their operations in the order in which they got to the writer, which need not be that of the
// sequence numbers. A number that stands twice is kept once.
static void sort_operations(gv_trace *trace)
{
    gv_operation *rows = trace->operations;
    bool sorted = true;
    for (size_t i = 1; i < trace->operation_count && sorted; i++)
        sorted = rows[i - 1].sequence < rows[i].sequence;
    if (sorted)
        return;
    qsort(rows, trace->operation_count, sizeof *rows, by_sequence);
    size_t kept = 1;
    for (size_t i = 1; i < trace->operation_count; i++) {
        if (rows[i].sequence != rows[kept - 1].sequence)
            rows[kept++] = rows[i];
        else
            trace->undefined++;
    }
    trace->operation_count = kept;
}

static void resolve_object(gv_loader *loader, gv_operation *operation)
{
    switch (operation->kind) {
    case GV_OP_KERNEL: CHECK(functions, operation->object); break;
    case GV_OP_ALLOC:
    case GV_OP_FREE: CHECK(allocations, operation->object); break;
    case GV_OP_GRAPH_LAUNCH:
    case GV_OP_INSTANTIATE:
    case GV_OP_EXEC_UPDATE:
    case GV_OP_EXEC_SET_NODE:
    case GV_OP_EXEC_DESTROY: CHECK(execs, operation->object); break;
    case GV_OP_CONTEXT_SYNC: CHECK(contexts, operation->object); break;
    case GV_OP_CAPTURE_END: CHECK(graphs, operation->object); break;
    default: break; // events and tokens have no definitions
    }
}

static void resolve_operations(gv_loader *loader)
{
    gv_trace *trace = loader->trace;
    sort_operations(trace);
    for (size_t i = 0; i < trace->operation_count; i++) {
        gv_operation *operation = &trace->operations[i];
        CHECK(streams, operation->stream);
        CHECK(stacks, operation->stack);
        resolve_object(loader, operation);
        if (operation->kind == GV_OP_FREE && operation->object &&
            trace->allocations[operation->object].died == UINT64_MAX)
            trace->allocations[operation->object].died = operation->sequence;
    }
}

// ---- Graphs ---------------------------------------------------------------------------------------------------

// Takes out edges between nodes that are not there.
static void resolve_edges(gv_loader *loader, gv_graph *graph)
{
    size_t kept = 0;
    for (size_t i = 0; i < graph->edge_count; i++) {
        if (graph->edges[i].from < graph->node_count && graph->edges[i].to < graph->node_count)
            graph->edges[kept++] = graph->edges[i];
        else
            loader->trace->undefined++;
    }
    graph->edge_count = kept;
}

static void resolve_parent(gv_loader *loader, gv_graph *graph)
{
    if (CHECK(graphs, graph->parent) && graph->parent_node >= loader->trace->graphs[graph->parent].node_count) {
        loader->trace->undefined++;
        graph->parent = 0;
    }
    if (!graph->parent)
        graph->parent_node = 0;
}

// Cuts a graph loose whose parents go round in a circle or up too far: what walks up or down must come to an end.
static void limit_nesting(gv_loader *loader, gv_graph *graph)
{
    uint64_t above = graph->parent;
    for (int depth = 0; above && depth < GV_GRAPH_NESTING_LIMIT; depth++)
        above = loader->trace->graphs[above].parent;
    if (above) {
        loader->trace->undefined++;
        graph->parent = graph->parent_node = 0;
    }
}

// The bodies that a conditional node names. Each must name the node as its parent, and come once: see resolve_nodes.
static void resolve_bodies(gv_loader *loader, const gv_graph *graph, size_t index)
{
    gv_node *node = &graph->nodes[index];
    uint64_t *bodies = (uint64_t *)node->detail.items; // the loader's own copy
    uint64_t last = 0;
    for (size_t i = GV_CONDITIONAL_BODIES; node->kind == GV_NODE_CONDITIONAL && i < node->detail.count; i++) {
        const gv_graph *body = &loader->trace->graphs[CHECK(graphs, bodies[i])];
        if (!bodies[i])
            continue;
        if (body->origin != GV_GRAPH_BODY || body->parent != graph->id || body->parent_node != index ||
            bodies[i] <= last) {
            loader->trace->undefined++;
            bodies[i] = 0;
            continue;
        }
        last = bodies[i];
    }
}

static void resolve_nodes(gv_loader *loader, const gv_graph *graph)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        gv_node *node = &graph->nodes[i];
        CHECK(functions, node->function);
        CHECK(stacks, node->stack);
        CHECK(streams, node->stream);
        CHECK(contexts, node->context);
        // Only the node that a child names as its parent may name it: so the graphs form trees, and a small file
        // cannot make a walk over them explode.
        if (CHECK(graphs, node->child)) {
            const gv_graph *child = &loader->trace->graphs[node->child];
            if (child->parent != graph->id || child->parent_node != i) {
                loader->trace->undefined++;
                node->child = 0;
            }
        }
        resolve_bodies(loader, graph, i);
    }
}

static void resolve_graphs(gv_loader *loader)
{
    gv_trace *trace = loader->trace;
    for (size_t i = 0; i < trace->graph_count; i++) {
        gv_graph *graph = &trace->graphs[i];
        resolve_edges(loader, graph);
        graph->whole = loader->graphs.defined[i] && graph->node_count == loader->growth[i].announced_nodes &&
                       graph->edge_count == loader->growth[i].announced_edges;
        CHECK(stacks, graph->stack);
        resolve_parent(loader, graph);
    }
    for (size_t i = 0; i < trace->graph_count; i++)
        limit_nesting(loader, &trace->graphs[i]);
    for (size_t i = 0; i < trace->graph_count; i++)
        resolve_nodes(loader, &trace->graphs[i]);
}

// ---- The rest -------------------------------------------------------------------------------------------------

// An index + 1 into the nodes of a graph whose id has been checked.
static uint64_t known_node(gv_loader *loader, uint64_t graph, uint64_t node)
{
    if (node <= loader->trace->graphs[graph].node_count)
        return node;
    loader->trace->undefined++;
    return 0;
}

// An access of a node that is not there says nothing that could be used.
static void resolve_accesses(gv_loader *loader)
{
    gv_trace *trace = loader->trace;
    size_t kept = 0;
    for (size_t i = 0; i < trace->access_count; i++) {
        gv_access *access = &trace->accesses[i];
        bool defined = CHECK(graphs, access->graph) != 0;
        if (!defined || access->node >= trace->graphs[access->graph].node_count) {
            trace->undefined += defined;
            continue;
        }
        access->reason = string_of(loader, loader->access_reasons[i].precision);
        access->wait_reason = string_of(loader, loader->access_reasons[i].wait);
        trace->accesses[kept++] = *access;
    }
    trace->access_count = kept;
}

static void resolve_executions(gv_loader *loader)
{
    gv_trace *trace = loader->trace;
    size_t kept = 0;
    for (size_t i = 0; i < trace->execution_count; i++) {
        gv_execution *execution = &trace->executions[i];
        bool defined = CHECK(graphs, execution->graph) != 0;
        if (defined && trace->graphs[execution->graph].origin == GV_GRAPH_BODY && execution->parent < execution->id)
            trace->executions[kept++] = *execution;
        else
            trace->undefined += defined;
    }
    trace->execution_count = kept;
}

static bool in_graph(const gv_graph *graph, gv_numbers nodes)
{
    for (size_t i = 0; i < nodes.count; i++)
        if (nodes.items[i] >= graph->node_count)
            return false;
    return true;
}

static void resolve_fixes(gv_loader *loader)
{
    gv_trace *trace = loader->trace;
    size_t kept = 0;
    for (size_t i = 0; i < trace->fix_applied_count; i++) {
        gv_fix_applied *applied = &trace->fixes_applied[i];
        bool defined = CHECK(graphs, applied->graph) != 0;
        CHECK(fixes, applied->fix);
        if (defined && in_graph(&trace->graphs[applied->graph], applied->edges))
            trace->fixes_applied[kept++] = *applied;
        else
            trace->undefined += defined;
    }
    trace->fix_applied_count = kept;
    kept = 0;
    for (size_t i = 0; i < trace->node_time_count; i++) {
        gv_node_time *time = &trace->node_times[i];
        bool defined = CHECK(graphs, time->graph) != 0;
        if (defined && time->node < trace->graphs[time->graph].node_count)
            trace->node_times[kept++] = *time;
        else
            trace->undefined += defined;
    }
    trace->node_time_count = kept;
}

static void resolve_rows(gv_loader *loader)
{
    gv_trace *trace = loader->trace;
    for (size_t i = 0; i < trace->stream_count; i++)
        CHECK(contexts, trace->streams[i].context);
    for (size_t i = 0; i < trace->allocation_count; i++) {
        CHECK(contexts, trace->allocations[i].context);
        CHECK(stacks, trace->allocations[i].stack);
    }
    for (size_t i = 0; i < trace->exec_version_count; i++)
        CHECK(graphs, trace->exec_versions[i].graph);
    for (size_t i = 0; i < trace->armed_count; i++) {
        gv_armed *armed = &trace->armed[i];
        CHECK(execs, armed->exec);
        CHECK(graphs, armed->graph);
        armed->node = known_node(loader, armed->graph, armed->node);
    }
    for (size_t i = 0; i < trace->checked_count; i++) {
        CHECK(execs, trace->checked[i].exec);
        CHECK(graphs, trace->checked[i].graph);
    }
    for (size_t i = 0; i < trace->difference_count; i++) {
        gv_difference *difference = &trace->differences[i];
        CHECK(graphs, difference->graph);
        difference->node = known_node(loader, difference->graph, difference->node);
    }
    for (size_t i = 0; i < trace->perturbed_count; i++) {
        CHECK(execs, trace->perturbed[i].exec);
        CHECK(graphs, trace->perturbed[i].graph);
    }
    for (size_t i = 0; i < trace->effect_count; i++) {
        gv_effect *effect = &trace->effects[i];
        CHECK(graphs, effect->graph);
        effect->node = known_node(loader, effect->graph, effect->node);
    }
    for (size_t i = 0; i < trace->note_count; i++) {
        gv_note *note = &trace->notes[i];
        CHECK(graphs, note->graph);
        note->node = known_node(loader, note->graph, note->node);
    }
}

// A step of a region that was never defined says nothing.
static void resolve_regions(gv_loader *loader)
{
    gv_trace *trace = loader->trace;
    size_t kept = 0;
    for (size_t i = 1; i < trace->region_count; i++)
        CHECK(stacks, trace->regions[i].stack);
    for (size_t i = 0; i < trace->region_step_count; i++)
        if (CHECK(regions, trace->region_steps[i].region))
            trace->region_steps[kept++] = trace->region_steps[i];
    trace->region_step_count = kept;
    for (size_t i = 0; i < trace->kernel_access_count; i++) {
        CHECK(functions, trace->kernel_accesses[i].function);
        CHECK(stacks, trace->kernel_accesses[i].stack);
    }
}

gv_status gv_load_resolve(gv_loader *loader)
{
    resolve_stacks(loader);
    resolve_operations(loader);
    resolve_graphs(loader);
    resolve_rows(loader);
    resolve_accesses(loader);
    resolve_executions(loader);
    resolve_fixes(loader);
    resolve_regions(loader);
    return GV_OK;
}
