// Conditional nodes as programs use them: a WHILE that a counter ends, in it an IF, in that a SWITCH, and behind the
// loop an IF with an else. In the buggy program two branches of the IF's body have no order.
#include "common.cuh"

enum { COUNT = 1 << 14, BLOCK = 256, REPLAYS = 20, ROUNDS = 6 };

__global__ void begin_round(int *left, int *round)
{
    *left = ROUNDS;
    *round += 1;
}

__global__ void choose_even(const int *left, cudaGraphConditionalHandle handle)
{
    cudaGraphSetConditional(handle, *left % 2 == 0);
}

__global__ void choose_case(const int *left, cudaGraphConditionalHandle handle)
{
    cudaGraphSetConditional(handle, *left / 2 - 1);
}

__global__ void choose_turn(const int *round, cudaGraphConditionalHandle handle)
{
    cudaGraphSetConditional(handle, *round % 2);
}

__global__ void count_down(int *left, cudaGraphConditionalHandle handle)
{
    *left -= 1;
    cudaGraphSetConditional(handle, *left > 0);
}

__global__ void produce(const int *left, int *scratch)
{
    spin(20000);
    scratch[blockIdx.x * blockDim.x + threadIdx.x] = *left;
}

__global__ void consume(const int *scratch, int *sums)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    sums[i] += scratch[i];
}

__global__ void add(int *total, int amount)
{
    total[blockIdx.x * blockDim.x + threadIdx.x] += amount;
}

// Adds a conditional node to the graph that the stream captures, behind what is there.
static const cudaGraph_t *add_conditional(cudaStream_t stream, cudaGraphConditionalHandle handle,
                                          cudaGraphConditionalNodeType type, unsigned bodies)
{
    cudaStreamCaptureStatus status;
    cudaGraph_t graph;
    const cudaGraphNode_t *after;
    const cudaGraphEdgeData *edges;
    size_t count;
    cudaGraphNode_t node;
    cudaGraphNodeParams params = {};
    CHECK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &after, &edges, &count));
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = bodies;
    CHECK(cudaGraphAddNode(&node, graph, after, edges, count, &params));
    CHECK(cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, cudaStreamSetCaptureDependencies));
    return params.conditional.phGraph_out;
}

static cudaGraphConditionalHandle make_handle(cudaStream_t stream, unsigned value, unsigned flags)
{
    cudaStreamCaptureStatus status;
    cudaGraph_t graph;
    const cudaGraphNode_t *after;
    const cudaGraphEdgeData *edges;
    size_t count;
    cudaGraphConditionalHandle handle;
    CHECK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &after, &edges, &count));
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, value, flags));
    return handle;
}

static void begin_body(cudaStream_t stream, cudaGraph_t body)
{
    CHECK(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
}

static void end_body(cudaStream_t stream)
{
    cudaGraph_t body;
    CHECK(cudaStreamEndCapture(stream, &body));
}

int main(int argc, char **argv)
{
    bool buggy = is_buggy(argc, argv);
    int *left = make_buffer<int>(1), *round = make_buffer<int>(1), *scratch = make_buffer<int>(COUNT);
    int *sums = make_buffer<int>(COUNT), *cases = make_buffer<int>(COUNT), *turns = make_buffer<int>(COUNT);
    cudaStream_t stream = make_stream(), loop = make_stream(), inner = make_stream(), side = make_stream();
    const int grid = COUNT / BLOCK;

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    begin_round<<<1, 1, 0, stream>>>(left, round);
    cudaGraphConditionalHandle again = make_handle(stream, 1, cudaGraphCondAssignDefault);
    cudaGraph_t body = add_conditional(stream, again, cudaGraphCondTypeWhile, 1)[0];

    begin_body(loop, body);
    cudaGraphConditionalHandle even = make_handle(loop, 0, 0);
    choose_even<<<1, 1, 0, loop>>>(left, even);
    cudaGraph_t chosen = add_conditional(loop, even, cudaGraphCondTypeIf, 1)[0];
    count_down<<<1, 1, 0, loop>>>(left, again);
    end_body(loop);

    begin_body(inner, chosen);
    cudaGraphConditionalHandle which = make_handle(inner, 0, 0);
    choose_case<<<1, 1, 0, inner>>>(left, which);
    wait_stream(side, inner);
    produce<<<grid, BLOCK, 0, side>>>(left, scratch); // LAUNCH:produce
    if (!buggy)
        wait_stream(inner, side);
    consume<<<grid, BLOCK, 0, inner>>>(scratch, sums); // LAUNCH:consume
    if (buggy)
        wait_stream(inner, side);
    const cudaGraph_t *three = add_conditional(inner, which, cudaGraphCondTypeSwitch, 3);
    end_body(inner);
    for (int i = 0; i < 3; i++) {
        begin_body(inner, three[i]);
        add<<<grid, BLOCK, 0, inner>>>(cases, 1 << (8 * i));
        end_body(inner);
    }

    cudaGraphConditionalHandle turn = make_handle(stream, 0, 0);
    choose_turn<<<1, 1, 0, stream>>>(round, turn);
    const cudaGraph_t *two = add_conditional(stream, turn, cudaGraphCondTypeIf, 2);
    for (int i = 0; i < 2; i++) {
        begin_body(inner, two[i]);
        add<<<grid, BLOCK, 0, inner>>>(turns, i ? 1000 : 1);
        end_body(inner);
    }
    cudaGraphExec_t exec = end_capture(stream);

    int wrong = 0;
    for (int replay = 1; replay <= REPLAYS; replay++) {
        CHECK(cudaMemset(scratch, 0, COUNT * sizeof *scratch));
        CHECK(cudaMemset(sums, 0, COUNT * sizeof *sums));
        CHECK(cudaMemset(cases, 0, COUNT * sizeof *cases));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        // What the bodies add up to says which ran: that must be right in the buggy program too.
        if (count_other(cases, COUNT, 1 + (1 << 8) + (1 << 16)) ||
            count_other(turns, COUNT, (replay + 1) / 2 + replay / 2 * 1000)) {
            fprintf(stderr, "replay %d ran other bodies than its conditions say\n", replay);
            return 1;
        }
        wrong += count_other(sums, COUNT, 6 + 4 + 2) != 0;
    }
    return report(wrong, REPLAYS);
}
