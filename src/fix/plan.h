// From the findings of traces to the edges to add: which graphs take the same edges, which pairs they order, what that
// costs, and whether the races are gone with them.
#ifndef GV_FIX_PLAN_H
#define GV_FIX_PLAN_H

#include "detect/finding.h"
#include "fix/fix_file.h"
#include "fix/solve.h"
#include "trace/trace.h"

// A pair of nodes that is to be ordered.
typedef struct gv_fix_conflict {
    const gv_finding *finding;
    const gv_race_pair *pair;
    bool reversed; // can only be ordered against the order in which the program made its nodes
} gv_fix_conflict;

// Why the pairs of an edge conflict, as far as a trace tells. It decides what a person would change.
enum gv_fix_cause {
    GV_FIX_CAUSE_DATA,   // the second needs what the first writes
    GV_FIX_CAUSE_UPDATE, // the second updates in place what the first uses
    GV_FIX_CAUSE_REUSE,  // memory was given out again while the first still used it
    GV_FIX_CAUSE_SHARED, // both use the same memory, and neither needs what the other writes there
};

// An edge, in the graphs of the group's first member.
typedef struct gv_fix_planned {
    uint64_t graph;    // snapshot in which it lies: the member's graph, a child graph or a body
    uint32_t from, to; // indices there
    bool replaces;
    bool reversed;  // it, or a pair that it orders, is against the order of making
    uint64_t after; // critical path with this edge alone
    enum gv_fix_cause cause;
    size_t lead;       // of its conflicts the one to show: an index of the group's
    size_t *conflicts; // those that it orders alone, or that are not ordered without it
    size_t conflict_count;
} gv_fix_planned;

// A graph of a trace: not a child graph or body.
typedef struct gv_fix_member {
    gv_trace *trace;
    uint64_t graph;
    gv_fingerprints prints;
} gv_fix_member;

// Graphs that differ in shapes alone get the same edges: what races in one of them may race in the others.
typedef struct gv_fix_group {
    gv_fix_member *members; // the first has a finding
    size_t member_count, member_capacity;
    gv_fix_conflict *conflicts;
    size_t conflict_count, conflict_capacity;
    gv_fix_planned *edges;
    size_t edge_count, at_least; // no fix has fewer edges than at_least
    gv_fix_cost cost;            // of the first member
    bool alone;                  // the times are of runs that nothing recorded
    bool complete;               // nothing of the members' graphs went unseen
    char *refusal;               // why there is no fix; NULL
} gv_fix_group;

typedef struct gv_fix_plan {
    gv_fix_group *groups;
    size_t group_count, group_capacity;
    size_t conflict_count; // of all groups
} gv_fix_plan;

// Plans the edges for all races of `findings` that are not suppressed. The traces and findings must outlive the plan.
// `budget` as for gv_fix_solve. Fails when memory is out; what cannot be ordered is a refusal of its group. Free with
// gv_fix_plan_free.
gv_status gv_fix_plan_make(gv_trace *const *traces, size_t trace_count, const gv_findings *findings, uint64_t budget,
                           gv_fix_plan *plan, gv_error *error);
void gv_fix_plan_free(gv_fix_plan *plan);

// Fills cause and lead of an edge whose conflicts are known.
void gv_fix_find_cause(const gv_fix_group *group, gv_fix_planned *edge);

// Does a library that keeps a pool of its own, as PyTorch's caching allocator does, hold this allocation?
bool gv_fix_is_pooled(const gv_trace *trace, uint64_t allocation);

// The edges as a file, without `reading`. Groups with a refusal are left out. Free with gv_fix_file_free.
gv_status gv_fix_plan_file(const gv_fix_plan *plan, gv_fix_file *file, gv_error *error);

// ---- Applying it to traces in memory ----

typedef struct gv_fix_trial gv_fix_trial;

// Adds the edges of the plan to its graphs, so that gv_detect says what is left. `skip` is left out: the number of an
// edge of all groups together, or SIZE_MAX. Free with gv_fix_undo, which takes the edges away again.
gv_status gv_fix_apply(const gv_fix_plan *plan, size_t skip, gv_fix_trial **applied, gv_error *error);
void gv_fix_undo(gv_fix_trial *applied);

#endif
