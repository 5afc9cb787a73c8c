#include "stress/schema.h"

#include "report/format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// Schemas come from the user's own file; the bound is for values that a server nests.
enum { MOST_DEPTH = 24 };

typedef struct place {
    const struct place *outer;
    const char *name; // NULL for an element
    size_t index;
} place;

static void write_place(gv_string *out, const place *at)
{
    if (!at)
        return;
    write_place(out, at->outer);
    if (!at->name)
        gv_string_add(out, "[%zu]", at->index);
    else
        gv_string_add(out, "%s%.60s", at->outer ? "." : "", at->name);
}

static bool fail(const place *at, char *problem, size_t size, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static bool fail(const place *at, char *problem, size_t size, const char *format, ...)
{
    gv_string text = {0};
    char tail[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(tail, sizeof tail, format, arguments);
    va_end(arguments);
    write_place(&text, at);
    gv_string safe = {0};
    gv_string_add_safe(&safe, gv_string_text(&text));
    if (at)
        snprintf(problem, size, "`%s` %s", gv_string_text(&safe), tail);
    else
        snprintf(problem, size, "the arguments %s", tail);
    gv_string_free(&safe);
    gv_string_free(&text);
    return false;
}

const char *gv_json_type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    case JSON_NULL: return "null";
    }
    return "?";
}

// JSON Schema calls 1.0 an integer as well.
static bool is_type(const json_t *value, const char *type)
{
    if (strcmp(type, "object") == 0)
        return json_is_object(value);
    if (strcmp(type, "array") == 0)
        return json_is_array(value);
    if (strcmp(type, "string") == 0)
        return json_is_string(value);
    if (strcmp(type, "integer") == 0)
        return json_is_integer(value) ||
               (json_is_real(value) && trunc(json_real_value(value)) == json_real_value(value));
    if (strcmp(type, "number") == 0)
        return json_is_number(value);
    if (strcmp(type, "boolean") == 0)
        return json_is_boolean(value);
    if (strcmp(type, "null") == 0)
        return json_is_null(value);
    return true;
}

bool gv_schema_allows(const json_t *schema, const char *type)
{
    const json_t *types = json_object_get(schema, "type");
    if (json_is_string(types))
        return strcmp(json_string_value(types), type) == 0;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const json_t *one = json_array_get(types, i);
        if (json_is_string(one) && strcmp(json_string_value(one), type) == 0)
            return true;
    }
    return false;
}

const json_t *gv_schema_property(const json_t *schema, const char *name)
{
    return json_object_get(json_object_get(schema, "properties"), name);
}

static bool check_type(const json_t *types, const json_t *value, const place *at, char *problem, size_t size)
{
    if (json_is_string(types))
        return is_type(value, json_string_value(types)) || fail(at, problem, size, "should be of type %.40s, and is %s",
                                                                json_string_value(types), gv_json_type_name(value));
    if (!json_is_array(types))
        return true;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const json_t *one = json_array_get(types, i);
        if (!json_is_string(one) || is_type(value, json_string_value(one)))
            return true;
    }
    return json_array_size(types) == 0 ||
           fail(at, problem, size, "is %s, which the schema does not allow", gv_json_type_name(value));
}

static bool one_of(const json_t *values, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(values); i++) {
        if (json_equal(json_array_get(values, i), value))
            return true;
    }
    return false;
}

// Characters, not bytes, as JSON Schema counts them.
static size_t string_length(const json_t *value)
{
    return gv_columns(json_string_value(value));
}

// The bounds that are numbers: each applies to one kind of value.
static bool check_bounds(const json_t *schema, const json_t *value, const place *at, char *problem, size_t size)
{
    double measured = json_is_number(value)   ? json_number_value(value)
                      : json_is_string(value) ? (double)string_length(value)
                      : json_is_array(value)  ? (double)json_array_size(value)
                                              : 0;
    const char *least = json_is_number(value)   ? "minimum"
                        : json_is_string(value) ? "minLength"
                        : json_is_array(value)  ? "minItems"
                                                : NULL;
    const char *most = json_is_number(value) ? "maximum" : json_is_string(value) ? "maxLength" : "maxItems";
    if (!least)
        return true;
    const json_t *bound = json_object_get(schema, least);
    if (json_is_number(bound) && measured < json_number_value(bound))
        return fail(at, problem, size, "is below the schema's %s", least);
    bound = json_object_get(schema, most);
    if (json_is_number(bound) && measured > json_number_value(bound))
        return fail(at, problem, size, "is beyond the schema's %s", most);
    return true;
}

static bool check(const json_t *schema, const json_t *value, const place *at, unsigned depth, char *problem,
                  size_t size);

static bool check_object(const json_t *schema, const json_t *value, const place *at, unsigned depth, char *problem,
                         size_t size)
{
    const json_t *required = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        place missing = {.outer = at, .name = name};
        if (name && !json_object_get(value, name))
            return fail(&missing, problem, size, "is missing");
    }
    bool closed = json_is_false(json_object_get(schema, "additionalProperties"));
    const char *name;
    json_t *member;
    json_object_foreach((json_t *)value, name, member)
    {
        place inner = {.outer = at, .name = name};
        const json_t *property = gv_schema_property(schema, name);
        if (!property && closed)
            return fail(&inner, problem, size, "is not in the schema");
        if (property && !check(property, member, &inner, depth + 1, problem, size))
            return false;
    }
    return true;
}

static bool check(const json_t *schema, const json_t *value, const place *at, unsigned depth, char *problem,
                  size_t size)
{
    if (!json_is_object(schema) || depth > MOST_DEPTH)
        return true;
    if (!check_type(json_object_get(schema, "type"), value, at, problem, size))
        return false;
    const json_t *values = json_object_get(schema, "enum");
    if (json_is_array(values) && !one_of(values, value))
        return fail(at, problem, size, "is none of the values that the schema lists");
    const json_t *only = json_object_get(schema, "const");
    if (only && !json_equal(only, value))
        return fail(at, problem, size, "is not the value that the schema has");
    if (!check_bounds(schema, value, at, problem, size))
        return false;
    if (json_is_object(value))
        return check_object(schema, value, at, depth, problem, size);
    const json_t *items = json_object_get(schema, "items");
    for (size_t i = 0; json_is_array(value) && i < json_array_size(value); i++) {
        place inner = {.outer = at, .index = i};
        if (!check(items, json_array_get(value, i), &inner, depth + 1, problem, size))
            return false;
    }
    return true;
}

bool gv_schema_check(const json_t *schema, const json_t *value, char *problem, size_t size)
{
    return check(schema, value, NULL, 0, problem, size);
}
