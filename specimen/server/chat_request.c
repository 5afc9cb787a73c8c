// Checks the body of POST /v1/chat/completions field by field (OpenAI's API reference, "Create chat completion").
#include "specimen/server/chat_request.h"

#include "base/memory.h"

#include <stdint.h>
#include <string.h>

enum { MOST_NAME = 64, MOST_STOP = 256, MOST_CALLS = 64 };

static bool bad(gv_api_error *error, const char *param, const char *why)
{
    return gv_refuse(error, 400, param, "invalid_value", "%s %s", param, why);
}

static bool out_of_memory(gv_api_error *error)
{
    return gv_refuse(error, 503, NULL, "server_busy", "the server is out of memory; try again later");
}

// A member that may be absent or null. False after a refusal.
static bool read_bool(const json_t *object, const char *key, bool *value, gv_api_error *error)
{
    const json_t *member = json_object_get(object, key);
    if (!member || json_is_null(member))
        return true;
    if (!json_is_boolean(member))
        return bad(error, key, "must be true or false");
    *value = json_is_true(member);
    return true;
}

static bool check_number(const json_t *object, const char *key, double least, double most, gv_api_error *error)
{
    const json_t *member = json_object_get(object, key);
    if (!member || json_is_null(member))
        return true;
    double number = json_is_number(member) ? json_number_value(member) : most + 1;
    if (number >= least && number <= most)
        return true;
    return gv_refuse(error, 400, key, "invalid_value", "%s must be a number from %g to %g", key, least, most);
}

static bool is_name(const char *name)
{
    size_t length = strlen(name);
    return length && length <= MOST_NAME &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == length;
}

// ---- Messages -----------------------------------------------------------------------------------------------------

// The text of an array of parts, joined; the request keeps it.
static const char *join_parts(gv_chat_request *request, const json_t *parts, gv_api_error *error)
{
    size_t length = 0;
    size_t index;
    const json_t *part;
    json_array_foreach(parts, index, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *text = json_object_get(part, "text");
        if (!type || strcmp(type, "text") != 0 || !json_is_string(text)) {
            bad(error, "messages.content", "may hold only parts of type \"text\"");
            return NULL;
        }
        length += json_string_length(text);
    }
    char *joined = gv_malloc(length + 1);
    if (!joined) {
        out_of_memory(error);
        return NULL;
    }
    size_t used = 0;
    json_array_foreach(parts, index, part)
    {
        const json_t *text = json_object_get(part, "text");
        memcpy(joined + used, json_string_value(text), json_string_length(text));
        used += json_string_length(text);
    }
    joined[used] = 0;
    json_t *kept = json_stringn_nocheck(joined, used);
    gv_free(joined);
    if (!kept || json_array_append_new(request->joined, kept) != 0) {
        out_of_memory(error);
        return NULL;
    }
    return json_string_value(kept);
}

static bool read_calls(gv_chat_message *message, const json_t *calls, gv_api_error *error)
{
    if (!json_is_array(calls) || json_array_size(calls) == 0 || json_array_size(calls) > MOST_CALLS)
        return bad(error, "messages.tool_calls", "must be a list of one to 64 calls");
    message->calls = gv_calloc(json_array_size(calls), sizeof *message->calls);
    if (!message->calls)
        return out_of_memory(error);
    size_t index;
    const json_t *call;
    json_array_foreach(calls, index, call)
    {
        const json_t *function = json_object_get(call, "function");
        gv_chat_call *out = &message->calls[index];
        out->id = json_string_value(json_object_get(call, "id"));
        out->name = json_string_value(json_object_get(function, "name"));
        out->arguments = json_string_value(json_object_get(function, "arguments"));
        if (!out->id || !out->name || !out->arguments)
            return bad(error, "messages.tool_calls", "needs an id, a function.name and function.arguments, all text");
        message->call_count++;
    }
    return true;
}

// A tool message answers a call of the nearest assistant message before it.
static bool answers_a_call(const gv_chat_request *request, size_t position)
{
    const char *id = request->messages[position].answers;
    for (size_t i = position; i-- > 0;) {
        const gv_chat_message *before = &request->messages[i];
        if (before->role == GV_ROLE_TOOL)
            continue;
        for (size_t call = 0; before->role == GV_ROLE_ASSISTANT && call < before->call_count; call++) {
            if (strcmp(before->calls[call].id, id) == 0)
                return true;
        }
        return false;
    }
    return false;
}

static bool read_message(gv_chat_request *request, size_t position, const json_t *object, gv_api_error *error)
{
    static const struct {
        const char *name;
        gv_chat_role role;
    } roles[] = {{"system", GV_ROLE_SYSTEM},
                 {"developer", GV_ROLE_SYSTEM},
                 {"user", GV_ROLE_USER},
                 {"assistant", GV_ROLE_ASSISTANT},
                 {"tool", GV_ROLE_TOOL}};
    gv_chat_message *message = &request->messages[position];
    const char *role = json_string_value(json_object_get(object, "role"));
    size_t known = 0;
    while (known < 5 && (!role || strcmp(roles[known].name, role) != 0))
        known++;
    if (known == 5)
        return bad(error, "messages.role", "must be system, developer, user, assistant or tool");
    message->role = roles[known].role;

    const json_t *calls = json_object_get(object, "tool_calls");
    if (calls && !json_is_null(calls)) {
        if (message->role != GV_ROLE_ASSISTANT)
            return bad(error, "messages.tool_calls", "belongs to assistant messages only");
        if (!read_calls(message, calls, error))
            return false;
    }
    const json_t *content = json_object_get(object, "content");
    if (json_is_string(content))
        message->content = json_string_value(content);
    else if (json_is_array(content))
        message->content = join_parts(request, content, error);
    else if ((!content || json_is_null(content)) && message->call_count)
        message->content = "";
    else
        return bad(error, "messages.content", "must be text or a list of text parts");
    if (!message->content)
        return false;

    if (message->role == GV_ROLE_TOOL) {
        message->answers = json_string_value(json_object_get(object, "tool_call_id"));
        if (!message->answers)
            return bad(error, "messages.tool_call_id", "must name the call that a tool message answers");
        if (!answers_a_call(request, position))
            return bad(error, "messages.tool_call_id", "names no call of the assistant message before it");
    }
    return true;
}

static bool read_messages(gv_chat_request *request, const gv_chat_limits *limits, gv_api_error *error)
{
    const json_t *messages = json_object_get(request->root, "messages");
    size_t count = json_array_size(messages);
    if (!json_is_array(messages) || count == 0)
        return bad(error, "messages", "must be a list of at least one message");
    if (count > limits->most_messages)
        return gv_refuse(error, 400, "messages", "too_many_messages", "messages has %zu entries; at most %zu are taken",
                         count, limits->most_messages);
    request->messages = gv_calloc(count, sizeof *request->messages);
    if (!request->messages)
        return out_of_memory(error);
    size_t index;
    const json_t *message;
    json_array_foreach(messages, index, message)
    {
        request->message_count = index + 1;
        if (!read_message(request, index, message, error))
            return false;
    }
    return true;
}

// ---- Tools --------------------------------------------------------------------------------------------------------

static bool read_tool(gv_chat_request *request, const json_t *object, gv_api_error *error)
{
    gv_chat_tool *tool = &request->tools[request->tool_count];
    const char *type = json_string_value(json_object_get(object, "type"));
    const json_t *function = json_object_get(object, "function");
    if (!type || strcmp(type, "function") != 0 || !json_is_object(function))
        return bad(error, "tools", "may hold only tools of type \"function\" with a function");
    tool->name = json_string_value(json_object_get(function, "name"));
    if (!tool->name || !is_name(tool->name))
        return bad(error, "tools.function.name", "must be 1 to 64 letters, digits, _ or -");
    for (size_t i = 0; i < request->tool_count; i++) {
        if (strcmp(request->tools[i].name, tool->name) == 0)
            return bad(error, "tools.function.name", "is given twice");
    }
    const json_t *description = json_object_get(function, "description");
    if (description && !json_is_null(description) && !json_is_string(description))
        return bad(error, "tools.function.description", "must be text");
    tool->description = json_is_string(description) ? json_string_value(description) : "";
    tool->parameters = json_object_get(function, "parameters");
    if (json_is_null(tool->parameters))
        tool->parameters = NULL;
    if (tool->parameters && !json_is_object(tool->parameters))
        return bad(error, "tools.function.parameters", "must be a JSON Schema object");
    request->tool_count++;
    return true;
}

static bool read_tools(gv_chat_request *request, const gv_chat_limits *limits, gv_api_error *error)
{
    const json_t *tools = json_object_get(request->root, "tools");
    if (!tools || json_is_null(tools))
        return true;
    size_t count = json_array_size(tools);
    if (!json_is_array(tools))
        return bad(error, "tools", "must be a list");
    if (count > limits->most_tools)
        return gv_refuse(error, 400, "tools", "too_many_tools", "tools has %zu entries; at most %zu are taken", count,
                         limits->most_tools);
    request->tools = count ? gv_calloc(count, sizeof *request->tools) : NULL;
    if (count && !request->tools)
        return out_of_memory(error);
    size_t index;
    const json_t *tool;
    json_array_foreach(tools, index, tool)
    {
        if (!read_tool(request, tool, error))
            return false;
    }
    return true;
}

static bool read_tool_choice(gv_chat_request *request, gv_api_error *error)
{
    const json_t *choice = json_object_get(request->root, "tool_choice");
    request->tool_choice = request->tool_count ? GV_TOOLS_AUTO : GV_TOOLS_NONE;
    if (!choice || json_is_null(choice))
        return true;
    const char *word = json_string_value(choice);
    if (word && strcmp(word, "none") == 0) {
        request->tool_choice = GV_TOOLS_NONE;
        return true;
    }
    if (word && strcmp(word, "auto") == 0)
        return true;
    if (!request->tool_count)
        return bad(error, "tool_choice", "asks for a call, but no tools are given");
    if (word && strcmp(word, "required") == 0) {
        request->tool_choice = GV_TOOLS_REQUIRED;
        return true;
    }
    request->forced_tool = json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    if (!request->forced_tool)
        return bad(error, "tool_choice", "must be none, auto, required, or a function by name");
    for (size_t i = 0; i < request->tool_count; i++) {
        if (strcmp(request->tools[i].name, request->forced_tool) == 0) {
            request->tool_choice = GV_TOOLS_NAMED;
            return true;
        }
    }
    return bad(error, "tool_choice", "names a function that is not among the tools");
}

// ---- The rest -----------------------------------------------------------------------------------------------------

static bool read_most_tokens(gv_chat_request *request, gv_api_error *error)
{
    // The newer name wins where both are given.
    static const char *const keys[] = {"max_tokens", "max_completion_tokens"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *most = json_object_get(request->root, keys[i]);
        if (!most || json_is_null(most))
            continue;
        json_int_t number = json_is_integer(most) ? json_integer_value(most) : 0;
        if (number < 1 || number > INT32_MAX)
            return bad(error, keys[i], "must be a whole number of at least 1");
        request->most_tokens = (int)number;
    }
    return true;
}

static bool add_stop(gv_chat_request *request, const json_t *stop, gv_api_error *error)
{
    if (!json_is_string(stop) || !json_string_length(stop) || json_string_length(stop) > MOST_STOP)
        return bad(error, "stop", "must be text of 1 to 256 bytes, or a list of such texts");
    if (request->stop_count == GV_MOST_STOPS)
        return bad(error, "stop", "takes at most 4 texts");
    request->stops[request->stop_count++] = json_string_value(stop);
    return true;
}

static bool read_stops(gv_chat_request *request, gv_api_error *error)
{
    const json_t *stop = json_object_get(request->root, "stop");
    if (!stop || json_is_null(stop))
        return true;
    if (!json_is_array(stop))
        return add_stop(request, stop, error);
    size_t index;
    const json_t *each;
    json_array_foreach(stop, index, each)
    {
        if (!add_stop(request, each, error))
            return false;
    }
    return true;
}

static bool read_stream(gv_chat_request *request, gv_api_error *error)
{
    const json_t *options = json_object_get(request->root, "stream_options");
    if (!read_bool(request->root, "stream", &request->stream, error))
        return false;
    if (!options || json_is_null(options))
        return true;
    if (!request->stream)
        return bad(error, "stream_options", "is only allowed with stream");
    if (!json_is_object(options))
        return bad(error, "stream_options", "must be an object");
    return read_bool(options, "include_usage", &request->include_usage, error);
}

// Fields that would change the answer and that the specimen does not have.
static bool refuse_unsupported(const gv_chat_request *request, gv_api_error *error)
{
    static const char *const absent[] = {"functions",  "function_call", "audio",     "modalities",
                                         "prediction", "top_logprobs",  "logit_bias"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        const json_t *member = json_object_get(request->root, absent[i]);
        bool empty = !member || json_is_null(member) || (json_is_object(member) && !json_object_size(member));
        if (!empty)
            return gv_refuse(error, 400, absent[i], "unsupported_parameter", "%s is not supported", absent[i]);
    }
    bool logprobs = false;
    if (!read_bool(request->root, "logprobs", &logprobs, error))
        return false;
    if (logprobs)
        return gv_refuse(error, 400, "logprobs", "unsupported_parameter", "logprobs is not supported");
    const json_t *format = json_object_get(request->root, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format && !json_is_null(format) && (!type || strcmp(type, "text") != 0))
        return gv_refuse(error, 400, "response_format", "unsupported_parameter",
                         "response_format of another type than text is not supported");
    const json_t *n = json_object_get(request->root, "n");
    if (n && !json_is_null(n) && !(json_is_integer(n) && json_integer_value(n) == 1))
        return gv_refuse(error, 400, "n", "unsupported_value", "n must be 1");
    return true;
}

static bool check_sampling(const gv_chat_request *request, gv_api_error *error)
{
    // Decoding is greedy: a temperature is checked and changes nothing.
    return check_number(request->root, "temperature", 0, 2, error) &&
           check_number(request->root, "top_p", 0, 1, error) &&
           check_number(request->root, "presence_penalty", -2, 2, error) &&
           check_number(request->root, "frequency_penalty", -2, 2, error);
}

static bool read_bootstrap(gv_chat_request *request, gv_api_error *error)
{
    const json_t *room = json_object_get(request->root, "bootstrap_room");
    if (!room || json_is_null(room))
        return true;
    const json_t *port = json_object_get(request->root, "bootstrap_port");
    request->bootstrap_host = json_string_value(json_object_get(request->root, "bootstrap_host"));
    bool port_fits = json_is_integer(port) && json_integer_value(port) > 0 && json_integer_value(port) <= UINT16_MAX;
    if (!json_is_integer(room) || json_integer_value(room) < 1)
        return bad(error, "bootstrap_room", "must be a whole number of at least 1");
    // It becomes part of a URL: an address or a name, and nothing that would make it another URL.
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]";
    const char *host = request->bootstrap_host;
    if (!host || !*host || host[strspn(host, letters)] || !port_fits)
        return bad(error, "bootstrap_room", "needs a bootstrap_host and a bootstrap_port");
    request->bootstrap_room = (uint64_t)json_integer_value(room);
    request->bootstrap_port = (int)json_integer_value(port);
    return true;
}

static bool read_model(gv_chat_request *request, const gv_chat_limits *limits, gv_api_error *error)
{
    const json_t *model = json_object_get(request->root, "model");
    if (!json_is_string(model))
        return bad(error, "model", "must be the name of a model");
    request->model = json_string_value(model);
    if (limits->model && strcmp(request->model, limits->model) != 0)
        return gv_refuse(error, 404, "model", "model_not_found",
                         "there is no model \"%.100s\" here; this server has \"%s\"", request->model, limits->model);
    return true;
}

bool gv_chat_request_read(gv_chat_request *request, const char *body, size_t length, const gv_chat_limits *limits,
                          gv_api_error *error)
{
    *request = (gv_chat_request){0};
    *error = (gv_api_error){0};
    json_error_t where;
    request->root = json_loadb(body, length, JSON_REJECT_DUPLICATES, &where);
    if (!request->root)
        return gv_refuse(error, 400, NULL, "invalid_json", "the request body is not valid JSON: line %d, column %d: %s",
                         where.line, where.column, where.text);
    request->joined = json_array();
    bool good = request->joined ? true : out_of_memory(error);
    if (good && !json_is_object(request->root))
        good = gv_refuse(error, 400, NULL, "invalid_json", "the request body must be a JSON object");
    good = good && read_model(request, limits, error) && read_messages(request, limits, error) &&
           read_tools(request, limits, error) && read_tool_choice(request, error) && read_most_tokens(request, error) &&
           read_stops(request, error) && read_stream(request, error) && refuse_unsupported(request, error) &&
           check_sampling(request, error) && read_bootstrap(request, error);
    if (!good)
        gv_chat_request_free(request);
    return good;
}

void gv_chat_request_free(gv_chat_request *request)
{
    for (size_t i = 0; request->messages && i < request->message_count; i++)
        gv_free(request->messages[i].calls);
    gv_free(request->messages);
    gv_free(request->tools);
    json_decref(request->root);
    json_decref(request->joined);
    *request = (gv_chat_request){0};
}
