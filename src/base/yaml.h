// Reads a YAML file (a scenario of `gravel stress`, a plan of `gravel lab`) into a tree that remembers lines, so that
// every complaint can name the place and the remedy. Takes YAML 1.1 as libyaml does, without anchors and aliases, tags,
// duplicate keys and further documents, each of which is refused with a message.
#ifndef GV_BASE_YAML_H
#define GV_BASE_YAML_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum gv_yaml_kind { GV_YAML_SCALAR, GV_YAML_SEQUENCE, GV_YAML_MAPPING } gv_yaml_kind;

// A node. `text` of a scalar is NUL-terminated UTF-8 without a NUL inside. The members of a mapping stand in `items`
// with their `key`; those of a sequence have none.
typedef struct gv_yaml_node {
    gv_yaml_kind kind;
    bool plain;  // scalar: written without quotes and not as a block, so that 7, true and null are not text
    size_t line; // from 1
    char *key;   // of a member of a mapping
    char *text;  // scalar
    struct gv_yaml_node **items;
    size_t count, capacity;
} gv_yaml_node;

// A loaded file. Owns the nodes.
typedef struct gv_yaml {
    char *name; // for messages: the path as given
    gv_yaml_node *root;
    size_t nodes;
} gv_yaml;

// Loads `path`, or parses `length` bytes of text under a name. The file may have 4 MiB, the tree 200,000 nodes in 32
// levels. On failure `*yaml` is NULL. GV_ERR_IO, GV_ERR_FORMAT, GV_ERR_LIMIT or GV_ERR_MEMORY.
gv_status gv_yaml_load(const char *path, gv_yaml **yaml, gv_error *error);
gv_status gv_yaml_parse(const char *name, const char *text, size_t length, gv_yaml **yaml, gv_error *error);
void gv_yaml_free(gv_yaml *yaml);

// A mistake in the file: "NAME:LINE: ...". Returns GV_ERR_FORMAT.
gv_status gv_yaml_fail(const gv_yaml *yaml, const gv_yaml_node *at, gv_error *error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// The member of a mapping, or NULL when there is none or `mapping` is NULL or no mapping.
const gv_yaml_node *gv_yaml_get(const gv_yaml_node *mapping, const char *key);

// Checks that `node` is a mapping and has no other keys than the `count` known ones; `what` names it in messages
// ("a round").
gv_status gv_yaml_expect_keys(const gv_yaml *yaml, const gv_yaml_node *node, const char *what, const char *const *known,
                              size_t count, gv_error *error);

// Checks the kind of `node`; `what` names it in messages ("`rounds`").
gv_status gv_yaml_expect_kind(const gv_yaml *yaml, const gv_yaml_node *node, const char *what, gv_yaml_kind kind,
                              gv_error *error);

// Reads an optional member of `mapping`: absent, `*value` stays as it is. Text belongs to the tree.
gv_status gv_yaml_text(const gv_yaml *yaml, const gv_yaml_node *mapping, const char *key, const char **value,
                       gv_error *error);
gv_status gv_yaml_integer(const gv_yaml *yaml, const gv_yaml_node *mapping, const char *key, int64_t least,
                          int64_t most, int64_t *value, gv_error *error);
gv_status gv_yaml_number(const gv_yaml *yaml, const gv_yaml_node *mapping, const char *key, double least, double most,
                         double *value, gv_error *error);
gv_status gv_yaml_bool(const gv_yaml *yaml, const gv_yaml_node *mapping, const char *key, bool *value, gv_error *error);

// What a plain scalar stands for under the core schema of YAML 1.2: null, true, false, an integer, a number; else text.
typedef enum gv_yaml_type {
    GV_YAML_IS_TEXT,
    GV_YAML_IS_NULL,
    GV_YAML_IS_BOOL,
    GV_YAML_IS_INTEGER,
    GV_YAML_IS_NUMBER
} gv_yaml_type;

typedef struct gv_yaml_value {
    gv_yaml_type type;
    bool boolean;
    int64_t integer;
    double number; // of an integer too
} gv_yaml_value;

gv_yaml_value gv_yaml_scalar_value(const gv_yaml_node *scalar);

#endif
