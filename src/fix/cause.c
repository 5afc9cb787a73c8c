// Why the pairs of an edge conflict: whether one node needs what the other writes, or both merely use the same memory.
// Only what the trace shows is looked at; where it does not tell, the weaker statement is made.
#include "fix/plan.h"

#include <string.h>

// Pairs of an edge that are looked at; more do not change the picture.
enum { MOST_PAIRS = 200 };

static bool same_node(const gv_side *a, const gv_side *b)
{
    return a->graph == b->graph && a->node == b->node;
}

static const gv_node *record_of(const gv_trace *trace, const gv_side *side)
{
    return side->graph < trace->graph_count && side->node < trace->graphs[side->graph].node_count
               ? &trace->graphs[side->graph].nodes[side->node]
               : NULL;
}

// Does `writer` come before `reader` on one stream of one graph?
static bool is_earlier_on_stream(const gv_trace *trace, const gv_side *writer, const gv_side *reader)
{
    const gv_node *a = record_of(trace, writer), *b = record_of(trace, reader);
    return a && b && writer->graph == reader->graph && a->stream && a->stream == b->stream && a->order < b->order;
}

// The bytes that a pair's first node writes are written again on the reader's own stream, before it reads: it needs
// that later writer's data, and not the first one's.
static bool is_overwritten(const gv_fix_group *group, const gv_fix_planned *edge, const gv_fix_conflict *read)
{
    for (size_t i = 0; i < edge->conflict_count && i < MOST_PAIRS; i++) {
        const gv_fix_conflict *other = &group->conflicts[edge->conflicts[i]];
        if (other->finding->trace == read->finding->trace && other->pair->waw_bytes &&
            same_node(&other->pair->first, &read->pair->first) && other->pair->second.writes &&
            is_earlier_on_stream(read->finding->trace, &other->pair->second, &read->pair->second))
            return true;
    }
    return false;
}

// Memory that allocation nodes of the graph give out twice.
static bool has_two_lives(const gv_trace *trace, const gv_range_set *ranges)
{
    size_t lives = 0;
    for (size_t i = 1; ranges->count && i < trace->allocation_count && lives < 2; i++) {
        const gv_allocation *life = &trace->allocations[i];
        lives += life->kind == GV_ALLOCATION_NODE && life->address < ranges->ranges[0].end &&
                 ranges->ranges[0].start < life->address + life->size;
    }
    return lives > 1;
}

static bool is_torch(const char *path)
{
    const char *name = path ? strrchr(path, '/') : NULL;
    name = name ? name + 1 : path;
    return name && (strncmp(name, "libc10", 6) == 0 || strncmp(name, "libtorch", 8) == 0);
}

bool gv_fix_is_pooled(const gv_trace *trace, uint64_t allocation)
{
    uint64_t id = allocation < trace->allocation_count ? trace->allocations[allocation].stack : 0;
    if (!id || id >= trace->stack_count)
        return false;
    const gv_stack *stack = &trace->stacks[id];
    for (size_t i = 0; i < stack->host_count; i++)
        if (stack->host[i].module < trace->module_count && is_torch(trace->modules[stack->host[i].module].path))
            return true;
    return false;
}

// The conflict to show: of the highest confidence, then the one whose nodes the edge joins, then the one with the most
// bytes.
static bool is_better_lead(const gv_fix_planned *edge, const gv_fix_conflict *a, const gv_fix_conflict *b)
{
    if (a->finding->confidence != b->finding->confidence)
        return a->finding->confidence < b->finding->confidence;
    bool ends_a = a->pair->first.node == edge->from && a->pair->second.node == edge->to;
    bool ends_b = b->pair->first.node == edge->from && b->pair->second.node == edge->to;
    if (ends_a != ends_b)
        return ends_a;
    return a->pair->bytes > b->pair->bytes;
}

void gv_fix_find_cause(const gv_fix_group *group, gv_fix_planned *edge)
{
    edge->cause = GV_FIX_CAUSE_SHARED;
    if (!edge->conflict_count)
        return;
    edge->lead = edge->conflicts[0];
    for (size_t i = 1; i < edge->conflict_count; i++)
        if (is_better_lead(edge, &group->conflicts[edge->conflicts[i]], &group->conflicts[edge->lead]))
            edge->lead = edge->conflicts[i];
    bool needed = false, updated = false, again = false;
    for (size_t i = 0; i < edge->conflict_count && i < MOST_PAIRS; i++) {
        const gv_fix_conflict *conflict = &group->conflicts[edge->conflicts[i]];
        needed = needed || (conflict->pair->raw_bytes && !is_overwritten(group, edge, conflict));
        updated = updated || (conflict->pair->second.reads && conflict->pair->second.writes);
        again = again || has_two_lives(conflict->finding->trace, &conflict->pair->ranges) ||
                gv_fix_is_pooled(conflict->finding->trace, conflict->finding->allocation);
    }
    edge->cause = needed    ? GV_FIX_CAUSE_DATA
                  : updated ? GV_FIX_CAUSE_UPDATE
                  : again   ? GV_FIX_CAUSE_REUSE
                            : GV_FIX_CAUSE_SHARED;
}
