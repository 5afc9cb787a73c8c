// What the sessions are about: tools, texts with places for values, and what each round must bring. Read from YAML
// (docs/stress.md describes the file); the built-in scenario is such a file too.
#ifndef GV_STRESS_SCENARIO_H
#define GV_STRESS_SCENARIO_H

#include "base/error.h"
#include "stress/oracle.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

// The first four and GV_RULE_DEAL never give the same text twice in a session.
typedef enum gv_rule_kind {
    GV_RULE_DIGITS,
    GV_RULE_LETTERS,
    GV_RULE_HEX,
    GV_RULE_NAME,
    GV_RULE_INTEGER,
    GV_RULE_PICK,
    GV_RULE_DEAL
} gv_rule_kind;

// How a value is drawn for each session.
typedef struct gv_rule {
    char *name;
    gv_rule_kind kind;
    int64_t low, high; // GV_RULE_INTEGER: the bounds; else `low` is the number of characters or syllables
    char **choices;    // GV_RULE_PICK, GV_RULE_DEAL
    size_t choice_count;
} gv_rule;

typedef struct gv_rules {
    gv_rule *items;
    size_t count, capacity;
} gv_rules;

typedef struct gv_texts {
    char **items;
    size_t count, capacity;
} gv_texts;

// A round. Texts are templates: ${name} stands for a value of the round or the session, ${previous.name} for one of
// the round before, ${round} for the round's number, ${context} (in `system` or the first `user`) for the context.
typedef struct gv_round_plan {
    size_t line; // in the file, for messages
    gv_rules values;
    gv_texts facts; // lines of the context
    char *user;
    char *tool;        // the call that is expected, or NULL
    json_t *arguments; // an object; its texts are templates
    char *text;        // the text that is expected, or NULL
    json_t *result;    // what the tool answers; NULL: what the tool's own `result` has
} gv_round_plan;

typedef struct gv_tool_plan {
    char *name;
    json_t *parameters, *result; // `result` may be NULL
} gv_tool_plan;

typedef struct gv_scenario {
    char *name;
    char *system; // template, or NULL
    size_t lines; // of the context, when --ctx says nothing
    gv_rules values, filler_values;
    gv_texts facts, filler, fragments;
    gv_tool_plan *tools;
    size_t tool_count, tool_capacity;
    gv_round_plan *rounds;
    size_t round_count, round_capacity;
    size_t again_from; // index of the round that follows the last one; `round_count`: none does
    gv_tool *oracle_tools;
    const char **oracle_fragments;
    char *tools_json; // the member `tools` of a request; NULL without tools
} gv_scenario;

enum { GV_MOST_ROUNDS = 1000, GV_MOST_LINES = 100000 };

// Reads a scenario from a file or from text. Errors name the line and the remedy.
gv_status gv_scenario_load(const char *path, gv_scenario **scenario, gv_error *error);
gv_status gv_scenario_parse(const char *name, const char *text, size_t length, gv_scenario **scenario, gv_error *error);
void gv_scenario_free(gv_scenario *scenario);

// The text of the built-in scenario, depots.yaml.
extern const char gv_builtin_scenario[];

// The tools and fragments as the oracles take them.
gv_tools gv_scenario_tools(const gv_scenario *scenario);

// Which round of the file a session's round (from 0) is, or NULL beyond the last.
const gv_round_plan *gv_scenario_round(const gv_scenario *scenario, size_t round);

// The tool of this name, or NULL.
const gv_tool_plan *gv_scenario_tool(const gv_scenario *scenario, const char *name);

// Walks the places of a template. Returns false at its end; else `*literal` text comes first, then the place `name`
// (without "${" and "}"), which is empty at the end of the template. `*rest` begins as the template.
bool gv_template_next(const char **rest, const char **literal, size_t *literal_length, const char **name,
                      size_t *name_length);

#endif
