// A checked chat request as the prompt that the model continues, by the template of specimen/chat.h.
#ifndef GV_SERVER_CHAT_PROMPT_H
#define GV_SERVER_CHAT_PROMPT_H

#include "specimen/chat.h"
#include "specimen/server/chat_request.h"

#include <stdbool.h>

// Fills `prompt` (zero-initialised; free it with tokens_free, also after a failure). Words that the vocabulary does not
// have become TOKEN_UNKNOWN. Refuses with 400 a call in the messages whose arguments are not a JSON object: the
// template cannot show them. Of the arguments it shows who, code and pin.
bool gv_chat_prompt(tokens *prompt, const gv_chat_request *request, gv_api_error *error);

#endif
