// Stream capture: which streams take part, what their next nodes depend on, and what ends a capture badly.
#include "soft/capture.h"

#include "soft/context.h"
#include "soft/event.h"
#include "soft/graph.h"
#include "soft/launch.h"
#include "soft/stream.h"

static struct capture *captures;
static uint64_t last_capture;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// ---- Dependency sets ----

void dependency_set_clear(struct dependency_set *set)
{
    gv_free(set->nodes);
    gv_free(set->edges);
    *set = (struct dependency_set){0};
}

static bool set_add(struct dependency_set *set, CUgraphNode node, const CUgraphEdgeData *data)
{
    for (size_t i = 0; i < set->count; i++) {
        if (set->nodes[i] != node)
            continue;
        // Of two ways to depend on a node the stronger counts: there is one edge between two nodes.
        if (!data || edge_data_is_default(data))
            set->edges[i] = (CUgraphEdgeData){0};
        return true;
    }
    if (!GV_GROW(set->nodes, set->node_capacity, set->count + 1) ||
        !GV_GROW(set->edges, set->edge_capacity, set->count + 1))
        return false;
    set->nodes[set->count] = node;
    set->edges[set->count++] = data ? *data : (CUgraphEdgeData){0};
    return true;
}

static bool set_union(struct dependency_set *set, const struct dependency_set *other)
{
    for (size_t i = 0; i < other->count; i++)
        if (!set_add(set, other->nodes[i], &other->edges[i]))
            return false;
    return true;
}

// ---- State ----

static struct capture *capture_by_id(uint64_t id)
{
    for (struct capture *capture = captures; capture; capture = capture->next)
        if (capture->id == id)
            return capture;
    return NULL;
}

void capture_invalidate(struct capture *capture)
{
    capture->invalidated = true;
}

CUresult capture_usable(CUstream stream)
{
    return stream->capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

struct stream_visit {
    struct capture *capture;
    void (*visit)(CUstream stream, struct capture *capture);
};

static void visit_if_taking_part(struct object *object, void *user)
{
    struct stream_visit *visit = user;
    CUstream stream = (CUstream)object;
    if (stream->capture == visit->capture)
        visit->visit(stream, visit->capture);
}

static void leave(CUstream stream, struct capture *capture)
{
    (void)capture;
    stream->capture = NULL;
    dependency_set_clear(&stream->dependencies);
}

// Takes a capture off the list and its streams out of it. The graph is the caller's.
static void capture_close(struct capture *capture)
{
    struct stream_visit visit = {capture, leave};
    object_each(OBJECT_STREAM, visit_if_taking_part, &visit);
    struct capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    capture->graph->captures--;
    dependency_set_clear(&capture->orphans);
    gv_free(capture);
}

CUresult capture_forbid_unsafe(void)
{
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    bool forbidden = false;
    uint64_t thread = driver_thread();
    for (struct capture *capture = captures; capture; capture = capture->next) {
        bool own = capture->thread == thread && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool other = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (own || other) {
            capture_invalidate(capture);
            forbidden = true;
        }
    }
    return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

// Does any blocking stream of the context capture? With `invalidate`, such captures fail.
static bool blocking_capture(CUcontext context, bool invalidate)
{
    bool found = false;
    for (size_t i = 0; i < context->stream_count; i++) {
        CUstream stream = context->streams[i];
        if (!stream->capture || stream->flags & CU_STREAM_NON_BLOCKING)
            continue;
        found = true;
        if (invalidate)
            capture_invalidate(stream->capture);
    }
    return found;
}

CUresult capture_check_implicit(CUcontext context)
{
    return blocking_capture(context, true) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

void capture_stream_gone(CUstream stream)
{
    struct capture *capture = stream->capture;
    if (!capture)
        return;
    if (capture->origin == stream) {
        CUgraph graph = capture->owns_graph ? capture->graph : NULL;
        capture_close(capture);
        if (graph)
            graph_delete(graph);
        return;
    }
    // Its work has to be joined all the same.
    if (!set_union(&capture->orphans, &stream->dependencies))
        capture_invalidate(capture);
    leave(stream, capture);
}

static void forget_in(struct dependency_set *set, CUgraphNode node)
{
    for (size_t i = 0; i < set->count; i++) {
        if (set->nodes[i] != node)
            continue;
        memmove(&set->nodes[i], &set->nodes[i + 1], (set->count - i - 1) * sizeof *set->nodes);
        memmove(&set->edges[i], &set->edges[i + 1], (set->count - i - 1) * sizeof *set->edges);
        set->count--;
        return;
    }
}

static void forget_node(struct object *object, void *user)
{
    forget_in(&((CUstream)object)->dependencies, user);
}

void capture_node_gone(CUgraphNode node)
{
    if (!node->graph->captures)
        return;
    object_each(OBJECT_STREAM, forget_node, node);
    for (struct capture *capture = captures; capture; capture = capture->next)
        forget_in(&capture->orphans, node);
}

// ---- Recording ----

// A kernel launched with programmatic serialisation may start before the kernels ahead of it in the stream end. Only
// kernels can wait for the rest: what else depends on a kernel that has triggered waits for its end.
static void make_programmatic(struct dependency_set *set, const struct operation *operation)
{
    if (operation->kind != CU_GRAPH_NODE_TYPE_KERNEL) {
        for (size_t i = 0; i < set->count; i++)
            if (set->edges[i].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
                set->edges[i] = (CUgraphEdgeData){0};
        return;
    }
    if (!kernel_operation_is_programmatic(&operation->kernel))
        return;
    for (size_t i = 0; i < set->count; i++)
        if (set->nodes[i]->operation.kind == CU_GRAPH_NODE_TYPE_KERNEL && edge_data_is_default(&set->edges[i]))
            set->edges[i] = (CUgraphEdgeData){.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                              .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
}

CUresult capture_operation(CUstream stream, struct operation *operation, CUgraphNode *node_out)
{
    struct dependency_set *after = &stream->dependencies;
    make_programmatic(after, operation);
    CUgraphNode node;
    CUresult result =
        graph_add_node(stream->capture->graph, operation, after->nodes, after->edges, after->count, &node);
    if (result != CUDA_SUCCESS) {
        capture_invalidate(stream->capture);
        return result;
    }
    after->count = 0;
    if (!set_add(after, node, NULL)) {
        capture_invalidate(stream->capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (node_out)
        *node_out = node;
    return CUDA_SUCCESS;
}

void captured_event_clear(struct captured_event *event)
{
    event->capture = 0;
    dependency_set_clear(&event->after);
}

bool captured_event_active(const struct captured_event *event)
{
    return capture_by_id(event->capture) != NULL;
}

void captured_event_invalidate(const struct captured_event *event)
{
    struct capture *capture = capture_by_id(event->capture);
    if (capture)
        capture_invalidate(capture);
}

CUresult capture_record_event(CUstream stream, struct captured_event *event)
{
    CUresult result = capture_usable(stream);
    if (result != CUDA_SUCCESS)
        return result;
    captured_event_clear(event);
    if (!set_union(&event->after, &stream->dependencies)) {
        captured_event_clear(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->capture = stream->capture->id;
    return CUDA_SUCCESS;
}

CUresult capture_record_launch(CUstream stream, struct captured_event *event, CUgraphNode node,
                               const CUgraphEdgeData *edge)
{
    captured_event_clear(event);
    if (!set_add(&event->after, node, edge))
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->capture = stream->capture->id;
    return CUDA_SUCCESS;
}

CUresult capture_wait_event(CUstream stream, struct captured_event *event)
{
    struct capture *source = event->capture ? capture_by_id(event->capture) : NULL;
    if (stream->capture && stream->capture->invalidated)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!source) {
        // The nodes of an ended capture are nothing to wait for; work outside is, but not from within a capture.
        if (stream->capture)
            capture_invalidate(stream->capture);
        return event->capture ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (source->invalidated)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->capture && stream->capture != source) {
        capture_invalidate(stream->capture);
        capture_invalidate(source);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (!stream->capture && stream == stream->context->legacy) {
        capture_invalidate(source);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    // The graph's nodes may have been destroyed since the record.
    for (size_t i = event->after.count; i-- > 0;)
        if (!object_is(event->after.nodes[i], OBJECT_NODE) || event->after.nodes[i]->graph != source->graph)
            return CUDA_ERROR_INVALID_VALUE;
    if (!set_union(&stream->dependencies, &event->after))
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->capture = source;
    return CUDA_SUCCESS;
}

// ---- Beginning and ending ----

static CUresult begin_capture(CUstream handle, CUgraph graph, const CUgraphNode *dependencies,
                              const CUgraphEdgeData *data, size_t count, CUstreamCaptureMode mode)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL && mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
        mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream == stream->context->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *capture = gv_calloc(1, sizeof *capture);
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->graph = graph;
    if (!graph) {
        result = graph_new(&capture->graph);
        capture->owns_graph = true;
    }
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (!object_is(dependencies[i], OBJECT_NODE) || dependencies[i]->graph != graph)
            result = CUDA_ERROR_INVALID_VALUE;
        else if (!set_add(&stream->dependencies, dependencies[i], data ? &data[i] : NULL))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        dependency_set_clear(&stream->dependencies);
        if (capture->owns_graph && capture->graph)
            graph_delete(capture->graph);
        gv_free(capture);
        return result;
    }
    capture->id = ++last_capture;
    capture->mode = mode;
    capture->thread = driver_thread();
    capture->origin = stream;
    capture->graph->captures++;
    capture->next = captures;
    captures = capture;
    stream->capture = capture;
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    SOFT_API(begin_capture(stream, NULL, NULL, NULL, 0, mode));
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    SOFT_API(begin_capture(PER_THREAD(stream), NULL, NULL, NULL, 0, mode));
}

CUresult cuStreamBeginCapture(CUstream stream)
{
    SOFT_API(begin_capture(stream, NULL, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    SOFT_API(begin_capture(PER_THREAD(stream), NULL, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static CUresult begin_capture_to_graph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                       const CUgraphEdgeData *data, size_t count, CUstreamCaptureMode mode)
{
    if (!object_is(graph, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    if (count && !dependencies)
        return CUDA_ERROR_INVALID_VALUE;
    return begin_capture(stream, graph, dependencies, data, count, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *data, size_t count, CUstreamCaptureMode mode)
{
    SOFT_API(begin_capture_to_graph(stream, graph, dependencies, data, count, mode));
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *data, size_t count, CUstreamCaptureMode mode)
{
    SOFT_API(begin_capture_to_graph(PER_THREAD(stream), graph, dependencies, data, count, mode));
}

// Marks what the origin's next node would come after, over any number of edges.
static void mark_reached(CUgraph graph, const struct dependency_set *from, unsigned char *reached, CUgraphNode *pending)
{
    size_t top = 0;
    for (size_t i = 0; i < from->count; i++) {
        if (reached[from->nodes[i]->index])
            continue;
        reached[from->nodes[i]->index] = 1;
        pending[top++] = from->nodes[i];
    }
    while (top) {
        CUgraphNode node = pending[--top];
        for (size_t i = 0; i < node->dependencies.count; i++) {
            CUgraphNode earlier = node->dependencies.items[i].node;
            if (reached[earlier->index])
                continue;
            reached[earlier->index] = 1;
            pending[top++] = earlier;
        }
    }
}

struct join_check {
    struct capture *capture;
    const unsigned char *reached;
    bool unjoined;
};

static void check_set(struct join_check *check, const struct dependency_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        if (!check->reached[set->nodes[i]->index])
            check->unjoined = true;
}

static void check_joined(struct object *object, void *user)
{
    struct join_check *check = user;
    CUstream stream = (CUstream)object;
    if (stream->capture == check->capture)
        check_set(check, &stream->dependencies);
}

// A forked stream is joined when all that its next node would depend on is before the end of the origin stream.
static CUresult check_all_joined(struct capture *capture)
{
    CUgraph graph = capture->graph;
    unsigned char *reached = gv_calloc(graph->count + 1, 1);
    CUgraphNode *pending = gv_calloc(graph->count + 1, sizeof *pending);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (reached && pending) {
        mark_reached(graph, &capture->origin->dependencies, reached, pending);
        struct join_check check = {capture, reached, false};
        object_each(OBJECT_STREAM, check_joined, &check);
        check_set(&check, &capture->orphans);
        result = check.unjoined ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_SUCCESS;
    }
    gv_free(reached);
    gv_free(pending);
    return result;
}

static CUresult end_capture(CUstream handle, CUgraph *graph)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (graph)
        *graph = NULL;
    struct capture *capture = stream->capture;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream) {
        capture_invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    // Each of these ends the capture, but gives no graph.
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != driver_thread())
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    else if (!graph)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (capture->invalidated)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else
        result = check_all_joined(capture);
    CUgraph captured = capture->graph;
    bool owned = capture->owns_graph;
    capture_close(capture);
    if (result == CUDA_SUCCESS)
        *graph = captured;
    else if (owned)
        graph_delete(captured);
    return result;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    SOFT_API(end_capture(stream, graph));
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    SOFT_API(end_capture(PER_THREAD(stream), graph));
}

// ---- Asking and steering ----

static CUresult capture_info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                             const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count, bool lossless)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    struct capture *capture = stream->capture;
    // Asking harms no capture.
    if (stream == stream->context->legacy && blocking_capture(stream->context, false))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = !capture               ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (id)
        *id = capture->id;
    if (graph)
        *graph = capture->graph;
    // The arrays are the stream's own: valid until its next capture call.
    for (size_t i = 0; nodes && lossless && !edges && i < stream->dependencies.count; i++)
        if (!edge_data_is_default(&stream->dependencies.edges[i]))
            return CUDA_ERROR_LOSSY_QUERY;
    if (nodes)
        *nodes = stream->dependencies.nodes;
    if (edges)
        *edges = stream->dependencies.edges;
    if (count)
        *count = stream->dependencies.count;
    return CUDA_SUCCESS;
}

#define CAPTURE_INFO(suffix, handle)                                                                           \
    CUresult cuStreamGetCaptureInfo##suffix(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)    \
    {                                                                                                          \
        SOFT_API(capture_info(handle, status, id, NULL, NULL, NULL, NULL, false));                             \
    }                                                                                                          \
    CUresult cuStreamGetCaptureInfo_v2##suffix(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, \
                                               CUgraph *graph, const CUgraphNode **nodes, size_t *count)       \
    {                                                                                                          \
        SOFT_API(capture_info(handle, status, id, graph, nodes, NULL, count, true));                           \
    }                                                                                                          \
    CUresult cuStreamGetCaptureInfo_v3##suffix(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, \
                                               CUgraph *graph, const CUgraphNode **nodes,                      \
                                               const CUgraphEdgeData **edges, size_t *count)                   \
    {                                                                                                          \
        SOFT_API(capture_info(handle, status, id, graph, nodes, edges, count, true));                          \
    }                                                                                                          \
    CUresult cuStreamIsCapturing##suffix(CUstream stream, CUstreamCaptureStatus *status)                       \
    {                                                                                                          \
        SOFT_API(capture_info(handle, status, NULL, NULL, NULL, NULL, NULL, false));                           \
    }
CAPTURE_INFO(, stream)
CAPTURE_INFO(_ptsz, PER_THREAD(stream))

static CUresult update_dependencies(CUstream handle, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
                                    size_t count, unsigned flags)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    result = capture_usable(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags != CU_STREAM_ADD_CAPTURE_DEPENDENCIES && flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    if (count && !nodes)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!object_is(nodes[i], OBJECT_NODE) || nodes[i]->graph != stream->capture->graph ||
            (edges && !edge_data_valid(&edges[i], nodes[i]->operation.kind)))
            return CUDA_ERROR_INVALID_VALUE;
    struct dependency_set fresh = {0};
    bool added = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES || set_union(&fresh, &stream->dependencies);
    for (size_t i = 0; i < count && added; i++)
        added = set_add(&fresh, nodes[i], edges ? &edges[i] : NULL);
    if (!added) {
        dependency_set_clear(&fresh);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    dependency_set_clear(&stream->dependencies);
    stream->dependencies = fresh;
    return CUDA_SUCCESS;
}

#define UPDATE_DEPENDENCIES(suffix, handle)                                                                  \
    CUresult cuStreamUpdateCaptureDependencies##suffix(CUstream stream, CUgraphNode *nodes, size_t count,    \
                                                       unsigned int flags)                                   \
    {                                                                                                        \
        SOFT_API(update_dependencies(handle, nodes, NULL, count, flags));                                    \
    }                                                                                                        \
    CUresult cuStreamUpdateCaptureDependencies_v2##suffix(                                                   \
        CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count, unsigned int flags) \
    {                                                                                                        \
        SOFT_API(update_dependencies(handle, nodes, edges, count, flags));                                   \
    }
UPDATE_DEPENDENCIES(, stream)
UPDATE_DEPENDENCIES(_ptsz, PER_THREAD(stream))

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    if (!mode || (*mode != CU_STREAM_CAPTURE_MODE_GLOBAL && *mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
                  *mode != CU_STREAM_CAPTURE_MODE_RELAXED))
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode previous = thread_mode;
    thread_mode = *mode;
    *mode = previous;
    return CUDA_SUCCESS;
}
