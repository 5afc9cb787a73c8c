// What a graph is recognised by across restarts, ranks and machines: its nodes in the order of their making, and its
// edges. No address, handle, id or time goes into it. Computed from a trace, and inside the recorder from the
// program's graph; docs/fix.md describes the bytes.
#ifndef GV_TRACE_FINGERPRINT_H
#define GV_TRACE_FINGERPRINT_H

#include "base/error.h"
#include "trace/record.h"

#include <stdbool.h>

// 128 bits of XXH3. Of a million different graphs the odds that any two share one are below 10^-26; nobody has a reason
// to construct two that do, since a fix only adds order.
typedef struct gv_fingerprint {
    uint8_t bytes[16];
} gv_fingerprint;

enum { GV_FINGERPRINT_TEXT = 33 }; // 32 hexadecimal digits and the NUL

// Two levels: `exact` has the shapes of the nodes (grid, block, shared bytes, extents of copies), `without_shapes` has
// kinds, kernel names and edges alone, as another batch bucket or another rank shares them.
typedef struct gv_fingerprints {
    gv_fingerprint exact, without_shapes;
} gv_fingerprints;

// A graph as plain arrays. `shape` and `detail` are laid out as in a node record (docs/trace-format.md); what of them
// is an address, a handle or an id is left out here, so that no caller can forget to.
typedef struct gv_print_node {
    uint64_t kind;      // as CUgraphNodeType
    uint64_t order;     // place in the order of making, from 1; 0: not known
    const char *kernel; // the name as the driver gives it; NULL: no kernel, or not known
    gv_numbers shape, detail;
    const struct gv_print_graph *inner; // the child graph, or the bodies of a conditional node
    size_t inner_count;
} gv_print_node;

typedef struct gv_print_graph {
    const gv_print_node *nodes;
    size_t node_count;
    const uint64_t *edges; // quadruples as in the edges record: from, to, from port, type
    size_t edge_count;
} gv_print_graph;

// Computes both levels. GV_ERR_FORMAT on an edge to a node that is not there, GV_ERR_LIMIT when graphs nest deeper than
// GV_FINGERPRINT_DEPTH, GV_ERR_MEMORY.
enum { GV_FINGERPRINT_DEPTH = 32 };
gv_status gv_fingerprint_graph(const gv_print_graph *graph, gv_fingerprints *prints, gv_error *error);

// The number by which a fix names each node of one level: its place, from 0, in the order of making; where the order of
// one node is not known, or two have the same, the index. `numbers` has room for node_count elements, by index. False
// when memory is out.
bool gv_fingerprint_numbers(const gv_print_graph *graph, uint32_t *numbers);

bool gv_fingerprint_equal(const gv_fingerprint *a, const gv_fingerprint *b);
void gv_fingerprint_text(const gv_fingerprint *print, char text[GV_FINGERPRINT_TEXT]);

// False unless `text` is exactly 32 lower-case hexadecimal digits.
bool gv_fingerprint_parse(const char *text, gv_fingerprint *print);

#endif
