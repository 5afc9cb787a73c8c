#include "record/snapshot.h"

#include "base/memory.h"
#include "record/condition.h"
#include "record/graph_copy.h"
#include "record/ids.h"
#include "record/recorder.h"

#include <stdio.h>
#include <string.h>

// ---- Parameters as numbers -----------------------------------------------------------------------------------

// The first byte one side of a copy touches; 0 for an array, whose bytes have no address.
static uint64_t side(CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y, size_t z,
                     size_t pitch, size_t height)
{
    uint64_t base = type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)host : type == CU_MEMORYTYPE_ARRAY ? 0 : device;
    return base ? base + x + y * pitch + z * pitch * height : 0;
}

size_t gv_memcpy_detail(const CUDA_MEMCPY3D *copy, uint64_t detail[9])
{
    size_t rows = copy->Height ? copy->Height : 1, slices = copy->Depth ? copy->Depth : 1;
    size_t to_height = copy->dstHeight ? copy->dstHeight : rows, from_height = copy->srcHeight ? copy->srcHeight : rows;
    size_t to_pitch = copy->dstPitch ? copy->dstPitch : copy->WidthInBytes;
    size_t from_pitch = copy->srcPitch ? copy->srcPitch : copy->WidthInBytes;
    detail[0] = side(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstXInBytes, copy->dstY, copy->dstZ,
                     to_pitch, to_height);
    detail[1] = side(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcXInBytes, copy->srcY, copy->srcZ,
                     from_pitch, from_height);
    detail[2] = copy->WidthInBytes;
    detail[3] = rows;
    detail[4] = slices;
    detail[5] = to_pitch;
    detail[6] = from_pitch;
    detail[7] = to_pitch * to_height;
    detail[8] = from_pitch * from_height;
    return 9;
}

size_t gv_memset_detail(const CUDA_MEMSET_NODE_PARAMS *set, uint64_t detail[6])
{
    detail[0] = set->dst;
    detail[1] = set->value;
    detail[2] = set->elementSize;
    detail[3] = set->width;
    detail[4] = set->height ? set->height : 1;
    detail[5] = set->pitch;
    return 6;
}

// ---- Reading -------------------------------------------------------------------------------------------------

static void refuse(gv_snapshot *snapshot, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void refuse(gv_snapshot *snapshot, const char *format, ...)
{
    if (snapshot->refusal[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(snapshot->refusal, sizeof snapshot->refusal, format, arguments);
    va_end(arguments);
}

typedef struct listing {
    CUgraphNode *nodes;
    size_t count;
} listing;

static bool list_nodes(CUgraph graph, listing *list, CUresult *result)
{
    *list = (listing){0};
    *result = gv_cuda.cuGraphGetNodes(graph, NULL, &list->count);
    // The driver takes an array of no nodes for a mistake (CUDA_ERROR_INVALID_VALUE).
    if (*result != CUDA_SUCCESS || !list->count)
        return true;
    list->nodes = gv_calloc(list->count, sizeof *list->nodes);
    if (!list->nodes)
        return false;
    *result = gv_cuda.cuGraphGetNodes(graph, list->nodes, &list->count);
    return true;
}

// Open addressing from node handle to index; the graph's edges name nodes by handle.
typedef struct node_index {
    CUgraphNode *keys;
    uint32_t *values;
    size_t mask;
} node_index;

static bool index_nodes(node_index *index, const listing *list)
{
    size_t slots = 16;
    while (slots < list->count * 2)
        slots *= 2;
    index->keys = gv_calloc(slots, sizeof *index->keys);
    index->values = gv_calloc(slots, sizeof *index->values);
    index->mask = slots - 1;
    if (!index->keys || !index->values)
        return false;
    for (size_t i = 0; i < list->count; i++) {
        size_t slot = ((uintptr_t)list->nodes[i] >> 4) * 0x9e3779b97f4a7c15ull >> 20 & index->mask;
        while (index->keys[slot])
            slot = (slot + 1) & index->mask;
        index->keys[slot] = list->nodes[i];
        index->values[slot] = (uint32_t)i;
    }
    return true;
}

static bool index_of(const node_index *index, CUgraphNode node, uint32_t *value)
{
    size_t slot = ((uintptr_t)node >> 4) * 0x9e3779b97f4a7c15ull >> 20 & index->mask;
    while (index->keys[slot] && index->keys[slot] != node)
        slot = (slot + 1) & index->mask;
    *value = index->values[slot];
    return index->keys[slot] == node;
}

// Edges are always asked for with their data: without it the query fails as soon as one is programmatic.
static bool read_edges(gv_snapshot *snapshot, CUgraph graph, const node_index *index)
{
    size_t count = 0;
    CUresult result = gv_cuda.cuGraphGetEdges(graph, NULL, NULL, NULL, &count);
    CUgraphNode *from = gv_calloc(count, sizeof *from), *to = gv_calloc(count, sizeof *to);
    CUgraphEdgeData *data = gv_calloc(count, sizeof *data);
    snapshot->edges = gv_calloc(count, 4 * sizeof *snapshot->edges);
    bool enough = from && to && data && snapshot->edges;
    if (enough && result == CUDA_SUCCESS && count)
        result = gv_cuda.cuGraphGetEdges(graph, from, to, data, &count);
    if (enough && result != CUDA_SUCCESS) {
        snapshot->flags |= GV_GRAPH_UNREADABLE;
        refuse(snapshot, "the driver does not list its edges: %s", gv_driver_error(result));
        count = 0;
    }
    for (size_t i = 0; enough && i < count; i++) {
        uint32_t a, b;
        if (!index_of(index, from[i], &a) || !index_of(index, to[i], &b)) {
            snapshot->flags |= GV_GRAPH_UNREADABLE;
            refuse(snapshot, "an edge names a node that is not listed");
            continue;
        }
        uint64_t *edge = snapshot->edges + 4 * snapshot->edge_count++;
        edge[0] = a;
        edge[1] = b;
        edge[2] = data[i].from_port;
        edge[3] = data[i].type;
    }
    gv_free(from);
    gv_free(to);
    gv_free(data);
    return enough;
}

// Kahn's algorithm; ties by index, so that the order is the same in every run.
static bool sort_nodes(gv_snapshot *snapshot)
{
    size_t count = snapshot->node_count, edges = snapshot->edge_count;
    uint32_t *waiting = gv_calloc(count, sizeof *waiting), *first = gv_calloc(count + 1, sizeof *first);
    uint32_t *targets = gv_calloc(edges, sizeof *targets);
    snapshot->order = gv_calloc(count, sizeof *snapshot->order);
    if (!waiting || !first || !targets || !snapshot->order) {
        gv_free(waiting);
        gv_free(first);
        gv_free(targets);
        return false;
    }
    for (size_t i = 0; i < edges; i++) {
        first[snapshot->edges[4 * i] + 1]++;
        waiting[snapshot->edges[4 * i + 1]]++;
    }
    for (size_t i = 0; i < count; i++)
        first[i + 1] += first[i];
    for (size_t i = edges; i-- > 0;)
        targets[--first[snapshot->edges[4 * i] + 1]] = (uint32_t)snapshot->edges[4 * i + 1];
    size_t done = 0;
    for (size_t i = 0; i < count; i++)
        if (!waiting[i])
            snapshot->order[done++] = (uint32_t)i;
    for (size_t next = 0; next < done; next++) {
        uint32_t node = snapshot->order[next];
        uint32_t end = node + 2 <= count ? first[node + 2] : (uint32_t)edges;
        for (uint32_t i = first[node + 1]; i < end; i++)
            if (--waiting[targets[i]] == 0)
                snapshot->order[done++] = targets[i];
    }
    if (done < count)
        refuse(snapshot, "its edges have a cycle");
    gv_free(waiting);
    gv_free(first);
    gv_free(targets);
    return true;
}

static const char *type_refusal(CUgraphNodeType type)
{
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return NULL;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return "it allocates or frees memory in its nodes";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return "it waits for or writes flags in memory (batch memory operations)";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: return "it signals or waits for external semaphores";
    default: return "it has nodes of a kind this gravel does not know";
    }
}

// A node whose parameters kernels may replace on the device: its arguments at launch are not those we would read.
static bool is_device_updatable(CUgraphNode node)
{
    CUlaunchAttributeValue value;
    memset(&value, 0, sizeof value);
    return gv_cuda.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value) ==
               CUDA_SUCCESS &&
           value.deviceUpdatableKernelNode.deviceUpdatable;
}

typedef struct taking {
    bool clone_wanted;
    gv_place_of place_of;
    void (*remember)(CUgraphNode node, gv_snapshot *snapshot, uint32_t index, void *user);
    void *user;
} taking;

static gv_snapshot *take(CUgraph graph, CUgraph clone, unsigned origin, const taking *how);

// A copy that outlives the program's graph. NULL: there can be none.
static CUgraph copy_of(CUgraph graph)
{
    CUgraph copy = NULL;
    CUcontext context = NULL;
    if (gv_cuda.cuGraphClone(&copy, graph) == CUDA_SUCCESS)
        return copy;
    // Nodes that are not copied have an empty one in their place. But for conditional nodes, which are not run by what
    // a copy says, take_node refuses such graphs.
    if (gv_cuda.cuCtxGetCurrent(&context) != CUDA_SUCCESS || gv_copy_nodes(graph, context, &copy) != CUDA_SUCCESS)
        copy = NULL;
    return copy;
}

// Reads the graphs inside a node. False when memory is out.
static bool take_bodies(gv_snapshot *snapshot, uint32_t index, const CUgraph *bodies, CUgraph clone, size_t count,
                        unsigned origin, const taking *how)
{
    gv_snapshot_node *node = &snapshot->nodes[index];
    node->bodies = gv_calloc(count, sizeof *node->bodies);
    if (!node->bodies)
        return false;
    for (size_t i = 0; i < count; i++) {
        CUgraph copy = origin == GV_GRAPH_BODY && how->clone_wanted ? copy_of(bodies[i]) : clone;
        gv_snapshot *body = take(bodies[i], copy, origin, how);
        if (!body && origin == GV_GRAPH_BODY && copy)
            gv_cuda.cuGraphDestroy(copy);
        if (!body)
            return false;
        body->owned = origin == GV_GRAPH_BODY && copy;
        node->bodies[node->body_count++] = body;
        body->parent_node = index;
        if (body->refusal[0])
            refuse(snapshot, "in %s node #%u: %.180s", origin == GV_GRAPH_CHILD ? "the child graph of" : "a body of",
                   index, body->refusal);
    }
    return true;
}

// Fills one node from the template's node and, if there is a clone, from its counterpart there.
static bool take_node(gv_snapshot *snapshot, uint32_t index, CUgraphNode original, CUgraph clone,
                      const listing *clone_nodes, const taking *how)
{
    gv_snapshot_node *node = &snapshot->nodes[index];
    node->node = original;
    CUresult result = gv_cuda.cuGraphNodeGetType(original, &node->type);
    if (result != CUDA_SUCCESS) {
        refuse(snapshot, "the driver does not tell node #%u's type: %s", index, gv_driver_error(result));
        node->type = CU_GRAPH_NODE_TYPE_EMPTY;
        snapshot->flags |= GV_GRAPH_UNREADABLE;
    }
    gv_node_place place = how->place_of(original);
    node->stack = place.stack;
    node->stream = place.stream;
    node->order = place.order;
    if (how->remember)
        how->remember(original, snapshot, index, how->user);
    const char *why = type_refusal(node->type);
    if (why)
        refuse(snapshot, "%s", why);
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL && is_device_updatable(original))
        refuse(snapshot, "node #%u's parameters can be changed by kernels", index);

    if (clone) {
        // A child's embedded graph is no clone of its own that cuGraphNodeFindInClone would accept everywhere: there
        // the nodes stand in the same order.
        CUgraphNode counterpart = NULL;
        if (gv_cuda.cuGraphNodeFindInClone(&counterpart, original, clone) != CUDA_SUCCESS || !counterpart)
            counterpart = index < clone_nodes->count ? clone_nodes->nodes[index] : NULL;
        CUgraphNodeType type;
        if (!counterpart || gv_cuda.cuGraphNodeGetType(counterpart, &type) != CUDA_SUCCESS ||
            (type != node->type && node->type != CU_GRAPH_NODE_TYPE_CONDITIONAL))
            refuse(snapshot, "node #%u has no counterpart in a clone of the graph", index);
        else
            node->node = counterpart;
    }

    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        CUgraph child = NULL, child_clone = NULL;
        if (gv_cuda.cuGraphChildGraphNodeGetGraph(original, &child) != CUDA_SUCCESS) {
            refuse(snapshot, "the child graph of node #%u cannot be read", index);
            return true;
        }
        if (clone && gv_cuda.cuGraphChildGraphNodeGetGraph(node->node, &child_clone) != CUDA_SUCCESS)
            child_clone = NULL;
        return take_bodies(snapshot, index, &child, child_clone, 1, GV_GRAPH_CHILD, how);
    }
    if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        node->condition = place.condition;
        if (!place.condition.size)
            refuse(snapshot, "the making of conditional node #%u was not seen", index);
        return take_bodies(snapshot, index, place.bodies, NULL, place.body_count, GV_GRAPH_BODY, how);
    }
    return true;
}

static gv_snapshot *take(CUgraph graph, CUgraph clone, unsigned origin, const taking *how)
{
    gv_snapshot *snapshot = gv_calloc(1, sizeof *snapshot);
    if (!snapshot)
        return NULL;
    snapshot->origin = origin;
    snapshot->graph = clone ? clone : graph;
    listing list, clone_list = {0};
    node_index index = {0};
    CUresult result = CUDA_SUCCESS, clone_result = CUDA_SUCCESS;
    bool enough = list_nodes(graph, &list, &result);
    if (enough && clone)
        enough = list_nodes(clone, &clone_list, &clone_result);
    if (enough && result != CUDA_SUCCESS) {
        snapshot->flags |= GV_GRAPH_UNREADABLE;
        refuse(snapshot, "the driver does not list its nodes: %s", gv_driver_error(result));
        list.count = 0;
    }
    if (enough) {
        snapshot->nodes = gv_calloc(list.count, sizeof *snapshot->nodes);
        enough = snapshot->nodes && index_nodes(&index, &list);
    }
    for (size_t i = 0; enough && i < list.count; i++) {
        snapshot->node_count = i + 1;
        enough = take_node(snapshot, (uint32_t)i, list.nodes[i], clone, &clone_list, how);
    }
    enough = enough && read_edges(snapshot, graph, &index) && sort_nodes(snapshot);
    // Last: a kind of node that the driver refuses to clone is the better reason.
    if (how->clone_wanted && !clone)
        refuse(snapshot, "the driver does not clone it");
    gv_free(list.nodes);
    gv_free(clone_list.nodes);
    gv_free(index.keys);
    gv_free(index.values);
    if (!enough) {
        gv_snapshot_free(snapshot);
        return NULL;
    }
    return snapshot;
}

gv_snapshot *gv_snapshot_take(CUgraph graph, unsigned origin, bool clone, gv_place_of place_of,
                              void (*remember)(CUgraphNode node, gv_snapshot *snapshot, uint32_t index, void *user),
                              void *user)
{
    taking how = {clone, place_of, remember, user};
    CUgraph copy = clone ? copy_of(graph) : NULL;
    gv_snapshot *snapshot = take(graph, copy, origin, &how);
    if (snapshot)
        snapshot->owned = copy != NULL;
    else if (copy)
        gv_cuda.cuGraphDestroy(copy);
    return snapshot;
}

void gv_snapshot_free(gv_snapshot *snapshot)
{
    if (!snapshot)
        return;
    gv_conditions_free(snapshot->conditions);
    for (size_t i = 0; snapshot->nodes && i < snapshot->node_count; i++) {
        for (size_t body = 0; body < snapshot->nodes[i].body_count; body++)
            gv_snapshot_free(snapshot->nodes[i].bodies[body]);
        gv_free(snapshot->nodes[i].bodies);
    }
    if (snapshot->owned)
        gv_cuda.cuGraphDestroy(snapshot->graph);
    gv_free(snapshot->nodes);
    gv_free(snapshot->order);
    gv_free(snapshot->edges);
    gv_free(snapshot);
}

// ---- Writing -------------------------------------------------------------------------------------------------

static void write_node(const gv_snapshot *snapshot, uint32_t index)
{
    const gv_snapshot_node *node = &snapshot->nodes[index];
    uint64_t shape[7], detail[9], *bodies = NULL;
    gv_node_record record = {
        .graph = snapshot->id,
        .index = index,
        .kind = (uint64_t)node->type,
        .stack = node->stack,
        .stream = node->stream,
        .order = node->order,
        .child = node->body_count ? node->bodies[0]->id : 0,
        .flags = node->disabled ? GV_NODE_DISABLED : 0,
    };
    record.detail.items = detail;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS params;
        memset(&params, 0, sizeof params);
        if (gv_cuda.cuGraphKernelNodeGetParams(node->node, &params) != CUDA_SUCCESS)
            break;
        record.function = gv_function_id(params.func ? params.func : (CUfunction)params.kern);
        record.context = gv_context_id(params.ctx);
        uint64_t numbers[7] = {params.gridDimX,  params.gridDimY,  params.gridDimZ,      params.blockDimX,
                               params.blockDimY, params.blockDimZ, params.sharedMemBytes};
        memcpy(shape, numbers, sizeof shape);
        record.shape = (gv_numbers){shape, 7};
        break;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
        CUDA_MEMCPY3D copy;
        memset(&copy, 0, sizeof copy);
        if (gv_cuda.cuGraphMemcpyNodeGetParams(node->node, &copy) == CUDA_SUCCESS)
            record.detail.count = gv_memcpy_detail(&copy, detail);
        break;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS set;
        memset(&set, 0, sizeof set);
        if (gv_cuda.cuGraphMemsetNodeGetParams(node->node, &set) == CUDA_SUCCESS)
            record.detail.count = gv_memset_detail(&set, detail);
        break;
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        CUDA_HOST_NODE_PARAMS host;
        memset(&host, 0, sizeof host);
        if (gv_cuda.cuGraphHostNodeGetParams(node->node, &host) == CUDA_SUCCESS) {
            detail[0] = (uint64_t)(uintptr_t)host.fn;
            detail[1] = (uint64_t)(uintptr_t)host.userData;
            record.detail.count = 2;
        }
        break;
    }
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: {
        CUevent event = NULL;
        CUresult result = node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD
                              ? gv_cuda.cuGraphEventRecordNodeGetEvent(node->node, &event)
                              : gv_cuda.cuGraphEventWaitNodeGetEvent(node->node, &event);
        if (result == CUDA_SUCCESS) {
            detail[0] = gv_event_id(event);
            record.detail.count = 1;
        }
        break;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
        CUDA_MEM_ALLOC_NODE_PARAMS params;
        memset(&params, 0, sizeof params);
        if (gv_cuda.cuGraphMemAllocNodeGetParams(node->node, &params) == CUDA_SUCCESS) {
            detail[0] = params.dptr;
            detail[1] = params.bytesize;
            record.detail.count = 2;
        }
        break;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE: {
        CUdeviceptr address = 0;
        if (gv_cuda.cuGraphMemFreeNodeGetParams(node->node, &address) == CUDA_SUCCESS) {
            detail[0] = address;
            record.detail.count = 1;
        }
        break;
    }
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        bodies = gv_calloc(GV_CONDITIONAL_BODIES + node->body_count, sizeof *bodies);
        if (!bodies)
            break; // its bodies are then not known, which the report says
        bodies[0] = node->condition.type;
        bodies[1] = node->condition.handle;
        bodies[2] = node->condition.initial;
        bodies[3] = node->condition.assigned;
        for (size_t i = 0; i < node->body_count; i++)
            bodies[GV_CONDITIONAL_BODIES + i] = node->bodies[i]->id;
        record.detail = (gv_numbers){bodies, GV_CONDITIONAL_BODIES + node->body_count};
        break;
    default: break;
    }
    gv_write_node(gv_state.writer, &record);
    gv_free(bodies);
}

static void write_graph(gv_snapshot *snapshot, uint64_t parent)
{
    snapshot->id = gv_next_graph_id();
    snapshot->parent = parent;
    gv_graph_record record = {
        .id = snapshot->id,
        .origin = snapshot->origin,
        .nodes = snapshot->node_count,
        .edges = snapshot->edge_count,
        .stack = snapshot->stack,
        .parent = parent,
        .parent_node = snapshot->parent_node,
        .flags = snapshot->flags,
    };
    gv_write_graph(gv_state.writer, &record);
    // Children first: a node record names its child by the id that its own graph record defines.
    for (size_t i = 0; i < snapshot->node_count; i++)
        for (size_t body = 0; body < snapshot->nodes[i].body_count; body++)
            write_graph(snapshot->nodes[i].bodies[body], snapshot->id);
    for (size_t i = 0; i < snapshot->node_count; i++)
        write_node(snapshot, (uint32_t)i);
    if (snapshot->edge_count) {
        gv_edges_record edges = {.graph = snapshot->id, .items = {snapshot->edges, 4 * snapshot->edge_count}};
        gv_write_edges(gv_state.writer, &edges);
    }
}

void gv_snapshot_write(gv_snapshot *snapshot)
{
    write_graph(snapshot, 0);
}
