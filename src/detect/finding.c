// The list of findings.
#include "detect/finding.h"

#include "base/memory.h"

const char *gv_finding_id_name(enum gv_finding_id id)
{
    switch (id) {
    case GV_FINDING_RACE_RAW: return "race-raw";
    case GV_FINDING_RACE_WAR: return "race-war";
    case GV_FINDING_RACE_WAW: return "race-waw";
    case GV_FINDING_INCOMPLETE: return "incomplete";
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

size_t gv_findings_races(const gv_findings *findings)
{
    size_t races = 0;
    for (size_t i = 0; i < findings->count; i++)
        races += findings->items[i].id != GV_FINDING_INCOMPLETE && !findings->items[i].suppressed;
    return races;
}

void gv_findings_free(gv_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        gv_finding *finding = &findings->items[i];
        for (size_t p = 0; p < finding->pair_count; p++)
            gv_range_set_free(&finding->pairs[p].ranges);
        gv_free(finding->pairs);
        gv_free(finding->reason);
    }
    gv_free(findings->items);
    *findings = (gv_findings){0};
}
