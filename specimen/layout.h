// The model's dimensions and how everything lies in device memory: included by the host and by the kernels.
//
// A small relative of DeepSeek-V4: three layers. Layer 0 attends to a window of recent tokens. Layers 1 and 2 attend to
// the window and to a few *entries*, each of which stands for four tokens and is found through an index: every fourth
// token the last eight tokens are compressed into one entry (C4), with a key of its own for the index.
#ifndef SPECIMEN_LAYOUT_H
#define SPECIMEN_LAYOUT_H

enum {
    // The model
    LAYERS = 3,
    SPARSE_LAYERS = 2, // layers 1 and 2
    HIDDEN = 144,      // residual stream
    Q_RANK = 48,       // the queries' low-rank input, shared by attention and index
    HEADS = 8,
    HEAD_DIM = 64, // one key-and-value vector for all heads
    ROPE_DIM = 8,  // of these turn with the position: the first four pairs
    QKV_A = Q_RANK + HEAD_DIM,
    QUERY = HEADS * HEAD_DIM,
    OUT_RANK = 16, // what a head contributes to the output, before the last projection
    OUT = HEADS * OUT_RANK,
    WINDOW = 32, // tokens that every layer attends to, the current one included

    // The index
    INDEX_HEADS = 4,
    INDEX_DIM = 128,
    INDEX_QUERY = INDEX_HEADS * INDEX_DIM,
    TOP_K = 4,                // entries that a token attends to
    RATIO = 4,                // tokens for an entry
    COMPRESSED = 8,           // tokens that an entry is compressed from: four earlier ones and the four of its own
    CORE_KV = 2 * HEAD_DIM,   // values and scores of the attention's compressor
    INDEX_KV = 2 * INDEX_DIM, // and of the index's

    TILE_BLOCK = 4,   // threads of a block of the index's logits
    TILE_ENTRIES = 8, // entries that a thread of the index scores

    // Pages of the cache. Page 0 and row 0 are reserved: padded rows read and write there.
    PAGE = 256, // tokens
    PAGE_ENTRIES = PAGE / RATIO,
    MAX_CONTEXT = 1024,
    MAX_PAGES = MAX_CONTEXT / PAGE,
    MAX_ENTRIES = MAX_CONTEXT / RATIO, // columns of the index's logits
    PLAN = MAX_ENTRIES / TILE_ENTRIES, // tiles of a row

    // Bytes of a page of index keys. bf16: 64 keys. fp8: 64 keys, then 64 fp32 scales.
    KEY_BYTES_BF16 = 2 * INDEX_DIM,
    KEY_BYTES_FP8 = INDEX_DIM,
    KEY_PAGE_BF16 = PAGE_ENTRIES * KEY_BYTES_BF16,
    KEY_PAGE_FP8 = PAGE_ENTRIES * (KEY_BYTES_FP8 + 4),

    // Partial result of attention to the window: 64 sums, then the largest score and the sum of weights.
    PARTIAL = HEAD_DIM + 8,

    // What one thread of a projection computes.
    TILE_ROWS = 8,
    TILE_OUTPUTS = 8,
};

#endif
