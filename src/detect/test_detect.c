// The detectors on whole traces: what becomes a finding, of which graph and launch, in which order, and what is
// reported as not seen.
#include "base/memory.h"
#include "detect/detect.h"
#include "detect/flatten.h"
#include "trace/load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 32, MOST_BYTES = 4096 };

// A trace in the making. Graph ids count from 1; a graph's nodes are kernels unless a test changes them.
typedef struct builder {
    gv_trace trace;
    gv_graph graphs[MOST];
    gv_node nodes[MOST][MOST];
    gv_edge edges[MOST][MOST];
    gv_access accesses[4 * MOST];
    gv_armed armed[MOST];
    gv_note notes[MOST];
    gv_operation operations[MOST];
    gv_exec_version versions[MOST];
    uint8_t bytes[MOST_BYTES];
    size_t used;
    gv_findings findings;
} builder;

static builder *begin(void)
{
    builder *b = calloc(1, sizeof *b);
    b->trace = (gv_trace){.graphs = b->graphs,
                          .graph_count = 1,
                          .accesses = b->accesses,
                          .armed = b->armed,
                          .notes = b->notes,
                          .operations = b->operations,
                          .exec_versions = b->versions,
                          .ended = true};
    return b;
}

static uint64_t add_graph(builder *b, size_t nodes)
{
    uint64_t id = b->trace.graph_count++;
    b->graphs[id] =
        (gv_graph){.id = id, .nodes = b->nodes[id], .node_count = nodes, .edges = b->edges[id], .whole = true};
    for (size_t n = 0; n < nodes; n++)
        b->nodes[id][n] = (gv_node){.kind = GV_NODE_KERNEL, .order = n + 1};
    return id;
}

static void connect(builder *b, uint64_t graph, uint32_t from, uint32_t to)
{
    b->edges[graph][b->graphs[graph].edge_count++] = (gv_edge){.from = from, .to = to};
}

static void set_child(builder *b, uint64_t graph, uint32_t node, uint64_t child)
{
    b->nodes[graph][node].kind = GV_NODE_CHILD;
    b->nodes[graph][node].child = child;
    b->graphs[child].parent = graph;
    b->graphs[child].parent_node = node;
}

// Begins an armed launch; accesses added next belong to it.
static gv_armed *arm(builder *b, uint64_t launch, uint64_t graph)
{
    gv_armed *armed = &b->armed[b->trace.armed_count++];
    *armed = (gv_armed){
        .launch = launch, .exec = graph, .graph = graph, .reason = "", .first_access = b->trace.access_count};
    return armed;
}

static gv_bytes encode(builder *b, uint64_t start, uint64_t end)
{
    if (start == end)
        return (gv_bytes){0};
    gv_range range = {start, end};
    gv_bytes encoded = {b->bytes + b->used, gv_ranges_encode(&range, 1, b->bytes + b->used)};
    b->used += encoded.length;
    assert_true(b->used < MOST_BYTES - 40);
    return encoded;
}

// Adds an access record to the launch armed last: a read of one range and a write of another, either may be empty.
static gv_access *record(builder *b, uint64_t graph, uint32_t node, gv_range reads, gv_range writes)
{
    gv_armed *armed = &b->armed[b->trace.armed_count - 1];
    gv_access *row = &b->accesses[b->trace.access_count++];
    *row = (gv_access){.launch = armed->launch,
                       .graph = graph,
                       .node = node,
                       .source = GV_SOURCE_SOFT,
                       .reads = encode(b, reads.start, reads.end),
                       .writes = encode(b, writes.start, writes.end)};
    armed->access_count++;
    return row;
}

static const gv_range NOTHING = {0, 0}, BLOCK = {0x1000, 0x1100}, OTHER = {0x9000, 0x9010};

static void note(builder *b, gv_note row)
{
    b->notes[b->trace.note_count++] = row;
}

static void launch(builder *b, uint64_t sequence, uint64_t exec)
{
    b->operations[b->trace.operation_count++] =
        (gv_operation){.sequence = sequence, .kind = GV_OP_GRAPH_LAUNCH, .object = exec};
}

static void run_exec(builder *b, uint64_t exec, uint64_t graph, uint64_t operation)
{
    b->versions[b->trace.exec_version_count++] =
        (gv_exec_version){.exec = exec, .graph = graph, .operation = operation};
}

static size_t detect(builder *b)
{
    gv_error error = {0};
    gv_findings_free(&b->findings);
    if (gv_detect(&b->trace, &b->findings, &error) != GV_OK)
        fail_msg("%s", error.text);
    return b->findings.count;
}

static void finish(builder *b)
{
    gv_findings_free(&b->findings);
    free(b);
}

// A graph of two unordered nodes, the first of which writes what the second reads, in one armed launch.
static builder *simple_race(void)
{
    builder *b = begin();
    uint64_t graph = add_graph(b, 2);
    arm(b, 100, graph);
    record(b, graph, 0, NOTHING, BLOCK);
    record(b, graph, 1, BLOCK, OTHER);
    return b;
}

static const gv_finding *only_finding(builder *b)
{
    assert_int_equal(detect(b), 1);
    return &b->findings.items[0];
}

// ---- Races ------------------------------------------------------------------------------------------------------

static void test_a_race_becomes_a_finding(void **state)
{
    builder *b = simple_race();
    // Two lives of the block: the second began when the launch had been.
    gv_allocation allocations[3] = {{0},
                                    {.address = 0x1000, .size = 0x1000, .died = 150},
                                    {.address = 0x1000, .size = 0x1000, .born = 160, .died = UINT64_MAX}};
    struct gv_trace_storage storage = {0};
    b->trace.allocations = allocations;
    b->trace.allocation_count = 3;
    b->trace.storage = &storage;
    assert_int_equal(gv_life_index_build(&storage.lives, &b->trace, NULL), GV_OK);
    const gv_finding *finding = only_finding(b);
    assert_int_equal(finding->id, GV_FINDING_RACE_RAW);
    assert_int_equal(finding->confidence, GV_CERTAIN);
    assert_ptr_equal(finding->trace, &b->trace);
    assert_int_equal(finding->graph, 1);
    assert_int_equal(finding->launch, 100);
    assert_int_equal(finding->affected, 1);
    assert_int_equal(finding->pair_count, 1);
    assert_int_equal(finding->pairs[0].first.node, 0);
    assert_int_equal(finding->pairs[0].first.graph, 1);
    assert_int_equal(finding->pairs[0].second.node, 1);
    assert_int_equal(finding->pairs[0].bytes, 0x100);
    assert_int_equal(finding->edge_from, 0);
    assert_int_equal(finding->edge_to, 1);
    assert_int_equal(finding->allocation, 1);
    assert_null(finding->reason);
    assert_int_equal(gv_findings_races(&b->findings), 1);
    gv_free(storage.lives.lives);
    gv_free(storage.lives.bounds);
    finish(b);
}

static void test_an_edge_leaves_nothing_to_report(void **state)
{
    builder *b = simple_race();
    connect(b, 1, 0, 1);
    assert_int_equal(detect(b), 0);
    finish(b);
}

// How a side of the race below is known. Three tensors of a page are tight extents; a pool is a loose one.
enum known { SEEN, SEEN_IN_PART, TENSOR, POOL };

static void know(gv_access *row, enum known how)
{
    if (how == SEEN_IN_PART)
        row->precision = GV_PRECISION_INCOMPLETE;
    if (how == TENSOR || how == POOL)
        row->precision = GV_PRECISION_EXTENT;
    if (how == TENSOR || how == POOL)
        row->source = how == TENSOR ? GV_SOURCE_TENSOR_MAP : GV_SOURCE_REACHED;
}

static void test_extents_make_races_only_with_writes_that_happened(void **state)
{
    enum verdict { CERTAIN, LIKELY, POSSIBLE, UNDECIDED };
    static const struct {
        enum known writer, reader;
        enum verdict verdict;
    } cases[] = {
        {SEEN, SEEN, CERTAIN},          {SEEN, TENSOR, LIKELY},
        {SEEN, POOL, UNDECIDED},        {TENSOR, SEEN, UNDECIDED},
        {POOL, SEEN, UNDECIDED},        {TENSOR, TENSOR, UNDECIDED},
        {TENSOR, POOL, UNDECIDED},      {POOL, POOL, UNDECIDED},
        {SEEN, SEEN_IN_PART, POSSIBLE}, {SEEN_IN_PART, TENSOR, POSSIBLE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        builder *b = simple_race();
        know(&b->accesses[0], cases[i].writer);
        know(&b->accesses[1], cases[i].reader);
        detect(b);
        const gv_finding *finding = &b->findings.items[0];
        if (cases[i].verdict == UNDECIDED) {
            assert_int_equal(gv_findings_races(&b->findings), 0);
            assert_int_equal(b->findings.count, 1);
            assert_int_equal(finding->id, GV_FINDING_INCOMPLETE);
            assert_int_equal(finding->incomplete, GV_INCOMPLETE_OVERLAP);
            assert_int_equal(finding->affected, 1);
            assert_int_equal(finding->edge_from, 0);
            assert_int_equal(finding->edge_to, 1);
            assert_non_null(strstr(finding->reason, "nodes 0 and 1"));
        } else {
            assert_int_equal(finding->id, GV_FINDING_RACE_RAW);
            assert_int_equal(finding->confidence, cases[i].verdict);
            assert_int_equal(gv_findings_races(&b->findings), 1);
        }
        // An edge settles each of them.
        connect(b, 1, 0, 1);
        detect(b);
        for (size_t f = 0; f < b->findings.count; f++)
            assert_int_equal(b->findings.items[f].incomplete, GV_INCOMPLETE_NODE);
        finish(b);
    }
}

// Two kernels of which only extents are known, and that may both write: of one weight matrix, of one pool.
static void test_kernels_that_share_an_extent_are_undecided(void **state)
{
    for (enum known how = TENSOR; how <= POOL; how++) {
        builder *b = begin();
        uint64_t graph = add_graph(b, 2);
        arm(b, 100, graph);
        for (uint32_t n = 0; n < 2; n++) {
            know(record(b, graph, n, BLOCK, BLOCK), how);
            // Each has written a block of its own.
            record(b, graph, n, NOTHING, (gv_range){0x2000 + 0x100 * n, 0x2080 + 0x100 * n})->source =
                GV_SOURCE_COMPARED;
        }
        const gv_finding *finding = only_finding(b);
        assert_int_equal(finding->incomplete, GV_INCOMPLETE_OVERLAP);
        // Extents that are only read do not meet.
        b->accesses[0].writes = b->accesses[2].writes = (gv_bytes){0};
        assert_int_equal(detect(b), 0);
        // What both have written is a race, whatever else they may do.
        record(b, graph, 1, NOTHING, (gv_range){0x2000, 0x2010});
        finding = only_finding(b);
        assert_int_equal(finding->id, GV_FINDING_RACE_WAW);
        assert_int_equal(finding->confidence, GV_CERTAIN);
        assert_int_equal(finding->pairs[0].bytes, 0x10);
        finish(b);
    }
}

// A write that covers half of one of the tensors is a race; one to a few rows of a large cache is not.
static void test_a_small_part_of_a_tensor_is_undecided(void **state)
{
    static const struct {
        gv_range written;
        bool race;
    } cases[] = {
        {{0x10000, 0x10800}, true},  // half of the large tensor
        {{0x10000, 0x107ff}, false}, // one byte less
        {{0x20000, 0x20010}, true},  // all of a small one
        {{0x1fff8, 0x20008}, true},  // half of it, and bytes that nobody else has
        {{0x20000, 0x20007}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        builder *b = begin();
        uint64_t graph = add_graph(b, 2);
        arm(b, 100, graph);
        record(b, graph, 0, NOTHING, cases[i].written);
        know(record(b, graph, 1, (gv_range){0x10000, 0x11000}, NOTHING), TENSOR);
        know(record(b, graph, 1, (gv_range){0x20000, 0x20010}, NOTHING), TENSOR);
        const gv_finding *finding = only_finding(b);
        assert_int_equal(finding->id == GV_FINDING_INCOMPLETE, !cases[i].race);
        if (cases[i].race)
            assert_int_equal(finding->confidence, GV_LIKELY);
        else
            assert_int_equal(finding->incomplete, GV_INCOMPLETE_OVERLAP);
        finish(b);
    }
}

// A comparison shows that bytes were changed. Whether by a plain write matters only beside atomic operations.
static void test_changes_that_may_be_atomic(void **state)
{
    enum other { READS, WRITES, UPDATES, CHANGES };
    for (enum other other = READS; other <= CHANGES; other++) {
        builder *b = begin();
        uint64_t graph = add_graph(b, 2);
        arm(b, 100, graph);
        record(b, graph, 0, NOTHING, BLOCK)->source = GV_SOURCE_CHANGED;
        gv_access *row = record(b, graph, 1, other == READS ? BLOCK : NOTHING, other == READS ? NOTHING : BLOCK);
        if (other == CHANGES)
            row->source = GV_SOURCE_CHANGED;
        if (other == UPDATES) {
            row->atomics = row->writes;
            row->writes = (gv_bytes){0};
        }
        const gv_finding *finding = only_finding(b);
        if (other == READS || other == WRITES) {
            assert_int_equal(finding->id, other == READS ? GV_FINDING_RACE_RAW : GV_FINDING_RACE_WAW);
            assert_int_equal(finding->confidence, GV_CERTAIN);
            assert_true(finding->pairs[0].first.writes);
            assert_false(finding->pairs[0].first.atomic);
        } else {
            assert_int_equal(finding->incomplete, GV_INCOMPLETE_OVERLAP);
        }
        finish(b);
    }
}

// Two split kernels that add into one tensor with atomic operations, seen by comparison, through maps.
static void test_atomic_updates_through_maps_do_not_race(void **state)
{
    builder *b = begin();
    uint64_t graph = add_graph(b, 2);
    arm(b, 100, graph);
    for (uint32_t n = 0; n < 2; n++) {
        gv_access *updates = record(b, graph, n, NOTHING, BLOCK);
        updates->atomics = updates->writes;
        updates->writes = (gv_bytes){0};
        know(record(b, graph, n, BLOCK, BLOCK), TENSOR);
    }
    assert_int_equal(only_finding(b)->incomplete, GV_INCOMPLETE_OVERLAP);
    // With the maps known to be read by neither, nothing is left to decide.
    b->accesses[1].reads = b->accesses[1].writes = b->accesses[3].reads = b->accesses[3].writes = (gv_bytes){0};
    assert_int_equal(detect(b), 0);
    finish(b);
}

static void test_several_records_of_a_node_count_together(void **state)
{
    // Two records of one node whose reads overlap each other.
    builder *b = begin();
    uint64_t graph = add_graph(b, 2);
    arm(b, 100, graph);
    record(b, graph, 0, NOTHING, (gv_range){0x1000, 0x1100});
    record(b, graph, 1, (gv_range){0x1000, 0x1020}, NOTHING);
    gv_access *second = record(b, graph, 1, (gv_range){0x1010, 0x1030}, NOTHING);
    const gv_finding *finding = only_finding(b);
    assert_int_equal(finding->pairs[0].bytes, 0x30);
    assert_int_equal(finding->pairs[0].ranges.count, 1);
    assert_int_equal(finding->confidence, GV_CERTAIN);
    // What happened makes the race; what may have happened beside it adds no bytes and takes no confidence.
    know(second, TENSOR);
    finding = only_finding(b);
    assert_int_equal(finding->pairs[0].bytes, 0x20);
    assert_int_equal(finding->confidence, GV_CERTAIN);
    finish(b);
}

static void test_launches_of_one_graph_show_a_pair_once(void **state)
{
    builder *b = simple_race();
    arm(b, 200, 1);
    record(b, 1, 0, NOTHING, BLOCK);
    record(b, 1, 1, BLOCK, OTHER);
    const gv_finding *finding = only_finding(b);
    assert_int_equal(finding->launch, 100);
    assert_int_equal(finding->affected, 2);
    // A third launch shows the same pair on other bytes: still one, with the bytes of the first launch.
    arm(b, 300, 1);
    record(b, 1, 0, NOTHING, OTHER);
    record(b, 1, 1, OTHER, NOTHING);
    finding = only_finding(b);
    assert_int_equal(finding->affected, 3);
    assert_int_equal(finding->pairs[0].bytes, 0x100);
    finish(b);
}

static void test_a_pair_that_only_a_later_launch_shows(void **state)
{
    builder *b = begin();
    uint64_t graph = add_graph(b, 3);
    arm(b, 100, graph);
    record(b, graph, 0, NOTHING, BLOCK);
    record(b, graph, 1, BLOCK, NOTHING);
    record(b, graph, 2, NOTHING, NOTHING);
    arm(b, 200, graph);
    record(b, graph, 0, NOTHING, OTHER);
    record(b, graph, 1, NOTHING, NOTHING);
    record(b, graph, 2, OTHER, NOTHING);
    assert_int_equal(detect(b), 2);
    assert_int_equal(b->findings.items[0].launch, 100);
    assert_int_equal(b->findings.items[1].launch, 200);
    assert_int_equal(b->findings.items[1].pairs[0].second.node, 2);
    finish(b);
}

static void test_graphs_of_one_structure_show_a_pair_once(void **state)
{
    for (int same = 0; same < 2; same++) {
        builder *b = simple_race();
        uint64_t again = add_graph(b, 2);
        if (!same)
            b->nodes[again][1].function = 5;
        arm(b, 200, again);
        record(b, again, 0, NOTHING, OTHER);
        record(b, again, 1, OTHER, NOTHING);
        assert_int_equal(detect(b), same ? 1 : 2);
        assert_int_equal(b->findings.items[0].graph, 1);
        assert_int_equal(b->findings.items[0].affected, same ? 2 : 1);
        finish(b);
    }
}

static void test_a_refused_launch_shows_no_race_and_a_failed_one_does(void **state)
{
    builder *b = simple_race();
    b->armed[0].status = GV_ARMED_REFUSED;
    b->armed[0].reason = "it allocates memory";
    const gv_finding *finding = only_finding(b);
    assert_int_equal(finding->id, GV_FINDING_INCOMPLETE);
    assert_int_equal(finding->incomplete, GV_INCOMPLETE_GRAPH);
    assert_string_equal(finding->reason, "it allocates memory");
    b->armed[0].status = GV_ARMED_FAILED;
    assert_int_equal(detect(b), 2);
    assert_int_equal(b->findings.items[0].id, GV_FINDING_RACE_RAW);
    assert_int_equal(b->findings.items[1].incomplete, GV_INCOMPLETE_GRAPH);
    finish(b);
}

static void test_programmatic_pairs_are_incomplete(void **state)
{
    builder *b = simple_race();
    b->edges[1][b->graphs[1].edge_count++] = (gv_edge){.from = 0, .to = 1, .from_port = 1, .type = 1};
    const gv_finding *finding = only_finding(b);
    assert_int_equal(finding->id, GV_FINDING_INCOMPLETE);
    assert_int_equal(finding->incomplete, GV_INCOMPLETE_PROGRAMMATIC);
    assert_int_equal(finding->affected, 1);
    assert_int_equal(finding->node, 1);
    assert_int_equal(finding->edge_to, 1);
    assert_int_equal(gv_findings_races(&b->findings), 0);
    finish(b);
}

// A simple race with a programmatic edge from the writer to the reader, whose wait was observed in this way.
static builder *observed(enum gv_grid_wait wait)
{
    builder *b = simple_race();
    b->edges[1][b->graphs[1].edge_count++] = (gv_edge){.from = 0, .to = 1, .from_port = 1, .type = 1};
    b->accesses[1].wait = wait;
    return b;
}

static void test_what_was_observed_decides_programmatic_pairs(void **state)
{
    builder *b = observed(GV_GRID_WAIT_DONE);
    assert_int_equal(detect(b), 0);
    b->accesses[1].early_reads = b->accesses[1].reads;
    const gv_finding *finding = only_finding(b);
    assert_int_equal(finding->id, GV_FINDING_RACE_RAW);
    assert_int_equal(finding->pairs[0].second.wait, GV_SIDE_BEFORE_WAIT);
    assert_true(finding->path);
    finish(b);
    b = observed(GV_GRID_WAIT_NONE);
    finding = only_finding(b);
    assert_int_equal(finding->id, GV_FINDING_RACE_RAW);
    assert_int_equal(finding->pairs[0].second.wait, GV_SIDE_NO_WAIT);
    finish(b);
}

static void test_what_was_not_observed_says_why(void **state)
{
    builder *b = observed(GV_GRID_WAIT_UNKNOWN);
    b->accesses[1].wait_reason = "it did not begin beside the kernel in front";
    assert_non_null(strstr(only_finding(b)->reason, ": it did not begin beside the kernel in front"));
    finish(b);
}

// A kernel that waits in one launch and not in another, on account of its data, is not decided.
static void test_launches_that_differ_are_undecided(void **state)
{
    builder *b = observed(GV_GRID_WAIT_DONE);
    arm(b, 200, 1);
    record(b, 1, 0, NOTHING, BLOCK);
    record(b, 1, 1, BLOCK, NOTHING)->wait = GV_GRID_WAIT_NONE;
    assert_int_equal(only_finding(b)->incomplete, GV_INCOMPLETE_PROGRAMMATIC);
    finish(b);
}

static void test_order_of_findings(void **state)
{
    builder *b = begin();
    uint64_t graph = add_graph(b, 4);
    arm(b, 100, graph);
    connect(b, graph, 0, 2);
    connect(b, graph, 1, 3);
    record(b, graph, 0, NOTHING, OTHER);
    record(b, graph, 1, OTHER, NOTHING);
    record(b, graph, 2, NOTHING, BLOCK);
    record(b, graph, 3, BLOCK, NOTHING)->precision = GV_PRECISION_INCOMPLETE;
    b->trace.truncation = "cut";
    // The two pairs have one cause: 2 before 1 would order both.
    assert_int_equal(detect(b), 3);
    assert_int_equal(b->findings.items[0].graph, 0);
    assert_int_equal(b->findings.items[0].incomplete, GV_INCOMPLETE_TRACE);
    assert_int_equal(b->findings.items[1].pair_count, 2);
    assert_int_equal(b->findings.items[1].edge_from, 2);
    assert_int_equal(b->findings.items[1].edge_to, 1);
    // The certain pair leads, though the other has more bytes.
    assert_int_equal(b->findings.items[1].pairs[0].first.node, 0);
    assert_int_equal(b->findings.items[1].confidence, GV_CERTAIN);
    assert_int_equal(b->findings.items[2].incomplete, GV_INCOMPLETE_NODE);
    // A second run appends the same again, and races of other traces stay where they are.
    gv_error error = {0};
    assert_int_equal(gv_detect(&b->trace, &b->findings, &error), GV_OK);
    assert_int_equal(b->findings.count, 6);
    assert_int_equal(b->findings.items[4].pair_count, 2);
    finish(b);
}

// ---- Child graphs -----------------------------------------------------------------------------------------------

// Graph 1: kernel 0, child graph at node 1, kernel 2, joined in a row. Graph 2, the child: kernels 0 -> 1, 2 alone.
static builder *with_child(void)
{
    builder *b = begin();
    uint64_t top = add_graph(b, 3), child = add_graph(b, 3);
    set_child(b, top, 1, child);
    connect(b, top, 0, 1);
    connect(b, top, 1, 2);
    connect(b, child, 0, 1);
    arm(b, 100, top);
    return b;
}

static void record_rest(builder *b, uint64_t graph, uint32_t node)
{
    record(b, graph, node, NOTHING, NOTHING);
}

static void test_what_surrounds_a_child_graph_is_ordered_with_all_of_it(void **state)
{
    builder *b = with_child();
    record(b, 1, 0, NOTHING, BLOCK);
    record(b, 1, 2, BLOCK, BLOCK);
    record(b, 2, 0, BLOCK, NOTHING);
    record(b, 2, 1, BLOCK, NOTHING);
    record(b, 2, 2, BLOCK, NOTHING);
    assert_int_equal(detect(b), 0);
    finish(b);
}

static void test_a_race_within_a_child_graph_is_a_finding_of_the_child(void **state)
{
    builder *b = with_child();
    record_rest(b, 1, 0);
    record_rest(b, 1, 2);
    record_rest(b, 2, 0);
    record(b, 2, 1, NOTHING, BLOCK);
    record(b, 2, 2, BLOCK, NOTHING);
    const gv_finding *finding = only_finding(b);
    assert_int_equal(finding->graph, 2);
    assert_int_equal(finding->pairs[0].first.graph, 2);
    assert_int_equal(finding->pairs[0].first.node, 1);
    assert_int_equal(finding->edge_from, 1);
    assert_int_equal(finding->edge_to, 2);
    finish(b);
}

static void test_a_race_across_a_child_graph_asks_for_an_edge_beside_it(void **state)
{
    builder *b = with_child();
    b->graphs[1].edge_count = 1; // only 0 -> child: node 2 stands alone
    record_rest(b, 1, 0);
    record(b, 1, 2, BLOCK, NOTHING);
    record_rest(b, 2, 0);
    record(b, 2, 1, NOTHING, BLOCK);
    record_rest(b, 2, 2);
    const gv_finding *finding = only_finding(b);
    // The child graph was made second, at its node, so that its kernel comes before node 2.
    assert_int_equal(finding->graph, 1);
    assert_int_equal(finding->pairs[0].first.graph, 2);
    assert_int_equal(finding->pairs[0].first.node, 1);
    assert_int_equal(finding->pairs[0].second.graph, 1);
    assert_int_equal(finding->pairs[0].second.node, 2);
    assert_int_equal(finding->edge_from, 1);
    assert_int_equal(finding->edge_to, 2);
    finish(b);
}

static void test_nested_and_empty_child_graphs_pass_order_on(void **state)
{
    builder *b = begin();
    uint64_t top = add_graph(b, 3), middle = add_graph(b, 1), inner = add_graph(b, 0);
    set_child(b, top, 1, middle);
    set_child(b, middle, 0, inner);
    connect(b, top, 0, 1);
    connect(b, top, 1, 2);
    arm(b, 100, top);
    record(b, top, 0, NOTHING, BLOCK);
    record(b, top, 2, BLOCK, NOTHING);
    assert_int_equal(detect(b), 0);
    b->graphs[top].edge_count = 1;
    assert_int_equal(detect(b), 1);
    finish(b);
}

static void test_one_snapshot_run_by_two_nodes_is_two_instances(void **state)
{
    builder *b = begin();
    uint64_t top = add_graph(b, 2), child = add_graph(b, 1);
    set_child(b, top, 0, child);
    set_child(b, top, 1, child);
    arm(b, 100, top);
    record(b, child, 0, NOTHING, BLOCK);
    const gv_finding *finding = only_finding(b);
    assert_int_equal(finding->id, GV_FINDING_RACE_WAW);
    assert_int_equal(finding->graph, top);
    assert_int_equal(finding->edge_from, 0);
    assert_int_equal(finding->edge_to, 1);
    finish(b);
}

static void test_graphs_that_cannot_be_laid_out_are_incomplete(void **state)
{
    builder *b = with_child();
    set_child(b, 2, 0, 1); // a cycle of containment
    record(b, 1, 0, NOTHING, BLOCK);
    record(b, 1, 2, BLOCK, NOTHING);
    const gv_finding *finding = only_finding(b);
    assert_int_equal(finding->incomplete, GV_INCOMPLETE_GRAPH);
    assert_non_null(strstr(finding->reason, "contains itself"));
    finish(b);

    b = simple_race();
    b->graphs[1].whole = false;
    finding = only_finding(b);
    assert_int_equal(finding->incomplete, GV_INCOMPLETE_GRAPH);
    assert_non_null(strstr(finding->reason, "not in the trace"));
    finish(b);

    b = simple_race();
    connect(b, 1, 0, 1);
    connect(b, 1, 1, 0);
    finding = only_finding(b);
    assert_int_equal(finding->incomplete, GV_INCOMPLETE_GRAPH);
    assert_non_null(strstr(finding->reason, "cycle"));
    finish(b);
}

static void test_structure(void **state)
{
    builder *b = with_child();
    gv_flat_graph flat, changed;
    assert_int_equal(gv_flatten(&b->trace, 1, &flat, NULL), GV_OK);
    // Three nodes above, three in the child and one for its end.
    assert_int_equal(flat.node_count, 7);
    assert_int_equal(flat.instance_count, 2);
    assert_true(gv_flat_same_structure(&b->trace, &flat, &flat));
    b->graphs[2].edges[0].to = 2;
    assert_int_equal(gv_flatten(&b->trace, 1, &changed, NULL), GV_OK);
    assert_false(gv_flat_same_structure(&b->trace, &flat, &changed));
    gv_flat_graph_free(&flat);
    gv_flat_graph_free(&changed);
    finish(b);
}

// ---- What was not seen ------------------------------------------------------------------------------------------

static void assert_incomplete(const gv_finding *finding, enum gv_incomplete_kind kind, uint64_t graph, uint64_t node,
                              size_t affected, const char *part_of_reason)
{
    assert_int_equal(finding->id, GV_FINDING_INCOMPLETE);
    assert_int_equal(finding->incomplete, kind);
    assert_int_equal(finding->graph, graph);
    assert_int_equal(finding->node, node);
    assert_int_equal(finding->affected, affected);
    if (!strstr(finding->reason, part_of_reason))
        fail_msg("\"%s\" does not contain \"%s\"", finding->reason, part_of_reason);
}

static void test_nodes_seen_in_part(void **state)
{
    builder *b = begin();
    uint64_t graph = add_graph(b, 3);
    arm(b, 100, graph);
    record(b, graph, 0, NOTHING, NOTHING);
    gv_access *row = record(b, graph, 1, NOTHING, NOTHING);
    row->precision = GV_PRECISION_INCOMPLETE;
    row->reason = "tensor copies";
    record(b, graph, 2, NOTHING, NOTHING)->precision = GV_PRECISION_INCOMPLETE;
    // A second launch says the same of node 1: once is enough.
    arm(b, 200, graph);
    for (uint32_t n = 0; n < 3; n++)
        record(b, graph, n, NOTHING, NOTHING);
    b->accesses[4].precision = GV_PRECISION_INCOMPLETE;
    b->accesses[4].reason = "tensor copies";
    assert_int_equal(detect(b), 2);
    assert_incomplete(&b->findings.items[0], GV_INCOMPLETE_NODE, graph, 2, 1, "tensor copies");
    assert_incomplete(&b->findings.items[1], GV_INCOMPLETE_NODE, graph, 3, 1, "not all");
    finish(b);
}

static void test_nodes_without_a_record(void **state)
{
    static const struct {
        int kind;
        const char *reason; // NULL: no gap
    } cases[] = {
        {GV_NODE_KERNEL, "no accesses"},
        {GV_NODE_MEMCPY, "no accesses"},
        {GV_NODE_MEMSET, "no accesses"},
        {GV_NODE_BATCH_MEMOP, "no accesses"},
        {GV_NODE_HOST, "host function"},
        {GV_NODE_CONDITIONAL, "conditional"},
        {GV_NODE_EMPTY, NULL},
        {GV_NODE_EVENT_WAIT, NULL},
        {GV_NODE_EVENT_RECORD, NULL},
        {GV_NODE_ALLOC, NULL},
        {GV_NODE_FREE, NULL},
        {GV_NODE_SEMAPHORE_WAIT, NULL},
        {2147483647, "no accesses"}, // a kind of a later version
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        builder *b = begin();
        uint64_t graph = add_graph(b, 2);
        b->nodes[graph][1].kind = (enum gv_node_kind)cases[i].kind;
        arm(b, 100, graph);
        record(b, graph, 0, NOTHING, NOTHING);
        assert_int_equal(detect(b), cases[i].reason != NULL);
        if (cases[i].reason)
            assert_incomplete(&b->findings.items[0], GV_INCOMPLETE_NODE, graph, 2, 1, cases[i].reason);
        // A disabled node runs as an empty one.
        b->nodes[graph][1].flags = GV_NODE_DISABLED;
        assert_int_equal(detect(b), 0);
        finish(b);
    }
}

static void test_nodes_of_child_graphs_without_a_record(void **state)
{
    builder *b = with_child();
    record_rest(b, 1, 0);
    record_rest(b, 1, 2);
    record_rest(b, 2, 0);
    record_rest(b, 2, 2);
    const gv_finding *finding = only_finding(b);
    assert_incomplete(finding, GV_INCOMPLETE_NODE, 2, 2, 1, "no accesses");
    finish(b);
}

static void test_records_of_strangers(void **state)
{
    builder *b = simple_race();
    connect(b, 1, 0, 1);
    uint64_t other = add_graph(b, 1);
    record(b, other, 0, NOTHING, BLOCK);
    assert_incomplete(only_finding(b), GV_INCOMPLETE_GRAPH, 1, 0, 1, "not part of the launched");
    finish(b);
}

static void test_launches_that_broke_off(void **state)
{
    builder *b = begin();
    uint64_t graph = add_graph(b, 3);
    gv_armed *armed = arm(b, 100, graph);
    armed->status = GV_ARMED_FAILED;
    armed->reason = "node 1 made no progress";
    armed->node = 2;
    record(b, graph, 0, NOTHING, NOTHING);
    // Nodes behind the break are not listed one by one.
    assert_incomplete(only_finding(b), GV_INCOMPLETE_GRAPH, graph, 2, 1, "no progress");
    arm(b, 200, graph);
    b->armed[1].status = GV_ARMED_FAILED;
    b->armed[1].reason = "node 1 made no progress";
    b->armed[1].node = 2;
    assert_incomplete(only_finding(b), GV_INCOMPLETE_GRAPH, graph, 2, 2, "no progress");
    // The recorder's note of the same thing adds nothing.
    note(b, (gv_note){.severity = GV_NOTE_FAILURE, .graph = graph, .text = "node 1 made no progress"});
    b->armed[0].node = b->armed[1].node = 0;
    assert_incomplete(only_finding(b), GV_INCOMPLETE_GRAPH, graph, 0, 2, "no progress");
    finish(b);
}

static void test_graphs_never_armed(void **state)
{
    builder *b = simple_race();
    connect(b, 1, 0, 1);
    uint64_t second = add_graph(b, 5), third = add_graph(b, 5), unused = add_graph(b, 7);
    run_exec(b, 10, 1, 1);
    run_exec(b, 11, second, 2);
    run_exec(b, 12, unused, 3);
    launch(b, 100, 10); // armed
    launch(b, 110, 11);
    launch(b, 120, 11);
    const gv_finding *finding = only_finding(b);
    assert_incomplete(finding, GV_INCOMPLETE_NEVER_ARMED, second, 0, 2, "no launch");
    // The exec is updated to a graph of the same structure: one finding for both.
    run_exec(b, 11, third, 130);
    launch(b, 140, 11);
    assert_incomplete(only_finding(b), GV_INCOMPLETE_NEVER_ARMED, second, 0, 3, "1 other of its structure");
    assert_int_equal(only_finding(b)->alike, 1);
    // An exec nobody defined.
    launch(b, 150, 99);
    assert_int_equal(detect(b), 2);
    assert_incomplete(&b->findings.items[0], GV_INCOMPLETE_NEVER_ARMED, 0, 0, 1, "not in the trace");
    finish(b);
}

static void test_what_the_trace_and_its_notes_say(void **state)
{
    builder *b = begin();
    assert_int_equal(detect(b), 0);
    b->trace.ended = false;
    assert_incomplete(only_finding(b), GV_INCOMPLETE_TRACE, 0, 0, 1, "without closing");
    // Being cut says it all.
    b->trace.truncation = "cut at byte 7";
    assert_incomplete(only_finding(b), GV_INCOMPLETE_TRACE, 0, 0, 1, "cut at byte 7");
    b->trace.undefined = 3;
    assert_int_equal(detect(b), 2);
    b->trace.truncation = NULL;
    b->trace.undefined = 0;
    b->trace.ended = true;

    uint64_t graph = add_graph(b, 2);
    note(b, (gv_note){.severity = GV_NOTE_INFO, .graph = graph, .text = "by the way"});
    assert_int_equal(detect(b), 0);
    note(b, (gv_note){.severity = GV_NOTE_INCOMPLETE, .graph = graph, .node = 2, .text = "hidden"});
    assert_incomplete(only_finding(b), GV_INCOMPLETE_NODE, graph, 2, 1, "hidden");
    note(b, (gv_note){.severity = GV_NOTE_FAILURE, .text = "switched off"});
    assert_int_equal(detect(b), 2);
    assert_incomplete(&b->findings.items[0], GV_INCOMPLETE_TRACE, 0, 0, 1, "switched off");
    finish(b);
}

static void test_a_recorded_graph_that_is_missing(void **state)
{
    builder *b = begin();
    arm(b, 100, 0);
    assert_incomplete(only_finding(b), GV_INCOMPLETE_GRAPH, 0, 0, 1, "not in the trace");
    finish(b);
}

static void test_the_table(void **state)
{
    size_t count;
    const gv_detector *detectors = gv_detectors(&count);
    // The differential names the races that it finds reported.
    assert_int_equal(count, 7);
    assert_string_equal(detectors[0].name, "race");
    assert_string_equal(detectors[1].name, "diff");
    assert_string_equal(detectors[count - 1].name, "incomplete");
    assert_string_equal(gv_finding_id_name(GV_FINDING_RACE_WAR), "race-war");
    assert_string_equal(gv_confidence_name(GV_LIKELY), "likely");
}

static void test_memory_failures_are_reported(void **state)
{
    builder *b = with_child();
    b->graphs[1].edge_count = 1;
    record_rest(b, 1, 0);
    record(b, 1, 2, BLOCK, NOTHING);
    record(b, 1, 2, BLOCK, NOTHING);
    record(b, 2, 1, NOTHING, BLOCK);
    uint64_t other = add_graph(b, 2);
    run_exec(b, 5, other, 1);
    launch(b, 10, 5);
    b->trace.truncation = "cut";
    bool succeeded = false;
    for (long allowed = 0; !succeeded; allowed++) {
        gv_findings findings = {0};
        gv_error error = {0};
        gv_memory_fail_after(allowed);
        gv_status status = gv_detect(&b->trace, &findings, &error);
        gv_memory_fail_after(-1);
        succeeded = status == GV_OK;
        if (!succeeded)
            assert_int_equal(status, GV_ERR_MEMORY);
        gv_findings_free(&findings);
        assert_true(allowed < 1000);
    }
    finish(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_race_becomes_a_finding),
        cmocka_unit_test(test_an_edge_leaves_nothing_to_report),
        cmocka_unit_test(test_extents_make_races_only_with_writes_that_happened),
        cmocka_unit_test(test_kernels_that_share_an_extent_are_undecided),
        cmocka_unit_test(test_a_small_part_of_a_tensor_is_undecided),
        cmocka_unit_test(test_changes_that_may_be_atomic),
        cmocka_unit_test(test_atomic_updates_through_maps_do_not_race),
        cmocka_unit_test(test_several_records_of_a_node_count_together),
        cmocka_unit_test(test_launches_of_one_graph_show_a_pair_once),
        cmocka_unit_test(test_a_pair_that_only_a_later_launch_shows),
        cmocka_unit_test(test_graphs_of_one_structure_show_a_pair_once),
        cmocka_unit_test(test_a_refused_launch_shows_no_race_and_a_failed_one_does),
        cmocka_unit_test(test_programmatic_pairs_are_incomplete),
        cmocka_unit_test(test_what_was_observed_decides_programmatic_pairs),
        cmocka_unit_test(test_what_was_not_observed_says_why),
        cmocka_unit_test(test_launches_that_differ_are_undecided),
        cmocka_unit_test(test_order_of_findings),
        cmocka_unit_test(test_what_surrounds_a_child_graph_is_ordered_with_all_of_it),
        cmocka_unit_test(test_a_race_within_a_child_graph_is_a_finding_of_the_child),
        cmocka_unit_test(test_a_race_across_a_child_graph_asks_for_an_edge_beside_it),
        cmocka_unit_test(test_nested_and_empty_child_graphs_pass_order_on),
        cmocka_unit_test(test_one_snapshot_run_by_two_nodes_is_two_instances),
        cmocka_unit_test(test_graphs_that_cannot_be_laid_out_are_incomplete),
        cmocka_unit_test(test_structure),
        cmocka_unit_test(test_nodes_seen_in_part),
        cmocka_unit_test(test_nodes_without_a_record),
        cmocka_unit_test(test_nodes_of_child_graphs_without_a_record),
        cmocka_unit_test(test_records_of_strangers),
        cmocka_unit_test(test_launches_that_broke_off),
        cmocka_unit_test(test_graphs_never_armed),
        cmocka_unit_test(test_what_the_trace_and_its_notes_say),
        cmocka_unit_test(test_a_recorded_graph_that_is_missing),
        cmocka_unit_test(test_the_table),
        cmocka_unit_test(test_memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
