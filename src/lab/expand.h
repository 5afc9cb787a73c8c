// Placeholders in a plan's texts: ${port}, ${out}, ${seed} and so on (docs/lab.md lists them). "$${" stands for "${".
#ifndef GV_LAB_EXPAND_H
#define GV_LAB_EXPAND_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gv_variable {
    char *name, *value;
} gv_variable;

// Zero-initialise it; release it with gv_variables_free.
typedef struct gv_variables {
    gv_variable *items;
    size_t count, capacity;
    bool failed; // memory ran out; looked at by gv_expand
} gv_variables;

// Sets or replaces. Both texts are copied.
void gv_variables_set(gv_variables *variables, const char *name, const char *value);
void gv_variables_set_number(gv_variables *variables, const char *name, uint64_t value);
const char *gv_variables_get(const gv_variables *variables, const char *name);
void gv_variables_free(gv_variables *variables);

// `text` with its placeholders replaced, owned by the caller. ${env.NAME} is a variable of gravel's own environment.
// NULL, with a message that lists what there is, for an unknown placeholder or one without its brace.
char *gv_expand(const gv_variables *variables, const char *text, gv_error *error);

#endif
