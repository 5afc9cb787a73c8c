// Reads what is changed in the service: factors with their levels, and the changes of `minimise`, which are split into
// the smallest parts that can be left out alone.
#include "base/memory.h"
#include "lab/patch.h"
#include "lab/plan_read.h"
#include "report/format.h"

#include <string.h>
#include <unistd.h>

// The absolute path of a file the plan names, which must be there.
static const char *read_file_path(gv_reader *r, const gv_yaml_node *at, const char *relative)
{
    if (r->status != GV_OK || !relative)
        return NULL;
    const char *path = gv_plan_path(r->plan, relative);
    if (!path)
        gv_read_no_memory(r);
    else if (access(path, R_OK) != 0)
        gv_read_fail(r, at, "the file %.200s is not there; paths are seen from the plan's folder", path);
    return path;
}

void gv_read_change(gv_reader *r, const gv_yaml_node *node, const char *name, bool splits, gv_change *change)
{
    *change = (gv_change){.name = name, .line = node->line, .hunk = -1, .edge = -1};
    // "off:" with nothing behind it is a level that changes nothing.
    if (r->status != GV_OK || (node->kind == GV_YAML_SCALAR && gv_yaml_scalar_value(node).type == GV_YAML_IS_NULL))
        return;
    char what[120];
    snprintf(what, sizeof what, "\"%.60s\"", name);
    if (splits)
        GV_READ_KEYS(r, node, what, "environment", "arguments", "revision", "patch", "files", "fix", "split");
    else
        GV_READ_KEYS(r, node, what, "environment", "arguments", "revision", "patch", "files", "fix");
    const gv_service *service = &r->plan->service;
    gv_read_settings(r, gv_yaml_get(node, "environment"), "`environment`", true, &change->environment);
    gv_read_words(r, gv_yaml_get(node, "arguments"), "`arguments`", &change->arguments);
    gv_read_text(r, node, "revision", &change->revision);
    gv_read_text(r, node, "patch", &change->patch);
    gv_read_text(r, node, "fix", &change->fix);
    change->patch = read_file_path(r, gv_yaml_get(node, "patch"), change->patch);
    change->fix = read_file_path(r, gv_yaml_get(node, "fix"), change->fix);
    const gv_yaml_node *files = gv_yaml_get(node, "files");
    gv_read_settings(r, files, "`files`", false, &change->files);
    for (size_t i = 0; r->status == GV_OK && i < change->files.count; i++) {
        gv_setting *file = &change->files.items[i];
        if (file->name[0] == '/' || strncmp(file->name, "../", 3) == 0 || strstr(file->name, "/../"))
            gv_read_fail(r, files->items[i],
                         "\"%.100s\" lies outside the source; only files of the trial's own tree are "
                         "changed",
                         file->name);
        file->value = read_file_path(r, files ? files->items[i] : node, file->value);
    }
    if (r->status != GV_OK)
        return;
    if (change->arguments.count && service->unit)
        gv_read_fail(r, gv_yaml_get(node, "arguments"),
                     "a systemd `unit` takes no `arguments`; use `environment`, which "
                     "the unit's command can read");
    if (change->arguments.count && service->command.shell && !strstr(service->command.shell, "${arguments}"))
        gv_read_fail(r, gv_yaml_get(node, "arguments"),
                     "the service's `command` is a text for the shell and has no "
                     "${arguments} in it; put that where these belong");
    if (change->revision && !service->git)
        gv_read_fail(r, gv_yaml_get(node, "revision"), "`revision` needs `source: {git: ...}` in `service`");
    if ((change->patch || change->files.count) && !service->git && !service->copy)
        gv_read_fail(r, node,
                     "`patch` and `files` need a `source` in `service`: each trial changes a tree of its own, "
                     "never yours");
}

// ---- Factors ------------------------------------------------------------------------------------------------------

// Names stand in cell names, on command lines and in folders' logs: nothing that could be read as something else.
static void check_name(gv_reader *r, const gv_yaml_node *at, const char *what, const char *name)
{
    bool good = name[0] != '\0' && strlen(name) <= 60 && strpbrk(name, ",=\n\t{}$\"'") == NULL;
    if (r->status == GV_OK && !good)
        gv_read_fail(r, at, "%s \"%.60s\" must have 1 to 60 characters, and none of , = { } $ or quotes", what, name);
}

static void read_levels(gv_reader *r, const gv_yaml_node *node, gv_factor *factor)
{
    if (r->status == GV_OK)
        r->status = gv_yaml_expect_kind(r->yaml, node, "a factor", GV_YAML_MAPPING, r->error);
    if (r->status == GV_OK && (node->count < 2 || node->count > 50))
        gv_read_fail(r, node, "factor \"%.60s\" has %zu level%s; a factor has 2 to 50", factor->name, node->count,
                     node->count == 1 ? "" : "s");
    for (size_t i = 0; r->status == GV_OK && i < node->count; i++) {
        check_name(r, node->items[i], "level", node->items[i]->key);
        if (!GV_GROW(factor->levels, factor->capacity, factor->count + 1)) {
            gv_read_no_memory(r);
            return;
        }
        gv_read_change(r, node->items[i], node->items[i]->key, false, &factor->levels[factor->count++]);
    }
}

static const char *setting_of(const gv_change *change, const char *name)
{
    for (size_t i = 0; i < change->environment.count; i++) {
        if (strcmp(change->environment.items[i].name, name) == 0)
            return name;
    }
    return NULL;
}

// Two factors that set one variable would overwrite each other, and the cell would not be what its name says.
static void check_collisions(gv_reader *r, const gv_yaml_node *map)
{
    const gv_plan *plan = r->plan;
    for (size_t a = 0; a < plan->factor_count; a++) {
        for (size_t b = a + 1; b < plan->factor_count; b++) {
            for (size_t i = 0; i < plan->factors[a].count * plan->factors[b].count; i++) {
                const gv_change *x = &plan->factors[a].levels[i / plan->factors[b].count];
                const gv_change *y = &plan->factors[b].levels[i % plan->factors[b].count];
                for (size_t j = 0; j < x->environment.count; j++) {
                    if (setting_of(y, x->environment.items[j].name))
                        gv_read_fail(r, map->items[b],
                                     "factors \"%.60s\" and \"%.60s\" both set %.60s; let one factor "
                                     "own it",
                                     plan->factors[a].name, plan->factors[b].name, x->environment.items[j].name);
                }
                if (x->revision && y->revision)
                    gv_read_fail(r, map->items[b],
                                 "factors \"%.60s\" and \"%.60s\" both choose a revision; let one do "
                                 "so",
                                 plan->factors[a].name, plan->factors[b].name);
            }
        }
    }
}

void gv_read_factors(gv_reader *r, const gv_yaml_node *root)
{
    const gv_yaml_node *map = gv_yaml_get(root, "factors");
    if (r->status != GV_OK)
        return;
    if (!map) {
        gv_read_fail(r, root, "the plan has no `factors`: what is varied, each with its levels");
        return;
    }
    r->status = gv_yaml_expect_kind(r->yaml, map, "`factors`", GV_YAML_MAPPING, r->error);
    gv_plan *plan = r->plan;
    if (r->status == GV_OK && (map->count < 1 || map->count > GV_LAB_MOST_FACTORS))
        gv_read_fail(r, map, "`factors` has %zu; a plan has 1 to %d", map->count, GV_LAB_MOST_FACTORS);
    for (size_t i = 0; r->status == GV_OK && i < map->count; i++) {
        const gv_yaml_node *node = map->items[i];
        check_name(r, node, "factor", node->key);
        if (!GV_GROW(plan->factors, plan->factor_capacity, plan->factor_count + 1)) {
            gv_read_no_memory(r);
            return;
        }
        gv_factor *factor = &plan->factors[plan->factor_count++];
        *factor = (gv_factor){.name = node->key, .line = node->line};
        read_levels(r, node, factor);
    }
    if (r->status == GV_OK)
        check_collisions(r, map);
}

void gv_read_cell(gv_reader *r, const gv_yaml_node *node, const char *what, bool partial, gv_cell *cell)
{
    gv_plan *plan = r->plan;
    memset(cell->level, 255, sizeof cell->level);
    if (r->status != GV_OK || !node)
        return;
    r->status = gv_yaml_expect_kind(r->yaml, node, what, GV_YAML_MAPPING, r->error);
    for (size_t i = 0; r->status == GV_OK && i < node->count; i++) {
        const gv_yaml_node *item = node->items[i];
        size_t f = 0;
        while (f < plan->factor_count && strcmp(plan->factors[f].name, item->key) != 0)
            f++;
        int level = f < plan->factor_count && item->kind == GV_YAML_SCALAR ? gv_plan_level(plan, f, item->text) : -1;
        if (f == plan->factor_count)
            gv_read_fail(r, item, "%s: there is no factor \"%.60s\" in `factors`", what, item->key);
        else if (level < 0)
            gv_read_fail(r, item, "%s: factor \"%.60s\" has no level \"%.60s\"", what, item->key,
                         item->kind == GV_YAML_SCALAR ? item->text : "?");
        else
            cell->level[f] = (unsigned char)level;
    }
    for (size_t f = 0; r->status == GV_OK && !partial && f < plan->factor_count; f++) {
        if (cell->level[f] == 255)
            gv_read_fail(r, node, "%s does not say which level \"%.60s\" has", what, plan->factors[f].name);
    }
}

// ---- Changes to minimise ------------------------------------------------------------------------------------------

static gv_change *add_change(gv_reader *r, const char *name, const gv_change *from)
{
    gv_minimise *minimise = &r->plan->minimise;
    if (r->status != GV_OK)
        return NULL;
    if (!name || !GV_GROW(minimise->changes, minimise->capacity, minimise->count + 1)) {
        gv_read_no_memory(r);
        return NULL;
    }
    gv_change *change = &minimise->changes[minimise->count++];
    *change = (gv_change){.name = name, .line = from->line, .hunk = -1, .edge = -1};
    return change;
}

static const char *part_name(gv_reader *r, const char *name, const char *part)
{
    gv_string text = {0};
    gv_string_add(&text, "%s: %s", name, part);
    if (text.failed)
        gv_string_free(&text);
    return gv_plan_own(r->plan, text.text);
}

// Each part as a change of its own. `whole` loses its arrays to nobody: the parts have copies.
static void split_change(gv_reader *r, const gv_yaml_node *at, const gv_change *whole)
{
    for (size_t i = 0; i < whole->environment.count; i++) {
        const gv_setting *setting = &whole->environment.items[i];
        gv_change *part = add_change(r, part_name(r, whole->name, setting->name), whole);
        if (part)
            gv_add_setting(r, &part->environment, setting->name, setting->value);
    }
    for (size_t i = 0; i < whole->files.count; i++) {
        const gv_setting *file = &whole->files.items[i];
        gv_change *part = add_change(r, part_name(r, whole->name, file->name), whole);
        if (part)
            gv_add_setting(r, &part->files, file->name, file->value);
    }
    if (whole->arguments.count) {
        // Words may belong together (--keys bf16), so that they stay one part.
        gv_change *part = add_change(r, part_name(r, whole->name, "arguments"), whole);
        for (size_t i = 0; part && i < whole->arguments.count; i++)
            gv_add_word(r, &part->arguments, whole->arguments.items[i]);
    }
    if (whole->revision && r->status == GV_OK)
        gv_read_fail(r, at, "a `revision` cannot be split; give the difference as a `patch`");
    size_t parts = 0;
    char word[40];
    if (whole->patch && r->status == GV_OK) {
        gv_error error = {0};
        if (gv_patch_hunks(whole->patch, &parts, &error) != GV_OK)
            gv_read_fail(r, at, "%s", error.text);
        for (size_t i = 0; r->status == GV_OK && i < parts; i++) {
            snprintf(word, sizeof word, "hunk %zu", i + 1);
            gv_change *part = add_change(r, part_name(r, whole->name, word), whole);
            if (part) {
                part->patch = whole->patch;
                part->hunk = (long)i;
            }
        }
    }
    if (whole->fix && r->status == GV_OK) {
        gv_error error = {0};
        if (gv_fix_edges(whole->fix, &parts, &error) != GV_OK)
            gv_read_fail(r, at, "%s", error.text);
        for (size_t i = 0; r->status == GV_OK && i < parts; i++) {
            snprintf(word, sizeof word, "edge %zu", i + 1);
            gv_change *part = add_change(r, part_name(r, whole->name, word), whole);
            if (part) {
                part->fix = whole->fix;
                part->edge = (long)i;
            }
        }
    }
}

void gv_read_minimise(gv_reader *r, const gv_yaml_node *root)
{
    const gv_yaml_node *map = gv_yaml_get(root, "minimise");
    if (!map || r->status != GV_OK)
        return;
    gv_plan *plan = r->plan;
    gv_minimise *minimise = &plan->minimise;
    minimise->line = map->line;
    minimise->clean = plan->stop.clean;
    minimise->corrupt = plan->stop.corrupt;
    minimise->confidence = plan->stop.confidence;
    minimise->most_sessions = 1000;
    minimise->together = 1;
    GV_READ_KEYS(r, map, "`minimise`", "cell", "changes", "clean", "corrupt", "confidence", "most_sessions",
                 "together");
    gv_read_cell(r, gv_yaml_get(map, "cell"), "`cell`", false, &minimise->cell);
    gv_read_number(r, map, "clean", 0, 1, &minimise->clean);
    gv_read_number(r, map, "corrupt", 0, 1, &minimise->corrupt);
    gv_read_number(r, map, "confidence", 0.5, 0.999999, &minimise->confidence);
    gv_read_count(r, map, "most_sessions", 1, 100000, &minimise->most_sessions);
    gv_read_count(r, map, "together", 1, 1000, &minimise->together);
    const gv_yaml_node *changes = gv_yaml_get(map, "changes");
    if (r->status == GV_OK && !gv_yaml_get(map, "cell"))
        gv_read_fail(r, map, "`minimise` needs the `cell` that is corrupt without the changes");
    if (r->status == GV_OK && !changes)
        gv_read_fail(r, map, "`minimise` needs `changes`: what together makes the cell pass");
    if (r->status == GV_OK && minimise->clean >= minimise->corrupt)
        gv_read_fail(r, map, "`clean` (%g) must be below `corrupt` (%g)", minimise->clean, minimise->corrupt);
    if (r->status == GV_OK)
        r->status = gv_yaml_expect_kind(r->yaml, changes, "`changes`", GV_YAML_MAPPING, r->error);
    for (size_t i = 0; r->status == GV_OK && i < changes->count; i++) {
        const gv_yaml_node *node = changes->items[i];
        bool split = false;
        gv_change change;
        check_name(r, node, "change", node->key);
        if (r->status == GV_OK && node->kind == GV_YAML_MAPPING)
            gv_read_bool(r, node, "split", &split);
        gv_read_change(r, node, node->key, true, &change);
        bool empty = !change.environment.count && !change.arguments.count && !change.revision && !change.patch &&
                     !change.files.count && !change.fix;
        if (r->status == GV_OK && empty)
            gv_read_fail(r, node,
                         "change \"%.60s\" changes nothing; give it environment, arguments, revision, patch, "
                         "files or fix",
                         node->key);
        if (r->status == GV_OK && split) {
            split_change(r, node, &change);
        } else if (r->status == GV_OK && GV_GROW(minimise->changes, minimise->capacity, minimise->count + 1)) {
            minimise->changes[minimise->count++] = change;
            continue;
        } else {
            gv_read_no_memory(r);
        }
        gv_free(change.environment.items);
        gv_free(change.arguments.items);
        gv_free(change.files.items);
    }
    if (r->status == GV_OK && (minimise->count < 1 || minimise->count > GV_LAB_MOST_CHANGES))
        gv_read_fail(r, changes, "there are %zu changes after splitting; a search takes 1 to %d", minimise->count,
                     GV_LAB_MOST_CHANGES);
}
