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

struct gv_graph_order {
    size_t node_count, chain_count;
    uint32_t *topological, *rank;
    uint32_t *chain, *position; // of each node
    gv_clocks clocks;
    gv_clock *before;       // of each node, by ordinary edges; its own chain's lane means nothing
    gv_clock *before_loose; // with programmatic edges too; the same array when there are none
};

// What is needed only while the order is built.
typedef struct builder {
    gv_graph_order *order;
    predecessor *predecessors; // of node n: [first[n], first[n + 1])
    size_t *first;
    uint32_t *successors; // how many ordinary edges leave each node
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

// Fills `predecessors` and `first`; counts successors.
static gv_status gather_edges(builder *b, const gv_edge *edges, size_t edge_count, bool *programmatic, gv_error *error)
{
    size_t nodes = b->order->node_count;
    *programmatic = false;
    for (size_t i = 0; i < edge_count; i++) {
        if (edges[i].from >= nodes || edges[i].to >= nodes)
            return gv_fail(error, GV_ERR_FORMAT, "edge %zu joins nodes %u and %u of a graph of %zu nodes", i,
                           edges[i].from, edges[i].to, nodes);
        enum edge_kind kind = kind_of(&edges[i]);
        if (kind == EDGE_NOTHING)
            continue;
        b->first[edges[i].to + 1]++;
        if (kind == EDGE_ORDINARY)
            b->successors[edges[i].from]++;
        else
            *programmatic = true;
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

// The clock of everything that is complete once `node` is.
static bool completion(builder *b, uint32_t node, gv_clock *result)
{
    gv_graph_order *order = b->order;
    if (b->complete[node] == NOT_MADE && !gv_clock_raise(&order->clocks, order->before[node], order->chain[node],
                                                         order->position[node] + 1, &b->complete[node]))
        return false;
    *result = b->complete[node];
    return true;
}

// Of the ordinary predecessors that end their chains, the one with the fewest successors: the others may yet be
// continued by a node that has no choice. UINT32_MAX when there is none.
static uint32_t tail_predecessor(const builder *b, uint32_t node)
{
    uint32_t best = UINT32_MAX;
    for (size_t e = b->first[node]; e < b->first[node + 1]; e++) {
        uint32_t from = b->predecessors[e].node;
        if (!b->predecessors[e].ordinary || b->tail[b->order->chain[from]] != from)
            continue;
        if (best == UINT32_MAX || b->successors[from] < b->successors[best] ||
            (b->successors[from] == b->successors[best] && b->order->chain[from] < b->order->chain[best]))
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

// Chains and clocks by ordinary edges, in topological order.
static bool spread_over_chains(builder *b)
{
    gv_graph_order *order = b->order;
    for (size_t r = 0; r < order->node_count; r++) {
        uint32_t node = order->topological[r];
        uint32_t tail = tail_predecessor(b, node);
        gv_clock clock = tail == UINT32_MAX ? 0 : order->before[tail];
        for (size_t e = b->first[node]; e < b->first[node + 1]; e++) {
            uint32_t from = b->predecessors[e].node;
            gv_clock other;
            if (!b->predecessors[e].ordinary || from == tail)
                continue;
            // What lies before the tail on its own chain is known from the position; no clock is needed for it.
            if (tail != UINT32_MAX && order->chain[from] == order->chain[tail])
                continue;
            if (!completion(b, from, &other) || !gv_clock_join(&order->clocks, clock, other, &clock))
                return false;
        }
        uint32_t chain = tail == UINT32_MAX ? chain_behind(b, clock) : order->chain[tail];
        if (chain == UINT32_MAX)
            chain = (uint32_t)order->chain_count++;
        order->before[node] = clock;
        order->chain[node] = chain;
        order->position[node] = b->length[chain]++;
        b->tail[chain] = node;
    }
    return true;
}

// The second relation, over the same chains.
static bool count_programmatic(builder *b)
{
    gv_graph_order *order = b->order;
    for (size_t n = 0; n < order->node_count; n++)
        b->complete[n] = NOT_MADE;
    for (size_t r = 0; r < order->node_count; r++) {
        uint32_t node = order->topological[r];
        // It contains the first relation; starting from that one shares its clock wherever nothing is added.
        gv_clock clock = order->before[node];
        for (size_t e = b->first[node]; e < b->first[node + 1]; e++) {
            uint32_t from = b->predecessors[e].node;
            gv_clock other = order->before_loose[from];
            if (order->chain[from] != order->chain[node]) {
                if (b->complete[from] == NOT_MADE && !gv_clock_raise(&order->clocks, other, order->chain[from],
                                                                     order->position[from] + 1, &b->complete[from]))
                    return false;
                other = b->complete[from];
            }
            if (!gv_clock_join(&order->clocks, clock, other, &clock))
                return false;
        }
        order->before_loose[node] = clock;
    }
    return true;
}

static gv_status build(builder *b, const gv_edge *edges, size_t edge_count, gv_error *error)
{
    gv_graph_order *order = b->order;
    size_t nodes = order->node_count;
    bool programmatic;
    gv_status status = gather_edges(b, edges, edge_count, &programmatic, error);
    if (!status)
        status = sort_topologically(b, error);
    if (status)
        return status;
    for (size_t n = 0; n < nodes; n++)
        b->complete[n] = NOT_MADE;
    if (!gv_clocks_init(&order->clocks) || !spread_over_chains(b))
        return out_of_memory(error, nodes);
    order->before_loose = order->before;
    if (!programmatic)
        return GV_OK;
    order->before_loose = gv_calloc(nodes, sizeof *order->before_loose);
    return order->before_loose && count_programmatic(b) ? GV_OK : out_of_memory(error, nodes);
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
    order->chain = gv_calloc(node_count, sizeof(uint32_t));
    order->position = gv_calloc(node_count, sizeof(uint32_t));
    order->before = gv_calloc(node_count, sizeof *order->before);
    builder b = {.order = order,
                 .first = gv_calloc(node_count + 1, sizeof(size_t)),
                 .successors = gv_calloc(node_count, sizeof(uint32_t)),
                 .complete = gv_calloc(node_count, sizeof(gv_clock)),
                 .tail = gv_calloc(node_count, sizeof(uint32_t)),
                 .length = gv_calloc(node_count, sizeof(uint32_t))};
    bool ok = order->topological && order->rank && order->chain && order->position && order->before && b.first &&
              b.successors && b.complete && b.tail && b.length;
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
    if (order->before_loose != order->before)
        gv_free(order->before_loose);
    gv_free(order->before);
    gv_free(order->topological);
    gv_free(order->rank);
    gv_free(order->chain);
    gv_free(order->position);
    gv_clocks_free(&order->clocks);
    gv_free(order);
}

uint32_t gv_graph_order_reach(const gv_graph_order *order, uint32_t node, uint32_t chain)
{
    return order->chain[node] == chain ? order->position[node]
                                       : gv_clock_get(&order->clocks, order->before[node], chain);
}

uint32_t gv_graph_order_reach_programmatic(const gv_graph_order *order, uint32_t node, uint32_t chain)
{
    return order->chain[node] == chain ? order->position[node]
                                       : gv_clock_get(&order->clocks, order->before_loose[node], chain);
}

bool gv_graph_order_has_programmatic(const gv_graph_order *order)
{
    return order->before_loose != order->before;
}

enum gv_ordering gv_graph_order_before(const gv_graph_order *order, uint32_t a, uint32_t b)
{
    uint32_t chain = order->chain[a], position = order->position[a];
    if (gv_graph_order_reach(order, b, chain) > position)
        return GV_ORDERED;
    if (gv_graph_order_reach_programmatic(order, b, chain) > position)
        return GV_ORDERED_PROGRAMMATIC;
    return GV_UNORDERED;
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
    return order->chain_count;
}

uint32_t gv_graph_order_chain(const gv_graph_order *order, uint32_t node)
{
    return order->chain[node];
}

uint32_t gv_graph_order_position(const gv_graph_order *order, uint32_t node)
{
    return order->position[node];
}
