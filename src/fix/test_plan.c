// Plans on random traces: with the edges no race is left, without any one of them one is back, and the trace is as it
// was when they are taken away again. Graphs have programmatic edges whose waits were observed or not, child graphs,
// and nodes that the driver lists in another order than they were made.
#include "base/memory.h"
#include "detect/detect.h"
#include "fix/fingerprint.h"
#include "fix/plan.h"
#include "fix/test_draw.h"
#include "trace/ranges.h"
#include "trace/test_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WRITE(name, ...) assert_int_equal(gv_write_##name(writer, &(gv_##name##_record){__VA_ARGS__}), GV_OK)

enum { TRACES = 60, MOST_NODES = 12, BLOCKS = 6 };

static gv_writer *writer;
// How a random graph comes about.
typedef struct recipe {
    bool programmatic, child, shuffled;
} recipe;

static gv_bytes encoded(uint8_t *room, uint32_t block)
{
    gv_range range = {0x10000 + 256 * (uint64_t)block, 0x10000 + 256 * (uint64_t)block + 64};
    return (gv_bytes){room, block < BLOCKS ? gv_ranges_encode(&range, 1, room) : 0};
}

// A node's accesses: one block read, one written; of a consumer the read may come before its wait.
static void write_access(uint64_t graph, uint32_t node, bool consumer)
{
    uint8_t reads[32], writes[32];
    uint32_t read = draw(BLOCKS + 2), write = draw(BLOCKS + 2);
    uint64_t wait = consumer ? draw(4) : 0; // one in four is not observed
    wait = wait > 1 ? GV_GRID_WAIT_DONE : wait == 1 ? GV_GRID_WAIT_NONE : GV_GRID_WAIT_UNKNOWN;
    gv_bytes early = wait == GV_GRID_WAIT_DONE && draw(2) ? encoded(reads, read) : (gv_bytes){0};
    WRITE(access, .launch = 2, .graph = graph, .node = node, .source = GV_SOURCE_SANITIZER,
          .reads = encoded(reads, read), .writes = encoded(writes, write), .duration_ns = 1000 + draw(5000),
          .wait = wait, .trigger = wait == GV_GRID_WAIT_DONE ? draw(3) : 0, .early_reads = early);
}

// Writes a graph of `nodes` kernels, the third a child graph node if `child`, and says which stand behind programmatic
// edges.
static void write_level(uint64_t id, uint32_t nodes, uint32_t parent_node, recipe how, bool *consumers)
{
    uint32_t index[MOST_NODES]; // of the node made n-th
    uint64_t items[4 * MOST_NODES * MOST_NODES];
    size_t edges = 0;
    for (uint32_t n = 0; n < nodes; n++)
        index[n] = n;
    for (uint32_t n = nodes; how.shuffled && n-- > 1;) {
        uint32_t other = draw(n + 1), kept = index[n];
        index[n] = index[other];
        index[other] = kept;
    }
    memset(consumers, 0, MOST_NODES);
    for (uint32_t b = 1; b < nodes; b++) {
        for (uint32_t a = 0; a < b; a++) {
            if (draw(100) >= 25)
                continue;
            bool early = how.programmatic && draw(3) == 0 && !(how.child && (a == 2 || b == 2));
            uint64_t edge[] = {index[a], index[b], early, early};
            memcpy(items + 4 * edges++, edge, sizeof edge);
            consumers[index[b]] |= early;
        }
    }
    WRITE(graph, .id = id, .origin = id == 1 ? GV_GRAPH_CAPTURED : GV_GRAPH_CHILD, .nodes = nodes, .edges = edges,
          .parent = id == 1 ? 0 : 1, .parent_node = parent_node);
    if (how.child) {
        bool inner[MOST_NODES];
        write_level(2, 3, index[2], (recipe){0}, inner);
    }
    for (uint32_t place = 0; place < nodes; place++) {
        for (uint32_t n = 0; n < nodes; n++) {
            if (index[n] != place)
                continue;
            bool is_child = how.child && n == 2;
            WRITE(node, .graph = id, .index = place, .kind = is_child ? GV_NODE_CHILD : GV_NODE_KERNEL,
                  .function = is_child ? 0 : 1, .order = n + 1, .stream = 1 + n % 3, .child = is_child ? 2 : 0);
        }
    }
    WRITE(edges, .graph = id, .items = {items, 4 * edges});
}

static gv_trace *random_trace(recipe how)
{
    gv_error error = {0};
    gv_trace *trace;
    bool consumers[MOST_NODES];
    uint32_t nodes = 5 + draw(MOST_NODES - 5);
    assert_int_equal(gv_writer_create(scratch("plan"), &writer, &error), GV_OK);
    WRITE(process, .pid = 1);
    WRITE(function, .id = 1, .name = TEXT("kernel"));
    for (uint64_t s = 1; s <= 3; s++)
        WRITE(stream, .id = s);
    write_level(1, nodes, 0, how, consumers);
    WRITE(exec, .id = 1, .graph = 1, .operation = 1);
    WRITE(operation, .sequence = 2, .kind = GV_OP_GRAPH_LAUNCH, .object = 1);
    for (uint32_t n = 0; n < nodes; n++)
        write_access(1, n, consumers[n]);
    for (uint32_t n = 0; n < 3 && how.child; n++)
        write_access(2, n, false);
    WRITE(armed, .launch = 2, .exec = 1, .graph = 1);
    WRITE(end, .operations = 2);
    assert_int_equal(gv_writer_close(writer), GV_OK);
    if (gv_trace_load(scratch("plan"), &trace, &error) != GV_OK)
        fail_msg("%s", error.text);
    return trace;
}

static size_t undecided; // pairs that count_pairs met and that only unobserved waits order

static size_t count_pairs(gv_trace *trace)
{
    gv_findings findings = {0};
    gv_error error = {0};
    size_t pairs = 0;
    assert_int_equal(gv_detect(trace, &findings, &error), GV_OK);
    undecided = 0;
    for (size_t i = 0; i < findings.count; i++) {
        pairs += findings.items[i].pair_count;
        if (findings.items[i].id == GV_FINDING_INCOMPLETE && findings.items[i].incomplete == GV_INCOMPLETE_PROGRAMMATIC)
            undecided += findings.items[i].affected;
    }
    gv_findings_free(&findings);
    return pairs;
}

static size_t pairs_with(gv_trace *trace, const gv_fix_plan *plan, size_t skip)
{
    gv_fix_trial *trial;
    gv_error error = {0};
    assert_int_equal(gv_fix_apply(plan, skip, &trial, &error), GV_OK);
    size_t pairs = count_pairs(trace);
    gv_fix_undo(trial);
    return pairs;
}

// Returns how many edges the plan has.
static size_t check_trace(gv_trace *trace, const char *what, int number)
{
    gv_findings findings = {0};
    gv_fix_plan plan;
    gv_error error = {0};
    assert_int_equal(gv_detect(trace, &findings, &error), GV_OK);
    if (gv_fix_plan_make(&trace, 1, &findings, GV_FIX_BUDGET, &plan, &error) != GV_OK)
        fail_msg("%s %d: %s", what, number, error.text);
    size_t edges = 0, before = count_pairs(trace);
    assert_int_equal(plan.conflict_count, before);
    for (size_t g = 0; g < plan.group_count; g++) {
        const gv_fix_group *group = &plan.groups[g];
        if (group->refusal)
            fail_msg("%s %d: %s", what, number, group->refusal);
        assert_int_equal(group->at_least, group->edge_count);
        assert_true(group->cost.before <= group->cost.after && group->cost.after <= group->cost.serial);
        assert_true(group->cost.before <= group->cost.side_streams && group->cost.side_streams <= group->cost.serial);
        for (size_t e = 0; e < group->edge_count; e++) {
            assert_true(group->edges[e].conflict_count > 0);
            assert_true(group->edges[e].after <= group->cost.after);
            assert_false(group->edges[e].reversed);
        }
        edges += group->edge_count;
    }
    if (before && pairs_with(trace, &plan, SIZE_MAX) != 0)
        fail_msg("%s %d: races are left", what, number);
    // A pair that an edge orders for certain may, without it, be left to a wait that was not observed.
    size_t left = undecided;
    for (size_t e = 0; e < edges; e++)
        if (pairs_with(trace, &plan, e) == 0 && undecided <= left)
            fail_msg("%s %d: edge %zu is not needed", what, number, e);
    assert_int_equal(count_pairs(trace), before);

    gv_fix_file file;
    assert_int_equal(gv_fix_plan_file(&plan, &file, &error), GV_OK);
    assert_int_equal(file.graph_count, plan.group_count);
    assert_int_equal(gv_fix_file_write(&file, scratch("plan.json"), &error), GV_OK);
    gv_fix_file_free(&file);
    if (gv_fix_file_read(scratch("plan.json"), &file, &error) != GV_OK)
        fail_msg("%s", error.text);
    assert_int_equal(file.graph_count, plan.group_count);
    gv_fix_file_free(&file);
    gv_fix_plan_free(&plan);
    gv_findings_free(&findings);
    return edges;
}

static void check_kind(const char *what, recipe how)
{
    size_t edges = 0;
    for (int i = 0; i < TRACES; i++) {
        seed = 0x9e3779b97f4a7c15ull * (uint64_t)(i + 1) + (how.programmatic + 2 * how.child + 4 * how.shuffled);
        gv_trace *trace = random_trace(how);
        edges += check_trace(trace, what, i);
        gv_trace_free(trace);
    }
    print_message("%s: %zu edges in %d traces\n", what, edges, TRACES);
    assert_true(edges > TRACES);
}

static void test_plain(void **state)
{
    check_kind("plain", (recipe){0});
}

static void test_programmatic(void **state)
{
    check_kind("programmatic", (recipe){.programmatic = true});
}

static void test_child(void **state)
{
    check_kind("child", (recipe){.child = true, .shuffled = true});
}

static void test_all(void **state)
{
    check_kind("all", (recipe){.programmatic = true, .child = true, .shuffled = true});
}

static void test_memory(void **state)
{
    seed = 12345;
    gv_trace *trace = random_trace((recipe){.programmatic = true, .child = true});
    gv_findings findings = {0};
    gv_error error = {0};
    assert_int_equal(gv_detect(trace, &findings, &error), GV_OK);
    size_t before = count_pairs(trace);
    assert_true(before > 0);
    for (long n = 0;; n++) {
        gv_fix_plan plan;
        gv_fix_file file = {0};
        gv_fix_trial *trial = NULL;
        gv_memory_fail_after(n);
        gv_status status = gv_fix_plan_make(&trace, 1, &findings, 1000, &plan, &error);
        if (!status)
            status = gv_fix_apply(&plan, SIZE_MAX, &trial, &error);
        gv_fix_undo(trial);
        if (!status)
            status = gv_fix_plan_file(&plan, &file, &error);
        gv_memory_fail_after(-1);
        gv_fix_file_free(&file);
        gv_fix_plan_free(&plan);
        if (status == GV_OK)
            break;
        assert_int_equal(status, GV_ERR_MEMORY);
    }
    assert_int_equal(count_pairs(trace), before);
    gv_findings_free(&findings);
    gv_trace_free(trace);
    remove_scratch();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain), cmocka_unit_test(test_programmatic), cmocka_unit_test(test_child),
        cmocka_unit_test(test_all),   cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
