// Suppressions: findings that somebody looked at and found harmless. docs/findings.md describes the file.
#ifndef GV_CLI_SUPPRESS_H
#define GV_CLI_SUPPRESS_H

#include "base/error.h"
#include "detect/finding.h"

#include <stdbool.h>

// One block of a file. Globs are those of fnmatch(3); NULL matches everything.
typedef struct gv_suppression {
    char *name;   // the first line: what the report calls it
    char *id;     // glob over the pair's id
    char *first;  // glob over the name of the node made first
    char *second; // the other node
    char *place;  // glob over "file:line" of either launch
    char *reason; // glob over an incompleteness' reason
    size_t line;  // where the block begins
    size_t used;  // how many findings it took part in suppressing
    size_t pairs; // how many pairs or incompletenesses it matched
    bool here;    // matched a pair of the finding at hand
} gv_suppression;

typedef struct gv_suppressions {
    char *path;
    gv_suppression *items;
    size_t count, capacity;
} gv_suppressions;

// Reads a file and adds its blocks. A mistake in it is GV_ERR_FORMAT, with the line.
gv_status gv_suppressions_read(gv_suppressions *suppressions, const char *path, gv_error *error);

// The same from text that is already in memory; `path` is for messages.
gv_status gv_suppressions_parse(gv_suppressions *suppressions, const char *path, const char *text, gv_error *error);

// Marks the findings of which every pair (or the incompleteness itself) is matched by some block. A finding of which
// only some pairs match stays: the others would be hidden with it. What is marked already stays marked.
gv_status gv_suppressions_apply(gv_suppressions *suppressions, gv_findings *findings, gv_error *error);

void gv_suppressions_free(gv_suppressions *suppressions);

#endif
