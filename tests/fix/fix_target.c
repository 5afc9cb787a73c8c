// Programs that make the graph of twins/scratch in other ways than twins do: what `gravel run --fix` has to keep
// working. usage: fix-target SCENARIO buggy|clean [LAUNCHES]. It lies beside the twins, whose kernels it uses.
//
// The graph: two branches share a scratch buffer, and only `clean` orders them.
#include "twins/twin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 64 };

typedef struct work {
    twin *t;
    CUstream main, side;
    CUdeviceptr scratch, left, right;
    int count; // of threads
    int left_value, right_value;
} work;

static work new_work(twin *t)
{
    work w = {.t = t, .count = TWIN_COUNT, .left_value = 1, .right_value = 5000};
    CHECK(cuStreamCreate(&w.main, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&w.side, CU_STREAM_NON_BLOCKING));
    w.scratch = twin_buffer(TWIN_BYTES);
    w.left = twin_buffer(TWIN_BYTES);
    w.right = twin_buffer(TWIN_BYTES);
    return w;
}

// Captures the two branches into whatever w->main captures.
static void branches(work *w)
{
    twin *t = w->t;
    int count = TWIN_COUNT;
    CUevent fork = twin_event(), join = twin_event(), order = twin_event();
    CHECK(cuEventRecord(fork, w->main));
    CHECK(cuStreamWaitEvent(w->side, fork, 0));
    LAUNCH(t->make_left, w->main, w->count, &w->scratch, &w->left_value, &count);
    twin_hold(t, w->main, TWIN_HOLD_SHORT);
    LAUNCH(t->use_left, w->main, w->count, &w->scratch, &w->left, &count);
    if (!t->buggy) {
        CHECK(cuEventRecord(order, w->main));
        CHECK(cuStreamWaitEvent(w->side, order, 0));
    }
    LAUNCH(t->make_right, w->side, w->count, &w->scratch, &w->right_value, &count);
    LAUNCH(t->use_right, w->side, w->count, &w->scratch, &w->right, &count);
    CHECK(cuEventRecord(join, w->side));
    CHECK(cuStreamWaitEvent(w->main, join, 0));
}

static CUgraph capture(work *w)
{
    CUgraph graph;
    CHECK(cuStreamBeginCapture(w->main, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    branches(w);
    CHECK(cuStreamEndCapture(w->main, &graph));
    return graph;
}

static int launch(work *w, CUgraphExec exec)
{
    CHECK(cuGraphLaunch(exec, w->main));
    CHECK(cuStreamSynchronize(w->main));
    return !(twin_holds(w->left, 2 * w->left_value, 2) && twin_holds(w->right, 2 * w->right_value, 2));
}

static int finish(const twin *t, int wrong)
{
    printf("wrong %d of %d\n", wrong, t->launches);
    return 0;
}

// ---- Scenarios -----------------------------------------------------------------------------------------------

static int plain_of(twin *t, int count, bool extra)
{
    work w = new_work(t);
    CUgraphExec exec;
    int wrong = 0;
    w.count = count;
    CUgraph graph = capture(&w);
    if (extra) {
        CUgraphNode node;
        CHECK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    }
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < t->launches; i++)
        wrong += launch(&w, exec);
    return finish(t, wrong);
}

static int plain(twin *t)
{
    return plain_of(t, TWIN_COUNT, false);
}

// Another bucket: the same nodes in another size.
static int larger(twin *t)
{
    return plain_of(t, 4 * TWIN_COUNT, false);
}

static int largest(twin *t)
{
    return plain_of(t, 8 * TWIN_COUNT, false);
}

// Another version of the program: one more node.
static int extra(twin *t)
{
    return plain_of(t, TWIN_COUNT, true);
}

// Captured anew for each launch, with other values; the executable graph stays.
static int update(twin *t)
{
    work w = new_work(t);
    CUgraphExec exec;
    CUgraph graph = capture(&w);
    int wrong = 0;
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    for (int i = 0; i < t->launches; i++) {
        CUgraphExecUpdateResultInfo info;
        w.left_value = 10 + i;
        w.right_value = 7000 + i;
        graph = capture(&w);
        CHECK(cuGraphExecUpdate(exec, graph, &info));
        CHECK(cuGraphDestroy(graph));
        wrong += launch(&w, exec);
    }
    return finish(t, wrong);
}

// An update whose graph has another structure: refused with the reason that CUDA documents, whatever a fix does.
static int other_update(twin *t)
{
    work w = new_work(t);
    CUgraphExec exec;
    CUgraphNode node;
    CUgraphExecUpdateResultInfo info;
    int wrong = 0;
    CHECK(cuGraphInstantiate(&exec, capture(&w), 0));
    CUgraph graph = capture(&w);
    CHECK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    CUresult result = cuGraphExecUpdate(exec, graph, &info);
    printf("update %d for reason %d\n", (int)result, (int)info.result);
    for (int i = 0; i < t->launches; i++)
        wrong += launch(&w, exec);
    return finish(t, wrong);
}

// The parameters of one node are replaced in the executable graph, by the node of the program's graph.
static int set_parameters(twin *t)
{
    work w = new_work(t);
    CUgraphNode nodes[MOST];
    CUgraphExec exec;
    size_t count = MOST;
    int wrong = 0;
    CUgraph graph = capture(&w);
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphGetNodes(graph, nodes, &count));
    for (int i = 0; i < t->launches; i++) {
        int size = TWIN_COUNT;
        w.left_value = 10 + i;
        for (size_t n = 0; n < count; n++) {
            CUDA_KERNEL_NODE_PARAMS params;
            CHECK(cuGraphKernelNodeGetParams(nodes[n], &params));
            if (params.func != t->make_left)
                continue;
            params.kernelParams = (void *[]){&w.scratch, &w.left_value, &size};
            params.extra = NULL;
            CHECK(cuGraphExecKernelNodeSetParams(exec, nodes[n], &params));
        }
        wrong += launch(&w, exec);
    }
    return finish(t, wrong);
}

// The branches are in a child graph, behind another node.
static int child(twin *t)
{
    work w = new_work(t);
    CUgraph graph;
    CUgraphNode first, node;
    CUgraphExec exec;
    int wrong = 0;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddEmptyNode(&first, graph, NULL, 0));
    CHECK(cuGraphAddChildGraphNode(&node, graph, &first, 1, capture(&w)));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < t->launches; i++) {
        CUgraphExecUpdateResultInfo info;
        wrong += launch(&w, exec);
        CHECK(cuGraphExecUpdate(exec, graph, &info));
    }
    return finish(t, wrong);
}

// The child graph is captured anew for each launch, with other values, and replaced in the executable graph.
static int new_child(twin *t)
{
    work w = new_work(t);
    CUgraph graph, branch = capture(&w);
    CUgraphNode first, node;
    CUgraphExec exec;
    int wrong = 0;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddEmptyNode(&first, graph, NULL, 0));
    CHECK(cuGraphAddChildGraphNode(&node, graph, &first, 1, branch));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < t->launches; i++) {
        w.left_value = 10 + i;
        w.right_value = 7000 + i;
        branch = capture(&w);
        CHECK(cuGraphExecChildGraphNodeSetParams(exec, node, branch));
        CHECK(cuGraphDestroy(branch));
        wrong += launch(&w, exec);
    }
    return finish(t, wrong);
}

// The branches are in the body of a conditional node.
static int body(twin *t)
{
    work w = new_work(t);
    CUgraphExec exec;
    CUgraph graph, same;
    CUgraphNode node;
    CUgraphConditionalHandle handle;
    CUgraphNodeParams params;
    CUcontext context;
    int wrong = 0;
    CHECK(cuCtxGetCurrent(&context));
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphConditionalHandleCreate(&handle, graph, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = CU_GRAPH_COND_TYPE_IF;
    params.conditional.size = 1;
    params.conditional.ctx = context;
    CHECK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    CHECK(cuStreamBeginCaptureToGraph(w.main, params.conditional.phGraph_out[0], NULL, NULL, 0,
                                      CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    branches(&w);
    CHECK(cuStreamEndCapture(w.main, &same));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < t->launches; i++)
        wrong += launch(&w, exec);
    return finish(t, wrong);
}

// A graph that allocates and frees memory in its nodes.
static int memory(twin *t)
{
    work w = new_work(t);
    CUgraphExec exec;
    CUgraphNode alloc, release;
    int wrong = 0;
    CUgraph graph = capture(&w);
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    memset(&params, 0, sizeof params);
    params.bytesize = 4096;
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CHECK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    CHECK(cuGraphAddMemFreeNode(&release, graph, &alloc, 1, params.dptr));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < t->launches; i++)
        wrong += launch(&w, exec);
    return finish(t, wrong);
}

static size_t index_in(const CUgraphNode *nodes, size_t count, CUgraphNode node)
{
    for (size_t i = 0; i < count; i++)
        if (nodes[i] == node)
            return i;
    return 999;
}

static void list(const char *title, CUgraph graph)
{
    CUgraphNode nodes[MOST], from[MOST], to[MOST];
    CUgraphEdgeData data[MOST];
    size_t count = MOST, edges = MOST;
    CHECK(cuGraphGetNodes(graph, nodes, &count));
    CHECK(cuGraphGetEdges(graph, from, to, data, &edges));
    printf("%s: %zu nodes:", title, count);
    for (size_t i = 0; i < edges; i++)
        printf(" %zu-%zu", index_in(nodes, count, from[i]), index_in(nodes, count, to[i]));
    for (size_t i = 0; i < count; i++) {
        size_t before = MOST, behind = MOST;
        CHECK(cuGraphNodeGetDependencies(nodes[i], from, data, &before));
        CHECK(cuGraphNodeGetDependentNodes(nodes[i], to, data, &behind));
        printf(" [%zu", i);
        for (size_t j = 0; j < before; j++)
            printf(" <%zu", index_in(nodes, count, from[j]));
        for (size_t j = 0; j < behind; j++)
            printf(" >%zu", index_in(nodes, count, to[j]));
        printf("]");
    }
    printf("\n");
}

// What the program sees of its graph before and after each way to make an executable graph of it, and of its results.
static int seen(twin *t)
{
    work w = new_work(t);
    CUgraphExec exec;
    CUDA_GRAPH_INSTANTIATE_PARAMS params;
    CUgraphExecUpdateResultInfo info;
    CUgraph graph = capture(&w);
    list("captured", graph);
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    list("instantiated", graph);
    memset(&params, 0, sizeof params);
    CHECK(cuGraphInstantiateWithParams(&exec, graph, &params));
    list("with parameters", graph);
    CHECK(cuGraphExecUpdate(exec, graph, &info));
    list("updated", graph);
    // A call that fails.
    CUresult result = cuGraphInstantiate(&exec, graph, 1ull << 40);
    printf("bad flags: %d\n", (int)result);
    list("refused", graph);
    CUgraph clone;
    CHECK(cuGraphClone(&clone, graph));
    list("cloned", clone);
    return finish(t, 0);
}

// Two threads, each with graphs of its own.
static void *one_thread(void *user)
{
    work *w = user;
    CUcontext context;
    int wrong = 0;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < w->t->launches; i++) {
        CUgraphExec exec;
        CUgraph graph = capture(w);
        CHECK(cuGraphInstantiate(&exec, graph, 0));
        CHECK(cuGraphDestroy(graph));
        wrong += launch(w, exec);
        CHECK(cuGraphExecDestroy(exec));
    }
    return (void *)(intptr_t)wrong;
}

static int threads(twin *t)
{
    work w[2] = {new_work(t), new_work(t)};
    pthread_t ids[2];
    int wrong = 0;
    for (int i = 0; i < 2; i++)
        pthread_create(&ids[i], NULL, one_thread, &w[i]);
    for (int i = 0; i < 2; i++) {
        void *result;
        pthread_join(ids[i], &result);
        wrong += (int)(intptr_t)result;
    }
    return finish(t, wrong);
}

static const struct {
    const char *name;
    int (*run)(twin *t);
} scenarios[] = {{"plain", plain},         {"larger", larger},
                 {"largest", largest},     {"extra", extra},
                 {"update", update},       {"child", child},
                 {"new-child", new_child}, {"other-update", other_update},
                 {"body", body},           {"set-parameters", set_parameters},
                 {"memory", memory},       {"seen", seen},
                 {"threads", threads}};

int main(int argc, char **argv)
{
    twin t;
    if (argc > 1 && !strcmp(argv[1], "ranks")) {
        // A launcher that only starts others: one by fork, one by fork and exec.
        for (int rank = 0; rank < 2; rank++) {
            pid_t child_process = fork();
            if (child_process == 0 && rank == 0) {
                twin_open(&t, argc - 1, argv + 1);
                exit(plain(&t));
            }
            if (child_process == 0) {
                execl("/proc/self/exe", argv[0], "plain", argv[2], argc > 3 ? argv[3] : NULL, (char *)NULL);
                _exit(127);
            }
            int status = 0;
            waitpid(child_process, &status, 0);
            if (status)
                return 1;
        }
        return 0;
    }
    for (size_t i = 0; argc > 1 && i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(argv[1], scenarios[i].name)) {
            twin_open(&t, argc - 1, argv + 1);
            return scenarios[i].run(&t);
        }
    fprintf(stderr, "usage: %s SCENARIO buggy|clean [LAUNCHES]\n", argv[0]);
    return 2;
}
