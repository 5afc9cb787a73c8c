// Order within a graph. Points are spread over chains; each point has a clock that says how far each chain is complete
// before it, so that "does a come before b" is one look-up and no N x N matrix is needed.
#include "order/graph_order.h"

#include "base/memory.h"
#include "order/clock.h"
#include "order/graph_points.h"

#include <string.h>

// An edge as seen from its target.
typedef struct predecessor {
    uint32_t point;
    bool known;
} predecessor;

// Chains and clocks in one relation. A point's clock holds how far the other chains are complete before it; its own
// chain's lane means nothing.
typedef struct relation {
    size_t chain_count;
    uint32_t *chain, *position;
    gv_clock *before;
} relation;

struct gv_graph_order {
    gv_graph_points points; // without its edges
    uint32_t *topological, *rank;
    gv_clocks clocks;
    relation relations[2]; // by enum gv_relation; the second is empty when it is the same as the first
};

// What is needed only while the order is built.
typedef struct builder {
    gv_graph_order *order;
    predecessor *predecessors; // of point n: [first[n], first[n + 1])
    size_t *first;
    // Of the relation that is being built:
    relation *relation;
    bool assuming;
    uint32_t *successors; // how many of its edges leave each point
    gv_clock *complete;   // clock once the point is complete too, made when first needed
    uint32_t *tail;       // last point of each chain
    uint32_t *length;     // points on each chain
} builder;

static const gv_clock NOT_MADE = UINT32_MAX;

static gv_status out_of_memory(gv_error *error, size_t nodes)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory for the order of a graph of %zu nodes", nodes);
}

// Fills `predecessors` and `first`.
static gv_status gather_edges(builder *b, gv_error *error)
{
    const gv_graph_points *points = &b->order->points;
    for (size_t i = 0; i < points->edge_count; i++)
        b->first[points->edges[i].to + 1]++;
    for (size_t n = 0; n < points->count; n++)
        b->first[n + 1] += b->first[n];
    b->predecessors = gv_calloc(points->edge_count, sizeof *b->predecessors);
    size_t *next = gv_calloc(points->count, sizeof *next);
    if (!b->predecessors || !next) {
        gv_free(next);
        return out_of_memory(error, points->node_count);
    }
    for (size_t i = 0; i < points->edge_count; i++) {
        const gv_point_edge *edge = &points->edges[i];
        b->predecessors[b->first[edge->to] + next[edge->to]++] =
            (predecessor){.point = edge->from, .known = edge->known};
    }
    gv_free(next);
    return GV_OK;
}

// A binary heap, smallest first. A point's key puts the points of a node side by side.
static void heap_push(uint64_t *heap, size_t *count, uint64_t key)
{
    size_t i = (*count)++;
    for (; i > 0 && heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = key;
}

static uint64_t heap_pop(uint64_t *heap, size_t *count)
{
    uint64_t smallest = heap[0], moved = heap[--*count];
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

static uint64_t key_of(const gv_graph_points *points, uint32_t point)
{
    return (uint64_t)points->node[point] * GV_POINT_STAGES + points->stage[point];
}

static uint32_t point_of(const gv_graph_points *points, uint64_t key)
{
    return gv_graph_points_at(points, (uint32_t)(key / GV_POINT_STAGES), (enum gv_point_stage)(key % GV_POINT_STAGES));
}

// Kahn's algorithm with the smallest ready node first, so that the same graph always gets the same order.
static gv_status sort_topologically(builder *b, gv_error *error)
{
    gv_graph_order *order = b->order;
    const gv_graph_points *points = &order->points;
    size_t count = points->count, edges = b->first[count], ready = 0, done = 0;
    uint64_t *heap = gv_calloc(count, sizeof *heap);
    uint32_t *waiting = gv_calloc(count, sizeof *waiting);
    uint32_t *targets = gv_calloc(edges, sizeof *targets);
    size_t *leaving = gv_calloc(count + 1, sizeof *leaving);
    gv_status status = GV_OK;
    if (!heap || !waiting || !targets || !leaving) {
        status = out_of_memory(error, points->node_count);
        goto out;
    }
    for (size_t e = 0; e < edges; e++)
        leaving[b->predecessors[e].point + 1]++;
    for (size_t n = 0; n < count; n++)
        leaving[n + 1] += leaving[n];
    for (uint32_t n = 0; n < count; n++) {
        waiting[n] = (uint32_t)(b->first[n + 1] - b->first[n]);
        for (size_t e = b->first[n]; e < b->first[n + 1]; e++)
            targets[leaving[b->predecessors[e].point]++] = n;
        if (!waiting[n])
            heap_push(heap, &ready, key_of(points, n));
    }
    // Filling moved each start to its end, which is the start of the next point.
    while (ready) {
        uint32_t n = point_of(points, heap_pop(heap, &ready));
        order->rank[n] = (uint32_t)done;
        order->topological[done++] = n;
        for (size_t e = n ? leaving[n - 1] : 0; e < leaving[n]; e++) {
            if (--waiting[targets[e]] == 0)
                heap_push(heap, &ready, key_of(points, targets[e]));
        }
    }
    if (done < count) {
        uint32_t stuck = 0;
        while (!waiting[stuck])
            stuck++;
        status = gv_fail(error, GV_ERR_FORMAT, "the graph's edges form a cycle through or before node %u",
                         points->node[stuck]);
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
    return b->assuming || edge->known;
}

// The clock of everything that is complete once `point` is.
static bool completion(builder *b, uint32_t point, gv_clock *result)
{
    const relation *r = b->relation;
    if (b->complete[point] == NOT_MADE && !gv_clock_raise(&b->order->clocks, r->before[point], r->chain[point],
                                                          r->position[point] + 1, &b->complete[point]))
        return false;
    *result = b->complete[point];
    return true;
}

// Of the predecessors that end their chains, the one with the fewest successors: the others may yet be continued by a
// point that has no choice. UINT32_MAX when there is none.
static uint32_t tail_predecessor(const builder *b, uint32_t point)
{
    const relation *r = b->relation;
    uint32_t best = UINT32_MAX;
    for (size_t e = b->first[point]; e < b->first[point + 1]; e++) {
        uint32_t from = b->predecessors[e].point;
        if (!counts(b, &b->predecessors[e]) || b->tail[r->chain[from]] != from)
            continue;
        if (best == UINT32_MAX || b->successors[from] < b->successors[best] ||
            (b->successors[from] == b->successors[best] && r->chain[from] < r->chain[best]))
            best = from;
    }
    return best;
}

// A chain that lies wholly before `clock`, so that the point with this clock can continue it; of several, the one
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

// The clock of what comes before `point`. `tail`, if any, is the predecessor whose chain it continues: what lies
// before that on its chain is known from the position, so that its clock is shared as it stands.
static bool clock_before(builder *b, uint32_t point, uint32_t tail, gv_clock *clock)
{
    const relation *r = b->relation;
    *clock = tail == UINT32_MAX ? 0 : r->before[tail];
    for (size_t e = b->first[point]; e < b->first[point + 1]; e++) {
        uint32_t from = b->predecessors[e].point;
        gv_clock other;
        if (!counts(b, &b->predecessors[e]) || (tail != UINT32_MAX && r->chain[from] == r->chain[tail]))
            continue;
        if (!completion(b, from, &other) || !gv_clock_join(&b->order->clocks, *clock, other, clock))
            return false;
    }
    return true;
}

// Spreads the points over chains, in topological order, and gives each its clock.
static bool build_relation(builder *b, enum gv_relation which)
{
    gv_graph_order *order = b->order;
    relation *r = b->relation = &order->relations[which];
    size_t count = order->points.count;
    b->assuming = which == GV_BY_ASSUMED_ORDER;
    r->chain = gv_calloc(count, sizeof *r->chain);
    r->position = gv_calloc(count, sizeof *r->position);
    r->before = gv_calloc(count, sizeof *r->before);
    if (!r->chain || !r->position || !r->before)
        return false;
    memset(b->successors, 0, count * sizeof *b->successors);
    memset(b->length, 0, count * sizeof *b->length);
    for (size_t n = 0; n < count; n++)
        b->complete[n] = NOT_MADE;
    for (size_t e = 0; e < b->first[count]; e++)
        b->successors[b->predecessors[e].point] += counts(b, &b->predecessors[e]);
    for (size_t i = 0; i < count; i++) {
        uint32_t point = order->topological[i], tail = tail_predecessor(b, point);
        if (!clock_before(b, point, tail, &r->before[point]))
            return false;
        uint32_t chain = tail == UINT32_MAX ? chain_behind(b, r->before[point]) : r->chain[tail];
        if (chain == UINT32_MAX)
            chain = (uint32_t)r->chain_count++;
        r->chain[point] = chain;
        r->position[point] = b->length[chain]++;
        b->tail[chain] = point;
    }
    return true;
}

static gv_status build(builder *b, gv_error *error)
{
    gv_graph_order *order = b->order;
    gv_status status = gather_edges(b, error);
    if (!status)
        status = sort_topologically(b, error);
    if (status)
        return status;
    if (!gv_clocks_init(&order->clocks) || !build_relation(b, GV_BY_KNOWN_ORDER) ||
        (order->points.assumed && !build_relation(b, GV_BY_ASSUMED_ORDER)))
        return out_of_memory(error, order->points.node_count);
    return GV_OK;
}

gv_status gv_graph_order_build(size_t node_count, const gv_edge *edges, size_t edge_count,
                               const gv_grid_dependency *dependencies, gv_graph_order **out, gv_error *error)
{
    *out = NULL;
    gv_graph_order *order = gv_calloc(1, sizeof *order);
    if (!order)
        return out_of_memory(error, node_count);
    gv_graph_points *points = &order->points;
    gv_status status = gv_graph_points_build(node_count, edges, edge_count, dependencies, points, error);
    if (status) {
        gv_graph_order_free(order);
        return status;
    }
    order->topological = gv_calloc(points->count, sizeof(uint32_t));
    order->rank = gv_calloc(points->count, sizeof(uint32_t));
    builder b = {.order = order,
                 .first = gv_calloc(points->count + 1, sizeof(size_t)),
                 .successors = gv_calloc(points->count, sizeof(uint32_t)),
                 .complete = gv_calloc(points->count, sizeof(gv_clock)),
                 .tail = gv_calloc(points->count, sizeof(uint32_t)),
                 .length = gv_calloc(points->count, sizeof(uint32_t))};
    bool ok = order->topological && order->rank && b.first && b.successors && b.complete && b.tail && b.length;
    status = ok ? build(&b, error) : out_of_memory(error, node_count);
    gv_free(b.predecessors);
    gv_free(b.first);
    gv_free(b.successors);
    gv_free(b.complete);
    gv_free(b.tail);
    gv_free(b.length);
    gv_free(points->edges);
    points->edges = NULL;
    points->edge_count = points->edge_capacity = 0;
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
    gv_graph_points_free(&order->points);
    gv_free(order->topological);
    gv_free(order->rank);
    gv_clocks_free(&order->clocks);
    gv_free(order);
}

static const relation *relation_of(const gv_graph_order *order, enum gv_relation which)
{
    return &order->relations[order->points.assumed ? which : GV_BY_KNOWN_ORDER];
}

uint32_t gv_graph_order_reach(const gv_graph_order *order, enum gv_relation which, uint32_t point, uint32_t chain)
{
    const relation *r = relation_of(order, which);
    return r->chain[point] == chain ? r->position[point] : gv_clock_get(&order->clocks, r->before[point], chain);
}

// Does `a` come before `b` in the relation?
static bool before(const gv_graph_order *order, enum gv_relation which, uint32_t a, uint32_t b)
{
    const relation *r = relation_of(order, which);
    return gv_graph_order_reach(order, which, b, r->chain[a]) > r->position[a];
}

enum gv_ordering gv_graph_order_before(const gv_graph_order *order, uint32_t a, uint32_t b)
{
    if (before(order, GV_BY_KNOWN_ORDER, a, b))
        return GV_ORDERED;
    return order->points.assumed && before(order, GV_BY_ASSUMED_ORDER, a, b) ? GV_ORDERED_PROGRAMMATIC : GV_UNORDERED;
}

enum gv_ordering gv_graph_order_between(const gv_graph_order *order, uint32_t a, uint32_t b)
{
    enum gv_ordering forwards = gv_graph_order_before(order, a, b);
    if (forwards == GV_ORDERED)
        return forwards;
    enum gv_ordering backwards = gv_graph_order_before(order, b, a);
    return backwards ? backwards : forwards;
}

size_t gv_graph_order_point_count(const gv_graph_order *order)
{
    return order->points.count;
}

uint32_t gv_graph_order_early(const gv_graph_order *order, uint32_t node)
{
    return gv_graph_points_at(&order->points, node, GV_POINT_EARLY);
}

uint32_t gv_graph_order_node(const gv_graph_order *order, uint32_t point)
{
    return order->points.node[point];
}

bool gv_graph_order_leads(const gv_graph_order *order, uint32_t from, uint32_t to)
{
    // Every edge, of whatever kind, puts the beginning of the one node before the beginning of the other.
    return from != to && before(order, GV_BY_KNOWN_ORDER, gv_graph_points_at(&order->points, from, GV_POINT_START), to);
}

const uint32_t *gv_graph_order_topological(const gv_graph_order *order)
{
    return order->topological;
}

uint32_t gv_graph_order_rank(const gv_graph_order *order, uint32_t point)
{
    return order->rank[point];
}

size_t gv_graph_order_chain_count(const gv_graph_order *order)
{
    return order->relations[GV_BY_KNOWN_ORDER].chain_count;
}

uint32_t gv_graph_order_chain(const gv_graph_order *order, uint32_t point)
{
    return order->relations[GV_BY_KNOWN_ORDER].chain[point];
}

uint32_t gv_graph_order_position(const gv_graph_order *order, uint32_t point)
{
    return order->relations[GV_BY_KNOWN_ORDER].position[point];
}

uint32_t gv_graph_order_chain_by(const gv_graph_order *order, enum gv_relation which, uint32_t point)
{
    return relation_of(order, which)->chain[point];
}

uint32_t gv_graph_order_position_by(const gv_graph_order *order, enum gv_relation which, uint32_t point)
{
    return relation_of(order, which)->position[point];
}

bool gv_graph_order_has_assumptions(const gv_graph_order *order)
{
    return order->points.assumed;
}
