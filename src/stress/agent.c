#include "stress/agent.h"

#include "base/memory.h"
#include "stress/oracle.h"
#include "stress/secret.h"
#include "stress/sse.h"
#include "stress/transcript.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct loop loop;

// A session at work.
typedef struct agent {
    gv_request request;
    loop *loop;
    gv_session session;
    size_t round;
    gv_random random; // of the think times
    // The body of the requests: it begins with `{"messages":[`, grows by what is said, and ends with the parameters
    // while a request is under way. One text, since thousands of sessions hold one each.
    gv_string body;
    size_t said;      // its length without the parameters
    uint64_t history; // hash of the first `hashed` bytes
    size_t hashed;
    gv_string findings; // for the transcript
    bool corrupt;
    gv_sse sse;
    gv_string whole; // an answer that is not streamed
    gv_reply reply;
    uint64_t first_ns, last_ns; // when the first and the last piece came
    uint64_t due_ns;            // when the next round is sent, while the agent is in the heap
} agent;

struct loop {
    const gv_pass *pass;
    agent *agents; // one for each slot
    agent **heap;  // those that wait, the earliest first
    size_t heap_count;
    size_t next;      // sessions begun
    size_t unstarted; // slots that the ramp has not started yet: a session is kept for each
    size_t event_limit, text_limit;
    gv_progress progress;
    uint64_t started_ns, told_ns;
    gv_status status; // of the client itself
    gv_error *error;
};

// ---- Parameters ---------------------------------------------------------------------------------------------------

bool gv_body_is_ours(const char *member)
{
    static const char *const ours[] = {"messages", "tools", "model", "stream", "n"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        if (strcmp(member, ours[i]) == 0)
            return true;
    }
    return false;
}

char *gv_request_tail(const gv_stress_options *options, double temperature)
{
    json_t *members = json_pack("{s:s, s:f, s:I, s:b}", "model", options->model, "temperature", temperature,
                                "max_tokens", (json_int_t)options->most_tokens, "stream", options->stream);
    // A whole number looks the same in every log: 0, not 0.0.
    if (members && temperature == (double)(int)temperature)
        json_object_set_new(members, "temperature", json_integer((int)temperature));
    if (members && options->stream)
        json_object_set_new(members, "stream_options", json_pack("{s:b}", "include_usage", 1));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)options->body, key, value)
    {
        if (json_is_null(value))
            json_object_del(members, key);
        else
            json_object_set(members, key, value);
    }
    char *text = members ? json_dumps(members, JSON_COMPACT) : NULL;
    json_decref(members);
    gv_string tail = {0};
    if (text && options->scenario->tools_json)
        gv_string_add(&tail, ",\"tools\":%s", options->scenario->tools_json);
    // The opening brace becomes a comma.
    if (text)
        gv_string_add(&tail, ",%s", text + 1);
    gv_free(text);
    if (!text || tail.failed) {
        gv_string_free(&tail);
        return NULL;
    }
    return tail.text;
}

// ---- What was said ------------------------------------------------------------------------------------------------

static const char opening[] = "{\"messages\":[";

static void say(agent *a, const char *role, const char *text)
{
    gv_string_add(&a->body, "%s{\"role\":\"%s\",\"content\":", a->body.length > sizeof opening - 1 ? "," : "", role);
    gv_add_json_string(&a->body, text, strlen(text));
    gv_string_add(&a->body, "}");
}

// Ids of calls are made here, the same in every run: servers' own are random, and some templates show them to the
// model.
static void add_id(gv_string *out, size_t round, size_t call)
{
    gv_string_add(out, "\"c%05zu%03zu\"", round % 100000, call % 1000);
}

static void say_call(agent *a, size_t call, const char *name, const char *arguments, size_t length)
{
    gv_string_add(&a->body, "%s{\"id\":", call ? "," : "");
    add_id(&a->body, a->round, call);
    gv_string_add(&a->body, ",\"type\":\"function\",\"function\":{\"name\":");
    gv_add_json_string(&a->body, name, strlen(name));
    gv_string_add(&a->body, ",\"arguments\":");
    gv_add_json_string(&a->body, arguments, length);
    gv_string_add(&a->body, "}}");
}

static void say_result(agent *a, size_t call, const char *result)
{
    gv_string_add(&a->body, ",{\"role\":\"tool\",\"tool_call_id\":");
    add_id(&a->body, a->round, call);
    gv_string_add(&a->body, ",\"content\":");
    gv_add_json_string(&a->body, result, strlen(result));
    gv_string_add(&a->body, "}");
}

static void begin_answer(agent *a, const gv_string *content, bool calls)
{
    gv_string_add(&a->body, ",{\"role\":\"assistant\",\"content\":");
    if (content && content->length)
        gv_add_json_string(&a->body, content->text, content->length);
    else
        gv_string_add(&a->body, calls ? "null" : "\"\"");
    if (calls)
        gv_string_add(&a->body, ",\"tool_calls\":[");
}

// The answer as it came, with its calls. For rounds of which nothing is expected: only calls that a server can read
// back are kept.
static void repeat_answer(agent *a)
{
    const gv_reply *reply = &a->reply;
    size_t calls = 0;
    for (size_t i = 0; i < reply->call_count; i++) {
        json_t *arguments =
            json_loadb(gv_string_text(&reply->calls[i].arguments), reply->calls[i].arguments.length, 0, NULL);
        if (!json_is_object(arguments)) {
            json_decref(arguments);
            continue;
        }
        json_decref(arguments);
        if (calls == 0)
            begin_answer(a, &reply->content, true);
        say_call(a, calls++, gv_string_text(&reply->calls[i].name), reply->calls[i].arguments.text,
                 reply->calls[i].arguments.length);
    }
    if (calls == 0)
        begin_answer(a, &reply->content, false);
    gv_string_add(&a->body, calls ? "]}" : "}");
    size_t told = 0;
    for (size_t i = 0; i < reply->call_count && told < calls; i++) {
        char *result = gv_session_other_result(&a->session, gv_string_text(&reply->calls[i].name));
        say_result(a, told++, result ? result : "{}");
        gv_free(result);
    }
}

// Appends the answer and the tool's result. A right answer is repeated as it came; in place of a wrong one stands the
// expected one, so that each round is measured with the same history whatever became of the one before.
static void append_answer(agent *a, bool right)
{
    const gv_turn *turn = &a->session.turns[a->round];
    if (turn->expected.tool) {
        const gv_call *call = right ? &a->reply.calls[0] : NULL;
        char *arguments = call ? NULL : json_dumps(turn->arguments, JSON_COMPACT);
        begin_answer(a, call ? &a->reply.content : NULL, true);
        if (call && call->arguments.length)
            say_call(a, 0, turn->expected.tool, call->arguments.text, call->arguments.length);
        else
            say_call(a, 0, turn->expected.tool, arguments ? arguments : "{}", arguments ? strlen(arguments) : 2);
        gv_string_add(&a->body, "]}");
        gv_free(arguments);
        say_result(a, 0, turn->result);
    } else if (turn->expected.text && !right) {
        gv_string text = {.text = turn->text, .length = strlen(turn->text)};
        begin_answer(a, &text, false);
        gv_string_add(&a->body, "}");
    } else {
        repeat_answer(a);
    }
}

// ---- Waiting ------------------------------------------------------------------------------------------------------

static void heap_push(loop *l, agent *a)
{
    size_t at = l->heap_count++;
    while (at && l->heap[(at - 1) / 2]->due_ns > a->due_ns) {
        l->heap[at] = l->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    l->heap[at] = a;
}

static agent *heap_pop(loop *l)
{
    agent *first = l->heap[0], *last = l->heap[--l->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < l->heap_count; at = child) {
        if (child + 1 < l->heap_count && l->heap[child + 1]->due_ns < l->heap[child]->due_ns)
            child++;
        if (l->heap[child]->due_ns >= last->due_ns)
            break;
        l->heap[at] = l->heap[child];
    }
    l->heap[at] = last;
    return first;
}

// ---- Rounds -------------------------------------------------------------------------------------------------------

static bool interrupted(const loop *l)
{
    return l->pass->options->interrupted && *l->pass->options->interrupted;
}

static void give_up(loop *l, gv_status status, const char *what)
{
    if (l->status == GV_OK)
        l->status = gv_fail(l->error, status, "%s", what);
}

static size_t session_index(const gv_pass *pass, size_t place)
{
    return pass->indices ? pass->indices[place] : place;
}

static bool on_event(void *context, const char *data, size_t length)
{
    agent *a = context;
    uint64_t before = a->reply.pieces;
    bool on = gv_reply_event(&a->reply, data, length);
    if (a->reply.pieces > before) {
        a->last_ns = gv_monotonic_ns();
        if (!a->first_ns)
            a->first_ns = a->last_ns;
    }
    return on;
}

static bool on_data(gv_request *request, const char *bytes, size_t length)
{
    agent *a = request->context;
    if (!a->loop->pass->options->stream) {
        gv_string_add_bytes(&a->whole, bytes, length);
        if (a->whole.failed)
            gv_reply_fail(&a->reply, GV_REASON_OWN, "out of memory");
        return !a->reply.failed;
    }
    gv_sse_status status = gv_sse_feed(&a->sse, bytes, length);
    if (status == GV_SSE_TOO_LONG)
        gv_reply_fail(&a->reply, GV_REASON_TOO_LARGE, "an event of the stream has more than %s",
                      gv_count(a->sse.limit, "byte", "bytes"));
    else if (status == GV_SSE_MEMORY)
        gv_reply_fail(&a->reply, GV_REASON_OWN, "out of memory");
    return status == GV_SSE_OK;
}

static void end_session(agent *a);
static void on_end(gv_request *request, const gv_outcome *outcome);

static void send_round(agent *a)
{
    loop *l = a->loop;
    const gv_pass *pass = l->pass;
    const gv_turn *turn = &a->session.turns[a->round];
    say(a, "user", turn->user);
    gv_sse_free(&a->sse);
    gv_reply_free(&a->reply);
    gv_string_clear(&a->whole);
    a->sse = (gv_sse){.limit = l->event_limit, .handler = on_event, .context = a};
    a->reply.limit = l->text_limit;
    a->first_ns = a->last_ns = 0;

    snprintf(a->request.id, sizeof a->request.id, "%.40s-s%zu-r%zu%s", pass->options->tag, a->session.index,
             a->round + 1, pass->alone ? "-alone" : "");
    a->request.on_data = on_data;
    a->request.on_end = on_end;
    a->request.context = a;
    gv_round_result *result = gv_results_at(pass->results, a->session.index, a->round);
    result->asked = true;
    if (!a->body.failed)
        a->history = gv_hash_bytes(a->history, a->body.text + a->hashed, a->body.length - a->hashed);
    result->history = a->history;
    a->said = a->hashed = a->body.length;
    gv_string_add_bytes(&a->body, "]", 1);
    gv_string_add_bytes(&a->body, pass->tail, strlen(pass->tail));
    if (a->body.failed) {
        give_up(l, GV_ERR_MEMORY, "out of memory; lower --concurrency");
        return;
    }
    pass->results->requests++;
    if (!gv_client_start(pass->client, &a->request, a->body.text, a->body.length))
        give_up(l, GV_ERR_MEMORY, "a request could not be started: out of memory; lower --concurrency");
}

static void wait_for(agent *a, uint64_t due_ns)
{
    a->due_ns = due_ns;
    heap_push(a->loop, a);
}

// What was measured of a round.
static void measure(const agent *a, const gv_outcome *outcome, gv_round_result *result)
{
    const gv_reply *reply = &a->reply;
    result->whole_ms = (float)((double)(outcome->ended_ns - outcome->started_ns) / 1e6);
    result->first_ms = a->first_ns ? (float)((double)(a->first_ns - outcome->started_ns) / 1e6) : -1;
    result->counted = reply->has_usage;
    uint64_t tokens = reply->has_usage ? reply->completion_tokens : reply->pieces;
    result->tokens = tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)tokens;
    result->prompt_tokens = reply->prompt_tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)reply->prompt_tokens;
    result->token_ms = -1;
    if (a->first_ns && tokens > 1 && reply->pieces > 1)
        result->token_ms = (float)((double)(a->last_ns - a->first_ns) / 1e6 / (double)(tokens - 1));
}

// Puts what HTTP says and what the answer says together.
static void complete_reply(agent *a, const gv_outcome *outcome)
{
    bool stream = a->loop->pass->options->stream;
    gv_reply *reply = &a->reply;
    if (stream && outcome->http_status == 200 && !reply->failed)
        gv_sse_finish(&a->sse);
    // A stream that said [DONE] is whole, whatever becomes of the connection afterwards.
    if (outcome->reason != GV_REASON_COUNT && !(reply->done && reply->finish[0]))
        gv_reply_fail(reply, outcome->reason, "%s", outcome->detail);
    if (stream && !reply->failed && !reply->finish[0] && reply->pieces == 0 &&
        strncasecmp(outcome->content_type, "text/event-stream", 17) != 0)
        gv_reply_fail(reply, GV_REASON_WRONG_SCHEMA,
                      "asked for a stream, the server sent \"%s\"; try --no-stream if it cannot stream",
                      outcome->content_type);
    if (!stream && !reply->failed)
        gv_reply_body(reply, gv_string_text(&a->whole), a->whole.length);
    gv_reply_end(reply, stream);
}

static void keep_findings(agent *a, const gv_judgement *judgement)
{
    const gv_pass *pass = a->loop->pass;
    if (!judgement->reasons)
        return;
    gv_results_note(pass->results, a->session.index, a->round, gv_reasons_leading(judgement->reasons),
                    judgement->detail, pass->options->key);
    if (gv_reasons_class(judgement->reasons) == GV_CLASS_CORRUPTION)
        a->corrupt = true;
    if (pass->options->transcripts && !pass->alone)
        gv_transcript_add(&a->findings, a->round, &a->session.turns[a->round], &a->reply, judgement);
}

static void on_end(gv_request *request, const gv_outcome *outcome)
{
    agent *a = request->context;
    loop *l = a->loop;
    const gv_pass *pass = l->pass;
    gv_round_result *result = gv_results_at(pass->results, a->session.index, a->round);
    gv_tools tools = gv_scenario_tools(pass->options->scenario);
    gv_judgement judgement;
    // The parameters come off again: what is said next follows the messages.
    a->body.length = a->said;
    a->body.text[a->said] = '\0';
    complete_reply(a, outcome);
    measure(a, outcome, result);
    gv_judge(&tools, &a->session.turns[a->round].expected, &a->reply, &judgement);
    result->reasons = judgement.reasons;
    result->calls = judgement.calls;
    result->text = judgement.text;
    keep_findings(a, &judgement);
    l->progress.rounds++;
    l->progress.tokens += result->tokens;

    bool failed =
        gv_reasons_have(judgement.reasons, GV_CLASS_FAILURE) || (judgement.reasons & GV_REASON_BIT(GV_REASON_REFUSAL));
    bool last = a->round + 1 == a->session.turn_count;
    if (failed || last || interrupted(l) || l->status != GV_OK) {
        end_session(a);
        return;
    }
    append_answer(a, judgement.reasons == 0);
    a->round++;
    double think = pass->think_low_s;
    think += (pass->think_high_s - pass->think_low_s) * (double)(gv_random_next(&a->random) >> 11) * 0x1p-53;
    if (think > 0)
        wait_for(a, gv_monotonic_ns() + (uint64_t)(think * 1e9));
    else
        send_round(a);
}

// ---- Sessions -----------------------------------------------------------------------------------------------------

static void begin_session(agent *a)
{
    loop *l = a->loop;
    const gv_pass *pass = l->pass;
    size_t index = session_index(pass, l->next++);
    gv_error error = {0};
    gv_status status = gv_session_make(pass->options->scenario, pass->options->seed, index, pass->options->rounds,
                                       pass->options->lines, &a->session, &error);
    if (status != GV_OK) {
        give_up(l, status, error.text);
        return;
    }
    a->random = gv_random_open(pass->options->seed ^ 0x7468696e6b, index);
    a->round = 0;
    a->corrupt = false;
    gv_string_clear(&a->body);
    gv_string_clear(&a->findings);
    gv_string_add(&a->body, "%s", opening);
    a->history = GV_HASH_START;
    a->hashed = 0;
    if (a->session.system)
        say(a, "system", a->session.system);
    // It stands in the body now.
    gv_free(a->session.system);
    a->session.system = NULL;
    l->progress.running++;
    send_round(a);
}

static void write_transcript(agent *a)
{
    const gv_pass *pass = a->loop->pass;
    const gv_stress_options *options = pass->options;
    gv_results *results = pass->results;
    if (!a->corrupt || !options->transcripts || pass->alone)
        return;
    if (results->transcripts >= options->most_transcripts) {
        results->transcripts_left_out++;
        return;
    }
    char id[64];
    snprintf(id, sizeof id, "%.40s-s%zu", options->tag, a->session.index);
    gv_string messages = {.text = a->body.text + sizeof opening - 1, .length = a->body.length - (sizeof opening - 1)};
    gv_transcript transcript = {.folder = options->transcripts,
                                .scenario = options->scenario->name,
                                .model = options->model,
                                .url = results->url,
                                .key = options->key,
                                .seed = options->seed,
                                .session = a->session.index,
                                .request_id = id,
                                .findings = &a->findings,
                                .messages = &messages};
    gv_error error = {0};
    if (gv_transcript_write(&transcript, &error) == GV_OK)
        results->transcripts++;
    else
        snprintf(results->warning, sizeof results->warning, "%.250s", error.text);
}

static void end_session(agent *a)
{
    loop *l = a->loop;
    write_transcript(a);
    gv_class class_ = gv_results_session_class(l->pass->results, a->session.index);
    l->progress.corrupt += class_ == GV_CLASS_CORRUPTION;
    l->progress.failed += class_ == GV_CLASS_FAILURE;
    l->progress.unsure += class_ == GV_CLASS_UNSURE;
    l->progress.running--;
    l->progress.sessions_done++;
    gv_session_free(&a->session);
    if (l->pass->count - l->next > l->unstarted && !interrupted(l) && l->status == GV_OK)
        begin_session(a);
}

// ---- The loop -----------------------------------------------------------------------------------------------------

static void tell(loop *l, uint64_t now, bool last)
{
    const gv_stress_options *options = l->pass->options;
    if (!options->progress || (!last && now - l->told_ns < 200000000u))
        return;
    l->told_ns = now;
    l->progress.seconds = (double)(now - l->started_ns) / 1e9;
    options->progress(options->progress_context, &l->progress);
}

static void run_loop(loop *l)
{
    gv_client *client = l->pass->client;
    bool cancelled = false;
    while (l->status == GV_OK && (gv_client_running(client) || l->heap_count)) {
        uint64_t now = gv_monotonic_ns();
        while (l->status == GV_OK && l->heap_count && (l->heap[0]->due_ns <= now || cancelled)) {
            agent *a = heap_pop(l);
            if (cancelled && a->session.turns)
                end_session(a);
            else if (cancelled)
                continue;
            else if (a->session.turns)
                send_round(a);
            else if (l->next < l->pass->count) {
                l->unstarted--;
                begin_session(a);
            }
        }
        tell(l, now, false);
        if (interrupted(l) && !cancelled) {
            cancelled = true;
            gv_client_cancel_all(client);
            continue;
        }
        // Progress is told while the server is silent, and an interruption is seen.
        uint64_t until = now + 250000000u;
        if (l->heap_count && l->heap[0]->due_ns < until)
            until = l->heap[0]->due_ns;
        if (gv_client_running(client) || l->heap_count) {
            if (!gv_client_poll(client, until))
                give_up(l, GV_ERR_IO, strerror(errno));
        }
    }
    if (l->status != GV_OK)
        gv_client_cancel_all(client);
    tell(l, gv_monotonic_ns(), true);
}

gv_status gv_pass_run(const gv_pass *pass, gv_error *error)
{
    size_t slots = pass->concurrency < pass->count ? pass->concurrency : pass->count;
    loop l = {.pass = pass, .error = error, .progress = {.phase = pass->phase, .sessions = pass->count}};
    if (slots == 0)
        return GV_OK;
    // Generous, so that no honest answer meets them: a token is seldom longer than 64 bytes, its event than 4 KiB.
    l.text_limit = (size_t)pass->options->most_tokens * 64 + (64 << 10);
    l.event_limit = 1 << 20;
    if (l.text_limit > l.event_limit)
        l.event_limit = l.text_limit;
    l.agents = gv_calloc(slots, sizeof *l.agents);
    l.heap = gv_calloc(slots, sizeof *l.heap);
    l.started_ns = l.told_ns = gv_monotonic_ns();
    l.unstarted = slots;
    if (!l.agents || !l.heap) {
        l.status = gv_fail(error, GV_ERR_MEMORY, "out of memory; lower --concurrency");
    } else {
        for (size_t i = 0; i < slots; i++) {
            l.agents[i].loop = &l;
            wait_for(&l.agents[i], l.started_ns + (uint64_t)(pass->ramp_s * 1e9 * (double)i / (double)slots));
        }
        run_loop(&l);
    }
    for (size_t i = 0; l.agents && i < slots; i++) {
        agent *a = &l.agents[i];
        gv_session_free(&a->session);
        gv_string_free(&a->body);
        gv_string_free(&a->findings);
        gv_string_free(&a->whole);
        gv_sse_free(&a->sse);
        gv_reply_free(&a->reply);
    }
    gv_free(l.agents);
    gv_free(l.heap);
    return l.status;
}
