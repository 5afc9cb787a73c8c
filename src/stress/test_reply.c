// Replies put together from events and bodies: what is taken, what fails and why.
#include "stress/reply.h"

#include "base/memory.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static gv_reply new_reply(void)
{
    return (gv_reply){.limit = 1000};
}

static bool event(gv_reply *reply, const char *text)
{
    return gv_reply_event(reply, text, strlen(text));
}

#define DELTA(inner)   "{\"choices\":[{\"index\":0,\"delta\":" inner ",\"finish_reason\":null}]}"
#define FINISH(reason) "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"" reason "\"}]}"

static void test_text_stream(void **state)
{
    gv_reply reply = new_reply();
    assert_true(event(&reply, DELTA("{\"role\":\"assistant\",\"content\":\"\"}")));
    assert_true(event(&reply, DELTA("{\"reasoning_content\":\"hm\"}")));
    assert_true(event(&reply, DELTA("{\"content\":\"one \"}")));
    assert_true(event(&reply, DELTA("{\"content\":\"two\",\"tool_calls\":null}")));
    assert_true(event(&reply, FINISH("stop")));
    assert_true(event(&reply, "{\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}"));
    assert_true(event(&reply, "[DONE]"));
    // What comes after the end is no part of the answer.
    assert_true(event(&reply, "nonsense"));
    gv_reply_end(&reply, true);
    assert_false(reply.failed);
    assert_true(gv_reply_has_answer(&reply));
    assert_string_equal(reply.content.text, "one two");
    assert_string_equal(reply.reasoning.text, "hm");
    assert_string_equal(reply.finish, "stop");
    assert_int_equal(reply.pieces, 3);
    assert_int_equal(reply.prompt_tokens, 7);
    assert_int_equal(reply.completion_tokens, 3);
    assert_int_equal(reply.bytes, 9);
    gv_reply_free(&reply);
}

static void test_call_stream(void **state)
{
    gv_reply reply = new_reply();
    // Two calls in turns, the id repeated, the name in pieces.
    assert_true(
        event(&reply, DELTA("{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"op\",\"arguments\":"
                            "\"\"}}]}")));
    assert_true(event(&reply, DELTA("{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"en\"}}]}")));
    assert_true(
        event(&reply, DELTA("{\"tool_calls\":[{\"index\":1,\"id\":\"b\",\"function\":{\"name\":\"shut\",\"arguments\":"
                            "\"{}\"}}]}")));
    assert_true(event(&reply, DELTA("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"x\\\":\"}}]}")));
    assert_true(event(&reply, DELTA("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"1}\"}}]}")));
    assert_true(event(&reply, FINISH("tool_calls")));
    assert_true(event(&reply, "[DONE]"));
    gv_reply_end(&reply, true);
    assert_false(reply.failed);
    assert_int_equal(reply.call_count, 2);
    assert_string_equal(reply.calls[0].id.text, "a");
    assert_string_equal(reply.calls[0].name.text, "open");
    assert_string_equal(reply.calls[0].arguments.text, "{\"x\":1}");
    assert_string_equal(reply.calls[1].name.text, "shut");
    gv_reply_free(&reply);
}

static void test_body(void **state)
{
    gv_reply reply = new_reply();
    const char text[] = "{\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":"
                        "\"a\",\"type\":\"function\","
                        "\"function\":{\"name\":\"open\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}],"
                        "\"usage\":{\"prompt_tokens\":"
                        "1,\"completion_tokens\":2}}";
    assert_true(gv_reply_body(&reply, text, sizeof text - 1));
    gv_reply_end(&reply, false);
    assert_false(reply.failed);
    assert_int_equal(reply.call_count, 1);
    assert_string_equal(reply.calls[0].name.text, "open");
    assert_true(reply.has_usage);
    gv_reply_free(&reply);
}

static void test_nul_and_escapes(void **state)
{
    gv_reply reply = new_reply();
    assert_true(event(&reply, DELTA("{\"content\":\"a\\u0000b\\ud83d\\ude00\"}")));
    assert_int_equal(reply.content.length, 7);
    assert_memory_equal(reply.content.text, "a\0b\xf0\x9f\x98\x80", 7);
    gv_reply_free(&reply);
}

static void test_failures(void **state)
{
    static const struct {
        const char *text;
        gv_reason reason;
        const char *said;
    } cases[] = {
        {"<html>", GV_REASON_NOT_JSON, "<html>"},
        {"", GV_REASON_NOT_JSON, "an event"},
        {"{\"choices\":", GV_REASON_NOT_JSON, "an event"},
        {"7", GV_REASON_NOT_JSON, "an event"},
        {"[1]", GV_REASON_WRONG_SCHEMA, "no JSON object"},
        {"{}", GV_REASON_WRONG_SCHEMA, "no list `choices`"},
        {"{\"choices\":{}}", GV_REASON_WRONG_SCHEMA, "no list `choices`"},
        {"{\"choices\":[{\"delta\":[]}]}", GV_REASON_WRONG_SCHEMA, "choices[0].delta"},
        {DELTA("{\"content\":7}"), GV_REASON_WRONG_SCHEMA, "`content` is no text"},
        {DELTA("{\"tool_calls\":{}}"), GV_REASON_WRONG_SCHEMA, "`tool_calls` is no list"},
        {DELTA("{\"tool_calls\":[7]}"), GV_REASON_WRONG_SCHEMA, "no object"},
        {DELTA("{\"tool_calls\":[{\"index\":-1}]}"), GV_REASON_WRONG_SCHEMA, "`index`"},
        {DELTA("{\"tool_calls\":[{\"index\":\"x\"}]}"), GV_REASON_WRONG_SCHEMA, "`index`"},
        {DELTA("{\"tool_calls\":[{\"index\":32}]}"), GV_REASON_TOO_LARGE, "tool calls"},
        {DELTA("{\"tool_calls\":[{\"index\":0,\"function\":7}]}"), GV_REASON_WRONG_SCHEMA, "`function`"},
        {DELTA("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":{}}}]}"), GV_REASON_WRONG_SCHEMA,
         "is an object"},
        {"{\"error\":{\"message\":\"no\\u001b[2J memory\"}}", GV_REASON_SERVER_ERROR, "no\\x1b[2J memory"},
        {"{\"error\":\"text\"}", GV_REASON_SERVER_ERROR, "text"},
        {"{\"object\":\"error\",\"message\":\"flat\"}", GV_REASON_SERVER_ERROR, "flat"},
        {"{\"error\":{}}", GV_REASON_SERVER_ERROR, "without a message"},
        {DELTA("{\"content\":\"a\xff\"}"), GV_REASON_INVALID_UTF8, "0xff"},
        {DELTA("{\"content\":\"\xed\xa0\x80\"}"), GV_REASON_INVALID_UTF8, "0xed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gv_reply reply = new_reply();
        assert_false(event(&reply, cases[i].text));
        assert_true(reply.failed);
        if (reply.reason != cases[i].reason || !strstr(reply.detail, cases[i].said))
            print_message("%s: %s %s\n", cases[i].text, gv_reason_id(reply.reason), reply.detail);
        assert_int_equal(reply.reason, cases[i].reason);
        assert_non_null(strstr(reply.detail, cases[i].said));
        // The first failure stays.
        assert_false(event(&reply, "[DONE]"));
        gv_reply_end(&reply, true);
        assert_int_equal(reply.reason, cases[i].reason);
        assert_false(gv_reply_has_answer(&reply));
        gv_reply_free(&reply);
    }
}

static void test_body_failures(void **state)
{
    static const struct {
        const char *text;
        gv_reason reason;
    } cases[] = {
        {"", GV_REASON_NOT_JSON},
        {"{\"choices\":[]}", GV_REASON_WRONG_SCHEMA},
        {"{\"choices\":[{\"finish_reason\":\"stop\"}]}", GV_REASON_WRONG_SCHEMA},
        {"{\"choices\":[{\"message\":{\"content\":\"a\"}}]}", GV_REASON_CUT},
        {"{\"choices\":[{\"message\":{\"content\":\"a\"},\"finish_reason\":null}]}", GV_REASON_CUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gv_reply reply = new_reply();
        gv_reply_body(&reply, cases[i].text, strlen(cases[i].text));
        gv_reply_end(&reply, false);
        assert_true(reply.failed);
        assert_int_equal(reply.reason, cases[i].reason);
        gv_reply_free(&reply);
    }
}

static void test_ends(void **state)
{
    gv_reply reply = new_reply();
    event(&reply, DELTA("{\"content\":\"a\"}"));
    gv_reply_end(&reply, true);
    assert_int_equal(reply.reason, GV_REASON_CUT);
    gv_reply_free(&reply);

    reply = new_reply();
    event(&reply, FINISH("stop"));
    gv_reply_end(&reply, true);
    assert_int_equal(reply.reason, GV_REASON_NO_DONE);
    assert_true(gv_reply_has_answer(&reply));
    gv_reply_free(&reply);

    // A call that the server skipped.
    reply = new_reply();
    event(&reply, DELTA("{\"tool_calls\":[{\"index\":1,\"id\":\"b\"}]}"));
    event(&reply, FINISH("tool_calls"));
    event(&reply, "[DONE]");
    gv_reply_end(&reply, true);
    assert_int_equal(reply.reason, GV_REASON_WRONG_SCHEMA);
    gv_reply_free(&reply);
}

static void test_cut_characters(void **state)
{
    // 29 letters and a character of three bytes: the buffer of finish_reason would end inside it.
    gv_reply reply = new_reply();
    size_t bad;
    assert_true(event(&reply, FINISH("aaaaaaaaaaaaaaaaaaaaaaaaaaaaa\xe2\x82\xac\xe2\x82\xac")));
    assert_string_equal(reply.finish, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    char long_text[400];
    for (size_t i = 0; i + 2 < sizeof long_text; i += 2)
        memcpy(long_text + i, "\xc3\xa4", 3);
    gv_reply_fail(&reply, GV_REASON_RESET, "a%s", long_text);
    assert_true(gv_utf8_check(reply.detail, strlen(reply.detail), &bad));
    assert_int_equal(strlen(reply.detail), 255);
    gv_reply_free(&reply);
}

static void test_limit(void **state)
{
    gv_reply reply = {.limit = 10};
    assert_true(event(&reply, DELTA("{\"content\":\"12345\"}")));
    assert_true(event(&reply, DELTA("{\"reasoning\":\"12345\"}")));
    assert_false(event(&reply, DELTA("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"1\"}}]}")));
    assert_int_equal(reply.reason, GV_REASON_TOO_LARGE);
    gv_reply_free(&reply);
}

static void test_no_memory(void **state)
{
    json_set_alloc_funcs(gv_malloc, gv_free);
    bool succeeded = false;
    for (long n = 0; !succeeded; n++) {
        gv_reply reply = new_reply();
        gv_memory_fail_after(n);
        event(&reply, DELTA("{\"content\":\"a\",\"tool_calls\":[{\"index\":0,\"id\":\"x\",\"function\":{\"name\":\"f\","
                            "\"arguments\":"
                            "\"{}\"}}]}"));
        gv_memory_fail_after(-1);
        succeeded = !reply.failed;
        if (!succeeded)
            assert_int_equal(gv_reason_class(reply.reason), GV_CLASS_FAILURE);
        gv_reply_free(&reply);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_stream),    cmocka_unit_test(test_call_stream),
        cmocka_unit_test(test_body),           cmocka_unit_test(test_nul_and_escapes),
        cmocka_unit_test(test_failures),       cmocka_unit_test(test_body_failures),
        cmocka_unit_test(test_ends),           cmocka_unit_test(test_limit),
        cmocka_unit_test(test_cut_characters), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
