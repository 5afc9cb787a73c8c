// The byte ranges that copy and set parameters name: exact accesses of memcpy and memset nodes and operations,
// from the `detail` numbers of their records (layout in trace/record.h).
#ifndef GV_ACCESS_NODE_ACCESS_H
#define GV_ACCESS_NODE_ACCESS_H

#include "access/range_set.h"

// Adds what a copy reads and writes. A side whose address is 0 (an array) adds nothing.
gv_status gv_memcpy_access(gv_numbers detail, gv_range_set *reads, gv_range_set *writes, gv_error *error);

// Adds what a set writes.
gv_status gv_memset_access(gv_numbers detail, gv_range_set *writes, gv_error *error);

#endif
