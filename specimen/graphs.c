// Captured graphs of decode steps, one for each bucket, the largest first: the smaller ones then find their memory
// among the blocks that the larger one gave back, in one pool for all. That is legal because graphs are replayed one
// after another, and it means that each replay overwrites what the last one left in the pool.
#include "specimen/parts.h"

#include <string.h>

// What every row of an unused step looks like: the reserved slot and location, a sequence of one token.
static void set_unused(engine *e, int rows)
{
    CALL(&e->device, cuMemsetD32Async(e->inputs.slots, 0, (size_t)rows, e->main));
    CALL(&e->device, cuMemsetD32Async(e->inputs.lengths, 1, (size_t)rows, e->main));
    CALL(&e->device, cuMemsetD32Async(e->inputs.locations, 0, (size_t)rows * 2, e->main));
    CALL(&e->device, cuMemsetD32Async(e->inputs.tokens, 0, (size_t)rows, e->main));
}

static void segment_begin(engine *e)
{
    if (CALL(&e->device, cuStreamBeginCapture(e->main, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)))
        allocator_begin_capture(e->allocator, e->graphs.pool, e->main);
}

static void segment_end(engine *e)
{
    bucket *b = e->graphs.making;
    CUgraph graph = NULL;
    allocator_end_capture(e->allocator, e->graphs.pool);
    if (e->device.error.status == GV_OK)
        CALL(&e->device, cuStreamEndCapture(e->main, &graph));
    else
        cuStreamEndCapture(e->main, &graph); // the first error is kept
    CALL(&e->device, cuGraphInstantiate(&b->segments[b->segment_count].exec, graph, 0));
    b->segment_count++;
    if (graph)
        cuGraphDestroy(graph);
}

// Between two segments: runs the search as it will be run between their replays, and notes how.
static void gap_captured(engine *e, const selection *s)
{
    bucket *b = e->graphs.making;
    segment_end(e);
    b->segments[b->segment_count - 1].has_gap = true;
    b->segments[b->segment_count - 1].gap = *s;
    select_entries(e, s, e->main);
    segment_begin(e);
}

static void gap_eager(engine *e, const selection *s)
{
    select_entries(e, s, e->main);
}

static void capture(engine *e, bucket *b)
{
    pass p = {.rows = b->rows, .longest = 1, .overlap = e->config.overlap};
    if (e->config.breakable)
        p.gap = gap_eager;
    set_unused(e, b->rows);
    // Twice eagerly, on the same streams: whatever is done only once is done now, and not in the capture.
    for (int i = 0; i < 2; i++) {
        forward(e, &p);
        CALL(&e->device, cuStreamSynchronize(e->main));
    }
    p.capturing = true;
    if (HAS_FAULT(e, POOL_READER))
        p.result_in_pool = &b->result;
    if (e->config.breakable)
        p.gap = gap_captured;
    e->graphs.making = b;
    segment_begin(e);
    forward(e, &p);
    segment_end(e);
    e->graphs.making = NULL;
}

void graphs_replay(engine *e, const bucket *b)
{
    for (int i = 0; i < b->segment_count; i++) {
        segment s = b->segments[i];
        CALL(&e->device, cuGraphLaunch(s.exec, e->main));
        if (s.has_gap) {
            // What is a number and not a tensor is computed anew.
            s.gap.tiles = PLAN;
            select_entries(e, &s.gap, e->main);
        }
    }
}

void graphs_create(engine *e)
{
    graphs *g = &e->graphs;
    if (!e->config.graph)
        return;
    g->pool = allocator_pool_create(e->allocator);
    g->count = e->config.bucket_count;
    for (int i = 0; i < g->count; i++)
        g->buckets[i].rows = e->config.buckets[i];
    for (int i = g->count; i--;)
        capture(e, &g->buckets[i]);
}

void graphs_destroy(engine *e)
{
    graphs *g = &e->graphs;
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->buckets[i].segment_count; k++)
            if (g->buckets[i].segments[k].exec)
                cuGraphExecDestroy(g->buckets[i].segments[k].exec);
    if (g->pool)
        allocator_pool_drop(e->allocator, g->pool);
    *g = (graphs){0};
}

const bucket *graphs_bucket(const engine *e, int rows)
{
    for (int i = 0; i < e->graphs.count; i++)
        if (e->graphs.buckets[i].rows >= rows)
            return &e->graphs.buckets[i];
    return NULL;
}
