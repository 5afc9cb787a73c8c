// The trace files of one run: where they go, which of them are new, and how to name them to the user.
#ifndef GV_CLI_OUTPUTS_H
#define GV_CLI_OUTPUTS_H

#include "base/error.h"

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct gv_output {
    char *path;  // absolute
    char *shown; // as the user would write it
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
} gv_output;

typedef struct gv_outputs {
    char pattern[PATH_MAX]; // absolute, for GRAVEL_TRACE; %p stands for the process id
    char folder[PATH_MAX];
    gv_output *before; // files of these names that were there already
    size_t before_count, before_capacity;
    gv_output *items; // files the run made or wrote to
    size_t count, capacity;
} gv_outputs;

// Prepares for traces named `pattern` (NULL: "gravel.%p.gravel"). Refuses a folder that cannot be written to and %p in
// a folder's name. An older trace of the very name is removed, as a shell's > would; any other file of that name is
// refused, since it was hardly meant.
gv_status gv_outputs_prepare(gv_outputs *outputs, const char *pattern, gv_error *error);

// After the run: lists the files that are new or were changed, in the order of their names.
gv_status gv_outputs_collect(gv_outputs *outputs, gv_error *error);

void gv_outputs_free(gv_outputs *outputs);

#endif
