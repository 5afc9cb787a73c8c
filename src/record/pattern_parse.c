// Reading a pattern of --canary-region; apart from the rest of pattern.c, because the command line tool has it too.
#include "record/pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A number of bytes at *at, which is moved behind it.
static bool read_bytes(const char **at, uint64_t *bytes)
{
    if (**at < '0' || **at > '9')
        return false;
    char *end = NULL;
    unsigned long long number = strtoull(*at, &end, 10);
    unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (number > UINT64_MAX >> shift)
        return false;
    *bytes = (uint64_t)number << shift;
    *at = end + (shift != 0);
    return true;
}

static bool read_size(const char *value, gv_pattern *pattern)
{
    const char *at = value;
    if (!read_bytes(&at, &pattern->least))
        return false;
    pattern->most = pattern->least;
    if (strncmp(at, "..", 2) == 0) {
        at += 2;
        pattern->most = UINT64_MAX;
        if (*at && !read_bytes(&at, &pattern->most))
            return false;
    }
    return !*at && pattern->least <= pattern->most;
}

static bool read_text(const char *value, char *text, size_t size)
{
    return *value && (size_t)snprintf(text, size, "%s", value) < size;
}

static const char *read_condition(char *condition, gv_pattern *pattern)
{
    char *value = strchr(condition, '=');
    if (!value)
        return "a condition is KEY=VALUE";
    *value++ = '\0';
    if (strcmp(condition, "size") == 0)
        return read_size(value, pattern) ? NULL : "size is N, N..M or N.., with K, M or G behind a number";
    if (strcmp(condition, "name") == 0)
        return read_text(value, pattern->name, sizeof pattern->name) ? NULL : "name has 1 to 63 characters";
    if (strcmp(condition, "stack") == 0)
        return read_text(value, pattern->stack, sizeof pattern->stack) ? NULL : "stack has 1 to 63 characters";
    if (strcmp(condition, "page") == 0) {
        const char *at = value;
        return read_bytes(&at, &pattern->page_bytes) && !*at && pattern->page_bytes
                   ? NULL
                   : "page is a number of bytes, with K, M or G behind it";
    }
    return "the keys are size, name, stack and page";
}

bool gv_pattern_parse(const char *text, size_t length, gv_pattern *pattern, const char **why)
{
    static const char constant[] = "const:";
    char copy[sizeof pattern->text];
    *pattern = (gv_pattern){.most = UINT64_MAX};
    *why = "it is longer than 127 characters";
    if (length >= sizeof copy)
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    memcpy(pattern->text, copy, length + 1);
    char *at = copy, *rest = NULL;
    if (strncmp(at, constant, sizeof constant - 1) == 0) {
        pattern->constant = true;
        at += sizeof constant - 1;
    }
    *why = "it has no condition";
    for (char *condition = strtok_r(at, ",", &rest); condition; condition = strtok_r(NULL, ",", &rest)) {
        *why = read_condition(condition, pattern);
        if (*why)
            return false;
    }
    return !*why;
}
