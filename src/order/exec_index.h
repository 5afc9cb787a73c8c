// Which snapshot an executable graph runs at a given operation.
#ifndef GV_ORDER_EXEC_INDEX_H
#define GV_ORDER_EXEC_INDEX_H

#include "base/error.h"
#include "trace/trace.h"

typedef struct gv_exec_index {
    const gv_exec_version **versions; // by exec, then operation
    size_t count;
} gv_exec_index;

// The trace must outlive the index. Release with gv_exec_index_free. Fails only when memory is out.
gv_status gv_exec_index_build(gv_exec_index *index, const gv_trace *trace, gv_error *error);
void gv_exec_index_free(gv_exec_index *index);

// The snapshot that `exec` runs at operation `sequence`, or 0 when the trace does not tell.
uint64_t gv_exec_index_graph(const gv_exec_index *index, uint64_t exec, uint64_t sequence);

#endif
