// Saving, comparing, perturbing and searching memory, on the software driver: device memory is the process's own there,
// so that a test can play the node.
#include "record/compare.h"

#include "base/memory.h"
#include "record/driver.h"
#include "record/test_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state = 1;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % below);
}

static gv_compare *compare;

static int open_driver(void **state)
{
    const char *missing;
    CUcontext context;
    CUdevice device;
    gv_error error = {0};
    // Room for what the tests allocate and for a copy of it, and not much more: one test runs out of it.
    setenv("GRAVEL_SOFT_MEMORY", "200000000", 1);
    assert_true(gv_driver_load(&missing));
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGet(&device, 0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    if (gv_compare_open(true, NULL, &compare, &error) != GV_OK)
        fail_msg("%s", error.text);
    return 0;
}

static int close_driver(void **state)
{
    gv_compare_close(compare);
    gv_compare_close(NULL);
    return 0;
}

static unsigned char *memory(size_t size)
{
    CUdeviceptr pointer;
    assert_int_equal(cuMemAlloc(&pointer, size), CUDA_SUCCESS);
    return (unsigned char *)(uintptr_t)pointer;
}

static void give_back(unsigned char *pointer)
{
    assert_int_equal(cuMemFree((CUdeviceptr)(uintptr_t)pointer), CUDA_SUCCESS);
}

static void add(gv_range_set *set, const unsigned char *start, size_t size)
{
    uint64_t at = (uint64_t)(uintptr_t)start;
    assert_int_equal(gv_range_set_add(set, at, at + size, NULL), GV_OK);
}

// The test looks at memory, and changes it, as the node would that comes next in the stream.
static void ok(gv_status status, const gv_error *error)
{
    if (status != GV_OK)
        fail_msg("%s", error->text);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
}

// Ranges of all sizes and alignments in [base, base + size), some of them adjacent blocks apart and some a byte.
static gv_range_set random_ranges(const unsigned char *base, size_t size)
{
    gv_range_set set = {0};
    for (size_t at = draw(64); at + 2 < size;) {
        size_t length = 1 + draw(draw(4) ? 200 : 9000);
        length = length < size - at ? length : size - at;
        add(&set, base + at, length);
        at += length + 1 + draw(draw(2) ? 3 : 300);
    }
    gv_range_set_settle(&set);
    return set;
}

static bool equal(const gv_range_set *a, const gv_range_set *b)
{
    gv_range_set_settle(a);
    gv_range_set_settle(b);
    return a->count == b->count && (!a->count || !memcmp(a->ranges, b->ranges, a->count * sizeof *a->ranges));
}

// ---- Comparing ---------------------------------------------------------------------------------------------------

static void test_changes_are_found_to_the_byte(void **state)
{
    enum { SIZE = 60000 };
    unsigned char *base = memory(SIZE), *before = malloc(SIZE);
    for (int round = 0; round < 40; round++) {
        gv_error error = {0};
        gv_range_set saved = random_ranges(base, SIZE), changed = {0}, expected = {0};
        for (size_t i = 0; i < SIZE; i++)
            base[i] = (unsigned char)draw(256);
        memcpy(before, base, SIZE);
        ok(gv_compare_save(compare, &saved, &error), &error);
        assert_memory_equal(base, before, SIZE);
        for (unsigned writes = draw(60); writes; writes--) {
            size_t at = draw(SIZE), length = 1 + draw(draw(3) ? 20 : 12000);
            for (size_t i = at; i < at + length && i < SIZE; i++)
                base[i] = (unsigned char)draw(256);
        }
        for (size_t i = 0; i < SIZE; i++)
            if (base[i] != before[i] && gv_range_set_contains(&saved, (uint64_t)(uintptr_t)(base + i)))
                add(&expected, base + i, 1);
        ok(gv_compare_changed(compare, &changed, &error), &error);
        assert_true(gv_range_set_is_valid(&changed));
        assert_true(equal(&changed, &expected));
        // Put back, nothing differs, and what was not saved stays as it is.
        unsigned char *after = malloc(SIZE);
        memcpy(after, base, SIZE);
        ok(gv_compare_restore(compare, &error), &error);
        for (size_t i = 0; i < SIZE; i++)
            assert_int_equal(base[i],
                             gv_range_set_contains(&saved, (uint64_t)(uintptr_t)(base + i)) ? before[i] : after[i]);
        free(after);
        gv_range_set_free(&saved);
        gv_range_set_free(&changed);
        gv_range_set_free(&expected);
    }
    free(before);
    give_back(base);
}

// More than one chunk; whole groups, groups in part, and changes at the seams.
static void test_several_chunks(void **state)
{
    enum { SIZE = (33 << 20) + 77 };
    gv_error error = {0};
    unsigned char *base = memory(SIZE);
    gv_range_set saved = {0}, changed = {0}, expected = {0};
    memset(base, 3, SIZE);
    add(&saved, base, SIZE);
    ok(gv_compare_save(compare, &saved, &error), &error);
    const struct {
        size_t at, length;
    } writes[] = {{0, 1}, {5000, 100000}, {(32 << 20) - 5, 10}, {SIZE - 1, 1}};
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++) {
        memset(base + writes[i].at, 4, writes[i].length);
        add(&expected, base + writes[i].at, writes[i].length);
    }
    ok(gv_compare_changed(compare, &changed, &error), &error);
    assert_true(equal(&changed, &expected));
    gv_range_set_free(&saved);
    gv_range_set_free(&changed);
    gv_range_set_free(&expected);
    give_back(base);
}

static void test_nothing_saved_is_nothing_changed(void **state)
{
    gv_error error = {0};
    gv_range_set none = {0}, changed = {0};
    ok(gv_compare_save(compare, &none, &error), &error);
    ok(gv_compare_changed(compare, &changed, &error), &error);
    assert_int_equal(changed.count, 0);
}

static void test_memory_that_is_not_there(void **state)
{
    enum { SIZE = 120000000 };
    gv_error error = {0};
    unsigned char *base = memory(SIZE);
    gv_range_set saved = {0}, changed = {0};
    add(&saved, base, SIZE);
    assert_true(gv_compare_cost(&saved) > SIZE);
    base[5] = 1;
    assert_int_equal(gv_compare_save(compare, &saved, &error), GV_ERR_MEMORY);
    assert_int_equal(base[5], 1);
    // Nothing is saved then, so that nothing is compared and nothing put back.
    base[5] = 2;
    ok(gv_compare_changed(compare, &changed, &error), &error);
    ok(gv_compare_restore(compare, &error), &error);
    assert_int_equal(changed.count, 0);
    assert_int_equal(base[5], 2);
    gv_range_set_free(&saved);
    give_back(base);
}

// ---- Perturbing --------------------------------------------------------------------------------------------------

// A node: it writes `value[i]` to byte i where `writes[i]`, and reads nothing that it writes.
typedef struct node {
    const bool *writes;
    const unsigned char *value;
    size_t size;
} node;

static void run_node(const node *n, unsigned char *base)
{
    for (size_t i = 0; i < n->size; i++)
        if (n->writes[i])
            base[i] = n->value[i];
}

// Whatever is written, the value that was there and its complement included, the writes are found, and the memory is
// what one run leaves.
static void test_writes_that_keep_the_value_are_found(void **state)
{
    enum { SIZE = 30000 };
    unsigned char *base = memory(SIZE), *before = malloc(SIZE), *value = malloc(SIZE), *once = malloc(SIZE);
    bool *writes = malloc(SIZE);
    for (int round = 0; round < 40; round++) {
        gv_error error = {0};
        gv_range_set saved = random_ranges(base, SIZE), part = {0}, perturbed = {0};
        gv_range_set first = {0}, second = {0}, all = {0}, expected = {0};
        for (size_t i = 0; i < SIZE; i++) {
            before[i] = base[i] = (unsigned char)draw(256);
            writes[i] = draw(3) == 0;
            unsigned kind = draw(3);
            value[i] = kind == 0 ? before[i] : kind == 1 ? (unsigned char)~before[i] : (unsigned char)draw(256);
        }
        node n = {writes, value, SIZE};
        part = random_ranges(base, SIZE);
        assert_int_equal(gv_range_set_intersection(&saved, &part, &perturbed, &error), GV_OK);
        ok(gv_compare_save(compare, &saved, &error), &error);
        run_node(&n, base);
        memcpy(once, base, SIZE);
        ok(gv_compare_changed(compare, &first, &error), &error);
        ok(gv_compare_perturb(compare, &perturbed, &error), &error);
        for (size_t i = 0; i < SIZE; i++) {
            bool in = gv_range_set_contains(&perturbed, (uint64_t)(uintptr_t)(base + i));
            assert_int_equal(base[i] == once[i], !in || (unsigned char)~before[i] == base[i] ? !in : false);
        }
        run_node(&n, base);
        ok(gv_compare_settle(compare, &second, &error), &error);
        assert_memory_equal(base, once, SIZE);
        for (size_t i = 0; i < SIZE; i++) {
            uint64_t at = (uint64_t)(uintptr_t)(base + i);
            bool kept = value[i] == before[i];
            if (writes[i] && gv_range_set_contains(&saved, at) && (!kept || gv_range_set_contains(&perturbed, at)))
                add(&expected, base + i, 1);
        }
        assert_int_equal(gv_range_set_union(&first, &second, &all, &error), GV_OK);
        assert_true(equal(&all, &expected));
        gv_range_set *sets[] = {&saved, &part, &perturbed, &first, &second, &all, &expected};
        for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
            gv_range_set_free(sets[i]);
    }
    free(before);
    free(value);
    free(once);
    free(writes);
    give_back(base);
}

static void test_ranges_are_filled_and_nothing_else(void **state)
{
    enum { SIZE = 60000 };
    unsigned char *base = memory(SIZE), *expected = malloc(SIZE);
    for (int round = 0; round < 40; round++) {
        gv_error error = {0};
        gv_range_set set = random_ranges(base, SIZE);
        uint64_t pattern = (uint64_t)draw(UINT32_MAX) << 32 | draw(UINT32_MAX);
        for (size_t i = 0; i < SIZE; i++)
            expected[i] = base[i] = (unsigned char)draw(256);
        for (size_t i = 0; i < SIZE; i++)
            if (gv_range_set_contains(&set, (uint64_t)(uintptr_t)(base + i)))
                expected[i] = (unsigned char)(pattern >> (uintptr_t)(base + i) % 8 * 8);
        ok(gv_compare_fill(compare, &set, pattern, &error), &error);
        assert_memory_equal(base, expected, SIZE);
        gv_range_set_free(&set);
    }
    give_back(base);
    free(expected);
}

static void test_copies_of_a_row_follow_each_other(void **state)
{
    enum { SIZE = 9000 };
    unsigned char *base = memory(SIZE), expected[SIZE];
    for (int round = 0; round < 60; round++) {
        gv_error error = {0};
        size_t row = 1 + draw(draw(2) ? 9 : 500), from = draw(40), to = from + row + draw(40);
        size_t size = draw((uint32_t)(SIZE - to));
        for (size_t i = 0; i < SIZE; i++)
            expected[i] = base[i] = (unsigned char)draw(256);
        for (size_t i = 0; i < size; i++)
            expected[to + i] = base[from + i % row];
        uint64_t start = (uint64_t)(uintptr_t)base + to;
        ok(gv_compare_repeat(compare, (gv_range){start, start + size}, start - to + from, row, &error), &error);
        assert_memory_equal(base, expected, SIZE);
    }
    give_back(base);
}

// A set of the driver's refuses what lies in two allocations.
static void test_two_allocations_are_filled_at_once(void **state)
{
    enum { SIZE = 1 << 20 };
    gv_error error = {0};
    gv_range_set set = {0};
    unsigned char *a = memory(SIZE), *b = memory(SIZE), *low = a < b ? a : b;
    assert_ptr_equal(low + SIZE, a < b ? b : a);
    add(&set, a, SIZE);
    add(&set, b, SIZE);
    gv_range_set_settle(&set);
    assert_int_equal(set.count, 1);
    assert_int_equal(cuMemsetD8Async((CUdeviceptr)(uintptr_t)low, 1, 2 * (size_t)SIZE, NULL), CUDA_ERROR_INVALID_VALUE);
    ok(gv_compare_fill(compare, &set, UINT64_MAX, &error), &error);
    for (size_t i = 0; i < 2 * (size_t)SIZE; i++)
        if (low[i] != 0xff)
            fail_msg("byte %zu is 0x%x", i, low[i]);
    gv_range_set_free(&set);
    give_back(a);
    give_back(b);
}

static void test_only_saved_memory_is_perturbed(void **state)
{
    gv_error error = {0};
    unsigned char *base = memory(4096);
    gv_range_set saved = {0}, more = {0};
    memset(base, 7, 4096);
    add(&saved, base + 100, 100);
    add(&more, base + 100, 101);
    ok(gv_compare_save(compare, &saved, &error), &error);
    assert_int_equal(gv_compare_perturb(compare, &more, &error), GV_ERR_USAGE);
    for (size_t i = 0; i < 4096; i++)
        assert_int_equal(base[i], 7);
    gv_range_set_free(&saved);
    gv_range_set_free(&more);
    give_back(base);
}

// ---- Searching ---------------------------------------------------------------------------------------------------

enum { REGIONS = 4, REGION_SIZE = 9000 };

// Four regions, zeroed, in the order of their addresses.
static void make_regions(unsigned char *regions[REGIONS], gv_range ranges[REGIONS])
{
    for (size_t i = 0; i < REGIONS; i++)
        regions[i] = memory(REGION_SIZE);
    for (size_t i = 0; i < REGIONS; i++)
        for (size_t k = i + 1; k < REGIONS; k++)
            if (regions[k] < regions[i]) {
                unsigned char *swap = regions[i];
                regions[i] = regions[k];
                regions[k] = swap;
            }
    for (size_t i = 0; i < REGIONS; i++) {
        memset(regions[i], 0, REGION_SIZE);
        uint64_t start = (uint64_t)(uintptr_t)regions[i];
        ranges[i] = (gv_range){start, start + REGION_SIZE};
    }
}

static void put(unsigned char *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
}

static bool has_edge(const gv_scan_found *found, uint32_t from, uint32_t to)
{
    size_t count = 0;
    for (size_t i = 0; i < found->edge_count; i++)
        count += found->edges[i] == ((uint64_t)from << 32 | to);
    return count == 1;
}

static void test_addresses_are_found_wherever_they_stand(void **state)
{
    gv_error error = {0};
    unsigned char *regions[REGIONS];
    gv_range ranges[REGIONS];
    gv_scan_found found = {0};
    make_regions(regions, ranges);
    ok(gv_compare_set_regions(compare, ranges, REGIONS, &error), &error);
    // At multiples of four, over the edge of a block, at the very end; the first and the last byte of a region.
    put(regions[0] + 28, ranges[1].start);
    put(regions[0] + 4 * 500, ranges[1].start + 17);
    put(regions[0] + REGION_SIZE - 8, ranges[3].end - 1);
    put(regions[2], ranges[0].start);
    put(regions[2] + 8, UINT64_MAX); // so that it does not look like a map
    // Not followed: its own address, one past the end, an address at an odd place, and one that is cut off.
    put(regions[1] + 64, ranges[1].start + 8);
    put(regions[1] + 128, ranges[3].end);
    put(regions[3] + 2, ranges[0].start);
    gv_scan_range whole[REGIONS];
    for (uint32_t i = 0; i < REGIONS; i++)
        whole[i] = (gv_scan_range){ranges[i].start, ranges[i].end, i};
    ok(gv_compare_scan(compare, whole, REGIONS, UINT64_MAX, &found, &error), &error);
    assert_int_equal(found.edge_count, 3);
    assert_true(has_edge(&found, 0, 1));
    assert_true(has_edge(&found, 0, 3));
    assert_true(has_edge(&found, 2, 0));
    assert_int_equal(found.map_count, 0);
    assert_int_equal(found.stray_count, 0);
    // A search of a part adds what that part has.
    gv_scan_range part = {ranges[0].start + 4 * 500, ranges[0].start + 4 * 500 + 7, 0};
    gv_scan_found_free(&found);
    ok(gv_compare_scan(compare, &part, 1, UINT64_MAX, &found, &error), &error);
    assert_int_equal(found.edge_count, 0);
    part.end++;
    ok(gv_compare_scan(compare, &part, 1, UINT64_MAX, &found, &error), &error);
    assert_int_equal(found.edge_count, 1);
    gv_scan_found_free(&found);
    for (size_t i = 0; i < REGIONS; i++)
        give_back(regions[i]);
}

static void test_maps_are_found(void **state)
{
    gv_error error = {0};
    unsigned char *regions[REGIONS];
    gv_range ranges[REGIONS];
    gv_scan_found found = {0};
    uint64_t words[16];
    make_regions(regions, ranges);
    ok(gv_compare_set_regions(compare, ranges, REGIONS, &error), &error);
    test_map_encode(words, ranges[2].start + 256, 64, 4, 128);
    memcpy(regions[1] + 64 * 7, words, sizeof words);
    // Not where a map can stand, not of memory that is there, and no map at all.
    memcpy(regions[1] + 64 * 20 + 8, words, sizeof words);
    words[0] = ranges[3].end;
    memcpy(regions[1] + 64 * 30, words, sizeof words);
    put(regions[1] + 64 * 40, ranges[2].start);
    put(regions[1] + 64 * 40 + 8, UINT64_MAX);
    gv_scan_range whole = {ranges[1].start, ranges[1].end, 1};
    ok(gv_compare_scan(compare, &whole, 1, UINT64_MAX, &found, &error), &error);
    assert_int_equal(found.map_count, 1);
    assert_int_equal(found.maps[0].address, ranges[1].start + 64 * 7);
    assert_int_equal(found.maps[0].owner, 1);
    assert_true(has_edge(&found, 1, 2));
    gv_scan_found_free(&found);
    for (size_t i = 0; i < REGIONS; i++)
        give_back(regions[i]);
}

// Addresses between the regions: memory that nobody told of, or none at all.
static void test_strays_are_handed_over(void **state)
{
    gv_error error = {0};
    unsigned char *regions[REGIONS];
    gv_range ranges[REGIONS];
    gv_scan_found found = {0};
    make_regions(regions, ranges);
    gv_range known[] = {ranges[0], ranges[3]};
    ok(gv_compare_set_regions(compare, known, 2, &error), &error);
    put(regions[0] + 40, ranges[1].start);
    put(regions[0] + 80, ranges[1].start + 8);
    gv_scan_range whole = {ranges[0].start, ranges[0].end, 0};
    ok(gv_compare_scan(compare, &whole, 1, UINT64_MAX, &found, &error), &error);
    assert_int_equal(found.stray_count, 1);
    assert_in_range(found.strays[0], ranges[1].start, ranges[1].start + 8);
    gv_scan_found_free(&found);
    for (size_t i = 0; i < REGIONS; i++)
        give_back(regions[i]);
}

static void test_a_search_has_limits(void **state)
{
    gv_error error = {0};
    unsigned char *regions[REGIONS], *large = memory(3 << 20);
    gv_range ranges[REGIONS];
    gv_scan_found found = {0};
    uint64_t words[16];
    make_regions(regions, ranges);
    ok(gv_compare_set_regions(compare, ranges, REGIONS, &error), &error);
    gv_scan_range whole = {ranges[0].start, ranges[0].end, 0};
    assert_int_equal(gv_compare_scan(compare, &whole, 1, 0, &found, &error), GV_ERR_LIMIT);
    assert_non_null(strstr(error.text, "time"));
    // More maps than are kept.
    test_map_encode(words, ranges[2].start + 256, 64, 4, 128);
    for (size_t i = 0; i < (3 << 20) / 128; i++)
        memcpy(large + 128 * i, words, sizeof words);
    whole = (gv_scan_range){(uint64_t)(uintptr_t)large, (uint64_t)(uintptr_t)large + (3 << 20), 0};
    assert_int_equal(gv_compare_scan(compare, &whole, 1, UINT64_MAX, &found, &error), GV_ERR_LIMIT);
    gv_scan_found_free(&found);
    give_back(large);
    for (size_t i = 0; i < REGIONS; i++)
        give_back(regions[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes_are_found_to_the_byte),
        cmocka_unit_test(test_several_chunks),
        cmocka_unit_test(test_nothing_saved_is_nothing_changed),
        cmocka_unit_test(test_memory_that_is_not_there),
        cmocka_unit_test(test_writes_that_keep_the_value_are_found),
        cmocka_unit_test(test_ranges_are_filled_and_nothing_else),
        cmocka_unit_test(test_copies_of_a_row_follow_each_other),
        cmocka_unit_test(test_two_allocations_are_filled_at_once),
        cmocka_unit_test(test_only_saved_memory_is_perturbed),
        cmocka_unit_test(test_addresses_are_found_wherever_they_stand),
        cmocka_unit_test(test_maps_are_found),
        cmocka_unit_test(test_strays_are_handed_over),
        cmocka_unit_test(test_a_search_has_limits),
    };
    return cmocka_run_group_tests(tests, open_driver, close_driver);
}
