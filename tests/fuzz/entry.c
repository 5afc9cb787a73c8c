// See entry.h.
#include "entry.h"

#include "base/memory.h"
#include "trace/codec.h"
#include "trace/reader.h"
#include "trace/trace.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

// A broken promise. abort() is what libFuzzer and cmocka notice.
#define PROMISE(condition)                                                                  \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                        \
        }                                                                                   \
    } while (0)

// Everything that is read is added up here, so that no read is optimised away.
static volatile uint64_t sink;

// ---- Walking a trace ------------------------------------------------------------------------------------------

static void touch(const char *text)
{
    PROMISE(text != NULL);
    sink += strlen(text);
}

static void touch_optional(const char *text)
{
    if (text)
        touch(text);
}

static void touch_bytes(const void *data, size_t size)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++)
        sink += bytes[i];
}

static void touch_numbers(gv_numbers numbers)
{
    touch_bytes(numbers.items, numbers.count * sizeof *numbers.items);
}

static void walk_ranges(gv_bytes encoded)
{
    size_t count = 0, expected;
    uint64_t bytes = 0, expected_bytes, end = 0;
    gv_range range;
    gv_range_cursor cursor = gv_range_cursor_open(encoded);
    while (gv_range_cursor_next(&cursor, &range)) {
        PROMISE(range.start < range.end && (count == 0 || range.start > end));
        end = range.end;
        bytes += range.end - range.start;
        count++;
    }
    PROMISE(!cursor.broken);
    PROMISE(gv_ranges_check(encoded, &expected, &expected_bytes, NULL) == GV_OK);
    PROMISE(count == expected && bytes == expected_bytes);
}

static void walk_tables(const gv_trace *trace)
{
    for (size_t i = 1; i < trace->string_count; i++)
        touch_optional(trace->strings[i]);
    for (size_t i = 1; i < trace->module_count; i++) {
        touch_optional(trace->modules[i].path);
        touch_bytes(trace->modules[i].build_id.data, trace->modules[i].build_id.length);
    }
    for (size_t i = 1; i < trace->stack_count; i++) {
        const gv_stack *stack = &trace->stacks[i];
        for (size_t j = 0; j < stack->host_count; j++) {
            PROMISE(stack->host[j].module < trace->module_count);
            touch_optional(stack->host[j].function);
            touch_optional(stack->host[j].file);
        }
        for (size_t j = 0; j < stack->python_count; j++) {
            touch(stack->python[j].file);
            touch(stack->python[j].function);
        }
    }
    for (size_t i = 1; i < trace->context_count; i++)
        touch_optional(trace->contexts[i].device_name);
    for (size_t i = 1; i < trace->stream_count; i++)
        PROMISE(trace->streams[i].context < trace->context_count && trace->streams[i].kind <= GV_STREAM_THREAD_DEFAULT);
    for (size_t i = 1; i < trace->function_count; i++)
        touch_optional(trace->functions[i].name);
    for (size_t i = 1; i < trace->allocation_count; i++) {
        const gv_allocation *allocation = &trace->allocations[i];
        PROMISE(allocation->context < trace->context_count && allocation->stack < trace->stack_count);
        PROMISE(allocation->size <= UINT64_MAX - allocation->address);
        touch_optional(allocation->name);
        uint64_t held = gv_trace_allocation_at(trace, allocation->address, allocation->born);
        PROMISE(held < trace->allocation_count);
        PROMISE(held || allocation->size == 0 || allocation->died < allocation->born);
    }
}

static void walk_operations(const gv_trace *trace)
{
    for (size_t i = 0; i < trace->operation_count; i++) {
        const gv_operation *operation = &trace->operations[i];
        PROMISE(i == 0 || operation[-1].sequence < operation->sequence);
        PROMISE(gv_trace_operation(trace, operation->sequence) == operation);
        PROMISE(operation->stream < trace->stream_count && operation->stack < trace->stack_count);
        PROMISE(operation->kind <= GV_OP_HOST_ORDER);
        if (operation->kind == GV_OP_KERNEL)
            PROMISE(operation->object < trace->function_count);
        if (operation->kind == GV_OP_ALLOC || operation->kind == GV_OP_FREE)
            PROMISE(operation->object < trace->allocation_count);
        if (operation->kind == GV_OP_CAPTURE_END)
            PROMISE(operation->object < trace->graph_count);
        touch_numbers(operation->detail);
    }
}

static void walk_graphs(const gv_trace *trace)
{
    for (size_t i = 1; i < trace->graph_count; i++) {
        const gv_graph *graph = &trace->graphs[i];
        PROMISE(graph->id == i || (graph->id == 0 && graph->node_count == 0));
        PROMISE(graph->parent < trace->graph_count && graph->stack < trace->stack_count);
        PROMISE(!graph->parent || graph->parent_node < trace->graphs[graph->parent].node_count);
        touch_optional(graph->name);
        size_t above = 0;
        for (uint64_t parent = graph->parent; parent; parent = trace->graphs[parent].parent)
            PROMISE(++above < 100);
        for (size_t j = 0; j < graph->node_count; j++) {
            const gv_node *node = &graph->nodes[j];
            PROMISE(node->function < trace->function_count && node->stack < trace->stack_count);
            PROMISE(node->stream < trace->stream_count && node->context < trace->context_count);
            PROMISE(node->child < trace->graph_count);
            PROMISE(!node->child ||
                    (trace->graphs[node->child].parent == i && trace->graphs[node->child].parent_node == j));
            touch_numbers(node->shape);
            touch_numbers(node->detail);
            size_t bodies;
            const uint64_t *body = gv_node_bodies(node, &bodies);
            for (size_t k = 0; k < bodies; k++)
                PROMISE(!body[k] || (body[k] < trace->graph_count && trace->graphs[body[k]].parent == i &&
                                     trace->graphs[body[k]].parent_node == j));
        }
        for (size_t j = 0; j < graph->edge_count; j++)
            PROMISE(graph->edges[j].from < graph->node_count && graph->edges[j].to < graph->node_count);
    }
    for (size_t i = 0; i < trace->exec_version_count; i++)
        PROMISE(trace->exec_versions[i].graph < trace->graph_count);
}

static void walk_armed(const gv_trace *trace)
{
    size_t rows = 0;
    for (size_t i = 0; i < trace->armed_count; i++) {
        const gv_armed *armed = &trace->armed[i];
        PROMISE(armed->graph < trace->graph_count && armed->node <= trace->graphs[armed->graph].node_count);
        PROMISE(armed->status <= GV_ARMED_FAILED);
        touch(armed->reason);
        PROMISE(armed->first_access + armed->access_count <= trace->access_count);
        for (size_t j = 0; j < armed->access_count; j++)
            PROMISE(trace->accesses[armed->first_access + j].launch == armed->launch);
        PROMISE(armed->first_execution + armed->execution_count <= trace->execution_count);
        for (size_t j = 0; j < armed->execution_count; j++)
            PROMISE(trace->executions[armed->first_execution + j].launch == armed->launch);
        rows += armed->access_count;
    }
    PROMISE(rows == trace->access_count); // every access belongs to exactly one row
    for (size_t i = 0; i < trace->access_count; i++) {
        const gv_access *access = &trace->accesses[i];
        PROMISE(access->graph && access->graph < trace->graph_count);
        PROMISE(access->node < trace->graphs[access->graph].node_count);
        PROMISE(access->source <= GV_SOURCE_CHANGED && access->precision <= GV_PRECISION_INCOMPLETE);
        PROMISE(access->wait <= GV_GRID_WAIT_DONE && access->trigger <= GV_GRID_TRIGGER_LATE);
        touch_optional(access->reason);
        touch_optional(access->wait_reason);
        walk_ranges(access->reads);
        walk_ranges(access->writes);
        walk_ranges(access->atomics);
        walk_ranges(access->early_reads);
        walk_ranges(access->early_writes);
        walk_ranges(access->early_atomics);
    }
    for (size_t i = 0; i < trace->execution_count; i++) {
        const gv_execution *execution = &trace->executions[i];
        PROMISE(execution->parent < execution->id && execution->graph && execution->graph < trace->graph_count);
        PROMISE(i == 0 || execution[-1].launch < execution->launch ||
                (execution[-1].launch == execution->launch && execution[-1].id < execution->id));
    }
    for (size_t i = 0; i < trace->note_count; i++) {
        const gv_note *note = &trace->notes[i];
        touch(note->text);
        PROMISE(note->severity <= GV_NOTE_FAILURE && note->graph < trace->graph_count);
        PROMISE(note->node <= trace->graphs[note->graph].node_count);
    }
}

static void load_and_walk(const uint8_t *data, size_t size)
{
    gv_trace *trace;
    gv_error error = {0};
    gv_status status = gv_trace_load_memory(data, size, "input", &trace, &error);
    if (status != GV_OK) {
        PROMISE(!trace && error.status == status && error.text[0]);
        return;
    }
    touch(trace->path);
    touch_optional(trace->truncation);
    touch_bytes(trace->process.command_line.data, trace->process.command_line.length);
    walk_tables(trace);
    walk_operations(trace);
    walk_graphs(trace);
    walk_armed(trace);
    gv_trace_free(trace);
}

// ---- Reading record by record ---------------------------------------------------------------------------------

// Reads to the end and returns how many records there were.
static size_t read_all(const uint8_t *data, size_t size, gv_reader **reader)
{
    size_t records = 0;
    gv_error error = {0};
    if (gv_reader_open_memory(data, size, reader, &error) != GV_OK) {
        PROMISE(!*reader && error.text[0]);
        return 0;
    }
    gv_record record;
    bool more = true;
    while (gv_reader_next(*reader, &record, &more, &error) == GV_OK && more)
        records++;
    PROMISE(error.status == GV_OK);
    return records;
}

// The part that a reader calls valid must read without damage and end with the numbering that it gave.
static void check_valid_part(const uint8_t *data, size_t size)
{
    gv_reader *reader;
    read_all(data, size, &reader);
    if (!reader)
        return;
    uint64_t valid, sequence, record, valid_again, sequence_again, record_again;
    gv_reader_position(reader, &valid, &sequence, &record);
    PROMISE(valid <= size);
    gv_reader_close(reader);
    if (!sequence)
        return;
    size_t records = read_all(data, valid, &reader);
    PROMISE(reader && !gv_reader_truncation(reader) && records == record);
    gv_reader_position(reader, &valid_again, &sequence_again, &record_again);
    PROMISE(valid_again == valid && sequence_again == sequence && record_again == record);
    gv_reader_close(reader);
}

// What decodes must encode, and decode to the same again.
static void check_round_trip(const uint8_t *data, size_t size)
{
    gv_cbor_cursor cursor = gv_cbor_open(data, size);
    gv_number_pool pool = {0}, pool_again = {0};
    gv_record record, again;
    gv_buffer first = {0}, second = {0};
    while (!gv_cbor_at_end(&cursor) && gv_record_decode(&cursor, &pool, &record, NULL) == GV_OK) {
        if (record.type >= GV_RECORD_TYPE_COUNT)
            continue;
        first.size = second.size = 0;
        gv_record_encode(&first, record.type, &record.frame);
        PROMISE(!first.failed && first.size <= gv_record_bound(record.type, &record.frame));
        gv_cbor_cursor inner = gv_cbor_open(first.data, first.size);
        PROMISE(gv_record_decode(&inner, &pool_again, &again, NULL) == GV_OK && gv_cbor_at_end(&inner));
        gv_record_encode(&second, again.type, &again.frame);
        PROMISE(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    }
    gv_buffer_free(&first);
    gv_buffer_free(&second);
    gv_number_pool_free(&pool);
    gv_number_pool_free(&pool_again);
}

// ---- The entries ----------------------------------------------------------------------------------------------

void gv_fuzz_trace(const uint8_t *data, size_t size)
{
    load_and_walk(data, size);
    check_valid_part(data, size);
}

void gv_fuzz_records(const uint8_t *data, size_t size)
{
    check_round_trip(data, size);
    gv_buffer content = {0}, frame = {0};
    gv_record_encode(&content, GV_RECORD_frame, &(gv_frame_record){.major = GV_TRACE_MAJOR, .minor = GV_TRACE_MINOR});
    gv_buffer_put(&content, data, size);
    PROMISE(gv_buffer_reserve(&frame, ZSTD_compressBound(content.size)) && !content.failed);
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    PROMISE(zstd != NULL);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, -5);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
    frame.size = ZSTD_compress2(zstd, frame.data, frame.capacity, content.data, content.size);
    PROMISE(!ZSTD_isError(frame.size));
    ZSTD_freeCCtx(zstd);
    load_and_walk(frame.data, frame.size);
    check_valid_part(frame.data, frame.size);
    gv_buffer_free(&content);
    gv_buffer_free(&frame);
}
