// A copy of memory that is kept: brought up to date, put back with a journal, compared, searched for addresses. The
// kernels too, on the software driver, where device memory is the process's own.
#include "record/shadow.h"

#include "base/memory.h"

enum { ARENA = 300000, GROUP = 4096, LARGE = 20 << 20 };
#include "record/test_arena.h"

static gv_shadow *shadow;
static const gv_shadow_regions no_regions;

static int open_shadow(void **state)
{
    gv_error error = {0};
    ok(gv_shadow_open(true, &shadow, &error), &error);
    return 0;
}

static int close_shadow(void **state)
{
    gv_shadow_close(shadow);
    return 0;
}

// Of all lengths and alignments: within a group, at its edges, over many.
static gv_range_set random_ranges(void)
{
    gv_range_set set = {0};
    for (size_t offset = draw(2) ? draw(6000) : GROUP - at % GROUP; offset + 2 < ARENA;) {
        size_t length = 1 + draw(draw(3) ? 300 : 30000);
        if (draw(3) == 0) // ends where a group does
            length += GROUP - (at + offset + length) % GROUP;
        length = length < ARENA - offset ? length : ARENA - offset;
        assert_int_equal(gv_range_set_add(&set, at + offset, at + offset + length, NULL), GV_OK);
        offset += length + 1 + draw(draw(2) ? 40 : 9000);
    }
    gv_range_set_settle(&set);
    return set;
}

static void fill(void)
{
    for (size_t i = 0; i < ARENA; i++)
        base[i] = (unsigned char)draw(256);
}

static void scribble(void)
{
    for (unsigned writes = draw(40); writes; writes--) {
        size_t offset = draw(ARENA), length = 1 + draw(draw(3) ? 30 : 9000);
        for (size_t i = offset; i < offset + length && i < ARENA; i++)
            base[i] = (unsigned char)draw(256);
    }
}

static gv_shadow_news take(bool search)
{
    gv_error error = {0};
    gv_shadow_news news;
    ok(gv_shadow_take(shadow, search, NULL, &error), &error);
    ok(gv_shadow_taken(shadow, &news, NULL, &error), &error);
    return news;
}

// Groups of the ranges in which `a` and `b` differ, as far as they belong to the ranges.
static gv_range_set groups_between(const gv_range_set *ranges, const unsigned char *a, const unsigned char *b)
{
    gv_range_set set = {0};
    for (size_t i = 0; i < ranges->count; i++)
        for (uint64_t start = ranges->ranges[i].start, end; start < ranges->ranges[i].end; start = end) {
            end = (start / GROUP + 1) * GROUP;
            end = end < ranges->ranges[i].end ? end : ranges->ranges[i].end;
            if (memcmp(a + (start - at), b + (start - at), end - start))
                assert_int_equal(gv_range_set_add(&set, start, end, NULL), GV_OK);
        }
    gv_range_set_settle(&set);
    return set;
}

static void assert_equal_sets(const gv_range_set *a, const gv_range_set *b)
{
    gv_range_set_settle(a);
    gv_range_set_settle(b);
    assert_int_equal(a->count, b->count);
    if (a->count)
        assert_memory_equal(a->ranges, b->ranges, a->count * sizeof *a->ranges);
}

// What an image has of the set is what `expected` has there.
static void assert_image(const gv_image *image, const gv_range_set *set, const unsigned char *expected)
{
    static unsigned char bytes[ARENA];
    gv_error error = {0};
    for (size_t i = 0; i < set->count; i++) {
        gv_range range = set->ranges[i];
        ok(gv_image_read(compare, image, range.start, range.end, bytes, &error), &error);
        assert_memory_equal(bytes, expected + (range.start - at), range.end - range.start);
    }
}

static void assert_memory(const gv_range_set *within, const unsigned char *inside, const unsigned char *outside)
{
    static unsigned char expected[ARENA];
    memcpy(expected, outside, ARENA);
    for (size_t i = 0; i < within->count; i++)
        memcpy(expected + (within->ranges[i].start - at), inside + (within->ranges[i].start - at),
               within->ranges[i].end - within->ranges[i].start);
    assert_memory_equal(base, expected, ARENA);
}

static void test_a_launch_is_put_back_and_compared(void **state)
{
    for (int round = 0; round < 30; round++) {
        gv_error error = {0};
        gv_range_set ranges = random_ranges(), expected, changed = {0}, differ = {0};
        gv_image *saved = NULL, *result = NULL;
        bool same = false;
        fill();
        memcpy(before, base, ARENA);
        ok(gv_shadow_lay_out(shadow, &ranges, &no_regions, NULL, &error), &error);
        // Twice: the second time nothing is new.
        assert_true(take(false).copied_bytes > 0);
        assert_int_equal(take(false).copied_bytes, 0);
        ok(gv_shadow_before(shadow, &saved, &error), &error);
        assert_image(saved, &ranges, before);
        scribble();
        memcpy(now, base, ARENA);
        expected = groups_between(&ranges, before, now);
        ok(gv_shadow_rewind(shadow, NULL, &changed, &error), &error);
        assert_equal_sets(&changed, &expected);
        assert_memory(&ranges, before, now);
        ok(gv_shadow_after(shadow, &result, &error), &error);
        assert_image(result, &changed, now);
        assert_image(saved, &ranges, before);
        // The other kernels take the copies as they take their own.
        ok(gv_image_changed(compare, result, NULL, false, &differ, &error), &error);
        assert_true(!expected.count == !differ.count);
        // The same once more; and otherwise by one byte.
        memcpy(base, now, ARENA);
        ok(gv_shadow_compare(shadow, NULL, &same, &error), &error);
        assert_true(same);
        for (int i = 0; i < 8; i++) {
            size_t byte = draw(ARENA);
            base[byte] ^= (unsigned char)(1u << draw(8));
            ok(gv_shadow_compare(shadow, NULL, &same, &error), &error);
            assert_int_equal(same, !gv_range_set_contains(&ranges, at + byte));
            base[byte] = now[byte];
        }
        ok(gv_image_restore(compare, saved, &changed, &error), &error);
        assert_memory(&ranges, before, now);
        ok(gv_shadow_compare(shadow, NULL, &same, &error), &error);
        assert_int_equal(same, !expected.count);
        ok(gv_shadow_undo(shadow, NULL, &error), &error);
        assert_memory_equal(base, now, ARENA);
        gv_image_free(saved, NULL);
        gv_image_free(result, NULL);
        // The next launch begins with what this one has left.
        gv_range_set_free(&changed);
        take(false);
        ok(gv_shadow_before(shadow, &saved, &error), &error);
        assert_image(saved, &ranges, now);
        ok(gv_shadow_rewind(shadow, NULL, &changed, &error), &error);
        assert_int_equal(changed.count, 0);
        gv_image_free(saved, NULL);
        gv_range_set *sets[] = {&ranges, &expected, &changed, &differ};
        for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) // NOLINT(bugprone-sizeof-expression): they are pointers
            gv_range_set_free(sets[i]);
    }
}

static void test_what_was_kept_is_known_again(void **state)
{
    gv_error error = {0};
    gv_range_set ranges = {0}, others = {0};
    fill();
    assert_int_equal(gv_range_set_add(&ranges, at + 100, at + 50000, NULL), GV_OK);
    assert_int_equal(gv_range_set_add(&others, at + 100, at + 50001, NULL), GV_OK);
    ok(gv_shadow_lay_out(shadow, &ranges, &no_regions, NULL, &error), &error);
    take(false);
    base[20000] ^= 1;
    base[60000] ^= 1;
    ok(gv_shadow_lay_out(shadow, &ranges, &no_regions, NULL, &error), &error);
    assert_int_equal(take(false).copied_bytes, GROUP);
    // Other memory is copied anew, in whole.
    ok(gv_shadow_lay_out(shadow, &others, &no_regions, NULL, &error), &error);
    assert_true(take(false).copied_bytes >= 50001 - 100);
    // So is memory of which the copy was given back.
    gv_shadow_trim(shadow);
    assert_int_equal(gv_shadow_bytes(shadow), 0);
    ok(gv_shadow_lay_out(shadow, &others, &no_regions, NULL, &error), &error);
    assert_true(take(false).copied_bytes >= 50001 - 100);
    gv_range_set_free(&ranges);
    gv_range_set_free(&others);
}

static void test_nothing_can_be_kept_too(void **state)
{
    gv_error error = {0};
    gv_range_set nothing = {0}, changed = {0};
    bool same = false;
    ok(gv_shadow_lay_out(shadow, &nothing, &no_regions, NULL, &error), &error);
    assert_int_equal(take(true).copied_bytes, 0);
    ok(gv_shadow_rewind(shadow, NULL, &changed, &error), &error);
    ok(gv_shadow_compare(shadow, NULL, &same, &error), &error);
    assert_int_equal(changed.count, 0);
    assert_true(same);
}

// More changes than the journal has room for at first.
static void test_the_journal_grows(void **state)
{
    gv_error error = {0};
    gv_range_set ranges = {0}, changed = {0};
    CUdeviceptr memory;
    unsigned char *large, *copy = gv_malloc(LARGE);
    bool same = false;
    assert_non_null(copy);
    assert_int_equal(cuMemAlloc(&memory, LARGE), CUDA_SUCCESS);
    large = (unsigned char *)(uintptr_t)memory;
    for (size_t i = 0; i < LARGE; i++)
        large[i] = (unsigned char)(i >> 12);
    // Neither the first nor the last group is whole.
    assert_int_equal(gv_range_set_add(&ranges, memory + 5, memory + LARGE - 7, NULL), GV_OK);
    uint64_t cost = gv_shadow_cost(shadow, &ranges);
    ok(gv_shadow_lay_out(shadow, &ranges, &no_regions, NULL, &error), &error);
    assert_int_equal(gv_shadow_cost(shadow, &ranges), 0);
    assert_in_range(gv_shadow_bytes(shadow), cost, cost + 65536);
    take(false);
    for (size_t i = 0; i < LARGE; i++)
        large[i] ^= 0x5a;
    memcpy(copy, large, LARGE);
    assert_int_equal(gv_shadow_rewind(shadow, NULL, &changed, &error), GV_ERR_LIMIT);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    assert_memory_equal(large, copy, LARGE);
    assert_int_equal(changed.count, 0);
    // Memory for just what is missing: the rest of the places, each with its hash and number.
    uint64_t bytes = gv_shadow_bytes(shadow), groups = (memory + LARGE - 8) / GROUP - (memory + 5) / GROUP + 1,
             missing = (groups - 4096) * (GROUP + 12ull);
    assert_int_equal(gv_shadow_grow(shadow, missing - 1, NULL, &error), GV_ERR_MEMORY);
    assert_non_null(strstr(error.text, "do not fit"));
    assert_int_equal(gv_shadow_bytes(shadow), bytes);
    ok(gv_shadow_grow(shadow, missing, NULL, &error), &error);
    assert_int_equal(gv_shadow_bytes(shadow), bytes + missing);
    ok(gv_shadow_rewind(shadow, NULL, &changed, &error), &error);
    assert_equal_sets(&changed, &ranges);
    for (size_t i = 5; i < LARGE - 7; i++)
        if (large[i] != (unsigned char)(i >> 12))
            fail_msg("byte %zu is %u", i, large[i]);
    assert_int_equal(large[4], copy[4]);
    ok(gv_shadow_undo(shadow, NULL, &error), &error);
    assert_memory_equal(large, copy, LARGE);
    ok(gv_shadow_compare(shadow, NULL, &same, &error), &error);
    assert_true(same);
    assert_int_equal(cuMemFree(memory), CUDA_SUCCESS);
    gv_free(copy);
    gv_range_set_free(&ranges);
    gv_range_set_free(&changed);
}

static void test_what_does_not_fit_is_refused(void **state)
{
    gv_error error = {0};
    gv_range_set ranges = {0};
    uint64_t much = UINT64_C(1) << 40;
    assert_int_equal(gv_range_set_add(&ranges, at, at + much, NULL), GV_OK);
    assert_true(gv_shadow_cost(shadow, &ranges) > much);
    assert_int_equal(gv_shadow_lay_out(shadow, &ranges, &no_regions, NULL, &error), GV_ERR_MEMORY);
    assert_int_equal(gv_shadow_bytes(shadow), 0);
    gv_range_set_free(&ranges);
}

// ---- What it costs ----

static unsigned launches, waits, allocations;
static gv_driver driver;

static CUresult counted_launch(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads_x,
                               unsigned threads_y, unsigned threads_z, unsigned shared, CUstream stream,
                               void **parameters, void **extra)
{
    launches++;
    return driver.cuLaunchKernel(function, x, y, z, threads_x, threads_y, threads_z, shared, stream, parameters, extra);
}

static CUresult counted_wait(CUstream stream)
{
    waits++;
    return driver.cuStreamSynchronize(stream);
}

static CUresult counted_allocation(CUdeviceptr *memory, size_t size)
{
    allocations++;
    return driver.cuMemAlloc(memory, size);
}

static CUresult counted_free(CUdeviceptr memory)
{
    allocations++;
    return driver.cuMemFree(memory);
}

// A checked launch of memory that was checked before: a pass for each step, and nothing that the driver takes long for.
static void test_a_later_launch_takes_three_passes(void **state)
{
    gv_error error = {0};
    gv_range_set ranges = {0}, changed = {0};
    bool same = false;
    fill();
    for (uint64_t i = 0; i < 50; i++)
        assert_int_equal(gv_range_set_add(&ranges, at + 5000 * i, at + 5000 * i + 3000, NULL), GV_OK);
    ok(gv_shadow_lay_out(shadow, &ranges, &no_regions, NULL, &error), &error);
    take(false);
    driver = gv_cuda;
    gv_cuda.cuLaunchKernel = counted_launch;
    gv_cuda.cuStreamSynchronize = counted_wait;
    gv_cuda.cuMemAlloc = counted_allocation;
    gv_cuda.cuMemFree = counted_free;
    for (int changes = 0; changes < 2; changes++) {
        launches = waits = allocations = 0;
        take(true);
        base[100] ^= (unsigned char)changes;
        ok(gv_shadow_rewind(shadow, NULL, &changed, &error), &error);
        base[100] ^= (unsigned char)changes;
        ok(gv_shadow_compare(shadow, NULL, &same, &error), &error);
        assert_true(same);
        assert_int_equal(launches, 3);
        assert_int_equal(waits, 3 + changes); // which groups have changed is asked for
        assert_int_equal(allocations, 0);
    }
    gv_cuda = driver;
    gv_range_set_free(&ranges);
    gv_range_set_free(&changed);
}

// ---- The search ----

static void put_address(size_t offset, uint64_t address)
{
    memcpy(base + offset, &address, 8);
}

// Regions: the searched memory, one that it may lead to, one that it must not, and nothing behind that.
static void test_addresses_that_lead_out_are_found(void **state)
{
    gv_error error = {0};
    gv_range_set ranges = {0};
    const uint64_t start = at + 1004, end = at + 40006, inside = at + 100000, outside = at + 120000,
                   nowhere = at + 200000;
    const gv_range list[] = {
        {start, end}, {inside, inside + 1000}, {outside, outside + 1000}, {at + 280000, at + ARENA}};
    const uint8_t marked[] = {1, 1, 0, 1};
    const gv_shadow_regions regions = {list, marked, 4};
    for (size_t i = 0; i < 4; i++)
        if (marked[i])
            assert_int_equal(gv_range_set_add(&ranges, list[i].start, list[i].end, NULL), GV_OK);
    memset(base, 0, ARENA);
    ok(gv_shadow_lay_out(shadow, &ranges, &regions, NULL, &error), &error);
    take(true);
    uint64_t group = (start / GROUP + 2) * GROUP;
    const size_t places[] = {1004,
                             1008,
                             1012,
                             20000,
                             20004,
                             (size_t)(group - at),
                             (size_t)(group - at) - 4,
                             (size_t)(group - at) - 8,
                             40006 - 8 - 2};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        put_address(places[i], inside + 999);
        gv_shadow_news news = take(true);
        assert_true(!news.escaped && !news.too_many && !news.stray_count);
        put_address(places[i], outside);
        news = take(true);
        assert_true(news.escaped && !news.stray_count);
        // Unless it is asked for, nothing is searched.
        assert_false(take(false).escaped);
        put_address(places[i], outside + 999);
        assert_true(take(true).escaped);
        put_address(places[i], nowhere);
        news = take(true);
        assert_true(!news.escaped && news.stray_count == 1);
        assert_int_equal(news.strays[0], nowhere);
        put_address(places[i], 0);
        news = take(true);
        assert_true(!news.escaped && !news.stray_count);
    }
    // Not at a multiple of four bytes; and where it does not all belong to the memory.
    const size_t others[] = {20001, 20002, 1000, 40004, 999};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        put_address(others[i], outside);
        assert_false(take(true).escaped);
        put_address(others[i], 0);
    }
    gv_range_set_free(&ranges);
}

static void test_more_strays_than_are_told_of(void **state)
{
    gv_error error = {0};
    gv_range_set ranges = {0};
    const uint64_t far = at + (UINT64_C(1) << 32);
    const gv_range list[] = {{at, at + 8192}, {far, far + 4096}};
    const uint8_t marked[] = {1, 0};
    const gv_shadow_regions regions = {list, marked, 2};
    assert_int_equal(gv_range_set_add(&ranges, at, at + 8192, NULL), GV_OK);
    memset(base, 0, ARENA);
    ok(gv_shadow_lay_out(shadow, &ranges, &regions, NULL, &error), &error);
    take(true);
    for (size_t i = 0; i < 64; i++)
        put_address(8 * i, at + (i + 1) * (UINT64_C(2) << 20));
    gv_shadow_news news = take(true);
    assert_int_equal(news.stray_count, 64);
    assert_false(news.too_many);
    put_address(8 * 64, at + 65 * (UINT64_C(2) << 20));
    assert_true(take(true).too_many);
    gv_range_set_free(&ranges);
}

static void test_its_memory_is_known_to_be_gravels(void **state)
{
    gv_error error = {0};
    gv_range_set ranges = {0};
    gv_image *image = NULL;
    CUdeviceptr start = 0;
    size_t size = 0;
    assert_int_equal(gv_range_set_add(&ranges, at, at + 50000, NULL), GV_OK);
    ok(gv_shadow_lay_out(shadow, &ranges, &no_regions, NULL, &error), &error);
    assert_false(gv_compare_owns(at));
    take(false);
    ok(gv_shadow_before(shadow, &image, &error), &error);
    // A driver tells of the memory around an address; where the copy lies, only the kernels know.
    bool found = false;
    for (uint64_t page = at & ~UINT64_C(4095); page < at + (64 << 20) && !found; page += 4096)
        found = cuMemGetAddressRange(&start, &size, page) == CUDA_SUCCESS && start != at && gv_compare_owns(start);
    assert_true(found);
    gv_shadow_trim(shadow);
    assert_false(gv_compare_owns(start));
    gv_image_free(image, NULL);
    gv_range_set_free(&ranges);
}

#define SHADOW_TEST(test) cmocka_unit_test_setup_teardown(test, open_shadow, close_shadow)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHADOW_TEST(test_a_launch_is_put_back_and_compared), SHADOW_TEST(test_what_was_kept_is_known_again),
        SHADOW_TEST(test_nothing_can_be_kept_too),           SHADOW_TEST(test_the_journal_grows),
        SHADOW_TEST(test_a_later_launch_takes_three_passes), SHADOW_TEST(test_what_does_not_fit_is_refused),
        SHADOW_TEST(test_addresses_that_lead_out_are_found), SHADOW_TEST(test_more_strays_than_are_told_of),
        SHADOW_TEST(test_its_memory_is_known_to_be_gravels),
    };
    return cmocka_run_group_tests(tests, open_driver, close_driver);
}
