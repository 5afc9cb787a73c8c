// See stress_entry.h.
#include "stress_entry.h"

#include "base/memory.h"
#include "stress/oracle.h"
#include "stress/session.h"
#include "stress/sse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMISE(condition)                                                                  \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                        \
        }                                                                                   \
    } while (0)

enum { EVENT_LIMIT = 4096, TEXT_LIMIT = 600 };

static bool take_event(void *context, const char *data, size_t length)
{
    PROMISE(length < EVENT_LIMIT && data[length] == '\0');
    return gv_reply_event(context, data, length);
}

static void read_stream(gv_reply *reply, const char *bytes, size_t size, size_t piece)
{
    gv_sse sse = {.limit = EVENT_LIMIT, .handler = take_event, .context = reply};
    gv_sse_status status = GV_SSE_OK;
    for (size_t at = 0; at < size && status == GV_SSE_OK; at += piece) {
        // A block of exactly the piece, so that the address sanitizer sees a read beyond it.
        size_t now = piece < size - at ? piece : size - at;
        char *copy = malloc(now);
        PROMISE(copy);
        memcpy(copy, bytes + at, now);
        status = gv_sse_feed(&sse, copy, now);
        free(copy);
    }
    if (status == GV_SSE_TOO_LONG)
        gv_reply_fail(reply, GV_REASON_TOO_LARGE, "too long");
    else if (status == GV_SSE_OK)
        gv_sse_finish(&sse);
    PROMISE(status != GV_SSE_MEMORY);
    gv_sse_free(&sse);
    gv_reply_end(reply, true);
}

static const gv_scenario *built_in(void)
{
    static gv_scenario *scenario;
    if (!scenario)
        gv_scenario_parse("built-in", gv_builtin_scenario, strlen(gv_builtin_scenario), &scenario, NULL);
    PROMISE(scenario);
    return scenario;
}

// Everything that is told of a reply is there and bounded.
static void judge(const gv_reply *reply, gv_judgement *judgement)
{
    static gv_session session;
    if (!session.turns)
        PROMISE(gv_session_make(built_in(), 1, 0, 2, 4, &session, NULL) == GV_OK);
    PROMISE(reply->bytes <= TEXT_LIMIT && reply->call_count <= GV_REPLY_CALLS);
    PROMISE(reply->content.length + reply->reasoning.length + reply->refusal.length <= reply->bytes);
    PROMISE(strlen(reply->detail) < sizeof reply->detail && strlen(reply->finish) < sizeof reply->finish);
    gv_tools tools = gv_scenario_tools(built_in());
    gv_judge(&tools, &session.turns[1].expected, reply, judgement);
    gv_judgement other;
    gv_expectation text = {.text = "x"};
    gv_judge(&tools, &text, reply, &other);
    PROMISE(!reply->failed || judgement->reasons);
    PROMISE(!judgement->reasons == !judgement->detail[0] || gv_reasons_leading(judgement->reasons) != GV_REASON_COUNT);
}

void gv_fuzz_answer(const uint8_t *data, size_t size)
{
    if (size == 0)
        return;
    const char *bytes = (const char *)data + 1;
    size_t piece = (data[0] & 0x7f) + 1u;
    gv_judgement judgement, again;
    gv_reply reply = {.limit = TEXT_LIMIT};
    if (data[0] & 0x80) {
        gv_reply_body(&reply, bytes, size - 1);
        gv_reply_end(&reply, false);
        judge(&reply, &judgement);
        gv_reply_free(&reply);
        return;
    }
    read_stream(&reply, bytes, size - 1, piece);
    judge(&reply, &judgement);
    gv_reply whole = {.limit = TEXT_LIMIT};
    read_stream(&whole, bytes, size - 1, size);
    judge(&whole, &again);
    // A long line is refused earlier when it comes in pieces; apart from that the split changes nothing.
    bool too_long =
        (reply.failed && reply.reason == GV_REASON_TOO_LARGE) || (whole.failed && whole.reason == GV_REASON_TOO_LARGE);
    PROMISE(too_long || (judgement.reasons == again.reasons && judgement.calls == again.calls &&
                         judgement.text == again.text && strcmp(judgement.detail, again.detail) == 0));
    gv_reply_free(&reply);
    gv_reply_free(&whole);
}

void gv_fuzz_scenario(const uint8_t *data, size_t size)
{
    gv_scenario *scenario = NULL;
    gv_error error = {0};
    gv_status status = gv_scenario_parse("s.yaml", (const char *)data, size, &scenario, &error);
    PROMISE((status == GV_OK) == (scenario != NULL));
    PROMISE(status == GV_OK || error.text[0]);
    for (size_t i = 0; scenario && i < 2; i++) {
        gv_session session;
        status = gv_session_make(scenario, 7, i, scenario->round_count < 5 ? scenario->round_count : 5, 20, &session,
                                 &error);
        for (size_t round = 0; status == GV_OK && round < session.turn_count; round++) {
            const gv_turn *turn = &session.turns[round];
            PROMISE(turn->user && (!turn->expected.tool || (turn->arguments && turn->result)));
            gv_string text = {0};
            gv_add_json_string(&text, turn->user, strlen(turn->user));
            json_t *back = json_loadb(text.text, text.length, JSON_DECODE_ANY, NULL);
            PROMISE(json_is_string(back) && strcmp(json_string_value(back), turn->user) == 0);
            json_decref(back);
            gv_string_free(&text);
        }
        gv_session_free(&session);
    }
    gv_scenario_free(scenario);
}
