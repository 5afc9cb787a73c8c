// Reads what a trial's command counted, from JSON by pointers or from text by regular expressions.
#ifndef GV_LAB_COUNTS_H
#define GV_LAB_COUNTS_H

#include "base/error.h"
#include "lab/plan.h"

#include <jansson.h>

typedef struct gv_counted {
    uint64_t sessions; // as the command says
    uint64_t corrupt, failed, unsure;
    char **verdicts; // of the sessions, where the plan names a list
    size_t verdict_count;
} gv_counted;

// Reads the counts from `text`. GV_ERR_FORMAT, naming the pointer or expression, when one is not there or the numbers
// do not fit together.
gv_status gv_counts_read(const gv_counts *counts, const char *text, size_t length, gv_counted *result, gv_error *error);
void gv_counted_free(gv_counted *counted);

// What a JSON pointer (RFC 6901) points to, or NULL.
json_t *gv_json_pointer(json_t *root, const char *pointer);

#endif
