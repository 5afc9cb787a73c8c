// Messages to tokens.
#include "specimen/server/chat_prompt.h"

#include <stdlib.h>
#include <string.h>

static bool out_of_memory(gv_api_error *error)
{
    return gv_refuse(error, 503, NULL, "server_busy", "the server is out of memory; try again later");
}

// An argument in its text form: a string as it is, anything else as JSON, nothing when absent. Freed with free.
static char *argument(const json_t *arguments, const char *name)
{
    const json_t *value = json_object_get(arguments, name);
    if (!value)
        return strdup("");
    return json_is_string(value) ? strdup(json_string_value(value)) : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
}

static bool add_call(tokens *prompt, const gv_chat_call *call, gv_api_error *error)
{
    json_t *arguments = json_loads(call->arguments, 0, NULL);
    if (!json_is_object(arguments)) {
        json_decref(arguments);
        return gv_refuse(error, 400, "messages.tool_calls", "invalid_value",
                         "messages.tool_calls has arguments that are not a JSON object, for the function %.64s",
                         call->name);
    }
    char *who = argument(arguments, "who");
    char *code = argument(arguments, "code");
    char *pin = argument(arguments, "pin");
    bool added = who && code && pin && chat_call(prompt, call->name, who, code, pin);
    free(who);
    free(code);
    free(pin);
    json_decref(arguments);
    return added || out_of_memory(error);
}

static bool add_message(tokens *prompt, const gv_chat_message *message, gv_api_error *error)
{
    static const enum chat_role roles[] = {
        [GV_ROLE_SYSTEM] = CHAT_SYSTEM,
        [GV_ROLE_USER] = CHAT_USER,
        [GV_ROLE_ASSISTANT] = CHAT_ASSISTANT,
        [GV_ROLE_TOOL] = CHAT_TOOL,
    };
    size_t length = strlen(message->content);
    // An assistant message that only calls has no text to show.
    bool shown = length || !message->call_count;
    if (shown && !chat_message(prompt, roles[message->role], message->content, length))
        return out_of_memory(error);
    for (size_t i = 0; i < message->call_count; i++) {
        if (!add_call(prompt, &message->calls[i], error))
            return false;
    }
    return true;
}

bool gv_chat_prompt(tokens *prompt, const gv_chat_request *request, gv_api_error *error)
{
    if (!chat_begin(prompt))
        return out_of_memory(error);
    for (size_t i = 0; i < request->message_count; i++) {
        if (!add_message(prompt, &request->messages[i], error))
            return false;
    }
    bool with_tools = request->tool_choice != GV_TOOLS_NONE;
    bool must_call = request->tool_choice == GV_TOOLS_REQUIRED || request->tool_choice == GV_TOOLS_NAMED;
    bool after_tool = request->messages[request->message_count - 1].role == GV_ROLE_TOOL;
    return chat_open(prompt, with_tools, after_tool && !must_call) || out_of_memory(error);
}
