// The caching allocator: segments, free lists, captures.
#include "specimen/allocator.h"

#include "base/memory.h"

#include <string.h>

// A block of a segment, taken or free.
struct node {
    block shown; // first: a block * is a node *
    struct allocator_pool *pool;
    struct node *previous, *next; // neighbours in the segment, NULL at its ends
    size_t requested;
    bool taken, small;
    struct {
        CUstream stream;
        bool captured; // announced while the stream was capturing
    } uses[ALLOCATOR_MAX_USES];
    int use_count;
    int events; // that have to pass before it is free
    // Set aside in a capture: what the graph must reach before the block is free. None: only the end of captures helps.
    CUgraphNode *markers;
    size_t marker_count;
    struct node *next_aside;
    struct node *next_segment; // of a segment's first node, which stays the first as long as the segment lives
};

// Free blocks in order of stream, size and address.
struct free_list {
    struct node **items;
    size_t count, capacity;
};

struct allocator_pool {
    struct free_list small, large;
    size_t nodes; // of all its segments: each free list has room for as many, so that giving back cannot fail
    struct node *segments;
    int references;
    struct allocator_pool *next;
};

struct pending {
    CUevent event;
    CUstream stream;
    struct node *node;
};

struct allocator {
    device *device;
    bool prove_reuse;
    allocator_pool ordinary;
    allocator_pool *private_pools;
    struct {
        allocator_pool *pool;
        cuuint64_t id;
    } captures[4];
    int capture_count;
    struct node *aside;      // given back during captures with announced uses
    struct pending *pending; // in the order in which the events were recorded
    size_t pending_count, pending_capacity;
    allocator_counts counts;
    allocator_listener listener;
    void *listener_user;
};

// ---- Free lists ----

static int compare(const struct node *a, CUstream stream, size_t bytes, CUdeviceptr address)
{
    if (a->shown.stream != stream)
        return (uintptr_t)a->shown.stream < (uintptr_t)stream ? -1 : 1;
    if (a->shown.bytes != bytes)
        return a->shown.bytes < bytes ? -1 : 1;
    return a->shown.address < address ? -1 : a->shown.address > address;
}

// The place of the first node that is not before the key.
static size_t list_place(const struct free_list *list, CUstream stream, size_t bytes, CUdeviceptr address)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compare(list->items[middle], stream, bytes, address) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct free_list *list_of(struct node *node)
{
    return node->small ? &node->pool->small : &node->pool->large;
}

static void list_insert(struct node *node)
{
    struct free_list *list = list_of(node);
    size_t at = list_place(list, node->shown.stream, node->shown.bytes, node->shown.address);
    memmove(list->items + at + 1, list->items + at, (list->count - at) * sizeof *list->items);
    list->items[at] = node;
    list->count++;
}

static void list_remove(struct node *node)
{
    struct free_list *list = list_of(node);
    size_t at = list_place(list, node->shown.stream, node->shown.bytes, node->shown.address);
    list->count--;
    memmove(list->items + at, list->items + at + 1, (list->count - at) * sizeof *list->items);
}

// A node more in the pool, with room for it in the free lists.
static struct node *node_new(allocator_pool *pool)
{
    struct node *node = gv_calloc(1, sizeof *node);
    if (!node || !GV_GROW(pool->small.items, pool->small.capacity, pool->nodes + 1) ||
        !GV_GROW(pool->large.items, pool->large.capacity, pool->nodes + 1)) {
        gv_free(node);
        return NULL;
    }
    node->pool = pool;
    pool->nodes++;
    return node;
}

static void node_delete(struct node *node)
{
    node->pool->nodes--;
    gv_free(node->markers);
    gv_free(node);
}

static void tell(allocator *a, enum allocator_event event, const struct node *node)
{
    if (a->listener)
        a->listener(a->listener_user, event, &node->shown, node->requested);
}

// ---- Giving back ----

// Joins a free neighbour into the node. The lower address lives on, the upper one's structure goes.
static void merge(struct node *lower, struct node *upper)
{
    lower->shown.bytes += upper->shown.bytes;
    lower->next = upper->next;
    if (upper->next)
        upper->next->previous = lower;
    node_delete(upper);
}

static bool is_free(const struct node *node)
{
    return node && !node->taken;
}

// The block can be taken again from here on.
static void make_free(allocator *a, struct node *node)
{
    tell(a, ALLOCATOR_RETURNED, node);
    node->taken = false;
    node->use_count = 0;
    gv_free(node->markers);
    node->markers = NULL;
    node->marker_count = 0;
    if (is_free(node->next)) {
        list_remove(node->next);
        merge(node, node->next);
    }
    if (is_free(node->previous)) {
        struct node *lower = node->previous;
        list_remove(lower);
        merge(lower, node);
        node = lower;
    }
    list_insert(node);
}

// Records an event in each announced stream; the block is free when all have passed. A stream that cannot take the
// event keeps the block out of use for good, which is safe.
static void wait_for_uses(allocator *a, struct node *node)
{
    for (int i = 0; i < node->use_count; i++) {
        CUevent event = NULL;
        node->events++;
        if (!GV_GROW(a->pending, a->pending_capacity, a->pending_count + 1) ||
            !CALL(a->device, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)) ||
            !CALL(a->device, cuEventRecord(event, node->uses[i].stream)))
            continue;
        a->pending[a->pending_count++] = (struct pending){event, node->uses[i].stream, node};
    }
    node->use_count = 0;
}

static void event_passed(allocator *a, struct node *node)
{
    if (--node->events)
        return;
    a->counts.set_aside--;
    make_free(a, node);
}

// Takes note of the events that have passed. In each stream they pass in order, so the first that has not ends the
// look at its stream.
static void look_at_events(allocator *a)
{
    size_t kept = 0;
    for (size_t i = 0; i < a->pending_count; i++) {
        struct pending *pending = &a->pending[i];
        bool passed = true;
        for (size_t k = 0; k < kept && passed; k++)
            passed = a->pending[k].stream != pending->stream;
        if (passed) {
            CUresult result = a->device->error.status == GV_OK ? cuEventQuery(pending->event) : CUDA_ERROR_NOT_READY;
            passed = result == CUDA_SUCCESS;
            if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
                device_check(a->device, result, "cuEventQuery", __FILE__, __LINE__);
        }
        if (passed) {
            cuEventDestroy(pending->event);
            event_passed(a, pending->node);
        } else {
            a->pending[kept++] = *pending;
        }
    }
    a->pending_count = kept;
}

// No capture is under way any more: what was set aside in one comes back. Uses announced in a capture happen when the
// graph is launched and not before; only those outside have to be waited for.
static void return_set_aside(allocator *a)
{
    struct node *node = a->aside;
    a->aside = NULL;
    for (struct node *next; node; node = next) {
        next = node->next_aside;
        int kept = 0;
        for (int i = 0; i < node->use_count; i++)
            if (!node->uses[i].captured)
                node->uses[kept++] = node->uses[i];
        node->use_count = kept;
        if (kept) {
            wait_for_uses(a, node);
        } else {
            a->counts.set_aside--;
            make_free(a, node);
        }
    }
}

// ---- Reuse in a capture, by proof ----

// Appends what a stream's next captured node would depend on. False when the stream is not capturing, or on failure.
static bool add_terminals(allocator *a, CUstream stream, CUgraphNode **nodes, size_t *count, size_t *capacity)
{
    CUstreamCaptureStatus status;
    const CUgraphNode *terminals = NULL;
    size_t terminal_count = 0;
    if (!CALL(a->device, cuStreamGetCaptureInfo_v3(stream, &status, NULL, NULL, &terminals, NULL, &terminal_count)) ||
        status != CU_STREAM_CAPTURE_STATUS_ACTIVE || !GV_GROW(*nodes, *capacity, *count + terminal_count))
        return false;
    if (terminal_count)
        memcpy(*nodes + *count, terminals, terminal_count * sizeof **nodes);
    *count += terminal_count;
    return true;
}

static bool contains(CUgraphNode *nodes, size_t count, CUgraphNode node)
{
    while (count)
        if (nodes[--count] == node)
            return true;
    return false;
}

// Everything that comes before the stream's next node: its terminals and their predecessors, each once.
static CUgraphNode *all_before(allocator *a, CUstream stream, size_t *count)
{
    CUgraphNode *nodes = NULL, *found = NULL;
    CUgraphEdgeData *edges = NULL;
    size_t capacity = 0, found_capacity = 0, edge_capacity = 0;
    *count = 0;
    bool ok = add_terminals(a, stream, &nodes, count, &capacity);
    for (size_t i = 0; ok && i < *count; i++) {
        size_t before = 0;
        ok = CALL(a->device, cuGraphNodeGetDependencies_v2(nodes[i], NULL, NULL, &before)) &&
             GV_GROW(found, found_capacity, before) && GV_GROW(edges, edge_capacity, before) &&
             GV_GROW(nodes, capacity, *count + before);
        ok = ok && (!before || CALL(a->device, cuGraphNodeGetDependencies_v2(nodes[i], found, edges, &before)));
        for (size_t k = 0; ok && k < before; k++)
            // A programmatic edge lets the later node begin early: it proves nothing.
            if (!edges[k].type && !edges[k].from_port && !contains(nodes, *count, found[k]))
                nodes[(*count)++] = found[k];
    }
    gv_free(found);
    gv_free(edges);
    if (!ok) {
        gv_free(nodes);
        nodes = NULL;
        *count = 0;
    }
    return nodes;
}

// Frees what was set aside by this stream once everything that used it comes before the stream's next node.
static void return_proved(allocator *a, CUstream stream)
{
    if (!a->aside || !device_capture_of(a->device, stream))
        return;
    size_t count;
    CUgraphNode *before = all_before(a, stream, &count);
    for (struct node **link = &a->aside; *link && before;) {
        struct node *node = *link;
        bool proved = node->marker_count && node->shown.stream == stream;
        for (size_t i = 0; i < node->marker_count && proved; i++)
            proved = contains(before, count, node->markers[i]);
        if (!proved) {
            link = &node->next_aside;
            continue;
        }
        *link = node->next_aside;
        a->counts.set_aside--;
        make_free(a, node);
    }
    gv_free(before);
}

// What must have run before the block is free: all that its own stream and the announced ones have captured so far.
static void mark(allocator *a, struct node *node)
{
    size_t capacity = 0;
    bool ok = add_terminals(a, node->shown.stream, &node->markers, &node->marker_count, &capacity);
    for (int i = 0; i < node->use_count && ok; i++)
        ok = add_terminals(a, node->uses[i].stream, &node->markers, &node->marker_count, &capacity);
    if (!ok)
        node->marker_count = 0; // a stream outside the capture: nothing can be proved
}

void allocator_give(allocator *a, block *b)
{
    struct node *node = (struct node *)b;
    if (!node)
        return;
    a->counts.blocks--;
    a->counts.bytes -= node->shown.bytes;
    if (!node->use_count) {
        tell(a, ALLOCATOR_GIVEN, node);
        make_free(a, node);
        return;
    }
    tell(a, ALLOCATOR_SET_ASIDE, node);
    a->counts.set_aside++;
    if (!a->capture_count) {
        wait_for_uses(a, node);
        return;
    }
    if (a->prove_reuse)
        mark(a, node);
    node->next_aside = a->aside;
    a->aside = node;
}

void allocator_record_stream(allocator *a, block *b, CUstream stream)
{
    struct node *node = (struct node *)b;
    if (!node || stream == b->stream)
        return;
    for (int i = 0; i < node->use_count; i++)
        if (node->uses[i].stream == stream)
            return;
    if (node->use_count == ALLOCATOR_MAX_USES) {
        gv_fail(&a->device->error, GV_ERR_LIMIT, "a block is used in more than %d streams: raise ALLOCATOR_MAX_USES",
                ALLOCATOR_MAX_USES);
        return;
    }
    node->uses[node->use_count].captured = device_capture_of(a->device, stream) != 0;
    node->uses[node->use_count++].stream = stream;
}

// ---- Taking ----

static size_t segment_size(size_t bytes)
{
    if (bytes <= ALLOCATOR_SMALL)
        return ALLOCATOR_SMALL_SEGMENT;
    if (bytes < ALLOCATOR_OWN_SEGMENT)
        return ALLOCATOR_LARGE_SEGMENT;
    return (bytes + ALLOCATOR_OWN_ROUND - 1) / ALLOCATOR_OWN_ROUND * ALLOCATOR_OWN_ROUND;
}

// Where the stream's memory comes from at this moment.
static allocator_pool *pool_for(allocator *a, CUstream stream)
{
    cuuint64_t id = a->capture_count ? device_capture_of(a->device, stream) : 0;
    for (int i = 0; i < a->capture_count && id; i++)
        if (a->captures[i].id == id)
            return a->captures[i].pool;
    return &a->ordinary;
}

// Memory from the driver. cuMemAlloc is not for threads whose capture could be disturbed by it; this one's is not.
static CUdeviceptr segment_memory(allocator *a, size_t bytes)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr address = 0;
    CALL(a->device, cuThreadExchangeStreamCaptureMode(&mode));
    CUresult result = a->device->error.status == GV_OK ? cuMemAlloc(&address, bytes) : CUDA_ERROR_UNKNOWN;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && !a->capture_count) {
        allocator_trim(a);
        result = cuMemAlloc(&address, bytes);
    }
    if (a->device->error.status == GV_OK)
        device_check(a->device, result, "cuMemAlloc", __FILE__, __LINE__);
    cuThreadExchangeStreamCaptureMode(&mode);
    return result == CUDA_SUCCESS ? address : 0;
}

static struct node *segment_new(allocator *a, allocator_pool *pool, size_t bytes, CUstream stream)
{
    struct node *node = node_new(pool);
    if (!node) {
        gv_fail(&a->device->error, GV_ERR_MEMORY, "no memory for the allocator's own lists");
        return NULL;
    }
    node->small = bytes <= ALLOCATOR_SMALL;
    node->shown = (block){segment_memory(a, segment_size(bytes)), segment_size(bytes), stream};
    if (!node->shown.address) {
        node_delete(node);
        return NULL;
    }
    a->counts.reserved += node->shown.bytes;
    node->next_segment = pool->segments;
    pool->segments = node;
    return node;
}

// Cuts off what the request does not need, if the rest is worth a block of its own. Without memory for it the block
// stays whole.
static void split(struct node *node, size_t bytes)
{
    size_t rest = node->shown.bytes - bytes;
    if (node->small ? rest < ALLOCATOR_ROUND : rest <= ALLOCATOR_SMALL)
        return;
    struct node *upper = node_new(node->pool);
    if (!upper)
        return;
    upper->small = node->small;
    upper->shown = (block){node->shown.address + bytes, rest, node->shown.stream};
    upper->previous = node;
    upper->next = node->next;
    if (node->next)
        node->next->previous = upper;
    node->next = upper;
    node->shown.bytes = bytes;
    list_insert(upper);
}

block *allocator_take(allocator *a, size_t bytes, CUstream stream)
{
    if (a->device->error.status != GV_OK)
        return NULL;
    if (!a->capture_count) {
        return_set_aside(a);
        look_at_events(a);
    } else if (a->prove_reuse) {
        return_proved(a, stream);
    }
    size_t rounded = (bytes + ALLOCATOR_ROUND - 1) / ALLOCATOR_ROUND * ALLOCATOR_ROUND;
    allocator_pool *pool = pool_for(a, stream);
    struct free_list *list = rounded <= ALLOCATOR_SMALL ? &pool->small : &pool->large;
    size_t at = list_place(list, stream, rounded, 0);
    struct node *node = at < list->count && list->items[at]->shown.stream == stream ? list->items[at] : NULL;
    if (node)
        list_remove(node);
    else
        node = segment_new(a, pool, rounded, stream);
    if (!node)
        return NULL;
    split(node, rounded);
    node->taken = true;
    node->requested = bytes;
    a->counts.blocks++;
    a->counts.bytes += node->shown.bytes;
    tell(a, ALLOCATOR_TAKEN, node);
    return &node->shown;
}

// ---- Captures and pools ----

void allocator_begin_capture(allocator *a, allocator_pool *p, CUstream stream)
{
    if (a->capture_count == (int)(sizeof a->captures / sizeof a->captures[0])) {
        gv_fail(&a->device->error, GV_ERR_LIMIT, "too many captures at a time");
        return;
    }
    a->captures[a->capture_count].pool = p;
    a->captures[a->capture_count++].id = device_capture_of(a->device, stream);
}

void allocator_end_capture(allocator *a, allocator_pool *p)
{
    for (int i = 0; i < a->capture_count; i++) {
        if (a->captures[i].pool != p)
            continue;
        a->captures[i] = a->captures[--a->capture_count];
        return;
    }
}

allocator_pool *allocator_pool_create(allocator *a)
{
    allocator_pool *p = gv_calloc(1, sizeof *p);
    if (!p) {
        gv_fail(&a->device->error, GV_ERR_MEMORY, "no memory for a pool");
        return NULL;
    }
    p->references = 1;
    p->next = a->private_pools;
    a->private_pools = p;
    return p;
}

void allocator_pool_keep(allocator_pool *p)
{
    if (p)
        p->references++;
}

void allocator_pool_drop(allocator *a, allocator_pool *p)
{
    if (p && !--p->references)
        allocator_trim(a);
}

// Frees the segments that are free as a whole, or all of them.
static void free_segments(allocator *a, allocator_pool *p, bool all)
{
    for (struct node **link = &p->segments; *link;) {
        struct node *first = *link;
        if (!all && (first->taken || first->next)) {
            link = &first->next_segment;
            continue;
        }
        *link = first->next_segment;
        cuMemFree(first->shown.address);
        for (struct node *node = first, *next; node; node = next) {
            next = node->next;
            a->counts.reserved -= node->shown.bytes;
            if (!node->taken)
                list_remove(node);
            node_delete(node);
        }
    }
}

static void pool_clear(allocator_pool *p)
{
    gv_free(p->small.items);
    gv_free(p->large.items);
}

void allocator_trim(allocator *a)
{
    free_segments(a, &a->ordinary, false);
    for (allocator_pool **link = &a->private_pools; *link;) {
        allocator_pool *p = *link;
        if (!p->references)
            free_segments(a, p, false);
        if (p->references || p->segments) {
            link = &p->next;
            continue;
        }
        *link = p->next;
        pool_clear(p);
        gv_free(p);
    }
}

allocator *allocator_create(device *d, bool prove_reuse)
{
    allocator *a = gv_calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->device = d;
    a->prove_reuse = prove_reuse;
    a->ordinary.references = 1;
    return a;
}

size_t allocator_destroy(allocator *a)
{
    if (!a)
        return 0;
    size_t taken = a->counts.blocks;
    free_segments(a, &a->ordinary, true);
    pool_clear(&a->ordinary);
    for (allocator_pool *p = a->private_pools, *next; p; p = next) {
        next = p->next;
        free_segments(a, p, true);
        pool_clear(p);
        gv_free(p);
    }
    for (size_t i = 0; i < a->pending_count; i++)
        cuEventDestroy(a->pending[i].event);
    gv_free(a->pending);
    gv_free(a);
    return taken;
}

allocator_counts allocator_count(const allocator *a)
{
    return a->counts;
}

void allocator_listen(allocator *a, allocator_listener listener, void *user)
{
    a->listener = listener;
    a->listener_user = user;
}
