// Pages and rows of the cache. Page 0 and row 0 are reserved for padded rows; freed pages keep what was in them.
#include "specimen/parts.h"

#include "base/memory.h"

#include <string.h>

// Device memory that lives as long as the engine, zeroed.
static CUdeviceptr lasting(engine *e, size_t bytes)
{
    CUdeviceptr address = 0;
    if (CALL(&e->device, cuMemAlloc(&address, bytes)))
        CALL(&e->device, cuMemsetD8Async(address, 0, bytes, e->main));
    return address;
}

// Index keys; where a transfer is to write them behind the device's back, in memory that the host can write too.
static CUdeviceptr key_pool(engine *e, size_t bytes)
{
    CUdeviceptr address = 0;
    if (!HAS_FAULT(e, LATE_TRANSFER))
        return lasting(e, bytes);
    if (CALL(&e->device, cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL)))
        CALL(&e->device, cuMemsetD8Async(address, 0, bytes, e->main));
    return address;
}

void cache_create(engine *e)
{
    cache *c = &e->cache;
    c->pages = e->config.pages;
    c->rows = e->config.rows;
    c->key_page = e->config.keys == ENGINE_KEYS_FP8 ? KEY_PAGE_FP8 : KEY_PAGE_BF16;
    c->free_pages = gv_calloc((size_t)c->pages, sizeof *c->free_pages);
    c->free_rows = gv_calloc((size_t)c->rows, sizeof *c->free_rows);
    if (!c->free_pages || !c->free_rows) {
        gv_fail(&e->device.error, GV_ERR_MEMORY, "no memory for the cache's lists");
        return;
    }
    while (c->free_page_count < c->pages) {
        c->free_pages[c->free_page_count] = c->free_page_count + 1;
        c->free_page_count++;
    }
    // The lowest rows are taken first.
    while (c->free_row_count < c->rows) {
        c->free_rows[c->free_row_count] = c->rows - c->free_row_count;
        c->free_row_count++;
    }
    size_t pages = (size_t)c->pages + 1, rows = (size_t)c->rows + 1;
    for (int layer = 0; layer < LAYERS; layer++)
        c->window[layer] = lasting(e, pages * PAGE * HEAD_DIM * 2);
    for (int layer = 0; layer < SPARSE_LAYERS; layer++) {
        c->core[layer] = lasting(e, pages * PAGE_ENTRIES * HEAD_DIM * 2);
        c->keys[layer] = key_pool(e, pages * c->key_page);
        c->core_ring[layer] = lasting(e, rows * COMPRESSED * CORE_KV * 4);
        c->index_ring[layer] = lasting(e, rows * COMPRESSED * INDEX_KV * 4);
    }
    c->table = lasting(e, rows * MAX_CONTEXT * 4);
    void *pinned = NULL;
    if (CALL(&e->device, cuMemHostAlloc(&pinned, rows * MAX_CONTEXT * 4, 0)))
        memset(pinned, 0, rows * MAX_CONTEXT * 4);
    c->table_host = pinned;
}

void cache_destroy(engine *e)
{
    cache *c = &e->cache;
    gv_free(c->free_pages);
    gv_free(c->free_rows);
    CUdeviceptr memory[LAYERS + 4 * SPARSE_LAYERS + 1] = {c->table};
    memcpy(memory + 1, c->window, sizeof c->window);
    memcpy(memory + 1 + LAYERS, c->core, sizeof c->core);
    memcpy(memory + 1 + LAYERS + SPARSE_LAYERS, c->keys, sizeof c->keys);
    memcpy(memory + 1 + LAYERS + 2 * SPARSE_LAYERS, c->core_ring, sizeof c->core_ring);
    memcpy(memory + 1 + LAYERS + 3 * SPARSE_LAYERS, c->index_ring, sizeof c->index_ring);
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        if (memory[i])
            cuMemFree(memory[i]);
    if (c->table_host)
        cuMemFreeHost(c->table_host);
}

void cache_publish(engine *e, int row, int page_count)
{
    cache *c = &e->cache;
    CUdeviceptr to = c->table + (size_t)row * MAX_CONTEXT * 4;
    const int *from = c->table_host + (size_t)row * MAX_CONTEXT;
    CALL(&e->device, cuMemsetD32Async(to, 0, MAX_CONTEXT, e->schedule));
    CALL(&e->device, cuMemcpyHtoDAsync(to, from, (size_t)page_count * PAGE * 4, e->schedule));
}

bool cache_has(const engine *e, int tokens)
{
    return e->cache.free_row_count && e->cache.free_page_count >= (tokens + PAGE - 1) / PAGE;
}

void cache_take(engine *e, int tokens, int *row, int *pages, int *page_count)
{
    cache *c = &e->cache;
    int needed = (tokens + PAGE - 1) / PAGE;
    *row = c->free_rows[--c->free_row_count];
    *page_count = needed;
    int *own = c->table_host + (size_t)*row * MAX_CONTEXT;
    memset(own, 0, MAX_CONTEXT * sizeof *own);
    for (int i = 0; i < needed; i++) {
        pages[i] = c->free_pages[c->first_free_page];
        c->first_free_page = (c->first_free_page + 1) % c->pages;
        c->free_page_count--;
        for (int k = 0; k < PAGE; k++)
            own[i * PAGE + k] = pages[i] * PAGE + k;
    }
    // The pass under way reads the table at its beginning; the next one waits for what is written now.
    CALL(&e->device, cuStreamWaitEvent(e->schedule, e->table_read, 0));
    cache_publish(e, *row, needed);
    device_order(&e->device, e->schedule, e->main);
}

void cache_give(engine *e, int row, const int *pages, int page_count)
{
    cache *c = &e->cache;
    if (!page_count)
        return;
    c->free_rows[c->free_row_count++] = row;
    for (int i = 0; i < page_count; i++)
        c->free_pages[(c->first_free_page + c->free_page_count++) % c->pages] = pages[i];
}
