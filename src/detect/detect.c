// The table of detectors, and the one order in which their findings come.
#include "detect/detect.h"

#include <stdlib.h>
#include <string.h>

static const gv_detector DETECTORS[] = {
    {"race", "nodes of one graph that access the same bytes without an order between them", gv_detect_race},
    {"diff", "memory that a launch left otherwise than a serial replay of its nodes; names races of the same node",
     gv_detect_diff},
    {"perturbed", "launches whose results changed with padded rows or with memory that they must not read",
     gv_detect_perturbed},
    {"stale", "scratch memory that is read before anything has written it", gv_detect_stale},
    {"probe", "tensors that a graph computed otherwise than the program does eagerly", gv_detect_probe},
    {"canary", "pages that changed although no step was declared to change them", gv_detect_canary},
    {"incomplete", "what could not be seen, so that silence about it means nothing", gv_detect_incomplete},
};

const gv_detector *gv_detectors(size_t *count)
{
    *count = sizeof DETECTORS / sizeof *DETECTORS;
    return DETECTORS;
}

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static uint64_t total_bytes(const gv_finding *finding)
{
    uint64_t bytes = finding->bytes;
    for (size_t i = 0; i < finding->pair_count; i++)
        bytes += finding->pairs[i].bytes;
    return bytes;
}

static int in_order(const void *left, const void *right)
{
    const gv_finding *a = left, *b = right;
    bool a_incomplete = a->id == GV_FINDING_INCOMPLETE, b_incomplete = b->id == GV_FINDING_INCOMPLETE;
    bool a_observed = gv_finding_is_observed(a->id), b_observed = gv_finding_is_observed(b->id);
    int order = compare(b_observed, a_observed);
    if (!order && a_observed)
        order = compare(a->id, b->id);
    // What is laid to order comes before what is not.
    if (!order && a_observed)
        order = compare(gv_finding_counts(b), gv_finding_counts(a));
    if (!order)
        order = compare(a->graph, b->graph);
    if (!order)
        order = compare(a_incomplete, b_incomplete);
    if (!order && !a_incomplete)
        order = compare(total_bytes(b), total_bytes(a));
    if (!order)
        order = compare(a->incomplete, b->incomplete);
    if (!order)
        order = compare(a->node, b->node);
    if (!order)
        order = compare(a->edge_from, b->edge_from);
    if (!order)
        order = compare(a->edge_to, b->edge_to);
    if (!order)
        order = compare(a->launch, b->launch);
    if (!order)
        order = strcmp(a->reason ? a->reason : "", b->reason ? b->reason : "");
    return order;
}

gv_status gv_detect(const gv_trace *trace, gv_findings *findings, gv_error *error)
{
    size_t first = findings->count;
    for (size_t i = 0; i < sizeof DETECTORS / sizeof *DETECTORS; i++) {
        gv_status status = DETECTORS[i].run(trace, findings, error);
        if (status)
            return status;
    }
    if (findings->count > first)
        qsort(findings->items + first, findings->count - first, sizeof *findings->items, in_order);
    return GV_OK;
}
