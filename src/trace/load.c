// First step of loading: records into tables. Nothing here trusts an id or a count: rows come with definitions, nodes
// and edges with their records.
#include "trace/load.h"

#include "base/memory.h"

#include <limits.h>
#include <string.h>

// Ids count up from 1, but a recorder may give some out and never write them. A table may therefore be this much
// larger than what was defined in it, and not more, whatever id a record names.
enum { ID_SLACK = 4096 };

gv_status gv_load_out_of_memory(gv_loader *loader)
{
    return gv_fail(loader->error, GV_ERR_MEMORY,
                   "no memory to load the trace; it needs more than this process may have");
}

// Ends the reading at the current record.
static gv_status malformed(gv_loader *loader, const char *why)
{
    gv_reader_reject(loader->reader, why);
    return GV_OK;
}

// ---- Values ---------------------------------------------------------------------------------------------------

static gv_status copy_text(gv_loader *loader, gv_text text, const char **copy)
{
    *copy = gv_arena_string(loader->arena, text.data, text.length);
    return *copy ? GV_OK : gv_load_out_of_memory(loader);
}

static gv_status copy_bytes(gv_loader *loader, gv_bytes bytes, gv_bytes *copy)
{
    *copy = (gv_bytes){0};
    if (bytes.length == 0)
        return GV_OK;
    *copy = (gv_bytes){gv_arena_copy(loader->arena, bytes.data, bytes.length), bytes.length};
    return copy->data ? GV_OK : gv_load_out_of_memory(loader);
}

static gv_status copy_numbers(gv_loader *loader, gv_numbers numbers, gv_numbers *copy)
{
    *copy = (gv_numbers){0};
    if (numbers.count == 0)
        return GV_OK;
    uint64_t *items = gv_arena_array(loader->arena, numbers.count, sizeof *items);
    if (!items)
        return gv_load_out_of_memory(loader);
    memcpy(items, numbers.items, numbers.count * sizeof *items);
    *copy = (gv_numbers){items, numbers.count};
    return GV_OK;
}

// An enumerator as the file has it, or `otherwise` where it is above `last`: a later minor version may have more of
// them, and consumers may index by what they get.
static unsigned enumerator(uint64_t value, unsigned last, unsigned otherwise)
{
    return value <= last ? (unsigned)value : otherwise;
}

// ---- Tables ---------------------------------------------------------------------------------------------------

// Makes the row of `id` exist, cleared, and marks it defined. *row is NULL when the id is not one that a recorder
// could have given: 0, defined before, or far above what was defined so far.
static gv_status define(gv_loader *loader, struct id_table *table, void **rows, size_t row_size, uint64_t id,
                        void **row)
{
    *row = NULL;
    if (id == 0 || id > 2 * (uint64_t)table->definitions + ID_SLACK || (id < table->count && table->defined[id])) {
        loader->trace->undefined++;
        return GV_OK;
    }
    size_t needed = (size_t)id + 1;
    if (needed > table->count) {
        if (!GV_GROW(table->defined, table->defined_capacity, needed) ||
            (row_size && needed > table->row_capacity && !gv_grow(rows, &table->row_capacity, needed, row_size)))
            return gv_load_out_of_memory(loader);
        memset(table->defined + table->count, 0, needed - table->count);
        if (row_size)
            memset((char *)*rows + table->count * row_size, 0, (needed - table->count) * row_size);
        table->count = needed;
    }
    table->defined[id] = true;
    table->definitions++;
    *row = row_size ? (char *)*rows + id * row_size : (char *)&table->defined[id];
    return GV_OK;
}

// Defines `id` in loader->NAME with its rows in trace->ROWS, and leaves the function when that failed or the id was
// refused.
#define DEFINE(row, name, record_id)                                                             \
    do {                                                                                         \
        void *defined_row;                                                                       \
        gv_status defined_status = define(loader, &loader->name, (void **)&loader->trace->name,  \
                                          sizeof *loader->trace->name, record_id, &defined_row); \
        if (defined_status != GV_OK || !defined_row)                                             \
            return defined_status;                                                               \
        (row) = defined_row;                                                                     \
    } while (0)

// Appends one row to trace->ROWS and leaves the function when memory is out.
#define APPEND(row, rows, count, row_capacity)                                             \
    do {                                                                                   \
        if (!GV_GROW(loader->trace->rows, loader->row_capacity, loader->trace->count + 1)) \
            return gv_load_out_of_memory(loader);                                          \
        (row) = &loader->trace->rows[loader->trace->count++];                              \
        memset((row), 0, sizeof *(row));                                                   \
    } while (0)

#define TRY(call)                 \
    do {                          \
        gv_status tried = (call); \
        if (tried != GV_OK)       \
            return tried;         \
    } while (0)

// ---- One function a record type -------------------------------------------------------------------------------

static gv_status load_frame(gv_loader *loader, const gv_frame_record *record)
{
    return GV_OK; // the reader keeps these to itself
}

static gv_status load_process(gv_loader *loader, const gv_process_record *record)
{
    gv_process_record *process = &loader->trace->process;
    if (process->pid)
        return malformed(loader, "the process is described twice");
    *process = *record;
    gv_text *texts[] = {&process->executable, &process->command_line,  &process->host,   &process->gravel_version,
                        &process->driver,     &process->access_source, &process->options};
    const size_t count = sizeof texts / sizeof texts[0]; // NOLINT(bugprone-sizeof-expression): they are pointers
    for (size_t i = 0; i < count; i++)
        TRY(copy_text(loader, *texts[i], &texts[i]->data));
    return GV_OK;
}

static gv_status load_string(gv_loader *loader, const gv_string_record *record)
{
    const char **row;
    DEFINE(row, strings, record->id);
    return copy_text(loader, record->text, row);
}

static gv_status load_module(gv_loader *loader, const gv_module_record *record)
{
    gv_module *row;
    DEFINE(row, modules, record->id);
    TRY(copy_text(loader, record->path, &row->path));
    return copy_bytes(loader, record->build_id, &row->build_id);
}

// Stores the string with this id, "" when there is none; one that is not defined yet is looked up at the end.
static gv_status refer_to_string(gv_loader *loader, uint64_t id, const char **place)
{
    *place = "";
    if (id == 0)
        return GV_OK;
    if (id < loader->strings.count && loader->strings.defined[id]) {
        *place = loader->trace->strings[id];
        return GV_OK;
    }
    if (!GV_GROW(loader->late, loader->late_capacity, loader->late_count + 1))
        return gv_load_out_of_memory(loader);
    loader->late[loader->late_count++] = (struct late_string){place, id};
    return GV_OK;
}

static gv_status load_stack(gv_loader *loader, const gv_stack_record *record)
{
    const uint64_t *host = record->host.items, *python = record->python.items;
    if (record->host.count % 2 || record->python.count % 3)
        return malformed(loader, "a stack has a part of a frame");
    gv_stack *row;
    DEFINE(row, stacks, record->id);
    size_t host_count = record->host.count / 2, python_count = record->python.count / 3;
    if (host_count) {
        row->host = gv_arena_array(loader->arena, host_count, sizeof *row->host);
        if (!row->host)
            return gv_load_out_of_memory(loader);
        for (size_t i = 0; i < host_count; i++)
            row->host[i] = (gv_host_frame){.module = host[2 * i], .address = host[2 * i + 1]};
        row->host_count = host_count;
    }
    if (python_count) {
        row->python = gv_arena_array(loader->arena, python_count, sizeof *row->python);
        if (!row->python)
            return gv_load_out_of_memory(loader);
        row->python_count = python_count;
        for (size_t i = 0; i < python_count; i++) {
            row->python[i] = (gv_python_frame){.line = python[3 * i + 2]};
            TRY(refer_to_string(loader, python[3 * i], &row->python[i].file));
            TRY(refer_to_string(loader, python[3 * i + 1], &row->python[i].function));
        }
    }
    return GV_OK;
}

static gv_status load_symbol(gv_loader *loader, const gv_symbol_record *record)
{
    if (!GV_GROW(loader->symbols, loader->symbol_capacity, loader->symbol_count + 1))
        return gv_load_out_of_memory(loader);
    loader->symbols[loader->symbol_count++] = *record;
    return GV_OK;
}

static gv_status load_context(gv_loader *loader, const gv_context_record *record)
{
    gv_context *row;
    DEFINE(row, contexts, record->id);
    row->device = record->device;
    row->compute_capability = enumerator(record->compute_capability, INT_MAX, 0);
    return copy_text(loader, record->device_name, &row->device_name);
}

static gv_status load_stream(gv_loader *loader, const gv_stream_record *record)
{
    gv_stream *row;
    DEFINE(row, streams, record->id);
    row->context = record->context;
    // Of the known kinds the non-blocking one promises the least order.
    row->kind = enumerator(record->kind, GV_STREAM_THREAD_DEFAULT, GV_STREAM_NON_BLOCKING);
    return GV_OK;
}

static gv_status load_function(gv_loader *loader, const gv_function_record *record)
{
    gv_function *row;
    DEFINE(row, functions, record->id);
    row->flags = (unsigned)record->flags;
    return copy_text(loader, record->name, &row->name);
}

static gv_status load_allocation(gv_loader *loader, const gv_allocation_record *record)
{
    if (record->size > UINT64_MAX - record->address)
        return malformed(loader, "an allocation reaches past the end of the address space");
    gv_allocation *row;
    DEFINE(row, allocations, record->id);
    *row = (gv_allocation){
        .address = record->address,
        .size = record->size,
        .kind = enumerator(record->kind, GV_ALLOCATION_IMPORTED, GV_ALLOCATION_DEVICE),
        .context = record->context,
        .stack = record->stack,
        .born = record->operation,
        .died = UINT64_MAX,
    };
    return record->name.length ? copy_text(loader, record->name, &row->name) : GV_OK;
}

static gv_status load_operation(gv_loader *loader, const gv_operation_record *record)
{
    gv_operation *row;
    APPEND(row, operations, operation_count, operation_capacity);
    *row = (gv_operation){
        .sequence = record->sequence,
        .thread = record->thread,
        .stream = record->stream,
        .object = record->object,
        .address = record->address,
        .size = record->size,
        .value = record->value,
        .stack = record->stack,
        .kind = enumerator(record->kind, GV_OP_HOST_ORDER, GV_OP_NONE),
        .flags = (unsigned)record->flags,
    };
    return copy_numbers(loader, record->detail, &row->detail);
}

static gv_status load_graph(gv_loader *loader, const gv_graph_record *record)
{
    size_t before = loader->graphs.count;
    gv_graph *row;
    DEFINE(row, graphs, record->id);
    size_t after = loader->graphs.count;
    if (after > before) {
        if (!GV_GROW(loader->growth, loader->growth_capacity, after))
            return gv_load_out_of_memory(loader);
        memset(loader->growth + before, 0, (after - before) * sizeof *loader->growth);
    }
    loader->growth[record->id] =
        (struct graph_growth){.announced_nodes = record->nodes, .announced_edges = record->edges};
    *row = (gv_graph){
        .id = record->id,
        .origin = enumerator(record->origin, GV_GRAPH_BODY, GV_GRAPH_BUILT),
        .stack = record->stack,
        .parent = record->parent,
        .parent_node = record->parent_node,
        .flags = (unsigned)record->flags,
    };
    return copy_text(loader, record->name, &row->name);
}

// The graph a node or edges record belongs to; NULL, and counted, when there is none.
static gv_graph *graph_of(gv_loader *loader, uint64_t id, struct graph_growth **growth)
{
    id = gv_load_known(loader, &loader->graphs, id);
    if (id == 0)
        return NULL;
    *growth = &loader->growth[id];
    return &loader->trace->graphs[id];
}

static gv_status load_node(gv_loader *loader, const gv_node_record *record)
{
    struct graph_growth *growth;
    gv_graph *graph = graph_of(loader, record->graph, &growth);
    if (!graph)
        return record->graph ? GV_OK : malformed(loader, "a node belongs to no graph");
    if (record->index != graph->node_count || record->index >= growth->announced_nodes || record->index > UINT32_MAX)
        return malformed(loader, "a node's index is not the next of its graph");
    if (!GV_GROW(graph->nodes, growth->node_capacity, graph->node_count + 1))
        return gv_load_out_of_memory(loader);
    gv_node *row = &graph->nodes[graph->node_count];
    *row = (gv_node){
        // Not mapped to a known kind: none of them would be a safe guess. Consumers treat it as one they cannot see.
        .kind = enumerator(record->kind, INT_MAX, INT_MAX),
        .function = record->function,
        .stack = record->stack,
        .stream = record->stream,
        .order = record->order,
        .child = record->child,
        .context = record->context,
        .flags = (unsigned)record->flags,
    };
    graph->node_count++;
    TRY(copy_numbers(loader, record->shape, &row->shape));
    return copy_numbers(loader, record->detail, &row->detail);
}

static gv_status load_edges(gv_loader *loader, const gv_edges_record *record)
{
    struct graph_growth *growth;
    gv_graph *graph = graph_of(loader, record->graph, &growth);
    if (!graph)
        return record->graph ? GV_OK : malformed(loader, "edges belong to no graph");
    size_t more = record->items.count / 4;
    if (record->items.count % 4 || graph->edge_count > growth->announced_edges ||
        more > growth->announced_edges - graph->edge_count)
        return malformed(loader, "a graph has more edges than it announced, or a part of one");
    if (more == 0)
        return GV_OK;
    if (!GV_GROW(graph->edges, growth->edge_capacity, graph->edge_count + more))
        return gv_load_out_of_memory(loader);
    for (const uint64_t *item = record->items.items, *end = item + record->items.count; item != end; item += 4) {
        if (item[0] > UINT32_MAX || item[1] > UINT32_MAX || item[2] > UINT8_MAX || item[3] > UINT8_MAX)
            return malformed(loader, "an edge is out of range");
        graph->edges[graph->edge_count++] =
            (gv_edge){(uint32_t)item[0], (uint32_t)item[1], (uint8_t)item[2], (uint8_t)item[3]};
    }
    return GV_OK;
}

static gv_status load_exec(gv_loader *loader, const gv_exec_record *record)
{
    // An exec has a record for each snapshot it ran: only the first defines its id.
    struct id_table *table = &loader->execs;
    if (record->id >= table->count || !table->defined[record->id]) {
        void *unused = NULL, *row;
        TRY(define(loader, table, &unused, 0, record->id, &row));
        if (!row)
            return GV_OK;
    }
    gv_exec_version *row;
    APPEND(row, exec_versions, exec_version_count, exec_version_capacity);
    *row = (gv_exec_version){record->id, record->graph, record->operation, (unsigned)record->flags};
    return GV_OK;
}

static gv_status load_armed(gv_loader *loader, const gv_armed_record *record)
{
    gv_armed *row;
    APPEND(row, armed, armed_count, armed_capacity);
    *row = (gv_armed){
        .launch = record->launch,
        .exec = record->exec,
        .graph = record->graph,
        .status = enumerator(record->status, GV_ARMED_FAILED, GV_ARMED_FAILED),
        .duration_ns = record->duration_ns,
        .node = record->node,
    };
    return copy_text(loader, record->reason, &row->reason);
}

static gv_status load_access(gv_loader *loader, const gv_access_record *record)
{
    const gv_bytes sets[] = {record->reads,       record->writes,       record->atomics,
                             record->early_reads, record->early_writes, record->early_atomics};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        gv_error problem = {0};
        if (gv_ranges_check(sets[i], NULL, NULL, &problem) != GV_OK)
            return malformed(loader, problem.text);
    }
    if (record->graph == 0 || record->node > UINT32_MAX)
        return malformed(loader, "an access names a node that no graph can have");
    if (!GV_GROW(loader->access_reasons, loader->reason_capacity, loader->trace->access_count + 1))
        return gv_load_out_of_memory(loader);
    gv_access *row;
    APPEND(row, accesses, access_count, access_capacity);
    loader->access_reasons[row - loader->trace->accesses] =
        (struct access_reasons){record->reason, record->wait_reason};
    row->launch = record->launch;
    row->graph = record->graph;
    row->node = (uint32_t)record->node;
    row->source = enumerator(record->source, GV_SOURCE_CHANGED, GV_SOURCE_NONE);
    row->precision = enumerator(record->precision, GV_PRECISION_INCOMPLETE, GV_PRECISION_INCOMPLETE);
    row->duration_ns = record->duration_ns;
    row->execution = record->execution;
    row->wait = enumerator(record->wait, GV_GRID_WAIT_DONE, GV_GRID_WAIT_UNKNOWN);
    row->trigger = enumerator(record->trigger, GV_GRID_TRIGGER_LATE, GV_GRID_TRIGGER_UNKNOWN);
    gv_bytes *const to[] = {&row->reads,       &row->writes,       &row->atomics,
                            &row->early_reads, &row->early_writes, &row->early_atomics};
    for (size_t i = 0; i < sizeof to / sizeof *to; i++)
        TRY(copy_bytes(loader, sets[i], to[i]));
    return GV_OK;
}

static gv_status load_execution(gv_loader *loader, const gv_execution_record *record)
{
    gv_execution *row;
    APPEND(row, executions, execution_count, execution_capacity);
    *row = (gv_execution){record->launch, record->id, record->parent, record->graph};
    return GV_OK;
}

static gv_status load_region(gv_loader *loader, const gv_region_record *record)
{
    if (record->size > UINT64_MAX - record->address || record->size == 0 || record->page_bytes == 0)
        return malformed(loader, "a region reaches past the end of the address space, or has no size");
    gv_region *row;
    DEFINE(row, regions, record->id);
    *row = (gv_region){
        .address = record->address,
        .size = record->size,
        .page_bytes = record->page_bytes,
        .group = record->group,
        .flags = (unsigned)record->flags,
        .stack = record->stack,
        .operation = record->operation,
    };
    return copy_text(loader, record->name, &row->name);
}

static gv_status load_region_step(gv_loader *loader, const gv_region_step_record *record)
{
    if (record->hashes.length != 8 * record->hashed.count || record->anew.count % 2)
        return malformed(loader, "a step has not as many hashes as pages, or a part of a pair");
    gv_region_step *row;
    APPEND(row, region_steps, region_step_count, region_step_capacity);
    *row = (gv_region_step){
        .region = record->region,
        .step = record->step,
        .first = record->first,
        .operation = record->operation,
        .since = record->since,
        .state = enumerator(record->state, GV_REGION_CHECKED, GV_REGION_UNHASHED),
        .allowed = record->allowed,
        .exempt = record->exempt,
        .changed = record->changed,
        .outside = record->outside,
        .hash = record->hash,
    };
    TRY(copy_numbers(loader, record->pages, &row->pages));
    TRY(copy_numbers(loader, record->anew, &row->anew));
    TRY(copy_numbers(loader, record->hashed, &row->hashed));
    TRY(copy_bytes(loader, record->hashes, &row->hashes));
    // The recorder writes a string before its first use; one that comes later is not waited for.
    uint64_t id = gv_load_known(loader, &loader->strings, record->reason);
    row->reason = id ? loader->trace->strings[id] : "";
    return GV_OK;
}

static gv_status load_region_end(gv_loader *loader, const gv_region_end_record *record)
{
    uint64_t id = gv_load_known(loader, &loader->regions, record->region);
    if (id) {
        gv_region *region = &loader->trace->regions[id];
        region->ended = true;
        region->end_reason = enumerator(record->why, GV_REGION_BROKEN, GV_REGION_BROKEN);
        region->end_step = record->step;
        region->end_operation = record->operation;
    }
    return GV_OK;
}

static gv_status load_kernel_access(gv_loader *loader, const gv_kernel_access_record *record)
{
    const gv_bytes sets[] = {record->reads, record->writes, record->atomics};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        gv_error problem = {0};
        if (gv_ranges_check(sets[i], NULL, NULL, &problem) != GV_OK)
            return malformed(loader, problem.text);
    }
    gv_kernel_access *row;
    APPEND(row, kernel_accesses, kernel_access_count, kernel_access_capacity);
    *row = (gv_kernel_access){
        .operation = record->operation,
        .function = record->function,
        .stack = record->stack,
        .source = enumerator(record->source, GV_SOURCE_CHANGED, GV_SOURCE_NONE),
        .precision = enumerator(record->precision, GV_PRECISION_INCOMPLETE, GV_PRECISION_INCOMPLETE),
    };
    gv_bytes *const to[] = {&row->reads, &row->writes, &row->atomics};
    for (size_t i = 0; i < sizeof to / sizeof *to; i++)
        TRY(copy_bytes(loader, sets[i], to[i]));
    uint64_t id = gv_load_known(loader, &loader->strings, record->reason);
    row->reason = id ? loader->trace->strings[id] : "";
    return GV_OK;
}

static gv_status load_perturbed(gv_loader *loader, const gv_perturbed_record *record)
{
    gv_perturbed *row;
    APPEND(row, perturbed, perturbed_count, perturbed_capacity);
    row->launch = record->launch;
    row->exec = record->exec;
    row->graph = record->graph;
    row->what = enumerator(record->what, GV_PERTURBED_POISON, GV_PERTURBED_POISON);
    row->status = enumerator(record->status, GV_PERTURBED_REFUSED, GV_PERTURBED_REFUSED);
    row->real_rows = record->real_rows;
    row->duration_ns = record->duration_ns;
    row->replays = record->replays;
    row->saved_bytes = record->saved_bytes;
    row->perturbed_bytes = record->perturbed_bytes;
    row->unstable_bytes = record->unstable_bytes;
    row->left_out_bytes = record->left_out_bytes;
    TRY(copy_text(loader, record->reason, &row->reason));
    return copy_text(loader, record->patterns, &row->patterns);
}

static gv_status load_effect(gv_loader *loader, const gv_effect_record *record)
{
    gv_error problem = {0};
    if (gv_ranges_check(record->ranges, NULL, NULL, &problem) != GV_OK)
        return malformed(loader, problem.text);
    gv_effect *row;
    APPEND(row, effects, effect_count, effect_capacity);
    row->launch = record->launch;
    row->graph = record->graph;
    row->node = record->node;
    row->kind = (unsigned)(record->kind > UINT32_MAX ? 0 : record->kind);
    row->real_rows = record->real_rows;
    row->rows = record->rows;
    row->first_row = record->first_row;
    row->last_row = record->last_row;
    row->bytes = record->bytes;
    TRY(copy_text(loader, record->name, &row->name));
    TRY(copy_text(loader, record->patterns, &row->patterns));
    return copy_bytes(loader, record->ranges, &row->ranges);
}

static gv_status load_probe(gv_loader *loader, const gv_probe_record *record)
{
    gv_probe *row;
    APPEND(row, probes, probe_count, probe_capacity);
    row->operation = record->operation;
    row->layer = record->layer;
    row->bucket = record->bucket;
    row->fallback = record->fallback != 0;
    row->real_rows = record->real_rows;
    row->elements = record->elements;
    row->differing = record->differing;
    row->rows = record->rows;
    row->first_row = record->first_row;
    row->first_element = record->first_element;
    TRY(copy_text(loader, record->name, &row->name));
    TRY(copy_text(loader, record->dtype, &row->dtype));
    TRY(copy_text(loader, record->tolerance, &row->tolerance));
    TRY(copy_text(loader, record->graph_value, &row->graph_value));
    TRY(copy_text(loader, record->eager_value, &row->eager_value));
    TRY(copy_text(loader, record->largest, &row->largest));
    return copy_text(loader, record->reason, &row->reason);
}

static gv_status load_declared(gv_loader *loader, const gv_declared_record *record)
{
    uint64_t bytes, end;
    if (__builtin_mul_overflow(record->row_bytes, record->rows, &bytes) ||
        __builtin_add_overflow(record->address, bytes, &end))
        return malformed(loader, "declared memory reaches past the end of the address space");
    gv_declared *row;
    APPEND(row, declared, declared_count, declared_capacity);
    row->address = record->address;
    row->row_bytes = record->row_bytes;
    row->rows = record->rows;
    row->flags = (unsigned)record->flags;
    row->operation = record->operation;
    return copy_text(loader, record->name, &row->name);
}

static gv_status load_fix(gv_loader *loader, const gv_fix_record *record)
{
    if (record->exact.length != 16 || record->without_shapes.length != 16)
        return malformed(loader, "a fingerprint is not 16 bytes long");
    gv_error problem = {0};
    size_t count;
    if (gv_fix_edge_count(record->edges, &count, &problem) != GV_OK)
        return malformed(loader, problem.text);
    gv_fix *row;
    DEFINE(row, fixes, record->id);
    row->nodes = record->nodes;
    TRY(copy_text(loader, record->name, &row->name));
    TRY(copy_bytes(loader, record->exact, &row->exact));
    TRY(copy_bytes(loader, record->without_shapes, &row->without_shapes));
    return copy_numbers(loader, record->edges, &row->edges);
}

static gv_status load_fix_applied(gv_loader *loader, const gv_fix_applied_record *record)
{
    if (record->edges.count % 2)
        return malformed(loader, "an added edge has one end");
    gv_fix_applied *row;
    APPEND(row, fixes_applied, fix_applied_count, fix_applied_capacity);
    row->graph = record->graph;
    row->fix = record->fix;
    row->status = enumerator(record->status, GV_FIX_FAILED, GV_FIX_REFUSED);
    row->match = enumerator(record->match, GV_FIX_MATCH_EXEC, GV_FIX_MATCH_NONE);
    TRY(copy_numbers(loader, record->edges, &row->edges));
    TRY(copy_numbers(loader, record->there, &row->there));
    return copy_text(loader, record->reason, &row->reason);
}

static gv_status load_node_time(gv_loader *loader, const gv_node_time_record *record)
{
    if (record->graph == 0 || record->node > UINT32_MAX || record->runs == 0)
        return malformed(loader, "a time names a node that no graph can have, or no run of it");
    gv_node_time *row;
    APPEND(row, node_times, node_time_count, node_time_capacity);
    *row = (gv_node_time){record->launch, record->graph, (uint32_t)record->node, record->duration_ns, record->runs};
    return GV_OK;
}

static gv_status load_note(gv_loader *loader, const gv_note_record *record)
{
    gv_note *row;
    APPEND(row, notes, note_count, note_capacity);
    row->severity = enumerator(record->severity, GV_NOTE_FAILURE, GV_NOTE_INCOMPLETE);
    row->graph = record->graph;
    row->node = record->node;
    row->operation = record->operation;
    return copy_text(loader, record->text, &row->text);
}

static gv_status load_checked(gv_loader *loader, const gv_checked_record *record)
{
    gv_checked *row;
    APPEND(row, checked, checked_count, checked_capacity);
    *row = (gv_checked){
        .launch = record->launch,
        .exec = record->exec,
        .graph = record->graph,
        .status = enumerator(record->status, GV_CHECKED_NOT_COMPARED, GV_CHECKED_NOT_COMPARED),
        .duration_ns = record->duration_ns,
        .graph_ns = record->graph_ns,
        .serial_ns = record->serial_ns,
        .replays = record->replays,
        .saved_bytes = record->saved_bytes,
        .different_bytes = record->different_bytes,
        .unstable_bytes = record->unstable_bytes,
        .ignored_bytes = record->ignored_bytes,
        .order = record->order,
    };
    return copy_text(loader, record->reason, &row->reason);
}

static gv_status load_difference(gv_loader *loader, const gv_difference_record *record)
{
    size_t count;
    uint64_t bytes, values;
    if (gv_ranges_check(record->ranges, &count, &bytes, NULL) ||
        gv_ranges_check(record->value_ranges, NULL, &values, NULL))
        return malformed(loader, "the ranges of a difference are not encoded as they must be");
    if (count > record->range_count || bytes > record->bytes || values != record->graph_values.length ||
        values != record->serial_values.length)
        return malformed(loader, "a difference has more or fewer bytes than it says");
    gv_difference *row;
    APPEND(row, differences, difference_count, difference_capacity);
    *row = (gv_difference){
        .launch = record->launch,
        .graph = record->graph,
        .node = record->node,
        .position = record->position,
        .bytes = record->bytes,
        .unstable = record->unstable,
        .range_count = record->range_count,
    };
    TRY(copy_bytes(loader, record->ranges, &row->ranges));
    TRY(copy_bytes(loader, record->value_ranges, &row->value_ranges));
    TRY(copy_bytes(loader, record->graph_values, &row->graph_values));
    return copy_bytes(loader, record->serial_values, &row->serial_values);
}

static gv_status load_setting(gv_loader *loader, const gv_setting_record *record)
{
    gv_setting *row;
    APPEND(row, settings, setting_count, setting_capacity);
    row->kind = record->kind;
    TRY(copy_text(loader, record->name, &row->name));
    return copy_text(loader, record->value, &row->value);
}

static gv_status load_end(gv_loader *loader, const gv_end_record *record)
{
    loader->trace->ended = true;
    return GV_OK;
}

static gv_status load_record(gv_loader *loader, const gv_record *record)
{
    switch (record->type) {
#define LOAD_CASE(number, name, FIELDS) \
    case number: return load_##name(loader, &record->name);
        GV_RECORDS(LOAD_CASE)
    default: return GV_OK; // of a later minor version
    }
}

// Makes every table have its unused row 0, so that id 0 can always be looked at.
static gv_status make_first_rows(gv_loader *loader)
{
#define FIRST_ROW(name)                                                         \
    do {                                                                        \
        if (!GV_GROW(loader->name.defined, loader->name.defined_capacity, 1) || \
            !GV_GROW(loader->trace->name, loader->name.row_capacity, 1))        \
            return gv_load_out_of_memory(loader);                               \
        loader->name.defined[0] = false;                                        \
        memset(loader->trace->name, 0, sizeof *loader->trace->name);            \
        loader->name.count = 1;                                                 \
    } while (0)
    FIRST_ROW(strings);
    FIRST_ROW(modules);
    FIRST_ROW(stacks);
    FIRST_ROW(contexts);
    FIRST_ROW(streams);
    FIRST_ROW(functions);
    FIRST_ROW(allocations);
    FIRST_ROW(graphs);
    FIRST_ROW(fixes);
    FIRST_ROW(regions);
    if (!GV_GROW(loader->growth, loader->growth_capacity, 1))
        return gv_load_out_of_memory(loader);
    memset(loader->growth, 0, sizeof *loader->growth);
    return GV_OK;
}

// The counts are kept in the tables while these grow; consumers find them in the trace.
static void publish_counts(gv_loader *loader)
{
    gv_trace *trace = loader->trace;
    trace->string_count = loader->strings.count;
    trace->module_count = loader->modules.count;
    trace->stack_count = loader->stacks.count;
    trace->context_count = loader->contexts.count;
    trace->stream_count = loader->streams.count;
    trace->function_count = loader->functions.count;
    trace->allocation_count = loader->allocations.count;
    trace->graph_count = loader->graphs.count;
    trace->fix_count = loader->fixes.count;
    trace->region_count = loader->regions.count;
}

gv_status gv_load_records(gv_loader *loader)
{
    gv_status status = make_first_rows(loader);
    bool more = true;
    while (status == GV_OK && more) {
        gv_record record;
        status = gv_reader_next(loader->reader, &record, &more, loader->error);
        if (status == GV_OK && more)
            status = load_record(loader, &record);
    }
    // Also after a failure: freeing goes by the counts.
    publish_counts(loader);
    return status;
}
