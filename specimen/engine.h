// The specimen's engine: what the offline runner and the servers are built on. It holds a small decoder with sparse
// attention in device memory, admits requests, prefills and decodes them in batches (captured graphs or eager), and
// can hand a prefilled request over to another engine.
//
//     engine_create ... engine_submit -> handle
//     loop: engine_step             one thread
//     engine_poll(handle)           any thread
//     engine_release(handle)        any thread
//
// Threads. One thread at a time may call engine_step (the *stepping* thread); in a server it is a thread of its own.
// engine_submit, engine_import, engine_poll, engine_cancel, engine_export, engine_release, engine_counts and
// engine_wait_for_work may be called by any thread at any time between engine_create and engine_destroy. They take a
// lock that engine_step holds only for its bookkeeping and never while the device works. Exception: engine_export and
// engine_import copy pages with the device and may wait for a running step. Several engines in one process are
// independent of each other.
//
// Decoding is greedy: the answer depends on the prompt alone. Whatever the batch, the key format or the way of
// execution, a correct engine gives the same tokens.
#ifndef SPECIMEN_ENGINE_H
#define SPECIMEN_ENGINE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- Configuration ----

// How the keys of the index are kept: fp8 e4m3 with one fp32 scale an entry (132 bytes), or bf16 (256 bytes).
enum engine_keys { ENGINE_KEYS_BF16, ENGINE_KEYS_FP8 };

// How the tensor that the incident re-issues too early is protected (docs/specimen.md).
enum engine_repair {
    ENGINE_REPAIR_NONE,          // it is not: the incident
    ENGINE_REPAIR_KEEP,          // the host keeps it until the streams have joined
    ENGINE_REPAIR_RECORD_STREAM, // the allocator is told of the other streams that use it
};

enum { ENGINE_MAX_BUCKETS = 16, ENGINE_MAX_BATCH = 64 };

typedef struct engine_config {
    enum engine_keys keys;
    bool graph;     // decode by captured graphs, or eagerly
    bool overlap;   // the indexer, the compressor and the key store run in side streams beside the main one
    bool breakable; // with `graph`: captured segments with eager gaps between them, instead of whole graphs
    enum engine_repair repair;
    bool prove_reuse;                // allocator: reuse recorded blocks inside a capture once the graph proves it safe
                                     // (PyTorch's graph_capture_record_stream_reuse)
    bool probe;                      // under `gravel run --probe`: check the index's search behind each replay
    uint32_t faults;                 // bits of the faults and decoys that are on: 1 << index in the table of faults.h
    int batch_limit;                 // decoding requests at a time, 1 to ENGINE_MAX_BATCH
    int buckets[ENGINE_MAX_BUCKETS]; // batch sizes to capture, any order; larger batches decode eagerly
    int bucket_count;                // 0: 1, 2, 4, 8, 12, 16, 24, 32 ..., as far as batch_limit
    int pages;           // pages of the cache without the reserved page 0; 0: enough for batch_limit full contexts
    int rows;            // requests that can hold pages at a time, without the reserved row 0; 0: 2 * batch_limit
    int queue_limit;     // requests that may wait for admission; more are refused
    uint64_t hold_ns;    // the indexer's first kernel takes about so long in addition; 0: nothing. Stands for the time
                         // that a model of real size would need there, and moves the odds of the incident
    const char *kernels; // folder of kernels.so and kernels.fatbin; NULL: specimen/ beside the program
} engine_config;

// Fills in what a plain decode server uses: bf16 keys, graphs, overlap on, the incident unrepaired, no further fault,
// 8 requests at a time, 64 waiting.
void engine_config_default(engine_config *config);

// ---- The engine ----

typedef struct engine engine;

// Opens device 0, loads kernels and weights, allocates the cache and captures the graphs (largest bucket first).
// Errors: GV_ERR_USAGE (the configuration makes no sense, the text says which field), GV_ERR_MISSING (no device, or the
// kernels are not where they should be), GV_ERR_MEMORY, GV_ERR_IO (the driver refused a call).
gv_status engine_create(engine **made, const engine_config *config, gv_error *error);

// Waits for the device and frees everything, running requests included; nobody is notified. No other call may be under
// way. NULL is allowed.
void engine_destroy(engine *e);

// The longest sequence (prompt and answer) a request may have, in tokens.
int engine_max_context(const engine *e);

// ---- Requests ----

// A request from its submission to its release. 0 is never one. Handles are not reused within an engine.
typedef uint64_t engine_handle;

enum engine_state {
    ENGINE_WAITING,         // in the queue
    ENGINE_RUNNING,         // holds a row and pages
    ENGINE_PREFILLED,       // prefill_only: its first token is there, its pages wait for engine_export
    ENGINE_ENDED_STOP,      // the model ended its answer (TOKEN_END, which is not among the tokens)
    ENGINE_ENDED_LENGTH,    // max_tokens or engine_max_context was reached
    ENGINE_ENDED_CANCELLED, // engine_cancel
    ENGINE_ENDED_FAILED,    // the engine failed; engine_step said why
};

// Has it ended? Its pages and row are free again then.
static inline bool engine_ended(enum engine_state state)
{
    return state >= ENGINE_ENDED_STOP;
}

typedef struct engine_request {
    const int *prompt; // prompt_count tokens, copied by engine_submit
    int prompt_count;
    int max_tokens;    // at least 1
    bool prefill_only; // stop after the first token, whatever max_tokens is, and keep the pages for engine_export
    // Called by the stepping thread, without any lock, after the request got tokens or changed its state; may call
    // every function of this header but engine_step and engine_destroy. The last call is the one after it ended (or
    // was prefilled). After engine_release has returned on the stepping thread it is not called any more; on another
    // thread one call may still be under way. NULL: nobody is told.
    void (*notify)(void *user, engine_handle handle);
    void *user;
} engine_request;

// Queues a request. Errors: GV_ERR_USAGE (no tokens, a token outside the vocabulary, max_tokens below 1), GV_ERR_LIMIT
// (the prompt leaves no room for an answer, or needs more pages than the engine has, or the queue is full: the text
// says which), GV_ERR_MEMORY, GV_ERR_IO (the engine has failed).
gv_status engine_submit(engine *e, const engine_request *request, engine_handle *handle, gv_error *error);

typedef struct engine_progress {
    enum engine_state state;
    int token_count;  // tokens of the answer so far, without TOKEN_END
    int prompt_count; // tokens of the prompt
} engine_progress;

// Copies the answer's tokens from index `first` on, at most `capacity` of them, into `tokens` (NULL with capacity 0)
// and says how far it is. Returns how many were copied, or -1 for a handle that is unknown or released.
int engine_poll(engine *e, engine_handle handle, int first, int *tokens, int capacity, engine_progress *progress);

// Ends a request; its pages are free after the step that is under way. Does nothing for an ended or unknown one.
void engine_cancel(engine *e, engine_handle handle);

// Forgets a request. One that has not ended is cancelled first. Each handle must be released once; others are ignored.
void engine_release(engine *e, engine_handle handle);

// ---- Stepping ----

// Does one step: admits at most one waiting request by prefilling it, otherwise or in addition decodes one token of
// every running request. `*worked` (may be NULL) is false when there was nothing to do. After an error (GV_ERR_IO: the
// driver refused a call) every request ends as ENGINE_ENDED_FAILED and every later step fails the same way.
gv_status engine_step(engine *e, bool *worked, gv_error *error);

// Waits until a step would have something to do, at most `timeout_ms` (-1: without limit). True: it has. Also returns
// (false) after engine_wake.
bool engine_wait_for_work(engine *e, int timeout_ms);

// Ends one engine_wait_for_work that is under way or comes next.
void engine_wake(engine *e);

// ---- Prefill here, decode there ----

// The pages of an ENGINE_PREFILLED request as bytes for another engine with the same key format: a header, its tokens,
// its C4 and index-key pages, window and compressor states. Both calls may block for the
// step that is under way, and for no later one. The format is of this build; importing checks it as hostile input.

// How many bytes engine_export will write; 0 for a handle that is not ENGINE_PREFILLED.
size_t engine_export_size(engine *e, engine_handle handle);

// Writes them to `bytes`. The request keeps its pages until it is released or cancelled (after the receiver has
// acknowledged, say). Errors: GV_ERR_USAGE (not prefilled), GV_ERR_LIMIT (capacity too small), GV_ERR_IO.
gv_status engine_export(engine *e, engine_handle handle, void *bytes, size_t capacity, gv_error *error);

// Takes over an exported request: allocates a row and pages, copies the contents in, and queues it for decoding behind
// its first token. `request` gives max_tokens (the first token included), notify and user; its prompt is ignored.
// engine_poll shows the first token at once. Errors: GV_ERR_FORMAT (not an export, cut, or inconsistent), GV_ERR_USAGE
// (another key format or layout), GV_ERR_LIMIT (no row or too few pages free at this moment: try again later; or it can
// never fit, which the text says), GV_ERR_MEMORY, GV_ERR_IO.
gv_status engine_import(engine *e, const void *bytes, size_t size, const engine_request *request, engine_handle *handle,
                        gv_error *error);

// ---- What is in use ----

typedef struct engine_counts {
    int pages, free_pages; // without page 0; equal when no request holds any: the check for leaks
    int rows, free_rows;   // without row 0
    int waiting, running, prefilled;
    size_t requests;                                // handles that are not released
    uint64_t steps, prefills, replays, eager_steps; // since engine_create
    uint64_t tokens;                                // given out
    // With `probe`: searches of the index that were computed again eagerly, and those that came out otherwise.
    uint64_t probes_compared, probes_differing;
    // After the last step:
    size_t transient_bytes; // of the caching allocator: taken by tensors at this moment
    size_t reserved_bytes;  // and held from the driver
} engine_counts;

void engine_counts_now(engine *e, engine_counts *counts);

#endif
