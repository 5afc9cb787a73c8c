// The race detector: from armed launches to findings. Launches of graphs of the same structure are taken together, so
// that a graph that is captured or updated again and again shows each race once.
#include "detect/race_core.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gv_status out_of_memory(gv_error *error)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory while looking for races");
}

// ---- One graph given as sets ------------------------------------------------------------------------------------

static size_t add_streams(gv_race_stream *streams, size_t count, const gv_race_input *input, const gv_range_set *sets,
                          uint8_t kind, uint8_t extent_kind)
{
    for (uint32_t n = 0; sets && n < input->node_count; n++) {
        bool extent = input->precision && input->precision[n] == GV_PRECISION_EXTENT;
        gv_range_set_settle(&sets[n]);
        if (sets[n].count)
            streams[count++] = (gv_race_stream){
                .point = n, .kind = extent ? extent_kind : kind, .ranges = sets[n].ranges, .count = sets[n].count};
    }
    return count;
}

// As add_streams, of what is accessed before the wait.
static size_t add_early_streams(gv_race_stream *streams, size_t count, const gv_graph_order *order, size_t nodes,
                                const gv_range_set *sets, uint8_t kind)
{
    for (uint32_t n = 0; sets && n < nodes; n++) {
        uint32_t point = gv_graph_order_early(order, n);
        gv_range_set_settle(&sets[n]);
        if (sets[n].count && point != n)
            streams[count++] =
                (gv_race_stream){.point = point, .kind = kind, .ranges = sets[n].ranges, .count = sets[n].count};
    }
    return count;
}

gv_status gv_race_find(const gv_race_input *input, gv_race_group **groups, size_t *group_count,
                       gv_race_undecided *undecided, gv_error *error)
{
    *groups = NULL;
    *group_count = 0;
    gv_graph_order *order;
    gv_status status =
        gv_graph_order_build(input->node_count, input->edges, input->edge_count, input->dependencies, &order, error);
    if (status)
        return status;
    gv_race_subject subject = {.order = order,
                               .node_count = input->node_count,
                               .dependencies = input->dependencies,
                               .made = input->made,
                               .precision = input->precision};
    gv_race_pair_list pairs = {0};
    gv_race_undecided ignored;
    gv_race_stream *streams = gv_calloc(input->node_count, 6 * sizeof *streams);
    if (streams) {
        size_t count = add_streams(streams, 0, input, input->reads, GV_RACE_READ, GV_RACE_TIGHT_READ);
        count = add_streams(streams, count, input, input->writes, GV_RACE_WRITE, GV_RACE_TIGHT_WRITE);
        count = add_streams(streams, count, input, input->atomics, GV_RACE_ATOMIC, GV_RACE_ATOMIC);
        count = add_early_streams(streams, count, order, input->node_count, input->early_reads, GV_RACE_READ);
        count = add_early_streams(streams, count, order, input->node_count, input->early_writes, GV_RACE_WRITE);
        count = add_early_streams(streams, count, order, input->node_count, input->early_atomics, GV_RACE_ATOMIC);
        status = gv_race_sweep(&subject, streams, count, &pairs, undecided ? undecided : &ignored, error);
    } else {
        status = out_of_memory(error);
    }
    if (!status)
        status = gv_race_group_pairs(&subject, &pairs, groups, group_count, error);
    gv_race_pair_list_free(&pairs);
    gv_free(streams);
    gv_graph_order_free(order);
    return status;
}

// ---- The accesses of one launch ---------------------------------------------------------------------------------

// The streams of a launch, by point of its flat graph. Where a node has several access records, their ranges are united
// by kind.
typedef struct launch_input {
    gv_race_stream *streams;
    size_t stream_count;
    gv_range_set *united;
    size_t united_count;
    enum gv_access_precision *precision; // incomplete, or exact: extents are kinds of their own
    bool extents;                        // some node has tight ones
} launch_input;

static void launch_input_free(launch_input *input)
{
    for (size_t i = 0; i < input->united_count; i++)
        gv_range_set_free(&input->united[i]);
    gv_free(input->united);
    gv_free(input->streams);
    gv_free(input->precision);
    *input = (launch_input){0};
}

static int by_point_and_kind(const void *left, const void *right)
{
    const gv_race_stream *a = left, *b = right;
    if (a->point != b->point)
        return a->point < b->point ? -1 : 1;
    return a->kind < b->kind ? -1 : a->kind > b->kind;
}

static bool is_tight(const gv_access *access)
{
    return access->precision == GV_PRECISION_EXTENT && access->source == GV_SOURCE_TENSOR_MAP;
}

// What a node accesses before its wait counts at its early point and, as a part of all it accesses, at its own too:
// whatever conflicts with the latter conflicts with the former.
static void add_record(launch_input *input, const gv_graph_order *order, const gv_access *access, uint32_t node)
{
    const gv_bytes fields[] = {access->reads, access->writes, access->atomics};
    const gv_bytes early_fields[] = {access->early_reads, access->early_writes, access->early_atomics};
    uint32_t early = gv_graph_order_early(order, node);
    static const uint8_t happened[] = {GV_RACE_READ, GV_RACE_WRITE, GV_RACE_ATOMIC};
    static const uint8_t changed[] = {GV_RACE_READ, GV_RACE_CHANGE, GV_RACE_ATOMIC};
    static const uint8_t tight[] = {GV_RACE_TIGHT_READ, GV_RACE_TIGHT_WRITE, GV_RACE_TIGHT_WRITE};
    static const uint8_t loose[] = {GV_RACE_LOOSE_READ, GV_RACE_LOOSE_WRITE, GV_RACE_LOOSE_WRITE};
    const uint8_t *kinds = is_tight(access)                           ? tight
                           : access->precision == GV_PRECISION_EXTENT ? loose
                           : access->source == GV_SOURCE_CHANGED      ? changed
                                                                      : happened;
    input->extents |= is_tight(access);
    for (size_t k = 0; k < 3; k++) {
        if (early_fields[k].length && early != node)
            input->streams[input->stream_count++] =
                (gv_race_stream){.point = early, .kind = kinds[k], .encoded = early_fields[k]};
        if (!fields[k].length)
            continue;
        input->streams[input->stream_count++] = (gv_race_stream){.point = node, .kind = kinds[k], .encoded = fields[k]};
        if (access->precision == GV_PRECISION_INCOMPLETE)
            input->precision[node] = GV_PRECISION_INCOMPLETE;
    }
}

// Puts the records of one point and kind together; `streams` are sorted.
static gv_status unite(launch_input *input, gv_error *error)
{
    size_t kept = 0, count = input->stream_count;
    for (size_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && by_point_and_kind(&input->streams[i], &input->streams[next]) == 0;)
            next++;
        gv_race_stream stream = input->streams[i];
        if (next > i + 1) {
            gv_range_set *all = &input->united[input->united_count++];
            for (size_t k = i; k < next; k++) {
                gv_range_cursor cursor = gv_range_cursor_open(input->streams[k].encoded);
                for (gv_range range; gv_range_cursor_next(&cursor, &range);) {
                    gv_status status = gv_range_set_add(all, range.start, range.end, error);
                    if (status)
                        return status;
                }
            }
            gv_range_set_settle(all);
            stream.ranges = all->ranges;
            stream.count = all->count;
        }
        input->streams[kept++] = stream;
    }
    input->stream_count = kept;
    return GV_OK;
}

static gv_status read_launch(const gv_trace *trace, const gv_flat_graph *flat, const gv_graph_order *order,
                             const gv_armed *armed, launch_input *input, gv_error *error)
{
    *input = (launch_input){0};
    const gv_access *rows = trace->accesses + armed->first_access;
    // A snapshot that several child nodes run has its rows once for all of them.
    size_t most = 0;
    for (size_t r = 0; r < armed->access_count; r++) {
        size_t uses;
        gv_flat_instances_in(flat, rows[r].graph, rows[r].execution, &uses);
        most += uses;
    }
    input->streams = gv_calloc(most, 6 * sizeof *input->streams);
    input->united = gv_calloc(most, 6 * sizeof *input->united);
    input->precision = gv_calloc(flat->node_count, sizeof *input->precision);
    if (!input->streams || !input->united || !input->precision)
        return out_of_memory(error);
    for (size_t r = 0; r < armed->access_count; r++) {
        size_t uses;
        const uint32_t *instances = gv_flat_instances_in(flat, rows[r].graph, rows[r].execution, &uses);
        for (size_t i = 0; i < uses && rows[r].node < trace->graphs[rows[r].graph].node_count; i++)
            add_record(input, order, &rows[r], flat->instances[instances[i]].first + rows[r].node);
    }
    qsort(input->streams, input->stream_count, sizeof *input->streams, by_point_and_kind);
    return unite(input, error);
}

// ---- Races with an extent ---------------------------------------------------------------------------------------

// Bytes that an encoded list of ranges has, and how many of them are in `set`.
static void count_common(gv_bytes encoded, const gv_range_set *set, uint64_t *bytes, uint64_t *common)
{
    gv_range_cursor cursor = gv_range_cursor_open(encoded);
    size_t at = 0;
    for (gv_range range; gv_range_cursor_next(&cursor, &range);) {
        *bytes += range.end - range.start;
        while (at < set->count && set->ranges[at].end <= range.start)
            at++;
        for (size_t i = at; i < set->count && set->ranges[i].start < range.end; i++) {
            uint64_t start = set->ranges[i].start > range.start ? set->ranges[i].start : range.start;
            uint64_t end = set->ranges[i].end < range.end ? set->ranges[i].end : range.end;
            *common += end - start;
        }
    }
}

// Does the pair conflict on at least half of a tensor that `node` has a map of? A kernel that is given a map of a
// matrix reads all of it; one that is given a map of a whole cache of pages reads the pages its sequences have. A write
// to a few rows of a tensor is as likely beside what the kernel touches as on it, and does not make a race.
static bool meets_a_tensor(const gv_trace *trace, const gv_flat_graph *flat, const gv_armed *armed, uint32_t node,
                           const gv_range_set *ranges)
{
    gv_flat_node at = flat->nodes[node];
    uint64_t graph = flat->instances[at.instance].graph, execution = flat->instances[at.instance].execution;
    for (size_t r = 0; r < armed->access_count; r++) {
        const gv_access *access = &trace->accesses[armed->first_access + r];
        if (access->graph != graph || access->node != at.index || access->execution != execution || !is_tight(access))
            continue;
        const gv_bytes fields[] = {access->reads, access->writes};
        for (size_t k = 0; k < 2; k++) {
            uint64_t bytes = 0, common = 0;
            count_common(fields[k], ranges, &bytes, &common);
            if (common && common >= bytes / 2)
                return true;
        }
    }
    return false;
}

// Takes the pairs out of `found` whose extent the other side meets in a small part only, and counts them as overlaps.
static void take_overlaps(const gv_trace *trace, const gv_flat_graph *flat, const gv_armed *armed,
                          gv_race_pair_list *found, gv_race_undecided *undecided)
{
    size_t kept = 0;
    for (size_t i = 0; i < found->count; i++) {
        gv_race_pair *pair = &found->items[i];
        bool first = pair->first.precision == GV_PRECISION_EXTENT,
             second = pair->second.precision == GV_PRECISION_EXTENT;
        if ((first && !meets_a_tensor(trace, flat, armed, pair->first.node, &pair->ranges)) ||
            (second && !meets_a_tensor(trace, flat, armed, pair->second.node, &pair->ranges))) {
            // Pairs come by the order of making, so that the first of them is as good an example as any.
            if (!undecided->overlaps++) {
                undecided->overlap_first = pair->first.node;
                undecided->overlap_second = pair->second.node;
            }
            gv_range_set_free(&pair->ranges);
            continue;
        }
        found->items[kept++] = *pair;
    }
    found->count = kept;
}

// ---- Graphs of one structure ------------------------------------------------------------------------------------

// An armed launch that is to be looked at.
typedef struct candidate {
    const gv_armed *armed;
    size_t snapshot; // index in the table of snapshots
} candidate;

// An armed snapshot, laid out.
typedef struct snapshot {
    uint64_t graph;
    gv_flat_graph flat;
    uint64_t fingerprint;
    size_t first_alike; // index of the first snapshot of the same structure
    bool undecided;     // a launch of it had pairs that only programmatic edges order
    bool overlaps;      // a launch of it had pairs whose extents overlap
} snapshot;

// Where a pair was seen: the launch that showed it first, and how many did.
typedef struct sighting {
    uint64_t key; // first node << 32 | second node
    size_t candidate;
    size_t launches;
} sighting;

typedef struct detection {
    const gv_trace *trace;
    gv_findings *findings;
    gv_error *error;
    snapshot *snapshots;
    size_t snapshot_count;
    candidate *candidates; // in file order
    size_t candidate_count;
    // of the structure at hand
    gv_race_pair_list pairs;
    sighting *sightings; // sorted by key
    size_t sighting_count, sighting_capacity;
    enum gv_access_precision *precision;
} detection;

static uint64_t key_of(const gv_race_pair *pair)
{
    return (uint64_t)pair->first.node << 32 | pair->second.node;
}

static int by_key(const void *left, const void *right)
{
    const sighting *a = left, *b = right;
    return a->key < b->key ? -1 : a->key > b->key;
}

static sighting *find_sighting(const detection *d, uint64_t key)
{
    sighting wanted = {.key = key};
    return d->sighting_count ? bsearch(&wanted, d->sightings, d->sighting_count, sizeof wanted, by_key) : NULL;
}

// Adds an incomplete finding about a whole graph.
static gv_status add_incomplete(detection *d, enum gv_incomplete_kind kind, uint64_t graph, size_t affected,
                                const char *reason)
{
    gv_finding finding = {
        .id = GV_FINDING_INCOMPLETE, .incomplete = kind, .trace = d->trace, .graph = graph, .affected = affected};
    return gv_findings_add_incomplete(d->findings, finding, reason) ? GV_OK : out_of_memory(d->error);
}

// Takes over the pairs of one launch that no earlier launch of the structure has shown.
static gv_status merge(detection *d, size_t shown_by, gv_race_pair_list *found)
{
    size_t known = d->sighting_count;
    for (size_t i = 0; i < found->count; i++) {
        gv_race_pair *pair = &found->items[i];
        sighting wanted = {.key = key_of(pair), .candidate = shown_by, .launches = 1};
        sighting *seen = known ? bsearch(&wanted, d->sightings, known, sizeof wanted, by_key) : NULL;
        if (seen) {
            seen->launches++;
            continue;
        }
        if (!GV_GROW(d->sightings, d->sighting_capacity, d->sighting_count + 1) ||
            !GV_GROW(d->pairs.items, d->pairs.capacity, d->pairs.count + 1))
            return out_of_memory(d->error);
        d->sightings[d->sighting_count++] = wanted;
        d->pairs.items[d->pairs.count++] = *pair;
        pair->ranges = (gv_range_set){0};
    }
    if (d->sighting_count > known)
        qsort(d->sightings, d->sighting_count, sizeof *d->sightings, by_key);
    d->pairs.limited |= found->limited;
    return GV_OK;
}

// Why the wait of one of the example's nodes was not observed, or NULL. If a kernel between the two is the one that was
// not, what is said of it is in its own row of `gravel show FILE access`.
static const char *why_not_observed(const detection *d, const snapshot *from, uint32_t first, uint32_t second)
{
    const uint32_t nodes[] = {second, first};
    for (size_t n = 0; n < 2; n++) {
        gv_flat_node at = from->flat.nodes[nodes[n]];
        uint64_t graph = from->flat.instances[at.instance].graph;
        for (size_t c = 0; c < d->candidate_count; c++) {
            if (d->candidates[c].snapshot != (size_t)(from - d->snapshots))
                continue;
            const gv_armed *armed = d->candidates[c].armed;
            const gv_access *rows = d->trace->accesses + armed->first_access;
            for (size_t r = 0; r < armed->access_count; r++)
                if (rows[r].graph == graph && rows[r].node == at.index && rows[r].wait_reason)
                    return rows[r].wait_reason;
        }
    }
    return NULL;
}

// An incomplete finding about `pairs` undecided pairs of a snapshot, with an example.
static gv_status report_undecided(detection *d, const snapshot *from, enum gv_incomplete_kind kind, size_t pairs,
                                  uint32_t a, uint32_t b)
{
    if (!pairs)
        return GV_OK;
    uint32_t first, second;
    uint32_t common = gv_flat_common(&from->flat, a, b, &first, &second);
    uint64_t graph = from->flat.instances[common].graph;
    bool one = pairs == 1, programmatic = kind == GV_INCOMPLETE_PROGRAMMATIC;
    const char *why = programmatic ? why_not_observed(d, from, a, b) : NULL;
    char reason[512];
    snprintf(reason, sizeof reason, "%s%zu %s %s %s, such as nodes %u and %u%s%s",
             pairs >= GV_RACE_UNDECIDED_LIMIT ? "at least " : "", pairs, programmatic ? "conflicting" : "unordered",
             one ? "pair of nodes" : "pairs of nodes",
             programmatic ? (one ? "is ordered by programmatic edges only" : "are ordered by programmatic edges only")
                          : "may touch the same bytes, but what they touch is known only as an upper bound",
             first, second, why ? ": " : "", why ? why : "");
    gv_status status = add_incomplete(d, kind, graph, pairs, reason);
    if (!status) {
        gv_finding *added = &d->findings->items[d->findings->count - 1];
        added->node = (uint64_t)first + 1;
        added->edge_from = first;
        added->edge_to = second;
        for (size_t i = 0; i < d->snapshot_count; i++) {
            const snapshot *other = &d->snapshots[i];
            added->alike += other != from && (programmatic ? other->undecided : other->overlaps) &&
                            other->first_alike == from->first_alike;
        }
    }
    return status;
}

// Turns flat places into snapshot and node.
static void place_side(gv_side *side, const gv_flat_graph *flat)
{
    gv_flat_node at = flat->nodes[side->node];
    side->graph = flat->instances[at.instance].graph;
    side->node = at.index;
}

// Turns a group into a finding, which takes over its pairs.
static gv_status report_group(detection *d, gv_race_group *group)
{
    const sighting *lead = find_sighting(d, key_of(&group->pairs[0]));
    const candidate *shown = &d->candidates[lead->candidate];
    const gv_flat_graph *flat = &d->snapshots[shown->snapshot].flat;
    gv_finding *finding = gv_findings_add(d->findings);
    if (!finding)
        return out_of_memory(d->error);
    uint32_t common = gv_flat_common(flat, group->edge_from, group->edge_to, &finding->edge_from, &finding->edge_to);
    finding->trace = d->trace;
    finding->path = group->path;
    finding->id = group->pairs[0].id;
    finding->confidence = gv_race_confidence(&group->pairs[0]);
    finding->graph = flat->instances[common].graph;
    finding->launch = shown->armed->launch;
    finding->affected = lead->launches;
    // A trace that was put together by hand has no index of lives.
    if (d->trace->storage)
        finding->allocation =
            gv_trace_allocation_at(d->trace, group->pairs[0].ranges.ranges[0].start, shown->armed->launch);
    for (size_t i = 0; i < group->pair_count; i++) {
        const sighting *seen = find_sighting(d, key_of(&group->pairs[i]));
        const gv_flat_graph *in = &d->snapshots[d->candidates[seen->candidate].snapshot].flat;
        place_side(&group->pairs[i].first, in);
        place_side(&group->pairs[i].second, in);
    }
    finding->pairs = group->pairs;
    finding->pair_count = group->pair_count;
    group->pairs = NULL;
    group->pair_count = 0;
    return GV_OK;
}

// The most undecided pairs that one launch had, and which snapshot it was of.
typedef struct most_undecided {
    gv_race_undecided counts;
    size_t programmatic_in, overlaps_in;
} most_undecided;

static void note_undecided(detection *d, size_t in, const gv_race_undecided *undecided, most_undecided *most)
{
    d->snapshots[in].undecided |= undecided->pairs > 0;
    d->snapshots[in].overlaps |= undecided->overlaps > 0;
    if (undecided->pairs > most->counts.pairs) {
        most->counts.pairs = undecided->pairs;
        most->counts.first = undecided->first;
        most->counts.second = undecided->second;
        most->programmatic_in = in;
    }
    if (undecided->overlaps > most->counts.overlaps) {
        most->counts.overlaps = undecided->overlaps;
        most->counts.overlap_first = undecided->overlap_first;
        most->counts.overlap_second = undecided->overlap_second;
        most->overlaps_in = in;
    }
}

// Looks at every launch of one structure and gathers the pairs.
static gv_status search_launches(detection *d, size_t structure, const gv_race_subject *subject, most_undecided *most)
{
    gv_status status = GV_OK;
    for (size_t c = 0; c < d->candidate_count && !status; c++) {
        const snapshot *from = &d->snapshots[d->candidates[c].snapshot];
        if (from->first_alike != structure)
            continue;
        const gv_armed *armed = d->candidates[c].armed;
        gv_race_unrolled unrolled;
        launch_input input;
        gv_race_pair_list found = {0};
        gv_race_undecided undecided = {0};
        gv_error why = {0};
        status = gv_race_unroll(d->trace, armed, &from->flat, subject, &unrolled, &why);
        if (status) {
            // A launch that cannot be laid out is the incomplete detector's business.
            status = status == GV_ERR_MEMORY ? out_of_memory(d->error) : GV_OK;
            continue;
        }
        status = read_launch(d->trace, unrolled.flat, unrolled.subject.order, armed, &input, d->error);
        unrolled.subject.precision = input.precision;
        if (!status)
            status = gv_race_sweep(&unrolled.subject, input.streams, input.stream_count, &found, &undecided, d->error);
        if (!status && input.extents)
            take_overlaps(d->trace, unrolled.flat, armed, &found, &undecided);
        if (!status)
            status = gv_race_fold(&unrolled, &found, &undecided, d->error);
        if (!status)
            status = merge(d, c, &found);
        note_undecided(d, d->candidates[c].snapshot, &undecided, most);
        gv_race_pair_list_free(&found);
        launch_input_free(&input);
        gv_race_unrolled_free(&unrolled);
    }
    return status;
}

static gv_status report_structure(detection *d, size_t structure, const gv_race_subject *subject)
{
    gv_race_group *groups = NULL;
    size_t group_count = 0;
    bool limited = d->pairs.limited;
    gv_status status = gv_race_group_pairs(subject, &d->pairs, &groups, &group_count, d->error);
    for (size_t i = 0; i < group_count && !status; i++)
        status = report_group(d, &groups[i]);
    gv_race_groups_free(groups, group_count);
    if (!status && limited) {
        char reason[120];
        snprintf(reason, sizeof reason, "more than %d pairs of nodes race; the others are not listed",
                 GV_RACE_PAIR_LIMIT);
        status = add_incomplete(d, GV_INCOMPLETE_GRAPH, d->snapshots[structure].graph, 1, reason);
    }
    return status;
}

// Marks the nodes that programmatic edges lead to, whose waits count. False when there are none.
static bool mark_consumers(const gv_flat_graph *flat, bool *consumers)
{
    bool any = false;
    for (size_t e = 0; e < flat->edge_count; e++)
        if (flat->edges[e].type != 0 || flat->edges[e].from_port == 1)
            any = consumers[flat->edges[e].to] = true;
    return any;
}

// What the records of one launch say of a node's wait, on top of what other launches of the structure have said: where
// two differ, it is not known.
static void add_dependency(gv_grid_dependency *known, bool *seen, gv_grid_dependency now)
{
    if (!*seen) {
        *known = now;
    } else {
        known->wait = known->wait == now.wait ? now.wait : GV_GRID_WAIT_UNKNOWN;
        known->trigger = known->trigger == now.trigger ? now.trigger : GV_GRID_TRIGGER_UNKNOWN;
        known->early |= now.early;
    }
    *seen = true;
}

// A node's records in one launch; of several, one speaks of its wait.
typedef struct launch_dependency {
    gv_grid_dependency said;
    bool recorded, spoken;
} launch_dependency;

static void read_dependencies(const detection *d, const candidate *of, const bool *consumers, launch_dependency *now)
{
    const gv_flat_graph *flat = &d->snapshots[of->snapshot].flat;
    const gv_access *rows = d->trace->accesses + of->armed->first_access;
    for (size_t r = 0; r < of->armed->access_count; r++) {
        size_t uses;
        const uint32_t *instances = gv_flat_instances_of(flat, rows[r].graph, &uses);
        for (size_t i = 0; i < uses && rows[r].node < d->trace->graphs[rows[r].graph].node_count; i++) {
            uint32_t node = flat->instances[instances[i]].first + rows[r].node;
            if (!consumers[node])
                continue;
            now[node].recorded = true;
            if (rows[r].wait == GV_GRID_WAIT_UNKNOWN)
                continue;
            gv_grid_dependency said = {.wait = (uint8_t)rows[r].wait,
                                       .trigger = (uint8_t)rows[r].trigger,
                                       .early = rows[r].early_reads.length || rows[r].early_writes.length ||
                                                rows[r].early_atomics.length};
            // A node of a loop has records for each iteration.
            add_dependency(&now[node].said, &now[node].spoken, said);
        }
    }
}

// What was observed of the waits of a structure's nodes, in all its launches. *dependencies stays NULL when no node has
// any need to wait.
static gv_status gather_dependencies(detection *d, size_t structure, gv_grid_dependency **dependencies)
{
    const gv_flat_graph *first = &d->snapshots[structure].flat;
    bool *consumers = gv_calloc(first->node_count, sizeof *consumers);
    bool *seen = gv_calloc(first->node_count, sizeof *seen);
    launch_dependency *now = gv_calloc(first->node_count, sizeof *now);
    gv_status status = consumers && seen && now ? GV_OK : out_of_memory(d->error);
    if (!status && mark_consumers(first, consumers)) {
        *dependencies = gv_calloc(first->node_count, sizeof **dependencies);
        status = *dependencies ? GV_OK : out_of_memory(d->error);
    }
    for (size_t c = 0; *dependencies && c < d->candidate_count; c++) {
        if (d->snapshots[d->candidates[c].snapshot].first_alike != structure)
            continue;
        memset(now, 0, first->node_count * sizeof *now);
        read_dependencies(d, &d->candidates[c], consumers, now);
        for (size_t n = 0; n < first->node_count; n++)
            if (now[n].recorded)
                add_dependency(&(*dependencies)[n], &seen[n], now[n].said);
    }
    gv_free(consumers);
    gv_free(seen);
    gv_free(now);
    return status;
}

static gv_status detect_in_order(detection *d, size_t structure, const gv_graph_order *order,
                                 const gv_grid_dependency *dependencies)
{
    const snapshot *first = &d->snapshots[structure];
    gv_race_subject subject = {
        .order = order, .node_count = first->flat.node_count, .dependencies = dependencies, .made = first->flat.made};
    most_undecided most = {0};
    gv_status status = search_launches(d, structure, &subject, &most);
    // The pairs carry the precision of their sides; the subject's belonged to a launch.
    subject.precision = NULL;
    if (!status)
        status = report_structure(d, structure, &subject);
    if (!status)
        status = report_undecided(d, &d->snapshots[most.programmatic_in], GV_INCOMPLETE_PROGRAMMATIC, most.counts.pairs,
                                  most.counts.first, most.counts.second);
    if (!status)
        status = report_undecided(d, &d->snapshots[most.overlaps_in], GV_INCOMPLETE_OVERLAP, most.counts.overlaps,
                                  most.counts.overlap_first, most.counts.overlap_second);
    gv_race_pair_list_free(&d->pairs);
    d->sighting_count = 0;
    return status;
}

static gv_status detect_structure(detection *d, size_t structure)
{
    const snapshot *first = &d->snapshots[structure];
    gv_grid_dependency *dependencies = NULL;
    gv_graph_order *order = NULL;
    gv_error why = {0};
    gv_status status = gather_dependencies(d, structure, &dependencies);
    if (!status) {
        status = gv_graph_order_build(first->flat.node_count, first->flat.edges, first->flat.edge_count, dependencies,
                                      &order, &why);
        if (status == GV_ERR_MEMORY)
            status = out_of_memory(d->error);
        else if (status)
            status = add_incomplete(d, GV_INCOMPLETE_GRAPH, first->graph, 1, why.text);
        else
            status = detect_in_order(d, structure, order, dependencies);
    }
    gv_graph_order_free(order);
    gv_free(dependencies);
    return status;
}

// ---- All launches of a trace ------------------------------------------------------------------------------------

// Order by fingerprint first, so that snapshots of one structure lie side by side.
static int by_fingerprint(const void *left, const void *right)
{
    const snapshot *a = *(snapshot *const *)left, *b = *(snapshot *const *)right;
    if (a->fingerprint != b->fingerprint)
        return a->fingerprint < b->fingerprint ? -1 : 1;
    return a < b ? -1 : a > b;
}

// Finds for each snapshot the first one of the same structure.
static gv_status find_alike(detection *d)
{
    snapshot **sorted = gv_calloc(d->snapshot_count, sizeof *sorted);
    if (!sorted)
        return out_of_memory(d->error);
    for (size_t i = 0; i < d->snapshot_count; i++)
        sorted[i] = &d->snapshots[i];
    qsort(sorted, d->snapshot_count, sizeof *sorted, by_fingerprint);
    for (size_t i = 0; i < d->snapshot_count; i++) {
        sorted[i]->first_alike = (size_t)(sorted[i] - d->snapshots);
        for (size_t k = i; k > 0 && sorted[k - 1]->fingerprint == sorted[i]->fingerprint; k--) {
            if (gv_flat_same_structure(d->trace, &sorted[k - 1]->flat, &sorted[i]->flat)) {
                sorted[i]->first_alike = sorted[k - 1]->first_alike;
                break;
            }
        }
    }
    gv_free(sorted);
    return GV_OK;
}

// Lays out the graphs of all launches that were recorded, to their end or not. Graphs whose order cannot be known are
// the incomplete detector's business.
static gv_status gather(detection *d)
{
    const gv_trace *trace = d->trace;
    size_t *snapshot_of = gv_calloc(trace->graph_count, sizeof *snapshot_of); // plus 1; SIZE_MAX: cannot be laid out
    d->snapshots = gv_calloc(trace->armed_count, sizeof *d->snapshots);
    d->candidates = gv_calloc(trace->armed_count, sizeof *d->candidates);
    gv_status status = snapshot_of && d->snapshots && d->candidates ? GV_OK : out_of_memory(d->error);
    for (size_t i = 0; i < trace->armed_count && !status; i++) {
        const gv_armed *armed = &trace->armed[i];
        if (armed->status == GV_ARMED_REFUSED || !armed->access_count || !armed->graph ||
            armed->graph >= trace->graph_count)
            continue;
        size_t *at = &snapshot_of[armed->graph];
        if (!*at) {
            snapshot *added = &d->snapshots[d->snapshot_count];
            gv_error why = {0};
            gv_status laid_out = gv_flatten(trace, armed->graph, &added->flat, &why);
            if (laid_out == GV_ERR_MEMORY)
                status = out_of_memory(d->error);
            if (laid_out) {
                *at = SIZE_MAX;
                continue;
            }
            added->graph = armed->graph;
            added->fingerprint = gv_flat_fingerprint(trace, &added->flat);
            *at = ++d->snapshot_count;
        }
        if (*at != SIZE_MAX)
            d->candidates[d->candidate_count++] = (candidate){.armed = armed, .snapshot = *at - 1};
    }
    gv_free(snapshot_of);
    return status ? status : find_alike(d);
}

gv_status gv_detect_race(const gv_trace *trace, gv_findings *findings, gv_error *error)
{
    detection d = {.trace = trace, .findings = findings, .error = error};
    gv_status status = gather(&d);
    for (size_t i = 0; i < d.snapshot_count && !status; i++) {
        if (d.snapshots[i].first_alike == i)
            status = detect_structure(&d, i);
    }
    for (size_t i = 0; i < d.snapshot_count; i++)
        gv_flat_graph_free(&d.snapshots[i].flat);
    gv_free(d.snapshots);
    gv_free(d.candidates);
    gv_free(d.sightings);
    return status;
}
