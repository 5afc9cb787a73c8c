// Writes the traces that the tests of the command line read, into the folder named by its argument. Each function
// below is one little program's recording.
#include "trace/ranges.h"
#include "trace/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#define TEXT(literal) ((gv_text){literal, strlen(literal)})
#define NUMBERS(...) \
    ((gv_numbers){(const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)})
#define WRITE(name, ...) check(gv_write_##name(writer, &(gv_##name##_record){__VA_ARGS__}), #name)

static gv_writer *writer;

static void check(gv_status status, const char *what)
{
    if (status != GV_OK) {
        fprintf(stderr, "make_traces: writing %s failed: %s\n", what, gv_status_name(status));
        exit(1);
    }
}

static void begin(const char *path, uint64_t pid, const char *command_line)
{
    gv_error error = {0};
    if (gv_writer_create(path, &writer, &error) != GV_OK) {
        fprintf(stderr, "make_traces: %s\n", error.text);
        exit(1);
    }
    WRITE(process, .pid = pid, .ppid = 1, .time_ns = 1000, .executable = TEXT("/usr/bin/python3.12"),
          .command_line = TEXT(command_line), .host = TEXT("node7"), .gravel_version = TEXT("0.1.0"),
          .driver_version = 13000, .driver = TEXT("cuda 580.159.04"), .access_source = TEXT("sanitizer 13.0.85"),
          .options = TEXT("--arm first"));
    WRITE(context, .id = 1, .device_name = TEXT("NVIDIA H200"), .compute_capability = 90);
    WRITE(stream, .id = 1, .context = 1);
    WRITE(stream, .id = 2, .context = 1, .kind = GV_STREAM_NON_BLOCKING);
}

static void end(uint64_t operations)
{
    WRITE(end, .time_ns = 2000, .operations = operations);
    check(gv_writer_close(writer), "the end");
}

// ---- Stacks and names shared by the recordings ------------------------------------------------------------------

enum {
    STRING_FILE = 1,
    STRING_STEP,
    STRING_INIT,
    STRING_TORCH,
    STRING_CALL,
    STRING_UNSEEN,
    STRING_ENGINE,
    STRING_LAUNCH,
    STRING_NOT_HELD
};
enum { STACK_COPY = 1, STACK_TOPK, STACK_ALLOCATE, STACK_CAPTURE, STACK_HOST, STACK_BARE };
enum { FUNCTION_SCALE = 1, FUNCTION_TOPK, FUNCTION_FILL, FUNCTION_GEMM, FUNCTION_TRITON };

static void definitions(void)
{
    WRITE(string, .id = STRING_FILE, .text = TEXT("/srv/engine/model.py"));
    WRITE(string, .id = STRING_STEP, .text = TEXT("step"));
    WRITE(string, .id = STRING_INIT, .text = TEXT("allocate_buffers"));
    WRITE(string, .id = STRING_TORCH, .text = TEXT("/opt/venv/lib/python3.12/site-packages/torch/_ops.py"));
    WRITE(string, .id = STRING_CALL, .text = TEXT("__call__"));
    WRITE(string, .id = STRING_UNSEEN, .text = TEXT("its code has TMA tensor copies"));
    WRITE(string, .id = STRING_ENGINE, .text = TEXT("/home/dev/engine/decode.c"));
    WRITE(string, .id = STRING_LAUNCH, .text = TEXT("launch_decode"));
    WRITE(string, .id = STRING_NOT_HELD, .text = TEXT("it did not begin beside the kernel in front of it"));
    WRITE(module, .id = 1, .path = TEXT("/home/dev/engine/build/engine"), .build_id = {(const uint8_t *)"\x01\x02", 2});
    WRITE(module, .id = 2, .path = TEXT("/usr/local/cuda/lib64/libcudart.so.13"));
    WRITE(stack, .id = STACK_COPY, .host = NUMBERS(2, 0x100),
          .python = NUMBERS(STRING_TORCH, STRING_CALL, 502, STRING_FILE, STRING_STEP, 12));
    WRITE(stack, .id = STACK_TOPK, .host = NUMBERS(2, 0x100), .python = NUMBERS(STRING_FILE, STRING_STEP, 19));
    WRITE(stack, .id = STACK_ALLOCATE, .python = NUMBERS(STRING_FILE, STRING_INIT, 3));
    WRITE(stack, .id = STACK_CAPTURE, .python = NUMBERS(STRING_FILE, STRING_STEP, 8));
    WRITE(stack, .id = STACK_HOST, .host = NUMBERS(2, 0x100, 1, 0x4321));
    WRITE(stack, .id = STACK_BARE, .host = NUMBERS(2, 0x100, 1, 0x5678));
    WRITE(symbol, .module = 1, .address = 0x4321, .function = STRING_LAUNCH, .file = STRING_ENGINE, .line = 88);
    WRITE(function, .id = FUNCTION_SCALE, .name = TEXT("_Z5scaleIfEvPT_S0_i"));
    WRITE(function, .id = FUNCTION_TOPK, .name = TEXT("_ZN7indexer11topk_kernelEPKfPii"));
    WRITE(function, .id = FUNCTION_FILL,
          .name =
              TEXT("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"));
    WRITE(function, .id = FUNCTION_GEMM, .name = TEXT("nvjet_sm90_tst_128x64_64x8_2x1_v_bz_coopA_TNT"),
          .flags = GV_FUNCTION_TENSOR_COPY);
    WRITE(function, .id = FUNCTION_TRITON, .name = TEXT("triton_add_kernel"));
    WRITE(allocation, .id = 1, .address = 0x7f0000000000, .size = 0x200000, .context = 1, .stack = STACK_ALLOCATE,
          .operation = 1, .name = TEXT("kv_cache"));
    WRITE(operation, .sequence = 1, .kind = GV_OP_ALLOC, .thread = 812, .object = 1, .stack = STACK_ALLOCATE);
    WRITE(allocation, .id = 2, .address = 0x7f0000400000, .size = 0x1000, .kind = GV_ALLOCATION_ASYNC, .context = 1,
          .stack = STACK_HOST, .operation = 2);
    WRITE(operation, .sequence = 2, .kind = GV_OP_ALLOC, .thread = 812, .stream = 2, .object = 2);
    WRITE(operation, .sequence = 3, .kind = GV_OP_FREE, .thread = 812, .stream = 2, .object = 2);
}

static void kernel(uint64_t graph, uint64_t index, uint64_t function, uint64_t stack, uint64_t stream)
{
    WRITE(node, .graph = graph, .index = index, .kind = GV_NODE_KERNEL, .function = function, .stack = stack,
          .stream = stream, .order = index + 1, .shape = NUMBERS(120, 1, 1, 256, 1, 1, 0), .context = 1);
}

// ---- Accesses ---------------------------------------------------------------------------------------------------

static gv_bytes encode(uint8_t *room, uint64_t start, uint64_t bytes)
{
    gv_range range = {start, start + bytes};
    return (gv_bytes){room, bytes ? gv_ranges_encode(&range, 1, room) : 0};
}

static void access_of(uint64_t launch, uint64_t graph, uint64_t node, uint64_t read, uint64_t read_bytes,
                      uint64_t write, uint64_t write_bytes)
{
    uint8_t reads[64], writes[64];
    WRITE(access, .launch = launch, .graph = graph, .node = node, .source = GV_SOURCE_SANITIZER,
          .reads = encode(reads, read, read_bytes), .writes = encode(writes, write, write_bytes), .duration_ns = 5000);
}

static void execution_of(uint64_t launch, uint64_t id, uint64_t body)
{
    WRITE(execution, .launch = launch, .id = id, .graph = body);
}

// 64 bytes of each.
static void in_execution(uint64_t launch, uint64_t graph, uint64_t node, uint64_t execution, uint64_t read,
                         uint64_t write)
{
    uint8_t reads[64], writes[64];
    WRITE(access, .launch = launch, .graph = graph, .node = node, .execution = execution, .source = GV_SOURCE_SANITIZER,
          .reads = encode(reads, read, 64), .writes = encode(writes, write, 64), .duration_ns = 5000);
}

static void unseen(uint64_t launch, uint64_t graph, uint64_t node)
{
    WRITE(access, .launch = launch, .graph = graph, .node = node, .source = GV_SOURCE_SANITIZER,
          .precision = GV_PRECISION_INCOMPLETE, .reason = STRING_UNSEEN);
}

// Instantiates a graph and launches it once: operations `sequence` and `sequence` + 1.
static void launch(uint64_t sequence, uint64_t exec, uint64_t graph)
{
    WRITE(operation, .sequence = sequence, .kind = GV_OP_INSTANTIATE, .thread = 812, .object = exec);
    WRITE(exec, .id = exec, .graph = graph, .operation = sequence);
    WRITE(operation, .sequence = sequence + 1, .kind = GV_OP_GRAPH_LAUNCH, .thread = 812, .stream = 1, .object = exec,
          .stack = STACK_CAPTURE);
}

#define BUFFER UINT64_C(0x7f0000001000)
#define OTHER  UINT64_C(0x7f0000100000)

// ---- The recordings ---------------------------------------------------------------------------------------------

// Two branches that fork and join and share nothing.
static void write_clean(uint64_t pid, const char *command_line, const char *path)
{
    begin(path, pid, command_line);
    definitions();
    WRITE(graph, .id = 1, .origin = GV_GRAPH_CAPTURED, .nodes = 4, .edges = 4, .stack = STACK_CAPTURE);
    kernel(1, 0, FUNCTION_SCALE, STACK_COPY, 1);
    kernel(1, 1, FUNCTION_SCALE, STACK_COPY, 1);
    kernel(1, 2, FUNCTION_TOPK, STACK_TOPK, 2);
    kernel(1, 3, FUNCTION_SCALE, STACK_COPY, 1);
    WRITE(edges, .graph = 1, .items = NUMBERS(0, 1, 0, 0, 0, 2, 0, 0, 1, 3, 0, 0, 2, 3, 0, 0));
    launch(4, 1, 1);
    access_of(5, 1, 0, 0, 0, BUFFER, 4096);
    access_of(5, 1, 1, BUFFER, 4096, OTHER, 1024);
    access_of(5, 1, 2, BUFFER, 4096, OTHER + 0x10000, 1024);
    access_of(5, 1, 3, OTHER, 1024, BUFFER, 4096);
    WRITE(armed, .launch = 5, .exec = 1, .graph = 1, .duration_ns = 90000);
}

// The same without the edge that lets the last kernel wait for the side branch, which still reads what it overwrites.
static void racing(const char *path)
{
    begin(path, 812, "python serve.py --port 30000");
    definitions();
    WRITE(graph, .id = 1, .origin = GV_GRAPH_CAPTURED, .nodes = 4, .edges = 3, .stack = STACK_CAPTURE,
          .name = TEXT("decode"));
    kernel(1, 0, FUNCTION_SCALE, STACK_COPY, 1);
    kernel(1, 1, FUNCTION_TRITON, STACK_COPY, 1);
    kernel(1, 2, FUNCTION_TOPK, STACK_TOPK, 2);
    kernel(1, 3, FUNCTION_FILL, STACK_COPY, 1);
    WRITE(edges, .graph = 1, .items = NUMBERS(0, 1, 0, 0, 0, 2, 0, 0, 1, 3, 0, 0));
    check(gv_writer_flush(writer), "a frame");
    launch(4, 1, 1);
    access_of(5, 1, 0, 0, 0, BUFFER, 4096);
    access_of(5, 1, 1, BUFFER, 4096, OTHER, 1024);
    access_of(5, 1, 2, BUFFER, 4096, OTHER + 0x10000, 1024);
    access_of(5, 1, 3, OTHER, 1024, BUFFER + 2048, 2048);
    WRITE(armed, .launch = 5, .exec = 1, .graph = 1, .duration_ns = 90000);
}

static void write_race(const char *path, bool ended)
{
    racing(path);
    if (ended)
        end(5);
    else
        check(gv_writer_close(writer), "a trace without an end");
}

// Launches of that graph compared with serial replays: equal; with other values at the racing reader and at a node that
// is not deterministic; with another node alone; and two that could not be compared.
static void write_diffs(const char *path)
{
    static const float graph[] = {1.5f, 2.0f}, serial[] = {1.5f, 2.25f};
    uint8_t room[4][16];
    racing(path);
    WRITE(setting, .kind = GV_SETTING_DIFF, .value = TEXT("every=1"));
    WRITE(setting, .kind = GV_SETTING_DTYPE, .name = TEXT("topk"), .value = TEXT("f32"));
    for (uint64_t sequence = 6; sequence <= 10; sequence++)
        WRITE(operation, .sequence = sequence, .kind = GV_OP_GRAPH_LAUNCH, .thread = 812, .stream = 1, .object = 1);
    WRITE(checked, .launch = 6, .exec = 1, .graph = 1, .duration_ns = 9000000, .graph_ns = 1500000,
          .serial_ns = 1200000, .replays = 2, .saved_bytes = 0x300000);
    WRITE(difference, .launch = 7, .graph = 1, .node = 3, .position = 2, .bytes = 1, .range_count = 1,
          .ranges = encode(room[0], OTHER + 0x10006, 1), .value_ranges = encode(room[1], OTHER + 0x10000, 8),
          .graph_values = {(const uint8_t *)graph, 8}, .serial_values = {(const uint8_t *)serial, 8});
    WRITE(difference, .launch = 7, .graph = 1, .node = 2, .position = 3, .bytes = 8, .unstable = 4, .range_count = 1,
          .ranges = encode(room[2], OTHER, 8));
    WRITE(checked, .launch = 7, .exec = 1, .graph = 1, .duration_ns = 12000000, .graph_ns = 1500000,
          .serial_ns = 1200000, .replays = 4, .saved_bytes = 0x300000, .different_bytes = 9, .unstable_bytes = 4,
          .ignored_bytes = 16, .nodes = 2, .order = 3);
    WRITE(difference, .launch = 8, .graph = 1, .node = 2, .position = 3, .bytes = 8, .unstable = 4, .range_count = 1,
          .ranges = encode(room[3], OTHER, 8));
    WRITE(checked, .launch = 8, .exec = 1, .graph = 1, .duration_ns = 12000000, .graph_ns = 1500000,
          .serial_ns = 1200000, .replays = 3, .saved_bytes = 0x300000, .different_bytes = 8, .unstable_bytes = 4,
          .nodes = 1, .order = 4);
    for (uint64_t sequence = 9; sequence <= 10; sequence++)
        WRITE(checked, .launch = sequence, .exec = 1, .graph = 1, .status = GV_CHECKED_NOT_COMPARED,
              .reason = TEXT("inputs changed during the check: memory changed that no node of the graph writes"));
    end(10);
}

// A forgotten join: seven kernels of the main stream read what ten of the side stream write.
static void write_group(const char *path)
{
    begin(path, 812, "python serve.py");
    definitions();
    WRITE(graph, .id = 1, .origin = GV_GRAPH_CAPTURED, .nodes = 18, .edges = 17, .stack = STACK_CAPTURE);
    uint64_t items[17 * 4] = {0};
    size_t edge = 0;
    kernel(1, 0, FUNCTION_SCALE, STACK_COPY, 1);
    for (uint64_t i = 1; i < 18; i++) {
        bool main_stream = i < 8;
        uint64_t side_kernel = i < 17 ? FUNCTION_TOPK : FUNCTION_TRITON;
        kernel(1, i, main_stream ? FUNCTION_SCALE : side_kernel, main_stream ? STACK_COPY : STACK_TOPK,
               main_stream ? 1 : 2);
        items[4 * edge] = i == 8 ? 0 : i - 1;
        items[4 * edge + 1] = i;
        edge++;
    }
    WRITE(edges, .graph = 1, .items = {items, 4 * edge});
    launch(4, 1, 1);
    access_of(5, 1, 0, 0, 0, OTHER, 64);
    for (uint64_t i = 1; i < 18; i++) {
        if (i < 8)
            access_of(5, 1, i, BUFFER, 1024, OTHER + 4096 * i, 64);
        else
            access_of(5, 1, i, OTHER, 64, BUFFER, 1024);
    }
    WRITE(armed, .launch = 5, .exec = 1, .graph = 1, .duration_ns = 90000);
    end(5);
}

// Matrix products whose tensor copies nobody sees, and a pair that only a programmatic edge orders.
static void write_incomplete(const char *path)
{
    begin(path, 812, "python serve.py");
    definitions();
    WRITE(graph, .id = 1, .origin = GV_GRAPH_CAPTURED, .nodes = 10, .edges = 9, .stack = STACK_CAPTURE);
    uint64_t items[9 * 4] = {0};
    for (uint64_t i = 0; i < 10; i++)
        kernel(1, i, i % 2 ? FUNCTION_GEMM : FUNCTION_SCALE, STACK_COPY, 1);
    for (uint64_t i = 0; i < 9; i++) {
        items[4 * i] = i;
        items[4 * i + 1] = i + 1;
    }
    WRITE(edges, .graph = 1, .items = {items, 36});
    launch(4, 1, 1);
    for (uint64_t i = 0; i < 10; i++) {
        if (i % 2)
            unseen(5, 1, i);
        else
            access_of(5, 1, i, BUFFER, 64, OTHER + 4096 * i, 64);
    }
    WRITE(armed, .launch = 5, .exec = 1, .graph = 1, .duration_ns = 90000);
    WRITE(graph, .id = 2, .origin = GV_GRAPH_CAPTURED, .nodes = 2, .edges = 1, .stack = STACK_CAPTURE);
    kernel(2, 0, FUNCTION_SCALE, STACK_COPY, 1);
    kernel(2, 1, FUNCTION_TRITON, STACK_TOPK, 1);
    WRITE(edges, .graph = 2, .items = NUMBERS(0, 1, 1, 1));
    launch(6, 2, 2);
    access_of(7, 2, 0, 0, 0, BUFFER, 64);
    access_of(7, 2, 1, BUFFER, 64, OTHER, 64);
    WRITE(armed, .launch = 7, .exec = 2, .graph = 2, .duration_ns = 90000);
    end(7);
}

// Programmatic edges from one kernel to four: one waits first, one reads some of the bytes before its wait, one does
// not wait, and of one it was not observed. A sixth kernel relies on the one that does not wait.
static void write_waits(const char *path)
{
    enum { GRAPH = 1, LAUNCH = 5 };
    begin(path, 812, "python serve.py");
    definitions();
    WRITE(graph, .id = GRAPH, .origin = GV_GRAPH_CAPTURED, .nodes = 6, .edges = 5, .stack = STACK_CAPTURE);
    kernel(GRAPH, 0, FUNCTION_FILL, STACK_COPY, 1);
    for (uint64_t i = 1; i < 6; i++)
        kernel(GRAPH, i, i == 5 ? FUNCTION_TOPK : FUNCTION_SCALE, STACK_TOPK, i == 5 ? 2 : 1);
    WRITE(edges, .graph = GRAPH, .items = NUMBERS(0, 1, 1, 1, 0, 2, 1, 1, 0, 3, 1, 1, 0, 4, 1, 1, 3, 5, 0, 0));
    launch(LAUNCH - 1, 1, GRAPH);
    uint8_t reads[64], writes[64], early[64];
    access_of(LAUNCH, GRAPH, 0, 0, 0, BUFFER, 1024);
    for (uint64_t i = 1; i < 5; i++)
        WRITE(access, .launch = LAUNCH, .graph = GRAPH, .node = i, .source = GV_SOURCE_SANITIZER,
              .reads = encode(reads, BUFFER, 1024), .writes = encode(writes, OTHER + 4096 * i, 64),
              .wait = i == 3   ? GV_GRID_WAIT_NONE
                      : i == 4 ? GV_GRID_WAIT_UNKNOWN
                               : GV_GRID_WAIT_DONE,
              .trigger = i < 3 ? i == 1 ? GV_GRID_TRIGGER_EARLY : GV_GRID_TRIGGER_LATE : 0,
              .early_reads = encode(early, BUFFER, i == 2 ? 256 : 0), .wait_reason = i == 4 ? STRING_NOT_HELD : 0);
    access_of(LAUNCH, GRAPH, 5, BUFFER, 512, OTHER, 64);
    WRITE(armed, .launch = LAUNCH, .exec = 1, .graph = GRAPH, .duration_ns = 90000);
    end(LAUNCH);
}

// Four graphs: one with two copies that write the same row, one that could not be run node by node, one that was never
// armed, and one whose armed replay failed. C code without Python.
static void write_several(const char *path)
{
    begin(path, 812, "./engine --decode");
    definitions();
    WRITE(graph, .id = 1, .origin = GV_GRAPH_BUILT, .nodes = 3, .edges = 2, .stack = STACK_HOST);
    WRITE(node, .graph = 1, .index = 0, .kind = GV_NODE_EMPTY, .order = 1);
    WRITE(node, .graph = 1, .index = 1, .kind = GV_NODE_MEMCPY, .stack = STACK_HOST, .order = 2,
          .detail = NUMBERS(BUFFER, OTHER, 512, 1, 1, 0, 0, 0, 0));
    WRITE(node, .graph = 1, .index = 2, .kind = GV_NODE_MEMSET, .stack = STACK_BARE, .order = 3,
          .detail = NUMBERS(BUFFER + 508, 0, 4, 256, 1, 0));
    WRITE(edges, .graph = 1, .items = NUMBERS(0, 1, 0, 0, 0, 2, 0, 0));
    launch(4, 1, 1);
    uint8_t reads[64], writes[64];
    WRITE(access, .launch = 5, .graph = 1, .node = 0);
    WRITE(access, .launch = 5, .graph = 1, .node = 1, .source = GV_SOURCE_PARAMETERS,
          .reads = encode(reads, OTHER, 512), .writes = encode(writes, BUFFER, 512));
    WRITE(access, .launch = 5, .graph = 1, .node = 2, .source = GV_SOURCE_PARAMETERS,
          .writes = encode(writes, BUFFER + 508, 1024));
    WRITE(armed, .launch = 5, .exec = 1, .graph = 1, .duration_ns = 90000);

    for (uint64_t graph = 2; graph < 5; graph++) {
        WRITE(graph, .id = graph, .origin = GV_GRAPH_CAPTURED, .nodes = 2, .edges = 1, .stack = STACK_BARE);
        kernel(graph, 0, FUNCTION_SCALE, STACK_HOST, 1);
        kernel(graph, 1, FUNCTION_TOPK, STACK_BARE, 1);
        WRITE(edges, .graph = graph, .items = NUMBERS(0, 1, 0, 0));
        launch(4 + 2 * (graph - 1), graph, graph);
    }
    WRITE(armed, .launch = 7, .exec = 2, .graph = 2, .status = GV_ARMED_REFUSED,
          .reason = TEXT("it allocates memory (node #0)"), .node = 1);
    access_of(11, 4, 0, 0, 0, BUFFER, 64);
    WRITE(armed, .launch = 11, .exec = 4, .graph = 4, .status = GV_ARMED_FAILED,
          .reason = TEXT("the node made no progress for 10 s"), .node = 2);
    WRITE(note, .severity = GV_NOTE_FAILURE, .text = TEXT("recording was switched off after this"), .graph = 4,
          .node = 2);
    WRITE(note, .severity = GV_NOTE_INFO, .text = TEXT("4 modules were patched"));
    end(11);
}

// One bucket: a matrix product that nobody sees, a fill that nobody sees, a pair that only a programmatic edge orders.
// `more` appends another product; `racing` appends a kernel on a side stream that overwrites what the pair works on.
static uint64_t bucket(uint64_t graph, const char *name, uint64_t more, bool racing)
{
    uint64_t nodes = 4 + more + racing;
    WRITE(graph, .id = graph, .origin = GV_GRAPH_CAPTURED, .nodes = nodes, .edges = 3 + more, .stack = STACK_CAPTURE,
          .name = TEXT(name));
    kernel(graph, 0, FUNCTION_SCALE, STACK_COPY, 1);
    kernel(graph, 1, FUNCTION_GEMM, STACK_COPY, 1);
    kernel(graph, 2, FUNCTION_TRITON, STACK_TOPK, 1);
    kernel(graph, 3, FUNCTION_FILL, STACK_COPY, 1);
    if (more)
        kernel(graph, 4, FUNCTION_GEMM, STACK_COPY, 1);
    if (racing)
        kernel(graph, nodes - 1, FUNCTION_TOPK, STACK_TOPK, 2);
    WRITE(edges, .graph = graph,
          .items = {(const uint64_t[]){0, 1, 0, 0, 0, 2, 1, 1, 1, 3, 0, 0, 3, 4, 0, 0}, 4 * (3 + more)});
    return nodes;
}

// As an engine captures its batch sizes: seven graphs of three structures that lack the same, two of which race, three
// that were not armed, two of them of one structure, one that is not known, and a note that is about no graph.
static void write_buckets(const char *path)
{
    static const char *const names[] = {"bs 64", "bs 32", "bs 16", "bs 8", "bs 4", "bs 2", "bs 1"};
    begin(path, 812, "python serve.py");
    definitions();
    uint64_t sequence = 4;
    for (uint64_t graph = 1; graph <= 7; graph++, sequence += 2) {
        bool racing = graph == 1 || graph == 4;
        uint64_t nodes = bucket(graph, names[graph - 1], graph <= 3, racing);
        launch(sequence, graph, graph);
        access_of(sequence + 1, graph, 0, 0, 0, BUFFER, 64);
        access_of(sequence + 1, graph, 2, BUFFER, 64, OTHER, 64);
        for (uint64_t node = 1; node < nodes - racing; node += node == 1 ? 2 : 1)
            unseen(sequence + 1, graph, node);
        if (racing)
            access_of(sequence + 1, graph, nodes - 1, 0, 0, BUFFER + 32, 32);
        WRITE(armed, .launch = sequence + 1, .exec = graph, .graph = graph, .duration_ns = 90000);
    }
    for (uint64_t graph = 8; graph <= 10; graph++, sequence += 2) {
        bucket(graph, "", graph == 10, false);
        launch(sequence, graph, graph);
    }
    WRITE(operation, .sequence = sequence, .kind = GV_OP_GRAPH_LAUNCH, .thread = 812, .stream = 1, .object = 99);
    WRITE(note, .severity = GV_NOTE_INCOMPLETE, .text = TEXT("work of a green context was not recorded"));
    end(sequence);
}

// A graph within a graph, with the race inside.
static void write_child(const char *path)
{
    begin(path, 812, "python serve.py");
    definitions();
    WRITE(graph, .id = 1, .origin = GV_GRAPH_CAPTURED, .nodes = 2, .edges = 1, .stack = STACK_CAPTURE);
    kernel(1, 0, FUNCTION_SCALE, STACK_COPY, 1);
    WRITE(node, .graph = 1, .index = 1, .kind = GV_NODE_CHILD, .order = 2, .child = 2, .stack = STACK_TOPK);
    WRITE(edges, .graph = 1, .items = NUMBERS(0, 1, 0, 0));
    WRITE(graph, .id = 2, .origin = GV_GRAPH_CHILD, .nodes = 2, .parent = 1, .parent_node = 1);
    kernel(2, 0, FUNCTION_TOPK, STACK_TOPK, 1);
    kernel(2, 1, FUNCTION_TRITON, STACK_COPY, 2);
    launch(4, 1, 1);
    access_of(5, 1, 0, 0, 0, OTHER, 64);
    access_of(5, 2, 0, 0, 0, BUFFER, 128);
    access_of(5, 2, 1, BUFFER + 64, 64, OTHER + 4096, 64);
    WRITE(armed, .launch = 5, .exec = 1, .graph = 1, .duration_ns = 90000);
    end(5);
}

// A branch and a loop. The branch's else body never ran; an iteration of the loop races with what stands beside it. One
// more graph was refused, and one never armed.
static void write_bodies(const char *path)
{
    begin(path, 812, "python serve.py");
    definitions();
    WRITE(graph, .id = 1, .origin = GV_GRAPH_CAPTURED, .nodes = 5, .edges = 3, .stack = STACK_CAPTURE,
          .name = TEXT("decode"));
    kernel(1, 0, FUNCTION_SCALE, STACK_COPY, 1);
    WRITE(node, .graph = 1, .index = 1, .kind = GV_NODE_CONDITIONAL, .order = 2, .child = 2, .stack = STACK_TOPK,
          .detail = NUMBERS(0, 0x100, 0, 1, 2, 3)); // IF with else
    WRITE(node, .graph = 1, .index = 2, .kind = GV_NODE_CONDITIONAL, .order = 3, .child = 4, .stack = STACK_TOPK,
          .detail = NUMBERS(1, 0x200, 1, 1, 4)); // WHILE
    kernel(1, 3, FUNCTION_TOPK, STACK_TOPK, 2);
    WRITE(node, .graph = 1, .index = 4, .kind = GV_NODE_EMPTY, .order = 5);
    WRITE(edges, .graph = 1, .items = NUMBERS(0, 1, 0, 0, 1, 2, 0, 0, 2, 4, 0, 0));
    for (uint64_t body = 2; body <= 4; body++) {
        WRITE(graph, .id = body, .origin = GV_GRAPH_BODY, .nodes = 2, .edges = 1, .parent = 1,
              .parent_node = body == 4 ? 2 : 1);
        kernel(body, 0, body == 3 ? FUNCTION_GEMM : FUNCTION_SCALE, STACK_COPY, 1);
        kernel(body, 1, FUNCTION_TRITON, STACK_COPY, 1);
        WRITE(edges, .graph = body, .items = NUMBERS(0, 1, 0, 0));
    }
    launch(4, 1, 1);
    access_of(5, 1, 0, 0, 0, BUFFER, 64);
    access_of(5, 1, 3, OTHER + 0x2000, 64, BUFFER + 0x3000, 64);
    execution_of(5, 1, 2);
    in_execution(5, 2, 0, 1, BUFFER, OTHER);
    in_execution(5, 2, 1, 1, OTHER, BUFFER + 0x1000);
    for (uint64_t iteration = 2; iteration <= 4; iteration++) {
        execution_of(5, iteration, 4);
        in_execution(5, 4, 0, iteration, BUFFER, OTHER + 0x800 * iteration);
        in_execution(5, 4, 1, iteration, OTHER + 0x800 * iteration, BUFFER + 0x2000);
    }
    WRITE(armed, .launch = 5, .exec = 1, .graph = 1, .duration_ns = 90000);
    for (uint64_t graph = 5; graph <= 6; graph++) {
        WRITE(graph, .id = graph, .origin = GV_GRAPH_CAPTURED, .nodes = 2, .edges = 1, .stack = STACK_HOST);
        kernel(graph, 0, FUNCTION_SCALE, STACK_COPY, 1);
        kernel(graph, 1, graph == 5 ? FUNCTION_TOPK : FUNCTION_TRITON, STACK_TOPK, 1);
        WRITE(edges, .graph = graph, .items = NUMBERS(0, 1, 0, 0));
    }
    launch(6, 2, 5);
    WRITE(armed, .launch = 7, .exec = 2, .graph = 5, .status = GV_ARMED_REFUSED,
          .reason = TEXT("a kernel of it launches graphs from the device"));
    launch(8, 3, 6);
    end(9);
}

// A pair with many ranges of all three kinds, atomics on one side, and accesses known as an upper bound on the other.
// A child graph that was launched by itself, as far as the trace tells, of a graph of which a node is missing.
static void write_lost(const char *path)
{
    begin(path, 812, "python serve.py");
    definitions();
    WRITE(graph, .id = 1, .origin = GV_GRAPH_CAPTURED, .nodes = 2, .edges = 0);
    WRITE(node, .graph = 1, .index = 0, .kind = GV_NODE_CHILD, .order = 1, .child = 2, .stack = STACK_TOPK);
    WRITE(graph, .id = 2, .origin = GV_GRAPH_CHILD, .nodes = 2, .parent = 1, .parent_node = 0, .stack = STACK_CAPTURE);
    kernel(2, 0, FUNCTION_TOPK, STACK_TOPK, 1);
    kernel(2, 1, FUNCTION_TRITON, STACK_COPY, 2);
    launch(4, 1, 2);
    access_of(5, 2, 0, 0, 0, BUFFER, 128);
    access_of(5, 2, 1, BUFFER + 64, 64, OTHER + 4096, 64);
    WRITE(armed, .launch = 5, .exec = 1, .graph = 2, .duration_ns = 90000);
    end(5);
}

// A graph put together by hand, whose edges run against the order of making: 0 before 2 and 1 before 3, as they were
// made, cannot both be had. Its memory is PyTorch's.
static void write_built(const char *path)
{
    const uint64_t block = 0x7f0001000000;
    begin(path, 812, "python serve.py");
    definitions();
    WRITE(module, .id = 3, .path = TEXT("/opt/venv/lib/python3.12/site-packages/torch/lib/libc10_cuda.so"));
    WRITE(stack, .id = 20, .host = NUMBERS(3, 0x100), .python = NUMBERS(STRING_FILE, STRING_STEP, 5));
    WRITE(allocation, .id = 3, .address = block, .size = 0x200000, .context = 1, .stack = 20, .operation = 4);
    WRITE(operation, .sequence = 4, .kind = GV_OP_ALLOC, .thread = 812, .object = 3);
    WRITE(graph, .id = 1, .origin = GV_GRAPH_BUILT, .nodes = 4, .edges = 2, .stack = STACK_CAPTURE);
    for (uint64_t i = 0; i < 4; i++)
        kernel(1, i, i % 2 ? FUNCTION_TRITON : FUNCTION_TOPK, STACK_TOPK, 0);
    WRITE(edges, .graph = 1, .items = NUMBERS(2, 1, 0, 0, 3, 0, 0, 0));
    WRITE(exec, .id = 1, .graph = 1, .operation = 5);
    launch(6, 1, 1);
    access_of(6, 1, 0, block, 512, 0, 0);
    access_of(6, 1, 2, 0, 0, block, 512);
    access_of(6, 1, 1, block + 4096, 64, 0, 0);
    access_of(6, 1, 3, 0, 0, block + 4096, 64);
    WRITE(armed, .launch = 6, .exec = 1, .graph = 1, .duration_ns = 50000);
    end(6);
}

static void write_ranges(const char *path)
{
    begin(path, 812, "python serve.py");
    definitions();
    WRITE(graph, .id = 1, .origin = GV_GRAPH_UPDATED, .nodes = 2, .stack = STACK_CAPTURE);
    kernel(1, 0, FUNCTION_SCALE, STACK_COPY, 1);
    kernel(1, 1, FUNCTION_TRITON, STACK_TOPK, 2);
    launch(4, 1, 1);
    gv_range even[6], odd[6], all = {BUFFER, BUFFER + 0x600};
    for (uint64_t i = 0; i < 6; i++) {
        even[i] = (gv_range){BUFFER + 0x100 * i, BUFFER + 0x100 * i + 64};
        odd[i] = (gv_range){BUFFER + 0x100 * i + 128, BUFFER + 0x100 * i + 132};
    }
    uint8_t reads[128], writes[128], atomics[128];
    WRITE(access, .launch = 5, .graph = 1, .node = 0, .source = GV_SOURCE_SANITIZER,
          .reads = {reads, gv_ranges_encode(even, 6, reads)}, .atomics = {atomics, gv_ranges_encode(odd, 6, atomics)});
    WRITE(access, .launch = 5, .graph = 1, .node = 1, .source = GV_SOURCE_COMPARED, .reason = STRING_UNSEEN,
          .writes = {writes, gv_ranges_encode(&all, 1, writes)});
    WRITE(armed, .launch = 5, .exec = 1, .graph = 1, .duration_ns = 90000);
    end(5);
}

// Three unordered kernels: one writes a tensor that the second has a map of, and all of a pool that the third may use.
static void write_extents(const char *path)
{
    begin(path, 812, "python serve.py");
    definitions();
    WRITE(graph, .id = 1, .origin = GV_GRAPH_CAPTURED, .nodes = 3, .stack = STACK_CAPTURE);
    kernel(1, 0, FUNCTION_SCALE, STACK_COPY, 1);
    kernel(1, 1, FUNCTION_TRITON, STACK_TOPK, 2);
    kernel(1, 2, FUNCTION_TRITON, STACK_TOPK, 2);
    launch(4, 1, 1);
    gv_range tensor = {BUFFER, BUFFER + 0x200}, pool = {BUFFER, BUFFER + 0x4000};
    uint8_t tensors[32], pools[32];
    gv_bytes of_tensor = {tensors, gv_ranges_encode(&tensor, 1, tensors)};
    gv_bytes of_pool = {pools, gv_ranges_encode(&pool, 1, pools)};
    WRITE(access, .launch = 5, .graph = 1, .node = 0, .source = GV_SOURCE_SANITIZER, .writes = of_tensor);
    WRITE(access, .launch = 5, .graph = 1, .node = 1, .source = GV_SOURCE_TENSOR_MAP, .precision = GV_PRECISION_EXTENT,
          .reason = STRING_UNSEEN, .reads = of_tensor, .writes = of_tensor);
    WRITE(access, .launch = 5, .graph = 1, .node = 2, .source = GV_SOURCE_REACHED, .precision = GV_PRECISION_EXTENT,
          .reason = STRING_UNSEEN, .reads = of_pool, .writes = of_pool);
    WRITE(armed, .launch = 5, .exec = 1, .graph = 1, .duration_ns = 90000);
    end(5);
}

// Names that would steer a terminal or break JSON if they were passed on as they are.
static void write_hostile(const char *path)
{
    begin(path, 812, "python \x1b]0;owned\x07 serve.py");
    definitions();
    WRITE(string, .id = 20, .text = TEXT("/srv/\xff\xfe/mo\"del\n.py"));
    WRITE(stack, .id = 20, .python = NUMBERS(20, 20, 1));
    WRITE(function, .id = 20, .name = TEXT("\x1b[31mred\x1b[0m"));
    WRITE(graph, .id = 1, .origin = GV_GRAPH_CAPTURED, .nodes = 2, .stack = 20, .name = TEXT("a\tb\xc2\x9b"));
    kernel(1, 0, 20, 20, 1);
    kernel(1, 1, 20, 20, 2);
    launch(4, 1, 1);
    access_of(5, 1, 0, 0, 0, BUFFER, 1);
    access_of(5, 1, 1, 0, 0, BUFFER, 1);
    WRITE(armed, .launch = 5, .exec = 1, .graph = 1, .duration_ns = 90000);
    end(5);
}

// A program that used CUDA without graphs.
static void write_no_graphs(const char *path)
{
    begin(path, 812, "python warm_up.py");
    definitions();
    end(3);
}

// Copies all but the last bytes of a file, as a kill in the middle of a write leaves it.
static void cut(const char *from, const char *to, long missing)
{
    static char bytes[1 << 20];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t length = in ? fread(bytes, 1, sizeof bytes, in) : 0;
    if (!out || length <= (size_t)missing || fwrite(bytes, 1, length - (size_t)missing, out) == 0) {
        fprintf(stderr, "make_traces: %s could not be cut to %s\n", from, to);
        exit(1);
    }
    fclose(in);
    fclose(out);
}

// A frame of trace format 2: CBOR [0, {1: 2, 2: 0, 3: 812}], compressed as the writer does.
static void write_later_version(const char *path)
{
    static const unsigned char record[] = {0x82, 0x00, 0xa3, 0x01, 0x02, 0x02, 0x00, 0x03, 0x19, 0x03, 0x2c};
    unsigned char frame[256];
    ZSTD_CCtx *context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    size_t length = ZSTD_compress2(context, frame, sizeof frame, record, sizeof record);
    ZSTD_freeCCtx(context);
    FILE *file = fopen(path, "wb");
    if (ZSTD_isError(length) || !file || fwrite(frame, 1, length, file) != length) {
        fprintf(stderr, "make_traces: %s could not be written\n", path);
        exit(1);
    }
    fclose(file);
}

int main(int argc, char **argv)
{
    if (argc != 2 || (mkdir(argv[1], 0777) != 0 && access(argv[1], W_OK) != 0) || chdir(argv[1]) != 0) {
        fprintf(stderr, "usage: make_traces FOLDER\n");
        return 1;
    }
    write_clean(812, "python serve.py --port 30000", "clean.gravel");
    end(5);
    write_clean(813, "python serve.py --rank 1", "rank.gravel");
    end(5);
    write_race("race.gravel", true);
    write_race("killed.gravel", false);
    write_diffs("diffs.gravel");
    write_group("group.gravel");
    write_incomplete("incomplete.gravel");
    write_waits("waits.gravel");
    write_several("several.gravel");
    write_buckets("buckets.gravel");
    write_child("child.gravel");
    write_bodies("bodies.gravel");
    write_built("built.gravel");
    write_lost("lost.gravel");
    write_ranges("ranges.gravel");
    write_extents("extents.gravel");
    write_hostile("hostile.gravel");
    write_no_graphs("no-graphs.gravel");
    cut("race.gravel", "truncated.gravel", 20);
    write_later_version("later.gravel");
    return 0;
}
