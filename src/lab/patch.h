// Patches and fix files in parts: how many there are, and a file with some of them only.
#ifndef GV_LAB_PATCH_H
#define GV_LAB_PATCH_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

// The hunks ("@@") of a unified diff. A file's section without hunks (a rename, a new mode, a binary) counts as one,
// because it can be left out alone. GV_ERR_FORMAT for a file that is no unified diff.
gv_status gv_patch_hunks(const char *path, size_t *count, gv_error *error);

// Writes the hunks i with keep[i] to `out`, each under its file's header. `count` is what gv_patch_hunks said.
gv_status gv_patch_select(const char *path, const bool *keep, size_t count, const char *out, gv_error *error);

// The same for the array `edges` of a fix file (JSON).
gv_status gv_fix_edges(const char *path, size_t *count, gv_error *error);
gv_status gv_fix_select(const char *path, const bool *keep, size_t count, const char *out, gv_error *error);

// Reads a whole file of at most `most` bytes; NUL-terminated, owned by the caller.
gv_status gv_read_whole(const char *path, size_t most, char **text, size_t *length, gv_error *error);

#endif
