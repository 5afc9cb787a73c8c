// The list of findings.
#include "detect/finding.h"

#include "base/memory.h"

#include <string.h>

const char *gv_finding_id_name(enum gv_finding_id id)
{
    switch (id) {
    case GV_FINDING_RACE_RAW: return "race-raw";
    case GV_FINDING_RACE_WAR: return "race-war";
    case GV_FINDING_RACE_WAW: return "race-waw";
    case GV_FINDING_INCOMPLETE: return "incomplete";
    case GV_FINDING_PAD_READ: return "pad-read";
    case GV_FINDING_PAD_WRITE: return "pad-write";
    case GV_FINDING_STALE_READ: return "stale-read";
    case GV_FINDING_DIFF: return "diff";
    case GV_FINDING_CANARY: return "canary";
    }
    return "unknown";
}

const char *gv_confidence_name(enum gv_confidence confidence)
{
    switch (confidence) {
    case GV_CERTAIN: return "certain";
    case GV_LIKELY: return "likely";
    case GV_POSSIBLE: return "possible";
    }
    return "unknown";
}

gv_finding *gv_findings_add(gv_findings *findings)
{
    if (!GV_GROW(findings->items, findings->capacity, findings->count + 1))
        return NULL;
    gv_finding *added = &findings->items[findings->count++];
    *added = (gv_finding){0};
    return added;
}

bool gv_findings_add_incomplete(gv_findings *findings, gv_finding finding, const char *reason)
{
    finding.id = GV_FINDING_INCOMPLETE;
    finding.reason = gv_strdup(reason);
    gv_finding *added = finding.reason ? gv_findings_add(findings) : NULL;
    if (!added) {
        gv_free(finding.reason);
        return false;
    }
    *added = finding;
    return true;
}

bool gv_finding_add_number(gv_finding *finding, const char *key, uint64_t number)
{
    if (!GV_GROW(finding->facts, finding->fact_capacity, finding->fact_count + 1))
        return false;
    finding->facts[finding->fact_count++] = (gv_fact){.key = key, .number = number};
    return true;
}

bool gv_finding_add_text(gv_finding *finding, const char *key, const char *text)
{
    char *copy = gv_strdup(text);
    if (!copy || !gv_finding_add_number(finding, key, 0)) {
        gv_free(copy);
        return false;
    }
    finding->facts[finding->fact_count - 1].text = copy;
    return true;
}

const gv_fact *gv_finding_fact(const gv_finding *finding, const char *key)
{
    for (size_t i = 0; i < finding->fact_count; i++)
        if (strcmp(finding->facts[i].key, key) == 0)
            return &finding->facts[i];
    return NULL;
}

size_t gv_findings_races(const gv_findings *findings)
{
    size_t races = 0;
    for (size_t i = 0; i < findings->count; i++)
        races += gv_finding_counts(&findings->items[i]) && !findings->items[i].suppressed;
    return races;
}

bool gv_finding_counts(const gv_finding *finding)
{
    const gv_fact *class = finding->id == GV_FINDING_DIFF ? gv_finding_fact(finding, "class") : NULL;
    return finding->id != GV_FINDING_INCOMPLETE && (!class || strcmp(class->text, "order-dependent") == 0);
}

void gv_finding_clear(gv_finding *finding)
{
    for (size_t p = 0; p < finding->pair_count; p++)
        gv_range_set_free(&finding->pairs[p].ranges);
    gv_free(finding->pairs);
    gv_free(finding->reason);
    for (size_t f = 0; f < finding->fact_count; f++)
        gv_free(finding->facts[f].text);
    gv_free(finding->facts);
    gv_range_set_free(&finding->ranges);
}

void gv_findings_free(gv_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++)
        gv_finding_clear(&findings->items[i]);
    gv_free(findings->items);
    *findings = (gv_findings){0};
}
