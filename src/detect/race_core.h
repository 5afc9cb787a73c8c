// What the files of the race detector share. The sweep (race_sweep.c) walks all ranges of all nodes in address order
// and knows at each byte who accesses it; the pair table (race_pairs.c) decides once for each distinct set of
// accesses which of them race; the grouping (race_group.c) gathers the pairs that one missing order explains.
#ifndef GV_DETECT_RACE_CORE_H
#define GV_DETECT_RACE_CORE_H

#include "detect/detect.h"
#include "detect/flatten.h"
#include "order/graph_order.h"

#include <stdbool.h>

// How many undecided pairs of a kind are told apart.
enum { GV_RACE_UNDECIDED_LIMIT = 1 << 14 };

// How a node accesses a byte; a set of these is a mask. The first four happened; of a change it is not known whether it
// was a plain write or an atomic one. A tight extent is a tensor the node
// was given a tensor map of; a loose one is an allocation that its parameters lead into, of which it may touch any part
// or none (docs/opaque-nodes.md).
enum {
    GV_RACE_READ = 1,
    GV_RACE_WRITE = 2,
    GV_RACE_ATOMIC = 4,
    GV_RACE_TIGHT_READ = 8,
    GV_RACE_TIGHT_WRITE = 16,
    GV_RACE_LOOSE_READ = 32,
    GV_RACE_LOOSE_WRITE = 64,
    GV_RACE_CHANGE = 128,

    GV_RACE_HAPPENED = GV_RACE_READ | GV_RACE_WRITE | GV_RACE_ATOMIC | GV_RACE_CHANGE,
    GV_RACE_ANY_READ = GV_RACE_READ | GV_RACE_TIGHT_READ | GV_RACE_LOOSE_READ,
    GV_RACE_ANY_WRITE = GV_RACE_WRITE | GV_RACE_CHANGE | GV_RACE_TIGHT_WRITE | GV_RACE_LOOSE_WRITE
};

// Most racing pairs of one graph that are kept; a graph with more is broken in some other way than by a forgotten
// edge, and its report would not be read.
enum { GV_RACE_PAIR_LIMIT = 1 << 20 };

// The ranges a node accesses in one way at one point of the order, ascending: encoded as in a trace, or as an array
// when `ranges` is set. A point has at most one stream of each kind.
typedef struct gv_race_stream {
    uint32_t point;
    uint8_t kind;
    gv_bytes encoded;
    const gv_range *ranges;
    size_t count;
} gv_race_stream;

// One graph under the detector.
typedef struct gv_race_subject {
    const gv_graph_order *order;
    size_t node_count;
    const gv_grid_dependency *dependencies;    // NULL: nothing was observed
    const uint64_t *made;                      // NULL: by index
    const enum gv_access_precision *precision; // NULL: all exact
} gv_race_subject;

typedef struct gv_race_pair_list {
    gv_race_pair *items;
    size_t count, capacity;
    bool limited; // there were more than GV_RACE_PAIR_LIMIT
} gv_race_pair_list;

void gv_race_pair_list_free(gv_race_pair_list *pairs);

// ---- race_pairs.c -----------------------------------------------------------------------------------------------

typedef struct gv_race_table gv_race_table;

// A point at which the bytes at hand are accessed.
typedef struct gv_race_access {
    uint32_t point;
    uint8_t mask;
} gv_race_access;

// 128 random bits that stand for a set of accesses, as the XOR of those of its members. Two different sets with the
// same bits would be taken for one; with ten million sets in a trace the odds of that are below 10^-24.
typedef struct gv_race_signature {
    uint64_t low, high;
} gv_race_signature;

gv_status gv_race_table_create(const gv_race_subject *subject, gv_race_table **table, gv_error *error);
void gv_race_table_free(gv_race_table *table);

// Says that exactly `accesses` happen on the bytes [start, end). Segments come in ascending order.
gv_status gv_race_table_segment(gv_race_table *table, gv_race_signature signature, const gv_race_access *accesses,
                                size_t count, uint64_t start, uint64_t end, gv_error *error);

// The pairs, by the order in which their nodes were made, each with its bytes. Ends the use of the table but for
// freeing it.
gv_status gv_race_table_finish(gv_race_table *table, gv_race_pair_list *pairs, gv_race_undecided *undecided,
                               gv_error *error);

// ---- race_sweep.c -----------------------------------------------------------------------------------------------

// Finds the racing pairs of one graph. Time grows with the ranges; memory does not.
gv_status gv_race_sweep(const gv_race_subject *subject, const gv_race_stream *streams, size_t stream_count,
                        gv_race_pair_list *pairs, gv_race_undecided *undecided, gv_error *error);

// ---- race_bodies.c ----------------------------------------------------------------------------------------------

// A launch as it is searched: the graph itself, or, where bodies of conditional nodes ran, every execution of them.
typedef struct gv_race_unrolled {
    const gv_flat_graph *flat; // the graph's layout, or `own`
    gv_race_subject subject;   // precision is left to the caller
    gv_flat_graph own;
    gv_graph_order *order;
    const gv_graph_order *graph_order; // the graph's own
    uint32_t *folded; // for each node of `own` the node of the graph's layout; NULL: nothing is unrolled
    uint64_t *made;
    gv_grid_dependency *dependencies;
} gv_race_unrolled;

// `graph` is the layout of the launched graph and `subject` its order, both of which must stay. On failure there is
// nothing to free; any failure but GV_ERR_MEMORY means that the launch cannot be laid out.
gv_status gv_race_unroll(const gv_trace *trace, const gv_armed *armed, const gv_flat_graph *graph,
                         const gv_race_subject *subject, gv_race_unrolled *unrolled, gv_error *error);
void gv_race_unrolled_free(gv_race_unrolled *unrolled);

// Turns the nodes of what was found into those of the graph's layout, each pair of them once.
gv_status gv_race_fold(const gv_race_unrolled *unrolled, gv_race_pair_list *pairs, gv_race_undecided *undecided,
                       gv_error *error);

// ---- race_group.c -----------------------------------------------------------------------------------------------

// Distributes the pairs over groups; takes over their range sets and leaves `pairs` empty. Each group's first pair is
// the one nearest its edge among those of the highest confidence. Groups come by bytes, falling.
gv_status gv_race_group_pairs(const gv_race_subject *subject, gv_race_pair_list *pairs, gv_race_group **groups,
                              size_t *group_count, gv_error *error);

// Confidence of a pair by the precision of its sides.
enum gv_confidence gv_race_confidence(const gv_race_pair *pair);

#endif
