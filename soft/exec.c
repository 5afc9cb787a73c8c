// Executable graphs: instantiation and launch. Updating is in update.c.
#include "soft/exec.h"

#include "soft/context.h"
#include "soft/event.h"
#include "soft/stream.h"

// ---- Plans ----

void plan_drop(struct plan *plan)
{
    if (!plan || --plan->references)
        return;
    for (size_t i = 0; i < plan->count; i++) {
        struct plan_node *node = &plan->nodes[i];
        operation_clear(&node->operation);
        plan_drop(node->child);
        gv_free(node->dependencies);
        gv_free(node->edges);
    }
    gv_free(plan->nodes);
    gv_free(plan);
}

static struct plan *plan_empty(size_t count)
{
    struct plan *plan = gv_calloc(1, sizeof *plan);
    struct plan_node *nodes = gv_calloc(count + 1, sizeof *nodes);
    if (!plan || !nodes) {
        gv_free(plan);
        gv_free(nodes);
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        nodes[i].operation.kind = CU_GRAPH_NODE_TYPE_EMPTY;
    *plan = (struct plan){1, nodes, count};
    return plan;
}

static bool plan_node_room(struct plan_node *node, size_t count)
{
    node->dependencies = gv_calloc(count + 1, sizeof *node->dependencies);
    node->edges = gv_calloc(count + 1, sizeof *node->edges);
    node->dependency_count = count;
    return node->dependencies && node->edges;
}

static CUresult plan_fill_node(struct plan *plan, size_t at, CUgraphNode from, const uint32_t *place)
{
    struct plan_node *node = &plan->nodes[at];
    node->source = from->object.id;
    node->is_sink = !from->dependents.count;
    CUresult result;
    if (from->operation.kind == CU_GRAPH_NODE_TYPE_GRAPH)
        result = plan_new(from->operation.child, &node->child);
    else
        result = operation_copy(&node->operation, &from->operation);
    if (result != CUDA_SUCCESS)
        return result;
    if (!plan_node_room(node, from->dependencies.count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < from->dependencies.count; i++) {
        node->dependencies[i] = place[from->dependencies.items[i].node->index];
        node->edges[i] = from->dependencies.items[i].data;
    }
    return CUDA_SUCCESS;
}

CUresult plan_new(CUgraph graph, struct plan **plan)
{
    struct plan *made = plan_empty(graph->count);
    CUgraphNode *order = gv_calloc(graph->count + 1, sizeof *order);
    uint32_t *place = gv_calloc(graph->count + 1, sizeof *place);
    CUresult result = made && order && place ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && !graph_topological(graph, order))
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < graph->count && result == CUDA_SUCCESS; i++)
        place[order[i]->index] = (uint32_t)i;
    for (size_t i = 0; i < graph->count && result == CUDA_SUCCESS; i++)
        result = plan_fill_node(made, i, order[i], place);
    gv_free(order);
    gv_free(place);
    if (result != CUDA_SUCCESS)
        plan_drop(made);
    else
        *plan = made;
    return result;
}

CUresult plan_copy(const struct plan *original, struct plan **copy)
{
    struct plan *made = plan_empty(original->count);
    CUresult result = made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < original->count && result == CUDA_SUCCESS; i++) {
        const struct plan_node *from = &original->nodes[i];
        struct plan_node *node = &made->nodes[i];
        node->source = from->source;
        node->disabled = from->disabled;
        node->is_sink = from->is_sink;
        result = operation_copy(&node->operation, &from->operation);
        if (result == CUDA_SUCCESS && from->child)
            result = plan_copy(from->child, &node->child);
        if (result == CUDA_SUCCESS && !plan_node_room(node, from->dependency_count))
            result = CUDA_ERROR_OUT_OF_MEMORY;
        if (result != CUDA_SUCCESS)
            break;
        memcpy(node->dependencies, from->dependencies, from->dependency_count * sizeof *node->dependencies);
        memcpy(node->edges, from->edges, from->dependency_count * sizeof *node->edges);
    }
    if (result != CUDA_SUCCESS)
        plan_drop(made);
    else
        *copy = made;
    return result;
}

CUresult exec_own_plan(CUgraphExec exec, struct plan **plan)
{
    if (exec->plan->references > 1) {
        struct plan *copy;
        CUresult result = plan_copy(exec->plan, &copy);
        if (result != CUDA_SUCCESS)
            return result;
        plan_drop(exec->plan);
        exec->plan = copy;
    }
    *plan = exec->plan;
    return CUDA_SUCCESS;
}

struct plan_node *exec_find(struct plan *plan, CUgraphNode node)
{
    for (size_t i = 0; i < plan->count; i++) {
        if (plan->nodes[i].source == node->object.id)
            return &plan->nodes[i];
        struct plan_node *inside = plan->nodes[i].child ? exec_find(plan->nodes[i].child, node) : NULL;
        if (inside)
            return inside;
    }
    return NULL;
}

// ---- Instantiation ----

enum {
    KNOWN_FLAGS = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                  CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
};

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, cuuint64_t flags)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!object_is(graph, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    if (!exec || flags & ~(cuuint64_t)KNOWN_FLAGS || graph->captures)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return CUDA_ERROR_NOT_SUPPORTED;
    result = capture_forbid_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    CUgraphExec made = gv_calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = plan_new(graph, &made->plan);
    if (result == CUDA_SUCCESS && !object_register(&made->object, OBJECT_EXEC)) {
        plan_drop(made->plan);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        gv_free(made);
        return result;
    }
    made->context = context;
    // Of the flags, a real driver returns those that change what a launch does.
    made->flags = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    *exec = made;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    SOFT_API(instantiate(exec, graph, flags));
}

static CUresult instantiate_with_log(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size)
{
    if (error)
        *error = NULL;
    if (log && size)
        log[0] = '\0';
    return instantiate(exec, graph, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size)
{
    SOFT_API(instantiate_with_log(exec, graph, error, log, size));
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size)
{
    SOFT_API(instantiate_with_log(exec, graph, error, log, size));
}

static CUresult instantiate_with_parameters(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    if (!parameters)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = instantiate(exec, graph, parameters->flags);
    parameters->hErrNode_out = NULL;
    parameters->result_out = result == CUDA_SUCCESS               ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                             : result == CUDA_ERROR_INVALID_VALUE ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                                                                  : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    SOFT_API(instantiate_with_parameters(exec, graph, parameters));
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    SOFT_API(instantiate_with_parameters(exec, graph, parameters));
}

static CUresult destroy(CUgraphExec exec)
{
    if (!object_is(exec, OBJECT_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = capture_forbid_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    object_unregister(&exec->object);
    plan_drop(exec->plan); // launches under way hold it
    task_drop(exec->last);
    gv_free(exec);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    SOFT_API(destroy(exec));
}

static CUresult get_flags(CUgraphExec exec, cuuint64_t *flags)
{
    if (!object_is(exec, OBJECT_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
    SOFT_API(get_flags(exec, flags));
}

// ---- Launch ----

// What the launch does to the memory of allocation nodes; `check` only looks.
static CUresult memory_nodes(struct plan *plan, bool auto_free, bool check)
{
    for (size_t i = 0; i < plan->count; i++) {
        struct plan_node *node = &plan->nodes[i];
        struct graph_memory *memory = NULL;
        if (node->operation.kind == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->operation.kind == CU_GRAPH_NODE_TYPE_MEM_FREE)
            memory = node->operation.memory.memory;
        if (memory && node->operation.kind == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            if (check && memory->live && !auto_free)
                return CUDA_ERROR_INVALID_VALUE; // what an earlier launch handed out was not freed
            if (!check)
                memory->live = true;
        } else if (memory && !check) {
            memory->live = false;
        }
        CUresult result = node->child ? memory_nodes(node->child, auto_free, check) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

// Makes a task for every node of a plan. All start after `begin`; the result comes after all of them, is submitted,
// and is the caller's (NULL: memory is out, and what was made runs or will run as empty tasks).
static struct task *launch_plan(struct plan *plan, CUcontext context, struct task *begin, bool *complete)
{
    struct task **tasks = gv_calloc(plan->count + 1, sizeof *tasks);
    struct task *end = task_new(context);
    bool linked = tasks && end;
    for (size_t i = 0; i < plan->count && linked; i++) {
        struct plan_node *node = &plan->nodes[i];
        struct task *task = task_new(context);
        linked = task != NULL;
        if (!linked)
            break;
        if (!node->dependency_count)
            linked = task_after(task, begin);
        for (size_t j = 0; j < node->dependency_count && linked; j++)
            linked = task_after(task, tasks[node->dependencies[j]]);
        if (!node->disabled && linked) {
            task->operation = &node->operation;
            if (node->operation.kind == CU_GRAPH_NODE_TYPE_KERNEL)
                task->recording = recording_for_launch();
            if (node->operation.kind == CU_GRAPH_NODE_TYPE_WAIT_EVENT)
                linked = task_after(task, node->operation.event->task);
            if (node->operation.kind == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
                event_set_task(node->operation.event, task);
        }
        tasks[i] = task;
        if (node->child && linked) {
            // The child's nodes come after this task, and what depends on it comes after them.
            struct task *child_end = launch_plan(node->child, context, task, complete);
            linked = child_end != NULL;
            task_submit(task);
            task_drop(task);
            tasks[i] = child_end;
        } else {
            task_submit(task);
        }
        if (node->is_sink && linked)
            linked = task_after(end, tasks[i]);
    }
    for (size_t i = 0; tasks && i < plan->count; i++)
        task_drop(tasks[i]);
    gv_free(tasks);
    if (end) {
        if (!plan->count && linked)
            linked = task_after(end, begin);
        task_submit(end);
    }
    if (!linked)
        *complete = false;
    return end;
}

static void launch_completed(void *plan)
{
    plan_drop(plan);
}

static CUresult launch(CUgraphExec exec, CUstream handle)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!object_is(exec, OBJECT_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture) {
        // An exec has no graph that could become a child node.
        capture_invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    result = stream_check(stream);
    bool auto_free = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    if (result == CUDA_SUCCESS)
        result = memory_nodes(exec->plan, auto_free, true);
    if (result != CUDA_SUCCESS)
        return result;
    // The begin goes into the stream, so that everything the stream orders before it is before every node; a graph
    // may run once at a time.
    struct task *begin = task_new(stream->context);
    if (!begin)
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool complete = task_after(begin, exec->last);
    task_keep(begin);
    // Nothing may run before the nodes are linked behind `begin`; the lock is held until then.
    if (stream_append(stream, begin) != CUDA_SUCCESS)
        complete = false;
    memory_nodes(exec->plan, auto_free, false);
    struct task *end = launch_plan(exec->plan, stream->context, begin, &complete);
    task_drop(begin);
    if (!end)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->plan->references++;
    if (complete) {
        end->completed = launch_completed;
        end->completed_user = exec->plan;
    } // else some tasks may outlive `end`, and the plan has to stay
    task_drop(exec->last);
    exec->last = task_keep(end);
    task_drop(stream->tail);
    stream->tail = end;
    return complete ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    SOFT_API(launch(exec, stream));
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    SOFT_API(launch(exec, PER_THREAD(stream)));
}

static CUresult upload(CUgraphExec exec, CUstream handle)
{
    CUstream stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    return object_is(exec, OBJECT_EXEC) ? stream_check(stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    SOFT_API(upload(exec, stream));
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    SOFT_API(upload(exec, PER_THREAD(stream)));
}
