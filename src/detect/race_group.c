// Gathers the racing pairs that one missing order explains.
//
// An edge u -> v orders a pair (a, b) when a is u or comes before it and b is v or comes after it. What is before what
// is a matter of the points at which nodes stand in the order (graph_order.h); the ends of an edge are nodes. Among the
// pairs of two chains the fewest edges are found exactly: for a pair (a, b) the edges that help are those whose u lies
// on a's chain at or behind a and, so as not to close a cycle with its v, before what b's chain already waits for. That
// is an interval of places for u, and the fewest points that meet a set of intervals come from a walk in the order of
// their right ends. Groups of different chain pairs are then joined where one edge serves both.
#include "detect/race_core.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

// Joining compares a group with at most this many others; a graph with more missing edges than that gets some of them
// reported in parts.
enum { JOIN_WINDOW = 256 };

// A pair on its way into a group.
typedef struct candidate {
    uint32_t first_chain, second_chain;
    uint32_t first_position, second_position;
    size_t pair; // in the list
    size_t group;
} candidate;

// A group while it grows: points of the nodes its edge joins, and the group it was joined into.
typedef struct growing {
    uint32_t from, to;
    size_t joined; // itself, or another group
    size_t pairs;
} growing;

typedef struct grouping {
    const gv_race_subject *subject;
    const gv_graph_order *order;
    gv_race_pair_list *list;
    candidate *candidates;
    growing *groups;
    size_t group_count;
} grouping;

static gv_status out_of_memory(gv_error *error, size_t pairs)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory while grouping %zu racing pairs", pairs);
}

enum gv_confidence gv_race_confidence(const gv_race_pair *pair)
{
    enum gv_access_precision a = pair->first.precision, b = pair->second.precision;
    if (a == GV_PRECISION_EXACT && b == GV_PRECISION_EXACT)
        return GV_CERTAIN;
    bool one_extent =
        (a == GV_PRECISION_EXACT && b == GV_PRECISION_EXTENT) || (a == GV_PRECISION_EXTENT && b == GV_PRECISION_EXACT);
    return one_extent ? GV_LIKELY : GV_POSSIBLE;
}

static bool ordered(const grouping *g, uint32_t a, uint32_t b)
{
    return gv_graph_order_before(g->order, a, b) == GV_ORDERED;
}

// Would an edge between the nodes of these points close a cycle? Programmatic edges count: they bind the driver's
// scheduling too.
static bool closes_cycle(const grouping *g, uint32_t from, uint32_t to)
{
    uint32_t u = gv_graph_order_node(g->order, from), v = gv_graph_order_node(g->order, to);
    return u == v || gv_graph_order_leads(g->order, v, u);
}

// ---- Pairs of two chains ----------------------------------------------------------------------------------------

static int by_chains(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    if (a->first_chain != b->first_chain)
        return a->first_chain < b->first_chain ? -1 : 1;
    if (a->second_chain != b->second_chain)
        return a->second_chain < b->second_chain ? -1 : 1;
    // The earlier the second node, the further left ends the interval of places for u.
    if (a->second_position != b->second_position)
        return a->second_position < b->second_position ? -1 : 1;
    if (a->first_position != b->first_position)
        return a->first_position < b->first_position ? -1 : 1;
    return a->pair < b->pair ? -1 : a->pair > b->pair;
}

static void group_by_chains(grouping *g)
{
    size_t count = g->list->count;
    for (size_t i = 0; i < count; i++) {
        const gv_race_pair *pair = &g->list->items[i];
        g->candidates[i] = (candidate){.first_chain = gv_graph_order_chain(g->order, pair->first.point),
                                       .second_chain = gv_graph_order_chain(g->order, pair->second.point),
                                       .first_position = gv_graph_order_position(g->order, pair->first.point),
                                       .second_position = gv_graph_order_position(g->order, pair->second.point),
                                       .pair = i};
    }
    qsort(g->candidates, count, sizeof *g->candidates, by_chains);
    for (size_t i = 0; i < count; i++) {
        candidate *c = &g->candidates[i], *previous = i ? c - 1 : NULL;
        const gv_race_pair *pair = &g->list->items[c->pair];
        growing *last = g->group_count ? &g->groups[g->group_count - 1] : NULL;
        bool same_chains =
            previous && previous->first_chain == c->first_chain && previous->second_chain == c->second_chain;
        // The group's `to` is the earliest second node: candidates come in that order.
        if (!same_chains || closes_cycle(g, pair->first.point, last->to)) {
            g->groups[g->group_count] =
                (growing){.from = pair->first.point, .to = pair->second.point, .joined = g->group_count};
            last = &g->groups[g->group_count++];
        } else if (gv_graph_order_position(g->order, last->from) < c->first_position) {
            last->from = pair->first.point;
        }
        c->group = g->group_count - 1;
        last->pairs++;
    }
}

// ---- Groups of different chains ---------------------------------------------------------------------------------

// Can one edge stand for both? If so, stores its ends.
static bool common_edge(const grouping *g, const growing *a, const growing *b, uint32_t *from, uint32_t *to)
{
    if (a->from == b->from || ordered(g, b->from, a->from))
        *from = a->from;
    else if (ordered(g, a->from, b->from))
        *from = b->from;
    else
        return false;
    if (a->to == b->to || ordered(g, a->to, b->to))
        *to = a->to;
    else if (ordered(g, b->to, a->to))
        *to = b->to;
    else
        return false;
    return !closes_cycle(g, *from, *to);
}

// A group's place in the walk over all groups.
typedef struct walk_place {
    uint32_t to_rank, from_rank;
    size_t group;
} walk_place;

static int by_rank(const void *left, const void *right)
{
    const walk_place *a = left, *b = right;
    if (a->to_rank != b->to_rank)
        return a->to_rank < b->to_rank ? -1 : 1;
    if (a->from_rank != b->from_rank)
        return a->from_rank < b->from_rank ? -1 : 1;
    return a->group < b->group ? -1 : a->group > b->group;
}

// Joins each group, in topological order of its `to`, into the nearest earlier one that allows it.
static gv_status join_groups(grouping *g, gv_error *error)
{
    size_t count = g->group_count, open_count = 0;
    walk_place *walk = gv_calloc(count, sizeof *walk);
    size_t *open = gv_calloc(count, sizeof *open);
    if (!walk || !open) {
        gv_free(walk);
        gv_free(open);
        return out_of_memory(error, g->list->count);
    }
    for (size_t i = 0; i < count; i++)
        walk[i] = (walk_place){.to_rank = gv_graph_order_rank(g->order, g->groups[i].to),
                               .from_rank = gv_graph_order_rank(g->order, g->groups[i].from),
                               .group = i};
    qsort(walk, count, sizeof *walk, by_rank);
    for (size_t i = 0; i < count; i++) {
        growing *later = &g->groups[walk[i].group];
        size_t oldest = open_count > JOIN_WINDOW ? open_count - JOIN_WINDOW : 0;
        bool joined = false;
        for (size_t k = open_count; k > oldest && !joined; k--) {
            growing *into = &g->groups[open[k - 1]];
            uint32_t from, to;
            if (common_edge(g, into, later, &from, &to)) {
                into->from = from;
                into->to = to;
                into->pairs += later->pairs;
                later->joined = open[k - 1];
                joined = true;
            }
        }
        if (!joined)
            open[open_count++] = walk[i].group;
    }
    gv_free(walk);
    gv_free(open);
    return GV_OK;
}

// ---- The result -------------------------------------------------------------------------------------------------

// A pair with what its place in the group depends on.
typedef struct ranked_pair {
    uint64_t distance;
    enum gv_confidence confidence;
    size_t pair; // in the list: the order of making
    gv_race_pair item;
} ranked_pair;

// Of the highest confidence first, then the nearest the edge.
static bool leads(const ranked_pair *a, const ranked_pair *b)
{
    if (a->confidence != b->confidence)
        return a->confidence < b->confidence;
    if (a->distance != b->distance)
        return a->distance < b->distance;
    if (a->item.bytes != b->item.bytes)
        return a->item.bytes > b->item.bytes;
    return a->pair < b->pair;
}

static int by_bytes(const void *left, const void *right)
{
    const ranked_pair *a = left, *b = right;
    if (a->item.bytes != b->item.bytes)
        return a->item.bytes > b->item.bytes ? -1 : 1;
    return a->pair < b->pair ? -1 : a->pair > b->pair;
}

// Puts the leading pair first and the others by bytes.
static void arrange_pairs(ranked_pair *pairs, size_t count)
{
    size_t lead = 0;
    for (size_t i = 1; i < count; i++)
        lead = leads(&pairs[i], &pairs[lead]) ? i : lead;
    ranked_pair first = pairs[lead];
    pairs[lead] = pairs[0];
    pairs[0] = first;
    qsort(pairs + 1, count - 1, sizeof *pairs, by_bytes);
}

static uint64_t total_bytes(const gv_race_group *group)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < group->pair_count; i++)
        bytes += group->pairs[i].bytes;
    return bytes;
}

static int by_total(const void *left, const void *right)
{
    const gv_race_group *a = left, *b = right;
    uint64_t in_a = total_bytes(a), in_b = total_bytes(b);
    if (in_a != in_b)
        return in_a > in_b ? -1 : 1;
    if (a->edge_from != b->edge_from)
        return a->edge_from < b->edge_from ? -1 : 1;
    return a->edge_to < b->edge_to ? -1 : a->edge_to > b->edge_to;
}

// Moves the pairs of the list into `result`, one array a group. Fails before it moves anything.
static gv_status distribute(grouping *g, gv_race_group *result, size_t result_count, ranked_pair *scratch,
                            gv_error *error)
{
    size_t pairs = g->list->count;
    for (size_t i = 0; i < result_count; i++) {
        result[i].pairs = gv_calloc(g->groups[result[i].pair_count].pairs, sizeof *result[i].pairs);
        if (!result[i].pairs)
            return out_of_memory(error, pairs);
    }
    // Candidates are sorted by their final group now, so that each group is one stretch of them.
    size_t at = 0;
    for (size_t i = 0; i < result_count; i++) {
        const growing *from = &g->groups[result[i].pair_count];
        size_t count = from->pairs;
        for (size_t k = 0; k < count; k++, at++) {
            size_t pair = g->candidates[at].pair;
            gv_race_pair item = g->list->items[pair];
            uint64_t before = gv_graph_order_rank(g->order, from->from);
            uint64_t behind = gv_graph_order_rank(g->order, item.second.point);
            scratch[k] = (ranked_pair){.distance = before - gv_graph_order_rank(g->order, item.first.point) + behind -
                                                   gv_graph_order_rank(g->order, from->to),
                                       .confidence = gv_race_confidence(&item),
                                       .pair = pair,
                                       .item = item};
        }
        arrange_pairs(scratch, count);
        for (size_t k = 0; k < count; k++)
            result[i].pairs[k] = scratch[k].item;
        result[i].edge_from = gv_graph_order_node(g->order, from->from);
        result[i].edge_to = gv_graph_order_node(g->order, from->to);
        result[i].path = gv_graph_order_leads(g->order, result[i].edge_from, result[i].edge_to);
        result[i].pair_count = count;
    }
    gv_free(g->list->items);
    *g->list = (gv_race_pair_list){.limited = g->list->limited};
    return GV_OK;
}

static int by_group(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    return a->pair < b->pair ? -1 : a->pair > b->pair;
}

static gv_status collect(grouping *g, gv_race_group **groups, size_t *group_count, gv_error *error)
{
    size_t pairs = g->list->count, open = 0;
    for (size_t i = 0; i < pairs; i++)
        g->candidates[i].group = g->groups[g->candidates[i].group].joined;
    qsort(g->candidates, pairs, sizeof *g->candidates, by_group);
    for (size_t i = 0; i < g->group_count; i++)
        open += g->groups[i].joined == i;
    gv_race_group *result = gv_calloc(open, sizeof *result);
    ranked_pair *scratch = gv_calloc(pairs, sizeof *scratch);
    gv_status status = result && scratch ? GV_OK : out_of_memory(error, pairs);
    if (!status) {
        // Until it is filled, a result's pair_count holds the index of its group.
        for (size_t i = 0, at = 0; i < g->group_count; i++) {
            if (g->groups[i].joined == i)
                result[at++].pair_count = i;
        }
        status = distribute(g, result, open, scratch, error);
    }
    gv_free(scratch);
    if (status) {
        for (size_t i = 0; result && i < open; i++)
            gv_free(result[i].pairs);
        gv_free(result);
        return status;
    }
    qsort(result, open, sizeof *result, by_total);
    *groups = result;
    *group_count = open;
    return GV_OK;
}

gv_status gv_race_group_pairs(const gv_race_subject *subject, gv_race_pair_list *pairs, gv_race_group **groups,
                              size_t *group_count, gv_error *error)
{
    *groups = NULL;
    *group_count = 0;
    if (!pairs->count)
        return GV_OK;
    grouping g = {.subject = subject,
                  .order = subject->order,
                  .list = pairs,
                  .candidates = gv_calloc(pairs->count, sizeof *g.candidates),
                  .groups = gv_calloc(pairs->count, sizeof *g.groups)};
    gv_status status = GV_OK;
    if (!g.candidates || !g.groups)
        status = out_of_memory(error, pairs->count);
    if (!status) {
        group_by_chains(&g);
        status = join_groups(&g, error);
    }
    if (!status)
        status = collect(&g, groups, group_count, error);
    gv_free(g.candidates);
    gv_free(g.groups);
    return status;
}

void gv_race_groups_free(gv_race_group *groups, size_t group_count)
{
    for (size_t i = 0; i < group_count; i++) {
        for (size_t k = 0; k < groups[i].pair_count; k++)
            gv_range_set_free(&groups[i].pairs[k].ranges);
        gv_free(groups[i].pairs);
    }
    gv_free(groups);
}
