// Reads the markup of tool calls (specimen/chat.h shows it) piece by piece.
#include "specimen/server/answer.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define DSML  "｜DSML｜"
#define SPACE " \t\r\n"

static const char open_calls[] = "<" DSML "tool_calls>", close_calls[] = "</" DSML "tool_calls>";
static const char open_invoke[] = "<" DSML "invoke name=\"", close_invoke[] = "</" DSML "invoke>";
static const char open_parameter[] = "<" DSML "parameter name=\"", close_parameter[] = "</" DSML "parameter>";

// Where the reader is. Each state has a step that eats from `held`, and false means that it needs more text.
enum { CONTENT, CALLS, INVOKE_NAME, PARAMETERS, PARAMETER_NAME, VALUE, BODY, CLOSED };

void gv_answer_begin(gv_answer *answer, const gv_chat_request *request, const gv_answer_sink *sink)
{
    *answer = (gv_answer){.request = request, .sink = *sink, .state = CONTENT};
}

// ---- Searching ----------------------------------------------------------------------------------------------------

static const char *find(const gv_text *text, const char *marker)
{
    return text->length ? memmem(text->data, text->length, marker, strlen(marker)) : NULL;
}

// How many bytes at the end of the text may be the beginning of the marker.
static size_t half_marker(const gv_text *text, const char *marker)
{
    size_t most = strlen(marker) - 1;
    for (size_t length = text->length < most ? text->length : most; length; length--) {
        if (memcmp(text->data + text->length - length, marker, length) == 0)
            return length;
    }
    return 0;
}

// Drops what stands before the nearest of two markers, and that marker. 0: the first, 1: the second, -1: neither is
// there yet; then only what may be the beginning of one is kept.
static int skip_to(gv_text *text, const char *first, const char *second)
{
    const char *at_first = find(text, first);
    const char *at_second = find(text, second);
    if (!at_first && !at_second) {
        size_t kept = half_marker(text, first);
        size_t other = half_marker(text, second);
        kept = other > kept ? other : kept;
        gv_text_drop(text, text->length - kept);
        return -1;
    }
    bool is_first = at_first && (!at_second || at_first < at_second);
    const char *found = is_first ? at_first : at_second;
    gv_text_drop(text, (size_t)(found - text->data) + strlen(is_first ? first : second));
    return is_first ? 0 : 1;
}

// ---- Calls --------------------------------------------------------------------------------------------------------

static bool is_offered(const gv_chat_request *request, const char *name, size_t length)
{
    for (size_t i = 0; i < request->tool_count; i++) {
        const char *offered = request->tools[i].name;
        if (strlen(offered) == length && memcmp(offered, name, length) == 0)
            return request->tool_choice != GV_TOOLS_NAMED || strcmp(offered, request->forced_tool) == 0;
    }
    return false;
}

static void begin_call(gv_answer *answer, const char *name, size_t length)
{
    answer->parameters = 0;
    answer->dropping = !is_offered(answer->request, name, length);
    if (answer->dropping) {
        answer->unknown_calls++;
        return;
    }
    answer->calls++;
    answer->sink.call(answer->sink.context, name, length);
}

static void add_arguments(gv_answer *answer, const char *json, size_t length)
{
    if (!answer->dropping)
        answer->sink.arguments(answer->sink.context, json, length);
}

// The value as JSON: a string, or what the model wrote where that is JSON. Freed with free.
static char *value_json(const char *text, size_t length, bool is_text)
{
    json_t *value = is_text ? NULL : json_loadb(text, length, JSON_DECODE_ANY, NULL);
    if (!value)
        value = json_stringn(text, length);
    char *json = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    return json;
}

static void add_parameter(gv_answer *answer, const char *text, size_t length)
{
    char *name = value_json(answer->parameter_name.data, answer->parameter_name.length, true);
    char *value = value_json(text, length, answer->is_text);
    gv_text json = {0};
    gv_text_add_string(&json, answer->parameters ? ", " : "{");
    if (name && value) {
        gv_text_add_string(&json, name);
        gv_text_add_string(&json, ": ");
        gv_text_add_string(&json, value);
    }
    answer->failed |= !name || !value || json.failed;
    if (!answer->failed)
        add_arguments(answer, json.data, json.length);
    answer->parameters++;
    gv_text_free(&json);
    free(name);
    free(value);
}

static void end_call(gv_answer *answer)
{
    const char *rest = answer->parameters ? "}" : "{}";
    add_arguments(answer, rest, strlen(rest));
    answer->state = CALLS;
}

// ---- Steps --------------------------------------------------------------------------------------------------------

static bool step_content(gv_answer *answer)
{
    gv_text *held = &answer->held;
    const char *tag = answer->request->tool_choice == GV_TOOLS_NONE ? NULL : find(held, open_calls);
    size_t content = tag ? (size_t)(tag - held->data) : held->length;
    if (!tag && answer->request->tool_choice != GV_TOOLS_NONE)
        content -= half_marker(held, open_calls);
    if (content)
        answer->sink.content(answer->sink.context, held->data, content);
    gv_text_drop(held, content + (tag ? strlen(open_calls) : 0));
    if (tag)
        answer->state = CALLS;
    return tag != NULL;
}

static bool step_calls(gv_answer *answer)
{
    int which = skip_to(&answer->held, open_invoke, close_calls);
    if (which >= 0)
        answer->state = which == 0 ? INVOKE_NAME : CLOSED;
    return which >= 0;
}

// name">  or, for a call without arguments,  name"/>
static bool step_invoke_name(gv_answer *answer)
{
    gv_text *held = &answer->held;
    const char *quote = find(held, "\"");
    const char *end = find(held, ">");
    if (!quote || !end || end < quote)
        return false;
    begin_call(answer, held->data, (size_t)(quote - held->data));
    answer->state = PARAMETERS;
    bool closed = end[-1] == '/';
    gv_text_drop(held, (size_t)(end - held->data) + 1);
    if (closed)
        end_call(answer);
    return true;
}

static bool step_parameters(gv_answer *answer)
{
    gv_text *held = &answer->held;
    size_t blank = 0;
    while (blank < held->length && strchr(SPACE, held->data[blank]))
        blank++;
    gv_text_drop(held, blank);
    if (!held->length)
        return false;
    if (held->data[0] == '{' && !answer->parameters) {
        answer->state = BODY;
        return true;
    }
    int which = skip_to(held, open_parameter, close_invoke);
    if (which == 0)
        answer->state = PARAMETER_NAME;
    else if (which == 1)
        end_call(answer);
    return which >= 0;
}

// name" string="true">
static bool step_parameter_name(gv_answer *answer)
{
    gv_text *held = &answer->held;
    const char *end = find(held, ">");
    const char *quote = find(held, "\"");
    if (!end || !quote)
        return false;
    // A name without its quote takes all up to the end of the tag.
    const char *name_end = quote < end ? quote : end;
    answer->parameter_name.length = 0;
    gv_text_add(&answer->parameter_name, held->data, (size_t)(name_end - held->data));
    answer->is_text = memmem(name_end, (size_t)(end - name_end), "string=\"false\"", 14) == NULL;
    gv_text_drop(held, (size_t)(end - held->data) + 1);
    answer->state = VALUE;
    return true;
}

static bool step_value(gv_answer *answer)
{
    gv_text *held = &answer->held;
    const char *end = find(held, close_parameter);
    if (!end)
        return false;
    add_parameter(answer, held->data, (size_t)(end - held->data));
    gv_text_drop(held, (size_t)(end - held->data) + strlen(close_parameter));
    answer->state = PARAMETERS;
    return true;
}

// All arguments as one JSON text.
static bool step_body(gv_answer *answer)
{
    gv_text *held = &answer->held;
    const char *end = find(held, close_invoke);
    if (!end)
        return false;
    add_arguments(answer, held->data, (size_t)(end - held->data));
    gv_text_drop(held, (size_t)(end - held->data) + strlen(close_invoke));
    answer->state = CALLS;
    return true;
}

static bool step(gv_answer *answer)
{
    switch (answer->state) {
    case CONTENT: return step_content(answer);
    case CALLS: return step_calls(answer);
    case INVOKE_NAME: return step_invoke_name(answer);
    case PARAMETERS: return step_parameters(answer);
    case PARAMETER_NAME: return step_parameter_name(answer);
    case VALUE: return step_value(answer);
    case BODY: return step_body(answer);
    default: gv_text_drop(&answer->held, answer->held.length); return false;
    }
}

static void take(gv_answer *answer, const char *text, size_t length)
{
    gv_text_add(&answer->held, text, length);
    while (!answer->failed && step(answer))
        ;
    answer->failed |= answer->held.failed || answer->parameter_name.failed;
}

// ---- Stop texts ---------------------------------------------------------------------------------------------------

bool gv_answer_add(gv_answer *answer, const char *text, size_t length)
{
    const gv_chat_request *request = answer->request;
    if (answer->stopped || answer->failed)
        return false;
    if (!request->stop_count) {
        take(answer, text, length);
        return !answer->failed;
    }
    gv_text *early = &answer->early;
    gv_text_add(early, text, length);
    const char *first = NULL;
    size_t kept = 0;
    for (size_t i = 0; i < request->stop_count; i++) {
        const char *found = find(early, request->stops[i]);
        size_t half = half_marker(early, request->stops[i]);
        first = found && (!first || found < first) ? found : first;
        kept = half > kept ? half : kept;
    }
    size_t free_length = first ? (size_t)(first - early->data) : early->length - kept;
    take(answer, early->data, free_length);
    gv_text_drop(early, first ? early->length : free_length);
    answer->stopped = first != NULL;
    answer->failed |= early->failed;
    return !answer->stopped && !answer->failed;
}

void gv_answer_end(gv_answer *answer)
{
    if (answer->early.length)
        take(answer, answer->early.data, answer->early.length);
    gv_text_drop(&answer->early, answer->early.length);
    if (answer->state == CONTENT && answer->held.length)
        answer->sink.content(answer->sink.context, answer->held.data, answer->held.length);
    gv_text_drop(&answer->held, answer->held.length);
}

bool gv_answer_has_calls(const gv_answer *answer)
{
    return answer->calls && answer->state == CLOSED;
}

void gv_answer_free(gv_answer *answer)
{
    gv_text_free(&answer->early);
    gv_text_free(&answer->held);
    gv_text_free(&answer->parameter_name);
}
