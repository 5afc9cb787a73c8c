// Watching a kernel at its grid-dependency wait: the memory on the device that the patches write to for it, and the
// kernel (src/device/hold.cu) that holds it there.
#ifndef GV_RECORD_WATCHING_H
#define GV_RECORD_WATCHING_H

#include "record/waits.h"

typedef struct gv_watching gv_watching;

// How long a kernel is held.
typedef struct gv_hold_limits {
    uint64_t begin_ns; // for it to begin
    uint64_t still_ns; // nothing must happen for so long, and for as long again as things did happen
    uint64_t most_ns;  // in all
    uint32_t rounds;   // of a microsecond at least, after which the device lets it go whatever the host does
    uint64_t pause_ns; // between two looks
    uint64_t look_ns;  // for one look, which copies a few bytes from the device
} gv_hold_limits;

extern const gv_hold_limits GV_HOLD_LIMITS;

// Loads the holding kernel into the current context, and page-locked memory and a stream of its own. No device memory
// is taken before the first kernel is watched.
gv_status gv_watching_create(const void *image, const gv_hold_limits *limits, gv_watching **watching, gv_error *error);

// Before the launch on `stream`, which is idle: `watch` is where the user data of the launch has its gv_wait_watch. The
// kernel's code begins at `base` (0: not known) and is `size` bytes long. *held: it is to be launched with programmatic
// stream serialization, and gv_watching_release called behind the launch.
void gv_watching_begin(gv_watching *watching, CUdeviceptr watch, CUstream stream, CUmodule module, const char *name,
                       uint64_t base, uint64_t size, bool *held);

// Waits until the kernel that is held comes to a standstill, unless it was not `launched`, and lets it go on.
void gv_watching_release(gv_watching *watching, bool launched);

// The kernel has completed: reads what was seen of it, and turns watching off for the kernels to come.
void gv_watching_end(gv_watching *watching);

// What gv_waits_judge makes of it.
void gv_watching_judge(const gv_watching *watching, unsigned unseen, gv_wait_observation *observation);

// Frees the device memory and forgets the kernel; also when it was not run to its end.
void gv_watching_close(gv_watching *watching);

void gv_watching_free(gv_watching *watching);

// Frees the host's part alone: the context, and everything in it, is gone.
void gv_watching_forget(gv_watching *watching);

#endif
