// What the steps of loading a trace share; private to src/trace. load.c reads records into tables, resolve.c checks
// every reference between them, armed.c brings the accesses of each armed launch together, checked.c the differences of
// each checked one, lives.c answers which allocation held an address.
#ifndef GV_TRACE_LOAD_H
#define GV_TRACE_LOAD_H

#include "trace/arena.h"
#include "trace/reader.h"
#include "trace/trace.h"

// Deepest nesting of child graphs and conditional bodies; what is deeper is cut loose and counted as undefined.
enum { GV_GRAPH_NESTING_LIMIT = 32 };

// A table indexed by id: which of its rows were defined.
struct id_table {
    bool *defined;
    size_t defined_capacity, row_capacity;
    size_t count; // rows, the unused row 0 included; 0 as long as there is none
    size_t definitions;
};

// What a graph record announced, and how far its arrays are allocated.
struct graph_growth {
    uint64_t announced_nodes, announced_edges;
    size_t node_capacity, edge_capacity;
};

// What resolves to the texts of an access row: string ids.
struct access_reasons {
    uint64_t precision, wait;
};

// A string that was used before its definition came: looked up once all is read.
struct late_string {
    const char **place;
    uint64_t id;
};

typedef struct gv_loader {
    gv_trace *trace;
    gv_arena *arena;
    gv_reader *reader;
    gv_error *error;
    struct id_table strings, modules, stacks, contexts, streams, functions, allocations, graphs, fixes, regions;
    struct id_table execs; // no rows, only which ids exist
    struct graph_growth *growth;
    size_t growth_capacity;
    gv_symbol_record *symbols;
    size_t symbol_count, symbol_capacity;
    struct late_string *late;
    size_t late_count, late_capacity;
    struct access_reasons *access_reasons; // beside trace->accesses
    size_t reason_capacity;
    size_t operation_capacity, exec_version_capacity, access_capacity, armed_capacity, note_capacity,
        execution_capacity, checked_capacity, difference_capacity, setting_capacity, fix_applied_capacity,
        node_time_capacity;
    size_t perturbed_capacity, effect_capacity, probe_capacity, declared_capacity;
    size_t region_step_capacity, kernel_access_capacity;
} gv_loader;

// Which allocation held which addresses when, sorted by address, as an implicit balanced tree.
struct gv_life_index {
    struct gv_life *lives;
    struct gv_life_bounds *bounds;
    size_t count;
};

struct gv_trace_storage {
    gv_arena arena;
    struct gv_life_index lives;
};

// Each of these fails with GV_ERR_MEMORY only.
gv_status gv_load_records(gv_loader *loader);
gv_status gv_load_resolve(gv_loader *loader);
gv_status gv_load_armed(gv_loader *loader);
void gv_load_checked(gv_loader *loader);
gv_status gv_life_index_build(struct gv_life_index *index, const gv_trace *trace, gv_error *error);

gv_status gv_load_out_of_memory(gv_loader *loader);

// The id when it was defined; else 0, and counts it unless it was 0 already.
uint64_t gv_load_known(gv_loader *loader, const struct id_table *table, uint64_t id);

#endif
