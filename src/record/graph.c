#include "record/graph.h"

#include "base/memory.h"
#include "record/differ.h"
#include "record/fix.h"
#include "record/handle_map.h"
#include "record/ids.h"
#include "record/known.h"
#include "record/linear.h"
#include "record/probe.h"
#include "record/recorder.h"
#include "record/snapshot.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Guards the two maps below. Driver calls made under it read graphs; none of them calls back into the program.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// ---- Where nodes came from -----------------------------------------------------------------------------------

typedef struct place_row {
    gv_node_place place;
    CUgraph graph;
    CUgraphNode node;
    CUgraph *bodies;        // the graphs inside a child graph or conditional node, which go with it
    struct place_row *next; // of the same graph
} place_row;

// A conditional handle, known as long as its graph is. Handles are numbers that mean something only within one graph
// and the bodies of its conditional nodes, which share them.
typedef struct handle_row {
    gv_condition condition;
    struct handle_row *next; // of the same outermost graph
} handle_row;

static gv_handle_map handles_of; // outermost graph -> its first handle_row *
static gv_handle_map outermost;  // body of a conditional node -> the graph that all is inside of
static gv_handle_map places;     // node handle -> place_row *
static gv_handle_map places_of;  // graph handle -> its first place_row *
static atomic_ullong next_order;
static atomic_int captures;
static gv_handle_map origins; // stream that began a capture -> the graph it goes into, or 1 where that is not known

bool gv_captures_active(void)
{
    return atomic_load_explicit(&captures, memory_order_relaxed) > 0;
}

static bool is_known(CUgraph graph, CUgraphNode node)
{
    const place_row *row = (const place_row *)(uintptr_t)gv_handle_map_get(&places, (uintptr_t)node);
    return row && row->graph == graph;
}

// Under the lock. A handle that is known already for this graph keeps its place.
static void remember_place(CUgraph graph, CUgraphNode node, gv_node_place place)
{
    if (is_known(graph, node))
        return;
    place_row *row = gv_calloc(1, sizeof *row);
    if (!row)
        return;
    *row = (place_row){.place = place,
                       .graph = graph,
                       .node = node,
                       .next = (place_row *)(uintptr_t)gv_handle_map_get(&places_of, (uintptr_t)graph)};
    if (!gv_handle_map_set(&places_of, (uintptr_t)graph, (uintptr_t)row)) {
        gv_free(row);
        return;
    }
    // A row that stood there was of a graph whose end was not seen; it is freed with that graph's others, if ever.
    gv_handle_map_set(&places, (uintptr_t)node, (uintptr_t)row);
}

static gv_node_place place_of(CUgraphNode node)
{
    const place_row *row = (const place_row *)(uintptr_t)gv_handle_map_get(&places, (uintptr_t)node);
    return row ? row->place : (gv_node_place){0};
}

// Every thread's own default stream has the same handle.
static uint64_t origin_key(CUstream stream)
{
    static __thread char mine __attribute__((tls_model("initial-exec")));
    return stream && stream != CU_STREAM_PER_THREAD ? (uint64_t)(uintptr_t)stream : (uint64_t)(uintptr_t)&mine;
}

void gv_capture_began(CUstream stream, bool per_thread, unsigned mode)
{
    CUstream origin = stream ? stream : CU_STREAM_PER_THREAD;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUgraph graph = NULL;
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *data = NULL;
    size_t count = 0;
    if (gv_cuda.cuStreamGetCaptureInfo(origin, &status, &id, &graph, &nodes, &data, &count) != CUDA_SUCCESS)
        graph = NULL;
    pthread_mutex_lock(&lock);
    if (!gv_handle_map_take(&origins, origin_key(origin)))
        atomic_fetch_add(&captures, 1);
    gv_handle_map_set(&origins, origin_key(origin), graph ? (uintptr_t)graph : 1);
    pthread_mutex_unlock(&lock);
    gv_operation_record operation = {
        .kind = GV_OP_CAPTURE_BEGIN, .stream = gv_stream_id(stream, per_thread), .flags = mode};
    gv_operation(&operation);
}

// The capture that this stream began is over. `failed`: its graph is gone, and so are its nodes.
static void capture_over(CUstream origin, bool failed)
{
    pthread_mutex_lock(&lock);
    uint64_t graph = gv_handle_map_take(&origins, origin_key(origin));
    if (graph)
        atomic_fetch_sub(&captures, 1);
    pthread_mutex_unlock(&lock);
    if (failed && graph > 1)
        gv_graph_destroyed((CUgraph)(uintptr_t)graph);
}

void gv_capture_ended(CUstream stream, bool per_thread, CUresult result)
{
    // A failed end leaves the capture over as well, from the wrong thread too; except where there was none to end or
    // another stream began it.
    if (result != CUDA_ERROR_STREAM_CAPTURE_UNMATCHED && result != CUDA_ERROR_ILLEGAL_STATE &&
        result != CUDA_ERROR_INVALID_VALUE)
        capture_over(stream ? stream : CU_STREAM_PER_THREAD, result != CUDA_SUCCESS);
    gv_describe_streams();
    gv_operation_record operation = {.kind = GV_OP_CAPTURE_END, .stream = gv_stream_id(stream, per_thread)};
    gv_operation(&operation);
}

void gv_capture_stream_destroyed(CUstream stream)
{
    capture_over(stream, true);
}

// The handle to ask the capture state of; NULL for the legacy stream, which cannot be captured.
static CUstream capturable(CUstream stream, bool per_thread)
{
    if (stream == CU_STREAM_LEGACY || (!stream && !per_thread))
        return NULL;
    return stream ? stream : CU_STREAM_PER_THREAD;
}

bool gv_stream_is_capturing(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    stream = gv_captures_active() ? capturable(stream, per_thread) : NULL;
    return stream && gv_cuda.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool gv_capture_note(CUstream stream, bool per_thread)
{
    stream = capturable(stream, per_thread);
    if (!stream)
        return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUgraph graph = NULL;
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *data = NULL;
    size_t count = 0;
    if (gv_cuda.cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &data, &count) != CUDA_SUCCESS ||
        status == CU_STREAM_CAPTURE_STATUS_NONE)
        return false;
    uint64_t stack = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++) {
        if (is_known(graph, nodes[i]))
            continue;
        if (!stack) {
            pthread_mutex_unlock(&lock); // unwinding takes the loader's lock
            stack = gv_stack();
            pthread_mutex_lock(&lock);
        }
        gv_node_place place = {
            .stack = stack, .stream = gv_stream_id(stream, per_thread), .order = atomic_fetch_add(&next_order, 1) + 1};
        remember_place(graph, nodes[i], place);
    }
    pthread_mutex_unlock(&lock);
    return true;
}

void gv_node_added(CUgraph graph, CUgraphNode node)
{
    gv_node_place place = {.stack = gv_stack(), .order = atomic_fetch_add(&next_order, 1) + 1};
    pthread_mutex_lock(&lock);
    remember_place(graph, node, place);
    pthread_mutex_unlock(&lock);
}

static CUgraphNode *nodes_of(CUgraph graph, size_t *count)
{
    CUgraphNode *nodes = NULL;
    *count = 0;
    if (gv_cuda.cuGraphGetNodes(graph, NULL, count) != CUDA_SUCCESS || !*count)
        return NULL;
    nodes = gv_calloc(*count, sizeof *nodes);
    if (nodes && gv_cuda.cuGraphGetNodes(graph, nodes, count) == CUDA_SUCCESS)
        return nodes;
    gv_free(nodes);
    return NULL;
}

void gv_graph_copied(CUgraph original, CUgraph copy)
{
    size_t count = 0, copies = 0;
    CUgraphNode *from = nodes_of(original, &count), *to = nodes_of(copy, &copies);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; from && to && count == copies && i < count; i++) {
        CUgraphNode counterpart = NULL;
        if (gv_cuda.cuGraphNodeFindInClone(&counterpart, from[i], copy) != CUDA_SUCCESS || !counterpart)
            counterpart = to[i];
        gv_node_place place = place_of(from[i]);
        // The copy's bodies are others, and are not known.
        place.bodies = NULL;
        place.body_count = 0;
        place.condition.size = 0;
        if (place.order)
            remember_place(copy, counterpart, place);
    }
    pthread_mutex_unlock(&lock);
    gv_free(from);
    gv_free(to);
}

// Under the lock.
static CUgraph outermost_of(CUgraph graph)
{
    uint64_t found = gv_handle_map_get(&outermost, (uintptr_t)graph);
    return found ? (CUgraph)(uintptr_t)found : graph;
}

// Under the lock.
static void forget_handles(CUgraph graph)
{
    gv_handle_map_take(&outermost, (uintptr_t)graph);
    handle_row *row = (handle_row *)(uintptr_t)gv_handle_map_take(&handles_of, (uintptr_t)graph);
    while (row) {
        handle_row *next = row->next;
        gv_free(row);
        row = next;
    }
}

// Under the lock.
static void forget_places(CUgraph graph)
{
    forget_handles(graph);
    place_row *row = (place_row *)(uintptr_t)gv_handle_map_take(&places_of, (uintptr_t)graph);
    while (row) {
        place_row *next = row->next;
        if (is_known(graph, row->node))
            gv_handle_map_take(&places, (uintptr_t)row->node);
        for (size_t i = 0; i < row->place.body_count; i++)
            forget_places(row->bodies[i]);
        gv_free(row->bodies);
        gv_free(row);
        row = next;
    }
}

void gv_graph_destroyed(CUgraph graph)
{
    pthread_mutex_lock(&lock);
    forget_places(graph);
    pthread_mutex_unlock(&lock);
}

static void remember_bodies(CUgraph graph, CUgraphNode node, const CUgraph *bodies, size_t count)
{
    CUgraph *copy = gv_calloc(count, sizeof *copy);
    pthread_mutex_lock(&lock);
    place_row *row = (place_row *)(uintptr_t)gv_handle_map_get(&places, (uintptr_t)node);
    if (copy && row && row->graph == graph && !row->bodies) {
        memcpy(copy, bodies, count * sizeof *copy);
        row->bodies = copy;
        row->place.bodies = copy;
        row->place.body_count = count;
        copy = NULL;
    }
    pthread_mutex_unlock(&lock);
    gv_free(copy);
}

void gv_child_added(CUgraph graph, CUgraphNode node, CUgraph child)
{
    CUgraph embedded = NULL;
    gv_node_added(graph, node);
    if (gv_cuda.cuGraphChildGraphNodeGetGraph(node, &embedded) != CUDA_SUCCESS)
        return;
    gv_graph_copied(child, embedded);
    remember_bodies(graph, node, &embedded, 1);
}

void gv_handle_created(CUgraph graph, CUgraphConditionalHandle handle, CUcontext context, unsigned initial,
                       unsigned flags)
{
    if (!context && gv_cuda.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return;
    handle_row *row = gv_calloc(1, sizeof *row);
    if (!row)
        return;
    row->condition = (gv_condition){
        .handle = handle, .initial = initial, .assigned = flags & CU_GRAPH_COND_ASSIGN_DEFAULT, .context = context};
    pthread_mutex_lock(&lock);
    graph = outermost_of(graph);
    row->next = (handle_row *)(uintptr_t)gv_handle_map_get(&handles_of, (uintptr_t)graph);
    if (gv_handle_map_set(&handles_of, (uintptr_t)graph, (uintptr_t)row))
        row = NULL;
    pthread_mutex_unlock(&lock);
    gv_free(row);
}

void gv_conditional_added(CUgraph graph, CUgraphNode node, const CUDA_CONDITIONAL_NODE_PARAMS *params)
{
    gv_node_added(graph, node);
    if (!params->phGraph_out)
        return;
    remember_bodies(graph, node, params->phGraph_out, params->size);
    pthread_mutex_lock(&lock);
    place_row *row = (place_row *)(uintptr_t)gv_handle_map_get(&places, (uintptr_t)node);
    CUgraph whole = outermost_of(graph);
    const handle_row *handle = (const handle_row *)(uintptr_t)gv_handle_map_get(&handles_of, (uintptr_t)whole);
    while (handle && handle->condition.handle != params->handle)
        handle = handle->next;
    for (unsigned i = 0; i < params->size; i++)
        gv_handle_map_set(&outermost, (uintptr_t)params->phGraph_out[i], (uintptr_t)whole);
    if (row && row->graph == graph && row->bodies && handle) {
        row->place.condition = handle->condition;
        row->place.condition.type = params->type;
        row->place.condition.size = params->size;
    }
    pthread_mutex_unlock(&lock);
}

// ---- Executable graphs ---------------------------------------------------------------------------------------

// A node of the program's template, as set-params calls name it, in one exec.
typedef struct template_node {
    CUgraphNode node;
    gv_snapshot *snapshot;
    uint32_t index;
} template_node;

typedef struct exec_row {
    gv_exec exec; // first: a gv_exec of the header is the head of a row
    template_node *templates;
    size_t template_count, template_capacity;
    gv_handle_map by_node; // template node handle -> index in templates + 1
} exec_row;

static gv_handle_map execs; // handle -> exec_row *

static exec_row *row_of(CUgraphExec handle)
{
    return (exec_row *)(uintptr_t)gv_handle_map_get(&execs, (uintptr_t)handle);
}

static void remember_template(CUgraphNode node, gv_snapshot *snapshot, uint32_t index, void *user)
{
    exec_row *row = user;
    if (!GV_GROW(row->templates, row->template_capacity, row->template_count + 1))
        return; // a later set-params call on it makes the exec unknown
    row->templates[row->template_count++] = (template_node){node, snapshot, index};
    gv_handle_map_set(&row->by_node, (uintptr_t)node, row->template_count);
}

static void define_exec(uint64_t sequence, void *user)
{
    const gv_exec *exec = user;
    gv_exec_record record = {
        .id = exec->id,
        .graph = exec->snapshot ? exec->snapshot->id : 0,
        .operation = sequence,
        .flags = exec->flags,
    };
    gv_write_exec(gv_state.writer, &record);
}

static bool has_kernel(const gv_snapshot *snapshot, const char *part)
{
    for (size_t i = 0; i < snapshot->node_count; i++) {
        const gv_snapshot_node *node = &snapshot->nodes[i];
        CUDA_KERNEL_NODE_PARAMS params;
        const char *name = NULL;
        memset(&params, 0, sizeof params);
        for (size_t body = 0; body < node->body_count; body++)
            if (has_kernel(node->bodies[body], part))
                return true;
        if (node->type == CU_GRAPH_NODE_TYPE_KERNEL &&
            gv_cuda.cuGraphKernelNodeGetParams(node->node, &params) == CUDA_SUCCESS &&
            gv_cuda.cuFuncGetName(&name, params.func ? params.func : (CUfunction)params.kern) == CUDA_SUCCESS && name &&
            strstr(name, part))
            return true;
    }
    return false;
}

// Does the --graph option name this exec? Its graph id in decimal, or part of a kernel's name. Asked while the
// program's template is there: without a clone its nodes are all there is to read, and it goes soon after.
static bool is_named(const gv_exec *exec, const char *name)
{
    if (!*name)
        return true;
    if (!exec->snapshot)
        return false;
    char *end = NULL;
    unsigned long long id = strtoull(name, &end, 10);
    if (*name >= '0' && *name <= '9' && !*end)
        return exec->snapshot->id == id;
    return has_kernel(exec->snapshot, name);
}

gv_snapshot *gv_graph_read(CUgraph graph)
{
    pthread_mutex_lock(&lock);
    gv_snapshot *snapshot = gv_snapshot_take(graph, GV_GRAPH_BUILT, false, place_of, NULL, NULL);
    pthread_mutex_unlock(&lock);
    return snapshot;
}

// Is there a need for nodes that can be run after the program has destroyed its template?
static bool nodes_are_kept(void)
{
    const gv_record_options *options = &gv_state.options;
    return options->arm != GV_ARM_NONE || options->diff != GV_DIFF_NONE || options->pad != GV_PERTURB_NONE ||
           options->poison != GV_PERTURB_NONE;
}

static void forget_known(gv_exec *exec)
{
    if (exec->known)
        gv_known_free(exec->known);
    gv_free(exec->known);
    exec->known = NULL;
}

// Under the lock: reads the graph into the row and writes it.
static bool has_disabled(const gv_snapshot *snapshot)
{
    bool any = false;
    for (size_t i = 0; i < snapshot->node_count && !any; i++) {
        any = snapshot->nodes[i].disabled;
        for (size_t body = 0; body < snapshot->nodes[i].body_count && !any; body++)
            any = has_disabled(snapshot->nodes[i].bodies[body]);
    }
    return any;
}

// What was disabled stays so when an executable graph is updated (seen on driver 580.159; no documentation says it).
// False when that cannot be said of the nodes of the new graph.
static bool keep_disabled(const gv_snapshot *old, gv_snapshot *made)
{
    bool same = old->node_count == made->node_count, kept = true;
    if (!has_disabled(old))
        return true;
    for (size_t i = 0; i < old->node_count && same; i++) {
        const gv_snapshot_node *before = &old->nodes[i];
        same = before->type == made->nodes[i].type && before->body_count == made->nodes[i].body_count;
        if (!same)
            break;
        made->nodes[i].disabled = before->disabled;
        for (size_t body = 0; body < before->body_count; body++)
            kept = keep_disabled(before->bodies[body], made->nodes[i].bodies[body]) && kept;
    }
    return same && kept;
}

static void adopt(exec_row *row, CUgraph graph, unsigned origin, unsigned operation_kind, gv_fixing *fixing)
{
    gv_exec *exec = &row->exec;
    exec->version++;
    exec->ends_alone = exec->linear_refused = false;
    gv_snapshot *old = exec->snapshot;
    row->template_count = 0;
    gv_handle_map_clear(&row->by_node);
    exec->changed = false;
    exec->refused = exec->check_refused = exec->pad_refused = exec->poison_refused = false;
    forget_known(exec);
    exec->unknown[0] = '\0';
    exec->snapshot = gv_snapshot_take(graph, origin, nodes_are_kept(), place_of, remember_template, row);
    if (exec->snapshot) {
        if (old && !keep_disabled(old, exec->snapshot))
            snprintf(exec->unknown, sizeof exec->unknown,
                     "nodes of it were disabled, and it was updated to a graph whose nodes are listed otherwise");
        exec->snapshot->stack = gv_stack();
        gv_snapshot_write(exec->snapshot);
        gv_fix_write(fixing, exec->snapshot);
        gv_probe_exec(exec->id, exec->snapshot);
        exec->named = is_named(exec, gv_state.options.graph);
    } else {
        snprintf(exec->unknown, sizeof exec->unknown, "out of memory while reading it");
    }
    gv_snapshot_free(old);
    gv_operation_record operation = {.kind = operation_kind, .object = exec->id};
    gv_operation_defining(&operation, define_exec, exec);
}

static unsigned origin_of(CUgraph graph)
{
    size_t count = 0;
    CUgraphNode *nodes = nodes_of(graph, &count);
    bool captured = false;
    for (size_t i = 0; nodes && i < count && !captured; i++)
        captured = place_of(nodes[i]).stream != 0;
    gv_free(nodes);
    return captured ? GV_GRAPH_CAPTURED : GV_GRAPH_BUILT;
}

void gv_exec_created(CUgraphExec handle, CUgraph graph, unsigned long long flags, gv_fixing *fixing)
{
    pthread_mutex_lock(&lock);
    exec_row *row = gv_calloc(1, sizeof *row);
    if (row && gv_handle_map_set(&execs, (uintptr_t)handle, (uintptr_t)row)) {
        row->exec.handle = handle;
        row->exec.id = gv_next_exec_id();
        row->exec.flags = flags;
        row->exec.fixed = gv_fix_keep(fixing, NULL);
        adopt(row, graph, origin_of(graph), GV_OP_INSTANTIATE, fixing);
        gv_verbose("graph #%llu: %zu nodes, %zu edges, instantiated as exec #%llu%s%s",
                   (unsigned long long)(row->exec.snapshot ? row->exec.snapshot->id : 0),
                   row->exec.snapshot ? row->exec.snapshot->node_count : 0,
                   row->exec.snapshot ? row->exec.snapshot->edge_count : 0, (unsigned long long)row->exec.id,
                   row->exec.snapshot && row->exec.snapshot->refusal[0] ? "; cannot be armed: " : "",
                   row->exec.snapshot ? row->exec.snapshot->refusal : "");
    } else {
        gv_free(row);
        gv_note_once(GV_NOTE_FAILURE, "exec", "out of memory: an executable graph is not recorded");
    }
    pthread_mutex_unlock(&lock);
}

void gv_exec_updated(CUgraphExec handle, CUgraph graph, gv_fixing *fixing)
{
    pthread_mutex_lock(&lock);
    exec_row *row = row_of(handle);
    if (row) {
        row->exec.fixed = gv_fix_keep(fixing, row->exec.fixed);
        // With --fix alone nobody reads the snapshots, and a program may update at every launch.
        if (!gv_state.options.light || gv_fix_tells(fixing))
            adopt(row, graph, GV_GRAPH_UPDATED, GV_OP_EXEC_UPDATE, fixing);
    }
    pthread_mutex_unlock(&lock);
}

gv_exec *gv_exec_take(CUgraphExec handle)
{
    pthread_mutex_lock(&lock);
    exec_row *row = (exec_row *)(uintptr_t)gv_handle_map_take(&execs, (uintptr_t)handle);
    pthread_mutex_unlock(&lock);
    return row ? &row->exec : NULL;
}

void gv_exec_put_back(gv_exec *exec)
{
    pthread_mutex_lock(&lock);
    if (exec)
        gv_handle_map_set(&execs, (uintptr_t)exec->handle, (uintptr_t)exec);
    pthread_mutex_unlock(&lock);
}

void gv_exec_destroyed(gv_exec *exec)
{
    if (!exec)
        return;
    exec_row *row = (exec_row *)exec;
    gv_operation_record operation = {.kind = GV_OP_EXEC_DESTROY, .object = exec->id};
    gv_operation(&operation);
    forget_known(exec);
    gv_linear_free(exec->linear);
    gv_check_plan_free(exec->plan);
    gv_snapshot_free(exec->snapshot);
    gv_fixed_free(exec->fixed);
    gv_free(row->templates);
    gv_handle_map_clear(&row->by_node);
    gv_free(row);
}

// Under the lock.
static template_node *template_of(exec_row *row, CUgraphNode node)
{
    uint64_t place = gv_handle_map_get(&row->by_node, (uintptr_t)node);
    return place ? &row->templates[place - 1] : NULL;
}

static void unknown(gv_exec *exec, const char *why)
{
    if (!exec->unknown[0])
        snprintf(exec->unknown, sizeof exec->unknown, "%s", why);
}

static void write_set_node(const gv_exec *exec, const template_node *found)
{
    gv_operation_record operation = {
        .kind = GV_OP_EXEC_SET_NODE, .object = exec->id, .value = found ? (uint64_t)found->index + 1 : 0};
    gv_operation(&operation);
}

void gv_exec_node_changed(CUgraphExec handle, CUgraphNode node, gv_apply_params apply, const void *params)
{
    pthread_mutex_lock(&lock);
    exec_row *row = row_of(handle);
    if (row) {
        template_node *found = template_of(row, node);
        write_set_node(&row->exec, found);
        row->exec.changed = true;
        row->exec.version++;
        // Without a clone the snapshot's nodes are the template's, which keep their old parameters.
        if (!found || !row->exec.snapshot || !row->exec.snapshot->owned ||
            apply(found->snapshot->nodes[found->index].node, params) != CUDA_SUCCESS)
            unknown(&row->exec, "a node's parameters were replaced in a way that could not be followed");
    }
    pthread_mutex_unlock(&lock);
}

void gv_exec_node_enabled(CUgraphExec handle, CUgraphNode node, bool enabled)
{
    pthread_mutex_lock(&lock);
    exec_row *row = row_of(handle);
    if (row) {
        template_node *found = template_of(row, node);
        write_set_node(&row->exec, found);
        row->exec.changed = true;
        row->exec.version++;
        if (found)
            found->snapshot->nodes[found->index].disabled = !enabled;
        else
            unknown(&row->exec, "a node was enabled or disabled that is not in the graph as it was read");
    }
    pthread_mutex_unlock(&lock);
}

void gv_exec_child_changed(CUgraphExec handle, CUgraphNode node, CUgraph child)
{
    pthread_mutex_lock(&lock);
    exec_row *row = row_of(handle);
    if (row) {
        template_node *found = template_of(row, node);
        write_set_node(&row->exec, found);
        row->exec.changed = true;
        row->exec.version++;
        gv_snapshot *fresh =
            found && row->exec.snapshot && row->exec.snapshot->owned && found->snapshot->nodes[found->index].body_count
                ? gv_snapshot_take(child, GV_GRAPH_CHILD, true, place_of, NULL, NULL)
                : NULL;
        if (fresh) {
            gv_snapshot_node *owner = &found->snapshot->nodes[found->index];
            // The old child's nodes must not be found any more.
            gv_snapshot *old = owner->body_count ? owner->bodies[0] : NULL;
            for (size_t i = 0; i < row->template_count; i++)
                if (row->templates[i].snapshot == old)
                    gv_handle_map_take(&row->by_node, (uintptr_t)row->templates[i].node);
            forget_known(&row->exec);
            gv_snapshot_free(old);
            fresh->parent_node = found->index;
            owner->bodies[0] = fresh;
            if (fresh->refusal[0])
                unknown(&row->exec, fresh->refusal);
        } else {
            unknown(&row->exec, "a child graph was replaced in a way that could not be followed");
        }
    }
    pthread_mutex_unlock(&lock);
}

void gv_exec_now_unknown(CUgraphExec handle, const char *why)
{
    pthread_mutex_lock(&lock);
    exec_row *row = row_of(handle);
    if (row) {
        row->exec.changed = true;
        row->exec.version++;
        unknown(&row->exec, why);
    }
    pthread_mutex_unlock(&lock);
}

uint32_t gv_exec_index_of(gv_exec *exec, CUgraphNode node)
{
    pthread_mutex_lock(&lock);
    const template_node *found = template_of((exec_row *)exec, node);
    uint32_t index = found && found->snapshot == exec->snapshot ? found->index : UINT32_MAX;
    pthread_mutex_unlock(&lock);
    return index;
}

gv_exec *gv_exec_find(CUgraphExec handle)
{
    pthread_mutex_lock(&lock);
    exec_row *row = row_of(handle);
    pthread_mutex_unlock(&lock);
    return row ? &row->exec : NULL;
}

void gv_exec_refresh(gv_exec *exec)
{
    if (!exec->changed || !exec->snapshot || exec->unknown[0])
        return;
    pthread_mutex_lock(&lock);
    exec->changed = false;
    exec->snapshot->origin = GV_GRAPH_UPDATED;
    gv_snapshot_write(exec->snapshot);
    pthread_mutex_unlock(&lock);
    define_exec(gv_last_operation(), exec);
}

void gv_exec_take_known(gv_exec *exec, gv_known *known)
{
    forget_known(exec);
    exec->known = known;
}

void gv_graphs_forget(void)
{
    gv_handle_map empty = {0};
    places = places_of = execs = origins = handles_of = outermost = empty;
    atomic_store(&captures, 0);
    atomic_store(&next_order, 0);
    pthread_mutex_init(&lock, NULL);
}
