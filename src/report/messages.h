// Every sentence of the reports, in one place, so that they can be read and corrected together. Each function adds
// its text to a string; text.c decides where it stands. Text from the trace is made safe for a terminal here.
#ifndef GV_REPORT_MESSAGES_H
#define GV_REPORT_MESSAGES_H

#include "report/coverage.h"
#include "report/format.h"
#include "report/overview.h"
#include "report/stack.h"

// Widest kernel name in a sentence.
enum { GV_MESSAGE_NAME_WIDTH = 64 };

// ---- About a trace ----
// "t.gravel: python serve.py (process 812, driver cuda 580.159.04, accesses seen by sanitizer 13.0.85)"
void gv_message_trace(gv_string *out, const gv_trace *trace);
void gv_message_note(gv_string *out, const gv_trace *trace, const gv_note *note);

// ---- A race ----
void gv_message_race_title(gv_string *out, const gv_finding *finding, bool name_process);
// "#4 reads", "#7 reads and writes", "#4 updates": the label of a side's row; the second is what stands in that row.
void gv_message_side_label(gv_string *out, const gv_side *side);
void gv_message_side(gv_string *out, const gv_finding *finding, const gv_side *side);
void gv_message_bytes(gv_string *out, const gv_race_pair *pair, size_t shown_ranges);
void gv_message_memory(gv_string *out, const gv_finding *finding);
void gv_message_order(gv_string *out, const gv_finding *finding);
// How to add the order in a program that captures streams; adds nothing when the streams are not known.
void gv_message_order_on_streams(gv_string *out, const gv_finding *finding);
void gv_message_confidence(gv_string *out, const gv_finding *finding);
void gv_message_more_pairs(gv_string *out, const gv_finding *finding);
// One line for a pair in a list of pairs.
void gv_message_pair(gv_string *out, const gv_finding *finding, const gv_race_pair *pair);
void gv_message_race_properties(gv_string *out, const gv_finding *finding);

// ---- An observed finding (messages_observed.c) ----
void gv_message_observed_title(gv_string *out, const gv_finding *finding, bool name_process);
// What it is about, in the order in which it is printed: *label is set for each row. Adds nothing behind the last one.
void gv_message_observed_row(gv_string *out, const gv_finding *finding, size_t row, const char **label);
void gv_message_observed_properties(gv_string *out, const gv_finding *finding);
void gv_message_ranges(gv_string *out, const gv_range_set *ranges, uint64_t bytes, size_t shown_ranges);

// ---- An incompleteness ----
void gv_message_incomplete_title(gv_string *out, const gv_incomplete_group *group, bool name_process);
// Which nodes: by name, at most `shown` names and numbers of each.
void gv_message_incomplete_nodes(gv_string *out, const gv_incomplete_group *group, const gv_findings *findings,
                                 const gv_overview *overview, size_t shown);
// The graph, or "#1, #3, #5 and 47 more (--verbose lists all), all captured at decode.py:33 in capture".
void gv_message_incomplete_graphs(gv_string *out, const gv_incomplete_group *group, const gv_findings *findings,
                                  const gv_overview *overview);
// What the reader can do about it; adds nothing when there is nothing to advise.
void gv_message_incomplete_remedy(gv_string *out, const gv_incomplete_group *group);
void gv_message_incomplete_properties(gv_string *out, const gv_incomplete_group *group);
const char *gv_incomplete_kind_name(enum gv_incomplete_kind kind);

// What was tried beside recording accesses: "20 launches compared with serial replays, 0 differ; ...". Empty when
// nothing was.
void gv_message_tried(gv_string *out, const gv_tried *tried);

// ---- Graphs, stacks, the end ----
// "#1 "decode", 60 nodes, captured at decode.py:33 in capture"
void gv_message_graph(gv_string *out, const gv_trace *trace, uint64_t graph);
void gv_message_python_frame(gv_string *out, const gv_python_frame *frame);
void gv_message_host_frame(gv_string *out, const gv_trace *trace, const gv_host_frame *frame);
// "225 nodes: 190 exact, 35 extent, 0 incomplete", and how many are in other states where some are.
void gv_message_coverage(gv_string *out, const size_t nodes[GV_COVERAGE_STATES]);
const char *gv_coverage_state_name(enum gv_coverage_state state);
// Why nodes are in a state when the trace gives no reason; NULL for states that need none.
const char *gv_message_coverage_reason(enum gv_coverage_state state);
void gv_message_summary(gv_string *out, const gv_overview *overview);

#endif
