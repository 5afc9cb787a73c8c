// See test_sample.h.
#include "trace/test_sample.h"

#include "trace/ranges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

const char *scratch(const char *name)
{
    static char paths[4][160];
    static unsigned turn;
    if (!folder[0]) {
        strcpy(folder, "/tmp/gravel-test-XXXXXX");
        assert_non_null(mkdtemp(folder));
        atexit(remove_scratch);
    }
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

void remove_scratch(void)
{
    if (folder[0]) {
        char command[96];
        snprintf(command, sizeof command, "rm -rf '%s'", folder);
        if (system(command) != 0)
            fprintf(stderr, "%s could not be removed\n", folder);
        folder[0] = '\0';
    }
}

file_bytes read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    file_bytes bytes = {.size = (size_t)ftell(file)};
    rewind(file);
    bytes.data = malloc(bytes.size + 1);
    assert_non_null(bytes.data);
    assert_int_equal(fread(bytes.data, 1, bytes.size, file), bytes.size);
    fclose(file);
    return bytes;
}

void write_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static gv_bytes encode(uint8_t *room, const gv_range *ranges, size_t count)
{
    return (gv_bytes){room, gv_ranges_encode(ranges, count, room)};
}

void write_ranges(gv_writer *writer, uint64_t launch, uint64_t graph, uint64_t node, uint64_t address, size_t count)
{
    gv_range *ranges = malloc((count + 1) * sizeof *ranges);
    uint8_t *room = malloc(gv_ranges_encoded_bound(count) + 1);
    assert_true(ranges && room);
    for (size_t i = 0; i < count; i++)
        ranges[i] = (gv_range){address + 64 * i, address + 64 * i + 16};
    gv_access_record access = {.launch = launch, .graph = graph, .node = node, .source = GV_SOURCE_SOFT};
    access.reads = encode(room, ranges, count);
    assert_int_equal(gv_write_access(writer, &access), GV_OK);
    free(ranges);
    free(room);
}

// Every call must succeed.
#define WRITE(name, ...) assert_int_equal(gv_write_##name(writer, &(gv_##name##_record){__VA_ARGS__}), GV_OK)

static void write_definitions(gv_writer *writer)
{
    WRITE(process, .pid = 4242, .ppid = 1, .time_ns = 1, .executable = TEXT("/usr/bin/python3"),
          .command_line = TEXT("python3 serve.py"), .host = TEXT("testhost"), .gravel_version = TEXT("0.1.0"),
          .driver_version = 13000, .driver = TEXT("soft"), .access_source = TEXT("soft"),
          .options = TEXT("--arm first"));
    WRITE(string, .id = 1, .text = TEXT("model.py"));
    WRITE(string, .id = 2, .text = TEXT("forward"));
    WRITE(string, .id = 3, .text = TEXT("TMA copies cannot be seen"));
    WRITE(string, .id = 4, .text = TEXT("launch_decode"));
    WRITE(string, .id = 5, .text = TEXT("engine.c"));
    WRITE(module, .id = 1, .path = TEXT("/opt/engine.so"), .build_id = {(const uint8_t *)"\x12\x34\xab", 3});
    WRITE(stack, .id = 1, .host = NUMBERS(1, 0x1234, 1, 0x99), .python = NUMBERS(1, 2, 77));
    WRITE(stack, .id = 2, .host = NUMBERS(1, 0x1234));
    WRITE(context, .id = 1, .device = 0, .device_name = TEXT("Soft GPU"), .compute_capability = 90);
    WRITE(stream, .id = 1, .context = 1, .kind = GV_STREAM_LEGACY_DEFAULT);
    WRITE(stream, .id = 2, .context = 1, .kind = GV_STREAM_NON_BLOCKING, .priority = 1);
    WRITE(function, .id = 1, .name = TEXT("_Z6decodePf"));
    WRITE(function, .id = 2, .name = TEXT("nvjet_gemm"), .flags = GV_FUNCTION_TENSOR_COPY);
    WRITE(allocation, .id = 1, .address = 0x10000, .size = 0x1000, .context = 1, .stack = 2, .operation = 1,
          .name = TEXT("scratch"));
    WRITE(allocation, .id = 2, .address = 0x20000, .size = 0x1000, .kind = GV_ALLOCATION_ASYNC, .context = 1,
          .operation = 2);
    WRITE(operation, .sequence = 1, .kind = GV_OP_ALLOC, .thread = 4242, .object = 1, .stack = 2);
    WRITE(operation, .sequence = 2, .kind = GV_OP_ALLOC, .thread = 4242, .stream = 2, .object = 2);
    WRITE(operation, .sequence = 3, .kind = GV_OP_FREE, .thread = 4242, .stream = 2, .object = 2);
    WRITE(allocation, .id = 3, .address = 0x20000, .size = 0x800, .kind = GV_ALLOCATION_ASYNC, .context = 1,
          .operation = 4);
    WRITE(operation, .sequence = 4, .kind = GV_OP_ALLOC, .thread = 4242, .stream = 2, .object = 3);
    WRITE(allocation, .id = 4, .address = 0x7f0000, .size = 64, .kind = GV_ALLOCATION_GLOBAL, .context = 1,
          .name = TEXT("counter"));
}

static void write_graphs(gv_writer *writer)
{
    WRITE(operation, .sequence = 5, .kind = GV_OP_CAPTURE_END, .thread = 4242, .stream = 1, .object = 1);
    WRITE(graph, .id = 1, .origin = GV_GRAPH_CAPTURED, .nodes = 5, .edges = 4, .stack = 1, .name = TEXT("decode"));
    WRITE(node, .graph = 1, .index = 0, .kind = GV_NODE_KERNEL, .function = 1, .stack = 1, .stream = 1, .order = 1,
          .shape = NUMBERS(4, 1, 1, 256, 1, 1, 0), .context = 1);
    WRITE(node, .graph = 1, .index = 1, .kind = GV_NODE_KERNEL, .function = 2, .stack = 1, .stream = 2, .order = 2,
          .shape = NUMBERS(4, 1, 1, 256, 1, 1, 1 << 16), .context = 1);
    WRITE(node, .graph = 1, .index = 2, .kind = GV_NODE_MEMSET, .order = 3,
          .detail = NUMBERS(0x10000, 0, 4, 1024, 1, 0));
    WRITE(node, .graph = 1, .index = 3, .kind = GV_NODE_CHILD, .order = 4, .child = 2);
    WRITE(node, .graph = 1, .index = 4, .kind = GV_NODE_EMPTY, .order = 5, .flags = GV_NODE_DISABLED);
    WRITE(edges, .graph = 1, .items = NUMBERS(0, 2, 0, 0, 1, 2, 1, 1));
    WRITE(edges, .graph = 1, .items = NUMBERS(2, 3, 0, 0, 3, 4, 0, 0));
    WRITE(graph, .id = 2, .origin = GV_GRAPH_CHILD, .nodes = 1, .parent = 1, .parent_node = 3);
    WRITE(node, .graph = 2, .index = 0, .kind = GV_NODE_MEMCPY,
          .detail = NUMBERS(0x10000, 0x20000, 256, 1, 1, 0, 0, 0, 0));
    WRITE(exec, .id = 1, .graph = 1, .operation = 6);
    WRITE(operation, .sequence = 6, .kind = GV_OP_INSTANTIATE, .thread = 4242, .object = 1);
}

static void write_launch(gv_writer *writer)
{
    uint8_t room[4][64];
    gv_range read[] = {{0x20000, 0x20100}, {0x20200, 0x20204}}, written[] = {{0x10000, 0x11000}},
             counter[] = {{0x7f0000, 0x7f0008}};
    WRITE(operation, .sequence = 7, .kind = GV_OP_GRAPH_LAUNCH, .thread = 4242, .stream = 1, .object = 1, .stack = 1);
    WRITE(access, .launch = 7, .graph = 1, .node = 0, .source = GV_SOURCE_SOFT, .reads = encode(room[0], read, 2),
          .writes = encode(room[1], written, 1), .atomics = encode(room[2], counter, 1), .duration_ns = 5000,
          .wait = GV_GRID_WAIT_DONE, .trigger = GV_GRID_TRIGGER_LATE, .early_reads = encode(room[3], read, 1));
    WRITE(access, .launch = 7, .graph = 1, .node = 1, .source = GV_SOURCE_SOFT, .precision = GV_PRECISION_INCOMPLETE,
          .reason = 3, .wait_reason = 4);
    WRITE(access, .launch = 7, .graph = 1, .node = 2, .source = GV_SOURCE_PARAMETERS,
          .writes = encode(room[1], written, 1));
    WRITE(access, .launch = 7, .graph = 2, .node = 0, .source = GV_SOURCE_PARAMETERS, .reads = encode(room[0], read, 1),
          .writes = encode(room[1], written, 1));
    WRITE(armed, .launch = 7, .exec = 1, .graph = 1, .duration_ns = 90000);
    WRITE(note, .severity = GV_NOTE_INCOMPLETE, .text = TEXT("one node could not be seen"), .graph = 1, .node = 2,
          .operation = 7);
    WRITE(symbol, .module = 1, .address = 0x1234, .function = 4, .file = 5, .line = 321);
    WRITE(end, .time_ns = 99, .operations = 7);
}

void write_sample(gv_writer *writer)
{
    write_definitions(writer);
    assert_int_equal(gv_writer_flush(writer), GV_OK);
    write_graphs(writer);
    assert_int_equal(gv_writer_flush(writer), GV_OK);
    write_launch(writer);
    assert_int_equal(gv_writer_flush(writer), GV_OK);
}
