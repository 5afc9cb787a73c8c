// Server-sent events: where they end, what they are, however the bytes are cut.
#include "specimen/server/api_error.h"
#include "specimen/server/sse.h"

#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <string.h>

static gv_sse_kind first(const char *text, size_t *size)
{
    *size = 0;
    return gv_sse_first(text, strlen(text), size);
}

static void events_are_told_apart(void **state)
{
    static const struct {
        const char *text;
        gv_sse_kind kind;
        size_t size;
    } rows[] = {
        {"", GV_SSE_NONE, 0},
        {"data: {\"a\":1}\n", GV_SSE_NONE, 0},
        {"data: {\"a\":1}\n\nmore", GV_SSE_DATA, 15},
        {"data: [DONE]\n\n", GV_SSE_DONE, 14},
        {"data:[DONE]\r\n\r\n", GV_SSE_DONE, 15},
        {"data: [DONE] \n\n", GV_SSE_DATA, 15},
        {": keep alive\n\n", GV_SSE_DATA, 14},
        {"\n", GV_SSE_DATA, 1},
        {"event: x\ndata: {\"error\":{\"message\":\"m\"}}\n\n", GV_SSE_ERROR, 42},
        {"data: {\"error\":null}\n\n", GV_SSE_DATA, 22},
        {"data: {\"choices\":[{\"delta\":{\"content\":\"an \\\"error\\\"\"}}]}\n\n", GV_SSE_DATA, 58},
        {"data: \"error\"\n\n", GV_SSE_DATA, 15},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t size;
        assert_int_equal(first(rows[i].text, &size), rows[i].kind);
        assert_int_equal(size, rows[i].size);
    }
}

// Cut after any byte, an event is not there before its empty line is, and is the same afterwards.
static void any_cut_gives_the_same_events(void **state)
{
    static const char stream[] = "data: {\"error\":{}}\r\n\r\n: note\ndata: 1\n\ndata: [DONE]\n\n";
    static const gv_sse_kind expected[] = {GV_SSE_ERROR, GV_SSE_DATA, GV_SSE_DONE};
    for (size_t cut = 0; cut < sizeof stream; cut++) {
        gv_text rest = {0};
        size_t found = 0;
        const size_t ends[] = {cut, sizeof stream - 1};
        size_t begin = 0;
        for (size_t piece = 0; piece < 2; piece++) {
            gv_text_add(&rest, stream + begin, ends[piece] - begin);
            begin = ends[piece];
            size_t size;
            gv_sse_kind kind;
            while ((kind = gv_sse_first(rest.data ? rest.data : "", rest.length, &size)) != GV_SSE_NONE) {
                assert_in_range(found, 0, 2);
                assert_int_equal(kind, expected[found++]);
                gv_text_drop(&rest, size);
            }
            if (cut == sizeof stream - 1)
                break;
        }
        assert_int_equal(found, 3);
        assert_int_equal(rest.length, 0);
        gv_text_free(&rest);
    }
}

static void what_is_written_can_be_read(void **state)
{
    gv_text out = {0};
    assert_true(gv_sse_add(&out, "{\"a\":1}", 7));
    assert_true(gv_sse_add_done(&out));
    size_t size;
    assert_int_equal(gv_sse_first(out.data, out.length, &size), GV_SSE_DATA);
    gv_text_drop(&out, size);
    assert_int_equal(gv_sse_first(out.data, out.length, &size), GV_SSE_DONE);
    assert_int_equal(size, out.length);
    gv_text_free(&out);
}

static void a_text_that_ran_out_of_memory_stays_failed(void **state)
{
    gv_text out = {0};
    assert_true(gv_text_add_string(&out, "one"));
    gv_memory_fail_after(0);
    char longer[5000];
    memset(longer, 'x', sizeof longer);
    assert_false(gv_text_add(&out, longer, sizeof longer));
    gv_memory_fail_after(-1);
    assert_false(gv_text_add_string(&out, "two"));
    assert_int_equal(out.length, 3);
    assert_null(gv_text_take(&out, NULL));
    assert_null(out.data);
}

// ---- Errors -------------------------------------------------------------------------------------------------------

static json_t *error_of(const gv_api_error *error)
{
    size_t length = 0;
    char *text = gv_api_error_json(error, &length);
    assert_non_null(text);
    assert_int_equal(strlen(text), length);
    json_t *root = json_loads(text, 0, NULL);
    gv_free(text);
    assert_true(json_is_object(json_object_get(root, "error")));
    return root;
}

static void errors_have_openais_shape(void **state)
{
    gv_api_error error;
    assert_false(gv_refuse(&error, 400, "messages", "invalid_value", "%s \"quoted\"\n", "text"));
    json_t *root = error_of(&error);
    json_t *object = json_object_get(root, "error");
    assert_string_equal(json_string_value(json_object_get(object, "message")), "text \"quoted\"\n");
    assert_string_equal(json_string_value(json_object_get(object, "type")), "invalid_request_error");
    assert_string_equal(json_string_value(json_object_get(object, "param")), "messages");
    assert_string_equal(json_string_value(json_object_get(object, "code")), "invalid_value");
    json_decref(root);

    gv_refuse(&error, 429, NULL, NULL, "slow");
    root = error_of(&error);
    object = json_object_get(root, "error");
    assert_string_equal(json_string_value(json_object_get(object, "type")), "rate_limit_error");
    assert_true(json_is_null(json_object_get(object, "param")));
    assert_true(json_is_null(json_object_get(object, "code")));
    json_decref(root);
}

// A message that is cut, or that quotes bytes which are not UTF-8, is still JSON.
static void errors_are_json_whatever_they_quote(void **state)
{
    char longer[1200];
    for (size_t pad = 0; pad < 4; pad++) {
        memset(longer, 'a', pad);
        for (size_t i = pad; i + 3 < sizeof longer; i += 3)
            memcpy(longer + i, "\xe2\x82\xac", 4); // the euro sign
        gv_api_error error;
        gv_refuse(&error, 400, NULL, NULL, "%s", longer);
        json_t *root = error_of(&error);
        const char *message = json_string_value(json_object_get(json_object_get(root, "error"), "message"));
        assert_in_range(strlen(message), sizeof error.message - 5, sizeof error.message - 1);
        json_decref(root);
    }
    gv_api_error error;
    gv_refuse(&error, 400, NULL, NULL, "near \xff\xfe");
    json_decref(error_of(&error));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_told_apart),       cmocka_unit_test(any_cut_gives_the_same_events),
        cmocka_unit_test(what_is_written_can_be_read), cmocka_unit_test(a_text_that_ran_out_of_memory_stays_failed),
        cmocka_unit_test(errors_have_openais_shape),   cmocka_unit_test(errors_are_json_whatever_they_quote),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
