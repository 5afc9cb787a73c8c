// Reads of scratch memory that nothing has written: bytes that the program declared to hold nothing between launches
// (gravel_scratch), read by a node of a recorded launch although no node ordered before it wrote them. From the exact
// access sets of armed launches; what poison showed of the same node becomes one finding with it.
#include "base/memory.h"
#include "detect/detect.h"
#include "detect/flatten.h"

#include <string.h>

// What a node does to scratch memory.
typedef struct use {
    uint32_t node; // flat
    gv_range_set reads, writes;
} use;

typedef struct looking {
    const gv_trace *trace;
    const gv_armed *armed;
    gv_findings *findings;
    gv_error *error;
    gv_range_set scratch;
    gv_flat_graph flat;
    gv_graph_order *order;
    use *uses;
    size_t count, capacity;
    bool incomplete; // some node may write what no record says
} looking;

static gv_status out_of_memory(looking *l)
{
    return gv_fail(l->error, GV_ERR_MEMORY, "out of memory while reads of scratch memory were looked at");
}

// A launch that uses more nodes than this is looked at by its first ones: each is compared with all.
enum { MOST_USES = 1 << 14 };

// ---- Scratch memory ----------------------------------------------------------------------------------------------

static const gv_declared *declared_at(const gv_trace *trace, uint64_t address)
{
    for (size_t i = trace->declared_count; i > 0; i--) {
        const gv_declared *d = &trace->declared[i - 1];
        if (d->flags & GV_DECLARED_SCRATCH && address >= d->address && address - d->address < d->row_bytes * d->rows)
            return d;
    }
    return NULL;
}

// A declaration holds from its call on, as long as the memory is allocated.
static gv_status list_scratch(looking *l)
{
    const gv_trace *trace = l->trace;
    gv_status status = GV_OK;
    for (size_t i = 0; i < trace->declared_count && !status; i++) {
        const gv_declared *d = &trace->declared[i];
        if (!(d->flags & GV_DECLARED_SCRATCH) || d->operation > l->armed->launch ||
            gv_trace_allocation_at(trace, d->address, d->operation + 1) !=
                gv_trace_allocation_at(trace, d->address, l->armed->launch))
            continue;
        status = gv_range_set_add(&l->scratch, d->address, d->address + d->row_bytes * d->rows, l->error);
    }
    gv_range_set_settle(&l->scratch);
    return status;
}

// ---- Accesses ----------------------------------------------------------------------------------------------------

// Adds what of an encoded set lies in scratch memory.
static gv_status add(looking *l, gv_range_set *to, gv_bytes encoded)
{
    gv_range_set all = {0}, inside = {0};
    gv_status status = gv_range_set_decode(&all, encoded, l->error);
    if (!status)
        status = gv_range_set_intersection(&all, &l->scratch, &inside, l->error);
    for (size_t i = 0; i < inside.count && !status; i++)
        status = gv_range_set_add(to, inside.ranges[i].start, inside.ranges[i].end, l->error);
    gv_range_set_settle(to);
    gv_range_set_free(&all);
    gv_range_set_free(&inside);
    return status;
}

static gv_status use_of(looking *l, uint32_t node, use **found)
{
    for (size_t i = l->count; i > 0; i--)
        if (l->uses[i - 1].node == node) {
            *found = &l->uses[i - 1];
            return GV_OK;
        }
    if (!GV_GROW(l->uses, l->capacity, l->count + 1))
        return out_of_memory(l);
    *found = &l->uses[l->count++];
    **found = (use){.node = node};
    return GV_OK;
}

static bool touches(looking *l, gv_bytes encoded)
{
    gv_range_cursor cursor = gv_range_cursor_open(encoded);
    for (gv_range range; gv_range_cursor_next(&cursor, &range);)
        for (size_t i = 0; i < l->scratch.count; i++)
            if (l->scratch.ranges[i].start < range.end && range.start < l->scratch.ranges[i].end)
                return true;
    return false;
}

static gv_status list_uses(looking *l)
{
    gv_status status = GV_OK;
    for (size_t r = 0; r < l->armed->access_count && !status; r++) {
        const gv_access *access = &l->trace->accesses[l->armed->first_access + r];
        size_t count = 0;
        l->incomplete |= access->precision == GV_PRECISION_INCOMPLETE;
        const uint32_t *instances = gv_flat_instances_in(&l->flat, access->graph, access->execution, &count);
        if (!count || l->count >= MOST_USES ||
            (!touches(l, access->reads) && !touches(l, access->writes) && !touches(l, access->atomics)))
            continue;
        use *to = NULL;
        status = use_of(l, l->flat.instances[instances[0]].first + access->node, &to);
        // What is known by an extent may have been written, and is not known to have been read.
        bool exact = access->precision == GV_PRECISION_EXACT;
        if (!status && exact)
            status = add(l, &to->reads, access->reads);
        // An atomic update of what nobody has written counts on from there.
        if (!status && exact)
            status = add(l, &to->reads, access->atomics);
        if (!status)
            status = add(l, &to->writes, access->writes);
    }
    return status;
}

// ---- Findings ----------------------------------------------------------------------------------------------------

// What poison, or an earlier launch, has shown of the same node.
static gv_finding *find_known(looking *l, uint64_t graph, uint64_t node)
{
    for (size_t i = 0; i < l->findings->count; i++) {
        gv_finding *finding = &l->findings->items[i];
        if (finding->id == GV_FINDING_STALE_READ && finding->trace == l->trace && finding->graph == graph &&
            finding->node == node)
            return finding;
    }
    return NULL;
}

static gv_status set_source(looking *l, gv_finding *finding)
{
    for (size_t i = 0; i < finding->fact_count; i++)
        if (strcmp(finding->facts[i].key, "source") == 0) {
            char *both = gv_strdup("access-sets,poison");
            if (!both)
                return out_of_memory(l);
            gv_free(finding->facts[i].text);
            finding->facts[i].text = both;
            return GV_OK;
        }
    return gv_finding_add_text(finding, "source", "access-sets") ? GV_OK : out_of_memory(l);
}

// Takes over the ranges.
static gv_status report(looking *l, uint32_t flat_node, gv_range_set *stale)
{
    gv_flat_node at = l->flat.nodes[flat_node];
    uint64_t graph = l->flat.instances[at.instance].graph, node = (uint64_t)at.index + 1;
    gv_finding *finding = find_known(l, graph, node);
    const gv_fact *source = finding ? gv_finding_fact(finding, "source") : NULL;
    // The first recorded launch that shows it has the bytes; further ones only count.
    if (source && strstr(source->text, "access-sets")) {
        finding->affected++;
        return GV_OK;
    }
    if (!finding) {
        const gv_declared *d = declared_at(l->trace, stale->ranges[0].start);
        finding = gv_findings_add(l->findings);
        if (!finding || !gv_finding_add_text(finding, "name", d && d->name ? d->name : ""))
            return out_of_memory(l);
        finding->id = GV_FINDING_STALE_READ;
        finding->confidence = l->incomplete ? GV_LIKELY : GV_CERTAIN;
        finding->trace = l->trace;
        finding->graph = graph;
        finding->node = node;
        finding->launch = l->armed->launch;
    }
    finding->affected++;
    gv_range_set_free(&finding->ranges);
    finding->ranges = *stale;
    *stale = (gv_range_set){0};
    finding->bytes = gv_range_set_bytes(&finding->ranges);
    finding->allocation = gv_trace_allocation_at(l->trace, finding->ranges.ranges[0].start, l->armed->launch);
    return set_source(l, finding);
}

// Takes from `left` what `written` has.
static gv_status subtract(looking *l, gv_range_set *left, const gv_range_set *written)
{
    gv_range_set rest = {0};
    gv_status status = gv_range_set_difference(left, written, &rest, l->error);
    if (status) {
        gv_range_set_free(&rest);
        return status;
    }
    gv_range_set_free(left);
    *left = rest;
    return GV_OK;
}

static gv_status look_at_reads(looking *l)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < l->count && !status; i++) {
        use *reader = &l->uses[i];
        // In which order a kernel reads and writes the same bytes is not recorded.
        if (reader->reads.count)
            status = subtract(l, &reader->reads, &reader->writes);
        for (size_t k = 0; k < l->count && !status && reader->reads.count; k++)
            if (k != i && l->uses[k].writes.count &&
                gv_graph_order_before(l->order, l->uses[k].node, reader->node) != GV_UNORDERED)
                status = subtract(l, &reader->reads, &l->uses[k].writes);
        if (!status && reader->reads.count)
            status = report(l, reader->node, &reader->reads);
    }
    return status;
}

static gv_status look_at_launch(const gv_trace *trace, const gv_armed *armed, gv_findings *findings, gv_error *error)
{
    looking l = {.trace = trace, .armed = armed, .findings = findings, .error = error};
    gv_error why = {0};
    gv_status status = list_scratch(&l);
    if (!status && l.scratch.count) {
        // What cannot be laid out or ordered is said by the race detector.
        gv_status laid_out = gv_flatten_launch(trace, armed, &l.flat, &why);
        if (!laid_out)
            laid_out = gv_graph_order_build(l.flat.node_count, l.flat.edges, l.flat.edge_count, NULL, &l.order, &why);
        if (laid_out == GV_ERR_MEMORY)
            status = out_of_memory(&l);
        else if (!laid_out) {
            status = list_uses(&l);
            if (!status)
                status = look_at_reads(&l);
        }
    }
    for (size_t i = 0; i < l.count; i++) {
        gv_range_set_free(&l.uses[i].reads);
        gv_range_set_free(&l.uses[i].writes);
    }
    gv_free(l.uses);
    gv_graph_order_free(l.order);
    gv_flat_graph_free(&l.flat);
    gv_range_set_free(&l.scratch);
    return status;
}

gv_status gv_detect_stale(const gv_trace *trace, gv_findings *findings, gv_error *error)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < trace->armed_count && trace->declared_count && !status; i++)
        if (trace->armed[i].status == GV_ARMED_COMPLETE)
            status = look_at_launch(trace, &trace->armed[i], findings, error);
    return status;
}
