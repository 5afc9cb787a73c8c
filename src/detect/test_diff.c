// The differential on traces as the recorder writes them: how differences are classed and joined, what is said of
// launches that were not compared, and what damaged records come to.
#include "base/memory.h"
#include "detect/detect.h"
#include "trace/test_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BASE = 0x10000, SIZE = 0x1000 };

// A graph of five kernels, 0 -> 1 -> 2 and 3 -> 4, that exec 1 runs, launched by operations 1, 2, ...
static gv_writer *writer;
static const char *path;

static void begin(void)
{
    gv_error error = {0};
    path = scratch("diff.gravel");
    if (gv_writer_create(path, &writer, &error) != GV_OK)
        fail_msg("%s", error.text);
    gv_write_process(writer, &(gv_process_record){.pid = 1, .command_line = TEXT("program")});
    gv_write_allocation(writer,
                        &(gv_allocation_record){.id = 1, .address = BASE, .size = SIZE, .name = TEXT("hidden")});
    gv_write_function(writer, &(gv_function_record){.id = 1, .name = TEXT("scale_bf16")});
    gv_write_function(writer, &(gv_function_record){.id = 2, .name = TEXT("plain")});
    gv_write_graph(writer, &(gv_graph_record){.id = 1, .origin = GV_GRAPH_CAPTURED, .nodes = 5, .edges = 3});
    for (uint64_t i = 0; i < 5; i++)
        gv_write_node(writer, &(gv_node_record){.graph = 1, .index = i, .function = i == 1 ? 1 : 2});
    gv_write_edges(writer, &(gv_edges_record){.graph = 1, .items = NUMBERS(0, 1, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0)});
    gv_write_exec(writer, &(gv_exec_record){.id = 1, .graph = 1, .operation = 1});
    for (uint64_t i = 1; i < 10; i++)
        gv_write_operation(writer, &(gv_operation_record){.sequence = i, .kind = GV_OP_GRAPH_LAUNCH, .object = 1});
}

static uint8_t encoded[256];

static gv_bytes ranges(uint64_t start, uint64_t end)
{
    static size_t used;
    gv_range range = {start, end};
    used = used + 64 > sizeof encoded ? 0 : used;
    uint8_t *at = encoded + used;
    size_t length = gv_ranges_encode(&range, 1, at);
    used += length;
    return (gv_bytes){at, length};
}

// 16 bytes at `offset`, of which the graph and the serial replay left 3.0 and 2.0 (bf16) in the first two.
static const uint8_t graph_values[16] = {0x40, 0x40}, serial_values[16] = {0x00, 0x40};

static gv_difference_record difference(uint64_t launch, uint64_t node, uint64_t position, uint64_t unstable)
{
    uint64_t start = BASE + 0x100 * node;
    return (gv_difference_record){.launch = launch,
                                  .graph = 1,
                                  .node = node + 1,
                                  .position = position,
                                  .bytes = 1,
                                  .unstable = unstable,
                                  .range_count = 1,
                                  .ranges = ranges(start, start + 1),
                                  .value_ranges = ranges(start, start + 16),
                                  .graph_values = {graph_values, 16},
                                  .serial_values = {serial_values, 16}};
}

static void differs(uint64_t launch, uint64_t node, uint64_t position, uint64_t unstable)
{
    gv_difference_record record = difference(launch, node, position, unstable);
    gv_write_difference(writer, &record);
}

static void compared(uint64_t launch, uint64_t bytes)
{
    gv_write_checked(writer, &(gv_checked_record){.launch = launch, .exec = 1, .graph = 1, .different_bytes = bytes});
}

static gv_trace *trace;
static gv_findings findings;

// Loads what was written and looks at it.
static void look(void)
{
    gv_error error = {0};
    gv_write_end(writer, &(gv_end_record){.operations = 9});
    assert_int_equal(gv_writer_close(writer), GV_OK);
    if (gv_trace_load(path, &trace, &error) != GV_OK || gv_detect_diff(trace, &findings, &error) != GV_OK)
        fail_msg("%s", error.text);
}

static void finish(void)
{
    gv_findings_free(&findings);
    gv_trace_free(trace);
}

static void check_text(const gv_finding *finding, const char *key, const char *text)
{
    const gv_fact *fact = gv_finding_fact(finding, key);
    assert_non_null(fact);
    assert_string_equal(fact->text, text);
}

static void check_number(const gv_finding *finding, const char *key, uint64_t number)
{
    const gv_fact *fact = gv_finding_fact(finding, key);
    assert_non_null(fact);
    assert_int_equal(fact->number, number);
}

static void test_the_first_node_leads(void **state)
{
    begin();
    differs(2, 2, 3, 0);
    differs(2, 1, 2, 0);
    compared(1, 0);
    compared(2, 2);
    differs(3, 1, 2, 0);
    compared(3, 1);
    look();
    assert_int_equal(findings.count, 1);
    const gv_finding *f = &findings.items[0];
    assert_int_equal(f->id, GV_FINDING_DIFF);
    assert_int_equal(f->node, 2);
    assert_int_equal(f->launch, 2);
    assert_int_equal(f->affected, 2);
    assert_int_equal(f->confidence, GV_LIKELY);
    assert_int_equal(f->allocation, 1);
    check_text(f, "class", "order-dependent");
    check_number(f, "compared", 3);
    check_number(f, "nodes", 2);
    check_text(f, "others", "#2 plain (1 bytes)");
    check_text(f, "dtype", "bf16");
    check_text(f, "dtype_from", "guessed from the kernel's name");
    check_number(f, "elements", 1);
    check_number(f, "first_element", 0x80);
    check_text(f, "graph_value", "3");
    check_text(f, "serial_value", "2");
    check_text(f, "largest", "1");
    assert_int_equal(gv_findings_races(&findings), 1);
    finish();
}

static void test_what_follows_an_unstable_node_is_undecided(void **state)
{
    begin();
    differs(1, 0, 1, 1);
    differs(1, 1, 2, 0);
    compared(1, 2);
    look();
    assert_int_equal(findings.count, 1);
    check_text(&findings.items[0], "class", "non-deterministic");
    check_text(&findings.items[0], "others", "#1 scale_bf16 (1 bytes, undecided)");
    assert_int_equal(gv_findings_races(&findings), 0);
    finish();
    // No edges lead from the unstable node to this one.
    begin();
    differs(1, 0, 1, 1);
    differs(1, 4, 5, 0);
    compared(1, 2);
    look();
    check_text(&findings.items[0], "class", "order-dependent");
    assert_int_equal(findings.items[0].node, 5);
    finish();
}

// An armed launch has recorded that node 1 updates the byte atomically.
static void test_atomic_updates_are_no_order(void **state)
{
    begin();
    differs(2, 1, 2, 0);
    compared(2, 1);
    gv_write_access(writer, &(gv_access_record){.launch = 1,
                                                .graph = 1,
                                                .node = 1,
                                                .source = GV_SOURCE_SOFT,
                                                .atomics = ranges(BASE + 0x100, BASE + 0x108)});
    gv_write_armed(writer, &(gv_armed_record){.launch = 1, .exec = 1, .graph = 1});
    look();
    check_text(&findings.items[0], "class", "non-deterministic");
    assert_int_equal(gv_findings_races(&findings), 0);
    // A race that names the node explains the difference better.
    gv_findings_free(&findings);
    gv_finding *race = gv_findings_add(&findings);
    race->trace = trace;
    race->graph = 1;
    race->pairs = gv_calloc(1, sizeof *race->pairs);
    race->pair_count = 1;
    race->pairs[0] = (gv_race_pair){.first = {.node = 1}, .second = {.node = 4}, .id = GV_FINDING_RACE_WAW};
    assert_int_equal(gv_detect_diff(trace, &findings, NULL), GV_OK);
    assert_int_equal(findings.count, 2);
    check_text(&findings.items[1], "class", "order-dependent");
    check_text(&findings.items[1], "race", "race-waw");
    assert_int_equal(findings.items[1].confidence, GV_CERTAIN);
    finish();
}

static void test_tolerance_lets_near_values_pass(void **state)
{
    static const struct {
        const char *tolerance;
        size_t found;
    } cases[] = {{"bitwise", 1}, {"ulp=63", 1}, {"ulp=64", 0}, {"relative=0.3", 1}, {"relative=0.34", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin();
        gv_write_setting(writer, &(gv_setting_record){.kind = GV_SETTING_TOLERANCE,
                                                      .value = {cases[i].tolerance, strlen(cases[i].tolerance)}});
        differs(1, 1, 2, 0);
        compared(1, 1);
        look();
        assert_int_equal(findings.count, cases[i].found);
        finish();
    }
    // Values that were not kept cannot pass.
    begin();
    gv_write_setting(writer, &(gv_setting_record){.kind = GV_SETTING_TOLERANCE, .value = TEXT("ulp=1000")});
    gv_difference_record record = difference(1, 1, 2, 0);
    record.bytes = 20;
    gv_write_difference(writer, &record);
    compared(1, 20);
    look();
    assert_int_equal(findings.count, 1);
    check_text(&findings.items[0], "class", "order-dependent");
    finish();
}

static void test_types_are_declared(void **state)
{
    static const struct {
        const char *name, *type;
        bool fits;
    } cases[] = {{"", "i16", true}, {"scale", "i16", true}, {"hidden", "i16", true}, {"other", "i16", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin();
        gv_write_setting(writer, &(gv_setting_record){.kind = GV_SETTING_DTYPE,
                                                      .name = {cases[i].name, strlen(cases[i].name)},
                                                      .value = {cases[i].type, strlen(cases[i].type)}});
        differs(1, 1, 2, 0);
        compared(1, 1);
        look();
        check_text(&findings.items[0], "dtype", cases[i].fits ? "i16" : "bf16");
        check_text(&findings.items[0], "dtype_from", cases[i].fits ? "declared" : "guessed from the kernel's name");
        finish();
    }
}

static void test_launches_that_were_not_compared(void **state)
{
    begin();
    gv_write_setting(writer, &(gv_setting_record){.kind = GV_SETTING_DIFF, .value = TEXT("first")});
    for (uint64_t launch = 1; launch <= 3; launch++)
        gv_write_checked(writer, &(gv_checked_record){.launch = launch,
                                                      .exec = 1,
                                                      .graph = 1,
                                                      .status = GV_CHECKED_NOT_COMPARED,
                                                      .reason = launch == 3 ? TEXT("busy") : TEXT("no room")});
    // What such a launch has of differences does not count.
    differs(3, 1, 2, 0);
    look();
    assert_int_equal(findings.count, 2);
    assert_int_equal(findings.items[0].incomplete, GV_INCOMPLETE_NOT_COMPARED);
    assert_string_equal(findings.items[0].reason, "no room");
    assert_int_equal(findings.items[0].affected, 2);
    assert_string_equal(findings.items[1].reason, "busy");
    finish();
    // Chosen, and never so much as tried; and a process that died in a check.
    begin();
    gv_write_setting(writer, &(gv_setting_record){.kind = GV_SETTING_DIFF, .value = TEXT("first")});
    differs(1, 1, 2, 0);
    look();
    assert_int_equal(findings.count, 1);
    assert_int_equal(findings.items[0].incomplete, GV_INCOMPLETE_NOT_COMPARED);
    assert_int_equal(findings.items[0].affected, 9);
    finish();
    // Not asked for.
    begin();
    look();
    assert_int_equal(findings.count, 0);
    finish();
}

static void test_bytes_that_only_the_graph_writes(void **state)
{
    begin();
    gv_difference_record record = difference(1, 1, 2, 0);
    record.node = 0;
    record.position = UINT64_MAX;
    gv_write_difference(writer, &record);
    compared(1, 1);
    look();
    assert_int_equal(findings.count, 1);
    assert_int_equal(findings.items[0].node, 0);
    assert_int_equal(findings.items[0].graph, 1);
    assert_non_null(findings.items[0].reason);
    check_number(&findings.items[0], "position", 0);
    finish();
}

// References that lead nowhere and lengths that do not agree end the reading or are dropped; nothing is believed.
static void test_damaged_records(void **state)
{
    begin();
    gv_difference_record record = difference(1, 90, 2, 0);
    gv_write_difference(writer, &record); // no such node
    compared(1, 1);
    compared(77, 1); // no such launch
    look();
    assert_true(trace->undefined > 0);
    assert_null(trace->truncation);
    finish();
    for (int kind = 0; kind < 4; kind++) {
        begin();
        record = difference(1, 1, 2, 0);
        if (kind == 0)
            record.graph_values.length = 8;
        else if (kind == 1)
            record.bytes = 0;
        else if (kind == 2)
            record.range_count = 0;
        else
            record.ranges.length--;
        gv_write_difference(writer, &record);
        compared(1, 1);
        look();
        assert_non_null(trace->truncation);
        assert_int_equal(trace->checked_count, 0);
        finish();
    }
}

static void test_memory_failures_are_reported(void **state)
{
    begin();
    differs(1, 0, 1, 1);
    differs(1, 4, 5, 0);
    compared(1, 2);
    gv_write_checked(
        writer, &(gv_checked_record){
                    .launch = 2, .exec = 1, .graph = 1, .status = GV_CHECKED_NOT_COMPARED, .reason = TEXT("busy")});
    look();
    bool succeeded = false;
    for (long allowed = 0; !succeeded; allowed++) {
        gv_findings found = {0};
        gv_error error = {0};
        gv_memory_fail_after(allowed);
        gv_status status = gv_detect_diff(trace, &found, &error);
        gv_memory_fail_after(-1);
        succeeded = status == GV_OK;
        assert_true(succeeded || status == GV_ERR_MEMORY);
        gv_findings_free(&found);
    }
    finish();
}

static int clean_up(void **state)
{
    remove_scratch();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_node_leads),
        cmocka_unit_test(test_what_follows_an_unstable_node_is_undecided),
        cmocka_unit_test(test_atomic_updates_are_no_order),
        cmocka_unit_test(test_tolerance_lets_near_values_pass),
        cmocka_unit_test(test_types_are_declared),
        cmocka_unit_test(test_launches_that_were_not_compared),
        cmocka_unit_test(test_bytes_that_only_the_graph_writes),
        cmocka_unit_test(test_damaged_records),
        cmocka_unit_test(test_memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
