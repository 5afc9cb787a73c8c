// Executable graphs: instantiation and launch. Updating is in update.c.
#include "soft/exec.h"

#include "soft/conditional.h"
#include "soft/context.h"
#include "soft/event.h"
#include "soft/stream.h"

#include <stdlib.h>

// ---- Plans ----

void plan_drop(struct plan *plan)
{
    if (!plan || --plan->references)
        return;
    for (size_t i = 0; i < plan->count; i++) {
        struct plan_node *node = &plan->nodes[i];
        for (unsigned body = 0; node->bodies && body < node->operation.conditional.size; body++)
            plan_drop(node->bodies[body]);
        gv_free(node->bodies);
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
    *plan = (struct plan){1, nodes, count, false};
    return plan;
}

static bool plan_node_room(struct plan_node *node, size_t count)
{
    node->dependencies = gv_calloc(count + 1, sizeof *node->dependencies);
    node->edges = gv_calloc(count + 1, sizeof *node->edges);
    node->dependency_count = count;
    return node->dependencies && node->edges;
}

// Gives a conditional node of a plan room for its bodies' plans.
static bool plan_node_bodies(struct plan_node *node)
{
    node->operation.conditional.planned = node;
    node->bodies = gv_calloc(node->operation.conditional.size, sizeof(struct plan *));
    return node->bodies != NULL;
}

static CUresult plan_fill_node(struct plan *plan, size_t at, CUgraphNode from, const uint32_t *place)
{
    struct plan_node *node = &plan->nodes[at];
    node->source = from->object.id;
    node->is_sink = !from->dependents.count;
    for (size_t i = 0; i < from->dependents.count; i++)
        node->is_awaited |= edge_data_is_default(&from->dependents.items[i].data);
    CUresult result;
    if (from->operation.kind == CU_GRAPH_NODE_TYPE_GRAPH)
        result = plan_new(from->operation.child, &node->child);
    else
        result = operation_copy(&node->operation, &from->operation);
    if (result == CUDA_SUCCESS && from->operation.kind == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        const struct conditional_operation *conditional = &from->operation.conditional;
        plan->conditional = true;
        if (!plan_node_bodies(node))
            return CUDA_ERROR_OUT_OF_MEMORY;
        for (unsigned body = 0; body < conditional->size && result == CUDA_SUCCESS; body++)
            result = plan_new(conditional->bodies[body], &node->bodies[body]);
    }
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
    if (made)
        made->conditional = original->conditional;
    for (size_t i = 0; i < original->count && result == CUDA_SUCCESS; i++) {
        const struct plan_node *from = &original->nodes[i];
        struct plan_node *node = &made->nodes[i];
        node->source = from->source;
        node->disabled = from->disabled;
        node->is_sink = from->is_sink;
        node->is_awaited = from->is_awaited;
        result = operation_copy(&node->operation, &from->operation);
        if (result == CUDA_SUCCESS && from->child)
            result = plan_copy(from->child, &node->child);
        if (result == CUDA_SUCCESS && from->bodies)
            result = plan_node_bodies(node) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        for (unsigned body = 0; from->bodies && body < from->operation.conditional.size && result == CUDA_SUCCESS;
             body++)
            result = plan_copy(from->bodies[body], &node->bodies[body]);
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
        for (unsigned body = 0; plan->nodes[i].bodies && !inside && body < plan->nodes[i].operation.conditional.size;
             body++)
            inside = exec_find(plan->nodes[i].bodies[body], node);
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

// GRAVEL_SOFT_MOST_EDGES: a real driver may refuse a graph for reasons of its own, and programs have to live with that.
static bool has_too_many_edges(CUgraph graph)
{
    const char *most = getenv("GRAVEL_SOFT_MOST_EDGES");
    size_t count = 0;
    for (size_t i = 0; most && i < graph->count; i++)
        count += graph->nodes[i]->dependencies.count;
    return most && count > strtoull(most, NULL, 10);
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, cuuint64_t flags, CUgraphInstantiateResult *why)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!object_is(graph, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    if (!exec || flags & ~(cuuint64_t)KNOWN_FLAGS || graph->captures || graph_is_body(graph))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (has_too_many_edges(graph))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = capture_forbid_unsafe();
    if (result == CUDA_SUCCESS)
        result = conditional_check(graph, 0, why);
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
    conditional_adopt(graph, made->object.id);
    made->context = context;
    // Of the flags, a real driver returns those that change what a launch does.
    made->flags = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    *exec = made;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    CUgraphInstantiateResult why;
    SOFT_API(instantiate(exec, graph, flags, &why));
}

static CUresult instantiate_with_log(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size)
{
    if (error)
        *error = NULL;
    if (log && size)
        log[0] = '\0';
    CUgraphInstantiateResult why;
    return instantiate(exec, graph, 0, &why);
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
    CUgraphInstantiateResult why = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    CUresult result = instantiate(exec, graph, parameters->flags, &why);
    parameters->hErrNode_out = NULL;
    parameters->result_out = result == CUDA_SUCCESS               ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                             : result == CUDA_ERROR_INVALID_VALUE ? why
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
    conditional_release(exec->object.id);
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

void exec_assign_defaults(struct plan *plan)
{
    for (size_t i = 0; plan->conditional && i < plan->count; i++) {
        struct plan_node *node = &plan->nodes[i];
        if (!node->bodies)
            continue;
        struct condition *condition = node->operation.conditional.condition;
        pthread_mutex_lock(&driver_lock);
        if (condition->assigned)
            condition->value = condition->initial;
        pthread_mutex_unlock(&driver_lock);
        for (unsigned body = 0; body < node->operation.conditional.size; body++)
            exec_assign_defaults(node->bodies[body]);
    }
}

// The task of a conditional node gets one that comes after it, and after what it decides to run. That one is the
// result, and is the caller's; NULL: memory is out.
static struct task *continue_conditional(struct task *task, CUcontext context)
{
    struct task *after = task_new(context);
    if (!after)
        return NULL;
    task->continuation = task_keep(after);
    if (!task_after(after, task)) {
        task_drop(after);
        return NULL;
    }
    return after;
}

// Links a task behind another one as an edge says.
static bool follow(struct task *task, struct task *earlier, const CUgraphEdgeData *edge)
{
    enum task_progress progress = edge->from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC   ? PROGRESS_TRIGGERED
                                  : edge->from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER ? PROGRESS_BEGUN
                                                                                              : PROGRESS_DONE;
    return task_after_early(task, earlier, progress, edge->type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
}

// Makes a task for every node of a plan. All start after `begin`; the result comes after all of them, is submitted,
// and is the caller's (NULL: memory is out, and what was made runs or will run as empty tasks). Kernels are recorded in
// `recording`, which may be NULL. `launched` is the whole graph if it has conditional nodes, else NULL.
static struct task *launch_plan(struct plan *plan, CUcontext context, struct task *begin, struct recording *recording,
                                const struct plan *launched, bool *complete)
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
        task->launched = launched;
        if (!node->dependency_count)
            linked = task_after(task, begin);
        for (size_t j = 0; j < node->dependency_count && linked; j++)
            linked = follow(task, tasks[node->dependencies[j]], &node->edges[j]);
        if (!node->disabled && linked) {
            task->operation = &node->operation;
            if (node->operation.kind == CU_GRAPH_NODE_TYPE_KERNEL || node->bodies)
                task->recording = recording_keep(recording);
            if (node->operation.kind == CU_GRAPH_NODE_TYPE_WAIT_EVENT)
                linked = task_after(task, node->operation.event->task);
            if (node->operation.kind == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
                event_set_task(node->operation.event, task);
        }
        tasks[i] = task;
        if (node->child && linked) {
            // The child's nodes come after this task, and what depends on it comes after them.
            struct task *child_end = launch_plan(node->child, context, task, recording, launched, complete);
            linked = child_end != NULL;
            task_submit(task);
            task_drop(task);
            tasks[i] = child_end;
        } else if (node->bodies && linked) {
            struct task *after = continue_conditional(task, context);
            linked = after != NULL;
            task_submit(task);
            task_drop(task);
            if (after)
                task_submit(after);
            tasks[i] = after;
        } else {
            task_submit(task);
        }
        if (!node->is_awaited && linked)
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

// Starts the body that the condition chooses, and for a loop the next decision behind it. The driver's lock is held.
// False when memory is out.
static bool start_body(struct task *task)
{
    const struct conditional_operation *conditional = &task->operation->conditional;
    size_t choice = conditional_choice(conditional);
    bool complete = true;
    if (choice == SIZE_MAX)
        return true;
    struct task *end = launch_plan(conditional->planned->bodies[choice], task->context, task, task->recording,
                                   task->launched, &complete);
    if (!end)
        return false;
    if (conditional->type == CU_GRAPH_COND_TYPE_WHILE) {
        struct task *again = task_new(task->context);
        complete = complete && again && task_after(again, end);
        if (again) {
            again->operation = task->operation;
            again->launched = task->launched;
            again->recording = recording_keep(task->recording);
            again->continuation = task_keep(task->continuation);
            complete = task_after(task->continuation, again) && complete;
            task_submit(again);
            task_drop(again);
        }
    } else {
        complete = task_after(task->continuation, end) && complete;
    }
    task_drop(end);
    return complete;
}

void exec_run_conditional(struct task *task)
{
    // The task is still running: nothing that is linked behind it starts before all of it is linked.
    pthread_mutex_lock(&driver_lock);
    bool complete = start_body(task);
    pthread_mutex_unlock(&driver_lock);
    if (!complete)
        task_failed(task, CUDA_ERROR_OUT_OF_MEMORY);
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
    if (exec->plan->conditional)
        begin->own = (struct operation){.kind = OPERATION_LAUNCH, .plan = exec->plan};
    task_keep(begin);
    // Nothing may run before the nodes are linked behind `begin`; the lock is held until then.
    if (stream_append(stream, begin) != CUDA_SUCCESS)
        complete = false;
    memory_nodes(exec->plan, auto_free, false);
    struct recording *recording = recording_for_launch();
    struct task *end = launch_plan(exec->plan, stream->context, begin, recording,
                                   exec->plan->conditional ? exec->plan : NULL, &complete);
    recording_release(recording);
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
    stream_set_tail(stream, end);
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
