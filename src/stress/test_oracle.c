// The oracles: every reason from a reply that has it, beside a reply that is right; texts, schemas and loops.
#include "stress/oracle.h"
#include "stress/schema.h"
#include "stress/secret.h"
#include "stress/text_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"depot\":{\"type\":\"string\"},\"lane\":{\"type\":\"integer\"}},"
    "\"required\":[\"depot\",\"lane\"],\"additionalProperties\":false}";

typedef struct setting {
    json_t *parameters, *arguments;
    gv_tool tools[2];
    gv_tools all;
    gv_expectation call, text, nothing;
} setting;

static setting set_up(void)
{
    setting s = {.parameters = json_loads(schema, 0, NULL),
                 .arguments = json_loads("{\"depot\":\"Marl\",\"lane\":3}", 0, NULL)};
    assert_non_null(s.parameters);
    s.call = (gv_expectation){.tool = "open_gate", .arguments = s.arguments};
    s.text = (gv_expectation){.text = "4711"};
    return s;
}

static void judge(setting *s, const gv_expectation *expected, const char *content, const char *name,
                  const char *arguments, const char *finish, gv_judgement *judgement)
{
    s->tools[0] = (gv_tool){"open_gate", s->parameters};
    s->tools[1] = (gv_tool){"shut_gate", NULL};
    static const char *const fragments[] = {"@@MARK", NULL};
    s->all = (gv_tools){s->tools, 2, fragments};
    gv_call calls[2] = {0};
    gv_reply reply = {.limit = 100000, .done = true};
    gv_string_add(&reply.content, "%s", content);
    snprintf(reply.finish, sizeof reply.finish, "%s", finish);
    if (name) {
        reply.calls = calls;
        reply.call_count = 1;
        gv_string_add(&calls[0].name, "%s", name);
        gv_string_add(&calls[0].arguments, "%s", arguments);
    }
    gv_judge(&s->all, expected, &reply, judgement);
    gv_string_free(&calls[0].name);
    gv_string_free(&calls[0].arguments);
    reply.calls = NULL;
    gv_reply_free(&reply);
}

static void tear_down(setting *s)
{
    json_decref(s->parameters);
    json_decref(s->arguments);
}

static void test_calls(void **state)
{
    static const struct {
        const char *content, *name, *arguments, *finish;
        gv_reasons reasons;
        const char *said;
    } cases[] = {
        {"", "open_gate", "{\"depot\":\"Marl\",\"lane\":3}", "tool_calls", 0, ""},
        {"I will do that.", "open_gate", " { \"lane\" : 3.0, \"depot\":\"Marl\" } ", "stop", 0, ""},
        {"", "open_gate", "{\"depot\":\"Marl\",\"lane\":3}", "length", 0, ""},
        {"", "open_gate", "{\"depot\":\"Marm\",\"lane\":3}", "tool_calls", GV_REASON_BIT(GV_REASON_WRONG_ARGUMENTS),
         "`depot` is \"Marm\", and \"Marl\" was expected"},
        {"", "open_gate", "{\"depot\":\"marl\",\"lane\":3}", "tool_calls", GV_REASON_BIT(GV_REASON_WRONG_ARGUMENTS),
         "marl"},
        {"", "open_gate", "{\"depot\":\"Marl\",\"lane\":\"3\"}", "tool_calls", GV_REASON_BIT(GV_REASON_WRONG_TYPE),
         "`lane` should be of type integer, and is a string"},
        {"", "open_gate", "{\"depot\":\"Marl\"}", "tool_calls", GV_REASON_BIT(GV_REASON_WRONG_TYPE),
         "`lane` is missing"},
        {"", "open_gate", "{\"depot\":\"Marl\",\"lane\":3,\"x\":1}", "tool_calls", GV_REASON_BIT(GV_REASON_WRONG_TYPE),
         "`x` is not in the schema"},
        {"", "open_gate", "{\"depot\":\"Marl\",\"lane\"", "tool_calls", GV_REASON_BIT(GV_REASON_BAD_JSON), ""},
        {"", "open_gate", "\"text\"", "tool_calls", GV_REASON_BIT(GV_REASON_BAD_JSON), "a string, not an object"},
        {"", "open_gate", "{\"depot\":\"Marl\",\"lane\"", "length", GV_REASON_BIT(GV_REASON_LENGTH_IN_CALL),
         "22 bytes"},
        {"", "shut_gate", "", "tool_calls", GV_REASON_BIT(GV_REASON_WRONG_TOOL), "`shut_gate` was called"},
        {"", "eat_gate", "{}", "tool_calls", GV_REASON_BIT(GV_REASON_UNKNOWN_TOOL), "no tool \"eat_gate\""},
        {"No.", NULL, NULL, "stop", GV_REASON_BIT(GV_REASON_NO_CALL), "\"No.\""},
        {"No", NULL, NULL, "length", GV_REASON_BIT(GV_REASON_LENGTH_NO_CALL), "2 bytes of text"},
        {"<|im_start|>", "open_gate", "{\"depot\":\"Marl\",\"lane\":3}", "tool_calls",
         GV_REASON_BIT(GV_REASON_TEMPLATE_FRAGMENT), "<|im_start|>"},
        {"@@MARK", "open_gate", "{\"depot\":\"Marl\",\"lane\":3}", "tool_calls",
         GV_REASON_BIT(GV_REASON_TEMPLATE_FRAGMENT), "@@MARK"},
        {"", "open_gate", "{\"depot\":\"Marl</tool_call>\",\"lane\":3}", "tool_calls",
         GV_REASON_BIT(GV_REASON_TEMPLATE_FRAGMENT) | GV_REASON_BIT(GV_REASON_WRONG_ARGUMENTS), "an argument holds"},
        {"a\xef\xbf\xbd", "open_gate", "{\"depot\":\"Marl\",\"lane\":3}", "tool_calls",
         GV_REASON_BIT(GV_REASON_GARBLED), "byte 1 of the text"},
        {"", NULL, NULL, "content_filter", GV_REASON_BIT(GV_REASON_REFUSAL), "refused"},
    };
    setting s = set_up();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gv_judgement judgement;
        judge(&s, &s.call, cases[i].content, cases[i].name, cases[i].arguments, cases[i].finish, &judgement);
        if (judgement.reasons != cases[i].reasons || !strstr(judgement.detail, cases[i].said))
            print_message("case %zu: %s\n", i, judgement.detail);
        assert_true(judgement.reasons == cases[i].reasons);
        assert_non_null(strstr(judgement.detail, cases[i].said));
    }
    tear_down(&s);
}

static void test_texts(void **state)
{
    setting s = set_up();
    gv_judgement judgement;
    judge(&s, &s.text, "The code is 4711.", NULL, NULL, "stop", &judgement);
    assert_true(judgement.reasons == 0);
    judge(&s, &s.text, "The code is 4712.", NULL, NULL, "stop", &judgement);
    assert_true(judgement.reasons == GV_REASON_BIT(GV_REASON_WRONG_TEXT));
    judge(&s, &s.text, "4711", "shut_gate", "{}", "tool_calls", &judgement);
    assert_true(judgement.reasons == GV_REASON_BIT(GV_REASON_EXTRA_CALL));
    // Nothing expected: only what is wrong in itself is found.
    judge(&s, &s.nothing, "anything", NULL, NULL, "length", &judgement);
    assert_true(judgement.reasons == 0);
    judge(&s, &s.nothing, "", "open_gate", "{\"depot\":1}", "tool_calls", &judgement);
    assert_true(judgement.reasons == GV_REASON_BIT(GV_REASON_WRONG_TYPE));
    tear_down(&s);
}

static void test_hashes(void **state)
{
    setting s = set_up();
    gv_judgement a, b, c;
    judge(&s, &s.nothing, "x", "open_gate", "{\"depot\":\"Marl\",\"lane\":3}", "stop", &a);
    judge(&s, &s.nothing, "x", "open_gate", "{ \"lane\":3, \"depot\":\"Marl\" }", "stop", &b);
    judge(&s, &s.nothing, "y", "open_gate", "{\"depot\":\"Marl\",\"lane\":4}", "stop", &c);
    assert_true(a.calls == b.calls);
    assert_true(a.calls != c.calls);
    assert_true(a.text == b.text);
    assert_true(a.text != c.text);
    tear_down(&s);
}

static void test_several_calls(void **state)
{
    setting s = set_up();
    s.tools[0] = (gv_tool){"open_gate", s.parameters};
    s.all = (gv_tools){s.tools, 1, NULL};
    gv_call calls[2] = {0};
    gv_reply reply = {.limit = 1000, .calls = calls, .call_count = 2, .finish = "tool_calls"};
    for (int i = 0; i < 2; i++) {
        gv_string_add(&calls[i].name, "open_gate");
        gv_string_add(&calls[i].arguments, "{\"depot\":\"Marl\",\"lane\":3}");
    }
    gv_judgement judgement;
    gv_judge(&s.all, &s.call, &reply, &judgement);
    assert_true(judgement.reasons == GV_REASON_BIT(GV_REASON_EXTRA_CALL));
    for (int i = 0; i < 2; i++) {
        gv_string_free(&calls[i].name);
        gv_string_free(&calls[i].arguments);
    }
    tear_down(&s);
}

static void test_failed_replies(void **state)
{
    setting s = set_up();
    gv_judgement judgement;
    gv_reply reply = {.limit = 10};
    gv_reply_fail(&reply, GV_REASON_TIMEOUT, "after %d s", 3);
    gv_judge(&s.all, &s.call, &reply, &judgement);
    assert_true(judgement.reasons == GV_REASON_BIT(GV_REASON_TIMEOUT));
    assert_string_equal(judgement.detail, "after 3 s");
    assert_int_equal(gv_reasons_class(judgement.reasons), GV_CLASS_FAILURE);

    // A stream without [DONE] is judged all the same: corruption outweighs it.
    reply = (gv_reply){.limit = 10, .finish = "stop"};
    gv_reply_end(&reply, true);
    gv_judge(&s.all, &s.call, &reply, &judgement);
    assert_true(judgement.reasons == (GV_REASON_BIT(GV_REASON_NO_DONE) | GV_REASON_BIT(GV_REASON_NO_CALL)));
    assert_int_equal(gv_reasons_class(judgement.reasons), GV_CLASS_CORRUPTION);
    assert_int_equal(gv_reasons_leading(judgement.reasons), GV_REASON_NO_CALL);
    tear_down(&s);
}

static void test_reasons(void **state)
{
    assert_int_equal(gv_reasons_class(0), GV_CLASS_CLEAN);
    assert_int_equal(gv_reasons_leading(0), GV_REASON_COUNT);
    for (unsigned i = 0; i < GV_REASON_COUNT; i++) {
        assert_true(gv_reason_class((gv_reason)i) != GV_CLASS_CLEAN);
        assert_true(gv_reason_id((gv_reason)i)[0] && gv_reason_about((gv_reason)i)[0]);
        for (unsigned j = 0; j < i; j++)
            assert_string_not_equal(gv_reason_id((gv_reason)i), gv_reason_id((gv_reason)j));
    }
    assert_string_equal(gv_reason_id(GV_REASON_COUNT), "unknown");
    assert_string_equal(gv_class_name(GV_CLASS_CORRUPTION), "corruption");
}

static void check_schema(const char *schema_text, const char *value_text, bool fits, const char *said)
{
    json_t *rules = json_loads(schema_text, JSON_DECODE_ANY, NULL),
           *value = json_loads(value_text, JSON_DECODE_ANY, NULL);
    assert_non_null(rules);
    assert_non_null(value);
    char problem[200] = "";
    bool found = gv_schema_check(rules, value, problem, sizeof problem);
    if (found != fits || (said && !strstr(problem, said)))
        print_message("%s against %s: %s\n", value_text, schema_text, problem);
    assert_int_equal(found, fits);
    if (said)
        assert_non_null(strstr(problem, said));
    json_decref(rules);
    json_decref(value);
}

static void test_schema(void **state)
{
    check_schema("{\"type\":\"integer\"}", "3", true, NULL);
    check_schema("{\"type\":\"integer\"}", "3.0", true, NULL);
    check_schema("{\"type\":\"integer\"}", "3.5", false, "the arguments should be of type integer");
    check_schema("{\"type\":\"number\"}", "3", true, NULL);
    check_schema("{\"type\":\"number\"}", "\"3\"", false, "a string");
    check_schema("{\"type\":[\"string\",\"null\"]}", "null", true, NULL);
    check_schema("{\"type\":[\"string\",\"null\"]}", "true", false, "a boolean");
    check_schema("{\"enum\":[\"a\",\"b\"]}", "\"b\"", true, NULL);
    check_schema("{\"enum\":[\"a\",\"b\"]}", "\"c\"", false, "none of the values");
    check_schema("{\"const\":7}", "7", true, NULL);
    check_schema("{\"const\":7}", "8", false, "not the value");
    check_schema("{\"minimum\":1,\"maximum\":9}", "9", true, NULL);
    check_schema("{\"minimum\":1,\"maximum\":9}", "0", false, "minimum");
    check_schema("{\"minimum\":1,\"maximum\":9}", "10", false, "maximum");
    check_schema("{\"minLength\":2,\"maxLength\":3}", "\"\xc3\xa4\xc3\xb6\xc3\xbc\"", true, NULL);
    check_schema("{\"maxLength\":3}", "\"abcd\"", false, "maxLength");
    check_schema("{\"items\":{\"type\":\"string\"},\"minItems\":1}", "[\"a\"]", true, NULL);
    check_schema("{\"items\":{\"type\":\"string\"}}", "[\"a\",7]", false, "`[1]` should be of type string");
    check_schema("{\"minItems\":1}", "[]", false, "minItems");
    check_schema("{\"properties\":{\"a\":{\"properties\":{\"b\":{\"type\":\"string\"}}}}}", "{\"a\":{\"b\":1}}", false,
                 "`a.b`");
    check_schema("{\"required\":[\"a\"]}", "{}", false, "`a` is missing");
    check_schema("{\"properties\":{},\"additionalProperties\":false}", "{\"a\":1}", false, "`a` is not in the schema");
    // Unknown keywords and nonsense never make a mistake up.
    check_schema("{\"pattern\":\"^x\",\"type\":7,\"required\":{},\"enum\":3,\"properties\":[]}", "\"y\"", true, NULL);
    check_schema("true", "3", true, NULL);
}

static void test_loops(void **state)
{
    char text[40000];
    gv_loop loop;
    size_t length = 0;
    // A piece of 12 bytes, again and again behind an honest beginning.
    length = (size_t)snprintf(text, sizeof text, "Let me look at the records first. ");
    for (int i = 0; i < 40; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "the code is ");
    assert_true(gv_find_loop(text, length, &loop));
    assert_int_equal(loop.period, 12);
    // Too short to tell.
    assert_false(gv_find_loop(text, 300, &loop));
    // One character.
    memset(text, '!', 500);
    assert_true(gv_find_loop(text, 500, &loop));
    assert_int_equal(loop.period, 1);
    // Turns that differ a little: found by their words.
    length = 0;
    for (int i = 0; i < 100; i++)
        length += (size_t)snprintf(text + length, sizeof text - length,
                                   "I should check the list once more, then try again with care%s ",
                                   i % 7 == 0 ? ", item" : ".");
    assert_true(gv_find_loop(text, length, &loop));
    // Honest texts: prose whose words vary, a table, a list of numbers.
    length = 0;
    for (int i = 0; i < 400; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "Depot %d has code %d and holds %d litres. ",
                                   i * 7919 % 1000, i * 104729 % 999983, i * 31337 % 9999);
    assert_false(gv_find_loop(text, length, &loop));
    length = 0;
    for (int i = 0; i < 30; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "| %d | value %d |\n|---|---|\n", i, i * i);
    assert_false(gv_find_loop(text, length, &loop));
    // A loop that ended long ago, with much honest text behind it, is beyond the window.
    memset(text, 'x', 1000);
    length = 1000;
    for (int i = 0; length < 30000; i++)
        length +=
            (size_t)snprintf(text + length, sizeof text - length, "line %d of many, %x ", i, (unsigned)i * 2654435761u);
    assert_false(gv_find_loop(text, length, &loop));
}

static void test_fragments(void **state)
{
    size_t at;
    assert_null(gv_find_fragment("a < b and [x] \xef\xbc\x81", 17, NULL));
    assert_string_equal(gv_find_fragment("x <\xef\xbd\x9c"
                                         "DSML",
                                         11, NULL),
                        "<\xef\xbd\x9c");
    assert_string_equal(gv_find_fragment("a[TOOL_CALLS]b", 14, NULL), "[TOOL_CALLS]");
    // The end of the text is respected.
    assert_null(gv_find_fragment("<|im_start|>", 11, NULL));
    for (size_t i = 0; gv_template_fragments[i]; i++)
        assert_non_null(gv_find_fragment(gv_template_fragments[i], strlen(gv_template_fragments[i]), NULL));
    assert_false(gv_find_garbled("tab\tline\r\n\xc3\xa4", 12, &at));
    assert_true(gv_find_garbled("a\0b", 3, &at));
    assert_int_equal(at, 1);
    assert_true(gv_find_garbled("ab\x7f", 3, &at));
    assert_true(gv_find_garbled("ab\x1b[0m", 6, &at));
    assert_int_equal(at, 2);
}

static void redacted(const char *text, const char *key, const char *expected)
{
    char copy[200];
    snprintf(copy, sizeof copy, "%s", text);
    gv_redact(copy, strlen(copy), key);
    assert_string_equal(copy, expected);
}

static void test_secret(void **state)
{
    redacted("a sk-0123456789 b sk-0123456789", "sk-0123456789", "a ************* b *************");
    // A message that was cut inside the key.
    redacted("key: sk-012345", "sk-0123456789", "key: *********");
    redacted("key: sk-01", "sk-0123456789", "key: sk-01");
    redacted("abc abc", "abc", "abc abc");
    redacted("abcd abcd", "abcd", "**** ****");
    redacted("anything", NULL, "anything");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),         cmocka_unit_test(test_texts),          cmocka_unit_test(test_hashes),
        cmocka_unit_test(test_several_calls), cmocka_unit_test(test_failed_replies), cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_schema),        cmocka_unit_test(test_loops),          cmocka_unit_test(test_fragments),
        cmocka_unit_test(test_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
