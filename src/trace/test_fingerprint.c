// Fingerprints: what does not change one (addresses, handles, the driver's order of nodes and edges) and what does.
#include "trace/fingerprint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NODES = 5, EDGES = 4 };

// copy -> gemm -> child (with one kernel), copy -> set -> child
typedef struct sample {
    gv_print_node nodes[NODES], inner_nodes[1];
    gv_print_graph inner;
    uint64_t edges[4 * EDGES], kernel_shape[7], copy[9], set[6];
} sample;

static gv_print_graph graph_of(sample *s)
{
    return (gv_print_graph){s->nodes, NODES, s->edges, EDGES};
}

static void fill(sample *s)
{
    memset(s, 0, sizeof *s);
    const uint64_t edges[] = {0, 1, 0, 0, 1, 3, 1, 1, 0, 2, 0, 0, 2, 3, 0, 0};
    const uint64_t shape[] = {4, 1, 1, 128, 1, 1, 0};
    const uint64_t copy[] = {0x7000, 0x8000, 64, 2, 1, 64, 128, 128, 256};
    const uint64_t set[] = {0x9000, 7, 4, 16, 1, 0};
    memcpy(s->edges, edges, sizeof edges);
    memcpy(s->kernel_shape, shape, sizeof shape);
    memcpy(s->copy, copy, sizeof copy);
    memcpy(s->set, set, sizeof set);
    s->inner_nodes[0] = (gv_print_node){.order = 1, .kernel = "inner", .shape = {s->kernel_shape, 7}};
    s->inner = (gv_print_graph){.nodes = s->inner_nodes, .node_count = 1, .edges = s->edges};
    s->nodes[0] = (gv_print_node){.kind = GV_NODE_MEMCPY, .order = 11, .detail = {s->copy, 9}};
    s->nodes[1] = (gv_print_node){.order = 12, .kernel = "gemm", .shape = {s->kernel_shape, 7}};
    s->nodes[2] = (gv_print_node){.kind = GV_NODE_MEMSET, .order = 13, .detail = {s->set, 6}};
    s->nodes[3] = (gv_print_node){.kind = GV_NODE_CHILD, .order = 14, .inner = &s->inner, .inner_count = 1};
    s->nodes[4] = (gv_print_node){.kind = GV_NODE_EVENT_RECORD, .order = 15, .detail = {s->copy, 1}};
}

static gv_fingerprints prints_of(sample *s)
{
    gv_fingerprints prints;
    gv_print_graph graph = graph_of(s);
    assert_int_equal(gv_fingerprint_graph(&graph, &prints, NULL), GV_OK);
    return prints;
}

static void expect(sample *changed, bool same_exact, bool same_without)
{
    sample plain;
    fill(&plain);
    gv_fingerprints a = prints_of(&plain), b = prints_of(changed);
    assert_int_equal(gv_fingerprint_equal(&a.exact, &b.exact), same_exact);
    assert_int_equal(gv_fingerprint_equal(&a.without_shapes, &b.without_shapes), same_without);
}

// The bytes are part of the format: fix files outlive the gravel that wrote them.
static void test_known_values(void **state)
{
    sample s;
    fill(&s);
    gv_fingerprints prints = prints_of(&s);
    char exact[GV_FINGERPRINT_TEXT], without[GV_FINGERPRINT_TEXT];
    gv_fingerprint_text(&prints.exact, exact);
    gv_fingerprint_text(&prints.without_shapes, without);
    assert_string_equal(exact, "874d1f3ca498ccae3b0251eb6908fe6f");
    assert_string_equal(without, "f760ccbdf97257cd87817e5eb5247bbf");
}

static void test_what_differs_between_runs(void **state)
{
    sample s;
    fill(&s);
    s.copy[0] += 4096, s.copy[1] += 4096, s.set[0] += 4096, s.set[1] = 9;
    expect(&s, true, true);
    fill(&s);
    for (size_t i = 0; i < NODES; i++)
        s.nodes[i].order += 100; // another capture came before
    expect(&s, true, true);
}

static void test_the_drivers_order(void **state)
{
    sample s, other;
    fill(&s);
    fill(&other);
    // Nodes and edges listed backwards.
    for (size_t i = 0; i < NODES; i++)
        other.nodes[i] = s.nodes[NODES - 1 - i];
    for (size_t e = 0; e < EDGES; e++) {
        const uint64_t *from = s.edges + 4 * (EDGES - 1 - e);
        const uint64_t edge[] = {NODES - 1 - from[0], NODES - 1 - from[1], from[2], from[3]};
        memcpy(other.edges + 4 * e, edge, sizeof edge);
    }
    other.nodes[1].inner = &other.inner;
    expect(&other, true, true);
    uint32_t numbers[NODES];
    gv_print_graph graph = graph_of(&other);
    assert_true(gv_fingerprint_numbers(&graph, numbers));
    for (uint32_t i = 0; i < NODES; i++)
        assert_int_equal(numbers[i], NODES - 1 - i);
    // Without one order, or with one twice, there is none to go by: indices count.
    for (uint64_t order = 0; order <= 14; order += 14) {
        other.nodes[0].order = order;
        assert_true(gv_fingerprint_numbers(&graph, numbers));
        for (uint32_t i = 0; i < NODES; i++)
            assert_int_equal(numbers[i], i);
        expect(&other, false, false);
    }
}

static void test_shapes(void **state)
{
    for (size_t i = 0; i < 7; i++) {
        sample s;
        fill(&s);
        s.kernel_shape[i]++;
        expect(&s, false, true);
    }
    for (size_t i = 2; i < 9; i++) {
        sample s;
        fill(&s);
        s.copy[i]++;
        expect(&s, false, true);
    }
    for (size_t i = 2; i < 6; i++) {
        sample s;
        fill(&s);
        s.set[i]++;
        expect(&s, false, true);
    }
}

static void test_structure(void **state)
{
    for (size_t i = 0; i < 4 * EDGES; i++) {
        sample s;
        fill(&s);
        s.edges[i] = i % 4 < 2 ? (s.edges[i] + 1) % NODES : s.edges[i] + 1;
        expect(&s, false, false);
    }
    sample s;
    fill(&s);
    s.nodes[1].kernel = "gemn";
    expect(&s, false, false);
    fill(&s);
    s.nodes[1].kernel = NULL;
    expect(&s, false, false);
    fill(&s);
    s.nodes[4].kind = GV_NODE_EMPTY;
    expect(&s, false, false);
    fill(&s);
    s.inner_nodes[0].kernel = "other";
    expect(&s, false, false);
    fill(&s);
    s.nodes[3].inner_count = 0;
    expect(&s, false, false);
}

static void test_refused(void **state)
{
    sample s;
    gv_fingerprints prints;
    gv_error error = {0};
    fill(&s);
    s.edges[1] = NODES;
    gv_print_graph graph = graph_of(&s);
    assert_int_equal(gv_fingerprint_graph(&graph, &prints, &error), GV_ERR_FORMAT);
    // A graph that contains itself.
    fill(&s);
    s.inner_nodes[0].inner = &s.inner;
    s.inner_nodes[0].inner_count = 1;
    assert_int_equal(gv_fingerprint_graph(&graph, &prints, &error), GV_ERR_LIMIT);
    gv_fingerprint parsed;
    assert_true(gv_fingerprint_parse("0123456789abcdef0123456789abcdef", &parsed));
    assert_int_equal(parsed.bytes[1], 0x23);
    assert_false(gv_fingerprint_parse("0123456789abcdef0123456789abcde", &parsed));
    assert_false(gv_fingerprint_parse("0123456789abcdef0123456789abcdeF", &parsed));
    assert_false(gv_fingerprint_parse("0123456789abcdef0123456789abcdef0", &parsed));
    gv_print_graph empty = {0};
    assert_int_equal(gv_fingerprint_graph(&empty, &prints, NULL), GV_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),      cmocka_unit_test(test_what_differs_between_runs),
        cmocka_unit_test(test_the_drivers_order), cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_structure),         cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
