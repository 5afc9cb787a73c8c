// Findings of launches that were repeated with other padding or poisoned memory, and of probes: the recorder has seen
// what happened, and this says where and how often.
#include "base/memory.h"
#include "detect/detect.h"

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
