// The ten rules of docs/order.md as vector clocks. Every stream and every host thread is a lane; an operation keeps
// its place on its lane and the clock of what was complete when it began. Clocks are shared between operations as long
// as nothing joins, so that a million operations on a hundred streams cost what their synchronisations cost.
#include "order/timeline.h"

#include "base/memory.h"
#include "order/clock.h"
#include "order/exec_index.h"
#include "order/id_map.h"
#include "order/reuse.h"
#include "order/value_order.h"

#include <string.h>

static const uint32_t NO_LANE = UINT32_MAX;

enum { NESTING_LIMIT = 32 }; // of child graphs that are searched for event nodes

// CUstreamWriteValue_flags: the write may overtake what comes before it.
enum { WRITE_NO_MEMORY_BARRIER = 1 };

// Where an operation stands.
typedef struct entry {
    uint64_t sequence;
    uint32_t lane, position; // from 1
    gv_clock before;         // of what was complete when it began; its own lane's entry means nothing
} entry;

typedef struct stream_state {
    uint32_t lane; // NO_LANE until its first operation
    uint32_t position;
    gv_clock before;   // what the next operation follows besides its own lane
    gv_clock complete; // with all operations so far; made when needed
    bool complete_known;
    uint32_t wait_lane, waits; // stream value waits passed
    uint64_t capture;          // the capture it is part of; 0: none
    uint64_t legacy_seen;      // number of the last operation on the legacy default stream it follows
    bool in_fresh, in_unsynced;
} stream_state;

// A list of streams.
typedef struct stream_list {
    uint64_t *items;
    size_t count, capacity;
} stream_list;

typedef struct context_state {
    uint64_t legacy;        // its legacy default stream, once it has been used
    uint64_t legacy_number; // operations on it
    stream_list fresh;      // blocking streams with operations it does not follow yet
    stream_list unsynced;   // streams with operations since the last context synchronize
    gv_clock synced;        // what that has shown to be complete
} context_state;

// A host thread, or all of them.
typedef struct host_state {
    uint32_t lane, position;
    gv_clock before;
    gv_clock complete;
    bool complete_known;
} host_state;

typedef struct event_state {
    gv_clock clock;   // of the latest record
    uint64_t capture; // it was recorded into this capture
} event_state;

struct gv_timeline {
    const gv_trace *trace;
    bool strict_threads;
    gv_error *error; // of the call at hand
    gv_clocks clocks;
    uint32_t lane_count;
    entry *entries;
    size_t entry_count, entry_capacity;
    stream_state *streams;   // by id
    context_state *contexts; // by id
    host_state *hosts;
    size_t host_count, host_capacity;
    gv_id_map host_of; // thread to index
    event_state *events;
    size_t event_count, event_capacity;
    gv_id_map event_of;
    gv_clock *execs; // completion of the latest launch
    size_t exec_count, exec_capacity;
    gv_id_map exec_of;
    gv_clock *tokens; // what has been released
    size_t token_count, token_capacity;
    gv_id_map token_of;
    gv_exec_index exec_index;
    bool *has_event_nodes; // by graph id, child graphs included
    gv_freed freed;
    gv_value_order values;
    bool *capturing; // by number of the capture
    size_t capture_count, capture_capacity;
};

static gv_status out_of_memory(gv_timeline *t)
{
    return gv_fail(t->error, GV_ERR_MEMORY, "out of memory while ordering operations (%zu so far)", t->entry_count);
}

// ---- Clocks of streams and threads ------------------------------------------------------------------------------

static bool join(gv_timeline *t, gv_clock *into, gv_clock other)
{
    return gv_clock_join(&t->clocks, *into, other, into);
}

// What is complete once all operations of a stream so far are.
static bool stream_complete(gv_timeline *t, stream_state *stream, gv_clock *clock)
{
    if (!stream->complete_known) {
        stream->complete = stream->before;
        if (stream->lane != NO_LANE &&
            !gv_clock_raise(&t->clocks, stream->before, stream->lane, stream->position, &stream->complete))
            return false;
        stream->complete_known = true;
    }
    *clock = stream->complete;
    return true;
}

static bool stream_follows(gv_timeline *t, stream_state *stream, gv_clock clock)
{
    gv_clock before = stream->before;
    if (!join(t, &stream->before, clock))
        return false;
    stream->complete_known = stream->complete_known && before == stream->before;
    return true;
}

static bool host_complete(gv_timeline *t, host_state *host, gv_clock *clock)
{
    if (!host->complete_known) {
        host->complete = host->before;
        if (host->position && !gv_clock_raise(&t->clocks, host->before, host->lane, host->position, &host->complete))
            return false;
        host->complete_known = true;
    }
    *clock = host->complete;
    return true;
}

static bool host_follows(gv_timeline *t, host_state *host, gv_clock clock)
{
    gv_clock before = host->before;
    if (!join(t, &host->before, clock))
        return false;
    host->complete_known = host->complete_known && before == host->before;
    return true;
}

// The host as the thread that made a call sees it (rule 4): one for all threads unless threads are strict.
static host_state *host_of(gv_timeline *t, uint64_t thread)
{
    bool added;
    uint32_t *index = gv_id_map_add(&t->host_of, t->strict_threads ? thread : 0, (uint32_t)t->host_count, &added);
    if (!index || !added)
        return index ? &t->hosts[*index] : NULL;
    if (!GV_GROW(t->hosts, t->host_capacity, t->host_count + 1))
        return NULL;
    t->hosts[t->host_count] = (host_state){.lane = t->lane_count++};
    return &t->hosts[t->host_count++];
}

static bool add_entry(gv_timeline *t, uint64_t sequence, uint32_t lane, uint32_t position, gv_clock before)
{
    if (!GV_GROW(t->entries, t->entry_capacity, t->entry_count + 1))
        return false;
    t->entries[t->entry_count++] = (entry){.sequence = sequence, .lane = lane, .position = position, .before = before};
    return true;
}

static bool list_add(stream_list *list, uint64_t stream)
{
    if (!GV_GROW(list->items, list->capacity, list->count + 1))
        return false;
    list->items[list->count++] = stream;
    return true;
}

// ---- Tables with ids that have no bound -------------------------------------------------------------------------

static event_state *event_of(gv_timeline *t, uint64_t id)
{
    bool added;
    uint32_t *index = gv_id_map_add(&t->event_of, id, (uint32_t)t->event_count, &added);
    if (!index || !added)
        return index ? &t->events[*index] : NULL;
    if (!GV_GROW(t->events, t->event_capacity, t->event_count + 1))
        return NULL;
    t->events[t->event_count] = (event_state){0};
    return &t->events[t->event_count++];
}

// The clock kept for an exec or a token.
static gv_clock *clock_of(gv_id_map *map, gv_clock **clocks, size_t *count, size_t *capacity, uint64_t id)
{
    bool added;
    uint32_t *index = gv_id_map_add(map, id, (uint32_t)*count, &added);
    if (!index || !added)
        return index ? &(*clocks)[*index] : NULL;
    if (!gv_grow((void **)clocks, capacity, *count + 1, sizeof **clocks))
        return NULL;
    (*clocks)[*count] = 0;
    return &(*clocks)[(*count)++];
}

// ---- The legacy default stream (rule 3) -------------------------------------------------------------------------

static enum gv_stream_kind kind_of(const gv_timeline *t, uint64_t stream)
{
    return t->trace->streams[stream].kind;
}

static context_state *context_of(gv_timeline *t, uint64_t stream)
{
    return &t->contexts[t->trace->streams[stream].context];
}

// Joins what the blocking streams of the context have done since the legacy default stream last looked.
static bool gather_blocking(gv_timeline *t, context_state *context, gv_clock *clock)
{
    for (size_t i = 0; i < context->fresh.count; i++) {
        gv_clock complete;
        if (!stream_complete(t, &t->streams[context->fresh.items[i]], &complete) || !join(t, clock, complete))
            return false;
    }
    return true;
}

// What an operation on this stream follows through the legacy default stream's barriers.
static bool cross_barrier(gv_timeline *t, uint64_t id)
{
    stream_state *stream = &t->streams[id];
    context_state *context = context_of(t, id);
    if (kind_of(t, id) == GV_STREAM_NON_BLOCKING)
        return true;
    if (kind_of(t, id) == GV_STREAM_LEGACY_DEFAULT) {
        gv_clock gathered = 0;
        if (!gather_blocking(t, context, &gathered) || !stream_follows(t, stream, gathered))
            return false;
        for (size_t i = 0; i < context->fresh.count; i++)
            t->streams[context->fresh.items[i]].in_fresh = false;
        context->fresh.count = 0;
        context->legacy = id;
        context->legacy_number++;
        return true;
    }
    if (stream->legacy_seen != context->legacy_number) {
        gv_clock complete;
        if (!stream_complete(t, &t->streams[context->legacy], &complete) || !stream_follows(t, stream, complete))
            return false;
        stream->legacy_seen = context->legacy_number;
    }
    if (!stream->in_fresh) {
        if (!list_add(&context->fresh, id))
            return false;
        stream->in_fresh = true;
    }
    return true;
}

// ---- Operations -------------------------------------------------------------------------------------------------

static bool known_stream(const gv_timeline *t, uint64_t id)
{
    return id && id < t->trace->stream_count;
}

// Puts an operation at the end of its stream. It follows what came before in the stream, what the host knew to be
// complete, and what crosses from or to the legacy default stream.
static bool place_on_stream(gv_timeline *t, const gv_operation *op)
{
    stream_state *stream = &t->streams[op->stream];
    context_state *context = context_of(t, op->stream);
    host_state *host = host_of(t, op->thread);
    gv_clock known;
    if (!host || !host_complete(t, host, &known) || !stream_follows(t, stream, known) || !cross_barrier(t, op->stream))
        return false;
    if (stream->lane == NO_LANE)
        stream->lane = t->lane_count++;
    if (!stream->in_unsynced) {
        if (!list_add(&context->unsynced, op->stream))
            return false;
        stream->in_unsynced = true;
    }
    stream->position++;
    stream->complete_known = false;
    return add_entry(t, op->sequence, stream->lane, stream->position, stream->before);
}

// Puts an operation on the host.
static bool place_on_host(gv_timeline *t, const gv_operation *op)
{
    host_state *host = host_of(t, op->thread);
    if (!host)
        return false;
    host->position++;
    host->complete_known = false;
    return add_entry(t, op->sequence, host->lane, host->position, host->before);
}

// What is complete when the last operation of a stream begins.
static bool complete_before_last(gv_timeline *t, const stream_state *stream, gv_clock *clock)
{
    return gv_clock_raise(&t->clocks, stream->before, stream->lane, stream->position - 1, clock);
}

// Rule 7. A copy that returns late orders what the host does next: pageable host-to-device copies behind what was in
// the stream before them (they are staged, not done), other copies with host memory behind themselves.
static bool host_waits_for_copy(gv_timeline *t, const gv_operation *op)
{
    bool from_host = op->flags & GV_COPY_FROM_HOST, to_host = op->flags & GV_COPY_TO_HOST;
    bool synchronous = op->flags & GV_COPY_SYNCHRONOUS;
    if (op->kind == GV_OP_MEMSET) {
        if (!synchronous || !to_host)
            return true;
    } else if (op->flags & GV_COPY_UNKNOWN || !(from_host || to_host) || !(synchronous || (from_host && to_host))) {
        return true;
    }
    host_state *host = host_of(t, op->thread);
    stream_state *stream = &t->streams[op->stream];
    bool staged = op->kind == GV_OP_MEMCPY && from_host && !to_host && op->flags & GV_COPY_PAGEABLE;
    gv_clock complete;
    return host && (staged ? complete_before_last(t, stream, &complete) : stream_complete(t, stream, &complete)) &&
           host_follows(t, host, complete);
}

// Rule 2: the wait is bound to the latest record now. An event never recorded stands for nothing.
static bool add_event_wait(gv_timeline *t, const gv_operation *op)
{
    event_state *event = event_of(t, op->object);
    return event && stream_follows(t, &t->streams[op->stream], event->clock) && place_on_stream(t, op);
}

static bool add_event_record(gv_timeline *t, const gv_operation *op)
{
    event_state *event = event_of(t, op->object);
    if (!event || !place_on_stream(t, op))
        return false;
    event->capture = 0;
    return stream_complete(t, &t->streams[op->stream], &event->clock);
}

// Event nodes of the launched graph. A record node ends the events' earlier records: what is certain to be complete
// when it is reached is what came before the launch. What follows the launch follows its wait nodes' events.
static bool apply_event_nodes(gv_timeline *t, const gv_operation *op, uint64_t graph_id, gv_clock before_launch,
                              int depth)
{
    if (graph_id >= t->trace->graph_count || !t->has_event_nodes[graph_id] || depth > NESTING_LIMIT)
        return true;
    const gv_graph *graph = &t->trace->graphs[graph_id];
    for (size_t n = 0; n < graph->node_count; n++) {
        const gv_node *node = &graph->nodes[n];
        bool records = node->kind == GV_NODE_EVENT_RECORD, waits = node->kind == GV_NODE_EVENT_WAIT;
        if (node->kind == GV_NODE_CHILD && !apply_event_nodes(t, op, node->child, before_launch, depth + 1))
            return false;
        if (!(records || waits) || !node->detail.count || node->flags & GV_NODE_DISABLED)
            continue;
        event_state *event = event_of(t, node->detail.items[0]);
        if (!event)
            return false;
        if (waits && !stream_follows(t, &t->streams[op->stream], event->clock))
            return false;
        if (records)
            event->clock = before_launch;
    }
    return true;
}

// Rule 5.
static bool add_graph_launch(gv_timeline *t, const gv_operation *op)
{
    stream_state *stream = &t->streams[op->stream];
    gv_clock *last = clock_of(&t->exec_of, &t->execs, &t->exec_count, &t->exec_capacity, op->object);
    if (!last || !stream_follows(t, stream, *last) || !place_on_stream(t, op))
        return false;
    gv_clock before = 0;
    uint64_t graph = gv_exec_index_graph(&t->exec_index, op->object, op->sequence);
    bool events = graph && graph < t->trace->graph_count && t->has_event_nodes[graph];
    if (events && (!complete_before_last(t, stream, &before) || !apply_event_nodes(t, op, graph, before, 0)))
        return false;
    return stream_complete(t, stream, last);
}

// Rule 8.
static bool add_value_write(gv_timeline *t, const gv_operation *op)
{
    stream_state *stream = &t->streams[op->stream];
    if (!place_on_stream(t, op))
        return false;
    gv_value_write write = {.address = op->address,
                            .value = op->value,
                            .size = op->size,
                            .lane = stream->lane,
                            .position = stream->position,
                            .before = stream->before};
    // Without its memory barrier the write says nothing about what came before it.
    if (!(op->flags & WRITE_NO_MEMORY_BARRIER) && !stream_complete(t, stream, &write.complete))
        return false;
    return gv_value_order_add_write(&t->values, &write);
}

static bool add_value_wait(gv_timeline *t, const gv_operation *op)
{
    stream_state *stream = &t->streams[op->stream];
    if (!place_on_stream(t, op))
        return false;
    if (stream->wait_lane == NO_LANE)
        stream->wait_lane = t->lane_count++;
    gv_value_wait wait = {.address = op->address,
                          .value = op->value,
                          .size = op->size,
                          .flags = op->flags,
                          .lane = stream->lane,
                          .position = stream->position,
                          .wait_lane = stream->wait_lane,
                          .number = ++stream->waits,
                          .before = stream->before};
    gv_clock passed;
    if (!gv_clock_raise(&t->clocks, stream->before, stream->wait_lane, stream->waits, &passed) ||
        !stream_follows(t, stream, passed))
        return false;
    // As for every wait, its own work is what comes behind it.
    t->entries[t->entry_count - 1].before = stream->before;
    return gv_value_order_add_wait(&t->values, &wait);
}

static const gv_allocation *allocation_of(const gv_timeline *t, uint64_t id)
{
    const gv_allocation *allocation = id && id < t->trace->allocation_count ? &t->trace->allocations[id] : NULL;
    return allocation && allocation->size && allocation->size <= UINT64_MAX - allocation->address ? allocation : NULL;
}

// Rule 9: the new life follows the ends of the lives whose addresses it takes over.
static bool add_alloc(gv_timeline *t, const gv_operation *op)
{
    const gv_allocation *allocation = allocation_of(t, op->object);
    gv_clock ended = 0;
    if (allocation &&
        !gv_freed_take(&t->freed, &t->clocks, allocation->address, allocation->address + allocation->size, &ended))
        return false;
    if (known_stream(t, op->stream))
        return stream_follows(t, &t->streams[op->stream], ended) && place_on_stream(t, op);
    host_state *host = host_of(t, op->thread);
    return host && host_follows(t, host, ended) && place_on_host(t, op);
}

static bool add_free(gv_timeline *t, const gv_operation *op)
{
    const gv_allocation *allocation = allocation_of(t, op->object);
    gv_clock ended;
    if (known_stream(t, op->stream)) {
        if (!place_on_stream(t, op) || !stream_complete(t, &t->streams[op->stream], &ended))
            return false;
    } else {
        // CUDA only says that an ordinary free may synchronize, so that nothing is ordered by it.
        host_state *host = host_of(t, op->thread);
        if (!host || !place_on_host(t, op) || !host_complete(t, host, &ended))
            return false;
    }
    return !allocation || gv_freed_add(&t->freed, allocation->address, allocation->address + allocation->size, ended);
}

// Rule 4. A stream synchronize; on the legacy default stream it acts on all blocking streams, as any call on it does.
static bool add_stream_sync(gv_timeline *t, const gv_operation *op)
{
    host_state *host = host_of(t, op->thread);
    gv_clock complete = 0;
    if (!host)
        return false;
    if (known_stream(t, op->stream)) {
        if (!stream_complete(t, &t->streams[op->stream], &complete))
            return false;
        if (kind_of(t, op->stream) == GV_STREAM_LEGACY_DEFAULT &&
            !gather_blocking(t, context_of(t, op->stream), &complete))
            return false;
    }
    return host_follows(t, host, complete) && place_on_host(t, op);
}

static bool add_event_sync(gv_timeline *t, const gv_operation *op)
{
    host_state *host = host_of(t, op->thread);
    event_state *event = event_of(t, op->object);
    return host && event && host_follows(t, host, event->clock) && place_on_host(t, op);
}

static bool add_context_sync(gv_timeline *t, const gv_operation *op)
{
    host_state *host = host_of(t, op->thread);
    if (!host)
        return false;
    if (op->object && op->object < t->trace->context_count) {
        context_state *context = &t->contexts[op->object];
        for (size_t i = 0; i < context->unsynced.count; i++) {
            stream_state *stream = &t->streams[context->unsynced.items[i]];
            gv_clock complete;
            if (!stream_complete(t, stream, &complete) || !join(t, &context->synced, complete))
                return false;
            stream->in_unsynced = false;
        }
        context->unsynced.count = 0;
        if (!host_follows(t, host, context->synced))
            return false;
    }
    return place_on_host(t, op);
}

// What the program declares: an acquire follows every earlier release of the same token.
static bool add_host_order(gv_timeline *t, const gv_operation *op)
{
    enum { ACQUIRE = 1 };
    host_state *host = host_of(t, op->thread);
    gv_clock *token = clock_of(&t->token_of, &t->tokens, &t->token_count, &t->token_capacity, op->object);
    if (!host || !token)
        return false;
    if (op->flags & ACQUIRE)
        return host_follows(t, host, *token) && place_on_host(t, op);
    gv_clock complete;
    return place_on_host(t, op) && host_complete(t, host, &complete) && join(t, token, complete);
}

// ---- Captures (rule 1) ------------------------------------------------------------------------------------------

static bool begin_capture(gv_timeline *t, const gv_operation *op)
{
    if (known_stream(t, op->stream)) {
        if (!GV_GROW(t->capturing, t->capture_capacity, t->capture_count + 2))
            return false;
        t->streams[op->stream].capture = ++t->capture_count;
        t->capturing[t->capture_count] = true;
    }
    return place_on_host(t, op);
}

static bool end_capture(gv_timeline *t, const gv_operation *op)
{
    uint64_t capture = known_stream(t, op->stream) ? t->streams[op->stream].capture : 0;
    for (size_t s = 0; capture && s < t->trace->stream_count; s++) {
        if (t->streams[s].capture == capture)
            t->streams[s].capture = 0;
    }
    if (capture)
        t->capturing[capture] = false;
    return place_on_host(t, op);
}

// Is the operation part of a capture? A record there marks the event, and a wait for it draws the stream in.
static bool is_captured(gv_timeline *t, const gv_operation *op, bool *failed)
{
    stream_state *stream = &t->streams[op->stream];
    event_state *event = NULL;
    *failed = false;
    if (op->kind == GV_OP_EVENT_RECORD || op->kind == GV_OP_EVENT_WAIT) {
        event = event_of(t, op->object);
        *failed = !event;
    }
    if (event && op->kind == GV_OP_EVENT_WAIT && event->capture && t->capturing[event->capture] && !stream->capture)
        stream->capture = event->capture;
    if (event && op->kind == GV_OP_EVENT_RECORD && stream->capture)
        *event = (event_state){.capture = stream->capture};
    return stream->capture != 0;
}

// ---- All kinds --------------------------------------------------------------------------------------------------

static bool add_on_stream(gv_timeline *t, const gv_operation *op)
{
    bool failed;
    if (!known_stream(t, op->stream))
        return add_entry(t, op->sequence, NO_LANE, 0, 0);
    if (is_captured(t, op, &failed) || failed)
        return !failed && add_entry(t, op->sequence, NO_LANE, 0, 0);
    switch (op->kind) {
    case GV_OP_MEMCPY:
    case GV_OP_MEMSET: return place_on_stream(t, op) && host_waits_for_copy(t, op);
    case GV_OP_EVENT_RECORD: return add_event_record(t, op);
    case GV_OP_EVENT_WAIT: return add_event_wait(t, op);
    case GV_OP_VALUE_WRITE: return add_value_write(t, op);
    case GV_OP_VALUE_WAIT: return add_value_wait(t, op);
    case GV_OP_GRAPH_LAUNCH: return add_graph_launch(t, op);
    default: return place_on_stream(t, op);
    }
}

static bool add(gv_timeline *t, const gv_operation *op)
{
    bool captured = known_stream(t, op->stream) && t->streams[op->stream].capture;
    switch (op->kind) {
    case GV_OP_NONE: return add_entry(t, op->sequence, NO_LANE, 0, 0);
    case GV_OP_KERNEL:
    case GV_OP_MEMCPY:
    case GV_OP_MEMSET:
    case GV_OP_HOST_FUNCTION:
    case GV_OP_EVENT_RECORD:
    case GV_OP_EVENT_WAIT:
    case GV_OP_VALUE_WRITE:
    case GV_OP_VALUE_WAIT:
    case GV_OP_GRAPH_LAUNCH: return add_on_stream(t, op);
    case GV_OP_ALLOC: return captured ? add_entry(t, op->sequence, NO_LANE, 0, 0) : add_alloc(t, op);
    case GV_OP_FREE: return captured ? add_entry(t, op->sequence, NO_LANE, 0, 0) : add_free(t, op);
    case GV_OP_STREAM_SYNC:
    case GV_OP_STREAM_QUERY: return add_stream_sync(t, op);
    case GV_OP_EVENT_SYNC:
    case GV_OP_EVENT_QUERY: return add_event_sync(t, op);
    case GV_OP_CONTEXT_SYNC: return add_context_sync(t, op);
    case GV_OP_CAPTURE_BEGIN: return begin_capture(t, op);
    case GV_OP_CAPTURE_END: return end_capture(t, op);
    case GV_OP_HOST_ORDER: return add_host_order(t, op);
    case GV_OP_STREAM_CREATE:
    case GV_OP_STREAM_DESTROY:
    case GV_OP_EVENT_DESTROY:
    case GV_OP_INSTANTIATE:
    case GV_OP_EXEC_UPDATE:
    case GV_OP_EXEC_SET_NODE:
    case GV_OP_EXEC_DESTROY: return place_on_host(t, op);
    }
    return add_entry(t, op->sequence, NO_LANE, 0, 0);
}

gv_status gv_timeline_add(gv_timeline *timeline, const gv_operation *operation, gv_error *error)
{
    timeline->error = error;
    if (timeline->entry_count && operation->sequence <= timeline->entries[timeline->entry_count - 1].sequence)
        return gv_fail(error, GV_ERR_USAGE, "operation %llu was added after operation %llu; add them in order",
                       (unsigned long long)operation->sequence,
                       (unsigned long long)timeline->entries[timeline->entry_count - 1].sequence);
    return add(timeline, operation) ? GV_OK : out_of_memory(timeline);
}

gv_status gv_timeline_add_all(gv_timeline *timeline, gv_error *error)
{
    for (size_t i = 0; i < timeline->trace->operation_count; i++) {
        gv_status status = gv_timeline_add(timeline, &timeline->trace->operations[i], error);
        if (status)
            return status;
    }
    return GV_OK;
}

// ---- Making and asking ------------------------------------------------------------------------------------------

// Marks the graphs with event nodes, then, level by level, the graphs that contain them.
static void mark_event_nodes(gv_timeline *t)
{
    bool changed = true;
    for (int level = 0; changed && level <= NESTING_LIMIT; level++) {
        changed = false;
        for (size_t g = 0; g < t->trace->graph_count; g++) {
            const gv_graph *graph = &t->trace->graphs[g];
            for (size_t n = 0; n < graph->node_count && !t->has_event_nodes[g]; n++) {
                const gv_node *node = &graph->nodes[n];
                bool event = node->kind == GV_NODE_EVENT_RECORD || node->kind == GV_NODE_EVENT_WAIT;
                bool child = node->kind == GV_NODE_CHILD && node->child < t->trace->graph_count &&
                             t->has_event_nodes[node->child];
                t->has_event_nodes[g] = event || child;
                changed |= event || child;
            }
        }
    }
}

gv_status gv_timeline_create(const gv_trace *trace, const gv_timeline_options *options, gv_timeline **timeline,
                             gv_error *error)
{
    *timeline = NULL;
    gv_timeline *t = gv_calloc(1, sizeof *t);
    if (!t)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory while ordering operations");
    t->trace = trace;
    t->strict_threads = options && options->strict_threads;
    t->error = error;
    t->streams = gv_calloc(trace->stream_count, sizeof *t->streams);
    // Row 0 is for streams whose context the trace does not name.
    t->contexts = gv_calloc(trace->context_count + 1, sizeof *t->contexts);
    t->has_event_nodes = gv_calloc(trace->graph_count, sizeof *t->has_event_nodes);
    gv_status status = GV_OK;
    if (!gv_clocks_init(&t->clocks) || !t->streams || !t->contexts || !t->has_event_nodes)
        status = out_of_memory(t);
    if (!status)
        status = gv_exec_index_build(&t->exec_index, trace, error);
    if (status) {
        gv_timeline_free(t);
        return status;
    }
    for (size_t s = 0; s < trace->stream_count; s++)
        t->streams[s].lane = t->streams[s].wait_lane = NO_LANE;
    mark_event_nodes(t);
    *timeline = t;
    return GV_OK;
}

void gv_timeline_free(gv_timeline *timeline)
{
    if (!timeline)
        return;
    for (size_t c = 0; timeline->contexts && c <= timeline->trace->context_count; c++) {
        gv_free(timeline->contexts[c].fresh.items);
        gv_free(timeline->contexts[c].unsynced.items);
    }
    gv_clocks_free(&timeline->clocks);
    gv_free(timeline->entries);
    gv_free(timeline->streams);
    gv_free(timeline->contexts);
    gv_free(timeline->hosts);
    gv_id_map_free(&timeline->host_of);
    gv_free(timeline->events);
    gv_id_map_free(&timeline->event_of);
    gv_free(timeline->execs);
    gv_id_map_free(&timeline->exec_of);
    gv_free(timeline->tokens);
    gv_id_map_free(&timeline->token_of);
    gv_exec_index_free(&timeline->exec_index);
    gv_free(timeline->has_event_nodes);
    gv_free(timeline->capturing);
    gv_freed_free(&timeline->freed);
    gv_value_order_free(&timeline->values);
    gv_free(timeline);
}

static const entry *find_entry(const gv_timeline *t, uint64_t sequence)
{
    size_t low = 0, high = t->entry_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->entries[middle].sequence < sequence)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->entry_count && t->entries[low].sequence == sequence ? &t->entries[low] : NULL;
}

bool gv_timeline_before(const gv_timeline *timeline, uint64_t a, uint64_t b)
{
    const entry *first = find_entry(timeline, a), *second = find_entry(timeline, b);
    if (!first || !second || first->lane == NO_LANE || second->lane == NO_LANE)
        return false;
    if (first->lane == second->lane)
        return first->position < second->position;
    if (gv_clock_get(&timeline->clocks, second->before, first->lane) >= first->position)
        return true;
    if (!timeline->values.wait_count)
        return false;
    if (!timeline->values.resolved) {
        gv_timeline *self = (gv_timeline *)timeline;
        gv_value_order_resolve(&self->values, &self->clocks);
    }
    return gv_value_order_before(&timeline->values, &timeline->clocks, first->lane, first->position, second->before);
}
