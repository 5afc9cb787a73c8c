#include "stress/reply.h"

#include "base/memory.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void gv_reply_fail(gv_reply *reply, gv_reason reason, const char *format, ...)
{
    if (reply->failed)
        return;
    reply->failed = true;
    reply->reason = reason;
    char raw[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    gv_string safe = {0};
    gv_string_add_safe(&safe, raw);
    snprintf(reply->detail, sizeof reply->detail, "%s", gv_string_text(&safe));
    gv_utf8_trim(reply->detail);
    gv_string_free(&safe);
}

bool gv_utf8_check(const char *text, size_t length, size_t *bad)
{
    size_t at = 0;
    while (at < length) {
        if ((unsigned char)text[at] < 0x80) {
            at++;
            continue;
        }
        // gv_utf8_length may look at three bytes more than there are.
        char tail[5] = {0};
        size_t left = length - at;
        memcpy(tail, text + at, left < 4 ? left : 4);
        size_t sequence = gv_utf8_length(tail);
        if (sequence == 0 || sequence > left) {
            *bad = at;
            return false;
        }
        at += sequence;
    }
    return true;
}

void gv_utf8_trim(char *text)
{
    size_t bad;
    if (!gv_utf8_check(text, strlen(text), &bad))
        text[bad] = '\0';
}

// ---- Taking parts -------------------------------------------------------------------------------------------------

static bool add_text(gv_reply *reply, gv_string *to, const json_t *text)
{
    const char *bytes = json_string_value(text);
    size_t length = json_string_length(text);
    if (length > reply->limit - reply->bytes) {
        gv_reply_fail(reply, GV_REASON_TOO_LARGE, "the text of the answer has more than %s",
                      gv_count(reply->limit, "byte", "bytes"));
        return false;
    }
    reply->bytes += length;
    gv_string_add_bytes(to, bytes, length);
    if (to->failed)
        gv_reply_fail(reply, GV_REASON_OWN, "out of memory");
    return !reply->failed;
}

// Adds the text member `key` of `from`, when it is there and not null.
static bool take_text(gv_reply *reply, gv_string *to, const json_t *from, const char *key, bool *took)
{
    const json_t *text = json_object_get(from, key);
    if (!text || json_is_null(text))
        return true;
    if (!json_is_string(text)) {
        gv_reply_fail(reply, GV_REASON_WRONG_SCHEMA, "`%s` is no text", key);
        return false;
    }
    if (json_string_length(text))
        *took = true;
    return add_text(reply, to, text);
}

static gv_call *call_at(gv_reply *reply, size_t index)
{
    if (index >= GV_REPLY_CALLS) {
        gv_reply_fail(reply, GV_REASON_TOO_LARGE, "more than %d tool calls in one answer", GV_REPLY_CALLS);
        return NULL;
    }
    if (!reply->calls) {
        reply->calls = gv_calloc(GV_REPLY_CALLS, sizeof *reply->calls);
        if (!reply->calls) {
            gv_reply_fail(reply, GV_REASON_OWN, "out of memory");
            return NULL;
        }
    }
    if (index >= reply->call_count)
        reply->call_count = index + 1;
    return &reply->calls[index];
}

static bool take_call(gv_reply *reply, const json_t *item, size_t position, bool stream, bool *took)
{
    size_t index = position;
    const json_t *number = json_object_get(item, "index");
    if (!json_is_object(item)) {
        gv_reply_fail(reply, GV_REASON_WRONG_SCHEMA, "an item of `tool_calls` is no object");
        return false;
    }
    if (stream && number && !json_is_null(number)) {
        if (!json_is_integer(number) || json_integer_value(number) < 0) {
            gv_reply_fail(reply, GV_REASON_WRONG_SCHEMA, "the `index` of a tool call is no number");
            return false;
        }
        index = (size_t)json_integer_value(number);
    }
    gv_call *call = call_at(reply, index);
    const json_t *function = json_object_get(item, "function");
    if (!call)
        return false;
    if (function && !json_is_null(function) && !json_is_object(function)) {
        gv_reply_fail(reply, GV_REASON_WRONG_SCHEMA, "the `function` of a tool call is no object");
        return false;
    }
    call->seen = *took = true;
    // Some servers repeat the id in every piece; only the first one counts. Names and arguments come in pieces.
    if (call->id.length == 0 && !take_text(reply, &call->id, item, "id", took))
        return false;
    if (!function || json_is_null(function))
        return true;
    // A server that has parsed the arguments sends an object where the API has text.
    const json_t *arguments = json_object_get(function, "arguments");
    if (json_is_object(arguments)) {
        gv_reply_fail(reply, GV_REASON_WRONG_SCHEMA, "`arguments` of a tool call is an object, where the API has text");
        return false;
    }
    return take_text(reply, &call->name, function, "name", took) &&
           take_text(reply, &call->arguments, function, "arguments", took);
}

// A `delta` of a stream or the `message` of a whole answer.
static bool take_message(gv_reply *reply, const json_t *message, bool stream)
{
    bool took = false;
    if (!take_text(reply, &reply->content, message, "content", &took) ||
        !take_text(reply, &reply->refusal, message, "refusal", &took))
        return false;
    // Two names are in use for what a reasoning model thinks before it answers.
    const char *thinking = json_object_get(message, "reasoning_content") ? "reasoning_content" : "reasoning";
    if (!take_text(reply, &reply->reasoning, message, thinking, &took))
        return false;
    const json_t *calls = json_object_get(message, "tool_calls");
    if (calls && !json_is_null(calls) && !json_is_array(calls)) {
        gv_reply_fail(reply, GV_REASON_WRONG_SCHEMA, "`tool_calls` is no list");
        return false;
    }
    for (size_t i = 0; i < json_array_size(calls); i++) {
        if (!take_call(reply, json_array_get(calls, i), i, stream, &took))
            return false;
    }
    reply->pieces += took;
    return true;
}

static void take_count(const json_t *usage, const char *key, uint64_t *count)
{
    const json_t *number = json_object_get(usage, key);
    if (json_is_integer(number) && json_integer_value(number) >= 0)
        *count = (uint64_t)json_integer_value(number);
}

// Tells an error object from an answer. OpenAI's has `error.message`; others send a text or `message` at the top.
static bool take_error(gv_reply *reply, const json_t *root)
{
    const json_t *error = json_object_get(root, "error");
    const char *object = json_string_value(json_object_get(root, "object"));
    if ((!error || json_is_null(error)) && !(object && strcmp(object, "error") == 0))
        return false;
    const json_t *message = json_is_string(error)   ? error
                            : json_is_object(error) ? json_object_get(error, "message")
                                                    : json_object_get(root, "message");
    gv_reply_fail(reply, GV_REASON_SERVER_ERROR, "the server says: %.200s",
                  json_is_string(message) ? json_string_value(message) : "(an error without a message)");
    return true;
}

// What both forms have in common. `part` is "delta" or "message".
static bool take_completion(gv_reply *reply, const json_t *root, const char *part, bool stream)
{
    if (!json_is_object(root)) {
        gv_reply_fail(reply, GV_REASON_WRONG_SCHEMA, "the answer is no JSON object");
        return false;
    }
    if (take_error(reply, root))
        return false;
    const json_t *usage = json_object_get(root, "usage");
    if (json_is_object(usage)) {
        reply->has_usage = json_is_integer(json_object_get(usage, "completion_tokens"));
        take_count(usage, "prompt_tokens", &reply->prompt_tokens);
        take_count(usage, "completion_tokens", &reply->completion_tokens);
    }
    const json_t *choices = json_object_get(root, "choices");
    if (!json_is_array(choices)) {
        gv_reply_fail(reply, GV_REASON_WRONG_SCHEMA, "the answer has no list `choices`");
        return false;
    }
    // The event with the usage has no choice.
    if (json_array_size(choices) == 0)
        return true;
    const json_t *choice = json_array_get(choices, 0);
    const json_t *message = json_object_get(choice, part);
    const json_t *finish = json_object_get(choice, "finish_reason");
    if (message && !json_is_null(message) && !json_is_object(message)) {
        gv_reply_fail(reply, GV_REASON_WRONG_SCHEMA, "`choices[0].%s` is no object", part);
        return false;
    }
    if (!message && !stream) {
        gv_reply_fail(reply, GV_REASON_WRONG_SCHEMA, "the answer has no `choices[0].%s`", part);
        return false;
    }
    if (message && !take_message(reply, message, stream))
        return false;
    if (json_is_string(finish))
        snprintf(reply->finish, sizeof reply->finish, "%.31s", json_string_value(finish));
    gv_utf8_trim(reply->finish);
    return true;
}

static json_t *parse(gv_reply *reply, const char *data, size_t length, const char *what)
{
    size_t bad;
    if (!gv_utf8_check(data, length, &bad)) {
        gv_reply_fail(reply, GV_REASON_INVALID_UTF8, "byte %zu of %s is no UTF-8 (0x%02x)", bad, what,
                      (unsigned char)data[bad]);
        return NULL;
    }
    json_error_t error;
    // \u0000 is allowed: a model can emit it, and the oracle for garbled text then finds it.
    json_t *root = json_loadb(data, length, JSON_ALLOW_NUL, &error);
    if (!root && json_error_code(&error) == json_error_out_of_memory)
        gv_reply_fail(reply, GV_REASON_OWN, "out of memory");
    else if (!root)
        gv_reply_fail(reply, GV_REASON_NOT_JSON, "%s is no JSON: %s; it begins \"%.*s\"", what, error.text,
                      (int)(length < 60 ? length : 60), data);
    return root;
}

bool gv_reply_event(gv_reply *reply, const char *data, size_t length)
{
    if (reply->failed)
        return false;
    // What comes after [DONE] is no part of the answer.
    if (reply->done)
        return true;
    if (length == 6 && memcmp(data, "[DONE]", 6) == 0) {
        reply->done = true;
        return true;
    }
    json_t *root = parse(reply, data, length, "an event");
    if (!root)
        return false;
    bool taken = take_completion(reply, root, "delta", true);
    json_decref(root);
    return taken;
}

bool gv_reply_body(gv_reply *reply, const char *data, size_t length)
{
    json_t *root = parse(reply, data, length, "the answer");
    if (!root)
        return false;
    bool taken = take_completion(reply, root, "message", false);
    if (taken && json_array_size(json_object_get(root, "choices")) == 0)
        gv_reply_fail(reply, GV_REASON_WRONG_SCHEMA, "`choices` is empty");
    json_decref(root);
    return !reply->failed;
}

void gv_reply_end(gv_reply *reply, bool stream)
{
    if (reply->failed)
        return;
    // Calls are numbered by the server: one that was never sent is a hole, not a call.
    for (size_t i = 0; i < reply->call_count; i++) {
        if (!reply->calls[i].seen) {
            gv_reply_fail(reply, GV_REASON_WRONG_SCHEMA, "tool call %zu is missing among %zu", i, reply->call_count);
            return;
        }
    }
    if (!reply->finish[0])
        gv_reply_fail(reply, GV_REASON_CUT, "the answer ended without a finish_reason after %s",
                      gv_count(reply->pieces, "piece", "pieces"));
    else if (stream && !reply->done)
        gv_reply_fail(reply, GV_REASON_NO_DONE, "the stream ended without [DONE]");
}

bool gv_reply_has_answer(const gv_reply *reply)
{
    return reply->finish[0] && (!reply->failed || reply->reason == GV_REASON_NO_DONE);
}

void gv_reply_free(gv_reply *reply)
{
    gv_string_free(&reply->content);
    gv_string_free(&reply->reasoning);
    gv_string_free(&reply->refusal);
    for (size_t i = 0; reply->calls && i < GV_REPLY_CALLS; i++) {
        gv_string_free(&reply->calls[i].id);
        gv_string_free(&reply->calls[i].name);
        gv_string_free(&reply->calls[i].arguments);
    }
    gv_free(reply->calls);
    *reply = (gv_reply){0};
}
