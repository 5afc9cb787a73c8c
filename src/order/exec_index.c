// A sorted table of the trace's exec records.
#include "order/exec_index.h"

#include "base/memory.h"

#include <stdlib.h>

static int by_exec_and_operation(const void *left, const void *right)
{
    const gv_exec_version *a = *(const gv_exec_version *const *)left, *b = *(const gv_exec_version *const *)right;
    if (a->exec != b->exec)
        return a->exec < b->exec ? -1 : 1;
    if (a->operation != b->operation)
        return a->operation < b->operation ? -1 : 1;
    // Of two records for one operation, the later one in the file holds.
    return a < b ? -1 : a > b;
}

gv_status gv_exec_index_build(gv_exec_index *index, const gv_trace *trace, gv_error *error)
{
    index->count = trace->exec_version_count;
    index->versions = gv_calloc(index->count, sizeof *index->versions);
    if (!index->versions)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory for a table of %zu executable graphs", index->count);
    for (size_t i = 0; i < index->count; i++)
        index->versions[i] = &trace->exec_versions[i];
    if (index->count)
        qsort(index->versions, index->count, sizeof *index->versions, by_exec_and_operation);
    return GV_OK;
}

uint64_t gv_exec_index_graph(const gv_exec_index *index, uint64_t exec, uint64_t sequence)
{
    size_t low = 0, high = index->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const gv_exec_version *v = index->versions[middle];
        if (v->exec < exec || (v->exec == exec && v->operation <= sequence))
            low = middle + 1;
        else
            high = middle;
    }
    return low && index->versions[low - 1]->exec == exec ? index->versions[low - 1]->graph : 0;
}

void gv_exec_index_free(gv_exec_index *index)
{
    gv_free(index->versions);
    *index = (gv_exec_index){0};
}
