// Stream capture.
#ifndef GRAVEL_SOFT_CAPTURE_H
#define GRAVEL_SOFT_CAPTURE_H

#include "soft/driver.h"
#include "soft/operation.h"

// What the next node of a capturing stream comes after: nodes and the data of the edges from them.
struct dependency_set {
    CUgraphNode *nodes;
    CUgraphEdgeData *edges;
    size_t count, node_capacity, edge_capacity;
};

struct capture {
    struct capture *next; // of all that are under way
    uint64_t id;
    CUgraph graph;
    bool owns_graph; // false: captured into a graph that the program had
    CUstreamCaptureMode mode;
    uint64_t thread;
    CUstream origin;
    bool invalidated;
    struct dependency_set orphans; // what streams that were destroyed left to be joined
};

// What an event that was recorded in a capturing stream stands for.
struct captured_event {
    uint64_t capture; // 0: the event's last record was not captured
    struct dependency_set after;
};

void dependency_set_clear(struct dependency_set *set);

// Records an operation (taken over, also on failure) as a node of the stream's capture.
CUresult capture_operation(CUstream stream, struct operation *operation, CUgraphNode *node);

// CUDA_SUCCESS while the stream's capture is active, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED when it is not any more.
CUresult capture_usable(CUstream stream);

// For calls that do not belong in a capture: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, with the captures concerned
// invalidated, when the calling thread's capture mode forbids them now.
CUresult capture_forbid_unsafe(void);

// For work in the legacy stream: it would depend on capturing streams (CUDA_ERROR_STREAM_CAPTURE_IMPLICIT).
CUresult capture_check_implicit(CUcontext context);

// Marks a capture as failed; its streams refuse work until it is ended.
void capture_invalidate(struct capture *capture);

// A record in, and a wait of, a capturing stream or for a captured event.
// The event stands for how far a node of the stream's capture has come: who waits for it depends on the node by this
// edge.
CUresult capture_record_launch(CUstream stream, struct captured_event *event, CUgraphNode node,
                               const CUgraphEdgeData *edge);

CUresult capture_record_event(CUstream stream, struct captured_event *event);
CUresult capture_wait_event(CUstream stream, struct captured_event *event);

// Was the event's latest record captured, and is that capture still under way?
bool captured_event_active(const struct captured_event *event);

// Invalidates the capture that the event was recorded in, for a call that may not ask about it.
void captured_event_invalidate(const struct captured_event *event);
void captured_event_clear(struct captured_event *event);

// A stream that is about to be destroyed leaves its capture.
void capture_stream_gone(CUstream stream);

// A node that is about to be destroyed leaves the sets of all streams.
void capture_node_gone(CUgraphNode node);

#endif
