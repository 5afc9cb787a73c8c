// The byte ranges that copy and set parameters name: exact accesses of memcpy and memset nodes and operations,
// from the `detail` numbers of their records (layout in trace/record.h).
#ifndef GV_ACCESS_NODE_ACCESS_H
#define GV_ACCESS_NODE_ACCESS_H

#include "access/range_set.h"

// Most separate rows one copy or set may name; beyond it the functions below fail with GV_ERR_LIMIT. Rows that lie
// back to back count as one.
#define GV_ROW_LIMIT (UINT64_C(1) << 22)

// Adds what a copy reads and writes. A side whose address is 0 (an array) adds nothing. Numbers missing at the end
// stand for one row, one slice and no padding; a pitch or slice size of 0 means back to back, as for
// CUDA_MEMCPY2D and CUDA_MEMCPY3D with one row or slice. GV_ERR_FORMAT: fewer than three numbers, or an extent that
// leaves the address space.
gv_status gv_memcpy_access(gv_numbers detail, gv_range_set *reads, gv_range_set *writes, gv_error *error);

// Adds what a set writes. Errors as above.
gv_status gv_memset_access(gv_numbers detail, gv_range_set *writes, gv_error *error);

#endif
