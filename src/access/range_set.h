// Sets of bytes as sorted, disjoint, non-adjacent half-open ranges.
#ifndef GV_ACCESS_RANGE_SET_H
#define GV_ACCESS_RANGE_SET_H

#include "base/error.h"
#include "trace/ranges.h"

#include <stdbool.h>

// ranges[0 .. count) is the normalised part; `pending` further ranges, added out of order, wait behind it to be
// merged in. Every function below merges them first. Code that reads `ranges` directly must call gv_range_set_settle
// before, unless all additions came in ascending order. Zero-initialise to make an empty set.
typedef struct gv_range_set {
    gv_range *ranges;
    size_t count, capacity;
    size_t pending;
} gv_range_set;

void gv_range_set_free(gv_range_set *set);

// Merges the pending ranges. Needs no memory and cannot fail. The functions that take a const set call it too: it
// changes the representation and not the value, but two threads must not share a set that is not settled.
void gv_range_set_settle(const gv_range_set *set);

// Decodes an access record's field into an empty set.
gv_status gv_range_set_decode(gv_range_set *set, gv_bytes encoded, gv_error *error);

// Adds [start, end). Constant time amortised in ascending order, logarithmic in any other. An empty range is ignored.
gv_status gv_range_set_add(gv_range_set *set, uint64_t start, uint64_t end, gv_error *error);

// Results go to `out`, which must be empty or is overwritten, and must be neither operand.
gv_status gv_range_set_union(const gv_range_set *a, const gv_range_set *b, gv_range_set *out, gv_error *error);
gv_status gv_range_set_intersection(const gv_range_set *a, const gv_range_set *b, gv_range_set *out, gv_error *error);
gv_status gv_range_set_difference(const gv_range_set *a, const gv_range_set *b, gv_range_set *out, gv_error *error);

bool gv_range_set_overlaps(const gv_range_set *a, const gv_range_set *b);
bool gv_range_set_contains(const gv_range_set *set, uint64_t address);
uint64_t gv_range_set_bytes(const gv_range_set *set);

// The invariant, for tests and assertions. Looks at the set as it stands: a set with pending ranges is not valid yet.
bool gv_range_set_is_valid(const gv_range_set *set);

#endif
