// The bytes that are hashed are written out one number after the other, eight bytes each, lowest first, so that they do
// not depend on the machine or on how structs are laid out.
#include "trace/fingerprint.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { FORM = 1 }; // of the hashed bytes; another one gives other fingerprints

static gv_status out_of_memory(gv_error *error)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory while a graph's fingerprint was computed");
}

// ---- Numbers of nodes -------------------------------------------------------------------------------------------

typedef struct making {
    uint64_t order;
    uint32_t index;
} making;

static int by_order(const void *left, const void *right)
{
    const making *a = left, *b = right;
    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

// The nodes' indices in the order of their numbers; NULL when memory is out.
static making *in_order(const gv_print_graph *graph)
{
    making *nodes = gv_calloc(graph->node_count, sizeof *nodes);
    if (!nodes)
        return NULL;
    bool known = true;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        nodes[i] = (making){.order = graph->nodes[i].order, .index = i};
        known = known && nodes[i].order;
    }
    if (known)
        qsort(nodes, graph->node_count, sizeof *nodes, by_order);
    for (size_t i = 1; known && i < graph->node_count; i++)
        known = nodes[i].order != nodes[i - 1].order;
    for (uint32_t i = 0; !known && i < graph->node_count; i++)
        nodes[i] = (making){.order = i, .index = i};
    return nodes;
}

bool gv_fingerprint_numbers(const gv_print_graph *graph, uint32_t *numbers)
{
    making *nodes = in_order(graph);
    for (uint32_t i = 0; nodes && i < graph->node_count; i++)
        numbers[nodes[i].index] = i;
    gv_free(nodes);
    return nodes != NULL;
}

// ---- The hash ---------------------------------------------------------------------------------------------------

typedef struct written {
    uint8_t *bytes;
    size_t count, capacity;
} written;

// What is hashed, of both levels. It is gathered and hashed at once: XXH3's state for hashing in pieces must be aligned
// to 64 bytes, which no allocation promises.
typedef struct hashing {
    written exact, without_shapes;
    bool failed;
} hashing;

static void put(hashing *hash, written *to, const void *bytes, size_t count)
{
    if (hash->failed || !GV_GROW(to->bytes, to->capacity, to->count + count)) {
        hash->failed = true;
        return;
    }
    if (count)
        memcpy(to->bytes + to->count, bytes, count);
    to->count += count;
}

static void add_exact(hashing *hash, uint64_t number)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> 8 * i);
    put(hash, &hash->exact, bytes, sizeof bytes);
}

static void add(hashing *hash, uint64_t number)
{
    add_exact(hash, number);
    if (!hash->failed)
        put(hash, &hash->without_shapes, hash->exact.bytes + hash->exact.count - 8, 8);
}

static void add_text(hashing *hash, const char *text)
{
    size_t length = text ? strlen(text) : 0;
    add(hash, length);
    put(hash, &hash->exact, text, length);
    put(hash, &hash->without_shapes, text, length);
}

static gv_fingerprint hash_of(const written *all)
{
    gv_fingerprint print;
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(all->bytes, all->count));
    memcpy(print.bytes, canonical.digest, sizeof print.bytes);
    return print;
}

// Which numbers of a node's detail are the same in every run (docs/trace-format.md): [first, end).
static void stable_detail(const gv_print_node *node, size_t *first, size_t *end)
{
    *first = *end = 0;
    switch (node->kind) {
    case GV_NODE_MEMCPY: *first = 2, *end = 9; break; // without the two addresses
    case GV_NODE_MEMSET: *first = 2, *end = 6; break; // without address and value
    case GV_NODE_ALLOC: *first = 1, *end = 2; break;  // its size
    case GV_NODE_CONDITIONAL: *end = 1; break;        // its type: without the handle and the graph ids
    default: break;
    }
    if (*end > node->detail.count)
        *end = node->detail.count;
    if (*first > *end)
        *first = *end;
}

static gv_status hash_graph(const gv_print_graph *graph, unsigned depth, gv_fingerprints *prints, gv_error *error);

static gv_status add_node(hashing *hash, const gv_print_node *node, unsigned depth, gv_error *error)
{
    size_t first, end;
    stable_detail(node, &first, &end);
    add(hash, node->kind);
    add_text(hash, node->kernel);
    add_exact(hash, node->shape.count);
    for (size_t i = 0; i < node->shape.count; i++)
        add_exact(hash, node->shape.items[i]);
    add_exact(hash, end - first);
    for (size_t i = first; i < end; i++)
        add_exact(hash, node->detail.items[i]);
    add(hash, node->inner_count);
    for (size_t i = 0; i < node->inner_count; i++) {
        gv_fingerprints inner;
        gv_status status = hash_graph(&node->inner[i], depth + 1, &inner, error);
        if (status)
            return status;
        put(hash, &hash->exact, inner.exact.bytes, sizeof inner.exact.bytes);
        put(hash, &hash->without_shapes, inner.without_shapes.bytes, sizeof inner.without_shapes.bytes);
    }
    return GV_OK;
}

typedef struct numbered_edge {
    uint64_t from, to, port, type;
} numbered_edge;

static int by_ends(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;
    for (size_t i = 0; i < 4; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

// Edges by the numbers of their ends, since the order in which the driver lists them is its own affair.
static gv_status add_edges(hashing *hash, const gv_print_graph *graph, const making *nodes, gv_error *error)
{
    uint32_t *numbers = gv_calloc(graph->node_count, sizeof *numbers);
    numbered_edge *edges = gv_calloc(graph->edge_count, sizeof *edges);
    gv_status status = numbers && edges ? GV_OK : out_of_memory(error);
    for (uint32_t i = 0; !status && i < graph->node_count; i++)
        numbers[nodes[i].index] = i;
    for (size_t e = 0; !status && e < graph->edge_count; e++) {
        const uint64_t *edge = graph->edges + 4 * e;
        if (edge[0] >= graph->node_count || edge[1] >= graph->node_count)
            status = gv_fail(error, GV_ERR_FORMAT, "an edge leads from or to a node that is not there");
        else
            edges[e] = (numbered_edge){numbers[edge[0]], numbers[edge[1]], edge[2], edge[3]};
    }
    if (!status) {
        qsort(edges, graph->edge_count, sizeof *edges, by_ends);
        for (size_t e = 0; e < graph->edge_count; e++) {
            add(hash, edges[e].from);
            add(hash, edges[e].to);
            add(hash, edges[e].port);
            add(hash, edges[e].type);
        }
    }
    gv_free(numbers);
    gv_free(edges);
    return status;
}

static gv_status hash_graph(const gv_print_graph *graph, unsigned depth, gv_fingerprints *prints, gv_error *error)
{
    if (depth > GV_FINGERPRINT_DEPTH)
        return gv_fail(error, GV_ERR_LIMIT, "child graphs nest deeper than the limit of %d levels",
                       GV_FINGERPRINT_DEPTH);
    if (graph->node_count > UINT32_MAX)
        return gv_fail(error, GV_ERR_LIMIT, "the graph has more nodes than a fingerprint numbers");
    making *nodes = in_order(graph);
    hashing hash = {0};
    gv_status status = nodes ? GV_OK : out_of_memory(error);
    if (!status) {
        add(&hash, FORM);
        add(&hash, graph->node_count);
        add(&hash, graph->edge_count);
    }
    for (size_t i = 0; !status && i < graph->node_count; i++)
        status = add_node(&hash, &graph->nodes[nodes[i].index], depth, error);
    if (!status)
        status = add_edges(&hash, graph, nodes, error);
    if (!status && hash.failed)
        status = out_of_memory(error);
    if (!status)
        *prints = (gv_fingerprints){hash_of(&hash.exact), hash_of(&hash.without_shapes)};
    gv_free(hash.exact.bytes);
    gv_free(hash.without_shapes.bytes);
    gv_free(nodes);
    return status;
}

gv_status gv_fingerprint_graph(const gv_print_graph *graph, gv_fingerprints *prints, gv_error *error)
{
    *prints = (gv_fingerprints){0};
    return hash_graph(graph, 0, prints, error);
}

// ---- As text ----------------------------------------------------------------------------------------------------

bool gv_fingerprint_equal(const gv_fingerprint *a, const gv_fingerprint *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

void gv_fingerprint_text(const gv_fingerprint *print, char text[GV_FINGERPRINT_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof print->bytes; i++) {
        text[2 * i] = digits[print->bytes[i] >> 4];
        text[2 * i + 1] = digits[print->bytes[i] & 15];
    }
    text[GV_FINGERPRINT_TEXT - 1] = '\0';
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool gv_fingerprint_parse(const char *text, gv_fingerprint *print)
{
    if (strlen(text) != GV_FINGERPRINT_TEXT - 1)
        return false;
    for (size_t i = 0; i < sizeof print->bytes; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        print->bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
