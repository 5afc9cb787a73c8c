// Server-sent events.
#include "specimen/server/sse.h"

#include <jansson.h>
#include <string.h>

bool gv_sse_add(gv_text *out, const char *data, size_t length)
{
    gv_text_add_string(out, "data: ");
    gv_text_add(out, data, length);
    return gv_text_add_string(out, "\n\n");
}

bool gv_sse_add_done(gv_text *out)
{
    return gv_text_add_string(out, "data: [DONE]\n\n");
}

// The length of the line at `bytes` with its end, or 0 when it has none yet; `*bare` is its length without.
static size_t line(const char *bytes, size_t length, size_t *bare)
{
    const char *end = memchr(bytes, '\n', length);
    if (!end)
        return 0;
    *bare = (size_t)(end - bytes);
    if (*bare && bytes[*bare - 1] == '\r')
        --*bare;
    return (size_t)(end - bytes) + 1;
}

static bool is_error(const char *data, size_t length)
{
    // Chunks of an answer are frequent and begin otherwise; only what may be an error is parsed.
    if (!memmem(data, length, "\"error\"", 7))
        return false;
    json_t *root = json_loadb(data, length, 0, NULL);
    const json_t *error = json_object_get(root, "error");
    bool found = error && !json_is_null(error);
    json_decref(root);
    return found;
}

gv_sse_kind gv_sse_first(const char *bytes, size_t length, size_t *size)
{
    gv_sse_kind kind = GV_SSE_DATA;
    size_t used = 0;
    for (;;) {
        size_t bare = 0;
        size_t whole = line(bytes + used, length - used, &bare);
        if (!whole)
            return GV_SSE_NONE;
        const char *text = bytes + used;
        used += whole;
        if (!bare) {
            *size = used;
            return kind;
        }
        if (bare < 5 || memcmp(text, "data:", 5) != 0)
            continue;
        size_t skip = bare > 5 && text[5] == ' ' ? 6 : 5;
        if (bare - skip == 6 && memcmp(text + skip, "[DONE]", 6) == 0)
            kind = GV_SSE_DONE;
        else if (is_error(text + skip, bare - skip))
            kind = GV_SSE_ERROR;
    }
}
