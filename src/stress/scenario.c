#include "stress/scenario.h"

#include "base/memory.h"

#include <string.h>

gv_tools gv_scenario_tools(const gv_scenario *scenario)
{
    return (gv_tools){scenario->oracle_tools, scenario->tool_count, scenario->oracle_fragments};
}

const gv_round_plan *gv_scenario_round(const gv_scenario *scenario, size_t round)
{
    if (round < scenario->round_count)
        return &scenario->rounds[round];
    if (scenario->again_from >= scenario->round_count)
        return NULL;
    size_t turn = scenario->round_count - scenario->again_from;
    return &scenario->rounds[scenario->again_from + (round - scenario->round_count) % turn];
}

const gv_tool_plan *gv_scenario_tool(const gv_scenario *scenario, const char *name)
{
    for (size_t i = 0; i < scenario->tool_count; i++) {
        if (strcmp(scenario->tools[i].name, name) == 0)
            return &scenario->tools[i];
    }
    return NULL;
}

bool gv_template_next(const char **rest, const char **literal, size_t *literal_length, const char **name,
                      size_t *name_length)
{
    if (!**rest)
        return false;
    *literal = *rest;
    const char *open = strstr(*rest, "${");
    const char *close = open ? strchr(open, '}') : NULL;
    // "${" without an end is text like any other.
    if (!close) {
        *literal_length = strlen(*rest);
        *rest += *literal_length;
        *name = "";
        *name_length = 0;
        return true;
    }
    *literal_length = (size_t)(open - *rest);
    *name = open + 2;
    *name_length = (size_t)(close - *name);
    *rest = close + 1;
    return true;
}

static void free_texts(gv_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        gv_free(texts->items[i]);
    gv_free(texts->items);
}

static void free_rules(gv_rules *rules)
{
    for (size_t i = 0; i < rules->count; i++) {
        for (size_t j = 0; j < rules->items[i].choice_count; j++)
            gv_free(rules->items[i].choices[j]);
        gv_free(rules->items[i].choices);
        gv_free(rules->items[i].name);
    }
    gv_free(rules->items);
}

void gv_scenario_free(gv_scenario *scenario)
{
    if (!scenario)
        return;
    for (size_t i = 0; i < scenario->round_count; i++) {
        gv_round_plan *round = &scenario->rounds[i];
        free_rules(&round->values);
        free_texts(&round->facts);
        gv_free(round->user);
        gv_free(round->tool);
        gv_free(round->text);
        json_decref(round->arguments);
        json_decref(round->result);
    }
    for (size_t i = 0; i < scenario->tool_count; i++) {
        gv_free(scenario->tools[i].name);
        json_decref(scenario->tools[i].parameters);
        json_decref(scenario->tools[i].result);
    }
    free_rules(&scenario->values);
    free_rules(&scenario->filler_values);
    free_texts(&scenario->facts);
    free_texts(&scenario->filler);
    free_texts(&scenario->fragments);
    gv_free(scenario->rounds);
    gv_free(scenario->tools);
    gv_free(scenario->oracle_tools);
    gv_free(scenario->oracle_fragments);
    gv_free(scenario->tools_json);
    gv_free(scenario->system);
    gv_free(scenario->name);
    gv_free(scenario);
}
