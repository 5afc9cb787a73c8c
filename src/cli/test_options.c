// Unit tests of cli/options.c: parsing, and the nearest name.
#include "base/memory.h"
#include "cli/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { OPTION_LONG = 256, OPTION_VALUE };
static const gv_option options[] = {
    {OPTION_LONG, "long", NULL, "A flag."},
    {OPTION_VALUE, "value", "N", "A number."},
    {'s', "short", "TEXT", "A text."},
};
static const gv_command mixed = {.name = "mixed", .synopsis = "", .about = "", GV_OPTIONS(options), .closing = ""};
static const gv_command stops = {
    .name = "stops", .synopsis = "", .about = "", GV_OPTIONS(options), .closing = "", .stops_at_operand = true};

static void options_and_operands_mix(void **state)
{
    char *argv[] = {"mixed", "one", "--long", "two", "-s", "text", "--value=7", "--", "--long", NULL};
    gv_parser parser = gv_parser_open(&mixed, 9, argv);
    assert_int_equal(gv_parse_next(&parser), OPTION_LONG);
    assert_int_equal(gv_parse_next(&parser), 's');
    assert_string_equal(parser.argument, "text");
    assert_int_equal(gv_parse_next(&parser), OPTION_VALUE);
    uint64_t number = 0;
    assert_true(gv_parse_number(&parser, "--value", 1, 7, &number));
    assert_int_equal(number, 7);
    assert_int_equal(gv_parse_next(&parser), GV_PARSE_END);
    assert_int_equal(9 - parser.first_operand, 3);
    assert_string_equal(argv[parser.first_operand], "one");
    assert_string_equal(argv[parser.first_operand + 2], "--long");
}

static void options_end_at_the_program(void **state)
{
    char *argv[] = {"stops", "--long", "program", "--long", "-s", NULL};
    gv_parser parser = gv_parser_open(&stops, 5, argv);
    assert_int_equal(gv_parse_next(&parser), OPTION_LONG);
    assert_int_equal(gv_parse_next(&parser), GV_PARSE_END);
    assert_string_equal(argv[parser.first_operand], "program");
}

static void numbers_are_checked(void **state)
{
    static char *const bad[] = {"", "x", "-1", "+1", "1x", "0", "8", "99999999999999999999", " 1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gv_parser parser = {.command = &mixed, .argument = bad[i]};
        uint64_t number = 42;
        assert_false(gv_parse_number(&parser, "--value", 1, 7, &number));
        assert_int_equal(number, 42);
    }
}

static void mistakes_are_told(void **state)
{
    char *unknown[] = {"mixed", "operand", "--lnog", NULL};
    char *missing[] = {"mixed", "--value", NULL};
    char *extra[] = {"mixed", "--long=1", NULL};
    char *letter[] = {"mixed", "-x", NULL};
    struct {
        char **argv;
        int argc;
    } cases[] = {{unknown, 3}, {missing, 2}, {extra, 2}, {letter, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gv_parser parser = gv_parser_open(&mixed, cases[i].argc, cases[i].argv);
        assert_int_equal(gv_parse_next(&parser), GV_PARSE_BAD);
    }
}

static void the_nearest_name_is_offered(void **state)
{
    static const char *const names[] = {"run", "check", "show", "doctor"};
    assert_string_equal(gv_nearest("chekc", names, 4), "check");
    assert_string_equal(gv_nearest("docter", names, 4), "doctor");
    assert_string_equal(gv_nearest("rn", names, 4), "run");
    assert_null(gv_nearest("frobnicate", names, 4));
    assert_null(gv_nearest("", names, 4));
    assert_null(gv_nearest("a-name-that-is-longer-than-any-command-has", names, 4));
}

int main(void)
{
    // The messages are part of other tests.
    if (!freopen("/dev/null", "w", stderr))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_and_operands_mix),    cmocka_unit_test(options_end_at_the_program),
        cmocka_unit_test(numbers_are_checked),         cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(the_nearest_name_is_offered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
