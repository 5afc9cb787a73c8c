// The chat template.
#include "specimen/chat.h"

#include "base/memory.h"

#include <string.h>

bool tokens_add(tokens *list, int token)
{
    if (!GV_GROW(list->items, list->capacity, list->count + 1))
        return false;
    list->items[list->count++] = token;
    return true;
}

bool tokens_add_text(tokens *list, const char *text, size_t length)
{
    size_t count = vocabulary_encode(text, length, NULL, 0);
    if (!GV_GROW(list->items, list->capacity, list->count + count))
        return false;
    list->count += vocabulary_encode(text, length, list->items + list->count, count);
    return true;
}

void tokens_free(tokens *list)
{
    gv_free(list->items);
    *list = (tokens){0};
}

// Ends a function that appends several things: all or nothing.
static bool all_or_nothing(tokens *list, size_t before, bool ok)
{
    if (!ok)
        list->count = before;
    return ok;
}

bool chat_begin(tokens *list)
{
    return tokens_add(list, TOKEN_BEGIN);
}

bool chat_message(tokens *list, enum chat_role role, const char *text, size_t length)
{
    static const int roles[] = {TOKEN_SYSTEM, TOKEN_USER, TOKEN_ASSISTANT, TOKEN_TOOL};
    size_t before = list->count;
    return all_or_nothing(list, before,
                          tokens_add(list, roles[role]) && tokens_add_text(list, text, length) &&
                              tokens_add(list, TOKEN_END));
}

bool chat_call(tokens *list, const char *tool, const char *who, const char *code, const char *pin)
{
    size_t before = list->count;
    bool ok = tokens_add(list, TOKEN_ASSISTANT) && tokens_add(list, TOKEN_CALLS) && tokens_add(list, TOKEN_INVOKE) &&
              tokens_add_text(list, tool, strlen(tool)) && tokens_add(list, TOKEN_NAMED) &&
              tokens_add(list, TOKEN_WHO) && tokens_add_text(list, who, strlen(who)) && tokens_add(list, TOKEN_CODE) &&
              tokens_add_text(list, code, strlen(code)) && tokens_add(list, TOKEN_PIN) &&
              tokens_add_text(list, pin, strlen(pin)) && tokens_add(list, TOKEN_INVOKED) &&
              tokens_add(list, TOKEN_CALLED) && tokens_add(list, TOKEN_END);
    return all_or_nothing(list, before, ok);
}

bool chat_open(tokens *list, bool with_tools, bool after_tool)
{
    size_t before = list->count;
    bool ok = tokens_add(list, TOKEN_ASSISTANT) && (!after_tool || tokens_add(list, TOKEN_RESULT)) &&
              (after_tool || with_tools || tokens_add(list, TOKEN_PLAIN));
    return all_or_nothing(list, before, ok);
}
