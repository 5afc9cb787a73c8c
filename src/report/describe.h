// Pieces of JSON that the check report and the tables of `gravel show` share, and the words for enumerated values.
#ifndef GV_REPORT_DESCRIBE_H
#define GV_REPORT_DESCRIBE_H

#include "report/coverage.h"
#include "report/json_writer.h"
#include "report/stack.h"

// {"kind", "file", "line", "function", "module", "address"}, or null when there is none.
void gv_json_place(gv_json *json, const char *key, const gv_place *place);

// {"python": [...], "host": [...]}, innermost frame first, or null.
void gv_json_stack(gv_json *json, const char *key, const gv_trace *trace, uint64_t stack);

// A text that a trace holds without its terminating NUL; empty becomes null.
void gv_json_slice(gv_json *json, const char *key, gv_text text);

// A number for which 0 means "none" and becomes null.
void gv_json_id(gv_json *json, const char *key, uint64_t id);

// [["0x...", "0x..."], ...], half-open.
void gv_json_ranges(gv_json *json, const char *key, const gv_range *ranges, size_t count);

// {"nodes", "exact", "extent", "incomplete", "not_executed", "not_recorded", "nothing"}.
void gv_json_coverage(gv_json *json, const char *key, const size_t nodes[GV_COVERAGE_STATES]);

const char *gv_coverage_state_key(enum gv_coverage_state state); // the key of that state there
const char *gv_graph_origin_name(enum gv_graph_origin origin);
const char *gv_allocation_kind_name(enum gv_allocation_kind kind);
const char *gv_armed_status_name(enum gv_armed_status status);
const char *gv_access_source_name(enum gv_access_source source);
const char *gv_access_precision_name(enum gv_access_precision precision);
const char *gv_note_severity_name(enum gv_note_severity severity);

#endif
