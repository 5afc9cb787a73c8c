#include "record/graph_pairing.h"

#include "base/memory.h"
#include "record/driver.h"

#include <stdlib.h>
#include <string.h>

typedef struct place {
    CUgraphNode node;
    uint32_t index;
} place;

static int by_node(const void *left, const void *right)
{
    const place *a = left, *b = right;
    return a->node < b->node ? -1 : a->node > b->node;
}

// The nodes in front of one node, in the order of its edges. Edge data is asked for: without it the query fails as soon
// as one edge is programmatic.
static bool read_dependencies(CUgraphNode node, CUgraphNode **nodes, CUgraphEdgeData **data, size_t *capacity,
                              size_t *count)
{
    *count = 0;
    if (gv_cuda.cuGraphNodeGetDependencies(node, NULL, NULL, count) != CUDA_SUCCESS)
        return false;
    if (!*count)
        return true;
    size_t data_capacity = *capacity;
    if (!GV_GROW(*nodes, *capacity, *count) || !GV_GROW(*data, data_capacity, *count))
        return false;
    return gv_cuda.cuGraphNodeGetDependencies(node, *nodes, *data, count) == CUDA_SUCCESS;
}

static bool read_into(const gv_snapshot *snapshot, const place *places, gv_structure *structure)
{
    CUgraphNode *nodes = NULL;
    CUgraphEdgeData *data = NULL;
    size_t capacity = 0, used = 0, count;
    bool whole = true;
    for (size_t i = 0; i < structure->count && whole; i++) {
        structure->types[i] = snapshot->nodes[i].type;
        structure->first[i] = (uint32_t)used;
        whole = read_dependencies(snapshot->nodes[i].node, &nodes, &data, &capacity, &count) &&
                used + count <= snapshot->edge_count;
        for (size_t j = 0; j < count && whole; j++) {
            const place key = {.node = nodes[j]};
            const place *found = bsearch(&key, places, structure->count, sizeof key, by_node);
            whole = found != NULL;
            if (!found)
                break;
            structure->dependencies[used++] = found->index;
            structure->is_end[found->index] = false;
        }
    }
    structure->first[structure->count] = (uint32_t)used;
    gv_free(nodes);
    gv_free(data);
    return whole;
}

bool gv_structure_read(const gv_level *level, gv_structure *structure)
{
    const gv_snapshot *snapshot = level->snapshot;
    size_t count = snapshot->node_count;
    place *places = gv_calloc(count, sizeof *places);
    *structure = (gv_structure){
        .count = count,
        .types = gv_calloc(count, sizeof *structure->types),
        .first = gv_calloc(count + 1, sizeof *structure->first),
        .dependencies = gv_calloc(snapshot->edge_count, sizeof *structure->dependencies),
        .is_end = gv_calloc(count, sizeof *structure->is_end),
    };
    bool read = places && structure->types && structure->first && structure->dependencies && structure->is_end;
    for (uint32_t i = 0; i < count && read; i++) {
        places[i] = (place){snapshot->nodes[i].node, i};
        structure->is_end[i] = true;
    }
    if (read) {
        qsort(places, count, sizeof *places, by_node);
        read = read_into(snapshot, places, structure);
    }
    gv_free(places);
    if (!read)
        gv_structure_free(structure);
    return read;
}

void gv_structure_free(gv_structure *structure)
{
    gv_free(structure->types);
    gv_free(structure->first);
    gv_free(structure->dependencies);
    gv_free(structure->is_end);
    *structure = (gv_structure){0};
}

enum { UNPAIRED = UINT32_MAX };

// Pairs one end with one end, and what lies in front of both.
static bool pair_backwards(const gv_structure *a, const gv_structure *b, uint32_t end, uint32_t other_end,
                           uint32_t *pair, uint32_t *pending)
{
    size_t top = 0;
    pair[end] = other_end;
    pending[top++] = end;
    while (top) {
        uint32_t node = pending[--top], other = pair[node];
        uint32_t count = a->first[node + 1] - a->first[node];
        if (a->types[node] != b->types[other] || b->first[other + 1] - b->first[other] != count)
            return false;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t earlier = a->dependencies[a->first[node] + i];
            uint32_t other_earlier = b->dependencies[b->first[other] + i];
            if (pair[earlier] == other_earlier)
                continue;
            if (pair[earlier] != UNPAIRED)
                return false;
            pair[earlier] = other_earlier;
            pending[top++] = earlier;
        }
    }
    return true;
}

bool gv_structure_pair(const gv_structure *a, const gv_structure *b, uint32_t *pair)
{
    uint32_t *pending = gv_calloc(a->count, sizeof *pending);
    bool *taken = gv_calloc(b->count, sizeof *taken);
    bool paired = pending && taken && a->count == b->count;
    size_t at = 0;
    for (size_t i = 0; i < a->count && paired; i++)
        pair[i] = UNPAIRED;
    for (uint32_t i = 0; paired && i < b->count; i++) {
        if (!b->is_end[i])
            continue;
        while (at < a->count && !a->is_end[at])
            at++;
        paired = at < a->count && pair_backwards(a, b, (uint32_t)at++, i, pair, pending);
    }
    // Each node has one counterpart, and is that of one.
    for (size_t i = 0; paired && i < a->count; i++) {
        paired = pair[i] != UNPAIRED && !taken[pair[i]];
        if (paired)
            taken[pair[i]] = true;
    }
    gv_free(pending);
    gv_free(taken);
    return paired;
}
