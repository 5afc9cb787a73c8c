// Pages that changed although nobody had said that they would (docs/canary.md), and who wrote them. One finding for a
// region: its first such step, and what is known of the writer from the steps whose work was recorded.
#include "access/node_access.h"
#include "base/memory.h"
#include "detect/detect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 1024, MOST_WRITERS = 16, NAMED_PAGES = 16 };

// How well a writer is known; the higher the better.
enum evidence {
    EVIDENCE_NONE,      // some work of the step was not recorded, and nothing else is known
    EVIDENCE_REGION,    // a node that writes into the region in some recorded launch
    EVIDENCE_PAGES,     // a node that writes these pages in some recorded launch
    EVIDENCE_RULED_OUT, // all work of the step is known, and none of it writes these pages
    EVIDENCE_SEEN       // it wrote these pages in this step
};

static const char *const evidence_names[] = {"unknown", "other-pages", "other-launch", "ruled-out", "seen"};

// Who writes: a node of a recorded launch, or an operation.
typedef struct writer {
    uint64_t launch, graph, node; // node: index + 1; 0: an operation
    uint64_t operation;           // its sequence number
    const char *kind;             // of an operation: "kernel", "memcpy", "memset", "value-write"
    uint64_t function, stack;     // of either
    uint64_t step;                // where it was seen
    size_t steps;                 // in how many
} writer;

typedef struct search {
    const gv_trace *trace;
    gv_error *error;
    const gv_armed **armed;           // by launch
    const gv_kernel_access **kernels; // by operation
    // Of the region at hand.
    const gv_region *region;
    writer writers[MOST_WRITERS];
    size_t writer_count;
    size_t seen, ruled_out, unknown; // steps
    size_t launches, plain, others;  // of the first step of which not all is known: what was not recorded
} search;

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

// ---- Looking things up -------------------------------------------------------------------------------------------

static int by_launch(const void *a, const void *b)
{
    return compare((*(const gv_armed *const *)a)->launch, (*(const gv_armed *const *)b)->launch);
}

static int by_operation(const void *a, const void *b)
{
    return compare((*(const gv_kernel_access *const *)a)->operation, (*(const gv_kernel_access *const *)b)->operation);
}

static gv_status index_trace(search *s)
{
    const gv_trace *trace = s->trace;
    s->armed = gv_calloc(trace->armed_count + 1, sizeof(const gv_armed *));
    s->kernels = gv_calloc(trace->kernel_access_count + 1, sizeof(const gv_kernel_access *));
    if (!s->armed || !s->kernels)
        return gv_fail(s->error, GV_ERR_MEMORY, "out of memory while canaries were looked at");
    for (size_t i = 0; i < trace->armed_count; i++)
        s->armed[i] = &trace->armed[i];
    for (size_t i = 0; i < trace->kernel_access_count; i++)
        s->kernels[i] = &trace->kernel_accesses[i];
    qsort(s->armed, trace->armed_count, sizeof(const gv_armed *), by_launch);
    qsort(s->kernels, trace->kernel_access_count, sizeof(const gv_kernel_access *), by_operation);
    return GV_OK;
}

static const gv_armed *armed_launch(const search *s, uint64_t launch)
{
    const gv_armed key = {.launch = launch}, *pointer = &key;
    const gv_armed *const *found =
        bsearch(&pointer, s->armed, s->trace->armed_count, sizeof(const gv_armed *), by_launch);
    return found ? *found : NULL;
}

static const gv_kernel_access *recorded_kernel(const search *s, uint64_t operation)
{
    const gv_kernel_access key = {.operation = operation}, *pointer = &key;
    const gv_kernel_access *const *found =
        bsearch(&pointer, s->kernels, s->trace->kernel_access_count, sizeof(const gv_kernel_access *), by_operation);
    return found ? *found : NULL;
}

// Does an encoded set of ranges touch the bytes? Both ascend.
static bool touches(gv_bytes encoded, const gv_range_set *bytes)
{
    gv_range_cursor cursor = gv_range_cursor_open(encoded);
    gv_range range;
    for (size_t i = 0; i < bytes->count && gv_range_cursor_next(&cursor, &range);) {
        while (i < bytes->count && bytes->ranges[i].end <= range.start)
            i++;
        if (i < bytes->count && bytes->ranges[i].start < range.end)
            return true;
    }
    return false;
}

// A page, and the operation behind which it was hashed last: what changed it came later.
typedef struct dated_page {
    uint64_t page, since;
} dated_page;

static int by_page(const void *a, const void *b)
{
    const dated_page *x = a, *y = b;
    return x->page != y->page ? compare(x->page, y->page) : compare(x->since, y->since);
}

static int by_since(const void *a, const void *b)
{
    const dated_page *x = a, *y = b;
    return x->since != y->since ? compare(x->since, y->since) : compare(x->page, y->page);
}

static gv_status add_page(const search *s, uint64_t page, gv_range_set *bytes)
{
    const gv_region *r = s->region;
    if (page > (r->size - 1) / r->page_bytes)
        return GV_OK;
    uint64_t start = page * r->page_bytes, left = r->size - start;
    uint64_t length = left < r->page_bytes ? left : r->page_bytes;
    return gv_range_set_add(bytes, r->address + start, r->address + start + length, s->error);
}

// The bytes of the pages that a step names.
static gv_status bytes_of(const search *s, const gv_region_step *step, gv_range_set *bytes)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < step->pages.count && !status; i++)
        status = add_page(s, step->pages.items[i], bytes);
    gv_range_set_settle(bytes);
    return status;
}

// The pages that a step names, by the operation behind which each was hashed last; to be freed with gv_free. NULL when
// memory is out.
static dated_page *date_pages(const gv_region_step *step)
{
    size_t anew = step->anew.count / 2;
    dated_page *pages = gv_calloc(step->pages.count + 1, sizeof *pages), *dates = gv_calloc(anew + 1, sizeof *dates);
    for (size_t i = 0; dates && i < anew; i++)
        dates[i] = (dated_page){step->anew.items[2 * i], step->anew.items[2 * i + 1]};
    if (dates)
        qsort(dates, anew, sizeof *dates, by_page);
    for (size_t i = 0; pages && dates && i < step->pages.count; i++) {
        uint64_t page = step->pages.items[i];
        size_t low = 0, high = anew; // the first one of a higher page
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (dates[middle].page <= page)
                low = middle + 1;
            else
                high = middle;
        }
        bool has = low && dates[low - 1].page == page && dates[low - 1].since > step->since;
        pages[i] = (dated_page){page, has ? dates[low - 1].since : step->since};
    }
    if (pages && dates)
        qsort(pages, step->pages.count, sizeof *pages, by_since);
    bool enough = pages && dates;
    gv_free(dates);
    if (!enough) {
        gv_free(pages);
        pages = NULL;
    }
    return pages;
}

// ---- The work of a step ------------------------------------------------------------------------------------------

// The same kernel at the same place counts as one writer, whatever graph it is a node of.
static void found_writer(search *s, writer w)
{
    for (size_t i = 0; i < s->writer_count; i++) {
        writer *known = &s->writers[i];
        bool same = known->function == w.function && known->stack == w.stack && !known->node == !w.node;
        if (same && (w.function || w.stack || known->operation == w.operation)) {
            known->steps += known->step != w.step || !known->steps;
            known->step = w.step;
            return;
        }
    }
    w.steps = 1;
    if (s->writer_count < MOST_WRITERS)
        s->writers[s->writer_count++] = w;
}

static writer node_writer(const search *s, const gv_access *access, uint64_t step)
{
    const gv_node *node = &s->trace->graphs[access->graph].nodes[access->node];
    return (writer){.launch = access->launch,
                    .graph = access->graph,
                    .node = (uint64_t)access->node + 1,
                    .operation = access->launch,
                    .function = node->function,
                    .stack = node->stack,
                    .step = step};
}

// What looking at one operation showed.
typedef struct verdict {
    bool writes, unknown;
} verdict;

static verdict look_at_launch(search *s, const gv_operation *operation, const gv_range_set *bytes, uint64_t step)
{
    const gv_armed *armed = armed_launch(s, operation->sequence);
    verdict v = {.unknown = !armed || armed->status != GV_ARMED_COMPLETE};
    for (size_t i = 0; armed && i < armed->access_count; i++) {
        const gv_access *access = &s->trace->accesses[armed->first_access + i];
        bool hits = touches(access->writes, bytes) || touches(access->atomics, bytes);
        if (hits && access->precision != GV_PRECISION_EXTENT) {
            found_writer(s, node_writer(s, access, step));
            v.writes = true;
        }
        v.unknown |= access->precision == GV_PRECISION_INCOMPLETE || (hits && access->precision == GV_PRECISION_EXTENT);
    }
    return v;
}

// The ranges that a copy, set or stream write names.
static gv_status named_writes(const gv_operation *operation, gv_range_set *writes, gv_error *error)
{
    gv_range_set reads = {0};
    gv_status status = GV_OK;
    if (operation->detail.count >= 3 && operation->kind == GV_OP_MEMCPY)
        status = gv_memcpy_access(operation->detail, &reads, writes, error);
    else if (operation->detail.count >= 3 && operation->kind == GV_OP_MEMSET)
        status = gv_memset_access(operation->detail, writes, error);
    else if (operation->address && operation->size <= UINT64_MAX - operation->address)
        status = gv_range_set_add(writes, operation->address, operation->address + operation->size, error);
    gv_range_set_free(&reads);
    gv_range_set_settle(writes);
    return status;
}

static gv_status look_at(search *s, const gv_operation *operation, const gv_range_set *bytes, uint64_t step, verdict *v)
{
    *v = (verdict){0};
    gv_range_set writes = {0};
    gv_error ignored = {0};
    switch (operation->kind) {
    case GV_OP_GRAPH_LAUNCH: *v = look_at_launch(s, operation, bytes, step); break;
    case GV_OP_KERNEL: {
        const gv_kernel_access *access = recorded_kernel(s, operation->sequence);
        v->unknown = !access || access->precision != GV_PRECISION_EXACT;
        v->writes = access && (touches(access->writes, bytes) || touches(access->atomics, bytes));
        if (v->writes)
            found_writer(s, (writer){.operation = operation->sequence,
                                     .kind = "kernel",
                                     .function = access->function,
                                     .stack = access->stack,
                                     .step = step});
        break;
    }
    case GV_OP_MEMCPY:
    case GV_OP_MEMSET:
    case GV_OP_VALUE_WRITE: {
        gv_status status = named_writes(operation, &writes, &ignored);
        if (status == GV_ERR_MEMORY) {
            gv_range_set_free(&writes);
            return gv_fail(s->error, GV_ERR_MEMORY, "out of memory while canaries were looked at");
        }
        v->unknown = status != GV_OK;
        v->writes = gv_range_set_overlaps(&writes, bytes);
        if (v->writes)
            found_writer(s, (writer){.operation = operation->sequence,
                                     .kind = operation->kind == GV_OP_MEMCPY   ? "memcpy"
                                             : operation->kind == GV_OP_MEMSET ? "memset"
                                                                               : "value-write",
                                     .stack = operation->stack,
                                     .step = step});
        break;
    }
    case GV_OP_HOST_FUNCTION: v->unknown = true; break;
    default: break;
    }
    gv_range_set_free(&writes);
    return GV_OK;
}

// The first operation after `sequence`.
static size_t first_after(const gv_trace *trace, uint64_t sequence)
{
    size_t low = 0, high = trace->operation_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (trace->operations[middle].sequence <= sequence)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// What is known of the work of a step on some of its pages.
typedef struct step_work {
    bool writes, unknown;
    size_t launches, plain, others; // of which not all is known
} step_work;

// On bytes that were hashed last behind operation `since`.
static gv_status look_at_bytes(search *s, const gv_region_step *step, uint64_t since, const gv_range_set *bytes,
                               step_work *work)
{
    gv_status status = GV_OK;
    for (size_t i = first_after(s->trace, since);
         !status && i < s->trace->operation_count && s->trace->operations[i].sequence <= step->operation; i++) {
        const gv_operation *operation = &s->trace->operations[i];
        verdict v;
        status = look_at(s, operation, bytes, step->step, &v);
        work->writes |= v.writes;
        work->unknown |= v.unknown;
        work->launches += v.unknown && operation->kind == GV_OP_GRAPH_LAUNCH;
        work->plain += v.unknown && operation->kind == GV_OP_KERNEL;
        work->others += v.unknown && operation->kind != GV_OP_GRAPH_LAUNCH && operation->kind != GV_OP_KERNEL;
    }
    return status;
}

static gv_status look_at_step(search *s, const gv_region_step *step)
{
    enum { MOST_DATES = 64 }; // beyond, the work between is not told apart
    step_work work = {0};
    dated_page *pages = date_pages(step);
    gv_status status = pages ? GV_OK : gv_fail(s->error, GV_ERR_MEMORY, "out of memory while canaries were looked at");
    size_t count = step->pages.count, dates = 0;
    for (size_t i = 0, end; i < count && !status; i = end) {
        gv_range_set bytes = {0};
        for (end = i; end < count && !status && (pages[end].since == pages[i].since || dates == MOST_DATES); end++)
            status = add_page(s, pages[end].page, &bytes);
        gv_range_set_settle(&bytes);
        if (!status)
            status = look_at_bytes(s, step, pages[i].since, &bytes, &work);
        gv_range_set_free(&bytes);
        dates += dates < MOST_DATES;
    }
    gv_free(pages);
    if (status)
        return status;
    if (!work.writes && work.unknown && !s->unknown) {
        s->launches = work.launches;
        s->plain = work.plain;
        s->others = work.others;
    }
    if (work.writes)
        s->seen++;
    else if (work.unknown)
        s->unknown++;
    else
        s->ruled_out++;
    return GV_OK;
}

// ---- Writers in other launches -----------------------------------------------------------------------------------

// Of the nodes of all recorded launches: those that write these bytes.
static void find_elsewhere(search *s, const gv_range_set *bytes)
{
    for (size_t i = 0; i < s->trace->access_count; i++) {
        const gv_access *access = &s->trace->accesses[i];
        if (access->precision != GV_PRECISION_EXTENT &&
            (touches(access->writes, bytes) || touches(access->atomics, bytes)))
            found_writer(s, node_writer(s, access, access->launch));
    }
}

static gv_status search_elsewhere(search *s, const gv_region_step *first, enum evidence *evidence)
{
    gv_range_set bytes = {0};
    gv_status status = bytes_of(s, first, &bytes);
    if (!status)
        find_elsewhere(s, &bytes);
    *evidence = s->writer_count ? EVIDENCE_PAGES : EVIDENCE_NONE;
    gv_range_set_free(&bytes);
    if (!status && !s->writer_count) {
        status = gv_range_set_add(&bytes, s->region->address, s->region->address + s->region->size, s->error);
        gv_range_set_settle(&bytes);
        if (!status)
            find_elsewhere(s, &bytes);
        *evidence = s->writer_count ? EVIDENCE_REGION : EVIDENCE_NONE;
        gv_range_set_free(&bytes);
    }
    return status;
}

// ---- The finding -------------------------------------------------------------------------------------------------

static int by_steps(const void *a, const void *b)
{
    const writer *x = a, *y = b;
    if (x->steps != y->steps)
        return x->steps > y->steps ? -1 : 1;
    return x->operation < y->operation ? -1 : x->operation > y->operation;
}

static void list_pages(const gv_region_step *step, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < step->pages.count && i < NAMED_PAGES && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%" PRIu64, i ? "," : "", step->pages.items[i]);
    if (step->outside > NAMED_PAGES && at < size)
        snprintf(text + at, size - at, ",...");
}

static char *explain(const search *s, enum evidence evidence)
{
    char text[512];
    switch (evidence) {
    case EVIDENCE_SEEN: return NULL;
    case EVIDENCE_RULED_OUT:
        return gv_strdup(
            "Nothing that the process enqueued in that step writes these pages. Something without a stream "
            "did: the host (mapped or managed memory), a transfer that was not declared, such as RDMA, "
            "another process or another device.");
    default:
        snprintf(text, sizeof text,
                 "What wrote them was not recorded in that step: accesses of %zu graph launch%s, %zu plain kernel "
                 "launch%s and %zu other operation%s in it are not known. After each such step the next launches are "
                 "recorded; --canary=record records all of them, from the first such step on.",
                 s->launches, s->launches == 1 ? "" : "es", s->plain, s->plain == 1 ? "" : "es", s->others,
                 s->others == 1 ? "" : "s");
        return gv_strdup(text);
    }
}

// The writer in most steps.
static bool add_writer(gv_finding *f, const writer *w, enum evidence evidence)
{
    bool ok = gv_finding_add_text(f, "writer", w->node ? "node" : w->kind) &&
              gv_finding_add_number(f, "writer_function", w->function) &&
              gv_finding_add_number(f, "writer_stack", w->stack) &&
              gv_finding_add_number(f, "writer_operation", w->operation) &&
              gv_finding_add_number(f, "writer_steps", evidence == EVIDENCE_SEEN ? w->steps : 0);
    // One that wrote there in another launch may have been allowed to: the finding is not about it.
    if (evidence == EVIDENCE_SEEN) {
        f->graph = w->graph;
        f->node = w->node;
        f->launch = w->launch;
    }
    return ok;
}

static gv_status add_finding(search *s, gv_findings *findings, const gv_region_step *first, size_t steps)
{
    enum evidence evidence = s->seen ? EVIDENCE_SEEN : s->ruled_out ? EVIDENCE_RULED_OUT : EVIDENCE_NONE;
    char pages[512];
    gv_status status = GV_OK;
    if (evidence == EVIDENCE_NONE)
        status = search_elsewhere(s, first, &evidence);
    if (status)
        return status;
    qsort(s->writers, s->writer_count, sizeof *s->writers, by_steps);
    list_pages(first, pages, sizeof pages);
    gv_finding *f = gv_findings_add(findings);
    if (!f)
        return gv_fail(s->error, GV_ERR_MEMORY, "out of memory while canaries were looked at");
    f->id = GV_FINDING_CANARY;
    f->confidence = GV_CERTAIN;
    f->trace = s->trace;
    f->affected = steps;
    bool ok =
        gv_finding_add_text(f, "name", s->region->name) && gv_finding_add_number(f, "step", first->step) &&
        gv_finding_add_number(f, "first_step", first->first) &&
        gv_finding_add_number(f, "expected", first->allowed + first->exempt) &&
        gv_finding_add_number(f, "found", first->changed) && gv_finding_add_number(f, "outside", first->outside) &&
        gv_finding_add_text(f, "pages", pages) && gv_finding_add_number(f, "page_bytes", s->region->page_bytes) &&
        gv_finding_add_text(f, "evidence", evidence_names[evidence]) &&
        gv_finding_add_number(f, "seen_steps", s->seen) && gv_finding_add_number(f, "ruled_out_steps", s->ruled_out) &&
        gv_finding_add_number(f, "writers", s->writer_count);
    if (ok && s->writer_count)
        ok = add_writer(f, &s->writers[0], evidence);
    status = bytes_of(s, first, &f->ranges);
    f->bytes = gv_range_set_bytes(&f->ranges);
    if (f->ranges.count)
        f->allocation = gv_trace_allocation_at(s->trace, f->ranges.ranges[0].start, first->operation);
    f->reason = explain(s, evidence);
    if (!status && (!ok || (!f->reason && evidence != EVIDENCE_SEEN)))
        status = gv_fail(s->error, GV_ERR_MEMORY, "out of memory while canaries were looked at");
    return status;
}

// Steps of regions that were to be compared, and were not to their end.
static gv_status add_unseen(search *s, gv_findings *findings, size_t checked, size_t hashed, const gv_region_step *last)
{
    char text[512];
    const gv_region *r = s->region;
    if (!(r->flags & GV_REGION_CANARY) || !last)
        return GV_OK;
    if (last->state == GV_REGION_UNHASHED)
        snprintf(text, sizeof text, "the region \"%.64s\" was not hashed after step %" PRIu64 ": %.200s", r->name,
                 last->first ? last->first - 1 : 0, last->reason);
    else if (!checked && hashed > 1)
        snprintf(text, sizeof text,
                 "the region \"%.64s\" was hashed %zu times, but what its steps may change was never declared: see "
                 "docs/canary.md; `gravel show FILE canary` lists what changed",
                 r->name, hashed);
    else
        return GV_OK;
    bool added = gv_findings_add_incomplete(
        findings, (gv_finding){.trace = s->trace, .incomplete = GV_INCOMPLETE_TRACE, .affected = 1}, text);
    return added ? GV_OK : gv_fail(s->error, GV_ERR_MEMORY, "out of memory while canaries were looked at");
}

static gv_status inspect_region(search *s, uint64_t id, gv_findings *findings)
{
    const gv_trace *trace = s->trace;
    const gv_region_step *first = NULL, *last = NULL;
    size_t steps = 0, checked = 0, hashed = 0;
    gv_status status = GV_OK;
    s->region = &trace->regions[id];
    s->writer_count = s->seen = s->ruled_out = s->unknown = s->launches = s->plain = s->others = 0;
    if (!s->region->page_bytes)
        return GV_OK;
    for (size_t i = 0; i < trace->region_step_count && !status; i++) {
        const gv_region_step *step = &trace->region_steps[i];
        if (step->region != id)
            continue;
        last = step;
        checked += step->state == GV_REGION_CHECKED;
        hashed += step->state != GV_REGION_UNHASHED;
        if (step->state != GV_REGION_CHECKED || !step->outside)
            continue;
        if (!first)
            first = step;
        if (steps++ < MOST_STEPS)
            status = look_at_step(s, step);
    }
    if (!status && first)
        status = add_finding(s, findings, first, steps);
    return status ? status : add_unseen(s, findings, checked, hashed, last);
}

gv_status gv_detect_canary(const gv_trace *trace, gv_findings *findings, gv_error *error)
{
    search s = {.trace = trace, .error = error};
    if (trace->region_count < 2)
        return GV_OK;
    gv_status status = index_trace(&s);
    for (uint64_t id = 1; id < trace->region_count && !status; id++)
        status = inspect_region(&s, id, findings);
    gv_free(s.armed);
    gv_free(s.kernels);
    return status;
}
