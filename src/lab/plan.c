#include "lab/plan.h"

#include "base/memory.h"
#include "lab/plan_read.h"
#include "report/format.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- The reader ---------------------------------------------------------------------------------------------------

void gv_read_fail(gv_reader *r, const gv_yaml_node *at, const char *format, ...)
{
    if (r->status != GV_OK)
        return;
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    r->status = gv_yaml_fail(r->yaml, at, r->error, "%s", text);
}

void gv_read_no_memory(gv_reader *r)
{
    if (r->status == GV_OK)
        r->status = gv_fail(r->error, GV_ERR_MEMORY, "%s: out of memory", r->yaml->name);
}

void gv_read_text(gv_reader *r, const gv_yaml_node *map, const char *key, const char **value)
{
    if (r->status != GV_OK)
        return;
    r->status = gv_yaml_text(r->yaml, map, key, value, r->error);
    const gv_yaml_node *node = gv_yaml_get(map, key);
    if (r->status == GV_OK && node && node->text[0] == '\0')
        gv_read_fail(r, node, "`%s` is empty; give it a value or leave it out", key);
}

void gv_read_count(gv_reader *r, const gv_yaml_node *map, const char *key, uint64_t least, uint64_t most,
                   uint64_t *value)
{
    if (r->status != GV_OK)
        return;
    int64_t read = (int64_t)*value;
    r->status = gv_yaml_integer(r->yaml, map, key, (int64_t)least, (int64_t)most, &read, r->error);
    *value = (uint64_t)read;
}

void gv_read_number(gv_reader *r, const gv_yaml_node *map, const char *key, double least, double most, double *value)
{
    if (r->status == GV_OK)
        r->status = gv_yaml_number(r->yaml, map, key, least, most, value, r->error);
}

void gv_read_bool(gv_reader *r, const gv_yaml_node *map, const char *key, bool *value)
{
    if (r->status == GV_OK)
        r->status = gv_yaml_bool(r->yaml, map, key, value, r->error);
}

void gv_read_seconds(gv_reader *r, const gv_yaml_node *map, const char *key, double *value)
{
    const char *text = NULL;
    gv_read_text(r, map, key, &text);
    if (r->status != GV_OK || !text)
        return;
    char *end = NULL;
    double number = strtod(text, &end);
    double unit = strcmp(end, "") == 0 || strcmp(end, "s") == 0 ? 1
                  : strcmp(end, "ms") == 0                      ? 0.001
                  : strcmp(end, "m") == 0                       ? 60
                  : strcmp(end, "h") == 0                       ? 3600
                                                                : 0;
    if (end == text || unit == 0 || !isfinite(number) || number * unit <= 0 || number * unit > 1e8)
        gv_read_fail(r, gv_yaml_get(map, key), "`%s` must be a time such as 90s, 15m or 8h, not \"%.60s\"", key, text);
    else
        *value = number * unit;
}

void gv_read_keys(gv_reader *r, const gv_yaml_node *map, const char *what, const char *const *known, size_t count)
{
    if (r->status == GV_OK)
        r->status = gv_yaml_expect_keys(r->yaml, map, what, known, count, r->error);
}

void gv_add_word(gv_reader *r, gv_words *words, const char *word)
{
    if (r->status != GV_OK)
        return;
    if (!word || !GV_GROW(words->items, words->capacity, words->count + 1))
        gv_read_no_memory(r);
    else
        words->items[words->count++] = word;
}

void gv_add_setting(gv_reader *r, gv_settings *settings, const char *name, const char *value)
{
    if (r->status != GV_OK)
        return;
    if (!GV_GROW(settings->items, settings->capacity, settings->count + 1))
        gv_read_no_memory(r);
    else
        settings->items[settings->count++] = (gv_setting){name, value};
}

void gv_read_words(gv_reader *r, const gv_yaml_node *node, const char *what, gv_words *words)
{
    if (r->status != GV_OK || !node)
        return;
    if (node->kind == GV_YAML_SCALAR && gv_yaml_scalar_value(node).type != GV_YAML_IS_NULL) {
        gv_add_word(r, words, node->text);
        return;
    }
    if (r->status == GV_OK)
        r->status = gv_yaml_expect_kind(r->yaml, node, what, GV_YAML_SEQUENCE, r->error);
    for (size_t i = 0; r->status == GV_OK && i < node->count; i++) {
        const gv_yaml_node *item = node->items[i];
        if (item->kind != GV_YAML_SCALAR)
            gv_read_fail(r, item, "%s must be a list of texts; quote this one if it is meant as text", what);
        else
            gv_add_word(r, words, item->text);
    }
}

void gv_read_settings(gv_reader *r, const gv_yaml_node *node, const char *what, bool unset, gv_settings *settings)
{
    if (r->status != GV_OK || !node)
        return;
    r->status = gv_yaml_expect_kind(r->yaml, node, what, GV_YAML_MAPPING, r->error);
    for (size_t i = 0; r->status == GV_OK && i < node->count; i++) {
        const gv_yaml_node *item = node->items[i];
        if (item->kind != GV_YAML_SCALAR)
            gv_read_fail(r, item, "%s: the value of \"%.60s\" must be one text", what, item->key);
        // An empty value in quotes is the empty text; without quotes YAML reads null.
        bool null = r->status == GV_OK && gv_yaml_scalar_value(item).type == GV_YAML_IS_NULL;
        if (null && !unset)
            gv_read_fail(r, item, "%s: \"%.60s\" has no value; write \"\" for an empty one", what, item->key);
        if (r->status == GV_OK)
            gv_add_setting(r, settings, item->key, null ? NULL : item->text);
    }
}

void gv_read_command(gv_reader *r, const gv_yaml_node *node, const char *what, gv_command_line *command)
{
    if (r->status != GV_OK || !node)
        return;
    command->line = node->line;
    if (node->kind == GV_YAML_SCALAR) {
        if (node->text[0] == '\0')
            gv_read_fail(r, node, "%s is empty; give a list of words, or one text for the shell", what);
        command->shell = node->text;
        return;
    }
    gv_read_words(r, node, what, &command->words);
    if (r->status == GV_OK && command->words.count == 0)
        gv_read_fail(r, node, "%s is an empty list; its first word is the program", what);
}

// ---- Texts --------------------------------------------------------------------------------------------------------

const char *gv_plan_own(gv_plan *plan, char *text)
{
    if (!text)
        return NULL;
    if (!GV_GROW(plan->owned, plan->owned_capacity, plan->owned_count + 1)) {
        gv_free(text);
        return NULL;
    }
    plan->owned[plan->owned_count++] = text;
    return text;
}

const char *gv_plan_path(gv_plan *plan, const char *relative)
{
    gv_string path = {0};
    if (relative[0] == '/')
        gv_string_add(&path, "%s", relative);
    else
        gv_string_add(&path, "%s/%s", plan->directory, relative);
    if (path.failed) {
        gv_string_free(&path);
        return NULL;
    }
    return gv_plan_own(plan, path.text);
}

int gv_plan_level(const gv_plan *plan, size_t f, const char *name)
{
    for (size_t i = 0; i < plan->factors[f].count; i++) {
        if (strcmp(plan->factors[f].levels[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

char *gv_plan_cell_name(const gv_plan *plan, const gv_cell *cell)
{
    gv_string name = {0};
    gv_string_add(&name, "%s", "");
    for (size_t f = 0; f < plan->factor_count; f++)
        gv_string_add(&name, "%s%s=%s", f ? ", " : "", plan->factors[f].name,
                      plan->factors[f].levels[cell->level[f]].name);
    if (name.failed)
        gv_string_free(&name);
    return name.text;
}

bool gv_cell_equal(const gv_plan *plan, const gv_cell *a, const gv_cell *b)
{
    return memcmp(a->level, b->level, plan->factor_count) == 0;
}

// ---- Loading ------------------------------------------------------------------------------------------------------

static void read_stop(gv_reader *r, const gv_yaml_node *root)
{
    gv_stop *stop = &r->plan->stop;
    *stop = (gv_stop){.sequential = true, .clean = 0.01, .corrupt = 0.15, .confidence = 0.99};
    const gv_yaml_node *map = gv_yaml_get(root, "stop");
    if (!map)
        return;
    GV_READ_KEYS(r, map, "`stop`", "rule", "until", "clean", "corrupt", "confidence");
    const char *rule = "sequential", *until = "verdicts";
    gv_read_text(r, map, "rule", &rule);
    gv_read_text(r, map, "until", &until);
    gv_read_number(r, map, "clean", 0, 1, &stop->clean);
    gv_read_number(r, map, "corrupt", 0, 1, &stop->corrupt);
    gv_read_number(r, map, "confidence", 0.5, 0.999999, &stop->confidence);
    if (r->status != GV_OK)
        return;
    if (strcmp(rule, "sequential") != 0 && strcmp(rule, "fixed") != 0)
        gv_read_fail(r, gv_yaml_get(map, "rule"),
                     "`rule` is sequential (stop once enough is known) or fixed (run every "
                     "block), not \"%.40s\"",
                     rule);
    if (strcmp(until, "verdicts") != 0 && strcmp(until, "contrasts") != 0)
        gv_read_fail(r, gv_yaml_get(map, "until"),
                     "`until` is verdicts (each cell is called clean or corrupt) or "
                     "contrasts (and the cells are told apart), not \"%.40s\"",
                     until);
    if (stop->clean >= stop->corrupt)
        gv_read_fail(r, map, "`clean` (%g) must be below `corrupt` (%g): they are the rates that are told apart",
                     stop->clean, stop->corrupt);
    stop->sequential = strcmp(rule, "sequential") == 0;
    stop->contrasts = strcmp(until, "contrasts") == 0;
}

static void read_comparisons(gv_reader *r, const gv_yaml_node *root)
{
    const gv_yaml_node *list = gv_yaml_get(root, "comparisons");
    if (!list || r->status != GV_OK)
        return;
    r->status = gv_yaml_expect_kind(r->yaml, list, "`comparisons`", GV_YAML_SEQUENCE, r->error);
    for (size_t i = 0; r->status == GV_OK && i < list->count; i++) {
        const gv_yaml_node *map = list->items[i];
        gv_comparison comparison = {0};
        GV_READ_KEYS(r, map, "a comparison", "name", "from", "to");
        gv_read_text(r, map, "name", &comparison.name);
        const gv_yaml_node *from = gv_yaml_get(map, "from"), *to = gv_yaml_get(map, "to");
        if (r->status == GV_OK && (!from || !to || !comparison.name))
            gv_read_fail(r, map, "a comparison needs a `name` and the two cells `from` and `to`");
        gv_read_cell(r, from, "`from`", false, &comparison.from);
        gv_read_cell(r, to, "`to`", false, &comparison.to);
        if (r->status != GV_OK)
            return;
        if (gv_cell_equal(r->plan, &comparison.from, &comparison.to))
            gv_read_fail(r, map, "`from` and `to` are the same cell; change a level in one of them");
        gv_plan *plan = r->plan;
        if (!GV_GROW(plan->comparisons, plan->comparison_capacity, plan->comparison_count + 1))
            gv_read_no_memory(r);
        else
            plan->comparisons[plan->comparison_count++] = comparison;
    }
}

static void read_executor(gv_reader *r, const gv_yaml_node *root)
{
    gv_executor *executor = &r->plan->executor;
    executor->jobs = 1;
    const gv_yaml_node *node = gv_yaml_get(root, "executor");
    if (!node || r->status != GV_OK)
        return;
    const char *kind = node->text;
    if (node->kind != GV_YAML_SCALAR) {
        kind = NULL;
        GV_READ_KEYS(r, node, "`executor`", "kind", "jobs", "options");
        gv_read_text(r, node, "kind", &kind);
        gv_read_count(r, node, "jobs", 1, 10000, &executor->jobs);
        gv_read_words(r, gv_yaml_get(node, "options"), "`options`", &executor->options);
    }
    if (r->status == GV_OK && kind && strcmp(kind, "slurm") == 0)
        executor->kind = GV_EXECUTE_SLURM;
    else if (!kind || strcmp(kind, "local") != 0)
        gv_read_fail(r, node,
                     "`executor` is local or slurm (or a mapping with `kind`, `jobs` and `options`), not "
                     "\"%.40s\"",
                     kind ? kind : "");
}

static void read_root(gv_reader *r)
{
    gv_plan *plan = r->plan;
    const gv_yaml_node *root = r->yaml->root;
    GV_READ_KEYS(r, root, "a plan", "version", "name", "seed", "service", "factors", "trial", "design", "stop",
                 "budget", "retries", "estimate", "comparisons", "executor", "minimise");
    uint64_t version = 0;
    gv_read_count(r, root, "version", 0, 1000, &version);
    if (r->status == GV_OK && version != 1)
        gv_read_fail(r, gv_yaml_get(root, "version") ? gv_yaml_get(root, "version") : root,
                     "a plan begins with `version: 1`, the only version this gravel reads");
    gv_read_text(r, root, "name", &plan->name);
    if (r->status == GV_OK && !plan->name)
        gv_read_fail(r, root, "give the plan a `name`; reports carry it");
    plan->seed = 1;
    gv_read_count(r, root, "seed", 0, INT64_MAX, &plan->seed);
    plan->retries = 2;
    gv_read_count(r, root, "retries", 0, 100, &plan->retries);
    gv_read_service(r, root);
    gv_read_trial(r, root);
    gv_read_factors(r, root);
    read_stop(r, root);
    gv_read_design(r, root);
    read_comparisons(r, root);
    read_executor(r, root);
    const gv_yaml_node *budget = gv_yaml_get(root, "budget"), *estimate = gv_yaml_get(root, "estimate");
    if (budget) {
        GV_READ_KEYS(r, budget, "`budget`", "trials", "time");
        gv_read_count(r, budget, "trials", 1, 1000000, &plan->most_trials);
        gv_read_seconds(r, budget, "time", &plan->most_seconds);
    }
    if (estimate) {
        GV_READ_KEYS(r, estimate, "`estimate`", "start", "trial");
        gv_read_seconds(r, estimate, "start", &plan->estimate_start);
        gv_read_seconds(r, estimate, "trial", &plan->estimate_trial);
    }
    gv_read_minimise(r, root);
}

static char *folder_of(const char *absolute)
{
    const char *slash = strrchr(absolute, '/');
    return slash == absolute || !slash ? gv_strdup("/") : gv_strndup(absolute, (size_t)(slash - absolute));
}

gv_status gv_plan_parse(const char *path, const char *text, size_t length, gv_plan **result, gv_error *error)
{
    *result = NULL;
    gv_plan *plan = gv_calloc(1, sizeof *plan);
    if (!plan)
        return gv_fail(error, GV_ERR_MEMORY, "%s: out of memory", path);
    gv_status status = gv_yaml_parse(path, text, length, &plan->yaml, error);
    if (status == GV_OK) {
        char *absolute = realpath(path, NULL);
        plan->path = gv_strdup(absolute ? absolute : path);
        free(absolute);
        plan->directory = plan->path ? folder_of(plan->path) : NULL;
        plan->text = gv_strndup(text, length);
        plan->length = length;
        gv_reader r = {.plan = plan, .yaml = plan->yaml, .error = error};
        if (!plan->path || !plan->directory || !plan->text)
            gv_read_no_memory(&r);
        if (r.status == GV_OK)
            read_root(&r);
        status = r.status;
    }
    if (status != GV_OK) {
        gv_plan_free(plan);
        return status;
    }
    *result = plan;
    return GV_OK;
}

gv_status gv_plan_load(const char *path, gv_plan **plan, gv_error *error)
{
    *plan = NULL;
    enum { MOST = 4 << 20 };
    FILE *file = fopen(path, "rb");
    if (!file)
        return gv_fail(error, GV_ERR_IO, "the plan %s cannot be opened: %s", path, strerror(errno));
    char *text = gv_malloc(MOST + 1);
    size_t length = text ? fread(text, 1, MOST + 1, file) : 0;
    int failed = text && ferror(file) ? errno : 0;
    fclose(file);
    gv_status status = !text    ? gv_fail(error, GV_ERR_MEMORY, "%s: out of memory", path)
                       : failed ? gv_fail(error, GV_ERR_IO, "%s cannot be read: %s", path, strerror(failed))
                                : gv_plan_parse(path, text, length, plan, error);
    gv_free(text);
    return status;
}

static void free_settings(gv_settings *settings)
{
    gv_free(settings->items);
}

static void free_change(gv_change *change)
{
    free_settings(&change->environment);
    gv_free(change->arguments.items);
    free_settings(&change->files);
}

void gv_plan_free(gv_plan *plan)
{
    if (!plan)
        return;
    for (size_t f = 0; f < plan->factor_count; f++) {
        for (size_t i = 0; i < plan->factors[f].count; i++)
            free_change(&plan->factors[f].levels[i]);
        gv_free(plan->factors[f].levels);
    }
    for (size_t i = 0; i < plan->minimise.count; i++)
        free_change(&plan->minimise.changes[i]);
    gv_free(plan->minimise.changes);
    gv_free(plan->factors);
    gv_service *service = &plan->service;
    gv_words *words[] = {
        &service->command.words, &service->prepare.words, &service->stop.words, &plan->trial.command.words,
        &service->inherit,       &service->ports,         &service->files,      &plan->executor.options};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        gv_free(words[i]->items);
    free_settings(&service->environment);
    free_settings(&service->ready_headers);
    free_settings(&plan->trial.environment);
    gv_free(service->ready_body);
    gv_free(plan->design.cells);
    gv_free(plan->comparisons);
    for (size_t i = 0; i < plan->owned_count; i++)
        gv_free(plan->owned[i]);
    gv_free(plan->owned);
    gv_yaml_free(plan->yaml);
    gv_free(plan->path);
    gv_free(plan->directory);
    gv_free(plan->text);
    gv_free(plan);
}
