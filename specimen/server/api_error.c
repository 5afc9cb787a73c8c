// The JSON of errors.
#include "specimen/server/api_error.h"

#include "base/memory.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool gv_refuse(gv_api_error *error, int status, const char *param, const char *code, const char *format, ...)
{
    if (!error)
        return false;
    *error = (gv_api_error){.status = status, .param = param, .code = code};
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    if (wanted >= (int)sizeof error->message) {
        // The cut may have gone through a character, and JSON takes whole ones only.
        size_t end = strlen(error->message);
        while (end && ((unsigned char)error->message[end - 1] & 0xc0) == 0x80)
            end--;
        if (end && (unsigned char)error->message[end - 1] >= 0xc0)
            end--;
        error->message[end] = 0;
    }
    return false;
}

static const char *type_of(int status)
{
    switch (status) {
    case 429: return "rate_limit_error";
    case 500: return "server_error";
    case 502:
    case 503:
    case 504: return "service_unavailable";
    default: return "invalid_request_error";
    }
}

static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

char *gv_api_error_json(const gv_api_error *error, size_t *length)
{
    json_t *message = json_string(error->message);
    // A message can quote bytes of the request; what is not UTF-8 would leave no message at all.
    if (!message)
        message = json_string("the request holds bytes that are not UTF-8");
    json_t *root = json_pack("{s:{s:o,s:s,s:o,s:o}}", "error", "message", message, "type", type_of(error->status),
                             "param", text_or_null(error->param), "code", text_or_null(error->code));
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    char *copy = text ? gv_strdup(text) : NULL;
    free(text);
    if (copy)
        *length = strlen(copy);
    return copy;
}
