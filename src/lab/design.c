#include "lab/design.h"

#include "base/memory.h"
#include "lab/plan_read.h"

#include <string.h>

// ---- Random numbers -----------------------------------------------------------------------------------------------

uint64_t gv_random_mix(uint64_t seed, uint64_t stream, uint64_t index)
{
    gv_random random = gv_random_open(seed, stream);
    random = gv_random_open(gv_random_next(&random), index);
    return gv_random_next(&random);
}

enum { STREAM_ORDER = 1, STREAM_SEED = 2 };

void gv_block_order(uint64_t seed, uint64_t block, size_t *order, size_t count)
{
    gv_random random = gv_random_open(gv_random_mix(seed, STREAM_ORDER, block), 0);
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count; i > 1; i--) {
        size_t j = (size_t)gv_random_below(&random, i);
        size_t other = order[j];
        order[j] = order[i - 1];
        order[i - 1] = other;
    }
}

uint64_t gv_trial_seed(uint64_t seed, uint64_t trial)
{
    return gv_random_mix(seed, STREAM_SEED, trial) >> 33;
}

// ---- Cells --------------------------------------------------------------------------------------------------------

long gv_design_find(const gv_plan *plan, const gv_cell *cell)
{
    for (size_t i = 0; i < plan->design.cell_count; i++) {
        if (gv_cell_equal(plan, &plan->design.cells[i], cell))
            return (long)i;
    }
    return -1;
}

unsigned gv_cell_difference(const gv_plan *plan, const gv_cell *a, const gv_cell *b, uint32_t *factors)
{
    *factors = 0;
    // The bound that the array has too: gcc believes no other under a sanitizer.
    for (size_t f = 0; f < plan->factor_count && f < GV_LAB_MOST_FACTORS; f++)
        *factors |= (uint32_t)(a->level[f] != b->level[f]) << f;
    return (unsigned)__builtin_popcount(*factors);
}

size_t gv_design_aliases(const gv_plan *plan, uint32_t effect, uint32_t *aliases, size_t room)
{
    const gv_design *design = &plan->design;
    size_t count = 0;
    // The defining relation: every product of generators is a word that is always +1.
    for (uint32_t subset = 1; design->kind == GV_DESIGN_FRACTION && subset < 1u << design->generator_count; subset++) {
        uint32_t word = 0;
        for (size_t i = 0; i < design->generator_count; i++) {
            if (subset >> i & 1)
                word ^= design->product[i] ^ 1u << design->generated[i];
        }
        uint32_t alias = effect ^ word;
        if (alias != 0 && __builtin_popcount(alias) <= 2 && count < room)
            aliases[count++] = alias;
    }
    return count;
}

static void add_cell(gv_reader *r, const gv_cell *cell)
{
    gv_design *design = &r->plan->design;
    if (r->status != GV_OK || gv_design_find(r->plan, cell) >= 0)
        return;
    if (!GV_GROW(design->cells, design->cell_capacity, design->cell_count + 1))
        gv_read_no_memory(r);
    else
        design->cells[design->cell_count++] = *cell;
}

// Steps to the next combination of the factors in `counted`. False after the last.
static bool next_combination(const gv_plan *plan, gv_cell *cell, uint32_t counted)
{
    for (size_t f = plan->factor_count; f-- > 0;) {
        if (!(counted >> f & 1))
            continue;
        if (++cell->level[f] < plan->factors[f].count)
            return true;
        cell->level[f] = 0;
    }
    return false;
}

static void full_design(gv_reader *r, const gv_yaml_node *at)
{
    const gv_plan *plan = r->plan;
    double cells = 1;
    for (size_t f = 0; f < plan->factor_count; f++)
        cells *= (double)plan->factors[f].count;
    if (cells > GV_LAB_MOST_CELLS) {
        gv_read_fail(r, at,
                     "a full design of these factors has %.0f cells; %d is the most, so choose `kind: fraction`, "
                     "`one-factor` or `cells`",
                     cells, GV_LAB_MOST_CELLS);
        return;
    }
    gv_cell cell = {{0}};
    do
        add_cell(r, &cell);
    while (next_combination(plan, &cell, UINT32_MAX));
}

static void one_factor_design(gv_reader *r)
{
    const gv_plan *plan = r->plan;
    add_cell(r, &plan->design.baseline);
    for (size_t f = 0; f < plan->factor_count; f++) {
        for (size_t i = 0; i < plan->factors[f].count; i++) {
            gv_cell cell = plan->design.baseline;
            cell.level[f] = (unsigned char)i;
            add_cell(r, &cell);
        }
    }
}

// ---- Fractional designs -------------------------------------------------------------------------------------------

static size_t find_factor(const gv_plan *plan, const char *name, size_t length)
{
    while (length && name[0] == ' ') {
        name++;
        length--;
    }
    while (length && name[length - 1] == ' ')
        length--;
    for (size_t f = 0; f < plan->factor_count; f++) {
        if (strlen(plan->factors[f].name) == length && memcmp(plan->factors[f].name, name, length) == 0)
            return f;
    }
    return SIZE_MAX;
}

// "probe = keys * capture". YAML keys cannot be used because a product is no single name.
static void read_generator(gv_reader *r, const gv_yaml_node *node)
{
    gv_plan *plan = r->plan;
    gv_design *design = &plan->design;
    const char *text = node->kind == GV_YAML_SCALAR ? node->text : "";
    const char *equals = strchr(text, '=');
    if (!equals) {
        gv_read_fail(r, node,
                     "a generator is written \"a = b * c\": the level of factor a is the product of those of b "
                     "and c");
        return;
    }
    size_t own = find_factor(plan, text, (size_t)(equals - text));
    uint32_t product = 0;
    for (const char *next = equals + 1; next && r->status == GV_OK;) {
        const char *star = strchr(next, '*');
        size_t f = find_factor(plan, next, star ? (size_t)(star - next) : strlen(next));
        if (f == SIZE_MAX || own == SIZE_MAX)
            gv_read_fail(r, node, "generator \"%.80s\" names a factor that is not in `factors`", text);
        else
            product ^= 1u << f;
        next = star ? star + 1 : NULL;
    }
    if (r->status != GV_OK)
        return;
    for (size_t i = 0; i < design->generator_count; i++) {
        if (design->generated[i] == own || (product >> design->generated[i] & 1))
            gv_read_fail(r, node,
                         "generator \"%.80s\" uses a factor that an earlier one makes; make each from the others "
                         "once",
                         text);
    }
    if (product >> own & 1 || product == 0)
        gv_read_fail(r, node, "generator \"%.80s\" makes a factor from itself", text);
    if (r->status == GV_OK) {
        design->generated[design->generator_count] = own;
        design->product[design->generator_count++] = product;
    }
}

static void fraction_design(gv_reader *r, const gv_yaml_node *map)
{
    const gv_plan *plan = r->plan;
    const gv_design *design = &plan->design;
    const gv_yaml_node *list = gv_yaml_get(map, "generators");
    if (!list) {
        gv_read_fail(r, map, "`kind: fraction` needs `generators`, for example [probe = keys * capture]");
        return;
    }
    r->status = gv_yaml_expect_kind(r->yaml, list, "`generators`", GV_YAML_SEQUENCE, r->error);
    for (size_t f = 0; r->status == GV_OK && f < plan->factor_count; f++) {
        if (plan->factors[f].count != 2)
            gv_read_fail(r, map, "a fractional design takes factors of two levels; \"%.60s\" has %zu",
                         plan->factors[f].name, plan->factors[f].count);
    }
    for (size_t i = 0; r->status == GV_OK && i < list->count; i++)
        read_generator(r, list->items[i]);
    // Every generator's product must be of free factors only, whatever their order in the list.
    uint32_t free_factors = (1u << plan->factor_count) - 1;
    for (size_t i = 0; i < design->generator_count; i++)
        free_factors &= ~(1u << design->generated[i]);
    for (size_t i = 0; r->status == GV_OK && i < design->generator_count; i++) {
        if (design->product[i] & ~free_factors)
            gv_read_fail(r, list->items[i],
                         "this generator uses a factor that another one makes; use only factors that no "
                         "generator makes");
    }
    if (r->status != GV_OK)
        return;
    gv_cell cell = {{0}};
    do {
        for (size_t i = 0; i < design->generator_count; i++) {
            // Level 1 is +1 and level 0 is -1: the product is +1 when an even number of its factors is at level 0.
            unsigned low = 0;
            for (size_t f = 0; f < plan->factor_count; f++)
                low += (design->product[i] >> f & 1) && cell.level[f] == 0;
            cell.level[design->generated[i]] = low % 2 == 0;
        }
        add_cell(r, &cell);
    } while (next_combination(plan, &cell, free_factors));
}

// ---- Reading ------------------------------------------------------------------------------------------------------

static void read_cells(gv_reader *r, const gv_yaml_node *map)
{
    const gv_yaml_node *list = gv_yaml_get(map, "cells");
    if (!list) {
        gv_read_fail(r, map, "`kind: cells` needs the list `cells`, each {factor: level, ...}");
        return;
    }
    r->status = gv_yaml_expect_kind(r->yaml, list, "`cells`", GV_YAML_SEQUENCE, r->error);
    for (size_t i = 0; r->status == GV_OK && i < list->count; i++) {
        gv_cell cell;
        gv_read_cell(r, list->items[i], "a cell", false, &cell);
        add_cell(r, &cell);
    }
}

static void exclude_cells(gv_reader *r, const gv_yaml_node *map)
{
    const gv_yaml_node *list = gv_yaml_get(map, "exclude");
    gv_plan *plan = r->plan;
    if (!list || r->status != GV_OK)
        return;
    r->status = gv_yaml_expect_kind(r->yaml, list, "`exclude`", GV_YAML_SEQUENCE, r->error);
    for (size_t i = 0; r->status == GV_OK && i < list->count; i++) {
        gv_cell pattern;
        gv_read_cell(r, list->items[i], "a cell to exclude", true, &pattern);
        size_t kept = 0;
        for (size_t c = 0; r->status == GV_OK && c < plan->design.cell_count; c++) {
            bool matches = true;
            for (size_t f = 0; f < plan->factor_count; f++)
                matches = matches && (pattern.level[f] == 255 || pattern.level[f] == plan->design.cells[c].level[f]);
            if (!matches)
                plan->design.cells[kept++] = plan->design.cells[c];
        }
        if (r->status == GV_OK && kept == plan->design.cell_count)
            gv_read_fail(r, list->items[i], "this excludes no cell of the design; take it out");
        plan->design.cell_count = kept;
    }
}

void gv_read_design(gv_reader *r, const gv_yaml_node *root)
{
    if (r->status != GV_OK)
        return;
    gv_design *design = &r->plan->design;
    design->blocks = 20;
    const gv_yaml_node *map = gv_yaml_get(root, "design");
    if (!map) {
        full_design(r, root);
        return;
    }
    GV_READ_KEYS(r, map, "`design`", "kind", "baseline", "generators", "cells", "exclude", "blocks");
    const char *kind = "full";
    gv_read_text(r, map, "kind", &kind);
    gv_read_count(r, map, "blocks", 1, 100000, &design->blocks);
    const gv_yaml_node *baseline = gv_yaml_get(map, "baseline");
    gv_read_cell(r, baseline, "`baseline`", false, &design->baseline);
    if (r->status != GV_OK)
        return;
    static const char *const kinds[] = {"full", "one-factor", "fraction", "cells"};
    int chosen = -1;
    for (int i = 0; i < 4; i++)
        chosen = strcmp(kinds[i], kind) == 0 ? i : chosen;
    if (chosen < 0) {
        gv_read_fail(r, gv_yaml_get(map, "kind"), "`kind` is full, one-factor, fraction or cells, not \"%.40s\"", kind);
        return;
    }
    design->kind = (gv_design_kind)chosen;
    static const char *const owned[] = {NULL, "baseline", "generators", "cells"};
    for (int i = 1; i < 4; i++) {
        if (i != chosen && gv_yaml_get(map, owned[i]))
            gv_read_fail(r, gv_yaml_get(map, owned[i]), "`%s` belongs to `kind: %s`, and this design is %s", owned[i],
                         kinds[i], kind);
    }
    if (r->status != GV_OK)
        return;
    switch (design->kind) {
    case GV_DESIGN_FULL: full_design(r, map); break;
    case GV_DESIGN_ONE_FACTOR:
        if (baseline)
            one_factor_design(r);
        else
            gv_read_fail(r, map,
                         "`kind: one-factor` needs a `baseline`: the cell of which one factor at a time is "
                         "changed");
        break;
    case GV_DESIGN_FRACTION: fraction_design(r, map); break;
    case GV_DESIGN_CELLS: read_cells(r, map); break;
    }
    exclude_cells(r, map);
    if (r->status == GV_OK && design->cell_count == 0)
        gv_read_fail(r, map, "the design has no cells left; exclude fewer");
    if (r->status == GV_OK && design->cell_count > GV_LAB_MOST_CELLS)
        gv_read_fail(r, map, "the design has %zu cells; %d is the most", design->cell_count, GV_LAB_MOST_CELLS);
}
