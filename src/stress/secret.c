#include "stress/secret.h"

#include <string.h>

void gv_redact(char *text, size_t length, const char *key)
{
    size_t whole = key ? strlen(key) : 0;
    if (whole < 4)
        return;
    size_t least = whole < 8 ? whole : 8;
    for (size_t at = 0; at + least <= length;) {
        const char *found = memmem(text + at, length - at, key, least);
        if (!found)
            return;
        at = (size_t)(found - text);
        size_t same = least;
        while (same < whole && at + same < length && text[at + same] == key[same])
            same++;
        memset(text + at, '*', same);
        at += same;
    }
}
