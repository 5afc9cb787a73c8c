// What is made of grid-dependency waits on the host: what the machine code of real kernels says, the marks of early
// accesses in a set, and the judgement of what was seen.
#include "record/waits.h"

#include "base/memory.h"
#include "device/watch.h"
#include "record/early.h"

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

static const CUcontext context = (CUcontext)(uintptr_t)0x10;
static const CUmodule module = (CUmodule)(uintptr_t)0x20, broken = (CUmodule)(uintptr_t)0x30;

static int add_modules(void **state)
{
    struct stat status = {0};
    int file = open(GV_TEST_WAITS_CUBIN, O_RDONLY);
    assert_true(file >= 0 && fstat(file, &status) == 0);
    unsigned char *image = malloc((size_t)status.st_size);
    assert_int_equal(read(file, image, (size_t)status.st_size), status.st_size);
    close(file);
    gv_waits_add(context, module, image, (size_t)status.st_size);
    gv_waits_add(context, broken, image, 100);
    free(image);
    return 0;
}

static int drop_modules(void **state)
{
    gv_kernel_waits waits;
    gv_waits_drop(broken, NULL);
    assert_true(gv_waits_of(module, "waits_first", &waits));
    assert_true(waits.known);
    gv_kernel_waits_free(&waits);
    gv_waits_drop(NULL, context);
    assert_true(gv_waits_of(module, "waits_first", &waits));
    assert_false(waits.known);
    return 0;
}

// ---- What the machine code says ----------------------------------------------------------------------------------

enum { BASE = 0x4000, ANY_SIZE = 16 };

static void kernels_are_watched_as_their_code_allows(void **state)
{
    static const struct {
        const char *kernel;
        enum gv_watch_mode mode;
    } cases[] = {
        {"no_wait", GV_WATCH_OFF},
        {"waits_first", GV_WATCH_CODE},
        {"prefetches", GV_WATCH_CODE},
        {"divides_on_both_sides", GV_WATCH_CODE},
        {"waits_if_asked", GV_WATCH_HELD},
        {"one_warp_waits_for_another", GV_WATCH_HELD},
        {"waits_in_a_function", GV_WATCH_HELD},
        {"calls_through_a_pointer", GV_WATCH_HELD},
    };
    gv_kernel_waits waits;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(gv_waits_of(module, cases[i].kernel, &waits));
        assert_true(waits.known);
        if (gv_waits_choose(&waits, BASE, ANY_SIZE) != cases[i].mode)
            fail_msg("%s", cases[i].kernel);
        assert_int_equal(waits.waits, cases[i].mode != GV_WATCH_OFF);
        gv_kernel_waits_free(&waits);
    }
    // Where the kernel lies must be known, and it must be no longer than the code that was looked at.
    assert_true(gv_waits_of(module, "prefetches", &waits));
    uint64_t size = (uint64_t)waits.flow.instructions * 16;
    assert_int_equal(gv_waits_choose(&waits, BASE, size), GV_WATCH_CODE);
    assert_int_equal(gv_waits_choose(&waits, BASE, size + 16), GV_WATCH_HELD);
    assert_int_equal(gv_waits_choose(&waits, 0, 0), GV_WATCH_HELD);
    gv_kernel_waits_free(&waits);
}

static void what_was_not_looked_at_is_not_decided(void **state)
{
    const CUmodule modules[] = {broken, (CUmodule)(uintptr_t)0x40};
    for (int i = 0; i < 2; i++) {
        gv_kernel_waits waits;
        gv_wait_observation observation = {.wait = GV_GRID_WAIT_NONE};
        assert_true(gv_waits_of(modules[i], "waits_first", &waits));
        assert_int_equal(gv_waits_choose(&waits, BASE, ANY_SIZE), GV_WATCH_OFF);
        gv_waits_judge(&waits, &(gv_watched){0}, 0, &observation);
        assert_int_equal(observation.wait, GV_GRID_WAIT_UNKNOWN);
        assert_non_null(strstr(observation.reason, "machine code"));
    }
}

// ---- Early accesses in a set -------------------------------------------------------------------------------------

static void early_accesses_are_told_from_the_others(void **state)
{
    enum { SPAN = 4000 };
    static const uint64_t base = 0x7f0000001000;
    unsigned char late[SPAN], early[SPAN];
    srand(1);
    for (int round = 0; round < 200; round++) {
        gv_node_ranges ranges = {0}, split = {0};
        for (int part = 0; part < 2; part++) {
            unsigned char *bytes = part ? early : late;
            memset(bytes, 0, SPAN);
            for (int n = rand() % 20; n; n--) {
                int at = rand() % SPAN, length = rand() % 200;
                memset(bytes + at, 1, (size_t)(at + length < SPAN ? length : SPAN - at));
            }
            for (uint64_t i = 0; i < SPAN; i++)
                if (bytes[i]) {
                    uint64_t address = base + i + (part ? GV_EARLY_ADDRESS : 0);
                    assert_true(gv_node_ranges_append(&ranges, GV_ACCESS_WRITE, address, address + 1));
                }
        }
        assert_true(gv_split_early(&ranges, &split));
        assert_int_equal(ranges.count[GV_ACCESS_READ] + split.count[GV_ACCESS_READ], 0);
        const gv_node_ranges *parts[] = {&ranges, &split};
        for (int part = 0; part < 2; part++) {
            unsigned char bytes[SPAN] = {0};
            const gv_range *range = parts[part]->ranges[GV_ACCESS_WRITE];
            for (size_t i = 0; i < parts[part]->count[GV_ACCESS_WRITE]; i++) {
                assert_true(i == 0 || range[i - 1].end < range[i].start);
                assert_true(range[i].start >= base && range[i].end <= base + SPAN);
                memset(bytes + (range[i].start - base), 1, range[i].end - range[i].start);
            }
            for (size_t i = 0; i < SPAN; i++)
                assert_int_equal(bytes[i], part ? early[i] : early[i] || late[i]);
        }
        gv_node_ranges_free(&ranges);
        gv_node_ranges_free(&split);
    }
}

// ---- What the patches keep ---------------------------------------------------------------------------------------

static gv_access_table *new_table(void)
{
    gv_access_table *table = gv_calloc(1, sizeof *table);
    table->watch.mode = GV_WATCH_HELD;
    table->watch.pcs = gv_calloc(GV_WATCH_PCS, sizeof *table->watch.pcs);
    table->watch.blocks = gv_calloc(GV_WATCH_BLOCKS / 32, sizeof *table->watch.blocks);
    return table;
}

static void free_table(gv_access_table *table)
{
    gv_free(table->watch.pcs);
    gv_free(table->watch.blocks);
    gv_free(table);
}

static void more_instructions_than_can_be_told_apart_are_said(void **state)
{
    gv_access_table *table = new_table();
    for (uint64_t pc = 0; pc < GV_WATCH_PCS / 2; pc++)
        assert_true(gv_watch_access(table, 0x1000 + pc * 16, 0) == GV_EARLY_ADDRESS);
    assert_int_equal(table->watch.seen & GV_WATCH_FULL, 0);
    for (uint64_t pc = 0; pc <= GV_WATCH_PCS; pc++)
        gv_watch_access(table, 0x1000 + pc * 16, 0);
    assert_int_equal(table->watch.seen & GV_WATCH_FULL, GV_WATCH_FULL);
    free_table(table);
}

// Blocks beyond those of which a bit is kept count as ones that began later, whatever they did.
static void blocks_without_a_bit_began_later(void **state)
{
    gv_access_table *table = new_table();
    gv_watch_enter(table, 3);
    gv_watch_enter(table, GV_WATCH_BLOCKS);
    assert_int_equal(table->watch.entered, 2);
    table->watch.phase = GV_PHASE_RELEASED;
    gv_watch_exit(table, 0x10, GV_WATCH_BLOCKS);
    assert_int_equal(table->watch.seen, GV_WATCH_BEGAN_LATER);
    gv_watch_exit(table, 0x10, 3);
    assert_int_equal(table->watch.seen, GV_WATCH_BEGAN_LATER | GV_WATCH_RESUMED);
    free_table(table);
}

// ---- Judging -----------------------------------------------------------------------------------------------------

static gv_watched_pc pcs[GV_WATCH_PCS];

static gv_wait_observation judge(const char *kernel, enum gv_watch_mode mode, uint32_t seen, unsigned unseen)
{
    gv_kernel_waits waits;
    gv_wait_observation observation = {0};
    gv_watched watched = {
        .mode = mode,
        .held = GV_HELD_STILL,
        .pcs = pcs,
        .watch = {.seen = seen, .phase = GV_PHASE_RELEASED, .entered = 64, .exited = 64, .base = BASE},
    };
    assert_true(gv_waits_of(module, kernel, &waits));
    gv_waits_judge(&waits, &watched, unseen, &observation);
    gv_kernel_waits_free(&waits);
    return observation;
}

static void the_trigger_is_where_the_code_has_it(void **state)
{
    static const struct {
        const char *kernel;
        enum gv_watch_mode mode;
        enum gv_grid_trigger trigger;
    } cases[] = {
        {"prefetches", GV_WATCH_CODE, GV_GRID_TRIGGER_LATE},
        {"triggers_first", GV_WATCH_CODE, GV_GRID_TRIGGER_EARLY},
        {"triggers_after_the_wait", GV_WATCH_CODE, GV_GRID_TRIGGER_LATE},
        {"triggers_if_asked", GV_WATCH_CODE, GV_GRID_TRIGGER_UNKNOWN},
        {"calls_through_a_pointer", GV_WATCH_HELD, GV_GRID_TRIGGER_LATE}, // nothing in the module's functions triggers
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gv_wait_observation seen = judge(cases[i].kernel, cases[i].mode,
                                         cases[i].mode == GV_WATCH_CODE ? GV_WATCH_AFTER : GV_WATCH_RESUMED, 0);
        assert_string_equal(seen.reason, "");
        assert_int_equal(seen.wait, GV_GRID_WAIT_DONE);
        if (seen.trigger != cases[i].trigger)
            fail_msg("%s: %d", cases[i].kernel, (int)seen.trigger);
    }
}

static void what_is_not_reported_is_placed_by_the_code(void **state)
{
    assert_true(judge("texture_after_the_wait", GV_WATCH_CODE, GV_WATCH_AFTER, GV_FUNCTION_TEXTURE).unseen_come_after);
    assert_false(
        judge("texture_before_the_wait", GV_WATCH_CODE, GV_WATCH_AFTER, GV_FUNCTION_TEXTURE).unseen_come_after);
    assert_true(judge("texture_before_the_wait", GV_WATCH_CODE, GV_WATCH_AFTER, 0).unseen_come_after);
    assert_false(judge("prefetches", GV_WATCH_CODE, GV_WATCH_AFTER, GV_FUNCTION_DEVICE_LAUNCH).unseen_come_after);
    assert_false(judge("calls_through_a_pointer", GV_WATCH_HELD, GV_WATCH_RESUMED, 0).unseen_come_after);
}

static void only_what_was_seen_is_believed(void **state)
{
    assert_int_equal(judge("prefetches", GV_WATCH_OFF, GV_WATCH_AFTER, 0).wait, GV_GRID_WAIT_UNKNOWN);
    assert_int_equal(judge("prefetches", GV_WATCH_CODE, 0, 0).wait, GV_GRID_WAIT_UNKNOWN);
    assert_int_equal(judge("prefetches", GV_WATCH_CODE, GV_WATCH_AFTER | GV_WATCH_ASTRAY, 0).wait,
                     GV_GRID_WAIT_UNKNOWN);
    assert_int_equal(judge("waits_if_asked", GV_WATCH_HELD, GV_WATCH_RESUMED | GV_WATCH_FULL, 0).wait,
                     GV_GRID_WAIT_UNKNOWN);
    assert_int_equal(judge("waits_if_asked", GV_WATCH_HELD, GV_WATCH_BEGAN_LATER, 0).wait, GV_GRID_WAIT_UNKNOWN);
    assert_int_equal(judge("waits_if_asked", GV_WATCH_HELD, 0, 0).wait, GV_GRID_WAIT_NONE);
    assert_int_equal(judge("no_wait", GV_WATCH_OFF, 0, 0).wait, GV_GRID_WAIT_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_watched_as_their_code_allows),
        cmocka_unit_test(what_was_not_looked_at_is_not_decided),
        cmocka_unit_test(early_accesses_are_told_from_the_others),
        cmocka_unit_test(more_instructions_than_can_be_told_apart_are_said),
        cmocka_unit_test(blocks_without_a_bit_began_later),
        cmocka_unit_test(the_trigger_is_where_the_code_has_it),
        cmocka_unit_test(what_is_not_reported_is_placed_by_the_code),
        cmocka_unit_test(only_what_was_seen_is_believed),
    };
    return cmocka_run_group_tests(tests, add_modules, drop_modules);
}
