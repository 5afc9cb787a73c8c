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

// `trace` gives stream kinds and contexts and must outlive the timeline.
gv_status gv_timeline_create(const gv_trace *trace, const gv_timeline_options *options, gv_timeline **timeline,
                             gv_error *error);

// Adds one operation; gv_timeline_add_all adds all of the trace's.
gv_status gv_timeline_add(gv_timeline *timeline, const gv_operation *operation, gv_error *error);
gv_status gv_timeline_add_all(gv_timeline *timeline, gv_error *error);

// Is the device work (or the host's part) of operation `a` complete before the work of operation `b` begins? By
// sequence number; an unknown one is unordered.
bool gv_timeline_before(const gv_timeline *timeline, uint64_t a, uint64_t b);

void gv_timeline_free(gv_timeline *timeline);

#endif
