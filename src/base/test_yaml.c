// The YAML tree: values, lines in messages, and what is refused.
#include "base/memory.h"
#include "base/yaml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static gv_yaml *parse(const char *text)
{
    gv_yaml *yaml = NULL;
    gv_error error = {0};
    gv_status status = gv_yaml_parse("a.yaml", text, strlen(text), &yaml, &error);
    if (status != GV_OK)
        print_message("%s\n", error.text);
    assert_int_equal(status, GV_OK);
    return yaml;
}

// Checks that the text is refused with a message that holds `said`.
static void refused(const char *text, size_t length, const char *said)
{
    gv_yaml *yaml = NULL;
    gv_error error = {0};
    assert_int_not_equal(gv_yaml_parse("a.yaml", text, length, &yaml, &error), GV_OK);
    assert_null(yaml);
    if (!strstr(error.text, said))
        print_message("said: %s\n", error.text);
    assert_non_null(strstr(error.text, said));
}

static void test_tree(void **state)
{
    gv_yaml *yaml = parse("# first\nname: depot\nlist:\n  - 1\n  - two: [a, 'b']\ntext: |\n  one\n  two\n");
    assert_int_equal(yaml->root->kind, GV_YAML_MAPPING);
    const gv_yaml_node *list = gv_yaml_get(yaml->root, "list");
    assert_int_equal(list->count, 2);
    assert_int_equal(list->items[1]->line, 5);
    const gv_yaml_node *two = gv_yaml_get(list->items[1], "two");
    assert_string_equal(two->items[0]->text, "a");
    assert_true(two->items[0]->plain);
    assert_false(two->items[1]->plain);
    assert_string_equal(gv_yaml_get(yaml->root, "text")->text, "one\ntwo\n");
    assert_null(gv_yaml_get(yaml->root, "nobody"));
    assert_null(gv_yaml_get(list, "nobody"));
    gv_yaml_free(yaml);
}

static void test_scalars(void **state)
{
    gv_yaml *yaml =
        parse("[~, null, true, FALSE, 7, -12, 1.5, 1e3, 'true', yes, 12abc, 0x10, '', 9999999999999999999]");
    const gv_yaml_type types[] = {GV_YAML_IS_NULL,    GV_YAML_IS_NULL,    GV_YAML_IS_BOOL,   GV_YAML_IS_BOOL,
                                  GV_YAML_IS_INTEGER, GV_YAML_IS_INTEGER, GV_YAML_IS_NUMBER, GV_YAML_IS_NUMBER,
                                  GV_YAML_IS_TEXT,    GV_YAML_IS_TEXT,    GV_YAML_IS_TEXT,   GV_YAML_IS_TEXT,
                                  GV_YAML_IS_TEXT,    GV_YAML_IS_NUMBER};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        assert_int_equal(gv_yaml_scalar_value(yaml->root->items[i]).type, types[i]);
    assert_int_equal(gv_yaml_scalar_value(yaml->root->items[5]).integer, -12);
    assert_true(gv_yaml_scalar_value(yaml->root->items[2]).boolean);
    assert_false(gv_yaml_scalar_value(yaml->root->items[3]).boolean);
    gv_yaml_free(yaml);
}

static void test_members(void **state)
{
    gv_yaml *yaml = parse("count: 7\nrate: 0.5\non: true\nname: x\nlist: [1]\n");
    gv_error error = {0};
    int64_t count = 0;
    double rate = 0;
    bool on = false;
    const char *name = "before";
    assert_int_equal(gv_yaml_integer(yaml, yaml->root, "count", 1, 10, &count, &error), GV_OK);
    assert_int_equal(count, 7);
    assert_int_equal(gv_yaml_number(yaml, yaml->root, "rate", 0, 1, &rate, &error), GV_OK);
    assert_true(rate == 0.5);
    assert_int_equal(gv_yaml_bool(yaml, yaml->root, "on", &on, &error), GV_OK);
    assert_true(on);
    assert_int_equal(gv_yaml_text(yaml, yaml->root, "absent", &name, &error), GV_OK);
    assert_string_equal(name, "before");
    assert_int_equal(gv_yaml_text(yaml, yaml->root, "name", &name, &error), GV_OK);
    assert_string_equal(name, "x");

    assert_int_equal(gv_yaml_integer(yaml, yaml->root, "count", 8, 10, &count, &error), GV_ERR_FORMAT);
    assert_string_equal(error.text, "a.yaml:1: `count` must be a whole number from 8 to 10, not \"7\"");
    assert_int_equal(gv_yaml_integer(yaml, yaml->root, "rate", 0, 10, &count, &error), GV_ERR_FORMAT);
    assert_int_equal(gv_yaml_number(yaml, yaml->root, "name", 0, 10, &rate, &error), GV_ERR_FORMAT);
    assert_int_equal(gv_yaml_bool(yaml, yaml->root, "count", &on, &error), GV_ERR_FORMAT);
    assert_string_equal(error.text, "a.yaml:1: `count` must be true or false, not \"7\"");
    assert_int_equal(gv_yaml_text(yaml, yaml->root, "list", &name, &error), GV_ERR_FORMAT);
    assert_string_equal(error.text, "a.yaml:5: `list` must be a single value, not a list");

    const char *known[] = {"count", "rate", "on", "name"};
    assert_int_equal(gv_yaml_expect_keys(yaml, yaml->root, "a plan", known, 4, &error), GV_ERR_FORMAT);
    assert_string_equal(error.text, "a.yaml:5: a plan has no key \"list\"; it can have: count, rate, on, name");
    assert_int_equal(gv_yaml_expect_keys(yaml, gv_yaml_get(yaml->root, "list"), "a plan", known, 4, &error),
                     GV_ERR_FORMAT);
    gv_yaml_free(yaml);
}

static void test_refused(void **state)
{
    struct {
        const char *text, *said;
    } cases[] = {
        {"", "a.yaml: the file is empty"},
        {"# only a comment\n", "the file is empty"},
        {"a: 1\nb: 2\na: 3\n", "a.yaml:3: the key \"a\" is there already, on line 1"},
        {"a: &x 1\n", "a.yaml:1: anchors (&x) are not supported"},
        {"a: [1]\nb: *a\n", "a.yaml:2: aliases (*a) are not supported"},
        {"a: !!int 3\n", "a.yaml:1: tags"},
        {"a: 1\n---\nb: 2\n", "a.yaml:2: a second document"},
        {"a:\n\t- 1\n", "a.yaml:2: "},
        {"a: b: c\n", "put quotes around text that holds"},
        {"a: [1, 2\n", "a.yaml:2: "},
        {"[a]: 1\n", "a key must be plain text"},
        {"a: \"x\\0y\"\n", "NUL"},
        {"\xff\xfe\x00\xd8", "a.yaml: byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(cases[i].text, i == sizeof cases / sizeof *cases - 1 ? 4 : strlen(cases[i].text), cases[i].said);
    char deep[200];
    memset(deep, '[', sizeof deep);
    refused(deep, sizeof deep, "more than 32 levels");
}

static void test_files(void **state)
{
    gv_yaml *yaml;
    gv_error error = {0};
    assert_int_equal(gv_yaml_load("no/such/file.yaml", &yaml, &error), GV_ERR_IO);
    assert_non_null(strstr(error.text, "no/such/file.yaml cannot be opened"));
    assert_int_equal(gv_yaml_load(".", &yaml, &error), GV_ERR_IO);
    assert_int_equal(gv_yaml_load("/dev/zero", &yaml, &error), GV_ERR_LIMIT);
}

static void test_no_memory(void **state)
{
    static const char text[] = "name: depot\nlist: [1, {two: [a, b]}]\n";
    bool succeeded = false;
    for (long n = 0; !succeeded; n++) {
        gv_yaml *yaml = NULL;
        gv_memory_fail_after(n);
        gv_status status = gv_yaml_parse("a.yaml", text, sizeof text - 1, &yaml, NULL);
        gv_memory_fail_after(-1);
        succeeded = status == GV_OK;
        if (!succeeded) {
            assert_int_equal(status, GV_ERR_MEMORY);
            assert_null(yaml);
        }
        gv_yaml_free(yaml);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree),    cmocka_unit_test(test_scalars), cmocka_unit_test(test_members),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_files),   cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
