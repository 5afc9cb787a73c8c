// Reads a scenario from YAML: structure, then every place of every template, so that a mistake is told before the first
// request is sent.
#include "base/memory.h"
#include "base/yaml.h"
#include "stress/scenario.h"
#include "stress/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    gv_yaml *yaml;
    gv_scenario *scenario;
    gv_error *error;
} reader;

static gv_status no_memory(reader *read)
{
    return gv_fail(read->error, GV_ERR_MEMORY, "%s: out of memory", read->yaml->name);
}

#define FAIL(read, node, ...) gv_yaml_fail((read)->yaml, node, (read)->error, __VA_ARGS__)

// ---- Pieces -------------------------------------------------------------------------------------------------------

// Copies an optional text member.
static gv_status copy_text(reader *read, const gv_yaml_node *mapping, const char *key, char **out)
{
    const char *text = NULL;
    gv_status status = gv_yaml_text(read->yaml, mapping, key, &text, read->error);
    if (status != GV_OK || !text)
        return status;
    gv_free(*out);
    *out = gv_strdup(text);
    return *out ? GV_OK : no_memory(read);
}

static gv_status read_texts(reader *read, const gv_yaml_node *mapping, const char *key, gv_texts *texts)
{
    const gv_yaml_node *list = gv_yaml_get(mapping, key);
    if (!list)
        return GV_OK;
    char what[80];
    snprintf(what, sizeof what, "`%s`", key);
    gv_status status = gv_yaml_expect_kind(read->yaml, list, what, GV_YAML_SEQUENCE, read->error);
    for (size_t i = 0; status == GV_OK && i < list->count; i++) {
        const gv_yaml_node *item = list->items[i];
        if (item->kind != GV_YAML_SCALAR)
            return FAIL(read, item, "an item of `%s` must be text; put quotes around it if it holds \": \" or \" #\"",
                        key);
        if (!GV_GROW(texts->items, texts->capacity, texts->count + 1) ||
            !(texts->items[texts->count] = gv_strdup(item->text)))
            return no_memory(read);
        texts->count++;
    }
    return status;
}

// YAML as JSON, under the core schema.
static json_t *to_json(const gv_yaml_node *node)
{
    json_t *value = NULL;
    if (node->kind == GV_YAML_MAPPING) {
        value = json_object();
        for (size_t i = 0; value && i < node->count; i++) {
            if (json_object_set_new(value, node->items[i]->key, to_json(node->items[i])) != 0) {
                json_decref(value);
                value = NULL;
            }
        }
        return value;
    }
    if (node->kind == GV_YAML_SEQUENCE) {
        value = json_array();
        for (size_t i = 0; value && i < node->count; i++) {
            if (json_array_append_new(value, to_json(node->items[i])) != 0) {
                json_decref(value);
                value = NULL;
            }
        }
        return value;
    }
    gv_yaml_value scalar = gv_yaml_scalar_value(node);
    switch (scalar.type) {
    case GV_YAML_IS_NULL: return json_null();
    case GV_YAML_IS_BOOL: return json_boolean(scalar.boolean);
    case GV_YAML_IS_INTEGER: return json_integer(scalar.integer);
    case GV_YAML_IS_NUMBER: return json_real(scalar.number);
    case GV_YAML_IS_TEXT: break;
    }
    return json_string(node->text);
}

static gv_status read_json(reader *read, const gv_yaml_node *mapping, const char *key, json_t **out)
{
    const gv_yaml_node *node = gv_yaml_get(mapping, key);
    if (!node)
        return GV_OK;
    *out = to_json(node);
    return *out ? GV_OK : no_memory(read);
}

// ---- Values -------------------------------------------------------------------------------------------------------

static gv_status read_pick(reader *read, const gv_yaml_node *node, gv_rule *rule)
{
    if (node->kind != GV_YAML_SEQUENCE || node->count == 0)
        return FAIL(read, node, "`%s` takes a list of texts, such as [north, south]", node->key);
    rule->choices = gv_calloc(node->count, sizeof *rule->choices);
    if (!rule->choices)
        return no_memory(read);
    for (size_t i = 0; i < node->count; i++) {
        if (node->items[i]->kind != GV_YAML_SCALAR)
            return FAIL(read, node->items[i], "an item of `%s` must be text", node->key);
        if (!(rule->choices[i] = gv_strdup(node->items[i]->text)))
            return no_memory(read);
        rule->choice_count = i + 1;
    }
    return GV_OK;
}

static gv_status read_rule(reader *read, const gv_yaml_node *node, gv_rule *rule)
{
    static const struct {
        const char *name;
        gv_rule_kind kind;
        int64_t most;
    } kinds[] = {{"digits", GV_RULE_DIGITS, 18},
                 {"letters", GV_RULE_LETTERS, 64},
                 {"hex", GV_RULE_HEX, 64},
                 {"name", GV_RULE_NAME, 16}};
    static const char how[] =
        "{digits: 6}, {letters: 8}, {hex: 8}, {name: 3}, {integer: [1, 99]}, {pick: [a, b]} or {deal: [a, b]}";
    if (node->kind != GV_YAML_MAPPING || node->count != 1)
        return FAIL(read, node, "the value `%.40s` must say how it is drawn: %s", node->key, how);
    const gv_yaml_node *way = node->items[0];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(way->key, kinds[i].name) == 0) {
            rule->kind = kinds[i].kind;
            rule->low = 0;
            return gv_yaml_integer(read->yaml, node, way->key, 1, kinds[i].most, &rule->low, read->error);
        }
    }
    if (strcmp(way->key, "pick") == 0 || strcmp(way->key, "deal") == 0) {
        rule->kind = way->key[0] == 'p' ? GV_RULE_PICK : GV_RULE_DEAL;
        return read_pick(read, way, rule);
    }
    if (strcmp(way->key, "integer") != 0)
        return FAIL(read, way, "there is no kind of value `%.40s`; use %s", way->key, how);
    rule->kind = GV_RULE_INTEGER;
    if (way->kind != GV_YAML_SEQUENCE || way->count != 2)
        return FAIL(read, way, "`integer` takes its bounds, such as [1, 99]");
    gv_yaml_value low = gv_yaml_scalar_value(way->items[0]), high = gv_yaml_scalar_value(way->items[1]);
    if (low.type != GV_YAML_IS_INTEGER || high.type != GV_YAML_IS_INTEGER || low.integer > high.integer)
        return FAIL(read, way, "the bounds of `integer` must be two whole numbers, the smaller first");
    // JSON's readers keep whole numbers exact up to 2^53.
    if (low.integer < -(1ll << 53) || high.integer > 1ll << 53)
        return FAIL(read, way, "the bounds of `integer` must lie between -2^53 and 2^53");
    rule->low = low.integer;
    rule->high = high.integer;
    return GV_OK;
}

static gv_status read_rules(reader *read, const gv_yaml_node *mapping, gv_rules *rules)
{
    const gv_yaml_node *node = gv_yaml_get(mapping, "values");
    if (!node)
        return GV_OK;
    gv_status status = gv_yaml_expect_kind(read->yaml, node, "`values`", GV_YAML_MAPPING, read->error);
    for (size_t i = 0; status == GV_OK && i < node->count; i++) {
        const gv_yaml_node *item = node->items[i];
        if (!item->key[0] || strpbrk(item->key, ".{}$ ") || strcmp(item->key, "context") == 0 ||
            strcmp(item->key, "round") == 0 || strcmp(item->key, "previous") == 0)
            return FAIL(read, item, "a value cannot be called \"%.40s\"; use a word of letters, digits and _",
                        item->key);
        if (!GV_GROW(rules->items, rules->capacity, rules->count + 1))
            return no_memory(read);
        gv_rule *rule = &rules->items[rules->count];
        *rule = (gv_rule){.name = gv_strdup(item->key)};
        if (!rule->name)
            return no_memory(read);
        rules->count++;
        status = read_rule(read, item, rule);
    }
    return status;
}

// ---- Checking templates -------------------------------------------------------------------------------------------

static bool has_rule(const gv_rules *rules, const char *name, size_t length)
{
    for (size_t i = 0; rules && i < rules->count; i++) {
        if (strlen(rules->items[i].name) == length && memcmp(rules->items[i].name, name, length) == 0)
            return true;
    }
    return false;
}

typedef struct scope {
    const gv_rules *own, *session; // may be NULL
    const gv_rules *before[2];     // of the rounds that can come before; `before_count` of them
    size_t before_count;
    bool context, *context_used;
} scope;

static gv_status check_place(reader *read, const gv_yaml_node *node, const scope *names, const char *name,
                             size_t length)
{
    static const char previous[] = "previous.";
    if (length == 7 && memcmp(name, "context", 7) == 0) {
        if (!names->context)
            return FAIL(read, node, "${context} can stand only in `system` and in the first round's `user`");
        *names->context_used = true;
        return GV_OK;
    }
    if ((length == 5 && memcmp(name, "round", 5) == 0) || has_rule(names->own, name, length) ||
        has_rule(names->session, name, length))
        return GV_OK;
    size_t prefix = sizeof previous - 1;
    if (length > prefix && memcmp(name, previous, prefix) == 0) {
        if (names->before_count == 0)
            return FAIL(read, node, "${%.*s}: there is no round before this one", (int)length, name);
        for (size_t i = 0; i < names->before_count; i++) {
            if (!has_rule(names->before[i], name + prefix, length - prefix))
                return FAIL(read, node, "${%.*s}: a round that comes before this one has no value `%.*s`; add it there",
                            (int)length, name, (int)(length - prefix), name + prefix);
        }
        return GV_OK;
    }
    return FAIL(read, node,
                "${%.*s} is not among the `values` of this round or of the scenario; add it, or write "
                "the text without ${}",
                (int)(length < 60 ? length : 60), name);
}

static gv_status check_template(reader *read, const gv_yaml_node *node, const scope *names)
{
    gv_status status = GV_OK;
    if (!node)
        return GV_OK;
    for (size_t i = 0; status == GV_OK && i < node->count; i++)
        status = check_template(read, node->items[i], names);
    if (node->kind != GV_YAML_SCALAR)
        return status;
    const char *rest = node->text, *literal, *name;
    size_t literal_length, length;
    while (status == GV_OK && gv_template_next(&rest, &literal, &literal_length, &name, &length)) {
        if (name[0])
            status = check_place(read, node, names, name, length);
    }
    return status;
}

// ---- Rounds -------------------------------------------------------------------------------------------------------

static gv_status read_expectation(reader *read, const gv_yaml_node *node, gv_round_plan *round)
{
    static const char *const known[] = {"call", "arguments", "text"};
    if (!node)
        return GV_OK;
    gv_status status = gv_yaml_expect_keys(read->yaml, node, "`expect`", known, 3, read->error);
    if (status == GV_OK)
        status = copy_text(read, node, "call", &round->tool);
    if (status == GV_OK)
        status = copy_text(read, node, "text", &round->text);
    if (status == GV_OK)
        status = read_json(read, node, "arguments", &round->arguments);
    if (status != GV_OK)
        return status;
    if (!round->tool == !round->text)
        return FAIL(read, node, "`expect` must have either `call` (with `arguments`) or `text`");
    if (round->text && !round->text[0])
        return FAIL(read, node, "the expected `text` is empty: any answer would do; leave `expect` out instead");
    if (!round->tool)
        return round->arguments ? FAIL(read, node, "`arguments` belong to a `call`") : GV_OK;
    const gv_tool_plan *tool = gv_scenario_tool(read->scenario, round->tool);
    if (!tool)
        return FAIL(read, gv_yaml_get(node, "call"), "there is no tool `%.60s`; describe it under `tools`",
                    round->tool);
    if (!round->arguments && !(round->arguments = json_object()))
        return no_memory(read);
    if (!json_is_object(round->arguments))
        return FAIL(read, gv_yaml_get(node, "arguments"), "`arguments` must be a mapping (name: value)");
    const json_t *required = json_object_get(tool->parameters, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name && !json_object_get(round->arguments, name))
            return FAIL(read, node, "the tool `%.40s` requires `%.40s`, and no such argument is expected; add it",
                        round->tool, name);
    }
    return GV_OK;
}

static gv_status read_round(reader *read, const gv_yaml_node *node)
{
    static const char *const known[] = {"values", "facts", "user", "expect", "result"};
    gv_scenario *scenario = read->scenario;
    gv_status status = gv_yaml_expect_keys(read->yaml, node, "a round", known, 5, read->error);
    if (status != GV_OK)
        return status;
    if (!GV_GROW(scenario->rounds, scenario->round_capacity, scenario->round_count + 1))
        return no_memory(read);
    gv_round_plan *round = &scenario->rounds[scenario->round_count++];
    *round = (gv_round_plan){.line = node->line};
    status = read_rules(read, node, &round->values);
    if (status == GV_OK)
        status = read_texts(read, node, "facts", &round->facts);
    if (status == GV_OK)
        status = copy_text(read, node, "user", &round->user);
    if (status == GV_OK)
        status = read_json(read, node, "result", &round->result);
    if (status == GV_OK)
        status = read_expectation(read, gv_yaml_get(node, "expect"), round);
    if (status == GV_OK && !round->user)
        status = FAIL(read, node, "the round has no `user`: say what the user asks for");
    return status;
}

// Every place of every template, and that facts have a context to stand in.
static gv_status check_rounds(reader *read, const gv_yaml_node *root)
{
    gv_scenario *scenario = read->scenario;
    bool context_used = false;
    scope names = {.session = &scenario->values, .context = true, .context_used = &context_used};
    gv_status status = check_template(read, gv_yaml_get(root, "system"), &names);
    names.context = false;
    if (status == GV_OK)
        status = check_template(read, gv_yaml_get(root, "facts"), &names);
    scope filler = {.own = &scenario->filler_values};
    if (status == GV_OK)
        status = check_template(read, gv_yaml_get(gv_yaml_get(root, "filler"), "lines"), &filler);

    const gv_yaml_node *rounds = gv_yaml_get(root, "rounds");
    bool facts = scenario->facts.count || scenario->filler.count;
    for (size_t i = 0; status == GV_OK && i < scenario->round_count; i++) {
        const gv_yaml_node *node = rounds->items[i];
        names.own = &scenario->rounds[i].values;
        names.before_count = 0;
        if (i > 0)
            names.before[names.before_count++] = &scenario->rounds[i - 1].values;
        if (i == scenario->again_from)
            names.before[names.before_count++] = &scenario->rounds[scenario->round_count - 1].values;
        names.context = i == 0;
        bool before = context_used;
        context_used = false;
        status = check_template(read, gv_yaml_get(node, "user"), &names);
        if (status == GV_OK && context_used && scenario->again_from == 0)
            status = FAIL(read, gv_yaml_get(root, "again_from"),
                          "the first round holds ${context} and cannot come again; begin again from 2");
        context_used |= before;
        names.context = false;
        static const char *const parts[] = {"expect", "result", "facts"};
        for (size_t j = 0; status == GV_OK && j < 3; j++)
            status = check_template(read, gv_yaml_get(node, parts[j]), &names);
        facts |= scenario->rounds[i].facts.count > 0;
    }
    if (status == GV_OK && facts && !context_used)
        status = FAIL(read, root,
                      "there are facts or filler lines, but no ${context} where they shall stand; put it "
                      "into `system` or into the first round's `user`");
    return status;
}

static gv_status read_rounds(reader *read, const gv_yaml_node *root)
{
    const gv_yaml_node *rounds = gv_yaml_get(root, "rounds");
    gv_scenario *scenario = read->scenario;
    if (!rounds)
        return FAIL(read, root, "the scenario has no `rounds`: a list of what the user asks for in turn");
    gv_status status = gv_yaml_expect_kind(read->yaml, rounds, "`rounds`", GV_YAML_SEQUENCE, read->error);
    if (status == GV_OK && (rounds->count == 0 || rounds->count > GV_MOST_ROUNDS))
        status = FAIL(read, rounds, "`rounds` must have between 1 and %d items", GV_MOST_ROUNDS);
    for (size_t i = 0; status == GV_OK && i < rounds->count; i++)
        status = read_round(read, rounds->items[i]);
    int64_t again = (int64_t)scenario->round_count + 1;
    if (status == GV_OK)
        status =
            gv_yaml_integer(read->yaml, root, "again_from", 1, (int64_t)scenario->round_count, &again, read->error);
    scenario->again_from = (size_t)again - 1;
    return status;
}

// ---- Tools --------------------------------------------------------------------------------------------------------

static gv_status add_tool(reader *read, const gv_yaml_node *node, json_t *list)
{
    static const char *const known[] = {"name", "description", "parameters", "result"};
    gv_scenario *scenario = read->scenario;
    gv_status status = gv_yaml_expect_keys(read->yaml, node, "a tool", known, 4, read->error);
    const char *name = NULL, *description = NULL;
    if (status == GV_OK)
        status = gv_yaml_text(read->yaml, node, "name", &name, read->error);
    if (status == GV_OK)
        status = gv_yaml_text(read->yaml, node, "description", &description, read->error);
    if (status != GV_OK)
        return status;
    if (!name || !name[0] || strlen(name) > 64 ||
        name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")])
        return FAIL(read, node, "a tool needs a `name` of 1 to 64 letters, digits, _ and -");
    if (gv_scenario_tool(scenario, name))
        return FAIL(read, node, "there are two tools called `%s`; rename one", name);
    if (!GV_GROW(scenario->tools, scenario->tool_capacity, scenario->tool_count + 1))
        return no_memory(read);
    gv_tool_plan *tool = &scenario->tools[scenario->tool_count];
    *tool = (gv_tool_plan){.name = gv_strdup(name)};
    if (!tool->name)
        return no_memory(read);
    scenario->tool_count++;
    status = read_json(read, node, "parameters", &tool->parameters);
    if (status == GV_OK)
        status = read_json(read, node, "result", &tool->result);
    if (status != GV_OK)
        return status;
    if (!tool->parameters && !(tool->parameters = json_pack("{s:s, s:{}}", "type", "object", "properties")))
        return no_memory(read);
    if (!json_is_object(tool->parameters) || !gv_schema_allows(tool->parameters, "object"))
        return FAIL(read, gv_yaml_get(node, "parameters"), "`parameters` must be a JSON schema with `type: object`");
    json_t *function =
        json_pack("{s:s, s:s*, s:O}", "name", name, "description", description, "parameters", tool->parameters);
    if (!function ||
        json_array_append_new(list, json_pack("{s:s, s:o}", "type", "function", "function", function)) != 0)
        return no_memory(read);
    return GV_OK;
}

static gv_status read_tools(reader *read, const gv_yaml_node *root)
{
    gv_scenario *scenario = read->scenario;
    const gv_yaml_node *tools = gv_yaml_get(root, "tools");
    gv_status status = GV_OK;
    if (tools)
        status = gv_yaml_expect_kind(read->yaml, tools, "`tools`", GV_YAML_SEQUENCE, read->error);
    json_t *list = json_array();
    if (!list)
        return no_memory(read);
    for (size_t i = 0; status == GV_OK && tools && i < tools->count; i++)
        status = add_tool(read, tools->items[i], list);
    if (status == GV_OK && scenario->tool_count && !(scenario->tools_json = json_dumps(list, JSON_COMPACT)))
        status = no_memory(read);
    json_decref(list);
    return status;
}

// The lists in the form that the oracles take.
static gv_status fill_oracles(reader *read)
{
    gv_scenario *scenario = read->scenario;
    scenario->oracle_tools = gv_calloc(scenario->tool_count, sizeof *scenario->oracle_tools);
    scenario->oracle_fragments = gv_calloc(scenario->fragments.count + 1, sizeof *scenario->oracle_fragments);
    if (!scenario->oracle_tools || !scenario->oracle_fragments)
        return no_memory(read);
    for (size_t i = 0; i < scenario->tool_count; i++)
        scenario->oracle_tools[i] = (gv_tool){scenario->tools[i].name, scenario->tools[i].parameters};
    for (size_t i = 0; i < scenario->fragments.count; i++)
        scenario->oracle_fragments[i] = scenario->fragments.items[i];
    return GV_OK;
}

// ---- The file -----------------------------------------------------------------------------------------------------

static gv_status read_filler(reader *read, const gv_yaml_node *root)
{
    static const char *const known[] = {"values", "lines"};
    const gv_yaml_node *filler = gv_yaml_get(root, "filler");
    if (!filler)
        return GV_OK;
    gv_status status = gv_yaml_expect_keys(read->yaml, filler, "`filler`", known, 2, read->error);
    if (status == GV_OK)
        status = read_rules(read, filler, &read->scenario->filler_values);
    if (status == GV_OK)
        status = read_texts(read, filler, "lines", &read->scenario->filler);
    if (status == GV_OK && read->scenario->filler.count == 0)
        status = FAIL(read, filler, "`filler` has no `lines`: give at least one");
    return status;
}

static gv_status read_scenario(reader *read)
{
    static const char *const known[] = {"name",   "system", "lines",  "values",     "facts",
                                        "filler", "tools",  "rounds", "again_from", "fragments"};
    const gv_yaml_node *root = read->yaml->root;
    gv_scenario *scenario = read->scenario;
    gv_status status = gv_yaml_expect_keys(read->yaml, root, "a scenario", known, 10, read->error);
    int64_t lines = 0;
    if (status == GV_OK)
        status = copy_text(read, root, "name", &scenario->name);
    if (status == GV_OK)
        status = copy_text(read, root, "system", &scenario->system);
    if (status == GV_OK)
        status = gv_yaml_integer(read->yaml, root, "lines", 0, GV_MOST_LINES, &lines, read->error);
    scenario->lines = (size_t)lines;
    if (status == GV_OK)
        status = read_rules(read, root, &scenario->values);
    if (status == GV_OK)
        status = read_texts(read, root, "facts", &scenario->facts);
    if (status == GV_OK)
        status = read_texts(read, root, "fragments", &scenario->fragments);
    for (size_t i = 0; status == GV_OK && i < scenario->fragments.count; i++) {
        if (!scenario->fragments.items[i][0])
            status = FAIL(read, gv_yaml_get(root, "fragments"), "a fragment is empty; remove it");
    }
    if (status == GV_OK)
        status = read_filler(read, root);
    if (status == GV_OK)
        status = read_tools(read, root);
    if (status == GV_OK)
        status = read_rounds(read, root);
    if (status == GV_OK)
        status = check_rounds(read, root);
    if (status == GV_OK)
        status = fill_oracles(read);
    return status;
}

static gv_status read_tree(gv_yaml *yaml, gv_scenario **scenario, gv_error *error)
{
    reader read = {.yaml = yaml, .scenario = gv_calloc(1, sizeof(gv_scenario)), .error = error};
    gv_status status = GV_OK;
    if (!read.scenario || !(read.scenario->name = gv_strdup(yaml->name)))
        status = no_memory(&read);
    if (status == GV_OK)
        status = read_scenario(&read);
    gv_yaml_free(yaml);
    if (status != GV_OK) {
        gv_scenario_free(read.scenario);
        return status;
    }
    *scenario = read.scenario;
    return GV_OK;
}

gv_status gv_scenario_parse(const char *name, const char *text, size_t length, gv_scenario **scenario, gv_error *error)
{
    *scenario = NULL;
    gv_yaml *yaml;
    gv_status status = gv_yaml_parse(name, text, length, &yaml, error);
    return status == GV_OK ? read_tree(yaml, scenario, error) : status;
}

gv_status gv_scenario_load(const char *path, gv_scenario **scenario, gv_error *error)
{
    *scenario = NULL;
    gv_yaml *yaml;
    gv_status status = gv_yaml_load(path, &yaml, error);
    return status == GV_OK ? read_tree(yaml, scenario, error) : status;
}
