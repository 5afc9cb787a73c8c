// Sets of pages, and the patterns of --canary-region.
#include "record/page_set.h"
#include "record/pattern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_members(void **state)
{
    gv_page_set set;
    assert_true(gv_page_set_open(&set, 130));
    assert_true(gv_page_set_add(&set, 0));
    assert_true(gv_page_set_add(&set, 63));
    assert_true(gv_page_set_add(&set, 64));
    assert_true(gv_page_set_add(&set, 129));
    assert_true(gv_page_set_add(&set, 129)); // again: no second member
    assert_false(gv_page_set_add(&set, 130));
    assert_false(gv_page_set_add(&set, UINT64_MAX));
    assert_int_equal(set.count, 4);
    assert_true(gv_page_set_has(&set, 64));
    assert_false(gv_page_set_has(&set, 65));
    assert_false(gv_page_set_has(&set, 130));
    gv_page_set_remove(&set, 64);
    gv_page_set_remove(&set, 64);
    gv_page_set_remove(&set, 500);
    assert_false(gv_page_set_has(&set, 64));
    assert_int_equal(set.count, 3);
    gv_page_set_clear(&set);
    assert_int_equal(set.count, 0);
    assert_false(gv_page_set_has(&set, 0));
    gv_page_set_add_all(&set);
    assert_int_equal(set.count, 130);
    gv_page_set_free(&set);
}

static void test_slots(void **state)
{
    gv_page_set set, other;
    const int64_t slots[] = {0, 1, 255, 256, -1, INT64_MIN, 512, INT64_MAX, 1279, 1280};
    assert_true(gv_page_set_open(&set, 5));
    assert_true(gv_page_set_open(&other, 5));
    // Pages 0, 1, 2 and 4; two slots are beyond the last page.
    assert_int_equal(gv_page_set_add_slots(&set, slots, 10, 256), 2);
    assert_int_equal(set.count, 4);
    assert_false(gv_page_set_has(&set, 3));
    gv_page_set_add(&other, 1);
    gv_page_set_add(&other, 3);
    assert_int_equal(gv_page_set_without(&set, &other), 3);
    assert_int_equal(gv_page_set_without(&other, &set), 1);
    assert_int_equal(gv_page_set_add_slots(&set, NULL, 0, 1), 0);
    gv_page_set none;
    assert_true(gv_page_set_open(&none, 5));
    assert_int_equal(gv_page_set_next_only(&set, &other, &none, 0), 0);
    assert_int_equal(gv_page_set_next_only(&set, &other, &none, 1), 2);
    assert_int_equal(gv_page_set_next_only(&set, &other, &none, 3), 4);
    assert_int_equal(gv_page_set_next_only(&set, &none, &set, 0), 5);
    assert_int_equal(gv_page_set_next_only(&set, &none, &none, 5), 5);
    gv_page_set_add_set(&set, &other);
    assert_int_equal(set.count, 5);
    gv_page_set_add_set(&none, &other);
    assert_int_equal(none.count, 2);
    gv_page_set_free(&none);
    gv_page_set_free(&set);
    gv_page_set_free(&other);
}

static gv_pattern pattern(const char *text)
{
    gv_pattern read;
    const char *why = NULL;
    if (!gv_pattern_parse(text, strlen(text), &read, &why))
        fail_msg("%s: %s", text, why);
    return read;
}

static void test_patterns(void **state)
{
    gv_pattern p = pattern("const:size=4K..1M,page=2M,name=keys,stack=pool.py:12");
    assert_true(p.constant);
    assert_int_equal(p.least, 4096);
    assert_int_equal(p.most, 1 << 20);
    assert_int_equal(p.page_bytes, 2 << 20);
    assert_string_equal(p.name, "keys");
    assert_string_equal(p.stack, "pool.py:12");
    p = pattern("size=7");
    assert_false(p.constant);
    assert_int_equal(p.least, 7);
    assert_int_equal(p.most, 7);
    p = pattern("size=1G..");
    assert_int_equal(p.least, 1 << 30);
    assert_true(p.most == UINT64_MAX);
    p = pattern("name=a");
    assert_int_equal(p.least, 0);
    assert_true(p.most == UINT64_MAX);
}

static void test_patterns_without_sense(void **state)
{
    const char *const texts[] = {
        "",       "const:",     "size",     "size=", "size=x",  "size=9..3", "size=1..2x",
        "page=0", "page=1M..2", "colour=1", "name=", "size=-1", "size=1KK",  "size=99999999999999999999G"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        gv_pattern p;
        const char *why = NULL;
        if (gv_pattern_parse(texts[i], strlen(texts[i]), &p, &why))
            fail_msg("\"%s\" was taken for a pattern", texts[i]);
        assert_non_null(why);
    }
    char longest[200];
    gv_pattern p;
    const char *why = NULL;
    memset(longest, 'a', sizeof longest);
    memcpy(longest, "name=", 5);
    assert_false(gv_pattern_parse(longest, sizeof longest, &p, &why));
    assert_false(gv_pattern_parse(longest, 100, &p, &why)); // the name alone is too long
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_patterns_without_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
