// The made model: how far its answers are from being others, what is in the cache after a prompt, that batches change
// nothing, and that the blocks that collide in the incident are dealt out as docs/specimen.md says.
#include "specimen/parts.h"
#include "specimen/sessions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ANSWER = 32 };

static engine *make(enum engine_keys keys, bool graph, int batch, enum engine_repair repair)
{
    engine_config config;
    engine_config_default(&config);
    config.keys = keys;
    config.graph = graph;
    config.batch_limit = batch;
    config.repair = repair;
    config.kernels = GV_SPECIMEN_KERNELS;
    engine *e = NULL;
    gv_error error = {0};
    if (engine_create(&e, &config, &error) != GV_OK)
        fail_msg("%s", error.text);
    return e;
}

static engine_handle submit(engine *e, session *s, int number)
{
    assert_true(session_begin(s, 11, number) && session_ask(s));
    engine_request wanted = {.prompt = s->history.items, .prompt_count = (int)s->history.count, .max_tokens = ANSWER};
    engine_handle handle = 0;
    assert_int_equal(engine_submit(e, &wanted, &handle, NULL), GV_OK);
    return handle;
}

// How much the best logit of a row of the last step is above the second.
static float margin(engine *e, int row)
{
    int columns = e->weights.columns;
    float *logits = malloc((size_t)columns * sizeof *logits), best = -1e30f, second = -1e30f;
    assert_non_null(logits);
    CALL(&e->device, cuMemcpyDtoH(logits, e->inputs.logits + (size_t)row * (size_t)columns * 4, (size_t)columns * 4));
    for (int i = 0; i < columns; i++) {
        if (logits[i] > best) {
            second = best;
            best = logits[i];
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    free(logits);
    return best - second;
}

static void margins_are_wide(void **state)
{
    for (int keys = 0; keys < 2; keys++) {
        engine *e = make((enum engine_keys)keys, false, 1, ENGINE_REPAIR_KEEP);
        float least = 1e30f;
        for (int i = 0; i < 24; i++) {
            session s;
            engine_handle handle = submit(e, &s, i);
            bool worked = true;
            while (worked) {
                assert_int_equal(engine_step(e, &worked, NULL), GV_OK);
                float here = worked ? margin(e, 0) : least;
                least = here < least ? here : least;
            }
            engine_release(e, handle);
            session_end(&s);
        }
        // Every right token leads by about 8; rounding moves a logit by less than 0.5.
        assert_true(least > 6);
        engine_destroy(e);
    }
}

// The logits of a request do not depend on who else is in the batch, to the last bit.
static void batches_change_nothing(void **state)
{
    enum { BATCH = 4 };
    engine *alone = make(ENGINE_KEYS_BF16, false, 1, ENGINE_REPAIR_KEEP);
    engine *together = make(ENGINE_KEYS_BF16, true, BATCH, ENGINE_REPAIR_KEEP);
    int columns = alone->weights.columns;
    size_t bytes = (size_t)columns * 4;
    float *first = malloc(bytes), *second = malloc(bytes);
    assert_true(first && second);
    session s[BATCH];
    engine_handle handles[BATCH];
    for (int i = 0; i < BATCH; i++)
        handles[i] = submit(together, &s[i], 40 + i);
    for (int i = 0; i < BATCH; i++)
        assert_int_equal(engine_step(together, NULL, NULL), GV_OK);
    // Row 0 has made BATCH + 1 tokens by now.
    session copy;
    engine_handle handle = submit(alone, &copy, 40);
    for (int i = 0; i < BATCH; i++)
        assert_int_equal(engine_step(alone, NULL, NULL), GV_OK);
    assert_int_equal(cuMemcpyDtoH(first, together->inputs.logits, bytes), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH(second, alone->inputs.logits, bytes), CUDA_SUCCESS);
    assert_memory_equal(first, second, bytes);
    free(first);
    free(second);
    for (int i = 0; i < BATCH; i++) {
        engine_release(together, handles[i]);
        session_end(&s[i]);
    }
    engine_release(alone, handle);
    session_end(&copy);
    engine_destroy(alone);
    engine_destroy(together);
}

static size_t nonzero(const unsigned char *bytes, size_t count)
{
    size_t result = 0;
    for (size_t i = 0; i < count; i++)
        result += bytes[i] != 0;
    return result;
}

// Entries lie where the layout says, in both formats: as many as there are fours of tokens, and nothing behind them.
static void keys_lie_in_pages(void **state)
{
    for (int keys = 0; keys < 2; keys++) {
        engine *e = make((enum engine_keys)keys, false, 1, ENGINE_REPAIR_KEEP);
        session s;
        engine_handle handle = submit(e, &s, 60);
        assert_int_equal(engine_step(e, NULL, NULL), GV_OK);
        int entries = (int)s.history.count / RATIO;
        assert_true(entries > TOP_K && entries < PAGE_ENTRIES);
        size_t size = e->cache.key_page;
        assert_int_equal(size, keys ? 8448 : 16384);
        unsigned char *page = malloc(size);
        assert_non_null(page);
        assert_int_equal(cuMemcpyDtoH(page, e->cache.keys[0] + size, size), CUDA_SUCCESS); // page 1
        size_t entry = keys ? KEY_BYTES_FP8 : KEY_BYTES_BF16;
        assert_true(nonzero(page, (size_t)entries * entry) > (size_t)entries * entry / 2);
        // The decoded token may have completed one more.
        assert_int_equal(nonzero(page + (size_t)(entries + 1) * entry, (PAGE_ENTRIES - (size_t)entries - 1) * entry),
                         0);
        if (keys) {
            float scales[PAGE_ENTRIES];
            memcpy(scales, page + PAGE_ENTRIES * KEY_BYTES_FP8, sizeof scales);
            for (int i = 0; i < PAGE_ENTRIES; i++)
                if (i < entries || i > entries)
                    assert_true(i < entries ? scales[i] > 0 && scales[i] < 0.1f : scales[i] == 0);
        }
        free(page);
        engine_release(e, handle);
        session_end(&s);
        engine_destroy(e);
    }
}

// ---- The incident, as the allocator sees it ----

// Follows the blocks that a decode step takes in the main stream.
struct watch {
    const engine *e;
    size_t rows, queries; // queries: bytes of the index's queries
    size_t last_taken;    // bytes
    const block *taken;   // the index's queries,
    const block *given;   // and after they were given back
    int layers;           // times that this happened
    int collisions;       // times that the attention's queries got the block
};

static void watch_blocks(void *user, enum allocator_event event, const block *b, size_t requested)
{
    struct watch *w = user;
    if (b->stream != w->e->main)
        return;
    if (event == ALLOCATOR_GIVEN && b == w->taken) {
        w->given = b;
        w->taken = NULL;
        w->layers++;
    }
    if (event != ALLOCATOR_TAKEN)
        return;
    if (requested == w->queries && w->last_taken == w->rows * HIDDEN * 2) {
        w->taken = b;
    } else if (w->given && requested == w->rows * QUERY * 2) {
        w->collisions += b == w->given;
        w->given = NULL;
    }
    w->last_taken = requested;
}

static void the_collision_is_a_matter_of_sizes(void **state)
{
    const struct {
        enum engine_keys keys;
        int batch;
        bool collides;
    } cases[] = {
        {ENGINE_KEYS_BF16, 1, false}, {ENGINE_KEYS_BF16, 2, true}, {ENGINE_KEYS_BF16, 3, true},
        {ENGINE_KEYS_BF16, 8, true},  {ENGINE_KEYS_FP8, 1, false}, {ENGINE_KEYS_FP8, 2, false},
        {ENGINE_KEYS_FP8, 3, false},  {ENGINE_KEYS_FP8, 8, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        engine *e = make(cases[i].keys, false, cases[i].batch, ENGINE_REPAIR_NONE);
        CALL(&e->device, cuMemsetD32(e->inputs.slots, 0, 8));
        CALL(&e->device, cuCtxSynchronize());
        struct watch w = {.e = e, .rows = (size_t)cases[i].batch};
        w.queries = (size_t)cases[i].batch * INDEX_HEADS * (cases[i].keys ? KEY_BYTES_FP8 : KEY_BYTES_BF16);
        allocator_listen(e->allocator, watch_blocks, &w);
        forward(e, &(pass){.rows = cases[i].batch, .longest = 1, .overlap = true});
        CALL(&e->device, cuStreamSynchronize(e->main));
        allocator_listen(e->allocator, NULL, NULL);
        assert_int_equal(e->device.error.status, GV_OK);
        assert_int_equal(w.layers, SPARSE_LAYERS);
        assert_int_equal(w.collisions, cases[i].collides ? SPARSE_LAYERS : 0);
        engine_destroy(e);
    }
}

// All graphs lie in one pool, and the smaller ones add nothing to it.
static void buckets_share_one_pool(void **state)
{
    engine *one = make(ENGINE_KEYS_BF16, true, 8, ENGINE_REPAIR_KEEP);
    assert_int_equal(one->graphs.count, 4);
    for (int i = 0; i + 1 < one->graphs.count; i++)
        assert_true(one->graphs.buckets[i].rows < one->graphs.buckets[i + 1].rows);
    assert_ptr_equal(graphs_bucket(one, 3), &one->graphs.buckets[2]); // the smallest that fits
    assert_null(graphs_bucket(one, 9));
    size_t all = allocator_count(one->allocator).reserved;
    engine_destroy(one);

    engine_config config;
    engine_config_default(&config);
    config.repair = ENGINE_REPAIR_KEEP;
    config.kernels = GV_SPECIMEN_KERNELS;
    config.buckets[0] = 8;
    config.bucket_count = 1;
    engine *other = NULL;
    assert_int_equal(engine_create(&other, &config, NULL), GV_OK);
    assert_int_equal(allocator_count(other->allocator).reserved, all);
    engine_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(margins_are_wide),       cmocka_unit_test(batches_change_nothing),
        cmocka_unit_test(keys_lie_in_pages),      cmocka_unit_test(the_collision_is_a_matter_of_sizes),
        cmocka_unit_test(buckets_share_one_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
