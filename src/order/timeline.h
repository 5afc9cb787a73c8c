// Happens-before among the operations of one process, across streams, events, graph launches and host calls: the ten
// rules of docs/order.md. Feed operations in the order in which the calls returned; ask about any two.
#ifndef GV_ORDER_TIMELINE_H
#define GV_ORDER_TIMELINE_H

#include "base/error.h"
#include "trace/trace.h"

#include <stdbool.h>

typedef struct gv_timeline gv_timeline;

typedef struct gv_timeline_options {
    bool strict_threads; // rule 4: host synchronisation counts for the calling thread only
} gv_timeline_options;

// `trace` gives stream kinds and contexts, allocations, graphs and execs, and must outlive the timeline. `options` may
// be NULL.
gv_status gv_timeline_create(const gv_trace *trace, const gv_timeline_options *options, gv_timeline **timeline,
                             gv_error *error);

// Adds one operation; gv_timeline_add_all adds all of the trace's. Sequence numbers must rise (GV_ERR_USAGE).
gv_status gv_timeline_add(gv_timeline *timeline, const gv_operation *operation, gv_error *error);
gv_status gv_timeline_add_all(gv_timeline *timeline, gv_error *error);

// Is the device work (or the host's part) of operation `a` complete before the work of operation `b` begins? By
// sequence number; an unknown one is unordered. The work of a wait or of a synchronising call is what follows it: it
// begins when what it waits for is complete. Operations on a stream that is capturing are unordered, since they run
// with the graph. The first question after a stream value operation works those out; not for several threads at once.
bool gv_timeline_before(const gv_timeline *timeline, uint64_t a, uint64_t b);

void gv_timeline_free(gv_timeline *timeline);

#endif
