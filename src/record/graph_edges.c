#include "record/graph_edges.h"

#include "base/memory.h"
#include "record/driver.h"

#include <string.h>

CUresult gv_edge_add(gv_added_edges *added, CUgraph graph, CUgraphNode from, CUgraphNode to, bool around)
{
    static const CUgraphEdgeData ordinary;
    // Room first: an edge that is not remembered would stay.
    if (!GV_GROW(added->items, added->capacity, added->count + 1))
        return CUDA_ERROR_OUT_OF_MEMORY;
    gv_added_edge edge = {.graph = graph, .from = from, .to = to};
    CUresult result;
    if (!around) {
        result = gv_cuda.cuGraphAddDependencies(graph, &from, &to, &ordinary, 1);
        if (result == CUDA_SUCCESS)
            added->items[added->count++] = edge;
        return result;
    }
    result = gv_cuda.cuGraphAddEmptyNode(&edge.via, graph, &from, 1);
    if (result != CUDA_SUCCESS)
        return result;
    result = gv_cuda.cuGraphAddDependencies(graph, &edge.via, &to, &ordinary, 1);
    added->items[added->count++] = edge;
    return result;
}

static CUresult take_away(const gv_added_edge *edge)
{
    static const CUgraphEdgeData ordinary;
    // A node takes its edges with it.
    if (edge->via)
        return gv_cuda.cuGraphDestroyNode(edge->via);
    return gv_cuda.cuGraphRemoveDependencies(edge->graph, &edge->from, &edge->to, &ordinary, 1);
}

size_t gv_edges_take_away(gv_added_edges *added, CUresult *result)
{
    size_t kept = 0;
    *result = CUDA_SUCCESS;
    for (size_t i = added->count; i-- > 0;) {
        CUresult one = take_away(&added->items[i]);
        if (one != CUDA_SUCCESS && kept++ == 0)
            *result = one;
    }
    gv_edges_forget(added);
    return kept;
}

void gv_edges_forget(gv_added_edges *added)
{
    gv_free(added->items);
    *added = (gv_added_edges){0};
}

bool gv_edges_cyclic(size_t nodes, const uint64_t *edges, size_t edge_count, const uint32_t *pairs, size_t pair_count)
{
    size_t total = edge_count + pair_count, done = 0;
    uint32_t *first = gv_calloc(nodes + 2, sizeof *first), *targets = gv_calloc(total, sizeof *targets);
    uint32_t *waiting = gv_calloc(nodes, sizeof *waiting), *order = gv_calloc(nodes, sizeof *order);
    bool cyclic = true;
    if (first && targets && waiting && order) {
        // Kahn's algorithm over both lists: first[n + 1] .. first[n + 2] becomes the place of n's targets.
        for (size_t i = 0; i < total; i++) {
            uint64_t from = i < edge_count ? edges[4 * i] : pairs[2 * (i - edge_count)];
            uint64_t to = i < edge_count ? edges[4 * i + 1] : pairs[2 * (i - edge_count) + 1];
            first[from + 2]++;
            waiting[to]++;
        }
        for (size_t i = 2; i < nodes + 2; i++)
            first[i] += first[i - 1];
        for (size_t i = 0; i < total; i++) {
            uint64_t from = i < edge_count ? edges[4 * i] : pairs[2 * (i - edge_count)];
            uint64_t to = i < edge_count ? edges[4 * i + 1] : pairs[2 * (i - edge_count) + 1];
            targets[first[from + 1]++] = (uint32_t)to;
        }
        for (uint32_t i = 0; i < nodes; i++)
            if (!waiting[i])
                order[done++] = i;
        for (size_t next = 0; next < done; next++)
            for (uint32_t i = first[order[next]]; i < first[order[next] + 1]; i++)
                if (--waiting[targets[i]] == 0)
                    order[done++] = targets[i];
        cyclic = done < nodes;
    }
    gv_free(first);
    gv_free(targets);
    gv_free(waiting);
    gv_free(order);
    return cyclic;
}
