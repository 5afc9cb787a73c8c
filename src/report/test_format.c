// Unit tests of report/format.c and report/json_writer.c: strings, numbers, foreign text, wrapping, JSON.
#include "base/memory.h"
#include "report/format.h"
#include "report/json_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void numbers_have_commas(void **state)
{
    assert_string_equal(gv_number(0), "0");
    assert_string_equal(gv_number(999), "999");
    assert_string_equal(gv_number(1000), "1,000");
    assert_string_equal(gv_number(2048), "2,048");
    assert_string_equal(gv_number(UINT64_MAX), "18,446,744,073,709,551,615");
    assert_string_equal(gv_count(1, "byte", "bytes"), "1 byte");
    assert_string_equal(gv_count(0, "byte", "bytes"), "0 bytes");
    assert_string_equal(gv_count(4194304, "byte", "bytes"), "4,194,304 bytes");
    // Eight results may stand in one call.
    char all[64];
    snprintf(all, sizeof all, "%s %s %s %s %s %s %s %s", gv_number(1), gv_number(2), gv_number(3), gv_number(4),
             gv_number(5), gv_number(6), gv_number(7), gv_number(8));
    assert_string_equal(all, "1 2 3 4 5 6 7 8");
}

static void strings_grow(void **state)
{
    gv_string string = {0};
    assert_string_equal(gv_string_text(&string), "");
    char expected[4096] = "";
    for (int i = 0; i < 300; i++) {
        gv_string_add(&string, "%d ", i);
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "%d ", i);
    }
    assert_string_equal(gv_string_text(&string), expected);
    assert_int_equal(string.length, strlen(expected));
    // Longer than what is formatted on the stack.
    gv_string_clear(&string);
    gv_string_add(&string, "[%1000s]", "x");
    assert_int_equal(string.length, 1002);
    assert_int_equal(gv_string_text(&string)[1000], 'x');
    gv_string_free(&string);
}

static void strings_remember_failure(void **state)
{
    gv_string string = {0};
    gv_string_add(&string, "kept");
    gv_memory_fail_after(0);
    gv_string_add(&string, "%100s", "lost");
    gv_memory_fail_after(-1);
    assert_true(string.failed);
    gv_string_add(&string, "not added either");
    assert_string_equal(gv_string_text(&string), "kept");
    gv_string_free(&string);
}

static void expect_safe(const char *text, const char *expected)
{
    gv_string string = {0};
    gv_string_add_safe(&string, text);
    assert_string_equal(gv_string_text(&string), expected);
    gv_string_free(&string);
}

static void foreign_text_cannot_steer_a_terminal(void **state)
{
    expect_safe("plain", "plain");
    expect_safe(NULL, "");
    expect_safe("\x1b[31m", "\\x1b[31m");
    expect_safe("a\nb\tc\rd", "a\\nb\\tc\\x0dd");
    expect_safe("\x7f", "\\x7f");
    expect_safe("\xc2\x9b"
                "2J",
                "\\xc2\\x9b2J"); // U+009B, the one-character form of ESC [
    expect_safe("caf\xc3\xa9 \xe2\x86\x92 \xf0\x9f\x99\x82", "caf\xc3\xa9 \xe2\x86\x92 \xf0\x9f\x99\x82");
    expect_safe("\xff\xfe", "\\xff\\xfe");
    expect_safe("\xc3", "\\xc3");                            // cut
    expect_safe("\xc0\xaf", "\\xc0\\xaf");                   // overlong
    expect_safe("\xed\xa0\x80", "\\xed\\xa0\\x80");          // a surrogate
    expect_safe("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"); // past U+10FFFF
}

static void expect_wrapped(const char *first, size_t indent, size_t width, const char *text, const char *expected)
{
    char *written = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&written, &size);
    gv_print_wrapped(out, first, indent, width, text);
    fclose(out);
    assert_string_equal(written, expected);
    free(written);
}

static void paragraphs_wrap(void **state)
{
    expect_wrapped("", 2, 20, "a few words", "a few words\n");
    expect_wrapped("", 2, 10, "a few words more", "a few\n  words\n  more\n");
    expect_wrapped("> ", 2, 12, "a few words", "> a few\n  words\n");
    expect_wrapped("label ", 6, 16, "0123456789 0", "label 0123456789\n      0\n");
    // A word that fits nowhere is left whole.
    expect_wrapped("", 2, 8, "a longer-than-the-line b", "a\n  longer-than-the-line\n  b\n");
    // Columns, not bytes.
    expect_wrapped("", 0, 9, "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9",
                   "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\n");
    expect_wrapped("", 2, 20, "", "\n");
}

static void json_is_written_as_it_goes(void **state)
{
    char *written = NULL;
    size_t size = 0;
    gv_json json = {.out = open_memstream(&written, &size)};
    gv_json_open(&json, NULL, '{');
    gv_json_text(&json, "text", "a \"b\" \\ \n \x01 \xc3\xa9 \xff");
    gv_json_text(&json, "none", NULL);
    gv_json_number(&json, "number", UINT64_MAX);
    gv_json_address(&json, "address", 0x7f0000001000);
    gv_json_open(&json, "empty", '[');
    gv_json_close(&json);
    gv_json_open_flat(&json, "flat", '[');
    gv_json_bool(&json, NULL, true);
    gv_json_open(&json, NULL, '{');
    gv_json_null(&json, "inner");
    gv_json_close(&json);
    gv_json_close(&json);
    gv_json_close(&json);
    fclose(json.out);
    assert_string_equal(written, "{\n"
                                 "  \"text\": \"a \\\"b\\\" \\\\ \\n \\u0001 \xc3\xa9 \xef\xbf\xbd\",\n"
                                 "  \"none\": null,\n"
                                 "  \"number\": 18446744073709551615,\n"
                                 "  \"address\": \"0x7f0000001000\",\n"
                                 "  \"empty\": [],\n"
                                 "  \"flat\": [true, {\"inner\": null}]\n"
                                 "}\n");
    free(written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_commas),      cmocka_unit_test(strings_grow),
        cmocka_unit_test(strings_remember_failure), cmocka_unit_test(foreign_text_cannot_steer_a_terminal),
        cmocka_unit_test(paragraphs_wrap),          cmocka_unit_test(json_is_written_as_it_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
