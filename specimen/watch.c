// What the engine tells gravel, when it runs under `gravel run --canary`: which memory is made of pages, which of them
// a step stores to, and which ones a transfer writes. Without gravel every call does nothing.
#include "gravel.h"
#include "specimen/parts.h"

#include <stdio.h>

static uint64_t group_of(const engine *e)
{
    return (uint64_t)(uintptr_t)e;
}

static void declare(engine *e, gravel_region *region, const char *name, int layer, CUdeviceptr base, size_t page)
{
    char numbered[32];
    snprintf(numbered, sizeof numbered, "%s %d", name, layer);
    *region = gravel_region_begin(numbered, base, ((size_t)e->cache.pages + 1) * page, page);
    gravel_region_group(*region, group_of(e));
}

void watch_begin(engine *e)
{
    const cache *c = &e->cache;
    for (int layer = 0; layer < LAYERS; layer++)
        declare(e, &e->watched.window[layer], "window", layer, c->window[layer], PAGE * HEAD_DIM * 2);
    for (int layer = 0; layer < SPARSE_LAYERS; layer++) {
        declare(e, &e->watched.core[layer], "entries", layer + 1, c->core[layer], PAGE_ENTRIES * HEAD_DIM * 2);
        declare(e, &e->watched.keys[layer], "index keys", layer + 1, c->keys[layer], c->key_page);
    }
}

void watch_end(engine *e)
{
    for (int layer = 0; layer < LAYERS; layer++)
        gravel_region_end(e->watched.window[layer]);
    for (int layer = 0; layer < SPARSE_LAYERS; layer++) {
        gravel_region_end(e->watched.core[layer]);
        gravel_region_end(e->watched.keys[layer]);
    }
}

void watch_rows(engine *e, int count)
{
    const struct staging *host = e->inputs.host;
    int64_t complete[MAX_CONTEXT], reserved = 0;
    size_t completes = 0;
    for (int i = 0; i < count; i++)
        if (host->lengths[i] % RATIO == 0)
            complete[completes++] = host->locations[i];
    for (int layer = 0; layer < LAYERS; layer++) {
        // Every row stores its own token's keys, and a padded one to the reserved page.
        gravel_allow_index(e->watched.window[layer], e->inputs.locations, (size_t)count, 8, PAGE);
        gravel_allow_pages(e->watched.window[layer], &reserved, 1);
    }
    for (int layer = 0; layer < SPARSE_LAYERS; layer++) {
        // An entry and its key are stored with the last of their four tokens.
        gravel_allow_slots(e->watched.core[layer], complete, completes, PAGE);
        gravel_allow_slots(e->watched.keys[layer], complete, completes, PAGE);
        if (HAS_FAULT(e, DECOY_PAD))
            gravel_allow_pages(e->watched.keys[layer], &reserved, 1);
    }
}

void watch_step(engine *e)
{
    gravel_step_of(group_of(e), e->main);
}

void watch_transfer_begin(engine *e, const int *pages, int page_count, watched_transfer *t)
{
    int64_t numbers[MAX_PAGES];
    for (int i = 0; i < page_count; i++)
        numbers[i] = pages[i];
    for (int layer = 0; layer < LAYERS; layer++)
        t->window[layer] = gravel_transfer_begin(e->watched.window[layer], numbers, (size_t)page_count);
    for (int layer = 0; layer < SPARSE_LAYERS; layer++) {
        t->core[layer] = gravel_transfer_begin(e->watched.core[layer], numbers, (size_t)page_count);
        t->keys[layer] = gravel_transfer_begin(e->watched.keys[layer], numbers, (size_t)page_count);
    }
}

void watch_transfer_end(const watched_transfer *t)
{
    for (int layer = 0; layer < LAYERS; layer++)
        gravel_transfer_end(t->window[layer]);
    for (int layer = 0; layer < SPARSE_LAYERS; layer++) {
        gravel_transfer_end(t->core[layer]);
        gravel_transfer_end(t->keys[layer]);
    }
}
