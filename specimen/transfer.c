// A prefilled request as bytes, for an engine in another process: header, tokens, then page by page the window's keys,
// the attention's entries and the index's keys of every layer, then the compressors' states. What is read from outside
// is checked before anything is taken for it.
#include "specimen/parts.h"

#include "base/memory.h"

#include <string.h>

enum { TRANSFER_VERSION = 1 };
static const char magic[8] = "gvspecKV";

typedef struct header {
    char magic[8];
    uint32_t version;
    uint32_t key_page;                // tells the key format
    uint32_t hidden, layers, context; // of another build they could differ
    uint32_t prompt_count, token_count;
    uint32_t reserved;
    uint64_t size;     // of everything, this header included
    uint64_t checksum; // of everything behind the header
} header;

// FNV-1a over 64-bit words: against cut or mixed-up transfers, not against forgery.
static uint64_t checksum(const unsigned char *bytes, size_t size)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325), word;
    for (size_t i = 0; i < size; i += sizeof word) {
        word = 0;
        memcpy(&word, bytes + i, size - i < sizeof word ? size - i : sizeof word);
        sum = (sum ^ word) * UINT64_C(0x100000001b3);
    }
    return sum;
}

// One piece of device memory that belongs to a request.
typedef struct piece {
    CUdeviceptr address;
    size_t bytes;
} piece;

enum { PIECES = (LAYERS + 2 * SPARSE_LAYERS) * MAX_PAGES + 2 * SPARSE_LAYERS };

static int list_pieces(const engine *e, const request *r, int page_count, piece *pieces)
{
    const cache *c = &e->cache;
    int count = 0;
    for (int i = 0; i < page_count; i++) {
        size_t page = (size_t)r->pages[i];
        const size_t window = PAGE * HEAD_DIM * 2, core = PAGE_ENTRIES * HEAD_DIM * 2;
        for (int layer = 0; layer < LAYERS; layer++)
            pieces[count++] = (piece){c->window[layer] + page * window, window};
        for (int layer = 0; layer < SPARSE_LAYERS; layer++) {
            pieces[count++] = (piece){c->core[layer] + page * core, core};
            pieces[count++] = (piece){c->keys[layer] + page * c->key_page, c->key_page};
        }
    }
    for (int layer = 0; layer < SPARSE_LAYERS; layer++) {
        const size_t core = COMPRESSED * CORE_KV * 4, index = COMPRESSED * INDEX_KV * 4;
        pieces[count++] = (piece){c->core_ring[layer] + (size_t)r->row * core, core};
        pieces[count++] = (piece){c->index_ring[layer] + (size_t)r->row * index, index};
    }
    return count;
}

// Pages that hold something: the last token has not been through the model yet.
static int used_pages(int token_count)
{
    return (token_count - 1 + PAGE - 1) / PAGE;
}

static size_t transfer_size(const engine *e, int token_count)
{
    const size_t page =
        LAYERS * PAGE * HEAD_DIM * 2 + SPARSE_LAYERS * (PAGE_ENTRIES * HEAD_DIM * 2 + e->cache.key_page);
    return sizeof(header) + (size_t)token_count * 4 + (size_t)used_pages(token_count) * page +
           SPARSE_LAYERS * COMPRESSED * (CORE_KV + INDEX_KV) * 4;
}

// ---- Sending ----

size_t engine_export_size(engine *e, engine_handle handle)
{
    pthread_mutex_lock(&e->lock);
    const request *r = engine_find(e, handle);
    size_t size = r && r->state == ENGINE_PREFILLED && !r->cancelled ? transfer_size(e, r->token_count) : 0;
    pthread_mutex_unlock(&e->lock);
    return size;
}

gv_status engine_export(engine *e, engine_handle handle, void *bytes, size_t capacity, gv_error *error)
{
    // While this is held no step can end the request or give its pages to another one.
    turns_take(&e->working);
    cuCtxSetCurrent(e->device.context);
    gv_status status = GV_OK;
    piece pieces[PIECES];
    unsigned char *to = bytes;
    int count = 0;
    pthread_mutex_lock(&e->lock);
    const request *r = engine_find(e, handle);
    size_t size = r && r->state == ENGINE_PREFILLED && !r->cancelled ? transfer_size(e, r->token_count) : 0;
    if (!size) {
        status = gv_fail(error, GV_ERR_USAGE, "the request is not prefilled");
    } else if (capacity < size) {
        status = gv_fail(error, GV_ERR_LIMIT, "the export needs %zu bytes and there is room for %zu", size, capacity);
    } else {
        header h = {.version = TRANSFER_VERSION,
                    .key_page = (uint32_t)e->cache.key_page,
                    .hidden = HIDDEN,
                    .layers = LAYERS,
                    .context = MAX_CONTEXT,
                    .prompt_count = (uint32_t)r->prompt_count,
                    .token_count = (uint32_t)r->token_count,
                    .size = size};
        memcpy(h.magic, magic, sizeof magic);
        memcpy(to, &h, sizeof h);
        for (int i = 0; i < r->token_count; i++)
            memcpy(to + sizeof h + 4 * i, &(int32_t){r->tokens[i]}, 4);
        count = list_pieces(e, r, used_pages(r->token_count), pieces);
        to += sizeof h + (size_t)r->token_count * 4;
    }
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < count; i++) {
        CALL(&e->device, cuMemcpyDtoHAsync(to, pieces[i].address, pieces[i].bytes, e->transfer));
        to += pieces[i].bytes;
    }
    CALL(&e->device, cuStreamSynchronize(e->transfer));
    if (status == GV_OK && e->device.error.status != GV_OK)
        status = gv_fail(error, GV_ERR_IO, "%s", e->device.error.text);
    turns_give(&e->working);
    if (status == GV_OK) {
        uint64_t sum = checksum((unsigned char *)bytes + sizeof(header), size - sizeof(header));
        memcpy((unsigned char *)bytes + offsetof(header, checksum), &sum, sizeof sum);
    }
    return status;
}

// ---- Receiving ----

// Checks everything that does not depend on the engine's state.
static gv_status check(const engine *e, const unsigned char *bytes, size_t size, header *h, int *tokens,
                       gv_error *error)
{
    if (size < sizeof *h || memcmp(bytes, magic, sizeof magic))
        return gv_fail(error, GV_ERR_FORMAT, "these bytes are not an exported request");
    memcpy(h, bytes, sizeof *h);
    if (h->version != TRANSFER_VERSION || h->hidden != HIDDEN || h->layers != LAYERS || h->context != MAX_CONTEXT)
        return gv_fail(error, GV_ERR_USAGE,
                       "the request comes from a build with another model: use one build for both");
    if (h->key_page != e->cache.key_page)
        return gv_fail(error, GV_ERR_USAGE,
                       "the request has keys in another format: start both engines with the same "
                       "--keys");
    if (h->prompt_count < 1 || h->prompt_count >= MAX_CONTEXT || h->token_count != h->prompt_count + 1)
        return gv_fail(error, GV_ERR_FORMAT, "the exported request has impossible lengths");
    if (h->size != size || size != transfer_size(e, (int)h->token_count))
        return gv_fail(error, GV_ERR_FORMAT, "the exported request has %zu bytes and should have %zu: it is cut", size,
                       transfer_size(e, (int)h->token_count));
    if (h->checksum != checksum(bytes + sizeof *h, size - sizeof *h))
        return gv_fail(error, GV_ERR_FORMAT, "the exported request's checksum is wrong: it was damaged on its way");
    for (uint32_t i = 0; i < h->token_count; i++) {
        int32_t token;
        memcpy(&token, bytes + sizeof *h + 4 * i, 4);
        tokens[i] = token;
        if (!vocabulary_text(token) || (i + 1 == h->token_count && token == TOKEN_END))
            return gv_fail(error, GV_ERR_FORMAT, "the exported request has a token where it cannot be");
    }
    return GV_OK;
}

// The late-transfer fault. Remote writes know addresses and not requests: a transfer is repeated, as after a lost
// acknowledgement, when its request has ended and another one has its first page. `lock` is held.
static void repeat_transfer(engine *e)
{
    bool has_new_owner = false;
    for (const request *r = e->requests; r && e->late.page_count; r = r->next)
        has_new_owner =
            has_new_owner || (r->handle != e->late.handle && r->page_count && r->pages[0] == e->late.pages[0]);
    if (!has_new_owner)
        return;
    for (int i = 0; i < e->late.page_count; i++)
        memcpy((void *)(uintptr_t)(e->cache.keys[0] + (size_t)e->late.pages[i] * e->cache.key_page),
               e->late.keys + (size_t)i * e->cache.key_page, e->cache.key_page);
    e->late.page_count = 0;
}

static void remember_transfer(engine *e, const request *r)
{
    if (e->late.page_count)
        return;
    if (!e->late.keys)
        e->late.keys = gv_calloc(MAX_PAGES, e->cache.key_page);
    if (!e->late.keys)
        return;
    e->late.handle = r->handle;
    e->late.page_count = used_pages(r->token_count);
    for (int i = 0; i < e->late.page_count; i++) {
        e->late.pages[i] = r->pages[i];
        memcpy(e->late.keys + (size_t)i * e->cache.key_page,
               (const void *)(uintptr_t)(e->cache.keys[0] + (size_t)r->pages[i] * e->cache.key_page),
               e->cache.key_page);
    }
}

gv_status engine_import(engine *e, const void *bytes, size_t size, const engine_request *wanted, engine_handle *handle,
                        gv_error *error)
{
    header h;
    int tokens[MAX_CONTEXT];
    if (wanted->max_tokens < 1)
        return gv_fail(error, GV_ERR_USAGE, "max_tokens is %d; it must be at least 1", wanted->max_tokens);
    gv_status status = check(e, bytes, size, &h, tokens, error);
    if (status != GV_OK)
        return status;
    int length = (int)h.prompt_count + (wanted->max_tokens < MAX_CONTEXT ? wanted->max_tokens : MAX_CONTEXT);
    length = length < MAX_CONTEXT ? length : MAX_CONTEXT;
    if ((length + PAGE - 1) / PAGE > e->config.pages)
        return gv_fail(error, GV_ERR_LIMIT, "the request can never fit: it may need %d pages and the engine has %d",
                       (length + PAGE - 1) / PAGE, e->config.pages);
    turns_take(&e->working);
    cuCtxSetCurrent(e->device.context);
    piece pieces[PIECES];
    int count = 0;
    pthread_mutex_lock(&e->lock);
    request *r = NULL;
    if (e->error.status != GV_OK)
        status = gv_fail(error, GV_ERR_IO, "the engine has failed: %s", e->error.text);
    else if (!cache_has(e, length))
        status = gv_fail(error, GV_ERR_LIMIT,
                         "there is no row or there are too few pages free at the moment: try again "
                         "later");
    else if (!(r = engine_add(e, wanted, tokens, (int)h.token_count)))
        status = gv_fail(error, GV_ERR_MEMORY, "no memory for the request");
    if (r) {
        r->prompt_count = (int)h.prompt_count;
        r->prefill_only = false;
        r->state = ENGINE_RUNNING; // no step can see it before its pages are there
        cache_take(e, length, &r->row, r->pages, &r->page_count);
        count = list_pieces(e, r, used_pages(r->token_count), pieces);
        *handle = r->handle;
    }
    pthread_mutex_unlock(&e->lock);
    const unsigned char *from = (const unsigned char *)bytes + sizeof h + (size_t)h.token_count * 4;
    watched_transfer transfer = {0};
    if (r)
        watch_transfer_begin(e, r->pages, used_pages(r->token_count), &transfer);
    for (int i = 0; i < count; i++) {
        CALL(&e->device, cuMemcpyHtoDAsync(pieces[i].address, from, pieces[i].bytes, e->transfer));
        from += pieces[i].bytes;
    }
    CALL(&e->device, cuStreamSynchronize(e->transfer));
    watch_transfer_end(&transfer);
    // No step has to come between this import and the next one: the row of the table, which goes up from pinned memory,
    // may be given back here and written for another request.
    CALL(&e->device, cuStreamSynchronize(e->schedule));
    pthread_mutex_lock(&e->lock);
    if (r && e->device.error.status != GV_OK) {
        status = gv_fail(error, GV_ERR_IO, "%s", e->device.error.text);
        engine_end(e, r, ENGINE_ENDED_FAILED);
        r->released = true;
    } else if (r) {
        if (HAS_FAULT(e, LATE_TRANSFER)) {
            repeat_transfer(e);
            remember_transfer(e, r);
        }
        r->news = true;
        if (r->max_tokens == 1 || r->token_count >= MAX_CONTEXT)
            engine_end(e, r, ENGINE_ENDED_LENGTH);
        pthread_cond_broadcast(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
    turns_give(&e->working);
    return status;
}
