// What an engine tells gravel about itself, so that its results can be proved right or wrong: which inputs and outputs
// of its graphs are rows and how many of them are real, which memory is nobody's, and the probe of the incident: the
// inputs and the logits of the index's search, cloned inside the graphs and computed again eagerly behind each replay.
//
// Every call does nothing unless `gravel run` has its recorder in the process.
#include "gravel.h"
#include "specimen/parts.h"

void proof_declare(engine *e)
{
    const step_inputs *in = &e->inputs;
    const cache *c = &e->cache;
    gravel_rows("tokens", in->tokens, 4, MAX_CONTEXT, GRAVEL_ROWS_IN | GRAVEL_ROWS_INDEX);
    gravel_rows("slots", in->slots, 4, MAX_CONTEXT, GRAVEL_ROWS_IN | GRAVEL_ROWS_INDEX | GRAVEL_ROWS_ZERO_IS_PAD);
    gravel_rows("lengths", in->lengths, 4, MAX_CONTEXT, GRAVEL_ROWS_IN | GRAVEL_ROWS_INDEX | GRAVEL_ROWS_ONE_IS_PAD);
    gravel_rows("locations", in->locations, 8, MAX_CONTEXT,
                GRAVEL_ROWS_IN | GRAVEL_ROWS_INDEX | GRAVEL_ROWS_ZERO_IS_PAD);
    gravel_rows("logits", in->logits, (uint64_t)e->weights.columns * 4, ENGINE_MAX_BATCH, GRAVEL_ROWS_OUT);
    gravel_rows("chosen", in->chosen, 4, ENGINE_MAX_BATCH, GRAVEL_ROWS_OUT);
    // Page 0 and slot 0 are kept for padded rows.
    for (int layer = 0; layer < LAYERS; layer++)
        gravel_scratch("page 0 of the window's keys", c->window[layer], PAGE * HEAD_DIM * 2);
    for (int layer = 0; layer < SPARSE_LAYERS; layer++) {
        gravel_scratch("page 0 of the entries", c->core[layer], PAGE_ENTRIES * HEAD_DIM * 2);
        gravel_scratch("page 0 of the index's keys", c->keys[layer], c->key_page);
        gravel_scratch("slot 0 of the entries' ring", c->core_ring[layer], COMPRESSED * CORE_KV * 4);
        gravel_scratch("slot 0 of the index's ring", c->index_ring[layer], COMPRESSED * INDEX_KV * 4);
    }
}

void proof_batch(engine *e, int real, int captured)
{
    gravel_batch_rows((uint64_t)real, (uint64_t)captured);
}

// ---- The probe of the incident ----

static uint64_t query_bytes(const engine *e)
{
    return (uint64_t)INDEX_QUERY * (e->config.keys == ENGINE_KEYS_FP8 ? 1 : 2);
}

void proof_clone_inputs(engine *e, const selection *s, CUstream stream)
{
    uint64_t layer = (uint64_t)s->layer, rows = (uint64_t)s->count;
    if (!e->config.probe)
        return;
    gravel_probe("index-q", layer, rows, s->index_q, query_bytes(e), rows, stream);
    gravel_probe("index-weights", layer, rows, s->weights, INDEX_HEADS * 4, rows, stream);
    gravel_probe("index-plan", layer, rows, s->plan, PLAN * 4, rows, stream);
    gravel_probe("index-counts", layer, rows, s->entry_counts, 4, rows, stream);
}

void proof_clone_logits(engine *e, const selection *s, CUdeviceptr logits, CUstream stream)
{
    if (e->config.probe)
        gravel_probe("index-logits", (uint64_t)s->layer, (uint64_t)s->count, logits, MAX_ENTRIES * 4,
                     (uint64_t)s->count, stream);
}

// The search of one layer on the clones. What it does not write (entries that a row does not have) stays as it is in
// the clone of the graph's, and so equal.
static void compare_layer(engine *e, int layer, int real, int captured)
{
    gravel_clone q, weights, plan, counts, logits;
    uint64_t key = (uint64_t)layer, rows = (uint64_t)captured;
    if (!gravel_probe_find("index-q", key, rows, &q) || !gravel_probe_find("index-weights", key, rows, &weights) ||
        !gravel_probe_find("index-plan", key, rows, &plan) || !gravel_probe_find("index-counts", key, rows, &counts) ||
        !gravel_probe_find("index-logits", key, rows, &logits) || q.fallback)
        return;
    block *eager = allocator_take(e->allocator, logits.rows * logits.row_bytes, e->main);
    if (!eager)
        return;
    CUdeviceptr to = eager->address;
    CALL(&e->device, cuMemcpyDtoDAsync(to, logits.address, logits.rows * logits.row_bytes, e->main));
    selection s = {.layer = layer,
                   .count = captured,
                   .tiles = PLAN,
                   .index_q = q.address,
                   .weights = weights.address,
                   .plan = plan.address,
                   .entry_counts = counts.address};
    index_logits(e, &s, to, e->main);
    int64_t differing = gravel_probe_compare("index-logits", key, rows, (uint64_t)real, to, GRAVEL_F32, 0, e->main);
    if (differing >= 0) {
        pthread_mutex_lock(&e->lock);
        e->counts.probes_compared++;
        e->counts.probes_differing += differing > 0;
        pthread_mutex_unlock(&e->lock);
    }
    allocator_give(e->allocator, eager);
}

void proof_compare(engine *e, int real, int captured)
{
    for (int layer = 1; layer < LAYERS && e->config.probe; layer++)
        compare_layer(e, layer, real, captured);
}
