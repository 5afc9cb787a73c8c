// What is known of kernels' grid-dependency waits on a GPU: from their machine code, and from watching them run
// (src/device/watch.h).
#ifndef GV_RECORD_WAITS_H
#define GV_RECORD_WAITS_H

#include "device/access_table.h"
#include "record/flow.h"
#include "record/source.h"

#include <cuda.h>

// What its machine code says of a kernel.
typedef struct gv_kernel_waits {
    bool known;             // its module was looked at
    bool waits;             // it, or a function it may call, has a wait
    bool functions_wait;    // functions do that it calls in a way which could not be followed
    bool functions_trigger; // and trigger
    gv_kernel_flow flow;    // empty if it has neither waits, triggers nor calls of interest
} gv_kernel_waits;

// Looks through a module that was loaded; drops what is known of a module, or of all modules of a context.
void gv_waits_add(CUcontext context, CUmodule module, const void *image, size_t size);
void gv_waits_drop(CUmodule module, CUcontext context);

// Copies what is known of a kernel. False when memory is out. Free with gv_kernel_waits_free.
bool gv_waits_of(CUmodule module, const char *name, gv_kernel_waits *waits);
void gv_kernel_waits_free(gv_kernel_waits *waits);

// How a kernel is to be watched that begins at `base` (0: not known) and is `size` bytes long: GV_WATCH_OFF when it
// need not be.
enum gv_watch_mode gv_waits_choose(const gv_kernel_waits *waits, uint64_t base, uint64_t size);

// How holding it went.
enum gv_held {
    GV_HELD_STILL,     // until nothing happened any more
    GV_HELD_NOT_BEGUN, // it did not begin
    GV_HELD_NOT_STILL, // it went on to the end of what it was given
    GV_HELD_FAILED     // a call of the driver failed
};

// What was seen of a kernel that has completed.
typedef struct gv_watched {
    enum gv_watch_mode mode; // as it was watched
    enum gv_held held;
    gv_wait_watch watch;
    const gv_watched_pc *pcs; // GV_WATCH_PCS of them, if held
} gv_watched;

// Sets all of the observation but its ranges, which are the early ones if the answer is GV_GRID_WAIT_DONE. `unseen`:
// enum gv_function_flag of what its source does not report.
void gv_waits_judge(const gv_kernel_waits *waits, const gv_watched *watched, unsigned unseen,
                    gv_wait_observation *observation);

#endif
