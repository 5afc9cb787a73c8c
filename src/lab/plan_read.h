// What the files that read a plan share: a reader that keeps its first failure, so that the reading code is a list of
// what is read.
#ifndef GV_LAB_PLAN_READ_H
#define GV_LAB_PLAN_READ_H

#include "lab/plan.h"

typedef struct gv_reader {
    gv_plan *plan;
    const gv_yaml *yaml;
    gv_error *error;
    gv_status status; // every function does nothing once this is not GV_OK
} gv_reader;

// Sets the failure "FILE:LINE: ..."; the first one stays.
void gv_read_fail(gv_reader *r, const gv_yaml_node *at, const char *format, ...) __attribute__((format(printf, 3, 4)));
void gv_read_no_memory(gv_reader *r);

// Optional members of `map`: absent, the value stays as it is.
void gv_read_text(gv_reader *r, const gv_yaml_node *map, const char *key, const char **value);
void gv_read_count(gv_reader *r, const gv_yaml_node *map, const char *key, uint64_t least, uint64_t most,
                   uint64_t *value);
void gv_read_number(gv_reader *r, const gv_yaml_node *map, const char *key, double least, double most, double *value);
void gv_read_bool(gv_reader *r, const gv_yaml_node *map, const char *key, bool *value);
// "90", "90s", "1.5m", "8h".
void gv_read_seconds(gv_reader *r, const gv_yaml_node *map, const char *key, double *value);

void gv_read_keys(gv_reader *r, const gv_yaml_node *map, const char *what, const char *const *known, size_t count);
#define GV_READ_KEYS(r, map, what, ...)                            \
    gv_read_keys(r, map, what, (const char *const[]){__VA_ARGS__}, \
                 sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

// A list of texts, or one text for a list of one.
void gv_read_words(gv_reader *r, const gv_yaml_node *node, const char *what, gv_words *words);
// A mapping of texts. `null` is kept as a NULL value where `unset` allows it.
void gv_read_settings(gv_reader *r, const gv_yaml_node *node, const char *what, bool unset, gv_settings *settings);
// A list of words, or a text for the shell.
void gv_read_command(gv_reader *r, const gv_yaml_node *node, const char *what, gv_command_line *command);

// The parts of a plan.
void gv_read_service(gv_reader *r, const gv_yaml_node *root);
void gv_read_trial(gv_reader *r, const gv_yaml_node *root);
void gv_read_factors(gv_reader *r, const gv_yaml_node *root);
void gv_read_change(gv_reader *r, const gv_yaml_node *node, const char *name, bool splits, gv_change *change);
void gv_read_design(gv_reader *r, const gv_yaml_node *root);
void gv_read_minimise(gv_reader *r, const gv_yaml_node *root);
// {factor: level, ...}: every factor, or with `partial` only some; those absent become 255.
void gv_read_cell(gv_reader *r, const gv_yaml_node *node, const char *what, bool partial, gv_cell *cell);

void gv_add_word(gv_reader *r, gv_words *words, const char *word);
void gv_add_setting(gv_reader *r, gv_settings *settings, const char *name, const char *value);

#endif
