#include "base/error.h"

#include <stdio.h>
#include <string.h>

gv_status gv_vfail(gv_error *error, gv_status status, const char *format, va_list arguments)
{
    if (error) {
        error->status = status;
        vsnprintf(error->text, sizeof error->text, format, arguments);
    }
    return status;
}

gv_status gv_fail(gv_error *error, gv_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    gv_vfail(error, status, format, arguments);
    va_end(arguments);
    return status;
}

void gv_error_prefix(gv_error *error, const char *format, ...)
{
    if (!error)
        return;
    char joined[sizeof error->text];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(joined, sizeof joined, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof joined - 3)
        return;
    size_t room = sizeof joined - (size_t)length - 3;
    size_t kept = strnlen(error->text, sizeof error->text);
    if (kept > room)
        kept = room;
    memcpy(joined + length, ": ", 2);
    memcpy(joined + length + 2, error->text, kept);
    joined[(size_t)length + 2 + kept] = '\0';
    memcpy(error->text, joined, sizeof joined);
}

const char *gv_status_name(gv_status status)
{
    switch (status) {
    case GV_OK: return "ok";
    case GV_ERR_MEMORY: return "memory";
    case GV_ERR_IO: return "io";
    case GV_ERR_FORMAT: return "format";
    case GV_ERR_VERSION: return "version";
    case GV_ERR_LIMIT: return "limit";
    case GV_ERR_USAGE: return "usage";
    case GV_ERR_MISSING: return "missing";
    }
    return "unknown";
}
