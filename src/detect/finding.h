// Findings: what detectors produce and reports print. docs/findings.md documents ids and the JSON form.
#ifndef GV_DETECT_FINDING_H
#define GV_DETECT_FINDING_H

#include "access/range_set.h"
#include "trace/trace.h"

enum gv_finding_id {
    GV_FINDING_RACE_RAW,   // "race-raw"
    GV_FINDING_RACE_WAR,   // "race-war"
    GV_FINDING_RACE_WAW,   // "race-waw"
    GV_FINDING_INCOMPLETE, // "incomplete"
    // Observed: what was seen to happen, where a race says what may.
    GV_FINDING_PAD_READ,   // "pad-read"
    GV_FINDING_PAD_WRITE,  // "pad-write"
    GV_FINDING_STALE_READ, // "stale-read"
    GV_FINDING_DIFF,       // "diff"
    GV_FINDING_CANARY,     // "canary"
};
const char *gv_finding_id_name(enum gv_finding_id id);

// Is it of the third sort, neither a race nor an incompleteness?
static inline bool gv_finding_is_observed(enum gv_finding_id id)
{
    return id > GV_FINDING_INCOMPLETE;
}

enum gv_confidence { GV_CERTAIN, GV_LIKELY, GV_POSSIBLE };
const char *gv_confidence_name(enum gv_confidence confidence);

// Why a graph or a pair of nodes could not be decided: the properties of an incomplete finding.
enum gv_incomplete_kind {
    GV_INCOMPLETE_NODE,         // accesses of a node could not all be seen; reason says why
    GV_INCOMPLETE_GRAPH,        // the launch was not recorded, or not to its end
    GV_INCOMPLETE_PROGRAMMATIC, // conflicting pairs that only a programmatic edge orders
    GV_INCOMPLETE_TRACE,        // the trace is cut or damaged, or the recorder noted that it missed something
    GV_INCOMPLETE_NOT_EXECUTED, // a body of a conditional node was executed in no recorded launch
    GV_INCOMPLETE_NEVER_ARMED,  // a graph was launched but none of its launches was recorded
    GV_INCOMPLETE_OVERLAP,      // unordered pairs of which at least one is known by an extent only
    GV_INCOMPLETE_NOT_COMPARED, // a launch was to be compared with a serial replay and could not be
};

// Is it about pairs of nodes that are neither races nor none?
static inline bool gv_incomplete_is_about_pairs(enum gv_incomplete_kind kind)
{
    return kind == GV_INCOMPLETE_PROGRAMMATIC || kind == GV_INCOMPLETE_OVERLAP;
}

// How the accesses of a side stand to the node's grid-dependency wait.
enum gv_side_wait {
    GV_SIDE_PLAIN,       // after it, or the node has no need of one
    GV_SIDE_BEFORE_WAIT, // those before the wait alone conflict
    GV_SIDE_NO_WAIT,     // the node stands behind programmatic edges and does not wait
};

// One side of a race.
typedef struct gv_side {
    uint64_t graph;             // snapshot the node lies in: the finding's, or a child graph's; 0 from gv_race_find
    uint32_t node;              // index in that snapshot
    bool writes, reads, atomic; // what it does on the conflicting bytes: plain writes, plain reads, atomic updates
    enum gv_access_precision precision;
    enum gv_side_wait wait;
    uint32_t point; // where it stands in the order of its graph; of no use outside src/detect
} gv_side;

// Two nodes that touch the same bytes without order between them. `first` was made first (node.order, else index), or
// is in front of the other on a path of edges that do not order the two.
typedef struct gv_race_pair {
    gv_side first, second;
    enum gv_finding_id id; // by what the two do: first writes and second reads is RAW, and so on; when several
                           // apply, the one with the most bytes, ties RAW, WAW, WAR
    gv_range_set ranges;   // all conflicting bytes, settled
    uint64_t bytes;        // how many they are
    uint64_t raw_bytes, war_bytes, waw_bytes; // each byte counts under one of them (docs/detectors.md)
} gv_race_pair;

// One thing that an observed finding knows, by a key that keeps its meaning: docs/findings.md lists them.
typedef struct gv_fact {
    const char *key; // static
    uint64_t number;
    char *text; // owned; NULL: it is the number
} gv_fact;

// All pairs that one missing order explains: adding the edge `from` -> `to` would order every one of them.
typedef struct gv_finding {
    enum gv_finding_id id;         // of the leading pair
    enum gv_confidence confidence; // of the leading pair: no other pair of the group has a higher one
    const gv_trace *trace;
    uint64_t graph;  // snapshot id; of a race, the one in which the edge would lie; of an incomplete node, the
                     // one it lies in
    uint64_t launch; // sequence number of the armed launch; 0: none
    // races
    gv_race_pair *pairs; // pairs[0] is the one nearest the missing edge; then by bytes, falling
    size_t pair_count;
    uint32_t edge_from, edge_to; // nodes of `graph`; also the example of undecided pairs
    bool path; // edges lead from edge_from to edge_to all the same, but kernels on the way do not wait in time
    uint64_t allocation; // id of the allocation the leading pair's first range lies in; 0: none known
    // incompletenesses
    enum gv_incomplete_kind incomplete;
    uint64_t node;   // index + 1; 0: the graph as a whole
    size_t affected; // how many nodes, pairs or launches this one stands for; of a race, how many recorded
                     // launches of graphs of this structure showed the leading pair
    size_t alike; // of programmatic, overlap and never-armed ones: further graphs of the same structure with the same
    char *reason; // owned; NULL for races; of an observed finding what there is to add to its facts, or NULL
    // observed findings; `graph` is then the snapshot that `node` lies in, 0: about no graph
    gv_fact *facts; // owned
    size_t fact_count, fact_capacity;
    gv_range_set ranges; // the bytes it is about, settled
    uint64_t bytes;      // how many they are
    bool suppressed;     // matched by a suppression
} gv_finding;

typedef struct gv_findings {
    gv_finding *items;
    size_t count, capacity;
} gv_findings;

void gv_findings_free(gv_findings *findings);

// Appends an empty finding and returns it, or NULL when memory is out.
gv_finding *gv_findings_add(gv_findings *findings);

// Appends an incomplete finding with a copy of `reason`. False, with nothing appended, when memory is out.
bool gv_findings_add_incomplete(gv_findings *findings, gv_finding finding, const char *reason);

// Adds a fact to an observed finding. False when memory is out.
bool gv_finding_add_number(gv_finding *finding, const char *key, uint64_t number);
bool gv_finding_add_text(gv_finding *finding, const char *key, const char *text);

// The fact with this key, or NULL.
const gv_fact *gv_finding_fact(const gv_finding *finding, const char *key);

// Does it say that something is wrong? Not so an incompleteness, and a difference that is not laid to order.
bool gv_finding_counts(const gv_finding *finding);

// Frees what a finding owns.
void gv_finding_clear(gv_finding *finding);

// Those among them that count and are not suppressed: races and observed findings.
size_t gv_findings_races(const gv_findings *findings);

#endif
