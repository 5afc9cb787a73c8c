#include "report/describe.h"

#include "base/memory.h"

#include <inttypes.h>
#include <string.h>

void gv_json_place(gv_json *json, const char *key, const gv_place *place)
{
    static const char *const kinds[] = {"none", "python", "host", "module"};
    if (place->kind == GV_PLACE_NONE) {
        gv_json_null(json, key);
        return;
    }
    gv_json_open_flat(json, key, '{');
    gv_json_text(json, "kind", kinds[place->kind]);
    gv_json_text(json, "file", place->file);
    if (place->file)
        gv_json_number(json, "line", place->line);
    else
        gv_json_null(json, "line");
    gv_json_text(json, "function", place->function && *place->function ? place->function : NULL);
    if (place->kind != GV_PLACE_PYTHON) {
        gv_json_text(json, "module", place->module);
        gv_json_address(json, "address", place->address);
    }
    gv_json_close(json);
}

void gv_json_stack(gv_json *json, const char *key, const gv_trace *trace, uint64_t id)
{
    if (!id || id >= trace->stack_count) {
        gv_json_null(json, key);
        return;
    }
    const gv_stack *stack = &trace->stacks[id];
    gv_json_open(json, key, '{');
    gv_json_open(json, "python", '[');
    for (size_t i = 0; i < stack->python_count; i++) {
        const gv_python_frame *frame = &stack->python[i];
        gv_json_open_flat(json, NULL, '{');
        gv_json_text(json, "file", frame->file);
        gv_json_number(json, "line", frame->line);
        gv_json_text(json, "function", frame->function);
        gv_json_close(json);
    }
    gv_json_close(json);
    gv_json_open(json, "host", '[');
    for (size_t i = 0; i < stack->host_count; i++) {
        const gv_host_frame *frame = &stack->host[i];
        gv_json_open_flat(json, NULL, '{');
        gv_json_text(json, "module", frame->module < trace->module_count ? trace->modules[frame->module].path : NULL);
        gv_json_address(json, "address", frame->address);
        gv_json_text(json, "function", frame->function);
        gv_json_text(json, "file", frame->file);
        if (frame->file)
            gv_json_number(json, "line", frame->line);
        else
            gv_json_null(json, "line");
        gv_json_close(json);
    }
    gv_json_close(json);
    gv_json_close(json);
}

void gv_json_slice(gv_json *json, const char *key, gv_text text)
{
    char *copy = text.data && text.length ? gv_strndup(text.data, text.length) : NULL;
    json->failed |= text.data && text.length && !copy;
    gv_json_text(json, key, copy);
    gv_free(copy);
}

void gv_json_id(gv_json *json, const char *key, uint64_t id)
{
    if (id)
        gv_json_number(json, key, id);
    else
        gv_json_null(json, key);
}

void gv_json_ranges(gv_json *json, const char *key, const gv_range *ranges, size_t count)
{
    gv_json_open_flat(json, key, '[');
    for (size_t i = 0; i < count; i++) {
        gv_json_open_flat(json, NULL, '[');
        gv_json_address(json, NULL, ranges[i].start);
        gv_json_address(json, NULL, ranges[i].end);
        gv_json_close(json);
    }
    gv_json_close(json);
}

// The words stand at the index of their value; a value of a later version has none.
#define WORD(names, value) ((size_t)(value) < sizeof(names) / sizeof *(names) ? (names)[value] : "unknown")

const char *gv_coverage_state_key(enum gv_coverage_state state)
{
    switch (state) {
    case GV_COVERAGE_NOTHING: return "nothing";
    case GV_COVERAGE_NOT_RECORDED: return "not_recorded";
    case GV_COVERAGE_NOT_EXECUTED: return "not_executed";
    case GV_COVERAGE_EXACT: return "exact";
    case GV_COVERAGE_EXTENT: return "extent";
    case GV_COVERAGE_INCOMPLETE:
    case GV_COVERAGE_STATES: break;
    }
    return "incomplete";
}

void gv_json_coverage(gv_json *json, const char *key, const size_t nodes[GV_COVERAGE_STATES])
{
    static const enum gv_coverage_state order[] = {GV_COVERAGE_EXACT,        GV_COVERAGE_EXTENT,
                                                   GV_COVERAGE_INCOMPLETE,   GV_COVERAGE_NOT_EXECUTED,
                                                   GV_COVERAGE_NOT_RECORDED, GV_COVERAGE_NOTHING};
    gv_json_open_flat(json, key, '{');
    gv_json_number(json, "nodes", gv_coverage_total(nodes));
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        gv_json_number(json, gv_coverage_state_key(order[i]), nodes[order[i]]);
    gv_json_close(json);
}

const char *gv_graph_origin_name(enum gv_graph_origin origin)
{
    static const char *const names[] = {"unknown", "captured", "built", "child", "updated", "body"};
    return WORD(names, origin);
}

const char *gv_allocation_kind_name(enum gv_allocation_kind kind)
{
    static const char *const names[] = {"device", "async", "managed", "pinned", "mapped", "node", "global", "imported"};
    return WORD(names, kind);
}

const char *gv_armed_status_name(enum gv_armed_status status)
{
    static const char *const names[] = {"complete", "refused", "failed"};
    return WORD(names, status);
}

const char *gv_access_source_name(enum gv_access_source source)
{
    static const char *const names[] = {"none",       "sanitizer", "parameters", "soft",
                                        "tensor map", "compared",  "reached",    "changed"};
    return WORD(names, source);
}

const char *gv_access_precision_name(enum gv_access_precision precision)
{
    static const char *const names[] = {"exact", "extent", "incomplete"};
    return WORD(names, precision);
}

const char *gv_note_severity_name(enum gv_note_severity severity)
{
    static const char *const names[] = {"info", "incomplete", "failure"};
    return WORD(names, severity);
}
