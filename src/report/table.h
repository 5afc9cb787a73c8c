// Rows that come out either as a table for people or as JSON objects, from one description of the columns.
#ifndef GV_REPORT_TABLE_H
#define GV_REPORT_TABLE_H

#include "base/error.h"
#include "report/json_writer.h"
#include "report/stack.h"

typedef struct gv_column {
    const char *key;   // in JSON
    const char *title; // in the table; NULL: the column is in JSON only
    bool right;        // aligned right: numbers
} gv_column;

typedef struct gv_table {
    const gv_column *columns;
    size_t column_count;
    gv_json *json; // not NULL: rows are written there at once
    char **cells;  // row by row, owned
    size_t cell_count, cell_capacity;
    size_t column; // where the next cell goes
    gv_string scratch;
    bool failed;
} gv_table;

// `json`, when given, must be inside an open array.
void gv_table_open(gv_table *table, const gv_column *columns, size_t column_count, gv_json *json);

// One cell after the other; a row begins by itself after the last column.
void gv_table_text(gv_table *table, const char *text);    // NULL or "": "-" and null
void gv_table_id(gv_table *table, uint64_t id);           // 0: "-" and null
void gv_table_index(gv_table *table, uint64_t number);    // 7
void gv_table_amount(gv_table *table, uint64_t number);   // 2,048
void gv_table_some(gv_table *table, uint64_t number);     // the same, but "-" for 0: a column without any is left out
void gv_table_address(gv_table *table, uint64_t address); // 0x7f00...
void gv_table_place(gv_table *table, const gv_place *place);
void gv_table_bool(gv_table *table, bool value, const char *word); // the word or "-"
void gv_table_none(gv_table *table);
// The text for the table; in JSON the ranges.
void gv_table_ranges(gv_table *table, const gv_range *ranges, size_t count, size_t shown);
// In JSON, opens an array as the cell and returns where its elements go; NULL in a table, where the cell stays empty.
// The cell ends with gv_table_array_end, in both forms.
gv_json *gv_table_array(gv_table *table);
void gv_table_array_end(gv_table *table);

// Prints the table (nothing for JSON), without the columns that have nothing in them, and releases it. `nothing`,
// unless NULL, is printed when there are no rows.
gv_status gv_table_close(gv_table *table, FILE *out, const char *nothing, gv_error *error);

#endif
