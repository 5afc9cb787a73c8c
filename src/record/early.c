#include "record/early.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

bool gv_is_programmatic(gv_programmatic_nodes *nodes, const gv_snapshot *snapshot, uint32_t index)
{
    if (nodes->of != snapshot) {
        gv_programmatic_nodes_free(nodes);
        nodes->of = snapshot;
        nodes->behind = gv_calloc(snapshot->node_count, sizeof *nodes->behind);
        for (size_t e = 0; nodes->behind && e < snapshot->edge_count; e++) {
            const uint64_t *edge = &snapshot->edges[4 * e];
            if (edge[3] != CU_GRAPH_DEPENDENCY_TYPE_DEFAULT && edge[1] < snapshot->node_count)
                nodes->behind[edge[1]] = true;
        }
    }
    return nodes->behind && nodes->behind[index];
}

void gv_programmatic_nodes_free(gv_programmatic_nodes *nodes)
{
    gv_free(nodes->behind);
    *nodes = (gv_programmatic_nodes){0};
}

bool gv_has_programmatic(const gv_snapshot *snapshot)
{
    for (size_t e = 0; e < snapshot->edge_count; e++)
        if (snapshot->edges[4 * e + 3] != CU_GRAPH_DEPENDENCY_TYPE_DEFAULT)
            return true;
    for (size_t i = 0; i < snapshot->node_count; i++) {
        const gv_snapshot_node *node = &snapshot->nodes[i];
        for (size_t body = 0; body < node->body_count; body++)
            if (gv_has_programmatic(node->bodies[body]))
                return true;
    }
    return false;
}

void gv_wait_unknown(gv_wait_observation *observation, const char *reason)
{
    observation->wait = GV_GRID_WAIT_UNKNOWN;
    observation->trigger = GV_GRID_TRIGGER_UNKNOWN;
    gv_node_ranges_clear(&observation->early);
    snprintf(observation->reason, sizeof observation->reason, "%s", reason);
}

void gv_wait_blind(gv_wait_observation *observation)
{
    if (observation->wait == GV_GRID_WAIT_DONE && !observation->unseen_come_after)
        gv_wait_unknown(observation,
                        "not all that it accesses could be seen, and so not all that it accesses before its "
                        "grid-dependency wait");
}

bool gv_split_early(gv_node_ranges *ranges, gv_node_ranges *early)
{
    for (int k = 0; k < GV_ACCESS_KINDS; k++) {
        enum gv_access_kind kind = (enum gv_access_kind)k;
        gv_range *all = ranges->ranges[k];
        size_t count = ranges->count[k], late = 0;
        while (late < count && all[late].start < GV_EARLY_ADDRESS)
            late++;
        if (late == count)
            continue;
        gv_node_ranges merged = {0};
        bool enough = true;
        for (size_t i = 0, j = late; enough && (i < late || j < count);) {
            gv_range e = j < count ? (gv_range){all[j].start - GV_EARLY_ADDRESS, all[j].end - GV_EARLY_ADDRESS}
                                   : (gv_range){UINT64_MAX, UINT64_MAX};
            if (i < late && all[i].start <= e.start) {
                enough = gv_node_ranges_append(&merged, kind, all[i].start, all[i].end);
                i++;
            } else {
                enough = gv_node_ranges_append(early, kind, e.start, e.end) &&
                         gv_node_ranges_append(&merged, kind, e.start, e.end);
                j++;
            }
        }
        gv_free(all);
        ranges->ranges[k] = merged.ranges[k];
        ranges->count[k] = merged.count[k];
        ranges->capacity[k] = merged.capacity[k];
        if (!enough)
            return false;
    }
    return true;
}

static bool encode(const gv_node_ranges *ranges, enum gv_access_kind kind, gv_bytes *encoded)
{
    size_t count = ranges->count[kind];
    uint8_t *bytes = count ? gv_malloc(gv_ranges_encoded_bound(count)) : NULL;
    *encoded = bytes ? (gv_bytes){bytes, gv_ranges_encode(ranges->ranges[kind], count, bytes)} : (gv_bytes){0};
    return bytes || !count;
}

void gv_wait_encode(gv_wait_observation *observation, gv_access_record *record)
{
    if (observation->wait == GV_GRID_WAIT_DONE &&
        !(encode(&observation->early, GV_ACCESS_READ, &record->early_reads) &&
          encode(&observation->early, GV_ACCESS_WRITE, &record->early_writes) &&
          encode(&observation->early, GV_ACCESS_ATOMIC, &record->early_atomics))) {
        // A part of what comes before the wait must not pass for all of it.
        gv_wait_encoded_free(record);
        gv_wait_unknown(observation, "memory for what it accesses before its grid-dependency wait ran out");
    }
    record->wait = observation->wait;
    record->trigger = observation->trigger;
}

void gv_wait_encoded_free(gv_access_record *record)
{
    gv_free((void *)record->early_reads.data);
    gv_free((void *)record->early_writes.data);
    gv_free((void *)record->early_atomics.data);
    record->early_reads = record->early_writes = record->early_atomics = (gv_bytes){0};
}
