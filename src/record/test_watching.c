// Kernels watched at their grid-dependency waits, on the software driver: a kernel with the patches written into it
// runs behind the holding kernel, and what is made of it is compared with what it did.
#include "record/watching.h"

#include "base/memory.h"
#include "record/driver.h"
#include "record/test_watching_kernels.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define OK(call) assert_int_equal((call), CUDA_SUCCESS)

#define DOES(...)             \
    (test_action[TEST_STEPS]) \
    {                         \
        __VA_ARGS__           \
    }
#define TOUCH(at)                    \
    {                                \
        .step = STEP_TOUCH, .pc = at \
    }
#define BUSY(at)                    \
    {                               \
        .step = STEP_BUSY, .pc = at \
    }
#define EXIT(at)                    \
    {                               \
        .step = STEP_EXIT, .pc = at \
    }
#define WAIT              \
    {                     \
        .step = STEP_WAIT \
    }
#define BARRIER              \
    {                        \
        .step = STEP_BARRIER \
    }

enum { BLOCKS = 4, THREADS = 2, ACTIONS = BLOCKS * THREADS * TEST_STEPS };

// Long enough for a machine that is busy with something else.
static const gv_hold_limits PATIENT = {.begin_ns = 60000000000,
                                       .still_ns = 200000000,
                                       .most_ns = 60000000000,
                                       .rounds = 60000000,
                                       .pause_ns = 4000000,
                                       .look_ns = 60000000000};

static CUstream stream;
static CUfunction function;
static void *image;
static gv_access_table *table;
static test_action *actions;
static unsigned blocks; // of the kernel
// Any handle would do: the machine code is that of test_flow_kernels.cu, looked up by name.
static const CUmodule module = (CUmodule)(uintptr_t)0x1234;

static void *read_file(const char *path, size_t *size)
{
    struct stat status = {0};
    int file = open(path, O_RDONLY);
    assert_true(file >= 0 && fstat(file, &status) == 0);
    *size = (size_t)status.st_size;
    void *bytes = malloc(*size);
    assert_int_equal(read(file, bytes, *size), status.st_size);
    close(file);
    return bytes;
}

static int open_driver(void **state)
{
    const char *missing;
    CUcontext context;
    CUdevice device;
    CUmodule kernels;
    CUdeviceptr memory;
    size_t size;
    assert_true(gv_driver_load(&missing));
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    image = read_file(GV_TEST_WATCHING_KERNELS, &size);
    OK(cuModuleLoadData(&kernels, image));
    OK(cuModuleGetFunction(&function, kernels, "watched"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&memory, sizeof *table));
    table = (gv_access_table *)(uintptr_t)memory;
    OK(cuMemAlloc(&memory, ACTIONS * sizeof *actions));
    actions = (test_action *)(uintptr_t)memory;
    void *cubin = read_file(GV_TEST_WATCHING_CUBIN, &size);
    gv_waits_add(context, module, cubin, size);
    free(cubin);
    return 0;
}

static int close_driver(void **state)
{
    gv_waits_drop(module, NULL);
    free(image);
    return 0;
}

static gv_watching *create(const gv_hold_limits *limits)
{
    gv_watching *watching;
    gv_error error = {0};
    if (gv_watching_create(image, limits, &watching, &error) != GV_OK)
        fail_msg("%s", error.text);
    memset(table, 0, sizeof *table);
    memset(actions, 0, ACTIONS * sizeof *actions);
    blocks = BLOCKS;
    return watching;
}

// Says what one thread of a block does, or all threads of all blocks.
static void act(unsigned block, unsigned thread, const test_action *what)
{
    memcpy(actions + (size_t)(block * THREADS + thread) * TEST_STEPS, what, TEST_STEPS * sizeof *what);
}

static void act_all(const test_action *what)
{
    for (unsigned block = 0; block < blocks; block++)
        for (unsigned thread = 0; thread < THREADS; thread++)
            act(block, thread, what);
}

static CUresult launch(bool beside)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {blocks, 1, 1, THREADS, 1, 1, 0, stream, &attribute, beside};
    return cuLaunchKernelEx(&config, function, (void *[]){&table, &actions}, NULL);
}

static void begin(gv_watching *watching, const char *name, uint64_t base, uint64_t size, bool expect_held)
{
    bool held;
    gv_watching_begin(watching, (CUdeviceptr)(uintptr_t)&table->watch, stream, module, name, base, size, &held);
    assert_int_equal(held, expect_held);
}

static void end(gv_watching *watching, gv_wait_observation *observation)
{
    OK(cuStreamSynchronize(stream));
    for (size_t i = 0; i < (size_t)blocks * THREADS * TEST_STEPS; i++)
        assert_true(actions[i].done);
    gv_watching_end(watching);
    *observation = (gv_wait_observation){0};
    gv_watching_judge(watching, 0, observation);
    assert_int_equal(table->watch.mode, GV_WATCH_OFF);
}

enum { BASE = 0x7000 }; // where the kernels are said to begin

static uint64_t size_of(const char *name)
{
    gv_kernel_waits waits;
    assert_true(gv_waits_of(module, name, &waits));
    uint64_t size = (uint64_t)waits.flow.instructions * 16;
    gv_kernel_waits_free(&waits);
    return size;
}

// The address of a watched instruction that lies before a kernel's wait alone, or after it alone.
static uint64_t find(const char *name, bool after)
{
    gv_kernel_waits waits;
    uint64_t found = 0;
    assert_true(gv_waits_of(module, name, &waits));
    const gv_kernel_flow *flow = &waits.flow;
    for (uint32_t i = 0; i < flow->instructions && !found; i++)
        if (gv_flow_has(flow->watched, i) && gv_flow_has(after ? flow->after : flow->before, i) &&
            !gv_flow_has(after ? flow->before : flow->after, i))
            found = BASE + (uint64_t)i * 16;
    assert_int_not_equal(found, 0);
    gv_kernel_waits_free(&waits);
    return found;
}

// Watches what was said by `act` as a kernel that is held.
static gv_wait_observation watch_as(gv_watching *watching, const char *name, uint64_t base, uint64_t size)
{
    gv_wait_observation observation;
    begin(watching, name, base, size, true);
    OK(launch(true));
    gv_watching_release(watching, true);
    end(watching, &observation);
    return observation;
}

// As one whose machine code does not help, and as one where it shows what cannot come before the wait.
static gv_wait_observation watch(gv_watching *watching)
{
    return watch_as(watching, "waits_if_asked", 0, 0);
}

static gv_wait_observation watch_placed(gv_watching *watching)
{
    return watch_as(watching, "reads_again", BASE, size_of("reads_again"));
}

static void expect_unknown(const gv_wait_observation *observation, const char *why)
{
    assert_int_equal(observation->wait, GV_GRID_WAIT_UNKNOWN);
    assert_int_equal(observation->trigger, GV_GRID_TRIGGER_UNKNOWN);
    if (!strstr(observation->reason, why))
        fail_msg("%s", observation->reason);
}

// All accesses by the instruction at `pc` count as early, or none.
static void expect_early(uint64_t pc, bool early)
{
    size_t found = 0;
    for (size_t i = 0; i < ACTIONS; i++)
        if (actions[i].step == STEP_TOUCH && actions[i].pc == pc) {
            assert_int_equal(actions[i].early, early ? GV_EARLY_ADDRESS : 0);
            found++;
        }
    assert_true(found > 0);
}

// ---- Held --------------------------------------------------------------------------------------------------------

static void what_comes_before_the_wait_is_told_from_what_comes_after(void **state)
{
    gv_watching *watching = create(&PATIENT);
    uint64_t before = find("reads_again", false), after = find("reads_again", true);
    act_all(DOES(TOUCH(before), WAIT, TOUCH(after), EXIT(after)));
    for (int again = 0; again < 2; again++) {
        gv_wait_observation seen = watch_placed(watching);
        assert_string_equal(seen.reason, "");
        assert_int_equal(seen.wait, GV_GRID_WAIT_DONE);
        expect_early(before, true); // in the blocks that began later, too
        expect_early(after, false);
    }
    act_all(DOES(WAIT, TOUCH(after), EXIT(after)));
    gv_wait_observation seen = watch_placed(watching);
    assert_int_equal(seen.wait, GV_GRID_WAIT_DONE);
    expect_early(after, false);
    // What lies after the wait must not have been seen before it.
    act_all(DOES(TOUCH(after), WAIT, EXIT(after)));
    seen = watch_placed(watching);
    expect_unknown(&seen, "does not fit its machine code");
    gv_watching_free(watching);
}

static void a_kernel_that_does_not_wait_is_seen_to_end(void **state)
{
    gv_watching *watching = create(&PATIENT);
    act_all(DOES(TOUCH(100), TOUCH(200), EXIT(300)));
    gv_wait_observation seen = watch(watching);
    assert_int_equal(seen.wait, GV_GRID_WAIT_NONE);
    gv_watching_free(watching);
}

// The software driver runs blocks one after the other, as a device does that has room for one: with more than one,
// those behind the first are not known.
static void who_meets_a_waiter_comes_after_it(void **state)
{
    gv_watching *watching = create(&PATIENT);
    for (unsigned block = 0; block < BLOCKS; block++) {
        act(block, 0, DOES(TOUCH(100), BARRIER, TOUCH(200), EXIT(300)));
        act(block, 1, DOES(WAIT, BARRIER, TOUCH(210), EXIT(300)));
    }
    gv_wait_observation seen = watch(watching);
    expect_unknown(&seen, "not all its blocks have room");
    blocks = 1;
    seen = watch(watching);
    assert_string_equal(seen.reason, "");
    assert_int_equal(seen.wait, GV_GRID_WAIT_DONE);
    assert_true(actions[0].early != 0);
    assert_true(actions[2].early == 0 && actions[TEST_STEPS + 2].early == 0);
    gv_watching_free(watching);
}

static void what_only_later_blocks_do_is_not_decided(void **state)
{
    gv_watching *watching = create(&PATIENT);
    uint64_t before = find("reads_again", false), after = find("reads_again", true);
    act_all(DOES(WAIT, TOUCH(after), EXIT(after)));
    act(BLOCKS - 1, 0, DOES(TOUCH(before), WAIT, EXIT(after)));
    gv_wait_observation seen = watch_placed(watching);
    expect_unknown(&seen, "not all its blocks have room");
    gv_watching_free(watching);
}

// ---- Held in vain ------------------------------------------------------------------------------------------------

static void a_kernel_that_does_not_begin_beside_is_not_decided(void **state)
{
    gv_hold_limits limits = PATIENT;
    limits.begin_ns = 50000000;
    gv_watching *watching = create(&limits);
    gv_wait_observation seen;
    act_all(DOES(WAIT, TOUCH(100), EXIT(300)));
    begin(watching, "waits_if_asked", 0, 0, true);
    OK(launch(false));
    gv_watching_release(watching, true);
    end(watching, &seen);
    expect_unknown(&seen, "it did not begin beside");
    gv_watching_free(watching);
}

static void a_kernel_that_stays_at_work_is_let_go(void **state)
{
    gv_hold_limits limits = PATIENT;
    limits.most_ns = 50000000;
    gv_watching *watching = create(&limits);
    act_all(DOES(BUSY(100), WAIT, EXIT(300)));
    gv_wait_observation seen = watch(watching);
    expect_unknown(&seen, "it was still at work");
    gv_watching_free(watching);
}

// It lets the kernel go by itself.
static void the_device_does_not_depend_on_the_host(void **state)
{
    gv_hold_limits limits = PATIENT;
    limits.rounds = 200;
    gv_watching *watching = create(&limits);
    gv_wait_observation seen;
    act_all(DOES(TOUCH(100), WAIT, EXIT(300)));
    begin(watching, "waits_if_asked", 0, 0, true);
    OK(launch(true));
    OK(cuStreamSynchronize(stream));
    assert_int_equal(table->watch.phase, GV_PHASE_TIMED_OUT);
    gv_watching_release(watching, false);
    end(watching, &seen);
    assert_int_equal(seen.wait, GV_GRID_WAIT_UNKNOWN);
    gv_watching_free(watching);
}

static void a_launch_that_fails_leaves_nothing_held(void **state)
{
    gv_watching *watching = create(&PATIENT);
    gv_wait_observation seen;
    act_all(DOES(TOUCH(100), WAIT, EXIT(300)));
    begin(watching, "waits_if_asked", 0, 0, true);
    gv_watching_release(watching, false);
    OK(launch(false));
    end(watching, &seen);
    expect_unknown(&seen, "it could not be held");

    begin(watching, "waits_if_asked", 0, 0, true);
    OK(launch(true));
    gv_watching_close(watching); // recording is given up
    OK(cuStreamSynchronize(stream));
    gv_watching_free(watching);
}

// ---- By code -----------------------------------------------------------------------------------------------------

static void machine_code_tells_the_sides_apart(void **state)
{
    gv_watching *watching = create(&PATIENT);
    gv_wait_observation seen;
    uint64_t before = find("prefetches", false), after = find("prefetches", true), size = size_of("prefetches");
    act_all(DOES(TOUCH(before), WAIT, TOUCH(after)));
    begin(watching, "prefetches", BASE, size, false);
    OK(launch(false));
    end(watching, &seen);
    assert_string_equal(seen.reason, "");
    assert_int_equal(seen.wait, GV_GRID_WAIT_DONE);
    assert_int_equal(seen.trigger, GV_GRID_TRIGGER_LATE);
    assert_true(seen.unseen_come_after);
    expect_early(before, true);
    expect_early(after, false);

    // Nothing came after the wait: it may not have been reached.
    act_all(DOES(TOUCH(before)));
    begin(watching, "prefetches", BASE, size, false);
    OK(launch(false));
    end(watching, &seen);
    expect_unknown(&seen, "nothing shows");

    // Were the kernel somewhere else than it is said to be, this would show.
    act_all(DOES(TOUCH(before + 16), WAIT, TOUCH(after)));
    begin(watching, "prefetches", BASE + 16 * size, size, false);
    OK(launch(false));
    end(watching, &seen);
    expect_unknown(&seen, "could not be placed");
    gv_watching_free(watching);
}

static void a_kernel_without_a_wait_is_not_watched(void **state)
{
    gv_watching *watching = create(&PATIENT);
    gv_wait_observation seen;
    act_all(DOES(TOUCH(100)));
    begin(watching, "no_wait", BASE, 160, false);
    OK(launch(false));
    end(watching, &seen);
    assert_int_equal(seen.wait, GV_GRID_WAIT_NONE);
    expect_early(100, false);
    gv_watching_free(watching);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_before_the_wait_is_told_from_what_comes_after),
        cmocka_unit_test(a_kernel_that_does_not_wait_is_seen_to_end),
        cmocka_unit_test(who_meets_a_waiter_comes_after_it),
        cmocka_unit_test(what_only_later_blocks_do_is_not_decided),
        cmocka_unit_test(a_kernel_that_does_not_begin_beside_is_not_decided),
        cmocka_unit_test(a_kernel_that_stays_at_work_is_let_go),
        cmocka_unit_test(the_device_does_not_depend_on_the_host),
        cmocka_unit_test(a_launch_that_fails_leaves_nothing_held),
        cmocka_unit_test(machine_code_tells_the_sides_apart),
        cmocka_unit_test(a_kernel_without_a_wait_is_not_watched),
    };
    return cmocka_run_group_tests(tests, open_driver, close_driver);
}
