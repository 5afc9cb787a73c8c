// The allocation seam: overflowing sizes fail, the n-th allocation can be made to fail, arrays grow.
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

// The address sanitizer would end the program at an overflowing calloc instead of letting it fail.
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void test_overflow(void **state)
{
    assert_null(gv_realloc_array(NULL, SIZE_MAX / 2, 3));
    assert_null(gv_calloc(SIZE_MAX / 2, 3));
    assert_null(gv_strndup("x", SIZE_MAX));
    int *items = NULL;
    size_t capacity = 0;
    assert_false(GV_GROW(items, capacity, SIZE_MAX / 2));
    assert_null(items);
    assert_int_equal(capacity, 0);
}

static void test_empty_is_not_failure(void **state)
{
    void *pieces[] = {gv_malloc(0), gv_calloc(0, 8), gv_realloc_array(NULL, 0, 8)};
    for (int i = 0; i < 3; i++) {
        assert_non_null(pieces[i]);
        gv_free(pieces[i]);
    }
}

static void test_copies(void **state)
{
    char *text = gv_strdup("gravel"), *part = gv_strndup("gravel", 4);
    assert_string_equal(text, "gravel");
    assert_string_equal(part, "grav");
    gv_free(text);
    gv_free(part);
}

static void test_fail_after(void **state)
{
    for (long allowed = 0; allowed < 4; allowed++) {
        gv_memory_fail_after(allowed);
        void *pieces[6];
        for (int i = 0; i < 6; i++)
            pieces[i] = i % 2 ? gv_malloc(4) : gv_calloc(1, 4);
        char *text = gv_strdup("x");
        void *array = gv_realloc_array(NULL, 2, 2);
        gv_memory_fail_after(-1);
        for (int i = 0; i < 6; i++) {
            assert_int_equal(pieces[i] != NULL, i < allowed);
            gv_free(pieces[i]);
        }
        assert_null(text);
        assert_null(array);
    }
    void *piece = gv_malloc(1);
    assert_non_null(piece);
    gv_free(piece);
}

static void test_grow(void **state)
{
    uint32_t *items = NULL;
    size_t capacity = 0, reallocations = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        size_t before = capacity;
        assert_true(GV_GROW(items, capacity, i + 1));
        reallocations += capacity != before;
        items[i] = i;
    }
    assert_true(reallocations < 15); // by doubling
    for (uint32_t i = 0; i < 10000; i++)
        assert_int_equal(items[i], i);
    uint32_t *before = items;
    gv_memory_fail_after(0);
    bool grown = GV_GROW(items, capacity, 1 << 20);
    gv_memory_fail_after(-1);
    assert_false(grown);
    assert_ptr_equal(items, before); // unchanged
    assert_int_equal(items[9999], 9999);
    gv_free(items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overflow), cmocka_unit_test(test_empty_is_not_failure),
        cmocka_unit_test(test_copies),   cmocka_unit_test(test_fail_after),
        cmocka_unit_test(test_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
