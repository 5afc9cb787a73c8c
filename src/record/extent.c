#include "record/extent.h"

#include "access/node_access.h"
#include "base/memory.h"
#include "record/driver.h"
#include "record/parameters.h"
#include "record/snapshot.h"

#include <stdio.h>
#include <string.h>

void gv_extent_free(gv_extent *extent)
{
    gv_range_set_free(&extent->writable);
    gv_range_set_free(&extent->reached);
    gv_range_set_free(&extent->shared);
    gv_range_set_free(&extent->host);
}

static void refuse(gv_extent *extent, const char *why)
{
    if (!extent->refusal[0])
        snprintf(extent->refusal, sizeof extent->refusal, "%.300s", why);
}

const char *gv_extent_obstacle(const gv_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->node_count; i++) {
        const gv_snapshot_node *node = &snapshot->nodes[i];
        const char *inside = NULL;
        if (node->disabled)
            continue;
        switch (node->type) {
        case CU_GRAPH_NODE_TYPE_HOST:
            return "it has a host function, which must not be called more often than the program asks";
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return "it waits for an event, which may be recorded anew meanwhile";
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            return "it has conditional nodes, of which a replay need not take the same branches";
        case CU_GRAPH_NODE_TYPE_GRAPH: inside = gv_extent_obstacle(node->bodies[0]); break;
        default: break;
        }
        if (inside)
            return inside;
    }
    return NULL;
}

// ---- Kernels -----------------------------------------------------------------------------------------------------

// What the kernels of one module are given.
typedef struct module_roots {
    CUmodule module;
    uint64_t *roots;
    size_t count, capacity;
} module_roots;

typedef struct gathering {
    gv_extent *extent;
    module_roots *modules;
    size_t count, capacity;
    gv_error *error;
} gathering;

static gv_status out_of_memory(gathering *g)
{
    return gv_fail(g->error, GV_ERR_MEMORY, "memory ran out");
}

static module_roots *roots_of(gathering *g, CUmodule module)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->modules[i].module == module)
            return &g->modules[i];
    if (!GV_GROW(g->modules, g->capacity, g->count + 1))
        return NULL;
    g->modules[g->count] = (module_roots){.module = module};
    return &g->modules[g->count++];
}

static gv_status add_kernel(gathering *g, const gv_snapshot_node *node)
{
    CUDA_KERNEL_NODE_PARAMS params;
    CUmodule module = NULL;
    gv_parameters parameters = {0};
    memset(&params, 0, sizeof params);
    if (gv_cuda.cuGraphKernelNodeGetParams(node->node, &params) != CUDA_SUCCESS) {
        refuse(g->extent, "the driver does not tell the parameters of a kernel");
        return GV_OK;
    }
    CUfunction function = params.func ? params.func : (CUfunction)params.kern;
    if (gv_cuda.cuFuncGetModule(&module, function) != CUDA_SUCCESS)
        refuse(g->extent, "the driver does not tell the module of a kernel");
    module_roots *to = roots_of(g, module);
    gv_status status = to ? gv_parameters_read(&parameters, function, &params, g->error) : out_of_memory(g);
    for (size_t i = 0; i < parameters.count && !status; i++) {
        bool known = false;
        // The kernels of a layer are given the same addresses over and over.
        for (size_t k = to->count; k > 0 && to->count - k < 64 && !known; k--)
            known = to->roots[k - 1] == parameters.items[i].address;
        if (known)
            continue;
        if (!GV_GROW(to->roots, to->capacity, to->count + 1))
            status = out_of_memory(g);
        else
            to->roots[to->count++] = parameters.items[i].address;
    }
    gv_parameters_free(&parameters);
    return status;
}

static gv_status add_set(gathering *g, gv_range_set *to, const gv_range_set *more)
{
    gv_status status = GV_OK;
    gv_range_set_settle(more);
    for (size_t i = 0; i < more->count && !status; i++)
        status = gv_range_set_add(to, more->ranges[i].start, more->ranges[i].end, g->error);
    return status;
}

static gv_status reach_all(gathering *g, gv_reach *reach)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < g->count && !status && !g->extent->refusal[0]; i++) {
        const module_roots *from = &g->modules[i];
        gv_reached reached = {0};
        gv_error why = {0};
        gv_status searched = gv_reach_from(reach, from->roots, from->count, from->module, &reached, &why);
        if (searched == GV_ERR_MEMORY)
            status = gv_fail(g->error, GV_ERR_MEMORY, "%s", why.text);
        else if (searched || reached.incomplete[0])
            refuse(g->extent, reached.incomplete[0] ? reached.incomplete : why.text);
        if (!status)
            status = add_set(g, &g->extent->writable, &reached.memory);
        if (!status)
            status = add_set(g, &g->extent->reached, &reached.memory);
        // Which of the two it does with it the parameters do not say. A flag that the processor waits for must not be
        // set twice.
        if (!status && reached.shared.count)
            refuse(g->extent, "a kernel may write memory that the processor or others can see (page-locked, managed or "
                              "exported), which must not happen more often than the program asks");
        gv_reached_free(&reached);
    }
    return status;
}

// ---- Copies and sets ---------------------------------------------------------------------------------------------

enum side { SIDE_DEVICE, SIDE_SHARED, SIDE_PAGEABLE };

static enum side side_of(uint64_t address)
{
    unsigned type = 0, managed = 0;
    if (gv_cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS || !type)
        return SIDE_PAGEABLE;
    gv_cuda.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
    return managed || type == CU_MEMORYTYPE_HOST ? SIDE_SHARED : SIDE_DEVICE;
}

static gv_status add_ranges(gathering *g, const gv_range_set *reads, const gv_range_set *writes)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < writes->count && !status; i++) {
        gv_range range = writes->ranges[i];
        if (side_of(range.start) == SIDE_DEVICE)
            status = gv_range_set_add(&g->extent->writable, range.start, range.end, g->error);
        else
            refuse(g->extent, "it copies to host memory, where others would see it more often than the program asks");
    }
    for (size_t i = 0; i < reads->count && !status; i++) {
        gv_range range = reads->ranges[i];
        enum side side = side_of(range.start);
        if (side != SIDE_DEVICE)
            status = gv_range_set_add(side == SIDE_SHARED ? &g->extent->shared : &g->extent->host, range.start,
                                      range.end, g->error);
    }
    return status;
}

static gv_status add_copy(gathering *g, const gv_snapshot_node *node)
{
    uint64_t detail[9];
    gv_range_set reads = {0}, writes = {0};
    gv_status status = GV_OK;
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS set;
    memset(&copy, 0, sizeof copy);
    memset(&set, 0, sizeof set);
    if (node->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        if (gv_cuda.cuGraphMemcpyNodeGetParams(node->node, &copy) != CUDA_SUCCESS) {
            refuse(g->extent, "the driver does not tell the parameters of a memcpy");
            return GV_OK;
        }
        if (copy.dstMemoryType == CU_MEMORYTYPE_ARRAY)
            refuse(g->extent, "it copies to a CUDA array, whose bytes have no address");
        gv_numbers numbers = {detail, gv_memcpy_detail(&copy, detail)};
        status = gv_memcpy_access(numbers, &reads, &writes, g->error);
    } else {
        if (gv_cuda.cuGraphMemsetNodeGetParams(node->node, &set) != CUDA_SUCCESS) {
            refuse(g->extent, "the driver does not tell the parameters of a memset");
            return GV_OK;
        }
        gv_numbers numbers = {detail, gv_memset_detail(&set, detail)};
        status = gv_memset_access(numbers, &writes, g->error);
    }
    if (status && status != GV_ERR_MEMORY) {
        refuse(g->extent, "the parameters of a copy name more ranges than can be kept");
        status = GV_OK;
    }
    gv_range_set_settle(&reads);
    gv_range_set_settle(&writes);
    if (!status)
        status = add_ranges(g, &reads, &writes);
    gv_range_set_free(&reads);
    gv_range_set_free(&writes);
    return status;
}

// ---- The graph ---------------------------------------------------------------------------------------------------

static gv_status add_nodes(gathering *g, const gv_snapshot *snapshot)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < snapshot->node_count && !status; i++) {
        const gv_snapshot_node *node = &snapshot->nodes[i];
        if (node->disabled)
            continue;
        if (node->type == CU_GRAPH_NODE_TYPE_KERNEL)
            status = add_kernel(g, node);
        else if (node->type == CU_GRAPH_NODE_TYPE_MEMCPY || node->type == CU_GRAPH_NODE_TYPE_MEMSET)
            status = add_copy(g, node);
        else if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            status = add_nodes(g, node->bodies[0]);
    }
    return status;
}

gv_status gv_extent_of(gv_reach *reach, const gv_snapshot *snapshot, gv_extent *extent, gv_error *error)
{
    gathering g = {.extent = extent, .error = error};
    const char *obstacle = gv_extent_obstacle(snapshot);
    if (obstacle)
        refuse(extent, obstacle);
    gv_status status = obstacle ? GV_OK : add_nodes(&g, snapshot);
    if (!status)
        status = reach_all(&g, reach);
    for (size_t i = 0; i < g.count; i++)
        gv_free(g.modules[i].roots);
    gv_free(g.modules);
    gv_range_set_settle(&extent->writable);
    gv_range_set_settle(&extent->reached);
    gv_range_set_settle(&extent->shared);
    gv_range_set_settle(&extent->host);
    return status;
}
