// Third step of loading: the accesses of each armed launch are brought together, and an armed launch that the process
// did not survive gets the row it could not write.
#include "trace/load.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

// Neighbouring access rows of one launch.
struct run {
    uint64_t launch;
    size_t first, count;
};

struct runs {
    struct run *items;
    size_t count, capacity;
};

// A launch and where its row stands.
struct row_of_launch {
    uint64_t launch;
    size_t row;
};

static int by_launch_then_place(const void *a, const void *b)
{
    const struct run *x = a, *y = b;
    if (x->launch != y->launch)
        return x->launch < y->launch ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static int by_place(const void *a, const void *b)
{
    const struct run *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

static int by_launch_then_row(const void *a, const void *b)
{
    const struct row_of_launch *x = a, *y = b;
    if (x->launch != y->launch)
        return x->launch < y->launch ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static int by_launch(const void *a, const void *b)
{
    const struct row_of_launch *x = a, *y = b;
    return x->launch < y->launch ? -1 : x->launch > y->launch;
}

static gv_status find_runs(gv_loader *loader, struct runs *runs)
{
    const gv_trace *trace = loader->trace;
    for (size_t i = 0; i < trace->access_count; i++) {
        if (runs->count && runs->items[runs->count - 1].launch == trace->accesses[i].launch) {
            runs->items[runs->count - 1].count++;
            continue;
        }
        if (!GV_GROW(runs->items, runs->capacity, runs->count + 1))
            return gv_load_out_of_memory(loader);
        runs->items[runs->count++] = (struct run){trace->accesses[i].launch, i, 1};
    }
    return GV_OK;
}

// Makes each launch one run, moving rows where its runs are apart; keeps the order of first appearance and, within a
// launch, that of the file.
static gv_status join_runs(gv_loader *loader, struct runs *runs)
{
    gv_trace *trace = loader->trace;
    if (runs->count == 0)
        return GV_OK;
    qsort(runs->items, runs->count, sizeof *runs->items, by_launch_then_place);
    bool apart = false;
    for (size_t i = 1; i < runs->count && !apart; i++)
        apart = runs->items[i].launch == runs->items[i - 1].launch;
    if (apart) {
        gv_access *moved = gv_realloc_array(NULL, trace->access_count, sizeof *moved);
        if (!moved)
            return gv_load_out_of_memory(loader);
        size_t joined = 0, next = 0;
        for (size_t i = 0; i < runs->count; i++) {
            struct run run = runs->items[i];
            memcpy(moved + next, trace->accesses + run.first, run.count * sizeof *moved);
            if (joined && runs->items[joined - 1].launch == run.launch)
                runs->items[joined - 1].count += run.count;
            else
                runs->items[joined++] = (struct run){run.launch, next, run.count};
            next += run.count;
        }
        runs->count = joined;
        gv_free(trace->accesses);
        trace->accesses = moved;
    }
    qsort(runs->items, runs->count, sizeof *runs->items, by_place);
    return GV_OK;
}

// The rows of the armed launches by launch, each launch once: a second row for one is dropped and counted.
static gv_status index_armed(gv_loader *loader, struct row_of_launch **index)
{
    gv_trace *trace = loader->trace;
    *index = gv_realloc_array(NULL, trace->armed_count, sizeof **index);
    if (!*index)
        return gv_load_out_of_memory(loader);
    for (size_t i = 0; i < trace->armed_count; i++)
        (*index)[i] = (struct row_of_launch){trace->armed[i].launch, i};
    if (trace->armed_count)
        qsort(*index, trace->armed_count, sizeof **index, by_launch_then_row);
    return GV_OK;
}

static gv_status drop_repeated(gv_loader *loader)
{
    gv_trace *trace = loader->trace;
    struct row_of_launch *index;
    gv_status status = index_armed(loader, &index);
    if (status != GV_OK)
        return status;
    size_t repeated = 0;
    for (size_t i = 1; i < trace->armed_count; i++) {
        if (index[i].launch == index[i - 1].launch) {
            trace->armed[index[i].row].reason = NULL; // marks it: a loaded row always has a reason text
            repeated++;
        }
    }
    gv_free(index);
    size_t kept = 0;
    for (size_t i = 0; i < trace->armed_count && repeated; i++) {
        if (trace->armed[i].reason)
            trace->armed[kept++] = trace->armed[i];
    }
    if (repeated)
        trace->armed_count = kept;
    trace->undefined += repeated;
    return GV_OK;
}

// The row for a launch whose own was never written. The graph is the outermost one of its first access.
static gv_status append_unfinished(gv_loader *loader, struct run run)
{
    gv_trace *trace = loader->trace;
    if (!GV_GROW(trace->armed, loader->armed_capacity, trace->armed_count + 1))
        return gv_load_out_of_memory(loader);
    uint64_t graph = trace->accesses[run.first].graph;
    while (trace->graphs[graph].parent)
        graph = trace->graphs[graph].parent;
    const gv_operation *launch = gv_trace_operation(trace, run.launch);
    trace->armed[trace->armed_count++] = (gv_armed){
        .launch = run.launch,
        .exec = launch && launch->kind == GV_OP_GRAPH_LAUNCH ? launch->object : 0,
        .graph = graph,
        .status = GV_ARMED_FAILED,
        .reason = "the trace ends before this armed launch was finished; the process was killed in it, or it crashed",
        .first_access = run.first,
        .access_count = run.count,
    };
    return GV_OK;
}

static gv_status assign_runs(gv_loader *loader, const struct runs *runs)
{
    struct row_of_launch *index;
    gv_status status = index_armed(loader, &index);
    size_t written = loader->trace->armed_count; // rows the index knows; those appended below come after them
    for (size_t i = 0; status == GV_OK && i < runs->count; i++) {
        struct row_of_launch key = {.launch = runs->items[i].launch};
        const struct row_of_launch *found = written ? bsearch(&key, index, written, sizeof *index, by_launch) : NULL;
        if (found) {
            loader->trace->armed[found->row].first_access = runs->items[i].first;
            loader->trace->armed[found->row].access_count = runs->items[i].count;
        } else {
            status = append_unfinished(loader, runs->items[i]);
        }
    }
    gv_free(index);
    return status;
}

static int by_launch_then_id(const void *a, const void *b)
{
    const gv_execution *x = a, *y = b;
    if (x->launch != y->launch)
        return x->launch < y->launch ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

// Sorts the executions, and keeps those whose parent is there and each id once: what is left forms a tree.
static void sort_executions(gv_trace *trace)
{
    gv_execution *rows = trace->executions;
    size_t kept = 0, first = 0; // of the launch at hand
    if (trace->execution_count)
        qsort(rows, trace->execution_count, sizeof *rows, by_launch_then_id);
    for (size_t i = 0; i < trace->execution_count; i++) {
        if (kept == 0 || rows[kept - 1].launch != rows[i].launch)
            first = kept;
        const gv_execution parent = {.launch = rows[i].launch, .id = rows[i].parent};
        bool known = !parent.id || (kept > first && bsearch(&parent, rows + first, kept - first, sizeof *rows,
                                                            by_launch_then_id) != NULL);
        bool again = kept > first && rows[kept - 1].id == rows[i].id;
        if (known && !again)
            rows[kept++] = rows[i];
    }
    trace->undefined += trace->execution_count - kept;
    trace->execution_count = kept;
}

// The first execution at or behind a launch.
static size_t lower_execution(const gv_trace *trace, uint64_t launch)
{
    size_t low = 0, high = trace->execution_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (trace->executions[middle].launch < launch)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void assign_executions(gv_trace *trace)
{
    sort_executions(trace);
    for (size_t i = 0; i < trace->armed_count; i++) {
        gv_armed *armed = &trace->armed[i];
        armed->first_execution = lower_execution(trace, armed->launch);
        while (armed->first_execution + armed->execution_count < trace->execution_count &&
               trace->executions[armed->first_execution + armed->execution_count].launch == armed->launch)
            armed->execution_count++;
    }
}

gv_status gv_load_armed(gv_loader *loader)
{
    struct runs runs = {0};
    gv_status status = drop_repeated(loader);
    if (status == GV_OK)
        status = find_runs(loader, &runs);
    if (status == GV_OK)
        status = join_runs(loader, &runs);
    if (status == GV_OK)
        status = assign_runs(loader, &runs);
    gv_free(runs.items);
    if (status != GV_OK)
        return status;
    gv_trace *trace = loader->trace;
    assign_executions(trace);
    for (size_t i = 0; i < trace->armed_count; i++)
        trace->undefined += gv_trace_operation(trace, trace->armed[i].launch) == NULL;
    return GV_OK;
}
