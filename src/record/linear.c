#include "record/linear.h"

#include "base/memory.h"
#include "record/driver.h"
#include "record/graph_copy.h"
#include "record/serial_order.h"

#include <string.h>

// One node to run.
typedef struct link {
    CUgraphNode node; // of the snapshot
    CUgraphNodeType type;
} link;

struct gv_linear {
    CUcontext context;
    unsigned long long context_id; // its handle may be given to another
    uint64_t version, which;
    link *links;
    size_t count, capacity;
    CUgraph graph;
    CUgraphExec exec;
};

// ---- The order ---------------------------------------------------------------------------------------------------

static gv_status list_links(gv_linear *linear, const gv_snapshot *snapshot, uint64_t which, gv_error *error)
{
    uint32_t *order = gv_calloc(snapshot->node_count, sizeof *order);
    gv_status status = order && gv_serial_order(snapshot, which, order) ? GV_OK : GV_ERR_MEMORY;
    for (size_t i = 0; i < snapshot->node_count && !status; i++) {
        const gv_snapshot_node *node = &snapshot->nodes[order[i]];
        if (node->disabled)
            continue;
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) {
            status = list_links(linear, node->bodies[0], which, error);
        } else if (node->type == CU_GRAPH_NODE_TYPE_KERNEL || node->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                   node->type == CU_GRAPH_NODE_TYPE_MEMSET) {
            if (GV_GROW(linear->links, linear->capacity, linear->count + 1))
                linear->links[linear->count++] = (link){node->node, node->type};
            else
                status = GV_ERR_MEMORY;
        }
    }
    gv_free(order);
    return status ? gv_fail(error, status, "memory ran out") : GV_OK;
}

static bool is_same(const gv_linear *a, const gv_linear *b)
{
    bool same =
        a->version == b->version && a->context == b->context && a->context_id == b->context_id && a->count == b->count;
    for (size_t i = 0; i < a->count && same; i++)
        same = a->links[i].node == b->links[i].node;
    return same;
}

// ---- The graph ---------------------------------------------------------------------------------------------------

static gv_status build(gv_linear *linear, gv_error *error)
{
    CUgraphNode last = NULL, next = NULL;
    CUresult result = gv_cuda.cuGraphCreate(&linear->graph, 0);
    for (size_t i = 0; i < linear->count && result == CUDA_SUCCESS; i++) {
        const link *at = &linear->links[i];
        result = gv_copy_node(linear->graph, at->node, at->type, NULL, linear->context, &last, i ? 1 : 0, &next);
        last = next;
    }
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuGraphInstantiateWithFlags(&linear->exec, linear->graph, 0);
    return result == CUDA_SUCCESS
               ? GV_OK
               : gv_driver_failed(error, "the nodes could not be made a graph of one behind the other", result);
}

gv_status gv_linear_make(gv_linear **linear, const gv_snapshot *snapshot, CUcontext context, uint64_t which,
                         uint64_t version, gv_error *error)
{
    gv_linear *made = gv_calloc(1, sizeof *made);
    if (!made) {
        gv_linear_free(*linear);
        *linear = NULL;
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    }
    made->context = context;
    made->version = version;
    made->which = which;
    gv_status status = gv_cuda.cuCtxGetId(context, &made->context_id) == CUDA_SUCCESS
                           ? list_links(made, snapshot, which, error)
                           : gv_fail(error, GV_ERR_IO, "the driver does not tell the id of the context");
    if (!status && *linear && is_same(*linear, made)) {
        (*linear)->which = which;
        gv_linear_free(made);
        return GV_OK;
    }
    gv_linear_free(*linear);
    *linear = NULL;
    if (!status)
        status = build(made, error);
    if (status)
        gv_linear_free(made);
    else
        *linear = made;
    return status;
}

bool gv_linear_is(const gv_linear *linear, uint64_t which, uint64_t version)
{
    return linear->which == which && linear->version == version;
}

CUresult gv_linear_launch(const gv_linear *linear, CUstream stream)
{
    return gv_cuda.cuGraphLaunch(linear->exec, stream);
}

void gv_linear_free(gv_linear *linear)
{
    CUcontext current = NULL;
    unsigned long long id = 0;
    if (!linear)
        return;
    // An executable graph goes with its context, and only of the current one it is known that it is there.
    if (linear->exec && gv_cuda.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == linear->context &&
        gv_cuda.cuCtxGetId(current, &id) == CUDA_SUCCESS && id == linear->context_id)
        gv_cuda.cuGraphExecDestroy(linear->exec);
    if (linear->graph)
        gv_cuda.cuGraphDestroy(linear->graph);
    gv_free(linear->links);
    gv_free(linear);
}
