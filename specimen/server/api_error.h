// Errors as OpenAI's API words them: {"error": {"message", "type", "param", "code"}}, one shape for every status.
#ifndef GV_SERVER_API_ERROR_H
#define GV_SERVER_API_ERROR_H

#include <stddef.h>

// One refused or failed request. Owned by the caller. `param` and `code` are static strings or NULL.
typedef struct gv_api_error {
    int status; // HTTP status; 0: no error
    const char *param;
    const char *code;
    char message[512];
} gv_api_error;

// Fills `error` (which may be NULL) and returns false, so that a check can end with `return gv_refuse(...)`.
// A message that does not fit is cut at a whole UTF-8 character.
_Bool gv_refuse(gv_api_error *error, int status, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

// The JSON text of an error, without a line end; freed with gv_free. NULL when memory is out.
char *gv_api_error_json(const gv_api_error *error, size_t *length);

#endif
