#include "record/graph_levels.h"

#include "base/memory.h"
#include "record/driver.h"
#include "record/snapshot.h"

#include <stdio.h>
#include <string.h>

static void describe_kernel(const gv_snapshot_node *node, gv_print_node *print, gv_node_facts *facts)
{
    CUDA_KERNEL_NODE_PARAMS params;
    memset(&params, 0, sizeof params);
    if (gv_cuda.cuGraphKernelNodeGetParams(node->node, &params) != CUDA_SUCCESS)
        return;
    const uint64_t shape[7] = {params.gridDimX,  params.gridDimY,  params.gridDimZ,      params.blockDimX,
                               params.blockDimY, params.blockDimZ, params.sharedMemBytes};
    memcpy(facts->shape, shape, sizeof shape);
    print->shape = (gv_numbers){facts->shape, 7};
    if (gv_cuda.cuFuncGetName(&print->kernel, params.func ? params.func : (CUfunction)params.kern) != CUDA_SUCCESS)
        print->kernel = NULL;
}

// The same numbers as in the node's record in a trace, from which `gravel fix` computes fingerprints. Those that a
// fingerprint leaves out may be missing, but not their places.
static void describe(const gv_snapshot_node *node, gv_print_node *print, gv_node_facts *facts)
{
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS set;
    print->kind = (uint64_t)node->type;
    print->order = node->order;
    print->detail.items = facts->detail;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: describe_kernel(node, print, facts); break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        memset(&copy, 0, sizeof copy);
        if (gv_cuda.cuGraphMemcpyNodeGetParams(node->node, &copy) == CUDA_SUCCESS)
            print->detail.count = gv_memcpy_detail(&copy, facts->detail);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        memset(&set, 0, sizeof set);
        if (gv_cuda.cuGraphMemsetNodeGetParams(node->node, &set) == CUDA_SUCCESS)
            print->detail.count = gv_memset_detail(&set, facts->detail);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
        CUDA_MEM_ALLOC_NODE_PARAMS params;
        memset(&params, 0, sizeof params);
        if (gv_cuda.cuGraphMemAllocNodeGetParams(node->node, &params) == CUDA_SUCCESS) {
            facts->detail[1] = params.bytesize;
            print->detail.count = 2;
        }
        break;
    }
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        facts->detail[0] = node->condition.type;
        print->detail.count = 1;
        break;
    default: break;
    }
}

static void clear_level(gv_level *level)
{
    for (size_t i = 0; level->bodies && i < level->snapshot->node_count; i++) {
        for (size_t body = 0; level->bodies[i] && body < level->snapshot->nodes[i].body_count; body++)
            clear_level(&level->bodies[i][body]);
        gv_free(level->bodies[i]);
    }
    for (size_t i = 0; level->inner && i < level->snapshot->node_count; i++)
        gv_free(level->inner[i]);
    gv_free(level->numbers);
    gv_free(level->bodies);
    gv_free(level->nodes);
    gv_free(level->facts);
    gv_free(level->inner);
}

static bool fill_level(gv_level *level, gv_snapshot *snapshot);

static bool fill_bodies(gv_level *level, size_t index)
{
    const gv_snapshot_node *node = &level->snapshot->nodes[index];
    if (!node->body_count)
        return true;
    level->bodies[index] = gv_calloc(node->body_count, sizeof *level->bodies[index]);
    level->inner[index] = gv_calloc(node->body_count, sizeof *level->inner[index]);
    if (!level->bodies[index] || !level->inner[index])
        return false;
    for (size_t body = 0; body < node->body_count; body++) {
        // A body that was not filled has to be recognisable when the levels are freed.
        level->bodies[index][body].snapshot = node->bodies[body];
        if (!fill_level(&level->bodies[index][body], node->bodies[body]))
            return false;
        level->inner[index][body] = level->bodies[index][body].print;
    }
    level->nodes[index].inner = level->inner[index];
    level->nodes[index].inner_count = node->body_count;
    return true;
}

static bool fill_level(gv_level *level, gv_snapshot *snapshot)
{
    size_t count = snapshot->node_count;
    level->snapshot = snapshot;
    level->numbers = gv_calloc(count, sizeof *level->numbers);
    level->bodies = gv_calloc(count, sizeof(gv_level *));
    level->nodes = gv_calloc(count, sizeof *level->nodes);
    level->facts = gv_calloc(count, sizeof *level->facts);
    level->inner = gv_calloc(count, sizeof(gv_print_graph *));
    if (!level->numbers || !level->bodies || !level->nodes || !level->facts || !level->inner)
        return false;
    for (size_t i = 0; i < count; i++) {
        describe(&snapshot->nodes[i], &level->nodes[i], &level->facts[i]);
        if (!fill_bodies(level, i))
            return false;
    }
    level->print = (gv_print_graph){level->nodes, count, snapshot->edges, snapshot->edge_count};
    return gv_fingerprint_numbers(&level->print, level->numbers);
}

static bool is_unreadable(const gv_snapshot *snapshot)
{
    if (snapshot->flags & GV_GRAPH_UNREADABLE)
        return true;
    for (size_t i = 0; i < snapshot->node_count; i++)
        for (size_t body = 0; body < snapshot->nodes[i].body_count; body++)
            if (is_unreadable(snapshot->nodes[i].bodies[body]))
                return true;
    return false;
}

gv_level *gv_level_read(CUgraph graph, char *why, size_t size)
{
    gv_level *level = gv_calloc(1, sizeof *level);
    gv_snapshot *snapshot = level ? gv_graph_read(graph) : NULL;
    if (snapshot && is_unreadable(snapshot)) {
        snprintf(why, size, "%.200s", snapshot->refusal);
        gv_snapshot_free(snapshot);
        gv_free(level);
        return NULL;
    }
    if (snapshot && fill_level(level, snapshot))
        return level;
    snprintf(why, size, "memory ran out while it was read");
    if (snapshot)
        clear_level(level);
    gv_snapshot_free(snapshot);
    gv_free(level);
    return NULL;
}

void gv_level_free(gv_level *level)
{
    if (!level)
        return;
    clear_level(level);
    gv_snapshot_free(level->snapshot);
    gv_free(level);
}

uint32_t gv_level_index(const gv_level *level, uint64_t number)
{
    for (uint32_t i = 0; i < level->snapshot->node_count; i++)
        if (level->numbers[i] == number)
            return i;
    return UINT32_MAX;
}

gv_level *gv_level_at(gv_level *level, const uint64_t *steps, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t index = gv_level_index(level, steps[2 * i]);
        if (index == UINT32_MAX || steps[2 * i + 1] >= level->snapshot->nodes[index].body_count)
            return NULL;
        level = &level->bodies[index][steps[2 * i + 1]];
    }
    return level;
}

const char *gv_level_kernel(const gv_level *level, uint32_t index)
{
    const char *name = level->nodes[index].kernel;
    return name ? name : "";
}

bool gv_level_has_memory_nodes(const gv_level *level)
{
    for (size_t i = 0; i < level->snapshot->node_count; i++) {
        CUgraphNodeType type = level->snapshot->nodes[i].type;
        if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            return true;
        for (size_t body = 0; body < level->snapshot->nodes[i].body_count; body++)
            if (gv_level_has_memory_nodes(&level->bodies[i][body]))
                return true;
    }
    return false;
}
