// What the kernel of test_watching_kernels.cu does, thread by thread.
#ifndef GV_RECORD_TEST_WATCHING_KERNELS_H
#define GV_RECORD_TEST_WATCHING_KERNELS_H

#include <stdint.h>

enum test_step {
    STEP_NOTHING,
    STEP_TOUCH,   // an access by the instruction at `pc`
    STEP_WAIT,    // the grid-dependency wait
    STEP_BARRIER, // of the block
    STEP_BUSY,    // accesses until the kernel in front is told to end
    STEP_EXIT     // the thread ends, at the instruction at `pc`
};

typedef struct test_action {
    uint32_t step; // enum test_step
    uint32_t done;
    uint64_t pc, early; // what gv_watch_access answered
} test_action;

enum { TEST_STEPS = 6 };

#endif
