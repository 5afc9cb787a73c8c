// Launches of graphs with conditional nodes. Each execution of a body has nodes of its own while pairs are looked for,
// so that an iteration of a loop never meets another one; what was found is then said of the nodes that the graph has.
#include "detect/race_core.h"

#include "base/memory.h"

#include <stdlib.h>

static gv_status out_of_memory(gv_error *error)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory while the executions of bodies were laid out");
}

gv_status gv_race_unroll(const gv_trace *trace, const gv_armed *armed, const gv_flat_graph *graph,
                         const gv_race_subject *subject, gv_race_unrolled *unrolled, gv_error *error)
{
    *unrolled = (gv_race_unrolled){.flat = graph, .subject = *subject, .graph_order = subject->order};
    if (!graph->has_bodies || !armed->execution_count)
        return GV_OK;
    gv_status status = gv_flatten_launch(trace, armed, &unrolled->own, error);
    if (status)
        return status;
    const gv_flat_graph *flat = unrolled->flat = &unrolled->own;
    unrolled->folded = gv_flat_fold(flat, graph);
    unrolled->made = gv_calloc(flat->node_count, sizeof *unrolled->made);
    unrolled->dependencies = gv_calloc(flat->node_count, sizeof *unrolled->dependencies);
    if (!unrolled->folded || !unrolled->made || !unrolled->dependencies)
        status = out_of_memory(error);
    // The order of making is that of the graph's nodes, so that the two sides of a pair do not change places.
    for (size_t n = 0; !status && n < flat->node_count; n++) {
        uint32_t of = unrolled->folded[n];
        unrolled->made[n] = subject->made ? subject->made[of] : of;
        if (subject->dependencies)
            unrolled->dependencies[n] = subject->dependencies[of];
    }
    if (!status)
        status = gv_graph_order_build(flat->node_count, flat->edges, flat->edge_count, unrolled->dependencies,
                                      &unrolled->order, error);
    if (status) {
        gv_race_unrolled_free(unrolled);
        return status;
    }
    unrolled->subject = (gv_race_subject){.order = unrolled->order,
                                          .node_count = flat->node_count,
                                          .dependencies = subject->dependencies ? unrolled->dependencies : NULL,
                                          .made = unrolled->made};
    return GV_OK;
}

void gv_race_unrolled_free(gv_race_unrolled *unrolled)
{
    gv_flat_graph_free(&unrolled->own);
    gv_graph_order_free(unrolled->order);
    gv_free(unrolled->folded);
    gv_free(unrolled->made);
    gv_free(unrolled->dependencies);
    *unrolled = (gv_race_unrolled){0};
}

static int by_nodes(const void *left, const void *right)
{
    const gv_race_pair *a = left, *b = right;
    if (a->first.node != b->first.node)
        return a->first.node < b->first.node ? -1 : 1;
    if (a->second.node != b->second.node)
        return a->second.node < b->second.node ? -1 : 1;
    return a->bytes > b->bytes ? -1 : a->bytes < b->bytes; // the largest first: it says the kind
}

static uint64_t bytes_of(const gv_range_set *set)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < set->count; i++)
        bytes += set->ranges[i].end - set->ranges[i].start;
    return bytes;
}

// Where a side stands in the graph's own order.
static void fold_side(const gv_race_unrolled *unrolled, gv_side *side)
{
    uint32_t node = unrolled->folded[side->node];
    bool early = side->point != side->node && side->point == gv_graph_order_early(unrolled->order, side->node);
    side->node = node;
    side->point = early ? gv_graph_order_early(unrolled->graph_order, node) : node;
}

static void join_sides(gv_side *into, const gv_side *from)
{
    if (into->wait != from->wait) {
        into->wait = GV_SIDE_PLAIN;
        into->point = into->node;
    }
    into->reads |= from->reads;
    into->writes |= from->writes;
    into->atomic |= from->atomic;
    into->precision = from->precision > into->precision ? from->precision : into->precision;
}

// Adds the bytes of another execution's pair to one of the same nodes. New bytes count under that pair's kinds if they
// are all of its bytes, else under its leading kind: which kind each single byte had is not kept.
static gv_status join_pairs(gv_race_pair *into, gv_race_pair *from, gv_error *error)
{
    for (size_t i = 0; i < from->ranges.count; i++) {
        gv_status status =
            gv_range_set_add(&into->ranges, from->ranges.ranges[i].start, from->ranges.ranges[i].end, error);
        if (status)
            return status;
    }
    gv_range_set_settle(&into->ranges);
    uint64_t bytes = bytes_of(&into->ranges), added = bytes - into->bytes;
    if (added == from->bytes) {
        into->raw_bytes += from->raw_bytes;
        into->war_bytes += from->war_bytes;
        into->waw_bytes += from->waw_bytes;
    } else {
        *(from->id == GV_FINDING_RACE_RAW   ? &into->raw_bytes
          : from->id == GV_FINDING_RACE_WAR ? &into->war_bytes
                                            : &into->waw_bytes) += added;
    }
    into->bytes = bytes;
    join_sides(&into->first, &from->first);
    join_sides(&into->second, &from->second);
    return GV_OK;
}

gv_status gv_race_fold(const gv_race_unrolled *unrolled, gv_race_pair_list *pairs, gv_race_undecided *undecided,
                       gv_error *error)
{
    const uint32_t *folded = unrolled->folded;
    if (!folded)
        return GV_OK;
    undecided->first = folded[undecided->first];
    undecided->second = folded[undecided->second];
    undecided->overlap_first = folded[undecided->overlap_first];
    undecided->overlap_second = folded[undecided->overlap_second];
    for (size_t i = 0; i < pairs->count; i++) {
        fold_side(unrolled, &pairs->items[i].first);
        fold_side(unrolled, &pairs->items[i].second);
    }
    if (pairs->count)
        qsort(pairs->items, pairs->count, sizeof *pairs->items, by_nodes);
    size_t kept = 0;
    gv_status status = GV_OK;
    for (size_t i = 0; i < pairs->count; i++) {
        gv_race_pair *pair = &pairs->items[i], *last = kept ? &pairs->items[kept - 1] : NULL;
        if (last && last->first.node == pair->first.node && last->second.node == pair->second.node) {
            if (!status)
                status = join_pairs(last, pair, error);
            gv_range_set_free(&pair->ranges);
            continue;
        }
        gv_race_pair moved = *pair;
        *pair = (gv_race_pair){0};
        pairs->items[kept++] = moved;
    }
    pairs->count = kept;
    return status;
}
