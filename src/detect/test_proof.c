// Observed findings from a trace: reads of scratch memory that nothing wrote, effects of repeated launches, probes, and
// what was to be checked and was not.
#include "base/memory.h"
#include "detect/detect.h"
#include "trace/ranges.h"
#include "trace/test_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static gv_writer *writer;
static gv_trace *trace;
static gv_findings findings;

#define WRITE(name, ...) assert_int_equal(gv_write_##name(writer, &(gv_##name##_record){__VA_ARGS__}), GV_OK)

enum { SCRATCH = 0x10000, SIZE = 0x1000, LAUNCH = 10 };

static void begin(void)
{
    gv_error error = {0};
    assert_int_equal(gv_writer_create(scratch("proof"), &writer, &error), GV_OK);
    WRITE(process, .pid = 7);
}

// A graph whose nodes are kernels, each behind the one before it but for the last: that comes behind the first alone.
static void write_graph(unsigned nodes)
{
    uint64_t edges[4 * 8];
    size_t count = 0;
    for (unsigned i = 1; i < nodes; i++) {
        edges[4 * count] = i + 1 < nodes ? i - 1 : 0;
        edges[4 * count + 1] = i;
        edges[4 * count + 2] = edges[4 * count + 3] = 0;
        count++;
    }
    WRITE(graph, .id = 1, .origin = GV_GRAPH_BUILT, .nodes = nodes, .edges = count);
    for (unsigned i = 0; i < nodes; i++)
        WRITE(node, .graph = 1, .index = i, .kind = GV_NODE_KERNEL, .order = i + 1);
    WRITE(edges, .graph = 1, .items = {edges, 4 * count});
    WRITE(exec, .id = 1, .graph = 1, .operation = 2);
}

static void declare_scratch(void)
{
    WRITE(allocation, .id = 1, .address = SCRATCH, .size = SIZE, .operation = 1);
    WRITE(operation, .sequence = 1, .kind = GV_OP_ALLOC, .object = 1, .address = SCRATCH, .size = SIZE);
    WRITE(declared, .name = TEXT("workspace"), .address = SCRATCH, .row_bytes = SIZE, .rows = 1,
          .flags = GV_DECLARED_SCRATCH, .operation = 1);
}

static gv_bytes range(uint64_t start, uint64_t end)
{
    static uint8_t bytes[16][64];
    static size_t next;
    uint8_t *at = bytes[next++ % 16];
    gv_range one = {SCRATCH + start, SCRATCH + end};
    return start == end ? (gv_bytes){0} : (gv_bytes){at, gv_ranges_encode(&one, 1, at)};
}

static void access(unsigned node, unsigned precision, gv_bytes reads, gv_bytes writes, gv_bytes atomics)
{
    WRITE(access, .launch = LAUNCH, .graph = 1, .node = node, .source = GV_SOURCE_SOFT, .precision = precision,
          .reads = reads, .writes = writes, .atomics = atomics);
}

static const gv_bytes NONE;

static void launch(void)
{
    WRITE(operation, .sequence = LAUNCH, .kind = GV_OP_GRAPH_LAUNCH, .object = 1);
}

// Ends the trace and runs the detectors. Answers how many findings are observed ones; they come first.
static size_t detect(bool armed)
{
    gv_error error = {0};
    size_t observed = 0;
    if (armed)
        WRITE(armed, .launch = LAUNCH, .exec = 1, .graph = 1);
    WRITE(end, .operations = LAUNCH);
    assert_int_equal(gv_writer_close(writer), GV_OK);
    assert_int_equal(gv_trace_load(scratch("proof"), &trace, &error), GV_OK);
    assert_int_equal(gv_detect(trace, &findings, &error), GV_OK);
    while (observed < findings.count && gv_finding_is_observed(findings.items[observed].id))
        observed++;
    return observed;
}

static int release(void **state)
{
    gv_findings_free(&findings);
    gv_trace_free(trace);
    trace = NULL;
    return 0;
}

static void what_is_written_before_may_be_read(void **state)
{
    begin();
    declare_scratch();
    write_graph(3);
    launch();
    access(0, GV_PRECISION_EXACT, NONE, range(0, 0x100), NONE);
    access(1, GV_PRECISION_EXACT, range(0, 0x100), NONE, NONE);
    access(2, GV_PRECISION_EXACT, range(0x80, 0x100), range(0x200, 0x300), NONE);
    assert_int_equal(detect(true), 0);
}

static void what_nobody_wrote_is_stale(void **state)
{
    begin();
    declare_scratch();
    write_graph(3);
    launch();
    access(0, GV_PRECISION_EXACT, NONE, range(0, 0x100), NONE);
    access(1, GV_PRECISION_EXACT, range(0x80, 0x180), NONE, NONE);
    access(2, GV_PRECISION_EXACT, NONE, NONE, NONE);
    assert_int_equal(detect(true), 1);
    const gv_finding *found = &findings.items[0];
    assert_int_equal(found->id, GV_FINDING_STALE_READ);
    assert_int_equal(found->confidence, GV_CERTAIN);
    assert_int_equal(found->node, 2);
    assert_int_equal(found->bytes, 0x80);
    assert_int_equal(found->ranges.ranges[0].start, SCRATCH + 0x100);
    assert_int_equal(found->allocation, 1);
    assert_string_equal(gv_finding_fact(found, "name")->text, "workspace");
}

// Node 2 comes behind node 0 alone: what node 1 writes need not be there yet.
static void a_write_that_is_not_ordered_does_not_count(void **state)
{
    begin();
    declare_scratch();
    write_graph(3);
    launch();
    access(0, GV_PRECISION_EXACT, NONE, NONE, NONE);
    access(1, GV_PRECISION_EXACT, NONE, range(0, 0x100), NONE);
    access(2, GV_PRECISION_EXACT, range(0, 0x100), NONE, NONE);
    assert_int_equal(detect(true), 1);
    assert_int_equal(findings.items[0].node, 3);
}

// The order of a kernel's own accesses is not known, an extent may have been written, and an atomic update reads.
static void own_writes_extents_and_atomics(void **state)
{
    begin();
    declare_scratch();
    write_graph(4);
    launch();
    access(0, GV_PRECISION_EXACT, range(0, 0x100), range(0, 0x100), NONE);
    access(1, GV_PRECISION_EXTENT, range(0x100, 0x200), range(0x200, 0x300), NONE);
    access(2, GV_PRECISION_EXACT, range(0x200, 0x300), NONE, range(0x400, 0x404));
    access(3, GV_PRECISION_INCOMPLETE, NONE, NONE, NONE);
    assert_int_equal(detect(true), 1);
    assert_int_equal(findings.items[0].node, 3);
    assert_int_equal(findings.items[0].bytes, 4);
    assert_int_equal(findings.items[0].confidence, GV_LIKELY);
}

// Memory that is freed and allocated again is not what was declared.
static void a_declaration_ends_with_its_memory(void **state)
{
    begin();
    declare_scratch();
    write_graph(2);
    WRITE(operation, .sequence = 3, .kind = GV_OP_FREE, .object = 1, .address = SCRATCH);
    WRITE(allocation, .id = 2, .address = SCRATCH, .size = SIZE, .operation = 4);
    WRITE(operation, .sequence = 4, .kind = GV_OP_ALLOC, .object = 2, .address = SCRATCH, .size = SIZE);
    launch();
    access(0, GV_PRECISION_EXACT, range(0, 0x100), NONE, NONE);
    assert_int_equal(detect(true), 0);
}

static void write_effect(uint64_t launch, uint64_t node, unsigned kind)
{
    WRITE(effect, .launch = launch, .graph = 1, .node = node, .kind = kind, .name = TEXT("out"),
          .patterns = TEXT("zeros,nan"), .real_rows = 4, .rows = 2, .first_row = 1, .last_row = 2, .bytes = 0x20,
          .ranges = range(0, 0x20));
}

static void equal_effects_are_one_finding(void **state)
{
    begin();
    declare_scratch();
    write_graph(3);
    launch();
    for (uint64_t i = 0; i < 3; i++) {
        write_effect(LAUNCH, 2, GV_EFFECT_PAD_READ);
        WRITE(perturbed, .launch = LAUNCH, .exec = 1, .graph = 1);
    }
    write_effect(LAUNCH, 3, GV_EFFECT_PAD_WRITE);
    write_effect(LAUNCH, 1, 99); // of a later version
    assert_int_equal(detect(false), 2);
    const gv_finding *read = &findings.items[0], *written = &findings.items[1];
    assert_int_equal(read->id, GV_FINDING_PAD_READ);
    assert_int_equal(read->affected, 3);
    assert_int_equal(read->node, 2);
    assert_int_equal(gv_finding_fact(read, "rows")->number, 2);
    assert_string_equal(gv_finding_fact(read, "patterns")->text, "zeros,nan");
    assert_int_equal(written->id, GV_FINDING_PAD_WRITE);
    assert_int_equal(written->bytes, 0x20);
    assert_null(gv_finding_fact(written, "rows"));
}

// Poison and recorded accesses of one node are one finding, with the bytes that were read.
static void both_ways_are_one_finding(void **state)
{
    begin();
    declare_scratch();
    write_graph(2);
    launch();
    access(1, GV_PRECISION_EXACT, range(0x100, 0x180), NONE, NONE);
    write_effect(LAUNCH, 2, GV_EFFECT_STALE_READ);
    assert_int_equal(detect(true), 1);
    assert_string_equal(gv_finding_fact(&findings.items[0], "source")->text, "access-sets,poison");
    assert_int_equal(findings.items[0].bytes, 0x80);
}

static size_t said(const char *text)
{
    size_t count = 0;
    for (size_t i = 0; i < findings.count; i++)
        count += findings.items[i].id == GV_FINDING_INCOMPLETE && strstr(findings.items[i].reason, text) != NULL;
    return count;
}

static void what_was_not_checked_is_said(void **state)
{
    begin();
    write_graph(2);
    launch();
    for (int i = 0; i < 2; i++)
        WRITE(perturbed, .launch = LAUNCH, .exec = 1, .graph = 1, .status = GV_PERTURBED_REFUSED,
              .reason = TEXT("it has a host function"));
    WRITE(perturbed, .launch = LAUNCH, .exec = 1, .graph = 1, .what = GV_PERTURBED_POISON,
          .status = GV_PERTURBED_UNSTABLE, .reason = TEXT("it is fickle"));
    WRITE(perturbed, .launch = LAUNCH, .exec = 1, .graph = 1, .what = GV_PERTURBED_POISON);
    assert_int_equal(detect(false), 0);
    assert_int_equal(said("host function"), 1);
    assert_int_equal(said("fickle"), 0); // a later launch was checked
}

static void write_probe(const char *name, uint64_t layer, uint64_t differing)
{
    WRITE(probe, .name = {name, strlen(name)}, .layer = layer, .bucket = 8, .dtype = TEXT("f32"), .real_rows = 5,
          .elements = 40, .differing = differing, .rows = differing ? 1 : 0, .first_row = 2, .first_element = 3,
          .graph_value = TEXT("1"), .eager_value = TEXT("2"));
}

static void differing_probes_are_findings(void **state)
{
    begin();
    write_probe("logits", 1, 0);
    write_probe("logits", 1, 3);
    write_probe("logits", 2, 1);
    write_probe("logits", 1, 7);
    assert_int_equal(detect(false), 2);
    assert_int_equal(
        gv_finding_fact(&findings.items[0], "layer")->number + gv_finding_fact(&findings.items[1], "layer")->number, 3);
    for (int i = 0; i < 2; i++) {
        const gv_finding *found = &findings.items[i];
        bool first = gv_finding_fact(found, "layer")->number == 1;
        assert_int_equal(found->id, GV_FINDING_DIFF);
        assert_int_equal(found->affected, first ? 2 : 1);
        assert_int_equal(gv_finding_fact(found, "differing")->number, first ? 3 : 1);
        assert_string_equal(gv_finding_fact(found, "source")->text, "probe");
    }
}

static void memory_failures_are_reported(void **state)
{
    begin();
    declare_scratch();
    write_graph(3);
    launch();
    access(0, GV_PRECISION_EXACT, NONE, range(0, 0x100), NONE);
    access(1, GV_PRECISION_EXACT, range(0x80, 0x180), NONE, NONE);
    write_effect(LAUNCH, 2, GV_EFFECT_PAD_READ);
    write_probe("logits", 1, 3);
    assert_int_equal(detect(true), 3);
    bool succeeded = false;
    for (long allowed = 0; !succeeded; allowed++) {
        gv_findings again = {0};
        gv_error error = {0};
        gv_memory_fail_after(allowed);
        gv_status status = gv_detect(trace, &again, &error);
        gv_memory_fail_after(-1);
        succeeded = status == GV_OK;
        if (!succeeded)
            assert_int_equal(status, GV_ERR_MEMORY);
        gv_findings_free(&again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_is_written_before_may_be_read, release),
        cmocka_unit_test_teardown(what_nobody_wrote_is_stale, release),
        cmocka_unit_test_teardown(a_write_that_is_not_ordered_does_not_count, release),
        cmocka_unit_test_teardown(own_writes_extents_and_atomics, release),
        cmocka_unit_test_teardown(a_declaration_ends_with_its_memory, release),
        cmocka_unit_test_teardown(equal_effects_are_one_finding, release),
        cmocka_unit_test_teardown(both_ways_are_one_finding, release),
        cmocka_unit_test_teardown(what_was_not_checked_is_said, release),
        cmocka_unit_test_teardown(differing_probes_are_findings, release),
        cmocka_unit_test_teardown(memory_failures_are_reported, release),
    };
    return cmocka_run_group_tests_name("detect/proof", tests, NULL, NULL);
}
