#include "record/fix_entries.h"

#include "base/memory.h"
#include "trace/reader.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- Reading -------------------------------------------------------------------------------------------------

static void free_entry(gv_fix_entry *entry)
{
    gv_free(entry->name);
    gv_free(entry->kernels);
    gv_free(entry->numbers);
    gv_free(entry->edges);
    *entry = (gv_fix_entry){0};
}

void gv_fix_entries_free(gv_fix_entries *entries)
{
    for (size_t i = 0; i < entries->count; i++)
        free_entry(&entries->items[i]);
    gv_free(entries->items);
    *entries = (gv_fix_entries){0};
}

// Cuts the next name off the list of kernels; every name ends with a newline.
static const char *next_kernel(char **at)
{
    char *name = *at, *end = name ? strchr(name, '\n') : NULL;
    if (!end)
        return "";
    *end = '\0';
    *at = end + 1;
    return name;
}

// An empty text of a record has no address.
static char *copy_of(gv_text text)
{
    return text.length ? gv_strndup(text.data, text.length) : gv_strdup("");
}

static gv_status take_entry(const gv_fix_record *record, gv_fix_entry *entry, gv_error *error)
{
    gv_status status = gv_fix_edge_count(record->edges, &entry->edge_count, error);
    if (status != GV_OK)
        return status;
    if (record->exact.length != sizeof entry->prints.exact.bytes ||
        record->without_shapes.length != sizeof entry->prints.exact.bytes)
        return gv_fail(error, GV_ERR_FORMAT, "an entry has no fingerprint");
    entry->record = *record;
    entry->name = copy_of(record->name);
    entry->kernels = copy_of(record->kernels);
    entry->numbers = gv_calloc(record->edges.count, sizeof *entry->numbers);
    entry->edges = gv_calloc(entry->edge_count, sizeof *entry->edges);
    if (!entry->name || !entry->kernels || !entry->numbers || !entry->edges)
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    memcpy(entry->prints.exact.bytes, record->exact.data, sizeof entry->prints.exact.bytes);
    memcpy(entry->prints.without_shapes.bytes, record->without_shapes.data, sizeof entry->prints.exact.bytes);
    if (record->edges.count)
        memcpy(entry->numbers, record->edges.items, record->edges.count * sizeof *entry->numbers);
    entry->record.name.data = entry->name;
    entry->record.exact.data = entry->prints.exact.bytes;
    entry->record.without_shapes.data = entry->prints.without_shapes.bytes;
    entry->record.edges.items = entry->numbers;
    entry->record.kernels = (gv_text){0}; // only this process needs them
    char *kernels = entry->kernels;
    const uint64_t *at = entry->numbers;
    for (size_t i = 0; i < entry->edge_count; i++) {
        gv_fix_entry_edge *edge = &entry->edges[i];
        *edge = (gv_fix_entry_edge){.number = at[0], .step_count = (size_t)at[1], .steps = at + 2};
        at += 2 + 2 * edge->step_count;
        edge->from = at[0];
        edge->to = at[1];
        at += 2;
        edge->kernels[0] = next_kernel(&kernels);
        edge->kernels[1] = next_kernel(&kernels);
    }
    return GV_OK;
}

gv_status gv_fix_entries_read(const char *path, gv_fix_entries *entries, gv_error *error)
{
    gv_reader *reader = NULL;
    *entries = (gv_fix_entries){0};
    gv_status status = gv_reader_open(path, &reader, error);
    bool more = status == GV_OK, ended = false;
    while (more && status == GV_OK) {
        gv_record record;
        status = gv_reader_next(reader, &record, &more, error);
        if (status != GV_OK || !more)
            break;
        ended = record.type == GV_RECORD_end;
        if (record.type != GV_RECORD_fix)
            continue;
        if (!GV_GROW(entries->items, entries->capacity, entries->count + 1)) {
            status = gv_fail(error, GV_ERR_MEMORY, "memory ran out");
            break;
        }
        gv_fix_entry *entry = &entries->items[entries->count++];
        *entry = (gv_fix_entry){0};
        status = take_entry(&record.fix, entry, error);
    }
    // A part of a fix must not pass for the whole of it.
    if (status == GV_OK && (!ended || gv_reader_truncation(reader)))
        status = gv_fail(error, GV_ERR_FORMAT, "%s is damaged or not whole", path);
    if (reader)
        gv_reader_close(reader);
    if (status != GV_OK)
        gv_fix_entries_free(entries);
    return status;
}

// ---- Recognising ---------------------------------------------------------------------------------------------

const char *gv_fix_entry_differs(const gv_fix_entry *entry, gv_level *level, char *text, size_t size)
{
    for (size_t i = 0; i < entry->edge_count; i++) {
        const gv_fix_entry_edge *edge = &entry->edges[i];
        const uint64_t ends[2] = {edge->from, edge->to};
        const gv_level *at = gv_level_at(level, edge->steps, edge->step_count);
        for (size_t end = 0; end < 2; end++) {
            uint32_t index = at ? gv_level_index(at, ends[end]) : UINT32_MAX;
            if (index == UINT32_MAX) {
                snprintf(text, size, "the graph has no node #%" PRIu64 " that edge %" PRIu64 " could join", ends[end],
                         edge->number);
                return text;
            }
            const char *kernel = gv_level_kernel(at, index);
            if (*edge->kernels[end] && strcmp(kernel, edge->kernels[end]) != 0) {
                snprintf(text, size, "node #%" PRIu64 " is %s%.100s and not %.100s", ends[end],
                         *kernel ? "" : "no kernel", kernel, edge->kernels[end]);
                return text;
            }
        }
    }
    return NULL;
}

static bool same_edges(const gv_fix_entry *a, const gv_fix_entry *b)
{
    if (a->edge_count != b->edge_count)
        return false;
    for (size_t i = 0; i < a->edge_count; i++) {
        const gv_fix_entry_edge *x = &a->edges[i], *y = &b->edges[i];
        if (x->from != y->from || x->to != y->to || x->step_count != y->step_count ||
            memcmp(x->steps, y->steps, 2 * x->step_count * sizeof *x->steps) != 0)
            return false;
    }
    return true;
}

// The entry that has most in common with the graph: kernels at its edges, then the number of nodes. Only one that has
// half of the kernels says anything.
enum { MOST_COMPARISONS = 1 << 22 }; // of names; a hint is worth no more

static const gv_fix_entry *find_nearest(const gv_fix_entries *entries, gv_level *level)
{
    const gv_fix_entry *nearest = NULL;
    uint64_t best = 0;
    for (size_t i = 0; i < entries->count; i++) {
        const gv_fix_entry *entry = &entries->items[i];
        uint64_t nodes = level->snapshot->node_count, score = 0;
        uint64_t apart = nodes > entry->record.nodes ? nodes - entry->record.nodes : entry->record.nodes - nodes;
        if (entry->edge_count * nodes > MOST_COMPARISONS)
            continue;
        for (size_t e = 0; e < entry->edge_count; e++)
            for (int end = 0; end < 2; end++) {
                bool there = false;
                for (uint32_t n = 0; n < level->snapshot->node_count && !there; n++)
                    there = strcmp(entry->edges[e].kernels[end], gv_level_kernel(level, n)) == 0;
                score += there ? 2 : 0;
            }
        if (score < 2 * entry->edge_count)
            continue;
        score = (score << 32) + (apart < UINT32_MAX ? UINT32_MAX - apart : 0);
        if (score > best) {
            best = score;
            nearest = entry;
        }
    }
    return nearest;
}

static void say_difference(const gv_fix_entry *nearest, gv_level *level, char *reason, size_t size)
{
    char what[300];
    if (nearest->record.nodes != level->snapshot->node_count)
        snprintf(reason, size,
                 "the nearest in the fix file, graph %" PRIu64 "%s%.60s, has %" PRIu64 " nodes, and this one %zu",
                 nearest->record.id, *nearest->name ? " " : "", nearest->name, nearest->record.nodes,
                 level->snapshot->node_count);
    else if (gv_fix_entry_differs(nearest, level, what, sizeof what))
        snprintf(reason, size, "the nearest in the fix file is graph %" PRIu64 "%s%.60s: %s", nearest->record.id,
                 *nearest->name ? " " : "", nearest->name, what);
    else
        snprintf(reason, size,
                 "the nearest in the fix file, graph %" PRIu64 "%s%.60s, has as many nodes, and other "
                 "edges, or other kernels at nodes that its edges do not join",
                 nearest->record.id, *nearest->name ? " " : "", nearest->name);
}

const gv_fix_entry *gv_fix_entries_find(const gv_fix_entries *entries, const gv_level *level,
                                        const gv_fingerprints *prints, enum gv_fix_match *match,
                                        const gv_fix_entry **nearest, char *reason, size_t size)
{
    const gv_fix_entry *found = NULL;
    *match = GV_FIX_MATCH_NONE;
    *nearest = NULL;
    reason[0] = '\0';
    for (size_t i = 0; i < entries->count; i++)
        if (gv_fingerprint_equal(&entries->items[i].prints.exact, &prints->exact)) {
            *match = GV_FIX_MATCH_EXACT;
            return &entries->items[i];
        }
    for (size_t i = 0; i < entries->count; i++) {
        const gv_fix_entry *entry = &entries->items[i];
        if (!gv_fingerprint_equal(&entry->prints.without_shapes, &prints->without_shapes) ||
            entry->record.nodes != level->snapshot->node_count)
            continue;
        if (found && !same_edges(found, entry)) {
            snprintf(reason, size,
                     "it is another size of graphs %" PRIu64 " and %" PRIu64
                     " of the fix file, whose edges are not the same; record it and make the fix file from that trace "
                     "too",
                     found->record.id, entry->record.id);
            *nearest = found;
            *match = GV_FIX_MATCH_WITHOUT_SHAPES;
            return NULL;
        }
        found = entry;
    }
    if (found) {
        *match = GV_FIX_MATCH_WITHOUT_SHAPES;
        return found;
    }
    *nearest = find_nearest(entries, (gv_level *)level);
    if (*nearest)
        say_difference(*nearest, (gv_level *)level, reason, size);
    else
        snprintf(reason, size, "the fix file has no graph like it");
    return NULL;
}
