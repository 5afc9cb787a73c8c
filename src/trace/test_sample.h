// Sample traces that several tests of this folder use.
#ifndef GV_TRACE_TEST_SAMPLE_H
#define GV_TRACE_TEST_SAMPLE_H

#include "trace/writer.h"

#define TEXT(literal) ((gv_text){literal, sizeof(literal) - 1})
#define NUMBERS(...) \
    ((gv_numbers){(const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)})

// The bytes of a whole file. Fails the test when it cannot be read. Free with free().
typedef struct file_bytes {
    unsigned char *data;
    size_t size;
} file_bytes;
file_bytes read_file(const char *path);
void write_file(const char *path, const void *data, size_t size);

// A name for a file of this test run, below a folder that remove_scratch deletes.
const char *scratch(const char *name);
void remove_scratch(void);

// Writes a complete little trace with every record type but `execution`: two streams, four allocations of which one is
// freed, a captured graph of five nodes with a child graph of one, an armed launch and symbols. Flushes after the
// definitions, after the graphs and at the end: three frames. The writer stays open.
void write_sample(gv_writer *writer);

// One access record with `count` ranges of 16 bytes, 64 apart, from `address` on, into all of reads.
void write_ranges(gv_writer *writer, uint64_t launch, uint64_t graph, uint64_t node, uint64_t address, size_t count);

#endif
