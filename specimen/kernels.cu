// The engine's kernels, for nvcc and for the software driver (soft/kernel.h). Rows are tokens: one of each request when
// decoding, all of one request's prompt when prefilling. Every row is computed by itself, in the same way in whatever
// batch it is.
#include "soft/kernel.h"
#include "specimen/layout.h"
#include "specimen/numeric.h"

// A part of a kernel, always inlined: then vectors that it is given by address stay what they are, private to the
// thread, and the software driver is not called for each access to them.
#ifdef __CUDACC__
#define PART static __device__ __forceinline__
#else
#define PART static inline __attribute__((always_inline))
#endif

PART int smaller(int a, int b)
{
    return a < b ? a : b;
}

// Where a token of a request lies in the cache; entries (four tokens each) likewise.
PART long long token_location(const int *page_table, int row, int position)
{
    return (long long)page_table[row * MAX_PAGES + position / PAGE] * PAGE + position % PAGE;
}

PART int entry_location(const int *page_table, int row, int entry)
{
    return page_table[row * MAX_PAGES + entry / PAGE_ENTRIES] * PAGE_ENTRIES + entry % PAGE_ENTRIES;
}

// ---- Metadata: what the step's kernels need to know, from the live table of locations ----

// One row a thread. table: for each request slot the locations of its tokens. plan: for each tile of eight entries the
// place of the first; -1 behind the row's last entry, as in every list of places.
GRAVEL_KERNEL(build_metadata, (const int *, table), (const int *, slots), (const int *, lengths),
              (const long long *, locations), (int *, page_table), (int *, positions), (int *, entry_counts),
              (long long *, entry_slots), (int *, plan), (int *, selected), (int, rows))
{
    int row = (int)gravel_thread_index();
    if (row >= rows)
        return;
    int length = lengths[row], entries = length / RATIO;
    const int *own = table + (long long)slots[row] * MAX_CONTEXT;
    for (int page = 0; page < MAX_PAGES; page++)
        page_table[row * MAX_PAGES + page] = page * PAGE < length ? own[page * PAGE] / PAGE : 0;
    positions[row] = length - 1;
    entry_counts[row] = entries;
    entry_slots[row] = length % RATIO ? 0 : locations[row] / RATIO;
    for (int tile = 0; tile < PLAN; tile++)
        plan[row * PLAN + tile] = tile * TILE_ENTRIES < entries ? own[tile * TILE_ENTRIES * RATIO] / RATIO : -1;
    for (int i = 0; i < TOP_K; i++)
        selected[row * TOP_K + i] = -1;
}

GRAVEL_KERNEL(embed_tokens, (const int *, tokens), (const bf16 *, embedding), (bf16 *, hidden), (int, rows))
{
    int thread = (int)gravel_thread_index(), row = thread / (HIDDEN / 8), part = thread % (HIDDEN / 8);
    if (row < rows)
        store_bf16(hidden + row * HIDDEN + 8 * part, load_bf16(embedding + (long long)tokens[row] * HIDDEN + 8 * part));
}

// ---- Projections ----

// Eight rows times eight outputs of x * w, where w has a line of `inputs` for each output. The sums stay apart in eight
// lanes until the end.
#define TILE(x_load, x, x_stride, row_count, w, inputs, sums)    \
    for (int r = 0; r < TILE_ROWS; r++)                          \
        for (int n = 0; n < TILE_OUTPUTS; n++)                   \
            (sums)[r][n] = dot_none();                           \
    for (int k = 0; k < (inputs); k += 8) {                      \
        eight xs[TILE_ROWS];                                     \
        for (int r = 0; r < (row_count); r++)                    \
            xs[r] = x_load((x) + r * (x_stride) + k);            \
        for (int n = 0; n < TILE_OUTPUTS; n++) {                 \
            eight ws = load_bf16((w) + n * (inputs) + k);        \
            for (int r = 0; r < (row_count); r++)                \
                (sums)[r][n] = dot_add((sums)[r][n], xs[r], ws); \
        }                                                        \
    }

// One kernel for each place that projects, so that findings name the place. `rest` says what becomes of a tile: rows
// first .. first + count, outputs start .. start + 8, sums in `sums`.
#define PROJECTION(name, x_type, x_load, out_type, rest)                                                            \
    GRAVEL_KERNEL(name, (const x_type *, x), (int, x_stride), (const bf16 *, w), (out_type *, out), (int, rows),    \
                  (int, inputs), (int, outputs), (const int *, positions), (const float *, turns))                  \
    {                                                                                                               \
        int thread = (int)gravel_thread_index(), tiles = outputs / TILE_OUTPUTS;                                    \
        int first = thread / tiles * TILE_ROWS, start = thread % tiles * TILE_OUTPUTS;                              \
        if (first >= rows)                                                                                          \
            return;                                                                                                 \
        int count = smaller(TILE_ROWS, rows - first);                                                               \
        dot sums[TILE_ROWS][TILE_OUTPUTS];                                                                          \
        TILE(x_load, x + (long long)first * x_stride, x_stride, count, w + (long long)start * inputs, inputs, sums) \
        for (int r = 0; r < count; r++) {                                                                           \
            eight line = eight_all(0);                                                                              \
            for (int n = 0; n < TILE_OUTPUTS; n++)                                                                  \
                eight_set(&line, n, dot_value(sums[r][n]));                                                         \
            out_type *to = out + (long long)(first + r) * outputs + start;                                          \
            rest                                                                                                    \
        }                                                                                                           \
    }

// Turns the pairs of a vector's first eight dimensions by the position.
PART eight turned(eight line, const float *turns, int position)
{
    eight angle = load_float(turns + position * ROPE_DIM), result = line; // cosine and sine of each pair
    for (int i = 0; i < ROPE_DIM; i += 2) {
        float x = eight_at(&line, i), y = eight_at(&line, i + 1);
        float cosine = eight_at(&angle, i), sine = eight_at(&angle, i + 1);
        eight_set(&result, i, x * cosine - y * sine);
        eight_set(&result, i + 1, x * sine + y * cosine);
    }
    return result;
}

PROJECTION(project_qkv_a, float, load_float, bf16, store_bf16(to, line);)
PROJECTION(project_q, bf16, load_bf16, float,
           if (start % HEAD_DIM < ROPE_DIM) line = turned(line, turns, positions[first + r]);
           store_float(to, line);)
PROJECTION(project_core_kv, bf16, load_bf16, float, store_float(to, line);)
PROJECTION(project_index_kv, bf16, load_bf16, float, store_float(to, line);)
PROJECTION(project_index_q, bf16, load_bf16, float, store_float(to, line);)
PROJECTION(project_index_weights, bf16, load_bf16, float, store_float(to, line);)
PROJECTION(project_out, bf16, load_bf16, bf16, store_bf16(to, eight_add(line, load_bf16(to)));)
PROJECTION(project_logits, bf16, load_bf16, float, store_float(to, line);)

// ---- Norms ----

#define EPSILON 1e-6f

// One row a thread. exact: the result in fp32 as well, or null.
GRAVEL_KERNEL(normalise_hidden, (const bf16 *, hidden), (float *, exact), (bf16 *, normed), (int, rows))
{
    int row = (int)gravel_thread_index();
    if (row >= rows)
        return;
    dot sums = dot_none();
    eight line[HIDDEN / 8];
    for (int i = 0; i < HIDDEN / 8; i++) {
        line[i] = load_bf16(hidden + row * HIDDEN + 8 * i);
        sums = dot_add(sums, line[i], line[i]);
    }
    float scale = fast_rsqrt(dot_value(sums) / HIDDEN + EPSILON);
    for (int i = 0; i < HIDDEN / 8; i++) {
        eight value = eight_scale(line[i], scale);
        if (exact)
            store_float(exact + row * HIDDEN + 8 * i, value);
        store_bf16(normed + row * HIDDEN + 8 * i, value);
    }
}

GRAVEL_KERNEL(normalise_q, (const bf16 *, qkv_a), (bf16 *, q_low), (int, rows))
{
    int row = (int)gravel_thread_index();
    if (row >= rows)
        return;
    dot sums = dot_none();
    eight line[Q_RANK / 8];
    for (int i = 0; i < Q_RANK / 8; i++) {
        line[i] = load_bf16(qkv_a + row * QKV_A + 8 * i);
        sums = dot_add(sums, line[i], line[i]);
    }
    float scale = fast_rsqrt(dot_value(sums) / Q_RANK + EPSILON);
    for (int i = 0; i < Q_RANK / 8; i++)
        store_bf16(q_low + row * Q_RANK + 8 * i, eight_scale(line[i], scale));
}

// ---- Keys of the window ----

// Norm, rotation, and the store into the token's own place. Padded rows store to location 0, which is reserved.
GRAVEL_KERNEL(store_window_keys, (const bf16 *, qkv_a), (const int *, positions), (const float *, turns),
              (const long long *, locations), (bf16 *, window_pool), (int, rows))
{
    int row = (int)gravel_thread_index();
    if (row >= rows)
        return;
    dot sums = dot_none();
    eight line[HEAD_DIM / 8];
    for (int i = 0; i < HEAD_DIM / 8; i++) {
        line[i] = load_bf16(qkv_a + row * QKV_A + Q_RANK + 8 * i);
        sums = dot_add(sums, line[i], line[i]);
    }
    float scale = fast_rsqrt(dot_value(sums) / HEAD_DIM + EPSILON);
    for (int i = 0; i < HEAD_DIM / 8; i++)
        line[i] = eight_scale(line[i], scale);
    line[0] = turned(line[0], turns, positions[row]);
    for (int i = 0; i < HEAD_DIM / 8; i++)
        store_bf16(window_pool + locations[row] * HEAD_DIM + 8 * i, line[i]);
}

// ---- Compression: eight tokens into one entry ----

// Keeps the row's values and scores for the three or seven tokens that follow. The ring of a request slot has a place
// for each of the last eight positions.
#define KEEP_STATE(kv, width, ring, slot, position, first_kept)                                              \
    if ((position) >= (first_kept))                                                                          \
        for (int i = 0; i < (width) / 8; i++)                                                                \
            store_float((ring) + ((long long)(slot)*COMPRESSED + (position) % COMPRESSED) * (width) + 8 * i, \
                        load_float((kv) + 8 * i));

// Part `i` of the entry that ends at `position`: for each channel the values of the last eight tokens, weighted by the
// softmax of score plus bias. Earlier tokens are found in the ring or, while prefilling, in the rows before this one.
PART eight compressed(const float *kv, const float *ring, const float *bias, int half, int i, int slot, int position,
                      int prefill)
{
    eight weights = eight_all(0), values = eight_all(0);
    for (int j = 0; j < COMPRESSED; j++) {
        int at = position - (COMPRESSED - 1) + j;
        if (at < 0)
            continue;
        const float *from = j == COMPRESSED - 1 ? kv
                            : prefill           ? kv - (long long)(COMPRESSED - 1 - j) * 2 * half
                                                : ring + ((long long)slot * COMPRESSED + at % COMPRESSED) * 2 * half;
        eight score = eight_add(load_float(from + half + 8 * i), load_float(bias + j * half + 8 * i)), weight = score;
        for (int k = 0; k < 8; k++)
            eight_set(&weight, k, fast_exp(eight_at(&score, k)));
        weights = eight_add(weights, weight);
        values = eight_add(values, eight_multiply(weight, load_float(from + 8 * i)));
    }
    for (int k = 0; k < 8; k++)
        eight_set(&values, k, eight_at(&values, k) / eight_at(&weights, k));
    return values;
}

// The attention's entries. One row a thread; only every fourth token of a request completes an entry.
GRAVEL_KERNEL(compress_core, (const float *, kv), (float *, ring), (const float *, bias), (const int *, slots),
              (const int *, positions), (const long long *, entry_slots), (bf16 *, core_pool), (int, rows),
              (int, prefill))
{
    int row = (int)gravel_thread_index();
    if (row >= rows)
        return;
    int position = positions[row], slot = slots[row];
    const float *own = kv + (long long)row * CORE_KV;
    if (position % RATIO == RATIO - 1) {
        dot sums = dot_none();
        eight line[HEAD_DIM / 8];
        for (int i = 0; i < HEAD_DIM / 8; i++) {
            line[i] = compressed(own, ring, bias, HEAD_DIM, i, slot, position, prefill);
            sums = dot_add(sums, line[i], line[i]);
        }
        float scale = fast_rsqrt(dot_value(sums) / HEAD_DIM + EPSILON);
        for (int i = 0; i < HEAD_DIM / 8; i++)
            store_bf16(core_pool + entry_slots[row] * HEAD_DIM + 8 * i, eight_scale(line[i], scale));
    }
    KEEP_STATE(own, CORE_KV, ring, slot, position, prefill ? rows - COMPRESSED : 0)
}

// The Walsh-Hadamard transform of 128 values, scaled so that lengths and products stay as they are. It spreads what is
// in few dimensions over all of them, which a coarse format then keeps better.
PART void spread(eight *line)
{
    for (int step = 1; step < INDEX_DIM / 8; step *= 2)
        for (int i = 0; i < INDEX_DIM / 8; i++)
            if (!(i & step)) {
                eight a = line[i], b = line[i + step];
                line[i] = eight_add(a, b);
                line[i + step] = eight_add(a, eight_scale(b, -1));
            }
    for (int i = 0; i < INDEX_DIM / 8; i++) {
        float v[8];
        for (int k = 0; k < 8; k++)
            v[k] = eight_at(&line[i], k);
        for (int step = 1; step < 8; step *= 2)
            for (int k = 0; k < 8; k++)
                if (!(k & step)) {
                    float a = v[k], b = v[k + step];
                    v[k] = a + b;
                    v[k + step] = a - b;
                }
        for (int k = 0; k < 8; k++)
            eight_set(&line[i], k, v[k] * 0.0883883476f); // 1/sqrt(128)
    }
}

PART float largest(const eight *line)
{
    float result = 1e-4f;
    for (int i = 0; i < INDEX_DIM / 8; i++)
        for (int k = 0; k < 8; k++) {
            float value = eight_at(&line[i], k);
            value = value < 0 ? -value : value;
            result = value > result ? value : result;
        }
    return result;
}

// The index's key of the entry that ends at `position`.
PART void index_key(eight *line, const float *kv, const float *ring, const float *bias, int slot, int position,
                    int prefill)
{
    dot sums = dot_none();
    for (int i = 0; i < INDEX_DIM / 8; i++) {
        line[i] = compressed(kv, ring, bias, INDEX_DIM, i, slot, position, prefill);
        sums = dot_add(sums, line[i], line[i]);
    }
    float scale = fast_rsqrt(dot_value(sums) / INDEX_DIM + EPSILON);
    for (int i = 0; i < INDEX_DIM / 8; i++)
        line[i] = eight_scale(line[i], scale);
    spread(line);
}

PART void store_key_bf16(unsigned char *pool, long long entry, const eight *line)
{
    bf16 *to = (bf16 *)(pool + entry / PAGE_ENTRIES * KEY_PAGE_BF16 + entry % PAGE_ENTRIES * KEY_BYTES_BF16);
    for (int i = 0; i < INDEX_DIM / 8; i++)
        store_bf16(to + 8 * i, line[i]);
}

PART void store_key_fp8(unsigned char *pool, long long entry, const eight *line)
{
    unsigned char *page = pool + entry / PAGE_ENTRIES * KEY_PAGE_FP8;
    float scale = largest(line) / 448;
    for (int i = 0; i < INDEX_DIM / 8; i++)
        store_fp8(page + entry % PAGE_ENTRIES * KEY_BYTES_FP8 + 8 * i, eight_scale(line[i], 1 / scale));
    ((float *)(page + PAGE_ENTRIES * KEY_BYTES_FP8))[entry % PAGE_ENTRIES] = scale;
}

// One kernel for each format of the keys. unguarded: rows that complete no entry store too, to the reserved slot 0.
#define COMPRESS_INDEX(name, store_key)                                                                    \
    GRAVEL_KERNEL(name, (const float *, kv), (float *, ring), (const float *, bias), (const int *, slots), \
                  (const int *, positions), (const long long *, entry_slots), (unsigned char *, key_pool), \
                  (int, rows), (int, prefill), (int, unguarded))                                           \
    {                                                                                                      \
        int row = (int)gravel_thread_index();                                                              \
        if (row >= rows)                                                                                   \
            return;                                                                                        \
        int position = positions[row], slot = slots[row];                                                  \
        const float *own = kv + (long long)row * INDEX_KV;                                                 \
        if (position % RATIO == RATIO - 1 || unguarded) {                                                  \
            eight line[INDEX_DIM / 8];                                                                     \
            index_key(line, own, ring, bias, slot, position, prefill);                                     \
            store_key(key_pool, entry_slots[row], line);                                                   \
        }                                                                                                  \
        KEEP_STATE(own, INDEX_KV, ring, slot, position, prefill ? rows - COMPRESSED : 0)                   \
    }
COMPRESS_INDEX(compress_index_bf16, store_key_bf16)
COMPRESS_INDEX(compress_index_fp8, store_key_fp8)

// ---- The index: queries, logits, the best entries ----

// Stands for the time that a model of real size would need: longer at some positions than at others.
GRAVEL_KERNEL(hold_indexer, (unsigned long long, nanoseconds), (const int *, positions))
{
    if (gravel_thread_index() == 0)
        gravel_spin_ns(nanoseconds * (unsigned)(positions[0] * 2654435761u >> 29) / 4);
}

// Queries in the format of the keys. One head of a row a thread. The scale of an fp8 query goes into the head's weight,
// and so does the head's gain, where there are any.
#define FINISH_INDEX_Q(name, out_type, out_bytes, store)                                                               \
    GRAVEL_KERNEL(name, (const float *, raw_q), (const float *, raw_weights), (const float *, gains),                  \
                  (out_type *, index_q), (float *, weights), (int, rows))                                              \
    {                                                                                                                  \
        int thread = (int)gravel_thread_index(), row = thread / INDEX_HEADS, head = thread % INDEX_HEADS;              \
        if (row >= rows)                                                                                               \
            return;                                                                                                    \
        eight line[INDEX_DIM / 8];                                                                                     \
        for (int i = 0; i < INDEX_DIM / 8; i++)                                                                        \
            line[i] = load_float(raw_q + thread * INDEX_DIM + 8 * i);                                                  \
        spread(line);                                                                                                  \
        float scale = (out_bytes) == 1 ? largest(line) / 448 : 1;                                                      \
        for (int i = 0; i < INDEX_DIM / 8; i++)                                                                        \
            store(index_q + thread * INDEX_DIM + 8 * i, (out_bytes) == 1 ? eight_scale(line[i], 1 / scale) : line[i]); \
        /* 1/sqrt(dimension) and 1/sqrt(heads) */                                                                      \
        weights[thread] =                                                                                              \
            raw_weights[row * TILE_OUTPUTS + head] * (gains ? gains[head] : 1) * 0.0883883476f * 0.5f * scale;         \
    }
FINISH_INDEX_Q(finish_index_q_bf16, bf16, 2, store_bf16)
FINISH_INDEX_Q(finish_index_q_fp8, fp8, 1, store_fp8)

PART float load_key_bf16(const unsigned char *pool, long long entry, eight *line)
{
    const bf16 *from =
        (const bf16 *)(pool + entry / PAGE_ENTRIES * KEY_PAGE_BF16 + entry % PAGE_ENTRIES * KEY_BYTES_BF16);
    for (int i = 0; i < INDEX_DIM / 8; i++)
        line[i] = load_bf16(from + 8 * i);
    return 1;
}

PART float load_key_fp8(const unsigned char *pool, long long entry, eight *line)
{
    const unsigned char *page = pool + entry / PAGE_ENTRIES * KEY_PAGE_FP8;
    for (int i = 0; i < INDEX_DIM / 8; i++)
        line[i] = load_fp8(page + entry % PAGE_ENTRIES * KEY_BYTES_FP8 + 8 * i);
    return ((const float *)(page + PAGE_ENTRIES * KEY_BYTES_FP8))[entry % PAGE_ENTRIES];
}

// logits[row][entry] = scale of the key * sum over heads of relu(q . k) * weight. A thread scores a tile of entries;
// blockIdx.y is the row. Columns behind a row's entries are left as they are. A plan that leads out of the pool is not
// followed: this engine is to go wrong, not to crash.
#define INDEX_LOGITS(name, q_type, load_q, load_key)                                                   \
    GRAVEL_KERNEL(name, (const q_type *, index_q), (const float *, weights), (const int *, plan),      \
                  (const int *, entry_counts), (const unsigned char *, key_pool), (int, pool_entries), \
                  (float *, logits))                                                                   \
    {                                                                                                  \
        int row = (int)blockIdx.y, tile = (int)gravel_thread_index();                                  \
        if (tile >= PLAN)                                                                              \
            return;                                                                                    \
        int place = plan[row * PLAN + tile], count = entry_counts[row] - tile * TILE_ENTRIES;          \
        count = smaller(count, TILE_ENTRIES);                                                          \
        if (place < 0 || place > pool_entries - TILE_ENTRIES || count <= 0)                            \
            return;                                                                                    \
        eight q[INDEX_HEADS][INDEX_DIM / 8];                                                           \
        float weight[INDEX_HEADS];                                                                     \
        for (int head = 0; head < INDEX_HEADS; head++) {                                               \
            weight[head] = weights[row * INDEX_HEADS + head];                                          \
            for (int k = 0; k < INDEX_DIM / 8; k++)                                                    \
                q[head][k] = load_q(index_q + (row * INDEX_HEADS + head) * INDEX_DIM + 8 * k);         \
        }                                                                                              \
        for (int i = 0; i < count; i++) {                                                              \
            eight key[INDEX_DIM / 8];                                                                  \
            float scale = load_key(key_pool, place + i, key), logit = 0;                               \
            for (int head = 0; head < INDEX_HEADS; head++) {                                           \
                dot sums = dot_none();                                                                 \
                for (int k = 0; k < INDEX_DIM / 8; k++)                                                \
                    sums = dot_add(sums, q[head][k], key[k]);                                          \
                float product = dot_value(sums);                                                       \
                logit += product > 0 ? product * weight[head] : 0;                                     \
            }                                                                                          \
            logits[row * MAX_ENTRIES + tile * TILE_ENTRIES + i] = scale * logit;                       \
        }                                                                                              \
    }
INDEX_LOGITS(index_logits_bf16, bf16, load_bf16, load_key_bf16)
INDEX_LOGITS(index_logits_fp8, fp8, load_fp8, load_key_fp8)

// The places in the cache of a row's best entries, the best first and earlier ones first among equals; -1 for none.
// With few entries all are taken, and the logits are not even read.
GRAVEL_KERNEL(select_top_k, (const float *, logits), (const int *, page_table), (const int *, entry_counts),
              (int *, selected), (int, rows))
{
    int row = (int)gravel_thread_index();
    gravel_grid_wait(); // in case that it was launched ahead of the logits' end
    if (row >= rows)
        return;
    int count = entry_counts[row], best[TOP_K];
    float value[TOP_K];
    for (int k = 0; k < TOP_K; k++)
        best[k] = count <= TOP_K && k < count ? k : -1;
    for (int entry = 0; entry < count && count > TOP_K; entry++) {
        float logit = logits[row * MAX_ENTRIES + entry];
        if (best[TOP_K - 1] >= 0 && !(logit > value[TOP_K - 1]))
            continue;
        int place = TOP_K - 1;
        while (place > 0 && (best[place - 1] < 0 || logit > value[place - 1])) {
            best[place] = best[place - 1];
            value[place] = value[place - 1];
            place--;
        }
        best[place] = entry;
        value[place] = logit;
    }
    for (int k = 0; k < TOP_K; k++)
        selected[row * TOP_K + k] = best[k] < 0 ? -1 : entry_location(page_table, row, best[k]);
}

// ---- Attention, in two parts: the window needs no index and runs beside it ----

// Running softmax: sums of values, the largest score, and the sum of weights.
PART void attend(eight *sums, float *top, float *total, const eight *q, const bf16 *key)
{
    dot products = dot_none();
    eight k[HEAD_DIM / 8];
    for (int i = 0; i < HEAD_DIM / 8; i++) {
        k[i] = load_bf16(key + 8 * i);
        products = dot_add(products, q[i], k[i]);
    }
    float score = dot_value(products) * 0.125f; // 1/sqrt(64)
    if (score < *top - 40)
        return; // its weight would be below 1e-17
    if (score > *top) {
        float fade = fast_exp(*top - score);
        for (int i = 0; i < HEAD_DIM / 8; i++)
            sums[i] = eight_scale(sums[i], fade);
        *total *= fade;
        *top = score;
    }
    float weight = fast_exp(score - *top);
    for (int i = 0; i < HEAD_DIM / 8; i++)
        sums[i] = eight_add(sums[i], eight_scale(k[i], weight));
    *total += weight;
}

// One head of a row a thread. Each head has a sink: a score without a value, for heads that find nothing.
GRAVEL_KERNEL(attend_window, (const float *, raw_q), (const bf16 *, window_pool), (const int *, page_table),
              (const int *, positions), (const float *, sinks), (float *, partial), (int, rows))
{
    int thread = (int)gravel_thread_index(), row = thread / HEADS;
    if (row >= rows)
        return;
    eight q[HEAD_DIM / 8], sums[HEAD_DIM / 8];
    for (int i = 0; i < HEAD_DIM / 8; i++) {
        q[i] = load_float(raw_q + thread * HEAD_DIM + 8 * i);
        sums[i] = eight_all(0);
    }
    float top = sinks[thread % HEADS], total = 1;
    int position = positions[row], first = position < WINDOW ? 0 : position - WINDOW + 1;
    for (int at = first; at <= position; at++)
        attend(sums, &top, &total, q, window_pool + token_location(page_table, row, at) * HEAD_DIM);
    float *to = partial + thread * PARTIAL;
    for (int i = 0; i < HEAD_DIM / 8; i++)
        store_float(to + 8 * i, sums[i]);
    to[HEAD_DIM] = top;
    to[HEAD_DIM + 1] = total;
}

GRAVEL_KERNEL(pack_q, (const float *, raw_q), (bf16 *, q), (int, rows))
{
    int thread = (int)gravel_thread_index();
    if (thread < rows * QUERY / 8)
        store_bf16(q + 8 * thread, load_float(raw_q + 8 * thread));
}

// Adds the selected entries, divides, and projects each head to its part of the output.
GRAVEL_KERNEL(attend_selected, (const bf16 *, q), (const float *, partial), (const int *, selected),
              (int, selected_count), (const bf16 *, core_pool), (const bf16 *, w), (bf16 *, out), (int, rows))
{
    int thread = (int)gravel_thread_index(), row = thread / HEADS, head = thread % HEADS;
    if (row >= rows)
        return;
    eight query[HEAD_DIM / 8], sums[HEAD_DIM / 8];
    const float *from = partial + thread * PARTIAL;
    for (int i = 0; i < HEAD_DIM / 8; i++) {
        query[i] = load_bf16(q + thread * HEAD_DIM + 8 * i);
        sums[i] = load_float(from + 8 * i);
    }
    float top = from[HEAD_DIM], total = from[HEAD_DIM + 1];
    for (int k = 0; k < selected_count; k++) {
        int entry = selected[row * TOP_K + k];
        if (entry >= 0)
            attend(sums, &top, &total, query, core_pool + (long long)entry * HEAD_DIM);
    }
    for (int i = 0; i < HEAD_DIM / 8; i++)
        sums[i] = eight_scale(sums[i], 1 / total);
    for (int n = 0; n < OUT_RANK; n += 8) {
        eight line = eight_all(0);
        for (int i = 0; i < 8; i++) {
            dot products = dot_none();
            for (int k = 0; k < HEAD_DIM / 8; k++)
                products = dot_add(products, sums[k], load_bf16(w + (head * OUT_RANK + n + i) * HEAD_DIM + 8 * k));
            eight_set(&line, i, dot_value(products));
        }
        store_bf16(out + row * OUT + head * OUT_RANK + n, line);
    }
}

// ---- The end of a step ----

// The most probable token of each row; the first among equals.
GRAVEL_KERNEL(choose_tokens, (const float *, logits), (int, columns), (int, stride), (int *, tokens), (int, rows))
{
    int row = (int)gravel_thread_index();
    if (row >= rows)
        return;
    int best = 0;
    for (int token = 1; token < columns; token++)
        if (logits[(long long)row * stride + token] > logits[(long long)row * stride + best])
            best = token;
    tokens[row] = best;
}

// ---- For faults and decoys (faults.h) ----

GRAVEL_KERNEL(copy_q_low, (const bf16 *, q_low), (bf16 *, copy), (int, rows))
{
    int thread = (int)gravel_thread_index();
    if (thread < rows * Q_RANK / 8)
        store_bf16(copy + 8 * thread, load_bf16(q_low + 8 * thread));
}

GRAVEL_KERNEL(fill_gains, (float *, gains), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        gains[i] = 1;
}

GRAVEL_KERNEL(count_work, (unsigned *, counter), (int, rows))
{
    if ((int)gravel_thread_index() < rows)
        atomicAdd(counter, 1u);
}
