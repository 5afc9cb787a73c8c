// Makes the plan of a benchmark graph and writes it as a trace.
#include "plan.h"

#include "base/memory.h"
#include "trace/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RING = 4,        // blocks a stream uses in turn
    BARRIERS = 5,    // joins of all streams over the whole graph
    RACE_RANGES = 5, // ranges on each side of a planted race
    RACE_LENGTH = 64,
    ROW_PITCH = 512,
    WEIGHTS = 8,
    TABLES = 4,
    FUNCTIONS = 40,
    STACKS = 200,
    SHARED_TABLE_EVERY = 8, // one node in so many reads the tables
};

static const uint64_t TABLE_BASE = UINT64_C(0x7c0000000000);
static const uint64_t WEIGHT_BASE = UINT64_C(0x7d0000000000);
static const uint64_t RACE_BASE = UINT64_C(0x7e0000000000);
static const uint64_t BLOCK_BASE = UINT64_C(0x7f0000000000);
static const uint64_t SHARED_STRIDE = UINT64_C(1) << 32;
static const uint64_t RACE_STRIDE = UINT64_C(1) << 20;
static const uint32_t NONE = UINT32_MAX;

static uint64_t mix(uint64_t value)
{
    value += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = mix(*state);
    return (uint32_t)(*state % below);
}

// ---- Making -----------------------------------------------------------------------------------------------------

// A stream while the plan is made.
typedef struct stream_state {
    uint32_t ring[RING];
    uint32_t next;    // place in the ring that is written next
    uint32_t written; // how many blocks it has written
    uint32_t tail;    // its last node; NONE behind a barrier
} stream_state;

typedef struct maker {
    bench_plan *plan;
    stream_state *streams;
    bool *shared; // blocks read by another stream since the last barrier
    uint32_t *retired;
    size_t retired_count;
    uint32_t *spare;
    size_t spare_count;
    uint32_t barrier; // the node all streams must follow
    uint64_t random;
} maker;

static gv_status out_of_memory(gv_error *error)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory while making the benchmark's graph");
}

static bool add_edge(bench_plan *plan, uint32_t from, uint32_t to)
{
    if (!GV_GROW(plan->edges, plan->edge_capacity, plan->edge_count + 1))
        return false;
    plan->edges[plan->edge_count++] = (gv_edge){.from = from, .to = to};
    return true;
}

// All streams meet in `node`, and what other streams have read may be used again.
static bool make_barrier(maker *m, uint32_t node)
{
    for (uint32_t s = 0; s < m->plan->shape.chains; s++) {
        if (m->streams[s].tail != NONE && !add_edge(m->plan, m->streams[s].tail, node))
            return false;
        m->streams[s].tail = NONE;
    }
    for (size_t i = 0; i < m->retired_count; i++) {
        m->shared[m->retired[i]] = false;
        m->spare[m->spare_count++] = m->retired[i];
    }
    m->retired_count = 0;
    m->barrier = node;
    return true;
}

// The block a stream writes next: the oldest of its ring, or another one if a different stream may still read that.
static uint32_t take_block(maker *m, stream_state *stream)
{
    uint32_t *place = &stream->ring[stream->next];
    stream->next = (stream->next + 1) % RING;
    stream->written++;
    if (*place != NONE && m->shared[*place]) {
        m->retired[m->retired_count++] = *place;
        *place = NONE;
    }
    if (*place == NONE)
        *place = m->spare_count ? m->spare[--m->spare_count] : m->plan->blocks++;
    return *place;
}

// The block that a stream wrote `back` steps ago.
static uint32_t written_before(const stream_state *stream, uint32_t back)
{
    return back >= RING || back >= stream->written ? NONE : stream->ring[(stream->next + RING - 1 - back) % RING];
}

static bool make_node(maker *m, uint32_t node, double cross_share)
{
    bench_plan *plan = m->plan;
    uint32_t s = draw(&m->random, plan->shape.chains);
    stream_state *stream = &m->streams[s];
    bench_node *made = &plan->nodes[node];
    *made = (bench_node){.stream = s, .inputs = {NONE, NONE}, .reads_table = node % SHARED_TABLE_EVERY == 1};
    if (!add_edge(plan, stream->tail == NONE ? m->barrier : stream->tail, node))
        return false;
    made->inputs[0] = written_before(stream, 0);
    made->inputs[1] = written_before(stream, 2);
    uint32_t other = draw(&m->random, plan->shape.chains);
    bool crosses = draw(&m->random, 1 << 20) < cross_share * (1 << 20);
    if (crosses && other != s && m->streams[other].tail != NONE) {
        uint32_t from = m->streams[other].tail;
        if (!add_edge(plan, from, node))
            return false;
        made->inputs[1] = plan->nodes[from].output;
        m->shared[made->inputs[1]] = true;
    }
    made->output = take_block(m, stream);
    stream->tail = node;
    return true;
}

// ---- Planting races ---------------------------------------------------------------------------------------------

// Is there a path from `from` to `to`? `out` lists edges by source; nodes only lead to later ones.
static bool reaches(const bench_plan *plan, const gv_edge *by_source, const size_t *first, bool *seen, uint32_t from,
                    uint32_t to)
{
    memset(seen, 0, plan->shape.nodes * sizeof *seen);
    seen[from] = true;
    for (uint32_t n = from; n < to; n++) {
        for (size_t e = first[n]; seen[n] && e < first[n + 1]; e++)
            seen[by_source[e].to] = true;
    }
    return seen[to];
}

static int by_source(const void *left, const void *right)
{
    const gv_edge *a = left, *b = right;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return a->to < b->to ? -1 : a->to > b->to;
}

static bool planted_before(const bench_plan *plan, uint32_t count, uint32_t first, uint32_t second)
{
    for (uint32_t i = 0; i < count; i++) {
        if (plan->races[i].first == first && plan->races[i].second == second)
            return true;
    }
    return false;
}

static gv_status plant_races(maker *m, gv_error *error)
{
    bench_plan *plan = m->plan;
    const uint32_t nodes = plan->shape.nodes;
    gv_edge *sorted = gv_calloc(plan->edge_count, sizeof *sorted);
    size_t *first = gv_calloc((size_t)nodes + 1, sizeof *first);
    bool *seen = gv_calloc(nodes, sizeof *seen);
    gv_status status = sorted && first && seen ? GV_OK : out_of_memory(error);
    if (!status) {
        memcpy(sorted, plan->edges, plan->edge_count * sizeof *sorted);
        qsort(sorted, plan->edge_count, sizeof *sorted, by_source);
        for (size_t e = 0; e < plan->edge_count; e++)
            first[sorted[e].from + 1]++;
        for (uint32_t n = 0; n < nodes; n++)
            first[n + 1] += first[n];
    }
    static const uint8_t kinds[][2] = {{2, 1}, {1, 2}, {2, 2}};
    uint32_t count = 0;
    for (uint32_t tries = 0; !status && count < plan->shape.races; tries++) {
        if (tries > 1000 * plan->shape.races + 1000) {
            status =
                gv_fail(error, GV_ERR_USAGE, "the graph has too few unordered nodes for %u races", plan->shape.races);
            break;
        }
        uint32_t a = 1 + draw(&m->random, nodes - 2), b = a + 1 + draw(&m->random, nodes < 400 ? nodes - a : 200);
        if (b >= nodes || planted_before(plan, count, a, b) || reaches(plan, sorted, first, seen, a, b))
            continue;
        plan->races[count] = (bench_race){.first = a,
                                          .second = b,
                                          .first_kind = kinds[count % 3][0],
                                          .second_kind = kinds[count % 3][1],
                                          // The second side is shifted by half a range.
                                          .bytes = (uint64_t)RACE_RANGES * (RACE_LENGTH / 2)};
        count++;
    }
    gv_free(sorted);
    gv_free(first);
    gv_free(seen);
    return status;
}

static gv_status make(maker *m, gv_error *error)
{
    bench_plan *plan = m->plan;
    const bench_shape *shape = &plan->shape;
    for (uint32_t s = 0; s < shape->chains; s++) {
        for (uint32_t i = 0; i < RING; i++)
            m->streams[s].ring[i] = NONE;
        m->streams[s].tail = NONE;
    }
    // Edges that are not between streams: one a node, and at each barrier one a stream.
    double barrier_edges = (double)BARRIERS * shape->chains;
    double share = shape->edges ? 0.9 * (shape->edges - shape->nodes - barrier_edges) / shape->nodes : 0.2;
    // Some draws hit the own stream or one that has done nothing since the barrier.
    share *= shape->chains > 1 ? (double)shape->chains / (shape->chains - 1) : 1;
    for (uint32_t n = 0; n < shape->nodes; n++) {
        bool barrier = n % (shape->nodes / BARRIERS + 1) == 0;
        if (barrier) {
            uint32_t block = plan->blocks++;
            plan->nodes[n] = (bench_node){.output = block, .inputs = {NONE, NONE}};
        }
        if (!(barrier ? make_barrier(m, n) : make_node(m, n, share)))
            return out_of_memory(error);
    }
    // The rest of the wanted edges: a later node waits for an earlier one, whatever they access.
    while (plan->edge_count < shape->edges) {
        uint32_t to = 2 + draw(&m->random, shape->nodes - 2), from = 1 + draw(&m->random, to - 1);
        if (!add_edge(plan, from, to))
            return out_of_memory(error);
    }
    return plant_races(m, error);
}

gv_status bench_plan_make(const bench_shape *shape, bench_plan *plan, gv_error *error)
{
    *plan = (bench_plan){.shape = *shape, .rows = shape->ranges_per_node * 3 / 10 + 1};
    size_t most_blocks = (size_t)shape->nodes + (size_t)shape->chains * RING;
    plan->nodes = gv_calloc(shape->nodes, sizeof *plan->nodes);
    plan->races = gv_calloc(shape->races, sizeof *plan->races);
    maker m = {.plan = plan,
               .streams = gv_calloc(shape->chains, sizeof *m.streams),
               .shared = gv_calloc(most_blocks, sizeof *m.shared),
               .retired = gv_calloc(most_blocks, sizeof *m.retired),
               .spare = gv_calloc(most_blocks, sizeof *m.spare),
               .random = shape->seed};
    bool ok = plan->nodes && plan->races && m.streams && m.shared && m.retired && m.spare;
    gv_status status = ok ? make(&m, error) : out_of_memory(error);
    gv_free(m.streams);
    gv_free(m.shared);
    gv_free(m.retired);
    gv_free(m.spare);
    if (status)
        bench_plan_free(plan);
    return status;
}

void bench_plan_free(bench_plan *plan)
{
    gv_free(plan->nodes);
    gv_free(plan->edges);
    gv_free(plan->races);
    *plan = (bench_plan){0};
}

// ---- Ranges -----------------------------------------------------------------------------------------------------

static uint64_t block_stride(const bench_plan *plan)
{
    return (uint64_t)(plan->rows + 1) * ROW_PITCH;
}

// Rows of uneven length. A reader takes some of them only in part, as kernels with other tile sizes do.
static size_t add_block(const bench_plan *plan, uint32_t block, bool reading, gv_range *ranges)
{
    uint64_t base = BLOCK_BASE + block * block_stride(plan);
    for (uint32_t r = 0; r < plan->rows; r++) {
        uint64_t bits = mix((uint64_t)block << 32 | r);
        uint64_t start = base + (uint64_t)r * ROW_PITCH + bits % 64, length = 64 + (bits >> 8) % 352;
        uint64_t trimmed = reading && (bits >> 20) % 4 == 0 ? 8 : 0;
        ranges[r] = (gv_range){start + trimmed, start + length};
    }
    return plan->rows;
}

// A node's tile of a shared buffer: every node has one of 64.
static size_t add_tile(const bench_plan *plan, uint64_t base, uint32_t tile, uint32_t rows, gv_range *ranges)
{
    for (uint32_t r = 0; r < rows; r++) {
        uint64_t start = base + ((uint64_t)r * 64 + tile) * 256;
        ranges[r] = (gv_range){start, start + 192};
    }
    return rows;
}

static uint32_t shared_rows(const bench_plan *plan)
{
    return plan->shape.ranges_per_node / 12 + 1;
}

static size_t add_races(const bench_plan *plan, uint32_t node, uint8_t kind, gv_range *ranges)
{
    size_t count = 0;
    for (uint32_t i = 0; i < plan->shape.races; i++) {
        const bench_race *race = &plan->races[i];
        bool is_first = race->first == node && race->first_kind == kind;
        bool is_second = race->second == node && race->second_kind == kind;
        for (uint32_t r = 0; (is_first || is_second) && r < RACE_RANGES; r++) {
            uint64_t start = RACE_BASE + i * RACE_STRIDE + r * 1024 + (is_second ? RACE_LENGTH / 2 : 0);
            ranges[count++] = (gv_range){start, start + RACE_LENGTH};
        }
    }
    return count;
}

size_t bench_plan_most_ranges(const bench_plan *plan)
{
    return 2 * (size_t)plan->rows + (WEIGHTS + TABLES) * (size_t)shared_rows(plan) + plan->shape.races * RACE_RANGES;
}

size_t bench_plan_reads(const bench_plan *plan, uint32_t node, gv_range *ranges)
{
    const bench_node *n = &plan->nodes[node];
    size_t count = 0;
    uint32_t tile = node % 64, rows = shared_rows(plan);
    if (n->reads_table)
        count += add_tile(plan, TABLE_BASE + node / 64 % TABLES * SHARED_STRIDE, tile, rows, ranges + count);
    if (node)
        count += add_tile(plan, WEIGHT_BASE + node / 64 % WEIGHTS * SHARED_STRIDE, tile, rows, ranges + count);
    count += add_races(plan, node, 1, ranges + count);
    uint32_t low = n->inputs[0] < n->inputs[1] ? n->inputs[0] : n->inputs[1];
    uint32_t high = n->inputs[0] < n->inputs[1] ? n->inputs[1] : n->inputs[0];
    if (low != NONE)
        count += add_block(plan, low, true, ranges + count);
    if (high != NONE && high != low)
        count += add_block(plan, high, true, ranges + count);
    return count;
}

size_t bench_plan_writes(const bench_plan *plan, uint32_t node, gv_range *ranges)
{
    size_t count = 0;
    if (node == 0) {
        for (uint64_t t = 0; t < TABLES; t++) {
            uint64_t base = TABLE_BASE + t * SHARED_STRIDE;
            ranges[count++] = (gv_range){base, base + (uint64_t)shared_rows(plan) * 64 * 256};
        }
    }
    count += add_races(plan, node, 2, ranges + count);
    return count + add_block(plan, plan->nodes[node].output, false, ranges + count);
}

// ---- Writing ----------------------------------------------------------------------------------------------------

static gv_text text(const char *string)
{
    return (gv_text){string, strlen(string)};
}

static gv_status write_definitions(const bench_plan *plan, gv_writer *writer)
{
    gv_write_process(writer, &(gv_process_record){.pid = 1,
                                                  .executable = text("bench"),
                                                  .command_line = text("bench"),
                                                  .driver = text("soft"),
                                                  .access_source = text("soft")});
    gv_write_string(writer, &(gv_string_record){.id = 1, .text = text("model.py")});
    gv_write_string(writer, &(gv_string_record){.id = 2, .text = text("forward")});
    for (uint64_t i = 1; i <= STACKS; i++) {
        const uint64_t frames[] = {1, 2, 10 * i, 1, 2, 7};
        gv_write_stack(writer, &(gv_stack_record){.id = i, .python = {frames, 6}});
    }
    gv_write_context(writer, &(gv_context_record){.id = 1, .device_name = text("bench"), .compute_capability = 90});
    for (uint64_t s = 1; s <= plan->shape.chains; s++)
        gv_write_stream(writer, &(gv_stream_record){.id = s, .context = 1, .kind = GV_STREAM_NON_BLOCKING});
    for (uint64_t f = 1; f <= FUNCTIONS; f++) {
        char name[32];
        snprintf(name, sizeof name, "_Z8kernel%02uPfS_", (unsigned)f);
        gv_write_function(writer, &(gv_function_record){.id = f, .name = text(name)});
    }
    gv_allocation_record pools[] = {
        {.id = 1, .address = TABLE_BASE, .size = TABLES * SHARED_STRIDE},
        {.id = 2, .address = WEIGHT_BASE, .size = WEIGHTS * SHARED_STRIDE},
        {.id = 3, .address = RACE_BASE, .size = (plan->shape.races + 1) * RACE_STRIDE},
        {.id = 4, .address = BLOCK_BASE, .size = plan->blocks * block_stride(plan)},
    };
    for (uint64_t i = 0; i < 4; i++) {
        pools[i].context = 1;
        pools[i].operation = i + 1;
        gv_write_allocation(writer, &pools[i]);
        gv_write_operation(
            writer, &(gv_operation_record){.sequence = i + 1, .kind = GV_OP_ALLOC, .thread = 1, .object = pools[i].id});
    }
    return gv_writer_flush(writer);
}

static gv_status write_graph(const bench_plan *plan, gv_writer *writer, gv_error *error)
{
    const uint32_t nodes = plan->shape.nodes;
    uint64_t *items = gv_calloc(plan->edge_count, 4 * sizeof *items);
    if (!items)
        return out_of_memory(error);
    for (size_t e = 0; e < plan->edge_count; e++) {
        items[4 * e] = plan->edges[e].from;
        items[4 * e + 1] = plan->edges[e].to;
    }
    gv_write_operation(writer,
                       &(gv_operation_record){.sequence = 5, .kind = GV_OP_CAPTURE_BEGIN, .thread = 1, .stream = 1});
    gv_write_graph(writer,
                   &(gv_graph_record){.id = 1, .origin = GV_GRAPH_CAPTURED, .nodes = nodes, .edges = plan->edge_count});
    const uint64_t launch_shape[] = {128, 1, 1, 256, 1, 1, 0};
    for (uint32_t n = 0; n < nodes; n++)
        gv_write_node(writer, &(gv_node_record){.graph = 1,
                                                .index = n,
                                                .kind = GV_NODE_KERNEL,
                                                .function = 1 + n % FUNCTIONS,
                                                .stack = 1 + n % STACKS,
                                                .stream = 1 + plan->nodes[n].stream,
                                                .order = n + 1,
                                                .shape = {launch_shape, 7},
                                                .context = 1});
    gv_write_edges(writer, &(gv_edges_record){.graph = 1, .items = {items, 4 * plan->edge_count}});
    gv_free(items);
    gv_write_operation(writer, &(gv_operation_record){
                                   .sequence = 6, .kind = GV_OP_CAPTURE_END, .thread = 1, .stream = 1, .object = 1});
    gv_write_exec(writer, &(gv_exec_record){.id = 1, .graph = 1, .operation = 7});
    gv_write_operation(writer,
                       &(gv_operation_record){.sequence = 7, .kind = GV_OP_INSTANTIATE, .thread = 1, .object = 1});
    return gv_write_operation(
        writer,
        &(gv_operation_record){.sequence = 8, .kind = GV_OP_GRAPH_LAUNCH, .thread = 1, .stream = 1, .object = 1});
}

static gv_status write_accesses(const bench_plan *plan, gv_writer *writer, uint64_t *ranges, gv_error *error)
{
    size_t most = bench_plan_most_ranges(plan);
    gv_range *list = gv_calloc(most, sizeof *list);
    uint8_t *reads = gv_malloc(gv_ranges_encoded_bound(most)), *writes = gv_malloc(gv_ranges_encoded_bound(most));
    gv_status status = list && reads && writes ? GV_OK : out_of_memory(error);
    *ranges = 0;
    for (uint32_t n = 0; !status && n < plan->shape.nodes; n++) {
        size_t count = bench_plan_reads(plan, n, list);
        size_t read_bytes = gv_ranges_encode(list, count, reads);
        *ranges += count;
        count = bench_plan_writes(plan, n, list);
        size_t write_bytes = gv_ranges_encode(list, count, writes);
        *ranges += count;
        status = gv_write_access(writer, &(gv_access_record){.launch = 8,
                                                             .graph = 1,
                                                             .node = n,
                                                             .source = GV_SOURCE_SOFT,
                                                             .reads = {reads, read_bytes},
                                                             .writes = {writes, write_bytes}});
    }
    gv_free(list);
    gv_free(reads);
    gv_free(writes);
    return status;
}

gv_status bench_plan_write(const bench_plan *plan, const char *path, uint64_t *ranges, gv_error *error)
{
    gv_writer *writer;
    gv_status status = gv_writer_create(path, &writer, error);
    if (status)
        return status;
    status = write_definitions(plan, writer);
    if (!status)
        status = write_graph(plan, writer, error);
    if (!status)
        status = write_accesses(plan, writer, ranges, error);
    if (!status)
        status =
            gv_write_armed(writer, &(gv_armed_record){.launch = 8, .exec = 1, .graph = 1, .status = GV_ARMED_COMPLETE});
    if (!status)
        status = gv_write_end(writer, &(gv_end_record){.operations = 8});
    if (gv_writer_failure(writer))
        gv_fail(error, status ? status : GV_ERR_IO, "%s", gv_writer_failure(writer));
    gv_status closed = gv_writer_close(writer);
    return status ? status : closed;
}
