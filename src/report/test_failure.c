// Unit tests of the reports when memory or the disk gives out: every allocation of a report is made to fail in turn,
// and each time the report fails with a message, without a crash and without a leak (the latter under
// AddressSanitizer).
#include "base/memory.h"
#include "report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static gv_function functions[] = {{0}, {.name = "_Z5scaleIfEvPT_S0_i"}, {.name = "gather"}};
static gv_node nodes[] = {{.kind = GV_NODE_KERNEL, .function = 1, .stack = 1, .stream = 1},
                          {.kind = GV_NODE_KERNEL, .function = 2, .stack = 1, .stream = 2}};
static gv_graph graphs[] = {
    {0}, {.id = 1, .origin = GV_GRAPH_CAPTURED, .name = "", .nodes = nodes, .node_count = 2, .whole = true}};
static gv_python_frame frames[] = {{"/srv/model.py", "step", 12}};
static gv_stack stacks[] = {{0}, {.python = frames, .python_count = 1}};
static gv_armed armed[] = {{.launch = 1, .graph = 1}};
static gv_operation operations[] = {{.sequence = 1, .kind = GV_OP_GRAPH_LAUNCH, .object = 1}};
static gv_exec_version versions[] = {{.exec = 1, .graph = 1}};
static gv_access accesses[] = {{.launch = 1, .graph = 1, .reads = {(const uint8_t *)"\x10\x10", 2}}};

static gv_trace trace = {
    .path = "t.gravel",
    .process = {.pid = 812, .command_line = {"python serve.py", 15}},
    .functions = functions,
    .function_count = 3,
    .graphs = graphs,
    .graph_count = 2,
    .stacks = stacks,
    .stack_count = 2,
    .armed = armed,
    .armed_count = 1,
    .operations = operations,
    .operation_count = 1,
    .exec_versions = versions,
    .exec_version_count = 1,
    .accesses = accesses,
    .access_count = 1,
    .ended = true,
};
static gv_trace *traces[] = {&trace};
static gv_range ranges[] = {{0x1000, 0x1800}};
static gv_race_pair pair = {.first = {.node = 0, .reads = true},
                            .second = {.node = 1, .writes = true},
                            .id = GV_FINDING_RACE_WAR,
                            .ranges = {.ranges = ranges, .count = 1},
                            .bytes = 2048,
                            .war_bytes = 2048};
static gv_finding items[] = {
    {.id = GV_FINDING_RACE_WAR,
     .trace = &trace,
     .graph = 1,
     .launch = 1,
     .pairs = &pair,
     .pair_count = 1,
     .edge_to = 1},
    {.id = GV_FINDING_INCOMPLETE, .trace = &trace, .graph = 1, .node = 1, .affected = 1, .reason = "tensor copies"},
};
static const gv_findings findings = {.items = items, .count = 2};

static gv_status write_text(FILE *out, gv_error *error)
{
    gv_report_options options = {.verbose = true, .all_stacks = true, .all_pairs = true};
    return gv_report_text(out, traces, 1, &findings, &options, error);
}

static gv_status write_json(FILE *out, gv_error *error)
{
    return gv_report_json(out, traces, 1, &findings, error);
}

static gv_status write_graphs(FILE *out, gv_error *error)
{
    return gv_report_show(out, &trace, "graphs", 0, false, error);
}

static gv_status write_nodes(FILE *out, gv_error *error)
{
    return gv_report_show(out, &trace, "nodes", 0, true, error);
}

static gv_status write_access(FILE *out, gv_error *error)
{
    return gv_report_show(out, &trace, "access", 0, false, error);
}

static gv_status write_launches(FILE *out, gv_error *error)
{
    return gv_report_show(out, &trace, "launches", 0, false, error);
}

static gv_status write_coverage(FILE *out, gv_error *error)
{
    return gv_report_show(out, &trace, "coverage", 0, false, error);
}

static gv_status write_coverage_rows(FILE *out, gv_error *error)
{
    return gv_report_show(out, &trace, "coverage", 1, true, error);
}

typedef gv_status (*writer)(FILE *out, gv_error *error);
static const writer writers[] = {write_text,   write_json,     write_graphs,   write_nodes,
                                 write_access, write_launches, write_coverage, write_coverage_rows};

static void each_allocation_may_fail(void **state)
{
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        gv_status status = GV_ERR_MEMORY;
        long allowed = 0;
        for (; status != GV_OK; allowed++) {
            FILE *out = fopen("/dev/null", "w");
            gv_error error = {0};
            assert_non_null(out);
            gv_memory_fail_after(allowed);
            status = writers[i](out, &error);
            gv_memory_fail_after(-1);
            fclose(out);
            if (status != GV_OK) {
                assert_int_equal(status, GV_ERR_MEMORY);
                assert_non_null(strstr(error.text, "out of memory"));
            }
            assert_true(allowed < 1000);
        }
        assert_true(allowed > 1); // it does allocate
    }
}

static void a_full_disk_is_told(void **state)
{
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        FILE *out = fopen("/dev/full", "w");
        gv_error error = {0};
        if (!out)
            skip();
        assert_int_equal(writers[i](out, &error), GV_ERR_IO);
        assert_non_null(strstr(error.text, "No space left"));
        fclose(out);
    }
}

static void what_is_not_there_is_told(void **state)
{
    gv_error error = {0};
    FILE *out = fopen("/dev/null", "w");
    assert_non_null(out);
    assert_int_equal(gv_report_show(out, &trace, "colours", 0, false, &error), GV_ERR_USAGE);
    assert_int_equal(gv_report_show(out, &trace, "nodes", 9, false, &error), GV_ERR_MISSING);
    assert_non_null(strstr(error.text, "graph #9"));
    assert_int_equal(gv_report_show(out, &trace, "allocations", 1, false, &error), GV_ERR_USAGE);
    fclose(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(a_full_disk_is_told),
        cmocka_unit_test(what_is_not_there_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
