#include "base/yaml.h"

#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

// A file beyond these is no plan that a person wrote; the bounds keep a hostile one from taking the machine.
enum { MOST_BYTES = 4 << 20, MOST_NODES = 200000, MOST_DEPTH = 32 };

typedef struct loader {
    yaml_parser_t parser;
    gv_yaml *yaml;
    gv_error *error;
} loader;

// ---- Messages -----------------------------------------------------------------------------------------------------

static gv_status fail_at(const gv_yaml *yaml, size_t line, gv_status status, gv_error *error, const char *format,
                         va_list arguments)
{
    gv_vfail(error, status, format, arguments);
    gv_error_prefix(error, "%s:%zu", yaml->name, line);
    return status;
}

gv_status gv_yaml_fail(const gv_yaml *yaml, const gv_yaml_node *at, gv_error *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail_at(yaml, at ? at->line : 1, GV_ERR_FORMAT, error, format, arguments);
    va_end(arguments);
    return GV_ERR_FORMAT;
}

__attribute__((format(printf, 4, 5))) static gv_status complain(loader *load, const yaml_event_t *event,
                                                                gv_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail_at(load->yaml, event->start_mark.line + 1, status, load->error, format, arguments);
    va_end(arguments);
    return status;
}

// libyaml's own complaint, with its place. It tells what it found; the usual cause is added where there is one.
static gv_status complain_parser(loader *load)
{
    const yaml_parser_t *parser = &load->parser;
    if (parser->error == YAML_MEMORY_ERROR)
        return gv_fail(load->error, GV_ERR_MEMORY, "%s: out of memory", load->yaml->name);
    if (parser->error == YAML_READER_ERROR)
        return gv_fail(load->error, GV_ERR_FORMAT, "%s: byte %zu: %s; save the file as UTF-8 text", load->yaml->name,
                       parser->problem_offset, parser->problem ? parser->problem : "it is no text");
    const char *hint = "";
    const char *problem = parser->problem ? parser->problem : "it is no YAML";
    if (strstr(problem, "cannot start any token"))
        hint = "; indent with blanks, not tabs, and put quotes around text that starts with a special character";
    else if (strstr(problem, "mapping values are not allowed"))
        hint = "; put quotes around text that holds \": \"";
    else if (strstr(problem, "could not find expected ':'") || strstr(problem, "did not find expected key"))
        hint = "; look at the indentation of this line and the one before";
    return gv_fail(load->error, GV_ERR_FORMAT, "%s:%zu: %s%s", load->yaml->name, parser->problem_mark.line + 1, problem,
                   hint);
}

// ---- Loading ------------------------------------------------------------------------------------------------------

static void free_node(gv_yaml_node *node)
{
    if (!node)
        return;
    for (size_t i = 0; i < node->count; i++)
        free_node(node->items[i]);
    gv_free(node->items);
    gv_free(node->key);
    gv_free(node->text);
    gv_free(node);
}

static gv_status next_event(loader *load, yaml_event_t *event)
{
    if (!yaml_parser_parse(&load->parser, event))
        return complain_parser(load);
    return GV_OK;
}

static gv_status refuse_extras(loader *load, const yaml_event_t *event, const yaml_char_t *anchor,
                               const yaml_char_t *tag)
{
    if (anchor)
        return complain(load, event, GV_ERR_FORMAT,
                        "anchors (&%s) are not supported; write the value out at each place", (const char *)anchor);
    if (tag)
        return complain(load, event, GV_ERR_FORMAT,
                        "tags (%s) are not supported; put quotes around text and leave the "
                        "tag out",
                        (const char *)tag);
    return GV_OK;
}

static gv_status read_node(loader *load, yaml_event_t *event, unsigned depth, gv_yaml_node **out);

// Takes over `event`, the first of the child, and `key`.
static gv_status append(loader *load, gv_yaml_node *parent, yaml_event_t *event, char *key, unsigned depth)
{
    gv_yaml_node *child = NULL;
    gv_status status;
    if (GV_GROW(parent->items, parent->capacity, parent->count + 1)) {
        status = read_node(load, event, depth + 1, &child);
    } else {
        yaml_event_delete(event);
        status = gv_fail(load->error, GV_ERR_MEMORY, "%s: out of memory", load->yaml->name);
    }
    if (status != GV_OK) {
        gv_free(key);
        return status;
    }
    child->key = key;
    parent->items[parent->count++] = child;
    return GV_OK;
}

// The text of a scalar event, checked for a NUL that would cut it.
static gv_status take_text(loader *load, const yaml_event_t *event, char **text)
{
    const char *value = (const char *)event->data.scalar.value;
    size_t length = event->data.scalar.length;
    if (memchr(value, '\0', length))
        return complain(load, event, GV_ERR_FORMAT, "this text holds a NUL character; leave it out");
    *text = gv_strndup(value, length);
    return *text ? GV_OK : gv_fail(load->error, GV_ERR_MEMORY, "%s: out of memory", load->yaml->name);
}

static gv_status read_members(loader *load, gv_yaml_node *node, unsigned depth)
{
    for (;;) {
        yaml_event_t event;
        gv_status status = next_event(load, &event);
        if (status != GV_OK)
            return status;
        if (event.type == YAML_MAPPING_END_EVENT || event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return GV_OK;
        }
        if (node->kind == GV_YAML_SEQUENCE) {
            status = append(load, node, &event, NULL, depth);
            if (status != GV_OK)
                return status;
            continue;
        }
        char *key = NULL;
        if (event.type != YAML_SCALAR_EVENT)
            status = complain(load, &event, GV_ERR_FORMAT, "a key must be plain text, not a list or a mapping");
        else
            status = refuse_extras(load, &event, event.data.scalar.anchor, event.data.scalar.tag);
        if (status == GV_OK)
            status = take_text(load, &event, &key);
        if (status == GV_OK && gv_yaml_get(node, key))
            status = complain(load, &event, GV_ERR_FORMAT, "the key \"%s\" is there already, on line %zu; remove one",
                              key, gv_yaml_get(node, key)->line);
        yaml_event_delete(&event);
        if (status == GV_OK)
            status = next_event(load, &event);
        if (status == GV_OK)
            status = append(load, node, &event, key, depth);
        else
            gv_free(key);
        if (status != GV_OK)
            return status;
    }
}

// Takes over `event`, the first of the node.
static gv_status read_node(loader *load, yaml_event_t *event, unsigned depth, gv_yaml_node **out)
{
    gv_status status = GV_OK;
    gv_yaml_node *node = gv_calloc(1, sizeof *node);
    if (!node)
        status = gv_fail(load->error, GV_ERR_MEMORY, "%s: out of memory", load->yaml->name);
    else if (++load->yaml->nodes > MOST_NODES)
        status = complain(load, event, GV_ERR_LIMIT, "more than %d values; split the file", MOST_NODES);
    else if (depth > MOST_DEPTH)
        status = complain(load, event, GV_ERR_LIMIT, "more than %d levels; make the file flatter", MOST_DEPTH);
    bool members = false;
    if (status == GV_OK) {
        node->line = event->start_mark.line + 1;
        switch (event->type) {
        case YAML_SCALAR_EVENT:
            node->kind = GV_YAML_SCALAR;
            node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
            status = refuse_extras(load, event, event->data.scalar.anchor, event->data.scalar.tag);
            if (status == GV_OK)
                status = take_text(load, event, &node->text);
            break;
        case YAML_SEQUENCE_START_EVENT:
            node->kind = GV_YAML_SEQUENCE;
            members = true;
            status = refuse_extras(load, event, event->data.sequence_start.anchor, event->data.sequence_start.tag);
            break;
        case YAML_MAPPING_START_EVENT:
            node->kind = GV_YAML_MAPPING;
            members = true;
            status = refuse_extras(load, event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
            break;
        case YAML_ALIAS_EVENT:
            status = complain(load, event, GV_ERR_FORMAT, "aliases (*%s) are not supported; write the value out here",
                              (const char *)event->data.alias.anchor);
            break;
        default: status = complain(load, event, GV_ERR_FORMAT, "a value is missing here"); break;
        }
    }
    yaml_event_delete(event);
    if (status == GV_OK && members)
        status = read_members(load, node, depth);
    if (status != GV_OK) {
        free_node(node);
        return status;
    }
    *out = node;
    return GV_OK;
}

static gv_status read_document(loader *load)
{
    yaml_event_t event;
    bool read = false;
    for (bool ended = false; !ended;) {
        gv_status status = next_event(load, &event);
        if (status != GV_OK)
            return status;
        switch (event.type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_END_EVENT: yaml_event_delete(&event); break;
        case YAML_STREAM_END_EVENT:
            yaml_event_delete(&event);
            ended = true;
            break;
        case YAML_DOCUMENT_START_EVENT:
            if (read)
                status = complain(load, &event, GV_ERR_FORMAT, "a second document starts here; keep one in a file");
            yaml_event_delete(&event);
            if (status != GV_OK)
                return status;
            break;
        default:
            status = read_node(load, &event, 1, &load->yaml->root);
            if (status != GV_OK)
                return status;
            read = true;
        }
    }
    return read ? GV_OK : gv_fail(load->error, GV_ERR_FORMAT, "%s: the file is empty", load->yaml->name);
}

gv_status gv_yaml_parse(const char *name, const char *text, size_t length, gv_yaml **yaml, gv_error *error)
{
    *yaml = NULL;
    if (length > MOST_BYTES)
        return gv_fail(error, GV_ERR_LIMIT, "%s has more than %d MiB; split it", name, MOST_BYTES >> 20);
    loader load = {.yaml = gv_calloc(1, sizeof *load.yaml), .error = error};
    if (!load.yaml || !(load.yaml->name = gv_strdup(name)) || !yaml_parser_initialize(&load.parser)) {
        gv_yaml_free(load.yaml);
        return gv_fail(error, GV_ERR_MEMORY, "%s: out of memory", name);
    }
    yaml_parser_set_input_string(&load.parser, (const unsigned char *)text, length);
    gv_status status = read_document(&load);
    yaml_parser_delete(&load.parser);
    if (status != GV_OK) {
        gv_yaml_free(load.yaml);
        return status;
    }
    *yaml = load.yaml;
    return GV_OK;
}

gv_status gv_yaml_load(const char *path, gv_yaml **yaml, gv_error *error)
{
    *yaml = NULL;
    FILE *file = fopen(path, "rb");
    if (!file)
        return gv_fail(error, GV_ERR_IO, "%s cannot be opened: %s", path, strerror(errno));
    char *text = gv_malloc(MOST_BYTES + 1);
    size_t length = text ? fread(text, 1, MOST_BYTES + 1, file) : 0;
    int failed = text && ferror(file) ? errno : 0;
    fclose(file);
    gv_status status;
    if (!text)
        status = gv_fail(error, GV_ERR_MEMORY, "%s: out of memory", path);
    else if (failed)
        status = gv_fail(error, GV_ERR_IO, "%s cannot be read: %s", path, strerror(failed));
    else
        status = gv_yaml_parse(path, text, length, yaml, error);
    gv_free(text);
    return status;
}

void gv_yaml_free(gv_yaml *yaml)
{
    if (!yaml)
        return;
    free_node(yaml->root);
    gv_free(yaml->name);
    gv_free(yaml);
}

// ---- Reading ------------------------------------------------------------------------------------------------------

const gv_yaml_node *gv_yaml_get(const gv_yaml_node *mapping, const char *key)
{
    if (!mapping || mapping->kind != GV_YAML_MAPPING)
        return NULL;
    for (size_t i = 0; i < mapping->count; i++) {
        if (strcmp(mapping->items[i]->key, key) == 0)
            return mapping->items[i];
    }
    return NULL;
}

static const char *kind_name(gv_yaml_kind kind)
{
    switch (kind) {
    case GV_YAML_SCALAR: return "a single value";
    case GV_YAML_SEQUENCE: return "a list";
    case GV_YAML_MAPPING: return "a mapping (key: value)";
    }
    return "?";
}

gv_status gv_yaml_expect_kind(const gv_yaml *yaml, const gv_yaml_node *node, const char *what, gv_yaml_kind kind,
                              gv_error *error)
{
    if (node->kind == kind)
        return GV_OK;
    return gv_yaml_fail(yaml, node, error, "%s must be %s, not %s", what, kind_name(kind), kind_name(node->kind));
}

gv_status gv_yaml_expect_keys(const gv_yaml *yaml, const gv_yaml_node *node, const char *what, const char *const *known,
                              size_t count, gv_error *error)
{
    gv_status status = gv_yaml_expect_kind(yaml, node, what, GV_YAML_MAPPING, error);
    for (size_t i = 0; status == GV_OK && i < node->count; i++) {
        bool found = false;
        for (size_t j = 0; j < count && !found; j++)
            found = strcmp(node->items[i]->key, known[j]) == 0;
        if (found)
            continue;
        char list[320] = "";
        for (size_t j = 0, used = 0; j < count && used < sizeof list; j++)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", j ? ", " : "", known[j]);
        status = gv_yaml_fail(yaml, node->items[i], error, "%s has no key \"%.60s\"; it can have: %s", what,
                              node->items[i]->key, list);
    }
    return status;
}

// Finds an optional scalar member.
static gv_status find_scalar(const gv_yaml *yaml, const gv_yaml_node *mapping, const char *key,
                             const gv_yaml_node **found, gv_error *error)
{
    *found = gv_yaml_get(mapping, key);
    if (!*found || (*found)->kind == GV_YAML_SCALAR)
        return GV_OK;
    return gv_yaml_fail(yaml, *found, error, "`%s` must be a single value, not %s", key, kind_name((*found)->kind));
}

gv_status gv_yaml_text(const gv_yaml *yaml, const gv_yaml_node *mapping, const char *key, const char **value,
                       gv_error *error)
{
    const gv_yaml_node *node;
    gv_status status = find_scalar(yaml, mapping, key, &node, error);
    if (status == GV_OK && node)
        *value = node->text;
    return status;
}

gv_status gv_yaml_integer(const gv_yaml *yaml, const gv_yaml_node *mapping, const char *key, int64_t least,
                          int64_t most, int64_t *value, gv_error *error)
{
    const gv_yaml_node *node;
    gv_status status = find_scalar(yaml, mapping, key, &node, error);
    if (status != GV_OK || !node)
        return status;
    gv_yaml_value read = gv_yaml_scalar_value(node);
    if (read.type != GV_YAML_IS_INTEGER || read.integer < least || read.integer > most)
        return gv_yaml_fail(yaml, node, error, "`%s` must be a whole number from %lld to %lld, not \"%.60s\"", key,
                            (long long)least, (long long)most, node->text);
    *value = read.integer;
    return GV_OK;
}

gv_status gv_yaml_number(const gv_yaml *yaml, const gv_yaml_node *mapping, const char *key, double least, double most,
                         double *value, gv_error *error)
{
    const gv_yaml_node *node;
    gv_status status = find_scalar(yaml, mapping, key, &node, error);
    if (status != GV_OK || !node)
        return status;
    gv_yaml_value read = gv_yaml_scalar_value(node);
    bool number = read.type == GV_YAML_IS_INTEGER || read.type == GV_YAML_IS_NUMBER;
    if (!number || !(read.number >= least && read.number <= most))
        return gv_yaml_fail(yaml, node, error, "`%s` must be a number from %g to %g, not \"%.60s\"", key, least, most,
                            node->text);
    *value = read.number;
    return GV_OK;
}

gv_status gv_yaml_bool(const gv_yaml *yaml, const gv_yaml_node *mapping, const char *key, bool *value, gv_error *error)
{
    const gv_yaml_node *node;
    gv_status status = find_scalar(yaml, mapping, key, &node, error);
    if (status != GV_OK || !node)
        return status;
    gv_yaml_value read = gv_yaml_scalar_value(node);
    if (read.type != GV_YAML_IS_BOOL)
        return gv_yaml_fail(yaml, node, error, "`%s` must be true or false, not \"%.60s\"", key, node->text);
    *value = read.boolean;
    return GV_OK;
}

static bool one_of(const char *text, const char *a, const char *b, const char *c)
{
    return strcmp(text, a) == 0 || strcmp(text, b) == 0 || strcmp(text, c) == 0;
}

gv_yaml_value gv_yaml_scalar_value(const gv_yaml_node *scalar)
{
    gv_yaml_value value = {.type = GV_YAML_IS_TEXT};
    const char *text = scalar->text;
    if (scalar->kind != GV_YAML_SCALAR || !scalar->plain)
        return value;
    if (text[0] == '\0' || strcmp(text, "~") == 0 || one_of(text, "null", "Null", "NULL")) {
        value.type = GV_YAML_IS_NULL;
    } else if (one_of(text, "true", "True", "TRUE") || one_of(text, "false", "False", "FALSE")) {
        value.type = GV_YAML_IS_BOOL;
        value.boolean = text[0] == 't' || text[0] == 'T';
    } else if (text[strspn(text, "+-0123456789.eE")] == '\0' && strpbrk(text, "0123456789")) {
        char *end = NULL;
        errno = 0;
        value.integer = strtoll(text, &end, 10);
        if (*end == '\0' && errno == 0) {
            value.type = GV_YAML_IS_INTEGER;
            value.number = (double)value.integer;
            return value;
        }
        errno = 0;
        value.number = strtod(text, &end);
        if (*end == '\0' && isfinite(value.number))
            value.type = GV_YAML_IS_NUMBER;
    }
    return value;
}
