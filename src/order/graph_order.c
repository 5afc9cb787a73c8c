// Order within a graph. Nodes are spread over chains; each node has a clock that says how far each chain is complete
// before it, so that "does a come before b" is one look-up and no N x N matrix is needed.
#include "order/graph_order.h"

#include "base/memory.h"
#include "order/clock.h"

#include <string.h>

// An edge as seen from its target.
typedef struct predecessor {
    uint32_t node;
    bool ordinary;
} predecessor;

// Chains and clocks by one kind of edges. A node's clock holds how far the other chains are complete before it; its
// own chain's lane means nothing.
typedef struct relation {
    size_t chain_count;
    uint32_t *chain, *position;
    gv_clock *before;
} relation;

struct gv_graph_order {
    size_t node_count;
    bool programmatic;
    uint32_t *topological, *rank;
    gv_clocks clocks;
    relation relations[2]; // by enum gv_relation; the second is empty when it is the same as the first
};

// What is needed only while the order is built.
typedef struct builder {
    gv_graph_order *order;
    predecessor *predecessors; // of node n: [first[n], first[n + 1])
    size_t *first;
    // Of the relation that is being built:
    relation *relation;
    bool all_edges;
    uint32_t *successors; // how many of its edges leave each node
    gv_clock *complete;   // clock once the node is complete too, made when first needed
    uint32_t *tail;       // last node of each chain
    uint32_t *length;     // nodes on each chain
} builder;

enum edge_kind { EDGE_NOTHING, EDGE_ORDINARY, EDGE_PROGRAMMATIC };

static const gv_clock NOT_MADE = UINT32_MAX;

static enum edge_kind kind_of(const gv_edge *edge)
{
    if (edge->from_port == 2)
        return EDGE_NOTHING;
    return edge->from_port == 0 && edge->type == 0 ? EDGE_ORDINARY : EDGE_PROGRAMMATIC;
}

static gv_status out_of_memory(gv_error *error, size_t nodes)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory for the order of a graph of %zu nodes", nodes);
}

// Fills `predecessors` and `first`.
static gv_status gather_edges(builder *b, const gv_edge *edges, size_t edge_count, gv_error *error)
{
    size_t nodes = b->order->node_count;
    for (size_t i = 0; i < edge_count; i++) {
        if (edges[i].from >= nodes || edges[i].to >= nodes)
            return gv_fail(error, GV_ERR_FORMAT, "edge %zu joins nodes %u and %u of a graph of %zu nodes", i,
                           edges[i].from, edges[i].to, nodes);
        enum edge_kind kind = kind_of(&edges[i]);
        if (kind == EDGE_NOTHING)
            continue;
        b->first[edges[i].to + 1]++;
        b->order->programmatic |= kind == EDGE_PROGRAMMATIC;
    }
    for (size_t n = 0; n < nodes; n++)
        b->first[n + 1] += b->first[n];
    b->predecessors = gv_calloc(b->first[nodes], sizeof *b->predecessors);
    size_t *next = gv_calloc(nodes, sizeof *next);
    if (!b->predecessors || !next) {
        gv_free(next);
        return out_of_memory(error, nodes);
    }
    for (size_t i = 0; i < edge_count; i++) {
        enum edge_kind kind = kind_of(&edges[i]);
        if (kind != EDGE_NOTHING) {
            uint32_t to = edges[i].to;
            b->predecessors[b->first[to] + next[to]++] =
                (predecessor){.node = edges[i].from, .ordinary = kind == EDGE_ORDINARY};
        }
    }
    gv_free(next);
    return GV_OK;
}

// A binary heap of node indices, smallest first.
static void heap_push(uint32_t *heap, size_t *count, uint32_t node)
{
    size_t i = (*count)++;
    for (; i > 0 && heap[(i - 1) / 2] > node; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = node;
}

static uint32_t heap_pop(uint32_t *heap, size_t *count)
{
    uint32_t smallest = heap[0], moved = heap[--*count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < *count; i = child) {
        if (child + 1 < *count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= moved)
            break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
    return smallest;
}

// Kahn's algorithm with the smallest ready node first, so that the same graph always gets the same order.
static gv_status sort_topologically(builder *b, gv_error *error)
{
    gv_graph_order *order = b->order;
    size_t nodes = order->node_count, edges = b->first[nodes], ready = 0, done = 0;
    uint32_t *heap = gv_calloc(nodes, sizeof *heap);
    uint32_t *waiting = gv_calloc(nodes, sizeof *waiting);
    uint32_t *targets = gv_calloc(edges, sizeof *targets);
    size_t *leaving = gv_calloc(nodes + 1, sizeof *leaving);
    gv_status status = GV_OK;
    if (!heap || !waiting || !targets || !leaving) {
        status = out_of_memory(error, nodes);
        goto out;
    }
    for (size_t e = 0; e < edges; e++)
        leaving[b->predecessors[e].node + 1]++;
    for (size_t n = 0; n < nodes; n++)
        leaving[n + 1] += leaving[n];
    for (uint32_t n = 0; n < nodes; n++) {
        waiting[n] = (uint32_t)(b->first[n + 1] - b->first[n]);
        for (size_t e = b->first[n]; e < b->first[n + 1]; e++)
            targets[leaving[b->predecessors[e].node]++] = n;
        if (!waiting[n])
            heap_push(heap, &ready, n);
    }
    // Filling moved each start to its end, which is the start of the next node.
    while (ready) {
        uint32_t n = heap_pop(heap, &ready);
        order->rank[n] = (uint32_t)done;
        order->topological[done++] = n;
        for (size_t e = n ? leaving[n - 1] : 0; e < leaving[n]; e++) {
            if (--waiting[targets[e]] == 0)
                heap_push(heap, &ready, targets[e]);
        }
    }
    if (done < nodes) {
        uint32_t stuck = 0;
        while (!waiting[stuck])
            stuck++;
        status = gv_fail(error, GV_ERR_FORMAT, "the graph's edges form a cycle through or before node %u", stuck);
    }
out:
    gv_free(heap);
    gv_free(waiting);
    gv_free(targets);
    gv_free(leaving);
    return status;
}

// Does the edge count in the relation that is being built?
static bool counts(const builder *b, const predecessor *edge)
{
    return b->all_edges || edge->ordinary;
}

// The clock of everything that is complete once `node` is.
static bool completion(builder *b, uint32_t node, gv_clock *result)
{
    const relation *r = b->relation;
    if (b->complete[node] == NOT_MADE &&
        !gv_clock_raise(&b->order->clocks, r->before[node], r->chain[node], r->position[node] + 1, &b->complete[node]))
        return false;
    *result = b->complete[node];
    return true;
}

// Of the predecessors that end their chains, the one with the fewest successors: the others may yet be continued by a
// node that has no choice. UINT32_MAX when there is none.
static uint32_t tail_predecessor(const builder *b, uint32_t node)
{
    const relation *r = b->relation;
    uint32_t best = UINT32_MAX;
    for (size_t e = b->first[node]; e < b->first[node + 1]; e++) {
        uint32_t from = b->predecessors[e].node;
        if (!counts(b, &b->predecessors[e]) || b->tail[r->chain[from]] != from)
            continue;
        if (best == UINT32_MAX || b->successors[from] < b->successors[best] ||
            (b->successors[from] == b->successors[best] && r->chain[from] < r->chain[best]))
            best = from;
    }
    return best;
}

// A chain that lies wholly before `clock`, so that the node with this clock can continue it; of several, the one
// that was continued last. A side branch that forks and joins again and again stays one chain by this.
static uint32_t chain_behind(const builder *b, gv_clock clock)
{
    const gv_graph_order *order = b->order;
    gv_clock_row row = order->clocks.rows[clock];
    uint32_t best = UINT32_MAX;
    for (uint32_t block = 0; block < row.count; block++) {
        uint32_t index = order->clocks.index[row.first + block];
        if (!index)
            continue;
        for (uint32_t i = 0; i < GV_CLOCK_BLOCK; i++) {
            uint32_t chain = block * GV_CLOCK_BLOCK + i, reached = order->clocks.blocks[index].lanes[i];
            if (!reached || reached < b->length[chain])
                continue;
            if (best == UINT32_MAX || order->rank[b->tail[chain]] > order->rank[b->tail[best]])
                best = chain;
        }
    }
    return best;
}

// The clock of what comes before `node`. `tail`, if any, is the predecessor whose chain it continues: what lies
// before that on its chain is known from the position, so that its clock is shared as it stands.
static bool clock_before(builder *b, uint32_t node, uint32_t tail, gv_clock *clock)
{
    const relation *r = b->relation;
    *clock = tail == UINT32_MAX ? 0 : r->before[tail];
    for (size_t e = b->first[node]; e < b->first[node + 1]; e++) {
        uint32_t from = b->predecessors[e].node;
        gv_clock other;
        if (!counts(b, &b->predecessors[e]) || (tail != UINT32_MAX && r->chain[from] == r->chain[tail]))
            continue;
        if (!completion(b, from, &other) || !gv_clock_join(&b->order->clocks, *clock, other, clock))
            return false;
    }
    return true;
}

// Spreads the nodes over chains, in topological order, and gives each its clock.
static bool build_relation(builder *b, enum gv_relation which)
{
    gv_graph_order *order = b->order;
    relation *r = b->relation = &order->relations[which];
    size_t nodes = order->node_count;
    b->all_edges = which == GV_BY_ALL_EDGES;
    r->chain = gv_calloc(nodes, sizeof *r->chain);
    r->position = gv_calloc(nodes, sizeof *r->position);
    r->before = gv_calloc(nodes, sizeof *r->before);
    if (!r->chain || !r->position || !r->before)
        return false;
    memset(b->successors, 0, nodes * sizeof *b->successors);
    memset(b->length, 0, nodes * sizeof *b->length);
    for (size_t n = 0; n < nodes; n++)
        b->complete[n] = NOT_MADE;
    for (size_t e = 0; e < b->first[nodes]; e++)
        b->successors[b->predecessors[e].node] += counts(b, &b->predecessors[e]);
    for (size_t i = 0; i < nodes; i++) {
        uint32_t node = order->topological[i], tail = tail_predecessor(b, node);
        if (!clock_before(b, node, tail, &r->before[node]))
            return false;
        uint32_t chain = tail == UINT32_MAX ? chain_behind(b, r->before[node]) : r->chain[tail];
        if (chain == UINT32_MAX)
            chain = (uint32_t)r->chain_count++;
        r->chain[node] = chain;
        r->position[node] = b->length[chain]++;
        b->tail[chain] = node;
    }
    return true;
}

static gv_status build(builder *b, const gv_edge *edges, size_t edge_count, gv_error *error)
{
    gv_graph_order *order = b->order;
    gv_status status = gather_edges(b, edges, edge_count, error);
    if (!status)
        status = sort_topologically(b, error);
    if (status)
        return status;
    if (!gv_clocks_init(&order->clocks) || !build_relation(b, GV_BY_ORDINARY_EDGES) ||
        (order->programmatic && !build_relation(b, GV_BY_ALL_EDGES)))
        return out_of_memory(error, order->node_count);
    return GV_OK;
}

gv_status gv_graph_order_build(size_t node_count, const gv_edge *edges, size_t edge_count, gv_graph_order **out,
                               gv_error *error)
{
    *out = NULL;
    if (node_count >= UINT32_MAX)
        return gv_fail(error, GV_ERR_LIMIT, "a graph of %zu nodes is larger than the limit of %u", node_count,
                       UINT32_MAX - 1);
    gv_graph_order *order = gv_calloc(1, sizeof *order);
    if (!order)
        return out_of_memory(error, node_count);
    order->node_count = node_count;
    order->topological = gv_calloc(node_count, sizeof(uint32_t));
    order->rank = gv_calloc(node_count, sizeof(uint32_t));
    builder b = {.order = order,
                 .first = gv_calloc(node_count + 1, sizeof(size_t)),
                 .successors = gv_calloc(node_count, sizeof(uint32_t)),
                 .complete = gv_calloc(node_count, sizeof(gv_clock)),
                 .tail = gv_calloc(node_count, sizeof(uint32_t)),
                 .length = gv_calloc(node_count, sizeof(uint32_t))};
    bool ok = order->topological && order->rank && b.first && b.successors && b.complete && b.tail && b.length;
    gv_status status = ok ? build(&b, edges, edge_count, error) : out_of_memory(error, node_count);
    gv_free(b.predecessors);
    gv_free(b.first);
    gv_free(b.successors);
    gv_free(b.complete);
    gv_free(b.tail);
    gv_free(b.length);
    if (status)
        gv_graph_order_free(order);
    else
        *out = order;
    return status;
}

void gv_graph_order_free(gv_graph_order *order)
{
    if (!order)
        return;
    for (size_t i = 0; i < 2; i++) {
        gv_free(order->relations[i].chain);
        gv_free(order->relations[i].position);
        gv_free(order->relations[i].before);
    }
    gv_free(order->topological);
    gv_free(order->rank);
    gv_clocks_free(&order->clocks);
    gv_free(order);
}

static const relation *relation_of(const gv_graph_order *order, enum gv_relation which)
{
    return &order->relations[order->programmatic ? which : GV_BY_ORDINARY_EDGES];
}

uint32_t gv_graph_order_reach(const gv_graph_order *order, enum gv_relation which, uint32_t node, uint32_t chain)
{
    const relation *r = relation_of(order, which);
    return r->chain[node] == chain ? r->position[node] : gv_clock_get(&order->clocks, r->before[node], chain);
}

// Does `a` come before `b` in the relation?
static bool before(const gv_graph_order *order, enum gv_relation which, uint32_t a, uint32_t b)
{
    const relation *r = relation_of(order, which);
    return gv_graph_order_reach(order, which, b, r->chain[a]) > r->position[a];
}

enum gv_ordering gv_graph_order_before(const gv_graph_order *order, uint32_t a, uint32_t b)
{
    if (before(order, GV_BY_ORDINARY_EDGES, a, b))
        return GV_ORDERED;
    return order->programmatic && before(order, GV_BY_ALL_EDGES, a, b) ? GV_ORDERED_PROGRAMMATIC : GV_UNORDERED;
}

enum gv_ordering gv_graph_order_between(const gv_graph_order *order, uint32_t a, uint32_t b)
{
    enum gv_ordering forwards = gv_graph_order_before(order, a, b);
    if (forwards == GV_ORDERED)
        return forwards;
    enum gv_ordering backwards = gv_graph_order_before(order, b, a);
    return backwards ? backwards : forwards;
}

const uint32_t *gv_graph_order_topological(const gv_graph_order *order)
{
    return order->topological;
}

uint32_t gv_graph_order_rank(const gv_graph_order *order, uint32_t node)
{
    return order->rank[node];
}

size_t gv_graph_order_chain_count(const gv_graph_order *order)
{
    return order->relations[GV_BY_ORDINARY_EDGES].chain_count;
}

uint32_t gv_graph_order_chain(const gv_graph_order *order, uint32_t node)
{
    return order->relations[GV_BY_ORDINARY_EDGES].chain[node];
}

uint32_t gv_graph_order_position(const gv_graph_order *order, uint32_t node)
{
    return order->relations[GV_BY_ORDINARY_EDGES].position[node];
}

uint32_t gv_graph_order_chain_by(const gv_graph_order *order, enum gv_relation which, uint32_t node)
{
    return relation_of(order, which)->chain[node];
}

uint32_t gv_graph_order_position_by(const gv_graph_order *order, enum gv_relation which, uint32_t node)
{
    return relation_of(order, which)->position[node];
}

bool gv_graph_order_has_programmatic(const gv_graph_order *order)
{
    return order->programmatic;
}
