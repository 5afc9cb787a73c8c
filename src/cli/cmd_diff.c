// gravel diff: two recordings with checksums, compared step by step: where the memory of two runs parts.
#include "base/memory.h"
#include "cli/cli.h"
#include "report/format.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PAGES_SHOWN = 12 };

// One side of a region: its steps in order, and what its pages hash to as of the last one that was looked at.
typedef struct side {
    const gv_trace *trace;
    const gv_region *region; // NULL: this side has none of that name
    uint64_t id;
    size_t next; // in trace->region_steps
    uint64_t *hashes;
    uint64_t steps, last_step; // hashed ones, and the number of the last one
    uint64_t unhashed;
} side;

typedef struct comparison {
    side sides[2];
    const char *name;
    uint64_t pages;
    uint64_t same;  // steps
    uint64_t first; // step that differs; 0: none
    uint64_t differing;
    uint64_t shown[PAGES_SHOWN];
    bool unlike; // of another size
} comparison;

// The region of this name that has `before` others of it in front, or 0.
static uint64_t region_named(const gv_trace *trace, const char *name, size_t before)
{
    for (uint64_t id = 1; id < trace->region_count; id++) {
        const gv_region *region = &trace->regions[id];
        if (region->page_bytes && region->flags & GV_REGION_CHECKSUM && !strcmp(region->name, name) && before-- == 0)
            return id;
    }
    return 0;
}

static size_t same_named_before(const gv_trace *trace, uint64_t id)
{
    size_t count = 0;
    for (uint64_t i = 1; i < id; i++)
        count += trace->regions[i].page_bytes && trace->regions[i].flags & GV_REGION_CHECKSUM &&
                 !strcmp(trace->regions[i].name, trace->regions[id].name);
    return count;
}

static uint64_t pages_of(const gv_region *region)
{
    return (region->size - 1) / region->page_bytes + 1;
}

// ---- One region --------------------------------------------------------------------------------------------------

// The next step of this side that was hashed, or NULL; those that were not are counted.
static const gv_region_step *next_step(side *s)
{
    while (s->next < s->trace->region_step_count) {
        const gv_region_step *step = &s->trace->region_steps[s->next++];
        if (step->region != s->id)
            continue;
        if (step->state != GV_REGION_UNHASHED)
            return step;
        s->unhashed++;
    }
    return NULL;
}

static void apply(side *s, const gv_region_step *step, uint64_t pages)
{
    for (size_t i = 0; i < step->hashed.count; i++) {
        uint64_t hash = 0;
        for (int byte = 7; byte >= 0; byte--)
            hash = hash << 8 | step->hashes.data[8 * i + (size_t)byte];
        if (step->hashed.items[i] < pages)
            s->hashes[step->hashed.items[i]] = hash;
    }
    s->steps++;
    s->last_step = step->step;
}

static void find_pages(comparison *c, uint64_t step)
{
    c->first = step;
    for (uint64_t page = 0; page < c->pages; page++)
        if (c->sides[0].hashes[page] != c->sides[1].hashes[page]) {
            if (c->differing < PAGES_SHOWN)
                c->shown[c->differing] = page;
            c->differing++;
        }
}

static gv_status compare(comparison *c, gv_error *error)
{
    side *a = &c->sides[0], *b = &c->sides[1];
    c->pages = pages_of(a->region);
    c->unlike = c->pages != pages_of(b->region) || a->region->page_bytes != b->region->page_bytes;
    if (c->unlike)
        return GV_OK;
    a->hashes = gv_calloc(c->pages, sizeof *a->hashes);
    b->hashes = gv_calloc(c->pages, sizeof *b->hashes);
    if (!a->hashes || !b->hashes)
        return gv_fail(error, GV_ERR_MEMORY, "no memory to compare the regions");
    const gv_region_step *x = next_step(a), *y = next_step(b);
    while (x || y) {
        // A step that only one side has hashed is part of what is compared at the next one that both have.
        bool left = x && (!y || x->step <= y->step), right = y && (!x || y->step <= x->step);
        if (left)
            apply(a, x, c->pages);
        if (right)
            apply(b, y, c->pages);
        if (left && right && !c->first) {
            if (x->hash == y->hash)
                c->same++;
            else
                find_pages(c, x->step);
        }
        x = left ? next_step(a) : x;
        y = right ? next_step(b) : y;
    }
    return GV_OK;
}

// ---- What came of it ---------------------------------------------------------------------------------------------

static void print_difference(const comparison *c)
{
    printf("step %" PRIu64 ", \"%s\": ", c->first, c->name);
    if (!c->differing)
        printf("the whole differs, and no page of it is known to\n");
    else
        printf("%s of %s differ:", gv_number(c->differing), gv_count(c->pages, "page", "pages"));
    for (uint64_t i = 0; i < c->differing && i < PAGES_SHOWN; i++)
        printf(" %" PRIu64, c->shown[i]);
    if (c->differing)
        printf("%s\n", c->differing > PAGES_SHOWN ? " ..." : "");
}

// Says what there is to say of a region. Returns whether it is the same on both sides.
static bool print_region(const comparison *c, char *const *paths)
{
    bool same = !c->first;
    for (int i = 0; i < 2; i++)
        if (!c->sides[i].region) {
            printf("\"%s\": not in %s\n", c->name, paths[i]);
            return false;
        }
    if (c->unlike) {
        printf("\"%s\": not of the same size, or in pages of another size\n", c->name);
        return false;
    }
    if (c->first)
        print_difference(c);
    else
        printf("\"%s\": the same in %s\n", c->name, gv_count(c->same, "step", "steps"));
    if (c->sides[0].last_step != c->sides[1].last_step) {
        printf("\"%s\": %s ends with step %" PRIu64 ", %s with step %" PRIu64 "\n", c->name, paths[0],
               c->sides[0].last_step, paths[1], c->sides[1].last_step);
        same = false;
    }
    return same;
}

// Steps of which nothing was compared. Returns whether there were none.
static bool print_incomplete(const comparison *c, char *const *paths)
{
    bool complete = true;
    for (int i = 0; i < 2 && c->sides[0].region && c->sides[1].region; i++)
        if (c->sides[i].unhashed) {
            printf("incomplete: %s of \"%s\" %s not hashed in %s\n", gv_count(c->sides[i].unhashed, "step", "steps"),
                   c->name, c->sides[i].unhashed == 1 ? "was" : "were", paths[i]);
            complete = false;
        }
    bool whole = c->sides[0].steps == c->same && c->sides[1].steps == c->same;
    if (c->sides[0].region && c->sides[1].region && !c->unlike && !c->first && !whole &&
        c->sides[0].last_step == c->sides[1].last_step) {
        printf("incomplete: \"%s\" was not hashed after the same steps in both\n", c->name);
        complete = false;
    }
    return complete;
}

// All regions of either side, those of the first one first.
static gv_status list_regions(gv_trace *const *traces, comparison **list, size_t *count, gv_error *error)
{
    size_t capacity = 0;
    *list = NULL;
    *count = 0;
    for (int from = 0; from < 2; from++)
        for (uint64_t id = 1; id < traces[from]->region_count; id++) {
            const gv_region *region = &traces[from]->regions[id];
            if (!region->page_bytes || !(region->flags & GV_REGION_CHECKSUM))
                continue;
            uint64_t other = region_named(traces[!from], region->name, same_named_before(traces[from], id));
            if (from == 1 && other)
                continue;
            if (!GV_GROW(*list, capacity, *count + 1))
                return gv_fail(error, GV_ERR_MEMORY, "no memory to compare the traces");
            comparison *c = &(*list)[(*count)++];
            *c = (comparison){.name = region->name};
            c->sides[from] = (side){.trace = traces[from], .region = region, .id = id};
            c->sides[!from] =
                (side){.trace = traces[!from], .region = other ? &traces[!from]->regions[other] : NULL, .id = other};
        }
    return GV_OK;
}

static int compare_traces(gv_trace *const *traces, char *const *paths)
{
    comparison *list = NULL;
    const comparison *first = NULL;
    size_t count = 0;
    gv_error error = {0};
    bool same = true, complete = true;
    gv_status status = list_regions(traces, &list, &count, &error);
    for (size_t i = 0; i < count && status == GV_OK; i++)
        if (list[i].sides[0].region && list[i].sides[1].region)
            status = compare(&list[i], &error);
    for (size_t i = 0; i < count; i++)
        if (list[i].first && (!first || list[i].first < first->first))
            first = &list[i];
    if (status == GV_OK && first) {
        printf("first difference: ");
        print_difference(first);
    }
    for (size_t i = 0; i < count && status == GV_OK; i++)
        same &= print_region(&list[i], paths);
    for (size_t i = 0; i < count && status == GV_OK; i++)
        complete &= print_incomplete(&list[i], paths);
    for (int i = 0; i < 2 && status == GV_OK; i++)
        if (traces[i]->truncation) {
            printf("incomplete: %s is cut or damaged: %s\n", paths[i], traces[i]->truncation);
            complete = false;
        }
    if (status == GV_OK)
        printf("%s%s\n", same ? "the same" : "different", complete ? "" : "; incomplete");
    else
        gv_say("%s", error.text);
    for (size_t i = 0; i < count; i++) {
        gv_free(list[i].sides[0].hashes);
        gv_free(list[i].sides[1].hashes);
    }
    gv_free(list);
    if (status != GV_OK || fflush(stdout) != 0 || ferror(stdout))
        return GV_EXIT_INPUT;
    return same ? GV_EXIT_NONE : GV_EXIT_FINDINGS;
}

static bool has_checksums(const gv_trace *trace, const char *path)
{
    for (uint64_t id = 1; id < trace->region_count; id++)
        if (trace->regions[id].flags & GV_REGION_CHECKSUM)
            return true;
    gv_say("%s has no checksums: record it with gravel run --checksums, and declare regions (docs/canary.md)", path);
    return false;
}

static int run(const gv_command *command, int argc, char **argv)
{
    gv_parser parser = gv_parser_open(command, argc, argv);
    for (int id; (id = gv_parse_next(&parser)) != GV_PARSE_END;)
        if (id == GV_PARSE_HELP || id == GV_PARSE_BAD)
            return id == GV_PARSE_HELP ? GV_EXIT_NONE : GV_EXIT_USAGE;
    char **paths = argv + parser.first_operand;
    if (argc - parser.first_operand != 2)
        return gv_usage(command, "name two traces");
    gv_trace *traces[2] = {NULL, NULL};
    gv_error error = {0};
    int code = -1;
    for (int i = 0; i < 2 && code < 0; i++)
        if (gv_trace_load(paths[i], &traces[i], &error) != GV_OK) {
            gv_say("%s", error.text);
            code = GV_EXIT_INPUT;
        }
    for (int i = 0; i < 2 && code < 0; i++)
        if (!has_checksums(traces[i], paths[i]))
            code = GV_EXIT_INPUT;
    if (code < 0)
        code = compare_traces(traces, paths);
    gv_trace_free(traces[0]);
    gv_trace_free(traces[1]);
    return code;
}

const gv_command gv_command_diff = {
    .name = "diff",
    .summary = "Compare the checksums of two recorded runs",
    .synopsis = "FILE FILE",
    .about = "Compares two traces of gravel run --checksums: the first step, region and pages whose contents differ. "
             "Regions are matched by their names. Both runs have to do the same steps.",
    .options = NULL,
    .option_count = 0,
    .closing = "Exit code: 0 the same, 1 different, 2 wrong usage, 3 a file cannot be read or has no checksums.\n\n"
               "Example:\n"
               "  gravel diff graph.gravel eager.gravel\n",
    .run = run,
};
