// The engine's parts, for its own sources: what is in an engine, and what the sources of it call each other for.
//
//     engine.c     requests, admission, the step
//     forward.c    one pass of the model: tensors, kernels, forks and joins
//     graphs.c     capture and replay
//     cache.c      pages and rows of the cache
//     proof.c      what gravel is told: rows, scratch memory, the probe of the index
//     transfer.c   a request's pages as bytes, and back
//     watch.c      what gravel is told of the pages, for its canaries
#ifndef SPECIMEN_PARTS_H
#define SPECIMEN_PARTS_H

#include "specimen/allocator.h"
#include "specimen/engine.h"
#include "specimen/faults.h"
#include "specimen/layout.h"
#include "specimen/turns.h"
#include "specimen/vocabulary.h"
#include "specimen/weights.h"

#include <pthread.h>

// ---- Kernels ----

#define KERNELS(K)           \
    K(build_metadata)        \
    K(embed_tokens)          \
    K(normalise_hidden)      \
    K(project_qkv_a)         \
    K(normalise_q)           \
    K(store_window_keys)     \
    K(project_q)             \
    K(attend_window)         \
    K(pack_q)                \
    K(project_core_kv)       \
    K(compress_core)         \
    K(project_index_kv)      \
    K(compress_index_bf16)   \
    K(compress_index_fp8)    \
    K(project_index_weights) \
    K(project_index_q)       \
    K(finish_index_q_bf16)   \
    K(finish_index_q_fp8)    \
    K(hold_indexer)          \
    K(index_logits_bf16)     \
    K(index_logits_fp8)      \
    K(select_top_k)          \
    K(attend_selected)       \
    K(project_out)           \
    K(project_logits)        \
    K(choose_tokens)         \
    K(copy_q_low)            \
    K(fill_gains)            \
    K(count_work)
#define KERNEL_MEMBER(name) CUfunction name;
typedef struct kernels {
    CUmodule module;
    KERNELS(KERNEL_MEMBER)
} kernels;

// Launches a kernel of `count` threads, or a grid of `wide` times `high` blocks. Macros, so that the launch is on the
// line it is written on: that is the line a finding shows.
enum { BLOCK = 32 };
#define LAUNCH_GRID(e, name, stream, wide, high, block, ...)                                                      \
    CALL(&(e)->device, cuLaunchKernel((e)->kernels.name, (unsigned)(wide), (unsigned)(high), 1, (block), 1, 1, 0, \
                                      (stream), (void *[]){__VA_ARGS__}, NULL))
#define LAUNCH(e, name, stream, count, ...) \
    LAUNCH_GRID(e, name, stream, ((count) + BLOCK - 1) / BLOCK, 1, BLOCK, __VA_ARGS__)

// ---- The cache: pools of pages, the table of locations ----

typedef struct cache {
    int pages, rows; // without the reserved ones
    int *free_pages; // a ring of `pages` places: the page that was freed first is taken first
    int first_free_page, free_page_count;
    int *free_rows; // a stack
    int free_row_count;
    size_t key_page;                       // bytes of a page of index keys
    CUdeviceptr window[LAYERS];            // [pages + 1][PAGE][HEAD_DIM] bf16
    CUdeviceptr core[SPARSE_LAYERS];       // [pages + 1][PAGE_ENTRIES][HEAD_DIM] bf16
    CUdeviceptr keys[SPARSE_LAYERS];       // [pages + 1][key_page]
    CUdeviceptr core_ring[SPARSE_LAYERS];  // [rows + 1][COMPRESSED][CORE_KV] fp32
    CUdeviceptr index_ring[SPARSE_LAYERS]; // [rows + 1][COMPRESSED][INDEX_KV] fp32
    CUdeviceptr table;                     // [rows + 1][MAX_CONTEXT] int: where each token of each row lies
    int *table_host;                       // pinned: what the table should be
} cache;

void cache_create(engine *e);
void cache_destroy(engine *e);

// Are a row and enough pages for `tokens` tokens free? cache_take takes them, if so, and writes them to the table (on
// the schedule stream; later work of the main stream waits). pages: MAX_PAGES places.
bool cache_has(const engine *e, int tokens);
void cache_take(engine *e, int tokens, int *row, int *pages, int *page_count);
void cache_give(engine *e, int row, const int *pages, int page_count);

// Writes a row of the table again from the host's copy, clearing it first.
void cache_publish(engine *e, int row, int page_count);

static inline int64_t cache_location(const int *pages, int position)
{
    return (int64_t)pages[position / PAGE] * PAGE + position % PAGE;
}

// ---- One pass of the model ----

// Buffers that live as long as the engine, at addresses that graphs can rely on. Padded rows: token as it was, slot 0,
// length 1, location 0.
typedef struct step_inputs {
    CUdeviceptr tokens;    // [MAX_CONTEXT] int
    CUdeviceptr slots;     // [MAX_CONTEXT] int: rows of the table
    CUdeviceptr lengths;   // [MAX_CONTEXT] int: of the sequence, the token itself included
    CUdeviceptr locations; // [MAX_CONTEXT] int64
    CUdeviceptr logits;    // [ENGINE_MAX_BATCH][columns] fp32
    CUdeviceptr chosen;    // [ENGINE_MAX_BATCH] int
    struct staging {
        int tokens[MAX_CONTEXT], slots[MAX_CONTEXT], lengths[MAX_CONTEXT];
        int64_t locations[MAX_CONTEXT];
        int chosen[ENGINE_MAX_BATCH];
    } * host; // pinned
} step_inputs;

enum branch { BRANCH_KEYS, BRANCH_CORE, BRANCH_INDEX, BRANCH_INDEX_Q, BRANCH_INDEX_WEIGHTS, BRANCHES };

// The search of a layer's index, as addresses: all that a gap between two captured segments keeps of its tensors.
typedef struct selection {
    int layer, count, tiles;
    CUdeviceptr index_q, weights, plan, entry_counts, page_table, selected;
} selection;

void select_entries(engine *e, const selection *s, CUstream stream);

// One pass over rows that lie in the inputs.
typedef struct pass {
    int rows;
    int longest;    // length of the longest sequence
    bool prefill;   // the rows are one request's prompt, and only the last one's token is wanted
    bool overlap;   // use the side streams
    bool capturing; // becomes a graph
    void (*gap)(engine *e, const selection *s); // breakable: called in place of the search, all streams joined
    CUdeviceptr *result_in_pool; // not NULL: leave the chosen tokens in a tensor of the pool, and its address here
} pass;

void forward(engine *e, const pass *p);

// Launches the kernel that scores the entries for a selection.
void index_logits(engine *e, const selection *s, CUdeviceptr logits, CUstream stream);

// ---- What gravel is told (proof.c) ----

void proof_declare(engine *e);

// The next replay is of a graph for `captured` rows and has `real` requests.
void proof_batch(engine *e, int real, int captured);

// In a capture, with the probe on: clones what a search is computed from, and what comes of it.
void proof_clone_inputs(engine *e, const selection *s, CUstream stream);
void proof_clone_logits(engine *e, const selection *s, CUdeviceptr logits, CUstream stream);

// Behind a replay: computes the searches again from the clones, and compares.
void proof_compare(engine *e, int real, int captured);

// ---- Graphs ----

// A part of a captured step. Between two of them the search of an index runs eagerly.
typedef struct segment {
    CUgraphExec exec;
    bool has_gap; // a gap follows
    selection gap;
} segment;

typedef struct bucket {
    int rows;
    segment segments[SPARSE_LAYERS + 1]; // only the first, unless breakable
    int segment_count;
    CUdeviceptr result; // of the pool-reader fault
} bucket;

typedef struct graphs {
    allocator_pool *pool; // of all of them
    bucket buckets[ENGINE_MAX_BUCKETS];
    int count;      // ascending by rows
    bucket *making; // while capturing
} graphs;

void graphs_create(engine *e);
void graphs_destroy(engine *e);

// The smallest bucket for so many rows, or NULL.
const bucket *graphs_bucket(const engine *e, int rows);

void graphs_replay(engine *e, const bucket *b);

// ---- What gravel is told (docs/canary.md) ----

// Numbers that gravel gives, of the pages of each layer: regions, or transfers into them.
typedef struct watched {
    uint64_t window[LAYERS], core[SPARSE_LAYERS], keys[SPARSE_LAYERS];
} watched;
typedef watched watched_transfer;

// The pages of the cache are regions from here to there; watch_end before their memory is freed.
void watch_begin(engine *e);
void watch_end(engine *e);

// The pass that is about to be enqueued stores for the first `count` rows of the inputs. watch_step: it is enqueued.
void watch_rows(engine *e, int count);
void watch_step(engine *e);

// A transfer writes these pages from here to there. What only reads them need not be told.
void watch_transfer_begin(engine *e, const int *pages, int page_count, watched_transfer *t);
void watch_transfer_end(const watched_transfer *t);

// ---- Requests ----

typedef struct request {
    engine_handle handle;
    enum engine_state state;
    bool prefill_only, cancelled, released;
    int *tokens; // the prompt, then the answer
    int prompt_count, token_count, max_tokens;
    int row, pages[MAX_PAGES], page_count; // page_count 0: none
    void (*notify)(void *user, engine_handle handle);
    void *user;
    bool news; // notify is due
    struct request *next;
} request;

struct engine {
    engine_config config;
    device device;
    kernels kernels;
    model_weights weights;
    cache cache;
    watched watched;
    step_inputs inputs;
    allocator *allocator;
    graphs graphs;
    CUstream main, sides[BRANCHES], schedule, transfer;
    CUevent table_read;    // recorded when a pass has read the table
    CUdeviceptr workspace; // of the shared-workspace fault
    CUdeviceptr counter;   // of decoy-split-k
    struct late_transfer { // of the late-transfer fault: a transfer that will be repeated
        engine_handle handle;
        int pages[MAX_PAGES], page_count;
        unsigned char *keys; // index keys of the first sparse layer, page after page
    } late;

    turns working;        // held while the device works for the engine
    pthread_mutex_t lock; // the fields below; taken after `working` when both are
    pthread_cond_t work;
    bool wake;
    request *requests; // in the order of their handles
    engine_handle last_handle;
    gv_error error; // why the engine has failed
    engine_counts counts;
};

// Is a fault or decoy on?
#define HAS_FAULT(e, name) (((e)->config.faults & FAULT(name)) != 0)

// The request of a handle, or NULL; `lock` is held.
request *engine_find(engine *e, engine_handle handle);

// Adds a request in state ENGINE_WAITING with a copy of its tokens; `lock` is held. NULL when memory is out.
request *engine_add(engine *e, const engine_request *wanted, const int *tokens, int token_count);

// Ends a request and gives its row and pages back; `lock` is held.
void engine_end(engine *e, request *r, enum engine_state state);

#endif
