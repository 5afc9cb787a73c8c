// The growing byte buffer of text.h.
#include "specimen/server/text.h"

#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool gv_text_add(gv_text *text, const void *bytes, size_t length)
{
    if (text->failed || length > (size_t)-1 - text->length ||
        !GV_GROW(text->data, text->capacity, text->length + length)) {
        text->failed = true;
        return false;
    }
    if (length)
        memcpy(text->data + text->length, bytes, length);
    text->length += length;
    return true;
}

bool gv_text_add_string(gv_text *text, const char *string)
{
    return gv_text_add(text, string, strlen(string));
}

bool gv_text_format(gv_text *text, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < sizeof line)
        return gv_text_add(text, line, (size_t)length);

    char *longer = length < 0 ? NULL : gv_malloc((size_t)length + 1);
    if (!longer) {
        text->failed = true;
        return false;
    }
    va_start(arguments, format);
    vsnprintf(longer, (size_t)length + 1, format, arguments);
    va_end(arguments);
    bool added = gv_text_add(text, longer, (size_t)length);
    gv_free(longer);
    return added;
}

void gv_text_drop(gv_text *text, size_t length)
{
    if (length < text->length)
        memmove(text->data, text->data + length, text->length - length);
    text->length = length < text->length ? text->length - length : 0;
}

char *gv_text_take(gv_text *text, size_t *length)
{
    size_t bytes = text->length;
    if (!gv_text_add(text, "", 1)) {
        gv_text_free(text);
        return NULL;
    }
    char *data = text->data;
    *text = (gv_text){0};
    if (length)
        *length = bytes;
    return data;
}

void gv_text_free(gv_text *text)
{
    gv_free(text->data);
    *text = (gv_text){0};
}
