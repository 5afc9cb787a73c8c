// The sentences of observed findings: one title and a few rows for each id.
#include "report/messages.h"
#include "report/names.h"
#include "report/stack.h"

#include <inttypes.h>
#include <string.h>

static uint64_t number(const gv_finding *finding, const char *key)
{
    const gv_fact *fact = gv_finding_fact(finding, key);
    return fact ? fact->number : 0;
}

// "" when there is no such fact.
static const char *text(const gv_finding *finding, const char *key)
{
    const gv_fact *fact = gv_finding_fact(finding, key);
    return fact && fact->text ? fact->text : "";
}

static void add_quoted(gv_string *out, const char *name)
{
    gv_string_add(out, "\"");
    gv_string_add_safe(out, name);
    gv_string_add(out, "\"");
}

// "3 of 4 real rows": one is "1 real row"
static void add_rows(gv_string *out, uint64_t some, uint64_t all)
{
    gv_string_add(out, "%s of ", gv_number(some));
    gv_string_add(out, "%s", gv_count(all, "real row", "real rows"));
}

static void add_node(gv_string *out, const gv_finding *finding)
{
    gv_string_add(out, "#%" PRIu64 " ", finding->node - 1);
    gv_node_name(out, finding->trace, gv_trace_graph(finding->trace, finding->graph), (uint32_t)finding->node - 1,
                 GV_MESSAGE_NAME_WIDTH);
}

// ---- The differential: graph against serial replay ----

static void add_serial_title(gv_string *out, const gv_finding *finding)
{
    const char *class = text(finding, "class");
    bool unstable = strcmp(class, "non-deterministic") == 0;
    if (finding->node) {
        add_node(out, finding);
        gv_string_add(out, " leaves ");
    } else {
        gv_string_add(out, "the graph leaves ");
    }
    gv_string_add(out, "%s otherwise ", gv_count(finding->bytes, "byte", "bytes"));
    gv_string_add(
        out, unstable ? "from replay to replay (non-deterministic)." : "in the graph than in a serial replay (%s).",
        class);
}

static void add_serial_values(gv_string *out, const gv_finding *finding)
{
    const char *type = text(finding, "dtype"), *largest = text(finding, "largest");
    uint64_t elements = number(finding, "elements");
    if (!elements)
        return;
    gv_string_add(out, "%s%s", number(finding, "values_missing") ? "at least " : "",
                  gv_count(elements, "element differs", "elements differ"));
    gv_string_add(out, "; the first is element %" PRIu64 ": %s in the graph, %s serially",
                  number(finding, "first_element"), text(finding, "graph_value"), text(finding, "serial_value"));
    if (*largest)
        gv_string_add(out, "; the largest difference is %s", largest);
    if (strcmp(type, "none") == 0)
        gv_string_add(out, " (as words of 4 bytes; no type is known: --diff-dtype declares one)");
    else
        gv_string_add(out, " (%s, %s)", type, text(finding, "dtype_from"));
}

static void add_serial_row(gv_string *out, const gv_finding *finding, size_t row, const char **label)
{
    switch (row) {
    case 0:
        *label = "launches";
        gv_string_add(out, "%s of ", gv_number(finding->affected));
        gv_string_add(out, "%s; the first was launch %" PRIu64,
                      gv_count(number(finding, "compared"), "compared launch", "compared launches"), finding->launch);
        if (number(finding, "position"))
            gv_string_add(out, "; it is number %" PRIu64 " in the serial replay, and the first whose bytes differ",
                          number(finding, "position"));
        break;
    case 1:
        *label = "order";
        if (number(finding, "order") == 2)
            gv_string_add(out, "in this launch the graph came out as the first serial order did; the second one, which "
                               "its edges allow as well, leaves other bytes");
        else
            gv_string_add(out, "serial order %" PRIu64, number(finding, "order"));
        break;
    case 2:
        *label = "values";
        add_serial_values(out, finding);
        if (!out->length)
            gv_string_add(out, "not kept");
        break;
    case 3:
        *label = "others";
        gv_string_add_safe(out, text(finding, "others"));
        if (!out->length)
            gv_string_add(out, "no other node");
        break;
    case 4:
        *label = "race";
        if (*text(finding, "race_before"))
            gv_string_add(out, "a race report names nodes that this one comes after (%s): it may follow from that",
                          text(finding, "race_before"));
        else if (*text(finding, "race"))
            gv_string_add(out, "the race report names the same node (%s)", text(finding, "race"));
        else
            gv_string_add(out, "no race report of this recording names it");
        break;
    default: break;
    }
}

void gv_message_observed_title(gv_string *out, const gv_finding *finding, bool name_process)
{
    const char *name = text(finding, "name");
    gv_string_add(out, "%s", gv_finding_id_name(finding->id));
    if (finding->graph)
        gv_string_add(out, " in graph #%" PRIu64, finding->graph);
    if (name_process)
        gv_string_add(out, " of process %" PRIu64, finding->trace->process.pid);
    gv_string_add(out, ": ");
    switch (finding->id) {
    case GV_FINDING_PAD_READ:
        add_rows(out, number(finding, "rows"), number(finding, "real_rows"));
        gv_string_add(out, " of ");
        add_quoted(out, name);
        gv_string_add(out, " came out otherwise when nothing but padded rows of the inputs was changed.");
        break;
    case GV_FINDING_PAD_WRITE:
        if (finding->node) {
            add_node(out, finding);
            gv_string_add(out, " writes ");
        } else {
            gv_string_add(out, "the launch writes ");
        }
        gv_string_add(out, "%s, for padded rows, outside of declared outputs and scratch memory.",
                      gv_count(finding->bytes, "byte", "bytes"));
        break;
    case GV_FINDING_STALE_READ:
        if (finding->node) {
            add_node(out, finding);
            gv_string_add(out, " reads ");
        } else {
            gv_string_add(out, "the launch reads ");
        }
        gv_string_add(out, "%s of ", finding->bytes ? gv_count(finding->bytes, "byte", "bytes") : "some bytes");
        add_quoted(out, name);
        gv_string_add(out, " that nothing in the launch has written before.");
        break;
    case GV_FINDING_DIFF:
        if (gv_finding_fact(finding, "class")) {
            add_serial_title(out, finding);
            break;
        }
        add_quoted(out, name);
        gv_string_add(out, " of layer %" PRIu64 ": ", number(finding, "layer"));
        add_rows(out, number(finding, "rows"), number(finding, "real_rows"));
        gv_string_add(out, " differ between the graph and the eager computation from the same inputs.");
        break;
    case GV_FINDING_CANARY:
        gv_string_add(out, "%s of ", gv_count(number(finding, "outside"), "page", "pages"));
        add_quoted(out, name);
        if (number(finding, "first_step") == number(finding, "step"))
            gv_string_add(out, " changed in step %" PRIu64, number(finding, "step"));
        else
            gv_string_add(out, " changed in steps %" PRIu64 " to %" PRIu64, number(finding, "first_step"),
                          number(finding, "step"));
        gv_string_add(out, " and %s not allowed to: expected %s to change, ",
                      number(finding, "outside") == 1 ? "was" : "were",
                      gv_count(number(finding, "expected"), "page", "pages"));
        gv_string_add(out, "found %" PRIu64 ".", number(finding, "found"));
        break;
    default: gv_string_add_safe(out, finding->reason); break;
    }
}

// Who wrote the pages, as far as that is known. A node has a row of its own.
static void add_writer(gv_string *out, const gv_finding *finding)
{
    const char *evidence = text(finding, "evidence");
    const gv_trace *trace = finding->trace;
    uint64_t function = number(finding, "writer_function"), stack = number(finding, "writer_stack");
    if (!strcmp(evidence, "ruled-out")) {
        gv_string_add(out, "none: every operation of the step was recorded or is known by its parameters");
        return;
    }
    if (!finding->node && !gv_finding_fact(finding, "writer")) {
        gv_string_add(out, "not known");
        return;
    }
    bool seen = !strcmp(evidence, "seen");
    if (!seen)
        gv_string_add(out, "not known; perhaps by ");
    if (finding->node) {
        add_node(out, finding);
    } else if (function && function < trace->function_count && trace->functions[function].name) {
        gv_string_add(out, "kernel ");
        gv_name_shorten(out, trace->functions[function].name, GV_MESSAGE_NAME_WIDTH);
    } else {
        gv_string_add(out, "a %s", text(finding, "writer"));
    }
    // A node has a row of its own, which tells where it was launched.
    if (stack && !finding->node) {
        gv_place place = gv_stack_place(trace, stack);
        gv_string_add(out, ", ");
        gv_place_print(out, &place);
    }
    if (seen && !finding->node)
        gv_string_add(out, ", outside of graphs");
    if (seen)
        gv_string_add(out, "; seen in %s", gv_count(number(finding, "writer_steps"), "step", "steps"));
    else if (!strcmp(evidence, "other-launch"))
        gv_string_add(out, ", which wrote the same pages in another launch");
    else
        gv_string_add(out, ", which wrote other pages of the region in another launch");
    uint64_t writers = number(finding, "writers");
    if (writers > 1)
        gv_string_add(out, " (and %s)", gv_count(writers - 1, "other writer", "other writers"));
}

void gv_message_observed_row(gv_string *out, const gv_finding *finding, size_t row, const char **label)
{
    if (finding->id == GV_FINDING_PAD_READ || finding->id == GV_FINDING_PAD_WRITE) {
        if (row == 0) {
            *label = "patterns";
            gv_string_add(out, "%s (", text(finding, "patterns"));
            gv_string_add(out, "%s of the launch)", gv_count(number(finding, "real_rows"), "real row", "real rows"));
        } else if (row == 1 && finding->id == GV_FINDING_PAD_READ) {
            *label = "rows";
            gv_string_add(out, "the first is row %" PRIu64 ", the last row %" PRIu64, number(finding, "first_row"),
                          number(finding, "last_row"));
        }
    } else if (finding->id == GV_FINDING_STALE_READ && row == 0) {
        *label = "seen by";
        gv_string_add(out, "%s", text(finding, "source"));
    } else if (finding->id == GV_FINDING_DIFF && gv_finding_fact(finding, "class")) {
        add_serial_row(out, finding, row, label);
    } else if (finding->id == GV_FINDING_CANARY) {
        if (row == 0) {
            *label = "written by";
            add_writer(out, finding);
        } else if (row == 1) {
            *label = "pages";
            gv_string_add(out, "%s, of ", text(finding, "pages"));
            gv_string_add(out, "%s each", gv_count(number(finding, "page_bytes"), "byte", "bytes"));
        } else if (row == 2 && finding->affected > 1) {
            *label = "steps";
            gv_string_add(out, "%s in all: the writer was seen in %" PRIu64,
                          gv_count(finding->affected, "such step", "such steps"), number(finding, "seen_steps"));
            if (number(finding, "ruled_out_steps"))
                gv_string_add(out, ", and ruled out to be anything on a stream in %" PRIu64,
                              number(finding, "ruled_out_steps"));
        }
    } else if (finding->id == GV_FINDING_DIFF) {
        if (row == 0) {
            *label = "values";
            gv_string_add(out, "%s of ", gv_number(number(finding, "differing")));
            gv_string_add(out, "%s differ; the first at row %" PRIu64 ", element %" PRIu64 ": %s in the graph, ",
                          gv_count(number(finding, "elements"), "element", "elements"), number(finding, "first_row"),
                          number(finding, "first_element"), text(finding, "graph_value"));
            gv_string_add(out, "%s eagerly (%s)", text(finding, "eager_value"), text(finding, "dtype"));
        } else if (row == 1) {
            *label = "bucket";
            gv_string_add(out, "%" PRIu64 "%s", number(finding, "bucket"),
                          number(finding, "fallback") ? " (the last one: the launch's own has no clone)" : "");
        }
    }
}

void gv_message_observed_properties(gv_string *out, const gv_finding *finding)
{
    gv_string_add(out, "[properties] id=%s confidence=%s pid=%" PRIu64 " graph=%" PRIu64 " launch=%" PRIu64,
                  gv_finding_id_name(finding->id), gv_confidence_name(finding->confidence), finding->trace->process.pid,
                  finding->graph, finding->launch);
    if (finding->node)
        gv_string_add(out, " node=%" PRIu64, finding->node - 1);
    gv_string_add(out, " bytes=%" PRIu64 " ranges=%zu allocation=%" PRIu64 " launches=%zu", finding->bytes,
                  finding->ranges.count, finding->allocation, finding->affected);
    for (size_t i = 0; i < finding->fact_count; i++) {
        const gv_fact *fact = &finding->facts[i];
        if (!fact->text) {
            gv_string_add(out, " %s=%" PRIu64, fact->key, fact->number);
            continue;
        }
        // A blank would end the value for who splits the line.
        gv_string_add(out, " %s=", fact->key);
        for (const char *at = fact->text; *at; at++)
            gv_string_add(out, "%c", *at == ' ' ? '_' : *at < ' ' ? '?' : *at);
    }
}
