// The event stream: fields and line ends as the specification has them, any split, bounds.
#include "stress/sse.h"

#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct events {
    gv_string text; // the data of each event, in brackets
    int stop_after;
    int count;
} events;

static bool take(void *context, const char *data, size_t length)
{
    events *all = context;
    assert_int_equal(data[length], 0);
    gv_string_add(&all->text, "[");
    gv_string_add_bytes(&all->text, data, length);
    gv_string_add(&all->text, "]");
    return ++all->count != all->stop_after;
}

// Feeds `text` in pieces of `piece` bytes and compares the events.
static gv_sse_status feed(const char *text, size_t length, size_t piece, bool finish, const char *expected)
{
    events all = {0};
    gv_sse sse = {.limit = 64, .handler = take, .context = &all};
    gv_sse_status status = GV_SSE_OK;
    for (size_t at = 0; at < length && status == GV_SSE_OK; at += piece) {
        // A copy of exactly the piece: the address sanitizer sees a read beyond it.
        size_t now = piece < length - at ? piece : length - at;
        char *copy = malloc(now);
        assert_non_null(copy);
        memcpy(copy, text + at, now);
        status = gv_sse_feed(&sse, copy, now);
        free(copy);
    }
    if (status == GV_SSE_OK && finish)
        status = gv_sse_finish(&sse);
    if (expected)
        assert_string_equal(gv_string_text(&all.text), expected);
    gv_string_free(&all.text);
    gv_sse_free(&sse);
    return status;
}

static void test_fields(void **state)
{
    static const struct {
        const char *text, *events;
    } cases[] = {
        {"data: a\n\n", "[a]"},
        {"data:a\n\n", "[a]"},
        {"data:  a\n\n", "[ a]"},
        {"data: a\ndata: b\n\n", "[a\nb]"},
        {"data: a\r\n\r\ndata: b\r\n\r\n", "[a][b]"},
        {"data: a\r\rdata: b\r\r", "[a][b]"},
        {"data: a\r\n\ndata: b\n\r\n", "[a][b]"},
        {"data\n\n", "[]"},
        {"data:\ndata:\n\n", "[\n]"},
        {": comment\n\n\n\ndata: a\n\n", "[a]"},
        {"event: x\nid: 7\nretry: 3\ndata: a\n\n", "[a]"},
        {"datax: a\n\ndat: b\n\ndata x: c\n\n", ""},
        {"\xef\xbb\xbf"
         "data: a\n\n",
         "[a]"},
        {"\xef\xbb"
         "data: a\n\ndata: b\n\n",
         "[b]"},
        {"data: \xef\xbb\xbf"
         "a\n\n",
         "[\xef\xbb\xbf"
         "a]"},
        {"data: a", ""},
        {"data: a\n", ""},
        {"", ""},
        {"\n\n\r\n\r", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t piece = 1; piece <= 12; piece++)
            assert_int_equal(feed(cases[i].text, strlen(cases[i].text), piece, false, cases[i].events), GV_SSE_OK);
    }
}

static void test_end(void **state)
{
    // Only [DONE] is given without its blank line: any other rest may be half of an event.
    assert_int_equal(feed("data: a\n\ndata: [DONE]\n", 22, 100, true, "[a][[DONE]]"), GV_SSE_OK);
    assert_int_equal(feed("data: a\n\ndata: [DONE]", 21, 100, true, "[a][[DONE]]"), GV_SSE_OK);
    assert_int_equal(feed("data: a\n\ndata: b\n", 17, 100, true, "[a]"), GV_SSE_OK);
    assert_int_equal(feed("data: {\"a\":", 11, 100, true, ""), GV_SSE_OK);
}

static void test_any_bytes(void **state)
{
    static const char text[] = "data: a\0b\xff\n\n";
    events all = {0};
    gv_sse sse = {.limit = 64, .handler = take, .context = &all};
    assert_int_equal(gv_sse_feed(&sse, text, sizeof text - 1), GV_SSE_OK);
    assert_int_equal(all.text.length, 6);
    assert_memory_equal(all.text.text, "[a\0b\xff]", 6);
    gv_string_free(&all.text);
    gv_sse_free(&sse);
}

static void test_bounds(void **state)
{
    char text[400];
    // One event of exactly the limit (with its line end), and one byte more.
    for (int more = 0; more < 2; more++) {
        int length = 63 + more;
        memset(text, 'x', sizeof text);
        memcpy(text, "data: ", 6);
        memcpy(text + 6 + length, "\n\n", 2);
        for (size_t piece = 1; piece < 90; piece += 7) {
            // In one piece the line is not kept, so that only the event is bounded; in pieces the line counts too.
            gv_sse_status status = feed(text, (size_t)length + 8, piece, false, NULL);
            if (more || piece < 69)
                assert_int_equal(status, GV_SSE_TOO_LONG);
            else
                assert_int_equal(status, GV_SSE_OK);
        }
    }
    // Lines without an end, events without an end, comments without an end.
    memset(text, 'x', sizeof text);
    assert_int_equal(feed(text, sizeof text, 10, false, ""), GV_SSE_TOO_LONG);
    for (size_t i = 0; i + 8 <= sizeof text; i += 8)
        memcpy(text + i, "data: y\n", 8);
    assert_int_equal(feed(text, sizeof text, 10, false, ""), GV_SSE_TOO_LONG);
}

static void test_stop(void **state)
{
    events all = {.stop_after = 2};
    gv_sse sse = {.limit = 64, .handler = take, .context = &all};
    const char text[] = "data: a\n\ndata: b\n\ndata: c\n\n";
    assert_int_equal(gv_sse_feed(&sse, text, sizeof text - 1), GV_SSE_STOPPED);
    assert_string_equal(all.text.text, "[a][b]");
    gv_string_free(&all.text);
    gv_sse_free(&sse);
}

static void test_no_memory(void **state)
{
    events all = {0};
    gv_sse sse = {.limit = 64, .handler = take, .context = &all};
    gv_memory_fail_after(0);
    gv_sse_status whole = gv_sse_feed(&sse, "data: a\n\n", 9);
    gv_sse_free(&sse);
    sse = (gv_sse){.limit = 64, .handler = take, .context = &all};
    gv_sse_status part = gv_sse_feed(&sse, "data: a", 7);
    gv_memory_fail_after(-1);
    assert_int_equal(whole, GV_SSE_MEMORY);
    assert_int_equal(part, GV_SSE_MEMORY);
    gv_sse_free(&sse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields), cmocka_unit_test(test_end),  cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_bounds), cmocka_unit_test(test_stop), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
