#include "stress/sse.h"

#include <string.h>

static gv_sse_status dispatch(gv_sse *sse)
{
    if (sse->data.length == 0)
        return GV_SSE_OK;
    sse->data.text[--sse->data.length] = '\0'; // the LF of the last line
    bool on = sse->handler(sse->context, sse->data.text, sse->data.length);
    gv_string_clear(&sse->data);
    return on ? GV_SSE_OK : GV_SSE_STOPPED;
}

// A whole line without its end.
static gv_sse_status take_line(gv_sse *sse, const char *line, size_t length)
{
    if (length == 0)
        return dispatch(sse);
    if (length < 4 || memcmp(line, "data", 4) != 0 || (length > 4 && line[4] != ':'))
        return GV_SSE_OK;
    const char *value = line + (length > 4 ? 5 : 4);
    size_t left = length - (size_t)(value - line);
    if (left && *value == ' ') {
        value++;
        left--;
    }
    if (left + 1 > sse->limit - sse->data.length)
        return GV_SSE_TOO_LONG;
    gv_string_add_bytes(&sse->data, value, left);
    gv_string_add_bytes(&sse->data, "\n", 1);
    return sse->data.failed ? GV_SSE_MEMORY : GV_SSE_OK;
}

// Keeps part of a line for later.
static gv_sse_status keep(gv_sse *sse, const char *bytes, size_t length)
{
    if (length > sse->limit - sse->line.length)
        return GV_SSE_TOO_LONG;
    gv_string_add_bytes(&sse->line, bytes, length);
    return sse->line.failed ? GV_SSE_MEMORY : GV_SSE_OK;
}

// A line end was found after `length` more bytes.
static gv_sse_status end_line(gv_sse *sse, const char *bytes, size_t length)
{
    if (sse->line.length == 0)
        return take_line(sse, bytes, length);
    gv_sse_status status = keep(sse, bytes, length);
    if (status == GV_SSE_OK)
        status = take_line(sse, sse->line.text, sse->line.length);
    gv_string_clear(&sse->line);
    return status;
}

// Passes over a byte order mark, which may come in pieces. Returns how many of the bytes belonged to it.
static size_t skip_mark(gv_sse *sse, const char *bytes, size_t length, gv_sse_status *status)
{
    static const char mark[] = "\xef\xbb\xbf";
    size_t used = 0;
    while (!sse->started && used < length) {
        if (bytes[used] == mark[sse->marked]) {
            used++;
            sse->started = ++sse->marked == 3;
        } else {
            // No mark after all: what was taken for it begins a line.
            sse->started = true;
            *status = keep(sse, mark, sse->marked);
        }
    }
    return used;
}

gv_sse_status gv_sse_feed(gv_sse *sse, const char *bytes, size_t length)
{
    gv_sse_status status = GV_SSE_OK;
    const char *end = bytes + length;
    bytes += skip_mark(sse, bytes, length, &status);
    while (status == GV_SSE_OK && bytes < end) {
        if (sse->after_cr && *bytes == '\n')
            bytes++;
        sse->after_cr = false;
        if (bytes == end)
            break;
        const char *stop = bytes;
        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        if (stop == end)
            return keep(sse, bytes, (size_t)(stop - bytes));
        status = end_line(sse, bytes, (size_t)(stop - bytes));
        sse->after_cr = *stop == '\r';
        bytes = stop + 1;
    }
    return status;
}

gv_sse_status gv_sse_finish(gv_sse *sse)
{
    static const char done[] = "[DONE]";
    gv_sse_status status = GV_SSE_OK;
    if (sse->line.length) {
        status = take_line(sse, sse->line.text, sse->line.length);
        gv_string_clear(&sse->line);
    }
    if (status == GV_SSE_OK && sse->data.length == sizeof done && memcmp(sse->data.text, done, sizeof done - 1) == 0)
        status = dispatch(sse);
    gv_string_clear(&sse->data);
    return status;
}

void gv_sse_free(gv_sse *sse)
{
    gv_string_free(&sse->line);
    gv_string_free(&sse->data);
}
