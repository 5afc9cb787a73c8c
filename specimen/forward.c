// One pass of the model. In each layer the host deals out work to six streams:
//
//     main      norm -+- qkv_a -a- norm q -b- q - window -- pack q -+- JOIN - selected - out
//     keys            |          +- store keys of the window -------+
//     core            +- compress and store the attention's entries +
//     index           +- compress and store the index's keys --------- logits - top-k -+
//     weights         +- weights of the index's heads -c-                |
//     index q         |                     b, c +- queries of the index +
//
// and with overlap off all of it to the main stream, in the same order. Tensors are taken from the caching allocator
// and given back where Python would drop their last reference: at the end of the function that made them.
#include "specimen/parts.h"

// A tensor's address, and that of a part of it.
static CUdeviceptr at(const block *b, size_t offset)
{
    return b ? b->address + offset : 0;
}

static block *take(engine *e, CUstream stream, size_t bytes)
{
    return allocator_take(e->allocator, bytes, stream);
}

static void give(engine *e, block *b)
{
    allocator_give(e->allocator, b);
}

// ---- Forks and joins ----

// A point in a stream that others can wait for.
typedef struct point {
    CUstream stream;
    CUevent event; // NULL: everything is in one stream
} point;

static point point_now(engine *e, const pass *p, CUstream stream)
{
    point made = {stream, NULL};
    if (p->overlap && CALL(&e->device, cuEventCreate(&made.event, CU_EVENT_DISABLE_TIMING)))
        CALL(&e->device, cuEventRecord(made.event, stream));
    return made;
}

static void wait_for(engine *e, CUstream stream, const point *before)
{
    if (before->event && stream != before->stream)
        CALL(&e->device, cuStreamWaitEvent(stream, before->event, 0));
}

static void point_end(point *p)
{
    if (p->event)
        cuEventDestroy(p->event);
}

static void join(engine *e, const pass *p, CUstream stream)
{
    point end = point_now(e, p, stream);
    wait_for(e, e->main, &end);
    point_end(&end);
}

static CUstream stream_of(engine *e, const pass *p, enum branch branch)
{
    return p->overlap ? e->sides[branch] : e->main;
}

// Threads of a projection.
static int tiles(int rows, int outputs)
{
    return (rows + TILE_ROWS - 1) / TILE_ROWS * (outputs / TILE_OUTPUTS);
}

// ---- What all layers need ----

typedef struct metadata {
    block *page_table;     // [rows][MAX_PAGES] int
    block *positions;      // [rows] int
    block *entry_counts;   // [rows] int
    block *entry_slots;    // [rows] int64
    block *plan;           // [rows][PLAN] int
    CUdeviceptr weak_plan; // of the weak-reference fault
    block *selected;       // [rows][TOP_K] int, shared by all layers
} metadata;

static void metadata_make(engine *e, const pass *p, metadata *m)
{
    int rows = p->rows;
    m->page_table = take(e, e->main, (size_t)rows * MAX_PAGES * 4);
    m->positions = take(e, e->main, (size_t)rows * 4);
    m->entry_counts = take(e, e->main, (size_t)rows * 4);
    m->entry_slots = take(e, e->main, (size_t)rows * 8);
    m->plan = take(e, e->main, (size_t)rows * PLAN * 4);
    m->selected = take(e, e->main, (size_t)rows * TOP_K * 4);
    CUdeviceptr page_table = at(m->page_table, 0), positions = at(m->positions, 0),
                entry_counts = at(m->entry_counts, 0), entry_slots = at(m->entry_slots, 0), plan = at(m->plan, 0),
                selected = at(m->selected, 0), lengths = e->inputs.lengths;
    if (HAS_FAULT(e, WRONG_SLICE) && p->capturing)
        lengths += (size_t)(e->config.buckets[e->config.bucket_count - 1] - rows) * 4;
    LAUNCH(e, build_metadata, e->main, rows, &e->cache.table, &e->inputs.slots, &lengths, &e->inputs.locations,
           &page_table, &positions, &entry_counts, &entry_slots, &plan, &selected, &rows);
    // The scheduler may change the table from here on: in a graph this is a node that records the event.
    CALL(&e->device, cuEventRecordWithFlags(e->table_read, e->main,
                                            p->capturing ? CU_EVENT_RECORD_EXTERNAL : CU_EVENT_RECORD_DEFAULT));
}

static void metadata_end(engine *e, metadata *m)
{
    give(e, m->page_table);
    give(e, m->positions);
    give(e, m->entry_counts);
    give(e, m->entry_slots);
    give(e, m->plan);
    give(e, m->selected);
}

// The rows whose queries are wanted: all when decoding; prefilling the last layer, the last row alone.
typedef struct span {
    int first, count;
} span;

// ---- One layer ----

// Tensors of a layer that several branches use.
typedef struct layer_inputs {
    block *normed;   // [rows][HIDDEN] bf16
    block *index_q;  // [rows][INDEX_QUERY] in the format of the keys, for the indexer to fill
    block *qkv_a;    // [rows][QKV_A] bf16
    block *q_low;    // [rows][Q_RANK] bf16
    block *own_list; // [rows][TOP_K] int: of the late-fork fault
    point ready;     // normed is there
    point has_qkv;   // qkv_a is there (a)
    point has_q;     // q_low is there (b)
} layer_inputs;

static size_t key_bytes(const engine *e)
{
    return e->config.keys == ENGINE_KEYS_FP8 ? KEY_BYTES_FP8 : KEY_BYTES_BF16;
}

// The disposed-tensor fault: a tensor's storage is taken away and the next one in its place begins with zeros, before
// the launch that still has the address. Everything is in order on the device; only the address is wrong.
static void dispose(engine *e, block *tensor, size_t bytes)
{
    give(e, tensor);
    block *next = take(e, e->main, bytes);
    CALL(&e->device, cuMemsetD8Async(at(next, 0), 0, bytes, e->main));
    give(e, next);
}

// Norm and first projection. The fused projection reads its input in fp32, which nobody else needs: that copy is
// dropped when the function returns.
static void prepare(engine *e, const pass *p, layer_weights *w, int layer, block *hidden, layer_inputs *in)
{
    int rows = p->rows, hidden_count = HIDDEN, qkv_count = QKV_A;
    block *exact = take(e, e->main, (size_t)rows * HIDDEN * 4);
    in->normed = take(e, e->main, (size_t)rows * HIDDEN * 2);
    in->index_q = layer ? take(e, e->main, (size_t)rows * INDEX_HEADS * key_bytes(e)) : NULL;
    in->qkv_a = take(e, e->main, (size_t)rows * QKV_A * 2);
    in->q_low = take(e, e->main, (size_t)rows * Q_RANK * 2);
    CUdeviceptr h = at(hidden, 0), x = at(exact, 0), normed = at(in->normed, 0), qkv_a = at(in->qkv_a, 0),
                q_low = at(in->q_low, 0), none = 0;
    LAUNCH(e, normalise_hidden, e->main, rows, &h, &x, &normed, &rows);
    in->ready = point_now(e, p, e->main);
    bool disposed = HAS_FAULT(e, DISPOSED_TENSOR) && !p->prefill;
    if (disposed)
        dispose(e, exact, (size_t)rows * HIDDEN * 4);
    LAUNCH(e, project_qkv_a, e->main, tiles(rows, QKV_A), &x, &hidden_count, &w->qkv_a, &qkv_a, &rows, &hidden_count,
           &qkv_count, &none, &none);
    in->has_qkv = point_now(e, p, e->main);
    LAUNCH(e, normalise_q, e->main, rows, &qkv_a, &q_low, &rows);
    in->has_q = point_now(e, p, e->main);
    if (!disposed)
        give(e, exact);
}

// Keys of the window.
static void keys_branch(engine *e, const pass *p, const metadata *m, int layer, const layer_inputs *in)
{
    CUstream stream = stream_of(e, p, BRANCH_KEYS);
    CUdeviceptr qkv_a = at(in->qkv_a, 0), positions = at(m->positions, 0);
    int rows = p->rows;
    wait_for(e, stream, &in->has_qkv);
    LAUNCH(e, store_window_keys, stream, rows, &qkv_a, &positions, &e->weights.turns, &e->inputs.locations,
           &e->cache.window[layer], &rows);
}

// The attention's entries.
static void core_branch(engine *e, const pass *p, const metadata *m, int layer, const layer_inputs *in)
{
    CUstream stream = stream_of(e, p, BRANCH_CORE);
    layer_weights *w = &e->weights.layers[layer];
    int rows = p->rows, prefill = p->prefill, inputs = HIDDEN, outputs = CORE_KV, sparse = layer - 1;
    wait_for(e, stream, &in->ready);
    block *kv = take(e, stream, (size_t)rows * CORE_KV * 4);
    CUdeviceptr x = at(in->normed, 0), values = at(kv, 0), positions = at(m->positions, 0),
                entry_slots = at(m->entry_slots, 0), none = 0;
    LAUNCH(e, project_core_kv, stream, tiles(rows, outputs), &x, &inputs, &w->core, &values, &rows, &inputs, &outputs,
           &none, &none);
    LAUNCH(e, compress_core, stream, rows, &values, &e->cache.core_ring[sparse], &w->core_bias, &e->inputs.slots,
           &positions, &entry_slots, &e->cache.core[sparse], &rows, &prefill);
    if (HAS_FAULT(e, DECOY_SPLIT_K))
        LAUNCH(e, count_work, stream, rows, &e->counter, &rows);
    give(e, kv);
}

// ---- The indexer ----

static void index_keys(engine *e, const pass *p, const metadata *m, int layer, const layer_inputs *in)
{
    CUstream stream = stream_of(e, p, BRANCH_INDEX);
    layer_weights *w = &e->weights.layers[layer];
    int rows = p->rows, prefill = p->prefill, inputs = HIDDEN, outputs = INDEX_KV, sparse = layer - 1,
        unguarded = HAS_FAULT(e, DECOY_PAD);
    block *kv = take(e, stream, (size_t)rows * INDEX_KV * 4);
    CUdeviceptr x = at(in->normed, 0), values = at(kv, 0), positions = at(m->positions, 0),
                entry_slots = at(m->entry_slots, 0), none = 0;
    if (e->config.hold_ns && !p->prefill) {
        unsigned long long nanoseconds = e->config.hold_ns;
        LAUNCH(e, hold_indexer, stream, 1, &nanoseconds, &positions);
    }
    LAUNCH(e, project_index_kv, stream, tiles(rows, outputs), &x, &inputs, &w->index, &values, &rows, &inputs, &outputs,
           &none, &none);
    if (e->config.keys == ENGINE_KEYS_FP8)
        LAUNCH(e, compress_index_fp8, stream, rows, &values, &e->cache.index_ring[sparse], &w->index_bias,
               &e->inputs.slots, &positions, &entry_slots, &e->cache.keys[sparse], &rows, &prefill, &unguarded);
    else
        LAUNCH(e, compress_index_bf16, stream, rows, &values, &e->cache.index_ring[sparse], &w->index_bias,
               &e->inputs.slots, &positions, &entry_slots, &e->cache.keys[sparse], &rows, &prefill, &unguarded);
    if (HAS_FAULT(e, DECOY_SPLIT_K))
        LAUNCH(e, count_work, stream, rows, &e->counter, &rows);
    give(e, kv);
}

// Queries and weights of the index's heads, each in a stream of its own; returns the weights.
static block *index_queries(engine *e, const pass *p, span s, int layer, layer_inputs *in)
{
    CUstream weights_stream = stream_of(e, p, BRANCH_INDEX_WEIGHTS), q_stream = stream_of(e, p, BRANCH_INDEX_Q);
    layer_weights *w = &e->weights.layers[layer];
    int hidden_count = HIDDEN, rank = Q_RANK, weight_count = TILE_OUTPUTS, q_count = INDEX_QUERY;
    CUdeviceptr x = at(in->normed, (size_t)s.first * HIDDEN * 2), q_low = at(in->q_low, (size_t)s.first * Q_RANK * 2),
                index_q = at(in->index_q, 0), none = 0, gain = 0;

    // The ordinary-pool fault: in the first layer the stream has not joined the capture yet, so that this is ordinary
    // memory, and the kernel runs now and never again.
    block *gains = HAS_FAULT(e, ORDINARY_POOL) && p->capturing ? take(e, q_stream, INDEX_HEADS * 4) : NULL;
    if (gains) {
        int heads = INDEX_HEADS;
        gain = at(gains, 0);
        LAUNCH(e, fill_gains, q_stream, heads, &gain, &heads);
    }

    wait_for(e, weights_stream, &in->ready);
    block *raw_weights = take(e, weights_stream, (size_t)s.count * TILE_OUTPUTS * 4);
    CUdeviceptr raw_weight = at(raw_weights, 0);
    LAUNCH(e, project_index_weights, weights_stream, tiles(s.count, weight_count), &x, &hidden_count, &w->index_weights,
           &raw_weight, &s.count, &hidden_count, &weight_count, &none, &none);
    point has_weights = point_now(e, p, weights_stream);

    wait_for(e, q_stream, &in->has_q);
    wait_for(e, q_stream, &has_weights);
    point_end(&has_weights);
    bool shared = HAS_FAULT(e, SHARED_WORKSPACE) && !p->prefill;
    block *raw_q = shared ? NULL : take(e, q_stream, (size_t)s.count * INDEX_QUERY * 4);
    block *weights = take(e, q_stream, (size_t)s.count * INDEX_HEADS * 4);
    CUdeviceptr raw = shared ? e->workspace : at(raw_q, 0), weight = at(weights, 0);
    LAUNCH(e, project_index_q, q_stream, tiles(s.count, q_count), &q_low, &rank, &w->index_q, &raw, &s.count, &rank,
           &q_count, &none, &none);
    if (e->config.keys == ENGINE_KEYS_FP8)
        LAUNCH(e, finish_index_q_fp8, q_stream, s.count * INDEX_HEADS, &raw, &raw_weight, &gain, &index_q, &weight,
               &s.count);
    else
        LAUNCH(e, finish_index_q_bf16, q_stream, s.count * INDEX_HEADS, &raw, &raw_weight, &gain, &index_q, &weight,
               &s.count);
    give(e, gains);
    give(e, raw_q);
    give(e, raw_weights);
    return weights;
}

// The choice of entries as a launch that may begin before the logits are there; it waits for them itself.
static void select_ahead(engine *e, const selection *s, CUdeviceptr *logit, CUdeviceptr *entry_counts,
                         CUdeviceptr *page_table, CUdeviceptr *selected, int *count, CUstream stream)
{
    CUlaunchAttribute ahead = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {((unsigned)s->count + BLOCK - 1) / BLOCK, 1, 1, BLOCK, 1, 1, 0, stream, &ahead, 1};
    CALL(&e->device, cuLaunchKernelEx(&config, e->kernels.select_top_k,
                                      (void *[]){logit, page_table, entry_counts, selected, count}, NULL));
}

void index_logits(engine *e, const selection *s, CUdeviceptr logit, CUstream stream)
{
    CUdeviceptr index_q = s->index_q, weights = s->weights, plan = s->plan, entry_counts = s->entry_counts;
    int pool_entries = (e->cache.pages + 1) * PAGE_ENTRIES, blocks = (s->tiles + TILE_BLOCK - 1) / TILE_BLOCK;
    if (e->config.keys == ENGINE_KEYS_FP8)
        LAUNCH_GRID(e, index_logits_fp8, stream, blocks, s->count, TILE_BLOCK, &index_q, &weights, &plan, &entry_counts,
                    &e->cache.keys[s->layer - 1], &pool_entries, &logit);
    else
        LAUNCH_GRID(e, index_logits_bf16, stream, blocks, s->count, TILE_BLOCK, &index_q, &weights, &plan,
                    &entry_counts, &e->cache.keys[s->layer - 1], &pool_entries, &logit);
}

void select_entries(engine *e, const selection *s, CUstream stream)
{
    block *logits = take(e, stream, (size_t)s->count * MAX_ENTRIES * 4);
    CUdeviceptr entry_counts = s->entry_counts, page_table = s->page_table, selected = s->selected,
                logit = at(logits, 0);
    int count = s->count;
    proof_clone_inputs(e, s, stream);
    index_logits(e, s, logit, stream);
    proof_clone_logits(e, s, logit, stream);
    if (HAS_FAULT(e, DECOY_PROGRAMMATIC))
        select_ahead(e, s, &logit, &entry_counts, &page_table, &selected, &count, stream);
    else
        LAUNCH(e, select_top_k, stream, s->count, &logit, &page_table, &entry_counts, &selected, &count);
    give(e, logits);
}

// Tiles of entries that are scored. A graph is captured once for all lengths, and so for the longest that can come.
static int scored_tiles(const engine *e, const pass *p)
{
    int entries = p->longest / RATIO;
    return p->capturing && !HAS_FAULT(e, BAKED_GRID) ? PLAN
           : entries < TILE_ENTRIES                  ? 1
                                                     : (entries + TILE_ENTRIES - 1) / TILE_ENTRIES;
}

// The list of the layer's entries: one for all layers, or, with the late-fork fault, one of the indexer's own in each
// layer, cleared by the indexer. In the second layer that is issued before the indexer's stream waits for the main one.
static block *own_list(engine *e, const pass *p, CUstream stream)
{
    block *own = take(e, stream, (size_t)p->rows * TOP_K * 4);
    CALL(&e->device, cuMemsetD32Async(at(own, 0), 0xffffffff, (size_t)p->rows * TOP_K, stream));
    return own;
}

// The whole indexer of a layer. Its queries were allocated by the caller, in the main stream, and are used in two
// others.
static void index_branch(engine *e, const pass *p, metadata *m, span s, int layer, layer_inputs *in)
{
    CUstream stream = stream_of(e, p, BRANCH_INDEX), q_stream = stream_of(e, p, BRANCH_INDEX_Q);
    bool early = HAS_FAULT(e, LATE_FORK) && layer > 1;
    if (early)
        in->own_list = own_list(e, p, stream);
    wait_for(e, stream, &in->ready);
    if (HAS_FAULT(e, LATE_FORK) && !early)
        in->own_list = own_list(e, p, stream);
    index_keys(e, p, m, layer, in);
    block *weights = index_queries(e, p, s, layer, in);
    point has_queries = point_now(e, p, q_stream);
    wait_for(e, stream, &has_queries);
    point_end(&has_queries);
    selection choice = {
        .layer = layer,
        .count = s.count,
        .tiles = scored_tiles(e, p),
        .index_q = at(in->index_q, 0),
        .weights = at(weights, 0),
        .plan = m->plan ? at(m->plan, (size_t)s.first * PLAN * 4) : m->weak_plan,
        .entry_counts = at(m->entry_counts, (size_t)s.first * 4),
        .page_table = at(m->page_table, (size_t)s.first * MAX_PAGES * 4),
        .selected = at(in->own_list ? in->own_list : m->selected, (size_t)s.first * TOP_K * 4),
    };
    if (p->gap) {
        // Breakable: the streams join, the segment ends, and the search is a call of its own between two graphs.
        join(e, p, stream_of(e, p, BRANCH_KEYS));
        join(e, p, stream_of(e, p, BRANCH_CORE));
        join(e, p, stream);
        p->gap(e, &choice);
        if (HAS_FAULT(e, WEAK_REFERENCE) && m->plan && layer == 1) {
            give(e, m->plan); // the second gap still uses it
            m->weak_plan = choice.plan;
            m->plan = NULL;
        }
    } else {
        select_entries(e, &choice, stream);
    }
    give(e, weights);
    if (e->config.repair == ENGINE_REPAIR_RECORD_STREAM) {
        allocator_record_stream(e->allocator, in->index_q, q_stream);
        allocator_record_stream(e->allocator, in->index_q, stream);
    }
    if (e->config.repair != ENGINE_REPAIR_KEEP) {
        // The fault of the incident, unless its uses were announced just now: the indexer has done with its queries as
        // far as the host can see, but the side streams have not even begun.
        give(e, in->index_q);
        in->index_q = NULL;
    }
}

// ---- Attention ----

// The early-drop fault, as a public engine has it: the fused projection is not needed any more, as far as the main
// stream is concerned, and the next tensor it takes is a copy of the queries' input.
static block *drop_early(engine *e, const pass *p, layer_inputs *in)
{
    int rows = p->rows;
    give(e, in->qkv_a);
    in->qkv_a = NULL;
    block *copy = take(e, e->main, (size_t)rows * Q_RANK * 2);
    CUdeviceptr from = at(in->q_low, 0), to = at(copy, 0);
    LAUNCH(e, copy_q_low, e->main, rows * (Q_RANK / 8), &from, &to, &rows);
    return copy;
}

static void layer_forward(engine *e, const pass *p, metadata *m, int layer, block *hidden)
{
    layer_weights *w = &e->weights.layers[layer];
    span s = {0, p->rows};
    if (p->prefill && layer == LAYERS - 1)
        s = (span){p->rows - 1, 1};
    layer_inputs in = {0};
    prepare(e, p, w, layer, hidden, &in);
    keys_branch(e, p, m, layer, &in);
    if (layer) {
        core_branch(e, p, m, layer, &in);
        index_branch(e, p, m, s, layer, &in);
    }
    block *copied_q = HAS_FAULT(e, EARLY_DROP) ? drop_early(e, p, &in) : NULL;

    int rank = Q_RANK, q_count = QUERY, out_count = OUT, hidden_count = HIDDEN, selected_count = layer ? TOP_K : 0;
    CUdeviceptr q_low = at(copied_q ? copied_q : in.q_low, (size_t)s.first * Q_RANK * 2),
                positions = at(m->positions, (size_t)s.first * 4),
                page_table = at(m->page_table, (size_t)s.first * MAX_PAGES * 4),
                selected = at(in.own_list ? in.own_list : m->selected, (size_t)s.first * TOP_K * 4),
                h = at(hidden, (size_t)s.first * HIDDEN * 2), none = 0, entries = layer ? e->cache.core[layer - 1] : 0;
    bool shared = HAS_FAULT(e, SHARED_WORKSPACE) && !p->prefill;
    block *raw_q = shared ? NULL : take(e, e->main, (size_t)s.count * QUERY * 4);
    CUdeviceptr raw = shared ? e->workspace : at(raw_q, 0);
    LAUNCH(e, project_q, e->main, tiles(s.count, q_count), &q_low, &rank, &w->q, &raw, &s.count, &rank, &q_count,
           &positions, &e->weights.turns);
    bool joined = layer && p->gap;
    if (!joined)
        join(e, p, stream_of(e, p, BRANCH_KEYS));
    block *partial = take(e, e->main, (size_t)s.count * HEADS * PARTIAL * 4);
    CUdeviceptr part = at(partial, 0);
    LAUNCH(e, attend_window, e->main, s.count * HEADS, &raw, &e->cache.window[layer], &page_table, &positions,
           &w->sinks, &part, &s.count);
    block *packed_q = take(e, e->main, (size_t)s.count * QUERY * 2);
    CUdeviceptr q = at(packed_q, 0);
    LAUNCH(e, pack_q, e->main, s.count * (QUERY / 8), &raw, &q, &s.count);
    if (layer && !joined) {
        join(e, p, stream_of(e, p, BRANCH_CORE));
        join(e, p, stream_of(e, p, BRANCH_INDEX));
    }
    block *attended = take(e, e->main, (size_t)s.count * OUT * 2);
    CUdeviceptr out = at(attended, 0);
    LAUNCH(e, attend_selected, e->main, s.count * HEADS, &q, &part, &selected, &selected_count, &entries, &w->out_a,
           &out, &s.count);
    LAUNCH(e, project_out, e->main, tiles(s.count, HIDDEN), &out, &out_count, &w->out_b, &h, &s.count, &out_count,
           &hidden_count, &none, &none);
    block *const tensors[] = {attended, packed_q, partial,    raw_q,     copied_q,
                              in.q_low, in.qkv_a, in.index_q, in.normed, in.own_list};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        give(e, tensors[i]);
    point_end(&in.ready);
    point_end(&in.has_qkv);
    point_end(&in.has_q);
}

void forward(engine *e, const pass *p)
{
    metadata m = {0};
    metadata_make(e, p, &m);
    int rows = p->rows;
    block *hidden = take(e, e->main, (size_t)rows * HIDDEN * 2);
    CUdeviceptr h = at(hidden, 0);
    LAUNCH(e, embed_tokens, e->main, rows * (HIDDEN / 8), &e->inputs.tokens, &e->weights.embedding, &h, &rows);
    for (int layer = 0; layer < LAYERS; layer++)
        layer_forward(e, p, &m, layer, hidden);

    int wanted = p->prefill ? 1 : rows, hidden_count = HIDDEN, columns = e->weights.columns, tokens = columns;
    block *normed = take(e, e->main, (size_t)wanted * HIDDEN * 2);
    CUdeviceptr last = at(hidden, (size_t)(rows - wanted) * HIDDEN * 2), x = at(normed, 0), none = 0;
    LAUNCH(e, normalise_hidden, e->main, wanted, &last, &none, &x, &wanted);
    LAUNCH(e, project_logits, e->main, tiles(wanted, columns), &x, &hidden_count, &e->weights.logits, &e->inputs.logits,
           &wanted, &hidden_count, &columns, &none, &none);
    // The pool-reader fault leaves the result in a tensor of the pool, whose address is all that is kept of it.
    block *result = p->result_in_pool ? take(e, e->main, (size_t)wanted * 4) : NULL;
    CUdeviceptr chosen = result ? at(result, 0) : e->inputs.chosen;
    LAUNCH(e, choose_tokens, e->main, wanted, &e->inputs.logits, &tokens, &columns, &chosen, &wanted);
    if (result)
        *p->result_in_pool = chosen;
    give(e, result);
    give(e, normed);
    give(e, hidden);
    metadata_end(e, &m);
}
