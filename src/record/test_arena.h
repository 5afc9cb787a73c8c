// For tests of what copies and compares memory: an arena in the software driver's device memory, which is the process's
// own, and the kernels for it. ARENA, its size in bytes, is the test's.
#ifndef GV_RECORD_TEST_ARENA_H
#define GV_RECORD_TEST_ARENA_H

#include "record/compare.h"
#include "record/driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state = 1;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % below);
}

static gv_compare *compare;
static unsigned char *base, before[ARENA], now[ARENA];
static uint64_t at;

static int open_driver(void **state)
{
    const char *missing;
    CUcontext context;
    CUdevice device;
    CUdeviceptr memory;
    gv_error error = {0};
    assert_true(gv_driver_load(&missing));
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGet(&device, 0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    if (gv_compare_open(true, NULL, &compare, &error) != GV_OK)
        fail_msg("%s", error.text);
    assert_int_equal(cuMemAlloc(&memory, ARENA), CUDA_SUCCESS);
    base = (unsigned char *)(uintptr_t)memory;
    at = memory;
    return 0;
}

static int close_driver(void **state)
{
    gv_compare_close(compare);
    return 0;
}

static void ok(gv_status status, const gv_error *error)
{
    if (status != GV_OK)
        fail_msg("%s", error->text);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
}

#endif
