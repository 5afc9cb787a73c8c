// What a kernel can reach, on the software driver: chains of addresses, variables, maps, memory nobody told of, and the
// limits beyond which it is not known.
#include "record/reach.h"

#include "base/memory.h"
#include "record/driver.h"
#include "record/test_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCKS = 8, BLOCK = 8192 };

static gv_compare *compare;
static unsigned char *blocks[BLOCKS]; // in no particular order of address

static int open_driver(void **state)
{
    const char *missing;
    CUcontext context;
    CUdevice device;
    gv_error error = {0};
    setenv("GRAVEL_SOFT_MEMORY", "100000000", 1);
    assert_true(gv_driver_load(&missing));
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGet(&device, 0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    for (size_t i = 0; i < BLOCKS; i++) {
        CUdeviceptr pointer;
        assert_int_equal(cuMemAlloc(&pointer, BLOCK), CUDA_SUCCESS);
        blocks[i] = (unsigned char *)(uintptr_t)pointer;
    }
    if (gv_compare_open(true, NULL, &compare, &error) != GV_OK)
        fail_msg("%s", error.text);
    return 0;
}

static int close_driver(void **state)
{
    gv_compare_close(compare);
    return 0;
}

// ---- A search in the making --------------------------------------------------------------------------------------

typedef struct scene {
    gv_reach *reach;
    gv_reached reached;
    bool listed[BLOCKS];
    size_t asked; // how often an address was looked up
} scene;

static uint64_t at(size_t block, size_t offset)
{
    return (uint64_t)(uintptr_t)blocks[block] + offset;
}

// Knows all blocks, listed or not.
static bool look_up(uint64_t address, gv_range *memory, unsigned *flags, void *user)
{
    scene *s = user;
    s->asked++;
    *flags = 0;
    for (size_t i = 0; i < BLOCKS; i++)
        if (address - at(i, 0) < BLOCK) {
            *memory = (gv_range){at(i, 0), at(i, BLOCK)};
            return true;
        }
    return false;
}

static scene *begin_with(uint64_t bytes, double seconds)
{
    scene *s = calloc(1, sizeof *s);
    gv_reach_options options = {.bytes = bytes, .seconds = seconds, .look_up = look_up, .user = s};
    assert_int_equal(gv_reach_open(compare, &options, &s->reach, NULL), GV_OK);
    for (size_t i = 0; i < BLOCKS; i++)
        memset(blocks[i], 0, BLOCK);
    return s;
}

static scene *begin(void)
{
    return begin_with(UINT64_MAX, 1000);
}

static void list(scene *s, size_t block, unsigned flags)
{
    assert_true(gv_reach_add(s->reach, at(block, 0), at(block, BLOCK), flags, NULL));
    s->listed[block] = true;
}

static void list_all(scene *s)
{
    for (size_t i = 0; i < BLOCKS; i++)
        list(s, i, 0);
}

static void point(size_t from, size_t offset, size_t to)
{
    uint64_t address = at(to, 24);
    memcpy(blocks[from] + offset, &address, sizeof address);
    memset(blocks[from] + offset + 8, 0xff, 8); // so that it does not look like a map
}

static void reach_from(scene *s, const uint64_t *roots, size_t count, const void *module)
{
    gv_error error = {0};
    gv_reached_free(&s->reached);
    gv_reach_from(s->reach, roots, count, module, &s->reached, &error);
}

// Are exactly the blocks of `expected` reached? A digit each.
static void expect(scene *s, const char *expected)
{
    char found[BLOCKS + 1] = "";
    for (size_t i = 0; i < BLOCKS; i++)
        if (gv_range_set_contains(&s->reached.memory, at(i, 0)))
            found[strlen(found)] = (char)('0' + i);
    assert_string_equal(s->reached.incomplete, "");
    assert_string_equal(found, expected);
}

static void finish(scene *s)
{
    gv_reached_free(&s->reached);
    gv_reach_close(s->reach);
    free(s);
}

// ---- What is reached ---------------------------------------------------------------------------------------------

static void test_chains_are_followed_to_their_end(void **state)
{
    scene *s = begin();
    list_all(s);
    point(0, 16, 1);
    point(0, 4000, 2);
    point(2, BLOCK - 16, 5);
    point(5, 64, 0); // and round again
    point(6, 0, 7);
    uint64_t root = at(0, 100);
    reach_from(s, &root, 1, NULL);
    expect(s, "0125");
    // Another node, from what is known already and beyond it.
    root = at(6, 0);
    reach_from(s, &root, 1, NULL);
    expect(s, "67");
    root = at(2, 0);
    reach_from(s, &root, 1, NULL);
    expect(s, "0125");
    // Nothing, and what is no memory.
    reach_from(s, NULL, 0, NULL);
    expect(s, "");
    root = 0x1234567890;
    reach_from(s, &root, 1, NULL);
    expect(s, "");
    finish(s);
}

static void test_what_was_written_is_searched_again(void **state)
{
    scene *s = begin();
    uint64_t root = at(0, 0);
    list_all(s);
    reach_from(s, &root, 1, NULL);
    expect(s, "0");
    // A node stores an address; until it is said so, nobody looks.
    point(0, 800, 3);
    reach_from(s, &root, 1, NULL);
    expect(s, "0");
    gv_range written = {at(0, 804), at(0, 808)}; // half of it
    gv_reach_written(s->reach, &written, 1);
    reach_from(s, &root, 1, NULL);
    expect(s, "03");
    // Many small writes, over several regions, and one over a whole one.
    gv_range many[100];
    for (size_t i = 0; i < 100; i++)
        many[i] = (gv_range){at(3, 80 * i), at(3, 80 * i + 1)};
    point(3, 80 * 99, 4);
    gv_reach_written(s->reach, many, 100);
    reach_from(s, &root, 1, NULL);
    expect(s, "034");
    point(4, 0, 5);
    gv_range all = {0, UINT64_MAX};
    gv_reach_written(s->reach, &all, 1);
    reach_from(s, &root, 1, NULL);
    expect(s, "0345");
    point(5, 0, 6);
    gv_reach_all_written(s->reach);
    reach_from(s, &root, 1, NULL);
    expect(s, "03456");
    finish(s);
}

static void test_variables_are_roots(void **state)
{
    int module, other;
    scene *s = begin();
    // Block 0 holds the variables of two modules, and is a listed life of its own too.
    list_all(s);
    assert_true(gv_reach_add(s->reach, at(0, 0), at(0, 64), 0, &module));
    assert_true(gv_reach_add(s->reach, at(1, 0), at(1, BLOCK), 0, &other));
    point(0, 0, 3);
    point(1, 0, 4);
    reach_from(s, NULL, 0, &module);
    expect(s, "03");
    reach_from(s, NULL, 0, &other);
    expect(s, "14");
    gv_reached variables = {0};
    assert_int_equal(gv_reach_variables(s->reach, &other, &variables, NULL), GV_OK);
    assert_int_equal(variables.memory.count, 1);
    assert_int_equal(variables.memory.ranges[0].start, at(1, 0));
    gv_reached_free(&variables);
    // Variables without an address.
    assert_true(gv_reach_add_unknown(s->reach, &module));
    reach_from(s, NULL, 0, &module);
    assert_non_null(strstr(s->reached.incomplete, "variables"));
    reach_from(s, NULL, 0, &other);
    expect(s, "14");
    finish(s);
}

// The processor may store an address in page-locked memory between two nodes.
static void test_shared_memory_is_searched_each_time(void **state)
{
    scene *s = begin();
    uint64_t root = at(0, 0);
    for (size_t i = 0; i < BLOCKS; i++)
        list(s, i, i == 0 ? GV_REGION_SHARED : 0);
    reach_from(s, &root, 1, NULL);
    expect(s, "0");
    assert_int_equal(gv_range_set_bytes(&s->reached.shared), BLOCK);
    point(0, 800, 3);
    reach_from(s, &root, 1, NULL);
    expect(s, "03");
    assert_int_equal(gv_range_set_bytes(&s->reached.shared), BLOCK);
    finish(s);
}

// The first and the last block by address are listed: the others are met on the way.
static void test_memory_that_nobody_told_of_is_found(void **state)
{
    size_t first = 0, last = 0;
    for (size_t i = 1; i < BLOCKS; i++) {
        first = blocks[i] < blocks[first] ? i : first;
        last = blocks[i] > blocks[last] ? i : last;
    }
    size_t between[2], count = 0;
    for (size_t i = 0; i < BLOCKS && count < 2; i++)
        if (i != first && i != last)
            between[count++] = i;
    scene *s = begin();
    list(s, first, 0);
    list(s, last, 0);
    point(first, 16, between[0]);
    point(between[0], 16, between[1]);
    point(between[1], 16, last);
    uint64_t root = at(first, 0);
    reach_from(s, &root, 1, NULL);
    assert_string_equal(s->reached.incomplete, "");
    assert_int_equal(gv_range_set_bytes(&s->reached.memory), 4 * BLOCK);
    // What the driver does not know is asked about once.
    uint64_t nowhere = at(first, BLOCK) + 8; // behind the first block and before the next one
    size_t asked = s->asked;
    memset(blocks[first] + 32, 0xff, BLOCK - 32);
    for (size_t i = 0; i < 10; i++)
        memcpy(blocks[first] + 256 + 64 * i, &nowhere, sizeof nowhere);
    if (nowhere < at(between[0], 0) || nowhere >= at(between[0], BLOCK)) {
        gv_reach_all_written(s->reach);
        reach_from(s, &root, 1, NULL);
        gv_reach_all_written(s->reach);
        reach_from(s, &root, 1, NULL);
        assert_in_range(s->asked, asked, asked + 1);
    }
    finish(s);
}

// Ends of the region around the first byte of `start`, of `count` adjoining quarters of a block listed with `flags`.
static uint64_t reached_bytes(const unsigned *flags, size_t count, size_t from)
{
    scene *s = begin();
    // In no order of address, and some of them after a first search.
    for (size_t i = count; i-- > 0;)
        assert_true(gv_reach_add(s->reach, at(0, i * BLOCK / 4), at(0, (i + 1) * BLOCK / 4), flags[i], NULL));
    for (int round = 0; round < 2; round++) {
        uint64_t root = at(0, from);
        gv_error error = {0};
        gv_reached_free(&s->reached);
        assert_int_equal(gv_reach_from(s->reach, &root, 1, NULL, &s->reached, &error), GV_OK);
        assert_true(gv_range_set_contains(&s->reached.memory, root));
        assert_true(gv_reach_add(s->reach, at(1, 0), at(1, BLOCK), 0, NULL)); // the table is made anew
    }
    uint64_t bytes = gv_range_set_bytes(&s->reached.memory);
    gv_reached_free(&s->reached);
    gv_reach_close(s->reach);
    free(s);
    return bytes;
}

// As PyTorch's expandable segments are made of: a tensor may lie in several parts.
static void test_parts_of_a_reservation_are_one(void **state)
{
    const unsigned part = GV_REGION_PART, shared = GV_REGION_PART | GV_REGION_SHARED;
    assert_int_equal(reached_bytes((unsigned[]){part, part, part, part}, 4, 8), BLOCK);
    assert_int_equal(reached_bytes((unsigned[]){part, part, part, part}, 4, BLOCK - 8), BLOCK);
    assert_int_equal(reached_bytes((unsigned[]){part, part, shared, shared}, 4, 8), BLOCK / 2);
    assert_int_equal(reached_bytes((unsigned[]){part, part, 0, part}, 4, 8), BLOCK / 2);
    assert_int_equal(reached_bytes((unsigned[]){part, 0, part, part}, 4, BLOCK - 8), BLOCK / 2);
    assert_int_equal(reached_bytes((unsigned[]){0, 0, 0, 0}, 4, 8), BLOCK / 4);
}

static void test_a_pointer_to_memory_that_was_not_listed(void **state)
{
    scene *s = begin();
    uint64_t root = at(4, 0);
    point(4, 0, 5);
    list(s, 5, 0);
    reach_from(s, &root, 1, NULL);
    expect(s, "45");
    finish(s);
}

// ---- Maps --------------------------------------------------------------------------------------------------------

static void test_maps_in_reached_memory_are_decoded(void **state)
{
    uint64_t words[16], root = at(0, 0);
    scene *s = begin();
    list_all(s);
    point(0, 16, 1);
    test_map_encode(words, at(2, 512), 128, 4, 256);
    memcpy(blocks[1] + 640, words, sizeof words);
    test_map_encode(words, at(3, 0), 16, 2, 1 << 20); // longer than the memory it begins in
    memcpy(blocks[1] + 1280, words, sizeof words);
    test_map_encode(words, at(7, 0), 16, 2, 256); // where nothing leads
    memcpy(blocks[4], words, sizeof words);
    reach_from(s, &root, 1, NULL);
    expect(s, "0123");
    assert_int_equal(s->reached.map_count, 2);
    for (size_t i = 0; i < 2; i++) {
        const gv_reached_map *map = &s->reached.maps[i];
        bool is_first = map->map.address == at(2, 512);
        assert_true(is_first || map->map.address == at(3, 0));
        assert_int_equal(map->map.dims[0], is_first ? 128 : 16);
        assert_true(map->end >= map->map.address + 512);
        assert_int_equal(map->end, gv_reach_end(s->reach, map->map.address));
    }
    // Overwritten, it is a map no more.
    memset(blocks[1] + 640, 0xff, 64);
    gv_range written = {at(1, 640), at(1, 704)};
    gv_reach_written(s->reach, &written, 1);
    reach_from(s, &root, 1, NULL);
    assert_int_equal(s->reached.map_count, 1);
    assert_int_equal(gv_reach_end(s->reach, 0x1234567890), 0);
    finish(s);
}

// ---- Limits ------------------------------------------------------------------------------------------------------

static void test_limits_are_said(void **state)
{
    uint64_t root = at(0, 0);
    scene *s = begin_with(BLOCK + BLOCK / 2, 1000);
    list_all(s);
    point(0, 16, 1);
    reach_from(s, &root, 1, NULL);
    assert_non_null(strstr(s->reached.incomplete, "GRAVEL_SEARCH_MEMORY"));
    finish(s);

    s = begin_with(UINT64_MAX, 0);
    list_all(s);
    reach_from(s, &root, 1, NULL);
    assert_non_null(strstr(s->reached.incomplete, "time"));
    finish(s);

    s = begin();
    for (size_t i = 0; i < BLOCKS; i++)
        list(s, i, i == 1 ? GV_REGION_UNREADABLE : 0);
    point(0, 16, 1);
    point(1, 16, 2); // not seen
    reach_from(s, &root, 1, NULL);
    assert_non_null(strstr(s->reached.incomplete, "cannot be searched"));
    root = at(3, 0);
    reach_from(s, &root, 1, NULL);
    expect(s, "3");
    finish(s);
}

static void test_memory_failures_are_reported(void **state)
{
    uint64_t words[16], root = at(0, 0);
    bool succeeded = false;
    test_map_encode(words, at(2, 512), 128, 4, 256);
    for (long allowed = 0; !succeeded; allowed++) {
        scene *s = begin();
        list_all(s);
        point(0, 16, 1);
        memcpy(blocks[1] + 640, words, sizeof words);
        gv_memory_fail_after(allowed);
        reach_from(s, &root, 1, NULL);
        gv_memory_fail_after(-1);
        succeeded = !s->reached.incomplete[0];
        if (succeeded)
            expect(s, "012");
        assert_true(allowed < 1000);
        finish(s);
    }
}

// ---- Known from one search to the next ---------------------------------------------------------------------------

static void test_the_same_memory_is_told_from_other_memory(void **state)
{
    scene *old = begin(), *same = begin(), *fewer = begin(), *moved = begin(), *shared = begin(), *other = begin();
    uint64_t root = at(0, 0);
    int module, another;
    for (size_t i = 0; i < 4; i++) {
        list(old, i, 0);
        list(same, i, 0);
        if (i < 3)
            list(fewer, i, 0);
        list(moved, i == 3 ? 4 : i, 0);
        list(shared, i, i == 3 ? GV_REGION_SHARED : 0);
        list(other, i, 0);
    }
    assert_true(gv_reach_add(old->reach, at(5, 0), at(5, 8), 0, &module));
    assert_true(gv_reach_add(same->reach, at(5, 0), at(5, 8), 0, &module));
    assert_true(gv_reach_add(other->reach, at(5, 0), at(5, 8), 0, &another));
    reach_from(old, &root, 1, NULL);
    assert_true(gv_reach_lists_same(old->reach, same->reach));
    assert_false(gv_reach_lists_same(old->reach, other->reach));
    scene *different[] = {fewer, moved, shared};
    for (size_t i = 0; i < sizeof different / sizeof *different; i++) { // NOLINT(bugprone-sizeof-expression): pointers
        assert_true(gv_reach_add(different[i]->reach, at(5, 0), at(5, 8), 0, &module));
        assert_false(gv_reach_lists_same(old->reach, different[i]->reach));
        finish(different[i]);
    }
    assert_true(gv_reach_add_unknown(same->reach, &another));
    assert_false(gv_reach_lists_same(old->reach, same->reach));
    finish(old);
    finish(same);
    finish(other);
}

// Memory that nobody told of may be gone by the next time without anybody telling of that.
static void test_memory_that_was_come_upon_is_not_the_same(void **state)
{
    scene *old = begin(), *now = begin();
    size_t lowest = 0, highest = 0, unlisted = 0;
    for (size_t i = 1; i < BLOCKS; i++) {
        lowest = at(i, 0) < at(lowest, 0) ? i : lowest;
        highest = at(i, 0) > at(highest, 0) ? i : highest;
    }
    while (unlisted == lowest || unlisted == highest)
        unlisted++;
    uint64_t root = at(lowest, 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        if (i == unlisted)
            continue;
        list(old, i, 0);
        list(now, i, 0);
    }
    reach_from(old, &root, 1, NULL);
    assert_true(gv_reach_lists_same(old->reach, now->reach));
    point(lowest, 16, unlisted);
    gv_reach_all_written(old->reach);
    reach_from(old, &root, 1, NULL);
    assert_true(gv_range_set_contains(&old->reached.memory, at(unlisted, 0)));
    assert_false(gv_reach_lists_same(old->reach, now->reach));
    finish(old);
    finish(now);
}

static void test_regions_are_marked_that_are_reached(void **state)
{
    scene *s = begin();
    gv_range *ranges = NULL;
    uint8_t *marked = NULL;
    size_t count = 0, marks = 0;
    uint64_t root = at(3, 8);
    list_all(s);
    point(3, 16, 6);
    reach_from(s, &root, 1, NULL);
    assert_int_equal(gv_reach_regions(s->reach, &s->reached.memory, &ranges, &marked, &count, NULL), GV_OK);
    assert_int_equal(count, BLOCKS);
    for (size_t i = 0; i < count; i++) {
        assert_true(!i || ranges[i - 1].end <= ranges[i].start);
        bool reached = ranges[i].start == at(3, 0) || ranges[i].start == at(6, 0);
        assert_int_equal(marked[i], reached);
        marks += marked[i];
    }
    assert_int_equal(marks, 2);
    gv_free(ranges);
    gv_free(marked);
    finish(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_memory_is_told_from_other_memory),
        cmocka_unit_test(test_memory_that_was_come_upon_is_not_the_same),
        cmocka_unit_test(test_regions_are_marked_that_are_reached),
        cmocka_unit_test(test_chains_are_followed_to_their_end),
        cmocka_unit_test(test_what_was_written_is_searched_again),
        cmocka_unit_test(test_variables_are_roots),
        cmocka_unit_test(test_shared_memory_is_searched_each_time),
        cmocka_unit_test(test_memory_that_nobody_told_of_is_found),
        cmocka_unit_test(test_parts_of_a_reservation_are_one),
        cmocka_unit_test(test_a_pointer_to_memory_that_was_not_listed),
        cmocka_unit_test(test_maps_in_reached_memory_are_decoded),
        cmocka_unit_test(test_limits_are_said),
        cmocka_unit_test(test_memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, open_driver, close_driver);
}
