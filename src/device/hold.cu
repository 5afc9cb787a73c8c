// The kernel that stands in front of one whose grid-dependency wait is observed: lets it begin at once, and ends, which
// lets its wait return, when the host says so. Compiled for the software driver too.
#include "device/access_table.h"
#include "soft/kernel.h"

// One thread. `word`: memory of the host, not 0 once it is to end; `beats`: memory of the host, that is told how many
// rounds have gone by. `phase` tells the patches (enum gv_watch_phase). It ends by itself after `rounds` of about a
// microsecond: whatever happens to the host, the device does not hang.
GRAVEL_KERNEL(gravel_hold, (volatile unsigned *, word), (volatile unsigned *, beats), (volatile unsigned *, phase),
              (unsigned, rounds))
{
    unsigned released = 0;
    gravel_grid_trigger();
    for (unsigned i = 0; i < rounds && !released; i++) {
        released = *word;
        *beats = i;
        if (!released)
            gravel_spin_ns(1000);
    }
    // Visible to the waiting kernel, as all memory is, when this one is complete.
    *phase = released ? GV_PHASE_RELEASED : GV_PHASE_TIMED_OUT;
}
