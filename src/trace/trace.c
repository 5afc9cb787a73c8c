// A whole trace in memory: see trace.h. The steps of loading are in load.c, resolve.c and armed.c.
#include "trace/trace.h"

#include "base/memory.h"
#include "trace/load.h"

#include <string.h>

static void free_loader(gv_loader *loader)
{
    struct id_table *tables[] = {&loader->strings, &loader->modules,   &loader->stacks,      &loader->contexts,
                                 &loader->streams, &loader->functions, &loader->allocations, &loader->graphs,
                                 &loader->execs,   &loader->fixes,     &loader->regions};
    const size_t count = sizeof tables / sizeof tables[0]; // NOLINT(bugprone-sizeof-expression): they are pointers
    for (size_t i = 0; i < count; i++)
        gv_free(tables[i]->defined);
    gv_free(loader->growth);
    gv_free(loader->symbols);
    gv_free(loader->late);
    gv_free(loader->access_reasons);
    gv_reader_close(loader->reader);
}

static gv_status make_trace(const char *name, gv_trace **trace, gv_error *error)
{
    *trace = gv_calloc(1, sizeof **trace);
    if (*trace)
        (*trace)->storage = gv_calloc(1, sizeof *(*trace)->storage);
    if (*trace && (*trace)->storage)
        (*trace)->path = gv_arena_string(&(*trace)->storage->arena, name, strlen(name));
    if (*trace && (*trace)->path)
        return GV_OK;
    gv_trace_free(*trace);
    *trace = NULL;
    gv_fail(error, GV_ERR_MEMORY, "%s: no memory to load the trace", name);
    return GV_ERR_MEMORY;
}

static gv_status copy_truncation(gv_loader *loader)
{
    const char *text = gv_reader_truncation(loader->reader);
    if (!text)
        return GV_OK;
    loader->trace->truncation = gv_arena_string(loader->arena, text, strlen(text));
    return loader->trace->truncation ? GV_OK : gv_load_out_of_memory(loader);
}

// Loads from an open reader, which it closes.
static gv_status load(gv_reader *reader, const char *name, gv_trace **trace, gv_error *error)
{
    gv_loader loader = {.reader = reader, .error = error};
    gv_status status = make_trace(name, trace, error);
    if (status == GV_OK) {
        loader.trace = *trace;
        loader.arena = &(*trace)->storage->arena;
        status = gv_load_records(&loader);
        if (status == GV_OK)
            status = copy_truncation(&loader);
        if (status == GV_OK)
            status = gv_load_resolve(&loader);
        if (status == GV_OK)
            status = gv_load_armed(&loader);
        if (status == GV_OK)
            gv_load_checked(&loader);
        if (status == GV_OK)
            status = gv_life_index_build(&(*trace)->storage->lives, *trace, error);
        if (status != GV_OK) {
            gv_error_prefix(error, "%s", name);
            gv_trace_free(*trace);
            *trace = NULL;
        }
    }
    free_loader(&loader);
    return status;
}

gv_status gv_trace_load(const char *path, gv_trace **trace, gv_error *error)
{
    gv_reader *reader;
    *trace = NULL;
    gv_status status = gv_reader_open(path, &reader, error);
    return status == GV_OK ? load(reader, path, trace, error) : status;
}

gv_status gv_trace_load_memory(const void *data, size_t size, const char *name, gv_trace **trace, gv_error *error)
{
    gv_reader *reader;
    *trace = NULL;
    gv_status status = gv_reader_open_memory(data, size, &reader, error);
    if (status == GV_OK)
        return load(reader, name, trace, error);
    gv_error_prefix(error, "%s", name);
    return status;
}

void gv_trace_free(gv_trace *trace)
{
    if (!trace)
        return;
    for (size_t i = 0; i < trace->graph_count; i++) {
        gv_free(trace->graphs[i].nodes);
        gv_free(trace->graphs[i].edges);
    }
    gv_free(trace->strings);
    gv_free(trace->modules);
    gv_free(trace->stacks);
    gv_free(trace->contexts);
    gv_free(trace->streams);
    gv_free(trace->functions);
    gv_free(trace->allocations);
    gv_free(trace->operations);
    gv_free(trace->graphs);
    gv_free(trace->exec_versions);
    gv_free(trace->accesses);
    gv_free(trace->executions);
    gv_free(trace->armed);
    gv_free(trace->checked);
    gv_free(trace->differences);
    gv_free(trace->settings);
    gv_free(trace->perturbed);
    gv_free(trace->effects);
    gv_free(trace->probes);
    gv_free(trace->declared);
    gv_free(trace->fixes);
    gv_free(trace->fixes_applied);
    gv_free(trace->node_times);
    gv_free(trace->notes);
    gv_free(trace->regions);
    gv_free(trace->region_steps);
    gv_free(trace->kernel_accesses);
    if (trace->storage) {
        gv_free(trace->storage->lives.lives);
        gv_free(trace->storage->lives.bounds);
        gv_arena_free(&trace->storage->arena);
        gv_free(trace->storage);
    }
    gv_free(trace);
}

gv_status gv_fix_edge_count(gv_numbers edges, size_t *count, gv_error *error)
{
    *count = 0;
    for (size_t at = 0; at < edges.count; (*count)++) {
        if (edges.count - at < 4 || edges.items[at + 1] > (edges.count - at - 4) / 2)
            return gv_fail(error, GV_ERR_FORMAT, "an entry of a fix file has a part of an edge");
        at += 4 + 2 * (size_t)edges.items[at + 1];
    }
    return GV_OK;
}

const uint64_t *gv_node_bodies(const gv_node *node, size_t *count)
{
    bool has = node->kind == GV_NODE_CONDITIONAL && node->detail.count > GV_CONDITIONAL_BODIES;
    *count = has ? node->detail.count - GV_CONDITIONAL_BODIES : 0;
    return has ? node->detail.items + GV_CONDITIONAL_BODIES : NULL;
}

const gv_operation *gv_trace_operation(const gv_trace *trace, uint64_t sequence)
{
    size_t low = 0, high = trace->operation_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (trace->operations[middle].sequence < sequence)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < trace->operation_count && trace->operations[low].sequence == sequence;
    return found ? &trace->operations[low] : NULL;
}
