// The sentences of `gravel fix`, as messages.h has those of `gravel check`.
#ifndef GV_REPORT_MESSAGES_FIX_H
#define GV_REPORT_MESSAGES_FIX_H

#include "report/fix_text.h"
#include "report/format.h"

// "fix of graph #1 and 3 alike: 1 edge orders all 70 pairs of nodes that conflict."
void gv_message_fix_title(gv_string *out, const gv_fix_group *group, bool name_process);
// The other graphs that take the same edges; adds nothing when there are none.
void gv_message_fix_members(gv_string *out, const gv_fix_group *group, bool name_process);
// Is it the fewest, and what the fix does not cover.
void gv_message_fix_proof(gv_string *out, const gv_fix_group *group);
void gv_message_fix_coverage(gv_string *out, const gv_fix_group *group);

// ---- An edge ----
void gv_message_fix_edge(gv_string *out, const gv_fix_group *group, const gv_fix_planned *edge);
// "#4 gather, launched at model.py:31 in side"
void gv_message_fix_end(gv_string *out, const gv_fix_group *group, const gv_fix_planned *edge, uint32_t node);
void gv_message_fix_pair(gv_string *out, const gv_fix_group *group, const gv_fix_planned *edge, size_t conflict);
// What a person would write: the wait; and what there is to change instead, adding nothing when the wait is the cure.
void gv_message_fix_wait(gv_string *out, const gv_fix_group *group, const gv_fix_planned *edge);
void gv_message_fix_instead(gv_string *out, const gv_fix_group *group, const gv_fix_planned *edge);
// Loud words for an edge that orders a pair against the program; adds nothing for others.
void gv_message_fix_reversed(gv_string *out, const gv_fix_group *group, const gv_fix_planned *edge);
void gv_message_fix_edge_properties(gv_string *out, const gv_fix_group *group, const gv_fix_planned *edge);

// ---- Costs ----
void gv_message_fix_cost(gv_string *out, const gv_fix_cost *cost);
void gv_message_fix_side_streams(gv_string *out, const gv_fix_cost *cost);
void gv_message_fix_serial(gv_string *out, const gv_fix_cost *cost);
void gv_message_fix_times(gv_string *out, const gv_fix_cost *cost, bool alone);
void gv_message_fix_properties(gv_string *out, const gv_fix_group *group);

// The last lines.
void gv_message_fix_summary(gv_string *out, const gv_fix_plan *plan, const gv_fix_outcome *outcome);

#endif
