#include "cli/suppress.h"

#include "base/memory.h"
#include "report/names.h"
#include "report/overview.h"
#include "report/stack.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// Largest file read: far above any list a person keeps, so that a device file or a core dump ends soon.
enum { LARGEST_FILE = 4 << 20 };

// ---- Reading ------------------------------------------------------------------------------------------------------

// A line without its surrounding blanks. `*next` moves behind it.
static bool take_line(const char **next, const char **line, size_t *length)
{
    if (!**next)
        return false;
    const char *start = *next;
    size_t bytes = strcspn(start, "\n");
    *next = start + bytes + (start[bytes] == '\n');
    while (bytes && isspace((unsigned char)*start)) {
        start++;
        bytes--;
    }
    while (bytes && isspace((unsigned char)start[bytes - 1]))
        bytes--;
    *line = start;
    *length = bytes;
    return true;
}

static gv_suppression *add_block(gv_suppressions *suppressions)
{
    if (!GV_GROW(suppressions->items, suppressions->capacity, suppressions->count + 1))
        return NULL;
    gv_suppression *block = &suppressions->items[suppressions->count++];
    *block = (gv_suppression){0};
    return block;
}

// Stores one line of a block: its name, its id, or "key: glob".
static gv_status take_entry(gv_suppression *block, const char *path, size_t number, const char *line, size_t length,
                            gv_error *error)
{
    char **slot = !block->name ? &block->name : !block->id ? &block->id : NULL;
    const char *value = line;
    size_t bytes = length;
    if (!slot) {
        const struct {
            const char *key;
            char **slot;
        } keys[] = {{"first:", &block->first},
                    {"second:", &block->second},
                    {"place:", &block->place},
                    {"reason:", &block->reason}};
        for (size_t i = 0; i < sizeof keys / sizeof *keys && !slot; i++) {
            size_t skip = strlen(keys[i].key);
            if (length >= skip && strncmp(line, keys[i].key, skip) == 0) {
                slot = keys[i].slot;
                for (value = line + skip, bytes = length - skip; bytes && isspace((unsigned char)*value); bytes--)
                    value++;
            }
        }
        if (!slot)
            return gv_fail(error, GV_ERR_FORMAT,
                           "%s:%zu: \"%.*s\" is none of first:, second:, place: and reason:, each with a glob", path,
                           number, (int)(length < 60 ? length : 60), line);
        if (*slot)
            return gv_fail(error, GV_ERR_FORMAT, "%s:%zu: the block has this line twice; keep one", path, number);
    }
    if (!bytes)
        return gv_fail(error, GV_ERR_FORMAT, "%s:%zu: a glob is missing here; * matches everything", path, number);
    *slot = gv_strndup(value, bytes);
    return *slot ? GV_OK : gv_fail(error, GV_ERR_MEMORY, "out of memory while %s was read", path);
}

static gv_status end_block(gv_suppression *block, const char *path, gv_error *error)
{
    if (!block->id)
        return gv_fail(error, GV_ERR_FORMAT,
                       "%s:%zu: a block needs a name and, on its second line, an id such as race-war", path,
                       block->line);
    static const char *const ids[] = {"race-raw", "race-war", "race-waw", "incomplete"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        if (fnmatch(block->id, ids[i], 0) == 0)
            return GV_OK;
    }
    return gv_fail(error, GV_ERR_FORMAT,
                   "%s:%zu: no finding has the id \"%s\"; there are race-raw, race-war, race-waw and "
                   "incomplete",
                   path, block->line, block->id);
}

gv_status gv_suppressions_parse(gv_suppressions *suppressions, const char *path, const char *text, gv_error *error)
{
    if (!suppressions->path && !(suppressions->path = gv_strdup(path)))
        return gv_fail(error, GV_ERR_MEMORY, "out of memory while %s was read", path);
    gv_suppression *block = NULL;
    const char *line = NULL;
    size_t length = 0, number = 0;
    gv_status status = GV_OK;
    while (status == GV_OK && take_line(&text, &line, &length)) {
        number++;
        if (!length || *line == '#')
            continue;
        if (!block && length == 1 && *line == '{') {
            block = add_block(suppressions);
            if (!block)
                return gv_fail(error, GV_ERR_MEMORY, "out of memory while %s was read", path);
            block->line = number;
        } else if (!block) {
            status = gv_fail(error, GV_ERR_FORMAT, "%s:%zu: expected a line with { alone, which begins a suppression",
                             path, number);
        } else if (length == 1 && *line == '}') {
            status = end_block(block, path, error);
            block = NULL;
        } else {
            status = take_entry(block, path, number, line, length, error);
        }
    }
    if (status == GV_OK && block)
        status =
            gv_fail(error, GV_ERR_FORMAT, "%s:%zu: the block that begins here is not closed with }", path, block->line);
    return status;
}

gv_status gv_suppressions_read(gv_suppressions *suppressions, const char *path, gv_error *error)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return gv_fail(error, GV_ERR_IO, "the suppressions in %s cannot be read: %s", path, strerror(errno));
    char *text = gv_malloc(LARGEST_FILE + 1);
    if (!text) {
        fclose(file);
        return gv_fail(error, GV_ERR_MEMORY, "out of memory while %s was read", path);
    }
    errno = 0;
    size_t length = fread(text, 1, LARGEST_FILE + 1, file);
    gv_status status = GV_OK;
    if (ferror(file))
        status = gv_fail(error, GV_ERR_IO, "the suppressions in %s cannot be read: %s", path, strerror(errno));
    else if (length > LARGEST_FILE)
        status = gv_fail(error, GV_ERR_LIMIT, "%s is larger than 4 MiB and so no file of suppressions", path);
    else if (memchr(text, '\0', length))
        status = gv_fail(error, GV_ERR_FORMAT,
                         "%s is not a text file; docs/findings.md shows what suppressions look like", path);
    fclose(file);
    if (status == GV_OK) {
        text[length] = '\0';
        status = gv_suppressions_parse(suppressions, path, text, error);
    }
    gv_free(text);
    return status;
}

void gv_suppressions_free(gv_suppressions *suppressions)
{
    for (size_t i = 0; i < suppressions->count; i++) {
        gv_suppression *block = &suppressions->items[i];
        gv_free(block->name);
        gv_free(block->id);
        gv_free(block->first);
        gv_free(block->second);
        gv_free(block->place);
        gv_free(block->reason);
    }
    gv_free(suppressions->items);
    gv_free(suppressions->path);
    *suppressions = (gv_suppressions){0};
}

// ---- Matching -----------------------------------------------------------------------------------------------------

// What globs are compared with, for one node. Made when first needed and kept while the same node is asked about,
// since the pairs of a group share their nodes.
typedef struct node_text {
    bool known;
    uint64_t graph;
    uint32_t node;
    gv_string symbol, full, name; // as the driver gives it; demangled; without parameters
    gv_string place, file_place;  // "dir/file.py:12"; with the whole path
} node_text;

static void node_text_free(node_text *text)
{
    gv_string_free(&text->symbol);
    gv_string_free(&text->full);
    gv_string_free(&text->name);
    gv_string_free(&text->place);
    gv_string_free(&text->file_place);
}

static void describe(node_text *text, const gv_trace *trace, uint64_t graph_id, uint32_t index)
{
    if (text->known && text->graph == graph_id && text->node == index)
        return;
    node_text_free(text);
    *text = (node_text){.known = true, .graph = graph_id, .node = index};
    const gv_graph *graph = gv_trace_graph(trace, graph_id);
    gv_node_name(&text->name, trace, graph, index, SIZE_MAX);
    if (!graph || index >= graph->node_count)
        return;
    const gv_node *node = &graph->nodes[index];
    const char *symbol = node->kind == GV_NODE_KERNEL && node->function < trace->function_count
                             ? trace->functions[node->function].name
                             : NULL;
    if (symbol) {
        gv_string_add(&text->symbol, "%s", symbol);
        gv_name_demangle(&text->full, symbol);
    }
    gv_place place = gv_stack_place(trace, node->stack);
    gv_place_line(&text->place, &place);
    if (place.file)
        gv_string_add(&text->file_place, "%s:%" PRIu64, place.file, place.line);
}

static void describe_side(node_text *text, const gv_finding *finding, const gv_side *side)
{
    describe(text, finding->trace, side->graph ? side->graph : finding->graph, side->node);
}

static bool matches(const char *glob, const gv_string *text)
{
    return text->length && fnmatch(glob, gv_string_text(text), 0) == 0;
}

static bool name_matches(const char *glob, const node_text *text)
{
    return !glob || matches(glob, &text->name) || matches(glob, &text->full) || matches(glob, &text->symbol);
}

// "model.py:12" is meant to match whatever folder the file lies in.
static bool place_matches(const char *glob, const node_text *text)
{
    if (matches(glob, &text->place) || matches(glob, &text->file_place))
        return true;
    const char *slash = strrchr(gv_string_text(&text->place), '/');
    return slash && fnmatch(glob, slash + 1, 0) == 0;
}

// The first block that matches, or NULL. `second` is NULL for an incompleteness.
static gv_suppression *find_match(gv_suppressions *suppressions, const char *id, const char *reason,
                                  const node_text *first, const node_text *second)
{
    for (size_t i = 0; i < suppressions->count; i++) {
        gv_suppression *block = &suppressions->items[i];
        if (fnmatch(block->id, id, 0) != 0 || !name_matches(block->first, first))
            continue;
        if (second ? !name_matches(block->second, second) : block->second != NULL)
            continue;
        if (block->place && !place_matches(block->place, first) && !(second && place_matches(block->place, second)))
            continue;
        if (block->reason && (!reason || fnmatch(block->reason, reason, 0) != 0))
            continue;
        return block;
    }
    return NULL;
}

static bool match_finding(gv_suppressions *suppressions, gv_finding *finding, node_text *first, node_text *second)
{
    if (finding->id == GV_FINDING_INCOMPLETE || gv_finding_is_observed(finding->id)) {
        if (finding->node)
            describe(first, finding->trace, finding->graph, (uint32_t)(finding->node - 1));
        gv_suppression *block = find_match(suppressions, gv_finding_id_name(finding->id), finding->reason, first, NULL);
        if (!block)
            return false;
        block->pairs++;
        block->used++;
        return true;
    }
    size_t matched = 0;
    for (size_t i = 0; i < suppressions->count; i++)
        suppressions->items[i].here = false;
    for (size_t i = 0; i < finding->pair_count; i++) {
        const gv_race_pair *pair = &finding->pairs[i];
        describe_side(first, finding, &pair->first);
        describe_side(second, finding, &pair->second);
        gv_suppression *block = find_match(suppressions, gv_finding_id_name(pair->id), NULL, first, second);
        if (!block)
            continue;
        block->pairs++;
        block->here = true;
        matched++;
    }
    bool whole = matched && matched == finding->pair_count;
    for (size_t i = 0; i < suppressions->count && whole; i++)
        suppressions->items[i].used += suppressions->items[i].here;
    return whole;
}

gv_status gv_suppressions_apply(gv_suppressions *suppressions, gv_findings *findings, gv_error *error)
{
    bool failed = false;
    for (size_t i = 0; i < findings->count && !failed; i++) {
        node_text first = {0}, second = {0};
        findings->items[i].suppressed |= match_finding(suppressions, &findings->items[i], &first, &second);
        failed = first.name.failed || first.full.failed || first.symbol.failed || second.name.failed ||
                 second.full.failed || second.symbol.failed || first.place.failed || second.place.failed;
        node_text_free(&first);
        node_text_free(&second);
    }
    return failed ? gv_fail(error, GV_ERR_MEMORY, "out of memory while suppressions were applied") : GV_OK;
}
