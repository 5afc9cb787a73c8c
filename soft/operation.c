// Operations: deep copies, and running each kind.
#include "soft/operation.h"

#include "soft/conditional.h"
#include "soft/copy.h"
#include "soft/event.h"
#include "soft/exec.h"
#include "soft/launch.h"
#include "soft/schedule.h"
#include "soft/values.h"

CUresult operation_copy(struct operation *copy, const struct operation *original)
{
    *copy = *original;
    CUresult result = CUDA_SUCCESS;
    switch (original->kind) {
    case CU_GRAPH_NODE_TYPE_KERNEL: result = kernel_operation_copy(&copy->kernel, &original->kernel); break;
    case CU_GRAPH_NODE_TYPE_GRAPH: result = graph_clone(original->child, &copy->child); break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: event_keep(original->event); break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE: graph_memory_keep(original->memory.memory); break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: result = values_copy(&copy->values, &original->values); break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        condition_keep(original->conditional.condition);
        copy->conditional.bodies = NULL;
        break;
    default: break;
    }
    if (result != CUDA_SUCCESS) {
        if (original->kind == CU_GRAPH_NODE_TYPE_KERNEL)
            kernel_operation_clear(&copy->kernel);
        *copy = (struct operation){.kind = CU_GRAPH_NODE_TYPE_EMPTY};
    }
    return result;
}

void operation_clear(struct operation *operation)
{
    switch (operation->kind) {
    case CU_GRAPH_NODE_TYPE_KERNEL: kernel_operation_clear(&operation->kernel); break;
    case CU_GRAPH_NODE_TYPE_MEMCPY: gv_free(operation->copy.staged); break;
    case CU_GRAPH_NODE_TYPE_GRAPH: graph_delete(operation->child); break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: event_drop(operation->event); break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE: graph_memory_drop(operation->memory.memory); break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: gv_free(operation->values.items); break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: conditional_operation_clear(&operation->conditional); break;
    default: break;
    }
    *operation = (struct operation){.kind = CU_GRAPH_NODE_TYPE_EMPTY};
}

static void run_host(const struct host_operation *host)
{
    driver_set_in_host_function(true);
    if (host->callback)
        host->callback(host->stream, CUDA_SUCCESS, host->data);
    else
        host->function(host->data);
    driver_set_in_host_function(false);
}

enum run_result operation_run(struct task *task, struct observer *observer)
{
    const struct operation *operation = task->operation;
    switch ((int)operation->kind) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        condition_running(task->launched);
        CUresult result = kernel_operation_run(task, observer);
        condition_running(NULL);
        if (result != CUDA_SUCCESS)
            task_failed(task, result);
        break;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: copy_run(&operation->copy, observer); break;
    case CU_GRAPH_NODE_TYPE_MEMSET: set_run(&operation->set, observer); break;
    case CU_GRAPH_NODE_TYPE_HOST:
        condition_running(task->launched);
        run_host(&operation->host);
        condition_running(NULL);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return values_run(&operation->values, &task->progress) ? RUN_DONE : RUN_PARKED;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: exec_run_conditional(task); break;
    case (int)OPERATION_LAUNCH: exec_assign_defaults(operation->plan); break;
    default: break; // order is all they are: empty nodes, events, allocations
    }
    return RUN_DONE;
}

bool operation_can_resume(const struct task *task)
{
    return values_can_resume(&task->operation->values, task->progress);
}
