// Kernels that are launched outside of graphs, recorded one by one for a few steps after a page changed that was not
// allowed to: so that one of them can be named as the writer, or all be ruled out.
#ifndef GV_RECORD_EAGER_H
#define GV_RECORD_EAGER_H

#include <cuda.h>
#include <stdbool.h>

// From now on, until two further steps have ended, such launches are recorded.
void gv_eager_watch(void);
void gv_eager_step(void);

// Are they? Cheap.
bool gv_eager_is_on(void);

// Makes the launch by `launch(user)`, alone in its context and recorded, and writes it down. False: this is not the
// moment for it, and nothing was done. *result is what the launch answered.
bool gv_eager_launch(CUfunction function, CUstream stream, bool per_thread, CUresult (*launch)(void *user), void *user,
                     CUresult *result);

#endif
