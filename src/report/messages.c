#include "report/messages.h"

#include "base/memory.h"
#include "report/names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// Most graphs of an incompleteness that are all named.
enum { GRAPHS_LISTED = 5 };

static void add_text(gv_string *out, gv_text text)
{
    gv_string copy = {0};
    if (text.data)
        gv_string_add_bytes(&copy, text.data, text.length);
    gv_string_add_safe(out, gv_string_text(&copy));
    out->failed |= copy.failed;
    gv_string_free(&copy);
}

// ---- About a trace ----------------------------------------------------------------------------------------------

void gv_message_trace(gv_string *out, const gv_trace *trace)
{
    gv_string_add_safe(out, trace->path);
    gv_string_add(out, ": ");
    const gv_process_record *process = &trace->process;
    if (process->command_line.length)
        add_text(out, process->command_line);
    else if (process->executable.length)
        add_text(out, process->executable);
    else
        gv_string_add(out, "a program whose name was not recorded");
    gv_string_add(out, " (process %" PRIu64, process->pid);
    if (process->driver.length) {
        gv_string_add(out, ", driver ");
        add_text(out, process->driver);
    }
    if (process->access_source.length) {
        gv_string_add(out, ", accesses recorded by ");
        add_text(out, process->access_source);
    }
    gv_string_add(out, ")");
}

void gv_message_note(gv_string *out, const gv_trace *trace, const gv_note *note)
{
    if (note->graph)
        gv_string_add(out, "graph #%" PRIu64, note->graph);
    if (note->graph && note->node) {
        gv_string_add(out, ", node #%" PRIu64 " ", note->node - 1);
        gv_node_name(out, trace, gv_trace_graph(trace, note->graph), note->node - 1, GV_MESSAGE_NAME_WIDTH);
    }
    if (note->graph)
        gv_string_add(out, ": ");
    gv_string_add_safe(out, note->text);
}

// ---- A race -----------------------------------------------------------------------------------------------------

// "#7 gather", a node of the finding's own graph.
static void add_node(gv_string *out, const gv_finding *finding, uint32_t node)
{
    gv_string_add(out, "#%" PRIu32 " ", node);
    gv_node_name(out, finding->trace, gv_trace_graph(finding->trace, finding->graph), node, GV_MESSAGE_NAME_WIDTH);
}

// "#7", or "#0 of graph #2" for a node inside a child graph.
static void add_side_number(gv_string *out, const gv_finding *finding, const gv_side *side)
{
    gv_string_add(out, "#%" PRIu32, side->node);
    if (side->graph && side->graph != finding->graph)
        gv_string_add(out, " of graph #%" PRIu64, side->graph);
}

// "#7 gather", or "#0 gather of graph #2"
static void add_side(gv_string *out, const gv_finding *finding, const gv_side *side)
{
    gv_string_add(out, "#%" PRIu32 " ", side->node);
    gv_node_name(out, finding->trace, gv_side_graph(finding, side), side->node, GV_MESSAGE_NAME_WIDTH);
    if (side->graph && side->graph != finding->graph)
        gv_string_add(out, " of graph #%" PRIu64, side->graph);
}

static void add_where(gv_string *out, const gv_trace *trace, uint64_t graph, bool name_process)
{
    gv_string_add(out, " in graph #%" PRIu64, graph);
    if (name_process)
        gv_string_add(out, " of process %" PRIu64, trace->process.pid);
}

void gv_message_race_title(gv_string *out, const gv_finding *finding, bool name_process)
{
    const gv_race_pair *pair = &finding->pairs[0];
    gv_string_add(out, "%s", gv_finding_id_name(finding->id));
    add_where(out, finding->trace, finding->graph, name_process);
    gv_string_add(out, ": ");
    // The bytes of the kind that names the finding; the row of bytes has the others.
    uint64_t raw = pair->raw_bytes, war = pair->war_bytes, waw = pair->waw_bytes;
    switch (pair->id) {
    case GV_FINDING_RACE_RAW:
        add_side(out, finding, &pair->second);
        gv_string_add(out, " may read %s before ", gv_count(raw, "byte", "bytes"));
        add_side(out, finding, &pair->first);
        gv_string_add(out, " has written %s.", raw == 1 ? "it" : "them");
        break;
    case GV_FINDING_RACE_WAR:
        add_side(out, finding, &pair->second);
        gv_string_add(out, " may overwrite %s before ", gv_count(war, "byte", "bytes"));
        add_side(out, finding, &pair->first);
        gv_string_add(out, " has read %s.", war == 1 ? "it" : "them");
        break;
    default:
        add_side(out, finding, &pair->first);
        gv_string_add(out, " and ");
        add_side(out, finding, &pair->second);
        gv_string_add(out, " write the same %s, and either may come last.", gv_count(waw, "byte", "bytes"));
        break;
    }
}

void gv_message_side_label(gv_string *out, const gv_side *side)
{
    const char *what = side->atomic                  ? "updates"
                       : side->reads && side->writes ? "updates"
                       : side->writes                ? "writes"
                                                     : "reads";
    gv_string_add(out, "#%" PRIu32 " %s", side->node, what);
}

void gv_message_side(gv_string *out, const gv_finding *finding, const gv_side *side)
{
    const gv_graph *graph = gv_side_graph(finding, side);
    gv_node_name(out, finding->trace, graph, side->node, GV_MESSAGE_NAME_WIDTH);
    if (side->graph && side->graph != finding->graph)
        gv_string_add(out, " of graph #%" PRIu64, side->graph);
    if (side->atomic && side->reads != side->writes)
        gv_string_add(out, " (with atomic operations, beside plain %s)", side->writes ? "writes" : "reads");
    else if (side->atomic)
        gv_string_add(out, " (with atomic operations)");
    else if (side->reads && side->writes)
        gv_string_add(out, " (reads and writes)");
    if (side->wait == GV_SIDE_BEFORE_WAIT)
        gv_string_add(out, ", before its grid-dependency wait");
    else if (side->wait == GV_SIDE_NO_WAIT)
        gv_string_add(out, ", which has no grid-dependency wait");
    gv_place place =
        gv_stack_place(finding->trace, graph && side->node < graph->node_count ? graph->nodes[side->node].stack : 0);
    gv_string_add(out, ", launched at ");
    gv_place_print(out, &place);
}

void gv_message_ranges(gv_string *out, const gv_range_set *ranges, uint64_t bytes, size_t shown_ranges)
{
    gv_string_add(out, "%s in %s: ", gv_number(bytes), gv_count(ranges->count, "range", "ranges"));
    size_t shown = ranges->count < shown_ranges ? ranges->count : shown_ranges;
    for (size_t i = 0; i < shown; i++) {
        // The two ends of a range stay together when the line is wrapped.
        gv_string_add(out, "%s[0x%" PRIx64 ",0x%" PRIx64 ")", i ? " " : "", ranges->ranges[i].start,
                      ranges->ranges[i].end);
    }
    if (shown < ranges->count)
        gv_string_add(out, "%s%s more (--ranges %zu prints all)", shown ? " and " : "",
                      gv_number(ranges->count - shown), ranges->count);
}

void gv_message_bytes(gv_string *out, const gv_race_pair *pair, size_t shown_ranges)
{
    gv_message_ranges(out, &pair->ranges, pair->bytes, shown_ranges);
    if ((pair->raw_bytes != 0) + (pair->war_bytes != 0) + (pair->waw_bytes != 0) > 1) {
        const struct {
            uint64_t bytes;
            const char *what;
        } parts[] = {{pair->raw_bytes, "read after write"},
                     {pair->war_bytes, "write after read"},
                     {pair->waw_bytes, "write after write"}};
        const char *separator = "; of these ";
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            if (!parts[i].bytes)
                continue;
            gv_string_add(out, "%s%s %s", separator, gv_number(parts[i].bytes), parts[i].what);
            separator = ", ";
        }
    }
}

static const char *allocation_kind(enum gv_allocation_kind kind)
{
    switch (kind) {
    case GV_ALLOCATION_DEVICE: return "device memory";
    case GV_ALLOCATION_ASYNC: return "stream-ordered device memory";
    case GV_ALLOCATION_MANAGED: return "managed memory";
    case GV_ALLOCATION_PINNED: return "page-locked host memory";
    case GV_ALLOCATION_MAPPED: return "mapped device memory (cuMemMap)";
    case GV_ALLOCATION_NODE: return "memory of an allocation node";
    case GV_ALLOCATION_GLOBAL: return "memory of a module's variable";
    case GV_ALLOCATION_IMPORTED: return "imported memory";
    }
    return "memory";
}

void gv_message_memory(gv_string *out, const gv_finding *finding)
{
    const gv_trace *trace = finding->trace;
    if (!finding->allocation || finding->allocation >= trace->allocation_count) {
        gv_string_add(out, "in no allocation that was recorded (made before recording began, or by other means)");
        return;
    }
    const gv_allocation *allocation = &trace->allocations[finding->allocation];
    const gv_range_set *ranges = finding->pair_count ? &finding->pairs[0].ranges : &finding->ranges;
    if (ranges->count && ranges->ranges[0].start >= allocation->address) {
        uint64_t first = ranges->ranges[0].start - allocation->address;
        uint64_t last = ranges->ranges[ranges->count - 1].end - allocation->address;
        if (last <= allocation->size)
            gv_string_add(out, ranges->count > 1 ? "between bytes %s and %s of " : "bytes %s to %s of ",
                          gv_number(first), gv_number(last));
        else
            gv_string_add(out, "from byte %s of ", gv_number(first));
    }
    if (allocation->name && *allocation->name) {
        gv_string_add(out, "\"");
        gv_string_add_safe(out, allocation->name);
        gv_string_add(out, "\", ");
    }
    gv_string_add(out, "%s of %s at 0x%" PRIx64, gv_count(allocation->size, "byte", "bytes"),
                  allocation_kind(allocation->kind), allocation->address);
    gv_place place = gv_stack_place(trace, allocation->stack);
    if (place.kind != GV_PLACE_NONE) {
        gv_string_add(out, ", allocated at ");
        gv_place_print(out, &place);
    }
}

static bool has_edge(const gv_finding *finding, uint32_t from, uint32_t to)
{
    const gv_graph *graph = gv_trace_graph(finding->trace, finding->graph);
    for (size_t e = 0; graph && e < graph->edge_count; e++)
        if (graph->edges[e].from == from && graph->edges[e].to == to)
            return true;
    return false;
}

// The edge that would help is there, as a programmatic one, which cannot have an ordinary one beside it.
static void add_programmatic_edge(gv_string *out, const gv_finding *finding)
{
    const gv_side *second = &finding->pairs[0].second;
    gv_string_add(out,
                  "The edge from #%" PRIu32 " to #%" PRIu32 " is programmatic: it orders what #%" PRIu32
                  " does after its grid-dependency wait (cudaGridDependencySynchronize), and ",
                  finding->edge_from, finding->edge_to, finding->edge_to);
    if (second->node == finding->edge_to && second->wait == GV_SIDE_BEFORE_WAIT)
        gv_string_add(out,
                      "these bytes are accessed before. Move the wait in front of that, or make the edge an "
                      "ordinary one: launch #%" PRIu32 " without programmatic stream serialization.",
                      finding->edge_to);
    else
        gv_string_add(out,
                      "#%" PRIu32 " does not wait before that. Let it wait first, or make the edge an ordinary one: "
                      "launch it without programmatic stream serialization.",
                      finding->edge_to);
    if (finding->pair_count == 2)
        gv_string_add(out, " That would order this pair and one more.");
    else if (finding->pair_count > 2)
        gv_string_add(out, " That would order all %s pairs of nodes that conflict here.",
                      gv_number(finding->pair_count));
}

void gv_message_order(gv_string *out, const gv_finding *finding)
{
    const gv_race_pair *pair = &finding->pairs[0];
    if (finding->path && has_edge(finding, finding->edge_from, finding->edge_to)) {
        add_programmatic_edge(out, finding);
        return;
    }
    gv_string_add(out, "Nothing makes ");
    add_side_number(out, finding, &pair->second);
    gv_string_add(out, " wait for ");
    add_side_number(out, finding, &pair->first);
    gv_string_add(out, ". An edge from ");
    bool inside = (!pair->first.graph || pair->first.graph == finding->graph) &&
                  (!pair->second.graph || pair->second.graph == finding->graph);
    bool same = inside && finding->edge_from == pair->first.node && finding->edge_to == pair->second.node;
    if (same)
        gv_string_add(out, "#%" PRIu32 " to #%" PRIu32, finding->edge_from, finding->edge_to);
    else {
        add_node(out, finding, finding->edge_from);
        gv_string_add(out, " to ");
        add_node(out, finding, finding->edge_to);
    }
    if (finding->pair_count == 1)
        gv_string_add(out, " would order the two.");
    else if (finding->pair_count == 2)
        gv_string_add(out, " would order this pair and one more.");
    else
        gv_string_add(out, " would order all %s pairs of nodes that conflict here.", gv_number(finding->pair_count));
    if (finding->path)
        gv_string_add(out, " The edges that lead there already do not: on the way, a kernel behind a programmatic edge "
                           "does not wait, or lets others begin before it has waited.");
}

void gv_message_order_on_streams(gv_string *out, const gv_finding *finding)
{
    const gv_graph *graph = gv_trace_graph(finding->trace, finding->graph);
    if (!graph || finding->edge_from >= graph->node_count || finding->edge_to >= graph->node_count)
        return;
    if (finding->path && has_edge(finding, finding->edge_from, finding->edge_to))
        return;
    const gv_node *from = &graph->nodes[finding->edge_from], *to = &graph->nodes[finding->edge_to];
    if (!from->stream || !to->stream || from->stream == to->stream)
        return;
    gv_string_add(out,
                  "In a capture: record an event on stream %" PRIu64 " after #%" PRIu32 ", and make stream %" PRIu64
                  " wait for it before #%" PRIu32 ".",
                  from->stream, finding->edge_from, to->stream, finding->edge_to);
}

static const char *precision_clause(enum gv_access_precision precision)
{
    switch (precision) {
    case GV_PRECISION_EXACT: return "was seen exactly";
    case GV_PRECISION_EXTENT: return "is known only as an upper bound: it may access less";
    case GV_PRECISION_INCOMPLETE: return "was seen in part";
    }
    return "is of unknown precision";
}

void gv_message_confidence(gv_string *out, const gv_finding *finding)
{
    const gv_side *first = &finding->pairs[0].first, *second = &finding->pairs[0].second;
    gv_string_add(out, "%s: ", gv_confidence_name(finding->confidence));
    if (first->precision == second->precision && first->precision == GV_PRECISION_EXACT)
        gv_string_add(out, "what both nodes access was seen exactly");
    else {
        gv_string_add(out, "what ");
        add_side_number(out, finding, first);
        gv_string_add(out, " accesses %s; what ", precision_clause(first->precision));
        add_side_number(out, finding, second);
        gv_string_add(out, " accesses %s", precision_clause(second->precision));
    }
    if (finding->affected > 1)
        gv_string_add(out, "; seen in %s recorded launches", gv_number(finding->affected));
}

void gv_message_more_pairs(gv_string *out, const gv_finding *finding)
{
    gv_string_add(out, "%s that the same missing order explains (--all-pairs lists them)",
                  gv_count(finding->pair_count - 1, "more pair", "more pairs"));
}

void gv_message_pair(gv_string *out, const gv_finding *finding, const gv_race_pair *pair)
{
    gv_string_add(out, "%s  ", gv_finding_id_name(pair->id));
    add_side(out, finding, &pair->first);
    gv_string_add(out, " and ");
    add_side(out, finding, &pair->second);
    gv_string_add(out, ", %s", gv_count(pair->bytes, "byte", "bytes"));
}

void gv_message_race_properties(gv_string *out, const gv_finding *finding)
{
    const gv_race_pair *pair = &finding->pairs[0];
    gv_string_add(out,
                  "[properties] id=%s confidence=%s pid=%" PRIu64 " graph=%" PRIu64 " launch=%" PRIu64 " first=%" PRIu32
                  " second=%" PRIu32,
                  gv_finding_id_name(finding->id), gv_confidence_name(finding->confidence), finding->trace->process.pid,
                  finding->graph, finding->launch, pair->first.node, pair->second.node);
    if ((pair->first.graph && pair->first.graph != finding->graph) ||
        (pair->second.graph && pair->second.graph != finding->graph))
        gv_string_add(out, " first_graph=%" PRIu64 " second_graph=%" PRIu64, pair->first.graph, pair->second.graph);
    gv_string_add(out,
                  " bytes=%" PRIu64 " ranges=%zu pairs=%zu from=%" PRIu32 " to=%" PRIu32 " allocation=%" PRIu64
                  " launches=%zu",
                  pair->bytes, pair->ranges.count, finding->pair_count, finding->edge_from, finding->edge_to,
                  finding->allocation, finding->affected);
}

// ---- An incompleteness ------------------------------------------------------------------------------------------

const char *gv_incomplete_kind_name(enum gv_incomplete_kind kind)
{
    switch (kind) {
    case GV_INCOMPLETE_NODE: return "node";
    case GV_INCOMPLETE_GRAPH: return "graph";
    case GV_INCOMPLETE_PROGRAMMATIC: return "programmatic";
    case GV_INCOMPLETE_TRACE: return "trace";
    case GV_INCOMPLETE_NEVER_ARMED: return "never-armed";
    case GV_INCOMPLETE_OVERLAP: return "overlap";
    case GV_INCOMPLETE_NOT_COMPARED: return "not-compared";
    case GV_INCOMPLETE_NOT_EXECUTED: return "not-executed";
    }
    return "unknown";
}

// "18 of 60 nodes", "900 of their 3,000 nodes", "1 node"
static void add_share(gv_string *out, const gv_incomplete_group *group)
{
    const char *of = group->graphs > 1 ? "of their " : "of ";
    if (group->graph_nodes && group->affected <= group->graph_nodes)
        gv_string_add(out, "%s %s%s", gv_number(group->affected), of, gv_count(group->graph_nodes, "node", "nodes"));
    else
        gv_string_add(out, "%s", gv_count(group->affected, "node", "nodes"));
}

static void add_launches(gv_string *out, const gv_incomplete_group *group)
{
    bool once = group->affected == 1;
    if (!group->graph)
        gv_string_add(out, "%s that the trace does not have.",
                      gv_count(group->affected, "launch was of a graph", "launches were of graphs"));
    else if (group->graphs > 1)
        gv_string_add(out, "they were launched %s times in all, and no launch was recorded node by node.",
                      gv_number(group->affected));
    else if (once)
        gv_string_add(out, "it was launched once, and that launch was not recorded node by node.");
    else
        gv_string_add(out, "it was launched %s times, and no launch was recorded node by node.",
                      gv_number(group->affected));
}

void gv_message_incomplete_title(gv_string *out, const gv_incomplete_group *group, bool name_process)
{
    bool one = group->affected == 1;
    gv_string_add(out, "incomplete");
    if (group->graphs == 1)
        gv_string_add(out, " in graph #%" PRIu64, group->graph);
    else if (group->graphs)
        gv_string_add(out, " in %s graphs", gv_number(group->graphs));
    if (name_process)
        gv_string_add(out, " %s process %" PRIu64, group->graphs ? "of" : "in", group->trace->process.pid);
    gv_string_add(out, ": ");
    switch (group->kind) {
    case GV_INCOMPLETE_NODE:
        gv_string_add(out, "what ");
        add_share(out, group);
        gv_string_add(out, " %s could not be seen in full.", one ? "accesses" : "access");
        break;
    case GV_INCOMPLETE_GRAPH:
        gv_string_add(out, "what %s could not be recorded in full.",
                      group->graphs > 1 ? "these graphs do"
                      : group->graph    ? "this graph does"
                                        : "a launched graph does");
        break;
    case GV_INCOMPLETE_PROGRAMMATIC:
        gv_string_add(
            out, "%s%s, and only programmatic edges order %s.", group->at_least ? "at least " : "",
            gv_count(group->affected, "pair of nodes touches the same bytes", "pairs of nodes touch the same bytes"),
            one ? "it" : "them");
        break;
    case GV_INCOMPLETE_OVERLAP:
        gv_string_add(out, "%s%s and nothing orders %s; what %s known only as an upper bound.",
                      group->at_least ? "at least " : "",
                      gv_count(group->affected, "pair of nodes may touch the same bytes",
                               "pairs of nodes may touch the same bytes"),
                      one ? "it" : "them", one ? "one of the two touches is" : "one of each touches is");
        break;
    // A cut, damage, a kill, or a note of the recorder that names no graph.
    case GV_INCOMPLETE_TRACE:
        gv_string_add(out, "the recording lacks something that cannot be laid to one graph.");
        break;
    case GV_INCOMPLETE_NEVER_ARMED: add_launches(out, group); break;
    case GV_INCOMPLETE_NOT_COMPARED:
        gv_string_add(out, "%s NOT compared with a serial replay.",
                      gv_count(group->affected, "launch was", "launches were"));
        break;
    case GV_INCOMPLETE_NOT_EXECUTED:
        gv_string_add(out, "%s not executed.", gv_count(group->affected, "node was", "nodes were"));
        break;
    }
}

// A node and what stands for its name, so that nodes of one kernel can be put together.
typedef struct unseen_node {
    uint64_t graph, node;
    enum gv_node_kind kind;
    uint64_t function;
} unseen_node;

static int by_name(const void *left, const void *right)
{
    const unseen_node *a = left, *b = right;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->function != b->function)
        return a->function < b->function ? -1 : 1;
    if (a->graph != b->graph)
        return a->graph < b->graph ? -1 : 1;
    return a->node < b->node ? -1 : a->node > b->node;
}

// How many nodes from the first on lie in its graph.
static size_t run_of_graph(const unseen_node *nodes, size_t count)
{
    size_t run = 1;
    while (run < count && nodes[run].graph == nodes[0].graph)
        run++;
    return run;
}

// Are the numbers the same in every graph, and the graphs as many as `graphs`?
static bool same_in_each(const unseen_node *nodes, size_t count, size_t graphs)
{
    size_t run = run_of_graph(nodes, count);
    for (size_t i = run; i < count; i++) {
        bool opens = i % run == 0;
        if (nodes[i].node != nodes[i - run].node || opens != (nodes[i].graph != nodes[i - 1].graph))
            return false;
    }
    return count == run * graphs;
}

// ": #1, #3, #5 and 2 more" of one graph; of `graphs` of them the same with " of each graph" where that is true, else
// ": 250 in 50 graphs, the first is #1 of graph #1".
static void add_numbers(gv_string *out, const unseen_node *nodes, size_t count, size_t shown, size_t graphs)
{
    bool each = graphs > 1 && same_in_each(nodes, count, graphs);
    if (graphs > 1 && !each) {
        size_t of = 1;
        for (size_t i = 1; i < count; i++)
            of += nodes[i].graph != nodes[i - 1].graph;
        gv_string_add(out, ": %s in %s, the first is #%" PRIu64 " of graph #%" PRIu64, gv_number(count),
                      gv_count(of, "graph", "graphs"), nodes[0].node, nodes[0].graph);
        return;
    }
    size_t numbers = each ? count / graphs : count;
    for (size_t i = 0; i < numbers && i < shown; i++)
        gv_string_add(out, "%s #%" PRIu64, i ? "," : ":", nodes[i].node);
    if (numbers > shown)
        gv_string_add(out, " and %s more", gv_number(numbers - shown));
    gv_string_add(out, each ? " of each graph" : "");
}

static bool same_name(const unseen_node *a, const unseen_node *b)
{
    return a->kind == b->kind && a->function == b->function;
}

// "nvjet_...: #1, #3, #5 and 2 more; sdpa_...: #4"
static void add_names_and_numbers(gv_string *out, const gv_trace *trace, const unseen_node *nodes, size_t count,
                                  size_t graphs, size_t shown)
{
    size_t names = 0;
    for (size_t first = 0, next; first < count; first = next) {
        for (next = first; next < count && same_name(&nodes[next], &nodes[first]);)
            next++;
        if (names++ == shown) {
            gv_string_add(out, "; and %s of other names (--verbose lists all)",
                          gv_count(count - first, "node", "nodes"));
            return;
        }
        gv_string_add(out, names > 1 ? "; " : "");
        gv_node_name(out, trace, gv_trace_graph(trace, nodes[first].graph), nodes[first].node, GV_MESSAGE_NAME_WIDTH);
        add_numbers(out, nodes + first, next - first, shown, graphs);
    }
}

void gv_message_incomplete_nodes(gv_string *out, const gv_incomplete_group *group, const gv_findings *findings,
                                 const gv_overview *overview, size_t shown)
{
    unseen_node *nodes = gv_calloc(group->count, sizeof *nodes);
    size_t count = 0;
    if (!nodes) {
        out->failed = true;
        return;
    }
    for (size_t i = group->first; i < group->first + group->count; i++) {
        const gv_finding *finding = &findings->items[overview->order[i]];
        const gv_graph *of = gv_trace_graph(group->trace, finding->graph);
        if (!finding->node || !of || finding->node > of->node_count)
            continue;
        if (gv_incomplete_is_about_pairs(group->kind)) {
            gv_string_add(out, "for example ");
            add_node(out, finding, finding->edge_from);
            gv_string_add(out, " and ");
            add_node(out, finding, finding->edge_to);
            if (group->listed > 1)
                gv_string_add(out, " of graph #%" PRIu64, finding->graph);
            break;
        }
        const gv_node *node = &of->nodes[finding->node - 1];
        nodes[count++] = (unseen_node){finding->graph, finding->node - 1, node->kind,
                                       node->kind == GV_NODE_KERNEL ? node->function : 0};
    }
    if (count)
        qsort(nodes, count, sizeof *nodes, by_name);
    add_names_and_numbers(out, group->trace, nodes, count, group->listed, shown);
    gv_free(nodes);
}

// "#1 "decode""
static void add_graph_name(gv_string *out, uint64_t id, const gv_graph *graph)
{
    gv_string_add(out, "#%" PRIu64, id);
    if (graph && graph->name && *graph->name) {
        gv_string_add(out, " \"");
        gv_string_add_safe(out, graph->name);
        gv_string_add(out, "\"");
    }
}

static bool same_words(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_place(const gv_place *a, const gv_place *b)
{
    return a->kind == b->kind && a->line == b->line && a->address == b->address && same_words(a->file, b->file) &&
           same_words(a->function, b->function) && same_words(a->module, b->module);
}

// ", captured at decode.py:33 in capture" with `before` in front; adds nothing for a place that is not known.
static void add_graph_place(gv_string *out, const char *before, const gv_graph *graph, const gv_place *place)
{
    if (place->kind == GV_PLACE_NONE)
        return;
    gv_string_add(out, "%s%s at ", before,
                  graph->origin == GV_GRAPH_CAPTURED  ? "captured"
                  : graph->origin == GV_GRAPH_UPDATED ? "updated"
                                                      : "built");
    gv_place_print(out, place);
}

// The graphs that findings of the group name, cut to a few, and where they were captured if that is one place.
static void add_listed_graphs(gv_string *out, const gv_incomplete_group *group, const gv_findings *findings,
                              const gv_overview *overview)
{
    // Cutting is worth it only where it saves more than the words "and 1 more".
    size_t seen = 0, shown = group->listed <= GRAPHS_LISTED ? group->listed : GRAPHS_LISTED - 2;
    uint64_t before = 0;
    const gv_graph *first = gv_trace_graph(group->trace, group->graph);
    gv_place place = {0};
    bool one_place = first != NULL;
    for (size_t i = group->first; i < group->first + group->count; i++) {
        uint64_t id = findings->items[overview->order[i]].graph;
        const gv_graph *graph = gv_trace_graph(group->trace, id);
        if (!id || id == before)
            continue;
        before = id;
        gv_place at = graph && !graph->parent ? gv_stack_place(group->trace, graph->stack) : (gv_place){0};
        if (!seen)
            place = at;
        one_place = one_place && graph && graph->origin == first->origin && same_place(&at, &place);
        if (seen++ < shown) {
            gv_string_add(out, "%s", seen == 1 ? "" : seen == group->listed ? " and " : ", ");
            add_graph_name(out, id, graph);
        }
    }
    if (seen > shown)
        gv_string_add(out, " and %s more (--verbose lists all)", gv_number(seen - shown));
    if (one_place)
        add_graph_place(out, seen == 2 ? ", both " : ", all ", first, &place);
}

void gv_message_incomplete_graphs(gv_string *out, const gv_incomplete_group *group, const gv_findings *findings,
                                  const gv_overview *overview)
{
    if (group->listed == 1)
        gv_message_graph(out, group->trace, group->graph);
    if (group->listed > 1)
        add_listed_graphs(out, group, findings, overview);
    // What no finding names is listed nowhere: a program that captures at every step has thousands of them.
    if (group->graphs > group->listed)
        gv_string_add(out, "; and %s of the same structure as %s", gv_number(group->graphs - group->listed),
                      group->listed > 1 ? "one of these" : "this one");
}

void gv_message_incomplete_remedy(gv_string *out, const gv_incomplete_group *group)
{
    switch (group->kind) {
    case GV_INCOMPLETE_NODE:
        gv_string_add(out, "Races among the other nodes are reported all the same. Races of these may be missing: "
                           "`gravel show FILE edges` lists what orders them.");
        break;
    case GV_INCOMPLETE_PROGRAMMATIC:
        gv_string_add(out,
                      "They are ordered if the later kernel of each such edge waits (cudaGridDependencySynchronize) "
                      "before it touches the bytes. Whether it does was not observed: look at its source. "
                      "`gravel show FILE access` says of each kernel what was.");
        break;
    case GV_INCOMPLETE_OVERLAP:
        gv_string_add(out,
                      "Whether they race could not be decided: `gravel show FILE access` lists what each may touch. "
                      "An edge between the two would settle it, and so does a Sanitizer that sees these accesses "
                      "(docs/opaque-nodes.md).");
        break;
    case GV_INCOMPLETE_NOT_COMPARED:
        gv_string_add(out, "docs/differential.md says what is needed to compare a launch. Races are looked for without "
                           "it: `gravel run --arm first`.");
        break;
    case GV_INCOMPLETE_NEVER_ARMED:
        gv_string_add(out, "Record again with `gravel run --arm first`, or with `--arm N` for a later launch.");
        break;
    case GV_INCOMPLETE_NOT_EXECUTED:
        gv_string_add(out,
                      "They cannot have raced in the recorded launches, but what they access is not known. Record a "
                      "launch in which the condition chooses them: `gravel run --arm N`, `--arm every=K` or "
                      "`--arm all`.");
        break;
    case GV_INCOMPLETE_GRAPH:
    case GV_INCOMPLETE_TRACE: break;
    }
}

void gv_message_incomplete_properties(gv_string *out, const gv_incomplete_group *group)
{
    gv_string_add(out, "[properties] id=incomplete kind=%s pid=%" PRIu64 " graph=%" PRIu64 " affected=%zu graphs=%zu",
                  gv_incomplete_kind_name(group->kind), group->trace->process.pid, group->graph, group->affected,
                  group->graphs);
}

// ---- Graphs, stacks, the end ------------------------------------------------------------------------------------

void gv_message_graph(gv_string *out, const gv_trace *trace, uint64_t id)
{
    const gv_graph *graph = gv_trace_graph(trace, id);
    add_graph_name(out, id, graph);
    if (!graph)
        return;
    gv_string_add(out, ", %s", gv_count(graph->node_count, "node", "nodes"));
    if (graph->parent) {
        gv_string_add(out, ", %s node #%" PRIu64 " of graph #%" PRIu64,
                      graph->origin == GV_GRAPH_BODY ? "a body of conditional" : "the child graph of",
                      graph->parent_node, graph->parent);
        return;
    }
    gv_place place = gv_stack_place(trace, graph->stack);
    add_graph_place(out, ", ", graph, &place);
}

void gv_message_python_frame(gv_string *out, const gv_python_frame *frame)
{
    gv_string_add_safe(out, frame->file ? frame->file : "?");
    gv_string_add(out, ":%" PRIu64 " in ", frame->line);
    gv_string_add_safe(out, frame->function ? frame->function : "?");
}

void gv_message_host_frame(gv_string *out, const gv_trace *trace, const gv_host_frame *frame)
{
    const char *module = frame->module < trace->module_count ? trace->modules[frame->module].path : NULL;
    if (frame->file) {
        gv_string_add_safe(out, frame->file);
        gv_string_add(out, ":%" PRIu64 " in ", frame->line);
    }
    if (frame->function && *frame->function)
        gv_name_shorten(out, frame->function, 80);
    else
        gv_string_add(out, "an unnamed function");
    gv_string_add(out, " (");
    gv_string_add_safe(out, module ? module : "unknown module");
    gv_string_add(out, "+0x%" PRIx64 ")", frame->address);
}

// "18 of 60 nodes of graph #1 could not be seen (tensor copies)", "900 of 3,000 nodes of 50 graphs could not be seen"
static void add_unseen_nodes(gv_string *out, const gv_overview *overview)
{
    // A damaged trace may name nodes that its graphs do not have.
    if (overview->unseen_nodes <= overview->unseen_graph_nodes)
        gv_string_add(out, "%s of ", gv_number(overview->unseen_nodes));
    size_t nodes =
        overview->unseen_nodes <= overview->unseen_graph_nodes ? overview->unseen_graph_nodes : overview->unseen_nodes;
    gv_string_add(out, "%s of ", gv_count(nodes, "node", "nodes"));
    if (overview->unseen_graphs == 1)
        gv_string_add(out, "graph #%" PRIu64, overview->unseen_graph);
    else
        gv_string_add(out, "%s graphs", gv_number(overview->unseen_graphs));
    gv_string_add(out, " could not be seen");
    const char *reason = overview->unseen_reason;
    if (reason && *reason && strlen(reason) <= 48) {
        gv_string_add(out, " (");
        gv_string_add_safe(out, reason);
        gv_string_add(out, ")");
    }
}

static void add_incomplete_parts(gv_string *out, const gv_overview *overview)
{
    size_t pairs = 0, overlaps = 0, never = 0, strangers = 0, gaps = 0, not_executed = 0, not_compared = 0;
    bool at_least = false, overlaps_at_least = false;
    for (size_t i = 0; i < overview->group_count; i++) {
        const gv_incomplete_group *group = &overview->groups[i];
        switch (group->kind) {
        case GV_INCOMPLETE_PROGRAMMATIC:
            pairs += group->affected;
            at_least |= group->at_least;
            break;
        case GV_INCOMPLETE_OVERLAP:
            overlaps += group->affected;
            overlaps_at_least |= group->at_least;
            break;
        case GV_INCOMPLETE_NEVER_ARMED:
            never += group->graphs;
            strangers += group->graph ? 0 : group->affected;
            break;
        case GV_INCOMPLETE_TRACE: gaps++; break;
        case GV_INCOMPLETE_NOT_COMPARED: not_compared += group->affected; break;
        case GV_INCOMPLETE_NOT_EXECUTED: not_executed += group->affected; break;
        case GV_INCOMPLETE_NODE:
        case GV_INCOMPLETE_GRAPH: break;
        }
    }
    const char *separator = "";
    if (overview->unseen_nodes) {
        add_unseen_nodes(out, overview);
        separator = ", ";
    }
    const struct {
        size_t count;
        const char *one, *many;
        bool at_least;
    } parts[] = {
        {overview->broken_graphs, "graph could not be recorded in full", "graphs could not be recorded in full", false},
        {not_executed, "node was not executed", "nodes were not executed", false},
        {never, "graph was launched and never recorded", "graphs were launched and never recorded", false},
        {strangers, "launch was of a graph not in the trace", "launches were of graphs not in the trace", false},
        {pairs, "pair hangs on programmatic edges", "pairs hang on programmatic edges", at_least},
        {overlaps, "unordered pair is known by upper bounds only", "unordered pairs are known by upper bounds only",
         overlaps_at_least},
        {not_compared, "launch was not compared", "launches were not compared", false},
        {gaps, "gap in the recording", "gaps in the recording", false},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].count) {
            gv_string_add(out, "%s%s%s", separator, parts[i].at_least ? "at least " : "",
                          gv_count(parts[i].count, parts[i].one, parts[i].many));
            separator = ", ";
        }
    }
}

const char *gv_coverage_state_name(enum gv_coverage_state state)
{
    switch (state) {
    case GV_COVERAGE_NOTHING: return "need nothing";
    case GV_COVERAGE_NOT_RECORDED: return "not recorded";
    case GV_COVERAGE_NOT_EXECUTED: return "not executed";
    case GV_COVERAGE_EXACT: return "exact";
    case GV_COVERAGE_EXTENT: return "extent";
    case GV_COVERAGE_INCOMPLETE:
    case GV_COVERAGE_STATES: break;
    }
    return "incomplete";
}

const char *gv_message_coverage_reason(enum gv_coverage_state state)
{
    switch (state) {
    case GV_COVERAGE_NOT_RECORDED: return "no launch of this graph was armed";
    case GV_COVERAGE_NOT_EXECUTED: return "this body of a conditional node was not executed in any recorded launch";
    case GV_COVERAGE_EXTENT: return "an upper bound of what it accesses is known";
    case GV_COVERAGE_INCOMPLETE: return "not all of its accesses could be seen";
    case GV_COVERAGE_NOTHING:
    case GV_COVERAGE_EXACT:
    case GV_COVERAGE_STATES: break;
    }
    return NULL;
}

void gv_message_coverage(gv_string *out, const size_t nodes[GV_COVERAGE_STATES])
{
    // The first three are always there, so that "0 incomplete" can be read and searched for.
    static const enum gv_coverage_state always[] = {GV_COVERAGE_EXACT, GV_COVERAGE_EXTENT, GV_COVERAGE_INCOMPLETE},
                                        others[] = {GV_COVERAGE_NOT_EXECUTED, GV_COVERAGE_NOT_RECORDED,
                                                    GV_COVERAGE_NOTHING};
    gv_string_add(out, "%s:", gv_count(gv_coverage_total(nodes), "node", "nodes"));
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        gv_string_add(out, "%s %s %s", i ? "," : "", gv_number(nodes[always[i]]), gv_coverage_state_name(always[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (nodes[others[i]])
            gv_string_add(out, ", %s %s", gv_number(nodes[others[i]]), gv_coverage_state_name(others[i]));
}

void gv_message_tried(gv_string *out, const gv_tried *tried)
{
    const struct {
        size_t count, found;
        const char *one, *many, *none, *single, *several;
        uint64_t left_out;
        size_t unchecked;
    } parts[] = {
        {.count = tried->compared,
         .found = tried->differing,
         .one = "launch compared with serial replays",
         .many = "launches compared with serial replays",
         .none = "none differs",
         .single = "1 differs",
         .several = "differ"},
        {.count = tried->padded,
         .found = tried->pad_effects,
         .one = "launch repeated with other padding",
         .many = "launches repeated with other padding",
         .none = "no effect",
         .single = "1 with an effect",
         .several = "with an effect",
         .left_out = tried->pad_left_out,
         .unchecked = tried->pad_unchecked},
        {.count = tried->poisoned,
         .found = tried->poison_effects,
         .one = "launch repeated with poisoned memory",
         .many = "launches repeated with poisoned memory",
         .none = "no effect",
         .single = "1 with an effect",
         .several = "with an effect",
         .left_out = tried->poison_left_out,
         .unchecked = tried->poison_unchecked},
        {.count = tried->hashes,
         .found = tried->intruded,
         .one = "hash of a region",
         .many = "hashes of regions",
         .none = "no page changed that was not allowed to",
         .single = "1 with pages changed that were not allowed to",
         .several = "with pages changed that were not allowed to"},
    };
    const char *separator = "";
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!parts[i].count)
            continue;
        gv_string_add(out, "%s%s: ", separator, gv_count(parts[i].count, parts[i].one, parts[i].many));
        if (parts[i].found > 1)
            gv_string_add(out, "%s %s", gv_number(parts[i].found), parts[i].several);
        else
            gv_string_add(out, "%s", parts[i].found ? parts[i].single : parts[i].none);
        // Silence does not cover them.
        if (parts[i].left_out)
            gv_string_add(out, " (%s left out)", gv_count(parts[i].left_out, "unstable byte", "unstable bytes"));
        if (parts[i].unchecked)
            gv_string_add(out, ", %s more NOT checked", gv_number(parts[i].unchecked));
        separator = "; ";
    }
    // Of comparisons that found nothing only the first of each probe is recorded: their number says nothing.
    if (tried->probe_differences)
        gv_string_add(out, "%sprobes: %s", separator,
                      gv_count(tried->probe_differences, "comparison differs", "comparisons differ"));
    else if (tried->probes)
        gv_string_add(out, "%sprobes: no comparison differs", separator);
}

void gv_message_summary(gv_string *out, const gv_overview *overview)
{
    if (overview->observed)
        gv_string_add(out, "%s, ", gv_count(overview->observed, "observed fault", "observed faults"));
    gv_string_add(out, "%s", gv_count(overview->races, "race", "races"));
    if (overview->pairs > overview->races)
        gv_string_add(out, " (%s of nodes)", gv_count(overview->pairs, "pair", "pairs"));
    gv_string_add(out, " in %s", gv_count(overview->graphs, "recorded graph", "recorded graphs"));
    if (overview->suppressed)
        gv_string_add(out, ", %s suppressed", gv_number(overview->suppressed));
    if (!overview->complete) {
        gv_string_add(out, "; NOT complete: ");
        add_incomplete_parts(out, overview);
        gv_string_add(out, overview->incomplete_shown ? ": see above." : " (suppressed).");
    } else if (!overview->graphs) {
        gv_string_add(out, ": no graph was launched.");
    } else {
        const char *nodes = overview->nodes == 1 ? "the one node" : gv_count(overview->nodes, "node", "nodes");
        size_t extents = overview->covered[GV_COVERAGE_EXTENT];
        if (extents)
            gv_string_add(out, "; complete: the accesses of %s are known, of %s of them as an upper bound.", nodes,
                          gv_number(extents));
        else
            gv_string_add(out, "; complete: every access of %s was seen.", nodes);
    }
}
