// Edges that are added to a graph and taken away again, with a driver that refuses any one of the calls; and the
// pairing of nodes, compared with what the software driver's update accepts.
#include "record/driver.h"
#include "record/graph_edges.h"
#include "record/graph_pairing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OK(call) assert_int_equal((call), CUDA_SUCCESS)

// ---- A driver that refuses -----------------------------------------------------------------------------------------

static gv_driver real;
static int calls_left; // until one is refused; negative: none is
static int refused;

static bool refuses(void)
{
    if (calls_left < 0 || calls_left-- > 0)
        return false;
    calls_left = -1;
    refused++;
    return true;
}

static CUresult add(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
                    size_t count)
{
    return refuses() ? CUDA_ERROR_UNKNOWN : real.cuGraphAddDependencies(graph, from, to, data, count);
}

static CUresult take(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
                     size_t count)
{
    return refuses() ? CUDA_ERROR_UNKNOWN : real.cuGraphRemoveDependencies(graph, from, to, data, count);
}

static CUresult add_empty(CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count)
{
    return refuses() ? CUDA_ERROR_UNKNOWN : real.cuGraphAddEmptyNode(node, graph, from, count);
}

static CUresult destroy(CUgraphNode node)
{
    return refuses() ? CUDA_ERROR_UNKNOWN : real.cuGraphDestroyNode(node);
}

static int open_device(void **state)
{
    const char *missing;
    CUdevice device;
    CUcontext context;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    assert_true(gv_driver_load(&missing));
    real = gv_cuda;
    gv_cuda.cuGraphAddDependencies = add;
    gv_cuda.cuGraphRemoveDependencies = take;
    gv_cuda.cuGraphAddEmptyNode = add_empty;
    gv_cuda.cuGraphDestroyNode = destroy;
    calls_left = -1;
    return 0;
}

// ---- Graphs of empty nodes -----------------------------------------------------------------------------------------

enum { NODES = 6 };

// A graph as text: for each node what it depends on and what depends on it, in the order of its edges.
static void describe(CUgraph graph, char text[4096])
{
    CUgraphNode nodes[64], near[64];
    CUgraphEdgeData data[64];
    size_t count = 64;
    char *at = text;
    OK(cuGraphGetNodes(graph, nodes, &count));
    for (size_t i = 0; i < count; i++)
        for (int side = 0; side < 2; side++) {
            size_t number = 64;
            OK(side ? cuGraphNodeGetDependentNodes(nodes[i], near, data, &number)
                    : cuGraphNodeGetDependencies(nodes[i], near, data, &number));
            at += sprintf(at, "%zu%c", i, side ? '>' : '<');
            for (size_t j = 0; j < number; j++)
                for (size_t k = 0; k < count; k++)
                    if (nodes[k] == near[j])
                        at += sprintf(at, " %zu", k);
            *at++ = '\n';
        }
    *at = '\0';
}

static CUgraph make(CUgraphNode nodes[NODES], const int (*edges)[2], size_t edge_count)
{
    CUgraph graph;
    OK(cuGraphCreate(&graph, 0));
    for (int i = 0; i < NODES; i++)
        OK(real.cuGraphAddEmptyNode(&nodes[i], graph, NULL, 0));
    for (size_t i = 0; i < edge_count; i++)
        OK(real.cuGraphAddDependencies(graph, &nodes[edges[i][0]], &nodes[edges[i][1]], NULL, 1));
    return graph;
}

static const int diamond[][2] = {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {2, 4}};

static void a_graph_is_as_it_was(void **state)
{
    CUgraphNode n[NODES];
    char before[4096], with[4096], after[4096];
    CUgraph graph = make(n, diamond, 5);
    describe(graph, before);
    gv_added_edges added = {0};
    CUresult result;
    OK(gv_edge_add(&added, graph, n[1], n[2], false));
    OK(gv_edge_add(&added, graph, n[4], n[5], true));
    OK(gv_edge_add(&added, graph, n[3], n[4], false));
    describe(graph, with);
    assert_string_not_equal(before, with);
    assert_int_equal(gv_edges_take_away(&added, &result), 0);
    OK(result);
    assert_int_equal(added.count, 0);
    describe(graph, after);
    assert_string_equal(before, after);
    OK(cuGraphDestroy(graph));
}

// Whatever call is refused on the way there, the way back leaves the graph as it was.
static void a_call_that_is_refused_on_the_way(void **state)
{
    CUgraphNode n[NODES];
    char before[4096], after[4096];
    CUgraph graph = make(n, diamond, 5);
    describe(graph, before);
    int failures = 0;
    for (int turn = 0;; turn++) {
        gv_added_edges added = {0};
        CUresult result;
        calls_left = turn;
        bool all = gv_edge_add(&added, graph, n[1], n[2], false) == CUDA_SUCCESS &&
                   gv_edge_add(&added, graph, n[4], n[5], true) == CUDA_SUCCESS &&
                   gv_edge_add(&added, graph, n[3], n[4], false) == CUDA_SUCCESS;
        calls_left = -1;
        failures += !all;
        assert_int_equal(gv_edges_take_away(&added, &result), 0);
        describe(graph, after);
        assert_string_equal(before, after);
        if (all)
            break;
    }
    assert_int_equal(failures, 4); // two edges, an empty node and its second edge
    OK(cuGraphDestroy(graph));
}

// A call that is refused on the way back is counted, and does not keep the others.
static void a_call_that_is_refused_on_the_way_back(void **state)
{
    CUgraphNode n[NODES];
    CUgraph graph = make(n, diamond, 5);
    gv_added_edges added = {0};
    CUresult result;
    OK(gv_edge_add(&added, graph, n[1], n[2], false));
    OK(gv_edge_add(&added, graph, n[4], n[5], true));
    OK(gv_edge_add(&added, graph, n[3], n[5], false));
    calls_left = 1;
    assert_int_equal(gv_edges_take_away(&added, &result), 1);
    assert_int_equal(result, CUDA_ERROR_UNKNOWN);
    size_t edges = 0;
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    assert_int_equal(edges, 5 + 2); // the empty node and its two edges stayed
    OK(cuGraphDestroy(graph));
}

static void cycles_are_found(void **state)
{
    const uint64_t edges[] = {0, 1, 0, 0, 1, 2, 0, 0, 2, 3, 1, 1};
    const uint32_t forward[] = {0, 3, 4, 0}, back[] = {3, 1}, both[] = {3, 4, 4, 0};
    assert_false(gv_edges_cyclic(5, edges, 3, NULL, 0));
    assert_false(gv_edges_cyclic(5, edges, 3, forward, 2));
    assert_true(gv_edges_cyclic(5, edges, 3, back, 1));
    assert_true(gv_edges_cyclic(5, edges, 3, both, 2));
    assert_false(gv_edges_cyclic(5, edges, 3, both, 1));
    assert_false(gv_edges_cyclic(0, NULL, 0, NULL, 0));
}

// ---- Pairing -------------------------------------------------------------------------------------------------------

// A level with no more in it than a structure is read from.
static void read_structure(CUgraph graph, gv_structure *structure)
{
    static gv_snapshot_node nodes[64];
    CUgraphNode handles[64];
    gv_snapshot snapshot = {.graph = graph, .nodes = nodes};
    gv_level level = {.snapshot = &snapshot};
    snapshot.node_count = 64;
    OK(cuGraphGetNodes(graph, handles, &snapshot.node_count));
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &snapshot.edge_count));
    for (size_t i = 0; i < snapshot.node_count; i++)
        nodes[i] = (gv_snapshot_node){.node = handles[i], .type = CU_GRAPH_NODE_TYPE_EMPTY};
    assert_true(gv_structure_read(&level, structure));
}

// A graph of random edges, all from lower to higher in `names`, which says as what each node is made.
static CUgraph random_graph(unsigned seed, const int *names, CUgraphNode nodes[NODES], int lost)
{
    int edges[NODES * NODES][2];
    size_t count = 0;
    srand(seed);
    for (int a = 0; a < NODES; a++)
        for (int b = a + 1; b < NODES; b++)
            if (rand() % 3 == 0)
                edges[count][0] = names[a], edges[count++][1] = names[b];
    if (lost >= 0 && count)
        memmove(&edges[(size_t)lost % count], &edges[count - 1], sizeof edges[0]), count--;
    return make(nodes, (const int(*)[2])edges, count);
}

// What pairs here is what an update accepts there, for graphs that are the same, made in another order, or not the
// same.
static void pairing_is_the_driver_s(void **state)
{
    int agreed[2] = {0};
    for (unsigned seed = 0; seed < 400; seed++) {
        const int same[NODES] = {0, 1, 2, 3, 4, 5}, other[NODES] = {1, 0, 2, 4, 3, 5};
        CUgraphNode a_nodes[NODES], b_nodes[NODES];
        CUgraph a = random_graph(seed, same, a_nodes, -1);
        CUgraph b = random_graph(seed, seed % 2 ? same : other, b_nodes, seed % 3 ? -1 : (int)seed);
        CUgraphExec exec;
        CUgraphExecUpdateResultInfo info;
        gv_structure first, second;
        uint32_t pair[NODES];
        OK(cuGraphInstantiate(&exec, a, 0));
        read_structure(a, &first);
        read_structure(b, &second);
        bool paired = gv_structure_pair(&first, &second, pair);
        bool updated = cuGraphExecUpdate(exec, b, &info) == CUDA_SUCCESS;
        assert_int_equal(paired, updated);
        agreed[paired]++;
        gv_structure_free(&first);
        gv_structure_free(&second);
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(a));
        OK(cuGraphDestroy(b));
    }
    assert_true(agreed[0] > 20 && agreed[1] > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_is_as_it_was),
        cmocka_unit_test(a_call_that_is_refused_on_the_way),
        cmocka_unit_test(a_call_that_is_refused_on_the_way_back),
        cmocka_unit_test(cycles_are_found),
        cmocka_unit_test(pairing_is_the_driver_s),
    };
    return cmocka_run_group_tests(tests, open_device, NULL);
}
