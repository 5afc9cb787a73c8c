// Writes answers to chat requests (OpenAI's API reference, "The chat completion object" and "... chunk object").
#include "specimen/server/chat_reply.h"

#include "base/memory.h"
#include "specimen/server/models.h"
#include "specimen/server/sse.h"
#include "specimen/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- Streamed -----------------------------------------------------------------------------------------------------

static void send(gv_chat_reply *reply, gv_text *events)
{
    if (!reply->began && !reply->gone)
        gv_http_stream_begin(reply->exchange, 200, "text/event-stream; charset=utf-8");
    reply->began |= !reply->gone;
    if (events->failed || (!reply->gone && !gv_http_stream_write(reply->exchange, events->data, events->length)))
        reply->gone = true;
    gv_text_free(events);
}

// Sends one chunk. Takes over `choices` and `usage` (NULL: none).
static void send_chunk(gv_chat_reply *reply, json_t *choices, json_t *usage)
{
    json_t *chunk = json_pack("{s:s,s:s,s:I,s:s,s:o}", "id", reply->id, "object", "chat.completion.chunk", "created",
                              (json_int_t)reply->created, "model", reply->request->model, "choices", choices);
    // With include_usage every chunk has the member, and all but the last have null there.
    if (chunk && reply->request->include_usage)
        json_object_set_new(chunk, "usage", usage ? usage : json_null());
    char *json = chunk ? json_dumps(chunk, JSON_COMPACT) : NULL;
    json_decref(chunk);
    gv_text event = {0};
    event.failed = !json;
    if (json)
        gv_sse_add(&event, json, strlen(json));
    free(json);
    send(reply, &event);
}

static void send_delta(gv_chat_reply *reply, json_t *delta, const char *finish_reason)
{
    json_t *reason = finish_reason ? json_string(finish_reason) : json_null();
    send_chunk(reply, json_pack("[{s:i,s:o,s:n,s:o}]", "index", 0, "delta", delta, "logprobs", "finish_reason", reason),
               NULL);
}

// The first chunk says who speaks.
static void send_role(gv_chat_reply *reply)
{
    if (!reply->began)
        send_delta(reply, json_pack("{s:s,s:s}", "role", "assistant", "content", ""), NULL);
}

// ---- Parts of the answer, from the reader of markup ---------------------------------------------------------------

static void on_content(void *context, const char *text, size_t length)
{
    gv_chat_reply *reply = context;
    if (!reply->request->stream) {
        gv_text_add(&reply->content, text, length);
        return;
    }
    send_role(reply);
    send_delta(reply, json_pack("{s:s%}", "content", text, length), NULL);
}

static void on_call(void *context, const char *name, size_t length)
{
    gv_chat_reply *reply = context;
    if (!GV_GROW(reply->calls, reply->call_capacity, reply->call_count + 1)) {
        reply->answer.failed = true;
        return;
    }
    gv_reply_call *call = &reply->calls[reply->call_count];
    *call = (gv_reply_call){0};
    // Unique in a conversation, as clients answer by it.
    snprintf(call->id, sizeof call->id, "call_%.20s%02zx", reply->id + strlen("chatcmpl-"), reply->call_count);
    gv_text_add(&call->name, name, length);
    reply->call_count++;
    if (!reply->request->stream)
        return;
    send_role(reply);
    send_delta(reply,
               json_pack("{s:[{s:I,s:s,s:s,s:{s:s%,s:s}}]}", "tool_calls", "index", (json_int_t)reply->call_count - 1,
                         "id", call->id, "type", "function", "function", "name", name, length, "arguments", ""),
               NULL);
}

static void on_arguments(void *context, const char *json, size_t length)
{
    gv_chat_reply *reply = context;
    if (!reply->call_count)
        return;
    if (!reply->request->stream) {
        gv_text_add(&reply->calls[reply->call_count - 1].arguments, json, length);
        return;
    }
    send_delta(reply,
               json_pack("{s:[{s:I,s:{s:s%}}]}", "tool_calls", "index", (json_int_t)reply->call_count - 1, "function",
                         "arguments", json, length),
               NULL);
}

// ---- Begin, tokens, end -------------------------------------------------------------------------------------------

void gv_chat_reply_begin(gv_chat_reply *reply, gv_http_exchange *exchange, const gv_chat_request *request,
                         unsigned long long id)
{
    *reply = (gv_chat_reply){.exchange = exchange, .request = request, .created = time(NULL), .previous = -1};
    snprintf(reply->id, sizeof reply->id, "chatcmpl-%016llx", id);
    gv_answer_sink sink = {on_content, on_call, on_arguments, reply};
    gv_answer_begin(&reply->answer, request, &sink);
}

bool gv_chat_reply_add(gv_chat_reply *reply, const int *tokens, size_t count)
{
    bool wanted = true;
    for (size_t i = 0; i < count && wanted; i++) {
        // A corrupt token can lie outside the vocabulary; the text shows it instead of hiding it.
        const char *text = vocabulary_text(tokens[i]);
        char piece[256];
        int length = snprintf(piece, sizeof piece, "%s%s", vocabulary_gap(reply->previous, tokens[i]),
                              text ? text : "<invalid token>");
        reply->previous = tokens[i];
        wanted = gv_answer_add(&reply->answer, piece, (size_t)length);
    }
    return wanted && !reply->gone && !gv_http_gone(reply->exchange);
}

static json_t *usage(int prompt_tokens, int completion_tokens)
{
    return json_pack("{s:i,s:i,s:i}", "prompt_tokens", prompt_tokens, "completion_tokens", completion_tokens,
                     "total_tokens", prompt_tokens + completion_tokens);
}

static void end_stream(gv_chat_reply *reply, const char *reason, int prompt_tokens, int completion_tokens)
{
    send_role(reply);
    send_delta(reply, json_object(), reason);
    if (reply->request->include_usage)
        send_chunk(reply, json_array(), usage(prompt_tokens, completion_tokens));
    gv_text done = {0};
    gv_sse_add_done(&done);
    send(reply, &done);
    gv_http_stream_end(reply->exchange, !reply->gone);
}

static json_t *message(const gv_chat_reply *reply)
{
    const gv_text *content = &reply->content;
    if (!gv_answer_has_calls(&reply->answer))
        return json_pack("{s:s,s:s%}", "role", "assistant", "content", content->length ? content->data : "",
                         content->length);
    json_t *calls = json_array();
    for (size_t i = 0; i < reply->call_count; i++) {
        const gv_reply_call *call = &reply->calls[i];
        json_array_append_new(calls, json_pack("{s:s,s:s,s:{s:s%,s:s%}}", "id", call->id, "type", "function",
                                               "function", "name", call->name.data, call->name.length, "arguments",
                                               call->arguments.data, call->arguments.length));
    }
    json_t *text = content->length ? json_stringn(content->data, content->length) : json_null();
    return json_pack("{s:s,s:o,s:o}", "role", "assistant", "content", text, "tool_calls", calls);
}

static void end_whole(gv_chat_reply *reply, const char *reason, int prompt_tokens, int completion_tokens)
{
    gv_json_reply(reply->exchange, 200,
                  json_pack("{s:s,s:s,s:I,s:s,s:[{s:i,s:o,s:n,s:s}],s:o}", "id", reply->id, "object", "chat.completion",
                            "created", (json_int_t)reply->created, "model", reply->request->model, "choices", "index",
                            0, "message", message(reply), "logprobs", "finish_reason", reason, "usage",
                            usage(prompt_tokens, completion_tokens)));
}

void gv_chat_reply_end(gv_chat_reply *reply, bool length, int prompt_tokens, int completion_tokens)
{
    gv_answer_end(&reply->answer);
    if (reply->answer.failed || reply->content.failed) {
        gv_api_error error;
        gv_refuse(&error, 500, NULL, "out_of_memory", "the server ran out of memory while it wrote the answer");
        gv_chat_reply_fail(reply, &error);
        return;
    }
    const char *reason = length && !reply->answer.stopped      ? "length"
                         : gv_answer_has_calls(&reply->answer) ? "tool_calls"
                                                               : "stop";
    if (reply->request->stream)
        end_stream(reply, reason, prompt_tokens, completion_tokens);
    else
        end_whole(reply, reason, prompt_tokens, completion_tokens);
}

void gv_chat_reply_fail(gv_chat_reply *reply, const gv_api_error *error)
{
    if (!reply->began) {
        gv_http_reply_error(reply->exchange, error);
        return;
    }
    size_t length = 0;
    char *json = gv_api_error_json(error, &length);
    gv_text event = {0};
    event.failed = !json;
    if (json)
        gv_sse_add(&event, json, length);
    gv_free(json);
    send(reply, &event);
    gv_http_stream_end(reply->exchange, !reply->gone);
}

void gv_chat_reply_free(gv_chat_reply *reply)
{
    gv_answer_free(&reply->answer);
    gv_text_free(&reply->content);
    for (size_t i = 0; i < reply->call_count; i++) {
        gv_text_free(&reply->calls[i].name);
        gv_text_free(&reply->calls[i].arguments);
    }
    gv_free(reply->calls);
}
