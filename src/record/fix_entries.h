// The entries of the fix file, as `gravel run` has checked and prepared them: a trace file of `fix` records. The
// program's process never reads the JSON.
#ifndef GV_RECORD_FIX_ENTRIES_H
#define GV_RECORD_FIX_ENTRIES_H

#include "base/error.h"
#include "record/graph_levels.h"
#include "trace/record.h"

typedef struct gv_fix_entry_edge {
    uint64_t number, from, to;
    const uint64_t *steps; // pairs
    size_t step_count;
    const char *kernels[2]; // of from and to; "": no kernel, or not known
} gv_fix_entry_edge;

typedef struct gv_fix_entry {
    gv_fix_record record; // its texts and numbers are this entry's own
    gv_fingerprints prints;
    char *name, *kernels;
    uint64_t *numbers;
    gv_fix_entry_edge *edges;
    size_t edge_count;
} gv_fix_entry;

typedef struct gv_fix_entries {
    gv_fix_entry *items;
    size_t count, capacity;
} gv_fix_entries;

// Reads them. On failure `entries` is empty.
gv_status gv_fix_entries_read(const char *path, gv_fix_entries *entries, gv_error *error);
void gv_fix_entries_free(gv_fix_entries *entries);

// The entry that fits the graph: by the exact fingerprint, else by the one without shapes. NULL: none does; `reason`
// then says what differs from *nearest, which may be NULL too. NULL with a match without shapes: several fit, and their
// edges differ.
const gv_fix_entry *gv_fix_entries_find(const gv_fix_entries *entries, const gv_level *level,
                                        const gv_fingerprints *prints, enum gv_fix_match *match,
                                        const gv_fix_entry **nearest, char *reason, size_t size);

// NULL when the kernels that the entry names at its edges are those of the graph; else what differs, in `text`.
const char *gv_fix_entry_differs(const gv_fix_entry *entry, gv_level *level, char *text, size_t size);

#endif
