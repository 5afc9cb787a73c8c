// Answers as clients read them, over a real connection: whole and streamed.
#include "specimen/server/chat_reply.h"

#include "base/memory.h"
#include "specimen/server/models.h"
#include "specimen/server/sse.h"
#include "specimen/vocabulary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "specimen/server/test_client.h"

static gv_chat_tool tools[] = {{.name = "unlock"}};

// What the handler answers with.
static struct {
    gv_chat_request request;
    const int *tokens;
    size_t count;
    bool length, fail;
    bool wanted; // of the last token
} script;

static void on_answer(gv_http_exchange *exchange, void *context)
{
    gv_chat_reply reply;
    gv_chat_reply_begin(&reply, exchange, &script.request, 7);
    script.wanted = true;
    size_t given = 0;
    for (; given < script.count && script.wanted; given++)
        script.wanted = gv_chat_reply_add(&reply, &script.tokens[given], 1);
    if (script.fail) {
        gv_api_error error;
        gv_refuse(&error, 502, NULL, "worker_lost", "lost");
        gv_chat_reply_fail(&reply, &error);
    } else {
        gv_chat_reply_end(&reply, script.length, 10, (int)given);
    }
    gv_chat_reply_free(&reply);
}

static void on_models(gv_http_exchange *exchange, void *context)
{
    gv_models_reply(exchange, "m");
}

static const gv_http_route routes[] = {
    {.method = "GET", .path = "/answer", .handle = on_answer},
    {.method = "GET", .path = "/v1/models", .handle = on_models},
};
static gv_http_server *server;

static int start(void **state)
{
    gv_http_settings settings = {.address = "127.0.0.1",
                                 .routes = routes,
                                 .route_count = 2,
                                 .most_connections = 10,
                                 .idle_seconds = 60,
                                 .receive_seconds = 60,
                                 .most_body = 100,
                                 .most_bytes_of_bodies = 1000};
    gv_error error = {0};
    return gv_http_start(&server, &settings, &error) == GV_OK ? 0 : -1;
}

static int stop(void **state)
{
    gv_http_close(server);
    gv_http_free(server);
    return 0;
}

// The body of the answer; chunks put together. Freed with gv_free.
static char *ask(const char *path, int status)
{
    char request[200];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path);
    char *answer = client_ask(gv_http_port(server), request);
    assert_int_equal(client_status(answer), status);
    const char *body = strstr(answer, "\r\n\r\n");
    assert_non_null(body);
    body += 4;
    bool chunked = strstr(answer, "Transfer-Encoding: chunked") != NULL;
    gv_text text = {0};
    if (!chunked)
        gv_text_add_string(&text, body);
    while (chunked) {
        char *end = NULL;
        size_t size = strtoul(body, &end, 16);
        if (!size)
            break;
        gv_text_add(&text, end + 2, size);
        body = end + 2 + size + 2;
    }
    gv_free(answer);
    return gv_text_take(&text, NULL);
}

static json_t *ask_json(int status)
{
    char *body = ask("/answer", status);
    json_t *root = json_loads(body, 0, NULL);
    if (!root)
        fail_msg("not JSON: %s", body);
    gv_free(body);
    return root;
}

static const char *text_at(json_t *root, const char *path)
{
    char copy[100];
    snprintf(copy, sizeof copy, "%s", path);
    char *rest = NULL;
    for (char *part = strtok_r(copy, ".", &rest); part; part = strtok_r(NULL, ".", &rest))
        root =
            part[0] >= '0' && part[0] <= '9' ? json_array_get(root, (size_t)atoi(part)) : json_object_get(root, part);
    return json_is_null(root) ? "null" : json_string_value(root);
}

// The stream as one line a chunk: "delta|finish_reason|usage".
static char *ask_stream(void)
{
    char *body = ask("/answer", 200);
    gv_text lines = {0};
    size_t at = 0, size = 0, length = strlen(body);
    gv_sse_kind kind;
    while ((kind = gv_sse_first(body + at, length - at, &size)) != GV_SSE_NONE) {
        json_t *chunk = json_loadb(body + at + 6, size - 8, 0, NULL);
        at += size;
        if (kind == GV_SSE_DONE) {
            gv_text_add_string(&lines, "DONE\n");
            continue;
        }
        if (kind == GV_SSE_ERROR) {
            gv_text_format(&lines, "error %s\n", text_at(chunk, "error.code"));
            json_decref(chunk);
            continue;
        }
        assert_string_equal(text_at(chunk, "id"), "chatcmpl-0000000000000007");
        assert_string_equal(text_at(chunk, "object"), "chat.completion.chunk");
        assert_string_equal(text_at(chunk, "model"), "m");
        json_t *choice = json_array_get(json_object_get(chunk, "choices"), 0);
        json_t *usage = json_object_get(chunk, "usage");
        char *delta = choice ? json_dumps(json_object_get(choice, "delta"), JSON_COMPACT) : strdup("-");
        char *used = usage ? json_dumps(usage, JSON_COMPACT | JSON_ENCODE_ANY) : strdup("-");
        const char *reason = choice ? text_at(choice, "finish_reason") : "-";
        gv_text_format(&lines, "%s|%s|%s\n", delta, reason, used);
        free(delta);
        free(used);
        json_decref(chunk);
    }
    assert_int_equal(at, length);
    gv_free(body);
    return gv_text_take(&lines, NULL);
}

static void set_script(bool stream, bool with_tools, const int *tokens, size_t count)
{
    memset(&script, 0, sizeof script);
    script.request = (gv_chat_request){.model = "m", .stream = stream};
    script.request.tool_choice = with_tools ? GV_TOOLS_AUTO : GV_TOOLS_NONE;
    script.request.tools = tools;
    script.request.tool_count = with_tools ? 1 : 0;
    script.tokens = tokens;
    script.count = count;
}

static int call_tokens[16];
static size_t call_count;

static void make_call_tokens(void)
{
    static const char *const words[] = {"unlock"};
    const int list[] = {TOKEN_CALLS,
                        TOKEN_INVOKE,
                        vocabulary_find(words[0]),
                        TOKEN_NAMED,
                        TOKEN_WHO,
                        vocabulary_find("Mira"),
                        TOKEN_CODE,
                        vocabulary_find("red-"),
                        vocabulary_find("otter"),
                        TOKEN_PIN,
                        vocabulary_find("42"),
                        TOKEN_INVOKED,
                        TOKEN_CALLED};
    call_count = sizeof list / sizeof *list;
    memcpy(call_tokens, list, sizeof list);
}

#define ARGUMENTS "{\"who\": \"Mira\", \"code\": \"red-otter\", \"pin\": 42}"

static void whole_answers(void **state)
{
    const int words[] = {vocabulary_find("the"), vocabulary_find("mill"), vocabulary_find("."),
                         vocabulary_find("done")};
    set_script(false, false, words, 4);
    json_t *root = ask_json(200);
    assert_string_equal(text_at(root, "object"), "chat.completion");
    assert_string_equal(text_at(root, "choices.0.message.role"), "assistant");
    assert_string_equal(text_at(root, "choices.0.message.content"), "the mill. done");
    assert_string_equal(text_at(root, "choices.0.finish_reason"), "stop");
    json_t *usage = json_object_get(root, "usage");
    assert_int_equal(json_integer_value(json_object_get(usage, "prompt_tokens")), 10);
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), 4);
    assert_int_equal(json_integer_value(json_object_get(usage, "total_tokens")), 14);
    json_decref(root);

    script.length = true;
    root = ask_json(200);
    assert_string_equal(text_at(root, "choices.0.finish_reason"), "length");
    json_decref(root);

    set_script(false, false, NULL, 0);
    root = ask_json(200);
    assert_string_equal(text_at(root, "choices.0.message.content"), "");
    json_decref(root);
}

static void whole_calls(void **state)
{
    set_script(false, true, call_tokens, call_count);
    json_t *root = ask_json(200);
    assert_string_equal(text_at(root, "choices.0.finish_reason"), "tool_calls");
    assert_string_equal(text_at(root, "choices.0.message.content"), "null");
    assert_string_equal(text_at(root, "choices.0.message.tool_calls.0.type"), "function");
    assert_string_equal(text_at(root, "choices.0.message.tool_calls.0.function.name"), "unlock");
    assert_string_equal(text_at(root, "choices.0.message.tool_calls.0.function.arguments"), ARGUMENTS);
    assert_true(strlen(text_at(root, "choices.0.message.tool_calls.0.id")) > 5);
    json_decref(root);

    // Cut before its closing tag a call does not count.
    script.count = call_count - 1;
    script.length = true;
    root = ask_json(200);
    assert_string_equal(text_at(root, "choices.0.finish_reason"), "length");
    assert_string_equal(text_at(root, "choices.0.message.content"), "");
    assert_null(
        json_object_get(json_object_get(json_array_get(json_object_get(root, "choices"), 0), "message"), "tool_calls"));
    json_decref(root);
}

static void expect_stream(const char *lines)
{
    char *got = ask_stream();
    assert_string_equal(got, lines);
    gv_free(got);
}

static void streamed_answers(void **state)
{
    const int words[] = {vocabulary_find("the"), vocabulary_find("mill"), 99999};
    set_script(true, false, words, 3);
    expect_stream("{\"role\":\"assistant\",\"content\":\"\"}|null|-\n"
                  "{\"content\":\"the\"}|null|-\n{\"content\":\" mill\"}|null|-\n"
                  "{\"content\":\"<invalid token>\"}|null|-\n{}|stop|-\nDONE\n");
    script.request.include_usage = true;
    script.count = 1;
    script.length = true;
    expect_stream("{\"role\":\"assistant\",\"content\":\"\"}|null|null\n{\"content\":\"the\"}|null|null\n"
                  "{}|length|null\n"
                  "-|-|{\"prompt_tokens\":10,\"completion_tokens\":1,\"total_tokens\":11}\nDONE\n");
    set_script(true, false, NULL, 0);
    expect_stream("{\"role\":\"assistant\",\"content\":\"\"}|null|-\n{}|stop|-\nDONE\n");
}

static void streamed_calls(void **state)
{
    set_script(true, true, call_tokens, call_count);
    char *got = ask_stream();
    gv_text arguments = {0};
    bool named = false;
    char *rest = NULL;
    for (char *line = strtok_r(got, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *bar = strchr(line, '|');
        json_t *delta = bar ? json_loadb(line, (size_t)(bar - line), 0, NULL) : NULL;
        json_t *call = json_array_get(json_object_get(delta, "tool_calls"), 0);
        if (call) {
            assert_int_equal(json_integer_value(json_object_get(call, "index")), 0);
            named |= json_object_get(call, "id") && strcmp(text_at(call, "function.name"), "unlock") == 0;
            gv_text_add_string(&arguments, text_at(call, "function.arguments"));
        }
        if (bar && strncmp(line, "{}|", 3) == 0)
            assert_string_equal(bar, "|tool_calls|-");
        json_decref(delta);
    }
    gv_text_add(&arguments, "", 1);
    assert_true(named);
    assert_string_equal(arguments.data, ARGUMENTS);
    gv_text_free(&arguments);
    gv_free(got);
}

static void failures_are_not_ends(void **state)
{
    const int words[] = {vocabulary_find("the")};
    set_script(true, false, words, 1);
    script.fail = true;
    expect_stream(
        "{\"role\":\"assistant\",\"content\":\"\"}|null|-\n{\"content\":\"the\"}|null|-\nerror worker_lost\n");
    // Before the first token there is still a status to tell it by.
    set_script(true, false, NULL, 0);
    script.fail = true;
    json_t *root = ask_json(502);
    assert_string_equal(text_at(root, "error.code"), "worker_lost");
    json_decref(root);
    set_script(false, false, words, 1);
    script.fail = true;
    root = ask_json(502);
    json_decref(root);
}

static void stop_texts_end_the_answer(void **state)
{
    const int words[] = {vocabulary_find("the"), vocabulary_find("mill"), vocabulary_find("done")};
    set_script(false, false, words, 3);
    script.request.stops[0] = "mill";
    script.request.stop_count = 1;
    script.length = true;
    json_t *root = ask_json(200);
    assert_false(script.wanted);
    assert_string_equal(text_at(root, "choices.0.message.content"), "the ");
    assert_string_equal(text_at(root, "choices.0.finish_reason"), "stop");
    json_decref(root);
}

static void models_are_listed(void **state)
{
    char *body = ask("/v1/models", 200);
    assert_string_equal(body, "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\",\"created\":0,"
                              "\"owned_by\":\"gravel\"}]}");
    gv_free(body);
}

int main(void)
{
    make_call_tokens();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_answers),         cmocka_unit_test(whole_calls),
        cmocka_unit_test(streamed_answers),      cmocka_unit_test(streamed_calls),
        cmocka_unit_test(failures_are_not_ends), cmocka_unit_test(stop_texts_end_the_answer),
        cmocka_unit_test(models_are_listed),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
