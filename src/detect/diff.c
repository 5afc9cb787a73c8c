// The differential: launches whose memory came out otherwise than in a serial replay of their nodes. Which bytes
// differ, and which node wrote them last, the recorder has found out; here the differences are classed, joined over
// launches, and put beside the races of the same trace. docs/differential.md says what the classes mean.
#include "base/memory.h"
#include "detect/detect.h"
#include "detect/elements.h"
#include "detect/flatten.h"
#include "order/exec_index.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum class {
    EQUAL,     // within the tolerance
    UNDECIDED, // behind a node that is not deterministic
    NON_DETERMINISTIC,
    ORDER_DEPENDENT,
};

enum { FOLLOWERS_NAMED = 8 };

// One difference record of the launch at hand.
typedef struct verdict {
    const gv_difference *row;
    enum class class;
    const char *race; // id of a race that names the node, or NULL
    bool atomic;      // the node is recorded to update the bytes atomically
    // Elements, of what the record has values of.
    gv_dtype type;
    const char *type_from;
    uint64_t elements, first_index;
    bool whole; // it has the values of every differing byte
    double largest;
    char graph_value[40], serial_value[40];
} verdict;

// What launches of one graph have in common: the node that differs first, and how.
typedef struct group {
    uint64_t top, graph, node;
    enum class class;
    const gv_checked *shown;
    size_t launches;
} group;

typedef struct detection {
    const gv_trace *trace;
    gv_findings *findings;
    gv_error *error;
    gv_tolerance tolerance;
    verdict *verdicts; // of the launch at hand
    size_t capacity;
    group *groups;
    size_t group_count, group_capacity;
    // The order of the graph that was asked about last.
    uint64_t ordered;
    gv_flat_graph flat;
    gv_graph_order *order;
} detection;

static gv_status out_of_memory(gv_error *error)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory while differences were looked at");
}

static bool is_graph(const gv_trace *trace, uint64_t id)
{
    return id && id < trace->graph_count && trace->graphs[id].id == id;
}

// ---- Order -------------------------------------------------------------------------------------------------------

static void forget_order(detection *d)
{
    if (d->ordered)
        gv_flat_graph_free(&d->flat);
    gv_graph_order_free(d->order);
    d->order = NULL;
    d->ordered = 0;
}

static gv_status order_of(detection *d, uint64_t graph)
{
    if (d->ordered == graph)
        return GV_OK;
    forget_order(d);
    gv_status status = gv_flatten(d->trace, graph, &d->flat, NULL);
    if (status)
        return status == GV_ERR_MEMORY ? out_of_memory(d->error) : GV_OK;
    d->ordered = graph;
    status = gv_graph_order_build(d->flat.node_count, d->flat.edges, d->flat.edge_count, NULL, &d->order, NULL);
    return status == GV_ERR_MEMORY ? out_of_memory(d->error) : GV_OK;
}

static bool flat_node(const detection *d, const gv_difference *row, uint32_t *node)
{
    size_t uses = 0;
    const uint32_t *instances = d->order ? gv_flat_instances_of(&d->flat, row->graph, &uses) : NULL;
    if (!uses || !row->node)
        return false;
    *node = d->flat.instances[instances[0]].first + (uint32_t)(row->node - 1);
    return *node < d->flat.node_count;
}

// Do edges lead from the one node to the other? Without an order that is known, they may.
static bool may_follow(const detection *d, const gv_difference *from, const gv_difference *to)
{
    uint32_t a, b;
    if (!flat_node(d, from, &a) || !flat_node(d, to, &b))
        return true;
    return gv_graph_order_leads(d->order, a, b);
}

// ---- What is known of a node -------------------------------------------------------------------------------------

static const gv_node *node_of(const gv_trace *trace, uint64_t graph, uint64_t node)
{
    return is_graph(trace, graph) && node && node <= trace->graphs[graph].node_count
               ? &trace->graphs[graph].nodes[node - 1]
               : NULL;
}

static const char *kernel_name(const gv_trace *trace, const gv_node *node)
{
    return node && node->kind == GV_NODE_KERNEL && node->function < trace->function_count
               ? trace->functions[node->function].name
               : NULL;
}

// Snapshots of one graph, as updates make them, have the same nodes under the same numbers.
static bool same_node(const gv_trace *trace, const gv_side *side, uint64_t finding_graph, const gv_difference *row)
{
    uint64_t graph = side->graph ? side->graph : finding_graph;
    if (!row->node || side->node != row->node - 1)
        return false;
    if (graph == row->graph)
        return true;
    const gv_node *a = node_of(trace, graph, row->node), *b = node_of(trace, row->graph, row->node);
    return a && b && a->kind == b->kind && a->function == b->function &&
           trace->graphs[graph].node_count == trace->graphs[row->graph].node_count;
}

static const char *race_of(const detection *d, const gv_difference *row)
{
    for (size_t i = 0; i < d->findings->count; i++) {
        const gv_finding *finding = &d->findings->items[i];
        if (finding->trace != d->trace)
            continue;
        for (size_t p = 0; p < finding->pair_count; p++)
            if (same_node(d->trace, &finding->pairs[p].first, finding->graph, row) ||
                same_node(d->trace, &finding->pairs[p].second, finding->graph, row))
                return gv_finding_id_name(finding->pairs[p].id);
    }
    return NULL;
}

// A race whose nodes edges lead from to the node: what differs there may follow from it. Answers the pair that does, or
// NULL.
static const gv_race_pair *race_before(const detection *d, const gv_difference *row)
{
    for (size_t i = 0; i < d->findings->count; i++) {
        const gv_finding *finding = &d->findings->items[i];
        for (size_t p = 0; p < finding->pair_count && finding->trace == d->trace; p++) {
            const gv_side *sides[] = {&finding->pairs[p].first, &finding->pairs[p].second};
            for (size_t s = 0; s < 2; s++) {
                const gv_difference side = {.graph = sides[s]->graph ? sides[s]->graph : finding->graph,
                                            .node = (uint64_t)sides[s]->node + 1};
                uint32_t a, b;
                if (flat_node(d, &side, &a) && flat_node(d, row, &b) && gv_graph_order_leads(d->order, a, b))
                    return &finding->pairs[p];
            }
        }
    }
    return NULL;
}

// Is each of the listed bytes one that the node was recorded to update atomically?
static gv_status updates_atomically(const detection *d, const gv_difference *row, bool *atomic)
{
    gv_range_set bytes = {0};
    gv_status status = gv_range_set_decode(&bytes, row->ranges, d->error);
    *atomic = false;
    for (size_t i = 0; i < d->trace->access_count && !status && !*atomic && bytes.count; i++) {
        const gv_access *access = &d->trace->accesses[i];
        gv_range_set atomics = {0}, rest = {0};
        if (access->graph != row->graph || (uint64_t)access->node + 1 != row->node || !access->atomics.length)
            continue;
        status = gv_range_set_decode(&atomics, access->atomics, d->error);
        if (!status)
            status = gv_range_set_difference(&bytes, &atomics, &rest, d->error);
        *atomic = !status && !rest.count;
        gv_range_set_free(&atomics);
        gv_range_set_free(&rest);
    }
    gv_range_set_free(&bytes);
    return status;
}

// ---- Elements ----------------------------------------------------------------------------------------------------

// The last setting that fits counts: what the user has said last.
static void choose_type(const gv_trace *trace, verdict *v, const gv_allocation *allocation)
{
    const gv_node *node = node_of(trace, v->row->graph, v->row->node);
    const char *kernel = kernel_name(trace, node);
    bool declared = false;
    for (size_t i = 0; i < trace->setting_count; i++) {
        const gv_setting *s = &trace->settings[i];
        bool fits = !*s->name || (kernel && strstr(kernel, s->name)) ||
                    (allocation && allocation->name && strstr(allocation->name, s->name));
        if (s->kind == GV_SETTING_DTYPE && fits)
            declared |= gv_dtype_parse(s->value, &v->type);
    }
    v->type_from = "declared";
    if (declared)
        return;
    v->type = kernel ? gv_dtype_guess(kernel) : GV_DTYPE_NONE;
    v->type_from = v->type == GV_DTYPE_NONE ? "not known" : "guessed from the kernel's name";
}

static void compare_elements(const detection *d, verdict *v, uint64_t base)
{
    const gv_difference *row = v->row;
    size_t size = gv_dtype_size(v->type);
    gv_range_cursor cursor = gv_range_cursor_open(row->value_ranges);
    gv_range range;
    const uint8_t *graph = row->graph_values.data, *serial = row->serial_values.data;
    uint64_t differing_bytes = 0;
    while (gv_range_cursor_next(&cursor, &range)) {
        uint64_t length = range.end - range.start;
        for (uint64_t i = 0; i < length; i++)
            differing_bytes += graph[i] != serial[i];
        // Elements begin at multiples of their size from the beginning of the allocation; ranges hold whole words.
        uint64_t skip = (size - (range.start - base) % size) % size;
        for (uint64_t i = skip; i + size <= length; i += size) {
            if (gv_elements_equal(v->type, &d->tolerance, graph + i, serial + i))
                continue;
            double apart = fabs(gv_element_value(v->type, graph + i) - gv_element_value(v->type, serial + i));
            if (!v->elements++) {
                v->first_index = (range.start + i - base) / size;
                gv_element_print(v->type, graph + i, v->graph_value, sizeof v->graph_value);
                gv_element_print(v->type, serial + i, v->serial_value, sizeof v->serial_value);
            }
            if (apart > v->largest)
                v->largest = apart;
        }
        graph += length;
        serial += length;
    }
    v->whole = differing_bytes >= row->bytes;
}

static void look_at_values(const detection *d, verdict *v)
{
    gv_range first = {0};
    gv_range_cursor cursor = gv_range_cursor_open(v->row->ranges);
    gv_range_cursor_next(&cursor, &first);
    uint64_t id = gv_trace_allocation_at(d->trace, first.start, v->row->launch);
    const gv_allocation *allocation = id && id < d->trace->allocation_count ? &d->trace->allocations[id] : NULL;
    choose_type(d->trace, v, allocation);
    if (v->row->value_ranges.length)
        compare_elements(d, v, allocation ? allocation->address : 0);
}

// ---- One launch --------------------------------------------------------------------------------------------------

static gv_status judge(detection *d, const gv_checked *checked)
{
    const gv_difference *rows = d->trace->differences + checked->first_difference;
    size_t count = checked->difference_count;
    if (!GV_GROW(d->verdicts, d->capacity, count))
        return out_of_memory(d->error);
    gv_status status = order_of(d, checked->graph);
    for (size_t i = 0; i < count && !status; i++) {
        verdict *v = &d->verdicts[i];
        *v = (verdict){.row = &rows[i], .class = ORDER_DEPENDENT, .race = race_of(d, &rows[i])};
        status = updates_atomically(d, &rows[i], &v->atomic);
        look_at_values(d, v);
        // A race explains the graph, and never why serial replays differ among each other.
        if (rows[i].unstable || (v->atomic && !v->race))
            v->class = NON_DETERMINISTIC;
        else if (v->whole && !v->elements)
            v->class = EQUAL;
    }
    // What a node that is not deterministic hands on may differ for that reason alone.
    for (size_t i = 0; i < count && !status; i++)
        for (size_t k = 0; k < i && d->verdicts[i].class == ORDER_DEPENDENT; k++)
            if (d->verdicts[k].class == NON_DETERMINISTIC && may_follow(d, d->verdicts[k].row, d->verdicts[i].row))
                d->verdicts[i].class = UNDECIDED;
    return status;
}

// The first node in the serial order with the gravest class there is. `count`: none.
static size_t leading(const verdict *verdicts, size_t count)
{
    size_t found = count;
    for (size_t i = 0; i < count; i++)
        if (verdicts[i].class >= NON_DETERMINISTIC && (found == count || verdicts[i].class > verdicts[found].class))
            found = i;
    return found;
}

static gv_status note_launch(detection *d, const gv_checked *checked)
{
    gv_status status = judge(d, checked);
    if (status)
        return status;
    size_t first = leading(d->verdicts, checked->difference_count);
    if (first == checked->difference_count)
        return GV_OK;
    const verdict *v = &d->verdicts[first];
    for (size_t i = 0; i < d->group_count; i++) {
        group *g = &d->groups[i];
        if (g->top == checked->graph && g->graph == v->row->graph && g->node == v->row->node && g->class == v->class) {
            g->launches++;
            return GV_OK;
        }
    }
    if (!GV_GROW(d->groups, d->group_capacity, d->group_count + 1))
        return out_of_memory(d->error);
    d->groups[d->group_count++] = (group){checked->graph, v->row->graph, v->row->node, v->class, checked, 1};
    return GV_OK;
}

// ---- Findings ----------------------------------------------------------------------------------------------------

static const char *class_name(enum class class)
{
    return class == ORDER_DEPENDENT ? "order-dependent" : class == UNDECIDED ? "undecided" : "non-deterministic";
}

// "#7 use_left 4096 order-dependent, ...": number, kernel or kind, bytes, class.
static bool add_followers(gv_finding *finding, const detection *d, size_t first, size_t count)
{
    char text[1024] = "";
    size_t length = 0, named = 0, more = 0;
    for (size_t i = 0; i < count; i++) {
        const verdict *v = &d->verdicts[i];
        if (i == first || v->class == EQUAL)
            continue;
        if (named == FOLLOWERS_NAMED || length > sizeof text - 160) {
            more++;
            continue;
        }
        const char *kernel = kernel_name(d->trace, node_of(d->trace, v->row->graph, v->row->node));
        length += (size_t)snprintf(text + length, sizeof text - length, "%s#%" PRIu64 "%s%.60s (%" PRIu64 " bytes%s%s)",
                                   named++ ? ", " : "", v->row->node ? v->row->node - 1 : 0, kernel ? " " : "",
                                   kernel ? kernel : "", v->row->bytes ? v->row->bytes : v->row->unstable,
                                   v->class == ORDER_DEPENDENT ? "" : ", ",
                                   v->class == ORDER_DEPENDENT ? "" : class_name(v->class));
    }
    if (more)
        snprintf(text + length, sizeof text - length, " and %zu more", more);
    return !named || gv_finding_add_text(finding, "others", text);
}

static bool add_race(gv_finding *finding, const detection *d, const verdict *v)
{
    char text[80];
    if (v->race)
        return gv_finding_add_text(finding, "race", v->race);
    const gv_race_pair *pair = v->class == ORDER_DEPENDENT ? race_before(d, v->row) : NULL;
    if (!pair)
        return true;
    snprintf(text, sizeof text, "%s #%" PRIu32 " #%" PRIu32, gv_finding_id_name(pair->id), pair->first.node,
             pair->second.node);
    return gv_finding_add_text(finding, "race_before", text);
}

static bool add_values(gv_finding *finding, const verdict *v)
{
    char largest[40];
    if (!v->elements)
        return true;
    snprintf(largest, sizeof largest, "%.*g", v->type == GV_DTYPE_F64 ? 17 : 9, v->largest);
    return gv_finding_add_text(finding, "dtype", gv_dtype_name(v->type)) &&
           gv_finding_add_text(finding, "dtype_from", v->type_from) &&
           gv_finding_add_number(finding, "elements", v->elements) &&
           gv_finding_add_number(finding, "element_bytes", gv_dtype_size(v->type)) &&
           gv_finding_add_number(finding, "values_missing", !v->whole) &&
           gv_finding_add_number(finding, "first_element", v->first_index) &&
           gv_finding_add_text(finding, "graph_value", v->graph_value) &&
           gv_finding_add_text(finding, "serial_value", v->serial_value) &&
           (v->type == GV_DTYPE_NONE || gv_finding_add_text(finding, "largest", largest));
}

// What the class rests on, in a sentence.
static const char *reason_of(const verdict *v)
{
    if (v->class == NON_DETERMINISTIC && v->row->unstable)
        return "serial replays on the same memory differ among each other at this node: it is not deterministic, for "
               "example by the order of floating-point atomics";
    if (v->class == NON_DETERMINISTIC)
        return "the node was recorded to update these bytes by atomic operations, whose order is not fixed; no race "
               "names "
               "it";
    if (!v->row->node)
        return "no node of the serial replay writes these bytes; the graph does, each time: it stores at a place that "
               "it "
               "got from what came out of order";
    return NULL;
}

static gv_status report_group(detection *d, const group *g, size_t compared)
{
    gv_status status = judge(d, g->shown);
    if (status)
        return status;
    size_t count = g->shown->difference_count, first = leading(d->verdicts, count), nodes = 0;
    const verdict *v = &d->verdicts[first];
    for (size_t i = 0; i < count; i++)
        nodes += d->verdicts[i].class != EQUAL;
    gv_finding made = {
        .id = GV_FINDING_DIFF,
        .confidence = v->class != ORDER_DEPENDENT ? GV_POSSIBLE
                      : v->race                   ? GV_CERTAIN
                                                  : GV_LIKELY,
        .trace = d->trace,
        .graph = v->row->graph ? v->row->graph : g->top,
        .launch = g->shown->launch,
        .node = v->row->node,
        .affected = g->launches,
        .bytes = v->row->bytes ? v->row->bytes : v->row->unstable,
    };
    const char *reason = reason_of(v);
    status = gv_range_set_decode(&made.ranges, v->row->ranges, d->error);
    if (!status && made.ranges.count)
        made.allocation = gv_trace_allocation_at(d->trace, made.ranges.ranges[0].start, g->shown->launch);
    made.reason = reason && !status ? gv_strdup(reason) : NULL;
    bool enough = !status && (!reason || made.reason) && gv_finding_add_text(&made, "source", "serial replay") &&
                  gv_finding_add_text(&made, "class", class_name(v->class)) &&
                  gv_finding_add_number(&made, "compared", compared) && gv_finding_add_number(&made, "nodes", nodes) &&
                  gv_finding_add_number(&made, "position", v->row->node ? v->row->position : 0) &&
                  gv_finding_add_number(&made, "order", g->shown->order) &&
                  gv_finding_add_number(&made, "unstable", v->row->unstable) &&
                  gv_finding_add_number(&made, "range_count", v->row->range_count) && add_values(&made, v) &&
                  add_race(&made, d, v) && add_followers(&made, d, first, count);
    gv_finding *added = enough ? gv_findings_add(d->findings) : NULL;
    if (added) {
        *added = made;
        return GV_OK;
    }
    gv_finding_clear(&made);
    return status ? status : out_of_memory(d->error);
}

// ---- What was not compared ---------------------------------------------------------------------------------------

static gv_status add_incomplete(detection *d, uint64_t graph, uint64_t launch, size_t launches, const char *reason)
{
    gv_finding finding = {
        .trace = d->trace,
        .graph = is_graph(d->trace, graph) ? graph : 0,
        .launch = launch,
        .incomplete = GV_INCOMPLETE_NOT_COMPARED,
        .affected = launches,
    };
    return gv_findings_add_incomplete(d->findings, finding, reason) ? GV_OK : out_of_memory(d->error);
}

// One for each graph and reason.
static gv_status report_not_compared(detection *d)
{
    const gv_trace *trace = d->trace;
    gv_status status = GV_OK;
    bool *told = gv_calloc(trace->checked_count, sizeof *told);
    if (!told)
        return out_of_memory(d->error);
    for (size_t i = 0; i < trace->checked_count && !status; i++) {
        const gv_checked *c = &trace->checked[i];
        size_t launches = 1;
        if (told[i] || c->status == GV_CHECKED_COMPARED)
            continue;
        for (size_t k = i + 1; k < trace->checked_count; k++) {
            const gv_checked *other = &trace->checked[k];
            if (other->status == GV_CHECKED_COMPARED || other->graph != c->graph ||
                strcmp(other->reason, c->reason) != 0)
                continue;
            told[k] = true;
            launches++;
        }
        status = add_incomplete(d, c->graph, c->launch, launches, *c->reason ? c->reason : "no reason was given");
    }
    gv_free(told);
    return status;
}

// Graphs that were launched and should have been compared, and of which no launch was so much as tried. Which graphs
// --graph named is not in the trace, so that nothing is known of them then.
static gv_status report_never_checked(detection *d)
{
    const gv_trace *trace = d->trace;
    bool asked = false;
    for (size_t i = 0; i < trace->setting_count; i++)
        asked |= trace->settings[i].kind == GV_SETTING_DIFF && !*trace->settings[i].name;
    gv_exec_index execs = {0};
    size_t *launches = gv_calloc(trace->graph_count + 1, sizeof *launches);
    gv_status status = launches ? GV_OK : out_of_memory(d->error);
    if (!status && asked)
        status = gv_exec_index_build(&execs, trace, d->error);
    for (size_t i = 0; i < trace->operation_count && !status && asked; i++) {
        const gv_operation *operation = &trace->operations[i];
        if (operation->kind != GV_OP_GRAPH_LAUNCH)
            continue;
        uint64_t graph = gv_exec_index_graph(&execs, operation->object, operation->sequence);
        if (is_graph(trace, graph))
            launches[graph]++;
    }
    for (size_t i = 0; i < trace->checked_count && !status; i++)
        if (is_graph(trace, trace->checked[i].graph))
            launches[trace->checked[i].graph] = 0;
    for (uint64_t g = 1; g < trace->graph_count && !status && asked; g++)
        if (launches[g])
            status =
                add_incomplete(d, g, 0, launches[g],
                               "no launch of this graph came to be compared: it was launched too seldom, or never at "
                               "a moment that allowed it");
    gv_exec_index_free(&execs);
    gv_free(launches);
    return status;
}

gv_status gv_detect_diff(const gv_trace *trace, gv_findings *findings, gv_error *error)
{
    detection d = {.trace = trace, .findings = findings, .error = error};
    gv_status status = GV_OK;
    for (size_t i = 0; i < trace->setting_count; i++)
        if (trace->settings[i].kind == GV_SETTING_TOLERANCE)
            gv_tolerance_parse(trace->settings[i].value, &d.tolerance);
    for (size_t i = 0; i < trace->checked_count && !status; i++)
        if (trace->checked[i].status == GV_CHECKED_COMPARED && trace->checked[i].difference_count &&
            is_graph(trace, trace->checked[i].graph))
            status = note_launch(&d, &trace->checked[i]);
    for (size_t g = 0; g < d.group_count && !status; g++) {
        size_t compared = 0;
        for (size_t i = 0; i < trace->checked_count; i++)
            compared += trace->checked[i].status == GV_CHECKED_COMPARED && trace->checked[i].graph == d.groups[g].top;
        status = report_group(&d, &d.groups[g], compared);
    }
    if (!status)
        status = report_not_compared(&d);
    if (!status)
        status = report_never_checked(&d);
    forget_order(&d);
    gv_free(d.verdicts);
    gv_free(d.groups);
    return status;
}
