// What control flow tells of grid-dependency waits, on what nvcc really makes of kernels, for each architecture whose
// machine code was looked at.
#include "record/flow.h"

#include "record/cubin.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const ARCHITECTURES[] = {"90a", "100a", "120a"};

typedef struct wanted {
    const char *kernel;
    gv_kernel_flow flow;
    bool found;
} wanted;

static void take(const char *kernel, gv_kernel_flow *flow, void *user)
{
    wanted *w = user;
    if (strcmp(kernel, w->kernel) != 0) {
        gv_flow_free(flow);
        return;
    }
    assert_false(w->found);
    w->flow = *flow;
    w->found = true;
}

static const unsigned char *map(const char *architecture, size_t *size)
{
    char path[4096];
    struct stat status = {0};
    snprintf(path, sizeof path, "%s%s.cubin", GV_TEST_FLOW_CUBINS, architecture);
    int file = open(path, O_RDONLY);
    assert_true(file >= 0 && fstat(file, &status) == 0);
    *size = (size_t)status.st_size;
    void *mapped = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    return mapped;
}

// The flow of a kernel on one architecture; false when it was not reported. The caller frees it.
static bool flow_of(const char *architecture, const char *kernel, gv_kernel_flow *flow)
{
    size_t size = 0;
    const unsigned char *image = map(architecture, &size);
    wanted w = {.kernel = kernel};
    gv_module_flow functions;
    assert_true(gv_cubin_flows(image, size, &functions, take, &w));
    munmap((void *)image, size);
    *flow = w.flow;
    return w.found;
}

// How many of the instructions with an operation lie only before the wait, and only after it.
static void count(const char *architecture, const char *kernel, const gv_kernel_flow *flow, size_t *before,
                  size_t *after)
{
    *before = *after = 0;
    for (uint32_t i = 0; i < flow->instructions; i++) {
        *before += gv_flow_has(flow->before, i) && !gv_flow_has(flow->after, i);
        *after += gv_flow_has(flow->after, i) && !gv_flow_has(flow->before, i);
    }
}

static void expect_split(const char *kernel, bool split)
{
    for (size_t a = 0; a < sizeof ARCHITECTURES / sizeof *ARCHITECTURES; a++) {
        gv_kernel_flow flow;
        assert_true(flow_of(ARCHITECTURES[a], kernel, &flow));
        assert_true(flow.waits);
        if (flow.split != split)
            fail_msg("%s on sm_%s is %ssplit", kernel, ARCHITECTURES[a], flow.split ? "" : "not ");
        if (split) {
            size_t before, after;
            count(ARCHITECTURES[a], kernel, &flow, &before, &after);
            assert_true(before > 0 && after > 0);
        }
        gv_flow_free(&flow);
    }
}

static void kernels_that_wait_for_themselves_are_split(void **state)
{
    expect_split("waits_first", true);
    expect_split("prefetches", true);
    expect_split("prefetches_in_a_loop", true);
    expect_split("barrier_before_the_wait", true);
    expect_split("two_roles", true);
    expect_split("arrives_before_the_wait", true);
    expect_split("traps_and_shuffles", true);
    expect_split("divides_on_both_sides", true);
    expect_split("waits_and_switches", true);
    expect_split("switches_and_waits", true);
}

static void kernels_whose_code_does_not_tell_are_not(void **state)
{
    expect_split("waits_if_asked", false);
    expect_split("one_thread_waits", false);
    expect_split("one_warp_waits_for_another", false);
    expect_split("reads_in_a_function", false);
    expect_split("calls_through_a_pointer", false);
    expect_split("waits_in_a_loop", false);
    expect_split("reads_again", false);
}

// The function's code stands in the kernel's section or in one of its own, as the compiler likes.
static void a_wait_inside_a_function_is_seen(void **state)
{
    for (size_t a = 0; a < sizeof ARCHITECTURES / sizeof *ARCHITECTURES; a++) {
        gv_kernel_flow flow;
        assert_true(flow_of(ARCHITECTURES[a], "waits_in_a_function", &flow));
        assert_false(flow.split);
        assert_true(flow.calls);
        gv_flow_free(&flow);
    }
}

static void kernels_without_a_wait_are_not_reported(void **state)
{
    gv_kernel_flow flow;
    for (size_t a = 0; a < sizeof ARCHITECTURES / sizeof *ARCHITECTURES; a++)
        assert_false(flow_of(ARCHITECTURES[a], "no_wait", &flow));
}

static void triggers_are_placed(void **state)
{
    static const struct {
        const char *kernel;
        enum gv_grid_trigger trigger;
    } cases[] = {
        {"waits_first", GV_GRID_TRIGGER_LATE},
        {"triggers_after_the_wait", GV_GRID_TRIGGER_LATE},
        {"triggers_first", GV_GRID_TRIGGER_EARLY},
        {"triggers_if_asked", GV_GRID_TRIGGER_UNKNOWN},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (size_t a = 0; a < sizeof ARCHITECTURES / sizeof *ARCHITECTURES; a++) {
            gv_kernel_flow flow;
            assert_true(flow_of(ARCHITECTURES[a], cases[c].kernel, &flow));
            assert_true(flow.split);
            if (flow.trigger != cases[c].trigger)
                fail_msg("%s on sm_%s: %d", cases[c].kernel, ARCHITECTURES[a], (int)flow.trigger);
            gv_flow_free(&flow);
        }
    }
}

static void what_is_not_reported_is_placed(void **state)
{
    for (size_t a = 0; a < sizeof ARCHITECTURES / sizeof *ARCHITECTURES; a++) {
        gv_kernel_flow flow;
        assert_true(flow_of(ARCHITECTURES[a], "texture_after_the_wait", &flow));
        assert_int_equal(flow.early_flags & GV_FUNCTION_TEXTURE, 0);
        gv_flow_free(&flow);
        assert_true(flow_of(ARCHITECTURES[a], "texture_before_the_wait", &flow));
        assert_int_equal(flow.early_flags & GV_FUNCTION_TEXTURE, GV_FUNCTION_TEXTURE);
        gv_flow_free(&flow);
    }
}

// Any code at all is followed without leaving it (ASan), and cut or damaged images are refused or read safely.
static void damage_is_safe(void **state)
{
    size_t size = 0;
    const unsigned char *image = map("90a", &size);
    unsigned char *damaged = malloc(size);
    wanted w = {.kernel = ""};
    gv_module_flow functions;
    for (size_t at = 0; at<size; at += size> 20000 ? 101 : 7) {
        memcpy(damaged, image, size);
        damaged[at] ^= 0xff;
        gv_cubin_flows(damaged, size, &functions, take, &w);
        gv_cubin_flows(damaged, at, &functions, take, &w);
    }
    uint64_t random = 1;
    for (int round = 0; round < 300; round++) {
        unsigned char code[16 * 64];
        for (size_t i = 0; i < sizeof code; i++) {
            random = random * UINT64_C(6364136223846793005) + 1;
            code[i] = (unsigned char)(random >> 40);
        }
        // Mostly branches, waits and exits.
        for (size_t i = 0; i < 64; i++) {
            static const uint16_t forms[] = {0x947, 0x945, 0x944, 0x82e, 0x94d, 0x981, 0xb1d, 0x949};
            uint16_t low = (uint16_t)(forms[code[16 * i] % 8] | (code[16 * i + 1] & 0xf0) << 8);
            memcpy(&code[16 * i], &low, sizeof low);
            if (round % 2)
                memset(&code[16 * i + 3], 0, 13); // near targets
        }
        gv_kernel_flow flow;
        assert_true(gv_flow_analyse(code, sizeof code, round % 3 ? code : NULL, sizeof code, &flow));
        gv_flow_free(&flow);
    }
    free(damaged);
    munmap((void *)image, size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_that_wait_for_themselves_are_split),
        cmocka_unit_test(kernels_whose_code_does_not_tell_are_not),
        cmocka_unit_test(a_wait_inside_a_function_is_seen),
        cmocka_unit_test(kernels_without_a_wait_are_not_reported),
        cmocka_unit_test(triggers_are_placed),
        cmocka_unit_test(what_is_not_reported_is_placed),
        cmocka_unit_test(damage_is_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
