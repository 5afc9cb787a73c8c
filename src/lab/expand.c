#include "lab/expand.h"

#include "base/memory.h"
#include "report/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gv_variables_set(gv_variables *variables, const char *name, const char *value)
{
    char *copy = gv_strdup(value);
    for (size_t i = 0; copy && i < variables->count; i++) {
        if (strcmp(variables->items[i].name, name) == 0) {
            gv_free(variables->items[i].value);
            variables->items[i].value = copy;
            return;
        }
    }
    char *key = gv_strdup(name);
    if (copy && key && GV_GROW(variables->items, variables->capacity, variables->count + 1)) {
        variables->items[variables->count++] = (gv_variable){key, copy};
        return;
    }
    gv_free(copy);
    gv_free(key);
    variables->failed = true;
}

void gv_variables_set_number(gv_variables *variables, const char *name, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    gv_variables_set(variables, name, text);
}

const char *gv_variables_get(const gv_variables *variables, const char *name)
{
    for (size_t i = 0; i < variables->count; i++) {
        if (strcmp(variables->items[i].name, name) == 0)
            return variables->items[i].value;
    }
    return NULL;
}

void gv_variables_free(gv_variables *variables)
{
    for (size_t i = 0; i < variables->count; i++) {
        gv_free(variables->items[i].name);
        gv_free(variables->items[i].value);
    }
    gv_free(variables->items);
    *variables = (gv_variables){0};
}

static gv_status unknown(const gv_variables *variables, const char *name, gv_error *error)
{
    if (strncmp(name, "env.", 4) == 0)
        return gv_fail(error, GV_ERR_MISSING, "${%s}: %s is not set in gravel's environment; set it", name, name + 4);
    gv_string list = {0};
    for (size_t i = 0; i < variables->count; i++)
        gv_string_add(&list, "%s%s", i ? ", " : "", variables->items[i].name);
    gv_status status = gv_fail(error, GV_ERR_USAGE,
                               "there is no placeholder ${%.60s}; there are: %s, env.NAME (and $${ "
                               "stands for ${)",
                               name, gv_string_text(&list));
    gv_string_free(&list);
    return status;
}

char *gv_expand(const gv_variables *variables, const char *text, gv_error *error)
{
    gv_string out = {0};
    gv_string_add(&out, "%s", "");
    gv_status status = variables->failed ? gv_fail(error, GV_ERR_MEMORY, "out of memory") : GV_OK;
    while (status == GV_OK && *text) {
        const char *dollar = strstr(text, "${");
        if (!dollar) {
            gv_string_add(&out, "%s", text);
            break;
        }
        if (dollar > text && dollar[-1] == '$') {
            gv_string_add_bytes(&out, text, (size_t)(dollar - 1 - text));
            gv_string_add(&out, "${");
            text = dollar + 2;
            continue;
        }
        gv_string_add_bytes(&out, text, (size_t)(dollar - text));
        const char *end = strchr(dollar, '}');
        char name[128];
        if (!end || (size_t)(end - dollar) >= sizeof name) {
            status = gv_fail(error, GV_ERR_USAGE, "\"%.60s\": the placeholder has no closing brace", dollar);
            break;
        }
        snprintf(name, sizeof name, "%.*s", (int)(end - dollar - 2), dollar + 2);
        const char *value = strncmp(name, "env.", 4) == 0 ? getenv(name + 4) : gv_variables_get(variables, name);
        if (value)
            gv_string_add(&out, "%s", value);
        else
            status = unknown(variables, name, error);
        text = end + 1;
    }
    if (status == GV_OK && out.failed)
        status = gv_fail(error, GV_ERR_MEMORY, "out of memory");
    if (status == GV_OK)
        return out.text;
    gv_string_free(&out);
    return NULL;
}
