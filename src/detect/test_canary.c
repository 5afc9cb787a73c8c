// The detector of canaries, on traces that are written here.
#include "base/memory.h"
#include "detect/detect.h"
#include "trace/test_sample.h"
#include "trace/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BASE = 0x100000, PAGE = 0x1000, PAGES = 16, MISSED = 1 };

// Every call must succeed.
#define WRITE(name, ...) assert_int_equal(gv_write_##name(writer, &(gv_##name##_record){__VA_ARGS__}), GV_OK)

static gv_writer *writer;
static gv_trace *trace;
static gv_findings findings;

static void begin(unsigned flags)
{
    gv_error error = {0};
    assert_int_equal(gv_writer_create(scratch("canary.gravel"), &writer, &error), GV_OK);
    WRITE(process, .pid = 7, .driver = TEXT("soft"));
    WRITE(string, .id = MISSED, .text = TEXT("a capture was under way"));
    WRITE(context, .id = 1);
    WRITE(stream, .id = 1, .context = 1);
    WRITE(function, .id = 1, .name = TEXT("store"));
    WRITE(stack, .id = 1);
    WRITE(allocation, .id = 1, .address = BASE, .size = PAGES * PAGE, .context = 1, .operation = 1);
    WRITE(operation, .sequence = 1, .kind = GV_OP_ALLOC, .object = 1);
    WRITE(region, .id = 1, .name = TEXT("keys"), .address = BASE, .size = PAGES * PAGE, .page_bytes = PAGE,
          .flags = flags);
    WRITE(region_step, .region = 1, .step = 1, .first = 1, .operation = 1, .state = GV_REGION_FIRST);
}

// Step 2, of the operations (1, 9]: pages 3 and 4 changed, page 4 alone was not allowed to.
#define HIT(...)                                                                                                   \
    WRITE(region_step, .region = 1, .step = 2, .first = 2, .since = 1, .operation = 9, .state = GV_REGION_CHECKED, \
          .allowed = 1, .changed = 2, .outside = 1, .pages = NUMBERS(4), __VA_ARGS__)

static void copy(uint64_t sequence, uint64_t page)
{
    WRITE(operation, .sequence = sequence, .kind = GV_OP_MEMCPY, .stream = 1, .address = BASE + page * PAGE,
          .size = 64);
}

// A plain kernel launch; recorded, it wrote 16 bytes of the page.
static void kernel(uint64_t sequence, bool recorded, uint64_t page)
{
    uint8_t room[64];
    gv_range written = {BASE + page * PAGE, BASE + page * PAGE + 16};
    WRITE(operation, .sequence = sequence, .kind = GV_OP_KERNEL, .stream = 1, .object = 1);
    if (recorded)
        WRITE(kernel_access, .operation = sequence, .function = 1, .stack = 1, .source = GV_SOURCE_SOFT,
              .writes = {room, gv_ranges_encode(&written, 1, room)});
}

static gv_status load_and_detect(gv_error *error)
{
    file_bytes file = read_file(scratch("canary.gravel"));
    gv_status status = gv_trace_load_memory(file.data, file.size, "canary.gravel", &trace, error);
    free(file.data);
    return status ? status : gv_detect_canary(trace, &findings, error);
}

static void end_writing(void)
{
    WRITE(end, .operations = 9);
    assert_int_equal(gv_writer_close(writer), GV_OK);
}

// Loads what was written and looks at it.
static void look(void)
{
    gv_error error = {0};
    end_writing();
    if (load_and_detect(&error) != GV_OK)
        fail_msg("%s", error.text);
    assert_int_equal(trace->undefined, 0);
}

static void finish(void)
{
    gv_findings_free(&findings);
    gv_trace_free(trace);
}

static const gv_finding *only(enum gv_finding_id id)
{
    assert_int_equal(findings.count, 1);
    assert_int_equal(findings.items[0].id, id);
    return &findings.items[0];
}

static void expect_text(const char *key, const char *text)
{
    const gv_fact *fact = gv_finding_fact(&findings.items[0], key);
    assert_non_null(fact);
    assert_string_equal(fact->text, text);
}

static void expect_number(const char *key, uint64_t number)
{
    const gv_fact *fact = gv_finding_fact(&findings.items[0], key);
    assert_non_null(fact);
    assert_int_equal(fact->number, number);
}

static void test_a_recorded_kernel(void **state)
{
    begin(GV_REGION_CANARY);
    kernel(2, true, 3);
    kernel(3, true, 4);
    HIT();
    look();
    const gv_finding *f = only(GV_FINDING_CANARY);
    expect_text("evidence", "seen");
    expect_text("writer", "kernel");
    expect_text("pages", "4");
    expect_number("writer_operation", 3);
    expect_number("writers", 1);
    expect_number("expected", 1);
    expect_number("found", 2);
    assert_int_equal(f->bytes, PAGE);
    assert_int_equal(f->ranges.ranges[0].start, BASE + 4 * PAGE);
    assert_int_equal(f->allocation, 1);
    assert_null(f->reason);
    finish();
}

static void test_work_outside_of_the_step(void **state)
{
    begin(GV_REGION_CANARY);
    kernel(2, true, 3);
    HIT();
    kernel(10, true, 4); // behind the step
    look();
    only(GV_FINDING_CANARY);
    expect_text("evidence", "ruled-out");
    expect_number("writers", 0);
    assert_non_null(strstr(findings.items[0].reason, "without a stream"));
    finish();
}

static void test_what_is_not_recorded_rules_nothing_out(void **state)
{
    begin(GV_REGION_CANARY);
    kernel(2, false, 0);
    WRITE(operation, .sequence = 3, .kind = GV_OP_HOST_FUNCTION, .stream = 1);
    HIT();
    look();
    only(GV_FINDING_CANARY);
    expect_text("evidence", "unknown");
    assert_non_null(strstr(findings.items[0].reason, "0 graph launches, 1 plain kernel launch and 1 other operation"));
    finish();
}

static void test_a_copy_before_the_page_was_hashed_anew(void **state)
{
    // The transfer's own copy (2), by the end of which page 4 was hashed anew (behind 5), is not the writer.
    begin(GV_REGION_CANARY);
    copy(2, 4);
    copy(6, 3);
    HIT(.anew = NUMBERS(3, 4, 4, 5));
    look();
    only(GV_FINDING_CANARY);
    expect_text("evidence", "ruled-out");
    finish();
    begin(GV_REGION_CANARY);
    copy(2, 4);
    copy(6, 4);
    HIT(.anew = NUMBERS(4, 5));
    look();
    expect_text("writer", "memcpy");
    expect_number("writer_operation", 6);
    finish();
}

static void test_steps_are_put_together(void **state)
{
    begin(GV_REGION_CANARY);
    kernel(2, false, 0);
    HIT();
    kernel(10, true, 5);
    WRITE(region_step, .region = 1, .step = 3, .first = 3, .since = 9, .operation = 12, .state = GV_REGION_CHECKED,
          .changed = 1, .outside = 1, .pages = NUMBERS(5));
    WRITE(region_step, .region = 1, .step = 4, .first = 4, .since = 12, .operation = 12, .state = GV_REGION_CHECKED);
    look();
    const gv_finding *f = only(GV_FINDING_CANARY);
    assert_int_equal(f->affected, 2);
    expect_text("evidence", "seen");
    expect_number("step", 2);
    expect_number("seen_steps", 1);
    expect_number("writer_operation", 10);
    finish();
}

static void test_nothing_was_declared(void **state)
{
    begin(GV_REGION_CANARY);
    for (uint64_t step = 2; step < 5; step++)
        WRITE(region_step, .region = 1, .step = step, .first = step, .state = GV_REGION_UNKNOWN, .changed = 7);
    look();
    assert_non_null(strstr(only(GV_FINDING_INCOMPLETE)->reason, "never declared"));
    finish();
    // Of a region that only checksums look at nothing was to be said.
    begin(GV_REGION_CHECKSUM);
    WRITE(region_step, .region = 1, .step = 2, .first = 2, .state = GV_REGION_UNKNOWN, .changed = 7);
    look();
    assert_int_equal(findings.count, 0);
    finish();
}

static void test_steps_that_were_not_hashed(void **state)
{
    begin(GV_REGION_CANARY);
    WRITE(region_step, .region = 1, .step = 2, .first = 2, .state = GV_REGION_CHECKED);
    WRITE(region_step, .region = 1, .step = 3, .first = 3, .reason = MISSED);
    look();
    assert_non_null(strstr(only(GV_FINDING_INCOMPLETE)->reason, "not hashed after step 2: a capture was under way"));
    finish();
    // They were part of what was hashed later.
    begin(GV_REGION_CANARY);
    WRITE(region_step, .region = 1, .step = 2, .first = 2, .reason = MISSED);
    WRITE(region_step, .region = 1, .step = 3, .first = 2, .state = GV_REGION_CHECKED);
    look();
    assert_int_equal(findings.count, 0);
    finish();
}

static void test_hostile_numbers(void **state)
{
    begin(GV_REGION_CANARY);
    WRITE(region_step, .region = 1, .step = 2, .state = GV_REGION_CHECKED, .outside = UINT64_MAX, .changed = 1,
          .operation = UINT64_MAX, .pages = NUMBERS(UINT64_MAX, PAGES, 15),
          .anew = NUMBERS(UINT64_MAX, UINT64_MAX, 15, 3));
    WRITE(operation, .sequence = 2, .kind = GV_OP_MEMCPY, .stream = 1, .address = UINT64_MAX, .size = UINT64_MAX);
    WRITE(region_step, .region = 99, .step = 2, .state = GV_REGION_CHECKED, .outside = 1);
    gv_error error = {0};
    end_writing();
    assert_int_equal(load_and_detect(&error), GV_OK);
    assert_int_equal(only(GV_FINDING_CANARY)->bytes, PAGE); // of the one page that there is
    finish();
}

static void test_memory_failures_are_reported(void **state)
{
    begin(GV_REGION_CANARY);
    copy(2, 4);
    kernel(3, true, 4);
    HIT(.anew = NUMBERS(4, 1));
    gv_error error = {0};
    end_writing();
    assert_int_equal(load_and_detect(&error), GV_OK);
    gv_findings_free(&findings);
    bool failed = true;
    for (long successes = 0; failed; successes++) {
        assert_true(successes < 1000);
        gv_memory_fail_after(successes);
        gv_status status = gv_detect_canary(trace, &findings, &error);
        gv_memory_fail_after(-1);
        failed = status != GV_OK;
        if (failed)
            assert_int_equal(status, GV_ERR_MEMORY);
        gv_findings_free(&findings);
    }
    gv_trace_free(trace);
}

static int tidy(void **state)
{
    remove_scratch();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_recorded_kernel),
        cmocka_unit_test(test_work_outside_of_the_step),
        cmocka_unit_test(test_what_is_not_recorded_rules_nothing_out),
        cmocka_unit_test(test_a_copy_before_the_page_was_hashed_anew),
        cmocka_unit_test(test_steps_are_put_together),
        cmocka_unit_test(test_nothing_was_declared),
        cmocka_unit_test(test_steps_that_were_not_hashed),
        cmocka_unit_test(test_hostile_numbers),
        cmocka_unit_test(test_memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, tidy);
}
