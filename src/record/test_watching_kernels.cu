// A kernel with the patches written into it, so that what they do can be tried on the software driver.
#include "device/watch.h"
#include "record/test_watching_kernels.h"
#include "soft/kernel.h"

GRAVEL_BARRIER_KERNEL(watched, (gv_access_table *, table), (test_action *, actions))
{
    test_action *action = actions + gravel_thread_index() * TEST_STEPS;
    gv_watch_enter(table, blockIdx.x);
    for (int i = 0; i < TEST_STEPS; i++, action++) {
        switch (action->step) {
        case STEP_TOUCH: action->early = gv_watch_access(table, action->pc, blockIdx.x); break;
        case STEP_WAIT: gravel_grid_wait(); break;
        case STEP_BARRIER: __syncthreads(); break;
        case STEP_BUSY:
            while (*(volatile uint32_t *)&table->watch.phase == GV_PHASE_HELD)
                gv_watch_access(table, action->pc, blockIdx.x);
            break;
        case STEP_EXIT: gv_watch_exit(table, action->pc, blockIdx.x); break;
        }
        action->done = 1;
    }
}
