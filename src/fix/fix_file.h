// The fix file: which edges to add to which graphs. Written by `gravel fix`, read by `gravel run --fix`; docs/fix.md
// has its schema ("gravel_fix", version 1). Needs the parts base and trace alone.
#ifndef GV_FIX_FIX_FILE_H
#define GV_FIX_FIX_FILE_H

#include "base/error.h"
#include "trace/fingerprint.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What a reader takes: a file that asks for more is refused.
enum {
    GV_FIX_VERSION = 1,
    GV_FIX_MOST_BYTES = 64 << 20,
    GV_FIX_MOST_GRAPHS = 1 << 16,
    GV_FIX_MOST_EDGES = 1 << 20, // of all graphs together
    GV_FIX_PAIRS_LISTED = 100,   // of an edge; the rest is counted
};

// One step down from a graph: into the child graph of a node (body 0) or one of the bodies of a conditional node.
// Nodes are named as gv_fingerprint_numbers does.
typedef struct gv_fix_step {
    uint32_t node, body;
} gv_fix_step;

// A node of some level. `kernel` is its name as the driver gives it; NULL: no kernel, or a name that is not UTF-8.
typedef struct gv_fix_node {
    gv_fix_step *path; // of the ends of an edge always empty: they lie in the edge's level
    size_t depth;
    uint32_t node;
    char *kernel;
} gv_fix_node;

// A conflicting pair that an edge orders, for people: `id` is that of its finding.
typedef struct gv_fix_pair {
    char *id;
    uint64_t bytes;
    gv_fix_node first, second; // paths from the top graph
} gv_fix_pair;

typedef struct gv_fix_edge {
    gv_fix_step *path; // to the level in which it lies; empty: the graph itself
    size_t depth;
    gv_fix_node from, to;
    bool replaces; // a programmatic edge joins the two nodes and is to become an ordinary one: CUDA allows no second
    bool reversed; // it, or a pair it orders, is against the order of making: what is computed may change
    uint64_t added_ns; // on the critical path, when it is the only edge added
    uint64_t pairs;    // how many it orders when it is the only edge added
    gv_fix_pair *orders;
    size_t order_count; // at most GV_FIX_PAIRS_LISTED
    char *reading;      // what a person would write instead
} gv_fix_edge;

// How long a graph takes at least: the longest chain of nodes by their measured times, in nanoseconds, or in nodes.
typedef struct gv_fix_cost {
    uint64_t before, after; // without and with the added edges
    uint64_t side_streams;  // each side stream runs for itself
    uint64_t serial;        // all nodes one after the other
    uint64_t timed, nodes;  // nodes with a measured time, and all that run; timed 0: the four count nodes
} gv_fix_cost;

typedef struct gv_fix_graph {
    gv_fingerprints prints; // of the graph as it was recorded, without the added edges
    char *name;             // "" when it has none
    uint64_t nodes;         // of the top level
    bool complete;          // all accesses of the graph were seen; else the fix covers what was seen
    gv_fix_cost cost;
    gv_fix_edge *edges;
    size_t edge_count;
} gv_fix_graph;

typedef struct gv_fix_file {
    char *made_by; // version of gravel
    gv_fix_graph *graphs;
    size_t graph_count;
} gv_fix_file;

// Frees all that `file` owns and empties it.
void gv_fix_file_free(gv_fix_file *file);

// Writes it; an older file of that name is replaced as a whole or not at all.
gv_status gv_fix_file_write(const gv_fix_file *file, const char *path, gv_error *error);

// Reads one. Everything is checked: kinds and limits of all values, no key twice, no unknown key (it could ask for
// something this gravel would leave out in silence), ends below the node count of the top level, no edge twice or from
// a node to itself, no graph twice. A file of another version is refused with GV_ERR_VERSION, anything else wrong with
// GV_ERR_FORMAT or GV_ERR_LIMIT and the place. *file is empty after a failure.
gv_status gv_fix_file_read(const char *path, gv_fix_file *file, gv_error *error);

// The same from memory; `name` stands for the path in messages.
gv_status gv_fix_file_parse(const char *text, size_t length, const char *name, gv_fix_file *file, gv_error *error);

#endif
