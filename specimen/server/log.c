// Lines on standard error.
#include "specimen/server/log.h"

#include <stdarg.h>
#include <stdio.h>

static const char *own_name = "serve";

void gv_log_name(const char *name)
{
    own_name = name;
}

void gv_log(const char *format, ...)
{
    // One write a line: several threads and processes share the stream.
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "gravel-specimen %s: %s\n", own_name, text);
}
