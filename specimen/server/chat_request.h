// The body of POST /v1/chat/completions, checked. What the specimen cannot honour and would change the answer is
// refused, never ignored; fields that change nothing (user, metadata, seed, ...) are accepted.
#ifndef GV_SERVER_CHAT_REQUEST_H
#define GV_SERVER_CHAT_REQUEST_H

#include "specimen/server/api_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum gv_chat_role { GV_ROLE_SYSTEM, GV_ROLE_USER, GV_ROLE_ASSISTANT, GV_ROLE_TOOL } gv_chat_role;

typedef struct gv_chat_call {
    const char *id, *name;
    const char *arguments; // JSON text, as the model wrote it
} gv_chat_call;

typedef struct gv_chat_message {
    gv_chat_role role;
    const char *content; // "" when it was null or absent; text parts are joined
    gv_chat_call *calls; // of an assistant message
    size_t call_count;
    const char *answers; // of a tool message: the id of the call it answers; else NULL
} gv_chat_message;

typedef struct gv_chat_tool {
    const char *name;
    const char *description;  // "" when absent
    const json_t *parameters; // NULL when absent
} gv_chat_tool;

typedef enum gv_tool_choice { GV_TOOLS_AUTO, GV_TOOLS_NONE, GV_TOOLS_REQUIRED, GV_TOOLS_NAMED } gv_tool_choice;

enum { GV_MOST_STOPS = 4 };

// A checked request. Strings are UTF-8 without zero bytes and live as long as it does.
typedef struct gv_chat_request {
    json_t *root, *joined; // own all strings
    const char *model;
    gv_chat_message *messages;
    size_t message_count;
    gv_chat_tool *tools;
    size_t tool_count;
    gv_tool_choice tool_choice;
    const char *forced_tool; // for GV_TOOLS_NAMED
    bool stream, include_usage;
    int most_tokens; // to generate; 0: as many as the context holds
    const char *stops[GV_MOST_STOPS];
    size_t stop_count;
    // What the router added for a disaggregated pair; absent (room 0) on a single server.
    const char *bootstrap_host;
    int bootstrap_port;
    uint64_t bootstrap_room;
} gv_chat_request;

typedef struct gv_chat_limits {
    size_t most_messages, most_tools;
    const char *model; // the one that is served; another is refused with 404
} gv_chat_limits;

// Reads `length` bytes at `body`. On failure fills `error` with 400 or 404 and the field at fault, and leaves nothing
// to free. Does not check what depends on the engine: words and lengths.
bool gv_chat_request_read(gv_chat_request *request, const char *body, size_t length, const gv_chat_limits *limits,
                          gv_api_error *error);

void gv_chat_request_free(gv_chat_request *request);

#endif
