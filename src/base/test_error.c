// The error idiom: messages are formatted, cut where they do not fit, and prefixed without losing their own text.
#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_fail(void **state)
{
    gv_error error = {0};
    assert_int_equal(gv_fail(&error, GV_ERR_IO, "%s: %d", "file", 7), GV_ERR_IO);
    assert_int_equal(error.status, GV_ERR_IO);
    assert_string_equal(error.text, "file: 7");
    assert_int_equal(gv_fail(NULL, GV_ERR_LIMIT, "nobody listens"), GV_ERR_LIMIT);
}

static void test_long_message_is_cut(void **state)
{
    gv_error error = {0};
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    gv_fail(&error, GV_ERR_FORMAT, "%s", text);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    // A prefix pushes the end out, not the other way round.
    gv_error_prefix(&error, "name");
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    assert_memory_equal(error.text, "name: xxx", 9);
    // A prefix that would leave no room for the message is left out.
    gv_fail(&error, GV_ERR_FORMAT, "why");
    gv_error_prefix(&error, "%s", text);
    assert_string_equal(error.text, "why");
}

static void test_prefix(void **state)
{
    gv_error error = {0};
    gv_fail(&error, GV_ERR_FORMAT, "byte %d", 3);
    gv_error_prefix(&error, "%s", "a.gravel");
    gv_error_prefix(&error, "check");
    assert_string_equal(error.text, "check: a.gravel: byte 3");
    assert_int_equal(error.status, GV_ERR_FORMAT);
    gv_error_prefix(NULL, "nobody");
}

static void test_names(void **state)
{
    const char *names[] = {"ok", "memory", "io", "format", "version", "limit", "usage", "missing"};
    for (int i = GV_OK; i <= GV_ERR_MISSING; i++)
        assert_string_equal(gv_status_name((gv_status)i), names[i]);
    assert_string_equal(gv_status_name((gv_status)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail),
        cmocka_unit_test(test_long_message_is_cut),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
