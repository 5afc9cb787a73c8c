// A graph built by hand, with a node of nearly every kind: 2D memset, 2D memcpy, child graph, host function, event
// record and wait, kernels; then changed in every way an executable graph can be: whole-graph update, new parameters
// for a kernel and a memset, a node switched off and on. Every replay's result is checked.
//
// In the buggy program the last kernel depends on the copy only, not on the child graph that works on the copied rows.
#include "common.cuh"

enum { WIDTH = 48, HEIGHT = 64, PITCH = 256, BYTES = PITCH * HEIGHT, REPLAYS_EACH = 20 };

// Adds to each of the WIDTH numbers of each of the HEIGHT rows. One block a row.
__global__ void add_to_rows(unsigned *rows, unsigned amount)
{
    spin(50000);
    rows[blockIdx.x * (PITCH / sizeof(unsigned)) + threadIdx.x] += amount;
}

__global__ void store_rows(const unsigned *rows, unsigned *result, unsigned factor)
{
    unsigned value = rows[blockIdx.x * (PITCH / sizeof(unsigned)) + threadIdx.x];
    result[blockIdx.x * blockDim.x + threadIdx.x] = value * factor;
}

__global__ void count_runs(unsigned *runs)
{
    *runs += 1;
}

static void CUDART_CB on_host(void *data)
{
    ++*(int *)data;
}

static cudaKernelNodeParams kernel_params(void *function, unsigned grid, unsigned block, void **arguments)
{
    cudaKernelNodeParams params = {};
    params.func = function;
    params.gridDim = grid;
    params.blockDim = block;
    params.kernelParams = arguments;
    return params;
}

// The program's memory, and the nodes that are changed later.
struct Program {
    unsigned *image, *rows, *result, *runs;
    int host_calls;
    cudaEvent_t event;
    cudaGraphNode_t set, store, count;
};

static cudaMemsetParams set_params(const Program &program, unsigned value)
{
    cudaMemsetParams params = {};
    params.dst = program.image;
    params.pitch = PITCH;
    params.elementSize = sizeof(unsigned);
    params.value = value;
    params.width = WIDTH;
    params.height = HEIGHT;
    return params;
}

// The graph; every row element of its result is (image value + 2 x amount) x factor.
static cudaGraph_t build(Program &program, bool buggy, unsigned value, unsigned amount, unsigned factor)
{
    cudaGraph_t graph, child;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&child, 0));

    void *add_arguments[] = {&program.rows, &amount};
    cudaKernelNodeParams add = kernel_params((void *)add_to_rows, HEIGHT, WIDTH, add_arguments);
    cudaGraphNode_t first, second;
    CHECK(cudaGraphAddKernelNode(&first, child, nullptr, 0, &add)); // LAUNCH:add
    CHECK(cudaGraphAddKernelNode(&second, child, &first, 1, &add)); // LAUNCH:add

    cudaMemsetParams set = set_params(program, value);
    CHECK(cudaGraphAddMemsetNode(&program.set, graph, nullptr, 0, &set));

    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(program.image, PITCH, WIDTH * sizeof(unsigned), HEIGHT);
    copy.dstPtr = make_cudaPitchedPtr(program.rows, PITCH, WIDTH * sizeof(unsigned), HEIGHT);
    copy.extent = make_cudaExtent(WIDTH * sizeof(unsigned), HEIGHT, 1);
    copy.kind = cudaMemcpyDeviceToDevice;
    cudaGraphNode_t copy_node, child_node, host_node, record_node, wait_node;
    CHECK(cudaGraphAddMemcpyNode(&copy_node, graph, &program.set, 1, &copy));

    CHECK(cudaGraphAddChildGraphNode(&child_node, graph, &copy_node, 1, child)); // LAUNCH:child
    cudaHostNodeParams host = {on_host, &program.host_calls};
    CHECK(cudaGraphAddHostNode(&host_node, graph, &child_node, 1, &host));
    CHECK(cudaGraphAddEventRecordNode(&record_node, graph, &host_node, 1, program.event));
    CHECK(cudaGraphAddEventWaitNode(&wait_node, graph, &record_node, 1, program.event));

    void *store_arguments[] = {&program.rows, &program.result, &factor};
    cudaKernelNodeParams store = kernel_params((void *)store_rows, HEIGHT, WIDTH, store_arguments);
    cudaGraphNode_t *before = buggy ? &copy_node : &wait_node;
    CHECK(cudaGraphAddKernelNode(&program.store, graph, before, 1, &store)); // LAUNCH:store

    void *count_arguments[] = {&program.runs};
    cudaKernelNodeParams count = kernel_params((void *)count_runs, 1, 1, count_arguments);
    CHECK(cudaGraphAddKernelNode(&program.count, graph, nullptr, 0, &count));
    CHECK(cudaGraphDestroy(child));
    return graph;
}

// Replays the graph and returns how many replays left something else than `expected` in the result, or did not run the
// host node once and the counting kernel `counts` times.
static int replay(Program &program, cudaGraphExec_t exec, cudaStream_t stream, unsigned expected, unsigned counts)
{
    int wrong = 0;
    for (int i = 0; i < REPLAYS_EACH; i++) {
        unsigned before, after;
        int calls = program.host_calls;
        CHECK(cudaMemcpy(&before, program.runs, sizeof before, cudaMemcpyDeviceToHost));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemcpy(&after, program.runs, sizeof after, cudaMemcpyDeviceToHost));
        bool right = count_other(program.result, WIDTH * HEIGHT, expected) == 0 && after - before == counts &&
                     program.host_calls == calls + 1;
        wrong += !right;
    }
    return wrong;
}

int main(int argc, char **argv)
{
    bool buggy = is_buggy(argc, argv);
    Program program = {};
    program.image = make_buffer<unsigned>(BYTES / sizeof(unsigned));
    program.rows = make_buffer<unsigned>(BYTES / sizeof(unsigned));
    program.result = make_buffer<unsigned>(WIDTH * HEIGHT);
    program.runs = make_buffer<unsigned>(1);
    program.event = make_event();
    cudaStream_t stream = make_stream();

    cudaGraph_t graph = build(program, buggy, 7, 1, 1);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    int wrong = replay(program, exec, stream, 9, 1), rounds = 1;

    // Parameters of single nodes.
    unsigned factor = 10;
    void *arguments[] = {&program.rows, &program.result, &factor};
    cudaKernelNodeParams store = kernel_params((void *)store_rows, HEIGHT, WIDTH, arguments);
    CHECK(cudaGraphExecKernelNodeSetParams(exec, program.store, &store));
    wrong += replay(program, exec, stream, 90, 1), rounds++;
    cudaMemsetParams set = set_params(program, 20);
    CHECK(cudaGraphExecMemsetNodeSetParams(exec, program.set, &set));
    wrong += replay(program, exec, stream, 220, 1), rounds++;

    // A node switched off, and on again.
    CHECK(cudaGraphNodeSetEnabled(exec, program.count, 0));
    wrong += replay(program, exec, stream, 220, 0), rounds++;
    CHECK(cudaGraphNodeSetEnabled(exec, program.count, 1));

    // The whole graph. The update needs the same shape; its nodes belong to the new graph from now on.
    cudaGraph_t other = build(program, buggy, 100, 3, 2);
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, other, &info));
    wrong += replay(program, exec, stream, 212, 1), rounds++;

    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(other));
    return report(wrong, rounds * REPLAYS_EACH);
}
