// Prints a trace's operations, one a line, for run.py: kind, stream, object, size, flags. usage: operations TRACE
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const kinds[] = {
    [GV_OP_KERNEL] = "kernel",
    [GV_OP_MEMCPY] = "memcpy",
    [GV_OP_MEMSET] = "memset",
    [GV_OP_HOST_FUNCTION] = "host-function",
    [GV_OP_EVENT_RECORD] = "event-record",
    [GV_OP_EVENT_WAIT] = "event-wait",
    [GV_OP_VALUE_WRITE] = "value-write",
    [GV_OP_VALUE_WAIT] = "value-wait",
    [GV_OP_ALLOC] = "alloc",
    [GV_OP_FREE] = "free",
    [GV_OP_GRAPH_LAUNCH] = "graph-launch",
    [GV_OP_STREAM_SYNC] = "stream-sync",
    [GV_OP_EVENT_SYNC] = "event-sync",
    [GV_OP_CONTEXT_SYNC] = "context-sync",
    [GV_OP_STREAM_QUERY] = "stream-query",
    [GV_OP_EVENT_QUERY] = "event-query",
    [GV_OP_STREAM_CREATE] = "stream-create",
    [GV_OP_STREAM_DESTROY] = "stream-destroy",
    [GV_OP_EVENT_DESTROY] = "event-destroy",
    [GV_OP_CAPTURE_BEGIN] = "capture-begin",
    [GV_OP_CAPTURE_END] = "capture-end",
    [GV_OP_INSTANTIATE] = "instantiate",
    [GV_OP_EXEC_UPDATE] = "exec-update",
    [GV_OP_EXEC_SET_NODE] = "exec-set-node",
    [GV_OP_EXEC_DESTROY] = "exec-destroy",
    [GV_OP_HOST_ORDER] = "host-order",
};

int main(int argc, char **argv)
{
    gv_trace *trace = NULL;
    gv_error error = {0};
    if (argc != 2 || gv_trace_load(argv[1], &trace, &error) != GV_OK) {
        fprintf(stderr, "operations: %s\n", argc == 2 ? error.text : "usage: operations TRACE");
        return 2;
    }
    for (size_t i = 0; i < trace->operation_count; i++) {
        const gv_operation *operation = &trace->operations[i];
        printf("%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %u\n", kinds[operation->kind], operation->stream,
               operation->object, operation->size, operation->flags);
    }
    gv_trace_free(trace);
    return 0;
}
