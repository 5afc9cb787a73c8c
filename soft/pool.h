// Stream-ordered allocation.
#ifndef GRAVEL_SOFT_POOL_H
#define GRAVEL_SOFT_POOL_H

#include "soft/memory.h"
#include "soft/stream.h"

// Gives back to the arena what pools hold free above their release threshold: at each synchronisation.
void pool_release_unused(void);

// Frees a live block of a pool as of now, in the order of `stream` (NULL: by an ordinary free, when all work is done).
CUresult pool_free(struct allocation *allocation, CUstream stream);

#endif
