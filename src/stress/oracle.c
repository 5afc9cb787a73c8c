#include "stress/oracle.h"

#include "base/memory.h"
#include "stress/schema.h"
#include "stress/text_checks.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint64_t gv_hash_bytes(uint64_t seed, const void *bytes, size_t length)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < length; i++)
        seed = (seed ^ byte[i]) * 1099511628211ull;
    return seed;
}

void gv_judge_add(gv_judgement *judgement, gv_reason reason, const char *format, ...)
{
    judgement->reasons |= GV_REASON_BIT(reason);
    if (gv_reasons_leading(judgement->reasons) != reason)
        return;
    char raw[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    gv_string safe = {0};
    gv_string_add_safe(&safe, raw);
    snprintf(judgement->detail, sizeof judgement->detail, "%s", gv_string_text(&safe));
    gv_utf8_trim(judgement->detail);
    gv_string_free(&safe);
}

// ---- Values -------------------------------------------------------------------------------------------------------

// Equal as JSON values: 3 and 3.0 are one number, and the order of keys does not count.
static bool same_value(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) {
        if (json_is_integer(a) && json_is_integer(b))
            return json_integer_value(a) == json_integer_value(b);
        return json_number_value(a) == json_number_value(b);
    }
    if (json_typeof(a) != json_typeof(b))
        return false;
    if (json_is_array(a)) {
        bool same = json_array_size(a) == json_array_size(b);
        for (size_t i = 0; same && i < json_array_size(a); i++)
            same = same_value(json_array_get(a, i), json_array_get(b, i));
        return same;
    }
    if (!json_is_object(a))
        return json_equal(a, b);
    bool same = json_object_size(a) == json_object_size(b);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)a, key, value)
    {
        const json_t *other = json_object_get(b, key);
        same = same && other && same_value(value, other);
    }
    return same;
}

// A value in up to 60 bytes, for a message.
static void show_value(const json_t *value, char *out, size_t size)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(out, size, "%.56s%s", text ? text : "?", text && strlen(text) > 56 ? "..." : "");
    gv_free(text);
}

static void compare_arguments(const json_t *expected, const json_t *found, gv_judgement *judgement)
{
    const char *key;
    json_t *value;
    char wanted[64], got[64];
    json_object_foreach((json_t *)expected, key, value)
    {
        const json_t *other = json_object_get(found, key);
        if (other && same_value(value, other))
            continue;
        show_value(value, wanted, sizeof wanted);
        if (other)
            show_value(other, got, sizeof got);
        gv_judge_add(judgement, GV_REASON_WRONG_ARGUMENTS, "`%.40s` is %s, and %s was expected", key,
                     other ? got : "missing", wanted);
        return;
    }
    json_object_foreach((json_t *)found, key, value)
    {
        if (json_object_get(expected, key))
            continue;
        gv_judge_add(judgement, GV_REASON_WRONG_ARGUMENTS, "`%.40s` was not expected", key);
        return;
    }
}

// ---- Calls --------------------------------------------------------------------------------------------------------

static const gv_tool *find_tool(const gv_tools *tools, const char *name)
{
    for (size_t i = 0; i < tools->count; i++) {
        if (strcmp(tools->items[i].name, name) == 0)
            return &tools->items[i];
    }
    return NULL;
}

// The arguments as an object, or NULL after the reason was added. Hashes them into `*hash` either way.
static json_t *read_arguments(const gv_reply *reply, size_t index, uint64_t *hash, gv_judgement *judgement)
{
    const gv_string *text = &reply->calls[index].arguments;
    json_error_t error;
    // A tool without parameters may be called with nothing at all.
    json_t *value =
        text->length ? json_loadb(text->text, text->length, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error) : json_object();
    char *canonical = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    *hash = canonical ? gv_hash_bytes(*hash, canonical, strlen(canonical))
                      : gv_hash_bytes(*hash, gv_string_text(text), text->length);
    gv_free(canonical);
    if (json_is_object(value))
        return value;
    bool cut = !value && strcmp(reply->finish, "length") == 0 && index + 1 == reply->call_count;
    if (cut)
        gv_judge_add(judgement, GV_REASON_LENGTH_IN_CALL, "the arguments end after %zu bytes: \"%.100s\"", text->length,
                     gv_string_text(text));
    else if (!value)
        gv_judge_add(judgement, GV_REASON_BAD_JSON, "%s: \"%.120s\"", error.text, gv_string_text(text));
    else
        gv_judge_add(judgement, GV_REASON_BAD_JSON, "the arguments are %s, not an object", gv_json_type_name(value));
    json_decref(value);
    return NULL;
}

static void judge_call(const gv_tools *tools, const gv_expectation *expected, const gv_reply *reply, size_t index,
                       gv_judgement *judgement)
{
    const gv_call *call = &reply->calls[index];
    const char *name = gv_string_text(&call->name);
    const gv_tool *tool = find_tool(tools, name);
    judgement->calls = gv_hash_bytes(judgement->calls, name, strlen(name) + 1);
    if (!tool)
        gv_judge_add(judgement, GV_REASON_UNKNOWN_TOOL, "there is no tool \"%.60s\"", name);
    json_t *arguments = read_arguments(reply, index, &judgement->calls, judgement);
    if (!arguments)
        return;
    char problem[256];
    bool fits = !tool || gv_schema_check(tool->parameters, arguments, problem, sizeof problem);
    if (!fits)
        gv_judge_add(judgement, GV_REASON_WRONG_TYPE, "%s", problem);
    if (index == 0 && expected->tool && tool) {
        if (strcmp(name, expected->tool) != 0)
            gv_judge_add(judgement, GV_REASON_WRONG_TOOL, "`%.60s` was called, and `%.60s` was expected", name,
                         expected->tool);
        else if (fits)
            compare_arguments(expected->arguments, arguments, judgement);
    }
    json_decref(arguments);
}

// ---- Texts --------------------------------------------------------------------------------------------------------

static void judge_text(const gv_tools *tools, const gv_string *text, const char *what, gv_judgement *judgement)
{
    size_t at;
    const char *fragment = gv_find_fragment(gv_string_text(text), text->length, tools->fragments);
    if (fragment)
        gv_judge_add(judgement, GV_REASON_TEMPLATE_FRAGMENT, "%s holds \"%s\"", what, fragment);
    if (gv_find_garbled(gv_string_text(text), text->length, &at))
        gv_judge_add(judgement, GV_REASON_GARBLED, "byte %zu of %s: \"%.30s\"", at, what, text->text + at);
}

static void judge_loop(const gv_string *text, const char *what, gv_judgement *judgement)
{
    gv_loop loop;
    if (!gv_find_loop(gv_string_text(text), text->length, &loop))
        return;
    if (loop.period)
        gv_judge_add(judgement, GV_REASON_LOOP, "%s repeats %zu bytes %zu times: \"%.*s\"", what, loop.period,
                     loop.length / loop.period, (int)(loop.period < 60 ? loop.period : 60), text->text + loop.start);
    else
        gv_judge_add(judgement, GV_REASON_LOOP, "%s repeats itself with small changes: \"%.60s\"", what,
                     text->text + loop.start);
}

static void judge_missing_call(const gv_reply *reply, const gv_expectation *expected, gv_judgement *judgement)
{
    const char *text = gv_string_text(&reply->content);
    if (strcmp(reply->finish, "length") == 0)
        gv_judge_add(judgement, GV_REASON_LENGTH_NO_CALL, "%s without a call of `%.60s`",
                     gv_count(reply->content.length + reply->reasoning.length, "byte of text", "bytes of text"),
                     expected->tool);
    else
        gv_judge_add(judgement, GV_REASON_NO_CALL, "`%.60s` was expected; the text is \"%.100s\"", expected->tool,
                     text);
}

void gv_judge(const gv_tools *tools, const gv_expectation *expected, const gv_reply *reply, gv_judgement *judgement)
{
    *judgement = (gv_judgement){.calls = GV_HASH_START, .text = GV_HASH_START};
    if (reply->failed)
        gv_judge_add(judgement, reply->reason, "%s", reply->detail);
    if (!gv_reply_has_answer(reply))
        return;

    judgement->text = gv_hash_bytes(GV_HASH_START, gv_string_text(&reply->content), reply->content.length);
    judge_text(tools, &reply->content, "the text", judgement);
    judge_loop(&reply->content, "the text", judgement);
    judge_loop(&reply->reasoning, "the reasoning", judgement);
    for (size_t i = 0; i < reply->call_count; i++) {
        judge_text(tools, &reply->calls[i].arguments, "an argument", judgement);
        judge_text(tools, &reply->calls[i].name, "the name of a tool", judgement);
        judge_call(tools, expected, reply, i, judgement);
    }
    if (reply->refusal.length || strcmp(reply->finish, "content_filter") == 0) {
        gv_judge_add(judgement, GV_REASON_REFUSAL, "the answer was refused: \"%.100s\"",
                     gv_string_text(&reply->refusal));
        return;
    }
    if (expected->tool && reply->call_count == 0)
        judge_missing_call(reply, expected, judgement);
    if (expected->tool && reply->call_count > 1)
        gv_judge_add(judgement, GV_REASON_EXTRA_CALL, "%zu calls, and one was expected", reply->call_count);
    if (expected->text && reply->call_count)
        gv_judge_add(judgement, GV_REASON_EXTRA_CALL, "`%.60s` was called, and text was expected",
                     gv_string_text(&reply->calls[0].name));
    else if (expected->text && !strstr(gv_string_text(&reply->content), expected->text))
        gv_judge_add(judgement, GV_REASON_WRONG_TEXT, "\"%.60s\" is not in the text \"%.100s\"", expected->text,
                     gv_string_text(&reply->content));
}
