// Findings of launches that were repeated with other padding or poisoned memory, and of probes: the recorder has seen
// what happened, and this says where and how often.
#include "base/memory.h"
#include "detect/detect.h"

#include <stdio.h>
#include <string.h>

static gv_status out_of_memory(gv_error *error)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory while findings were gathered");
}

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

// ---- Probes ------------------------------------------------------------------------------------------------------

// The first differing comparison of the same name and layer stands for all of them.
static bool is_repeated(const gv_trace *trace, size_t index)
{
    const gv_probe *probe = &trace->probes[index];
    for (size_t i = 0; i < index; i++)
        if (trace->probes[i].differing && trace->probes[i].layer == probe->layer &&
            same_text(trace->probes[i].name, probe->name))
            return true;
    return false;
}

static gv_status add_probe(const gv_trace *trace, size_t index, gv_findings *findings, gv_error *error)
{
    const gv_probe *probe = &trace->probes[index];
    size_t launches = 0;
    for (size_t i = index; i < trace->probe_count; i++)
        launches += trace->probes[i].differing && trace->probes[i].layer == probe->layer &&
                    same_text(trace->probes[i].name, probe->name);
    gv_finding *finding = gv_findings_add(findings);
    if (!finding)
        return out_of_memory(error);
    finding->id = GV_FINDING_DIFF;
    finding->confidence = GV_CERTAIN;
    finding->trace = trace;
    finding->affected = launches;
    const struct {
        const char *key;
        uint64_t number;
        const char *text;
    } facts[] = {
        {"source", 0, "probe"},
        {"name", 0, probe->name},
        {"layer", probe->layer, NULL},
        {"bucket", probe->bucket, NULL},
        {"fallback", probe->fallback, NULL},
        {"real_rows", probe->real_rows, NULL},
        {"rows", probe->rows, NULL},
        {"elements", probe->elements, NULL},
        {"differing", probe->differing, NULL},
        {"first_row", probe->first_row, NULL},
        {"first_element", probe->first_element, NULL},
        {"dtype", 0, probe->dtype},
        {"tolerance", 0, probe->tolerance},
        {"graph_value", 0, probe->graph_value},
        {"eager_value", 0, probe->eager_value},
        {"largest", 0, probe->largest},
        {"operation", probe->operation, NULL},
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (!(facts[i].text ? gv_finding_add_text(finding, facts[i].key, facts[i].text)
                            : gv_finding_add_number(finding, facts[i].key, facts[i].number)))
            return out_of_memory(error);
    return GV_OK;
}

gv_status gv_detect_probe(const gv_trace *trace, gv_findings *findings, gv_error *error)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < trace->probe_count && !status; i++)
        if (trace->probes[i].differing && !is_repeated(trace, i))
            status = add_probe(trace, i, findings, error);
    return status;
}

// ---- Padding and poison ------------------------------------------------------------------------------------------

static enum gv_finding_id id_of(const gv_effect *effect)
{
    return effect->kind == GV_EFFECT_PAD_READ    ? GV_FINDING_PAD_READ
           : effect->kind == GV_EFFECT_PAD_WRITE ? GV_FINDING_PAD_WRITE
                                                 : GV_FINDING_STALE_READ;
}

// Effects that have the same node of the same graph, or without one the same graph, and the same name are one finding.
static bool is_same(const gv_effect *a, const gv_effect *b)
{
    return a->kind == b->kind && a->graph == b->graph && a->node == b->node && same_text(a->name, b->name);
}

static gv_status add_effect(const gv_trace *trace, size_t index, gv_findings *findings, gv_error *error)
{
    const gv_effect *effect = &trace->effects[index];
    gv_finding *finding = gv_findings_add(findings);
    if (!finding)
        return out_of_memory(error);
    finding->id = id_of(effect);
    finding->confidence = GV_CERTAIN;
    finding->trace = trace;
    finding->graph = effect->graph;
    finding->node = effect->node;
    finding->launch = effect->launch;
    for (size_t i = index; i < trace->effect_count; i++)
        finding->affected += is_same(effect, &trace->effects[i]);
    gv_status status = gv_range_set_decode(&finding->ranges, effect->ranges, error);
    if (status)
        return status;
    finding->bytes = effect->bytes;
    if (finding->ranges.count)
        finding->allocation = gv_trace_allocation_at(trace, finding->ranges.ranges[0].start, effect->launch);
    bool enough = true;
    if (effect->name && *effect->name)
        enough = gv_finding_add_text(finding, "name", effect->name);
    if (finding->id == GV_FINDING_STALE_READ)
        return enough && gv_finding_add_text(finding, "source", "poison") ? GV_OK : out_of_memory(error);
    enough = enough && gv_finding_add_text(finding, "patterns", effect->patterns ? effect->patterns : "") &&
             gv_finding_add_number(finding, "real_rows", effect->real_rows);
    if (finding->id == GV_FINDING_PAD_READ)
        enough = enough && gv_finding_add_number(finding, "rows", effect->rows) &&
                 gv_finding_add_number(finding, "first_row", effect->first_row) &&
                 gv_finding_add_number(finding, "last_row", effect->last_row);
    return enough ? GV_OK : out_of_memory(error);
}

static const char *what_of(const gv_perturbed *row)
{
    return row->what == GV_PERTURBED_PADDING ? "the padding of its launches was not checked"
                                             : "it was not launched with poisoned memory";
}

// A graph that was to be checked and never was is said to be so: silence about it means nothing.
static gv_status add_unchecked(const gv_trace *trace, size_t index, gv_findings *findings, gv_error *error)
{
    const gv_perturbed *row = &trace->perturbed[index];
    char reason[512];
    if (row->status == GV_PERTURBED_CHECKED)
        return GV_OK;
    for (size_t i = 0; i < trace->perturbed_count; i++) {
        const gv_perturbed *other = &trace->perturbed[i];
        bool alike = other->what == row->what && other->graph == row->graph;
        if (alike && (other->status == GV_PERTURBED_CHECKED || (i < index && same_text(other->reason, row->reason))))
            return GV_OK;
    }
    snprintf(reason, sizeof reason, "%s: %s", what_of(row), row->reason ? row->reason : "");
    gv_finding finding = {
        .incomplete = GV_INCOMPLETE_GRAPH, .trace = trace, .graph = row->graph, .launch = row->launch, .affected = 1};
    return gv_findings_add_incomplete(findings, finding, reason) ? GV_OK : out_of_memory(error);
}

gv_status gv_detect_perturbed(const gv_trace *trace, gv_findings *findings, gv_error *error)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < trace->effect_count && !status; i++) {
        const gv_effect *effect = &trace->effects[i];
        bool repeated = effect->kind < GV_EFFECT_PAD_READ || effect->kind > GV_EFFECT_STALE_READ;
        for (size_t k = 0; k < i && !repeated; k++)
            repeated = is_same(effect, &trace->effects[k]);
        if (!repeated)
            status = add_effect(trace, i, findings, error);
    }
    for (size_t i = 0; i < trace->perturbed_count && !status; i++)
        status = add_unchecked(trace, i, findings, error);
    return status;
}
