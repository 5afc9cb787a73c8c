// The bytes of device memory that a tensor map names, as byte ranges for the host.
#ifndef GV_RECORD_TENSOR_MAP_H
#define GV_RECORD_TENSOR_MAP_H

#include "device/tensor_map.h"
#include "trace/ranges.h"

#include <stdbool.h>
#include <stddef.h>

// The bytes of the whole tensor: every copy by this map, whatever its coordinates, stays inside. Rows that adjoin are
// one range, and gaps that strides leave are left out, as long as `most` ranges are enough for it; when they are not,
// outer dimensions are closed to one range each (coarser, never too little). Stores ascending, disjoint, not adjacent
// ranges in `ranges`, of which the caller gives `most`, at least 1, and returns their number.
size_t gv_tensor_map_ranges(const gv_tensor_map *map, gv_range *ranges, size_t most);

#endif
