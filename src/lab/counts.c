#include "lab/counts.h"

#include "base/memory.h"

#include <errno.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

json_t *gv_json_pointer(json_t *root, const char *pointer)
{
    json_t *at = root;
    while (at && *pointer == '/') {
        size_t length = strcspn(++pointer, "/");
        char *token = gv_strndup(pointer, length);
        if (!token)
            return NULL;
        // "~1" stands for a slash and "~0" for a tilde.
        char *out = token;
        for (const char *in = token; *in; in++) {
            if (in[0] == '~' && (in[1] == '0' || in[1] == '1'))
                *out++ = *++in == '0' ? '~' : '/';
            else
                *out++ = *in;
        }
        *out = '\0';
        if (json_is_array(at)) {
            char *end;
            unsigned long index = strtoul(token, &end, 10);
            at = *token >= '0' && *token <= '9' && *end == '\0' ? json_array_get(at, index) : NULL;
        } else {
            at = json_object_get(at, token);
        }
        gv_free(token);
        pointer += length;
    }
    return *pointer ? NULL : at;
}

static gv_status number_at(json_t *root, const char *pointer, uint64_t *number, gv_error *error)
{
    if (!pointer)
        return GV_OK;
    const json_t *value = gv_json_pointer(root, pointer);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return gv_fail(error, GV_ERR_FORMAT, "the counts have no whole number at %s; check `counts` in the plan",
                       pointer);
    *number = (uint64_t)json_integer_value(value);
    return GV_OK;
}

static gv_status read_list(json_t *root, const gv_counts *counts, gv_counted *result, gv_error *error)
{
    const json_t *list = gv_json_pointer(root, counts->list);
    if (!json_is_array(list))
        return gv_fail(error, GV_ERR_FORMAT, "the counts have no array at %s; check `list` in the plan", counts->list);
    result->verdicts = gv_calloc(json_array_size(list), sizeof *result->verdicts);
    if (!result->verdicts)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory for the sessions");
    size_t index;
    json_t *session;
    json_array_foreach((json_t *)list, index, session)
    {
        const char *verdict = json_string_value(gv_json_pointer(session, counts->list_verdict));
        if (!verdict)
            return gv_fail(error, GV_ERR_FORMAT,
                           "session %zu of the counts has no text at %s; check `verdict` in the plan", index + 1,
                           counts->list_verdict);
        if (!(result->verdicts[result->verdict_count++] = gv_strdup(verdict)))
            return gv_fail(error, GV_ERR_MEMORY, "out of memory for the sessions");
    }
    return GV_OK;
}

static gv_status read_json(const gv_counts *counts, const char *text, size_t length, gv_counted *result,
                           gv_error *error)
{
    json_error_t why;
    json_t *root = json_loadb(text, length, JSON_DISABLE_EOF_CHECK, &why);
    if (!root)
        return gv_fail(error, GV_ERR_FORMAT, "the counts are no JSON: line %d: %s", why.line, why.text);
    gv_status status = number_at(root, counts->sessions, &result->sessions, error);
    if (status == GV_OK)
        status = number_at(root, counts->corrupt, &result->corrupt, error);
    if (status == GV_OK)
        status = number_at(root, counts->failed, &result->failed, error);
    if (status == GV_OK)
        status = number_at(root, counts->unsure, &result->unsure, error);
    if (status == GV_OK && counts->list)
        status = read_list(root, counts, result, error);
    json_decref(root);
    return status;
}

// The last match counts: a command that prints its progress prints the final numbers last.
static gv_status match(const char *text, const char *expression, uint64_t *number, gv_error *error)
{
    regex_t compiled;
    if (!expression)
        return GV_OK;
    if (regcomp(&compiled, expression, REG_EXTENDED | REG_NEWLINE) != 0)
        return gv_fail(error, GV_ERR_FORMAT, "\"%s\" is not a regular expression", expression);
    regmatch_t groups[2];
    bool found = false;
    int flags = 0;
    for (const char *at = text; *at && regexec(&compiled, at, 2, groups, flags) == 0;) {
        if (groups[1].rm_so >= 0) {
            char *end;
            const char *start = at + groups[1].rm_so;
            errno = 0;
            unsigned long long value = strtoull(start, &end, 10);
            found = errno == 0 && end == at + groups[1].rm_eo && *start >= '0' && *start <= '9';
            *number = value;
        }
        at += groups[0].rm_eo > 0 ? groups[0].rm_eo : 1;
        flags = at[-1] == '\n' ? 0 : REG_NOTBOL;
    }
    regfree(&compiled);
    return found ? GV_OK
                 : gv_fail(error, GV_ERR_FORMAT,
                           "the output has no number where \"%s\" looks for one; check `counts` in "
                           "the plan",
                           expression);
}

gv_status gv_counts_read(const gv_counts *counts, const char *text, size_t length, gv_counted *result, gv_error *error)
{
    *result = (gv_counted){0};
    gv_status status;
    if (counts->json) {
        status = read_json(counts, text, length, result, error);
    } else {
        status = match(text, counts->sessions, &result->sessions, error);
        if (status == GV_OK)
            status = match(text, counts->corrupt, &result->corrupt, error);
        if (status == GV_OK)
            status = match(text, counts->failed, &result->failed, error);
        if (status == GV_OK)
            status = match(text, counts->unsure, &result->unsure, error);
    }
    uint64_t together = result->corrupt + result->failed + result->unsure;
    if (status == GV_OK && (result->corrupt > result->sessions || result->failed > result->sessions ||
                            result->unsure > result->sessions || together > result->sessions))
        status = gv_fail(error, GV_ERR_FORMAT,
                         "%llu corrupt, %llu failed and %llu unsure sessions are more than the %llu "
                         "there are; check `counts` in the plan",
                         (unsigned long long)result->corrupt, (unsigned long long)result->failed,
                         (unsigned long long)result->unsure, (unsigned long long)result->sessions);
    if (status != GV_OK)
        gv_counted_free(result);
    return status;
}

void gv_counted_free(gv_counted *counted)
{
    for (size_t i = 0; i < counted->verdict_count; i++)
        gv_free(counted->verdicts[i]);
    gv_free(counted->verdicts);
    *counted = (gv_counted){0};
}
