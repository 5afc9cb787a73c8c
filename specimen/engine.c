// The engine: its life, requests, admission, and the step.
#include "specimen/parts.h"

#include "base/memory.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// ---- Configuration ----

void engine_config_default(engine_config *config)
{
    *config =
        (engine_config){.keys = ENGINE_KEYS_BF16, .graph = true, .overlap = true, .batch_limit = 8, .queue_limit = 64};
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

// Fills in what was left to the engine and checks the rest.
static gv_status config_complete(engine_config *c, gv_error *error)
{
    if (c->batch_limit < 1 || c->batch_limit > ENGINE_MAX_BATCH)
        return gv_fail(error, GV_ERR_USAGE, "batch_limit is %d; it must be from 1 to %d", c->batch_limit,
                       ENGINE_MAX_BATCH);
    if (c->bucket_count < 0 || c->bucket_count > ENGINE_MAX_BUCKETS)
        return gv_fail(error, GV_ERR_USAGE, "bucket_count is %d; it must be from 0 to %d", c->bucket_count,
                       ENGINE_MAX_BUCKETS);
    if (c->keys != ENGINE_KEYS_BF16 && c->keys != ENGINE_KEYS_FP8)
        return gv_fail(error, GV_ERR_USAGE, "keys is neither ENGINE_KEYS_BF16 nor ENGINE_KEYS_FP8");
    if (c->pages < 0 || c->rows < 0 || c->queue_limit < 1)
        return gv_fail(error, GV_ERR_USAGE, "pages and rows must not be negative, and queue_limit must be positive");
    if (c->faults >= UINT32_C(1) << FAULT_COUNT)
        return gv_fail(error, GV_ERR_USAGE, "faults has bits beyond the table of faults.h");
    if (!c->rows)
        c->rows = 2 * c->batch_limit;
    if (!c->pages)
        c->pages = c->rows * MAX_PAGES;
    if (!c->bucket_count) {
        static const int usual[] = {1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64};
        for (size_t i = 0; i < sizeof usual / sizeof usual[0] && usual[i] < c->batch_limit; i++)
            c->buckets[c->bucket_count++] = usual[i];
        c->buckets[c->bucket_count++] = c->batch_limit;
    }
    qsort(c->buckets, (size_t)c->bucket_count, sizeof c->buckets[0], ascending);
    int kept = 0;
    for (int i = 0; i < c->bucket_count; i++) {
        if (c->buckets[i] < 1 || c->buckets[i] > ENGINE_MAX_BATCH)
            return gv_fail(error, GV_ERR_USAGE, "a bucket has %d rows; it must be from 1 to %d", c->buckets[i],
                           ENGINE_MAX_BATCH);
        if (!kept || c->buckets[i] != c->buckets[kept - 1])
            c->buckets[kept++] = c->buckets[i];
    }
    c->bucket_count = kept;
    return GV_OK;
}

// ---- Creation ----

// The file of kernels for the device at hand.
static gv_status kernels_load(engine *e, gv_error *error)
{
    char path[PATH_MAX] = "";
    const char *file = e->device.software ? "kernels.so" : "kernels.fatbin";
    if (e->config.kernels) {
        snprintf(path, sizeof path, "%s/%s", e->config.kernels, file);
    } else {
        ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
        path[length > 0 ? length : 0] = '\0';
        char *slash = strrchr(path, '/');
        size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
        snprintf(path + folder, sizeof path - folder, "specimen/%s", file);
    }
    if (cuModuleLoad(&e->kernels.module, path) != CUDA_SUCCESS)
        return gv_fail(error, GV_ERR_MISSING,
                       "%s: the kernels could not be loaded; build the target "
                       "specimen_kernels_%s, or name their folder",
                       path, e->device.software ? "soft" : "gpu");
#define KERNEL_FIND(name) CALL(&e->device, cuModuleGetFunction(&e->kernels.name, e->kernels.module, #name));
    KERNELS(KERNEL_FIND)
    return GV_OK;
}

static void streams_create(engine *e)
{
    CALL(&e->device, cuStreamCreate(&e->main, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < BRANCHES; i++)
        CALL(&e->device, cuStreamCreate(&e->sides[i], CU_STREAM_NON_BLOCKING));
    CALL(&e->device, cuStreamCreate(&e->schedule, CU_STREAM_NON_BLOCKING));
    CALL(&e->device, cuStreamCreate(&e->transfer, CU_STREAM_NON_BLOCKING));
    CALL(&e->device, cuEventCreate(&e->table_read, CU_EVENT_DISABLE_TIMING));
}

static void inputs_create(engine *e)
{
    step_inputs *in = &e->inputs;
    const struct {
        CUdeviceptr *address;
        size_t bytes;
    } buffers[] = {
        {&in->tokens, MAX_CONTEXT * 4},
        {&in->slots, MAX_CONTEXT * 4},
        {&in->lengths, MAX_CONTEXT * 4},
        {&in->locations, MAX_CONTEXT * 8},
        {&in->logits, (size_t)ENGINE_MAX_BATCH * (size_t)e->weights.columns * 4},
        {&in->chosen, ENGINE_MAX_BATCH * 4},
        {&e->workspace, ENGINE_MAX_BATCH * QUERY * 4},
        {&e->counter, 4},
    };
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (CALL(&e->device, cuMemAlloc(buffers[i].address, buffers[i].bytes)))
            CALL(&e->device, cuMemsetD8Async(*buffers[i].address, 0, buffers[i].bytes, e->main));
    CALL(&e->device, cuMemsetD32Async(in->lengths, 1, MAX_CONTEXT, e->main));
    void *pinned = NULL;
    if (CALL(&e->device, cuMemHostAlloc(&pinned, sizeof *in->host, 0)))
        memset(pinned, 0, sizeof *in->host);
    in->host = pinned;
}

static void inputs_destroy(engine *e)
{
    step_inputs *in = &e->inputs;
    const CUdeviceptr buffers[] = {in->tokens, in->slots,  in->lengths,  in->locations,
                                   in->logits, in->chosen, e->workspace, e->counter};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (buffers[i])
            cuMemFree(buffers[i]);
    if (in->host)
        cuMemFreeHost(in->host);
}

gv_status engine_create(engine **made, const engine_config *config, gv_error *error)
{
    *made = NULL;
    engine *e = gv_calloc(1, sizeof *e);
    if (!e)
        return gv_fail(error, GV_ERR_MEMORY, "no memory for the engine");
    e->config = *config;
    turns_begin(&e->working);
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&e->work, &monotonic);
    pthread_condattr_destroy(&monotonic);
    gv_status status = config_complete(&e->config, error);
    if (status == GV_OK)
        status = device_open(&e->device, error);
    if (status == GV_OK)
        status = kernels_load(e, error);
    if (status != GV_OK) {
        engine_destroy(e);
        return status;
    }
    streams_create(e);
    e->allocator = allocator_create(&e->device, e->config.prove_reuse);
    if (!e->allocator)
        gv_fail(&e->device.error, GV_ERR_MEMORY, "no memory for the allocator");
    weights_create(&e->weights, &e->device);
    cache_create(e);
    inputs_create(e);
    if (e->device.error.status == GV_OK)
        proof_declare(e);
    CALL(&e->device, cuStreamSynchronize(e->main));
    if (e->device.error.status == GV_OK)
        graphs_create(e);
    CALL(&e->device, cuStreamSynchronize(e->main));
    if (e->device.error.status == GV_OK)
        watch_begin(e);
    if (e->device.error.status != GV_OK) {
        if (error)
            *error = e->device.error;
        status = e->device.error.status;
        engine_destroy(e);
        return status;
    }
    *made = e;
    return GV_OK;
}

void engine_destroy(engine *e)
{
    if (!e)
        return;
    if (e->device.context) {
        cuCtxSetCurrent(e->device.context);
        cuCtxSynchronize();
    }
    for (request *r = e->requests, *next; r; r = next) {
        next = r->next;
        gv_free(r->tokens);
        gv_free(r);
    }
    if (e->allocator)
        graphs_destroy(e);
    allocator_destroy(e->allocator);
    inputs_destroy(e);
    gv_free(e->late.keys);
    watch_end(e);
    cache_destroy(e);
    weights_destroy(&e->weights);
    CUstream streams[BRANCHES + 3] = {e->main, e->schedule, e->transfer};
    memcpy(streams + 3, e->sides, sizeof e->sides);
    for (int i = 0; i < BRANCHES + 3; i++)
        if (streams[i])
            cuStreamDestroy(streams[i]);
    if (e->table_read)
        cuEventDestroy(e->table_read);
    if (e->kernels.module)
        cuModuleUnload(e->kernels.module);
    device_close(&e->device);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    turns_end(&e->working);
    gv_free(e);
}

int engine_max_context(const engine *e)
{
    return MAX_CONTEXT;
}

// ---- Requests ----

request *engine_find(engine *e, engine_handle handle)
{
    for (request *r = e->requests; r; r = r->next)
        if (r->handle == handle && !r->released)
            return r;
    return NULL;
}

request *engine_add(engine *e, const engine_request *wanted, const int *tokens, int token_count)
{
    request *r = gv_calloc(1, sizeof *r);
    int *copy = gv_calloc(MAX_CONTEXT + 1, sizeof *copy);
    if (!r || !copy) {
        gv_free(r);
        gv_free(copy);
        return NULL;
    }
    memcpy(copy, tokens, (size_t)token_count * sizeof *copy);
    *r = (request){.handle = ++e->last_handle,
                   .state = ENGINE_WAITING,
                   .prefill_only = wanted->prefill_only,
                   .tokens = copy,
                   .prompt_count = token_count,
                   .token_count = token_count,
                   .max_tokens = wanted->max_tokens,
                   .notify = wanted->notify,
                   .user = wanted->user};
    request **link = &e->requests;
    while (*link)
        link = &(*link)->next;
    *link = r;
    return r;
}

void engine_end(engine *e, request *r, enum engine_state state)
{
    cache_give(e, r->row, r->pages, r->page_count);
    r->page_count = 0;
    r->state = state;
    r->news = true;
}

// How long a request's sequence can become. The last token of an answer is never fed back.
static int longest(const request *r)
{
    if (r->prefill_only)
        return r->prompt_count;
    return r->max_tokens < MAX_CONTEXT - r->prompt_count ? r->prompt_count + r->max_tokens : MAX_CONTEXT;
}

gv_status engine_submit(engine *e, const engine_request *wanted, engine_handle *handle, gv_error *error)
{
    if (!wanted->prompt || wanted->prompt_count < 1)
        return gv_fail(error, GV_ERR_USAGE, "the prompt has no tokens");
    if (wanted->max_tokens < 1)
        return gv_fail(error, GV_ERR_USAGE, "max_tokens is %d; it must be at least 1", wanted->max_tokens);
    if (wanted->prompt_count >= MAX_CONTEXT)
        return gv_fail(error, GV_ERR_LIMIT, "the prompt has %d tokens; at most %d leave room for an answer",
                       wanted->prompt_count, MAX_CONTEXT - 1);
    for (int i = 0; i < wanted->prompt_count; i++)
        if (!vocabulary_text(wanted->prompt[i]))
            return gv_fail(error, GV_ERR_USAGE, "token %d of the prompt, %d, is not in the vocabulary", i,
                           wanted->prompt[i]);
    int pages = (longest(&(request){.prompt_count = wanted->prompt_count,
                                    .max_tokens = wanted->max_tokens,
                                    .prefill_only = wanted->prefill_only}) +
                 PAGE - 1) /
                PAGE;
    if (pages > e->config.pages)
        return gv_fail(error, GV_ERR_LIMIT, "the request may need %d pages and the engine has %d: ask for fewer tokens",
                       pages, e->config.pages);
    gv_status status = GV_OK;
    pthread_mutex_lock(&e->lock);
    int waiting = 0;
    for (request *r = e->requests; r; r = r->next)
        waiting += r->state == ENGINE_WAITING && !r->cancelled;
    request *r = NULL;
    if (e->error.status != GV_OK)
        status = gv_fail(error, GV_ERR_IO, "the engine has failed: %s", e->error.text);
    else if (waiting >= e->config.queue_limit)
        status = gv_fail(error, GV_ERR_LIMIT, "%d requests are waiting already: try again later", waiting);
    else if (!(r = engine_add(e, wanted, wanted->prompt, wanted->prompt_count)))
        status = gv_fail(error, GV_ERR_MEMORY, "no memory for the request");
    if (r) {
        *handle = r->handle;
        pthread_cond_broadcast(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
    return status;
}

int engine_poll(engine *e, engine_handle handle, int first, int *tokens, int capacity, engine_progress *progress)
{
    pthread_mutex_lock(&e->lock);
    request *r = engine_find(e, handle);
    int copied = r ? 0 : -1;
    if (r) {
        int count = r->token_count - r->prompt_count;
        if (progress)
            *progress = (engine_progress){r->state, count, r->prompt_count};
        if (first >= 0 && first < count)
            copied = count - first < capacity ? count - first : capacity;
        if (copied > 0)
            memcpy(tokens, r->tokens + r->prompt_count + first, (size_t)copied * sizeof *tokens);
    }
    pthread_mutex_unlock(&e->lock);
    return copied;
}

void engine_cancel(engine *e, engine_handle handle)
{
    pthread_mutex_lock(&e->lock);
    request *r = engine_find(e, handle);
    if (r && !engine_ended(r->state)) {
        r->cancelled = true;
        pthread_cond_broadcast(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
}

void engine_release(engine *e, engine_handle handle)
{
    pthread_mutex_lock(&e->lock);
    request *r = engine_find(e, handle);
    if (r) {
        r->released = true;
        r->cancelled = !engine_ended(r->state);
        pthread_cond_broadcast(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
}

// ---- The step ----

// Carries out what was asked for since the last step: cancels, and forgets what was released. `lock` is held.
static void tidy(engine *e)
{
    for (request **link = &e->requests; *link;) {
        request *r = *link;
        if (r->cancelled && !engine_ended(r->state))
            engine_end(e, r, ENGINE_ENDED_CANCELLED);
        if (!r->released) {
            link = &r->next;
            continue;
        }
        *link = r->next;
        gv_free(r->tokens);
        gv_free(r);
    }
}

// Copies the staging to the device: the rows' tokens, and what describes them. Padded rows have no token of their own.
static void upload(engine *e, int tokens, int rows)
{
    const step_inputs *in = &e->inputs;
    CALL(&e->device, cuMemcpyHtoDAsync(in->tokens, in->host->tokens, (size_t)tokens * 4, e->main));
    CALL(&e->device, cuMemcpyHtoDAsync(in->slots, in->host->slots, (size_t)rows * 4, e->main));
    CALL(&e->device, cuMemcpyHtoDAsync(in->lengths, in->host->lengths, (size_t)rows * 4, e->main));
    CALL(&e->device, cuMemcpyHtoDAsync(in->locations, in->host->locations, (size_t)rows * 8, e->main));
}

// Describes the token at `position` of a request as a row.
static void describe(engine *e, int row, const request *r, int position)
{
    struct staging *host = e->inputs.host;
    host->tokens[row] = r->tokens[position];
    host->slots[row] = r->row;
    host->lengths[row] = position + 1;
    host->locations[row] = cache_location(r->pages, position);
}

// Fetches the chosen tokens of the first rows; the device has done everything then.
static void download(engine *e, int rows)
{
    CALL(&e->device, cuMemcpyDtoHAsync(e->inputs.host->chosen, e->inputs.chosen, (size_t)rows * 4, e->main));
    CALL(&e->device, cuStreamSynchronize(e->main));
}

// The staging-reuse fault: the prompt goes up in pieces, all through the same place in pinned memory, and nobody waits
// for the copies.
static void upload_in_pieces(engine *e, const request *r)
{
    enum { PIECE = 64 };
    for (int first = 0; first < r->prompt_count; first += PIECE) {
        int count = r->prompt_count - first < PIECE ? r->prompt_count - first : PIECE;
        memcpy(e->inputs.host->tokens, r->tokens + first, (size_t)count * 4);
        CALL(&e->device, cuMemcpyHtoDAsync(e->inputs.tokens + (size_t)first * 4, e->inputs.host->tokens,
                                           (size_t)count * 4, e->main));
    }
}

static void prefill(engine *e, request *r)
{
    for (int i = 0; i < r->prompt_count; i++)
        describe(e, i, r, i);
    upload(e, r->prompt_count, r->prompt_count);
    watch_rows(e, r->prompt_count);
    if (HAS_FAULT(e, STAGING_REUSE))
        upload_in_pieces(e, r);
    // Prompts do not overlap, except where something has to take ordinary memory in the side streams.
    forward(e, &(pass){.rows = r->prompt_count,
                       .longest = r->prompt_count,
                       .prefill = true,
                       .overlap = HAS_FAULT(e, ORDINARY_POOL)});
    watch_step(e);
    download(e, 1);
}

// Describes a batch, padded to `rows` rows, and uploads it.
static void upload_batch(engine *e, request *const *batch, int count, int rows)
{
    struct staging *host = e->inputs.host;
    for (int i = 0; i < count; i++)
        describe(e, i, batch[i], batch[i]->token_count - 1);
    for (int i = count; i < rows && !HAS_FAULT(e, PAD_STORE); i++) {
        host->slots[i] = 0;
        host->lengths[i] = 1;
        host->locations[i] = 0;
    }
    upload(e, count, rows);
    watch_rows(e, count);
}

// The scheduler writes the batch's rows of the table again (live-table, decoy-table). `read` tells that the pass under
// way has read the table, or should.
static void refresh_table(engine *e, request *const *batch, int count, CUevent read)
{
    CALL(&e->device, cuStreamWaitEvent(e->schedule, read, 0));
    for (int i = 0; i < count; i++)
        cache_publish(e, batch[i]->row, batch[i]->page_count);
    device_order(&e->device, e->schedule, e->main);
}

// The pool-reader fault: two replays for a batch, and one look at the results when both are done.
static void decode_in_halves(engine *e, request *const *batch, int count)
{
    const bucket *buckets[2];
    int first[3] = {0, count / 2, count};
    for (int half = 0; half < 2; half++) {
        int rows = first[half + 1] - first[half];
        buckets[half] = graphs_bucket(e, rows);
        upload_batch(e, batch + first[half], rows, buckets[half]->rows);
        proof_batch(e, rows, buckets[half]->rows);
        graphs_replay(e, buckets[half]);
        watch_step(e);
        CALL(&e->device, cuStreamSynchronize(e->main)); // the staging is filled again
    }
    for (int half = 0; half < 2; half++)
        CALL(&e->device, cuMemcpyDtoHAsync(e->inputs.host->chosen + first[half], buckets[half]->result,
                                           (size_t)(first[half + 1] - first[half]) * 4, e->main));
    CALL(&e->device, cuStreamSynchronize(e->main));
}

// One token for each of the requests.
static void decode(engine *e, request *const *batch, int count)
{
    const bucket *b = graphs_bucket(e, count);
    int longest = 1;
    if (b && HAS_FAULT(e, POOL_READER) && count > 1) {
        decode_in_halves(e, batch, count);
        return;
    }
    for (int i = 0; i < count; i++)
        longest = batch[i]->token_count > longest ? batch[i]->token_count : longest;
    upload_batch(e, batch, count, b ? b->rows : count);
    CUevent too_early = NULL;
    if (HAS_FAULT(e, LIVE_TABLE) && CALL(&e->device, cuEventCreate(&too_early, CU_EVENT_DISABLE_TIMING)))
        CALL(&e->device, cuEventRecord(too_early, e->main));
    if (b) {
        proof_batch(e, count, b->rows);
        graphs_replay(e, b);
        proof_compare(e, count, b->rows);
    } else
        forward(e, &(pass){.rows = count, .longest = longest, .overlap = e->config.overlap});
    watch_step(e);
    if (HAS_FAULT(e, LIVE_TABLE) || HAS_FAULT(e, DECOY_TABLE))
        refresh_table(e, batch, count, too_early ? too_early : e->table_read);
    if (b && HAS_FAULT(e, POOL_READER))
        CALL(&e->device, cuMemcpyDtoDAsync(e->inputs.chosen, b->result, (size_t)count * 4, e->main));
    download(e, count);
    if (too_early)
        cuEventDestroy(too_early);
}

// Appends a chosen token to a request and sees whether it has ended. `lock` is held.
static void append(engine *e, request *r, int token)
{
    r->news = true;
    if (r->state == ENGINE_WAITING)
        r->state = ENGINE_RUNNING;
    // Where a fault overwrites what was chosen it can be any number, and the next step would read behind the embedding.
    if (!vocabulary_text(token))
        token = TOKEN_UNKNOWN;
    if (token == TOKEN_END) {
        engine_end(e, r, ENGINE_ENDED_STOP);
        return;
    }
    r->tokens[r->token_count++] = token;
    e->counts.tokens++;
    if (r->prefill_only)
        r->state = ENGINE_PREFILLED;
    else if (r->token_count - r->prompt_count >= r->max_tokens || r->token_count >= MAX_CONTEXT)
        engine_end(e, r, ENGINE_ENDED_LENGTH);
}

// Tells those who want to know, without a lock.
static void tell_news(engine *e)
{
    pthread_mutex_lock(&e->lock);
    for (request *r = e->requests; r;) {
        if (!r->news || r->released) {
            r = r->next;
            continue;
        }
        r->news = false;
        engine_handle handle = r->handle;
        void (*notify)(void *, engine_handle) = r->notify;
        void *user = r->user;
        if (notify) {
            pthread_mutex_unlock(&e->lock);
            notify(user, handle);
            pthread_mutex_lock(&e->lock);
        }
        // Only the stepping thread, which is this one, takes requests out of the list.
        r = r->next;
    }
    pthread_mutex_unlock(&e->lock);
}

// The first waiting request, if it may start now. `lock` is held.
static request *admissible(const engine *e)
{
    int running = 0;
    request *first = NULL;
    for (request *r = e->requests; r; r = r->next) {
        running += r->state == ENGINE_RUNNING;
        if (r->state == ENGINE_WAITING && !first)
            first = r;
    }
    bool may = first && (first->prefill_only || running < e->config.batch_limit) && cache_has(e, longest(first));
    return may ? first : NULL;
}

static int running_batch(engine *e, request **batch)
{
    int count = 0;
    for (request *r = e->requests; r && count < e->config.batch_limit; r = r->next)
        if (r->state == ENGINE_RUNNING)
            batch[count++] = r;
    return count;
}

// After a failure: no request can go on.
static gv_status fail(engine *e, gv_error *error)
{
    if (e->error.status == GV_OK)
        e->error = e->device.error;
    for (request *r = e->requests; r; r = r->next)
        if (!engine_ended(r->state))
            engine_end(e, r, ENGINE_ENDED_FAILED);
    if (error)
        *error = e->error;
    return GV_ERR_IO;
}

gv_status engine_step(engine *e, bool *worked, gv_error *error)
{
    gv_status status = GV_OK;
    request *batch[ENGINE_MAX_BATCH];
    turns_take(&e->working);
    cuCtxSetCurrent(e->device.context);
    pthread_mutex_lock(&e->lock);
    tidy(e);
    request *fresh = e->device.error.status == GV_OK ? admissible(e) : NULL;
    if (fresh)
        cache_take(e, longest(fresh), &fresh->row, fresh->pages, &fresh->page_count);
    pthread_mutex_unlock(&e->lock);
    if (fresh)
        prefill(e, fresh);
    pthread_mutex_lock(&e->lock);
    if (fresh && e->device.error.status == GV_OK) {
        append(e, fresh, e->inputs.host->chosen[0]);
        e->counts.prefills++;
    }
    int count = e->device.error.status == GV_OK ? running_batch(e, batch) : 0;
    pthread_mutex_unlock(&e->lock);
    if (count)
        decode(e, batch, count);
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < count && e->device.error.status == GV_OK; i++)
        append(e, batch[i], e->inputs.host->chosen[i]);
    if (count) {
        e->counts.steps++;
        *(graphs_bucket(e, count) ? &e->counts.replays : &e->counts.eager_steps) += 1;
    }
    allocator_counts memory = allocator_count(e->allocator);
    e->counts.transient_bytes = memory.bytes;
    e->counts.reserved_bytes = memory.reserved;
    if (e->device.error.status != GV_OK)
        status = fail(e, error);
    pthread_mutex_unlock(&e->lock);
    turns_give(&e->working);
    tell_news(e);
    if (worked)
        *worked = fresh || count;
    return status;
}

// Is there anything for a step to do? `lock` is held.
static bool has_work(const engine *e)
{
    for (const request *r = e->requests; r; r = r->next)
        if (r->state == ENGINE_RUNNING || r->news || r->released || (r->cancelled && !engine_ended(r->state)))
            return true;
    return admissible(e);
}

bool engine_wait_for_work(engine *e, int timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    pthread_mutex_lock(&e->lock);
    int result = 0;
    while (!has_work(e) && !e->wake && result != ETIMEDOUT)
        result =
            timeout_ms < 0 ? pthread_cond_wait(&e->work, &e->lock) : pthread_cond_timedwait(&e->work, &e->lock, &until);
    e->wake = false;
    bool work = has_work(e);
    pthread_mutex_unlock(&e->lock);
    return work;
}

void engine_wake(engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->wake = true;
    pthread_cond_broadcast(&e->work);
    pthread_mutex_unlock(&e->lock);
}

void engine_counts_now(engine *e, engine_counts *counts)
{
    pthread_mutex_lock(&e->lock);
    e->counts.pages = e->cache.pages;
    e->counts.free_pages = e->cache.free_page_count;
    e->counts.rows = e->cache.rows;
    e->counts.free_rows = e->cache.free_row_count;
    e->counts.waiting = e->counts.running = e->counts.prefilled = 0;
    e->counts.requests = 0;
    for (const request *r = e->requests; r; r = r->next) {
        e->counts.waiting += r->state == ENGINE_WAITING;
        e->counts.running += r->state == ENGINE_RUNNING;
        e->counts.prefilled += r->state == ENGINE_PREFILLED;
        e->counts.requests += !r->released;
    }
    *counts = e->counts;
    pthread_mutex_unlock(&e->lock);
}
