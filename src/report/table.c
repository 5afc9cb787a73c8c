#include "report/table.h"

#include "base/memory.h"
#include "report/describe.h"

#include <inttypes.h>
#include <string.h>

enum { GAP = 2 };

void gv_table_open(gv_table *table, const gv_column *columns, size_t column_count, gv_json *json)
{
    *table = (gv_table){.columns = columns, .column_count = column_count, .json = json};
}

// Steps to the next column. Returns the key to write in JSON, having opened the row's object where it begins; NULL
// for a table.
static const char *begin_cell(gv_table *table)
{
    if (!table->json)
        return NULL;
    if (table->column == 0)
        gv_json_open_flat(table->json, NULL, '{');
    return table->columns[table->column].key;
}

// Ends the cell: what stands in `scratch` becomes the table's cell.
static void end_cell(gv_table *table)
{
    if (!table->json && table->columns[table->column].title) {
        char *copy = gv_strdup(table->scratch.length ? gv_string_text(&table->scratch) : "-");
        if (copy && GV_GROW(table->cells, table->cell_capacity, table->cell_count + 1)) {
            table->cells[table->cell_count++] = copy;
        } else {
            gv_free(copy);
            table->failed = true;
        }
    }
    gv_string_clear(&table->scratch);
    if (++table->column == table->column_count) {
        table->column = 0;
        if (table->json)
            gv_json_close(table->json);
    }
}

void gv_table_text(gv_table *table, const char *text)
{
    const char *key = begin_cell(table);
    if (key)
        gv_json_text(table->json, key, text && *text ? text : NULL);
    else
        gv_string_add_safe(&table->scratch, text);
    end_cell(table);
}

void gv_table_id(gv_table *table, uint64_t id)
{
    if (id)
        gv_table_index(table, id);
    else
        gv_table_none(table);
}

void gv_table_index(gv_table *table, uint64_t number)
{
    const char *key = begin_cell(table);
    if (key)
        gv_json_number(table->json, key, number);
    else
        gv_string_add(&table->scratch, "%" PRIu64, number);
    end_cell(table);
}

void gv_table_amount(gv_table *table, uint64_t number)
{
    const char *key = begin_cell(table);
    if (key)
        gv_json_number(table->json, key, number);
    else
        gv_string_add(&table->scratch, "%s", gv_number(number));
    end_cell(table);
}

void gv_table_some(gv_table *table, uint64_t number)
{
    if (number || table->json) {
        gv_table_amount(table, number);
    } else {
        begin_cell(table);
        end_cell(table);
    }
}

void gv_table_address(gv_table *table, uint64_t address)
{
    const char *key = begin_cell(table);
    if (key)
        gv_json_address(table->json, key, address);
    else
        gv_string_add(&table->scratch, "0x%" PRIx64, address);
    end_cell(table);
}

void gv_table_place(gv_table *table, const gv_place *place)
{
    const char *key = begin_cell(table);
    if (key)
        gv_json_place(table->json, key, place);
    else if (place->kind != GV_PLACE_NONE)
        gv_place_print(&table->scratch, place);
    end_cell(table);
}

void gv_table_bool(gv_table *table, bool value, const char *word)
{
    const char *key = begin_cell(table);
    if (key)
        gv_json_bool(table->json, key, value);
    else if (value)
        gv_string_add(&table->scratch, "%s", word);
    end_cell(table);
}

void gv_table_none(gv_table *table)
{
    const char *key = begin_cell(table);
    if (key)
        gv_json_null(table->json, key);
    end_cell(table);
}

void gv_table_ranges(gv_table *table, const gv_range *ranges, size_t count, size_t shown)
{
    const char *key = begin_cell(table);
    if (key) {
        gv_json_ranges(table->json, key, ranges, count);
    } else {
        for (size_t i = 0; i < count && i < shown; i++)
            gv_string_add(&table->scratch, "%s[0x%" PRIx64 ",0x%" PRIx64 ")", i ? " " : "", ranges[i].start,
                          ranges[i].end);
        if (count > shown)
            gv_string_add(&table->scratch, " and %s more", gv_number(count - shown));
    }
    end_cell(table);
}

gv_json *gv_table_array(gv_table *table)
{
    const char *key = begin_cell(table);
    if (key)
        gv_json_open(table->json, key, '[');
    return table->json;
}

void gv_table_array_end(gv_table *table)
{
    if (table->json)
        gv_json_close(table->json);
    end_cell(table);
}

// A column of the table as it is printed.
typedef struct shape {
    const gv_column *column;
    size_t width;
    bool empty; // nothing but "-": left out, so that what is there fits the screen
} shape;

static size_t measure(const gv_table *table, shape *shapes)
{
    size_t count = 0;
    for (size_t i = 0; i < table->column_count; i++) {
        const gv_column *column = &table->columns[i];
        if (column->title)
            shapes[count++] = (shape){column, gv_columns(column->title), true};
    }
    for (size_t i = 0; count && i < table->cell_count; i++) {
        shape *own = &shapes[i % count];
        size_t columns = gv_columns(table->cells[i]);
        own->width = columns > own->width ? columns : own->width;
        own->empty = own->empty && strcmp(table->cells[i], "-") == 0;
    }
    return count;
}

// Prints one line: the cells from `cells` on, or the titles when it is NULL.
static void print_line(FILE *out, const shape *shapes, size_t count, char *const *cells)
{
    size_t last = count;
    for (size_t i = 0; i < count; i++)
        last = shapes[i].empty ? last : i;
    for (size_t i = 0; i < count; i++) {
        if (shapes[i].empty)
            continue;
        const char *text = cells ? cells[i] : shapes[i].column->title;
        int padding = (int)(shapes[i].width - gv_columns(text));
        if (shapes[i].column->right)
            fprintf(out, "%*s%s", padding, "", text);
        else
            fprintf(out, "%s%*s", text, i == last ? 0 : padding, "");
        if (i != last)
            fprintf(out, "%*s", GAP, "");
    }
    fputc('\n', out);
}

gv_status gv_table_close(gv_table *table, FILE *out, const char *nothing, gv_error *error)
{
    shape *shapes = gv_calloc(table->column_count, sizeof *shapes);
    bool failed = table->failed || table->scratch.failed || !shapes;
    if (!failed && !table->json && !table->cell_count) {
        if (nothing)
            fprintf(out, "%s\n", nothing);
    } else if (!failed && !table->json) {
        size_t count = measure(table, shapes);
        print_line(out, shapes, count, NULL);
        for (size_t i = 0; i < table->cell_count; i += count)
            print_line(out, shapes, count, table->cells + i);
    }
    for (size_t i = 0; i < table->cell_count; i++)
        gv_free(table->cells[i]);
    gv_free(table->cells);
    gv_free(shapes);
    gv_string_free(&table->scratch);
    *table = (gv_table){0};
    return failed ? gv_fail(error, GV_ERR_MEMORY, "out of memory while the table was written") : GV_OK;
}
