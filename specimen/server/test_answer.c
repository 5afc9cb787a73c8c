// Content and tool calls out of the model's text, well-formed and corrupt, however it is cut into pieces.
#include "specimen/server/answer.h"

#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <string.h>

#define D                 "｜DSML｜"
#define CALL_OPEN         "<" D "tool_calls>\n"
#define CALL_CLOSE        "</" D "tool_calls>"
#define INVOKE(name)      "<" D "invoke name=\"" name "\">\n"
#define INVOKE_CLOSE      "</" D "invoke>\n"
#define TEXT(name, value) "<" D "parameter name=\"" name "\" string=\"true\">" value "</" D "parameter>\n"
#define JSON(name, value) "<" D "parameter name=\"" name "\" string=\"false\">" value "</" D "parameter>\n"

// Collects: content as it is, a call as "[name|arguments]".
static gv_text collected;
static bool in_call;

static void end_call(void)
{
    if (in_call)
        gv_text_add_string(&collected, "]");
    in_call = false;
}

static void on_content(void *context, const char *text, size_t length)
{
    assert_true(length > 0);
    gv_text_add(&collected, text, length);
}

static void on_call(void *context, const char *name, size_t length)
{
    end_call();
    in_call = true;
    gv_text_add_string(&collected, "[");
    gv_text_add(&collected, name, length);
    gv_text_add_string(&collected, "|");
}

static void on_arguments(void *context, const char *json, size_t length)
{
    assert_true(in_call);
    gv_text_add(&collected, json, length);
}

static gv_chat_tool tools[] = {{.name = "unlock"}, {.name = "seal"}};

typedef struct expectation {
    const char *text, *result;
    bool has_calls;
    size_t unknown;
} expectation;

// Feeds the text in pieces of `piece` bytes.
static void check(const gv_chat_request *request, const expectation *expected, size_t piece)
{
    const gv_answer_sink sink = {on_content, on_call, on_arguments, NULL};
    gv_answer answer;
    gv_answer_begin(&answer, request, &sink);
    size_t length = strlen(expected->text);
    bool wanted = true;
    for (size_t at = 0; at < length && wanted; at += piece)
        wanted = gv_answer_add(&answer, expected->text + at, piece < length - at ? piece : length - at);
    gv_answer_end(&answer);
    end_call();
    gv_text_add(&collected, "", 1);
    assert_string_equal(collected.data, expected->result);
    assert_int_equal(gv_answer_has_calls(&answer), expected->has_calls);
    assert_int_equal(answer.unknown_calls, expected->unknown);
    assert_false(answer.failed);
    gv_text_free(&collected);
    gv_answer_free(&answer);
}

static void check_all_cuts(const gv_chat_request *request, const expectation *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(rows[i].text);
        for (size_t piece = 1; piece <= length + 1; piece++)
            check(request, &rows[i], piece);
    }
}

static void calls_are_read(void **state)
{
    const gv_chat_request request = {.tools = tools, .tool_count = 2, .tool_choice = GV_TOOLS_AUTO};
    const expectation rows[] = {
        {"hello .", "hello .", false, 0},
        {CALL_OPEN INVOKE("unlock") TEXT("who", "Mira") TEXT("code", "red-otter") JSON("pin", "42")
             INVOKE_CLOSE CALL_CLOSE,
         "[unlock|{\"who\": \"Mira\", \"code\": \"red-otter\", \"pin\": 42}]", true, 0},
        {"first " CALL_OPEN INVOKE("seal") INVOKE_CLOSE INVOKE("unlock") TEXT("who", "") INVOKE_CLOSE CALL_CLOSE
         " after",
         "first [seal|{}][unlock|{\"who\": \"\"}]", true, 0},
        {CALL_OPEN "<" D "invoke name=\"seal\"/>" CALL_CLOSE, "[seal|{}]", true, 0},
        {CALL_OPEN INVOKE("seal") "{\"who\": 1}" INVOKE_CLOSE CALL_CLOSE, "[seal|{\"who\": 1}]", true, 0},
        {CALL_OPEN INVOKE("seal") TEXT("a\"b", "quote \" and \\ and \n") INVOKE_CLOSE CALL_CLOSE,
         "[seal|{\"a\": \"quote \\\" and \\\\ and \\n\"}]", true, 0},
        {CALL_OPEN CALL_CLOSE, "", false, 0},
        {"a < b <" D "tool", "a < b <" D "tool", false, 0},
    };
    check_all_cuts(&request, rows, sizeof rows / sizeof *rows);
}

// Each row of the table in docs/specimen-servers.md of how corruption reaches a client.
static void corrupt_text_never_becomes_a_right_call(void **state)
{
    const gv_chat_request request = {.tools = tools, .tool_count = 2, .tool_choice = GV_TOOLS_AUTO};
    const expectation rows[] = {
        // No opening tag.
        {INVOKE("unlock") TEXT("who", "Mira") INVOKE_CLOSE CALL_CLOSE,
         INVOKE("unlock") TEXT("who", "Mira") INVOKE_CLOSE CALL_CLOSE, false, 0},
        // No closing tag: what was streamed was streamed, but there is no call.
        {"x" CALL_OPEN INVOKE("unlock") TEXT("who", "Mira") "<" D "parameter name=\"code\" string=\"true\">red",
         "x[unlock|{\"who\": \"Mira\"]", false, 0},
        {CALL_OPEN INVOKE("unlock") INVOKE_CLOSE, "[unlock|{}]", false, 0},
        // JSON that is none.
        {CALL_OPEN INVOKE("unlock") JSON("pin", "4otter2") INVOKE_CLOSE CALL_CLOSE, "[unlock|{\"pin\": \"4otter2\"}]",
         true, 0},
        // A function that was not offered.
        {CALL_OPEN INVOKE("destroy") TEXT("who", "Mira") INVOKE_CLOSE INVOKE("seal") INVOKE_CLOSE CALL_CLOSE,
         "[seal|{}]", true, 1},
        // Words between the parts.
        {CALL_OPEN "otter otter" INVOKE("seal") " heron " TEXT("who", "Ada") " otter " INVOKE_CLOSE "mill" CALL_CLOSE,
         "[seal|{\"who\": \"Ada\"}]", true, 0},
    };
    check_all_cuts(&request, rows, sizeof rows / sizeof *rows);
}

static void without_tools_markup_is_content(void **state)
{
    const gv_chat_request request = {.tool_choice = GV_TOOLS_NONE};
    const expectation rows[] = {{CALL_OPEN "x", CALL_OPEN "x", false, 0}};
    check_all_cuts(&request, rows, 1);
}

static void a_named_tool_is_the_only_one(void **state)
{
    const gv_chat_request request = {
        .tools = tools, .tool_count = 2, .tool_choice = GV_TOOLS_NAMED, .forced_tool = "seal"};
    const expectation rows[] = {
        {CALL_OPEN INVOKE("unlock") INVOKE_CLOSE INVOKE("seal") INVOKE_CLOSE CALL_CLOSE, "[seal|{}]", true, 1}};
    check_all_cuts(&request, rows, 1);
}

static void stop_texts_cut(void **state)
{
    const gv_chat_request request = {.tool_choice = GV_TOOLS_NONE, .stops = {"otter", "red- x", "ö"}, .stop_count = 3};
    const expectation rows[] = {
        {"the red-otter sleeps", "the red-", false, 0},
        {"the red- xotter", "the ", false, 0},
        {"ends in ott", "ends in ott", false, 0},
        {"a ó and ö b", "a ó and ", false, 0},
        {"otter", "", false, 0},
        {"ototter", "ot", false, 0},
    };
    check_all_cuts(&request, rows, sizeof rows / sizeof *rows);
}

static void after_a_stop_nothing_is_wanted(void **state)
{
    const gv_chat_request request = {.tool_choice = GV_TOOLS_NONE, .stops = {"x"}, .stop_count = 1};
    const gv_answer_sink sink = {on_content, on_call, on_arguments, NULL};
    gv_answer answer;
    gv_answer_begin(&answer, &request, &sink);
    assert_true(gv_answer_add(&answer, "ab", 2));
    assert_false(gv_answer_add(&answer, "xab", 3));
    assert_false(gv_answer_add(&answer, "more", 4));
    assert_true(answer.stopped);
    gv_answer_end(&answer);
    assert_int_equal(collected.length, 2);
    gv_text_free(&collected);
    gv_answer_free(&answer);
}

// Whatever memory is short of, the answer is marked as not to be used, and nothing breaks.
static void no_memory_is_told(void **state)
{
    const gv_chat_request request = {
        .tools = tools, .tool_count = 2, .tool_choice = GV_TOOLS_AUTO, .stops = {"zzz"}, .stop_count = 1};
    static const char text[] =
        "first " CALL_OPEN INVOKE("unlock") TEXT("who", "Mira") JSON("pin", "42") INVOKE_CLOSE CALL_CLOSE;
    const gv_answer_sink sink = {on_content, on_call, on_arguments, NULL};
    bool failed_once = false;
    for (long successes = 0;; successes++) {
        gv_answer answer;
        gv_answer_begin(&answer, &request, &sink);
        gv_text_free(&collected);
        gv_text_add(&collected, "0123456789", 10); // the sink's own buffer is not what is tested
        assert_true(GV_GROW(collected.data, collected.capacity, 4096));
        gv_memory_fail_after(successes);
        for (size_t i = 0; i + 1 < sizeof text; i++)
            gv_answer_add(&answer, text + i, 1);
        gv_answer_end(&answer);
        gv_memory_fail_after(-1);
        bool failed = answer.failed;
        failed_once |= failed;
        if (!failed)
            assert_true(gv_answer_has_calls(&answer));
        end_call();
        gv_answer_free(&answer);
        if (!failed)
            break;
    }
    assert_true(failed_once);
    gv_text_free(&collected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_read),
        cmocka_unit_test(corrupt_text_never_becomes_a_right_call),
        cmocka_unit_test(without_tools_markup_is_content),
        cmocka_unit_test(a_named_tool_is_the_only_one),
        cmocka_unit_test(stop_texts_cut),
        cmocka_unit_test(after_a_stop_nothing_is_wanted),
        cmocka_unit_test(no_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
