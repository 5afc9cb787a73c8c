// Probes: clones of tensors that a captured graph refreshes at each replay, and their comparison with what the program
// computes eagerly (include/gravel.h and docs/probes.md; the program's calls come to probe.c itself).
#ifndef GV_RECORD_PROBE_H
#define GV_RECORD_PROBE_H

#include "record/graph.h"

#include <stdbool.h>
#include <stddef.h>

// The graph that `exec` runs now has been read: notes which clones its launches refresh. Its nodes must be there.
void gv_probe_exec(uint64_t exec, const gv_snapshot *snapshot);

// It was launched.
void gv_probe_launched(uint64_t exec);

// For a forked child.
void gv_probe_forget(void);

// ---- probe_values.c: elements ----

// The size of an element of `dtype` (enum gravel_dtype); 1 for what is compared bit by bit or not known.
size_t gv_dtype_size(unsigned dtype);
const char *gv_dtype_name(unsigned dtype);

// What a comparison of rows found.
typedef struct gv_value_differences {
    uint64_t elements, differing, rows; // compared, differing; rows that have differing ones
    uint64_t first_row, first_element;  // of the first differing one; the element counted in its row
    double largest;                     // difference; NAN: one of two is not a number
    char graph_value[40], eager_value[40];
} gv_value_differences;

// Compares `rows` rows of `row_bytes` bytes. As gravel_probe_compare says.
void gv_values_compare(const void *graph, const void *eager, uint64_t rows, uint64_t row_bytes, unsigned dtype,
                       double tolerance, gv_value_differences *found);

#endif
