// A made-up decode graph of any size whose races are known beforehand: the input of the benchmarks.
//
// Nodes run on streams; each reads the block its stream wrote last and either an older one or, behind an edge, one of
// another stream, and writes a block from its stream's ring. A block that another stream has read is not used again
// before the next barrier, so that the plan is free of races but for those planted in memory of their own. Node 0
// writes tables that many nodes read; all nodes read weights that none writes.
#ifndef GV_BENCH_PLAN_H
#define GV_BENCH_PLAN_H

#include "base/error.h"
#include "trace/trace.h"

typedef struct bench_shape {
    uint32_t nodes, chains;
    uint32_t edges;           // 0: as they come; else edges between streams are added up to this number
    uint32_t ranges_per_node; // about
    uint32_t races;
    uint64_t seed;
} bench_shape;

// A planted race; the first node was made first.
typedef struct bench_race {
    uint32_t first, second;
    uint8_t first_kind, second_kind; // 1 read, 2 write
    uint64_t bytes;
} bench_race;

typedef struct bench_node {
    uint32_t stream;
    uint32_t output;    // block it writes
    uint32_t inputs[2]; // blocks it reads; UINT32_MAX: none
    bool reads_table;
} bench_node;

typedef struct bench_plan {
    bench_shape shape;
    bench_node *nodes;
    gv_edge *edges;
    size_t edge_count, edge_capacity;
    bench_race *races;
    uint32_t blocks;
    uint32_t rows; // of a block: one range each
} bench_plan;

// The same shape always gives the same plan.
gv_status bench_plan_make(const bench_shape *shape, bench_plan *plan, gv_error *error);
void bench_plan_free(bench_plan *plan);

// Ascending ranges that a node reads or writes, at most bench_plan_most_ranges() of them. Returns how many.
size_t bench_plan_most_ranges(const bench_plan *plan);
size_t bench_plan_reads(const bench_plan *plan, uint32_t node, gv_range *ranges);
size_t bench_plan_writes(const bench_plan *plan, uint32_t node, gv_range *ranges);

// Writes the plan as a trace of one armed launch. Stores how many ranges it holds.
gv_status bench_plan_write(const bench_plan *plan, const char *path, uint64_t *ranges, gv_error *error);

#endif
